"""Catalog of a warehouse: creates, opens, alters, renames and drops its databases and tables.

Source: Paimon `FileSystemCatalog`, `JdbcCatalog`, `RESTCatalog`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from lsm_core.clock import Clock, clock_from
from lsm_core.errors import (
    CorruptFile,
    DatabaseExists,
    DatabaseNotFound,
    DredgeError,
    InvalidOption,
    StorageRefused,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
    WriterStale,
)
from lsm_core.format.schema import CURRENT_VERSION, TableSchema
from lsm_core.metadata import paimon_version, snapshots
from lsm_core.metadata.branches import MAIN, list_branches
from lsm_core.metadata.store import SnapshotPublisher, TableRegistry, TableStore, latest_schema, list_schema_ids
from lsm_core.metadata.support import Purpose, require_possible, unsupported
from lsm_core.options import CatalogOptions, TableOptions, not_acted_on, warehouse_options
from lsm_core.storage import FileIO, file_io_for, is_link, is_object_store
from lsm_core.table.metastore import FolderMetastore
from lsm_core.table.names import SYSTEM_DATABASE, TableName, checked_new
from lsm_core.table.typed_errors import with_typed_errors

if (
    TYPE_CHECKING
):  # looking over a warehouse needs neither the facade nor what creates tables: they are a third of a second to import
    import pyarrow as pa

    from lsm_core.locks import Lease
    from lsm_core.maintenance.combined import CombinedLine, CombinedPlan, CombinedReport, Rules
    from lsm_core.maintenance.external_files import DroppedFiles
    from lsm_core.table.definition import Schema
    from lsm_core.table.hive_metastore import HiveMetastore
    from lsm_core.table.rest_metastore import RestMetastore
    from lsm_core.table.schema_change import SchemaChange
    from lsm_core.table.table import Table

_LOG = logging.getLogger(__name__)
_ALTER_ATTEMPTS = 100


@with_typed_errors
class Catalog:
    """Databases and tables of a warehouse.

    With the option `metastore` = jdbc, the SQL database at `uri` lists databases and tables. The SQL database may also
    hold the commit locks (`lock.enabled`); Java's JDBC catalogs then share these locks.

    With `metastore` = hive, the Hive metastore at `uri` lists databases and tables, and names their folders.

    With `metastore` = rest, the catalog server at `uri` has the databases and tables, and publishes snapshots. Its
    token comes from the environment (`DREDGE_REST_TOKEN`, or `DREDGE_REST_TOKEN_FILE`).

    Attributes:
        options: the catalog's options.
        file_io: access to the files of :attr:`root`.
        root: folder of the warehouse. For a REST catalog, and for a Hive metastore without the option `warehouse`, a
            local folder that has saved plans only.
        place: path or address of the warehouse, for messages.
        clock: clock for all times that the catalog's tables write.

    Args:
        warehouse: path or URL of the warehouse's folder, also in an object store: ``s3://bucket/folder``. For a REST
            catalog, the name of the warehouse on the server, or ``rest:ADDRESS`` with the name as option `warehouse`.
            For a Hive metastore, the folder of new databases, or ``hive:ADDRESS`` with this option `warehouse`.
        options: catalog options with Paimon's keys (docs/options.md).
        clock: clock for all times that the catalog's tables write, or its text (`clock_from`); None for the system's
            clock.

    Raises:
        UnsupportedFeature: the storage of this URL is not offered.
        InvalidOption: an option cannot be used.
        MetastoreFailed: the JDBC database or the catalog server cannot be used. Every method may raise it.
    """

    def __init__(
        self,
        warehouse: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        clock: Clock | str | None = None,
    ) -> None:
        self.options = CatalogOptions(warehouse_options(os.fspath(warehouse), options or {}))
        self.clock: Clock = clock_from(clock)
        self._warned: set[str] = set()  # tables with a warning about their own lock, one warning each
        self._registry: TableRegistry | None = None
        self._server: RestMetastore | HiveMetastore | None = None
        self._metastore: FolderMetastore | RestMetastore | HiveMetastore
        if self.options.metastore == "rest":
            self._registry = self._server = self._metastore = _rest_metastore(self.options)
            self.file_io, self.root = file_io_for(_own_folder(self._server.root))
            self.place = self._server.root
            self._locking = self.options.locking(always=False)
            return
        if self.options.metastore == "hive":
            self._registry = self._server = self._metastore = metastore = _hive_metastore(self.options, self.clock)
            root = metastore.warehouse or _own_folder(metastore.root)
            self.file_io, self.root = metastore.folder_io(root), root
            self.place = metastore.root
            self._locking = self.options.locking(always=is_object_store(self.file_io))
            if self._locking.get("dredge.lock") == "hive":  # the address may come from hive-site.xml
                self._locking["dredge.lock.uri"] = metastore.address
            return
        self.file_io, root = file_io_for(warehouse, self.options.storage)
        self.place = self.root = root.rstrip("/")
        self._locking = self.options.locking(always=is_object_store(self.file_io))
        self._metastore = FolderMetastore(self.file_io, self.root)
        if self.options.metastore == "jdbc":
            from lsm_core.locks.database import Database
            from lsm_core.table.jdbc_metastore import JdbcMetastore

            key, properties = str(self.options.get("catalog-key")), bool(self.options.get("sync-all-properties"))
            database = Database(self.options.address)
            self._metastore = self._registry = JdbcMetastore(
                self.file_io, self.root, os.fspath(warehouse), database, key, properties=properties
            )

    def __repr__(self) -> str:
        return f"Catalog({self.place!r})"

    @property
    def metastore_address(self) -> str:
        """Address of the catalog server or Hive metastore, for messages; "" for other kinds of catalogs."""
        return "" if self._server is None else self._server.address

    # -- databases -------------------------------------------------------------------------------------------------

    def create_database(self, name: str, ignore_if_exists: bool = False) -> bool:
        """Create a database.

        Args:
            name: name of the database.
            ignore_if_exists: return without an error when the database exists.

        Returns:
            True if the database was created, False if it existed.

        Raises:
            DatabaseExists: the database exists.
            InvalidSchema: the name cannot be a database's.
        """
        if name == SYSTEM_DATABASE:
            raise DatabaseExists(f"database {name} is reserved: it has the catalog's system tables")
        if self._metastore.has_database(name):
            if ignore_if_exists:
                return False
            raise DatabaseExists(f"database {name} is already in {self.place}")
        self._metastore.add_database(name)
        return True

    def list_databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        return self._metastore.databases()

    def drop_database(self, name: str, ignore_if_not_exists: bool = False, cascade: bool = False) -> bool:
        """Drop a database.

        Args:
            name: name of the database.
            ignore_if_not_exists: return without an error when the database does not exist.
            cascade: drop the tables of the database too.

        Returns:
            Whether the database existed.

        Raises:
            DatabaseNotFound: the database does not exist.
            DatabaseExists: the database still holds tables, and ``cascade`` is false.
            StorageRefused: the database or one of its tables is a symbolic link; nothing was deleted.
            UnsupportedFeature: a table has files in an external path that the operator does not allow.
        """
        path = self._metastore.database_path(name)
        if not self._metastore.has_database(name):
            if ignore_if_not_exists:
                return False
            raise DatabaseNotFound(f"database {name} is not in {self.place}")
        tables = self.list_tables(name)
        if tables and not cascade:
            raise DatabaseExists(f"database {name} still holds {len(tables)} tables: {', '.join(tables[:5])}")
        for link in (path, *(f"{path}/{table}" for table in tables)):
            _refuse_link(link, "remove")
        with ExitStack() as stack:
            outside = self._files_outside([f"{name}.{table}" for table in tables], stack)
            published = self._published_outside([f"{name}.{table}" for table in tables])
            self._metastore.remove_database(name)
            for files in outside:
                files.delete()
            self._delete_published(published)
        return True

    # -- tables ----------------------------------------------------------------------------------------------------

    def _table_path(self, name: TableName, *, in_new_database: bool = False) -> str:
        if not in_new_database and not self._metastore.has_database(name.database):
            known = ", ".join(self.list_databases()) or "none"
            raise DatabaseNotFound(f"database {name.database} is not in {self.place}; it has: {known}")
        return f"{self._metastore.database_path(name.database)}/{name.table}"

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the tables of one database, sorted. Raises DatabaseNotFound."""
        if not self._metastore.has_database(database):
            raise DatabaseNotFound(f"database {database} is not in {self.place}")
        return self._metastore.tables(database)

    def other_tables(self, database: str) -> dict[str, str]:
        """Return the kind of each entry of a Hive metastore that is no Paimon table, such as "iceberg", by its name.

        :meth:`list_tables` leaves these entries out. Dredge never opens or changes them.

        Args:
            database: name of the database.

        Returns:
            The kinds; empty for other kinds of catalogs.

        Raises:
            DatabaseNotFound: the database does not exist.
        """
        if not self._metastore.has_database(database):
            raise DatabaseNotFound(f"database {database} is not in {self.place}")
        return self._metastore.other_tables(database)

    def read_ahead(self, database: str) -> None:
        """Read what a catalog server says about all tables of a database, before all of them are opened.

        With a REST catalog, this takes one request for each page of tables in place of one for each table.

        Args:
            database: name of the database.

        Raises:
            InvalidSchema: the name cannot be a database's.
            MetastoreFailed: the server cannot be used.
        """
        self._metastore.read_ahead(database)

    def list_lost_schemas(self, database: str, tables: Collection[str] | None = None) -> dict[str, str]:
        """Return the explanation of each folder that has snapshots but no schema file, by name "db.table".

        Such a folder does not count as a table, in Paimon either, so :meth:`list_tables` leaves it out.

        Args:
            database: name of the database.
            tables: names of its tables, if they are known already; None to list them.

        Raises:
            DatabaseNotFound: the database does not exist.
        """
        if not self._metastore.has_database(database):
            raise DatabaseNotFound(f"database {database} is not in {self.place}")
        known = self.list_tables(database) if tables is None else tables
        folders = self._metastore.folders_without_schema(database, set(known))
        if not folders:
            return {}
        path = self._metastore.database_path(database)
        return {f"{database}.{folder}": _lost_schema_text(f"{path}/{folder}") for folder in folders}

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema,
        ignore_if_exists: bool = False,
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        create_database: bool = False,
    ) -> Table:
        """Create a table; the definition is checked before the table or its database is written.

        Options that Dredge accepts but ignores (`options.not_acted_on`) are logged as a warning.

        Args:
            name: "db.table".
            schema: definition of the table, or its columns as an Arrow schema. With an Arrow schema, ``primary_keys``,
                ``partition_keys``, ``options`` and ``comment`` complete the definition.
            ignore_if_exists: if the table exists, return the existing table unchanged.
            primary_keys: names of the key columns.
            partition_keys: names of the partition columns.
            options: table options by key.
            comment: comment of the table.
            create_database: create the database first if it does not exist.

        Returns:
            The new table, or the existing table.

        Raises:
            InvalidSchema: the columns or keys cannot be a table's.
            InvalidOption: an option or argument cannot be used.
            UnsupportedFeature: the table would need a feature that is not offered.
            DatabaseNotFound: the database does not exist.
            TableExists: the table exists.
        """
        from lsm_core.table.definition import as_definition, new_table_schema

        schema = as_definition(name, schema, primary_keys, partition_keys, options, comment)
        parsed = checked_new(self._plain(name, "creating"))
        schema = replace(schema, options={**self.options.table_defaults, **schema.options})
        first = new_table_schema(schema, str(parsed), self.clock)
        path = self._table_path(parsed, in_new_database=create_database)
        store = TableStore(self.file_io, path, str(parsed), first, None, self.clock, dynamic_options=self._locking)
        store.allowing_roots(self.options.external_roots)
        require_possible(store, Purpose.WRITE)
        if create_database:
            self.create_database(parsed.database, ignore_if_exists=True)
        if self.options.metastore == "hive" and self._server is not None:
            path = self._table_path(parsed)  # the folder of a database may be in another storage
            file_io = self._server.folder_io(path)
            store = TableStore(file_io, path, str(parsed), first, None, self.clock, dynamic_options=self._locking)
        exists = self._metastore.has_table(parsed)
        if not exists:
            with self._locked(store):
                exists = not self._metastore.create_table(parsed, first)
        if exists:
            if ignore_if_exists:
                return self.table(name)
            raise TableExists(f"table {parsed} is already in {self.place}")
        _warn_of_no_effect(str(parsed), first.options, {})
        return self.table(name)

    def table(self, name: str) -> Table:
        """Open a table, a branch of a table or a read-only system table.

        Args:
            name: "db.table", "db.table$branch_dev" for a branch, "db.table$files" or "sys.tables" for a system table.

        Returns:
            The table.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
            UnsupportedFeature: the system table is not offered.
        """
        parsed = TableName.parse(name)
        if parsed.database == SYSTEM_DATABASE:
            from lsm_core.table.system import GLOBAL_TABLES, GlobalTable, Warehouse

            if parsed.table not in GLOBAL_TABLES or parsed.system or parsed.branch != MAIN:
                known = ", ".join(f"{SYSTEM_DATABASE}.{table}" for table in GLOBAL_TABLES)
                raise TableNotFound(f"table {parsed} does not exist; the catalog has: {known}")
            # Nearly all callers open plain tables: they get the facade's type, without a test that never fails.
            return cast("Table", GlobalTable(Warehouse(self.options.raw, _Stores(self)), parsed.table))
        from lsm_core.table.table import Table

        store = self.store(parsed.on_branch)
        if not parsed.system:
            return Table(store, self)
        from lsm_core.table.system import SYSTEM_TABLES, SystemTable

        if parsed.system not in SYSTEM_TABLES:
            raise UnsupportedFeature(
                f"system table ${parsed.system}; known ones: ${', $'.join(SYSTEM_TABLES)}", store.name
            )
        return cast("Table", SystemTable(store, parsed.system))

    def store_as_stored(self, name: str) -> TableStore:
        """Return the `TableStore` of a table or branch, in which stored options with invalid values count as not set.

        Listings of a catalog and repairs of a table (:meth:`alter_table`) use it, because a bad option must not make
        them fail.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
        """
        parsed = TableName.parse(name)
        file_io, path, publisher = self._folder(parsed)
        schema = latest_schema(file_io, path, parsed.branch)
        if schema is None:
            raise TableNotFound(f"table {parsed.on_branch} was dropped meanwhile by another process")
        options = TableOptions.usable(schema.options, parsed.on_branch)
        store = TableStore(file_io, path, parsed.on_branch, schema, options, self.clock, parsed.branch, self._locking)
        return self._in_catalog(store, parsed, publisher)

    def store(self, name: str) -> TableStore:
        """Return the `TableStore` (paths, schema, options) of a table or branch, without the facade :class:`Table`.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
            UnsupportedFeature: the name is the name of a system table.
            InvalidOption: a stored option cannot be used; :meth:`alter_table` can set or remove it.
        """
        parsed = TableName.parse(name)
        if parsed.system:
            raise UnsupportedFeature(
                f"this operation on the system table ${parsed.system}; name the table without it", parsed.on_branch
            )
        file_io, path, publisher = self._folder(parsed)
        try:
            store = TableStore.open(file_io, path, parsed.on_branch, self.clock, self._locking, parsed.branch)
        except InvalidOption as error:
            accepted = f"{error.accepted}. It is stored so: Catalog.alter_table can set or remove it"
            raise InvalidOption(error.key, error.value, accepted, error.table) from error
        if self._locking and parsed.plain not in self._warned:
            from lsm_core.locks import lock_given_way  # imported here: reads take no lock

            if other := lock_given_way(store.schema.options, store.options):
                self._warned.add(parsed.plain)
                _LOG.warning("table %s: %s", store.name, other)
        return self._in_catalog(store, parsed, publisher)

    def _in_catalog(self, store: TableStore, parsed: TableName, publisher: SnapshotPublisher | None) -> TableStore:
        """Give a table what the catalog knows about it: registry, publisher, list of partitions, external roots."""
        listed = None if self._server is None else self._server.partition_list(parsed, store.schema)
        store.registered_in(self._registry).published_by(publisher).listing_partitions(listed)
        return store.allowing_roots(self.options.external_roots)

    def _folder(self, parsed: TableName) -> tuple[FileIO, str, SnapshotPublisher | None]:
        """Return the folder of a table, access to its files, and the server that publishes its snapshots, or None.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
            CorruptFile: a catalog server names a folder that is not the table's.
        """
        if self._server is None:
            return self.file_io, self._path(parsed), None
        return self._server.folder(parsed)

    def _path(self, parsed: TableName) -> str:
        path = self._table_path(parsed)
        if not self._metastore.has_table(parsed):
            if self._metastore.lacks_schema(parsed):
                raise TableNotFound(f"table {parsed.plain}: {_lost_schema_text(path)}")
            known = ", ".join(self.list_tables(parsed.database)) or "none"
            raise TableNotFound(f"table {parsed.plain} is not in {self.place}; database {parsed.database} has: {known}")
        if parsed.branch != MAIN and not list_schema_ids(self.file_io, path, parsed.branch):
            known = ", ".join(list_branches(self.store_as_stored(parsed.plain))) or "none"
            raise TableNotFound(f"table {parsed.plain} has no branch '{parsed.branch}'; it has: {known}")
        return path

    def alter_table(self, name: str, changes: Sequence[SchemaChange]) -> None:
        """Apply schema changes to a table or branch: either all changes, or none.

        The changes are tried again when other writers alter the table at the same time. A table that cannot be opened
        because of a stored option can be altered if the changes remove or replace this option.

        Args:
            name: "db.table", or "db.table$branch_dev" for a branch.
            changes: changes in the order of their application.

        Raises:
            TableNotFound: the table or branch does not exist.
            InvalidSchema: a change is not possible for its column, or the column holds numbers outside its new type.
            InvalidOption: an option cannot have this value, or is fixed once snapshots exist.
            UnsupportedFeature: Dredge could not write the altered table.
            WriterStale: 100 attempts failed because other writers altered the table at the same time.
        """
        from lsm_core.table.altering import changed, consequences, require_values_fit, unused_defaults
        from lsm_core.table.validation import validate

        parsed = TableName.parse(name)
        if parsed.system or parsed.database == SYSTEM_DATABASE:
            raise UnsupportedFeature(f"altering the system table {parsed}", parsed.on_branch)
        for _ in range(_ALTER_ATTEMPTS):
            store = self.store_as_stored(name)
            followed = None
            if snapshots.latest_id(store) is not None:
                followed = paimon_version.followed(store.file_io, store.snapshot_dir, store.options)
            new_schema = changed(store.schema, changes, store.name, followed)
            if new_schema == store.schema:
                return
            validate(new_schema, store.name, store.schema, followed)
            following = replace(
                new_schema, id=store.schema.id + 1, version=CURRENT_VERSION, time_millis=self.clock.now_ms()
            )
            _require_kept_up(store, following)
            warnings = [
                *require_values_fit(store, following),
                *consequences(store, following.options),
                *unused_defaults(store.schema, following),
            ]
            with self._locked(store):
                written = self._metastore.alter_table(parsed, store.branch, store.schema, changes, following)
            if written:
                _warn_of_no_effect(store.name, following.options, store.schema.options)
                for warning in warnings:
                    _LOG.warning("table %s: %s", store.name, warning)
                return
        raise WriterStale(f"table {parsed} was altered {_ALTER_ATTEMPTS} times by other processes meanwhile; try again")

    # -- looking after many tables ---------------------------------------------------------------------------------

    def plan_maintenance(
        self,
        pattern: str,
        actions: Sequence[str] | None = None,
        *,
        max_bytes: int | str | None = None,
        max_tables: int | None = None,
        max_time: int | str | None = None,
        save: bool = True,
        rules: Rules | None = None,
    ) -> CombinedPlan:
        """Return one plan for all tables of a pattern, the table with the worst state first.

        Args:
            pattern: a database, or a pattern such as "db.*" or "*.orders".
            actions: names of actions; None for compaction, expiry of snapshots and sweep of the trash.
            max_bytes: bytes that compactions may read at most, as a number or a text such as "10 gb"; None for no
                limit.
            max_tables: number of tables at most; None for no limit.
            max_time: forecast duration at most, in ms or as a text such as "1 h"; None for no limit.
            save: whether the plan is kept for :meth:`load_maintenance`.
            rules: rules that decide which work is planned, such as the platform's policies; None for no rules.

        Returns:
            The plan for :meth:`maintain`; its attribute ``declined`` lists the work that is not part of the plan.

        Raises:
            TableNotFound: no table matches the pattern.
            DatabaseNotFound: the database does not exist.
            InvalidOption: an action or limit cannot be used.
        """
        from lsm_core.table.whole_database import limits_of, plan_tables

        limits = limits_of(max_bytes, max_tables, max_time)
        return plan_tables(self, pattern, actions, limits, save=save, rules=rules)

    def load_maintenance(self, plan_hash: str) -> CombinedPlan:
        """Return a plan that :meth:`plan_maintenance` kept, by its hash.

        Raises:
            PlanStale: no plan with this hash is kept.
            InvalidOption: the hash is malformed.
            CorruptFile: the plan's file cannot be read.
        """
        from lsm_core.table.whole_database import load_combined

        return load_combined(self, plan_hash)

    def maintain(
        self,
        plan: CombinedPlan | str,
        approved_by: str | None = None,
        tell: Callable[[CombinedLine], None] | None = None,
        rules: Rules | None = None,
        mode: str = "combined",
    ) -> CombinedReport:
        """Apply a plan for many tables; each table has its own commits.

        A table that fails becomes a line of the report and does not stop the remaining tables. A plan that is applied
        again continues after its last finished part; finished parts are reported and not repeated.

        Args:
            plan: plan of :meth:`plan_maintenance`, or a pattern that is planned first.
            approved_by: name of the approver for the ledger.
            tell: function that is called with each line of the report as soon as the line exists.
            rules: rules that are evaluated again before each part of the plan; None for no rules.
            mode: "combined", or "divided" to plan and apply the tables of a pattern one after another, by name.

        Returns:
            The report.

        Raises:
            InvalidOption: the mode does not exist, or "divided" was passed with a plan.
        """
        from lsm_core.maintenance.combined import MODES, Limits
        from lsm_core.table.whole_database import maintain_divided, maintain_tables

        if mode not in MODES:
            raise InvalidOption("mode", mode, ", ".join(MODES))
        if mode == "divided":
            if not isinstance(plan, str):
                raise InvalidOption("mode", mode, "combined, because a plan of all tables is applied")
            return maintain_divided(self, plan, None, Limits(), approved_by, tell, rules)[0]
        planned = self.plan_maintenance(plan, rules=rules) if isinstance(plan, str) else plan
        return maintain_tables(self, planned, approved_by, tell, rules)

    def drop_table(self, name: str, ignore_if_not_exists: bool = False) -> bool:
        """Delete a table, everything below its directory, its Iceberg metadata, and its files in external paths.

        Files in external paths that the operator allows for reading only stay, as do imported files.

        Args:
            name: "db.table".
            ignore_if_not_exists: return without an error when the table or its database does not exist.

        Returns:
            Whether the table existed.

        Raises:
            TableNotFound: the table does not exist.
            StorageRefused: the storage refuses the deletion, or the directory is a symbolic link.
            UnsupportedFeature: the table has files in an external path that the operator does not allow.
        """
        path = self._select_existing(name, ignore_if_not_exists, "dropping")
        if path is None:
            return False
        _refuse_link(path, "remove")
        with ExitStack() as stack:
            outside, published = self._files_outside([name], stack), self._published_outside([name])
            self._metastore.remove_table(TableName.parse(name))
            for files in outside:
                files.delete()
            self._delete_published(published)
        return True

    def _published_outside(self, names: Sequence[str]) -> list[str]:
        """Return the directories of those tables whose Iceberg metadata is in the warehouse of a Hadoop catalog.

        Only directories below the catalog's own warehouse count, because a server or a metastore may name others.
        """
        from lsm_core.maintenance.iceberg_files import outside_folder

        roots: list[str] = []
        for name in names if self.options.metastore != "rest" else ():
            try:
                store = self.store_as_stored(name)
                if store.root.startswith(f"{self.root.rstrip('/')}/") and outside_folder(store) is not None:
                    roots.append(store.root)
            except (CorruptFile, TableNotFound, InvalidOption):  # a damaged table can be dropped
                continue
        return roots

    def _delete_published(self, roots: Sequence[str]) -> None:
        """Delete the Iceberg metadata of dropped or renamed tables that is outside of their directories."""
        from lsm_core.maintenance.iceberg_files import delete_outside_folder

        for root in roots:
            delete_outside_folder(self.file_io, root)

    def _files_outside(self, names: Sequence[str], stack: ExitStack) -> list[DroppedFiles]:
        """Return the files of tables in the external paths that they declare, unless a server deletes them.

        Raises:
            UnsupportedFeature: the operator does not allow an external path with files of a table.
        """
        outside: list[DroppedFiles] = []
        for name in names if self.options.metastore != "rest" else ():
            try:
                store = self.store_as_stored(name)
            except (CorruptFile, TableNotFound, InvalidOption):  # a damaged table can be dropped
                continue
            from lsm_core.maintenance.external_files import DroppedFiles

            outside.append(stack.enter_context(DroppedFiles(store)))
        return outside

    def rename_table(self, name: str, to: str, ignore_if_not_exists: bool = False) -> bool:
        """Rename a table; the directory of the table moves to the new name, branches included.

        Iceberg metadata is written anew, because it has the addresses of all files.

        Args:
            name: "db.table".
            to: new name, "db.table"; the database may differ from the database of ``name``.
            ignore_if_not_exists: return without an error when the table or its database does not exist.

        Returns:
            Whether the table existed.

        Raises:
            TableNotFound: the table does not exist.
            TableExists: a table has the new name.
            DatabaseNotFound: the database of the new name does not exist.
            StorageRefused: the storage refuses the move, or the directory is a symbolic link.
        """
        path = self._select_existing(name, ignore_if_not_exists, "renaming")
        target = checked_new(self._plain(to, "renaming"))
        self._table_path(target)
        if path is None:
            return False
        _refuse_link(path, "move")
        published = self._published_outside([name])
        if self._metastore.has_table(target) or not self._metastore.move_table(TableName.parse(name), target):
            raise TableExists(f"table {to} is already in {self.place}")
        self._delete_published(published)
        self._publish_moved(str(target))
        return True

    def _publish_moved(self, name: str) -> None:
        """Write the Iceberg metadata of a renamed table, whose files have new addresses; log a failure."""
        from lsm_core.iceberg.catch_up import publish_history

        try:
            store = self.store_as_stored(name)
        except DredgeError as error:
            _LOG.warning(
                "renamed to %s, which cannot be opened, so that it has no new Iceberg metadata: %s", name, error
            )
        else:
            publish_history(store)

    def _locked(self, store: TableStore) -> AbstractContextManager[Lease | None]:
        """Return a context that holds the table's lock, for schema changes (Java `SchemaManager.withLock`)."""
        from lsm_core.locks import held, lock_settings, table_lock

        lock = table_lock(store.file_io, store.root, store.name, store.options, store.clock, "a change of its schema")
        return nullcontext() if lock is None else held(lock, lock_settings(store.options))

    def register_table(self, name: str, dry_run: bool = False) -> bool:
        """Enter a table whose folder is in the warehouse in the list of a JDBC or Hive catalog, such as after a copy.

        A Hive metastore also lists all partitions of the table again, if it keeps them.

        Args:
            name: "db.table".
            dry_run: whether to change nothing.

        Returns:
            Whether the table was not listed before; always False for catalogs without a list.

        Raises:
            TableNotFound: the warehouse has no folder of such a table.
            MetastoreFailed: the database of the catalog cannot be used.
        """
        from lsm_core.commit.partition_listing import list_all_partitions

        parsed = self._plain(name, "registering")
        if self._registry is None or self.options.metastore == "rest":
            return False
        if self._metastore.has_table(parsed):
            if not dry_run and self.options.metastore == "hive":
                list_all_partitions(self.store(name))
            return False
        path = f"{self._metastore.database_path(parsed.database)}/{parsed.table}"
        file_io = self.file_io if self._server is None else self._server.folder_io(path)
        schema = latest_schema(file_io, path)
        if schema is None:
            raise TableNotFound(f"table {name} is not in {self.place}, and there is no folder of such a table")
        if not dry_run:
            self._registry.enter_table(str(parsed), schema)
            if self.options.metastore == "hive":
                list_all_partitions(self.store(name))
        return True

    def _plain(self, name: str, verb: str) -> TableName:
        """Return the parsed name of a table; names of system tables and branches are refused."""
        parsed = TableName.parse(name)
        if parsed.system or parsed.database == SYSTEM_DATABASE:
            raise UnsupportedFeature(f"{verb} the system table {parsed}", parsed.on_branch)
        if parsed.branch != MAIN:
            raise UnsupportedFeature(f"{verb} a branch by the name of a table", parsed.on_branch)
        return parsed

    def _select_existing(self, name: str, ignore: bool, verb: str) -> str | None:
        parsed = self._plain(name, verb)
        if ignore and not self._metastore.has_database(parsed.database):
            return None
        path = self._table_path(parsed)
        if self._metastore.has_table(parsed):
            return path
        if ignore:
            return None
        raise TableNotFound(f"table {parsed} is not in {self.place}")


