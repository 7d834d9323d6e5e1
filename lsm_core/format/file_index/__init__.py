"""Bytes of the indexes of single data files: the container, bloom filters both ways, and the indexes that know rows."""

from __future__ import annotations

from lsm_core.format.file_index.bloom import DEFAULT_FPP, DEFAULT_ITEMS, BloomFilter, hashable, hashes_of
from lsm_core.format.file_index.index_container import encode, head_length, read_head
from lsm_core.format.file_index.index_evaluator import BLOOM, FileIndex, map_key

__all__ = [
    "BLOOM",
    "DEFAULT_FPP",
    "DEFAULT_ITEMS",
    "BloomFilter",
    "FileIndex",
    "encode",
    "hashable",
    "hashes_of",
    "head_length",
    "map_key",
    "read_head",
]
