"""Bytes of the small files beside snapshots and manifests: tags, consumers, changelogs, statistics, hash indexes (format.md 11.1, 12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lsm_core.errors import CorruptFile
from lsm_core.format.json_text import ObjectReader, parse_object, pretty
from lsm_core.format.snapshot import Snapshot, snapshot_from_object

# -- tags --------------------------------------------------------------------------------------------------------------


_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
_MILLIS = 1000
_NANOS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_PARTS, _MAX_PARTS = 3, 7


@dataclass(frozen=True)
class Tag:
    """A tagged snapshot; ``create_time_ms`` (wall clock encoded as if UTC) and ``time_retained_ms`` are None for a plain tag.

    ``create_nanos``: what the creation time has beyond the millisecond, 0 to 999,999.
    """

    snapshot: Snapshot
    create_time_ms: int | None = None
    time_retained_ms: int | None = None
    create_nanos: int = 0

    @property
    def expires_ms(self) -> int | None:
        """When the tag may go, in epoch ms; None: never."""
        if self.create_time_ms is None or self.time_retained_ms is None:
            return None
        return self.create_time_ms + self.time_retained_ms

    def to_json(self) -> bytes:
        """The tag file's content, as Java writes it: the snapshot, and both times where there are any."""
        text = self.snapshot.to_json().decode()
        extra = []
        if self.create_time_ms is not None:
            # Jackson's array of a LocalDateTime, whose trailing zeros are left out from the seconds on.
            moment = _EPOCH + timedelta(milliseconds=self.create_time_ms)
            parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute]
            fraction = moment.microsecond * 1000 + self.create_nanos
            if fraction or moment.second:
                parts.append(moment.second)
            if fraction:
                parts.append(fraction)
            extra.append(f'  "{_CREATED}" : {pretty(parts)}')
        if self.time_retained_ms is not None:
            sign, whole = "-" if self.time_retained_ms < 0 else "", abs(self.time_retained_ms)
            seconds = f"{sign}{whole // _MILLIS}.{whole % _MILLIS:03d}000000"
            extra.append(f'  "{_RETAINED}" : {seconds}')
        return ",\n".join([text.removesuffix("\n}"), *extra]).encode() + b"\n}"

    @staticmethod
    def from_json(data: bytes, path: str) -> Tag:
        """Parse a tag file; raises :class:`CorruptFile` naming ``path``."""
        members = parse_object(data, path)
        created, nanos = _created(members.get(_CREATED), path)
        of_snapshot = {name: value for name, value in members.items() if name not in (_CREATED, _RETAINED)}
        snapshot, retained = snapshot_from_object(of_snapshot, path), members.get(_RETAINED)
        if retained is None:
            return Tag(snapshot, created, None, nanos)
        if isinstance(retained, bool) or not isinstance(retained, int | float) or not abs(retained) < 1e15:
            raise CorruptFile(path, f'member "{_RETAINED}" must be a number of seconds, found {retained!r}')
        return Tag(snapshot, created, round(retained * _MILLIS), nanos)


def _created(value: Any, path: str) -> tuple[int | None, int]:
    """Jackson's array of a LocalDateTime, `[y, M, d, h, m, s, nanos]`, whose trailing zeros are left out."""
    if value is None:
        return None, 0
    whole = isinstance(value, list) and all(isinstance(part, int) and not isinstance(part, bool) for part in value)
    if not whole or not _MIN_PARTS <= len(value) <= _MAX_PARTS:
        raise CorruptFile(path, f'member "{_CREATED}" must be an array of 3 to 7 whole numbers, found {value!r}')
    year, month, day, hour, minute, second, nanos = [*value, 0, 0, 0, 0][:_MAX_PARTS]
    try:
        moment = datetime(year, month, day, hour, minute, second, nanos // 1000, UTC)
    except (ValueError, OverflowError) as error:
        raise CorruptFile(path, f'member "{_CREATED}": {error}') from error
    return (moment - _EPOCH) // timedelta(milliseconds=1), nanos % _NANOS


# -- consumers: how far one stream has read (Java `Consumer`) ----------------------------------------------------------


_NEXT: Final = "nextSnapshot"


def decode_consumer(data: bytes, path: str) -> int:
    """The id of the snapshot that the consumer reads next; raises :class:`CorruptFile` naming ``path``."""
    following = ObjectReader(parse_object(data, path), path).integer(_NEXT)
    if following < 0:
        raise CorruptFile(path, f"{_NEXT} is {following}")
    return following


def encode_consumer(next_snapshot: int) -> bytes:
    """The consumer file's content, as Java writes it."""
    return pretty({_NEXT: next_snapshot}).encode()


# -- changelogs: what is left of a snapshot that expired while its changelog stays (Java `Changelog`) ------------------


def decode_changelog(data: bytes, path: str) -> Snapshot:
    """The expired snapshot; raises :class:`lsm_core.errors.CorruptFile` naming ``path``.

    Its base and delta lists are names only: unless the table has no changelog producer, expiry deleted those files.
    """
    return Snapshot.from_json(data, path)


def encode_changelog(snapshot: Snapshot) -> bytes:
    """The file that keeps the changelog of ``snapshot`` reachable: the snapshot itself, member for member."""
    return snapshot.to_json()


# -- hash indexes: big-endian hashes without header or checksum (Java `HashIndexFile`) ---------------------------------


_HASH_BYTES: Final = 4


def decode_hash_index(data: bytes, path: str) -> npt.NDArray[np.int32]:
    """The hashes in file order (int32); raises :class:`CorruptFile` naming ``path`` when a hash is cut short."""
    if len(data) % _HASH_BYTES:
        raise CorruptFile(path, f"{len(data)} bytes are not whole hashes of {_HASH_BYTES} bytes")
    return np.frombuffer(data, ">i4").astype(np.int32)


def encode_hash_index(hashes: npt.NDArray[np.integer[Any]]) -> bytes:
    """The file's content; ``hashes`` are distinct (the caller's promise)."""
    return hashes.astype(">i4").tobytes()


# -- statistics: what ANALYZE found out about a table, for planners (Java `Statistics`) --------------------------------


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
        return pretty(_present({**value, _COLUMNS: self.columns_object()})).encode()

    def columns_object(self) -> dict[str, dict[str, Any]]:
        """The statistics of each column, by name, as plain JSON values."""
        return {
            column: _present({member: getattr(found, name) for member, name in _COLUMN_MEMBERS})
            for column, found in self.columns.items()
        }

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


__all__ = [
    "ColumnStatistics",
    "Statistics",
    "Tag",
    "decode_changelog",
    "decode_consumer",
    "decode_hash_index",
    "encode_changelog",
    "encode_consumer",
    "encode_hash_index",
]
