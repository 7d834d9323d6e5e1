"""What acts that delete share: files as items of their plans, where they lie, which of them something retained still needs, and reports."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.format.file_meta import DELETE
from lsm_core.format.snapshot import Snapshot
from lsm_core.locks import held, lock_settings, table_lock
from lsm_core.maintenance.action import Declined, MaintenancePlan, Report, Runner
from lsm_core.maintenance.own_files import allowed_external_places, is_absolute
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.maintenance.used_files import metadata_files, names_of, read_lineages, still_used
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore
from lsm_core.options import ALLOWED_PLACES, TableOptions
from lsm_core.storage import inside_really

_PATHS: Final = {"statistics": TableStore.statistics_path}


@dataclass(frozen=True)
class DeletionReport(Report):
    """What an act set aside or deleted: files recorded for deletion (or deleted, direct mode).

    ``trash_id`` names the deletion record, ``not_before_ms`` (epoch ms) is when a sweep may delete its files; ``bytes_freed`` counts
    files already deleted; ``held`` are files that something retained still needs. In direct mode: ``files_missing`` were gone already,
    ``failed`` could not be deleted, each with the reason; the next sweep of the trash tries these again.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"held": "held", "declined": "left alone", "failed": "not deleted"}

    plan_hash: str
    base_snapshot: int | None
    files_recorded: int = 0
    bytes_recorded: int = 0
    files_deleted: int = 0
    bytes_freed: int = 0
    files_missing: int = 0
    trash_id: str | None = None
    not_before_ms: int | None = None
    failed: tuple[Declined, ...] = ()
    held: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    dry_run: bool = False

    def file_lines(self, table: str) -> list[str]:
        """Where the files are, and how to undo it."""
        if self.trash_id is None:
            size = f"{self.files_deleted} files ({self.bytes_freed:,} bytes)"
            gone = f", {self.files_missing} were gone already" if self.files_missing else ""
            return [f"{size} deleted at once{gone} (dredge.delete-mode=direct)"]
        size = f"{self.files_recorded} files ({self.bytes_recorded:,} bytes)"
        wait = f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"
        return [wait, f"undo with: dredge restore {table} {self.trash_id}"]


def when_freed(plan: MaintenancePlan) -> list[str]:
    """For people: how much ``plan`` frees, and when."""
    files = plan.items_of(DeleteItem)
    if not files:
        return ["frees no file"]
    size = f"frees {len(files)} files ({sum(item.size for item in files):,} bytes)"
    grace = grace_ms(TableOptions(plan.options, plan.table, stored=True))
    if not grace:
        return [f"{size} at once (dredge.delete-mode=direct)"]
    return [f"{size}: applied now, a sweep deletes them from {utc_text(plan.created_ms + grace)} UTC on"]


def grace_ms(options: TableOptions) -> int:
    """How long (ms) what is set aside now waits in the trash: not at all in direct mode (`dredge.delete-mode`)."""
    return 0 if options.delete_mode == "direct" else options.trash_grace_expiry


@contextmanager
def under_lock(store: TableStore, what: str) -> Iterator[None]:
    """Hold the table's lock, if it has one (`dredge.lock`), so that nobody who takes it changes the history in the middle of ``what``.

    A commit takes it too, so nothing is committed within. Raises LockTimeout naming the holder, and what asking the lock raises.
    """
    lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, what)
    if lock is None:
        yield
        return
    with held(lock, lock_settings(store.options)):
        yield


def require_main(store: TableStore, what: str) -> None:
    """Raise UnsupportedFeature on a branch, for what is done to a table with all of its branches or not at all."""
    if store.branch != "main":
        raise UnsupportedFeature(f"{what} of branch {store.branch}", store.name)


