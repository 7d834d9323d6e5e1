"""Rewrite of one group of files of a bucket: merged by key, or concatenated in an append table.

Rows read, written and dropped are counted, dropped rows by reason. For a table with a changelog producer, the changelog
files are written too; keys are looked up in the levels above the output to find the old rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

import numpy as np
import pyarrow as pa

from lsm_core.compact.append_splicing import append_parts
from lsm_core.compact.pipeline import ahead
from lsm_core.compact.row_digests import Content, OutputDigest
from lsm_core.compact.splice import SplicedGroup
from lsm_core.compact.splicing import Splices
from lsm_core.compact.task import SAMPLED, BucketTask, Witness
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.errors import VerificationFailed
from lsm_core.files import AppendFileWriter, KeyValueFileWriter, changelog_files_of, kv_read_schema
from lsm_core.files.row_group_copier import CopiedBytes
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND, key_name
from lsm_core.merge import ChangelogRules, NormalisedKeys
from lsm_core.merge.changelog import Against, LookUp
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.merge.keys import Ints
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.metadata.store import TableStore
from lsm_core.progress import advance
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.lookup import RowsAbove, SortedKeys
from lsm_core.read.merge_read import BucketMerge, BucketSource, Changes, Section, Shapes, sections_of
from lsm_core.read.prune import living_at
from lsm_core.tree import Levels
from lsm_core.tree.task import newest_is_all

_WANTED_ROW: Final = "row of the wanted key"
_SYSTEM: Final = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclass(frozen=True)
class ProducedChangelog:
    """Changelog files of a compaction.

    Attributes:
        files: the files.
        digests: digests of the rows that the changelog writer received.
        superseded: rows on levels above the output whose keys have newer versions in the output, as deletion vectors
            by file name.
    """

    files: tuple[DataFileMeta, ...]
    digests: OutputDigest
    superseded: Mapping[str, DeletionVector] = field(default_factory=dict)

    @property
    def content(self) -> Content:
        """Counts of the changelog rows: adds and retracts."""
        return self.digests.content


class ChangelogProducer:
    """Key lookup for one rewrite (or one upgrade), and writer of the changelog of this rewrite.

    Use this class in a ``with`` block: after a failure its changelog files are deleted.

    Source: ``ChangelogMergeTreeRewriter``.
    """

    def __init__(
        self,
        store: TableStore,
        task: BucketTask,
        files: Sequence[DataFileMeta],
        rules: ChangelogRules,
        shapes: Shapes,
        living: Living | None,
        witness: Witness | None = None,
        deletions: Mapping[str, DeletionFile] | None = None,
    ) -> None:
        """Find the files above the output level whose key ranges overlap the files to rewrite.

        Args:
            store: the table.
            task: the task.
            files: files to rewrite or upgrade.
            rules: rules of the table's changelog.
            shapes: cache of the key ranges of files.
            living: filter that drops expired rows; None without record-level expiry.
            witness: receives the looked-up rows and the changelog rows to verify them (V2); None to skip this.
            deletions: deletion vectors by file name.
        """
        tree, mine = shapes.of(task.files), shapes.of(files)
        low, high = min(file.min_key for file in mine), max(file.max_key for file in mine)
        above = [
            file
            for file, shape in zip(task.files, tree, strict=True)
            if file.level > task.output_level and shape.min_key <= high and low <= shape.max_key
        ]
        looks_up = rules.against is Against.HIGH_LEVELS and bool(above)
        # first-row only needs to know whether a key exists
        self._layout = kv_read_schema(store)
        target = pa.schema([]) if store.options.merge_engine == "first-row" else self._layout
        place = store, task.partition, task.bucket
        self._above = RowsAbove(*place, above, target, deletions=deletions) if looks_up else None
        self.above = tuple(above) if looks_up else ()
        self._writer = self._digest = None
        if rules.produces:
            self._writer = KeyValueFileWriter.of_changes(*place, task.total_buckets, level=task.output_level)
            self._digest = OutputDigest(changelog_files_of(store), task, task.output_level)
        self._living, self._witness = living, witness
        self._keeps_vectors = store.options.deletion_vectors_enabled
        self._superseded: dict[str, list[DeletionVector]] = {}
        look_up: LookUp | None = self._find if looks_up else None
        max_level = Levels(tree, store.options.num_levels).max_level
        self.changes = Changes(rules, max_level, look_up, self._write)

    def _find(self, keys: NormalisedKeys, columns: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        assert self._above is not None
        hits = self._above.find(SortedKeys(keys, columns))
        if not hits:
            return np.zeros(0, np.int64), columns.slice(0, 0)
        if self._keeps_vectors:
            for hit in hits:
                self._superseded.setdefault(hit.file.file_name, []).append(DeletionVector.of(hit.positions))
        lookup_rows = np.concatenate([hit.lookup_rows for hit in hits])
        order = np.argsort(lookup_rows)
        if not hits[0].rows.num_columns:
            if self._witness is not None:
                self._witness.add_looked_up(self._keys_alone(columns.take(pa.array(lookup_rows[order]))))
            return lookup_rows[order], hits[0].rows
        rows = pa.concat_batches([hit.rows for hit in hits]).take(pa.array(order))
        lookup_rows = lookup_rows[order]
        if self._living is not None:  # expired rows do not count
            kept = self._living(rows.append_column(_WANTED_ROW, pa.array(lookup_rows)))
            lookup_rows, rows = kept.column(_WANTED_ROW).to_numpy(), kept.select(rows.schema.names)
        if self._witness is not None:
            self._witness.add_looked_up(rows)
        return lookup_rows, rows

    @property
    def superseded(self) -> dict[str, DeletionVector]:
        """Rows above the output level that newer rows of the output replace, as deletion vectors by file name."""
        return {name: DeletionVector.union(parts) for name, parts in self._superseded.items()}

    def _keys_alone(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Return KV rows with the given keys; the other value columns are null, and the system columns are 0."""
        layout, count = self._layout, keys.num_rows
        columns = {name: pa.array(np.zeros(count, np.int64)).cast(layout.field(name).type) for name in _SYSTEM}
        for name in keys.schema.names:
            columns[key_name(name)] = columns[name] = keys.column(name)
        arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in layout]
        return pa.RecordBatch.from_arrays(arrays, layout.names)

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None or self._digest is None:
            return
        if self._witness is not None:
            self._witness.add_changes(batch)
        self._digest.add(batch)
        self._writer.write(batch)
        self._digest.written(self._writer.group_rows)

    def close(self) -> ProducedChangelog | None:
        """Finish the changelog files.

        Returns:
            The changelog, or None if the table writes none.

        Raises:
            StorageFull: the disk is full.
        """
        if self._above is not None:
            self._above.close()
        if self._writer is None or self._digest is None:
            return None
        files = self._writer.close()
        self._digest.finish(self._writer.group_rows)
        return ProducedChangelog(tuple(files), self._digest, self.superseded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._above is not None:
            self._above.close()
        if kind is not None and self._writer is not None:
            self._writer.abort()


def changelog_rules(
    store: TableStore, task: BucketTask, files: Sequence[DataFileMeta], max_level: int
) -> ChangelogRules | None:
    """Return the rules for lookups and changelog of a rewrite of ``files``, or None if the rewrite needs neither.

    Producer `lookup` compares the rows that leave level 0; `full-compaction` compares the rows that reach the top
    level.

    Args:
        store: the table.
        task: the task.
        files: files to rewrite.
        max_level: highest level of the bucket's LSM tree.

    Source: ``ChangelogMergeTreeRewriter``.
    """
    options = store.options
    if options.deletion_vectors_enabled and newest_is_all(options) and options.changelog_producer != "lookup":
        return None  # rows above are marked by vectors, and their values are not needed
    rules = ChangelogRules.of(store.schema, store.options)
    if rules is None or task.output_level == 0:
        return None
    if rules.against is Against.TOP_LEVEL:
        return rules if task.output_level == max_level else None
    return rules if any(file.level == 0 for file in files) else None


@dataclass(frozen=True)
class RewriteResult:
    """Result of a rewrite.

    Attributes:
        before: files read.
        after: files written.
        content: counts of the rows that the writer received; if ``digests`` or its ``groups`` is None, also one digest
            of all rows.
        dropped: number of rows that were left out, by reason.
        keys_folded: keys of which several versions became one new row.
        keys_one_by_one: number of the ``keys_folded`` whose versions an aggregate function combined one key at a time.
        digests: digests of the written rows by row group; None for one digest of all.
        rows_read: number of rows read (within the key range) by input file; None if not counted.
        changelog: changelog files of the rewrite, or None.
        above: files above the output level in which keys were looked up; their rows may be merged into the output.
        superseded: rows above the output level whose keys have newer versions in the output, as deletion vectors by
            file; None if no keys were looked up.
        row_ids: number of row ids of the input files (data evolution); None if every row is in one file.
        spliced: row groups that were copied without decoding.
        copied: spliced ranges of each new file, with the digests of their bytes in the input files.
        unseen: number of spliced rows by file, of input and new files, that the witness did not receive.
    """

    before: tuple[DataFileMeta, ...]
    after: tuple[DataFileMeta, ...]
    content: Content
    dropped: dict[str, int]
    keys_folded: int = 0
    keys_one_by_one: int = 0
    digests: OutputDigest | None = None
    rows_read: dict[str, int] | None = None
    changelog: ProducedChangelog | None = None
    above: tuple[DataFileMeta, ...] = ()
    superseded: Mapping[str, DeletionVector] | None = None
    row_ids: int | None = None
    spliced: tuple[SplicedGroup, ...] = ()
    copied: Mapping[str, Sequence[CopiedBytes]] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> int | None:
        """128-bit digest of the rows that the writer received; None if only some of these rows were digested."""
        return self.content.live.value if self.digests is None else self.digests.digest


def rewrite(
    store: TableStore,
    task: BucketTask,
    files: Sequence[DataFileMeta],
    shapes: Shapes,
    *,
    pipelined: bool,
    witness: Witness | None = None,
    within: KeyBounds | None = None,
    share: int = 1,
    deletions: Mapping[str, DeletionFile] = MappingProxyType({}),
) -> RewriteResult:
    """Merge files of the task's bucket into files of its output level; on failure no output or changelog file is left.

    Args:
        store: the table.
        task: the task.
        files: files to rewrite.
        shapes: cache of the key ranges of files.
        pipelined: merge and encode on two threads, decode the files on a third one, and copy spliced row groups on a
            fourth one.
        witness: receives every input row to verify the result (V2); None to skip this verification.
        within: range of keys to rewrite; None for all.
        share: number of rewrites that share one merge budget.
        deletions: vectors of deleted rows by file name.
    """
    levels = Levels(shapes.of(task.files), store.options.num_levels)
    rules = changelog_rules(store, task, files, levels.max_level)
    rows_read = {file.file_name: 0 for file in files}

    def record_input(file: DataFileMeta, batch: pa.RecordBatch) -> None:
        rows_read[file.file_name] += batch.num_rows
        advance(batch.num_rows)
        if witness is not None:
            witness.add_input(file, batch)

    living = living_at(store, task.now_ms)
    splices = Splices(store, task, files, within)
    with (
        ExitStack() as helpers,
        nullcontext()
        if rules is None
        else ChangelogProducer(store, task, files, rules, shapes, living, witness, deletions) as producer,
    ):
        helper = helpers.enter_context(ThreadPoolExecutor(1, "dredge-decode")) if pipelined else None
        copier = helpers.enter_context(ThreadPoolExecutor(1, "dredge-splice")) if pipelined and splices.groups else None
        opener = splices.open_rest if splices.groups else None if within is None else within.open
        merge = _bucket_merge(store, task, opener, share, producer, record_input, deletions, helper)
        writer = KeyValueFileWriter(
            store,
            task.partition,
            task.bucket,
            task.total_buckets,
            level=task.output_level,
            file_source=SOURCE_COMPACT,
            splices=bool(splices.groups),
            copier=copier,
        )
        digests = OutputDigest(store, task, task.output_level)
        try:
            source = splices.between(_merge_sections(merge, sections_of(store, files, shapes)))
            with closing(ahead(source) if pipelined else source) as batches:  # type: ignore[type-var]
                for batch in batches:
                    if isinstance(batch, SplicedGroup):
                        writer.flush()
                        digests.written(writer.group_rows)
                        rows = splices.sampled_rows(batch)
                        for part in rows:
                            record_input(splices.file_of(batch), part)
                            if witness is not None and task.verification == SAMPLED:
                                witness.add_written(part)
                        writer.splice(splices.stored(batch))
                        digests.add_spliced(batch, rows)
                        if not rows:
                            rows_read[batch.file_name] += batch.rows
                            advance(batch.rows)
                        continue
                    digests.add(batch)
                    if witness is not None and task.verification == SAMPLED:
                        witness.add_written(batch)
                    writer.write(batch)
                    del batch  # the writer keeps the rows that it needs; the merge may reuse the other memory
                    digests.written(writer.group_rows)
            after = writer.close()
            digests.finish(writer.group_rows)
            changelog = None if producer is None else producer.close()
        except BaseException:
            writer.abort()
            raise
    return RewriteResult(
        before=tuple(files),
        after=tuple(after),
        content=digests.content,
        dropped=dict(merge.counters.dropped),
        keys_folded=merge.counters.keys_folded,
        keys_one_by_one=merge.counters.keys_one_by_one,
        digests=digests,
        rows_read=rows_read,
        changelog=changelog,
        above=() if producer is None else producer.above,
        superseded=None if producer is None else producer.superseded,
        spliced=splices.groups,
        copied=writer.spliced,
        unseen=splices.unseen(after, digests.groups),
    )


def changelog_of_upgrade(
    store: TableStore,
    task: BucketTask,
    file: DataFileMeta,
    shapes: Shapes,
    *,
    share: int = 1,
    deletions: Mapping[str, DeletionFile] = MappingProxyType({}),
) -> ProducedChangelog | None:
    """Write the changelog for the upgrade of ``file`` to the task's output level; the file itself is not rewritten.

    Args:
        store: the table.
        task: the task.
        file: the upgraded file.
        shapes: cache of the key ranges of files.
        share: number of tasks that share one merge budget.
        deletions: vectors of deleted rows by file name.

    Returns:
        The changelog, or None if the table writes none.

    Raises:
        VerificationFailed: V0 failed: compared and dropped rows together are not all rows of the file.
    """
    rules = changelog_rules(store, task, [file], Levels(shapes.of(task.files), store.options.num_levels).max_level)
    if rules is None or not rules.produces:
        return None
    living = living_at(store, task.now_ms)
    with ChangelogProducer(store, task, [file], rules, shapes, living, None, deletions) as producer:
        rows = 0
        merge = _bucket_merge(store, task, None, share, producer, None, {})
        for batch in _merge_sections(merge, sections_of(store, [file], shapes)):
            rows += batch.num_rows
        changelog = producer.close()
        dropped_rows = sum(merge.counters.dropped.values())
        if rows + dropped_rows != file.row_count:
            raise VerificationFailed("V0", [f"{rows} rows of {file.file_name} were compared, it has {file.row_count}"])
        return changelog


def _bucket_merge(
    store: TableStore,
    task: BucketTask,
    opener: Callable[..., Iterator[pa.RecordBatch]] | None,
    share: int,
    producer: ChangelogProducer | None,
    seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None,
    deletions: Mapping[str, DeletionFile],
    helper: Executor | None = None,
) -> BucketMerge:
    source = BucketSource(
        store,
        task.partition,
        task.bucket,
        deletions=deletions,
        living=living_at(store, task.now_ms),
        opener=opener,
        seen=seen,
    )
    return BucketMerge(
        source,
        store.schema.field_names,
        drop_delete=task.drop_delete,
        exact=True,
        budget=store.options.merge_budget // share,
        dictionaries=store.schema.field_names,
        changes=None if producer is None else producer.changes,
        helper=helper,
    )


def _merge_sections(merge: BucketMerge, sections: Sequence[Section]) -> Generator[pa.RecordBatch, None, None]:
    for section in sections:
        with closing(merge.section(section)) as batches:
            yield from batches


def concatenate(store: TableStore, task: BucketTask, names: tuple[str, ...], marks: TaskVectors) -> RewriteResult:
    """Write one bin of small files as one rolling output, without deleted rows; on failure no output file is left.

    Args:
        store: the table.
        task: the task.
        names: files of the bin.
        marks: deletion vectors of the rows to leave out, of the task's files.

    Raises:
        CorruptFile: an input is missing or damaged; the error names it.
    """
    by_name = {file.file_name: file for file in task.files}
    files = tuple(by_name[name] for name in names)
    first = min(file.min_sequence_number for file in files)
    digests = OutputDigest(store, task, 0)
    parts = append_parts(store, task, files, marks)
    spliced = tuple(part.spliced for part in parts if part.spliced is not None)
    writer = AppendFileWriter(
        store,
        task.partition,
        task.bucket,
        task.total_buckets,
        file_source=SOURCE_COMPACT,
        first_sequence=first,
        splices=bool(spliced),
    )
    try:
        for part in parts:
            if part.spliced is not None and part.stored is not None:
                writer.flush()
                digests.written(writer.group_rows)
                writer.splice(part.stored)
                digests.add_spliced(part.spliced, [])
                continue
            with closing(part.batches(store, task, marks)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    digests.add(batch)
                    writer.write(batch)
                    digests.written(writer.group_rows)
        after = tuple(writer.close())
        digests.finish(writer.group_rows)
    except BaseException:
        writer.abort()
        raise
    copied = writer.spliced
    return RewriteResult(files, after, digests.content, {}, digests=digests, spliced=spliced, copied=copied)
