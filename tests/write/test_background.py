"""Compaction inside a writer: back-pressure, one at a time a bucket, and errors that come out where results do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import compact
from lsm_core.compact import BucketResult, BucketTask, Judge, run_bucket_task
from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.format.manifest import DataFileMeta, IndexFileMeta
from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
from lsm_core.metadata.store import TableStore
from lsm_core.write import Compactor, StreamTableWrite
from lsm_core.write.background import sorted_runs, waits_at_commit, waits_at_flush
from tests.support.stores import data_files_on_disk, make_store

FIELDS = {"k": "BIGINT NOT NULL", "v": "BIGINT"}
PARTITION = b"\x00\x00\x00\x00" + b"\x00" * 8


def rows(value: int) -> pa.Table:
    return pa.table({"k": pa.array(np.arange(20)), "v": pa.array(np.full(20, value))})


def most_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_trigger: str) -> int:
    """Most sorted runs that a bucket gets while its compactions are slow and nobody waits at commits."""
    running: list[int] = []

    def slow(store: TableStore, task: BucketTask, judge: Judge | None, *, pipelined: bool) -> BucketResult:
        running.append(1)
        assert len(running) == 1, "two compactions of one bucket at once"
        time.sleep(0.05)
        try:
            return run_bucket_task(store, task, judge, pipelined=pipelined)
        finally:
            running.pop()

    monkeypatch.setattr(compact, "run_bucket_task", slow)
    options = {
        "bucket": "1",
        "num-sorted-run.compaction-trigger": "2",
        "num-sorted-run.stop-trigger": stop_trigger,
        "sort-spill-threshold": "100",
    }
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), options)
    writer = StreamTableWrite(store, "job", Compactor(store, bucket_task, None, automatic=True))
    most = 0
    try:
        for number in range(12):
            writer.write(rows(number))
            writer.checkpoint(wait_compaction=False, commit_identifier=number)
            compaction = writer._compaction((PARTITION, 0))
            assert compaction is not None
            most = max(most, sorted_runs(compaction.files))
    finally:
        writer.abort()
    return most


def test_a_bucket_with_too_many_runs_waits_for_its_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_runs(tmp_path / "bounded", monkeypatch, "3") <= 5
    assert most_runs(tmp_path / "free", monkeypatch, "1000") > 5


def test_waiting_begins_beyond_the_trigger() -> None:
    assert [waits_at_flush(runs, 3) for runs in (3, 4, 5)] == [False, True, True]
    assert [waits_at_commit(runs, 3) for runs in (3, 4, 5)] == [False, False, True]


def test_a_failing_compaction_is_told_by_the_next_commit_and_leaves_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})

    def broken(
        _: TableStore,
        partition: bytes,
        bucket: int,
        total: int,
        files: Sequence[DataFileMeta],
        full: bool,
        index_files: Sequence[IndexFileMeta],
    ) -> BucketTask | None:
        assert not index_files
        task = bucket_task(store, partition, bucket, total, files, full)
        if task is not None:
            Path(store.data_path(partition, bucket, files[0])).unlink()
        return task

    writer = StreamTableWrite(store, "job", Compactor(store, broken, None, automatic=False))
    writer.write(rows(1))
    with pytest.raises(InvalidData, match="bucket 7 does not exist"):
        writer.compact(PARTITION, 7, full=True)
    writer.compact(PARTITION, 0)  # one run: nothing is picked
    writer.write(rows(2))
    writer.compact(PARTITION, 0, full=True)
    with pytest.raises(CorruptFile, match=r"\.parquet"):
        writer.checkpoint(wait_compaction=True, commit_identifier=1)
    writer.abort()
    assert data_files_on_disk(store) == set()
