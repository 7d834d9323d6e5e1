"""Databases and tables that a Hive metastore lists; schemas and snapshots are files in the tables' folders.

The metastore names the folder of each table. Its answers are not trusted: a folder is used only if it is an absolute
place that holds a Paimon schema and belongs to no other entry, and nothing is deleted that did not prove to be the
table's own. The metastore itself is never told to delete files.

Source: Paimon `HiveCatalog`.
"""

from __future__ import annotations

import logging
import os
import posixpath
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pymetastore.hive_metastore.ttypes import Database, GetTableRequest, GetTablesRequest, Table

from lsm_core.clock import Clock
from lsm_core.errors import (
    CorruptFile,
    DatabaseExists,
    DatabaseNotFound,
    InvalidSchema,
    MetastoreFailed,
    StorageRefused,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.format.schema import TableSchema
from lsm_core.locks.hive_client import CallUnknown, HiveClient, HiveRefusal
from lsm_core.locks.hive_columns import has_local_timestamps
from lsm_core.locks.hive_connection import system_user
from lsm_core.locks.hive_lock import share_client
from lsm_core.metadata import store as stores
from lsm_core.metadata.branches import MAIN
from lsm_core.storage import FileIO, file_io_for, inside_really, is_link, place_of
from lsm_core.table import hive_entries as entries
from lsm_core.table.hive_partitions import HivePartitions
from lsm_core.table.locations import checked_folder, folder_text
from lsm_core.table.metastore import ChangeUnknown, is_served_name, send_change
from lsm_core.table.names import DATABASE_SUFFIX, TableName, checked_database, checked_table
from lsm_core.table.schema_change import SchemaChange

_LOG = logging.getLogger(__name__)
_AHEAD_SECONDS: Final = 60.0
_KEEP_FILES, _NO_CASCADE = False, False
_ALL: Final = -1
_TYPES: Final = "types incompatible"
_COLUMN_TYPES: Final = "hive.metastore.disallow.incompatible.col.type.changes"
_BAD_NAME: Final = "is not a valid"
_TAG_PARTITIONS: Final = "metastore.tag-to-partition"


@dataclass(frozen=True)
class HiveTable:
    """A table as the metastore describes it.

    Attributes:
        path: absolute path or address of the table's folder.
        is_external: whether the files stay when the table is dropped.
    """

    path: str
    is_external: bool


@dataclass(frozen=True)
class HiveRules:
    """Options of the catalog that decide how entries are written.

    Attributes:
        in_properties: whether locations are properties (`location-in-properties`).
        external: whether new tables are external (`table.type` = external).
        sync: whether all table options become properties (`sync-all-properties`).
        cascade: whether a change of columns also changes those of partitions (`alter-table-cascade`).
        skips_statistics: whether the metastore keeps its statistics when a table is altered (`hive.skip-update-stats`).
    """

    in_properties: bool = False
    external: bool = False
    sync: bool = True
    cascade: bool = True
    skips_statistics: bool = False


class HiveMetastore:
    """Databases and tables of one Hive metastore.

    All methods raise MetastoreFailed when the metastore cannot be used or refuses the operation.

    Attributes:
        root: folder of the warehouse, or the address of the metastore if no folder is named.
        warehouse: folder of new databases, or "".
        takes_folders: True: copies of tables in the folder of their database can be entered.

    Args:
        client: the client of the metastore.
        warehouse: folder of new databases, or "" to let the metastore choose it.
        storage: settings for access to the object store.
        rules: options that decide how entries are written.
        clock: clock for the times of entries.
    """

    takes_folders = True

    def __init__(
        self, client: HiveClient, warehouse: str, storage: Mapping[str, str], rules: HiveRules, clock: Clock
    ) -> None:
        self._client, self._storage, self._rules, self._clock = client, dict(storage), rules, clock
        self.warehouse = warehouse
        self._ahead: dict[str, tuple[float, HiveTable]] = {}
        self._has_local_timestamps: bool | None = None
        self.root = warehouse or client.address
        share_client(client)

    @property
    def address(self) -> str:
        """Addresses of the metastore, for messages."""
        return self._client.address

    # -- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """Return the folder of a database; for one that does not exist, the folder that it would get.

        Raises:
            InvalidSchema: the name cannot be a database's.
            MetastoreFailed: the metastore names an unsafe folder.
        """
        entry = self._find_database(name)
        if entry is None:
            return f"{self.root}/{name}{DATABASE_SUFFIX}"
        return self._database_folder(name, entry)

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted; unsafe names are left out, with a warning in the log."""
        names = self._ask("get_all_databases")
        return sorted({name for name in self._texts(names, "databases") if is_served_name(name, checked_database)})

    def has_database(self, name: str) -> bool:
        """Return whether the metastore lists a database."""
        return self._find_database(name) is not None

    def add_database(self, name: str) -> None:
        """Create a database. Raises InvalidSchema for a name that Hive would change."""
        _require_lower_case(checked_database(name), f"database {name!r}")
        location = folder_text(f"{self.warehouse}/{name}{DATABASE_SUFFIX}") if self.warehouse else ""
        entry = entries.new_database(name, location, in_properties=self._rules.in_properties)

        def create() -> None:
            try:
                self._client.change("create_database", entry)
            except HiveRefusal as refusal:
                if not refusal.is_presence:
                    raise
                _LOG.info("database %s was created meanwhile by another client", name)

        if self._rules.in_properties and location:
            self.folder_io(self.warehouse).mkdirs(f"{self.warehouse}/{name}{DATABASE_SUFFIX}")
        self._change(create, lambda: self.has_database(name), f"creation of database {name}")

    def remove_database(self, name: str) -> None:
        """Remove a database with all its Paimon tables; its folder is removed if it is then empty.

        Raises:
            DatabaseExists: the database has entries of other kinds; nothing was removed.
            StorageRefused: the folder of a table is not the table's own; nothing was removed.
        """
        names = self.tables(name)
        others = sorted(set(self._all_names(name)) - set(names))
        if others:
            first = self._entries(name, others[:5])
            shown = ", ".join(f"{entry.tableName} ({entries.kind_of(entry)})" for entry in first)
            raise DatabaseExists(f"database {name} has {len(others)} other entries: {shown:.500}; drop them first")
        folder, places = self.database_path(name), list(self._places())
        tables = [TableName(name, table) for table in names]
        for table in tables:
            self._require_own_folder(table, self.served(table), places)
        for table in tables:
            self._remove(table, self.served(table))

        def drop() -> None:
            try:
                self._client.change("drop_database", checked_database(name), _KEEP_FILES, _NO_CASCADE)
            except HiveRefusal as refusal:
                if not refusal.is_absence:
                    raise

        self._change(drop, lambda: not self.has_database(name), f"drop of database {name}")
        self.folder_io(folder).delete_empty_dir(folder)

    # -- tables ----------------------------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        """Return the names of the Paimon tables of a database, sorted; unsafe names are left out, with a warning."""
        names = self._paimon_names(database)
        return sorted({name for name in names if "$" not in name and is_served_name(name, checked_table)})

    def other_tables(self, database: str) -> dict[str, str]:
        """Return the kind of each entry of a database that is no Paimon table, by its name."""
        others = sorted(set(self._all_names(database)) - set(self._paimon_names(database)))
        listed = {str(entry.tableName): entry for entry in self._entries(database, others)}
        return {name: entries.kind_of(entry) for name, entry in listed.items() if not entries.is_paimon(entry)}

    def read_ahead(self, database: str) -> None:
        """Read the entries of all tables of a database in batches; the next look at each table uses its folder.

        Each folder is used once, within a minute. An entry that cannot be used is read again by the next look.
        """
        now = time.monotonic()
        self._ahead = {name: pair for name, pair in list(self._ahead.items()) if now < pair[0]}
        for entry in self._entries(database, self._paimon_names(database)):
            try:
                name = TableName.parse(f"{database}.{entry.tableName}")
                if entries.is_paimon(entry):
                    self._ahead[name.plain] = now + _AHEAD_SECONDS, self._described(name, entry)
            except (InvalidSchema, MetastoreFailed) as error:
                _LOG.debug("not read ahead: %s", error)

    def folders_without_schema(self, database: str, tables: Collection[str]) -> list[str]:
        """Return no names: a table exists if the metastore lists it."""
        del database, tables
        return []

    def lacks_schema(self, name: TableName) -> bool:
        """Return False: a table exists if the metastore lists it."""
        del name
        return False

    def has_table(self, name: TableName) -> bool:
        """Return whether the metastore lists a table.

        Raises:
            UnsupportedFeature: an entry of another kind has the name.
        """
        return self._find_table(name) is not None

    def served(self, name: TableName) -> HiveTable:
        """Return a table as the metastore describes it.

        Raises:
            TableNotFound: the table does not exist.
            DatabaseNotFound: the database does not exist.
            UnsupportedFeature: the entry is of another kind, such as a view or an Iceberg table.
            MetastoreFailed: the metastore names an unsafe folder.
        """
        ends, table = self._ahead.pop(name.plain, (0.0, None))
        if table is not None and time.monotonic() < ends:
            return table
        return self._described(name, self._entry(name))

    def folder_io(self, path: str) -> FileIO:
        """Return access to the files of a folder. Raises UnsupportedFeature if its storage is not offered."""
        is_elsewhere = place_of(path) != place_of(self.warehouse)
        return file_io_for(path, self._storage, escaped=False, from_server=is_elsewhere)[0]

    def folder(self, name: TableName) -> tuple[FileIO, str, None]:
        """Return access to the files of a table, and its folder; clients publish its snapshots.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
            UnsupportedFeature: the entry is of another kind.
            CorruptFile: the folder has no schema, or is not the table's.
            MetastoreFailed: the metastore names an unsafe folder.
        """
        table = self.served(name)
        try:
            self.require_folder(name, table, name.branch)
        except CorruptFile:  # an entry that was read ahead may be outdated
            table = self.served(name)
            self.require_folder(name, table, name.branch)
        return self.folder_io(table.path), table.path, None

    def require_folder(self, name: TableName, table: HiveTable, branch: str = MAIN) -> None:
        """Check that the folder that the metastore names is the folder of a table, and of no other one.

        Raises:
            TableNotFound: the table has no such branch.
            CorruptFile: the folder has no schema, or is the folder of the warehouse or of another entry.
        """
        file_io = self.folder_io(table.path)
        if self.warehouse and _is_inside(self.warehouse, table.path):
            reason = f"the Hive metastore says that table {name.plain} is here, but this folder holds the warehouse"
            raise CorruptFile(table.path, reason)
        if not stores.list_schema_ids(file_io, table.path):
            reason = f"the Hive metastore says that table {name.plain} is here"
            raise CorruptFile(table.path, f"{reason}, but the folder has no file in schema/")
        owner = self._usual_owner(name, table.path)
        if owner is not None:
            reason = f"the Hive metastore says that table {name.plain} is here, but this is the folder of table {owner}"
            raise CorruptFile(table.path, f"{reason}; drop the wrong entry with the engine that made it")
        if branch != MAIN and not stores.list_schema_ids(file_io, table.path, branch):
            raise TableNotFound(f"table {name.plain} has no branch '{branch}'")

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """Create a table: its first schema file, then its entry.

        Returns:
            False when a table has the name.

        Raises:
            DatabaseNotFound: the database does not exist.
            TableExists: the folder holds a table that the metastore does not list.
            InvalidSchema: Hive would change the name, or an external table has another schema.
            UnsupportedFeature: an entry of another kind has the name, or Hive has no type for a column.
        """
        _require_lower_case(name.table, f"table {name.plain}")
        self._require_no_tag_partitions(name, schema)
        if self.has_table(name):
            return False
        external = entries.wants_external(schema.options, default=self._rules.external)
        location = f"{self._database_location(name.database)}/{name.table}"
        path = checked_folder(location, f"table {name}", self._client.address)
        entry = self._new_entry(name, schema, location, external=external)
        file_io = self.folder_io(path)
        written = self._write_first_schema(file_io, path, name, schema, external=external)
        if written is None:
            return False
        try:
            created = self._enter(name, entry, path)
        except ChangeUnknown:
            raise
        except MetastoreFailed:
            if written:
                _take_back(file_io, path)
            raise
        if not created and written:
            _take_back(file_io, path)
        return created

    def alter_table(
        self, name: TableName, branch: str, before: TableSchema, changes: Sequence[SchemaChange], after: TableSchema
    ) -> bool:
        """Write the schema of an altered table, and keep the columns and properties of its entry in step.

        If the metastore refuses the new entry, the schema file is removed again, as in Java.

        Returns:
            False when another writer created the schema with this id.

        Raises:
            UnsupportedFeature: Hive has no type for a column.
            InvalidSchema: the metastore refuses the change, such as an incompatible type of a column.
        """
        del changes
        self._require_no_tag_partitions(name, after)
        present = self._entry(name)
        table = self._described(name, present)
        self.require_folder(name, table, branch)
        file_io = self.folder_io(table.path)
        known = self._knows_local_timestamps(after)
        rules = self._rules
        entry = entries.altered_table(
            present,
            before,
            after,
            entries.location_of(present, in_properties=rules.in_properties),
            in_properties=rules.in_properties,
            sync=rules.sync,
            has_local_timestamps=known,
        )
        if not stores.write_schema(file_io, table.path, after, branch):
            return False
        if branch != MAIN:
            return True
        try:
            self._alter_entry(name, entry)
        except ChangeUnknown:
            raise
        except (HiveRefusal, MetastoreFailed) as error:
            file_io.delete(stores.schema_path(table.path, after.id, branch))
            if isinstance(error, MetastoreFailed):
                raise
            hint = f"; the metastore's setting {_COLUMN_TYPES} = false allows it" if _TYPES in error.message else ""
            reason = f"the Hive metastore refuses the change: {error.message}{hint}"
            raise InvalidSchema(f"table {name}: {reason}") from error
        return True

    def remove_table(self, name: TableName) -> None:
        """Drop a table: its entry, then its folder; the files of an external table stay.

        Raises:
            CorruptFile: the folder has content, but no schema; nothing was removed.
            StorageRefused: the folder is a link, or not the table's own; nothing was removed.
        """
        table = self.served(name)
        self._require_own_folder(name, table, list(self._places()))
        self._remove(name, table)

    def move_table(self, name: TableName, to: TableName) -> bool:
        """Rename a table; the folder of a table that is not external moves with it.

        The metastore moves the folder. If it does not, Dredge moves the folder to the place that the metastore names.

        Returns:
            False when a table has the new name.

        Raises:
            InvalidSchema: Hive would change the new name.
            StorageRefused: the folder is a link, or not the table's own; nothing was changed.
        """
        _require_lower_case(to.table, f"table {to.plain}")
        present = self._entry(name)
        table = self._described(name, present)
        self._require_own_folder(name, table, list(self._places()))
        self.require_folder(name, table)
        if self.has_table(to):
            return False
        expected = f"{self.database_path(to.database)}/{to.table}"
        if not table.is_external and self.folder_io(expected).exists(expected):
            raise TableExists(f"table {to}: its folder {expected} exists already; remove or move it first")
        entry = entries.renamed_table(present, to.database, to.table)

        def rename() -> None:
            self._client.change(
                "alter_table_with_environment_context",
                name.database,
                name.table,
                entry,
                entries.change_context(cascade=False, skips_statistics=self._rules.skips_statistics),
            )

        self._change(rename, lambda: self.has_table(to) and not self.has_table(name), f"rename of table {name}")
        self._move_folder(name, to, table, expected)
        return True

    def partition_list(self, name: TableName, schema: TableSchema) -> HivePartitions | None:
        """Return the metastore's list of a table's partitions, or None without `metastore.partitioned-table`."""
        if not entries.is_partitioned(schema):
            return None
        flag = self._rules.in_properties
        return HivePartitions(self._client, name.database, name.table, self._clock, in_properties=flag)

    def accepts_folder(self, name: str, folder: str) -> bool:
        """Return whether a folder is that of a table of the warehouse, or without a warehouse, of its database.

        Args:
            name: "db.table".
            folder: the folder.

        Raises:
            InvalidSchema: Hive would change the name.
            MetastoreFailed: the metastore names an unsafe folder.
        """
        parsed = TableName.parse(name)
        if self.warehouse:
            is_accepted = folder == f"{self.warehouse}/{parsed.database}{DATABASE_SUFFIX}/{parsed.table}"
        else:
            entry = self._find_database(parsed.database)
            is_accepted = entry is not None and _is_same(
                f"{self._database_folder(parsed.database, entry)}/{parsed.table}", folder
            )
        if is_accepted:
            _require_lower_case(parsed.database, f"database {parsed.database!r}")
            _require_lower_case(parsed.table, f"table {parsed.plain}")
        return is_accepted

    def enter_table(self, name: str, schema: TableSchema) -> None:
        """List a table whose folder is in the folder of its database, and the database; a listed table stays as it is.

        Raises:
            TableExists: the metastore lists the table in another folder.
            TableNotFound: the folder of the database has no such table.
        """
        parsed = TableName.parse(name)
        _require_lower_case(parsed.table, f"table {parsed.plain}")
        if not self.has_database(parsed.database):
            self.add_database(parsed.database)
        location = f"{self._database_location(parsed.database)}/{parsed.table}"
        path = checked_folder(location, f"table {name}", self._client.address)
        present = self._find_table(parsed)
        if present is not None:
            if not _is_same(self._described(parsed, present).path, path):
                raise TableExists(f"table {name} is already in {self.root}, in another folder than {path}")
            return
        if not stores.list_schema_ids(self.folder_io(path), path):
            reason = f"the folder of its database has no table {path}"
            raise TableNotFound(f"table {name} cannot be listed in {self.root}: {reason}")
        external = entries.wants_external(schema.options, default=self._rules.external)
        self._enter(parsed, self._new_entry(parsed, schema, location, external=external), path)

    # -- entries ---------------------------------------------------------------------------------------------------

    def _find_database(self, name: str) -> Database | None:
        try:
            entry = self._client.read("get_database", checked_database(name))
        except HiveRefusal as refusal:
            if refusal.is_absence:
                return None
            raise self._failed(refusal) from refusal
        if not isinstance(entry, Database):
            raise MetastoreFailed(self._client.address, f"its description of database {name} is empty")
        return entry if entry.name == name else None  # Hive compares names without regard to case

    def _database_location(self, name: str) -> str:
        """Return the location of a database as the metastore stores it, after a check. Raises DatabaseNotFound."""
        entry = self._find_database(name)
        if entry is None:
            known = ", ".join(self.databases()) or "none"
            raise DatabaseNotFound(f"database {name} is not in {self.root}; it has: {known}")
        self._database_folder(name, entry)
        return entries.location_of(entry, in_properties=self._rules.in_properties).rstrip("/")

    def _database_folder(self, name: str, entry: Database) -> str:
        location = entries.location_of(entry, in_properties=self._rules.in_properties)
        return checked_folder(location, f"database {name}", self._client.address)

    def _find_table(self, name: TableName) -> Table | None:
        try:
            answer = self._client.read("get_table_req", GetTableRequest(name.database, name.table))
        except HiveRefusal as refusal:
            if refusal.is_absence:
                return None
            raise self._failed(refusal) from refusal
        entry = getattr(answer, "table", None)
        if not isinstance(entry, Table):
            raise MetastoreFailed(self._client.address, f"its description of table {name} is empty")
        if (entry.dbName, entry.tableName) != (name.database, name.table):  # Hive compares names without regard to case
            return None
        if not entries.is_paimon(entry):
            raise UnsupportedFeature(f"an entry of the kind '{entries.kind_of(entry)}' of a Hive metastore", name.plain)
        return entry

    def _entry(self, name: TableName) -> Table:
        entry = self._find_table(name)
        if entry is None:
            if not self.has_database(name.database):
                known = ", ".join(self.databases()) or "none"
                raise DatabaseNotFound(f"database {name.database} is not in {self.root}; it has: {known}")
            known = ", ".join(self.tables(name.database)) or "none"
            raise TableNotFound(f"table {name.on_branch} is not in {self.root}; database {name.database} has: {known}")
        return entry

    def _described(self, name: TableName, entry: Table) -> HiveTable:
        location = entries.location_of(entry, in_properties=self._rules.in_properties)
        path = checked_folder(location, f"table {name}", self._client.address)
        return HiveTable(path, entries.is_external(entry))

    def _all_names(self, database: str) -> list[str]:
        """Return the names of all tables and views of a database."""
        return self._texts(self._ask("get_all_tables", database), f"tables of database {database}")

    def _paimon_names(self, database: str) -> list[str]:
        """Return the names of the Paimon tables of a database, by their storage handler.

        The metastore selects them. One whose SQL database cannot compare properties describes all tables instead.
        """
        try:
            names = self._client.read("get_table_names_by_filter", database, entries.PAIMON_FILTER, _ALL)
        except HiveRefusal as refusal:
            if refusal.is_absence:
                return []
            _LOG.debug("the metastore does not select tables by a property: %s", refusal)
            listed = self._entries(database, self._all_names(database))
            return [str(entry.tableName) for entry in listed if entries.is_paimon(entry)]
        return self._texts(names, f"tables of database {database}")

    def _entries(self, database: str, names: Sequence[str]) -> Iterator[Table]:
        """Yield the entries of tables and views of a database, in batches."""
        size = self._client.settings.batch_size
        for start in range(0, len(names), size):
            answer = self._ask(
                "get_table_objects_by_name_req", GetTablesRequest(database, list(names[start : start + size]))
            )
            listed = getattr(answer, "tables", None)
            if not isinstance(listed, list):
                raise MetastoreFailed(self._client.address, f"its listing of database {database} is empty")
            yield from (entry for entry in listed if isinstance(entry, Table) and isinstance(entry.tableName, str))

    def _new_entry(self, name: TableName, schema: TableSchema, location: str, *, external: bool) -> Table:
        return entries.new_table(
            name.database,
            name.table,
            schema,
            location,
            owner=system_user(),
            now_ms=self._clock.now_ms(),
            external=external,
            in_properties=self._rules.in_properties,
            sync=self._rules.sync,
            has_local_timestamps=self._knows_local_timestamps(schema),
        )

    def _enter(self, name: TableName, entry: Table, path: str) -> bool:
        """Send a new entry.

        Args:
            name: the table.
            entry: its entry.
            path: its folder.

        Returns:
            False when a table has the name.
        """
        created = True

        def create() -> None:
            nonlocal created
            try:
                self._client.change("create_table", entry)
            except HiveRefusal as refusal:
                if not refusal.is_presence:
                    raise
                created = False

        def exists() -> bool:
            present = self._find_table(name)
            return present is not None and _is_same(self._described(name, present).path, path)

        self._change(create, exists, f"creation of table {name}")
        return created or exists()

    def _alter_entry(self, name: TableName, entry: Table) -> None:
        """Replace the entry of a table. Raises HiveRefusal."""
        rules = self._rules
        context = entries.change_context(cascade=rules.cascade, skips_statistics=rules.skips_statistics)

        def alter() -> None:
            self._client.change("alter_table_with_environment_context", name.database, name.table, entry, context)

        def applied() -> bool:
            present = self._entry(name)
            columns = [column.name for column in present.sd.cols or []] == [column.name for column in entry.sd.cols]
            parameters = entries.parameters_of(entry)
            return columns and all(entries.parameters_of(present).get(key) == text for key, text in parameters.items())

        self._change(alter, applied, f"change of table {name}", refusable=True)

    # -- folders ---------------------------------------------------------------------------------------------------

    def _write_first_schema(
        self, file_io: FileIO, path: str, name: TableName, schema: TableSchema, *, external: bool
    ) -> bool | None:
        """Write the first schema file of a table; an external table may have it already.

        Returns:
            Whether the file was written, or None if another process has created the table meanwhile.
        """
        ids = stores.list_schema_ids(file_io, path)
        if not ids and stores.write_schema(file_io, path, schema):
            return True
        if not external:
            if self.has_table(name):
                return None
            hint = "list it with Catalog.register_table, or remove the folder"
            raise TableExists(f"table {name}: its folder {path} holds a table that the metastore does not list; {hint}")
        present = stores.load_schema(file_io, path, (ids or stores.list_schema_ids(file_io, path))[-1])
        shapes = [
            ([(field.name, field.type) for field in each.fields], each.partition_keys, each.primary_keys)
            for each in (present, schema)
        ]
        if shapes[0] != shapes[1]:
            raise InvalidSchema(f"table {name}: the table in {path} has other columns or keys")
        return False

    def _remove(self, name: TableName, table: HiveTable) -> None:
        def drop() -> None:
            try:
                self._client.change("drop_table", name.database, name.table, _KEEP_FILES)
            except HiveRefusal as refusal:
                if not refusal.is_absence:
                    raise

        self._change(drop, lambda: not self.has_table(name), f"drop of table {name}")
        if not table.is_external:
            folder = inside_really(posixpath.dirname(table.path), table.path)
            self.folder_io(folder).delete_dir(folder)

    def _move_folder(self, name: TableName, to: TableName, table: HiveTable, expected: str) -> None:
        """Move the folder of a renamed table if the metastore has not moved it."""
        moved = self.served(to)
        if table.is_external or moved.path == table.path:
            return
        if not _is_same(posixpath.dirname(moved.path), posixpath.dirname(expected)) or not moved.path.endswith(
            f"/{to.table}"
        ):
            raise MetastoreFailed(
                self._client.address,
                f"it renamed table {name} to {to}, but names the folder {moved.path} in place of {expected}; "
                f"its files may still be in {table.path}",
            )
        file_io = self.folder_io(table.path)
        if stores.list_schema_ids(file_io, table.path) and not file_io.rename(table.path, moved.path):
            raise StorageRefused(
                table.path, f"table {name} is now {to}; move the folder to {moved.path} by hand", "move"
            )

    def _require_own_folder(self, name: TableName, table: HiveTable, places: Sequence[tuple[str, str]]) -> None:
        """Check that the folder of a table may be moved or deleted.

        Args:
            name: the table.
            table: its description.
            places: name and location of each database and table.

        Raises:
            CorruptFile: the folder has content, but no schema.
            StorageRefused: the folder is a link, or is, holds or is inside the folder of another entry.
        """
        if table.is_external:
            return
        if is_link(table.path):
            raise StorageRefused(table.path, "it is a symbolic link; remove or move the link by hand", "remove")
        if self.warehouse and _is_inside(self.warehouse, table.path):
            raise StorageRefused(table.path, f"it holds the warehouse, not only table {name}", "remove")
        for owner, location in places:
            is_database = owner.startswith("database ")
            if owner == f"table {name.plain}":
                continue
            if _is_inside(location, table.path) or (not is_database and _is_inside(table.path, location)):
                reason = f"the Hive metastore lists it for {owner} too, so it is not only the folder of table {name}"
                raise StorageRefused(table.path, reason, "remove")
        file_io = self.folder_io(table.path)
        if not stores.list_schema_ids(file_io, table.path) and next(iter(file_io.list_dir(table.path)), None):
            reason = f"the Hive metastore says that table {name} is here, but the folder has no file in schema/"
            raise CorruptFile(table.path, f"{reason}; nothing was deleted")

    def _places(self) -> Iterator[tuple[str, str]]:
        """Yield each database and Paimon table of the metastore, "database NAME" or "table DB.NAME", with its folder.

        The folder of a table of another kind has no Paimon schema, so it is never deleted.
        """
        in_properties = self._rules.in_properties
        for database in self._texts(self._ask("get_all_databases"), "databases"):
            try:
                entry = self._client.read("get_database", database)
                listed = list(self._entries(database, self._paimon_names(database)))
            except HiveRefusal as refusal:
                if refusal.is_absence:
                    continue
                raise self._failed(refusal) from refusal
            pairs = [(f"database {database}", entries.location_of(entry, in_properties=in_properties))]
            for table in listed:
                name = f"table {database}.{table.tableName}"
                stored = {entries.location_of(table, in_properties=flag) for flag in (True, False)}
                pairs += [(name, location) for location in stored if location]
            for owner, location in pairs:
                try:
                    yield owner, checked_folder(location, owner, self._client.address)
                except MetastoreFailed as error:  # another storage, or no folder at all: it cannot be the same
                    _LOG.debug("not compared: %s", error)

    def _usual_owner(self, name: TableName, path: str) -> str | None:
        """Return the table that has a folder by the usual layout DATABASE.db/TABLE, if this is another table."""
        parent, _, table = path.rpartition("/")
        folder = parent.rpartition("/")[2]
        database = folder.removesuffix(DATABASE_SUFFIX) if folder.endswith(DATABASE_SUFFIX) else name.database
        if (database, table) == (name.database, name.table):
            return None
        try:
            owner = TableName.parse(f"{database}.{table}")
            present = self._find_table(owner)
            if present is not None and _is_same(self._described(owner, present).path, path):
                return owner.plain
        except (InvalidSchema, UnsupportedFeature, MetastoreFailed) as error:
            _LOG.debug("folder %s has no usual owner: %s", path, error)
        return None

    # -- calls -----------------------------------------------------------------------------------------------------

    def _knows_local_timestamps(self, schema: TableSchema) -> bool:
        """Return whether the metastore knows "timestamp with local time zone", if a column needs it (Hive 3)."""
        if not has_local_timestamps(schema):
            return False
        if self._has_local_timestamps is None:
            try:
                self._has_local_timestamps = bool(self._client.read("get_catalogs"))
            except (HiveRefusal, MetastoreFailed) as error:
                _LOG.debug("the metastore is older than Hive 3: %s", error)
                self._has_local_timestamps = False
        return self._has_local_timestamps

    def _require_no_tag_partitions(self, name: TableName, schema: TableSchema) -> None:
        if schema.options.get(_TAG_PARTITIONS, "").strip():
            raise UnsupportedFeature(f"tags as partitions of a Hive table ({_TAG_PARTITIONS})", name.plain)

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return self._client.read(method, *arguments)
        except HiveRefusal as refusal:
            raise self._failed(refusal) from refusal

    def _texts(self, answer: object, subject: str) -> list[str]:
        if not isinstance(answer, list):
            raise MetastoreFailed(self._client.address, f"its listing of {subject} is empty")
        return [name for name in answer if isinstance(name, str)]

    def _failed(self, refusal: HiveRefusal) -> MetastoreFailed:
        hint = "; Hive's names have ASCII letters, digits and '_'" if _BAD_NAME in refusal.message else ""
        return MetastoreFailed(self._client.address, f"it answered {refusal}{hint}")

    def _change(
        self,
        send: Callable[[], None],
        has_happened: Callable[[], bool],
        description: str,
        *,
        refusable: bool = False,
    ) -> None:
        """Send a call that changes something; an unknown outcome is looked up, and the call sent once more.

        Args:
            send: sends the call.
            has_happened: returns whether the metastore carried the call out.
            description: what the call does, for the error.
            refusable: whether refusals are raised as HiveRefusal.

        Raises:
            MetastoreFailed: the metastore refused, or the outcome stays unknown.
        """
        try:
            send_change(send, has_happened, description, self._client.address, refusal=HiveRefusal, lost=CallUnknown)
        except HiveRefusal as refusal:
            if refusable:
                raise
            raise self._failed(refusal) from refusal


def _is_inside(path: str, folder: str) -> bool:
    """Return whether a path is a folder or below it, following links."""
    return f"{_real_path(path)}/".startswith(f"{_real_path(folder)}/")


def _is_same(left: str, right: str) -> bool:
    return _real_path(left) == _real_path(right)


def _real_path(path: str) -> str:
    """Return a folder without links, or the address with one spelling of the scheme of S3."""
    place = place_of(path)
    if not place:
        return os.path.realpath(path)
    scheme, _, rest = path.partition("://")
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}"


def _take_back(file_io: FileIO, path: str) -> None:
    """Remove the first schema file of a table that the metastore did not enter, and its empty folders."""
    file_io.delete(stores.schema_path(path, 0))
    for folder in (f"{path}/schema", path):
        file_io.delete_empty_dir(folder)


def _require_lower_case(name: str, subject: str) -> None:
    if name != name.lower():
        raise InvalidSchema(
            f"{subject} cannot be in a Hive metastore, which stores names in lower case: '{name.lower()}'"
        )
