"""Rows of some keys without reading the rest: where keys can lie, searching sorted files for them, and the merged answer."""

from __future__ import annotations

from lsm_core.read.lookup.key_routing import SortedKeys
from lsm_core.read.lookup.rows_above import Hits, RowsAbove
from lsm_core.read.lookup.rows_by_key import lookup, open_hits, places_of_keys

__all__ = ["Hits", "RowsAbove", "SortedKeys", "lookup", "open_hits", "places_of_keys"]
