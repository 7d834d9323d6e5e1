"""Lookup of rows by key without reading other rows.

Candidate buckets and files, search in sorted files, merged rows.
"""

from __future__ import annotations

from lsm_core.read.lookup.key_routing import SortedKeys
from lsm_core.read.lookup.rows_above import Hits, RowsAbove
from lsm_core.read.lookup.rows_by_key import lookup, open_hits, places_of_keys
