"""Expected decisions: lines of the sensors at each tick for the tables that the scenario lists, word for word."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dredge.assets.demo.outcomes import OUTCOMES
from dredge.assets.demo.tables import TABLES, DemoTable

_REFERENCE: Final = Path(__file__).parent / "reference" / "expected.json"
_SENSORS: Final = frozenset({"sorted_run", "idle_partition"})
_TRIGGER: Final = "num-sorted-run.compaction-trigger"
_RUNS: Final = frozenset({"COMPACT_MINOR", "COMPACT_FULL", "COMPACT_FULL recovery"})
_WARN, _CRITICAL = 10, 20
"""Level-0 files at which the demo's policy for aircraft_first_seen warns, and ends its pause."""
PAUSE: Final = "storage move, since 2013-09-30"


@dataclass(frozen=True)
class ExpectedDecision:
    """Expected line of a sensor's tick.

    Attributes:
        sensor: name of the sensor.
        subject: table or partition at the start of the line.
        words: text after the subject.
        runs: whether a run starts.
        afterwards: text that is also accepted in place of `words`. The sensors `sorted_run` and `idle_partition`
            decide about the same subjects. If a run that one of them started compacts the subject before the other one
            decides, the other one logs this text. None if the scenario does not compact the subject at this tick, or
            if this decision itself starts a run.
    """

    sensor: str
    subject: str
    words: str
    runs: bool
    afterwards: str | None = None

    @property
    def reason(self) -> str:
        """Reason of the decision: the end of `words`, after the outcome and its code in parentheses."""
        return self.words.partition("): ")[2]

    def matches(self, line: str, *, compacting: bool = False) -> bool:
        """Return whether a line of the tick matches.

        Args:
            line: line of the tick's log.
            compacting: whether a run that the other one of the two sensors started may have compacted the subject
                before the line was logged. If so, `words` and `afterwards` are both accepted, otherwise only `words`.
        """
        words = [self.words, *([self.afterwards] if compacting and self.afterwards is not None else [])]
        return any(line.startswith(f"{self.subject}: {text}") for text in words)


def expected_decisions(tick: str) -> list[ExpectedDecision]:
    """Return the lines that the scenario expects of the sensors at a tick (``T0`` .. ``T3``) for the demo's tables."""
    demo_tables = {table.name: table for table in TABLES}
    story = json.loads(_REFERENCE.read_text())["story"]
    compaction_days = _days_since_compaction(story, tick)
    compacted = {(item.table, item.partition): item.after for item in OUTCOMES[tick]}
    decisions = []
    for sensor, name, partition, number, days, decision in story[tick]["decisions"]:
        if sensor not in _SENSORS or name not in demo_tables:
            continue
        # The list counts from the last append, the sensor from the newest file (Paimon's rule), maybe a compaction's.
        idle = None if days is None else min(days, compaction_days.get((name, partition), days))
        words, runs = _words(demo_tables[name], sensor, decision), decision in _RUNS
        table = demo_tables[name]
        subject = f"{table.identifier}/{table.partition_keys[0]}={partition}" if partition else table.identifier
        values = {"trigger": table.all_options.get(_TRIGGER, "5"), "pause": PAUSE}
        runs_left = None if runs else compacted.get((name, partition))
        decisions.append(
            ExpectedDecision(
                sensor,
                subject,
                words.format(number=number, days=idle, s="" if number == 1 else "s", **values),
                runs,
                None
                if runs_left is None
                else words.format(number=runs_left, days=0, s="" if runs_left == 1 else "s", **values),
            )
        )
    return decisions


@dataclass(frozen=True)
class ExpectedAlert:
    """Expected level-0 alert of a table at a tick, which the sensor reports without a run.

    Attributes:
        table: name of the table.
        level: ``OK``, ``WARN`` or ``CRITICAL``.
        files: number of level-0 files.
        text: description that the check must report.
    """

    table: str
    level: str
    files: int
    text: str

    @property
    def severity(self) -> str | None:
        """Severity in Dagster, or None if the check passes."""
        return {"OK": None, "WARN": "WARN", "CRITICAL": "ERROR"}[self.level]


def expected_alerts(tick: str) -> list[ExpectedAlert]:
    """Return the level-0 alerts that the scenario expects at a tick (``T0`` .. ``T3``)."""
    alerts = []
    for sensor, name, _, files, _, level in json.loads(_REFERENCE.read_text())["story"][tick]["decisions"]:
        if sensor != "level0_alert":
            continue
        limit = _CRITICAL if level == "CRITICAL" else _WARN
        sign = "<" if level == "OK" else ">="
        text = f"{level}: {files} level-0 files {sign} {limit}; maintenance is paused: {PAUSE}; invisible to readers"
        alerts.append(ExpectedAlert(name, level, files, text))
    return alerts


def _days_since_compaction(story: dict[str, Any], tick: str) -> dict[tuple[str, str], int]:
    """Return the days between the current tick and the last earlier tick at which each partition was compacted.

    Args:
        story: clock and sensor decisions of each demo tick, by name of the tick, from the demo's reference.
        tick: name of the current tick.

    Returns:
        Days by table and partition.
    """
    now = datetime.datetime.fromisoformat(story[tick]["clock"])
    days_by_partition = {}
    for name, facts in story.items():
        if name >= tick:
            break
        days = (now - datetime.datetime.fromisoformat(facts["clock"])).days
        days_by_partition.update({(line[1], line[2]): days for line in facts["decisions"] if line[-1] in _RUNS})
    return days_by_partition


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
    "paused by policy": (
        "decline (paused by policy): {number} sorted runs (trigger {trigger}); paused by policy: {pause}"
    ),
    "too few files": "decline (too few files): idle {days} d, {number} small file{s} < 5",
}
