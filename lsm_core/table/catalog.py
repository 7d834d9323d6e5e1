"""A warehouse on a file system: its databases and tables, found, created, renamed and dropped (Java `FileSystemCatalog`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from lsm_core.clock import Clock, clock_from
from lsm_core.errors import (
    DatabaseExists,
    DatabaseNotFound,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
    WriterStale,
)
from lsm_core.metadata import schemas, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.options import CatalogOptions
from lsm_core.storage import file_io_for, inside_really
from lsm_core.table.definition import Schema, check_options, new_table_schema
from lsm_core.table.names import DATABASE_SUFFIX, TableName, checked_database
from lsm_core.table.schema_change import SchemaChange, changed
from lsm_core.table.system import SYSTEM_TABLES, SystemTable
from lsm_core.table.table import Table

_ALTER_ATTEMPTS = 10


class Catalog:
    """The tables below ``warehouse`` (a path or file URL). ``clock`` stamps what its tables write (default: the system's).

    Raises UnsupportedFeature for other storage, InvalidOption for options it cannot use.
    """

    def __init__(
        self,
        warehouse: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        clock: Clock | str | None = None,
    ) -> None:
        self.options = CatalogOptions({"warehouse": os.fspath(warehouse), **(options or {})})
        self.file_io, root = file_io_for(warehouse)
        self.root = root.rstrip("/")
        self.clock: Clock = clock_from(clock)

    def __repr__(self) -> str:
        return f"Catalog({self.root!r})"

    # -- databases -------------------------------------------------------------------------------------------------

    def _database_path(self, name: str) -> str:
        return f"{self.root}/{checked_database(name)}{DATABASE_SUFFIX}"

    def create_database(self, name: str, ignore_if_exists: bool = False) -> None:
        """Create a database. Raises DatabaseExists unless ``ignore_if_exists``."""
        path = self._database_path(name)
        if self.file_io.exists(path):
            if ignore_if_exists:
                return
            raise DatabaseExists(f"database {name} is already in {self.root}")
        self.file_io.mkdirs(path)

    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""
        found = (s.name for s in self.file_io.list_dir(self.root) if s.is_dir and s.name.endswith(DATABASE_SUFFIX))
        return sorted(name.removesuffix(DATABASE_SUFFIX) for name in found if name != DATABASE_SUFFIX)

    def drop_database(self, name: str, ignore_if_not_exists: bool = False) -> None:
        """Drop an empty database. Raises DatabaseNotFound, and DatabaseExists while it still holds tables."""
        path = self._database_path(name)
        if not self.file_io.exists(path):
            if ignore_if_not_exists:
                return
            raise DatabaseNotFound(f"database {name} is not in {self.root}")
        tables = self.list_tables(name)
        if tables:
            raise DatabaseExists(f"database {name} still holds {len(tables)} tables: {', '.join(tables[:5])}")
        self.file_io.delete_dir(inside_really(self.root, path))

    # -- tables ----------------------------------------------------------------------------------------------------

    def _table_path(self, name: TableName) -> str:
        path = self._database_path(name.database)
        if not self.file_io.exists(path):
            known = ", ".join(self.list_databases()) or "none"
            raise DatabaseNotFound(f"database {name.database} is not in {self.root}; it has: {known}")
        return f"{path}/{name.table}"

    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of one database, sorted. Raises DatabaseNotFound."""
        path = self._database_path(database)
        if not self.file_io.exists(path):
            raise DatabaseNotFound(f"database {database} is not in {self.root}")
        folders = (status for status in self.file_io.list_dir(path) if status.is_dir)
        return sorted(f.name for f in folders if schemas.list_schema_ids(self.file_io, f.path))

    def create_table(self, name: str, schema: Schema, ignore_if_exists: bool = False) -> Table:
        """Create a table and return it. Raises InvalidSchema, InvalidOption, UnsupportedFeature, DatabaseNotFound, TableExists.

        Everything is checked before anything is written.
        """
        parsed = self._plain(name)
        path = self._table_path(parsed)
        schema = replace(schema, options={**self.options.table_defaults, **schema.options})
        first = new_table_schema(schema, str(parsed), self.clock)
        require_writable(TableStore(self.file_io, path, str(parsed), first, None, self.clock))
        if schemas.list_schema_ids(self.file_io, path) or not schemas.write_schema(self.file_io, path, first):
            if ignore_if_exists:
                return self.table(name)
            raise TableExists(f"table {parsed} is already in {self.root}")
        return self.table(name)

    def table(self, name: str) -> Table:
        """Open "db.table", or a `SystemTable` "db.table$files" (read-only). Raises TableNotFound, DatabaseNotFound, UnsupportedFeature."""
        parsed = TableName.parse(name)
        path = self._table_path(parsed)
        plain = f"{parsed.database}.{parsed.table}"
        if not schemas.list_schema_ids(self.file_io, path):
            known = ", ".join(self.list_tables(parsed.database)) or "none"
            raise TableNotFound(f"table {plain} is not in {self.root}; database {parsed.database} has: {known}")
        store = TableStore.open(self.file_io, path, plain, self.clock)
        if not parsed.system:
            return Table(store)
        if parsed.system not in SYSTEM_TABLES:
            raise UnsupportedFeature(f"system table ${parsed.system}; there are ${', $'.join(SYSTEM_TABLES)}", plain)
        # Nearly all callers open plain tables: they get the facade's type, without a test that never fails.
        return cast("Table", SystemTable(store, parsed.system))

    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> None:
        """Change options or comment of a table, all or nothing (api.md); other changes raise UnsupportedFeature.

        Raises TableNotFound, InvalidOption, UnsupportedFeature, WriterStale when others keep changing it at the same time.
        """
        parsed = self._plain(name)
        for _ in range(_ALTER_ATTEMPTS):
            store = self.table(str(parsed)).store
            wanted = changed(store.schema, changes, str(parsed), snapshots.latest_id(store) is not None)
            if wanted == store.schema:
                return
            check_options(wanted, str(parsed))
            following = replace(wanted, id=store.schema.id + 1, time_millis=self.clock.now_ms())
            require_writable(TableStore(self.file_io, store.root, str(parsed), following, None, self.clock))
            if schemas.write_schema(self.file_io, store.root, following):
                return
        raise WriterStale(f"table {parsed} was altered {_ALTER_ATTEMPTS} times by others meanwhile")

    def drop_table(self, name: str, ignore_if_not_exists: bool = False) -> None:
        """Delete a table with everything below its directory. Raises TableNotFound."""
        path = self._existing(name, ignore_if_not_exists)
        if path is not None:
            self.file_io.delete_dir(inside_really(self.root, path))

    def rename_table(self, name: str, to: str) -> None:
        """Rename a table; its directory moves with it. Raises TableNotFound, TableExists."""
        path = self._existing(name, ignore=False)
        target = self._table_path(self._plain(to))
        if path is None or not self.file_io.rename(path, target):
            raise TableExists(f"table {to} is already in {self.root}")

    def _plain(self, name: str) -> TableName:
        parsed = TableName.parse(name)
        if parsed.system:
            raise UnsupportedFeature(f"changing the system table ${parsed.system}", str(parsed))
        return parsed

    def _existing(self, name: str, ignore: bool) -> str | None:
        parsed = self._plain(name)
        path = self._table_path(parsed)
        if schemas.list_schema_ids(self.file_io, path):
            return path
        if ignore:
            return None
        raise TableNotFound(f"table {parsed} is not in {self.root}")
