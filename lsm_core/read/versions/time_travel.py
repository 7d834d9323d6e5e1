"""From "which version of the table?" to one snapshot and the schema it is read with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any, Final

from lsm_core.errors import InvalidOption, SnapshotNotFound, TableNotFound, UnsupportedFeature
from lsm_core.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from lsm_core.metadata import schemas, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions, whole_number
from lsm_core.read.versions.startup import Mode, millis, startup

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
    asked = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InvalidOption(given[1], asked[given[1]], f"only one of {', '.join(given)}", store.name)
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
            return Version(_newest(store), store)
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


def _newest(store: TableStore) -> Snapshot | None:
    compacted = str(store.options.get("scan.mode")).lower() == Mode.COMPACTED_FULL
    found = (newest_compacted(store) if compacted else None) or snapshots.latest(store)
    if found is None and not schemas.list_schema_ids(store.file_io, store.root, store.branch):
        raise TableNotFound(f"table {store.name} was dropped or renamed since it was opened")
    return found


def _of_options(store: TableStore) -> Snapshot | None:
    """The snapshot that options pin, None for the newest."""
    asked = startup(store)
    if asked.changes or asked.mode is Mode.FROM_CREATION:
        raise UnsupportedFeature(f"read option '{asked.key or 'scan.mode'}' where one version is read", store.name)
    if asked.key is None or asked.mode is Mode.FROM_FILE_CREATION:
        return None
    return _pinned(store, asked.key, asked.value)


def _pinned(store: TableStore, key: str, value: Any) -> Snapshot:
    if key == "scan.snapshot-id":
        return snapshots.read(store, int(value))
    if key == "scan.tag-name":
        return tags.read_tag(store, str(value))
    if key == "scan.watermark":
        return _at_watermark(store, int(value))
    if key == "scan.version":
        return _of_version(store, str(value))
    return _at_time(store, millis(store, key, value))


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


__all__ = ["Version", "newest_compacted", "resolve", "with_schema"]
