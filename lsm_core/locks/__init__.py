"""Locks: lock files or Paimon's lock table in a database decide who may commit next.

Descriptions of a table's guarantee.
"""

from __future__ import annotations

from lsm_core.locks.lease import Busy, Grant, Lease, Lock, LockSettings, held
from lsm_core.locks.table_lock import guarantee_text, lock_given_way, lock_settings, table_lock
