"""Writing through Spark says what writing locally says, publishes once, and leaves nothing behind when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from lsm_core import Catalog
from lsm_core.errors import (
    ColumnNotFound,
    CommitConflict,
    CommitUnknown,
    InvalidData,
    RetractNotSupported,
    SparkFailed,
    UnsupportedFeature,
)
from lsm_core.format.snapshot import CommitKind
from lsm_core.spark import explain_read, read_table, spark_columns, spark_write, write_table
from lsm_core.spark.spark_tasks import TaskOutcome
from lsm_core.spark.spark_write import WriteJob, _sent_to_buckets, _written_as_received
from tests.spark.tables import FIELDS, data_files, make_table, rows, same
from tests.support.spark import EventLog, TracedSession, kill_when
from tests.support.stores import live_files

pytestmark = pytest.mark.spark
_MAX = {"fields.v.aggregate-function": "max"}


def test_a_write_through_spark_equals_a_local_write(spark: Any, tmp_path: Path) -> None:
    mine, other = make_table(tmp_path / "a"), make_table(tmp_path / "b")
    for keys, tag in ((range(500), "a"), (range(250, 700), "b"), ((5, 5, 5, 9), "c")):
        data = rows(list(keys), tag)
        write_table(spark.createDataFrame(data), mine)
        other.write(data)
    assert same(other.to_arrow(), mine.to_arrow())
    assert [s.commit_kind for s in mine.snapshots()] == [CommitKind.APPEND] * 3


def test_rows_of_one_key_count_in_the_order_of_the_dataframe(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]))
    frame = spark.range(0, 30_000, 1, 4).selectExpr("id % 100 AS k", "id AS v")
    write_table(frame, table)
    found = table.to_arrow().sort_by("k")
    assert found.column("v").to_pylist() == [29_900 + k for k in range(100)]


def test_row_kinds_travel_with_the_rows(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows(list(range(20))))
    data = rows(list(range(10, 30)), "b")
    kinds = pa.array(["-D"] * 5 + ["+U"] * 5 + ["+I"] * 10)
    write_table(spark.createDataFrame(data.append_column("op", kinds)), table, row_kind_column="op")
    assert sorted(table.to_arrow(["k"]).column("k").to_pylist()) == [*range(10), *range(15, 30)]


def test_partitions_and_missing_columns(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema(
        [
            pa.field("p", pa.string(), nullable=False),
            pa.field("k", pa.int64(), nullable=False),
            ("v", pa.string()),
            ("w", pa.int32()),
        ]
    )
    table = make_table(tmp_path, fields=fields, primary_keys=["p", "k"], partition_keys=["p"], options={"bucket": "2"})
    write_table(spark.sql("SELECT concat('a b/%', id % 5) p, id k, string(id) v FROM range(0, 100, 1, 3)"), table)
    found = table.to_arrow()
    assert found.num_rows == 100
    assert found.column("w").null_count == 100
    assert same(found, read_table(spark, table).toArrow())
    assert len({(s.partition, s.bucket) for s in table.plan_scan()}) == 10


def test_append_tables_take_every_row(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, primary_keys=())
    data = rows([1, 1, 2, 3, 3, 3])
    assert write_table(spark.createDataFrame(data), table) == 1
    write_table(spark.createDataFrame(data), table)
    assert same(pa.concat_tables([data, data]), table.to_arrow())
    assert same(pa.concat_tables([data, data]), read_table(spark, table).toArrow())


def test_buckets_of_append_tables_keep_the_order_of_the_dataframe(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = make_table(tmp_path, fields=fields, primary_keys=(), options={"bucket": "2", "bucket-key": "k"})
    for turn in range(2):
        write_table(spark.range(2000 * turn, 2000 * turn + 2000, 1, 4).selectExpr("id % 5 AS k", "id AS v"), table)
    found = table.to_arrow()
    for key in range(5):
        mine = [v for k, v in zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True) if k == key]
        assert mine == list(range(key, 4000, 5))


def test_overwrite_replaces_what_it_is_told_to(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
    table = make_table(tmp_path, fields=fields, primary_keys=["p", "k"], partition_keys=["p"])
    write_table(spark.sql("SELECT int(id % 3) p, id k FROM range(0, 30)"), table)
    write_table(spark.sql("SELECT 1 p, 1000 + id k FROM range(0, 2)"), table, overwrite=True)
    found = table.to_arrow().to_pydict()
    assert sorted(k for p, k in zip(found["p"], found["k"], strict=True) if p == 1) == [1000, 1001]
    assert len(found["k"]) == 22
    write_table(spark.sql("SELECT 2 p, 7 k"), table, overwrite={"p": 2})
    assert table.to_arrow().num_rows == 13
    write_table(spark.sql("SELECT 2 p, 9 k"), table, overwrite={})
    assert table.to_arrow().num_rows == 13
    write_table(spark.sql("SELECT 8 p, 8 k"), table.copy({"dynamic-partition-overwrite": "false"}), overwrite=True)
    assert table.to_arrow().to_pylist() == [{"p": 8, "k": 8}]
    latest = table.latest_snapshot()
    assert latest is not None and latest.commit_kind == CommitKind.OVERWRITE


def test_an_empty_frame_writes_no_snapshot(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    assert write_table(spark.createDataFrame(rows([])), table) is None
    assert table.latest_snapshot() is None


def test_a_null_key_an_unknown_column_and_a_wrong_table_are_typed_errors(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(InvalidData, match="column 'k'"):
        write_table(spark.sql("SELECT IF(id = 7, NULL, id) k FROM range(0, 20, 1, 2)"), table)
    with pytest.raises(ColumnNotFound, match="no column 'nope'"):
        write_table(spark.sql("SELECT 1L k, 2 nope"), table)
    with pytest.raises(UnsupportedFeature):
        write_table(spark.sql("SELECT 1L k"), ["db.t"])
    make_table(tmp_path, "db.sums")
    schema = tmp_path / "db.db" / "sums" / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"bucket"', '"commit.callbacks" : "a.B",\n    "bucket"'))
    with pytest.raises(UnsupportedFeature, match=r"callbacks.*db\.sums"):
        write_table(spark.sql("SELECT 1L k"), Catalog(str(tmp_path)).table("db.sums"))
    assert table.latest_snapshot() is None
    assert data_files(tmp_path) == set()


def test_a_retract_that_no_merge_takes_is_refused_by_its_task(spark: Any, tmp_path: Path) -> None:
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    table = make_table(tmp_path, fields=fields, options={"merge-engine": "aggregation", **_MAX})
    frame = spark.sql("SELECT id k, id v, IF(id = 77, '-D', '+I') op FROM range(0, 100, 1, 3)")
    with pytest.raises(RetractNotSupported, match=r"table db.t, column 'v', key {'k': 77}: a -D row: .*'max'"):
        write_table(frame, table, row_kind_column="op")
    assert table.latest_snapshot() is None
    assert data_files(tmp_path) == set()
    allowed = make_table(
        tmp_path, "db.u", fields=fields, options={"merge-engine": "aggregation", **_MAX, "ignore-delete": "true"}
    )
    write_table(frame, allowed, row_kind_column="op")
    assert allowed.to_arrow().num_rows == 99


def test_a_failing_writer_task_leaves_no_file_and_no_snapshot(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows(list(range(50))))
    before, files = table.to_arrow(), data_files(tmp_path)
    blocked = Path(table.store.bucket_dir(table.plan_scan()[0].partition, 1))
    hidden = blocked.rename(blocked.with_name("moved"))
    blocked.write_text("a file where the bucket's folder should be")
    try:
        with pytest.raises((SparkFailed, Exception), match="bucket-1"):
            write_table(spark.createDataFrame(rows(list(range(200)))), table)
    finally:
        blocked.unlink()
        hidden.rename(blocked)
    assert data_files(tmp_path) == files
    assert same(before, table.to_arrow())


@pytest.mark.parametrize("error", [CommitConflict("test"), CommitUnknown(2)])
def test_files_go_after_a_conflict_and_stay_when_the_outcome_is_unknown(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = make_table(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(spark_write.Committer, "commit", refuse)
    with pytest.raises(type(error)):
        write_table(spark.createDataFrame(rows(list(range(30)))), table)
    assert bool(data_files(tmp_path)) is isinstance(error, CommitUnknown)
    assert table.latest_snapshot() is None


@pytest.mark.soak
def test_a_killed_writer_fails_the_job_and_publishes_nothing(traced: TracedSession, tmp_path: Path) -> None:
    # Many small flushes: the kill finds its writer in the middle of its work also on a busy machine.
    table = make_table(tmp_path, options={"bucket": "1", "write-buffer-size": "256 kb"})
    many = rows(list(range(100_000)), "b")
    table.write(rows(list(range(50))))
    before, files = table.to_arrow(), data_files(tmp_path)
    place = str(Path(table.store.root))
    killer = kill_when(
        traced.trace, lambda e: e["event"] == "begin" and e["path"].startswith(place) and "bucket-" in e["path"]
    )
    with pytest.raises(SparkFailed, match=r"writing table db\.t: Python worker exited"):
        write_table(traced.spark.createDataFrame(many), table)
    killer.join(5)
    assert len(killer.killed) == 1  # type: ignore[attr-defined]
    assert same(before, table.to_arrow())
    assert data_files(tmp_path) == files
    write_table(traced.spark.createDataFrame(many), table)
    assert same(many, table.to_arrow())


def test_writing_uses_a_task_per_bucket_and_brings_no_rows_to_the_driver(
    traced: TracedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(
        tmp_path,
        fields=pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]),
        options={"bucket": "5"},
    )
    frame = traced.spark.range(0, 200_000, 1, 2).selectExpr("id k", "sha2(string(id), 256) v")
    log = EventLog(traced.events)
    write_table(frame, table)
    assert log.stages()[-1].tasks == 2  # as many as run at once: five would take longer to start than they save
    monkeypatch.setattr(spark_write, "_TASK_BYTES", 1)
    log = EventLog(traced.events)
    write_table(frame, table)
    stages = log.stages()
    assert stages[-1].tasks == 5
    assert sum(sum(stage.result_bytes) for stage in stages) < 100_000
    assert table.to_arrow().num_rows == 200_000
    assert len(data_files(tmp_path)) == 2 * 5  # one a bucket, whoever wrote them


def test_rows_of_one_small_partition_are_written_without_a_shuffle(traced: TracedSession, tmp_path: Path) -> None:
    spark, expected = traced.spark, rows(list(range(300)))
    table = make_table(tmp_path)
    log = EventLog(traced.events)
    write_table(spark.createDataFrame(expected).coalesce(1), table)
    assert [stage.tasks for stage in log.stages()] == [1]
    assert same(expected, table.to_arrow())
    assert len(data_files(tmp_path)) == 3  # one a bucket
    frames = {
        "sorted": spark.range(10).sort("id"),
        "cached": spark.range(0, 10, 1, 1).cache(),
        "two": spark.range(0, 9, 1, 2),
        "of Python": spark.read.format("dredge").options(warehouse=str(tmp_path), table="db.t").load(),
        "below a query": spark.range(0, 9, 1, 1).where("id > (select max(id) from range(3))"),
    }
    assert {name: spark_write._is_one_task(_to_multiset(frame), 1) for name, frame in frames.items()} == dict.fromkeys(
        frames, False
    )


def test_small_files_are_read_by_the_one_task_that_writes_their_rows(
    traced: TracedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark would share out among its cores, and shuffle: files, but not what is worked out from their rows."""
    spark, setting = traced.spark, "spark.sql.files.minPartitionNum"
    table = make_table(tmp_path)
    given = [rows(list(range(at, at + 200)), f"v{at}") for at in (0, 1000)]
    paths = [str(tmp_path / f"{place}.parquet") for place in range(2)]
    for path, data in zip(paths, given, strict=True):
        pq.write_table(data, path)
    frame = spark.read.parquet(*paths)
    assert frame._jdf.queryExecution().toRdd().getNumPartitions() == 2
    log = EventLog(traced.events)
    write_table(frame.where("k <> 3"), table)
    assert [stage.tasks for stage in log.stages()] == [1]
    assert same(pa.concat_tables([given[0].filter(pc.field("k") != 3), given[1]]), table.to_arrow())
    assert len(data_files(tmp_path)) == 3
    assert spark.conf.get(setting, None) is None

    assert spark_write._is_one_task(_to_multiset(frame.select("k")), 1)
    monkeypatch.setattr(spark_write, "_JOINED_BYTES", 0)
    assert not spark_write._is_one_task(_to_multiset(frame.select("s")), 1)
    monkeypatch.undo()
    assert not spark_write._is_one_task(
        _to_multiset(frame.mapInArrow(lambda batches: batches, frame.schema)), 1
    )  # Python may take its time
    spark.conf.set(setting, "2")
    try:
        assert not spark_write._is_one_task(_to_multiset(frame), 1)
        assert spark.conf.get(setting) == "2"
    finally:
        spark.conf.unset(setting)


