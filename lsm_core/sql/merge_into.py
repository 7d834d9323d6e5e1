"""MERGE INTO: change and delete rows of the target table and add rows of the source, in one commit.

The source is held in memory. The target is read in batches, and each batch is joined with the source. A second pass
over the columns of ON finds the source rows without a match in the target, at the same snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lsm_core.arrays import one_array
from lsm_core.errors import ColumnNotFound, InvalidOption, InvalidStatement, UnsupportedFeature
from lsm_core.read import Predicate, parse_filter
from lsm_core.read.predicate import ComputedPredicate
from lsm_core.read.sql_text import EXACT_TYPES
from lsm_core.sql.commands import Session, StatementResult, committed_result, same_name, table_to_change
from lsm_core.sql.evaluating import RowEvaluator, Target, row_evaluator, several_matches, source_query
from lsm_core.sql.local_dialect import parse_tree
from lsm_core.sql.reading import all_rows_of
from lsm_core.sql.update_delete import (
    NewValue,
    NewValues,
    assignments_of,
    default_of,
    name_outputs,
    require_known,
    runs_of,
    stored_values,
)
from lsm_core.table.writing import maintain_after_commit
from lsm_core.write import row_changes
from lsm_core.write.incoming_rows import conform
from lsm_core.write.row_changes import ComputedValues

if TYPE_CHECKING:
    from lsm_core.sql.inserting import QueryEngine
    from lsm_core.table import Table

_ACTION: Final = "dredge_action"
_TARGET_ALIAS: Final = "dredge_t"
_SOURCE_ALIAS: Final = "dredge_s"
"""Aliases that no column has: inside subqueries DataFusion mistakes an alias `s` for a column of that name."""
_NUMBER: Final = "dredge_source_row"


@dataclass(frozen=True)
class Clause:
    """One WHEN clause of a MERGE.

    Attributes:
        kind: "matched", "not matched" or "not matched by source".
        condition: condition after AND, or None.
        values: new values by column; None for DELETE.
    """

    kind: str
    condition: exp.Expr | None
    values: Mapping[str, NewValue] | None


@dataclass(frozen=True)
class _Acts:
    """Test for the rows that at least one clause of a MERGE changes.

    Attributes:
        evaluator: computes for each target row the index of the WHEN clause that changes it, null if none does.
    """

    evaluator: RowEvaluator

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.is_valid(self.evaluator.column(batch, _ACTION))


@dataclass(frozen=True)
class _Deletes:
    """Test for the rows that a clause of a MERGE deletes.

    Attributes:
        evaluator: computes for each target row the index of the WHEN clause that changes it, null if none does.
        numbers: indexes of the WHEN clauses with DELETE.
    """

    evaluator: RowEvaluator
    numbers: tuple[int, ...]

    def __call__(self, batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.bool_]]:
        numbers = self.evaluator.column(batch, _ACTION)
        deleting = pc.is_in(numbers, value_set=pa.array(self.numbers, numbers.type))
        return np.asarray(one_array(pa.chunked_array([deleting])))


def merge(session: Session, text: str, engine: QueryEngine) -> StatementResult:
    """Execute a MERGE INTO.

    Args:
        session: catalog and settings.
        text: the statement.
        engine: executes the query of the source. It may also change the rows by distributed tasks, as Spark does.

    Returns:
        The result with the committed snapshot, or with None if no row was changed.

    Raises:
        InvalidData: several rows of the source match a row, or a value does not fit its column.
        DredgeError: the statement cannot be executed; nothing was changed.
    """
    tree = parse_tree(text)
    if not isinstance(tree, exp.Merge) or not isinstance(tree.this, exp.Table) or not tree.args.get("on"):
        raise InvalidStatement(text, "write MERGE INTO database.table USING source ON condition WHEN ... THEN ...")
    require_known(tree, "this", "using", "on", "whens")
    target = Target.of(tree.this)
    table = table_to_change(session, target.name, "MERGE")
    using = tree.args["using"]
    alias = using.alias or using.name
    if not alias or alias.lower() == target.alias.lower():
        raise InvalidOption(
            "USING", using.sql(dialect="spark"), f"a source with a name other than {target.alias}", table.name
        )
    source = engine.answer(
        session.catalog, all_rows_of(using.sql(dialect="spark", normalize_functions=False))
    ).read_all()
    source = source.append_column(_NUMBER, pa.array(np.arange(source.num_rows)))
    clauses = [_clause(clause, table, target, alias, source) for clause in tree.args["whens"].expressions]
    names = {target.alias.lower(): _TARGET_ALIAS, alias.lower(): _SOURCE_ALIAS}
    renamed_clauses = [
        Clause(
            clause.kind,
            None if clause.condition is None else _rename_aliases(clause.condition, names),
            None
            if clause.values is None
            else {
                name: _rename_aliases(value, names) if isinstance(value, exp.Expr) else value
                for name, value in clause.values.items()
            },
        )
        for clause in clauses
    ]
    on = _rename_aliases(tree.args["on"], names)
    operation = _Merge(session, table, Target(target.name, _TARGET_ALIAS), on, source, _SOURCE_ALIAS, text, engine)
    snapshot_id = operation.run(renamed_clauses)
    return committed_result(target.name, maintain_after_commit(table.store, snapshot_id, engine.choose_runner))


@dataclass(frozen=True)
class _Merge:
    """Target, source and condition of a MERGE, shared by its clauses.

    Attributes:
        session: catalog and settings.
        table: the target table.
        target: the target in the query, with its alias.
        on: the ON condition.
        source: rows of the source, with a column of row numbers.
        alias: alias of the source in the query.
        text: the statement, for errors.
        engine: query engine of the statement.
    """

    session: Session
    table: Table
    target: Target
    on: exp.Expr
    source: pa.Table
    alias: str
    text: str
    engine: QueryEngine

    def run(self, clauses: Sequence[Clause]) -> int | None:
        changing = [clause for clause in clauses if clause.kind != "not matched"]
        adding = [clause for clause in clauses if clause.kind == "not matched"]
        additions = (lambda snapshot_id: self._added(adding, snapshot_id)) if adding else None
        if not changing:
            return row_changes.merge_rows(self.table.store, None, ComputedValues((), _nothing), additions)
        changing = [self._without_keys(clause) for clause in changing]
        columns = tuple(dict.fromkeys(name for clause in changing for name in clause.values or ()))
        outputs, sources = self._outputs(changing)
        evaluator = row_evaluator(
            self.session.catalog,
            self.target,
            outputs,
            self.text,
            join=self.on,
            source=self.source,
            source_alias=self.alias,
        )
        matched = [clause for clause in changing if clause.kind == "matched"]
        if matched and not (len(matched) == 1 and matched[0].values is None and matched[0].condition is None):
            evaluator.single = several_matches(self.table.name)
        deleting = tuple(place for place, clause in enumerate(changing) if clause.values is None)
        new_values = NewValues(evaluator, self.table.schema, sources, _ACTION)
        new_values.require_types()
        deletes, needed = _Deletes(evaluator, deleting) if deleting else None, (*evaluator.needed, *columns)
        values = ComputedValues(columns, new_values, deletes, needed)
        necessary = self._range() if len(matched) == len(changing) else None
        predicate = ComputedPredicate.of(_Acts(evaluator), evaluator.needed, necessary)
        return row_changes.merge_rows(
            self.table.store, predicate, values, additions, *runs_of(self.engine, [evaluator])
        )

    def _test(self, clause: Clause) -> exp.Expr:
        """Return the condition under which a clause applies to a row of the target or of the source."""
        number = exp.column(exp.to_identifier(_NUMBER), table=exp.to_identifier(self.alias, quoted=True))
        missing = exp.Is(this=number, expression=exp.null())
        own = {"matched": exp.not_(missing), "not matched by source": missing}.get(clause.kind)
        parts = [part.copy() for part in (own, clause.condition) if part is not None]
        return exp.and_(*parts) if parts else exp.true()

    def _outputs(
        self, clauses: Sequence[Clause]
    ) -> tuple[dict[str, exp.Expr], tuple[Mapping[str, str | pa.Scalar], ...]]:
        """Return the output columns of the query that evaluates ``clauses``, and the columns that each clause sets.

        One output is the index of the clause that applies to the row. Each new value of a clause is a separate output,
        null in rows of other clauses: one output for several clauses would have their common type, which loses digits.

        Returns:
            Expressions by output name. For each clause, by target column, the output with the new value or a constant.
        """
        tests = [self._test(clause) for clause in clauses]
        action = exp.paren(_case(zip(tests, map(exp.Literal.number, range(len(tests))), strict=True)))
        outputs: dict[str, exp.Expr] = {_ACTION: action}
        sources = []
        for number, clause in enumerate(clauses):
            computed, chosen = name_outputs(clause.values or {}, f"dredge_value_{number}_")
            applies = exp.EQ(this=action, expression=exp.Literal.number(number))
            outputs |= {name: _case([(applies, value)]) for name, value in computed.items()}
            sources.append(chosen)
        return outputs, tuple(sources)

    def _added(self, clauses: Sequence[Clause], snapshot_id: int | None) -> pa.Table | None:
        """Return the rows to insert: one for each source row without a match in the target at the snapshot.

        The first clause that applies to a source row sets the values; rows to which no clause applies are left out.

        Args:
            clauses: the WHEN NOT MATCHED clauses.
            snapshot_id: snapshot of the target; None for an empty table.
        """
        outputs, sources = self._outputs(clauses)
        rows = source_query(self.session.catalog, self.target, outputs, self.on, self.source, self.alias, snapshot_id)
        added = []
        for number, values in enumerate(sources):
            mine = rows.filter(pc.equal(rows.column(_ACTION), number))
            columns = stored_values(mine, values, self.table.schema, self.table.name)
            added.append(conform(pa.table(columns), self.table.schema, self.table.name))
        return pa.concat_tables(added)

    def _without_keys(self, clause: Clause) -> Clause:
        """Remove assignments that set a key column to its value in ON; other key changes are refused later."""
        if clause.values is None:
            return clause
        schema = self.table.schema
        fixed = {*schema.primary_keys, *schema.partition_keys, *schema.bucket_keys}
        equal = list(self._equal_columns())
        remaining = {
            name: value
            for name, value in clause.values.items()
            if not (name in fixed and isinstance(value, exp.Column) and (name, value.name.lower()) in equal)
        }
        return Clause(clause.kind, clause.condition, remaining)

    def _equal_columns(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a target column and a source column (lower case) that ON requires to be equal."""
        known = {name.lower(): name for name in self.table.schema.field_names}
        own, other = self.target.alias.lower(), self.alias.lower()
        for part in self.on.flatten() if isinstance(self.on, exp.And) else [self.on]:
            test = part.unnest()
            if not isinstance(test, exp.EQ):
                continue
            sides = [test.this.unnest(), test.expression.unnest()]
            for left, right in (sides, sides[::-1]):
                columns = isinstance(left, exp.Column) and isinstance(right, exp.Column)
                if (
                    columns
                    and left.table.lower() == own
                    and right.table.lower() == other
                    and left.name.lower() in known
                ):
                    yield known[left.name.lower()], right.name.lower()

    def _range(self) -> Predicate | None:
        """Return a filter on the target that all matched rows meet, so that the target's files can be pruned.

        For each target column that ON requires to equal a source column, the filter has the smallest and largest value
        of the source column.

        Returns:
            The filter, or None if no column can be bounded.
        """
        tests: list[tuple[str, str, Any]] = []
        spelled = {name.lower(): name for name in self.source.column_names}
        for name, other in self._equal_columns():
            field = self.table.schema.field(name)
            column = self.source.column(spelled[other]) if other in spelled else None
            kind = self.table.schema.arrow_schema.field(name).type
            if (
                column is None
                or field.type.root not in EXACT_TYPES
                or column.type != kind
                or column.null_count == len(column)
            ):
                continue
            bounds = pc.min_max(column)
            tests += [(name, ">=", bounds["min"].as_py()), (name, "<=", bounds["max"].as_py())]
        return parse_filter(tests or None, self.table.schema, self.table.name)


