"""Databases and tables listed in a SQL database, in the SQL tables of Java's `JdbcCatalog`; Java shares the catalog.

The SQL rows list the databases and tables; the directories of tables are the same as in a filesystem catalog.

Source: Paimon `JdbcUtils`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from lsm_core.errors import InvalidData, InvalidSchema, MetastoreFailed
from lsm_core.format.schema import TableSchema
from lsm_core.locks.database import Database, Statements
from lsm_core.metadata.branches import MAIN
from lsm_core.storage import FileIO, check_name
from lsm_core.table.metastore import FolderMetastore
from lsm_core.table.names import DATABASE_SUFFIX, TableName, checked_database

_LOG = logging.getLogger(__name__)
_CREATE: Final = (
    (
        "CREATE TABLE IF NOT EXISTS paimon_tables (catalog_key VARCHAR(255) NOT NULL, database_name VARCHAR(255) NOT "
        "NULL,"
        " table_name VARCHAR(255) NOT NULL, PRIMARY KEY (catalog_key, database_name, table_name))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS paimon_database_properties (catalog_key VARCHAR(255) NOT NULL, database_name "
        "VARCHAR(255) NOT NULL,"
        " property_key VARCHAR(255), property_value VARCHAR(1000), PRIMARY KEY (catalog_key, database_name, "
        "property_key))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS paimon_table_properties (catalog_key VARCHAR(255) NOT NULL, database_name "
        "VARCHAR(255) NOT NULL,"
        " table_name VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000),"
        " PRIMARY KEY (catalog_key, database_name, table_name, property_key))"
    ),
)
_LONGEST_KEY, _LONGEST_VALUE = 255, 1000
_DATABASES: Final = (
    "SELECT database_name FROM paimon_tables WHERE catalog_key = :key"
    " UNION SELECT database_name FROM paimon_database_properties WHERE catalog_key = :key"
)
_HAS_DATABASE: Final = (
    "SELECT 1 FROM paimon_tables WHERE catalog_key = :key AND database_name = :database"
    " UNION SELECT 1 FROM paimon_database_properties WHERE catalog_key = :key AND database_name = :database"
)
_ADD_DATABASE: Final = (
    "INSERT INTO paimon_database_properties (catalog_key, database_name, property_key, property_value)"
    " VALUES (:key, :database, :name, :value) ON CONFLICT DO NOTHING"
)
_REMOVE_DATABASE: Final = (
    "DELETE FROM paimon_tables WHERE catalog_key = :key AND database_name = :database",
    "DELETE FROM paimon_database_properties WHERE catalog_key = :key AND database_name = :database",
    "DELETE FROM paimon_table_properties WHERE catalog_key = :key AND database_name = :database",
)
_TABLES: Final = "SELECT table_name FROM paimon_tables WHERE catalog_key = :key AND database_name = :database"
_HAS_TABLE: Final = (
    "SELECT 1 FROM paimon_tables WHERE catalog_key = :key AND database_name = :database AND table_name = :table"
)
_ADD_TABLE: Final = (
    "INSERT INTO paimon_tables (catalog_key, database_name, table_name) VALUES (:key, :database, :table) "
    "ON CONFLICT DO NOTHING"
)
_REMOVE_TABLE: Final = (
    "DELETE FROM paimon_tables WHERE catalog_key = :key AND database_name = :database AND table_name = :table"
)
_RENAME_TABLE: Final = (
    "UPDATE paimon_tables SET database_name = :to_database, table_name = :to_table"
    " WHERE catalog_key = :key AND database_name = :database AND table_name = :table"
)
_REMOVE_PROPERTIES: Final = (
    "DELETE FROM paimon_table_properties WHERE catalog_key = :key AND database_name = :database AND table_name = :table"
)
_RENAME_PROPERTIES: Final = (
    "UPDATE paimon_table_properties SET database_name = :to_database, table_name = :to_table"
    " WHERE catalog_key = :key AND database_name = :database AND table_name = :table"
)
_ADD_PROPERTY: Final = (
    "INSERT INTO paimon_table_properties (catalog_key, database_name, table_name, property_key, property_value)"
    " VALUES (:key, :database, :table, :name, :value)"
)


class JdbcMetastore(FolderMetastore):
    """Metastore that lists databases and tables in a SQL database; their directories are in the warehouse.

    All methods raise MetastoreFailed when the database cannot be used.

    Args:
        file_io: storage of the warehouse.
        root: path of the warehouse.
        address: path or URL of the warehouse in the form that Java engines store.
        database: connections to the database.
        key: the catalog's `catalog-key`.
        properties: whether the tables' options are kept in the database too (`sync-all-properties`).
    """

    takes_folders = True

    def __init__(
        self, file_io: FileIO, root: str, address: str, database: Database, key: str, *, properties: bool
    ) -> None:
        super().__init__(file_io, root)
        self._address, self._database, self._key, self._properties = address.rstrip("/"), database, key, properties
        for statement in _CREATE:
            with self._database.transaction() as sql:
                sql.run(statement)

    def databases(self) -> list[str]:
        """Return the names of the databases that the SQL database lists, sorted.

        Names that cannot be directories are left out, with a warning in the log.
        """
        with self._database.transaction() as sql:
            names = [str(name) for (name,) in sql.rows(_DATABASES, key=self._key)]
        return sorted(name for name in names if _fits(name, database=True))

    def has_database(self, name: str) -> bool:
        """Return whether the SQL database lists the database ``name``."""
        with self._database.transaction() as sql:
            return bool(sql.rows(_HAS_DATABASE, key=self._key, database=checked_database(name)))

    def add_database(self, name: str) -> None:
        """Add a new database to the SQL database.

        The directory is created too, for filesystem catalogs of the same warehouse.
        """
        super().add_database(name)
        properties = {"exists": "true", "location": f"{self._address}/{name}{DATABASE_SUFFIX}"}
        with self._database.transaction() as sql:
            for property_name, value in properties.items():
                sql.run(_ADD_DATABASE, key=self._key, database=name, name=property_name, value=value)

    def remove_database(self, name: str) -> None:
        """Remove a database with all its tables.

        The SQL rows are deleted first, as in Java, so a partly removed database is not listed.
        """
        with self._database.transaction() as sql:
            for statement in _REMOVE_DATABASE:
                sql.run(statement, key=self._key, database=name)
        if self.file_io.exists(self.database_path(name)):
            super().remove_database(name)

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables that the SQL database lists for ``database``, sorted.

        Names that cannot be directories are left out, with a warning in the log.
        """
        with self._database.transaction() as sql:
            names = [str(name) for (name,) in sql.rows(_TABLES, key=self._key, database=database)]
        return sorted(name for name in names if _fits(name, database=False))

    def has_table(self, name: TableName) -> bool:
        """Return whether the SQL database lists the table ``name``."""
        with self._database.transaction() as sql:
            return bool(sql.rows(_HAS_TABLE, **self._of(name)))

    def write_schema(self, name: TableName, schema: TableSchema, branch: str = MAIN) -> bool:
        """Create a schema file and, on the main branch, write the table's SQL rows; the first schema creates the table.

        If the SQL row of a new table cannot be written, its schema file is removed again.

        Returns:
            False when another writer created the schema with this id.
        """
        if not super().write_schema(name, schema, branch):
            return False
        if branch != MAIN:
            return True
        try:
            with self._database.transaction() as sql:
                if schema.id == 0:
                    sql.run(_ADD_TABLE, **self._of(name))
                self._write_properties(sql, name, schema)
        except MetastoreFailed as error:
            if schema.id:  # altered it is: its schema file says what counts, the properties only repeat it
                _LOG.warning("table %s: its options in the catalog's database stay as they were: %s", name, error)
            elif not self._listed_after_all(name):
                self.file_io.delete(f"{self._path(name)}/schema/schema-0")
                raise
        return True

    def accepts_folder(self, name: str, folder: str) -> bool:
        """Return whether a folder is that of a table of the warehouse.

        Args:
            name: "db.table".
            folder: the folder.
        """
        return folder == self._path(TableName.parse(name))

    def enter_table(self, name: str, schema: TableSchema) -> None:
        """Write the SQL rows of a table whose folder exists, and of its database; existing rows stay.

        Args:
            name: "db.table".
            schema: newest schema of the table.
        """
        parsed = TableName.parse(name)
        if not self.has_database(parsed.database):
            self.add_database(parsed.database)
        with self._database.transaction() as sql:
            sql.run(_ADD_TABLE, **self._of(parsed))
            self._write_properties(sql, parsed, schema)

    def _listed_after_all(self, name: TableName) -> bool:
        """Return whether the SQL database lists the table although it reported a failure while the table was added.

        Raises MetastoreFailed, which names the table's folder, if the database cannot be read.
        """
        try:
            return self.has_table(name)
        except MetastoreFailed as error:
            where = self._path(name)
            reason = (
                f"{error.reason}; table {name} lies at {where} and may not be listed: drop it, or remove that folder"
            )
            raise MetastoreFailed(error.address, reason) from error

    def _write_properties(self, sql: Statements, name: TableName, schema: TableSchema) -> None:
        if not self._properties:
            return
        sql.run(_REMOVE_PROPERTIES, **self._of(name))
        for property_name, value in _properties_of(schema).items():
            # What Paimon's columns cannot hold is left out: these rows are for people and tools, no
            # reader of a table needs them.
            if len(property_name) <= _LONGEST_KEY and len(value) <= _LONGEST_VALUE:
                sql.run(_ADD_PROPERTY, **self._of(name), name=property_name, value=value)

    def remove_table(self, name: TableName) -> None:
        """Remove a table with all its files.

        The SQL rows are deleted first, as in Java, so a partly removed table is not listed.
        """
        with self._database.transaction() as sql:
            sql.run(_REMOVE_TABLE, **self._of(name))
            sql.run(_REMOVE_PROPERTIES, **self._of(name))
        if self.file_io.exists(self._path(name)):
            super().remove_table(name)

    def move_table(self, name: TableName, to: TableName) -> bool:
        """Rename a table to ``to``; the SQL rows change only if the directory was moved.

        Returns:
            False when a table has the new name.
        """
        target = {"to_database": to.database, "to_table": to.table}
        moved = False
        try:
            with self._database.transaction() as sql:
                sql.run(_RENAME_TABLE, **self._of(name), **target)
                sql.run(_RENAME_PROPERTIES, **self._of(name), **target)
                moved = super().move_table(name, to)
                if not moved:
                    raise _TargetExists
        except _TargetExists:
            return False
        except MetastoreFailed:
            if moved:
                super().move_table(to, name)
            raise
        return True

    def _of(self, name: TableName) -> dict[str, str]:
        return {"key": self._key, "database": name.database, "table": name.table}


class _TargetExists(Exception):
    """Error that rolls back a transaction if the table's directory could not be moved."""


def _properties_of(schema: TableSchema) -> Mapping[str, str]:
    """Return the properties that Java keeps of a table: its options and its keys."""
    keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys, "bucket-key": schema.bucket_keys}
    return {**schema.options, **{name: ",".join(columns) for name, columns in keys.items() if columns}}


def _fits(name: str, *, database: bool) -> bool:
    """Return whether a name in the SQL database can be a directory of the warehouse; log a warning if not.

    Args:
        name: name of a database or table.
        database: whether it is the name of a database.
    """
    try:
        check_name(checked_database(name) if database else name)
    except (InvalidData, InvalidSchema) as error:
        _LOG.warning("left out of the catalog: %s", error)
        return False
    return True
