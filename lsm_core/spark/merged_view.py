"""Merged rows of a table in Spark SQL over its raw files, the second path of verification.

The SQL follows the specification of the merge engines and shares no code with Dredge's merge. For deduplicate and
first-row, a window ranks the versions of a key. For partial-update and aggregation, Spark's function `aggregate` merges
the versions of a key one after another. A feature that Spark SQL cannot express exactly is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lsm_core.errors import UnsupportedFeature
from lsm_core.files.reader import numbered_by_snapshot
from lsm_core.format.manifest import ManifestEntry
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND, DataField, TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.options import PaimonVersion, version_written_by
from lsm_core.options.table_options import PAIMON_VERSION
from lsm_core.spark.spark_columns import expressions, quoted, spark_arrow_schema, spark_ddl
from lsm_core.spark.spark_read import stored_rows
from lsm_core.types import DataType, TypeRoot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# -- values: exact equality and order as in the format ---------------------------------------------------------------


FLOATS: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def exact(value: str, kind: DataType) -> str:
    """Return a SQL expression for a value that distinguishes -0.0 from 0.0, which Spark treats as equal.

    A floating-point value is compared as text. Values of other types are returned unchanged.

    Args:
        value: SQL of the value.
        kind: Type of the value.
    """
    return f"CAST({value} AS STRING)" if kind.root in FLOATS else value


def ordered(value: str, kind: DataType) -> str:
    """Return SQL for a value of type ``kind`` that sorts as in Paimon: nulls first, -0.0 below 0.0, NaN greatest."""
    if kind.root not in FLOATS:
        return value
    return f"struct({value} AS v, CAST({value} AS STRING) <> '-0.0' AS s)"


def exact_parts(field: DataField, unordered: bool, table: str) -> list[str]:
    """Return SQL expressions that are all equal for two rows exactly if the rows have the same value of the column.

    Args:
        field: The column.
        unordered: Whether arrays with the same elements in another order are equal.
        table: Name of the table, for errors.

    Raises:
        UnsupportedFeature: The type is nested, except an array of values that are not nested. Spark neither hashes nor
            compares maps.
    """
    name, kind = quoted(field.name), field.type
    if not kind.is_nested:
        return [f"{name} IS NULL", exact(name, kind)]
    element = kind.element
    if kind.root is not TypeRoot.ARRAY or element is None or element.is_nested:
        raise UnsupportedFeature(f"comparing column '{field.name}' of type {kind} on Spark", table)
    items = f"transform({name}, e -> {exact('e', element)})"
    items = f"sort_array({items})" if unordered else items
    # a hash ignores nulls inside an array
    return [f"{name} IS NULL", f"size({name})", f"transform({items}, e -> e IS NULL)", items]


def literal(text: str) -> str:
    """Return a text as a Spark SQL literal that is safe for all characters."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


# -- aggregate functions: expressions over an accumulator and an input -----------------------------------------------


Pair = Callable[[str, str], str]
_INTEGERS: Final = {
    TypeRoot.TINYINT: "TINYINT",
    TypeRoot.SMALLINT: "SMALLINT",
    TypeRoot.INT: "INT",
    TypeRoot.BIGINT: "BIGINT",
}
# Java's Character.isWhitespace
_BLANKS: Final = (
    " \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
)
_MOST_DIGITS: Final = 38


