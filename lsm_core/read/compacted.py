"""Tables of which batch reads see compacted rows only.

Apart from the scan, because health checks use it without reading rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions


def compacted_only(store: TableStore) -> bool:
    """Return whether batch reads see compacted rows only, where each key has one row on any level."""
    return store.options.batch_scan_skips_level0


def has_unmarked_levels(store: TableStore, entries: pa.Table) -> bool:
    """Return whether a bucket of ``entries`` has several levels above 0 from before `deletion-vectors.enabled` was set.

    These levels hold versions of one key, and no vector marks the older ones: Java reads each as a row.
    """
    if not store.has_primary_key or not store.options.deletion_vectors_enabled:
        return False
    schema_ids = pc.unique(entries.column("schema_id")).to_pylist()
    ids_before_vectors = [
        schema_id
        for schema_id in schema_ids
        if not TableOptions(store.schema_of(schema_id).options, store.name, stored=True).deletion_vectors_enabled
    ]
    if not ids_before_vectors:
        return False
    is_older = pc.is_in(
        entries.column("schema_id"), pa.array(ids_before_vectors, entries.schema.field("schema_id").type)
    )
    chosen = entries.filter(pc.and_(is_older, pc.greater(entries.column("level"), 0)))
    levels = chosen.group_by(["partition", "bucket"], use_threads=False).aggregate([("level", "count_distinct")])
    return bool(pc.any(pc.greater(levels.column("level_count_distinct"), 1)).as_py())
