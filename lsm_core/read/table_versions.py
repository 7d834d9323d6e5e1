"""Which version of a table a read is about: by its arguments, or by the table's options (`scan.*`), with the schema of its time."""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from lsm_core.errors import InvalidOption, InvalidSchema, SnapshotNotFound, TableNotFound, UnsupportedFeature
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import paimon_version, schemas, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import PaimonVersion, TableOptions, parse_digits, whole_number
from lsm_core.options.paimon_version import KEY as PAIMON_VERSION


class Mode(StrEnum):
    """The kinds of start that values of `scan.mode` mean. Source class: ``CoreOptions.StartupMode``."""

    LATEST_FULL = "latest-full"
    LATEST = "latest"
    COMPACTED_FULL = "compacted-full"
    FROM_TIMESTAMP = "from-timestamp"
    FROM_SNAPSHOT = "from-snapshot"
    FROM_SNAPSHOT_FULL = "from-snapshot-full"
    FROM_FILE_CREATION = "from-file-creation-time"
    FROM_CREATION = "from-creation-timestamp"
    INCREMENTAL = "incremental"
    LATEST_DELTA = "latest-delta"


_ZONE: Final = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")
_DAY_LENGTH: Final = len("2024-01-31")
_DIGITS_OF_SECONDS: Final = 12
_OF_SNAPSHOT: Final = ("scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.version")
_OF_TIME: Final = ("scan.timestamp-millis", "scan.timestamp")
_OF_FILES: Final = ("scan.file-creation-time-millis",)
_OF_CREATION: Final = ("scan.creation-time-millis",)
BETWEEN: Final = "incremental-between"
TIMES: Final = "incremental-between-timestamp"
_OF_CHANGES: Final = (BETWEEN, TIMES, "incremental-to-auto-tag")
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
    Mode.LATEST_DELTA: (),
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
        return self.mode in (Mode.INCREMENTAL, Mode.LATEST_DELTA)


def startup(store: TableStore) -> Startup:
    """What the options of ``store`` ask for. Raises as :func:`startup_of` does, and InvalidOption for a mode of a later version."""
    start = startup_of(store.options, store.name)
    if start.mode is Mode.LATEST_DELTA:
        _require_known(start, paimon_version.followed(store.file_io, store.snapshot_dir, store.options), store.name)
    return start


def _require_known(start: Startup, version: PaimonVersion, table: str) -> None:
    """Readers of the version that the table follows could not even open it with a mode that is younger."""
    if start.mode is Mode.LATEST_DELTA and not version.at_least(PaimonVersion.V2_1):
        accepted = f"a mode of Paimon {version}, which the table follows; this one is known since 2.1 ('{PAIMON_VERSION}' = '2.1')"
        raise InvalidOption("scan.mode", str(start.mode), accepted, table)


def startup_of(options: TableOptions, table: str) -> Startup:
    """What ``options`` ask for.

    Raises InvalidOption for keys that contradict each other or the mode, UnsupportedFeature for ways to start that are not
    known: ignoring one would answer another question than the one asked.
    """
    if options.get("scan.bucket") is not None:
        raise UnsupportedFeature("read option 'scan.bucket'", table)
    text = str(options.get("scan.mode")).lower()
    present = [key for key in _ALL if options.get(key) is not None]
    if len(present) > 1:
        raise InvalidOption(present[1], options.get(present[1]), f"only one of {', '.join(present)}", table)
    key = present[0] if present else None
    if text == _DEFAULT:
        return Startup(_DEFAULTS[key] if key else Mode.LATEST_FULL, key, options.get(key) if key else None)
    mode = _ALIASES.get(text) or (Mode(text) if text in set(Mode) else None)
    if mode is None:
        raise UnsupportedFeature(f"read option 'scan.mode' = '{text}'", table)
    if key is not None and key not in _KEYS[mode]:
        fitting = ", ".join(sorted(one for one, keys in _KEYS.items() if key in keys))
        raise InvalidOption("scan.mode", text, f"{fitting} together with {key}", table)
    if key is None and _KEYS[mode]:
        raise InvalidOption("scan.mode", text, f"one of {', '.join(_KEYS[mode])} with it", table)
    return Startup(mode, key, options.get(key) if key else None)


