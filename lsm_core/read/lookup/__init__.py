"""Lookup of rows by key without reading other rows.

A lookup finds the candidate buckets and files, searches the sorted files, and merges the versions of each key.
"""

from __future__ import annotations

from lsm_core.read.lookup.key_routing import SortedKeys
from lsm_core.read.lookup.rows_above import Hits, RowsAbove
from lsm_core.read.lookup.rows_by_key import lookup, open_hits, places_of_keys
