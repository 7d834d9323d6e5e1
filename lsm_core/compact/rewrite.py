"""Rewrite of one group of files of a bucket.

Merge, encode, and count input rows, output rows and dropped rows by reason.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from lsm_core.compact.changes import ChangelogProducer, ProducedChangelog, changelog_rules
from lsm_core.compact.content import Content
from lsm_core.compact.output_digest import OutputDigest
from lsm_core.compact.pipeline import ahead
from lsm_core.compact.task import SAMPLED, BucketTask, Witness
from lsm_core.errors import VerificationFailed
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import SOURCE_COMPACT, DataFileMeta
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.metadata.store import TableStore
from lsm_core.progress import advance
from lsm_core.read.inputs import Section, Shapes, sections_of
from lsm_core.read.key_range import KeyBounds
from lsm_core.read.merge_read import Merging
from lsm_core.read.prune import living_at
from lsm_core.tree import Levels


@dataclass(frozen=True)
class Rewritten:
    """Result of a rewrite.

    Attributes:
        before: files read.
        after: files written.
        content: counts of the rows that the writer received; with one digest of all where ``digests`` or its ``groups``
            are None.
        dropped: rows by reason that were left out.
        keys_folded: see `MergeCounters`.
        keys_one_by_one: see `MergeCounters`.
        digests: digests of the written rows by row group; None for one digest of all.
        rows_read: rows by input file, for a key range those in it; None if not counted.
        changelog: changelog written beside the output; None for none.
        above: files in which keys were looked up, whose rows may be among the output.
        superseded: rows above the output that are no longer valid; None if no keys were looked up.
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

    @property
    def digest(self) -> int | None:
        """128-bit digest of the rows that the writer received; None where not all of them were digested."""
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
) -> Rewritten:
    """Merge files of the task's bucket into files of its output level; on failure no output or changelog file is left.

    Args:
        store: the table.
        task: the task.
        files: files to rewrite.
        shapes: cache of the files' keys.
        pipelined: merge on another thread than encoding.
        witness: receives every input row; None for none.
        within: range of keys to rewrite; None for all.
        share: number of rewrites that share one merge budget.
        deletions: vectors of deleted rows by file name.
    """
    levels = Levels(shapes.of(task.files), store.options.num_levels)
    rules = changelog_rules(store, task, files, levels.max_level)
    if rules is None:
        return _rewrite(store, task, files, shapes, None, pipelined, witness, within, share, deletions)
    with ChangelogProducer(
        store, task, files, rules, shapes, living_at(store, task.now_ms), witness, deletions
    ) as producer:
        return _rewrite(store, task, files, shapes, producer, pipelined, witness, within, share, deletions)


def changelog_of_upgrade(
    store: TableStore,
    task: BucketTask,
    file: DataFileMeta,
    shapes: Shapes,
    *,
    share: int = 1,
    deletions: Mapping[str, DeletionFile] = MappingProxyType({}),
) -> ProducedChangelog | None:
    """Write the changelog of an upgrade of ``file``, which is not rewritten, to the task's output level.

    Args:
        store: the table.
        task: the task.
        file: the file.
        shapes: cache of the files' keys.
        share: number of tasks that share one merge budget.
        deletions: vectors of deleted rows by file name.

    Returns:
        The changelog, or None if the table writes none.

    Raises:
        VerificationFailed: V0 failed: rows were left out.
    """
    rules = changelog_rules(store, task, [file], Levels(shapes.of(task.files), store.options.num_levels).max_level)
    if rules is None or not rules.produces:
        return None
    living = living_at(store, task.now_ms)
    with ChangelogProducer(store, task, [file], rules, shapes, living, None, deletions) as producer:
        rows = 0
        merging = _merging(store, task, None, share, producer, None, {})
        for batch in _merge_sections(merging, sections_of(store, [file], shapes)):
            rows += batch.num_rows
        changelog = producer.close()
        dropped_rows = sum(merging.dropped.values())
        if rows + dropped_rows != file.row_count:
            raise VerificationFailed("V0", [f"{rows} rows of {file.file_name} were compared, it has {file.row_count}"])
        return changelog


def _rewrite(
    store: TableStore,
    task: BucketTask,
    files: Sequence[DataFileMeta],
    shapes: Shapes,
    producer: ChangelogProducer | None,
    pipelined: bool,
    witness: Witness | None,
    within: KeyBounds | None,
    share: int,
    deletions: Mapping[str, DeletionFile],
) -> Rewritten:
    rows_read = {file.file_name: 0 for file in files}

    def seen(file: DataFileMeta, batch: pa.RecordBatch) -> None:
        rows_read[file.file_name] += batch.num_rows
        advance(batch.num_rows)
        if witness is not None:
            witness.input(file, batch)

    merging = _merging(store, task, within, share, producer, seen, deletions)
    writer = KeyValueFileWriter(
        store, task.partition, task.bucket, task.total_buckets, level=task.output_level, file_source=SOURCE_COMPACT
    )
    digests = OutputDigest(store, task, task.output_level)
    try:
        source = _merge_sections(merging, sections_of(store, files, shapes))
        with closing(ahead(source) if pipelined else source) as batches:  # type: ignore[type-var]
            for batch in batches:
                digests.add(batch)
                if witness is not None and task.verification == SAMPLED:
                    witness.handed(batch)
                writer.write(batch)
                del batch  # the writer keeps the rows that it needs; the merge may reuse the other memory
                digests.written(writer.group_rows)
        after = writer.close()
        digests.finish(writer.group_rows)
        changelog = None if producer is None else producer.close()
    except BaseException:
        writer.abort()
        raise
    keys = merging.keys_folded, merging.keys_one_by_one
    return Rewritten(
        tuple(files),
        tuple(after),
        digests.content,
        dict(merging.dropped),
        *keys,
        digests,
        rows_read,
        changelog,
        () if producer is None else producer.above,
        None if producer is None else producer.superseded,
    )


def _merging(
    store: TableStore,
    task: BucketTask,
    within: KeyBounds | None,
    share: int,
    producer: ChangelogProducer | None,
    seen: Callable[[DataFileMeta, pa.RecordBatch], None] | None,
    deletions: Mapping[str, DeletionFile],
) -> Merging:
    return Merging(
        store,
        task.partition,
        task.bucket,
        store.schema.field_names,
        drop_delete=task.drop_delete,
        exact=True,
        seen=seen,
        living=living_at(store, task.now_ms),
        opener=None if within is None else within.open,
        budget=store.options.merge_budget // share,
        dictionaries=store.schema.field_names,
        changes=None if producer is None else producer.changes,
        deletions=deletions,
    )


def _merge_sections(merging: Merging, sections: Sequence[Section]) -> Generator[pa.RecordBatch, None, None]:
    for section in sections:
        with closing(merging.section(section)) as batches:
            yield from batches
