"""Query execution by DataFusion in this process, for machines without Spark and tables that one machine can read.

Each table of a query becomes a dataset. The dataset reads only the columns that the query names and only the files that
the query's filters can match. DataFusion pushes further filters down, which also prune files; rows are streamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from sqlglot import exp

from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.metadata import snapshots
from lsm_core.sql.invalid_statements import USE_SPARK, engine_error
from lsm_core.sql.local_dialect import BINARY_LENGTH, SESSION_ZONE, Columns, local_text, output_names, parse_tree
from lsm_core.sql.queries import Query, TableRead, plan_query
from lsm_core.sql.reading import all_rows_of
from lsm_core.table import Catalog
from lsm_core.table.system.reader import ReadOnlyTable

if TYPE_CHECKING:
    import datafusion

    from lsm_core.maintenance.action import MaintenancePlan
    from lsm_core.sql.inserting import InsertPlan

_UNLIMITED: Final = (1 << 63) - 1
_OPENED: Final = 5
"""Maximum attempts to open the tables of a query such that all mentions of a table share one snapshot."""
_PREFIX: Final = "dredge_table_"


class LocalEngine:
    """Query engine over the tables of a catalog, by DataFusion."""

    def answer(self, catalog: Catalog, text: str) -> pa.RecordBatchReader:
        """Return the rows of a query as a stream.

        Args:
            catalog: catalog of the tables.
            text: one query in Spark SQL.

        Returns:
            The rows. Each table is read at its newest snapshot at the time of this call, or at the version that the
                query names.

        Raises:
            InvalidOption: the text cannot be parsed, or names a column that does not exist.
            UnsupportedFeature: DataFusion lacks a part of the query, or its result differs from Spark's.
            TableNotFound: a table of the query does not exist.
        """
        return answer_query(plan_query(catalog, text))

    def insert(self, catalog: Catalog, text: str, plan: InsertPlan) -> int | None:
        """Write the rows of a query in one commit.

        Args:
            catalog: catalog of the tables.
            text: one query in Spark SQL.
            plan: destination of the rows.

        Returns:
            The snapshot id, or None for no rows.

        Raises:
            DredgeError: an error of :meth:`answer` or `Table.write`; nothing is committed.
        """
        from lsm_core.sql.inserting import write_stream  # queries start faster without the write path

        return write_stream(self.answer(catalog, text), plan)

    def change_runs(self) -> None:
        """Return None: there are no distributed tasks, so UPDATE, DELETE and MERGE change rows in this process."""

    def choose_runner(self, plan: MaintenancePlan) -> None:
        """Return None: there are no distributed tasks, so the compaction after a commit runs in this process."""


def answer_query(query: Query) -> pa.RecordBatchReader:
    """Return the rows of a query whose tables are open. Raises the errors of `LocalEngine.answer`."""
    names = [f"{_PREFIX}{number}" for number in range(len(query.reads))]
    tables = dict(zip(names, _open_tables(query), strict=True))
    tree = parse_tree(query.with_views(names))
    if not isinstance(tree, exp.Query):
        raise UnsupportedFeature("statements other than one query (SELECT)")
    columns = Columns.of([table.own_schema for table in tables.values()])
    output = output_names(tree)
    context = new_context()
    for name, table in tables.items():
        register(context, name, table)
    return run_query(context, local_text(tree, columns), columns, output, list(tables.values()), query.text)


def first_rows(rows: pa.RecordBatchReader, most: int) -> pa.Table:
    """Return the first rows of a stream without reading further batches."""
    batches: list[pa.RecordBatch] = []
    missing = most
    while missing > 0 and (batch := next(iter(rows), None)) is not None:
        batches.append(batch.slice(0, missing))
        missing -= batch.num_rows
    return pa.Table.from_batches(batches, schema=rows.schema)


def _open_tables(query: Query) -> list[TableDataset]:
    """Return the opened tables of a query, in the order of its text.

    If the query mentions a table several times without a version, all mentions read the same snapshot. All tables are
    opened again if a concurrent commit adds a snapshot meanwhile. The last of `_OPENED` attempts selects the snapshot
    by its id instead. Earlier attempts do not, because a snapshot selected by id is read with its own schema, which may
    be older than the table's current schema.
    """
    newest = [read.table for read in query.reads if not read.version and not isinstance(read.table, ReadOnlyTable)]
    counts = Counter(table.name for table in newest)
    repeated = {table.name: table.store for table in newest if counts[table.name] > 1}
    for attempt in range(_OPENED):
        before = {name: snapshots.latest_id(store) for name, store in repeated.items()}
        named = before if attempt + 1 == _OPENED else {}
        tables = [TableDataset(read, named.get(read.table.name)) for read in query.reads]
        if before == {name: snapshots.latest_id(store) for name, store in repeated.items()}:
            break
    return tables


def new_context(partitions: int = 0) -> datafusion.SessionContext:
    """Return an empty context that parses literals and times as Spark does.

    Args:
        partitions: threads per query; 0 for one per core.
    """
    from datafusion import SessionConfig, SessionContext, udf

    settings = {
        "datafusion.sql_parser.parse_float_as_decimal": "true",
        "datafusion.execution.time_zone": SESSION_ZONE,
        "datafusion.catalog.information_schema": "false",
    }
    config = SessionConfig()
    for key, value in settings.items():
        config = config.set(key, value)
    context = SessionContext(config.with_target_partitions(partitions) if partitions else config)
    context.register_udf(udf(_count_bytes, [pa.binary()], pa.int32(), "immutable", BINARY_LENGTH))
    return context


def _count_bytes(values: pa.Array) -> pa.Array:
    """Return the number of bytes of each binary value (INT, as in Spark)."""
    return pc.binary_length(values).cast(pa.int32())


def register(context: datafusion.SessionContext, name: str, table: TableDataset) -> None:
    """Register a table in a context.

    NaN is a number for DataFusion and Spark, but not for Arrow. So DataFusion must not push row filters to a table with
    floating point columns: a view with an unreachable LIMIT prevents the pushdown. The same view is used for tables
    whose columns are not in lower case. The filters of `plan_query` are always pushed down.
    """
    if table.respelled or any(pa.types.is_floating(column.type) for column in table.schema):
        context.register_dataset(f"{name}_rows", table)
        rows = all_rows_of(f'"{name}_rows"')
        context.register_view(name, context.sql(f"{rows} LIMIT {_UNLIMITED}"))
    else:
        context.register_dataset(name, table)


def run_query(
    context: datafusion.SessionContext,
    text: str,
    columns: Columns,
    output: list[str | None] | None = None,
    tables: Sequence[TableDataset] = (),
    shown: str = "",
) -> pa.RecordBatchReader:
    """Run a DataFusion query.

    Args:
        context: context of the tables.
        text: the query, as `local_text` returns it.
        columns: columns of the tables, for the output names.
        output: output column names, with None for each `*`; None for the tables' own names.
        tables: tables of the context; a read error of a table is raised unchanged.
        shown: text of the statement, for errors.

    Returns:
        The rows as a stream, with Arrow types that tables support.

    Raises:
        InvalidOption: a column does not exist, or the query cannot be planned.
        UnsupportedFeature: a function does not exist.
    """
    try:
        frame = context.sql(text)
        planned = frame.schema()
        # Not as one Arrow stream: batches of some expressions (CASE) hold texts as views, unlike the schema of
        # the stream.
        rows = frame.execute_stream()
    except Exception as error:
        raise _own_error(error, shown or text, tables, columns) from error
    names = _names(planned.names, columns, output)
    kinds = [_plain_type(field.type) for field in planned]
    schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for part in rows:
                batch = part.to_pyarrow()
                arrays = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except Exception as error:
            raise _own_error(error, shown or text, tables, columns) from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def _names(plan_names: list[str], columns: Columns, output: list[str | None] | None) -> list[str]:
    plain = [columns.spelling.get(name, name) for name in plan_names]
    if output is None:
        return plain
    stars = output.count(None)
    if not stars and len(output) == len(plan_names):
        return [str(name) for name in output]
    if stars != 1:
        return plain
    place = output.index(None)
    after = len(output) - place - 1
    return [*map(str, output[:place]), *plain[place : len(plain) - after], *map(str, output[place + 1 :])]


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the column type that tables use in place of a view type or an unsigned type."""
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    return kind


