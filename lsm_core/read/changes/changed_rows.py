"""Changed rows as readers receive them: with the chosen columns, and only rows that pass the filter.

The rows come from added files, removed files or changelog files.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.errors import UnsupportedFeature
from lsm_core.files import open_append, open_kv
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.schema import VALUE_KIND
from lsm_core.merge.digest import value_hashes
from lsm_core.metadata.indexes import DeletionFile, read_vector
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read.evolution import read_evolved
from lsm_core.read.merge_read import decoded_row_bytes, read_bucket_merged, read_unmerged
from lsm_core.read.predicate import Predicate, parse_filter
from lsm_core.read.prune import prune_buckets, prune_files, prune_partitions
from lsm_core.read.scan import chosen_columns, read_raw, store_of_split
from lsm_core.read.splits import Split
from lsm_core.types import RowKind, is_retract, kinds_to_text

ROW_KIND: Final = "_ROW_KIND"
"""First column of changed rows: `+I`, `-U`, `+U` or `-D`."""
_KIND_FIELD: Final = pa.field(VALUE_KIND, pa.int8(), nullable=False)


@dataclass(frozen=True)
class Choice:
    """Columns and filter of a read of changes.

    Attributes:
        store: the table as of the schema that rows are read with.
        columns: names of the columns to read, in output order.
        predicate: filter on the rows; None for all rows.
    """

    store: TableStore
    columns: tuple[str, ...]
    predicate: Predicate | None = None

    @staticmethod
    def of(store: TableStore, columns: Sequence[str] | None = None, filter: object = None) -> Choice:  # noqa: A002
        """Check columns and filter against the table's schema.

        Args:
            store: the table as of the schema that rows are read with.
            columns: names of the columns; None for all.
            filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for
                all rows.

        Raises:
            ColumnNotFound: a column does not exist.
            InvalidFilter: the filter is not understood.
            UnsupportedFeature: the table has a column `_ROW_KIND`, which the kinds of the changes would hide.
        """
        hidden = [name for name in store.schema.field_names if name.upper() == ROW_KIND]
        if hidden:
            raise UnsupportedFeature(
                f"reading changes of a table with a column '{hidden[0]}', the "
                "name of their row kinds; rename the column",
                store.name,
            )
        return Choice(store, chosen_columns(store, columns), parse_filter(filter, store.schema, store.name))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Columns to read: the chosen columns and the columns that the filter reads."""
        if self.predicate is None:
            return self.columns
        if self.predicate.by_position:
            return self.store.schema.field_names
        return (*self.columns, *(name for name in self.predicate.columns if name not in self.columns))

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of batches inside the reader: the row kind as a number (`_VALUE_KIND`), then the chosen columns."""
        return pa.schema([_KIND_FIELD, *(self.store.schema.arrow_schema.field(name) for name in self.columns)])

    @cached_property
    def text_schema(self) -> pa.Schema:
        """Schema of the rows that callers receive: the row kind as text (`_ROW_KIND`), then the chosen columns."""
        kind = pa.field(ROW_KIND, pa.string(), nullable=False)
        return pa.schema([kind, *(self.store.schema.arrow_schema.field(name) for name in self.columns)])

    def keep(self, batch: pa.RecordBatch, kinds: pa.Array | int) -> pa.RecordBatch:
        """Return the rows of ``batch`` that pass the filter, with :attr:`schema`.

        Args:
            batch: rows with at least the columns :attr:`needed`.
            kinds: the row kind of each row, or one kind for all rows.
        """
        if isinstance(kinds, int):
            kinds = arrow_array(np.full(batch.num_rows, kinds, np.int8))
        arrays = [*(batch.column(name) for name in self.needed), kinds]
        whole = pa.RecordBatch.from_arrays(arrays, names=[*self.needed, VALUE_KIND])
        if self.predicate is not None:
            whole = self.predicate.apply(whole)
        arrays = [whole.column(whole.num_columns - 1), *(whole.column(name) for name in self.columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def with_text_kinds(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of :attr:`schema` to :attr:`text_schema`: the row kinds become text."""
        arrays = [kinds_to_text(batch.column(0)), *batch.columns[1:]]
        return pa.RecordBatch.from_arrays(arrays, schema=self.text_schema)


Rows = Generator[pa.RecordBatch, None, None]
_HASH_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_FILES_AT_ONCE: Final = 1_024
_BATCH_BYTES: Final = 32 * 1024 * 1024
_MOST_ROWS: Final = 65_536
_FEWEST_ROWS: Final = 16
_MEASURED_FILE_BYTES: Final = 4 * 1024 * 1024
"""Smallest file size (bytes) for which the decoded width of a row is computed before reading.

Smaller files are read in batches of a fixed number of rows.
"""