def _to_multiset(frame: Any) -> Any:
    return frame.mapInArrow(lambda batches: (pa.record_batch({"n": [batch.num_rows]}) for batch in batches), "n BIGINT")


def test_the_fields_of_these_tests_cover_what_issue_3_supports() -> None:
    assert {str(f.type) for f in FIELDS} >= {"int64", "string", "double", "timestamp[ms]", "bool", "int32"}


def test_tasks_read_no_metadata_however_many_there_are(traced: TracedSession, tmp_path: Path) -> None:
    spark = traced.spark
    table = make_table(tmp_path, options={"bucket": "2"})
    for tag in ("a", "b"):
        table.write(rows(list(range(100)), tag))

    def reads(work: Callable[[], object]) -> list[str]:
        start = traced.trace.stat().st_size if traced.trace.exists() else 0
        work()
        lines = [json.loads(line) for line in traced.trace.read_bytes()[start:].decode().splitlines()]
        own = [line for line in lines if line["path"].startswith(table.store.root) and line["event"] == "begin"]
        assert any("/bucket-" in line["path"] and line["step"] == "write" for line in own)
        kinds = {"read", "open", "list", "exists", "size"}
        apart = ("/bucket-", "/dredge/staged/")  # data, and the notes of the write itself
        return [
            line["path"] for line in own if line["step"] in kinds and not any(item in line["path"] for item in apart)
        ]

    frame = spark.createDataFrame(rows(list(range(50, 150)), "c"))
    files = len(data_files(tmp_path))
    checks = reads(lambda: write_table(frame.repartition(4), table))
    # The schema that the table was opened with shows that the folder still holds this table: before a data file is
    # created, and before its writer ends. Nothing else is read.
    assert {path.rpartition("/schema/")[2] for path in checks} == {"schema-0"}
    assert len(checks) <= 2 * (len(data_files(tmp_path)) - files)

    def save(tasks: int) -> None:
        target = frame.repartition(tasks).write.format("dredge").option("warehouse", str(tmp_path))
        target.option("table", "db.t").mode("append").save()

    save(1)  # the next two meet the same number of files
    table.compact(full=True)
    few = len(reads(lambda: save(1)))  # what plans and commits reads, in Python processes beside the tasks
    table.compact(full=True)
    more = len(reads(lambda: save(4))) - few
    assert more < 3 * 4  # a task that looked for itself would read schema, hint, snapshot, two lists and manifests
    assert same(rows(list(range(50, 150)), "c"), table.to_arrow(filter=[("k", ">=", 50)]))


