"""From a decision to a run: the plan's hash, the run key without duplicates, and every reason not to start one."""

from __future__ import annotations

import datetime
import weakref
from dataclasses import dataclass, replace
from typing import Final

import dagster as dg

from lsm_core.clock import SystemClock
from lsm_core.errors import DredgeError
from lsm_core.maintenance import AssignItem, CompactItem, MaintenancePlan, hold_plan, save_plan
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import (
    PARTITION_TAG,
    RunsAtWork,
    Suspension,
    blocking_failure,
    resumed_ms,
    suspension,
)
from orchestration.health import TableHealth, ages
from orchestration.ops.layout_ops import RECOVER, plan_due
from orchestration.partitions import usable_keys
from orchestration.policies import Decision, Outcome, Policies, Policy, Reason
from orchestration.policies.budgets import Budget
from orchestration.policies.decisions import Ending, NextTry, Try, decide_next_try
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.looks import OpenTable
from orchestration.table_card import count_text

_LOOKED_AT: Final = 20
_HOUR_SECONDS: Final = 3_600
_ENDINGS: Final = {
    dg.DagsterRunStatus.SUCCESS: Ending.DONE,
    dg.DagsterRunStatus.FAILURE: Ending.FAILED,
    dg.DagsterRunStatus.CANCELED: Ending.CANCELED,
}


@dataclass(frozen=True)
class _Planned:
    """What planning a due partition gave: the plan's ``hash``, or "" and ``why`` nothing is picked; ``held``: it waits for approval. True of that reading of ``health``."""

    health: weakref.ref[TableHealth]
    hash: str
    why: str = ""
    held: bool = False


_planned: Final[dict[tuple[str, str, bool], _Planned]] = {}
_KEPT_PLANS: Final = 100_000


