"""Ledger entries for the waits of writers for their compactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.ledger import DONE, WRITE_STALL, LedgerEntry, new_run_id, this_process, write_or_warn
from lsm_core.metadata.store import TableStore

if TYPE_CHECKING:
    from lsm_core.write.background import WriteStall


def record_stalls(store: TableStore, stalls: Sequence[WriteStall], commit_user: str) -> None:
    """Add one ledger entry for all waits of a writer; a ledger that cannot be written is logged.

    Args:
        store: the table.
        stalls: at least one wait.
        commit_user: commit user of the writer.
    """
    seconds: dict[tuple[bytes, int], float] = {}
    runs: dict[tuple[bytes, int], int] = {}
    for stall in stalls:
        place = stall.partition, stall.bucket
        seconds[place] = seconds.get(place, 0.0) + stall.seconds
        runs[place] = max(runs.get(place, 0), stall.sorted_runs)
    lines = tuple(
        {
            "event": "stalled",
            "bucket": bucket_name(partition_text(store.schema, partition, store.options), bucket),
            "seconds": round(waited, 3),
            "sorted_runs": runs[partition, bucket],
        }
        for (partition, bucket), waited in sorted(seconds.items(), key=lambda entry: -entry[1])
    )
    run_id, total = new_run_id(store, WRITE_STALL), round(sum(seconds.values()), 3)
    report = {
        "stalls": len(stalls),
        "stalled_seconds": total,
        "sorted_runs": max(runs.values()),
        "stop_trigger": store.options.stop_trigger,
        "commit_user": commit_user,
    }
    entry = LedgerEntry(
        run_id,
        WRITE_STALL,
        store.name,
        store.clock.now_ms(),
        DONE,
        who=this_process(),
        seconds=total,
        report=report,
        lines=lines,
    )
    write_or_warn(store, entry)
