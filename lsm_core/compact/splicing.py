"""Splices of one rewrite: the merged rows with the spliced row groups between them, in key order."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.compact.row_digests import RowGroupDigest
from lsm_core.compact.splice import SplicedGroup, numbers_of, rows_by_file, rows_left
from lsm_core.compact.task import COUNTS, BucketTask
from lsm_core.errors import CorruptFile, DredgeError, VerificationFailed
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.files.formats import FileSource
from lsm_core.files.formats.guard import open_checked, quietly_close
from lsm_core.files.formats.parquet import ParquetSource
from lsm_core.files.row_group_parts import GroupPages, PageIndexes
from lsm_core.files.row_groups import StoredGroups, open_groups, read_groups
from lsm_core.files.splicing import MemoryFile, StoredGroup, part_of_group
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.merge import KeySpec, normalise_keys
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds

_OPEN_FILES: Final = 4
"""Largest number of files whose page indexes are in memory."""


class Splices:
    """Row groups that one rewrite splices.

    Attributes:
        groups: the row groups, in key order.
    """

    def __init__(
        self, store: TableStore, task: BucketTask, files: Sequence[DataFileMeta], within: KeyBounds | None
    ) -> None:
        """Select the task's spliced row groups of some files and in a range of keys.

        Args:
            store: the table.
            task: the task.
            files: files of the rewrite.
            within: range of keys; None for all.
        """
        self._store, self._task, self._within = store, task, within
        self._files = {file.file_name: file for file in files}
        self._spec = KeySpec.of(store.schema, table=store.name)
        mine = [group for group in task.spliced if group.file_name in self._files]
        self._ends = key_columns(store, [key for group in mine for key in (group.low, group.high)])
        keys = normalise_keys(self._ends, nullable=store.schema.nullable_key) if mine else None
        chosen = [
            at
            for at in range(len(mine))
            if keys is not None and (within is None or within.contains(keys.scalar(2 * at)))
        ]
        self.groups = tuple(mine[at] for at in chosen)
        self._places = {group: 2 * at for at, group in zip(chosen, self.groups, strict=True)}
        self._scalars = [(keys.scalar(2 * at), keys.scalar(2 * at + 1)) for at in chosen if keys is not None]
        self._numbers = {name: numbers_of(self.groups, name) for name in {group.file_name for group in self.groups}}
        self._in_parts = {group.file_name for group in self.groups if group.first_row is not None}
        self._stored: dict[str, StoredGroups] = {}
        self._parts: dict[str, _Parts] = {}
        self._numbers_only: dict[str, frozenset[str]] = {}
        """Columns without NaN by name of the file."""
        self._lock = threading.Lock()
        """For the parts of files, which the merge and the writer read on two threads."""
        self._part: tuple[SplicedGroup, MemoryFile, StoredGroups] | None = None
        # One row group of a rewrite is also decoded, so that the judge sees rows of spliced row groups too.
        place = zlib.crc32(b"%b/%d/%d" % (task.partition, task.bucket, task.base_snapshot or 0))
        self._sampled = self.groups[place % len(self.groups)] if self.groups and task.verification != COUNTS else None

    def file_of(self, group: SplicedGroup) -> DataFileMeta:
        """Return the input file of a row group."""
        return self._files[group.file_name]

    def open_rest(
        self, store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not spliced, as `files.open_kv` does; ``options`` are its arguments."""
        without = self._numbers.get(meta.file_name, ())
        if meta.file_name in self._in_parts:
            return self._open_between_parts(meta, options)
        if self._within is not None:
            return self._within.open(store, partition, bucket, meta, without=without, **options)

        def choose(source: FileSource) -> list[int] | None:
            return [number for number in range(len(source.group_rows)) if number not in without] if without else None

        return open_kv(store, partition, bucket, meta, row_groups=choose, **options)

    def _open_between_parts(self, meta: DataFileMeta, options: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not spliced, if parts of its row groups are."""
        place = self._store, self._task.partition, self._task.bucket, meta
        within, whole = self._within, self._numbers[meta.file_name]
        parts = self._parts_of(meta)
        rows = parts.groups.group_rows
        left = rows_left(self.groups, meta.file_name, rows)
        number = 0
        while number < len(rows):  # runs of whole row groups, and between them the rest of one row group
            if number in left:
                for first, stop in left[number]:
                    memory, part = parts.part(number, first, stop)
                    source = ParquetSource(memory, part.path, size=None, rows=stop - first)  # type: ignore[arg-type]
                    with closing(open_kv(*place, source=source, **options)) as batches:  # type: ignore[type-var]
                        for batch in batches:
                            start, end = (0, batch.num_rows) if within is None else within.rows(batch)
                            if start < end:
                                yield batch.slice(start, end - start)
                number += 1
                continue
            first_group = number
            while number < len(rows) and number not in left:
                number += 1
            numbers = [at for at in range(first_group, number) if at not in whole]
            if not numbers:
                continue
            if within is None:
                decoded = open_kv(*place, row_groups=numbers, **options)
            else:
                decoded = within.open(*place, without=frozenset(range(len(rows))).difference(numbers), **options)
            with closing(decoded) as batches:  # type: ignore[type-var]
                yield from batches

    def between(
        self, merged: Generator[pa.RecordBatch, None, None]
    ) -> Generator[pa.RecordBatch | SplicedGroup, None, None]:
        """Yield merged rows and spliced row groups in key order.

        Raises:
            VerificationFailed: a merged row has a key in the key range of a spliced row group.
        """
        next_group = 0
        with closing(merged):
            for batch in merged:
                while next_group < len(self.groups) and batch.num_rows:
                    low, high = self._scalars[next_group]
                    if self._spec.keys(batch.slice(batch.num_rows - 1)).scalar(0) < low:  # type: ignore[operator]
                        break
                    keys = self._spec.keys(batch)
                    stop = keys.bisect(low, right=False)
                    if keys.scalar(stop) <= high:  # type: ignore[operator]
                        group = self.groups[next_group]
                        reason = f"row group {group.number} of {group.file_name} meets a key, and cannot be spliced"
                        raise VerificationFailed("V0", [reason])
                    if stop:
                        yield batch.slice(0, stop)
                    yield self.groups[next_group]
                    next_group += 1
                    batch = batch.slice(stop)
                if batch.num_rows:
                    yield batch
                del batch  # released before the next batch is merged
        yield from self.groups[next_group:]

    def stored(self, group: SplicedGroup) -> StoredGroup:
        """Return a row group as the writer splices it.

        Raises:
            CorruptFile: the file is missing or damaged.
        """
        at = self._places[group]
        names = [f"key {place}" for place in range(len(self._ends))]
        keys = pa.RecordBatch.from_arrays([column.slice(at, 2) for column in self._ends], names)
        if group.first_row is not None:
            memory, part = self._part_of(group)
            self._part = None  # the writer holds it as long as it needs it
            return StoredGroup(part, 0, keys, part.pages[0].size, memory, self._without_nan(group))
        if group.file_name not in self._stored:
            self._stored.clear()  # files follow each other: one footer in memory
            file = self._files[group.file_name]
            path = self._store.data_path(self._task.partition, self._task.bucket, file)
            self._stored[group.file_name] = open_groups(self._store.file_io, path, size=file.file_size)
        stored = self._stored[group.file_name]
        return StoredGroup(stored, group.number, keys, group.size, without_nan=self._without_nan(group))

    def _without_nan(self, group: SplicedGroup) -> frozenset[str]:
        """Return the columns of a row group's file that have no NaN, by the statistics of the file.

        NaN is the largest value in Java's order. Other writers may leave NaN out of statistics, but the files of which
        row groups are spliced have the layout of Dredge's.
        """
        file, schema = self._files[group.file_name], self._store.schema
        if file.file_name not in self._numbers_only:
            names = schema.field_names if file.value_stats_cols is None else file.value_stats_cols
            floats = {field.name for field in schema.arrow_schema if pa.types.is_floating(field.type)}
            largest: list[pa.Array] = []
            if floats.intersection(names) and all(schema.has_field(name) for name in names):
                with suppress(DredgeError):  # statistics that cannot be read tell nothing
                    row = arrow_array([file.value_stats.max_values], pa.binary())
                    largest = list(decode_rows(row, [schema.field(name).type for name in names]))
            self._numbers_only[file.file_name] = frozenset(
                name
                for name, value in zip(names, largest, strict=False)
                if name in floats and not value.null_count and not np.isnan(numpy_array(value)[0])
            )
        return self._numbers_only[file.file_name]

    def _part_of(self, group: SplicedGroup) -> tuple[MemoryFile, StoredGroups]:
        """Return a file in memory with a spliced part of a row group."""
        if self._part is None or self._part[0] is not group:
            assert group.first_row is not None
            file = self._files[group.file_name]
            memory, part = self._parts_of(file).part(group.number, group.first_row, group.first_row + group.rows)
            self._part = group, memory, part
        return self._part[1:]

    def _parts_of(self, file: DataFileMeta) -> _Parts:
        with self._lock:
            if file.file_name not in self._parts:
                if len(self._parts) >= _OPEN_FILES:  # files follow each other, and the merge is a little ahead
                    del self._parts[next(iter(self._parts))]
                self._parts[file.file_name] = _Parts(self._store, self._task.partition, self._task.bucket, file)
            return self._parts[file.file_name]

    def sampled_rows(self, group: SplicedGroup) -> list[pa.RecordBatch]:
        """Return the rows of a row group if its rows are verified like merged rows, else no rows.

        Raises:
            CorruptFile: the file is missing or damaged.
        """
        if group is not self._sampled:
            return []
        file = self._files[group.file_name]
        place = self._store, self._task.partition, self._task.bucket, file
        numbers, source = [group.number], None
        if group.first_row is not None:
            memory, part = self._part_of(group)
            numbers = [0]
            source = ParquetSource(memory, part.path, size=None, rows=group.rows)  # type: ignore[arg-type]
        with closing(open_kv(*place, row_groups=numbers, source=source)) as batches:  # type: ignore[type-var]
            return list(batches)

    def unseen(self, after: Sequence[DataFileMeta], written: Sequence[RowGroupDigest] | None) -> dict[str, int]:
        """Return the number of spliced rows by file, of input and new files, that are not decoded.

        Args:
            after: the new files, in key order.
            written: row groups of the new files, in the same order; None if no new file is re-read.
        """
        rows = rows_by_file(group for group in self.groups if group is not self._sampled)
        files = iter(after)
        name, left = "", 0
        for group in written or ():
            while left <= 0:
                file = next(files)
                name, left = file.file_name, file.row_count
            left -= group.rows
            if group.spliced is not None and group.spliced is not self._sampled:
                rows[name] = rows.get(name, 0) + group.rows
        return rows


class _Parts:
    """Parts of the row groups of one file; only its footer and page indexes stay in memory."""

    def __init__(self, store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta) -> None:
        """Read the footer and the page indexes.

        Raises:
            CorruptFile: the file is missing or damaged.
        """
        self._file_io, self._size = store.file_io, meta.file_size
        self._path = store.data_path(partition, bucket, meta)
        with open_checked(self._file_io, self._path, "Parquet", self._size) as source:
            self.groups = read_groups(source, self._path)
            self._indexes = PageIndexes(source, self.groups, KeyValueFileWriter.file_schema(store))
        quietly_close(source)
        self._pages: dict[int, GroupPages] = {}
        """Pages of the row group of the last part."""

    def part(self, number: int, first: int, stop: int) -> tuple[MemoryFile, StoredGroups]:
        """Return a file in memory with some rows of a row group, and its row group.

        Raises:
            CorruptFile: the file is damaged, or no page begins or ends at these rows.
        """
        pages = self._pages.get(number)
        if pages is None and number < len(self.groups.group_rows):
            pages = self._indexes.of(number)
            self._pages = {} if pages is None else {number: pages}
        if pages is None or not {first, stop} <= set(pages.borders) or first >= stop:
            raise CorruptFile(self._path, f"row group {number} has no pages from row {first:,} to row {stop:,}")
        with open_checked(self._file_io, self._path, "Parquet", self._size) as source:
            part = part_of_group(source, self.groups, pages, first, stop)
        quietly_close(source)
        return part


def key_columns(store: TableStore, keys: Sequence[bytes]) -> list[pa.Array]:
    """Return the columns of keys that are BinaryRows of the trimmed primary key."""
    return list(decode_rows(arrow_array(keys, pa.binary()), store.schema.trimmed_key_types, "(keys of row groups)"))


__all__ = ["Splices", "key_columns"]
