"""A foreign project, created by `create-dagster`, before and after the component joins it from the wheel alone.

`tests/orchestration/test_foreign_project.py` is a sample of this in one process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lsm_core.processes import free_port
from tests.docs.test_wheel import environment, python, wheel
from tests.support.peers import missing

__all__ = ("environment", "python", "wheel")  # fixtures

_HOST = """\
import gc, json, logging, os, signal, time
import dagster as dg
import assets, checks, orchestration
from lake.defs.resources import Ledger, Spark, Warehouse

def work(spark, warehouse, ledger):
    assert (spark.app, warehouse.address, ledger.book) == ("own", "own", "own")
    assert assets.OWNER == checks.OWNER == orchestration.OWNER == "lake"
    root, numbers = logging.getLogger(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    state = [gc.isenabled(), *gc.get_threshold(), gc.get_freeze_count(), root.level, *map(str, root.handlers)]
    state += [str(signal.getsignal(number)).split(" at ")[0] for number in numbers]
    begin = time.time()
    time.sleep(1.5)
    process = json.dumps([state, sorted(os.environ)])
    return dg.MaterializeResult(metadata={"process": process, "begin": begin, "end": time.time()})

@dg.asset(key=["tables", "own", "report"], pool="reports")
def report(KEYspark: Spark, KEYwarehouse: Warehouse, KEYledger: Ledger) -> dg.MaterializeResult:
    return work(KEYspark, KEYwarehouse, KEYledger)

@dg.asset(key=["tables", "own", "totals"], pool="reports")
def totals(KEYspark: Spark, KEYwarehouse: Warehouse, KEYledger: Ledger) -> dg.MaterializeResult:
    return work(KEYspark, KEYwarehouse, KEYledger)

@dg.asset_check(asset=report)
def is_there() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)

nightly = dg.define_asset_job("nightly", dg.AssetSelection.assets(report, totals))

@dg.sensor(job=nightly, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def arrivals(context):
    return dg.RunRequest(run_key="first")
"""
"""Definitions of the project; KEY begins the keys of its resources."""
_RESOURCES = """\
import dagster as dg

class Spark(dg.ConfigurableResource):
    app: str = "own"

class Warehouse(dg.ConfigurableResource):
    address: str = "own"

class Ledger(dg.ConfigurableResource):
    book: str = "own"

@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources={"KEYspark": Spark(), "KEYwarehouse": Warehouse(), "KEYledger": Ledger()})
"""
_INSTANCE = """\
telemetry: {enabled: false}
concurrency: {pools: {default_limit: 1, granularity: op}}
retention: {sensor: {purge_after_days: {skipped: 1, failure: 30, success: -1}}}
"""
_COMPONENT = """\
type: dredge.PaimonWarehouse
attributes:
  warehouse: wh
  runner: local
  sensors: {seconds: 5}
"""
_TABLE = """\
import pyarrow as pa
from lsm_core import Catalog, Schema
fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
catalog = Catalog("wh")
catalog.create_database("shop")
options = {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
table = catalog.create_table("shop.orders", Schema(fields, primary_keys=["k"], options=options))
for number in range(8):
    table.write(pa.table({"k": [number, number + 1]}, fields))
"""
_EXECUTORS = """\
import json
from lake.definitions import defs
repository = defs().get_repository_def()
print(json.dumps([repository.get_job("nightly").executor_def.name, sorted(repository.get_top_level_resources())]))
"""
_LOOK = """\
import json
import dagster as dg
from dagster._core.scheduler.instigation import InstigatorType
own = [dg.AssetKey(["tables", "own", name]) for name in ("report", "totals")]
with dg.DagsterInstance.get() as instance:
    runs = {}
    for run in instance.get_runs():
        kinds = [entry.dagster_event.event_type_value if entry.dagster_event else "log" for entry in instance.all_logs(run.run_id)]
        layout = [key.to_user_string() for key in run.asset_selection or ()]
        runs[run.run_id] = {"job": run.job_name, "status": run.status.value, "events": sorted(kinds), "assets": layout,
                            "sensor": run.tags.get("dagster/sensor_name")}
    made = [record.asset_materialization.metadata for key in own for record in instance.fetch_materializations(key, 100).records]
    ticks = {state.instigator_name: [[tick.tick_id, tick.status.value] for tick in
                                     instance.get_ticks(state.instigator_origin_id, state.selector_id)]
             for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)}
    limits = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
    print(json.dumps({
        "runs": runs, "ticks": ticks, "limits": limits,
        "processes": [json.loads(metadata["process"].value) for metadata in made],
        "steps": sorted([metadata["begin"].value, metadata["end"].value] for metadata in made),
    }))
