"""Settings of the platform: intervals and time budgets, read from the environment when definitions load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import dagster as dg

from lsm_core.errors import InvalidOption
from lsm_core.json_text import parse_json

URL_VARIABLE: Final = "DREDGE_DAGSTER_URL"
REPORT_VARIABLE: Final = "DREDGE_REPORT_DIR"
REPORT_URL_VARIABLE: Final = "DREDGE_REPORT_URL"
DOCS_VARIABLE: Final = "DREDGE_DATA_DOCS_URL"
UI_VARIABLE: Final = "DREDGE_UI_URL"
RUNBOOK_VARIABLE: Final = "DREDGE_RUNBOOK_URL"
RUN_ASSETS_VARIABLE: Final = "DREDGE_RUN_ASSETS"
"""Environment variable for the assets that a run materialises or checks, as JSON keys; set only by the launcher."""
RUN_JOB_VARIABLE: Final = "DREDGE_RUN_JOB"
"""Environment variable for the job of a run that selected no assets; set only by the launcher."""
RUN_PARTITIONED_VARIABLE: Final = "DREDGE_RUN_PARTITIONED"
"""Environment variable that marks a run with a partition, set only by the launcher.

The mark is necessary, because a dropped table no longer shows partition keys.
"""
_ON: Final = frozenset({"on", "true", "1", "yes"})
_OFF: Final = frozenset({"off", "false", "0", "no"})


@dataclass(frozen=True)
class Settings:
    """Settings of the platform.

    Attributes:
        sensor_seconds: interval of the table sensors, in seconds.
        sensor_budget_seconds: time budget of a tick, in seconds.
        watch_seconds: interval of the sensor `watch`, in seconds.
        sensors_on: whether sensors are switched on initially.
        schedules_on: whether schedules are switched on initially.
        retention_cron: cron of retention, in UTC.
        expectations_cron: cron of the expectations, in UTC.
        health_cron: cron of the warehouse's health ranking, in UTC.
        maintenance_cron: cron of `maintain`, in UTC.
        orphans_cron: cron of the orphan plans, in UTC.
        audit_cron: cron of the audit, in UTC.
        dagster_url: http(s) address of Dagster's web server, which reloads the code location, without a final slash. ""
            for no reload.
        data_docs_url: http(s) address at which a web server serves the folder of Data Docs, without a final slash; ""
            for no links.
        ui_url: http(s) address of Dagster's web server for links in alerts, without a final slash; "" for no links.
        runbook_url: http(s) address of the page docs/operations.md in alerts; "" for its name.
        report_dir: folder of the report on all tables; "" for the folder ``dredge/report`` of the Dagster instance.
        report_url: http(s) address at which a web server serves `report_dir`; "" for no link.
    """

    sensor_seconds: int = 30
    sensor_budget_seconds: float = 20.0
    watch_seconds: int = 60
    sensors_on: bool = True
    schedules_on: bool = True
    retention_cron: str = "17 * * * *"
    expectations_cron: str = "23 4 * * *"
    health_cron: str = "7 * * * *"
    maintenance_cron: str = "40 2 * * *"
    orphans_cron: str = "11 3 * * 0"
    audit_cron: str = "41 3 * * *"
    dagster_url: str = ""
    data_docs_url: str = ""
    ui_url: str = ""
    runbook_url: str = ""
    report_dir: str = ""
    report_url: str = ""

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from the environment.

        The variables are ``DREDGE_SENSOR_SECONDS``, ``DREDGE_SENSOR_BUDGET``, ``DREDGE_WATCH_SECONDS``,
        ``DREDGE_SENSORS``, ``DREDGE_SCHEDULES``, ``DREDGE_DAGSTER_URL``, ``DREDGE_DATA_DOCS_URL``, ``DREDGE_UI_URL``,
        ``DREDGE_RUNBOOK_URL``, ``DREDGE_REPORT_DIR``, ``DREDGE_REPORT_URL`` and the crons (``DREDGE_RETENTION_CRON``
        and so on).

        Raises:
            InvalidOption: a value is invalid; the message names the variable.
        """
        values = os.environ if environment is None else environment
        base = Settings()
        return Settings(
            sensor_seconds=int(_number(values, "DREDGE_SENSOR_SECONDS", base.sensor_seconds, 1)),
            sensor_budget_seconds=_number(values, "DREDGE_SENSOR_BUDGET", base.sensor_budget_seconds, 0.1),
            watch_seconds=int(_number(values, "DREDGE_WATCH_SECONDS", base.watch_seconds, 1)),
            sensors_on=_switch(values, "DREDGE_SENSORS", default=base.sensors_on),
            schedules_on=_switch(values, "DREDGE_SCHEDULES", default=base.schedules_on),
            retention_cron=_cron(values, "DREDGE_RETENTION_CRON", base.retention_cron),
            expectations_cron=_cron(values, "DREDGE_EXPECTATIONS_CRON", base.expectations_cron),
            health_cron=_cron(values, "DREDGE_HEALTH_CRON", base.health_cron),
            maintenance_cron=_cron(values, "DREDGE_MAINTENANCE_CRON", base.maintenance_cron),
            orphans_cron=_cron(values, "DREDGE_ORPHANS_CRON", base.orphans_cron),
            audit_cron=_cron(values, "DREDGE_AUDIT_CRON", base.audit_cron),
            dagster_url=_address(values, URL_VARIABLE),
            data_docs_url=_address(values, DOCS_VARIABLE),
            ui_url=_address(values, UI_VARIABLE) or _address(values, URL_VARIABLE),
            runbook_url=_address(values, RUNBOOK_VARIABLE),
            report_dir=values.get(REPORT_VARIABLE, "").strip(),
            report_url=_address(values, REPORT_URL_VARIABLE),
        )


