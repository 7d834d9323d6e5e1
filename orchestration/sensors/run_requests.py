"""From a decision to a run: the plan's hash, the run key without duplicates, and every reason not to start one."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any, Final

import dagster as dg

from lsm_core.errors import DredgeError
from lsm_core.maintenance import AssignItem, CompactItem, MaintenancePlan, hold_plan, save_plan
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import (
    RunsAtWork,
    Suspension,
    blocking_failure,
    resumed_ms,
    suspension,
)
from orchestration.health import TableHealth, ages
from orchestration.ops.layout_ops import plan_due
from orchestration.ops.warehouse_ops import budget_left
from orchestration.partitions import usable_keys
from orchestration.policies import Decision, History, Outcome, Policies, Reason, Subject, decide
from orchestration.policies.budgets import Budget
from orchestration.policies.decisions import Ending, Planned, Try
from orchestration.policies.policy import SortRule
from orchestration.policies.rounds import RECOVER
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.looks import OpenTable, wall_ms
from orchestration.table_card import count_text

_LOOKED_AT: Final = 20
_ENDINGS: Final = {
    dg.DagsterRunStatus.SUCCESS: Ending.DONE,
    dg.DagsterRunStatus.FAILURE: Ending.FAILED,
    dg.DagsterRunStatus.CANCELED: Ending.CANCELED,
}


@dataclass(frozen=True)
class _Known:
    """What planning a due partition gave, which is true of that reading of its table's ``health``."""

    health: weakref.ref[TableHealth]
    planned: Planned


_known: Final[dict[tuple[str, str, bool, SortRule | None], _Known]] = {}
_KEPT_PLANS: Final = 100_000


class RunDesk:
    """Where due partitions become run requests, for one tick."""

    def __init__(self, instance: dg.DagsterInstance, warehouse: WarehouseResource) -> None:
        self.instance, self.warehouse = instance, warehouse
        self._at_work = RunsAtWork(instance)
        self._suspended: dict[str, Suspension | None] = {}

    def budget(self, policies: Policies) -> Budget:
        """Return what is left of the budgets: tables at work, and what runs that sensors started within the last hour were expected to read."""
        return budget_left(self.instance, policies, self._at_work, wall_ms())

    def request_run(
        self, table: OpenTable, subject: Subject, budget: Budget | None = None, *, out_of_time: bool = False
    ) -> tuple[Decision, dg.RunRequest | None]:
        """Return the decision, final and in full words, and the run to start (None when there is a reason not to).

        It is decided with what is known, and once more with what Dagster and a plan tell, as long as nothing stands in the way. The plan is saved beside the table; the
        run gets its hash alone. As long as the table does not move, a partition whose plan gets no run is not planned again: whether failed checks, runs at work and
        earlier runs of the plan still stand in the way is asked every time. ``out_of_time``: the tick has no time left to plan.
        """
        name, partition, now = table.name, subject.partition or None, table.now
        layout, policy = names.layout_key(self.warehouse.path, name), table.policy_of(subject.state)
        refused = partition is not None and bool(usable_keys([partition])[1])
        history = History(budget, out_of_time, unusable_name=refused)
        decision = decide(subject, policy, history, now)
        if decision.outcome is not Outcome.RUN:
            return decision, None
        history = self._with_runs(history, name, layout, partition)
        decision = decide(subject, policy, history, now)
        if decision.outcome is not Outcome.RUN:
            return decision, None
        full, due = decision.full, decision
        place = (table.store.root, subject.partition, full, decision.sort)
        known = _known.get(place)
        if known is not None and known.health() is table.health:
            decision = decide(subject, policy, self._with_plan(history, table, subject, known.planned), now)
            if decision.outcome is not Outcome.RUN:
                return decision, None
        try:
            store = self.warehouse.store(name).copy(table.policy.options)  # as it is now, whatever the tick found
            plan = plan_due(store, partition, table.policy.level0_pass, full=full, sort=due.sort)
        except DredgeError as error:
            return due.declined(Reason.UNREADABLE, f"{type(error).__name__}: {error}"), None
        planned = _planned_as(plan, full=full and due.sort is None)
        decision = decide(subject, policy, self._with_plan(history, table, subject, planned), now)
        try:
            if decision.reason is Reason.APPROVAL:
                hold_plan(store, plan, f"{due.text}; approval is required ({policy.origin('approval.compact')})")
                planned = replace(planned, held=True)
            elif decision.outcome is Outcome.RUN:
                save_plan(store, plan)
        except DredgeError as error:
            text = f"{due.text}, but its plan cannot be saved: {type(error).__name__}: {error}"
            return due.declined(Reason.UNREADABLE, text), None
        if plan.base_snapshot == table.health.snapshot and not _plan_ages(store):
            if len(_known) >= _KEPT_PLANS:
                _known.clear()
            _known[place] = _Known(weakref.ref(table.health), planned)
        if decision.outcome is not Outcome.RUN or plan.base_snapshot is None:
            return decision, None
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
            asset_selection=[layout],
            run_config={"ops": {names.node_name(self.warehouse.path, name): {"config": config}}},
            tags={
                **names.run_tags(name, partition, plan.hash, action, decision.text),
                names.bytes_tag(): str(decision.cost),
            },
            partition_key=partition,
        )
        return decision, request

    def _with_runs(self, history: History, name: str, layout: dg.AssetKey, partition: str | None) -> History:
        """What Dagster knows of the partition's checks and runs, and of the table's failures."""
        if name not in self._suspended:
            self._suspended[name] = suspension(self.instance, name)
        suspended = self._suspended[name]
        return replace(
            history,
            blocked=blocking_failure(self.instance, layout, partition),
            at_work=self._at_work.of(name, layout, partition),
            suspended=None if suspended is None else suspended.text(),
        )

    def _with_plan(self, history: History, table: OpenTable, subject: Subject, planned: Planned) -> History:
        """What Dagster knows of the plan's earlier runs."""
        if not planned.hash:
            return replace(history, plan=planned)
        tries = _tries(self.instance, table.name, subject.partition or None, planned.hash)
        since = resumed_ms(self.instance, table.name) if tries else 0
        return replace(history, plan=planned, tries=tries, resumed_ms=since)


