"""Compression of Avro blocks, and decompression within limits, for every codec that Java writes."""

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
_MAX_BLOCK_BYTES: Final = 1 << 28
"""Limit of decompressed bytes per block: writers start a new one after some ten thousand, but a block has at least one
row.
"""
_ALLOWANCE, _MAX_EXPANSION = 1 << 24, 200
"""A block may have this many bytes plus this multiple of its compressed size."""
_DECOMPRESSORS: Final[dict[str, Callable[[], Any]]] = {
    "zstandard": zstd.ZstdDecompressor,
    "deflate": lambda: zlib.decompressobj(wbits=-zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_MAX_BLOCK_BYTES),
}


def decompress(data: bytes, codec: str, path: str) -> bytes:
    """Return the decompressed bytes of a block.

    Raises:
        CorruptFile: the codec is unknown, the data is damaged, or the result exceeds the limit.
    """
    if codec not in CODECS:
        raise CorruptFile(path, f'its Avro codec is "{codec}"')
    limit = min(_MAX_BLOCK_BYTES, _ALLOWANCE + _MAX_EXPANSION * len(data))
    try:
        if codec == "null":
            return data
        if codec == "snappy":
            return _decompress_snappy(data, limit, path)
        decompressor = _DECOMPRESSORS[codec]()
        plain: bytes = decompressor.decompress(data, limit)
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise CorruptFile(path, f"an Avro block does not unpack: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise CorruptFile(path, f"an Avro block is cut short or unpacks to more than {limit} bytes")
    return plain


def _decompress_snappy(data: bytes, limit: int, path: str) -> bytes:
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > limit:
        raise CorruptFile(path, f"an Avro block unpacks to more than {limit} bytes")
    plain = bytes(pa.Codec("snappy").decompress(body, decompressed_size=size, asbytes=True))
    if zlib.crc32(plain).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise CorruptFile(path, "an Avro block has another checksum")
    return plain


def compress(data: bytes, codec: str, level: int) -> bytes:
    """Return a compressed block; ``level`` applies to zstandard."""
    if codec == "zstandard":
        # Every zstd decoder verifies this checksum of the block; Avro itself has none.
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
