"""Decoded bytes of a row, from which batch sizes are computed before anything large is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from lsm_core.files import open_append
from lsm_core.files.append_reader import open_source
from lsm_core.files.evolution import Evolution
from lsm_core.format.manifest import DataFileMeta
from lsm_core.metadata.store import TableStore
from lsm_core.types.dictionaries import as_dictionaries

_FILES: Final = 2
_PROBE_ROWS: Final = 256
_SYSTEM_BYTES: Final = 9.0
"""Bytes of the sequence number and row kind."""
_TEXT_BYTES_KEY: Final = "text bytes"
_REPEATING_KEY: Final = "repeating texts"
_KEPT_BYTES: Final = 256


def decoded_row_bytes(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], columns: Sequence[str]
) -> float:
    """Return the average decoded bytes of a row of ``columns``, from the files with the largest rows on disk.

    Fixed-width columns are counted by type. The size of text comes from the footer where it is stored plain. Where text
    is stored as a dictionary, the file's size does not show it, so the first rows of these columns are decoded.
    """
    schema = store.schema.arrow_schema
    fixed = _SYSTEM_BYTES + sum(_width(schema.field(name).type) for name in columns)
    texts = [name for name in columns if not _width(schema.field(name).type)]
    largest = 0.0
    if texts:
        for file in sorted(files, key=lambda f: -f.file_size / max(1, f.row_count))[:_FILES]:
            largest = max(largest, _text_bytes(store, partition, bucket, file, texts))
    return fixed + largest


def repeating_texts(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], names: Sequence[str]
) -> list[str]:
    """Return the text columns of ``names`` whose values repeat in the largest of ``files``, by its footer."""
    texts = [name for name in names if pa.types.is_string(store.schema.arrow_schema.field(name).type)]
    if not texts or not files:
        return []
    file = max(files, key=lambda f: f.file_size)
    cache_key = (_REPEATING_KEY, store.schema.id, file.file_name, *texts)
    repeating: list[str] | None = store.kept.get(cache_key)
    if repeating is None:
        with closing(open_source(store, partition, bucket, file)) as source:
            target = pa.schema([store.schema.arrow_schema.field(name) for name in texts])
            evolution = Evolution.of(store, file, source.schema, as_dictionaries(target, texts), source.path)
            stored = set(source.repeating_texts(evolution.dictionaries))
        repeating = [column.field.name for column in evolution.columns if column.stored in stored]
        store.kept.put(cache_key, repeating, _KEPT_BYTES)
    return repeating


def _width(kind: pa.DataType) -> float:
    """Return the bytes of a value, or 0 for types of variable length."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return 0.0


def _text_bytes(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, texts: list[str]) -> float:
    """Return the average decoded bytes of the columns ``texts`` of a row together; cached with the table."""
    cache_key = (_TEXT_BYTES_KEY, store.schema.id, file.file_name, *texts)
    cached: float | None = store.kept.get(cache_key)
    if cached is not None:
        return cached
    with closing(open_source(store, partition, bucket, file)) as source:
        plain = source.value_bytes(texts)
    total = sum(plain.values())
    unknown = [name for name in texts if name not in plain]
    if unknown:
        rows = open_append(store, partition, bucket, file, columns=unknown, batch_rows=_PROBE_ROWS)
        with closing(rows):  # type: ignore[type-var]
            batch = next(rows, None)
        total += 0.0 if batch is None else batch.nbytes / max(1, batch.num_rows)
    store.kept.put(cache_key, total, _KEPT_BYTES)
    return total
