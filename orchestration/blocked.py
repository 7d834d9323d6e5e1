"""Which tables must rest: a failed blocking check stops further maintenance until it passes again, a run at work the next one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Final

import dagster as dg

from orchestration import names
from orchestration.quirks import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
    PartitionKeyFilter,
    partitions_ever_failed,
)

_LOOK_BACK = 50
_AT_WORK: Final = 500
_NAME_HOLDS_SECONDS: Final = 300.0
IN_A_ROW: Final = 3
"""So many failed runs of a table, one after the other and whatever their plans, suspend it."""
_MAINTAINING: Final = ("compact", "compact full", "compact sort", "recover")
"""Actions of the runs that sensors start, or people in their place: others that fail, with arguments of somebody's own, say nothing of the table."""
_FAILED_RUNS: Final = 500
_FAILED_EVALUATIONS: Final = 1_000
"""Among so many of a check's newest failed evaluations the partitions are found that may still be blocked."""
_COMPLETED: Final = set(COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES)
_FAILED: Final = {status for status in _COMPLETED if status.value == "FAILED"}
_CHECKS_AT_ONCE: Final = 500
"""Of so many checks Dagster is asked in one question: its storage takes no list of any length."""
_WORKING: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def newest_evaluations(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, dg.AssetCheckEvaluation]:
    """Return the newest evaluation of each check, of whatever partition; those that were never evaluated are left out.

    What Dagster itself calls the newest may be one that a run at work, or one that ended before it came to its checks, only planned.
    """
    found: dict[dg.AssetCheckKey, dg.AssetCheckEvaluation] = {}
    storage, keys = instance.event_log_storage, list(checks)
    for start in range(0, len(keys), _CHECKS_AT_ONCE):
        newest = storage.get_latest_asset_check_execution_by_key(keys[start : start + _CHECKS_AT_ONCE])
        for key, record in newest.items():
            done: Sequence[AssetCheckExecutionRecord] = [record]
            if record.status not in _COMPLETED:
                done = storage.get_asset_check_execution_history(key, limit=1, status=_COMPLETED)
            if done and done[0].evaluation is not None:
                found[key] = done[0].evaluation
    return found


def latest_evaluation(instance: dg.DagsterInstance, layout: dg.AssetKey, check: str) -> dg.AssetCheckEvaluation | None:
    """Return the newest evaluation of a check of a layout without partitions, None before the first."""
    key = dg.AssetCheckKey(layout, check)
    return newest_evaluations(instance, [key]).get(key)


def ever_evaluated(instance: dg.DagsterInstance, layouts: Iterable[dg.AssetKey]) -> frozenset[dg.AssetCheckKey]:
    """Return the blocking checks of ``layouts``, also under their former keys, that Dagster holds any evaluation of: one question for all."""
    keys = [check for layout in layouts for check in _blocking_checks(layout)]
    return frozenset(instance.event_log_storage.get_latest_asset_check_execution_by_key(keys))


_NAMES: Final = {
    names.MERGED_VIEW_CHECK: (names.MERGED_VIEW_CHECK,),
    names.TREE_CHECK: (names.TREE_CHECK, names.FORMER_TREE_CHECK),
}
"""The blocking checks, each with the names that it has had, that of today first."""


def _blocking_checks(layout: dg.AssetKey, name: str | None = None) -> list[dg.AssetCheckKey]:
    """All blocking checks, or the one of that name, under all keys and names that they have had; those of today first."""
    keys = (layout, names.former_layout_key(layout))
    told = _NAMES.items() if name is None else [(name, _NAMES[name])]
    return [dg.AssetCheckKey(key, spelled) for _, spellings in told for spelled in spellings for key in keys]