@dataclass(frozen=True)
class Function:
    """Aggregate function of one column, as SQL over the accumulator `a`, the input `x` and the flag `y`.

    The flag is true if the function was called before.

    Attributes:
        plain: Returns SQL of the accumulator after an input.
        take_back: Returns SQL of the accumulator after a retract; None if the function accepts no retracts.
        reversed: Returns SQL of the accumulator after an input that is older than the accumulator. None if this is
            ``plain`` with the two arguments swapped.
        counts_inputs: "" if the result does not depend on the flag, "any" if every call sets it, "valid" if only inputs
            that are not null set it.
        refusal: Message of the query's failure if the function accepts no retracts.
        ignores_retracts: Whether retracts do not change the accumulator.
    """

    plain: Pair
    take_back: Pair | None = None
    reversed: Pair | None = None
    counts_inputs: str = ""
    refusal: str = ""
    ignores_retracts: bool = False

    def agg(self, a: str, x: str, y: str) -> str:
        """Return SQL for the accumulator after an input.

        Args:
            a: SQL of the accumulator before the input.
            x: SQL of the input.
            y: SQL of the flag that is true if the function was called before.
        """
        if self.counts_inputs:
            return f"IF({y}{f' OR {x} IS NULL' if self.counts_inputs == 'valid' else ''}, {a}, {x})"
        return self.plain(a, x)

    def late(self, a: str, x: str, y: str) -> str:
        """Return SQL for the accumulator after an input that is older than the inputs before it.

        Args:
            a: SQL of the accumulator before the input.
            x: SQL of the input.
            y: SQL of the flag that is true if the function was called before.
        """
        return self.agg(x, a, y) if self.reversed is None else self.reversed(a, x)

    def retract(self, a: str, x: str) -> str:
        """Return SQL for the accumulator ``a`` after a retract of the value ``x`` (both are SQL).

        If the function accepts no retracts, the query fails with an error, as Dredge's merge does.
        """
        if self.ignores_retracts:
            return a
        if self.take_back is None:
            return f"IF(true, raise_error({literal(self.refusal)}), {a})"
        return self.take_back(a, x)

    def counts_call(self, value: str) -> str:
        """Return the SQL condition under which a call with input ``value`` counts as a call (sets the flag `y`)."""
        return f"{value} IS NOT NULL" if self.counts_inputs == "valid" else "true"


def function_of(name: str, field: DataField, raw: Mapping[str, str], table: str) -> Function:
    """Return the aggregate function of a column.

    Args:
        name: Name of the function.
        field: The column.
        raw: Options of the table as text.
        table: Name of the table.

    Raises:
        UnsupportedFeature: Spark SQL cannot express the function; the error names function, column and type.
    """
    maker = _FUNCTIONS.get(name)
    function = None if maker is None else maker(field, raw)
    if function is None:
        raise UnsupportedFeature(
            f"comparing column '{field.name}' of type {field.type} with aggregate function '{name}' on Spark", table
        )
    ignores = _option(raw, field, "ignore-retract").strip().lower() == "true"
    refusal = f"table {table}: aggregate function '{name}' of column '{field.name}' does not support retracts (-U, -D)"
    return Function(function.plain, function.take_back, function.reversed, function.counts_inputs, refusal, ignores)


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


def _unless_null(combine: Pair) -> Pair:
    """Return a SQL-building function that keeps the other operand if the accumulator or the input is null.

    Args:
        combine: returns SQL for an accumulator and an input that are not null.
    """
    return lambda a, x: f"CASE WHEN {a} IS NULL THEN {x} WHEN {x} IS NULL THEN {a} ELSE {combine(a, x)} END"


def _sum(field: DataField, raw: Mapping[str, str]) -> Function | None:
    """Return the aggregate function `sum` for a column; decimal sums beyond its precision are null, as in Java.

    Args:
        field: The column.
        raw: Options of the table as text; not used.

    Returns:
        The function. None if the column is not numeric, or is a DECIMAL of precision 38, whose sums Spark would round.
    """
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

    return Function(_unless_null(add), take_back)


def _product(field: DataField, raw: Mapping[str, str]) -> Function | None:
    """Return the aggregate function `product` for a column of whole numbers.

    Args:
        field: The column.
        raw: Options of the table as text; not used.

    Returns:
        The function. None for columns of other types: a retract divides, and Spark divides them unlike Paimon.
    """
    del raw
    target = _INTEGERS.get(field.type.root)
    if target is None:
        return None

    def take_back(a: str, x: str) -> str:
        return f"IF({a} IS NULL OR {x} IS NULL, {a}, CAST({a} div {x} AS {target}))"

    return Function(_unless_null(lambda a, x: f"({a} * {x})"), take_back)


def _extreme(smaller: bool) -> Callable[[DataField, Mapping[str, str]], Function]:
    def make(field: DataField, raw: Mapping[str, str]) -> Function:
        del raw

        def better(a: str, x: str) -> str:
            below = f"struct({ordered(a, field.type)}) < struct({ordered(x, field.type)})"
            return f"IF({below}, {a}, {x})" if smaller else f"IF({below}, {x}, {a})"

        return Function(_unless_null(better))

    return make


