"""Defaults of columns: whatever text is given, it is a value of the column's type or an error that names the column."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core import Catalog, SchemaChange
from lsm_core.errors import InvalidSchema
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.table.validation import check_default, validate
from lsm_core.types import parse

KINDS = (
    *(
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "BOOLEAN",
        "DATE",
        "TIME(3)",
        "STRING",
        "CHAR(3)",
        "BYTES",
    ),
    *("TIMESTAMP(0)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "DECIMAL(10, 2)"),
    *("ARRAY<INT>", "ROW<x INT>", "INT NOT NULL"),
)


@given(
    kind=st.sampled_from(KINDS),
    text=st.text(max_size=30) | st.from_regex(r"[-+0-9.eE:T ]{1,40}") | st.integers().map(str) | st.floats().map(str),
)
def test_any_text_is_a_default_or_an_invalid_schema(kind: str, text: str) -> None:
    with suppress(InvalidSchema):
        check_default(DataField(0, "col", parse(kind), default=text), "db.t")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("INT", "5", "many"),
        ("INT", "-5", "99999999999"),
        ("BOOLEAN", "yes", "maybe"),
        ("DATE", "2024-01-01", "soon"),
        ("TIMESTAMP(3)", "2024-01-01 10:00:00", "noon"),
        ("DOUBLE", "1e3", "much"),
        ("DECIMAL(3, 2)", "1.23", "x"),
    ],
)
def test_defaults_are_what_java_takes(kind: str, good: str, bad: str) -> None:
    check_default(DataField(0, "col", parse(kind), default=good), "db.t")
    with pytest.raises(InvalidSchema, match=rf"'col'.*{bad}"):
        check_default(DataField(0, "col", parse(kind), default=bad), "db.t")
    check_default(DataField(0, "s", parse("STRING"), default=""), "db.t")


CUT = [
    ("INT", "1.5"),
    ("TINYINT", "-1.9"),
    ("DECIMAL(5, 2)", "99999"),
    ("DECIMAL(5, 2)", "1.235"),
    ("DOUBLE", "1e400"),
    ("FLOAT", "-1e39"),
    ("VARCHAR(3)", "abcd"),
    ("CHAR(3)", "abcd"),
    ("BINARY(2)", "äb"),
]


@pytest.mark.parametrize(("kind", "text"), CUT)
def test_a_new_default_must_fit_and_an_old_one_may_stay(kind: str, text: str) -> None:
    """Java takes these defaults, so a table may have one, but writers would use another value than people wrote."""
    schema = TableSchema(0, (DataField(0, "k", parse("INT")), DataField(1, "c", parse(kind))), 1)
    with_default = replace(schema, fields=(schema.fields[0], replace(schema.fields[1], default=text)))
    with pytest.raises(
        InvalidSchema, match=rf"column 'c' of type .*: default '{re.escape(text)}' does not fit, writers"
    ):
        validate(with_default, "db.t")
    with pytest.raises(InvalidSchema, match="does not fit"):
        validate(with_default, "db.t", schema)
    validate(with_default, "db.t", with_default)
    validate(replace(with_default, comment="altered"), "db.t", with_default)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT", "1.0"),
        ("DECIMAL(5, 2)", "1e2"),
        ("DOUBLE", "Infinity"),
        ("FLOAT", "0.1"),
        ("CHAR(3)", "a"),
        ("BYTES", ""),
    ],
)
def test_a_default_that_fits_is_taken(kind: str, text: str) -> None:
    fields = (DataField(0, "k", parse("INT")), DataField(1, "c", parse(kind), default=text))
    validate(TableSchema(0, fields, 1), "db.t")


def test_a_default_inside_a_row_warns_that_no_writer_uses_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    catalog.create_table("db.t", pa.schema([("k", pa.int64()), ("r", pa.struct([("x", pa.int32())]))]))
    catalog.alter_table("db.t", [SchemaChange.update_default("r.x", "4")])  # as in Java
    assert "the default of 'r.x' has no effect" in caplog.text
    caplog.clear()
    catalog.alter_table("db.t", [SchemaChange.update_default("k", "4")])
    assert not caplog.text
