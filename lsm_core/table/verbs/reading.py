"""Verbs that read a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.read import Split, plan_scan, to_arrow, to_batches
from lsm_core.table.verbs.on_table import OnTable


class Reading(OnTable):
    """Reads of the newest version or of another one."""

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        limit: int | None = None,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> pa.Table:
        """Merged rows of the newest version, or of the one named, with the schema of its time.

        ``timestamp_ms``: the newest snapshot committed then or before (epoch ms); ``watermark``: the oldest that reached it.
        Raises SnapshotNotFound, ColumnNotFound, InvalidFilter, CorruptFile, UnsupportedFeature.
        """
        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        scan = plan_scan(self.store, columns=columns, filter=filter, **named)  # type: ignore[arg-type]
        return to_arrow(self.store, scan, limit=limit)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        limit: int | None = None,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As :meth:`to_arrow`, streaming, in bounded memory; errors in the arguments are raised at once."""
        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        scan = plan_scan(self.store, columns=columns, filter=filter, **named)  # type: ignore[arg-type]
        return to_batches(self.store, scan, limit=limit)

    def plan_scan(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> list[Split]:
        """The splits of a read, picklable, for engines; arguments as in :meth:`to_arrow`."""
        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return list(plan_scan(self.store, columns=columns, filter=filter, **named).splits)  # type: ignore[arg-type]

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, None when nothing was committed."""
        return snapshots.latest(self.store)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that can be read, oldest first."""
        return list(snapshots.iterate(self.store))
