"""External paths on Spark: writes, compactions, row changes, rescaling and sorting place files as one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.spark import compact_table, delete_where, read_table, rescale_table, write_table
from tests.maintenance.tables import content, referenced
from tests.spark.tables import dying

pytestmark = [pytest.mark.spark, pytest.mark.soak]
_FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)


def create(tmp_path: Path, strategy: str, keys: list[str]) -> Table:
    catalog = Catalog(tmp_path / "wh", {"dredge.external-roots": f"{tmp_path}/ext:rw"})
    catalog.create_database("db")
    options = {
        "bucket": "2" if keys else "-1",
        "data-file.external-paths": f"file:{tmp_path}/ext/a,file:{tmp_path}/ext/b",
        "data-file.external-paths.strategy": strategy,
    }
    return catalog.create_table("db.t", Schema(_FIELDS, keys, ["p"], options))


def batch(spark: Any, start: int) -> Any:
    keys = range(start, start + 50)
    return spark.createDataFrame(pa.table({"p": ["a b:%", "c"] * 25, "k": list(keys), "v": [start] * 50}, _FIELDS))


def outside(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "ext").rglob("*") if path.is_file()}


@pytest.mark.parametrize("strategy", ["round-robin", "entropy-inject"])
@pytest.mark.parametrize("keys", [["p", "k"], []])
def test_a_life_on_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, keys: list[str]
) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    table = create(tmp_path, strategy, keys)
    for start in (0, 25, 60):
        write_table(batch(spark, start), table)
    rows = content(table)
    assert read_table(spark, table).count() == len(rows) == 150
    assert not list(Path(table.store.root).rglob("*.parquet"))
    compact_table(spark, table, full=True)
    assert content(table) == rows
    delete_where(spark, table, "k < 10")
    rows = [row for row in rows if row[1] >= 10]
    assert content(table) == rows
    if keys:
        rescale_table(spark, table, 3)
    else:
        compact_table(spark, table, order_by=["k"])
    assert content(table) == rows
    assert not list(Path(table.store.root).rglob("*.parquet"))
    assert {name for name in referenced(table) if name.startswith("data-")} == outside(tmp_path)
    with pytest.raises(UnsupportedFeature, match="DREDGE_EXTERNAL_ROOTS"):
        read_table(spark, Catalog(tmp_path / "wh").table("db.t")).count()


@pytest.mark.parametrize("strategy", ["round-robin", "entropy-inject"])
def test_a_killed_task_leaves_no_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    monkeypatch.setenv("DREDGE_EXTERNAL_ROOTS", f"{tmp_path}/ext:rw")
    table = create(tmp_path, strategy, [])
    for start in (0, 60):
        write_table(batch(spark, start), table)
    before, rows = outside(tmp_path), content(table)
    with pytest.raises(DredgeError):
        delete_where(spark, dying(table, "/p=c/bucket-0/"), "k > 10")
    assert (content(table), outside(tmp_path)) == (rows, before)
