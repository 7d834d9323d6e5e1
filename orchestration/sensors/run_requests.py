"""Run requests from decisions, with the plan's hash, a run key against duplicates, and reasons not to start a run."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import dagster as dg

from dredge.orchestration.ops.layout_ops import plan_due, plan_partitions
from dredge.orchestration.ops.warehouse_ops import compute_budget
from dredge.orchestration.sensors.budget_claims import BudgetClaims, TickClaims
from dredge.orchestration.sensors.table_cache import OpenTable, wall_ms
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import RUN_KEY_TAG
from dredge.platform_core.failure_records import find_lasting, list_failures
from dredge.platform_core.health import TableHealth, depends_on_time
from dredge.platform_core.obstacles import (
    RunningRuns,
    Suspension,
    find_blocking_failure,
    find_suspension,
    read_resume_ms,
)
from dredge.platform_core.partitions import usable_keys
from dredge.platform_core.policies import Decision, DecisionOutcome, History, Policies, Reason, Subject, decide
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import FinishedRun, PlanSummary, RunResult
from dredge.platform_core.policies.permanent_failures import PermanentFailure, find_read
from dredge.platform_core.policies.policy import SortRule
from dredge.platform_core.policies.rounds import COMPACT, RECOVER
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import count_text
from lsm_core.errors import DredgeError
from lsm_core.maintenance import AssignItem, CompactItem, MaintenancePlan, hold_plan, save_plan
from lsm_core.metadata.store import TableStore

RUNS_A_TICK: Final = 12
"""Most runs that a tick requests, because Dagster's daemon needs about a second to create one."""
_MOST_TRIES: Final = 20
MOST_TOGETHER: Final = 31
"""Most partitions that one run of a sensor compacts, as in a backfill."""
_MOST_KEY: Final = 500
"""Most characters of the partitions in a run key."""
_ENDINGS: Final = {
    dg.DagsterRunStatus.SUCCESS: RunResult.DONE,
    dg.DagsterRunStatus.FAILURE: RunResult.FAILED,
    dg.DagsterRunStatus.CANCELED: RunResult.CANCELED,
}


@dataclass(frozen=True)
class _PlannedPartition:
    """Cached result of planning a due partition.

    Attributes:
        health: health of the table when it was planned; for a different health, the result is not valid.
        planned: summary of the plan.
    """

    health: weakref.ref[TableHealth]
    planned: PlanSummary


_known: Final[dict[tuple[str, str, bool, SortRule | None], _PlannedPartition]] = {}
_KEPT_PLANS: Final = 100_000


@dataclass(frozen=True)
class FinalDecision:
    """Final decision about a due partition, with the plan that the decision is based on.

    Attributes:
        decision: the final decision.
        due: the decision before planning.
        plan: the plan, or None if nothing was planned or an earlier plan was reused.
        planned: summary of the plan.
        store: the table in the state that was planned, or None without a plan.
    """

    decision: Decision
    due: Decision
    plan: MaintenancePlan | None = None
    planned: PlanSummary = field(default_factory=lambda: PlanSummary(""))
    store: TableStore | None = None


@dataclass(frozen=True)
class _Requested:
    """Requested run of one partition, or of a whole table.

    Attributes:
        table: the table.
        partition: path of the partition, or None for the whole table.
        decision: decision to run.
        plan: plan of the run.
        full: whether the run is a full compaction.
        request: request for the run.
        single: whether the run must not include other partitions: it retries a failure, or is no plain compaction.
    """

    table: OpenTable
    partition: str | None
    decision: Decision
    plan: MaintenancePlan
    full: bool
    request: dg.RunRequest
    single: bool

    @property
    def group(self) -> tuple[str, bool, int | None]:
        """Key of the requests that may become one run: table, whether the compaction is full, and base snapshot."""
        return (self.table.name, self.full, self.plan.base_snapshot)


def _cache_key(table: OpenTable, subject: Subject, due: Decision) -> tuple[str, str, bool, SortRule | None]:
    return (table.store.root, subject.partition, due.full, due.sort)


