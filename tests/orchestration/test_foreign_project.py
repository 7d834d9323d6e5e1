"""A project that has resources, a sensor, a job and a pool of its own under the names that the component uses.

`tests/docs/test_foreign_project.py` does the same with `create-dagster`, `dg` and `dagster dev` in an environment of the wheel.
"""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorType, TickData, TickStatus

from lsm_core.metadata import snapshots
from tests.orchestration.test_component import loaded, project, written
from tests.support.platform import commit, keyed_table, open_house

__all__ = ("project",)  # fixture

_HOST = """\
import dagster as dg

class Own(dg.ConfigurableResource):
    address: str = "own"

@dg.asset(key=["wh", "finance", "report"], pool="reports")
def report(spark: Own, warehouse: Own, ledger: Own) -> None:
    assert {spark.address, warehouse.address, ledger.address} == {"own"}

nightly = dg.define_asset_job("nightly", dg.AssetSelection.assets(report))

@dg.sensor(job=nightly, default_status=dg.DefaultSensorStatus.RUNNING)
def arrivals(context: dg.SensorEvaluationContext) -> dg.RunRequest:
    return dg.RunRequest(run_key="first")

@dg.definitions
def host() -> dg.Definitions:
    resources = {"spark": Own(), "warehouse": Own(), "ledger": Own()}
    return dg.Definitions([report], jobs=[nightly], sensors=[arrivals], resources=resources)
"""
_SENSOR = "0" * 40
"""Identifier of the project's sensor in Dagster's storage."""
_NEIGHBOURS = {
    "resources 'ledger', 'spark', 'warehouse'": _HOST,
    "resources 'warehouse'": (
        "import dagster as dg\n\n@dg.definitions\ndef own():\n    return dg.Definitions(resources={'warehouse': 'own'})\n"
    ),
    "jobs 'retention'": "import dagster as dg\n\n@dg.job\ndef retention(): ...\n",
    "sensors 'watch'": (
        "import dagster as dg\n\n@dg.sensor(target='*')\ndef watch(context):\n    return dg.SkipReason('own')\n"
    ),
}


def _add(project: Path, source: str, folder: str = "") -> None:
    place = project / "src" / "lake_team" / "defs" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / "host.py").write_text(source)


def _messages(error: BaseException | None) -> list[str]:
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return texts


@pytest.mark.parametrize("folder", ["", "aside/inner"])
@pytest.mark.parametrize("shared", list(_NEIGHBOURS))
def test_without_a_name_an_error_lists_the_names_that_the_project_has_too(
    project: Path, shared: str, folder: str
) -> None:
    _add(project, _NEIGHBOURS[shared], folder)
    written(project, "  warehouse: wh\n  runner: local\n")
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        loaded(project)
    (message,) = [text for text in _messages(caught.value) if "'name' cannot be" in text]
    assert re.search(rf"\({re.escape(shared)}\): set `name`, .*{re.escape(str(project / 'wh'))}$", message)


def _history(instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """Return each run of the instance with its events, and each tick of its sensors."""
    stored = {
        run.run_id: [run.job_name, run.status.value, *(event.message for event in instance.all_logs(run.run_id))]
        for run in instance.get_runs()
    }
    ticks = instance.get_ticks(_SENSOR, _SENSOR)
    return {**stored, "ticks": [f"{tick.tick_id} {tick.status.value} {tick.run_keys}" for tick in ticks]}


def test_retention_removes_no_run_event_or_tick_of_the_project(project: Path) -> None:
    table = keyed_table(
        project / "wh", "shop.visits", **{"snapshot.num-retained.min": "1"}, **{"snapshot.num-retained.max": "1"}
    )
    commit(table, 3)
    _add(project, _HOST)
    before = loaded(project)
    written(project, "  warehouse: wh\n  runner: local\n  name: tables\n")
    repository = loaded(project)
    ours = {f"tables__{key}" for key in ("spark", "warehouse", "ledger")}
    assert set(before.get_top_level_resources()) == {"spark", "warehouse", "ledger"}
    assert set(repository.get_top_level_resources()) - set(before.get_top_level_resources()) >= ours
    assert repository.get_job("nightly").executor_def.name == before.get_job("nightly").executor_def.name
    assert {getattr(node.definition, "pool", None) for node in repository.get_job("nightly").nodes} == {"reports"}

    with open_house(project / "wh") as house:
        instance = house.instance
        for _ in range(2):
            assert repository.get_job("nightly").execute_in_process(instance=instance).success
            tick = TickData(
                _SENSOR,
                "arrivals",
                InstigatorType.SENSOR,
                TickStatus.SUCCESS,
                1.0,
                run_ids=[],
                run_keys=["first"],
                selector_id=_SENSOR,
            )
            instance.create_tick(tick)
        stored = _history(instance)
        assert (len(stored["ticks"]), len(stored)) == (2, 3)
        assert repository.get_job("tables__retention").execute_in_process(instance=instance).success
        assert snapshots.earliest_id(table.store) == snapshots.latest_id(table.store), "retention had work to do"
        after = _history(instance)
        assert {key: after[key] for key in stored} == stored


def test_definitions_of_the_project_may_be_made_from_those_of_the_component(project: Path) -> None:
    """The comparison of names builds the project's definitions, which here build the component's."""
    source = (
        "import dagster as dg\n\n@dg.definitions\ndef own(context: dg.ComponentLoadContext):\n"
        "    tables = context.component_tree.build_defs_at_path('warehouse').resolve_all_asset_keys()\n"
        "    return dg.Definitions([dg.AssetSpec('summary', deps=tables)])\n"
    )
    _add(project, source)
    written(project, "  warehouse: wh\n  runner: local\n")
    node = loaded(project).asset_graph.get(dg.AssetKey("summary"))
    assert dg.AssetKey(["wh", "shop", "orders"]) in node.parent_keys
