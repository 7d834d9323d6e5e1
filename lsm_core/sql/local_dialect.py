"""Translation of Spark SQL to DataFusion queries of the same meaning; queries with different results are refused.

sqlglot writes the query in the dialect of PostgreSQL, which DataFusion parses. As in Spark, names are case-insensitive:
all names are written in lower case. Only functions with equal results in both engines are accepted (`_FUNCTIONS`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from lsm_core.errors import InvalidStatement, UnsupportedFeature
from lsm_core.sql.invalid_statements import USE_SPARK, parse_error, require_no_trailing_comma
from lsm_core.sql.reading import with_quoted_names

_FUNCTIONS: Final[tuple[type[exp.Expr], ...]] = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.CountIf, exp.LogicalAnd, exp.LogicalOr, exp.ArrayAgg),
    *(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.Ntile),
    *(exp.Coalesce, exp.If, exp.Case, exp.Nullif, exp.Cast, exp.TryCast, exp.And, exp.Or, exp.Exists, exp.DecodeCase),
    *(exp.Upper, exp.Lower, exp.Length, exp.Trim, exp.Substring, exp.Concat, exp.Replace, exp.Reverse, exp.StrPosition),
    *(exp.Pad, exp.RegexpLike, exp.StartsWith, exp.EndsWith),
    *(exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Sqrt, exp.Pow, exp.Sign, exp.Exp, exp.Ln, exp.Greatest, exp.Least),
    *(exp.Struct, exp.Array, exp.VarMap, exp.Map, exp.ToMap, exp.Explode, exp.IsNan),
    *(exp.Year, exp.Month, exp.Day, exp.TsOrDsAdd, exp.TsOrDsToDate, exp.CurrentDate),
    *(exp.CurrentTimestamp, exp.Extract),
)
_REFUSED: Final[Mapping[type[exp.Expr], str]] = {
    exp.Lateral: "LATERAL VIEW",
    exp.Qualify: "QUALIFY",
    exp.Pivot: "PIVOT and UNPIVOT",
    exp.TableSample: "TABLESAMPLE",
    exp.Sort: "SORT BY",
    exp.Distribute: "DISTRIBUTE BY",
    exp.Cluster: "CLUSTER BY",
    exp.Transform: "TRANSFORM",
    exp.Lambda: "functions as arguments",
}
SESSION_ZONE: Final = "UTC"
"""Time zone in which DataFusion evaluates queries."""
BINARY_LENGTH: Final = "dredge_binary_length"
"""Name of a function of DataFusion's session that returns the number of bytes of a binary value."""
_WHOLE_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Number of bits by whole-number type."""
_ARROW_TYPES: Final = {
    "tinyint": "Int8", "smallint": "Int16", "int": "Int32", "bigint": "Int64", "float": "Float32", "double": "Float64",
    "boolean": "Boolean", "date": "Date32",
}  # fmt: skip
"""Arrow's names of types, for DataFusion's arrow_cast() and arrow_try_cast()."""
_ZONED_TIME: Final = re.compile(r"^(\s*\d+-\d+-\d+[ T]\d+:\d+(?::\d+(?:\.\d*)?)?)\s*[-+A-Za-z].*$")
"""Text of a time with a time zone behind it; the group is the text without the zone."""
_PARTIAL_DATE: Final = re.compile(r"^\s*(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?\s*$")
"""Text of a date whose month and day may be missing, or have one digit, as Spark's casts accept it."""
_COMPARISONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between)
_LARGEST_INT: Final = (1 << 31) - 1
_UNCAST: Final = (pa.types.is_floating, pa.types.is_temporal, pa.types.is_nested, pa.types.is_binary)
"""Tests for types whose text form differs between Spark and DataFusion; the text form of dates is the same."""


