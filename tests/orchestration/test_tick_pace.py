"""Time that a tick leaves for storing its events and submitting its runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dredge.orchestration.sensors import table_sweep
from dredge.orchestration.sensors.table_sweep import Pace
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import read_tick_end
from tests.support.platform import commit, keyed_table, open_house


def test_the_time_for_results_is_learned_from_the_previous_tick() -> None:
    pace = Pace(event_seconds=0.02, run_seconds=0.5)
    assert pace.seconds(100, 4) == pytest.approx(4.0)
    pace.store(10_000, events=100, runs=4)
    pace.learn(9.0, 18_000)
    assert (pace.event_seconds, pace.run_seconds) == pytest.approx((0.04, 1.0)), "8 s instead of 4 s"
    pace.store(40_000, events=100, runs=4)
    pace.learn(39.0, 40_100)
    assert (pace.event_seconds, pace.run_seconds) == pytest.approx((0.02, 0.5)), "faster: half at most"
    for events, began_s, ended_ms in ((100, None, 90_000), (100, 69.0, None), (100, 71.0, 90_000), (10, 69.0, 90_000)):
        pace.store(70_000, events=events, runs=0)
        pace.learn(began_s, ended_ms)
        assert pace.event_seconds == pytest.approx(0.02), "unknown times, a tick without results, and a small tick"
    pace.learn(69.0, 90_000)
    assert pace.event_seconds == pytest.approx(0.02), "a tick counts once"
    for _ in range(4):
        pace.store(70_000, events=1_000, runs=0)
        pace.learn(69.0, 10**9)
    assert pace.event_seconds <= 0.2, "even an hour's pause of the machine leaves ticks of some tables"


def test_the_end_of_the_previous_tick_is_read_from_dagster() -> None:
    def state(name: str, began_s: float | None, origin: str) -> Any:
        data = SimpleNamespace(last_tick_timestamp=began_s)
        return SimpleNamespace(name=name, instigator_data=data, instigator_origin_id=origin, selector_id="s")

    ticks = {
        "ours": [SimpleNamespace(timestamp=9.0, end_timestamp=None), SimpleNamespace(timestamp=7.0, end_timestamp=8.5)],
        "other": [SimpleNamespace(timestamp=6.0, end_timestamp=6.5)],
    }
    states = [state("sorted_run", 6.0, "other"), state("watch", 7.0, "other"), state("sorted_run", 7.0, "ours")]
    instance: Any = SimpleNamespace(
        all_instigator_state=lambda: states, get_ticks=lambda origin, selector, limit: ticks[origin][:limit]
    )
    assert read_tick_end(instance, "sorted_run", 7.0) == 8_500
    assert read_tick_end(instance, "sorted_run", 9.0) is None, "no state has this tick"
    assert read_tick_end(instance, "sorted_run", None) is None


def test_a_slow_daemon_gets_fewer_events_a_tick_and_every_table_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        commit(keyed_table(tmp_path / "wh", f"shop.t{number}", partitioned=False))
    monkeypatch.setattr(Pace, "seconds", lambda _, events, runs=0: float(events))
    monkeypatch.setattr(table_sweep, "_TOGETHER", 1)
    with open_house(tmp_path / "wh", DREDGE_SENSOR_BUDGET="9") as house:
        reported: list[set[str]] = []
        for _ in range(4):
            tick = house.tick(names.SORTED_RUN_SENSOR)
            reported.append({key.path[-1] for event in tick.asset_events if (key := event.asset_key) is not None})
        assert [len(tables) for tables in reported] == [4, 4, 4, 0], "two tables each: data and layout"
        assert len(set().union(*reported)) == 12, "nothing is lost"
