"""Rewrite of file indexes: live data files get the indexes that the options name; no data file is rewritten.

An index is built when a data file is written. Files from before a change of `file-index.<kind>.columns` lack the new
index until a compaction rewrites these files. This action reads only the indexed columns, and commits the same files
with new indexes.

Source: ``RewriteFileIndexProcedure`` and ``FileIndexProcessor`` of Paimon.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.commit import CommitMessage, Committer
from lsm_core.commit.attempt import is_unknown, remove
from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.files.index_writer import SUFFIX, IndexedColumn, IndexWriter, indexed_columns
from lsm_core.files.reader import open_append
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, table_to_entries
from lsm_core.format.partitions import partition_names
from lsm_core.maintenance.action import (
    NO_SUCH_PARTITION,
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PartitionItem,
    PlanEstimate,
    bucket_name,
    size_text,
)
from lsm_core.maintenance.deletions import may_delete
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import indexes_in
from lsm_core.metadata.manifests import tracks_rows
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.read.partition_choice import chosen_to_text, encode_chosen
from lsm_core.read.scan import usable_cores

_ACTION: Final = "rewrite_file_index"
_BYTES_PER_SECOND: Final = 60_000_000
"""File bytes whose indexed columns one core reads and indexes per second; only for forecasts."""
_NUMBERS: Final = 1 << 30
"""Bound of the random number in an index file's name; Java numbers them too, in 32 bits with a sign."""
_FILES_PER_COMMIT: Final = 1_000
"""Largest number of files in one commit, which bounds the memory of messages and the loss by a conflict."""


