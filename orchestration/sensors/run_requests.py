"""From a decision to a run: the plan's hash, the run key without duplicates, and every reason not to start one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import dagster as dg

from lsm_core.clock import SystemClock
from lsm_core.errors import DredgeError
from lsm_core.maintenance import AssignItem, CompactItem, MaintenancePlan, save_plan
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import PARTITION_TAG, blocking_failure, run_at_work
from orchestration.ops.layout_ops import plan_partition
from orchestration.partitions import usable_keys
from orchestration.policies import Decision, Outcome, Reason
from orchestration.policies.decisions import Ending, Try, decide_next_try
from orchestration.table_card import count_text

_LOOKED_AT: Final = 20
_ENDINGS: Final = {
    dg.DagsterRunStatus.SUCCESS: Ending.DONE,
    dg.DagsterRunStatus.FAILURE: Ending.FAILED,
    dg.DagsterRunStatus.CANCELED: Ending.CANCELED,
}


def request_run(
    instance: dg.DagsterInstance, warehouse: str, store: TableStore, decision: Decision
) -> tuple[Decision, dg.RunRequest | None]:
    """Return the decision, final and in full words, and the run to start (None when there is a reason not to).

    The plan is saved beside the table; the run gets its hash alone.
    """
    table, layout, partition = store.name, names.layout_key(warehouse, store.name), decision.partition or None
    if partition is not None and usable_keys([partition])[1]:
        return _decline(decision, Reason.NAME, f"{decision.text}; compact it with `dredge compact {table}`"), None
    blocked = blocking_failure(instance, layout, partition)
    if blocked is not None:
        return _decline(decision, Reason.BLOCKED, blocked), None
    working = run_at_work(instance, table, layout, partition)
    if working is not None:
        return _decline(decision, Reason.IN_FLIGHT, f"{decision.text}; run {working[:8]} is at work on it"), None
    try:
        plan = plan_partition(store, partition, full=decision.full)
    except DredgeError as error:
        return _decline(decision, Reason.UNREADABLE, f"{type(error).__name__}: {error}"), None
    if not plan.items or plan.base_snapshot is None:
        why = "; ".join(dict.fromkeys(item.text for item in plan.declined)) or "the plan is empty"
        text = why if why.startswith(decision.text) else f"{decision.text}, but {why}"
        return _decline(decision, Reason.NOTHING_PICKED, text), None
    next_try = decide_next_try(_tries(instance, table, partition, plan.hash), plan.hash, wall_ms())
    if next_try.number is None:
        return _decline(decision, next_try.reason, next_try.text), None
    try:
        save_plan(store, plan)
    except DredgeError as error:
        text = f"{decision.text}, but its plan cannot be saved: {type(error).__name__}: {error}"
        return _decline(decision, Reason.UNREADABLE, text), None
    text = decision.text
    if not decision.full:
        why = plan_text(plan)
        text = why if why.startswith(text) else f"{text}; {why}"
    final = replace(decision, text=f"{text}; {next_try.text}" if next_try.text else text)
    action = "compact full" if decision.full else "compact"
    config = {"plan": plan.hash, "full": decision.full}
    request = dg.RunRequest(
        run_key=names.run_key(table, partition, plan.base_snapshot, plan.hash, next_try.number),
        asset_selection=[layout],
        run_config={"ops": {names.node_name(warehouse, table): {"config": config}}},
        tags=names.run_tags(table, partition, plan.hash, action, final.text),
        partition_key=partition,
    )
    return final, request


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