@dataclass(frozen=True)
class Columns:
    """The columns of the tables of a query.

    Attributes:
        kinds: Arrow types by lower-case column name; several tables with the same column name contribute one type each.
        spelling: the tables' own spelling by lower-case column name.
        nested: the tables' own spelling of nested fields by lower-case name.
    """

    kinds: Mapping[str, Sequence[pa.DataType]] = field(default_factory=dict)
    spelling: Mapping[str, str] = field(default_factory=dict)
    nested: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(schemas: Sequence[pa.Schema]) -> Columns:
        """Return the columns of tables with these Arrow schemas."""
        kinds: dict[str, list[pa.DataType]] = {}
        spelling: dict[str, str] = {}
        nested: dict[str, str] = {}
        for schema in schemas:
            for column_field in schema:
                kinds.setdefault(column_field.name.lower(), []).append(column_field.type)
                spelling.setdefault(column_field.name.lower(), column_field.name)
                nested.update((name.lower(), name) for name in _inner_names(column_field.type))
        return Columns(kinds, spelling, nested)

    def types_in(self, node: exp.Expr) -> list[pa.DataType]:
        """Return the types that the columns in an expression may have."""
        return [kind for column in node.find_all(exp.Column) for kind in self.kinds.get(column.name.lower(), ())]


def _inner_names(kind: pa.DataType) -> Iterator[str]:
    for place in range(kind.num_fields):
        inner = kind.field(place)
        if pa.types.is_struct(kind):
            yield inner.name
        yield from _inner_names(inner.type)


def parse_tree(text: str) -> exp.Expr:
    """Return the syntax tree of one statement.

    Raises:
        InvalidOption: the text cannot be parsed, or holds several statements.
    """
    quoted = with_quoted_names(text)
    try:
        trees = [tree for tree in sqlglot.parse(quoted, read="spark") if tree is not None]
        require_no_trailing_comma(quoted)
    except (SqlglotError, RecursionError, IndexError) as error:
        raise parse_error(text, "a statement of Spark SQL", error) from error
    if len(trees) != 1:
        raise InvalidStatement(text, "one statement is expected in each call")
    return trees[0]


def output_names(tree: exp.Query) -> list[str | None]:
    """Return a query's output column names as in Spark; None for each `*`, whose columns keep the tables' names."""
    names: list[str | None] = []
    for item in tree.selects:
        if item.is_star:
            names.append(None)
        elif item.alias:
            names.append(item.alias)
        elif isinstance(item, exp.Column):
            names.append(item.name)
        else:
            names.append(item.sql(dialect="spark", comments=False))
    return names


def local_text(tree: exp.Expr, columns: Columns) -> str:
    """Return a query or an expression in DataFusion's dialect.

    Args:
        tree: the query; it is modified.
        columns: columns of the query's tables.

    Returns:
        The text.

    Raises:
        UnsupportedFeature: DataFusion lacks a clause or function, or its result differs from Spark's.
    """
    _require_alike(tree, columns)
    if isinstance(tree, exp.Query):
        _name_columns(tree)
        _type_literals(tree)
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()
    tree = tree.transform(_rewrite, columns)
    for identifier in tree.find_all(exp.Identifier):
        name = identifier.name.lower()
        inner = columns.nested.get(name)
        of_field = (
            inner is not None
            and name not in columns.kinds
            and not isinstance(identifier.parent, exp.TableAlias | exp.Alias)
        )
        if isinstance(identifier.parent, exp.PropertyEQ):
            inner, of_field = identifier.name, True
        identifier.set("this", inner if of_field else name)
        identifier.set("quoted", True)  # noqa: FBT003
    try:
        return str(tree.sql(dialect="postgres", unsupported_level=ErrorLevel.RAISE))
    except SqlglotError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UnsupportedFeature(f"a clause or function of this query in {USE_SPARK} ({reason})") from error


def _require_alike(tree: exp.Expr, columns: Columns) -> None:
    """Raise UnsupportedFeature if the result of an expression in the query differs between Spark and DataFusion."""
    for node in tree.walk():
        refused = next((reason for kind, reason in _REFUSED.items() if isinstance(node, kind)), None)
        if refused is not None:
            raise UnsupportedFeature(f"{refused} in {USE_SPARK}")
        if isinstance(node, exp.Func) and not isinstance(node, _FUNCTIONS):
            name = node.name if isinstance(node, exp.Anonymous) else node.sql_name().lower()
            raise UnsupportedFeature(f"the function {name}() in {USE_SPARK}")
        if isinstance(node, exp.Cast) and node.is_type(*exp.DataType.TEXT_TYPES) and _prints_otherwise(node, columns):
            raise UnsupportedFeature(f"{node.sql(dialect='spark')}, whose text would differ, in {USE_SPARK}")
        other = _answers_otherwise(node, columns)
        if other:
            raise UnsupportedFeature(f"{other}, {node.sql(dialect='spark')}, in {USE_SPARK}")
        if isinstance(node, exp.Substring):
            start = node.args.get("start")
            if start is not None and not (isinstance(start, exp.Literal) and start.name.isdigit() and int(start.name)):
                raise UnsupportedFeature(f"substring from {start.sql(dialect='spark')} in {USE_SPARK}")


