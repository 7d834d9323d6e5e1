"""Curves for clustering: in the order of the values, as a plain reference says and, where that is sound, as Java's bytes say."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Sequence
from functools import cache, cmp_to_key
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import UnsupportedFeature
from lsm_core.maintenance.reference import compare_keys
from lsm_core.merge.curves import (
    HILBERT,
    ORDER,
    STRATEGIES,
    ZORDER,
    Curve,
    Scale,
    hilbert_transposed,
    interleaved,
    ordered_bytes,
    sortable,
)
from lsm_core.types import DataType, TypeRoot, parse
from tests.merge.test_sort_key import COLUMNS
from tests.support.samples import examples
from tests.types.java_values import array_of


def keys_of(columns: Sequence[pa.Array], strategy: str, text_bytes: int = 8) -> list[bytes]:
    names = [f"c{i}" for i in range(len(columns))]
    keys = Curve(tuple(names), strategy, text_bytes).keys(pa.table(list(columns), names))
    return [keys.scalar(row) for row in range(len(keys))]


def compare_with_nulls(a: Sequence[Any], b: Sequence[Any]) -> int:
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            if (x is None) != (y is None):
                return -1 if x is None else 1
        elif found := compare_keys((x,), (y,)):
            return found
    return 0


@st.composite
def rows_with_nulls(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    values = st.tuples(*(st.none() | COLUMNS[kind][1] for kind in kinds))
    return kinds, draw(st.lists(values, min_size=1, max_size=25))


# -- the scalar reference ------------------------------------------------------------------------------------------------


def zorder_by_bits(parts: Sequence[bytes]) -> bytes:
    """Bit by bit, column by column."""
    texts = [f"{int.from_bytes(part, 'big'):0{8 * len(part)}b}" for part in parts]
    longest = max(map(len, texts))
    bits = "".join(text[i] for i in range(longest) for text in texts if i < len(text))
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def hilbert_by_numbers(point: Sequence[int], bits: int) -> int:
    """Distance along the curve: Skilling's inverse of the transform, row by row as his paper has it."""
    x, n = list(point), len(point)
    q = 1 << (bits - 1)
    while q > 1:
        for i in range(n):
            if x[i] & q:
                x[0] ^= q - 1
            else:
                t = (x[0] ^ x[i]) & (q - 1)
                x[0], x[i] = x[0] ^ t, x[i] ^ t
        q >>= 1
    for i in range(1, n):
        x[i] ^= x[i - 1]
    t, q = 0, 1 << (bits - 1)
    while q > 1:
        if x[n - 1] & q:
            t ^= q - 1
        q >>= 1
    x = [value ^ t for value in x]
    return int("".join(f"{value:0{bits}b}"[i] for i in range(bits) for value in x), 2)


# -- tests ---------------------------------------------------------------------------------------------------------------


@given(rows_with_nulls())
@settings(max_examples=examples(150))
def test_order_is_the_order_of_the_columns_with_nulls_first(case: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    kinds, rows = case
    columns = [pa.array([row[i] for row in rows], COLUMNS[kind][0]) for i, kind in enumerate(kinds)]
    keys = keys_of(columns, ORDER)
    judged = sorted(range(len(rows)), key=cmp_to_key(lambda a, b: compare_with_nulls(rows[a], rows[b])))
    for item, following in itertools.pairwise(judged):
        found = compare_with_nulls(rows[item], rows[following])
        assert keys[item] < keys[following] if found else keys[item] == keys[following]


@pytest.mark.parametrize("kind", sorted(COLUMNS))
@given(data=st.data())
@settings(max_examples=examples(30))
def test_bytes_of_a_column_ascend_with_its_values(kind: str, data: st.DataObject) -> None:
    arrow, values = COLUMNS[kind]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=20))
    width = data.draw(st.sampled_from([1, 7, 8, 9, 20]))
    matrix = ordered_bytes(pa.array(rows, arrow), width)
    assert matrix.shape == (len(rows), width if kind in ("string", "bytes") else 8)
    found = [matrix[row].tobytes() for row in range(len(rows))]
    for a, b in itertools.combinations(range(len(rows)), 2):
        judged = compare_with_nulls((rows[a],), (rows[b],))
        assert judged * ((found[a] > found[b]) - (found[a] < found[b])) >= 0
        if not judged:
            assert found[a] == found[b]