def millis(table: str, key: str, value: Any) -> int:
    """Epoch ms of a number, or of a time of day in this machine's zone, as Java understands `scan.timestamp`.

    Raises InvalidOption naming ``key``.
    """
    if isinstance(value, int):
        return value
    try:
        return int(dt.datetime.fromisoformat(str(value).strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidOption(key, value, "a time like 2024-01-31 12:00:00", table) from error


def moment_ms(table: str, key: str, text: str) -> int:
    """Return the epoch ms of a moment as `TIMESTAMP AS OF` writes it.

    Args:
        table: Name of the table, for errors.
        key: What the moment was given as, for errors.
        text: Whole seconds since 1970, or a day or time, in UTC unless it names a zone.

    Returns:
        Epoch ms.

    Raises:
        InvalidOption: The text is no moment; the error names ``key``.
    """
    moment = text.strip()
    if moment.isascii() and moment.isdigit() and len(moment) <= _DIGITS_OF_SECONDS:
        return int(moment) * 1000
    if not _ZONE.search(moment[_DAY_LENGTH:]):
        moment = f"{moment} +00:00" if len(moment) > _DAY_LENGTH else f"{moment} 00:00 +00:00"
    return millis(table, key, moment.replace(" +", "+"))


def pair_of(table: str, key: str, text: str) -> tuple[str, str]:
    """The two ends of a span. Raises InvalidOption naming ``key``."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidOption(key, text, "a start (exclusive) and an end (inclusive) with a comma between", table)
    return parts[0], parts[1]


def times_of(table: str, key: str, text: str) -> tuple[int, int]:
    """The two ends of a span as epoch ms. Raises InvalidOption naming ``key``."""
    since, until = (
        millis(table, key, one) if (number := parse_digits(one) if one.isdigit() else None) is None else number
        for one in pair_of(table, key, text)
    )
    if since > until:
        raise InvalidOption(key, text, "a start that is not after its end", table)
    return since, until


def check_reading(options: TableOptions, table: str, followed: PaimonVersion | None = None) -> None:
    """Refuse `scan.*` and `incremental-*` options with which every read would fail, whatever was committed.

    ``followed``: the version of Paimon that the table follows, where ``options`` alone do not tell.
    Raises InvalidOption for such that contradict each other and for values that name no version, UnsupportedFeature for ways to read
    that are not known here. Source class: ``SchemaValidation`` (``validateStartupMode``).
    """
    start = startup_of(options, table)
    _require_known(start, followed or options.paimon_version, table)
    key, value = str(start.key), str(start.value)
    if key == "scan.timestamp":
        millis(table, key, value)
    elif key == BETWEEN:
        since, until = pair_of(table, key, value)
        if since.isdigit() and until.isdigit() and int(since) > int(until):
            raise InvalidOption(key, value, "a start that is not after its end", table)
    elif key == TIMES:
        times_of(table, key, value)


_BY_WATERMARK: Final = "watermark-"


@dataclass(frozen=True)
class Version:
    """A version of a table: its snapshot (None: nothing was committed) and the table as of the schema it is read with.

    Like Java, a version that was asked for is read with the schema that was the newest when it was committed, the newest
    version with the table's schema of today.
    """

    snapshot: Snapshot | None
    store: TableStore


def resolve(
    store: TableStore,
    snapshot_id: int | None = None,
    *,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    watermark: int | None = None,
) -> Version:
    """The version asked for: by the arguments (at most one), else by the options, else the newest.

    ``timestamp_ms``: the newest snapshot not younger than this (epoch ms); ``watermark``: the oldest that has reached it.
    Raises :class:`SnapshotNotFound` when there is none such (``expired`` set when it once existed), :class:`TableNotFound`
    when the whole table is gone, :class:`InvalidOption` for contradicting wishes, :class:`UnsupportedFeature` for reads of changes.
    Source classes: ``CoreOptions.startupMode`` for batch reads, ``TimeTravelUtil``.
    """
    arguments = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    named = [name for name, value in arguments.items() if value is not None]
    if len(named) > 1:
        raise InvalidOption(named[1], arguments[named[1]], f"only one of {', '.join(named)}", store.name)
    if tag is not None:
        found = tags.read_tag(store, tag)
    elif snapshot_id is not None:
        found = snapshots.read(store, whole_number(snapshot_id, "snapshot_id", store.name))
    elif timestamp_ms is not None:
        found = _at_time(store, whole_number(timestamp_ms, "timestamp_ms", store.name))
    elif watermark is not None:
        found = _at_watermark(store, whole_number(watermark, "watermark", store.name))
    else:
        pinned = _of_options(store)
        if pinned is None:
            compacted = str(store.options.get("scan.mode")).lower() == Mode.COMPACTED_FULL
            newest = (newest_compacted(store) if compacted else None) or snapshots.latest(store)
            if newest is None and not schemas.list_schema_ids(store.file_io, store.root, store.branch):
                raise TableNotFound(f"table {store.name} was dropped or renamed since it was opened")
            return Version(newest, store)
        found = pinned
    return Version(found, with_schema(store, found.schema_id))


def with_schema(store: TableStore, schema_id: int) -> TableStore:
    """The same table as of another of its schemas, dynamic options kept. Raises CorruptFile when that schema is missing.

    Where the options of that schema cannot be used, which was repaired since, those in force count.
    """
    if schema_id == store.schema.id:
        return store
    schema = store.schema_of(schema_id)
    options = None if TableOptions.usable(schema.options).raw == schema.options else store.options
    return TableStore(
        store.file_io, store.root, store.name, schema, options, store.clock, store.branch, store.dynamic_options
    )


def replaced_column(store: TableStore, schema_id: int, columns: Iterable[str]) -> str | None:
    """What became of the first of ``columns`` that was dropped and added again by a newer schema: the table as it was opened would take all of its values for null; None of none.

    A column that is gone is null, as Java reads it. Raises CorruptFile when that schema is missing.
    """
    if schema_id <= store.schema.id:
        return None
    newer = store.schema_of(schema_id).fields
    ids, names = {field.id for field in newer}, {field.name for field in newer}
    for name in columns:
        if name in names and store.schema.field(name).id not in ids:
            return f"column '{name}' was dropped and added again (schema {schema_id})"
    return None


def require_told(store: TableStore, schema_ids: Iterable[int], columns: Iterable[str]) -> None:
    """Raise InvalidSchema, naming the column, where the schema of ``store`` cannot tell ``columns`` of files with these schemas."""
    names = list(columns)
    for schema_id in schema_ids:
        replaced = replaced_column(store, schema_id, names)
        if replaced is not None:
            raise InvalidSchema(
                f"table {store.name}: {replaced} after the table was opened (with schema {store.schema.id}): open it again before reading it"
            )


def _of_options(store: TableStore) -> Snapshot | None:
    """The snapshot that options pin, None for the newest."""
    start = startup(store)
    key, value = start.key, start.value
    if start.changes or start.mode is Mode.FROM_CREATION:
        raise UnsupportedFeature(f"read option '{key or 'scan.mode'}' where one version is read", store.name)
    if key is None or start.mode is Mode.FROM_FILE_CREATION:
        return None
    if key == "scan.snapshot-id":
        return snapshots.read(store, int(value))
    if key == "scan.tag-name":
        return tags.read_tag(store, str(value))
    if key == "scan.watermark":
        return _at_watermark(store, int(value))
    if key == "scan.version":
        return _of_version(store, str(value))
    return _at_time(store, millis(store.name, key, value))


def _of_version(store: TableStore, version: str) -> Snapshot:
    """A tag of that name, else `watermark-N`, else a snapshot's number."""
    if store.file_io.exists(tags.tag_path(store, version)):
        return tags.read_tag(store, version)
    digits = version.removeprefix(_BY_WATERMARK)
    if digits.isascii() and digits.isdigit():
        number = int(digits)
        return snapshots.read(store, number) if digits == version else _at_watermark(store, number)
    return tags.read_tag(store, version)


def _at_time(store: TableStore, timestamp_ms: int) -> Snapshot:
    """The newest snapshot that was committed at ``timestamp_ms`` or before."""
    ids = snapshots.list_ids(store)
    at = bisect_right(ids, timestamp_ms, key=lambda number: snapshots.read(store, number).time_millis)
    if at == 0:
        since = (
            f"the earliest is of {snapshots.read(store, ids[0]).time_millis}" if ids else "nothing was committed yet"
        )
        raise SnapshotNotFound(f"table {store.name} has no snapshot as old as timestamp {timestamp_ms} (ms): {since}")
    return snapshots.read(store, ids[at - 1])


def _at_watermark(store: TableStore, watermark: int) -> Snapshot:
    """The oldest snapshot whose watermark is ``watermark`` or more; watermarks never go back, the first snapshots have none."""
    ids = snapshots.list_ids(store)

    def reached(number: int) -> bool:
        found = snapshots.read(store, number).watermark
        return found is not None and found >= watermark

    at = bisect_left(ids, x=True, key=reached)  # False sorts before True
    if at == len(ids):
        raise SnapshotNotFound(f"table {store.name} has no snapshot that has reached watermark {watermark}")
    return snapshots.read(store, ids[at])


def newest_of_watermark(store: TableStore, watermark: int) -> Snapshot:
    """The newest snapshot whose watermark is ``watermark`` (epoch ms) or less: all that came later may belong to a later time.

    Raises SnapshotNotFound where there is none, which are also those that have none. Source: ``SnapshotManager.earlierOrEqualWatermark``.
    """
    ids = snapshots.list_ids(store)

    def beyond(number: int) -> bool:
        found = snapshots.read(store, number).watermark
        return found is not None and found > watermark

    at = bisect_left(ids, x=True, key=beyond)
    found = snapshots.read(store, ids[at - 1]) if at else None
    if found is None or found.watermark is None:
        raise SnapshotNotFound(f"table {store.name} has no snapshot with a watermark of {watermark} or less")
    return found


def newest_compacted(store: TableStore) -> Snapshot | None:
    """The newest COMPACT snapshot; where full compactions are made every so many commits, the newest of those."""
    options = store.options
    every = options.get("full-compaction.delta-commits")
    periodic = every is not None or options.changelog_producer == "full-compaction"
    for number in reversed(snapshots.list_ids(store)):
        snapshot = snapshots.try_read(store, number)
        if snapshot is None or snapshot.commit_kind is not CommitKind.COMPACT:
            continue
        identifier = snapshot.commit_identifier
        if not periodic or identifier == BATCH_COMMIT_IDENTIFIER or identifier % (every or 1) == 0:
            return snapshot
    return None


__all__ = [
    "BETWEEN",
    "TIMES",
    "Mode",
    "Startup",
    "Version",
    "check_reading",
    "millis",
    "moment_ms",
    "newest_compacted",
    "newest_of_watermark",
    "pair_of",
    "resolve",
    "startup",
    "startup_of",
    "times_of",
    "with_schema",
]
