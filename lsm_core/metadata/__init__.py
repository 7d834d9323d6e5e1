"""Reading and writing of a table's metadata.

Store, schemas, snapshots, hints, manifests, tags, branches, consumers, support checks.
"""

from __future__ import annotations

from lsm_core.metadata import (
    branches,
    changelogs,
    consumers,
    hints,
    manifests,
    schemas,
    snapshots,
    statistics,
    support,
    tags,
)
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import (
    Purpose,
    require_compactable,
    require_readable,
    require_writable,
    unsupported,
)
from lsm_core.metadata.tree_files import bucket_groups, tree_files

__all__ = [
    "POSTPONE_BUCKET",
    "BucketMode",
    "Purpose",
    "TableStore",
    "branches",
    "bucket_groups",
    "changelogs",
    "consumers",
    "hints",
    "manifests",
    "require_compactable",
    "require_readable",
    "require_writable",
    "schemas",
    "snapshots",
    "statistics",
    "support",
    "tags",
    "tree_files",
    "unsupported",
]
