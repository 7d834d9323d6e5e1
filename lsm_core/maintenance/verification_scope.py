"""Snapshots, buckets and files to compare to prove that a compaction or recovery changed no row.

A recovery reduces a very large level 0 by several compactions, its passes. A pass may leave thousands of files on level
0. Comparing the whole bucket after each of N passes would read the bucket N times. So after each pass but the last,
only the replaced files are compared. After the last pass, the whole content of the buckets of all passes is compared.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY
from lsm_core.maintenance.ledger import DONE, LedgerEntry, find_entry, read_ledger
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

Place = tuple[bytes, int]
_SEARCHED_RUNS: Final = 100
"""Number of the ledger's newest runs that are searched for earlier passes."""


@dataclass(frozen=True)
class Proof:
    """Comparison of two snapshots which proves that a compaction changed no row.

    Attributes:
        before: snapshot to compare with.
        replaced_only: compare only the replaced files with their replacement (a pass before the last).
        places: buckets to compare (partition bytes and bucket), None for all.
        passes: number of earlier passes (commits of the same recovery) that the comparison covers.
        appended: whether rows appended since ``before`` are added to the rows of ``before``.
        after: snapshot to compare, None for the snapshot that the compaction published.
    """

    before: int
    replaced_only: bool = False
    places: frozenset[Place] | None = None
    passes: int = 0
    appended: bool = False
    after: int | None = None

    def text(self) -> str:
        """Return the text on what is compared, or "" if two consecutive snapshots are compared as a whole."""
        if self.replaced_only:
            return (
                "a pass of a recovery: the files that it replaced were compared with its outputs; "
                "the whole bucket is compared after the last pass"
            )
        if not self.passes:
            return ""
        many = f"the {self.passes + 1} compactions" if self.passes > 1 else "both compactions"
        appended = " and the rows appended meanwhile" if self.appended else ""
        return f"the whole buckets were compared, over {many} of a recovery{appended}"


def proof_of(store: TableStore, published: int) -> Proof:
    """Return the comparison that proves a compaction's snapshot, from the compaction's entry in the ledger.

    Without a readable entry, the proof compares the snapshot with the previous one as a whole. If a snapshot of a
    recovery has expired, or if commits other than compactions and appends came in between, the proof covers only the
    last compaction.

    Args:
        store: the table.
        published: id of the published snapshot.

    Raises:
        SnapshotNotFound: the snapshot does not exist.
        CorruptFile: a snapshot cannot be read.
    """
    alone = Proof(published - 1)
    try:
        ledger = read_ledger(store, _SEARCHED_RUNS, heads=True)
    except CorruptFile:  # reading the ledger itself reports the error; here it only allows a smaller comparison
        return alone
    runs = {entry.snapshot_id: entry for entry in ledger if entry.outcome == DONE}
    mine = runs.get(published)
    if mine is None or not _published(mine, snapshots.read(store, published)):
        return alone
    if _has_later_passes(mine):
        return Proof(published - 1, replaced_only=True)
    passes: list[LedgerEntry] = []
    places, ends_recovery = _places(store, mine), mine.action == "recover"
    for number in sorted((number for number in runs if number is not None and number < published), reverse=True):
        entry = runs[number]
        if entry.action not in {"recover", "compact"}:
            continue
        entry_places = _places(store, entry)
        if not ends_recovery and not entry_places & places:
            continue
        if not _has_later_passes(entry):
            if entry_places & places:
                break
            continue
        places |= entry_places if ends_recovery else frozenset()
        passes.append(entry)
    if not passes:
        return alone
    first = min(entry.snapshot_id or published for entry in passes)
    by_id = {snapshot.id: snapshot for snapshot in snapshots.iterate(store, list(range(first - 1, published + 1)))}
    known = all(_published(entry, by_id.get(entry.snapshot_id or 0)) for entry in passes)
    between = [snapshot for number, snapshot in by_id.items() if number >= first]
    appended = [snapshot for snapshot in between if snapshot.commit_kind is CommitKind.APPEND]
    others = {snapshot.commit_kind for snapshot in between} - {
        CommitKind.APPEND,
        CommitKind.COMPACT,
        CommitKind.ANALYZE,
    }
    if (
        others
        or not known
        or len(by_id) != published + 2 - first
        or not all(_only_adds(store, snapshot) for snapshot in appended)
    ):
        return alone
    return Proof(first - 1, places=places, passes=len(passes), appended=bool(appended))


