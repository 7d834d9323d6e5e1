"""The replay writes the scenario: every table says the right thing at every tick, whatever is compacted in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assets.demo.answers import answer_of, expected
from assets.demo.decisions import expected_decisions
from assets.demo.replay import batches_of, create_tables, in_flight, replay_batch, tick_named, what_arrives
from assets.demo.story import BACKFILL, TICKS, Tick, batch_clock_ms
from assets.demo.tables import TABLES
from lsm_core.clock import FileClock
from lsm_core.errors import InvalidOption
from orchestration import names
from orchestration.resources import SparkResource, WarehouseResource
from tests.support.platform import House, open_house


@pytest.fixture
def warehouse(tmp_path: Path) -> WarehouseResource:
    clock = FileClock(str(tmp_path / "clock"))
    clock.set(batch_clock_ms(BACKFILL))
    found = WarehouseResource(
        path=str(tmp_path / "warehouse"), clock=clock.to_spec(), replay_state=str(tmp_path / "replay")
    )
    create_tables(found.catalog())
    return found


@pytest.fixture
def house(warehouse: WarehouseResource) -> Iterator[House]:
    environment = {
        "DREDGE_DEMO": "1",
        "DREDGE_CLOCK": warehouse.clock,
        "DREDGE_REPLAY_STATE": warehouse.replay_state,
        "DREDGE_POLICIES": str(Path(__file__).resolve().parents[2] / "assets" / "demo" / "policies.yaml"),
    }
    with open_house(Path(warehouse.path), **environment) as found:
        yield found


def hold_answers(house: House, tick: Tick) -> None:
    for table in TABLES:
        assert answer_of(house.warehouse.table(table.identifier).to_arrow()) == expected(table.name, tick.name), (
            table.name
        )


def test_every_answer_and_every_decision_is_the_scenarios_at_each_tick(house: House) -> None:
    spark = SparkResource(runner="local")
    for tick in TICKS:
        for batch in batches_of(tick):
            replay_batch(house.warehouse, spark, tick, batch)
        hold_answers(house, tick)
        results = {sensor: house.tick(sensor) for sensor in (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)}
        requests = [request for result in results.values() for request in result.run_requests or ()]
        for item in expected_decisions(tick.name):
            if item.runs:
                wanted = item.words.removeprefix("run (idle): ")
                assert any(request.tags[names.TAG_REASON] == wanted for request in requests), item
            elif not results[item.sensor].run_requests:
                assert any(item.is_said_by(line) for line in house.lines(results[item.sensor])), item
        for request in requests:
            table = house.warehouse.table(request.tags[names.TAG_TABLE])
            chosen = [bucket.partition for bucket in table.health() if bucket.partition_text == request.partition_key]
            table.compact(full=request.tags[names.TAG_ACTION] == "compact full", partitions=chosen[:1])
        hold_answers(house, tick)


def test_the_job_writes_one_tick_while_sensors_rest(house: House) -> None:
    config = {"ops": {"replay_batches": {"config": {"tick": "T0"}}}}
    assert house.execute("replay", run_config=config).success
    hold_answers(house, TICKS[0])
    with in_flight(house.warehouse, tick_named("T2")):
        assert house.tick(names.SORTED_RUN_SENSOR).skip_message == "replay of batches 5-9 in progress"
    assert house.warehouse.replaying() is None


def test_the_lineage_starts_at_the_files_that_the_demo_reads(house: House) -> None:
    specs = {spec.key.to_user_string(): spec for spec in house.defs.resolve_all_asset_specs()}
    for table in TABLES:
        data = names.data_key(house.warehouse.path, table.identifier).to_user_string()
        assert [dep.asset_key.to_user_string() for dep in specs[data].deps] == ["nycflights13"]
        assert [dep.asset_key.to_user_string() for dep in specs[f"{data}/layout"].deps] == [data]


def test_ticks_are_named_and_unknown_ones_refused() -> None:
    assert [what_arrives(tick) for tick in TICKS] == ["the backfill", "batches 0-4", "batches 5-9", "batches 10-15"]
    with pytest.raises(InvalidOption, match="T0, T1, T2, T3"):
        tick_named("T7")
