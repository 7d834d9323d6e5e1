"""File indexes: whether a file's bloom filter, bitmap or range index rules out every row that the filter asks for.

An index kept inside the manifest is asked while a read is planned, one beside its data file just before that file would be
opened. Where rows have to be merged an index is a statement about values like any other: see `files`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.format.file_index import FileIndex
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Conjunct, Predicate
from lsm_core.read.prune.bounds import Mask


def embedded_mask(store: TableStore, entries: pa.Table, predicate: Predicate, mask: Mask) -> Mask:
    """``mask`` without the files whose index, kept inside the manifest, proves that no row matches. Raises CorruptFile."""
    indexes = entries.column("embedded_index")
    if predicate.groups is None or not _enabled(store) or indexes.null_count == len(indexes):
        return mask
    mask = mask.copy()
    for row in np.flatnonzero(mask & np.asarray(pc.is_valid(indexes))):  # files, not rows of data
        schema = store.schema_of(entries.column("schema_id")[row].as_py())
        index = FileIndex.decode(indexes[row].as_py(), f"index of {entries.column('file_name')[row].as_py()}")
        mask[row] = _may_match(store.schema, schema, index, predicate)
    return mask


def ruled_out(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta, predicate: Predicate) -> bool:
    """Whether the index that lies beside a file proves that none of its rows matches. Raises CorruptFile naming the index."""
    if predicate.groups is None or file.embedded_index is not None:  # that one was asked when the read was planned
        return False
    index = file_index(store, partition, bucket, file)
    if index is None:
        return False
    return not _may_match(store.schema, store.schema_of(file.schema_id), index, predicate)


def _enabled(store: TableStore) -> bool:
    return bool(store.options.get("file-index.read.enabled"))


def _may_match(today: TableSchema, written: TableSchema, index: FileIndex, predicate: Predicate) -> bool:
    groups = predicate.groups or ()
    return any(all(_test_may_match(today, written, index, test) for test in group) for group in groups)


def _test_may_match(today: TableSchema, written: TableSchema, index: FileIndex, test: Conjunct) -> bool:
    """Whether a row of the file can pass; values whose column has another type since prove nothing."""
    now = today.field(test.column)
    then = next((field for field in written.fields if field.id == now.id), None)
    if then is None or then.type.with_nullable(nullable=True) != now.type.with_nullable(nullable=True):
        return True
    return index.may_match(then.name, then.type, test.op, test.value)


__all__ = ["embedded_mask", "ruled_out"]
