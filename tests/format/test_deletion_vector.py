"""Deletion vectors: Java's bytes come out of the same positions, and no damaged blob becomes a vector."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format import roaring
from lsm_core.format.deletion_vector import DeletionVector, index_file
from lsm_core.format.side_files import decode_hash_index, encode_hash_index
from tests.support.samples import examples

V1 = "00000022 5e43f2d0 3a300000020000000000010001000000180000001c000000010003007011 c9b5d269"
V2 = "0000002e d1d33964 0100000000000000 00000000 3a300000020000000000010001000000180000001c000000010003007011 8cc56b6b"
V2_HIGH = "0200000000000000 00000000 3a30000000000000 01000000 3a3000000100000000000000100000000500"
JAVA = pytest.mark.parametrize(("text", "length", "bitmap64"), [(V1, 34, False), (V2, 54, True)])


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


@JAVA
def test_vectors_of_the_specification_come_back_byte_for_byte(text: str, length: int, bitmap64: bool) -> None:
    blob = bytes.fromhex(text)
    vector = DeletionVector.from_bytes(blob, "index-1", length)
    assert vector.positions().tolist() == [1, 3, 70000]
    assert vector.cardinality == 3
    assert vector.max_position == 70000
    assert vector.to_bytes(bitmap64=bitmap64) == (blob, length)
    assert DeletionVector.of([70000, 1, 3, 1]).to_bytes(bitmap64=bitmap64) == (blob, length)


def test_positions_beyond_32_bits_write_all_lower_bitmaps() -> None:
    blob, length = DeletionVector.of([2**32 + 5]).to_bytes(bitmap64=True)
    assert blob[8:-4] == bytes.fromhex(V2_HIGH)
    again = DeletionVector.from_bytes(blob, "index-1", length)
    assert again.positions().tolist() == [2**32 + 5]
    assert np.flatnonzero(again.deleted_mask(2**32 - 2, 10)).tolist() == [7]
    with pytest.raises(ValueError, match="32-bit"):
        again.to_bytes()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 300), st.integers(0, 200_000), st.integers(65_530, 65_540)), max_size=300),
    st.tuples(st.integers(0, 70_000), st.integers(0, 9_000)),
    st.booleans(),
    st.integers(0, 140_000),
)
def test_any_set_comes_back_and_its_mask_is_that_of_the_set(
    rows: list[int], dense: tuple[int, int], bitmap64: bool, first: int
) -> None:
    wanted = sorted({*rows, *range(dense[0], dense[0] + dense[1])})
    vector = DeletionVector.of(wanted)
    blob, length = vector.to_bytes(bitmap64=bitmap64)
    again = DeletionVector.from_bytes(blob, "index-1", length)
    assert again.positions().tolist() == wanted
    expected = np.isin(np.arange(first, first + 70_000), wanted)
    assert np.array_equal(again.deleted_mask(first, 70_000), expected)


def test_an_index_file_holds_vectors_where_its_ranges_say() -> None:
    vectors = [DeletionVector.of([1, 2]), DeletionVector(), DeletionVector.of(range(100_000))]
    for bitmap64, frame in ((False, 8), (True, 0)):
        data, ranges = index_file(vectors, bitmap64=bitmap64)
        assert data[0] == 1
        assert ranges[0][0] == 1
        for vector, (offset, length) in zip(vectors, ranges, strict=True):
            found = DeletionVector.from_bytes(data[offset : offset + length + frame], "index-1", length)
            assert np.array_equal(found.positions(), vector.positions())


@JAVA
def test_every_flipped_bit_and_every_cut_is_noticed(text: str, length: int, bitmap64: bool) -> None:
    blob = bytes.fromhex(text)
    for bit in range(len(blob) * 8):
        broken = bytearray(blob)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFile, match="index-7"):
            DeletionVector.from_bytes(bytes(broken), "index-7", length)
    for end in range(len(blob)):
        with pytest.raises(CorruptFile):
            DeletionVector.from_bytes(blob[:end], "index-7", length)
    with pytest.raises(CorruptFile, match="records"):
        DeletionVector.from_bytes(blob, "index-7", length + 1)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_a_hostile_bitmap_with_a_right_checksum_is_refused_or_sound(data: st.DataObject) -> None:
    source = BitMap([1, 5, 70_000, *range(200_000, 206_000), *range(300_000, 300_500, 2)])
    body = bytearray(roaring.encode(source, runs=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, min(60, len(body) - 1)))] = data.draw(st.integers(0, 255))
    blob = framed(bytes.fromhex("5e43f2d0") + bytes(body))
    try:
        vector = DeletionVector.from_bytes(blob, "index-7")
    except CorruptFile:
        return
    rows = vector.positions()
    assert (np.diff(rows) > 0).all()
    assert len(rows) == vector.cardinality


@pytest.mark.parametrize(
    "body",
    [
        "5e43f2d0 3b30ffff",  # 65,536 containers announced
        "5e43f2d0 3a300000 ffffffff",
        "d1d33964 ffffffffffffff7f",
        "d1d33964 0200000000000000 01000000 3a30000000000000 01000000 3a30000000000000",  # a key twice
        "5e43f2d0 3a30000000000000 00",  # a byte too many
        "5e43f2d1 3a30000000000000",
        "5e43f2d0 3b300000 01 0000 ffff 0100 0000 0000",  # a run that is shorter than the header says
    ],
)
def test_lengths_are_bounded_before_memory_is_taken(body: str) -> None:
    with pytest.raises(CorruptFile, match="index-7"):
        DeletionVector.from_bytes(framed(bytes.fromhex(body)), "index-7")


def test_a_run_may_fill_a_whole_container() -> None:
    blob = framed(bytes.fromhex("5e43f2d0 3b300000 01 0000 ffff 0100 0000 ffff"))
    assert DeletionVector.from_bytes(blob, "index-1").cardinality == 65_536


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_hash_indexes_are_big_endian_and_whole(hashes: list[int]) -> None:
    data = encode_hash_index(np.array(hashes, np.int64))
    assert data == b"".join(item.to_bytes(4, "big", signed=True) for item in hashes)
    assert decode_hash_index(data, "index-1").tolist() == hashes
    with pytest.raises(CorruptFile, match="index-1"):
        decode_hash_index(data + b"\0", "index-1")
