"""Container of a data file's indexes, with their positions by column (format.md 9).

Source: ``FileIndexFormat``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.file_index.values import number, take

_MAGIC: Final = (1493475289347502).to_bytes(8, "big")
_VERSION: Final = 1
_FIXED: Final = 16
"""Bytes of magic, version and head length."""
_WORD, _HALF = 4, 2
_MAX_NAME_BYTES: Final = 0xFFFF
_MIN_COLUMN_BYTES: Final = _HALF + _WORD
_MIN_INDEX_BYTES: Final = _HALF + 2 * _WORD
EMPTY: Final = -1
"""Start position of an index without data: every value of the column is null."""
Places = dict[str, dict[str, tuple[int, int]]]


def head_length(data: bytes | memoryview, path: str) -> int:
    """Return the length of the head in bytes, from the first 16 bytes of the container.

    Raises:
        CorruptFile: magic or version is wrong; the message names ``path``.
    """
    view = memoryview(data)
    if len(view) < _FIXED or bytes(view[:8]) != _MAGIC:
        raise CorruptFile(path, "not a file index (wrong magic)")
    version, length = number(view, 8, path), number(view, 12, path)
    if version != _VERSION:
        raise CorruptFile(path, f"file index of version {version}; known: {_VERSION}")
    if length < _FIXED + _WORD:
        raise CorruptFile(path, f"a file index's head of {length} bytes")
    return length


def read_head(data: bytes | memoryview, size: int, path: str) -> Places:
    """Return start and length of each index by column and index type.

    Args:
        data: bytes from the start of the container, at least the whole head.
        size: size of the container in bytes.
        path: path of the container, for messages.

    Returns:
        The positions; a start of :data:`EMPTY` means an index of nulls only.

    Raises:
        CorruptFile: the head is damaged, or a position is outside the container.
    """
    length = head_length(data, path)
    if length > len(data):
        raise CorruptFile(path, f"a head of {length} bytes in a file index of {size} bytes")
    view = memoryview(data)[:length]
    places: Places = {}
    columns, at = _count(view, _FIXED, _MIN_COLUMN_BYTES, path), _FIXED + _WORD
    for _ in range(columns):
        name, at = _read_utf(view, at, path)
        indexes, at = _count(view, at, _MIN_INDEX_BYTES, path), at + _WORD
        column_places = places.setdefault(name, {})
        for _ in range(indexes):
            kind, at = _read_utf(view, at, path)
            start, extent, at = number(view, at, path), number(view, at + _WORD, path), at + 2 * _WORD
            if start != EMPTY and (start < length or extent < 0 or start + extent > size):
                raise CorruptFile(path, f"index '{kind}' of column '{name}' is at {start}, {extent} bytes of {size}")
            column_places[kind] = (start, extent)
    return places


def encode(indexes: Mapping[str, Mapping[str, bytes | None]]) -> bytes:
    """Return a container of the indexes of one data file.

    Args:
        indexes: encoded index by column and index type; None is an index of a column that has only nulls.

    Raises:
        ValueError: a name is too long.
    """
    names = {name: _utf(name) for name in indexes}
    kinds = {kind: _utf(kind) for of_column in indexes.values() for kind in of_column}
    length = _FIXED + 2 * _WORD + sum(len(name) + _WORD for name in names.values())
    length += sum(len(kinds[kind]) + 2 * _WORD for of_column in indexes.values() for kind in of_column)
    head = [_MAGIC, _int(_VERSION), _int(length), _int(len(indexes))]
    bodies: list[bytes] = []
    at = length
    for name, of_column in indexes.items():
        head += [names[name], _int(len(of_column))]
        for kind, body in of_column.items():
            head += [kinds[kind], _int(EMPTY if body is None else at), _int(0 if body is None else len(body))]
            bodies.append(body or b"")
            at += len(bodies[-1])
    head.append(_int(0))  # number of bytes that later versions may add to the head
    return b"".join([*head, *bodies])


def _count(view: memoryview, at: int, smallest: int, path: str) -> int:
    count = number(view, at, path)
    if not 0 <= count <= (len(view) - at) // smallest:
        raise CorruptFile(path, f"file index: {count} entries in a head of {len(view)} bytes")
    return count


def _int(value: int) -> bytes:
    return value.to_bytes(_WORD, "big", signed=True)


def _utf(text: str) -> bytes:
    """Return a text as in Java's `DataOutput.writeUTF`: its length in two bytes, then modified UTF-8.

    In modified UTF-8, NUL has two bytes, and a character beyond the basic plane is two surrogates of three bytes each.

    Raises:
        ValueError: the text is too long.
    """
    wide = text.encode("utf-16-be", "surrogatepass")
    data = b""
    for at in range(0, len(wide), _HALF):
        unit = int.from_bytes(wide[at : at + _HALF], "big")
        if 1 <= unit <= 0x7F:
            data += bytes([unit])
        elif unit <= 0x7FF:
            data += bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
        else:
            data += bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
    if len(data) > _MAX_NAME_BYTES:
        raise ValueError(f"name {text[:40]!r}... is longer than {_MAX_NAME_BYTES} bytes")
    return len(data).to_bytes(_HALF, "big") + data


def _read_utf(view: memoryview, at: int, path: str) -> tuple[str, int]:
    length = int.from_bytes(take(view, at, _HALF, path), "big")
    data = bytes(take(view, at + _HALF, length, path))
    try:
        # Separately written surrogates form pairs in UTF-16; a lone surrogate is damage.
        loose = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        text = loose.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise CorruptFile(path, f"file index: a name that is not text: {error}") from error
    return text, at + _HALF + length