def fits_whole_type(value: int, kind: exp.DataType) -> bool:
    """Return whether a number fits a whole-number type of Spark; True for every type that is not a whole number."""
    bits = next((bits for name, bits in _WHOLE_BITS.items() if kind.is_type(name)), None)
    return bits is None or -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _answers_otherwise(node: exp.Expr, columns: Columns) -> str:
    """Return a description of an expression if its result differs between DataFusion and Spark, otherwise ""."""
    if isinstance(node, exp.Avg | exp.Div) and any(map(pa.types.is_decimal, columns.types_in(node))):
        return "an average or quotient of DECIMAL, which is rounded otherwise"
    if isinstance(node, exp.Floor | exp.Ceil) and any(map(pa.types.is_floating, columns.types_in(node))):
        return "a floating point number rounded to BIGINT"
    if isinstance(node, exp.VarMap | exp.Map) and _is_empty_array(node.args.get("keys")):
        return "a map without entries"  # whose export to Arrow would end this process
    if isinstance(node, exp.Sub) and all(
        any(map(pa.types.is_temporal, columns.types_in(side))) for side in (node.this, node.expression)
    ):
        return "a difference of times, which is an interval"
    return ""


def _is_empty_array(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Array) and not node.expressions


def _prints_otherwise(cast: exp.Cast, columns: Columns) -> bool:
    kinds = columns.types_in(cast.this)
    differs = any(test(kind) for kind in kinds for test in _UNCAST if not pa.types.is_date(kind))
    return differs or any(
        not inner.is_type("date")
        for inner in cast.this.find_all(exp.Cast)
        if inner.is_type(*exp.DataType.TEMPORAL_TYPES)
    )


def _name_columns(tree: exp.Query) -> None:
    """Give each output column a unique name, because DataFusion refuses equal names."""
    query: exp.Expr = tree
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return
    seen: set[str] = set()
    outputs = []
    for place, item in enumerate(query.expressions):
        name = item.alias_or_name.lower()
        if item.is_star or (name and name not in seen and not isinstance(item, exp.Func)):
            seen.add(name)
            outputs.append(item)
        else:
            outputs.append(exp.alias_(item.unalias(), f"dredge_column_{place}"))
    query.set("expressions", outputs)


def _type_literals(query: exp.Expr) -> None:
    """Cast whole-number literals in the outputs to INT, their type in Spark; in DataFusion their type is BIGINT."""
    if isinstance(query, exp.SetOperation):
        _type_literals(query.this)
        _type_literals(query.expression)
    elif isinstance(query, exp.Subquery):
        _type_literals(query.this)
    elif isinstance(query, exp.Select):
        source = query.args.get("from_")
        if query.is_star and source is not None:
            _type_literals(source.this)
        for item in query.expressions:
            value = item.this if isinstance(item, exp.Alias) else item
            digits = value.this if isinstance(value, exp.Neg) else value
            whole = isinstance(digits, exp.Literal) and not digits.is_string and digits.name.isdigit()
            if whole and int(digits.name) <= _LARGEST_INT:
                value.replace(exp.cast(value.copy(), "int"))


