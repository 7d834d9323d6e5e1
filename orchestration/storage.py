"""SQLite storage of Dagster for many tables: Dagster's own databases and tables, with one engine per database.

Dagster's SQLite storages make a new SQLAlchemy engine for every connection. The new engine compiles every statement
again, and the new connection reads the schema of the database again. Together this is four fifths of the time to store
an event. `FleetInstance` uses these storages unless `dagster.yaml` names a storage. Both can open each other's folders.

Events of assets without a run, which are all events of sensors, are stored by statements that are built once. Dagster
builds four statements per event and converts most events to JSON twice, which takes twice the time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any, Final

import dagster as dg
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.base_storage import DagsterStorage
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    AssetKeyTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.runs import SqliteRunStorage
from dagster._core.storage.schedules import SqliteScheduleStorage
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from sqlalchemy.dialects.sqlite import insert as insert_or_update

_MOST_ENGINES: Final = 16
"""Most databases whose engines a storage keeps; each run has its own database of events."""
_INDEX: Final = "index"
_TIMESTAMP: Final = "last_materialization_timestamp"
_INSERT_EVENT: Final = SqlEventLogStorageTable.insert()
_INSERT_TAGS: Final = AssetEventTagsTable.insert()
_INSERT_EVALUATION: Final = AssetCheckExecutionsTable.insert()


def _put_asset(*columns: str) -> Any:
    """Return the statement that inserts the row of an asset, or updates columns of its row."""
    statement = insert_or_update(AssetKeyTable)
    updates = {name: statement.excluded[name] for name in columns}
    return statement.on_conflict_do_update(index_elements=[AssetKeyTable.c.asset_key], set_=updates)


_PUT_MATERIALIZED: Final = _put_asset("last_materialization", "last_run_id", _TIMESTAMP)
_PUT_OBSERVED: Final = _put_asset(_TIMESTAMP)

Connect = Callable[[], AbstractContextManager[Any]]


class KeptEngines:
    """Engines of the databases that were used last, by name of the database."""

    def __init__(self) -> None:
        self._engines: Final[OrderedDict[str, Any]] = OrderedDict()
        self._lock: Final = Lock()

    def get(self, name: str) -> Any:
        """Return the engine of a database, or None if it is not kept."""
        with self._lock:
            engine = self._engines.get(name)
            if engine is not None:
                self._engines.move_to_end(name)
            return engine

    def put(self, name: str, engine: Any) -> None:
        """Keep the engine of a database; beyond the limit, the engine with the oldest use is dropped."""
        with self._lock:
            self._engines[name] = engine
            self._engines.move_to_end(name)
            while len(self._engines) > _MOST_ENGINES:
                self._engines.popitem(last=False)

    def clear(self) -> None:
        """Drop all engines."""
        with self._lock:
            self._engines.clear()

    @contextmanager
    def connect(self, name: str, connect_as_dagster: Connect) -> Iterator[Any]:
        """Open a connection in a transaction, which ends with the context.

        Args:
            name: name of the database.
            connect_as_dagster: opens a connection of a new engine, and creates the database if it is missing.
        """
        engine = self.get(name)
        if engine is None:
            with connect_as_dagster() as connection:
                yield connection
            self.put(name, connection.engine)
            return
        with engine.begin() as connection:
            yield connection


class HeldConnection:
    """Open connection to one database, which the threads of a process use in turn.

    An error closes the connection, so that the next use opens a new one. A forked process opens its own.
    """

    def __init__(self) -> None:
        self._connection: Any = None
        self._process = 0
        self._of_parents: Final[list[Any]] = []  # SQLite forbids closing them in a forked process

    @contextmanager
    def connect(self, engine: Any) -> Iterator[Any]:
        """Yield the connection in a transaction, which ends with the context. The caller holds the database's lock.

        Args:
            engine: engine of the database.
        """
        if self._process != os.getpid():
            self._of_parents.append(self._connection)
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            self._connection = engine.connect()
        try:
            with self._connection.begin():
                yield self._connection
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if this process opened it."""
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            connection.close()


