"""What the sensors must say at each tick about the tables whose decisions the scenario lists, word for word."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from assets.demo.tables import TABLES

_REFERENCE: Final = Path(__file__).parent / "reference" / "expected.json"
_SENSORS: Final = frozenset({"sorted_run", "idle_partition"})


@dataclass(frozen=True)
class ExpectedDecision:
    """One line of a sensor's tick must start with ``subject`` and go on as ``words`` say; ``runs``: it starts a run."""

    sensor: str
    subject: str
    words: str
    runs: bool

    def is_said_by(self, line: str) -> bool:
        """Whether a line of the tick says it."""
        start, _, rest = self.words.partition("...")
        return line.startswith(f"{self.subject}: {start}") and rest in line


def expected_decisions(tick: str) -> list[ExpectedDecision]:
    """Return the scenario's decisions at ``T0`` .. ``T3`` about tables that the demo has, as the sensors word them."""
    ours = {table.name: table for table in TABLES}
    listed = json.loads(_REFERENCE.read_text())["story"][tick]["decisions"]
    found = []
    for sensor, name, partition, number, days, decision in listed:
        if sensor not in _SENSORS or name not in ours:
            continue
        table = ours[name]
        subject = f"{table.identifier}/{table.partition_keys[0]}={partition}" if partition else table.identifier
        runs = not decision.startswith("DECLINE")
        words = _RUN if runs else _DECLINES[decision.removeprefix("DECLINE ")]
        said = words.format(number=number, days=days, s="" if number == 1 else "s")
        found.append(ExpectedDecision(sensor, subject, said, runs))
    return found


_RUN: Final = "run (idle): idle {days} d >= 20 d, {number} small file{s} >= 5: full compaction"
_DECLINES: Final = {
    "too few runs": "decline (too few runs): {number} sorted run",
    "not idle": "decline (not idle): idle {days} d < 20 d",
    # Days count from the newest file (Paimon's rule), in the scenario's list from the last append: the outcome is the same.
    "too few files": "decline (too few files): idle ... d, {number} small file{s} < 5",
}
