"""Filters: every operator means what engine.md says, and what cannot be understood is refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from lsm_core.errors import ColumnNotFound, InvalidFilter
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.read import parse_filter
from lsm_core.types import parse

FIELDS = {
    "k": "INT",
    "tiny": "TINYINT",
    "s": "STRING",
    "d": "DOUBLE",
    "n": "DECIMAL(10, 2)",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "b": "BOOLEAN",
}
SCHEMA = TableSchema(0, tuple(DataField(i, n, parse(t)) for i, (n, t) in enumerate(FIELDS.items())), 7)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"k": 1, "tiny": 1, "s": "abc", "d": 1.5, "n": Decimal("1.25"), "day": dt.date(2024, 1, 1), "b": True},
        {"k": 2, "tiny": 100, "s": "abd", "d": float("nan"), "n": Decimal("-3.00"), "day": dt.date(2024, 1, 2)},
        {"k": 3, "tiny": None, "s": None, "d": None, "n": None, "at": dt.datetime(2024, 1, 1, 5), "b": False},
    ],
    SCHEMA.arrow_schema,
)


def keys(given: object) -> list[int]:
    predicate = parse_filter(given, SCHEMA, "db.t")
    assert predicate is not None
    return predicate.apply(ROWS).column("k").to_pylist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("k", "=", 2)], [2]),
        ([("k", "==", 2)], [2]),
        ([("k", "!=", 2)], [1, 3]),
        ([("tiny", "!=", 1)], [2]),
        ([("k", "<", 2)], [1]),
        ([("k", "<=", 2.5)], [1, 2]),
        ([("k", ">", 2.5)], [3]),
        ([("tiny", "<", 1000)], [1, 2]),
        ([("tiny", "=", 1000)], []),
        ([("k", ">=", 10**30)], []),
        ([("k", "in", [1, 3, 99, 10**12])], [1, 3]),
        ([("s", "in", ["abc", None])], [1]),
        ([("s", "not in", ["abc"])], [2]),
        ([("s", "not in", ["abc", None])], []),
        ([("s", "not in", [None])], []),
        ([("k", "not in", [1, None])], []),
        ([("s", "not in", [])], [1, 2]),
        ([("s", "is null")], [3]),
        ([("s", "is null", None)], [3]),
        ([("s", "is not null")], [1, 2]),
        ([("s", "starts with", "ab")], [1, 2]),
        ([("s", "starts with", "abd")], [2]),
        ([("s", "starts with", "")], [1, 2]),
        ([("s", "=", None)], []),
        ([("s", "!=", None)], []),
        ([("d", ">", 1)], [1]),
        ([("n", "=", Decimal("1.250"))], [1]),
        ([("n", "<", 0)], [2]),
        ([("day", "=", "2024-01-02")], [2]),
        ([("day", ">=", dt.date(2024, 1, 1))], [1, 2]),
        ([("at", ">", "2024-01-01T04:00:00")], [3]),
        ([("at", ">", dt.date(2024, 1, 1))], [3]),
        ([("b", "=", True)], [1]),
        ([("k", ">", 1), ("s", "is not null")], [2]),
        ([[("k", "=", 1)], [("s", "is null")]], [1, 3]),
        (("k", "=", 2), [2]),
        (pc.field("k") > 1, [2, 3]),
        ((pc.field("k") == 1) | pc.field("s").is_null(), [1, 3]),
        (pc.field(0) == 3, [3]),
    ],
)
def test_a_filter_keeps_the_rows_it_names(given: object, expected: list[int]) -> None:
    assert keys(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "k == = 1",
        [("k", "~", 1)],
        [("k", "=", "one")],
        [("b", "=", 1)],
        [("k", "in", 3)],
        [("k", "starts with", "a")],
        [("k",)],
        [("k", "=")],
        [("k", "in")],
        [("s", "is null", "x")],
        [("k", "=", 1), [("k", "=", 2)]],
        [("day", "=", "yesterday")],
        pc.field("k") == "x",
    ],
)
def test_a_filter_that_cannot_be_understood_names_the_table(given: object) -> None:
    with pytest.raises(InvalidFilter, match=r"table db\.t"):
        parse_filter(given, SCHEMA, "db.t")


@pytest.mark.parametrize("given", [[("nope", "=", 1)], pc.field("nope") == 1])
def test_an_unknown_column_is_named(given: object) -> None:
    with pytest.raises(ColumnNotFound) as caught:
        parse_filter(given, SCHEMA, "db.t")
    assert caught.value.column == "nope"


def test_no_filter_is_no_predicate() -> None:
    assert parse_filter(None, SCHEMA, "db.t") is None
    assert parse_filter([], SCHEMA, "db.t") is None


def test_columns_of_an_expression_are_found() -> None:
    predicate = parse_filter((pc.field("day") > dt.date(2024, 1, 1)) & pc.field("b"), SCHEMA, "db.t")
    assert predicate is not None
    assert {"day", "b"} <= set(predicate.columns)
    assert "tiny" not in predicate.columns


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # a time of day lies after its date, and a fraction finer than the column after the coarser value
        ([("day", "<", dt.datetime(2024, 1, 1, 12))], [1]),
        ([("day", "=", dt.datetime(2024, 1, 1, 12))], []),
        ([("day", "=", dt.datetime(2024, 1, 1))], [1]),
        ([("day", "in", [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2, 3)])], [1]),
        ([("ms", "=", dt.datetime(2024, 1, 1, 5, 0, 0, 7001))], []),
        ([("ms", "<", dt.datetime(2024, 1, 1, 5, 0, 0, 7001))], [3]),
        # `in` is "equal to one of them"
        ([("n", "in", [1.25, -7])], [1]),
        ([("n", "not in", [1.25, -7])], [2]),
        ([("d", "in", [float("nan"), 1.5])], [1]),
        ([("d", "not in", [float("nan"), 1.5])], [2, 4]),
        ([("d", "in", [0.0])], [4]),
        ([("k", "in", [1.5, 2, 1 << 70])], [2]),
    ],
)
def test_values_that_the_column_cannot_hold_exactly(given: object, expected: list[int]) -> None:
    fields = (*SCHEMA.fields, DataField(9, "ms", parse("TIMESTAMP(3)")))
    schema = TableSchema(0, fields, 9)
    extra = [{"k": 4, "d": -0.0}]
    given_rows = [row | {"ms": row["at"] and dt.datetime(2024, 1, 1, 5, 0, 0, 7000)} for row in ROWS.to_pylist()]
    rows = pa.RecordBatch.from_pylist([*given_rows, *extra], schema.arrow_schema)
    predicate = parse_filter(given, schema, "db.t")
    assert predicate is not None
    assert predicate.apply(rows)["k"].to_pylist() == expected


_TRIED = {
    "k": st.integers(0, 4) | st.sampled_from((1.5, 10**30, Decimal("2.5"))),
    "tiny": st.sampled_from((1, 100, 1000, 1.5)),
    "s": st.sampled_from(("abc", "ab", "", "b", chr(0x10FFFF))),
    "d": st.sampled_from((1.5, 0.0, -0.0, float("nan"), 1, Decimal("1.5"))),
    "n": st.sampled_from((Decimal("1.25"), Decimal("1.255"), 1, 1.25, -3)),
    "day": st.sampled_from((dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12), "2024-01-02")),
    "at": st.sampled_from((dt.datetime(2024, 1, 1, 5), dt.date(2024, 1, 1), "2024-01-01T05:00:00")),
    "b": st.booleans(),
}


@st.composite
def _tests(draw: st.DrawFn) -> tuple[object, ...]:
    name = draw(st.sampled_from(list(_TRIED)))
    value = st.none() | _TRIED[name]
    op = draw(
        st.sampled_from(("=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null", "starts with"))
    )
    if op == "starts with":
        return "s", op, draw(_TRIED["s"])
    if op.startswith("is"):
        return name, op
    return name, op, draw(st.lists(value, max_size=3)) if "in" in op else draw(value)


@drawn(st.lists(st.lists(_tests(), max_size=3), min_size=1, max_size=3))
def test_tuples_keep_the_rows_that_their_arrow_expression_keeps(given: list[list[tuple[object, ...]]]) -> None:
    predicate = parse_filter(given, SCHEMA, "db.t")
    assert predicate is not None
    rows = pa.concat_batches([ROWS, pa.RecordBatch.from_pylist([{"k": 4, "d": -0.0, "s": ""}], SCHEMA.arrow_schema)])
    assert predicate.apply(rows)["k"].to_pylist() == rows.filter(predicate.expression)["k"].to_pylist()


def test_a_long_list_of_groups_does_not_end_the_process() -> None:
    assert keys([[("k", "=", number)] for number in range(2, 30_000)]) == [2, 3]


def test_more_tests_than_arrow_can_walk_are_refused() -> None:
    pairs = [[("k", "=", number), ("tiny", "=", 1)] for number in range(2_000)]
    with pytest.raises(InvalidFilter, match="4000 tests"):
        parse_filter(pairs, SCHEMA, "db.t")
    assert keys([[("k", "=", 1)], [("k", "=", 1.5)], [("k", "=", None)], [("s", "is null")]]) == [1, 3]