def file_rows(choice: Choice, entries: pa.Table) -> Rows:
    """Yield the rows of ``entries`` unmerged: bucket by bucket, file by file in the order of the entries.

    Rows of a key are not merged, so each file without a row that passes the filter can be skipped.

    If keys can move between partitions, rows that remove a key from a partition come before rows that add the key to a
    partition.

    Args:
        choice: columns and filter.
        entries: files to read (`ENTRY_SCHEMA`).

    Yields:
        Batches of ``choice.schema``.
    """
    store, predicate = choice.store, choice.predicate
    entries = prune_buckets(
        store.schema,
        prune_partitions(store.schema, entries, predicate),
        predicate,
        store.options.bucket_function,
    )
    entries = prune_files(store, entries, predicate, disjoint=True)
    moving = store.bucket_mode is BucketMode.CROSS_PARTITION and len(pc.unique(entries.column("partition"))) > 1
    if moving and _may_retract(entries):
        yield from _leaving_first(choice, entries)
        return
    for partition, bucket, files in bucket_files(entries):
        for file in files:
            with closing(_rows_of(choice, partition, bucket, file)) as batches:
                yield from batches


def _may_retract(entries: pa.Table) -> bool:
    """Return whether a row of these files may be a retract; True if a file has no count of retracts (old writers)."""
    counts = one_array(pc.fill_null(entries.column("delete_row_count"), arrow_scalar(1, pa.int64())), pa.int64())
    return bool((numpy_array(counts) > 0).any())


def _leaving_first(choice: Choice, entries: pa.Table) -> Rows:
    """Yield the rows of keys whose last change in their bucket is a retract, bucket by bucket, then all other rows.

    If a key moved to a new partition within the snapshot, its row in the new partition is in the second part. A
    consumer that applies changes by key alone therefore ends with the new row. In partition order the new row could
    come first. Within a bucket the rows of a key keep their order, because all of them are in the same part. Buckets
    with retracts are read twice, and their key columns twice more. One hash for each row of one bucket's files is held
    in memory.
    """
    keys = choice.store.schema.primary_keys
    key_choice = Choice(choice.store, keys)
    for first in (True, False):
        for partition, bucket, _, part in bucket_groups(entries):
            leaving = np.empty(0, np.uint64)
            if _may_retract(part):
                hashes, retracts = [leaving], [np.empty(0, np.bool_)]
                for _, _, files in bucket_files(part):
                    for file in files:
                        with closing(_rows_of(key_choice, partition, bucket, file)) as batches:
                            for batch in batches:
                                hashes.append(_key_hashes(batch, keys))
                                retracts.append(is_retract(batch.column(VALUE_KIND)))
                leaving = _leaving(np.concatenate(hashes), np.concatenate(retracts))
            if first and not len(leaving):
                continue
            for _, _, files in bucket_files(part):
                for file in files:
                    with closing(_rows_of(choice, partition, bucket, file, (leaving, first))) as batches:
                        yield from batches


