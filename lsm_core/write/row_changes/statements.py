"""The statements as callers give them: checked, then carried out by what kind of table it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsm_core.commit import Committer, discard_on_failure
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.write.row_changes import copy_on_write, keyed
from lsm_core.write.row_changes.assign import Assignments
from lsm_core.write.row_changes.drop import matching_partitions
from lsm_core.write.row_changes.rules import chosen_rows, require_delete, require_update, require_upsert
from lsm_core.write.rows import Rows, as_rows
from lsm_core.write.table_write import TableWrite


def delete_rows(store: TableStore, given: object) -> int | None:
    """Delete the rows for which the filter ``given`` is true; the snapshot id, None when there were none.

    A filter over partition columns alone drops whole partitions by metadata (with what came meanwhile), as Java does, unless
    `delete.force-produce-changelog` is true. Raises InvalidFilter, UnsupportedFeature, RetractNotSupported, InvalidData,
    CommitConflict, CommitUnknown.
    """
    require_writable(store)
    predicate = chosen_rows(store, given, "delete")
    partitions = None
    if not (store.schema.primary_keys and store.options.get("delete.force-produce-changelog")):
        partitions = matching_partitions(store, predicate)
    if partitions is not None:
        return Committer(store).drop_exactly(partitions).snapshot_id
    require_delete(store)
    how = keyed.delete if store.schema.primary_keys else copy_on_write.delete
    return how(store, predicate)


def update_rows(store: TableStore, given: object, values: Mapping[str, Any]) -> int | None:
    """Set ``values`` (column: literal or Arrow expression over the old row) in the rows for which ``given`` is true.

    The snapshot id, None when no row matched. Raises as :func:`delete_rows`, and ColumnNotFound.
    """
    require_writable(store)
    require_update(store, values)
    predicate = chosen_rows(store, given, "update")
    assignments = Assignments(store, values)
    how = keyed.update if store.schema.primary_keys else copy_on_write.update
    return how(store, predicate, assignments)


def upsert_rows(store: TableStore, data: Rows) -> int | None:
    """Insert ``data``, each row in place of the one with its key (partial-update: columns left out keep their values).

    The snapshot id, None without rows. Raises UnsupportedFeature, InvalidData, ColumnNotFound, CommitConflict.
    """
    require_writable(store)
    rows = as_rows(data, store.name)
    require_upsert(store, rows.schema.names)
    with TableWrite(store) as writer:
        writer.write(rows)
        messages = writer.prepare_commit()
    with discard_on_failure(store, messages):
        return Committer(store).commit(messages).snapshot_id


__all__ = ["delete_rows", "update_rows", "upsert_rows"]
