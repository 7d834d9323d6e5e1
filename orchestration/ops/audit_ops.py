"""Audit: an independent reader verifies compactions again, for a nightly sample of tables or two given snapshots."""

from __future__ import annotations

import time

import dagster as dg
from pydantic import Field

from dredge.checks.definition import apply_severity, is_switched_off, report_evaluation, report_result
from dredge.checks.merged_view import compare_with_previous, to_check_result
from dredge.checks.undo_protection import keep_for_undo
from dredge.orchestration.ops.common import TableFailed, fail_in_one_line, job_op, process_tables
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import read_newest_records
from dredge.platform_core.health import refusal_of
from dredge.platform_core.metadata import Launchpad
from dredge.platform_core.obstacles import find_blocking_failure
from dredge.platform_core.partitions import usable_keys
from dredge.platform_core.policies import Policy, policy_source
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource, list_tables
from lsm_core.errors import CorruptFile, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.partitions import partition_text
from lsm_core.maintenance import VerifyReport, newest_compaction, verify_snapshots
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore


class AuditConfig(dg.Config):
    """Configuration of the job `audit`."""

    tables: int = Field(5, description="most tables to audit, the least recently audited first")
    minutes: float = Field(60.0, description="minutes after which no further table starts")


class VerifyConfig(dg.Config):
    """Configuration of the job `verify_snapshots`."""

    table: str = Field(description="full name of the table: db.table")
    snapshot_a: int = Field(description="first snapshot")
    snapshot_b: int = Field(description="snapshot that must have the same rows")


@job_op(
    "audit_tables",
    "Compare the newest compaction of a sample of tables with the snapshot before it, "
    "by Spark SQL over the raw files (V3).",
    config=AuditConfig,
    kind="spark",
    pool=names.SPARK_POOL,
)
def audit_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Verify the newest compaction of each table in a sample again."""
    config = AuditConfig(**context.op_config)
    start_seconds, audited = time.monotonic(), 0
    tables, left_out = list_tables(warehouse)
    policies = policy_source(*warehouse.policy_place).current()
    for line in left_out:
        context.log.warning(line)

    def audit(table: str) -> None:
        nonlocal audited
        if audited >= config.tables:
            return
        store = warehouse.store(table)
        blocked = find_blocking_failure(context.instance, warehouse.names.layout_key(table))
        if blocked is not None:  # a newer, correct compaction would clear the failure of an older one
            context.log.info("%s: left alone: %s", table, blocked)
            return
        policy = policies.of(table)
        if is_switched_off(policy, names.MERGED_VIEW_CHECK):
            return
        published = None if refusal_of(store) is not None else newest_compaction(store)
        if published is None:
            return
        if time.monotonic() - start_seconds >= config.minutes * 60:
            context.log.info("limit of %g minutes reached: %s is audited next time", config.minutes, table)
            audited = config.tables
            return
        audited += 1
        _audit_table(context, warehouse, spark, policy, table, published)

    process_tables(context, {table: table for table in sort_by_last_audit(context.instance, warehouse, tables)}, audit)
    context.add_output_metadata({"tables compared": audited, "tables": len(tables)})


def sort_by_last_audit(instance: dg.DagsterInstance, warehouse: WarehouseResource, tables: list[str]) -> list[str]:
    """Sort tables by the time of their newest evaluation of merged_view_unchanged.

    Returns:
        The tables; never compared tables come first, then the least recently compared.
    """
    keys = {table: dg.AssetCheckKey(warehouse.names.layout_key(table), names.MERGED_VIEW_CHECK) for table in tables}
    records = read_newest_records(instance, keys.values())
    times = {key: record.create_timestamp for key, record in records.items()}
    return sorted(tables, key=lambda table: (times.get(keys[table], 0.0), table))


def _audit_table(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    policy: Policy,
    table: str,
    published: int,
) -> None:
    """Verify the compaction that published a snapshot, and report the result as the check merged_view_unchanged.

    Args:
        context: context of the op.
        warehouse: warehouse of the table.
        spark: Spark resource for the comparison.
        policy: policy of the table, with the severity of the check.
        table: full name of the table.
        published: id of the snapshot.

    Raises:
        TableFailed: the snapshots differ, or a file is damaged.
    """
    launchpad = Launchpad(context.run, warehouse.names)
    try:
        try:
            report, note = compare_with_previous(warehouse, spark, table, published), ""
        except UnsupportedFeature as error:
            report = verify_snapshots(warehouse.store(table), published - 1, published)
            note = f"; compared by digests only: {error}"
    except SnapshotNotFound as error:
        context.log.info("%s: %s: it is audited next time", table, error)
        return
    except CorruptFile as error:
        kept_files = keep_for_undo(warehouse.store(table), published, launchpad, error)
        text = f"snapshot {published} cannot be trusted: {error}; {kept_files.text}"
        result = dg.AssetCheckResult(passed=False, description=text, metadata=kept_files.metadata)
    else:
        kept_if_different = None if report.ok else keep_for_undo(warehouse.store(table), published, launchpad)
        result = to_check_result(report, f"{note}; by the nightly audit", kept_if_different)
    result = apply_severity(result, policy, names.MERGED_VIEW_CHECK)
    context.log.info("%s: %s", table, result.description)
    for partition in _changed_partitions(warehouse.store(table), published):
        report_evaluation(context, warehouse.names.layout_key(table), result, partition)
    if not result.passed:
        raise TableFailed(str(result.description))


def _changed_partitions(store: TableStore, published: int) -> list[str | None]:
    """Return the partitions that a snapshot changed, as Dagster names them; [None] for a table without partitions.

    Args:
        store: the table.
        published: id of the snapshot.
    """
    if not store.schema.partition_keys:
        return [None]
    changed = manifests.delta_entries(store, snapshots.read(store, published)).column("partition").unique().to_pylist()
    return [
        *usable_keys(sorted(partition_text(store.schema, partition_row, store.options) for partition_row in changed))[0]
    ]


@job_op(
    "compare_snapshots",
    "Compare the merged rows of two snapshots of a table by bucket, "
    "with Spark SQL if they are consecutive (V3), else by digests.",
    config=VerifyConfig,
    pool=names.SPARK_POOL,
)
def compare_snapshots_op(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
    """Compare two snapshots of a table."""
    config = VerifyConfig(**context.op_config)
    context.instance.add_run_tags(context.run_id, {names.TAG_ACTION: names.VERIFY_JOB})
    with fail_in_one_line(config.table):
        result = to_check_result(_compare_snapshots(warehouse, spark, config))
    report_result(context, config.table, result)


def _compare_snapshots(warehouse: WarehouseResource, spark: SparkResource, config: VerifyConfig) -> VerifyReport:
    if config.snapshot_b == config.snapshot_a + 1:
        try:
            return compare_with_previous(warehouse, spark, config.table, config.snapshot_b)
        except UnsupportedFeature:
            pass  # Spark SQL cannot read this table: compare digests
    return verify_snapshots(warehouse.store(config.table), config.snapshot_a, config.snapshot_b)
