"""Digests of rows for verification V1: written files must contain exactly the rows that their writer received.

Rows are digested as a set (`Content`), or column by column to the bit and in order (`Streams`). The writer's rows are
digested by row group (`OutputDigest`): all groups, or one in eight with `dredge.verification` = sampled.

`Streams` is stronger than `Content`, which ignores order, and ten times as fast. `Streams` needs types whose values
Parquet returns unchanged. Nested types, ORC and Avro are compared by `Content`.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lsm_core.arrays import I64, longest_value, numpy_array, plain
from lsm_core.compact.splice import SplicedGroup
from lsm_core.compact.task import COUNTS, FULL, SAMPLED, BucketTask
from lsm_core.files.formats import format_of
from lsm_core.format.schema import SEQUENCE_NUMBER, SEQUENCE_NUMBER_ID, VALUE_KIND, VALUE_KIND_ID, TableSchema
from lsm_core.format.xxhash64 import xxhash64
from lsm_core.merge import Digest
from lsm_core.merge.digest import digest
from lsm_core.metadata.store import TableStore
from lsm_core.types import is_retract

_NOTHING = Digest(0, 0)


@dataclass(frozen=True)
class Content:
    """Digests of live and deleted rows over all table columns, independent of row order and file layout.

    Attributes:
        live: digest of the live rows.
        dead: digest of the deleted rows.
    """

    live: Digest = _NOTHING
    dead: Digest = _NOTHING

    @property
    def rows(self) -> int:
        """Number of live and deleted rows together."""
        return self.live.rows + self.dead.rows

    def plus(self, other: Content) -> Content:
        """Return the digests of all rows of this `Content` and of ``other`` together."""
        return Content(self.live.add(other.live), self.dead.add(other.dead))

    def text(self) -> str:
        """Return the hex digest of the live rows, as reports show it."""
        return f"{self.live.value:032x}"


def counts_of(batch: pa.RecordBatch) -> Content:
    """Return the numbers of live and deleted rows as `Content` without digests, for rows that `Streams` verifies."""
    if VALUE_KIND not in batch.schema.names:
        return Content(live=Digest(batch.num_rows, 0))
    delete_count = int(is_retract(batch.column(VALUE_KIND)).sum())
    return Content(Digest(batch.num_rows - delete_count, 0), Digest(delete_count, 0))


def content_of(batch: pa.RecordBatch, schema: TableSchema, *, exact: bool = False) -> Content:
    """Return the counts and digests (`Content`) of the rows of one batch.

    Args:
        batch: rows with all table columns; without `_VALUE_KIND` every row is live.
        schema: schema of the table.
        exact: whether the digests include sequence numbers and row kinds.
    """
    columns = [(field.id, field.name) for field in schema.fields]
    if exact:
        columns += [(SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER), (VALUE_KIND_ID, VALUE_KIND)]
    if VALUE_KIND not in batch.schema.names:
        return Content(live=digest(batch, columns))
    is_delete = is_retract(batch.column(VALUE_KIND))
    if not is_delete.any():
        return Content(live=digest(batch, columns))
    return Content(
        digest(batch.filter(pa.array(~is_delete)), columns), digest(batch.filter(pa.array(is_delete)), columns)
    )


_DECODED_BYTES: Final = 64 << 20
"""Bytes of a dictionary's values that are decoded at a time."""


