"""Streams of Spark from table to table: a copy equals its original at every tick, and whatever dies loses and doubles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dredge.assets.demo.events import commit_of
from dredge.assets.demo.replay_clock import TICKS, commits_at
from dredge.assets.demo.tables import FLIGHT_STATUS
from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import ColumnNotFound, CommitConflict, DredgeError, InvalidOption, SnapshotNotFound, SparkFailed
from lsm_core.spark import await_query
from tests.spark.killed_stream import DIE_AT, Point, copy, copy_without_spark
from tests.spark.streams import FIELDS, place_of
from tests.spark.tables import data_files, live_paths, make_table, same
from tests.support.spark import ROOT, run_script

pytestmark = pytest.mark.spark


@pytest.mark.soak
@pytest.mark.parametrize("ticks", [3, len(TICKS)])
def test_a_copy_of_the_demos_flight_status_equals_it_at_every_tick(spark: Any, tmp_path: Path, ticks: int) -> None:
    """Three agencies' partial reports, late, wrong, repeated and withdrawn, go on from one partial-update table to another."""
    everything = FLIGHT_STATUS.events()
    events = everything.filter(pa.array(everything.column("flight").to_numpy() % 200 == 0))
    assert "-D" in events.column("_kind").to_pylist()
    keys = {"primary_keys": FLIGHT_STATUS.primary_keys, "partition_keys": FLIGHT_STATUS.partition_keys}
    options = dict(FLIGHT_STATUS.options)
    flights = make_table(tmp_path, "nyc.flight_status", fields=FLIGHT_STATUS.schema, options=options, **keys)
    board = make_table(tmp_path, "nyc.board", fields=FLIGHT_STATUS.schema, options={**options, "bucket": "1"}, **keys)
    changes = spark.readStream.format("dredge").options(**place_of(flights), **{"read.changelog": "true"}).load()
    assert changes.columns == ["_row_kind", *FLIGHT_STATUS.schema.names]
    target = changes.writeStream.format("dredge").options(**place_of(board), checkpointLocation=str(tmp_path / "at"))
    query, counts = target.option("write.stream.compaction", "minor").start(), []
    try:
        for tick in TICKS[:ticks]:
            for number in commits_at(FLIGHT_STATUS.name, events, tick):
                rows, kinds = commit_of(events, number)
                flights.write(rows, row_kinds=kinds)
            query.processAllAvailable()
            assert same(flights.to_arrow(), board.to_arrow()), tick
            counts.append(flights.to_arrow().num_rows)
            if tick is TICKS[1]:
                flights.compact(full=True)
    finally:
        query.stop()
    assert counts == sorted(set(counts)), "every tick brings flights"
    assert {s.commit_user for s in board.snapshots() if s.commit_kind.value == "APPEND"} == {query.id}


def test_a_stream_that_cannot_go_on_says_why_in_one_error_and_commits_nothing(spark: Any, tmp_path: Path) -> None:
    table, other = (make_table(tmp_path, name, fields=FIELDS) for name in ("db.t", "db.other"))
    for number in range(3):
        table.write(pa.table({"k": [number], "v": ["a"]}, schema=FIELDS))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)

    def run(source: Any, at: str, **options: str) -> None:
        """Into db.other, as far as there is something."""
        target = source.writeStream.format("dredge").options(**place_of(other), **options)
        query = target.option("checkpointLocation", str(tmp_path / at)).trigger(availableNow=True).start()
        assert await_query(query, 120)

    def read(of: Table, **options: str) -> Any:
        return spark.readStream.format("dredge").options(**place_of(of), **options).load()

    run(read(table), "first", **{"write.stream.query-id": "copies"})
    assert other.to_arrow().num_rows == 3
    before, files = len(other.snapshots()), data_files(tmp_path)
    refused: list[tuple[type[DredgeError], str, Callable[[], None]]] = [
        (
            SnapshotNotFound,
            r"table db\.t cannot begin at snapshot 1, which has expired: the table keeps 3 and later",
            lambda: run(read(table, **{"scan.snapshot-id": "1"}), "expired"),
        ),
        (
            ColumnNotFound,
            r"table db\.other has no column 'timestamp'; it has k, v",
            lambda: run(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load(), "rate"),
        ),
        (
            InvalidOption,
            r"'checkpointLocation' of table db\.other cannot be '.*/t'; accepted: a checkpoint of this table .*other table",
            lambda: run(read(other), "first"),
        ),
        (
            CommitConflict,
            r"table db\.other: commits under the name 'copies' are those of another query .* needs a new 'write\.stream\.query-id'",
            lambda: run(read(table), "second", **{"write.stream.query-id": "copies"}),
        ),
    ]
    for kind, message, of in refused:
        with pytest.raises(kind, match=message) as raised:
            of()
        assert "\n" not in str(raised.value)
    assert (len(other.snapshots()), data_files(tmp_path)) == (before, files)


