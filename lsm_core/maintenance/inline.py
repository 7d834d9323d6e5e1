"""Work of writers on their table after a commit, unless it is `write-only`: compact, expire, sweep and tag.

The rows are committed before this work begins, so a failure here never fails the write: it is logged, reported and
recorded in the ledger, and the next commit tries again. Work that a concurrent process did first is not a failure.
Source: Java `MergeTreeWriter`, `TableCommitImpl.maintain`.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.commit import BATCH
from lsm_core.errors import CommitConflict, DredgeError, PlanStale, UnsupportedFeature
from lsm_core.format.manifest import ADD
from lsm_core.format.partitions import partition_values
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.ledger import BY_WRITER, record_failure
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import compacted_only
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.options import inline_default

if TYPE_CHECKING:
    from lsm_core.maintenance.action import MaintenancePlan, Report, Runner
    from lsm_core.maintenance.actions.compact.compaction import CompactionReport
    from lsm_core.maintenance.actions.expire_partitions import ExpiryAtCommit

ChooseRunner = Callable[["MaintenancePlan"], "Runner | None"]
"""Function that returns the executor of a compaction plan's tasks, None for threads of this process."""
_LOG: Final = logging.getLogger(__name__)
_WARNED: Final[set[str]] = set()
"""Root paths of the tables about whose unseen rows this process has logged a warning; it is logged once per table."""
_LOGGED: Final[dict[tuple[str, str], float]] = {}
"""Time (s, monotonic) of the last log line by root of the table and text of the warning."""
_SAME_WARNING_EVERY_SECONDS: Final = 3600.0
"""Interval at which log and ledger repeat the same warning of a table; reports hold it each time."""
_WARNINGS_KEPT: Final = 10_000
_COMPACTIONS_AT_MOST: Final = 4
"""Maximum number of compactions tried per commit if readers see only compacted rows and commit conflicts are lost."""
_SWEEPS_AN_AGE: Final = 12
"""Maximum number of trash sweeps per grace period; a sweep at every commit would cost too much."""


@dataclass(frozen=True)
class WriteReport:
    """Report of a write and of the maintenance of the table after it.

    Attributes:
        snapshot_id: snapshot of the written rows, None for a write without rows.
        compaction: report of the compaction after the write, None if no compaction was due.
        expired: ids of the snapshots that expired.
        files_swept: number of files deleted from the trash.
        rows_unseen: number of written rows that batch readers do not see before a compaction (deletion vectors,
            first-row).
        warnings: failures and conditions that need attention, one sentence each.
        notes: work after this write that concurrent processes did instead, one sentence each; no action is needed.
    """

    snapshot_id: int | None = None
    compaction: CompactionReport | None = None
    expired: tuple[int, ...] = ()
    files_swept: int = 0
    rows_unseen: int = 0
    warnings: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())


def maintains_itself(store: TableStore) -> bool:
    """Return whether writers of this process compact and expire the table after their commits.

    Args:
        store: the table.
    """
    options = store.options
    inline = options.compaction_inline if options.is_set("dredge.compaction.inline") else inline_default()
    return not options.write_only and inline != "never"


def places_batches(store: TableStore) -> bool:
    """Return whether batch writes of a table of postponed buckets assign buckets (`postpone.batch-write-fixed-bucket`).

    Buckets are assigned only if the option is set explicitly, although Paimon's default is true. Paimon's Flink and
    Spark writers obey the option; its core writer does not.

    Args:
        store: the table.
    """
    option = "postpone.batch-write-fixed-bucket"
    return store.bucket_mode is BucketMode.POSTPONE and store.options.is_set(option) and bool(store.options.get(option))


