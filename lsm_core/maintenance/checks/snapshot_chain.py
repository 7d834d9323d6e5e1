"""Check `snapshot_chain`: all files that snapshots and tags reference exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, DredgeError, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.actions.remove_unexisting_files import missing_entries
from lsm_core.maintenance.checks.outcome import CheckInput, CheckReport
from lsm_core.maintenance.damage import examine
from lsm_core.maintenance.used_files import select_added
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore

_MAX_PROBLEMS = 100
"""Number of problems after which the check stops: the storage is unavailable, or the table is another one."""


def snapshot_chain(check_input: CheckInput) -> CheckReport:
    """Check that the files of all snapshots and tags exist.

    First all metadata is read and damaged metadata files are reported. Then the existence of the files that each
    snapshot added is checked. Files taken over from earlier snapshots are checked once, with the oldest snapshot.
    Memory holds one manifest, its DELETE entries, and the file names of some folders.

    Args:
        check_input: store, snapshot and limits of the check.
    """
    store = check_input.store
    examination = examine(store)
    problems = [damage.text() for damage in examination.damages]
    known = {damage.path for damage in examination.damages}
    ids = snapshots.list_ids(store)
    for first, last in snapshots.gaps(ids):
        problems.append(f"snapshots {first} to {last} are missing" if last > first else f"snapshot {first} is missing")
    listed: dict[tuple[bytes, int], frozenset[str]] = {}
    lost: list[str] = []
    files = seen = 0
    previous: int | None = None
    for number in ids:
        if len(problems) >= _MAX_PROBLEMS:
            break
        try:
            snapshot = snapshots.read(store, number)
        except (SnapshotNotFound, CorruptFile):
            continue  # expired meanwhile, or reported already
        whole = previous is None or previous != number - 1
        parts = list(_inspect(store, f"snapshot {number}", snapshot, listed, known, whole=whole))
        if parts and not snapshots.exists(store, number):
            continue  # expired while it was looked at
        files += sum(count for count, _, _ in parts)
        problems += [text for _, text, _ in parts if text]
        lost += [name for _, _, name in parts if name]
        previous, seen = number, seen + 1
    for name, bucket in _missing_side_files(store, listed):
        problems.append(f"snapshot {previous}: file index {name} of bucket {bucket} is gone")
        lost.append(name)
    tagged = tags.list_names(store)
    for name in tagged:
        if len(problems) >= _MAX_PROBLEMS:
            break
        try:
            tag = tags.read_tag(store, name)
            if tag.id in ids:
                continue  # looked at as a snapshot
            parts = list(_inspect(store, f"tag {name}", tag, listed, known, whole=True))
        except (SnapshotNotFound, CorruptFile):
            continue
        except DredgeError as error:
            parts = [(0, f"tag {name}: {error}", "")]
        files += sum(count for count, _, _ in parts)
        problems += [text for _, text, _ in parts if text]
        lost += [name for _, _, name in parts if name]
    numbers = {"snapshots": seen, "tags": len(tagged), "data_files": files}
    if problems:
        return check_input.fails(f"{len(problems)} breaks: {problems[0]}", problems, **numbers).with_damage(lost)
    return check_input.passes(f"{seen} snapshots and {len(tagged)} tags: all {files:,} data files are there", **numbers)


def find_missing_file(store: TableStore) -> str | None:
    """Return the name of a data file of the newest snapshot that does not exist, or None if all exist.

    Raises:
        CorruptFile: a manifest list or manifest is damaged; the message names it.
    """
    latest = snapshots.latest(store)
    if latest is None:
        return None
    listed: dict[tuple[bytes, int], frozenset[str]] = {}
    for part in manifests.iter_live(store, latest):
        for row in missing_entries(store, part, listed):
            return str(row["file_name"])
    return None


def _missing_side_files(
    store: TableStore, listed: Mapping[tuple[bytes, int], frozenset[str]]
) -> Iterator[tuple[str, int]]:
    """Yield (name, bucket) of the index files beside live data files of the newest snapshot that do not exist.

    Args:
        store: the table.
        listed: cache of the file names in each bucket's directory, by partition and bucket; a name in it exists.
    """
    latest = snapshots.latest(store)
    with suppress(CorruptFile):  # reported with its snapshot
        for part in manifests.iter_live(store, latest) if latest is not None else ():
            with_extras = part.filter(pc.greater(pc.list_value_length(part.column("extra_files")), 0))
            columns = ["partition", "bucket", "file_name", "extra_files", "external_path"]
            for row in with_extras.select(columns).to_pylist():  # one object per file of one manifest
                known = listed.get((row["partition"], row["bucket"]), ())
                for name in row["extra_files"]:
                    path = store.data_path(row["partition"], row["bucket"], name, row["external_path"])
                    if name not in known and not store.file_io.exists(path):
                        yield name, row["bucket"]


def _inspect(
    store: TableStore,
    holder: str,
    snapshot: Snapshot,
    listed: dict[tuple[bytes, int], frozenset[str]],
    known: Collection[str],
    *,
    whole: bool,
) -> Iterator[tuple[int, str, str]]:
    """Check that the files of one snapshot exist, and yield the results step by step.

    A result is (number of checked data and changelog files, problem or "", name of the lost file or "").

    With ``whole``, a missing list of changelog files is no problem. Java's expiry deletes the changelog of a snapshot
    that a tag keeps; a rollback to the tag makes that snapshot the oldest one.

    Args:
        store: the table.
        holder: name of the snapshot or tag ("snapshot 7"), with which each problem begins.
        snapshot: snapshot to check.
        listed: cache of the file names in each bucket's directory, by partition and bucket.
        known: paths of damaged files that were reported before and yield no problem.
        whole: also check the files taken over from earlier snapshots.
    """
    try:
        parts = manifests.iter_live(store, snapshot) if whole else iter([_added_entries(store, snapshot)])
        for part in parts:
            yield part.num_rows, "", ""
            for row in missing_entries(store, part, listed):
                name = row["file_name"]
                yield 0, f"{holder}: data file {name} of bucket {row['bucket']} is gone", name
        if not whole:
            manifests.base_list(store, snapshot)
        changelog = manifests.changelog_list(store, snapshot)
        if changelog is None and not whole:
            yield 0, f"{holder}: the list of its changelog, {snapshot.changelog_manifest_list}, is gone", ""
        changes = select_added(manifests.entries_of(store, changelog or []))
        yield changes.num_rows, "", ""
        for row in missing_entries(store, changes, listed):
            name = row["file_name"]
            yield 0, f"{holder}: changelog file {name} of bucket {row['bucket']} is gone", name
        for entry in manifests.index_entries(store, snapshot):
            path = index_file_path(store, entry)
            if not store.file_io.exists(path):
                yield 0, f"{holder}: index file {path} is gone", entry.file_name
        if snapshot.statistics and not store.file_io.exists(store.statistics_path(snapshot.statistics)):
            yield 0, f"{holder}: statistics {snapshot.statistics} are gone", ""
    except CorruptFile as error:
        if error.path not in known:
            yield 0, f"{holder}: {error.finding}", ""


def _added_entries(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the entries of the files that a snapshot added and still holds."""
    delta = manifests.delta_entries(store, snapshot)
    new = select_added(delta)
    removed = delta.filter(pc.equal(delta.column("kind"), 1))
    if not removed.num_rows:
        return new
    # A file that changes its level is removed and added under one name.
    # A file that is added and then removed was deleted on purpose.
    moved = [
        f"{name} {level}"
        for name, level in zip(*(removed.column(c).to_pylist() for c in ("file_name", "level")), strict=True)
    ]
    keys = pc.binary_join_element_wise(new.column("file_name"), pc.cast(new.column("level"), pa.string()), " ")
    return new.filter(pc.invert(pc.is_in(keys, pa.array(moved, pa.string()))))
