"""New values of columns from Spark's users: SQL text over the old row ("v + 1") and Columns, as Arrow expressions.

Only expressions with the same meaning in Arrow and in Spark SQL are translated; all others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lsm_core.errors import ColumnNotFound, InvalidData, UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.spark.spark_columns import names_in_table, spark_ddl
from lsm_core.types import MAX_LENGTH, DataType, TypeRoot, to_sql
from lsm_core.types.casts import CastError, cast_values
from lsm_core.write.row_changes.assign import evaluate
from lsm_core.write.store_assignment import require_assignable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXT: Final = DataType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_MOST: Final = 65_536
_DEEPEST: Final = 50
_ELSE: Final = "compute such rows with Spark and write them with upsert or write_table"
_TYPES: Final = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
}
_BINARY: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "add_checked",
    exp.Sub: "subtract_checked",
    exp.Mul: "multiply_checked",
    exp.And: "and_kleene",
    exp.Or: "or_kleene",
}
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_UNARY: Final[Mapping[type[exp.Expr], str]] = {
    exp.Neg: "negate_checked",
    exp.Negative: "negate_checked",
    exp.Not: "invert",
    exp.Abs: "abs_checked",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.Length: "utf8_length",
}


def new_values(spark: SparkSession, store: TableStore, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new values of an update as literals and Arrow expressions, by column.

    Args:
        spark: The session of the Columns.
        store: The table.
        values: For each column a literal, an Arrow expression, a Column, or SQL text over the old row. Text for a
            column of a text or binary type, and text that can be cast to the column's type, is a literal.

    Returns:
        For each column a literal or an Arrow expression.

    Raises:
        InvalidData: A text is neither a value of its column nor an expression, or Spark's INSERT would not cast the
            type of an expression to that of its column.
        ColumnNotFound: An expression names a column that the table does not have.
        UnsupportedFeature: An expression has a part that Arrow and Spark do not compute alike.
    """
    new = dict(values)
    fixed = {*store.schema.primary_keys, *store.schema.partition_keys}
    for name, value in values.items():
        if not store.schema.has_field(name) or name in fixed:
            continue  # refused by `update_rows`
        own = store.schema.field(name).type
        if isinstance(value, str):
            if own.root in _TEXTS or _is_value(value, own):
                continue
            new[name] = arrow_expression(value, store, name)
        elif type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark.sql"):
            new[name] = arrow_expression(_text_of(spark, store, name, value), store, name)
        else:
            continue
        kind = _Translation(store, name).type_of(new[name])
        require_assignable(pa.schema([(name, kind)]), store.schema, store.name)
    return new


def _is_value(text: str, kind: DataType) -> bool:
    try:
        cast_values(pa.array([text], pa.string()), _TEXT, kind)
    except (CastError, pa.ArrowException):
        return False
    return True


def _text_of(spark: SparkSession, store: TableStore, name: str, column: Any) -> str:
    """Return a Column over the table as SQL text, with the casts that Spark adds.

    Raises InvalidData for a Column that Spark refuses.
    """
    from pyspark.errors import PySparkException

    try:
        plan = spark.createDataFrame([], spark_ddl(store.schema.fields, store.name)).select(column)
        frame = getattr(plan, "_jdf", None)
        if frame is None:
            feature = (
                f"a Column as the new value of '{name}' on Spark Connect: "
                "write it as SQL text, or for a column of texts as an Arrow expression"
            )
            raise UnsupportedFeature(feature, store.name)
        return str(frame.queryExecution().analyzed().projectList().apply(0).sql())
    except PySparkException as error:
        raise InvalidData(
            store.name, name, f"the new value cannot be computed: {str(error).splitlines()[0]}"
        ) from error


