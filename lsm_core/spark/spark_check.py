"""The deep check of a table on Spark: its tasks read the pages of data files, the driver keeps the position."""

from __future__ import annotations

import io
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.maintenance.checks.outcome import DeepRead, PageProblem
from lsm_core.maintenance.checks.stored_pages import read_pages
from lsm_core.metadata.store import TableStore
from lsm_core.spark.spark_tasks import raise_first, run_tasks, slots_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_PER_SLOT: Final = 4
_PROBLEMS: Final = pa.schema([("file_name", pa.string()), ("reason", pa.string()), ("damaged", pa.bool_())])


def deep_read(spark: SparkSession, limit: int | None = None) -> DeepRead:
    """Return the settings of a deep check whose data files are read by tasks of Spark.

    Args:
        spark: the session.
        limit: stored bytes after which the check stops, to be resumed by the next call; None for all.

    Returns:
        The value of `CheckLimits.deep`.
    """
    return DeepRead.distributed(partial(_read_on_spark, spark), limit)


def _read_on_spark(spark: SparkSession, store: TableStore, files: pa.Table) -> list[PageProblem]:
    """Read the files of one round, with the largest files assigned to tasks first.

    Raises SparkFailed and the errors of tasks.
    """
    count = min(files.num_rows, _TASKS_PER_SLOT * slots_of(spark))
    ordered = files.sort_by([("file_size", "descending")])
    payloads = [_packed(ordered.take(arrow_array(np.arange(task, files.num_rows, count)))) for task in range(count)]
    outcomes = run_tasks(spark, f"reading pages of table {store.name}", payloads, partial(_read_task, store.to_json()))
    raise_first(outcomes)
    return [PageProblem(**value) for outcome in outcomes for value in _unpacked(outcome.answer).to_pylist()]


def _packed(files: pa.Table) -> bytes:
    output = io.BytesIO()
    with pa.ipc.new_stream(output, files.schema) as writer:
        writer.write_table(files)
    return output.getvalue()


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _read_task(store_text: str, payload: bytes) -> bytes:
    problems = read_pages(TableStore.from_json(store_text), _unpacked(payload))
    return _packed(pa.Table.from_pylist([asdict(problem) for problem in problems], schema=_PROBLEMS))
