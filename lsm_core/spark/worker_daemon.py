"""Parent of Spark's Python workers (`spark.python.daemon.module`), which preloads their modules.

This parent process imports the modules once, before it forks the workers. Spark starts one parent for each kind of
worker: for tasks, and for each call to a data source (its schema, the plan of a read or of a write, its commit). Reads
of a stream are an exception: one process without this parent plans them, and lives as long as the query.

A worker that Spark's own parent forks has only Python, imports PySpark, Arrow and Dredge by itself, and ends after a
minute without work. This costs about a second of processor time for each. Workers of this parent share its imports.

`spark_session` and `start_server` set this module if the workers run this Python on this machine. Sessions of other
origin, and clusters, keep Spark's module unless they set this module. Functions of users run in workers of this parent
as in workers of Spark's own parent. Spark uses `spark.python.daemon.module` for tasks only; `worker_start` requests the
same imports in Spark's own parents, for calls to data sources.
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
    "lsm_core.spark.table_writer",
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
"""Modules that workers of each known kind import."""

# A fork of a process with several threads has one thread, and keeps all locks that the others held.
_SINGLE_THREADED: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def preload(kind: str) -> None:
    """Import the modules of a worker of this ``kind`` (the module that it runs).

    A failed import is left to the worker, which reports the reason.
    """
    for name, text in _SINGLE_THREADED.items():
        os.environ.setdefault(name, text)
    for name in (kind, *KINDS.get(kind, ())):
        with suppress(ImportError):
            importlib.import_module(name)
    os.register_at_fork(after_in_child=_own_chance)
    gc.collect()
    gc.freeze()  # workers' garbage collectors skip these objects, so the pages stay shared


def _own_chance() -> None:
    """Seed NumPy's random numbers in each forked worker, so that workers do not share a sequence."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


if __name__ == "__main__":
    preload(sys.argv[1] if len(sys.argv) > 1 else _TASKS)
    from pyspark.daemon import manager

    manager()
