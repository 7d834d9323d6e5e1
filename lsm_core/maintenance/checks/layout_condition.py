"""Checks of the layout by bucket health: level-0 backlog, sizes, lag of readers that do not merge, idle maintenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.clock import utc_text
from lsm_core.maintenance.action import bucket_name, size_text
from lsm_core.maintenance.checks.outcome import HOUR_MS, CheckInput, CheckLimits, CheckReport
from lsm_core.maintenance.iceberg_lag import IcebergLag, read_iceberg_lag
from lsm_core.maintenance.ledger import UNREADABLE, read_ledger
from lsm_core.maintenance.observe import BucketHealth, health
from lsm_core.maintenance.table_ranking import small_files_of_partitions
from lsm_core.maintenance.writers_compact import WATCHING, writers_compact
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

ALIVE: Final = "maintenance_alive"
"""Name of the check that due compactions are run; its text says if the table's writers compact."""
ICEBERG: Final = "iceberg_is_fresh"
"""Name of the check of the lag of Iceberg readers."""
_SMALL_SHARE: Final = 10
"""Files of a partition are small on average when this many of them fit into one file of the target size."""
_GATHERED: Final = 2
"""Files per bucket below which a compaction merges little: the table has too many partitions or buckets."""
_STILL_WRITTEN: Final = 2
"""Multiple of the trigger's sorted runs that shows that the bucket has been due for a while."""
Numbers = Mapping[str, float | str]


@dataclass(frozen=True)
class Condition:
    """Health of a table's buckets, and the table's properties that the checks of the layout need.

    Attributes:
        buckets: health of each bucket.
        now_ms: time of the observation (epoch ms).
        keyed: whether the table has a primary key.
        file_bytes: target size of files.
        trigger: number of sorted runs in a bucket that triggers a compaction.
        hides_level0: whether batch reads skip level 0.
        last_run_ms: time of the newest ledger entry (epoch ms), None if no compaction is due or the ledger is empty.
        writers_compact: whether the table's writers compacted it recently.
        joins_row_ids: whether a compaction joins only files with adjacent row ids (data evolution).
        iceberg: lag of the table's Iceberg readers, None if it has none or their lag is not compared.
    """

    buckets: Sequence[BucketHealth]
    now_ms: int
    keyed: bool
    file_bytes: int
    trigger: int
    hides_level0: bool = False
    last_run_ms: int | None = None
    writers_compact: bool = False
    joins_row_ids: bool = False
    iceberg: IcebergLag | None = None


@dataclass(frozen=True)
class ConditionVerdict:
    """Result of comparing a table's condition with one group of limits (functions ``judge_...``).

    Attributes:
        text: result in one sentence.
        numbers: figures for the report.
        problems: buckets or partitions that violate the check's invariant, as text.
        passed: whether the invariant holds.
        critical: whether a failure is an error, not only a warning.
    """

    text: str
    numbers: Numbers
    problems: Sequence[str] = ()
    passed: bool = True
    critical: bool = False


def condition_of(
    store: TableStore,
    buckets: Sequence[BucketHealth],
    now_ms: int,
    *,
    by_writers: bool = False,
    iceberg: IcebergLag | None = None,
) -> Condition:
    """Return the condition of a table: bucket health and the table's properties, for the ``judge_...`` functions.

    The ledger (record of maintenance runs) is read only if a compaction is due.

    Args:
        store: the table.
        buckets: health of its buckets.
        now_ms: time of the observation (epoch ms).
        by_writers: whether the table's own writers compacted it recently.
        iceberg: lag of the table's Iceberg readers, or None.

    Raises:
        CorruptFile: the ledger cannot be read.
    """
    entries = read_ledger(store, 1, heads=True) if any(map(is_due, buckets)) else []
    last = max((entry.time_ms for entry in entries if entry.outcome != UNREADABLE), default=None)
    keyed, options = store.has_primary_key, store.options
    return Condition(
        buckets,
        now_ms,
        keyed,
        options.target_file_size(keyed),
        options.compaction_trigger,
        keyed and options.batch_scan_skips_level0,
        last,
        by_writers,
        manifests.evolves(store),
        iceberg,
    )


def is_due(bucket: BucketHealth) -> bool:
    """Return whether the table's own rules would compact the bucket now.

    Args:
        bucket: health of the bucket.
    """
    return bucket.cost_minor > 0


