"""Locks: lock files, Paimon's lock table in a database, or a Hive metastore decide who may commit next.

Commits take a lock through `table_lock`, which also describes to users how commits of a table are exclusive. This
package reads and writes no snapshots. Begin with `table_lock`; `lease` has waiting, renewal and fencing.
"""

from __future__ import annotations

from lsm_core.locks.lease import Busy, Grant, Lease, Lock, LockSettings, held
from lsm_core.locks.table_lock import guarantee_text, lock_given_way, lock_settings, table_lock
