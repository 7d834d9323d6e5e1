"""Field ids: drawn from one counter for a whole table, nested fields too, and never used twice (Java `ReassignFieldId`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lsm_core.format.schema import DataField
from lsm_core.types import DataType, RowField


class FieldIds:
    """The counter: ``highest`` is the largest id ever used."""

    def __init__(self, highest: int = -1) -> None:
        self.highest = highest

    def take(self) -> int:
        """The next id."""
        self.highest += 1
        return self.highest

    def number(self, kind: DataType) -> DataType:
        """``kind`` with new ids for all fields of its ROWs: what lies inside a field is numbered before the field itself."""
        fields = tuple(self._numbered(field) for field in kind.fields)
        return replace(
            kind,
            fields=fields,
            element=None if kind.element is None else self.number(kind.element),
            key=None if kind.key is None else self.number(kind.key),
            value=None if kind.value is None else self.number(kind.value),
        )

    def _numbered(self, field: RowField) -> RowField:
        kind = self.number(field.type)
        return replace(field, id=self.take(), type=kind)


def highest_id(fields: Iterable[DataField | RowField]) -> int:
    """The largest id among ``fields`` and all that lies inside them, -1 without any."""
    return max((max(field.id, _highest_inside(field.type)) for field in fields), default=-1)


def _highest_inside(kind: DataType) -> int:
    inner = [part for part in (kind.element, kind.key, kind.value) if part is not None]
    return max([highest_id(kind.fields), *map(_highest_inside, inner)])
