"""The report as one HTML page that works offline: no text of a table becomes markup, and the page loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from dredge.platform_core.report.model import LONGEST_TEXT, ActionEntry, FleetReport, TableReport, cut_text
from dredge.platform_core.table_card import count_text
from lsm_core import __version__
from lsm_core.cli.render import duration_text, visible
from lsm_core.clock import utc_text
from lsm_core.maintenance.action import size_text

PAGE_BYTES: Final = 2_000_000
"""Most bytes of a page of up to 1,000 tables; beyond that number, 2,000 bytes for each table."""
_ACTIONS: Final = (50, 20, 10, 5, 2, 1)
"""Numbers of actions that a table may show. A table gets the largest number that leaves space for those after it."""
_LEAST: Final = ((LONGEST_TEXT, 2), (LONGEST_TEXT, 1), (160, 1), (80, 1), (40, 0))
"""Most characters of a reason, and fewest actions of a table; the first pair with which all rows fit is taken."""
_ACTION_BYTES: Final = 90
"""Fewest bytes of one action on the page, by which numbers of actions are left out without rendering them."""
_POINTS: Final = 24
_LEAST_TOP: Final = 25.0
_WIDTH: Final = 80
_HEIGHT: Final = 16
_UNSAFE_ADDRESS: Final = re.compile(r"[^A-Za-z0-9_.~!*'();:@&=+$,/?%\[\]-]")


class _Column(NamedTuple):
    """Column of the page's table.

    Attributes:
        name: title.
        key: place of its value in the row's sort keys, "name" for the name of the table, or None if it is not sorted.
        text: explanation of the column.
        first: "-" if the first click sorts descending, "" otherwise.
        numeric: whether values are aligned to the right.
    """

    name: str
    key: int | str | None = None
    text: str = ""
    first: str = ""
    numeric: bool = False


_COLUMNS: Final = (
    _Column("State", 0, "State of the table, the most urgent first"),
    _Column("Table", "name", "Name of the table"),
    _Column("Reason"),
    _Column("Next action", 1, "Next action and its time; tables without a fixed time come last"),
    _Column("Score", 2, "Need of maintenance, 0 (healthy) to 100", "-", numeric=True),
    _Column("Runs", 3, "Sorted runs of the worst bucket", "-", numeric=True),
    _Column("Level 0", 4, "Level-0 files of the worst bucket", "-", numeric=True),
    _Column("Read", 5, "Bytes that maintenance read", "-", numeric=True),
    _Column("Time", 6, "Seconds that maintenance took", "-", numeric=True),
    _Column(
        "Held", 7, "Bytes kept for snapshots, tags and others; - if not computed, see dredge holds", "-", numeric=True
    ),
    _Column("Size", 8, "Bytes of the data files", "-", numeric=True),
)
_ORDERS: Final = (
    ("0+", "worst first"),
    ("name+", "name"),
    ("1+", "next action, soonest"),
    ("2-", "score, highest"),
    ("3-", "sorted runs, most"),
    ("4-", "level 0, most"),
    ("5-", "read, most"),
    ("6-", "time, most"),
    ("7-", "held, most"),
    ("8-", "size, largest"),
)
"""Orders of the page's list for narrow screens; other orders of the column titles are added without a name."""


