"""Partition expiry: choose old partitions, give a reason for each partition that is kept, and drop the old ones.

Partitions are chosen as by Java's `PartitionExpire` with `PartitionValuesTimeExpireStrategy` and
`PartitionUpdateTimeExpireStrategy`. Times in partition values and creation times of files are read as UTC, as Dredge
writes both. Java uses the time zone of its JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import BATCH, Committer
from lsm_core.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lsm_core.format.java_text import local_date_time_text
from lsm_core.format.partitions import NoTime, PartitionTimeExtractor, java_texts, partition_names
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    Fact,
    MaintenancePlan,
    PartitionItem,
    PlanEstimate,
    size_text,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.live_files import NEWEST, totals
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.options import whole_number

_STRATEGY: Final = "partition.expiration-strategy"
_TIME: Final = "partition.expiration-time"
_BY_VALUE: Final = "values-time"
_BY_UPDATE: Final = "update-time"
_NANOS_PER_MS: Final = 1_000_000
_MAX_LISTED: Final = 1_000
"""Number of kept partitions that are listed individually, the next to expire first."""


@dataclass(frozen=True)
class ExpirePartitionItem(PartitionItem):
    """Partition to drop with all its files.

    Attributes:
        time: time of the partition by its values or by its newest file (UTC), as text.
        files: number of live data files.
        rows: number of rows in these files, before merging.
        size: bytes of these files.
        reason: why the partition expires.
    """

    item_kind: ClassVar[str] = "expire-partition"
    title: ClassVar[str] = "would drop"
    columns: ClassVar[tuple[str, ...]] = ("partition", "time (UTC)", "files", "rows", "bytes", "why")

    time: str
    files: int
    rows: int
    size: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: partition, time, numbers of files, rows and bytes, and reason."""
        return (self.partition_text, self.time, self.files, self.rows, self.size, self.reason)


@dataclass(frozen=True)
class PartitionExpiryReport(CommitReport):
    """Report of a partition expiry.

    Attributes:
        snapshot_ids: ids of the new snapshots, one per batch (`partition.expiration-batch-size`).
        expired: paths of the dropped partitions.
        files: number of files in the dropped partitions.
        rows: number of rows in these files, before merging.
        size: bytes of these files.
        held_by: number of existing snapshots older than the first new one. Until these snapshots expire, no file is
            deleted.
    """

    snapshot_ids: tuple[int, ...] = ()
    expired: tuple[str, ...] = ()
    files: int = 0
    rows: int = 0
    size: int = 0
    held_by: int = 0

    def lines(self, table: str) -> list[str]:
        """Return lines on the dropped partitions, the snapshots that keep files, and the next partition to expire."""
        due = [item for item in self.declined if item.reason == "kept"][:1]
        following = [f"next: {item.text}" for item in due]
        if self.snapshot_id is None:
            return ["no partition expired", *following]
        named = ", ".join(self.expired[:5]) + (" ..." if len(self.expired) > 5 else "")
        holds = f"no file is deleted yet: {self.held_by} live snapshots hold them until they expire"
        return [
            f"snapshot {self.snapshot_id}: {len(self.expired)} partitions expired ({named})",
            f"{self.rows:,} rows in {self.files} files ({size_text(self.size)}) are gone from the table; {holds}",
            *following,
        ]


