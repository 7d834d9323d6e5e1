"""Databases and tables of a Paimon REST catalog server; the server also publishes snapshots and alters schemas.

The files of a table, schema files included, are in the table's folder. The server names this folder, so the folder is
checked before it is used: it must be an absolute place, and its schema files must agree with the server's schema.

Source: Paimon `RESTCatalog`, `CatalogSnapshotCommit`, `RESTApi`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lsm_core.errors import (
    CorruptFile,
    DatabaseNotFound,
    DredgeError,
    InvalidSchema,
    MetastoreFailed,
    SnapshotNotFound,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_text import parse_json
from lsm_core.metadata.branches import MAIN, NAME_PREFIX
from lsm_core.metadata.store import OutcomeUnknown, SnapshotPublisher, list_schema_ids, load_schema, schema_path
from lsm_core.storage import FileIO, file_io_for, place_of
from lsm_core.table.altering import as_type
from lsm_core.table.column_path import as_row, split_path
from lsm_core.table.locations import checked_folder
from lsm_core.table.metastore import is_served_name, send_change
from lsm_core.table.names import TableName, checked_database, checked_table
from lsm_core.table.rest_client import RestClient, ServerRefusal
from lsm_core.table.rest_keys import ServedKeys
from lsm_core.table.schema_change import Move, SchemaChange
from lsm_core.types import to_json

_LOG = logging.getLogger(__name__)
_NOT_FOUND, _CONFLICT = 404, 409
_DATA_TOKEN: Final = "data-token.enabled"  # noqa: S105 - the name of an option
_DATABASES, _TABLES = "databases", "tables"
_AHEAD_SECONDS: Final = 60.0
_PARTITIONS_AT_ONCE: Final = 1000
"""Largest number of partitions in one request that marks them as done."""


@dataclass(frozen=True)
class ServedTable:
    """A table or branch as the server describes it.

    Attributes:
        id: the server's id of the table, which a new table of the same name does not get.
        path: absolute path or address of the table's folder.
        schema_id: id of the newest schema.
        is_external: whether the server leaves the table's snapshots to its clients.
    """

    id: str
    path: str
    schema_id: int
    is_external: bool


class RestMetastore:
    """Databases and tables of one warehouse of a REST catalog server.

    All methods raise MetastoreFailed when the server cannot be used or forbids the operation.

    Attributes:
        root: address of the warehouse, for messages.
        takes_folders: False: the server decides about the folders of its tables.

    Args:
        client: the client of the warehouse.
        storage: settings for access to the object store.
    """

    takes_folders = False

    def __init__(self, client: RestClient, storage: Mapping[str, str]) -> None:
        self._client, self._storage = client, dict(storage)
        self._ahead: dict[str, tuple[float, dict[str, Any]]] = {}
        self.root = f"{client.address}/{client.warehouse}"

    @property
    def address(self) -> str:
        """Address of the server, for messages."""
        return self._client.address

    # -- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """Return the address of a database, for messages. Raises InvalidSchema for a bad name."""
        return f"{self.root}/{checked_database(name)}"

    def databases(self) -> list[str]:
        """Return the names of all databases, sorted; unsafe names are left out, with a warning in the log."""
        try:
            return sorted(
                name for name in self._names("databases", _DATABASES) if is_served_name(name, checked_database)
            )
        except ServerRefusal as refusal:
            raise self._failed(refusal) from refusal

    def has_database(self, name: str) -> bool:
        """Return whether the server has a database."""
        try:
            self._client.get(_DATABASES, checked_database(name))
        except ServerRefusal as refusal:
            return self._absent(refusal)
        return True

    def add_database(self, name: str) -> None:
        """Create a database."""
        body = _body({"name": checked_database(name), "options": {}})

        def create() -> None:
            try:
                self._client.post(body, _DATABASES)
            except ServerRefusal as refusal:
                if refusal.status != _CONFLICT:
                    raise
                _LOG.info("database %s was created meanwhile by another client", name)

        self._change(create, lambda: self.has_database(name), f"creation of database {name}")

    def remove_database(self, name: str) -> None:
        """Drop a database with all its tables; the server deletes their files."""
        for table in self.tables(name):
            self.remove_table(TableName(name, table))

        def drop() -> None:
            try:
                self._client.delete(_DATABASES, checked_database(name))
            except ServerRefusal as refusal:
                if refusal.status != _NOT_FOUND:
                    raise

        self._change(drop, lambda: not self.has_database(name), f"drop of database {name}")

    # -- tables ----------------------------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, sorted; unsafe names are left out, with a warning."""
        try:
            names = list(self._names("tables", _DATABASES, checked_database(database), _TABLES))
        except ServerRefusal as refusal:
            if refusal.status == _NOT_FOUND:
                raise DatabaseNotFound(f"database {database} is not in {self.root}") from refusal
            raise self._failed(refusal) from refusal
        return sorted({name for name in names if "$" not in name and is_served_name(name, checked_table)})

    def other_tables(self, database: str) -> dict[str, str]:
        """Return no names: a listing has tables only."""
        del database
        return {}

    def read_ahead(self, database: str) -> None:
        """Read the descriptions of all tables of a database in pages; the next look at each table uses them.

        Each description is used once, within a minute. A server without such a listing is asked for each table.
        """
        now = time.monotonic()
        self._ahead = {name: entry for name, entry in list(self._ahead.items()) if now < entry[0]}
        try:
            for page in self._client.pages("tableDetails", _DATABASES, checked_database(database), "table-details"):
                named = {str(table.get("name")): _without_columns(table) for table in page if isinstance(table, dict)}
                self._ahead |= {f"{database}.{name}": (now + _AHEAD_SECONDS, table) for name, table in named.items()}
        except (ServerRefusal, UnsupportedFeature) as error:
            _LOG.debug("the descriptions of database %s are not listed: %s", database, error)

    def folders_without_schema(self, database: str, tables: Collection[str]) -> list[str]:
        """Return no names: the server alone knows the folders of a database."""
        del database, tables
        return []

    def lacks_schema(self, name: TableName) -> bool:
        """Return False: a table exists if the server lists it."""
        del name
        return False

    def has_table(self, name: TableName) -> bool:
        """Return whether the server has a table."""
        return self._look_up(name) is not None

    def served(self, name: TableName) -> ServedTable:
        """Return a table or branch as the server describes it.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
            MetastoreFailed: the server names an unsafe folder.
        """
        table = self._look_up(name)
        if table is None and name.branch != MAIN:
            table = self._external_branch(name)
        if table is None:
            if not self.has_database(name.database):
                known = ", ".join(self.databases()) or "none"
                raise DatabaseNotFound(f"database {name.database} is not in {self.root}; it has: {known}")
            known = ", ".join(self.tables(name.database)) or "none"
            raise TableNotFound(f"table {name.on_branch} is not in {self.root}; database {name.database} has: {known}")
        return table

    def file_io(self, name: TableName, table: ServedTable) -> FileIO:
        """Return access to the files of a table; with `data-token.enabled`, with the table's own keys.

        Raises:
            UnsupportedFeature: the storage is not offered, or the server does not offer keys for each table.
            TableNotFound: the table was dropped or renamed meanwhile.
        """
        keys = None
        if place_of(table.path) and self._client.settings.get(_DATA_TOKEN, "").lower() == "true":
            keys = ServedKeys(self._client, name.database, name.table, table.id, table.path.partition(":")[0])
            keys.keys()  # here an error keeps its type, which the store's threads lose
        return file_io_for(table.path, self._storage, escaped=False, keys=keys, from_server=True)[0]

    def publisher(self, name: TableName, table: ServedTable) -> SnapshotPublisher | None:
        """Return the publisher of a table's snapshots, or None for an external table, whose clients publish."""
        return None if table.is_external else RestPublisher(self._client, name.plain, table.id)

    def folder(self, name: TableName) -> tuple[FileIO, str, SnapshotPublisher | None]:
        """Return access to the files of a table, its folder, and the publisher of its snapshots.

        Raises:
            TableNotFound: the table or branch does not exist.
            DatabaseNotFound: the database does not exist.
            CorruptFile: the server names a folder that is not the table's.
            MetastoreFailed: the server names an unsafe folder.
        """
        table = self.served(name)
        try:
            self.require_folder(name, table, name.branch)
        except CorruptFile:  # a description that was read ahead may be outdated
            table = self.served(name)
            self.require_folder(name, table, name.branch)
        return self.file_io(name, table), table.path, self.publisher(name, table)

    def partition_list(self, name: TableName, schema: TableSchema) -> None:
        """Return None: a commit sends the counts of its partitions to the server."""
        del name, schema

    def folder_io(self, path: str) -> FileIO:
        """Return access to a folder with the keys of this process. Raises UnsupportedFeature."""
        return file_io_for(path, self._storage, escaped=False, from_server=True)[0]

    def require_folder(self, name: TableName, table: ServedTable, branch: str = MAIN) -> None:
        """Check that the folder that the server names is a table with the schema that the server names.

        The check protects other folders: nothing is read or deleted in a folder whose schema the server does not know.

        Raises:
            CorruptFile: the folder does not have this schema file.
        """
        if not self.file_io(name, table).exists(schema_path(table.path, table.schema_id, branch)):
            reason = f"the catalog server says that table {name.plain} is here, with schema {table.schema_id}"
            raise CorruptFile(table.path, f"{reason}, but the folder has no such schema file")

    def newest_schema(self, name: TableName, table: ServedTable, branch: str = MAIN) -> TableSchema:
        """Return the newest schema of a table, read from its folder. Raises as :meth:`require_folder`."""
        self.require_folder(name, table, branch)
        file_io = self.file_io(name, table)
        return load_schema(file_io, table.path, list_schema_ids(file_io, table.path, branch)[-1], branch)

    def create_table(self, name: TableName, schema: TableSchema) -> bool:
        """Create a table.

        Returns:
            False when a table has the name.

        Raises:
            DatabaseNotFound: the database does not exist.
            InvalidSchema: the server refuses the definition.
        """
        body = _body({"identifier": _identifier(name.database, name.table), "schema": schema_object(schema)})
        created = True

        def create() -> None:
            nonlocal created
            try:
                self._client.post(body, _DATABASES, name.database, _TABLES)
            except ServerRefusal as refusal:
                if refusal.status == _NOT_FOUND:
                    raise DatabaseNotFound(f"database {name.database} is not in {self.root}") from refusal
                if refusal.status != _CONFLICT:
                    raise InvalidSchema(f"table {name}: the catalog server refuses it: {refusal.message}") from refusal
                created = False

        def exists() -> bool:
            table = self._look_up(name)
            if table is None:
                return False
            present = self.newest_schema(name, table)
            return [field.to_object() for field in present.fields] == [field.to_object() for field in schema.fields]

        self._change(create, exists, f"creation of table {name}")
        return created

    def alter_table(
        self, name: TableName, branch: str, before: TableSchema, changes: Sequence[SchemaChange], after: TableSchema
    ) -> bool:
        """Alter a table: the server applies the changes and writes the schema file.

        Args:
            name: the table.
            branch: branch of the table.
            before: schema before the changes.
            changes: the changes.
            after: schema after the changes as this engine computes it, to look up an unknown outcome.

        Returns:
            True: the server orders the changes of several clients.

        Raises:
            InvalidSchema: the server refuses the changes.
            TableNotFound: the table does not exist.
        """
        body = _body({"changes": change_objects(before, changes, str(name))})
        parts = (_DATABASES, name.database, _TABLES, _object_name(name.table, branch))

        def alter() -> None:
            try:
                self._client.post(body, *parts)
            except ServerRefusal as refusal:
                if refusal.status == _NOT_FOUND and refusal.resource_type == "TABLE":
                    raise TableNotFound(f"table {name} is not in {self.root}") from refusal
                raise InvalidSchema(f"table {name}: the catalog server refuses it: {refusal.message}") from refusal

        def applied() -> bool:
            table = self.served(TableName(name.database, name.table, "", branch))
            current = self.newest_schema(name, table, branch)
            return current.id >= after.id and (current.fields, current.options, current.comment) == (
                after.fields,
                after.options,
                after.comment,
            )

        self._change(alter, applied, f"change of table {name}")
        return True

    def remove_table(self, name: TableName) -> None:
        """Drop a table; the server deletes its files."""

        def drop() -> None:
            try:
                self._client.delete(_DATABASES, name.database, _TABLES, name.table)
            except ServerRefusal as refusal:
                if refusal.status != _NOT_FOUND:
                    raise

        self._change(drop, lambda: not self.has_table(name), f"drop of table {name}")

    def move_table(self, name: TableName, to: TableName) -> bool:
        """Rename a table.

        Returns:
            False when a table has the new name.
        """
        source, destination = _identifier(name.database, name.table), _identifier(to.database, to.table)
        body = _body({"source": source, "destination": destination})
        renamed = True

        def rename() -> None:
            nonlocal renamed
            try:
                self._client.post(body, _TABLES, "rename")
            except ServerRefusal as refusal:
                if refusal.status == _NOT_FOUND:
                    raise TableNotFound(f"table {name} is not in {self.root}") from refusal
                if refusal.status != _CONFLICT:
                    raise
                renamed = False

        self._change(rename, lambda: self.has_table(to) and not self.has_table(name), f"rename of table {name}")
        return renamed

    def find_folder(self, name: str) -> tuple[FileIO, str, SnapshotPublisher | None] | None:
        """Return access to a table's files, its folder and its publisher, or None; see `FolderGiver`."""
        parsed = TableName.parse(name)
        return self.folder(parsed) if self.has_table(parsed) else None

    def add_table(self, name: str, schema: TableSchema) -> None:
        """Create a table, and its database if that does not exist; see `FolderGiver`."""
        parsed = TableName.parse(name)
        if not self.has_database(parsed.database):
            self.add_database(parsed.database)
        self.create_table(parsed, schema)

    def accepts_folder(self, name: str, folder: str) -> bool:
        """Return False: the server decides about the folders of its tables.

        Args:
            name: "db.table".
            folder: the folder.
        """
        del name, folder
        return False

    def enter_table(self, name: str, schema: TableSchema) -> None:
        """Refuse to list a folder as a table: the server decides about the folders of its tables.

        Raises:
            UnsupportedFeature: always.
        """
        del schema
        raise UnsupportedFeature("a table that is copied into the warehouse of a REST catalog by its files", name)

    # -- details ---------------------------------------------------------------------------------------------------

    def _look_up(self, name: TableName) -> ServedTable | None:
        ends, listed = self._ahead.pop(name.on_branch, (0.0, {}))
        try:
            if time.monotonic() < ends:
                answer = listed
            else:
                answer = self._client.get(_DATABASES, name.database, _TABLES, _object_name(name.table, name.branch))
        except ServerRefusal as refusal:
            self._absent(refusal)
            return None
        if not answer.get("path") and not answer.get("schema"):
            raise MetastoreFailed(self._client.address, f"its description of table {name} has no path")
        kind = str(_without_columns(answer)["schema"]["options"]["type"]).lower()
        if kind != "table":
            raise UnsupportedFeature(f"a table of type '{kind}'", str(name))
        schema_id = answer.get("schemaId")
        if isinstance(schema_id, bool) or not isinstance(schema_id, int) or schema_id < 0:
            raise MetastoreFailed(self._client.address, f"its description of table {name} has no schemaId")
        path = checked_folder(answer.get("path"), f"table {name}", self._client.address)
        return ServedTable(str(answer.get("id") or ""), path, schema_id, answer.get("isExternal") is True)

    def _external_branch(self, name: TableName) -> ServedTable | None:
        """Return a branch of an external table, which only the table's folder knows, or None if there is none."""
        plain = TableName.parse(name.plain)
        table = self._look_up(plain)
        if table is None or not table.is_external:
            return None
        self.require_folder(plain, table)
        ids = list_schema_ids(self.file_io(plain, table), table.path, name.branch)
        return replace(table, schema_id=ids[-1]) if ids else None

    def _names(self, member: str, *parts: str) -> Iterator[str]:
        for page in self._client.pages(member, *parts):
            yield from (name for name in page if isinstance(name, str))

    def _absent(self, refusal: ServerRefusal) -> bool:
        """Return False for an error that says that something does not exist; raise MetastoreFailed for others."""
        if refusal.status != _NOT_FOUND:
            raise self._failed(refusal) from refusal
        return False

    def _failed(self, refusal: ServerRefusal) -> MetastoreFailed:
        return MetastoreFailed(self._client.address, f"it answered {refusal}")

    def _change(self, send: Callable[[], None], has_happened: Callable[[], bool], description: str) -> None:
        """Send a request that changes something; an unknown outcome is looked up, and the request sent once more.

        Args:
            send: sends the request.
            has_happened: returns whether the server carried the request out.
            description: what the request does, for the error.

        Raises:
            MetastoreFailed: the server refused, or the outcome stays unknown.
        """
        try:
            send_change(
                send, has_happened, description, self._client.address, refusal=ServerRefusal, lost=OutcomeUnknown
            )
        except ServerRefusal as refusal:
            raise self._failed(refusal) from refusal


