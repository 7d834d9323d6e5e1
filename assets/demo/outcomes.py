"""Outcomes: the scenario's "before -> after" numbers of each bucket tree that maintenance must change at a tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dredge.assets.demo.tables import TABLES
from lsm_core import Table
from lsm_core.maintenance import BucketHealth, health
from lsm_core.metadata.store import TableStore

Levels = tuple[int, ...]


@dataclass(frozen=True)
class PartitionOutcome:
    """Expected or measured change of a partition.

    Attributes:
        table: name of the table.
        partition: value of the partition, or "".
        before: sorted runs of the largest bucket before (append-only tables: files).
        after: sorted runs of the largest bucket after the tick (append-only tables: files).
        levels: levels in use afterwards.
        rows: unmerged rows of all buckets before and after, or None if not compared.
        deletes: tombstones among these rows, or None if not compared.
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
        """Name of the table, with ``/`` and the partition if there is one."""
        return f"{self.table}/{self.partition}" if self.partition else self.table

    def text(self) -> str:
        """Return the outcome as one line: the subject, sorted runs (or files) before and after, and levels in use.

        If they are compared, the numbers of rows and of tombstones before and after follow.
        """
        rows = "" if self.rows is None else f", {self.rows[0]:,} -> {self.rows[1]:,} rows"
        tombstones = "" if self.deletes is None else f", {self.deletes[0]:,} -> {self.deletes[1]:,} tombstones"
        levels = " + ".join(map(str, self.levels))
        return f"{self.subject}: {self.before} -> {self.after} (level {levels}){rows}{tombstones}"

    def matches(self, measured: PartitionOutcome) -> bool:
        """Return whether a measured outcome has the values of this expected outcome; values of None match any.

        Args:
            measured: the outcome to compare.
        """
        expected = (self.table, self.partition, self.before, self.after, self.levels)
        return (
            expected == (measured.table, measured.partition, measured.before, measured.after, measured.levels)
            and self.rows in (None, measured.rows)
            and self.deletes in (None, measured.deletes)
        )


_FULL: Final = (5,)
OUTCOMES: Final[dict[str, tuple[PartitionOutcome, ...]]] = {
    "T0": (PartitionOutcome("carrier_daily", "", 9, 1, (8,)),),
    "T1": (PartitionOutcome("flight_status", "2013-10", 15, 1, _FULL, rows=(85_887, 27_967)),),
    "T2": (
        PartitionOutcome("flight_status", "2013-09", 2, 1, _FULL),
        PartitionOutcome("flight_status", "2013-10", 11, 2, (4, 5)),
        PartitionOutcome("flight_status", "2013-11", 15, 1, _FULL),
        PartitionOutcome("carrier_daily", "", 11, 1, (8,)),
        PartitionOutcome("weather", "2013-10", 18, 1, (0,)),
    ),
    "T3": (
        PartitionOutcome("flight_status", "2013-02", 2, 1, _FULL),
        PartitionOutcome("flight_status", "2013-10", 2, 1, _FULL),
        PartitionOutcome("flight_status", "2013-11", 11, 2, (4, 5)),
        PartitionOutcome("flight_status", "2013-12", 18, 1, _FULL, deletes=(195, 0)),
        PartitionOutcome("aircraft_first_seen", "", 25, 1, _FULL),
        PartitionOutcome("weather", "2013-11", 19, 1, (0,)),
    ),
}
"""Partitions that maintenance changes at each tick; all others stay unchanged."""


@dataclass(frozen=True)
class Expiry:
    """Months that retention drops from `weather` after T3.

    Attributes:
        months: the dropped months.
        rows: number of rows in the dropped months.
        files: number of data files of the dropped months.
        held_by: number of older snapshots that still reference these files.
        following: next month to expire.
        due: day on which ``following`` expires.
    """

    months: tuple[str, ...]
    rows: int
    files: int
    held_by: int
    following: str
    due: str

    def text(self) -> str:
        """Return the expiry as one line.

        The line has the dropped months, their rows and files, the number of snapshots that still reference the files,
        and the next month to expire with its day.
        """
        months = f"{self.months[0]} to {self.months[-1]}"
        return (
            f"weather: {months} expired, {self.rows:,} rows in {self.files} files, "
            f"held by {self.held_by} live snapshots; next: {self.following} on {self.due}"
        )


