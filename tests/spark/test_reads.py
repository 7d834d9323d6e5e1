"""What is pushed down, which files Spark reads itself, how splits share tasks: and that none of it changes an answer."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.pandas.types import from_arrow_schema

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import InvalidFilter, InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.read import Split, parse_filter
from lsm_core.spark import explain_read, read_table, register, spark_columns, spark_read
from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_columns import spark_arrow_schema
from lsm_core.spark.spark_read import condition_of, pack_splits
from tests.spark.tables import live_paths, make_table, rows, same

MB = 1 << 20


def split(size: int) -> Split:
    return Split.planned((b"", 0), (True, True), (1, size, 1), lambda: pytest.fail("no file is looked at"))


def test_small_splits_share_a_task_and_no_core_is_idle(tmp_path: Path) -> None:
    options = make_table(tmp_path).store.options

    def sizes(counts: list[int], slots: int) -> list[int]:
        return [len(task) for task in pack_splits([split(size) for size in counts], slots, options)]

    assert sizes([], 4) == []
    assert sizes([1] * 3, 2) == [1, 1, 1]  # each counts as the cost of opening a file
    assert sizes([1] * 1000, 2) == [32] * 31 + [8]  # 128 MB a task, at 4 MB a split
    assert sizes([300 * MB, 1, 1], 2) == [1, 2]
    assert sum(sizes([MB * number for number in range(60)], 8)) == 60
    assert len(sizes([10 * MB] * 16, 8)) == 8


FILTERS: tuple[Any, ...] = (
    [("k", ">=", 390)],
    [("k", "in", [1, 399]), ("s", "is not null")],
    [[("s", "=", "a-1")], [("day", "<", dt.date(2024, 1, 2))]],
    [("s", "starts with", "b-1"), ("n", "!=", 7)],
    [("s", "!=", "it's \\ `odd` %")],
    [("ok", "is null"), ("k", "<", 30)],
)
NOT_SPARKS: tuple[Any, ...] = (
    [("d", ">", 1.0)],
    [("ts", ">", dt.datetime(2024, 1, 1))],
    [("amount", "=", 1)],
    [("k", "=", 1.5)],
    [("s", "=", None)],
    pc.field("k") > 3,
)


def compacted(root: Path) -> Table:
    """One file a bucket on the last level, of 400 keys."""
    table = make_table(root)
    table.write(rows(list(range(300))))
    table.write(rows(list(range(100, 400)), "b"))
    table.compact(full=True)
    return table


def test_only_filters_that_spark_answers_alike_leave_files_to_it(tmp_path: Path) -> None:
    table = compacted(tmp_path)
    for given in (*FILTERS, *NOT_SPARKS):
        predicate = parse_filter(given, table.schema, table.name)
        assert predicate is not None
        alike = any(given is item for item in FILTERS)
        assert (condition_of(predicate, table.schema) is not None) is alike, given
        plan = explain_read(table, filter=given)
        assert (plan.merged_files == 0 < plan.spark_files) if alike else plan.spark_files == 0, given
    plan = explain_read(table, columns=["s"], filter=[("k", "=", 5)])
    assert (plan.files, plan.spark_files, plan.merged_files, plan.tasks) == (3, 1, 0, 0)
    assert plan.lines()[0] == "db.t: snapshot 3, columns s" and "2 of 3 files" in plan.lines()[1]
    table.write(rows([1], "new"))
    assert explain_read(table).merged_files == 2 and explain_read(table, snapshot_id=3).merged_files == 0
    assert explain_read(make_table(tmp_path, "db.empty")).snapshot_id is None


def test_files_that_spark_would_pass_over_and_columns_that_it_would_confuse_are_dredges(tmp_path: Path) -> None:
    for number, prefix in enumerate(("_hidden-", ".hidden-", "shown_.-")):
        table = make_table(tmp_path, f"db.p{number}", options={"bucket": "1", "data-file.prefix": prefix})
        table.write(rows([1, 2]))
        table.compact(full=True)
        plan = explain_read(table)
        assert (plan.spark_files, plan.merged_files) == ((1, 0) if prefix[0] == "s" else (0, 1)), prefix

    table = compacted(tmp_path)
    catalog = Catalog(str(tmp_path))
    changes = [SchemaChange.drop_column("s"), SchemaChange.add_column("S", pa.string())]
    catalog.alter_table("db.t", changes)  # files hold an `s`, which Spark would give for `S`
    table = catalog.table("db.t")
    assert table.to_arrow(["S"])["S"].null_count == table.to_arrow(["k"]).num_rows
    assert explain_read(table, columns=["k", "d"]).spark_files == 3
    assert explain_read(table, columns=["k", "S"]).spark_files == 0
    assert explain_read(table, columns=["k"], filter=[("S", "is null")]).spark_files == 0
    catalog.alter_table("db.t", [SchemaChange.add_column("_key_K", pa.string())])  # files hold a `_KEY_k`
    assert explain_read(catalog.table("db.t"), columns=["_key_K"]).spark_files == 0

    both = make_table(tmp_path, "db.both", fields=pa.schema([("a", pa.int32()), ("A", pa.int32())]), primary_keys=())
    both.write(pa.table({"a": pa.array([1], pa.int32()), "A": pa.array([2], pa.int32())}))
    assert explain_read(both).spark_files == 0


@pytest.mark.spark
def test_rows_too_wide_for_a_batch_of_sparks_reader_are_read_by_dredge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = compacted(tmp_path)
    assert explain_read(table).merged_files == 0
    monkeypatch.setattr(spark_read, "_WIDEST", 1)
    plan = explain_read(table)
    assert (plan.spark_files, plan.merged_files > 0) == (0, True)
    assert explain_read(table, columns=["k", "day", "amount"]).merged_files == 0, "of a length that is known"


def test_rows_go_to_spark_in_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(tmp_path, options={"bucket": "1"})
    table.write(rows(list(range(300))))
    table.write(rows([7, 8], "x" * 2_000))
    reader = reader_of(tmp_path)
    monkeypatch.setattr(spark_columns, "_FRAME_BYTES", 1_000)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.num_rows == 1 or batch.nbytes <= 1_000 for batch in batches) and len(batches) > 20
    assert same(pa.Table.from_batches(batches), table.to_arrow())


def test_filtered_reads_by_spark_itself_say_what_local_reads_say(spark: Any, tmp_path: Path) -> None:
    table = compacted(tmp_path)
    frames = [read_table(spark, table, columns=["s", "k"], filter=given) for given in FILTERS]
    assert all(frame.inputFiles() for frame in frames[:4])
    answers = [frame.selectExpr(f"{number} AS filter", "*") for number, frame in enumerate(frames)]
    together = answers[0]
    for frame in answers[1:]:
        together = together.unionAll(frame)
    found = together.toArrow()
    for number, given in enumerate(FILTERS):
        chosen = found.filter(pc.field("filter") == number).drop_columns(["filter"])
        assert same(table.to_arrow(["s", "k"], filter=given), chosen), given


@pytest.mark.spark
@pytest.mark.parametrize("test", ["d = 'NaN'", "d > 5", "NOT (d < 5)", "f = 'NaN'", "s.x = 'NaN'", "s.x > 5"])
def test_spark_finds_nan_in_files_that_it_reads_itself(spark: Any, tmp_path: Path, test: str) -> None:
    inner = pa.struct([("x", pa.float64()), ("y", pa.int64())])
    fields = pa.schema([("k", pa.int64()), ("d", pa.float64()), ("f", pa.float32()), ("s", inner)])
    table = make_table(tmp_path, fields=fields, primary_keys=())
    values = [1.0, float("nan"), None]
    table.write(
        pa.table(
            {"k": [1, 2, 3], "d": values, "f": pa.array(values, pa.float32()), "s": [{"x": value} for value in values]}
        )
    )
    frame = read_table(spark, table)
    assert frame.inputFiles()
    assert [row.k for row in frame.where(test).collect()] == [2]


@pytest.mark.spark
def test_older_schemas_orc_and_limits(spark: Any, tmp_path: Path) -> None:
    table = compacted(tmp_path)
    catalog = Catalog(str(tmp_path))
    catalog.alter_table(
        "db.t",
        [
            SchemaChange.add_column("more", pa.int64()),
            SchemaChange.rename_column("n", "m"),
            SchemaChange.drop_column("d"),
        ],
    )
    table = catalog.table("db.t")
    same_columns = ["k", "s", "more", "day"]
    assert explain_read(table, columns=same_columns).spark_files == 3
    assert explain_read(table, columns=["k", "m"]).spark_files == 0
    assert same(table.to_arrow(same_columns), read_table(spark, table, columns=same_columns).toArrow())

    orc = make_table(tmp_path, "db.orc", options={"file.format": "orc"})
    orc.write(rows(list(range(300))))
    orc.compact(full=True)
    chosen = ["k", "s", "d", "amount", "ok", "n"]
    assert explain_read(orc).spark_files == 0  # dates and timestamps are Dredge's
    assert explain_read(orc, columns=chosen).spark_files == 3
    frame = read_table(spark, orc, columns=chosen)
    assert len(frame.inputFiles()) == len(live_paths(orc))
    assert same(orc.to_arrow(chosen), frame.toArrow())

    assert explain_read(orc, limit=5).merged_files == 1
    assert read_table(spark, orc, limit=5).count() == 5
    assert read_table(spark, orc, limit=0).count() == 0
    with pytest.raises(InvalidOption, match="limit"):
        read_table(spark, orc, limit=-1)


@pytest.mark.spark
def test_versions_and_changes_by_argument_and_by_option(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1, 2, 3]))
    table.write(rows([3, 4], "b"))
    table.create_tag("one", 1)
    table.create_branch("dev", "one")
    first = table.to_arrow(snapshot_id=1)
    moments = [snapshot.time_millis for snapshot in table.snapshots()]
    assert same(first, read_table(spark, table, tag="one").toArrow())
    assert same(table.to_arrow(timestamp_ms=moments[1]), read_table(spark, table, timestamp_ms=moments[1]).toArrow())
    assert same(rows([3, 4], "b"), read_table(spark, table, incremental=(1, 2)).toArrow())
    for wrong in ({"tag": "one", "snapshot_id": 1}, {"tag": "one", "incremental": (1, 2)}):
        with pytest.raises(InvalidOption, match="'tag'"):
            read_table(spark, table, **wrong)
    with pytest.raises(SnapshotNotFound):
        read_table(spark, table, tag="none")
    files = Catalog(str(tmp_path)).table("db.t$files")
    assert read_table(spark, files, limit=1, columns=["level"]).count() == 1
    with pytest.raises(InvalidOption, match="nothing for a system table"):
        read_table(spark, files, tag="one")
    with pytest.raises(UnsupportedFeature):
        explain_read(files)

    place = {"warehouse": str(tmp_path), "table": "db.t", "columns": "k"}
    source = spark.read.format("dredge").options(**place)
    assert source.option("branch", "dev").load().count() == 3
    assert spark.read.format("dredge").options(**place, limit="2").load().count() == 2


def reader_of(root: Path, **options: str) -> Any:
    """The reader of the source, as Spark makes it."""
    source = TableSource({"warehouse": str(root), "table": "db.t", **options})
    columns = spark_arrow_schema(Catalog(str(root)).table("db.t").schema.fields, "db.t")
    return source.reader(from_arrow_schema(columns, prefer_timestamp_ntz=True))


def keys(reader: Any) -> list[int]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(key for batch in batches for key in batch.column("k").to_pylist())


def test_options_of_the_source_choose_a_version_and_a_number_of_rows(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1, 2, 3]))
    table.write(rows([3, 4], "b"))
    table.create_tag("one", 1)
    table.create_branch("dev", "one")
    moment = str(table.snapshots()[-1].time_millis)
    for options, expected in (
        ({"tag": "one"}, [1, 2, 3]),
        ({"timestamp": moment}, [1, 2, 3, 4]),
        ({"timestamp": "2999-01-01 00:00:00"}, [1, 2, 3, 4]),
        ({"branch": "dev"}, [1, 2, 3]),
        ({"limit": "0"}, []),
        ({"filter": '[["k", "<", 3]]', "limit": "9"}, [1, 2]),
    ):
        assert keys(reader_of(tmp_path, **options)) == expected, options
    limited = reader_of(tmp_path, limit="2")
    assert len(limited.partitions()) == 1 and len(keys(limited)) == 2
    for options, part in (
        ({"tag": "one", "snapshot-id": "1"}, "nothing beside snapshot-id"),
        ({"tag": "one", "timestamp": moment}, "only one of"),
        ({"limit": "-1"}, "option 'limit'"),
        ({"limit": "1", "incremental-between": "1,2"}, "nothing where changes are read"),
        ({"branch": "dev", "table": "db.t$branch_dev"}, "option 'branch'"),
    ):
        with pytest.raises(InvalidOption, match=part):
            reader_of(tmp_path, **options).partitions()


def test_frames_used_twice_give_every_row_and_push_filters_is_refused(spark: Any, tmp_path: Path) -> None:
    compacted(tmp_path)
    place = {"warehouse": str(tmp_path), "table": "db.t", "columns": "k"}
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("dredge").options(**place).load()
        assert frame.where("k >= 397").count() == 3
        assert frame.count() == 400, "a filter of one query stays in that query"
        for value in ("true", "false"):
            with pytest.raises(AnalysisException) as caught:
                spark.read.format("dredge").options(**place, **{"push-filters": value}).load()
            assert all(part in str(caught.value) for part in ("'push-filters'", "'filter'", "read_table", "dredge sql"))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_filter_that_cannot_be_understood_is_refused_before_spark(tmp_path: Path) -> None:
    with pytest.raises(InvalidFilter):
        explain_read(make_table(tmp_path), filter=[("zz", "=", 1)])


@pytest.mark.spark
def test_missing_partitions_come_from_the_fallback_branch(spark: Any, tmp_path: Path) -> None:
    register(spark)
    fields = pa.schema([("p", pa.int64()), ("v", pa.string())])
    table = make_table(tmp_path, fields=fields, primary_keys=(), partition_keys=("p",))
    table.create_branch("other").write(pa.table({"p": [1, 2], "v": ["other", "other"]}))
    table.write(pa.table({"p": [1], "v": ["main"]}))
    fallback = table.copy({"scan.fallback-branch": "other"})
    expected = [(1, "main"), (2, "other")]
    assert sorted(map(tuple, read_table(spark, fallback).collect())) == expected
    assert sorted(map(tuple, read_table(spark, fallback, filter=[("v", "=", "other")]).collect())) == expected[1:]
    source = spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.t")
    assert sorted(map(tuple, source.option("scan.fallback-branch", "other").load().collect())) == expected
