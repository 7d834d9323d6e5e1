"""Version of a table that a read uses.

Arguments or the table's options (`scan.*`) may name a version, which is read with the schema of its snapshot. Otherwise
the newest version is read with the table's current schema.
"""

from __future__ import annotations

import datetime as dt
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from lsm_core.errors import CorruptFile, InvalidOption, InvalidSchema, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import paimon_version, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import PaimonVersion, TableOptions, parse_digits, whole_number
from lsm_core.options.table_options import PAIMON_VERSION


class Mode(StrEnum):
    """Start positions of a read, as chosen by `scan.mode`.

    Source: ``CoreOptions.StartupMode``.
    """

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
_SNAPSHOT_KEYS: Final = ("scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.version")
_TIME_KEYS: Final = ("scan.timestamp-millis", "scan.timestamp")
_FILE_KEYS: Final = ("scan.file-creation-time-millis",)
_CREATION_KEYS: Final = ("scan.creation-time-millis",)
BETWEEN: Final = "incremental-between"
TIMES: Final = "incremental-between-timestamp"
_CHANGE_KEYS: Final = (BETWEEN, TIMES, "incremental-to-auto-tag")
# Option keys that each mode accepts. A mode without keys takes none.
_KEYS: Final = {
    Mode.LATEST_FULL: (),
    Mode.LATEST: (),
    Mode.COMPACTED_FULL: (),
    Mode.FROM_TIMESTAMP: _TIME_KEYS,
    Mode.FROM_SNAPSHOT: _SNAPSHOT_KEYS,
    Mode.FROM_SNAPSHOT_FULL: ("scan.snapshot-id",),
    Mode.FROM_FILE_CREATION: _FILE_KEYS,
    Mode.FROM_CREATION: _CREATION_KEYS,
    Mode.INCREMENTAL: _CHANGE_KEYS,
    Mode.LATEST_DELTA: (),
}
_ALL_KEYS: Final = (*_SNAPSHOT_KEYS, *_TIME_KEYS, *_FILE_KEYS, *_CREATION_KEYS, *_CHANGE_KEYS)
# Mode that `scan.mode` = default means when one of these keys is set; without one it is the newest version in full.
_DEFAULTS: Final = {
    **dict.fromkeys(_TIME_KEYS, Mode.FROM_TIMESTAMP),
    **dict.fromkeys(_SNAPSHOT_KEYS, Mode.FROM_SNAPSHOT),
    **dict.fromkeys(_FILE_KEYS, Mode.FROM_FILE_CREATION),
    **dict.fromkeys(_CREATION_KEYS, Mode.FROM_CREATION),
    **dict.fromkeys(_CHANGE_KEYS, Mode.INCREMENTAL),
}
_ALIASES: Final = {"full": Mode.LATEST_FULL}
_DEFAULT: Final = "default"


@dataclass(frozen=True)
class Startup:
    """Start position of a read, as the table's options describe it.

    Attributes:
        mode: the start mode.
        key: name of the option with the mode's argument; None if the mode needs no argument.
        value: the option's value.
    """

    mode: Mode
    key: str | None = None
    value: Any = None

    @property
    def changes(self) -> bool:
        """Whether the options select changes, not a version."""
        return self.mode in (Mode.INCREMENTAL, Mode.LATEST_DELTA)


def startup(store: TableStore) -> Startup:
    """Return the start position of reads (mode and its argument) that the options of ``store`` describe.

    Raises:
        InvalidOption: options contradict each other, or the mode is newer than the Paimon version of the table.
        UnsupportedFeature: Dredge does not know the start mode or option.
    """
    start = startup_of(store.options, store.name)
    if start.mode is Mode.LATEST_DELTA:
        _require_known(start, paimon_version.followed(store.file_io, store.snapshot_dir, store.options), store.name)
    return start


def _require_known(start: Startup, version: PaimonVersion, table: str) -> None:
    """Raise InvalidOption for a mode that readers of the table's Paimon version cannot parse."""
    if start.mode is Mode.LATEST_DELTA and not version.at_least(PaimonVersion.V2_1):
        accepted = (
            f"a mode of Paimon {version}, which the table follows; this one is known since 2.1 "
            f"('{PAIMON_VERSION}' = '2.1')"
        )
        raise InvalidOption("scan.mode", str(start.mode), accepted, table)


