"""Which manifests, partitions, buckets and files a filter cannot touch: decided from metadata before data is opened.

What is proven is proven by Arrow's own "simplify with guarantee": each manifest, bucket or file comes with an expression
that is true for all of its rows, and goes when the filter cannot be true under it.
"""

from __future__ import annotations

from lsm_core.read.prune.expired_files import ExpiredFiles, expired_among, expired_files, expiry_of, living_at
from lsm_core.read.prune.file_pruning import prune_files
from lsm_core.read.prune.partition_pruning import combinations, manifest_chooser, prune_buckets, prune_partitions

__all__ = [
    "ExpiredFiles",
    "combinations",
    "expired_among",
    "expired_files",
    "expiry_of",
    "living_at",
    "manifest_chooser",
    "prune_buckets",
    "prune_files",
    "prune_partitions",
]
