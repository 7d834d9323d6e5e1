"""`PaimonWarehouse`: the platform as a component of Dagster, for a project that has definitions of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Literal

import dagster as dg
from dagster.components import Scaffolder, ScaffoldRequest, scaffold_component
from pydantic import BaseModel, Field

from lsm_core.errors import InvalidOption
from orchestration.definitions import build_definitions, collector_at_rest
from orchestration.policies.policy_files import POLICIES_VARIABLE
from orchestration.resources.spark_resource import CONFIG_VARIABLE, RUNNER_VARIABLE, flat_spark_config
from orchestration.resources.warehouse import CATALOG_VARIABLE, WAREHOUSE_VARIABLE


class WarehouseParameters(BaseModel):
    """What ``dg scaffold defs`` asks for."""

    warehouse: str = Field(
        "{{ env.DREDGE_WAREHOUSE }}", description="where the tables lie: a folder or an object store's address"
    )


class WarehouseScaffolder(Scaffolder[WarehouseParameters]):
    """Writes a ``defs.yaml`` that names the warehouse, in the environment if nowhere else."""

    @classmethod
    def get_scaffold_params(cls) -> type[WarehouseParameters]:
        """Return the parameters that the command line takes."""
        return WarehouseParameters

    def scaffold(self, request: ScaffoldRequest[WarehouseParameters]) -> None:
        """Write the file."""
        scaffold_component(request, {"warehouse": request.params.warehouse})


@dg.scaffold_with(WarehouseScaffolder)
class PaimonWarehouse(dg.Component, dg.Model, dg.Resolvable):
    """Looks after all tables of a warehouse of Apache Paimon tables: compaction, retention, checks, health.

    One a code location. What it is told becomes variables of this process's environment, where ticks, runs and checks look.
    """

    warehouse: str = Field(
        description="where the tables lie: a folder (a relative one below the project's) or an object store's address, whose keys come from the environment",
        examples=["/data/warehouse", "s3://lake/warehouse"],
    )
    catalog_options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="options of the catalog (a JDBC catalog, locks); no secrets"
    )
    policies: str = Field(
        "", description="a YAML file of policies; a relative name counts from the folder of defs.yaml"
    )
    runner: Literal["spark", "local", "pipes"] = Field(
        "spark",
        description="where bucket tasks run: on Spark, in the run's own process, without Java, or by a program that the setting DREDGE_SPARK_SUBMIT starts",
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
        description="each run in one process; false where the project brings an executor of its own, of which a code location takes one",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the platform's definitions over the warehouse. Raises ``InvalidOption`` as `build_definitions`, and for a setting that is none of the platform's."""
        strange = next((name for name in self.settings if not name.startswith("DREDGE_")), None)
        if strange is not None:
            raise InvalidOption("settings", strange, "a variable of the platform (DREDGE_...)")
        place = self.warehouse if "://" in self.warehouse else str(context.project_root / self.warehouse)
        told = {WAREHOUSE_VARIABLE: place, RUNNER_VARIABLE: self.runner, **_texts(self.settings)}
        if self.catalog_options:
            told[CATALOG_VARIABLE] = json.dumps(_texts(self.catalog_options))
        if self.spark_config:
            told[CONFIG_VARIABLE] = json.dumps(flat_spark_config(self.spark_config))
        if self.policies:
            told[POLICIES_VARIABLE] = str(context.path / self.policies)
        os.environ.update(told)
        with collector_at_rest():
            return build_definitions(executor=dg.in_process_executor if self.executor else None)


def _texts(values: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """What YAML and Dagster's templates took for numbers and truth values, as variables have it."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


__all__ = ["PaimonWarehouse"]
