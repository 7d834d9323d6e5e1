"""Verbs that look after a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from lsm_core import maintenance
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
from lsm_core.table.verbs.on_table import OnTable


class Maintaining(OnTable):
    """Health, plans and what carries them out."""

    def explain_row(self, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowStory:
        """The stored versions of the row with primary key ``key``, newest first, and which of them supplied each column and why.

        A key that is not there gives an empty story. Raises ColumnNotFound, InvalidFilter for a key that does not fit,
        UnsupportedFeature, SnapshotNotFound, CorruptFile, and what reading the row raises.
        """
        return maintenance.explain_row(self.store, key, snapshot_id)

    def health(self, partition: Mapping[str, Any] | None = None) -> list[BucketHealth]:
        """Condition of every bucket (of one partition), from metadata only."""
        return maintenance.health(self.store, None if partition is None else [partition])

    def plan_maintenance(self, action: str, **args: Any) -> MaintenancePlan:
        """Plan "compact", "expire_snapshots", "rescale" (bucket_num, partitions) or "trash"; ``args`` as in the verbs. Raises InvalidOption for another action."""
        return maintenance.plan_maintenance(self.store, action, **args)

    def apply(self, plan: MaintenancePlan, approved_by: str | None = None) -> Report:
        """Apply a plan exactly as it stands. Raises PlanStale, VerificationFailed, CommitConflict."""
        return maintenance.apply_plan(self.store, plan, approved_by=approved_by)

    def compact(
        self,
        full: bool = False,
        partitions: Sequence[Mapping[str, Any]] | None = None,
        buckets: Sequence[int] | None = None,
        order_by: Sequence[str] | None = None,
        strategy: str = "order",
    ) -> CompactionReport:
        """Plan and apply a compaction; buckets that need none are in ``declined`` with their numbers.

        ``order_by`` sorts an append table without buckets, partition by partition, along ``strategy``: "order" (column by column),
        "zorder" or "hilbert". Rows inserted meanwhile stay. Raises ColumnNotFound, InvalidOption, UnsupportedFeature.
        """
        plan = maintenance.plan_compaction(self.store, full, partitions, buckets, None, order_by, strategy)
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
