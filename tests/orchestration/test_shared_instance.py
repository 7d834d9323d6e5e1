"""A Dagster instance that others use too: their events stay, and two warehouses of one name are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path

import dagster as dg
import pytest

from dredge.orchestration.ops.warehouse_ops import compute_budget
from dredge.orchestration.sensors.table_cache import wall_ms
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.obstacles import (
    FAILURES_TO_SUSPEND,
    NameCheck,
    RunningRuns,
    find_earlier_run,
    find_other_warehouse,
    find_suspension,
    list_suspensions,
    read_resume_ms,
)
from dredge.platform_core.policies import policy_source
from tests.support.platform import House, commit, keyed_table, open_house

ORDERS = "shop.orders"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "lake"
    commit(keyed_table(root, ORDERS), 1)
    with open_house(root) as found:
        yield found


def test_retention_deletes_no_event_of_anybody(house: House) -> None:
    """A foreign asset whose key begins as the warehouse's do keeps all of its history, and so do tables."""
    foreign = dg.AssetKey(["lake", "finance", "revenue"])
    for number in range(5):
        house.instance.report_runless_asset_event(dg.AssetObservation(foreign, metadata={"number": number}))
        house.instance.report_runless_asset_event(dg.AssetMaterialization(foreign, metadata={"number": number}))
        house.instance.report_runless_asset_event(
            dg.AssetMaterialization(names.WarehouseNames.of(str(house.root)).data_key(ORDERS))
        )
    result = house.repository.get_job(names.RETENTION_JOB).execute_in_process(instance=house.instance)
    assert result.success
    assert len(house.instance.fetch_observations(foreign, limit=20).records) == 5
    assert len(house.instance.fetch_materializations(foreign, limit=20).records) == 5
    data = names.WarehouseNames.of(str(house.root)).data_key(ORDERS)
    assert len(house.instance.fetch_materializations(data, limit=20).records) == 5


def test_a_second_warehouse_of_the_same_folder_name_does_nothing_until_it_has_a_name(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = dg.AssetMaterialization(
        names.WarehouseNames.of(str(house.root)).warehouse_health_key(),
        metadata={names.WAREHOUSE_PATH: str(house.root)},
    )
    house.instance.report_runless_asset_event(ranking)
    second = tmp_path / "other" / "lake"
    commit(keyed_table(second, ORDERS), 6)
    other = House(second, house.instance)
    assert find_other_warehouse(house.instance, house.warehouse.names) is None
    tick = other.tick(names.SORTED_RUN_SENSOR)
    assert not tick.run_requests and not tick.asset_events
    assert tick.skip_message is not None
    assert str(house.root) in tick.skip_message and "DREDGE_WAREHOUSE_NAME" in tick.skip_message
    key = names.WarehouseNames.of(str(second)).warehouse_health_key()
    failed = other.defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=house.instance, asset_selection=[key], raise_on_error=False
    )
    assert not failed.success
    monkeypatch.setenv("DREDGE_WAREHOUSE_NAME", "south")
    named = House(second, house.instance)
    assert names.WarehouseNames.of(str(second)).data_key(ORDERS) == dg.AssetKey(["south", "shop", "orders"])
    assert named.tick(names.SORTED_RUN_SENSOR).run_requests


