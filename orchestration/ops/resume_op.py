"""The op that ends the suspension of tables whose runs failed one after the other: their failures so far count no longer."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from orchestration import names
from orchestration.blocked import suspension
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource, list_tables


class ResumedTables(dg.Config):
    """What `resume` is given: the tables, and what was done about their failures."""

    tables: list[str] = Field(min_length=1, description="the tables: [db.table, ...]")
    reason: str = Field(min_length=1, description="what was wrong, and what was done about it; the run keeps it")


@dg.op(
    name="resume_tables",
    description="Let sensors start runs of these tables again; plans that failed get three new tries.",
    config_schema=ResumedTables.to_fields_dict(),
    out=dg.Out(dg.Nothing),
    tags={"dagster/kind/dredge": ""},
)
@typed
def resume_op(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
    """Mark this run as the one that resumed the tables. Raises dg.Failure, having marked none, for a name that the warehouse does not hold."""
    tables, reason = list(context.op_config["tables"]), " ".join(str(context.op_config["reason"]).split())
    known, _ = list_tables(warehouse.catalog())
    strangers = [table for table in tables if table not in known]
    if strangers or not tables or not reason:
        what = f"the warehouse holds no table {', '.join(strangers)}" if strangers else "tables and a reason are needed"
        raise dg.Failure(f"nothing was resumed: {what}", allow_retries=False)
    for table in tables:
        found = suspension(context.instance, table)
        context.log.info(
            f"{table}: {'resumed' if found else 'was not suspended'}: {reason}{f' (it was {found.text()})' if found else ''}"
        )
    marks = {names.resumed_tag(table): "yes" for table in tables}
    context.instance.add_run_tags(context.run_id, {**marks, names.TAG_REASON: reason[:200]})


__all__ = ["ResumedTables", "resume_op"]
