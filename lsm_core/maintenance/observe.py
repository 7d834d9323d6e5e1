"""Health of every bucket from metadata alone: no data file is opened, and entries stay Arrow columns.

The number of sorted runs that a key lookup reads comes from a sweep over the key ranges of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, offsets_from, one_array
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import BLOB_EXTENSION
from lsm_core.format.partitions import partition_bytes, partition_names, partition_values
from lsm_core.format.schema import TableSchema
from lsm_core.iceberg.freshness import CommitTimes, has_storage, shown_from_level
from lsm_core.maintenance import score as scoring
from lsm_core.maintenance.actions.compact.unit_choice import FullCompactionsByCommits
from lsm_core.merge.keys import key_bytes
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import deleted_rows, vector_files
from lsm_core.metadata.live_files import compacted_only, live_parts
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read.prune import clusters_keys, expiry_of
from lsm_core.tree import Facts

Floats = npt.NDArray[np.float64]


def compute_overlaps(
    schema: TableSchema, entries: pa.Table, rows: Ints, codes: Ints, groups: int
) -> tuple[Ints, Floats]:
    """Return how many sorted runs overlap in each bucket: the largest number at any key, and the mean over rows.

    Files of one sorted run never share a key, so the number of files that cover a key is the number of runs.

    Args:
        schema: schema of the table.
        entries: entries sorted by bucket, with the columns min_key and max_key (BinaryRows).
        rows: stored rows of each entry.
        codes: bucket of each entry, dense from 0 to ``groups`` - 1.
        groups: number of buckets.

    Returns:
        Two arrays with one number per bucket: the largest number of runs that cover one key, and the mean number of
        runs that cover a row's key.

    Raises:
        UnsupportedFeature: Dredge cannot compare keys of these types.
    """
    if clusters_keys(schema):  # deletion vectors mark older rows, so no read merges two files
        places = np.arange(len(codes), dtype=np.int64)
        return compute_depths(places, places, rows, codes, groups)
    types = list(schema.trimmed_key_types)
    blobs = pa.concat_arrays([one_array(entries.column(name)) for name in ("min_key", "max_key")])
    ranks = pc.rank(pa.array(key_bytes(decode_rows(blobs, types)), pa.binary()), tiebreaker="dense")
    order = numpy_array(ranks).astype(np.int64)
    return compute_depths(order[: len(codes)], order[len(codes) :], rows, codes, groups)


def compute_depths(low: Ints, high: Ints, rows: Ints, codes: Ints, groups: int) -> tuple[Ints, Floats]:
    """Return the results of :func:`compute_overlaps` for files given as closed ranges of numbers >= 0.

    Every bucket must have a file. The mean is weighted by rows: the bounds of the bucket's files cut each range into
    intervals, and the rows of a file are assumed to be evenly spread over its intervals. A range of one key counts with
    the number of runs that cover this key.

    Args:
        low: lower bounds.
        high: upper bounds.
        rows: stored rows of each range.
        codes: bucket of each range, dense from 0 to ``groups`` - 1.
        groups: number of buckets.

    Returns:
        The largest number of runs over any key and the mean over stored rows, one number per bucket each.
    """
    span = int(high.max()) + 1
    places, ranks = np.unique(np.concatenate([codes * span + low, codes * span + high]), return_inverse=True)
    first, last = ranks[: len(codes)], ranks[len(codes) :]
    # Every range opened in a bucket ends in it, so one running sum serves all buckets.
    opened = np.bincount(first, minlength=len(places) + 1)
    at_bound = np.cumsum(opened - np.bincount(last + 1, minlength=len(places) + 1))[:-1]
    between = np.cumsum(opened - np.bincount(last, minlength=len(places) + 1))
    most = np.maximum.reduceat(at_bound, np.searchsorted(places, np.arange(groups) * span))
    before = offsets_from(between)
    mean = np.where(last > first, (before[last] - before[first]) / np.maximum(last - first, 1), at_bound[first])
    weights = np.maximum(rows, 1).astype(np.float64)
    total = np.bincount(codes, weights=weights, minlength=groups)
    return most.astype(np.int64), np.bincount(codes, weights=weights * mean, minlength=groups) / total


@dataclass(frozen=True)
class IcebergRule:
    """Rule of the files of a table that Iceberg readers do not see, because reading them needs a merge.

    Attributes:
        shown_level: lowest level whose files Iceberg readers see.
        commits: times of the commits that wrote rows.
    """

    shown_level: int
    commits: CommitTimes

    @staticmethod
    def of(store: TableStore, snapshot_id: int) -> IcebergRule | None:
        """Return the rule of a table.

        Args:
            store: the table.
            snapshot_id: id of the snapshot that is observed.

        Returns:
            The rule; None if the table has no Iceberg metadata, or no key, so that all files are visible.
        """
        if not store.has_primary_key or store.branch != "main" or not has_storage(store):
            return None
        return IcebergRule(shown_from_level(store.options), CommitTimes(store, snapshot_id))

    def since(self, compacted_ms: int) -> int:
        """Return the time (epoch ms) of the first commit after a full compaction, 0 if it is unknown.

        Args:
            compacted_ms: creation time of the newest file that the full compaction wrote (epoch ms), 0 without one.
        """
        return self.commits.first_after(compacted_ms)


_COLUMNS: Final = (
    "partition",
    "bucket",
    "file_name",
    "file_size",
    "row_count",
    "delete_row_count",
    "min_key",
    "max_key",
    "min_sequence_number",
    "max_sequence_number",
    "schema_id",
    "level",
    "creation_time_ms",
    "file_source",
)
_STATISTICS: Final = ("value_stats_min", "value_stats_max", "value_stats_nulls", "value_stats_cols")
"""Columns that show whether rows of a file have expired, for tables with record-level expiry."""
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BucketHealth:
    """Condition of one bucket (engine.md). Bytes are file sizes, rows unmerged, times epoch ms, lags and ages ms.

    Attributes:
        partition: values of the partition columns.
        bucket: number of the bucket.
        level0_files: files of level 0.
        sorted_runs: level-0 files plus levels in use (0 for append tables, whose files never merge).
        bytes_per_level: bytes by level.
        rows: stored rows; with data evolution, row ids.
        deletes: stored rows that are deletes.
        small_files: files below the compaction's size limit; in a table with incremental clustering, the files of any
            size below the last level. With data evolution, the files that a compaction joins or, if none is due, the
            largest number of files with adjacent row ids.
        read_amplification: sorted runs that a read merges; for append tables, the number of files divided by the
            number of files of the target size that their bytes would fill.
        space_amplification: bytes of all files divided by the bytes of the oldest sorted run; 1 for append tables.
        oldest_level0_ms: creation time of the oldest level-0 file.
        last_compaction_ms: creation time of the newest file of a compaction.
        ro_lag_ms: age of the oldest data that the read-optimised view does not show.
        overlap_max: largest number of sorted runs that cover one key (`compute_overlaps`).
        overlap_mean: mean of that number over the stored rows.
        delete_ratio: share of the stored rows that are deletes or marked by deletion vectors.
        cost_minor: bytes read by the compaction that the table's rules make due now, 0 if none is due.
        cost_full: bytes read by a full compaction, 0 if it has nothing to do.
        score: 0 (healthy) to 100 (needs maintenance), the largest points of one of its ``parts``.
        reasons: reasons of the score as text.
        partition_text: Paimon's path of the partition.
        files: number of files.
        newest_file_ms: creation time of the newest file.
        files_per_level: number of files by level.
        decision: rule that picks a compaction (`tree.Trigger`), or the reason why no rule does (`tree.DeclineReason`);
            "" if the rules are not evaluated. "total-size-threshold" with a ``cost_minor`` of 0 means that a plan made
            now would compact the small tree, but it has too few runs for a compaction to be due.
        facts: figures on which the decision is based.
        hidden_rows: level-0 rows that batch reads do not see before a compaction (deletion vectors, first-row); the
            oldest of these rows have waited since ``oldest_level0_ms``.
        deleted_rows: rows that deletion vectors mark; readers skip them until a compaction drops them.
        parts: parts of the score (`score.Part`), each with its largest number of points (weight).
        size_share: size of the bucket in splits of a reader (`score.size_share`); below 1, the score is scaled down.
        iceberg_since_ms: commit time from which on rows may be invisible to Iceberg readers (`CommitTimes`). None if
            they see all rows of the bucket, or if the table has no Iceberg metadata.
        iceberg_rows: stored rows of files that Iceberg readers do not see.
        iceberg_bytes: bytes of these files.
    """

    partition: Mapping[str, Any]
    bucket: int
    level0_files: int
    sorted_runs: int
    bytes_per_level: Mapping[int, int]
    rows: int
    deletes: int
    small_files: int
    read_amplification: float
    space_amplification: float
    oldest_level0_ms: int | None
    last_compaction_ms: int | None
    ro_lag_ms: int
    overlap_max: int
    overlap_mean: float
    delete_ratio: float
    cost_minor: int
    cost_full: int
    score: float
    reasons: tuple[str, ...]
    partition_text: str = ""
    files: int = 0
    newest_file_ms: int | None = None
    files_per_level: Mapping[int, int] = field(default_factory=dict)
    decision: str = ""
    facts: Facts = field(default_factory=dict)
    hidden_rows: int = 0
    deleted_rows: int = 0
    parts: tuple[scoring.Part, ...] = ()
    size_share: float = 1.0
    iceberg_since_ms: int | None = None
    iceberg_rows: int = 0
    iceberg_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all live files."""
        return sum(self.bytes_per_level.values())


