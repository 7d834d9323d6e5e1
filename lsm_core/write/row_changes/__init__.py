"""Statements that change rows which are already there: truncate, drop partitions, delete, update, upsert; one commit each."""

from __future__ import annotations

from lsm_core.write.row_changes.drop import drop_partitions, truncate

__all__ = ["drop_partitions", "truncate"]
