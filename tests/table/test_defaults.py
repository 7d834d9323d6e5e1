"""Defaults of columns: whatever text is given, it is a value of the column's type or an error that names the column."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import InvalidSchema
from lsm_core.format.schema import DataField
from lsm_core.table.validation import check_default
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
