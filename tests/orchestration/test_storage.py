"""The storage of Dagster with kept engines: the same databases as Dagster's own, also after errors, forks and deletions."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from dredge.orchestration.storage import FleetEventLogStorage
from dredge.orchestration.verbs.dagster_process import INSTANCE

KEY = dg.AssetKey(["warehouse", "shop", "orders"])


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an empty instance, created once, because its creation takes a second."""
    home = tmp_path_factory.mktemp("home")
    shutil.copyfile(INSTANCE, home / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY))
        instance.wipe()
    return home


@pytest.fixture
def instance(empty: Path, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "home"
    shutil.copytree(empty, home)
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened


def events_of(instance: dg.DagsterInstance) -> FleetEventLogStorage:
    assert isinstance(instance.event_log_storage, FleetEventLogStorage)
    return instance.event_log_storage


def report(instance: dg.DagsterInstance, number: int) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata={"number": number}, tags={"a": "b"}))
    instance.report_runless_asset_event(dg.AssetCheckEvaluation(asset_key=KEY, check_name="tree", passed=number > 0))
    instance.report_runless_asset_event(dg.AssetObservation(KEY, metadata={"number": number}))


def numbers(instance: dg.DagsterInstance) -> list[Any]:
    records = instance.fetch_materializations(KEY, limit=100).records
    return [record.asset_materialization.metadata["number"].value for record in records if record.asset_materialization]


def test_dagsters_own_storage_reads_and_continues_what_was_stored(instance: dg.DagsterInstance) -> None:
    report(instance, 1)
    (Path(instance.root_directory) / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(instance.root_directory) as plain:
        assert type(plain.event_log_storage) is sqlite_event_log.SqliteEventLogStorage
        assert numbers(plain) == [1]
        report(plain, 2)
        runless = [list(each.event_log_storage.get_logs_for_run(RUNLESS_RUN_ID)) for each in (plain, instance)]
    assert numbers(instance) == [2, 1]
    assert runless[0] == runless[1]
    assert [entry.dagster_event_type.value for entry in runless[0] if entry.dagster_event_type][-6:] == 2 * [
        "ASSET_MATERIALIZATION",
        "ASSET_CHECK_EVALUATION",
        "ASSET_OBSERVATION",
    ]


def test_no_engine_is_created_for_an_event_after_the_first(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(instance, 1)

    def refuse(*_: object, **__: object) -> object:
        raise AssertionError("an engine was created")

    monkeypatch.setattr(sqlite_event_log, "create_engine", refuse)
    report(instance, 2)
    assert numbers(instance) == [2, 1]
    with pytest.raises(AssertionError, match="an engine was created"):
        list(instance.event_log_storage.get_logs_for_run("a run that was never opened"))


def test_after_an_error_the_next_event_is_stored(instance: dg.DagsterInstance) -> None:
    events = events_of(instance)
    report(instance, 1)
    with pytest.raises(OperationalError, match="no such table"), events.index_connection() as connection:
        connection.execute(text("DELETE FROM event_logs"))
        connection.execute(text("SELECT * FROM missing_table"))
    report(instance, 2)
    assert numbers(instance) == [2, 1]  # and the transaction with the error was rolled back


def test_after_all_events_were_deleted_events_are_stored_again(instance: dg.DagsterInstance) -> None:
    report(instance, 1)
    instance.event_log_storage.wipe()
    assert numbers(instance) == []
    report(instance, 2)
    assert numbers(instance) == [2]


def test_threads_and_a_forked_process_store_events_at_the_same_time(instance: dg.DagsterInstance) -> None:
    report(instance, 0)
    child = os.fork()
    if child == 0:
        report(instance, 100)
        os._exit(0)
    threads = [threading.Thread(target=report, args=(instance, number)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(numbers(instance)) == [0, 1, 2, 3, 4, 100]


def test_engines_of_the_oldest_runs_are_dropped_and_their_events_stay_readable(instance: dg.DagsterInstance) -> None:
    runs = [dg.DagsterRun(job_name="job", run_id=f"run{number:02d}") for number in range(3)]
    events = events_of(instance)
    for run in runs:
        instance.report_engine_event("begun", run)
    for number in range(20):
        events.engines.put(f"other {number}", object())
    assert [events.engines.get(run.run_id) for run in runs] == [None] * 3
    events.engines.clear()
    for run in runs:
        assert [entry.message for entry in events.get_logs_for_run(run.run_id)] == ["begun"]


_STORED_AT = ("create_timestamp", "migration_completed")


def rows_of(folder: Path) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Return all rows of the databases of events by database and table, without the times at which they were stored."""
    rows: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for database in folder.glob("*.db"):
        with closing(sqlite3.connect(database)) as connection:
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
                selected = ", ".join(f'"{name}"' for name in columns if name not in _STORED_AT)
                rows[database.name, table] = connection.execute(f"SELECT {selected} FROM {table}").fetchall()
    return rows


def test_events_without_a_run_have_the_rows_of_dagsters_own_storage(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    target = AssetCheckEvaluationTargetMaterializationData(storage_id=1, run_id="", timestamp=1.0)
    tags = {DATA_VERSION_TAG: "3-ab12", "a": "b"}
    others = [
        dg.AssetMaterialization(KEY, 'a "text" \u20ac', metadata={"number": 1}, partition="day=1", tags=tags),
        dg.AssetObservation(KEY, metadata={"number": 2}, tags=tags),
        dg.AssetCheckEvaluation(asset_key=KEY, check_name="tree", passed=True, target_materialization_data=target),
        dg.AssetCheckEvaluation(asset_key=KEY, check_name="tree", passed=False, metadata={"n": 1}),
    ]
    for event in (dg.AssetObservation("another"), *others, dg.AssetMaterialization(KEY)):
        instance.report_runless_asset_event(event)
    entries = list(instance.event_log_storage.get_logs_for_run(RUNLESS_RUN_ID))[-6:]
    stored = {}
    for storage in (FleetEventLogStorage, SqliteEventLogStorage):
        folder = tmp_path / storage.__name__
        events = storage(str(folder))
        for entry in entries:
            events.store_event(entry)
        events.dispose()
        stored[storage] = rows_of(folder)
    rows = stored[FleetEventLogStorage]
    assert [len(rows["index.db", table]) for table in ("event_logs", "asset_keys", "asset_event_tags")] == [6, 2, 2]
    assert rows == stored[SqliteEventLogStorage]