@dataclass(frozen=True)
class IndexFileItem(PartitionItem):
    """Data file whose indexes differ from the indexes that the table's options name.

    Attributes:
        bucket: number of the bucket.
        name: name of the file.
        level: level of the file.
        rows: number of rows of the file.
        size: bytes of the file.
        missing: indexes to build, as "kind(column)".
        surplus: indexes to drop because no option names them, as "kind(column)".
    """

    item_kind: ClassVar[str] = "index-file"
    title: ClassVar[str] = "would index"
    columns: ClassVar[tuple[str, ...]] = ("bucket", "file", "level", "rows", "bytes", "missing", "surplus")

    bucket: int
    name: str
    level: int
    rows: int
    size: int
    missing: str
    surplus: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: bucket, file, level, rows, bytes, and the changed indexes."""
        place = bucket_name(self.partition_text, self.bucket)
        return (place, self.name, self.level, self.rows, self.size, self.missing or "-", self.surplus or "-")


@dataclass(frozen=True)
class FileIndexReport(CommitReport):
    """Report of rewriting file indexes.

    Attributes:
        files: number of data files with new indexes.
        rows: number of rows in these files.
        side_files: number of index files written beside data files; other indexes are in manifest entries.
        partitions: number of partitions with these files.
        commits: number of snapshots.
    """

    files: int = 0
    rows: int = 0
    side_files: int = 0
    partitions: int = 0
    commits: int = 0

    def lines(self, table: str) -> list[str]:
        """Return one line with the numbers of files, rows and index files."""
        if self.snapshot_id is None:
            return [f"no file index of {table} was written"]
        return [
            (
                f"snapshot {self.snapshot_id}: the indexes of {self.files} files of {table} were written "
                f"({self.rows:,} rows, {self.side_files} index files, {self.partitions} partitions)"
            )
        ]


def plan_file_indexes(
    store: TableStore,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    where: str | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan to write the indexes that `file-index.<kind>.columns` name for files that lack them.

    Metadata and the heads of index files are read. The memory needed is that of one manifest, the DELETE entries and
    the planned files. Files whose indexed columns were renamed or got another type since they were written are
    declined: a compaction rewrites them with indexes.

    Args:
        store: the table.
        partitions: partitions to index (typed values, None = null), None for all.
        where: condition on partition columns, in place of ``partitions``.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: the options name no index, or a column that cannot have the index.
        InvalidFilter: a partition or the condition does not fit the table.
        UnsupportedFeature: the table cannot be written.
        CorruptFile: metadata cannot be read.
    """
    _require_able(store)
    columns = _require_indexes(store)
    chosen = encode_chosen(store, partitions, where)
    snapshot = snapshots.latest(store)
    arguments = {"partitions": chosen_to_text(chosen)}
    plan = MaintenancePlan.begin(_ACTION, store, None if snapshot is None else snapshot.id, arguments, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    items: list[IndexFileItem] = []
    declined: Counter[str] = Counter()
    indexed = 0
    for entries in manifests.iter_live(store, snapshot):
        if chosen is not None and store.schema.partition_keys:
            entries = entries.filter(pc.is_in(entries.column("partition"), arrow_array(chosen, pa.binary())))
        for entry in table_to_entries(entries):  # one object per file of one manifest
            wanted, changed = _wanted_indexes(store, columns, entry.file.schema_id)
            if changed:
                declined[changed] += 1
                continue
            present = indexes_in(store, entry.partition, entry.bucket, entry.file)
            if present == wanted:
                indexed += 1
                continue
            (text,) = partition_names(store.schema, [entry.partition], store.options)
            items.append(
                IndexFileItem(
                    entry.partition,
                    text,
                    entry.bucket,
                    entry.file.file_name,
                    entry.file.level,
                    entry.file.row_count,
                    entry.file.file_size,
                    _index_text(wanted - present),
                    _index_text(present - wanted),
                )
            )
    items.sort(key=lambda item: (item.partition_text, item.bucket, item.name))
    reasons = [Declined(f"{count} files", "definition", reason, {"files": count}) for reason, count in declined.items()]
    if indexed:
        text = f"{indexed} files have the indexes that the options name"
        reasons.append(Declined(f"{indexed} files", "indexed", text, {"files": indexed}))
    if not items and not reasons:
        reasons.append(Declined("table", "empty", "the table has no file") if chosen is None else NO_SUCH_PARTITION)
    size = sum(item.size for item in items)
    estimate = PlanEstimate(
        bytes_in=size,
        rows_in=sum(item.rows for item in items),
        files_in=len(items),
        tasks=len(items),
        seconds=round(size / _BYTES_PER_SECOND, 2),
    )
    return replace(plan, items=tuple(items), declined=tuple(reasons), estimate=estimate)


def _require_able(store: TableStore) -> None:
    """Check that the table can be written and tracks no rows. Raises UnsupportedFeature."""
    require_writable(store)
    if tracks_rows(store):
        raise UnsupportedFeature(
            "rewriting file indexes with row tracking: the rows would get new sequence numbers. "
            "A full compaction writes the indexes",
            store.name,
        )


def _require_indexes(store: TableStore) -> tuple[IndexedColumn, ...]:
    columns = indexed_columns(store.schema, store.options)
    if not columns:
        accepted = "columns to index; set it with ALTER TABLE first (also bitmap, bsi, range-bitmap)"
        raise InvalidOption("file-index.bloom-filter.columns", None, accepted, store.name)
    return columns


def _wanted_indexes(
    store: TableStore, columns: Sequence[IndexedColumn], schema_id: int
) -> tuple[frozenset[tuple[str, str]], str]:
    """Return the (column, index type) pairs that a file needs, and why its columns cannot be indexed ("" if they can).

    Args:
        store: the table.
        columns: the indexes that the options name.
        schema_id: id of the schema that the file was written with; columns that it lacks need no index.
    """
    if schema_id == store.schema.id:
        return frozenset((column.name, column.kind) for column in columns), ""
    written = {field.id: field for field in store.schema_of(schema_id).fields}
    needed = set()
    for column in columns:
        now = store.schema.field(column.column)
        then = written.get(now.id)
        if then is None:
            continue
        if then.name != now.name or then.type.with_nullable(nullable=True) != now.type.with_nullable(nullable=True):
            return frozenset(), (
                f"column '{now.name}' was '{then.name}' of type {then.type} when they were written; "
                "a full compaction indexes them"
            )
        needed.add((column.name, column.kind))
    return frozenset(needed), ""


def _index_text(indexes: frozenset[tuple[str, str]]) -> str:
    return ", ".join(f"{kind}({column})" for column, kind in sorted(indexes))


def apply_file_indexes(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Read the indexed columns of the planned files, and commit the files with their new indexes.

    Files that left the table, or whose indexes changed after planning, are skipped. There is a COMPACT snapshot for
    each 1,000 files; earlier snapshots remain if a later one fails.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a FileIndexReport.

    Raises:
        InvalidOption: the options name no index any more.
        CommitConflict, CommitUnknown: a commit failed.
        CorruptFile: a data file is damaged or missing.
    """
    items = plan.items_of(IndexFileItem)
    report = FileIndexReport(None, plan.base_snapshot, plan.hash, declined=plan.declined)
    if not items:
        return ApplyOutcome(report)
    _require_able(store)
    columns = _require_indexes(store)
    lines: list[dict[str, Any]] = []
    partitions: set[bytes] = set()
    skipped: list[Declined] = []
    for start in range(0, len(items), _FILES_PER_COMMIT):
        messages, unchanged = _index_files(store, columns, items[start : start + _FILES_PER_COMMIT])
        skipped += unchanged
        files = [file for message in messages for file in message.compact_after]
        try:
            committed = Committer(store).commit(messages, properties={PLAN_PROPERTY: plan.hash})
        except BaseException as error:
            if not is_unknown(error):
                remove(store.file_io, _side_paths(store, messages))
            raise
        if committed.snapshot_id is None:
            continue
        partitions.update(message.partition for message in messages)
        lines += [{"event": "indexed", "file": file.file_name, "rows": file.row_count} for file in files]
        report = replace(
            report,
            snapshot_id=committed.snapshot_id,
            files=report.files + len(files),
            rows=report.rows + sum(file.row_count for file in files),
            side_files=report.side_files + sum(file.embedded_index is None for file in files),
            partitions=len(partitions),
            commits=report.commits + 1,
        )
    return ApplyOutcome(replace(report, declined=(*plan.declined, *skipped)), lines)


def _index_files(
    store: TableStore, columns: Sequence[IndexedColumn], items: Sequence[IndexFileItem]
) -> tuple[list[CommitMessage], list[Declined]]:
    """Write the indexes ``columns`` for the planned files, several files at a time.

    Returns:
        One commit message for each bucket, and the files that were skipped because they left the table or changed.
    """
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return [], [_skip(item) for item in items]
    live = manifests.live_entries(store, snapshot, partitions=sorted({item.partition for item in items}))
    live = live.filter(pc.is_in(live.column("file_name"), arrow_array([item.name for item in items], pa.string())))
    entries = {(entry.partition, entry.bucket, entry.file.file_name): entry for entry in table_to_entries(live)}
    tasks = []
    skipped = []
    for item in items:
        entry = entries.get((item.partition, item.bucket, item.name))
        if entry is None:
            skipped.append(_skip(item))
            continue
        wanted, changed = _wanted_indexes(store, columns, entry.file.schema_id)
        present = indexes_in(store, entry.partition, entry.bucket, entry.file)
        if changed or present == wanted:
            skipped.append(_skip(item))
            continue
        if not may_delete(store, entry.file.external_path):
            text = "it is in an external path that the operator does not allow for writing (DREDGE_EXTERNAL_ROOTS)"
            skipped.append(Declined(str(entry.file.external_path), "outside", text))
            continue
        tasks.append((entry, [column for column in columns if (column.name, column.kind) in wanted], present))
    futures: list[tuple[ManifestEntry, Future[DataFileMeta | None]]] = []
    try:
        with ThreadPoolExecutor(usable_cores()) as threads:
            futures += [(task[0], threads.submit(_index_file, store, *task)) for task in tasks]
            pairs = [(entry, future.result()) for entry, future in futures]
    except BaseException:
        done = [(entry, future.result()) for entry, future in futures if not future.exception()]
        written = [(entry, file) for entry, file in done if file is not None]
        remove(store.file_io, _side_paths(store, _messages(written)))
        raise
    skipped += [
        Declined(
            f"{store.data_path(entry.partition, entry.bucket, entry.file)}",
            "values",
            "its values cannot have the index that the options name",
        )
        for entry, file in pairs
        if file is None
    ]
    return _messages([(entry, file) for entry, file in pairs if file is not None]), skipped


def _skip(item: IndexFileItem) -> Declined:
    text = "it left the table, or its indexes changed, after planning"
    return Declined(f"{bucket_name(item.partition_text, item.bucket)}/{item.name}", "stale", text)


def _index_file(
    store: TableStore, entry: ManifestEntry, columns: Sequence[IndexedColumn], present: frozenset[tuple[str, str]]
) -> DataFileMeta | None:
    """Return the metadata of a data file with new indexes; a large index is written beside the data file.

    The name of the index file is new, because older snapshots may reference an index file with the usual name.

    Args:
        store: the table.
        entry: manifest entry of the data file.
        columns: the indexes to build.
        present: (column, index type) pairs of the file's current indexes.

    Returns:
        None if only the current indexes could be built, for example because a bit-sliced index does not take decimals
            of more than 64 bits.
    """
    file: DataFileMeta = entry.file
    bare = replace(
        file,
        embedded_index=None,
        extra_files=tuple(name for name in file.extra_files if not name.endswith(SUFFIX)),
    )
    writer = IndexWriter(store, tuple(columns))
    names = list(dict.fromkeys(column.column for column in columns))
    for batch in open_append(store, entry.partition, entry.bucket, file, columns=names) if columns else ():
        writer.add(pa.Table.from_batches([batch]))
    path = store.data_path(entry.partition, entry.bucket, file.file_name, file.external_path)
    # Java's scan leaves out a file that is added again with the index, or without, that it had before. A side file with
    # a new name makes the entry a new one; it names no column if no index is left.
    replaces = file != bare
    indexed = writer.finish(path, bare, suffix := f"-{secrets.randbelow(_NUMBERS)}{SUFFIX}", beside=replaces)
    if writer.built != present:
        return indexed
    remove(store.file_io, [path + suffix] if indexed.extra_files != bare.extra_files else [])
    return None


def _messages(pairs: Sequence[tuple[ManifestEntry, DataFileMeta]]) -> list[CommitMessage]:
    """Return a commit message for each bucket; each pair is a file's manifest entry and its new metadata."""
    place = attrgetter("partition", "bucket", "total_buckets")
    ordered = sorted(pairs, key=lambda pair: place(pair[0]))
    return [
        CommitMessage(
            *key,
            compact_before=tuple(entry.file for entry, _ in group),
            compact_after=tuple(file for _, file in group),
        )
        for key, group in ((key, list(part)) for key, part in groupby(ordered, key=lambda pair: place(pair[0])))
    ]


def _side_paths(store: TableStore, messages: Sequence[CommitMessage]) -> list[str]:
    """Return the paths of the index files that commit messages add beside their data files."""

    def paths(message: CommitMessage) -> Iterator[str]:
        for before, after in zip(message.compact_before, message.compact_after, strict=True):
            for name in set(after.extra_files) - set(before.extra_files):
                yield store.data_path(message.partition, message.bucket, name, after.external_path)

    return [path for message in messages for path in paths(message)]


WORK: Final = ActionWork(
    plan_file_indexes,
    apply_file_indexes,
    FileIndexReport,
    (IndexFileItem,),
    commits=True,
    remarks=lambda plan: [f"only the indexed columns of {size_text(plan.estimate.bytes_in)} of files are read"],
)
