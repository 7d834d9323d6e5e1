"""Writing: rows to buckets, a bounded buffer, sorted and merged level-0 files (or append files), commit messages."""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
