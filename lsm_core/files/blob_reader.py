"""Reader of blob files (`.blob`): the values of one BLOB column, each between a header and a checksum.

A blob file ends with an index of record lengths: variable-length integers of the differences between neighbours. The
length -1 is a null, and -2 a placeholder, which stands for the value in an older file.

Source: ``BlobFormatReader``, ``BlobFileMeta``, ``DeltaVarintCompressor``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.storage import FileIO

PLACEHOLDER: Final = -2
NULL: Final = -1
VERSION: Final = 1
_FOOTER: Final = 5
MAGIC: Final = (1481511375).to_bytes(4, "little")
HEAD, TAIL, CHECK = len(MAGIC), 12, 4
_BATCH_BYTES: Final = 16 << 20
"""Bytes of records that are read at once, unless one record is larger."""
_BATCH_ROWS: Final = 4096


@dataclass(frozen=True)
class BlobValues:
    """Values of consecutive rows.

    Attributes:
        values: the values (large_binary); null for placeholders too.
        placeholders: mask of the rows whose value is in an older file.
    """

    values: pa.Array
    placeholders: npt.NDArray[np.bool_]

    def slice(self, start: int, stop: int) -> BlobValues:
        """Return the rows from ``start`` up to ``stop`` (exclusive)."""
        return BlobValues(self.values.slice(start, stop - start), self.placeholders[start:stop])


def decode_lengths(index: bytes, path: str) -> npt.NDArray[np.int64]:
    """Return the record lengths of a blob file.

    Args:
        index: the bytes of the index.
        path: path of the file, for errors.

    Raises:
        CorruptFile: the index ends within a number, or a number has more than 64 bits.
    """
    data = np.frombuffer(index, np.uint8)
    if not len(data):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(data < 0x80)
    starts = np.r_[0, ends[:-1] + 1]
    sizes = ends - starts + 1
    if not len(ends) or ends[-1] != len(data) - 1 or sizes.max() > 10:
        raise CorruptFile(path, "its index of blobs is damaged")
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(int(sizes.max())):  # bytes of a number, at most ten
        longer = sizes > place
        payload = (data[starts[longer] + place] & 0x7F).astype(np.uint64)
        numbers[longer] |= payload << np.uint64(7 * place)
    deltas = (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
    return np.cumsum(deltas)


def read_blobs(file_io: FileIO, path: str, rows: int) -> Iterator[BlobValues]:
    """Yield the values of a blob file in bounded memory; a batch has at least one value.

    Args:
        file_io: access to the files.
        path: path of the file.
        rows: expected number of rows.

    Raises:
        CorruptFile: the file is missing or damaged, or has another number of rows.
    """
    try:
        source = file_io.open_input(path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    with source:
        size = source.size()
        source.seek(max(0, size - _FOOTER))
        footer = source.read(_FOOTER)
        index_size = int.from_bytes(footer[:4], "little", signed=True)
        if len(footer) < _FOOTER or footer[4] != VERSION or not 0 <= index_size <= size - _FOOTER:
            raise CorruptFile(path, "it is no blob file of version 1")
        data_size = size - _FOOTER - index_size
        source.seek(data_size)
        lengths = decode_lengths(source.read(index_size), path)
        stored = np.where(lengths >= 0, lengths, 0)
        is_odd = (lengths < PLACEHOLDER) | ((lengths >= 0) & (lengths < HEAD + TAIL))
        if len(lengths) != rows or is_odd.any() or int(stored.sum()) != data_size:
            raise CorruptFile(path, f"its index of {len(lengths)} blobs does not fit {rows} rows and {data_size} bytes")
        ends = np.cumsum(stored)
        first = 0
        while first < rows:
            begin = int(ends[first] - stored[first])
            last = int(np.searchsorted(ends, begin + _BATCH_BYTES, side="right"))
            last = min(max(last, first + 1), first + _BATCH_ROWS, rows)
            source.seek(begin)
            data = source.read(int(ends[last - 1]) - begin)
            yield _values_of(data, lengths[first:last], path)
            first = last


def _values_of(data: bytes, lengths: npt.NDArray[np.int64], path: str) -> BlobValues:
    """Return the values of neighbouring records; each record's checksum is tested."""
    present = lengths >= 0
    stored = np.where(present, lengths, 0)
    if len(data) != int(stored.sum()):
        raise CorruptFile(path, "it ends within a blob")
    ends = np.cumsum(stored)
    view = memoryview(data)
    parts: list[memoryview] = []
    for end, length in zip(ends[present].tolist(), stored[present].tolist(), strict=True):  # blobs are large
        record = view[end - length : end]
        check = int.from_bytes(record[-CHECK:], "little")
        if bytes(record[:HEAD]) != MAGIC or zlib.crc32(record[:-CHECK]) != check:
            raise CorruptFile(path, "the checksum of a blob differs")
        parts.append(record[HEAD:-TAIL])
    payload = np.where(present, stored - (HEAD + TAIL), 0)
    offsets = np.r_[0, np.cumsum(payload)].astype(np.int64)
    valid = pa.array(present).buffers()[1] if not present.all() else None
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)
    return BlobValues(values, lengths == PLACEHOLDER)