class RunRequestBuilder:
    """Builder of run requests for due partitions, for one tick.

    Attributes:
        instance: Dagster instance.
        warehouse: the warehouse.
        claims: claims of the tick on the budget.
    """

    def __init__(
        self, instance: dg.DagsterInstance, warehouse: WarehouseResource, claims: TickClaims | None = None
    ) -> None:
        """Begin a tick.

        Args:
            instance: Dagster instance.
            warehouse: the warehouse.
            claims: claims of the tick on the budget, or None if nothing is requested.
        """
        self.instance, self.warehouse = instance, warehouse
        self.claims: Final = claims or BudgetClaims().begin_tick("")
        self._at_work = RunningRuns(instance, warehouse.names)
        self._suspended: dict[str, Suspension | None] = {}
        self._lasting: dict[str, list[PermanentFailure]] = {}
        self._requested: list[_Requested] = []
        self._failed_together: set[str] = set()

    @cached_property
    def _recorded(self) -> Mapping[str, Sequence[PermanentFailure]]:
        return list_failures(self.instance, self.warehouse.names)

    def _failures(self, store: TableStore) -> list[PermanentFailure]:
        """Return the failures of a table that no retry heals and that still hold."""
        if store.name not in self._lasting:
            recorded = self._recorded.get(store.name, ())
            self._lasting[store.name] = find_lasting(self.instance, self.warehouse.names, store, recorded)
        return self._lasting[store.name]

    def budget(self, policies: Policies) -> Budget:
        """Return the remaining budget of the tick.

        Tables of running runs use up the limit of tables. The expected bytes of runs that sensors started within the
        last hour use up the limit of bytes. Runs that another tick requested, and that Dagster has not created yet,
        count too.
        """
        keys = sorted({claim.run_key for claim in self.claims.pending if claim.run_key})
        tags: dict[str, str | list[str]] = {RUN_KEY_TAG: keys}
        created = self.instance.get_runs(dg.RunsFilter(tags=tags)) if keys else ()
        budget = compute_budget(self.instance, self.warehouse.names, policies, self._at_work, wall_ms())
        # A run may have been created after the running runs were read.
        working = (self.warehouse.names.table_of(run.tags) for run in created if not run.is_finished)
        budget = replace(budget, at_work=budget.at_work.union(table for table in working if table is not None))
        return self.claims.add_pending(budget, {run.tags[RUN_KEY_TAG] for run in created})

    def queued_runs(self) -> int:
        """Return the number of runs of sensors of this warehouse that wait in Dagster's queue."""
        return self._at_work.queued()

    def request_run(
        self, table: OpenTable, subject: Subject, budget: Budget | None = None, *, out_of_turns: str = ""
    ) -> tuple[Decision, dg.RunRequest | None]:
        """Return the final decision with its text, and the run to start.

        The plan of a run is saved with the table, and the run gets only the plan's hash. A plan that needs approval is
        stored for approval.

        Args:
            table: the table.
            subject: due partition.
            budget: remaining budget, or None for no limit.
            out_of_turns: why the tick cannot plan any more work now, or "".

        Returns:
            The decision, and the run request or None.
        """
        left = None if budget is None else self.claims.remaining(budget)
        final = self.settle(table, subject, left, out_of_turns=out_of_turns)
        decision, due, plan, store = final.decision, final.due, final.plan, final.store
        if plan is None or store is None:
            return decision, None
        planned, policy, name = final.planned, table.policy_of(subject.state), table.name
        try:
            if decision.reason is Reason.APPROVAL:
                hold_plan(store, plan, f"{due.text}; approval is required ({policy.origin('approval.compact')})")
                planned = replace(planned, waits=True)
            elif decision.outcome is DecisionOutcome.RUN:
                save_plan(store, plan)
        except DredgeError as error:
            text = f"{due.text}, but its plan cannot be saved: {type(error).__name__}: {error}"
            return due.decline(Reason.UNREADABLE, text), None
        self._store_planned(table, subject, final, planned)
        if decision.outcome is not DecisionOutcome.RUN or plan.base_snapshot is None:
            return decision, None
        why = "" if budget is None else self.claims.try_claim(budget, decision.subject, name, decision.cost)
        if why:  # another sensor claimed it while this one made the plan
            return due.decline(Reason.BUDGET, f"{due.text}; {why} (score {due.benefit:g})"), None
        partition, full = subject.partition or None, due.full
        action = "compact full" if full else "compact"
        config: dict[str, Any] = {"plan": plan.hash, "full": full}
        if plan.action == RECOVER:
            action = RECOVER
            config |= {"full": False, "action": RECOVER, "arguments": {"files": plan.arguments["files"]}}
        elif due.sort is not None:
            action = "compact sort"
            config |= {"full": False, "arguments": due.sort.arguments}
        request = dg.RunRequest(
            run_key=names.run_key(name, partition, plan.base_snapshot, plan.hash, decision.attempt),
            asset_selection=[self.warehouse.names.layout_key(name)],
            run_config={"ops": {self.warehouse.names.node_name(name): {"config": config}}},
            tags={
                **self.warehouse.names.run_tags(name, partition, plan.hash, action, decision.text),
                self.warehouse.names.bytes_tag(): str(decision.cost),
            },
            partition_key=partition,
        )
        plain = plan.action == COMPACT and due.sort is None and not plan.items_of(AssignItem)
        failed = decision.attempt > 1 or plan.hash in self._failed_together
        single = partition is None or failed or not plain
        self._requested.append(_Requested(table, partition, decision, plan, full, request, single))
        return decision, request

    def run_count(self) -> int:
        """Return the least number of runs that the requests of this tick become.

        One run can compact up to 31 partitions that are neighbours in Dagster's order. The number assumes that all
        partitions of a table are neighbours.
        """
        sizes = Counter(item.group for item in self._requested if not item.single)
        singles = sum(item.single for item in self._requested)
        return singles + sum(-(-size // MOST_TOGETHER) for size in sizes.values())

    def combine_requests(self, partition_order: Callable[[str], Sequence[str]]) -> list[dg.RunRequest]:
        """Return the requests of this tick, with one run for the partitions of a table that are due together.

        A run covers a range of partitions in Dagster's order, so only neighbours are combined, at most 31. If the
        partitions cannot be planned together, each keeps its own run. So does a partition whose run failed before.

        Args:
            partition_order: returns the partitions of a table in Dagster's order.
        """
        groups: dict[tuple[str, bool, int | None], list[_Requested]] = {}
        for item in self._requested:
            if not item.single:
                groups.setdefault(item.group, []).append(item)
        for item in self._requested:
            self.claims.set_run_key([item.decision.subject], item.request.run_key or "")
        combined: dict[str | None, dg.RunRequest | None] = {}
        for group in groups.values():
            if len(group) < 2:
                continue
            for neighbours in _find_neighbours(group, partition_order(group[0].table.name)):
                request = self._combine(neighbours)
                if request is not None:
                    self.claims.set_run_key([item.decision.subject for item in neighbours], request.run_key or "")
                    first = next(item for item in group if item in neighbours)  # the most useful one
                    combined |= {item.request.run_key: None for item in neighbours} | {first.request.run_key: request}
        requests = (combined.get(item.request.run_key, item.request) for item in self._requested)
        return [request for request in requests if request is not None]

    def _combine(self, items: Sequence[_Requested]) -> dg.RunRequest | None:
        """Return one request for neighbours in Dagster's order, or None if they cannot be planned together."""
        table, full, name = items[0].table, items[0].full, items[0].table.name
        partitions = [str(item.partition) for item in items]
        try:
            store = self.warehouse.store(name).copy(table.policy.options)
            arguments: dict[str, Any] = {"full": True} if full else {}
            plan = plan_partitions(store, partitions, COMPACT, **arguments)
            if not plan.items or plan.base_snapshot is None or plan.base_snapshot != items[0].plan.base_snapshot:
                return None
            save_plan(store, plan)
        except DredgeError:
            return None
        text = f"{len(items)} partitions: {items[0].decision.text}"
        subjects_text = "|".join(partitions)
        if len(subjects_text) > _MOST_KEY:
            subjects_text = f"{partitions[0]}..{partitions[-1]}"
        return dg.RunRequest(
            run_key=names.run_key(name, subjects_text, plan.base_snapshot, plan.hash),
            asset_selection=items[0].request.asset_selection,
            run_config={"ops": {self.warehouse.names.node_name(name): {"config": {"plan": plan.hash, "full": full}}}},
            tags={
                **self.warehouse.names.run_tags(name, None, plan.hash, "compact full" if full else "compact", text),
                self.warehouse.names.bytes_tag(): str(sum(item.decision.cost for item in items)),
                names.RANGE_TAG: partitions[0],
                names.RANGE_END_TAG: partitions[-1],
                names.TAG_PARTITIONS: json.dumps(partitions),
                **{names.planned_tag(item.plan.hash): "yes" for item in items},
            },
        )

    def settle(
        self, table: OpenTable, subject: Subject, budget: Budget | None = None, *, out_of_turns: str = ""
    ) -> FinalDecision:
        """Return the final decision about a due partition; nothing is saved and nothing starts.

        The decision is made first from the data that the tick has already read. If it allows a run, the decision is
        made again with facts from Dagster, and then with a plan. If no run starts, the plan of the partition is reused
        until the table changes. Failed checks, running runs and earlier runs of the plan are read every time.

        Args:
            table: the table.
            subject: due partition.
            budget: remaining budget, or None for no limit.
            out_of_turns: why the caller cannot plan any more work now, or "".
        """
        name, partition, now = table.name, subject.partition or None, table.now
        layout, policy = self.warehouse.names.layout_key(name), table.policy_of(subject.state)
        refused = partition is not None and bool(usable_keys([partition])[1])
        history = History(
            budget,
            out_of_turns,
            unusable_name=refused,
            apply_job=self.warehouse.names.definition(names.APPLY_PLAN_JOB),
            resume_job=self.warehouse.names.definition(names.RESUME_JOB),
        )
        decision = decide(subject, policy, history, now)
        if decision.outcome is not DecisionOutcome.RUN:
            return FinalDecision(decision, decision)
        history = self._add_runs(history, name, layout, partition)
        decision = decide(subject, policy, history, now)
        if decision.outcome is not DecisionOutcome.RUN:
            return FinalDecision(decision, decision)
        due = decision
        known = _known.get(_cache_key(table, subject, due))
        if known is not None and known.health() is table.health:
            decision = decide(subject, policy, self._add_plan(history, table, subject, known.planned), now)
            if decision.outcome is not DecisionOutcome.RUN:
                return FinalDecision(decision, due)
        try:
            store = self.warehouse.store(name).copy(table.policy.options)  # the current state, not that of the tick
            plan = plan_due(store, partition, table.policy.level0_pass, full=due.full, sort=due.sort)
        except DredgeError as error:
            unreadable = due.decline(Reason.UNREADABLE, f"{type(error).__name__}: {error}")
            return FinalDecision(unreadable, due)
        planned = _summarise_plan(plan, full=due.full and due.sort is None)
        planned = replace(planned, damaged=find_read(plan, self._failures(table.store)))
        decision = decide(subject, policy, self._add_plan(history, table, subject, planned), now)
        return FinalDecision(decision, due, plan, planned, store)

    def _store_planned(self, table: OpenTable, subject: Subject, final: FinalDecision, planned: PlanSummary) -> None:
        """Keep the summary of a plan for later ticks, unless the table changed meanwhile or time changes the plan."""
        plan, store = final.plan, final.store
        if plan is None or store is None or plan.base_snapshot != table.health.snapshot:
            return
        if _plan_changes_with_time(store):
            return
        if len(_known) >= _KEPT_PLANS:
            _known.clear()
        _known[_cache_key(table, subject, final.due)] = _PlannedPartition(weakref.ref(table.health), planned)

    def _add_runs(self, history: History, name: str, layout: dg.AssetKey, partition: str | None) -> History:
        """Return the facts for a decision (`History`) with those that Dagster has about the partition.

        Added are failed blocking checks, a running run, and the table's suspension.

        Args:
            history: facts that are already known.
            name: full name of the table.
            layout: key of the layout asset.
            partition: path of the partition, or None for the whole table.
        """
        if name not in self._suspended:
            self._suspended[name] = find_suspension(self.instance, self.warehouse.names, name)
        suspended = self._suspended[name]
        return replace(
            history,
            blocked=find_blocking_failure(self.instance, layout, partition),
            at_work=self._at_work.of(name, layout, partition),
            suspended=None if suspended is None else suspended.text(),
        )

    def _add_plan(self, history: History, table: OpenTable, subject: Subject, planned: PlanSummary) -> History:
        """Return the facts for a decision (`History`) with the plan and the plan's earlier runs, read from Dagster.

        Args:
            history: facts that are already known.
            table: the table.
            subject: the partition or the whole table.
            planned: summary of the plan; earlier runs are read only if it has a hash.
        """
        if not planned.hash:
            return replace(history, plan=planned)
        partition = subject.partition or None
        tries = _finished_runs(self.instance, self.warehouse.names, table.name, partition, planned.hash)
        if any(item.together for item in tries):
            # One partition may have failed the run of all, so each is tried on its own, without waiting.
            self._failed_together |= {planned.hash for item in tries if item.ending is RunResult.FAILED}
            tries = [item for item in tries if not item.together or item.ending is not RunResult.FAILED]
        since = read_resume_ms(self.instance, self.warehouse.names, table.name) if tries else 0
        failures = self._failures(table.store)
        return replace(history, plan=planned, tries=tries, resumed_ms=since, failures=failures)


def _find_neighbours(items: Sequence[_Requested], order: Sequence[str]) -> list[list[_Requested]]:
    """Return the groups of two to 31 partitions that follow each other in Dagster's order.

    Args:
        items: requested runs of one table.
        order: partitions of the table in Dagster's order.
    """
    wanted = {item.partition: item for item in items}
    groups: list[list[_Requested]] = [[]]
    for partition in dict.fromkeys(order):  # a partition that is just being added may be listed twice
        item = wanted.get(partition)
        if item is None or len(groups[-1]) == MOST_TOGETHER:
            groups.append([])
        if item is not None:
            groups[-1].append(item)
    return [group for group in groups if len(group) > 1]


def _summarise_plan(plan: MaintenancePlan, *, full: bool) -> PlanSummary:
    """Return the summary of a plan for decisions.

    Args:
        plan: the plan.
        full: whether the plan is a full compaction. Then the summary has no text, because the text of the decision
            already explains it.
    """
    if plan.items and plan.base_snapshot is not None:
        text = "" if full and plan.action != RECOVER else plan_text(plan)
        return PlanSummary(plan.hash, text=text, cost=plan.estimate.bytes_in, one_pass=plan.action == RECOVER)
    return PlanSummary("", "; ".join(dict.fromkeys(item.text for item in plan.declined)) or "the plan is empty")


def _plan_changes_with_time(store: TableStore) -> bool:
    """Return whether the plan for unchanged files may change later, by time-based rules or the age of rows."""
    options = store.options
    deletes = bool(options.sequence_field) and options.tombstone_retention > 0
    return depends_on_time(store) or deletes or options.get("partition.expiration-time") is not None


def plan_text(plan: MaintenancePlan) -> str:
    """Return what a plan compacts, as text.

    The text is the rule that picked the files of the bucket with the most sorted runs, and the number of further
    buckets. For a plan that assigns buckets to postponed rows (`bucket` = -2), it is the number of these rows.
    """
    items = sorted(plan.items_of(CompactItem), key=lambda item: (-item.runs_before, -len(item.inputs)))
    waiting = plan.items_of(AssignItem)
    if waiting:
        return f"{count_text(sum(item.rows_in for item in waiting), 'postponed row')} get their buckets"
    if not items:
        return "nothing to merge"
    more = count_text(len(items) - 1, "more bucket")
    return items[0].reason if len(items) == 1 else f"{items[0].reason} (and {more})"


def _finished_runs(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    table: str,
    partition: str | None,
    plan: str,
) -> list[FinishedRun]:
    """Return the finished runs of a plan, newest first, including runs that a person started.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        table: full name of the table.
        partition: path of the partition, or None for the whole table.
        plan: hash of the plan.
    """
    statuses = list(_ENDINGS)
    tags = {**_tags(warehouse_names, table, partition), names.TAG_PLAN: plan}
    records = list(instance.get_run_records(dg.RunsFilter(tags=tags, statuses=statuses), limit=_MOST_TRIES))
    if partition is not None:  # runs over several partitions have a plan of their own
        tags = {**_tags(warehouse_names, table, None), names.planned_tag(plan): "yes"}
        records += instance.get_run_records(dg.RunsFilter(tags=tags, statuses=statuses), limit=_MOST_TRIES)
        records.sort(key=lambda record: record.storage_id, reverse=True)
    return [
        FinishedRun(
            record.dagster_run.run_id,
            _ENDINGS[record.dagster_run.status],
            int((record.end_time or record.update_timestamp.timestamp()) * 1000),
            together=names.TAG_PARTITIONS in record.dagster_run.tags,
        )
        for record in records
    ]


def _tags(warehouse_names: names.WarehouseNames, table: str, partition: str | None) -> dict[str, str | list[str]]:
    return {
        names.TAG_TABLE: warehouse_names.table_value(table),
        **({} if partition is None else {names.PARTITION_TAG: partition}),
    }
