"""Idle partitions: the sensor that merges what nobody writes to any more, once, and gathers small append files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.model import PartitionState, TableCard
from orchestration.policies import Decision, Outcome, Policies, Reason
from orchestration.policies.decision import decide_idle
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.sweep import Rules, Sweep
from orchestration.sensors.view import TableView

DESCRIPTION = (
    "Looks for partitions without appends for the policy's idle_after and merges each into one run (append tables: their small "
    "files), so that finished months read at full speed. Ages come from the injected clock."
)


def idle_sensor(
    cards: Sequence[TableCard], policies: Policies, settings: Settings, jobs: Sequence[object]
) -> dg.SensorDefinition:
    """Return the sensor over all tables."""
    sweep = Sweep(cards, policies, settings, Rules(judge_idle))

    @dg.sensor(
        name=names.IDLE_SENSOR,
        jobs=list(jobs),  # type: ignore[arg-type]
        minimum_interval_seconds=settings.sensor_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def idle_partition(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return sweep.tick(context, warehouse)

    return idle_partition


def judge_idle(view: TableView) -> list[Decision]:
    """Return a decision for every partition; a table without partitions is idle or not as a whole only when append-only."""
    if view.look is None or view.store is None:
        return []
    if not view.card.partitioned and not view.card.append_only:
        text = "sorted_run looks after the whole table"
        return [Decision(view.name, "", Outcome.DECLINE, Reason.NOT_PARTITIONED, text)]
    decisions = [_judge(view, state, view.store) for state in view.look.partitions()]
    if view.policy.paused is None:
        return decisions
    text = f"paused by policy: {view.policy.paused}"
    return [
        replace(item, outcome=Outcome.DECLINE, reason=Reason.PAUSED, text=text) if item.outcome is Outcome.RUN else item
        for item in decisions
    ]


def _judge(view: TableView, state: PartitionState, store: TableStore) -> Decision:
    """A partition that its own trigger asks for belongs to the other sensor: two runs would only wait for each other."""
    trigger = store.options.compaction_trigger
    if not view.card.append_only and state.cost_minor:
        text = f"{state.sorted_runs} sorted runs (trigger {trigger}): sorted_run looks after it"
        return Decision(view.name, state.text, Outcome.DECLINE, Reason.ELSEWHERE, text, state.sorted_runs, trigger)
    now = store.clock.now_ms()
    return decide_idle(view.name, state, view.policy, append=view.card.append_only, now_ms=now)
