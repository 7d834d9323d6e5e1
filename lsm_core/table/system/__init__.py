"""System tables: metadata of a table ("db.t$files") or of a whole catalog ("sys.tables") as rows.

Names, types and order of the columns are those of Java Paimon 2.1 (`org.apache.paimon.table.system`), except
`$dredge_ledger`, which Java does not have. Older versions lack the last columns of some tables. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.table.system.catalog_tables import GLOBAL_TABLES, Warehouse
from lsm_core.table.system.file_tables import (
    FILES,
    KEY_RANGES,
    Buckets,
    FileIndexes,
    Files,
    Manifests,
    Partitions,
    TableIndexes,
)
from lsm_core.table.system.ledger_table import Ledger
from lsm_core.table.system.metadata_tables import (
    AggregationFields,
    Branches,
    Consumers,
    Options,
    Schemas,
    Snapshots,
    Statistics,
    Tags,
)
from lsm_core.table.system.reader import PartReader, ReadOnlyTable
from lsm_core.table.system.row_tables import AuditLog, Binlog, ReadOptimized, RowTracking
from lsm_core.table.system.view import View

SYSTEM_TABLES: Final[dict[str, View]] = {
    "snapshots": Snapshots(),
    "schemas": Schemas(),
    "options": Options(),
    "files": Files(FILES),
    "file_key_ranges": Files(KEY_RANGES),
    "file_indexes": FileIndexes(),
    "manifests": Manifests(),
    "partitions": Partitions(),
    "buckets": Buckets(),
    "tags": Tags(),
    "branches": Branches(),
    "consumers": Consumers(),
    "statistics": Statistics(),
    "aggregation_fields": AggregationFields(),
    "table_indexes": TableIndexes(),
    "audit_log": AuditLog(),
    "binlog": Binlog(),
    "ro": ReadOptimized(),
    "row_tracking": RowTracking(),
    "dredge_ledger": Ledger(),
}
"""System tables by the name after the "$". Calling one with a store (and a snapshot id) returns all of its rows."""


class SystemTable(ReadOnlyTable):
    """Read-only view of one table ("db.orders$files"), with the reading methods of a table."""

    def __init__(self, store: TableStore, system: str) -> None:
        self.store, self.system, self._view = store, system, SYSTEM_TABLES[system]

    def __repr__(self) -> str:
        return f"SystemTable({self.name!r})"

    @property
    def name(self) -> str:
        """Name of the system table, such as "db.orders$files"."""
        return f"{self.store.name}${self.system}"

    def refresh(self) -> SystemTable:
        """Open the view again over the table's newest schema. Raises TableNotFound, InvalidOption."""
        return SystemTable(self.store.refresh(), self.system)

    def copy(self, options: Mapping[str, str | None]) -> SystemTable:
        """Return the same view of the table with dynamic options; a value of None removes its option.

        Raises InvalidOption for an option that is fixed.
        """
        return SystemTable(self.store.copy(options), self.system)

    def _open(self, named: Mapping[str, Any]) -> tuple[TableSchema, PartReader]:
        self.store.require_same()
        version = self._view.version(self.store, named)
        return self._view.schema(version.store), lambda selection: self._view.read_parts(version, selection)


class GlobalTable(ReadOnlyTable):
    """Read-only view of a catalog ("sys.tables"), with the reading methods of a table."""

    def __init__(self, warehouse: Warehouse, table: str) -> None:
        self._warehouse, self.system = warehouse, table

    def __repr__(self) -> str:
        return f"GlobalTable({self.name!r})"

    @property
    def name(self) -> str:
        """Name of the system table, such as "sys.tables"."""
        return f"sys.{self.system}"

    def refresh(self) -> GlobalTable:
        """Return the view itself, because each read lists the catalog again."""
        return self

    def _open(self, named: Mapping[str, Any]) -> tuple[TableSchema, PartReader]:
        for key, value in named.items():
            if value is not None:
                raise InvalidOption(key, value, "no value, because this system table has no versions", self.name)
        schema, rows = GLOBAL_TABLES[self.system]
        return schema, lambda _: rows(self._warehouse)
