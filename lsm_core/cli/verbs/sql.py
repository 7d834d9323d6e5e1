"""The verb that answers a query over the warehouse's tables by Spark, and plans or applies one of Paimon's procedures (without Spark)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, RunnerName, RunnerOption, Warehouse, open_catalog, runner_of
from lsm_core.cli.verbs.maintain import require_done, show_plan, show_report
from lsm_core.errors import InvalidOption

if TYPE_CHECKING:
    from lsm_core.sql.procedures import CallResult

_MOST_ROWS = 1_000


def sql(
    warehouse: Warehouse,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="STATEMENT",
            help="SELECT ... FROM database.table [VERSION AS OF ... | TIMESTAMP AS OF ...], or CALL sys.procedure(...).",
            show_default=False,
        ),
    ],
    apply: Annotated[bool, typer.Option("--apply", help="CALL: apply the plan instead of printing it.")] = False,
    approved_by: Annotated[
        str | None, typer.Option("--approved-by", help="CALL: written to the ledger.", show_default=False)
    ] = None,
    runner: RunnerOption = RunnerName.PROCESS,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, help="SELECT: print so many rows at most.")
    ] = _MOST_ROWS,
    explain: Annotated[
        bool, typer.Option("--explain", help="SELECT: say what is read, and how, instead of reading it.")
    ] = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Answer a query over the warehouse's tables, or plan (--apply: apply) a procedure of Paimon's."""
    from lsm_core.sql.call_statement import is_call

    catalog = open_catalog(warehouse, clock)
    if is_call(statement):
        from lsm_core.sql.procedures import prepare_call

        if explain:
            raise InvalidOption("--explain", statement, "a query; CALL prints its plan anyway")
        prepared = prepare_call(catalog, statement)
        workers = runner_of(runner)
        done = prepared.apply(workers, approved_by) if apply else prepared.plan(workers)
        _show_call(done, as_json=as_json)
        return
    if runner is not RunnerName.PROCESS:
        raise InvalidOption("--runner", runner, f"{RunnerName.PROCESS}: queries are always Spark's")
    if apply or approved_by:
        raise InvalidOption("--apply" if apply else "--approved-by", statement, "CALL sys.procedure(...)")
    from lsm_core.spark.session import spark_session
    from lsm_core.spark.spark_queries import answered, explain_query
    from lsm_core.sql.queries import planned_query

    query = planned_query(catalog, statement)
    if explain:
        told = explain_query(query)
        print_json({"reads": told}) if as_json else say("\n".join(told))
        return
    with answered(spark_session(app_name="dredge sql"), query) as frame:
        rows = frame.limit(max_rows + 1).toArrow()
    shown = rows.slice(0, max_rows)
    if as_json:
        print_json({"columns": rows.column_names, "rows": shown.to_pylist(), "complete": rows.num_rows <= max_rows})
        return
    print_table("", rows.column_names, zip(*(column.to_pylist() for column in shown.columns), strict=True))
    if rows.num_rows > max_rows:
        say(f"... and more; --max-rows shows more than {max_rows:,}")


def _show_call(result: CallResult, *, as_json: bool) -> None:
    if as_json:
        steps = [
            {
                "table": step.table,
                "what": step.what,
                "plan": None if step.plan is None else json.loads(step.plan.to_json()),
                "report": None if step.report is None else step.report.to_object(),
            }
            for step in result.steps
        ]
        print_json({"procedure": result.procedure, "applied": result.applied, "steps": steps})
    else:
        _tell_people(result)
    for report in result.reports:
        require_done(report)


def _tell_people(result: CallResult) -> None:
    for step in result.steps:
        if step.report is not None:
            show_report(step.report, step.table)
        elif step.plan is not None:
            show_plan(step.plan)
        else:
            say(step.what)
    if not result.steps:
        say("there is nothing to do")
    elif not result.applied:
        say("nothing was changed; --apply does it")
