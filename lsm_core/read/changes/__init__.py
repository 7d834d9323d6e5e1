"""Reads of changes: between two versions of a table, or snapshot after snapshot as a stream.

The names of this package are imported on first use, because most reads only check whether the options select changes.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
