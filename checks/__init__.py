"""Checks: what must hold after every compaction (blocking), how the files lie, and whether the data keep their rules."""

from __future__ import annotations

from checks.data_checks import data_checks
from checks.layout_checks import layout_checks

__all__ = ["data_checks", "layout_checks"]
