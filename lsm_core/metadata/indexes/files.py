"""The indexes of one data file: inside its manifest entry, or in the file beside it, read no further than asked."""

from __future__ import annotations

from functools import partial
from typing import Final

from lsm_core.errors import CorruptFile
from lsm_core.format.file_index import FileIndex, head_length, read_head
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.indexes.places import read_part
from lsm_core.metadata.store import TableStore

_SUFFIX: Final = ".index"
_FIRST_BYTES: Final = 4096
"""Most heads fit into the first read."""


def file_index(store: TableStore, partition: bytes, bucket: int, file: DataFileMeta) -> FileIndex | None:
    """Return the indexes of ``file``, None without any or when option `file-index.read.enabled` is off.

    Column names and types in it are those of the schema ``file.schema_id``. Raises CorruptFile naming the index (a side file
    that is missing, too) and InvalidData for a hostile name. Source class: ``FileIndexEvaluator``.
    """
    if not store.options.get("file-index.read.enabled"):
        return None
    if file.embedded_index is not None:
        return FileIndex.decode(file.embedded_index, f"index of {file.file_name} in its manifest")
    beside = [name for name in file.extra_files if name.endswith(_SUFFIX)]
    if not beside:
        return None
    path = store.data_path(partition, bucket, beside[0], file.external_path)
    try:
        size = store.file_io.size(path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    head = read_part(store, path, 0, _FIRST_BYTES)
    length = head_length(head, path)
    if length > len(head):
        head = read_part(store, path, 0, length)
    return FileIndex(read_head(head, size, path), partial(_fetch, store, path), path)


def _fetch(store: TableStore, path: str, start: int, length: int) -> bytes:
    return read_part(store, path, start, length)


__all__ = ["file_index"]
