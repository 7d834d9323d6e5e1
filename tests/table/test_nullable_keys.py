"""Tables with `primary-key.nullable`: nulls are equal keys and come first; filters, lookups and statements find them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import InvalidData, InvalidOption
from lsm_core.merge import normalise_keys
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner

FIELDS = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.int64())])
NULLABLE = {"primary-key.nullable": "true"}
FILTERS = {
    "k IS NULL": lambda row: row["k"] is None,
    "k IS NULL AND j = 'b'": lambda row: row["k"] is None and row["j"] == "b",
    "j IS NULL": lambda row: row["j"] is None,
    "j IS NOT NULL AND k IS NULL": lambda row: row["j"] is not None and row["k"] is None,
    "k IS NOT NULL": lambda row: row["k"] is not None,
    "k = 3": lambda row: row["k"] == 3,
    "j < 'b'": lambda row: row["j"] is not None and row["j"] < "b",
}


def _create(root: Path, keys: list[str], **options: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db")
    return catalog.create_table("db.t", Schema(FIELDS, keys, [], {"bucket": "2", **NULLABLE, **options}))


def _ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("thin", ["true", "false"])
def test_filters_lookups_and_compactions_see_null_keys(tmp_path: Path, file_format: str, thin: str) -> None:
    table = _create(tmp_path, ["k", "j"], **{"file.format": file_format, "data-file.thin-mode": thin})
    random, expected = Random(7), {}
    for number in range(4):
        keys = {(random.choice([None, *range(5)]), random.choice([None, "a", "b", ""])) for _ in range(9)}
        rows = [{"k": k, "j": j, "v": number} for k, j in keys]
        expected |= {(row["k"], row["j"]): row for row in rows}
        table.write(pa.Table.from_pylist(rows, schema=FIELDS), compact=False)
    for _ in range(2):
        table = table.refresh()
        assert _ordered(table.to_arrow().to_pylist()) == _ordered(list(expected.values()))
        for text, passes in FILTERS.items():
            assert _ordered(table.to_arrow(filter=text).to_pylist()) == _ordered(
                [row for row in expected.values() if passes(row)]
            ), text
        wanted = pa.Table.from_pylist([{"k": k, "j": j} for k, j in expected], schema=FIELDS.remove(2))
        assert table.lookup(wanted).to_pylist() == list(expected.values())
        (k, j), row = next((key, row) for key, row in expected.items() if None in key)
        assert table.explain_row({"k": k, "j": j}).answer == row
        table.compact(full=True)
    assert [report.text for report in table.check() if not report.passed and not report.warn] == []


def test_statements_change_rows_with_null_keys(tmp_path: Path) -> None:
    table = _create(tmp_path, ["k"])
    table.write(pa.table({"k": pa.array([None, 1, 2], pa.int64()), "j": ["a", "b", "c"], "v": [1, 2, 3]}))
    run = StatementRunner(Session(Catalog(str(tmp_path))), LocalEngine()).run
    run("UPDATE db.t SET v = 9 WHERE k IS NULL")
    assert {row["k"]: row["v"] for row in table.refresh().to_arrow().to_pylist()} == {None: 9, 1: 2, 2: 3}
    run("DELETE FROM db.t WHERE k IS NULL")
    assert {row["k"]: row["v"] for row in table.refresh().to_arrow().to_pylist()} == {1: 2, 2: 3}


def test_the_option_makes_key_columns_nullable_or_not(tmp_path: Path) -> None:
    table = _create(tmp_path, ["k"])
    assert table.schema.field("k").type.nullable
    plain = Catalog(str(tmp_path)).create_table("db.plain", Schema(FIELDS, ["k"], [], {"bucket": "1"}))
    assert not plain.schema.field("k").type.nullable
    with pytest.raises(InvalidData, match="null in a primary key column"):
        plain.write(pa.table({"k": pa.array([None], pa.int64()), "j": ["a"], "v": [1]}))
    with pytest.raises(InvalidOption, match=r"primary-key\.nullable"):
        Catalog(str(tmp_path)).create_table("db.append", Schema(FIELDS, [], [], {**NULLABLE}))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.string(), pa.bool_(), pa.float32(), pa.decimal128(30, 2)])
def test_nulls_come_first_and_are_equal(kind: pa.DataType) -> None:
    values = {pa.string(): ["", "a", "\0"], pa.bool_(): [False, True]}.get(kind, [-3, 0, 2])
    random = Random(3)
    rows = [(random.choice([None, *values]), random.choice([None, *values])) for _ in range(200)]
    columns = [pa.array([row[place] for row in rows]).cast(kind) for place in (0, 1)]
    order, same = normalise_keys(columns, nullable=True).order()
    ranked = [rows[place] for place in order]
    keys = [tuple((0, 0) if part is None else (1, part) for part in row) for row in ranked]
    assert keys == sorted(keys)
    assert [bool(mark) for mark in same] == [left == right for left, right in pairwise(keys)]
