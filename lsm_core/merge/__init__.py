"""Columnar merge of the versions of keys: merge order, windows of limited memory, merge functions, digests.

Inputs and outputs are Arrow columns; this package has no I/O, clock or random numbers. The choice of files is in
`lsm_core.tree`. A reference merge that handles one row at a time is in `lsm_core.maintenance.reference`. Begin with
`function`, the factory of merge engines.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
