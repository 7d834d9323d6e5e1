"""Aggregate functions as Spark SQL expressions over an accumulator and an input; those that cannot be said exactly are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField
from lsm_core.spark.view.values import FLOATS, literal, ordered
from lsm_core.types import TypeRoot

Pair = Callable[[str, str], str]
_INTEGERS: Final = {
    TypeRoot.TINYINT: "TINYINT",
    TypeRoot.SMALLINT: "SMALLINT",
    TypeRoot.INT: "INT",
    TypeRoot.BIGINT: "BIGINT",
}
_BLANKS: Final = " \t\n\x0b\x0c\r"
_MOST_DIGITS: Final = 38


@dataclass(frozen=True)
class Function:
    """One column's function. ``a`` and ``x`` are expressions of the accumulator and the input, ``y`` whether it was asked before.

    ``asks``: its answer depends on that; "valid": only inputs that are not null count as asking.
    """

    plain: Pair
    take_back: Pair | None = None
    reversed: Pair | None = None
    asks: str = ""
    refusal: str = ""
    ignores_retracts: bool = False

    def agg(self, a: str, x: str, y: str) -> str:
        """After an input."""
        if self.asks:
            return f"IF({y}{f' OR {x} IS NULL' if self.asks == 'valid' else ''}, {a}, {x})"
        return self.plain(a, x)

    def late(self, a: str, x: str, y: str) -> str:
        """After an input that comes before what is there: the arguments change places."""
        return self.agg(x, a, y) if self.reversed is None else self.reversed(a, x)

    def retract(self, a: str, x: str) -> str:
        """After an input is taken back; where that is not possible the query fails, as merging does."""
        if self.ignores_retracts:
            return a
        if self.take_back is None:
            return f"IF(true, raise_error({literal(self.refusal)}), {a})"
        return self.take_back(a, x)

    def asks_of(self, value: str) -> str:
        """Whether a call with this value counts as asking."""
        return f"{value} IS NOT NULL" if self.asks == "valid" else "true"


def function_of(name: str, field: DataField, raw: Mapping[str, str], table: str) -> Function:
    """The function of a column. Raises UnsupportedFeature naming function, column and type."""
    maker = _FUNCTIONS.get(name)
    made = None if maker is None else maker(field, raw)
    if made is None:
        raise UnsupportedFeature(
            f"comparing column '{field.name}' of type {field.type} with aggregate function '{name}' on Spark", table
        )
    ignores = _option(raw, field, "ignore-retract").strip().lower() == "true"
    refusal = f"table {table}: aggregate function '{name}' of column '{field.name}' does not take back (-U, -D)"
    return Function(made.plain, made.take_back, made.reversed, made.asks, refusal, ignores)


def _option(raw: Mapping[str, str], field: DataField, name: str, default: str = "") -> str:
    return raw.get(f"fields.{field.name}.{name}", default)


def _the_input(a: str, x: str) -> str:
    del a
    return x


def _the_accumulator(a: str, x: str) -> str:
    del x
    return a


def _nothing(a: str, x: str) -> str:
    del a, x
    return "NULL"


def _both(combine: Pair) -> Pair:
    """Nulls change nothing."""
    return lambda a, x: f"CASE WHEN {a} IS NULL THEN {x} WHEN {x} IS NULL THEN {a} ELSE {combine(a, x)} END"


def _sum(field: DataField, raw: Mapping[str, str]) -> Function | None:
    """Decimals that leave their precision become null, as they do in Java."""
    del raw
    kind, shape = field.type, "({})"
    if kind.root is TypeRoot.DECIMAL:
        if (kind.precision or 0) >= _MOST_DIGITS:
            return None  # Spark would round the sum to make room for a digit
        shape = f"try_cast({{}} AS DECIMAL({kind.precision}, {kind.scale or 0}))"
    elif kind.root not in _INTEGERS and kind.root not in FLOATS:
        return None

    def add(a: str, x: str) -> str:
        return shape.format(f"{a} + {x}")

    def subtract(a: str, x: str) -> str:
        return shape.format(f"{a} - {x}")

    def take_back(a: str, x: str) -> str:
        return f"CASE WHEN {x} IS NULL THEN {a} WHEN {a} IS NULL THEN -({x}) ELSE {subtract(a, x)} END"

    return Function(_both(add), take_back)


def _product(field: DataField, raw: Mapping[str, str]) -> Function | None:
    """Whole numbers only: other divisions are not Spark's."""
    del raw
    target = _INTEGERS.get(field.type.root)
    if target is None:
        return None

    def take_back(a: str, x: str) -> str:
        return f"IF({a} IS NULL OR {x} IS NULL, {a}, CAST({a} div {x} AS {target}))"

    return Function(_both(lambda a, x: f"({a} * {x})"), take_back)


