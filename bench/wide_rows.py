"""Peak memory of compacting rows of 50 MB in its own process, against the bytes of the rows."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa

from bench.harness import MIB, Result, peak_of

KEYS = (1, 4, 8)
ROW_BYTES = 50_000_000
LIMIT = 3.0
_COMPACT = "import sys; from lsm_core import Catalog; Catalog(sys.argv[1]).table('d.t').compact(full=True)"


def build(warehouse: str, keys: int, row_bytes: int) -> None:
    """Write every key twice, in commits of one row, so that only the compaction holds many rows."""
    from lsm_core import Catalog

    schema = pa.schema([("k", pa.int64()), ("v", pa.binary())])
    table = Catalog(warehouse).create_table(
        "d.t", schema, primary_keys=["k"], options={"bucket": "1", "write-only": "true"}, create_database=True
    )
    random = np.random.default_rng(7)
    for _ in range(2):
        for key in range(keys):
            table.write(pa.table([[key], pa.array([random.bytes(row_bytes)], pa.binary())], schema=schema))


def run(_rows: int | None, _rounds: int) -> list[Result]:
    """Measure peaks for 1, 4 and 8 keys that were written twice, minus the peak for rows of 10 bytes."""
    idle = _peak(1, 10)
    results = []
    for keys in KEYS:
        grown, size = _peak(keys, ROW_BYTES) - idle, 2 * keys * ROW_BYTES / MIB
        note = f"{grown:,.0f} MiB for {size:,.0f} MiB of rows, above the {idle:,.0f} MiB of a process that compacts rows of 10 bytes"
        name = f"peak RSS / bytes of the rows, {keys} key{'s' if keys > 1 else ''} written twice"
        results.append(Result("wide-rows", name, grown / size, "x", LIMIT, note=note).judged())
    return results


def _peak(keys: int, row_bytes: int) -> float:
    """Return the peak RSS in MiB of a process that compacts a table of `build` with these arguments."""
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        maker = f"from bench.wide_rows import build; build({folder!r}, {keys}, {row_bytes})"
        subprocess.run([sys.executable, "-c", maker], check=True)
        return peak_of([sys.executable, "-c", _COMPACT, folder])[0]
