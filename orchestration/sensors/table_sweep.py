"""The walk that all table sensors share: tables in turn within a time budget, a line for each, and a cursor to go on from."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import dagster as dg

from lsm_core import Catalog
from lsm_core.clock import SystemClock, utc_text
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.json_reader import parse_json
from orchestration import names
from orchestration.blocked import NameCheck
from orchestration.partitions import usable_keys
from orchestration.policies import Asked, Decision, Outcome, Policies, PolicySource, Subject, decide, subjects
from orchestration.policies.budgets import Budget
from orchestration.policies.decisions import NOTHING_KNOWN, settle_in_turn
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.health_reports import AssetEvent, HealthReporter
from orchestration.sensors.looks import OpenTable, open_table, unreadable
from orchestration.sensors.run_requests import RunDesk
from orchestration.table_card import TableCard

_LINES_A_TABLE: Final = 60
_EVENTS_A_TICK: Final = 1_000
"""With so many events a tick ends: Dagster's daemon stores them one by one before it looks at the next sensor."""
_TOGETHER: Final = 50
_TOGETHER_SECONDS: Final = 2.0
"""Of so many tables, or of those found in so long a time, Dagster is asked at once what it was told."""
_SKIP_TEXT: Final = 12_000
_TOLD_WHOLE: Final = 6_000
"""Up to so many characters every tick says everything. Past that Dagster would store gigabytes a day: each line of a tick's log takes 600 bytes, for good."""
_TOLD_AGAIN_SECONDS: Final = 3_600.0


@dataclass(frozen=True)
class Cursor:
    """Where the next tick goes on: its number, and the first table that the last tick had no time for."""

    tick: int = 0
    next_table: str | None = None

    @staticmethod
    def read(text: str | None) -> Cursor:
        """Read a cursor; anything unreadable starts over."""
        try:
            value: Any = parse_json(text or "{}")
            return Cursor(int(value.get("tick", 0)), value.get("next"))
        except (AttributeError, TypeError, ValueError):
            return Cursor()

    def write(self) -> str:
        """Return the cursor as Dagster keeps it."""
        return json.dumps({"tick": self.tick, "next": self.next_table})


@dataclass
class TickAnswer:
    """What a tick gathers for Dagster: lines for people, runs to start, events to store, partitions to add."""

    lines: list[str] = field(default_factory=list)
    requests: list[dg.RunRequest] = field(default_factory=list)
    events: list[AssetEvent] = field(default_factory=list)
    partitions: list[dg.AddDynamicPartitionsRequest] = field(default_factory=list)
    due: list[tuple[OpenTable, Subject, Decision]] = field(default_factory=list)
    """Compactions that wait until all tables were looked at, where budgets let only some of them start."""


@dataclass
class Telling:
    """Which lines a tick tells: of many tables those that changed, and each at least once an hour and in each process.

    ``clock``: seconds that only go forward.
    """

    clock: Callable[[], float] = time.monotonic
    _told: dict[str, int] = field(default_factory=dict)
    _since: float = float("-inf")
    _since_text: str = ""

    def lines(self, lines: Sequence[str]) -> list[str]:
        """Return ``lines``, or those of subjects (what stands before ``: ``) of which something else was told last, and how many are left out."""
        if sum(map(len, lines)) <= _TOLD_WHOLE:
            return list(lines)
        if self.clock() - self._since >= _TOLD_AGAIN_SECONDS:
            self._told.clear()
            self._since, self._since_text = self.clock(), utc_text(SystemClock().now_ms())
        subjects: dict[str, list[str]] = {}
        for line in lines:
            subjects.setdefault(line.partition(": ")[0], []).append(line)
        found: list[str] = []
        for subject, said in subjects.items():
            text = hash(tuple(said))
            if self._told.get(subject) != text:
                self._told[subject] = text
                found += said
        rest = len(lines) - len(found)
        return (
            [*found, f"{rest:,} lines as told since {self._since_text} UTC by earlier ticks of this sensor"]
            if rest
            else found
        )


class _NameTaken(Exception):
    """Another warehouse reports to the same Dagster instance under this one's name."""


