"""Types: every text form of schema files is understood, printed as Java prints it, and mapped to Arrow and back."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import InvalidSchema
from lsm_core.types import DataType, RowField, TypeRoot, from_arrow, parse, to_arrow, to_json, to_sql
from tests.support.samples import examples

ATOMIC = st.one_of(
    st.sampled_from(
        [
            "BOOLEAN",
            "TINYINT",
            "SMALLINT",
            "INT",
            "BIGINT",
            "FLOAT",
            "DOUBLE",
            "DATE",
            "STRING",
            "BYTES",
            "VARIANT",
            "BLOB",
        ]
    ).map(parse),
    st.builds(
        lambda root, n: DataType(root, length=n),
        st.sampled_from([TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY]),
        st.integers(1, 2**31 - 1),
    ),
    st.integers(1, 38).flatmap(
        lambda p: st.integers(0, p).map(lambda s: DataType(TypeRoot.DECIMAL, precision=p, scale=s))
    ),
    st.builds(
        lambda root, p: DataType(root, precision=p),
        st.sampled_from([TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ]),
        st.integers(0, 9),
    ),
)


def nested(children: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    name = st.text(min_size=1, max_size=5)
    message = st.none() | st.text(max_size=5)
    field = st.builds(RowField, st.integers(0, 99), name, children, message, st.none() | st.just("1"))
    return st.one_of(
        children.map(lambda e: DataType(TypeRoot.ARRAY, element=e)),
        children.map(lambda e: DataType(TypeRoot.MULTISET, element=e)),
        st.builds(lambda k, v: DataType(TypeRoot.MAP, key=k, value=v), children, children),
        st.lists(field, max_size=3).map(lambda f: DataType(TypeRoot.ROW, fields=tuple(f))),
    ).flatmap(lambda t: st.booleans().map(lambda n: t.with_nullable(nullable=n)))


TYPES = st.recursive(
    ATOMIC.flatmap(lambda t: st.booleans().map(lambda n: t.with_nullable(nullable=n))), nested, max_leaves=6
)


@given(TYPES)
@settings(max_examples=examples(150))
def test_the_json_form_comes_back_the_same(kind: DataType) -> None:
    assert parse(json.loads(json.dumps(to_json(kind)))) == kind


def without_ids(kind: DataType) -> Any:
    inner = [without_ids(t) for t in (kind.element, kind.key, kind.value) if t is not None]
    fields = [(f.name, f.description, without_ids(f.type)) for f in kind.fields]
    return (kind.root, kind.nullable, kind.length, kind.precision, kind.scale, inner, fields)


@given(TYPES)
@settings(max_examples=examples(150))
def test_the_sql_form_comes_back_the_same_but_for_field_ids(kind: DataType) -> None:
    assert without_ids(parse(to_sql(kind))) == without_ids(kind)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("integer", "INT"),
        ("Int not null", "INT NOT NULL"),
        ("INT NULL", "INT"),
        ("numeric(5)", "DECIMAL(5, 0)"),
        ("DEC", "DECIMAL(10, 0)"),
        ("DECIMAL( 10,2 )", "DECIMAL(10, 2)"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("VARCHAR(2147483647)", "STRING"),
        ("VARBINARY(2147483647) NOT NULL", "BYTES NOT NULL"),
        ("CHAR", "CHAR(1)"),
        ("TIME", "TIME(0)"),
        ("TIME(3) WITHOUT TIME ZONE", "TIME(3)"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)"),
        ("TIMESTAMP_LTZ(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        ("timestamp with local time zone", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("GEOMETRY", "GEOMETRY"),
        ("ROW<`a``b` INT 'it''s', c ARRAY<STRING>>", "ROW<`a``b` INT 'it''s', `c` ARRAY<STRING>>"),
    ],
)
def test_synonyms_are_understood_and_printed_as_java_does(text: str, printed: str) -> None:
    assert to_sql(parse(text)) == printed
    assert parse(printed) == parse(text)


def test_nested_objects_carry_nullability_ids_and_descriptions() -> None:
    source = {
        "type": "ROW NOT NULL",
        "fields": [
            {"id": 7, "name": "x", "type": "INT"},
            {
                "id": 9,
                "name": "m",
                "type": {"type": "MAP", "key": "STRING NOT NULL", "value": {"type": "ARRAY", "element": "INT"}},
            },
            {"id": 8, "name": "d", "type": "STRING", "description": "why", "defaultValue": "x"},
            {"id": 10, "name": "v", "type": {"type": "VECTOR", "element": "FLOAT NOT NULL", "length": 3}},
        ],
    }
    kind = parse(source)
    assert not kind.nullable
    assert [f.id for f in kind.fields] == [7, 9, 8, 10]
    assert to_json(kind) == source


@pytest.mark.parametrize(
    "bad",
    [
        "", "FOO", "INT INT", "INT NOT", "DECIMAL(39, 2)", "DECIMAL(5, 6)", "DECIMAL(5", "CHAR(0)", "TIMESTAMP(10)", "ARRAY<INT",
        "ROW<a>", "MAP<INT>", "INT;", "VARCHAR(99999999999)", "ARRAY<" * 500, {}, {"type": "ARRAY"}, {"type": "MAP", "key": "INT"},
        {"type": "ROW", "fields": [{"name": "x"}]}, {"type": 3}, 7, None, {"type": "ARRAY WHAT", "element": "INT"},
    ],
)  # fmt: skip
def test_nonsense_raises_invalid_schema(bad: Any) -> None:
    with pytest.raises(InvalidSchema):
        parse(bad)


def test_a_type_nested_too_deeply_is_refused() -> None:
    source: Any = "INT"
    for _ in range(2000):
        source = {"type": "ARRAY", "element": source}
    with pytest.raises(InvalidSchema, match="deeper"):
        parse(source)


@given(st.text(max_size=30))
def test_any_text_is_a_type_or_invalid(text: str) -> None:
    with contextlib.suppress(InvalidSchema):
        parse(text)


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("BOOLEAN", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("BIGINT", pa.int64()),
        ("FLOAT", pa.float32()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("DATE", pa.date32()),
        ("TIME(0)", pa.time32("ms")),
        ("TIMESTAMP(0)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(7)", pa.timestamp("ns")),
        ("TIMESTAMP_LTZ(6)", pa.timestamp("us", "UTC")),
        ("CHAR(3)", pa.string()),
        ("BYTES", pa.binary()),
        ("MAP<STRING NOT NULL, INT>", pa.map_(pa.string(), pa.int32())),
        ("ARRAY<INT NOT NULL>", pa.list_(pa.field("element", pa.int32(), nullable=False))),
    ],
)
def test_types_map_to_arrow(text: str, arrow: pa.DataType) -> None:
    assert to_arrow(parse(text)) == arrow


@given(ATOMIC.filter(lambda t: t.root is not TypeRoot.VARIANT))
def test_arrow_and_back_keeps_the_arrow_type(kind: DataType) -> None:
    assert to_arrow(from_arrow(to_arrow(kind))) == to_arrow(kind)


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.uint32(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("ns", "Europe/Berlin"), "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        (pa.date64(), "DATE"),
        (pa.binary(4), "BINARY(4)"),
        (pa.list_(pa.struct([("a", pa.int8())])), "ARRAY<ROW<`a` TINYINT>>"),
    ],
)
def test_every_usual_arrow_type_finds_a_column_type(arrow: pa.DataType, text: str) -> None:
    assert to_sql(from_arrow(arrow)) == text


@pytest.mark.parametrize("arrow", [pa.null(), pa.month_day_nano_interval(), pa.decimal256(60, 2), pa.decimal128(5, -2)])
def test_an_arrow_type_without_counterpart_is_refused_by_name(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match="no column type"):
        from_arrow(arrow)


def test_types_travel_between_processes() -> None:
    kind = parse("MAP<STRING, ROW<a INT>>")
    assert pickle.loads(pickle.dumps(kind)) == kind
