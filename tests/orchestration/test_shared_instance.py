"""A Dagster instance that others use too: their events stay, and two warehouses of one name are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration import names
from orchestration.blocked import other_warehouse
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
        house.instance.report_runless_asset_event(dg.AssetMaterialization(names.data_key(str(house.root), ORDERS)))
    result = house.repository.get_job(names.RETENTION_JOB).execute_in_process(instance=house.instance)
    assert result.success
    assert len(house.instance.fetch_observations(foreign, limit=20).records) == 5
    assert len(house.instance.fetch_materializations(foreign, limit=20).records) == 5
    data = names.data_key(str(house.root), ORDERS)
    assert len(house.instance.fetch_materializations(data, limit=20).records) == 5


def test_a_second_warehouse_of_the_same_folder_name_does_nothing_until_it_has_a_name(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = dg.AssetMaterialization(
        names.warehouse_health_key(str(house.root)), metadata={names.WAREHOUSE_PATH: str(house.root)}
    )
    house.instance.report_runless_asset_event(ranking)
    second = tmp_path / "other" / "lake"
    commit(keyed_table(second, ORDERS), 6)
    other = House(second, house.instance)
    assert other_warehouse(house.instance, str(house.root)) is None
    tick = other.tick(names.SORTED_RUN_SENSOR)
    assert not tick.run_requests and not tick.asset_events
    assert tick.skip_message is not None
    assert str(house.root) in tick.skip_message and "DREDGE_WAREHOUSE_NAME" in tick.skip_message
    key = names.warehouse_health_key(str(second))
    failed = other.defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=house.instance, asset_selection=[key], raise_on_error=False
    )
    assert not failed.success
    monkeypatch.setenv("DREDGE_WAREHOUSE_NAME", "south")
    named = House(second, house.instance)
    assert names.data_key(str(second), ORDERS) == dg.AssetKey(["south", "shop", "orders"])
    assert named.tick(names.SORTED_RUN_SENSOR).run_requests
