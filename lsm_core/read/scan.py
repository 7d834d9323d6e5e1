"""Plan of a read and its execution: snapshot, pruned entries, splits, then batches of rows.

Files whose rows need no merging are read without the merge step. Several splits are read at once on threads. Their
rows are returned in the order of the splits, and the batches in memory are bounded. Decoding and merging release
Python's global interpreter lock, so threads scale. Processes would have to copy every batch.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, as_dictionaries, distinct, numpy_array, plain
from lsm_core.errors import ColumnNotFound, InvalidFilter
from lsm_core.format.partitions import partition_bytes
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import branches, manifests
from lsm_core.metadata.indexes import deletion_vectors, require_in_place
from lsm_core.metadata.live_files import compacted_only, has_unmarked_levels
from lsm_core.metadata.manifests import evolves, live_entries, stores_row_ids, tracks_rows, with_row_ids
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import require_allowed_places, require_readable, require_sorted_keys
from lsm_core.options import whole_number
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.lone_parts import read_by_parts
from lsm_core.read.merge_read import read_unmerged
from lsm_core.read.predicate import Predicate, parse_filter
from lsm_core.read.prune import (
    combinations,
    manifest_chooser,
    prune_buckets,
    prune_files,
    prune_partitions,
)
from lsm_core.read.raw_read import read_raw_file
from lsm_core.read.split_ranges import cut_for_workers
from lsm_core.read.splits import Split, bucket_numbers, cut, row_id_groups
from lsm_core.read.table_versions import Version, naming_lost_version, require_same_columns, resolve

Batches = Generator[pa.RecordBatch, None, None]
Job = Callable[[], Batches]
_AHEAD: Final = 4
"""Jobs per worker that may run ahead of the job whose batches are being returned."""


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on this system
        return os.cpu_count() or 1


def in_order(jobs: Sequence[Job], workers: int, most_bytes: int | None) -> Batches:
    """Yield the batches of ``jobs``, one job after the other, while up to ``workers`` of them run.

    Up to about ``most_bytes`` of batches wait to be returned. In addition, the current job may have one waiting batch,
    so that it always makes progress, and each worker one batch. An error of a job is raised after the batches of
    earlier jobs. Closing the generator stops all workers and waits for their end.

    Args:
        jobs: functions that return batches.
        workers: number of threads; less than 2 runs the jobs on the caller's thread.
        most_bytes: bytes of batches that may wait; None for no bound.
    """
    if workers < 2 or len(jobs) < 2:
        for job in jobs:
            with closing(job()) as batches:
                yield from batches
        return
    reading = _Reading(jobs, min(workers, len(jobs)), most_bytes)
    try:
        for number in range(len(jobs)):
            yield from reading.of(number)
    finally:
        reading.stop()


@dataclass(eq=False)
class _Lane:
    """Batches of one job that wait to be returned, in order, and the end of the job.

    Attributes:
        batches: batches that were read and not yet returned, oldest first.
        done: whether the job has ended.
        error: error that ended the job, or None.
    """

    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    done: bool = False
    error: BaseException | None = None


class _Reading:
    """Jobs that threads read ahead, while the caller takes their batches job by job, in order.

    All shared state is guarded by ``_changed``.
    """

    def __init__(self, jobs: Sequence[Job], workers: int, most_bytes: int | None) -> None:
        self._jobs, self._most, self._ahead = jobs, most_bytes, _AHEAD * workers
        self._changed = threading.Condition()
        self._lanes: dict[int, _Lane] = {}
        self._head = self._next = self._held = 0
        self._stopped = False
        names = [f"dredge-read-{number}" for number in range(workers)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def of(self, number: int) -> Batches:
        """Yield the batches of the job with this number; jobs are read in order.

        An error of the job is raised after its last batch.
        """
        with self._changed:
            self._head = number
            self._changed.notify_all()
        while (batch := self._take(number)) is not None:
            yield batch
        lane = self._lanes.pop(number)
        if lane.error is not None:
            raise lane.error

    def stop(self) -> None:
        """Stop all workers and wait for them."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._lanes.clear()

    def _take(self, number: int) -> pa.RecordBatch | None:
        """Wait for the next batch of the job with this number and return it, or None at the end of the job."""
        with self._changed:
            while True:
                lane = self._lanes.get(number)
                if lane is not None and lane.batches:
                    batch = lane.batches.popleft()
                    self._held -= batch.nbytes
                    self._changed.notify_all()
                    return batch
                if lane is not None and lane.done:
                    return None
                self._changed.wait()

    def _work(self) -> None:
        while (number := self._begin()) is not None:
            lane = self._lanes[number]
            try:
                with closing(self._jobs[number]()) as batches:
                    for batch in batches:
                        if not self._put(number, lane, batch):
                            return
            except BaseException as error:  # noqa: BLE001 - every error is raised again in the reader
                lane.error = error
            finally:
                with self._changed:
                    lane.done = True
                    self._changed.notify_all()

    def _begin(self) -> int | None:
        """Return the number of the next job to start, or None when all jobs have started."""
        with self._changed:
            while not self._stopped and self._head + self._ahead <= self._next < len(self._jobs):
                self._changed.wait()
            if self._stopped or self._next >= len(self._jobs):
                return None
            number, self._next = self._next, self._next + 1
            self._lanes[number] = _Lane()
            return number

    def _put(self, number: int, lane: _Lane, batch: pa.RecordBatch) -> bool:
        """Append a batch to the batches of its job, after waiting until the memory of all waiting batches allows it.

        Args:
            number: number of the job.
            lane: waiting batches of the job.
            batch: batch of rows to append.

        Returns:
            False if the reading was stopped, so that the batch was not appended.
        """
        with self._changed:
            # The current job continues while none of its own batches waits, however much the others hold.
            while (
                not self._stopped
                and (self._most is not None and self._held >= self._most)
                and (number != self._head or lane.batches)
            ):
                self._changed.wait()
            if self._stopped:
                return False
            lane.batches.append(batch)
            self._held += batch.nbytes
            self._changed.notify_all()
            return True


