"""What a table's schema becomes when rows of other columns come in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidSchema
from lsm_core.table.schema_merging import merging_changes
from lsm_core.types import parse, to_sql

COLUMNS = (
    pa.field("k", pa.int32(), nullable=False),
    ("n", pa.int32()),
    ("s", pa.string()),
    ("x", pa.float32()),
    ("at", pa.timestamp("ms")),
    ("d", pa.decimal128(10, 2)),
    ("r", pa.struct([("a", pa.int32())])),
    ("l", pa.list_(pa.struct([("b", pa.int32())]))),
    ("m", pa.map_(pa.string(), pa.int32())),
)


def merged(root: Path, given: dict[str, str], *, explicit: bool = False) -> dict[str, str]:
    """The columns of a new table of COLUMNS after ``given`` came in; only those that differ from before."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    table = catalog.create_table("db.t", Schema(pa.schema(COLUMNS), primary_keys=["k"], options={"bucket": "1"}))
    before = {field.name: to_sql(field.type) for field in table.schema.fields}
    kinds = {name: parse(text) for name, text in given.items()}
    changes = merging_changes(table.schema, kinds, "db.t", explicit=explicit)
    catalog.alter_table("db.t", changes)
    after = catalog.table("db.t").schema
    assert merging_changes(after, kinds, "db.t", explicit=explicit) == []
    return {f.name: to_sql(f.type) for f in after.fields if before.get(f.name) != to_sql(f.type)}


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"k": "BIGINT", "n": "INT"}, {}),
        ({"new": "STRING", "other": "DOUBLE NOT NULL"}, {"new": "STRING", "other": "DOUBLE"}),
        ({"n": "BIGINT", "x": "DOUBLE", "at": "TIMESTAMP(6)"}, {"n": "BIGINT", "x": "DOUBLE", "at": "TIMESTAMP(6)"}),
        ({"n": "SMALLINT", "d": "DECIMAL(8, 2)", "s": "VARCHAR(5)", "at": "TIMESTAMP(0)"}, {}),
        ({"r": "ROW<a BIGINT, c STRING>"}, {"r": "ROW<`a` BIGINT, `c` STRING>"}),
        ({"l": "ARRAY<ROW<b INT, c INT>>"}, {"l": "ARRAY<ROW<`b` INT, `c` INT>>"}),
        ({"m": "MAP<STRING, BIGINT>"}, {"m": "MAP<STRING, BIGINT>"}),
    ],
)
def test_columns_are_added_and_types_widened(tmp_path: Path, given: dict[str, str], becomes: dict[str, str]) -> None:
    found = merged(tmp_path, given)
    assert {name: text.replace(" NOT NULL", "") for name, text in found.items()} == becomes


def test_types_that_lose_values_are_merged_when_asked_to(tmp_path: Path) -> None:
    with pytest.raises(InvalidSchema, match=r"table db\.t: column 's' of type STRING cannot be merged with INT"):
        merged(tmp_path / "a", {"s": "INT"})
    assert merged(tmp_path / "b", {"s": "INT"}, explicit=True) == {"s": "INT"}
    with pytest.raises(InvalidSchema, match=r"column 'd' of type DECIMAL\(10, 2\) cannot be merged"):
        merged(tmp_path / "c", {"d": "DECIMAL(10, 3)"}, explicit=True)
    with pytest.raises(InvalidSchema, match=r"column 'r\.a' of type INT cannot be merged with DATE"):
        merged(tmp_path / "d", {"r": "ROW<a DATE>"})