def health(
    store: TableStore,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    now_ms: int | None = None,
    snapshot_id: int | None = None,
) -> list[BucketHealth]:
    """Return the health of every bucket of a snapshot, ordered by partition and bucket; [] for an empty table.

    Args:
        store: the table.
        partitions: partitions to observe (typed values, None = null), None for all.
        now_ms: time of the observation (epoch ms), None for the table's clock.
        snapshot_id: number of the snapshot, None for the newest.

    Raises:
        SnapshotNotFound: the snapshot does not exist.
        CorruptFile: metadata cannot be read.
        InvalidFilter: a partition does not fit the table.
    """
    chosen = None if partitions is None else [partition_bytes(store.schema, p, store.name) for p in partitions]
    snapshot = snapshots.latest(store) if snapshot_id is None else snapshots.read(store, snapshot_id)
    if snapshot is None:
        return []
    marked = {
        name: rows
        for files in vector_files(store, snapshot, chosen).values()
        for name, rows in deleted_rows(files).items()
    }
    now = store.clock.now_ms() if now_ms is None else now_ms
    if chosen is not None and chosen and not store.schema.partition_keys:
        chosen = None  # all entries have the one empty partition
    parts = live_parts(store, snapshot, columns=_columns(store), partitions=chosen)
    by_commits = FullCompactionsByCommits(store, snapshot)
    hidden = IcebergRule.of(store, snapshot.id)
    return _health_of_parts(store, (part for _, part in parts), now, marked, by_commits, hidden)


