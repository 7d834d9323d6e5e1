"""Passes of a recovery: a pass compacts some of the oldest level-0 files; passes repeat until level 0 is small.

A pass takes the oldest level-0 files of a bucket first. These files are neighbours in age, whatever their keys are. So
merging them before newer files changes no row, unless the table is order-sensitive (the rows depend on which runs are
merged first). In an order-sensitive table all runs of a bucket are merged at once, as in an ordinary compaction.

Passes over key ranges would not work, because most level-0 files have keys of the whole bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from lsm_core.commit.overwrite import partition_matcher
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import (
    NO_SUCH_PARTITION,
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    Runner,
    facts_of,
)
from lsm_core.maintenance.actions.compact.compaction import CompactionReport, CompactItem
from lsm_core.maintenance.actions.compact.execution import apply_compaction, tasks_of_plan
from lsm_core.maintenance.actions.compact.unit_choice import (
    NOTHING_EXPIRED,
    Place,
    levels_of,
    plan_tree,
    task_of,
    to_planned_file,
)
from lsm_core.maintenance.actions.recover.backlog import Backlog, RecoveryCut
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.ledger import LedgerEntry, read_ledger
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import deleted_rows, vector_files
from lsm_core.metadata.live_files import Search, bucket_groups, find_live, has_unmarked_levels, tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_compactable
from lsm_core.options import whole_number
from lsm_core.read.prune import expiry_of
from lsm_core.tree import Levels, Trigger, oldest_first, pick_oldest

FILES_OF_A_PASS: Final = 10_000
"""Level-0 files of a pass: about half a minute of work."""
_BUCKETS_AT_ONCE: Final = 4
"""Largest number of parts into which the files of a pass are divided."""
_SECONDS_PER_FILE: Final = 0.0025
"""Seconds of a pass per level-0 file, if the ledger has no pass of the table."""
_SEARCHED_RUNS: Final = 20
"""Number of the ledger's newest runs that are searched for the seconds of passes."""
_MOST_MISSES: Final = 3


@dataclass(frozen=True)
class RecoveryPass(CompactionReport):
    """Report of a recovery pass (compaction of some level-0 files), with the level-0 files that remain.

    Attributes:
        level0_before: before this pass, number of level-0 files in all buckets that needed a pass.
        level0_after: ``level0_before`` without the level-0 files that this pass merged; newer files are not counted.
        passes_left: approximate number of further passes of this size.
    """

    level0_before: int = 0
    level0_after: int = 0
    passes_left: int = 0

    @property
    def seconds_left(self) -> float:
        """Predicted seconds of the further passes, at this pass's speed per level-0 file."""
        merged = self.level0_before - self.level0_after
        return self.seconds / merged * self.level0_after if merged else 0.0

    def lines(self, table: str) -> list[str]:
        """Return the lines of a compaction's report, and a line on the remaining backlog."""
        remaining = _remaining_text(self.passes_left, self.seconds_left)
        left = f"level 0: {self.level0_before:,} -> {self.level0_after:,} files; {remaining}"
        return [*super().lines(table), *([left] if self.snapshot_id is not None else [])]


