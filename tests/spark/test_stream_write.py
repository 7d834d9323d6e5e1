"""What a stream of Spark writes into a table: an epoch is a commit that happens once, whoever runs it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.clock import SystemClock
from lsm_core.errors import (
    ColumnNotFound,
    CommitConflict,
    InvalidData,
    InvalidOption,
    InvalidSchema,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.format.snapshot import CommitKind
from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_stream_write import StreamWriter
from lsm_core.table.writing import StreamCommit
from tests.spark.streams import FIELDS, place_of, write_epoch
from tests.spark.tables import data_files, live_paths, make_table

pytestmark = pytest.mark.spark


def some(keys: list[int], tag: str = "a", **more: list[str]) -> pa.Table:
    """Rows of FIELDS."""
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{tag}{key}" for key in keys], **more})


def held(table: Any) -> dict[int, str]:
    """The table's rows."""
    return {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("options", [{"bucket": "2"}, {"bucket": "-1"}, {"bucket": "-2"}, {}])
def test_an_epoch_that_is_run_again_counts_once(tmp_path: Path, options: dict[str, str]) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=("k",) if options else (), options=options)
    write_epoch(table, 0, [some([1, 2]), some([2, 3], "b")])
    write_epoch(table, 1, [some([])])  # nothing to commit, as often as it is run
    before = data_files(tmp_path)
    for run in ("r", "after a crash"):
        write_epoch(table, 2, [some([3, 4], "c")], run=run)
        before = before if run != "r" else data_files(tmp_path)
    table.compact(full=True)
    assert data_files(tmp_path) >= before
    assert set(live_paths(table)) <= data_files(tmp_path)
    if options:
        assert held(table) == {1: "a1", 2: "b2", 3: "c3", 4: "c4"}
    else:
        assert sorted(table.to_arrow()["v"].to_pylist()) == ["a1", "a2", "b2", "b3", "c3", "c4"]
    numbered = [(s.commit_user, s.commit_identifier) for s in table.snapshots() if s.commit_user == "q"]
    assert numbered == [("q", 0), ("q", 2)]


@pytest.mark.parametrize("overwrite", [False, True])
def test_partitions_expire_once_an_interval_though_each_epoch_has_a_writer_of_its_own(
    tmp_path: Path, overwrite: bool
) -> None:
    now = 1_704_067_200_000
    expiry = {"bucket": "-1", "partition.expiration-time": "30 d", "partition.expiration-check-interval": "1 h"}
    options = {**expiry, "partition.timestamp-pattern": "$v"}
    table = make_table(tmp_path / "wh", fields=FIELDS, primary_keys=(), partition_keys=("v",), options=options)
    rows = pa.table({"k": [1, 2], "v": ["2020-01-01", "2024-01-01"]})
    expired = []
    for epoch, minutes in enumerate((0, 20, 61, 80, 125)):
        with mock.patch.object(SystemClock, "now_ms", return_value=now + minutes * 60_000):
            write_epoch(table, epoch, [rows], overwrite=overwrite)
        expired.append("2020-01-01" not in Catalog(tmp_path / "wh").table("db.t").to_arrow()["v"].to_pylist())
    assert expired == [False, False, True, False, True]


