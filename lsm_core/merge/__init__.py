"""Merge of the versions of keys, on columns: one order, bounded windows, merge functions, digests.

No I/O, clock or random.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
