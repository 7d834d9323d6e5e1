"""BinaryRow: Java's bytes for every type, both ways, and no trust in bytes from outside."""

from __future__ import annotations

import contextlib
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, DredgeError, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, decode_row, decode_rows, encode_row, encode_rows, header_bytes
from lsm_core.format.hashing import hash_rows, hash_words
from lsm_core.types import DataType, parse, to_arrow
from tests.format import reference
from tests.format.golden_rows import GOLDEN
from tests.format.strategies import TYPES, tables
from tests.support.samples import examples


def columns_of(kinds: list[DataType], rows: list[list[Any]]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], to_arrow(kind)) for i, kind in enumerate(kinds)]


@pytest.mark.parametrize(("types", "values", "text", "row_hash"), GOLDEN, ids=[f"{g[0]}-{g[1]}" for g in GOLDEN])
def test_rows_have_the_bytes_and_hash_that_java_gives_them(
    types: list[Any], values: list[Any], text: str, row_hash: int
) -> None:
    kinds = [parse(kind) for kind in types]
    assert encode_row(values, kinds).hex() == text
    assert decode_row(bytes.fromhex(text), kinds) == tuple(values)
    assert reference.serialised(values, kinds).hex() == text
    assert hash_rows(columns_of(kinds, [values]), kinds).tolist() == [row_hash]


def test_the_row_of_no_columns_is_twelve_zeros() -> None:
    assert encode_row([], []) == EMPTY_ROW == bytes(12)
    assert decode_row(EMPTY_ROW, []) == ()


def test_a_wide_row_has_a_wide_header() -> None:
    kinds = [parse("INT")] * 57
    values = [*range(56), None]
    row = encode_row(values, kinds)
    assert [header_bytes(n) for n in (0, 56, 57, 120, 121)] == [8, 8, 16, 16, 24]
    assert row[4 + 8] == 1
    assert hash_rows(columns_of(kinds, [values]), kinds).tolist() == [-785623908]
    assert decode_row(row, kinds) == tuple(values)


@settings(max_examples=examples(150))
@given(tables())
def test_columns_encode_as_the_scalar_reference_does_and_come_back(
    case: tuple[list[DataType], list[list[Any]]],
) -> None:
    kinds, rows = case
    columns = columns_of(kinds, rows)
    blobs = encode_rows(columns, kinds)
    assert blobs.to_pylist() == [reference.serialised(row, kinds) for row in rows]
    assert hash_rows(columns, kinds).tolist() == [reference.murmur(reference.row(row, kinds)) for row in rows]
    for found, column in zip(decode_rows(blobs, kinds), columns, strict=True):
        found.validate(full=True)
        assert found.equals(column)
    assert encode_rows(columns, kinds, with_arity=False).to_pylist() == [blob[4:] for blob in blobs.to_pylist()]


@settings(max_examples=examples(60))
@given(tables(), st.integers(0, 4), st.integers(0, 5))
def test_slices_and_chunks_encode_as_whole_columns_do(
    case: tuple[list[DataType], list[list[Any]]], start: int, length: int
) -> None:
    kinds, rows = case
    columns = columns_of(kinds, rows)
    whole = encode_rows(columns, kinds)
    assert encode_rows([c.slice(start, length) for c in columns], kinds).equals(whole.slice(start, length))
    chunked = [pa.chunked_array([c.slice(0, start), c.slice(start)]) for c in columns]
    assert encode_rows(chunked, kinds).equals(whole)
    assert [c.to_pylist() for c in decode_rows(whole.slice(start, length), kinds)] == [
        c.slice(start, length).to_pylist() for c in columns
    ]


