"""The platform over many tables: cost of loading the code location, of ticks, of stored events and of UI pages.

Loading includes the data that Dagster's web server and daemon receive.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bench.harness import MIB, Result, in_own_process
from dredge.orchestration.verbs.dagster_client import DagsterClient, PlatformFailed
from dredge.orchestration.verbs.dagster_process import INSTANCE, start_platform
from dredge.platform_core import names
from lsm_core.processes import LOOPBACK, end_group, free_port, group_lives

TABLES, TARGET_SECONDS = 1_000, 5.0
CHANGED, UNCHANGED_TARGET, CHANGED_TARGET = 50, 1.0, 5.0
MANY_TABLES, MANY_TARGET = 10_000, 30.0
FIRST_TICKS_TARGET, FIRST_EVENTS_TARGET = 10.0, 4.0  # of 1,000 tables and 2,800 events: 9 and 1.3 ms each
PAGE_TARGET = 2.0
STATUS_TABLES, STATUS_TARGET = 100, 2.0
OWN_TABLES, FIRST_CHECK_TARGET = 20, 300.0
_FIELDS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int64())])
_PROGRAM = """
import json, os, sys, time
os.environ.update(DREDGE_WAREHOUSE=sys.argv[1], DAGSTER_HOME=sys.argv[2], DREDGE_RUN_ASSETS=sys.argv[3])
from dredge.orchestration.definitions import defs
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
serialized = serialize_value(RepositorySnap.from_def(defs().get_repository_def(), defer_snapshots=True))
heavy = [name for name in ("pyspark", "great_expectations") if name in sys.modules]
print(json.dumps([time.process_time(), len(serialized) / 2**20, len(heavy)]))
"""
_TICKS = """
import contextlib, datetime, json, os, sqlite3, sys, time
os.environ.update(DREDGE_WAREHOUSE=sys.argv[1], DREDGE_RUNNER="local", DREDGE_SENSOR_BUDGET="3600")
import dagster as dg
import pyarrow as pa
from lsm_core import Catalog, SchemaChange
from dredge.platform_core import names
from dredge.orchestration.definitions import defs
from dredge.platform_core.resources import WarehouseResource
repository, warehouse, cursors = defs().get_repository_def(), WarehouseResource.from_environment(), {}

def tick(instance, sensor):
    resources = {"warehouse": warehouse.get_resource_definition()}
    log_key = ["__repository__", sensor, str(time.monotonic_ns())]  # as the daemon keeps what a tick says
    context = dg.SensorEvaluationContext(
        None, instance=instance, repository_def=repository, sensor_name=sensor, cursor=cursors.get(sensor),
        resources=resources, log_key=log_key,
    )
    with context:
        began = time.process_time()
        result = repository.get_sensor_def(sensor).evaluate_tick(context)
        spent = time.process_time() - began
    cursors[sensor] = result.cursor
    began = time.process_time()
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    reason_length = len(result.skip_message or "")
    return spent, time.process_time() - began, len(result.asset_events), len(result.run_requests or ()), reason_length

def round_of(instance, sensor):
    ticks = [tick(instance, sensor)]
    while '"next": null' not in cursors[sensor]:
        ticks.append(tick(instance, sensor))
    return [*map(sum, zip(*ticks)), len(ticks)]

def stored(*parts):
    files = (os.path.join(folder, name) for folder, _, file_names in os.walk(os.path.join(sys.argv[3], *parts)) for name in file_names)
    return sum(used(name) if name.endswith(".db") else os.path.getsize(name) for name in files)

