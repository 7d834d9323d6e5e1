"""What proves a compaction and a recovery: the snapshots, buckets and files to compare.

A pass of a recovery leaves thousands of files on level 0. To compare all of its bucket after each of N passes would read the bucket N times. So a
pass with others to come is proven by what it replaced, and the last one, with all passes before it, by everything that their buckets say.
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
from lsm_core.maintenance.record import DONE, LedgerEntry, find_entry, read_ledger
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

Place = tuple[bytes, int]
_LOOKED_AT: Final = 100
"""Of the ledger's newest runs, for the passes before one."""


@dataclass(frozen=True)
class Proof:
    """What to compare a compaction's snapshot with: the snapshot ``before``, in these ``places`` (partition bytes and bucket; None: all).

    ``replaced_only``: what was replaced with what replaced it (a pass with others to come). Else all of the buckets, after ``passes`` passes before
    it; what writers ``appended`` since ``before`` is part of that side.
    """

    before: int
    replaced_only: bool = False
    places: frozenset[Place] | None = None
    passes: int = 0
    appended: bool = False

    def text(self) -> str:
        """How it differs from comparing all of two neighbours, for people; "" where it does not."""
        if self.replaced_only:
            return "a pass of a recovery: the files that it replaced were compared with its outputs, the whole bucket is when the recovery is through"
        if not self.passes:
            return ""
        many = f"the {self.passes + 1} compactions" if self.passes > 1 else "both compactions"
        return f"the whole buckets were compared, over {many} of a recovery{' and what was appended meanwhile' if self.appended else ''}"


def proof_of(store: TableStore, published: int) -> Proof:
    """What proves the compaction that published this snapshot, going by the ledger; without its entry, or a ledger that can be read, the snapshot before, whole.

    Where a snapshot of a recovery has expired, or others than compactions and appends came in between, only the last one is compared. Raises
    SnapshotNotFound for the snapshot itself, CorruptFile for one that cannot be read.
    """
    alone = Proof(published - 1)
    try:
        ledger = read_ledger(store, _LOOKED_AT, heads=True)
    except CorruptFile:  # who reads the ledger itself is told; a run needs it only to compare less
        return alone
    runs = {entry.snapshot_id: entry for entry in ledger if entry.outcome == DONE}
    mine = runs.get(published)
    if mine is None or not _published(mine, snapshots.read(store, published)):
        return alone
    if _goes_on(mine):
        return Proof(published - 1, replaced_only=True)
    passes: list[LedgerEntry] = []
    places, ends_recovery = _places(store, mine), mine.action == "recover"
    for number in sorted((one for one in runs if one is not None and one < published), reverse=True):
        entry = runs[number]
        if entry.action not in {"recover", "compact"}:
            continue
        theirs = _places(store, entry)
        if not ends_recovery and not theirs & places:
            continue
        if not _goes_on(entry):
            if theirs & places:
                break
            continue
        places |= theirs if ends_recovery else frozenset()
        passes.append(entry)
    if not passes:
        return alone
    first = min(entry.snapshot_id or published for entry in passes)
    found = {snapshot.id: snapshot for snapshot in snapshots.iterate(store, list(range(first - 1, published + 1)))}
    known = all(_published(entry, found.get(entry.snapshot_id or 0)) for entry in passes)
    between = [snapshot for number, snapshot in found.items() if number >= first]
    appended = [snapshot for snapshot in between if snapshot.commit_kind is CommitKind.APPEND]
    others = {snapshot.commit_kind for snapshot in between} - {
        CommitKind.APPEND,
        CommitKind.COMPACT,
        CommitKind.ANALYZE,
    }
    if (
        others
        or not known
        or len(found) != published + 2 - first
        or not all(_only_adds(store, one) for one in appended)
    ):
        return alone
    return Proof(first - 1, places=places, passes=len(passes), appended=bool(appended))


def _published(entry: LedgerEntry, snapshot: Snapshot | None) -> bool:
    """Whether the run published the snapshot: after a rollback another one may have its number."""
    return snapshot is not None and (snapshot.properties or {}).get(PLAN_PROPERTY) == entry.plan_hash


def _only_adds(store: TableStore, snapshot: Snapshot) -> bool:
    kinds = manifests.delta_entries(store, snapshot).column("kind")
    return not pc.any(pc.not_equal(kinds, 0)).as_py()


def _goes_on(entry: LedgerEntry) -> bool:
    """Whether the run was a pass after which others had to follow."""
    left: Any = entry.report.get("passes_left")
    return entry.action == "recover" and isinstance(left, int) and left > 0


def _places(store: TableStore, entry: LedgerEntry) -> frozenset[Place]:
    """The buckets that the run compacted."""
    found = set()
    for line in find_entry(store, entry.run_id).lines:
        place = line.get("place")
        if isinstance(place, list) and len(place) == 2 and isinstance(place[0], str) and isinstance(place[1], int):
            found.add((bytes.fromhex(place[0]), place[1]))
    return frozenset(found)


def entries_to_compare(
    store: TableStore, before: int, after: int, places: Collection[Place] | None = None, *, appended: bool = False
) -> tuple[pa.Table, pa.Table]:
    """The live manifest entries (`ENTRY_SCHEMA`) of two snapshots, of these places alone (None: all); with ``appended`` the first ones and
    what was appended after them, before ``after``. Raises SnapshotNotFound, CorruptFile.
    """
    one, two = (manifests.live_entries(store, snapshots.read(store, number)) for number in (before, after))
    if appended:
        added = [
            manifests.delta_entries(store, snapshot)
            for snapshot in snapshots.iterate(store, list(range(before + 1, after)))
            if snapshot.commit_kind is CommitKind.APPEND
        ]
        one = pa.concat_tables([one, *(part.select(one.column_names) for part in added)])
    return (one, two) if places is None else (_of_places(one, places), _of_places(two, places))


def _of_places(entries: pa.Table, places: Collection[Place]) -> pa.Table:
    """The entries of these buckets: one step a bucket, not a file."""
    chosen = np.zeros(entries.num_rows, np.bool_)
    for partition in {partition for partition, _ in places}:
        buckets = pa.array(
            [bucket for other, bucket in places if other == partition], entries.schema.field("bucket").type
        )
        inside = pc.and_(pc.equal(entries.column("partition"), partition), pc.is_in(entries.column("bucket"), buckets))
        chosen |= inside.to_numpy()
    return entries.filter(arrow_array(chosen))


__all__ = ["Proof", "entries_to_compare", "proof_of"]
