"""Merge engine from a table's options; contradictions are errors that name option, column and accepted values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.merge.engines.aggregation import Aggregation, functions_of
from lsm_core.merge.engines.partial_update import PartialUpdate
from lsm_core.merge.engines.sequence_group import SequenceGroup
from lsm_core.merge.functions import AggregateFunction, aggregate_function
from lsm_core.merge.keys import KeySpec
from lsm_core.options import TableOptions

_GROUP: Final = re.compile(r"fields\.(.+)\.sequence-group")
_REMOVE_ON_DELETE: Final = "partial-update.remove-record-on-delete"
_REMOVE_ON_GROUP: Final = "partial-update.remove-record-on-sequence-group"
_AGGREGATE_REMOVE: Final = "aggregation.remove-record-on-delete"
_DEFAULT_FUNCTION: Final = "fields.default-aggregate-function"
_LAST_NON_NULL: Final = "last_non_null_value"


def partial_update(schema: TableSchema, options: TableOptions, spec: KeySpec, table: str) -> PartialUpdate:
    """Return the engine of a partial-update table.

    Raises:
        InvalidOption: options contradict each other; the error names option and column.
    """
    raw = options.raw
    removing = _names(raw.get(_REMOVE_ON_GROUP, ""))
    groups = _groups(schema, raw, removing, table)
    ordering = {name for group in groups for name in group.ordering}
    for name in removing:
        if name not in ordering:
            raise InvalidOption(_REMOVE_ON_GROUP, name, "ordering fields of sequence groups", table)
    remove = _flag(raw, _REMOVE_ON_DELETE, table)
    for is_set, conflict in ((options.ignore_delete, "ignore-delete"), (bool(groups), "sequence groups")):
        if remove and is_set:
            raise InvalidOption(_REMOVE_ON_DELETE, "true", f"false together with {conflict}", table)
    if removing and options.ignore_delete:
        raise InvalidOption(_REMOVE_ON_GROUP, ",".join(removing), "nothing together with ignore-delete", table)
    required = frozenset(f.name for f in schema.fields if not f.type.nullable) - set(schema.primary_keys)
    functions = _protected_functions(schema, raw, groups, table)
    return PartialUpdate(spec, groups, functions, options.ignore_delete, remove, required, table)


def aggregation(schema: TableSchema, options: TableOptions, spec: KeySpec, table: str) -> Aggregation:
    """Return the engine of an aggregation table.

    Raises:
        InvalidOption: options contradict each other; the error names option and column.
    """
    raw = options.raw
    functions = functions_of(schema, raw, spec.sequence_columns, table)
    for name in spec.sequence_columns:
        key = f"fields.{name}.aggregate-function"
        if key in raw:
            raise InvalidOption(key, raw[key], "no function: the column is a sequence.field", table)
    remove = _flag(raw, _AGGREGATE_REMOVE, table)
    for name, function in functions.items():
        if remove and function.ignore_retract:
            raise InvalidOption(_AGGREGATE_REMOVE, "true", f"false together with fields.{name}.ignore-retract", table)
    return Aggregation(spec, functions, remove, table)


def _groups(schema: TableSchema, raw: Mapping[str, str], removing: list[str], table: str) -> tuple[SequenceGroup, ...]:
    groups: list[SequenceGroup] = []
    owner: dict[str, str] = {}
    for key in sorted(raw):
        match = _GROUP.fullmatch(key)
        if match is None:
            continue
        ordering, protected = _names(match.group(1)), _names(raw[key])
        for name in (*ordering, *protected):
            if not schema.has_field(name):
                raise InvalidOption(key, name, f"columns of the table: {', '.join(schema.field_names)}", table)
            if name in schema.primary_keys:
                raise InvalidOption(key, name, "columns outside the primary key", table)
            if owner.setdefault(name, key) != key:
                raise InvalidOption(
                    key, name, f"columns of one sequence group only (it is in {owner[name]} too)", table
                )
        for name in ordering:
            if f"fields.{name}.aggregate-function" in raw:
                raise InvalidOption(f"fields.{name}.aggregate-function", raw[f"fields.{name}.aggregate-function"],
                                    "no function: the column orders a sequence group", table)  # fmt: skip
        removes = any(name in removing for name in ordering)
        other_fields = tuple(name for name in dict.fromkeys(protected) if name not in ordering)
        groups.append(SequenceGroup(tuple(ordering), other_fields, removes))
    return tuple(groups)


def _protected_functions(
    schema: TableSchema, raw: Mapping[str, str], groups: tuple[SequenceGroup, ...], table: str
) -> dict[str, AggregateFunction]:
    ordering = {name for group in groups for name in group.ordering}
    protected = {name for group in groups for name in group.protected}
    chosen = {}
    for column in schema.fields:
        if column.name in schema.primary_keys or column.name in ordering:
            continue
        key = f"fields.{column.name}.aggregate-function"
        key = key if key in raw else _DEFAULT_FUNCTION
        name = raw.get(key)
        if name is None:
            continue
        if column.name in protected:
            chosen[column] = "sum" if name == "count" else name
        elif name != _LAST_NON_NULL:
            allowed = f"{_LAST_NON_NULL}, or column '{column.name}' in a sequence group"
            raise InvalidOption(key, name, allowed, table)
    return {
        column.name: aggregate_function(name, column.type, column.name, raw, table) for column, name in chosen.items()
    }


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _flag(raw: Mapping[str, str], key: str, table: str) -> bool:
    value = raw.get(key, "false").strip().lower()
    if value not in {"true", "false"}:
        raise InvalidOption(key, value, "true or false", table)
    return value == "true"
