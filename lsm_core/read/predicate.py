"""Filters: a caller's condition, parsed into groups of tests or an Arrow expression, prunes files and filters rows."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, empty_table
from lsm_core.errors import ColumnNotFound, InvalidFilter
from lsm_core.format.schema import TableSchema
from lsm_core.read.sql_text import MOST_TESTS, OPPOSITES, CompoundCondition, Condition, groups_of, parse_condition

_COMPARISONS: Final = {"=": "equal", "==": "equal", "!=": "not_equal", "<>": "not_equal"} | {
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
_NAN_TESTS: Final = ("is nan", "is not nan")
_UNARY: Final = ("is null", "is not null", *_NAN_TESTS)
_OPERATORS: Final = (*_COMPARISONS, "in", "not in", "starts with", *_UNARY)
_WILD: Final = re.compile(r"[%_\\]")
_HIGHEST: Final = chr(0x10FFFF)
ALWAYS: Final = pc.scalar(arrow_scalar(value=True))
_NEVER: Final = pc.scalar(arrow_scalar(value=False))


@dataclass(frozen=True)
class Conjunct:
    """One test of a column, such as `price >= 10` or `name is null`.

    Attributes:
        column: name of the column.
        op: operator in lower case: a comparison (`=`, `==`, `!=`, `<>`, `<`, `<=`, `>`, `>=`), `in`, `not in`, `starts
            with`, `is null`, `is not null`, `is nan` or `is not nan`.
        value: Arrow scalar to compare with, or Arrow array for `in` and `not in`. None if the operator takes no value,
            or if ``others`` has the values.
        others: values of an `in` or `not in` test if the column's type cannot store all of them exactly. These values
            are compared one by one.
    """

    column: str
    op: str
    value: pa.Scalar | pa.Array | None
    others: tuple[pa.Scalar, ...] = ()


Groups = tuple[tuple[Conjunct, ...], ...]


@dataclass(frozen=True)
class Predicate:
    """Parsed filter.

    Attributes:
        expression: the condition on rows.
        columns: the columns that the filter may read, in table order.
        groups: or-ed lists of and-ed tests; None for an Arrow expression, and for SQL text that has no such form.
        by_position: whether the expression names columns by number, so that batches must hold all columns.
    """

    expression: pc.Expression
    columns: tuple[str, ...]
    groups: tuple[tuple[Conjunct, ...], ...] | None
    by_position: bool = False

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``batch`` for which the filter is true; null is not true.

        Args:
            batch: rows with at least :attr:`columns`.
        """
        if self.groups is None:
            return batch.filter(self.expression)
        # Evaluated by kernels: importing Arrow's query engine takes a third of a second, and it is slower for a batch.
        if not all(self.groups):  # a group without tests is true
            return batch
        groups = (reduce(pc.and_kleene, [_mask(test, batch) for test in group]) for group in self.groups)
        return batch.filter(reduce(pc.or_kleene, groups))


