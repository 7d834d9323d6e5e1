"""Commits: turn messages into snapshots, detect conflicts, retry lost races; the outcome is done, failed or unknown.

Data files are not written here: they arrive in messages of `lsm_core.write` and `lsm_core.compact`. The reading of
snapshots and manifests is in `lsm_core.metadata`. Begin with `committer`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