@dataclass(frozen=True)
class _Rule:
    """Rule that selects the partitions to expire.

    Attributes:
        strategy: name of the strategy (`partition.expiration-strategy`).
        cutoff_ms: partitions whose time is before it expire (epoch ms).
        age_ms: the age from which the cut-off was computed (ms, `partition.expiration-time`); None if the caller chose
            the cut-off.
        times: computes the time of a partition from its values.
    """

    strategy: str
    cutoff_ms: int
    age_ms: int | None
    times: PartitionTimeExtractor

    @staticmethod
    def of(
        store: TableStore,
        now_ms: int,
        older_than_ms: int | None = None,
        strategy: str | None = None,
        pattern: str | None = None,
        formatter: str | None = None,
    ) -> _Rule:
        """Return the rule by the table's options; an argument that is not None overrides its option.

        Raises InvalidOption, UnsupportedFeature.
        """
        options = store.options
        chosen = str(options.get(_STRATEGY) if strategy is None else strategy).strip().lower()
        if chosen == "custom":
            raise UnsupportedFeature(
                "partition expiry by a class of Java's (partition.expiration-strategy=custom)", store.name
            )
        if chosen not in (_BY_VALUE, _BY_UPDATE):
            raise InvalidOption(_STRATEGY, chosen, f"{_BY_VALUE}, {_BY_UPDATE}", store.name)
        age = None
        if older_than_ms is None:
            age = options.get(_TIME)
            if age is None:
                accepted = "an age such as '30 d', or older_than_ms (--older-than): the table has no expiration time"
                raise InvalidOption(_TIME, None, accepted, store.name)
            cutoff = now_ms - int(age)
        else:
            cutoff = whole_number(older_than_ms, "older_than_ms", store.name)
        return _Rule(
            chosen,
            cutoff,
            age,
            PartitionTimeExtractor(
                store.schema.partition_keys,
                options.get("partition.timestamp-pattern") if pattern is None else pattern,
                options.get("partition.timestamp-formatter") if formatter is None else formatter,
                store.name,
            ),
        )

    def time_of(self, values: Sequence[str | None], newest_ms: int) -> int:
        """Return the time of a partition in nanoseconds since 1970, computed as the strategy requires.

        ``values`` are the texts of the partition values, None for null. ``newest_ms`` is the creation time of the
        partition's newest file (epoch ms). Raises NoTime if the values cannot be read as a time.
        """
        return newest_ms * _NANOS_PER_MS if self.strategy == _BY_UPDATE else self.times.extract(values)

    def is_past(self, time_ns: int) -> bool:
        """Return whether a partition with this time expires: the time must be before the cut-off, not equal."""
        return time_ns < self.cutoff_ms * _NANOS_PER_MS

    def why(self) -> str:
        """Return the reason of the expiry as text.

        The text contains the cut-off time and not the age, so that a plan made again has the same hash.
        """
        rule_text = "its newest file is from before" if self.strategy == _BY_UPDATE else "its time is before"
        return f"{rule_text} {_text(self.cutoff_ms * _NANOS_PER_MS)}"


