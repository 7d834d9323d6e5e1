"""Data classes of a compaction: the plan's item for one bucket, and the report of applying the plan."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from lsm_core.errors import DredgeError
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import (
    Applied,
    Declined,
    Fact,
    MaintenancePlan,
    PlanEstimate,
    Report,
    RewriteItem,
    RewriteReport,
    bucket_name,
    size_text,
)

if TYPE_CHECKING:
    from lsm_core.compact import BucketReport

EXPIRED_AT: Final = "dredge.expired-at"
"""Snapshot property: clock of the compaction's record-level expiry (epoch ms)."""

TAG_PREFIX: Final = "dredge-before-compaction-"
"""Prefix of the tags of option `dredge.pre-compaction-tag`; the snapshot id and 8 digits of the plan's hash follow."""


def expiry_clock(snapshot: Snapshot) -> int:
    """Return the time (epoch ms) by which a compaction decided which rows had reached their record-level expiry.

    For compactions by Java, and by writers of Dredge, this time is the commit time of the snapshot.

    Args:
        snapshot: snapshot of the compaction.
    """
    text = (snapshot.properties or {}).get(EXPIRED_AT, "")
    return int(text) if text.isascii() and text.isdigit() else snapshot.time_millis


@dataclass(frozen=True)
class CompactItem(RewriteItem):
    """Compaction of one bucket.

    Attributes:
        inputs: files to compact.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        output_level: level of the output.
        trigger: rule that chose the files (`lsm_core.tree.Trigger`).
        reason: why the bucket is compacted, one sentence for people.
        facts: figures behind ``reason``. Bytes are file sizes, rows are counted before merging.
        bins: only in append tables: file names of each bin; the files of a bin are rewritten together.
        upgrades: names of input files that only change their level.
        drop_delete: whether delete records are dropped from the output.
        full: in a primary-key table, whether all sorted runs are compacted to the last level; in an append table,
            whether a full compaction or a sort was requested.
        by_file: whether each file is rewritten separately instead of merged with further files.
        tombstones_dropped: largest number of delete records that may be dropped, None if unknown.
        runs_before: number of the bucket's sorted runs before the compaction.
        runs_after: number of the bucket's sorted runs after the compaction.
        expire_at_ms: time that decides record-level expiry (epoch ms), None if the table's rows do not expire.
        order_by: columns that a sort compaction sorts by.
        strategy: strategy of the sort compaction ("order", "zorder", "hilbert").
    """

    item_kind: ClassVar[str] = "compact"
    title: ClassVar[str] = "would compact"
    columns: ClassVar[tuple[str, ...]] = ("partition", "bucket", "files", "bytes", "to level", "upgrades", "why")

    bucket: int
    total_buckets: int
    output_level: int
    trigger: str
    reason: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    bins: tuple[tuple[str, ...], ...] = ()
    upgrades: tuple[str, ...] = ()
    drop_delete: bool = False
    full: bool = False
    by_file: bool = False
    tombstones_dropped: int | None = 0
    runs_before: int = 0
    runs_after: int = 0
    expire_at_ms: int | None = None
    order_by: tuple[str, ...] = ()
    strategy: str = ""

    @property
    def bytes_in(self) -> int:
        """Bytes of the input files that are read and rewritten; upgraded files are not counted."""
        skipped = set(self.upgrades)
        return sum(file.size for file in self.inputs if file.name not in skipped)

    @property
    def rows_in(self) -> int:
        """Unmerged rows of the input files that are read and rewritten; upgraded files are not counted."""
        skipped = set(self.upgrades)
        return sum(file.rows for file in self.inputs if file.name not in skipped)

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan.

        The cells are the partition, the bucket, the number of input files, the bytes to rewrite, the output level, the
        number of upgraded files, and the reason.
        """
        place = (self.partition_text or "-", self.bucket)
        return (*place, len(self.inputs), self.bytes_in, self.output_level, len(self.upgrades), self.reason)

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Return the item from the values of :meth:`to_object`.

        Args:
            value: fields of the item as JSON values.

        Raises:
            KeyError, TypeError, ValueError: ``value`` does not describe an item.
        """
        item = super().from_object(value)
        return replace(item, bins=tuple(tuple(names) for names in item.bins))