def startup_of(options: TableOptions, table: str) -> Startup:
    """Return the start position of reads (mode and its argument) that ``options`` describe.

    An unknown start mode or option is an error: if it were ignored, a read could return the wrong version.

    Raises:
        InvalidOption: options contradict each other or the mode.
        UnsupportedFeature: Dredge does not know the start mode or option.
    """
    if options.get("scan.bucket") is not None:
        raise UnsupportedFeature("read option 'scan.bucket'", table)
    text = str(options.get("scan.mode")).lower()
    present = [key for key in _ALL_KEYS if options.get(key) is not None]
    if len(present) > 1:
        raise InvalidOption(present[1], options.get(present[1]), f"only one of {', '.join(present)}", table)
    key = present[0] if present else None
    if text == _DEFAULT:
        return Startup(_DEFAULTS[key] if key else Mode.LATEST_FULL, key, options.get(key) if key else None)
    mode = _ALIASES.get(text) or (Mode(text) if text in set(Mode) else None)
    if mode is None:
        raise UnsupportedFeature(f"read option 'scan.mode' = '{text}'", table)
    if key is not None and key not in _KEYS[mode]:
        fitting = ", ".join(sorted(candidate for candidate, keys in _KEYS.items() if key in keys))
        raise InvalidOption("scan.mode", text, f"{fitting} together with {key}", table)
    if key is None and _KEYS[mode]:
        raise InvalidOption("scan.mode", text, f"one of {', '.join(_KEYS[mode])} with it", table)
    return Startup(mode, key, options.get(key) if key else None)


