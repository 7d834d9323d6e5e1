"""Dredge's launcher is chosen by a `dagster.yaml` alone; with Dagster's own launcher maintenance works, only slower."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import dagster as dg
import pytest

from bench.launcher import write_settings
from dredge.orchestration.launcher import PROCESS_TAG, WarmRunLauncher
from dredge.orchestration.verbs.dagster_process import start_platform
from dredge.platform_core import names
from tests.docs.pages import ROOT
from tests.support.platform import commit, keyed_table

ORDERS = "shop.orders"


def test_no_module_of_the_platform_imports_the_launcher_or_the_instance() -> None:
    importing = [
        path.relative_to(ROOT).as_posix()
        for room in ("orchestration", "platform_core", "assets", "checks", "dredge", "integrations")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if name in {"dredge.orchestration.launcher", "dredge.orchestration.instance"}
    ]
    assert importing == []


@pytest.mark.parametrize("own", [True, False])
def test_the_settings_of_the_instance_choose_the_launcher(tmp_path: Path, own: bool) -> None:
    write_settings(tmp_path / "home", own_launcher=own)
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        assert type(instance.run_launcher) is (WarmRunLauncher if own else dg.DefaultRunLauncher)
        assert (type(instance) is dg.DagsterInstance) is not own


@pytest.mark.soak
def test_a_sensor_compacts_a_table_with_dagster_s_own_launcher(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    table = keyed_table(root, ORDERS)
    commit(table, 5)
    rows = table.to_arrow().num_rows
    write_settings(tmp_path / "home", own_launcher=False)
    environment = {
        "DREDGE_WAREHOUSE": str(root),
        "DREDGE_RUNNER": "local",
        "DREDGE_SENSOR_SECONDS": "5",
        "DREDGE_SCHEDULES": "off",
    }
    platform = start_platform(tmp_path / "home", environment)
    try:
        deadline = time.monotonic() + 300
        while not (runs := platform.client.runs({names.TAG_TABLE: ORDERS})) or not runs[0].finished:
            assert time.monotonic() < deadline, platform.log.read_text()[-4000:]
            time.sleep(0.5)
        checked = platform.client.check_results(
            names.WarehouseNames.of(str(root)).layout_key(ORDERS).path, names.MERGED_VIEW_CHECK
        )
    finally:
        platform.stop()
    assert [(run.status, PROCESS_TAG in run.tags) for run in runs] == [("SUCCESS", False)]
    assert [bucket.sorted_runs for bucket in table.health()] == [1]
    assert table.to_arrow().num_rows == rows
    assert checked[0].passed
    assert checked[0].run_id == runs[0].run_id
