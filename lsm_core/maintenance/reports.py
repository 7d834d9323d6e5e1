"""What maintenance answers: one frozen report per action, each of which turns into plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from lsm_core.maintenance.plan import Declined


class _Plain:
    """Gives a report its JSON form."""

    def to_object(self) -> dict[str, Any]:
        """The report as plain values (for JSON, ledgers and Dagster metadata)."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


INDEPENDENCE: Final[Mapping[str, str]] = {
    "full": "V0 and V1: outputs re-read, counters and digests; V2: keys re-merged row at a time by maintenance/reference",
    "sampled": "V0: counters, metadata and all footers; V1: one row group in eight re-read (sorted, ORC and Avro files: all of them), what the "
    "others store was not looked at; V2: keys re-merged row at a time by maintenance/reference, compared with what was handed to the writer",
    "counts": "V0: counters and metadata only; nothing was re-read and no key was merged again, so a changed value goes unseen",
}
"""What each setting of `dredge.verification` checks by what, and what it leaves unchecked."""


@dataclass(frozen=True)
class Verification(_Plain):
    """How sure we are: highest ``level`` passed by every unit, keys compared by the reference, rows of the output re-read (V1).

    ``setting`` is option `dredge.verification` at that time; ``independence`` says in words what was checked by what, and what was not;
    ``digests`` maps a bucket's name to the hex digest of its rewritten rows ("" where not all of them were digested).
    """

    level: str
    keys_checked: int = 0
    units: int = 0
    digests: Mapping[str, str] = field(default_factory=dict)
    independence: str = INDEPENDENCE["full"]
    setting: str = "full"
    rows_read_again: int = 0

    def text(self) -> str:
        """As people read it, for example "V2 (sampled): 16,384 rows re-read, 2,048 keys re-merged by the reference in 2 buckets"."""
        level = self.level if self.setting == "full" else f"{self.level} ({self.setting})"
        again = "nothing re-read" if self.setting == "counts" else f"{self.rows_read_again:,} rows re-read"
        return f"{level}, {self.keys_checked:,} keys re-merged by the reference in {self.units} buckets, {again}"


@dataclass(frozen=True)
class CompactionReport(_Plain):
    """What a compaction did (api.md).

    ``snapshot_id`` None = nothing was committed; bytes are file sizes; rows count unmerged rows of rewritten files;
    ``rows_dropped`` counts per named reason; ``runs_before``/``runs_after`` are those of the bucket with most runs;
    ``changed_keys`` counts keys whose answer changed, which only `as-paimon` compactions of order-sensitive tables may do
    (``warnings`` says which and why); ``commits`` counts commits (0 or 1); ``declined`` holds what was left alone, stale buckets included; ``seconds`` is
    wall-clock time of the whole call, ``peak_rss_bytes`` the driver process's.
    ``keys_folded``: keys of which several versions became a new row, ``keys_one_by_one``: those of them that a function
    (bitmaps, sketches, some decimals) folded key by key.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    files_in: int = 0
    files_out: int = 0
    files_upgraded: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    changelog_rows: int = 0
    seconds: float = 0.0
    predicted_seconds: float = 0.0
    peak_rss_bytes: int = 0
    runs_before: int = 0
    runs_after: int = 0
    verification: Verification = field(default_factory=lambda: Verification("V0"))
    declined: tuple[Declined, ...] = ()
    commits: int = 0
    changed_keys: int = 0
    warnings: tuple[str, ...] = ()
    keys_folded: int = 0
    keys_one_by_one: int = 0

    @property
    def stale(self) -> tuple[Declined, ...]:
        """Buckets of the plan that were skipped because their inputs are gone or moved."""
        return tuple(item for item in self.declined if item.reason == "stale")


@dataclass(frozen=True)
class ExpiryReport(_Plain):
    """What an expiry did: ids whose snapshot JSON is gone, files recorded for deletion (or deleted, direct mode).

    ``trash_id`` names the deletion record, ``not_before_ms`` (epoch ms) is when a sweep may delete its files;
    ``bytes_freed`` counts files already deleted; ``held`` are files that something retained still needs.
    """

    plan_hash: str
    base_snapshot: int | None
    expired: tuple[int, ...] = ()
    earliest: int | None = None
    files_recorded: int = 0
    bytes_recorded: int = 0
    files_deleted: int = 0
    bytes_freed: int = 0
    trash_id: str | None = None
    not_before_ms: int | None = None
    held: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    dry_run: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class SweepReport(_Plain):
    """What a sweep of the trash did: records finished, files deleted or already gone, files kept and what needs them."""

    plan_hash: str = ""
    records: tuple[str, ...] = ()
    files_deleted: int = 0
    bytes_freed: int = 0
    files_missing: int = 0
    kept: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def unreadable(self) -> tuple[Declined, ...]:
        """Deletion records that cannot be read: what they hold stays until somebody repairs or removes them."""
        return tuple(item for item in self.declined if item.reason == "unreadable")


@dataclass(frozen=True)
class RestoreReport(_Plain):
    """What a restore put back: snapshot ids that can be read again."""

    trash_id: str
    restored: tuple[int, ...] = ()
    files_kept: int = 0
    earliest: int | None = None


@dataclass(frozen=True)
class BucketDifference(_Plain):
    """One bucket whose content view differs: merged row counts and hex digests on both sides.

    ``bucket`` is "dt=1/bucket-0", or "dt=1, 1 and 3 buckets" for a partition that was rescaled between the snapshots.
    """

    bucket: str
    rows_a: int
    rows_b: int
    digest_a: str
    digest_b: str


@dataclass(frozen=True)
class VerifyReport(_Plain):
    """Content view of two snapshots compared: by reference where a bucket has the same files, else by digest.

    ``ok`` = every bucket equal. ``rows_a`` and ``rows_b`` count merged rows of the buckets compared by digest.
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


@dataclass(frozen=True)
class RescaleReport(_Plain):
    """What a rescale did: partitions rewritten, stored rows in and merged rows out, bytes of files; ``snapshot_id`` None = nothing.

    ``digest``: of the merged rows, which the new files were re-read to have as well (``verification`` V1). ``warnings``: what is left to
    do before these partitions can be written again: a rescale leaves the table's options alone.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    partitions: tuple[str, ...] = ()
    files_in: int = 0
    files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    digest: str = ""
    verification: str = "V1"
    declined: tuple[Declined, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


Report: TypeAlias = CompactionReport | ExpiryReport | SweepReport | RescaleReport
