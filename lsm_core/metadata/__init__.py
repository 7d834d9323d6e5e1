"""Reading and writing of a table's metadata.

It has the store (the state of one table), schemas, snapshots, hints, manifests, tags, branches and consumers, and the
check of unsupported features. Data files are not opened here, and snapshots are published by `lsm_core.commit` only.
Begin with `store` and `snapshots`.
"""

from __future__ import annotations

from lsm_core.metadata import branches, changelogs, consumers, manifests, snapshots, statistics, store, tags
from lsm_core.metadata.live_files import bucket_groups, tree_files
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import Purpose, require_compactable, require_readable, require_writable, unsupported
