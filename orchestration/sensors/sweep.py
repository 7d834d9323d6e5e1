"""The walk that all table sensors share: tables in turn within a time budget, a line for each, and a cursor to go on from."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import dagster as dg

from lsm_core.errors import DredgeError, InvalidOption
from orchestration import names
from orchestration.model import TableCard
from orchestration.partitions import missing_keys, usable_keys
from orchestration.policies import Decision, Outcome, Policies, Reason
from orchestration.resources.settings import Settings
from orchestration.resources.warehouse import WarehouseResource
from orchestration.sensors.requests import request_run
from orchestration.sensors.view import Memory, TableView, view_table

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
_LINES_A_TABLE: Final = 60
_SKIP_TEXT: Final = 12_000


@dataclass(frozen=True)
class Rules:
    """What makes one sensor another: how it judges a table, what it reports besides, and what it says besides."""

    judge: Callable[[TableView], list[Decision]]
    report: Callable[[TableView], Iterable[AssetEvent]] = lambda _: ()
    say: Callable[[TableView], Iterable[str]] = lambda _: ()


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
class Found:
    """What a tick gathered."""

    lines: list[str] = field(default_factory=list)
    requests: list[dg.RunRequest] = field(default_factory=list)
    events: list[AssetEvent] = field(default_factory=list)
    partitions: list[dg.AddDynamicPartitionsRequest] = field(default_factory=list)


@dataclass
class Sweep:
    """One sensor's walk over all tables, tick by tick; ``memory`` spares tables that did not change."""

    cards: Sequence[TableCard]
    policies: Policies
    settings: Settings
    rules: Rules
    memory: Memory = field(default_factory=Memory)

    def tick(self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SensorResult:
        """Look at as many tables as the budget allows, at least one, and answer with runs, events and reasons."""
        cursor = Cursor.read(context.cursor)
        stopped = warehouse.replaying() or _no_time(warehouse)
        if stopped is not None:
            context.log.info(stopped)
            return dg.SensorResult(skip_reason=stopped, cursor=cursor.write())
        if not self.cards:
            return dg.SensorResult(
                skip_reason=f"the warehouse {warehouse.path} holds no table yet", cursor=cursor.write()
            )
        found, rest = self._walk(context, warehouse, _turn(self.cards, cursor.next_table))
        if rest:
            found.lines.append(
                f"{len(rest)} tables had no turn in this tick's {self.settings.sensor_budget_seconds:g} s: next is {rest[0].name}"
            )
        for line in found.lines:
            context.log.info(line)
        following = Cursor(cursor.tick + 1, rest[0].name if rest else None).write()
        return dg.SensorResult(
            run_requests=found.requests or None,
            skip_reason=None if found.requests else _skip_text(found.lines),
            cursor=following,
            dynamic_partitions_requests=found.partitions,
            asset_events=found.events,
        )

    def _walk(
        self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource, cards: Sequence[TableCard]
    ) -> tuple[Found, Sequence[TableCard]]:
        found, deadline = Found(), time.monotonic() + self.settings.sensor_budget_seconds
        for index, card in enumerate(cards):
            if index and time.monotonic() >= deadline:
                return found, cards[index:]
            self._one(context, warehouse, card, found)
        return found, ()

    def _one(
        self, context: dg.SensorEvaluationContext, warehouse: WarehouseResource, card: TableCard, found: Found
    ) -> None:
        view = view_table(warehouse, card, self.policies.of(card.name), self.memory)
        final: list[Decision] = []
        try:
            for decision in general(view) or self.rules.judge(view):
                if decision.outcome is Outcome.RUN:
                    decision, request = request_run(context.instance, warehouse.path, view, decision)
                    found.requests += [request] if request is not None else []
                final.append(decision)
        except (DredgeError, OSError, ValueError) as error:  # a clock or a file gone bad: the other tables go on
            text = f"{type(error).__name__}: {error}"
            final.append(Decision(view.name, "", Outcome.DECLINE, Reason.UNREADABLE, text))
        found.lines += tell(final)
        if view.look is None or view.reshaped:
            return
        found.lines += self.rules.say(view)
        found.events += self.rules.report(view)
        if card.partitioned:
            name = names.partitions_name(card.name)
            new = missing_keys(view.look, context.instance.get_dynamic_partitions(name))
            found.partitions += [dg.AddDynamicPartitionsRequest(name, new)] if new else []
            _, refused = usable_keys(sorted({bucket.partition for bucket in view.look.buckets}))
            found.lines += [
                f"{card.name}/{key}: Dagster cannot hold this partition's name: it is not maintained by itself"
                for key in refused
            ]


def general(view: TableView) -> list[Decision]:
    """Return the decision that holds for a table whatever the sensor looks for, [] when the sensor has to judge."""
    reason, text = Reason.EMPTY, "no snapshot yet: nothing to maintain"
    if view.trouble is not None:
        reason, text = Reason.UNREADABLE, view.trouble
    elif view.reshaped:
        reason, text = Reason.RELOAD, "its keys or partitions are others now: reload the code location"
    elif view.refusal is not None:
        reason, text = Reason.UNSUPPORTED, view.refusal
    elif view.look is not None and view.look.buckets:
        return []
    return [Decision(view.name, "", Outcome.DECLINE, reason, text)]


def tell(decisions: Sequence[Decision]) -> list[str]:
    """Return one line a decision, runs first; past a screenful the declines are counted by reason."""
    runs = [decision.line() for decision in decisions if decision.outcome is Outcome.RUN]
    others = [decision for decision in decisions if decision.outcome is not Outcome.RUN]
    lines = [*runs, *(decision.line() for decision in others[:_LINES_A_TABLE])]
    counts: dict[str, int] = {}
    for decision in others[_LINES_A_TABLE:]:
        counts[decision.reason.value] = counts.get(decision.reason.value, 0) + 1
    rest = [f"{decisions[0].table}: {count} more partitions: decline ({reason})" for reason, count in counts.items()]
    return [*lines, *rest]


def _no_time(warehouse: WarehouseResource) -> str | None:
    """Why no age can be told now: said once a tick, not as trouble of every table."""
    try:
        warehouse.time()
    except InvalidOption as error:
        return str(error)
    return None


def _turn(cards: Sequence[TableCard], first: str | None) -> list[TableCard]:
    """Start where the last tick stopped, so that slow tables starve nobody."""
    start = next((index for index, card in enumerate(cards) if card.name == first), 0)
    return [*cards[start:], *cards[:start]]


def _skip_text(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    return text if len(text) <= _SKIP_TEXT else f"{text[:_SKIP_TEXT]}\n... (all of it is in this tick's log)"
