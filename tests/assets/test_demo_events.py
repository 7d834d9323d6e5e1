"""The replay's events and right answers equal the scenario's reference, which shares no code with them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dredge.assets.demo import checksums, replay_clock
from dredge.assets.demo import events as demo_events
from dredge.assets.demo.events import commit_of
from dredge.assets.demo.streams.flights import all_flights
from dredge.assets.demo.tables import CARRIER_DAILY, FLIGHT_STATUS, TABLES, WEATHER, DemoTable

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "assets" / "demo" / "reference"
SHARED = ROOT.parent / "shared" / "demo"
EXPECTED: dict[str, Any] = json.loads((REFERENCE / "expected.json").read_text())


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The scenario's oracle as a module."""
    spec = importlib.util.spec_from_file_location("demo_reference", REFERENCE / "demo_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_mixer_gives_the_numbers_of_the_scenario() -> None:
    for text, value in EXPECTED["hash_test_vectors"].items():
        number, salt = map(int, text[2:-1].split(","))
        assert demo_events.hash_numbers(np.array([number]), salt)[0] == value


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_events_equal_the_reference(table: DemoTable) -> None:
    events = table.events()
    wanted = EXPECTED["tables"][table.name]
    assert events.drop_columns(["_commit", "_ord", "_kind"]).schema == table.schema
    assert checksums.hash_rows(events) == wanted["event_checksum"]
    assert [commit_of(events, n)[0].num_rows for n in range(wanted["commits"])] == wanted["rows_per_commit"]


def test_the_checksum_is_the_scenarios(reference: ModuleType) -> None:
    for table in TABLES:
        events = table.events().slice(0, 5_000)
        assert checksums.hash_rows(events) == reference.checksum(events)


def test_every_commit_arrives_at_exactly_one_tick() -> None:
    for table in TABLES:
        events = table.events()
        arrived = [n for tick in replay_clock.TICKS for n in replay_clock.commits_at(table.name, events, tick)]
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


def test_the_planted_troubles_are_as_many_as_the_scenario_counts() -> None:
    flights = all_flights()
    found = {
        "is_blizzard": flights.blizzard,
        "is_audited": flights.audited,
        "swap": flights.swapped,
        "dep_fix": flights.departure_fixed,
        "dep_false": flights.falsely_departed,
        "arr_fix": flights.arrival_fixed,
    }
    assert {name: int(np.count_nonzero(flags)) for name, flags in found.items()} == {
        name: EXPECTED["flags"][name] for name in found
    }


def test_tables_are_defined_as_the_scenario_says() -> None:
    options = FLIGHT_STATUS.all_options
    assert FLIGHT_STATUS.primary_keys == ("flight_month", "flight_date", "carrier", "flight", "origin")
    assert FLIGHT_STATUS.partition_keys == ("flight_month",)
    assert options["fields.dep_ts.sequence-group"] == "dep_time,dep_delay,cancelled,dep_reports"
    assert options["partial-update.remove-record-on-sequence-group"] == "sched_ts"
    assert (options["bucket"], options["write-only"], options["snapshot.num-retained.max"]) == ("2", "true", "20")
    daily = CARRIER_DAILY.all_options
    assert (CARRIER_DAILY.primary_keys, CARRIER_DAILY.partition_keys) == (("flight_date", "carrier"), ())
    assert sorted(key for key in daily if key.endswith("ignore-retract")) == [
        f"fields.{name}.ignore-retract"
        for name in ("any_cancelled", "best_arr_delay", "diverted_flights", "origins", "worst_arr_delay")
    ]
    assert daily["compaction.total-size-threshold"] == "4mb"
