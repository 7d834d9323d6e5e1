"""Bytes of the sources of a primary-key index, as Java writes them: Dredge reads them and never writes them."""

from __future__ import annotations

import struct

from lsm_core.format.index_sources import IndexSources


def encode_sources(sources: IndexSources) -> bytes:
    """Return the bytes that `decode_sources` reads."""
    parts = [struct.pack(">iii", 1, sources.level, len(sources.files))]
    for name, rows in sources.files:
        encoded = name.encode("utf-8")
        parts += [struct.pack(">H", len(encoded)), encoded, struct.pack(">q", rows)]
    return b"".join(parts)