def _rename_aliases(node: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    """Return an expression in which table aliases are replaced.

    Args:
        node: the expression.
        names: new table names by lower-case alias of the target and the source.
    """

    def renamed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.table.lower() in names and not node.args.get("catalog"):
            return exp.column(node.this, table=exp.to_identifier(names[node.table.lower()]))
        for part in ("db", "catalog"):  # qualifiers before a nested field
            if node.text(part).lower() in names:
                node.set(part, exp.to_identifier(names[node.text(part).lower()]))
        return node

    return node.copy().transform(renamed)


def _nothing(batch: pa.RecordBatch) -> Mapping[str, pa.Array]:
    del batch
    return {}


def _case(pairs: Any) -> exp.Expr:
    ifs = [exp.If(this=test.copy(), true=value.copy()) for test, value in pairs]
    return exp.Case(ifs=ifs)


def _clause(node: exp.Expr, table: Table, target: Target, alias: str, source: pa.Table) -> Clause:
    """Parse one WHEN clause.

    Args:
        node: the clause in the syntax tree.
        table: the target table.
        target: the target in the statement, with its alias.
        alias: alias of the source in the statement.
        source: rows of the source.

    Raises:
        InvalidOption: the clause cannot be parsed.
        ColumnNotFound: a column does not exist.
        UnsupportedFeature: the clause is not supported.
    """
    matched, by_source = bool(node.args.get("matched")), bool(node.args.get("source"))
    kind = "matched" if matched else "not matched by source" if by_source else "not matched"
    then, condition = node.args["then"], node.args.get("condition")
    require_known(node, "matched", "source", "condition", "then")
    if isinstance(then, exp.Insert) and kind == "not matched":
        require_known(then, "this", "expression")
        return Clause(kind, condition, _read_insert(then, table, alias, source))
    if isinstance(then, exp.Update) and kind != "not matched":
        require_known(then, "expressions")
        return Clause(kind, condition, _read_update(then, kind, table, target, alias, source))
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE" and kind != "not matched":
        return Clause(kind, condition, None)
    takes = "INSERT" if kind == "not matched" else "UPDATE or DELETE"
    raise UnsupportedFeature(f"WHEN {kind.upper()} THEN {then.sql(dialect='spark')}; it takes {takes}", table.name)


def _of_source(table: Table, alias: str, source: pa.Table) -> dict[str, NewValue]:
    """Return the source column for each column of the table, by name. Raises ColumnNotFound."""
    values_by_column: dict[str, NewValue] = {}
    for name in table.schema.field_names:
        try:
            other = same_name("of the source", name, source.column_names)
        except ColumnNotFound as error:
            known = [column for column in source.column_names if column != _NUMBER]
            raise ColumnNotFound(f"of the source {alias}", name, known) from error
        values_by_column[name] = exp.column(
            exp.to_identifier(other, quoted=True), table=exp.to_identifier(alias, quoted=True)
        )
    return values_by_column


def _read_update(
    then: exp.Update, kind: str, table: Table, target: Target, alias: str, source: pa.Table
) -> dict[str, NewValue]:
    items = then.args.get("expressions")
    everything = isinstance(items, exp.Star) or (items and isinstance(items[0], exp.Star))
    if not everything:
        return assignments_of(table, target, list(items or []))
    if kind != "matched":
        raise UnsupportedFeature("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *; name columns of the table", table.name)
    return _of_source(table, alias, source)


def _read_insert(then: exp.Insert, table: Table, alias: str, source: pa.Table) -> dict[str, NewValue]:
    if isinstance(then.this, exp.Star):
        return _of_source(table, alias, source)
    values = then.expression.expressions if isinstance(then.expression, exp.Tuple) else [then.expression]
    names = [column_name.name for column_name in then.this.expressions] if isinstance(then.this, exp.Tuple) else []
    if then.this is not None and not names:
        names = [then.this.name]
    columns = [same_name(table.name, column_name, table.schema.field_names) for column_name in names] or list(
        table.schema.field_names
    )
    if len(columns) != len(values) or len(set(columns)) != len(columns):
        expected = f"{len(columns)} values ({', '.join(columns)}), each column once"
        raise InvalidOption("INSERT", f"{len(values)} values", expected, table.name)
    return {name: default_of(table, name, value) for name, value in zip(columns, values, strict=True)}