def test_a_replay_leaves_no_file_behind(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    write_epoch(table, 0, [some([1, 2])])
    write_epoch(table, 0, [some([1, 2])], run="another")
    assert data_files(tmp_path) == set(live_paths(table))
    assert len(table.snapshots()) == 1


@pytest.mark.parametrize("named", [{}, {"write__stream__query_id": "mine"}])
def test_a_query_does_not_continue_into_a_table_that_was_created_again(tmp_path: Path, named: dict[str, str]) -> None:
    checkpoint = tmp_path / "checkpoint"
    began = 1_704_067_200_000
    with mock.patch.object(SystemClock, "now_ms", return_value=began):
        table = make_table(tmp_path / "wh", fields=FIELDS)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("{}")
    os.utime(checkpoint / "metadata", (began / 1000 + 1, began / 1000 + 1))
    options = {"checkpointlocation": f"file:{checkpoint}", **named}
    write_epoch(table, 0, [some([])], **options)  # commits nothing
    write_epoch(table, 1, [some([1])], **options)
    write_epoch(table, 2, [some([2])], **options)
    Catalog(tmp_path / "wh").drop_table("db.t")
    again = make_table(tmp_path / "wh", fields=FIELDS)
    with pytest.raises(TableNotFound, match=r"db\.t was created again since its query began .* before 3; start .* new"):
        write_epoch(again, 3, [some([3])], **options)
    assert again.latest_snapshot() is None
    assert data_files(tmp_path) == set()
    write_epoch(again, 0, [some([1])], **{**options, "checkpointlocation": str(tmp_path / "new")})
    assert held(again) == {1: "a1"}


def test_kinds_of_rows_come_with_them(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    write_epoch(table, 0, [some([1, 2])])
    write_epoch(table, 1, [some([1, 2, 3], "b", _row_kind=["-D", "+U", "+I"])])
    assert held(table) == {2: "b2", 3: "b3"}
    write_epoch(table, 2, [pa.table({"K": [3, 4], "V": ["a3", "a4"], "_ROW_KIND": ["-D", "+I"]})])
    assert held(table) == {2: "b2", 4: "a4"}
    append = make_table(tmp_path, "db.log", fields=FIELDS, primary_keys=())
    with pytest.raises(InvalidData, match=r"append table accepts only \+I"):
        write_epoch(append, 0, [some([1], _row_kind=["-D"])])
    assert append.latest_snapshot() is None


def test_columns_that_an_epoch_brings_are_added_before_its_rows(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    merging = {"write__merge_schema": "true"}
    write_epoch(table, 0, [some([1, 2])], **merging)
    assert Catalog(str(tmp_path)).table("db.t").schema.id == 0
    for run in ("r", "after a crash"):
        epoch = [some([2, 3], "b", w=["x", "y"]), some([4], "b", w=["z"], _row_kind=["+I"])]
        write_epoch(table, 1, epoch[:1], run=run, **merging)
    write_epoch(table, 2, epoch[1:], **merging)
    after = Catalog(str(tmp_path)).table("db.t")
    assert (after.schema.field_names, after.schema.id) == (("k", "v", "w"), 1)
    found = {row["k"]: (row["v"], row["w"]) for row in after.to_arrow().to_pylist()}
    assert found == {1: ("a1", None), 2: ("b2", "x"), 3: ("b3", "y"), 4: ("b4", "z")}
    with pytest.raises(InvalidSchema, match="column 'w' of type STRING cannot be merged"):
        write_epoch(after, 3, [some([5]).append_column("w", pa.array([True]))], **merging)
    assert len(after.snapshots()) == 3


def test_each_epoch_of_mode_complete_replaces_the_table(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, partition_keys=("v",), primary_keys=("k", "v"))
    table.write(some([9], "before"))
    for epoch, keys in enumerate([[1, 2], [3], []]):
        for run in ("r", "again"):
            write_epoch(table, epoch, [some(keys, f"e{epoch}-")], overwrite=True, run=run)
        assert sorted(held(table)) == keys
    assert [s.commit_kind for s in table.snapshots()][1:] == [CommitKind.OVERWRITE] * 3


def test_a_task_that_fails_fails_the_epoch_and_leaves_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    with pytest.raises(InvalidData, match=r"db\.t.*'k'.*partition 1"):
        write_epoch(table, 0, [some([1, 2]), pa.table({"k": pa.array([None], pa.int64()), "v": ["x"]})])
    assert table.latest_snapshot() is None
    assert data_files(tmp_path) == set()


def test_two_queries_of_one_name_are_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    named = {"write__stream__query_id": "hourly"}
    write_epoch(table, 0, [some([1])], **named)
    write_epoch(table, 1, [some([2])], **named)
    for epoch in (0, 1, 2):
        with pytest.raises(
            CommitConflict, match=r"under the name 'hourly' are those of another query \(q\), this one is p"
        ):
            write_epoch(table, epoch, [some([7])], query="p", **named)
    write_epoch(table, 2, [some([3])], run="restarted", **named)
    write_epoch(table, 3, [some([4])], run="restarted", **named)
    write_epoch(table, 2, [some([3])], **named, run="fresh")  # behind: what it has was committed
    with pytest.raises(CommitConflict, match="query 'hourly' runs twice at once, its other run has committed epoch 3"):
        write_epoch(table, 2, [some([9])], **named)
    assert sorted(held(table)) == [1, 2, 3, 4]
    assert data_files(tmp_path) == set(live_paths(table))
    assert [s.commit_user for s in table.snapshots()] == ["hourly"] * 4


def test_of_two_that_publish_one_epoch_at_the_same_moment_one_counts(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    real = StreamCommit.filter_and_commit
    overtaken: list[bool] = []

    def late(commit: StreamCommit, *given: Any, **more: Any) -> list[int]:
        """The other run publishes after this one has looked and before it publishes."""
        if not overtaken:
            overtaken.append(True)
            from lsm_core.commit import committer

            look = committer.latest_of_user

            def looked(*about: Any) -> Any:
                found = look(*about)
                if len(overtaken) == 1:
                    overtaken.append(True)
                    write_epoch(table, 0, [some([1], "other")], run="other")
                return found

            with mock.patch.object(committer, "latest_of_user", looked):
                return real(commit, *given, **more)
        return real(commit, *given, **more)

    with (
        mock.patch.object(StreamCommit, "filter_and_commit", late),
        pytest.raises(CommitConflict, match="commit 0 of q was made meanwhile by another process"),
    ):
        write_epoch(table, 0, [some([1], "mine")])
    assert len(overtaken) == 2
    assert held(table) == {1: "other1"}
    assert data_files(tmp_path) == set(live_paths(table))


@pytest.mark.parametrize("how", ["minor", "full"])
def test_an_epoch_can_be_compacted(tmp_path: Path, how: str) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "write-only": "true"}
    table = make_table(tmp_path, fields=FIELDS, options=options)
    for epoch in range(4):
        write_epoch(table, epoch, [some([1, epoch], f"e{epoch}-")], write__stream__compaction=how)
    kinds = [s.commit_kind for s in table.snapshots()].count(CommitKind.COMPACT)
    assert kinds == (4 if how == "full" else 1)
    assert held(table)[1] == "e3-1"
    with mock.patch("lsm_core.spark.spark_stream_write.apply_plan", side_effect=CommitConflict("files-changed")):
        write_epoch(table, 4, [some([5])], write__stream__compaction=how)  # the epoch counts all the same
    assert held(table)[5] == "a5"


def test_bad_options_and_tables_are_refused_by_name(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    for options, message in [
        (
            {"write__stream__compaction": "often"},
            "write.stream.compaction' of table db.t cannot be 'often'; accepted: follow, none",
        ),
        ({"write__stream__query_id": " "}, "write.stream.query-id"),
        ({"commit_user": "a"}, "commit-user' of table db.t cannot be 'a'; accepted: no value in a stream"),
        ({"write__merge_schema": "yes"}, "write.merge-schema.*true or false"),
        ({"row_kind_column": "v"}, "row-kind-column' of table db.t cannot be 'v'; accepted: no value in a stream"),
        ({"scan__mode": "latest"}, "it is for reading"),
        ({"write__stream__else": "1"}, "write.stream.else"),
    ]:
        with pytest.raises(InvalidOption, match=message):
            write_epoch(table, 0, [some([1])], **options)
    with pytest.raises(ColumnNotFound, match="no column 'w'"):
        write_epoch(table, 0, [some([1], w=["x"])])
    moving = make_table(tmp_path, "db.moving", fields=FIELDS, partition_keys=("v",), options={"bucket": "-1"})
    with pytest.raises(UnsupportedFeature, match=r"writeStream into a table whose keys may move.*db\.moving"):
        write_epoch(moving, 0, [some([1])])
    assert table.latest_snapshot() is None


def test_the_writer_that_commits_reads_no_history(tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS)
    source = TableSource(place_of(table))
    from pyspark.sql.pandas.types import from_arrow_schema

    with mock.patch("lsm_core.spark.spark_write.WriteJob.plan", side_effect=AssertionError):
        made = source.streamWriter(from_arrow_schema(FIELDS), overwrite=False)
        assert isinstance(made, StreamWriter)
        made.commit([], 0)
        made.abort([None], 0)
