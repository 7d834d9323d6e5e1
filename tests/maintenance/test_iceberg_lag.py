"""Lag of Iceberg readers: since when they miss rows, how many, and the check `iceberg_is_fresh`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.clock import FixedClock
from lsm_core.maintenance import CheckLimits, health, run_check
from lsm_core.maintenance.iceberg_lag import read_iceberg_lag
from lsm_core.metadata import TableStore, snapshots
from tests.support.iceberg import ON, publish

HOUR_MS = 3_600_000
START = 1_700_000_000_000
ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("shop")
    return catalog.create_table("shop.t", ROWS, primary_keys=["k"], options={"bucket": "1", "write-only": "true"})


def _at(table: Table, hours: float) -> None:
    table.store.clock = FixedClock(START + int(hours * HOUR_MS))


def _write(table: Table, hours: float, rows: int = 1) -> None:
    _at(table, hours)
    keys = list(range(rows))
    table.write(pa.table({"k": keys, "v": [str(key * 7_919 % 104_729) for key in keys]}, schema=ROWS))


def _compact(table: Table, hours: float, *, full: bool = True, **arguments: object) -> None:
    _at(table, hours)
    table.compact(full=full, **arguments)


def _published(table: Table, hours: float) -> TableStore:
    store = publish(table.store)
    store.clock = FixedClock(START + int(hours * HOUR_MS))
    return store


def test_a_compacted_table_has_no_lag(table: Table) -> None:
    _write(table, 0)
    _write(table, 1)
    _compact(table, 2)
    lag = read_iceberg_lag(store := _published(table, 9), health(store))
    assert lag is not None
    assert (lag.since_ms, lag.rows, lag.lag_ms(START + 9 * HOUR_MS)) == (None, 0, 0)
    assert lag.text == "Iceberg readers see all rows"


def test_level0_counts_from_its_oldest_commit(table: Table) -> None:
    _write(table, 0)
    _compact(table, 1)
    _write(table, 3, rows=4)
    _write(table, 5, rows=2)
    store = _published(table, 9)
    lag = read_iceberg_lag(store, health(store))
    assert lag is not None
    assert lag.since_ms == START + 3 * HOUR_MS
    assert (lag.rows, lag.buckets) == (6, 1)
    assert lag.lag_ms(store.clock.now_ms()) == 6 * HOUR_MS
    assert "committed since 2023-11-15 01:13:20" in lag.text
    assert "6 stored rows" in lag.text


def test_a_partial_compaction_does_not_make_rows_younger(table: Table) -> None:
    _write(table, 0, rows=20_000)
    _compact(table, 1)
    for hours in (3, 5, 6, 7, 8):
        _write(table, hours)
    _compact(table, 10, full=False)
    store = _published(table, 12)
    (bucket,) = health(store)
    assert set(bucket.files_per_level) > {5} and bucket.level0_files < 5, "some runs were merged below the top level"
    assert bucket.ro_lag_ms < 9 * HOUR_MS, "files alone look younger than their rows"
    assert bucket.iceberg_since_ms == START + 3 * HOUR_MS


def test_commits_without_metadata_are_invisible_too(table: Table) -> None:
    _write(table, 0)
    _compact(table, 1)
    _published(table, 1)
    _write(table, 4)
    _compact(table, 5)
    store = table.store.copy(ON)
    lag = read_iceberg_lag(store, health(store))
    assert lag is not None
    assert (lag.since_ms, lag.rows, lag.needs_writing) == (START + 4 * HOUR_MS, 0, True)
    assert "the last commits wrote none" in lag.text
    assert "the next commit writes it" in lag.text


def test_the_check_compares_the_lag_with_its_limit(table: Table) -> None:
    _write(table, 0)
    _write(table, 1)
    store = _published(table, 9)
    passed = run_check(store, "iceberg_is_fresh", CheckLimits(iceberg_lag_ms=10 * HOUR_MS))
    failed = run_check(store, "iceberg_is_fresh", CheckLimits(iceberg_lag_ms=8 * HOUR_MS))
    assert passed.passed and "9.0 h <= 10.0 h" in passed.text
    assert not failed.passed and failed.warn
    assert "9.0 h > 8.0 h" in failed.text and "a full compaction shows them" in failed.text
    assert failed.numbers["rows unseen"] == 2
    assert failed.problems == ("bucket-0: 9.0 h, 2 stored rows",)


def test_rows_that_were_taken_back_fail_at_once(table: Table) -> None:
    _write(table, 0)
    _write(table, 1)
    _compact(table, 2)
    store = publish(table.store)
    table.rollback_to(2)
    newest = snapshots.latest(store)
    assert newest is not None and newest.id == 2
    report = run_check(store, "iceberg_is_fresh")
    assert not report.passed
    assert "snapshot 3, which a rollback or fast-forward has taken back" in report.text
    assert report.numbers["metadata"] == "replaced"


def test_tables_without_the_option_have_no_such_figures(table: Table) -> None:
    _write(table, 0)
    assert read_iceberg_lag(table.store, buckets := health(table.store)) is None
    assert buckets[0].iceberg_since_ms is None
