"""Pure bytes of the table format: rows, hashes, schemas, snapshots, manifests, statistics, paths. No file, no clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.format import hashing as _hashing
from lsm_core.format.binary_row import EMPTY_ROW, binary_row, decode_row, decode_rows, encode_row, encode_rows
from lsm_core.format.file_meta import (
    EMPTY_STATS,
    ENTRY_SCHEMA,
    DataFileMeta,
    ManifestEntry,
    SimpleStats,
    entries_to_table,
    table_to_entries,
)
from lsm_core.format.hashing import hash_rows
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.types import from_arrow


def bucket_of(
    batch: pa.RecordBatch | pa.Table, keys: Sequence[str], n: int, function: str = "default"
) -> npt.NDArray[np.int32]:
    """Bucket (int32, 0 to ``n - 1``) of each row of ``batch`` by its columns ``keys``, typed as Arrow types them.

    ``function`` is `default`, `mod` or `hive`. Raises :class:`InvalidOption` for another function or ``n`` below 1. Writers of tables use
    `hashing.bucket_of`, which takes the table's own types (a TIMESTAMP(3) hashes otherwise than a TIMESTAMP(6)).
    """
    columns = [batch.column(name) for name in keys]
    return _hashing.bucket_of(columns, [from_arrow(column.type) for column in columns], n, function)


__all__ = [
    "EMPTY_ROW",
    "EMPTY_STATS",
    "ENTRY_SCHEMA",
    "CommitKind",
    "DataField",
    "DataFileMeta",
    "ManifestEntry",
    "SimpleStats",
    "Snapshot",
    "TableSchema",
    "binary_row",
    "bucket_of",
    "decode_row",
    "decode_rows",
    "encode_row",
    "encode_rows",
    "entries_to_table",
    "hash_rows",
    "table_to_entries",
]
