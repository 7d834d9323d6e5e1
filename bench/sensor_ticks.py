"""Sensors over many tables in a real daemon: duration of each sensor's ticks, and how late the next one begins."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pyarrow as pa

from bench.harness import Result
from dredge.orchestration.verbs.dagster_process import INSTANCE, start_platform
from dredge.platform_core import names
from dredge.platform_core.resources.settings import Settings

TABLES, DUE = 500, 50
OBSERVED_SECONDS = 300.0
LATE_TARGET_SECONDS = 60.0
_FIELDS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int64())])
_SENSORS = (names.SORTED_RUN_SENSOR, names.IDLE_SENSOR, names.CATALOG_SENSOR, names.FAILURE_SENSOR, names.WATCH_SENSOR)


@dataclass(frozen=True)
class SensorTimes:
    """Times of one sensor's ticks, in seconds.

    Attributes:
        name: name of the sensor.
        durations: duration of each tick.
        gaps: time between the beginnings of consecutive ticks; an unfinished gap counts up to the last observation.
        runs: runs requested by all ticks.
    """

    name: str
    durations: tuple[float, ...]
    gaps: tuple[float, ...]
    runs: int


def build(warehouse: Path, tables: int, due: int) -> None:
    """Create tables of one bucket, of which `due` tables have five sorted runs; files are hard links to two tables'."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {"bucket": "1", "write-only": "true"}
    for kind, commits in (("calm", 2), ("due", 5)):
        table = catalog.create_table(f"bench.{kind}000", Schema(_FIELDS, primary_keys=["id"], options=options))
        for commit in range(commits):
            numbers = pa.array(range(commit * 50, commit * 50 + 100))
            table.write(pa.table([numbers, numbers.cast(pa.string()), numbers], schema=_FIELDS))
        first = Path(table.store.root)
        for number in range(1, due if kind == "due" else tables - due):
            shutil.copytree(first, first.parent / f"{kind}{number:03d}", copy_function=os.link)


def read_times(home: Path, until_s: float) -> list[SensorTimes]:
    """Return the times of the sensors' ticks from the storage of the Dagster instance in `home`."""
    times = []
    with dg.DagsterInstance.from_config(str(home)) as instance:
        states = {state.name: state for state in instance.all_instigator_state()}
        for name in _SENSORS:
            if name not in states:
                continue
            ticks = instance.get_ticks(states[name].instigator_origin_id, states[name].selector_id)
            ticks = sorted(ticks, key=lambda tick: tick.timestamp)
            begins = [tick.timestamp for tick in ticks]
            times.append(
                SensorTimes(
                    name,
                    tuple((tick.end_timestamp or until_s) - tick.timestamp for tick in ticks),
                    tuple(after - before for before, after in zip(begins, [*begins[1:], until_s], strict=True)),
                    sum(len(tick.run_ids) for tick in ticks),
                )
            )
    return times


def observe(
    tables: int, due: int, seconds: float, settings: Path = INSTANCE, environment: dict[str, str] | None = None
) -> list[SensorTimes]:
    """Run `dagster dev` over a new warehouse for some seconds and return the times of its sensors."""
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        warehouse, home = Path(folder) / "warehouse", Path(folder) / "home"
        home.mkdir()
        shutil.copyfile(settings, home / "dagster.yaml")
        build(warehouse, tables, due)
        platform = start_platform(
            home, {"DREDGE_WAREHOUSE": str(warehouse), "DREDGE_RUNNER": "local", **(environment or {})}
        )
        try:
            time.sleep(seconds)
            return read_times(home, time.time())
        finally:
            platform.stop()


def run(tables: int | None, rounds: int) -> list[Result]:
    """Measure the longest tick and the latest beginning of a tick of every sensor."""
    del rounds
    count = tables or TABLES
    due = min(DUE, count)
    settings = Settings()
    results = []
    for sensor in observe(count, due, OBSERVED_SECONDS):
        interval = settings.watch_seconds if sensor.name == names.WATCH_SENSOR else settings.sensor_seconds
        results += _results(sensor, interval, f"{count:,} tables, {due} due; `dagster dev`, elapsed")
    return results


def _results(sensor: SensorTimes, interval: float, note: str) -> Sequence[Result]:
    late = max((gap - interval for gap in sensor.gaps), default=0.0)
    longest = max(sensor.durations, default=0.0)
    return [
        Result("sensor-ticks", f"longest tick of {sensor.name}", longest, "s", LATE_TARGET_SECONDS, note=note).judged(),
        Result(
            "sensor-ticks", f"{sensor.name} is late by", max(late, 0.0), "s", LATE_TARGET_SECONDS, note=note
        ).judged(),
    ]