@dataclass(frozen=True)
class RecoveryReport:
    """Report of a recovery.

    Attributes:
        passes: reports of the passes.
        level0_before: number of level-0 files in buckets that need a pass, before the first pass.
        level0_after: number of level-0 files in buckets that need a pass, after the last pass.
        passes_left: approximate number of further passes, 0 if the recovery is complete.
        seconds_left: predicted seconds of the further passes.
        declined: declined entries of buckets that were left unchanged.
    """

    passes: tuple[RecoveryPass, ...] = ()
    level0_before: int = 0
    level0_after: int = 0
    passes_left: int = 0
    seconds_left: float = 0.0
    declined: tuple[Declined, ...] = ()

    def lines(self) -> list[str]:
        """Return one line on all passes, or the reasons for people why there was nothing to do."""
        if not self.passes:
            return [declined.text for declined in self.declined] or ["nothing to recover"]
        seconds = sum(done.seconds for done in self.passes)
        summary = f"{len(self.passes)} pass{'es' if len(self.passes) > 1 else ''} in {seconds:.1f} s"
        remaining = _remaining_text(self.passes_left, self.seconds_left)
        return [f"{summary}: level 0 from {self.level0_before:,} to {self.level0_after:,} files; {remaining}"]

    def to_object(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["passes"] = [done.to_object() for done in self.passes]
        values["declined"] = [
            {field.name: getattr(item, field.name) for field in fields(item)} for item in self.declined
        ]
        return values


def _remaining_text(passes: int, seconds: float | None = None) -> str:
    if not passes:
        return "no pass is left"
    about = f"about {passes:,} pass{'es' if passes > 1 else ''}"
    if seconds is None:
        return f"{about} more"
    time = (
        f"{seconds / 3600:.1f} hours"
        if seconds >= 3600
        else f"{seconds / 60:.1f} min"
        if seconds >= 60
        else f"{seconds:.0f} s"
    )
    return f"{about} and {time} left"


def describe_remaining(plan: MaintenancePlan) -> str:
    """Return the number of passes that remain, the planned pass included, and their predicted time, as text.

    Args:
        plan: plan of one recovery pass.
    """
    files, passes = int(plan.arguments["level0_files"] or 0), int(plan.arguments["passes"] or 0)
    level0_files = sum(_level0_of(item) for item in plan.items_of(CompactItem))
    seconds = plan.estimate.seconds / max(level0_files, 1) * files
    return f"{files:,} level-0 files wait: {_remaining_text(passes, seconds)}, this one included"


def recover(
    store: TableStore,
    passes: int | None = None,
    files: int | None = None,
    on_pass: Callable[[RecoveryPass], None] | None = None,
    partitions: Sequence[Mapping[str, Any]] | None = None,
) -> RecoveryReport:
    """Run recovery passes until level 0 is small; each pass is planned, verified and committed separately.

    If the recovery is stopped, only the running pass is lost, and a new call continues. The recovery ends early if
    three passes in a row changed nothing, because concurrent compactions took the files of the passes.

    Args:
        store: the table.
        passes: largest number of committed passes, None for as many as needed.
        files: number of level-0 files per pass, None for `FILES_OF_A_PASS`.
        on_pass: function that is called with the report of each committed pass.
        partitions: partitions to recover (typed values, columns may be missing), None for all.

    Raises:
        InvalidOption: an argument is invalid.
        UnsupportedFeature: the table cannot be compacted here. The errors of compactions are raised too.
    """
    most = None if passes is None else whole_number(passes, "passes", store.name)
    if most is not None and most < 1:
        raise InvalidOption("passes", passes, "1 or more", store.name)
    done: list[RecoveryPass] = []
    missed = 0
    while len(done) != most and missed < _MOST_MISSES:
        plan = plan_recovery(store, files, partitions=partitions)
        waiting = int(plan.arguments["level0_files"] or 0)
        if not plan.items:
            return RecoveryReport(
                tuple(done), done[0].level0_before if done else waiting, waiting, declined=plan.declined
            )
        report = cast("RecoveryPass", apply_plan(store, plan))
        missed = 0 if report.changed else missed + 1
        if report.changed:
            done.append(report)
            if on_pass is not None:
                on_pass(report)
    last = done[-1] if done else report
    before = done[0].level0_before if done else last.level0_before
    left = round(last.seconds_left, 1)
    return RecoveryReport(tuple(done), before, last.level0_after, last.passes_left, left, report.declined)


def plan_recovery(
    store: TableStore,
    files: int | None = None,
    now_ms: int | None = None,
    partitions: Sequence[Mapping[str, Any]] | None = None,
) -> MaintenancePlan:
    """Plan a pass over the buckets with the largest level 0. Metadata is read one manifest at a time.

    The limit of a bucket is ``files`` divided by the number of buckets that need a pass, or a quarter of ``files`` if
    more than four buckets need a pass. If a bucket has more level-0 files than its limit, the oldest files are taken,
    with the runs of higher levels that are not larger. A bucket within its limit, or a bucket that must be merged at
    once, is compacted by the table's rules. Buckets with fewer sorted runs than `num-sorted-run.compaction-trigger`
    need no pass.

    Args:
        store: the table.
        files: number of level-0 files of the pass, in all buckets together, None for `FILES_OF_A_PASS`.
        now_ms: time of planning (epoch ms), None for the table's clock.
        partitions: partitions to recover (typed values, columns may be missing), None for all.

    Raises:
        InvalidOption: ``files`` is too small.
        UnsupportedFeature: the table cannot be compacted here.
        CorruptFile: metadata cannot be read.
    """
    most = FILES_OF_A_PASS if files is None else whole_number(files, "files", store.name)
    if most < store.options.compaction_trigger:
        raise InvalidOption("files", files, f"{store.options.compaction_trigger} or more", store.name)
    require_compactable(store)
    now = store.clock.now_ms() if now_ms is None else now_ms
    arguments: dict[str, Any] = {"files": most, "level0_files": 0, "passes": 0}
    snapshot = snapshots.latest(store)
    plan = MaintenancePlan.begin("recover", store, None if snapshot is None else snapshot.id, arguments, now)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    if not store.schema.primary_keys:
        text = "append tables have no level 0: compact merges their small files"
        return replace(plan, declined=(Declined("table", "append", text),))
    backlog = Backlog.of(store, snapshot)
    counts, runs = backlog.level0_counts(), backlog.runs()
    trigger = store.options.compaction_trigger
    waits = (runs >= trigger) & (counts > 0)
    if partitions is not None:
        matches = partition_matcher(store, partitions)
        chosen = {partition: matches(partition) for partition, _ in backlog.places}
        if not any(chosen.values()):
            return replace(plan, declined=(NO_SUCH_PARTITION,))
        waits &= np.array([chosen[partition] for partition, _ in backlog.places], np.bool_)
    waiting = np.flatnonzero(waits)
    if not len(waiting):
        text = f"no bucket has level-0 files and {trigger} sorted runs"
        return replace(plan, declined=(Declined("table", "too-few-runs", text),))
    choice = _Choice(store, snapshot, backlog, most, now, len(waiting))
    items: list[CompactItem] = []
    declined: list[Declined] = []
    by_need = waiting[np.argsort(-counts[waiting], kind="stable")].tolist()
    settled: list[int] = []
    for together in choice.groups(by_need):
        for place, outcome in choice.outcomes(together):
            (items if isinstance(outcome, CompactItem) else declined).append(outcome)  # type: ignore[arg-type]
            settled += [place] if isinstance(outcome, Declined) else []
        if items:
            break
    left = int(counts[waiting].sum() - counts[settled].sum())
    level0_files = sum(_level0_of(item) for item in items)
    size = sum(item.bytes_in for item in items)
    estimate = PlanEstimate(
        bytes_in=size,
        bytes_out=size,
        rows_in=sum(item.rows_in for item in items),
        files_in=sum(len(item.inputs) for item in items),
        tasks=len(items),
        seconds=round(_seconds_per_file(store) * level0_files, 2),
    )
    arguments = {"files": most, "level0_files": left, "passes": -(-left // most)}
    return replace(plan, arguments=arguments, items=tuple(items), declined=tuple(declined), estimate=estimate)


def _seconds_per_file(store: TableStore) -> float:
    """Return the seconds per level-0 file of the newest recorded recovery pass, or a default if there is none."""
    runs: list[LedgerEntry] = []
    with suppress(CorruptFile):  # only a forecast
        runs = read_ledger(store, _SEARCHED_RUNS)
    for entry in reversed(runs):
        if entry.action == "recover" and entry.outcome == "done":
            seconds, before, after = (
                float(entry.report.get(name, 0)) for name in ("seconds", "level0_before", "level0_after")
            )
            if before > after:
                return seconds / (before - after)
    return _SECONDS_PER_FILE


def _level0_of(item: CompactItem) -> int:
    return sum(file.level == 0 for file in item.inputs)


class _Choice:
    """Choice of the files that a recovery pass compacts in each bucket."""

    def __init__(
        self, store: TableStore, snapshot: Snapshot, backlog: Backlog, most: int, now_ms: int, waiting: int
    ) -> None:
        self._store, self._snapshot, self._backlog, self._now = store, snapshot, backlog, now_ms
        self._counts, self._runs = backlog.level0_counts(), backlog.runs()
        self._most, self._share = most, max(1, most // max(1, min(waiting, _BUCKETS_AT_ONCE)))
        self._cuts: dict[int, RecoveryCut] = {}
        self._whole: dict[int, str] = {}

    def groups(self, places: Sequence[int]) -> Iterator[list[int]]:
        """Yield ``places`` (indexes of buckets in the backlog) in groups whose level-0 files fit into one pass.

        If a bucket may be merged in parts, only its oldest files up to the bucket's limit are counted. A bucket with
        more files than the pass is a group of its own.
        """
        together: list[int] = []
        room = self._most
        for place in places:
            files = int(self._counts[place])
            if files > self._share:
                cut = self._backlog.cut(place, self._share)
                why = self._why_at_once(place, cut)
                if why:
                    self._whole[place] = why
                else:
                    self._cuts[place], files = cut, self._share
            if together and files > room:
                yield together
                together, room = [], self._most
            together.append(place)
            room -= files
        yield together

    def outcomes(self, places: Sequence[int]) -> Iterator[tuple[int, CompactItem | Declined]]:
        """Yield (index of a bucket, its compaction item or, if the table's rules choose no files, a declined entry)."""
        cuts, whole = self._cuts, self._whole
        bounds = {place: cuts[place].last if place in cuts else None for place in places}
        numbers = {self._backlog.places[place]: place for place in places}
        chosen = [self._backlog.places[place] for place in places]
        vectors = vector_files(
            self._store, self._snapshot, [partition for partition, _ in chosen], [bucket for _, bucket in chosen]
        )
        for partition, bucket, total, entries in bucket_groups(self._backlog.entries(self._store, bounds)):
            number = numbers[partition, bucket]
            text = partition_text(self._store.schema, partition, self._store.options)
            place = Place(partition, text, bucket, total)
            marked = deleted_rows(vectors.get((partition, bucket), ()))
            if number in cuts and has_unmarked_levels(self._store, entries):
                del cuts[number]
                whole[number] = "levels of the time before deletion-vectors.enabled become one level first"
                entries = self._backlog.entries(self._store, {number: None})
            if number in cuts:
                yield number, self._oldest(number, place, entries, cuts[number], marked)
                continue
            outcome = plan_tree(self._store, place, entries, full=False, now_ms=self._now, marked=marked)
            if isinstance(outcome, CompactItem) and number in whole:
                outcome = replace(outcome, reason=f"{outcome.reason}; all at once: {whole[number]}")
            yield number, outcome

    def _why_at_once(self, number: int, cut: RecoveryCut) -> str:
        """Return why merging only the oldest files of a bucket could change a row, "" if it could not.

        ``number`` is the index of the bucket in the backlog, and ``cut`` separates the oldest level-0 files. The result
        is also "" if `dredge.compaction.order-sensitive` is `as-paimon`, which accepts such changes.
        """
        store = self._store
        if store.options.order_sensitive == "as-paimon":
            return ""
        mine = self._backlog.bucket == number
        retracts = bool(self._backlog.retracts[mine].any())
        verdict = order_free(store.schema, store.options.raw, retracts, store.name, expiry_of(store) is not None)
        if not verdict.ok:
            return verdict.reasons[0]
        if store.options.deletion_vectors_enabled and cut.retracts and not self._ends_history(cut):
            return "deletes leave level 0 with their file (deletion vectors), and a newer file may hold older rows"
        return ""

    def _ends_history(self, cut: RecoveryCut) -> bool:
        """Return whether all rows of the level-0 files above ``cut`` are newer than all rows of the files below it."""
        return cut.apart and not self._store.options.sequence_field

    def _oldest(
        self, number: int, place: Place, entries: pa.Table, cut: RecoveryCut, marked: Collection[str]
    ) -> CompactItem:
        """Return the item for the oldest level-0 files of a bucket and the higher-level files merged with them.

        Args:
            number: index of the bucket in the backlog.
            place: the bucket.
            entries: manifest entries of the bucket from which the files are chosen.
            cut: separation of the oldest level-0 files from the newer ones.
            marked: names of files with a deletion vector.
        """
        store, files = self._store, tree_files(self._store, entries)
        level0 = oldest_first(file for file in files if file.level == 0)[: self._share]
        levels = Levels((*level0, *(file for file in files if file.level > 0)), levels_of(store, files).num_levels)
        unit = pick_oldest(levels, store.options.size_ratio)
        task = task_of(store, levels, unit, NOTHING_EXPIRED, marked)
        # A delete may be dropped only if no remaining file can hold an older row.
        drop = store.options.deletion_vectors_enabled or (
            store.options.merge_engine == "deduplicate" and self._ends_history(cut)
        )
        drop = drop and task.drop_delete
        deletes = [file.delete_row_count for file in task.rewritten_files] if drop else []
        below = sorted({file.level for file in unit.files} - {0})
        levels_text = f" and level{'s' if len(below) > 1 else ''} {', '.join(map(str, below))}" if below else ""
        count, runs = int(self._counts[number]), int(self._runs[number])
        remaining = _remaining_text(-(-(count - len(level0)) // self._share))
        facts = {
            "level0_files": count,
            "sorted_runs": runs,
            "bytes": unit.size,
            "rewritten_files": len(task.rewritten_files),
        }
        return CompactItem(
            partition=place.partition,
            partition_text=place.text,
            bucket=place.bucket,
            total_buckets=place.total_buckets,
            inputs=tuple(to_planned_file(file) for file in unit.files),
            output_level=unit.output_level,
            trigger=str(Trigger.RECOVERY),
            reason=f"{count:,} level-0 files: the oldest {len(level0):,}{levels_text} "
            f"to level {unit.output_level}; {remaining}",
            facts=facts_of(facts),
            upgrades=tuple(file.name for file in task.upgrades),
            drop_delete=drop,
            tombstones_dropped=None if None in deletes else sum(rows or 0 for rows in deletes),
            runs_before=runs,
            runs_after=runs - len(level0) - len(below) + 1,
        )


# -- applying ----------------------------------------------------------------------------------------------------------


def apply_recovery(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
    """Merge and verify the planned files of each bucket, and commit all buckets together. Raises errors of compactions.

    Args:
        store: the table.
        plan: plan to apply.
        runner: executor of compaction tasks, None for this process.

    Returns:
        ApplyOutcome with a RecoveryPass.
    """
    outcome = apply_compaction(store, plan, runner, _entries_of_pass)
    report = cast("CompactionReport", outcome.report)
    stale = {(item.partition_text, item.bucket) for item in report.stale}
    before, most = int(plan.arguments["level0_files"] or 0), int(plan.arguments["files"] or FILES_OF_A_PASS)
    items = plan.items_of(CompactItem) if report.changed else ()
    after = before - sum(_level0_of(item) for item in items if (item.partition_text, item.bucket) not in stale)
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    done = RecoveryPass(**values, level0_before=before, level0_after=after, passes_left=-(-after // most))
    return replace(outcome, report=done)


def recovery_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one bucket of the plan still has its planned files.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        WriterStale: the schema changed.
        CorruptFile: metadata cannot be read.
    """
    return bool(tasks_of_plan(store, plan, entries_of=_entries_of_pass)[0])


def _entries_of_pass(store: TableStore, snapshot: Snapshot, items: Sequence[CompactItem]) -> pa.Table:
    """Return the live manifest entries of the planned input files, and of all files above level 0 in their buckets.

    Level-0 files that the pass does not compact are left out, because there may be very many.
    """
    inputs = frozenset((file.name, file.level) for item in items for file in item.inputs)
    search = Search(
        partitions=sorted({item.partition for item in items}),
        buckets=sorted({item.bucket for item in items}),
        names=sorted(name for name, _ in inputs),
        sought=inputs,
        columns=ENTRY_SCHEMA.names,
        tree=True,
    )
    return find_live(store, snapshot, search)


WORK: Final = ActionWork(
    plan_recovery,
    apply_recovery,
    RecoveryPass,
    (CompactItem,),
    commits=True,
    fits=recovery_fits,
    remarks=lambda plan: [
        describe_remaining(plan),
        f"verification before publishing: {plan.options.get('dredge.verification', 'full')}",
    ],
)