@dataclass(frozen=True)
class TableSweep:
    """One sensor's walk over all tables, tick by tick.

    ``asked``: which kind of work it starts. ``reporter``: the events to store besides; ``further_lines``: what the tick says about a table after the decisions.
    """

    cards: Sequence[TableCard]
    policies: PolicySource
    settings: Settings
    asked: Asked
    reporter: HealthReporter | None = None
    further_lines: Callable[[OpenTable], Iterable[str]] = lambda _: ()
    telling: Telling = field(default_factory=Telling)
    known_partitions: dict[str, Hashable] = field(default_factory=dict)
    """By table, the commit all of whose partitions Dagster had when it was asked: as long as that is the newest it is not asked again."""
    name_check: NameCheck = field(default_factory=NameCheck)

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Look at as many tables as the budget allows, at least one, and answer with runs, events and reasons."""
        cursor = Cursor.read(context.cursor)
        stopped = warehouse.replaying()
        if stopped is None:
            try:
                warehouse.time()
            except InvalidOption as error:  # no age can be told: said once a tick, not as trouble of every table
                stopped = str(error)
        if stopped is None:
            stopped = self.name_check.before_a_tick(context.instance, warehouse.path)
        if stopped is not None:
            return _stopped(context, stopped, cursor)
        if not self.cards:
            return dg.SensorResult(
                skip_reason=f"the warehouse {warehouse.path} holds no table yet", cursor=cursor.write()
            )
        policies = self.policies.current()
        answer = TickAnswer()
        # It starts where the last tick stopped, so that slow tables starve nobody.
        start = next((index for index, card in enumerate(self.cards) if card.name == cursor.next_table), 0)
        waiting = deque([*self.cards[start:], *self.cards[:start]])
        try:
            self._look_at(context.instance, warehouse, policies, waiting, answer)
            if answer.requests or answer.partitions:
                stopped = self.name_check.before_an_answer(context.instance, warehouse.path)
        except _NameTaken as error:
            stopped = str(error)
        if stopped is not None:
            return _stopped(context, stopped, cursor)
        lines = [*([policies.trouble] if policies.trouble else []), *self.telling.lines(answer.lines)]
        for line in lines:
            context.log.info(line)
        text = "\n".join(lines)
        skipped = text if len(text) <= _SKIP_TEXT else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)"
        return dg.SensorResult(
            run_requests=answer.requests or None,
            skip_reason=None if answer.requests else skipped,
            cursor=Cursor(cursor.tick + 1, waiting[0].name if waiting else None).write(),
            dynamic_partitions_requests=answer.partitions,
            asset_events=answer.events,
        )

    def _look_at(
        self,
        instance: dg.DagsterInstance,
        warehouse: WarehouseResource,
        policies: Policies,
        waiting: deque[TableCard],
        answer: TickAnswer,
    ) -> None:
        """Visit the tables that wait, in turn; those that the budget leaves no time for stay."""
        desk = RunDesk(instance, warehouse)
        try:
            catalog = warehouse.catalog()
        except (DredgeError, OSError, ValueError):
            catalog = None  # each table says why
        began, budget = time.monotonic(), self.settings.sensor_budget_seconds
        news: list[OpenTable] = []
        news_since = began
        visited = 0
        while waiting and len(answer.events) < _EVENTS_A_TICK:
            now = time.monotonic()
            if visited and now - began >= budget:
                break
            card = waiting.popleft()
            table = self._visit(desk, catalog, card, policies, answer)
            visited += 1
            if table is None or self.reporter is None or not self.reporter.has_news(table):
                continue
            news_since = news_since if news else now
            news.append(table)
            if len(news) >= _TOGETHER or time.monotonic() - news_since >= _TOGETHER_SECONDS:
                answer.events += self._events(self.reporter, news, instance)
                news = []
        if news and self.reporter is not None:
            answer.events += self._events(self.reporter, news, instance)
        self._request_within(desk, policies, answer, began + 2 * budget)
        if waiting:
            why = (
                f"in this tick's {budget:g} s"
                if len(answer.events) < _EVENTS_A_TICK
                else f"after {len(answer.events):,} events"
            )
            answer.lines.append(f"{len(waiting)} tables had no turn {why}: next is {waiting[0].name}")

    def _events(
        self, reporter: HealthReporter, tables: Sequence[OpenTable], instance: dg.DagsterInstance
    ) -> Iterator[AssetEvent]:
        """Yield what is new of the tables. Raises _NameTaken, before anything counts as reported, where another warehouse has the name."""
        reports = reporter.last_reports(tables, instance)
        other = self.name_check.learn(reports.other_warehouse())
        if other is not None:
            raise _NameTaken(other)
        yield from reporter.events(tables, reports)

    def _request_within(self, desk: RunDesk, policies: Policies, answer: TickAnswer, until: float) -> None:
        """Ask for runs of what is due, the most useful first, as far as the budgets go; all else is declined with its numbers."""
        if not answer.due:
            return
        cases = {decision.subject: (table, subject) for table, subject, decision in answer.due}

        def settle(decision: Decision, budget: Budget) -> Decision:
            table, subject = cases[decision.subject]
            try:
                final, request = desk.request_run(table, subject, budget, out_of_time=time.monotonic() >= until)
            except Exception as error:  # noqa: BLE001  (one table stops no other)
                return unreadable(table.card, error)
            answer.requests += [request] if request is not None else []
            return final

        final = settle_in_turn((decision for _, _, decision in answer.due), desk.budget(policies), settle)
        for name in dict.fromkeys(table.name for table, _, _ in answer.due):
            answer.lines += decision_lines([decision for decision in final if decision.table == name])

    def _visit(
        self, desk: RunDesk, catalog: Catalog | None, card: TableCard, policies: Policies, answer: TickAnswer
    ) -> OpenTable | None:
        """Decide about every partition of one table, and add to ``answer`` what there is to say and do; None: it cannot be judged."""
        table = open_table(desk.warehouse, card, policies.of(card.name), catalog)
        if isinstance(table, Decision):
            answer.lines += decision_lines([table])
            return None
        final: list[Decision] = []
        try:
            for subject in subjects(table.facts, self.asked):
                decision = decide(subject, table.policy_of(subject.state), NOTHING_KNOWN, table.now)
                if decision.outcome is Outcome.RUN and policies.limited:
                    answer.due.append((table, subject, decision))
                    continue
                if decision.outcome is Outcome.RUN:
                    decision, request = desk.request_run(table, subject)
                    answer.requests += [request] if request is not None else []
                final.append(decision)
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            final.append(unreadable(card, error))
        answer.lines += decision_lines(final)
        answer.lines += self.further_lines(table)
        if card.partitioned:
            usable, refused = usable_keys(
                sorted({*table.health.waiting, *(partition.text for partition in table.health.partitions)})
            )
            commit = (table.health.snapshot, table.health.commit)
            if usable and self.known_partitions.get(card.name) != commit:
                known = set(desk.instance.get_dynamic_partitions(names.partitions_name(card.name)))
                new = [key for key in usable if key not in known]
                if new:
                    answer.partitions.append(dg.AddDynamicPartitionsRequest(names.partitions_name(card.name), new))
                else:
                    self.known_partitions[card.name] = commit
            answer.lines += [
                f"{card.name}/{key}: Dagster cannot hold this partition's name: it is not maintained by itself"
                for key in refused
            ]
        return table


def _stopped(context: dg.SensorEvaluationContext, why: str, cursor: Cursor) -> dg.SensorResult:
    """Return the answer of a tick that does nothing."""
    context.log.info(why)
    return dg.SensorResult(skip_reason=why, cursor=cursor.write())


def decision_lines(decisions: Sequence[Decision]) -> list[str]:
    """Return one line a decision, runs first; past a screenful the declines are counted by reason."""
    runs = [decision.line() for decision in decisions if decision.outcome is Outcome.RUN]
    others = [decision for decision in decisions if decision.outcome is not Outcome.RUN]
    lines = [*runs, *(decision.line() for decision in others[:_LINES_A_TABLE])]
    counts: dict[str, int] = {}
    for decision in others[_LINES_A_TABLE:]:
        counts[decision.reason.value] = counts.get(decision.reason.value, 0) + 1
    rest = [f"{decisions[0].table}: {count} more partitions: decline ({reason})" for reason, count in counts.items()]
    return [*lines, *rest]
