"""Rows across schema versions, end to end: read, merged and compacted by field id, by whoever opened the table when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table, errors

COLUMNS = [("k", "INT NOT NULL"), ("v", "STRING"), ("n", "INT"), ("r", "ROW<x INT, y STRING>")]


@pytest.fixture(params=["key", "append"])
def catalog(tmp_path: Path, request: pytest.FixtureRequest) -> Catalog:
    made = Catalog(tmp_path)
    made.create_database("db")
    keyed = request.param == "key"
    made.create_table("db.t", Schema(COLUMNS, ["k"] if keyed else [], options={"bucket": "1"} if keyed else {}))
    return made


def write(table: Table, *rows: dict[str, Any]) -> None:
    table.write(pa.Table.from_pylist(list(rows), table.schema.arrow_schema))


def rows(catalog: Catalog) -> list[dict[str, Any]]:
    return sorted(catalog.table("db.t").to_arrow().to_pylist(), key=lambda row: row["k"])


def test_columns_added_renamed_widened_and_dropped_read_as_one_table(catalog: Catalog) -> None:
    old = catalog.table("db.t")
    write(old, {"k": 1, "v": "a", "n": 7, "r": {"x": 1, "y": "p"}}, {"k": 2, "v": "b", "n": None, "r": None})
    catalog.alter_table(
        "db.t",
        [
            SchemaChange.add_column("new", pa.float64(), first=True),
            SchemaChange.rename_column("v", "name"),
            SchemaChange.update_type("n", pa.int64()),
            SchemaChange.rename_column("r.y", "z"),
            SchemaChange.update_type("r.x", pa.string()),
            SchemaChange.add_column("r.w", pa.int32(), first=True),
        ],
    )
    new = catalog.table("db.t")
    write(new, {"new": 0.5, "k": 3, "name": "c", "n": 2**40, "r": {"w": 1, "x": "s", "z": "q"}})
    expected = [
        {"new": None, "k": 1, "name": "a", "n": 7, "r": {"w": None, "x": "1", "z": "p"}},
        {"new": None, "k": 2, "name": "b", "n": None, "r": None},
        {"new": 0.5, "k": 3, "name": "c", "n": 2**40, "r": {"w": 1, "x": "s", "z": "q"}},
    ]
    assert rows(catalog) == expected
    if new.primary_keys:
        with pytest.raises(errors.WriterStale, match="open it again"):
            old.compact(full=True)
        new.compact(full=True)
        assert rows(catalog) == expected
    catalog.alter_table("db.t", [SchemaChange.drop_column("r"), SchemaChange.drop_column("new")])
    catalog.alter_table("db.t", [SchemaChange.add_column("new", pa.string())])
    assert rows(catalog) == [{"k": r["k"], "name": r["name"], "n": r["n"], "new": None} for r in expected]


def test_a_writer_opened_before_an_alteration_still_writes_what_it_knows(catalog: Catalog) -> None:
    old = catalog.table("db.t")
    catalog.alter_table("db.t", [SchemaChange.drop_column("n"), SchemaChange.add_column("c", pa.int32())])
    write(old, {"k": 1, "v": "a", "n": 7, "r": None})
    assert rows(catalog) == [{"k": 1, "v": "a", "r": None, "c": None}]
    # It reads on by the schema that it was opened with.
    assert old.to_arrow().to_pylist() == [{"k": 1, "v": "a", "n": 7, "r": None}]


def test_a_key_renamed_is_still_the_key_of_old_files(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(COLUMNS, ["k"], options={"bucket": "2", "sequence.field": "n"}))
    write(catalog.table("db.t"), *({"k": k, "v": "old", "n": 5, "r": None} for k in range(20)))
    catalog.alter_table("db.t", [SchemaChange.rename_column("k", "id"), SchemaChange.rename_column("n", "at")])
    table = catalog.table("db.t")
    write(table, {"id": 1, "v": "late", "at": 4, "r": None}, {"id": 2, "v": "new", "at": 6, "r": None})
    for _ in range(2):
        found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
        assert found == {k: "new" if k == 2 else "old" for k in range(20)}
        assert table.to_arrow(filter=[("id", "=", 2)]).column("v").to_pylist() == ["new"]
        table.compact(full=True)
