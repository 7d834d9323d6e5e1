"""A compaction as values: the item of a bucket in its plan, and the report of applying it."""

from __future__ import annotations

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
    bucket_name,
    size_text,
)

if TYPE_CHECKING:
    from lsm_core.compact import BucketReport

EXPIRED_AT: Final = "dredge.expired-at"
"""Snapshot property: epoch ms at which a compaction's plan held its rows to be over (record-level expiry)."""

TAG_PREFIX: Final = "dredge-before-compaction-"
"""How the names of tags begin that option `dredge.pre-compaction-tag` makes; the snapshot and the plan's first digits follow."""


def expiry_clock(snapshot: Snapshot) -> int:
    """Epoch ms at which the compaction that ``snapshot`` published let rows expire; Java's, and that of a writer which
    compacts by itself, is taken for the commit's time.
    """
    given = (snapshot.properties or {}).get(EXPIRED_AT, "")
    return int(given) if given.isascii() and given.isdigit() else snapshot.time_millis


@dataclass(frozen=True)
class CompactItem(RewriteItem):
    """One bucket's unit: ``inputs`` go to ``output_level`` (append tables: every bin becomes one rolling output).

    ``upgrades`` name the inputs that only change their level; ``by_file``: each file is rewritten on its own.
    ``reason`` is one sentence for people, ``facts`` its numbers, ``trigger`` the rule (`lsm_core.tree.Trigger`). Bytes are file sizes, rows unmerged.
    ``expire_at_ms``: rows over at this clock (epoch ms) are left out, None: the table's rows do not expire.
    ``order_by``: the columns that a sort compaction sorts by, along ``strategy`` ("order", "zorder", "hilbert").
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
        """Bytes of the files that are read and rewritten (upgrades cost nothing)."""
        skipped = set(self.upgrades)
        return sum(file.size for file in self.inputs if file.name not in skipped)

    @property
    def rows_in(self) -> int:
        """Rows of the files that are read and rewritten."""
        skipped = set(self.upgrades)
        return sum(file.rows for file in self.inputs if file.name not in skipped)

    def cells(self) -> tuple[Any, ...]:
        """What is merged, where to, and why."""
        place = (self.partition_text or "-", self.bucket)
        return (*place, len(self.inputs), self.bytes_in, self.output_level, len(self.upgrades), self.reason)

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Read back :meth:`to_object`. Raises KeyError, TypeError or ValueError for anything else."""
        item = super().from_object(value)
        return replace(item, bins=tuple(tuple(names) for names in item.bins))


INDEPENDENCE: Final[Mapping[str, str]] = {
    "full": "V0 and V1: outputs re-read, counters and digests; V2: keys re-merged row at a time by maintenance/reference",
    "sampled": "V0: counters, metadata and all footers; V1: one row group in eight re-read (sorted, ORC and Avro files: all of them), what the "
    "others store was not looked at; V2: keys re-merged row at a time by maintenance/reference, compared with what was handed to the writer",
    "counts": "V0: counters and metadata only; nothing was re-read and no key was merged again, so a changed value goes unseen",
}
"""What each setting of `dredge.verification` checks by what, and what it leaves unchecked."""


