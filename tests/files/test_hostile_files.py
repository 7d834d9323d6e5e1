"""Damaged and hostile data files of every format end in a typed error that names the file, in bounded time and memory."""

from __future__ import annotations

import io
import json
import random
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from lsm_core.errors import CorruptFile, DredgeError, ValueTooLarge
from lsm_core.files.formats import open_sink, open_source
from lsm_core.files.formats.orc_footer import _lz4_size
from lsm_core.format.avro import header, varint
from lsm_core.options import TableOptions
from lsm_core.storage import LocalFileIO

FORMATS = ["parquet", "orc", "avro"]
IO = LocalFileIO()
SYNC = bytes(range(16))


def sample() -> pa.Table:
    entry = pa.map_(pa.int32(), pa.struct([("p", pa.string())]))
    return pa.table(
        {
            "k": pa.array(range(500), pa.int64()),
            "s": [f"value {i * 7919:x}" for i in range(500)],
            "d": pa.array(range(500), pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(30, 2)),
            "at": pa.array(range(500), pa.timestamp("us")),
            "l": pa.array([[i, None] for i in range(500)], pa.list_(pa.int32())),
            "m": pa.array([[(i, {"p": "x"})] for i in range(500)], entry),
        }
    )


def stored(path: Path, form: str) -> bytes:
    sink = open_sink(IO, str(path), sample(), TableOptions({"file.format": form}, "db.t"))
    sink.write(sample())
    sink.close()
    return path.read_bytes()


def drain(path: Path) -> int:
    source = open_source(IO, str(path), table="db.t")
    try:
        return sum(batch.num_rows for batch in source.batches(source.schema.names, 100))
    finally:
        source.close()


