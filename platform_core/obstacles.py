"""Reasons to stop maintenance of a table: a failed blocking check, a running run, repeated failures, an equal name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import (
    COMPLETED,
    FAILED,
    FailureHistory,
    PartitionKeyFilter,
    read_newest_records,
)

if TYPE_CHECKING:
    from dredge.platform_core.dagster_internals import AssetCheckExecutionRecord

_LOOK_BACK = 50
_AT_WORK: Final = 500
_NAME_HOLDS_SECONDS: Final = 300.0
FAILURES_TO_SUSPEND: Final = 3
"""Number of consecutive failed runs, whatever their plans, that suspends a table."""
_MAINTAINING: Final = ("compact", "compact full", "compact sort", "recover")
"""Action tags of the runs that sensors start. Only failures of these runs suspend a table."""
_FAILED_RUNS: Final = 500
_FAILED_EVALUATIONS_READ: Final = 100
"""Most evaluations of a failed check that are read for the time since which it fails."""
_FAILED_EVALUATIONS: Final = 1_000
"""Number of newest failed evaluations of a check in which blocked partitions are searched."""
_COMPLETED: Final = set(COMPLETED)
_FAILED: Final = set(FAILED)
_HISTORY: Final = FailureHistory()
_WORKING: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def read_newest_evaluations(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, dg.AssetCheckEvaluation]:
    """Return the newest evaluation of each check, whichever partition the evaluation is for.

    The newest record in Dagster may have no result, because the run is still running or ended before the check. Then
    the newest record with a result is used.

    Args:
        instance: Dagster instance.
        checks: keys of the checks.

    Returns:
        The evaluations by check; checks that were never evaluated are missing.
    """
    evaluations: dict[dg.AssetCheckKey, dg.AssetCheckEvaluation] = {}
    for key, record in read_newest_records(instance, checks).items():
        completed: Sequence[AssetCheckExecutionRecord] = [record]
        if record.status not in _COMPLETED:
            completed = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=_COMPLETED)
        if completed and completed[0].evaluation is not None:
            evaluations[key] = completed[0].evaluation
    return evaluations


def read_layout_evaluation(
    instance: dg.DagsterInstance, layout: dg.AssetKey, check: str
) -> dg.AssetCheckEvaluation | None:
    """Return the newest evaluation of a check of a layout asset, for any partition; None without an evaluation."""
    key = dg.AssetCheckKey(layout, check)
    return read_newest_evaluations(instance, [key]).get(key)


def find_evaluated_checks(instance: dg.DagsterInstance, layouts: Iterable[dg.AssetKey]) -> frozenset[dg.AssetCheckKey]:
    """Return the blocking checks of layout assets, under current and former keys, that were ever evaluated.

    Each query reads 500 checks.
    """
    keys = [check for layout in layouts for check in _blocking_checks(layout)]
    return frozenset(read_newest_records(instance, keys))


_NAMES: Final = {
    names.MERGED_VIEW_CHECK: (names.MERGED_VIEW_CHECK,),
    names.TREE_CHECK: (names.TREE_CHECK, names.FORMER_TREE_CHECK),
}
"""Names of the blocking checks by current name: the current name first, then the former names."""


def _blocking_checks(layout: dg.AssetKey, name: str | None = None) -> list[dg.AssetCheckKey]:
    """Return the current and former keys of the blocking checks of a layout asset, current names first.

    Args:
        layout: key of the layout asset.
        name: current name of one blocking check, or None for all blocking checks.
    """
    keys = (layout, names.former_layout_key(layout))
    selected = _NAMES.items() if name is None else [(name, _NAMES[name])]
    return [dg.AssetCheckKey(key, spelling) for _, spellings in selected for spelling in spellings for key in keys]


def find_blocking_failure(
    instance: dg.DagsterInstance,
    layout: dg.AssetKey,
    partition: str | None = None,
    evaluated: Collection[dg.AssetCheckKey] | None = None,
) -> str | None:
    """Return why a failed blocking check forbids changes of a partition.

    Only the newest evaluation of a check counts, also under the check's former name. To end the block, repair the
    table and execute the check again.

    Args:
        instance: Dagster instance.
        layout: key of the table's layout asset.
        partition: path of the partition, or None for any partition of the table.
        evaluated: result of `find_evaluated_checks` for layouts that include this one, to query only these checks.
            None to query all blocking checks.

    Returns:
        The reason with the failed check, or None if no blocking check fails.
    """
    for name in _NAMES:
        checks = [check for check in _blocking_checks(layout, name) if evaluated is None or check in evaluated]
        partitions = _failed_partitions(instance, checks) if partition is None else [partition]
        for candidate in partitions:
            evaluation = _newest_evaluation(instance, checks, candidate)
            if evaluation is not None and _fails(evaluation):
                place = f" of {evaluation.partition}" if evaluation.partition else ""
                return f"blocked: {name}{place} failed: {evaluation.description or 'see its metadata'}"
    return None


def read_newest_comparison(
    instance: dg.DagsterInstance, layout: dg.AssetKey, partition: str | None
) -> dg.AssetCheckEvaluation | None:
    """Return the evaluation of the check merged_view_unchanged that applies to a partition.

    Args:
        instance: Dagster instance.
        layout: key of the table's layout asset.
        partition: path of the partition, or None for the whole table.

    Returns:
        The evaluation, or None if the check was never evaluated.
    """
    return _newest_evaluation(instance, _blocking_checks(layout, names.MERGED_VIEW_CHECK), partition)


def _failed_partitions(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey]) -> list[str | None]:
    """Return the partitions with a failure among the newest 1,000 failures of each check, newest failure first.

    Newer evaluations of the partition may have passed. None stands for an evaluation of the whole table.
    """
    failed = [
        record
        for check in checks
        for record in instance.event_log_storage.get_asset_check_execution_history(
            check, limit=_FAILED_EVALUATIONS, status=_FAILED
        )
    ]
    return list(
        dict.fromkeys(record.partition for record in sorted(failed, key=lambda record: record.id, reverse=True))
    )


def read_applying_record(
    instance: dg.DagsterInstance, check: dg.AssetCheckKey, partition: str | None
) -> AssetCheckExecutionRecord | None:
    """Return the record of the evaluation that applies to a partition, or to the whole asset if `partition` is None.

    Blocking checks are also searched under their former keys.

    Args:
        instance: Dagster instance.
        check: key of the check.
        partition: path of the partition, or None.

    Returns:
        The record, or None if the check was never evaluated.
    """
    keys = _blocking_checks(check.asset_key, check.name) if check.name in _NAMES else [check]
    return _newest_record(instance, keys, partition)


def _newest_evaluation(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str | None
) -> dg.AssetCheckEvaluation | None:
    record = _newest_record(instance, checks, partition)
    return None if record is None else record.evaluation


def _newest_record(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str | None
) -> AssetCheckExecutionRecord | None:
    """Return the record of the evaluation that applies to a partition, or to the whole table if `partition` is None.

    A run over several partitions stores one evaluation without a partition. A failed evaluation
    without a partition applies to each partition until the partition has a newer evaluation. A passed evaluation
    without a partition does not replace a partition's failure, because the run may not have included the partition.

    Args:
        instance: Dagster instance.
        checks: current and former keys of one check.
        partition: path of the partition, or None.
    """
    candidates: list[AssetCheckExecutionRecord] = []
    for key in (None, partition) if partition is not None else (None,):
        records = [
            record
            for check in checks
            for record in instance.event_log_storage.get_asset_check_execution_history(
                check, limit=1, status=_COMPLETED, partition_filter=PartitionKeyFilter(key=key)
            )
        ]
        newest = max(records, key=lambda record: record.id, default=None)
        if newest is not None and _fails(newest.evaluation) and key == partition:
            return newest
        candidates += [newest] if newest is not None else []
    return max(candidates, key=lambda record: record.id) if candidates else None


def _fails(evaluation: dg.AssetCheckEvaluation | None) -> bool:
    """Return whether an evaluation blocks its asset or partition: it failed with severity ERROR."""
    return evaluation is not None and not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR


def find_earlier_run(
    instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, run_id: str, table: str
) -> str | None:
    """Find a run that began to work on the table before the run `run_id`.

    Of two runs that start at the same time, only one finds the other. Call this function after the run got the table's
    tag, so that each run can find the other.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        run_id: id of the calling run.
        table: full name of the table.

    Returns:
        The id of the earlier run, or None.
    """
    layout = warehouse_names.layout_key(table)
    statuses = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
    records = {
        record.dagster_run.run_id: record
        for record in instance.get_run_records(dg.RunsFilter(statuses=statuses), limit=_AT_WORK)
    }
    by_tag = dg.RunsFilter(tags={names.TAG_TABLE: warehouse_names.table_value(table)}, statuses=statuses)
    records |= {record.dagster_run.run_id: record for record in instance.get_run_records(by_tag)}
    start_times = {
        candidate: (record.start_time or 0.0, candidate)
        for candidate, record in records.items()
        if candidate == run_id
        or warehouse_names.table_of(record.dagster_run.tags) == table
        or layout in (record.dagster_run.asset_selection or ())
    }
    own_start = start_times.pop(run_id, (float("inf"), run_id))
    first = min(start_times.items(), key=lambda item: item[1], default=None)
    return first[0] if first is not None and first[1] < own_start else None


@dataclass(frozen=True)
class FailedCheck:
    """Failed blocking check of a table.

    Attributes:
        text: name of the check, partition and reason.
        since_ms: time of the check's first failure after it passed last (epoch ms, wall clock).
        run_id: run that evaluated the check last.
    """

    text: str
    since_ms: int
    run_id: str


def find_failed_checks(instance: dg.DagsterInstance, layouts: Mapping[str, dg.AssetKey]) -> dict[str, FailedCheck]:
    """Return the failed check of each blocked table; of several blocked partitions, only one is named.

    The result agrees with `find_blocking_failure`, also about former names of checks and layouts. Of the checks and
    partitions that ever failed, the newest evaluations are read. In rare cases, a failure appears ten minutes late
    (`FailureHistory`).

    Args:
        instance: Dagster instance.
        layouts: keys of the layout assets by table.

    Returns:
        The failed checks by table; tables that are not blocked are missing.
    """
    tables = {layout: table for table, layout in layouts.items()}
    current = {
        check: (layout, name) for layout in tables for name in _NAMES for check in _blocking_checks(layout, name)
    }
    places = _HISTORY.find_failed_places(instance, current)
    ever_failed = dict.fromkeys((current[check], place) for check, place in places)
    failures: dict[str, FailedCheck] = {}
    for (layout, name), partition in ever_failed:
        if tables[layout] in failures:
            continue  # one failure per table is enough
        checks = _blocking_checks(layout, name)
        record = _newest_record(instance, checks, partition)
        evaluation = None if record is None else record.evaluation
        if record is not None and evaluation is not None and _fails(evaluation):
            place = f" of {evaluation.partition}" if evaluation.partition else ""
            text = f"{name}{place} failed: {evaluation.description or 'see its metadata'}"
            since_ms = _read_failing_since(instance, checks, record)
            failures[tables[layout]] = FailedCheck(text, since_ms, record.run_id)
    return failures


def _read_failing_since(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], failed: AssetCheckExecutionRecord
) -> int:
    """Return the time (epoch ms) of a check's first failure after it passed last.

    Only the newest evaluations are read. If all of them failed, the time is that of the oldest one.

    Args:
        instance: Dagster instance.
        checks: current and former keys of the check.
        failed: record of the check's newest evaluation, a failure; only evaluations of its partition are read.
    """
    place = PartitionKeyFilter(key=failed.partition)
    records = [
        record
        for check in checks
        for record in instance.event_log_storage.get_asset_check_execution_history(
            check, limit=_FAILED_EVALUATIONS_READ, status=_COMPLETED, partition_filter=place
        )
    ]
    first = failed
    for record in sorted(records, key=lambda record: record.id, reverse=True):
        if not _fails(record.evaluation):
            break
        first = record
    return int((first.event.timestamp if first.event else first.create_timestamp) * 1000)


@dataclass(frozen=True)
class Suspension:
    """Suspension of a table whose newest runs all failed.

    Attributes:
        table: full name of the table.
        failures: number of consecutive failures.
        run_id: id of the newest failed run.
        since_ms: end of the newest failed run (epoch ms, wall clock).
        resume_job: name of the job that ends the suspension.
    """

    table: str
    failures: int
    run_id: str
    since_ms: int
    resume_job: str = names.RESUME_JOB

    @property
    def in_force(self) -> bool:
        """Whether so many runs failed that sensors start no further run."""
        return self.failures >= FAILURES_TO_SUSPEND

    def text(self) -> str:
        """Return the reason of the suspension, and how to end the suspension."""
        return (
            f"suspended: its last {self.failures} runs failed, the newest is {self.run_id[:8]}: see its error, then "
            f"launch the job {self.resume_job} for {self.table}, or materialise its layout: "
            "a successful run also ends the suspension"
        )


def read_resume_ms(instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, table: str) -> int:
    """Return when the table was last resumed (epoch ms, wall clock), or 0 if never."""
    run_filter = dg.RunsFilter(tags={warehouse_names.resumed_tag(table): "yes"}, statuses=[dg.DagsterRunStatus.SUCCESS])
    records = instance.get_run_records(run_filter, limit=1)
    return int(records[0].create_timestamp.timestamp() * 1000) if records else 0


def find_suspension(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    table: str,
    at_least: int = FAILURES_TO_SUSPEND,
) -> Suspension | None:
    """Return the suspension of a table.

    A table is suspended if its newest `FAILURES_TO_SUSPEND` or more compaction runs failed. Sensors start no run of a
    suspended table. Canceled runs and runs before the last `resume` do not count.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        table: full name of the table.
        at_least: number of consecutive failures from which a result is returned. With a lower number than the
            default, the result may be a table that is not suspended yet (`Suspension.in_force` is false).

    Returns:
        The consecutive failures, or None if they are fewer than `at_least`.
    """
    ended = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
    tags: dict[str, str | list[str]] = {
        names.TAG_TABLE: warehouse_names.table_value(table),
        names.TAG_ACTION: list(_MAINTAINING),
    }
    records = instance.get_run_records(dg.RunsFilter(tags=tags, statuses=ended), limit=_LOOK_BACK)
    failed = list(takewhile(lambda record: record.dagster_run.status is dg.DagsterRunStatus.FAILURE, records))
    if len(failed) < at_least:
        return None
    since = read_resume_ms(instance, warehouse_names, table)
    failed = [record for record in failed if record.create_timestamp.timestamp() * 1000 > since]
    if len(failed) < at_least:
        return None
    newest = failed[0]
    ended_ms = int((newest.end_time or newest.update_timestamp.timestamp()) * 1000)
    job = warehouse_names.definition(names.RESUME_JOB)
    return Suspension(table, len(failed), newest.dagster_run.run_id, ended_ms, job)


def list_suspensions(
    instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, at_least: int = FAILURES_TO_SUSPEND
) -> dict[str, Suspension]:
    """Return the suspended tables by name, from the newest 500 failed runs of all tables.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        at_least: least number of consecutive failures; 1 also returns tables that are not suspended yet.
    """
    tags: dict[str, str | list[str]] = {names.TAG_ACTION: list(_MAINTAINING)}
    failed = instance.get_runs(dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.FAILURE]), limit=_FAILED_RUNS)
    failure_counts = Counter(warehouse_names.table_of(run.tags) for run in failed)
    candidates = {
        table: find_suspension(instance, warehouse_names, table, at_least)
        for table, number in failure_counts.items()
        if table is not None and number >= at_least
    }
    return {table: table_suspension for table, table_suspension in candidates.items() if table_suspension is not None}


class RunningRuns:
    """Runs that were queued or running at the first use of this object, read by one query for all tables."""

    def __init__(self, instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames) -> None:
        self._instance, self._names = instance, warehouse_names

    @cached_property
    def _newest(self) -> Sequence[dg.DagsterRun]:
        return self._instance.get_runs(dg.RunsFilter(statuses=_WORKING), limit=_AT_WORK)

    @cached_property
    def _of_table(self) -> Mapping[str, list[dg.DagsterRun]]:
        runs_by_table: dict[str, list[dg.DagsterRun]] = {}
        for run in self._newest:
            table = self._names.table_of(run.tags)
            if table is not None:
                runs_by_table.setdefault(table, []).append(run)
        return runs_by_table

    @cached_property
    def _of_layout(self) -> Mapping[dg.AssetKey, list[dg.DagsterRun]]:
        runs_by_layout: dict[dg.AssetKey, list[dg.DagsterRun]] = {}
        for run in self._newest:
            for key in run.asset_selection or ():
                runs_by_layout.setdefault(key, []).append(run)
        return runs_by_layout

    def queued(self) -> int:
        """Return the number of queued runs that sensors started, of the newest 500 queued or running runs."""
        waiting = (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED)
        return sum(run.status in waiting and self._names.bytes_tag() in run.tags for run in self._newest)

    def tables(self) -> set[str]:
        """Return the tables that queued or running runs work on; only the newest 500 of these runs are read."""
        return set(self._of_table)

    def of(
        self, table: str, layout: dg.AssetKey, partition: str | None = None, *, anywhere: bool = False
    ) -> str | None:
        """Return the id of a queued or running run that works on a partition, or None.

        Runs with the table's tag are searched first, then runs of the layout that a person started without the tag. A
        run over several partitions counts as a run over all partitions of the table.

        Args:
            table: full name of the table.
            layout: asset key of the table's layout.
            partition: path of the partition. None for the whole table; then tagged runs on any partition count.
            anywhere: whether untagged runs on any partition count. Otherwise their partition must equal `partition`.
        """
        for run in self._of_table.get(table, ()):
            if partition is None or run.tags.get(names.PARTITION_TAG) == partition or names.RANGE_TAG in run.tags:
                return run.run_id
        for run in self._of_layout.get(layout, ()):
            if anywhere or run.tags.get(names.PARTITION_TAG) == partition or names.RANGE_TAG in run.tags:
                return run.run_id
        if len(self._newest) < _AT_WORK:
            return None
        tags: dict[str, str | list[str]] = {
            names.TAG_TABLE: self._names.table_value(table)
        }  # more runs than the limit: query the older ones by tag
        if partition is not None:
            tags[names.PARTITION_TAG] = partition
        older = self._instance.get_runs(dg.RunsFilter(tags=tags, statuses=_WORKING), limit=1)
        return older[0].run_id if older else None


def find_other_warehouse(instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames) -> str | None:
    """Find another warehouse that uses the same asset keys in the same Dagster instance.

    The asset keys are equal if the folders of two warehouses have the same name. Then Dagster would mix the events,
    partitions, pools and failed checks of both. The path comes from the metadata of the asset `warehouse_health`.

    Args:
        instance: Dagster instance that both warehouses report to.
        warehouse_names: names of this warehouse in Dagster.

    Returns:
        The problem with a solution. None if no second warehouse uses the name, or an operator set the name.
    """
    if warehouse_names.name:
        return None
    ranking = instance.get_latest_materialization_event(warehouse_names.warehouse_health_key())
    return find_other_in_event(ranking, warehouse_names)


def find_other_in_event(ranking: dg.EventLogEntry | None, warehouse_names: names.WarehouseNames) -> str | None:
    """Return the name conflict with another warehouse, from an event of Dagster that was already read.

    Args:
        ranking: newest materialisation of `warehouse_health` under this warehouse's name, or None.
        warehouse_names: names of this warehouse in Dagster.
    """
    materialization = None if ranking is None else ranking.asset_materialization
    path = None if materialization is None else materialization.metadata.get(names.WAREHOUSE_PATH)
    if warehouse_names.name or path is None or str(path.value).rstrip("/") == warehouse_names.path.rstrip("/"):
        return None
    return (
        f"nothing is done: the warehouse {path.value} reports to this Dagster instance under the same name "
        f"({warehouse_names.first}) as {warehouse_names.path}; set {names.NAME_VARIABLE} to another name "
        "for one of them (or to the same name, if the warehouse only moved)"
    )


@dataclass
class NameCheck:
    """Cached result of `find_other_warehouse`, so that ticks need no extra query.

    A tick that queries assets also queries the asset `warehouse_health` and updates the result (`store_answer`).
    Otherwise the result is queried again after five minutes, or on every tick while the result names a conflict.

    Attributes:
        clock: monotonic clock, in seconds.
        answer: newest result; None if no second warehouse uses the name, or before the first query.
        answered_s: time of the newest result, or None before the first query.
    """

    clock: Callable[[], float] = time.monotonic
    answer: str | None = None
    answered_s: float | None = None

    def store_answer(self, answer: str | None) -> str | None:
        """Store a new result of `find_other_warehouse` and return it."""
        self.answer, self.answered_s = answer, self.clock()
        return answer

    def refresh_if_old(self, instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames) -> str | None:
        """Return the name conflict with another warehouse, as far as it is known without a first query.

        If the last query found no conflict, the method queries again after five minutes. If it found a conflict, the
        method queries again on each call.

        Returns:
            The problem with a solution. None if there is no conflict, or before the first query.
        """
        if self.answered_s is None or (self.answer is None and self.clock() - self.answered_s < _NAME_HOLDS_SECONDS):
            return None
        return self.store_answer(find_other_warehouse(instance, warehouse_names))

    def refresh_if_unknown(self, instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames) -> str | None:
        """Return the result of `find_other_warehouse`: the cached result, or that of a query if none is cached yet.

        Call this before a tick requests runs, so that no run starts while another warehouse may use the same name.

        Returns:
            The problem with a solution, or None if no second warehouse uses the name.
        """
        return (
            self.answer
            if self.answered_s is not None
            else self.store_answer(find_other_warehouse(instance, warehouse_names))
        )