def arrow_expression(text: str, store: TableStore, name: str) -> pc.Expression:
    """Return SQL text over the columns of a table as an Arrow expression.

    Args:
        text: An expression of Spark SQL.
        store: The table.
        name: The column that gets the value, for errors.

    Returns:
        The expression.

    Raises:
        InvalidData: The text is no expression of SQL, or its types do not fit together.
        ColumnNotFound: The text names a column that the table does not have.
        UnsupportedFeature: The text has a part that Arrow and Spark do not compute alike.
    """
    try:
        if len(text) > _MOST:
            raise SqlglotError(f"it has more than {_MOST} characters")
        if "try_cast" in text.lower():  # parsed as CAST is
            raise UnsupportedFeature(f"try_cast in the new value of column '{name}'; {_ELSE}", store.name)
        tree = sqlglot.parse_one(f"SELECT {text}", read="spark")
    except (SqlglotError, RecursionError, IndexError) as error:
        parser = str(error).splitlines()[0]
        reason = f"{text[:80]!r} is no value of this column, and no expression of SQL (parser: {parser})"
        raise InvalidData(store.name, name, reason) from error
    if (
        not isinstance(tree, exp.Select)
        or len(tree.expressions) != 1
        or any(tree.args.get(key) for key in ("from_", "where", "joins", "with_"))
    ):
        raise InvalidData(
            store.name, name, f"{text[:80]!r} is no value of this column, and no single expression of SQL"
        )
    expression = _Translation(store, name).of(_known(tree.expressions[0].unalias(), store, name))
    nothing = pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in store.schema.arrow_schema], names=store.schema.field_names
    )
    try:
        evaluate(nothing, [expression])
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise InvalidData(
            store.name, name, f"the new value cannot be computed: {str(error).splitlines()[0]}"
        ) from error
    return expression


def _known(tree: exp.Expr, store: TableStore, name: str) -> exp.Expr:
    """Return the expression unchanged, after a check that a single name is a column.

    Raises InvalidData for a single name that is no column, because it was probably meant as a value.
    """
    if isinstance(tree, exp.Column) and not tree.table:
        (column,) = names_in_table([tree.name], store.schema)
        if not store.schema.has_field(column):
            kind = to_sql(store.schema.field(name).type)
            names = ", ".join(store.schema.field_names)
            reason = f"{tree.name!r} does not fit {kind}, and is no column; the table has {names}"
            raise InvalidData(store.name, name, reason)
    return tree


