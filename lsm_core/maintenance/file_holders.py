"""Search for the holders of files: the snapshots, tags, branches or plans that reference given file names.

A reference is the bare name of a file, in any folder. Every entry of a reachable manifest counts, also a DELETE entry:
as in Java's `OrphanFilesClean`, a file is kept in case of doubt. Unreadable metadata is an error, because the metadata
might reference any file. Each manifest is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, empty_table, numpy_array, one_array, value_offsets
from lsm_core.errors import CorruptFile, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.state import HOLDER_KIND
from lsm_core.json_text import texts_in
from lsm_core.maintenance.iceberg_files import iceberg_names
from lsm_core.maintenance.saved_plans import names_in_saved_plans
from lsm_core.maintenance.trash import TrashRecord
from lsm_core.maintenance.used_files import drop_missing_changelog, names_of, select_removed
from lsm_core.metadata import branches, changelogs, consumers, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

_BATCH: Final = 1 << 20
"""Number of manifest entries that are looked up at once among the searched names."""
_NO_HOLDER: Final = -1
_BUCKET: Final = pa.schema([("partition", pa.binary()), ("bucket", pa.int32()), ("files", pa.int64())])
# Several buckets' changelog files in one (Flink): what entries name is "<file>$<bucket>-<length>-<offset>-<length>".
_SLICE: Final = r"^(.*\$\d+-\d+)-\d+-\d+(\.[^$]*)$"


class HolderKind(StrEnum):
    """Kinds of holders that keep a file from deletion."""

    LIVE = "live"
    """The newest snapshot."""
    SNAPSHOT = "snapshot"
    TAG = "tag"
    BRANCH = "branch"
    CHANGELOG = "changelog"
    PLAN = "pending plan"
    GRACE = "grace"
    """A deletion record that can still be restored."""
    ICEBERG = HOLDER_KIND
    """A version of the table's Iceberg metadata, which names its manifests and manifest lists."""
    NAMED = "named"
    """A manifest in use that only records that the file was dropped."""


@dataclass(frozen=True)
class Holder:
    """Snapshot, tag, branch, plan or the like that references files and so keeps them from deletion.

    Attributes:
        kind: kind of the holder.
        name: name for people ("snapshot 7", "tag month-end").
    """

    kind: HolderKind
    name: str


@dataclass(frozen=True)
class FileHolders:
    """Result of a search for the holders (snapshots, tags, branches, plans) that reference file names.

    Attributes:
        names: the searched file names, without duplicates.
        codes: index in ``holders`` of each name's holder, -1 if nothing references the name.
        holders: snapshots, tags, branches, plans and the like that reference searched names.
        snapshots: number of snapshots, tags and changelogs read, including those in deletion records in the trash.
        entries: partition and bucket of the entries of main's newest snapshot whose files are inside the table, with
            column ``files``: +1 for ADD entries, -1 for DELETE entries.
        in_use: names of the base and delta manifest lists of main's newest snapshot.
    """

    names: pa.Array
    codes: npt.NDArray[np.int32]
    holders: tuple[Holder, ...]
    snapshots: int
    entries: pa.Table
    in_use: tuple[str, ...]

    @property
    def free(self) -> pa.Array:
        """The searched names that no snapshot, tag, branch or plan references."""
        return self.names.filter(arrow_array(self.codes == _NO_HOLDER))

    def filled_buckets(self) -> list[tuple[bytes, int, int]]:
        """Return (partition, bucket, number of live files inside the table) per bucket of main's newest snapshot."""
        counted = _count_by_bucket(self.entries)
        rows = counted.filter(pc.greater(counted.column("files"), 0)).to_pylist()
        return [(row["partition"], row["bucket"], row["files"]) for row in rows]  # one per bucket

    def by_name(self) -> dict[str, Holder]:
        """Return the holders by file name; names without a holder are left out."""
        held_places = np.flatnonzero(self.codes != _NO_HOLDER)
        held = self.names.take(arrow_array(held_places)).to_pylist()
        return {name: self.holders[code] for name, code in zip(held, self.codes[held_places].tolist(), strict=True)}


