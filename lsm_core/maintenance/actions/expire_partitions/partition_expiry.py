"""Which partitions are older than the table keeps them, why the others stay, and the commit that drops them.

As Java's `PartitionExpire` with `PartitionValuesTimeExpireStrategy` and `PartitionUpdateTimeExpireStrategy` chooses them. All times are
UTC: a partition's values, and when its files were made, as Dredge writes both (Java takes the zone of its JVM).
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
from lsm_core.format.partition_path import java_texts, partition_names
from lsm_core.format.partition_time import NoTime, PartitionTimeExtractor
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    Fact,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlanItem,
    Report,
    size_text,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.metadata.totals import NEWEST, totals
from lsm_core.options import whole_number

_STRATEGY: Final = "partition.expiration-strategy"
_TIME: Final = "partition.expiration-time"
_BY_VALUE: Final = "values-time"
_BY_UPDATE: Final = "update-time"
_NANOS_PER_MS: Final = 1_000_000
_MOST_TOLD: Final = 1_000
"""So many partitions that stay are named one by one, the next to expire first."""


@dataclass(frozen=True)
class ExpirePartitionItem(PlanItem):
    """One partition that is dropped, with all its files. ``time``: of its values or of its newest file (UTC), as people read it.

    ``partition``: serialised BinaryRow; ``size`` in bytes; ``rows`` unmerged.
    """

    item_kind: ClassVar[str] = "expire-partition"
    title: ClassVar[str] = "would drop"
    columns: ClassVar[tuple[str, ...]] = ("partition", "time (UTC)", "files", "rows", "bytes", "why")

    partition: bytes
    partition_text: str
    time: str
    files: int
    rows: int
    size: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """The partition, its time and what it holds."""
        return (self.partition_text, self.time, self.files, self.rows, self.size, self.reason)


@dataclass(frozen=True)
class PartitionExpiryReport(Report):
    """Which partitions were dropped, with how many files, unmerged rows and bytes; ``snapshot_ids``: one a batch (`partition.expiration-batch-size`).

    ``held_by``: how many older snapshots still hold their files, none of which is deleted now. ``snapshot_id``: the last one, None = nothing.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    snapshot_ids: tuple[int, ...] = ()
    expired: tuple[str, ...] = ()
    files: int = 0
    rows: int = 0
    size: int = 0
    held_by: int = 0
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """What was dropped, where its files are, and what comes next."""
        due = [item for item in self.declined if item.reason == "kept"][:1]
        following = [f"next: {item.text}" for item in due]
        if self.snapshot_id is None:
            return ["no partition expired", *following]
        named = ", ".join(self.expired[:5]) + (" ..." if len(self.expired) > 5 else "")
        holds = f"no file is deleted yet: held by {self.held_by} live snapshots, and going when these expire"
        return [
            f"snapshot {self.snapshot_id}: {len(self.expired)} partitions expired ({named})",
            f"{self.rows:,} rows in {self.files} files ({size_text(self.size)}) are gone from the table; {holds}",
            *following,
        ]


@dataclass(frozen=True)
class _Rule:
    """What expires: partitions of a time before ``cutoff_ms`` (epoch ms), by ``strategy``; ``age_ms`` where the cut-off is an age."""

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
        """Options of the table, each overridden by its argument. Raises InvalidOption, UnsupportedFeature."""
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
                accepted = "an age such as '30 d', or older_than_ms (--older-than): the table says of no partition that it is old"
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
        """Nanoseconds since 1970 of a partition. Raises NoTime."""
        return newest_ms * _NANOS_PER_MS if self.strategy == _BY_UPDATE else self.times.extract(values)

    def is_past(self, time_ns: int) -> bool:
        """Whether a partition of that time expires; one of the very moment stays."""
        return time_ns < self.cutoff_ms * _NANOS_PER_MS

    def why(self) -> str:
        """Why those before the cut-off go; a moment, never an age, so that a plan made again has the same hash."""
        told = "its newest file is from before" if self.strategy == _BY_UPDATE else "its time is before"
        return f"{told} {_text(self.cutoff_ms * _NANOS_PER_MS)}"


