"""Sort compaction of an append table without buckets against a plain copy of the same files, and its memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from bench.data import SCHEMA, rows
from bench.harness import Result, alternate, peak_of
from bench.limits import decode_files, encode_file, files_by_bucket
from lsm_core import Catalog, Schema, Table
from lsm_core.commit import abort
from lsm_core.compact import run_bucket_task
from lsm_core.compact.task import SortTask
from lsm_core.format.manifest import table_to_entries
from lsm_core.merge.curves import HILBERT, ORDER, STRATEGIES, ZORDER
from lsm_core.metadata import manifests, snapshots

ROWS, COMMITS = 2_000_000, 10
COLUMNS = ("n0", "x0")
TARGETS = {ORDER: 1.8, ZORDER: 2.3, HILBERT: None}
MEMORY_MIB = 1024.0
"""512 MiB + 2 x merge budget (architecture.md)."""


def build(warehouse: Path, total: int) -> Table:
    """Create a table of ten commits of random rows."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    table = catalog.create_table("bench.t", Schema(SCHEMA, options={"bucket": "-1"}))
    for number in range(COMMITS):
        table.write(rows(np.arange(total // COMMITS, dtype=np.int64), number))
    return table


def sort(table: Table, strategy: str) -> None:
    """Plan, sort and verify on two cores without the commit, then delete the new files."""
    newest = snapshots.latest(table.store)
    assert newest is not None
    entries = table_to_entries(manifests.live_entries(table.store, newest))
    files = tuple(entry.file for entry in entries)
    names = (tuple(file.file_name for file in files),)
    task = SortTask(entries[0].partition, 0, -1, files, bins=names, order_by=COLUMNS, strategy=strategy)
    abort(table.store, [run_bucket_task(table.store, task).message])


def copy(table: Table, target: Path) -> None:
    """Decode all files and encode their rows again, on one thread, in memory."""
    ((directory, files),) = files_by_bucket(table).values()
    encode_file(decode_files(directory, files), str(target / "copy.parquet"))


def run(rows_wanted: int | None, rounds: int) -> list[Result]:
    """Measure rows per second of each strategy over two columns, the ratio to the copy, and peak RSS."""
    total = rows_wanted or ROWS
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        place = Path(folder)
        table = build(place / "wh", total)
        subjects = {"copy": partial(copy, table, place)}
        timings = alternate({**subjects, **{s: partial(sort, table, s) for s in STRATEGIES}}, min(rounds, 3))
        limit = timings.pop("copy")
        for name, timing in timings.items():
            pairs = [mine / theirs for mine, theirs in zip(timing.seconds, limit.seconds, strict=True)]
            note = f"{total / timing.median / 1e6:.2f} M rows/s; copy {limit.median:.2f} s"
            ratio = timing.median / limit.median
            results.append(
                Result(
                    "sort", f"{name} / copy", ratio, "x", TARGETS[name], low=min(pairs), high=max(pairs), note=note
                ).judged()
            )
    for part in (total // 4, total):
        results.append(_peak(part))
    return results


def _peak(total: int) -> Result:
    program = "import sys; from lsm_core import Catalog; Catalog(sys.argv[1]).table('bench.t').compact(order_by=['n0', 'x0'], strategy='zorder')"
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        maker = f"from pathlib import Path; from bench.sorting import build; build(Path({folder!r}), {total})"
        subprocess.run([sys.executable, "-c", maker], check=True)
        peak, seconds = peak_of([sys.executable, "-c", program, folder])
    note = f"zorder, {seconds:.1f} s with start and commit"
    return Result("sort", f"peak RSS, {total:,} rows", peak, "MiB", MEMORY_MIB, note=note).judged()
