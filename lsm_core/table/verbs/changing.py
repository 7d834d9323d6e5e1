"""Verbs that change what a table says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lsm_core.table.verbs.on_table import OnTable
from lsm_core.table.writing import BatchCommit, BatchWrite, StreamCommit, StreamWrite, write_once
from lsm_core.write import Rows, row_changes


class Changing(OnTable):
    """Writes and their commits."""

    def write(
        self,
        data: Rows,
        row_kinds: pa.Array | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
    ) -> int | None:
        """Write ``data`` (anything that Arrow takes for a table) and commit; returns the snapshot id, None without rows.

        ``row_kinds``: Arrow array of "+I" "-U" "+U" "-D". ``overwrite``: True or ``{}`` replaces the table (a partitioned one:
        the partitions in ``data``, unless `dynamic-partition-overwrite` is false), a mapping that partition. Raises InvalidData, RetractNotSupported, UnsupportedFeature, CommitConflict.
        """
        return write_once(self.store, data, row_kinds, overwrite)

    def delete(self, filter: object) -> int | None:  # noqa: A002  (the public name)
        """Delete the rows for which ``filter`` is true, in one commit; returns its snapshot id, None when there were none.

        Append tables: files with such rows are rewritten; a filter over partition columns alone drops partitions. Raises
        InvalidFilter (also for no filter), UnsupportedFeature, CommitConflict when another commit changed the same rows' buckets.
        """
        return row_changes.delete_rows(self.store, filter)

    def update(self, filter: object, values: Mapping[str, Any]) -> int | None:  # noqa: A002  (the public name)
        """Set ``values`` (column: literal, or Arrow expression over the old row) where ``filter`` is true, in one commit.

        Keys, partition and bucket columns cannot be set. Returns and raises as :meth:`delete`, and InvalidData, ColumnNotFound.
        """
        return row_changes.update_rows(self.store, filter, values)

    def upsert(self, data: Rows) -> int | None:
        """Insert rows, each in place of the one with its primary key; returns the snapshot id, None without rows.

        Columns may be left out of partial-update and aggregation tables only. Raises UnsupportedFeature, InvalidData.
        """
        return row_changes.upsert_rows(self.store, data)

    def truncate(self) -> int | None:
        """Delete all rows, whoever committed them meanwhile; returns the snapshot id, None when there were none."""
        return row_changes.truncate(self.store)

    def drop_partitions(self, partitions: Sequence[Mapping[str, Any]]) -> int | None:
        """Delete all rows of the partitions that one of ``partitions`` matches; columns may be left out ([{"dt": d}]).

        Returns the snapshot id, None when there were none. Raises InvalidOption, ColumnNotFound, InvalidData, CommitConflict.
        """
        return row_changes.drop_partitions(self.store, partitions)

    def new_write(self) -> BatchWrite:
        """A writer for one batch commit; hand its messages to :meth:`new_commit`."""
        return BatchWrite(self.store)

    def new_commit(self, commit_user: str | None = None) -> BatchCommit:
        """Publishes the messages of :meth:`new_write`."""
        return BatchCommit(self.store, commit_user)

    def new_stream_write(self, commit_user: str) -> StreamWrite:
        """A writer for many commits that compacts in the background unless the table is `write-only`; use it in a ``with``."""
        return StreamWrite(self.store, commit_user)

    def new_stream_commit(self, commit_user: str) -> StreamCommit:
        """Publishes the numbered commits of ``commit_user``, each once, however often it is asked for."""
        return StreamCommit(self.store, commit_user)
