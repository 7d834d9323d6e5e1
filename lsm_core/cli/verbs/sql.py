"""The verb for SQL: statements, queries by Spark or in this process, and procedures (plan or apply)."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, RunnerName, RunnerOption, Warehouse, open_catalog, runner_of
from lsm_core.cli.verbs.maintain import require_success, show_plan, show_report
from lsm_core.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from lsm_core.maintenance.action import MaintenancePlan, Runner
    from lsm_core.sql.commands import StatementResult
    from lsm_core.sql.inserting import QueryEngine
    from lsm_core.sql.procedures import CallResult
    from lsm_core.table import Catalog

_MOST_ROWS = 1_000


class EngineName(StrEnum):
    """Engine that answers queries."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def sql(
    warehouse: Warehouse,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="STATEMENT",
            help="SELECT, INSERT, UPDATE, DELETE, MERGE INTO, CREATE, ALTER, DROP, TRUNCATE, SHOW, DESCRIBE, ANALYZE "
            "TABLE, or CALL sys.procedure(...).",
            show_default=False,
        ),
    ],
    apply: Annotated[bool, typer.Option("--apply", help="CALL: apply the plan instead of printing it.")] = False,
    approved_by: Annotated[
        str | None, typer.Option("--approved-by", help="CALL: written to the ledger.", show_default=False)
    ] = None,
    runner: RunnerOption = RunnerName.PROCESS,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="Engine of queries: Spark, this process (local), or Spark if it is installed."),
    ] = EngineName.AUTO,
    dynamic_overwrite: Annotated[
        bool, typer.Option("--dynamic-overwrite", help="INSERT OVERWRITE: replace only the partitions that get rows.")
    ] = False,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="SELECT: most rows to print.")] = _MOST_ROWS,
    explain: Annotated[
        bool, typer.Option("--explain", help="SELECT: print which files and columns are read, instead of the rows.")
    ] = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Run one SQL statement on the warehouse; CALL prints its plan (--apply: applies it)."""
    from lsm_core.sql.call_statement import CallStatement
    from lsm_core.sql.parsing import parse_statement
    from lsm_core.sql.statements import Query

    catalog = open_catalog(warehouse, clock)
    parsed = parse_statement(statement)
    if isinstance(parsed, CallStatement):
        from lsm_core.sql.procedures import prepare_call

        if explain:
            raise InvalidOption("--explain", statement, "a query; CALL prints its plan anyway")
        prepared = prepare_call(catalog, parsed)
        workers = runner_of(runner)
        _show_call(prepared.apply(workers, approved_by) if apply else prepared.plan(workers), as_json=as_json)
        return
    if runner is not RunnerName.PROCESS:
        raise InvalidOption("--runner", runner, f"{RunnerName.PROCESS}; --engine chooses what answers queries")
    if apply or approved_by:
        raise InvalidOption("--apply" if apply else "--approved-by", statement, "CALL sys.procedure(...)")
    if explain and not isinstance(parsed, Query):
        raise InvalidOption("--explain", statement, "a query")
    if isinstance(parsed, Query):
        _query(catalog, parsed.text, engine, max_rows, explain=explain, as_json=as_json)
        return
    from lsm_core.sql.commands import Session
    from lsm_core.sql.running import StatementRunner

    session = Session(catalog, dynamic_overwrite=dynamic_overwrite)
    _show_result(StatementRunner(session, _LazyEngine(engine)).run(parsed), as_json=as_json)


class _LazyEngine:
    """Engine of `--engine`, started only for a statement with a query."""

    def __init__(self, name: EngineName) -> None:
        self._name = name
        self._started: QueryEngine | None = None

    def answer(self, catalog: Catalog, text: str) -> pa.RecordBatchReader:
        """Return the rows of a query as a stream."""
        return self._engine().answer(catalog, text)

    def insert(self, catalog: Catalog, text: str, plan: Any) -> int | None:
        """Write the rows of a query in one commit; return the snapshot id, or None for no rows."""
        return self._engine().insert(catalog, text, plan)

    def change_runs(self) -> None:
        """Return None: this process changes the rows of UPDATE, DELETE and MERGE INTO, even if Spark runs queries."""

    def choose_runner(self, plan: MaintenancePlan) -> Runner | None:
        """Return the runner of the engine that the statement started; None for threads of this process."""
        return None if self._started is None else self._started.choose_runner(plan)

    def _engine(self) -> QueryEngine:
        if self._started is None and uses_local_engine(self._name):
            from lsm_core.sql.local_engine import LocalEngine

            self._started = LocalEngine()
        if self._started is None:
            from lsm_core.spark.session import spark_session
            from lsm_core.spark.spark_sql import SparkEngine

            self._started = SparkEngine(spark_session(app_name="dredge sql"))
        return self._started


def uses_local_engine(engine: EngineName) -> bool:
    """Return whether this process answers queries: the user chose this engine, or Spark is not installed."""
    return engine is EngineName.LOCAL or (engine is EngineName.AUTO and find_spec("pyspark") is None)


def _query(catalog: Catalog, text: str, engine: EngineName, max_rows: int, *, explain: bool, as_json: bool) -> None:
    from lsm_core.sql.queries import plan_query

    query = plan_query(catalog, text)
    if explain:
        from lsm_core.spark.spark_queries import explain_query

        lines = explain_query(query)
        print_json({"reads": lines}) if as_json else say("\n".join(lines))
        return
    if uses_local_engine(engine):
        from lsm_core.sql.local_engine import answer_query, first_rows

        rows = first_rows(answer_query(query), max_rows + 1)
    else:
        from lsm_core.spark.session import spark_session
        from lsm_core.spark.spark_queries import open_answer

        with open_answer(spark_session(app_name="dredge sql"), query) as frame:
            rows = frame.limit(max_rows + 1).toArrow()
    _show_rows(rows, max_rows, as_json=as_json)


def _show_rows(rows: pa.Table, max_rows: int, *, as_json: bool) -> None:
    shown = rows.slice(0, max_rows)
    if as_json:
        print_json({"columns": rows.column_names, "rows": shown.to_pylist(), "complete": rows.num_rows <= max_rows})
        return
    print_table("", rows.column_names, zip(*(column.to_pylist() for column in shown.columns), strict=True))
    if rows.num_rows > max_rows:
        say(f"... and more; --max-rows shows more than {max_rows:,}")


def _show_result(result: StatementResult, *, as_json: bool) -> None:
    if result.rows is not None:
        if result.rows.column_names == ["createtab_stmt"] and not as_json:
            say(result.rows.column(0)[0].as_py().rstrip() + ";")
        else:
            _show_rows(result.rows, max(result.rows.num_rows, 1), as_json=as_json)
    elif result.call is not None:
        _show_call(result.call, as_json=as_json)
    elif as_json:
        print_json({"message": result.message, "snapshot_id": result.snapshot_id})
    else:
        say(result.message)


def _show_call(result: CallResult, *, as_json: bool) -> None:
    if as_json:
        steps = [
            {
                "table": step.table,
                "what": step.description,
                "plan": None if step.plan is None else json.loads(step.plan.to_json()),
                "report": None if step.report is None else step.report.to_object(),
            }
            for step in result.steps
        ]
        print_json({"procedure": result.procedure, "applied": result.applied, "steps": steps})
    else:
        _print_call(result)
    for report in result.reports:
        require_success(report)


def _print_call(result: CallResult) -> None:
    for step in result.steps:
        if step.report is not None:
            show_report(step.report, step.table)
        elif step.plan is not None:
            show_plan(step.plan)
        else:
            say(step.description)
    if not result.steps:
        say("there is nothing to do")
    elif not result.applied:
        say("nothing was changed; --apply does it")
