"""A writer's memory is that of its buffer, whatever the rows: peak RSS of child processes at two sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL, LARGE = 150_000, 900_000
CHILD = """
import resource, sys
import numpy as np, pyarrow as pa
from lsm_core import Catalog, Schema

STEP = 25_000
fields = pa.schema([pa.field("k", pa.int64(), nullable=False), *[(f"n{i}", pa.int64()) for i in range(6)], ("s", pa.string())])
options = {"bucket": "2", "write-buffer-size": "6 mb", "target-file-size": "16 mb", "write-only": "true"}
catalog = Catalog(sys.argv[1])
catalog.create_database("db")
catalog.create_table("db.t", Schema(fields, primary_keys=["k"], options=options))
texts = pa.array([f"text {n:08d}" for n in range(STEP)])

def batches(count):
    for start in range(0, count, STEP):
        keys = (np.arange(start, start + STEP) * 7919) % 700_001  # scattered, and some come twice
        numbers = [pa.array(keys + i) for i in range(6)]
        yield pa.record_batch([pa.array(keys), *numbers, texts], schema=fields)

count = int(sys.argv[2])
with catalog.table("db.t").new_stream_write("job") as writer:
    writer.write(pa.RecordBatchReader.from_batches(fields, batches(count)))
    messages = writer.prepare_commit(commit_identifier=1)
    catalog.table("db.t").new_stream_commit("job").commit(messages, 1)
print(sum(f.row_count for m in messages for f in m.new_files), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak_of(folder: Path, rows: int) -> int:
    """Peak RSS in MiB of a process that writes ``rows`` rows."""
    made = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), str(rows)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    written, peak = map(int, made.stdout.split())
    assert written == min(rows, 700_001)
    return peak


def test_peak_memory_does_not_grow_with_the_rows_written(tmp_path: Path) -> None:
    small, large = peak_of(tmp_path / "small", SMALL), peak_of(tmp_path / "large", LARGE)
    # 750,000 rows more are 80 MB decoded
    assert large < small + 30, (small, large)
