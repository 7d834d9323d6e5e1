"""What a new process imports to read a table: nothing that it does not need, above all no pandas (a quarter of a second)."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema

FIELDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.date32(), nullable=False),
        ("v", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
TABLES: dict[str, dict[str, Any]] = {
    "appended": {"options": {"bucket": "-1"}},
    "merged": {"primary_keys": ["id"], "options": {"bucket": "2"}},
    "parted": {"primary_keys": ["id", "day"], "partition_keys": ["day"], "options": {"bucket": "1"}},
    "patched": {"primary_keys": ["id"], "options": {"bucket": "1", "merge-engine": "partial-update"}},
    "summed": {
        "primary_keys": ["id"],
        "options": {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    },
    "ordered": {"primary_keys": ["id"], "options": {"bucket": "1", "sequence.field": "n"}},
}
HEAVY = (
    "pandas",
    "pyarrow.dataset",
    "pyarrow.acero",
    "pydantic",
    "typer",
    "rich",
    "dagster",
    "pyspark",
    "datafusion",
    "duckdb",
    "importlib.metadata",
    "lsm_core.write",
    "lsm_core.compact",
    "lsm_core.commit.committer",
    "lsm_core.files.writer",
    "lsm_core.files.formats.orc",
    "lsm_core.format.file_index",
    "lsm_core.merge.changelog",
    "lsm_core.read.changes.stream",
    "lsm_core.types.casts",
    "pyarrow.fs",
    "pyarrow.parquet",
    "pyarrow.orc",
    "pyroaring",
    "datasketches",
)
_READ = """
import sys
from lsm_core import Catalog

catalog = Catalog(sys.argv[1])
for name in catalog.list_tables("db"):
    table = catalog.table(f"db.{name}")
    assert table.to_arrow().num_rows == 200, name
    assert sum(batch.num_rows for batch in table.to_batches(columns=["id", "v"])) == 200
    assert table.to_arrow(filter=[("id", ">=", 150)]).num_rows == 50
    assert table.to_arrow(filter=[("id", "=", 7)], columns=["v"]).num_rows == 1
    assert table.to_arrow(filter=[("day", "=", "2024-01-02"), ("id", "in", [1, 3, 5])]).num_rows == 3
    assert table.to_arrow(filter=[[("v", "starts with", "b")], [("x", "is null")]]).num_rows == 200
    assert table.to_arrow(limit=3, snapshot_id=1).num_rows == 3
print(*[name for name in sys.argv[2:] if name in sys.modules])
"""
_READ_PARTS = """
import sys
from unittest.mock import patch

from lsm_core import Catalog
from lsm_core.read import lone_parts, split_ranges

split_ranges._LEAST_BYTES = 1
table = Catalog(sys.argv[1]).table("parts.t")
for module, name, threads in (lone_parts, "read_raw_file", "1"), (split_ranges, "_cut", "2"):
    with patch.object(module, name, wraps=getattr(module, name)) as function:
        assert table.copy({"dredge.read.threads": threads}).to_arrow(columns=["id", "v"]).num_rows == 602
        assert function.called, name
assert table.health()
assert table.plan_maintenance("compact", full=True).base_snapshot
print(*[name for name in sys.argv[2:] if name in sys.modules])
"""
_PANDAS_AFTERWARDS = """
import pandas, pyarrow
frame = catalog.table("db.merged").to_arrow().to_pandas()
assert frame["id"].sum() == sum(range(200))
assert pyarrow.array(pandas.Series([1.5, None])).null_count == 1
assert pyarrow.Table.from_pandas(frame).num_rows == 200
"""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cold")
    catalog = Catalog(str(place))
    catalog.create_database("db")
    for name, settings in TABLES.items():
        catalog.create_table(f"db.{name}", Schema(FIELDS, **settings))
        table, commits = catalog.table(f"db.{name}"), 1 if name == "appended" else 2
        for _ in range(commits):
            ids = range(200)
            rows = [
                {"id": i, "day": dt.date(2024, 1, 1 + i % 2), "v": f"b{i}", "n": 1, "x": None, "tags": ["a", None]}
                for i in ids
            ]
            table.write(pa.Table.from_pylist(rows, schema=FIELDS))
    _write_lone_parts(catalog)
    return place


def _write_lone_parts(catalog: Catalog) -> None:
    """Create a table whose newest file has two keys, one below and one above all others."""
    catalog.create_database("parts")
    small = {"target-file-size": "2 kb", "parquet.block.size": "1024", "num-levels": "3"}
    options = {"bucket": "1", "write-only": "true", "dredge.read.exact-keys": "always", **small}
    table = catalog.create_table("parts.t", Schema(FIELDS, primary_keys=["id"], options=options))
    for ids in range(600), range(0, 600, 2), [-1, 600]:
        row = {"day": dt.date(2024, 1, 1), "n": 1, "x": None, "tags": None}
        table.write(pa.Table.from_pylist([{"id": i, "v": f"b{i}", **row} for i in ids], schema=FIELDS))
        if len(ids) == 300:
            table.compact(full=True)  # rewrites both files to several


def _child(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reading_imports_nothing_that_it_does_not_need_and_leaves_pandas_usable(warehouse: Path) -> None:
    assert _child(_READ + _PANDAS_AFTERWARDS, str(warehouse), *HEAVY).strip() == ""


def test_reads_of_lone_parts_and_plans_do_not_look_for_pandas(warehouse: Path) -> None:
    assert _child(_READ_PARTS, str(warehouse), "pandas").strip() == ""


def test_status_does_not_look_for_pandas(warehouse: Path) -> None:
    # `main` hides pandas from the built-in verbs; here it is in plain sight.
    program = (
        "import sys; from lsm_core.cli.app import run\n"
        "assert run(['status', '-w', sys.argv[1], '--json']) == 0\n"
        "print('imported:', *[name for name in sys.argv[2:] if name in sys.modules])"
    )
    heavy = [name for name in HEAVY if name not in ("pydantic", "typer", "rich", "importlib.metadata")]
    assert _child(program, str(warehouse), *heavy).splitlines()[-1] == "imported:"


def test_the_engine_itself_imports_nothing(warehouse: Path) -> None:
    del warehouse
    program = "import sys; import lsm_core; print(*[name for name in ('numpy', 'pyarrow', 'lsm_core.errors') if name in sys.modules])"
    assert _child(program).strip() == ""
