"""Sorted runs: the sensor that starts a compaction when the table's own trigger is reached, and raises the level-0 alert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG

from checks.backlog import backlog_evaluation, hides_level0
from orchestration import names
from orchestration.metadata import look_metadata
from orchestration.model import PartitionState, TableCard
from orchestration.policies import Decision, Outcome, Policies, Reason
from orchestration.policies.decision import Backlog, backlog_of, decide_sorted_runs
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.sweep import AssetEvent, Rules, Sweep
from orchestration.sensors.view import TableView

DESCRIPTION = (
    "Counts the sorted runs of every bucket (metadata only) and starts a compaction where the table's own "
    "num-sorted-run.compaction-trigger is reached; reports health and the level-0 alert without a run."
)
_EVENTS_A_TABLE: Final = 100


def sorted_run_sensor(
    cards: Sequence[TableCard], warehouse_path: str, policies: Policies, settings: Settings, jobs: Sequence[object]
) -> dg.SensorDefinition:
    """Return the sensor over all tables."""

    def report(view: TableView) -> Iterator[AssetEvent]:
        return health_events(view, warehouse_path)

    sweep = Sweep(cards, policies, settings, Rules(judge_runs, report, alert_lines))

    @dg.sensor(
        name=names.SORTED_RUN_SENSOR,
        jobs=list(jobs),  # type: ignore[arg-type]
        minimum_interval_seconds=settings.sensor_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def sorted_run(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        return sweep.tick(context, warehouse)

    return sorted_run


def judge_runs(view: TableView) -> list[Decision]:
    """Return a decision for every partition of a primary-key table."""
    if view.look is None or view.store is None:
        return []
    if view.card.append_only:
        text = "append-only: no sorted runs; idle_partition looks after its small files"
        return [Decision(view.name, "", Outcome.DECLINE, Reason.ELSEWHERE, text)]
    trigger = view.store.options.compaction_trigger
    return [_judge(view, state, trigger) for state in view.look.partitions()]


def _judge(view: TableView, state: PartitionState, trigger: int) -> Decision:
    decision, policy = decide_sorted_runs(view.name, state, trigger), view.policy
    if policy.paused is None:
        return decision
    level, files, _ = backlog_of([state], policy)
    if level is Backlog.CRITICAL:
        text = f"{files} level-0 files >= {policy.level0_critical}: critical; the pause ({policy.paused}) is overridden"
        return Decision(
            view.name, state.text, Outcome.RUN, Reason.RECOVERY, text, files, policy.level0_critical, full=True
        )
    text = f"{state.sorted_runs} sorted runs (trigger {trigger}); paused by policy: {policy.paused}"
    return Decision(view.name, state.text, Outcome.DECLINE, Reason.PAUSED, text, state.sorted_runs, trigger)


def health_events(view: TableView, warehouse_path: str) -> Iterator[AssetEvent]:
    """Report what changed since this process looked last: an observation of the data, an evaluation of the alert."""
    if view.look is None or not view.changed:
        return
    before = {state.text: state for state in view.previous.partitions()} if view.previous is not None else {}
    states = [state for state in view.look.partitions() if before.get(state.text) != state]
    data, layout = names.data_key(warehouse_path, view.name), names.layout_key(warehouse_path, view.name)
    tags = {DATA_VERSION_TAG: str(view.look.data_version)} if view.look.data_version is not None else {}
    # The newest first: they are what people look for, and an unbounded first tick would be too much for the daemon.
    for state in sorted(states, key=lambda item: -item.newest_ms)[:_EVENTS_A_TABLE]:
        partition = state.text if view.card.partitioned else None
        metadata = look_metadata(view.look.of_partition(partition))
        yield dg.AssetObservation(
            layout, partition=partition, metadata=metadata
        )  # its plots: the saw-tooth of sorted runs
        yield dg.AssetObservation(data, partition=partition, metadata=metadata, tags=tags)
    if view.refusal is None:
        yield _alert(view, layout)


def alert_lines(view: TableView) -> list[str]:
    """Say on every tick what the level-0 alert says, as long as it is not OK."""
    if view.look is None or view.store is None or view.refusal is not None:
        return []
    found = _alert(view, dg.AssetKey(view.name))
    return [] if found.passed else [f"{view.name}: {names.BACKLOG_CHECK}: {found.description}"]


def _alert(view: TableView, layout: dg.AssetKey) -> dg.AssetCheckEvaluation:
    states = view.look.partitions() if view.look is not None else []
    hidden = view.store is not None and hides_level0(view.store.options)
    return backlog_evaluation(layout, states, view.policy, hidden=hidden)
