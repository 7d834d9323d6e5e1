"""Databases and tables of a filesystem catalog: each database and each table is a folder.

Source: Paimon `FileSystemCatalog`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from lsm_core.errors import CorruptFile, DredgeError, InvalidSchema, MetastoreFailed, StorageRefused
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import store
from lsm_core.metadata.branches import MAIN
from lsm_core.storage import FileIO, FileStatus, inside_really, is_link
from lsm_core.table.names import DATABASE_SUFFIX, TableName, checked_database

if TYPE_CHECKING:
    from lsm_core.table.schema_change import SchemaChange

_LOG = logging.getLogger(__name__)


class ChangeUnknown(MetastoreFailed):
    """The outcome of a change in a catalog server or metastore is unknown; nothing that it may need is deleted."""


def send_change(
    send: Callable[[], None],
    has_happened: Callable[[], bool],
    description: str,
    address: str,
    *,
    refusal: type[Exception],
    lost: type[Exception],
) -> None:
    """Send a request that changes something; a lost answer is looked up, and the request is sent once more.

    Args:
        send: sends the request.
        has_happened: returns whether the server carried the request out.
        description: what the request does, for the error.
        address: address of the server, without secrets.
        refusal: error of ``send`` if the server refused; it is raised as it is.
        lost: error of ``send`` if the request was sent and its answer is missing.

    Raises:
        ChangeUnknown: the outcome stays unknown.
    """
    try:
        send()
        return
    except lost as error:
        if _look_up(has_happened, description, address, error):
            return
    try:
        send()
    except refusal:
        if not _has_surely_happened(has_happened):  # else the first request arrived late
            raise
    except lost as error:
        if not _look_up(has_happened, description, address, error):
            raise ChangeUnknown(address, f"the {description} failed twice ({error})") from error


def _look_up(has_happened: Callable[[], bool], description: str, address: str, error: Exception) -> bool:
    try:
        return has_happened()
    except DredgeError as failure:
        reason = f"the outcome of the {description} is unknown ({error}), and cannot be looked up: {failure}"
        raise ChangeUnknown(address, reason) from failure


def _has_surely_happened(has_happened: Callable[[], bool]) -> bool:
    try:
        return has_happened()
    except DredgeError:
        return False


def is_served_name(name: str, check: Callable[[str], object]) -> bool:
    """Return whether a name from a server is one that paths may have; log a warning if not.

    Args:
        name: the name.
        check: function that raises InvalidSchema for a bad name.
    """
    try:
        check(name)
    except InvalidSchema as error:
        _LOG.warning("left out of the catalog: %s", error)
        return False
    return True


class FolderMetastore:
    """Metastore of folders: databases are folders ``NAME.db`` below a root, tables are their subfolders with a schema.

    Callers check names and symbolic links before each change. `JdbcMetastore` extends this class.
    """

    def __init__(self, file_io: FileIO, root: str) -> None:
        self.file_io, self.root = file_io, root

    def database_path(self, name: str) -> str:
        """Return the directory of a database, whether it exists or not. Raises InvalidSchema for a bad name."""
        return f"{self.root}/{checked_database(name)}{DATABASE_SUFFIX}"

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted."""
        names = (s.name for s in self._folders(self.root) if s.name.endswith(DATABASE_SUFFIX))
        return sorted(name.removesuffix(DATABASE_SUFFIX) for name in names if name != DATABASE_SUFFIX)

    def has_database(self, name: str) -> bool:
        """Return whether a database exists."""
        return self.file_io.exists(self.database_path(name))

    def add_database(self, name: str) -> None:
        """Add a new database."""
        self.file_io.mkdirs(self.database_path(name))

    def remove_database(self, name: str) -> None:
        """Remove a database with all its tables."""
        self._delete(self.database_path(name), f"database {name}")

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, sorted.

        A folder that cannot be read counts as a table, so that the listing does not fail; opening this table raises the
        reason.
        """
        return sorted(f.name for f in self._folders(self.database_path(database)) if self._may_be_table(f.path))

    def other_tables(self, database: str) -> dict[str, str]:
        """Return no names: a listing has tables only."""
        del database
        return {}

    def read_ahead(self, database: str) -> None:
        """Do nothing: the folders of the tables are all that is read of each."""
        del database

    def folders_without_schema(self, database: str, tables: Collection[str]) -> list[str]:
        """Return the names of the folders of a database that have snapshots but no schema file, sorted.

        Such a folder is a table whose schema files were lost, or the target of a copy at work. It does not count as a
        table.

        Args:
            database: name of the database.
            tables: names of the database's tables, whose folders are not looked at.
        """
        folders = (folder for folder in self._folders(self.database_path(database)) if folder.name not in tables)
        return sorted(folder.name for folder in folders if self._lacks_schema(folder.path))

    def lacks_schema(self, name: TableName) -> bool:
        """Return whether the folder of a table has snapshots but no schema file."""
        return self._lacks_schema(self._path(name))

    def _lacks_schema(self, path: str) -> bool:
        snapshots = (status.name.startswith("snapshot-") for status in self.file_io.list_dir(f"{path}/snapshot"))
        return any(snapshots) and not store.list_schema_ids(self.file_io, path)

    def has_table(self, name: TableName) -> bool:
        """Return whether a table exists."""
        return bool(store.list_schema_ids(self.file_io, self._path(name)))

    def write_schema(self, name: TableName, schema: TableSchema, branch: str = MAIN) -> bool:
        """Create a schema file; the first schema file creates the table.

        Returns:
            False when another writer created the schema with this id.
        """
        return store.write_schema(self.file_io, self._path(name), schema, branch)

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """Create a table with its first schema.

        Returns:
            False when a table has the name.
        """
        return not store.list_schema_ids(self.file_io, self._path(name)) and self.write_schema(name, schema)

    def alter_table(
        self, name: TableName, branch: str, before: TableSchema, changes: Sequence[SchemaChange], after: TableSchema
    ) -> bool:
        """Write the schema of an altered table.

        Args:
            name: the table.
            branch: branch of the table.
            before: schema before the changes.
            changes: the changes.
            after: schema after the changes.

        Returns:
            False when another writer created the schema with this id.
        """
        del before, changes
        return self.write_schema(name, after, branch)

    def remove_table(self, name: TableName) -> None:
        """Remove a table with all its files."""
        self._delete(self._path(name), f"table {name}")

    def move_table(self, name: TableName, to: TableName) -> bool:
        """Rename a table.

        Returns:
            False when a table has the new name.
        """
        return self.file_io.rename(self._path(name), self._path(to))

    def _path(self, name: TableName) -> str:
        return f"{self.database_path(name.database)}/{name.table}"

    def _folders(self, path: str) -> Iterator[FileStatus]:
        """Yield the folders below a path, and symbolic links that do not lead to a file.

        A table behind a link can be opened by its name.
        """
        return (
            status
            for status in self.file_io.list_dir(path)
            if status.is_dir or (is_link(status.path) and not os.path.isfile(status.path))
        )

    def _may_be_table(self, path: str) -> bool:
        try:
            return bool(store.list_schema_ids(self.file_io, path))
        except (CorruptFile, PermissionError):
            return True

    def _delete(self, path: str, description: str) -> None:
        if not self.file_io.delete_dir(inside_really(self.root, path)):
            raise StorageRefused(path, f"{description} is not a folder any more", "remove")