class _Stores:
    """Iterable of all tables of a catalog as tuples (database, table, store); each iteration lists the catalog again.

    The store is the table's `TableStore`, or None if the metadata of the table cannot be read. In this case a warning
    is logged, and the listing continues.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __iter__(self) -> Iterator[tuple[str, str, TableStore | None]]:
        for database in self._catalog.list_databases():
            try:
                tables = self._catalog.list_tables(database)
                self._catalog.read_ahead(database)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one database, the others are shown
                _LOG.warning("database %s cannot be listed: %s", database, error)
                continue
            for table in tables:
                try:
                    store = self._catalog.store_as_stored(f"{database}.{table}")
                except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others are shown
                    _LOG.warning("table %s.%s cannot be read: %s", database, table, error)
                    store = None
                yield database, table, store


def _rest_metastore(options: CatalogOptions) -> RestMetastore:
    """Return the databases and tables of the REST catalog server that the options name.

    Raises:
        InvalidOption: the address is missing or invalid.
        UnsupportedFeature: the HTTP client is not installed.
    """
    from lsm_core.table.rest_client import open_client
    from lsm_core.table.rest_metastore import RestMetastore

    return RestMetastore(open_client(options), options.storage)


def _hive_metastore(options: CatalogOptions, clock: Clock) -> HiveMetastore:
    """Return the databases and tables of the Hive metastore that the options or a hive-site.xml name.

    Raises:
        InvalidOption: the address is missing, or an option is invalid.
        UnsupportedFeature: the Thrift client is not installed, or an option needs what is not offered.
    """
    from lsm_core.locks.hive_settings import hive_settings, require_thrift

    settings = hive_settings(options.raw)
    require_thrift()
    from lsm_core.locks.hive_client import HiveClient
    from lsm_core.table import hive_metastore

    warehouse = file_io_for(settings.warehouse, options.storage)[1].rstrip("/") if settings.warehouse else ""
    rules = hive_metastore.HiveRules(
        in_properties=bool(options.get("location-in-properties")),
        external=str(options.get("table.type")).strip().lower() == "external",
        sync=bool(options.get("sync-all-properties")),
        cascade=bool(options.get("alter-table-cascade")),
        skips_statistics=bool(options.get("hive.skip-update-stats")),
    )
    return hive_metastore.HiveMetastore(HiveClient(settings), warehouse, options.storage, rules, clock)


def _own_folder(address: str) -> str:
    """Return the local folder for saved plans of a server's warehouse, whose own folders are the server's."""
    state = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return f"{state}/dredge/{hashlib.sha256(address.encode()).hexdigest()[:16]}"


def _refuse_link(path: str, verb: str) -> None:
    """Raise StorageRefused for a symbolic link, because its target is outside the warehouse."""
    if is_link(path):
        raise StorageRefused(path, "it is a symbolic link; remove or move the link and its target by hand", verb)


def _warn_of_no_effect(table: str, options: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Log a warning for new or changed options that Dredge accepts but ignores."""
    known = not_acted_on(before)
    new = [f"'{key}' = '{value}'" for key, value in not_acted_on(options).items() if known.get(key) != value]
    if new:
        _LOG.warning("table %s: options that are kept but not acted on here: %.2000s", table, ", ".join(new))


