"""Sweep of the table sensors: each tick visits tables in turn within a time budget, and a cursor keeps the position."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import dagster as dg

from dredge.orchestration.sensors.health_reports import PARTITIONS_A_TABLE, STATES_A_TICK, AssetEvent, HealthReporter
from dredge.orchestration.sensors.run_requests import RUNS_A_TICK, RunRequestBuilder
from dredge.orchestration.sensors.status_board import StatusBoard
from dredge.orchestration.sensors.table_cache import OpenTable, decline_unreadable, open_table, wall_ms
from dredge.orchestration.sensors.table_states import queue_of
from dredge.platform_core.dagster_internals import read_tick_end
from dredge.platform_core.obstacles import NameCheck
from dredge.platform_core.partitions import usable_keys
from dredge.platform_core.policies import (
    Decision,
    DecisionOutcome,
    DecisionScope,
    Policies,
    PolicySource,
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
    judge_subject,
    judge_undecided,
    state_of,
)
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard
from lsm_core import Catalog
from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.json_text import parse_json

_LINES_A_TABLE: Final = 60
_EVENTS_A_TICK: Final = 1_000
"""Most events of a tick, however fast Dagster's daemon stores them."""
_FEWEST_STATES: Final = 10
_QUEUED_RUNS: Final = 24
"""Most queued runs of sensors. With more, a table whose backlog becomes critical would wait behind them for hours."""
_LEAST_MEASURED: Final = 0.5
"""Expected seconds for the results of a tick below which the tick says nothing about the daemon's speed."""
_MOST_GROWTH: Final = 10.0
_EVENTS_OF_A_TABLE: Final = 5
"""Events of a table's first report: data, layout, and three checks."""
_VISITS: Final = 0.6
"""Share of the time budget of a tick for visiting tables, if work is due; the rest is for planning the work."""
_TOGETHER: Final = 50
_TOGETHER_SECONDS: Final = 2.0
"""Limits of a batch of tables whose earlier reports Dagster returns in one query: number of tables, and seconds."""
_SKIP_TEXT: Final = 12_000
_MOST_FULL_TEXT: Final = 6_000
"""Most characters of lines that a tick logs completely.

With more, Dagster would store gigabytes a day, because each line of a tick's log takes 600 bytes permanently.
"""
_REPEAT_SECONDS: Final = 3_600.0


@dataclass(frozen=True)
class Cursor:
    """Position of a sweep over the tables, stored between ticks.

    Attributes:
        tick: number of the tick.
        next_table: name of the first table that the last tick had no time for, or None.
    """

    tick: int = 0
    next_table: str | None = None

    @staticmethod
    def read(text: str | None) -> Cursor:
        """Read a cursor from Dagster's text; an unreadable cursor becomes the first position."""
        try:
            value: Any = parse_json(text or "{}")
            return Cursor(int(value.get("tick", 0)), value.get("next"))
        except (AttributeError, TypeError, ValueError):
            return Cursor()

    def write(self) -> str:
        """Return the cursor as text for Dagster."""
        return json.dumps({"tick": self.tick, "next": self.next_table})


@dataclass
class TickResult:
    """Result of a tick for Dagster.

    Attributes:
        lines: lines of the log.
        requests: runs to start.
        events: events to store.
        partitions: dynamic partitions to add.
        due: due compactions (table, partition, decision), which start after all tables were visited, the most useful
            first.
        states: states of tables and partitions (`Decision.subject`) that decisions were made about.
        judged: visited tables, with the statuses of their partitions, by table name.
        undecided: statuses of the visited tables that could not be opened.
        not_visited: tables that the tick had no time to visit, with the state of their most urgent condition.
    """

    lines: list[str] = field(default_factory=list)
    requests: list[dg.RunRequest] = field(default_factory=list)
    events: list[AssetEvent] = field(default_factory=list)
    partitions: list[dg.AddDynamicPartitionsRequest] = field(default_factory=list)
    due: list[tuple[OpenTable, Subject, Decision]] = field(default_factory=list)
    states: dict[str, TableState] = field(default_factory=dict)
    judged: dict[str, tuple[OpenTable, list[TableStatus]]] = field(default_factory=dict)
    undecided: list[TableStatus] = field(default_factory=list)
    not_visited: Mapping[str, TableState] = field(default_factory=dict)

    def judge(self, table: OpenTable, subject: Subject, decision: Decision, queue: Queue | None = None) -> None:
        """Add the status of a partition or table to this result.

        Args:
            table: the table.
            subject: the partition or the whole table.
            decision: final decision about it.
            queue: queue in which its work waits for the budget, or None if it does not wait.
        """
        status = judge_subject(subject, decision, table.policy_of(subject.state), table.now, queue)
        if status is not None:
            self.judged.setdefault(table.name, (table, []))[1].append(status)

    def add_decisions(self, decisions: Sequence[Decision]) -> None:
        """Add the lines and states of the final decisions about one table."""
        self.lines += decision_lines(decisions)
        for decision in decisions:
            _, statuses = self.judged.get(decision.table, (None, ()))
            judged = next((status.state for status in statuses if status.partition == decision.partition), None)
            self.states[decision.subject] = judged or state_of(decision) or TableState.HEALTHY