def _columns(store: TableStore) -> list[str]:
    columns = _COLUMNS if expiry_of(store) is None else (*_COLUMNS, *_STATISTICS)
    return [*columns, "first_row_id"] if manifests.evolves(store) else list(columns)


def _health_of_parts(
    store: TableStore,
    parts: Iterator[pa.Table],
    now_ms: int,
    marked: Mapping[str, int],
    by_commits: FullCompactionsByCommits,
    iceberg: IcebergRule | None,
) -> list[BucketHealth]:
    """Return the health of the buckets that live entries name, without postponed rows, which have no bucket yet.

    Args:
        store: the table.
        parts: live entries, in parts; the caller must not use the parts afterwards.
        now_ms: time of the observation (epoch ms).
        marked: number of rows that a deletion vector marks, by file name.
        by_commits: buckets that are due by `full-compaction.delta-commits`.
        iceberg: rule of the files that Iceberg readers do not see, None if they see all files.
    """
    columns = _columns(store)
    table = pa.concat_tables([manifests.NO_ENTRIES.select(columns), *(part.select(columns) for part in parts)])
    if store.bucket_mode is BucketMode.POSTPONE:
        table = table.filter(pc.greater_equal(table.column("bucket"), 0))
    if table.num_rows == 0:
        return []
    table = table.combine_chunks()
    # A dense number for every entry's bucket.
    indices = one_array(table.column("partition")).dictionary_encode().indices
    numbers = numpy_array(table.column("bucket")).astype(np.int64)
    pairs: Ints = numpy_array(indices).astype(np.int64) * (1 << 32) + (numbers + (1 << 16))
    del indices, numbers
    codes = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    del pairs
    order = np.argsort(codes, kind="stable")
    table, codes = table.take(arrow_array(order)), codes[order]
    del order
    buckets = _Buckets(store, table, codes, _marked_rows(table, marked), iceberg)
    due = scoring.due_compactions(store, table, buckets.starts, buckets.runs, now_ms, marked, by_commits)
    healths = [buckets.health(index, now_ms, due.get(index)) for index in range(buckets.groups)]
    return sorted(healths, key=lambda h: (h.partition_text, h.bucket))


