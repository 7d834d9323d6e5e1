"""Kept snapshots and changelogs of a table, and the span of snapshots that an incremental read covers."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lsm_core.errors import CorruptFile, InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import changelogs, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.read.table_versions import BETWEEN, TIMES, Mode, Startup, pair_of, startup, times_of

_RETRIES: Final = 5
_RETRY_SECONDS: Final = 0.2
"""Seconds between the `_RETRIES` checks whether a snapshot with a missing file has expired."""


def read_kept(store: TableStore, snapshot_id: int) -> Snapshot:
    """Return a snapshot from its snapshot file or, if that has expired, from its changelog file.

    Raises:
        SnapshotNotFound: neither file is kept.
        CorruptFile: the file cannot be read.
    """
    snapshot = snapshots.try_read(store, snapshot_id)
    if snapshot is not None:
        return snapshot
    try:
        return changelogs.read_changelog(store, snapshot_id)
    except SnapshotNotFound:
        return snapshots.read(store, snapshot_id)  # raises an error that names the kept snapshots


def next_snapshot(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """Return the snapshot ``snapshot_id``, which a stream reads next.

    Returns:
        The snapshot, or None if it is not committed yet.

    Raises:
        SnapshotNotFound: the snapshot has expired without a changelog, or the table was rolled back or recreated.
    """
    snapshot = snapshots.try_read(store, snapshot_id)
    if snapshot is not None:
        return snapshot
    first, last = snapshots.earliest_id(store), snapshots.latest_id(store)
    if first is None or first <= snapshot_id:
        following = 1 if last is None else last + 1
        if snapshot_id > following:
            raise SnapshotNotFound(
                f"table {store.name} continues with snapshot {following}, the stream with {snapshot_id}: "
                "the table was rolled back or recreated"
            )
        return snapshots.try_read(store, snapshot_id)
    return read_kept(store, snapshot_id)


def is_expired(store: TableStore, snapshot_id: int) -> bool:
    """Return whether neither the snapshot file nor its changelog file exists."""
    return not (snapshots.exists(store, snapshot_id) or changelogs.exists(store, snapshot_id))


@contextmanager
def expiry_named(store: TableStore, snapshot_id: int, *, whole: bool = False) -> Iterator[None]:
    """Raise SnapshotNotFound instead of CorruptFile when a file is missing in the block because its snapshot expired.

    An expiry deletes data files before it deletes the snapshot file that refers to them. The snapshot is therefore
    checked again for about a second. The newest snapshot never expires, so it is checked only once.

    Args:
        store: the table.
        snapshot_id: id of the snapshot whose files are read.
        whole: True if all rows of the version are read; False for its changes, which a changelog may still keep.

    Raises:
        SnapshotNotFound: the snapshot has expired (``expired`` is set).
        CorruptFile: a file is missing or damaged although the snapshot exists.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if isinstance(error, CorruptFile) and store.file_io.exists(error.path):
            raise
        attempts = _RETRIES if snapshot_id < (snapshots.latest_id(store) or 0) else 1
        for attempt in range(attempts):
            if not snapshots.exists(store, snapshot_id) and (whole or is_expired(store, snapshot_id)):
                raise SnapshotNotFound(
                    f"snapshot {snapshot_id} of table {store.name} expired during the read: "
                    "choose a version that is kept, or protect it by a tag",
                    expired=True,
                ) from error
            if attempt + 1 < attempts:
                time.sleep(_RETRY_SECONDS)
        if isinstance(error, FileNotFoundError):
            raise CorruptFile(str(error.filename or store.root), "the file is missing") from error
        raise


def earliest_kept(store: TableStore) -> int | None:
    """Return the oldest id that can be read: a kept snapshot, or a changelog with no gap between it and the snapshots.

    Returns:
        The id, or None for a table without snapshots.
    """
    first = snapshots.earliest_id(store)
    if first is None:
        return None
    kept = set(changelogs.list_changelogs(store))
    while first - 1 in kept:
        first -= 1
    return first


def first_since(store: TableStore, timestamp_ms: int) -> int | None:
    """Return the id of the oldest kept snapshot committed at ``timestamp_ms`` (epoch ms) or later.

    Returns:
        The snapshot id; the id of the next commit if all snapshots are older; None for a table without snapshots.

    Source: ``TimeTravelUtil``.
    """
    first, last = earliest_kept(store), snapshots.latest_id(store)
    if first is None or last is None:
        return None
    return bisect_left(range(first, last + 1), timestamp_ms, key=lambda n: read_kept(store, n).time_millis) + first


Version = int | str
_MODE: Final = "incremental-between-scan-mode"


class ScanMode(StrEnum):
    """Source of the changes between two versions: files of APPEND snapshots (delta), changelog files or a comparison.

    A comparison (diff) reads both versions. AUTO stands for the mode that fits the table and the named versions.

    Source: ``CoreOptions.IncrementalBetweenScanMode``.
    """

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


@dataclass(frozen=True)
class Span:
    """Range of snapshots that an incremental read covers.

    Attributes:
        start: id of the snapshot before the first change.
        end: id of the last snapshot whose changes are read.
        mode: how changes are computed.
        start_version: the older snapshot of the comparison; None except in mode diff.
        end_version: the newer snapshot of the comparison; None except in mode diff.
    """

    start: int
    end: int
    mode: ScanMode
    start_version: Snapshot | None = None
    end_version: Snapshot | None = None

    @property
    def empty(self) -> bool:
        """Whether the span covers no snapshot."""
        return self.start == self.end