@dataclass
class TickLog:
    """Choice of the lines that a tick logs: with many tables, only changed lines, and names of what is not healthy.

    Each line is logged at least once an hour. Tables that a tick does not visit keep the states of their last visit,
    unless a condition of the whole table is known since.

    Attributes:
        clock: monotonic clock, in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _logged: dict[str, int] = field(default_factory=dict)
    _since: float = float("-inf")
    _since_text: str = ""
    _last_states: dict[str, dict[str, TableState]] = field(default_factory=dict)

    def lines(
        self,
        lines: Sequence[str],
        states: Mapping[str, TableState] | None = None,
        not_visited: Mapping[str, TableState] | None = None,
    ) -> list[str]:
        """Return the lines to log.

        Args:
            lines: all lines of the tick, each beginning with its subject (partition or table) and ``: ``.
            states: states of the subjects; subjects without a state count as healthy.
            not_visited: tables that the tick had no time to visit, each with the state of its most urgent condition
                (HEALTHY for none).

        Returns:
            All lines if their total length is short. Else the lines that changed, one line per state with the unchanged
            tables and partitions that are not healthy, and the number of omitted lines. In both cases one line per
            state follows with the tables and partitions that had no turn and are not healthy as last known.
        """
        earlier = self._earlier_states(states or {}, not_visited or {})
        return [*self._changed_lines(lines, states or {}), *earlier]

    def _earlier_states(self, states: Mapping[str, TableState], not_visited: Mapping[str, TableState]) -> list[str]:
        """Return the lines about tables that had no turn, and store the states of the tables that had one."""
        visited: dict[str, dict[str, TableState]] = {}
        for subject, state in states.items():
            visited.setdefault(subject.partition("/")[0], {})[subject] = state
        for table, table_states in visited.items():
            self._last_states[table] = {subject: state for subject, state in table_states.items() if not state.is_calm}
        earlier: dict[TableState, list[str]] = {}
        for table, table_state in not_visited.items():
            known = {**self._last_states.get(table, {}), **({} if table_state.is_calm else {table: table_state})}
            for subject, state in known.items():
                earlier.setdefault(state, []).append(subject)
        begin = "no turn in this tick, as last known"
        return [_name_subjects(begin, state, earlier[state]) for state in TableState if state in earlier]

    def _changed_lines(self, lines: Sequence[str], states: Mapping[str, TableState]) -> list[str]:
        if sum(map(len, lines)) <= _MOST_FULL_TEXT:
            return list(lines)
        if self.clock() - self._since >= _REPEAT_SECONDS:
            self._logged.clear()
            self._since, self._since_text = self.clock(), utc_text(SystemClock().now_ms())
        subjects: dict[str, list[str]] = {}
        for line in lines:
            subjects.setdefault(line.partition(": ")[0], []).append(line)
        selected: list[str] = []
        unchanged: dict[TableState, list[str]] = {}
        for subject, subject_lines in subjects.items():
            text = hash(tuple(subject_lines))
            if self._logged.get(subject) != text:
                self._logged[subject] = text
                selected += subject_lines
            else:
                unchanged.setdefault(states.get(subject, TableState.HEALTHY), []).append(subject)
        left_out = len(lines) - len(selected)
        if not left_out:
            return selected
        named = [
            _name_subjects("unchanged", state, unchanged[state])
            for state in TableState
            if state in unchanged and not state.is_calm
        ]
        summary = f"{left_out:,} lines unchanged since {self._since_text} UTC: see earlier ticks of this sensor"
        return [*selected, *named, summary]


def _name_subjects(begin: str, state: TableState, subjects: Sequence[str]) -> str:
    """Return one log line with the tables and partitions that are in a state since an earlier tick.

    Names beyond 12,000 characters are only counted. Paused tables and partitions are always only counted, because a
    person paused them, perhaps a whole database.

    Args:
        begin: begin of the line, which says when they had the state.
        state: state that the tables and partitions already had at an earlier tick.
        subjects: tables and partitions in this state.
    """
    begin = f"{begin}: {state.value} ({len(subjects):,})"
    if state is TableState.PAUSED:
        return begin
    shown, length = 0, 0
    while shown < len(subjects) and length + len(subjects[shown]) + 2 <= _SKIP_TEXT:
        length += len(subjects[shown]) + 2
        shown += 1
    more = f" and {len(subjects) - shown:,} more" if shown < len(subjects) else ""
    return f"{begin}: {', '.join(subjects[:shown])}{more}"


@dataclass
class Pace:
    """Time that Dagster's daemon needs for the results of a tick, learned from the previous ticks.

    The daemon stores events and submits runs one by one before the tick ends. So a tick keeps a part of its budget for
    its results.

    Attributes:
        event_seconds: time to store an event.
        run_seconds: time to submit a run.
    """

    event_seconds: float = 0.02
    run_seconds: float = 0.5
    _stored: tuple[int, int, int] | None = None

    def seconds(self, events: int, runs: int = 0) -> float:
        """Return the time (seconds) that the daemon needs for the results of a tick.

        Args:
            events: number of events.
            runs: number of runs.
        """
        return events * self.event_seconds + runs * self.run_seconds

    def learn(self, began_s: float | None, ended_ms: int | None) -> None:
        """Adapt the times to the previous tick; they shrink by at most half, because its load may have been light.

        Args:
            began_s: time at which the previous tick began (epoch seconds), None if there was none.
            ended_ms: time at which the daemon ended it (epoch ms), None if unknown.
        """
        stored, self._stored = self._stored, None
        if stored is None or began_s is None or ended_ms is None or stored[0] < began_s * 1000:
            return  # nothing is known, or the previous tick had no results and an earlier one stored these
        evaluated_ms, events, runs = stored
        expected = self.seconds(events, runs)
        if expected < _LEAST_MEASURED:
            return
        factor = min(max((ended_ms - evaluated_ms) / 1000 / expected, 0.5), _MOST_GROWTH)
        self.event_seconds = min(max(self.event_seconds * factor, 0.002), 0.2)
        self.run_seconds = min(max(self.run_seconds * factor, 0.05), 5.0)

    def store(self, evaluated_ms: int, events: int, runs: int) -> None:
        """Store that the daemon now stores the results of a tick.

        Args:
            evaluated_ms: current time (epoch ms, wall clock).
            events: number of events of the tick.
            runs: number of runs of the tick.
        """
        self._stored = (evaluated_ms, events, runs)


class _NameConflict(Exception):
    """Error: another warehouse reports to the same Dagster instance under the same name."""


@dataclass(frozen=True)
class TableSweep:
    """Sweep of one sensor over all tables, tick by tick.

    Attributes:
        cards: descriptions of the tables in the loaded definitions.
        policies: source of the current policies.
        settings: intervals and budgets.
        scope: kind of compaction that the sensor starts.
        reporter: reporter of data, health and backlog events, or None to report none.
        further_lines: returns lines about a table to log after the table's decisions.
        tick_log: selection of the log lines of the ticks.
        known_partitions: by table, the commit whose partitions Dagster already has, to avoid a query per tick.
        no_turn: due tables and partitions that the previous tick had no time to plan; they come first in the next.
        due_since: by table and partition, when this process found the work due (epoch ms).
        board: newest statuses of both table sensors, for the pages of the layouts.
        name_check: detection of another warehouse with the same name in the Dagster instance.
        pace: time that Dagster's daemon needs for the results of this sensor.
    """

    cards: Sequence[TableCard]
    policies: PolicySource
    settings: Settings
    scope: DecisionScope
    reporter: HealthReporter | None = None
    further_lines: Callable[[OpenTable], Iterable[str]] = lambda _: ()
    tick_log: TickLog = field(default_factory=TickLog)
    known_partitions: dict[str, Hashable] = field(default_factory=dict)
    no_turn: set[str] = field(default_factory=set)
    due_since: dict[str, dict[str, int]] = field(default_factory=dict)
    board: StatusBoard = field(default_factory=StatusBoard)
    name_check: NameCheck = field(default_factory=NameCheck)
    pace: Pace = field(default_factory=Pace)

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Visit as many tables as the time budget allows, at least one.

        Args:
            context: context of the tick.
            warehouse: the warehouse.

        Returns:
            Runs to start, events to store, partitions to add, and the reasons of all decisions.
        """
        cursor = Cursor.read(context.cursor)
        stopped = warehouse.replay_text()
        if stopped is None:
            try:
                warehouse.time()
            except InvalidOption as error:  # ages are unknown: reported once per tick, not for every table
                stopped = str(error)
        if stopped is None:
            stopped = self.name_check.refresh_if_old(context.instance, warehouse.names)
        if stopped is not None:
            return _skip_tick(context, stopped, cursor)
        if not self.cards:
            return dg.SensorResult(
                skip_reason=f"the warehouse {warehouse.path} has no tables yet", cursor=cursor.write()
            )
        policies = self.policies.current()
        result = TickResult()
        previous_s = context.last_tick_completion_time
        self.pace.learn(previous_s, read_tick_end(context.instance, context.sensor_name, previous_s))
        # Start where the last tick stopped, so that slow tables do not starve others.
        start = next((index for index, card in enumerate(self.cards) if card.name == cursor.next_table), 0)
        pending = deque([*self.cards[start:], *self.cards[:start]])
        builder = RunRequestBuilder(context.instance, warehouse, self.board.claims.begin_tick(self.scope.value))
        try:
            self._visit_tables(builder, policies, pending, result)
            if result.requests or result.partitions:
                stopped = self.name_check.refresh_if_unknown(context.instance, warehouse.names)
        except _NameConflict as error:
            stopped = str(error)
        except BaseException:
            builder.claims.release()
            raise
        if stopped is not None:
            builder.claims.release()
            return _skip_tick(context, stopped, cursor)
        logged = self.tick_log.lines(result.lines, result.states, result.not_visited)
        lines = [*([policies.trouble] if policies.trouble else []), *logged]
        for line in lines:
            context.log.info(line)
        self.pace.store(wall_ms(), len(result.events), len(result.requests))
        text = "\n".join(lines)
        skipped = text if len(text) <= _SKIP_TEXT else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)"
        return dg.SensorResult(
            run_requests=result.requests or None,
            skip_reason=None if result.requests else skipped,
            cursor=Cursor(cursor.tick + 1, pending[0].name if pending else None).write(),
            dynamic_partitions_requests=result.partitions,
            asset_events=result.events,
        )

    def _visit_tables(
        self,
        builder: RunRequestBuilder,
        policies: Policies,
        pending: deque[TableCard],
        result: TickResult,
    ) -> None:
        """Visit pending tables in turn until the time budget is used up.

        Args:
            builder: makes the run requests.
            policies: current policies.
            pending: tables to visit; visited tables are removed.
            result: result of the tick; events, requests and lines are added to it.
        """
        instance, warehouse = builder.instance, builder.warehouse
        try:
            catalog = warehouse.catalog()
        except (DredgeError, OSError, ValueError):
            catalog = None  # opening each table then reports the error
        began, budget = time.monotonic(), self.settings.sensor_budget_seconds
        conditions: Mapping[str, Sequence[Condition]] = {}
        if self.reporter is not None:
            conditions = self.board.conditions(instance, warehouse, [card.name for card in self.cards])
        news: list[OpenTable] = []
        news_since = began
        visited = 0
        events = 0  # also those of tables that wait for the query of their earlier reports
        while pending and events < _EVENTS_A_TICK:
            now = time.monotonic()
            if visited and now - began + self.pace.seconds(events) >= budget * (_VISITS if result.due else 1.0):
                break
            card = pending.popleft()
            table = self._visit(builder, catalog, card, policies, result, conditions.get(card.name, ()))
            visited += 1
            if table is None or self.reporter is None or not self.reporter.has_changes(table):
                continue
            news_since = news_since if news else now
            news.append(table)
            events += most_events(table)
            if len(news) >= _TOGETHER or time.monotonic() - news_since >= _TOGETHER_SECONDS:
                result.events += self._events(self.reporter, news, instance)
                news, events = [], len(result.events)
        if news and self.reporter is not None:
            result.events += self._events(self.reporter, news, instance)
        self._request_within(builder, policies, result, began + budget)
        for table, statuses in result.judged.values():
            self.board.put(self.scope, table, statuses)
        if self.reporter is not None:
            current = (
                (table, self.board.status(table, conditions.get(name, ())))
                for name, (table, _) in result.judged.items()
            )
            left = began + budget - time.monotonic() - self.pace.seconds(len(result.events), len(result.requests))
            most = min(max(int(left / self.pace.event_seconds), _FEWEST_STATES), STATES_A_TICK)
            result.events += self.reporter.state_events(current, most)
            result.events += self.reporter.undecided_events(result.undecided, warehouse.time().now_ms())
        result.not_visited = {card.name: _lasting_state(conditions.get(card.name, ())) for card in pending}
        if pending:
            limit_text = (
                f"in this tick's {budget:g} s" if events < _EVENTS_A_TICK else f"after {len(result.events):,} events"
            )
            result.lines.append(f"{len(pending)} tables had no turn {limit_text}: next is {pending[0].name}")

    def _events(
        self, reporter: HealthReporter, tables: Sequence[OpenTable], instance: dg.DagsterInstance
    ) -> Iterator[AssetEvent]:
        """Yield the events of tables that are not reported yet.

        Raises:
            _NameConflict: another warehouse has the same name. Then no event counts as reported.
        """
        reports = reporter.last_reports(tables, instance)
        other = self.name_check.store_answer(reports.other_warehouse())
        if other is not None:
            raise _NameConflict(other)
        yield from reporter.events(tables, reports)

    def _request_within(self, builder: RunRequestBuilder, policies: Policies, result: TickResult, until: float) -> None:
        """Request runs for the due work of a tick within the policies' budgets, most useful work first.

        No run starts for work beyond the budgets, or for work that is left when the tick's time or its number of runs
        is used up. The decisions in the result say so.
        If only the time is used up, at least one due compaction is still planned.

        Args:
            builder: makes the run requests.
            policies: the policies, with their budgets.
            result: result of the tick; the requests and decisions are added to it.
            until: end of the tick's time (clock `time.monotonic`, seconds).
        """
        if not result.due:
            return
        cases = {decision.subject: (table, subject) for table, subject, decision in result.due}
        queued, settled = builder.queued_runs(), 0
        due, waiting = [decision for _, _, decision in result.due], list[str]()

        def settle(decision: Decision, budget: Budget) -> Decision:
            nonlocal settled
            table, subject = cases[decision.subject]
            out_of_turns = ""
            runs = builder.run_count()
            if runs >= RUNS_A_TICK:
                out_of_turns = f"this tick has requested {RUNS_A_TICK} runs"
            elif queued + runs >= _QUEUED_RUNS:
                out_of_turns = f"{queued + runs} runs of sensors are queued (limit {_QUEUED_RUNS})"
            elif settled and time.monotonic() + self.pace.seconds(len(result.events), runs + 1) >= until:
                out_of_turns = "this tick has no time left to plan it"
            try:
                final, _ = builder.request_run(table, subject, budget, out_of_turns=out_of_turns)
            except Exception as error:  # noqa: BLE001  (one table stops no other)
                return decline_unreadable(table.card, error)
            settled += final.reason is not Reason.OUT_OF_TIME
            queue = None
            if final.reason is Reason.BUDGET:
                waiting.append(final.subject)
                queue = queue_of(len(waiting), decision, final, builder.claims.remaining(budget))
            result.judge(table, subject, final, queue)
            return final

        def order_of(table: str) -> list[str]:
            name = builder.warehouse.names.partitions_name(table)
            added = [request for request in result.partitions if request.partitions_def_name == name]
            known = builder.instance.get_dynamic_partitions(name)
            return [*known, *(key for request in added for key in request.partition_keys)]

        final = decide_in_order(due, builder.budget(policies), settle, self.no_turn)
        result.requests += builder.combine_requests(order_of)
        out_of_time = {decision.subject for decision in final if decision.reason is Reason.OUT_OF_TIME}
        self.no_turn.clear()
        self.no_turn.update(out_of_time)
        lines, result.lines = result.lines, []  # due work comes first in the log
        for name in dict.fromkeys(table.name for table, _, _ in result.due):
            result.add_decisions([decision for decision in final if decision.table == name])
        result.lines += lines

    def _visit(
        self,
        builder: RunRequestBuilder,
        catalog: Catalog | None,
        card: TableCard,
        policies: Policies,
        result: TickResult,
        conditions: Sequence[Condition] = (),
    ) -> OpenTable | None:
        """Decide about every partition of one table and add the results to `result`.

        Args:
            builder: makes the run requests.
            catalog: catalog of the warehouse, or None if it cannot be opened.
            card: description of the table.
            policies: current policies.
            result: result of the tick.
            conditions: conditions of the whole table, such as a failed check.

        Returns:
            The opened table, or None if the table cannot be evaluated.
        """
        table = open_table(builder.warehouse, card, policies.of(card.name), catalog)
        if isinstance(table, Decision):
            result.add_decisions([table])
            result.undecided.append(judge_undecided(table))
            return None
        final: list[Decision] = []
        now_ms, earlier = wall_ms(), self.due_since.pop(card.name, {})
        try:
            for subject in subjects(table.facts, self.scope):
                decision = decide(subject, table.policy_of(subject.state), NOTHING_KNOWN, table.now)
                if decision.outcome is DecisionOutcome.RUN:
                    # Metadata has no time for some work, such as rows that wait for a bucket.
                    since = earlier.get(decision.partition, now_ms)
                    self.due_since.setdefault(card.name, {})[decision.partition] = since
                    decision = replace(decision, waited_ms=max(decision.waited_ms, now_ms - since))
                    result.due.append((table, subject, decision))
                else:
                    final.append(decision)
                    result.judge(table, subject, decision)
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            final.append(decline_unreadable(card, error))
        result.add_decisions(final)
        alerts = list(self.further_lines(table))
        if card.name not in self.due_since:  # else the decision about due work says it
            alerts += [
                f"{card.name}: {condition.state.value}: {condition.text}"
                for condition in conditions
                if condition.state.needs_attention and condition.state is not TableState.FAILING
            ]
        result.lines += alerts
        if alerts and result.states.get(card.name, TableState.HEALTHY).is_calm:
            # Lines of alerts must not be hidden.
            result.states[card.name] = _lasting_state(conditions, TableState.DUE)
        if card.partitioned:
            usable, refused = usable_keys(
                sorted({*table.health.waiting, *(partition.text for partition in table.health.partitions)})
            )
            commit = (table.health.snapshot, table.health.commit)
            if usable and self.known_partitions.get(card.name) != commit:
                name = builder.warehouse.names.partitions_name(card.name)
                known = set(builder.instance.get_dynamic_partitions(name))
                missing = [key for key in usable if key not in known]
                if missing:
                    result.partitions.append(dg.AddDynamicPartitionsRequest(name, missing))
                else:
                    self.known_partitions[card.name] = commit
            result.lines += [
                f"{card.name}/{key}: Dagster cannot store this partition's name: it is not maintained on its own"
                for key in refused
            ]
        return table


