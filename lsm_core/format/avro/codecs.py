"""Blocks of Avro files, packed, and unpacked within limits, by every codec that Java writes."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from backports import zstd

from lsm_core.errors import CorruptFile

CODECS: Final = frozenset({"null", "zstandard", "deflate", "snappy", "bzip2", "xz"})
_CHECKSUM_BYTES: Final = 4
_MOST_BLOCK: Final = 1 << 28
"""Plain bytes of a block: writers cut at some ten thousand, but a block holds at least one row."""
_ALLOWANCE, _MOST_EXPANSION = 1 << 24, 200
"""A block may be this large whatever its size in the file, or this many times as large."""
_UNPACKERS: Final[dict[str, Callable[[], Any]]] = {
    "zstandard": zstd.ZstdDecompressor,
    "deflate": lambda: zlib.decompressobj(wbits=-zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_MOST_BLOCK),
}


def decompress(data: bytes, codec: str, path: str) -> bytes:
    """The plain bytes of a block, never more than what a block may have; raises :class:`CorruptFile`."""
    if codec not in CODECS:
        raise CorruptFile(path, f'its Avro codec is "{codec}"')
    most = min(_MOST_BLOCK, _ALLOWANCE + _MOST_EXPANSION * len(data))
    try:
        if codec == "null":
            return data
        if codec == "snappy":
            return _unsnap(data, most, path)
        unpacker = _UNPACKERS[codec]()
        plain: bytes = unpacker.decompress(data, most)
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CorruptFile(path, f"an Avro block does not unpack: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptFile(path, f"an Avro block is cut short or unpacks to more than {most} bytes")
    return plain


def _unsnap(data: bytes, most: int, path: str) -> bytes:
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most:
        raise CorruptFile(path, f"an Avro block unpacks to more than {most} bytes")
    plain = bytes(pa.Codec("snappy").decompress(body, decompressed_size=size, asbytes=True))
    if zlib.crc32(plain).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise CorruptFile(path, "an Avro block has another checksum")
    return plain


def compress(data: bytes, codec: str, level: int) -> bytes:
    """A block's bytes as ``codec`` stores them; ``level`` is zstandard's."""
    if codec == "zstandard":
        # A checksum of the block's bytes, which every zstd decoder compares: Avro itself has none.
        parameters = zstd.CompressionParameter
        settings = {int(parameters.compression_level): level, int(parameters.checksum_flag): 1}
        return bytes(zstd.compress(data, options=settings))
    if codec == "deflate":
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()
    if codec == "snappy":
        packed = pa.Codec("snappy").compress(data, asbytes=True)
        return bytes(packed) + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
    if codec == "bzip2":
        return bz2.compress(data)
    return lzma.compress(data) if codec == "xz" else data


__all__ = ["CODECS", "compress", "decompress"]
