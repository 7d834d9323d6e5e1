"""System tables: what a table knows about itself, as rows ("db.t$snapshots", "db.t$files")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lsm_core.errors import ColumnNotFound
from lsm_core.metadata.store import TableStore
from lsm_core.table.system.files import files_table
from lsm_core.table.system.snapshots import snapshots_table

SYSTEM_TABLES = {"snapshots": snapshots_table, "files": files_table}


class SystemTable:
    """A read-only view of metadata, with the reading methods of a table."""

    def __init__(self, store: TableStore, system: str) -> None:
        self.store, self.system = store, system

    def __repr__(self) -> str:
        return f"SystemTable({self.name!r})"

    @property
    def name(self) -> str:
        """ "db.table$system"."""
        return f"{self.store.name}${self.system}"

    @property
    def options(self) -> Mapping[str, str]:
        """System tables have none."""
        return {}

    def to_arrow(
        self, columns: Sequence[str] | None = None, limit: int | None = None, snapshot_id: int | None = None
    ) -> pa.Table:
        """The rows; columns as in Paimon. Raises ColumnNotFound, SnapshotNotFound, CorruptFile."""
        rows = SYSTEM_TABLES[self.system](self.store, snapshot_id)
        for column in columns or ():
            if column not in rows.column_names:
                raise ColumnNotFound(self.name, column, rows.column_names)
        rows = rows if columns is None else rows.select(list(columns))
        return rows if limit is None else rows.slice(0, limit)

    def to_batches(
        self, columns: Sequence[str] | None = None, limit: int | None = None, snapshot_id: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows, as batches."""
        return iter(self.to_arrow(columns, limit, snapshot_id).to_batches())


__all__ = ["SYSTEM_TABLES", "SystemTable", "files_table", "snapshots_table"]
