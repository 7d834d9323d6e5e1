"""Records of permanent failures in Dagster: tags of the failed run, and whether the failure still holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import dagster as dg
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, DredgeError, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_text import parse_json
from lsm_core.maintenance import MaintenancePlan
from lsm_core.maintenance.action import RewriteItem
from lsm_core.maintenance.used_files import metadata_names, names_of
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore, list_schema_ids
from platform_core import names
from platform_core.obstacles import read_resume_ms
from platform_core.policies.permanent_failures import (
    MOST_TEXT,
    PERMANENT_NAMES,
    PermanentFailure,
    RemoteError,
    error_name,
    find_permanent_error,
    is_data_file,
)
from platform_core.resources.warehouse import WarehouseResource

_MOST_RUNS: Final = 500
"""Most failed runs that are read from Dagster, newest first."""
_MOST_PATH: Final = 2_000
_MISSING: Final = "missing"
_SCHEDULED: Final = (names.RETENTION_JOB, names.MAINTAIN_JOB, names.ORPHAN_PLANS_JOB)
"""Jobs over many tables that schedules start."""
_MOST_TABLES: Final = 1_000
"""Most unreadable tables that a run records."""


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


def list_failures(instance: dg.DagsterInstance) -> dict[str, list[PermanentFailure]]:
    """Return the recorded permanent failures by table, newest first, and one failure per damaged file or failed plan.

    Whether a failure still holds is not checked: `find_lasting` does that.

    Args:
        instance: Dagster instance.
    """
    tags: dict[str, str | list[str]] = {names.TAG_FAILURE: list(PERMANENT_NAMES)}
    failed = [dg.DagsterRunStatus.FAILURE]
    by_table: dict[str, dict[tuple[str, str, str], PermanentFailure]] = {}
    for record in instance.get_run_records(dg.RunsFilter(tags=tags, statuses=failed), limit=_MOST_RUNS):
        ended_ms = int((record.end_time or record.update_timestamp.timestamp()) * 1000)
        failure = _read_failure(record.dagster_run.run_id, record.dagster_run.tags, ended_ms)
        if failure is not None:
            by_table.setdefault(failure.table, {}).setdefault(failure.identity, failure)
    return {table: list(failures.values()) for table, failures in by_table.items()}


def _read_failure(run_id: str, tags: Mapping[str, str], ended_ms: int) -> PermanentFailure | None:
    """Return the failure that the tags of a run record, or None if they are invalid or of another warehouse."""
    table = names.table_of(tags)
    try:
        detail = parse_json(tags.get(names.TAG_FAILURE_DETAIL, "{}"))
    except ValueError:
        return None
    if table is None or not isinstance(detail, dict):
        return None

    def text(key: str, most: int) -> str:
        return " ".join(str(detail.get(key) or "").split())[:most]

    def number(key: str) -> int | None:
        value = detail.get(key)
        return value if isinstance(value, int) else None

    return PermanentFailure(
        table,
        tags.get(names.PARTITION_TAG, ""),
        run_id,
        tags.get(names.TAG_PLAN, ""),
        ended_ms,
        tags[names.TAG_FAILURE],
        text("text", MOST_TEXT) or tags[names.TAG_FAILURE],
        str(detail.get("file") or "")[:_MOST_PATH],
        text("state", MOST_TEXT),
        number("snapshot"),
        number("schema"),
    )


def find_lasting(
    instance: dg.DagsterInstance, store: TableStore, failures: Iterable[PermanentFailure]
) -> list[PermanentFailure]:
    """Return the failures of a table that still hold.

    A failure about a file ends when the file changes in storage or the newest snapshot no longer uses it. Any other
    failure ends with the next commit or schema change. The job `resume` ends all earlier failures of the table.

    Args:
        instance: Dagster instance.
        store: the table.
        failures: recorded failures of the table.
    """
    candidates = list(failures)
    if not candidates:
        return []
    resumed_ms = read_resume_ms(instance, store.name)
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
    """Return whether a live entry of a snapshot has a data file, or an index file beside it, of this name."""
    return any(pc.any(pc.equal(names_of(entries), name)).as_py() for entries in manifests.iter_live(store, snapshot))


def find_read(plan: MaintenancePlan, failures: Iterable[PermanentFailure]) -> frozenset[str]:
    """Return the paths of the damaged data files that a plan would read.

    Args:
        plan: the plan.
        failures: failures of the table.
    """
    by_name = {failure.file_name: failure.file for failure in failures if failure.file}
    if not by_name:
        return frozenset()
    inputs = {file.name for item in plan.items if isinstance(item, RewriteItem) for file in item.inputs}
    return frozenset(path for name, path in by_name.items() if name in inputs)


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
    recorded = list_failures(instance)
    for table in sorted(set(tables) & recorded.keys()):
        try:
            yield from find_lasting(instance, warehouse.store(table), recorded[table])
        except (DredgeError, OSError):
            yield from recorded[table]  # the table itself cannot be opened: nothing shows that the failure ended


def unreadable_metadata(warehouse_path: str, tables: Mapping[str, str]) -> dict[str, dg.MetadataValue]:
    """Return the metadata by which a run over many tables records the tables that it could not read.

    Args:
        warehouse_path: location of the warehouse.
        tables: error text by table.
    """
    texts = {table: " ".join(text.split())[:MOST_TEXT] for table, text in list(tables.items())[:_MOST_TABLES]}
    return {names.UNREADABLE_TABLES: dg.MetadataValue.json({"warehouse": warehouse_path, "tables": texts})}


def read_unreadable_tables(instance: dg.DagsterInstance, warehouse_path: str) -> dict[str, str]:
    """Return the tables that the newest successful run of each scheduled job could not read.

    Args:
        instance: Dagster instance.
        warehouse_path: location of the warehouse.

    Returns:
        A text with job, run and error, by table.
    """
    texts: dict[str, str] = {}
    for job in _SCHEDULED:
        done = dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS])
        for run in instance.get_runs(done, limit=1):
            for table, text in _read_recorded(instance, run.run_id, warehouse_path).items():
                texts.setdefault(table, f"job {job}, run {run.run_id[:8]}: {text}")
    return texts


def _read_recorded(instance: dg.DagsterInstance, run_id: str, warehouse_path: str) -> dict[str, str]:
    """Return the error texts by table that a run recorded by `unreadable_metadata`; {} without a valid record."""
    outputs = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_OUTPUT, limit=_MOST_RUNS).records
    for record in outputs:
        event = record.event_log_entry.dagster_event
        metadata = {} if event is None else event.step_output_data.metadata
        value = metadata.get(names.UNREADABLE_TABLES)
        recorded = value.value if isinstance(value, dg.JsonMetadataValue) else None
        if not isinstance(recorded, dict) or recorded.get("warehouse") != warehouse_path:
            continue
        tables = recorded.get("tables")
        if isinstance(tables, dict):
            return {str(table): str(text)[:MOST_TEXT] for table, text in list(tables.items())[:_MOST_TABLES]}
    return {}
