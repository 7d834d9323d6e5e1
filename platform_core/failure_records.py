"""Records of permanent failures in Dagster: tags of the failed run, and whether the failure still holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg
import pyarrow.compute as pc

from dredge.platform_core import names
from dredge.platform_core.obstacles import read_resume_ms
from dredge.platform_core.policies.permanent_failures import (
    MOST_TEXT,
    PERMANENT_NAMES,
    PermanentFailure,
    RemoteError,
    error_name,
    find_permanent_error,
    is_data_file,
)
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.errors import CorruptFile, DredgeError, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_text import parse_json
from lsm_core.maintenance.used_files import metadata_names, names_of
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore, list_schema_ids

_MOST_RUNS: Final = 500
"""Most failed runs that are read from Dagster, newest first."""
_MOST_PATH: Final = 2_000
_MISSING: Final = "missing"
_SCHEDULED: Final = (names.RETENTION_JOB, names.MAINTAIN_JOB, names.ORPHAN_PLANS_JOB)
"""Jobs over many tables that schedules start."""
_MOST_TABLES: Final = 1_000
"""Most unreadable tables that a run records."""
_MOST_FILES: Final = 20
"""Most damaged files of a table that a run records."""


def failure_tags(store: TableStore | None, error: BaseException) -> dict[str, str]:
    """Return the run tags that record a permanent failure; {} for an error that a retry may heal.

    Args:
        store: the table, or None if it cannot be opened.
        error: the exception that ended the run; its causes (``__cause__``) are searched for a permanent error.
    """
    cause = find_permanent_error(error)
    if cause is None:
        return {}
    path = cause.path[:_MOST_PATH] if isinstance(cause, CorruptFile | RemoteError) else ""
    detail: dict[str, Any] = {"text": " ".join(str(cause).split())[:MOST_TEXT], "file": path}
    if store is not None:
        detail |= {"state": describe_file(store, path), **_version(store)}
    return {names.TAG_FAILURE: error_name(cause), names.TAG_FAILURE_DETAIL: json.dumps(detail)}


def _version(store: TableStore) -> dict[str, int | None]:
    """Return the ids of a table's newest "snapshot" and "schema"; an id is None if it is missing or unreadable."""
    version: dict[str, int | None] = {"snapshot": None, "schema": None}
    try:
        version["snapshot"] = snapshots.latest_id(store)
        version["schema"] = max(list_schema_ids(store.file_io, store.root, store.branch), default=None)
    except (DredgeError, OSError):
        return version
    return version


def describe_file(store: TableStore, path: str) -> str:
    """Return a text that changes when a file is restored, lost or replaced: its size and time, or "missing".

    Args:
        store: the table.
        path: path of the file.

    Returns:
        The text, or "" if the path is outside the table or its folder cannot be listed.
    """
    if not path.startswith(f"{store.root.rstrip('/')}/") or ".." in path.split("/"):
        return ""
    folder, _, name = path.rpartition("/")
    try:
        status = next((status for status in store.file_io.list_dir(folder) if status.name == name), None)
    except (DredgeError, OSError):
        return ""
    return _MISSING if status is None else f"{status.size} bytes, modified at {status.mtime_ms} ms"


def table_failure_tags(
    warehouse_names: names.WarehouseNames, store: TableStore, plan: str, partition: str, error: BaseException
) -> dict[str, str]:
    """Return the tags by which a run over many tables records that its work on one table failed permanently.

    The result is empty if a retry may heal the error.

    Args:
        warehouse_names: names of the warehouse in Dagster.
        store: the table.
        plan: hash of the failed plan.
        partition: path of the plan's partition, or "" for several partitions.
        error: the exception that ended the work on the table, or was raised from the error.
    """
    tags = failure_tags(store, error)
    if not tags:
        return {}
    detail = parse_json(tags[names.TAG_FAILURE_DETAIL])
    record = {"table": store.name, "plan": plan, "partition": partition, "error": tags[names.TAG_FAILURE], **detail}
    return {names.TAG_FAILURES: warehouse_names.failures_value(), names.failure_tag(store.name): json.dumps(record)}