def _key_hashes(batch: pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return one hash for each row; rows of the same key have the same hash."""
    hashes = np.zeros(batch.num_rows, np.uint64)
    for name in keys:
        hashes = hashes * _HASH_MULTIPLIER + value_hashes(batch.column(name))
    return hashes


def _leaving(hashes: npt.NDArray[np.uint64], retracts: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return the sorted hashes of keys whose last row is a retract.

    ``hashes``: hash of each row's key, with the rows in order. ``retracts``: mask of the rows that are retracts.
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    last = np.append(ordered[1:] != ordered[:-1], True) if len(ordered) else np.empty(0, np.bool_)
    leaving: npt.NDArray[np.uint64] = ordered[last & retracts[order]]
    return leaving


def bucket_files(entries: pa.Table) -> Iterator[tuple[bytes, int, list[DataFileMeta]]]:
    """Yield (partition, bucket, up to 1,024 files of the bucket) until all files are yielded.

    A million files as Python objects would need too much memory.
    """
    for partition, bucket, _, part in bucket_groups(entries):
        for start in range(0, part.num_rows, _FILES_AT_ONCE):
            part_entries = table_to_entries(part.slice(start, _FILES_AT_ONCE))
            yield partition, bucket, [entry.file for entry in part_entries]


def _rows_of(
    choice: Choice,
    partition: bytes,
    bucket: int,
    file: DataFileMeta,
    chosen: tuple[npt.NDArray[np.uint64], bool] | None = None,
) -> Rows:
    """Yield the rows of one file that pass the filter, in batches of up to about 32 MiB.

    ``chosen``: sorted hashes of keys, and a flag: True yields only rows with these keys, False only rows with other
    keys. None yields all rows.
    """
    store, needed = choice.store, choice.needed
    keys = store.schema.primary_keys
    if chosen is not None:
        needed = (*needed, *(name for name in keys if name not in needed))
    batch_rows = _MOST_ROWS
    if file.file_size >= _MEASURED_FILE_BYTES:
        width = decoded_row_bytes(store, partition, bucket, [file], needed)
        batch_rows = int(max(_FEWEST_ROWS, min(_BATCH_BYTES / max(1.0, width), _MOST_ROWS)))
    if store.has_primary_key:
        batches = open_kv(store, partition, bucket, file, columns=needed, need_sequence=False, batch_rows=batch_rows)
    else:
        batches = open_append(store, partition, bucket, file, columns=needed, batch_rows=batch_rows)
    with closing(batches):  # type: ignore[type-var]
        for batch in batches:
            if chosen is not None:
                among = np.isin(_key_hashes(batch, keys), chosen[0], assume_unique=False)
                batch = batch.filter(arrow_array(among == chosen[1]))
            kept = choice.keep(batch, batch.column(VALUE_KIND) if store.has_primary_key else int(RowKind.INSERT))
            if kept.num_rows:
                yield kept


def split_rows(choice: Choice, split: Split, *, deletes: bool = False) -> Rows:
    """Yield the merged rows of a split with their row kinds, as batches of ``choice.schema``.

    As in Java, rows of a raw split are inserts. Merged rows have the row kind that is stored in the file.

    Args:
        choice: columns and filter.
        split: the split to read.
        deletes: return the stored row kinds for raw splits too, and also deleted rows, as `$audit_log` does.
    """
    store = store_of_split(choice.store, split)
    choice = choice if store is choice.store else replace(choice, store=store)
    if not store.has_primary_key or (split.raw and not deletes):
        place = split.partition, split.bucket
        rows = (
            read_raw(store, split, columns=choice.needed, predicate=choice.predicate)
            if split.raw
            else read_evolved(store, place, split.files, split.vectors, choice.needed)
        )
        with closing(rows) as batches:
            for batch in batches:
                yield from _unless_empty(choice.keep(batch, int(RowKind.INSERT)))
        return
    merged = merged_rows(choice, (split.partition, split.bucket), split.files, split.vectors, deletes=deletes)
    with closing(merged) as batches:
        for batch in batches:
            yield from _unless_empty(choice.keep(batch, batch.column(VALUE_KIND)))


def merged_rows(
    choice: Choice,
    place: tuple[bytes, int],
    files: Sequence[DataFileMeta],
    deletions: Mapping[str, DeletionFile],
    *,
    deletes: bool = False,
) -> Rows:
    """Yield the merged rows of some files of one bucket as whole KV batches, in key order.

    Args:
        choice: table and columns; its filter is not applied.
        place: partition (BinaryRow bytes) and bucket.
        files: files of the bucket to merge.
        deletions: deletion vectors by file name.
        deletes: yield deleted rows too.
    """
    if choice.store.options.clusters_keys and all(file.level > 0 for file in files):
        return read_unmerged(choice.store, place, files, deletions, choice.needed, keep_deletes=deletes)
    return read_bucket_merged(
        choice.store,
        *place,
        files,
        columns=choice.needed,
        keep_deletes=deletes,
        keep_system=True,
        deletions=deletions,
    )


def removed_rows(
    choice: Choice, entries: pa.Table, deletions: Mapping[tuple[bytes, int], Mapping[str, DeletionFile]]
) -> Rows:
    """Yield the merged rows of the files of ``entries``, bucket by bucket, every row as `-D`.

    Args:
        choice: columns and filter.
        entries: files that were removed (`ENTRY_SCHEMA`).
        deletions: the deletion vectors of the files at their removal, by partition and bucket, then by file name.

    Source: ``ReverseReader``.
    """
    store = choice.store
    entries = prune_partitions(store.schema, entries, choice.predicate)
    for partition, bucket, _, part in bucket_groups(entries):
        files = [entry.file for entry in table_to_entries(part)]
        vectors = deletions.get((partition, bucket), {})
        with closing(merged_rows(choice, (partition, bucket), files, vectors)) as batches:
            for batch in batches:
                yield from _unless_empty(choice.keep(batch, int(RowKind.DELETE)))


def plain_rows(
    choice: Choice, place: tuple[bytes, int], files: Sequence[DataFileMeta], deletions: Mapping[str, DeletionFile]
) -> Rows:
    """Yield the rows of append files as `+I`, without the rows that deletion vectors mark as deleted.

    Args:
        choice: columns and filter.
        place: partition (BinaryRow bytes) and bucket of the files.
        files: the append files.
        deletions: location of each file's deletion vector, by file name.
    """
    for file in files:
        vector = deletions.get(file.file_name)
        deleted = None if vector is None else read_vector(choice.store, vector, file.row_count)
        rows = open_append(choice.store, *place, file, columns=choice.needed, deleted=deleted)
        with closing(rows) as batches:  # type: ignore[type-var]
            for batch in batches:
                yield from _unless_empty(choice.keep(batch, int(RowKind.INSERT)))


def _unless_empty(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows:
        yield batch