def _lasting_state(conditions: Sequence[Condition], default: TableState = TableState.HEALTHY) -> TableState:
    """Return the most urgent state that conditions of a whole table cause until a person acts, `default` for none."""
    lasting = [item.state for item in conditions if item.state.needs_attention]
    return min(lasting, key=lambda state: state.rank, default=default)


def most_events(table: OpenTable) -> int:
    """Return how many events a tick reports about a changed table at most."""
    if not table.card.partitioned:
        return _EVENTS_OF_A_TABLE if table.health.partitions else 0
    return 2 * min(len(table.health.partitions), PARTITIONS_A_TABLE) + 1  # data and layout of each, and the backlog


def _skip_tick(context: dg.SensorEvaluationContext, why: str, cursor: Cursor) -> dg.SensorResult:
    """Return the result of a tick that starts and reports nothing, with the reason `why`."""
    context.log.info(why)
    return dg.SensorResult(skip_reason=why, cursor=cursor.write())


def decision_lines(decisions: Sequence[Decision]) -> list[str]:
    """Return one log line per decision about the partitions of a table, first the decisions to start a run.

    Only the first 60 decisions to start no run have a line each. The others are counted, with one line per reason.
    """
    runs = [decision.line() for decision in decisions if decision.outcome is DecisionOutcome.RUN]
    others = [decision for decision in decisions if decision.outcome is not DecisionOutcome.RUN]
    lines = [*runs, *(decision.line() for decision in others[:_LINES_A_TABLE])]
    counts: dict[str, int] = {}
    for decision in others[_LINES_A_TABLE:]:
        counts[decision.reason.value] = counts.get(decision.reason.value, 0) + 1
    counted_lines = [
        f"{decisions[0].table}: {count} more partitions: decline ({reason})" for reason, count in counts.items()
    ]
    return [*lines, *counted_lines]