def used(name):  # what a database holds; what was deleted is written over later
    with contextlib.closing(sqlite3.connect(name)) as database:
        pages, free, size = (database.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size

catalog, numbers, count = Catalog(sys.argv[1]), pa.array(range(100)), int(sys.argv[2])
calm = [f"bench.{name}" for name in catalog.list_tables("bench")[count : 2 * count]]
for name in calm:  # four commits of five leave nothing due; in all other tables the next one does
    catalog.alter_table(name, [SchemaChange.set_option("num-sorted-run.compaction-trigger", "9")])

def commit(tables):
    for name in tables:
        catalog.table(name).write(pa.table({"id": numbers, "name": numbers.cast(pa.string()), "amount": numbers}))

def commits(instance, tables):  # what a round over these changed tables took, and the bytes that Dagster holds for each
    commit(tables)
    events = stored("history")
    totals = round_of(instance, names.SORTED_RUN_SENSOR)
    return totals, (stored("history") - events) / max(len(tables), 1)

both = (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)
with dg.DagsterInstance.from_config(sys.argv[3]) as instance:
    empty = stored("history")
    first = round_of(instance, names.SORTED_RUN_SENSOR)
    first_bytes = stored("history") - empty
    tick(instance, names.IDLE_SENSOR)
    logs = stored("storage")
    unchanged = [tick(instance, sensor) for sensor in both]
    same = [row[0] for row in unchanged]
    a_tick = stored("storage") - logs + sum(row[4] for row in unchanged)
    changed, when_due = commits(instance, [f"bench.t{number:05d}" for number in range(count)])
    a_commit = (when_due + 4 * commits(instance, calm)[1]) / 5 if calm else when_due
print(json.dumps([first, same, changed, a_tick, a_commit, first_bytes]))
"""
_PAGES = {
    "the list of assets": """query { assetNodes { id assetKey { path } groupName kinds description owners { ... on TeamAssetOwner { team } }
      isMaterializable isPartitioned tags { key value } } }""",
    "a page of their records": """query { assetRecordsOrError(limit: 1000) { ... on AssetRecordConnection { cursor assets { id key { path } } } } }""",
    "what is known of 100 assets": """query($keys: [AssetKeyInput!]!) { assetsLatestInfo(assetKeys: $keys) { assetKey { path } inProgressRunIds
      latestMaterialization { timestamp runId } latestRun { id status } } }""",
    "results of all checks": """query { assetNodes { id assetKey { path } assetChecksOrError { ... on AssetChecks { checks {
      name executionForLatestMaterialization { id status timestamp evaluation { severity } } } } } } }""",
    "health of 100 assets": """query($keys: [AssetKeyInput!]!) { assetsOrError(assetKeys: $keys) { ... on AssetConnection { nodes { id key { path }
      assetHealth { assetHealth materializationStatus assetChecksStatus freshnessStatus } } } } }""",
    "the lineage": """query { assetNodes { id assetKey { path } dependencyKeys { path } dependedByKeys { path } } }""",
    "an asset's page": """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { id description staleStatus
      metadataEntries { label } assetMaterializations(limit: 100) { timestamp metadataEntries { label } }
      assetObservations(limit: 100) { timestamp metadataEntries { label } }
      assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization { status } } } } } } }""",
    "runs": """query { runsOrError(limit: 30) { ... on Runs { results { id status jobName assetSelection { path } tags { key value } } } } }""",
    "ticks": """query($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) { ... on Sensor {
      sensorState { ticks(limit: 25) { id status skipReason } } } } }""",
}  # fmt: skip

_LIVE = """query AssetGraphLiveQuery($assetKeys: [AssetKeyInput!]!) {
  assetNodes(assetKeys: $assetKeys, loadMaterializations: true) { id opNames repository { id } assetKey { path }
    assetMaterializations(limit: 1) { timestamp runId stepKey } assetObservations(limit: 1) { timestamp runId stepKey }
    assetChecksOrError { ... on AssetChecks { checks { name canExecuteIndividually executionForLatestMaterialization {
      id runId status timestamp stepKey evaluation { severity } } partitionDefinition { name description }
      partitionStatuses { ... on AssetCheckDefaultPartitionStatuses { succeededPartitions failedPartitions
        inProgressPartitions skippedPartitions executionFailedPartitions } } } } }
    partitionStats { numMaterialized numMaterializing numPartitions numFailed } }
  assetsLatestInfo(assetKeys: $assetKeys) { id assetKey { path } unstartedRunIds inProgressRunIds
    latestRun { status startTime endTime id } } }"""
_ASSETS_A_QUERY, _ASSETS_A_SCREEN, _SCREEN_TARGET = 10, 20, 3.0
"""Dagster's catalog and lineage pages send `_LIVE` for ten assets at a time; the catalog only for visible rows."""


def build(warehouse: Path, tables: int) -> None:
    """Create ``tables`` tables with 5 buckets and 20 files each; all files are hard links to the first table's."""
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