def split_used(
    store: TableStore,
    candidates: Sequence[DeleteItem],
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_branch: str | None = None,
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
    unreadable: AbstractSet[int] = frozenset(),
    runner: Runner | None = None,
) -> tuple[list[DeleteItem], list[Declined]]:
    """Candidates that nothing retained needs, and the data files that something does, with its name.

    ``without`` and ``without_changelogs``: ids of the snapshots and changelogs that go; ``without_branch``, ``without_tags`` and
    ``dropped``: the branch, the tags and the snapshots (which leave no changelog) that go; ``unreadable``: damaged snapshots whose neighbours stay and say what they need:
    their data is in the next snapshot or was dropped by it, their metadata is new or that of the one before;
    ``runner``: see `still_used`. Manifest-side files shared with newer
    snapshots are the rule, so they are dropped without a word. Raises CorruptFile when something retained cannot be read.
    """
    lineages = read_lineages(
        store,
        without=without,
        without_changelogs=without_changelogs,
        without_branch=without_branch,
        without_tags=without_tags,
        dropped=dropped | unreadable,
    )
    names = {PurePosixPath(item.path).name for item in candidates}
    asked = still_used(store, lineages, names, runner)
    for number in sorted(unreadable):
        gone = manifests.delta_entries(store, snapshots.read(store, number + 1))
        gone = gone.filter(pc.equal(gone.column("kind"), DELETE))
        asked.add(names_of(gone).to_pylist(), f"snapshot {number}, which cannot be read", names)
    used = asked.holders
    free = [item for item in candidates if PurePosixPath(item.path).name not in used]
    held = [
        Declined(item.path, "held", f"held by {used[name]}", {"size": item.size, "holder": used[name]})
        for item in candidates
        if (name := PurePosixPath(item.path).name) in used and item.kind in {"data", "changelog"}
    ]
    return free, held


def metadata_item(store: TableStore, path: str, kind: str, size: int, reason: str) -> DeleteItem:
    """The delete item of a manifest-side file. Raises CorruptFile for a path outside the table."""
    return DeleteItem(_relative(store, path), kind, size, reason)


def metadata_items(store: TableStore, snapshot: Snapshot, reason: str) -> Iterator[DeleteItem]:
    """Delete items of a snapshot's manifest-side files: lists, manifests, index files inside the table, statistics. Raises CorruptFile."""
    indexes = {entry.file_name: entry for entry in manifests.index_entries(store, snapshot)}
    for name, kind, size in metadata_files(store, snapshot):
        if kind != "index":
            path = _PATHS.get(kind, TableStore.manifest_path)(store, name)
        elif indexes[name].external_path is None:
            path = index_file_path(store, indexes[name])
        else:
            continue  # as data files outside the table's root: never ours to delete
        yield metadata_item(store, path, kind, size, reason)


def data_items(store: TableStore, entries: pa.Table, kind: str, reason: str) -> Iterator[DeleteItem]:
    """Delete items of data files and their extra files; files outside the table's root are never ours to delete."""
    inside = entries.filter(pc.is_null(entries.column("external_path")))
    columns = ["partition", "bucket", "file_name", "file_size", "extra_files"]
    for row in inside.select(columns).to_pylist():  # one object a file of the plan, not a row of data
        for name, size in ((row["file_name"], row["file_size"]), *((extra, 0) for extra in row["extra_files"] or ())):
            path = store.data_path(row["partition"], row["bucket"], name)
            yield DeleteItem(_relative(store, path), kind, size, reason)


def _relative(store: TableStore, path: str) -> str:
    root = store.root.rstrip("/") + "/"
    if not path.startswith(root):
        raise CorruptFile(path, f"lies outside of table {store.name}")
    return path[len(root) :]


def deletable_path(store: TableStore, path: str, linkless: set[tuple[str, str]] | None = None) -> str:
    """Where a file of a plan or of a deletion record lies: ``path`` is relative to the table's root or, in a declared external place, absolute.

    ``linkless``: folders looked at for this act, see `inside_really`. Raises CorruptFile for one that would leave both, also through a link.
    """
    if not is_absolute(path):
        return inside_really(store.root, f"{store.root}/{path}", linkless)
    for place in allowed_external_places(store):
        with suppress(CorruptFile):
            clean = inside_really(place, path, linkless)
            _require_no_table(store, place, clean, linkless)
            return clean
    raise CorruptFile(
        path,
        "an absolute path that data-file.external-paths does not declare, that leads out of there, that lies in another table, or that "
        f"{ALLOWED_PLACES} does not allow",
    )


def _require_no_table(store: TableStore, place: str, path: str, known: set[tuple[str, str]] | None) -> None:
    """Raise CorruptFile where a folder between an external place and a file in it is a table's: its files are that table's."""
    folder = posixpath.dirname(path)
    while len(folder) >= len(place.rstrip("/")):
        if known is None or (place, f"{folder}/schema") not in known:
            if any(status.name.startswith("schema-") for status in store.file_io.list_dir(f"{folder}/schema")):
                raise CorruptFile(path, f"{folder} is the folder of another table")
            if known is not None:
                known.add((place, f"{folder}/schema"))
        folder = posixpath.dirname(folder)
