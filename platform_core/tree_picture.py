"""Picture of an LSM tree before and after a change: the levels of every changed bucket, as an SVG image.

The image is embedded as a data URL, so the page neither executes nor loads anything from the image. All text in the
image is escaped, because partition names are untrusted.
"""

from __future__ import annotations

import base64
from operator import itemgetter
from typing import Final, TypeAlias
from xml.sax.saxutils import escape

from dredge.platform_core.health import TableHealth, shape_of
from lsm_core.maintenance import BucketHealth
from lsm_core.maintenance.action import bucket_name, size_text

_SHOWN: Final = 8
_WIDTH: Final = 760
_COLUMN: Final = 360
_ROW: Final = 18
_TITLE: Final = 22
_BAR: Final = 200
_FILES: Final = 40
"""Most level-0 files that are drawn one by one; more files would be thinner than two pixels."""
_LONGEST: Final = 60
_LEVEL0: Final = "#d9822b"
_OTHERS: Final = "#2f7ed8"


BucketPair: TypeAlias = tuple[BucketHealth | None, BucketHealth | None]
"""Health of a bucket before and after a change; None where the bucket has no files. At least one is not None."""


def changed_buckets(before: TableHealth, after: TableHealth) -> list[BucketPair]:
    """Return the buckets that a change modified, emptied or added, most sorted runs first."""
    earlier = {(bucket.partition_text, bucket.bucket): bucket for bucket in before.buckets}
    later = {(bucket.partition_text, bucket.bucket): bucket for bucket in after.buckets}
    changed = []
    for place in earlier | later:
        first, second = earlier.get(place), later.get(place)
        if first is None or second is None or shape_of(first) != shape_of(second):
            changed.append((-max(runs_of(first), runs_of(second)), place, (first, second)))
    return [pair for _, _, pair in sorted(changed, key=itemgetter(0, 1))]


def runs_of(bucket: BucketHealth | None) -> int:
    """Return the number of sorted runs of a bucket; 0 for None, a bucket without files."""
    return 0 if bucket is None else bucket.sorted_runs


def tree_picture(before: TableHealth, after: TableHealth) -> str:
    """Draw the levels of the changed buckets before and after a change.

    Returns:
        Markdown with the picture, or "" if no bucket changed. Beyond 8 buckets, further buckets are only counted.
    """
    changed = changed_buckets(before, after)
    if not changed:
        return ""
    shown = changed[:_SHOWN]
    sizes = [size for pair in shown for item in pair if item is not None for size in item.bytes_per_level.values()]
    largest, parts, top = max([*sizes, 1]), [], 4
    for earlier_state, later_state in shown:
        runs = f"{runs_of(earlier_state)} → {runs_of(later_state)} sorted runs"
        name = name_of(earlier_state, later_state)
        name = "".join(char if char.isprintable() else "?" for char in name)  # XML has no control characters
        title = f"{name if len(name) <= _LONGEST else f'{name[:_LONGEST]}...'}: {runs}"
        parts.append(_text(4, top + 14, title, bold=True))
        rows = 0
        for left, state in ((4, earlier_state), (4 + _COLUMN + 20, later_state)):
            lines = _draw_levels(state, left, top + _TITLE, largest) if state is not None else []
            parts += [part for line in lines for part in line]
            rows = max(rows, len(lines))
        top += _TITLE + rows * _ROW + 10
    header = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" '
        'font-family="sans-serif" font-size="12">'
    )
    background = f'<rect width="{_WIDTH}" height="{top}" fill="#ffffff"/>'
    image = base64.b64encode("".join([header, background, *parts, "</svg>"]).encode()).decode()
    caption = f"Snapshot {before.snapshot} (left) and {after.snapshot} (right); orange: a box is a file of level 0."
    more = f" {len(changed) - _SHOWN} more buckets changed." if len(changed) > _SHOWN else ""
    return f"![the levels before and after](data:image/svg+xml;base64,{image})\n\n{caption}{more}"


def name_of(first: BucketHealth | None, second: BucketHealth | None) -> str:
    """Return the name of the bucket of a pair."""
    return next((bucket_name(each.partition_text, each.bucket) for each in (first, second) if each is not None), "")


def _draw_levels(state: BucketHealth, left: int, top: int, largest: int) -> list[list[str]]:
    """Return the SVG elements of one bucket, one list per level; the width of a bar is proportional to its bytes.

    Args:
        state: health of the bucket.
        left: left edge in pixels.
        top: upper edge in pixels.
        largest: bytes of the largest level in the picture, which gets the longest bar.
    """
    rows = []
    for number, (level, size) in enumerate(sorted(state.bytes_per_level.items())):
        y = top + number * _ROW
        files = state.files_per_level.get(level, 0)
        boxes = min(files, _FILES) if level == 0 else 1
        width = max(size / largest * _BAR, 2.0 * boxes)
        parts = [_text(left, y + 12, f"L{level}")]
        each = width / max(boxes, 1)
        for box in range(boxes):
            shape = f'x="{left + 28 + box * each:.1f}" y="{y + 2}" width="{max(each - 0.8, 1):.1f}" height="{_ROW - 5}"'
            parts.append(f'<rect {shape} fill="{_LEVEL0 if level == 0 else _OTHERS}"/>')
        noun = "file" if files == 1 else "files"
        parts.append(_text(left + 36 + round(width), y + 12, f"{size_text(size)}, {files:,} {noun}"))
        rows.append(parts)
    return rows


def _text(x: int, y: int, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight} fill="#202020">{escape(text)}</text>'
