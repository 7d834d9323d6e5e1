"""The replay writes the scenario: every table says the right thing at every tick, whatever is compacted in between."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeGuard

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dredge.assets.demo import marts
from dredge.assets.demo.checksums import (
    EMPTY,
    SOURCE_ERRORS,
    checksum_of,
    compacted_checksum_of,
    count_source_errors,
    expected_checksum,
    expected_checksum_after_expiry,
)
from dredge.assets.demo.events import commit_of
from dredge.assets.demo.expected_decisions import expected_alerts, expected_decisions
from dredge.assets.demo.outcomes import (
    EXPIRED_SNAPSHOTS,
    EXPIRY,
    TAG_HOLD,
    expected_outcomes,
    find_expiry,
    find_held_files,
    measure_changes,
)
from dredge.assets.demo.replay import (
    REFILE_JOB,
    batches_of,
    compute_events,
    describe_batches,
    find_tick,
    load_events,
    mark_replay,
    refile,
    replay_batch,
    split_by_writer,
    write_locally,
)
from dredge.assets.demo.replay_clock import RETENTION_MS, TICKS, Tick, commits_at
from dredge.assets.demo.tables import CARRIER_DAILY, FLIGHT_STATUS, PLANES, TABLES, WEATHER, DemoTable
from dredge.platform_core import names
from dredge.platform_core.obstacles import read_layout_evaluation
from dredge.platform_core.resources import SparkResource, WarehouseResource
from lsm_core import Schema, Table
from lsm_core.errors import InvalidOption
from lsm_core.maintenance.writers_compact import WATCHING
from lsm_core.metadata import snapshots
from tests.support.platform import House


@pytest.fixture
def policies() -> Path:
    return Path(__file__).resolve().parents[2] / "assets" / "demo" / "policies.yaml"


def hold_answers(house: House, tick: Tick, tables: Sequence[DemoTable] = TABLES, *, recovered: bool = False) -> None:
    for table in tables:
        opened = house.warehouse.table(table.identifier)
        found = checksum_of(opened.to_arrow())
        if table.hides_level0 and not recovered:
            assert found == EMPTY
            found = compacted_checksum_of(opened)
        assert found == expected_checksum(table.name, tick.name), table.name


def hold_alerts(events: Sequence[object], tick: Tick) -> None:
    """The level-0 alert that the sensor reports without a run."""
    values = {
        event.asset_key.path[-1].removesuffix(names.LAYOUT): (
            event.description,
            None if event.passed else event.severity.value,
        )
        for event in events
        if is_alert(event)
    }
    for alert in expected_alerts(tick.name):
        assert values[alert.table] == (alert.text, alert.severity)
    paused = {alert.table for alert in expected_alerts(tick.name)}
    assert all(severity is None for table, (_, severity) in values.items() if table not in paused)


def hold_outcomes(house: House, tick: Tick, before: dict[str, int]) -> None:
    """Runs, levels, rows and tombstones before and after; what the scenario does not name is as it was."""
    for table in TABLES:
        store, due = house.warehouse.store(table.identifier), expected_outcomes(tick.name)[table.name]
        found = measure_changes(table.name, store, before[table.name], snapshots.latest_id(store) or 0)
        assert sorted(item.subject for item in found) == sorted(item.subject for item in due)
        by_subject = {item.subject: item for item in found}
        assert all(item.matches(by_subject[item.subject]) for item in due), (due, found)


# What the scenario says about the shape of some compactions, beside their numbers.
RULES = {
    "T0": {"nyc.carrier_daily": "total size below compaction.total-size-threshold: all to level 8"},
    "T1": {"nyc.flight_status/flight_month=2013-10": "size amplification"},
    "T3": {"nyc.flight_status/flight_month=2013-12": "all to level 5"},
}


def run_paths(request: dg.RunRequest) -> list[str]:
    """Partitions of a run; "" for the whole table. Neighbouring partitions that are due share a run."""
    together = request.tags.get(names.TAG_PARTITIONS)
    return list(json.loads(together)) if together else [request.partition_key or ""]


def run_reasons(requests: Iterable[dg.RunRequest], lines: Iterable[str]) -> dict[str, str]:
    """Reasons of the runs by table and partition, as the lines of the ticks' logs say them."""
    tables = {(request.tags[names.TAG_TABLE], path) for request in requests for path in run_paths(request)}
    subjects = {f"{table}/{path}" if path else table for table, path in tables}
    starts = (re.search(r"(\S+): run \([^)]*\): (.*)", line) for line in lines)
    return {start[1]: start[2] for start in starts if start is not None and start[1] in subjects}


