"""`PaimonWarehouse` in a project of somebody's own: found, scaffolded, loaded from a few lines beside their assets."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import pytest
from dagster.components.component_scaffolding import scaffold_object

from dredge.orchestration.component import PaimonWarehouse
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB, allow_early_features
from dredge.platform_core.resources.settings import Settings
from lsm_core import Catalog
from tests.docs.pages import ROOT
from tests.support.platform import commit, keyed_table

TYPE = "dredge.PaimonWarehouse"
ORDERS = "shop.orders"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project as `dg` lays it out, with an asset of its own; what loading it changes of this process is undone."""
    folder, root = tmp_path / "project", tmp_path / "project" / "wh"
    (folder / "src" / "lake_team" / "defs").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "lake_team"\n'
    )
    for package in ("", "defs/"):
        (folder / "src" / "lake_team" / package / "__init__.py").write_text("")
    (folder / "src" / "lake_team" / "defs" / "reports.py").write_text(
        "import dagster as dg\n\n"
        '@dg.asset(deps=[dg.AssetKey(["wh", "shop", "orders"])], automation_condition=dg.AutomationCondition.eager())\n'
        "def revenue() -> None: ...\n"
    )
    commit(keyed_table(root, ORDERS), 2)
    with mock.patch.dict(os.environ), mock.patch.object(sys, "path", [str(folder / "src"), *sys.path]):
        for name in [name for name in os.environ if name.startswith("DREDGE_")]:
            del os.environ[name]
        yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "lake_team"]:
        del sys.modules[name]


def written(project: Path, text: str, component: str = TYPE) -> Path:
    file = project / "src" / "lake_team" / "defs" / "warehouse" / "defs.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"type: {component}\nattributes:\n{text}")
    return file


def loaded(project: Path) -> dg.RepositoryDefinition:
    repository = dg.load_from_defs_folder(path_within_project=project / "src" / "lake_team").get_repository_def()
    with allow_early_features():  # Dagster copies what components give it, with its own beta parameters
        assert repository.asset_graph.get_all_asset_keys()
    return repository


def test_what_the_command_line_scaffolds_loads_beside_the_project_s_own_assets(project: Path) -> None:
    file = project / "src" / "lake_team" / "defs" / "warehouse" / "defs.yaml"
    file.parent.mkdir()
    scaffold_object(file.parent, TYPE, '{"warehouse": "wh"}', "yaml", project)
    assert len(file.read_text().splitlines()) <= 10
    repository = loaded(project)
    keys = repository.asset_graph.get_all_asset_keys()
    root = str(project / "wh")
    assert {
        names.WarehouseNames.of(root).data_key(ORDERS),
        names.WarehouseNames.of(root).layout_key(ORDERS),
        dg.AssetKey("revenue"),
    } <= keys
    assert {names.SORTED_RUN_SENSOR, names.CATALOG_SENSOR} <= {sensor.name for sensor in repository.sensor_defs}


def test_the_process_of_the_host_is_left_as_it_was(project: Path) -> None:
    file = project / "src" / "lake_team" / "defs" / "warehouse" / "defs.yaml"
    written(project, "  warehouse: wh\n  runner: local\n  policies: policies.yaml\n  sensors: {seconds: 5}\n")
    file.with_name("policies.yaml").write_text("tables: {shop.orders: {owners: ['team:lake']}}")

    def state() -> tuple[Any, ...]:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        root = logging.root
        return dict(os.environ), gc.get_threshold(), gc.isenabled(), root.level, root.handlers[:], handlers

    before = state()
    # The number of frozen objects is no measure: tests/conftest.py freezes, and a frozen object that dies leaves.
    with mock.patch.object(gc, "freeze") as freeze, mock.patch.object(gc, "unfreeze") as unfreeze:
        loaded(project)
    assert (freeze.call_count, unfreeze.call_count) == (0, 0)
    assert state() == before


