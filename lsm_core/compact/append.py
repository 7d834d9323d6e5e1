"""Compaction of small files of append tables into large ones: rows are concatenated in their order, without merging."""

from __future__ import annotations

from contextlib import closing

from lsm_core.compact.output_digest import OutputDigest
from lsm_core.compact.rewrite import Rewritten
from lsm_core.compact.task import BucketTask
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.format.file_meta import SOURCE_COMPACT
from lsm_core.metadata.store import TableStore


def concatenate(store: TableStore, task: BucketTask, names: tuple[str, ...], marks: TaskVectors) -> Rewritten:
    """Write one bin of small files as one rolling output, without deleted rows; on failure no output file is left.

    Args:
        store: the table.
        task: the task.
        names: files of the bin.
        marks: deletion vectors of the task's files.

    Raises:
        CorruptFile: an input is missing or damaged; the error names it.
    """
    by_name = {file.file_name: file for file in task.files}
    files = tuple(by_name[name] for name in names)
    first = min(file.min_sequence_number for file in files)
    writer = AppendFileWriter(
        store, task.partition, task.bucket, task.total_buckets, file_source=SOURCE_COMPACT, first_sequence=first
    )
    digests = OutputDigest(store, task, 0)
    try:
        for file in files:
            rows = open_append(store, task.partition, task.bucket, file, deleted=marks.vector(file))
            with closing(rows) as batches:  # type: ignore[type-var]
                for batch in batches:
                    digests.add(batch)
                    writer.write(batch)
                    digests.written(writer.group_rows)
        after = tuple(writer.close())
        digests.finish(writer.group_rows)
    except BaseException:
        writer.abort()
        raise
    return Rewritten(files, after, digests.content, {}, digests=digests)
