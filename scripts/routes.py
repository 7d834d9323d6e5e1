"""Four routes of data through the project: the modules in order, and the work of each.

A moved module must be renamed here too: `python scripts/docs.py --write` refuses a module that does not exist.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

_OWN: Final = ("lsm_core.", "dredge.")


@dataclass(frozen=True)
class Route:
    """A route: its file name and its stations (module, work in it)."""

    name: str
    stations: tuple[tuple[str, str], ...]


ROUTES = (
    Route(
        "spark-write",
        (
            ("lsm_core.spark.data_source", "options, mode and schema of save(), checked before any task runs"),
            ("lsm_core.spark.table_writer", "save(): a writer in each task, rows of small files gathered"),
            ("lsm_core.spark.spark_write", "the plan; rows checked and routed, one shuffle, a writer a task"),
            ("lsm_core.write.store_assignment", "values cast by the rules of Spark's INSERT"),
            ("lsm_core.write.incoming_rows", "columns matched, cast and checked; row kinds read"),
            ("lsm_core.write.bucket", "bucket = hash of the bucket key"),
            ("lsm_core.write.table_write", "a writer per bucket, memory shared, messages collected"),
            ("lsm_core.write.key_value", "rows buffered, spilled when memory is short, sorted and merged at the flush"),
            ("lsm_core.files.writer", "rolling level-0 files with their statistics"),
            ("lsm_core.files.formats.parquet", "columns to Parquet bytes"),
            ("lsm_core.commit.message", "what was written, as bytes to the driver"),
            ("lsm_core.commit.committer", "conflicts, retries, three outcomes"),
            ("lsm_core.commit.attempt", "manifests and lists of one attempt, and the file snapshot-N"),
        ),
    ),
    Route(
        "tick-to-check",
        (
            ("dredge.orchestration.sensors.table_sensors", "a tick: one decision per table and partition"),
            ("dredge.orchestration.sensors.table_sweep", "tables one after another, within the tick's budget"),
            ("dredge.orchestration.sensors.table_cache", "a table that did not move is neither opened nor read again"),
            ("dredge.platform_core.health", "one reading of metadata per snapshot, shared by all sensors"),
            (
                "dredge.platform_core.policies.decisions",
                "numbers and thresholds become run, skip or decline, with the reason",
            ),
            ("dredge.orchestration.sensors.run_requests", "a run request whose key holds the plan's hash"),
            ("dredge.assets.table_assets", "the layout materialised: five ops, then the checks"),
            ("dredge.orchestration.ops.layout_ops", "observe, plan, apply, verify, record"),
            ("dredge.platform_core.resources.spark_resource", "which runner carries the bucket tasks"),
            ("dredge.checks.merged_view", "V3: both snapshots by Spark SQL; blocks what follows"),
            ("dredge.platform_core.obstacles", "a failed check stops further maintenance"),
        ),
    ),
    Route(
        "filtered-read",
        (
            ("lsm_core.table.table", "the verb: columns, filter, version"),
            ("lsm_core.read.batch_read", "rows of a version, or changes where options ask for those"),
            ("lsm_core.read.scan", "the scan: which snapshot, which entries, which splits"),
            ("lsm_core.read.predicate", "the filter, typed against the schema"),
            ("lsm_core.metadata.manifests", "manifests chosen by partition, decoded to columns"),
            ("lsm_core.read.prune", "files that cannot hold an answer are left out"),
            ("lsm_core.read.splits", "files to splits: raw ones, and sections to merge"),
            ("lsm_core.read.merge_read", "windows of sorted runs, merged"),
            ("lsm_core.files.reader", "a file's batches, in today's schema"),
            ("lsm_core.merge.window", "all rows up to a cut, of every run"),
            ("lsm_core.merge.function", "the merge engine that makes them one row a key"),
        ),
    ),
    Route(
        "plan-to-apply",
        (
            ("lsm_core.cli.verbs.maintain", "dredge plan, dredge apply"),
            ("lsm_core.table.table", "the verbs of one table"),
            ("lsm_core.maintenance.action", "the registry of actions; what a plan is, and its hash"),
            ("lsm_core.maintenance.actions.compact.planning", "buckets, their units, what is declined and why"),
            (
                "lsm_core.maintenance.actions.compact.unit_choice",
                "the tree's rules; units closed where answers could change",
            ),
            ("lsm_core.tree.universal", "which runs to merge, or why none"),
            ("lsm_core.maintenance.saved_plans", "the plan waits here under its hash"),
            ("lsm_core.maintenance.apply", "apply: exactly that plan, verified, recorded"),
            ("lsm_core.maintenance.actions.compact.execution", "bucket tasks to a runner, messages to one commit"),
            ("lsm_core.compact.unit", "one bucket: upgrades and rewrites"),
            ("lsm_core.compact.rewrite", "sections merged into new files"),
            ("lsm_core.compact.verify", "V0 and V1 before anything is published"),
            ("lsm_core.maintenance.verify", "V2: sampled keys merged again by the reference"),
            ("lsm_core.commit.committer", "a COMPACT snapshot, or a conflict"),
            ("lsm_core.maintenance.ledger", "the table's ledger"),
        ),
    ),
)


@dataclass(frozen=True)
class Crossing:
    """Code of this project that one call runs through.

    Attributes:
        call: name of the call.
        files: number of modules whose functions ran.
        functions: number of functions that ran.
        modules: names of these modules.
    """

    call: str
    files: int
    functions: int
    modules: tuple[str, ...]


def measure() -> list[Crossing]:
    """Return the modules and functions that a filtered read, a write, and a planned compaction run through.

    Each call runs on a small primary-key table, after a call of its kind has loaded all modules.
    """
    import tempfile

    import pyarrow as pa

    from lsm_core import Catalog, Schema

    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    rows = pa.table({"id": range(1000), "v": [f"value {number}" for number in range(1000)]}, schema=columns)
    crossings = []
    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog(folder)
        definition = Schema(columns, primary_keys=["id"], options={"bucket": "2", "dredge.compaction.inline": "never"})
        table = catalog.create_table("db.routes", definition, create_database=True)
        calls: dict[str, Callable[[], object]] = {
            "filtered read": lambda: table.to_arrow(["v"], [("id", ">", 500)]),
            "write and commit": lambda: table.write(rows),
            "plan and apply a compaction": lambda: table.apply(table.plan_maintenance("compact", full=True)),
        }
        for _ in range(3):  # sorted runs that a read merges
            table.write(rows)
        for name, call in calls.items():
            call()
            if name.startswith("plan"):
                table.write(rows)
            crossings.append(_crossing(name, call))
    return crossings


def _crossing(name: str, call: Callable[[], object]) -> Crossing:
    functions: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_name[:1] != "<"
            and (module := frame.f_globals.get("__name__", "")).startswith(_OWN)
        ):
            functions.add((module, code.co_name, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    modules = sorted({module for module, _, _ in functions})
    return Crossing(name, len(modules), len(functions), tuple(modules))


if __name__ == "__main__":
    for crossing in measure():
        print(f"{crossing.call}: {crossing.files} files, {crossing.functions} functions")
        if "--modules" in sys.argv:
            print("\n".join(f"  {module}" for module in crossing.modules))