def list_failures(
    instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames
) -> dict[str, list[PermanentFailure]]:
    """Return the recorded permanent failures by table, newest first; only the newest of each file or plan.

    Whether a failure still holds is not checked: `find_lasting` does that.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
    """
    tags: dict[str, str | list[str]] = {names.TAG_FAILURE: list(PERMANENT_NAMES)}
    failures: list[PermanentFailure] = []
    for record in instance.get_run_records(
        dg.RunsFilter(tags=tags, statuses=[dg.DagsterRunStatus.FAILURE]), limit=_MOST_RUNS
    ):
        run = record.dagster_run
        table, detail = warehouse_names.table_of(run.tags), _parse_detail(run.tags.get(names.TAG_FAILURE_DETAIL, "{}"))
        if table is not None and detail is not None:
            partition, plan = run.tags.get(names.PARTITION_TAG, ""), run.tags.get(names.TAG_PLAN, "")
            detail |= {"table": table, "partition": partition, "plan": plan, "error": run.tags[names.TAG_FAILURE]}
            failures.append(_read_failure(record, detail, warehouse_names))
    several = {names.TAG_FAILURES: warehouse_names.failures_value()}
    for record in instance.get_run_records(dg.RunsFilter(tags=several), limit=_MOST_RUNS):
        for key, text in record.dagster_run.tags.items():
            detail = _parse_detail(text) if key.startswith(names.failure_tag_prefix()) else None
            if detail is not None and detail.get("error") in PERMANENT_NAMES:
                failures.append(_read_failure(record, detail, warehouse_names))
    failures.sort(key=lambda failure: -failure.ended_ms)
    by_table: dict[str, dict[tuple[str, str, str], PermanentFailure]] = {}
    for failure in failures:
        by_table.setdefault(failure.table, {}).setdefault(failure.identity, failure)
    return {table: list(failures_of_table.values()) for table, failures_of_table in by_table.items()}


def _parse_detail(text: str) -> dict[str, Any] | None:
    """Return the values of a record of a failure, or None if the text is no JSON object."""
    try:
        detail = parse_json(text)
    except ValueError:
        return None
    return detail if isinstance(detail, dict) else None


def _read_failure(
    record: dg.RunRecord, detail: Mapping[str, Any], warehouse_names: names.WarehouseNames
) -> PermanentFailure:
    """Return the failure that a run recorded.

    Args:
        record: the run.
        detail: values of the record, which anyone with access to Dagster may have written.
        warehouse_names: names of the warehouse in Dagster.
    """

    def text(key: str, most: int) -> str:
        return " ".join(str(detail.get(key) or "").split())[:most]

    def number(key: str) -> int | None:
        value = detail.get(key)
        return value if isinstance(value, int) else None

    return PermanentFailure(
        text("table", MOST_TEXT),
        text("partition", _MOST_PATH),
        record.dagster_run.run_id,
        text("plan", MOST_TEXT),
        int((record.end_time or record.update_timestamp.timestamp()) * 1000),
        str(detail["error"]),
        text("text", MOST_TEXT) or str(detail["error"]),
        str(detail.get("file") or "")[:_MOST_PATH],
        text("state", MOST_TEXT),
        number("snapshot"),
        number("schema"),
        warehouse_names.definition(names.RESUME_JOB),
    )


def find_lasting(
    instance: dg.DagsterInstance,
    warehouse_names: names.WarehouseNames,
    store: TableStore,
    failures: Iterable[PermanentFailure],
) -> list[PermanentFailure]:
    """Return the failures of a table that still hold.

    A failure about a file ends when the file changes in storage or the newest snapshot no longer uses it. Any other
    failure ends with the next commit or schema change. The job `resume` ends all earlier failures of the table.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        store: the table.
        failures: recorded failures of the table.
    """
    candidates = list(failures)
    if not candidates:
        return []
    resumed_ms = read_resume_ms(instance, warehouse_names, store.name)
    return [failure for failure in candidates if failure.ended_ms > resumed_ms and _lasts(store, failure)]


def _lasts(store: TableStore, failure: PermanentFailure) -> bool:
    if not failure.file:
        version = _version(store)
        return (failure.snapshot, failure.schema) == (version["snapshot"], version["schema"])
    if failure.file_state and describe_file(store, failure.file) != failure.file_state:
        return False
    return uses_file(store, failure.file)


def uses_file(store: TableStore, path: str) -> bool:
    """Return whether the newest snapshot needs a file; True if the snapshot's metadata cannot be read.

    Args:
        store: the table.
        path: path of the file.
    """
    name = path.rpartition("/")[2]
    try:
        newest = snapshots.latest(store)
        if newest is None:
            return False
        if path == store.snapshot_path(newest.id) or _has_data_file(store, newest, name):
            return True
        return not is_data_file(path) and name in set(metadata_names(store, newest))
    except (CorruptFile, SnapshotNotFound):
        return True


def _has_data_file(store: TableStore, snapshot: Snapshot, name: str) -> bool:
    """Return whether a snapshot uses a data file of this name, or an index file of this name beside a data file."""
    return any(pc.any(pc.equal(names_of(entries), name)).as_py() for entries in manifests.iter_live(store, snapshot))


def iterate_lasting(
    instance: dg.DagsterInstance, warehouse: WarehouseResource, tables: Iterable[str]
) -> Iterator[PermanentFailure]:
    """Yield the failures that still hold, sorted by table; tables without a recorded failure are not opened.

    If a table cannot be opened, all its recorded failures are yielded, because nothing shows that they ended.

    Args:
        instance: Dagster instance.
        warehouse: the warehouse.
        tables: full names of the tables to report; failures of other tables are left out.
    """
    recorded = list_failures(instance, warehouse.names)
    for table in sorted(set(tables) & recorded.keys()):
        try:
            yield from find_lasting(instance, warehouse.names, warehouse.store(table), recorded[table])
        except (DredgeError, OSError):
            yield from recorded[table]  # the table itself cannot be opened: nothing shows that the failure ended


