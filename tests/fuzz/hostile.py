"""Hostile values by type, and random damage to bytes, used by all mutations."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

NAMES = (
    "../../../../outside/secret", "..", ".", "", " ", "/etc/passwd", "a\x00b", "x/../../y", "%2e%2e%2fsecret", "..\\..\\x",
    "../other/schema/schema-0", "../../other/bucket-0/data-0.parquet", "\n", "n" * 5000, "snapshot-1", "schema/schema-0", "~", "*", "é" * 200,
    "data.exe", "data", ".parquet", "x.orc", "x.avro", "x.parquet.", "file:///etc/passwd", "s3://bucket/key",
)  # fmt: skip
TEXTS = (
    *NAMES,
    "NaN",
    "1e999",
    "-1",
    "null",
    "[B@0",
    "\U0010ffff" * 3,
    "\ud800",
    "x" * 100_000,
    "INT NOT NULL",
    "ROW<",
    "2024-99-99",
)
TYPES: tuple[Any, ...] = (
    "INT", "STRING NOT NULL", "DECIMAL(38, 38)", "DECIMAL(99, 2)", "DECIMAL(1, -1)", "TIMESTAMP(9)", "TIMESTAMP(12)", "CHAR(0)",
    "VARCHAR(99999999999)", "VARIANT", "BLOB", "ROW<", "", "NULL", "INT INT", "ARRAY<INT>", "BINARY(-1)", "TIME(99)", "CHAR(1) " * 1000,
    "BYTES", "DOUBLE", "BOOLEAN NOT NULL", "BIGINT", "DATE", "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    {"type": "ARRAY", "element": "INT"}, {"type": "ARRAY"}, {"type": "MAP", "key": "INT"}, {"type": "ROW", "fields": []},
    {"type": "ROW", "fields": [{"id": 0, "name": "a", "type": "INT"}]}, {"type": "MULTISET", "element": "STRING"}, {}, 7, None, [],
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30,
)  # fmt: skip


def number(random: Random, bits: int | None = None) -> int:
    """Return an integer at some limit; with ``bits``, one that fits into a signed integer of this size."""
    found = random.choice(NUMBERS)
    if bits is not None and not -(1 << (bits - 1)) <= found < 1 << (bits - 1):
        found = random.choice([(1 << (bits - 1)) - 1, -(1 << (bits - 1)), 5, 0])
    return found


def damage(random: Random, data: bytes, other: bytes = b"") -> bytes:
    """Return ``data`` with some bytes changed, removed, repeated or taken from ``other``."""
    ways = (_flip, _flip, _flip, _cut, _zero, _huge, _huge, _varint, _remove, _repeat, _extend)
    if other and random.random() < 0.15:
        return _splice(random, data, other)
    if not data:
        return random.randbytes(random.choice([1, 8, 100]))
    return random.choice(ways)(random, bytearray(data))


def _somewhere(random: Random, size: int) -> int:
    """Return a random position; positions near both ends, where headers and footers are, are more likely."""
    roll = random.random()
    if roll < 0.3:
        return min(size - 1, random.randrange(64))
    if roll < 0.6:
        return max(0, size - 1 - random.randrange(min(size, 600)))
    return random.randrange(size)


def _flip(random: Random, data: bytearray) -> bytes:
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        data[_somewhere(random, len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _cut(random: Random, data: bytearray) -> bytes:
    return bytes(data[: random.choice([0, 1, 3, 4, len(data) - 1, len(data) // 2, random.randrange(len(data))])])


def _zero(random: Random, data: bytearray) -> bytes:
    at, fill = _somewhere(random, len(data)), random.choice([0, 0xFF])
    count = min(random.choice([1, 4, 8, 64]), len(data) - at)
    data[at : at + count] = bytes([fill]) * count
    return bytes(data)


def _huge(random: Random, data: bytearray) -> bytes:
    """Overwrite a position with a huge or tiny length, in either byte order."""
    value = random.choice([0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFF0, 1 << 28, 1, 0])
    wide = random.choice(["<I", ">I", "<Q", ">Q"])
    at = _somewhere(random, len(data))
    packed = struct.pack(wide, value if wide[1] == "I" else random.choice([value, 2**63 - 1, 2**64 - 1]))
    data[at : at + len(packed)] = packed
    return bytes(data)


def _varint(random: Random, data: bytearray) -> bytes:
    """Insert a variable-length number (Avro, Thrift, protobuf) that is huge or has no end."""
    at = _somewhere(random, len(data))
    packed = random.choice(
        [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
    )
    data[at : at + (len(packed) if random.random() < 0.5 else 1)] = packed
    return bytes(data)


def _remove(random: Random, data: bytearray) -> bytes:
    at = _somewhere(random, len(data))
    del data[at : at + random.choice([1, 4, 100])]
    return bytes(data)


def _repeat(random: Random, data: bytearray) -> bytes:
    at = _somewhere(random, len(data))
    piece = data[at : at + random.choice([1, 16, 1000])]
    data[at:at] = piece * random.choice([1, 3, 50])
    return bytes(data)


def _extend(random: Random, data: bytearray) -> bytes:
    return bytes(data) + random.choice([b"\0", b"PAR1", random.randbytes(50), bytes(data[:200])])


def _splice(random: Random, data: bytes, other: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other)) :]


def binary_row(random: Random, data: bytes) -> bytes:
    """Return a serialised BinaryRow with a wrong arity, offset or length."""
    roll = random.random()
    if roll < 0.15:
        return random.choice(
            [
                b"",
                b"\0",
                bytes(4),
                bytes(12),
                b"\xff" * 12,
                struct.pack(">i", -1) + bytes(8),
                struct.pack(">i", 2**31 - 1),
            ]
        )
    changed = bytearray(data)
    if roll < 0.3 and len(changed) >= 4:
        changed[:4] = struct.pack(">i", random.choice([0, 1, 2, 57, 1000, 2**31 - 1, -1]))
        return bytes(changed)
    if roll < 0.7 and len(changed) >= 20:  # the slot of a field: offset and length of a variable part
        at = 12 + 8 * random.randrange((len(changed) - 12) // 8)
        slot = (random.choice([0, 8, 16, 24, 2**31 - 1, 2**32 - 1, 1000]) << 32) | random.choice(
            [0, 1, 8, 9, 2**31 - 1, 2**32 - 1, 0x80000000, 0x87 << 24, 1 << 20]
        )
        changed[at : at + 8] = struct.pack("<Q", slot)
        return bytes(changed)
    return damage(random, data)