"""


class Host:
    """A foreign project with its own Dagster instance, and the commands that its people call.

    Attributes:
        root: folder of the project.
        home: folder of the Dagster instance, `DAGSTER_HOME`.
        environment: environment variables of all commands.
    """

    def __init__(self, python: Path, folder: Path, environment: dict[str, str]) -> None:
        self._bin, self.root, self.home = python.parent, folder / "lake", folder / "home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(_INSTANCE)
        self.environment = {
            **environment,
            "DAGSTER_HOME": str(self.home),
            "PYTHONPATH": str(self.root / "src"),
            "PATH": f"{self._bin}{os.pathsep}{environment['PATH']}",
            "COLUMNS": "200",
        }

    def _start(self, name: str, arguments: tuple[str, ...], folder: Path | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._bin / name), *arguments],
            cwd=folder or self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def call(self, name: str, *arguments: str, folder: Path | None = None) -> str:
        """Run a program of the project's environment, which must succeed, and return its output."""
        done = self._start(name, arguments, folder)
        assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def refuse(self, name: str, *arguments: str) -> str:
        """Run a program, which must fail, and return all of its output."""
        done = self._start(name, arguments, None)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def write(self, resource_prefix: str = "") -> None:
        """Write the project's own definitions."""
        for name, source in (("host", _HOST), ("resources", _RESOURCES)):
            (self.root / "src" / "lake" / "defs" / f"{name}.py").write_text(source.replace("KEY", resource_prefix))

    def join(self, name: str) -> None:
        """Write the component's `defs.yaml`, with a name unless it is ""."""
        line = f"  name: {name}\n" if name else ""
        (self.root / "src" / "lake" / "defs" / "tables" / "defs.yaml").write_text(_COMPONENT + line)

    def look(self) -> dict[str, Any]:
        """Return runs, ticks, pools and the metadata of own assets."""
        stored: dict[str, Any] = json.loads(self.call("python", "-c", _LOOK).splitlines()[-1])
        return stored

    def definitions(self) -> dict[str, dict[str, Any]]:
        """Return the definitions that `dg list defs` prints, by kind and key."""
        printed: dict[str, list[dict[str, Any]]] = json.loads(self.call("dg", "list", "defs", "--json"))
        return {
            kind: {str(item.get("asset_key") or item.get("key") or item["name"]): item for item in items}
            for kind, items in printed.items()
        }

    def executor(self) -> tuple[str, set[str]]:
        """Return the executor of the project's job, and the keys of all resources."""
        executor, resources = json.loads(self.call("python", "-c", _EXECUTORS).splitlines()[-1])
        return executor, set(resources)

    @contextmanager
    def dagster_dev(self) -> Iterator[Callable[[], str]]:
        """Run `dagster dev` while the context is open; yield a function that returns the end of its output."""
        log = self.home / "dev.log"
        with log.open("w") as output:
            server = subprocess.Popen(
                [str(self._bin / "python"), "-m", "dagster", "dev", "-m", "lake.definitions", "-p", str(free_port())],
                cwd=self.root,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield lambda: log.read_text()[-4000:]
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait(60)


@pytest.fixture
def host(python: Path, tmp_path: Path, environment: dict[str, str]) -> Host:
    pins = [f"{name}=={dg.__version__}" for name in ("create-dagster", "dagster-dg-cli")]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet"]
    installed = subprocess.run([*pip, *pins], capture_output=True, text=True, check=False)
    if installed.returncode:
        missing(f"create-dagster: {installed.stderr[-300:]}")
    host = Host(python, tmp_path, {**environment, "HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "yes"})
    host.call("create-dagster", "project", "lake", "--no-uv-sync", folder=tmp_path)
    for package in ("assets", "checks", "orchestration"):
        (host.root / "src" / package).mkdir()
        (host.root / "src" / package / "__init__.py").write_text('OWNER = "lake"\n')
    return host


def _wait(
    host: Host, seconds: float, condition: Callable[[dict[str, Any]], bool], log: Callable[[], str]
) -> dict[str, Any]:
    """Return what the instance has stored as soon as it fulfils a condition."""
    end = time.monotonic() + seconds
    while not condition(stored := host.look()):
        assert time.monotonic() < end, f"{stored['runs']}\n{stored['ticks']}\n{log()}"
        time.sleep(2)
    return stored


def _compactions(stored: dict[str, Any]) -> list[str]:
    """Return the ids of the succeeded runs of the layout asset, which a sensor of the component started."""
    return [
        run_id
        for run_id, run in stored["runs"].items()
        if run["assets"] == ["tables/shop/orders_layout"]
        and run["status"] == "SUCCESS"
        and str(run["sensor"]).startswith("tables__")
    ]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_project_of_create_dagster_is_the_same_after_it_was_joined(host: Host) -> None:
    host.write()
    before, executor_before, resources_before = host.definitions(), *host.executor()
    host.call("dg", "launch", "--job", "nightly")
    first = host.look()
    ((run_id, run),) = first["runs"].items()
    process = first["processes"][0]
    assert (run["job"], run["status"], first["processes"]) == ("nightly", "SUCCESS", [process, process])
    assert not [name for name in process[1] if name.startswith("DREDGE_")]

    host.call("python", "-c", _TABLE)
    host.call("dg", "scaffold", "defs", "dredge.PaimonWarehouse", "tables", "--warehouse", "wh")
    host.join("")
    refused = host.refuse("dg", "check", "defs")
    assert "resources 'ledger', 'spark', 'warehouse'): set `name`" in " ".join(refused.split()), refused

    host.join("tables")
    assert "All definitions loaded successfully" in host.call("dg", "check", "defs")
    after, executor, resources = host.definitions(), *host.executor()
    for kind, own in before.items():
        assert {key: after[kind].get(key) for key in own} == own, kind
    assert {"tables/own/report", "tables/own/totals"} == set(before["assets"])
    assert {"tables/shop/orders", "tables/shop/orders_layout"} <= set(after["assets"])
    assert (executor, resources - resources_before) == (
        executor_before,
        {f"tables__{key}" for key in ("ledger", "spark", "warehouse")},
    )
    host.call("dg", "launch", "--job", "nightly")
    second = host.look()
    assert second["runs"][run_id] == run
    ((later,),) = [[entry for key, entry in second["runs"].items() if key != run_id]]
    assert later == run, "the job's run has the same kinds and number of events"
    assert second["processes"] == [process] * 4, "garbage collector, signals, logging and environment are the project's"

    def is_done(stored: dict[str, Any]) -> bool:
        fired = [entry for entry in stored["runs"].values() if entry["sensor"] == "arrivals"]
        return bool(_compactions(stored)) and [entry["status"] for entry in fired] == ["SUCCESS"]

    with host.dagster_dev() as log:
        _wait(host, 240, is_done, log)
    stored = host.look()
    assert {"SUCCESS", "SKIPPED"} >= {status for _, status in stored["ticks"]["arrivals"]} >= {"SUCCESS"}
    assert "SUCCESS" in {status for _, status in stored["ticks"]["tables__sorted_run"]}
    (fired,) = [entry for entry in stored["runs"].values() if entry["sensor"] == "arrivals"]
    assert [kind for kind in fired["events"] if kind.startswith(("STEP", "ASSET"))] == [
        kind for kind in run["events"] if kind.startswith(("STEP", "ASSET"))
    ]

    host.call("dg", "launch", "--job", "tables__retention")
    last = host.look()
    for kind in ("runs", "ticks"):
        assert {key: last[kind][key] for key in stored[kind]} == stored[kind], "retention removes nothing"
    retention = [entry for key, entry in last["runs"].items() if key not in stored["runs"]]
    assert [(entry["job"], entry["status"]) for entry in retention] == [("tables__retention", "SUCCESS")]
    assert last["limits"]["reports"] == 1
    ends = zip(last["steps"], last["steps"][1:], strict=False)
    assert len(last["steps"]) == 6
    assert all(end <= begin for (_, end), (begin, _) in ends), "the pool lets one step run at a time"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_project_with_other_resource_keys_is_joined_without_a_name(host: Host) -> None:
    host.write("own_")
    before, executor_before, resources_before = host.definitions(), *host.executor()
    host.call("python", "-c", _TABLE)
    host.call("dg", "scaffold", "defs", "dredge.PaimonWarehouse", "tables", "--warehouse", "wh")
    host.join("")
    assert "All definitions loaded successfully" in host.call("dg", "check", "defs")
    after, executor, resources = host.definitions(), *host.executor()
    for kind, own in before.items():
        assert {key: after[kind].get(key) for key in own} == own, kind
    assert {"wh/shop/orders", "wh/shop/orders_layout"} <= set(after["assets"])
    assert (executor, resources - resources_before) == (executor_before, {"ledger", "spark", "warehouse"})
    for command in (("--job", "nightly"), ("--assets", "wh/shop/orders_layout"), ("--job", "retention")):
        host.call("dg", "launch", *command)
    stored = host.look()
    assert sorted((run["job"], run["status"]) for run in stored["runs"].values()) == [
        ("__ASSET_JOB", "SUCCESS"),
        ("nightly", "SUCCESS"),
        ("retention", "SUCCESS"),
    ]
