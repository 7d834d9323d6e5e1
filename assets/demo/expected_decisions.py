"""What the sensors must say at each tick about the tables whose decisions the scenario lists, word for word."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assets.demo.outcomes import OUTCOMES
from assets.demo.tables import TABLES, DemoTable

_REFERENCE: Final = Path(__file__).parent / "reference" / "expected.json"
_SENSORS: Final = frozenset({"sorted_run", "idle_partition"})
_TRIGGER: Final = "num-sorted-run.compaction-trigger"
_RUNS: Final = frozenset({"COMPACT_MINOR", "COMPACT_FULL", "COMPACT_FULL recovery"})
_WARN, _CRITICAL = 10, 20
"""Level-0 files at which the demo's policy for aircraft_first_seen warns, and ends its pause."""
PAUSE: Final = "storage move, since 2013-09-30"


@dataclass(frozen=True)
class ExpectedDecision:
    """One line of a sensor's tick must start with ``subject`` and go on as ``words`` say; ``runs``: it starts a run.

    ``afterwards``: the words once a run of the other sensor has compacted it at this tick; None: none does.
    """

    sensor: str
    subject: str
    words: str
    runs: bool
    afterwards: str | None = None

    @property
    def reason(self) -> str:
        """The words without outcome and code: what a run carries as its reason."""
        return self.words.partition("): ")[2]

    def is_said_by(self, line: str, *, compacting: bool = False) -> bool:
        """Whether a line of the tick says it; ``compacting``: a run had begun, the line may tell of before or afterwards."""
        words = [self.words, *([self.afterwards] if compacting and self.afterwards is not None else [])]
        return any(line.startswith(f"{self.subject}: {text}") for text in words)


def expected_decisions(tick: str) -> list[ExpectedDecision]:
    """Return the scenario's decisions at ``T0`` .. ``T3`` about tables that the demo has, as the sensors word them."""
    ours = {table.name: table for table in TABLES}
    story = json.loads(_REFERENCE.read_text())["story"]
    rested = _days_since_compaction(story, tick)
    compacted = {(item.table, item.partition): item.after for item in OUTCOMES[tick]}
    found = []
    for sensor, name, partition, number, days, decision in story[tick]["decisions"]:
        if sensor not in _SENSORS or name not in ours:
            continue
        # The list counts from the last append; the sensor from the newest file (Paimon's rule), which may be a compaction's.
        idle = None if days is None else min(days, rested.get((name, partition), days))
        words, runs = _words(ours[name], sensor, decision), decision in _RUNS
        table = ours[name]
        subject = f"{table.identifier}/{table.partition_keys[0]}={partition}" if partition else table.identifier
        fixed = {"trigger": table.all_options.get(_TRIGGER, "5"), "pause": PAUSE}
        left = None if runs else compacted.get((name, partition))
        found.append(
            ExpectedDecision(
                sensor,
                subject,
                words.format(number=number, days=idle, s="" if number == 1 else "s", **fixed),
                runs,
                None if left is None else words.format(number=left, days=0, s="" if left == 1 else "s", **fixed),
            )
        )
    return found


@dataclass(frozen=True)
class ExpectedAlert:
    """What the level-0 alert of a table must say at a tick, reported by the sensor without a run."""

    table: str
    level: str
    files: int
    text: str

    @property
    def severity(self) -> str | None:
        """How bad Dagster must call it; None: it passes."""
        return {"OK": None, "WARN": "WARN", "CRITICAL": "ERROR"}[self.level]


def expected_alerts(tick: str) -> list[ExpectedAlert]:
    """Return the scenario's level-0 alerts at ``T0`` .. ``T3``."""
    found = []
    for sensor, name, _, files, _, level in json.loads(_REFERENCE.read_text())["story"][tick]["decisions"]:
        if sensor != "level0_alert":
            continue
        limit = _CRITICAL if level == "CRITICAL" else _WARN
        sign = "<" if level == "OK" else ">="
        text = f"{level}: {files} level-0 files {sign} {limit}; maintenance is paused: {PAUSE}; invisible to readers"
        found.append(ExpectedAlert(name, level, files, text))
    return found


def _days_since_compaction(story: dict[str, Any], tick: str) -> dict[tuple[str, str], int]:
    """How many days before this tick each partition was compacted last, at an earlier tick."""
    now = datetime.datetime.fromisoformat(story[tick]["clock"])
    found = {}
    for name, told in story.items():
        if name >= tick:
            break
        days = (now - datetime.datetime.fromisoformat(told["clock"])).days
        found.update({(line[1], line[2]): days for line in told["decisions"] if line[-1] in _RUNS})
    return found


def _words(table: DemoTable, sensor: str, decision: str) -> str:
    if decision.endswith("recovery"):
        return f"run (recovery): {{number}} level-0 files >= {_CRITICAL}: critical; the pause ({{pause}}) is overridden"
    if decision in _RUNS:
        return _COMPACT[sensor, bool(table.primary_keys)]
    return _DECLINES[decision.removeprefix("DECLINE ")]


_COMPACT: Final = {
    ("sorted_run", True): "run (trigger reached): {number} sorted runs >= {trigger}",
    ("idle_partition", True): "run (idle): idle {days} d >= 20 d, {number} sorted run{s} >= 2: full compaction",
    ("idle_partition", False): "run (idle): idle {days} d >= 20 d, {number} small file{s} >= 5: full compaction",
}
_DECLINES: Final = {
    "too few runs": "decline (too few runs): {number} sorted run{s} < {trigger}; ",
    "one run already": "decline (one run already): idle {days} d, one run per bucket: nothing to merge",
    "not idle": "decline (not idle): idle {days} d < 20 d",
    "paused by policy": "decline (paused by policy): {number} sorted runs (trigger {trigger}); paused by policy: {pause}",
    "too few files": "decline (too few files): idle {days} d, {number} small file{s} < 5",
}
