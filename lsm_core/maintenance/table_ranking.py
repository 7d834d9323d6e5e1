"""Ranking of the tables of a warehouse by their need for maintenance, from the health of their buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.observe import BucketHealth
from lsm_core.maintenance.score import Part, postponed_parts, reasons_of

_NAMED_POINTS: Final = 5.0
"""Points from which the largest part of a score is named, although it is below half of its limit."""


@dataclass(frozen=True)
class TableNeed:
    """Need of a table for maintenance. Bytes are file sizes.

    Attributes:
        table: name of the table.
        score: 0 (healthy) to 100 (needs maintenance): the largest points of one of ``parts``.
        costs_most: reasons of the score and the name of the worst bucket, as text.
        sorted_runs: largest number of sorted runs in one bucket.
        level0_files: largest number of level-0 files in one bucket.
        due_bytes: bytes read by the compactions that the table's rules make due now.
        full_bytes: bytes read by full compactions of all buckets.
        total_bytes: bytes of live files.
        files: number of live files.
        rows: stored rows.
        oldest_level0_ms: creation time of the oldest level-0 file (epoch ms), None without level-0 files.
        last_compaction_ms: creation time of the newest file of a compaction (epoch ms), None if there is no such file.
        parts: (name, points, largest possible points) per part of the score; the points of bucket parts are scaled by
            the size of the whole table.
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
    """Return (score of a partition or table from 0 to 100, parts of the score with the largest first).

    The points of bucket parts are scaled by the size of all buckets together, so many tiny buckets count as a large
    one.

    Args:
        buckets: health of the buckets.
        history: parts of the score from the table's history (`score.history_parts`).
    """
    size = sum(bucket.size_share for bucket in buckets)
    points: dict[str, tuple[float, float]] = {}
    for part in [*(part for bucket in buckets for part in bucket.parts), *history]:
        points[part.name] = max(points.get(part.name, (0.0, 0.0)), (part.points(size), part.weight))
    parts = tuple(sorted(((name, *most) for name, most in points.items()), key=lambda part: (-part[1], part[0])))
    return max([*(bucket.score for bucket in buckets), *(part[1] for part in parts)], default=0.0), parts


def small_files_of_partitions(buckets: Iterable[BucketHealth]) -> dict[str, int]:
    """Return the number of small files of each partition, by Paimon's path of the partition.

    Args:
        buckets: health of the buckets.
    """
    small: dict[str, int] = {}
    for bucket in buckets:
        small[bucket.partition_text] = small.get(bucket.partition_text, 0) + bucket.small_files
    return small


def need_of(
    table: str, buckets: Sequence[BucketHealth], history: Sequence[Part] = (), waiting: Mapping[str, int] | None = None
) -> TableNeed:
    """Return the need of a table.

    Args:
        table: name of the table.
        buckets: health of its buckets; a table without buckets and waiting rows needs nothing.
        history: parts of the score from its history (`score.history_parts`).
        waiting: number of postponed rows without a bucket, by partition.
    """
    rows = sum((waiting or {}).values())
    if not buckets and not rows:
        return TableNeed(table, costs_most="no data yet")
    further = [*history, *postponed_parts(rows)]
    score, parts = score_of(buckets, further)
    return TableNeed(
        table,
        score=score,
        costs_most=_explain_costs(buckets, further),
        sorted_runs=max((bucket.sorted_runs for bucket in buckets), default=0),
        level0_files=max((bucket.level0_files for bucket in buckets), default=0),
        due_bytes=sum(bucket.cost_minor for bucket in buckets),
        full_bytes=sum(bucket.cost_full for bucket in buckets),
        total_bytes=sum(bucket.total_bytes for bucket in buckets),
        files=sum(bucket.files for bucket in buckets),
        rows=sum(bucket.rows for bucket in buckets),
        oldest_level0_ms=min((b.oldest_level0_ms for b in buckets if b.oldest_level0_ms is not None), default=None),
        last_compaction_ms=max((b.last_compaction_ms for b in buckets if b.last_compaction_ms), default=None),
        parts=parts,
    )


def _explain_costs(buckets: Sequence[BucketHealth], further: Sequence[Part]) -> str:
    """Return the reasons of the score, the one with most points first, or "healthy".

    A part of the whole table is a reason from half of its limit on. The part with most points is a reason from 5 points
    on, if no bucket has as many points.

    Args:
        buckets: health of the buckets; the worst one is named.
        further: parts of the score of the whole table.
    """
    reasons: list[tuple[float, str]] = []
    if buckets:
        worst = max(buckets, key=lambda bucket: (bucket.score, bucket.cost_minor, bucket.sorted_runs))
        where = bucket_name(worst.partition_text, worst.bucket)
        reasons = [(worst.score, f"{where}: {'; '.join(worst.reasons)}")] if worst.reasons else []
    bucket_points = max((bucket.score for bucket in buckets), default=0.0)
    most = max((part.points(1.0) for part in further), default=0.0)
    for part in further:
        points = part.points(1.0)
        if reasons_of([part]) or (points == most >= _NAMED_POINTS and points > bucket_points):
            reasons.append((points, part.text))
    return "; ".join(text for _, text in sorted(reasons, key=lambda reason: -reason[0])) or "healthy"


def rank_tables(needs: Iterable[TableNeed]) -> list[TableNeed]:
    """Return the tables with the largest need first: by score, then due bytes, then bytes that full compactions read.

    Args:
        needs: needs of the tables.
    """
    return sorted(needs, key=lambda need: (-need.score, -need.due_bytes, -need.full_bytes, need.table))
