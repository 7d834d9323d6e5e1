"""Rows that were rows of the table before, merged: written again as they stand, into whatever buckets they belong to now."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.metadata.store import TableStore
from lsm_core.types.nesting import refit_table
from lsm_core.write.rows import RowNumbering
from lsm_core.write.table_write import TableWrite


class StoredRows(TableWrite):
    """A writer that takes rows for what they say: no defaults for nulls, counted columns hold counts already.

    Partitions are written afresh: sequence numbers start at 0. ``store`` may have other buckets than the table.
    """

    def __init__(self, store: TableStore) -> None:
        super().__init__(store, overwrite=True)

    def _conform(self, piece: pa.Table, given: RowNumbering) -> pa.Table:
        del given
        # Arrow's own cast also refuses the nulls that merging left in NOT NULL columns
        return refit_table(piece.select(self.store.schema.field_names), self.store.schema.arrow_schema)

    def _merged_inputs(
        self, table: pa.Table, kinds: pa.Array | None, given: RowNumbering
    ) -> tuple[pa.Table, pa.Array | None]:
        del given
        return table, kinds


__all__ = ["StoredRows"]
