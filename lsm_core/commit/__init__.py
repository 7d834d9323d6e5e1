"""Commits: turn commit messages into snapshots, detect conflicts and retry; the outcome is done, failed or unknown.

This package writes no data files: `lsm_core.write` and `lsm_core.compact` write them and list them in commit messages.
`lsm_core.metadata` reads snapshots and manifests. Begin with `committer`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
