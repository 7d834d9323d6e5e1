"""Views and queries over tables that can be planned again, because a Spark frame keeps the snapshot of its plan.

Spark plans a Python data source once per frame, and a view is a frame with a name. A view of `create_view` therefore
remembers its arguments, and `refresh` plans it again. `query_tables` plans the tables of a query at each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lsm_core.errors import InvalidOption
from lsm_core.spark.session_catalog import table_of
from lsm_core.spark.spark_read import read_table
from lsm_core.spark.spark_tasks import translated
from lsm_core.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lsm_core.table import Catalog

_VIEWS: Final[WeakKeyDictionary[Any, dict[str, tuple[Any, dict[str, Any]]]]] = WeakKeyDictionary()
"""For each session its views by name in lower case: the table, and the arguments of `read_table`."""


def create_view(spark: SparkSession, name: str, table: Any, **how: Any) -> None:
    """Make a temporary view of a table, which `refresh` plans again.

    Until then the view has the rows of the newest snapshot at this call, or of the version that ``how`` names.

    Args:
        spark: The session that the view belongs to.
        name: The view's name; one of that name is replaced.
        table: A table or a system table, or its name (as `read_table` takes it).
        how: Arguments of `read_table`: ``columns``, ``filter``, a version.

    Raises:
        DredgeError: As `read_table`.
        SparkFailed: Spark refuses the name.
    """
    table = table_of(spark, table)
    frame = read_table(spark, table, **how)
    with translated(f"making the view {name}"):
        frame.createOrReplaceTempView(name)
    _VIEWS.setdefault(spark, {})[name.lower()] = (table, how)


def refresh(spark: SparkSession, name: str | None = None) -> None:
    """Plan the views of `create_view` again, with the newest snapshot and schema of their tables.

    Existing frames, including those made from the view, do not change. Spark's `REFRESH TABLE` does not plan a table
    again.

    Args:
        spark: The session that the views belong to.
        name: One view; None for all of the session.

    Raises:
        InvalidOption: The session has no view of that name by `create_view`.
        DredgeError: As `read_table`; this view and those after it stay as they were.
    """
    views = _VIEWS.get(spark, {})
    if name is not None and name.lower() not in views:
        accepted = f"a view of create_view(spark, name, table): {', '.join(sorted(views)) or 'there is none'}"
        raise InvalidOption("name", name, accepted)
    for view in list(views) if name is None else [name.lower()]:
        table, how = views[view]
        create_view(spark, view, table.refresh() if isinstance(table, Table) else table, **how)


def query_tables(spark: SparkSession, catalog: Catalog, text: str) -> DataFrame:
    """Return the answer of a query over a catalog's tables, planned on their newest snapshots at this call.

    All mentions of one table have one snapshot. Only the columns and files that the query needs are read.

    Args:
        spark: The session that answers.
        catalog: Where tables are looked up by "database.table".
        text: One SELECT, as `dredge sql` takes it.

    Returns:
        The answer. It keeps its snapshots: call again for newer ones.

    Raises:
        InvalidOption: The text cannot be parsed.
        UnsupportedFeature: The text is another statement.
        TableNotFound: A table of the query is not there.
        SparkFailed: Spark refuses the query.
    """
    from lsm_core.spark.spark_queries import framed
    from lsm_core.sql.queries import planned_query

    return framed(spark, planned_query(catalog, text))
