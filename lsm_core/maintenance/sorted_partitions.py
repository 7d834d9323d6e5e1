"""Times of the last sort compaction of an append table's partitions, from the table's ledger."""

from __future__ import annotations

from typing import Final

from lsm_core.maintenance.ledger import DONE, iterate_ledger
from lsm_core.metadata.store import TableStore

_RUNS: Final = 500
"""Number of newest runs that are read: a partition that was sorted earlier counts as unsorted."""
_BUCKET: Final = "bucket-"


def sorted_times(store: TableStore) -> dict[str, int]:
    """Return the end time (epoch ms) of the newest sort compaction of each partition, by the partition's text.

    Only the heads of the ledger's newest runs are read. An unreadable entry is skipped.

    Args:
        store: the table.
    """
    ended: dict[str, int] = {}
    for entry in iterate_ledger(store, _RUNS, heads=True):
        if entry.action != "compact" or entry.outcome != DONE or not entry.report.get("sorted_by"):
            continue
        verification = entry.report.get("verification")
        digests = verification.get("digests") if isinstance(verification, dict) else None
        for bucket in digests if isinstance(digests, dict) else ():
            partition = str(bucket).rpartition(_BUCKET)[0].removesuffix("/")
            ended[partition] = entry.time_ms + round(1000 * (entry.seconds or 0.0))
    return ended
