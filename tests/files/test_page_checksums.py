"""Checksums of Parquet pages: a flipped bit in page data is an error that names the file, and never another value."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.files.formats import open_sink, open_source
from lsm_core.files.formats.parquet import ParquetSink
from lsm_core.files.formats.thrift import page_header
from lsm_core.options import TableOptions
from lsm_core.storage import LocalFileIO
from tests.maintenance.tables import keyed, rows

ROWS = 2_000


def make_rows() -> pa.Table:
    order = np.random.default_rng(5)
    return pa.table(
        {
            "k": np.arange(ROWS),
            "repeats": [f"text {i % 7}" for i in range(ROWS)],
            "text": order.integers(0, 1 << 60, ROWS).astype(str),
            "real": order.random(ROWS),
            "listed": [[i, i % 3] for i in range(ROWS)],
            "nanos": pa.array(np.arange(ROWS), pa.timestamp("ns")),
        }
    )


def write_file(path: Path, codec: str, data: pa.Table) -> bytes:
    sink = ParquetSink(LocalFileIO(), str(path), data, codec=codec, level=1, delta=["k"])
    sink.write(data.slice(0, ROWS // 2))
    sink.write(data.slice(ROWS // 2))
    sink.close()
    return path.read_bytes()


def read_file(path: Path) -> pa.Table:
    source = open_source(LocalFileIO(), str(path))
    try:
        return pa.Table.from_batches(list(source.batches(source.schema.names, 10_000)))
    finally:
        source.close()


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("flips", [pytest.param(80), pytest.param(20_000, marks=pytest.mark.soak)])
def test_no_flipped_bit_of_a_page_is_read_as_another_value(tmp_path: Path, codec: str, flips: int) -> None:
    data = write_file(tmp_path / "good.parquet", codec, make_rows())
    expected = read_file(tmp_path / "good.parquet")
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    draw, refused, wrong = random.Random(flips), 0, []
    damaged = tmp_path / "damaged.parquet"
    for _ in range(flips):
        at, bit = draw.randrange(4, end), draw.randrange(8)
        damaged.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        try:
            if not read_file(damaged).equals(expected):
                wrong.append((at, bit))
        except DredgeError as error:
            refused += str(damaged) in str(error)
    assert wrong == []
    assert refused > flips * 0.9, "the rest lies in page indexes and page headers, whose bits change no value"


def test_a_mismatch_is_a_corrupt_file_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = bytearray(write_file(path, "none", pa.table({"real": np.random.default_rng(1).random(ROWS)})))
    data[2_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=rf"{path}.*CRC"):
        read_file(path)


def test_page_headers_with_a_checksum_are_read_by_their_pattern(tmp_path: Path) -> None:
    data = write_file(tmp_path / "a.parquet", "none", pa.table({"real": np.random.default_rng(1).random(ROWS)}))
    header = page_header(data[4:260])
    assert header is not None and header.values == ROWS // 2
    checksum = zlib.crc32(data[4 + header.end : 4 + header.end + header.stored_bytes])
    signed = checksum - (checksum >> 31 << 32)
    assert (signed << 1) ^ (signed >> 63) == _varint(data[4 : 4 + header.end].split(b"\x15\x00\x15", 1)[1], skip=1)


def _varint(data: bytes, skip: int) -> int:
    """The unsigned number behind ``skip`` numbers and the two field heads of a page header's sizes and checksum."""
    at = 0
    for _ in range(skip + 1):
        at = next(place for place in range(at, len(data)) if data[place] < 0x80) + 2
    end = next(place for place in range(at, len(data)) if data[place] < 0x80)
    return sum((byte & 127) << 7 * place for place, byte in enumerate(data[at : end + 1]))


def test_a_compaction_keeps_the_checksums_of_its_inputs(tmp_path: Path) -> None:
    table = keyed(tmp_path, file__compression="none")
    for step in range(3):
        table.write(rows(range(step, 400), v=step))
    report = table.compact(full=True)
    assert report.snapshot_id is not None
    newest = max(Path(table.store.root).glob("bucket-0/*.parquet"), key=lambda one: one.stat().st_mtime_ns)
    data = bytearray(newest.read_bytes())
    at = data.index(b"s399")
    data[at] ^= 1
    newest.write_bytes(data)
    with pytest.raises(CorruptFile, match="CRC"):
        table.to_arrow()


@pytest.mark.parametrize("codec", ["zstd", "snappy", "bzip2", "xz"])
def test_no_flipped_bit_of_an_avro_block_is_read_as_another_value_where_its_codec_has_a_checksum(
    tmp_path: Path, codec: str
) -> None:
    digits = pa.table({"text": np.random.default_rng(2).integers(0, 1 << 60, 400).astype(str)})
    path = tmp_path / "good.avro"
    options = TableOptions({"file.format": "avro", "file.compression": codec})
    sink = open_sink(LocalFileIO(), str(path), digits, options, file_format="avro")
    sink.write(digits)
    sink.close()
    data, expected, draw, damaged = path.read_bytes(), read_file(path), random.Random(3), tmp_path / "damaged.avro"
    refused = 0
    for _ in range(60):
        at = draw.randrange(len(data) // 4, len(data))
        damaged.write_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :])
        try:
            assert read_file(damaged).equals(expected), at
        except DredgeError:
            refused += 1
    assert refused > 50
