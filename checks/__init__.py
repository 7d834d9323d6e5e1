"""Checks: what must hold after every compaction (blocking), how bad the backlog is, and whether the data keeps its own rules."""

from __future__ import annotations

from checks.backlog import backlog_check
from checks.expectations import suite_check
from checks.merged_view import merged_view_check
from checks.tree_invariants import tree_check

__all__ = ["backlog_check", "merged_view_check", "suite_check", "tree_check"]