def render_page(report: FleetReport) -> str:
    """Return the report as HTML: one page, without any other file, at most `PAGE_BYTES` up to 1,000 tables.

    The same report always gives the same text. A page of many tables shows fewer actions of each, the most of the most
    urgent tables.

    Args:
        report: data of all tables.
    """
    template = _environment().from_string(_asset("page.html.j2"))
    databases = _numbers(sorted({table.database for table in report.tables}))
    owners = _numbers(sorted({owner for table in report.tables for owner in table.owners}))
    states = _numbers([legend.name for legend in report.states])
    address = report.dagster_url if re.match(r"https?://[^/]", report.dagster_url) else ""
    style, script = _asset("style.css"), _asset("script.js")
    values: dict[str, Any] = {
        "report": report,
        "window": duration_text(report.window_ms),
        "dagster_url": _UNSAFE_ADDRESS.sub(lambda match: quote(match[0]), address).rstrip("/"),
        "database_numbers": databases,
        "owner_names": owners,
        "state_numbers": states,
        "severities": {legend.name: legend.severity.value for legend in report.states},
        "total_bytes": sum(table.total_bytes for table in report.tables),
        "spent_bytes": sum(table.spent_bytes for table in report.tables),
        "spent_seconds": sum(table.spent_seconds for table in report.tables),
        "held_bytes": sum(table.held_bytes or 0 for table in report.tables),
        "columns": _COLUMNS,
        "orders": [*_ORDERS, *_other_orders()],
        "version": __version__,
        "style": Markup(style),  # noqa: S704  (files of this package)
        "script": Markup(script),  # noqa: S704
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "rows": "",
    }
    frame = len(template.render(values).encode())
    room = max(PAGE_BYTES, 2_000 * len(report.tables)) - frame
    for longest, fewest in _LEAST:
        module: Any = template.make_module({**values, "longest": longest})
        heads = [module.row(table, number) for number, table in enumerate(report.tables)]
        least = [module.more(table, number, fewest) for number, table in enumerate(report.tables)]
        if _bytes_of(heads) + _bytes_of(least) <= room:
            break
    rows = Markup("").join(_rows(module, report.tables, heads, least, room))
    return template.render({**values, "rows": rows})


