"""The two sensors that start compactions: sorted_run at a table's own trigger, idle_partition where nobody writes any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import dagster as dg

from orchestration import names
from orchestration.health import PartitionHealth
from orchestration.policies import Decision, Outcome, Policy, PolicySource, Reason
from orchestration.policies.decisions import (
    Backlog,
    backlog_of,
    decide_idle,
    decide_sorted_runs,
    decide_waiting,
    rest_of,
)
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.health_reports import HealthReporter, alert_lines
from orchestration.sensors.looks import OpenTable
from orchestration.sensors.table_sweep import TableSweep
from orchestration.table_card import TableCard

SORTED_RUN_DESCRIPTION: Final = (
    "Counts the sorted runs of every bucket (metadata only) and starts a compaction where the table's own "
    "num-sorted-run.compaction-trigger is reached; reports health and the level-0 alert without a run."
)
IDLE_DESCRIPTION: Final = (
    "Looks for partitions without appends for the policy's idle_after and merges each into one run (append tables: their small "
    "files), so that finished months read at full speed. Ages come from the injected clock."
)


def sorted_run_sensor(
    cards: Sequence[TableCard], warehouse_path: str, policies: PolicySource, settings: Settings
) -> dg.SensorDefinition:
    """Return the sensor over all tables; it also reports health and the level-0 alert."""
    reporter = HealthReporter(warehouse_path)
    sweep = TableSweep(cards, policies, settings, judge_runs, reporter, alert_lines)
    return _table_sensor(names.SORTED_RUN_SENSOR, SORTED_RUN_DESCRIPTION, sweep)


def idle_sensor(cards: Sequence[TableCard], policies: PolicySource, settings: Settings) -> dg.SensorDefinition:
    """Return the sensor over all tables."""
    return _table_sensor(names.IDLE_SENSOR, IDLE_DESCRIPTION, TableSweep(cards, policies, settings, judge_idle))


def _table_sensor(name: str, description: str, sweep: TableSweep) -> dg.SensorDefinition:
    @dg.sensor(
        name=name,
        # No job of ours: runs of layouts are those that "Materialize" starts. One selection for all tables, however many there are.
        asset_selection=dg.AssetSelection.all(),
        minimum_interval_seconds=sweep.settings.sensor_seconds,
        description=description,
        default_status=dg.DefaultSensorStatus.RUNNING if sweep.settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def look_at_tables(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return sweep.tick(context, warehouse)

    return look_at_tables


def judge_runs(table: OpenTable) -> list[Decision]:
    """Return a decision for every partition of a primary-key table; one whose rows wait for a bucket gets a run."""
    if table.card.append_only:
        text = "append-only: no sorted runs; idle_partition looks after its small files"
        return [Decision(table.name, "", Outcome.DECLINE, Reason.ELSEWHERE, text)]
    trigger, now = table.store.options.compaction_trigger, table.store.clock.now_ms()
    decisions = []
    for text, rows in table.health.waiting.items():
        decision = decide_waiting(table.name, text, rows)
        rest = rest_of(table.policy, now)
        if rest is not None:
            reason, why = rest
            decision = replace(decision, outcome=Outcome.DECLINE, reason=reason, text=f"{decision.text}; {why}")
        decisions.append(decision)
    for state in table.health.partitions:
        if state.text in table.health.waiting:
            continue  # what got buckets is compacted in the same run
        policy = table.policy_of(state)
        decision, rest = decide_sorted_runs(table.name, state, trigger), rest_of(policy, now)
        if rest is not None:
            decision = _held_back(decision, rest, state, policy, trigger)
        decisions.append(decision)
    return decisions


def _held_back(
    decision: Decision, rest: tuple[Reason, str], state: PartitionHealth, policy: Policy, trigger: int
) -> Decision:
    """The decision as a pause or the hours of the policy leave it: a critical backlog is no time to wait, and says so."""
    (reason, why), limit = rest, policy.level0_critical
    level, files, _ = backlog_of([state], policy)
    if reason is not Reason.PAUSED and decision.outcome is not Outcome.RUN:
        return decision
    if level in {Backlog.CRITICAL, Backlog.EMERGENCY}:
        overridden = f"the pause ({policy.paused}) is" if reason is Reason.PAUSED else f"its hours ({why}) are"
        text = f"{files} level-0 files >= {limit}: critical; {overridden} overridden"
        return replace(
            decision, outcome=Outcome.RUN, reason=Reason.RECOVERY, text=text, number=files, threshold=limit, full=True
        )
    text = f"{state.sorted_runs} sorted runs (trigger {trigger}); {why}"
    return replace(decision, outcome=Outcome.DECLINE, reason=reason, text=text)


def judge_idle(table: OpenTable) -> list[Decision]:
    """Return a decision for every partition; a table without partitions is idle or not as a whole only when append-only."""
    if not table.card.partitioned and not table.card.append_only:
        text = "sorted_run looks after the whole table"
        return [Decision(table.name, "", Outcome.DECLINE, Reason.NOT_PARTITIONED, text)]
    trigger, now = table.store.options.compaction_trigger, table.store.clock.now_ms()
    decisions = []
    for state in table.health.partitions:
        policy = table.policy_of(state)
        if not table.card.append_only and state.cost_minor:
            # A partition that its own trigger asks for belongs to the other sensor: two runs would only wait for each other.
            text = f"{state.sorted_runs} sorted runs (trigger {trigger}): sorted_run looks after it"
            decision = Decision(
                table.name, state.text, Outcome.DECLINE, Reason.ELSEWHERE, text, state.sorted_runs, trigger
            )
        else:
            decision = decide_idle(table.name, state, policy, append=table.card.append_only, now_ms=now)
        rest = rest_of(policy, now) if decision.outcome is Outcome.RUN else None
        if rest is not None:
            reason, why = rest
            decision = replace(decision, outcome=Outcome.DECLINE, reason=reason, text=why)
        decisions.append(decision)
    return decisions
