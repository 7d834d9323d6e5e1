"""Execution of UPDATE and DELETE with any condition and any new values, in one commit each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lsm_core.arrays import one_array
from lsm_core.errors import ColumnNotFound, InvalidOption, InvalidStatement, UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.read import Predicate, parse_filter
from lsm_core.read.predicate import ComputedPredicate
from lsm_core.sql.commands import Session, StatementResult, committed_result, same_name, table_to_change
from lsm_core.sql.evaluating import RowEvaluator, Target, pushed_tests, row_evaluator
from lsm_core.sql.local_dialect import SESSION_ZONE, parse_tree
from lsm_core.table.writing import maintain_after_commit
from lsm_core.types import DataType
from lsm_core.write import row_changes
from lsm_core.write.incoming_rows import RowNumbering, default_value, fit_column, require_castable
from lsm_core.write.row_changes import ComputedValues
from lsm_core.write.store_assignment import assign_rows, require_assignable

if TYPE_CHECKING:
    from lsm_core.sql.inserting import QueryEngine
    from lsm_core.table import Table

_SHIPPED: Final = 64 << 20
"""Maximum bytes of subquery tables that are sent to tasks; above this limit, this process changes the rows."""


_TAKES: Final = {
    "update": "SET column = value, and WHERE",
    "delete": "FROM and WHERE",
    "merge": "INTO, USING, ON, WHEN MATCHED, WHEN NOT MATCHED and WHEN NOT MATCHED BY SOURCE",
    "when": "AND a condition, then UPDATE, DELETE or INSERT",
    "insert": "columns and VALUES, or *",
}


@dataclass(frozen=True)
class Truth:
    """Function that evaluates the WHERE condition of an UPDATE or DELETE over batches of rows.

    Attributes:
        evaluator: evaluator of the condition.
    """

    evaluator: RowEvaluator

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Return whether the condition is true for each row of ``batch``."""
        return self.evaluator.matching(batch)


NewValue: TypeAlias = "exp.Expr | pa.Scalar"
"""New value of a column: an expression over the row, or the column's default."""


@dataclass(frozen=True)
class NewValues:
    """Function that computes the new column values of an UPDATE or MERGE for batches of rows.

    Values are converted to the columns' types by the rules of Spark's INSERT.

    Attributes:
        evaluator: evaluator of the expressions.
        schema: schema of the table.
        clauses: for each SET or WHEN clause, the new values by column: the name of an output of ``evaluator``, or a
            constant.
        action: name of the output with the index of the clause that changes the row; "" for an UPDATE, whose one SET
            clause changes all rows.
    """

    evaluator: RowEvaluator
    schema: TableSchema
    clauses: tuple[Mapping[str, str | pa.Scalar], ...]
    action: str = ""

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, pa.Array]:
        """Return the new values by column. Raises InvalidData for a value that its column cannot store."""
        answer = self.evaluator.evaluate(batch)
        if not self.action:
            return stored_values(answer, self.clauses[0], self.schema, self.evaluator.table)
        numbers = one_array(answer.column(self.action))
        columns = {name: batch.column(name) for clause in self.clauses for name in clause}
        for number, clause in enumerate(self.clauses):
            places = np.arange(batch.num_rows)
            mine = np.asarray(pc.equal(numbers, number).fill_null(False))  # noqa: FBT003
            places[mine] += batch.num_rows
            for name, values in stored_values(answer, clause, self.schema, self.evaluator.table).items():
                columns[name] = pa.concat_arrays([columns[name], values]).take(pa.array(places))
        return columns

    def require_types(self) -> None:
        """Raise InvalidData for a value whose type its column cannot store, before any row is read."""
        kinds = self.schema.arrow_schema
        fields = [
            kinds.field(name) if self.schema.has_field(name) else pa.field(name, pa.int64())  # ids of tracked rows
            for name in dict.fromkeys((*self.evaluator.needed, *self.schema.field_names))
        ]
        self(pa.RecordBatch.from_pylist([], schema=pa.schema(fields)))


def stored_values(
    answer: pa.Table, values: Mapping[str, str | pa.Scalar], schema: TableSchema, table: str
) -> dict[str, pa.Array]:
    """Return values of a query in the types of the columns that receive them, by the rules of Spark's INSERT.

    Args:
        answer: result of the query.
        values: for each column to set, the name of a column of `answer`, or a constant.
        schema: schema of the table.
        table: name of the table, for errors.

    Raises:
        InvalidData: a value or its type does not fit the column.
    """
    rows = pa.table(
        {
            name: pa.repeat(value, answer.num_rows) if isinstance(value, pa.Scalar) else answer.column(value)
            for name, value in values.items()
        }
    )
    numbering = RowNumbering(source="the new values")
    require_assignable(rows.schema, schema, table)
    require_castable(rows.schema, schema, table)
    rows = assign_rows(rows, schema, SESSION_ZONE, table, numbering)
    return {name: one_array(fit_column(rows.column(name), schema.field(name), table, numbering)) for name in values}