def _listagg(field: DataField, raw: Mapping[str, str]) -> Function:
    """Return the aggregate function `listagg` for a column, which joins texts.

    Empty inputs are ignored, and empty accumulators are replaced. Since Paimon 2.0 the same applies to blank texts.

    Args:
        field: The column.
        raw: Options of the table as text, such as the delimiter of the column.
    """
    delimiter = _option(raw, field, "list-agg-delimiter", ",")
    between = literal(delimiter)
    # quotation of a literal text in Java's regular expressions
    pattern = "\\Q" + delimiter.replace("\\E", "\\E\\\\E\\Q") + "\\E"

    trims = version_written_by(raw.get(PAIMON_VERSION)) not in (None, PaimonVersion.V1_4)

    def blank(text: str) -> str:
        if not trims:
            return f"{text} = ''"
        return f"trim(BOTH {literal(_BLANKS)} FROM {text}) = ''"

    def split(text: str) -> str:
        return f"split({text}, {literal(pattern)})"

    def join(a: str, x: str) -> str:
        concatenated = f"concat({a}, {between}, {x})"
        if _option(raw, field, "distinct").strip().lower() == "true":
            known = f"({blank('p')} OR array_contains({split('t')}, p))"
            concatenated = f"aggregate({split(x)}, {a}, (t, p) -> IF({known}, t, concat(t, {between}, p)))"
        return f"CASE WHEN {blank(x)} THEN {a} WHEN {blank(a)} THEN {x} ELSE {concatenated} END"

    def add(a: str, x: str) -> str:
        """Return SQL for the accumulator after an input; a blank input is ignored even if the accumulator is null."""
        return f"CASE WHEN {x} IS NULL OR {blank(x)} THEN {a} WHEN {a} IS NULL THEN {x} ELSE {join(a, x)} END"

    return Function(add if trims else _unless_null(join))


def _collect(field: DataField, raw: Mapping[str, str]) -> Function | None:
    """Return the aggregate function `collect` for a column, which appends an input at the end even if it is older.

    Args:
        field: The column.
        raw: Options of the table as text, such as `fields.<column>.distinct`.

    Returns:
        The function, or None if the column is no array, or its elements are nested or floating point. Spark compares
            floating point values unlike Paimon.
    """
    element = field.type.element
    if element is None or element.is_nested or element.root in FLOATS:
        return None
    distinct = _option(raw, field, "distinct").strip().lower() == "true"

    def add(a: str, x: str) -> str:
        if not distinct:
            return _unless_null(lambda left, right: f"concat({left}, {right})")(a, x)
        elements = f"concat(coalesce({a}, array()), coalesce({x}, array()))"
        return f"IF({a} IS NULL AND {x} IS NULL, {a}, array_distinct({elements}))"

    def take_back(a: str, x: str) -> str:
        at = "array_position(transform(t, u -> u <=> e), true)"
        without = f"concat(slice(t, 1, CAST({at} AS INT) - 1), slice(t, CAST({at} AS INT) + 1, size(t)))"
        return f"IF({a} IS NULL OR {x} IS NULL, {a}, aggregate({x}, {a}, (t, e) -> IF({at} = 0, t, {without})))"

    return Function(add, take_back, reversed=add)


def _simple(
    plain: Pair, take_back: Pair | None = None, counts_inputs: str = ""
) -> Callable[[DataField, Mapping[str, str]], Function]:
    return lambda _field, _raw: Function(plain, take_back, counts_inputs=counts_inputs)


_FUNCTIONS: Final[dict[str, Callable[[DataField, Mapping[str, str]], Function | None]]] = {
    "primary-key": _simple(_the_input, _the_input),
    "sum": _sum,
    "count": _sum,  # stored as a sum of ones
    "product": _product,
    "max": _extreme(smaller=False),
    "min": _extreme(smaller=True),
    "last_value": _simple(_the_input, _nothing),
    "last_non_null_value": _simple(lambda a, x: f"coalesce({x}, {a})", lambda a, x: f"IF({x} IS NULL, {a}, NULL)"),
    "first_value": _simple(_the_accumulator, counts_inputs="any"),
    "first_non_null_value": _simple(_the_accumulator, counts_inputs="valid"),
    "first_not_null_value": _simple(_the_accumulator, counts_inputs="valid"),
    "bool_and": _simple(_unless_null(lambda a, x: f"({a} AND {x})")),
    "bool_or": _simple(_unless_null(lambda a, x: f"({a} OR {x})")),
    "listagg": _listagg,
    "collect": _collect,
}


