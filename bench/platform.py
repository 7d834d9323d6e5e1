"""The platform over many tables: what it costs a process to load the code location, up to what it hands to Dagster's web server and daemon, and to tick."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa

from bench.harness import Result, in_own_process

TABLES, TARGET_SECONDS = 1_000, 5.0
CHANGED, UNCHANGED_TARGET, CHANGED_TARGET = 50, 1.0, 5.0
_FIELDS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int64())])
_PROGRAM = """
import json, os, sys, time
os.environ["DREDGE_WAREHOUSE"] = sys.argv[1]
from orchestration.definitions import defs
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
told = serialize_value(RepositorySnap.from_def(defs.get_repository_def(), defer_snapshots=True))
heavy = [name for name in ("pyspark", "great_expectations") if name in sys.modules]
print(json.dumps([time.process_time(), len(told) / 2**20, len(heavy)]))
"""
_TICKS = """
import json, os, sys, time
os.environ.update(DREDGE_WAREHOUSE=sys.argv[1], DREDGE_RUNNER="local", DREDGE_SENSOR_BUDGET="3600")
import dagster as dg
import pyarrow as pa
from lsm_core import Catalog
from orchestration import names
from orchestration.definitions import defs
from orchestration.resources import WarehouseResource
repository, warehouse, cursors = defs.get_repository_def(), WarehouseResource.from_environment(), {}

def tick(instance, sensor):
    resources = {"warehouse": warehouse}
    context = dg.build_sensor_context(
        instance=instance, repository_def=repository, sensor_name=sensor, cursor=cursors.get(sensor), resources=resources
    )
    with context:
        began = time.process_time()
        result = repository.get_sensor_def(sensor).evaluate_tick(context)
        spent = time.process_time() - began
    cursors[sensor] = result.cursor
    began = time.process_time()
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    return spent, time.process_time() - began, len(result.asset_events), len(result.run_requests)

def round_of(instance, sensor):
    told = [tick(instance, sensor)]
    while '"next": null' not in cursors[sensor]:
        told.append(tick(instance, sensor))
    return [*map(sum, zip(*told)), len(told)]

with dg.instance_for_test() as instance:
    first = round_of(instance, names.SORTED_RUN_SENSOR)
    same = [tick(instance, sensor)[0] for sensor in (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)]
    catalog, numbers = Catalog(sys.argv[1]), pa.array(range(100))
    for number in range(int(sys.argv[2])):
        table = catalog.table(f"bench.t{number:05d}")
        table.write(pa.table({"id": numbers, "name": numbers.cast(pa.string()), "amount": numbers}))
    changed = round_of(instance, names.SORTED_RUN_SENSOR)
print(json.dumps([first, same, changed]))
"""


def build(warehouse: Path, tables: int) -> None:
    """A warehouse of ``tables`` tables of 20 files in 5 buckets each; the files of all are those of the first, linked."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {"bucket": "5", "write-only": "true"}
    table = catalog.create_table("bench.t00000", Schema(_FIELDS, primary_keys=["id"], options=options))
    for commit in range(4):
        numbers = pa.array(range(commit * 50, commit * 50 + 100))
        table.write(pa.table([numbers, numbers.cast(pa.string()), numbers], schema=_FIELDS))
    first = Path(table.store.root)
    for number in range(1, tables):
        shutil.copytree(first, first.parent / f"t{number:05d}", copy_function=os.link)


def run(tables: int | None, rounds: int) -> list[Result]:
    """Processor seconds of loading, imports included, the size of what is handed over, and processor seconds of ticks."""
    count = tables or TABLES
    changed = min(CHANGED, count)
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        warehouse = Path(folder) / "warehouse"
        build(warehouse, count)
        seen = [in_own_process(_PROGRAM, str(warehouse)) for _ in range(rounds)]
        first, same, after = in_own_process(_TICKS, str(warehouse), str(changed))
    seconds = sorted(float(row[0]) for row in seen)
    scale = max(count / TABLES, 1)
    note = f"{count:,} tables of 20 files; processor time, imports included"
    return [
        Result(
            "platform", "code location loads", seconds[len(seconds) // 2], "s", TARGET_SECONDS * scale,
            low=seconds[0], high=seconds[-1], note=note,
        ).judged(),
        Result("platform", "code location as Dagster is told", float(seen[0][1]), "MiB", None),
        Result("platform", "heavy libraries imported by it", float(seen[0][2]), "", 0, note="pyspark, great-expectations").judged(),
        Result("platform", "first ticks of sorted_run", float(first[0]), "s", None, note=f"{first[4]} ticks, processor time"),
        Result("platform", "their events stored", float(first[1]), "s", None, note=f"{first[2]:,} events, SQLite, processor time"),
        Result("platform", "tick of sorted_run, nothing changed", float(same[0]), "s", UNCHANGED_TARGET * scale).judged(),
        Result("platform", "tick of idle_partition, nothing changed", float(same[1]), "s", UNCHANGED_TARGET * scale).judged(),
        Result(
            "platform", f"tick of sorted_run, {changed} tables changed", float(after[0]), "s", CHANGED_TARGET * scale,
            note=f"{after[3]} runs requested, {after[2]} events",
        ).judged(),
    ]  # fmt: skip