def name_outputs(values: Mapping[str, NewValue], prefix: str) -> tuple[dict[str, exp.Expr], dict[str, str | pa.Scalar]]:
    """Name the expressions among the new values of columns as outputs of a query.

    Args:
        values: new value (expression or constant) by column.
        prefix: start of the output names.

    Returns:
        Expressions by output name; and by column, the name of the output or the constant.
    """
    outputs: dict[str, exp.Expr] = {}
    sources: dict[str, str | pa.Scalar] = {}
    for place, (column, value) in enumerate(values.items()):
        if isinstance(value, exp.Expr):
            outputs[f"{prefix}{place}"] = value
        sources[column] = f"{prefix}{place}" if isinstance(value, exp.Expr) else value
    return outputs, sources


def require_known(node: exp.Expr, *known: str) -> None:
    """Raise UnsupportedFeature if a statement has a clause other than the known ones."""
    for key, value in node.args.items():
        if value and key not in known:
            clause = value.sql(dialect="spark") if isinstance(value, exp.Expr) else key.strip("_").upper()
            verb = node.key.upper()
            raise UnsupportedFeature(f"{clause} in {verb}; {verb} takes {_TAKES[node.key]}")


def delete(session: Session, text: str, engine: QueryEngine) -> StatementResult:
    """Delete the rows that match the condition of a DELETE.

    Args:
        session: catalog and settings.
        text: the statement.
        engine: supplies the functions that change the rows in distributed tasks, if it has such tasks.

    Returns:
        The result with the committed snapshot, or with None if no row was changed.

    Raises:
        DredgeError: the statement cannot be executed; nothing was changed.
    """
    tree = parse_tree(text)
    if not isinstance(tree, exp.Delete) or not isinstance(tree.this, exp.Table):
        raise InvalidStatement(text, "write DELETE FROM database.table [WHERE ...]")
    require_known(tree, "this", "where")
    target = Target.of(tree.this)
    table = table_to_change(session, target.name, "DELETE")
    where = _where(tree)
    if where is None and not table.store.options.get("delete.force-produce-changelog"):
        return committed_result(target.name, table.truncate())
    row_filter = _make_filter(session, target, where, text)
    runs = _select_runs(engine, row_filter)
    snapshot_id = row_changes.delete_rows(table.store, row_filter, *runs)
    return committed_result(target.name, maintain_after_commit(table.store, snapshot_id, engine.choose_runner))


def update(session: Session, text: str, engine: QueryEngine) -> StatementResult:
    """Set columns of the rows that match the condition of an UPDATE.

    Args:
        session: catalog and settings.
        text: the statement.
        engine: supplies the functions that change the rows in distributed tasks, if it has such tasks.

    Returns:
        The result with the committed snapshot, or with None if no row was changed.

    Raises:
        DredgeError: the statement cannot be executed; nothing was changed.
    """
    tree = parse_tree(text)
    if not isinstance(tree, exp.Update) or not isinstance(tree.this, exp.Table) or not tree.expressions:
        raise InvalidStatement(text, "write UPDATE database.table SET column = value [WHERE ...]")
    require_known(tree, "this", "expressions", "where")
    target = Target.of(tree.this)
    table = table_to_change(session, target.name, "UPDATE")
    new = assignments_of(table, target, tree.expressions)
    row_filter = _make_filter(session, target, _where(tree), text)
    outputs, sources = name_outputs(new, "dredge_value_")
    evaluator = row_evaluator(session.catalog, target, outputs, text)
    new_values = NewValues(evaluator, table.schema, (sources,))
    new_values.require_types()
    values = ComputedValues(tuple(new), new_values, needed=(*evaluator.needed, *new))
    runs = _select_runs(engine, row_filter, evaluator)
    snapshot_id = row_changes.update_rows(table.store, row_filter, values, *runs)
    return committed_result(target.name, maintain_after_commit(table.store, snapshot_id, engine.choose_runner))


def _where(tree: exp.Expr) -> exp.Expr | None:
    where = tree.args.get("where")
    return None if where is None else where.this


def _make_filter(session: Session, target: Target, where: exp.Expr | None, text: str) -> Predicate | pc.Expression:
    """Return the filter for the rows that meet a statement's condition.

    Returns:
        A filter that also prunes files if all parts of the condition can do so, otherwise a predicate that DataFusion
            computes. Without a condition, a filter that is true for all rows.
    """
    if where is None:
        return pc.scalar(True)  # noqa: FBT003
    table = session.catalog.table(target.name)
    tests, whole = pushed_tests(session.catalog, target, where)
    necessary = parse_filter(tests or None, table.schema, target.name)
    if whole and necessary is not None:
        return necessary
    evaluator = row_evaluator(session.catalog, target, {}, text, where=where)
    return ComputedPredicate.of(Truth(evaluator), evaluator.needed, necessary)


