"""An action of another package, whole in one module: it writes a note into the table's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lsm_core.errors import PlanStale
from lsm_core.maintenance import (
    Action,
    ApplyOutcome,
    Argument,
    ArgumentKind,
    Declined,
    MaintenancePlan,
    PlanItem,
    Report,
    Runner,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class NoteItem(PlanItem):
    item_kind: ClassVar[str] = "note"
    title: ClassVar[str] = "would note"
    columns: ClassVar[tuple[str, ...]] = ("text", "times")

    text: str
    times: int

    def cells(self) -> tuple[Any, ...]:
        return (self.text, self.times)


@dataclass(frozen=True)
class NoteReport(Report):
    plan_hash: str
    noted: int = 0
    declined: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        return self.noted > 0

    def lines(self, table: str) -> list[str]:
        return [f"noted {self.noted} times in {table}"]


class Note(Action):
    name = "note"
    verb = "note"
    help = "Write a note."
    arguments = (
        Argument("text", ArgumentKind.TEXT, "What to note.", required=True),
        Argument("times", ArgumentKind.NUMBER, "How often."),
        Argument("loud", ArgumentKind.FLAG, "In capitals."),
    )

    def item_types(self) -> tuple[type[PlanItem], ...]:
        return (NoteItem,)

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        text = arguments["text"].upper() if arguments.get("loud") else arguments["text"]
        times = arguments.get("times") or 1
        return MaintenancePlan(
            self.name,
            store.name,
            snapshots.latest_id(store),
            items=(NoteItem(text, times),),
            options=dict(store.options.raw),
            arguments={"text": text, "times": times},
            created_ms=store.clock.now_ms(),
        )

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
        (item,) = plan.items_of(NoteItem)
        if not store.file_io.write_exclusive(f"{store.root}/note.txt", (item.text * item.times).encode()):
            raise PlanStale("there is a note already", store.name)
        return ApplyOutcome(NoteReport(plan.hash, item.times), [{"event": "noted", "text": item.text}])

    def unchanged(self, plan: MaintenancePlan) -> Report:
        return NoteReport(plan.hash)
