"""Reading of tables: plan a scan of one snapshot, prune it, and stream merged rows.

Compactions use the same merging streams. This package writes no files. `lsm_core.merge` orders and merges the versions
of a key. Begin with `scan`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