@dataclass(frozen=True)
class History:
    """Snapshots, tags and changelogs that the directories of one branch list.

    Attributes:
        snapshots: ids of snapshots, ascending.
        tags: names of tags.
        changelogs: ids of the changelogs of expired snapshots, ascending.
    """

    snapshots: tuple[int, ...]
    tags: tuple[str, ...]
    changelogs: tuple[int, ...]


def history_of(store: TableStore) -> dict[str, History]:
    """Return the history of main and of every branch by branch name, from directory listings.

    Args:
        store: the table.

    Raises:
        TableNotFound: a branch has no schema.
    """
    return {branch.branch: _history(branch) for branch in branches.all_stores(store)}


def _history(store: TableStore) -> History:
    listed = [status.name for status in store.file_io.list_dir(f"{store.metadata_root}/tag") if not status.is_dir]
    names = sorted(name.removeprefix("tag-") for name in listed if name.startswith("tag-"))
    return History(tuple(snapshots.list_ids(store)), tuple(names), tuple(changelogs.list_changelogs(store)))


def find_holders(store: TableStore, names: pa.Array, pending: Sequence[TrashRecord] = ()) -> FileHolders:
    """Find the holder of each file name: a snapshot, tag, changelog, branch, plan or trash record with the file.

    The search covers the snapshots, tags and changelogs of main and of every branch, each version of Iceberg metadata
    for its manifests, saved plans, and pending deletion records in the trash with the files that a restore of their
    snapshots would need.

    Args:
        store: the table.
        names: bare file names.
        pending: deletion records that can be restored.

    Raises:
        CorruptFile: a snapshot, tag, changelog, plan, manifest or Iceberg metadata cannot be read.
        UnsupportedFeature: a manifest has unknown fields, which might name files.
        TableNotFound: a branch has no schema.
    """
    search = _Search(store, _Marks(names))
    for branch in branches.all_stores(store):
        search.search_branch(branch)
    for version, files in iceberg_names(store, names):
        search.marks.name(files, search.code(Holder(HolderKind.ICEBERG, f"Iceberg metadata v{version}")))
    for plan_hash, named in names_in_saved_plans(store):
        search.marks.name(named, search.code(Holder(HolderKind.PLAN, f"saved plan {plan_hash}")))
    for record in pending:
        search.mark_restorable(record)
    return search.result()


