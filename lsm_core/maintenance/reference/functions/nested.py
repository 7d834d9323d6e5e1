"""Functions `nested_update` and `nested_partial_update`: arrays of rows treated as tables."""

from __future__ import annotations

from typing import Any, Final

from lsm_core.errors import InvalidData
from lsm_core.maintenance.reference.functions.base import Field, Function
from lsm_core.maintenance.reference.versions import compare_values, same

Nested = tuple[Any, ...]
_NO_LIMIT: Final = 2**31 - 1


class _Keyed(Function):
    """Key handling that `nested_update` and `nested_partial_update` share."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        row = field.type.element
        assert row is not None
        names = [nested_field.name for nested_field in row.fields]
        self.key = [names.index(name) for name in field.names("nested-key")]
        self.sequence = [names.index(name) for name in field.names("nested-sequence-field")]
        self.strategy = (field.text("nested-key-null-strategy") or "merge").strip().lower()
        self.limit = int(field.text("count-limit") or _NO_LIMIT)
        # Options unknown to 1.4 make the column fold as in the first version that knows them.
        newer = self.sequence or field.text("nested-key-null-strategy") is not None
        self.as_2_0 = bool(newer) or field.since("2.0")

    def key_of(self, row: Nested) -> Any:
        """Return the key of a nested row."""
        return same(tuple(row[i] for i in self.key))

    def select_rows(self, rows: list[Nested | None]) -> list[Nested]:
        """Return the rows to merge, without null rows and without rows that `nested-key-null-strategy` skips.

        Raises InvalidData for a row with a null in its key if the strategy is "error".
        """
        kept = []
        for row in rows:
            if row is None:
                continue
            if self.strategy != "merge" and any(row[i] is None for i in self.key):
                if self.strategy == "error":
                    raise InvalidData("", self.field.name, f"null in nested key of {row!r}")
                continue
            kept.append(row)
        return kept


class NestedUpdate(_Keyed):
    """Function `nested_update`: rows are appended or, with a key, replaced by key."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the accumulator's rows and the input's, up to the limit."""
        if value is None or (acc is None and not self.as_2_0):
            return acc if value is None else value
        if self.key and self.as_2_0:
            return self._upsert(acc or [], value)
        if acc is not None and len(acc) >= self.limit:
            return acc
        held = self.select_rows(acc or [])
        rows = [*held, *self.select_rows(value)[: max(0, self.limit - len(acc or []))]]
        return list({self.key_of(row): row for row in rows}.values()) if self.key else rows

    def _upsert(self, acc: list[Nested | None], value: list[Nested | None]) -> list[Nested]:
        """Return the rows of ``acc``, replaced or extended by ``value`` by key; the limit applies to new keys only."""
        rows: dict[Any, Nested] = {}
        held = self.select_rows(acc)
        for number, row in enumerate([*held, *self.select_rows(value)]):
            current = rows.get(self.key_of(row))
            if current is None:
                if number < len(held) or len(rows) < self.limit:
                    rows[self.key_of(row)] = row
            elif self._is_newer(row, current):
                rows[self.key_of(row)] = row
        return list(rows.values())

    def _is_newer(self, row: Nested, current: Nested) -> bool:
        """Return whether the ordering fields of ``row`` are not below those of ``current``; nulls are smallest."""
        for i in self.sequence:
            mine, other = row[i], current[i]
            if mine is None or other is None:
                order = (mine is not None) - (other is not None)
            else:
                order = compare_values(mine, other)
            if order:
                return order > 0
        return True

    def retract(self, acc: Any, value: Any) -> Any:
        """Return the accumulator's rows without those that the input retracts, by key or, without a key, if equal."""
        if acc is None or value is None:
            return acc
        if not self.key:
            retracted = {same(row) for row in value if row is not None}
            return [row for row in acc if row is not None and same(row) not in retracted]
        left = {self.key_of(row): row for row in self.select_rows(acc)}
        for row in self.select_rows(value):
            left.pop(self.key_of(row), None)
        return list(left.values())


class NestedPartialUpdate(_Keyed):
    """Rows merged by key, field by field: values that are not null overwrite."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the accumulator's rows, updated by the input's rows of the same keys, and the input's further rows."""
        if value is None or (acc is None and not self.as_2_0):
            return acc if value is None else value
        rows: dict[Any, Nested] = {}
        for row in (*self.select_rows(acc or []), *self.select_rows(value)):
            current = rows.get(self.key_of(row), (None,) * len(row))
            rows[self.key_of(row)] = tuple(old if new is None else new for old, new in zip(current, row, strict=True))
        return list(rows.values())


FUNCTIONS: Final[dict[str, type[Function]]] = {
    "nested_update": NestedUpdate,
    "nested_partial_update": NestedPartialUpdate,
}