@dataclass(frozen=True)
class Verification:
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
class UnitOutcome:
    """What became of one bucket of a compaction: ``outcome`` is "compacted", "stale" (also where another commit took its inputs meanwhile),
    "memory" (declined: its task would not fit) or "failed"; ``text`` says why it was not compacted.

    ``snapshot_id``: of its commit; None where its files only were as they should be, or nothing was done. Rows, bytes (file sizes) and ``seconds`` are
    those of its `BucketReport`.
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
        """Of a bucket whose result was committed."""
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
class CompactionReport(Report):
    """What a compaction did.

    ``snapshot_id`` None = nothing was committed; bytes are file sizes; rows count unmerged rows of rewritten files;
    ``rows_dropped`` counts per named reason; ``runs_before``/``runs_after`` are those of the bucket with most runs;
    ``changed_keys`` counts keys whose answer changed, which only `as-paimon` compactions of order-sensitive tables may do
    (``warnings`` says which and why); ``commits`` counts commits (0 or 1); ``declined`` holds what was left alone, stale buckets included; ``seconds`` is
    wall-clock time of the whole call, ``peak_rss_bytes`` the driver process's.
    ``rows_assigned``: postponed rows that got their buckets, in a commit of their own before the compaction's (``commits`` counts both; then
    ``snapshot_id`` is that of the last one).
    ``keys_folded``: keys of which several versions became a new row, ``keys_one_by_one``: those of them that a function
    (bitmaps, sketches, some decimals) folded key by key. ``tag_before``: the tag on the snapshot before it ("": none), see
    `dredge.pre-compaction-tag`. ``units``: what became of every bucket of the plan; ``failed``: those that failed where others were committed
    all the same (`commit_every`; ``commits`` may then be more than one, and ``snapshot_id`` is the last). ``sorted_by``: what a sort compaction sorted by, such as "along a zorder curve over a, b", else "". ``executors``: the Spark executors that wrote files; which one wrote which file is in the ledger's lines.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone", "failed": "failed"}
    undone: ClassVar[str] = "buckets could not be compacted"

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
    rows_assigned: int = 0
    tag_before: str = ""
    executors: tuple[str, ...] = ()
    units: tuple[UnitOutcome, ...] = ()
    failed: tuple[Declined, ...] = ()
    sorted_by: str = ""

    @property
    def stale(self) -> tuple[Declined, ...]:
        """Buckets of the plan that were skipped because their inputs are gone or moved."""
        return tuple(item for item in self.declined if item.reason == "stale")

    @property
    def worth_telling(self) -> bool:
        """Whether the ledger keeps the run: also when buckets failed or were stale, unless the plan was applied already."""
        return self.changed or (bool(self.stale or self.failed) and self.applied_before is None)

    def numbers(self) -> dict[str, Any]:
        """As `Report.numbers`; the ledger's lines tell of the units."""
        return {name: value for name, value in super().numbers().items() if name != "units"}

    def lines(self, table: str) -> list[str]:
        """Files, rows, runs and how it was verified; then the warnings."""
        warnings = [f"warning: {warning}" for warning in self.warnings]
        if self.snapshot_id is None:
            return ["nothing was compacted", *warnings]
        placed = [f"{self.rows_assigned:,} postponed rows got their buckets"] if self.rows_assigned else []
        if not self.files_in and not self.files_upgraded and placed:
            return [f"snapshot {self.snapshot_id}: {placed[0]}", *warnings]
        dropped = ", ".join(f"{rows:,} {reason}" for reason, rows in self.rows_dropped.items()) or "none"
        sizes = f"{size_text(self.bytes_in)} -> {size_text(self.bytes_out)}; {self.seconds:.2f} s"
        told = [
            *placed,
            f"snapshot {self.snapshot_id}: {self.files_in} files in, {self.files_out} out, {self.files_upgraded} upgraded",
            f"{self.rows_in:,} rows in, {self.rows_out:,} out, dropped: {dropped}",
            f"runs {self.runs_before} -> {self.runs_after}; {sizes}",
        ]
        if self.keys_folded:
            share = self.keys_one_by_one / self.keys_folded
            told.append(f"{self.keys_folded:,} keys merged into new rows, {share:.1%} of them one by one")
        if self.sorted_by:
            told.append(f"sorted {self.sorted_by}")
        moved = "by metadata alone: files changed their level, and none was read"
        if self.tag_before:
            told.append(
                f"tag {self.tag_before} keeps the files that were replaced; dredge undo {table} {self.run_id} puts them back"
            )
        return [*told, f"verified: {self.verification.text() if self.rows_in else moved}", *warnings]

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> CompactionReport:
        """Read back :meth:`to_object`, as processes hand it to each other. Raises KeyError or TypeError for anything else."""
        fields = dict(value)
        fields["verification"] = Verification(**fields["verification"])
        fields["declined"] = tuple(Declined(**item) for item in fields["declined"])
        fields["warnings"] = tuple(fields.get("warnings", ()))
        fields["executors"] = tuple(fields.get("executors", ()))
        fields["failed"] = tuple(Declined(**item) for item in fields.get("failed", ()))
        units = fields.get("units", ())
        fields["units"] = tuple(UnitOutcome(**{**one, "executors": tuple(one["executors"])}) for one in units)
        before = fields.get("applied_before")
        fields["applied_before"] = None if before is None else Applied(**before)
        return cls(**fields)