def span_between(store: TableStore, a: Version, b: Version, mode: str = ScanMode.AUTO) -> Span:
    """Return the span after version ``a`` up to and including ``b``.

    Mode auto compares both versions when a tag is named. Otherwise it reads changelog files, or delta files where the
    table has no changelog producer.

    Args:
        store: the table.
        a: snapshot id or tag name; a text that is no tag name may be a snapshot id.
        b: version after ``a``, in the same forms as ``a``.
        mode: `auto`, `delta` (files of APPEND snapshots), `changelog` (changelog files) or `diff` (comparison).

    Raises:
        InvalidOption: the mode is unknown, or the end is before the start.
        SnapshotNotFound: a tag does not exist, or in mode diff a snapshot does not exist. Other modes check snapshot
            ids only when the changes are read.
    """
    scan_mode = _parse_mode(store, mode)
    ends = [_resolve_bound(store, bound) for bound in (a, b)]
    if scan_mode is ScanMode.AUTO and any(snapshot is not None for _, snapshot in ends):
        scan_mode = ScanMode.DIFF
    return _span(store, ends[0], ends[1], scan_mode)


def span_of_options(store: TableStore) -> Span | None:
    """Return the span of changes that the table's options select, or None if they select no changes.

    Such options are `incremental-between`, `incremental-between-timestamp` and `scan.mode` = `latest-delta`. As in
    Java, two tags are compared as versions in every mode, unless `incremental-between-tag-to-snapshot` is set.
    `latest-delta` reads the rows that the newest snapshot added, or no rows if this snapshot is not an APPEND.

    Args:
        store: the table with the options of the read.

    Raises:
        InvalidOption: options contradict each other, or their versions do not form a span.
        SnapshotNotFound: a snapshot of the span does not exist.
        UnsupportedFeature: the option that selects the changes is not supported (`incremental-to-auto-tag`).
    """
    start = startup(store)
    if not start.changes:
        return None
    if start.mode is Mode.LATEST_DELTA:
        newest = snapshots.latest_id(store)
        return Span(0, 0, ScanMode.DELTA) if newest is None else Span(newest - 1, newest, ScanMode.DELTA)
    scan_mode = _parse_mode(store, store.options.get(_MODE))
    if start.key == BETWEEN:
        return _between(store, str(start.value), scan_mode)
    if start.key == TIMES:
        return _between_times(store, start, scan_mode)
    raise UnsupportedFeature(f"read option '{start.key}'", store.name)


def _between(store: TableStore, text: str, scan_mode: ScanMode) -> Span:
    ends = [_resolve_bound(store, bound) for bound in pair_of(store.name, BETWEEN, text)]
    are_tags = [snapshot is not None for _, snapshot in ends]
    if are_tags[0] != are_tags[1]:
        raise InvalidOption(BETWEEN, text, "two tags or two snapshot ids", store.name)
    if are_tags[0] and not store.options.get("incremental-between-tag-to-snapshot"):
        scan_mode = ScanMode.DIFF
    return _span(store, ends[0], ends[1], scan_mode)


def _between_times(store: TableStore, start: Startup, scan_mode: ScanMode) -> Span:
    """Return the span of the snapshots committed between two times.

    The span begins after the newest snapshot at or before the start time. If no such snapshot is kept, it begins with
    the earliest snapshot; mode diff then compares with the earliest snapshot.
    """
    key, text = str(start.key), str(start.value)
    since, until = times_of(store.name, key, text)
    ids = snapshots.list_ids(store)

    def at_or_before(timestamp_ms: int) -> int:
        return bisect_right(ids, timestamp_ms, key=lambda number: snapshots.read(store, number).time_millis)

    low, high = at_or_before(since), at_or_before(until)
    if not ids or since == until or high == 0 or since > snapshots.read(store, ids[-1]).time_millis:
        return Span(0, 0, ScanMode.DELTA)
    first = ids[low - 1] if low else ids[0] - (scan_mode is not ScanMode.DIFF)
    return _span(store, (first, None), (ids[high - 1], None), scan_mode)


def _span(
    store: TableStore, start: tuple[int, Snapshot | None], end: tuple[int, Snapshot | None], scan_mode: ScanMode
) -> Span:
    (low, before), (high, after) = start, end
    if low > high:
        raise InvalidOption(BETWEEN, f"{low},{high}", "a start that is not after its end", store.name)
    if scan_mode is ScanMode.AUTO:
        produced = store.has_primary_key and store.options.changelog_producer != "none"
        scan_mode = ScanMode.CHANGELOG if produced else ScanMode.DELTA
    if scan_mode is not ScanMode.DIFF or low == high:
        return Span(low, high, scan_mode)
    return Span(low, high, scan_mode, before or snapshots.read(store, low), after or snapshots.read(store, high))


def _resolve_bound(store: TableStore, bound: Version) -> tuple[int, Snapshot | None]:
    """Return the snapshot id of ``bound``, and the tag's snapshot if ``bound`` is a tag (else None)."""
    if isinstance(bound, str):
        if store.file_io.exists(tags.tag_path(store, bound)):
            snapshot = tags.read_tag(store, bound)
            return snapshot.id, snapshot
        if not (bound.isascii() and bound.isdigit()):
            tags.read_tag(store, bound)  # raises an error that lists the existing tags
            raise SnapshotNotFound(f"table {store.name} has no tag '{bound}'")
        bound = int(bound)
    return whole_number(bound, BETWEEN, store.name, least=0), None


def _parse_mode(store: TableStore, text: object) -> ScanMode:
    try:
        return ScanMode(str(text).lower())
    except ValueError as error:
        raise InvalidOption(_MODE, text, ", ".join(ScanMode), store.name) from error