def read_raw(
    store: TableStore,
    split: Split,
    *,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    dictionaries: Sequence[str] = (),
) -> Generator[pa.RecordBatch, None, None]:
    """Yield value columns of the files of a raw split, one file after the other.

    A raw split has append files, or key-value files without deletes. Rows that a deletion vector marks are left out,
    and also rows that a file index excludes for ``predicate``. A file without remaining rows is not opened.

    Args:
        store: the table.
        split: split whose files need no merge.
        columns: columns to return, in this order.
        predicate: filter for file indexes only, or None; the caller must still filter the rows.
        dictionaries: text columns to return as Arrow dictionaries of int32 if their values repeat in a file.

    Raises:
        CorruptFile: a file is missing, damaged or differs from its manifest entry; the error names it.
    """
    place = split.partition, split.bucket
    for file, vector in zip(split.files, split.deletions, strict=True):
        yield from read_raw_file(
            store, place, file, vector, columns=columns, predicate=predicate, dictionaries=dictionaries
        )


@dataclass(frozen=True)
class Scan:
    """Planned read.

    Attributes:
        snapshot: the version; None for an empty table.
        splits: the splits to read.
        store: the table with the schema that the version is read with.
        columns: columns to return, in output order.
        filter: filter on merged rows; None for all rows.
        dictionaries: whether text columns are returned as Arrow dictionaries of int32; each batch has its own
            dictionary.
        read_tag: tag that keeps the snapshot during the read, or None.
    """

    snapshot: Snapshot | None
    splits: tuple[Split, ...]
    store: TableStore
    columns: tuple[str, ...]
    filter: Predicate | None
    dictionaries: bool = False
    read_tag: str | None = None

    @property
    def schema(self) -> TableSchema:
        """The schema that the version is read with."""
        return self.store.schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """Schema of the batches that the scan returns."""
        return _output_schema(self.schema, self.columns, self.dictionaries)


