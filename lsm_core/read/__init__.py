"""Reading of tables: plan a scan of one snapshot, prune it, and stream merged rows.

Compactions use the same merging streams. Nothing is written here; the order and folding of versions is in
`lsm_core.merge`. Begin with `scan`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