def plan_partition_expiry(
    store: TableStore,
    older_than_ms: int | None = None,
    strategy: str | None = None,
    timestamp_pattern: str | None = None,
    timestamp_formatter: str | None = None,
    max_expires: int | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan which partitions expire. Only metadata is read; the memory needed grows with the number of partitions.

    Partitions whose values cannot be parsed as a time are kept, and declined with the reason.

    Args:
        store: the table.
        older_than_ms: time before which partitions expire (epoch ms), None for `partition.expiration-time` ago.
        strategy: values-time or update-time, None for `partition.expiration-strategy`.
        timestamp_pattern: pattern that combines partition values to a time, None for `partition.timestamp-pattern`.
        timestamp_formatter: Java's format of that time, None for `partition.timestamp-formatter`.
        max_expires: largest number of partitions to drop, None for `partition.expiration-max-num`. Partitions are
            taken in the order of their values.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        UnsupportedFeature: the table has no partition columns or cannot be written, or the strategy is custom.
        InvalidOption: an option or argument is invalid.
        CorruptFile: metadata cannot be read.
    """
    require_writable(store)
    if not store.schema.partition_keys:
        raise UnsupportedFeature("partition expiry of a table without partitions", store.name)
    now = store.clock.now_ms() if now_ms is None else whole_number(now_ms, "now_ms", store.name)
    rule = _Rule.of(store, now, older_than_ms, strategy, timestamp_pattern, timestamp_formatter)
    most = int(store.options.get("partition.expiration-max-num")) if max_expires is None else max_expires
    whole_number(most, "max_expires", store.name, least=1)
    snapshot = snapshots.latest(store)
    arguments: dict[str, Fact] = {
        "older_than_ms": rule.cutoff_ms,
        "strategy": rule.strategy,
        "timestamp_pattern": rule.times.pattern,
        "timestamp_formatter": rule.times.formatter,
        "max_expires": most,
    }
    plan = MaintenancePlan.begin("expire_partitions", store, None if snapshot is None else snapshot.id, arguments, now)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    # Rows that wait for a bucket are dropped with their partition where the table postpones rows.
    by_partition = totals(store, snapshot, ["partition"], waiting=store.options.bucket == POSTPONE_BUCKET)
    partitions = by_partition.column("partition").to_pylist()
    values = java_texts(store.schema, partitions)
    names = partition_names(store.schema, partitions, store.options)
    counts = zip(
        *(
            by_partition.column(name).to_pylist()
            for name in ("file_count", "record_count", "file_size_in_bytes", NEWEST)
        ),
        strict=True,
    )
    past: list[tuple[str, ExpirePartitionItem]] = []
    staying: list[tuple[int, Declined]] = []
    default = store.options.partition_default_name
    for partition, texts, name, (files, rows, size, newest) in zip(partitions, values, names, counts, strict=True):
        try:
            time = rule.time_of(texts, newest or 0)
        except NoTime as error:
            staying.append((0, Declined(name, "no-time", f"it never expires: {error}", {}, name)))
            continue
        if rule.is_past(time):
            item = ExpirePartitionItem(partition, name, _text(time), files, rows, size, rule.why())
            past.append((",".join(default if text is None else text for text in texts), item))
        else:
            staying.append((time, _kept(rule, name, time)))
    past.sort(key=lambda entry: entry[0])  # Java's order, which decides which expire if there are too many
    items = [item for _, item in past[:most]]
    capped = [
        Declined(
            item.partition_text,
            "capped",
            f"one expiry drops at most {most} partitions",
            {"most": most},
            item.partition_text,
        )
        for _, item in past[most:]
    ]
    staying.sort(key=lambda entry: (entry[1].reason != "no-time", entry[0], entry[1].subject))
    declined = [*capped, *(kept for _, kept in staying)]
    if len(declined) > _MAX_LISTED:
        unlisted = len(declined) - _MAX_LISTED
        more = Declined("partitions", "more", f"{unlisted} more stay", {"partitions": unlisted})
        declined = [*declined[:_MAX_LISTED], more]
    estimate = PlanEstimate(
        bytes_freed=sum(item.size for item in items),
        rows_in=sum(item.rows for item in items),
        files_in=sum(item.files for item in items),
        tasks=1 if items else 0,
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def find_expired_partitions(store: TableStore, newest: Mapping[bytes, int], now_ms: int) -> dict[bytes, str]:
    """Return the partitions that expire by the table's options.

    Args:
        store: the table.
        newest: creation time of the partition's newest file (epoch ms) by partition in Paimon's binary form.
        now_ms: time of the check (epoch ms).

    Returns:
        Time of each expired partition (UTC text), by partition in Paimon's binary form. The result is empty if
            `partition.expiration-time` is not set.

    Raises:
        UnsupportedFeature: the strategy is custom.
        InvalidOption: an option is invalid.
    """
    if not store.schema.partition_keys or store.options.get(_TIME) is None:
        return {}
    rule = _Rule.of(store, now_ms)
    expired = {}
    for partition, texts in zip(newest, java_texts(store.schema, list(newest)), strict=True):
        with suppress(NoTime):
            if rule.is_past(time := rule.time_of(texts, newest[partition])):
                expired[partition] = _text(time)  # a moment, which does not change between two calls, as plans need it
    return expired


def _kept(rule: _Rule, name: str, time: int) -> Declined:
    facts = {"time": _text(time)}
    if rule.age_ms is None:
        return Declined(
            name, "kept", f"{name}: {_text(time)} is not before {_text(rule.cutoff_ms * _NANOS_PER_MS)}", facts, name
        )
    due = _text(time + rule.age_ms * _NANOS_PER_MS)
    return Declined(name, "kept", f"{name} ({_text(time)}) expires on {due}", {**facts, "expires": due}, name)


def _text(nanos: int) -> str:
    """Return a time in nanoseconds since 1970 as text, for any year: ``2013-03-26 06:00:00``."""
    millis = nanos // _NANOS_PER_MS
    text = local_date_time_text(millis - millis % 1000, 0).replace("T", " ")
    return text if text.count(":") == 2 else f"{text}:00"


def apply_partition_expiry(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Drop the planned partitions, in one OVERWRITE commit per batch (`partition.expiration-batch-size`).

    With strategy values-time, rows that were written after planning are dropped too. With update-time, a partition
    that got a file after the cut-off is kept. No file is deleted.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a PartitionExpiryReport.

    Raises:
        CommitConflict, CommitUnknown: a commit failed.
        CorruptFile: metadata cannot be read.
    """
    items = plan.items_of(ExpirePartitionItem)
    by_update = plan.arguments["strategy"] == _BY_UPDATE
    cutoff = int(str(plan.arguments["older_than_ms"]))
    batch_option = store.options.get("partition.expiration-batch-size")
    batch = max(len(items), 1) if batch_option is None or int(batch_option) < 1 else int(batch_option)
    committer = Committer(store)
    ids: list[int] = []
    dropped: dict[bytes, tuple[int, int, int]] = {}
    batch_counts: dict[bytes, tuple[int, int, int]] = {}

    def select_expired(live: pa.Table) -> Collection[bytes]:
        by_partition = live.group_by("partition").aggregate(
            [("creation_time_ms", "max"), ("file_name", "count"), ("row_count", "sum"), ("file_size", "sum")]
        )
        if by_update:
            by_partition = by_partition.filter(
                pc.less(pc.fill_null(by_partition.column("creation_time_ms_max"), 0), cutoff)
            )
        names = by_partition.column("partition").to_pylist()
        counted = (
            by_partition.column(name).to_pylist() for name in ("file_name_count", "row_count_sum", "file_size_sum")
        )
        batch_counts.clear()
        batch_counts.update(zip(names, zip(*counted, strict=True), strict=True))
        return batch_counts

    for start in range(0, len(items), batch):
        chosen = [item.partition for item in items[start : start + batch]]
        try:
            result = committer.drop_exactly(chosen, properties={PLAN_PROPERTY: plan.hash}, still=select_expired)
        except CommitConflict as conflict:
            if conflict.kind is not ConflictKind.PARTITION_CHANGED:
                raise
            continue  # no partition of the batch is old, or exists, any more
        if result.snapshot_id is not None:
            ids.append(result.snapshot_id)
            dropped |= batch_counts
    expired = [item for item in items if item.partition in dropped]
    late = [
        Declined(
            item.partition_text,
            "changed",
            "it was written to, or dropped, since it was planned",
            {},
            item.partition_text,
        )
        for item in items
        if item.partition not in dropped
    ]
    report = PartitionExpiryReport(
        snapshot_id=ids[-1] if ids else None,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        snapshot_ids=tuple(ids),
        expired=tuple(item.partition_text for item in expired),
        files=sum(files for files, _, _ in dropped.values()),
        rows=sum(rows for _, rows, _ in dropped.values()),
        size=sum(size for _, _, size in dropped.values()),
        held_by=sum(number < ids[0] for number in snapshots.list_ids(store)) if ids else 0,
        declined=(*plan.declined, *late),
    )
    lines = [
        {"event": "expired", "partition": item.partition_text, "time": item.time, "reason": item.reason}
        for item in expired
    ]
    return ApplyOutcome(report, lines)


def partition_expiry_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one partition of the plan still has a live file.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    snapshot = snapshots.latest(store)
    partitions = [item.partition for item in plan.items_of(ExpirePartitionItem)]
    if snapshot is None or not partitions:
        return False
    return bool(totals(store, snapshot, ["partition"], waiting=True, partitions=partitions).num_rows)


class ExpiryAtCommit:
    """Partition expiry by writers after their commits (Java `TableCommitImpl.maintain`, `PartitionExpire.expire`).

    The expiry runs after a commit if `partition.expiration-check-interval` has passed since the last run (or since this
    object was created), and after every commit if the option is 0. With `end-input.check-partition-expire` the expiry
    also runs after the commit that ends a bounded input (a batch). With `write-only`, or without
    `partition.expiration-time`, the expiry never runs.
    """

    def __init__(self, store: TableStore, previous_ms: int | None = None) -> None:
        """Start the first check interval.

        Args:
            store: the table.
            previous_ms: time of the writer's previous commit (epoch ms), if a different process made that commit. The
                first interval then begins at the last multiple of the interval before that time. None to begin now.
        """
        self._store = store
        options = store.options
        self._on = not options.write_only and bool(store.schema.partition_keys) and options.get(_TIME) is not None
        self._checked_ms = 0
        if self._on and previous_ms is None:
            self._checked_ms = store.clock.now_ms()
        elif self._on and previous_ms is not None:
            interval = int(options.get("partition.expiration-check-interval"))
            self._checked_ms = previous_ms - previous_ms % max(interval, 1)

    def is_due(self, identifier: int) -> bool:
        """Return whether partitions must be expired after a commit.

        Args:
            identifier: identifier of the commit. The largest long stands for a batch write, after which
                `end-input.check-partition-expire` requires the expiry.
        """
        if not self._on:
            return False
        options, now = self._store.options, self._store.clock.now_ms()
        interval = int(options.get("partition.expiration-check-interval"))
        ends = bool(options.get("end-input.check-partition-expire")) and identifier == BATCH
        return interval == 0 or ends or now > self._checked_ms + interval

    def expire(self, apply: Callable[[MaintenancePlan], object]) -> None:
        """Plan which partitions expire, and pass the plan to ``apply`` if any do.

        After an error, the expiry is due again at the next commit.

        Args:
            apply: function that applies the plan.
        """
        now = self._store.clock.now_ms()
        plan = plan_partition_expiry(self._store, now_ms=now)
        if plan.items:
            apply(plan)
        self._checked_ms = now


WORK: Final = ActionWork(
    plan_partition_expiry,
    apply_partition_expiry,
    PartitionExpiryReport,
    (ExpirePartitionItem,),
    commits=True,
    fits=partition_expiry_fits,
    remarks=lambda _: ["their files are deleted when the snapshots that hold them expire"],
)
