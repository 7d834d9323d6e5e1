"""Reference merge of `partial-update` (semantics.md 3.3): one row, changed version by version, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsm_core.errors import InvalidData, RetractNotSupported
from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.reference.functions import Function, function_of
from lsm_core.maintenance.reference.versions import DELETE, INSERT, Row, compare_values

_PREFIX, _SUFFIX = "fields.", ".sequence-group"


@dataclass(frozen=True)
class Group:
    """Sequence group; columns are given by their index in the schema.

    Attributes:
        ordering: the sequence fields, whose values decide which version is newer.
        protected: the columns whose values come from the newest version by ``ordering``.
    """

    ordering: tuple[int, ...]
    protected: tuple[int, ...]


def groups_of(schema: TableSchema, options: Mapping[str, str]) -> list[Group]:
    """Return the sequence groups of `fields.<g1>[,<g2>...].sequence-group` = `c1,c2...`.

    Args:
        schema: schema of the table.
        options: table options as they are stored.
    """
    groups = []
    for key, value in options.items():
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            ordering = key[len(_PREFIX) : -len(_SUFFIX)].split(",")
            groups.append(Group(_numbers(schema, ordering), _numbers(schema, value.split(","))))
    return groups


def _numbers(schema: TableSchema, names: list[str]) -> tuple[int, ...]:
    return tuple(schema.field_names.index(name.strip()) for name in names if name.strip())


class PartialUpdateMerge:
    """Merge of the versions of one key: call :meth:`add` for each version, then :meth:`result`."""

    def __init__(self, schema: TableSchema, options: Mapping[str, str], ignore_delete: bool) -> None:
        self._schema, self._ignore_delete = schema, ignore_delete
        self._groups = groups_of(schema, options)
        self._group_of = {i: group for group in self._groups for i in (*group.ordering, *group.protected)}
        # Protected columns only: outside of groups last_non_null_value is the only function, and the default.
        self._functions: dict[int, Function] = {}
        for i, field in enumerate(schema.fields):
            name = options.get(f"fields.{field.name}.aggregate-function")
            name = name or options.get("fields.default-aggregate-function")
            group = self._group_of.get(i)
            if name and group and i not in group.ordering and field.name not in schema.primary_keys:
                self._functions[i] = function_of(name, field.name, field.type, options)
        self._remove_on_delete = options.get("partial-update.remove-record-on-delete", "false").lower() == "true"
        removing = options.get("partial-update.remove-record-on-sequence-group", "").split(",")
        self._removing = set(_numbers(schema, removing))
        self._row: list[Any] = [None] * len(schema.fields)
        self._sequence = 0
        self._started = self._met_insert = self._deleted = False

    def add(self, row: Row) -> None:
        """Apply the next version of the key, in merge order."""
        self._deleted = False
        if not row.retracts:
            self._sequence = row.sequence
            if self._groups:
                self._add_with_groups(row)
            else:
                for i, value in enumerate(row.values):
                    if value is not None:
                        self._row[i] = value
                    elif not self._schema.fields[i].type.nullable:
                        raise InvalidData("", self._schema.fields[i].name, f"null in a NOT NULL column, key {row.key}")
            self._met_insert = self._started = True
            return
        if not self._started:
            self._row = list(row.values)
            self._started = True
        if self._ignore_delete:
            return
        self._sequence = row.sequence
        if self._groups:
            self._retract_with_groups(row)
        elif self._remove_on_delete:
            if row.kind == DELETE:
                self._delete(row)
        else:
            raise RetractNotSupported(
                f"partial-update: key {row.key} has a retract; set `ignore-delete` or `sequence-group` options"
            )

    def result(self) -> tuple[int, int, list[Any]]:
        """Return (sequence number, row kind, values) of the merged row."""
        kind = DELETE if self._deleted or not self._met_insert else INSERT
        return self._sequence, kind, self._row

    def _delete(self, row: Row) -> None:
        self._deleted = True
        self._row = list(row.values)

    def _add_with_groups(self, row: Row) -> None:
        verdicts = {id(group): self._verdict(group, row) for group in self._groups}
        for i, value in enumerate(row.values):
            group, function = self._group_of.get(i), self._functions.get(i)
            if group is None:
                if value is not None:
                    self._row[i] = value
                continue
            verdict = verdicts[id(group)]
            if verdict == "accepted":
                self._row[i] = function.agg(self._row[i], value) if function else value
            elif verdict == "late" and function:
                self._row[i] = function.agg_reversed(self._row[i], value)

    def _retract_with_groups(self, row: Row) -> None:
        verdicts = {id(group): self._verdict(group, row) for group in self._groups}
        removing = [group for group in self._groups if self._removing & set(group.ordering)]
        if row.kind == DELETE and any(verdicts[id(group)] == "accepted" for group in removing):
            self._delete(row)
            return
        for i, value in enumerate(row.values):
            group, function = self._group_of.get(i), self._functions.get(i)
            if group is None or verdicts[id(group)] == "skipped":
                continue
            if i in group.ordering:
                if verdicts[id(group)] == "accepted":
                    self._row[i] = value
            elif function:
                self._row[i] = function.retract(self._row[i], value)
            elif verdicts[id(group)] == "accepted":
                self._row[i] = None

    def _verdict(self, group: Group, row: Row) -> str:
        """Return whether a sequence group accepts a row.

        Returns:
            "skipped" if all sequence fields of the row are null, "accepted" if they are equal to or greater than the
            current sequence fields of the group, otherwise "late".
        """
        mine = [row.values[i] for i in group.ordering]
        if all(value is None for value in mine):
            return "skipped"
        for value, i in zip(mine, group.ordering, strict=True):
            current = self._row[i]
            if value is None or current is None:
                order = (value is not None) - (current is not None)
            else:
                order = compare_values(value, current)
            if order:
                return "accepted" if order > 0 else "late"
        return "accepted"
