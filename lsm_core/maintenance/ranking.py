"""Which table of a warehouse needs help most: one line a table, from the health of its buckets, ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.observe import BucketHealth
from lsm_core.maintenance.score import Part, reasons_of


@dataclass(frozen=True)
class TableNeed:
    """What a table needs. ``score`` 0 (healthy) to 100 (act): the most that one of its ``parts`` makes, (name, points, points at most), those of its
    buckets weighed by the size of the whole table; ``costs_most`` says why, and which bucket is worst. Bytes are of files.

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
    files: int = 0
    rows: int = 0
    oldest_level0_ms: int | None = None
    last_compaction_ms: int | None = None
    parts: tuple[tuple[str, float, float], ...] = ()


def score_of(
    buckets: Sequence[BucketHealth], history: Sequence[Part] = ()
) -> tuple[float, tuple[tuple[str, float, float], ...]]:
    """Return the score (0 to 100) of buckets together, of a partition or a table, and its parts, those with most points first, as `TableNeed` has them.

    Many tiny buckets are as large as one: their signs are weighed by the size of all of them. ``history``: parts that no bucket has.
    """
    size = sum(bucket.size_share for bucket in buckets)
    points: dict[str, tuple[float, float]] = {}
    for part in [*(part for bucket in buckets for part in bucket.parts), *history]:
        points[part.name] = max(points.get(part.name, (0.0, 0.0)), (part.points(size), part.weight))
    parts = tuple(sorted(((name, *most) for name, most in points.items()), key=lambda one: (-one[1], one[0])))
    return max([*(bucket.score for bucket in buckets), *(one[1] for one in parts)], default=0.0), parts


def small_files_of_partitions(buckets: Iterable[BucketHealth]) -> dict[str, int]:
    """Return the small files of each partition, by its text."""
    small: dict[str, int] = {}
    for bucket in buckets:
        small[bucket.partition_text] = small.get(bucket.partition_text, 0) + bucket.small_files
    return small


def need_of(table: str, buckets: Sequence[BucketHealth], history: Sequence[Part] = ()) -> TableNeed:
    """Return what ``table`` needs; of no bucket, nothing. ``history``: what its history owes (`score.history_parts`)."""
    if not buckets:
        return TableNeed(table, costs_most="no data yet")
    score, parts = score_of(buckets, history)
    worst = max(buckets, key=lambda bucket: (bucket.score, bucket.cost_minor, bucket.sorted_runs))
    said = "; ".join(worst.reasons) or "healthy"
    owed = list(reasons_of(history))
    where = bucket_name(worst.partition_text, worst.bucket)
    return TableNeed(
        table,
        score=score,
        costs_most="; ".join([f"{where}: {said}"] * bool(worst.reasons) + owed) or said,
        sorted_runs=max(bucket.sorted_runs for bucket in buckets),
        level0_files=max(bucket.level0_files for bucket in buckets),
        due_bytes=sum(bucket.cost_minor for bucket in buckets),
        full_bytes=sum(bucket.cost_full for bucket in buckets),
        total_bytes=sum(bucket.total_bytes for bucket in buckets),
        files=sum(bucket.files for bucket in buckets),
        rows=sum(bucket.rows for bucket in buckets),
        oldest_level0_ms=min((b.oldest_level0_ms for b in buckets if b.oldest_level0_ms is not None), default=None),
        last_compaction_ms=max((b.last_compaction_ms for b in buckets if b.last_compaction_ms), default=None),
        parts=parts,
    )


def ranked(needs: Iterable[TableNeed]) -> list[TableNeed]:
    """Return the tables, the neediest first: by score, then by the bytes that are due, then by those that a full compaction would read."""
    return sorted(needs, key=lambda need: (-need.score, -need.due_bytes, -need.full_bytes, need.table))
