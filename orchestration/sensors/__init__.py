"""Sensors: they turn changes of the warehouse into runs, observations and checks, with a reason per table and tick.

A sensor reads metadata and requests runs; it never changes a table. `dredge.platform_core.policies.decisions` decides
which runs to request. Begin with `table_sensors` and `table_sweep`.
"""

from __future__ import annotations

from dredge.orchestration.sensors.catalog_sensor import catalog_sensor
from dredge.orchestration.sensors.failure_sensor import failure_sensor
from dredge.orchestration.sensors.table_sensors import idle_sensor, sorted_run_sensor
from dredge.orchestration.sensors.watch_sensor import watch_sensor