def judge_backlog(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Compare the number of level-0 files of the worst bucket with the thresholds.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    worst = max(condition.buckets, key=lambda bucket: bucket.level0_files, default=None)
    files = worst.level0_files if worst is not None else 0
    critical = files >= limits.level0_critical
    threshold = limits.level0_critical if critical else limits.level0_warn
    passed = files < limits.level0_warn
    where = _name(worst) if worst is not None else "no bucket"
    unseen = "; invisible to readers" if condition.hides_level0 and files else ""
    text = f"{files:,} level-0 files {'<' if passed else '>='} {threshold:,} in {where}{unseen}"
    problems = [
        f"{_name(bucket)}: {bucket.level0_files:,} level-0 files"
        for bucket in condition.buckets
        if bucket.level0_files >= limits.level0_warn
    ]
    numbers = {"level-0 files (worst bucket)": files, "threshold": threshold}
    return ConditionVerdict(text, numbers, problems, passed=passed, critical=critical)


def judge_small_files(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Compare the number of small files in an append table's worst partition with the thresholds.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    small = small_files_of_partitions(condition.buckets)
    buckets = Counter(bucket.partition_text for bucket in condition.buckets)
    worst = max(small, key=lambda text: small[text], default="")
    files = small.get(worst, 0)
    critical = files >= limits.pile_critical
    threshold = limits.pile_critical if critical else limits.pile_warn
    passed = files < limits.pile_warn
    where = worst or "the table"
    text = f"{files:,} small files {'<' if passed else '>='} {threshold:,} in {where}"
    problems = [
        f"{partition or 'the table'}: {count:,} small files"
        for partition, count in small.items()
        if count >= limits.pile_warn
    ]
    problems += [
        f"{_name(bucket)}: {bucket.small_files:,} small files"
        for bucket in condition.buckets
        if bucket.small_files >= limits.pile_warn and buckets[bucket.partition_text] > 1
    ]
    numbers = {"small files (worst partition)": files, "threshold": threshold}
    return ConditionVerdict(text, numbers, problems, passed=passed, critical=critical)


def judge_bucket_size(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Compare the size of the largest bucket with the limit; tables without a primary key always pass.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    largest = max(condition.buckets, key=lambda bucket: bucket.total_bytes, default=None)
    size = largest.total_bytes if largest is not None else 0
    numbers = {"bytes (largest bucket)": size, "limit": limits.bucket_bytes, "buckets": len(condition.buckets)}
    comparison = f"{size_text(size)} {{}} {size_text(limits.bucket_bytes)}"
    if largest is None or not condition.keyed or size <= limits.bucket_bytes:
        return ConditionVerdict(
            f"the largest of {len(condition.buckets)} buckets holds {comparison.format('<=')}", numbers
        )
    over = [bucket for bucket in condition.buckets if bucket.total_bytes > limits.bucket_bytes]
    problems = [f"{_name(bucket)}: {size_text(bucket.total_bytes)}" for bucket in over]
    text = (
        f"{len(over)} buckets are too large: {_name(largest)} holds {comparison.format('>')}; "
        "`dredge rescale` gives the partition more"
    )
    return ConditionVerdict(text, numbers, problems, passed=False)


def judge_file_size(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Check the average file size of each partition with many files, and of a whole table with many files.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    files: dict[str, int] = {}
    size: dict[str, int] = {}
    buckets: dict[str, int] = {}
    # Files that no compaction joins are no backlog.
    joinable = [bucket for bucket in condition.buckets if bucket.cost_full or not condition.joins_row_ids]
    for bucket in joinable:
        text = bucket.partition_text
        files[text] = files.get(text, 0) + bucket.files
        size[text] = size.get(text, 0) + bucket.total_bytes
        buckets[text] = buckets.get(text, 0) + 1
    small = condition.file_bytes // _SMALL_SHARE
    # A bucket of a keyed table may hold a full set of runs below the trigger: that is by design and no backlog.
    spared = condition.trigger if condition.keyed else 1
    many = {
        text: count
        for text, count in files.items()
        if count > max(limits.small_files, spared * buckets[text]) and size[text] < count * small
    }
    total = sum(files.values())
    whole = sum(size.values()) // max(1, total)
    numbers = {"files": total, "average bytes": whole, "small below": small}
    if not many:
        text = f"{total:,} files of {size_text(whole)} on average"
        if total <= limits.many_files or whole >= small:
            return ConditionVerdict(text, numbers)
        gathered = total >= _GATHERED * len(joinable)
        act = (
            "`dredge compact --full` gathers them"
            if gathered
            else "fewer partitions or buckets would hold the same rows"
        )
        where = f"{len(files):,} partitions, {len(condition.buckets):,} buckets"
        return ConditionVerdict(f"{text}, below {size_text(small)}, in {where}: {act}", numbers, passed=False)
    worst = max(many, key=lambda text: many[text])
    ranked = sorted(many.items(), key=lambda entry: -entry[1])
    problems = [f"{text or 'the table'}: {n:,} files of {size_text(size[text] // n)}" for text, n in ranked]
    where = f"partition {worst}" if worst else "the table"
    average = size_text(size[worst] // many[worst])
    text = f"{where} consists of {many[worst]:,} files of {average} on average, below {size_text(small)}"
    return ConditionVerdict(text, numbers, problems, passed=False)


def judge_ro_lag(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Compare the age of the oldest rows that the read-optimized view does not show with the limit.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    worst = max(condition.buckets, key=lambda bucket: bucket.ro_lag_ms, default=None)
    lag = worst.ro_lag_ms if worst is not None else 0
    numbers = {"lag ms (worst bucket)": lag, "limit ms": limits.ro_lag_ms}
    if worst is None or lag <= limits.ro_lag_ms:
        return ConditionVerdict(
            f"the read-optimized view lags {_span_text(lag)} <= {_span_text(limits.ro_lag_ms)}", numbers
        )
    late = [bucket for bucket in condition.buckets if bucket.ro_lag_ms > limits.ro_lag_ms]
    problems = [f"{_name(bucket)}: {_span_text(bucket.ro_lag_ms)}" for bucket in late]
    text = (
        f"{len(late)} of {len(condition.buckets)} buckets: $ro lags {_span_text(lag)} > {_span_text(limits.ro_lag_ms)} "
        f"in {_name(worst)}; a full compaction brings it up to date"
    )
    return ConditionVerdict(text, numbers, problems, passed=False)


def judge_iceberg_lag(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Compare the age of the oldest committed rows that Iceberg readers do not see with the limit.

    Metadata that names rows which the table no longer has, and damaged metadata, fail at any age.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    iceberg = condition.iceberg
    if iceberg is None:
        return ConditionVerdict("the table has no snapshot that Iceberg readers could see", {})
    lag = iceberg.lag_ms(condition.now_ms)
    numbers: dict[str, float | str] = {"lag ms": lag, "limit ms": limits.iceberg_lag_ms, "rows unseen": iceberg.rows}
    numbers |= {"bytes unseen": iceberg.bytes, "metadata": iceberg.view.condition.value}
    if not iceberg.is_wrong and lag <= limits.iceberg_lag_ms:
        comparison = f"{_span_text(lag)} <= {_span_text(limits.iceberg_lag_ms)}"
        return ConditionVerdict(f"Iceberg readers lag {comparison}: {iceberg.text}", numbers)
    late = [
        (bucket, condition.now_ms - bucket.iceberg_since_ms)
        for bucket in condition.buckets
        if bucket.iceberg_since_ms is not None and condition.now_ms - bucket.iceberg_since_ms > limits.iceberg_lag_ms
    ]
    problems = [f"{_name(bucket)}: {_span_text(age)}, {bucket.iceberg_rows:,} stored rows" for bucket, age in late]
    if iceberg.is_wrong:
        return ConditionVerdict(iceberg.text, numbers, problems, passed=False)
    act = "; a full compaction shows them" if late else ""
    text = f"Iceberg readers lag {_span_text(lag)} > {_span_text(limits.iceberg_lag_ms)}: {iceberg.text}{act}"
    return ConditionVerdict(text, numbers, problems, passed=False)


def judge_alive(condition: Condition, limits: CheckLimits) -> ConditionVerdict:
    """Check that no compaction has been due for longer than `limits.idle_ms` while nothing ran.

    A pause that the policy declares is not a failure.

    Args:
        condition: bucket health and properties of the table.
        limits: thresholds.
    """
    due = [bucket for bucket in condition.buckets if is_due(bucket)]
    waiting = [(bucket, since) for bucket in due if (since := _find_waiting_start(bucket, condition)) is not None]
    numbers: dict[str, float | str] = {"buckets due": len(due), "limit ms": limits.idle_ms}
    if condition.last_run_ms is not None:
        numbers["last run"] = utc_text(condition.last_run_ms)
    late = [(bucket, since) for bucket, since in waiting if condition.now_ms - since > limits.idle_ms]
    if not late:
        watched = f"; {WATCHING}" if condition.writers_compact else ""
        return ConditionVerdict(f"{'work is due and runs go on' if due else 'nothing is due'}{watched}", numbers)
    bucket, since = min(late, key=lambda entry: entry[1])
    idle = _span_text(condition.now_ms - since)
    problems = [f"{_name(waiting_bucket)}: since {utc_text(began)}" for waiting_bucket, began in late]
    if limits.paused is not None:
        return ConditionVerdict(
            f"{len(late)} buckets are due, maintenance is paused: {limits.paused}", numbers, problems
        )
    text = (
        f"{_name(bucket)} is due ({bucket.sorted_runs} sorted runs) and nothing ran for {idle} > "
        f"{_span_text(limits.idle_ms)}: check that daemon and sensors run"
    )
    return ConditionVerdict(text, numbers, problems, passed=False)


def _find_waiting_start(bucket: BucketHealth, condition: Condition) -> int | None:
    """Return the time (epoch ms) since which a compaction of the bucket is taken to be due while nothing ran.

    This is the time of the newest file; for a bucket with twice the runs that trigger a compaction, of the oldest
    level-0 file. A compaction or maintenance run after this time begins the wait again. None if no time is known.
    """
    newest = bucket.newest_file_ms or 0
    runs = bucket.sorted_runs >= _STILL_WRITTEN * condition.trigger if condition.keyed else False
    began = (bucket.oldest_level0_ms or newest) if runs else newest
    done = max(bucket.last_compaction_ms or 0, condition.last_run_ms or 0)
    return max(began, done) or None


JUDGES: Final[Mapping[str, Callable[[Condition, CheckLimits], ConditionVerdict]]] = {
    "level0_backlog": judge_backlog,
    "small_files_backlog": judge_small_files,
    "bucket_size": judge_bucket_size,
    "average_file_size": judge_file_size,
    "ro_is_fresh": judge_ro_lag,
    ICEBERG: judge_iceberg_lag,
    ALIVE: judge_alive,
}
"""The ``judge_`` function of each check by name; these functions read no storage."""


def _report(check_input: CheckInput) -> CheckReport:
    store = check_input.store
    now = store.clock.now_ms()
    buckets = health(store, now_ms=now, snapshot_id=check_input.snapshot.id)
    by_writers = check_input.check == ALIVE and writers_compact(store, check_input.snapshot)
    iceberg = None
    if check_input.check == ICEBERG:
        iceberg = read_iceberg_lag(store, buckets, check_input.snapshot, checks_manifests=True)
    condition = condition_of(store, buckets, now, by_writers=by_writers, iceberg=iceberg)
    return report_of(check_input, JUDGES[check_input.check](condition, check_input.limits))


def report_of(check_input: CheckInput, verdict: ConditionVerdict) -> CheckReport:
    """Return the result of a ``judge_...`` function as the report of a check.

    Args:
        check_input: store, snapshot and limits of the check.
        verdict: result of the function, for example of `judge_ro_lag`.
    """
    return CheckReport(
        check_input.check,
        check_input.store.name,
        check_input.snapshot.id,
        passed=verdict.passed,
        text=verdict.text,
        numbers=verdict.numbers,
        problems=tuple(verdict.problems[:20]),
        warn=check_input.warn and not verdict.critical,
    )


level0_backlog = small_files_backlog = bucket_size = average_file_size = ro_is_fresh = _report
iceberg_is_fresh = maintenance_alive = _report
"""Check functions; each applies the ``judge_`` function of the check that its input names."""


def _name(bucket: BucketHealth) -> str:
    return bucket_name(bucket.partition_text, bucket.bucket)


def _span_text(span_ms: int) -> str:
    hours = span_ms / HOUR_MS
    return f"{hours / 24:.1f} d" if hours >= 48 else f"{hours:.1f} h"
