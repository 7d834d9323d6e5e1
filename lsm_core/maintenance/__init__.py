"""Maintenance of tables: observe, score, plan, apply, verify and record, from metadata, explained and reversible.

Names are imported on first access, so that listing the actions and their flags does not import Arrow.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