def blocking_failure(
    instance: dg.DagsterInstance,
    layout: dg.AssetKey,
    partition: str | None = None,
    evaluated: Collection[dg.AssetCheckKey] | None = None,
) -> str | None:
    """Return why the partition (``None``: any part of the table) may not be touched, None when it may.

    ``evaluated``: what `ever_evaluated` said of this layout and others; the rest is not asked for.

    Only the newest evaluation counts, also where it is one under the layout's or the check's former name: execute the check again once the table
    is repaired, and the block ends.
    """
    for name in _NAMES:
        checks = [check for check in _blocking_checks(layout, name) if evaluated is None or check in evaluated]
        partitions = _that_ever_failed(instance, checks) if partition is None else [partition]
        for one in partitions:
            evaluation = _newest_of(instance, checks, one)
            if evaluation is not None and _fails(evaluation):
                where = f" of {evaluation.partition}" if evaluation.partition else ""
                return f"blocked: {name}{where} failed: {evaluation.description or 'see its metadata'}"
    return None


def newest_comparison(
    instance: dg.DagsterInstance, layout: dg.AssetKey, partition: str | None
) -> dg.AssetCheckEvaluation | None:
    """Return the newest evaluation of merged_view_unchanged that counts for the partition (None: a table without any), None before the first."""
    return _newest_of(instance, _blocking_checks(layout, names.MERGED_VIEW_CHECK), partition)


def _that_ever_failed(instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey]) -> list[str | None]:
    """The partitions of which a check ever failed, the latest first: however many evaluations of others came since, none is forgotten."""
    failed = [
        record
        for check in checks
        for record in instance.event_log_storage.get_asset_check_execution_history(
            check, limit=_FAILED_EVALUATIONS, status=_FAILED
        )
    ]
    return list(dict.fromkeys(record.partition for record in sorted(failed, key=lambda one: one.id, reverse=True)))


def _newest_of(
    instance: dg.DagsterInstance, checks: Sequence[dg.AssetCheckKey], partition: str | None
) -> dg.AssetCheckEvaluation | None:
    """The evaluation that counts for a partition (None: for the whole table).

    A run over several partitions is evaluated once, for none of them in particular: that it failed counts for each until it has a newer evaluation of its
    own; that it passed says nothing of one that failed by itself, which may not even have been part of that run.
    """
    counting: list[AssetCheckExecutionRecord] = []
    for wanted in (None, partition) if partition is not None else (None,):
        records = [
            record
            for check in checks
            for record in instance.event_log_storage.get_asset_check_execution_history(
                check, limit=1, status=_COMPLETED, partition_filter=PartitionKeyFilter(key=wanted)
            )
        ]
        newest = max(records, key=lambda record: record.id, default=None)
        if newest is not None and _fails(newest.evaluation) and wanted == partition:
            return newest.evaluation
        counting += [newest] if newest is not None else []
    return max(counting, key=lambda record: record.id).evaluation if counting else None


def _fails(evaluation: dg.AssetCheckEvaluation | None) -> bool:
    """Whether it blocks what it is of."""
    return evaluation is not None and not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR


def started_before(instance: dg.DagsterInstance, run_id: str, table: str, layout: dg.AssetKey) -> str | None:
    """Return the id of a run that works on the table since before ``run_id`` does, None: there is none.

    Of two that start at the same time one is told of the other. Call it once the run has the table's tag, so that the other sees it, too.
    """
    statuses = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
    records = {
        record.dagster_run.run_id: record
        for record in instance.get_run_records(dg.RunsFilter(statuses=statuses), limit=_AT_WORK)
    }
    named = dg.RunsFilter(tags={names.TAG_TABLE: names.table_value(table)}, statuses=statuses)
    records |= {record.dagster_run.run_id: record for record in instance.get_run_records(named)}
    began = {
        found: (record.start_time or 0.0, found)
        for found, record in records.items()
        if found == run_id
        or names.table_of(record.dagster_run.tags) == table
        or layout in (record.dagster_run.asset_selection or ())
    }
    mine = began.pop(run_id, (float("inf"), run_id))
    first = min(began.items(), key=lambda item: item[1], default=None)
    return first[0] if first is not None and first[1] < mine else None


