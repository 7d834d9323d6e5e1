"""Maintenance with somebody else in the middle: at a chosen I/O step another act is done from beginning to end, then it goes on.

Whatever the step, the table then says what it would say had the two been done one after the other, each as far as it was told to have
succeeded; every version says what it always said, and cleaning leaves what is needed and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lsm_core import Table
from lsm_core.errors import DredgeError
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.histories import ACTS, SHAPES, Act, content, fill, newest, opened, plant, write
from tests.faults.outcomes import outcome_of
from tests.faults.places import Disk, names_from
from tests.faults.sound import Truth, answers, cleaned, require_clean
from tests.faults.strides import CHANGES

T = TypeVar("T")
Answers = dict[str, list[tuple[Any, ...]]]


def _clean_up(table: Table) -> object:
    """As a schedule does: what is young stays."""
    return table.remove_orphan_files()


def _nothing(_: Table) -> None:
    return


MAINTAINERS = {
    **{name: ACTS[name] for name in ("compact", "expire", "sweep", "undo", "expire partitions", "delete tag")},
    "orphans": Act(_clean_up, lambda t: not t.plan_maintenance("orphans").items, plant),
    "roll back": Act(lambda t: t.rollback_to("kept"), lambda t: newest(t).id == 4),
    "reader": Act(content, lambda _: True),
}
OTHERS: dict[str, tuple[Callable[[Table], object], Callable[[Table], object]]] = {
    "writer": (write, _nothing),
    "second maintainer": (lambda t: t.compact(full=True), _nothing),
    "expirer": (ACTS["expire"].run, _nothing),
    "orphan cleaner": (_clean_up, plant),
    "reader": (content, _nothing),
    "tagger": (lambda t: t.create_tag("new"), _nothing),
    "tag deleter": (ACTS["delete tag"].run, _nothing),
    "rollback": (lambda t: t.rollback_to("kept"), _nothing),
    "branch maker": (lambda t: t.create_branch("made", from_snapshot=newest(t).id), _nothing),
    "branch deleter": (ACTS["delete branch"].run, _nothing),
    "fast-forward": (lambda t: t.fast_forward("dev"), _nothing),
}
PAIRS = [(one, other) for one in sorted(MAINTAINERS) for other in sorted(OTHERS)]
SAMPLE = [
    ("compact", "writer"),
    ("expire", "branch maker"),
    ("orphans", "tagger"),
    ("roll back", "writer"),
    ("undo", "second maintainer"),
]


class Interrupted(FaultyFileIO):
    """Lets ``meanwhile`` happen ahead of step ``at``; its own steps are not counted."""

    def __init__(self, at: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__(LocalFileIO())
        self._at, self._meanwhile, self._lock = at, meanwhile, threading.Lock()

    def run(self, name: str, path: str, action: Callable[[], T]) -> T:
        """See FaultyFileIO."""
        with self._lock:  # readers open files in threads
            due, self._at = self.steps + 1 == self._at, 0 if self.steps + 1 == self._at else self._at
            if due:
                self._meanwhile()
        return super().run(name, path, action)


@dataclass
class Meeting:
    """A maintainer and somebody else on copies of one table."""

    disk: Disk
    one: Act
    other: Callable[[Table], object]
    truth: Truth = field(default_factory=Truth)
    seen: set[frozenset[tuple[str, str]]] = field(default_factory=set)
    told: set[tuple[str, str]] = field(default_factory=set)

    def table(self, name: str, file_io: FaultyFileIO | None = None) -> Table:
        return opened(self.disk.warehouse(name), self.one.at_ms, file_io)

    def fresh(self, name: str) -> Table:
        self.disk.copy("p", name)
        return self.table(name)

    def in_turn(self, *acts: Callable[[Table], object]) -> Answers | None:
        """What the table says after both, one after the other; None where the second is refused then."""
        self.fresh("turn")
        outcomes = [outcome_of(lambda act=act: act(self.table("turn"))) for act in acts]  # type: ignore[misc]
        assert outcomes[0] == "succeeded"
        found = answers(self.table("turn"))
        self.disk.drop("turn")
        return found if set(outcomes) == {"succeeded"} else None

    def serial(self) -> dict[tuple[str, str], list[Answers | None]]:
        """What the table may say, by what the maintainer and the other were told."""
        first, other = self.one.run, self.other
        return {
            ("succeeded", "succeeded"): [self.in_turn(first, other), self.in_turn(other, first)],
            ("failed", "succeeded"): [self.in_turn(other)],
            ("succeeded", "failed"): [self.in_turn(first)],
            ("failed", "failed"): [answers(self.table("p"))],
        }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with primary keys."""
    place = tmp_path_factory.mktemp("template") / "wh"
    fill(place, SHAPES["keyed"])
    return place


