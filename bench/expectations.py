"""The job `expectations` over many tiny tables of all kinds: processor and elapsed seconds, imports included."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.harness import Result, in_own_process

TABLES, TARGET_SECONDS = 46, 20.0
_COMMITS: Final = 3
_FIELDS: Final = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.int64()),
    ]
)
_AGGREGATION: Final = {"merge-engine": "aggregation", "fields.amount.aggregate-function": "sum"}
_KINDS: Final[tuple[tuple[bool, Mapping[str, str]], ...]] = (
    (True, {}),
    (True, {"merge-engine": "partial-update"}),
    (True, _AGGREGATION),
    (True, {"merge-engine": "first-row"}),
    (True, {"deletion-vectors.enabled": "true"}),
    (True, {"changelog-producer": "input"}),
    (True, {"changelog-producer": "lookup"}),
    (True, {"sequence.field": "amount"}),
    (False, {}),
)
"""Kinds of tables: whether the table has a primary key, and its options."""
_PROGRAM: Final = """
import json, os, sys, time
os.environ.update(DREDGE_WAREHOUSE=sys.argv[1], DAGSTER_HOME=sys.argv[2], DREDGE_RUNNER="local", DREDGE_RUN_ASSETS="[]")
import dagster as dg
from dredge.orchestration.definitions import defs
from dredge.platform_core import names
job = defs().get_repository_def().get_job("expectations")
began, imported = time.perf_counter(), time.process_time()
with dg.DagsterInstance.from_config(sys.argv[2]) as instance:
    result = job.execute_in_process(instance=instance)
evaluations = result.get_asset_check_evaluations()
failed = sorted({f"{item.asset_key.path[-1]}: {item.check_name}: {item.description}" for item in evaluations if not item.passed})
print(json.dumps([time.process_time(), time.perf_counter() - began, len(evaluations), failed[:5], time.process_time() - imported]))
"""


def build(warehouse: Path, tables: int) -> None:
    """Create tables of nine kinds in turn; every second one is partitioned."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    for number in range(tables):
        keyed, options = _KINDS[number % len(_KINDS)]
        partitioned = number % 2 == 0
        keys = (["day", "id"] if partitioned else ["id"]) if keyed else []
        schema = Schema(
            _FIELDS,
            primary_keys=keys,
            partition_keys=["day"] if partitioned else [],
            options={"bucket": "2" if keyed else "-1", "write-only": "true", **options},
        )
        table = catalog.create_table(f"bench.t{number:03d}", schema)
        for commit in range(_COMMITS):
            ids = pa.array(range(commit * 20, commit * 20 + 50))
            days = pa.array(["2026-01-01", "2026-01-02"] * 25)
            table.write(pa.table([days, ids, ids.cast(pa.string()), ids], schema=_FIELDS))


def run(tables: int | None, rounds: int) -> list[Result]:
    """Measure the job in a process of its own, with the import of great-expectations."""
    count = tables or TABLES
    processor, elapsed, evaluations = [], [], 0
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        warehouse = Path(folder) / "warehouse"
        build(warehouse, count)
        for number in range(rounds):
            home = Path(folder) / f"home{number}"
            home.mkdir()
            spent, passed, evaluations, failed, _ = in_own_process(_PROGRAM, str(warehouse), str(home))
            if failed:
                raise RuntimeError(f"checks of correct tables failed: {failed}")
            processor.append(spent)
            elapsed.append(passed)
    note = f"{count} tables of nine kinds with {_COMMITS} commits each, {evaluations} checks"
    return [
        Result(
            "expectations",
            name,
            statistics.median(seconds),
            "s",
            TARGET_SECONDS,
            low=min(seconds),
            high=max(seconds),
            note=f"{note}; {how}",
        ).judged()
        for name, seconds, how in (
            ("job over tiny tables, processor time", processor, "imports included"),
            ("job over tiny tables", elapsed, "elapsed, without the start of the process"),
        )
    ]
