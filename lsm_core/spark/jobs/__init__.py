"""What every Spark job of Dredge shares: coarse Python tasks, errors that keep their type on the way back, column types."""

from __future__ import annotations

from lsm_core.spark.jobs.columns import spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.jobs.failures import shipped, translated
from lsm_core.spark.jobs.tasks import Outcome, run_tasks, store_of

__all__ = ["Outcome", "run_tasks", "shipped", "spark_arrow_schema", "spark_ddl", "store_of", "to_spark", "translated"]
