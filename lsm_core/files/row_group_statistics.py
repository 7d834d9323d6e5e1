"""Statistics of stored row groups: those that the writer would have computed for the same rows.

Footers have exact bounds for most types. Floating point numbers (NaN, -0.0) are decoded, and so are columns whose
bounds or null counts the footer does not have exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from lsm_core.arrays import arrow_array, plain_schema
from lsm_core.files.formats import thrift
from lsm_core.files.formats.guard import decoding_errors
from lsm_core.files.formats.parquet import ParquetSource
from lsm_core.files.formats.parquet_footer import FLOATS, footer_values
from lsm_core.files.formats.stats_collector import ColumnStatsCollector, bounds
from lsm_core.files.formats.thrift_fields import nested, split_struct
from lsm_core.files.row_groups import CREATED_BY, STATISTICS, StoredGroups
from lsm_core.format.stats import ColumnStats, ColumnValues
from lsm_core.storage import FileIO, Kept
from lsm_core.types.arrow import refit_table

_EXACT_WRITERS: Final = (b"parquet-cpp-arrow ", b"parquet-mr ")
"""Writers whose bounds are values of the column, unless the footer says otherwise."""
_HIGH_EXACT, _LOW_EXACT = 7, 8
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of some rows of a file.

    Attributes:
        rows: number of rows.
        values: bounds and null counts by column; nested columns have none.
    """

    rows: int
    values: ColumnValues


def merge_statistics(parts: Sequence[GroupStatistics]) -> GroupStatistics:
    """Return the statistics of rows from those of their parts, which have the same columns.

    Bounds are unknown if a part with values has no bounds. A null count is unknown if that of a part is unknown.
    """
    names = parts[0].values if parts else ()
    merged = {name: _merge([(part.rows, part.values[name]) for part in parts]) for name in names}
    return GroupStatistics(sum(part.rows for part in parts), merged)


def _merge(parts: Sequence[tuple[int, ColumnStats]]) -> ColumnStats:
    """Return the statistics of a column from (number of rows, statistics) of its parts."""
    counts = [stats.null_count for _, stats in parts]
    nulls = None if None in counts else sum(count or 0 for count in counts)
    bounded = [stats for _, stats in parts if not stats.minimum.null_count and not stats.maximum.null_count]
    unbounded = sum(stats.null_count != rows for rows, stats in parts) > len(bounded)
    if not bounded or unbounded:
        unknown = pa.nulls(1, parts[0][1].minimum.type)
        return ColumnStats(unknown, unknown, nulls)
    low = bounds(pa.concat_arrays([stats.minimum for stats in bounded]))[0]
    high = bounds(pa.concat_arrays([stats.maximum for stats in bounded]))[1]
    return ColumnStats(low, high, nulls)


class GroupStatisticsReader:
    """Reader of statistics and end keys of the row groups of one file; it decodes only what the footer lacks.

    Raises:
        CorruptFile: the file is damaged.
    """

    def __init__(
        self,
        file_io: FileIO,
        groups: StoredGroups,
        schema: pa.Schema,
        kept: Kept | None = None,
        *,
        without_nan: Collection[str] = (),
    ) -> None:
        """Prepare the reader; the file is opened when values are decoded.

        Args:
            file_io: file system of the file.
            groups: row groups of the file.
            schema: Arrow schema of the file as its writer had it; dictionaries count as their values.
            kept: cache of footers, or None.
            without_nan: columns of floating point numbers that are known to have no NaN, which footers leave out.
        """
        self._without_nan = without_nan
        self._file_io, self._groups, self._kept = file_io, groups, kept
        self._schema = plain_schema(schema)
        self._source: ParquetSource | None = None
        writer = groups.heads.get(CREATED_BY, (0, b""))[1]
        self._known_writer = thrift.Reader(writer).value(thrift.BINARY).startswith(_EXACT_WRITERS) if writer else False

    def statistics(self, number: int) -> GroupStatistics:
        """Return the statistics of a row group.

        Raises:
            CorruptFile: bounds are not values of their columns.
            UnsupportedFeature: row groups of the file are not copied.
        """
        footer = self._groups.footer
        group = footer.groups[number]
        with decoding_errors(self._groups.path, "Parquet"):
            values = footer_values(footer._replace(rows=group.rows, groups=[group]), self._schema)
        values.update(self._float_bounds(number, values))
        inexact = set(self._inexact(number, values))
        counted = [name for name, stats in values.items() if stats.null_count is None and name not in inexact]
        if inexact or counted:
            collector = ColumnStatsCollector(inexact, only_nulls=counted, of_bytes=True)
            for rows in self._decode([*inexact, *counted], number):
                collector.add(rows)
            values = {**values, **collector.values()}
        return GroupStatistics(group.rows, values)

    def close(self) -> None:
        """Close the file."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _inexact(self, number: int, values: ColumnValues) -> Iterator[str]:
        """Yield the columns whose bounds in the footer are not exact, or not in Java's order."""
        chunks = self._groups.parts(number).chunks
        for field in self._schema:
            leaf = self._groups.footer.single(field.name)
            if field.name not in values or leaf is None:
                continue
            if pa.types.is_floating(field.type):
                if values[field.name].minimum.null_count:
                    yield field.name
            elif not pa.types.is_timestamp(field.type) or field.type.unit != "ns":  # Java has no bounds of these
                meta = chunks[leaf].meta
                stored = split_struct(nested(meta, STATISTICS, thrift.STRUCT))[0] if STATISTICS in meta else {}
                shortened = any(stored.get(flag, (0, b""))[0] == thrift.FALSE for flag in (_HIGH_EXACT, _LOW_EXACT))
                if shortened or not self._known_writer or not self._groups.footer.leaves[leaf].ordered:
                    yield field.name

    def _float_bounds(self, number: int, values: ColumnValues) -> dict[str, ColumnStats]:
        """Return the statistics of columns without NaN from the footer; not if a bound may be a zero of either sign."""
        exact: dict[str, ColumnStats] = {}
        footer = self._groups.footer
        for name in self._without_nan:
            leaf = footer.single(name)
            if leaf is None or name not in values or footer.leaves[leaf].physical not in FLOATS:
                continue
            chunk, kind = footer.groups[number].chunks[leaf], self._schema.field(name).type
            if chunk.low is None or chunk.high is None or chunk.nulls is None or not self._known_writer:
                continue
            low, high = (
                struct.unpack(FLOATS[footer.leaves[leaf].physical], side)[0] for side in (chunk.low, chunk.high)
            )
            if low <= high and low and high:
                exact[name] = ColumnStats(arrow_array([low], kind), arrow_array([high], kind), chunk.nulls)
        return exact

    def _decode(self, names: Iterable[str], number: int) -> Iterator[pa.Table]:
        """Yield the values of columns of a row group, with the types of the schema."""
        names = list(names)
        if self._source is None:
            path, rows = self._groups.path, self._groups.footer.rows
            self._source = ParquetSource(self._file_io, path, size=None, rows=rows, kept=self._kept)
        schema = pa.schema([self._schema.field(name) for name in names])
        for batch in self._source.batches(names, _BATCH_ROWS, [number]):
            yield refit_table(pa.Table.from_batches([batch.select(names)]), schema)
