"""Rewrite one group of files of a bucket: merge, encode, and count what went in, what came out and why the rest did not."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from lsm_core.compact.content import Content, content_of
from lsm_core.compact.pipeline import ahead
from lsm_core.compact.streams import Streams
from lsm_core.compact.task import BucketTask, Witness
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.file_meta import SOURCE_COMPACT, DataFileMeta
from lsm_core.metadata.store import TableStore
from lsm_core.read.inputs import Section, Shapes, sections_of
from lsm_core.read.merge_read import Merging


@dataclass(frozen=True)
class Rewritten:
    """Files read and files written; ``content`` is what was handed to the writer, ``dropped`` the rows that were not.

    The counts of keys are those of `MergeCounters`. ``streams`` is ``content`` to the bit, where files can give it back so.
    """

    before: tuple[DataFileMeta, ...]
    after: tuple[DataFileMeta, ...]
    content: Content
    dropped: dict[str, int]
    keys_folded: int = 0
    keys_one_by_one: int = 0
    streams: Streams | None = None


def rewrite(
    store: TableStore,
    task: BucketTask,
    files: Sequence[DataFileMeta],
    shapes: Shapes,
    *,
    pipelined: bool,
    witness: Witness | None = None,
) -> Rewritten:
    """Merge ``files`` of the task's bucket into files of its output level.

    ``pipelined`` merges on another thread than it encodes. A ``witness`` sees every input row. On failure nothing of the output is left.
    """
    merging = Merging(
        store,
        task.partition,
        task.bucket,
        store.schema.field_names,
        drop_delete=task.drop_delete,
        exact=True,
        seen=witness.input if witness is not None else None,
    )
    writer = KeyValueFileWriter(
        store, task.partition, task.bucket, task.total_buckets, level=task.output_level, file_source=SOURCE_COMPACT
    )
    content, streams = Content(), Streams.of(store, task.output_level)
    try:
        source = _merged(merging, sections_of(store, files, shapes))
        with closing(ahead(source) if pipelined else source) as batches:  # type: ignore[type-var]
            for batch in batches:
                content = content.plus(content_of(batch, store.schema))
                if streams is not None:
                    streams.add(batch)
                writer.write(batch)
                del batch  # the writer holds what it still needs; the merge may have the rest back
        after = writer.close()
    except BaseException:
        writer.abort()
        raise
    keys = merging.keys_folded, merging.keys_one_by_one
    return Rewritten(tuple(files), tuple(after), content, dict(merging.dropped), *keys, streams)


def _merged(merging: Merging, sections: Sequence[Section]) -> Generator[pa.RecordBatch, None, None]:
    for section in sections:
        with closing(merging.section(section)) as batches:
            yield from batches