INDEPENDENCE: Final[Mapping[str, str]] = {
    "full": "V0 and V1: outputs re-read, counters and digests; "
    "V2: keys re-merged row at a time by maintenance/reference",
    "sampled": "V0: counters, metadata and all footers; V1: one row group in eight re-read "
    "(sorted, ORC and Avro files: all of them), the others were not read; "
    "V2: keys re-merged row at a time by maintenance/reference, compared with the rows passed to the writer",
    "counts": "V0: counters and metadata only; nothing was re-read and no key was merged again, "
    "so a changed value goes unseen",
}
"""Text by value of option `dredge.verification`: the checks that are made, by which code, and the unchecked parts."""
_BYTES_COMPARED: Final = "bytes compared with their inputs, most of their rows not decoded"
_COPIES: Final[Mapping[str, str]] = {
    "full": _BYTES_COMPARED,
    "sampled": _BYTES_COMPARED,
    "counts": "bytes not compared",
}


def describe_checks(setting: str, groups_spliced: int) -> str:
    """Return the text of `INDEPENDENCE`, with the checks of row groups that were copied without decoding.

    Args:
        setting: value of option `dredge.verification`.
        groups_spliced: number of row groups copied without decoding.
    """
    copies = f"; row groups copied without decoding: {_COPIES[setting]}" if groups_spliced else ""
    return INDEPENDENCE[setting] + copies


@dataclass(frozen=True)
class Verification:
    """Result of verifying a compaction.

    Attributes:
        level: highest verification level that every bucket passed: "V0" (counters and metadata), "V1" (output re-read)
            or "V2" (keys merged again by the reference implementation).
        keys_checked: number of keys whose merged row was compared with the reference implementation of merging (V2).
        units: number of verified buckets; of verified partitions, if a table with dynamic buckets was sorted.
        digests: hex digest of the rewritten rows by name of the bucket or partition ("" if not all of its rows were
            digested, for example because row groups were copied without decoding). No check reads it later.
        independence: text that names the checks, the code that ran them, and the parts left unchecked.
        setting: value of option `dredge.verification` during the compaction.
        rows_read_again: number of output rows that were read back (V1).
    """

    level: str
    keys_checked: int = 0
    units: int = 0
    digests: Mapping[str, str] = field(default_factory=dict)
    independence: str = INDEPENDENCE["full"]
    setting: str = "full"
    rows_read_again: int = 0

    def text(self) -> str:
        """Return the result as text: "V2, 2,048 keys re-merged by the reference in 2 buckets, 16,384 rows re-read"."""
        level = self.level if self.setting == "full" else f"{self.level} ({self.setting})"
        reread = "nothing re-read" if self.setting == "counts" else f"{self.rows_read_again:,} rows re-read"
        return f"{level}, {self.keys_checked:,} keys re-merged by the reference in {self.units} buckets, {reread}"


@dataclass(frozen=True)
class UnitOutcome:
    """Result of one bucket of a compaction. Rows, bytes (file sizes) and seconds come from the `BucketReport`.

    Attributes:
        subject: name of the bucket.
        outcome: "compacted", "stale" (input files were changed by another commit), "memory" (the task would not fit
            into memory) or "failed".
        snapshot_id: snapshot that committed the bucket, None if the bucket was not committed.
        rows_in: rows read.
        rows_out: rows written.
        bytes_in: bytes read.
        bytes_out: bytes written.
        seconds: time of the task.
        executors: Spark executors that wrote files.
        text: reason why the bucket was not compacted, else "".
    """

    subject: str
    outcome: str
    snapshot_id: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    executors: tuple[str, ...] = ()
    text: str = ""

    @staticmethod
    def of(item: CompactItem, report: BucketReport, snapshot_id: int | None) -> UnitOutcome:
        """Return the result of a bucket whose compaction was committed.

        Args:
            item: item of the bucket in the plan.
            report: report of the bucket's task.
            snapshot_id: snapshot that committed the bucket.
        """
        return UnitOutcome(
            bucket_name(item.partition_text, item.bucket),
            "compacted",
            snapshot_id,
            report.rows_in,
            report.rows_out,
            report.bytes_in,
            report.bytes_out,
            round(report.seconds, 3),
            tuple(sorted(set(report.written_by.values()))),
        )