@pytest.mark.parametrize("sensor", [names.SORTED_RUN_SENSOR, names.IDLE_SENSOR])
def test_another_warehouse_that_reports_later_is_noticed(
    house: House, monkeypatch: pytest.MonkeyPatch, sensor: str
) -> None:
    """At once by a tick that reports or has asked nothing yet, else within minutes; and once it is gone, all is reported that was not."""
    moment = 0.0
    monkeypatch.setattr(NameCheck, "__init__", partialmethod(NameCheck.__init__, lambda: moment))
    house.load()
    house.tick(sensor)
    ranking = names.WarehouseNames.of(str(house.root)).warehouse_health_key()
    other = dg.AssetMaterialization(ranking, metadata={names.WAREHOUSE_PATH: "/elsewhere/lake"})
    house.instance.report_runless_asset_event(other)
    if sensor == names.SORTED_RUN_SENSOR:
        commit(house.warehouse.table(ORDERS), 5)
    moment = 301.0 if sensor == names.IDLE_SENSOR else 1.0
    for _ in range(2):
        tick = house.tick(sensor)
        assert "/elsewhere/lake" in (tick.skip_message or "")
        assert not tick.run_requests and not tick.asset_events and not tick.dynamic_partitions_requests
    house.instance.wipe_assets([ranking])
    tick = house.tick(sensor)
    assert "/elsewhere/lake" not in (tick.skip_message or "")
    if sensor == names.SORTED_RUN_SENSOR:
        assert len(tick.run_requests) == 1
        assert names.WarehouseNames.of(str(house.root)).data_key(ORDERS) in {
            event.asset_key for event in tick.asset_events
        }


@pytest.mark.parametrize("name", ["north", ""])
def test_runs_of_one_warehouse_count_for_no_table_of_the_same_name_in_another(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """At work, failed, resumed, within the budget of bytes, in the queue, in pools and among partitions."""
    started, instance = dg.DagsterRunStatus.STARTED, house.instance
    monkeypatch.setenv("DREDGE_WAREHOUSE_NAME", name)
    commit(house.warehouse.table(ORDERS), 5)
    house.load()
    (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
    tags, first_names = dict(request.tags), house.warehouse.names
    first = instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=tags, status=started))
    assert RunningRuns(instance, first_names).tables() == {ORDERS} == {first_names.table_of(tags)}
    for _ in range(FAILURES_TO_SUSPEND):
        instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=tags, status=dg.DagsterRunStatus.FAILURE))
    assert find_suspension(instance, first_names, ORDERS) is not None and set(
        list_suspensions(instance, first_names)
    ) == {ORDERS}
    resumed = {first_names.resumed_tag(ORDERS): "yes"}
    instance.add_run(dg.DagsterRun(job_name=names.RESUME_JOB, tags=resumed, status=dg.DagsterRunStatus.SUCCESS))
    assert read_resume_ms(instance, first_names, ORDERS) > 0
    limits = tmp_path / "policies.yaml"
    limits.write_text("budget: {bytes_an_hour: 1000000}")
    policies = policy_source(str(limits)).current()
    assert compute_budget(instance, first_names, policies, RunningRuns(instance, first_names), wall_ms()).spent > 0
    shared = {
        first_names.table_pool(ORDERS),
        first_names.partitions_name(ORDERS),
        tags[names.TAG_TABLE],
    }

    monkeypatch.setenv("DREDGE_WAREHOUSE_NAME", "south")
    root = tmp_path / "other" / "lake"
    commit(keyed_table(root, ORDERS), 6)
    south = House(root, instance)
    south_names = south.warehouse.names
    assert RunningRuns(instance, south_names).tables() == set() and south_names.table_of(tags) is None
    mine = instance.add_run(dg.DagsterRun(job_name="compact", tags={names.TAG_TABLE: south_names.table_value(ORDERS)}))
    assert find_earlier_run(instance, south_names, mine.run_id, ORDERS) is None
    instance.delete_run(mine.run_id)
    assert (
        find_suspension(instance, south_names, ORDERS) is None
        and list_suspensions(instance, south_names) == {}
        and read_resume_ms(instance, south_names, ORDERS) == 0
    )
    assert compute_budget(instance, south_names, policies, RunningRuns(instance, south_names), wall_ms()).spent == 0
    assert not south.instance.get_dynamic_partitions(south_names.partitions_name(ORDERS))
    (request,) = south.tick(names.SORTED_RUN_SENSOR).run_requests
    assert request.tags[names.TAG_TABLE] != first.tags[names.TAG_TABLE]
    assert not shared & {
        south_names.table_pool(ORDERS),
        south_names.partitions_name(ORDERS),
        request.tags[names.TAG_TABLE],
    }
    assert south.run(request).success