class RunDesk:
    """Where due partitions become run requests, for one tick."""

    def __init__(self, instance: dg.DagsterInstance, warehouse: WarehouseResource) -> None:
        self.instance, self.warehouse = instance, warehouse
        self._at_work = RunsAtWork(instance)
        self._suspended: dict[str, Suspension | None] = {}

    def budget(self, policies: Policies) -> Budget:
        """Return what is left of the budgets: tables at work, and what runs that sensors started within the last hour were expected to read."""
        limit, spent = policies.bytes_an_hour, 0
        if limit is not None:
            since = datetime.datetime.fromtimestamp(wall_ms() / 1000 - _HOUR_SECONDS, datetime.UTC)
            started = self.instance.get_runs(dg.RunsFilter(created_after=since))
            spent = sum(
                int(run.tags[names.TAG_BYTES]) for run in started if run.tags.get(names.TAG_BYTES, "").isdigit()
            )
        return Budget(limit, policies.concurrent_tables, spent, self._at_work.tables())

    def request_run(self, table: OpenTable, decision: Decision) -> tuple[Decision, dg.RunRequest | None]:
        """Return the decision, final and in full words, and the run to start (None when there is a reason not to).

        The plan is saved beside the table; the run gets its hash alone. As long as the table does not move, a partition whose plan gets no
        run is not planned again: whether failed checks, runs at work and earlier runs of the plan still stand in the way is asked every time.
        """
        name, partition = table.name, decision.partition or None
        layout = names.layout_key(self.warehouse.path, name)
        in_the_way = self._in_the_way(decision, name, layout, partition)
        if in_the_way is not None:
            return in_the_way, None
        place = (table.store.root, decision.partition, decision.full)
        known = _planned.get(place)
        approval = table.policy.needs_approval("compact")
        if known is not None and known.health() is table.health:
            if known.held and approval:
                return _decline(decision, Reason.APPROVAL, _waiting(decision, known.hash)), None
            next_try = self._next_try(table, decision, known)
            if next_try.number is None:
                return _decline(decision, next_try.reason, next_try.text), None
        try:
            store = self.warehouse.store(name).copy(table.policy.options)  # as it is now, whatever the tick found
            plan = plan_due(store, partition, table.policy.level0_pass, full=decision.full)
        except DredgeError as error:
            return _decline(decision, Reason.UNREADABLE, f"{type(error).__name__}: {error}"), None
        if not plan.items or plan.base_snapshot is None:
            why = "; ".join(dict.fromkeys(item.text for item in plan.declined)) or "the plan is empty"
            planned = _Planned(weakref.ref(table.health), "", why)
        else:
            planned = _Planned(weakref.ref(table.health), plan.hash, held=approval)
        if plan.base_snapshot == table.health.snapshot and not _plan_ages(store):
            if len(_planned) >= _KEPT_PLANS:
                _planned.clear()
            _planned[place] = planned
        next_try = self._next_try(table, decision, planned)
        if next_try.number is None or plan.base_snapshot is None:
            return _decline(decision, next_try.reason, next_try.text), None
        kept = _keep_plan(store, plan, decision, table.policy)
        if kept is not None:
            return kept, None
        text = decision.text
        if not decision.full or plan.action == RECOVER:
            why = plan_text(plan)
            text = why if why.startswith(text) else f"{text}; {why}"
        final = replace(decision, text=f"{text}; {next_try.text}" if next_try.text else text)
        action = "compact full" if decision.full else "compact"
        config = {"plan": plan.hash, "full": decision.full}
        if plan.action == RECOVER:
            action = RECOVER
            config |= {"full": False, "action": RECOVER, "arguments": {"files": plan.arguments["files"]}}
        request = dg.RunRequest(
            run_key=names.run_key(name, partition, plan.base_snapshot, plan.hash, next_try.number),
            asset_selection=[layout],
            run_config={"ops": {names.node_name(self.warehouse.path, name): {"config": config}}},
            tags={
                **names.run_tags(name, partition, plan.hash, action, final.text),
                names.TAG_BYTES: str(plan.estimate.bytes_in),
            },
            partition_key=partition,
        )
        return final, request

    def _in_the_way(self, decision: Decision, name: str, layout: dg.AssetKey, partition: str | None) -> Decision | None:
        """The decision with what keeps any plan of the partition from getting a run, None when nothing does."""
        if partition is not None and usable_keys([partition])[1]:
            return _decline(decision, Reason.NAME, f"{decision.text}; compact it with `dredge compact {name}`")
        blocked = blocking_failure(self.instance, layout, partition)
        if blocked is not None:
            return _decline(decision, Reason.BLOCKED, blocked)
        working = self._at_work.of(name, layout, partition)
        if working is not None:
            return _decline(decision, Reason.IN_FLIGHT, f"{decision.text}; run {working[:8]} is at work on it")
        if name not in self._suspended:
            self._suspended[name] = suspension(self.instance, name)
        suspended = self._suspended[name]
        if suspended is not None:
            return _decline(decision, Reason.SUSPENDED, f"{decision.text}; {suspended.text()}")
        return None

    def _next_try(self, table: OpenTable, decision: Decision, planned: _Planned) -> NextTry:
        """Which try of the plan is to start now, or why none is."""
        if not planned.hash:
            why = planned.why
            text = why if why.startswith(decision.text) else f"{decision.text}, but {why}"
            return NextTry(None, text, Reason.NOTHING_PICKED)
        tries = _tries(self.instance, table.name, decision.partition or None, planned.hash)
        since = resumed_ms(self.instance, table.name) if tries else 0
        counted = [one for one in tries if one.ended_ms > since]
        found = decide_next_try(counted, planned.hash, wall_ms())
        if found.number is None:
            return found
        # Those before somebody resumed the table do not count, but Dagster knows the keys of their runs.
        return replace(found, number=found.number + len(tries) - len(counted))


def _keep_plan(store: TableStore, plan: MaintenancePlan, decision: Decision, policy: Policy) -> Decision | None:
    """Keep the plan with the table; the decision where it gets no run: it waits for approval, or cannot be kept."""
    try:
        if policy.needs_approval("compact"):
            origin = policy.origin("approval.compact")
            hold_plan(store, plan, f"{decision.text}; approval is required ({origin})")
            return _decline(decision, Reason.APPROVAL, _waiting(decision, plan.hash))
        save_plan(store, plan)
    except DredgeError as error:
        text = f"{decision.text}, but its plan cannot be saved: {type(error).__name__}: {error}"
        return _decline(decision, Reason.UNREADABLE, text)
    return None


def _waiting(decision: Decision, plan: str) -> str:
    return f"{decision.text}; plan {plan} waits for approval: launch the job apply_plan, or `dredge apply {plan} --approved-by NAME`"


def _plan_ages(store: TableStore) -> bool:
    """Whether another plan may come of the same files later: by the table's own rules, or since rows, partitions or deletes have grown old."""
    options = store.options
    deletes = bool(options.sequence_field) and options.tombstone_retention > 0
    return ages(store) or deletes or options.get("partition.expiration-time") is not None


def wall_ms() -> int:
    """The machine's time (epoch ms): Dagster measures runs by it, whatever clock was injected."""
    return SystemClock().now_ms()


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
    return {names.TAG_TABLE: table, **({} if partition is None else {PARTITION_TAG: partition})}


def _decline(decision: Decision, reason: Reason, text: str) -> Decision:
    return replace(decision, outcome=Outcome.DECLINE, reason=reason, text=text)
