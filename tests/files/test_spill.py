"""Spilled runs come back whole and leave nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core.errors import CorruptFile, StorageFull
from lsm_core.files import SpillSpace

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def batches(count: int) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array([i]), pa.array([str(i)])], schema=SCHEMA) for i in range(count)]


def test_runs_come_back_in_order_and_the_folder_goes(tmp_path: Path) -> None:
    with SpillSpace(str(tmp_path)) as space:
        first = space.spill(batches(5), SCHEMA)
        second = space.spill(iter(batches(2)), SCHEMA)
        assert (first.rows, second.rows) == (5, 2)
        assert list(first.batches()) == batches(5)
        assert list(second.batches()) == batches(2)
        assert first.size == os.path.getsize(first.path)
        first.delete()
        first.delete()
        with pytest.raises(CorruptFile, match="missing"):
            list(first.batches())
    assert list(tmp_path.iterdir()) == []


def test_a_failing_source_or_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    def failing(error: Exception) -> Iterator[pa.RecordBatch]:
        yield from batches(2)
        raise error

    with SpillSpace(str(tmp_path)) as space:
        with pytest.raises(KeyError):
            space.spill(failing(KeyError("x")), SCHEMA)
        with pytest.raises(StorageFull):
            space.spill(failing(OSError(errno.ENOSPC, "full")), SCHEMA)
        assert list(tmp_path.rglob("run-*")) == []
    assert list(tmp_path.iterdir()) == []


def test_a_cut_spill_file_is_named(tmp_path: Path) -> None:
    with SpillSpace(str(tmp_path)) as space:
        run = space.spill(batches(50), SCHEMA)
        whole = Path(run.path).read_bytes()
        Path(run.path).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CorruptFile, match="run-0"):
            list(run.batches())


def test_what_a_killed_process_spilled_goes_when_another_spills(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pyarrow as pa\n"
        "from lsm_core.files import SpillSpace\n"
        "space = SpillSpace(sys.argv[1])\n"
        "batch = pa.record_batch([pa.array([1])], ['k'])\n"
        "space.spill([batch], batch.schema)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    with SpillSpace(str(tmp_path)) as space:
        space.spill(batches(1), SCHEMA)
        assert left not in list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
