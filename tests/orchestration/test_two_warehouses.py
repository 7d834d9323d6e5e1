"""Two components over two warehouses in one code location: equally named tables of which nothing counts for the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import pytest

from dredge.orchestration.component import PaimonWarehouse
from dredge.orchestration.sensors.table_cache import wall_ms
from dredge.platform_core.dagster_internals import ASSET_JOB, allow_early_features
from dredge.platform_core.mute_records import list_mutes
from dredge.platform_core.names import TAG_TABLE, WarehouseNames
from dredge.platform_core.obstacles import RunningRuns, find_suspension, read_newest_evaluations
from dredge.platform_core.resources.warehouse import LedgerResource, WarehouseResource
from lsm_core import Catalog, Schema, Table
from lsm_core.maintenance import read_ledger
from lsm_core.metadata import snapshots
from tests.support.platform import KEYED, LAYOUT_CHECKS, commit, open_house

ORDERS = "shop.orders"
BOTH = ("north", "south")
SCHEMA = Schema(KEYED, ["dt", "id"], options={"bucket": "1", "write-only": "true"})


@dataclass
class Project:
    """Project with a component over a folder (north) and one over a JDBC catalog in SQLite (south).

    Attributes:
        folder: folder of the project.
        tables: the table of each warehouse, by name of the component.
        cursors: cursors of the sensors by name.
    """

    folder: Path
    tables: dict[str, Table] = field(default_factory=dict)
    cursors: dict[str, str | None] = field(default_factory=dict)

    def write(self, component: str, text: str) -> Path:
        """Write the attributes of a component, and return its file."""
        file = self.folder / "src" / "two_lakes" / "defs" / component / "defs.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"type: dredge.PaimonWarehouse\nattributes:\n  runner: local\n{text}")
        return file

    def load(self) -> dg.RepositoryDefinition:
        """Load the code location as `dg` does."""
        folder = self.folder / "src" / "two_lakes"
        repository = dg.load_from_defs_folder(path_within_project=folder).get_repository_def()
        with allow_early_features():  # Dagster copies what components give it, with its own beta parameters
            assert repository.asset_graph.get_all_asset_keys()
        return repository

    def commit(self) -> None:
        """Make the five commits from which a table is compacted, in both tables."""
        for table in self.tables.values():
            commit(table, 5)

    def tick(self, repository: dg.RepositoryDefinition, instance: dg.DagsterInstance, sensor: str) -> Any:
        """Evaluate one tick with the resources of the code location, and store its cursor and events."""
        context = dg.build_sensor_context(
            instance_ref=instance.get_ref(),
            repository_def=repository,
            sensor_name=sensor,
            cursor=self.cursors.get(sensor),
            resources=dict(repository.get_top_level_resources()),
        )
        with context:
            result = repository.get_sensor_def(sensor).evaluate_tick(context)
        self.cursors[sensor] = result.cursor
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        return result


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path / "project")
    package = project.folder / "src" / "two_lakes"
    (package / "defs").mkdir(parents=True)
    (project.folder / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "two_lakes"\n'
    )
    for file in (package / "__init__.py", package / "defs" / "__init__.py"):
        file.write_text("")
    jdbc = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}"}
    catalogs = {
        "north": Catalog(str(tmp_path / "north" / "lake")),
        "south": Catalog(str(tmp_path / "south" / "lake"), jdbc),
    }
    for name, catalog in catalogs.items():
        catalog.create_database("shop", ignore_if_exists=True)
        project.tables[name] = catalog.create_table(ORDERS, SCHEMA)
    project.write("north", f"  warehouse: {tmp_path}/north/lake\n  name: north\n")
    options = "".join(f"    {key}: '{value}'\n" for key, value in jdbc.items())
    project.write("south", f"  warehouse: {tmp_path}/south/lake\n  name: south\n  catalog_options:\n{options}")
    with mock.patch.dict(os.environ), mock.patch.object(sys, "path", [str(project.folder / "src"), *sys.path]):
        for name in [name for name in os.environ if name.startswith("DREDGE_")]:
            del os.environ[name]
        yield project
    for name in [name for name in sys.modules if name.split(".")[0] == "two_lakes"]:
        del sys.modules[name]


def warehouse_of(repository: dg.RepositoryDefinition, name: str) -> WarehouseResource:
    with dg.build_resources(dict(repository.get_top_level_resources())) as resources:
        warehouse = getattr(resources, f"{name}__warehouse")
    assert isinstance(warehouse, WarehouseResource)
    return warehouse


def test_two_warehouses_are_maintained_and_nothing_of_one_counts_for_the_other(
    project: Project, tmp_path: Path
) -> None:
    project.commit()
    repository = project.load()
    north, south = (warehouse_of(repository, name) for name in BOTH)
    definitions = [*repository.job_names, *(sensor.name for sensor in repository.sensor_defs)]
    definitions += [schedule.name for schedule in repository.schedule_defs]
    own = [{name.removeprefix(f"{lake}__") for name in definitions if name.startswith(f"{lake}__")} for lake in BOTH]
    assert own[0] == own[1] and {"retention", "sorted_run", "audit_schedule"} <= own[0]
    assert {name for name in definitions if not name.startswith(("north__", "south__"))} == {ASSET_JOB}
    with open_house(tmp_path / "idle") as house:
        instance = house.instance
        tick = project.tick(repository, instance, "north__sorted_run")
        (request,) = tick.run_requests
        assert {event.asset_key.path[0] for event in tick.asset_events} == {"north"}
        queued = instance.add_run(
            dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=dg.DagsterRunStatus.STARTED)
        )
        assert RunningRuns(instance, north.names).tables() == {ORDERS}
        assert RunningRuns(instance, south.names).tables() == set()
        instance.delete_run(queued.run_id)
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            result = repository.get_job(ASSET_JOB).execute_in_process(
                instance=instance,
                asset_selection=request.asset_selection,
                run_config=request.run_config,
                tags=dict(request.tags),
            )
        assert result.success
        assert {check.check_name for check in result.get_asset_check_evaluations() if not check.passed} == set()
        assert {check.asset_key.path[0] for check in result.get_asset_check_evaluations()} == {"north"}
        assert {key.path[0] for key in instance.get_asset_keys()} == {"north"}
        assert [len(read_ledger(project.tables[lake].store)) for lake in BOTH] == [1, 0]
        assert not (Path(project.tables["south"].store.root) / "dredge" / "plans").exists()
        assert snapshots.latest_id(project.tables["south"].store) == 5

        muted = repository.get_job("north__snooze_alerts").execute_in_process(
            instance=instance, run_config={"tables": ORDERS, "cause": "*", "hours": 1.0, "by": "Ada"}
        )
        assert muted.success
        assert [len(list_mutes(instance, lake.names, wall_ms())) for lake in (north, south)] == [1, 0]
        for _ in range(3):
            instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=dg.DagsterRunStatus.FAILURE))
        suspended = find_suspension(instance, north.names, ORDERS)
        assert suspended is not None and "the job north__resume" in suspended.text()
        assert find_suspension(instance, south.names, ORDERS) is None

        tick = project.tick(repository, instance, "south__sorted_run")
        (request,) = tick.run_requests
        assert request.tags[TAG_TABLE] == f"south/{ORDERS}"
        assert {event.asset_key.path[0] for event in tick.asset_events} == {"south"}
        result = repository.get_job("south__maintain").execute_in_process(instance=instance)
        assert result.success, "the plan of the tick is one of this warehouse"
        assert [len(read_ledger(project.tables[lake].store)) for lake in BOTH] == [1, 1]
        checks = [dg.AssetCheckKey(south.names.layout_key(ORDERS), name) for name in LAYOUT_CHECKS]
        evaluations = read_newest_evaluations(instance, checks)
        assert len(evaluations) == len(checks) and all(item.passed for item in evaluations.values())
        ranked = repository.get_job("south__warehouse_health").execute_in_process(instance=instance)
        assert ranked.success
        ranked = repository.get_job("north__warehouse_health").execute_in_process(instance=instance)
        page = str(ranked.get_asset_materialization_events()[0].materialization.metadata)
        assert "launch the job north__resume" in page and "the job resume" not in page
        for lake in BOTH:
            tick = project.tick(repository, instance, f"{lake}__watch")
            assert {event.asset_key.path[0] for event in tick.asset_events} <= {lake}
            suspended_lines = [line for line in (tick.skip_message or "").splitlines() if "suspended" in line]
            assert bool(suspended_lines) is (lake == "north")
            reported = project.tick(repository, instance, f"{lake}__catalog")
            assert reported.skip_message == "1 tables, as loaded"
        pools = [{lake.names.table_pool(ORDERS), lake.names.spark_pool} for lake in (north, south)]
        assert not pools[0] & pools[1]


def test_the_failure_of_a_run_is_recorded_in_its_own_warehouse(project: Project, tmp_path: Path) -> None:
    project.commit()
    repository = project.load()
    Path(project.tables["north"].store.root, "bucket-0").rename(tmp_path / "lost")
    with open_house(tmp_path / "idle") as house:
        failed = repository.get_job("north__compact").execute_in_process(
            instance=house.instance, run_config={"table": ORDERS, "full": True}, raise_on_error=False
        )
        assert not failed.success
        event = next(event for event in failed.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE)
        for lake in reversed(BOTH):
            run = house.instance.get_run_by_id(failed.run_id)
            assert run is not None
            sensor: Any = repository.get_sensor_def(f"{lake}__failures")
            resources = {f"{lake}__ledger": LedgerResource.of(warehouse_of(repository, lake))}
            context = dg.build_run_status_sensor_context(sensor.name, event, house.instance, run, resources=resources)
            skipped = sensor(context.for_run_failure())
            assert ("belongs to no single table" in skipped.skip_message) is (lake == "south")
        approvals = [[entry.approved_by for entry in read_ledger(project.tables[lake].store)] for lake in BOTH]
        assert approvals[1] == [] and f"dagster run {failed.run_id}" in approvals[0]


@pytest.mark.parametrize(
    ("north", "south", "said"),
    [
        ("", "", "set `name` of the warehouses"),
        ("  name: lake\n", "  name: ' lake '\n", "set `name` of the warehouses"),
        ("", "  name: lake\n", "begin with 'lake': set another `name`"),
        ("  settings: {DREDGE_WAREHOUSE_NAME: x}\n", "  name: x\n", "begin with 'x': set another `name`"),
    ],
)
def test_two_components_with_the_same_names_are_one_error(
    project: Project, tmp_path: Path, north: str, south: str, said: str
) -> None:
    for lake, text in (("north", north), ("south", south)):
        project.write(lake, f"  warehouse: {tmp_path}/{lake}/lake\n{text}")
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        project.load()
    text, error = "", caught.value.__cause__
    while error is not None:
        text, error = f"{text}\n{error}", error.__cause__
    assert said in text and f"{tmp_path}/north/lake" in text and f"{tmp_path}/south/lake" in text


def test_a_component_without_a_name_keeps_the_names_of_a_code_location_with_one_warehouse(
    project: Project, tmp_path: Path
) -> None:
    project.write("north", f"  warehouse: {tmp_path}/north/lake\n")
    repository = project.load()
    with allow_early_features():
        repository.load_all_definitions()  # names of ops are unique, too
    assert {"retention", "compact", "south__retention"} <= set(repository.job_names)
    assert {"warehouse", "spark", "ledger", "south__warehouse"} <= repository.get_top_level_resources().keys()
    assert dg.AssetKey(["lake", "shop", "orders"]) in repository.asset_graph.get_all_asset_keys()
    names = WarehouseNames.of(f"{tmp_path}/north/lake", "")
    assert (names.table_pool(ORDERS), names.spark_pool) == ("table/shop/orders", "spark")
    assert [
        names.is_pool(pool) for pool in ("table/shop/orders", "spark", "table/south/shop/orders", "spark/south")
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_any_name_makes_names_that_dagster_accepts(project: Project, tmp_path: Path) -> None:
    """A digit at the begin too, which no name of a parameter has."""
    project.write("north", f"  warehouse: {tmp_path}/north/lake\n  name: 1st Größe\n")
    names = WarehouseNames.of(f"{tmp_path}/north/lake", "1st Größe", "1st Größe")
    assert names.definition("retention") in project.load().job_names


def test_policies_of_the_attributes_are_those_of_ticks_and_runs(project: Project, tmp_path: Path) -> None:
    os.environ["TEAM"] = "team:north"
    project.write(
        "north",
        f"  warehouse: {tmp_path}/north/lake\n  name: north\n  policies:\n    tables:\n      shop.*:\n"
        "        owners: ['{{ env.TEAM }}']\n        paused: {reason: audit, since: 2026-01-02}\n",
    )
    project.commit()
    repository = project.load()
    owners = {lake: repository.asset_graph.get(dg.AssetKey([lake, "shop", "orders"])).owners for lake in BOTH}
    assert owners == {"north": ["team:north"], "south": ["team:dredge"]}
    with open_house(tmp_path / "idle") as house:
        tick = project.tick(repository, house.instance, "north__sorted_run")
        assert not tick.run_requests and "audit" in (tick.skip_message or "")
        assert project.tick(repository, house.instance, "south__sorted_run").run_requests


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("    tables: {shop.orders: {ownerz: [x]}}\n", "'defs.yaml: policies.tables.shop.orders.ownerz'"),
        (
            "    defaults: {retention: {snapshots: {retain_min: soon}}}\n",
            "policies.defaults.retention.snapshots.retain_min",
        ),
        ("    budget: {bytes_an_hour: lots}\n", "'defs.yaml: policies.budget.bytes_an_hour'"),
        ("    tables: {shop.orders: {owners: [x]}}\n  policy_file: p.yaml\n", "`policy_file` (p.yaml) or `policies`"),
    ],
)
def test_a_wrong_policy_of_the_attributes_is_named_at_load(
    project: Project, tmp_path: Path, text: str, said: str
) -> None:
    project.write("north", f"  warehouse: {tmp_path}/north/lake\n  name: north\n  policies:\n{text}")
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        project.load()
    result, error = "", caught.value.__cause__
    while error is not None:
        result, error = f"{result}\n{error}", error.__cause__
    assert said in result


def test_lineage_between_warehouses_is_declared_by_the_one_that_reads(project: Project, tmp_path: Path) -> None:
    policies = "  policies: {tables: {shop.orders: {%s: [south/shop/orders]}}}\n"
    text = f"  warehouse: {tmp_path}/north/lake\n  name: north\n"
    project.write("north", text + policies % "downstream")
    repository = project.load()
    with open_house(tmp_path / "idle") as house:
        tick = project.tick(repository, house.instance, "north__catalog")
        assert "write `upstream` into the policies of that warehouse" in (tick.skip_message or "")
    project.write("north", text + policies % "upstream")
    node = project.load().asset_graph.get(dg.AssetKey(["north", "shop", "orders"]))
    assert node.parent_keys == {dg.AssetKey(["south", "shop", "orders"])}


def test_the_schema_of_the_component_documents_the_keys_of_policies() -> None:
    schema = PaimonWarehouse.model().model_json_schema()  # type: ignore[attr-defined]
    assert {"PolicyFile", "PolicyEntry", "SnapshotRetention"} <= schema["$defs"].keys()
    assert "retain_min" in schema["$defs"]["SnapshotRetention"]["properties"]
    assert schema["properties"]["policy_file"]["description"].startswith("YAML file of policies")


@pytest.mark.soak
def test_dagster_itself_validates_the_code_location(project: Project, tmp_path: Path) -> None:
    (project.folder / "src" / "two_lakes" / "definitions.py").write_text(
        "from pathlib import Path\n\nimport dagster as dg\n\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "two_lakes.definitions"]
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=project.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "All code locations passed validation" in done.stdout + done.stderr
