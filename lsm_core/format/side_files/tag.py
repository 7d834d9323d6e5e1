"""Tags: a snapshot kept under a name, perhaps for a limited time (format.md 12, Java `Tag`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lsm_core.errors import CorruptFile
from lsm_core.format.json_text import parse_object
from lsm_core.format.snapshot import Snapshot, snapshot_from_object

_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
_MILLIS = 1000
_MIN_PARTS, _MAX_PARTS = 3, 7


@dataclass(frozen=True)
class Tag:
    """A tagged snapshot; ``create_time_ms`` (wall clock encoded as if UTC) and ``time_retained_ms`` are None for a plain tag."""

    snapshot: Snapshot
    create_time_ms: int | None = None
    time_retained_ms: int | None = None

    @property
    def expires_ms(self) -> int | None:
        """When the tag may go, in epoch ms; None: never."""
        if self.create_time_ms is None or self.time_retained_ms is None:
            return None
        return self.create_time_ms + self.time_retained_ms

    @staticmethod
    def from_json(data: bytes, path: str) -> Tag:
        """Parse a tag file; raises :class:`CorruptFile` naming ``path``."""
        members = parse_object(data, path)
        return Tag(snapshot_from_object(members, path), _created(members.get(_CREATED), path), _retained(members, path))


def _created(value: Any, path: str) -> int | None:
    """Jackson's array of a LocalDateTime, `[y, M, d, h, m, s, nanos]`, whose trailing zeros are left out."""
    if value is None:
        return None
    whole = isinstance(value, list) and all(isinstance(part, int) and not isinstance(part, bool) for part in value)
    if not whole or not _MIN_PARTS <= len(value) <= _MAX_PARTS:
        raise CorruptFile(path, f'member "{_CREATED}" must be an array of 3 to 7 whole numbers, found {value!r}')
    year, month, day, hour, minute, second, nanos = [*value, 0, 0, 0, 0][:_MAX_PARTS]
    try:
        moment = datetime(year, month, day, hour, minute, second, nanos // 1000, UTC)
    except (ValueError, OverflowError) as error:
        raise CorruptFile(path, f'member "{_CREATED}": {error}') from error
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _retained(members: dict[str, Any], path: str) -> int | None:
    value = members.get(_RETAINED)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise CorruptFile(path, f'member "{_RETAINED}" must be a number of seconds, found {value!r}')
    return round(value * _MILLIS)