def after_commit(
    store: TableStore,
    snapshot_ids: Sequence[int],
    *,
    compact: bool = True,
    batch: bool = False,
    runner: ChooseRunner | None = None,
    identifier: int = BATCH,
    partitions: ExpiryAtCommit | None = None,
) -> WriteReport:
    """Maintain the table after commits: expire partitions, compact touched buckets, expire, sweep the trash, and tag.

    Args:
        store: the table.
        snapshot_ids: the snapshots of the commits, oldest first.
        compact: False if the writer compacts by itself, or its caller wants no compaction.
        batch: whether a batch job made the commits; its postponed rows may get their buckets at once.
        runner: function that returns the executor of a compaction plan's tasks; None for threads of this process.
        identifier: commit identifier of the last commit.
        partitions: state of the table's partition expiry between commits; None for a writer of one commit.

    Returns:
        The report. Errors are added to its warnings and not raised.
    """
    steps = _Steps(store, WriteReport(snapshot_ids[-1] if snapshot_ids else None))
    steps.expire_partitions(identifier, partitions)
    if not snapshot_ids:
        return steps.report
    if _hides_new_rows(store):  # first, because other writers may expire the snapshots while this one compacts
        steps.attempt("compact", "its rows were not counted", lambda: steps.note_waiting(snapshot_ids))
    if batch and places_batches(store):
        consequence = "its rows wait for a bucket, and no reader sees them"
        steps.attempt("assign_buckets", consequence, lambda: steps.place(snapshot_ids, runner))
    if maintains_itself(store):
        if compact:
            consequence = "the new files are not compacted yet"
            steps.attempt("compact", consequence, lambda: steps.compact(snapshot_ids, runner))
        if store.options.get("snapshot.expire.execution-mode") == "async":
            steps.expire_in_background()
        else:
            steps.expire()
    if _hides_new_rows(store) and (steps.report.compaction is None or steps.report.compaction.stale):
        steps.attempt("compact", "its rows were not counted", steps.count_unseen)
    steps.make_tags(batch=batch)
    return steps.report


