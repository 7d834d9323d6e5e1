"""Catalog for table names that are passed to functions of `lsm_core.spark` without a catalog."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from lsm_core.errors import InvalidOption
from lsm_core.options import parse_catalog_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lsm_core.table import Catalog

WAREHOUSE_SETTING: Final = "spark.dredge.warehouse"
"""The session's setting that names the warehouse."""
_WAREHOUSE_VARIABLE: Final = "DREDGE_WAREHOUSE"
_CATALOG_VARIABLE: Final = "DREDGE_CATALOG_OPTIONS"


def catalog_of_session(spark: SparkSession | None, catalog: Catalog | str | None = None) -> Catalog:
    """Return the catalog that a call uses for its table names.

    Args:
        spark: The session, or None without one.
        catalog: A catalog, or the warehouse's path; None for the session's setting `spark.dredge.warehouse`, else the
            environment's DREDGE_WAREHOUSE. A catalog of a path has the options of DREDGE_CATALOG_OPTIONS.

    Returns:
        The catalog.

    Raises:
        InvalidOption: No warehouse is named.
    """
    from lsm_core.table import Catalog  # not at the top: writer tasks import this module, and need no facade

    if isinstance(catalog, Catalog):
        return catalog
    named = catalog or (spark and spark.conf.get(WAREHOUSE_SETTING, None)) or os.environ.get(_WAREHOUSE_VARIABLE)
    if not named:
        accepted = f"the warehouse's path: pass catalog=, or set {WAREHOUSE_SETTING} or {_WAREHOUSE_VARIABLE}"
        raise InvalidOption("catalog", None, accepted)
    return Catalog(str(named), parse_catalog_options(os.environ.get(_CATALOG_VARIABLE, ""), _CATALOG_VARIABLE))


def table_of(spark: SparkSession | None, table: Any) -> Any:
    """Return a table or system table by its name ("db.t", "db.t$branch_dev", "db.t$files").

    Args:
        spark: The session whose setting `spark.dredge.warehouse` names the warehouse. Without the setting or without a
            session (None), the environment variable DREDGE_WAREHOUSE names it.
        table: The name; an argument that is not text is returned unchanged.

    Raises:
        InvalidOption: The argument is a name, and no setting names a warehouse.
        TableNotFound: The table does not exist.
    """
    if not isinstance(table, str):
        return table
    try:
        catalog = catalog_of_session(spark)
    except InvalidOption as error:
        accepted = (
            f"a Table, or a name where {WAREHOUSE_SETTING} of the session or {_WAREHOUSE_VARIABLE} names the warehouse"
        )
        raise InvalidOption("table", table, accepted) from error
    return catalog.table(table)
