"""Consumers: how far one stream has read (format.md 12, Java `Consumer`)."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.json_text import ObjectReader, parse_object, pretty

_NEXT: Final = "nextSnapshot"


def decode_consumer(data: bytes, path: str) -> int:
    """The id of the snapshot that the consumer reads next; raises :class:`CorruptFile` naming ``path``."""
    following = ObjectReader(parse_object(data, path), path).integer(_NEXT)
    if following < 0:
        raise CorruptFile(path, f"{_NEXT} is {following}")
    return following


def encode_consumer(next_snapshot: int) -> bytes:
    """The consumer file's content, as Java writes it."""
    return pretty({_NEXT: next_snapshot}).encode()


__all__ = ["decode_consumer", "encode_consumer"]
