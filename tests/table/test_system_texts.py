"""Texts of system tables are Java's, value by value, as the scalar formatters that name partitions give them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.format.java_text import date_text, decimal_text, float_text, local_date_time_text, timestamp_text
from lsm_core.table.system.entry_texts import cast_text, internal_text, listed, mapped
from lsm_core.table.system.metadata_tables import duration_text
from lsm_core.types import parse

_SMALLEST_NORMAL = 2.2250738585072014e-308
_UNITS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@given(st.lists(st.one_of(st.none(), st.floats(allow_subnormal=False)), max_size=20))
def test_doubles_print_as_in_java(values: list[float | None]) -> None:
    expected = [None if value is None else float_text(value, single=False) for value in values]
    assert internal_text(pa.array(values, pa.float64()), parse("DOUBLE")).to_pylist() == expected


@given(st.lists(st.floats(width=32, allow_subnormal=False), max_size=20))
def test_floats_print_as_in_java(values: list[float]) -> None:
    expected = [float_text(value, single=True) for value in values]
    assert internal_text(pa.array(values, pa.float32()), parse("FLOAT")).to_pylist() == expected


def test_floating_point_turns_to_exponents_where_java_does() -> None:
    values = [1e-3, np.nextafter(1e-3, 0), 1e7, np.nextafter(1e7, 0), 0.0, -0.0, 100.0, _SMALLEST_NORMAL]
    expected = [float_text(float(value), single=False) for value in values]
    assert internal_text(pa.array(values), parse("DOUBLE")).to_pylist() == expected
    assert expected[:3:2] == ["0.001", "1.0E7"]


@given(st.integers(0, 38), st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=10), st.integers(0, 2))
def test_decimals_have_all_digits_of_their_scale(scale: int, numbers: list[int], offset: int) -> None:
    values = [Decimal(f"{number}E-{scale}") for number in numbers]  # scaleb would round to 28 digits
    column = pa.array([None, *values], pa.decimal128(38, scale)).slice(offset)
    expected = [None if value is None else decimal_text(value) for value in [None, *values][offset:]]
    assert internal_text(column, parse(f"DECIMAL(38, {scale})")).to_pylist() == expected


@given(st.sampled_from([("ms", 0), ("ms", 2), ("ms", 3), ("us", 5), ("us", 6), ("ns", 7), ("ns", 9)]), st.data())
def test_timestamps_print_as_local_date_time_and_as_cast(form: tuple[str, int], data: st.DataObject) -> None:
    unit, precision = form
    step = _UNITS[unit]
    # As far as each unit reaches, years of five digits among them.
    reach = min(2**63 // step - 2, 300_000_000_000_000) * step if unit != "ns" else 2**63 - 1
    moment = st.one_of(st.integers(-reach, reach), st.integers(-50, 50).map(lambda n: n * 60_000 * step))
    values = data.draw(st.lists(moment, max_size=10))
    for tz, name in ((None, "TIMESTAMP({})"), ("UTC", "TIMESTAMP({}) WITH LOCAL TIME ZONE")):
        column, kind = pa.array(values, pa.int64()).cast(pa.timestamp(unit, tz)), parse(name.format(precision))
        parts = [(value // step, value % step * (1_000_000 // step)) for value in values]
        assert internal_text(column, kind).to_pylist() == [local_date_time_text(*part) for part in parts]
        assert cast_text(column, kind).to_pylist() == [timestamp_text(*part, precision) for part in parts]


def test_dates_and_times_are_numbers_inside_and_readable_when_cast() -> None:
    days = pa.array([0, 19_723, 2_932_897, -719_529, None], pa.int32())
    dates = days.cast(pa.date32())
    assert internal_text(dates, parse("DATE")).to_pylist() == ["0", "19723", "2932897", "-719529", None]
    assert cast_text(dates, parse("DATE")).to_pylist() == [*(date_text(n) for n in days.to_pylist()[:-1]), None]
    times = pa.array([0, 86_399_999], pa.time32("ms"))
    assert internal_text(times, parse("TIME(3)")).to_pylist() == ["0", "86399999"]
    assert cast_text(times, parse("TIME(0)")).to_pylist() == ["00:00:00", "23:59:59"]


def test_bytes_and_flags() -> None:
    data = pa.array([b"ab\xff", None])
    assert internal_text(data, parse("BYTES")).to_pylist() == ["6162ff", None]
    assert cast_text(data, parse("BYTES")).to_pylist() == ["ab\ufffd", None]
    assert internal_text(pa.array([True, False]), parse("BOOLEAN")).to_pylist() == ["true", "false"]


def test_rows_and_maps_print_nulls_and_sort_names() -> None:
    a, b = pa.array(["1", None]), pa.array(["x", "y"])
    assert listed([a, b], 2, "[]").to_pylist() == ["[1, x]", "[null, y]"]
    assert listed([], 2, "{}").to_pylist() == ["{}", "{}"]
    assert mapped([("b", b), ("a", a)], 2).to_pylist() == ["{a=1, b=x}", "{a=null, b=y}"]


@pytest.mark.parametrize(
    ("millis", "text"),
    [(0, "PT0S"), (86_400_000, "PT24H"), (5_400_000, "PT1H30M"), (1_500, "PT1.5S"), (61_000, "PT1M1S")],
)
def test_durations_print_as_in_java(millis: int, text: str) -> None:
    assert duration_text(millis) == text