@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_every_answer_and_every_decision_is_the_scenarios_at_each_tick(
    house: House, thorough: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Answers hold before and after the compactions of a tick.

    Unless thorough, only the last tick reads the largest table before them and the other tables again that none compacted.
    """
    small = [table for table in TABLES if table is not FLIGHT_STATUS]
    spark = SparkResource(runner="local")
    for tick in TICKS:
        for batch in batches_of(tick):
            replay_batch(house.warehouse, spark, tick, batch)
        hold_answers(house, tick, TABLES if thorough or tick is TICKS[-1] else small)
        assert count_source_errors(house.warehouse.table(WEATHER.identifier)) == SOURCE_ERRORS[tick.name]
        written = {t.name: snapshots.latest_id(house.warehouse.store(t.identifier)) or 0 for t in TABLES}
        results = {sensor: house.tick(sensor) for sensor in (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR)}
        hold_alerts(results[names.SORTED_RUN_SENSOR].asset_events, tick)
        requests = [request for result in results.values() for request in result.run_requests or ()]
        wanted = expected_decisions(tick.name)
        for item in wanted:
            if not item.runs and not results[item.sensor].run_requests:
                assert any(item.matches(line) for line in house.lines(results[item.sensor])), item
        printed = run_reasons(requests, capfd.readouterr().err.splitlines())
        due = {item.subject: item.reason for item in wanted if item.runs}
        assert printed.keys() == due.keys(), (tick, printed)
        assert all(printed[subject].startswith(reason) for subject, reason in due.items()), printed
        for subject, rule in RULES.get(tick.name, {}).items():
            assert rule in printed[subject]
        for request in requests:
            table = house.warehouse.table(request.tags[names.TAG_TABLE])
            chosen = {b.partition_text: b.partition for b in table.health() if b.partition_text in run_paths(request)}
            table.compact(full=request.tags[names.TAG_ACTION] == "compact full", partitions=list(chosen.values()))
        hold_outcomes(house, tick, written)
        compacted = {request.tags[names.TAG_TABLE] for request in requests}
        read = [table for table in TABLES if table.identifier in compacted or table is FLIGHT_STATUS]
        hold_answers(house, tick, TABLES if thorough or tick is TICKS[-1] else read, recovered=tick is TICKS[-1])
        if tick.name == TAG_HOLD.tick:
            assert house.warehouse.table(FLIGHT_STATUS.identifier).create_tag(TAG_HOLD.tag).tagged == TAG_HOLD.snapshot
    house.tick(names.SORTED_RUN_SENSOR)
    alerts = {
        table.name: read_layout_evaluation(
            house.instance,
            house.layout(table.identifier),
            names.BACKLOG_CHECK if table.primary_keys else names.SMALL_FILES_CHECK,
        )
        for table in TABLES
    }
    assert all(alert is not None and alert.passed for alert in alerts.values()), alerts
    counts = {table.name: len(house.warehouse.table(table.identifier).snapshots()) for table in TABLES}
    # commits and compactions; what was submitted twice is there once
    assert counts == {
        "flight_status": 57 + 6,  # eight partitions, of which two pairs of neighbours were due together
        "carrier_daily": 25 + 2,
        "aircraft_first_seen": 25 + 1,
        "planes": 4,
        "weather": 25 + 2,
    }
    hold_marts(house)
    # Retention: months that are too old go, with the scenario's counts; no file of theirs yet.
    assert house.execute(names.RETENTION_JOB).success
    weather = house.warehouse.table(WEATHER.identifier)
    assert find_expiry(weather) == EXPIRY
    assert checksum_of(weather.to_arrow()) == expected_checksum_after_expiry()
    assert count_source_errors(weather) == SOURCE_ERRORS["T4"]
    left = {table.name: len(house.warehouse.table(table.identifier).snapshots()) for table in TABLES}
    dropped = {name: counts[name] + (name == "weather") - left[name] for name in counts}
    assert dropped == EXPIRED_SNAPSHOTS
    flights = house.warehouse.table(FLIGHT_STATUS.identifier)
    held, there = find_held_files(flights), data_files(flights)
    assert [path.startswith(f"{TAG_HOLD.partition}/") for path in held] == [True] * TAG_HOLD.held
    flights.sweep_trash(now_ms=RETENTION_MS)
    assert len(there - data_files(flights)) == TAG_HOLD.deleted
    assert all(flights.store.file_io.exists(f"{flights.store.root}/{path}") for path in held)
    assert checksum_of(flights.to_arrow(tag=TAG_HOLD.tag)) == expected_checksum(TAG_HOLD.table, TAG_HOLD.tick)


def hold_marts(house: House) -> None:
    """What the marts show is what the source answers."""
    made = house.execute(marts.JOB)
    rows_before = {}
    for mart in marts.MARTS:
        (event,) = made.asset_materializations_for_node(mart.key.to_python_identifier())
        rows_before |= event.metadata[marts.ROWS].value
    assert rows_before == marts.expected_answers()


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root).glob("*/bucket-*/data-*")}


def is_alert(event: object) -> TypeGuard[dg.AssetCheckEvaluation]:
    return isinstance(event, dg.AssetCheckEvaluation) and event.check_name == names.BACKLOG_CHECK


@pytest.mark.parametrize(
    "table", [CARRIER_DAILY, pytest.param(FLIGHT_STATUS, marks=pytest.mark.soak)], ids=lambda table: table.name
)
def test_answers_without_any_compaction_are_the_same_at_each_tick(
    warehouse: WarehouseResource, table: DemoTable
) -> None:
    target = warehouse.table(table.identifier)
    for tick in TICKS:
        for number in commits_at(table.name, compute_events(table), tick):
            write(target, table, number)
        assert checksum_of(target.to_arrow()) == expected_checksum(table.name, tick.name)


@pytest.mark.parametrize(
    "table", [CARRIER_DAILY, pytest.param(FLIGHT_STATUS, marks=pytest.mark.soak)], ids=lambda t: t.name
)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_no_compaction_at_any_moment_changes_an_answer(
    warehouse: WarehouseResource, table: DemoTable, seed: int
) -> None:
    """A few carriers' last weeks: compacted at random moments, in part or whole, against never compacted."""
    everything = compute_events(table)
    chosen = pc.is_in(everything["carrier"], pa.array(["9E", "F9", "HA", "YV"]))
    events = everything.filter(pc.and_(chosen, pc.greater(everything["flight_date"], datetime.date(2013, 11, 20))))
    random, target = np.random.default_rng(seed), warehouse.table(table.identifier)
    schema = Schema(table.schema, list(table.primary_keys), list(table.partition_keys), table.all_options)
    plain = warehouse.catalog().create_table("nyc.plain", schema)
    compactions = 0
    for number in np.unique(events["_commit"].to_numpy()):
        rows, kinds = commit_of(events, int(number))
        for each in (target, plain):
            each.write(rows, row_kinds=kinds)
        if random.random() < 0.5:
            # a minor unit of carrier_daily is a full one: see `compaction.total-size-threshold`
            compactions += target.compact(full=bool(random.random() < 0.5)).snapshot_id is not None
            assert checksum_of(target.to_arrow()) == checksum_of(plain.to_arrow())
    assert compactions >= 2
    assert len(plain.snapshots()) == len(np.unique(events["_commit"].to_numpy()))


def test_the_next_process_reads_the_events_that_the_first_one_kept(tmp_path: Path) -> None:
    made = load_events(PLANES, tmp_path)
    load_events.cache_clear()  # what the next process begins with
    read = load_events(PLANES, tmp_path)
    assert read is not made
    assert read.equals(made)
    assert made.equals(compute_events(PLANES))
    assert [path.name for path in tmp_path.iterdir()] == ["planes.arrow"]


def test_a_commit_submitted_twice_adds_nothing(warehouse: WarehouseResource) -> None:
    target = warehouse.table(CARRIER_DAILY.identifier)
    write(target, CARRIER_DAILY, 15)
    assert 15 in CARRIER_DAILY.sent_twice
    assert [(each.commit_user, each.commit_identifier) for each in target.snapshots()] == [("nervous-writer", 15)]


def write(target: Table, table: DemoTable, number: int) -> None:
    """One commit, as the replay writes it without Spark."""
    rows, kinds = commit_of(compute_events(table), number)
    write_locally(target, split_by_writer(table, rows, kinds), number, twice=number in table.sent_twice)


def test_the_job_writes_one_tick_while_sensors_rest(house: House) -> None:
    config = {"ops": {"replay_batches": {"config": {"tick": "T0"}}}}
    assert house.execute("replay", run_config=config).success
    hold_answers(house, TICKS[0])
    with mark_replay(house.warehouse, describe_batches(find_tick("T2"))):
        assert house.tick(names.SORTED_RUN_SENSOR).skip_message == "replay of batches 5-9 in progress"
    assert house.warehouse.replay_text() is None


def test_the_lineage_starts_at_the_files_that_the_demo_reads(house: House) -> None:
    specs = {spec.key.to_user_string(): spec for spec in house.defs.resolve_all_asset_specs()}
    for table in TABLES:
        data = house.warehouse.names.data_key(table.identifier).to_user_string()
        assert [dep.asset_key.to_user_string() for dep in specs[data].deps] == ["nycflights13"]
        assert [dep.asset_key.to_user_string() for dep in specs[f"{data}_layout"].deps] == [data]
        readers = {mart.key.to_user_string() for mart in marts.MARTS if table in mart.tables}
        found = {key for key, spec in specs.items() if any(dep.asset_key.to_user_string() == data for dep in spec.deps)}
        assert found - {f"{data}_layout"} == readers


def test_ticks_are_named_and_unknown_ones_refused() -> None:
    assert [describe_batches(tick) for tick in TICKS] == ["the backfill", "batches 0-4", "batches 5-9", "batches 10-15"]
    with pytest.raises(InvalidOption, match="T0, T1, T2, T3"):
        find_tick("T7")


def test_a_decline_may_tell_of_the_compacted_tree_only_once_its_run_began() -> None:
    decline = next(
        item for item in expected_decisions("T3") if item.subject.endswith("=2013-02") and item.sensor == "sorted_run"
    )
    before = f"{decline.subject}: decline (too few runs): 2 sorted runs < 5; nothing to do"
    after = f"{decline.subject}: decline (too few runs): 1 sorted run < 5; nothing to do"
    assert decline.matches(before) and decline.matches(before, compacting=True)
    assert decline.matches(after, compacting=True) and not decline.matches(after)
    untouched = next(item for item in expected_decisions("T1") if not item.runs)
    assert untouched.afterwards is None and not untouched.matches(after, compacting=True)


def test_the_table_that_looks_after_itself_is_compacted_by_its_writer_and_the_platform_watches(house: House) -> None:
    """All commits of the register, then the annual filing: the fifth run is merged by the write, and no run is asked for."""
    target = house.warehouse.table(PLANES.identifier)
    assert not target.store.options.write_only
    for tick in TICKS:
        for number in commits_at(PLANES.name, compute_events(PLANES), tick):
            write(target, PLANES, number)
    answer = checksum_of(target.to_arrow())
    assert answer == expected_checksum(PLANES.name, TICKS[-1].name)
    layout = house.warehouse.names.layout_key(PLANES.identifier)

    def look() -> tuple[str, dict[str, object]]:
        """The tick's line, and what the newest report without a run says: the page of the asset shows materialisations."""
        result = house.tick(names.SORTED_RUN_SENSOR)
        assert not result.run_requests
        output = {
            name: value.value
            for event in result.asset_events
            if isinstance(event, dg.AssetMaterialization) and event.asset_key == layout
            for name, value in event.metadata.items()
        }
        return next(line for line in house.lines(result) if line.startswith(PLANES.identifier)), output

    message, output = look()
    assert message.startswith(f"{PLANES.identifier}: decline (too few runs): 4 sorted runs < 5; ")
    assert output["upkeep"] == (
        "its writers may compact (it is not write-only), but none did lately: a run starts at 5 sorted runs"
    )
    assert house.execute(REFILE_JOB).success
    kinds = [str(snapshot.commit_kind) for snapshot in target.refresh().snapshots()]
    assert kinds == ["APPEND"] * 5 + ["COMPACT"]
    (bucket,) = target.health()
    assert (bucket.sorted_runs, bucket.rows, bucket.deletes) == (1, answer.rows, 0)
    assert checksum_of(target.to_arrow()) == answer
    message, output = look()
    assert message.startswith(f"{PLANES.identifier}: decline (too few runs): 1 sorted run < 5; ")
    assert message.endswith(f": nothing to merge; {WATCHING}"), message
    assert output["upkeep"] == f"{WATCHING} (a run starts at 8 sorted runs or 60 min after their last commit)"
    assert refile(target).endswith("3,123 rows written: 2 sorted runs, the writer compacts at 5")
    # in the hands of a newcomer
    spec = house.defs.resolve_asset_graph().get(layout)
    assert "its writers compact it by themselves" in (spec.description or "")
    left = house.defs.resolve_asset_graph().get(house.warehouse.names.layout_key(WEATHER.identifier))
    assert "by themselves" not in (left.description or "")
