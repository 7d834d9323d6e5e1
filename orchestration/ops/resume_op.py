"""Op that ends the suspension of tables after repeated failures; earlier failures of these tables no longer count."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from dredge.orchestration.ops.common import job_op
from dredge.platform_core import names
from dredge.platform_core.obstacles import find_suspension
from dredge.platform_core.resources.warehouse import WarehouseResource, list_tables


class ResumeConfig(dg.Config):
    """Configuration of the job `resume`."""

    tables: list[str] = Field(min_length=1, description="full names of the tables: [db.table, ...]")
    reason: str = Field(
        min_length=1, description="cause of the failures and how it was fixed; stored as a tag of the run"
    )


@job_op(
    "resume_tables",
    "Let sensors start runs of these tables again. Plans that failed get three new tries.",
    config=ResumeConfig,
)
def resume_op(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
    """Tag this run as the run that resumed the tables, which ends their suspension.

    Raises:
        dg.Failure: a table does not exist, or no table or reason is given. Then no table is resumed.
    """
    tables, reason = list(context.op_config["tables"]), " ".join(str(context.op_config["reason"]).split())
    known, _ = list_tables(warehouse)
    unknown = [table for table in tables if table not in known]
    if unknown or not tables or not reason:
        problem = (
            f"the warehouse has no table {', '.join(unknown)}" if unknown else "`tables` and `reason` must not be empty"
        )
        raise dg.Failure(f"nothing was resumed: {problem}", allow_retries=False)
    for table in tables:
        ended = find_suspension(context.instance, warehouse.names, table)
        context.log.info(f"{table}: {f'resumed (it was {ended.text()})' if ended else 'was not suspended'}: {reason}")
    marks = {warehouse.names.resumed_tag(table): "yes" for table in tables}
    context.instance.add_run_tags(context.run_id, {**marks, names.TAG_REASON: reason[:200]})