def run_assets(environment: Mapping[str, str]) -> frozenset[dg.AssetKey] | None:
    """Return the assets that this process has to materialise or check.

    Returns:
        The keys, or None outside runs and for runs that selected no assets.
    """
    text = environment.get(RUN_ASSETS_VARIABLE, "")
    return frozenset(map(dg.AssetKey, parse_json(text))) if text else None


def _number(
    values: Mapping[str, str], key: str, default: float, minimum: float, maximum: float = 3600, unit: str = "seconds"
) -> float:
    text = values.get(key, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError as error:
        raise InvalidOption(key, text, f"a number of {unit}") from error
    if not minimum <= number <= maximum:
        raise InvalidOption(key, text, f"{minimum} to {maximum} {unit}")
    return number


def _cron(values: Mapping[str, str], key: str, default: str) -> str:
    text = values.get(key, "").strip()
    try:  # Dagster's own check
        dg.ScheduleDefinition(job_name="any", cron_schedule=text or default)
    except dg.DagsterInvalidDefinitionError as error:
        accepted = "a cron expression of five fields that can occur, like '17 * * * *'"
        raise InvalidOption(key, text, accepted) from error
    return text or default


def _address(values: Mapping[str, str], key: str) -> str:
    """Return the address of a web server, or "". Addresses with a user are refused, because the UI shows the address.

    Args:
        values: the environment.
        key: name of the variable.
    """
    text = values.get(key, "").strip()
    accepted = "an http:// or https:// address with a host and no user or query, like http://localhost:3000"
    try:
        parts = urlsplit(text)
        has_user = "@" in parts.netloc
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise InvalidOption(key, text, f"{accepted} ({error})") from error
    if has_user:
        raise InvalidOption(key, f"{parts.scheme}://...@{parts.hostname}", accepted)
    if text and not (is_valid and text.isprintable() and " " not in text and not parts.query and not parts.fragment):
        raise InvalidOption(key, text, accepted)
    return text.rstrip("/")


def _switch(values: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = values.get(key, "").strip().lower()
    if not text:
        return default
    if text in _ON | _OFF:
        return text in _ON
    raise InvalidOption(key, text, "on or off")
