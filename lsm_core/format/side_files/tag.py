"""Tags: a snapshot kept under a name, perhaps for a limited time (format.md 12, Java `Tag`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lsm_core.errors import CorruptFile
from lsm_core.format.json_text import parse_object, pretty
from lsm_core.format.snapshot import Snapshot, snapshot_from_object

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
            extra.append(f'  "{_CREATED}" : {pretty(_parts(self.create_time_ms, self.create_nanos))}')
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
        return Tag(snapshot_from_object(members, path), created, _retained(members, path), nanos)


def _parts(millis: int, nanos: int) -> list[int]:
    """Jackson's array of a LocalDateTime."""
    moment = _EPOCH + timedelta(milliseconds=millis)
    parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute]
    fraction = moment.microsecond * 1000 + nanos
    if fraction:
        return [*parts, moment.second, fraction]
    return [*parts, moment.second] if moment.second else parts


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


def _retained(members: dict[str, Any], path: str) -> int | None:
    value = members.get(_RETAINED)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise CorruptFile(path, f'member "{_RETAINED}" must be a number of seconds, found {value!r}')
    return round(value * _MILLIS)
