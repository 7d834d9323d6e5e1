"""What comparing two snapshots answers, whoever compares them (V1 here, V3 on Spark)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketDifference:
    """One bucket whose content view differs: merged row counts and hex digests on both sides.

    ``bucket`` is "dt=1/bucket-0", or "dt=1, 1 and 3 buckets" for a partition that was rescaled between the snapshots.
    """

    bucket: str
    rows_a: int
    rows_b: int
    digest_a: str
    digest_b: str


@dataclass(frozen=True)
class VerifyReport:
    """Content view of two snapshots compared: by reference where a bucket has the same files, else by digest.

    ``ok`` = every bucket equal. ``by_part``: buckets of which only what was replaced was compared. ``rows_a`` and ``rows_b`` count merged rows of the buckets compared by digest.
    """

    table: str
    snapshot_a: int
    snapshot_b: int
    ok: bool
    buckets: int = 0
    by_reference: int = 0
    by_digest: int = 0
    rows_a: int = 0
    rows_b: int = 0
    differences: tuple[BucketDifference, ...] = ()
    level: str = "V1"
    seconds: float = 0.0
    by_part: int = 0
