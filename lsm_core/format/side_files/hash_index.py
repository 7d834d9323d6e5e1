"""Hash indexes of dynamic buckets: big-endian hashes without header or checksum (format.md 11.1, Java `HashIndexFile`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lsm_core.errors import CorruptFile

_WIDTH: Final = 4


def decode_hash_index(data: bytes, path: str) -> npt.NDArray[np.int32]:
    """The hashes in file order (int32); raises :class:`CorruptFile` naming ``path`` when a hash is cut short."""
    if len(data) % _WIDTH:
        raise CorruptFile(path, f"{len(data)} bytes are not whole hashes of {_WIDTH} bytes")
    return np.frombuffer(data, ">i4").astype(np.int32)


def encode_hash_index(hashes: npt.NDArray[np.integer[Any]]) -> bytes:
    """The file's content; ``hashes`` are distinct (the caller's promise)."""
    return hashes.astype(">i4").tobytes()


__all__ = ["decode_hash_index", "encode_hash_index"]
