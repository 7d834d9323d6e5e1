"""The platform over a warehouse behind Paimon's own REST catalog server: sensor, run and checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog
from tests.support.platform import evaluations, open_house
from tests.support.rest_server import TOKEN, WAREHOUSE, RestServer, start_server

pytestmark = pytest.mark.paimon_java
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestServer]:
    """Yield the server of an empty warehouse."""
    monkeypatch.setenv("DREDGE_REST_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    running = start_server(tmp_path / "served")
    yield running
    running.close()


def test_the_platform_looks_after_a_warehouse_behind_a_server(server: RestServer, tmp_path: Path) -> None:
    address = f"rest:{server.url.rstrip('/')}"
    catalog = Catalog(address, {"warehouse": WAREHOUSE})
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", FIELDS, primary_keys=["k"], options={"bucket": "1"})
    for number in range(12):
        table.write(pa.table({"k": [1, 2 + number], "v": ["a", "b"]}, schema=FIELDS))
    place = {"DREDGE_WAREHOUSE": address, "DREDGE_CATALOG_OPTIONS": f"warehouse={WAREHOUSE}"}
    with open_house(tmp_path / "none", **place) as house:
        key = house.warehouse.names.layout_key("shop.orders")
        ticked = house.tick("sorted_run")
        assert [request.asset_selection for request in ticked.run_requests or ()] == [[key]]
        result = house.run(ticked.run_requests[0])
        assert result.success
        verdicts = evaluations(result)
        assert verdicts and all(passed for passed, _ in verdicts.values()), verdicts
    newest = list(catalog.table("shop.orders$snapshots").to_arrow().sort_by("snapshot_id").to_pylist())[-1]
    assert newest["commit_kind"] == "COMPACT"
    assert sorted(table.to_arrow().column("k").to_pylist()) == list(range(1, 14))
    assert TOKEN.encode() not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "state" in path.parts
    )
