"""Reading and writing of a table's metadata.

The package covers the store (the state of one table), schemas, snapshots, hints, manifests, tags, branches, consumers,
and the check for unsupported features. This package opens no data files. Only `lsm_core.commit` publishes snapshots.
Begin with `store` and `snapshots`.
"""

from __future__ import annotations

from lsm_core.metadata import branches, changelogs, consumers, manifests, snapshots, statistics, store, tags
from lsm_core.metadata.live_files import bucket_groups, tree_files
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.metadata.support import Purpose, require_compactable, require_readable, require_writable, unsupported