def _select_runs(engine: QueryEngine, row_filter: Any, *others: RowEvaluator) -> tuple[Any, ...]:
    """Return the functions that change the rows in distributed tasks; () if this process must change the rows.

    Args:
        engine: supplies the functions.
        row_filter: filter of the statement's condition.
        others: evaluators of the new values, which are sent to the tasks too.
    """
    evaluators = list(others)
    if isinstance(row_filter, ComputedPredicate) and isinstance(row_filter.compute, Truth):
        evaluators.append(row_filter.compute.evaluator)
    return runs_of(engine, evaluators)


def runs_of(engine: QueryEngine, evaluators: Sequence[RowEvaluator]) -> tuple[Any, ...]:
    """Return the functions that change rows in distributed tasks.

    Args:
        engine: supplies the functions.
        evaluators: evaluators that are sent to the tasks together with the rows of subquery tables.

    Returns:
        (Function for keyed tables, function for append tables). The tuple is empty if this process must change the
            rows, for example because the tables of subqueries are too large to send.
    """
    runs = engine.change_runs()
    return () if runs is None or sum(evaluator.size for evaluator in evaluators) > _SHIPPED else runs


def assignments_of(table: Table, target: Target, items: list[exp.Expr]) -> dict[str, NewValue]:
    """Return the new values of SET by column.

    Args:
        table: the table.
        target: name and alias of the table in the statement.
        items: assignments `column = expression`.

    Returns:
        New values by column name; assignments to nested fields are joined into one value of the whole column.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidOption: a column is set twice.
        UnsupportedFeature: the left side is neither a column nor a field of a column.
    """
    assignments: dict[str, NewValue] = {}
    inside: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
    for item in items:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column | exp.Dot):
            raise UnsupportedFeature(f"SET {item.sql(dialect='spark')}; SET takes column = expression", table.name)
        parts = [part.name for part in item.this.parts]
        lower = [part.lower() for part in parts]
        prefix_length = 2 if lower[:2] == target.name.lower().split(".") else int(lower[0] == target.alias.lower())
        parts = parts[prefix_length:] if len(parts) > prefix_length else parts
        name = same_name(table.name, parts[0], table.schema.field_names)
        if name in assignments or (name in inside and len(parts) == 1):
            raise InvalidOption("SET", name, "a column once", table.name)
        if len(parts) > 1:
            inside.setdefault(name, []).append((tuple(parts[1:]), item.expression))
        else:
            assignments[name] = default_of(table, name, item.expression)
    for name, fields in inside.items():
        if name in assignments:
            raise InvalidOption("SET", name, "a column once", table.name)
        column = exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(target.alias, quoted=True))
        assignments[name] = _set_fields(table.name, name, column, table.schema.field(name).type, fields)
    return assignments


def _set_fields(
    table: str, path: str, base: exp.Expr, kind: DataType, changes: list[tuple[tuple[str, ...], exp.Expr]]
) -> exp.Expr:
    """Return a struct with new values for some of its fields, with the semantics of Spark's UPDATE.

    If the old struct is null, all fields without an assignment become null.

    Args:
        table: name of the table.
        path: dotted path of the struct, for errors.
        base: expression of the old struct.
        kind: type of the struct.
        changes: pairs (path of a field inside the struct, expression of its new value).

    Raises:
        ColumnNotFound: a field does not exist.
        InvalidOption: a field is set twice.
    """
    names = [field.name for field in kind.fields]
    if not names:
        raise ColumnNotFound(table, f"{path}.{changes[0][0][0]}", (path,))
    changes_by_field: dict[str, list[tuple[tuple[str, ...], exp.Expr]]] = {}
    for inner, new in changes:
        changes_by_field.setdefault(same_name(f"{table}, column {path}", inner[0], names), []).append((inner[1:], new))
    parts: list[exp.Expr] = []
    for field in kind.fields:
        old = exp.Dot(this=exp.paren(base.copy()), expression=exp.to_identifier(field.name, quoted=True))
        assigned = changes_by_field.get(field.name)
        value: exp.Expr = old
        if assigned is not None:
            whole = [new for steps, new in assigned if not steps]
            if whole and len(assigned) > 1:
                raise InvalidOption("SET", f"{path}.{field.name}", "a field once", table)
            value = whole[0] if whole else _set_fields(table, f"{path}.{field.name}", old, field.type, assigned)
        parts.append(exp.PropertyEQ(this=exp.to_identifier(field.name, quoted=True), expression=value.copy()))
    return exp.Struct(expressions=parts)


def default_of(table: Table, name: str, value: exp.Expr | None) -> NewValue:
    """Return a new value of a column: its default (or null) if ``value`` is DEFAULT or None, otherwise ``value``."""
    if value is not None and (
        not isinstance(value, exp.Column | exp.Var) or value.name.upper() != "DEFAULT" or value.args.get("table")
    ):
        return value
    field = table.schema.field(name)
    return exp.null() if field.default is None else default_value(field, table.name)