def _require_kept_up(store: TableStore, following: TableSchema) -> None:
    """Raise UnsupportedFeature if an altered schema needs a feature that Dredge cannot write.

    Features that the table needed before the alteration are not refused.
    """
    after = TableStore(store.file_io, store.root, store.name, following, None, store.clock, store.branch)
    after.in_catalog_of(store)
    if "bucket" in store.schema.options and not store.options.is_set("bucket"):
        # It is being repaired: without it a table with a key would be one of dynamic buckets, for good.
        if after.has_primary_key and after.options.bucket == -1:
            raise UnsupportedFeature(
                "dynamic buckets in a table whose files are in fixed buckets; set 'bucket' to their number", store.name
            )
        fixed = TableOptions({**store.options.raw, "bucket": "1"}, store.name, stored=True)
        other = TableStore(store.file_io, store.root, store.name, store.schema, fixed, store.clock, store.branch)
        store = other.in_catalog_of(store)
    known = set(unsupported(store, Purpose.WRITE))
    for feature in unsupported(after, Purpose.WRITE):
        if feature not in known:
            raise UnsupportedFeature(feature, store.name)


def _lost_schema_text(path: str) -> str:
    """Return the error text and the next step for the folder ``path``, which has snapshots but no schema file."""
    remedy = "put schema-0 and the later schema files back from a copy"
    return f"{path} has snapshots but no file in schema/; {remedy} (a `dredge copy-table` at work writes them last)"