def _bytes_of(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def _rows(
    module: Any, tables: Sequence[TableReport], heads: Sequence[Markup], least: Sequence[Markup], room: int
) -> Iterable[Markup]:
    """Yield the rows of each table; tables at the end show fewer actions if `room` bytes are not enough for all.

    Args:
        module: the template's module, with the macros of rows.
        tables: the tables in order.
        heads: row of each table.
        least: details of each table with the fewest actions.
        room: bytes for all rows.
    """
    room -= _bytes_of(heads) + _bytes_of(least)
    for number, (table, head) in enumerate(zip(tables, heads, strict=True)):
        shown, size = least[number], len(least[number].encode())
        # The first tables, which are the most urgent ones, may take a fortieth of the space: about all their actions.
        share = max(min(max(room // 40, room * 4 // (len(tables) - number)), room), 0)
        for limit in _ACTIONS:
            known = min(limit, len(table.entries))
            if known * _ACTION_BYTES > share or known == min(_next(limit), len(table.entries)):
                continue  # too long, or the same text as for the next number
            text = module.more(table, number, limit)
            grown = len(text.encode()) - size
            if grown <= share:
                room -= grown
                shown = text
                break
        yield head + shown


def _next(limit: int) -> int:
    """Return the next smaller number of actions that the page may show for a table (`_ACTIONS`), or 0 if none is."""
    return next((number for number in _ACTIONS if number < limit), 0)


def _other_orders() -> list[tuple[str, str]]:
    """Return the sort orders that a click on a column's title can choose and that `_ORDERS` does not name.

    Returns:
        Pairs of the order (key of the column with "+" or "-") and its text, such as "score, ascending".
    """
    named = {value for value, _ in _ORDERS}
    texts = {"+": "ascending", "-": "descending"}
    return [
        (value, f"{column.name.lower()}, {texts[sign]}")
        for column in _COLUMNS
        if column.key is not None
        for sign in "+-"
        if (value := f"{column.key}{sign}") not in named
    ]


def _numbers(texts: Iterable[str]) -> dict[str, int]:
    """Return the position of each text, from 0; the page refers to names by these numbers."""
    return {text: number for number, text in enumerate(texts)}


def _hash(text: str) -> str:
    """Return the hash of an inline style or script for the content security policy."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    """Return the text of a file of this package, without blank space at both ends."""
    return (files("dredge.platform_core.report") / name).read_text(encoding="utf-8").strip()


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= {
        "cut": cut_text,
        "code": _mark_code,
        "shell": lambda name: shlex.quote(cut_text(name, 200)),
        "time": _time,
        "size": size_text,
        "count": count_text,
        "number": _number,
        "seconds": lambda seconds: duration_text(round(seconds * 1000)),
        "trend_path": trend_path,
        "trend_text": trend_text,
        "sort_keys": _sort_keys,
        "bytes": _bytes,
    }
    return environment


def _finalize(value: Any) -> Any:
    """Return a value of the template with control and bidi characters escaped; HTML is escaped afterwards."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _mark_code(text: str) -> Markup:
    """Return escaped text in which commands between backticks are code; an unpaired backtick stays as it is."""
    parts = [escape(visible(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:
        parts[-2:] = [escape("`").join(parts[-2:])]
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else part for number, part in enumerate(parts))


def _time(epoch_ms: int | None) -> str:
    """Return a time (epoch ms) as UTC text to the minute; the text for None says that the time is unknown."""
    return utc_text(epoch_ms)[:16]


def _number(value: float) -> str:
    return f"{round(value, 1):,g}" if abs(value) < 1_000 else f"{round(value):,}"


def _sort_keys(table: TableReport, number: int) -> str:
    """Return the values by which the page sorts the row of a table, joined by "|"; unknown values are empty.

    Args:
        table: report on the table.
        number: position of the table in the report, from 0 for the most urgent table.
    """
    numbers = (
        table.score,
        table.sorted_runs,
        table.level0_files,
        table.spent_bytes,
        round(table.spent_seconds, 1),
        table.held_bytes,
        table.total_bytes,
    )
    keys = [number, table.when_ms, *(numbers if table.readable else [None] * len(numbers))]
    return "|".join("" if key is None else f"{key:.12g}" for key in keys)


def _bytes(entry: ActionEntry) -> str:
    """Return the bytes that an action read, wrote and freed, as one text; "-" if none is known."""
    parts = []
    if entry.bytes_in or entry.bytes_out:
        parts.append(f"{size_text(entry.bytes_in or 0)} → {size_text(entry.bytes_out or 0)}")
    if entry.bytes_freed:
        parts.append(f"{size_text(entry.bytes_freed)} freed")
    return ", ".join(parts) or "-"


def sample_trend(trend: Sequence[tuple[int, float]], most: int = _POINTS) -> list[tuple[int, float]]:
    """Return at most `most` points of a trend: the highest point of each of equal time spans, and always the newest.

    Args:
        trend: pairs of time and score, oldest first.
        most: most points to return, at least 2.
    """
    if len(trend) <= most:
        return list(trend)
    first, span = trend[0][0], max(trend[-1][0] - trend[0][0], 1)
    highest: dict[int, tuple[int, float]] = {}
    for point in trend[:-1]:
        place = (point[0] - first) * (most - 1) // span
        if place not in highest or point[1] > highest[place][1]:
            highest[place] = point
    return [*list(highest.values())[: most - 1], trend[-1]]


def trend_path(table: TableReport) -> str:
    """Return a table's sparkline as an SVG path with relative steps.

    Its height is the highest score, or at least 25, so that the small changes of a healthy table look small.
    """
    trend = sample_trend(table.trend)
    top = max(_LEAST_TOP, *(score for _, score in trend))
    first, span = trend[0][0], max(trend[-1][0] - trend[0][0], 1)
    across = [round(1 + (time_ms - first) / span * (_WIDTH - 2)) for time_ms, _ in trend]
    down = [round(1 + _HEIGHT * (1 - max(score, 0) / top)) for _, score in trend]
    places = list(zip(across, down, strict=True))
    steps = [f"{x - before_x} {y - before_y}" for (before_x, before_y), (x, y) in pairwise(places)]
    return f"M{across[0]} {down[0]}l{' '.join(steps)}".replace(" -", "-")


def trend_text(table: TableReport) -> str:
    """Return how a table's score changed in the reported time, as text."""
    if len(table.trend) < 2:
        return "one point so far"
    scores = [score for _, score in table.trend]
    span = duration_text(table.trend[-1][0] - table.trend[0][0])
    source = f" ({table.trend_of})" if table.trend_of else ""
    return (
        f"score {_number(scores[0])} to {_number(scores[-1])} in {span}, highest {_number(max(scores))}, "
        f"{count_text(len(scores), 'point')}{source}"
    )
