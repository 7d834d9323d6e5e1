"""Maintenance that touches metadata only: it runs on the driver and starts no Spark job, and is here so that one import serves Spark users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsm_core.maintenance.actions.expire_snapshots.expiry import ExpiryReport, plan_expiry
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.apply import dry_run as report_only
from lsm_core.spark.jobs import store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def expire_snapshots(
    spark: SparkSession,
    table: Any,
    *,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than_ms: int | None = None,
    max_deletes: int | None = None,
    dry_run: bool = False,
) -> ExpiryReport:
    """Expire snapshots of ``table`` by the format's rules (None: the table's options); ``dry_run`` only reports.

    ``older_than_ms`` is an epoch time. Files are recorded in the trash, or deleted at once with `dredge.delete-mode=direct`.
    Raises UnsupportedFeature, PlanStale, CorruptFile.
    """
    del spark  # reachability is a join over metadata: less work than starting a job
    store = store_of(table)
    plan = plan_expiry(
        store, retain_max=retain_max, retain_min=retain_min, older_than_ms=older_than_ms, max_deletes=max_deletes
    )
    if dry_run:
        report = report_only(plan)
        assert isinstance(report, ExpiryReport)
        return report
    done = apply_plan(store, plan)
    assert isinstance(done, ExpiryReport)
    return done


__all__ = ["expire_snapshots"]
