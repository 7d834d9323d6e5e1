"""Small warehouse with the platform in this process: ticks as the daemon evaluates them, and runs without a server."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import Engine, NullPool, QueuePool, create_engine

from dredge.orchestration.definitions import build_definitions
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB, RUN_KEY_TAG
from dredge.platform_core.resources import SparkResource, WarehouseResource
from lsm_core import Catalog, Schema, Table
from lsm_core.maintenance import BucketHealth
from lsm_core.metadata import manifests, snapshots

LAYOUT_CHECKS = {
    "tree_is_valid",
    "level0_backlog",
    "layout_condition",
    "merged_view_unchanged",
}
"""Names of the checks on the layout of a primary-key table."""
KEYED = pa.schema(
    [
        pa.field("dt", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.string()),
    ]
)


def keyed_table(root: Path, name: str = "shop.orders", *, partitioned: bool = True, **options: str) -> Table:
    """Create a deduplicate table, partitioned by ``dt`` or not partitioned."""
    schema = Schema(
        fields=KEYED,
        primary_keys=["dt", "id"],
        partition_keys=["dt"] if partitioned else [],
        options={"bucket": "1", "write-only": "true", **options},
        comment=None,
    )
    return _create(root, name, schema)


def append_table(root: Path, name: str = "shop.log") -> Table:
    """Create an append table, partitioned by ``dt``."""
    options = {"bucket": "-1", "write-only": "true"}
    return _create(root, name, Schema(KEYED, [], ["dt"], options, None))


def _create(root: Path, name: str, schema: Schema) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database(name.split(".")[0], ignore_if_exists=True)
    return catalog.create_table(name, schema)


def commit(table: Table, number: int = 1, *, day: str = "a", rows: int = 50) -> None:
    """Make ``number`` commits; each commit updates half of the keys of the previous commit."""
    start = snapshots.latest_id(table.store) or 0
    for step in range(start, start + number):
        ids = range(step * rows // 2, step * rows // 2 + rows)
        table.write(pa.table({"dt": [day] * rows, "id": list(ids), "v": [f"{step}/{i}" for i in ids]}, schema=KEYED))


def bucket_health(partition_text: str = "", bucket: int = 0, **changes: Any) -> BucketHealth:
    """Return the health of a healthy, empty bucket, with ``changes`` of single values."""
    values: dict[str, Any] = {
        "partition": {}, "bucket": bucket, "level0_files": 0, "sorted_runs": 1, "bytes_per_level": {}, "rows": 0, "deletes": 0,
        "small_files": 0, "read_amplification": 1.0, "space_amplification": 1.0, "oldest_level0_ms": None,
        "last_compaction_ms": None, "ro_lag_ms": 0, "overlap_max": 1, "overlap_mean": 1.0, "delete_ratio": 0.0, "cost_minor": 0,
        "cost_full": 0, "score": 0.0, "reasons": (), "partition_text": partition_text,
    }  # fmt: skip
    return BucketHealth(**{**values, **changes})


def compacted_file(table: Table) -> str:
    """Return the path of one file above level 0 in the newest snapshot."""
    latest = snapshots.latest(table.store)
    assert latest is not None
    entries = [e for e in manifests.live_entries(table.store, latest).to_pylist() if e["level"] > 0]
    return table.store.data_path(entries[0]["partition"], entries[0]["bucket"], entries[0]["file_name"])


def sabotage(table: Table, kind: str) -> None:
    """Damage a published file in place.

    Args:
        table: the table.
        kind: ``drop`` removes a row, ``revive`` adds a row with a new key, ``swap`` exchanges two values.
    """
    path = compacted_file(table)
    old = pq.read_table(path, partitioning=None)
    if kind == "drop":
        new = old.slice(1)
    elif kind == "revive":
        new = pa.concat_tables([old, _later(old.slice(old.num_rows - 1))])
    else:
        values = old.column("v").combine_chunks()
        order = pa.array([1, 0, *range(2, len(values))])
        new = old.set_column(old.schema.get_field_index("v"), old.schema.field("v"), values.take(order))
    pq.write_table(new, path)


def _later(row: pa.Table) -> pa.Table:
    """Return the row with a larger id, as if a deleted key were in the file again."""
    for name in ("id", "_KEY_id"):
        if name in row.column_names:
            index = row.schema.get_field_index(name)
            value = row.column(name)[0].as_py() + 1_000_000
            row = row.set_column(index, row.schema.field(name), pa.array([value], row.schema.field(name).type))
    return row


@dataclass
class House:
    """Platform over one warehouse, with a Dagster instance on disk; ``tick`` and ``run`` replace the daemon."""

    root: Path
    instance: dg.DagsterInstance
    environment: dict[str, str] = field(default_factory=dict)
    extra: dg.Definitions | None = None
    cursors: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {"DREDGE_WAREHOUSE": str(self.root), "DREDGE_RUNNER": "local", **self.environment}
        self.load()

    def load(self) -> None:
        """Load the code location."""
        built = build_definitions(self.environment)
        self.warehouse = WarehouseResource.from_environment(self.environment)
        self.defs = dg.Definitions.merge(built, self.extra) if self.extra is not None else built
        self.repository = self.defs.get_repository_def()

    def tick(self, sensor: str) -> SensorExecutionData:
        """Evaluate one tick of a sensor, store its cursor, partitions and events, and return the result."""
        context = dg.build_sensor_context(
            instance_ref=self.instance.get_ref(),
            repository_def=self.repository,
            sensor_name=sensor,
            cursor=self.cursors.get(sensor),
            resources={"warehouse": self.warehouse, "spark": SparkResource.from_environment(self.environment)},
        )
        # Left open, the context's own instance would be collected later and bring back the storage of a test before.
        with context, dg.partition_loading_context(dynamic_partitions_store=self.instance):
            result = self.repository.get_sensor_def(sensor).evaluate_tick(context)
        self.cursors[sensor] = result.cursor
        for request in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys or ()))
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result

    def run(self, request: dg.RunRequest, job: str | None = None) -> dg.ExecuteInProcessResult:
        """Execute a run request of a sensor in this process, by the asset job or the job ``job`` of a test."""
        return self.execute(
            job or ASSET_JOB,
            request.partition_key,
            run_config=request.run_config,
            tags={**request.tags, **({RUN_KEY_TAG: request.run_key} if request.run_key else {})},
            assets=None if job else request.asset_selection,
        )

    def maintain(
        self,
        table: str,
        partition: str | None = None,
        *,
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Materialise a table's layout in this process, as a person does."""
        return self.execute(ASSET_JOB, partition, run_config=run_config, tags=tags, assets=[self.layout(table)])

    def execute(
        self,
        job: str,
        partition: str | None = None,
        *,
        run_config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        assets: Sequence[dg.AssetKey] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Execute a job in this process, or only its steps for ``assets``; failures are in the result."""
        with dg.partition_loading_context(dynamic_partitions_store=self.instance):
            return self.repository.get_job(job).execute_in_process(
                instance=self.instance,
                partition_key=partition,
                asset_selection=assets,
                run_config=dict(run_config or {}),
                tags=dict(tags or {}),
                raise_on_error=False,
            )

    def lines(self, result: SensorExecutionData) -> list[str]:
        """Return the lines of the skip message of a tick."""
        return (result.skip_message or "").splitlines()

    def layout(self, table: str) -> dg.AssetKey:
        """Return the key of a table's layout asset."""
        return names.WarehouseNames.of(str(self.root)).layout_key(table)

    def materialisation(self, table: str, partition: str | None = None) -> dict[str, Any]:
        """Return the metadata of the layout's newest materialisation, as plain values."""
        wanted = dg.AssetRecordsFilter(self.layout(table), asset_partitions=[partition] if partition else None)
        found = self.instance.fetch_materializations(wanted, limit=1).records
        assert found, f"{table} was never materialised"
        assert found[0].asset_materialization is not None
        return {key: value.value for key, value in found[0].asset_materialization.metadata.items()}


@contextmanager
def open_house(root: Path, *, extra: dg.Definitions | None = None, **environment: str) -> Iterator[House]:
    """Yield a `House` with a new Dagster instance."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, pytest.MonkeyPatch.context() as patches:
        shutil.copytree(_new_instance(), home, dirs_exist_ok=True)
        patches.setattr(ScriptDirectory, "from_config", _migrations)
        patches.setattr(SqliteEventLogStorage, "_initdb", _make_events_of_a_run)
        with _kept_engines() as engines:
            for storage in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
                patches.setattr(storage, "create_engine", engines)
            with dg.instance_for_test(temp_dir=home) as instance:
                yield House(root, instance, environment, extra)


@contextmanager
def _kept_engines() -> Iterator[Callable[..., Engine]]:
    """Yield a replacement of `create_engine` that creates one engine per database and keeps its connections open.

    Dagster creates an engine and a connection for each access, which compiles statements and opens files again.
    """
    kept: dict[str, Engine] = {}

    def engine(address: str, **settings: Any) -> Engine:
        if address not in kept:
            kept[address] = create_engine(address, **{**settings, "poolclass": QueuePool})
            kept[address].dispose = _keep  # type: ignore[method-assign]
        return kept[address]

    try:
        yield engine
    finally:
        for made in kept.values():
            made.pool.dispose()


def _keep(*, close: bool = True) -> None:
    """Replace `Engine.dispose`, so that connections stay open after each access."""


_read_migrations, _make_events = ScriptDirectory.from_config, SqliteEventLogStorage._initdb
_migrations_read: dict[str | None, ScriptDirectory] = {}


def _migrations(config: Config) -> ScriptDirectory:
    """Return Dagster's migrations, read once per process instead of for each opened database."""
    place = config.get_alembic_option("script_location")
    if place not in _migrations_read:
        _migrations_read[place] = _read_migrations(config)
    return _migrations_read[place]


def _make_events_of_a_run(storage: SqliteEventLogStorage, engine: Engine, for_index_shard: bool = False) -> None:
    """Create the event database of a run as a copy of an empty database, which takes a hundredth of the time."""
    database = engine.url.database
    if for_index_shard or database is None or Path(database).exists():
        _make_events(storage, engine, for_index_shard)
        return
    made = Path(_new_instance(), "events of no run.db")
    if not made.exists():
        _make_events(storage, create_engine(f"sqlite:///{made}", poolclass=NullPool))
    shutil.copyfile(made, database)


@cache
def _new_instance() -> str:
    """Return the folder of an empty Dagster instance, created once, because its creation takes seconds."""
    home = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with dg.instance_for_test(temp_dir=home) as instance:
        assert instance.get_runs_count() == 0
        assert not instance.all_instigator_state()
        assert not instance.all_asset_keys()
    return home


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    """Return the check results of a run: (passed, description) by name."""
    found: Sequence[dg.AssetCheckEvaluation] = result.get_asset_check_evaluations()
    return {item.check_name: (item.passed, item.description or "") for item in found}
