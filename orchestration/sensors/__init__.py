"""Sensors: what lies outside Dagster becomes runs, observations and checks here, with a reason for every table on every tick."""

from __future__ import annotations

from orchestration.sensors.catalog import catalog_sensor
from orchestration.sensors.failures import failure_sensor
from orchestration.sensors.idle import idle_sensor
from orchestration.sensors.runs import sorted_run_sensor

__all__ = ["catalog_sensor", "failure_sensor", "idle_sensor", "sorted_run_sensor"]
