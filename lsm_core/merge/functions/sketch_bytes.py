"""Serialised HLL and theta sketches, checked before the native library reads them.

The library trusts the lengths, slots and counts in the bytes, so all of them are checked here first. HLL sketches keep
their form, because the order of coupons and the estimators of the result depend on it; theta sketches are rewritten.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lsm_core.errors import CorruptFile

_EMPTY, _COMPACT, _SINGLE = 0x04, 0x08, 0x20
_VALUE_SHIFT: Final = 26

# -- HLL ---------------------------------------------------------------------------------------------------------------

_HLL: Final = "HLL sketch"
_HLL_FAMILY: Final = 7
_LIST, _SET, _REGISTERS = range(3)
_HLL_4, _HLL_6, _HLL_8 = range(3)
_LIST_LOG: Final = 3
_SET_LOG: Final = 5
_IN_TABLE: Final = 15
"""Four-bit register whose value is too large and is stored in a table."""
_MOST: Final = 63


def check_hll(data: bytes) -> bytes:
    """Check the bytes of an HLL sketch, and return them without the bytes after the end of the sketch.

    Raises:
        CorruptFile: the bytes are damaged.
    """
    head = _take(data, 0, 8, _HLL)
    size_log, mode = head[3], head[7] & 3
    if head[1] != 1 or head[2] != _HLL_FAMILY or not 4 <= size_log <= 21 or (head[7] >> 2) & 3 > _HLL_8:
        raise CorruptFile(_HLL, "not an HLL sketch of serial version 1")
    if head[0] != {_LIST: 2, _SET: 3, _REGISTERS: 10}.get(mode):
        raise CorruptFile(_HLL, f"preamble of {head[0]} words in mode {mode}")
    if mode == _REGISTERS:
        return _check_registers(data, head)
    return _check_coupons(data, head)


def _check_coupons(data: bytes, head: bytes) -> bytes:
    size_log, slots_log, compact = head[3], head[4], bool(head[5] & _COMPACT)
    is_list = head[7] & 3 == _LIST
    start = 8 if is_list else 12
    count = head[6] if is_list else int(struct.unpack("<i", _take(data, 8, 4, _HLL))[0])
    least, most = (_LIST_LOG, _LIST_LOG) if is_list else (_SET_LOG, size_log - 3)
    if not least <= slots_log <= most or not 0 <= count <= 1 << slots_log:
        raise CorruptFile(_HLL, f"{count} coupons in 2^{slots_log} slots")
    if not is_list and 4 * count > 3 << slots_log:
        raise CorruptFile(_HLL, f"{count} coupons in a set of 2^{slots_log} slots")
    length = 4 * (count if compact else 1 << slots_log)
    coupons = np.frombuffer(_take(data, start, length, _HLL), "<u4")
    coupons = coupons[coupons != 0]
    if len(coupons) != count or len(np.unique(coupons)) != count or (coupons >> _VALUE_SHIFT == 0).any():
        raise CorruptFile(_HLL, "its coupons differ from the declared number, or are not valid")
    if bool(head[5] & _EMPTY) != (count == 0):
        raise CorruptFile(_HLL, f"marked as empty or not, it has {count} coupons")
    return data[: start + length]


def _check_registers(data: bytes, head: bytes) -> bytes:
    size, packing, lowest = 1 << head[3], (head[7] >> 2) & 3, head[6]
    registers = _registers(data, head)
    if int(registers.max()) > _MOST:
        raise CorruptFile(_HLL, f"a register of {int(registers.max())}")
    if head[5] & _EMPTY or not np.isfinite(np.frombuffer(_take(data, 8, 24, _HLL), "<f8")).all():
        raise CorruptFile(_HLL, "its estimators are not finite, or it is marked as empty")
    if packing != _HLL_4:
        return data[: 40 + (size if packing == _HLL_8 else size * 3 // 4 + 1)]
    at_lowest, exceptions = struct.unpack("<ii", data[32:40])
    if at_lowest != int((registers == lowest).sum()) or at_lowest == 0:
        raise CorruptFile(_HLL, f"{at_lowest} registers of {lowest}")
    length = exceptions if head[5] & _COMPACT or not exceptions else 1 << head[4]
    if not exceptions and not head[5] & _COMPACT:
        # the library reads the empty table of the updatable form; the compact one has none
        return bytes([*data[:5], head[5] | _COMPACT]) + data[6 : 40 + size // 2]
    return data[: 40 + size // 2 + 4 * length]


def _registers(data: bytes, head: bytes) -> npt.NDArray[Any]:
    """Return the values of all registers of an HLL sketch, from any of the three packings.

    ``data``: the sketch. ``head``: its first eight bytes.
    """
    size, packing = 1 << head[3], (head[7] >> 2) & 3
    if packing == _HLL_8:
        return np.frombuffer(_take(data, 40, size, _HLL), np.uint8)
    if packing == _HLL_6:
        packed = np.frombuffer(_take(data, 40, size * 3 // 4 + 1, _HLL), np.uint8)[: size * 3 // 4]
        return np.packbits(
            np.pad(np.unpackbits(packed, bitorder="little").reshape(-1, 6), ((0, 0), (0, 2))), axis=1, bitorder="little"
        ).ravel()
    packed = np.frombuffer(_take(data, 40, size // 2, _HLL), np.uint8)
    nibbles = np.stack((packed & 15, packed >> 4), axis=1).ravel()
    registers = nibbles.astype(np.int64) + head[6]
    large = np.flatnonzero(nibbles == _IN_TABLE)
    registers[large] = _large_registers(data, head, 40 + size // 2, large, size)
    return registers


def _large_registers(
    data: bytes, head: bytes, start: int, large: npt.NDArray[np.int64], size: int
) -> npt.NDArray[np.int64]:
    """Return the values of registers that do not fit four bits; an HLL sketch stores these in a table.

    Args:
        data: the sketch.
        head: its first eight bytes.
        start: first byte of the table.
        large: numbers of these registers, ascending.
        size: number of all registers.
    """
    count = int(struct.unpack("<i", _take(data, 36, 4, _HLL))[0])
    if count != len(large):
        raise CorruptFile(_HLL, f"{count} exceptions for {len(large)} registers")
    if not count:
        return np.zeros(0, np.int64)
    compact = bool(head[5] & _COMPACT)
    if not compact and (head[4] > head[3] or 4 * count > 3 << head[4]):
        raise CorruptFile(_HLL, f"{count} exceptions in a table of 2^{head[4]}")
    length = count if compact else 1 << head[4]
    pairs = np.frombuffer(_take(data, start, 4 * length, _HLL), "<u4").astype(np.int64)
    pairs = pairs[pairs != 0]
    slots = pairs & (size - 1)
    order = np.argsort(slots)
    if not np.array_equal(slots[order], large):
        raise CorruptFile(_HLL, "exceptions for registers that have none")
    return np.asarray(pairs[order] >> _VALUE_SHIFT, np.int64)


# -- theta -------------------------------------------------------------------------------------------------------------

_THETA: Final = "theta sketch"
_UPDATABLE: Final = (1, 2)
_COMPACTED: Final = 3
_SEED_HASH: Final = 0x93CC
_ALL: Final = (1 << 63) - 1
_FLOAT_ONE: Final = struct.pack("<f", 1.0)


def check_theta(data: bytes) -> bytes:
    """Check the bytes of a theta sketch, and return the sketch in the compact form, its hashes ascending.

    Raises:
        CorruptFile: the bytes are damaged.
    """
    head = _take(data, 0, 8, _THETA)
    words, flags = head[0] & 63, head[5]
    if head[1] != 3 or head[2] not in {*_UPDATABLE, _COMPACTED} or flags & 1:
        raise CorruptFile(
            _THETA, f"family {head[2]}, serial version {head[1]}; compact or updatable of version 3 is read"
        )
    if not 1 <= words <= 3 or (head[2] in _UPDATABLE and words != 3):
        raise CorruptFile(_THETA, f"preamble of {words} longs")
    if not flags & _EMPTY and struct.unpack("<H", head[6:8])[0] != _SEED_HASH:
        raise CorruptFile(_THETA, "another seed than the default one")
    if flags & _EMPTY and words == 1:
        return struct.pack("<BBBBBBH", 1, 3, _COMPACTED, 0, 0, 0x1E, _SEED_HASH)
    theta = int(struct.unpack("<q", _take(data, 16, 8, _THETA))[0]) if words == 3 else _ALL
    if head[2] in _UPDATABLE:
        if head[4] > 26:
            raise CorruptFile(_THETA, f"2^{head[4]} slots")
        hashes = np.frombuffer(_take(data, 24, 8 << head[4], _THETA), "<i8")
        hashes = hashes[(hashes > 0) & (hashes < theta)]
    else:
        count = int(struct.unpack("<i", _take(data, 8, 4, _THETA))[0]) if words > 1 else 1
        hashes = np.frombuffer(_take(data, 8 * words, 8 * max(count, 0), _THETA), "<i8")
        if count < 0 or (hashes <= 0).any() or (hashes >= theta).any():
            raise CorruptFile(_THETA, "its hashes are not below its theta")
    if theta <= 0:
        raise CorruptFile(_THETA, f"theta of {theta}")
    is_empty = bool(flags & _EMPTY) and not len(hashes)
    hashes = np.unique(hashes)
    start = struct.pack("<BBBBBBHi", 3, 3, _COMPACTED, 0, 0, 0x1E if is_empty else 0x1A, _SEED_HASH, len(hashes))
    return start + _FLOAT_ONE + struct.pack("<q", theta) + hashes.tobytes()


def java_theta(data: bytes) -> bytes:
    """Return the bytes of a compact theta sketch with the header fields that Java writes differently than the library.

    These are the sampling rate if the preamble has several words, the seed hash of an empty sketch, and the flag of a
    sketch with a single hash.
    """
    words, flags = data[0] & 63, data[5]
    if words > 1:
        return data[:12] + _FLOAT_ONE + data[16:]
    if flags & _EMPTY:
        return data[:6] + b"\0\0" + data[8:]
    return data[:5] + bytes([flags | _SINGLE]) + data[6:]


def _take(data: bytes, start: int, length: int, sketch: str) -> bytes:
    if start + length > len(data):
        raise CorruptFile(sketch, f"ends after {len(data)} bytes, {start + length} are needed")
    return data[start : start + length]