def plan_partition_expiry(
    store: TableStore,
    older_than_ms: int | None = None,
    strategy: str | None = None,
    timestamp_pattern: str | None = None,
    timestamp_formatter: str | None = None,
    max_expires: int | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan which partitions are dropped: those of an earlier time than ``older_than_ms`` (epoch ms; default: `partition.expiration-time` ago).

    Of too many the first ``max_expires`` (`partition.expiration-max-num`) by name go. Partitions whose values tell no time stay, with
    the reason. Reads metadata only, in memory of the partitions. Raises UnsupportedFeature (no partition columns, strategy
    custom, tables that cannot be written), InvalidOption, CorruptFile.
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
    plan = MaintenancePlan.begun("expire_partitions", store, None if snapshot is None else snapshot.id, arguments, now)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    # What waits for a bucket is dropped with its partition where the table postpones rows.
    found = totals(store, snapshot, ["partition"], waiting=store.options.bucket == POSTPONE_BUCKET)
    partitions = found.column("partition").to_pylist()
    values = java_texts(store.schema, partitions)
    names = partition_names(store.schema, partitions, store.options)
    counts = zip(
        *(found.column(name).to_pylist() for name in ("file_count", "record_count", "file_size_in_bytes", NEWEST)),
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
    past.sort(key=lambda one: one[0])  # Java's order, which decides who goes when there are too many
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
    told = [one for _, one in sorted(staying, key=lambda one: (one[1].reason != "no-time", one[0], one[1].subject))]
    declined = [*capped, *told]
    if len(declined) > _MOST_TOLD:
        rest = len(declined) - _MOST_TOLD
        declined = [*declined[:_MOST_TOLD], Declined("partitions", "more", f"{rest} more stay", {"partitions": rest})]
    estimate = PlanEstimate(
        bytes_freed=sum(item.size for item in items),
        rows_in=sum(item.rows for item in items),
        files_in=sum(item.files for item in items),
        tasks=1 if items else 0,
    )
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def expired_of(store: TableStore, newest: Mapping[bytes, int], now_ms: int) -> dict[bytes, str]:
    """Those of the partitions (serialised, with the time of their newest file, epoch ms) that the table's options let expire, and their times (UTC).

    None where the table keeps partitions for ever (`partition.expiration-time` unset). Raises UnsupportedFeature, InvalidOption.
    """
    if not store.schema.partition_keys or store.options.get(_TIME) is None:
        return {}
    rule = _Rule.of(store, now_ms)
    found = {}
    for partition, texts in zip(newest, java_texts(store.schema, list(newest)), strict=True):
        with suppress(NoTime):
            if rule.is_past(time := rule.time_of(texts, newest[partition])):
                found[partition] = _text(time)  # a moment that is the same whenever it is asked, as plans need it
    return found


def _kept(rule: _Rule, name: str, time: int) -> Declined:
    facts = {"time": _text(time)}
    if rule.age_ms is None:
        return Declined(
            name, "kept", f"{name}: {_text(time)} is not before {_text(rule.cutoff_ms * _NANOS_PER_MS)}", facts, name
        )
    due = _text(time + rule.age_ms * _NANOS_PER_MS)
    return Declined(name, "kept", f"{name} ({_text(time)}) expires on {due}", {**facts, "expires": due}, name)


def _text(nanos: int) -> str:
    """A moment for people, of any year: ``2013-03-26 06:00:00``."""
    millis = nanos // _NANOS_PER_MS
    text = local_date_time_text(millis - millis % 1000, 0).replace("T", " ")
    return text if text.count(":") == 2 else f"{text}:00"


def apply_partition_expiry(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Drop the planned partitions, in one OVERWRITE commit a batch (`partition.expiration-batch-size`). Its report is a PartitionExpiryReport.

    What was written to them since the plan goes too where values tell the time; a partition that got a newer file since stays where
    updates tell it. No file is deleted. Raises CommitConflict, CommitUnknown, CorruptFile.
    """
    items = plan.items_of(ExpirePartitionItem)
    by_update = plan.arguments["strategy"] == _BY_UPDATE
    cutoff = int(str(plan.arguments["older_than_ms"]))
    asked = store.options.get("partition.expiration-batch-size")
    batch = max(len(items), 1) if asked is None or int(asked) < 1 else int(asked)
    committer = Committer(store)
    ids: list[int] = []
    dropped: dict[bytes, tuple[int, int, int]] = {}
    going: dict[bytes, tuple[int, int, int]] = {}

    def still(live: pa.Table) -> Collection[bytes]:
        found = live.group_by("partition").aggregate(
            [("creation_time_ms", "max"), ("file_name", "count"), ("row_count", "sum"), ("file_size", "sum")]
        )
        if by_update:
            found = found.filter(pc.less(pc.fill_null(found.column("creation_time_ms_max"), 0), cutoff))
        names = found.column("partition").to_pylist()
        counted = (found.column(name).to_pylist() for name in ("file_name_count", "row_count_sum", "file_size_sum"))
        going.clear()
        going.update(zip(names, zip(*counted, strict=True), strict=True))
        return going

    for start in range(0, len(items), batch):
        chosen = [item.partition for item in items[start : start + batch]]
        try:
            result = committer.drop_exactly(chosen, properties={PLAN_PROPERTY: plan.hash}, still=still)
        except CommitConflict as conflict:
            if conflict.kind is not ConflictKind.PARTITION_CHANGED:
                raise
            continue  # none of the batch is old, or there, any more
        if result.snapshot_id is not None:
            ids.append(result.snapshot_id)
            dropped |= going
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
    return Outcome(report, lines)


def partition_expiry_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether a partition of ``plan`` still holds a file."""
    snapshot = snapshots.latest(store)
    partitions = [item.partition for item in plan.items_of(ExpirePartitionItem)]
    if snapshot is None or not partitions:
        return False
    return bool(totals(store, snapshot, ["partition"], waiting=True, partitions=partitions).num_rows)


class ExpiryAtCommit:
    """Partition expiry by the writers of a table, after their commits (Java `TableCommitImpl.maintain`, `PartitionExpire.expire`).

    Every `partition.expiration-check-interval` since it was made or last expired, at every commit where that is 0, and with
    `end-input.check-partition-expire` after the commit that ends a bounded input (a batch). Never under `write-only`.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        options = store.options
        self._on = not options.write_only and bool(store.schema.partition_keys) and options.get(_TIME) is not None
        self._checked_ms = store.clock.now_ms() if self._on else 0

    def is_due(self, identifier: int) -> bool:
        """Return whether partitions are looked at after the commit ``identifier``."""
        if not self._on:
            return False
        options, now = self._store.options, self._store.clock.now_ms()
        interval = int(options.get("partition.expiration-check-interval"))
        ends = bool(options.get("end-input.check-partition-expire")) and identifier == BATCH
        return interval == 0 or ends or now > self._checked_ms + interval

    def expire(self, apply: Callable[[MaintenancePlan], object]) -> None:
        """Plan which partitions go, and hand the plan to ``apply``. After an error the next commit tries again."""
        now = self._store.clock.now_ms()
        plan = plan_partition_expiry(self._store, now_ms=now)
        if plan.items:
            apply(plan)
        self._checked_ms = now


__all__ = [
    "ExpirePartitionItem",
    "ExpiryAtCommit",
    "PartitionExpiryReport",
    "apply_partition_expiry",
    "expired_of",
    "partition_expiry_fits",
    "plan_partition_expiry",
]