def plan_scan(
    store: TableStore,
    *,
    snapshot_id: int | None = None,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002 - the public API calls it so
    partitions: Sequence[Mapping[str, Any]] | None = None,
    levels: Collection[int] | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    watermark: int | None = None,
    limit: int | None = None,
    dictionaries: bool = False,
) -> Scan:
    """Plan a read of one version; reads metadata only.

    Tables with row tracking also return `_ROW_ID` and `_SEQUENCE_NUMBER` if ``columns`` or ``filter`` names these
    columns.

    Args:
        store: the table.
        snapshot_id: id of the snapshot to read, with the schema of that snapshot.
        columns: columns to return, in this order; None for all.
        filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for all.
        partitions: partitions to read, or-ed: values of all or some of the partition columns; None for all.
        levels: levels of the files to read; None for all.
        tag: tag to read.
        timestamp_ms: read the newest snapshot at or before this time (epoch ms).
        watermark: read the oldest snapshot that has reached this watermark (ms).
        limit: number of rows that the caller will read. Without a filter, only the first splits that together contain
            this many rows are planned, if they need no merging.
        dictionaries: whether text columns are returned as Arrow dictionaries of int32.

    Raises:
        TableNotFound: the table was dropped, renamed or replaced since it was opened.
        UnsupportedFeature: the table or an option is not supported.
        SnapshotNotFound: the version does not exist, or expired during the call.
        ColumnNotFound: a column does not exist.
        InvalidFilter: the filter is not understood.
        InvalidOption: arguments or options contradict each other.
        CorruptFile: a metadata file is missing or damaged.
        InvalidSchema: a column was dropped and added again since the table was opened.
    """
    with store.naming_lost_table():
        version = resolve(store, snapshot_id, tag=tag, timestamp_ms=timestamp_ms, watermark=watermark)
        with naming_lost_version(version.store, version.snapshot):
            return plan_version(
                version,
                columns=columns,
                filter=filter,
                partitions=partitions,
                levels=levels,
                limit=limit,
                dictionaries=dictionaries,
            )


def plan_version(
    version: Version,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002 - the public API calls it so
    partitions: Sequence[Mapping[str, Any]] | None = None,
    levels: Collection[int] | None = None,
    level_0: bool | None = None,
    limit: int | None = None,
    dictionaries: bool = False,
) -> Scan:
    """Plan a read of a version that was resolved before; reads metadata only.

    Args:
        version: snapshot with the schema and options to read it with.
        columns: columns to return, in this order; None for all.
        filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for all.
        partitions: partitions to read, or-ed: values of all or some of the partition columns; None for all.
        levels: levels of the files to read; None for all.
        level_0: whether files that wait for a compaction are read; None for the table's default.
        limit: number of rows that the caller will read; None for all.
        dictionaries: whether text columns are returned as Arrow dictionaries of int32.
    """
    store, snapshot = version.store, version.snapshot
    if tracks_rows(store):
        with_ids = with_row_ids(store)
        predicate_with_ids = parse_filter(filter, with_ids.schema, store.name)
        columns = store.schema.field_names if columns is None else columns
        if {*columns, *(() if predicate_with_ids is None else predicate_with_ids.columns)}.intersection(
            manifests.COLUMNS
        ):
            store = with_ids
    schema = store.schema
    chosen = chosen_columns(store, columns)
    predicate = parse_filter(filter, schema, store.name)
    positions = predicate is not None and predicate.by_position
    used_columns = (*chosen, *(() if predicate is None else predicate.columns))
    require_readable(version.store, snapshot, None if positions else used_columns)
    partitions_chosen, chooser = _partitions(store, partitions)
    if snapshot is None:
        return Scan(None, (), store, chosen, predicate, dictionaries)
    if partitions_chosen is None:
        partitions_chosen = _exact_partitions(schema, predicate)
    keyed = bool(schema.primary_keys)
    hidden = keyed and (compacted_only(store) if level_0 is None else not level_0)
    if keyed and not hidden:
        require_sorted_keys(store, "reading files that wait for a compaction")
    entries = live_entries(
        store,
        snapshot,
        partitions=partitions_chosen,
        levels=levels,
        choose=manifest_chooser(schema, chooser, predicate),
        keep=partial(visible, store, hidden),
    )
    existing_columns = [name for name in used_columns if schema.has_field(name)]
    require_allowed_places(store, entries)
    require_same_columns(store, pc.unique(entries.column("schema_id")).to_pylist(), existing_columns)
    entries = _created_since(store, entries)
    entries = prune_partitions(schema, prune_partitions(schema, entries, chooser), predicate)
    entries = prune_buckets(schema, entries, predicate, store.options.bucket_function)
    disjoint = keyed and hidden and compacted_only(store) and not has_unmarked_levels(store, entries)
    entries = (
        _prune_evolved(store, entries, predicate)
        if evolves(store)
        else prune_files(store, entries, predicate, disjoint=disjoint)
    )
    deletions = deletion_vectors(store, snapshot, partitions_chosen)
    require_in_place(store, snapshot, entries)
    splits = cut(store, entries, deletions, disjoint=disjoint)
    if limit is not None and predicate is None:
        splits = _first_splits(splits, whole_number(limit, "limit", store.name, least=0), deletions.keys())
    return Scan(snapshot, splits, store, chosen, predicate, dictionaries)


