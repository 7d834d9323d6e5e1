"""The walk that all table sensors share: tables in turn within a time budget, a line for each, and a cursor to go on from."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import dagster as dg

from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.health import TableHealth, table_health
from orchestration.partitions import usable_keys
from orchestration.policies import Decision, Outcome, Policies, Policy, Reason
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource, refusal_of
from orchestration.sensors.run_requests import request_run
from orchestration.table_card import TableCard

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
_LINES_A_TABLE: Final = 60
_SKIP_TEXT: Final = 12_000


@dataclass(frozen=True)
class OpenTable:
    """A table as a tick found it. ``refusal`` says why maintenance leaves its files alone, None where it does not."""

    card: TableCard
    policy: Policy
    store: TableStore
    health: TableHealth
    refusal: str | None = None

    @property
    def name(self) -> str:
        """The table."""
        return self.card.name


@dataclass(frozen=True)
class Cursor:
    """Where the next tick goes on: its number, and the first table that the last tick had no time for."""

    tick: int = 0
    next_table: str | None = None

    @staticmethod
    def read(text: str | None) -> Cursor:
        """Read a cursor; anything unreadable starts over."""
        try:
            value: Any = json.loads(text or "{}")
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


@dataclass(frozen=True)
class TableSweep:
    """One sensor's walk over all tables, tick by tick.

    ``judge`` returns a decision for every partition of a table, ``events_of`` the events to store besides, ``further_lines`` what
    the tick says about it after the decisions.
    """

    cards: Sequence[TableCard]
    policies: Policies
    settings: Settings
    judge: Callable[[OpenTable], list[Decision]]
    events_of: Callable[[OpenTable, dg.DagsterInstance], Iterable[AssetEvent]] = lambda *_: ()
    further_lines: Callable[[OpenTable], Iterable[str]] = lambda _: ()

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Look at as many tables as the budget allows, at least one, and answer with runs, events and reasons."""
        cursor = Cursor.read(context.cursor)
        stopped = warehouse.replaying()
        if stopped is None:
            try:
                warehouse.time()
            except InvalidOption as error:  # no age can be told: said once a tick, not as trouble of every table
                stopped = str(error)
        if stopped is not None:
            context.log.info(stopped)
            return dg.SensorResult(skip_reason=stopped, cursor=cursor.write())
        if not self.cards:
            return dg.SensorResult(
                skip_reason=f"the warehouse {warehouse.path} holds no table yet", cursor=cursor.write()
            )
        answer, deadline = TickAnswer(), time.monotonic() + self.settings.sensor_budget_seconds
        # It starts where the last tick stopped, so that slow tables starve nobody.
        start = next((index for index, card in enumerate(self.cards) if card.name == cursor.next_table), 0)
        waiting = [*self.cards[start:], *self.cards[:start]]
        while waiting and (len(waiting) == len(self.cards) or time.monotonic() < deadline):
            self._visit(context, warehouse, waiting.pop(0), answer)
        if waiting:
            answer.lines.append(
                f"{len(waiting)} tables had no turn in this tick's {self.settings.sensor_budget_seconds:g} s: next is {waiting[0].name}"
            )
        for line in answer.lines:
            context.log.info(line)
        text = "\n".join(answer.lines)
        skipped = text if len(text) <= _SKIP_TEXT else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)"
        return dg.SensorResult(
            run_requests=answer.requests or None,
            skip_reason=None if answer.requests else skipped,
            cursor=Cursor(cursor.tick + 1, waiting[0].name if waiting else None).write(),
            dynamic_partitions_requests=answer.partitions,
            asset_events=answer.events,
        )

    def _visit(
        self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource, card: TableCard, answer: TickAnswer
    ) -> None:
        """Decide about every partition of one table, and add to ``answer`` what there is to say and do."""
        table = open_table(warehouse, card, self.policies.of(card.name))
        if isinstance(table, Decision):
            answer.lines += decision_lines([table])
            return
        final: list[Decision] = []
        try:
            for decision in common_decisions(table) or self.judge(table):
                if decision.outcome is Outcome.RUN:
                    decision, request = request_run(context.instance, warehouse.path, table.store, decision)
                    answer.requests += [request] if request is not None else []
                final.append(decision)
        except (DredgeError, OSError, ValueError) as error:  # a clock or a file gone bad: the other tables go on
            final.append(_unreadable(card, error))
        answer.lines += decision_lines(final)
        answer.lines += self.further_lines(table)
        answer.events += self.events_of(table, context.instance)
        if card.partitioned:
            usable, refused = usable_keys(
                sorted({*table.health.waiting, *(partition.text for partition in table.health.partitions)})
            )
            known = set(context.instance.get_dynamic_partitions(names.partitions_name(card.name)))
            new = [key for key in usable if key not in known]
            if new:
                answer.partitions.append(dg.AddDynamicPartitionsRequest(names.partitions_name(card.name), new))
            answer.lines += [
                f"{card.name}/{key}: Dagster cannot hold this partition's name: it is not maintained by itself"
                for key in refused
            ]


def open_table(warehouse: WarehouseResource, card: TableCard, policy: Policy) -> OpenTable | Decision:
    """Open the table and read its health, from memory when nothing changed; a table that cannot be judged gives the decision that says why."""
    refusal: str | None = None
    try:
        store = warehouse.store(card.name)
        keys_now, keys_then = (
            (store.schema.partition_keys, store.schema.primary_keys),
            (card.partition_keys, card.primary_keys),
        )
        refusal = refusal_of(store)
        health = table_health(store)
    except (DredgeError, OSError, ValueError) as error:
        if refusal is not None:  # a table that is left alone anyway may be one whose keys cannot even be compared
            return Decision(card.name, "", Outcome.DECLINE, Reason.UNSUPPORTED, refusal)
        return _unreadable(card, error)
    if card.unreadable or keys_now != keys_then:
        text = "its keys or partitions are others now: reload the code location"
        return Decision(card.name, "", Outcome.DECLINE, Reason.RELOAD, text)
    return OpenTable(card, policy, store, health, refusal)


def _unreadable(card: TableCard, error: Exception) -> Decision:
    return Decision(card.name, "", Outcome.DECLINE, Reason.UNREADABLE, f"{type(error).__name__}: {error}")


def common_decisions(table: OpenTable) -> list[Decision]:
    """Return the decision that holds for a table whatever the sensor looks for, [] when the sensor has to judge."""
    if table.refusal is not None:
        return [Decision(table.name, "", Outcome.DECLINE, Reason.UNSUPPORTED, table.refusal)]
    if not table.health.buckets and not table.health.waiting:
        text = "no snapshot yet: nothing to maintain"
        return [Decision(table.name, "", Outcome.DECLINE, Reason.EMPTY, text)]
    return []


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
