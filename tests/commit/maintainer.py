"""Maintenance process of the concurrency tests: `python -m tests.commit.maintainer ROOT compact|expire`.

Prints "ready", compacts or expires repeatedly until stdin ends, then prints the number of compaction or expired
snapshots.
"""

from __future__ import annotations

import sys
import threading
import time

from lsm_core.errors import CommitConflict, PlanStale, SnapshotNotFound
from lsm_core.table import Table
from tests.commit.tables import reopen


def main(root: str, role: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    table = Table(reopen(root, clock="system"))
    print("ready", flush=True)
    done = 0
    last = False
    while not last:
        last = ended.is_set()
        try:
            if role == "compact":
                done += table.compact().snapshot_id is not None
            else:
                done += len(table.expire_snapshots(retain_max=12, retain_min=12, older_than_ms=2**53).expired)
        except (CommitConflict, PlanStale, SnapshotNotFound):
            time.sleep(0.01)  # writers were first, or its snapshot expired meanwhile: the next one
    print(done, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
