"""Streams of rows have one hash a column however they are cut, and another for any other value, order or null."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.compact.row_digests import OutputDigest, RowGroupDigest, Streams
from lsm_core.compact.task import BucketTask
from lsm_core.metadata.store import TableStore
from tests.support.stores import make_store

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("y", pa.binary()),
        ("d", pa.decimal128(20, 2)),
        ("t", pa.timestamp("us")),
        ("n", pa.timestamp("ns")),
    ]
)
VALUES = st.tuples(
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.floats(),
    st.none() | st.floats(width=32),
    st.none() | st.booleans(),
    st.none() | st.text(max_size=20),
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(-(10**18), 10**18).map(lambda n: Decimal(n) / 100),
    st.none() | st.integers(-(2**50), 2**50),
    st.none() | st.integers(-(2**60), 2**60),
)


def table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SCHEMA)]
    return pa.table(columns, schema=SCHEMA)


def streams(batches: Sequence[pa.RecordBatch]) -> Streams:
    made = Streams(SCHEMA.names)
    for batch in batches:
        made.add(batch)
    return made


@given(st.lists(VALUES, max_size=40), st.integers(1, 9), st.integers(1, 9))
def test_the_cut_and_a_file_between_do_not_count(rows: list[tuple[object, ...]], cut: int, group: int) -> None:
    whole = table(rows)
    file = io.BytesIO()
    stored = whole.cast(pa.schema([SCHEMA.field(n) if n != "n" else pa.field("n", pa.int64()) for n in SCHEMA.names]))
    pq.write_table(stored, file, row_group_size=group, use_dictionary=["s", "f"])
    back = pq.read_table(file).cast(SCHEMA)
    first, second = streams(whole.to_batches(max_chunksize=cut)), streams(back.to_batches())
    assert first.differing(second) == []
    assert first.rows == second.rows == len(rows)


@given(st.lists(VALUES, min_size=1, max_size=20), st.data())
def test_any_change_is_seen_in_its_column(rows: list[tuple[object, ...]], data: st.DataObject) -> None:
    place, row = data.draw(st.integers(0, len(SCHEMA) - 1)), data.draw(st.integers(0, len(rows) - 1))
    changed = list(rows)
    changed[row] = (*rows[row][:place], data.draw(VALUES)[place], *rows[row][place + 1 :])
    before, after = table(rows), table(changed)
    wanted = [] if same(before.column(place), after.column(place)) else [SCHEMA.names[place]]
    assert streams(before.to_batches()).differing(streams(after.to_batches())) == wanted


def same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Equal values, NaN with NaN, but 0.0 and -0.0 are two."""
    return [repr(value) for value in one.to_pylist()] == [repr(value) for value in other.to_pylist()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2], [2, 1]),
        ([None, 1], [1, None]),
        ([0, None], [None, 0]),
        ([0], [None]),
        ([1, None], [1]),
    ],
)
def test_order_and_nulls_count(one: list[int | None], other: list[int | None]) -> None:
    made = [Streams(["i"]), Streams(["i"])]
    for stream, values in zip(made, (one, other), strict=True):
        stream.add(pa.record_batch({"i": pa.array(values, pa.int64())}))
    assert made[0].differing(made[1]) == ["i"] or made[0].rows != made[1].rows


@pytest.mark.parametrize(("one", "other"), [(["ab", "c"], ["a", "bc"]), (["", None], [None, ""])])
def test_texts_with_the_same_letters_differ(one: list[str | None], other: list[str | None]) -> None:
    made = [Streams(["s"]), Streams(["s"])]
    for stream, values in zip(made, (one, other), strict=True):
        stream.add(pa.record_batch({"s": pa.array(values)}))
    assert made[0].differing(made[1]) == ["s"]


def test_what_lies_under_nulls_and_which_nan_do_not_count() -> None:
    mask = np.array([False, True, False])
    made = [Streams(["f"]), Streams(["f"])]
    for stream, hidden, bits in zip(made, (1.0, 2.0), (0x7FF8000000000000, 0xFFF8000000000001), strict=True):
        values = np.array([0.5, hidden, np.uint64(bits).view(np.float64)])
        valid = pa.py_buffer(np.packbits(~mask, bitorder="little"))
        stream.add(pa.record_batch({"f": pa.Array.from_buffers(pa.float64(), 3, [valid, pa.py_buffer(values)])}))
    assert made[0].differing(made[1]) == []


def test_only_what_keeps_every_bit_is_compared_so(tmp_path: Path) -> None:
    def groups(store: TableStore, level: int, values: dict[str, pa.Array]) -> list[RowGroupDigest] | None:
        digests = OutputDigest(store, BucketTask(b"", 0, 1, ()), level)
        digests.add(pa.record_batch({"k": pa.array([1], pa.int32()), **values}))
        digests.finish([1])
        return digests.groups

    flat = {"k": "INT NOT NULL", "v": "DECIMAL(30, 2)"}
    number = {"v": pa.array([None], pa.decimal128(30, 2))}
    (exact,) = groups(make_store(tmp_path / "a", flat, ["k"], (), {"bucket": "1"}), 5, number) or ()
    assert exact.streams is not None
    orc = make_store(tmp_path / "b", flat, ["k"], (), {"bucket": "1", "file.format.per.level": "5:orc"})
    assert groups(orc, 5, number) is None
    (low,) = groups(orc, 0, number) or ()
    assert low.streams is not None
    nested = make_store(tmp_path / "c", {**flat, "a": "ARRAY<INT>"}, ["k"], (), {"bucket": "1"})
    (loose,) = groups(nested, 5, {**number, "a": pa.array([[1]], pa.list_(pa.int32()))}) or ()
    assert loose.streams is None and loose.content is not None


def _coded(batches: Sequence[pa.Array]) -> Streams:
    made = Streams(["s"], ["s"])
    for column in batches:
        made.add(pa.RecordBatch.from_arrays([column], ["s"]))
    return made


TEXTS = ["b", None, "", "a", "b", "long " * 40, None, "a", "é", "b"]


def test_texts_hashed_by_values_do_not_depend_on_their_dictionaries_or_batches() -> None:
    plain = pa.array(TEXTS)
    unordered = pa.array(["a", "unused", "b", "é", "", "long " * 40, "a"])
    codes = pa.array([2, None, 4, 0, 2, 5, None, 6, 3, 2], pa.int32())
    whole = _coded([plain])
    assert not _coded([plain.dictionary_encode()]).differing(whole)
    other = pa.DictionaryArray.from_arrays(codes, unordered)
    assert not _coded([other]).differing(whole)
    assert not _coded([other.slice(0, 3), plain.slice(3, 2), plain.slice(5).dictionary_encode()]).differing(whole)


@pytest.mark.parametrize("row", range(len(TEXTS)))
@pytest.mark.parametrize("text", ["a", "", None, "new"])
def test_texts_hashed_by_values_differ_if_any_value_or_null_differs(row: int, text: str | None) -> None:
    changed = [*TEXTS[:row], text, *TEXTS[row + 1 :]]
    differing = _coded([pa.array(changed).dictionary_encode()]).differing(_coded([pa.array(TEXTS).dictionary_encode()]))
    assert differing == ([] if changed == TEXTS else ["s"])


def test_texts_hashed_by_values_differ_in_another_order() -> None:
    assert _coded([pa.array(["a", "b"])]).differing(_coded([pa.array(["b", "a"])])) == ["s"]
