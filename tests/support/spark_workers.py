"""The parent of the tests' Spark workers, which are forked from it: it has imported what each of them would import, the longest part of a short task.

Started by Spark as `python -m tests.support.spark_workers <module of the worker>`, in place of `pyspark.daemon`.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from pyspark import daemon


def main() -> None:
    """Import, then fork a worker whenever Spark asks for one."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no thread may run when a worker is forked
    for name in (*sys.argv[1:2], "pyspark.worker", "lsm_core.spark.data_source", "lsm_core.compact", "lsm_core.write"):
        importlib.import_module(name)
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
