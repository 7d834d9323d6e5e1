"""Reads key-value files batch by batch, decoding each key column once and system columns only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lsm_core.files.append_reader import BATCH_ROWS, assemble, missing_column, open_source, value_columns
from lsm_core.files.formats.parquet import ParquetSource
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, kv_arrow_schema
from lsm_core.metadata.store import TableStore


def kv_read_schema(
    store: TableStore, columns: Sequence[str] | None = None, *, need_sequence: bool = True, need_kind: bool = True
) -> pa.Schema:
    """Schema of the batches that :func:`open_kv` gives for the same arguments: `_KEY_*`, system columns, ``columns``."""
    layout = kv_arrow_schema(store.schema)
    names = [KEY_PREFIX + name for name in store.schema.trimmed_primary_keys]
    names += [SEQUENCE_NUMBER] if need_sequence else []
    names += [VALUE_KIND] if need_kind else []
    return pa.schema([layout.field(name) for name in (*names, *value_columns(store, columns))])


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
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of a key-value file in key order, as batches of :func:`kv_read_schema`, at most ``batch_rows`` rows each.

    ``columns`` chooses value columns (None: all). Thin files get their `_KEY_*` from the value columns. Where both are
    stored one is decoded and serves as both. The file opens at the first ``next``. Raises :class:`ColumnNotFound` on an unknown column, and :class:`CorruptFile`
    naming the file when it is missing, cut short, or not what its manifest entry says.
    """
    target = kv_read_schema(store, columns, need_sequence=need_sequence, need_kind=need_kind)
    return _rows(store, partition, bucket, meta, target, batch_rows, row_groups)


def _rows(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    target: pa.Schema,
    batch_rows: int,
    row_groups: Sequence[int] | None,
) -> Iterator[pa.RecordBatch]:
    source = open_source(store, partition, bucket, meta)
    try:
        stored = _stored_names(store, source, meta, target)
        for batch in source.batches(sorted(set(stored.values())), batch_rows, row_groups):
            yield assemble(source, batch, target, stored)
    finally:
        source.close()


def _stored_names(store: TableStore, source: ParquetSource, meta: DataFileMeta, target: pa.Schema) -> dict[str, str]:
    """Which stored column serves each target column: keys by whichever of their two copies the file has."""
    present = set(source.schema.names)
    key_columns = {KEY_PREFIX + name: name for name in store.schema.trimmed_primary_keys}
    stored = {}
    for name in target.names:
        chosen = key_columns.get(name, name)
        if chosen not in present and KEY_PREFIX + chosen in present:
            chosen = KEY_PREFIX + chosen
        if chosen not in present:
            raise missing_column(store, source, meta, name)
        stored[name] = chosen
    return stored


__all__ = ["kv_read_schema", "open_kv"]