@dataclass(frozen=True)
class UnreadableTable:
    """Table of which the newest run of a scheduled job could not read a part.

    Attributes:
        text: job, run and error.
        run_id: id of the run.
        ended_ms: end of the run (epoch ms, wall clock).
        is_damaged: whether the run recorded damaged files, and one of them is unchanged since.
    """

    text: str
    run_id: str
    ended_ms: int
    is_damaged: bool


def unreadable_metadata(
    warehouse: WarehouseResource, tables: Mapping[str, str], damaged: Mapping[str, Sequence[str]]
) -> dict[str, dg.MetadataValue]:
    """Return the metadata by which a run over many tables records the tables that it could not read.

    Args:
        warehouse: the warehouse.
        tables: error text by table.
        damaged: paths of the damaged files by table.
    """
    texts = {table: " ".join(text.split())[:MOST_TEXT] for table, text in list(tables.items())[:_MOST_TABLES]}
    files = {table: _describe_files(warehouse, table, damaged.get(table, ())[:_MOST_FILES]) for table in texts}
    record = {"warehouse": warehouse.path, "tables": texts, "files": {table: of for table, of in files.items() if of}}
    return {names.UNREADABLE_TABLES: dg.MetadataValue.json(record)}


def _describe_files(warehouse: WarehouseResource, table: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the state of each file by path (`describe_file`); "" if the table cannot be opened."""
    try:
        store = warehouse.store(table)
    except (DredgeError, OSError):
        return dict.fromkeys(paths, "")
    return {path: describe_file(store, path) for path in paths}


def read_unreadable_tables(instance: dg.DagsterInstance, warehouse: WarehouseResource) -> dict[str, UnreadableTable]:
    """Return the tables of which the newest successful run of a scheduled job could not read a part.

    A table is left out if all damaged files that the run recorded have changed since, or if the run recorded the
    failure by tags (`list_failures`).

    Args:
        instance: Dagster instance.
        warehouse: the warehouse.
    """
    unreadable: dict[str, UnreadableTable] = {}
    own = warehouse.names
    # The command line knows the name of a warehouse, and not whether it is that of a component.
    by_name = [f"{own.name}__{job}" for job in _SCHEDULED] if own.name else []
    jobs = dict.fromkeys([*map(own.definition, _SCHEDULED), *by_name])
    for job in jobs:
        done = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
        for record in instance.get_run_records(done, limit=1):
            run = record.dagster_run
            for table, (text, files) in _read_recorded(instance, run.run_id, warehouse.path).items():
                states = _describe_files(warehouse, table, files)
                if names.failure_tag(table) in run.tags or (
                    files and all(states[path] != files[path] for path in files)
                ):
                    continue
                ended_ms = int((record.end_time or record.update_timestamp.timestamp()) * 1000)
                full_text = f"job {job}, run {run.run_id[:8]}: {text}"
                unreadable.setdefault(table, UnreadableTable(full_text, run.run_id, ended_ms, bool(files)))
    return unreadable


def _read_recorded(
    instance: dg.DagsterInstance, run_id: str, warehouse_path: str
) -> dict[str, tuple[str, dict[str, str]]]:
    """Return, by table, (error text, state of each damaged file by path) that a run recorded for unreadable metadata.

    Args:
        instance: Dagster instance.
        run_id: id of the run.
        warehouse_path: location of the warehouse; records of others are ignored.
    """
    outputs = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_OUTPUT, limit=_MOST_RUNS).records
    for record in outputs:
        event = record.event_log_entry.dagster_event
        metadata = {} if event is None else event.step_output_data.metadata
        value = metadata.get(names.UNREADABLE_TABLES)
        recorded = value.value if isinstance(value, dg.JsonMetadataValue) else None
        if not isinstance(recorded, dict) or recorded.get("warehouse") != warehouse_path:
            continue
        tables, files = recorded.get("tables"), recorded.get("files")
        if isinstance(tables, dict):
            of_table = files if isinstance(files, dict) else {}
            return {
                str(table): (str(text)[:MOST_TEXT], _read_files(of_table.get(table)))
                for table, text in list(tables.items())[:_MOST_TABLES]
            }
    return {}


def _read_files(recorded: object) -> dict[str, str]:
    """Return the recorded state of each file by path; paths are checked when they are used (`describe_file`)."""
    if not isinstance(recorded, dict):
        return {}
    return {str(path)[:_MOST_PATH]: str(state)[:MOST_TEXT] for path, state in list(recorded.items())[:_MOST_FILES]}
