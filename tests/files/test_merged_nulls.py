"""Nulls that merging leaves in NOT NULL columns are kept by every rewrite: reads and compactions agree, no bucket gets stuck."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import InvalidData
from tests.support.stores import data_files_on_disk

GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"}
AGGREGATION = {"merge-engine": "aggregation"}
OVERFLOW = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


def make(root: Path, options: dict[str, str], kind: pa.DataType = pa.int32()) -> Table:  # noqa: B008  (a constant)
    catalog = Catalog(root)
    catalog.create_database("db")
    fields = [pa.field("k", pa.int32(), nullable=False), pa.field("g", pa.int32()), pa.field("v", kind, nullable=False)]
    settings = {"bucket": "1", **options}
    return catalog.create_table("db.t", Schema(pa.schema(fields), primary_keys=["k"], options=settings))


def row(key: int, g: int, v: object) -> dict[str, list[object]]:
    return {"k": [key], "g": [g], "v": [v]}


def answer(table: Table) -> list[dict[str, object]]:
    return list(table.to_arrow().sort_by("k").to_pylist())


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("options", [GROUP, AGGREGATION], ids=["sequence group", "aggregation"])
def test_a_compaction_writes_the_null_that_a_read_gives(
    tmp_path: Path, options: dict[str, str], file_format: str
) -> None:
    table = make(tmp_path, {**options, "file.format": file_format})
    table.write({"k": [1, 2, 3], "g": [1, 1, 1], "v": [5, 6, 7]})
    table.write({"k": [1, 2], "g": [2, 2], "v": [5, 6]}, ["-D", "-U"])
    table.write({"k": [4, 4], "g": [1, 2], "v": [8, 8]}, ["+I", "-D"])  # merged in one flush
    before = answer(table)
    assert [r["v"] for r in before] == [None, None, 7, None]
    report = table.compact(full=True)
    assert report.verification.level == "V2"
    assert answer(table) == before
    assert table.lookup(pa.table({"k": pa.array([1], pa.int32())})).column("v").to_pylist() == [None]
    table.write(row(1, 3, 9))
    table.compact(full=True)
    assert [r["v"] for r in answer(table)] == [9, None, 7, None]


def test_a_sum_that_leaves_its_type_is_a_null_that_can_be_compacted(tmp_path: Path) -> None:
    table = make(tmp_path, OVERFLOW, pa.decimal128(38, 0))
    table.write(row(1, 1, Decimal(10**38 - 1)))
    table.write(row(1, 1, Decimal(10**38 - 1)))
    before = answer(table)
    assert before[0]["v"] is None
    table.compact(full=True)
    assert answer(table) == before


def test_a_rescale_keeps_the_null_too(tmp_path: Path) -> None:
    table = make(tmp_path, GROUP)
    table.write({"k": [1, 2], "g": [1, 1], "v": [5, 6]})
    table.write(row(1, 2, 5), ["-D"])
    before = answer(table)
    Catalog(tmp_path).alter_table("db.t", [SchemaChange.set_option("bucket", "3")])
    table = Catalog(tmp_path).table("db.t")
    table.apply(table.plan_maintenance("rescale"))
    assert answer(table) == before


def test_a_row_with_such_a_null_is_deleted_like_any_other_and_updated_with_a_value(tmp_path: Path) -> None:
    table = make(tmp_path, {**GROUP, "partial-update.remove-record-on-sequence-group": "g"})
    table.write({"k": [1, 2], "g": [1, 1], "v": [5, 6]})
    table.write({"k": [1, 2], "g": [2, 2], "v": [5, 6]}, ["-U", "-U"])
    with pytest.raises(InvalidData, match=r"column 'v': row 0 .*null in a NOT NULL column"):
        table.update([("k", "=", 2)], {"g": 3})
    table.update([("k", "=", 2)], {"g": 3, "v": 7})
    table.delete([("v", "is null")])
    assert answer(table) == [{"k": 2, "g": 3, "v": 7}]


def test_nobody_may_write_such_a_null_and_other_engines_files_keep_not_null(tmp_path: Path) -> None:
    table = make(tmp_path / "a", GROUP)
    with pytest.raises(InvalidData, match=r"column 'v': row 0 .*null in a NOT NULL column"):
        table.write(row(1, 1, None))
    plain = make(tmp_path / "b", {})
    for made, nullable in ((table, True), (plain, False)):
        made.write(row(1, 1, 5))
        (name,) = data_files_on_disk(made.store)
        schema = pq.read_schema(next(Path(made.store.root).glob(f"**/{name}")))
        assert schema.field("v").nullable is nullable
        assert not schema.field("k").nullable
