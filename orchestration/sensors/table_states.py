"""States of all tables (`evaluate_states`): one status per table, from what the sensors would decide now.

The decisions use all facts of Dagster: runs, checks, failures and budgets.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import dagster as dg

from dredge.orchestration.sensors.run_requests import RUNS_A_TICK, RunRequestBuilder
from dredge.orchestration.sensors.table_cache import OpenTable, decline_unreadable, open_table, read_history, wall_ms
from dredge.platform_core import names
from dredge.platform_core.failure_records import iterate_lasting, read_unreadable_tables
from dredge.platform_core.obstacles import RunningRuns, find_failed_checks, list_suspensions
from dredge.platform_core.policies import (
    Decision,
    DecisionOutcome,
    DecisionScope,
    Policies,
    Reason,
    Subject,
    decide,
    subjects,
)
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.decisions import NOTHING_KNOWN, decide_in_order
from dredge.platform_core.policies.table_state import (
    Condition,
    Queue,
    TableState,
    TableStatus,
    add_upkeep,
    combine,
    judge_subject,
    judge_undecided,
    rank_key,
)
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard, count_text
from lsm_core.clock import utc_text
from lsm_core.errors import DredgeError
from lsm_core.maintenance.history_health import HistoryHealth
from lsm_core.maintenance.score import Part, history_parts, reasons_of
from lsm_core.maintenance.table_ranking import TableNeed, need_of

_PLAN_SECONDS: Final = 60.0
"""Default time for planning due work; due work beyond it gets the state that follows from metadata alone."""
_SCOPES: Final = (DecisionScope.SORTED_RUNS, DecisionScope.IDLE)
_SENSORS: Final = {
    DecisionScope.SORTED_RUNS: names.SORTED_RUN_SENSOR,
    DecisionScope.IDLE: names.IDLE_SENSOR,
}
_SILENT_INTERVALS: Final = 10
_SILENT_SECONDS: Final = 15 * 60


@dataclass(frozen=True)
class TableEvaluation:
    """State of one table at one time, with the figures and decisions from which it follows.

    Attributes:
        name: full name of the table.
        status: status of the table.
        need: health score of the table (0 healthy to 100 urgent) with its components, and level-0 files, bytes and
            ages.
        partitions: statuses of the partitions, in the order of their paths.
        decisions: final decisions about the partitions by all sensors.
        history: figures of snapshots, tags, consumers and manifests; None if they cannot be read.
        table: the opened table, or None if it cannot be evaluated.
    """

    name: str
    status: TableStatus
    need: TableNeed
    partitions: tuple[TableStatus, ...] = ()
    decisions: tuple[Decision, ...] = ()
    history: HistoryHealth | None = None
    table: OpenTable | None = None


def evaluate_states(
    warehouse: WarehouseResource,
    instance: dg.DagsterInstance | None,
    cards: Sequence[TableCard],
    policies: Policies,
    settings: Settings | None = None,
    *,
    plan_seconds: float = _PLAN_SECONDS,
) -> list[TableEvaluation]:
    """Return the evaluation of each table, sorted by state, then by score, the greatest need first.

    The function reads metadata of tables and facts of Dagster, makes the decisions of both table sensors with full
    history (retries, budgets, windows, approvals, running runs, suspensions), and changes nothing.

    Args:
        warehouse: the warehouse.
        instance: Dagster instance, or None outside Dagster. Then runs, checks and budgets are unknown.
        cards: descriptions of the tables in the loaded definitions.
        policies: policies in force.
        settings: settings of the platform, for the first state of sensors; None to read them from the environment.
        plan_seconds: time (seconds) for planning due work; after it, due work is judged by metadata alone.
    """
    opened = [open_table(warehouse, card, policies.of(card.name)) for card in cards]
    tables = [table for table in opened if isinstance(table, OpenTable)]
    troubles = (
        {}
        if instance is None
        else find_sensor_trouble(
            instance, warehouse.names, settings or Settings.from_environment(warehouse.environment())
        )
    )
    conditions = {} if instance is None else find_conditions(instance, warehouse, [card.name for card in cards])
    stopped = frozenset(
        table
        for table, found in conditions.items()
        if any(item.stops and item.state is not TableState.FAILING for item in found)
    )
    decisions = _Decisions(warehouse, instance, plan_seconds, stopped)
    settled = decisions.settle(tables, policies)
    evaluations = []
    for table in opened:
        if isinstance(table, Decision):
            status, need = judge_undecided(table), TableNeed(table.table, costs_most=table.text)
            status = combine(table.table, [status], conditions.get(table.table, ()), status.score)
            evaluations.append(TableEvaluation(table.table, status, need, decisions=(table,)))
        else:
            own = conditions.get(table.name, ())
            evaluations.append(_evaluate(table, settled.get(table.name, []), own, troubles, decisions.turns))
    return sorted(evaluations, key=evaluation_key)


def evaluation_key(evaluation: TableEvaluation) -> tuple[object, ...]:
    """Return the key by which `warehouse_health` sorts tables: state, urgency and score, then due bytes and name."""
    rank, urgent, score, *names_ = rank_key(evaluation.status)
    return (rank, urgent, score, -evaluation.need.due_bytes, *names_)


def count_states(evaluations: Sequence[TableEvaluation]) -> dict[TableState, int]:
    """Return the number of tables in each state that occurs, the state that needs a person most urgently first."""
    counts = dict.fromkeys(TableState, 0)
    for evaluation in evaluations:
        counts[evaluation.status.state] += 1
    return {state: count for state, count in counts.items() if count}


def find_conditions(
    instance: dg.DagsterInstance, warehouse: WarehouseResource, tables: Sequence[str]
) -> dict[str, list[Condition]]:
    """Return the conditions of tables that hold whether or not work is due.

    The conditions are damaged files, damaged history, failed checks, suspensions, failed runs without a suspension,
    and running runs.

    Args:
        instance: Dagster instance.
        warehouse: the warehouse.
        tables: full names of the tables.
    """
    layouts = {table: warehouse.names.layout_key(table) for table in tables}
    conditions: dict[str, list[Condition]] = {table: [] for table in tables}
    for failure in iterate_lasting(instance, warehouse, tables):
        state = TableState.CORRUPT if failure.is_corrupt else TableState.FAILING
        conditions[failure.table].append(Condition(state, failure.text(), failure.ended_ms, failure.run_id))
    for table, unreadable in read_unreadable_tables(instance, warehouse).items():
        if table not in conditions or not unreadable.is_damaged:
            continue
        action, when = f"`dredge repair {shlex.quote(table)}`", "by hand; nothing of it expires before"
        conditions[table].append(
            Condition(
                TableState.CORRUPT, unreadable.text, unreadable.ended_ms, unreadable.run_id, action, when, stops=False
            )
        )
    for table, check in find_failed_checks(instance, layouts).items():
        conditions[table].append(Condition(TableState.BLOCKED, check.text, check.since_ms, check.run_id))
    for table, failed in list_suspensions(instance, warehouse.names, at_least=1).items():
        if table not in conditions:
            continue
        state, text = TableState.SUSPENDED, failed.text()
        if not failed.in_force:
            newest = "its last run" if failed.failures == 1 else f"its last {failed.failures} runs"
            state, text = TableState.FAILING, f"{newest} failed ({failed.run_id[:8]})"
        conditions[table].append(Condition(state, text, failed.since_ms, failed.run_id, resume_job=failed.resume_job))
    running = RunningRuns(instance, warehouse.names)
    for table, layout in layouts.items():
        run_id = running.of(table, layout, anywhere=True)
        if run_id is not None:
            text = f"run {run_id[:8]} is queued or works on the table"
            conditions[table].append(Condition(TableState.RUNNING, text, run_id=run_id))
    return conditions


def find_sensor_trouble(
    instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, settings: Settings
) -> dict[DecisionScope, str]:
    """Return why table sensors start nothing now: they are switched off, or have not ticked for long.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        settings: settings, for sensors that were never switched on or off by hand.

    Returns:
        A text for the time of the next action, by kind of compaction; sensors without trouble are missing.
    """
    if instance.schedule_storage is None:  # instances in memory have no sensors
        return {}
    states = {state.name: state for state in instance.all_instigator_state()}
    troubles: dict[DecisionScope, str] = {}
    for scope, sensor_name in _SENSORS.items():
        sensor = warehouse_names.definition(sensor_name)
        state = states.get(sensor)
        if not (settings.sensors_on if state is None else state.is_running):
            troubles[scope] = f"not before the sensor {sensor} is switched on"
            continue
        ticked = getattr(None if state is None else state.instigator_data, "last_tick_timestamp", None)
        limit = max(_SILENT_INTERVALS * settings.sensor_seconds, _SILENT_SECONDS)
        if ticked is not None and wall_ms() / 1000 - ticked >= limit:
            since = utc_text(int(ticked * 1000))[:16]
            troubles[scope] = f"unknown: the sensor {sensor} has not ticked since {since} UTC; is the daemon running?"
    return troubles


@dataclass
class _Decisions:
    """Final decisions about all tables, as the next ticks would make them.

    Attributes:
        warehouse: the warehouse.
        instance: Dagster instance, or None outside Dagster.
        plan_seconds: time (seconds) for planning.
        stopped: tables that no run starts for now; they have no place in the queue for the budget.
        clock: monotonic clock, in seconds.
        turns: number of the tick that starts due work, from 1 for the next tick, by subject (partition or table);
            filled by `settle`.
    """

    warehouse: WarehouseResource
    instance: dg.DagsterInstance | None
    plan_seconds: float
    stopped: frozenset[str] = frozenset()
    clock: Callable[[], float] = field(default=time.monotonic)
    turns: dict[str, int] = field(default_factory=dict)

    def settle(
        self, tables: Sequence[OpenTable], policies: Policies
    ) -> dict[str, list[tuple[Subject, Decision, Queue | None]]]:
        """Return the final decisions by table: (partition or whole table, decision, queue if it waits for the budget).

        Args:
            tables: tables to decide about.
            policies: policies in force.
        """
        result: dict[str, list[tuple[Subject, Decision, Queue | None]]] = {table.name: [] for table in tables}
        due: dict[str, tuple[OpenTable, Subject]] = {}
        first: list[Decision] = []
        for table in tables:
            try:
                for scope in _SCOPES:
                    for subject in subjects(table.facts, scope):
                        decision = decide(subject, table.policy_of(subject.state), NOTHING_KNOWN, table.now)
                        # Of two sensors that find the same partition due, the first one starts its run.
                        if decision.outcome is DecisionOutcome.RUN and decision.subject not in due:
                            due[decision.subject] = (table, subject)
                            first.append(decision)
                        elif decision.outcome is not DecisionOutcome.RUN:
                            result[table.name].append((subject, decision, None))
            except Exception as error:  # noqa: BLE001  (one table stops no other)
                subject = Subject(table.facts, DecisionScope.SORTED_RUNS)
                result[table.name].append((subject, decline_unreadable(table.card, error), None))
        waiting: dict[str, Queue] = {}
        starts = dict.fromkeys(_SCOPES, 0)
        for decision in self._settle_due(first, due, policies, waiting):
            table, subject = due.get(decision.subject) or due[_of_table(decision.table, due)]
            if decision.outcome is DecisionOutcome.RUN:
                self.turns[decision.subject] = starts[subject.scope] // RUNS_A_TICK + 1
                starts[subject.scope] += 1
            result[table.name].append((subject, decision, waiting.get(decision.subject)))
        return result

    def _settle_due(
        self,
        first: Sequence[Decision],
        due: Mapping[str, tuple[OpenTable, Subject]],
        policies: Policies,
        waiting: dict[str, Queue],
    ) -> list[Decision]:
        """Return the final decisions about due work.

        Args:
            first: decisions to run, from metadata alone.
            due: opened table and subject (partition or whole table) of each decision.
            policies: policies in force, with the budget.
            waiting: filled with the queue of each subject that waits for the budget.
        """
        replay = self.warehouse.replay_text()
        if replay is not None:
            return [decision.decline(Reason.REPLAY, f"{decision.text}; {replay}") for decision in first]
        if self.instance is None:
            return list(first)
        builder = RunRequestBuilder(self.instance, self.warehouse)
        until = self.clock() + self.plan_seconds

        def settle(decision: Decision, budget: Budget) -> Decision:
            table, subject = due[decision.subject]
            try:
                out_of_turns = "no time is left to plan it" if self.clock() >= until else ""
                final = builder.settle(table, subject, budget, out_of_turns=out_of_turns).decision
            except Exception as error:  # noqa: BLE001  (one table stops no other)
                return decline_unreadable(table.card, error)
            if final.reason is Reason.BUDGET and final.table not in self.stopped:
                waiting[final.subject] = queue_of(len(waiting) + 1, decision, final, budget)
            return final

        return decide_in_order(first, builder.budget(policies), settle)


def queue_of(place: int, due: Decision, final: Decision, budget: Budget) -> Queue:
    """Return the queue of due work that waits for the budget.

    Args:
        place: position of the work in the queue, from 1.
        due: decision before the budget was checked.
        final: decision not to start the work now because of the budget.
        budget: budget that was left.
    """
    if budget.exceeds_tables(final.table):
        limit = f"{len(budget.at_work)} of {count_text(budget.concurrent_tables or 0, 'table')}"
        return Queue(place, True, limit, due.text)  # noqa: FBT003  (fields of a tuple)
    return Queue(place, False, budget.why_not(final.table, final.cost), due.text)  # noqa: FBT003


def _of_table(table: str, due: Mapping[str, tuple[OpenTable, Subject]]) -> str:
    """Return the first key of `due` that belongs to a table, for a decision that names only the table.

    Args:
        table: full name of the table.
        due: opened table and subject of each due decision, by table or partition.
    """
    return next(key for key, (opened, _) in due.items() if opened.name == table)


def _evaluate(
    table: OpenTable,
    settled: Sequence[tuple[Subject, Decision, Queue | None]],
    conditions: Sequence[Condition],
    troubles: Mapping[DecisionScope, str],
    turns: Mapping[str, int],
) -> TableEvaluation:
    """Return the evaluation of one opened table.

    Args:
        table: the table.
        settled: (partition or table, final decision, queue) of each decision.
        conditions: conditions of the whole table.
        troubles: troubles of the sensors.
        turns: number of the tick that starts due work, by subject.
    """
    history = _read_history(table)
    parts: tuple[Part, ...] = () if history is None else history_parts(history, table.store.options)
    need = need_of(table.name, table.health.buckets, parts, table.health.waiting)
    statuses = [
        judge_subject(
            subject,
            decision,
            table.policy_of(subject.state),
            table.now,
            queue,
            troubles.get(subject.scope) or _explain_turn(turns.get(decision.subject, 1)),
        )
        for subject, decision, queue in settled
    ]
    partitions = tuple(
        sorted((status for status in statuses if status is not None), key=lambda status: status.partition)
    )
    return TableEvaluation(
        table.name,
        add_upkeep(combine(table.name, partitions, conditions, need.score), reasons_of(parts)),
        need,
        partitions,
        tuple(decision for _, decision, _ in settled),
        history,
        table,
    )


def _explain_turn(turn: int) -> str:
    """Return a text that says in how many ticks a sensor will start due work, or "" if the next tick starts it.

    Args:
        turn: number of the tick that starts the work; 1 is the next tick.
    """
    return "" if turn <= 1 else f"in about {turn} ticks, because a tick requests at most {RUNS_A_TICK} runs"


def _read_history(table: OpenTable) -> HistoryHealth | None:
    try:
        return read_history(table)
    except (DredgeError, OSError, ValueError):
        return None  # checks report the damage
