"""The replay's events and right answers equal the scenario's reference, which shares no code with them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from assets.demo import answers, departures, mixer, story
from assets.demo.events import commit_of
from assets.demo.tables import DEPARTURES, PLANES, TABLES, WEATHER, DemoTable

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "assets" / "demo" / "reference"
SHARED = ROOT.parent / "shared" / "demo"
EXPECTED: dict[str, Any] = json.loads((REFERENCE / "expected.json").read_text())
KEY = "flight_month, flight_date, carrier, flight, origin"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The scenario's oracle as a module."""
    spec = importlib.util.spec_from_file_location("demo_reference", REFERENCE / "demo_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def oracle(reference: ModuleType) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the reference's events of flight_status."""
    with duckdb.connect(config={"threads": 1}) as connection:
        reference.load(connection)
        reference.make_flight_status(connection)
        yield connection


def test_the_mixer_gives_the_numbers_of_the_scenario() -> None:
    for text, value in EXPECTED["hash_test_vectors"].items():
        number, salt = map(int, text[2:-1].split(","))
        assert mixer.mix(np.array([number]), salt)[0] == value


@pytest.mark.parametrize("table", [PLANES, WEATHER], ids=lambda t: t.name)
def test_events_equal_the_reference(table: DemoTable) -> None:
    events = table.events()
    wanted = EXPECTED["tables"][table.name]
    assert answers.checksum(events) == wanted["event_checksum"]
    assert [commit_of(events, n)[0].num_rows for n in range(wanted["commits"])] == wanted["rows_per_commit"]


def test_departures_are_the_departure_reports_of_flight_status(oracle: duckdb.DuckDBPyConnection) -> None:
    mine = departures.events()
    names = ["_commit", "_kind", *departures.SCHEMA.names]
    theirs = oracle.sql(
        f"select {', '.join(names)} from ev_flight_status where dep_ts is not null order by _commit, _ord"
    ).to_arrow_table()
    assert mine.num_rows == theirs.num_rows == 342_788
    for name in names:
        wanted = theirs[name].cast(mine.schema.field(name).type)
        assert mine[name].combine_chunks().equals(wanted.combine_chunks()), name


@pytest.mark.parametrize("tick", story.TICKS, ids=lambda t: t.name)
def test_answers_of_departures_come_from_an_independent_query(
    oracle: duckdb.DuckDBPyConnection, reference: ModuleType, tick: story.Tick
) -> None:
    commits = 9 if tick.last_batch < 0 else 9 + 3 * (tick.last_batch + 1)
    newest = f"""select {KEY}, dep_ts, dep_time, dep_delay, cancelled from ev_flight_status
        where dep_ts is not null and _commit < {commits}
        qualify row_number() over (partition by {KEY} order by dep_ts desc, _commit desc, _ord desc) = 1"""
    answer = reference.to_schema(oracle, newest, departures.SCHEMA)
    assert answers.expected("departures", tick.name) == answers.Answer(answer.num_rows, reference.checksum(answer))


def test_the_checksum_is_the_scenarios(reference: ModuleType) -> None:
    for table in TABLES:
        events = table.events().slice(0, 5_000)
        assert answers.checksum(events) == reference.checksum(events)


def test_every_commit_arrives_at_exactly_one_tick() -> None:
    for table in TABLES:
        events = table.events()
        arrived = [n for tick in story.TICKS for n in story.commits_at(table.name, events, tick)]
        assert arrived == sorted(set(events["_commit"].to_pylist()))


def test_four_writers_send_the_commit_with_the_repeated_station() -> None:
    events = WEATHER.events()
    writers = [len(WEATHER.writers(commit_of(events, n)[0])) for n in range(25)]
    assert writers == [3] * 16 + [4] + [3] * 8
    rows = commit_of(events, 16)[0]
    assert pa.concat_tables(WEATHER.writers(rows)).equals(rows)


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="../shared does not lie beside this clone; nothing to compare the copies with"
)
@pytest.mark.parametrize("name", ["demo_reference.py", "expected.json"])
def test_copies_equal_the_shared_originals(name: str) -> None:
    assert (REFERENCE / name).read_bytes() == (SHARED / name).read_bytes()


def test_the_stand_in_keeps_the_key_partition_and_buckets_of_flight_status() -> None:
    assert DEPARTURES.primary_keys == tuple(KEY.split(", "))
    assert DEPARTURES.partition_keys == ("flight_month",)
    assert DEPARTURES.all_options["bucket"] == "2"
