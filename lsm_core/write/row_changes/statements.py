"""DELETE, UPDATE, MERGE, upsert, TRUNCATE and drop partitions: checks that the table supports them, then one commit.

A change that the merge engine cannot represent raises an error before any data is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.commit import Committer, discard_on_failure
from lsm_core.errors import ColumnNotFound, InvalidFilter, InvalidOption, UnsupportedFeature
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import partitions_of
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_schema, require_writable
from lsm_core.read import Scan, plan_scan
from lsm_core.read.predicate import Predicate, parse_filter
from lsm_core.write.incoming_rows import Rows, as_rows
from lsm_core.write.row_changes import append_parts, copy_on_write, evolved, keyed, vectors
from lsm_core.write.row_changes.append_parts import Additions, AppendRun
from lsm_core.write.row_changes.assign import Assignments, ComputedValues
from lsm_core.write.table_write import TableWrite

_PLACE = "_PLACE"
_REMOVING: Final = {
    "partial-update": ("partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group"),
    "aggregation": ("aggregation.remove-record-on-delete",),
}
KeyedRun = Callable[[keyed.KeyedChange, Scan], int | None]
KeyedMerge = Callable[[keyed.KeyedChange, Scan, Additions | None], int | None]
_UPDATABLE: Final = ("deduplicate", "partial-update")


def delete_rows(
    store: TableStore, condition: object, run: KeyedRun = keyed.run, run_append: AppendRun = append_parts.here
) -> int | None:
    """Delete the rows that match a filter.

    If the filter uses only partition columns, whole partitions are dropped without reading rows, including rows that
    concurrent commits add; so does Java. In a primary-key table with `delete.force-produce-changelog`, rows are deleted
    one by one instead.

    Args:
        store: the table.
        condition: filter of the rows: an Arrow expression, a list of tuples, or SQL text.
        run: applies the change of a keyed table.
        run_append: applies the change of an append table.

    Returns:
        The id of the snapshot, or None when no row matched.

    Raises:
        InvalidFilter: the filter is None or invalid.
        UnsupportedFeature: the table does not support DELETE.
        RetractNotSupported: the merge engine does not support -D rows.
        InvalidData: the merge engine would not delete a row.
        CommitConflict: another commit changed the same rows' buckets or files.
        CommitUnknown: the outcome of the commit could not be read.
    """
    require_writable(store)
    predicate = _chosen_rows(store, condition, "delete")
    partitions = None
    if not (store.schema.primary_keys and store.options.get("delete.force-produce-changelog")):
        partitions = _matching_partitions(store, predicate)
    if partitions is not None:
        return Committer(store).drop_exactly(partitions).snapshot_id
    require_delete(store)
    if store.schema.primary_keys:
        return run(keyed.KeyedChange(store), _scan_of_newest(store, predicate))
    if manifests.evolves(store):
        return evolved.change(store, partial(_scan_of_newest, store, predicate), predicate, None, run_append)
    if store.options.deletion_vectors_enabled:
        return vectors.change(store, partial(_scan_of_newest, store, predicate), predicate, None, run_append)
    return copy_on_write.change(store, _scan_of_newest(store, predicate), predicate, None, run_append)


def update_rows(
    store: TableStore,
    condition: object,
    values: Mapping[str, Any],
    run: KeyedRun = keyed.run,
    run_append: AppendRun = append_parts.here,
) -> int | None:
    """Set columns of the rows that match a filter.

    Args:
        store: the table.
        condition: filter of the rows: an Arrow expression, a list of tuples, or SQL text.
        values: literal, or Arrow expression over the old row, by column.
        run: applies the change of a keyed table.
        run_append: applies the change of an append table.

    Returns:
        The id of the snapshot, or None when no row matched.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidOption: ``values`` is not a mapping, or is empty.
        InvalidFilter: the filter is None or invalid.
        UnsupportedFeature: the table does not support UPDATE.
        InvalidData: a value does not fit its column, or the merge engine would ignore it.
        CommitConflict: another commit changed the same rows' buckets or files.
        CommitUnknown: the outcome of the commit could not be read.
    """
    require_writable(store)
    _require_update(store, values)
    predicate = _chosen_rows(store, condition, "update")
    Assignments(store, values)  # what does not fit is refused before anything is read
    if store.schema.primary_keys:
        return run(keyed.KeyedChange(store, values), _scan_of_newest(store, predicate))
    if manifests.evolves(store):
        return evolved.change(store, partial(_scan_of_newest, store, predicate), predicate, values, run_append)
    if store.options.deletion_vectors_enabled:
        return vectors.change(store, partial(_scan_of_newest, store, predicate), predicate, values, run_append)
    return copy_on_write.change(store, _scan_of_newest(store, predicate), predicate, values, run_append)


def merge_rows(
    store: TableStore,
    predicate: Predicate | None,
    values: ComputedValues,
    additions: Additions | None,
    run: KeyedMerge = keyed.run,
    run_append: AppendRun = append_parts.here,
) -> int | None:
    """Change, delete and add rows in one commit (MERGE INTO).

    Args:
        store: the table.
        predicate: filter for the rows to update or delete; None to update and delete no rows.
        values: new values by column, and which of these rows are deleted.
        additions: returns the rows to insert; None for no rows.
        run: applies the change of a keyed table.
        run_append: applies the change of an append table.

    Returns:
        The id of the snapshot, or None when nothing changed.

    Raises:
        UnsupportedFeature: the merge engine does not support the change.
        InvalidData: a value does not fit.
        CommitConflict: another commit changed the same rows' buckets or files.
    """
    require_writable(store)
    if predicate is None:
        newest = snapshots.latest_id(store)
        added = append_parts.added_rows(store, additions, newest)
        with discard_on_failure(store, added):
            base = newest if store.schema.primary_keys else None
            return Committer(store).commit(added, made_from=base).snapshot_id if added else None
    if values.names:
        _require_update(store, values)
    if values.deleted is not None:
        require_delete(store)
    if store.schema.primary_keys:
        return run(keyed.KeyedChange(store, values), _scan_of_newest(store, predicate), additions)
    if manifests.evolves(store):
        plan = partial(_scan_of_newest, store, predicate)
        return evolved.change(store, plan, predicate, values, run_append, additions)
    if store.options.deletion_vectors_enabled:
        plan = partial(_scan_of_newest, store, predicate)
        return vectors.change(store, plan, predicate, values, run_append, additions)
    return copy_on_write.change(store, _scan_of_newest(store, predicate), predicate, values, run_append, additions)


def upsert_rows(store: TableStore, data: Rows) -> int | None:
    """Insert rows; each replaces the existing row with the same key, or is merged into it.

    Columns missing in ``data`` become their default or null; with partial-update and aggregation, the existing row's
    values are kept.

    Returns:
        The id of the snapshot, or None if ``data`` has no rows.

    Raises:
        UnsupportedFeature: in this table new rows do not replace existing rows with the same key.
        InvalidData: a value does not fit.
        ColumnNotFound: a column does not exist.
        CommitConflict: a concurrent commit conflicts with this one.
    """
    require_writable(store)
    rows = as_rows(data, store.name)
    require_upsert(store)
    with TableWrite(store) as writer:
        writer.write(rows)
        messages = writer.prepare_commit()
    with discard_on_failure(store, messages):
        return Committer(store).commit(messages).snapshot_id


def truncate(store: TableStore) -> int | None:
    """Delete all rows in one OVERWRITE commit, including rows that concurrent commits added before this commit.

    Returns:
        The id of the snapshot, or None when the table was empty.

    Raises:
        UnsupportedFeature: the table cannot be written.
        CommitConflict: a concurrent commit conflicts with this one.
        CommitUnknown: the outcome of the commit could not be read.
    """
    return Committer(store).drop(None).snapshot_id


def drop_partitions(store: TableStore, partitions: Sequence[Mapping[str, Any]]) -> int | None:
    """Delete all rows of the partitions that match an entry of ``partitions``; missing columns match every value.

    Returns:
        The id of the snapshot, or None when no partition matched.

    Raises:
        InvalidOption: ``partitions`` is empty, or holds an empty entry.
        ColumnNotFound: a column is not a partition column.
        InvalidData: a value does not fit its column.
        UnsupportedFeature: the table cannot be written.
        CommitConflict: another commit changed the partitions.
    """
    return Committer(store).drop(partitions).snapshot_id


def _matching_partitions(store: TableStore, predicate: Predicate) -> list[bytes] | None:
    """Return the partitions that match a filter, or None if the filter uses columns that are not partition columns."""
    keys = store.schema.partition_keys
    if not keys or predicate.by_position or not predicate.columns or not set(predicate.columns) <= set(keys):
        return None
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return []
    partitions = partitions_of(manifests.live_entries(store, snapshot, columns=["partition"]))
    values = decode_rows(pa.array(partitions, pa.binary()), list(store.schema.partition_types))
    batch = pa.RecordBatch.from_arrays([*values, pa.array(range(len(partitions)))], names=[*keys, _PLACE])
    return [partitions[place] for place in np.asarray(predicate.apply(batch).column(_PLACE))]


def require_delete(store: TableStore) -> None:
    """Raise UnsupportedFeature unless the table's merge engine deletes a key for a -D row; the error names the option.

    Spark's DELETE accepts the same merge engines.
    """
    if not store.schema.primary_keys:
        return
    if store.bucket_mode is BucketMode.POSTPONE:
        raise UnsupportedFeature(
            "DELETE in a table with postponed buckets, some of whose rows are not visible before a compaction",
            store.name,
        )
    engine = store.options.merge_engine
    if engine == "first-row":
        raise UnsupportedFeature("DELETE with merge engine first-row, which accepts no deletes", store.name)
    if store.options.ignore_delete:
        raise UnsupportedFeature("DELETE while option 'ignore-delete' is true, which ignores it", store.name)
    options = _REMOVING.get(engine, ())
    if options and not any(store.options.get(key) for key in options):
        feature = f"merge engine {engine} with DELETE, unless option '{options[0]}' is true"
        raise UnsupportedFeature(feature, store.name)


def _require_update(store: TableStore, columns: Mapping[str, Any]) -> None:
    """Raise an error for an engine or a column that UPDATE cannot change.

    Raises:
        UnsupportedFeature: the engine or the column cannot be updated.
        ColumnNotFound: a column does not exist.
    """
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidOption("values", str(columns), "a mapping of at least one column to its new value", store.name)
    named = list(columns)
    for name in named:
        if not store.schema.has_field(name):
            raise ColumnNotFound(store.name, name, store.schema.field_names)
    if store.bucket_mode is BucketMode.POSTPONE:
        raise UnsupportedFeature(
            "UPDATE in a table with postponed buckets, some of whose rows are not visible before a compaction",
            store.name,
        )
    schema, options = store.schema, store.options
    bucket_keys = schema.bucket_keys if options.bucket > 0 else ()
    kinds = (options.rowkind_field,) if schema.primary_keys and options.rowkind_field else ()
    fixed = (
        ("primary key", schema.primary_keys),
        ("partition", schema.partition_keys),
        ("bucket key", bucket_keys),
        ("row kind", kinds),
    )
    for role, members in fixed:
        for name in named:
            if name in members:
                raise UnsupportedFeature(f"UPDATE of the {role} column '{name}'", store.name)
    if schema.primary_keys and options.merge_engine not in _UPDATABLE:
        raise UnsupportedFeature(f"UPDATE of a table with merge engine {options.merge_engine}", store.name)


def require_upsert(store: TableStore) -> None:
    """Raise UnsupportedFeature unless a new row replaces the existing row with the same key or is merged into it."""
    if not store.schema.primary_keys:
        raise UnsupportedFeature("upserts into a table without primary key", store.name)
    engine = store.options.merge_engine
    if engine == "first-row":
        raise UnsupportedFeature(
            "upserts into a table with merge engine first-row, which keeps existing rows", store.name
        )


def _chosen_rows(store: TableStore, condition: object, verb: str) -> Predicate:
    """Return the filter of a DELETE or UPDATE as a predicate.

    Raises InvalidFilter if ``condition`` is None, because a forgotten filter would change every row.
    """
    predicate = parse_filter(condition, store.schema, store.name)
    if predicate is None:
        raise InvalidFilter(
            f"table {store.name}: {verb} without a filter would change every row; "
            "to do so, pass pyarrow.compute.scalar(True) or use truncate()"
        )
    return predicate


def _scan_of_newest(store: TableStore, predicate: Predicate) -> Scan:
    """Return a scan of the newest snapshot.

    Raises:
        InvalidOption: an option of the table selects an older version (time travel).
        WriterStale: the schema has changed since the table was opened; an UPDATE would lose values of new columns.
    """
    newest = snapshots.latest(store)
    if newest is not None:
        require_schema(store, newest.schema_id, "changing its rows")
    scan = plan_scan(store, filter=predicate)
    if scan.snapshot is not None and newest is not None and scan.snapshot.id < newest.id:
        raise InvalidOption(
            "scan.mode", str(store.options.get("scan.mode")), "the newest version to change rows", store.name
        )
    return scan
