"""Arrays: chunks, buffers and ragged slices agree with plain Python, for slices and for nulls alike."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.arrays import (
    big_endian_digits,
    decimal_limbs,
    limbs_from_big_endian,
    null_mask,
    offsets_from,
    one_array,
    places_within,
    slice_places,
    text_parts,
    valid_mask,
    values_of,
)

PARTS = st.lists(st.lists(st.none() | st.binary(max_size=5), max_size=6), max_size=4)


@given(PARTS)
def test_chunks_become_one_array(parts: list[list[bytes | None]]) -> None:
    column = pa.chunked_array([pa.array(part, pa.binary()) for part in parts], pa.binary())
    found = one_array(column)
    assert isinstance(found, pa.Array)
    assert found.to_pylist() == [value for part in parts for value in part]
    assert one_array(found) is found


def test_one_chunk_is_not_copied_and_another_type_is_cast_safely() -> None:
    array = pa.array(range(100), pa.int32())
    assert one_array(pa.chunked_array([array])).buffers()[1].address == array.buffers()[1].address
    assert one_array(array, pa.int64()).type == pa.int64()
    with pytest.raises(pa.ArrowInvalid):
        one_array(pa.array([300]), pa.int8())


@given(st.lists(st.none() | st.binary(max_size=9), max_size=20), st.data())
def test_buffers_of_slices_are_their_own(values: list[bytes | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    array, left = pa.array(values, pa.binary()).slice(start), values[start:]
    raw, starts, lengths = text_parts(array)
    assert [raw[at : at + size].tobytes() for at, size in zip(starts, lengths, strict=True)] == [v or b"" for v in left]
    missing = [v is None for v in left]
    mask, valid = null_mask(array), valid_mask(array)
    assert (mask is None) == (valid is None) == (not any(missing))
    assert mask is None or mask.tolist() == missing
    numbers = pa.array(range(len(values)), pa.int32()).slice(start)
    assert values_of(numbers, "<i4").tolist() == list(range(start, len(values)))


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), max_size=9))
def test_ragged_slices_are_pythons(slices: list[tuple[int, int]]) -> None:
    starts, counts = (np.array([pair[i] for pair in slices], np.int64) for i in range(2))
    assert slice_places(starts, counts).tolist() == [at + i for at, size in slices for i in range(size)]
    assert places_within(counts).tolist() == [i for _, size in slices for i in range(size)]
    assert offsets_from(counts).tolist() == [sum(counts[:i]) for i in range(len(counts) + 1)]
    assert offsets_from(counts > 2).tolist() == [sum(counts[:i] > 2) for i in range(len(counts) + 1)]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=9))
def test_decimals_take_the_bytes_that_java_gives_them_and_come_back(numbers: list[int]) -> None:
    array = pa.array([decimal.Decimal(n) for n in numbers], pa.decimal128(38, 0))
    digits, sizes = big_endian_digits(*decimal_limbs(array))
    ends = 16 * np.arange(1, len(numbers) + 1, dtype=np.int64)
    for number, end, size in zip(numbers, ends, sizes, strict=True):
        shortest = (number + (number < 0)).bit_length() // 8 + 1  # BigInteger.toByteArray
        assert digits[end - size : end].tobytes() == number.to_bytes(shortest, "big", signed=True)
    limbs = limbs_from_big_endian(digits, ends - sizes, sizes)
    again = pa.Array.from_buffers(array.type, len(numbers), [None, pa.py_buffer(limbs)])
    assert again.equals(array)
