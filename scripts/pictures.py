"""Pictures of the import graph as reproducible SVG: rooms in their layers, and the modules of each route."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Final

from scripts.imports import graph, layers, modules, sources_of
from scripts.routes import ROUTES, Route

_ROW, _BOX, _GAP, _MARGIN, _CHARACTER = 76, 38, 28, 24, 8
_STYLE = (
    "text{font:14px ui-sans-serif,system-ui,sans-serif;fill:#1f2d3d;text-anchor:middle}"
    ".small{font-size:11px;fill:#5b6b7b}.left{text-anchor:start}"
    "rect.box{fill:#eef3f7;stroke:#607d8b}rect.pure{fill:#e6f4ea;stroke:#5f8f6b}rect.platform{fill:#f3eefa;stroke:#7d6b9b}"
    "path{fill:none;stroke:#607d8b;stroke-width:1.3}path.up{stroke:#c62828;stroke-width:2.5}"
)
_ENGINE = "lsm_core"
_WITH_ROOMS = ("dredge.platform_core", "dredge.orchestration")
PURE = frozenset({"lsm_core.tree", "lsm_core.merge", "lsm_core.format"})


@dataclass(frozen=True)
class Place:
    """Position of a box: its middle, its upper edge and its width, in pixels."""

    middle: int
    top: int
    width: int


def room_of(module: str) -> str:
    """Return the room of a module, such as "lsm_core.read" or "dredge.checks"; "" for the package modules themselves."""
    parts = module.split(".")
    depth = 3 if module.startswith(_WITH_ROOMS) else 2
    return ".".join(parts[:depth]) if len(parts) >= depth else ""


def rooms(imports: Mapping[str, set[str]] | None = None) -> dict[str, set[str]]:
    """Return the imported rooms of every room."""
    imported_rooms: dict[str, set[str]] = {}
    for module, used in (graph() if imports is None else imports).items():
        room = room_of(module)
        if room:
            imported_rooms.setdefault(room, set()).update({room_of(other) for other in used} - {room, ""})
    return imported_rooms


def arrows(edges: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that are not implied by a chain of others (transitive reduction), for a readable picture."""

    def below(room: str, seen: set[str]) -> set[str]:
        for other in edges.get(room, set()) - seen:
            seen.add(other)
            below(other, seen)
        return seen

    reach = {room: below(room, set()) for room in edges}
    return sorted(
        (room, other)
        for room, used in edges.items()
        for other in used
        if not any(other in reach.get(between, set()) for between in used - {other})
    )


def engine_picture() -> str:
    """Return the picture of the engine's rooms in the layers of pyproject.toml."""
    return _picture({room: used for room, used in rooms().items() if room.startswith(_ENGINE)})


def platform_picture() -> str:
    """Return the picture of the platform's rooms above the engine as one room."""
    edges = {
        room: {_ENGINE if other.startswith(_ENGINE) else other for other in used}
        for room, used in rooms().items()
        if not room.startswith(_ENGINE)
    }
    return _picture({**edges, _ENGINE: set()})


def _picture(edges: Mapping[str, set[str]]) -> str:
    """Return a picture with an arrow per import that no chain of imports implies; arrows against the layers are red."""
    listed = [sorted(set(layer) & edges.keys()) for layer in layers()]
    missing = sorted(edges.keys() - {room for row in listed for room in row})
    rows = [row for row in [*listed, missing] if row]
    return _drawn(
        rows,
        arrows(edges),
        {
            room: room.removeprefix(f"{_ENGINE}.")
            .removeprefix("dredge.")
            .removeprefix("platform_core.")
            .removeprefix("orchestration.")
            for room in edges
        },
    )


def route_picture(route: Route) -> str:
    """Return the picture of a route: its stations from top to bottom, with an arc on the left for every import.

    Raises:
        ValueError: a station is not a module.
    """
    names = [name for name, _ in route.stations]
    calls = _calls(names)
    left, step, wide = 150, 46, 300
    drawn = []
    for at, (name, text) in enumerate(route.stations):
        top = _MARGIN + at * step
        place = Place(left + wide // 2, top, wide)
        drawn.append(_box(place, name.removeprefix(f"{_ENGINE}."), name, 30))
        drawn.append(f'<text class="left" x="{left + wide + 16}" y="{top + 20}">{escape(text)}</text>')
        for called in sorted(calls[name], key=names.index):
            to = names.index(called)
            bend = min(left - 20, 16 + 15 * abs(to - at))
            start, end = top + 11, _MARGIN + to * step + 19
            drawn.append(
                f'<path marker-end="url(#tip)" d="M{left} {start} C{left - bend} {start} {left - bend} {end} {left - 3} {end}"/>'
            )
    return _page(left + wide + 480, 2 * _MARGIN + (len(names) - 1) * step + 30, drawn)


def _calls(names: Sequence[str]) -> dict[str, set[str]]:
    """Return the imports between the modules, including imports through a package."""
    known = modules()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"scripts/routes.py names {', '.join(unknown)}: no such module")
    return {name: (sources_of(known[name], known) & set(names)) - {name} for name in names}


def _drawn(rows: Sequence[Sequence[str]], lines: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> str:
    widths = {room: len(labels[room]) * _CHARACTER + 36 for row in rows for room in row}
    widest = max(sum(widths[room] + _GAP for room in row) for row in rows)
    sway = 110 if max(len(row) for row in rows) <= 3 else 40
    width = widest + 2 * (_MARGIN + sway)
    places: dict[str, Place] = {}
    for number, row in enumerate(rows):
        # Rows are shifted slightly, or boxes between them would hide long arrows.
        left = (width - sum(widths[room] + _GAP for room in row) + _GAP) // 2 + sway * (0, 1, 0, -1)[number % 4]
        for room in row:
            places[room] = Place(left + widths[room] // 2, _MARGIN + number * _ROW, widths[room])
            left += widths[room] + _GAP
    height = 2 * _MARGIN + (len(rows) - 1) * _ROW + _BOX
    drawn = [_arrow(places[start], places[end]) for start, end in lines]
    drawn += [_box(places[room], labels[room], room) for row in rows for room in row]
    return _page(width, height, drawn)


def _arrow(start: Place, end: Place) -> str:
    y, to = start.top + _BOX, end.top - 4
    kind = "down" if end.top > start.top else "up"
    bend = max(24, abs(to - y) // 3)
    curve = f"M{start.middle} {y} C{start.middle} {y + bend} {end.middle} {to - bend} {end.middle} {to}"
    return f'<path class="{kind}" marker-end="url(#tip)" d="{curve}"/>'


def _box(place: Place, label: str, name: str, height: int = _BOX) -> str:
    room = room_of(name)
    kind = "pure" if room in PURE else "box" if name.startswith(_ENGINE) else "platform"
    return (
        f'<rect class="box {kind}" x="{place.middle - place.width // 2}" y="{place.top}" width="{place.width}" height="{height}" rx="6"/>'
        f'<text x="{place.middle}" y="{place.top + height // 2 + 5}">{escape(label)}</text>'
    )


def _page(width: int, height: int, drawn: Iterable[str]) -> str:
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" style="fill:#607d8b;stroke:none"/></marker></defs>'
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<style>{_STYLE}</style>",
            tip,
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *drawn,
            "</svg>\n",
        ]
    )


DRAWN: Final[dict[str, Callable[[], str]]] = {
    "images/imports/engine.svg": engine_picture,
    "images/imports/platform.svg": platform_picture,
    **{f"images/imports/{route.name}.svg": partial(route_picture, route) for route in ROUTES},
}
"""Generator of every picture by its path under docs/."""
