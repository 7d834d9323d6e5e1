"""A digest says what rows say: any order, any cut, any layout; and any change of a value shows."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.merge import Digest
from lsm_core.merge.digest import digest
from tests.support.samples import examples

COLUMNS = [(0, "i"), (1, "s"), (2, "d"), (3, "x")]
value = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(max_size=12) | st.text("ab\x00", min_size=120, max_size=150),
    st.none() | st.floats(),
    st.none() | st.decimals(-(10**20), 10**20, places=2),
)
rows_of = st.lists(value, min_size=1, max_size=20)


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    kinds = [pa.int64(), pa.string(), pa.float64(), pa.decimal128(30, 2)]
    return pa.table({name: pa.array([row[i] for row in rows], kinds[i]) for i, name in COLUMNS})


@given(rows_of, st.randoms(use_true_random=False), st.data())
@settings(deadline=None)
def test_order_and_cuts_do_not_matter(rows: list[tuple[object, ...]], rng: random.Random, data: st.DataObject) -> None:
    whole = digest(table(rows), COLUMNS)
    mixed = list(rows)
    rng.shuffle(mixed)
    assert digest(table(mixed), list(reversed(COLUMNS))) == whole
    cut = data.draw(st.integers(0, len(rows)))
    assert digest(table(rows[:cut]), COLUMNS).add(digest(table(rows[cut:]), COLUMNS)) == whole
    padded = table([(1, "other", 0.0, Decimal(1)), *rows])
    assert digest(padded.slice(1), COLUMNS) == whole
    assert Digest.from_text(whole.text()) == whole


@given(rows_of, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_every_changed_value_shows(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    row, column = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 3))
    new = data.draw(value)[column]
    old = rows[row][column]
    same = new == old or (isinstance(new, float) and isinstance(old, float) and math.isnan(new) and math.isnan(old))
    if isinstance(new, float) and isinstance(old, float) and new == old == 0:
        same = math.copysign(1, new) == math.copysign(1, old)
    changed = [*rows]
    changed[row] = tuple(new if i == column else v for i, v in enumerate(rows[row]))
    assert (digest(table(changed), COLUMNS) == digest(table(rows), COLUMNS)) == same


def test_swapping_two_values_between_rows_shows() -> None:
    rows = [(1, "a", 1.0, Decimal(1)), (2, "b", 2.0, Decimal(2)), (3, "a", 1.0, Decimal(1))]
    for column in range(4):
        swapped = [list(row) for row in rows]
        swapped[0][column], swapped[1][column] = swapped[1][column], swapped[0][column]
        assert digest(table([tuple(row) for row in swapped]), COLUMNS) != digest(table(rows), COLUMNS)


def test_swapping_two_columns_of_a_row_shows() -> None:
    two = [(0, "a"), (1, "b")]
    assert digest(pa.table({"a": [1], "b": [2]}), two) != digest(pa.table({"a": [2], "b": [1]}), two)
    assert digest(pa.table({"a": [-1.0], "b": [-2.0]}), two) != digest(pa.table({"a": [1.0], "b": [2.0]}), two)


def test_a_value_counts_with_its_field_id_not_its_name() -> None:
    assert digest(pa.table({"old": [1]}), [(7, "old")]) == digest(pa.table({"new": [1]}), [(7, "new")])
    assert digest(pa.table({"old": [1]}), [(7, "old")]) != digest(pa.table({"old": [1]}), [(8, "old")])


def test_null_empty_and_zero_differ() -> None:
    def of(column: pa.Array) -> Digest:
        return digest(pa.table({"c": column}), [(0, "c")])

    texts = [of(pa.array([text], pa.string())) for text in (None, "", "\x00", "\x00\x00", "a", "a\x00")]
    assert len(set(texts)) == len(texts)
    numbers = [of(pa.array([n], pa.float64())) for n in (None, 0.0, -0.0, math.nan, 1.0)]
    assert len(set(numbers)) == len(numbers)
    quiet, other = (
        pa.array([math.nan]),
        pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(b"\x01\x00\x00\x00\x00\x00\xf0\xff")]),
    )
    assert of(quiet) == of(other)


def test_layout_does_not_matter() -> None:
    texts = ["b", None, "a" * 200, ""] * 3
    plain = pa.array(texts)
    variants = [
        plain.dictionary_encode(),
        pa.chunked_array([plain.slice(0, 5), plain.slice(5)]),
        plain.cast(pa.large_string()),
    ]
    for variant in variants:
        assert digest(pa.table({"c": variant}), [(0, "c")]) == digest(pa.table({"c": plain}), [(0, "c")])
    wide, narrow = pa.array([1, -2, None]), pa.array([1, -2, None], pa.int8())
    assert digest(pa.table({"c": wide}), [(0, "c")]) == digest(pa.table({"c": narrow}), [(0, "c")])


@pytest.mark.parametrize("length", [127, 128, 129, 136, 1000, 3_000_000])
def test_every_byte_of_a_long_text_counts(length: int) -> None:
    base = bytes(range(1, 252)) * (length // 251 + 1)
    base = base[:length]
    whole = digest(pa.table({"c": pa.array([base, b"x", base], pa.binary())}), [(0, "c")])
    for at in {0, 1, length // 2, length - 9, length - 1}:
        changed = base[:at] + b"\xff" + base[at + 1 :]
        assert digest(pa.table({"c": pa.array([changed, b"x", base], pa.binary())}), [(0, "c")]) != whole
    # eight-byte words that change places count too
    moved = base[8:16] + base[:8] + base[16:]
    assert digest(pa.table({"c": pa.array([moved, b"x", base], pa.binary())}), [(0, "c")]) != whole


@pytest.mark.parametrize("width", [1, 7, 8, 9, 15, 16, 17, 36, 127, 128, 129])
def test_texts_of_one_length_count_as_they_do_among_others(width: int) -> None:
    texts = [bytes((i * 7 + at) % 256 for at in range(width)) for i in range(20)]
    even, mixed = pa.array(texts, pa.binary()), pa.array([*texts, b"of another length"], pa.binary())
    apart = [digest(pa.table({"c": part}), [(0, "c")]) for part in (even, mixed.slice(20))]
    assert apart[0].add(apart[1]) == digest(pa.table({"c": mixed}), [(0, "c")])
    fixed = digest(pa.table({"c": even.cast(pa.binary(width)).slice(3)}), [(0, "c")])
    assert fixed == digest(pa.table({"c": even.slice(3)}), [(0, "c")])


def test_numbers_without_a_sign_count_as_they_do_among_others() -> None:
    plain, odd = [0.0, 1.5, math.inf], [-0.0, -1.5, -math.inf, math.nan]
    parts = [digest(pa.table({"c": part}), [(0, "c")]) for part in (plain, odd)]
    assert parts[0].add(parts[1]) == digest(pa.table({"c": plain + odd}), [(0, "c")])


def test_many_rows_are_hashed_in_blocks_without_a_seam() -> None:
    rows = 40_000
    batch = pa.table({"i": pa.array(range(rows)), "s": pa.array([str(i) * (i % 30) for i in range(rows)])})
    columns = [(0, "i"), (1, "s")]
    parts = Digest()
    for start in range(0, rows, 7_777):
        parts = parts.add(digest(batch.slice(start, 7_777), columns))
    assert parts == digest(batch, columns)
    assert parts.rows == rows


def test_the_digest_is_the_same_in_every_version_because_ledgers_keep_it() -> None:
    rows = [(1, "a", 1.5, Decimal("1.00")), (None, None, None, None), (-1, "é" * 80, math.nan, Decimal("-2.50"))]
    assert digest(table(rows), COLUMNS).text() == "3:d904c61841a21642031f2fe43f349c81"


NESTED = pa.list_(pa.struct([("a", pa.int32()), ("m", pa.map_(pa.string(), pa.float64()))]))
NESTED_ROWS: list[object] = [
    None,
    [],
    [None],
    [{"a": 1, "m": [("x", 1.0), ("y", None)]}],
    [{"a": 1, "m": [("x", 1.0)]}, {"a": 2, "m": None}],
    [{"a": 2, "m": None}, {"a": 1, "m": [("x", 1.0)]}],
    [{"a": None, "m": [("x", 1.0)]}],
    [{"a": 1, "m": [("x", None)]}],
    [{"a": 1, "m": []}],
    [{"a": 1, "m": None}],
]


def test_nested_values_count_with_all_that_they_hold() -> None:
    def of(rows: list[object]) -> Digest:
        return digest(pa.table({"c": pa.array(rows, NESTED)}), [(3, "c")])

    assert len({of([row]).value for row in NESTED_ROWS}) == len(NESTED_ROWS)
    assert of([[{"a": 1, "m": [("y", None), ("x", 1.0)]}]]) == of([NESTED_ROWS[3]]), "a map's entries have no order"
    many = NESTED_ROWS * 3
    assert of(many) == of(list(reversed(many)))
    sliced = pa.table({"c": pa.array(many, NESTED).slice(4, 20)})
    assert digest(sliced, [(3, "c")]) == of(many[4:24])
