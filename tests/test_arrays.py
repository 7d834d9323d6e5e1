"""Arrays: chunks, buffers and ragged slices agree with plain Python, for slices and for nulls alike."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core import arrays
from lsm_core.arrays import (
    arrow_array,
    arrow_scalar,
    big_endian_digits,
    chosen_rows,
    decimal_limbs,
    empty_table,
    limbs_from_big_endian,
    null_mask,
    numpy_array,
    offsets_from,
    one_array,
    places_within,
    slice_places,
    text_parts,
    valid_mask,
    values_of,
)


@pytest.fixture(autouse=True, scope="module", params=["no such module", "sys"])
def pandas(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests without pandas, and as in a process that has imported it, where Arrow makes all arrays of objects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_PANDAS", request.param)
        yield


_RECORD = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string())), ("c", pa.struct([("d", pa.binary())]))])
_VALUES: dict[pa.DataType, Any] = {
    pa.int8(): st.integers(-130, 130),
    pa.int32(): st.integers(-(2**31), 2**31),
    pa.int64(): st.integers(-(2**64), 2**64) | st.floats(allow_nan=False),
    pa.uint16(): st.integers(-1, 2**16),
    pa.float64(): st.floats() | st.sampled_from((0, -0.0, True)),
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans() | st.just(1),
    pa.string(): st.text(st.characters(), max_size=5) | st.just(b"b") | st.just("\ud800"),
    pa.binary(): st.binary(max_size=5) | st.just("text"),
    pa.large_string(): st.text(max_size=3),
    pa.date32(): st.dates() | st.datetimes() | st.integers(0, 5),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(9, 2): st.sampled_from((decimal.Decimal("1.25"), decimal.Decimal("1.255"))),
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(-3, 3), max_size=3) | st.tuples(st.integers(0, 3)),
    pa.list_(pa.list_(pa.string())): st.lists(st.lists(st.none() | st.text(max_size=2), max_size=2), max_size=2),
    _RECORD: st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 5)},
        optional={
            "b": st.none() | st.lists(st.text(max_size=2), max_size=2),
            "c": st.none() | st.fixed_dictionaries({"d": st.binary(max_size=2)}),
            "other": st.just(1),
        },
    ),
}


def _made(make: Any, *given: Any) -> Any:
    """What comes out, or the kind of the error."""
    try:
        return make(*given)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return type(error)


@given(st.data())
def test_arrays_of_objects_are_those_that_arrow_makes(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(_VALUES)))
    some = st.none() | _VALUES[kind] if data.draw(st.booleans()) else _VALUES[kind]
    values = data.draw(st.lists(some, max_size=6))
    for given_values in (values, tuple(values)):
        expected, found = _made(pa.array, given_values, kind), _made(arrow_array, given_values, kind)
        _same(found, expected)
        _same(_made(arrow_array, given_values), _made(pa.array, given_values))
    for value in values:
        _same(_made(arrow_scalar, value, kind), _made(pa.scalar, value, kind))
        _same(_made(arrow_scalar, value), _made(pa.scalar, value))


def _same(found: Any, expected: Any) -> None:
    if isinstance(expected, pa.Array):
        found.validate(full=True)
        # As bytes: NaN is not NaN, and the two zeros are one.
        assert repr(found.to_pylist()) == repr(expected.to_pylist()) and found.type == expected.type
        assert found.null_count == expected.null_count
    elif isinstance(expected, pa.Scalar):
        assert repr(found.as_py()) == repr(expected.as_py()) and found.type == expected.type
    else:
        assert found is expected


@pytest.mark.parametrize(
    "name", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64", "bool", ">i4"]
)
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("kind", [None, pa.int64(), pa.float64(), pa.bool_()])
def test_arrays_of_numpy_are_those_that_arrow_makes_and_come_back(
    name: str, step: int, kind: pa.DataType | None
) -> None:
    values = np.array([0, 1, 100, 5, 0, 7, 1, 3, 9, 2, 1], name)[::step]
    mask = np.arange(len(values)) % 3 == 1
    for nulls in (None, mask):
        expected = _made(lambda: pa.array(values, kind, mask=nulls))  # noqa: B023
        found = _made(lambda: arrow_array(values, kind, mask=nulls))  # noqa: B023
        _same(found, expected)
        if not isinstance(expected, pa.Array):
            continue
        for column in (found, found.slice(2), found.slice(0, 0), pa.chunked_array([found, found.slice(3)], found.type)):
            as_numpy, wanted = numpy_array(column), column.to_numpy(zero_copy_only=False)
            assert as_numpy.dtype == wanted.dtype and repr(as_numpy.tolist()) == repr(wanted.tolist())
    assert numpy_array(pa.array(["a"])).tolist() == ["a"]
    assert numpy_array(pa.chunked_array([], pa.int32())).dtype == np.int32


def test_masked_and_two_dimensional_arrays_are_left_to_arrow() -> None:
    assert arrow_array(np.ma.masked_array([1, 2], [True, False])).to_pylist() == [None, 2]
    with pytest.raises(pa.ArrowInvalid, match="1-dimensional"):
        arrow_array(np.zeros((2, 2)))


def test_numbers_of_numpy_are_not_copied() -> None:
    values = np.arange(5)
    array = arrow_array(values)
    values[0] = 7
    assert array[0].as_py() == 7 and np.shares_memory(numpy_array(array), values)


def test_a_table_without_rows_has_a_chunk_of_each_type() -> None:
    schema = pa.schema(
        [pa.field("a", pa.int8(), nullable=False), ("b", _RECORD), ("c", pa.dictionary(pa.int32(), pa.string()))]
    )
    found = empty_table(schema)
    assert (
        found.schema == schema and found.num_rows == 0 and [column.num_chunks for column in found.columns] == [1, 1, 1]
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


def test_rows_are_copied_only_where_that_frees_memory() -> None:
    wide = pa.array(["a" * 5_000, None, "b" * 5_000])
    batch = pa.record_batch({"k": [1, 2, 3], "v": wide})
    every = pa.array([0, 1, 2])
    assert chosen_rows(batch, every) is batch and chosen_rows(wide, every) is wide
    assert chosen_rows(batch, pa.array([0, 2])).equals(batch.take([0, 2]))
    part = pa.array(["c" * 5_000] * 100).slice(40, 3)
    copied = chosen_rows(part, every)
    assert copied.equals(part) and copied.get_total_buffer_size() < part.get_total_buffer_size() / 10
