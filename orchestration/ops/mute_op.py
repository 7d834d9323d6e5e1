"""Ops of the jobs `snooze_alerts` and `acknowledge_alerts`: matching alerts are not sent again before a time."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from dredge.orchestration.ops.common import job_op
from dredge.platform_core.mute_records import MOST_HOURS, MOST_TEXT, list_mutes, mute_tags
from dredge.platform_core.policies.alerts import Mute, find_active_mutes
from dredge.platform_core.policies.findings import AlertCondition
from dredge.platform_core.policies.policy import HOUR_MS
from dredge.platform_core.resources.warehouse import WarehouseResource, list_tables
from dredge.platform_core.table_card import count_text
from lsm_core.cli.render import visible
from lsm_core.clock import SystemClock, utc_text

_MOST_SHOWN: Final = 10
_CONDITIONS = ", ".join(condition.value for condition in AlertCondition)


class MuteConfig(dg.Config):
    """Configuration of the jobs `snooze_alerts` and `acknowledge_alerts`."""

    tables: str = Field(
        min_length=1,
        max_length=MOST_TEXT,
        description="table, or glob like 'shop.*', or a name as alerts show it, like 'sensor sorted_run'",
    )
    cause: str = Field(
        "*", min_length=1, max_length=MOST_TEXT, description=f"condition of the alerts, or a glob: {_CONDITIONS}"
    )
    hours: float = Field(
        description=f"duration in hours, at most {MOST_HOURS}; 0 ends an earlier record with the same tables and cause"
    )
    by: str = Field(min_length=1, max_length=MOST_TEXT, description="name of the person")
    reason: str = Field("", max_length=MOST_TEXT, description="reason, or how the cause is being repaired")
    severity: Literal["warn", "error", "emergency"] = Field(
        "error", description="highest severity that is covered; more severe alerts are sent"
    )


def mute_op(name: str, *, acknowledged: bool) -> dg.OpDefinition:
    """Return the op of the job `snooze_alerts` or `acknowledge_alerts`.

    Args:
        name: name of the op.
        acknowledged: whether the alerts are acknowledged: the person works on the cause, and each channel gets one
            message that says so. Otherwise they are only snoozed.
    """

    @job_op(name, "Record which alerts are not sent before a time.", config=MuteConfig)
    def record_mute(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
        _record(context, warehouse, acknowledged=acknowledged)

    return record_mute


def _record(context: dg.OpExecutionContext, warehouse: WarehouseResource, *, acknowledged: bool) -> None:
    """Tag this run with the alerts not to send, the person and the duration, which the sensor `watch` reads.

    Raises:
        dg.Failure: the duration is invalid, the name is blank, nothing matches the tables or the cause, or no record
            with these tables and cause applies that could be ended.
    """
    config: dict[str, Any] = dict(context.op_config)
    tables, cause, hours = str(config["tables"]).strip(), str(config["cause"]).strip(), float(config["hours"])
    by, reason = (visible(" ".join(str(config[key]).split())) for key in ("by", "reason"))
    now_ms = SystemClock().now_ms()
    known, _ = list_tables(warehouse)
    matches = [table for table in known if fnmatchcase(table, tables)]
    conditions = [condition.value for condition in AlertCondition if fnmatchcase(condition.value, cause)]
    problem = ""
    if not 0 <= hours <= MOST_HOURS:
        problem = f"`hours` is {hours:g}; it must be 0 to {MOST_HOURS}"
    elif not by:
        problem = "`by` must name a person"
    elif not hours:
        problem = _unknown_record(
            find_active_mutes(list_mutes(context.instance, warehouse.names, now_ms), now_ms), tables, cause
        )
    elif not matches and not tables.startswith(("sensor ", "the policy file")):
        problem = f"no table matches {visible(tables)!r}"
    elif not conditions:
        problem = f"no condition matches {visible(cause)!r}; the conditions are: {_CONDITIONS}"
    if problem:
        raise dg.Failure(f"nothing was recorded: {problem}", allow_retries=False)
    tags = mute_tags(
        warehouse.names,
        acknowledged=acknowledged,
        cause=cause,
        tables=tables,
        severity=str(config["severity"]),
        by=by,
        reason=reason,
        hours=hours,
    )
    context.instance.add_run_tags(context.run_id, tags)
    subject = f"alerts about {visible(tables)} ({count_text(len(matches), 'table')}), {', '.join(conditions)}"
    if not hours:
        context.log.info(f"{subject}: sent again from now on, by {by}")
        return
    until = utc_text(now_ms + int(hours * HOUR_MS))
    verb = "acknowledged" if acknowledged else "snoozed"
    context.log.info(f"{subject}: {verb} by {by} until {until} UTC{f': {reason}' if reason else ''}")


def _unknown_record(active: Sequence[Mute], tables: str, cause: str) -> str:
    """Return why a record cannot be ended, with the records that apply now; "" if it is one of ``active``."""
    if any((mute.tables, mute.cause) == (tables, cause) for mute in active):
        return ""
    shown = [
        f"tables {visible(mute.tables)!r}, cause {visible(mute.cause)!r}, until {utc_text(mute.until_ms)} UTC"
        for mute in active[:_MOST_SHOWN]
    ]
    more = f"; and {len(active) - _MOST_SHOWN} more" if len(active) > _MOST_SHOWN else ""
    records = f"the records that apply: {'; '.join(shown)}{more}" if shown else "no record applies now"
    return f"no record to end has tables {visible(tables)!r} and cause {visible(cause)!r}; {records}"


SNOOZE_OP = mute_op("snooze_matching_alerts", acknowledged=False)
ACKNOWLEDGE_OP = mute_op("acknowledge_matching_alerts", acknowledged=True)
