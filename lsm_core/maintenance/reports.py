"""Results of comparing two snapshots, by verification V1 here or V3 on Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BucketDifference:
    """Bucket whose content view differs between two snapshots.

    Attributes:
        bucket: "dt=1/bucket-0", or "dt=1, 1 and 3 buckets" for a partition that was rescaled between the snapshots.
        rows_a: merged rows in the first snapshot.
        rows_b: merged rows in the second snapshot.
        digest_a: hex digest of the first snapshot's rows.
        digest_b: hex digest of the second snapshot's rows.
    """

    bucket: str
    rows_a: int
    rows_b: int
    digest_a: str
    digest_b: str


@dataclass(frozen=True)
class VerifyReport:
    """Comparison of the content views of two snapshots: by reference where a bucket has the same files, else by digest.

    Attributes:
        table: name of the table.
        snapshot_a: number of the first snapshot.
        snapshot_b: number of the second snapshot.
        ok: whether every bucket is equal.
        buckets: number of compared buckets.
        by_reference: buckets with the same files.
        by_digest: buckets compared by digest.
        rows_a: merged rows of the first snapshot in buckets compared by digest.
        rows_b: merged rows of the second snapshot in buckets compared by digest.
        differences: buckets that differ.
        level: level of the verification.
        seconds: wall-clock time.
        by_part: buckets of which only the replaced files were compared.
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