@pytest.mark.parametrize(
    ("line", "executor"), [("", "multi_or_in_process_executor"), ("  executor: true\n", "in_process")]
)
def test_runs_of_the_project_keep_their_executor(project: Path, line: str, executor: str) -> None:
    written(project, f"  warehouse: wh\n  runner: local\n{line}")
    assert loaded(project).get_job(ASSET_JOB).executor_def.name == executor


def test_an_import_leaves_the_process_as_it_was() -> None:
    program = (
        "import dagster, gc, os, signal\n"
        "def state(): return (dict(os.environ), gc.get_threshold(), gc.get_freeze_count(), "
        "[signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)])\n"
        "before = state()\n"
        "import dredge.orchestration.component, dredge.checks.expectations, lsm_core.table\n"
        "assert state() == before, (before, state())"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_patterns_choose_tables_and_a_translation_their_attributes(project: Path) -> None:
    root = project / "wh"
    for table in ("shop.tmp_1", "crm.people"):
        commit(keyed_table(root, table), 1)
    written(
        project,
        "  warehouse: wh\n  runner: local\n  name: lake\n  include: ['shop.*']\n  exclude: ['*.tmp_*']\n"
        "  translation:\n    group_name: \"{{ table.name.split('.')[0] }}_tables\"\n    owners: ['team:lake']\n"
        "    tags: {keys: \"{{ table.primary_keys | join('_') }}\"}\n",
    )
    graph = loaded(project).asset_graph
    tables = {key.to_user_string() for key in graph.get_all_asset_keys() if key.path[0] == "lake"}
    assert tables == {"lake/shop/orders", "lake/shop/orders_layout", "lake/warehouse_health"}
    for key in ("lake/shop/orders", "lake/shop/orders_layout"):
        node = graph.get(dg.AssetKey(key.split("/")))
        assert (node.group_name, node.owners) == ("shop_tables", ["team:lake"])
        assert node.tags["keys"] == "_".join(Catalog(str(root)).table(ORDERS).primary_keys)
    assert graph.get(dg.AssetKey(["lake", "shop", "orders"])).metadata["dagster/table_name"].value == ORDERS


def test_what_it_is_told_is_what_ticks_and_runs_find(project: Path) -> None:
    file = written(
        project,
        "  warehouse: '{{ env.LAKE }}'\n  runner: local\n  policies: policies.yaml\n"
        "  spark_config: {spark: {driver: {memory: 4g}}, spark.sql.shuffle.partitions: 3}\n"
        "  settings: {DREDGE_SENSOR_SECONDS: '5'}\n  sensors: {enabled: false}\n  executor: false\n"
        "  schedules: {enabled: false, audit: '@daily'}\n  links: {data_docs: 'http://docs'}\n"
        "  alerts: {webhook: 'https://hooks.example/secret'}\n",
    )
    file.with_name("policies.yaml").write_text("tables: {shop.orders: {owners: ['team:lake']}}")
    os.environ["LAKE"] = str(project / "wh")
    repository = loaded(project)
    data = names.WarehouseNames.of(str(project / "wh")).data_key(ORDERS)
    assert repository.asset_graph.get(data).owners == ["team:lake"]
    assert repository.get_sensor_def(names.SORTED_RUN_SENSOR).minimum_interval_seconds == 5
    sensor = repository.get_sensor_def(names.SORTED_RUN_SENSOR)
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    schedule = repository.get_schedule_def(f"{names.AUDIT_JOB}_schedule")
    assert (schedule.cron_schedule, schedule.default_status) == ("@daily", dg.DefaultScheduleStatus.STOPPED)
    with dg.build_resources(dict(repository.get_top_level_resources())) as resources:
        assert (resources.spark.runner, resources.warehouse.path) == ("local", str(project / "wh"))
        assert resources.spark.spark_config == {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "3"}
        assert resources.warehouse.policy_file == str(file.with_name("policies.yaml"))
        settings = Settings.from_environment(resources.warehouse.environment())
        assert (settings.data_docs_url, settings.audit_cron) == ("http://docs", "@daily")
        assert "secret" not in str(resources.warehouse), "the web page shows resources"


def test_the_old_name_of_the_component_is_answered_with_the_new_one(project: Path) -> None:
    written(project, "  warehouse: wh\n", "orchestration.component.PaimonWarehouse")
    with pytest.raises(Exception, match=r"orchestration\.component") as caught:
        loaded(project)
    errors = []
    error: BaseException | None = caught.value
    while error is not None:
        errors.append(str(error))
        error = error.__cause__ or error.__context__
    assert [text for text in errors if "`orchestration` is now `dredge.orchestration`" in text]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  warehouse: wh\n  settings: {SPARK_HOME: /x}\n", "'settings' cannot be 'SPARK_HOME'"),
        ("  warehouse: wh\n  settings: {DREDGE_SENSOR_SECONDS: soon}\n", "DREDGE_SENSOR_SECONDS"),
        ("  warehouse: wh\n  spark_config: {driver.memory: 4g}\n", "'spark_config' cannot be 'driver.memory'"),
        ("  warehouse: wh\n  runner: flink\n", "'spark', 'local' or 'pipes'"),
        ("  warehouse: wh\n  runner: pipes\n", "DREDGE_SPARK_SUBMIT"),
        ("  warehouse: wh\n  settings: {DREDGE_RUNNER: local}\n", "without a field in defs.yaml"),
        ("  warehouse: wh\n  schedules: {audit: soon}\n", "DREDGE_AUDIT_CRON"),
        ("  warehouse: wh\n  sensors: {second: 3}\n", "second"),
        ("  warehouse: wh\n  translation: {key: orders}\n", "the asset's own key"),
        ("  warehouse: wh\n  translation: {partitions_def: {type: static, partition_keys: [a]}}\n", "own partitions"),
        ("  warehouse: wh\n  sensors: {seconds: 0}\n", "sensors.seconds (DREDGE_SENSOR_SECONDS)"),
        ("  warehouse: wh\n  alerts: {email: a@example.org}\n", "alerts.smtp (DREDGE_ALERT_SMTP)"),
        ("  warehouse: ' '\n", "a folder or an address of an object store"),
        ("  runner: local\n", "warehouse\n  Field required"),
    ],
)
def test_what_it_cannot_use_is_named(project: Path, text: str, said: str) -> None:
    written(project, text)
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        loaded(project)
    result, error = "", caught.value.__cause__ or caught.value.__context__
    while error is not None:
        result, error = f"{result}\n{error}", error.__cause__ or error.__context__
    assert said in result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  include: ['sohp.*']\n", "no table that include ['sohp.*'] and exclude [] choose"),
        ("  alerts: {slack: '{{ env.NOT_SET }}'}\n", "alerts.slack of the warehouse wh has no value"),
    ],
)
def test_what_has_no_effect_is_logged(project: Path, text: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    written(project, f"  warehouse: wh\n  runner: local\n{text}")
    with caplog.at_level(logging.WARNING):
        loaded(project)
    assert said in caplog.text


def test_two_components_with_the_same_tables_are_refused(project: Path) -> None:
    written(project, "  warehouse: wh\n  runner: local\n  name: north\n")
    second = project / "src" / "lake_team" / "defs" / "second" / "defs.yaml"
    second.parent.mkdir()
    text = f"type: {TYPE}\nattributes:\n  warehouse: ./wh/\n  runner: local\n  name: south\n"
    second.write_text(text)
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        loaded(project)
    assert "(components 'north', 'south')" in str(caught.value.__cause__)
    second.write_text(f"{text}  exclude: ['shop.*']\n")
    assert loaded(project).asset_graph.get_all_asset_keys()


def test_it_is_registered_where_dg_looks() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module = declared["dagster_dg_cli.registry_modules"]["dredge"]
    assert f"{module}.{PaimonWarehouse.__name__}" == TYPE
    installed = importlib.metadata.entry_points(group="dagster_dg_cli.registry_modules")
    assert module in {item.value for item in installed}, "run `make setup`"
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]
    assert settings["project"]["code_location_target_module"] == "dredge.orchestration.definitions"
