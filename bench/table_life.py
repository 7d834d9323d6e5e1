"""The life of one table: ten commits, compacted beside the copy limit in the same rounds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.data import SCHEMA, commits
from bench.harness import Result, alternate, ratio
from bench.limits import decode_files, encode_file, files_by_bucket
from lsm_core import Catalog, Schema, Table
from lsm_core.maintenance import apply_plan, plan_maintenance
from lsm_core.maintenance.actions.compact import local_runner

ROWS, COMMITS, BUCKETS, CORES = 2_000_000, 10, 4, 2


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="dredge-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_table(warehouse: Path) -> Table:
    """An empty table of the benchmark's shape."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("bench", ignore_if_exists=True)
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    return catalog.table("bench.t")


def filled(warehouse: Path, rows: int) -> Table:
    """The table after its ten commits."""
    table = new_table(warehouse)
    for data in commits(rows, COMMITS):
        table.write(data)
    return table


def compact(rows: int | None, rounds: int) -> list[Result]:
    """Full compaction on two cores against the copy limit on two threads."""
    total = rows or ROWS
    with scratch() as folder:
        filled(folder / "full", total)
        buckets = files_by_bucket(Catalog(str(folder / "full")).table("bench.t"))
        done = Catalog(str(copied(folder / "full", folder / "done"))).table("bench.t")
        done.compact(full=True)
        merged_rows = {bucket: sum(f.row_count for f in files) for bucket, (_, files) in files_by_bucket(done).items()}
        fresh = iter(range(1_000_000))

        def ours() -> None:
            Catalog(str(targets.pop())).table("bench.t").compact(full=True)

        def without_judge() -> None:
            store = Catalog(str(targets.pop())).table("bench.t").store
            apply_plan(store, plan_maintenance(store, "compact", full=True), runner=local_runner(None))

        targets = [copied(folder / "full", folder / f"copy-{next(fresh)}") for _ in range(2 * (rounds + 1))]
        out = folder / "out"
        out.mkdir()

        def one_bucket(bucket: int) -> None:
            directory, files = buckets[bucket]
            decoded = decode_files(directory, files)
            encode_file(decoded.slice(0, merged_rows[bucket]), str(out / f"{bucket}.parquet"))

        def limit() -> None:
            with ThreadPoolExecutor(CORES) as pool:
                list(pool.map(one_bucket, buckets))

        timings = alternate({"dredge": ours, "V1": without_judge, "limit": limit}, rounds)
        name = "full compaction / copy limit, two cores"
        less = timings["V1"].median / timings["limit"].median
        return [
            *ratio("compact", name, timings["dredge"], timings["limit"], 1.6, total),
            Result("compact", "the same without V2 (V0 and V1 only)", less, "x", None),
        ]


def with_system_columns(rows: pa.Table) -> pa.Table:
    """The rows as a key-value file holds them: key, sequence number and kind in front."""
    count = rows.num_rows
    sequence = pa.array(range(count), pa.int64())
    kind = pc.multiply(pc.bit_wise_and(sequence, 0), 0).cast(pa.int8())
    names = ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", *rows.column_names]
    return pa.table([rows["id"], sequence, kind, *rows.columns], names=names)


def copied(source: Path, target: Path) -> Path:
    """A copy of a warehouse, so that each round compacts the same files."""
    shutil.copytree(source, target)
    return target
