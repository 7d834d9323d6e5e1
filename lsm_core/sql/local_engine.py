"""Queries answered by DataFusion in this process: for machines without Spark, and tables that one machine reads.

Each table that a query names becomes a dataset: it reads only the columns that the query names, and of its files those that the tests of the
query can match. DataFusion hands more tests on, which decide what is read, too; rows stream through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as pads
from sqlglot import exp

from lsm_core.errors import DredgeError, InvalidOption, UnsupportedFeature
from lsm_core.metadata import snapshots
from lsm_core.sql.local_dialect import USE_SPARK, Columns, local_text, output_names, parsed
from lsm_core.sql.queries import Query, TableRead, planned_query
from lsm_core.sql.reading import all_rows_of
from lsm_core.table import Catalog
from lsm_core.table.system.reader import ReadOnlyTable

if TYPE_CHECKING:
    import datafusion

    from lsm_core.sql.inserting import InsertPlan

_UNLIMITED: Final = (1 << 63) - 1
_OPENED: Final = 5
"""How often the tables of a query are opened at most, for all mentions of a table to have one snapshot."""
_PREFIX: Final = "dredge_table_"


class LocalEngine:
    """Answers queries over a catalog's tables by DataFusion."""

    def answer(self, catalog: Catalog, text: str) -> pa.RecordBatchReader:
        """Return the answer of a query as a stream.

        Args:
            catalog: catalog of the tables.
            text: one query in Spark SQL.

        Returns:
            The rows; each table is read at the snapshot that was the newest at this call, or at the version that the query names.

        Raises:
            InvalidOption: the text cannot be parsed, or names a column that is not there.
            UnsupportedFeature: the query needs what DataFusion lacks or answers in another way than Spark.
            TableNotFound: a table of the query is not there.
        """
        return answered(planned_query(catalog, text))

    def insert(self, catalog: Catalog, text: str, plan: InsertPlan) -> int | None:
        """Write the answer of a query in one commit.

        Args:
            catalog: catalog of the tables.
            text: one query in Spark SQL.
            plan: where its rows go.

        Returns:
            The id of the snapshot, None for no rows.

        Raises:
            DredgeError: as :meth:`answer` and `Table.write`; nothing is committed.
        """
        from lsm_core.sql.inserting import write_stream  # a query starts without what writes

        return write_stream(self.answer(catalog, text), plan)

    def change_runs(self) -> None:
        """Return None: this process changes the rows of statements."""


def answered(query: Query) -> pa.RecordBatchReader:
    """Return the answer of a query whose tables are open. Raises as `LocalEngine.answer`."""
    names = [f"{_PREFIX}{number}" for number in range(len(query.reads))]
    tables = dict(zip(names, _opened(query), strict=True))
    tree = parsed(query.with_views(names))
    if not isinstance(tree, exp.Query):
        raise UnsupportedFeature("statements other than one query (SELECT)")
    columns = Columns.of([table.own_schema for table in tables.values()])
    wanted = output_names(tree)
    context = new_context()
    for name, table in tables.items():
        register(context, name, table)
    return run_query(context, local_text(tree, columns), columns, wanted, list(tables.values()), query.text)


def first_rows(rows: pa.RecordBatchReader, most: int) -> pa.Table:
    """Return the first rows of a stream, and read no more of it than they need."""
    batches: list[pa.RecordBatch] = []
    left = most
    while left > 0 and (batch := next(iter(rows), None)) is not None:
        batches.append(batch.slice(0, left))
        left -= batch.num_rows
    return pa.Table.from_batches(batches, schema=rows.schema)


