"""Which snapshots are still there, in the table or among its changelogs, and the span of them that an incremental read is about."""

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

_ASKED_AGAIN: Final = 5
_ASKED_AGAIN_S: Final = 0.2
"""How often, and after how many seconds, a snapshot of which a file is missing is asked for again."""


def read_kept(store: TableStore, snapshot_id: int) -> Snapshot:
    """The snapshot, or what is left of it where only its changelog is kept. Raises SnapshotNotFound, CorruptFile."""
    found = snapshots.try_read(store, snapshot_id)
    if found is not None:
        return found
    try:
        return changelogs.read_changelog(store, snapshot_id)
    except SnapshotNotFound:
        return snapshots.read(store, snapshot_id)  # says what the table has


def next_snapshot(store: TableStore, snapshot_id: int) -> Snapshot | None:
    """The snapshot of that id; None when it is the next one and not there yet.

    Raises SnapshotNotFound when it has expired without a changelog, or can never come because the table was rolled back or
    made anew.
    """
    found = snapshots.try_read(store, snapshot_id)
    if found is not None:
        return found
    first, last = snapshots.earliest_id(store), snapshots.latest_id(store)
    if first is None or first <= snapshot_id:
        following = 1 if last is None else last + 1
        if snapshot_id > following:
            raise SnapshotNotFound(
                f"table {store.name} continues with snapshot {following}, the stream with {snapshot_id}: "
                "the table was rolled back or made anew"
            )
        return snapshots.try_read(store, snapshot_id)
    return read_kept(store, snapshot_id)


def is_gone(store: TableStore, snapshot_id: int) -> bool:
    """Whether neither the snapshot nor its changelog is there."""
    return not (snapshots.exists(store, snapshot_id) or changelogs.exists(store, snapshot_id))


@contextmanager
def expiry_named(store: TableStore, snapshot_id: int, *, whole: bool = False) -> Iterator[None]:
    """Name the expiry of a snapshot where one of its files turns out to be missing inside the block.

    An expiry deletes files before the snapshot that names them: the snapshot is asked for again for a moment, unless it is the newest,
    which no expiry takes.

    Args:
        store: The table.
        snapshot_id: The snapshot whose files are read.
        whole: Whether the version is read; else its changes, which its changelog may keep.

    Raises:
        SnapshotNotFound: The snapshot has expired (``expired`` is set).
        CorruptFile: A file is missing, or damaged, and the snapshot is there.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if isinstance(error, CorruptFile) and store.file_io.exists(error.path):
            raise
        attempts = _ASKED_AGAIN if snapshot_id < (snapshots.latest_id(store) or 0) else 1
        for attempt in range(attempts):
            if not snapshots.exists(store, snapshot_id) and (whole or is_gone(store, snapshot_id)):
                why = f"snapshot {snapshot_id} of table {store.name} expired while it was read: begin again with one that is kept"
                raise SnapshotNotFound(why, expired=True) from error
            if attempt + 1 < attempts:
                time.sleep(_ASKED_AGAIN_S)
        if isinstance(error, FileNotFoundError):
            raise CorruptFile(str(error.filename or store.root), "the file is missing") from error
        raise


def earliest_kept(store: TableStore) -> int | None:
    """Id of the oldest snapshot that is there, or whose changelog is and all that follow too; None without any."""
    first = snapshots.earliest_id(store)
    if first is None:
        return None
    kept = set(changelogs.list_changelogs(store))
    while first - 1 in kept:
        first -= 1
    return first


def first_since(store: TableStore, timestamp_ms: int) -> int | None:
    """Id of the oldest kept snapshot committed at ``timestamp_ms`` or later, the one to come if there is none; None without any.

    Source class: ``TimeTravelUtil``.
    """
    first, last = earliest_kept(store), snapshots.latest_id(store)
    if first is None or last is None:
        return None
    return bisect_left(range(first, last + 1), timestamp_ms, key=lambda n: read_kept(store, n).time_millis) + first


Version = int | str
_MODE: Final = "incremental-between-scan-mode"


class ScanMode(StrEnum):
    """How changes are found. Source class: ``CoreOptions.IncrementalBetweenScanMode``."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"
    DIFF = "diff"


