"""Files that are still needed, found by the references of every snapshot, tag, branch, changelog and pending restore.

Data directories are never listed. A file is kept in case of doubt, because unreadable metadata might need any file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_text import parse_json
from lsm_core.maintenance.action import Runner, TaskRunner
from lsm_core.maintenance.trash import DELETED_BRANCH, EXPIRED_CHANGELOGS, TrashRecord
from lsm_core.metadata import branches, changelogs, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

LOOKED_AT_HERE: Final = 256
"""Largest number of snapshots, tags and changelogs that this process reads itself although a `TaskRunner` is given."""
SNAPSHOTS_A_PART: Final = 32
_BYTES_A_NAME: Final = 120


@dataclass(frozen=True)
class Lineage:
    """Consecutive snapshots of a table, tag or branch, each built on the one before, oldest first.

    Attributes:
        holder: name of the lineage for people ("snapshot", "tag" or "branch" with its name).
        snapshots: the snapshots, oldest first.
        changelog: whether the snapshots have expired, so that only the files of their changelogs are needed.
        deltas: whether writers' files that the snapshots dropped are needed too, for their future changelogs.
        pending: whether the snapshots are in a deletion record in the trash that can still be restored. Their files are
            needed only as long as the record can be restored.
        store: branch whose options define the kept part of a changelog, None for the searched table.
    """

    holder: str
    snapshots: tuple[Snapshot, ...]
    changelog: bool = False
    deltas: bool = False
    pending: bool = False
    store: TableStore | None = None


@dataclass
class UsedFiles:
    """Candidate files that must be kept, each with a holder: the snapshot, tag or branch that needs the file.

    Attributes:
        holders: name of one holder by bare file name. Equal names in different folders keep both files.
        waiting: names of the files that only a restorable deletion record in the trash needs.
    """

    holders: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)

    def add(self, names: Iterable[str], holder: str, candidates: AbstractSet[str], *, pending: bool = False) -> None:
        """Record the holder (snapshot, tag, branch) that needs those of ``names`` that are candidates for deletion.

        A name keeps its first holder, so pending holders must be added last.

        Args:
            names: file names that the holder needs.
            holder: name of the holder.
            candidates: names of the files that are to be deleted; other names are ignored.
            pending: whether the holder is a restorable deletion record in the trash.
        """
        for name in names:
            if name in candidates and name not in self.holders:
                self.holders[name] = holder
                if pending:
                    self.waiting.add(name)


def read_lineages(
    store: TableStore,
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_branch: str | None = None,
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
    pending: Sequence[TrashRecord] = (),
) -> list[Lineage]:
    """Return all lineages (runs of consecutive snapshots) that may need files, of every branch and the trash.

    A lineage consists of snapshots, changelogs or tags, or of snapshots in a record of the trash that can be restored.

    Args:
        store: the table or branch.
        without: ids of snapshots of ``store`` that expire; they become changelogs if the table keeps changelogs longer.
        without_changelogs: ids of changelogs of ``store`` that are removed.
        without_branch: branch to leave out as a whole.
        without_tags: tags of ``store`` that are removed.
        dropped: ids of snapshots of ``store`` that are removed without becoming changelogs.
        pending: deletion records in the trash that can be restored.

    Raises:
        CorruptFile: a snapshot, changelog, tag or deletion record cannot be read.
        TableNotFound: a branch has no schema.
    """
    lineages = branch_lineages(
        store, without=without, without_changelogs=without_changelogs, without_tags=without_tags, dropped=dropped
    )
    for other in branches.other_stores(store, excluded=without_branch):
        lineages += branch_lineages(other, f"branch {other.branch} ")
    for record in pending:
        holder = f"trash {record.trash_id} (can be restored)"
        if record.action == DELETED_BRANCH:
            lineages += deleted_branch_lineages(store, record, holder)
            continue
        kept = [
            Snapshot.from_json(text.encode(), f"{record.trash_id}: snapshot {n}")
            for n, text in sorted(record.snapshots.items())
        ]
        if record.action == EXPIRED_CHANGELOGS:
            lineages += _changelog_lineages(f"{holder} changelog", kept, pending=True)
        else:
            current = [drop_missing_changelog(store, snapshot) for snapshot in kept]
            lineages += split_at_gaps(store, current, f"{holder} snapshot", pending=True)
        for path, data in record.snapshot_files():
            name = path.rpartition("/")[2]
            changelog_snapshot = Snapshot.from_json(data, f"{record.trash_id}: {name}")
            if name.startswith(changelogs.PREFIX):
                lineages += _changelog_lineages(f"{holder} changelog", [changelog_snapshot], pending=True)
            else:
                lineages.append(
                    Lineage(f"{holder} {name}", (drop_missing_changelog(store, changelog_snapshot),), pending=True)
                )
    return lineages


def branch_lineages(
    store: TableStore,
    prefix: str = "",
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
) -> list[Lineage]:
    """Return the lineages (runs of consecutive snapshots) of the branch that ``store`` is on.

    Args:
        store: the branch.
        prefix: text before the name of each lineage (`Lineage.holder`).
        without: ids of snapshots that expire.
        without_changelogs: ids of changelogs that are removed.
        without_tags: tags that are removed.
        dropped: ids of snapshots that are removed without becoming changelogs.
    """
    ids = snapshots.list_ids(store)
    keeps = store.options.changelog_decoupled
    kept = _read_all(store, [number for number in ids if number not in without and number not in dropped])
    lineages = split_at_gaps(store, kept, f"{prefix}snapshot", deltas=keeps and changelogs.keeps_deltas(store))
    tagged = [(name, tag) for name, tag in sorted(tags.list_tags(store).items()) if name not in without_tags]
    lineages += [Lineage(f"{prefix}tag {name}", (drop_missing_changelog(store, tag),)) for name, tag in tagged]
    turning = set(without) & set(ids) if keeps else set()
    changelog_snapshots = [*_read_all(store, sorted(turning)), *_changelogs(store, without_changelogs | turning)]
    lineages += _changelog_lineages(f"{prefix}changelog", changelog_snapshots)
    return [replace(lineage, store=store) for lineage in lineages]


def deleted_branch_lineages(store: TableStore, record: TrashRecord, holder: str) -> list[Lineage]:
    """Return the lineages (runs of consecutive snapshots) of a deleted branch that can be restored.

    Args:
        store: the table.
        record: record of the deleted branch in the trash.
        holder: text before the name of each lineage (`Lineage.holder`).

    Raises:
        CorruptFile: the record's copies cannot be read.
    """
    metadata = {path.partition(f"branch-{record.branch}/")[2]: data for path, data in record.metadata.items()}
    schema = max(
        (name for name in metadata if name.startswith("schema/schema-")), key=lambda n: int(n.rpartition("-")[2])
    )
    parsed = TableSchema.from_json(metadata[schema], f"{record.trash_id}: {schema}")
    options = TableOptions.usable(parsed.options, store.name)
    view = TableStore(store.file_io, store.root, store.name, parsed, options, store.clock, record.branch)
    view.in_catalog_of(store)
    kinds: dict[str, list[Snapshot]] = {"snapshot": [], "tag": [], "changelog": []}
    for name, data in metadata.items():
        kind, _, last = name.partition("/")
        if kind in kinds and last.startswith(f"{kind}-") and "/" not in last:
            kinds[kind].append(Snapshot.from_json(data, f"{record.trash_id}: {name}"))
    deltas = options.changelog_decoupled and changelogs.keeps_deltas(view)
    ordered = sorted(
        (drop_missing_changelog(view, snapshot) for snapshot in kinds["snapshot"]), key=lambda snapshot: snapshot.id
    )
    lineages = split_at_gaps(view, ordered, f"{holder} snapshot", deltas=deltas, pending=True)
    lineages += [Lineage(f"{holder} tag", (drop_missing_changelog(view, tag),), pending=True) for tag in kinds["tag"]]
    lineages += _changelog_lineages(f"{holder} changelog", kinds["changelog"], pending=True)
    return [replace(lineage, store=view) for lineage in lineages]


def drop_missing_changelog(store: TableStore, expired: Snapshot) -> Snapshot:
    """Return an expired snapshot, without its changelog manifest list if the file is missing.

    Engines other than Dredge expire changelogs even if a tag or deletion record in the trash needs them.

    Args:
        store: the table.
        expired: the snapshot.
    """
    listed = expired.changelog_manifest_list
    if listed is None or store.file_io.exists(store.manifest_path(listed)):
        return expired
    return replace(expired, changelog_manifest_list=None, changelog_manifest_list_size=None)


def find_used(
    store: TableStore, lineages: Sequence[Lineage], candidates: AbstractSet[str], runner: Runner | None = None
) -> UsedFiles:
    """Return the candidate files that a lineage (run of consecutive snapshots) needs, each with a lineage's name.

    Data files, extra files and metadata files of the snapshots are compared with the candidates.

    Args:
        store: the table.
        lineages: lineages that may need files.
        candidates: bare file names.
        runner: `TaskRunner` that reads more than `LOOKED_AT_HERE` snapshots in parallel; None for this process.
    """
    used = UsedFiles()
    positions = [(line, place) for line, lineage in enumerate(lineages) for place in range(len(lineage.snapshots))]
    if not isinstance(runner, TaskRunner) or len(positions) <= LOOKED_AT_HERE:
        candidate_array = pa.array(sorted(candidates), pa.string())
        for line, place in positions:
            _add_needs(used, store, lineages[line], place, candidates, candidate_array)
        return used
    size = max(SNAPSHOTS_A_PART, -(-len(positions) // (4 * runner.slots())))
    parts = [json.dumps(positions[at : at + size]).encode() for at in range(0, len(positions), size)]
    work = partial(_used_part, store, tuple(lineages), frozenset(candidates))
    for answer in runner.run_parts(f"looking for files in use of table {store.name}", work, parts):
        for holder, names, pending in parse_json(answer):
            used.add(names, holder, candidates, pending=pending)
    return used


def _used_part(store: TableStore, lineages: Sequence[Lineage], candidates: AbstractSet[str], payload: bytes) -> bytes:
    """Return the candidate files that some snapshots need, for one part of a search that runs in parallel.

    ``payload`` is a JSON list of [index in ``lineages``, index of the snapshot in this lineage]. The result is a JSON
    list of [name of the lineage, file names, whether the lineage is in the trash], in order.
    """
    used = UsedFiles()
    candidate_array = pa.array(sorted(candidates), pa.string())
    for line, place in parse_json(payload):
        _add_needs(used, store, lineages[line], place, candidates, candidate_array)
    names_by_holder: dict[tuple[str, bool], list[str]] = {}
    for name, holder in used.holders.items():
        names_by_holder.setdefault((holder, name in used.waiting), []).append(name)
    return json.dumps([[holder, names, pending] for (holder, pending), names in names_by_holder.items()]).encode()


def _add_needs(
    used: UsedFiles,
    store: TableStore,
    lineage: Lineage,
    place: int,
    candidates: AbstractSet[str],
    candidate_array: pa.Array,
) -> None:
    """Record in ``used`` the files that a snapshot needs in addition to the lineage's earlier snapshots.

    Args:
        used: result to add the files to.
        store: the table.
        lineage: consecutive snapshots of one holder.
        place: index of the snapshot in the lineage.
        candidates: names of the files to look for.
        candidate_array: the same names as an Arrow array.
    """
    view, snapshot = lineage.store or store, lineage.snapshots[place]
    numbered = lineage.holder.endswith(("snapshot", "changelog"))
    holder = f"{lineage.holder} {snapshot.id}" if numbered else lineage.holder
    if lineage.changelog:
        named = (name for name, _, _ in changelog_files(view, snapshot))
        used.add(named, holder, candidates, pending=lineage.pending)
        names = names_of(changelogs.kept_entries(view, snapshot))
    elif place == 0:
        used.add(metadata_names(view, snapshot), holder, candidates, pending=lineage.pending)
        names = _data_names(
            view, snapshot, manifests.live_entries(view, snapshot, columns=["file_name", "extra_files"]), lineage
        )
    else:
        # Of later snapshots of a lineage only their additions matter. The lists of a snapshot are immutable.
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
        key = ("needs", view.root, *lists, snapshot.index_manifest, snapshot.statistics, lineage.deltas)
        needs: tuple[list[str], pa.Array] | None = store.kept.get(key)
        if needs is None:
            delta = select_added(manifests.delta_entries(view, snapshot))
            needs = list(metadata_names(view, snapshot)), _data_names(view, snapshot, delta, lineage)
            store.kept.put(key, needs, needs[1].nbytes + _BYTES_A_NAME * len(needs[0]))
        used.add(needs[0], holder, candidates, pending=lineage.pending)
        names = needs[1]
    used.add(names.filter(pc.is_in(names, candidate_array)).to_pylist(), holder, candidates, pending=lineage.pending)


def _data_names(store: TableStore, snapshot: Snapshot, entries: pa.Table, lineage: Lineage) -> pa.Array:
    """Return the names of the files of ``entries``, and of the files that the changelog of a snapshot needs."""
    parts = [names_of(entries)]
    if lineage.deltas:
        parts.append(names_of(find_removed_by_writers(store, snapshot)))
    if snapshot.changelog_manifest_list:
        parts.append(names_of(manifests.changelog_entries(store, snapshot)))
    return pa.concat_arrays(parts)


def metadata_names(store: TableStore, snapshot: Snapshot) -> Iterator[str]:
    """Yield the names of the metadata files of a snapshot.

    These are manifest lists, manifests, manifest sidecars, the index manifest, index files and statistics.

    Args:
        store: the table.
        snapshot: the snapshot.
    """
    for name, _, _ in metadata_files(store, snapshot):
        yield name


def metadata_files(store: TableStore, snapshot: Snapshot) -> Iterator[tuple[str, str, int]]:
    """Yield (name, kind, size in bytes or 0 if unrecorded) of the metadata files of a snapshot.

    These are manifest lists, manifests, manifest sidecars, the index manifest, index files and statistics.

    Args:
        store: the table.
        snapshot: the snapshot.
    """
    lists: list[tuple[str, int | None, list[ManifestFileMeta]]] = [
        (name, size, manifests.read_list(store, name, size))
        for name, size in (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        )
    ]
    changelog = manifests.changelog_list(store, snapshot)
    if snapshot.changelog_manifest_list and changelog is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size, changelog))
    for name, size, metas in lists:
        yield name, "manifest-list", size or 0
        for meta in metas:
            yield meta.file_name, "manifest", meta.file_size
            yield from ((sidecar, "manifest-sidecar", 0) for sidecar in meta.sidecars)
    if snapshot.index_manifest:
        yield snapshot.index_manifest, "index-manifest", 0
        for entry in manifests.index_entries(store, snapshot):
            yield entry.file_name, "index", entry.file_size
    if snapshot.statistics:
        yield snapshot.statistics, "statistics", 0


def changelog_files(store: TableStore, changelog: Snapshot) -> Iterator[tuple[str, str, int]]:
    """Yield (name, kind, size in bytes or 0 if unrecorded) of the manifest lists and manifests of a kept changelog.

    Args:
        store: the table.
        changelog: the expired snapshot.
    """
    for name, size in changelogs.kept_lists(store, changelog):
        yield name, "manifest-list", size or 0
        for meta in manifests.read_list(store, name, size):
            yield meta.file_name, "manifest", meta.file_size
            yield from ((sidecar, "manifest-sidecar", 0) for sidecar in meta.sidecars)


def names_of(entries: pa.Table) -> pa.Array:
    """Return the file names of entries together with their extra files (file indexes).

    Args:
        entries: manifest entries.
    """
    extra = pc.list_flatten(one_array(entries.column("extra_files")))
    return pa.concat_arrays([one_array(entries.column("file_name")), extra])


def select_added(entries: pa.Table) -> pa.Table:
    """Return the ADD entries.

    Args:
        entries: manifest entries.
    """
    return entries.filter(pc.equal(entries.column("kind"), 0))


def select_removed(entries: pa.Table) -> pa.Table:
    """Return the DELETE entries of files that the same delta does not add again.

    A file that is only moved to a different level (upgrade) has both a DELETE and an ADD entry.

    Args:
        entries: manifest entries.
    """
    deletes = entries.filter(pc.equal(entries.column("kind"), 1))
    kept = names_of(select_added(entries))
    return deletes.filter(pc.invert(pc.is_in(deletes.column("file_name"), kept)))


def select_dropped_extras(entries: pa.Table) -> pa.Table:
    """Return one entry for each extra file (file index) that a delta drops while it keeps the data file.

    For example, `rewrite_file_index` replaces the index file of a data file.

    Args:
        entries: manifest entries.

    Returns:
        Entries with the name of the extra file in place of the data file's, 0 bytes, and no extra files.
    """
    added = names_of(select_added(entries))
    deletes = entries.filter(pc.equal(entries.column("kind"), 1))
    deletes = deletes.filter(pc.is_in(deletes.column("file_name"), added))
    extras = one_array(deletes.column("extra_files"))
    dropped = deletes.take(pc.list_parent_indices(extras))
    names = pc.list_flatten(extras)
    values = {
        "file_name": names,
        "file_size": pa.repeat(pa.scalar(0, pa.int64()), len(names)),
        "extra_files": pa.nulls(len(names), extras.type),
    }
    for name, column in values.items():
        dropped = dropped.set_column(dropped.schema.get_field_index(name), dropped.schema.field(name), column)
    return dropped.filter(pc.invert(pc.is_in(dropped.column("file_name"), added)))


def find_removed_by_writers(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the entries of writers' files that the snapshot dropped.

    In tables without changelog producer, streams read these files later.

    Args:
        store: the table.
        snapshot: the snapshot.
    """
    removals = select_removed(manifests.delta_entries(store, snapshot))
    return removals.filter(changelogs.is_written(removals))


