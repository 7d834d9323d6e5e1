"""Rows of some keys without reading the rest: where keys can lie, searching sorted files for them, and the merged answer."""

from __future__ import annotations

from lsm_core.read.lookup.answer import lookup
from lsm_core.read.lookup.hits import open_hits
from lsm_core.read.lookup.places import KeyRuns

__all__ = ["KeyRuns", "lookup", "open_hits"]
