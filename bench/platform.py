"""The platform over many tables: what it costs a process to load the code location, up to what it hands to Dagster's web server and daemon."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa

from bench.harness import Result, in_own_process

TABLES, TARGET_SECONDS = 1_000, 5.0
_FIELDS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("amount", pa.int64())])
_PROGRAM = """
import json, os, sys, time
os.environ["DREDGE_WAREHOUSE"] = sys.argv[1]
from orchestration.definitions import defs
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value
told = serialize_value(RepositorySnap.from_def(defs.get_repository_def(), defer_snapshots=True))
heavy = [name for name in ("pyspark", "great_expectations") if name in sys.modules]
print(json.dumps([time.process_time(), len(told) / 2**20, len(heavy)]))
"""


def build(warehouse: Path, tables: int) -> None:
    """A warehouse of ``tables`` tables of 20 files in 5 buckets each; the files of all are those of the first, linked."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {"bucket": "5", "write-only": "true"}
    table = catalog.create_table("bench.t00000", Schema(_FIELDS, primary_keys=["id"], options=options))
    for commit in range(4):
        numbers = pa.array(range(commit * 50, commit * 50 + 100))
        table.write(pa.table([numbers, numbers.cast(pa.string()), numbers], schema=_FIELDS))
    first = Path(table.store.root)
    for number in range(1, tables):
        shutil.copytree(first, first.parent / f"t{number:05d}", copy_function=os.link)


def run(tables: int | None, rounds: int) -> list[Result]:
    """Processor seconds of loading, imports included, and the size of what is handed over."""
    count = tables or TABLES
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        warehouse = Path(folder) / "warehouse"
        build(warehouse, count)
        seen = [in_own_process(_PROGRAM, str(warehouse)) for _ in range(rounds)]
    seconds = sorted(float(row[0]) for row in seen)
    target = TARGET_SECONDS * max(count / TABLES, 1)
    note = f"{count:,} tables of 20 files; processor time, imports included"
    return [
        Result(
            "platform", "code location loads", seconds[len(seconds) // 2], "s", target,
            low=seconds[0], high=seconds[-1], note=note,
        ).judged(),
        Result("platform", "code location as Dagster is told", float(seen[0][1]), "MiB", None),
        Result("platform", "heavy libraries imported by it", float(seen[0][2]), "", 0, note="pyspark, great-expectations").judged(),
    ]  # fmt: skip
