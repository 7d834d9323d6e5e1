"""Names that Dagster sees: asset keys, jobs, ops, pools, tags and run keys, defined once for all packages."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import dagster as dg

TAG_TABLE: Final = "dredge/table"
TABLE_NAME: Final = "dagster/table_name"
"""Metadata key of an asset for the full table name, which may have characters that tags do not allow."""
TAG_PARTITION: Final = "dredge/partition"
TAG_PLAN: Final = "dredge/plan"
TAG_ACTION: Final = "dredge/action"
TAG_REASON: Final = "dredge/reason"
TAG_BYTES: Final = "dredge/bytes"
"""Prefix of the run tag for the bytes that a run started by a sensor is expected to read, see `bytes_tag`."""
TAG_UNDO: Final = "dredge/undo"
"""Run tag for the ledger entry of the run, which the job `undo` takes as its argument."""
TAG_FAILURE: Final = "dredge/failure"
"""Run tag for the class of the error that ended a run if no retry heals the error, such as `CorruptFile`."""
TAG_FAILURE_DETAIL: Final = "dredge/failure_detail"
"""Run tag beside `TAG_FAILURE` for the file, the text of the error and the version of the table, as JSON."""
TAG_FAILURES: Final = "dredge/failures"
"""Run tag of a run over many tables of a warehouse (`failures_value`) that recorded a failure (`failure_tag`)."""
TAG_MUTE: Final = "dredge/alerts"
"""Run tag of the jobs that snooze or acknowledge alerts of a warehouse (`mute_value`)."""
TAG_MUTE_DETAIL: Final = "dredge/alerts.detail"
"""Run tag beside `TAG_MUTE` for the alerts, the person and the duration, as JSON."""
UNREADABLE_TABLES: Final = "unreadable tables"
"""Metadata key of a scheduled run for the tables that it could not read, with the error of each, as JSON."""
TAG_WAITS: Final = "dredge/waits"
"""Run tag for the hash of a plan that the run made and that waits for approval."""
COMPARED: Final = "snapshot compared"
"""Metadata key of merged_view_unchanged for the snapshot that was compared with its predecessor."""
KEPT_TAG: Final = "kept by tag"
"""Metadata key of a failed comparison for the Paimon tag that keeps the files of the previous snapshot."""
ACCEPTED: Final = "difference accepted"
"""Metadata key of merged_view_unchanged for a snapshot whose difference from its predecessor a person accepted."""
ACCEPTED_COMMIT: Final = "difference accepted, committed (ms)"
"""Metadata key beside `ACCEPTED` for the commit time (epoch ms) of the snapshot, as a rollback may reuse its id."""
PROVEN: Final = "proven by compaction"
"""Metadata key of merged_view_unchanged for a compaction that shows that an earlier mismatch is repaired.

The rows after this compaction equal the rows before the compaction that differed, with rows appended since.
"""
PROVEN_COMMIT: Final = "proven by compaction, committed (ms)"
"""Metadata key beside `PROVEN` for the commit time (epoch ms) of the snapshot, as a rollback may reuse its id."""
PARTITION_TAG: Final = "dagster/partition"
RANGE_TAG: Final = "dagster/asset_partition_range_start"
"""Dagster's tag of a run over a range of partitions, such as a run of a backfill."""
RANGE_END_TAG: Final = "dagster/asset_partition_range_end"
TAG_PARTITIONS: Final = "dredge/partitions"
"""Run tag for the paths of the partitions that a sensor's run compacts together, as a JSON list."""

SPARK_POOL: Final = "spark"
OWNER: Final = "team:dredge"
RETENTION_JOB: Final = "retention"
EXPECTATIONS_JOB: Final = "expectations"
RESUME_JOB: Final = "resume"
APPLY_PLAN_JOB: Final = "apply_plan"
SNOOZE_JOB: Final = "snooze_alerts"
ACKNOWLEDGE_JOB: Final = "acknowledge_alerts"
MAINTAIN_JOB: Final = "maintain"
ORPHAN_PLANS_JOB: Final = "orphan_plans"
AUDIT_JOB: Final = "audit"
VERIFY_JOB: Final = "verify_snapshots"
DEEP_CHECK_JOB: Final = "deep_check"
ADOPT_JOB: Final = "adopt_warehouse"
WHAT_IF_JOB: Final = "what_if"

