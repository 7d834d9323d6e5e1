"""Normalised keys and key bytes order rows exactly as Java compares them, whatever the columns are."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.arrays import text_parts
from lsm_core.errors import InvalidData, UnsupportedFeature
from lsm_core.maintenance.reference import compare_keys
from lsm_core.merge import ByteKeys, IntKeys, KeySpec, key_bytes, normalise_keys
from lsm_core.merge.keys import count_not_above, order_parts, stable_order
from tests.support.samples import examples

TEXT = st.text(st.sampled_from(["a", "b", "\x00", "\x01", "é", "\uffee", "\U0001f600"]), max_size=20)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tinyint": (pa.int8(), st.sampled_from([-128, -1, 0, 1, 127])),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), st.sampled_from([-(2**31), -1, 0, 1, 255, 256, 2**31 - 1])),
    "bigint": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "float": (
        pa.float32(),
        st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -1.5]) | st.floats(width=32),
    ),
    "double": (pa.float64(), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-300]) | st.floats()),
    "decimal": (pa.decimal128(10, 2), st.decimals(-99999999, 99999999, places=2)),
    "decimal38": (pa.decimal128(38, 3), st.decimals(Decimal(-(10**34)), Decimal(10**34), places=3)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time32("ms"), st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    "timestamp": (pa.timestamp("us"), st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))),
    "string": (pa.string(), TEXT),
    "bytes": (pa.binary(), st.binary(max_size=20)),
}


def columns_of(rows: Sequence[tuple[Any, ...]], kinds: Sequence[str]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], COLUMNS[kind][0]) for i, kind in enumerate(kinds)]


def judged(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return sorted(range(len(rows)), key=cmp_to_key(lambda a, b: compare_keys(rows[a], rows[b])))


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(COLUMNS[kind][1] for kind in kinds)), min_size=1, max_size=30))
    repeats = draw(st.lists(st.sampled_from(rows), max_size=10))
    return kinds, rows + repeats


@given(keyed_rows(), st.booleans())
@settings(max_examples=examples(250), deadline=None)
def test_normalised_keys_order_and_group_rows_as_the_judge_does(
    example: tuple[list[str], list[tuple[Any, ...]]], runs: bool
) -> None:
    kinds, rows = example
    keys = normalise_keys(columns_of(rows, kinds))
    order, same = keys.order(runs)
    wanted = judged(rows)
    assert order.tolist() == wanted
    pairs = list(itertools.pairwise(wanted))
    assert same.tolist() == [compare_keys(rows[a], rows[b]) == 0 for a, b in pairs]
    assert keys.ascending() == (wanted == list(range(len(rows))))
    scalars = [keys.scalar(i) for i in wanted]
    assert scalars == sorted(scalars)  # type: ignore[type-var]


@given(keyed_rows(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_counting_rows_up_to_a_key_agrees_with_the_judge(
    example: tuple[list[str], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    kinds, rows = example
    rows = [rows[i] for i in judged(rows)]
    keys = normalise_keys(columns_of(rows, kinds))
    at = data.draw(st.integers(0, len(rows) - 1))
    key = keys.scalar(at)
    assert keys.bisect(key, right=False) == sum(compare_keys(row, rows[at]) < 0 for row in rows)
    assert keys.bisect(key, right=True) == sum(compare_keys(row, rows[at]) <= 0 for row in rows)
    middle = len(rows) // 2
    again = type(keys).concat([keys.slice(0, middle), keys.slice(middle, len(rows))])  # type: ignore[arg-type,list-item]
    assert [again.scalar(i) for i in range(len(rows))] == [keys.scalar(i) for i in range(len(rows))]


@given(keyed_rows(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_key_bytes_of_files_order_as_the_judge_does_with_nulls_first(
    example: tuple[list[str], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    kinds, rows = example
    nulls = data.draw(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=len(rows), max_size=len(rows)))
    rows = [
        tuple(None if gone else v for v, gone in zip(row, mask, strict=False))
        for row, mask in zip(rows, nulls, strict=True)
    ]
    made = key_bytes(columns_of(rows, kinds)).to_pylist()
    for a, b in zip(range(len(rows)), judged(rows), strict=True):
        for x, y in ((a, b), (b, a)):
            assert (made[x] < made[y]) == (compare_keys(rows[x], rows[y]) < 0)
            assert (made[x] == made[y]) == (compare_keys(rows[x], rows[y]) == 0)


@given(st.sampled_from(sorted(COLUMNS)), st.booleans(), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_sequence_fields_sort_nulls_first_in_both_directions(kind: str, descending: bool, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | COLUMNS[kind][1], min_size=1, max_size=20))
    parts = order_parts(pa.array(values, COLUMNS[kind][0]), descending)
    order = np.lexsort(tuple(reversed(parts))).tolist()
    present = judged([(value,) for value in values if value is not None])
    at = [i for i, value in enumerate(values) if value is not None]
    wanted = [(values[at[i]],) for i in (reversed(present) if descending else present)]
    found = [(values[i],) for i in order]
    absent = [i for i, value in enumerate(values) if value is None]
    assert order[: len(absent)] == absent
    assert all(compare_keys(a, b) == 0 for a, b in zip(found[len(absent) :], wanted, strict=True))


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(-(2**63), 2**63 - 1)), max_size=12), st.booleans())
def test_numbers_sort_stably_whether_or_not_they_fit_beside_their_places(values: list[int], runs: bool) -> None:
    keys = IntKeys(np.array(values, np.int64))
    order, same = keys.order(runs)
    assert order.tolist() == sorted(range(len(values)), key=lambda i: values[i])
    ranked = sorted(values)
    assert same.tolist() == [a == b for a, b in itertools.pairwise(ranked)]
    assert keys.climbing() == all(a < b for a, b in itertools.pairwise(values))


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"", b"\0", b"a" * 17, b"a" * 16 + b"\0"]), max_size=20))
def test_bounds_not_above_a_key_are_counted_whatever_their_lengths(values: list[bytes]) -> None:
    middle = len(values) // 2
    bounds, searched = sorted(set(values[:middle])), values[middle:] + values[: middle // 2]
    keys = ByteKeys.of(*text_parts(pa.array(searched, pa.binary())))
    assert count_not_above(bounds, keys).tolist() == [sum(bound <= key for bound in bounds) for key in searched]


@pytest.mark.parametrize("bits", [0, 1, 16, 17, 33, 48, 64])
@pytest.mark.parametrize("distinct", [1, 40, 2_000, 1 << 20])
def test_large_batches_sort_stably_whatever_bits_differ(bits: int, distinct: int) -> None:
    random = np.random.default_rng(bits + distinct)
    values = (
        random.integers(0, 1 << 64, distinct, np.uint64) >> np.uint64(64 - bits) if bits else np.zeros(1, np.uint64)
    )
    values = random.choice(values, 5_000) ^ np.uint64(0xABCD << 40)
    expected = np.argsort(values, kind="stable")
    assert (stable_order(values) == expected).all()
    tail = random.integers(0, 3, len(values)).astype(np.uint8)
    matrix = np.hstack([values.astype(">u8").view(np.uint8).reshape(-1, 8), tail[:, None]])
    keys = ByteKeys.of(matrix.reshape(-1), np.arange(len(values)) * 9, np.full(len(values), 9))
    order, same = keys.order(sorted_runs=False)
    assert (order == np.lexsort((tail, values))).all()
    ranked = matrix[order]
    assert (same == (ranked[1:] == ranked[:-1]).all(axis=1)).all()


def test_trailing_zero_bytes_tell_keys_apart() -> None:
    keys = normalise_keys([pa.array(["b", "a\x00", "a", "a\x00\x00", "", "\x00"])])
    order, same = keys.order()
    assert order.tolist() == [4, 5, 2, 1, 3, 0]
    assert not same.any()


@pytest.mark.parametrize("kind", ["tinyint", "bigint", "date", "timestamp", "decimal", "double", "boolean"])
def test_one_narrow_column_compares_as_a_number(kind: str) -> None:
    assert isinstance(normalise_keys([pa.array([], COLUMNS[kind][0])]), IntKeys)
    assert isinstance(normalise_keys([pa.array([], COLUMNS[kind][0]), pa.array([], pa.string())]), ByteKeys)


def test_sliced_chunked_and_dictionary_columns_give_the_same_keys() -> None:
    plain = pa.array(["x", "aa", "b", "ccc"])
    for column in (
        plain,
        plain.dictionary_encode(),
        pa.chunked_array([plain.slice(0, 1), plain.slice(1)]),
        plain.cast(pa.large_string()),
    ):
        keys = normalise_keys([column])
        assert [keys.scalar(i) for i in range(4)] == [b"x", b"aa", b"b", b"ccc"]
    sliced = normalise_keys([plain.slice(1, 2), pa.array([1, 2, 3, 4], pa.int32()).slice(1, 2)])
    whole = normalise_keys([plain, pa.array([1, 2, 3, 4], pa.int32())])
    assert [sliced.scalar(i) for i in range(2)] == [whole.scalar(i) for i in (1, 2)]


def test_types_without_an_order_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="list<"):
        normalise_keys([pa.array([[1]])])
    with pytest.raises(UnsupportedFeature, match="struct<"):
        key_bytes([pa.array([{"a": 1}])])


def test_a_null_key_is_named() -> None:
    with pytest.raises(InvalidData, match=r"table db\.t, column 'b'"):
        KeySpec(("a", "b"), table="db.t").keys(pa.table({"a": [1], "b": pa.array([None], pa.string())}))
