"""`PaimonWarehouse`: the platform as a Dagster component, for a project with definitions of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal

import dagster as dg
from dagster.components import Scaffolder, ScaffoldRequest, scaffold_component
from pydantic import BaseModel, Field

from dredge.orchestration.definitions import build_definitions, pause_garbage_collector
from dredge.platform_core.policies.policy_files import POLICIES_VARIABLE
from dredge.platform_core.resources.spark_resource import CONFIG_VARIABLE, RUNNER_VARIABLE, flat_spark_config
from dredge.platform_core.resources.warehouse import CATALOG_VARIABLE, WAREHOUSE_VARIABLE
from lsm_core.errors import InvalidOption


class WarehouseParameters(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    warehouse: str = Field(
        "{{ env.DREDGE_WAREHOUSE }}", description="location of the tables: a folder or an address of an object store"
    )


class WarehouseScaffolder(Scaffolder[WarehouseParameters]):
    """Scaffolder of a ``defs.yaml`` that names the warehouse, by default through the environment."""

    @classmethod
    def get_scaffold_params(cls) -> type[WarehouseParameters]:
        """Return the class of the parameters that the command line accepts."""
        return WarehouseParameters

    def scaffold(self, request: ScaffoldRequest[WarehouseParameters]) -> None:
        """Write the file ``defs.yaml``."""
        scaffold_component(request, {"warehouse": request.params.warehouse})


@dg.scaffold_with(WarehouseScaffolder)
class PaimonWarehouse(dg.Component, dg.Model, dg.Resolvable):
    """Maintains all Apache Paimon tables of a warehouse: compaction, retention, checks and health.

    Use at most one component per code location. Its settings are passed to ticks, runs and checks through environment
    variables.
    """

    warehouse: str = Field(
        description=(
            "location of the tables: a folder (relative paths start at the project) or an address of an object store, "
            "whose keys come from the environment"
        ),
        examples=["/data/warehouse", "s3://lake/warehouse"],
    )
    catalog_options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="options of the catalog (a JDBC catalog, locks); no secrets"
    )
    policies: str = Field("", description="YAML file of policies; a relative path starts at the folder of defs.yaml")
    runner: Literal["spark", "local", "pipes"] = Field(
        "spark",
        description=(
            "runner of bucket tasks: on Spark, in the run's own process (without Java), or by a program that "
            "DREDGE_SPARK_SUBMIT starts"
        ),
    )
    spark_config: dict[str, Any] = Field(
        default_factory=dict,
        description="settings of Spark, as dagster-pyspark's resources take them, flat or nested; no secrets",
        examples=[{"spark.driver.memory": "4g"}],
    )
    settings: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="other variables of the platform, like DREDGE_SENSOR_SECONDS"
    )
    executor: bool = Field(
        default=True,
        description="true: one process per run; false: the project's own executor (a code location has only one)",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the platform's definitions over the warehouse.

        Raises:
            InvalidOption: a setting is invalid, or is not a variable of the platform.
        """
        unknown = next((name for name in self.settings if not name.startswith("DREDGE_")), None)
        if unknown is not None:
            raise InvalidOption("settings", unknown, "a variable of the platform (DREDGE_...)")
        path = self.warehouse if "://" in self.warehouse else str(context.project_root / self.warehouse)
        variables = {WAREHOUSE_VARIABLE: path, RUNNER_VARIABLE: self.runner, **_as_texts(self.settings)}
        if self.catalog_options:
            variables[CATALOG_VARIABLE] = json.dumps(_as_texts(self.catalog_options))
        if self.spark_config:
            variables[CONFIG_VARIABLE] = json.dumps(flat_spark_config(self.spark_config))
        if self.policies:
            variables[POLICIES_VARIABLE] = str(context.path / self.policies)
        os.environ.update(variables)
        with pause_garbage_collector():
            return build_definitions(executor=dg.in_process_executor if self.executor else None)


def _as_texts(values: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Convert YAML values (numbers, true and false) to texts for environment variables."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
