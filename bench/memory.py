"""Peak memory of compacting one bucket of 20 runs in two sizes, each in its own sampled process tree."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.data import SCHEMA, rows
from bench.harness import MIB, Result, peak_of

RUNS = 20
LARGE, SMALL = 3 * 2**30, 6 * 2**30 // 10
LIMIT_MIB = 700.0


def build(warehouse: Path, decoded_bytes: int) -> int:
    """Create one bucket of 20 level-0 runs with `decoded_bytes` of Arrow data in total; return the number of rows."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {"bucket": "1", "write-only": "true", "write-buffer-size": "1 gb", "target-file-size": "1 gb"}
    catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table("bench.t")
    sample = rows(np.arange(10_000, dtype=np.int64), 0)
    each = int(decoded_bytes / (sample.nbytes / sample.num_rows + 17) / RUNS)
    random = np.random.default_rng(3)
    for run in range(RUNS):
        keys = random.integers(0, each * RUNS, each * 5 // 4)
        table.write(rows(np.unique(keys)[:each], run))
    return each * RUNS


def run_table(rows_wanted: int | None, _rounds: int) -> list[Result]:
    """Measure the largest bucket of 20 M rows (20 commits, 4 buckets) and of a tenth of them (10 commits).

    The target of both peaks is the memory bound of a task.
    """
    from bench.tables import written_by_dredge

    large = rows_wanted or 20_000_000
    program = "import sys; from lsm_core import Catalog; Catalog(sys.argv[1]).table('dredge.t').compact(full=True, buckets=[int(sys.argv[2])])"
    peaks = []
    results: list[Result] = []
    for rows_of_table, commits in ((large, 20), (large // 10, 10)):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            table = written_by_dredge(Path(folder), rows_of_table, commits, 4)
            health = max(table.health(), key=lambda bucket: bucket.rows)
            peak, seconds = peak_of([sys.executable, "-c", program, folder, str(health.bucket)])
            budget = table.store.options.merge_budget / MIB
        peaks.append(peak)
        name = f"peak RSS, largest bucket of {rows_of_table:,} rows"
        note = f"{health.rows:,} rows, {seconds:.1f} s; the bound is 512 MiB + 2 x the merge budget"
        results.append(Result("compact-memory-table", name, peak, "MiB", 512.0 + 2 * budget, note=note).judged())
    grown = peaks[0] / peaks[1]
    return [*results, Result("compact-memory-table", "peak of the large / of the small", grown, "x", 1.3).judged()]


def run(rows_wanted: int | None, _rounds: int) -> list[Result]:
    """Measure the peaks for 3 GiB and 0.6 GiB; `rows_wanted` scales both sizes down (20 M rows is the full size)."""
    scale = 1.0 if rows_wanted is None else min(1.0, rows_wanted / 20e6)
    program = "import sys; from lsm_core import Catalog; Catalog(sys.argv[1]).table('bench.t').compact(full=True)"
    peaks: dict[str, float] = {}
    results: list[Result] = []
    for name, size in (("3 GiB", LARGE), ("0.6 GiB", SMALL)):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            maker = f"from pathlib import Path; from bench.memory import build; print(build(Path({folder!r}), {int(size * scale)}))"
            count = int(
                subprocess.run([sys.executable, "-c", maker], check=True, capture_output=True, text=True).stdout
            )
            peaks[name], seconds = peak_of([sys.executable, "-c", program, folder])
        note = f"{count:,} rows in {RUNS} runs, {seconds:.1f} s" + ("" if scale == 1.0 else f", scaled by {scale:.2f}")
        results.append(
            Result("compact-memory", f"peak RSS, {name} bucket", peaks[name], "MiB", LIMIT_MIB, note=note).judged()
        )
    grown = peaks["3 GiB"] / peaks["0.6 GiB"]
    results.append(Result("compact-memory", "peak of 3 GiB / peak of 0.6 GiB", grown, "x", 1.1).judged())
    return results
