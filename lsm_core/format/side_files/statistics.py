"""What ANALYZE found out about a table: counts, sizes and ranges of columns, for planners (format.md 12, Java `Statistics`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lsm_core.format.json_text import ObjectReader, parse_object, pretty

_COLUMNS: Final = "colStats"
_TABLE_COUNTS: Final = (("mergedRecordCount", "merged_record_count"), ("mergedRecordSize", "merged_record_size"))
# JSON member, attribute: in the order in which Java writes them.
_COLUMN_MEMBERS: Final = (
    ("colId", "column_id"),
    ("distinctCount", "distinct_count"),
    ("min", "minimum"),
    ("max", "maximum"),
    ("nullCount", "null_count"),
    ("avgLen", "average_length"),
    ("maxLen", "maximum_length"),
)
_TEXTS: Final = ("min", "max")


@dataclass(frozen=True)
class ColumnStatistics:
    """Of one column: rows and distinct values counted, ``minimum`` and ``maximum`` as text, lengths in bytes; None is unknown."""

    column_id: int
    distinct_count: int | None = None
    minimum: str | None = None
    maximum: str | None = None
    null_count: int | None = None
    average_length: int | None = None
    maximum_length: int | None = None


@dataclass(frozen=True)
class Statistics:
    """Of a table as of one snapshot: rows after merging, their size in bytes, and its columns by name."""

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None = None
    merged_record_size: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The statistics file's content, as Java writes it: absent members left out."""
        value: dict[str, Any] = {"snapshotId": self.snapshot_id, "schemaId": self.schema_id}
        value |= {member: getattr(self, name) for member, name in _TABLE_COUNTS}
        value[_COLUMNS] = {
            column: _present({member: getattr(found, name) for member, name in _COLUMN_MEMBERS})
            for column, found in self.columns.items()
        }
        return pretty(_present(value)).encode()

    @staticmethod
    def from_json(data: bytes, path: str) -> Statistics:
        """Parse a statistics file; raises :class:`lsm_core.errors.CorruptFile` naming ``path``. Unknown members are ignored."""
        members = parse_object(data, path)
        reader = ObjectReader(members, path)
        columns = members.get(_COLUMNS) or {}
        if not isinstance(columns, dict) or any(not isinstance(one, dict) for one in columns.values()):
            raise reader.bad(_COLUMNS, "an object of objects")
        return Statistics(
            reader.integer("snapshotId"),
            reader.integer("schemaId"),
            **{name: reader.optional_integer(member) for member, name in _TABLE_COUNTS},
            columns={name: _column(ObjectReader(one, path)) for name, one in columns.items()},
        )


def _column(reader: ObjectReader) -> ColumnStatistics:
    values: dict[str, Any] = {
        name: reader.optional_text(member) if member in _TEXTS else reader.optional_integer(member)
        for member, name in _COLUMN_MEMBERS
    }
    values["column_id"] = reader.integer("colId")
    return ColumnStatistics(**values)


def _present(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}


__all__ = ["ColumnStatistics", "Statistics"]
