"""Hash indexes: the key hashes that a dynamic bucket holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lsm_core.errors import CorruptFile
from lsm_core.format.manifest import IndexManifestEntry
from lsm_core.format.side_files import decode_hash_index
from lsm_core.metadata.indexes.places import index_file_path, read_part
from lsm_core.metadata.store import TableStore


def hash_index(store: TableStore, entry: IndexManifestEntry) -> npt.NDArray[np.int32]:
    """Return the hashes (int32, in file order) of the HASH index file ``entry``. Raises CorruptFile naming it.

    Source class: ``HashIndexFile``.
    """
    path = index_file_path(store, entry)
    data = read_part(store, path, 0, entry.file_size + 1)
    if len(data) != entry.file_size:
        raise CorruptFile(path, f"the index manifest records {entry.file_size} bytes, the file has another size")
    found = decode_hash_index(data, path)
    if len(found) != entry.row_count:
        raise CorruptFile(path, f"{len(found)} hashes, the index manifest records {entry.row_count}")
    return found


__all__ = ["hash_index"]