class Streams:
    """Hashes of rows: the columns ``names``, and `_SEQUENCE_NUMBER` and `_VALUE_KIND` if a batch has them.

    Args:
        names: names of the table columns to hash.
        coded: names of the text columns that are hashed by values, so that dictionaries are not decoded: each value of
            a dictionary has a 64-bit hash, and these hashes are hashed in the order of the rows. Both sides of a
            comparison must hash the same columns by values.

    Attributes:
        rows: number of rows hashed so far.
        coded: names of the columns that are hashed by values.
    """

    def __init__(self, names: Sequence[str], coded: Collection[str] = ()) -> None:
        self.rows = 0
        self.coded = frozenset(coded)
        self._columns: dict[str, _Column | _CodedColumn] = {
            name: _CodedColumn() if name in self.coded else _Column() for name in (SEQUENCE_NUMBER, VALUE_KIND, *names)
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; columns that are not hashed are ignored."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self.add_column(name, column, self.rows)
        self.rows += batch.num_rows

    def add_column(self, name: str, column: pa.Array, row: int) -> None:
        """Add the values of one column from row number ``row`` on; a column that is not hashed is ignored.

        A caller that adds columns one by one sets :attr:`rows` at the end.
        """
        if name in self._columns:
            self._columns[name].add(column, row)

    @property
    def value(self) -> int:
        """128-bit hash of the values of all columns and of the order of the rows."""
        whole = xxhash.xxh3_128()
        for name, column in self._columns.items():
            whole.update(b"\0".join([name.encode(), *column.value]))
        return whole.intdigest()

    def differing(self, other: Streams) -> list[str]:
        """Return the names of the columns whose values or order differ from those of ``other``."""
        return [name for name, column in self._columns.items() if column.value != other._columns[name].value]


def _plain_parts(column: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Yield the rows of a column as plain arrays that fit into memory, each with the number of its first row."""
    if not pa.types.is_dictionary(column.type):
        yield 0, column
        return
    rows = max(1, _DECODED_BYTES // max(1, longest_value(column)))
    for start in range(0, len(column), rows):
        yield start, plain(column.slice(start, rows))


class _CodedColumn:
    """Hashes of one text column by values: its null positions, and the hash of each value in the order of the rows."""

    def __init__(self) -> None:
        self._nulls, self._values = xxhash.xxh3_128(), xxhash.xxh3_128()
        self._dictionary: pa.Array | None = None
        self._hashes: I64 = np.zeros(0, np.int64)

    @property
    def value(self) -> tuple[bytes, ...]:
        return self._nulls.digest(), self._values.digest()

    def add(self, column: pa.Array, row: int) -> None:
        """Add rows from number ``row`` on, plain or with any dictionary without nulls."""
        if column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            self._nulls.update((missing + row).data)
            column = column.drop_null()
        if not pa.types.is_dictionary(column.type) or len(column.dictionary) > len(column):
            for _, part in _plain_parts(column):
                self._values.update(xxhash64(part).data)
            return
        if self._dictionary is None or not column.dictionary.equals(self._dictionary):
            self._dictionary, self._hashes = column.dictionary, xxhash64(column.dictionary)
        self._values.update(self._hashes[numpy_array(column.indices)].data)


class _Column:
    """Hashes of one column: its null positions, its text lengths and its values."""

    def __init__(self) -> None:
        self._nulls, self._lengths, self._values = xxhash.xxh3_128(), xxhash.xxh3_128(), xxhash.xxh3_128()

    @property
    def value(self) -> tuple[bytes, ...]:
        return self._nulls.digest(), self._lengths.digest(), self._values.digest()

    def add(self, column: pa.Array, row: int) -> None:
        """Add rows from number ``row`` on; a dictionary is decoded in parts that fit into memory."""
        for start, part in _plain_parts(column):
            self._add(part, row + start)

    def _add(self, column: pa.Array, row: int) -> None:
        if column.null_count:
            missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
            self._nulls.update((missing + row).data)
            column = column.drop_null()  # values under nulls are undefined
        if not len(column):
            return
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            _, offsets, data = column.buffers()
            ends = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
            self._lengths.update(np.diff(ends).data)
            if data is not None:
                self._values.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
            return
        if pa.types.is_boolean(column.type):
            self._values.update(memoryview(column.to_numpy(zero_copy_only=False)))
            return
        width = int(column.type.bit_width) // 8
        value_bytes = memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]
        if pa.types.is_floating(column.type):
            values: npt.NDArray[Any] = np.frombuffer(value_bytes, np.float64 if width == 8 else np.float32)
            if np.isnan(values).any():  # all NaNs hash equally
                value_bytes = np.where(np.isnan(values), values.dtype.type(np.nan), values).data
        self._values.update(value_bytes)


def keeps_every_bit(kind: pa.DataType) -> bool:
    """Return whether Parquet returns values of this type bit by bit unchanged: fixed-width types, text and binary."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
    )


SAMPLED_GROUPS: Final = 8
"""With `dredge.verification` = sampled, one row group in this many is re-read."""
_MODULUS: Final = 1 << 128


@dataclass(frozen=True)
class RowGroupDigest:
    """Digest of one row group.

    Attributes:
        rows: number of rows.
        streams: hashes for a comparison of values to the bit and in order, or None.
        content: digest for types or formats that do not keep every bit, or None if ``streams`` is used. Both are None
            if the verification does not re-read the group.
        spliced: the row group of an input file of which the group is a copy, or None. If such a group has digests too,
            they are those of the decoded rows of the input file.
    """

    rows: int
    streams: Streams | None = None
    content: Content | None = None
    spliced: SplicedGroup | None = None

    @property
    def is_read_again(self) -> bool:
        """Whether the verification of the written file re-reads this row group."""
        return self.streams is not None or self.content is not None


class OutputDigest:
    """Digests of the rows that one writer writes, for the verification of its files.

    Call :meth:`add` before and :meth:`written` after each write, and :meth:`finish` at the end.

    Attributes:
        content: numbers of live and deleted rows. Without ``groups`` also the digests of all rows, unless
            `dredge.verification` = counts.
        groups: digests by row group, in write order; None if the format has no row groups (ORC, Avro) or none is read
            again.
    """

    def __init__(self, store: TableStore, task: BucketTask, level: int) -> None:
        self.content = Content()
        self.groups: list[RowGroupDigest] | None = None
        self._schema = store.schema
        self._setting = task.verification
        self._exact = all(keeps_every_bit(field.type) for field in store.schema.arrow_schema)
        if self._setting != COUNTS and format_of(store.options, level) == "parquet":
            self.groups = []
        # A repeated task re-reads the same groups; another bucket or snapshot selects other ones.
        place = zlib.crc32(b"%b/%d/%d" % (task.partition, task.bucket, task.base_snapshot or 0))
        self._first = place % SAMPLED_GROUPS
        self._spliced = False
        self._pending: list[pa.RecordBatch] = []
        self._unless_any: list[pa.RecordBatch] = []
        """Rows of the newest row group, as long as no group was selected."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows that will be written next."""
        if self.groups is None and self._setting != COUNTS:
            self.content = self.content.plus(content_of(batch, self._schema))
            return
        self.content = self.content.plus(counts_of(batch))
        if self.groups is not None:
            self._pending.append(batch)

    def written(self, group_rows: Sequence[int]) -> None:
        """Compute the digests of the rows of the row groups that were written since the last call.

        ``group_rows``: rows of all row groups so far.
        """
        if self.groups is None:
            return
        for rows in group_rows[len(self.groups) :]:
            batches = self._take(rows)
            if self._setting == FULL or len(self.groups) % SAMPLED_GROUPS == self._first:
                self.groups.append(self._digest_group(rows, batches))
                self._unless_any = []
            else:
                self._unless_any = [] if any(group.is_read_again for group in self.groups) else batches
                self.groups.append(RowGroupDigest(rows))

    def add_spliced(self, group: SplicedGroup, batches: Sequence[pa.RecordBatch]) -> None:
        """Add a spliced row group, after :meth:`written` for all row groups before it.

        Args:
            group: the row group.
            batches: its rows, if they shall be compared after decoding; empty for a comparison of bytes only.
        """
        self._spliced = True
        self.content = self.content.plus(Content(live=Digest(group.rows, 0)))
        if self.groups is not None:
            digest_of_rows = self._digest_group(group.rows, batches) if batches else RowGroupDigest(group.rows)
            self.groups.append(replace(digest_of_rows, spliced=group))

    def finish(self, group_rows: Sequence[int]) -> None:
        """Add the last rows to the digests; if no row group was selected for re-reading, select the last row group."""
        self.written(group_rows)
        if self.groups and self._unless_any:
            last = max(place for place, group in enumerate(self.groups) if group.spliced is None)
            self.groups[last] = self._digest_group(self.groups[last].rows, self._unless_any)
        self._pending, self._unless_any = [], []

    @property
    def digest(self) -> int | None:
        """128-bit digest of the rows (of the live rows if :attr:`groups` is None).

        None unless verification is full and no row group was spliced.
        """
        if self._spliced or self._setting in (COUNTS, SAMPLED):
            return None
        if self.groups is None:
            return self.content.live.value
        values = [group.streams.value for group in self.groups if group.streams is not None]
        values += [group.content.live.value for group in self.groups if group.content is not None]
        return sum(values) % _MODULUS

    def _take(self, rows: int) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        while rows and self._pending:
            batch = self._pending[0]
            batches.append(batch.slice(0, rows))
            if batch.num_rows > rows:
                self._pending[0] = batch.slice(rows)
            else:
                self._pending.pop(0)
            rows -= batches[-1].num_rows
        return batches

    def _digest_group(self, rows: int, batches: Sequence[pa.RecordBatch]) -> RowGroupDigest:
        if self._exact:
            names = self._schema.field_names
            streams = Streams(names, [name for name in names if _is_coded(batches, name)])
            for batch in batches:
                streams.add(batch)
            return RowGroupDigest(rows, streams=streams)
        content = Content()
        for batch in batches:
            content = content.plus(content_of(batch, self._schema))
        return RowGroupDigest(rows, content=content)


def _is_coded(batches: Sequence[pa.RecordBatch], name: str) -> bool:
    """Return whether a column is a dictionary of texts without nulls in every batch."""
    columns = [batch.column(name) for batch in batches]
    return bool(columns) and all(
        pa.types.is_dictionary(column.type)
        and pa.types.is_string(column.type.value_type)
        and not column.dictionary.null_count
        for column in columns
    )
