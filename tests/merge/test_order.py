"""The newest version of each key, found without ordering: the same as ordering finds, or not found that way at all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND, DataField, TableSchema
from lsm_core.merge.keys import ByteKeys, KeySpec
from lsm_core.merge.rows import Piece, Rows, merge_order, newest_versions
from lsm_core.types import parse
from tests.support.samples import examples

_FIELDS = (
    DataField(0, "id", parse("BIGINT NOT NULL")),
    DataField(1, "at", parse("INT")),
    DataField(2, "weight", parse("DOUBLE")),
    DataField(3, "note", parse("STRING")),
)
_SCHEMA = TableSchema(0, _FIELDS, 3, primary_keys=("id",))
_SPEC = KeySpec.of(_SCHEMA, (), descending=False, table="t")
_BY_FIELDS = [
    KeySpec.of(_SCHEMA, names, descending=descending, table="t")
    for names in (("at",), ("at", "weight"), ("weight",))
    for descending in (False, True)
]


def _piece(keys: list[int], numbers: list[int], age: int, *, with_numbers: bool = True) -> Piece:
    columns = {"id": pa.array(keys, pa.int64()), "_KEY_id": pa.array(keys, pa.int64())}
    if with_numbers:
        columns[SEQUENCE_NUMBER] = pa.array(numbers, pa.int64())
    batch = pa.RecordBatch.from_pydict({**columns, VALUE_KIND: pa.array([0] * len(keys), pa.int8())})
    return Piece(batch, _SPEC.keys(batch), 0, age)


@st.composite
def _runs(draw: st.DrawFn) -> list[Piece]:
    """Sorted runs, mostly in the order of their sequence numbers; now and then a lone row first, as a window carries one."""
    base, width = draw(st.sampled_from([0, -7, 2**62, -(2**63)])), draw(st.integers(1, 40))
    with_numbers = draw(st.booleans())
    pieces, before = [], 0
    for age in range(draw(st.integers(1, 5))):
        keys = sorted(draw(st.sets(st.integers(0, width), min_size=1)))
        swapped = draw(st.integers(0, 9)) == 0
        start = 0 if swapped else before
        numbers = [start + 1 + n for n in draw(st.permutations(range(len(keys))))]
        before = max(before, *numbers)
        pieces.append(_piece([base + key for key in keys], numbers, age, with_numbers=with_numbers))
    if draw(st.booleans()):
        carried = _piece([base], [draw(st.integers(0, before + 1))], draw(st.integers(0, 5)), with_numbers=with_numbers)
        pieces = [carried, *pieces]
    return pieces


@settings(max_examples=examples(200))
@given(pieces=_runs())
def test_the_newest_versions_are_those_that_ordering_finds(pieces: list[Piece]) -> None:
    rows = Rows.of(pieces)
    groups, found = merge_order(rows, _SPEC), newest_versions(rows, _SPEC)
    if found is not None:
        assert found.newest.tolist() == groups.newest.tolist()
        assert (len(found), found.last_size) == (len(groups), groups.last_size)


_WEIGHTS = [-0.0, 0.0, float("nan"), -1.5, float("inf"), None]


@settings(max_examples=examples(200))
@given(pieces=_runs(), spec=st.sampled_from(_BY_FIELDS), data=st.data())
def test_sequence_fields_too_need_no_ordering(pieces: list[Piece], spec: KeySpec, data: st.DataObject) -> None:
    def with_fields(piece: Piece) -> Piece:
        batch = piece.batch
        for name, kind, values in (("at", pa.int32(), [None, -1, 0, 1]), ("weight", pa.float64(), _WEIGHTS)):
            drawn = data.draw(st.lists(st.sampled_from(values), min_size=len(piece), max_size=len(piece)))
            batch = batch.append_column(name, pa.array(drawn, kind))
        return Piece(batch, piece.keys, piece.level, piece.age)

    rows = Rows.of([with_fields(piece) for piece in pieces])
    groups, found = merge_order(rows, spec), newest_versions(rows, spec)
    if found is not None:
        assert found.newest.tolist() == groups.newest.tolist()
        assert (len(found), found.last_size) == (len(groups), groups.last_size)


def test_the_largest_sequence_field_wins_without_ordering_and_text_is_ordered() -> None:
    def piece(age: int, at: list[int | None], note: list[str]) -> Piece:
        plain = _piece([1, 2, 3], [10 * age + n for n in range(3)], age)
        batch = plain.batch.append_column("at", pa.array(at, pa.int32())).append_column("note", pa.array(note))
        return Piece(batch, plain.keys, 0, age)

    rows = Rows.of([piece(1, [7, None, 5], ["c", "b", "a"]), piece(2, [6, 0, 5], ["a", "b", "c"])])
    found = newest_versions(rows, _BY_FIELDS[0])
    assert found is not None
    assert found.newest.tolist() == [0, 4, 5]  # larger, any value above null, the later of two equal ones
    assert newest_versions(rows, KeySpec.of(_SCHEMA, ("note",), descending=False, table="t")) is None


def test_close_keys_in_the_order_of_their_sequence_need_no_ordering() -> None:
    old, new = _piece(list(range(0, 300, 2)), list(range(150)), 0), _piece(list(range(300)), list(range(150, 450)), 1)
    found = newest_versions(Rows.of([old, new]), _SPEC)
    assert found is not None
    assert found.newest.tolist() == list(range(150, 450))
    assert newest_versions(Rows.of([new, old]), _SPEC) is None
    far = _piece([1, 10**6], [500, 501], 2)
    assert newest_versions(Rows.of([old, far]), _SPEC) is None


@settings(max_examples=examples(200))
@given(
    texts=st.lists(st.binary(max_size=20), min_size=1, max_size=12),
    prefix=st.sampled_from([b"", b"abcdefgh", b"abcdefghi"]),
)
def test_byte_keys_climb_and_ascend_as_bytes_do(texts: list[bytes], prefix: bytes) -> None:
    for keys in (texts, sorted(texts), sorted(set(texts))):
        whole = [prefix + text for text in keys]
        lengths = np.array([len(text) for text in whole], np.int64)
        data = np.frombuffer(b"".join(whole), np.uint8)
        found = ByteKeys.of(data, np.cumsum(lengths) - lengths, lengths)
        pairs = list(pairwise(whole))
        assert found.climbing() == all(a < b for a, b in pairs)
        assert found.ascending() == all(a <= b for a, b in pairs)


def test_a_column_may_be_dictionaries_in_some_pieces_and_plain_text_in_others() -> None:
    """As where rows that a lookup brought lie beside rows of a file whose text repeats."""

    def piece(age: int, note: pa.Array) -> Piece:
        bare = _piece([1, 2, 3], [10 * age + n for n in range(3)], age)
        return Piece(bare.batch.append_column("note", note), bare.keys, 0, age)

    texts = pa.array(["c", None, "c"])
    for notes in ([texts, texts.dictionary_encode()], [texts.dictionary_encode()] * 2, [texts, texts]):
        rows = Rows.of([piece(age, note) for age, note in enumerate(notes)])
        assert rows.column("note", np.array([5, 1, 0, 3])).to_pylist() == ["c", None, "c", "c"]
