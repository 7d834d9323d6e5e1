"""SQL for a session: procedures of maintenance (`call`), whose compactions are Spark jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lsm_core.errors import InvalidOption
from lsm_core.options import parse_catalog_options
from lsm_core.sql.procedures import CallResult, prepare_call
from lsm_core.table import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAREHOUSE_SETTING: Final = "spark.dredge.warehouse"
"""The session's setting that names the warehouse of `call`."""
_WAREHOUSE_VARIABLE: Final = "DREDGE_WAREHOUSE"
_CATALOG_VARIABLE: Final = "DREDGE_CATALOG_OPTIONS"


def call(
    spark: SparkSession,
    statement: str,
    *,
    catalog: Catalog | str | None = None,
    approved_by: str | None = None,
) -> CallResult:
    """Run a procedure by Paimon's name, arguments and defaults ("sys.compact(table => 'db.t')", also by position); compactions are Spark jobs.

    ``catalog``: a Catalog or the warehouse's path; default: the session's setting `WAREHOUSE_SETTING`, else the environment's
    DREDGE_WAREHOUSE (with DREDGE_CATALOG_OPTIONS). A true `dry_run` returns the plans and changes nothing. Raises InvalidOption naming a
    procedure or argument, and what planning and applying raise; DredgeError after the last of several steps for those that failed.
    """
    from lsm_core.spark.spark_maintenance import spark_runner

    prepared = prepare_call(_catalog_of(spark, catalog), statement)
    return prepared.apply(spark_runner(spark), approved_by)


def _catalog_of(spark: SparkSession, given: Catalog | str | None) -> Catalog:
    if isinstance(given, Catalog):
        return given
    named = given or spark.conf.get(WAREHOUSE_SETTING, None) or os.environ.get(_WAREHOUSE_VARIABLE)
    if not named:
        accepted = f"the warehouse's path: pass catalog=, or set {WAREHOUSE_SETTING} or {_WAREHOUSE_VARIABLE}"
        raise InvalidOption("catalog", None, accepted)
    return Catalog(str(named), parse_catalog_options(os.environ.get(_CATALOG_VARIABLE, ""), _CATALOG_VARIABLE))


__all__ = ["WAREHOUSE_SETTING", "call"]
