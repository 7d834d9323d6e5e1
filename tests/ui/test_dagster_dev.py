"""A real `dagster dev` with its daemon: a run starts by itself, once, for the right table, and the ticks say why not for the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dredge.orchestration.verbs.dagster_client import DagsterClient, Run
from dredge.orchestration.verbs.dagster_process import Platform, start_platform
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from lsm_core import Table
from tests.docs.blocks import blocks
from tests.docs.pages import ROOT
from tests.support.data import unpack_golden
from tests.support.platform import commit, keyed_table

PROMISED_S = 60
BUSY, CALM = "shop.busy", "shop.calm"


@dataclass(frozen=True)
class Live:
    """The running platform and the two tables it looks after."""

    platform: Platform
    busy: Table
    calm: Table

    @property
    def client(self) -> DagsterClient:
        return self.platform.client


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("dev")
    root = folder / "a warehouse"
    busy, calm = keyed_table(root, BUSY), keyed_table(root, CALM, partitioned=False)
    commit(busy, 4)
    commit(calm, 2)
    java = unpack_golden("changelog_input", folder / "java")
    (root / "java.db").mkdir()
    java.rename(root / "java.db" / "totals")
    schema = root / "java.db" / "totals" / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"bucket"', '"commit.callbacks" : "a.B", "bucket"'))
    environment = {
        "DREDGE_WAREHOUSE": str(root),
        "DREDGE_RUNNER": "local",
        "DREDGE_SENSOR_SECONDS": "5",
        "DREDGE_SCHEDULES": "off",
    }
    platform = start_platform(folder / "home", environment)
    try:
        yield Live(platform, busy, calm)
    finally:
        platform.stop()


def wait_for(what: str, ready: Callable[[], bool], seconds: float = 180) -> None:
    """Wait until something holds; a generous limit, since nothing here measures the machine."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.5)


def runs_of(live: Live, table: str) -> list[Run]:
    return live.client.runs({names.TAG_TABLE: table})


def ticks_since(live: Live, sensor: str, moment: float) -> list[str]:
    """What the finished ticks of a sensor say that began after ``moment``."""
    return [
        tick.text
        for tick in live.client.ticks(sensor)
        if tick.started > moment and tick.status in {"SKIPPED", "SUCCESS"}
    ]


def test_ticks_show_why_nothing_is_done_for_each_table(live: Live) -> None:
    wait_for(
        "a tick of each sensor",
        lambda: all(ticks_since(live, s, 0) for s in (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)),
    )
    message = ticks_since(live, names.SORTED_RUN_SENSOR, 0)[0]
    assert f"{BUSY}/dt=a: decline (too few runs): 4 sorted runs < 5" in message
    assert f"{CALM}: decline (too few runs): 2 sorted runs < 5" in message
    assert "java.totals: decline (unsupported): not supported: commit callbacks (table java.totals)" in message
    idle = ticks_since(live, names.IDLE_SENSOR, 0)[0]
    assert f"{BUSY}/dt=a: decline (not idle): idle 0 d < 20 d" in idle
    assert not live.client.runs()


def test_ten_lines_and_a_tick_lead_to_the_first_green_checks(live: Live) -> None:
    (records,) = [block for block in blocks(ROOT / "README.md") if "dagster dev" in block.code]
    lines = [line for line in records.code.splitlines() if line.strip()]
    assert len(lines) <= 10
    assert {line.split("=")[0].removeprefix("export ") for line in lines[:-1]} == {"DREDGE_WAREHOUSE", "DREDGE_RUNNER"}
    root = next(iter(live.platform.folder.parent.glob("a warehouse")))
    wanted = [(BUSY, names.BACKLOG_CHECK), (CALM, names.BACKLOG_CHECK), (CALM, names.TREE_CHECK)]
    for table, check in wanted:
        path = names.WarehouseNames.of(str(root)).layout_key(table).path
        wait_for(f"{check} of {table}", lambda path=path, check=check: bool(live.client.check_results(path, check)))
        first = live.client.check_results(path, check)[-1]
        assert first.passed
        assert not first.run_id, "from metadata, without a run"


def test_the_fifth_commit_starts_one_run_by_itself_and_no_second(live: Live) -> None:
    rows = live.busy.to_arrow().num_rows
    commit(live.busy)
    committed = time.time()
    wait_for("a run", lambda: bool(runs_of(live, BUSY)))
    run = runs_of(live, BUSY)[0]
    started_after = run.created - committed
    assert started_after <= PROMISED_S
    wait_for("the end of the run", lambda: runs_of(live, BUSY)[0].finished)
    run = runs_of(live, BUSY)[0]
    assert run.status == "SUCCESS"
    assert run.job == ASSET_JOB, "no job a table"
    assert run.tags[names.TAG_ACTION] == "compact"
    assert run.tags[names.TAG_REASON].startswith("5 sorted runs >= 5; ")
    assert run.tags["dagster/run_key"] == f"{BUSY}/dt=a@5:{run.tags[names.TAG_PLAN]}"
    assert [bucket.sorted_runs for bucket in live.busy.health()] == [1]
    assert live.busy.to_arrow().num_rows == rows + 25

    finished = time.time()
    wait_for("two more ticks", lambda: len(ticks_since(live, names.SORTED_RUN_SENSOR, finished)) >= 2)
    assert len(live.client.runs()) == 1, "one plan, one run; the healthy and the unsupported table start none"
    later = ticks_since(live, names.SORTED_RUN_SENSOR, finished)[0]
    assert f"{BUSY}/dt=a: decline (too few runs): 1 sorted run < 5" in later
    assert f"{CALM}: decline (too few runs): 2 sorted runs < 5" in later


def test_the_layout_and_its_checks_are_told_in_the_ui(live: Live) -> None:
    root = next(iter(live.platform.folder.parent.glob("a warehouse")))
    path = names.WarehouseNames.of(str(root)).layout_key(BUSY).path
    asked = """query Q($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename ... on AssetNode {
      kinds groupName description partitionStats { numMaterialized }
      assetMaterializations(limit: 1) { partition metadataEntries { label } }
      assetChecksOrError { ... on AssetChecks { checks { name blocking executionForLatestMaterialization { status } } } }
    } } }"""

    def told_of() -> Any:
        return live.client.query(asked, {"key": {"path": list(path)}})["assetNodeOrError"]

    wait_for("the layout's materialization in the UI", lambda: bool(told_of().get("assetMaterializations")))
    node = told_of()
    assert node["__typename"] == "AssetNode"
    assert set(node["kinds"]) == {"dredge", "spark"}
    assert node["groupName"] == "shop"
    result = node["assetMaterializations"][0]
    assert result["partition"] == "dt=a"
    labels = {entry["label"] for entry in result["metadataEntries"]}
    assert {"sorted runs (worst bucket)", "levels", "buckets", "rows in", "rows out", "plan"} <= labels
    checks = {check["name"]: check for check in node["assetChecksOrError"]["checks"]}
    assert checks["merged_view_unchanged"]["blocking"]
    assert checks["tree_is_valid"]["blocking"]
    assert {"merged_view_unchanged", "tree_is_valid", "level0_backlog"} <= set(checks)
