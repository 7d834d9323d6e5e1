"""Encoding and decoding of the indexes of single data files: the container, bloom filters, and row indexes."""

from __future__ import annotations

from lsm_core.format.file_index.bitmap import DEFAULT_BLOCK, encode_bitmap
from lsm_core.format.file_index.bloom import DEFAULT_FPP, DEFAULT_ITEMS, BloomFilter, hashable, hashes_of
from lsm_core.format.file_index.index_container import encode, head_length, read_head
from lsm_core.format.file_index.index_evaluator import BLOOM, FileIndex, map_key
from lsm_core.format.file_index.range_bitmap import default_chunk, encode_range
from lsm_core.format.file_index.slices import encode_slices
from lsm_core.format.file_index.values import ValueRows, kind_of, numbers_of