def _marked_rows(table: pa.Table, marked: Mapping[str, int]) -> Ints:
    """Return how many rows of each entry's file a deletion vector marks."""
    counts_by_entry: Ints = np.zeros(table.num_rows, np.int64)
    if marked:
        names, counts = arrow_array(list(marked), pa.string()), np.fromiter(marked.values(), np.int64, len(marked))
        places = pc.index_in(one_array(table.column("file_name")), names)
        counts_by_entry[numpy_array(places.is_valid())] = counts[numpy_array(places.drop_null())]
    return counts_by_entry


def _count_once(table: pa.Table, codes: Ints) -> Ints:
    """Return the rows of each entry of a data-evolution table, 0 if another entry has the same row ids.

    Args:
        table: entries with their row ids.
        codes: number of each entry's bucket.
    """
    rows, first = _ints(table, "row_count"), _ints(table, "first_row_id")
    is_blob = numpy_array(pc.ends_with(one_array(table.column("file_name")), BLOB_EXTENSION))
    order = np.lexsort((first, codes, is_blob))
    repeats = np.r_[False, (first[order][1:] == first[order][:-1]) & (codes[order][1:] == codes[order][:-1])]
    counted = np.zeros_like(rows)
    counted[order] = np.where(repeats | is_blob[order], 0, rows[order])
    return counted


def _ints(table: pa.Table, name: str, default: int = 0) -> Ints:
    values: Ints = numpy_array(pc.fill_null(pc.cast(table.column(name), pa.int64()), arrow_scalar(default)))
    return values