@dataclass(frozen=True)
class ComputedPredicate(Predicate):
    """Filter that a function evaluates, for example a condition with subqueries.

    Attributes:
        compute: function that returns one boolean for each row of a batch with the columns `columns`; null is not true.
    """

    compute: Callable[[pa.RecordBatch], pa.Array] = field(kw_only=True)

    @staticmethod
    def of(
        compute: Callable[[pa.RecordBatch], pa.Array], columns: Sequence[str], necessary: Predicate | None = None
    ) -> ComputedPredicate:
        """Return the filter that a function evaluates.

        Args:
            compute: function that returns one boolean for each row of a batch; null is not true.
            columns: columns that the function needs.
            necessary: filter that is true for each row for which the function is true; it prunes files and partitions.
        """
        groups = ((),) if necessary is None or necessary.groups is None else necessary.groups
        needed = (*columns, *(() if necessary is None else necessary.columns))
        return ComputedPredicate(ALWAYS, tuple(dict.fromkeys(needed)), groups, compute=compute)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``batch`` for which the function is true."""
        return batch.filter(self.compute(batch))


def parse_filter(condition: object, schema: TableSchema, table: str) -> Predicate | None:
    """Parse a filter (its forms are described in engine.md).

    Floating point values compare as in Arrow and in SQL on IEEE numbers: NaN is neither equal, less nor greater, and
    -0.0 equals 0.0. Java orders NaN above all numbers and -0.0 below 0.0; primary keys and partitions use Java's order.

    Args:
        condition: a tuple (column, operator, value), a list of and-ed tuples, a list of or-ed lists, SQL text, an Arrow
            expression, or a parsed filter.
        schema: schema of the table.
        table: name of the table, for errors.

    Returns:
        The filter; None if the condition is None or an empty list.

    Raises:
        InvalidFilter: a part of the filter is not understood.
        ColumnNotFound: a column does not exist.
    """
    if condition is None:
        return None
    if isinstance(condition, Predicate):
        return condition
    if isinstance(condition, pc.Expression):
        return _check_expression(condition, schema, table)
    if isinstance(condition, str):
        return _parse_text(condition, schema, table)
    groups = tuple(
        tuple(_parse_test(item, schema, table) for item in group) for group in _split_groups(condition, table)
    )
    if not groups:
        return None
    groups = _merge_groups(groups, schema)
    tests = sum(max(1, len(test.others)) for group in groups for test in group)
    if tests > MOST_TESTS:
        raise InvalidFilter(
            f"table {table}: {tests} tests in one filter, more than {MOST_TESTS}; use 'in' for long lists"
        )
    expression = _fold_balanced([_fold_balanced([_expression(c) for c in group], "and") for group in groups], "or")
    used = {conjunct.column for group in groups for conjunct in group}
    return Predicate(expression, tuple(name for name in schema.field_names if name in used), groups)


def _parse_text(text: str, schema: TableSchema, table: str) -> Predicate | None:
    """Parse a SQL condition into a filter; a name that matches no column exactly is matched without regard to case.

    A SQL condition has at least one test, so the result is never None.
    """
    condition = _resolve_names(parse_condition(text, table), schema, table)
    if not _needs_expression(condition):
        return parse_filter(groups_of(condition, table), schema, table)
    expression, columns = _condition_expression(condition, schema, table)
    return Predicate(expression, tuple(name for name in schema.field_names if name in columns), None)


def _resolve_names(condition: Condition, schema: TableSchema, table: str) -> Condition:
    """Return the condition with the table's own column names.

    Operators of SQL become the filter operators with the same meaning.
    """
    if isinstance(condition, CompoundCondition):
        return CompoundCondition(condition.word, tuple(_resolve_names(part, schema, table) for part in condition.parts))
    name, op, value = condition
    if not schema.has_field(name):
        matching_fields = [field_name for field_name in schema.field_names if field_name.lower() == name.lower()]
        if len(matching_fields) != 1:
            raise ColumnNotFound(table, name, schema.field_names)
        name = matching_fields[0]
    kind = schema.arrow_schema.field(name).type
    floating = pa.types.is_floating(kind)
    if floating:
        value = [_as_float(item) for item in value] if isinstance(value, list) else _as_float(value)
    else:  # not for floating point: NaN is neither below nor above a number
        op = OPPOSITES.get(op, op)
    if op in ("like", "not like"):
        if not pa.types.is_string(kind):
            raise InvalidFilter(f"table {table}, column '{name}': LIKE needs a text column, but its type is {kind}")
        prefix = value.removesuffix("%")
        if not _WILD.search(prefix) and (op == "like" or prefix == value):
            op = {"like": "=", "not like": "!="}[op] if prefix == value else "starts with"
            value = prefix
    return name, op, value


def _as_float(value: Any) -> Any:
    """Convert a number from a SQL text to a float; return all other values unchanged.

    A number beyond the range of DOUBLE is returned unchanged, and is equal to no value.
    """
    if isinstance(value, bool) or not isinstance(value, (decimal.Decimal, int)):
        return value
    try:
        number = float(value)
    except OverflowError:
        return value
    return number if math.isfinite(number) else value


def _needs_expression(condition: Condition) -> bool:
    """Return whether a condition must become an Arrow expression, because it cannot be listed as or-ed groups.

    This is so if a filter tuple has no operator for a comparison, or if there are too many alternatives.
    """
    if isinstance(condition, CompoundCondition):
        return any(map(_needs_expression, condition.parts)) or _alternatives(condition) > MOST_TESTS
    return condition[1] not in _OPERATORS


def _alternatives(condition: Condition) -> int:
    if not isinstance(condition, CompoundCondition):
        return 1
    counts = [_alternatives(part) for part in condition.parts]
    return sum(counts) if condition.word == "OR" else math.prod(counts) * len(counts)


def _condition_expression(condition: Condition, schema: TableSchema, table: str) -> tuple[pc.Expression, set[str]]:
    """Return a condition as an Arrow expression, and the columns that it reads."""
    if isinstance(condition, CompoundCondition):
        parts = [_condition_expression(part, schema, table) for part in condition.parts]
        combined = _fold_balanced([part for part, _ in parts], condition.word.lower())
        return combined, set().union(*(columns for _, columns in parts))
    name, op, value = condition
    if op in ("like", "not like"):
        matches = pc.match_like(pc.field(name), pattern=value)
        return matches if op == "like" else ~matches, {name}
    negated = op in OPPOSITES
    test = _parse_test((name, op.removeprefix("not ") if negated else op, value), schema, table)
    if negated and isinstance(test.value, pa.Scalar) and test.value.is_valid:
        return ~_expression(test), {name}
    return _NEVER if negated else _expression(test), {name}


def _merge_groups(groups: Groups, schema: TableSchema) -> Groups:
    """Merge groups that consist of a single `=` test into one `in` test per column.

    Arrow evaluates `in` faster than many or-ed tests.
    """
    values_by_column: dict[str, list[pa.Scalar]] = {}
    others = []
    for group in groups:
        (test, *further_tests) = group or (None,)
        if further_tests or test is None or test.op not in ("=", "==") or not isinstance(test.value, pa.Scalar):
            others.append(group)
        elif test.value.is_valid:  # `= null` is never true
            values_by_column.setdefault(test.column, []).append(test.value)
    if sum(map(len, values_by_column.values())) < 2:
        return groups
    kinds = schema.arrow_schema
    in_tests = [(_in_test(name, "in", values, kinds.field(name).type),) for name, values in values_by_column.items()]
    return (*in_tests, *others)


def _split_groups(condition: object, table: str) -> list[list[Any]]:
    if not isinstance(condition, (list, tuple)):
        raise InvalidFilter(
            f"table {table}: a filter must be a list of tuples, SQL text or an Arrow expression, "
            f"not {type(condition).__name__}"
        )
    if isinstance(condition, tuple) and condition and isinstance(condition[0], str):
        return [[condition]]
    if all(isinstance(item, tuple) for item in condition):
        return [list(condition)] if condition else []
    if all(isinstance(item, list) for item in condition):
        return [list(item) for item in condition]
    raise InvalidFilter(f"table {table}: a filter mixes tuples and lists: {condition!r}")


def _parse_test(item: object, schema: TableSchema, table: str) -> Conjunct:
    if not isinstance(item, tuple) or not 2 <= len(item) <= 3 or not all(isinstance(part, str) for part in item[:2]):
        raise InvalidFilter(f"table {table}: {item!r} is not (column, operator, value)")
    name, op = item[0], " ".join(item[1].lower().split())
    value = item[2] if len(item) == 3 else None
    if not schema.has_field(name):
        raise ColumnNotFound(table, name, schema.field_names)
    if op not in _OPERATORS:
        raise InvalidFilter(
            f"table {table}, column '{name}': unknown operator {item[1]!r}; known: {', '.join(_OPERATORS)}"
        )
    kind = schema.arrow_schema.field(name).type
    unary = op in _UNARY
    if len(item) == 2 and not unary:
        raise InvalidFilter(f"table {table}, column '{name}': {item!r} has no value to compare with")
    if unary:
        if op in _NAN_TESTS and not pa.types.is_floating(kind):
            raise InvalidFilter(f"table {table}, column '{name}': '{op}' takes a floating point column, not {kind}")
        if value is not None:
            raise InvalidFilter(f"table {table}, column '{name}': '{op}' takes no value, not {value!r}")
        return Conjunct(name, op, None)
    if op in ("in", "not in"):
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise InvalidFilter(f"table {table}, column '{name}': '{op}' needs a list, not {value!r}")
        values = list(value)
        scalars = [_parse_value(v, kind, name, table) for v in values if v is not None]
        if op == "not in" and len(scalars) < len(values):
            return Conjunct(name, "=", arrow_scalar(None, kind))  # no value is known to differ from null (Java `NotIn`)
        return _in_test(name, op, scalars, kind)
    if op == "starts with" and not (isinstance(value, str) and pa.types.is_string(kind)):
        raise InvalidFilter(
            f"table {table}, column '{name}': 'starts with' needs a text column and a text, not {value!r}"
        )
    return Conjunct(name, op, _parse_value(value, kind, name, table))


def _parse_value(value: object, kind: pa.DataType, name: str, table: str) -> pa.Scalar:
    """Convert ``value`` to a scalar of the column's type ``kind``, or of a comparable type if it does not fit."""
    if value is None:
        return arrow_scalar(None, kind)
    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    if hasattr(plain, "item") and not isinstance(plain, (dt.date, dt.time)):
        plain = plain.item()  # a NumPy scalar
    plain = _parse_temporal(plain, kind)
    try:
        return _exact_scalar(plain, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    wide = _comparable_scalar(plain, kind)
    if wide is None:
        raise InvalidFilter(f"table {table}, column '{name}': {value!r} cannot be compared with {kind}")
    return wide


def _exact_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_boolean(kind) is not isinstance(value, bool):
        raise TypeError("booleans compare with booleans only")
    scalar = arrow_scalar(value, kind)
    if isinstance(value, (int, float, decimal.Decimal)) and not math.isnan(value) and scalar.as_py() != value:
        raise ValueError("not exact")
    if isinstance(value, dt.date) and scalar.as_py() != value:  # Arrow truncates the time of day and small fractions
        raise ValueError("not exact")
    return scalar


def _parse_temporal(value: Any, kind: pa.DataType) -> Any:
    """Parse ISO texts for temporal columns and numbers for decimal columns; return other values unchanged."""
    try:
        if isinstance(value, str) and pa.types.is_date(kind):
            return dt.date.fromisoformat(value)
        if isinstance(value, str) and pa.types.is_timestamp(kind):
            value = dt.datetime.fromisoformat(value)
            if kind.tz is None:  # Spark casts the text to TIMESTAMP_NTZ, which ignores a time zone
                return value.replace(tzinfo=None)
        elif pa.types.is_timestamp(kind) and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = dt.datetime.combine(value, dt.time())
        elif isinstance(value, str) and pa.types.is_time(kind):
            return dt.time.fromisoformat(value)
        elif isinstance(value, str) and pa.types.is_decimal(kind):
            return decimal.Decimal(value)
    except (ValueError, decimal.InvalidOperation):
        return value
    if (
        isinstance(value, dt.datetime)
        and pa.types.is_timestamp(kind)
        and (value.tzinfo is None) is (kind.tz is not None)
    ):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
    return value


def _comparable_scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Convert a value that the column's type cannot store to a scalar of a type that is comparable with the column.

    Examples are 3.5 for an INT column and a long for a TINYINT column. None means that there is no such type.
    """
    if isinstance(value, bool):
        return None
    try:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            if isinstance(value, int) and not pa.types.is_floating(kind):
                return (
                    arrow_scalar(decimal.Decimal(value)) if abs(value) >= 1 << 63 else arrow_scalar(value, pa.int64())
                )
            if isinstance(value, (int, float)):
                return arrow_scalar(float(value), pa.float64())
            if isinstance(value, decimal.Decimal):
                return arrow_scalar(value)
        if pa.types.is_temporal(kind) and isinstance(value, dt.datetime):
            return arrow_scalar(value, pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None))
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    return None


def _in_test(name: str, op: str, scalars: list[pa.Scalar], kind: pa.DataType) -> Conjunct:
    """Return an `in` or `not in` test (``op``) for ``scalars``, which contain no null.

    The test compares as `=` does: NaN equals nothing, and -0.0 equals 0.0.
    """
    fitting = [scalar for scalar in scalars if scalar.type == kind]
    values = arrow_array([scalar.as_py() if not hasattr(scalar, "value") else scalar.value for scalar in fitting], kind)
    if pa.types.is_floating(kind):  # Arrow's is_in compares bits: NaN would match, and the zero of the other sign not
        values = values.filter(pc.invert(pc.is_nan(values)))
        if pc.any(pc.equal(values, arrow_scalar(0))).as_py():
            values = pa.concat_arrays([values, arrow_array([0.0, -0.0]).cast(kind)])
    others = [scalar for scalar in scalars if scalar.type != kind]
    if not others:
        return Conjunct(name, op, values)
    return Conjunct(name, op, None, (*values, *others))


def _expression(test: Conjunct) -> pc.Expression:
    column = pc.field(test.column)
    if test.op == "is null":
        return column.is_null()
    if test.op == "is not null":
        return column.is_valid()
    if test.op in _NAN_TESTS:
        return pc.is_nan(column) if test.op == "is nan" else ~pc.is_nan(column)
    if test.op in ("in", "not in"):
        inside = _fold_balanced([column == o for o in test.others], "or") if test.others else column.isin(test.value)
        return inside if test.op == "in" else column.is_valid() & ~inside
    assert isinstance(test.value, pa.Scalar)
    if not test.value.is_valid:
        return _NEVER
    if test.op == "starts with":
        prefix = test.value.as_py()
        starts, end = pc.starts_with(column, pattern=prefix), prefix_end(prefix)
        # The range that the test implies is added, because pruning understands only ranges.
        return starts if end is None else starts & (column >= arrow_scalar(prefix)) & (column < arrow_scalar(end))
    compared: pc.Expression = _COMPARE[_COMPARISONS[test.op]](column, test.value)
    return compared


def _mask(test: Conjunct, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate one test on a batch: one boolean per row, null if unknown.

    The result is the same as if Arrow evaluated the test as part of a filter expression.
    """
    column = batch.column(test.column)
    if test.op == "is null":
        return pc.is_null(column)
    if test.op == "is not null":
        return pc.is_valid(column)
    if test.op in _NAN_TESTS:
        return pc.is_nan(column) if test.op == "is nan" else pc.invert(pc.is_nan(column))
    if test.op in ("in", "not in"):
        inside = (
            reduce(pc.or_kleene, [pc.equal(column, other) for other in test.others])
            if test.others
            else pc.is_in(column, value_set=test.value)
        )
        return inside if test.op == "in" else pc.and_kleene(pc.is_valid(column), pc.invert(inside))
    assert isinstance(test.value, pa.Scalar)
    if not test.value.is_valid:
        return arrow_array(np.zeros(len(column), np.bool_))
    if test.op == "starts with":
        return pc.starts_with(column, pattern=test.value.as_py())
    return pc.call_function(_COMPARISONS[test.op], [column, test.value])


def prefix_end(prefix: str) -> str | None:
    """Return the smallest text above all texts that start with ``prefix``, or None if none exists."""
    for length in range(len(prefix), 0, -1):
        last = prefix[length - 1]
        if last != _HIGHEST:
            following = 0xE000 if ord(last) == 0xD7FF else ord(last) + 1
            return prefix[: length - 1] + chr(following)
    return None


def _fold_balanced(parts: Sequence[pc.Expression], operator_name: str) -> pc.Expression:
    """Join Arrow expressions with an operator ("and", "or") to one expression, as a balanced tree.

    Arrow traverses expressions recursively: a chain of thousands of parts would overflow the stack and end the process.
    """
    if len(parts) < 2:
        return parts[0] if parts else ALWAYS
    half = len(parts) // 2
    left, right = _fold_balanced(parts[:half], operator_name), _fold_balanced(parts[half:], operator_name)
    return left & right if operator_name == "and" else left | right


def _check_expression(expression: pc.Expression, schema: TableSchema, table: str) -> Predicate:
    """Check an Arrow expression against the schema, and derive its columns (or a superset) from its text."""
    try:
        empty_table(schema.arrow_schema).filter(expression)
    except (pa.ArrowException, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        missing = re.search(r"FieldRef\.Name\((.*?)\)", reason)
        if missing:
            raise ColumnNotFound(table, missing.group(1), schema.field_names) from error
        raise InvalidFilter(f"table {table}: {reason}") from error
    text = str(expression)
    by_position = "FieldPath(" in text or "FieldRef." in text
    used = tuple(name for name in schema.field_names if by_position or name in text)
    return Predicate(expression, used, None, by_position)
