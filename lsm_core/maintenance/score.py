"""Score of a bucket's need for maintenance (0 to 100) with its reasons, and the cost of a compaction in bytes read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array
from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import size_text
from lsm_core.maintenance.actions.compact.incremental_clustering import choose_clustering
from lsm_core.maintenance.actions.compact.unit_choice import (
    NOTHING_DELETED,
    FileColumns,
    FullCompactionsByCommits,
    choose_bins,
    commits_between_full,
    decide,
    decide_by_sizes,
)
from lsm_core.maintenance.history_health import GRACE_MS, HistoryHealth, read_history_health
from lsm_core.metadata import manifests
from lsm_core.metadata.live_files import tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions
from lsm_core.read.prune import ExpiredFiles, expired_files, expiry_of
from lsm_core.tree import DataFile, Decline, DeclineReason, Facts, Trigger

Ints = npt.NDArray[np.int64]
_MUCH_DELETED = 0.1
_REASON_SHARE: Final = 0.5
"""Fraction of a part's limit from which the part is listed as a reason."""
_LEVEL0_FILES: Final = 1_000
"""Number of level-0 files that is a backlog, however small they are: each is listed, opened and merged."""
_TENTH: Final = 10
"""Files are small on average if this many of them fit into one file of the target size."""
_MANY_FILES: Final = 50
"""Number of files below which the cost for readers is low, however small the files are."""
_HOUR_MS: Final = 60 * 60 * 1000
_DAY_MS: Final = 24 * _HOUR_MS
_LONG_MS: Final = 20 * _DAY_MS
_RO_LAG_MS: Final = _DAY_MS
"""Lag of the read-optimised view that is a problem for its readers, as in the check `ro_is_fresh`."""
_OVERDUE: Final = 100
_MANIFESTS: Final = 10
READS: Final = "read amplification"
SPACE: Final = "space amplification"
DELETES: Final = "deletes"
HIDDEN: Final = "hidden rows"
POSTPONED: Final = "postponed rows"
RO_LAG: Final = "read-optimised lag"
ICEBERG_LAG: Final = "Iceberg lag"
LEVEL0: Final = "level-0 backlog"
STALENESS: Final = "staleness"
SMALL_FILES: Final = "small files"
PILE: Final = "small-file backlog"
FILE_SIZE: Final = "average file size"
SNAPSHOTS: Final = "snapshot debt"
HELD: Final = "held snapshots"
MANIFESTS: Final = "metadata debt"
ORPHANS: Final = "orphan files"
_MANY_ORPHANS: Final = 1_000
_LARGE_ORPHANS: Final = 1 << 30
_FILES_AT_ONCE = 50_000


@dataclass(frozen=True)
class ScoreFigures:
    """Figures of a bucket from which its score is computed.

    Attributes:
        runs: number of sorted runs.
        level0: number of level-0 files.
        space: space amplification.
        delete_ratio: share of the stored rows that are deletes or marked by deletion vectors.
        small_files: number of files below the compaction's size limit.
        bytes: bytes of all files.
        has_primary_key: whether the table has a primary key.
        hidden: number of level-0 rows that batch reads do not see before a compaction.
        marked: number of rows that deletion vectors mark.
        most_marked: largest share of marked rows of one file.
        files: number of files.
        waiting_ms: age of the oldest level-0 file.
        ro_lag_ms: age of the oldest data that the read-optimised view does not show.
        iceberg_lag_ms: age of the oldest commit whose rows Iceberg readers do not all see; 0 without Iceberg metadata.
    """

    runs: int
    level0: int
    space: float
    delete_ratio: float
    small_files: int
    bytes: int
    has_primary_key: bool
    hidden: int = 0
    marked: int = 0
    most_marked: float = 0.0
    files: int = 0
    waiting_ms: int = 0
    ro_lag_ms: int = 0
    iceberg_lag_ms: int = 0


class Part(NamedTuple):
    """One part of a score.

    Attributes:
        name: name of the part.
        share: measured value divided by its limit (1: the limit is reached).
        weight: largest number of points that the part can have, out of 100.
        text: reason with figures.
        sized: whether the points are scaled down for a small bucket, because it costs readers little.
    """

    name: str
    share: float
    weight: float
    text: str
    sized: bool = True

    def points(self, size_share: float) -> float:
        """Return the points of the part, 0 to 100.

        Args:
            size_share: size of the bucket in splits of a reader; below 1, points of a ``sized`` part are scaled down.
        """
        return round(self.weight * min(1.0, max(0.0, self.share)) * (min(1.0, size_share) if self.sized else 1.0), 1)


