"""Program for the driver of a cluster: it applies the saved plan of a run and reports through Dagster Pipes.

Under ``spark-submit``, the program runs the tasks of the plan on Spark. As a plain Python script, it runs the tasks in
its own process. The program needs Dredge and `dagster-pipes`, but not Dagster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from lsm_core import Catalog
from lsm_core.clock import clock_from
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.maintenance import apply_plan, load_plan
from lsm_core.maintenance.action import Report, find_action

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets for a script."""
_MOST_CAUSES: Final = 10


def report_object(report: Report, table: str) -> dict[str, Any]:
    """Return a report as a mapping of plain values, for JSON.

    Only the lists `left_alone` and `failed` contain objects (`Declined`), which the caller serializes.

    Returns:
        `published` (snapshot id or None), `lines` (report as text), `numbers` (measured numbers by name), `left_alone`
        (what was not changed, with reasons), `changed` (whether the table changed), `ledger_run` (id of the run in the
        ledger), `failed` (what failed), `undone` (label for `failed`, such as "buckets failed"), and `before` (whether
        the plan had been applied before).
    """
    before = report.applied_before
    declined = [item for items in report.declined_lists().values() for item in items]
    return {
        "published": report.published,
        "lines": report.lines(table) if before is None else [before.text()],
        "numbers": report.numbers(),
        "left_alone": declined,
        "changed": report.changed,
        "ledger_run": report.run_id,
        "failed": report.failures,
        "undone": report.undone,
        "before": before is not None,
    }


def apply_saved_plan(request: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the saved plan that a request names.

    Args:
        request: mapping with the keys warehouse, catalog_options, clock, table, options (overriding table options),
            hash (of the plan) and approved_by.

    Returns:
        `report_object` of the report, or `describe_error` of the error if the plan was refused or failed.
    """
    table = str(request["table"])
    try:
        catalog = Catalog(request["warehouse"], request["catalog_options"], clock=clock_from(request["clock"]))
        store = catalog.table(table).store.copy(request["options"])
        plan = load_plan(store, request["hash"])
        runner = None
        if find_action(plan.action, table).runs_tasks and _GATEWAY in os.environ:
            from lsm_core.spark import spark_runner, spark_session

            runner = spark_runner(spark_session())
        report = report_object(apply_plan(store, plan, runner, request["approved_by"]), table)
    except DredgeError as error:
        return describe_error(error)
    lists = {name: [asdict(item) for item in report[name]] for name in ("left_alone", "failed")}
    answer: dict[str, Any] = json.loads(json.dumps({**report, **lists}, default=str))
    return answer


def describe_error(error: DredgeError) -> dict[str, Any]:
    """Return an error with its causes as values for JSON.

    Returns:
        `error` (name of the class), `text`, `path` (of a corrupt file, or ""), and `causes`: the errors of the engine
        from which it was raised, the nearest first, each with the same first three keys.
    """
    causes: list[dict[str, str]] = []
    cause = error.__cause__
    while cause is not None and len(causes) < _MOST_CAUSES:
        if isinstance(cause, DredgeError):
            causes.append(_name_error(cause))
        cause = cause.__cause__
    return {**_name_error(error), "causes": causes}


def _name_error(error: DredgeError) -> dict[str, str]:
    path = error.path if isinstance(error, CorruptFile) else ""
    return {"error": type(error).__name__, "text": " ".join(str(error).split()), "path": path}


def main() -> None:
    """Apply the plan of the run that started this process."""
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        pipes.report_custom_message(apply_saved_plan(pipes.extras))


if __name__ == "__main__":
    main()
