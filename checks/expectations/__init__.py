"""Expectations: a great-expectations suite over the merged rows of any table, imported only when a check runs (7 s)."""

from __future__ import annotations

from checks.expectations.check import suite_check

__all__ = ["suite_check"]
