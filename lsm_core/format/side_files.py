"""Encodings of the small metadata files: tags, consumers, changelogs, statistics and hash indexes.

The layouts are described in docs/format.md, sections 11.1 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import Snapshot, snapshot_from_object
from lsm_core.json_text import ObjectReader, parse_object, pretty

# -- tags --------------------------------------------------------------------------------------------------------------


_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
_MILLIS = 1000
_NANOS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_PARTS, _MAX_PARTS = 3, 7


@dataclass(frozen=True)
class Tag:
    """A tagged snapshot.

    Attributes:
        snapshot: the snapshot.
        create_time_ms: wall-clock time of creation, encoded as if it were UTC (ms), or None for a plain tag.
        time_retained_ms: retention (ms), or None for a plain tag.
        create_nanos: nanoseconds of the creation time beyond the millisecond, 0 to 999,999.
    """

    snapshot: Snapshot
    create_time_ms: int | None = None
    time_retained_ms: int | None = None
    create_nanos: int = 0

    @property
    def expires_ms(self) -> int | None:
        """Wall-clock time at which the tag expires, encoded as if it were UTC (ms), or None if it does not expire."""
        if self.create_time_ms is None or self.time_retained_ms is None:
            return None
        return self.create_time_ms + self.time_retained_ms

    def to_json(self) -> bytes:
        """Return the content of the tag file as Java writes it: the snapshot, and both times if they are set."""
        text = self.snapshot.to_json().decode()
        extra = []
        if self.create_time_ms is not None:
            # Jackson writes a LocalDateTime as an array without trailing zeros of seconds and nanoseconds.
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
        """Parse a tag file.

        Raises:
            CorruptFile: the file is damaged; the message names ``path``.
        """
        members = parse_object(data, path)
        created, nanos = _parse_creation_time(members.get(_CREATED), path)
        of_snapshot = {name: value for name, value in members.items() if name not in (_CREATED, _RETAINED)}
        snapshot, retained = snapshot_from_object(of_snapshot, path), members.get(_RETAINED)
        if retained is None:
            return Tag(snapshot, created, None, nanos)
        if isinstance(retained, bool) or not isinstance(retained, int | float) or not abs(retained) < 1e15:
            raise CorruptFile(path, f'member "{_RETAINED}" must be a number of seconds, found {retained!r}')
        return Tag(snapshot, created, round(retained * _MILLIS), nanos)


def _parse_creation_time(value: Any, path: str) -> tuple[int | None, int]:
    """Parse Jackson's array of a LocalDateTime: `[y, M, d, h, m, s, nanos]` without trailing zeros.

    Returns:
        The time in ms, encoded as if it were UTC (None if ``value`` is None), and its further nanoseconds.
    """
    if value is None:
        return None, 0
    is_integer_list = isinstance(value, list) and all(
        isinstance(part, int) and not isinstance(part, bool) for part in value
    )
    if not is_integer_list or not _MIN_PARTS <= len(value) <= _MAX_PARTS:
        raise CorruptFile(path, f'member "{_CREATED}" must be an array of 3 to 7 whole numbers, found {value!r}')
    year, month, day, hour, minute, second, nanos = [*value, 0, 0, 0, 0][:_MAX_PARTS]
    try:
        moment = datetime(year, month, day, hour, minute, second, nanos // 1000, UTC)
    except (ValueError, OverflowError) as error:
        raise CorruptFile(path, f'member "{_CREATED}": {error}') from error
    return (moment - _EPOCH) // timedelta(milliseconds=1), nanos % _NANOS


# -- consumers: read positions of streams (Java `Consumer`) ------------------------------------------------------------


_NEXT: Final = "nextSnapshot"


def decode_consumer(data: bytes, path: str) -> int:
    """Return the id of the snapshot that the consumer reads next.

    Raises:
        CorruptFile: the file is damaged; the message names ``path``.
    """
    next_snapshot = ObjectReader(parse_object(data, path), path).integer(_NEXT)
    if next_snapshot < 0:
        raise CorruptFile(path, f"{_NEXT} is {next_snapshot}")
    return next_snapshot


def encode_consumer(next_snapshot: int) -> bytes:
    """Return the content of the consumer file as Java writes it."""
    return pretty({_NEXT: next_snapshot}).encode()


# -- changelogs: expired snapshots whose changelog is kept (Java `Changelog`) ------------------------------------------


def decode_changelog(data: bytes, path: str) -> Snapshot:
    """Return an expired snapshot from its changelog file.

    The base and delta manifest lists that the snapshot names may no longer exist: expiry deletes them unless the table
    has no changelog producer.

    Raises:
        CorruptFile: the file is damaged; the message names ``path``.
    """
    return Snapshot.from_json(data, path)


def encode_changelog(snapshot: Snapshot) -> bytes:
    """Return the content of the changelog file, which is the snapshot itself with all members."""
    return snapshot.to_json()


# -- hash indexes: big-endian hashes without header or checksum (Java `HashIndexFile`) ---------------------------------


_HASH_BYTES: Final = 4


def decode_hash_index(data: bytes, path: str) -> npt.NDArray[np.int32]:
    """Return the hashes in file order as int32.

    Raises:
        CorruptFile: the last hash is truncated; the message names ``path``.
    """
    if len(data) % _HASH_BYTES:
        raise CorruptFile(path, f"{len(data)} bytes are not whole hashes of {_HASH_BYTES} bytes")
    return np.frombuffer(data, ">i4").astype(np.int32)


def encode_hash_index(hashes: npt.NDArray[np.integer[Any]]) -> bytes:
    """Return the content of a hash index file; the caller ensures that ``hashes`` are distinct."""
    return hashes.astype(">i4").tobytes()


# -- statistics: results of ANALYZE for query planners (Java `Statistics`) ---------------------------------------------


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
    """Statistics of one column; None means unknown.

    Attributes:
        column_id: field id of the column.
        distinct_count: number of distinct values.
        minimum: smallest value as text.
        maximum: largest value as text.
        null_count: number of nulls.
        average_length: average length in bytes.
        maximum_length: largest length in bytes.
    """

    column_id: int
    distinct_count: int | None = None
    minimum: str | None = None
    maximum: str | None = None
    null_count: int | None = None
    average_length: int | None = None
    maximum_length: int | None = None


@dataclass(frozen=True)
class Statistics:
    """Statistics of a table at one snapshot; None means unknown.

    Attributes:
        snapshot_id: id of the snapshot.
        schema_id: id of the snapshot's schema.
        merged_record_count: number of rows after merging.
        merged_record_size: size of the merged rows in bytes.
        columns: statistics by column name.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None = None
    merged_record_size: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the content of the statistics file as Java writes it, without absent members."""
        value: dict[str, Any] = {"snapshotId": self.snapshot_id, "schemaId": self.schema_id}
        value |= {member: getattr(self, name) for member, name in _TABLE_COUNTS}
        return pretty(_without_none({**value, _COLUMNS: self.columns_object()})).encode()

    def columns_object(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of each column, by name, as plain JSON values."""
        return {
            column: _without_none({member: getattr(statistics, name) for member, name in _COLUMN_MEMBERS})
            for column, statistics in self.columns.items()
        }

    @staticmethod
    def from_json(data: bytes, path: str) -> Statistics:
        """Parse a statistics file; unknown members are ignored.

        Raises:
            CorruptFile: the file is damaged; the message names ``path``.
        """
        members = parse_object(data, path)
        reader = ObjectReader(members, path)
        columns = members.get(_COLUMNS) or {}
        if not isinstance(columns, dict) or any(
            not isinstance(members_of_column, dict) for members_of_column in columns.values()
        ):
            raise reader.bad(_COLUMNS, "an object of objects")
        return Statistics(
            reader.integer("snapshotId"),
            reader.integer("schemaId"),
            **{name: reader.optional_integer(member) for member, name in _TABLE_COUNTS},
            columns={
                name: _column(ObjectReader(members_of_column, path)) for name, members_of_column in columns.items()
            },
        )


def _column(reader: ObjectReader) -> ColumnStatistics:
    values: dict[str, Any] = {
        name: reader.optional_text(member) if member in _TEXTS else reader.optional_integer(member)
        for member, name in _COLUMN_MEMBERS
    }
    values["column_id"] = reader.integer("colId")
    return ColumnStatistics(**values)


def _without_none(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}
