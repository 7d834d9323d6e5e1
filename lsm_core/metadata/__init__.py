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
