"""Spark stream without Spark: calls of a reader and a writer in Spark's order."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from lsm_core import Table
from lsm_core.spark.data_source import TableSource

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
Offset = dict[str, Any]
Epoch = tuple[Offset, Offset]


def place_of(table: Table) -> dict[str, str]:
    """Return the data source options that name a table."""
    return {"warehouse": str(Path(table.store.root).parents[1]), "table": table.name}


def reader(table: Table, **options: str) -> Any:
    """Return the stream reader of a new process; in option names, `__` stands for a dot and `_` for a dash."""
    source = TableSource({**place_of(table), **named(options)})
    assert source.schema()
    made = source.streamReader(from_arrow_schema(source._stream().target, prefer_timestamp_ntz=True))
    assert made.initialOffset()
    return made


def named(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with `__` replaced by a dot and `_` by a dash in their names."""
    return {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}


def rows(source: Any, epoch: Epoch) -> list[list[tuple[Any, ...]]]:
    """Return the rows that each task of an epoch reads; each task has a copy of the reader."""
    shipped = pickle.dumps(source)  # as Spark ships it
    return [
        [row for batch in pickle.loads(shipped).read(part) for row in zip(*batch.to_pydict().values(), strict=True)]
        for part in source.partitions(*epoch)
    ]


def epochs(source: Any, start: Offset | None = None, *, everything: bool = False) -> Iterator[Epoch]:
    """Yield the epochs of a query until no data is new; ``everything`` ignores limits, as `Trigger.Once` does."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # Spark 4.2

    at = source.initialOffset() if start is None else start
    while True:
        end = source.latestOffset(at, ReadAllAvailable() if everything else source.getDefaultReadLimit())
        if end == at:
            return
        yield at, end
        source.commit(end)
        at = end


@contextmanager
def task(query: str = "q", run: str = "r", number: int = 0) -> Iterator[None]:
    """Simulate a Spark task of a query's run while the context is open."""
    values = {"sql.streaming.queryId": query, "spark.jobGroup.id": run}
    context = mock.Mock(partitionId=lambda: number, getLocalProperty=values.get)
    with mock.patch("pyspark.TaskContext.get", return_value=context):
        yield


def write_epoch(
    table: Table,
    epoch: int,
    tasks: list[pa.Table],
    *,
    query: str = "q",
    run: str = "r",
    overwrite: bool = False,
    **options: str,
) -> None:
    """Write an epoch as Spark does: one writer is sent to the tasks, and a second writer commits."""
    columns = from_arrow_schema(tasks[0].schema)
    source = TableSource({**place_of(table), "checkpointLocation": "/tmp/c", **named(options)})
    shipped = pickle.dumps(source.streamWriter(columns, overwrite))
    messages = []
    for number, data in enumerate(tasks):
        with task(query, run, number):
            messages.append(pickle.loads(shipped).write(iter(data.to_batches())))
    source.streamWriter(columns, overwrite).commit(pickle.loads(pickle.dumps(messages)), epoch)
