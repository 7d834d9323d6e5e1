"""Evaluation of a statement's expressions by DataFusion, over batches of the changed table and over subquery tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from sqlglot import exp

from lsm_core.arrays import one_array
from lsm_core.errors import InvalidData, TableNotFound, UnsupportedFeature
from lsm_core.metadata import snapshots
from lsm_core.read.fallback import OWN_BRANCH_ONLY
from lsm_core.read.scan import plan_version, to_batches
from lsm_core.read.table_versions import Version
from lsm_core.sql.column_types import quoted_name
from lsm_core.sql.local_dialect import Columns, local_text, parse_tree
from lsm_core.sql.local_engine import TableDataset, new_context, run_query
from lsm_core.sql.queries import Query, TableRead, Test, plan_query
from lsm_core.sql.reading import CATALOGS
from lsm_core.table import Catalog

if TYPE_CHECKING:
    import datafusion

TARGET: Final = "dredge_target"
ROW: Final = "dredge_row"
SOURCE: Final = "dredge_source"
_OTHER: Final = "dredge_table_"


@dataclass
class RowEvaluator:
    """Query over one batch of a table's rows at a time, with the rows of the other tables that the query reads.

    An evaluator can be sent to tasks.

    Attributes:
        text: DataFusion query, which reads the batch as `dredge_target`.
        needed: columns of the table that the query reads.
        columns: columns of all tables.
        others: tables other than the batch, by their names in the query.
        shown: text of the statement, for errors.
        table: name of the table, for errors.
        filters: True for a query that returns only the positions (in the batch) of the rows that meet its condition.
        single: function that returns the error to raise if the join of a MERGE gives some rows of the batch several
            result rows; its argument is the number of these rows. None to use the first result row.
    """

    text: str
    needed: tuple[str, ...]
    columns: Columns
    others: Mapping[str, pa.Table]
    shown: str
    table: str
    filters: bool = False
    single: Callable[[int], Exception] | None = None
    _context: Any = field(default=None, repr=False)
    _last: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Several splits are evaluated concurrently, but the context holds one batch.
        self._one_at_a_time = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name not in ("_context", "_last", "_one_at_a_time")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _context=None, _last=None)
        self.__post_init__()

    @property
    def size(self) -> int:
        """Size of the other tables that the query reads (bytes); they are sent to tasks together with the query."""
        return sum(table.nbytes for table in self.others.values())

    def evaluate(self, batch: pa.RecordBatch) -> pa.Table:
        """Return one result row for each row of ``batch``, in the order of ``batch``.

        If :attr:`filters` is true, only the rows for which the condition is true have a result row.

        Raises:
            InvalidOption: an expression fails.
            DredgeError: the error that `single` returns.
        """
        with self._one_at_a_time:
            if self._last is None or self._last[0] is not batch:
                self._last = (batch, self._answers(batch))
            answer: pa.Table = self._last[1]
            return answer

    def _answers(self, batch: pa.RecordBatch) -> pa.Table:
        needed_rows = batch.select(self.needed)
        numbers = pa.array(range(batch.num_rows), pa.int64())
        names = [*(name.lower() for name in needed_rows.schema.names), ROW]
        context = self._opened()
        if context.table_exist(TARGET):
            context.deregister_table(TARGET)
        rows = pa.RecordBatch.from_arrays([*needed_rows.columns, numbers], names=names)
        context.register_record_batches(TARGET, [[rows]])
        answer = run_query(context, self.text, self.columns, shown=self.shown).read_all().sort_by(ROW)
        return answer if self.filters or answer.num_rows == batch.num_rows else self._one_each(answer)

    def _one_each(self, answer: pa.Table) -> pa.Table:
        if self.single is not None:
            counts = answer.group_by(ROW).aggregate([([], "count_all")]).column("count_all").to_numpy()
            raise self.single(int((counts > 1).sum()))
        places = answer.append_column("dredge_place", pa.array(range(answer.num_rows), pa.int64()))
        return answer.take(places.group_by(ROW).aggregate([("dredge_place", "min")]).column("dredge_place_min").sort())

    def matching(self, batch: pa.RecordBatch) -> pa.Array:
        """Return one boolean for each row of ``batch``: whether the condition of a filtering query is true."""
        mask = np.zeros(batch.num_rows, np.bool_)
        mask[self.evaluate(batch).column(ROW).to_numpy()] = True
        return pa.array(mask)

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """Return the output column ``name`` of the query, with one value for each row of ``batch``."""
        return one_array(self.evaluate(batch).column(name))

    def _opened(self) -> datafusion.SessionContext:
        if self._context is None:
            self._context = new_context(partitions=1)
            for name, table in self.others.items():
                register_rows(self._context, name, table)
        return self._context


def register_rows(context: datafusion.SessionContext, name: str, table: pa.Table) -> None:
    """Register rows in memory as a table of a context, with column names in lower case."""
    plain = table.rename_columns([name.lower() for name in table.column_names]).combine_chunks()
    batches = plain.to_batches() or [pa.RecordBatch.from_pylist([], schema=plain.schema)]
    context.register_record_batches(name, [batches])


@dataclass(frozen=True)
class Target:
    """The table of a statement that changes rows.

    Attributes:
        name: "database.table".
        alias: name of the table in the statement's expressions.
    """

    name: str
    alias: str

    @staticmethod
    def of(node: exp.Table) -> Target:
        """Return the target of a statement.

        Raises:
            UnsupportedFeature: the table has a clause other than an alias, such as a version.
            TableNotFound: the name has no database, or names an unknown catalog.
        """
        unknown = [key for key, value in node.args.items() if value and key not in ("this", "db", "catalog", "alias")]
        alias = node.args.get("alias")
        if unknown or (alias is not None and (alias.columns or not isinstance(alias.this, exp.Identifier))):
            clauses = ", ".join(unknown) or alias.sql(dialect="spark")
            raise UnsupportedFeature(
                f"{clauses} behind the table whose rows change; only an alias may follow it, and WHERE selects rows",
                node.name,
            )
        if not node.db or node.catalog.lower() not in {"", *CATALOGS}:
            raise TableNotFound(f"there is no table {node.sql(dialect='spark')}: name tables as database.table")
        return Target(f"{node.db}.{node.name}", node.alias or node.name)

    def source(self) -> exp.Table:
        """Return the expression for the table in a FROM clause."""
        database, _, table = self.name.partition(".")
        return exp.alias_(
            exp.table_(exp.to_identifier(table, quoted=True), db=exp.to_identifier(database, quoted=True)),
            self.alias,
            table=True,
        )


def row_evaluator(
    catalog: Catalog,
    target: Target,
    outputs: Mapping[str, exp.Expr],
    shown: str,
    *,
    where: exp.Expr | None = None,
    join: exp.Expr | None = None,
    source: pa.Table | None = None,
    source_alias: str = "",
) -> RowEvaluator:
    """Return the evaluator of expressions over a table's rows.

    Args:
        catalog: catalog of the tables.
        target: the table.
        outputs: expressions by output name.
        shown: text of the statement, for errors.
        where: condition that rows must meet; None for all rows.
        join: condition of an outer join of each row with the rows of ``source``; None for no join.
        source: source rows of a MERGE.
        source_alias: name of the source in the expressions.

    Returns:
        The evaluator.

    Raises:
        UnsupportedFeature: DataFusion lacks an expression, or its result differs from Spark's.
        ColumnNotFound: a column does not exist.
    """
    items = {ROW: exp.column(ROW), **outputs}
    planned, place = _plan(catalog, target, items, where=where, join=join, source_alias=source_alias)
    names = [TARGET if number == place else f"{_OTHER}{number}" for number in range(len(planned.reads))]
    tree = _remove_source(parse_tree(planned.with_views(names)))
    schemas = [catalog.table(target.name).schema.arrow_schema, *([] if source is None else [source.schema])]
    others: dict[str, pa.Table] = {} if source is None else {SOURCE: source}
    for number, (name, read) in enumerate(zip(names, planned.reads, strict=True)):
        if number != place:
            dataset = TableDataset(read)
            schemas.append(dataset.own_schema)
            others[name] = dataset.scanner().to_table()
    needed = planned.reads[place].columns
    columns = Columns.of(schemas)
    return RowEvaluator(
        local_text(tree, columns), needed, columns, others, shown, target.name, filters=where is not None
    )


def source_query(
    catalog: Catalog,
    target: Target,
    outputs: Mapping[str, exp.Expr],
    condition: exp.Expr,
    source: pa.Table,
    source_alias: str,
    snapshot_id: int | None,
) -> pa.Table:
    """Evaluate expressions over the source rows of a MERGE that match no row of the table at a snapshot.

    Args:
        catalog: catalog of the tables.
        target: the table.
        outputs: expressions by output name.
        condition: condition for a match between a row of the table and a row of the source.
        source: source rows.
        source_alias: name of the source in the expressions.
        snapshot_id: snapshot of the table; None for an empty table.

    Returns:
        One row of outputs for each unmatched source row.

    Raises:
        UnsupportedFeature: DataFusion lacks an expression, or its result differs from Spark's.
    """
    planned, target_place = _plan(catalog, target, outputs, join=condition, source_alias=source_alias, unmatched=True)
    names = [f"{_OTHER}{place}" for place in range(len(planned.reads))]
    tree = _remove_source(parse_tree(planned.with_views(names)))
    context = new_context()
    register_rows(context, SOURCE, source)
    schemas = [source.schema]
    for number, (name, read) in enumerate(zip(names, planned.reads, strict=True)):
        if number == target_place and snapshot_id is not None:
            rows = _rows_at(read, snapshot_id)
            schemas.append(rows.schema)
            register_rows(context, name, rows.rename_columns([column.lower() for column in rows.column_names]))
            continue
        dataset = TableDataset(read)
        schemas.append(dataset.own_schema)
        register_rows(context, name, dataset.scanner().to_table())
    columns = Columns.of(schemas)
    return run_query(context, local_text(tree, columns), columns, list(outputs)).read_all()


def _rows_at(read: TableRead, snapshot_id: int) -> pa.Table:
    """Return the rows of a snapshot with the current schema, which the statement names, not with the snapshot's schema.

    Args:
        read: the table in the query, without a version.
        snapshot_id: id of the snapshot to read.
    """
    store = read.table.store
    version = Version(snapshots.read(store, snapshot_id), store)
    scan = plan_version(version, columns=list(read.columns), filter=list(read.tests) or None)
    return pa.Table.from_batches(to_batches(scan.store, scan), scan.arrow_schema)


def _plan(
    catalog: Catalog,
    target: Target,
    outputs: Mapping[str, exp.Expr],
    *,
    where: exp.Expr | None = None,
    join: exp.Expr | None = None,
    source_alias: str = "",
    unmatched: bool = False,
) -> tuple[Query, int]:
    """Return (plan of a query over the target, index of the target among the tables of the query).

    Args:
        catalog: catalog with the tables.
        target: table of the statement.
        outputs: output expressions by name.
        where: filter of the query; used only without ``join``.
        join: condition of a join of the target with the source rows (rows of a MERGE's source), or None.
        source_alias: alias of the source rows.
        unmatched: whether to keep only the source rows that match no row of the target.
    """
    items = ", ".join(f"{_text(node)} AS {quoted_name(name)}" for name, node in outputs.items())
    if join is None:
        head, tail = f"SELECT {items} FROM ", "" if where is None else f" WHERE {_text(where)}"  # noqa: S608
    else:
        # The source rows are no table of the catalog: a common table expression is their placeholder until
        # registration.
        how = "LEFT ANTI" if unmatched else "RIGHT"
        with_clause = f"WITH {SOURCE} AS ({_text(exp.select('1'))}) SELECT {items} FROM {SOURCE}"  # noqa: S608
        head, tail = f"{with_clause} AS {quoted_name(source_alias)} {how} JOIN ", f" ON {_text(join)}"
    planned = plan_query(catalog, head + _text(target.source()) + tail)
    place = next(place for place, read in enumerate(planned.reads) if read.start == len(head))
    reads = list(planned.reads)
    reads[place] = replace(reads[place], table=reads[place].table.copy(OWN_BRANCH_ONLY))
    return replace(planned, reads=tuple(reads)), place


def _text(node: exp.Expr) -> str:
    return str(node.sql(dialect="spark", normalize_functions=False))


def _remove_source(tree: exp.Expr) -> exp.Expr:
    """Return a query without the common table expression that is the placeholder of the source rows."""
    with_clause = tree.args.get("with_")
    if with_clause is not None:
        with_clause.set(
            "expressions", [projection for projection in with_clause.expressions if projection.alias != SOURCE]
        )
        if not with_clause.expressions:
            tree.set("with_", None)
    return tree


def pushed_tests(catalog: Catalog, target: Target, where: exp.Expr) -> tuple[list[Test], bool]:
    """Return the parts of a condition that can prune files, and whether they are the whole condition.

    Args:
        catalog: catalog of the tables.
        target: the table whose files are pruned.
        where: the condition.

    Returns:
        The tests (column, operator, literal), combined by AND; and True if the condition has no other part.
    """
    planned, place = _plan(catalog, target, {"one": exp.Literal.number(1)}, where=where)
    tests = list(planned.reads[place].tests)
    parts: Sequence[exp.Expr] = list(where.flatten()) if isinstance(where, exp.And) else [where]
    return tests, len(tests) == len(parts)


def several_matches(table: str) -> Callable[[int], Exception]:
    """Return the function that builds the error for rows that match several source rows of a MERGE."""
    return _SeveralMatches(table)


@dataclass(frozen=True)
class _SeveralMatches:
    """Function that returns the error of a MERGE for target rows that several source rows match.

    The argument is the number of these target rows. A class, unlike a nested function, can be sent to tasks.

    Attributes:
        table: name of the table.
    """

    table: str

    def __call__(self, count: int) -> Exception:
        return InvalidData(
            self.table,
            "",
            f"MERGE INTO: {count} rows are matched by more than one row of the source each; "
            "make the source's rows unique by the columns of ON (GROUP BY, or row_number() = 1)",
        )
