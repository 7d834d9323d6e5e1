"""Streams of Spark from table to table: a copy equals its original at every tick, and whatever dies loses and doubles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from tests.spark.killed_stream import DIE_AT, Point, copy, copy_without_spark
from tests.spark.streams import FIELDS, place_of
from tests.spark.tables import data_files, live_paths, make_table, same
from tests.support.spark import ROOT, run_script

pytestmark = pytest.mark.spark
STATUS = pa.schema(
    [
        pa.field("flight", pa.int64(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        ("status", pa.string()),
        ("delay", pa.int32()),
        ("updated", pa.timestamp("ms")),
    ]
)


def a_tick(table: Table, chance: np.random.Generator, tick: int) -> None:
    """Flights are planned, change and are called off."""
    flights = chance.choice(40, 12, replace=False)
    kinds = np.where(chance.random(12) < 0.2, "-D", "+I")
    data = pa.table(
        {
            "flight": flights,
            "day": pa.array((flights % 3).astype(np.int32), pa.int32()).cast(pa.date32()),
            "status": [("planned", "boarding", "landed")[(tick + f) % 3] for f in flights.tolist()],
            "delay": pa.array(chance.integers(0, 90, 12), pa.int32(), mask=chance.random(12) < 0.2),
            "updated": pa.array(np.full(12, 1_700_000_000_000 + tick * 60_000), pa.timestamp("ms")),
        }
    )
    table.write(data, row_kinds=pa.array(kinds))


def test_a_copy_of_changing_flights_equals_them_at_every_tick(spark: Any, tmp_path: Path) -> None:
    chance = np.random.default_rng(7)
    keys = {"primary_keys": ("flight", "day"), "partition_keys": ("day",), "fields": STATUS}
    options = {"bucket": "2", "changelog-producer": "input"}
    flights = make_table(tmp_path, "db.flight_status", **keys, options=options)
    board = make_table(tmp_path, "db.board", **keys, options={"bucket": "1"})
    a_tick(flights, chance, 0)
    changes = spark.readStream.format("dredge").options(**place_of(flights), **{"read.changelog": "true"}).load()
    assert changes.columns == ["_row_kind", *STATUS.names]
    target = changes.writeStream.format("dredge").options(**place_of(board), checkpointLocation=str(tmp_path / "at"))
    query = target.option("write.stream.compaction", "minor").start()
    try:
        for tick in range(1, 4):
            query.processAllAvailable()
            assert same(flights.to_arrow(), board.to_arrow())
            a_tick(flights, chance, tick)
            if tick == 2:
                flights.compact(full=True)
        query.processAllAvailable()
    finally:
        query.stop()
    assert flights.to_arrow().num_rows > 15
    assert same(flights.to_arrow(), board.to_arrow())
    assert {s.commit_user for s in board.snapshots() if s.commit_kind.value == "APPEND"} == {query.id}


def test_a_stream_that_cannot_go_on_says_why(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    for number in range(3):
        table.write(pa.table({"k": [number], "v": ["a"]}, schema=FIELDS))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    old = spark.readStream.format("dredge").options(**place_of(table), **{"scan.snapshot-id": "1"}).load()
    rate = spark.readStream.format("rate").load()
    for number, (source, sink, said) in enumerate(
        [
            (old, "console", r"table db\.t cannot begin at snapshot 1, which has expired: the table keeps 3 and later"),
            (rate, "dredge", r"table db\.t has no column 'timestamp'; it has k, v"),
        ]
    ):
        target = source.writeStream.format(sink).option("checkpointLocation", str(tmp_path / f"at{number}"))
        query = target.options(**(place_of(table) if sink == "dredge" else {})).start()
        with pytest.raises(Exception, match=said):
            query.awaitTermination(120)


def original(root: Path) -> Table:
    """A table with four commits; its copy, empty, is an append table: a row that counts twice is seen."""
    table = make_table(root, "db.a", fields=FIELDS, options={"bucket": "1", "changelog-producer": "input"})
    for number in range(4):
        table.write(pa.table({"k": [number, number + 1, 100 + number], "v": [f"{number}", "x", "y"]}, schema=FIELDS))
    make_table(root, "db.b", fields=FIELDS, primary_keys=())
    return table


def killed(root: Path, point: Point, turn: int) -> int:
    """Run the query in a process that dies when the point is reached for the ``turn``-th time; how it ended."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), DIE_AT: f"{point}:{turn}:{root}/reached"}
    run = [sys.executable, "-c", f"from tests.spark.killed_stream import main; main({str(root)!r})"]
    done = subprocess.run(run, env=variables, cwd=ROOT, start_new_session=True, capture_output=True, timeout=300, check=False)  # fmt: skip
    return done.returncode


def judged(root: Path, table: Table) -> None:
    """The copy has every row of the changelog once, and nothing else lies there."""
    told = table.incremental(0, 4, mode="changelog").select(["k", "v"])
    mirror = the_copy(root)
    assert same(told, mirror.to_arrow())
    numbers = [snapshot.commit_identifier for snapshot in mirror.snapshots()]
    assert numbers == sorted(set(numbers))
    assert set(live_paths(mirror)) <= data_files(root)
    assert table.consumers()["copy"] >= 4


def the_copy(root: Path) -> Table:
    """The copy, opened."""
    return Catalog(str(root)).table("db.b")


def test_a_driver_that_is_killed_at_a_named_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Spark's part is played by a process of little weight, so that every point can be had; `make soak` kills Spark itself."""
    tables = {point: original(tmp_path / point) for point in Point}
    # the second time after it went on from the first
    runs = [
        (str(tmp_path / point), f"{point}:{turn}:{tmp_path / point}/reached", f"run {turn}")
        for point in Point
        for turn in (1, 2)
    ]
    done = run_script(
        "import sys; from tests.spark.killed_stream import kill_each; kill_each(sys.argv[1])", json.dumps(runs)
    )
    assert done.stdout.splitlines()[-1:] == [json.dumps([-9] * len(runs))], done.stderr
    for point, table in tables.items():
        copy_without_spark(str(tmp_path / point))
        judged(tmp_path / point, table)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("point", list(Point)[:-1])
def test_a_query_that_is_killed_at_any_point_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path, point: Point, turn: int
) -> None:
    table = original(tmp_path)
    assert killed(tmp_path, point, turn) == -9
    copy(spark, str(tmp_path)).awaitTermination(300)
    judged(tmp_path, table)
