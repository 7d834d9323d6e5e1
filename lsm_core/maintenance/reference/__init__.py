"""The judge of merging: one row at a time in plain Python, written from the specification and sharing no code with `merge`."""

from __future__ import annotations

from lsm_core.maintenance.reference.deduplicate import Row, key_order, merge_by_key, merge_rows

__all__ = ["Row", "key_order", "merge_by_key", "merge_rows"]
