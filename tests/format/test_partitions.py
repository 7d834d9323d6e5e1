"""Partitions: directories have Java's names, and values come back from texts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, InvalidFilter, UnsupportedFeature
from lsm_core.format import EMPTY_ROW, DataField, TableSchema, encode_row
from lsm_core.format.java_text import date_text, float_text, local_date_time_text, time_text, timestamp_text
from lsm_core.format.partitions import (
    escape,
    partition_bytes,
    partition_dir,
    partition_dirs,
    partition_text,
    partition_values,
)
from lsm_core.options import TableOptions
from lsm_core.types import parse


def schema_of(**types: str) -> TableSchema:
    fields = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(types.items()))
    return TableSchema(0, fields, len(fields), tuple(types))


def folder(kind: str, value: Any, **options: str) -> str:
    schema = schema_of(p=kind)
    given_options = TableOptions({f"partition.{k.replace('_', '-')}": v for k, v in options.items()}, "db.t")
    found = partition_dir(schema, encode_row([value], schema.partition_types), given_options)
    return found.removeprefix("p=")


def test_a_table_without_partitions_has_no_directory() -> None:
    schema = TableSchema(0, (DataField(0, "a", parse("INT")),), 0)
    assert partition_dir(schema, EMPTY_ROW, TableOptions({}, "t")) == ""
    assert partition_bytes(schema, {}) == EMPTY_ROW
    assert partition_values(schema, EMPTY_ROW) == {}


def test_several_columns_make_nested_directories_in_partition_key_order() -> None:
    schema = schema_of(dt="DATE", h="INT")
    rows = [encode_row([date(2024, 1, 1), h], schema.partition_types) for h in (1, None)]
    options = TableOptions({"partition.legacy-name": "false"}, "t")
    assert partition_dirs(schema, rows, options) == ["dt=2024-01-01/h=1", "dt=2024-01-01/h=__DEFAULT_PARTITION__"]
    assert partition_text(schema, rows[0], options) == "dt=2024-01-01/h=1"


@pytest.mark.parametrize("blank", [None, "", " ", "\t \n", "\u2003"])
def test_nulls_and_blanks_share_the_default_directory(blank: str | None) -> None:
    assert folder("STRING", blank) == "__DEFAULT_PARTITION__"
    assert folder("STRING", blank, default_name="none/at all") == "none%2Fat all"


def test_a_space_that_does_not_break_is_not_blank_to_java() -> None:
    assert folder("STRING", "\u00a0") == "\u00a0"


@given(st.text(max_size=8))
def test_escaped_names_hold_no_separator_and_can_be_read_back(text: str) -> None:
    escaped = escape(text)
    assert "/" not in escaped
    assert "=" not in escaped
    assert "\0" not in escaped
    parts = escaped.split("%")
    assert parts[0] + "".join(chr(int(p[:2], 16)) + p[2:] for p in parts[1:]) == text


def test_legacy_and_plain_names_of_times() -> None:
    moment = datetime(2024, 1, 1, 0, 0, 0, 120000)
    assert folder("DATE", date(2024, 1, 1)) == "19723"
    assert folder("TIMESTAMP(6)", datetime(2024, 1, 1)) == "2024-01-01T00%3A00"
    assert folder("TIMESTAMP(6)", moment) == "2024-01-01T00%3A00%3A00.120"
    assert folder("TIMESTAMP(6)", moment, legacy_name="false") == "2024-01-01 00%3A00%3A00.120000"
    assert folder("TIMESTAMP(0)", moment.replace(microsecond=0), legacy_name="false") == "2024-01-01 00%3A00%3A00"
    assert folder("TIMESTAMP(3) WITH LOCAL TIME ZONE", moment) == "2024-01-01T00%3A00%3A00.120"
    assert time_text(3_723_004, 3) == "01:02:03.004"
    assert time_text(3_723_004, 0) == "01:02:03"
    assert local_date_time_text(-1, 999_999) == "1969-12-31T23:59:59.999999999"
    assert timestamp_text(0, 1000, 6) == "1970-01-01 00:00:00.000001"


def test_dates_beyond_four_digits_follow_java() -> None:
    assert date_text(2_932_897) == "+10000-01-01"
    assert date_text(-719_529) == "-0001-12-31"
    assert date_text(-719_528) == "0000-01-01"


@given(st.dates())
def test_dates_are_iso_dates(day: date) -> None:
    assert date_text((day - date(1970, 1, 1)).days) == day.isoformat()


@pytest.mark.parametrize(
    ("value", "single", "text"),
    [
        (1.0, False, "1.0"),
        (1e7, False, "1.0E7"),
        (9999999.0, False, "9999999.0"),
        (0.001, False, "0.001"),
        (0.00099, False, "9.9E-4"),
        (-0.0, False, "-0.0"),
        (1e21, False, "1.0E21"),
        (123456789.125, False, "1.23456789125E8"),
        (0.1, True, "0.1"),
        (3.4028235e38, True, "3.4028235E38"),
        (1.17549435e-38, True, "1.17549435E-38"),
        (float("nan"), True, "NaN"),
        (float("-inf"), False, "-Infinity"),
        (float("inf"), False, "Infinity"),
    ],
)
def test_floats_print_as_in_java(value: float, single: bool, text: str) -> None:
    assert float_text(value, single=single) == text


def test_binary_partitions_cannot_be_found_again_by_their_legacy_name() -> None:
    with pytest.raises(UnsupportedFeature, match="BINARY"):
        folder("BYTES", b"ab")
    assert folder("BYTES", b"a\xff", legacy_name="false") == "a\ufffd"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT", "7", 7),
        ("STRING", "7", "7"),
        ("BOOLEAN", "true", True),
        ("DATE", "2024-01-01", date(2024, 1, 1)),
        ("DATE", "19723", date(2024, 1, 1)),
        ("DECIMAL(10, 2)", "1.5", Decimal("1.50")),
        ("TIMESTAMP(3)", "2024-01-01 01:02:03.004", datetime(2024, 1, 1, 1, 2, 3, 4000)),
        ("DOUBLE", "1.5", 1.5),
        ("BYTES", "ab", b"ab"),
    ],
)
def test_texts_and_values_give_the_same_partition(kind: str, text: str, value: Any) -> None:
    schema = schema_of(p=kind)
    data = partition_bytes(schema, {"p": text})
    assert data == partition_bytes(schema, {"p": value})
    assert partition_values(schema, data) == {"p": value}
    assert partition_values(schema, partition_bytes(schema, {"p": None})) == {"p": None}


@pytest.mark.parametrize("kind", ["TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"])
@pytest.mark.parametrize("zone", ["", " WITH LOCAL TIME ZONE"])
def test_moments_of_every_precision_come_back(kind: str, zone: str) -> None:
    schema = schema_of(p=kind + zone)
    data = partition_bytes(schema, {"p": "2024-01-01 01:02:03"})
    assert partition_bytes(schema, partition_values(schema, data)) == data
    assert partition_dir(schema, data, TableOptions({}, "t")) == "p=2024-01-01T01%3A02%3A03"


@pytest.mark.parametrize("values", [{}, {"p": 1, "q": 2}, {"p": "seven"}, {"p": 2**40}, {"p": b"x"}])
def test_a_partition_that_cannot_be_understood_names_the_column(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidFilter, match="p"):
        partition_bytes(schema_of(p="INT"), values)


def test_bytes_of_another_shape_are_corrupt() -> None:
    with pytest.raises(CorruptFile):
        partition_dir(schema_of(p="INT"), EMPTY_ROW, TableOptions({}, "t"))