class _Marks:
    """Holders (snapshots, tags, branches, plans) of each searched file name, found so far.

    A code is an index in the list of all holders (:attr:`_Search.holders`); -1 stands for no holder.

    Attributes:
        names: the searched file names, without duplicates.
        sure: code of each name's certain holder.
        maybe: code of each name's possible holder: a manifest of the holder has an entry of the file, perhaps only a
            DELETE.
        balance: ADD entries minus DELETE entries of each name in main's newest snapshot; above 0, the file is live.
    """

    def __init__(self, names: pa.Array) -> None:
        self.names = pc.unique(one_array(names, pa.string()))
        self.sure = np.full(len(self.names), _NO_HOLDER, np.int32)
        self.maybe = np.full(len(self.names), _NO_HOLDER, np.int32)
        self.balance = np.zeros(len(self.names), np.int32)
        self._waiting: list[tuple[pa.Array, npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]] = []
        self._count = 0

    def name(self, names: Sequence[str], code: int) -> None:
        """Record that holder ``code`` certainly holds the few ``names``.

        Args:
            names: file names.
            code: code of the holder.
        """
        if names:
            self.add(arrow_array(list(names), pa.string()), sure=code)

    def add(
        self,
        names: pa.Array,
        *,
        sure: int = _NO_HOLDER,
        maybe: int = _NO_HOLDER,
        signs: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Record holders of names. For each name, the first certain and the first possible holder are kept.

        Args:
            names: file names.
            sure: code of a certain holder of all names.
            maybe: code of a possible holder of all names.
            signs: for each name +1 (ADD entry) or -1 (DELETE entry) if the entry belongs to main's newest snapshot;
                None for entries of other snapshots.
        """
        if not len(names):
            return
        count = len(names)
        zeros = np.zeros(count, np.int32) if signs is None else signs
        self._waiting.append((names, np.full(count, sure, np.int32), np.full(count, maybe, np.int32), zeros))
        self._count += count
        if self._count >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Look up the collected names among the searched names, and store their holders."""
        if not self._waiting:
            return
        columns = list(zip(*self._waiting, strict=True))
        self._waiting, self._count = [], 0
        positions = pc.index_in(pa.concat_arrays(columns[0]), value_set=self.names)
        known = np.flatnonzero(numpy_array(positions.is_valid()))
        places = numpy_array(positions.take(arrow_array(known)))
        sure, maybe, signs = (np.concatenate(column)[known] for column in columns[1:])
        for codes, state in ((sure, self.sure), (maybe, self.maybe)):
            marked = np.flatnonzero(codes != _NO_HOLDER)[
                ::-1
            ]  # backwards: of several holders of a name, the first is written last and stays
            first = np.full(len(state), _NO_HOLDER, np.int32)
            first[places[marked]] = codes[marked]
            state[:] = np.where(state == _NO_HOLDER, first, state)
        np.add.at(self.balance, places, signs)

    def names_to_find(self) -> pa.Array:
        """Return the names that have only a possible holder and are not live in main's newest snapshot."""
        self.flush()
        return self.names.filter(
            arrow_array((self.balance <= 0) & (self.sure == _NO_HOLDER) & (self.maybe != _NO_HOLDER))
        )


@dataclass
class _Search:
    """Search for the snapshots, tags, branches and plans (holders) that reference file names.

    Every manifest and manifest list is read once. The holders are recorded in ``marks``.

    Attributes:
        store: the table.
        marks: holders of the searched file names found so far.
        holders: all holders; a holder's code is its index in this list.
        read: number of snapshots, tags and changelogs read, including those in deletion records in the trash.
        newest: main's newest snapshot; None before it is read, and for a table without snapshots.
        in_use: names of the base and delta manifest lists of main's newest snapshot.
    """

    store: TableStore
    marks: _Marks
    holders: list[Holder] = field(default_factory=list)
    read: int = 0
    newest: Snapshot | None = None
    in_use: list[str] = field(default_factory=list)
    _codes: dict[Holder, int] = field(default_factory=dict)
    _lists: dict[str, list[ManifestFileMeta]] = field(default_factory=dict)
    _metas: dict[str, ManifestFileMeta] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _live: list[pa.Table] = field(default_factory=list)
    _live_count: int = 0
    _states: list[tuple[TableStore, Snapshot, int]] = field(default_factory=list)

    def code(self, holder: Holder) -> int:
        """Return the code of a holder: its index in ``holders``, to which a new holder is appended."""
        if holder not in self._codes:
            self._codes[holder] = len(self.holders)
            self.holders.append(holder)
        return self._codes[holder]

    def search_branch(self, store: TableStore) -> None:
        """Search the snapshots, tags and changelogs of a branch."""
        # A snapshot that expired between the listing and this read is skipped.
        ids = snapshots.list_ids(store)
        history = [snapshot for number in ids if (snapshot := snapshots.try_read(store, number)) is not None]
        holder = _holders_of(store)
        is_main = store.branch == branches.MAIN
        if not is_main:  # copies of main's snapshots, whose changelogs main may have expired
            history = [drop_missing_changelog(store, snapshot) for snapshot in history]
        newest = history[-1] if history else None
        if is_main:
            self.newest = newest
        deltas: dict[int, list[ManifestFileMeta]] = {}
        lists: dict[int, list[ManifestFileMeta]] = {}
        for snapshot in reversed(history):  # of several holders, the last to expire is reported
            is_newest = is_main and snapshot is newest
            code = self._live_code() if is_newest else self.code(holder(snapshot.id))
            metas = self._metadata(store, snapshot, code, store.snapshot_path(snapshot.id), in_use=is_newest)
            if metas is not None:
                deltas[snapshot.id], lists[snapshot.id] = metas
        current = {meta.file_name for meta in lists.get(newest.id, ())} if newest is not None and is_main else set()
        # Deltas first, oldest first: only they show which snapshot was the last that needed a dropped file.
        for number in sorted(deltas):
            before = self.code(holder(number - 1)) if number - 1 in deltas else _NO_HOLDER
            for meta in deltas[number]:
                named = self.code(_dropped_holder(number))
                self._entries(store, meta, named, dropped=before, current=meta.file_name in current)
        for snapshot in reversed(history):
            named = self.code(_dropped_holder(snapshot.id) if is_main and snapshot is newest else holder(snapshot.id))
            for meta in lists.get(snapshot.id, ()):
                self._entries(store, meta, named, current=meta.file_name in current)
            self._mark_changelog(store, snapshot, self.code(holder(snapshot.id)))
        if newest is not None and not is_main:
            self._states.append((store, newest, self.code(holder(newest.id))))
        self._tags(store)
        self._changelogs(store)
        self._lists.clear()

    def _live_code(self) -> int:
        assert self.newest is not None
        return self.code(Holder(HolderKind.LIVE, f"snapshot {self.newest.id}, the newest"))

    def _mark_changelog(self, store: TableStore, snapshot: Snapshot, code: int) -> None:
        """Record holder number ``code`` for the changelog files of a snapshot."""
        for name, size in self._changelog_list(snapshot):
            for meta in self._list(store, name, size, patient=True):
                self._entries(store, meta, code, sure=code)

    def _tags(self, store: TableStore) -> None:
        for name, tagged in sorted(tags.list_tags(store).items()):
            snapshot = drop_missing_changelog(store, tagged)
            kind, text = (HolderKind.TAG, f"tag {name}")
            if store.branch != branches.MAIN:
                kind, text = HolderKind.BRANCH, f"branch {store.branch}, tag {name}"
            code, path = self.code(Holder(kind, text)), tags.tag_path(store, name)
            metas = self._metadata(store, snapshot, code, path)
            if metas is None:
                continue
            for meta in metas[1]:
                self._entries(store, meta, code)
            self._mark_changelog(store, snapshot, code)
            self._states.append((store, snapshot, code))

    def _changelogs(self, store: TableStore) -> None:
        """Record the holders of the files of changelogs: expired snapshots whose changes can still be streamed."""
        for number in changelogs.list_changelogs(store):
            try:
                snapshot = changelogs.read_changelog(store, number)
            except SnapshotNotFound:
                continue
            text = f"changelog of snapshot {number}"
            text = text if store.branch == branches.MAIN else f"branch {store.branch}, {text}"
            self._mark_remains(store, snapshot, self.code(Holder(HolderKind.CHANGELOG, text)))

    def mark_restorable(self, record: TrashRecord) -> None:
        """Record a deletion record as the holder of the files that it lists or that its snapshots and tags reference.

        A restore of the record needs all of these files. Missing metadata files are skipped, because the restore fails
        without them anyway.
        """
        code = self.code(Holder(HolderKind.GRACE, f"trash {record.trash_id} (can be restored)"))
        self.marks.name([PurePosixPath(file.path).name for file in record.files], code)
        for number, text in record.snapshots.items():
            self._mark_remains(
                self.store, Snapshot.from_json(text.encode(), f"{record.trash_id}: snapshot {number}"), code
            )
        for path, data in record.snapshot_files():  # tags that went, and all of a deleted branch
            self._mark_remains(self.store, Snapshot.from_json(data, f"{record.trash_id}: {path}"), code)

    def _mark_remains(self, store: TableStore, snapshot: Snapshot, code: int) -> None:
        self.read += 1
        self.marks.name(sorted(_own_names(snapshot)), code)
        lists = [
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            *self._changelog_list(snapshot),
        ]
        for name, size in lists:
            for meta in self._list(store, name, size, patient=True):
                self.marks.name([meta.file_name, *meta.sidecars], code)
                is_changelog = name == snapshot.changelog_manifest_list
                self._entries(store, meta, code, sure=code if is_changelog else _NO_HOLDER, patient=True)
        if snapshot.index_manifest and store.file_io.exists(store.manifest_path(snapshot.index_manifest)):
            self.marks.name([entry.file_name for entry in manifests.index_entries(store, snapshot)], code)

    def _metadata(
        self, store: TableStore, snapshot: Snapshot, code: int, path: str, *, in_use: bool = False
    ) -> tuple[list[ManifestFileMeta], list[ManifestFileMeta]] | None:
        """Record the holder of the metadata files of a snapshot.

        Args:
            store: the table or branch.
            snapshot: the snapshot.
            code: code of the holder of the files.
            path: path of the snapshot's own file, which shows whether the snapshot expired meanwhile.
            in_use: also record the snapshot's base and delta manifest lists in ``in_use``.

        Returns:
            Manifests of the delta, and manifests of all data of the snapshot; None if the snapshot expired meanwhile.

        Raises:
            CorruptFile: the snapshot exists and its metadata cannot be read.
        """
        try:
            base = self._list(store, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
            delta = self._list(store, snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
            listed = self._changelog_list(snapshot)
            changes = [meta for name, size in listed for meta in self._list(store, name, size, patient=True)]
            indexes = [entry.file_name for entry in manifests.index_entries(store, snapshot)]
        except CorruptFile:
            if store.file_io.exists(path):
                raise
            return None
        self.read += 1
        manifest_names = [name for meta in (*base, *delta, *changes) for name in (meta.file_name, *meta.sidecars)]
        self.marks.name([*sorted(_own_names(snapshot)), *manifest_names, *indexes], code)
        if in_use:
            self.in_use = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
        return delta, [*base, *delta]

    def _list(self, store: TableStore, name: str, size: int | None, *, patient: bool = False) -> list[ManifestFileMeta]:
        """Return the manifests of a list, read once per branch; with ``patient`` a missing list counts as empty."""
        if name not in self._lists:
            if patient and not store.file_io.exists(store.manifest_path(name)):
                return []
            # Lists of consecutive snapshots share most manifests: one object per manifest.
            metas = manifests.read_list(store, name, size)
            self._lists[name] = [self._metas.setdefault(meta.file_name, meta) for meta in metas]
        return self._lists[name]

    @staticmethod
    def _changelog_list(snapshot: Snapshot) -> list[tuple[str, int | None]]:
        name = snapshot.changelog_manifest_list
        return [] if name is None else [(name, snapshot.changelog_manifest_list_size)]

    def _entries(
        self,
        store: TableStore,
        meta: ManifestFileMeta,
        maybe: int,
        *,
        sure: int = _NO_HOLDER,
        dropped: int = _NO_HOLDER,
        current: bool = False,
        patient: bool = False,
    ) -> None:
        """Record holders of the files in one manifest; a manifest that was read before is skipped.

        Args:
            store: the table or branch.
            meta: the manifest.
            maybe: code of the possible holder of all files in the manifest.
            sure: code of the certain holder of all files in the manifest; -1 for none.
            dropped: code of the certain holder of the files with DELETE entries; -1 for none.
            current: whether main's newest snapshot lists the manifest, so that ADD and DELETE entries decide which
                files live.
            patient: skip a manifest that does not exist.
        """
        if meta.file_name in self._seen:
            return
        self._seen.add(meta.file_name)
        if patient and not store.file_io.exists(store.manifest_path(meta.file_name)):
            return
        entries = _require_known_fields(store, manifests.read_manifest(store, meta), meta)
        names = names_of(entries)
        signs = None
        if current:
            sign = np.where(numpy_array(entries.column("kind")) == 0, 1, -1).astype(np.int32)
            extra_counts = np.diff(value_offsets(one_array(entries.column("extra_files"))))
            signs = np.concatenate([sign, np.repeat(sign, extra_counts)])
            inside = pc.is_null(entries.column("external_path"))
            columns = [entries.column("partition"), entries.column("bucket"), arrow_array(sign.astype(np.int64))]
            self._live.append(pa.table(columns, schema=_BUCKET).filter(inside))
            self._live_count += len(entries)
            if self._live_count > _BATCH:
                self._live = [_count_by_bucket(pa.concat_tables(self._live))]
                self._live_count = len(self._live[0])
        self.marks.add(_real_files(names), sure=sure, maybe=maybe, signs=signs)
        if dropped != _NO_HOLDER:
            self.marks.add(_real_files(names_of(select_removed(entries))), sure=dropped)

    def result(self) -> FileHolders:
        """Return the result, after searching the live files of tags and branches for names without a certain holder."""
        for store, snapshot, code in self._states:
            names_left = self.marks.names_to_find()
            if not len(names_left):
                break
            names = names_of(_live_of(store, snapshot, names_left))
            self.marks.add(names, sure=code)
        self.marks.flush()
        marks = self.marks
        codes = np.where(marks.sure != _NO_HOLDER, marks.sure, marks.maybe)
        if self.newest is not None:
            codes = np.where(marks.balance > 0, np.int32(self._live_code()), codes)
        entries = pa.concat_tables([empty_table(_BUCKET), *self._live])
        return FileHolders(
            marks.names, codes.astype(np.int32), tuple(self.holders), self.read, entries, tuple(self.in_use)
        )


def _holders_of(store: TableStore) -> Callable[[int], Holder]:
    """Return a function that takes a snapshot id and returns the `Holder` to name for the snapshot's files.

    On a branch, the holder is the branch. On main, it is the snapshot; its name includes a consumer that has yet to
    read the snapshot.
    """
    if store.branch != branches.MAIN:
        return lambda _number: Holder(HolderKind.BRANCH, f"branch {store.branch}")
    reading = sorted((following, name) for name, following in consumers.list_consumers(store).items())

    def holder(number: int) -> Holder:
        waits = next((name for following, name in reading if following <= number), None)
        also = f", which consumer {waits} has still to read" if waits else ""
        return Holder(HolderKind.SNAPSHOT, f"snapshot {number}{also}")

    return holder


def _dropped_holder(number: int) -> Holder:
    return Holder(HolderKind.NAMED, f"a manifest of snapshot {number}, as a file that was dropped")


def _own_names(snapshot: Snapshot) -> Iterator[str]:
    """Yield the file names in the snapshot's JSON file, including names in unknown fields."""
    for name in (
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.index_manifest,
        snapshot.statistics,
        *texts_in(snapshot.others or {}),
    ):
        if name:
            yield PurePosixPath(name).name


def _require_known_fields(store: TableStore, entries: pa.Table, meta: ManifestFileMeta) -> pa.Table:
    strange = entries.column("unknown")
    if strange.null_count < len(strange):
        fields = pc.unique(strange.drop_null())[0].as_py()
        raise UnsupportedFeature(f"deleting files of a table whose manifest {meta.file_name} has {fields}", store.name)
    return entries


def _real_files(names: pa.Array) -> pa.Array:
    """Replace each name of a slice of a changelog file by the name of the whole file.

    Flink may write the changelog of several buckets to one file; manifest entries then name a slice of it.
    """
    if not pc.any(pc.match_substring(names, "$"), min_count=0).as_py():
        return names
    return pc.replace_substring_regex(names, _SLICE, r"\1\2")


def _count_by_bucket(entries: pa.Table) -> pa.Table:
    grouped = entries.group_by(["partition", "bucket"], use_threads=False).aggregate([("files", "sum")])
    return grouped.select(["partition", "bucket", "files_sum"]).rename_columns(_BUCKET.names).cast(_BUCKET)


def _live_of(store: TableStore, snapshot: Snapshot, names: pa.Array) -> pa.Table:
    """Return the live files of ``snapshot`` that are in ``names`` or have an extra file in ``names``."""

    def keep(entries: pa.Table) -> pa.Table:
        extra_files = one_array(entries.column("extra_files"))
        has = pc.is_in(pc.list_flatten(extra_files), value_set=names)
        parents = pc.list_parent_indices(extra_files)
        rows = np.zeros(len(entries), np.bool_)
        rows[numpy_array(parents)[numpy_array(has)]] = True
        rows |= numpy_array(pc.is_in(entries.column("file_name"), value_set=names))
        return entries.filter(arrow_array(rows))

    return manifests.live_entries(store, snapshot, columns=["file_name", "extra_files"], keep=keep)