def _chosen(counting: FaultyFileIO, stride: int) -> list[int]:
    """Steps ahead of which somebody may come in between: changes, and one read in a few."""
    log = enumerate(counting.log, 1)
    steps = [step for step, (name, _) in log if name in CHANGES - {"write", "close", "mkdirs"} or step % 5 == 0]
    return steps[len(counting.log) % stride :: stride]


@pytest.mark.parametrize(
    ("one", "other", "stride"),
    [
        *((one, other, 37) for one, other in SAMPLE),
        *(pytest.param(one, other, 1, marks=(pytest.mark.soak, pytest.mark.timeout(3600))) for one, other in PAIRS),
    ],
)
def test_somebody_else_in_the_middle(
    one: str,
    other: str,
    stride: int,
    template: Path,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    disk = Disk(tmp_path)
    disk.load("p", template)
    act, (another, prepare) = MAINTAINERS[one], OTHERS[other]
    meeting = Meeting(disk, act, another)
    for preparation in (act.prepare, prepare):
        preparation(meeting.table("p"))
    meeting.truth.require_sound(meeting.table("p"), "before")
    allowed = meeting.serial()
    counting = Interrupted()
    meeting.fresh("count")
    act.run(meeting.table("count", counting))
    disk.drop("count")
    chosen = _chosen(counting, stride)
    if (one, other) == (
        "expire",
        "fast-forward",
    ):  # between its look at a snapshot and the deletion only a lock keeps that out
        chosen = [step for step in chosen if counting.log[step - 1][0] != "delete"]
    for step in chosen:
        _meet(meeting, step, allowed, f"{other} ahead of step {step} of {one}: {counting.log[step - 1]}")
    record_property("interleavings", len(chosen))
    assert any(item[1] == "succeeded" for item in meeting.told)


def _meet(meeting: Meeting, step: int, allowed: dict[tuple[str, str], list[Answers | None]], at: str) -> None:
    outcomes: list[str] = []

    def meanwhile() -> None:
        outcomes.append(outcome_of(lambda: meeting.other(meeting.table("t"))))

    meeting.fresh("t")
    with names_from("meeting"):
        first = outcome_of(lambda: meeting.one.run(meeting.table("t", Interrupted(step, meanwhile))))
        assert len(outcomes) == 1, at
    result = (first, outcomes[0])
    meeting.told.add(result)
    at = f"{at}; told: {result}"
    table = meeting.table("t")
    found = answers(table)
    assert found in allowed[result], at
    files = meeting.disk.files("t").items()
    state = frozenset(file for file in files if not file[0].startswith("dredge/ledger/"))
    if state not in meeting.seen:
        meeting.seen.add(state)
        meeting.truth.require_sound(table, at)
        with suppress(
            DredgeError
        ):  # the maintainer comes again; the other's act may stand in its way, or have undone it
            meeting.one.run(meeting.table("t"))
            assert result[0] == "succeeded" or meeting.one.is_done(meeting.table("t")), at
        found = answers(meeting.table("t"))
        table = cleaned(meeting.disk.warehouse("t"), meeting.disk.file_io)
        assert answers(table) == found, at
        require_clean(table, meeting.disk.files("t"), at)
        meeting.truth.require_sound(table, at)
    meeting.disk.drop("t")