def _rewrite(node: exp.Expr, columns: Columns) -> exp.Expr:
    """Return a node of a Spark SQL tree in DataFusion's syntax."""
    if isinstance(node, exp.IntDiv):
        whole = exp.Div(this=exp.cast(node.this, "bigint"), expression=exp.cast(node.expression, "bigint"), typed=True)
        return exp.Paren(this=whole)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Cast) and _is_number(node.this.this):
        # -128Y: without its sign the number does not fit.
        return _rewrite_cast(exp.Cast(**{**node.this.args, "this": exp.Neg(this=node.this.this)}), columns)
    if isinstance(node, exp.Cast):
        return _rewrite_cast(node, columns)
    if isinstance(node, _COMPARISONS):
        return _without_zones(node, columns)
    if isinstance(node, exp.Dot) and isinstance(node.this, exp.Paren):
        return _field_of(node.this.unnest().transform(_rewrite, columns), node.name, columns)
    if isinstance(node, exp.Column):
        deep = _deep_field(node, columns)
        if deep is not None:
            return deep
    if isinstance(node, exp.Column) and node.args.get("db") is not None and node.table.lower() not in columns.kinds:
        # "database.table.column": DataFusion knows tables only by their aliases.
        return exp.column(node.this, table=node.args["table"])
    if isinstance(node, exp.IsNan):
        return exp.Coalesce(
            this=exp.Anonymous(this="isnan", expressions=[node.this]), expressions=[exp.Boolean(this=False)]
        )
    if isinstance(node, exp.Length) and isinstance(node.this, exp.Column):
        kinds = columns.types_in(node.this)
        if kinds and all(map(_is_bytes, kinds)):  # DataFusion's length() decodes bytes as text
            value = exp.Anonymous(this="arrow_cast", expressions=[node.this, exp.Literal.string("Binary")])
            return exp.Anonymous(this=BINARY_LENGTH, expressions=[value])
    if isinstance(node, exp.Sign):
        return exp.Anonymous(this="signum", expressions=[exp.cast(node.this, "double")])
    if (
        isinstance(node, exp.Literal)
        and not node.is_string
        and not node.name.isdigit()
        and _beside_floats(node, columns)
    ):
        return exp.cast(exp.Literal.string(node.name) if _is_finite(node) else node, "double")
    return node


def _without_zones(node: exp.Expr, columns: Columns) -> exp.Expr:
    """Return a comparison in which texts beside a TIMESTAMP_NTZ column have no time zone.

    Spark casts the text to TIMESTAMP_NTZ, which ignores the zone; DataFusion would convert the time to UTC.
    """
    keys = ("this", "expression", "low", "high")
    sides = [side for key in keys if isinstance(side := node.args.get(key), exp.Expr)]
    sides += node.args.get("expressions") or []
    if not any(isinstance(side.unnest(), exp.Column) and _is_local_time(side.unnest(), columns) for side in sides):
        return node
    for side in sides:
        inner = side.unnest()
        if inner.is_string:
            inner.replace(exp.Literal.string(_ZONED_TIME.sub(r"\1", inner.name)))
        elif isinstance(inner, exp.Column) and _is_text(inner, columns):
            inner.replace(exp.cast(_text_without_zone(inner.copy()), "timestampntz"))
    return node


def _is_local_time(column: exp.Expr, columns: Columns) -> bool:
    kinds = columns.types_in(column)
    return bool(kinds) and all(pa.types.is_timestamp(kind) and kind.tz is None for kind in kinds)


def _is_text(column: exp.Expr, columns: Columns) -> bool:
    kinds = columns.types_in(column)
    return bool(kinds) and all(map(pa.types.is_string, kinds))


def _text_without_zone(text: exp.Expr) -> exp.Expr:
    """Return an expression for a text of a time without the time zone at its end."""
    pattern = [exp.Literal.string(_ZONED_TIME.pattern), exp.Literal.string(r"\1")]
    return exp.Anonymous(this="regexp_replace", expressions=[text, *pattern])