class _Steps:
    """Maintenance steps after one commit; a step that fails does not stop the next steps."""

    def __init__(self, store: TableStore, report: WriteReport) -> None:
        self.store, self.report = store, report
        self._waiting: pa.Table | None = None
        self._recorded: Exception | None = None  # the error that the ledger holds already

    def attempt(self, action: str, consequence: str, step: Callable[[], None]) -> None:
        """Run one step and report its error instead of raising it.

        An error becomes a warning, and is recorded in the ledger as a failed run of ``action`` if it is new and not yet
        recorded. If a concurrent process changed the table first, a note is added instead.

        Args:
            action: name of the action, for the ledger.
            consequence: text for the warning or note: what remains undone after the failure.
            step: function that runs the step.
        """
        try:
            step()
        except (CommitConflict, PlanStale) as error:
            self.note(f"{consequence}, because others changed the table at the same time: {error}")
        except Exception as error:  # noqa: BLE001  (a caller who saw any error would write the rows again)
            ours = isinstance(error, DredgeError | OSError)
            if not ours:
                _LOG.debug("table %s: unexpected error", self.store.name, exc_info=True)
            new = self.warn(f"the commit is done, but {consequence}: {error if ours else repr(error)}")
            if new and error is not self._recorded:
                record_failure(self.store, action, error, BY_WRITER)

    def apply(
        self, plan: MaintenancePlan, runner: ChooseRunner | None = None, approved_by: str | None = None
    ) -> Report:
        """Apply a plan with the runner that ``runner`` returns for the plan; a failure is recorded in the ledger."""
        from lsm_core.maintenance.apply import apply_plan

        task_runner = None if runner is None else runner(plan)
        try:
            return apply_plan(self.store, plan, task_runner, approved_by=approved_by or BY_WRITER)
        except Exception as error:
            self._recorded = error
            raise

    def warn(self, text: str) -> bool:
        """Add a warning to the report, and to the log unless it was logged recently; return whether it was logged."""
        new = _is_new(self.store.root, text)
        _LOG.log(logging.WARNING if new else logging.DEBUG, "table %s: %s", self.store.name, text)
        self.report = replace(self.report, warnings=(*self.report.warnings, text))
        return new

    def note(self, text: str) -> None:
        """Add a sentence on the work of concurrent processes to the report's notes, and to the log at level INFO."""
        _LOG.info("table %s: %s", self.store.name, text)
        self.report = replace(self.report, notes=(*self.report.notes, text))

    def expire_partitions(self, identifier: int, partitions: ExpiryAtCommit | None) -> None:
        """Drop the partitions older than `partition.expiration-time`, if a check is due."""
        from lsm_core.maintenance.actions.expire_partitions import ExpiryAtCommit

        partitions = partitions or ExpiryAtCommit(self.store)
        if partitions.is_due(identifier):
            apply = partial(self.apply, approved_by="commit")
            consequence = "the old partitions stay for now"
            self.attempt("expire_partitions", consequence, lambda: partitions.expire(apply))

    def make_tags(self, *, batch: bool) -> None:
        """Create the automatic tags that are due."""
        if self.store.options.tag_creation == "none" or self.store.options.write_only:
            return

        def make() -> None:
            from lsm_core.maintenance.automatic_tags import make_automatic_tags

            make_automatic_tags(self.store, batch=batch)

        self.attempt("create_tag", "automatic tags were not made", make)

    def place(self, snapshot_ids: Sequence[int], runner: ChooseRunner | None) -> None:
        """Assign buckets to the postponed rows (bucket -2) of the commits' partitions, in a separate commit.

        The oldest rows come first. ``runner`` returns the executor of the tasks; None for threads of this process.
        """
        from lsm_core.maintenance.actions.assign_buckets import plan_assignment

        store = self.store
        entries = pa.concat_tables(manifests.delta_entries(store, snapshots.read(store, n)) for n in snapshot_ids)
        waiting = entries.filter(pc.equal(entries.column("bucket"), arrow_scalar(POSTPONE_BUCKET)))
        touched = [partition for partition, _ in _places(waiting)]
        if not touched:
            return
        partitions = (
            [partition_values(store.schema, partition) for partition in touched]
            if store.schema.partition_keys
            else None
        )
        plan = plan_assignment(store, partitions)
        if plan.items:
            self.apply(plan, runner)

    def compact(self, snapshot_ids: Sequence[int], runner: ChooseRunner | None) -> None:
        """Compact the buckets to which the commits added files, if the table's options make a compaction due.

        If readers see only compacted rows, a compaction that lost a commit conflict is planned again, because there may
        be no later commit.

        ``runner`` returns the executor of a plan's tasks; None for threads of this process.
        """
        from lsm_core.maintenance.actions.compact.compaction import CompactionReport

        for attempts_left in reversed(range(_COMPACTIONS_AT_MOST if _hides_new_rows(self.store) else 1)):
            plan = plan_of_touched(self.store, snapshot_ids)
            if plan is None or not plan.items:
                return
            report = self.apply(plan, runner)
            if not isinstance(report, CompactionReport):
                return
            self.report = replace(self.report, compaction=report)
            if not report.stale:
                return
            if not attempts_left:
                left = len(report.stale)
                self.note(
                    f"{left} of {len(plan.items)} buckets are compacted by a later commit: {report.stale[0].text}"
                )

    def expire_in_background(self) -> None:
        """Run :meth:`expire` in a thread, or at once if the process is ending and cannot start a thread."""
        try:
            _background().submit(_Steps(self.store, WriteReport()).expire)  # raises nothing
        except RuntimeError:
            self.expire()

    def expire(self) -> None:
        """Expire snapshots, changelogs and tags that are due, then sweep the due part of the trash."""
        store, now = self.store, self.store.clock.now_ms()
        self.attempt("expire_snapshots", "no snapshot expired", self._expire_snapshots)
        if store.options.changelog_decoupled:
            self.attempt("expire_changelogs", "no changelog expired", self._expire_changelogs)
        self.attempt("expire_tags", "no tag expired", self._expire_tags)
        self.attempt("trash", "the trash is not swept", lambda: self._sweep(now))

    def _expire_snapshots(self) -> None:
        from lsm_core.maintenance.actions.expire_snapshots import (
            UNREADABLE,
            ExpiryReport,
            expiry_is_due,
            plan_expiry,
        )

        if not expiry_is_due(self.store):
            return
        plan = plan_expiry(self.store, check_used=False)
        report, declined = self._apply_if_needed(plan), plan.declined
        if isinstance(report, ExpiryReport):
            self.report, declined = replace(self.report, expired=report.expired), report.declined
        for text in dict.fromkeys(item.text for item in declined if item.reason == UNREADABLE):
            self.warn(text)

    def _expire_changelogs(self) -> None:
        from lsm_core.maintenance.actions.expire_changelogs import plan_changelog_expiry

        self._apply_if_needed(plan_changelog_expiry(self.store))

    def _expire_tags(self) -> None:
        from lsm_core.maintenance.actions.expire_tags import plan_tag_expiry
        from lsm_core.metadata import tags

        if self.store.options.get("tag.time-expire-enabled") and self.store.file_io.list_dir(tags.tag_dir(self.store)):
            self._apply_if_needed(plan_tag_expiry(self.store))

    def _sweep(self, now_ms: int) -> None:
        """Delete due files of the trash, if the oldest record has been due for some time.

        A sweep reads all records of the trash. So that sweeps are rare, a sweep is due only a fraction of the grace
        period after the oldest record is due.
        """
        from lsm_core.maintenance.actions.sweep_trash import SweepReport, plan_sweep
        from lsm_core.maintenance.trash import oldest_record

        oldest = oldest_record(self.store)
        if oldest is None:
            return
        waits = max(0, oldest.not_before_ms - oldest.created_ms)
        if now_ms < oldest.not_before_ms + waits // _SWEEPS_AN_AGE:
            return
        report = self._apply_if_needed(plan_sweep(self.store))
        if isinstance(report, SweepReport):
            self.report = replace(self.report, files_swept=report.files_deleted)

    def _apply_if_needed(self, plan: MaintenancePlan) -> Report | None:
        return self.apply(plan) if plan.items else None

    def note_waiting(self, snapshot_ids: Sequence[int]) -> None:
        """Store the entries (`ENTRY_SCHEMA`) of the commits' files that batch readers skip before a compaction."""
        added = pa.concat_tables(_added(self.store, snapshots.read(self.store, number)) for number in snapshot_ids)
        self._waiting = added.filter(pc.equal(added.column("level"), arrow_scalar(0)))

    def count_unseen(self) -> None:
        """Count the committed rows that batch readers do not see before a compaction, and warn if there are any."""
        waiting = self._waiting
        if waiting is None:
            return
        newest = snapshots.latest(self.store)
        # Other processes may have compacted some of these files.
        if self.report.compaction is not None and waiting.num_rows and newest is not None:
            live = manifests.live_entries(self.store, newest, levels=[0])
            waiting = waiting.filter(pc.is_in(waiting.column("file_name"), live.column("file_name").combine_chunks()))
        rows = pc.sum(waiting.column("row_count")).as_py() or 0
        if not rows:
            return
        why = (
            "the table is write-only"
            if self.store.options.write_only
            else "this write did not compact"
            if self.report.compaction is None
            else "the compactions of this write lost their races"
        )
        text = (
            f"batch readers do not see {rows:,} rows of this commit before the next compaction: "
            f"they see compacted rows alone (deletion vectors or first-row), and {why}"
        )
        self.report = replace(self.report, rows_unseen=rows, warnings=(*self.report.warnings, text))
        if self.store.root not in _WARNED:
            _WARNED.add(self.store.root)
            _LOG.warning("table %s: %s", self.store.name, text)


