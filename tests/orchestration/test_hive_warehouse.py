"""The platform over a warehouse behind a real Hive metastore: sensor, run and checks; commits hold its locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog
from tests.support.hive_server import HiveProxy, HiveServer, start_hive_server
from tests.support.platform import evaluations, open_house

pytestmark = pytest.mark.soak
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HiveServer]:
    """Yield the metastore of an empty warehouse."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    running = start_hive_server(tmp_path / "metastore")
    yield running
    running.close()


def test_the_platform_looks_after_a_warehouse_behind_a_metastore(server: HiveServer, tmp_path: Path) -> None:
    proxy = HiveProxy(server.port)
    options = {"metastore": "hive", "uri": proxy.uri, "lock.enabled": "true"}
    catalog = Catalog(tmp_path / "house", options)
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", FIELDS, primary_keys=["k"], options={"bucket": "1"})
    for number in range(12):
        table.write(pa.table({"k": [1, 2 + number], "v": ["a", "b"]}, schema=FIELDS))
    place = {
        "DREDGE_WAREHOUSE": str(tmp_path / "house"),
        "DREDGE_CATALOG_OPTIONS": " ".join(f"{key}={value}" for key, value in options.items()),
    }
    with open_house(tmp_path / "none", **place) as house:
        key = house.warehouse.names.layout_key("shop.orders")
        ticked = house.tick("sorted_run")
        assert [request.asset_selection for request in ticked.run_requests or ()] == [[key]]
        proxy.methods.clear()
        result = house.run(ticked.run_requests[0])
        assert result.success
        assert {"lock", "check_lock", "unlock"} <= set(proxy.methods)
        verdicts = evaluations(result)
        assert verdicts and all(passed for passed, _ in verdicts.values()), verdicts
    newest = list(catalog.table("shop.orders$snapshots").to_arrow().sort_by("snapshot_id").to_pylist())[-1]
    assert newest["commit_kind"] == "COMPACT"
    assert sorted(table.to_arrow().column("k").to_pylist()) == list(range(1, 14))
    proxy.close()