# -- partial-update and aggregation: a struct of all columns, changed by one version after another -------------------


_GROUP: Final = re.compile(r"fields\.(.+)\.sequence-group")
_DEFAULT: Final = "fields.default-aggregate-function"
_RETRACTS: Final = "x.k IN (1, 3)"
_DELETES: Final = "x.k = 3"


@dataclass(frozen=True)
class Fold:
    """SQL expressions that merge the versions of a key into a row.

    Spark's `aggregate` passes an accumulator `a` and a version `x` to an expression that returns the next accumulator.
    Both are structs.

    * `x` has a member for each column and the row kind `k`.
    * `a` has a member for each column and flags: `y` + member (the column's function was called before), `met` (a
      version was an insert) and `gone` (the row is deleted).
    * `g` has conditions on `x` and `a` that several steps need, computed once per version.

    Attributes:
        columns: Member of `a` and `x` by column name ("c0", "c1", ...).
        types: SQL type of each column's member.
        steps: SQL of the next accumulator's value by member, flags included; the SQL uses `a`, `x` and `g`.
        begins: Whether a retract that comes first passes its values to the accumulator.
        conditions: SQL conditions by member of `g`: `has_value<n>` and `newer<n>` of sequence group n, and `removed`
            (the version deletes the row); empty for aggregation tables.
    """

    columns: Mapping[str, str]
    types: Mapping[str, str]
    steps: Mapping[str, str]
    begins: bool
    conditions: Mapping[str, str]

    def expression(self, versions: str) -> str:
        """Return SQL for the merged struct of columns and flags.

        Args:
            versions: SQL of an array of version structs in merge order.
        """
        first = f"{versions}[0]"
        nothing = {member: f"CAST(NULL AS {kind})" for member, kind in self.types.items()}
        if self.begins:
            retracts = f"{first}.k IN (1, 3)"
            nothing = {member: f"IF({retracts}, {first}.{member}, {null})" for member, null in nothing.items()}
        start = ", ".join(
            [f"{value} AS {member}" for member, value in nothing.items()] + [f"false AS {f}" for f in self.flags]
        )
        step = ", ".join(f"{self.steps[member]} AS {member}" for member in (*self.columns.values(), *self.flags))
        if self.conditions:  # a lambda over one struct of them computes each once per version
            fields = ", ".join(f"{condition} AS {name}" for name, condition in self.conditions.items())
            after = f"transform(array(struct({fields})), g -> struct({step}))[0]"
        else:
            after = f"struct({step})"
        return f"aggregate({versions}, struct({start}), (a, x) -> {after})"

    def lone(self, versions: str) -> str:
        """Return SQL for the struct of a key with one version: the version's row, deleted if the version is a retract.

        Args:
            versions: SQL of an array with one version struct.
        """
        members = [f"{versions}[0].{member} AS {member}" for member in self.columns.values()]
        flags = [f"{versions}[0].k IN (1, 3) AS {f}" if f == "gone" else f"false AS {f}" for f in self.flags]
        return f"struct({', '.join([*members, *flags])})"

    @property
    def flags(self) -> list[str]:
        """Members of the accumulator other than columns."""
        return [member for member in self.steps if member not in self.types]


def fold_of(store: TableStore) -> Fold:
    """Return the SQL expressions that merge the versions of a key in a partial-update or aggregation table.

    Raises UnsupportedFeature for a function that Spark SQL cannot express exactly.
    """
    short = {field.name: f"c{number}" for number, field in enumerate(store.schema.fields)}
    types = {
        short[field.name]: spark_ddl([field], store.name).removeprefix(f"{quoted(field.name)} ")
        for field in store.schema.fields
    }
    if store.options.merge_engine == "aggregation":
        return Fold(short, types, _aggregation(store, short), begins=False, conditions={})
    steps, conditions = _partial_update(store, short)
    return Fold(short, types, steps, begins=True, conditions=conditions)


def _flag(store: TableStore, name: str) -> bool:
    return bool(store.options.get(name))