@given(rows_with_nulls(), st.sampled_from([3, 8, 13]))
@settings(max_examples=examples(100))
def test_curves_are_those_of_the_scalar_reference(case: tuple[list[str], list[tuple[Any, ...]]], width: int) -> None:
    kinds, rows = case
    columns = [pa.array([row[i] for row in rows], COLUMNS[kind][0]) for i, kind in enumerate(kinds)]
    parts = [ordered_bytes(column, width) for column in columns]
    expected = [zorder_by_bits([part[row].tobytes() for part in parts]) for row in range(len(rows))]
    assert keys_of(columns, ZORDER, width) == expected
    words = [ordered_bytes(column) for column in columns]
    points = [[int.from_bytes(part[row].tobytes(), "big") for part in words] for row in range(len(rows))]
    distances = [hilbert_by_numbers(point, 64).to_bytes(8 * len(kinds), "big") for point in points]
    assert keys_of(columns, HILBERT, width) == distances


@given(rows_with_nulls(), st.sampled_from([1, 8, 13]), st.data())
@settings(max_examples=examples(100))
def test_scaled_curves_are_those_of_the_scalar_reference(
    case: tuple[list[str], list[tuple[Any, ...]]], width: int, data: st.DataObject
) -> None:
    """The curve of the places (shares of the sample below each value), then the values column by column."""
    kinds, rows = case
    sample = [[row[i] for row in data.draw(st.lists(st.sampled_from(rows), max_size=12))] for i in range(len(kinds))]
    columns = [pa.array([row[i] for row in rows], COLUMNS[kind][0]) for i, kind in enumerate(kinds)]
    scales = [Scale.of(pa.array(values, COLUMNS[kind][0])) for kind, values in zip(kinds, sample, strict=True)]
    texts = [ordered_bytes(column, width) for column in columns]
    names = tuple(f"c{i}" for i in range(len(kinds)))
    table = pa.table(columns, list(names))
    for strategy in (ZORDER, HILBERT):
        keys = Curve(names, strategy, width if strategy == ZORDER else 8, tuple(scales)).keys(table)
        parts = texts if strategy == ZORDER else [ordered_bytes(column) for column in columns]
        places = [scale.places(column).tolist() for scale, column in zip(scales, columns, strict=True)]
        for row in range(len(rows)):
            point = [place[row] for place in places]
            if strategy == ZORDER:
                head = zorder_by_bits([number.to_bytes(2, "big") for number in point])
            else:
                head = hilbert_by_numbers(point, 16).to_bytes(2 * len(kinds), "big")
            assert keys.scalar(row) == head + b"".join(part[row].tobytes() for part in parts)


@given(
    st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=60),
    st.integers(0, 3),
    st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=30),
    st.integers(0, 60),
)
def test_ranks_count_the_smaller_values_of_the_sample(
    sample: list[int], nulls: int, values: list[int], shift: int
) -> None:
    """Wherever the values are dense: many values in one cell of the table, or few."""
    words = np.sort(np.array(sample, np.uint64) >> np.uint64(shift))
    looked_up = np.array([*values, *sample], np.uint64) >> np.uint64(shift)
    valid = np.arange(len(looked_up)) % 5 != 3
    ranks = Scale(nulls, words).ranks(looked_up, valid).tolist()
    listed = words.tolist()
    expected = [sum(x < v for x in listed) for v in looked_up.tolist()]
    assert ranks == [rank if ok else len(words) + 1 for rank, ok in zip(expected, valid.tolist(), strict=True)]


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 5), (3, 3), (4, 2)])
def test_a_hilbert_curve_visits_every_point_and_steps_to_a_neighbour(dimensions: int, bits: int) -> None:
    points = np.array(list(itertools.product(range(1 << bits), repeat=dimensions)), np.uint64)
    moved = hilbert_transposed([np.ascontiguousarray(axis) for axis in points.T], bits)
    by_bit = [(axis >> np.uint64(bit)) & np.uint64(1) for bit in range(bits - 1, -1, -1) for axis in moved]
    distance = np.zeros(len(points), np.int64)
    for bit in by_bit:
        distance = distance * 2 + bit.astype(np.int64)
    assert sorted(distance) == list(range(len(points)))
    walk = points[np.argsort(distance)].astype(np.int64)
    assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()


