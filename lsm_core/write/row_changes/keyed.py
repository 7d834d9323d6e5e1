"""DELETE and UPDATE of a primary-key table: matching merged rows are written again as -D or +U rows, in one commit.

The statement reads one snapshot and writes rows that are newer than all rows of this snapshot. If a concurrent commit
(except a compaction) changed one of the same buckets, the statement fails with CommitConflict, so no concurrent write
is lost; Java commits without this check. Rows that concurrent commits add to buckets without matching rows are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import one_array
from lsm_core.commit import Committer, discard_on_failure
from lsm_core.errors import InvalidData
from lsm_core.format.schema import VALUE_KIND, kv_arrow_schema
from lsm_core.merge import KeySpec, merge_function, merge_unsorted
from lsm_core.merge.digest import digest
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, to_batches
from lsm_core.types import RowKind, is_retract
from lsm_core.write.incoming_rows import RowNumbering, conform_stored
from lsm_core.write.row_changes.append_parts import Additions, added_rows
from lsm_core.write.row_changes.assign import Assignments, deleted_rows
from lsm_core.write.table_write import TableWrite

_TEXTS: Final = {RowKind.DELETE: "-D", RowKind.UPDATE_AFTER: "+U"}


@dataclass(frozen=True)
class KeyedChange:
    """DELETE or UPDATE of a keyed table; it can be sent to tasks.

    Attributes:
        store: the table.
        values: literal, or Arrow expression over the old row, by column; None for DELETE.
    """

    store: TableStore
    values: Mapping[str, Any] | None = None

    @property
    def kind(self) -> RowKind:
        """Row kind of the changed rows: -D for DELETE, +U for UPDATE."""
        return RowKind.DELETE if self.values is None else RowKind.UPDATE_AFTER

    def writer(self, **options: Any) -> TableWrite:
        """Return a writer for the rows of :meth:`rows`; ``options`` are passed to `TableWrite`."""
        return (TableWrite if self.values is not None else DeletingWrite)(self.store, **options)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, pa.Array | None]]:
        """Yield (rows, kinds) to write for batches of matching merged rows with all columns.

        The kinds are int8, or None if the column of `rowkind.field` has the kinds.

        Raises:
            InvalidData: the merge engine would ignore a new value, for example an older value of the sequence field, or
                null with partial-update.
        """
        assignments = None if self.values is None else Assignments(self.store, self.values)
        effect = _Effect(self.store, self.kind)
        for batch in batches:
            removed = deleted_rows(self.values, batch)
            if removed is not None:
                old = pa.Table.from_batches([batch.filter(pa.array(removed))])
                _Effect(self.store, RowKind.DELETE).require(old, old)
                yield self._with_kind(old, RowKind.DELETE)
                batch = batch.filter(pa.array(~removed))
                if not batch.num_rows:
                    continue
            changed = pa.Table.from_batches([batch])
            if assignments is not None:
                changed = pa.Table.from_batches([assignments.apply(batch)])
                effect.require(pa.Table.from_batches([batch]), changed)
            yield self._with_kind(changed, self.kind)

    def _with_kind(self, rows: pa.Table, kind: RowKind) -> tuple[pa.Table, pa.Array | None]:
        column = self.store.options.rowkind_field
        if column:  # where a column holds the kind, a delete says so there
            place = rows.schema.get_field_index(column)
            return rows.set_column(place, rows.schema.field(place), pa.repeat(_TEXTS[kind], rows.num_rows)), None
        return rows, pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows)


def run(change: KeyedChange, scan: Scan, additions: Additions | None = None) -> int | None:
    """Apply a change in this process, and add the rows of ``additions`` in the same commit.

    Memory is that of one read and one write buffer.

    Args:
        change: the DELETE or UPDATE.
        scan: scan that returns the matching merged rows.
        additions: returns new rows for the same commit, or None.

    Returns:
        The id of the snapshot, or None if no row matched and no row was added.

    Raises:
        InvalidData: the merge engine would not give the result of the statement.
        CommitConflict: another commit changed the same buckets.
        CommitUnknown: the outcome of the commit could not be read.
    """
    if scan.snapshot is None:
        messages = added_rows(change.store, additions, None)
        with discard_on_failure(change.store, messages):
            return Committer(change.store).commit(messages).snapshot_id if messages else None
    with change.writer() as writer:
        with closing(to_batches(change.store, scan)) as batches:
            for rows, kinds in change.rows(batches):
                writer.write(rows, kinds)
        added = None if additions is None else additions(scan.snapshot.id)
        if added is not None and added.num_rows:
            writer.write(added)
        messages = writer.prepare_commit()
    with discard_on_failure(change.store, messages):
        return Committer(change.store).commit(messages, made_from=scan.snapshot.id).snapshot_id


class DeletingWrite(TableWrite):
    """Writer of -D rows for existing rows of the table.

    The rows may have nulls in NOT NULL columns, because merging can produce them. Raises InvalidData if the merge
    engine would not delete a row.
    """

    def _conform(self, piece: pa.Table, numbering: RowNumbering) -> pa.Table:
        del numbering
        rows = conform_stored(piece, self.store.schema)
        self._effect.require(rows, rows)
        return rows

    @cached_property
    def _effect(self) -> _Effect:
        return _Effect(self.store, RowKind.DELETE)


class _Effect:
    """Check of a DELETE or UPDATE before it is written: whether old and new rows merge to the intended rows."""

    def __init__(self, store: TableStore, kind: RowKind) -> None:
        self._store, self._kind = store, kind
        options = store.options
        self._certain = options.merge_engine == "deduplicate" and not options.sequence_field
        self._function = merge_function(store.schema, options.raw, store.name)
        self._keys = KeySpec.of(store.schema, options.sequence_field, options.sequence_descending)
        self._layout = kv_arrow_schema(store.schema)

    def require(self, before: pa.Table, after: pa.Table) -> None:
        """Raise InvalidData if merging ``before`` with ``after`` would not give the new values or not delete a row."""
        if self._certain or not before.num_rows:
            return
        schema, rows = self._store.schema, before.num_rows
        numbers = np.arange(2 * rows, dtype=np.int64)
        kinds = np.repeat(np.array([RowKind.INSERT, self._kind], np.int8), rows)
        before_and_after = pa.concat_tables([before.select(schema.field_names), after.select(schema.field_names)])
        keys = [before_and_after.column(name) for name in schema.trimmed_primary_keys]
        versions = pa.table([*keys, pa.array(numbers), pa.array(kinds), *before_and_after.columns], schema=self._layout)
        merged = merge_unsorted(versions, self._function, self._keys)
        living = merged.filter(pa.array(~is_retract(merged.column(VALUE_KIND))))
        if self._kind is RowKind.DELETE:
            if living.num_rows:
                self._fail(f"{living.num_rows} rows would still be there after their -D rows")
            return
        columns = [(field.id, field.name) for field in schema.fields]
        merged_values = living.select(schema.field_names).combine_chunks()
        expected = after.select(schema.field_names)
        if digest(_batch(merged_values), columns) != digest(_batch(expected), columns):
            self._fail(
                "merged with what is there, the new values would not be read back (an older sequence, a null, an "
                "aggregate?)"
            )

    def _fail(self, reason: str) -> None:
        options = self._store.options
        where = ", ".join(options.sequence_field) or "merge-engine"
        raise InvalidData(self._store.name, where, f"merge engine {options.merge_engine}: {reason}")


def _batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([one_array(column) for column in table.columns], schema=table.schema)