def _opened(query: Query) -> list[TableDataset]:
    """Open the mentions of tables: all mentions of one table without a version have one snapshot.

    The newest version is read with the schema of today, a snapshot that is named with that of its time. So the tables are opened again
    where another commit came meanwhile, and snapshots are named where commits come all the time.
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
    """Return an empty context that reads literals and times as Spark does; ``partitions``: threads of a query, 0 for one a core."""
    from datafusion import SessionConfig, SessionContext

    settings = {
        "datafusion.sql_parser.parse_float_as_decimal": "true",
        "datafusion.execution.time_zone": "UTC",
        "datafusion.catalog.information_schema": "false",
    }
    config = SessionConfig()
    for key, value in settings.items():
        config = config.set(key, value)
    return SessionContext(config.with_target_partitions(partitions) if partitions else config)


def register(context: datafusion.SessionContext, name: str, table: TableDataset) -> None:
    """Let queries name a table.

    NaN is a number for DataFusion and Spark, and none for Arrow. So no test on the rows of a table with floating point columns is handed
    on by DataFusion: a limit that nothing reaches stands in between. So it does where columns are spelled in another case. The tests of `planned_query` are pushed all the same.
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
    wanted: list[str | None] | None = None,
    tables: Sequence[TableDataset] = (),
    shown: str = "",
) -> pa.RecordBatchReader:
    """Run a query of DataFusion.

    Args:
        context: its tables.
        text: the query, as `local_text` returns it.
        columns: columns of the tables, for the names of the answer.
        wanted: names of the answer's columns, None for each `*`; None for the tables' own names.
        tables: tables of the context, whose errors are raised as they are.
        shown: text of the statement, for errors.

    Returns:
        The answer as a stream, with Arrow types that tables can have.

    Raises:
        InvalidOption: a column is not there, or the query cannot be planned.
        UnsupportedFeature: a function is not there.
    """
    try:
        frame = context.sql(text)
        planned = frame.schema()
        # Not as one Arrow stream: batches of some expressions (CASE) have texts as views, and the schema of the stream says otherwise.
        rows = frame.execute_stream()
    except Exception as error:
        raise _own_error(error, shown or text, tables) from error
    names = _names(planned.names, columns, wanted)
    kinds = [_plain_type(field.type) for field in planned]
    schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for part in rows:
                batch = part.to_pyarrow()
                arrays = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except Exception as error:
            raise _own_error(error, shown or text, tables) from error

    return pa.RecordBatchReader.from_batches(schema, batches())


def _names(plan_names: list[str], columns: Columns, wanted: list[str | None] | None) -> list[str]:
    plain = [columns.spelling.get(name, name) for name in plan_names]
    if wanted is None:
        return plain
    stars = wanted.count(None)
    if not stars and len(wanted) == len(plan_names):
        return [str(name) for name in wanted]
    if stars != 1:
        return plain
    place = wanted.index(None)
    after = len(wanted) - place - 1
    return [*map(str, wanted[:place]), *plain[place : len(plain) - after], *map(str, wanted[place + 1 :])]


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that columns of tables have in place of a view's or an unsigned one."""
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    return kind


def _own_error(error: Exception, text: str, tables: Sequence[TableDataset]) -> DredgeError:
    """Return DataFusion's error as one of ours: that of a table's reader, where one failed."""
    for table in tables:
        if table.failure is not None:
            return table.failure
    if isinstance(error, DredgeError):
        return error
    message = " ".join(str(error).split()).replace(_PREFIX, "table ")
    if "Invalid function" in message:
        name = message.partition("Invalid function ")[2].partition(" Did")[0].strip(" .'")
        return UnsupportedFeature(f"the function {name}() in {USE_SPARK}")
    message = message.removeprefix("DataFusion error: ").removeprefix("Schema error: ")
    return InvalidOption("SQL", text, f"a query that can be answered: {message}")


class TableDataset(pads.Dataset):
    """One mention of a table as DataFusion reads it: columns in lower case, the tests of the query applied to all reads.

    Attributes:
        own_schema: Arrow schema of the columns that the query can need, as the table spells them.
        respelled: whether names differ from those of the table.
        failure: what reading the table failed with, or None.
    """

    def __init__(self, read: TableRead, snapshot_id: int | None = None) -> None:
        """Open the version of a table that a query reads.

        Args:
            read: the mention of the table.
            snapshot_id: snapshot to read where the query names no version; None for the newest.

        Raises:
            DredgeError: as `Readable.scan`.
        """
        table = read.table
        chosen = read.snapshot_id if isinstance(table, ReadOnlyTable) else None if read.version else snapshot_id
        self._scan = table.scan(columns=list(read.columns), filter=list(read.tests) or None, snapshot_id=chosen)
        self.failure: DredgeError | None = None
        self.own_schema: pa.Schema = self._scan.schema
        names = [name.lower() for name in self.own_schema.names]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise UnsupportedFeature(f"two columns called {double} but for their case in {USE_SPARK}", table.name)
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
        """Return the dataset itself as its one part."""
        del filter
        return iter([self])

    def scanner(self, schema: Any = None, columns: Any = None, filter: Any = None, **_: Any) -> pads.Scanner:  # noqa: A002
        """Return a scanner of the columns and rows that DataFusion asks for."""
        del schema
        wanted = self._schema.names if columns is None else list(columns)
        result = pa.schema([self._schema.field(name) for name in wanted])

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in self._scan.to_reader([self._own_names[name] for name in wanted], filter):
                    # Without columns, as for count(*), only `select` keeps the number of rows.
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=result) if wanted else batch.select([])
            except DredgeError as error:
                self.failure = error
                raise

        return pads.Scanner.from_batches(batches(), schema=result)


__all__ = ["LocalEngine", "TableDataset", "answered", "first_rows", "new_context", "register", "run_query"]