class RestPublisher:
    """Publisher of one table's snapshots; it names the table's id, so a new table of the same name is not changed.

    Attributes:
        address: address of the server.

    Args:
        client: the client of the warehouse.
        table: "db.table".
        table_id: the server's id of the table.
    """

    def __init__(self, client: RestClient, table: str, table_id: str) -> None:
        self._client, self._table, self._table_id = client, table, table_id
        self.address = client.address

    def publish(
        self, snapshot: Snapshot, base: Snapshot | None, branch: str, changes: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Publish a snapshot; see `SnapshotPublisher`."""
        members = {
            "tableId": self._table_id,
            "baseSnapshotUuid": None if base is None else base.uuid,
            "snapshot": parse_json(snapshot.to_json()),
            "statistics": list(changes),
        }
        answer = self._send(members, branch, "commit")
        return answer.get("success") is True

    def roll_back(self, target: int, newest: int, branch: str) -> None:
        """Make an older snapshot the newest snapshot; see `SnapshotPublisher`."""
        self._send({"instant": {"type": "snapshot", "snapshotId": target}, "fromSnapshot": newest}, branch, "rollback")

    def create_branch(self, branch: str, from_tag: str | None) -> None:
        """Create a branch; see `SnapshotPublisher`."""
        self._send({"branch": branch, "fromTag": from_tag}, MAIN, "branches")

    def drop_branch(self, branch: str) -> None:
        """Delete a branch; see `SnapshotPublisher`."""
        self._send(None, MAIN, "branches", branch)

    def forward_branch(self, branch: str) -> None:
        """Replace the table's newer snapshots by those of a branch; see `SnapshotPublisher`."""
        self._send({}, MAIN, "branches", branch, "forward")

    def list_partitions(self, branch: str) -> Iterator[Mapping[str, Any]]:
        """Yield the partitions that the server lists; see `SnapshotPublisher`."""
        try:
            for page in self._client.pages("partitions", *self._parts(branch), "partitions"):
                yield from (entry for entry in page if isinstance(entry, dict) and _is_spec(entry.get("spec")))
        except UnsupportedFeature as error:
            _LOG.debug("table %s: its partitions are not listed by the catalog server: %s", self._table, error)
        except ServerRefusal as refusal:
            raise self._error(refusal, "partitions") from refusal

    def mark_partitions_done(self, specs: Sequence[Mapping[str, str]], branch: str) -> None:
        """Mark partitions as done; see `SnapshotPublisher`."""
        for start in range(0, len(specs), _PARTITIONS_AT_ONCE):
            members = {"specs": [dict(spec) for spec in specs[start : start + _PARTITIONS_AT_ONCE]]}
            try:
                self._send(members, branch, "partitions", "mark")
            except OutcomeUnknown as first:
                try:
                    self._send(members, branch, "partitions", "mark")
                except OutcomeUnknown as error:
                    reason = f"it may not have marked partitions of table {self._table} as done ({error})"
                    raise MetastoreFailed(self.address, f"{reason}; mark them again") from first

    def _parts(self, branch: str) -> tuple[str, ...]:
        """Return the parts of the table's path on the server."""
        database, _, table = self._table.partition(".")
        return _DATABASES, database, _TABLES, _object_name(table, branch)

    def _send(self, members: Mapping[str, Any] | None, branch: str, *verb: str) -> dict[str, Any]:
        """Send a POST with ``members``, or a DELETE without them, below the table's path on the server."""
        parts = (*self._parts(branch), *verb)
        try:
            if members is None:
                self._client.delete(*parts)
                return {}
            return self._client.post(_body(members), *parts)
        except ServerRefusal as refusal:
            raise self._error(refusal, *verb) from refusal

    def _error(self, refusal: ServerRefusal, *verb: str) -> DredgeError:
        """Return the error for a refused request below the table's path."""
        if refusal.status == _NOT_FOUND and refusal.resource_type in ("SNAPSHOT", "TAG"):
            kind = refusal.resource_type.lower()
            return SnapshotNotFound(f"table {self._table}: the catalog server has no such {kind}")
        if refusal.status == _CONFLICT:
            return TableExists(f"table {self._table}: {refusal.message}")
        if refusal.status == _NOT_FOUND and refusal.resource_type == "BRANCH":
            return TableNotFound(f"table {self._table} has no branch '{verb[1]}' on the catalog server")
        if refusal.status == _NOT_FOUND:
            reason = "was dropped, renamed or replaced since it was opened; open it again"
            return TableNotFound(f"table {self._table} {reason} ({refusal.message})")
        reason = f"it refuses the request {'/'.join(verb)} for table {self._table}: {refusal}"
        return MetastoreFailed(self.address, reason)


def schema_object(schema: TableSchema) -> dict[str, Any]:
    """Return a table's definition as the JSON object of Paimon's `Schema`."""
    return {
        "fields": [field.to_object() for field in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def change_objects(before: TableSchema, changes: Sequence[SchemaChange], table: str) -> list[dict[str, Any]]:
    """Return schema changes as the JSON objects of Paimon's `SchemaChange`.

    Args:
        before: schema before the changes, which decides how dotted names are split.
        changes: the changes.
        table: name of the table, for errors.

    Raises:
        InvalidSchema: a change is unknown, or has an invalid type.
    """
    row = as_row(before.fields)
    objects = []
    for change in changes:
        action, value = change.action, change.value
        if action in ("set_option", "remove_option"):
            members: dict[str, Any] = {"key": str(change.column)}
            if action == "set_option":
                members["value"] = str(value)
            objects.append({"action": "setOption" if action == "set_option" else "removeOption", **members})
            continue
        if action == "set_comment":
            objects.append({"action": "updateComment", "comment": None if value is None else str(value)})
            continue
        path = split_path(change.column, row)
        names = {"fieldNames": list(path)}
        if action == "add_column":
            kind = to_json(as_type(value, table, path))
            move = None if change.move_to is None else _move_object(path[-1], change.move_to)
            added = {"dataType": kind, "comment": change.comment, "move": move}
            objects.append({"action": "addColumn", **names, **added})
        elif action == "rename_column":
            objects.append({"action": "renameColumn", **names, "newName": str(value)})
        elif action == "drop_column":
            objects.append({"action": "dropColumn", **names})
        elif action == "update_type":
            kind = to_json(as_type(value, table, path))
            retyped = {"newDataType": kind, "keepNullability": change.keep_nullability}
            objects.append({"action": "updateColumnType", **names, **retyped})
        elif action == "update_nullability":
            objects.append({"action": "updateColumnNullability", **names, "newNullability": bool(value)})
        elif action == "update_column_comment":
            objects.append({"action": "updateColumnComment", **names, "newComment": change.comment})
        elif action == "update_default":
            default = None if value is None else str(value)
            objects.append({"action": "updateColumnDefaultValue", **names, "newDefaultValue": default})
        elif action == "move":
            if len(path) > 1:
                raise UnsupportedFeature("moves of nested columns through a REST catalog", table)
            move = _move_object(path[-1], change.move_to or Move("first"))
            objects.append({"action": "updateColumnPosition", "move": move})
        else:
            raise InvalidSchema(f"table {table}: schema change '{action}' is unknown")
    return objects


def _move_object(column: str, move: Move) -> dict[str, Any]:
    return {"fieldName": column, "referenceFieldName": move.reference, "type": move.kind.upper()}


def _without_columns(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's description without its columns, which are read from its schema file."""
    schema = table.get("schema")
    options = schema.get("options") if isinstance(schema, dict) else None
    kind = options.get("type", "table") if isinstance(options, dict) else "table"
    return {**table, "schema": {"options": {"type": kind}}}


def _is_spec(value: object) -> bool:
    """Return whether a value from the server has texts by column."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _identifier(database: str, table: str) -> dict[str, str]:
    return {"database": database, "object": table}


def _object_name(table: str, branch: str) -> str:
    return table if branch == MAIN else f"{table}${NAME_PREFIX}{branch}"


def _body(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=False).encode()