def size_share(signs: ScoreFigures, options: TableOptions) -> float:
    """Return the size of a bucket for a reader, in units of `source.split.target-size`.

    The size is the bytes of all files plus `source.split.open-file-cost` for each file. A bucket with a size below 1 is
    less than one task of a reader. Its points are scaled down, so a tiny table cannot have a high score.

    Args:
        signs: figures of the bucket.
        options: options of the table.
    """
    return (signs.bytes + signs.files * options.open_file_cost) / max(options.source_split_target, 1)


def score(signs: ScoreFigures, options: TableOptions) -> tuple[float, tuple[str, ...]]:
    """Return (score of a bucket, 0 is healthy and 100 is worst; reasons for the score as texts).

    Args:
        signs: figures of the bucket.
        options: options of the table.
    """
    parts = score_parts(signs, options)
    return total(parts, size_share(signs, options)), reasons_of(parts)


def total(parts: Iterable[Part], size: float) -> float:
    """Return the score of parts, 0 (healthy) to 100 (act): the largest points of one part.

    Args:
        parts: parts of the score.
        size: size of the bucket in splits of a reader (function `size_share`).
    """
    return max((part.points(size) for part in parts), default=0.0)


def reasons_of(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return the texts of the parts at half or more of their limits, the largest share first.

    Args:
        parts: parts of the score.
    """
    return tuple(part.text for part in sorted(parts, key=lambda part: -part.share) if part.share >= _REASON_SHARE)


def score_parts(signs: ScoreFigures, options: TableOptions) -> tuple[Part, ...]:
    """Return the parts of a bucket's score that are not 0.

    Args:
        signs: figures of the bucket.
        options: options of the table.
    """
    if signs.has_primary_key:
        trigger, limit = options.compaction_trigger, 1 + options.max_size_amplification / 100
        sign = ">=" if signs.runs >= trigger else "<"
        marked = " or marked as deleted" if signs.marked else ""
        parts = [
            Part(READS, (signs.runs - 1) / max(trigger - 1, 1), 100, f"{signs.runs} sorted runs {sign} {trigger}"),
            Part(
                SPACE,
                (signs.space - 1) / max(limit - 1, 0.01) if signs.runs > 1 else 0.0,
                100,
                f"space amplification {signs.space:.2f} (limit {limit:.2f})",
            ),
            Part(
                DELETES,
                signs.delete_ratio / (2 * _MUCH_DELETED),
                90,
                f"{signs.delete_ratio:.1%} of the rows are deletes{marked}",
            ),
            Part(
                HIDDEN,
                float(signs.hidden > 0),
                50,
                f"{signs.hidden} rows are not visible before they are compacted",
                sized=False,
            ),
            Part(
                LEVEL0,
                signs.level0 / _LEVEL0_FILES,
                100,
                f"{signs.level0:,} level-0 files (limit {_LEVEL0_FILES:,})",
                sized=False,
            ),
            Part(
                STALENESS,
                signs.waiting_ms / _LONG_MS if signs.runs > 1 else 0.0,
                40,
                f"not compacted for {signs.waiting_ms / _DAY_MS:.0f} days",
            ),
            Part(
                RO_LAG,
                signs.ro_lag_ms / _RO_LAG_MS,
                30,
                f"the read-optimised view lags {signs.ro_lag_ms // _HOUR_MS} h (limit {_RO_LAG_MS // _HOUR_MS} h)",
            ),
            Part(
                ICEBERG_LAG,
                signs.iceberg_lag_ms / _RO_LAG_MS,
                40,
                f"Iceberg readers lag {signs.iceberg_lag_ms // _HOUR_MS} h (limit {_RO_LAG_MS // _HOUR_MS} h)",
                sized=False,
            ),
        ]
    else:
        least = options.min_file_num
        sign = ">=" if signs.small_files >= least else "<"
        most = float(options.get("compaction.delete-ratio-threshold"))
        share = signs.most_marked / most if most > 0 else float(signs.marked > 0)
        # A file beyond the threshold: rewritten by the next compaction without buckets, else only by a full compaction.
        weight = 100 if options.bucket < 1 else 90
        parts = [
            Part(
                SMALL_FILES,
                (signs.small_files - 1) / max(least - 1, 1),
                100,
                f"{signs.small_files} small files {sign} {least}",
            ),
            Part(
                PILE,
                signs.small_files / _LEVEL0_FILES,
                100,
                f"{signs.small_files:,} small files in one bucket (limit {_LEVEL0_FILES:,})",
                sized=False,
            ),
            Part(FILE_SIZE, *_average(signs, options)),
            Part(
                DELETES,
                share,
                weight,
                f"{signs.most_marked:.1%} of a file's rows are deleted (threshold {most:.1%})",
            ),
        ]
    return tuple(part for part in parts if part.share > 0)


def _average(signs: ScoreFigures, options: TableOptions) -> tuple[float, float, str]:
    """Return the part of an append bucket's score for its average file size.

    Returns:
        The limit of the average size divided by the average size (0.0 if this is at most 1), the largest number of
        points, and the reason as text.
    """
    tenth = options.target_file_size(has_primary_key=False) // _TENTH
    average = signs.bytes // max(signs.files, 1)
    share = 0.0 if signs.files <= _MANY_FILES else tenth / max(average, 1)
    text = f"{signs.files:,} files of {size_text(average)} on average (a tenth of target-file-size: {size_text(tenth)})"
    return (share if share > 1 else 0.0), 80, text


def history_parts_of(store: TableStore, newest: Snapshot | None = None, grace_ms: int = GRACE_MS) -> tuple[Part, ...]:
    """Return the parts of a table's score that come from its history: overdue snapshots, small manifests, orphans.

    The result is () if the history cannot be read, because the checks report this damage.

    Args:
        store: the table.
        newest: newest snapshot, if the caller has just read it; None to read it.
        grace_ms: time (ms) by which an expiry may be late before a snapshot or tag counts as overdue.
    """
    try:
        return history_parts(read_history_health(store, newest, grace_ms), store.options)
    except (DredgeError, OSError):
        return ()


def history_parts(debt: HistoryHealth, options: TableOptions) -> tuple[Part, ...]:
    """Return the parts of a table's score from its history: overdue or held snapshots, small manifests, orphans.

    Args:
        debt: numbers of overdue snapshots, tags and manifests of the table.
        options: options of the table.
    """
    least = max(options.manifest_merge_min_count, 1)
    parts = [
        Part(SNAPSHOTS, debt.overdue / _OVERDUE, 50, f"{debt.overdue:,} snapshots should have expired", sized=False),
        Part(HELD, debt.held / _OVERDUE, 50, f"consumer {debt.consumer} holds {debt.held:,} snapshots", sized=False),
        Part(
            MANIFESTS,
            debt.small_manifests / (_MANIFESTS * least),
            50,
            f"{debt.small_manifests:,} of {debt.manifests:,} manifests are small or hold deletions",
            sized=False,
        ),
        Part(
            ORPHANS,
            max(debt.orphans / _MANY_ORPHANS, debt.orphan_bytes / _LARGE_ORPHANS),
            30,
            f"orphan files that wait for approval to go: {debt.orphans:,}, {debt.orphan_bytes:,} bytes",
            sized=False,
        ),
    ]
    return tuple(part for part in parts if part.share > 0)


def postponed_parts(rows: int) -> tuple[Part, ...]:
    """Return the part of a table's score for rows that have no bucket yet, or () without such rows.

    Args:
        rows: number of postponed rows.
    """
    text = f"{rows:,} postponed rows without a bucket: no reader sees them"
    return (Part(POSTPONED, 1.0, 50, text, sized=False),) if rows else ()


def full_cost(signs: ScoreFigures, options: TableOptions) -> int:
    """Return the bytes that a full compaction of a bucket would read; 0 if there is nothing to compact.

    Args:
        signs: figures of the bucket.
        options: options of the table.
    """
    if not signs.has_primary_key:
        few = 0 if options.clusters_incrementally else 1
        return signs.bytes if signs.small_files > few or signs.marked else 0
    done = signs.runs <= 1 and signs.level0 == 0 and not options.force_rewrite_all
    return 0 if done else signs.bytes


@dataclass(frozen=True)
class DueCompaction:
    """Compaction that the table's rules pick for a bucket now.

    Attributes:
        cost: bytes that the compaction reads, 0 if no compaction is due.
        decision: rule that picks the compaction, or the reason why none is due.
        facts: figures on which the decision is based.
        full_cost: bytes that a full compaction reads, None if it reads all files of the bucket.
    """

    cost: int = 0
    decision: str = ""
    facts: Facts = field(default_factory=dict)
    full_cost: int | None = None


def due_compactions(
    store: TableStore,
    entries: pa.Table,
    starts: Ints,
    runs: Ints,
    now_ms: int,
    marked: Mapping[str, int] = NOTHING_DELETED,
    by_commits: FullCompactionsByCommits | None = None,
) -> Mapping[int, DueCompaction]:
    """Return the due compaction of each bucket with enough runs for a rule; buckets with fewer runs are left out.

    A small tree (`compaction.total-size-threshold`) below the trigger gets this rule as its decision, because a plan
    made now would use the rule. Its cost is 0, because otherwise a compaction would be due after every commit.

    Args:
        store: the table.
        entries: live entries, sorted by bucket.
        starts: index of the first entry of each bucket in ``entries``.
        runs: number of sorted runs of each bucket.
        now_ms: time of the observation (epoch ms).
        marked: number of rows that a deletion vector marks, by file name.
        by_commits: buckets that are due by `full-compaction.delta-commits`.

    Returns:
        Due compaction by index of the bucket in ``starts``.
    """
    options = store.options
    early = options.incremental_size_threshold or options.optimization_interval or options.total_size_threshold
    counted = commits_between_full(options, has_primary_key=bool(store.schema.primary_keys)) is not None
    forced = counted or options.force_up_level0 or options.needs_lookup  # a lone file of level 0 moves up too
    least = 1 if forced else 2 if early else options.compaction_trigger
    ends = np.append(starts[1:], entries.num_rows)
    due_by_bucket: dict[int, DueCompaction] = {}
    if store.schema.primary_keys:
        considered = np.flatnonzero(runs >= least)
    else:
        # a lone file is worth a compaction where enough of its rows are deleted
        names = arrow_array(list(marked), pa.string())
        holds = numpy_array(pc.is_in(entries.column("file_name"), names)).astype(np.int64)
        considered = np.flatnonzero((ends - starts > 1) | (np.add.reduceat(holds, starts) > 0))
    if store.schema.primary_keys and expiry_of(store) is None:
        due_by_bucket, considered = _due_by_sizes(store, entries, starts, runs, now_ms, considered, by_commits)
    if not len(considered):
        return due_by_bucket
    for together in np.array_split(considered, -(-int((ends - starts)[considered].sum()) // _FILES_AT_ONCE) or 1):
        rows = np.concatenate([np.arange(starts[group], ends[group]) for group in together] or [starts])
        listed, at = entries.take(arrow_array(rows)), 0
        try:
            files = tree_files(store, listed)  # keys decoded together
        except UnsupportedFeature:  # keys without order here: nothing is due
            continue
        expired = expired_files(store, listed, now_ms)
        for group in together.tolist():
            count = int(ends[group] - starts[group])
            own, at = files[at : at + count], at + count
            full_is_due = False
            if by_commits is not None and by_commits.counts:
                place = listed.slice(at - count, 1).select(["partition", "bucket"]).to_pylist()[0]
                full_is_due = by_commits.is_due(place["partition"], place["bucket"])
            due = _due_compaction(store, own, now_ms, int(runs[group]), expired, marked, full_is_due=full_is_due)
            if due is not None:
                due_by_bucket[group] = due
    return due_by_bucket


def _due_by_sizes(
    store: TableStore,
    entries: pa.Table,
    starts: Ints,
    runs: Ints,
    now_ms: int,
    considered: Ints,
    by_commits: FullCompactionsByCommits | None,
) -> tuple[dict[int, DueCompaction], Ints]:
    """Return the due compactions that follow from levels and sizes, and the buckets that need objects for their files.

    The arguments are those of :func:`due_compactions`; ``considered`` are the buckets with enough runs for a rule.
    """
    if not len(considered):
        return {}, considered
    try:
        tree_files(store, entries.slice(0, 1))
    except UnsupportedFeature:  # keys without order here: nothing is due
        return {}, considered[:0]
    level, size, lowest, highest, created, deletes = (
        numpy_array(pc.fill_null(pc.cast(entries.column(name), pa.int64()), arrow_scalar(default)))
        for name, default in (
            ("level", 0),
            ("file_size", 0),
            ("min_sequence_number", 0),
            ("max_sequence_number", 0),
            ("creation_time_ms", 0),
            ("delete_row_count", -1),
        )
    )
    ends = np.append(starts[1:], entries.num_rows)
    due_by_bucket: dict[int, DueCompaction] = {}
    undecided = []
    for group in considered.tolist():
        rows = slice(int(starts[group]), int(ends[group]))
        names = entries.column("file_name").slice(rows.start, rows.stop - rows.start)
        if by_commits is not None and by_commits.counts:
            place = entries.slice(rows.start, 1).select(["partition", "bucket"]).to_pylist()[0]
            if by_commits.is_due(place["partition"], place["bucket"]):
                undecided.append(group)
                continue
        numbers = (level[rows], size[rows], lowest[rows], highest[rows], created[rows])
        own = FileColumns(*numbers, deletes[rows] != 0, names)
        try:
            decision = decide_by_sizes(store, own, now_ms)
        except UnsupportedFeature:  # health covers every table, also those that are never compacted here
            continue
        if decision is None:
            undecided.append(group)
            continue
        early = decision.reason is Trigger.TOTAL_SIZE and int(runs[group]) < store.options.compaction_trigger
        due_by_bucket[group] = DueCompaction(0 if early else decision.cost, str(decision.reason), decision.facts)
    return due_by_bucket, np.array(undecided, np.int64)


def _due_compaction(
    store: TableStore,
    files: list[DataFile],
    now_ms: int,
    runs: int,
    expired: ExpiredFiles,
    marked: Mapping[str, int],
    *,
    full_is_due: bool = False,
) -> DueCompaction | None:
    """Return the compaction that is due in one bucket, or None for tables that Dredge cannot compact.

    If nothing is due, the ``cost`` of the result is 0.

    Args:
        store: the table.
        files: live files of the bucket.
        now_ms: time of the decision (epoch ms).
        runs: number of sorted runs of the bucket.
        expired: files whose rows expired by record-level expiry.
        marked: number of rows that a deletion vector marks, by file name.
        full_is_due: whether a full compaction is due by the number of commits.
    """
    if not store.schema.primary_keys:
        if store.options.clusters_incrementally:
            decision = choose_clustering(store, files, full=False)
            if isinstance(decision, Decline):
                return DueCompaction(0, str(decision.reason), decision.facts)
            return DueCompaction(decision.unit.size, str(decision.trigger), decision.facts)
        bins = choose_bins(store, files, full=False, deleted=marked)
        full_cost = None
        if manifests.evolves(store):  # deleted rows stay, and only neighbours by row id are joined
            every = choose_bins(store, files, full=True)
            full_cost = 0 if isinstance(every, Decline) else sum(file.size for chosen in every for file in chosen)
            marked = NOTHING_DELETED
        if isinstance(bins, Decline):
            return DueCompaction(0, str(bins.reason), bins.facts, full_cost)
        chosen_files = [file for chosen in bins for file in chosen]
        deleted_rows = sum(marked.get(file.name, 0) for file in chosen_files)
        facts: Facts = {"files": len(files), "small_files": len(chosen_files), "bins": len(bins)}
        facts = {**facts, "deleted_rows": deleted_rows} if deleted_rows else facts
        return DueCompaction(sum(file.size for file in chosen_files), str(Trigger.SMALL_FILES), facts, full_cost)
    try:
        decision = decide(store, files, now_ms, expired=expired, full_is_due=full_is_due)
    except UnsupportedFeature:  # health covers every table, also those that are never compacted here
        return None
    if isinstance(decision, Decline):
        return DueCompaction(0, str(decision.reason), decision.facts)
    if decision.trigger is Trigger.TOTAL_SIZE and runs < store.options.compaction_trigger:
        return DueCompaction(0, str(decision.trigger), decision.facts)
    return DueCompaction(decision.unit.size, str(decision.trigger), decision.facts)


def too_few_runs(signs: ScoreFigures, oldest_run: int, options: TableOptions) -> DueCompaction:
    """Return the decision that a bucket has too few sorted runs for a compaction; its ``cost`` is 0.

    The text ``decision`` is "" if the bucket has enough runs, or belongs to an append table.

    For speed, the decision is computed without creating an object per file.

    Args:
        signs: figures of the bucket.
        oldest_run: bytes of the oldest sorted run.
        options: options of the table.
    """
    if not signs.has_primary_key:
        return DueCompaction()
    newer = signs.bytes - oldest_run
    facts: Facts = {
        "sorted_runs": signs.runs,
        "trigger_runs": options.compaction_trigger,
        "newer_bytes": newer,
        "oldest_run_bytes": oldest_run,
        "amplification_percent": newer * 100 // oldest_run if oldest_run else None,
        "max_amplification_percent": options.max_size_amplification,
    }
    few = signs.runs < options.compaction_trigger
    return DueCompaction(0, str(DeclineReason.TOO_FEW_RUNS) if few else "", facts)
