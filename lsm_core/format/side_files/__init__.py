"""Bytes of the small files beside snapshots and manifests: tags, consumers, changelogs, statistics, hash indexes."""

from __future__ import annotations

from lsm_core.format.side_files.hash_index import decode_hash_index, encode_hash_index
from lsm_core.format.side_files.tag import Tag

__all__ = ["Tag", "decode_hash_index", "encode_hash_index"]