# -- aggregation -----------------------------------------------------------------------------------------------------


def _aggregation(store: TableStore, short: Mapping[str, str]) -> dict[str, str]:
    """Return the steps (`Fold.steps`) of an aggregation table, in which every column has a function.

    With `aggregation.remove-record-on-delete`, a -D deletes the row and sets all columns to the values of the -D.

    Args:
        store: The table.
        short: Member of the structs by column name.
    """
    raw, resets = store.options.raw, _flag(store, "aggregation.remove-record-on-delete")
    steps: dict[str, str] = {"gone": _DELETES if resets else "false"}
    for field in store.schema.fields:
        name, default = f"fields.{field.name}.aggregate-function", raw.get(_DEFAULT, "last_non_null_value")
        chosen = raw.get(name, default)
        if field.name in store.options.sequence_field:
            chosen = "last_value"
        if field.name in store.schema.primary_keys:
            chosen = "primary-key"
        function = function_of(chosen, field, raw, store.name)
        c = short[field.name]
        a, x, y = f"a.{c}", f"x.{c}", f"a.y{c}"
        step = f"IF({_RETRACTS}, {function.retract(a, x)}, {function.agg(a, x, y)})"
        steps[c] = f"IF({_DELETES}, {x}, {step})" if resets else step
        if function.counts_inputs:
            steps[f"y{c}"] = f"{y} OR (NOT {_RETRACTS} AND {function.counts_call(x)})"
    return steps


# -- partial-update --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Sequence group of a partial-update table.

    Attributes:
        number: Number of the group, part of the names of its conditions.
        ordering: Its sequence fields.
        kinds: Types of the sequence fields.
        protected: Columns whose values the sequence fields order.
        removes: Whether a -D of this group deletes the row.
    """

    number: int
    ordering: tuple[str, ...]
    kinds: tuple[DataType, ...]
    protected: frozenset[str]
    removes: bool

    @property
    def has_value(self) -> str:
        """SQL of the condition that a sequence field of the version is not null."""
        return f"g.has_value{self.number}"

    @property
    def accepted(self) -> str:
        """SQL of the condition that the version's sequence fields are set and not below those of the accumulator."""
        return f"g.newer{self.number}"

    def conditions(self, short: Mapping[str, str]) -> dict[str, str]:
        """Return the SQL of :attr:`has_value` and :attr:`accepted` by their member of `g`.

        Structs compare lexicographically, nulls first.

        Args:
            short: Member of `a` and `x` by column name.
        """
        members = [short[name] for name in self.ordering]
        mine, theirs = (
            ", ".join(ordered(f"{side}.{c}", kind) for c, kind in zip(members, self.kinds, strict=True))
            for side in ("x", "a")
        )
        any_value = "(" + " OR ".join(f"x.{c} IS NOT NULL" for c in members) + ")"
        newer = f"({any_value} AND struct({mine}) >= struct({theirs}))"
        return {f"has_value{self.number}": any_value, f"newer{self.number}": newer}


