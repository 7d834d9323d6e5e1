"""Commits: turn messages into snapshots, detect conflicts, retry lost races; the outcome is done, failed or unknown."""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