SORTED_RUN_SENSOR: Final = "sorted_run"
IDLE_SENSOR: Final = "idle_partition"
CATALOG_SENSOR: Final = "catalog"
FAILURE_SENSOR: Final = "failures"
WATCH_SENSOR: Final = "watch"

MERGED_VIEW_CHECK: Final = "merged_view_unchanged"
TREE_CHECK: Final = "tree_is_valid"
FORMER_TREE_CHECK: Final = "tree_invariants"
"""Former name of `TREE_CHECK`: failures under this name apply until the check is evaluated as `TREE_CHECK`."""
BACKLOG_CHECK: Final = "level0_backlog"
SMALL_FILES_CHECK: Final = "small_files_backlog"
"""Check that replaces `BACKLOG_CHECK` for append tables, whose files have no levels."""
CONDITION_CHECK: Final = "layout_condition"
"""Check that combines the conditions of a layout; the policy names the conditions or the whole check."""
SUITE_CHECK: Final = "expectations"

NAME_VARIABLE: Final = "DREDGE_WAREHOUSE_NAME"
"""Environment variable for the warehouse's name, if several warehouses share one Dagster instance.

The name becomes the first part of all asset keys, pools and tags.
"""
WAREHOUSE_PATH: Final = "warehouse"
"""Metadata key of `warehouse_health`: path or address of the ranked warehouse."""
WAREHOUSE_HEALTH: Final = "warehouse_health"
LAYOUT: Final = "_layout"
"""Suffix of the last part of every layout's asset key; no other asset key has this suffix."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_RESERVED: Final = frozenset(
    {"context", "conf", "config", "meta", "arg_dict", "dict", "input_arg_dict", "output_arg_dict", "ops"}
)
_MAX_TAG: Final = 200
_TAG_VALUE: Final = 63


def part(text: str) -> str:
    """Convert text to one part of a Dagster name: letters, digits and ``_``.

    Changed, long and reserved names get a short hash, so that different names stay different. Names with ``__``, or
    with ``_`` at an end, also get a hash. Parts are joined by ``__``, so ``a_`` and ``b`` would equal ``a`` and ``_b``.

    Args:
        text: any name, such as the name of a table.
    """
    safe = _UNSAFE.sub("_", text)[:80]
    if safe == text and safe not in _RESERVED and "__" not in safe and safe == safe.strip("_"):
        return safe
    return f"{safe}_{_short_hash(text)}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def split(table: str) -> tuple[str, str]:
    """Split ``db.table`` into the names of the database and the table."""
    database, _, name = table.partition(".")
    return database, name


def table_part(name: str) -> str:
    """Convert the name of a table (without database) to the part of an asset key that names the table.

    A table called ``orders_layout`` gets a hash, because ``orders_layout`` names the layout of ``orders``.
    """
    safe = part(name)
    return f"{safe}_{_short_hash(name)}" if safe == name and name.endswith(LAYOUT) else safe


def former_layout_key(layout: dg.AssetKey) -> dg.AssetKey:
    """Return the key that a layout asset had in earlier versions: ``[warehouse, db, orders, layout]``.

    Runs and failed blocking checks under the former key apply until the asset is evaluated under the current key.
    """
    *parents, name = layout.path
    table = re.sub(rf"({LAYOUT})_[0-9a-f]{{6}}$", r"\1", name.removesuffix(LAYOUT))
    return dg.AssetKey([*parents, table, "layout"])


def published_tag(table: str) -> str:
    """Return the key of the run tag for the id of the snapshot that the run published in a table."""
    database, name = split(table)
    return f"dredge/published.{part(database)}.{part(name)}"


def failure_tag(table: str) -> str:
    """Return the key of the run tag by which a run over many tables records that one table failed permanently."""
    database, name = split(table)
    return f"{failure_tag_prefix()}{part(database)}.{part(name)}"


def failure_tag_prefix() -> str:
    """Return the begin of all keys of `failure_tag`."""
    return f"{TAG_FAILURES}."


def planned_tag(plan_hash: str) -> str:
    """Return the key of the run tag that records one partition's plan on a run over several partitions.

    The run has one such tag per partition, so that it can be found by the hash of the partition's own plan.
    """
    return f"dredge/plan.{plan_hash}"


def tag_value(text: str) -> str:
    """Convert text to a valid value of a definition's tag: at most 63 letters, digits, ``_``, ``-`` and ``.``."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    return safe if safe == text and len(safe) <= _TAG_VALUE else f"{safe[: _TAG_VALUE - 7]}-{_short_hash(text)}"