class FleetEventLogStorage(SqliteEventLogStorage):
    """Dagster's SQLite storage of events, with kept engines and names of tables.

    The two databases to which sensors write stay open: the index, and the events without a run.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.engines: Final = KeptEngines()
        self.held: Final = {_INDEX: HeldConnection(), RUNLESS_RUN_ID: HeldConnection()}
        self.one_at_a_time: Final = Lock()
        self.known_tables: Final[set[str]] = set()
        self.known_columns: Final[set[str]] = set()
        super().__init__(base_dir, inst_data)

    def run_connection(self, run_id: str | None = None) -> Any:
        """Open a connection to the database with the events of a run.

        Args:
            run_id: ID of the run, or "" for events without a run.
        """
        connect = super().run_connection
        return self.open_database(run_id or RUNLESS_RUN_ID, lambda: connect(run_id))

    def index_connection(self) -> Any:
        """Open a connection to the index, which has the events of assets and the states of runs."""
        return self.open_database(_INDEX, super().index_connection)

    @contextmanager
    def open_database(self, name: str, connect_as_dagster: Connect) -> Iterator[Any]:
        """Open a connection in a transaction; the process has at most one at a time, as with Dagster's storage.

        Args:
            name: name of the database.
            connect_as_dagster: opens a connection of a new engine, and creates the database if it is missing.
        """
        engine, held = self.engines.get(name), self.held.get(name)
        if engine is None:  # Dagster's method has a lock of its own
            with self.engines.connect(name, connect_as_dagster) as connection:
                yield connection
            return
        with self.one_at_a_time, engine.begin() if held is None else held.connect(engine) as connection:
            yield connection

    def has_table(self, table_name: str) -> bool:
        """Return whether the index has a table; tables are never dropped, so only missing ones are looked for again."""
        if table_name not in self.known_tables:
            if not super().has_table(table_name):
                return False
            self.known_tables.add(table_name)
        return True

    def _has_asset_key_col_on_connection(self, conn: Any, column_name: str) -> bool:
        if column_name not in self.known_columns:  # columns are never dropped
            if not super()._has_asset_key_col_on_connection(conn, column_name):
                return False
            self.known_columns.add(column_name)
        return True

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event, in the same rows as Dagster's storage.

        Args:
            event: the event.
        """
        dagster_event = event.dagster_event
        is_asset_event = dagster_event is not None and (
            dagster_event.is_step_materialization or dagster_event.is_asset_observation
        )
        evaluation = None if dagster_event is None else dagster_event.event_specific_data
        is_evaluation = isinstance(evaluation, dg.AssetCheckEvaluation) and self.has_table(
            AssetCheckExecutionsTable.name
        )
        if dagster_event is None or event.run_id != RUNLESS_RUN_ID or not (is_asset_event or is_evaluation):
            super().store_event(event)
            return
        row = self._event_to_row(event)
        tags = [] if is_evaluation else self._tags_for_asset_event(event).items()
        has_tags = bool(tags) and self.has_table(AssetEventTagsTable.name)  # opens the index, if it does not know
        with self.run_connection(event.run_id) as connection:
            connection.execute(_INSERT_EVENT, row)
        with self.index_connection() as connection:
            event_id = connection.execute(_INSERT_EVENT, row).inserted_primary_key[0]
            if isinstance(evaluation, dg.AssetCheckEvaluation):
                connection.execute(_INSERT_EVALUATION, _evaluation_row(evaluation, row, event_id))
                return
            if has_tags:
                tag_row = {"event_id": event_id, "asset_key": row["asset_key"], "event_timestamp": row["timestamp"]}
                connection.execute(_INSERT_TAGS, [{**tag_row, "key": key, "value": value} for key, value in tags])
            if not self._has_asset_key_index_cols_on_connection(connection):
                self._store_asset_event(connection, event, event_id)
                return
            asset_row = {"asset_key": row["asset_key"], _TIMESTAMP: row["timestamp"]}
            if dagster_event.is_asset_observation:
                connection.execute(_PUT_OBSERVED, asset_row)
                return
            # The text of `EventLogRecord`, which has the text of the event.
            record = f'{{"__class__": "EventLogRecord", "event_log_entry": {row["event"]}, "storage_id": {event_id}}}'
            asset_row |= {"last_materialization": record, "last_run_id": event.run_id}
            connection.execute(_PUT_MATERIALIZED, asset_row)

    def wipe(self) -> None:
        """Delete all events, and the databases of all runs."""
        self.close()
        super().wipe()

    def upgrade(self) -> None:
        """Migrate the databases to the schema of the installed version of Dagster."""
        self.close()
        super().upgrade()

    def dispose(self) -> None:
        """Close the open connections, and end the watches of runs."""
        self.close()
        super().dispose()

    def close(self) -> None:
        """Close the open connections and drop the engines; the next use opens them again."""
        with self.one_at_a_time:
            self.engines.clear()
            for held in self.held.values():
                held.close()