def _read_all(store: TableStore, ids: Sequence[int]) -> list[Snapshot]:
    read = []
    for number in ids:
        try:
            read.append(snapshots.read(store, number))
        except SnapshotNotFound:
            # Another process expired it between the listing and this read: nothing needs it any more.
            continue
    return read


def _changelogs(store: TableStore, without: AbstractSet[int] = frozenset()) -> list[Snapshot]:
    read = []
    for number in changelogs.list_changelogs(store):
        if number not in without:
            with suppress(SnapshotNotFound):  # expired between the listing and this read
                read.append(changelogs.read_changelog(store, number))
    return read


def _changelog_lineages(holder: str, expired: Sequence[Snapshot], *, pending: bool = False) -> list[Lineage]:
    """Return one lineage per changelog, because each changelog is read independently of earlier ones."""
    return [Lineage(holder, (changelog,), changelog=True, pending=pending) for changelog in expired]


def split_at_gaps(
    store: TableStore, ordered: Sequence[Snapshot], holder: str, *, deltas: bool = False, pending: bool = False
) -> list[Lineage]:
    """Split snapshots into lineages: runs of snapshots, each built on the one before.

    A snapshot was not always built on that with the preceding id, for example after a rollback or a fast-forward. So a
    lineage continues only if the base manifests of a snapshot are exactly the base and delta manifests of the snapshot
    before. A snapshot that merged manifests also begins a new lineage, which costs a read of all of its entries.

    Args:
        store: the table or branch of the snapshots.
        ordered: the snapshots, ordered by id.
        holder: name of the lineages, for people.
        deltas: whether writers' files that the snapshots dropped count as used.
        pending: whether the snapshots are in the trash.

    Returns:
        The lineages, in order.

    Raises:
        CorruptFile: a manifest list cannot be read.
    """
    lines: list[list[Snapshot]] = []
    left: set[str] = set()
    for snapshot in ordered:
        base, delta = (
            {meta.file_name for meta in manifests.read_list(store, name, size)}
            for name, size in (
                (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
                (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            )
        )
        if lines and lines[-1][-1].id + 1 == snapshot.id and base == left:
            lines[-1].append(snapshot)
        else:
            lines.append([snapshot])
        left = base | delta
    return [Lineage(holder, tuple(line), deltas=deltas, pending=pending) for line in lines]
