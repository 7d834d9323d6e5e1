"""Bytes of the small files beside snapshots and manifests: tags, consumers, changelogs, statistics, hash indexes."""

from __future__ import annotations

from lsm_core.format.side_files.changelog import decode_changelog, encode_changelog
from lsm_core.format.side_files.consumer import decode_consumer, encode_consumer
from lsm_core.format.side_files.hash_index import decode_hash_index, encode_hash_index
from lsm_core.format.side_files.statistics import ColumnStatistics, Statistics
from lsm_core.format.side_files.tag import Tag

__all__ = [
    "ColumnStatistics",
    "Statistics",
    "Tag",
    "decode_changelog",
    "decode_consumer",
    "decode_hash_index",
    "encode_changelog",
    "encode_consumer",
    "encode_hash_index",
]