@settings(max_examples=examples(60))
@given(tables(), st.data())
def test_damaged_bytes_are_refused_or_read_but_never_followed_out_of_bounds(
    case: tuple[list[DataType], list[list[Any]]], data: st.DataObject
) -> None:
    kinds, rows = case
    blob = bytearray(reference.serialised(rows[0], kinds))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at] = data.draw(st.integers(0, 255))
    del blob[data.draw(st.integers(len(blob) // 2, len(blob))) :]
    with contextlib.suppress(CorruptFile, UnsupportedFeature):
        for column in decode_rows(pa.array([bytes(blob)]), kinds, "manifest-1"):
            column.validate(full=True)


@settings(max_examples=examples(100))
@given(st.binary(max_size=80), st.lists(TYPES, min_size=1, max_size=3))
def test_random_bytes_never_crash(blob: bytes, kinds: list[DataType]) -> None:
    with contextlib.suppress(DredgeError):
        decode_rows(pa.array([blob]), kinds, "f", with_arity=False)


def test_a_forged_array_cannot_multiply_memory() -> None:
    # 20,000 outer elements that all point to the same 20,000 inner ones: 3 GB from 320 kB, were it believed.
    kind = parse({"type": "ARRAY", "element": {"type": "ARRAY", "element": "BIGINT"}})
    count, inner = 20_000, 20_000
    header = 4 + (count + 31) // 32 * 4
    inner_at = (header + 8 * count + 7) // 8 * 8
    inner_bytes = inner.to_bytes(4, "little") + bytes((inner + 31) // 32 * 4 + 8 * inner)
    slot = len(inner_bytes).to_bytes(4, "little") + inner_at.to_bytes(4, "little")
    outer = count.to_bytes(4, "little") + bytes(header - 4) + slot * count
    outer = outer.ljust(inner_at, b"\0") + inner_bytes
    row = bytes(8) + len(outer).to_bytes(4, "little") + (16).to_bytes(4, "little") + outer
    with pytest.raises(CorruptFile, match="overlap"):
        decode_rows(pa.array([row]), [kind], with_arity=False)


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"", "too short"),
        (b"\0\0\0\2" + bytes(24), "arity is not 1"),
        (b"\0\0\0\1" + bytes(8), "too short for its columns"),
        (b"\0\0\0\1" + bytes(8) + b"\x08\0\0\0\x11\0\0\0", "beyond its row"),
        (b"\0\0\0\1" + bytes(8) + b"abcdefg\x88", "longer than 7"),
        (b"\0\0\0\1" + bytes(8) + b"\xff\xff\0\0\0\0\0\x82", "text"),
    ],
)
def test_a_malformed_row_names_the_file_and_the_reason(blob: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason) as raised:
        decode_row(blob, [parse("STRING")], "manifest-x")
    assert "manifest-x" in str(raised.value)


def test_a_decimal_beyond_its_precision_is_corrupt() -> None:
    row = encode_row([Decimal(10**17)], [parse("DECIMAL(18, 0)")])
    with pytest.raises(CorruptFile, match="decimal"):
        decode_row(row, [parse("DECIMAL(10, 0)")])


def test_nanoseconds_outside_arrows_range_are_unsupported_not_corrupt() -> None:
    row = encode_row([datetime(3000, 1, 1)], [parse("TIMESTAMP(6)")])
    with pytest.raises(UnsupportedFeature, match="1677"):
        decode_row(row, [parse("TIMESTAMP(9)")])
    near = encode_row([np.datetime64("2024-01-01T00:00:00.000000001", "ns")], [parse("TIMESTAMP(9)")])
    assert decode_row(near, [parse("TIMESTAMP(9)")]) == (np.datetime64("2024-01-01T00:00:00.000000001", "ns"),)


def test_special_floats_keep_their_bits() -> None:
    kinds = [parse("DOUBLE"), parse("FLOAT")]
    columns = [
        pa.array([float("nan"), -0.0, 0.0, float("inf")]),
        pa.array([float("-inf"), -0.0, 0.0, float("nan")], pa.float32()),
    ]
    found = decode_rows(encode_rows(columns, kinds), kinds)
    assert found[0].to_numpy().tobytes() == columns[0].to_numpy().tobytes()
    assert found[1].to_numpy().tobytes() == columns[1].to_numpy().tobytes()


def test_null_values_hide_whatever_bytes_lie_under_them() -> None:
    validity = pa.array([True, False]).buffers()[1]
    column = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.py_buffer(np.array([1, 77]).tobytes())])
    kinds = [parse("BIGINT")]
    assert encode_rows([column], kinds)[1].as_py() == encode_row([None], kinds)


def test_other_arrow_types_are_cast_and_values_that_do_not_fit_raise() -> None:
    assert encode_rows([pa.array(["a"], pa.large_string())], [parse("STRING")])[0].as_py() == encode_row(
        ["a"], [parse("STRING")]
    )
    with pytest.raises(pa.ArrowInvalid):
        encode_rows([pa.array([2**40])], [parse("INT")])
    with pytest.raises(ValueError, match="unequal"):
        encode_rows([pa.array([1]), pa.array([1, 2])], [parse("BIGINT")] * 2)


def test_rows_with_one_very_long_value_hash_as_the_reference() -> None:
    kinds = [parse("STRING")]
    texts = ["x" * 100_001, "y" * 99_000, *["short"] * 20, *["a bit longer"] * 20]
    expected = [reference.murmur(reference.row([text], kinds)) for text in texts]
    assert hash_rows([pa.array(texts)], kinds).tolist() == expected
    assert hash_words(np.zeros(0, np.uint64), np.zeros(1, np.int64)).tolist() == []


def test_dates_before_the_epoch_and_moments_round_down() -> None:
    kinds = [parse("DATE"), parse("TIMESTAMP(6)"), parse("TIMESTAMP(3)")]
    values = (date(1, 1, 1), datetime(1, 1, 1, 0, 0, 0, 1), datetime(1969, 12, 31, 23, 59, 59, 999000))
    row = encode_row(list(values), kinds)
    assert row == reference.serialised(list(values), kinds)
    assert decode_row(row, kinds) == values
