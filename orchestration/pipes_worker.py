"""What a cluster's driver runs for a maintenance run: it applies one saved plan, exactly, and tells Dagster through Pipes how that went.

Started with ``spark-submit`` it has the tasks of the plan done on that Spark; started as a plain Python script it does them itself. It needs Dredge and
`dagster-pipes`, nothing else of Dagster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from lsm_core import Catalog
from lsm_core.clock import clock_from
from lsm_core.errors import DredgeError
from lsm_core.maintenance import apply_plan, load_plan
from lsm_core.maintenance.action import Report, find_action

_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""What spark-submit sets for the scripts that it starts."""


def told_of(report: Report, table: str) -> dict[str, Any]:
    """Return what a run tells of a report, as plain values that JSON can hold, but for the lists of what was left alone and what failed."""
    before = report.applied_before
    left = [item for items in report.declined_lists().values() for item in items]
    return {
        "published": report.published,
        "lines": report.lines(table) if before is None else [before.text()],
        "numbers": report.numbers(),
        "left_alone": left,
        "changed": report.changed,
        "ledger_run": report.run_id,
        "failed": report.failures,
        "undone": report.undone,
        "before": before is not None,
    }


def apply_asked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the plan that ``asked`` names (warehouse, catalog_options, clock, table, options, hash, approved_by).

    Returns `told_of` the report, or ``{"error": name, "text": ...}`` of what was refused or failed.
    """
    table = str(asked["table"])
    try:
        catalog = Catalog(asked["warehouse"], asked["catalog_options"], clock=clock_from(asked["clock"]))
        store = catalog.table(table).store.copy(asked["options"])
        plan = load_plan(store, asked["hash"])
        runner = None
        if find_action(plan.action, table).runs_tasks and _GATEWAY in os.environ:
            from lsm_core.spark import spark_runner, spark_session

            runner = spark_runner(spark_session())
        told = told_of(apply_plan(store, plan, runner, asked["approved_by"]), table)
    except DredgeError as error:
        return {"error": type(error).__name__, "text": " ".join(str(error).split())}
    lists = {name: [asdict(item) for item in told[name]] for name in ("left_alone", "failed")}
    plain: dict[str, Any] = json.loads(json.dumps({**told, **lists}, default=str))
    return plain


def main() -> None:
    """Do what the run that started this process asks for."""
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        pipes.report_custom_message(apply_asked(pipes.extras))


if __name__ == "__main__":
    main()
