"""The share of time in which a table kept a limit, recomputed moment by moment from the same history."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.maintenance import health
from lsm_core.maintenance import promise_history as module
from lsm_core.maintenance.promise_history import measure_freshness, measure_sorted_runs, read_recent_history
from tests.maintenance.tables import HOUR, NOW, keyed, rows

_WEEK = 7 * 24 * HOUR


class _Clock:
    def __init__(self) -> None:
        self.now = NOW

    def now_ms(self) -> int:
        return self.now


def _table(tmp_path: Path, clock: _Clock, **options: str) -> Table:
    keyed(tmp_path, partitioned=True, **{"write_only": "true", **options})
    return Catalog(tmp_path / "wh", clock=clock).table("db.t")


def _runs_now(table: Table) -> list[int]:
    return sorted(bucket.sorted_runs for bucket in health(table.store) if bucket.files)


def test_sorted_runs_agree_with_the_health_at_every_moment(tmp_path: Path) -> None:
    clock, choice = _Clock(), random.Random(7)
    table = _table(tmp_path, clock)
    states: list[tuple[int, list[int]]] = []
    for number in range(40):
        clock.now += choice.randrange(1, HOUR)
        if number % 9 == 8:
            table.compact(full=choice.random() < 0.5)
        elif number == 30:
            table.write(rows(range(5), v=number, dt="p1"), overwrite={"dt": "p1"})
        else:
            table.write(rows(range(3), v=number, dt=f"p{choice.randrange(30)}"))
        states.append((clock.now, _runs_now(table)))
    clock.now += HOUR
    begin = NOW
    for limit in (1, 2, 3, 5):
        kept = 0
        for (start, runs), (end, _) in zip(states, [*states[1:], (clock.now, [])], strict=True):
            worst = runs[math.ceil(0.95 * len(runs)) - 1]
            kept += (end - start) * (worst <= limit)
        history = read_recent_history(table.store, begin, clock.now)
        result = measure_sorted_runs(table.store, history, limit)
        assert result is not None
        assert (result.within_ms, result.known_ms, result.window_ms) == (
            kept,
            clock.now - states[0][0],
            clock.now - states[0][0],
        )
        assert result.latest == states[-1][1][math.ceil(0.95 * len(states[-1][1])) - 1]
        assert result.is_within == (result.latest <= limit)


def test_time_before_the_oldest_snapshot_is_unknown(tmp_path: Path) -> None:
    clock = _Clock()
    table = _table(tmp_path, clock)
    for number in range(10):
        clock.now += HOUR
        table.write(rows(range(3), v=number, dt="a"))
    table.expire_snapshots(retain_max=4, retain_min=4)
    history = read_recent_history(table.store, clock.now - _WEEK, clock.now)
    assert [snapshot.id for snapshot in history.snapshots] == [7, 8, 9, 10]
    result = measure_sorted_runs(table.store, history, 8)
    assert result is not None
    assert (result.window_ms, result.known_ms, result.within_ms) == (_WEEK, 3 * HOUR, 2 * HOUR)
    assert result.share == pytest.approx(2 / 3) and result.known_share == pytest.approx(3 / (7 * 24))
    # A window that begins later than the oldest snapshot is known as a whole.
    history = read_recent_history(table.store, clock.now - HOUR - 1, clock.now)
    assert [snapshot.id for snapshot in history.snapshots] == [8, 9, 10] and history.known_from_ms == history.begin_ms


def test_a_gap_and_the_limit_of_snapshots_end_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    table = _table(tmp_path, clock)
    for number in range(6):
        clock.now += HOUR
        table.write(rows(range(3), v=number, dt="a"))
    Path(table.store.snapshot_path(3)).unlink()
    history = read_recent_history(table.store, 0, clock.now)
    assert [snapshot.id for snapshot in history.snapshots] == [4, 5, 6]
    monkeypatch.setattr(module, "MOST_SNAPSHOTS", 2)
    assert [snapshot.id for snapshot in read_recent_history(table.store, 0, clock.now).snapshots] == [5, 6]


def test_freshness_is_the_time_since_the_writers_newest_commit(tmp_path: Path) -> None:
    clock = _Clock()
    table = _table(tmp_path, clock)
    for hours in (1, 1, 5):
        clock.now += hours * HOUR
        table.write(rows(range(3), dt="a"))
    table.compact(full=True)  # maintenance writes no data
    clock.now += 3 * HOUR
    table.compact(full=True)
    history = read_recent_history(table.store, clock.now - _WEEK, clock.now)
    result = measure_freshness(table.store, history, 2 * HOUR)
    # Committed at hours 1, 2 and 7 of 10: kept from 1 to 4 and from 7 to 9.
    assert (result.window_ms, result.known_ms, result.within_ms) == (9 * HOUR, 9 * HOUR, 5 * HOUR)
    assert (result.latest, result.is_within) == (3 * HOUR, False)


def test_hidden_rows_are_fresh_only_from_the_next_compaction(tmp_path: Path) -> None:
    clock = _Clock()
    table = _table(tmp_path, clock, deletion_vectors__enabled="true")
    for _ in range(2):
        table.write(rows(range(3), dt="a"))
        clock.now += HOUR
        table.compact(full=True)
        clock.now += HOUR
    history = read_recent_history(table.store, 0, clock.now)
    result = measure_freshness(table.store, history, HOUR)
    # Written at 0, seen at 1 (then an hour old); written at 2, seen at 3. Whether 0 to 1 was fresh cannot be known.
    assert (result.window_ms, result.known_ms, result.within_ms) == (4 * HOUR, 3 * HOUR, 0)
    assert measure_freshness(table.store, history, 2 * HOUR).within_ms == 2 * HOUR
    assert result.latest == 2 * HOUR


def test_without_a_commit_of_a_writer_only_staleness_can_be_known(tmp_path: Path) -> None:
    clock = _Clock()
    table = _table(tmp_path, clock)
    table.write(rows(range(3), dt="a"))
    clock.now += HOUR
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1)
    clock.now += 4 * HOUR
    history = read_recent_history(table.store, clock.now - _WEEK, clock.now)
    short, long = (measure_freshness(table.store, history, hours * HOUR) for hours in (1, 6))
    assert (short.known_ms, short.within_ms, short.latest, short.is_within) == (3 * HOUR, 0, None, False)
    assert (long.known_ms, long.share, long.is_within) == (0, None, None)


def test_tables_without_snapshots_or_keys(tmp_path: Path) -> None:
    clock = _Clock()
    empty = _table(tmp_path, clock)
    history = read_recent_history(empty.store, clock.now - _WEEK, clock.now)
    result = measure_sorted_runs(empty.store, history, 3)
    assert result is not None and result.share is None and measure_freshness(empty.store, history, HOUR).share is None
    schema = Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1"})
    log = Catalog(tmp_path / "wh", clock=clock).create_table("db.log", schema)
    log.write(pa.table({"v": [1]}))
    history = read_recent_history(log.store, clock.now - _WEEK, clock.now)
    assert measure_sorted_runs(log.store, history, 3) is None
    assert measure_freshness(log.store, history, HOUR).is_within is True
