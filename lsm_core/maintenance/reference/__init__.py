"""Reference implementation of merging: one row at a time in plain Python.

It is written from the specification and shares no code with `merge`.
"""

from __future__ import annotations

from lsm_core.maintenance.reference.merging import builds_rows, merge_by_key, merge_rows, merge_versions
from lsm_core.maintenance.reference.versions import Row, compare_keys, key_order
