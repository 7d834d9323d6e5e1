"""The parent of Spark's Python workers (`spark.python.daemon.module`): it imports what they need once, before it forks them.

Spark starts one parent for each kind of worker: for tasks, and for each question to a data source (its schema, the plan of a read, of a write,
its commit). (Of a stream, what there is to read is answered by one process that lives as long as the query, and has no such parent.) A worker that Spark's own parent forks has nothing but Python, imports PySpark, Arrow and Dredge by itself, and is ended
when it was idle for a minute: about a second of processor time for each. What this parent has imported, its workers have.

`spark_session` and `start_server` name it where the workers run this Python on this machine. Sessions that others made, and clusters, keep
Spark's, unless they name it; it does what Spark's does, and functions of users run in its workers as in any. Spark uses it for tasks alone:
of its own parents, which answer the questions, `worker_start` asks the same.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress
from typing import Final

_TASKS: Final = "pyspark.worker"
_READING: Final = ("lsm_core.spark.data_source", "lsm_core.spark.table_reader")
_WRITING: Final = (
    "lsm_core.spark.data_source",
    "lsm_core.spark.spark_sink",
    "pandas",
)  # Arrow looks for pandas, and loads it
KINDS: Final = {
    _TASKS: (*_READING, *_WRITING, "lsm_core.compact.unit", "lsm_core.write.table_write"),
    "pyspark.sql.worker.create_data_source": ("lsm_core.spark.data_source",),
    "pyspark.sql.worker.plan_data_source_read": _READING,
    "pyspark.sql.worker.data_source_pushdown_filters": _READING,
    "pyspark.sql.worker.write_into_data_source": _WRITING,
    "pyspark.sql.worker.commit_data_source_write": _WRITING,
    "pyspark.sql.worker.python_streaming_sink_runner": ("lsm_core.spark.spark_stream_write",),
}
"""What workers of each kind import sooner or later; of other kinds nothing is known."""

# Of a process with several threads a fork has one, and whatever locks the others held.
_SINGLE_THREADED: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def preload(kind: str) -> None:
    """Import what a worker of this ``kind`` (the module that it runs) needs. What cannot be imported is left to the worker, which says why."""
    for name, text in _SINGLE_THREADED.items():
        os.environ.setdefault(name, text)
    for name in (kind, *KINDS.get(kind, ())):
        with suppress(ImportError):
            importlib.import_module(name)
    os.register_at_fork(after_in_child=_own_chance)
    gc.collect()
    gc.freeze()  # the collector of no worker looks at it, so the pages stay shared


def _own_chance() -> None:
    """Each worker draws random numbers of its own, as if it had imported NumPy by itself; `random` sees to that alone."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


if __name__ == "__main__":
    preload(sys.argv[1] if len(sys.argv) > 1 else _TASKS)
    from pyspark.daemon import manager

    manager()

__all__ = ["KINDS", "preload"]
