"""partial-update and aggregation as Spark SQL: a struct of all columns, changed by one version after another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.spark.jobs import spark_ddl
from lsm_core.spark.jobs.columns import quoted
from lsm_core.spark.view.functions import Function, function_of
from lsm_core.spark.view.values import ordered
from lsm_core.types import DataType

_GROUP: Final = re.compile(r"fields\.(.+)\.sequence-group")
_DEFAULT: Final = "fields.default-aggregate-function"
_RETRACTS: Final = "x.k IN (1, 3)"
_DELETES: Final = "x.k = 3"


@dataclass(frozen=True)
class Fold:
    """How the versions of a key become a row: ``columns`` maps their names to those in the structs of versions.

    Of the accumulator ``a`` the members are the columns, ``y`` + column (the function was asked before), ``met`` (an insert
    was met) and ``gone`` (the row is deleted). ``begins``: a retract that comes first lends its values to the accumulator.
    ``verdicts``: what holds of a version, for ``steps`` to ask as ``g`` + name.
    """

    columns: Mapping[str, str]
    types: Mapping[str, str]
    steps: Mapping[str, str]
    begins: bool
    verdicts: Mapping[str, str]

    def expression(self, versions: str) -> str:
        """A struct of the columns and ``gone``, of an array of version structs in merge order."""
        first = f"{versions}[0]"
        nothing = {member: f"CAST(NULL AS {kind})" for member, kind in self.types.items()}
        if self.begins:
            lent = f"{first}.k IN (1, 3)"
            nothing = {member: f"IF({lent}, {first}.{member}, {null})" for member, null in nothing.items()}
        start = ", ".join(
            [f"{value} AS {member}" for member, value in nothing.items()] + [f"false AS {f}" for f in self.flags]
        )
        step = ", ".join(f"{self.steps[member]} AS {member}" for member in (*self.columns.values(), *self.flags))
        if self.verdicts:  # a lambda over one struct of them, so that each is found once a version
            told = ", ".join(f"{verdict} AS {name}" for name, verdict in self.verdicts.items())
            after = f"transform(array(struct({told})), g -> struct({step}))[0]"
        else:
            after = f"struct({step})"
        return f"aggregate({versions}, struct({start}), (a, x) -> {after})"

    def lone(self, versions: str) -> str:
        """The same struct of an array's first version alone: a row as it is, and no row if it is a delete."""
        members = [f"{versions}[0].{member} AS {member}" for member in self.columns.values()]
        flags = [f"{versions}[0].k IN (1, 3) AS {f}" if f == "gone" else f"false AS {f}" for f in self.flags]
        return f"struct({', '.join([*members, *flags])})"

    @property
    def flags(self) -> list[str]:
        """Members of the accumulator that are no columns."""
        return [member for member in self.steps if member not in self.types]


def fold_of(store: TableStore) -> Fold:
    """The fold of a table. Raises UnsupportedFeature naming a function that Spark SQL cannot say exactly."""
    short = {field.name: f"c{number}" for number, field in enumerate(store.schema.fields)}
    types = {short[field.name]: _type(field, store.name) for field in store.schema.fields}
    if store.options.merge_engine == "aggregation":
        return Fold(short, types, _aggregation(store, short), begins=False, verdicts={})
    steps, verdicts = _partial_update(store, short)
    return Fold(short, types, steps, begins=True, verdicts=verdicts)


def _type(field: DataField, table: str) -> str:
    return spark_ddl([field], table).removeprefix(f"{quoted(field.name)} ")


def _flag(store: TableStore, name: str) -> bool:
    return bool(store.options.get(name))


# -- aggregation ---------------------------------------------------------------------------------------------------------


def _aggregation(store: TableStore, short: Mapping[str, str]) -> dict[str, str]:
    """Every column has a function; with `remove-record-on-delete` a -D resets the row to its values."""
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
        if function.asks:
            steps[f"y{c}"] = f"{y} OR (NOT {_RETRACTS} AND {function.asks_of(x)})"
    return steps


