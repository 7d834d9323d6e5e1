"""Parquet files of encoded rows and of row groups that are copied from other files ("spliced").

Arrow's writer cannot add encoded row groups. So the rows of each new row group are encoded into memory as a file of
their own, and then copied to the output like row groups of other files.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lsm_core.arrays import numpy_array, plain_schema
from lsm_core.errors import CorruptFile
from lsm_core.files.formats import FileSink, open_sink
from lsm_core.files.formats.guard import create_output, disk_full_errors, open_checked, quietly_abort, quietly_close
from lsm_core.files.formats.parquet import EXTENSION, ParquetSource
from lsm_core.files.formats.parquet_footer import group_bounds
from lsm_core.files.row_group_copier import MOST_GROUPS, CopiedBytes, RowGroupCopier
from lsm_core.files.row_group_parts import GroupPages
from lsm_core.files.row_group_statistics import GroupStatistics, GroupStatisticsReader, merge_statistics
from lsm_core.files.row_groups import StoredGroups, read_groups
from lsm_core.format.schema import SEQUENCE_NUMBER
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO

_MOST_WAITING: Final = 64
"""Largest number of row groups that wait to be copied to the output."""
_MOST_IN_MEMORY: Final = 32 << 20
"""Largest total bytes of those that wait in memory: encoded rows, and parts of row groups."""
OpenPart = Callable[[FileIO, str, pa.Table], FileSink]
"""Function that creates a Parquet file; its arguments are file system, path and first rows."""


class MemoryFile:
    """File in memory, which is also the file system that opens it."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = content

    def open_input(self, path: str) -> pa.BufferReader:
        """Open the file, whatever its path."""
        del path
        return pa.BufferReader(self._content)


@dataclass(frozen=True)
class StoredGroup:
    """Row group of a file, to be spliced into another file.

    Attributes:
        groups: row groups of the file.
        number: index of the row group.
        keys: first and last key, two rows with the columns of the trimmed primary key.
        size: bytes of the pages.
        memory: the file, if it is in memory: a part of a row group (:func:`part_of_group`).
        without_nan: columns of floating point numbers that are known to have no NaN.
    """

    groups: StoredGroups
    number: int
    keys: pa.RecordBatch
    size: int
    memory: MemoryFile | None = None
    without_nan: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.groups.group_rows[self.number]

    def nulls(self, name: str) -> int | None:
        """Return the number of nulls of a top-level column outside of lists, or None if the footer does not say."""
        leaf = self.groups.footer.single(name)
        return None if leaf is None else self.groups.footer.groups[self.number].chunks[leaf].nulls

    def sequences(self) -> tuple[int, int]:
        """Return the smallest and the largest sequence number; those of a part are decoded, not believed.

        Raises:
            CorruptFile: the footer does not have them.
        """
        path, footer = self.groups.path, self.groups.footer
        if self.memory is not None:
            source = ParquetSource(self.memory, path, size=None, rows=self.rows)  # type: ignore[arg-type]
            with closing(source):
                numbers = [numpy_array(part.column(0)) for part in source.batches([SEQUENCE_NUMBER], self.rows)]
            return int(min(part.min() for part in numbers)), int(max(part.max() for part in numbers))
        alone = footer._replace(rows=self.rows, groups=[footer.groups[self.number]])
        bounds = group_bounds(alone, pa.schema([(SEQUENCE_NUMBER, pa.int64())]), SEQUENCE_NUMBER, path)
        if bounds is None:
            raise CorruptFile(path, "its row groups have no bounds of the sequence numbers")
        low, high = (int(numpy_array(side)[0]) for side in bounds)
        return low, high


class _MemoryOutput(io.BytesIO):
    """Output file in memory, which is also the file system that creates it."""

    def open_output(self, path: str) -> _MemoryOutput:
        del path
        return self

    def abort(self) -> None:
        super().close()

    def close(self) -> None:
        """Keep the bytes for :meth:`getbuffer`."""


def encoded_groups(
    open_part: OpenPart, path: str, rows: pa.Table
) -> tuple[pa.BufferReader, StoredGroups, GroupStatistics]:
    """Encode rows as one row group of a Parquet file in memory; without rows the file has no row group.

    Args:
        open_part: function that creates the file.
        path: path for errors.
        rows: the rows.

    Returns:
        The file, its row groups, and the statistics of its rows.
    """
    memory = _MemoryOutput()
    sink = open_part(memory, path, rows)  # type: ignore[arg-type]
    try:
        if rows.num_rows:
            sink.write(rows)
        _, values = sink.close()
    except BaseException:
        sink.discard()
        raise
    source = pa.BufferReader(memory.getbuffer())
    return source, read_groups(source, path), GroupStatistics(rows.num_rows, values)


def part_of_group(
    source: Any, groups: StoredGroups, pages: GroupPages, first: int, stop: int
) -> tuple[MemoryFile, StoredGroups]:
    """Copy a part of a row group into a Parquet file in memory, whose only row group it is.

    Args:
        source: the open file.
        groups: row groups of the file.
        pages: pages of the row group.
        first: first row of the part, one of the borders of ``pages``.
        stop: row after the last one, likewise.

    Returns:
        The file in memory, and its row groups. Their path is that of ``groups``, for errors.

    Raises:
        CorruptFile: the file is damaged.
    """
    memory = _MemoryOutput()
    copier = RowGroupCopier(memory, groups.path)
    copier.copy_part(source, groups, pages, first, stop)
    copier.close()
    part = MemoryFile(memory.getbuffer())
    return part, read_groups(part.open_input(groups.path), groups.path)