def test_a_column_without_bits_left_is_passed_over() -> None:
    wide, narrow = np.array([[0b10101010, 0b11001100]], np.uint8), np.array([[0b11110000]], np.uint8)
    assert interleaved([wide, narrow]).tobytes() == bytes([0b11011101, 0b10001000, 0b11001100])


def boxes_hit(keys: list[bytes], columns: Sequence[np.ndarray], files: int, column: int, width: float) -> int:
    """Of ``files`` equally long stretches along the curve: how many reach into a narrow range of one column."""
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
    return sum(
        bool(part.min() <= 0.5 + width and part.max() >= 0.5) for part in np.array_split(columns[column][order], files)
    )


def test_curves_keep_rows_together_in_every_column_where_order_does_so_in_the_first_alone() -> None:
    random = np.random.default_rng(5)
    columns = [random.random(20_000) for _ in range(2)]
    arrays = [pa.array((values * 1e6).astype(np.int64)) for values in columns]
    hits = {
        strategy: [boxes_hit(keys_of(arrays, strategy), columns, 64, column, 0.01) for column in range(2)]
        for strategy in STRATEGIES
    }
    assert hits[ORDER][0] <= 3 and hits[ORDER][1] == 64
    for strategy in (ZORDER, HILBERT):
        assert max(hits[strategy]) <= 64 // 4


@pytest.mark.parametrize("kind", sorted(COLUMNS))
@given(data=st.data())
@settings(max_examples=examples(30))
def test_places_ascend_with_the_values_also_of_those_that_no_sample_saw(kind: str, data: st.DataObject) -> None:
    arrow, values = COLUMNS[kind]
    start = data.draw(st.sampled_from(["", "a", "https://a.example/"]))
    if kind in ("string", "bytes"):
        values = values.map(lambda v: start + v if isinstance(v, str) else start.encode() + v) | values
    sample, rows = (data.draw(st.lists(st.none() | values, max_size=20)) for _ in range(2))
    places = Scale.of(pa.array(sample, arrow)).places(pa.array(rows, arrow))
    assert (places <= 65535).all()
    for a, b in itertools.combinations(range(len(rows)), 2):
        judged = compare_with_nulls((rows[a],), (rows[b],))
        assert judged * (int(places[a]) - int(places[b])) >= 0
    assert all((rows[i] is None) == (places[i] == 0) for i in range(len(rows)))


def test_places_are_the_share_of_rows_below_whatever_the_values_are() -> None:
    random = np.random.default_rng(2)
    skewed = pa.array(np.where(random.random(50_000) < 0.5, 7.0, np.exp(random.random(50_000) * 50)))
    places = Scale.of(skewed.slice(0, 10_000)).places(skewed)
    ranked = np.argsort(np.argsort(skewed.to_numpy(), kind="stable"), kind="stable") / 50_000
    above = skewed.to_numpy() > 7.0
    assert np.abs(places[above] / 65535 - ranked[above]).max() < 0.03


@pytest.mark.parametrize("strategy", [ZORDER, HILBERT])
def test_columns_of_any_range_and_type_count_alike_once_a_sample_is_known(strategy: str) -> None:
    random = np.random.default_rng(5)
    columns = [random.random(20_000) for _ in range(3)]
    texts = np.char.add("https://www.example.com/", (columns[2] * 1e6).astype(int).astype("U9"))
    columns[2] = np.argsort(np.argsort(texts)) / len(texts)
    rows = pa.table({"n": (columns[0] * 900).astype(np.int32), "x": columns[1] * 1e9, "url": pa.array(texts.tolist())})
    plain = Curve(("n", "x", "url"), strategy)
    fitted = plain.scaled(rows.slice(0, 5_000))
    hits = {}
    for name, curve in (("plain", plain), ("fitted", fitted)):
        keys = curve.keys(rows)
        listed = [keys.scalar(row) for row in range(len(keys))]
        hits[name] = [boxes_hit(listed, columns, 512, column, 0.01) for column in range(3)]
    assert max(hits["plain"]) > 400
    assert max(hits["fitted"]) < 512 // 4