def failed_checks(instance: dg.DagsterInstance, layouts: Mapping[str, dg.AssetKey]) -> dict[str, str]:
    """Return, by table, what its failed blocking check said, of one partition where several are blocked: a question for every 250 of ``layouts`` (by table), and
    one or two for each partition that ever failed.
    """
    owners = {
        dg.AssetCheckKey(layout, name): table
        for table, layout in layouts.items()
        for name in (names.MERGED_VIEW_CHECK, names.TREE_CHECK)
    }
    found = {
        owners[check]: f"{check.name} failed: {evaluation.description or 'see its metadata'}"
        for check, evaluation in newest_evaluations(instance, owners).items()
        if _fails(evaluation)
    }
    for check, partition in partitions_ever_failed(instance, owners):
        if owners[check] in found:
            continue  # one is told of each table
        evaluation = _newest_of(instance, [check], partition)
        if evaluation is not None and _fails(evaluation):
            told = evaluation.description or "see its metadata"
            found[owners[check]] = f"{check.name} of {partition} failed: {told}"
    return found


@dataclass(frozen=True)
class Suspension:
    """A table whose newest runs ``failures`` in number all failed, the last of them ``run_id``, at ``since_ms`` (epoch ms of the wall's clock)."""

    table: str
    failures: int
    run_id: str
    since_ms: int

    def text(self) -> str:
        """Why, and how it ends."""
        return (
            f"suspended: its last {self.failures} runs failed, the newest is {self.run_id[:8]}: see its error, then launch the job {names.RESUME_JOB} "
            f"for {self.table}, or materialise its layout: a run that succeeds ends it, too"
        )


def resumed_ms(instance: dg.DagsterInstance, table: str) -> int:
    """Return when somebody last resumed the table (epoch ms of the wall's clock), 0 when nobody did."""
    wanted = dg.RunsFilter(tags={names.resumed_tag(table): "yes"}, statuses=[dg.DagsterRunStatus.SUCCESS])
    found = instance.get_run_records(wanted, limit=1)
    return int(found[0].create_timestamp.timestamp() * 1000) if found else 0


def suspension(instance: dg.DagsterInstance, table: str) -> Suspension | None:
    """Return why no sensor starts a run of the table any more: its newest runs failed, `IN_A_ROW` of them or more. None: none of this.

    Runs before it was last resumed do not count, and neither do canceled ones.
    """
    ended = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
    tags: dict[str, str | list[str]] = {names.TAG_TABLE: names.table_value(table), names.TAG_ACTION: list(_MAINTAINING)}
    records = instance.get_run_records(dg.RunsFilter(tags=tags, statuses=ended), limit=_LOOK_BACK)
    failed = list(takewhile(lambda record: record.dagster_run.status is dg.DagsterRunStatus.FAILURE, records))
    if len(failed) < IN_A_ROW:
        return None
    since = resumed_ms(instance, table)
    failed = [record for record in failed if record.create_timestamp.timestamp() * 1000 > since]
    if len(failed) < IN_A_ROW:
        return None
    newest = failed[0]
    ended_ms = int((newest.end_time or newest.update_timestamp.timestamp()) * 1000)
    return Suspension(table, len(failed), newest.dagster_run.run_id, ended_ms)


def suspensions(instance: dg.DagsterInstance) -> dict[str, Suspension]:
    """Return the suspended tables, by name, found by the newest 500 failed runs of all tables."""
    tags: dict[str, str | list[str]] = {names.TAG_ACTION: list(_MAINTAINING)}
    failed = instance.get_runs(dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.FAILURE]), limit=_FAILED_RUNS)
    counted = Counter(names.table_of(run.tags) for run in failed)
    found = {
        table: suspension(instance, table)
        for table, number in counted.items()
        if table is not None and number >= IN_A_ROW
    }
    return {table: one for table, one in found.items() if one is not None}


