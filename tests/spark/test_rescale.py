"""Rescale on Spark: the same rows in the same buckets as by one process, the same report, or nothing at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.clock import FixedClock
from lsm_core.commit import CommitMessage
from lsm_core.compact import BucketReport, BucketResult
from lsm_core.compact.row_digests import Content
from lsm_core.errors import CorruptFile, SparkFailed, VerificationFailed
from lsm_core.maintenance.actions.rescale import RescaleTask
from lsm_core.merge import Digest
from lsm_core.metadata.indexes import vector_files
from lsm_core.read.key_range import KeyRange
from lsm_core.spark import rescale_table, spark_rebucket
from tests.spark.tables import data_files, dying, make_table
from tests.support.samples import one_in
from tests.support.stores import live_files

pytestmark = pytest.mark.spark
FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)


def batch(keys: range, base: int) -> pa.Table:
    return pa.table(
        {"p": ["a", "b"] * len(keys), "k": [k for k in keys for _ in "ab"], "v": [base + k for k in keys for _ in "ab"]}
    )


def keyed(root: Path) -> Table:
    table = make_table(
        root,
        fields=FIELDS,
        primary_keys=["p", "k"],
        partition_keys=["p"],
        options={"bucket": "2", "write-only": "true"},
    )
    table.write(batch(range(60), 0))
    table.write(batch(range(30, 90), 1000))
    table.write(batch(range(5), 0), row_kinds=pa.array(["-D"] * 10))
    return table


def append(root: Path) -> Table:
    options = {"bucket": "2", "bucket-key": "k", "deletion-vectors.enabled": "true"}
    table = make_table(root, fields=FIELDS, primary_keys=(), options=options)
    for base in (0, 1000):
        table.write(batch(range(40), base))
    table.delete([("k", "<", 5)])
    return table


PIECES = {"dredge.compaction.piece-size": "1 kb", "write-only": "true"}


def one_old_bucket(root: Path) -> Table:
    """So many rows that to merge them takes longer than to open their files; some of them are gone."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true", **PIECES}
    table = make_table(root, fields=FIELDS, primary_keys=["p", "k"], options=options)
    table.write(batch(range(12_000), 0))
    table.compact(full=True)
    table.write(batch(range(10_000, 13_000), 1_000_000))
    table.write(batch(range(5), 0), row_kinds=pa.array(["-D"] * 10))
    table.compact()
    latest = table.latest_snapshot()
    assert latest is not None and vector_files(table.store, latest)
    return table


def one_old_append_bucket(root: Path) -> Table:
    options = {"bucket": "1", "bucket-key": "k", **PIECES}
    table = make_table(root, fields=FIELDS, primary_keys=(), options=options)
    for turn in range(5):
        table.write(batch(range(200 * turn, 200 * turn + 300), turn))
    return table


def opened(root: Path) -> Table:
    return Catalog(str(root), clock=FixedClock(1_700_000_000_000)).table("db.t")


def said(table: Table) -> Any:
    return table.to_arrow().sort_by([("p", "ascending"), ("k", "ascending")]).to_pylist()


def placed(table: Table) -> list[Any]:
    files = live_files(table.store).items()
    return sorted((place, f.level, f.row_count, f.min_key, f.min_sequence_number) for place, fs in files for f in fs)


@pytest.mark.parametrize(
    ("make", "tasks"), one_in(2, [(keyed, 4), (append, 2), (one_old_bucket, 2), (one_old_append_bucket, 2)], 1)
)
def test_spark_rescales_as_one_process_does(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, tasks: int
) -> None:
    """``tasks`` read the old buckets: a lone one that is large is cut, by its keys or by its files."""
    make(tmp_path / "one")
    read: list[int] = []
    sources = spark_rebucket._sources
    monkeypatch.setattr(spark_rebucket, "_sources", lambda *asked: [read.append(len(it := sources(*asked))), it][1])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    here, there = opened(tmp_path / "one"), opened(tmp_path / "two")
    before = said(here)
    local = here.apply(here.plan_maintenance("rescale", bucket_num=3))
    report = rescale_table(spark, there, 3)
    assert said(there) == before == said(here)
    assert there.to_arrow().equals(here.to_arrow())  # in their order, too
    assert placed(there) == placed(here)
    assert read == [tasks]
    plain = [replace(table, seconds=0.0, run_id="", bytes_in=0, bytes_out=0, plan_hash="") for table in (local, report)]
    assert plain[0] == plain[1]
    assert [entry.action for entry in there.ledger()].count("rescale") == 1
    assert not list(tmp_path.rglob("staged/*"))


@pytest.mark.soak
def test_a_killed_task_leaves_the_table_and_its_folder_as_they_were(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    files, before = data_files(tmp_path), said(table)
    with pytest.raises(SparkFailed, match=r"rescaling table db\.t: Python worker exited"):
        rescale_table(spark, dying(table, "/p=a/bucket-2/"), 3)
    assert data_files(tmp_path) == files and not list(tmp_path.rglob("staged/*"))
    assert rescale_table(spark, table, 3, where="p = 'a'").partitions == ("p=a",)
    assert said(table) == before


def test_a_damaged_file_fails_it_by_name_and_nothing_is_left(spark: Any, tmp_path: Path) -> None:
    table = keyed(tmp_path)
    victim = sorted(data_files(tmp_path))[2]
    victim.write_bytes(victim.read_bytes()[:-50])
    files = data_files(tmp_path)
    with pytest.raises(CorruptFile, match=victim.name):
        rescale_table(spark, table, 3)
    assert data_files(tmp_path) == files and len(table.snapshots()) == 3


def test_a_row_that_is_lost_between_the_passes_is_noticed(tmp_path: Path) -> None:
    store = keyed(tmp_path).store
    (partition, _), *_ = live_files(store)

    def told(bucket: int, rows: int) -> BucketResult:
        digest = Content(Digest(rows, rows)).live.text()
        return BucketResult(CommitMessage(partition, bucket, 3), BucketReport(digest=digest))

    written, read = [told(0, 4), told(1, 5)], [told(-1, 7), told(-1, 2)]
    spark_rebucket._require_same(store, (), written, read)
    with pytest.raises(VerificationFailed, match="p=a: 4 rows re-read, 9 merged rows before"):
        spark_rebucket._require_same(store, (), written[:1], read)
    part = RescaleTask(partition, 0, 3, tuple(live_files(store)[partition, 0]), piece=KeyRange(None, b"x"))
    held = sum(file.row_count for file in part.files)
    whole = [replace(read[0], report=replace(read[0].report, rows_in=held)), read[1]]
    spark_rebucket._require_same(store, (part, replace(part, piece=KeyRange(b"x", None))), written, whole)
    with pytest.raises(VerificationFailed, match=f"p=a: the pieces read 0 rows of {held}"):
        spark_rebucket._require_same(store, (part,), written, read)
    with pytest.raises(VerificationFailed, match="0 rows re-read, 9 merged rows before"):
        spark_rebucket._require_same(store, (), [], read)
