"""dagster-openlineage, unchanged, emits tables with columns and the lineage between data and layout."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.platform_core import names
from tests.support.peers import OPENLINEAGE, missing
from tests.support.platform import House, commit, keyed_table

ORDERS = "shop.orders"


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The platform in an instance whose events the listener sees as they are stored."""
    if not (OPENLINEAGE / "dagster_openlineage").is_dir():
        missing(f"dagster-openlineage: no {OPENLINEAGE}; `make peers` fetches it")
    monkeypatch.setattr(sys, "path", [*sys.path, str(OPENLINEAGE)])
    for name, text in (("TYPE", "file"), ("LOG_FILE_PATH", str(tmp_path / "events")), ("APPEND", "true")):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", text)
    logging.getLogger("dagster_openlineage.storage").setLevel(logging.CRITICAL)
    storage = {
        "module": "dagster_openlineage",
        "class": "OpenLineageEventLogStorage",
        "config": {
            "namespace": "lake",
            "wrapped": {
                "module": "dagster._core.storage.event_log",
                "class": "SqliteEventLogStorage",
                "config": {"base_dir": str(tmp_path / "history")},
            },
        },
    }
    root = tmp_path / "wh"
    commit(keyed_table(root, ORDERS, partitioned=False), 3)
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), {"event_log_storage": storage}) as instance:
        yield House(root, instance)


def _events(house: House) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (house.root.parent / "events").read_text().splitlines()]


def _columns(dataset: dict[str, Any]) -> list[str]:
    return [field["name"] for field in dataset["facets"]["schema"]["fields"]]


def test_tables_and_their_lineage_are_emitted_without_code_of_ours(house: House) -> None:
    house.tick(names.SORTED_RUN_SENSOR)
    data, layout = (event["dataset"] for event in _events(house))
    assert [dataset["name"] for dataset in (data, layout)] == ["wh/shop/orders", "wh/shop/orders_layout"]
    assert _columns(data) == ["dt", "id", "v"]
    assert data["facets"]["dataSource"]["uri"] == house.warehouse.table(ORDERS).store.root
    inputs = layout["facets"]["columnLineage"]["fields"]["v"]["inputFields"]
    assert [(item["namespace"], item["name"], item["field"]) for item in inputs] == [("lake", "wh/shop/orders", "v")]

    assert house.maintain(ORDERS).success
    completed = [event for event in _events(house) if event.get("eventType") == "COMPLETE" and event["outputs"]]
    (output,) = completed[-1]["outputs"]
    assert completed[-1]["job"]["name"] == output["name"] == "wh/shop/orders_layout"
    assert _columns(output) == ["dt", "id", "v"]
    assert set(output["facets"]["columnLineage"]["fields"]) == {"dt", "id", "v"}
    checks = [event for event in _events(house) if event.get("job", {}).get("name") == "wh/shop/orders_layout__checks"]
    assert {item["inputs"][0]["name"] for item in checks} == {"wh/shop/orders_layout"}
