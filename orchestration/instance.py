"""Dagster instance for many tables: `dagster.yaml` names its class under `instance_class`.

For each asset with checks, Dagster asks the storage twice whether its database has the table of check results. With
500 tables these questions are three quarters of the time of a query for all checks. Unless `dagster.yaml` names a
storage, the instance uses `dredge.orchestration.storage`, which stores events in an eighth of the processor time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._serdes import ConfigurableClassData


class FleetInstance(dg.DagsterInstance):
    """Dagster instance that asks its storage only once whether it has the table of check results."""

    _support: Any = None

    @classmethod
    def config_schema(cls) -> Mapping[str, Any]:
        """Return the settings of `dagster.yaml` beyond Dagster's own: there are none."""
        return {}

    @classmethod
    def config_defaults(cls, base_dir: str) -> Mapping[str, ConfigurableClassData | None]:
        """Return Dagster's own defaults, with the SQLite storage of this package instead of Dagster's.

        Args:
            base_dir: folder of the instance.
        """
        storage = ConfigurableClassData(
            "dredge.orchestration.storage", "FleetStorage", json.dumps({"base_dir": base_dir})
        )
        return {**InstanceRef.config_defaults(base_dir), "storage": storage}

    def get_asset_check_support(self) -> Any:
        """Return whether the storage can keep check results; a missing table is looked for again at each call."""
        if self._support is not None:
            return self._support
        support = super().get_asset_check_support()
        if support.value == "SUPPORTED":
            self._support = support
        return support
