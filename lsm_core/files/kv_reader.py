"""Reads key-value files batch by batch, decoding each key column once and system columns only when asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from lsm_core.files.append_reader import BATCH_ROWS, RowGroups, read_rows, value_columns
from lsm_core.files.positions import Deleted
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, kv_arrow_schema
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
    """Schema of the batches that :func:`open_kv` gives for the same arguments: `_KEY_*`, system columns, ``columns``."""
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
    """Rows of a key-value file in key order, as batches of :func:`kv_read_schema`, at most ``batch_rows`` rows each.

    ``columns`` chooses value columns (None: all). Thin files get their `_KEY_*` from the value columns. Where both are
    stored one is decoded and serves as both (damage in the other, `_KEY_<c>` or ``<c>``, is not noticed here). Files of older schemas are read by field id: columns they lack are null, others
    cast. ``deleted``: positions in the whole file that do not come out. Text columns among ``dictionaries`` come as Arrow dictionaries
    of int32, whether the file holds them so or not. The file opens at the first ``next``. Raises
    :class:`ColumnNotFound` on an unknown column, :class:`CorruptFile` naming the file when it is missing, cut short, or not
    what its manifest entry says, and :class:`InvalidData` for a value that its column's new type cannot take.
    """
    target = kv_read_schema(store, columns, need_sequence=need_sequence, need_kind=need_kind, dictionaries=dictionaries)
    return read_rows(store, partition, bucket, meta, target, batch_rows, row_groups, deleted)


__all__ = ["kv_read_schema", "open_kv"]
