"""Python runs this when it starts, where this folder is in PYTHONPATH: of the tests' Spark session alone.

Spark forks a worker for every task, and for every question to a data source (its schema, its plan, its commit), from one parent a kind,
and each of them would import the same modules, which takes a second. What the parent has imported, they have.
"""

import gc
import importlib
import os
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no thread may run where a worker is forked
    for _name in (
        *sys.orig_argv[3:4],
        "pyspark.worker",
        "lsm_core.spark.data_source",
        "lsm_core.compact",
        "lsm_core.write",
    ):
        importlib.import_module(_name)
    gc.freeze()
