"""Row groups that a compaction copies as they are ("spliced"): their description, and the choice among them.

A row group may be spliced if no other file has a key in its key range. Between spliced row groups rows are merged. So
that no output has many small row groups, merged rows that are too few for a row group are merged with a neighbouring
row group, which is then not spliced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from lsm_core.files.formats.parquet import ROW_GROUP_ROWS
from lsm_core.format.schema import TableSchema

LEAST_ROWS: Final = ROW_GROUP_ROWS // 2
"""Smallest number of rows of a spliced row group, and of the rows that are merged between two spliced row groups."""

_OPTIONS_OF_FILES: Final = ("file.", "parquet.")
"""Prefixes of the options that decide how rows are encoded."""


@dataclass(frozen=True)
class SplicedGroup:
    """Row group of an input file that the output contains unchanged.

    Attributes:
        file_name: name of the file.
        number: index of the row group in the file.
        rows: number of rows.
        size: bytes of the pages.
        low: smallest key, as a BinaryRow of the trimmed primary key.
        high: largest key, likewise.
    """

    file_name: str
    number: int
    rows: int
    size: int
    low: bytes
    high: bytes

    def to_list(self) -> list[Any]:
        """Return the values for JSON."""
        return [value.hex() if isinstance(value, bytes) else value for value in astuple(self)]

    @staticmethod
    def of_list(values: Sequence[Any]) -> SplicedGroup:
        """Return the row group of :meth:`to_list`.

        Raises:
            ValueError: the values have another form.
        """
        name, number, rows, size, low, high = values
        if not all(isinstance(value, int) and value >= 0 for value in (number, rows, size)):
            raise ValueError(f"a row group {values!r}")
        return SplicedGroup(str(name), number, rows, size, bytes.fromhex(low), bytes.fromhex(high))


def choose_groups(rows: Sequence[int], meets: Sequence[bool], between: Sequence[int], least: int) -> list[int]:
    """Choose the row groups to splice among row groups whose key ranges are disjoint.

    A chosen row group meets no other key and has at least ``least`` rows. Between two chosen row groups, before the
    first and after the last, either no rows are merged or at least ``least`` rows. Rows that would be fewer are merged
    with the next row group, or with the last one at the end.

    Args:
        rows: rows of each row group, in key order.
        meets: whether another file has a key in the key range of each row group.
        between: rows of other files before each row group, and after the last one.
        least: smallest number of rows.

    Returns:
        Indexes of the chosen row groups, ascending.
    """
    chosen: list[int] = []
    merged_before: list[int] = []
    merged = between[0]
    for at, (count, is_met, after) in enumerate(zip(rows, meets, between[1:], strict=True)):
        if is_met or count < least or 0 < merged < least:
            merged += count + after
            continue
        chosen.append(at)
        merged_before.append(merged)
        merged = after
    while chosen and 0 < merged < least:
        merged += rows[chosen.pop()] + merged_before.pop()
    return chosen


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
    """Return the indexes of the spliced row groups of a file."""
    return frozenset(group.number for group in groups if group.file_name == file_name)


__all__ = ["LEAST_ROWS", "SplicedGroup", "choose_groups", "numbers_of", "rows_by_file", "writes_alike"]
