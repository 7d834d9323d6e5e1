"""The sweep: an act is broken at I/O step k, for every k, as not applied and as applied but reported failed, and the table looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lsm_core import Table
from lsm_core.storage import FaultyFileIO
from lsm_core.storage.faults import FaultyStore, Mode
from tests.faults.histories import ACTS, opened
from tests.faults.outcomes import outcome_of
from tests.faults.places import Bucket, Disk, Place, names_from
from tests.faults.sound import Truth, answers, cleaned, require_clean
from tests.faults.strides import points


@dataclass
class Tally:
    """What a sweep did: points that were hit, steps of the act, different states that were looked at, what callers were told."""

    points: int = 0
    steps: int = 0
    states: int = 0
    outcomes: set[str] = field(default_factory=set)


class Sweep:
    """One act on a table of one shape in one place; tables are copies of one that is made on the disk."""

    def __init__(self, place: Place, shape: str, what: str, template: Path, scratch: Path) -> None:
        self._place, self._name, self._act = place, f"{what}, {shape}, {place.kind}", ACTS[what]
        self._truth, self._tally = Truth(), Tally()
        with names_from("preparation"):
            disk = Disk(scratch)
            disk.load("prepared", template)
            self._act.prepare(opened(disk.warehouse("prepared"), self._act.at_ms, options=self._act.options))
        place.load("p", scratch / "prepared")
        disk.drop("prepared")
        self._truth.require_sound(self._fresh("probe"), "before")
        self._before = answers(self._open("probe"))
        place.drop("probe")
        self._left, self._ended = (set[frozenset[tuple[str, str]]]() for _ in range(2))

    def _open(self, name: str, file_io: FaultyFileIO | None = None) -> Table:
        act = self._act
        return opened(self._place.warehouse(name), act.at_ms, file_io or self._place.file_io, act.options)

    def _fresh(self, name: str) -> Table:
        self._place.copy("p", name)
        return self._open(name)

    def _faulty(self, step: int | None = None, mode: Mode = "before") -> FaultyFileIO:
        kind = FaultyStore if isinstance(self._place, Bucket) else FaultyFileIO
        return kind(self._place.file_io, step, mode)

    def _run(self, name: str, file_io: FaultyFileIO) -> str:
        """Open the table and do it, with names that are the same each time."""
        with names_from("act"):
            return outcome_of(lambda: self._act.run(self._open(name, file_io)))

    def run(self, stride: int = 1, first: int = 0) -> Tally:
        """Break every ``stride``-th point, beginning with number ``first``."""
        counting = self.unharmed()
        self._tally.steps = counting.steps
        assert counting.steps > self._act.least, (self._name, counting.steps)
        for number, (step, mode) in enumerate(points(counting)):
            if number % stride == first % stride:
                self._point(step, mode)
        self._place.drop("p")
        return self._tally

    def unharmed(self) -> FaultyFileIO:
        """Do it without a fault and remember what the table says then; the steps that it took."""
        counting = self._faulty()
        self._fresh("whole")
        assert self._run("whole", counting) == "succeeded", self._name
        assert self._act.is_done(self._open("whole")), self._name
        self._after = answers(self._open("whole"))
        self._clean("whole", f"{self._name}, without a fault")
        self._place.drop("whole")
        return counting

    def _point(self, step: int, mode: Mode) -> None:
        self._place.copy("p", "t")
        broken = self._faulty(step, mode)
        outcome = self._run("t", broken)
        if broken.steps < step:  # threads may need fewer steps than when they were counted
            self._place.drop("t")
            return
        name, path = broken.log[step - 1]
        at = f"{self._name}: {outcome} after a fault {mode} step {step}, {name} {path}"
        self._tally.points += 1
        self._tally.outcomes.add(outcome)
        if self._is_new("t", self._left):  # what many faults leave behind is looked at once
            self._tally.states += 1
            self.look("t", at)
        self._place.drop("t")

    def _is_new(self, name: str, known: set[frozenset[tuple[str, str]]]) -> bool:
        """Whether a table of these files was not looked at before; the ledger tells times and processes."""
        files = self._place.files(name).items()
        state = frozenset(file for file in files if not file[0].startswith("dredge/ledger/"))
        new = state not in known
        known.add(state)
        return new

    def look(self, name: str, at: str) -> None:
        """The table can be opened and reads as before or after; the act done again ends it; cleaning leaves what is needed and no more."""
        table = self._open(name)
        found = answers(table)
        for branch, seen in found.items():
            allowed = [self._before.get(branch), self._after.get(branch)]
            if None in allowed:  # a branch that is made or deleted is empty for a moment
                allowed.append([])
            assert seen in allowed, (at, branch)
        assert set(found) >= set(self._before) & set(self._after), at
        self._truth.require_sound(table, at)
        with names_from("retry"):
            self._act.run(self._open(name))
        table = self._open(name)
        assert self._act.is_done(table), at
        assert answers(table) == self._after, at
        if self._is_new(name, self._ended):
            self._truth.require_sound(table, at)
            self._clean(name, at)

    def _clean(self, name: str, at: str) -> None:
        table = cleaned(self._place.warehouse(name), self._place.file_io)
        assert answers(table) == self._after, at
        require_clean(table, self._place.files(name), at)
        self._truth.require_sound(table, at)


__all__ = ["Sweep", "Tally"]
