"""SQL for a session: procedures of maintenance (`call`), whose compactions are Spark jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm_core.spark.session_catalog import WAREHOUSE_SETTING, catalog_of_session
from lsm_core.sql.procedures import CallResult, prepare_call
from lsm_core.table import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def call(
    spark: SparkSession,
    statement: str,
    *,
    catalog: Catalog | str | None = None,
    approved_by: str | None = None,
) -> CallResult:
    """Run a procedure by Paimon's name, arguments and defaults ("sys.compact(table => 'db.t')", also by position); compactions are Spark jobs.

    ``catalog``: a Catalog or the warehouse's path; default: the session's setting `WAREHOUSE_SETTING`, else the environment's
    DREDGE_WAREHOUSE (with DREDGE_CATALOG_OPTIONS). A true `dry_run` returns the plans and changes nothing. Raises InvalidOption naming a
    procedure or argument, and what planning and applying raise; DredgeError after the last of several steps for those that failed.
    """
    from lsm_core.spark.spark_maintenance import spark_runner

    prepared = prepare_call(catalog_of_session(spark, catalog), statement)
    return prepared.apply(spark_runner(spark), approved_by)


__all__ = ["WAREHOUSE_SETTING", "call"]
