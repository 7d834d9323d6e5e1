"""Snapshots, tags, branches and consumers that keep files, each with the bytes that deleting this holder would free."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, empty_table, numpy_array, one_array
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.state import HOLDER_KIND, find_hold
from lsm_core.maintenance.file_holders import Holder, HolderKind
from lsm_core.maintenance.saved_plans import names_in_saved_plans
from lsm_core.maintenance.trash import read_trash
from lsm_core.maintenance.used_files import drop_missing_changelog, select_removed
from lsm_core.metadata import branches, changelogs, consumers, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

HOLDS: Final = pa.schema(
    [
        pa.field("holder", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("since", pa.timestamp("ms", "UTC")),
        pa.field("shared_bytes", pa.int64()),
    ]
)
CONSUMER: Final = "consumer"
READERS: Final = frozenset({CONSUMER, HOLDER_KIND})
"""Kinds of holders that hold files only through snapshots, which have rows of their own."""
_FILES: Final = pa.schema([("name", pa.string()), ("size", pa.int64())])
_COLUMNS: Final = ("file_name", "file_size")


def holds(store: TableStore) -> pa.Table:
    """Return the holders of the table's data and changelog files: largest exclusive size first, then oldest first.

    A holder is a snapshot, tag, branch, consumer or the like, whose files must not be deleted. The newest snapshot
    holds its live files. An older snapshot holds its changelog files and the files that the next snapshot dropped;
    before a gap in the ids, it holds all of its files. A consumer holds the files of the snapshots that it has yet to
    read, Iceberg metadata those of the snapshots that it names. Only metadata is read.

    Args:
        store: the table.

    Returns:
        Table with the columns ``holder`` (name: "snapshot 7", "tag month-end"), ``kind`` (live, snapshot, tag, branch,
            changelog, consumer, iceberg, pending plan, grace), ``bytes`` and ``files`` that no second holder has,
            ``since`` (creation time of the holder), and ``shared_bytes`` that at least two holders have.

    Raises:
        CorruptFile: a snapshot, tag, branch, consumer or the Iceberg metadata cannot be read.
    """
    ledger = _Ledger()
    main, *others = branches.all_stores(store)
    newest = snapshots.latest(main)
    live = empty_table(_FILES) if newest is None else _live(main, newest)
    if newest is not None:
        ledger.add(Holder(HolderKind.LIVE, f"snapshot {newest.id}, the newest"), newest.time_millis, live)
    held = _OtherHolders(ledger, one_array(live.column("name")))
    history = list(snapshots.iterate(main))
    for snapshot in history:
        held.add(
            Holder(HolderKind.SNAPSHOT, f"snapshot {snapshot.id}"), snapshot.time_millis, _changelog_of(main, snapshot)
        )
    for before, after in pairwise(history):
        # Deltas only add up between neighbours; behind a gap all files of the snapshot count.
        dropped = _dropped(main, after) if before.id + 1 == after.id else _live(main, before)
        held.add(Holder(HolderKind.SNAPSHOT, f"snapshot {before.id}"), before.time_millis, dropped)
    for name, tag in sorted(tags.list_details(main).items()):
        created_ms = tag.create_time_ms or tag.snapshot.time_millis
        held.add(Holder(HolderKind.TAG, f"tag {name}"), created_ms, _all_of(main, tag.snapshot))
    for number in changelogs.list_changelogs(main):
        changelog = changelogs.read_changelog(main, number)
        files = _files(changelogs.kept_entries(main, changelog))
        held.add(Holder(HolderKind.CHANGELOG, f"changelog of snapshot {number}"), changelog.time_millis, files)
    for branch in others:
        _add_branch(held, branch)
    for record in read_trash(store).records:
        kept = [file for file in record.files if file.kind in {"data", "changelog"}]
        names = arrow_array([PurePosixPath(file.path).name for file in kept], pa.string())
        files = pa.table([names, arrow_array([file.size for file in kept], pa.int64())], schema=_FILES)
        held.add(Holder(HolderKind.GRACE, f"trash {record.trash_id}"), record.created_ms, files)
    written = {status.name: status.mtime_ms for status in store.file_io.list_dir(f"{store.root}/dredge/plans")}
    for plan_hash, named in names_in_saved_plans(store):
        holder = Holder(HolderKind.PLAN, f"saved plan {plan_hash}")
        held.add(holder, written.get(f"{plan_hash}.json", 0), ledger.known(named))
    return ledger.rank([*_consumers(main), *_iceberg(main, [snapshot.id for snapshot in history])])


def _add_branch(held: _OtherHolders, store: TableStore) -> None:
    history = list(snapshots.iterate(store))
    tagged = tags.list_tags(store).values()
    created_ms = min((snapshot.time_millis for snapshot in (*history, *tagged)), default=0)
    parts = [_changelog_of(store, snapshot) for snapshot in history]
    parts += [_dropped(store, after) for after in history[1:]]
    parts += [_all_of(store, snapshot) for snapshot in (*history[-1:], *tagged)]
    held.add(
        Holder(HolderKind.BRANCH, f"branch {store.branch}"), created_ms, pa.concat_tables([empty_table(_FILES), *parts])
    )


@dataclass(frozen=True)
class _Reader:
    """Reader that holds files through the snapshots that it may still read.

    Attributes:
        name: name for people.
        kind: kind of the reader: consumer or iceberg.
        first: id of the first snapshot that it may read.
        since_ms: time of its last record (epoch ms).
    """

    name: str
    kind: str
    first: int
    since_ms: int


def _consumers(store: TableStore) -> list[_Reader]:
    next_snapshots = consumers.list_consumers(store)
    listed = store.file_io.list_dir(f"{store.metadata_root}/consumer")
    written = {status.name.removeprefix("consumer-"): status.mtime_ms for status in listed}
    return [
        _Reader(f"consumer {name}", CONSUMER, following, written.get(name, 0))
        for name, following in sorted(next_snapshots.items())
    ]


def _iceberg(store: TableStore, ids: list[int]) -> list[_Reader]:
    hold = find_hold(store, ids)
    if hold is None:
        return []
    name = f"Iceberg metadata v{hold.version}, snapshots {hold.first} to {hold.last}"
    return [_Reader(name, HOLDER_KIND, hold.first, hold.since_ms)]


@dataclass
class _Ledger:
    """Files by holder. A holder is a snapshot, tag, branch or the like that references files and so keeps them.

    Attributes:
        holders: index of each holder, counted from 0 in order of the first call of :meth:`add`.
        since: creation time of each holder (epoch ms), by index of the holder.
        parts: tables of referenced files (columns name, size), one per call of :meth:`add`.
        codes: one array per table of ``parts``: for each file, the index of the holder that references it.
    """

    holders: dict[Holder, int] = field(default_factory=dict)
    since: list[int] = field(default_factory=list)
    parts: list[pa.Table] = field(default_factory=list)
    codes: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, holder: Holder, since_ms: int, files: pa.Table) -> None:
        """Record that ``holder`` references ``files`` (columns name, size); repeated calls for a holder add up."""
        if holder not in self.holders:
            self.holders[holder] = len(self.holders)
            self.since.append(since_ms)
        self.parts.append(files)
        self.codes.append(np.full(len(files), self.holders[holder], np.int64))

    def known(self, names: list[str]) -> pa.Table:
        """Return those of ``names`` that a recorded holder references, with their sizes (columns name, size)."""
        files = pa.concat_tables([empty_table(_FILES), *self.parts])
        return files.filter(pc.is_in(files.column("name"), value_set=arrow_array(names, pa.string())))

    def rank(self, readers: list[_Reader]) -> pa.Table:
        """Return the holders with their exclusive and shared bytes (schema `HOLDS`), most exclusive bytes first.

        ``readers`` hold the files of the snapshots that they may still read.
        """
        files = pa.concat_tables([empty_table(_FILES), *self.parts])
        names = pc.unique(files.column("name"))
        places = numpy_array(pc.index_in(files.column("name"), value_set=names)).astype(np.int64)
        sizes = np.zeros(len(names), np.int64)
        np.maximum.at(sizes, places, numpy_array(files.column("size")))
        count = max(len(self.holders), 1)
        pairs = np.unique(places * count + np.concatenate([np.zeros(0, np.int64), *self.codes]))
        place, code = np.divmod(pairs, count)
        alone = np.bincount(place, minlength=len(names))[place] == 1
        rows = []
        for holder, number in self.holders.items():
            mine = code == number
            own, shared = place[mine & alone], place[mine & ~alone]
            since = self.since[number]
            rows.append(
                (holder.name, holder.kind.value, int(sizes[own].sum()), len(own), since, int(sizes[shared].sum()))
            )
        ids = {
            number: int(holder.name.split()[1])
            for holder, number in self.holders.items()
            if holder.kind is HolderKind.SNAPSHOT
        }
        for reader in readers:
            mine = np.isin(code, [number for number, snapshot in ids.items() if snapshot >= reader.first])
            own, shared = np.unique(place[mine & alone]), np.unique(place[mine & ~alone])
            figures = (int(sizes[own].sum()), len(own), reader.since_ms, int(sizes[shared].sum()))
            rows.append((reader.name, reader.kind, *figures))
        rows.sort(key=lambda row: (-row[2], row[4], row[0]))
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in HOLDS]
        arrays = [
            arrow_array(column, pa.int64()).cast(kind.type) if kind.name == "since" else arrow_array(column, kind.type)
            for column, kind in zip(columns, HOLDS, strict=True)
        ]
        return pa.table(arrays, schema=HOLDS)


@dataclass
class _OtherHolders:
    """Collector of holders other than the newest snapshot; files that are live in the newest snapshot are left out.

    Attributes:
        ledger: collector of the references (files by holder).
        live: names of the files that are live in the newest snapshot.
    """

    ledger: _Ledger
    live: pa.Array

    def add(self, holder: Holder, since_ms: int, files: pa.Table) -> None:
        """Record that ``holder`` references ``files``; a snapshot without files to record is left out."""
        files = files.filter(pc.invert(pc.is_in(files.column("name"), value_set=self.live)))
        if len(files) or holder.kind is not HolderKind.SNAPSHOT:
            self.ledger.add(holder, since_ms, files)


def _live(store: TableStore, snapshot: Snapshot) -> pa.Table:
    return _files(manifests.live_entries(store, snapshot, columns=_COLUMNS))


def _all_of(store: TableStore, snapshot: Snapshot) -> pa.Table:
    return pa.concat_tables([_live(store, snapshot), _changelog_of(store, snapshot)])


def _changelog_of(store: TableStore, snapshot: Snapshot) -> pa.Table:
    return _files(manifests.changelog_entries(store, drop_missing_changelog(store, snapshot)))


def _dropped(store: TableStore, snapshot: Snapshot) -> pa.Table:
    return _files(select_removed(manifests.delta_entries(store, snapshot)))


def _files(entries: pa.Table) -> pa.Table:
    return pa.table([entries.column(name) for name in _COLUMNS], schema=_FILES)
