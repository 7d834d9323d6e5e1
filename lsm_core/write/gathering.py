"""Merge of the flushes of one bucket write into one sorted sequence of files before the commit.

A write buffer that may spill makes one flush. A buffer that may not, or whose disk space is used up, makes many. Each
flush is a sorted run that readers must merge until a compaction ends. Their number may exceed
`num-sorted-run.stop-trigger`.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Final

import pyarrow as pa

from lsm_core.errors import DredgeError
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.merge import FoldFunction, MergeFunction, RunInput, merge_streams
from lsm_core.merge.order_free import order_free
from lsm_core.metadata.store import TableStore
from lsm_core.write.buffer import BufferPool

_LOG: Final = logging.getLogger(__name__)
_FEWEST_ROWS, _MOST_ROWS = 16, 65_536
_DECODED_FROM_STORED: Final = 4
"""Estimated ratio of the size of a row in memory to its size in the file."""

Place = tuple[bytes, int, int]
"""Partition, bucket, total buckets."""
Flush = Sequence[DataFileMeta]
"""Files of level 0 whose keys ascend from file to file."""


def most_flushes(store: TableStore) -> int:
    """Return the maximum number of flushes that one write may commit without a merge.

    It is the number of runs between the trigger of compactions and the stop trigger.
    """
    return max(1, store.options.stop_trigger - store.options.compaction_trigger)


def may_gather(store: TableStore, function: MergeFunction, files: Sequence[DataFileMeta]) -> bool:
    """Return whether a merge of ``files`` before the bucket's older rows gives the same rows as one merge of all."""
    if not isinstance(function, FoldFunction):
        return True
    retracts = any(file.delete_row_count != 0 for file in files)
    return order_free(store.schema, store.options.raw, retracts, store.name).ok


def merge_flushes(
    store: TableStore, pool: BufferPool, place: Place, function: MergeFunction, flushes: Sequence[Flush]
) -> list[DataFileMeta]:
    """Merge the uncommitted flushes of a write into one.

    More flushes than `local-sort.max-num-file-handles` are merged in several passes. Merged files are deleted.

    Args:
        store: the table.
        pool: memory of the writer.
        place: partition, bucket and total buckets of the files.
        function: the merge engine.
        flushes: the files of each flush, oldest first.

    Returns:
        The files that hold the rows. After a storage error some of the flushes may be unmerged, and none is lost.
    """
    runs = [list(flush) for flush in flushes]
    while len(runs) > 1:
        following: list[list[DataFileMeta]] = []
        for start in range(0, len(runs), pool.handles):
            group = runs[start : start + pool.handles]
            try:
                following.append(_merge_group(store, pool, place, function, group) if len(group) > 1 else group[0])
            except (DredgeError, OSError) as error:  # the files of these flushes are still complete
                _LOG.info("table %s: the flushes of a write are committed without a merge: %s", store.name, error)
                return [file for flush in (*following, *runs[start:]) for file in flush]
            if len(group) > 1:
                _delete(store, place, [file for flush in group for file in flush])
        runs = following
    return runs[0] if runs else []


def _merge_group(
    store: TableStore, pool: BufferPool, place: Place, function: MergeFunction, group: Sequence[Flush]
) -> list[DataFileMeta]:
    files = [file for flush in group for file in flush]
    stored = max(1, sum(file.file_size for file in files) // max(1, sum(file.row_count for file in files)))
    fair = pool.memory // (2 * len(group) * stored * _DECODED_FROM_STORED)
    batch_rows = max(_FEWEST_ROWS, min(fair, _MOST_ROWS))
    writer = KeyValueFileWriter(store, *place, level=0, file_source=SOURCE_APPEND)
    try:
        with ExitStack() as opened:
            runs = [opened.enter_context(closing(_rows(store, place, flush, batch_rows))) for flush in group]
            inputs = [RunInput(rows, 0, age, f"flush {age}") for age, rows in enumerate(runs)]
            for batch in merge_streams(inputs, function, batch_rows=batch_rows):
                writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _rows(store: TableStore, place: Place, flush: Flush, batch_rows: int) -> Generator[pa.RecordBatch, None, None]:
    for file in flush:
        yield from open_kv(store, place[0], place[1], file, batch_rows=batch_rows)


def _delete(store: TableStore, place: Place, files: Sequence[DataFileMeta]) -> None:
    for path in [path for file in files for path in store.data_paths(place[0], place[1], file)]:
        with suppress(OSError, DredgeError):
            store.delete(path)
