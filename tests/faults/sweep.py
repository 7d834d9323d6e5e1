"""Fault sweep: an operation is broken at each I/O step, and the table is checked.

The step is either not applied, or applied but reported as failed.
"""

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
    """Numbers of a sweep: broken points, I/O steps of the operation, checked states, and outcomes for the caller."""

    points: int = 0
    steps: int = 0
    states: int = 0
    outcomes: set[str] = field(default_factory=set)


class Sweep:
    """Sweep of one operation over a table of one shape in one storage; each table is a copy of a template on disk."""

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
        """Open the table and execute the operation with reproducible file names; return the outcome."""
        with names_from("act"):
            return outcome_of(lambda: self._act.run(self._open(name, file_io)))

    def run(self, stride: int = 1, first: int = 0) -> Tally:
        """Break every ``stride``-th point, beginning with number ``first`` modulo ``stride``."""
        counting = self.unharmed()
        self._tally.steps = counting.steps
        assert counting.steps > self._act.least, (self._name, counting.steps)
        for number, (step, mode) in enumerate(points(counting)):
            if number % stride == first % stride:
                self._point(step, mode)
        self._place.drop("p")
        return self._tally

    def unharmed(self) -> FaultyFileIO:
        """Execute the operation without a fault, and store the rows; return the FileIO that counted the steps."""
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
        """Return whether no table with these files was checked before; the ledger is ignored, as it has times."""
        files = self._place.files(name).items()
        state = frozenset(file for file in files if not file[0].startswith("dredge/ledger/"))
        new = state not in known
        known.add(state)
        return new

    def look(self, name: str, at: str) -> None:
        """Assert that the table has the rows from before or after the operation, and that a retry completes it.

        After cleaning, exactly the needed files remain.
        """
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