def _prune_evolved(store: TableStore, entries: pa.Table, predicate: Predicate | None) -> pa.Table:
    """Return the files of a data-evolution table that a filter needs.

    Statistics can exclude a file only if no other file has the same row ids, and if the file has all columns.
    """
    if predicate is None or not entries.num_rows:
        return entries
    order, starts = row_id_groups(store, entries, bucket_numbers(entries))
    sizes = np.diff(np.r_[starts, entries.num_rows])
    alone = np.zeros(entries.num_rows, np.bool_)
    alone[order] = np.repeat(sizes == 1, sizes)
    alone &= numpy_array(pc.is_null(entries.column("write_cols")))
    pruned = prune_files(store, entries.filter(arrow_array(alone)), predicate)
    return pa.concat_tables([entries.filter(arrow_array(~alone)), pruned])


def _first_splits(
    splits: tuple[Split, ...], limit: int, with_deletions: Collection[tuple[bytes, int]]
) -> tuple[Split, ...]:
    """Return the first raw splits without deleted rows that together hold ``limit`` rows, or all splits.

    Args:
        splits: the splits of a scan.
        limit: number of rows that the caller will read.
        with_deletions: partition and bucket of the splits with deletion vectors.

    Source: ``DataTableBatchScan`` (limit push-down).
    """
    chosen: list[Split] = []
    rows = 0
    for split in splits:
        if rows >= limit:
            break
        if split.raw and (split.partition, split.bucket) not in with_deletions:
            chosen.append(split)
            rows += split.row_count
    return tuple(chosen) if rows >= limit else splits


def _created_since(store: TableStore, entries: pa.Table) -> pa.Table:
    """Return the files created at `scan.file-creation-time-millis` or later, if set.

    Files without a creation time are kept.
    """
    since = store.options.get("scan.file-creation-time-millis")
    if since is None:
        return entries
    young = pc.greater_equal(entries.column("creation_time_ms"), arrow_scalar(int(since)))
    return entries.filter(pc.fill_null(young, arrow_scalar(value=True)))


def visible(store: TableStore, compacted: bool, entries: pa.Table) -> pa.Table:
    """Return the entries that batch reads see: no files of postponed rows, and no level-0 files if ``compacted``."""
    if not store.schema.primary_keys:
        return entries
    if compacted:
        entries = entries.filter(pc.greater(entries.column("level"), arrow_scalar(0)))
    if store.options.bucket == POSTPONE_BUCKET:
        entries = entries.filter(pc.greater_equal(entries.column("bucket"), arrow_scalar(0)))
    return entries


