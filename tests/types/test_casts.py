"""Casts against Paimon's own: its matrix, and what 7,000 values became in Java 1.4.2 (cast_vectors.jsonl.gz, by CastVectors.java)."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.types import DataType, TypeRoot, parse, to_arrow
from lsm_core.types.arrow import same_values
from lsm_core.types.casts import CastError, cast_values, castable
from tests.types.java_values import array_of, java_text, our_text

STRING = parse("STRING")
FAILED = "(refused)"


@cache
def vectors() -> list[dict[str, Any]]:
    text = gzip.decompress(Path(__file__).with_name("cast_vectors.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def is_known_to_differ(source: DataType, target: DataType, value: Any, java: str, ours: str) -> bool:
    """Where we mean to differ from Java, in one place."""
    instants = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
    if target.root in instants and target.precision in (7, 8, 9) and ours == FAILED:
        return (
            "0001-" in java or "9999-" in java or "1582-" in java or len(java.partition("T")[0]) > 12
        )  # no room in ns
    if source.root is TypeRoot.BIGINT and target.root in instants:
        return bool(value == 9007199254740993)  # Java's own calendar overflows
    if source.root is TypeRoot.VARCHAR and target.root in instants:
        return bool(value == "9223372036854775807")
    if target.root is TypeRoot.TIME:
        negative = "-" in java or java.startswith("'25")
        return negative if source.root in instants else negative and ours == FAILED  # no time of a day
    if source.root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return "\ufffd" in java and ours == FAILED  # no text
    below = source.root in instants and target.root in instants and target.precision in (1, 3, 6)
    return below and isinstance(value, str) and value.rstrip("Z").endswith(".000000001")  # below what the unit can hold


def test_the_matrix_is_the_one_of_java() -> None:
    for vector in vectors():
        source, target = parse(vector["source"]), parse(vector["target"])
        if same_values(source, target):
            assert castable(source, target, explicit=False)
            continue
        for explicit, name in ((False, "implicit"), (True, "explicit")):
            expected = vector[name] and vector["rule"]
            assert castable(source, target, explicit=explicit) == expected, f"{source} -> {target}, {name}"


def test_every_value_becomes_what_it_becomes_in_java() -> None:
    compared = 0
    for vector in vectors():
        source, target = parse(vector["source"]), parse(vector["target"])
        if same_values(source, target) or not castable(source, target, explicit=True):
            continue
        for value, result in zip(vector["values"], vector["results"], strict=True):
            compared += _compare(source, target, value, result)
    assert compared > 6500


def _compare(source: DataType, target: DataType, value: Any, result: Any) -> int:
    try:
        values = array_of([value, None], source)
    except OverflowError:
        return 0
    kind = to_arrow(target)
    java = FAILED if result == {"error": True} else java_text(result, kind)
    try:
        found = cast_values(values, source, target)
        found.validate(full=True)
        assert found.type.equals(kind)
        assert not found[1].is_valid
        ours = our_text(found[0])
    except CastError:
        ours = FAILED
    if ours == java:
        return 1
    assert is_known_to_differ(source, target, value, java, ours), f"{value!r} {source} -> {target}: {ours}, Java {java}"
    return 0


def test_the_first_text_that_is_no_value_is_named_with_its_place() -> None:
    texts = pa.array(["1", None, "2", "x" * 300, "y"])
    with pytest.raises(CastError, match=r"'xxx.*\.\.\. is no INT") as caught:
        cast_values(texts, STRING, parse("INT NOT NULL"))
    assert caught.value.position == 3
    with pytest.raises(CastError, match="9999999999999999999999' is no BIGINT"):
        cast_values(pa.array(["9223372036854775807", "9999999999999999999999"]), STRING, parse("BIGINT"))


def test_types_that_never_cast_say_so() -> None:
    with pytest.raises(CastError, match=r"DATE does not cast to INT"):
        cast_values(pa.array([1], pa.int32()).cast(pa.date32()), parse("DATE"), parse("INT"))
    with pytest.raises(CastError, match=r"BYTES does not cast to INT"):
        cast_values(pa.array([b"1"]), parse("BYTES"), parse("INT"))


def test_slices_cast_like_whole_arrays() -> None:
    for vector in vectors():
        source, target = parse(vector["source"]), parse(vector["target"])
        if not castable(source, target, explicit=True) or source.root in (TypeRoot.VARCHAR, TypeRoot.CHAR):
            continue
        good = [v for v, r in zip(vector["values"], vector["results"], strict=True) if r != {"error": True}]
        try:
            whole = array_of([None, *good, None, *good], source)
            expected = cast_values(whole, source, target)
        except (CastError, OverflowError):
            continue
        cut = cast_values(whole.slice(3, 5), source, target)
        assert cut.equals(expected.slice(3, 5)) or any(isinstance(v, float) and math.isnan(v) for v in cut.to_pylist())


@given(st.lists(st.none() | st.floats(), min_size=1, max_size=50))
def test_floats_print_as_java_prints_them_and_read_back(values: list[float | None]) -> None:
    given = pa.array(values, pa.float64())
    texts = cast_values(given, parse("DOUBLE"), STRING)
    back = cast_values(texts, STRING, parse("DOUBLE"))
    assert np.array_equal(np.asarray(given.fill_null(0)), np.asarray(back.fill_null(0)), equal_nan=True)
    for value, text in zip(values, texts.to_pylist(), strict=True):
        if value is not None and math.isfinite(value) and value != 0:
            assert ("E" in text) == (not 1e-3 <= abs(value) < 1e7)
            assert "." in text


@given(
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=None), min_size=1, max_size=30),
    st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
)
def test_texts_round_half_up_to_decimals(values: list[Decimal], size: tuple[int, int]) -> None:
    precision, scale = size
    values = [value for value in values if abs(value.adjusted()) < 150] or [Decimal(0)]
    found = cast_values(pa.array([str(v) for v in values]), STRING, parse(f"DECIMAL({precision}, {scale})"))
    for value, made in zip(values, found.to_pylist(), strict=True):
        assert made == _rounded(value, precision, scale)


def _rounded(value: Decimal, precision: int, scale: int) -> Decimal | None:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled, drop = int("".join(map(str, digits))), -(exponent + scale)
    unscaled = (unscaled + 5 * 10 ** (drop - 1)) // 10**drop if drop > 0 else unscaled * 10**-drop
    if unscaled >= 10**precision:
        return None
    return Decimal((sign, tuple(map(int, str(unscaled))), -scale))


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30), st.sampled_from([8, 16, 32, 64])
)
def test_integers_wrap_around_and_print_whole(values: list[int | None], bits: int) -> None:
    name = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[bits]
    given, bigint = pa.array(values, pa.int64()), parse("BIGINT")
    narrow = cast_values(given, bigint, parse(name)).to_pylist()
    half = 2 ** (bits - 1)
    assert narrow == [None if v is None else (v + half) % (2 * half) - half for v in values]
    texts = cast_values(given, bigint, STRING)
    assert cast_values(texts, STRING, bigint).equals(given)
