"""Queries and views on Spark.

Each table of a query becomes a temporary view of the columns and rows that the query can need. Spark plans a Python
data source once per frame, and a view is a frame with a name. A view of `create_view` therefore remembers its
arguments, and `refresh` plans it again with the newest snapshot. `query_tables` plans the tables of a query at each
call.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lsm_core.errors import InvalidOption
from lsm_core.metadata import snapshots
from lsm_core.spark.session_catalog import table_of
from lsm_core.spark.spark_read import explain_read, read_table
from lsm_core.spark.spark_tasks import translate_errors
from lsm_core.sql.queries import Query, plan_query
from lsm_core.table import Table
from lsm_core.table.system.reader import ReadOnlyTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lsm_core.table import Catalog

_PLANNED: Final = 5
"""Maximum number of times that the tables of a query are planned to get one snapshot for all mentions."""


def explain_query(query: Query) -> list[str]:
    """Return lines of text that explain how each table of a query would be read (`explain_read`), without Spark."""
    lines: list[str] = []
    for read in query.reads:
        if isinstance(read.table, ReadOnlyTable):
            lines.append(f"{read.table.name}: a system table, columns {', '.join(read.columns)}")
        else:
            lines += explain_read(read.table, columns=read.columns, filter=list(read.tests) or None).lines()
    return lines or ["no table is read"]


@contextmanager
def open_answer(spark: SparkSession, query: Query) -> Iterator[DataFrame]:
    """Yield the rows of ``query`` as a DataFrame to collect inside the block; afterwards drop its temporary views.

    Raises SparkFailed if Spark refuses the query, and DredgeError if a table of the query cannot be read.
    """
    view_names: list[str] = []
    with translate_errors(f"answering the query {query.shown}"), _spark_logs_silent():
        try:
            yield _answer(spark, query, view_names)
        finally:
            for name in view_names:
                spark.catalog.dropTempView(name)


def frame_query(spark: SparkSession, query: Query) -> DataFrame:
    """Return the rows of a query as a frame that outlives this call.

    Args:
        spark: The session. A Connect session keeps the temporary views of the query until the session ends, because
            frames of Connect resolve views only when a frame is used.
        query: The query; its tables are planned here.

    Returns:
        The rows.

    Raises:
        SparkFailed: Spark refuses the query.
        DredgeError: A table of the query cannot be read.
    """
    view_names: list[str] = []
    classic = False
    with translate_errors(f"planning the query {query.shown}"):
        try:
            frame = _answer(spark, query, view_names)
            classic = hasattr(frame, "_jdf")
            return frame
        finally:
            for name in view_names if classic else ():
                spark.catalog.dropTempView(name)


def _answer(spark: SparkSession, query: Query, view_names: list[str]) -> DataFrame:
    """Return the rows of ``query``; add the names of the temporary views made for its tables to ``view_names``."""
    prefix = f"dredge_{uuid.uuid4().hex[:12]}"
    names = [f"{prefix}_{number}" for number in range(len(query.reads))]
    for name, frame in zip(names, _frames(spark, query), strict=True):
        frame.createOrReplaceTempView(name)
        view_names.append(name)
    return spark.sql(query.with_views(names))


def _frames(spark: SparkSession, query: Query) -> list[DataFrame]:
    """Return a frame per mention of a table in the query; mentions of one table without a version share a snapshot.

    The newest version is read with the current schema, a snapshot chosen by its id with the schema of that snapshot.
    If a commit arrives while the tables are planned, they are planned again. The last attempt chooses snapshots by id.
    """
    newest = [read.table for read in query.reads if not read.version and not isinstance(read.table, ReadOnlyTable)]
    counts = Counter(table.name for table in newest)
    repeated = {table.name: table.store for table in newest if counts[table.name] > 1}
    for attempt in range(_PLANNED):
        before = {name: snapshots.latest_id(store) for name, store in repeated.items()}
        named = before if attempt + 1 == _PLANNED else {}
        frames = [
            read_table(
                spark,
                read.table,
                columns=read.columns,
                filter=list(read.tests) or None,
                snapshot_id=read.snapshot_id if read.version else named.get(read.table.name, read.snapshot_id),
            )
            for read in query.reads
        ]
        if named or before == {name: snapshots.latest_id(store) for name, store in repeated.items()}:
            break
    return frames


@contextmanager
def _spark_logs_silent() -> Iterator[None]:
    """Silence the log of Spark's Python side, which logs a query's error with the JVM's whole stack.

    The error itself is raised and describes the problem.
    """
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


# -- views that can be planned again -----------------------------------------------------------------------------------


_VIEWS: Final[WeakKeyDictionary[Any, dict[str, tuple[Any, dict[str, Any]]]]] = WeakKeyDictionary()
"""For each session its views by name in lower case: the table, and the arguments of `read_table`."""


def create_view(spark: SparkSession, name: str, table: Any, **how: Any) -> None:
    """Create a temporary view of a table; `refresh` updates the view.

    Until `refresh` is called, the view has the rows of the newest snapshot at this call, or of the version in ``how``.

    Args:
        spark: The session that the view belongs to.
        name: Name of the view; an existing view of this name is replaced.
        table: A table or a system table, or its name.
        how: Arguments of `read_table`: ``columns``, ``filter``, a version.

    Raises:
        DredgeError: The table cannot be read with these arguments.
        SparkFailed: Spark refuses the name.
    """
    table = table_of(spark, table)
    frame = read_table(spark, table, **how)
    with translate_errors(f"making the view {name}"):
        frame.createOrReplaceTempView(name)
    _VIEWS.setdefault(spark, {})[name.lower()] = (table, how)


def refresh(spark: SparkSession, name: str | None = None) -> None:
    """Plan the views of `create_view` again, with the newest snapshot and schema of their tables.

    Existing frames, including those made from the view, do not change. Spark's `REFRESH TABLE` does not plan a table
    again.

    Args:
        spark: The session that the views belong to.
        name: Name of one view; None for all views of the session.

    Raises:
        InvalidOption: The session has no view of that name by `create_view`.
        DredgeError: The table of a view cannot be read; this view and those after it stay as they were.
    """
    views = _VIEWS.get(spark, {})
    if name is not None and name.lower() not in views:
        accepted = f"a view of create_view(spark, name, table): {', '.join(sorted(views)) or 'there is none'}"
        raise InvalidOption("name", name, accepted)
    for view in list(views) if name is None else [name.lower()]:
        table, how = views[view]
        create_view(spark, view, table.refresh() if isinstance(table, Table) else table, **how)


def query_tables(spark: SparkSession, catalog: Catalog, text: str) -> DataFrame:
    """Return the rows of a query over a catalog's tables, planned on their newest snapshots at this call.

    All mentions of one table have one snapshot. Only the columns and files that the query needs are read.

    Args:
        spark: The session that answers.
        catalog: Catalog of the tables, which the query names as "database.table".
        text: One SELECT, as for `dredge sql`.

    Returns:
        The rows of the query. The DataFrame keeps its snapshots; call this function again to read newer snapshots.

    Raises:
        InvalidOption: The text cannot be parsed.
        UnsupportedFeature: The text is a statement other than a query.
        TableNotFound: A table of the query does not exist.
        SparkFailed: Spark refuses the query.
    """
    return frame_query(spark, plan_query(catalog, text))
