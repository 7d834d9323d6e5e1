"""Where an index file lies, and how a part of one is read."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import IndexManifestEntry
from lsm_core.metadata.store import TableStore


def index_file_path(store: TableStore, entry: IndexManifestEntry) -> str:
    """Return the path of an index file: `index/`, its bucket (option `index-file-in-data-file-dir`) or an external path.

    Raises InvalidData or CorruptFile for a name that would lead elsewhere.
    """
    if entry.external_path is not None:
        return store.data_path(entry.partition, entry.bucket, entry.file_name, entry.external_path)
    if store.options.get("index-file-in-data-file-dir"):
        return store.data_path(entry.partition, entry.bucket, entry.file_name)
    return store.index_path(entry.file_name)


def read_part(store: TableStore, path: str, offset: int, length: int) -> bytes:
    """Return at most ``length`` bytes from ``offset`` on, never more than the file has. Raises CorruptFile when it is missing."""
    try:
        with store.file_io.open_input(path) as source:
            size = source.size()
            if not 0 <= offset <= size or length < 0:
                raise CorruptFile(path, f"bytes {offset} to {offset + length} of a file of {size} bytes")
            return bytes(source.read_at(min(length, size - offset), offset))
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    except pa.ArrowException as error:
        raise CorruptFile(path, str(error)) from error


__all__ = ["index_file_path", "read_part"]
