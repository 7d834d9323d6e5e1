"""Scores of all tables over time, stored beside the hourly report: a table itself keeps only its newest commits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lsm_core.json_text import parse_json

POINTS: Final = 169
"""Most points that are kept: an hourly report for seven days."""
_LEAST_GAP_MS: Final = 30 * 60_000
"""Time (ms) that three points must span; reports in quick succession replace the point before."""
_VERSION: Final = 1


@dataclass(frozen=True)
class ScoreHistory:
    """Health scores of tables (0 healthy to 100 urgent) at the times of earlier reports.

    Attributes:
        times: times of the points (epoch ms), ascending.
        scores: scores by table, one for each time; None if the table had no score at that time.
    """

    times: tuple[int, ...] = ()
    scores: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def trend(self, table: str) -> tuple[tuple[int, float], ...]:
        """Return the pairs of time and score of a table, oldest first."""
        return tuple(
            (time_ms, score)
            for time_ms, score in zip(self.times, self.scores.get(table, ()), strict=False)
            if score is not None
        )

    def add_point(self, now_ms: int, scores: Mapping[str, float]) -> ScoreHistory:
        """Return the history with the scores of one more report.

        Tables without a score in this report are removed. Earlier reports that are not before `now_ms` are removed,
        too, because then the clock was set back.

        Args:
            now_ms: time of the report (epoch ms).
            scores: score by table.
        """
        kept = [place for place, time_ms in enumerate(self.times) if time_ms < now_ms]
        if len(kept) > 1 and now_ms - self.times[kept[-2]] < _LEAST_GAP_MS:
            kept.pop()
        kept = kept[-(POINTS - 1) :]
        nothing: tuple[float | None, ...] = (None,) * len(self.times)
        return ScoreHistory(
            (*(self.times[place] for place in kept), now_ms),
            {
                table: (*(self.scores.get(table, nothing)[place] for place in kept), round(score, 1))
                for table, score in scores.items()
            },
        )

    def to_json(self) -> str:
        """Return the history as JSON text."""
        return json.dumps({"version": _VERSION, "times": self.times, "scores": self.scores}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> ScoreHistory:
        """Return the history of JSON text.

        Raises:
            ValueError: the text is not a history of this version.
        """
        stored = parse_json(text)
        if not isinstance(stored, dict) or stored.get("version") != _VERSION:
            raise ValueError("it is not a history of scores of this version of Dredge")
        times, scores = stored.get("times"), stored.get("scores")
        if not isinstance(times, list) or not all(_is_time(time_ms) for time_ms in times) or times != sorted(times):
            raise ValueError("its times are not ascending numbers")
        if not isinstance(scores, dict) or not all(_are_scores(values, len(times)) for values in scores.values()):
            raise ValueError("it has not one score of each table for each time")
        return ScoreHistory(tuple(times), {table: tuple(values) for table, values in scores.items()})


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _are_scores(values: Any, number: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == number
        and all(
            value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))
            for value in values
        )
    )
