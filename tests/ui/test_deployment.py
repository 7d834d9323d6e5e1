"""A deployment as docs/platform.md describes it: Dagster's storage in PostgreSQL, its secrets in the environment, and a web server for viewers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import dagster as dg
import pytest
import yaml

from dredge.orchestration.verbs.dagster_client import DagsterClient, PlatformFailed
from dredge.orchestration.verbs.dagster_process import INSTANCE
from dredge.platform_core import names
from lsm_core.processes import LOOPBACK, end_group, free_port, group_lives
from tests.docs.blocks import blocks
from tests.docs.pages import ROOT
from tests.support.databases import PASSWORD
from tests.support.platform import House, commit, evaluations, keyed_table

DUE, CALM = "shop.orders", "shop.calm"
_LAUNCH = """mutation Launch($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename } }"""
_START = """mutation Start($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) { __typename } }"""
_DELETE = """mutation Delete($run: String!) { deletePipelineRun(runId: $run) { __typename } }"""
_ADD = """mutation Add($repository: RepositorySelector!) {
  addDynamicPartition(repositorySelector: $repository, partitionsDefName: "shop.orders", partitionKey: "dt=z") { __typename }
}"""


@pytest.fixture(scope="module")
def home(postgresql_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """DAGSTER_HOME with the storage that the page tells of, whose secrets this process's environment has."""
    folder = tmp_path_factory.mktemp("home")
    (records,) = [
        block.code
        for block in blocks(ROOT / "docs" / "platform.md")
        if block.language == "yaml" and "postgres_db" in block.code
    ]
    server = urlsplit(postgresql_address.removeprefix("jdbc:"))
    storage = yaml.safe_load(records)
    storage["storage"]["postgres"]["postgres_db"]["port"] = server.port
    (folder / "dagster.yaml").write_text(INSTANCE.read_text() + yaml.safe_dump(storage))
    secrets = {
        "DAGSTER_PG_HOST": str(server.hostname),
        "DAGSTER_PG_USER": "paimon",
        "DAGSTER_PG_PASSWORD": PASSWORD,
        "DAGSTER_PG_DB": "postgres",
    }
    assert PASSWORD not in (folder / "dagster.yaml").read_text()
    with mock.patch.dict(os.environ, secrets):
        yield folder


@pytest.fixture(scope="module")
def house(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    root = tmp_path_factory.mktemp("lake") / "wh"
    commit(keyed_table(root, DUE), 5)
    commit(keyed_table(root, CALM, partitioned=False), 1)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield House(root, instance)


@pytest.mark.soak
def test_ticks_runs_and_checks_live_in_postgresql(house: House, home: Path) -> None:
    assert type(house.instance.run_storage).__name__ == "PostgresRunStorage"
    tick = house.tick(names.SORTED_RUN_SENSOR)
    (request,) = tick.run_requests or ()
    result = house.run(request)
    assert result.success
    assert evaluations(result)[names.MERGED_VIEW_CHECK][0]
    assert house.instance.get_run_by_id(result.run_id) is not None
    assert house.materialisation(DUE, "dt=a")["runs after"] == 1
    assert house.instance.get_dynamic_partitions(names.WarehouseNames.of("").partitions_name(DUE)) == ["dt=a"]
    calm = house.tick(names.SORTED_RUN_SENSOR)
    assert not calm.run_requests
    assert calm.skip_message is not None
    assert f"{DUE}/dt=a: decline (too few runs)" in calm.skip_message
    assert house.instance.get_materialized_partitions(names.WarehouseNames.of(str(house.root)).data_key(DUE)) == {
        "dt=a"
    }
    assert not list(home.rglob("*.db")), "nothing of it is in SQLite"


@contextmanager
def viewers(house: House, home: Path, *more: str) -> Iterator[DagsterClient]:
    """The web server for viewers, as the page starts it; ``more`` options instead of the workspace, whose code server takes seconds."""
    (lines,) = [
        line
        for block in blocks(ROOT / "docs" / "platform.md")
        for line in block.code.splitlines()
        if line.startswith("dagster-webserver ")
    ]
    port = free_port()
    options = lines.replace("3001", str(port))
    assert "-w workspace.yaml" in options
    options = options.replace("-w workspace.yaml", " ".join(more)) if more else options
    command = [sys.executable, "-m", "dagster_webserver", *options.split()[1:], "--host", LOOPBACK]
    environment = {**os.environ, **house.environment, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    with (home / "web.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    client = DagsterClient(f"http://{LOOPBACK}:{port}")
    try:
        deadline = time.monotonic() + 120
        while not _answers(client, locations=not more):
            assert process.poll() is None and time.monotonic() < deadline, (home / "web.log").read_text()
            time.sleep(0.2)
        yield client
    finally:
        end_group(process.pid, lambda: process.poll() is None or group_lives(process.pid), 20)


def _answers(client: DagsterClient, *, locations: bool) -> bool:
    try:
        return client.is_loaded() if locations else bool(client.query("{ version }"))
    except PlatformFailed as error:
        if f"a query to {client.url}" in str(error):  # it does not listen yet; anything else is final
            return False
        raise


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), marks=pytest.mark.soak, id="with its workspace"),
        pytest.param(("--empty-workspace",), id="alone"),
    ],
)
def test_viewers_see_everything_and_change_nothing(house: House, home: Path, more: tuple[str, ...]) -> None:
    if not house.instance.get_runs_count():
        house.run((house.tick(names.SORTED_RUN_SENSOR).run_requests or ())[0])
    with viewers(house, home, *more) as client:
        (run,) = client.runs()
        assert run.status == "SUCCESS"
        place = {"repositoryName": "__repository__", "repositoryLocationName": "dredge"}
        selector = {**place, "jobName": names.RETENTION_JOB}
        answers = [
            client.query(_LAUNCH, {"params": {"selector": selector, "runConfigData": {}}})["launchRun"],
            client.query(_START, {"sensor": {**place, "sensorName": names.SORTED_RUN_SENSOR}})["startSensor"],
            client.query(_DELETE, {"run": run.run_id})["deletePipelineRun"],
            client.query(_ADD, {"repository": place})["addDynamicPartition"],
        ]
        assert {answer["__typename"] for answer in answers} == {"UnauthorizedError"}
        if not more:
            assert client.check_results(house.layout(CALM).path, names.BACKLOG_CHECK)[0].passed
        assert len(client.runs()) == 1
    assert house.instance.get_dynamic_partitions(names.WarehouseNames.of("").partitions_name(DUE)) == ["dt=a"]
