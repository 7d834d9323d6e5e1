"""Merge of the versions of keys, on columns: one order, bounded windows, merge functions, digests.

No I/O, clock or random: inputs and outputs are Arrow columns. The choice of files is in `lsm_core.tree`, and the
row-at-a-time reference in `lsm_core.maintenance.reference`. Begin with `function`, the factory of merge engines.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
