"""`$snapshots`: one row a snapshot, with Paimon's columns."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

SCHEMA = pa.schema(
    [
        pa.field("snapshot_id", pa.int64(), nullable=False),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("commit_user", pa.string(), nullable=False),
        pa.field("commit_identifier", pa.int64(), nullable=False),
        pa.field("commit_kind", pa.string(), nullable=False),
        pa.field("commit_time", pa.timestamp("ms"), nullable=False),
        pa.field("base_manifest_list", pa.string(), nullable=False),
        pa.field("delta_manifest_list", pa.string(), nullable=False),
        pa.field("changelog_manifest_list", pa.string()),
        pa.field("total_record_count", pa.int64()),
        pa.field("delta_record_count", pa.int64()),
        pa.field("changelog_record_count", pa.int64()),
        pa.field("watermark", pa.int64()),
        pa.field("next_row_id", pa.int64()),
    ]
)
_SAME = [field.name for field in SCHEMA if field.name not in {"snapshot_id", "commit_time", "commit_kind"}]


def snapshots_table(store: TableStore, snapshot_id: int | None = None) -> pa.Table:
    """All snapshots, oldest first (or one); record counts are of unmerged rows, times UTC. Raises CorruptFile."""
    found = list(snapshots.iterate(store)) if snapshot_id is None else [snapshots.read(store, snapshot_id)]
    columns = {name: [getattr(snapshot, name) for snapshot in found] for name in _SAME}
    columns["snapshot_id"] = [snapshot.id for snapshot in found]
    columns["commit_time"] = [snapshot.time_millis for snapshot in found]
    columns["commit_kind"] = [snapshot.commit_kind.value for snapshot in found]
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