EXPIRY: Final = Expiry(("2013-01", "2013-02", "2013-03"), 6_463, 9, 19, "2013-04", "2014-01-11")
EXPIRED_SNAPSHOTS: Final = {
    "flight_status": 43,
    "carrier_daily": 7,
    "aircraft_first_seen": 6,
    "planes": 0,
    "weather": 8,
}
"""Snapshots of each table that the first retention run expires.

Two pairs of neighbouring months of `flight_status` are due together. Each pair is compacted in one commit, so
the table has two snapshots fewer than partitions were compacted.
"""


def find_expiry(table: Table) -> Expiry | None:
    """Return the newest partition expiry of a table, from the table's record of maintenance runs; None without one."""
    runs = [entry for entry in table.ledger() if entry.action == "expire_partitions" and entry.snapshot_id is not None]
    if not runs:
        return None
    report, dropped = runs[-1].report, runs[-1].snapshot_id or 0
    months = tuple(str(name).partition("=")[2] for name in report["expired"])
    kept_items = [item for item in table.plan_maintenance("expire_partitions").declined if item.reason == "kept"]
    name, due = (
        ("", "")
        if not kept_items
        else (kept_items[0].subject.partition("=")[2], str(kept_items[0].facts["expires"])[:10])
    )
    held_by = sum(snapshot.id < dropped for snapshot in table.snapshots())
    return Expiry(months, int(report["rows"]), int(report["files"]), held_by, name, due)


@dataclass(frozen=True)
class TagHold:
    """Tag that is set on a table after a tick's compactions, and its effect on retention.

    Reads of the tag return the rows of the tick also after retention.

    Attributes:
        tag: name of the tag.
        table: name of the table.
        tick: tick after which the tag is set.
        snapshot: tagged snapshot.
        deleted: number of files of expired snapshots that are deleted.
        held: number of files of expired snapshots that the tag keeps.
        partition: partition of the kept files.
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
        """Text that names the tag as the reason why a file is kept."""
        return f"held by tag {self.tag}"


TAG_HOLD: Final = TagHold(
    "month-end-2013-10", "flight_status", "T1", 25, deleted=80, held=4, partition="flight_month=2013-09"
)


def find_held_files(table: Table) -> list[str]:
    """Return the data files that the newest snapshot expiry kept for the scenario's tag, from the expiry's record."""
    runs = [entry for entry in table.ledger() if entry.action == "expire_snapshots"]
    kept_lines = [line for entry in runs[-1:] for line in entry.lines if line.get("event") == "kept"]
    return sorted(str(line["file"]) for line in kept_lines if line["reason"] == TAG_HOLD.holder)


def measure_changes(table: str, store: TableStore, before: int, after: int) -> list[PartitionOutcome]:
    """Return the changes between two snapshots by partition; no writer may have committed in between.

    Args:
        table: name of the table.
        store: the table, opened.
        before: first snapshot.
        after: second snapshot.
    """
    buckets_before, buckets_after = _by_partition(store, before), _by_partition(store, after)
    outcomes = []
    for text, buckets in sorted(buckets_after.items()):
        earlier = buckets_before.get(text, [])
        if [bucket.files_per_level for bucket in earlier] == [bucket.files_per_level for bucket in buckets]:
            continue
        outcomes.append(
            PartitionOutcome(
                table,
                "/".join(str(value) for value in buckets[0].partition.values()),
                _largest(earlier),
                _largest(buckets),
                tuple(sorted({level for bucket in buckets for level in bucket.bytes_per_level})),
                rows=(sum(bucket.rows for bucket in earlier), sum(bucket.rows for bucket in buckets)),
                deletes=(sum(bucket.deletes for bucket in earlier), sum(bucket.deletes for bucket in buckets)),
            )
        )
    return outcomes


def _by_partition(store: TableStore, snapshot_id: int) -> dict[str, list[BucketHealth]]:
    buckets_by_partition: dict[str, list[BucketHealth]] = {}
    for bucket in health(store, snapshot_id=snapshot_id):
        buckets_by_partition.setdefault(bucket.partition_text, []).append(bucket)
    return buckets_by_partition


def _largest(buckets: list[BucketHealth]) -> int:
    """Return the largest number of sorted runs in a bucket; a bucket without sorted runs counts its files."""
    return max((bucket.sorted_runs or bucket.files for bucket in buckets), default=0)


def expected_outcomes(tick: str) -> dict[str, list[PartitionOutcome]]:
    """Return the changes of partitions that the scenario expects at a tick (``T0`` .. ``T3``), by name of the table."""
    return {table.name: [item for item in OUTCOMES[tick] if item.table == table.name] for table in TABLES}