@contextmanager
def web_server(home: Path, warehouse: Path) -> Iterator[DagsterClient]:
    """Run Dagster's web server over the instance in ``home``, without a daemon."""
    port, root = free_port(), Path(__file__).resolve().parents[1]
    command = [
        sys.executable,
        "-m",
        "dagster_webserver",
        "-w",
        "workspace.yaml",
        "--host",
        LOOPBACK,
        "--port",
        str(port),
    ]
    environment = {"DAGSTER_HOME": str(home), "DREDGE_WAREHOUSE": str(warehouse), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    with (home / "web.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    client = DagsterClient(f"http://{LOOPBACK}:{port}")
    try:
        while True:
            if process.poll() is not None:
                raise RuntimeError((home / "web.log").read_text())
            try:
                if client.is_loaded():
                    break
            except PlatformFailed as error:
                if client.url not in str(error):
                    raise
            time.sleep(0.2)
        yield client
    finally:
        end_group(process.pid, lambda: process.poll() is None or group_lives(process.pid), 20)


def pages(home: Path, warehouse: Path, tables: int, rounds: int) -> list[Result]:
    """Return the seconds of the web server's answers to the queries of the UI pages, after the workspace is loaded."""
    keys = [
        {"path": names.WarehouseNames.of(str(warehouse)).layout_key(f"bench.t{number:05d}").path}
        for number in range(100)
    ]
    sensor = {
        "sensorName": names.SORTED_RUN_SENSOR,
        "repositoryName": "__repository__",
        "repositoryLocationName": "dredge",
    }
    results = []
    with web_server(home, warehouse) as client:
        for name, query in _PAGES.items():
            seconds = []
            for _ in range(max(rounds, 3)):
                began = time.perf_counter()
                client.query(query, {"keys": keys, "key": keys[0], "sensor": sensor}, timeout_s=120)
                seconds.append(time.perf_counter() - began)
            results.append(
                Result(
                    "platform",
                    f"web server: {name}",
                    statistics.median(seconds),
                    "s",
                    PAGE_TARGET,
                    low=min(seconds),
                    high=max(seconds),
                    note="through GraphQL, elapsed",
                ).judged()
            )
        results += _live_pages(client, str(warehouse), tables, rounds)
    return results


def _live_pages(client: DagsterClient, warehouse: str, tables: int, rounds: int) -> list[Result]:
    """Return the seconds of all queries that the catalog's first screen and the lineage of all assets send."""
    warehouse_names = names.WarehouseNames.of(warehouse)
    keys = [
        {"path": key(f"bench.t{number:05d}").path}
        for number in range(tables)
        for key in (warehouse_names.data_key, warehouse_names.layout_key)
    ]
    results = []
    for name, shown, target in (
        ("a screen of the catalog", keys[:_ASSETS_A_SCREEN], _SCREEN_TARGET),
        ("lineage of all assets, as it fills", keys, None),
    ):
        seconds = []
        for _ in range(max(rounds, 3) if target else 1):
            began = time.perf_counter()
            for start in range(0, len(shown), _ASSETS_A_QUERY):
                client.query(_LIVE, {"assetKeys": shown[start : start + _ASSETS_A_QUERY]}, timeout_s=120)
            seconds.append(time.perf_counter() - began)
        results.append(
            Result(
                "platform",
                f"web server: {name}",
                statistics.median(seconds),
                "s",
                target,
                low=min(seconds),
                high=max(seconds),
                note=f"{-(-len(shown) // _ASSETS_A_QUERY)} queries AssetGraphLiveQuery, elapsed",
            ).judged()
        )
    return results


def status(warehouse: Path, rounds: int) -> Result:
    """Return the elapsed seconds of `dredge status`, including the start of the process."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "lsm_core.cli", "status", "-w", str(warehouse)], check=True, capture_output=True
        )
        seconds.append(time.perf_counter() - began)
    return Result(
        "platform", f"dredge status, {STATUS_TABLES} tables", statistics.median(seconds), "s", STATUS_TARGET,
        low=min(seconds), high=max(seconds), note="elapsed",
    ).judged()  # fmt: skip


def run_first_check(tables: int | None, rounds: int) -> list[Result]:
    """Measure the time from the README's "your own warehouse" command to the first green checks of existing tables."""
    count = tables or OWN_TABLES
    first, all_of_them = [], []
    for _ in range(min(rounds, 3)):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            warehouse = Path(folder) / "warehouse"
            build(warehouse, count)
            keys = [
                names.WarehouseNames.of(str(warehouse)).layout_key(f"bench.t{number:05d}").path
                for number in range(count)
            ]
            began = time.perf_counter()
            platform = start_platform(
                Path(folder) / "home", {"DREDGE_WAREHOUSE": str(warehouse), "DREDGE_RUNNER": "local"}
            )
            try:
                green: set[int] = set()
                while len(green) < count:
                    seen = {
                        number
                        for number in set(range(count)) - green
                        if any(
                            evaluation.passed
                            for evaluation in platform.client.check_results(keys[number], names.BACKLOG_CHECK, 1)
                        )
                    }
                    if seen and not green:
                        first.append(time.perf_counter() - began)
                    green |= seen
                    if time.perf_counter() - began > 2 * FIRST_CHECK_TARGET:
                        raise RuntimeError(
                            f"{len(green)} of {count} tables are green after {2 * FIRST_CHECK_TARGET:g} s"
                        )
                    time.sleep(0.5)
                all_of_them.append(time.perf_counter() - began)
            finally:
                platform.stop()
    return [
        Result(
            "first-check", name, statistics.median(seconds), "s", FIRST_CHECK_TARGET, low=min(seconds), high=max(seconds),
            note=f"{count:,} tables of 20 files; elapsed since `dagster dev` was started, sensors as they come",
        ).judged()
        for name, seconds in (("first green check", first), ("green checks of all tables", all_of_them))
    ]  # fmt: skip


def run(tables: int | None, rounds: int) -> list[Result]:
    """Measure processor seconds of loading (with imports) and ticks, data sizes, bytes per day and page seconds."""
    count = tables or TABLES
    changed = min(CHANGED, count)
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        warehouse, home, few, many = (Path(folder) / name for name in ("warehouse", "home", "few", "many"))
        home.mkdir()
        shutil.copyfile(INSTANCE, home / "dagster.yaml")
        build(warehouse, count)
        unlisted = in_own_process(_PROGRAM, str(warehouse), str(home), "")
        seen = [in_own_process(_PROGRAM, str(warehouse), str(home), "") for _ in range(rounds)]
        of_a_run = in_own_process(_PROGRAM, str(warehouse), str(home), '[["warehouse", "bench", "t00007_layout"]]')
        first, same, after, a_tick, a_commit, first_bytes = in_own_process(
            _TICKS, str(warehouse), str(changed), str(home)
        )
        shown = pages(home, warehouse, count, rounds)
        build(few, STATUS_TABLES)
        status_result = status(few, rounds)
        more = []
        if count == TABLES:
            build(many, MANY_TABLES)
            in_own_process(_PROGRAM, str(many), str(home), "")
            more = [in_own_process(_PROGRAM, str(many), str(home), "")]
    seconds = sorted(float(row[0]) for row in seen)
    scale = max(count / TABLES, 1)
    note = f"{count:,} tables of 20 files; processor time, imports included"
    ticks_a_day = 24 * 60 * 2
    return [
        Result(
            "platform", "code location loads", seconds[len(seconds) // 2], "s", TARGET_SECONDS * scale,
            low=seconds[0], high=seconds[-1], note=note,
        ).judged(),
        Result("platform", "the same the first time", float(unlisted[0]), "s", TARGET_SECONDS * scale, note="no stored listing").judged(),
        Result("platform", "the same in a run's process", float(of_a_run[0]), "s", None, note="of one table; most of it imports, which runs have already"),
        Result("platform", "code location as Dagster is told", float(seen[0][1]), "MiB", None),
        Result("platform", "heavy libraries imported by it", float(seen[0][2]), "", 0, note="pyspark, great-expectations").judged(),
        *(
            Result("platform", f"code location loads, {MANY_TABLES:,} tables", float(row[0]), "s", MANY_TARGET, note="processor time").judged()
            for row in more
        ),
        Result(
            "platform", "first ticks of sorted_run", float(first[0]), "s", FIRST_TICKS_TARGET * scale,
            note=f"{first[5]} ticks, processor time",
        ).judged(),
        Result(
            "platform", "their events stored", float(first[1]), "s", FIRST_EVENTS_TARGET * scale,
            note=f"{first[2]:,} events, SQLite, processor time",
        ).judged(),
        Result("platform", "tick of sorted_run, nothing changed", float(same[0]), "s", UNCHANGED_TARGET * scale).judged(),
        Result("platform", "tick of idle_partition, nothing changed", float(same[1]), "s", UNCHANGED_TARGET * scale).judged(),
        Result(
            "platform", f"tick of sorted_run, {changed} tables changed", float(after[0]), "s", CHANGED_TARGET * scale,
            note=f"{after[3]} runs requested, {after[2]} events",
        ).judged(),
        Result(
            "platform", "stored in the first hour", (first_bytes + a_commit * count + a_tick * 120) / MIB, "MiB", None,
            note=f"first ticks {first_bytes / MIB:.1f} MiB, a commit per table {a_commit * count / MIB:.1f} MiB, "
            f"other ticks {a_tick * 120 / MIB:.1f} MiB; SQLite",
        ),
        Result("platform", "stored a day by ticks, nothing changed", a_tick * ticks_a_day / MIB, "MiB", None, note="two sensors, every 30 s: log and reason; the reason goes after 7 days"),
        Result("platform", "stored a day by events", a_commit * count * 24 / MIB, "MiB", None, note="a commit a table an hour, SQLite"),
        *shown,
        status_result,
    ]  # fmt: skip