@pytest.mark.parametrize("form", FORMATS)
def test_a_cut_file_is_corrupt_wherever_it_was_cut(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    whole = stored(path, form)
    for size in [0, 1, 3, 4, 5, 20, len(whole) // 2, len(whole) - 20, len(whole) - 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFile) as caught:
            drain(path)
        assert caught.value.path == str(path)
    path.unlink()
    with pytest.raises(CorruptFile, match="missing"):
        drain(path)


@pytest.mark.parametrize("form", FORMATS)
def test_flipped_bytes_end_in_typed_errors_only(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    whole = stored(path, form)
    chance = random.Random(7)
    refused: list[str] = []
    for _ in range(150):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            drain(path)
        except DredgeError as error:
            refused.append(str(error))
    assert len(refused) > 25
    assert all(path.name in reason for reason in refused)


@pytest.mark.parametrize("form", FORMATS)
def test_what_the_manifest_says_is_checked(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    size = len(stored(path, form))
    for wrong in ({"size": size + 1, "rows": 500}, {"size": size, "rows": 499}):
        with pytest.raises(CorruptFile, match="its manifest entry says"):
            open_source(IO, str(path), **wrong)
    open_source(IO, str(path), size=size, rows=500).close()


def avro_file(kind: Any, plain: bytes, rows: int, codec: str = "null", packed: bytes | None = None) -> bytes:
    schema = {"type": "record", "name": "record", "fields": [{"name": "c", "type": kind}]}
    body = plain if packed is None else packed
    return header(schema, codec, SYNC) + varint(rows) + varint(len(body)) + body + SYNC


def _raw(schema: Any) -> bytes:
    text = json.dumps(schema).encode()
    return b"Obj\x01" + varint(1) + varint(11) + b"avro.schema" + varint(len(text)) + text + varint(0) + SYNC


_DEEP: Any = "int"
for _ in range(500):
    _DEEP = {"type": "array", "items": _DEEP}
_SELF = {"type": "record", "name": "r", "fields": [{"name": "c", "type": ["null", "r"]}]}
_LONG = 2**62

HOSTILE: dict[str, Callable[[], bytes]] = {
    "more records than bytes": lambda: avro_file("int", b"\0", 2**40),
    "records of no bytes": lambda: avro_file("null", b"", 2**40),
    "an array of endless nothing": lambda: avro_file({"type": "array", "items": "null"}, varint(_LONG) + b"\0", 1),
    "an array longer than the file": lambda: avro_file({"type": "array", "items": "int"}, varint(_LONG) + b"\0", 1),
    "a text longer than the file": lambda: avro_file("string", varint(_LONG) + b"x", 1),
    "a text of negative length": lambda: avro_file("string", b"\x03x", 1),
    "a text that is none": lambda: avro_file("string", b"\x04\xff\xfe", 1),
    "a branch that is not there": lambda: avro_file(["null", "int"], b"\x08\0", 1),
    "a decimal of 17 bytes": lambda: avro_file(
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, varint(17) + bytes(17), 1
    ),
    "a decimal of 5 digits in 2": lambda: avro_file(
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}, varint(2) + b"\x7f\xff", 1
    ),
    "a decimal of 99 digits": lambda: avro_file(
        {"type": "bytes", "logicalType": "decimal", "precision": 99, "scale": 0}, varint(1) + b"\0", 1
    ),
    "a bomb of zstandard": lambda: avro_file("bytes", b"", 1, "zstandard", zstd.compress(bytes(1 << 29), 3)),
    "a bomb of deflate": lambda: avro_file("bytes", b"", 1, "deflate", _deflate(bytes(1 << 27))),
    "a bomb of snappy": lambda: avro_file("bytes", b"", 1, "snappy", b"\xff\xff\xff\xff\x0f" + bytes(40)),
    "an unknown codec": lambda: avro_file("bytes", b"", 0, "gzip"),
    "a header without end": lambda: b"Obj\x01" + varint(_LONG) + b"\x02a\x02b" * 100,
    "no schema": lambda: b"Obj\x01" + varint(0) + SYNC,
    "a schema nested 500 deep": lambda: _raw({"type": "record", "name": "r", "fields": [{"name": "c", "type": _DEEP}]}),
    "a schema of itself": lambda: _raw(_SELF),
    "a schema of an unknown name": lambda: _raw({**_SELF, "fields": [{"name": "c", "type": "nobody"}]}),
    "a schema that is a number": lambda: _raw(5),
    "a record without fields": lambda: _raw({"type": "record", "name": "r", "fields": []}),
    "a field twice": lambda: _raw({**_SELF, "fields": [{"name": "c", "type": "int"}] * 2}),
    "an enum": lambda: _raw({**_SELF, "fields": [{"name": "c", "type": {"type": "enum", "symbols": ["a"]}}]}),
}


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_avro_is_corrupt_in_little_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.avro"
    path.write_bytes(HOSTILE[name]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptFile, match=r"x\.avro"):
        drain(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024


def test_an_orc_footer_that_claims_much_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    whole = stored(path, "orc")
    refused: list[str] = []
    for at in range(2, 60):
        for byte in (0x7F, 0xFF):
            broken = bytearray(whole)
            broken[-at] = byte
            path.write_bytes(broken)
            try:
                drain(path)
            except DredgeError as error:
                refused.append(str(error))
    assert refused
    assert all(path.name in reason for reason in refused)


@given(st.lists(st.tuples(st.binary(max_size=400), st.integers(1, 300)), max_size=20))
def test_lz4_blocks_of_a_footer_are_measured_before_they_are_unpacked(parts: list[tuple[bytes, int]]) -> None:
    plain = b"".join(part * times for part, times in parts)
    packed = bytes(pa.Codec("lz4_raw").compress(plain, asbytes=True)) if plain else b""
    assert _lz4_size(packed, len(plain)) == len(plain)
    if plain:
        with pytest.raises(ValueError, match="more than"):
            _lz4_size(packed, len(plain) - 1)


def test_an_orc_file_of_one_long_text_is_read_in_short_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    rows, text = 16_000, "a" * (1 << 14)
    with orc.ORCWriter(path, compression="zstd", dictionary_key_size_threshold=1.0) as writer:
        for _ in range(16):
            writer.write(pa.table({"k": range(rows // 16), "c": [text] * (rows // 16)}))
    assert path.stat().st_size < 100_000
    source = open_source(IO, str(path))
    sizes = [(batch.num_rows, batch.nbytes) for batch in source.batches(["k", "c"], 65_536)]
    source.close()
    assert sum(count for count, _ in sizes) == rows
    assert max(size for _, size in sizes) < 80 << 20


def test_an_orc_file_of_a_list_of_millions_is_refused_by_its_statistics(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    orc.write_table(
        pa.table({"c": pa.array([np.zeros(20_000_000, np.int8)], pa.list_(pa.int8()))}), path, compression="zstd"
    )
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueTooLarge, match=r"x\.orc, column 'c'"):
        open_source(IO, str(path))


def test_a_parquet_footer_that_claims_much_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    whole = stored(path, "parquet")
    out = io.BytesIO(whole)
    out.seek(-8, io.SEEK_END)
    out.write(struct.pack("<I", 2**31 - 1))
    path.write_bytes(out.getvalue())
    with pytest.raises(CorruptFile):
        drain(path)


def test_a_small_file_of_one_huge_value_is_refused_by_its_footer(tmp_path: Path) -> None:
    """A hundred megabytes of one letter compress to a few kilobytes; several copies of it would fill the memory."""
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"c": ["a" * (100 << 20)]}), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ValueTooLarge, match=r"bomb\.parquet, column 'c'"):
        open_source(IO, str(path), size=None, rows=None)
