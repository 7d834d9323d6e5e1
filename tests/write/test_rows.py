"""What enters a table is in its shape, and what does not fit is named with column and row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas
import pyarrow as pa
import pytest

from lsm_core.errors import ColumnNotFound, InvalidData
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import parse
from lsm_core.write.incoming_rows import RowNumbering, as_rows, conform, conform_kinds, pieces

FIELDS = {
    "k": "INT NOT NULL",
    "n": "DECIMAL(4, 2)",
    "s": "STRING NOT NULL",
    "at": "TIMESTAMP(3)",
    "small": "TINYINT",
    "made": "INT",
}
SCHEMA = TableSchema(
    0,
    tuple(DataField(i, n, parse(t), default="7" if n == "made" else None) for i, (n, t) in enumerate(FIELDS.items())),
    5,
    (),
    ("k",),
)


def test_columns_are_cast_ordered_and_filled() -> None:
    given = pa.table({"s": ["a"], "k": pa.array([1], pa.int64()), "at": [dt.datetime(2024, 1, 1)], "small": [5]})
    made = conform(given, SCHEMA, "db.t")
    assert made.schema == SCHEMA.arrow_schema
    assert made.to_pylist() == [{"k": 1, "n": None, "s": "a", "at": dt.datetime(2024, 1, 1), "small": 5, "made": 7}]


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_decimals_become_the_nearest_number(kind: str) -> None:
    texts = ["582284.7808206841", "0.2569894979", "33374.4673", "-8181.362402"]
    data = pa.table({"v": pa.array([Decimal(text) for text in texts], pa.decimal128(38, 10))})
    nearest = [float(text) for text in texts]
    if kind == "FLOAT":
        nearest = pa.array(nearest).cast(pa.float32()).to_pylist()
    schema = TableSchema(0, (DataField(0, "v", parse(kind)),), 0, (), (), {})
    assert conform(data, schema, "db.t").column("v").to_pylist() == nearest
    with pytest.raises(InvalidData, match="the number is too large"):
        far = pa.table({"v": pa.array([Decimal(10) ** 70], pa.decimal256(76, 0))})
        conform(far, TableSchema(0, (DataField(0, "v", parse("FLOAT")),), 0, (), (), {}), "db.t")


def test_dictionaries_and_large_strings_are_plain_columns() -> None:
    given = pa.table({"k": [1, 2], "s": pa.array(["x", "x"]).dictionary_encode()})
    assert conform(given, SCHEMA, "db.t").column("s").to_pylist() == ["x", "x"]
    given = pa.table({"k": [1], "s": pa.array(["y"], pa.large_string())})
    assert conform(given, SCHEMA, "db.t").column("s").type == pa.string()


@pytest.mark.parametrize(
    ("column", "values", "row"),
    [
        ("n", [Decimal("1.00"), Decimal("99.99"), Decimal("100.00")], 2),
        ("n", [Decimal("1.00"), Decimal("1.001"), Decimal("1.00")], 1),
        ("small", [1, 2, 300], 2),
        ("k", [2**40, 1, 2], 0),
        ("at", ["2024-01-01", "nonsense", "2024-01-01"], 1),
    ],
)
def test_a_value_that_does_not_fit_names_column_and_row(column: str, values: list[object], row: int) -> None:
    data = {"k": [1, 2, 3], "s": ["a", "b", "c"]} | {column: values}
    with pytest.raises(InvalidData, match=rf"db\.t, column '{column}': row {100 + row} \(from 0\) of the table:"):
        conform(pa.table(data), SCHEMA, "db.t", RowNumbering(100, "the table"))


@pytest.mark.parametrize(("column", "what"), [("k", "primary key"), ("s", "NOT NULL")])
def test_a_null_that_may_not_be_names_column_and_row(column: str, what: str) -> None:
    data = {"k": [1, 2, 3], "s": ["a", "b", "c"]}
    data[column][1] = None  # type: ignore[call-overload]
    with pytest.raises(
        InvalidData, match=rf"column '{column}': row 1 \(from 0\) of the rows given: null in a {what} column"
    ):
        conform(pa.table(data), SCHEMA, "db.t")


def test_unknown_twice_and_missing_columns_are_named() -> None:
    with pytest.raises(ColumnNotFound, match="'zz'"):
        conform(pa.table({"k": [1], "s": ["a"], "zz": [1]}), SCHEMA, "db.t")
    with pytest.raises(InvalidData, match="column 's'"):
        conform(pa.table({"k": [1]}), SCHEMA, "db.t")
    with pytest.raises(InvalidData, match="twice"):
        conform(pa.table([pa.array([1]), pa.array([1])], names=["k", "k"]), SCHEMA, "db.t")


def test_row_kinds_are_checked() -> None:
    assert conform_kinds(None, 3, "db.t") is None
    assert conform_kinds(pa.array(["+I", "-U", "+U", "-D"]), 4, "db.t").to_pylist() == [0, 1, 2, 3]
    assert conform_kinds(pa.chunked_array([[3], [0]]), 2, "db.t").to_pylist() == [3, 0]
    assert conform_kinds("-D", 2, "db.t").to_pylist() == conform_kinds(3, 2, "db.t").to_pylist() == [3, 3]
    assert conform_kinds("+I", 0, "db.t").to_pylist() == []
    with pytest.raises(InvalidData, match=r"row_kinds.*every row: 'insert' is no row kind"):
        conform_kinds("insert", 2, "db.t")
    for wrong in (pa.array(["+I"]), pa.array(["+I", "?"]), pa.array([0, 4]), pa.array(["+I", None])):
        with pytest.raises(InvalidData):
            conform_kinds(wrong, 2, "db.t")


def test_large_input_is_worked_on_in_pieces() -> None:
    wide = pa.table({"s": ["x" * 1024] * 200_000})
    parts = list(pieces(wide))
    assert len(parts) > 2
    assert sum(part.num_rows for part in parts) == 200_000
    assert (
        sum(part.num_rows for part in pieces(pa.RecordBatchReader.from_batches(wide.schema, wide.to_batches())))
        == 200_000
    )


def test_whatever_arrow_takes_for_a_table_is_rows() -> None:
    table = pa.table({"k": [1, 2]})
    reader = table.to_reader()
    assert as_rows(reader, "db.t") is reader
    assert as_rows(table, "db.t") is table
    assert as_rows(table.to_batches()[0], "db.t").equals(table)
    assert as_rows({"k": [1, 2]}, "db.t").equals(table)
    assert as_rows(pandas.DataFrame({"k": [1, 2]}), "db.t").equals(table)


@pytest.mark.parametrize("given", [None, "rows", [1], [{"k": 1}, "x"], {"k": [1], "v": [1, 2]}, {"k": [object()]}, 5])
def test_what_is_no_table_is_refused(given: Any) -> None:
    with pytest.raises(InvalidData, match="cannot be read as a table"):
        as_rows(given, "db.t")


def test_row_kinds_may_be_a_list() -> None:
    kinds = conform_kinds(["-D", "+I"], 2, "db.t")
    assert kinds is not None
    assert kinds.to_pylist() == [3, 0]
    with pytest.raises(InvalidData, match="row_kinds"):
        conform_kinds([object(), 1], 2, "db.t")
    with pytest.raises(InvalidData, match=r"'row_kinds': row 1 \(from 0\) of the rows given: '\+i' is no row kind"):
        conform_kinds(["-D", "+i"], 2, "db.t")


def one_column(kind: Any, default: str | None = None) -> TableSchema:
    return TableSchema(0, (DataField(0, "v", parse(kind), default=default), DataField(1, "o", parse("INT"))), 9)


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (
            "CHAR(2)",
            ["ab", "abc"],
            r"column 'v': row 101 \(from 0\) of the table: 'abc' does not fit CHAR\(2\): 3 characters",
        ),
        (
            "VARCHAR(3)",
            ["abc", "abcd"],
            r"row 101 \(from 0\) of the table: 'abcd' does not fit VARCHAR\(3\): 4 characters",
        ),
        ("BINARY(1)", [b"a", b"ab"], r"row 101 \(from 0\) of the table: b'ab' does not fit BINARY\(1\): 2 bytes"),
        ("DECIMAL(3, 1)", [99, 100], r"row 101 \(from 0\) of the table: 100 does not fit DECIMAL\(3, 1\)"),
        ("DECIMAL(20, 0)", [2**62, "x"], r"row 101 \(from 0\) of the table: 'x' does not fit DECIMAL"),
        (
            "TIMESTAMP(0)",
            [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 5000)],
            r"row 101 \(from 0\) of the table: .* 0 digits",
        ),
        (
            "TIMESTAMP(3)",
            [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 5)],
            r"row 101 \(from 0\) of the table: .*lose data",
        ),
        ("TIME(0)", [dt.time(1), dt.time(1, 0, 0, 5000)], r"row 101 \(from 0\) of the table: .* 0 digits"),
        (
            {"type": "ARRAY", "element": "INT NOT NULL"},
            [[1], [1, None]],
            r"column 'v\[\]': row 101 \(from 0\) of the table: None does not fit INT NOT NULL",
        ),
        (
            {"type": "ARRAY", "element": "TINYINT"},
            [[1], [300]],
            r"column 'v': row 101 \(from 0\) of the table: \[300\] does not fit ARRAY<TINYINT>",
        ),
        (
            {"type": "ROW", "fields": [{"id": 2, "name": "c", "type": "CHAR(1)"}]},
            [{"c": "a"}, {"c": "ab"}],
            r"column 'v\.c': row 101 \(from 0\) of the table: 'ab' does not fit CHAR\(1\)",
        ),
        (
            {"type": "ROW", "fields": [{"id": 2, "name": "c", "type": "CHAR(1)"}]},
            [{"c": "a", "d": None}, {"c": "b", "d": 1}],
            r"the row has no field 'd'",
        ),
    ],
)
def test_every_type_is_held_to_what_it_declares(kind: Any, values: list[Any], said: str) -> None:
    given = pa.table({"v": pa.array([str(v) for v in values]) if "x" in values else values})
    with pytest.raises(InvalidData, match=said):
        conform(given, one_column(kind), "db.t", RowNumbering(100, "the table"))
    if "no field" not in said:
        assert conform(given.slice(0, 1), one_column(kind), "db.t").num_rows == 1
        cut = pa.concat_tables([given.slice(1), given]).slice(1)
        with pytest.raises(InvalidData, match=said):
            conform(cut, one_column(kind), "db.t", RowNumbering(100, "the table"))


@pytest.mark.parametrize("code", [7, -1, 1 << 20])
@pytest.mark.parametrize("kind", ["STRING", "BIGINT", "ARRAY<STRING>"])
def test_numbers_outside_of_a_dictionary_are_named_with_column_and_row(kind: str, code: int) -> None:
    values = pa.array([1, 2]) if kind == "BIGINT" else pa.array(["a", "b"])
    given: Any = pa.DictionaryArray.from_arrays(pa.array([0, code], pa.int32()), values, safe=False)
    if kind.startswith("ARRAY"):
        given = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), given)
    with pytest.raises(InvalidData, match=rf"column 'v': row 1 .*a broken value .*{code} out of bounds"):
        conform(pa.table({"v": given}), one_column(kind), "db.t")


def test_row_kinds_outside_of_a_dictionary_or_of_no_text_are_refused() -> None:
    kinds = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), pa.array(["+I", "-D"]), safe=False)
    for given in (kinds, pa.array([{"a": 1}] * 2)):
        with pytest.raises(InvalidData, match="column 'row_kinds': the row kinds cannot be read"):
            conform_kinds(given, 2, "db.t")


def test_fields_of_rows_are_matched_by_name_and_missing_ones_are_null() -> None:
    kind = {
        "type": "MAP",
        "key": "STRING",
        "value": {
            "type": "ROW",
            "fields": [{"id": 2, "name": "a", "type": "BIGINT"}, {"id": 3, "name": "b", "type": "STRING"}],
        },
    }
    values = pa.array(
        [[("k", {"z": 0, "a": 1})], None], pa.map_(pa.string(), pa.struct([("z", pa.int8()), ("a", pa.int32())]))
    )
    with pytest.raises(InvalidData, match="no field 'z'"):
        conform(pa.table({"v": values}), one_column(kind), "db.t")
    known = pa.array([[("k", {"a": 1})], None], pa.map_(pa.string(), pa.struct([("a", pa.int32())])))
    made = conform(pa.table({"v": known}), one_column(kind), "db.t").column("v")
    assert made.to_pylist() == [[("k", {"a": 1, "b": None})], None]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("INT", "7", 7),
        ("CHAR(2)", "abc", "ab"),
        ("DATE", "2024-02-29", dt.date(2024, 2, 29)),
        ("BOOLEAN", "yes", True),
        ("DECIMAL(5, 2)", "1.005", Decimal("1.01")),
        ("TIMESTAMP(3)", "2024-01-01 10:00:00.5", dt.datetime(2024, 1, 1, 10, 0, 0, 500000)),
    ],
)
def test_defaults_stand_for_missing_columns_and_for_nulls_as_in_java(kind: str, default: str, value: Any) -> None:
    schema = one_column(kind, default)
    assert conform(pa.table({"o": [1, 2]}), schema, "db.t").column("v").to_pylist() == [value, value]
    made = conform(pa.table({"v": pa.array([None, None], schema.arrow_schema.field("v").type)}), schema, "db.t")
    assert made.column("v").to_pylist() == [value, value]
    assert made.schema == schema.arrow_schema


def test_a_null_in_a_not_null_column_is_no_call_for_its_default() -> None:
    schema = one_column("INT NOT NULL", "7")
    assert conform(pa.table({"o": [1]}), schema, "db.t").column("v").to_pylist() == [7]
    with pytest.raises(InvalidData, match=r"'v': row 1 \(from 0\) of the rows given: null in a NOT NULL column"):
        conform(pa.table({"v": pa.array([1, None])}), schema, "db.t")


def test_a_default_that_is_no_value_of_the_type_is_named() -> None:
    with pytest.raises(InvalidData, match=r"column 'v': the column's default cannot be used: 'x' is no INT"):
        conform(pa.table({"o": [1]}), one_column("INT", "x"), "db.t")


def _no_utf8() -> pa.Array:
    return pa.array([b"a", b"\xff\xfe", b"z"], pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("STRING", _no_utf8(), "index 1"),
        ("VARCHAR(3)", _no_utf8(), "index 1"),
        ("ARRAY<STRING>", pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), _no_utf8()), "index 1"),
        ("TIME(3)", pa.array([0, 86_399_999, 86_400_000], pa.int32()).view(pa.time32("ms")), "86400000"),
    ],
)
def test_values_that_no_reader_would_take_are_refused(kind: str, values: pa.Array, said: str) -> None:
    schema = TableSchema(0, (DataField(0, "v", parse(kind)),), 0, (), ())
    with pytest.raises(InvalidData, match=said) as caught:
        conform(pa.table({"v": values}), schema, "db.t", RowNumbering(10))
    assert "db.t" in str(caught.value)
    assert "'v'" in str(caught.value)
    assert "rows 10 to 12 (from 0) of the rows given" in str(caught.value)
    assert conform(pa.table({"v": values.slice(0, 1)}), schema, "db.t").num_rows == 1