def _hides_new_rows(store: TableStore) -> bool:
    """Return whether rows wait for a compaction before batch readers see them; never in append tables."""
    return store.has_primary_key and compacted_only(store)


def plan_of_touched(store: TableStore, snapshot_ids: Sequence[int]) -> MaintenancePlan | None:
    """Plan the compaction of the buckets to which commits added files.

    Args:
        store: the table.
        snapshot_ids: the snapshots of the commits, oldest first; expired ones are skipped.

    Returns:
        A plan with these buckets only. If keys may move between partitions and readers see a move only after a
            compaction, the plan covers each touched bucket number in each touched partition. None if the commits added
            no files, if the commits already compacted these buckets, if the table has incremental clustering or data
            evolution and no buckets, or if it can only be compacted by Paimon's engines.

    Raises:
        CorruptFile: a manifest cannot be read.
    """
    if (store.options.clusters_incrementally or manifests.evolves(store)) and store.bucket_mode is BucketMode.UNAWARE:
        return None  # as in Java, only a compaction job sorts files or joins their columns
    from lsm_core.commit.overwrite import moves_hidden_keys
    from lsm_core.maintenance.actions.compact.compaction import CompactItem
    from lsm_core.maintenance.actions.compact.planning import plan_compaction

    waiting: dict[tuple[bytes, int], None] = {}
    for number in snapshot_ids:
        snapshot = snapshots.try_read(store, number)
        if snapshot is None:
            continue
        if snapshot.commit_kind is CommitKind.COMPACT:
            for place in _places(manifests.delta_entries(store, snapshot)):
                waiting.pop(place, None)
        else:
            waiting |= dict.fromkeys(_places(_added(store, snapshot)))
    places = list(waiting)
    if not places:
        return None
    partitions = [
        partition_values(store.schema, partition) for partition in dict.fromkeys(place[0] for place in places)
    ]
    buckets = None if store.bucket_mode is BucketMode.UNAWARE else sorted({bucket for _, bucket in places})
    try:
        plan = plan_compaction(store, partitions=partitions, buckets=buckets)
    except UnsupportedFeature as error:  # such tables are written here, and compacted by other engines
        _LOG.debug("table %s: %s", store.name, error)
        return None
    if moves_hidden_keys(store):  # one commit hides moved keys at their old place and shows them at the new one
        return plan
    touched = set(places)
    return replace(
        plan, items=tuple(item for item in plan.items_of(CompactItem) if (item.partition, item.bucket) in touched)
    )


