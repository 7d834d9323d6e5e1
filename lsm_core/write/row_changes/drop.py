"""Rows that go by metadata alone: all of them, or whole partitions (Java `truncateTable`, `dropPartitions`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.commit import Committer
from lsm_core.commit.changes import partitions_of
from lsm_core.format.binary_row import decode_rows
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Predicate

_PLACE = "_PLACE"


def truncate(store: TableStore) -> int | None:
    """Empty the table in one OVERWRITE commit; rows committed before it go, whoever wrote them. None: it was empty.

    Raises UnsupportedFeature, CommitConflict, CommitUnknown.
    """
    return Committer(store).drop(None).snapshot_id


def drop_partitions(store: TableStore, partitions: Sequence[Mapping[str, Any]]) -> int | None:
    """Delete all rows of the partitions that one of ``partitions`` matches (columns may be left out); None: there were none.

    Raises InvalidOption for no specs or an empty one, ColumnNotFound, InvalidData, UnsupportedFeature, CommitConflict.
    """
    return Committer(store).drop(partitions).snapshot_id


def matching_partitions(store: TableStore, predicate: Predicate) -> list[bytes] | None:
    """The partitions whose rows all match a filter over partition columns alone; None for any other filter."""
    keys = store.schema.partition_keys
    if not keys or predicate.by_position or not predicate.columns or not set(predicate.columns) <= set(keys):
        return None
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return []
    found = partitions_of(manifests.live_entries(store, snapshot, columns=["partition"]))
    values = decode_rows(pa.array(found, pa.binary()), list(store.schema.partition_types))
    batch = pa.RecordBatch.from_arrays([*values, pa.array(range(len(found)))], names=[*keys, _PLACE])
    return [found[place] for place in np.asarray(predicate.apply(batch).column(_PLACE))]


__all__ = ["drop_partitions", "matching_partitions", "truncate"]
