"""Arrays of rows as tables of their own: nested_update and nested_partial_update."""

from __future__ import annotations

from typing import Any, Final

from lsm_core.errors import InvalidData
from lsm_core.maintenance.reference.equality import same
from lsm_core.maintenance.reference.functions.base import Field, Function
from lsm_core.maintenance.reference.versions import compare_values

Nested = tuple[Any, ...]
_NO_LIMIT: Final = 2**31 - 1


class _Keyed(Function):
    """What both functions say of keys."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        row = field.type.element
        assert row is not None
        names = [one.name for one in row.fields]
        self.key = [names.index(name) for name in field.names("nested-key")]
        self.sequence = [names.index(name) for name in field.names("nested-sequence-field")]
        self.strategy = (field.text("nested-key-null-strategy") or "merge").strip().lower()
        self.limit = int(field.text("count-limit") or _NO_LIMIT)

    def key_of(self, row: Nested) -> Any:
        """The key of a nested row."""
        return same(tuple(row[i] for i in self.key))

    def admitted(self, rows: list[Nested | None]) -> list[Nested]:
        """Input rows that take part: none that are null, those with a null in the key as the strategy says."""
        found = []
        for row in rows:
            if row is None:
                continue
            if self.strategy != "merge" and any(row[i] is None for i in self.key):
                if self.strategy == "error":
                    raise InvalidData("", self.field.name, f"null in nested key of {row!r}")
                continue
            found.append(row)
        return found

    def lone(self, value: list[Nested | None] | None) -> list[Nested | None] | None:
        """What nothing is added to stays as it is, except for nulls in the key."""
        return value if value is None or self.strategy == "merge" else list(self.admitted(value))


class NestedUpdate(_Keyed):
    """Rows appended, or upserted by key."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The accumulator's rows and the input's, as far as the limit allows."""
        if acc is None or value is None:
            return self.lone(acc if value is None else value)
        held = self.admitted(acc)
        if not self.key:
            return [*held, *self.admitted(value)[: max(0, self.limit - len(held))]]
        found: dict[Any, Nested] = {}
        for number, row in enumerate([*held, *self.admitted(value)]):
            there = found.get(self.key_of(row))
            if there is None:
                if number < len(held) or len(found) < self.limit:
                    found[self.key_of(row)] = row
            elif self._is_newer(row, there):
                found[self.key_of(row)] = row
        return list(found.values())

    def _is_newer(self, row: Nested, there: Nested) -> bool:
        """Whether a row is not below the one that is there; nulls are smallest."""
        for i in self.sequence:
            mine, other = row[i], there[i]
            if mine is None or other is None:
                found = (mine is not None) - (other is not None)
            else:
                found = compare_values(mine, other)
            if found:
                return found > 0
        return True

    def retract(self, acc: Any, value: Any) -> Any:
        """Without the keys of the input; without a key, without all rows equal to one of the input."""
        if acc is None or value is None:
            return acc
        of = self.key_of if self.key else same
        gone = {of(row) for row in self.admitted(value)}
        left = [row for row in acc if row is not None and of(row) not in gone]
        return list({self.key_of(row): row for row in left}.values()) if self.key else left


class NestedPartialUpdate(_Keyed):
    """Rows merged by key, field by field: what is not null overwrites."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The accumulator's rows, changed by the input's."""
        if acc is None or value is None:
            return self.lone(acc if value is None else value)
        found: dict[Any, Nested] = {}
        for row in (*self.admitted(acc), *self.admitted(value)):
            there = found.get(self.key_of(row), (None,) * len(row))
            found[self.key_of(row)] = tuple(old if new is None else new for old, new in zip(there, row, strict=True))
        return list(found.values())


FUNCTIONS: Final[dict[str, type[Function]]] = {
    "nested_update": NestedUpdate,
    "nested_partial_update": NestedPartialUpdate,
}
