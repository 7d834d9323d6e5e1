"""Job that `spark-submit` runs in tests: it maintains a table with modules of the platform, from the wheel of --py-files.

`platform_job.py WAREHOUSE` materializes the layout of a table, whose compaction runs on the session of spark-submit,
and writes the report of the warehouse. Prints one line `ANSWER:{json}`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import dagster as dg
import pyarrow as pa

os.environ |= {"DREDGE_WAREHOUSE": sys.argv[1], "DREDGE_RUNNER": "spark", "DREDGE_COMPACTION_INLINE": "never"}

import dredge
from dredge.orchestration.definitions import build_definitions
from dredge.platform_core import names
from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from lsm_core.spark import spark_session


def main(root: str) -> None:
    spark = spark_session()
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    definition = Schema(fields, primary_keys=["k"], options={"bucket": "1"})
    table = Catalog(root).create_table("shop.orders", definition, create_database=True)
    for first in range(3):
        table.write(pa.table({"k": [first, 10]}))
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_definitions().resolve_implicit_global_asset_job_def()
        layout = names.WarehouseNames.of(root).layout_key("shop.orders")
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            result = job.execute_in_process(instance=instance, asset_selection=[layout], raise_on_error=False)
        jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        answer = {"success": result.success, "spark_jobs": jobs, "platform": dredge.__file__}
    answer["keys"] = sorted(Catalog(root).table("shop.orders").to_arrow()["k"].to_pylist())
    answer["kinds"] = Catalog(root).table("shop.orders$snapshots").to_arrow()["commit_kind"].to_pylist()
    answer["report"] = run(["report", "-w", root, "-o", f"{root}/report.html"])
    answer["page"] = "shop.orders" in Path(root, "report.html").read_text("utf-8")
    print("ANSWER:" + json.dumps(answer), flush=True)


main(sys.argv[1])
