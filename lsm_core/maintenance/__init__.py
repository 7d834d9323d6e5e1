"""Maintenance of tables: observe, score, plan, apply, verify and record, from metadata, explained and reversible.

Names are imported on first access, so that listing the actions and their flags does not import Arrow. The rewriting of
files is in `lsm_core.compact`; Dagster and policies are in the platform. Begin with `action` and `apply`, then open the
action in `actions`.
"""

from __future__ import annotations

from lsm_core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