def _planned_as(plan: MaintenancePlan, *, full: bool) -> Planned:
    """What decisions are told of a plan; that a ``full`` one merges everything is said already."""
    if plan.items and plan.base_snapshot is not None:
        text = "" if full and plan.action != RECOVER else plan_text(plan)
        return Planned(plan.hash, text=text, cost=plan.estimate.bytes_in, part=plan.action == RECOVER)
    return Planned("", "; ".join(dict.fromkeys(item.text for item in plan.declined)) or "the plan is empty")


def _plan_ages(store: TableStore) -> bool:
    """Whether another plan may come of the same files later: by the table's own rules, or since rows, partitions or deletes have grown old."""
    options = store.options
    deletes = bool(options.sequence_field) and options.tombstone_retention > 0
    return ages(store) or deletes or options.get("partition.expiration-time") is not None


def plan_text(plan: MaintenancePlan) -> str:
    """Return what the plan does in a few words: the rule that picked the worst bucket's files, and how many more there are."""
    items = sorted(plan.items_of(CompactItem), key=lambda item: (-item.runs_before, -len(item.inputs)))
    waiting = plan.items_of(AssignItem)
    if waiting:
        return f"{count_text(sum(item.rows_in for item in waiting), 'postponed row')} get their buckets"
    if not items:
        return "nothing to merge"
    more = count_text(len(items) - 1, "more bucket")
    return items[0].reason if len(items) == 1 else f"{items[0].reason} (and {more})"


def _tries(instance: dg.DagsterInstance, table: str, partition: str | None, plan: str) -> list[Try]:
    """Return the ended runs of this plan, newest first; a hand that runs one again counts as well."""
    tags = {**_tags(table, partition), names.TAG_PLAN: plan}
    records = instance.get_run_records(dg.RunsFilter(tags=tags, statuses=list(_ENDINGS)), limit=_LOOKED_AT)
    return [
        Try(
            record.dagster_run.run_id,
            _ENDINGS[record.dagster_run.status],
            int((record.end_time or record.update_timestamp.timestamp()) * 1000),
        )
        for record in records
    ]


def _tags(table: str, partition: str | None) -> dict[str, str | list[str]]:
    return {
        names.TAG_TABLE: names.table_value(table),
        **({} if partition is None else {names.PARTITION_TAG: partition}),
    }