def part_opener(options: TableOptions, level: int, dictionary: tuple[str, ...], delta: tuple[str, ...]) -> OpenPart:
    """Return the function that creates Parquet files with a table's options.

    Args:
        options: options of the table.
        level: level of the files.
        dictionary: columns that get a dictionary in any case.
        delta: columns that are delta-encoded.
    """

    def open_part(file_io: FileIO, path: str, rows: pa.Table) -> FileSink:
        return open_sink(
            file_io, path, rows, options, level=level, file_format=EXTENSION, dictionary=dictionary, delta=delta
        )

    return open_part


class SplicingSink:
    """Parquet file that is being written, from rows and from row groups of other files.

    The sink never overwrites a file. The file is complete only after :meth:`close` has returned. With a ``copier``
    thread, row groups are copied to the output while the caller encodes the next ones; their errors are raised by a
    later call.
    """

    def __init__(
        self, file_io: FileIO, path: str, schema: pa.Schema, open_part: OpenPart, copier: Executor | None = None
    ) -> None:
        """Create the file ``path``.

        Args:
            file_io: file system of the file, and of the files of spliced row groups.
            path: path of the file.
            schema: schema of the file.
            open_part: function that creates a file of the same settings.
            copier: executor of one thread; None to copy in the calling thread.
        """
        self.path = path
        self.rows = 0
        self.position = 0
        """Bytes of the pages of all row groups so far, also of those that wait to be copied."""
        self._groups = 0
        self._thread = copier
        self._waiting: deque[tuple[Future[None], int]] = deque()
        """Row groups that wait for the copier, with their bytes in memory."""
        self._file_io, self._schema, self._open_part = file_io, plain_schema(schema), open_part
        self._statistics: list[GroupStatistics] = []
        self._reader: GroupStatisticsReader | None = None
        self._input: Any = None
        self._input_path = ""
        self.spliced: list[CopiedBytes] = []
        """Spliced ranges of the file, with the digests of their bytes in the sources."""
        with create_output(file_io, path) as self._output:
            self._copier = RowGroupCopier(self._output, path)

    @property
    def is_full(self) -> bool:
        """Whether the file has the most row groups, so that no further one can be added."""
        return self._groups >= MOST_GROUPS

    def write(self, rows: pa.Table) -> None:
        """Append ``rows`` as one row group.

        Raises:
            StorageFull: the disk is full.
        """
        source, groups, statistics = encoded_groups(self._open_part, self.path, rows)

        def copy() -> None:
            self._copier.copy(source, groups, [0])
            self._add(statistics)

        self._append(copy, statistics.rows, groups.pages[0].size, in_memory=True)

    def splice(self, group: StoredGroup) -> None:
        """Append a row group of another file.

        Columns whose bounds are not in footers are decoded, such as floats.

        Raises:
            CorruptFile: the file of the row group is damaged.
            StorageFull: the disk is full.
            UnsupportedFeature: the file has another layout than this one.
        """
        groups, number, memory = group.groups, group.number, group.memory

        def copy() -> None:
            known = len(self._copier.copied)
            if memory is None:
                source, reader = self._open_input(groups, group.without_nan)
                self._copier.copy(source, groups, [number])
                self._add(reader.statistics(number))
            else:
                self._copier.copy(memory.open_input(groups.path), groups, [number])
                reader = GroupStatisticsReader(
                    memory,  # type: ignore[arg-type]
                    groups,
                    self._schema,
                    without_nan=group.without_nan,
                )
                with reader:
                    self._add(reader.statistics(number))
            self.spliced += self._copier.copied[known:]

        self._append(copy, group.rows, group.size, in_memory=memory is not None)

    def _append(self, copy: Callable[[], None], rows: int, size: int, *, in_memory: bool) -> None:
        """Copy a row group of ``rows`` rows and ``size`` bytes now, or after those that wait for the copier."""
        self.rows += rows
        self.position += size
        self._groups += 1
        if self._thread is None:
            copy()
            return
        while self._waiting and (
            self._waiting[0][0].done()
            or len(self._waiting) >= _MOST_WAITING
            or (in_memory and sum(held for _, held in self._waiting) + size > _MOST_IN_MEMORY)
        ):
            self._waiting.popleft()[0].result()
        self._waiting.append((self._thread.submit(copy), size if in_memory else 0))

    def _add(self, statistics: GroupStatistics) -> None:
        self._statistics.append(statistics)
        if len(self._statistics) >= _MOST_WAITING:
            self._statistics = [merge_statistics(self._statistics)]

    def _open_input(self, groups: StoredGroups, without_nan: frozenset[str]) -> tuple[Any, GroupStatisticsReader]:
        if self._reader is None or groups.path != self._input_path:
            self._close_input()
            with open_checked(self._file_io, groups.path, "Parquet", None) as self._input:
                self._input_path = groups.path
            self._reader = GroupStatisticsReader(self._file_io, groups, self._schema, without_nan=without_nan)
        return self._input, self._reader

    def _close_input(self) -> None:
        if self._input is not None:
            quietly_close(self._input)
        if self._reader is not None:
            self._reader.close()
        self._input, self._input_path, self._reader = None, "", None

    def close(self) -> tuple[int, ColumnValues]:
        """Finish the file; return its exact size in bytes and the bounds and null counts of its columns."""
        while self._waiting:
            self._waiting.popleft()[0].result()
        self._close_input()
        with disk_full_errors(self.path):
            self._copier.close()
            self._output.close()
        return self._copier.position, merge_statistics(self._statistics).values

    def discard(self) -> None:
        """Close and remove the unfinished file after a failure."""
        wait([copied for copied, _ in self._waiting])
        self._close_input()
        quietly_abort(self._output)


__all__ = [
    "MemoryFile",
    "OpenPart",
    "SplicingSink",
    "StoredGroup",
    "encoded_groups",
    "part_of_group",
    "part_opener",
]