def _own_error(error: Exception, text: str, tables: Sequence[TableDataset], columns: Columns) -> DredgeError:
    """Return the DredgeError to raise for an error of DataFusion.

    If the read of a table failed, this is the error of that read. Otherwise it is DataFusion's error, converted.
    """
    for table in tables:
        if table.failure is not None:
            return table.failure
    known = [name for table in tables for name in table.known] or columns.spelling.values()
    return error if isinstance(error, DredgeError) else engine_error(error, text, known)


class TableDataset(pads.Dataset):
    """One table of a query as a dataset for DataFusion, with column names in lower case.

    Every read applies the filters of the query's WHERE clause that were pushed down to the table.

    Attributes:
        own_schema: Arrow schema of the columns that the query can need, in the table's own spelling.
        respelled: whether the lower-case names differ from the column names of the table.
        known: names of all columns of the table, for errors.
        failure: error of the last read of the table, or None.
    """

    def __init__(self, read: TableRead, snapshot_id: int | None = None) -> None:
        """Open the version of a table that a query reads.

        Args:
            read: the table in the query.
            snapshot_id: snapshot to read if the query names no version; None for the newest.

        Raises:
            DredgeError: an error of `ReadableTable.scan`.
        """
        table = read.table
        chosen = read.snapshot_id if isinstance(table, ReadOnlyTable) else None if read.version else snapshot_id
        self._scan = table.scan(columns=list(read.columns), filter=list(read.tests) or None, snapshot_id=chosen)
        schema = table.schema_at(chosen) if isinstance(table, ReadOnlyTable) else table.schema
        self.known: tuple[str, ...] = schema.field_names
        self._counts_rows = not isinstance(table, ReadOnlyTable)
        self.failure: DredgeError | None = None
        self.own_schema: pa.Schema = self._scan.schema
        names = [name.lower() for name in self.own_schema.names]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise UnsupportedFeature(f"two columns named {double}, differing only in case, in {USE_SPARK}", table.name)
        self.respelled = names != self.own_schema.names
        self._own_names = dict(zip(names, self.own_schema.names, strict=True))
        self._schema = pa.schema([field.with_name(field.name.lower()) for field in self.own_schema])

    def __reduce__(self) -> Any:
        raise TypeError("a table of a query cannot be pickled")

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema, names in lower case."""
        return self._schema

    def get_fragments(self, filter: Any = None) -> Iterator[TableDataset]:  # noqa: A002  (pyarrow's own name)
        """Return the dataset itself as its only fragment."""
        del filter
        return iter([self])

    def scanner(
        self,
        schema: Any = None,
        columns: Any = None,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> pads.Scanner:
        """Return a scanner of the columns and rows that DataFusion requests."""
        del schema
        names = self._schema.names if columns is None else list(columns)
        result = pa.schema([self._schema.field(name) for name in names])
        # Rows of system tables exist only by their columns, so count(*) reads one of them.
        read = names or ([] if self._counts_rows else self._schema.names[:1])

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in self._scan.to_reader([self._own_names[name] for name in read], filter):
                    # Without columns, as for count(*), only `select` preserves the number of rows.
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=result) if names else batch.select([])
            except DredgeError as error:
                self.failure = error
                raise

        return pads.Scanner.from_batches(batches(), schema=result)
