"""Damage inside valid files: JSON members, Avro records, and deletion vectors with valid checksums."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import fastavro

from lsm_core.format.avro import read_records
from tests.fuzz import hostile

_NUMBER = re.compile(r"(?<=: )-?[0-9]+(?=[,}])")
_STRANGE = (
    "1e999",
    "-1e999",
    "NaN",
    "-Infinity",
    "null",
    "9" * 400,
    "9" * 5000,
    "1e308",
    "[" * 90 + "]" * 90,
    "[" * 199 + "]" * 199,
)
Place = tuple[Any, Any]  # a container and the key or index in it
_SIZES = frozenset({"baseManifestListSize", "deltaManifestListSize", "changelogManifestListSize"})


def change_json(random: Random, data: bytes) -> bytes:
    """Return a JSON file with one to three changed members; sometimes deeply nested, or with duplicate members."""
    roll = random.random()
    if roll < 0.03:
        return b"[" * random.choice([100, 5_000, 200_000])
    if roll < 0.06:
        return b'{"a":' * random.choice([900, 100_000]) + b"1" + b"}" * 100_000
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # already damaged by an earlier step
        return hostile.damage(random, data)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        _change_member(random, value)
    text = json.dumps(value)
    if roll < 0.10:  # a member twice: the last one counts in most parsers
        text = text[:-1] + ', "id": "x", "fields": 3, "version": 99}'
    if 0.12 <= roll < 0.22:  # tokens that `json.dumps` never writes, in the place of a whole number
        numbers = list(_NUMBER.finditer(text))
        if numbers:
            place = random.choice(numbers)
            text = text[: place.start()] + random.choice(_STRANGE) + text[place.end() :]
    if roll < 0.12:
        text = text.replace('"INT"', _deep_type(random.choice([50, 400, 20_000])), 1)
    return text.encode("utf-8", "surrogatepass")


def _deep_type(depth: int) -> str:
    return '{"type":"ARRAY","element":' * depth + '"INT"' + "}" * depth


def _places(value: Any, found: list[Place]) -> list[Place]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        found.append((value, key))
        _places(item, found)
    return found


def _change_member(random: Random, value: Any) -> None:
    places = _places(value, [])
    if not places:
        return
    holder, key = random.choice(places)
    roll = random.random()
    if roll < 0.12:
        del holder[key]
    elif roll < 0.17 and isinstance(holder, dict):
        holder[random.choice(hostile.TEXTS)] = holder.pop(key)
    elif roll < 0.22 and isinstance(holder, list):
        holder.insert(key, holder[random.randrange(len(holder))])
    elif key == "type" and roll < 0.8:
        holder[key] = random.choice(hostile.TYPES)
    else:
        holder[key] = _json_value(random, holder[key])


def _json_value(random: Random, old: Any) -> Any:
    if random.random() < 0.6:
        if isinstance(old, bool):
            return not old
        if isinstance(old, int):
            return random.choice([hostile.number(random), old + 1, old - 1, old * 1000])
        if isinstance(old, str):
            return random.choice([*hostile.TEXTS, old[::-1], old.upper(), old[:-1], old * 2])
    return random.choice(
        [
            None,
            True,
            [],
            {},
            [[]],
            [None],
            {"": ""},
            1.5,
            float("nan"),
            float("inf"),
            "",
            -1,
            2**63,
            10**400,
            hostile.TEXTS[0],
            [1] * 10_000,
        ]
    )


def change_avro(random: Random, data: bytes) -> bytes:
    """Return an Avro container with changed, dropped or repeated records, or with a block of huge decoded size."""
    try:
        schema, records = read_records(data, "golden")
    except Exception:  # already damaged by an earlier step
        return hostile.damage(random, data)
    roll = random.random()
    if roll < 0.05:
        return avro_bomb(random, schema)
    if roll < 0.12 and records:
        records = random.choice([records * 2, records[:-1], records[::-1], [records[0]] * 50, []])
    elif records:
        for _ in range(random.choice([1, 1, 2, 4])):
            _change_record(random, random.choice(records))
    for _ in range(3):
        try:
            return write_avro(schema, records)
        except Exception:  # a value that Avro cannot hold (a lone surrogate, null where none may be)
            schema, records = read_records(data, "golden")
            if records:
                _change_record(random, random.choice(records))
    return hostile.damage(random, data)


def write_avro(schema: dict[str, Any], records: list[dict[str, Any]]) -> bytes:
    """Return an Avro container, compressed as Java compresses it."""
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="zstandard", codec_compression_level=1)
    return out.getvalue()


def avro_bomb(random: Random, schema: dict[str, Any]) -> bytes:
    """Return an Avro container with a block of zeros: a few KB that decode to hundreds of MB or millions of records."""
    from backports import zstd

    out = io.BytesIO()
    fastavro.writer(out, schema, [], codec="zstandard")
    head = out.getvalue()
    sync = head[-16:]
    size = random.choice([1 << 20, 1 << 26, 300 << 20])
    block = zstd.compress(bytes(size), 1)
    return head + _long(random.choice([1, size // 64, size, 2**40])) + _long(len(block)) + block + sync


def _long(value: int) -> bytes:
    value, out = value << 1, bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _change_record(random: Random, record: dict[str, Any]) -> None:
    places = [(holder, key) for holder, key in _places(record, []) if not isinstance(holder[key], dict)]
    if not places:
        return
    holder, key = random.choice(places)
    holder[key] = _avro_value(random, holder[key])


def _avro_value(random: Random, old: Any) -> Any:
    if isinstance(old, bytes):
        return hostile.binary_row(random, old)
    if isinstance(old, str):
        return random.choice(hostile.NAMES)
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return hostile.number(random, random.choice([32, 64]))
    if isinstance(old, float):
        return random.choice([float("nan"), float("inf"), -0.0, 1e308])
    if isinstance(old, list):
        return random.choice([[], old * 2, old * 1000, list(hostile.NAMES), [0], [2**62], None])
    return random.choice([None, 0, "..", b"", [], [1]])


def change_vectors(random: Random, data: bytes) -> bytes:
    """Return deletion vectors with damaged bitmaps but valid sizes and checksums, to test the parser of bitmaps."""
    if random.random() < 0.3 or len(data) < 13:
        return hostile.damage(random, data)
    out, at = bytearray(data[:1]), 1
    while at + 8 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        body = data[at + 4 : at + 4 + size]
        changed = body[:4] + hostile.damage(random, body[4:]) if random.random() < 0.7 else body
        changed = (changed + bytes(len(body)))[: len(body)]
        out += struct.pack(">i", size) + changed + struct.pack(">I", zlib.crc32(changed))
        at += 8 + size
    return bytes(out)


def without_sizes(data: bytes) -> bytes:
    """Return a snapshot without the sizes of its manifest lists, so that damage inside the lists is reached."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    return json.dumps({k: v for k, v in value.items() if k not in _SIZES}).encode() if isinstance(value, dict) else data


def edit_avro(data: bytes, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """Return the container with ``edit`` applied to each record, or unchanged if the container is not readable."""
    try:
        schema, records = read_records(data, "golden")
        for record in records:
            edit(record)
        return write_avro(schema, records)
    except Exception:
        return data


@lru_cache(maxsize=4096)
def file_names(data: bytes) -> frozenset[str]:
    """Return the file names in a manifest, manifest list or index manifest; empty if it is not readable."""
    try:
        records = read_records(data, "golden")[1]
    except Exception:
        return frozenset()
    files = (record.get("_FILE", record) for record in records)
    return frozenset(str(file["_FILE_NAME"]) for file in files if isinstance(file, dict) and "_FILE_NAME" in file)
