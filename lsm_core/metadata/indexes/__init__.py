"""A snapshot's index files and the indexes of its data files: found, read whole or in part, and checked."""

from __future__ import annotations

from lsm_core.metadata.indexes.deletions import DeletionFile, deletion_vectors, read_vector
from lsm_core.metadata.indexes.files import file_index
from lsm_core.metadata.indexes.hashes import hash_index
from lsm_core.metadata.indexes.places import index_file_path

__all__ = ["DeletionFile", "deletion_vectors", "file_index", "hash_index", "index_file_path", "read_vector"]