def to_batches(
    store: TableStore, scan: Scan, splits: Sequence[Split] | None = None, *, limit: int | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Run a scan in bounded memory.

    Splits are read on `dredge.read.threads` threads (with a limit: on the caller's thread) and returned in order.

    Args:
        store: the table, for errors.
        scan: planned read of a table version.
        splits: splits to read; None for all of the scan.
        limit: largest number of rows; None for all.

    Returns:
        Batches of `scan.arrow_schema`.

    Raises:
        InvalidOption: ``limit`` is not a whole number of at least 0; raised by the call, before the first batch.
        TableNotFound: a file is missing, because the table was dropped, renamed or replaced.
        SnapshotNotFound: a file is missing, because the version expired or was rolled back.
    """
    max_rows = None if limit is None else whole_number(limit, "limit", store.name, least=0)
    chosen = scan.splits if splits is None else splits
    return _naming_losses(
        scan,
        _read_all(scan, chosen, scan.store.options.merge_budget)
        if max_rows is None
        else _read_up_to(scan, chosen, max_rows),
    )


def _naming_losses(scan: Scan, batches: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
    """Yield ``batches``; for a missing file raise TableNotFound or SnapshotNotFound if table or version is lost."""
    with scan.store.naming_lost_table(), naming_lost_version(scan.store, scan.snapshot), closing(batches):
        yield from batches


def _read_all(scan: Scan, splits: Sequence[Split], most_bytes: int | None) -> Generator[pa.RecordBatch, None, None]:
    """Return all rows of ``splits``, read on `dredge.read.threads` threads.

    At most ``most_bytes`` of batches wait to be returned; None for no bound.
    """
    threads = scan.store.options.read_threads or usable_cores()
    splits = cut_for_workers(scan.store, splits, threads)
    workers = min(threads, max(1, len(splits)))
    budget = scan.store.options.merge_budget // workers
    coded = {"dictionaries": True} if scan.dictionaries else {}
    jobs = [
        partial(read_split, scan.store, split, scan.columns, scan.filter, budget=budget, **coded) for split in splits
    ]
    return in_order(jobs, workers, most_bytes)


def _read_up_to(scan: Scan, splits: Sequence[Split], remaining: int) -> Generator[pa.RecordBatch, None, None]:
    """Yield the first ``remaining`` rows of ``splits``, read on the caller's thread."""
    for split in splits:
        if remaining <= 0:
            return
        rows = read_split(scan.store, split, scan.columns, scan.filter, dictionaries=scan.dictionaries)
        with closing(rows) as batches:
            for batch in batches:
                if batch.num_rows >= remaining:
                    yield batch.slice(0, remaining)
                    return
                remaining -= batch.num_rows
                yield batch


def to_arrow(store: TableStore, scan: Scan, *, limit: int | None = None) -> pa.Table:
    """Return all rows of a scan as one table of `scan.arrow_schema`.

    Args:
        store: the table, for errors.
        scan: planned read of a table version.
        limit: largest number of rows; None for all.
    """
    # All batches are held at the end anyway, so waiting batches need no bound.
    batches = _read_all(scan, scan.splits, None) if limit is None else to_batches(store, scan, limit=limit)
    return pa.Table.from_batches(list(batches), scan.arrow_schema)


def read_split(
    store: TableStore,
    split: Split,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    *,
    budget: int | None = None,
    dictionaries: bool = False,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the merged and filtered rows of one split.

    Args:
        store: the table of the scan.
        split: files of one bucket that are read together.
        columns: columns to return, in this order.
        predicate: filter on merged rows; None for all rows.
        budget: decoded bytes of rows that the merge may hold at once; None for option `dredge.merge-budget`.
        dictionaries: whether text columns are returned as Arrow dictionaries of int32.
    """
    needed = list(columns)
    filter_columns = () if predicate is None else predicate.columns
    texts = [name for name in columns if name not in filter_columns]
    if predicate is not None:
        needed += [name for name in predicate.columns if name not in needed]
        if predicate.by_position:
            needed = list(store.schema.field_names)
    target = _output_schema(store.schema, columns, dictionaries)
    store = store_of_split(store, split)
    resolves_descriptors = False
    if evolves(store):
        from lsm_core.read.evolution import descriptor_columns  # imported here: most tables have no such columns

        resolves_descriptors = bool(descriptor_columns(store, needed))
    if split.raw and not resolves_descriptors:
        source = read_raw(store, split, columns=needed, predicate=predicate, dictionaries=texts)
    elif store.options.clusters_keys:
        source = read_unmerged(store, (split.partition, split.bucket), split.files, split.vectors, needed)
    elif not store.has_primary_key:
        from lsm_core.read.evolution import read_evolved  # imported here: merges on read do not need it

        source = read_evolved(store, (split.partition, split.bucket), split.files, split.vectors, needed, resolve=True)
    else:
        source = read_by_parts(
            store,
            (split.partition, split.bucket),
            columns=needed,
            sections=split.sections,
            deletions=split.vectors,
            budget=budget,
            dictionaries=texts,
            predicate=predicate,
            within=None if split.within is None else KeyBounds(store, split.within),
        )
    with closing(source) as batches:
        for batch in batches:
            kept = batch if predicate is None else predicate.apply(batch)
            if kept.num_rows:
                yield as_schema(kept, target)


def store_of_split(store: TableStore, split: Split) -> TableStore:
    """Return the table on the branch whose files the split has, with the schema for these files."""
    if split.origin is None:
        return store
    branch, schema_id = split.origin
    key = ("branch of a split", branch, schema_id, stores_row_ids(store.schema))
    other: TableStore | None = store.kept.get(key)
    if other is None:
        title = branches.branch_name(store.name, branch)
        options = {key: value for key, value in store.given_options.items() if key != "bucket"}
        other = TableStore.open(store.file_io, store.root, title, store.clock, options, branch, schema_id)
        other = with_row_ids(other.in_catalog_of(store)) if stores_row_ids(store.schema) else other.in_catalog_of(store)
        store.kept.put(key, other, 1 << 12)
    return other


def _output_schema(schema: TableSchema, columns: Sequence[str], dictionaries: bool) -> pa.Schema:
    fields = pa.schema([schema.arrow_schema.field(name) for name in columns])
    return as_dictionaries(fields, columns) if dictionaries else fields


def as_schema(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with the columns and types of ``target``; text becomes a dictionary if ``target`` says so.

    ``target`` is a schema of the table. The schema of a batch from a file additionally contains field ids.
    """
    if not len(target):
        return batch.select([])
    columns = []
    for target_field in target:
        column = batch.column(target_field.name)
        if not pa.types.is_dictionary(target_field.type):
            columns.append(plain(column))
        else:
            columns.append(distinct(column) if pa.types.is_dictionary(column.type) else column.dictionary_encode())
    return pa.RecordBatch.from_arrays(columns, schema=target)


def chosen_columns(store: TableStore, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the chosen columns.

    Args:
        store: the table.
        columns: names of the columns; None for all.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidFilter: a column is chosen twice, or ``columns`` is a text instead of a list.
    """
    field_names = store.schema.field_names
    if isinstance(columns, str):
        raise InvalidFilter(f"table {store.name}: columns must be a list of names, not the text {columns!r}")
    for name in columns or ():
        if name not in field_names:
            raise ColumnNotFound(store.name, name, field_names)
    chosen = field_names if columns is None else tuple(columns)
    if len(set(chosen)) != len(chosen):
        raise InvalidFilter(f"table {store.name}: the selection has a column twice: {', '.join(chosen)}")
    return chosen


def _partitions(
    store: TableStore, partitions: Sequence[Mapping[str, Any]] | None
) -> tuple[list[bytes] | None, Predicate | None]:
    """Return the chosen partitions as (list of BinaryRow bytes, filter on partition columns); at most one is not None.

    The list is returned if all specifications give all partition columns. Both are None for all partitions.
    """
    if partitions is None:
        return None, None
    keys = store.schema.partition_keys
    for spec in partitions:
        for name in spec:
            if name not in keys:
                raise InvalidFilter(
                    f"table {store.name}: '{name}' is not a partition column; they are {', '.join(keys)}"
                )
    if all(set(spec) == set(keys) for spec in partitions):
        return [partition_bytes(store.schema, spec, store.name) for spec in partitions], None
    groups = [[(n, "is null") if v is None else (n, "=", v) for n, v in spec.items()] for spec in partitions]
    if any(not group for group in groups):
        return None, None
    return None, parse_filter(groups, store.schema, store.name)


def _exact_partitions(schema: TableSchema, predicate: Predicate | None) -> list[bytes] | None:
    """Return the partitions (BinaryRow bytes) that equality tests of a filter select, or None without such tests.

    With this list, manifests are pruned before they are read.
    """
    if predicate is None or not schema.partition_keys:
        return None
    columns = combinations(schema, predicate, schema.partition_keys)
    if columns is None:
        return None
    rows = pa.table(columns, names=list(schema.partition_keys)).to_pylist()
    return [partition_bytes(schema, row) for row in rows]