# -- partial-update ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """A sequence group; ``given`` and ``accepted`` ask for the verdicts about a version."""

    number: int
    ordering: tuple[str, ...]
    kinds: tuple[DataType, ...]
    protected: frozenset[str]
    removes: bool

    @property
    def given(self) -> str:
        """Not all ordering fields are null."""
        return f"g.given{self.number}"

    @property
    def accepted(self) -> str:
        """Given, and not below what is there."""
        return f"g.taken{self.number}"

    def verdicts(self, short: Mapping[str, str]) -> dict[str, str]:
        """The verdicts by their names in ``g``: a struct compares lexicographically, nulls first."""
        members = [short[name] for name in self.ordering]
        mine, theirs = (
            ", ".join(ordered(f"{side}.{c}", kind) for c, kind in zip(members, self.kinds, strict=True))
            for side in ("x", "a")
        )
        given = "(" + " OR ".join(f"x.{c} IS NOT NULL" for c in members) + ")"
        taken = f"({given} AND struct({mine}) >= struct({theirs}))"
        return {f"given{self.number}": given, f"taken{self.number}": taken}


def _partial_update(store: TableStore, short: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Columns take what is not null; groups take a version whole if its ordering fields are not below theirs.

    Returns the steps, and the verdicts about a version that they ask for.
    """
    schema, raw = store.schema, store.options.raw
    removing = _names(raw.get("partial-update.remove-record-on-sequence-group", ""))
    ordered_by = [(match.group(1), raw[key]) for key in sorted(raw) if (match := _GROUP.fullmatch(key))]
    groups = [_group(schema, n, names, value, removing) for n, (names, value) in enumerate(ordered_by)]
    verdicts = {name: told for group in groups for name, told in group.verdicts(short).items()}
    deletes = _deletes(store, groups, verdicts)
    removed = "g.removed" if deletes else "false"
    if deletes:
        verdicts["removed"] = deletes
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
        if function is not None and function.asks and group is not None:
            late = function.asks_of(f"a.{c}")
            asked = f"IF({group.accepted}, {function.asks_of('x.' + c)}, {late})"
            steps[f"y{c}"] = f"a.y{c} OR (NOT {_RETRACTS} AND {group.given} AND {asked})"
    return steps, verdicts


def _group(schema: TableSchema, number: int, names: str, value: str, removing: Iterable[str]) -> _Group:
    ordering = tuple(_names(names))
    kinds = tuple(schema.field(name).type for name in ordering)
    removes = any(name in removing for name in ordering)
    return _Group(number, ordering, kinds, frozenset(_names(value)) - set(ordering), removes)


def _deletes(store: TableStore, groups: Iterable[_Group], verdicts: Mapping[str, str]) -> str:
    """Whether a version deletes the whole row; empty: none does."""
    if store.options.ignore_delete:
        return ""
    if not groups:
        return f"({_DELETES})" if _flag(store, "partial-update.remove-record-on-delete") else ""
    found = [verdicts[f"taken{group.number}"] for group in groups if group.removes]
    return f"({_DELETES} AND ({' OR '.join(found)}))" if found else ""


def _protected_function(
    field: DataField, group: _Group | None, raw: Mapping[str, str], store: TableStore
) -> Function | None:
    """Only protected columns have functions; elsewhere the last value that is not null is what happens anyway."""
    name = raw.get(f"fields.{field.name}.aggregate-function", raw.get(_DEFAULT))
    if name is None or group is None or field.name in group.ordering:
        return None
    return function_of(name, field, raw, store.name)


def _column(name: str, c: str, group: _Group | None, function: Function | None) -> str:
    """The column after one more version that does not delete the row."""
    base, x = f"a.{c}", f"x.{c}"
    if group is None:
        return f"IF({_RETRACTS}, {base}, coalesce({x}, {base}))"
    if name in group.ordering:
        return f"IF({group.accepted}, {x}, {base})"
    if function is None:
        return f"IF({group.accepted}, IF({_RETRACTS}, NULL, {x}), {base})"
    asked = f"a.y{c}"
    added = f"IF({group.accepted}, {function.agg(base, x, asked)}, {function.late(base, x, asked)})"
    return f"IF({group.given}, IF({_RETRACTS}, {function.retract(base, x)}, {added}), {base})"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


__all__ = ["Fold", "fold_of"]
