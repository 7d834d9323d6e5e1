"""Spark writes into dynamic buckets: whichever tasks and assigners there are, a key lies in one bucket, and the index tells of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.errors import CommitConflict, CorruptFile
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import hash_index, index_file_path
from lsm_core.read import read_split
from lsm_core.spark import write_table
from lsm_core.spark.spark_write import WriteJob
from lsm_core.write.bucket import key_hashes
from tests.spark.tables import make_table, saved
from tests.support.samples import one_in

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
Writer = Callable[[Any, Table], object]


def table_of(place: Path, **options: str) -> Table:
    given = {"bucket": "-1", "dynamic-bucket.target-row-num": "30", "write-only": "true"}
    given |= {f"dynamic-bucket.{key.replace('_', '-')}": value for key, value in options.items()}
    return make_table(place, fields=FIELDS, primary_keys=["p", "k"], partition_keys=["p"], options=given)


def frame_of(spark: Any, first: int, count: int, value: int, tasks: int = 3) -> Any:
    return spark.range(first, first + count, 1, tasks).selectExpr("concat('p', id % 2) p", "id k", f"bigint({value}) v")


def checked(table: Table) -> dict[tuple[str, int], tuple[int, int]]:
    """Bucket and value of every key, each of which lies in one bucket, whose index tells of it; every hash is in one index."""
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    known = {
        (e.partition, e.bucket): hash_index(table.store, e).tolist()
        for e in manifests.index_entries(table.store, snapshot)
    }
    for partition in {partition for partition, _ in known}:
        together = [value for (item, _), hashes in known.items() if item == partition for value in hashes]
        assert len(together) == len(set(together))
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for split in table.plan_scan():
        for batch in read_split(table.store, split, FIELDS.names):
            assert set(key_hashes(table.store, batch).tolist()) <= set(known[split.partition, split.bucket])
            for row in batch.to_pylist():
                assert (row["p"], row["k"]) not in found
                found[row["p"], row["k"]] = split.bucket, row["v"]
    return found


@pytest.mark.parametrize("write", one_in(2, [write_table, saved]), ids=["write_table", "save"])
def test_keys_keep_their_bucket_over_writes_of_any_number_of_tasks(spark: Any, tmp_path: Path, write: Writer) -> None:
    table = table_of(tmp_path, assigner_parallelism="3")
    write(frame_of(spark, 0, 200, 1), table)
    before = checked(table)
    assert {bucket for bucket, _ in before.values()} >= {0, 1, 2}
    table = table.copy({"dynamic-bucket.assigner-parallelism": "2"})
    write(frame_of(spark, 150, 150, 2, tasks=5), table)
    after = checked(table)
    assert {key: bucket for key, (bucket, _) in after.items() if key in before} == {
        key: b for key, (b, _) in before.items()
    }
    assert {k: value for (_, k), (_, value) in after.items()} == {k: 1 if k < 150 else 2 for k in range(300)}
    table.write(pa.table({"p": ["p0", "p1"], "k": [4, 1_001], "v": [3, 3]}))
    assert checked(table)["p0", 4][0] == before["p0", 4][0]


def test_buckets_of_write_table_hold_their_number_of_keys_and_each_assigner_its_own(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path, assigner_parallelism="2")
    write_table(frame_of(spark, 0, 300, 1), table)
    buckets = [(p, bucket) for (p, _), (bucket, _) in checked(table).items()]
    assert max(buckets.count(place) for place in set(buckets)) <= 30
    assert {bucket % 2 for _, bucket in buckets} == {0, 1}


@pytest.mark.parametrize("write", one_in(2, [write_table, saved], 1), ids=["write_table", "save"])
def test_one_key_in_many_tasks_is_one_row(spark: Any, tmp_path: Path, write: Writer) -> None:
    table = table_of(tmp_path)
    for _ in range(2):
        write(spark.range(0, 400, 1, 4).selectExpr("'a' p", "id % 50 k", "id v"), table)
    assert {k: value for (_, k), (_, value) in checked(table).items()} == {k: 350 + k for k in range(50)}


@pytest.mark.parametrize("how", one_in(2, ["write_table", "save"]))
def test_an_overwrite_through_spark_starts_the_index_of_its_partitions_anew(
    spark: Any, tmp_path: Path, how: str
) -> None:
    table = table_of(tmp_path, max_buckets="2")
    write_table(frame_of(spark, 0, 100, 1), table)
    frame = spark.range(60, 70, 1, 2).selectExpr("'p0' p", "id k", "bigint(5) v")
    write_table(frame, table, overwrite=True) if how == "write_table" else saved(frame, table, "overwrite")
    found = checked(table)
    assert sorted(k for p, k in found if p == "p0") == list(range(60, 70))
    assert len([k for p, k in found if p == "p1"]) == 50
    assert {bucket for bucket, _ in found.values()} <= {0, 1}


def test_a_write_that_another_one_overtook_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.write(pa.table({"p": ["p0"], "k": [1], "v": [0]}))
    real = WriteJob.publish

    def late(job: WriteJob, *given: Any) -> Any:
        table.write(pa.table({"p": ["p0"], "k": [7_000], "v": [0]}))
        return real(job, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteJob, "publish", late)
        with pytest.raises(CommitConflict, match="a key could lie in two of them"):
            write_table(frame_of(spark, 0, 40, 1), table)
    index = Path(table.store.root) / "index"
    named = {e.file_name for s in table.snapshots() for e in manifests.index_entries(table.store, s)}
    assert {path.name for path in index.iterdir()} == named
    assert len(checked(table)) == 2


def test_a_broken_index_file_is_named_by_the_driver(spark: Any, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.write(pa.table({"p": ["p0"], "k": [1], "v": [0]}))
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    path = index_file_path(table.store, manifests.index_entries(table.store, snapshot)[0])
    Path(path).write_bytes(b"xyz")
    with pytest.raises(CorruptFile) as caught:
        write_table(frame_of(spark, 0, 40, 1), table)
    assert caught.value.path == path
    with pytest.raises(Exception, match=Path(path).name):
        saved(frame_of(spark, 0, 40, 1), table)
