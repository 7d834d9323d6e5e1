"""audit: what maintenance published is compared once more, by the second path: every night a sample of tables, or two snapshots that somebody names.

The sample goes round: each night takes the tables that were compared the longest ago.
"""

from __future__ import annotations

import time
from functools import cache

import dagster as dg
from pydantic import Field

from checks.definition import evaluation_of, is_off, named, show_verdict, under_policy
from checks.merged_view import compare, judge
from lsm_core.errors import CorruptFile, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance import VerifyReport, newest_compaction, verify_snapshots
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from orchestration import names
from orchestration.blocked import blocking_failure
from orchestration.health import refusal_of
from orchestration.ops.each_table import TableFailed, each_table
from orchestration.ops.kept_for_undo import kept_for_undo
from orchestration.ops.table_ops import said_in_one_line
from orchestration.partitions import usable_keys
from orchestration.policies import Policy, policy_source
from orchestration.quirks import typed
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource, list_tables


class Audit(dg.Config):
    """What `audit` is given."""

    tables: int = Field(5, description="so many tables, those that were audited the longest ago first")
    minutes: float = Field(60.0, description="begin no table once these are over")


class TwoSnapshots(dg.Config):
    """What `verify_snapshots` is given."""

    table: str = Field(description="the table: db.table")
    snapshot_a: int = Field(description="the snapshot before")
    snapshot_b: int = Field(description="the snapshot that must say the same")


@cache
def audit_op() -> dg.OpDefinition:
    """Return the op that compares the newest compactions of a sample of tables once more."""

    @dg.op(
        name="audit_tables",
        description="Compare what the newest compaction of a table published with the snapshot before it, by Spark SQL over the raw files (V3), for a sample of all tables.",
        config_schema=Audit.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/spark": ""},
        pool=names.SPARK_POOL,
    )
    @typed
    def audit_tables(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        asked = Audit(**context.op_config)
        began, looked_at = time.monotonic(), 0
        tables, left_out = list_tables(warehouse.catalog())
        policies = policy_source(warehouse.policy_file).current()
        for line in left_out:
            context.log.warning(line)

        def audit(table: str) -> None:
            nonlocal looked_at
            if looked_at >= asked.tables:
                return
            store = warehouse.store(table)
            blocked = blocking_failure(context.instance, names.layout_key(warehouse.path, table))
            if blocked is not None:  # a newer compaction that is sound would free what an older one left
                context.log.info("%s: left alone: %s", table, blocked)
                return
            policy = policies.of(table)
            if is_off(policy, names.MERGED_VIEW_CHECK):
                return
            published = None if refusal_of(store) is not None else newest_compaction(store)
            if published is None:
                return
            if time.monotonic() - began >= asked.minutes * 60:
                context.log.info("%g minutes are over: %s comes next time", asked.minutes, table)
                looked_at = asked.tables
                return
            looked_at += 1
            _tell(context, warehouse, spark, policy, table, published)

        each_table(context, {table: table for table in longest_ago_first(context.instance, warehouse, tables)}, audit)
        context.add_output_metadata({"tables compared": looked_at, "tables": len(tables)})

    return audit_tables


def longest_ago_first(instance: dg.DagsterInstance, warehouse: WarehouseResource, tables: list[str]) -> list[str]:
    """Return the tables, those never compared first, then by the time of the newest evaluation of merged_view_unchanged."""
    keys = {
        table: dg.AssetCheckKey(names.layout_key(warehouse.path, table), names.MERGED_VIEW_CHECK) for table in tables
    }
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys.values()))
    times = {key: record.create_timestamp for key, record in records.items()}
    return sorted(tables, key=lambda table: (times.get(keys[table], 0.0), table))


def _tell(
    context: dg.OpExecutionContext,
    warehouse: WarehouseResource,
    spark: SparkResource,
    policy: Policy,
    table: str,
    published: int,
) -> None:
    """Compare one table's compaction and report it as its check. Raises TableFailed where the two differ, SnapshotNotFound where one expired meanwhile."""
    try:
        try:
            found, note = compare(warehouse, spark, table, published), ""
        except UnsupportedFeature as error:
            found = verify_snapshots(warehouse.store(table), published - 1, published)
            note = f"; no second path: {error}"
    except SnapshotNotFound as error:
        context.log.info("%s: %s: it comes next time", table, error)
        return
    except CorruptFile as error:
        kept = kept_for_undo(warehouse.store(table), published)
        text = f"snapshot {published} cannot be trusted: {error}; {kept.text}"
        result = dg.AssetCheckResult(passed=False, description=text, metadata=kept.metadata)
    else:
        differ = None if found.ok else kept_for_undo(warehouse.store(table), published)
        result = judge(found, f"{note}; by the nightly audit", differ)
    result = under_policy(named(names.MERGED_VIEW_CHECK, result), policy)
    context.log.info("%s: %s", table, result.description)
    for partition in _partitions_of(warehouse.store(table), published):
        evaluation = evaluation_of(names.layout_key(warehouse.path, table), result, partition)
        context.log_event(evaluation)  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out
    if not result.passed:
        raise TableFailed(str(result.description))


def _partitions_of(store: TableStore, published: int) -> list[str | None]:
    """Return the partitions that the snapshot changed, as Dagster names them, [None] for a table without any: a check is evaluated by partition."""
    if not store.schema.partition_keys:
        return [None]
    changed = manifests.delta_entries(store, snapshots.read(store, published)).column("partition").unique().to_pylist()
    return [*usable_keys(sorted(partition_text(store.schema, binary, store.options) for binary in changed))[0]]


@cache
def verify_op() -> dg.OpDefinition:
    """Return the op that compares two snapshots which somebody names."""

    @dg.op(
        name="compare_snapshots",
        description="Compare what two snapshots of a table say, bucket by bucket: by Spark SQL when they follow each other (V3), else by digests.",
        config_schema=TwoSnapshots.to_fields_dict(),
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/dredge": ""},
        pool=names.SPARK_POOL,
    )
    @typed
    def compare_snapshots(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        asked = TwoSnapshots(**context.op_config)
        context.instance.add_run_tags(context.run_id, {names.TAG_ACTION: names.VERIFY_JOB})
        with said_in_one_line(asked.table):
            result = judge(_compare(warehouse, spark, asked))
        show_verdict(context, asked.table, result)

    return compare_snapshots


def _compare(warehouse: WarehouseResource, spark: SparkResource, asked: TwoSnapshots) -> VerifyReport:
    if asked.snapshot_b == asked.snapshot_a + 1:
        try:
            return compare(warehouse, spark, asked.table, asked.snapshot_b)
        except UnsupportedFeature:
            pass  # Spark SQL cannot say what the table says: by digests
    return verify_snapshots(warehouse.store(asked.table), asked.snapshot_a, asked.snapshot_b)


__all__ = ["Audit", "TwoSnapshots", "audit_op", "longest_ago_first", "verify_op"]