class RunsAtWork:
    """The runs at work when they are first asked for: one question to Dagster, however many tables want to know."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    @cached_property
    def _newest(self) -> Sequence[dg.DagsterRun]:
        return self._instance.get_runs(dg.RunsFilter(statuses=_WORKING), limit=_AT_WORK)

    @cached_property
    def _of_table(self) -> Mapping[str, list[dg.DagsterRun]]:
        found: dict[str, list[dg.DagsterRun]] = {}
        for run in self._newest:
            table = names.table_of(run.tags)
            if table is not None:
                found.setdefault(table, []).append(run)
        return found

    @cached_property
    def _of_layout(self) -> Mapping[dg.AssetKey, list[dg.DagsterRun]]:
        found: dict[dg.AssetKey, list[dg.DagsterRun]] = {}
        for run in self._newest:
            for key in run.asset_selection or ():
                found.setdefault(key, []).append(run)
        return found

    def tables(self) -> set[str]:
        """Return the tables that runs are at work on, of the newest 500 runs."""
        return set(self._of_table)

    def of(
        self, table: str, layout: dg.AssetKey, partition: str | None = None, *, anywhere: bool = False
    ) -> str | None:
        """Return the id of the newest run at work on the table's partition (``anywhere``: on any part of the table), None: there is none.

        Also of one that a person started and that has none of our tags. A run over several partitions is at work on all of the table's.
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
            names.TAG_TABLE: names.table_value(table)
        }  # more are at work: the older ones by name
        if partition is not None:
            tags[names.PARTITION_TAG] = partition
        older = self._instance.get_runs(dg.RunsFilter(tags=tags, statuses=_WORKING), limit=1)
        return older[0].run_id if older else None


def other_warehouse(instance: dg.DagsterInstance, warehouse_path: str) -> str | None:
    """Find another warehouse whose asset keys are the same: its folder has the same name, and both use one Dagster instance.

    Their events, partitions, pools and blocks would mix. The ranking of each warehouse says which one it is of.

    Args:
        instance: Dagster instance that both report to.
        warehouse_path: path or address of this warehouse.

    Returns:
        What to do, for people, or None where no other warehouse reported under this name or an operator chose the name.
    """
    if names.chosen_name():
        return None
    ranking = instance.get_latest_materialization_event(names.warehouse_health_key(warehouse_path))
    return other_in(ranking, warehouse_path)


def other_in(ranking: dg.EventLogEntry | None, warehouse_path: str) -> str | None:
    """Return what `other_warehouse` does, from the event that it would ask Dagster for.

    Args:
        ranking: newest materialisation of `warehouse_health` under this warehouse's name, None before the first.
        warehouse_path: path or address of this warehouse.
    """
    materialization = None if ranking is None else ranking.asset_materialization
    path = None if materialization is None else materialization.metadata.get(names.WAREHOUSE_PATH)
    if names.chosen_name() or path is None or str(path.value).rstrip("/") == warehouse_path.rstrip("/"):
        return None
    return (
        f"nothing is done: the warehouse {path.value} reports to this Dagster instance under the same name "
        f"({names.warehouse_name(warehouse_path)}) as {warehouse_path}; set {names.NAME_VARIABLE} to another name for one of them "
        "(or to the same name, if the warehouse only moved)"
    )


@dataclass
class NameCheck:
    """Answer of `other_warehouse` as this process knows it, so that a tick asks Dagster nothing more for it.

    Queries about other assets carry the ranking's key along (`learn`). Without any, the answer is asked for again once it is five minutes old, or names
    another warehouse.

    Attributes:
        clock: seconds that only go forward.
        answer: newest answer; None also before the first.
        asked_s: time of the newest answer, None before the first.
    """

    clock: Callable[[], float] = time.monotonic
    answer: str | None = None
    asked_s: float | None = None

    def learn(self, answer: str | None) -> str | None:
        """Remember an answer of now, and return it."""
        self.answer, self.asked_s = answer, self.clock()
        return answer

    def before_a_tick(self, instance: dg.DagsterInstance, warehouse_path: str) -> str | None:
        """Return the answer, asked for again where it is old; None where nothing is known yet."""
        if self.asked_s is None or (self.answer is None and self.clock() - self.asked_s < _NAME_HOLDS_SECONDS):
            return None
        return self.learn(other_warehouse(instance, warehouse_path))

    def before_an_answer(self, instance: dg.DagsterInstance, warehouse_path: str) -> str | None:
        """Return the answer, asked for where nothing is known yet: a tick is about to give Dagster work."""
        return self.answer if self.asked_s is not None else self.learn(other_warehouse(instance, warehouse_path))
