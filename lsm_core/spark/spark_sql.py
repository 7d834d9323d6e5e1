"""SQL in a Spark session: statements (`sql`), whose queries Spark runs, and procedures (`call`).

Compactions of procedures are Spark jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lsm_core.spark.overwrite_scope import OVERWRITE_MODE
from lsm_core.spark.session_catalog import catalog_of_session
from lsm_core.spark.spark_changes import change_runs
from lsm_core.spark.spark_queries import frame_query, open_answer
from lsm_core.spark.spark_write import runner_of, write_table
from lsm_core.sql.commands import Session
from lsm_core.sql.inserting import InsertPlan
from lsm_core.sql.procedures import CallResult, prepare_call
from lsm_core.sql.queries import plan_query
from lsm_core.sql.running import StatementRunner
from lsm_core.sql.statements import Query
from lsm_core.table import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lsm_core.maintenance.action import MaintenancePlan, Runner
    from lsm_core.write.row_changes.append_parts import AppendRun
    from lsm_core.write.row_changes.statements import KeyedMerge


class SparkEngine:
    """Engine that runs the queries of statements in a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        """Wrap a session; all queries run in this session."""
        self.spark = spark

    def answer(self, catalog: Catalog, text: str) -> pa.RecordBatchReader:
        """Return the rows of a query over the tables of ``catalog``; the driver holds them in memory.

        Raises:
            InvalidOption: The text cannot be parsed.
            TableNotFound: A table of the query does not exist.
            SparkFailed: Spark refuses the query.
        """
        with open_answer(self.spark, plan_query(catalog, text)) as frame:
            return frame.toArrow().to_reader()

    def insert(self, catalog: Catalog, text: str, plan: InsertPlan) -> int | None:
        """Write the rows of a query in Spark tasks and one commit. Raises DredgeError if the query or the write fails.

        Returns the snapshot id, or None if nothing was committed.
        """
        from pyspark.sql import functions

        frame = frame_query(self.spark, plan_query(catalog, text))
        frame = frame.toDF(*plan.named(frame.columns))
        for name, value in plan.constants.items():
            frame = frame.withColumn(name, functions.lit(value))
        return write_table(frame, plan.table, overwrite=plan.overwrite)

    def change_runs(self) -> tuple[KeyedMerge, AppendRun]:
        """Return (function for keyed tables, function for append tables); each changes rows in Spark tasks."""
        return change_runs(self.spark)

    def choose_runner(self, plan: MaintenancePlan) -> Runner | None:
        """Return the runner for the tasks of a compaction that follows a commit.

        Args:
            plan: The compaction.

        Returns:
            A runner for a Spark job if the compaction reads 64 MiB or more; None to run in threads of this process.
        """
        return runner_of(self.spark)(plan)


def sql(
    spark: SparkSession, text: str, *, catalog: Catalog | str | None = None, approved_by: str | None = None
) -> DataFrame:
    """Run one statement on the tables of a warehouse: a query, INSERT, UPDATE, DELETE, MERGE, DDL, SHOW or CALL.

    Args:
        spark: The session for queries and procedures. Its setting `spark.sql.sources.partitionOverwriteMode` applies to
            INSERT OVERWRITE.
        text: One statement in Spark SQL; tables are "database.table".
        catalog: A catalog or a warehouse's path. None for the setting `spark.dredge.warehouse` or, if that is not set,
            the environment variable DREDGE_WAREHOUSE.
        approved_by: Approver of procedures, for the ledger.

    Returns:
        The rows of a query, of SHOW or of DESCRIBE; for other statements one row with the columns `message` and
            `snapshot_id`.

    Raises:
        DredgeError: The statement cannot be parsed or run. Only completed steps of a CALL have changed anything.
    """
    from lsm_core.spark.spark_maintenance import spark_runner
    from lsm_core.sql.parsing import parse_statement

    tables = catalog_of_session(spark, catalog)
    parsed = parse_statement(text)
    if isinstance(parsed, Query):
        return frame_query(spark, plan_query(tables, parsed.text))
    dynamic = str(spark.conf.get(OVERWRITE_MODE, "static")).lower() == "dynamic"
    session = Session(tables, spark_runner(spark), approved_by, dynamic_overwrite=dynamic)
    result = StatementRunner(session, SparkEngine(spark)).run(parsed)
    rows = result.rows
    if rows is None:
        done = {"message": [result.message], "snapshot_id": pa.array([result.snapshot_id], pa.int64())}
        rows = pa.table(done)
    return spark.createDataFrame(rows)


def call(
    spark: SparkSession,
    statement: str,
    *,
    catalog: Catalog | str | None = None,
    approved_by: str | None = None,
) -> CallResult:
    """Run a procedure with Paimon's name, arguments and defaults; its compactions are Spark jobs.

    Args:
        spark: The session that runs the jobs.
        statement: The call, with arguments by name or position: "sys.compact(table => 'db.t')". A true `dry_run`
            returns the plans and changes nothing.
        catalog: A catalog or a warehouse's path. None for the setting `spark.dredge.warehouse` or, if that is not set,
            the environment variable DREDGE_WAREHOUSE. A catalog of a path has the options of DREDGE_CATALOG_OPTIONS.
        approved_by: Approver of the plans, for the ledger.

    Raises:
        InvalidOption: The procedure or an argument does not exist; the error names it.
        DredgeError: Planning or a step failed. With several steps, the error is raised after the last step and covers
            all failed steps.
    """
    from lsm_core.spark.spark_maintenance import spark_runner

    prepared = prepare_call(catalog_of_session(spark, catalog), statement)
    return prepared.apply(spark_runner(spark), approved_by)
