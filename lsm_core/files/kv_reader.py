"""Reader of key-value files, batch by batch, that decodes each key column once and system columns only when needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from lsm_core.files.append_reader import BATCH_ROWS, RowGroups, read_rows, value_columns
from lsm_core.files.positions import Deleted
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, kv_arrow_schema
from lsm_core.metadata.store import TableStore
from lsm_core.types.dictionaries import as_dictionaries


def kv_read_schema(
    store: TableStore,
    columns: Sequence[str] | None = None,
    *,
    need_sequence: bool = True,
    need_kind: bool = True,
    dictionaries: Collection[str] = (),
) -> pa.Schema:
    """Return the schema of the batches of :func:`open_kv` for the same arguments.

    `_KEY_*`, system columns, ``columns``.
    """
    layout = kv_arrow_schema(store.schema)
    names = [KEY_PREFIX + name for name in store.schema.trimmed_primary_keys]
    names += [SEQUENCE_NUMBER] if need_sequence else []
    names += [VALUE_KIND] if need_kind else []
    schema = pa.schema([layout.field(name) for name in (*names, *value_columns(store, columns))])
    return as_dictionaries(schema, dictionaries)


def open_kv(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    *,
    columns: Sequence[str] | None = None,
    need_sequence: bool = True,
    need_kind: bool = True,
    batch_rows: int = BATCH_ROWS,
    row_groups: RowGroups = None,
    deleted: Deleted | None = None,
    dictionaries: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a key-value file in key order, as batches of :func:`kv_read_schema`.

    Thin files get their `_KEY_*` from the value columns. If both `_KEY_<c>` and ``<c>`` are stored, one is decoded and
    used for both, so damage in the second is not detected here. Files of older schemas are read by field id: missing
    columns are null, others are cast. The file is opened at the first ``next``.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        columns: value columns to return, in this order; None for all.
        need_sequence: return `_SEQUENCE_NUMBER`.
        need_kind: return `_VALUE_KIND`.
        batch_rows: largest number of rows of a batch.
        row_groups: row groups to read; see :data:`RowGroups`.
        deleted: positions in the whole file that are left out; None for none.
        dictionaries: text columns to return as Arrow dictionaries of int32, whether the file has them so or not.

    Raises:
        ColumnNotFound: a column does not exist.
        CorruptFile: the file is missing, truncated, or differs from its manifest entry; the error names it.
        InvalidData: a value does not fit its column's new type.
    """
    target = kv_read_schema(store, columns, need_sequence=need_sequence, need_kind=need_kind, dictionaries=dictionaries)
    return read_rows(store, partition, bucket, meta, target, batch_rows, row_groups, deleted)