class _Buckets:
    """Entries sorted by bucket, and their sums per bucket.

    The parameter ``index`` of a method is the position of a bucket in this order, counted from 0 over all partitions.
    """

    def __init__(
        self, store: TableStore, table: pa.Table, codes: Ints, marked: Ints, iceberg: IcebergRule | None
    ) -> None:
        self.store, self.table, self.codes, self.iceberg = store, table, codes, iceberg
        groups = self.groups = int(codes[-1]) + 1
        self._partitions: dict[bytes, Mapping[str, Any]] = {}
        names = pc.unique(table.column("partition")).to_pylist()  # one object per partition, not per file
        self._texts = dict(zip(names, partition_names(store.schema, names, store.options), strict=True))
        self.has_pk = bool(store.schema.primary_keys)
        self.starts = np.searchsorted(codes, np.arange(groups))
        self.level, self.size = _ints(table, "level"), _ints(table, "file_size")
        self.created = _ints(table, "creation_time_ms")
        self.evolves = manifests.evolves(store)
        self.rows = self._sum(_count_once(table, codes) if self.evolves else _ints(table, "row_count"))
        self.deletes = self._sum(_ints(table, "delete_row_count"))
        self.marked = self._sum(marked)
        shares = marked / np.maximum(_ints(table, "row_count"), 1)
        self.most_marked = np.maximum.reduceat(shares, self.starts)
        self.bytes = self._sum(self.size)
        self.files = self._sum(np.ones_like(self.size))
        small = store.options.compaction_file_size(self.has_pk)
        is_small = self.size < small
        if not self.has_pk and store.options.clusters_incrementally:  # only files of the last level are done
            is_small = self.level < store.options.num_levels - 1
        self.small = self._sum(is_small.astype(np.int64))
        self.level0 = self._sum((self.level == 0).astype(np.int64))
        waiting = (self.level == 0) & (self.has_pk and compacted_only(store))
        self.hidden = self._sum(np.where(waiting, _ints(table, "row_count"), 0))
        self.levels = self._per_level()
        upper = np.array([len([n for n in levels if n > 0]) for levels in self.levels], dtype=np.int64)
        self.runs: Ints = self.level0 + upper if self.has_pk else np.zeros(groups, np.int64)
        self.sequence = _ints(table, "max_sequence_number")
        self.compacted = _ints(table, "file_source", -1) == 1
        if not self.has_pk:
            self.overlap_max, self.overlap_mean = np.ones(groups, np.int64), np.ones(groups)
            return
        try:
            overlap = compute_overlaps(store.schema, table, _ints(table, "row_count"), codes, groups)
        except UnsupportedFeature:  # keys of a type without order here: the upper bound, all runs overlap
            overlap = self.runs, self.runs.astype(np.float64)
        self.overlap_max, self.overlap_mean = overlap

    def _sum(self, values: Ints) -> Ints:
        sums: Ints = np.add.reduceat(values, self.starts)
        return sums

    def _per_level(self) -> list[dict[int, tuple[int, int]]]:
        """Return (files, bytes) by level for each bucket."""
        by_level: list[dict[int, tuple[int, int]]] = [{} for _ in range(self.groups)]
        keys, inverse, counts = np.unique(self.codes * 1024 + self.level, return_inverse=True, return_counts=True)
        sizes = np.zeros(len(keys), np.int64)
        np.add.at(sizes, inverse, self.size)
        for key, count, size in zip(keys.tolist(), counts.tolist(), sizes.tolist(), strict=True):
            by_level[key // 1024][key % 1024] = (count, size)
        return by_level

    def _rows_of(self, index: int) -> slice:
        """Return the positions of the entries of the bucket at position ``index``."""
        end = int(self.starts[index + 1]) if index + 1 < self.groups else len(self.codes)
        return slice(int(self.starts[index]), end)

    def _oldest_run(self, index: int) -> int:
        """Return the size (bytes) of the oldest sorted run of the bucket at position ``index``.

        That is the highest level with files, or the oldest level-0 file if only level 0 has files. For append tables
        it is the size of all files.
        """
        if not self.has_pk:
            return int(self.bytes[index])
        levels = self.levels[index]
        top = max(levels)
        if top > 0:
            return levels[top][1]
        rows = self._rows_of(index)
        return int(self.size[rows][np.argmin(self.sequence[rows])])

    def _times(self, index: int, now_ms: int) -> tuple[int | None, int | None, int, int | None]:
        """Return times of the bucket at position ``index``.

        Returns:
            Epoch ms of the oldest level-0 file and of the last compaction, the read-optimised lag in ms, and epoch ms
                of the newest file.
        """
        rows = self._rows_of(index)
        created, level = self.created[rows], self.level[rows]
        known = created > 0
        oldest0 = _edge(created[known & (level == 0)], np.min)
        compacted = _edge(created[known & self.compacted[rows]], np.max)
        # The read-optimised view shows the top level only (Paimon: number of levels - 1).
        top = max(self.store.options.num_levels - 1, int(level.max()))
        hidden = _edge(created[known & (level < top)], np.min) if self.has_pk else None
        return oldest0, compacted, 0 if hidden is None else max(0, now_ms - hidden), _edge(created[known], np.max)

    def _iceberg(self, index: int) -> tuple[int | None, int, int]:
        """Return what Iceberg readers do not see of the bucket at position ``index``.

        Returns:
            Commit time of the oldest invisible rows (epoch ms) or None, rows and bytes of the invisible files.
        """
        if self.iceberg is None:
            return None, 0, 0
        rows = self._rows_of(index)
        hidden = self.level[rows] < self.iceberg.shown_level
        if not hidden.any():
            return None, 0, 0
        created, counts = self.created[rows], _ints(self.table.slice(rows.start, rows.stop - rows.start), "row_count")
        # A compaction's output below the top level holds older rows: all that came after the last full compaction.
        merged = bool((hidden & self.compacted[rows]).any())
        since = self.iceberg.since(_edge(created[~hidden], np.max) or 0) if merged else 0
        oldest = _edge(created[hidden & (created > 0)], np.min)
        since = min(time for time in (since, oldest) if time) if since or oldest else 0
        return since, int(counts[hidden].sum()), int(self.size[rows][hidden].sum())

    def health(self, index: int, now_ms: int, due: scoring.DueCompaction | None) -> BucketHealth:
        """Return the health of one bucket.

        Args:
            index: position of the bucket in the order of the entries, counted from 0 over all partitions.
            now_ms: current time (epoch ms).
            due: due compaction of the bucket by the table's rules, or None if it was not computed or none is due.
        """
        store, first = self.store, int(self.starts[index])
        partition = self.table.column("partition")[first].as_py()
        if partition not in self._partitions:  # decoded once for all of its buckets
            self._partitions[partition] = partition_values(store.schema, partition)
        levels = self.levels[index]
        oldest0, compacted, lag, newest = self._times(index, now_ms)
        rows, deletes, marked = int(self.rows[index]), int(self.deletes[index]), int(self.marked[index])
        oldest, size = self._oldest_run(index), int(self.bytes[index])
        unseen_since, unseen_rows, unseen_bytes = self._iceberg(index)
        reads = float(self.runs[index])
        if not self.has_pk:
            full_files = -(-size // store.options.target_file_size(has_primary_key=False))
            reads = round(int(self.files[index]) / max(1, full_files), 3)
        small, most_marked, files = int(self.small[index]), float(self.most_marked[index]), int(self.files[index])
        droppable = marked
        if self.evolves:  # only files that a compaction joins count, and it keeps deleted rows
            small = int((due.facts.get("small_files") if due is not None else 0) or 0)
            droppable, most_marked, files = 0, 0.0, small
        signs = scoring.ScoreFigures(
            runs=int(self.runs[index]),
            level0=int(self.level0[index]) if self.has_pk else 0,
            space=round(size / max(oldest, 1), 3),
            delete_ratio=(deletes + marked) / rows if rows else 0.0,
            small_files=small,
            bytes=size,
            has_primary_key=self.has_pk,
            hidden=int(self.hidden[index]),
            marked=droppable,
            most_marked=most_marked,
            files=files,
            waiting_ms=max(0, now_ms - oldest0) if oldest0 is not None else 0,
            ro_lag_ms=lag,
            iceberg_lag_ms=0 if unseen_since is None else max(0, now_ms - unseen_since),
        )
        due = due or scoring.too_few_runs(signs, oldest, store.options)
        parts, share = scoring.score_parts(signs, store.options), scoring.size_share(signs, store.options)
        return BucketHealth(
            partition=self._partitions[partition],
            bucket=self.table.column("bucket")[first].as_py(),
            level0_files=levels.get(0, (0, 0))[0],
            sorted_runs=signs.runs,
            bytes_per_level={level: size for level, (_, size) in sorted(levels.items())},
            rows=rows,
            deletes=deletes,
            small_files=signs.small_files,
            read_amplification=reads,
            space_amplification=signs.space,
            oldest_level0_ms=oldest0,
            last_compaction_ms=compacted,
            ro_lag_ms=lag,
            overlap_max=int(self.overlap_max[index]),
            overlap_mean=round(float(self.overlap_mean[index]), 3),
            delete_ratio=round(signs.delete_ratio, 4),
            cost_minor=due.cost,
            cost_full=scoring.full_cost(signs, store.options) if due.full_cost is None else due.full_cost,
            score=scoring.total(parts, share),
            reasons=scoring.reasons_of(parts),
            partition_text=self._texts[partition],
            files=int(self.files[index]),
            newest_file_ms=newest,
            files_per_level={level: count for level, (count, _) in sorted(levels.items())},
            decision=due.decision,
            facts=due.facts,
            hidden_rows=signs.hidden,
            deleted_rows=marked,
            parts=parts,
            size_share=share,
            iceberg_since_ms=unseen_since,
            iceberg_rows=unseen_rows,
            iceberg_bytes=unseen_bytes,
        )


def _edge(values: Ints, pick: Any) -> int | None:
    return int(pick(values)) if len(values) else None
