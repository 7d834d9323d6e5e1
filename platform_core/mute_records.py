"""Records of snoozed and acknowledged alerts: tags of the runs of the jobs `snooze_alerts` and `acknowledge_alerts`."""

from __future__ import annotations

import datetime
import json
from typing import Any, Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.policies.alerts import Mute
from dredge.platform_core.policies.findings import Severity
from dredge.platform_core.policies.policy import HOUR_MS
from lsm_core.json_text import parse_json

MOST_HOURS: Final = 720
"""Longest time for which alerts are snoozed or acknowledged, in hours."""
MOST_TEXT: Final = 200
"""Most characters of each text of a record."""
_MOST_RUNS: Final = 200


def mute_tags(
    warehouse_names: names.WarehouseNames,
    *,
    acknowledged: bool,
    cause: str,
    tables: str,
    severity: str,
    by: str,
    reason: str,
    hours: float,
) -> dict[str, str]:
    """Return the run tags that record snoozed or acknowledged alerts; the arguments are fields of `Mute`.

    Args:
        warehouse_names: names of the warehouse in Dagster.
        acknowledged: whether the person works on the cause.
        cause: glob of conditions.
        tables: glob of tables, sensors or files.
        severity: highest severity that is covered.
        by: name of the person.
        reason: reason, or "".
        hours: duration from the creation of the run; 0 ends earlier records with the same cause and tables.
    """
    texts = {"cause": cause, "tables": tables, "severity": severity, "by": by, "reason": reason}
    detail = {**{key: text[:MOST_TEXT] for key, text in texts.items()}, "hours": hours}
    kind = names.ACKNOWLEDGE_JOB if acknowledged else names.SNOOZE_JOB
    return {names.TAG_MUTE: warehouse_names.mute_value(kind), names.TAG_MUTE_DETAIL: json.dumps(detail)}


def list_mutes(instance: dg.DagsterInstance, warehouse_names: names.WarehouseNames, now_ms: int) -> list[Mute]:
    """Return the alerts that persons snoozed or acknowledged in the last 30 days, newest first, also expired ones.

    Records that cannot be read are left out.

    Args:
        instance: Dagster instance.
        warehouse_names: names of the warehouse in Dagster.
        now_ms: epoch ms by the wall clock.
    """
    since = datetime.datetime.fromtimestamp((now_ms - MOST_HOURS * HOUR_MS) / 1000, datetime.UTC)
    kinds = [warehouse_names.mute_value(names.SNOOZE_JOB), warehouse_names.mute_value(names.ACKNOWLEDGE_JOB)]
    run_filter = dg.RunsFilter(
        tags={names.TAG_MUTE: kinds}, statuses=[dg.DagsterRunStatus.SUCCESS], created_after=since
    )
    records = instance.get_run_records(run_filter, limit=_MOST_RUNS)
    mutes = [
        _read_mute(record.dagster_run, warehouse_names, int(record.create_timestamp.timestamp() * 1000))
        for record in records
    ]
    return [mute for mute in mutes if mute is not None]


def _read_mute(run: dg.DagsterRun, warehouse_names: names.WarehouseNames, created_ms: int) -> Mute | None:
    """Return the snoozed or acknowledged alerts that a run recorded, or None if the run's tags are unreadable."""
    try:
        detail: dict[str, Any] = parse_json(run.tags.get(names.TAG_MUTE_DETAIL, ""))
        texts = {key: str(detail[key])[:MOST_TEXT] for key in ("cause", "tables", "by", "reason")}
        hours = min(max(float(detail["hours"]), 0.0), MOST_HOURS)
        severity = Severity(detail["severity"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    acknowledged = run.tags[names.TAG_MUTE] == warehouse_names.mute_value(names.ACKNOWLEDGE_JOB)
    until_ms = created_ms + int(hours * HOUR_MS)
    return Mute(run.run_id, acknowledged, severity=severity, until_ms=until_ms, **texts)
