"""Example of an action outside of the engine, in one module: it writes a note into the table's folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lsm_core.errors import PlanStale
from lsm_core.maintenance import (
    Action,
    ActionWork,
    ApplyOutcome,
    Argument,
    ArgumentKind,
    Declined,
    MaintenancePlan,
    PlanItem,
    Report,
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


def plan_note(store: TableStore, **arguments: Any) -> MaintenancePlan:
    text = arguments["text"].upper() if arguments.get("loud") else arguments["text"]
    times = arguments.get("times") or 1
    return MaintenancePlan(
        NOTE.name,
        store.name,
        snapshots.latest_id(store),
        items=(NoteItem(text, times),),
        options=dict(store.options.raw),
        arguments={"text": text, "times": times},
        created_ms=store.clock.now_ms(),
    )


def write_note(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    (item,) = plan.items_of(NoteItem)
    if not store.file_io.write_exclusive(f"{store.root}/note.txt", (item.text * item.times).encode()):
        raise PlanStale("there is a note already", store.name)
    return ApplyOutcome(NoteReport(plan.hash, item.times), [{"event": "noted", "text": item.text}])


NOTE = Action(
    "note",
    "Write a note.",
    (
        Argument("text", ArgumentKind.TEXT, "What to note.", required=True),
        Argument("times", ArgumentKind.NUMBER, "How often."),
        Argument("loud", ArgumentKind.FLAG, "In capitals."),
    ),
    module=__name__,
)
WORK = ActionWork(plan_note, write_note, NoteReport, (NoteItem,))