def parts_of(plan: MaintenancePlan) -> tuple[MaintenancePlan, ...]:
    """The plans of the single commits that ``plan`` asks for: as many of its buckets each as its argument `commit_every` says; without it, itself.

    Rows that wait for a bucket (postponed ones) get it in a commit of its own before the buckets are chosen: such a plan is one part.
    """
    every = plan.arguments.get("commit_every")
    items = plan.items_of(CompactItem)
    if not isinstance(every, int) or len(items) <= every or len(items) < len(plan.items):
        return (plan,)
    groups = [items[at : at + every] for at in range(0, len(items), every)]
    return tuple(replace(plan, items=group, declined=(), estimate=_share_of(plan, group)) for group in groups)


def _share_of(plan: MaintenancePlan, items: Sequence[CompactItem]) -> PlanEstimate:
    """What a part costs: its own bytes, rows and files, and as much of the seconds as of the bytes."""
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
    """One report of all parts of ``plan`` (:func:`parts_of`); buckets of a part that raised are in ``failed``."""
    reports = [told for _, told in outcomes if isinstance(told, CompactionReport)]
    failed = [
        Declined(
            bucket_name(item.partition_text, item.bucket),
            "failed",
            f"{type(told).__name__}: {told}",
            {},
            item.partition_text,
            item.bucket,
        )
        for part, told in outcomes
        if isinstance(told, DredgeError)
        for item in part.items_of(CompactItem)
    ]
    dropped: Counter[str] = Counter()
    digests: dict[str, str] = {}
    for report in reports:
        dropped.update(report.rows_dropped)
        digests.update(report.verification.digests)
    made = [report for report in reports if report.snapshot_id is not None]
    judged = [report.verification for report in made] or [Verification("V0")]
    before = [report.applied_before for report in reports]
    summed = {name: sum(getattr(report, name) for report in reports) for name in _SUMMED}
    return CompactionReport(
        snapshot_id=made[-1].snapshot_id if made else None,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        rows_dropped=dict(dropped),
        predicted_seconds=plan.estimate.seconds,
        peak_rss_bytes=max((report.peak_rss_bytes for report in reports), default=0),
        runs_before=max((report.runs_before for report in reports), default=0),
        runs_after=max((report.runs_after for report in reports), default=0),
        verification=replace(
            judged[0],
            level=min(one.level for one in judged),
            digests=digests,
            keys_checked=sum(one.keys_checked for one in judged),
            units=sum(one.units for one in judged),
            rows_read_again=sum(one.rows_read_again for one in judged),
        ),
        declined=(*plan.declined, *(one for report in reports for one in report.declined)),
        warnings=tuple(warning for report in reports for warning in report.warnings),
        tag_before=next((report.tag_before for report in made if report.tag_before), ""),
        executors=tuple(sorted({who for report in reports for who in report.executors})),
        sorted_by=next((report.sorted_by for report in reports if report.sorted_by), ""),
        units=(
            *(unit for report in reports for unit in report.units),
            *(UnitOutcome(one.subject, "failed", text=one.text) for one in failed),
        ),
        failed=(*(one for report in reports for one in report.failed), *failed),
        applied_before=before[-1] if before and not failed and None not in before else None,
        run_id=next((report.run_id for report in reversed(reports) if report.run_id), ""),
        **summed,
    )


_SUMMED: Final = (
    "files_in",
    "files_out",
    "files_upgraded",
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
