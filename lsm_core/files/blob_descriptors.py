"""Values of `blob-descriptor-field` columns: the bytes of other files, which a stored descriptor names.

A descriptor is untrusted: whoever can write a table's files chooses its path. Only files inside the table's folder, or
in a folder that the operator allows (`DREDGE_ALLOWED_PLACES`), are opened. Links out of these folders are not followed.

Source: ``BlobDescriptor`` of Paimon 2.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.errors import CorruptFile, DredgeError, UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.options import ALLOWED_PLACES, is_allowed_place
from lsm_core.storage import FileIO
from lsm_core.storage.safe_paths import inside, place_of
from lsm_core.storage.urls import file_io_for

_MAGIC: Final = (0x424C4F4244455343).to_bytes(8, "little")
_MOST_PATH: Final = 4096
_BATCH_BYTES: Final = 16 << 20
"""Bytes of values that are read at once, unless one value is larger."""
_MOST_VALUE: Final = (1 << 31) - 1
"""Largest value in bytes, as in Java."""


@dataclass(frozen=True)
class BlobDescriptor:
    """Part of a file.

    Attributes:
        uri: address of the file.
        offset: first byte.
        length: number of bytes, or -1 for all bytes from ``offset`` on.
    """

    uri: str
    offset: int
    length: int

    @staticmethod
    def of(data: bytes, column: str) -> BlobDescriptor:
        """Decode a stored descriptor.

        Args:
            data: the stored bytes.
            column: name of the column, for errors.

        Raises:
            CorruptFile: the bytes are no descriptor of version 1 or 2.
        """
        start = 9 if data[:1] == b"\x02" and data[1:9] == _MAGIC else 1
        size = int.from_bytes(data[start : start + 4], "little", signed=True)
        end = start + 4 + size
        if data[:1] not in (b"\x01", b"\x02") or not 0 <= size <= _MOST_PATH or len(data) < end + 16:
            raise CorruptFile(f"<column {column}>", "a value is no descriptor of a blob")
        try:
            uri = data[start + 4 : end].decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(f"<column {column}>", "the address in a descriptor is no text") from error
        offset, length = (int.from_bytes(data[at : at + 8], "little", signed=True) for at in (end, end + 8))
        if offset < 0 or length < -1:
            raise CorruptFile(f"<column {column}>", "a descriptor names bytes before the start of a file")
        return BlobDescriptor(uri, offset, length)


def resolve_descriptors(store: TableStore, batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of bounded size, with the bytes that descriptors name in place of the descriptors.

    Args:
        store: the table.
        batch: rows with stored descriptors.
        columns: the columns to resolve.

    Raises:
        UnsupportedFeature: a file is outside of the folders that may be read.
        CorruptFile: a value is no descriptor, or its file is missing or shorter.
    """
    sources = _Sources(store)
    targets = [name for name in columns if name in batch.schema.names]
    values: dict[str, list[bytes | None]] = {name: [] for name in targets}
    begin, held = 0, 0
    for row in range(batch.num_rows):  # blobs are large
        for name in targets:
            stored = batch.column(name)[row]
            value = sources.read(bytes(stored.as_buffer()), name) if stored.is_valid else None
            values[name].append(value)
            held += 0 if value is None else len(value)
        if held >= _BATCH_BYTES or row == batch.num_rows - 1:
            piece = batch.slice(begin, row + 1 - begin)
            for name in targets:
                place = piece.schema.get_field_index(name)
                field = piece.schema.field(place)
                piece = piece.set_column(
                    place, field, one_array(pa.chunked_array([pa.array(values[name], field.type)]))
                )
            values, begin, held = {name: [] for name in targets}, row + 1, 0
            yield piece


class _Sources:
    """Files that descriptors name; the answers about addresses are kept."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._opened: dict[str, tuple[FileIO, str]] = {}

    def read(self, data: bytes, column: str) -> bytes:
        """Return the bytes that a descriptor names."""
        descriptor = BlobDescriptor.of(data, column)
        file_io, path = self._find(descriptor.uri, column)
        try:
            with file_io.open_input(path) as source:
                size = source.size()
                length = size - descriptor.offset if descriptor.length < 0 else descriptor.length
                if length < 0 or length > _MOST_VALUE or descriptor.offset + length > size:
                    reason = f"a descriptor of column '{column}' names {length} bytes from {descriptor.offset} on"
                    raise CorruptFile(path, f"{reason}, the file has {size}")
                source.seek(descriptor.offset)
                value = bytes(source.read(length))
        except OSError as error:
            raise CorruptFile(path, f"it is named by column '{column}' and cannot be read: {error}") from error
        if len(value) != length:
            raise CorruptFile(path, f"it ends within a value of column '{column}'")
        return value

    def _find(self, uri: str, column: str) -> tuple[FileIO, str]:
        """Return the FileIO and path of an address that may be read."""
        if uri in self._opened:
            return self._opened[uri]
        store = self._store
        advice = (
            f"{ALLOWED_PLACES} of this process does not allow it; 'blob-as-descriptor' = 'true' returns descriptors"
        )
        feature = f"column '{column}' of 'blob-descriptor-field' with values in {uri[:200]}: {advice}"
        try:
            file_io, path = file_io_for(uri, escaped=False)
        except DredgeError as error:
            raise UnsupportedFeature(feature, store.name) from error
        if not self._may_read(path):
            raise UnsupportedFeature(feature, store.name)
        self._opened[uri] = file_io, path
        return file_io, path

    def _may_read(self, path: str) -> bool:
        """Return whether a file is inside the table or an allowed folder, also behind links."""
        paths = [path] if place_of(path) else [path, os.path.realpath(path)]
        roots = (
            [self._store.root] if place_of(self._store.root) else [self._store.root, os.path.realpath(self._store.root)]
        )
        return all(any(_is_inside(root, place) for root in roots) or is_allowed_place(place) for place in paths)


def _is_inside(root: str, path: str) -> bool:
    try:
        inside(root, path)
    except CorruptFile:
        return False
    return True
