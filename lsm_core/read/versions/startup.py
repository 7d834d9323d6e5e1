"""How a read starts, by the table's options: `scan.mode`, and the keys that choose a version or a set of changes."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.metadata.store import TableStore


class Mode(StrEnum):
    """What `scan.mode` comes down to. Source class: ``CoreOptions.StartupMode``."""

    LATEST_FULL = "latest-full"
    LATEST = "latest"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    FROM_FILE_CREATION = "from-file-creation-time"
    FROM_CREATION = "from-creation-timestamp"
    INCREMENTAL = "incremental"


_OF_SNAPSHOT: Final = ("scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.version")
_OF_TIME: Final = ("scan.timestamp-millis", "scan.timestamp")
_OF_FILES: Final = ("scan.file-creation-time-millis",)
_OF_CREATION: Final = ("scan.creation-time-millis",)
_OF_CHANGES: Final = ("incremental-between", "incremental-between-timestamp", "incremental-to-auto-tag")
# Which keys go with which mode. A mode without keys stands alone.
_KEYS: Final = {
    Mode.LATEST_FULL: (),
    Mode.LATEST: (),
    Mode.COMPACTED_FULL: (),
    Mode.FROM_TIMESTAMP: _OF_TIME,
    Mode.FROM_SNAPSHOT: _OF_SNAPSHOT,
    Mode.FROM_SNAPSHOT_FULL: ("scan.snapshot-id",),
    Mode.FROM_FILE_CREATION: _OF_FILES,
    Mode.FROM_CREATION: _OF_CREATION,
    Mode.INCREMENTAL: _OF_CHANGES,
}
_ALL: Final = (*_OF_SNAPSHOT, *_OF_TIME, *_OF_FILES, *_OF_CREATION, *_OF_CHANGES)
# What `scan.mode` = default stands for when one of these keys is there, else the newest version in full.
_DEFAULTS: Final = {
    **dict.fromkeys(_OF_TIME, Mode.FROM_TIMESTAMP),
    **dict.fromkeys(_OF_SNAPSHOT, Mode.FROM_SNAPSHOT),
    **dict.fromkeys(_OF_FILES, Mode.FROM_FILE_CREATION),
    **dict.fromkeys(_OF_CREATION, Mode.FROM_CREATION),
    **dict.fromkeys(_OF_CHANGES, Mode.INCREMENTAL),
}
_ALIASES: Final = {"full": Mode.LATEST_FULL}
_DEFAULT: Final = "default"


@dataclass(frozen=True)
class Startup:
    """The mode, and the one key with its value that it goes by (None where it needs none)."""

    mode: Mode
    key: str | None = None
    value: Any = None

    @property
    def changes(self) -> bool:
        """Whether a set of changes is asked for, not a version."""
        return self.mode is Mode.INCREMENTAL


def startup(store: TableStore) -> Startup:
    """What the options of ``store`` ask for.

    Raises InvalidOption for keys that contradict each other or the mode, UnsupportedFeature for ways to start that are not
    known: ignoring one would answer another question than the one asked.
    """
    options = store.options
    if options.get("scan.bucket") is not None:
        raise UnsupportedFeature("read option 'scan.bucket'", store.name)
    text = str(options.get("scan.mode")).lower()
    present = [key for key in _ALL if options.get(key) is not None]
    if len(present) > 1:
        raise InvalidOption(present[1], options.get(present[1]), f"only one of {', '.join(present)}", store.name)
    key = present[0] if present else None
    if text == _DEFAULT:
        return Startup(_DEFAULTS[key] if key else Mode.LATEST_FULL, key, options.get(key) if key else None)
    mode = _ALIASES.get(text) or (Mode(text) if text in set(Mode) else None)
    if mode is None:
        raise UnsupportedFeature(f"read option 'scan.mode' = '{text}'", store.name)
    if key is not None and key not in _KEYS[mode]:
        fitting = ", ".join(sorted(one for one, keys in _KEYS.items() if key in keys))
        raise InvalidOption("scan.mode", text, f"{fitting} together with {key}", store.name)
    if key is None and _KEYS[mode]:
        raise InvalidOption("scan.mode", text, f"one of {', '.join(_KEYS[mode])} with it", store.name)
    return Startup(mode, key, options.get(key) if key else None)


def millis(store: TableStore, key: str, value: Any) -> int:
    """Epoch ms of a number, or of a time of day in this machine's zone, as Java understands `scan.timestamp`.

    Raises InvalidOption naming ``key``.
    """
    if isinstance(value, int):
        return value
    try:
        return int(dt.datetime.fromisoformat(str(value).strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidOption(key, value, "a time like 2024-01-31 12:00:00", store.name) from error


__all__ = ["Mode", "Startup", "millis", "startup"]
