"""Coarse Python tasks on Spark: one payload of bytes in, one answer of bytes out, one Spark task each; no table data passes the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.spark.jobs.failures import BatchFunction, decode, encode, translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWER_DDL: Final = "task INT, answer BINARY, failure BINARY"
ANSWER_SCHEMA: Final = pa.schema([("task", pa.int32()), ("answer", pa.binary()), ("failure", pa.binary())])
PAYLOADS: Final = pa.schema([("task", pa.int32()), ("payload", pa.binary())])


@dataclass(frozen=True)
class Outcome:
    """What one task (numbered like its payload) came to: ``answer``, or the ``error`` that ended it."""

    task: int
    answer: bytes = b""
    error: DredgeError | None = None


def store_of(table: Any) -> TableStore:
    """Return the store of a `Table` (or the store itself).

    Raises UnsupportedFeature for a system table, whose store is that of the table it tells about, and for anything else.
    """
    if isinstance(table, TableStore):
        return table
    from lsm_core.table import Table  # not at the top: writer tasks import this module, and need no facade

    if isinstance(table, Table):
        return table.store
    name = getattr(table, "name", None)
    if name is not None:
        raise UnsupportedFeature("writing or maintaining a system table, which can only be read", str(name))
    raise UnsupportedFeature(f"a Spark job on {type(table).__name__}: pass a Table or a TableStore")


def run_tasks(
    spark: SparkSession, what: str, payloads: Sequence[bytes], work: Callable[[bytes], bytes]
) -> list[Outcome]:
    """Run ``work`` on every payload, one Spark task each, and return the outcomes in payload order.

    A task that raises is an outcome like another: the caller learns what the others did and can clean up after them. A worker that
    dies, or a Spark that does, raises SparkFailed(``what``). ``work`` must be importable by the workers.
    """
    if not payloads:
        return []
    rows = pa.table([pa.array(range(len(payloads)), pa.int32()), pa.array(payloads, pa.binary())], schema=PAYLOADS)
    with translated(what):
        spread = spark.createDataFrame(rows).repartitionById(len(payloads), "task")
        return collect(spread.mapInArrow(_task_function(work), ANSWER_DDL), what)


def collect(answers: DataFrame, what: str) -> list[Outcome]:
    """Fetch a job's answers (`ANSWER_DDL`) and return them in task order; this is all that comes to the driver."""
    with translated(what):
        found = answers.toArrow().sort_by("task")
    tasks, done, failed = (found.column(name).to_numpy(zero_copy_only=False) for name in ANSWER_SCHEMA.names)
    return [
        Outcome(int(tasks[i]), done[i] or b"", decode(failed[i], what) if failed[i] else None)
        for i in range(found.num_rows)  # one per task
    ]


def answer(task: int, data: bytes) -> pa.RecordBatch:
    """Return a task's answer as the one row (`ANSWER_SCHEMA`) it yields."""
    return pa.RecordBatch.from_pydict({"task": [task], "answer": [data], "failure": [None]}, schema=ANSWER_SCHEMA)


def failure(task: int, error: Exception) -> pa.RecordBatch:
    """Return a task's error as the one row (`ANSWER_SCHEMA`) it yields."""
    return pa.RecordBatch.from_pydict(
        {"task": [task], "answer": [None], "failure": [encode(error)]}, schema=ANSWER_SCHEMA
    )


def _task_function(work: Callable[[bytes], bytes]) -> BatchFunction:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in range(batch.num_rows):  # one per task
                number = batch.column("task")[place].as_py()
                try:
                    done = work(batch.column("payload")[place].as_py())
                except Exception as error:  # noqa: BLE001  (reported as an outcome: see run_tasks)
                    yield failure(number, error)
                else:
                    yield answer(number, done)

    return run


__all__ = ["ANSWER_DDL", "Outcome", "answer", "collect", "failure", "run_tasks", "store_of"]
