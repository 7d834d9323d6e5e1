"""Health of every bucket from metadata alone: no data file is opened, and entries stay Arrow columns until the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.partition_path import partition_bytes, partition_text, partition_values
from lsm_core.format.schema import TableSchema
from lsm_core.maintenance import score as scoring
from lsm_core.merge.sort_key import key_bytes
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore

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
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BucketHealth:
    """Condition of one bucket (api.md). Bytes are file sizes, rows unmerged, times epoch ms, lags and ages ms.

    ``sorted_runs``: level-0 files plus levels in use (0 for append tables, whose files never merge).
    ``read_amplification``: sorted runs that a read merges; append tables: files per file that full ones would need.
    ``space_amplification``: all bytes over those of the last run. ``ro_lag_ms``: age of the oldest data that the
    read-optimised view does not show. ``overlap_max`` and ``overlap_mean``: files that cover one key, at worst and on
    average over the files' smallest keys. ``delete_ratio``: deletes over rows. ``cost_minor`` and ``cost_full``: bytes
    read by the compaction that the table's rules ask for now, and by a full one (0 = nothing to do). ``score``: 0
    (healthy) to 100 (act), the largest of its ``reasons``.
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
    """Health of every bucket of a snapshot (default: the newest), ordered by partition and bucket; [] for an empty table.

    ``partitions`` chooses some (typed values, None = null). Raises SnapshotNotFound, CorruptFile.
    """
    snapshot = snapshots.latest(store) if snapshot_id is None else snapshots.read(store, snapshot_id)
    if snapshot is None:
        return []
    chosen = None if partitions is None else [partition_bytes(store.schema, p) for p in partitions]
    entries = manifests.live_entries(store, snapshot, partitions=chosen)
    return health_of_entries(store, entries, store.clock.now_ms() if now_ms is None else now_ms)


def health_of_entries(store: TableStore, entries: pa.Table, now_ms: int) -> list[BucketHealth]:
    """Health of the buckets among live ``entries`` (`ENTRY_SCHEMA`)."""
    if entries.num_rows == 0:
        return []
    table = entries.select(_COLUMNS).combine_chunks()
    codes = _group(table)
    order = np.argsort(codes, kind="stable")
    table, codes = table.take(pa.array(order)), codes[order]
    grouped = _Grouped(store, table, codes)
    minor = scoring.minor_costs(store, table, grouped.starts, grouped.runs, now_ms)
    found = [grouped.bucket(index, now_ms, minor.get(index, 0)) for index in range(grouped.groups)]
    return sorted(found, key=lambda h: (h.partition_text, h.bucket))


def _group(table: pa.Table) -> Ints:
    """Dense number of every entry's bucket."""
    partitions = table.column("partition").combine_chunks().dictionary_encode()
    indices = partitions.chunk(0).indices if isinstance(partitions, pa.ChunkedArray) else partitions.indices
    buckets = table.column("bucket").to_numpy().astype(np.int64)
    pairs = indices.to_numpy(zero_copy_only=False).astype(np.int64) * (1 << 32) + (buckets + (1 << 16))
    _, codes = np.unique(pairs, return_inverse=True)
    return codes.astype(np.int64)


def _ints(table: pa.Table, name: str, default: int = 0) -> Ints:
    values: Ints = pc.fill_null(pc.cast(table.column(name), pa.int64()), default).to_numpy().astype(np.int64)
    return values