def _evaluation_row(evaluation: dg.AssetCheckEvaluation, row: Mapping[str, Any], event_id: int) -> dict[str, Any]:
    """Return the row of a check's evaluation without a run.

    Args:
        evaluation: the evaluation.
        row: row of its event.
        event_id: ID of the event in the index.
    """
    target = evaluation.target_materialization_data
    status = AssetCheckExecutionRecordStatus.SUCCEEDED if evaluation.passed else AssetCheckExecutionRecordStatus.FAILED
    return {
        "asset_key": evaluation.asset_key.to_string(),
        "check_name": evaluation.check_name,
        "run_id": row["run_id"],
        "execution_status": status.value,
        "evaluation_event": row["event"],
        "evaluation_event_timestamp": row["timestamp"],
        "evaluation_event_storage_id": event_id,
        "materialization_event_storage_id": target.storage_id if target else None,
        "partition": evaluation.partition,
    }


class FleetRunStorage(SqliteRunStorage):
    """Dagster's SQLite storage of runs, with a kept engine."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.engines: Final = KeptEngines()
        super().__init__(conn_string, inst_data)

    def connect(self) -> Any:
        """Open a connection in a transaction, which ends with the context."""
        return self.engines.connect("", super().connect)


class FleetScheduleStorage(SqliteScheduleStorage):
    """Dagster's SQLite storage of sensors, schedules and their ticks, with a kept engine."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.engines: Final = KeptEngines()
        super().__init__(conn_string, inst_data)

    def connect(self) -> Any:
        """Open a connection in a transaction, which ends with the context."""
        return self.engines.connect("", super().connect)


class FleetStorage(DagsterStorage[Any], ConfigurableClass):
    """Storages of a Dagster instance in SQLite, in the folders that Dagster's own storage uses.

    Args:
        base_dir: folder of the instance.
        inst_data: settings that this object was made from, or None.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.data: Final = inst_data
        self.runs: Final = FleetRunStorage.from_local(os.path.join(base_dir, "history", ""))
        self.events: Final = FleetEventLogStorage(os.path.join(base_dir, "history", "runs", ""))
        self.schedules: Final = FleetScheduleStorage.from_local(os.path.join(base_dir, "schedules"))
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """Settings that this object was made from."""
        return self.data

    @classmethod
    def config_type(cls) -> Mapping[str, Any]:
        """Return the settings: the folder of the instance."""
        return {"base_dir": dg.StringSource}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, str]
    ) -> FleetStorage:
        """Return the storages for checked settings.

        Args:
            inst_data: the settings as text.
            config_value: the settings.
        """
        return cls(config_value["base_dir"], inst_data)

    @property
    def event_log_storage(self) -> FleetEventLogStorage:
        """Storage of events."""
        return self.events

    @property
    def run_storage(self) -> Any:
        """Storage of runs."""
        return self.runs

    @property
    def schedule_storage(self) -> Any:
        """Storage of sensors, schedules and their ticks."""
        return self.schedules

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        """Give the storages the instance that uses them.

        Args:
            instance: the instance.
        """
        super().register_instance(instance)
        for storage in (self.runs, self.events, self.schedules):
            if not storage.has_instance:
                storage.register_instance(instance)

    def dispose(self) -> None:
        """Close all storages."""
        for storage in (self.events, self.runs, self.schedules):
            storage.dispose()
