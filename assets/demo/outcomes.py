"""What maintenance must have done to each bucket tree by the end of a tick: the scenario's "before -> after" numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from assets.demo.tables import TABLES
from lsm_core.maintenance import BucketHealth, health
from lsm_core.metadata.store import TableStore

Levels = tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """Sorted runs (append-only tables: files) of the partition's largest bucket before and after, and the levels left in use.

    ``rows``: unmerged rows of all its buckets before and after; ``deletes``: tombstones among them; None: not told.
    """

    table: str
    partition: str
    before: int
    after: int
    levels: Levels
    rows: tuple[int, int] | None = None
    deletes: tuple[int, int] | None = None

    @property
    def subject(self) -> str:
        """Table and partition, as the scenario names them."""
        return f"{self.table}/{self.partition}" if self.partition else self.table

    def text(self) -> str:
        """One line for people."""
        rows = "" if self.rows is None else f", {self.rows[0]:,} -> {self.rows[1]:,} rows"
        gone = "" if self.deletes is None else f", {self.deletes[0]:,} -> {self.deletes[1]:,} tombstones"
        levels = " + ".join(map(str, self.levels))
        return f"{self.subject}: {self.before} -> {self.after} (level {levels}){rows}{gone}"

    def agrees(self, found: Outcome) -> bool:
        """Whether what was found is this, as far as this tells."""
        mine = (self.table, self.partition, self.before, self.after, self.levels)
        return (
            mine == (found.table, found.partition, found.before, found.after, found.levels)
            and self.rows in (None, found.rows)
            and self.deletes in (None, found.deletes)
        )


_FULL: Final = (5,)
OUTCOMES: Final[dict[str, tuple[Outcome, ...]]] = {
    "T0": (Outcome("carrier_daily", "", 9, 1, (8,)),),
    "T1": (Outcome("flight_status", "2013-10", 15, 1, _FULL, rows=(85_887, 27_967)),),
    "T2": (
        Outcome("flight_status", "2013-09", 2, 1, _FULL),
        Outcome("flight_status", "2013-10", 11, 2, (4, 5)),
        Outcome("flight_status", "2013-11", 15, 1, _FULL),
        Outcome("carrier_daily", "", 11, 1, (8,)),
        Outcome("weather", "2013-10", 18, 1, (0,)),
    ),
    "T3": (
        Outcome("flight_status", "2013-02", 2, 1, _FULL),
        Outcome("flight_status", "2013-10", 2, 1, _FULL),
        Outcome("flight_status", "2013-11", 11, 2, (4, 5)),
        Outcome("flight_status", "2013-12", 18, 1, _FULL, deletes=(195, 0)),
        Outcome("aircraft_first_seen", "", 25, 1, _FULL),
        Outcome("weather", "2013-11", 19, 1, (0,)),
    ),
}
"""Partitions that maintenance touches at each tick; all others stay as they are."""


def changes(table: str, store: TableStore, before: int, after: int) -> list[Outcome]:
    """What lies otherwise in snapshot ``after`` than in snapshot ``before``, by partition; nobody may have written in between."""
    first, second = _by_partition(store, before), _by_partition(store, after)
    found = []
    for text, buckets in sorted(second.items()):
        earlier = first.get(text, [])
        if [bucket.files_per_level for bucket in earlier] == [bucket.files_per_level for bucket in buckets]:
            continue
        found.append(
            Outcome(
                table,
                "/".join(str(value) for value in buckets[0].partition.values()),
                _largest(earlier),
                _largest(buckets),
                tuple(sorted({level for bucket in buckets for level in bucket.bytes_per_level})),
                rows=(sum(bucket.rows for bucket in earlier), sum(bucket.rows for bucket in buckets)),
                deletes=(sum(bucket.deletes for bucket in earlier), sum(bucket.deletes for bucket in buckets)),
            )
        )
    return found


def _by_partition(store: TableStore, snapshot_id: int) -> dict[str, list[BucketHealth]]:
    found: dict[str, list[BucketHealth]] = {}
    for bucket in health(store, snapshot_id=snapshot_id):
        found.setdefault(bucket.partition_text, []).append(bucket)
    return found


def _largest(buckets: list[BucketHealth]) -> int:
    """Sorted runs of the bucket that has most; append-only tables have none, but files."""
    return max((bucket.sorted_runs or bucket.files for bucket in buckets), default=0)


def outcomes_due(tick: str) -> dict[str, list[Outcome]]:
    """The scenario's outcomes at ``T0`` .. ``T3`` by table; every table of the demo is there."""
    return {table.name: [item for item in OUTCOMES[tick] if item.table == table.name] for table in TABLES}
