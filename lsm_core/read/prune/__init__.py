"""Pruning of manifests, partitions, buckets and files that hold no matching row, from metadata alone.

Arrow expressions are pruned by Arrow's "simplify with guarantee": each manifest, bucket or file has an expression that
is true for all of its rows, and is skipped when the filter cannot be true under it.
"""

from __future__ import annotations

from lsm_core.read.prune.expired_files import ExpiredFiles, expired_among, expired_files, expiry_of, living_at
from lsm_core.read.prune.file_pruning import prune_files
from lsm_core.read.prune.partition_pruning import combinations, manifest_chooser, prune_buckets, prune_partitions