@dataclass(frozen=True)
class CompactionReport(RewriteReport):
    """Report of a compaction. Bytes are file sizes; rows are the unmerged rows of rewritten files.

    Attributes:
        files_upgraded: number of files that only changed their level.
        files_kept: number of files that were not rewritten, because no other file of their bucket has a key between
            their smallest and largest keys.
        bytes_kept: bytes of the ``files_kept``.
        groups_spliced: number of Parquet row groups that were copied without decoding: of tables with a primary key,
            because no other file of their bucket has a key between their smallest and largest keys; of append tables,
            because they are large enough. They are part of the rows and bytes in and out.
        bytes_spliced: bytes of the ``groups_spliced``.
        rows_dropped: number of dropped rows by reason.
        changelog_rows: number of rows written to the changelog.
        predicted_seconds: seconds that the plan predicted.
        peak_rss_bytes: peak memory of the driver process.
        runs_before: largest number of sorted runs of one bucket before the compaction.
        runs_after: number of sorted runs of the same bucket after the compaction. With `commit_every`, the largest such
            number of all commits.
        verification: result of the verification.
        commits: number of commits.
        changed_keys: number of keys whose row changed. Only compactions with `dredge.compaction.order-sensitive` =
            `as-paimon` may change rows.
        warnings: warnings for people, for example which keys changed and why.
        keys_folded: number of keys of which several versions were merged into a new row.
        keys_one_by_one: number of the keys of several versions that needed a function call per key (bitmaps, sketches,
            some decimals).
        rows_assigned: number of postponed rows that got their buckets, in a separate commit before the compaction.
        tag_before: tag on the snapshot before the compaction ("" for none), see `dredge.pre-compaction-tag`.
        executors: Spark executors that wrote files; the ledger lines name the executor of each file.
        units: result of every bucket of the plan; empty if a table with dynamic buckets was sorted.
        failed: buckets that failed although further buckets were committed (`commit_every`).
        sorted_by: order of a sort compaction ("along a zorder curve over a, b"), else "".
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone", "failed": "failed"}
    undone: ClassVar[str] = "buckets could not be compacted"

    files_upgraded: int = 0
    files_kept: int = 0
    bytes_kept: int = 0
    groups_spliced: int = 0
    bytes_spliced: int = 0
    rows_dropped: Mapping[str, int] = field(default_factory=dict)
    changelog_rows: int = 0
    predicted_seconds: float = 0.0
    peak_rss_bytes: int = 0
    runs_before: int = 0
    runs_after: int = 0
    verification: Verification = field(default_factory=lambda: Verification("V0"))
    commits: int = 0
    changed_keys: int = 0
    warnings: tuple[str, ...] = ()
    keys_folded: int = 0
    keys_one_by_one: int = 0
    rows_assigned: int = 0
    tag_before: str = ""
    executors: tuple[str, ...] = ()
    units: tuple[UnitOutcome, ...] = ()
    failed: tuple[Declined, ...] = ()
    sorted_by: str = ""

    @property
    def stale(self) -> tuple[Declined, ...]:
        """Buckets of the plan that were skipped because their files changed after planning."""
        return tuple(item for item in self.declined if item.reason == "stale")

    @property
    def is_recorded(self) -> bool:
        """Whether the run is written to the ledger.

        A run that changed nothing is recorded only if buckets failed or were stale and the plan was not applied before.
        """
        return self.changed or (bool(self.stale or self.failed) and self.applied_before is None)

    def numbers(self) -> dict[str, Any]:
        """Return the fields of the report without ``units``, whose values are in the ledger lines."""
        return {name: value for name, value in super().numbers().items() if name != "units"}

    def lines(self, table: str) -> list[str]:
        """Return lines on files, rows, runs and verification; then the warnings."""
        warnings = [f"warning: {warning}" for warning in self.warnings]
        if self.snapshot_id is None:
            return ["nothing was compacted", *warnings]
        placed = [f"{self.rows_assigned:,} postponed rows got their buckets"] if self.rows_assigned else []
        if not self.files_in and not self.files_upgraded and placed:
            return [f"snapshot {self.snapshot_id}: {placed[0]}", *warnings]
        dropped = ", ".join(f"{rows:,} {reason}" for reason, rows in self.rows_dropped.items()) or "none"
        sizes = f"{size_text(self.bytes_in)} -> {size_text(self.bytes_out)}; {self.seconds:.2f} s"
        lines = [
            *placed,
            (
                f"snapshot {self.snapshot_id}: {self.files_in} files in, {self.files_out} out, "
                f"{self.files_upgraded} upgraded"
            ),
            f"{self.rows_in:,} rows in, {self.rows_out:,} out, dropped: {dropped}",
            f"runs {self.runs_before} -> {self.runs_after}; {sizes}",
        ]
        if self.keys_folded:
            share = self.keys_one_by_one / self.keys_folded
            lines.append(f"{self.keys_folded:,} keys merged into new rows, {share:.1%} of them one by one")
        if self.files_kept:
            lines.append(
                f"{self.files_kept:,} files ({size_text(self.bytes_kept)}) kept: no other file has a key between theirs"
            )
        if self.groups_spliced:
            lines.append(
                f"{self.groups_spliced:,} row groups ({size_text(self.bytes_spliced)}) copied without decoding: "
                "no rows are merged with theirs"
            )
        if self.sorted_by:
            lines.append(f"sorted {self.sorted_by}")
        moved = "by metadata alone: files changed their level, and none was read"
        if self.tag_before:
            lines.append(
                f"tag {self.tag_before} keeps the files that were replaced; "
                f"dredge undo {shlex.quote(table)} {self.run_id} puts them back"
            )
        return [*lines, f"verified: {self.verification.text() if self.rows_in else moved}", *warnings]

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> CompactionReport:
        """Return the report from the values of :meth:`to_object`, which are sent between processes.

        Args:
            value: fields of the report as JSON values.

        Raises:
            KeyError, TypeError: ``value`` does not describe a report.
        """
        fields = dict(value)
        fields["verification"] = Verification(**fields["verification"])
        fields["declined"] = tuple(Declined(**item) for item in fields["declined"])
        fields["warnings"] = tuple(fields.get("warnings", ()))
        fields["executors"] = tuple(fields.get("executors", ()))
        fields["failed"] = tuple(Declined(**item) for item in fields.get("failed", ()))
        units = fields.get("units", ())
        fields["units"] = tuple(UnitOutcome(**{**unit, "executors": tuple(unit["executors"])}) for unit in units)
        before = fields.get("applied_before")
        fields["applied_before"] = None if before is None else Applied(**before)
        return cls(**fields)


def parts_of(plan: MaintenancePlan) -> tuple[MaintenancePlan, ...]:
    """Split a plan into one plan per commit, with at most `commit_every` buckets each.

    Without `commit_every` the plan is one part. A plan that assigns postponed rows is one part too, because its buckets
    are chosen only after the assignment has been committed.

    Args:
        plan: the plan to split.
    """
    every = plan.arguments.get("commit_every")
    items = plan.items_of(CompactItem)
    if not isinstance(every, int) or len(items) <= every or len(items) < len(plan.items):
        return (plan,)
    groups = [items[at : at + every] for at in range(0, len(items), every)]
    return tuple(replace(plan, items=group, declined=(), estimate=_share_of(plan, group)) for group in groups)


def _share_of(plan: MaintenancePlan, items: Sequence[CompactItem]) -> PlanEstimate:
    """Return the estimate for some ``items`` of ``plan``, with seconds in proportion to the bytes of the items."""
    size = sum(item.bytes_in for item in items)
    whole = plan.estimate
    return replace(
        whole,
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows_in for item in items),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=round(whole.seconds * size / max(1, whole.bytes_in), 2),
    )


def report_of_parts(
    plan: MaintenancePlan, outcomes: Sequence[tuple[MaintenancePlan, Report | DredgeError]]
) -> CompactionReport:
    """Combine the reports of all parts of a plan (:func:`parts_of`); buckets of a failed part are in ``failed``.

    Args:
        plan: the whole plan.
        outcomes: each part with its report, or with its error.
    """
    reports = [outcome for _, outcome in outcomes if isinstance(outcome, CompactionReport)]
    failed = [
        Declined(
            bucket_name(item.partition_text, item.bucket),
            "failed",
            f"{type(outcome).__name__}: {outcome}",
            {},
            item.partition_text,
            item.bucket,
        )
        for part, outcome in outcomes
        if isinstance(outcome, DredgeError)
        for item in part.items_of(CompactItem)
    ]
    dropped: Counter[str] = Counter()
    digests: dict[str, str] = {}
    for report in reports:
        dropped.update(report.rows_dropped)
        digests.update(report.verification.digests)
    committed = [report for report in reports if report.snapshot_id is not None]
    judged = [report.verification for report in committed] or [Verification("V0")]
    before = [report.applied_before for report in reports]
    summed = {name: sum(getattr(report, name) for report in reports) for name in _SUMMED}
    return CompactionReport(
        snapshot_id=committed[-1].snapshot_id if committed else None,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        rows_dropped=dict(dropped),
        predicted_seconds=plan.estimate.seconds,
        peak_rss_bytes=max((report.peak_rss_bytes for report in reports), default=0),
        runs_before=max((report.runs_before for report in reports), default=0),
        runs_after=max((report.runs_after for report in reports), default=0),
        verification=replace(
            judged[0],
            level=min(verification.level for verification in judged),
            digests=digests,
            independence=max((verification.independence for verification in judged), key=len),
            keys_checked=sum(verification.keys_checked for verification in judged),
            units=sum(verification.units for verification in judged),
            rows_read_again=sum(verification.rows_read_again for verification in judged),
        ),
        declined=(*plan.declined, *(item for report in reports for item in report.declined)),
        warnings=tuple(warning for report in reports for warning in report.warnings),
        tag_before=next((report.tag_before for report in committed if report.tag_before), ""),
        executors=tuple(sorted({who for report in reports for who in report.executors})),
        sorted_by=next((report.sorted_by for report in reports if report.sorted_by), ""),
        units=(
            *(unit for report in reports for unit in report.units),
            *(UnitOutcome(item.subject, "failed", text=item.text) for item in failed),
        ),
        failed=(*(item for report in reports for item in report.failed), *failed),
        applied_before=before[-1] if before and not failed and None not in before else None,
        run_id=next((report.run_id for report in reversed(reports) if report.run_id), ""),
        **summed,
    )


_SUMMED: Final = (
    "files_in",
    "files_out",
    "files_upgraded",
    "files_kept",
    "bytes_kept",
    "groups_spliced",
    "bytes_spliced",
    "rows_in",
    "rows_out",
    "bytes_in",
    "bytes_out",
    "changelog_rows",
    "commits",
    "changed_keys",
    "keys_folded",
    "keys_one_by_one",
)