@pytest.mark.parametrize(("piece", "frame"), [(1, 16 << 20), (4_000, 200)])
def test_rows_sent_in_many_messages_are_merged_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, frame: int
) -> None:
    """Both passes by hand: pieces of a batch each, or messages of few bytes; in any order, sorted as the shuffle sorts them."""
    fields = pa.schema(
        [pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
    )
    layout = {"fields": fields, "primary_keys": ["p", "k"], "partition_keys": ["p"], "options": {"bucket": "2"}}
    table, local = make_table(tmp_path / "a", **layout), make_table(tmp_path / "b", **layout)
    monkeypatch.setattr(spark_write, "_PIECE_BYTES", piece)
    monkeypatch.setattr(spark_write, "_SENT_BYTES", 10 * frame)
    monkeypatch.setattr(spark_columns, "_FRAME_BYTES", frame)
    job = WriteJob.plan(table.store, overwrite=False)
    chance = np.random.default_rng(7)
    messages: list[pa.RecordBatch] = []
    for task in range(3):
        drawn = {"p": chance.integers(0, 3, 500), "k": chance.integers(0, 40, 500), "v": np.arange(500) + 1000 * task}
        kinds = pa.array(chance.choice(["+I", "+U", "-D"], 500, p=[0.6, 0.3, 0.1]))
        data = pa.table(drawn).cast(fields)
        monkeypatch.setattr(spark_write, "task_number", lambda task=task: task)
        given = data.append_column("op", kinds).to_batches(max_chunksize=37)
        messages += _sent_to_buckets(job, "op", 4, iter(given))
        local.write(data, row_kinds=kinds)
    sent = pa.Table.from_batches(messages)
    sizes = [pa.ipc.read_record_batch(rows.as_buffer(), fields).nbytes for rows in sent.column("rows")]
    assert max(sizes) <= frame and len(messages) > 10
    assert sent.num_rows > 100 and set(sent.column("slot").to_pylist()) <= set(range(4))
    shuffled = sent.take(pa.array(chance.permutation(sent.num_rows)))
    by = [(name, "ascending") for name in ("slot", "partition", "bucket", "place")]
    outcomes = [
        TaskOutcome(0, answer)
        for slot in range(4)
        for batch in _written_as_received(
            job, iter(shuffled.sort_by(by).filter(pc.field("slot") == slot).combine_chunks().to_batches())
        )
        for answer in batch.column("answer").to_pylist()
    ]
    assert job.commit(outcomes) == 1
    assert same(local.to_arrow(), table.to_arrow())


def test_an_overwrite_of_a_table_with_vectors_is_seen_at_once_also_where_its_buffer_was_flushed_twice(
    spark: Any, tmp_path: Path
) -> None:
    options = {"deletion-vectors.enabled": "true", "write-buffer-size": "64 kb", "write-buffer-spillable": "false"}
    table = make_table(tmp_path, options={**options, "bucket": "2"})
    table.write(rows(list(range(50))))
    table.compact(full=True)
    keys = [key * 7919 % 3001 for key in range(9000)]
    write_table(spark.createDataFrame(rows(keys)), table, overwrite=True)
    assert table.to_arrow().num_rows == len(set(keys)) == 3001
    assert {file.level for files in live_files(table.store).values() for file in files} == {5}


@pytest.mark.soak
def test_wide_rows_cross_to_and_from_spark_in_frames(spark: Any, tmp_path: Path) -> None:
    """Texts of 2 MiB, and one that is larger than a frame by itself, through all doors."""
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    table = make_table(tmp_path, fields=fields, options={"bucket": "1", "write-only": "true"})
    lengths = F.when(F.col("id") == 7, 20 << 20).otherwise(2 << 20)
    frame = spark.range(0, 12, 1, 2).select(
        F.col("id").alias("k"), F.repeat(F.chr(F.lit(97) + F.col("id")), lengths.cast("int")).alias("v")
    )
    write_table(frame, table)
    place = {"warehouse": str(tmp_path), "table": "db.t"}
    frame.where("k > 5").write.format("dredge").options(**place).mode("append").save()
    assert explain_read(table).merged_files > 1
    for found in (read_table(spark, table), spark.read.format("dredge").options(**place).load()):
        result = found.selectExpr("k", "length(v) AS n", "v = repeat(char(97 + k), length(v)) AS same").collect()
        assert {(row.k, row.n, row.same) for row in result} == {
            (k, (20 if k == 7 else 2) << 20, True) for k in range(12)
        }


@pytest.mark.parametrize("options", [{"merge-engine": "first-row"}, {"deletion-vectors.enabled": "true"}, {}])
def test_a_write_whose_rows_readers_do_not_see_yet_says_so_once(
    spark: Any, tmp_path: Path, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(tmp_path, options={"bucket": "2", **options})
    with caplog.at_level("WARNING", logger="lsm_core"):
        write_table(spark.createDataFrame(rows([1, 2, 3])), table)
    hidden = table.to_arrow().num_rows == 0
    assert hidden is bool(options)
    warnings = [record.getMessage() for record in caplog.records if "do not see 3 rows" in record.getMessage()]
    assert len(warnings) == int(hidden)
    table.compact()
    assert table.to_arrow().num_rows == 3