def millis(table: str, key: str, value: Any) -> int:
    """Convert epoch ms or a time text (in this machine's time zone) to epoch ms, as Java reads `scan.timestamp`.

    Args:
        table: name of the table, for errors.
        key: name of the option, for errors.
        value: epoch ms or an ISO time.

    Raises:
        InvalidOption: the value is no time.
    """
    if isinstance(value, int):
        return value
    try:
        return int(dt.datetime.fromisoformat(str(value).strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidOption(key, value, "a time like 2024-01-31 12:00:00", table) from error


def moment_ms(table: str, key: str, text: str) -> int:
    """Convert the timestamp of a `TIMESTAMP AS OF` clause to epoch ms.

    Args:
        table: name of the table, for errors.
        key: name of the option or clause, for errors.
        text: whole seconds since 1970, or a date or time, in UTC unless the text names a time zone.

    Returns:
        Epoch ms.

    Raises:
        InvalidOption: the text is no timestamp; the error names ``key``.
    """
    moment = text.strip()
    if moment.isascii() and moment.isdigit() and len(moment) <= _DIGITS_OF_SECONDS:
        return int(moment) * 1000
    if not _ZONE.search(moment[_DAY_LENGTH:]):
        moment = f"{moment} +00:00" if len(moment) > _DAY_LENGTH else f"{moment} 00:00 +00:00"
    return millis(table, key, moment.replace(" +", "+"))


def pair_of(table: str, key: str, text: str) -> tuple[str, str]:
    """Split the text `start,end` of an option and return (start, end).

    Raises:
        InvalidOption: the text does not have this form; the error names ``key``.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InvalidOption(key, text, "a start (exclusive) and an end (inclusive), separated by a comma", table)
    return parts[0], parts[1]


def times_of(table: str, key: str, text: str) -> tuple[int, int]:
    """Parse the text `start,end` of two times and return (start, end) as epoch ms.

    Raises:
        InvalidOption: a part is no time, or the start is after the end; the error names ``key``.
    """
    since, until = (
        millis(table, key, moment) if (number := parse_digits(moment) if moment.isdigit() else None) is None else number
        for moment in pair_of(table, key, text)
    )
    if since > until:
        raise InvalidOption(key, text, "a start that is not after its end", table)
    return since, until


def check_reading(options: TableOptions, table: str, followed: PaimonVersion | None = None) -> None:
    """Reject `scan.*` and `incremental-*` options with which every read would fail, at any snapshot.

    Args:
        options: options of the table.
        table: name of the table, for errors.
        followed: the Paimon version that the table follows; None to read it from the options.

    Raises:
        InvalidOption: options contradict each other, or a value is not a time or not a pair of versions.
        UnsupportedFeature: Dredge does not know the start mode or option.

    Source: ``SchemaValidation`` (``validateStartupMode``).
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
    """Version of a table.

    As in Java, a version that arguments or options name is read with the schema of its snapshot. If no version is
    named, the newest version is read with the table's current schema.

    Attributes:
        snapshot: the snapshot; None if the table has no commit.
        store: the table with the schema that the version is read with.
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
    """Return the version that the arguments name, else the version that the options name, else the newest version.

    Args:
        store: the table.
        snapshot_id: id of the snapshot.
        tag: name of the tag.
        timestamp_ms: choose the newest snapshot at or before this time (epoch ms).
        watermark: choose the oldest snapshot that has reached this watermark (ms).

    Raises:
        SnapshotNotFound: the version does not exist (``expired`` is set when it once existed).
        TableNotFound: the table no longer exists.
        InvalidOption: more than one argument is set, or the options contradict each other.
        UnsupportedFeature: the options select changes, or a start that only streams support.

    Source: ``CoreOptions.startupMode`` for batch reads, ``TimeTravelUtil``.
    """
    arguments = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    named_arguments = [name for name, value in arguments.items() if value is not None]
    if len(named_arguments) > 1:
        raise InvalidOption(
            named_arguments[1], arguments[named_arguments[1]], f"only one of {', '.join(named_arguments)}", store.name
        )
    if tag is not None:
        snapshot = tags.read_tag(store, tag)
    elif snapshot_id is not None:
        snapshot = snapshots.read(store, whole_number(snapshot_id, "snapshot_id", store.name))
    elif timestamp_ms is not None:
        snapshot = _snapshot_at_time(store, whole_number(timestamp_ms, "timestamp_ms", store.name))
    elif watermark is not None:
        snapshot = _snapshot_at_watermark(store, whole_number(watermark, "watermark", store.name))
    else:
        pinned = _pinned_snapshot(store)
        if pinned is None:
            compacted = str(store.options.get("scan.mode")).lower() == Mode.COMPACTED_FULL
            newest = (newest_compacted(store) if compacted else None) or snapshots.latest(store)
            return Version(newest, store)
        snapshot = pinned
    return Version(snapshot, with_schema(store, snapshot.schema_id))


def with_schema(store: TableStore, schema_id: int) -> TableStore:
    """Return the table with schema ``schema_id``; the dynamic options stay.

    If the options of that schema are invalid (and were repaired since), the current options are used.

    Raises:
        CorruptFile: the schema is missing.
    """
    if schema_id == store.schema.id:
        return store
    schema = store.schema_of(schema_id)
    options = None if TableOptions.usable(schema.options).raw == schema.options else store.options
    dynamic_options, identity = store.dynamic_options, store.identity
    other = TableStore(
        store.file_io, store.root, store.name, schema, options, store.clock, store.branch, dynamic_options, identity
    )
    return other.in_catalog_of(store)


def replaced_column(store: TableStore, schema_id: int, columns: Iterable[str]) -> str | None:
    """Return a message about the first of ``columns`` that a newer schema dropped and added again, or None.

    With the schema at opening, all values of this column would be read as null. A column that was only dropped is read
    as null, as in Java, and is no error.

    Args:
        store: the table as it was opened.
        schema_id: id of the newer schema.
        columns: names of the columns.

    Raises:
        CorruptFile: the schema is missing.
    """
    if schema_id <= store.schema.id:
        return None
    newer = store.schema_of(schema_id).fields
    ids, names = {field.id for field in newer}, {field.name for field in newer}
    for name in columns:
        if name in names and store.schema.field(name).id not in ids:
            return f"column '{name}' was dropped and added again (schema {schema_id})"
    return None


def require_same_columns(store: TableStore, schema_ids: Iterable[int], columns: Iterable[str]) -> None:
    """Check that the schema of ``store`` can read ``columns`` of files that were written with ``schema_ids``.

    Raises:
        InvalidSchema: a column was dropped and added again; the error names it.
    """
    names = list(columns)
    for schema_id in schema_ids:
        replaced = replaced_column(store, schema_id, names)
        if replaced is not None:
            raise InvalidSchema(
                f"table {store.name}: {replaced} after the table was opened (with schema {store.schema.id}): "
                "open it again before reading it"
            )


@contextmanager
def naming_lost_version(store: TableStore, snapshot: Snapshot | None) -> Iterator[None]:
    """Replace the error of a missing file in the block by SnapshotNotFound if the table no longer has the version.

    Args:
        store: the table.
        snapshot: the version that is read; None for an empty table.

    Raises:
        SnapshotNotFound: the snapshot has expired or was rolled back, and no tag keeps it.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if snapshot is None or (isinstance(error, CorruptFile) and store.file_io.exists(error.path)):
            raise
        if _is_kept(store, snapshot):
            raise
        raise SnapshotNotFound(
            f"table {store.name} no longer has the snapshot {snapshot.id} that is being read: it expired or was rolled "
            "back; read a version that is kept, or protect it by a tag",
            expired=True,
        ) from error


def _is_kept(store: TableStore, snapshot: Snapshot) -> bool:
    """Return whether the table has the snapshot, or a tag of it; True if damaged metadata hides this."""
    try:
        current = snapshots.try_read(store, snapshot.id)
        kept = [*([] if current is None else [current]), *tags.list_tags(store).values()]
    except CorruptFile:
        return True
    return any(snapshots.is_same(snapshot, other) for other in kept)


def _pinned_snapshot(store: TableStore) -> Snapshot | None:
    """Return the snapshot that the table's options name, or None if the options name no snapshot."""
    start = startup(store)
    key, value = start.key, start.value
    if start.changes or start.mode is Mode.FROM_CREATION:
        raise UnsupportedFeature(f"read option '{key or 'scan.mode'}' in a read of one version", store.name)
    if key is None or start.mode is Mode.FROM_FILE_CREATION:
        return None
    if key == "scan.snapshot-id":
        return snapshots.read(store, int(value))
    if key == "scan.tag-name":
        return tags.read_tag(store, str(value))
    if key == "scan.watermark":
        return _snapshot_at_watermark(store, int(value))
    if key == "scan.version":
        return _snapshot_of_version(store, str(value))
    return _snapshot_at_time(store, millis(store.name, key, value))


def _snapshot_of_version(store: TableStore, version: str) -> Snapshot:
    """Return the snapshot that ``version`` names: a tag, `watermark-N`, or a snapshot id, tried in this order."""
    if store.file_io.exists(tags.tag_path(store, version)):
        return tags.read_tag(store, version)
    digits = version.removeprefix(_BY_WATERMARK)
    if digits.isascii() and digits.isdigit():
        number = int(digits)
        return snapshots.read(store, number) if digits == version else _snapshot_at_watermark(store, number)
    return tags.read_tag(store, version)


def _snapshot_at_time(store: TableStore, timestamp_ms: int) -> Snapshot:
    """Return the newest snapshot that was committed at or before ``timestamp_ms`` (epoch ms)."""
    ids = snapshots.list_ids(store)
    position = bisect_right(ids, timestamp_ms, key=lambda number: snapshots.read(store, number).time_millis)
    if position == 0:
        since = (
            f"the earliest is of {snapshots.read(store, ids[0]).time_millis}" if ids else "nothing was committed yet"
        )
        raise SnapshotNotFound(
            f"table {store.name} has no snapshot at or before timestamp {timestamp_ms} (ms): {since}"
        )
    return snapshots.read(store, ids[position - 1])


def _snapshot_at_watermark(store: TableStore, watermark: int) -> Snapshot:
    """Return the oldest snapshot whose watermark is ``watermark`` or more.

    Watermarks never decrease; the first snapshots may have no watermark.
    """
    ids = snapshots.list_ids(store)

    def has_reached(number: int) -> bool:
        current = snapshots.read(store, number).watermark
        return current is not None and current >= watermark

    position = bisect_left(ids, x=True, key=has_reached)  # False sorts before True
    if position == len(ids):
        raise SnapshotNotFound(f"table {store.name} has no snapshot that has reached watermark {watermark}")
    return snapshots.read(store, ids[position])


def newest_of_watermark(store: TableStore, watermark: int) -> Snapshot:
    """Return the newest snapshot whose watermark is ``watermark`` (epoch ms) or less.

    All later snapshots have a larger watermark.

    Args:
        store: the table.
        watermark: epoch ms.

    Raises:
        SnapshotNotFound: no snapshot has a watermark that low; snapshots without a watermark are ignored.

    Source: ``SnapshotManager.earlierOrEqualWatermark``.
    """
    ids = snapshots.list_ids(store)

    def is_beyond(number: int) -> bool:
        current = snapshots.read(store, number).watermark
        return current is not None and current > watermark

    position = bisect_left(ids, x=True, key=is_beyond)
    snapshot = snapshots.read(store, ids[position - 1]) if position else None
    if snapshot is None or snapshot.watermark is None:
        raise SnapshotNotFound(f"table {store.name} has no snapshot with a watermark of {watermark} or less")
    return snapshot


def newest_compacted(store: TableStore) -> Snapshot | None:
    """Return the newest COMPACT snapshot that counts, or None if there is no such snapshot.

    In most tables every COMPACT snapshot counts. With option `full-compaction.delta-commits` = N, or with changelog
    producer full-compaction (N is then 1 by default), only those count whose commit identifier is a multiple of N, or
    that a batch job committed: other compactions of such a table are not full.
    """
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