@dataclass(frozen=True)
class Span:
    """After ``start`` up to and with ``end`` (snapshot ids), and how.

    ``start_version``, ``end_version``: the snapshots themselves where they are compared as a whole (mode diff).
    """

    start: int
    end: int
    mode: ScanMode
    start_version: Snapshot | None = None
    end_version: Snapshot | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing lies between."""
        return self.start == self.end


def span_between(store: TableStore, a: Version, b: Version, mode: str = ScanMode.AUTO) -> Span:
    """The span after ``a`` up to and with ``b``: snapshot ids, or names of tags (a text that no tag has may be an id).

    Mode auto: a comparison of both versions when a tag is named, else changelog files, or delta files where the table has no
    changelog producer. Raises InvalidOption for an unknown mode or an end before the start, SnapshotNotFound.
    """
    how = _mode(store, mode)
    ends = [_version(store, one) for one in (a, b)]
    if how is ScanMode.AUTO and any(snapshot is not None for _, snapshot in ends):
        how = ScanMode.DIFF
    return _span(store, ends[0], ends[1], how)


def span_of_options(store: TableStore) -> Span | None:
    """The span that the options of ``store`` ask for, None when they ask for a version.

    As Java, two tags are compared as a whole whatever the mode, unless `incremental-between-tag-to-snapshot` is set, and `scan.mode`
    = `latest-delta` reads what the newest snapshot added, nothing where that is no APPEND.
    """
    start = startup(store)
    if not start.changes:
        return None
    if start.mode is Mode.LATEST_DELTA:
        newest = snapshots.latest_id(store)
        return Span(0, 0, ScanMode.DELTA) if newest is None else Span(newest - 1, newest, ScanMode.DELTA)
    how = _mode(store, store.options.get(_MODE))
    if start.key == BETWEEN:
        return _between(store, str(start.value), how)
    if start.key == TIMES:
        return _between_times(store, start, how)
    raise UnsupportedFeature(f"read option '{start.key}'", store.name)


def _between(store: TableStore, text: str, how: ScanMode) -> Span:
    ends = [_version(store, one) for one in pair_of(store.name, BETWEEN, text)]
    named = [snapshot is not None for _, snapshot in ends]
    if named[0] != named[1]:
        raise InvalidOption(BETWEEN, text, "two tags or two snapshot ids", store.name)
    if named[0] and not store.options.get("incremental-between-tag-to-snapshot"):
        how = ScanMode.DIFF
    return _span(store, ends[0], ends[1], how)


def _between_times(store: TableStore, start: Startup, how: ScanMode) -> Span:
    """By commit times: after the newest snapshot that is not younger than the start (without one: from the earliest on)."""
    key, text = str(start.key), str(start.value)
    since, until = times_of(store.name, key, text)
    ids = snapshots.list_ids(store)

    def at_or_before(moment: int) -> int:
        return bisect_right(ids, moment, key=lambda number: snapshots.read(store, number).time_millis)

    low, high = at_or_before(since), at_or_before(until)
    if not ids or since == until or high == 0 or since > snapshots.read(store, ids[-1]).time_millis:
        return Span(0, 0, ScanMode.DELTA)
    first = ids[low - 1] if low else ids[0] - (how is not ScanMode.DIFF)
    return _span(store, (first, None), (ids[high - 1], None), how)


def _span(
    store: TableStore, start: tuple[int, Snapshot | None], end: tuple[int, Snapshot | None], how: ScanMode
) -> Span:
    (low, before), (high, after) = start, end
    if low > high:
        raise InvalidOption(BETWEEN, f"{low},{high}", "a start that is not after its end", store.name)
    if how is ScanMode.AUTO:
        produced = store.has_primary_key and store.options.changelog_producer != "none"
        how = ScanMode.CHANGELOG if produced else ScanMode.DELTA
    if how is not ScanMode.DIFF or low == high:
        return Span(low, high, how)
    return Span(low, high, how, before or snapshots.read(store, low), after or snapshots.read(store, high))


def _version(store: TableStore, named: Version) -> tuple[int, Snapshot | None]:
    """Snapshot id, and the snapshot when a tag names it (it may live on in the tag alone)."""
    if isinstance(named, str):
        if store.file_io.exists(tags.tag_path(store, named)):
            found = tags.read_tag(store, named)
            return found.id, found
        if not (named.isascii() and named.isdigit()):
            tags.read_tag(store, named)  # says which tags there are
            raise SnapshotNotFound(f"table {store.name} has no tag '{named}'")
        named = int(named)
    return whole_number(named, BETWEEN, store.name, least=0), None


def _mode(store: TableStore, text: object) -> ScanMode:
    try:
        return ScanMode(str(text).lower())
    except ValueError as error:
        raise InvalidOption(_MODE, text, ", ".join(ScanMode), store.name) from error


__all__ = [
    "ScanMode",
    "Span",
    "Version",
    "earliest_kept",
    "expiry_named",
    "first_since",
    "is_gone",
    "next_snapshot",
    "read_kept",
    "span_between",
    "span_of_options",
]