class _Grouped:
    """Entries sorted by bucket, and their per-bucket sums."""

    def __init__(self, store: TableStore, table: pa.Table, codes: Ints) -> None:
        self.store, self.table, self.codes = store, table, codes
        groups = self.groups = int(codes[-1]) + 1
        self._partitions: dict[bytes, tuple[Mapping[str, Any], str]] = {}
        self.has_pk = bool(store.schema.primary_keys)
        self.starts = np.searchsorted(codes, np.arange(groups))
        self.level, self.size = _ints(table, "level"), _ints(table, "file_size")
        self.created = _ints(table, "creation_time_ms")
        self.rows = self._sum(_ints(table, "row_count"))
        self.deletes = self._sum(_ints(table, "delete_row_count"))
        self.bytes = self._sum(self.size)
        self.files = self._sum(np.ones_like(self.size))
        small = store.options.compaction_file_size(self.has_pk)
        self.small = self._sum((self.size < small).astype(np.int64))
        self.level0 = self._sum((self.level == 0).astype(np.int64))
        self.levels = self._per_level()
        upper = np.array([len([n for n in levels if n > 0]) for levels in self.levels], dtype=np.int64)
        self.runs: Ints = self.level0 + upper if self.has_pk else np.zeros(groups, np.int64)
        self.sequence = _ints(table, "max_sequence_number")
        self.compacted = _ints(table, "file_source", -1) == 1
        self.overlap = self._overlap(table) if self.has_pk else None

    def _overlap(self, table: pa.Table) -> list[tuple[int, float]]:
        """Overlap of key ranges; where keys are of a type without order here, its upper bound: all runs overlap."""
        try:
            return _overlaps(self.store.schema, table, self.codes, self.groups)
        except UnsupportedFeature:
            return [(int(runs), float(runs)) for runs in self.runs]

    def _sum(self, values: Ints) -> Ints:
        sums: Ints = np.add.reduceat(values, self.starts)
        return sums

    def _per_level(self) -> list[dict[int, tuple[int, int]]]:
        """Per bucket: level -> (files, bytes)."""
        found: list[dict[int, tuple[int, int]]] = [{} for _ in range(self.groups)]
        keys, inverse, counts = np.unique(self.codes * 1024 + self.level, return_inverse=True, return_counts=True)
        sizes = np.zeros(len(keys), np.int64)
        np.add.at(sizes, inverse, self.size)
        for key, count, size in zip(keys.tolist(), counts.tolist(), sizes.tolist(), strict=True):
            found[key // 1024][key % 1024] = (count, size)
        return found

    def _rows_of(self, index: int) -> slice:
        end = int(self.starts[index + 1]) if index + 1 < self.groups else len(self.codes)
        return slice(int(self.starts[index]), end)

    def _space(self, index: int) -> float:
        """All bytes over those of the oldest run: the highest level, or the oldest level-0 file."""
        if not self.has_pk:
            return 1.0
        levels = self.levels[index]
        top = max(levels)
        last = levels[top][1]
        if top == 0:
            rows = self._rows_of(index)
            last = int(self.size[rows][np.argmin(self.sequence[rows])])
        return round(int(self.bytes[index]) / max(last, 1), 3)

    def _times(self, index: int, now_ms: int) -> tuple[int | None, int | None, int, int | None]:
        rows = self._rows_of(index)
        created, level = self.created[rows], self.level[rows]
        known = created > 0
        oldest0 = _edge(created[known & (level == 0)], np.min)
        compacted = _edge(created[known & self.compacted[rows]], np.max)
        # The read-optimised view shows the top level only (Paimon: number of levels - 1).
        top = max(self.store.options.num_levels - 1, int(level.max()))
        hidden = _edge(created[known & (level < top)], np.min) if self.has_pk else None
        return oldest0, compacted, 0 if hidden is None else max(0, now_ms - hidden), _edge(created[known], np.max)

    def _reads(self, index: int) -> float:
        if self.has_pk:
            return float(self.runs[index])
        target = self.store.options.target_file_size(has_primary_key=False)
        return round(int(self.files[index]) / max(1, -(-int(self.bytes[index]) // target)), 3)

    def _partition(self, partition: bytes) -> tuple[Mapping[str, Any], str]:
        """Values and path of a partition, decoded once for all of its buckets."""
        if partition not in self._partitions:
            schema = self.store.schema
            text = partition_text(schema, partition, self.store.options)
            self._partitions[partition] = (partition_values(schema, partition), text)
        return self._partitions[partition]

    def bucket(self, index: int, now_ms: int, cost_minor: int) -> BucketHealth:
        """The finished record of one bucket."""
        store, first = self.store, int(self.starts[index])
        values, text = self._partition(self.table.column("partition")[first].as_py())
        levels = self.levels[index]
        oldest0, compacted, lag, newest = self._times(index, now_ms)
        rows, deletes = int(self.rows[index]), int(self.deletes[index])
        overlap_max, overlap_mean = (1, 1.0) if self.overlap is None else self.overlap[index]
        signs = scoring.Signs(
            runs=int(self.runs[index]),
            level0=int(self.level0[index]) if self.has_pk else 0,
            space=self._space(index),
            delete_ratio=deletes / rows if rows else 0.0,
            small_files=int(self.small[index]),
            bytes=int(self.bytes[index]),
            has_primary_key=self.has_pk,
        )
        score, reasons = scoring.score(signs, store.options)
        return BucketHealth(
            partition=values,
            bucket=self.table.column("bucket")[first].as_py(),
            level0_files=levels.get(0, (0, 0))[0],
            sorted_runs=signs.runs,
            bytes_per_level={level: size for level, (_, size) in sorted(levels.items())},
            rows=rows,
            deletes=deletes,
            small_files=signs.small_files,
            read_amplification=self._reads(index),
            space_amplification=signs.space,
            oldest_level0_ms=oldest0,
            last_compaction_ms=compacted,
            ro_lag_ms=lag,
            overlap_max=overlap_max,
            overlap_mean=overlap_mean,
            delete_ratio=round(signs.delete_ratio, 4),
            cost_minor=cost_minor,
            cost_full=scoring.full_cost(signs, store.options),
            score=score,
            reasons=reasons,
            partition_text=text,
            files=int(self.files[index]),
            newest_file_ms=newest,
            files_per_level={level: count for level, (count, _) in sorted(levels.items())},
        )


def _edge(values: Ints, pick: Any) -> int | None:
    return int(pick(values)) if len(values) else None


def _overlaps(schema: TableSchema, table: pa.Table, codes: Ints, groups: int) -> list[tuple[int, float]]:
    """Per bucket: most files that cover one key, and the mean over the files' smallest keys, by a sweep over ranks."""
    low, high = _ranks(schema, table)
    count = len(codes)
    # A file opens before its own smallest key and closes after its largest one, so touching ranges overlap.
    events = np.concatenate([low * 2, high * 2 + 1])
    group = np.concatenate([codes, codes])
    change = np.concatenate([np.ones(count, np.int64), -np.ones(count, np.int64)])
    order = np.lexsort((events, group))
    depth = np.cumsum(change[order])  # every bucket ends at 0, so one running sum serves all of them
    opened = change[order] > 0
    # Files that open at one key all cover it: count the depth once all of them are open.
    at_open, owner = _depth_after_ties(depth, group[order], events[order])[opened], group[order][opened]
    highest = np.zeros(groups, np.int64)
    np.maximum.at(highest, owner, at_open)
    mean = np.bincount(owner, weights=at_open, minlength=groups) / np.maximum(np.bincount(owner, minlength=groups), 1)
    return [(int(top), round(float(average), 3)) for top, average in zip(highest, mean, strict=True)]


def _run_ends(group: Ints, events: Ints) -> npt.NDArray[np.bool_]:
    """True where the next event is another one (last of equal events of one bucket)."""
    ends = np.ones(len(events), np.bool_)
    ends[:-1] = (group[1:] != group[:-1]) | (events[1:] != events[:-1])
    return ends


def _depth_after_ties(depth: Ints, group: Ints, events: Ints) -> Ints:
    """Depth once all equal events have happened."""
    ends = np.flatnonzero(_run_ends(group, events))
    following: Ints = depth[ends[np.searchsorted(ends, np.arange(len(depth)))]]
    return following


def _ranks(schema: TableSchema, table: pa.Table) -> tuple[Ints, Ints]:
    """Dense ranks of smallest and largest keys over all files, in key order."""
    types = list(schema.trimmed_key_types)
    blobs = pa.concat_arrays([_flat(table.column("min_key")), _flat(table.column("max_key"))])
    keys = key_bytes(decode_rows(blobs, types))
    ranks = pc.rank(pa.array(keys, pa.binary()), tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks[: table.num_rows], ranks[table.num_rows :]


def _flat(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
