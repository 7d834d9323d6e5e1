"""A Hive metastore in this process, on the generated code of the client: for faults and hostile answers, without Java.

It keeps databases, tables and partitions in memory. As Hive 2.3 does, it creates the folders of databases, and moves
the folder of a managed table that is renamed.
"""

from __future__ import annotations

import copy
import os
import shutil
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from pymetastore.hive_metastore import ttypes
from pymetastore.hive_metastore.ThriftHiveMetastore import Processor
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase, TTransportException


@dataclass
class Fault:
    """Fault of the next calls of one method.

    Attributes:
        method: name of the method, or "*".
        kind: "cut-before", "cut-after" (connection closed before or after the call was carried out), "error" (an
            application error), "silence" (no answer), or "bytes" (``data`` in place of the answer).
        times: number of calls that still fail.
        data: bytes for "bytes".
        seconds: duration of a silence.
    """

    method: str
    kind: str
    times: int = 1
    data: bytes = b""
    seconds: float = 5.0


@dataclass
class HiveDouble:
    """The metastore. Attributes may be changed between calls.

    Attributes:
        warehouse: folder of databases without a location.
        databases: databases by name.
        tables: tables by (database, name).
        partitions: partitions by (database, table, values).
        done: partitions that were marked, as (database, table, values by column).
        faults: faults that are still to come.
        calls: methods of all calls that arrived.
        unknown: methods that the server does not know.
        refused: methods that answer with MetaException.
        refusal: text of these answers.
    """

    warehouse: str
    databases: dict[str, ttypes.Database] = field(default_factory=dict)
    tables: dict[tuple[str, str], ttypes.Table] = field(default_factory=dict)
    partitions: dict[tuple[str, str, tuple[str, ...]], ttypes.Partition] = field(default_factory=dict)
    done: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=lambda: {"get_catalogs"})
    refused: set[str] = field(default_factory=set)
    refusal: str = "refused by the test"
    connections: int = 0

    def __post_init__(self) -> None:
        """Start to listen."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self.uri = f"thrift://127.0.0.1:{self.port}"
        self.databases["default"] = ttypes.Database("default", "", self.warehouse, {})
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop to listen, and close all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for connections
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections."""
        while self._open:
            opened = self._open.pop()
            try:
                opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(accepted)
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        handler = Processor(_Refusing(self, _Handler(self)))
        reader = TBinaryProtocol(_SocketTransport(accepted))
        with accepted:
            while True:
                answer = TMemoryBuffer()
                try:
                    name, _, sequence = reader.readMessageBegin()
                    self.calls.append(name)
                    fault = self._next_fault(name)
                    if fault is not None and fault.kind == "cut-before":
                        return
                    writer = TBinaryProtocol(answer)
                    if name in self.unknown or (fault is not None and fault.kind == "error"):
                        _read_rest(reader)
                        known = TApplicationException.INTERNAL_ERROR
                        number = TApplicationException.UNKNOWN_METHOD if name in self.unknown else known
                        writer.writeMessageBegin(name, 3, sequence)
                        TApplicationException(number, f"Invalid method name: '{name}'").write(writer)
                        writer.writeMessageEnd()
                    else:
                        handler._processMap[name](handler, sequence, reader, writer)
                    if fault is not None and fault.kind == "cut-after":
                        return
                    if fault is not None and fault.kind == "silence":
                        time.sleep(fault.seconds)
                    accepted.sendall(fault.data if fault is not None and fault.kind == "bytes" else answer.getvalue())
                except (TTransportException, OSError):
                    return

    def _next_fault(self, method: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method or (fault.method == "*" and method != "set_ugi"):
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None


class _SocketTransport(TTransportBase):  # type: ignore[misc]  # the package has no types
    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    def read(self, size: int) -> bytes:
        data = self._socket.recv(size)
        if not data:
            raise TTransportException(TTransportException.END_OF_FILE)
        return data

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def flush(self) -> None:
        """Do nothing."""


def _read_rest(reader: TBinaryProtocol) -> None:
    from thrift.protocol.TProtocol import TType

    reader.skip(TType.STRUCT)
    reader.readMessageEnd()


class _Refusing:
    """Handler that answers some methods with an error."""

    def __init__(self, store: HiveDouble, handler: _Handler) -> None:
        self._store, self._handler = store, handler

    def __getattr__(self, method: str) -> object:
        if method in self._store.refused:
            raise ttypes.MetaException(self._store.refusal)
        return getattr(self._handler, method)


class _Handler:
    """The calls, by the names of Hive's IDL."""

    def __init__(self, store: HiveDouble) -> None:
        self._store = store

    def set_ugi(self, user: str, groups: list[str]) -> list[str]:
        return groups

    def get_all_databases(self) -> list[str]:
        return list(self._store.databases)

    def get_database(self, name: str) -> ttypes.Database:
        if name not in self._store.databases:
            raise ttypes.NoSuchObjectException(f"database {name}")
        return self._store.databases[name]

    def create_database(self, database: ttypes.Database) -> None:
        if database.name in self._store.databases:
            raise ttypes.AlreadyExistsException(f"database {database.name}")
        database = copy.deepcopy(database)
        database.locationUri = database.locationUri or f"file:{self._store.warehouse}/{database.name}.db"
        os.makedirs(_local(database.locationUri), exist_ok=True)
        self._store.databases[database.name] = database

    def drop_database(self, name: str, delete_data: bool, cascade: bool) -> None:
        database = self.get_database(name)
        if not cascade and any(key[0] == name for key in self._store.tables):
            raise ttypes.InvalidOperationException(f"database {name} is not empty")
        for key in [key for key in self._store.tables if key[0] == name]:
            del self._store.tables[key]
        del self._store.databases[name]
        if delete_data:
            shutil.rmtree(_local(database.locationUri), ignore_errors=True)

    def get_all_tables(self, database: str) -> list[str]:
        return [table for key, table in self._store.tables if key == database]

    def get_table_names_by_filter(self, database: str, condition: str, most: int) -> list[str]:
        key, value = condition.removeprefix("hive_filter_field_params__").split(" = ")
        text = value.strip('"')
        return [
            name
            for (owner, name), table in self._store.tables.items()
            if owner == database and (table.parameters or {}).get(key) == text
        ]

    def get_table_req(self, request: ttypes.GetTableRequest) -> ttypes.GetTableResult:
        return ttypes.GetTableResult(self._table(request.dbName, request.tblName))

    def get_table_objects_by_name_req(self, request: ttypes.GetTablesRequest) -> ttypes.GetTablesResult:
        keys = [(request.dbName, name) for name in request.tblNames or []]
        return ttypes.GetTablesResult([self._store.tables[key] for key in keys if key in self._store.tables])

    def create_table(self, table: ttypes.Table) -> None:
        key = (table.dbName, table.tableName)
        self.get_database(table.dbName)
        if key in self._store.tables:
            raise ttypes.AlreadyExistsException(f"table {key}")
        self._store.tables[key] = copy.deepcopy(table)

    def drop_table(self, database: str, name: str, delete_data: bool) -> None:
        table = self._table(database, name)
        del self._store.tables[(database, name)]
        if delete_data:
            shutil.rmtree(_local(table.sd.location), ignore_errors=True)

    def alter_table_with_environment_context(
        self, database: str, name: str, table: ttypes.Table, context: ttypes.EnvironmentContext
    ) -> None:
        if (database, name) not in self._store.tables:
            raise ttypes.InvalidOperationException(f"table {database}.{name} doesn't exist")
        before = self._store.tables[(database, name)]
        table, to = copy.deepcopy(table), (table.dbName, table.tableName)
        if to != (database, name):
            if to in self._store.tables:
                raise ttypes.InvalidOperationException(f"new table {to} already exists")
            if (table.parameters or {}).get("EXTERNAL") != "TRUE" and table.sd.location == before.sd.location:
                location = f"{self.get_database(to[0]).locationUri}/{to[1]}"
                if os.path.exists(_local(location)):
                    raise ttypes.InvalidOperationException(f"New location for this table already exists : {location}")
                if os.path.exists(_local(before.sd.location)):
                    os.rename(_local(before.sd.location), _local(location))
                table.sd.location = location
            del self._store.tables[(database, name)]
        self._store.tables[to] = table

    def add_partitions_req(self, request: ttypes.AddPartitionsRequest) -> ttypes.AddPartitionsResult:
        for part in request.parts:
            key = (part.dbName, part.tableName, tuple(part.values))
            if key in self._store.partitions and not request.ifNotExists:
                raise ttypes.AlreadyExistsException(f"partition {key}")
            self._store.partitions.setdefault(key, copy.deepcopy(part))
        return ttypes.AddPartitionsResult()

    def drop_partition(self, database: str, name: str, values: list[str], delete_data: bool) -> bool:
        key = (database, name, tuple(values))
        if key not in self._store.partitions:
            raise ttypes.NoSuchObjectException(f"partition {key}")
        del self._store.partitions[key]
        return True

    def get_partition_names(self, database: str, name: str, most: int) -> list[str]:
        keys = [column.name for column in self._table(database, name).partitionKeys or []]
        return [
            "/".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
            for owner, table, values in self._store.partitions
            if (owner, table) == (database, name)
        ]

    def markPartitionForEvent(self, database: str, name: str, values: dict[str, str], event: int) -> None:
        self._table(database, name)
        self._store.done.append((database, name, dict(values)))

    def _table(self, database: str, name: str) -> ttypes.Table:
        if (database, name) not in self._store.tables:
            raise ttypes.NoSuchObjectException(f"{database}.{name} table not found")
        return self._store.tables[(database, name)]


def _local(location: str) -> str:
    return location.removeprefix("file://").removeprefix("file:")
