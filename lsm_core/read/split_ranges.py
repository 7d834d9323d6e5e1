"""Division of large merged splits into splits over key ranges, so that threads and Spark's tasks have equal work.

Planning decides from metadata alone. A section is cut at the smallest keys of its large files. Small files that reach
over a cut are read by both sides, so a section is cut only if they have few rows. A file with two outlier keys then no
longer makes one task of a whole bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds, KeyRange
from lsm_core.read.lone_parts import NEVER
from lsm_core.read.merge_read import Section, Shapes
from lsm_core.read.splits import Split

_UNEVEN: Final = 1.5
"""A split is cut if its bytes are at least this multiple of the fair share (all bytes / workers)."""
_READ_AGAIN: Final = 32
"""Divisor of a section's rows: at most this part of them may be read again because of its cuts."""
_LEAST_BYTES: Final = 8 << 20
"""Smallest size of a part of a split."""


def cut_for_workers(store: TableStore, splits: Sequence[Split], workers: int) -> list[Split]:
    """Return splits with the same rows, in the same order, of which no merged split is much above the fair share.

    The fair share is all bytes / workers. Splits that need no merge, and splits of few bytes, stay as they are.

    Args:
        store: the table of the splits.
        splits: the splits of a scan.
        workers: number of splits that are read at once.
    """
    total = sum(split.size for split in splits)
    if workers < 2 or not total or not store.has_primary_key or store.options.exact_reads == NEVER:
        return list(splits)
    parts: list[Split] = []
    for split in splits:
        share = split.size * workers / total
        pieces = min(round(share), split.size // _LEAST_BYTES) if share >= _UNEVEN else 1
        parts += [split] if pieces < 2 or not _is_cut(split) else _cut(store, split, pieces)
    return parts


def _is_cut(split: Split) -> bool:
    return not split.raw and split.origin is None and split.within is None and bool(split.sections)


@dataclass(frozen=True)
class _Range:
    """Smallest unit of a cut: the keys of a section from one large file to the next.

    Attributes:
        low: smallest key, as a BinaryRow; None for the first range of a section.
        section: number of the section.
        size: bytes of the large files of the range.
    """

    low: bytes | None
    section: int
    size: int


def _cut(store: TableStore, split: Split, pieces: int) -> list[Split]:
    shapes = Shapes(store)
    ranges = [
        key_range
        for number, section in enumerate(split.sections)
        for key_range in _ranges(section, number, shapes, pieces)
    ]
    share, filled = sum(key_range.size for key_range in ranges) / pieces, 0.0
    firsts = [0]
    for place, key_range in enumerate(ranges):
        if place and filled + key_range.size / 2 >= share * len(firsts):
            firsts.append(place)
        filled += key_range.size
    if len(firsts) < 2:
        return [split]
    stops = [*firsts[1:], len(ranges)]
    return [_split_of(store, split, ranges, span, shapes) for span in zip(firsts, stops, strict=True)]


def _ranges(section: Section, number: int, shapes: Shapes, pieces: int) -> Iterator[_Range]:
    """Yield the ranges of keys into which a section may be cut, in key order.

    Args:
        section: the section.
        number: number of the section.
        shapes: cache of the key ranges of files.
        pieces: number of parts that are wanted.
    """
    files = sorted(section.files, key=lambda file: file.row_count)
    most = sum(file.row_count for file in files) // (_READ_AGAIN * (pieces - 1))
    small, rows = 0, 0
    while small < len(files) and rows + files[small].row_count <= most:
        rows += files[small].row_count
        small += 1
    large = sorted(zip(shapes.of(files[small:]), files[small:], strict=True), key=lambda pair: pair[0].min_key)
    low: bytes | None = None
    reach, size = None, 0
    for shape, file in large:
        if reach is not None and shape.min_key > reach:
            yield _Range(low, number, size)
            low, size = file.min_key, 0
        size += file.file_size
        reach = shape.max_key if reach is None else max(reach, shape.max_key)
    yield _Range(low, number, size)


def _split_of(
    store: TableStore, split: Split, ranges: Sequence[_Range], span: tuple[int, int], shapes: Shapes
) -> Split:
    """Return the split of consecutive ranges.

    Args:
        store: the table.
        split: the whole split.
        ranges: all its ranges.
        span: first range, and the end (exclusive).
        shapes: cache of the key ranges of files.
    """
    first, stop = span
    following = ranges[stop] if stop < len(ranges) else None
    within = KeyRange(ranges[first].low, None if following is None else following.low)
    bounds = KeyBounds(store, within)
    sections = []
    for number in range(ranges[first].section, ranges[stop - 1].section + 1):
        section = split.sections[number]
        files = section.files
        met = {file.file_name for file, shape in zip(files, shapes.of(files), strict=True) if bounds.meets(shape)}
        sides = (
            tuple(kept for part in side if (kept := tuple(file for file in part if file.file_name in met)))
            for side in (section.runs, section.groups)
        )
        sections.append(Section(*sides))
    chosen = [file for section in sections for file in section.files]
    vectors = split.vectors
    deletions = [vectors.get(file.file_name) for file in chosen]
    chosen_range = within if within.low is not None or within.high is not None else None
    return Split(
        split.partition, split.bucket, chosen, raw=False, sections=sections, deletions=deletions, within=chosen_range
    )


__all__ = ["cut_for_workers"]
