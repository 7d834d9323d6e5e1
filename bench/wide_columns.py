"""Cost of many columns: CPU time of writing and compacting 100 rows of 1,000, 2,000 and 10,000 columns."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.harness import Result
from lsm_core import Catalog, Table

COLUMNS = (1_000, 2_000, 10_000)
ROWS = 100


def run(rows: int | None, _rounds: int) -> list[Result]:
    """Return CPU times of two writes and a compaction, and the cost per column of the widest table to the narrowest.

    Args:
        rows: rows of each table, or None for `ROWS`.
        _rounds: not used; CPU time needs no repetition.
    """
    results: list[Result] = []
    costs: dict[str, list[float]] = {}
    _once(100, ROWS)  # what is imported and compiled once is not measured
    for columns in COLUMNS:
        for name, seconds in _once(columns, rows or ROWS).items():
            costs.setdefault(name, []).append(seconds / columns)
            results.append(Result("wide-columns", f"{name}, {columns:,} columns", seconds, "s CPU", None))
    for name, shares in costs.items():
        ratio = shares[-1] / shares[0]
        results.append(Result("wide-columns", f"{name}: a column of 10,000 / of 1,000", ratio, "x", 2.0).judged())
    return results


def _once(columns: int, rows: int) -> dict[str, float]:
    schema = pa.schema([("id", pa.int64()), *((f"c{number}", pa.int64()) for number in range(columns))])
    values = pa.array(np.arange(rows))
    data = pa.table([values] * (columns + 1), schema=schema)
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        table = Catalog(Path(folder)).create_table(
            "d.t", schema, primary_keys=["id"], options={"bucket": "1"}, create_database=True
        )
        for name, act in (
            ("write", lambda: table.write(data)),
            ("write again and compact", lambda: _write_and_compact(table, data)),
        ):
            start = time.process_time()
            act()
            seconds[name] = time.process_time() - start
    return seconds


def _write_and_compact(table: Table, data: pa.Table) -> None:
    table.write(data)
    table.compact(full=True)
