"""What maintenance must have done to each bucket tree by the end of a tick: the scenario's "before -> after" numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from assets.demo.tables import TABLES
from lsm_core import Table
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


@dataclass(frozen=True)
class Expiry:
    """What retention drops of `weather` after T3: months with their rows and files, which so many older snapshots still hold."""

    months: tuple[str, ...]
    rows: int
    files: int
    held_by: int
    following: str
    due: str

    def text(self) -> str:
        """One line for people."""
        months = f"{self.months[0]} to {self.months[-1]}"
        return f"weather: {months} expired, {self.rows:,} rows in {self.files} files, held by {self.held_by} live snapshots; next: {self.following} on {self.due}"


EXPIRY: Final = Expiry(("2013-01", "2013-02", "2013-03"), 6_463, 9, 19, "2013-04", "2014-01-11")
EXPIRED_SNAPSHOTS: Final = {
    "flight_status": 45,
    "carrier_daily": 7,
    "aircraft_first_seen": 6,
    "planes": 0,
    "weather": 8,
}
"""How many snapshots of each table the first retention run expires."""


def expiry_of(table: Table) -> Expiry | None:
    """What the newest partition expiry of ``table`` did, by its ledger and its snapshots; None without one."""
    runs = [entry for entry in table.ledger() if entry.action == "expire_partitions" and entry.snapshot_id is not None]
    if not runs:
        return None
    report, dropped = runs[-1].report, runs[-1].snapshot_id or 0
    months = tuple(str(name).partition("=")[2] for name in report["expired"])
    waiting = [item for item in table.plan_maintenance("expire_partitions").declined if item.reason == "kept"]
    name, due = (
        ("", "") if not waiting else (waiting[0].subject.partition("=")[2], str(waiting[0].facts["expires"])[:10])
    )
    held_by = sum(snapshot.id < dropped for snapshot in table.snapshots())
    return Expiry(months, int(report["rows"]), int(report["files"]), held_by, name, due)


@dataclass(frozen=True)
class Held:
    """The tag that is set on a table after a tick's compactions, and what retention does to the table's data files because of it.

    ``snapshot``: the one that is tagged. Of the files that the expired snapshots alone had, the tag holds ``held`` back, all in
    ``partition``, and ``deleted`` go. Its rows and checksum stay those of the tick.
    """

    tag: str
    table: str
    tick: str
    snapshot: int
    deleted: int
    held: int
    partition: str

    @property
    def holder(self) -> str:
        """How the reason of a file that stays names the tag."""
        return f"held by tag {self.tag}"


HELD: Final = Held("month-end-2013-10", "flight_status", "T1", 25, deleted=80, held=4, partition="flight_month=2013-09")


def held_of(table: Table) -> list[str]:
    """The data files that the newest snapshot expiry of ``table`` left where they are for the tag's sake, by its ledger."""
    runs = [entry for entry in table.ledger() if entry.action == "expire_snapshots"]
    kept = [line for entry in runs[-1:] for line in entry.lines if line.get("event") == "kept"]
    return sorted(str(line["file"]) for line in kept if line["reason"] == HELD.holder)


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