def run_key(table: str, partition: str | None, snapshot: int, plan_hash: str, number: int = 1) -> str:
    """Return the run key ``table/partition@snapshot:planhash``, by which Dagster starts only one run per attempt.

    Args:
        table: full name of the table.
        partition: path of the partition, or None.
        snapshot: snapshot that the plan is based on.
        plan_hash: hash of the plan.
        number: number of the attempt, from 1; the second attempt, after a failure, adds ``#2``.
    """
    subject = f"{table}/{partition}" if partition else table
    return f"{subject}@{snapshot}:{plan_hash}{f'#{number}' if number > 1 else ''}"


@dataclass(frozen=True)
class WarehouseNames:
    """Names that Dagster sees of one warehouse, so that two warehouses of one Dagster instance share none.

    Attributes:
        path: path or address of the warehouse.
        name: name that an operator set, as a safe part of a Dagster name, or "" for the name of the folder.
        prefix: part that begins the names of all definitions (jobs, sensors, resources ...), or "" for none.
    """

    path: str
    name: str = ""
    prefix: str = ""

    @staticmethod
    def of(path: str, name: str | None = None, prefix: str = "") -> WarehouseNames:
        """Return the names of a warehouse.

        Args:
            path: path or address of the warehouse.
            name: name that an operator set, as any text; "" for the name of the folder; None for the value of
                `DREDGE_WAREHOUSE_NAME`.
            prefix: name of the component, as any text, which begins the names of all definitions; "" for none.
        """
        text = (os.environ.get(NAME_VARIABLE, "") if name is None else name).strip()
        begin = part(prefix.strip()) if prefix.strip() else ""
        if begin[:1].isdigit():
            begin = f"w_{begin}"  # resource keys are names of parameters, too
        return WarehouseNames(path, part(text) if text else "", begin)

    @property
    def first(self) -> str:
        """First part of all asset keys: the name that an operator set, or else that of the warehouse's folder."""
        return self.name or part(self.path.rstrip("/").rsplit("/", 1)[-1] or "warehouse")

    def definition(self, name: str) -> str:
        """Return the name of a definition (job, schedule, sensor, op, resource, group) of this warehouse.

        Args:
            name: name of the definition in a code location with one warehouse.
        """
        return f"{self.prefix}__{name}" if self.prefix else name

    def data_key(self, table: str) -> dg.AssetKey:
        """Return the key of the table's data asset: ``[warehouse, db, orders]``."""
        database, name = split(table)
        return dg.AssetKey([self.first, part(database), table_part(name)])

    def layout_key(self, table: str) -> dg.AssetKey:
        """Return the key of the layout asset that maintenance materialises: ``[warehouse, db, orders_layout]``."""
        *parents, name = self.data_key(table).path
        return dg.AssetKey([*parents, f"{name}{LAYOUT}"])

    def warehouse_health_key(self) -> dg.AssetKey:
        """Return the key of the ranking of tables: ``[warehouse, warehouse_health]``; keys of tables are longer."""
        return dg.AssetKey([self.first, WAREHOUSE_HEALTH])

    def node_name(self, table: str) -> str:
        """Return the name of a layout asset's graph, which is also the graph's key in a run configuration."""
        return "__".join(self.layout_key(table).path)

    def op_name(self, verb: str, table: str) -> str:
        """Return the name of one table's op, unique in the code location, like ``apply__db__orders``."""
        database, name = split(table)
        subject = f"{part(database)}__{table_part(name)}"
        # With a prefix, the verb is last, so that no database makes the name of an op of checks.
        return f"{self.prefix}__{subject}__{verb}" if self.prefix else f"{verb}__{subject}"

    def partitions_name(self, table: str) -> str:
        """Return the name of the table's dynamic partitions in Dagster, which is unique in the Dagster instance."""
        return self._add_name(table, "/")

    def table_pool(self, table: str) -> str:
        """Return the pool (limit 1) that lets one change of the table run at a time."""
        database, name = split(table)
        return f"table/{self._add_name(f'{part(database)}/{part(name)}', '/')}"

    @property
    def spark_pool(self) -> str:
        """Pool of the steps that start a Spark session for checks and comparisons."""
        return f"{SPARK_POOL}/{self.prefix}" if self.prefix else SPARK_POOL

    def is_pool(self, pool: str) -> bool:
        """Return whether a pool belongs to this warehouse: that of Spark, or that of a table."""
        kind, *owner = pool.split("/")
        return pool == self.spark_pool or (kind == "table" and owner[:-2] == ([self.name] if self.name else []))

    def failures_value(self) -> str:
        """Return the value of the run tag `TAG_FAILURES`, by which runs with permanent failures of tables are found."""
        return self._add_name("tables", "/")

    def resumed_tag(self, table: str) -> str:
        """Return the key of the run tag of `resume` runs that ended the suspension of a table."""
        database, name = split(table)
        return f"dredge/resumed.{self._add_name(f'{part(database)}.{part(name)}', '.')}"

    def bytes_tag(self) -> str:
        """Return the key of the run tag for the bytes that a run of this warehouse is expected to read."""
        return f"{TAG_BYTES}.{self.name}" if self.name else TAG_BYTES

    def table_value(self, table: str) -> str:
        """Return the value of the run tag `TAG_TABLE` for runs on a table of this warehouse.

        Dagster's queue runs one run per value at a time. Equally named tables of different warehouses have different
        values.

        Args:
            table: name of the table, ``db.table``.

        Returns:
            The table's name. If an operator set a name for the warehouse, that name and ``/`` come first.
        """
        return self._add_name(table, "/")

    def mute_value(self, job: str) -> str:
        """Return the value of the run tag `TAG_MUTE`, by which runs that snoozed or acknowledged alerts are found.

        Args:
            job: name of the job, `snooze_alerts` or `acknowledge_alerts`.
        """
        return self._add_name(job, "/")

    def table_of(self, tags: Mapping[str, str]) -> str | None:
        """Return the table that a run works on.

        Args:
            tags: tags of the run.

        Returns:
            The table's name, ``db.table``. None if the run has no single table or belongs to another warehouse.
        """
        warehouse, _, table = tags.get(TAG_TABLE, "").rpartition("/")
        return table if table and warehouse == self.name else None

    def run_tags(self, table: str, partition: str | None, plan_hash: str, action: str, reason: str) -> dict[str, str]:
        """Return the tags that identify a run.

        Args:
            table: full name of the table.
            partition: path of the partition, or None.
            plan_hash: hash of the plan.
            action: name of the action.
            reason: why the run was started; cut to the length of a tag.
        """
        tags = {
            TAG_TABLE: self.table_value(table),
            TAG_PLAN: plan_hash,
            TAG_ACTION: action,
            TAG_REASON: reason[:_MAX_TAG],
        }
        return {**tags, TAG_PARTITION: partition} if partition else tags

    def _add_name(self, text: str, separator: str) -> str:
        """Prefix a text with the name that an operator set for this warehouse, if there is one."""
        return f"{self.name}{separator}{text}" if self.name else text
