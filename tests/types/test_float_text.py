"""Floating-point numbers as Java prints them: hard values from Java 17 and 25 themselves, and whole columns as one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.types.casts.java_floats import float_column, text_before_jdk19, text_since_jdk19

# Value, what Java 17 printed, what Java 25 printed.
DOUBLES = [
    (5e-324, "4.9E-324", "4.9E-324"),
    (1e-323, "1.0E-323", "9.9E-324"),
    (1.5e-323, "1.5E-323", "1.5E-323"),
    (2e-323, "2.0E-323", "2.0E-323"),
    (1.04e-322, "1.04E-322", "1.04E-322"),
    (2.2e-322, "2.2E-322", "2.2E-322"),
    (2.2250738585072014e-308, "2.2250738585072014E-308", "2.2250738585072014E-308"),
    (8.5e-304, "8.5E-304", "8.5E-304"),
    (5.684341886080802e-14, "5.6843418860808015E-14", "5.684341886080802E-14"),
    (1.1e-05, "1.1E-5", "1.1E-5"),
    (0.0009775161743164062, "9.775161743164062E-4", "9.775161743164062E-4"),
    (0.00099, "9.9E-4", "9.9E-4"),
    (0.001, "0.001", "0.001"),
    (0.002, "0.002", "0.002"),
    (0.1, "0.1", "0.1"),
    (100.0, "100.0", "100.0"),
    (9999999.0, "9999999.0", "9999999.0"),
    (10000000.0, "1.0E7", "1.0E7"),
    (9007199254740992.0, "9.007199254740992E15", "9.007199254740992E15"),
    (1.8014398509481988e16, "1.8014398509481988E16", "1.8014398509481988E16"),
    (2.26797932753915e17, "2.26797932753915008E17", "2.26797932753915E17"),
    (1.152921504606847e18, "1.15292150460684698E18", "1.152921504606847E18"),
    (9.223372036854775e18, "9.2233720368547748E18", "9.223372036854775E18"),
    (9.223372036854776e18, "9.223372036854776E18", "9.223372036854776E18"),
    (8.41e21, "8.409999999999999E21", "8.41E21"),
    (1e22, "1.0E22", "1.0E22"),
    (1e23, "9.999999999999999E22", "1.0E23"),
    (2e23, "1.9999999999999998E23", "2.0E23"),
    (2.4751206126762593e25, "2.4751206126762592E25", "2.4751206126762593E25"),
    (3.8552452244016834e25, "3.8552452244016833E25", "3.8552452244016834E25"),
    (4.8726570057e288, "4.8726570056999995E288", "4.8726570057E288"),
    (1e300, "1.0E300", "1.0E300"),
    (1.7976931348623157e308, "1.7976931348623157E308", "1.7976931348623157E308"),
]
FLOATS = [
    (1.401298464324817e-45, "1.4E-45", "1.4E-45"),
    (2.802596928649634e-45, "2.8E-45", "2.8E-45"),
    (4.203895392974451e-45, "4.2E-45", "4.2E-45"),
    (3.363116314379561e-44, "3.4E-44", "3.4E-44"),
    (1.1754943508222875e-38, "1.17549435E-38", "1.1754944E-38"),
    (1.000000013351432e-10, "1.0E-10", "1.0E-10"),
    (9.5367431640625e-07, "9.536743E-7", "9.536743E-7"),
    (0.0009775161743164062, "9.775162E-4", "9.775162E-4"),
    (0.0010000000474974513, "0.001", "0.001"),
    (0.10000000149011612, "0.1", "0.1"),
    (100.0, "100.0", "100.0"),
    (9999999.0, "9999999.0", "9999999.0"),
    (10000000.0, "1.0E7", "1.0E7"),
    (16777216.0, "1.6777216E7", "1.6777216E7"),
    (33554432.0, "3.3554432E7", "3.3554432E7"),
    (1073741824.0, "1.07374182E9", "1.0737418E9"),
    (8499999744.0, "8.4999997E9", "8.5E9"),
    (10000000000.0, "1.0E10", "1.0E10"),
    (122818658304.0, "1.22818658E11", "1.2281866E11"),
    (2270709678080.0, "2.27070968E12", "2.2707097E12"),
    (4.611686018427388e18, "4.611686E18", "4.611686E18"),
    (9.223372036854776e18, "9.223372E18", "9.223372E18"),
    (9.999999778196308e21, "1.0E22", "1.0E22"),
    (5.137934733362174e24, "5.137935E24", "5.137935E24"),
    (3.883731380418625e25, "3.8837313E25", "3.8837314E25"),
    (5.87280228871256e25, "5.8728022E25", "5.8728023E25"),
    (3.4028234663852886e38, "3.4028235E38", "3.4028235E38"),
]
_SUBNORMALS = st.integers(1, 5000)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("value", "old", "new", "single"), [*((*case, False) for case in DOUBLES), *((*case, True) for case in FLOATS)]
)
def test_hard_values_print_as_both_kinds_of_jdk_print_them(
    value: float, old: str, new: str, single: bool, sign: float
) -> None:
    minus = "-" if sign < 0 else ""
    assert text_before_jdk19(sign * value, single=single) == minus + old
    assert text_since_jdk19(sign * value, single=single) == minus + new
    column = pa.array([sign * value], pa.float32() if single else pa.float64())
    assert float_column(column).to_pylist() == [minus + old]


def _patterns(bits: int, mantissa: int, exponents: tuple[int, int]) -> st.SearchStrategy[int]:
    """Bit patterns: any, and those whose mantissa has few bits, where generators of digits stumble."""
    exponent = st.integers(*exponents)
    short = st.tuples(exponent, st.integers(0, 2**mantissa - 1), st.integers(0, mantissa)).map(
        lambda drawn: drawn[0] << mantissa | drawn[1] >> drawn[2] << drawn[2]
    )
    return st.one_of(st.integers(0, 2**bits - 1), short, _SUBNORMALS)


@given(st.lists(st.one_of(st.none(), _patterns(64, 52, (960, 1160))), max_size=40), st.integers(0, 3))
def test_columns_of_doubles_print_as_each_value_does(patterns: list[int | None], offset: int) -> None:
    values = [None if p is None else float(np.uint64(p).view(np.float64)) for p in patterns]
    expected = [None if value is None else text_before_jdk19(value, single=False) for value in values]
    column = pa.array([1.5] * offset + values, pa.float64()).slice(offset)
    assert float_column(column).to_pylist() == expected


@given(st.lists(st.one_of(st.none(), _patterns(32, 23, (60, 220))), max_size=40), st.integers(0, 3))
def test_columns_of_floats_print_as_each_value_does(patterns: list[int | None], offset: int) -> None:
    values = [None if p is None else float(np.uint32(p).view(np.float32)) for p in patterns]
    expected = [None if value is None else text_before_jdk19(value, single=True) for value in values]
    column = pa.array([1.5] * offset + values, pa.float32()).slice(offset)
    assert float_column(column).to_pylist() == expected


def test_every_nan_prints_as_one() -> None:
    single = np.array([0x7FC00000, 0x7F800001, 0xFF812345], np.uint32).view(np.float32)
    double = np.array([0x7FF8000000000000, 0x7FF0000000000001, 0xFFF7000000000000], np.uint64).view(np.float64)
    assert float_column(pa.array(single)).to_pylist() == float_column(pa.array(double)).to_pylist() == ["NaN"] * 3


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), st.booleans())
def test_texts_of_both_kinds_of_jdk_read_back_as_the_value(given_values: list[float], single: bool) -> None:
    with np.errstate(over="ignore", under="ignore"):
        values = np.array(given_values).astype(np.float32 if single else np.float64)
    for value in values:
        for text in (text_before_jdk19(float(value), single=single), text_since_jdk19(float(value), single=single)):
            assert values.dtype.type(text) == value
        assert len(text) <= len(text_before_jdk19(float(value), single=single))
