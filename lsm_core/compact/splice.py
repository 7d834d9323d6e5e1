"""Row groups that a compaction copies as they are ("spliced"): their description, and the choice among them.

A row group, or a part of one that begins and ends with pages, may be spliced if no other file has a key in its key
range. Between spliced row groups rows are merged. So that no output has many small row groups, merged rows that are too
few for a row group are merged with a neighbouring row group, which is then not spliced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from lsm_core.files.formats.parquet import ROW_GROUP_ROWS
from lsm_core.files.row_group_parts import PartSizes
from lsm_core.format.schema import TableSchema

LEAST_ROWS: Final = ROW_GROUP_ROWS // 2
"""Smallest number of rows of a spliced row group, and of the rows that are merged between two spliced row groups."""

_OPTIONS_OF_FILES: Final = ("file.", "parquet.")
"""Prefixes of the options that decide how rows are encoded."""


@dataclass(frozen=True)
class SplicedGroup:
    """Row group of an input file, or a part of one, that the output contains unchanged as a row group.

    Attributes:
        file_name: name of the file.
        number: index of the row group in the file.
        rows: number of rows.
        size: bytes of the pages.
        low: smallest key, as a BinaryRow of the trimmed primary key.
        high: largest key, likewise.
        first_row: first row of a part of the row group, at which a page begins in every column; None for all rows.
    """

    file_name: str
    number: int
    rows: int
    size: int
    low: bytes
    high: bytes
    first_row: int | None = None

    def to_list(self) -> list[Any]:
        """Return the values for JSON."""
        return [value.hex() if isinstance(value, bytes) else value for value in astuple(self)]

    @staticmethod
    def of_list(values: Sequence[Any]) -> SplicedGroup:
        """Return the row group of :meth:`to_list`.

        Raises:
            ValueError: the values have another form.
        """
        name, number, rows, size, low, high, first_row = values
        if not all(isinstance(value, int) and value >= 0 for value in (number, rows, size, first_row or 0)):
            raise ValueError(f"a row group {values!r}")
        return SplicedGroup(str(name), number, rows, size, bytes.fromhex(low), bytes.fromhex(high), first_row)


def choose_groups(
    rows: Sequence[int], meets: Sequence[bool], between: Sequence[int], least: int, least_merged: int
) -> list[int]:
    """Choose the row groups to splice among row groups, or parts of them, whose key ranges are disjoint.

    A chosen row group meets no other key and has at least ``least`` rows. Between two chosen row groups, before the
    first and after the last, either no rows are merged or at least ``least_merged`` rows. Rows that would be fewer are
    merged with the next row group, or with the last one at the end.

    Args:
        rows: rows of each row group, in key order.
        meets: whether another file has a key in the key range of each row group.
        between: rows of other files before each row group, and after the last one.
        least: smallest number of rows of a chosen row group.
        least_merged: smallest number of merged rows.

    Returns:
        Indexes of the chosen row groups, ascending.
    """
    chosen: list[int] = []
    merged_before: list[int] = []
    merged = between[0]
    for at, (count, is_met, after) in enumerate(zip(rows, meets, between[1:], strict=True)):
        if is_met or count < least or 0 < merged < least_merged:
            merged += count + after
            continue
        chosen.append(at)
        merged_before.append(merged)
        merged = after
    while chosen and 0 < merged < least_merged:
        merged += rows[chosen.pop()] + merged_before.pop()
    return chosen


def cut_evenly(borders: Sequence[int], least: int) -> list[int]:
    """Return borders between parts of a row group of at least ``least`` rows, as few parts as wanted for that.

    Args:
        borders: ascending rows at which the row group may be cut, from 0 to its number of rows.
        least: smallest number of rows of a part.

    Returns:
        The chosen borders, the first and the last one included.
    """
    chosen = [borders[0]]
    for border in borders[1:-1]:
        if border - chosen[-1] >= least and borders[-1] - border >= least:
            chosen.append(border)
    return [*chosen, borders[-1]]


def join_parts(
    groups: Sequence[SplicedGroup], is_apart: Sequence[bool], sizes: Mapping[tuple[str, int], PartSizes]
) -> list[SplicedGroup]:
    """Join parts that follow each other in their row group to one part, or to the whole row group.

    Args:
        groups: row groups and parts, in key order.
        is_apart: whether there are merged rows or a kept file between each of them and the one before.
        sizes: bytes of the parts of each row group that has parts, by name of the file and index.
    """
    longest: list[SplicedGroup] = []
    for group, apart in zip(groups, is_apart, strict=True):
        last = longest[-1] if longest and not apart else None
        if (
            last is not None
            and group.first_row is not None
            and last.first_row is not None
            and (last.file_name, last.number, last.first_row + last.rows)
            == (group.file_name, group.number, group.first_row)
        ):
            first, stop = last.first_row, group.first_row + group.rows
            of_group = sizes[group.file_name, group.number]
            whole = (first, stop) == (0, of_group.borders[-1])
            longest[-1] = replace(
                last,
                rows=stop - first,
                size=of_group.between(first, stop),
                high=group.high,
                first_row=None if whole else first,
            )
        else:
            longest.append(group)
    return longest


def writes_alike(stored: TableSchema, current: TableSchema) -> bool:
    """Return whether a file of schema ``stored`` has the columns and the encoding of a file of schema ``current``."""

    def encoding(schema: TableSchema) -> dict[str, str]:
        return {name: value for name, value in schema.options.items() if name.startswith(_OPTIONS_OF_FILES)}

    return stored.id == current.id or (stored.fields == current.fields and encoding(stored) == encoding(current))


def rows_by_file(groups: Iterable[SplicedGroup]) -> dict[str, int]:
    """Return the number of spliced rows of each file."""
    rows: dict[str, int] = {}
    for group in groups:
        rows[group.file_name] = rows.get(group.file_name, 0) + group.rows
    return rows


def numbers_of(groups: Iterable[SplicedGroup], file_name: str) -> Collection[int]:
    """Return the indexes of the row groups of a file that are spliced whole."""
    return frozenset(group.number for group in groups if group.file_name == file_name and group.first_row is None)


def rows_left(groups: Iterable[SplicedGroup], file_name: str, rows: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """Return the rows of a file that are not spliced, in row groups of which parts are.

    Args:
        groups: spliced row groups and parts, in key order.
        file_name: name of the file.
        rows: number of rows of each row group of the file.

    Returns:
        For each such row group, ranges of rows as (first row, row after the last one), ascending.
    """
    left: dict[int, list[tuple[int, int]]] = {}
    ends: dict[int, int] = {}
    for group in groups:
        if group.file_name == file_name and group.first_row is not None:
            ranges, end = left.setdefault(group.number, []), ends.get(group.number, 0)
            if end < group.first_row:
                ranges.append((end, group.first_row))
            ends[group.number] = group.first_row + group.rows
    for number, end in ends.items():
        if number < len(rows) and end < rows[number]:
            left[number].append((end, rows[number]))
    return left


__all__ = [
    "LEAST_ROWS",
    "SplicedGroup",
    "choose_groups",
    "cut_evenly",
    "join_parts",
    "numbers_of",
    "rows_by_file",
    "rows_left",
    "writes_alike",
]