def _extreme(smaller: bool) -> Callable[[DataField, Mapping[str, str]], Function]:
    def make(field: DataField, raw: Mapping[str, str]) -> Function:
        del raw

        def better(a: str, x: str) -> str:
            below = f"struct({ordered(a, field.type)}) < struct({ordered(x, field.type)})"
            return f"IF({below}, {a}, {x})" if smaller else f"IF({below}, {x}, {a})"

        return Function(_both(better))

    return make


def _listagg(field: DataField, raw: Mapping[str, str]) -> Function:
    """Texts joined; blank inputs are passed over and blank accumulators replaced."""
    delimiter = _option(raw, field, "list-agg-delimiter", ",")
    between = literal(delimiter)

    def blank(text: str) -> str:
        return f"trim(BOTH {literal(_BLANKS)} FROM {text}) = ''"

    def split(text: str) -> str:
        return f"split({text}, {literal(_quoted_pattern(delimiter))})"

    def join(a: str, x: str) -> str:
        joined = f"concat({a}, {between}, {x})"
        if _option(raw, field, "distinct").strip().lower() == "true":
            known = f"({blank('p')} OR array_contains({split('t')}, p))"
            joined = f"aggregate({split(x)}, {a}, (t, p) -> IF({known}, t, concat(t, {between}, p)))"
        return f"CASE WHEN {blank(x)} THEN {a} WHEN {blank(a)} THEN {x} ELSE {joined} END"

    return Function(_both(join))


def _quoted_pattern(text: str) -> str:
    """A Java pattern that matches the text and nothing else."""
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"


def _collect(field: DataField, raw: Mapping[str, str]) -> Function | None:
    """Arrays of plain values, late ones at the end too. Floats inside are not told apart by Spark as by the format."""
    element = field.type.element
    if element is None or element.is_nested or element.root in FLOATS:
        return None
    distinct = _option(raw, field, "distinct").strip().lower() == "true"

    def add(a: str, x: str) -> str:
        if not distinct:
            return _both(lambda one, other: f"concat({one}, {other})")(a, x)
        return f"IF({a} IS NULL AND {x} IS NULL, {a}, array_distinct(concat(coalesce({a}, array()), coalesce({x}, array()))))"

    def take_back(a: str, x: str) -> str:
        at = "array_position(transform(t, u -> u <=> e), true)"
        without = f"concat(slice(t, 1, CAST({at} AS INT) - 1), slice(t, CAST({at} AS INT) + 1, size(t)))"
        return f"IF({a} IS NULL OR {x} IS NULL, {a}, aggregate({x}, {a}, (t, e) -> IF({at} = 0, t, {without})))"

    return Function(add, take_back, reversed=add)


def _simple(
    plain: Pair, take_back: Pair | None = None, asks: str = ""
) -> Callable[[DataField, Mapping[str, str]], Function]:
    return lambda _field, _raw: Function(plain, take_back, asks=asks)


_FUNCTIONS: Final[dict[str, Callable[[DataField, Mapping[str, str]], Function | None]]] = {
    "primary-key": _simple(_the_input, _the_input),
    "sum": _sum,
    "count": _sum,  # stored as a sum of ones
    "product": _product,
    "max": _extreme(smaller=False),
    "min": _extreme(smaller=True),
    "last_value": _simple(_the_input, _nothing),
    "last_non_null_value": _simple(lambda a, x: f"coalesce({x}, {a})", lambda a, x: f"IF({x} IS NULL, {a}, NULL)"),
    "first_value": _simple(_the_accumulator, asks="any"),
    "first_non_null_value": _simple(_the_accumulator, asks="valid"),
    "first_not_null_value": _simple(_the_accumulator, asks="valid"),
    "bool_and": _simple(_both(lambda a, x: f"({a} AND {x})")),
    "bool_or": _simple(_both(lambda a, x: f"({a} OR {x})")),
    "listagg": _listagg,
    "collect": _collect,
}

__all__ = ["Function", "function_of"]
