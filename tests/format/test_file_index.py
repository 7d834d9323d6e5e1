"""Indexes of data files: hashes and bits are exact, tests answered by an index never hide a row, damage is named."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring
from lsm_core.format.file_index import (
    BloomFilter,
    FileIndex,
    ValueRows,
    encode,
    encode_bitmap,
    encode_range,
    encode_slices,
    hashable,
    hashes_of,
    kind_of,
    map_key,
)
from lsm_core.format.xxhash64 import xxhash64
from lsm_core.types import parse, to_arrow
from tests.support.samples import examples

PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MASK = (1 << 64) - 1


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK


def a_round(lane: int, word: int) -> int:
    return rotated((lane + word * PRIMES[1]) & MASK, 31) * PRIMES[0] & MASK


def slow_xxhash64(data: bytes) -> int:
    """The published algorithm, one value at a time."""
    at, state = 0, PRIMES[4]
    if len(data) >= 32:
        lanes = [(PRIMES[0] + PRIMES[1]) & MASK, PRIMES[1], 0, -PRIMES[0] & MASK]
        while at + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, at)
            lanes = [a_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        state = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            state = ((state ^ a_round(0, lane)) * PRIMES[0] + PRIMES[3]) & MASK
    state = (state + len(data)) & MASK
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        state = (rotated(state ^ a_round(0, word), 27) * PRIMES[0] + PRIMES[3]) & MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little") * PRIMES[0] & MASK
        state = (rotated(state ^ word, 23) * PRIMES[1] + PRIMES[2]) & MASK
        at += 4
    for byte in data[at:]:
        state = rotated(state ^ (byte * PRIMES[4] & MASK), 11) * PRIMES[0] & MASK
    for shift, factor in ((33, PRIMES[1]), (29, PRIMES[2])):
        state = (state ^ state >> shift) * factor & MASK
    return state ^ state >> 32


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 400).map(lambda n: bytes(range(256)) * 2 + b"x" * n))))
def test_xxhash_of_a_column_is_that_of_its_values(values: list[bytes]) -> None:
    found = xxhash64(pa.array([b"cut off", *values], pa.binary()).slice(1)).view(np.uint64)
    assert found.tolist() == [slow_xxhash64(value) for value in values]


def test_xxhash_has_the_published_values() -> None:
    values = ["", "a", "abc", "Nobody inspects the spammish repetition"]
    known = [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0x44BC2CF5AD770999, 0xFBCEA83C8A378BF1]
    assert xxhash64(pa.array(values)).view(np.uint64).tolist() == known


def slow_mix(key: int) -> int:
    """Thomas Wang's mix in Java's signed arithmetic."""

    def signed(value: int) -> int:
        return (value + (1 << 63) & MASK) - (1 << 63)

    key = signed(~key + (key << 21))
    key ^= key >> 24
    key = signed(key * 265)
    key ^= key >> 14
    key = signed(key * 21)
    key ^= key >> 28
    return signed(key + (key << 31))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_numbers_are_mixed_as_java_mixes_them(values: list[int]) -> None:
    assert hashes_of(pa.array(values, pa.int64()), parse("BIGINT")).tolist() == [slow_mix(value) for value in values]


def test_floats_hash_by_their_bits_with_one_nan_and_times_by_their_unit() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert len(set(hashes_of(pa.array(nans), parse("DOUBLE")).tolist())) == 1
    zeros = hashes_of(pa.array([0.0, -0.0], pa.float32()), parse("FLOAT")).tolist()
    assert zeros == [slow_mix(0), slow_mix(-(2**31))]
    times = pa.array([-1], pa.timestamp("ns"))
    assert hashes_of(times, parse("TIMESTAMP(9)")).tolist() == [slow_mix(-1)]
    assert [hashable(parse(text)) for text in ("BOOLEAN", "DECIMAL(9,2)", "ARRAY<INT>", "BYTES", "TIME(3)")] == [
        False,
        False,
        False,
        True,
        True,
    ]


@settings(max_examples=examples(40), deadline=None)
@given(st.sets(st.text(max_size=12)), st.integers(1, 5000), st.floats(0.0001, 0.9))
def test_a_bloom_filter_never_denies_what_it_holds(values: set[str], items: int, fpp: float) -> None:
    array = pa.array(sorted(values), pa.string())
    data = BloomFilter.build(array, parse("STRING"), items, fpp)
    found = BloomFilter.from_bytes(data, "x")
    assert found.may_contain(hashes_of(array, parse("STRING"))).all()
    assert found.to_bytes() == data


def test_a_bloom_filter_keeps_its_promise_of_false_hits() -> None:
    held = pa.array(range(10_000), pa.int64())
    others = pa.array(range(10_000, 60_000), pa.int64())
    found = BloomFilter.from_bytes(BloomFilter.build(held, parse("BIGINT"), 10_000, 0.05), "x")
    share = found.may_contain(hashes_of(others, parse("BIGINT"))).mean()
    assert 0.02 < share < 0.08


@pytest.mark.parametrize(("items", "fpp"), [(0, 0.1), (10, 0.0), (10, 1.0), (2**31 - 1, 1e-9)])
def test_filters_that_cannot_be_are_refused(items: int, fpp: float) -> None:
    with pytest.raises(ValueError, match="bloom filter"):
        BloomFilter.sized(items, fpp)


NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(NAMES, st.dictionaries(NAMES, st.one_of(st.none(), st.binary(max_size=9)), max_size=3), max_size=4)
)
def test_a_container_gives_back_what_it_was_given(indexes: dict[str, dict[str, bytes | None]]) -> None:
    found = FileIndex.decode(encode(indexes), "x")
    assert found.columns == {name: tuple(kinds) for name, kinds in indexes.items()}


def test_names_are_in_java_s_modified_utf8() -> None:
    data = encode({"a\0é😀": {}})
    assert b"\x00\x0b" + b"a\xc0\x80\xc3\xa9\xed\xa0\xbd\xed\xb8\x80" in data
    assert list(FileIndex.decode(data, "x").columns) == ["a\0é😀"]
    with pytest.raises(CorruptFile, match="not text"):
        FileIndex.decode(data.replace(b"\xed\xb8\x80", b"abc"), "x")
    with pytest.raises(ValueError, match="longer"):
        encode({"é" * 40_000: {}})


def test_what_an_index_cannot_tell_may_match() -> None:
    bloom = BloomFilter.build(pa.array([1, 2], pa.int32()), parse("INT"), 100, 0.001)
    found = FileIndex.decode(encode({"k": {"bloom-filter": bloom, "tomorrow": b"?"}, "n": {"bitmap": None}}), "x")
    int_ = parse("INT")
    assert not found.may_match("k", int_, "=", pa.scalar(77, pa.int32()))
    assert not found.may_match("k", int_, "in", pa.array([77, 78], pa.int32()))
    assert not found.may_match("k", int_, "==", pa.scalar(77, pa.int64()))
    assert found.may_match("k", int_, "in", pa.array([77, 2], pa.int32()))
    for op, value in (("<", 77), ("!=", 77), ("=", 2**40), ("=", 77.5), ("=", "77"), ("=", None), ("is null", None)):
        assert found.may_match("k", int_, op, pa.scalar(value))
    assert found.may_match("other", int_, "=", pa.scalar(77, pa.int32()))
    # An index of nulls only: nothing but a null can be found.
    assert found.may_match("n", int_, "is null")
    assert not found.may_match("n", int_, "is not null")
    assert not found.may_match("n", int_, "=", pa.scalar(77, pa.int32()))
    assert map_key("tags", "a") == "tags##a"


def test_both_zeros_are_found_whichever_is_held() -> None:
    for held, asked in ((0.0, -0.0), (-0.0, 0.0)):
        bloom = BloomFilter.build(pa.array([held]), parse("DOUBLE"), 1000, 0.0001)
        found = FileIndex.decode(encode({"x": {"bloom-filter": bloom}}), "x")
        assert found.may_match("x", parse("DOUBLE"), "=", pa.scalar(asked))
        assert found.may_match("x", parse("DOUBLE"), "=", pa.scalar(math.nan)) in (True, False)


# -- small writers of the indexes that we only read, by the layouts that the files of Java have --------------------------


def portable(rows: list[int]) -> bytes:
    return roaring.encode(BitMap(rows))


def bitmap_v1(values: list[int | None]) -> bytes:
    """A `bitmap` index of layout 1 of an INT column, every bitmap written out."""
    distinct = sorted({value for value in values if value is not None})
    nulls = [row for row, value in enumerate(values) if value is None]
    bodies = [portable(nulls)] if nulls else []
    entries = b""
    for value in distinct:
        entries += struct.pack(">ii", value, sum(map(len, bodies)))
        bodies.append(portable([row for row, item in enumerate(values) if item == value]))
    head = struct.pack(">Bii?", 1, len(values), len(distinct), bool(nulls)) + (struct.pack(">i", 0) if nulls else b"")
    return head + entries + b"".join(bodies)


def bsi(values: list[int | None]) -> bytes:
    """A `bsi` index."""
    data = struct.pack(">Bi", 1, len(values))
    for negative in (False, True):
        part = {row: abs(value) for row, value in enumerate(values) if value is not None and (value < 0) is negative}
        data += struct.pack(">?", bool(part))
        if not part:
            continue
        digits = max(part.values()).bit_length()
        slices = [portable([row for row, value in part.items() if value >> digit & 1]) for digit in range(digits)]
        data += struct.pack(">Bqq", 1, 0, max(part.values())) + portable(sorted(part))
        data += struct.pack(">i", digits) + b"".join(slices)
    return data


def framed(head: bytes) -> bytes:
    return struct.pack(">i", len(head)) + head


def range_bitmap(values: list[int | None]) -> bytes:
    """A `range-bitmap` index of an INT column with chunks of a first value and up to two more."""
    distinct = sorted({value for value in values if value is not None})
    chunks = [distinct[at : at + 3] for at in range(0, len(distinct), 3)]
    heads, keys = b"", b""
    for code, (first, *others) in zip(range(0, len(distinct), 3), chunks, strict=True):
        heads += struct.pack(">Biiiiii", 1, first, code, len(keys), len(others), 4 * len(others), 4)
        keys += struct.pack(f">{len(others)}i", *others)
    offsets = struct.pack(f">{len(chunks)}i", *(25 * at for at in range(len(chunks))))
    dictionary = framed(struct.pack(">Biii", 1, len(chunks), len(offsets), len(heads))) + offsets + heads + keys
    codes = {row: distinct.index(value) for row, value in enumerate(values) if value is not None}
    digits = max(max(len(distinct) - 1, 0).bit_length(), 1)
    slices = [portable([row for row, code in codes.items() if code >> digit & 1]) for digit in range(digits)]
    places = [(sum(map(len, slices[:at])), len(part)) for at, part in enumerate(slices)]
    filled = portable(sorted(codes))
    head = struct.pack(">BBii", 1, digits, len(filled), 8 * digits) + b"".join(struct.pack(">ii", *p) for p in places)
    bounds = struct.pack(">ii", distinct[0], distinct[-1]) if distinct else b""
    whole = framed(struct.pack(">Bii", 1, len(values), len(distinct)) + bounds + struct.pack(">i", len(dictionary)))
    return whole + dictionary + framed(head) + filled + b"".join(slices)


def passes(op: str, value: Any, literals: list[Any]) -> bool:
    if op in ("is null", "is not null"):
        return (value is None) is (op == "is null")
    if value is None:
        return False
    first = literals[0]
    return {
        "=": value == first,
        "!=": value != first,
        "<": value < first,
        "<=": value <= first,
        ">": value > first,
        ">=": value >= first,
        "in": value in literals,
        "not in": value not in literals,
    }[op]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-9, 9), st.integers(-(2**31) + 1, 2**31 - 1)), max_size=40),
    st.lists(st.integers(-10, 10), min_size=1, max_size=3),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]),
)
def test_row_masks_are_the_rows_that_pass(values: list[int | None], literals: list[int], op: str) -> None:
    given = pa.array(literals, pa.int32()) if op in ("in", "not in") else pa.scalar(literals[0], pa.int32())
    wanted = [passes(op, value, literals) for value in values]
    for kind, data in (("bitmap", bitmap_v1(values)), ("bsi", bsi(values)), ("range-bitmap", range_bitmap(values))):
        found = FileIndex.decode(encode({"k": {kind: data}}), "x")
        mask = found.row_mask("k", parse("INT"), op, given, len(values))
        if kind == "bitmap" and op[0] in "<>":
            assert mask is None
            continue
        assert mask is not None
        assert mask.tolist() == wanted
        assert found.may_match("k", parse("INT"), op, given) is any(wanted)


def test_an_index_about_another_number_of_rows_is_damage() -> None:
    found = FileIndex.decode(encode({"k": {"bsi": bsi([1, 2])}}), "data-1.index")
    with pytest.raises(CorruptFile, match=r"data-1\.index"):
        found.row_mask("k", parse("INT"), "=", pa.scalar(1, pa.int32()), 3)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_damaged_indexes_end_in_a_typed_error_or_an_answer(data: st.DataObject) -> None:
    values = [1, None, -3, 70, 70, 1, None]
    bloom = BloomFilter.build(pa.array([1, 2], pa.int32()), parse("INT"), 10, 0.1)
    kinds: dict[str, bytes | None] = {"bitmap": bitmap_v1(values), "bsi": bsi(values), "bloom-filter": bloom}
    kinds["range-bitmap"] = range_bitmap(values)
    whole = bytearray(encode({"k": kinds}))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))
    broken = bytes(whole[: data.draw(st.integers(0, len(whole)))]) if data.draw(st.booleans()) else bytes(whole)
    try:
        found = FileIndex.decode(broken, "x")
        for op in ("=", "<", "is null"):
            found.may_match("k", parse("INT"), op, pa.scalar(70, pa.int32()))
            mask: Any = found.row_mask("k", parse("INT"), op, pa.scalar(70, pa.int32()), len(values))
            assert mask is None or len(mask) == len(values)
    except CorruptFile:
        return


def test_types_that_no_index_knows_prove_nothing() -> None:
    kind = parse("DECIMAL(30,2)")
    found = FileIndex.decode(encode({"k": {"bsi": bsi([1])}}), "x")
    assert found.may_match("k", kind, "=", pa.scalar(None, to_arrow(kind)))
    assert found.row_mask("k", kind, "is null", None, 1) is None


# -- the indexes that we write ------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 200_000), st.sampled_from([1, 3, 90, 5000])), max_size=6), max_size=6)
)
def test_many_bitmaps_at_once_are_those_of_the_library(stretches: list[list[tuple[int, int]]]) -> None:
    groups = [
        np.unique(
            np.concatenate(
                [np.zeros(0, np.int64), *(np.arange(at, at + n * (1 + at % 2), 1 + at % 2) for at, n in group)]
            )
        )
        for group in stretches
    ]
    starts = np.cumsum([0, *map(len, groups)]).astype(np.int64)
    data, begins = roaring.encode_all(np.concatenate([np.zeros(0, np.int64), *groups]).astype(np.uint32), starts)
    for number, group in enumerate(groups):
        alone = roaring.encode(BitMap(group.astype(np.uint32)), runs=True)
        assert data[begins[number] : begins[number + 1]].tobytes() == alone


TEXTS = st.one_of(st.text(max_size=3), st.sampled_from(["x" * 40, "y" * 300, "ä€😀"]))
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.one_of(st.integers(-9, 9), st.integers(-(2**31), 2**31 - 1)),
    "TINYINT": st.integers(-128, 127),
    "BOOLEAN": st.booleans(),
    "BIGINT": st.integers(-(2**63) + 1, 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": TEXTS,
}


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from(sorted(COLUMNS)), st.sampled_from([0, 20, 64, 16_384]))
def test_our_indexes_find_the_rows_of_every_value(data: st.DataObject, name: str, block: int) -> None:
    kind = parse(name)
    values = data.draw(st.lists(st.one_of(st.none(), COLUMNS[name]), max_size=60))
    array = pa.array(values, to_arrow(kind))
    known = kind_of(kind)
    assert known is not None
    collected = ValueRows(known)
    cut = data.draw(st.integers(0, len(values)))
    collected.add(array.slice(0, cut))
    collected.add(array.slice(cut))
    found = collected.finish()
    indexes = {
        "bitmap": [encode_bitmap(found, 2, block), encode_bitmap(found, 1)],
        "range-bitmap": [encode_range(found, block)],
        "bsi": [],
    }
    if name in ("INT", "TINYINT", "BIGINT"):
        numbers = array.cast(pa.int64())
        sliced = encode_slices(numbers.fill_null(5).to_numpy(), np.asarray(numbers.is_valid()))
        assert sliced is not None
        indexes["bsi"].append(sliced)
    asked = data.draw(st.one_of(st.sampled_from([v for v in values if v is not None] or [None]), COLUMNS[name]))
    for index, bodies in indexes.items():
        for body in bodies:
            opened = FileIndex.decode(encode({"k": {index: body}}), "x")
            for op in ("=", "!=", "<", "<=", ">", ">=", "is null", "is not null"):
                if asked is None and "null" not in op:
                    continue
                mask = opened.row_mask("k", kind, op, pa.scalar(asked, to_arrow(kind)), len(values))
                if index == "bitmap" and op[0] in "<>":
                    assert mask is None
                    continue
                assert mask is not None
                literals = [asked]
                assert mask.tolist() == [passes(op, value, literals) for value in values], (index, op)


def test_a_number_without_a_magnitude_leaves_its_file_without_slices() -> None:
    numbers = np.array([1, -(2**63)], np.int64)
    assert encode_slices(numbers, np.array([True, True])) is None
    assert encode_slices(numbers, np.array([True, False])) is not None
