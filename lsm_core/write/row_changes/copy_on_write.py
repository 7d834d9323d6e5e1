"""DELETE and UPDATE of an append table by rewriting the files that hold matching rows.

The commit fails with CommitConflict unless every replaced file still exists, so changes of concurrent commits are not
lost. Rows that were added meanwhile are kept. A rewritten file keeps its position in the row order of its bucket.

Source: Paimon's Spark commands on tables without deletion vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import ROW_ID, SEQUENCE_NUMBER
from lsm_core.metadata import manifests
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import tracks_rows, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_current
from lsm_core.read import Scan, Split
from lsm_core.read.predicate import Predicate
from lsm_core.write.row_changes.append_parts import (
    Additions,
    AppendChange,
    AppendRun,
    PartOfChange,
    Place,
    added_rows,
    here,
)
from lsm_core.write.row_changes.assign import Assignments, Mask, deleted_rows, matching_rows

Rewrite = Callable[[pa.RecordBatch, Mask], pa.RecordBatch]


@dataclass(frozen=True)
class Rewriting(AppendChange):
    """DELETE or UPDATE that rewrites the files with matching rows.

    Attributes:
        totals: number of buckets (`_TOTAL_BUCKETS`) in the manifest entries of each bucket.
    """

    totals: Mapping[Place, int]

    def apply_to(self, splits: Iterable[Split]) -> PartOfChange:
        """Rewrite the files of some splits that have matching rows.

        Raises:
            InvalidData: a new value does not fit its column.
            CorruptFile: a file cannot be read.
        """
        rewrite = _without_rows if self.values is None else _with_values(self.store, self.values)
        messages: list[CommitMessage] = []
        with discard_on_failure(self.store, messages):
            for place, file in _touched(self.store, splits, self.predicate):
                total = self.totals[place]
                new = _write_again(self.store, place, total, file, self.predicate, rewrite)
                messages.append(CommitMessage(*place, total, new_files=tuple(new), deleted_files=(file,)))
        return PartOfChange(messages)


def change(
    store: TableStore,
    scan: Scan,
    predicate: Predicate,
    values: Mapping[str, Any] | None,
    run: AppendRun = here,
    additions: Additions | None = None,
) -> int | None:
    """Delete or update the matching rows, and add the rows of ``additions``, in one commit.

    A file whose rows are all deleted is removed without a replacement.

    Args:
        store: the table.
        scan: scan of the snapshot to change.
        predicate: selects the rows.
        values: new value by column for an update, or None to delete the rows.
        run: applies the change to the splits of a scan, by default in this process.
        additions: returns new rows for the same commit, or None.

    Returns:
        The id of the snapshot, or None if nothing changed.

    Raises:
        InvalidData: a new value does not fit its column.
    """
    messages: list[CommitMessage] = []
    with discard_on_failure(store, messages):
        messages += added_rows(store, additions, None if scan.snapshot is None else scan.snapshot.id)
        if scan.snapshot is None:
            return Committer(store).commit(messages).snapshot_id if messages else None
        for part in run(Rewriting(store, predicate, values, _totals(store, scan)), scan):
            messages += part.messages
        return Committer(store).commit(messages).snapshot_id


def _without_rows(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    return batch.filter(pa.array(~mask))


def _with_values(store: TableStore, values: Mapping[str, Any]) -> Rewrite:
    assignments, names = Assignments(store, values), list(store.schema.field_names)

    def again(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
        rows = batch.select(names)
        changed, removed = assignments.apply_where(rows, mask), deleted_rows(values, rows)
        kept = None if removed is None else pa.array(~(removed & mask))
        if batch.num_columns == changed.num_columns:
            return changed if kept is None else changed.filter(kept)
        # A changed row keeps its id; its sequence number is the snapshot that will say so.
        numbers = pc.if_else(pa.array(mask), pa.scalar(None, pa.int64()), batch.column(SEQUENCE_NUMBER))
        changed = changed.append_column(ROW_ID, batch.column(ROW_ID)).append_column(SEQUENCE_NUMBER, numbers)
        return changed if kept is None else changed.filter(kept)

    return again


def _totals(store: TableStore, scan: Scan) -> dict[Place, int]:
    """Return the number of buckets (`_TOTAL_BUCKETS`) in the manifest entries of each bucket's files.

    A manifest entry that deletes a file must have the same number as the entry that added the file.
    """
    assert scan.snapshot is not None
    partitions = sorted({split.partition for split in scan.splits})
    if not partitions:
        return {}
    columns = ["partition", "bucket", "total_buckets", "schema_id"]
    entries = manifests.live_entries(store, scan.snapshot, partitions=partitions, columns=columns)
    require_current(store, entries, "changing its rows")
    return {(partition, bucket): total for partition, bucket, total, _ in bucket_groups(entries)}


def _touched(store: TableStore, splits: Iterable[Split], predicate: Predicate) -> Iterator[tuple[Place, DataFileMeta]]:
    """Yield (bucket, file) for each file with a matching row; reads filter columns up to the first matching row."""
    names = list(store.schema.field_names if predicate.by_position else predicate.columns)
    for split in splits:
        for file in split.files:
            rows = open_append(store, split.partition, split.bucket, file, columns=names)
            with closing(rows) as batches:  # type: ignore[type-var]
                if any(matching_rows(batch, predicate).any() for batch in batches):
                    yield (split.partition, split.bucket), file


def _write_again(
    store: TableStore, place: Place, total: int, file: DataFileMeta, predicate: Predicate, rewrite: Rewrite
) -> Sequence[DataFileMeta]:
    if tracks_rows(store):
        store = with_row_ids(store, unnumbered=True)
    writer = AppendFileWriter(store, *place, total, file_source=SOURCE_APPEND, first_sequence=file.min_sequence_number)
    try:
        with closing(open_append(store, *place, file)) as batches:  # type: ignore[type-var]
            for batch in batches:
                mask = matching_rows(batch, predicate)
                writer.write(rewrite(batch, mask) if mask.any() else batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