def _partial_update(store: TableStore, short: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return (`Fold.steps`, `Fold.conditions`) of a partial-update table.

    A column without a sequence group takes each value that is not null. The columns of a sequence group take all values
    of a version if its sequence fields are not below the sequence fields of the accumulator.

    Args:
        store: The table.
        short: Member of the structs by column name.
    """
    schema, raw = store.schema, store.options.raw
    removing = _names(raw.get("partial-update.remove-record-on-sequence-group", ""))
    ordered_by = [(match.group(1), raw[key]) for key in sorted(raw) if (match := _GROUP.fullmatch(key))]
    groups = [_group(schema, n, names, value, removing) for n, (names, value) in enumerate(ordered_by)]
    conditions = {name: condition for group in groups for name, condition in group.conditions(short).items()}
    deletes = _deletes(store, groups, conditions)
    removed = "g.removed" if deletes else "false"
    if deletes:
        conditions["removed"] = deletes
    met = f"(a.met OR NOT {_RETRACTS})"
    steps = {"met": met, "gone": f"({removed} OR NOT {met})"}
    for field in schema.fields:
        group = next((g for g in groups if field.name in (*g.ordering, *g.protected)), None)
        c = short[field.name]
        function = _protected_function(field, group, raw, store)
        step = _column(field.name, c, group, function)
        if store.options.ignore_delete:
            step = f"IF({_RETRACTS}, a.{c}, {step})"
        steps[c] = f"IF({removed}, x.{c}, {step})" if removed != "false" else step
        if function is not None and function.counts_inputs and group is not None:
            late = function.counts_call(f"a.{c}")
            counts = f"IF({group.accepted}, {function.counts_call('x.' + c)}, {late})"
            steps[f"y{c}"] = f"a.y{c} OR (NOT {_RETRACTS} AND {group.has_value} AND {counts})"
    return steps, conditions


def _group(schema: TableSchema, number: int, names: str, value: str, removing: Iterable[str]) -> _Group:
    ordering = tuple(_names(names))
    kinds = tuple(schema.field(name).type for name in ordering)
    removes = any(name in removing for name in ordering)
    return _Group(number, ordering, kinds, frozenset(_names(value)) - set(ordering), removes)


def _deletes(store: TableStore, groups: Iterable[_Group], conditions: Mapping[str, str]) -> str:
    """Return the SQL condition under which a version deletes the whole row; "" if no version can.

    Args:
        store: The table.
        groups: Sequence groups of the table.
        conditions: SQL conditions by member of `g`.
    """
    if store.options.ignore_delete:
        return ""
    if not groups:
        return f"({_DELETES})" if _flag(store, "partial-update.remove-record-on-delete") else ""
    removing = [conditions[f"newer{group.number}"] for group in groups if group.removes]
    return f"({_DELETES} AND ({' OR '.join(removing)}))" if removing else ""


def _protected_function(
    field: DataField, group: _Group | None, raw: Mapping[str, str], store: TableStore
) -> Function | None:
    """Return the aggregate function of a column of a sequence group.

    Args:
        field: the column.
        group: sequence group of the column, or None.
        raw: options of the table as text.
        store: the table.

    Returns:
        The function. None if no option names one, if ``group`` is None, or if the column is a sequence field of the
            group.
    """
    name = raw.get(f"fields.{field.name}.aggregate-function", raw.get(_DEFAULT))
    if name is None or group is None or field.name in group.ordering:
        return None
    return function_of(name, field, raw, store.name)


def _column(name: str, c: str, group: _Group | None, function: Function | None) -> str:
    """Return SQL for the value of a column after a version that does not delete the row.

    Args:
        name: Name of the column.
        c: Member of the structs for the column.
        group: Sequence group of the column, or None.
        function: Aggregate function of the column, or None.
    """
    base, x = f"a.{c}", f"x.{c}"
    if group is None:
        return f"IF({_RETRACTS}, {base}, coalesce({x}, {base}))"
    if name in group.ordering:
        return f"IF({group.accepted}, {x}, {base})"
    if function is None:
        return f"IF({group.accepted}, IF({_RETRACTS}, NULL, {x}), {base})"
    counted = f"a.y{c}"
    added = f"IF({group.accepted}, {function.agg(base, x, counted)}, {function.late(base, x, counted)})"
    return f"IF({group.has_value}, IF({_RETRACTS}, {function.retract(base, x)}, {added}), {base})"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# -- record-level lifetime -------------------------------------------------------------------------------------------


NEVER: Final = "false"
_MILLISECONDS_FROM: Final = 10**12
_EPOCH: Final = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def over_at(store: TableStore, now_ms: int | None) -> str:
    """Return a SQL condition, never null, that is true for rows whose lifetime is over at epoch ms ``now_ms``.

    The condition is the SQL text `false` if ``now_ms`` is None or the table has no record-level lifetime. Raises
    UnsupportedFeature for a time column whose values Spark truncates.
    """
    lifetime = store.options.get("record-level.expire-time")
    if lifetime is None or now_ms is None:
        return NEVER
    field = store.schema.field(str(store.options.get("record-level.time-field")))
    column, root = quoted(field.name), field.type.root
    if root is TypeRoot.INT:
        seconds = f"CAST({column} AS BIGINT)"
    elif root is TypeRoot.BIGINT:
        seconds = f"IF({column} >= {_MILLISECONDS_FROM}, {column} DIV 1000, {column})"
    elif (field.type.precision or 0) > 6:
        raise UnsupportedFeature(f"comparing rows that expire by a column of type {field.type} on Spark", store.name)
    elif root is TypeRoot.TIMESTAMP:
        seconds = f"floor(timestampdiff(MICROSECOND, {_EPOCH}, {column}) / 1000000)"
    else:
        seconds = f"floor(unix_micros({column}) / 1000000)"
    return f"coalesce({seconds} + {int(lifetime) // 1000} < {now_ms // 1000}, false)"


# -- merged rows of files --------------------------------------------------------------------------------------------


VERSIONS: Final = "__dredge_versions"
_FILES: Final = pa.schema(
    [
        ("__dredge_file", pa.string()),
        ("__dredge_bucket", pa.int32()),
        ("__dredge_level", pa.int32()),
        ("__dredge_age", pa.int32()),
        ("__dredge_snapshot", pa.int64()),
        ("__dredge_alone", pa.bool_()),
    ]
)
_ADDS: Final = f"{quoted(VALUE_KIND)} IN (0, 2)"


def merged_view(
    spark: SparkSession,
    store: TableStore,
    files: Sequence[tuple[int, ManifestEntry]],
    now_ms: int | None = None,
    alone: Collection[str] = (),
) -> DataFrame:
    """Return the merged rows of data files as a DataFrame, computed by Spark SQL.

    In a first-row table the files of level 0 count, too: the result has the rows that readers see after compaction.

    Args:
        spark: The session.
        store: The table.
        files: Files with the number of their bucket, oldest first within a bucket.
        now_ms: Rows whose record-level lifetime is over at this epoch time (ms) are not part of the merged rows; None
            keeps all, as for readers.
        alone: Names of files whose rows are merged even if they are the only version of their key, as compactions with
            lookups do. Only merge engines that build rows use it.

    Returns:
        The columns of the table, `__dredge_bucket`, `__dredge_row` (whether the row is part of the merged rows) and
            `__dredge_versions` (number of stored rows from which it was merged).

    Raises:
        UnsupportedFeature: Spark SQL cannot express a feature of the table exactly.
    """
    raw = _raw_rows(spark, store, files, alone)
    if not store.schema.primary_keys:
        return raw.selectExpr("*", "true AS __dredge_row", f"1 AS {VERSIONS}")
    over = over_at(store, now_ms)
    engine, counts = store.options.merge_engine, "true"
    if store.options.needs_lookup and engine != "first-row":
        # above level 0 only the version at the lowest level counts: lookups merged the others into it
        lowest = f"min(IF(__dredge_level > 0, __dredge_level, NULL)) OVER (PARTITION BY {_key(store)}, {over})"
        raw = raw.selectExpr("*", f"(__dredge_level <= 0 OR __dredge_level = {lowest}) AS __dredge_counts")
        counts = "__dredge_counts"
    if engine in {"partial-update", "aggregation"}:
        return _folded(raw, store, fold_of(store), over, counts)
    if engine not in {"deduplicate", "first-row"}:
        raise UnsupportedFeature(f"comparing tables of merge engine '{engine}' on Spark", store.name)
    if store.options.ignore_delete:
        raw = raw.where(_ADDS)
    order = _order(store, newest_first=engine == "deduplicate")
    first = f"row_number() OVER (PARTITION BY {_key(store)}, {over}, {counts} ORDER BY {order})"
    return raw.selectExpr(
        "*", f"({first} = 1 AND {counts} AND {_ADDS} AND NOT {over}) AS __dredge_row", f"1 AS {VERSIONS}"
    )


def _raw_rows(
    spark: SparkSession, store: TableStore, files: Sequence[tuple[int, ManifestEntry]], alone: Collection[str]
) -> DataFrame:
    paths = [store.data_path(entry.partition, entry.bucket, entry.file) for _, entry in files]
    columns = [
        pa.array([entry.file.file_name for _, entry in files]),
        pa.array([number for number, _ in files], pa.int32()),
        pa.array([entry.file.level for _, entry in files], pa.int32()),
        pa.array(range(len(files)), pa.int32()),
        pa.array(
            [entry.file.min_sequence_number if numbered_by_snapshot(store, entry.file) else None for _, entry in files],
            pa.int64(),
        ),
        pa.array([entry.file.file_name in alone for _, entry in files], pa.bool_()),
    ]
    ddl, fields = spark_ddl(store.schema.fields, store.name), spark_arrow_schema(store.schema.fields, store.name)
    if store.schema.primary_keys:
        ddl = f"{quoted(SEQUENCE_NUMBER)} BIGINT, {quoted(VALUE_KIND)} TINYINT, {ddl}"
        fields = pa.schema([(SEQUENCE_NUMBER, pa.int64()), (VALUE_KIND, pa.int8()), *fields])
    stored = stored_rows(spark, store, paths, fields, ddl)
    rows = stored.join(spark.createDataFrame(pa.table(columns, schema=_FILES)).hint("broadcast"), "__dredge_file")
    if not store.options.snapshot_ordering:
        return rows
    number = f"coalesce(__dredge_snapshot, {quoted(SEQUENCE_NUMBER)})"
    return rows.selectExpr(f"* EXCEPT ({quoted(SEQUENCE_NUMBER)})", f"{number} AS {quoted(SEQUENCE_NUMBER)}")


def _folded(raw: DataFrame, store: TableStore, fold: Fold, over: str, counts: str) -> DataFrame:
    """Merge the versions of each key in merge order with ``fold``, and return one row per key.

    A key with one version keeps the row of this version unchanged, unless its file is to be merged alone.

    Args:
        raw: All stored versions.
        store: The table.
        fold: Merge rule of the table.
        over: SQL condition for versions whose lifetime is over. They form one row per key that is not part of the
            merged rows.
        counts: SQL condition for versions to fold; other versions are only counted.
    """
    key, order = _key(store), _order(store, newest_first=False)
    nth = f"row_number() OVER (PARTITION BY {key}, {over} ORDER BY {order}) AS n"
    columns = [f"{quoted(field.name)} AS {fold.columns[field.name]}" for field in store.schema.fields]
    flags = [f"{over} AS x", f"{counts} AS c", "__dredge_alone AS l", f"{quoted(VALUE_KIND)} AS k"]
    numbered = raw.selectExpr("__dredge_bucket AS b", *flags, nth, *columns)
    own = ", ".join(["n", "k", *fold.columns.values()])
    exact_key = [exact(fold.columns[name], store.schema.field(name).type) for name in store.schema.primary_keys]
    gathered = numbered.groupBy(*expressions(["b", "x", *exact_key])).agg(
        *expressions(
            [
                f"sort_array(collect_list(IF(c, struct({own}), NULL))) AS v",
                "CAST(count(*) AS INT) AS s",
                "coalesce(bool_or(c AND l), false) AS l",
            ]
        )
    )
    # a generator evaluates the struct once: otherwise each of its columns and each filter would evaluate the fold
    folded = f"IF((size(v) > 1 OR l) AND NOT x, {fold.expression('v')}, {fold.lone('v')})"
    merged = gathered.selectExpr("b", "x", "s", f"inline(array({folded}))")
    values = [f"{short} AS {quoted(name)}" for name, short in fold.columns.items()]
    kept = "NOT x AND NOT gone AS __dredge_row"
    return merged.selectExpr("b AS __dredge_bucket", f"s AS {VERSIONS}", kept, *values)


def _key(store: TableStore) -> str:
    fields = (store.schema.field(name) for name in store.schema.primary_keys)
    return ", ".join(["__dredge_bucket", *(exact(quoted(field.name), field.type) for field in fields)])


def _order(store: TableStore, newest_first: bool) -> str:
    """Return the terms of an ORDER BY that sorts the versions of a key by age.

    A null in a sequence field is older than any value.

    Args:
        store: The table.
        newest_first: Whether the newest version comes first; otherwise the oldest.
    """
    newer, older = ("DESC", "ASC") if newest_first else ("ASC", "DESC")
    greatest = older if store.options.sequence_descending else newer
    terms = []
    for name in store.options.sequence_field:
        field = store.schema.field(name)
        terms += [f"({quoted(name)} IS NOT NULL) {newer}", f"{ordered(quoted(name), field.type)} {greatest}"]
    terms += [f"{quoted(SEQUENCE_NUMBER)} {newer}", f"({_ADDS}) {newer}"]
    return ", ".join([*terms, f"__dredge_level {older}", f"__dredge_age {newer}"])