def find_rewrite(store: TableStore, compaction: int) -> Proof | None:
    """Return a comparison that proves two compactions together, of which the later replaced all outputs of the first.

    The rows before the first compaction, and the rows appended since, must be the rows after the later compaction.

    Args:
        store: the table.
        compaction: id of the snapshot that the first compaction published.

    Returns:
        The comparison, whose `Proof.after` is the newest compaction. None if there is no later compaction, outputs are
        still live, a snapshot is missing, or commits other than compactions and pure appends came in between.

    Raises:
        SnapshotNotFound: the snapshot of the compaction does not exist.
        CorruptFile: metadata cannot be read.
    """
    published, newest = snapshots.read(store, compaction), snapshots.latest_id(store) or compaction
    later = list(snapshots.iterate(store, list(range(compaction + 1, newest + 1))))
    if published.commit_kind is not CommitKind.COMPACT or len(later) != newest - compaction:
        return None
    last = max((snapshot.id for snapshot in later if snapshot.commit_kind is CommitKind.COMPACT), default=None)
    if last is None:
        return None
    between = [snapshot for snapshot in later if snapshot.id <= last]
    appended = [snapshot for snapshot in between if snapshot.commit_kind is CommitKind.APPEND]
    kinds = {snapshot.commit_kind for snapshot in between} - {CommitKind.APPEND, CommitKind.COMPACT, CommitKind.ANALYZE}
    if kinds or not all(_only_adds(store, snapshot) for snapshot in appended):
        return None
    delta = manifests.delta_entries(store, published)
    outputs = delta.filter(pc.equal(delta.column("kind"), 0)).column("file_name").combine_chunks()
    live = manifests.live_entries(store, snapshots.read(store, last), columns=["file_name"]).column("file_name")
    if pc.any(pc.is_in(live, outputs)).as_py():
        return None
    buckets = delta.group_by(["partition", "bucket"]).aggregate([])  # one row per bucket
    places = frozenset(zip(buckets.column("partition").to_pylist(), buckets.column("bucket").to_pylist(), strict=True))
    return Proof(compaction - 1, places=places, passes=1, appended=bool(appended), after=last)


def _published(entry: LedgerEntry, snapshot: Snapshot | None) -> bool:
    """Return whether the run published the snapshot; after a rollback, a later snapshot may have the same id."""
    return snapshot is not None and (snapshot.properties or {}).get(PLAN_PROPERTY) == entry.plan_hash


def _only_adds(store: TableStore, snapshot: Snapshot) -> bool:
    kinds = manifests.delta_entries(store, snapshot).column("kind")
    return not pc.any(pc.not_equal(kinds, 0)).as_py()


def _has_later_passes(entry: LedgerEntry) -> bool:
    """Return whether the run was one of several compactions (passes) of a recovery, and not the last of them."""
    left: Any = entry.report.get("passes_left")
    return entry.action == "recover" and isinstance(left, int) and left > 0


def _places(store: TableStore, entry: LedgerEntry) -> frozenset[Place]:
    """Return the buckets that the run compacted."""
    places = set()
    for line in find_entry(store, entry.run_id).lines:
        place = line.get("place")
        if isinstance(place, list) and len(place) == 2 and isinstance(place[0], str) and isinstance(place[1], int):
            places.add((bytes.fromhex(place[0]), place[1]))
    return frozenset(places)


def entries_to_compare(
    store: TableStore, before: int, after: int, places: Collection[Place] | None = None, *, appended: bool = False
) -> tuple[pa.Table, pa.Table]:
    """Return (live manifest entries of the first snapshot, those of the second), with columns `ENTRY_SCHEMA`.

    Args:
        store: the table.
        before: id of the first snapshot.
        after: id of the second snapshot.
        places: buckets to compare (partition bytes and bucket), None for all.
        appended: add the entries of rows appended between the snapshots to those of the first snapshot.

    Raises:
        SnapshotNotFound: a snapshot does not exist.
        CorruptFile: metadata cannot be read.
    """
    first, second = (manifests.live_entries(store, tags.find_snapshot(store, number)) for number in (before, after))
    if appended:
        added = [
            manifests.delta_entries(store, snapshot)
            for snapshot in snapshots.iterate(store, list(range(before + 1, after)))
            if snapshot.commit_kind is CommitKind.APPEND
        ]
        first = pa.concat_tables([first, *(part.select(first.column_names) for part in added)])
    return (first, second) if places is None else (_of_places(first, places), _of_places(second, places))


def _of_places(entries: pa.Table, places: Collection[Place]) -> pa.Table:
    """Return the entries of the buckets in ``places``, in one step per bucket, not per file."""
    chosen = np.zeros(entries.num_rows, np.bool_)
    for partition in {partition for partition, _ in places}:
        buckets = pa.array(
            [bucket for other, bucket in places if other == partition], entries.schema.field("bucket").type
        )
        inside = pc.and_(pc.equal(entries.column("partition"), partition), pc.is_in(entries.column("bucket"), buckets))
        chosen |= inside.to_numpy()
    return entries.filter(arrow_array(chosen))
