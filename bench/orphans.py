"""Planning the removal of orphan files in a table of a million empty files, one in twenty of them an orphan."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from bench.harness import Result, in_own_process
from bench.planning import build
from lsm_core.metadata import manifests, snapshots

FILES, FILES_A_MANIFEST, STRAYS = 1_000_000, 5_000, 20
TARGET_SECONDS, TARGET_MIB = 60.0, 1024.0
_PROGRAM = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
started = time.perf_counter()
plan = table.plan_maintenance("orphans")
seconds = time.perf_counter() - started
print(json.dumps([seconds, own_peak(), len(plan.items)]))
"""
_APPLY = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t").copy({"dredge.delete-mode": "direct"})
plan = table.plan_maintenance("orphans")
started = time.perf_counter()
report = table.apply(plan)
print(json.dumps([time.perf_counter() - started, own_peak(), report.files_deleted]))
"""


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure the plan over ``rows`` files (a million): seconds, peak memory, and the rate of deletion."""
    files = rows or FILES
    with tempfile.TemporaryDirectory() as folder:
        strays = _make(Path(folder), files)
        plans = [in_own_process(_PROGRAM, folder) for _ in range(min(rounds, 3))]
        assert {stray_count for _, _, stray_count in plans} == {strays}, f"{strays} strays, found {plans}"
        seconds, peaks = sorted(answer[0] for answer in plans), sorted(answer[1] for answer in plans)
        deleting, peak, deleted = in_own_process(_APPLY, folder)
        assert deleted == strays
    note = f"{files:,} files, {strays:,} strays"
    return [
        Result("orphans", "plan", seconds[len(seconds) // 2], "s", TARGET_SECONDS, "lower", seconds[0], seconds[-1], note).judged(),
        Result("orphans", "plan: peak RSS", peaks[len(peaks) // 2], "MiB", TARGET_MIB, "lower", peaks[0], peaks[-1], note).judged(),
        Result("orphans", "apply, direct: files deleted a second", deleted / deleting, "files/s", 5_000.0, "higher", note=f"peak {peak:.0f} MiB").judged(),
    ]  # fmt: skip


def _make(warehouse: Path, files: int) -> int:
    """Create the table from generated metadata and empty, old files; return the number of orphan files among them."""
    store = build(warehouse, primary_key=True, files=files, manifest_count=max(1, files // FILES_A_MANIFEST))
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    strays = 0
    stray_names = f"data-{uuid.uuid4()}-"
    for entries in manifests.iter_entries(store, manifests.data_manifests(store, snapshot)):
        order = pc.sort_indices(entries, sort_keys=[("partition", "ascending"), ("bucket", "ascending")])
        rows = entries.select(["partition", "bucket", "file_name"]).take(order).to_pydict()
        last = folder = None
        for partition, bucket, name in zip(rows["partition"], rows["bucket"], rows["file_name"], strict=True):
            if (partition, bucket) != last:
                last, folder = (partition, bucket), store.bucket_dir(partition, bucket)
                os.makedirs(folder, exist_ok=True)
            os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY))
        for number in np.arange(len(entries) // STRAYS):
            os.close(os.open(f"{folder}/{stray_names}{strays + int(number)}.parquet", os.O_CREAT | os.O_WRONLY))
        strays += len(entries) // STRAYS
    for path, _, names in os.walk(store.root):
        for name in names:
            os.utime(f"{path}/{name}", (1_700_000_000, 1_700_000_000))
    return strays
