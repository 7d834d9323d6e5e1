"""Events about data and layouts have location, rows, columns and lineage under the keys that other tools read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dredge.orchestration.definitions import build_definitions
from dredge.platform_core import names
from lsm_core import SchemaChange, Table
from lsm_core.types import parse
from tests.support.platform import House, commit, keyed_table, open_house

RUNS, PLAIN, PARTED = names.SORTED_RUN_SENSOR, "shop.plain", "shop.parted"
SCHEMA, LINEAGE = "dagster/column_schema", "dagster/column_lineage"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, PLAIN, partitioned=False))
    parted = keyed_table(root, PARTED)
    for day in "ab":
        commit(parted, day=day)
    with open_house(root) as opened:
        yield opened


def _of(events: Any, kind: type, key: dg.AssetKey) -> list[Any]:
    return [event for event in events if isinstance(event, kind) and event.asset_key == key]


def _columns(event: Any) -> list[str]:
    return [column.name for column in event.metadata[SCHEMA].value.columns] if SCHEMA in event.metadata else []


def commit_wide(table: Table) -> None:
    table.write(pa.table({"dt": ["a"], "id": [1], "v": ["x"], "w": pa.array([1], pa.int32())}))


def test_columns_are_reported_at_first_and_after_each_change_alone(house: House) -> None:
    data, table = house.warehouse.names.data_key(PLAIN), house.warehouse.table(PLAIN)

    def tick() -> tuple[list[Any], list[Any], list[Any]]:
        events = list(house.tick(RUNS).asset_events)
        return (
            _of(events, dg.AssetMaterialization, data),
            _of(events, dg.AssetObservation, data),
            [event for event in _of(events, dg.AssetObservation, house.layout(PLAIN)) if LINEAGE in event.metadata],
        )

    (made,), (observed,), (layout,) = tick()
    assert _columns(observed) == ["dt", "id", "v"]
    assert observed.metadata["dagster/uri"].value == observed.metadata["uri"].value == table.store.root
    assert made.metadata["dagster/row_count"].value == table.to_arrow().num_rows
    assert set(layout.metadata[LINEAGE].value.deps_by_column) == {"dt", "id", "v"}
    commit(table)
    house.load()  # a new process of the code location
    (made,), observed, layouts = tick()
    assert (observed, layouts) == ([], [])
    assert "dagster/row_count" not in made.metadata, "two sorted runs: only a merge knows the number of rows"
    catalog = house.warehouse.catalog()
    catalog.alter_table(PLAIN, [SchemaChange.add_column("w", parse("INT"))])
    assert tick() == ([], [], []), "no commit, no event"
    commit_wide(catalog.table(PLAIN))
    _, (observed,), (layout,) = tick()
    assert _columns(observed) == list(layout.metadata[LINEAGE].value.deps_by_column) == ["dt", "id", "v", "w"]
    catalog.alter_table(PLAIN, [SchemaChange.set_option("num-sorted-run.compaction-trigger", "9")])
    commit_wide(catalog.table(PLAIN))
    assert tick()[1:] == ([], []), "an option changes no column"


def test_partitions_have_their_own_number_of_rows(house: House) -> None:
    events = list(house.tick(RUNS).asset_events)
    made = _of(events, dg.AssetMaterialization, house.warehouse.names.data_key(PARTED))
    assert [event.metadata["dagster/partition_row_count"].value for event in made] == [50, 50]
    assert {event.metadata["dagster/row_count"].value for event in made} == {100}


def test_a_run_reports_what_it_read_and_the_lineage_of_its_layout(house: House) -> None:
    commit(house.warehouse.table(PLAIN), 2)
    result = house.maintain(PLAIN)
    assert result.success
    (made,) = (event.step_materialization_data.materialization for event in result.get_asset_materialization_events())
    data = house.warehouse.names.data_key(PLAIN)
    assert made.metadata[LINEAGE].value.deps_by_column["v"] == [dg.TableColumnDep(data, "v")]
    assert made.metadata["uri"].value == house.warehouse.table(PLAIN).store.root
    (step,) = {event.step_key for event in result.get_asset_materialization_events()}
    observations = [event for event in result.get_asset_observation_events() if event.asset_key == data]
    assert [event.step_key for event in observations] == [step], "DataHub joins inputs and outputs by the step"
    assert _columns(observations[0].asset_observation_data.asset_observation) == ["dt", "id", "v"]


def test_assets_lead_to_the_nearest_entry_of_the_policy_file(tmp_path: Path) -> None:
    keyed_table(tmp_path / "wh", PLAIN, partitioned=False)
    keyed_table(tmp_path / "wh", PARTED)
    file = tmp_path / "policies.yaml"
    environment = {"DREDGE_WAREHOUSE": str(tmp_path / "wh"), "DREDGE_POLICIES": str(file)}

    def references() -> dict[str, list[tuple[str, int | None, str | None]]]:
        graph = build_definitions(environment).resolve_asset_graph()
        values = {key: graph.get(key).metadata.get("dagster/code_references") for key in graph.get_all_asset_keys()}
        return {
            key.path[-1]: [(item.file_path, item.line_number, item.label) for item in value.code_references]
            for key, value in values.items()
            if value is not None
        }

    file.write_text("tables:\n  shop.other: {owners: ['team:b']}\n")
    assert references() == {}
    file.write_text(
        "defaults:\n  level0_warn: 20\ntables:\n  'shop.pl*':\n    owners: ['team:a']\n  shop.plain: {level0_warn: 9}\n"
    )
    exact, default = [(str(file), 6, "policy: shop.plain")], [(str(file), 1, "policy: defaults")]
    assert references() == {"plain": exact, "plain_layout": exact, "parted": default, "parted_layout": default}
