"""Streams of Spark that write by `foreachBatch`: a batch that is run again counts once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Table
from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import CommitKind
from lsm_core.spark import compact_table, write_table
from lsm_core.spark.spark_write import WriteJob, numbered_commit
from tests.spark.tables import data_files, live_paths, make_table
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "changelog-producer": "lookup"}
BATCHES = [{"k": [1, 2, 3], "v": [1, 1, 1]}, {"k": [2, 3, 4], "v": [10, 10, 10]}, {"k": [4, 5], "v": [100, 100]}]


def replayed(table: Table) -> dict[int, int]:
    """What the changelog makes of nothing; it takes back only what is there."""
    held: dict[int, int] = {}
    newest = table.latest_snapshot()
    assert newest is not None
    for row in table.incremental(0, newest.id, mode="changelog").to_pylist():
        if row["_ROW_KIND"] in ("-U", "-D"):
            assert held.pop(row["k"]) == row["v"]
        else:
            assert row["k"] not in held
            held[row["k"]] = row["v"]
    return held


@pytest.mark.parametrize(("how", "bucket"), one_in(2, [("write_table", "-1"), ("save", "1")], 1))
def test_a_batch_that_is_run_again_counts_once(spark: Any, tmp_path: Path, how: str, bucket: str) -> None:
    """The query dies after its second batch is in the table, before Spark knows: dynamic and fixed buckets, a lookup changelog."""
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["k"], options={"bucket": bucket, **SUMS})
    place = tmp_path / "in"
    place.mkdir()
    dies = [True]

    def write(frame: Any, batch: int) -> None:
        if how == "write_table":
            write_table(frame, table, commit_user="totals", commit_identifier=batch)
        else:
            values = {
                "warehouse": str(tmp_path),
                "table": "db.t",
                "commit-user": "totals",
                "commit-identifier": str(batch),
            }
            frame.write.format("dredge").options(**values).mode("append").save()
        if batch == 1 and dies.pop():
            dies.append(False)
            raise RuntimeError("killed by the test")

    def run() -> None:
        stream = spark.readStream.schema("k BIGINT, v BIGINT").option("maxFilesPerTrigger", "1").parquet(str(place))
        query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)

    for number, rows in enumerate(BATCHES[:2]):
        pq.write_table(pa.table(rows), place / f"{number}.parquet")
    with pytest.raises(Exception, match="killed by the test"):
        run()
    before = data_files(tmp_path)
    pq.write_table(pa.table(BATCHES[2]), place / "2.parquet")
    run()
    expected = {1: 1, 2: 11, 3: 11, 4: 110, 5: 100}
    assert {row["k"]: row["v"] for row in table.to_arrow().to_pylist()} == expected
    assert [(s.commit_user, s.commit_identifier) for s in table.snapshots()] == [("totals", n) for n in range(3)]
    assert before < data_files(tmp_path) == set(live_paths(table))
    compact_table(spark, table, full=True)
    assert [s.commit_kind for s in table.snapshots()][-1] is CommitKind.COMPACT
    assert replayed(table) == expected
    assert (
        write_table(
            spark.createDataFrame([(1, 1)], "k BIGINT, v BIGINT"), table, commit_user="totals", commit_identifier=1
        )
        is None
    )


def test_of_two_that_write_one_batch_at_once_one_counts(spark: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path, fields=FIELDS, primary_keys=["k"], options={"bucket": "1", **SUMS})
    real = WriteJob.publish

    def overtaken(job: WriteJob, *given: Any) -> Any:
        with table.new_write() as writer:
            writer.write(pa.table(BATCHES[0]))
            assert table.new_commit("totals").commit(writer.prepare_commit(), commit_identifier=0) == 1
        return real(job, *given)

    frame = spark.createDataFrame([(k, 1) for k in BATCHES[0]["k"]], "k BIGINT, v BIGINT")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteJob, "publish", overtaken)
        assert write_table(frame, table, commit_user="totals", commit_identifier=0) is None
    assert {row["k"]: row["v"] for row in table.to_arrow().to_pylist()} == dict.fromkeys(BATCHES[0]["k"], 1)
    assert data_files(tmp_path) == set(live_paths(table))


def test_a_commit_needs_user_and_number(tmp_path: Path) -> None:
    store = make_table(tmp_path).store
    assert numbered_commit(store, None, None) is None
    assert numbered_commit(store, "a", "7") == ("a", 7)
    for user, number, named in [
        ("a", None, "commit_identifier"),
        (None, 3, "commit_user"),
        ("a", -1, "at least 0"),
        ("a", "x", "'x'"),
        ("a", 2**63 - 1, "below"),
    ]:
        with pytest.raises(InvalidOption, match=named):
            numbered_commit(store, user, number)
