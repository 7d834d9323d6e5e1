"""The platform over a warehouse in an object store: definitions load, a sensor asks, and its run compacts, checks and records there."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from dredge.platform_core import names
from lsm_core import Catalog, Schema
from tests.support.platform import KEYED, commit, evaluations, open_house
from tests.support.s3_server import S3Server


def test_the_platform_looks_after_a_warehouse_in_an_object_store(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    address = f"{s3.bucket()}/house"
    catalog = Catalog(address)
    catalog.create_database("shop")
    options = {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
    table = catalog.create_table("shop.orders", Schema(KEYED, ["dt", "id"], ["dt"], options))
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    with open_house(Path("unused"), DREDGE_WAREHOUSE=address) as house:
        layout = names.WarehouseNames.of(address).layout_key("shop.orders")
        specs = {spec.key: spec for spec in house.defs.resolve_all_asset_specs()}
        assert layout in specs
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests or ()
        result = house.run(request)
        assert result.success
        assert all(passed for passed, _ in evaluations(result).values())
        assert table.health()[0].sorted_runs == 1
        assert table.to_arrow().sort_by("id").equals(before)
        assert house.execute(names.RETENTION_JOB).success
        (observed,) = house.instance.fetch_observations(layout, limit=1).records
        assert "expired snapshots 1 to 4" in (observed.asset_observation or dg.AssetObservation("none")).description
    assert [snapshot.id for snapshot in table.snapshots()] == [5, 6]
    assert [entry.action for entry in table.ledger()] == ["compact", "expire_snapshots"]
    assert all(str(entry.approved_by).startswith("dagster run") for entry in table.ledger())