class _Translation:
    """Translation of one expression to Arrow.

    Args:
        store: The table.
        column: The column that gets the value, for errors.
    """

    def __init__(self, store: TableStore, column: str) -> None:
        self._store, self._column = store, column
        self._special: Mapping[type[exp.Expr], Callable[[Any, int], pc.Expression]] = {
            exp.Column: self._reference,
            exp.Literal: self._literal,
            exp.Null: lambda _, __: pc.scalar(None),
            exp.Boolean: lambda node, _: pc.scalar(bool(node.this)),
            exp.Paren: lambda node, depth: self.of(node.this, depth),
            exp.Div: self._quotient,
            exp.Is: self._is_null,
            exp.In: self._listed,
            exp.Between: self._between,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: lambda node, depth: self._call("coalesce", [node.this, *node.expressions], depth),
            exp.Nullif: self._nullif,
            exp.Concat: lambda node, depth: self._concat(node.expressions, depth),
            exp.DPipe: lambda node, depth: self._concat([node.left, node.right], depth),
            exp.Cast: self._cast,
            exp.TryCast: self._cast,  # as Spark's CAST is parsed
            exp.Round: self._round,
        }

    def of(self, node: exp.Expr, depth: int = 0) -> pc.Expression:
        """Return the Arrow expression of a node of the parsed SQL. Raises ColumnNotFound, UnsupportedFeature."""
        if depth > _DEEPEST:
            raise UnsupportedFeature(
                f"an expression of more than {_DEEPEST} levels as the new value of '{self._column}'", self._store.name
            )
        kind = type(node)
        if kind in _BINARY:
            left, right = self._alike(node.left, node.right, depth)
            return pc.Expression._call(_BINARY[kind], [left, right])
        if kind in _COMPARISONS:
            return self._compared(node, depth)
        if kind in _UNARY:
            return pc.Expression._call(_UNARY[kind], [self.of(node.this, depth + 1)])
        special = self._special.get(kind)
        if special is None:
            raise self._refused(node)
        return special(node, depth + 1)

    def _refused(self, node: exp.Expr) -> UnsupportedFeature:
        feature = f"{node.sql(dialect='spark')} in the new value of column '{self._column}'; {_ELSE}"
        return UnsupportedFeature(feature, self._store.name)

    def _reference(self, node: exp.Column, depth: int) -> pc.Expression:
        del depth
        if node.table:
            raise ColumnNotFound(self._store.name, node.sql(dialect="spark"), self._store.schema.field_names)
        (name,) = names_in_table([node.name], self._store.schema)
        if not self._store.schema.has_field(name):
            raise ColumnNotFound(self._store.name, node.name, self._store.schema.field_names)
        return pc.field(name)

    def _literal(self, node: exp.Literal, depth: int) -> pc.Expression:
        del depth
        if node.is_string:
            return pc.scalar(node.name)
        text = node.name
        if text.isdigit():
            number = int(text)
            return pc.scalar(
                pa.scalar(number, pa.int32() if number < 1 << 31 else pa.int64()) if number < 1 << 63 else Decimal(text)
            )
        return pc.scalar(float(text) if "e" in text.lower() else Decimal(text))

    def _alike(self, left: exp.Expr, right: exp.Expr, depth: int) -> tuple[pc.Expression, pc.Expression]:
        """Return both operands of an operator as Arrow expressions.

        As in Spark, a text literal is cast to the type of the column that is the other operand.
        """
        sides = [self.of(left, depth + 1), self.of(right, depth + 1)]
        for side, other in ((0, 1), (1, 0)):
            node, counterpart = (left, right)[side], (left, right)[other]
            if isinstance(node, exp.Literal) and node.is_string and isinstance(counterpart, exp.Column):
                (name,) = names_in_table([counterpart.name], self._store.schema)
                if pa.types.is_string(self._store.schema.arrow_schema.field(name).type):
                    continue
                kind = self._store.schema.arrow_schema.field(name).type
                try:
                    sides[side] = pc.scalar(pa.scalar(node.name).cast(kind))
                except pa.ArrowException as error:
                    reason = f"{node.sql(dialect='spark')} cannot be compared with column '{name}': {error}"
                    raise InvalidData(self._store.name, self._column, reason) from error
            if isinstance(node, exp.Literal) and not node.is_string and pa.types.is_decimal(self.type_of(sides[other])):
                sides[side] = pc.scalar(Decimal(node.name))
        return sides[0], sides[1]

    def _compared(self, node: exp.Binary, depth: int) -> pc.Expression:
        """Return a comparison by Spark's rules: NaN equals itself and is above all other numbers."""
        left, right = self._alike(node.left, node.right, depth)
        if isinstance(node, (exp.LT, exp.LTE)):
            left, right = right, left
        known = pc.Expression._call
        if not any(pa.types.is_floating(self.type_of(side)) for side in (left, right)):
            same, above = left == right, left > right
        else:
            left, right = left.cast(pa.float64()), right.cast(pa.float64())
            nans = [known("is_nan", [side]) for side in (left, right)]
            same = (left == right) | (nans[0] & nans[1])
            above = (left > right) | (nans[0] & ~nans[1])
        if isinstance(node, (exp.EQ, exp.NEQ)):
            return same if isinstance(node, exp.EQ) else ~same
        return above if isinstance(node, (exp.LT, exp.GT)) else above | same

    def _call(self, function: str, nodes: list[exp.Expr], depth: int) -> pc.Expression:
        return pc.Expression._call(function, [self.of(node, depth) for node in nodes])

    def _quotient(self, node: exp.Div, depth: int) -> pc.Expression:
        """Return a quotient as DOUBLE. Raises UnsupportedFeature for DECIMAL, for which Spark has other rules."""
        sides = []
        for side in (node.left, node.right):
            operand = self.of(side, depth)
            if pa.types.is_decimal(self.type_of(operand)) and not isinstance(side, exp.Literal):
                raise self._refused(node)
            sides.append(operand.cast(pa.float64()))
        return pc.Expression._call("divide_checked", sides)

    def _is_null(self, node: exp.Is, depth: int) -> pc.Expression:
        if not isinstance(node.expression, exp.Null):
            raise self._refused(node)
        return self.of(node.this, depth).is_null()

    def _listed(self, node: exp.In, depth: int) -> pc.Expression:
        if not node.expressions:
            raise self._refused(node)
        tests = [self.of(exp.EQ(this=node.this, expression=item), depth) for item in node.expressions]
        condition = tests[0]
        for test in tests[1:]:
            condition = condition | test
        return condition

    def _between(self, node: exp.Between, depth: int) -> pc.Expression:
        low = exp.GTE(this=node.this, expression=node.args["low"])
        return self.of(low, depth) & self.of(exp.LTE(this=node.this, expression=node.args["high"]), depth)

    def _chosen(
        self, choices: list[tuple[pc.Expression, exp.Expr]], default: exp.Expr | None, depth: int
    ) -> pc.Expression:
        """Return the expression of a CASE: the value of the first condition that is true; null is not true.

        Args:
            choices: Pairs (condition, parsed SQL of the value).
            default: Parsed SQL of the value if no condition is true; None for null.
            depth: Depth of the CASE in the parsed SQL.
        """
        conditions = pc.Expression._call(
            "make_struct",
            [condition for condition, _ in choices],
            pc.MakeStructOptions([str(at) for at in range(len(choices))]),
        )
        values = [
            self.of(node, depth) for node in [*(node for _, node in choices), *([] if default is None else [default])]
        ]
        kinds = [self.type_of(value) for value in values]
        kind = next((known for known in kinds if not pa.types.is_null(known)), pa.null())
        typed_values = [
            pc.scalar(pa.scalar(None, kind)) if pa.types.is_null(own) else value
            for value, own in zip(values, kinds, strict=True)
        ]
        return pc.Expression._call("case_when", [conditions, *typed_values])

    def _case(self, node: exp.Case, depth: int) -> pc.Expression:
        tests = [
            exp.EQ(this=node.this, expression=branch.this) if node.this else branch.this for branch in node.args["ifs"]
        ]
        choices = [
            (self.of(test, depth), branch.args["true"]) for test, branch in zip(tests, node.args["ifs"], strict=True)
        ]
        return self._chosen(choices, node.args.get("default"), depth)

    def _if(self, node: exp.If, depth: int) -> pc.Expression:
        return self._chosen([(self.of(node.this, depth), node.args["true"])], node.args.get("false"), depth)

    def _nullif(self, node: exp.Nullif, depth: int) -> pc.Expression:
        same = self.of(exp.EQ(this=node.this, expression=node.expression), depth)
        return self._chosen([(same, exp.Null())], node.this, depth)

    def _concat(self, nodes: list[exp.Expr], depth: int) -> pc.Expression:
        parts = [self._as_text(self.of(node, depth), node) for node in nodes]
        return pc.Expression._call("binary_join_element_wise", [*parts, pc.scalar("")])

    def _as_text(self, value: pc.Expression, node: exp.Expr) -> pc.Expression:
        """Return a value as text. Raises UnsupportedFeature for types whose text differs between Spark and Arrow."""
        kind = self.type_of(value)
        if pa.types.is_string(kind):
            return value
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_null(kind):
            return value.cast(pa.string())
        raise self._refused(node)

    def _cast(self, node: exp.Cast, depth: int) -> pc.Expression:
        value, to = self.of(node.this, depth), node.to
        name = to.this.value
        if name == "DECIMAL":
            sizes = [int(size.this.name) for size in to.expressions]
            precision, scale = (*sizes, 0, 0)[:2] if sizes else (10, 0)
            target = pa.decimal128(precision, scale)
            if isinstance(node.this, exp.Literal) and not node.this.is_string:
                return pc.scalar(pa.scalar(Decimal(node.this.name)).cast(target))
            return value.cast(target)
        target = _TYPES.get(name)
        if target is None or to.expressions:
            raise self._refused(node)
        kind = self.type_of(value)
        if pa.types.is_string(target):
            return self._as_text(value, node)
        if pa.types.is_integer(target) and pa.types.is_floating(kind):
            value = pc.Expression._call("trunc", [value])  # as Spark cuts fractions off; what is too large is an error
        if pa.types.is_integer(target) and pa.types.is_decimal(kind):
            return value.cast(options=pc.CastOptions(target_type=target, allow_decimal_truncate=True))
        if pa.types.is_floating(target) and pa.types.is_decimal(kind):
            value = value.cast(pa.string())  # by their digits: Arrow's own cast is not the nearest number
        return value.cast(target)

    def _round(self, node: exp.Round, depth: int) -> pc.Expression:
        digits = node.args.get("decimals")
        if digits is not None and not isinstance(digits, exp.Literal):
            raise self._refused(node)
        value = self.of(node.this, depth)
        if digits is not None and digits.name != "0" and pa.types.is_floating(self.type_of(value)):
            raise self._refused(node)  # Spark rounds the decimal digits that a DOUBLE is shown with
        options = pc.RoundOptions(int(digits.name) if digits is not None else 0, "half_towards_infinity")
        return pc.Expression._call("round", [value], options)

    def type_of(self, expression: pc.Expression) -> pa.DataType:
        """Return the type of an expression. Raises InvalidData if types in it do not fit together."""
        schema = self._store.schema.arrow_schema
        nothing = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], names=schema.names)
        try:
            return evaluate(nothing, [expression])[0].type
        except (pa.ArrowException, KeyError, TypeError) as error:
            reason = f"the new value cannot be computed: {str(error).splitlines()[0]}"
            raise InvalidData(self._store.name, self._column, reason) from error
