"""Which table of a warehouse needs help most: one line a table, from the health of its buckets, ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.observe import BucketHealth


@dataclass(frozen=True)
class TableNeed:
    """What a table needs. ``score`` 0 (healthy) to 100 (act) and ``costs_most`` are those of its worst bucket; bytes are of files.

    ``level0_files`` and ``sorted_runs`` of the bucket that has most; ``due_bytes`` and ``full_bytes`` are read by the compactions that
    the table's rules ask for now, and by full ones. ``oldest_level0_ms``: since when data are not compacted; ``last_compaction_ms``:
    the newest compaction that left files (epoch ms, None: nothing waits, or none was).
    """

    table: str
    score: float = 0.0
    costs_most: str = ""
    sorted_runs: int = 0
    level0_files: int = 0
    due_bytes: int = 0
    full_bytes: int = 0
    total_bytes: int = 0
    oldest_level0_ms: int | None = None
    last_compaction_ms: int | None = None


def need_of(table: str, buckets: Sequence[BucketHealth]) -> TableNeed:
    """Return what ``table`` needs; of no bucket, nothing."""
    if not buckets:
        return TableNeed(table, costs_most="no data yet")
    worst = max(buckets, key=lambda bucket: (bucket.score, bucket.cost_minor, bucket.sorted_runs))
    said = "; ".join(worst.reasons) or "healthy"
    where = bucket_name(worst.partition_text, worst.bucket)
    return TableNeed(
        table,
        score=worst.score,
        costs_most=f"{where}: {said}" if worst.reasons else said,
        sorted_runs=max(bucket.sorted_runs for bucket in buckets),
        level0_files=max(bucket.level0_files for bucket in buckets),
        due_bytes=sum(bucket.cost_minor for bucket in buckets),
        full_bytes=sum(bucket.cost_full for bucket in buckets),
        total_bytes=sum(bucket.total_bytes for bucket in buckets),
        oldest_level0_ms=min((b.oldest_level0_ms for b in buckets if b.oldest_level0_ms is not None), default=None),
        last_compaction_ms=max((b.last_compaction_ms for b in buckets if b.last_compaction_ms), default=None),
    )


def ranked(needs: Iterable[TableNeed]) -> list[TableNeed]:
    """Return the tables, the neediest first: by score, then by the bytes that are due, then by those that a full compaction would read."""
    return sorted(needs, key=lambda need: (-need.score, -need.due_bytes, -need.full_bytes, need.table))
