"""Picture of a simulation: sorted runs over time of any number of policies, with mean and worst week. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

_WIDTH: Final = 760
_CHART: Final = 160
_LEFT: Final = 40
_LINE: Final = 16
"""Height of a line of the legend."""
_LONGEST_NAME: Final = 40
_DASHES: Final = ("", "6 3", "2 3", "9 3 2 3")
"""Dash patterns of the lines; lines of similar colours have different ones."""
_GOLDEN_ANGLE: Final = 137.508
"""Degrees between the hues of neighbours, so that any number of hues are spread evenly."""


def draw_runs(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG chart of the mean sorted runs of a bucket over time, with one line and one legend per policy.

    Args:
        rows: result of the simulation, a mapping per policy, at least one.
    """
    highest = max((max(row["runs_over_time"], default=0.0) for row in rows), default=0.0) or 1.0
    parts: list[str] = []
    for number, row in enumerate(rows):
        style = f'stroke="{_colour(number)}" stroke-dasharray="{_DASHES[number % len(_DASHES)]}"'
        points = _points(row["runs_over_time"], highest)
        parts.append(f'<polyline points="{points}" fill="none" stroke-width="2" {style}/>')
        y = _CHART + (number + 1) * _LINE
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + 30}" y1="{y - 4}" y2="{y - 4}" stroke-width="2" {style}/>')
        parts.append(f'<text x="{_LEFT + 38}" y="{y}" fill="#222222">{escape(_legend(row))}</text>')
    height = _CHART + (len(rows) + 1) * _LINE
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="2" y="14" fill="#222222">{highest:.1f}</text><text x="2" y="{_CHART - 8}" fill="#222222">0</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{_CHART - 10}" y2="{_CHART - 10}" stroke="#bbbbbb"/>'
    )
    return "".join([frame, *parts, "</svg>"])


def _points(values: Sequence[float], highest: float) -> str:
    step = (_WIDTH - _LEFT - 20) / max(len(values) - 1, 1)
    return " ".join(
        f"{_LEFT + place * step:.1f},{_CHART - 10 - value / highest * (_CHART - 30):.1f}"
        for place, value in enumerate(values)
    )


def _colour(number: int) -> str:
    """Return the CSS colour of a policy's line, dark enough for white paper.

    Args:
        number: position of the policy in the chart, from 0.
    """
    return f"hsl({(210 + number * _GOLDEN_ANGLE) % 360:.0f}, 65%, {38 + 8 * (number % 2)}%)"


def _legend(row: Mapping[str, Any]) -> str:
    """Return the legend of a policy: its name, and its sorted runs on average and in the worst week.

    Characters that XML cannot hold are replaced.

    Args:
        row: result of the simulation for the policy.
    """
    name = "".join(char if char.isprintable() else "?" for char in str(row["policy"]))
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    if row.get("mean_runs") is None or row.get("worst_week_runs") is None:
        return short
    return f"{short}: mean {row['mean_runs']:.1f}, worst week {row['worst_week_runs']:.1f} sorted runs"
