"""The Table facade: every verb of the engine on one table, each delegating to the room that does it (api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from lsm_core import maintenance
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import (
    BucketHealth,
    CompactionReport,
    ExpiryReport,
    LedgerEntry,
    MaintenancePlan,
    RestoreReport,
    RowStory,
    SweepReport,
    VerifyReport,
)
from lsm_core.maintenance.reports import Report
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read import Split, plan_scan, to_arrow, to_batches
from lsm_core.table.writing import BatchCommit, BatchWrite, write_once
from lsm_core.write import Rows


class Table:
    """One table of a catalog. Immutable: after a schema change open it again. ``store`` is its state for the rooms below."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def __repr__(self) -> str:
        return f"Table({self.store.name!r})"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """ "db.table"."""
        return self.store.name

    @property
    def schema(self) -> TableSchema:
        """The schema in use; ``schema.arrow_schema`` is its Arrow form."""
        return self.store.schema

    @property
    def options(self) -> Mapping[str, str]:
        """Options in force, dynamic ones included."""
        return self.store.options.raw

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """Primary key columns."""
        return self.store.schema.primary_keys

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition columns."""
        return self.store.schema.partition_keys

    def copy(self, options: Mapping[str, str]) -> Table:
        """The same table with dynamic options on top. Raises InvalidOption for an immutable one."""
        return Table(self.store.copy(options))

    # -- changing data ---------------------------------------------------------------------------------------------

    def write(
        self,
        data: Rows,
        row_kinds: pa.Array | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
    ) -> int | None:
        """Write ``data`` (anything that Arrow takes for a table) and commit; returns the snapshot id, None without rows.

        ``row_kinds``: Arrow array of "+I" "-U" "+U" "-D". ``overwrite``: True replaces the table (a partitioned one: the
        partitions in ``data``, unless `dynamic-partition-overwrite` is false), a mapping that partition. Raises InvalidData, UnsupportedFeature, CommitConflict.
        """
        return write_once(self.store, data, row_kinds, overwrite)

    def new_write(self) -> BatchWrite:
        """A writer for one batch commit; hand its messages to :meth:`new_commit`."""
        return BatchWrite(self.store)

    def new_commit(self, commit_user: str | None = None) -> BatchCommit:
        """Publishes the messages of :meth:`new_write`."""
        return BatchCommit(self.store, commit_user)

    # -- reading ---------------------------------------------------------------------------------------------------

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

    def explain_row(self, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowStory:
        """The stored versions of the row with primary key ``key``, newest first, and which of them supplied each column and why.

        A key that is not there gives an empty story. Raises ColumnNotFound, InvalidFilter for a key that does not fit,
        UnsupportedFeature, SnapshotNotFound, CorruptFile, and what reading the row raises.
        """
        return maintenance.explain_row(self.store, key, snapshot_id)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, None when nothing was committed."""
        return snapshots.latest(self.store)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that can be read, oldest first."""
        return list(snapshots.iterate(self.store))

    # -- looking after it ------------------------------------------------------------------------------------------

    def health(self, partition: Mapping[str, Any] | None = None) -> list[BucketHealth]:
        """Condition of every bucket (of one partition), from metadata only."""
        return maintenance.health(self.store, None if partition is None else [partition])

    def plan_maintenance(self, action: str, **args: Any) -> MaintenancePlan:
        """Plan "compact", "expire_snapshots" or "trash"; ``args`` as in the verbs. Raises InvalidOption for another action."""
        return maintenance.plan_maintenance(self.store, action, **args)

    def apply(self, plan: MaintenancePlan, approved_by: str | None = None) -> Report:
        """Apply a plan exactly as it stands. Raises PlanStale, VerificationFailed, CommitConflict."""
        return maintenance.apply_plan(self.store, plan, approved_by=approved_by)

    def compact(
        self,
        full: bool = False,
        partitions: Sequence[Mapping[str, Any]] | None = None,
        buckets: Sequence[int] | None = None,
    ) -> CompactionReport:
        """Plan and apply a compaction; buckets that need none are in ``declined`` with their numbers."""
        plan = maintenance.plan_compaction(self.store, full=full, partitions=partitions, buckets=buckets)
        return cast("CompactionReport", self.apply(plan))

    def expire_snapshots(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than_ms: int | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
    ) -> ExpiryReport:
        """Expire old snapshots (``older_than_ms``: epoch ms); their files wait in the trash for :meth:`sweep_trash`."""
        plan = maintenance.plan_expiry(self.store, retain_max, retain_min, older_than_ms, max_deletes)
        return cast("ExpiryReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def verify(self, snapshot_a: int, snapshot_b: int) -> VerifyReport:
        """Whether two snapshots say the same: by reference where files are the same, else by digest of merged rows."""
        return maintenance.verify_snapshots(self.store, snapshot_a, snapshot_b)

    def restore(self, trash_id: str) -> RestoreReport:
        """Put the expired snapshots of a deletion record back. Raises PlanRefused when its files are (being) deleted."""
        return maintenance.restore(self.store, trash_id)

    def sweep_trash(self, now_ms: int | None = None, dry_run: bool = False) -> SweepReport:
        """Delete recorded files whose grace is over and that nothing needs (``now_ms``: epoch ms, default the clock's)."""
        plan = maintenance.plan_sweep(self.store, now_ms)
        return cast("SweepReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def ledger(self) -> list[LedgerEntry]:
        """What maintenance did to this table, oldest first."""
        return maintenance.read_ledger(self.store)