def test_a_column_that_the_source_gained_is_carried_on_by_merging_the_schema(spark: Any, tmp_path: Path) -> None:
    source, copy = (make_table(tmp_path, name, fields=FIELDS) for name in ("db.source", "db.copy"))
    catalog = Catalog(str(tmp_path))

    def follow(reading: dict[str, str], **options: str) -> list[dict[str, Any]]:
        frame = spark.readStream.format("dredge").options(**place_of(source), **reading).load()
        target = frame.writeStream.format("dredge").options(**place_of(copy), **options)
        query = target.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        assert await_query(query, 120)
        return catalog.table("db.copy").to_arrow().sort_by("k").to_pylist()

    source.write(pa.table({"k": [1], "v": ["a"]}))
    follow({})
    catalog.alter_table("db.source", [SchemaChange.add_column("w", "INT")])
    catalog.table("db.source").write(pa.table({"k": [2], "v": ["b"], "w": pa.array([7], pa.int32())}))
    advice = r"db\.copy has no column 'w'; it has k, v; name the columns to follow in the option 'columns' of readStream, or set the option 'write\.merge-schema'"
    with pytest.raises(ColumnNotFound, match=advice):
        follow({})
    assert follow({"columns": "k,v"})[1] == {"k": 2, "v": "b"}
    catalog.table("db.source").write(pa.table({"k": [3], "v": ["c"], "w": pa.array([8], pa.int32())}))
    assert follow({}, **{"write.merge-schema": "true"})[2] == {"k": 3, "v": "c", "w": 8}


def original(root: Path) -> Table:
    """A table with four commits; its copy, empty, is an append table: a row that counts twice is seen."""
    table = make_table(root, "db.a", fields=FIELDS, options={"bucket": "1", "changelog-producer": "input"})
    for number in range(4):
        table.write(pa.table({"k": [number, number + 1, 100 + number], "v": [f"{number}", "x", "y"]}, schema=FIELDS))
    make_table(root, "db.b", fields=FIELDS, primary_keys=())
    return table


TRIES = 5
"""So often a query is started at most that a slow machine kept from starting: Spark waits ten seconds for a process of Python to connect."""
TOO_SLOW = "connect back"


def killed(root: Path, point: Point, turn: int) -> None:
    """Run the query in a process until it dies when the point is reached for the ``turn``-th time."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), DIE_AT: f"{point}:{turn}:{root}/reached"}
    run = [sys.executable, "-c", f"from tests.spark.killed_stream import main; main({str(root)!r})"]
    for _ in range(TRIES):
        done = subprocess.run(run, env=variables, cwd=ROOT, start_new_session=True, capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
        if done.returncode == -9 or TOO_SLOW not in done.stderr:
            break
    assert done.returncode == -9, done.stderr[-5000:]


def resumed(spark: Any, root: Path) -> None:
    """Run the query to the end of what there is."""
    for _ in range(TRIES):
        query = copy(spark, str(root))
        try:
            assert await_query(query, 300)
            return
        except SparkFailed as error:
            if TOO_SLOW not in str(error.__cause__):
                raise
        finally:
            query.stop()
    pytest.fail(f"{TRIES} times: {TOO_SLOW}")


def judged(root: Path, table: Table) -> None:
    """The copy has every row of the changelog once, and nothing else lies there."""
    changes = table.incremental(0, 4, mode="changelog").select(["k", "v"])
    mirror = the_copy(root)
    assert same(changes, mirror.to_arrow())
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
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("point", list(Point)[:-1])
def test_a_query_that_is_killed_at_any_point_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path, point: Point, turn: int, record_property: Any
) -> None:
    table = original(tmp_path)
    killed(tmp_path, point, turn)
    resumed(spark, tmp_path)
    judged(tmp_path, table)
    record_property("kill points", 1)