def _added(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of files that a snapshot added, without postponed rows."""
    entries = manifests.delta_entries(store, snapshot)
    chosen = pc.and_(
        pc.equal(entries.column("kind"), arrow_scalar(ADD)), pc.greater_equal(entries.column("bucket"), arrow_scalar(0))
    )
    return entries.filter(chosen)


def _places(entries: pa.Table) -> Sequence[tuple[bytes, int]]:
    grouped = entries.select(["partition", "bucket"]).group_by(["partition", "bucket"], use_threads=False).aggregate([])
    return list(zip(grouped.column("partition").to_pylist(), grouped.column("bucket").to_pylist(), strict=True))


def _is_new(root: str, text: str) -> bool:
    """Return whether this process has logged no equal warning about the table within the last hour."""
    now = time.monotonic()
    if now - _LOGGED.get((root, text), -math.inf) < _SAME_WARNING_EVERY_SECONDS:
        return False
    if len(_LOGGED) >= _WARNINGS_KEPT:
        _LOGGED.clear()
    _LOGGED[root, text] = now
    return True


def _background() -> ThreadPoolExecutor:
    """Return the executor for `snapshot.expire.execution-mode` = async; at exit, the process waits for its work."""
    return _background_of(os.getpid())


@cache
def _background_of(_process: int) -> ThreadPoolExecutor:
    """Return the one-thread executor of a process; a forked process needs its own, as forking copies no threads."""
    return ThreadPoolExecutor(1, thread_name_prefix="dredge-expire")