def _arrow_type(kind: exp.DataType) -> str | None:
    """Return Arrow's name of a type for arrow_cast(), or None if the type has no such name here."""
    if kind.is_type("decimal"):
        digits = [parameter.name for parameter in kind.expressions] or ["10"]
        return f"Decimal128({digits[0]}, {digits[1] if len(digits) > 1 else 0})"
    if kind.is_type("timestampntz"):
        return "Timestamp(Microsecond, None)"
    if kind.is_type("timestamptz", "timestampltz"):
        return f'Timestamp(Microsecond, Some("{SESSION_ZONE}"))'
    return next((arrow_type for name, arrow_type in _ARROW_TYPES.items() if kind.is_type(name)), None)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _rewrite_cast(node: exp.Cast, columns: Columns) -> exp.Expr:
    """Return a Spark SQL cast in DataFusion's syntax, with Spark's result."""
    if node.is_type("timestampntz") and node.this.is_string:
        # Spark ignores the time zone of such a text, DataFusion converts the time to UTC.
        node.set("this", exp.Literal.string(_ZONED_TIME.sub(r"\1", node.this.name)))
    elif node.is_type("timestampntz") and isinstance(node.this, exp.Column) and _is_text(node.this, columns):
        node.set("this", _text_without_zone(node.this))
    elif node.is_type("timestampltz"):
        node.set("to", exp.DataType.build("timestamptz"))
    if node.is_type("date", "timestampntz", "timestamptz") and node.this.is_string:
        parts = _PARTIAL_DATE.match(node.this.name)
        if parts is not None:
            text = "-".join([parts[1], *((part or "1").zfill(2) for part in parts.groups()[1:])])
            node.set("this", exp.Literal.string(text))
    if node.is_type("tinyint") or node.args.get("safe"):
        # PostgreSQL, whose dialect sqlglot writes, has neither TINYINT (SMALLINT holds larger numbers) nor TRY_CAST.
        arrow_type = _arrow_type(node.to)
        if arrow_type is not None:
            function = "arrow_try_cast" if node.args.get("safe") else "arrow_cast"
            value = node.this.copy().transform(_rewrite, columns)
            return exp.Anonymous(this=function, expressions=[value, exp.Literal.string(arrow_type)])
    if node.to.is_type("double", "float") and (
        any(map(pa.types.is_decimal, columns.types_in(node.this))) or node.this.is_type("decimal")
    ):
        # By its digits: DataFusion's own cast is not the nearest number.
        node.set("this", exp.cast(node.this, "varchar"))
    elif node.to.is_type("double", "float"):
        value = node.this.unnest()
        digits = value.this.unnest() if isinstance(value, exp.Neg) else value
        if _is_number(digits) and _is_finite(digits):  # DataFusion parses it as a decimal
            node.set("this", exp.Literal.string(f"{'-' * (digits is not value)}{digits.name}"))
    return node


def _is_finite(number: exp.Expr) -> bool:
    """Return whether a number fits DOUBLE; as a text, a larger one would become infinite instead of an error."""
    return math.isfinite(float(number.name))


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _deep_field(node: exp.Column, columns: Columns) -> exp.Expr | None:
    """Return a doubly nested field (`s.n.x`, `t.s.n.x`), or None if the column is not doubly nested.

    DataFusion would parse the path of a doubly nested field as the name of a table.
    """
    parts = [part.name for part in node.parts]
    at = next(
        (
            place
            for place, part in enumerate(parts[:-2])
            if any(map(pa.types.is_struct, columns.kinds.get(part.lower(), ())))
        ),
        None,
    )
    if at is None:
        return None
    table = exp.to_identifier(parts[at - 1], quoted=True) if at else None
    expression: exp.Expr = exp.column(exp.to_identifier(parts[at], quoted=True), table=table)
    for name in parts[at + 1 :]:
        expression = _field_of(expression, name, columns)
    return expression


def _field_of(base: exp.Expr, name: str, columns: Columns) -> exp.Expr:
    spelled = columns.nested.get(name.lower(), name)
    return exp.Anonymous(this="get_field", expressions=[base, exp.Literal.string(spelled)])


def _beside_floats(literal: exp.Literal, columns: Columns) -> bool:
    """Return whether a literal must become a DOUBLE: it has an exponent or is in an expression with DOUBLE columns."""
    expression: exp.Expr = literal
    if isinstance(literal.parent, exp.Cast):
        return False
    while isinstance(expression.parent, exp.Binary | exp.Unary | exp.Between | exp.In | exp.Func) and not isinstance(
        expression.parent, exp.Connector
    ):
        expression = expression.parent
    return "e" in literal.name.lower() or any(map(pa.types.is_floating, columns.types_in(expression)))