def test_types_without_order_are_told() -> None:
    assert sortable(pa.int8()) and sortable(pa.decimal128(38, 2)) and sortable(pa.large_string())
    for kind in (pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.map_(pa.int8(), pa.int8())):
        assert not sortable(kind)
    for strategy in STRATEGIES:
        with pytest.raises(UnsupportedFeature, match="ordering by"):
            keys_of([pa.array([[1]])], strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_rows_and_many_rows(strategy: str) -> None:
    assert keys_of([pa.array([], pa.int64()), pa.array([], pa.string())], strategy) == []
    numbers = pa.array(np.arange(40_000))  # more than a block
    keys = keys_of([numbers, pa.nulls(40_000, pa.int32())], strategy)
    assert len(set(keys)) == 40_000
    if strategy != HILBERT:
        assert keys == sorted(keys)


# -- Java ----------------------------------------------------------------------------------------------------------------


@cache
def vectors() -> list[dict[str, Any]]:
    text = gzip.decompress(Path(__file__).with_name("curve_vectors.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def differs_in(kind: DataType) -> str:
    """Where our bytes of a column are not Java's: nowhere (""), below the upper 31 bits, or everywhere."""
    if kind.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return "low bits"
    instant = kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
    return "all" if kind.root is TypeRoot.DECIMAL or (instant and (kind.precision or 6) > 3) else ""


def test_zorder_is_byte_for_byte_that_of_java_but_where_java_loses_the_order() -> None:
    compared = 0
    for vector in vectors():
        kinds = [parse(kind) for kind in vector["types"]]
        if any(differs_in(kind) == "all" for kind in kinds):
            continue
        columns = [array_of([row[i] for row in vector["rows"]], kind) for i, kind in enumerate(kinds)]
        ours = keys_of(columns, ZORDER, vector["text_bytes"])
        bits = [8 * ordered_bytes(column, vector["text_bytes"]).shape[1] for column in columns]
        upper = sum(min(31, count) for count in bits) if any(map(differs_in, kinds)) else None
        for row, key, java in zip(vector["rows"], ours, vector["zorder"], strict=True):
            if any(value is False for value in row):
                continue
            mine, theirs = (f"{int.from_bytes(b, 'big'):0{8 * len(b)}b}" for b in (key, bytes.fromhex(java)))
            assert mine[:upper] == theirs[:upper], f"{kinds}: {row}"
            compared += 1
    assert compared > 600


def test_hilbert_is_the_transform_of_java() -> None:
    """Java takes 63 bits of numbers that are not negative; the same points give the same distance."""
    compared = 0
    for vector in vectors():
        if any(kind not in ("SMALLINT", "INT", "BIGINT") for kind in vector["types"]):
            continue
        for row, java in zip(vector["rows"], vector["hilbert"], strict=True):
            if len(row) < 2 or not java or any(value is None or value < 0 for value in row):
                continue
            expected = int.from_bytes(bytes.fromhex(java), "big")
            assert hilbert_by_numbers(row, 63) == expected
            moved = hilbert_transposed([np.array([value], np.uint64) for value in row], 63)
            bits = "".join(f"{int(axis[0]):063b}"[i] for i in range(63) for axis in moved)
            assert int(bits, 2) == expected
            compared += 1
    assert compared > 50


def test_java_takes_minus_one_for_the_largest_number_and_for_null_on_the_hilbert_curve() -> None:
    """Why its coordinates are not copied."""
    (vector,) = [v for v in vectors() if v["types"] == ["BIGINT", "BIGINT"]]
    java = {tuple(row): key for row, key in zip(vector["rows"], vector["hilbert"], strict=True)}
    assert java[-1, -1] == java[None, None] > java[0, 0]
    ours = [keys_of([pa.array([v], pa.int64())] * 2, HILBERT)[0] for v in (None, -1, 0)]
    assert len(set(ours)) == 3
