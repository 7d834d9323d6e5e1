"""Overdue work on a table's history: snapshots and tags to expire, gaps in ids, slow consumers, small manifests.

The figures come from small metadata files; about a dozen snapshots are read, however many the table has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lsm_core.clock import local_offset_ms
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.state import find_hold
from lsm_core.maintenance.retention import RetentionPolicy
from lsm_core.maintenance.saved_plans import estimate_waiting
from lsm_core.metadata import changelogs, consumers, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

GRACE_MS: Final = 24 * 60 * 60 * 1000
"""Default time by which an expiry may be late before its snapshots and tags count as overdue."""


@dataclass(frozen=True)
class HistoryHealth:
    """Figures of a table's history. Times are epoch ms.

    Attributes:
        snapshots: number of snapshots.
        earliest_ms: time of the oldest snapshot.
        overdue: number of snapshots that still exist, although an expiry would have removed them ``grace_ms`` ago.
        gaps: ranges of missing snapshot ids as (first, last).
        changelogs: number of kept changelogs.
        tags: number of tags.
        overdue_tags: names of tags whose retention time ended longer ago than ``grace_ms``.
        consumers: number of consumers.
        consumer: name of the slowest consumer, that with the oldest next snapshot; "" without consumers.
        consumer_behind: number of snapshots that ``consumer`` has yet to read.
        consumer_seen_ms: time of the last progress of ``consumer``.
        held: number of snapshots that retention would release if ``consumer`` did not need them.
        manifests: number of manifests of the newest snapshot.
        manifest_bytes: bytes of these manifests.
        small_manifests: number of manifests smaller than `manifest.target-file-size` or with DELETE entries.
        orphans: number of unreferenced files in the orphan removal plan that waits for approval. 0 without such a plan,
            because counting would list all files.
        orphan_bytes: bytes of the unreferenced files.
    """

    snapshots: int = 0
    earliest_ms: int | None = None
    overdue: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    changelogs: int = 0
    tags: int = 0
    overdue_tags: tuple[str, ...] = ()
    consumers: int = 0
    consumer: str = ""
    consumer_behind: int = 0
    consumer_seen_ms: int | None = None
    held: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    small_manifests: int = 0
    orphans: int = 0
    orphan_bytes: int = 0


def _no_arguments(_: int) -> Mapping[str, int]:
    return {}


def read_history_health(
    store: TableStore,
    newest: Snapshot | None = None,
    grace_ms: int = 0,
    retention_at: Callable[[int], Mapping[str, int]] = _no_arguments,
) -> HistoryHealth:
    """Return the overdue work of a table's history.

    Args:
        store: the table.
        newest: newest snapshot, if the caller has just read it; None to read it.
        grace_ms: time (ms) by which an expiry may be late before a snapshot or tag counts as overdue.
        retention_at: returns the arguments of an expiry at a time (epoch ms) that override the table's options:
            ``retain_min``, ``retain_max`` and ``older_than_ms``.

    Raises:
        CorruptFile: a snapshot, tag, consumer or manifest list cannot be read.
    """
    newest = snapshots.latest(store) if newest is None else newest
    ids = snapshots.list_ids(store)
    if newest is None or not ids:
        return HistoryHealth()
    now = store.clock.now_ms()
    read = sorted(consumers.list_details(store), key=lambda consumer: (consumer.next_snapshot, consumer.consumer_id))
    slowest = read[0] if read else None
    oldest = snapshots.try_read(store, ids[0])
    arguments = retention_at(now - grace_ms)
    rule = RetentionPolicy.of(
        store.options,
        now - grace_ms,
        arguments.get("retain_max"),
        arguments.get("retain_min"),
        arguments.get("older_than_ms"),
    )
    existed = _ids_until(store, ids, now - grace_ms) if grace_ms else ids
    named = _named_by_iceberg(store, existed)
    free = _overdue(store, existed, named, rule)
    reads = [number for number in (named, None if slowest is None else slowest.next_snapshot) if number is not None]
    overdue = _overdue(store, existed, min(reads), rule) if slowest is not None and free else free
    tag_details = tags.list_details(store)
    timed = bool(store.options.get("tag.time-expire-enabled"))
    late = now + local_offset_ms(now) - grace_ms  # tags record wall-clock time
    metas = manifests.data_manifests(store, newest)
    target = store.options.manifest_target_size
    orphans, orphan_bytes = estimate_waiting(store, "orphans")
    return HistoryHealth(
        snapshots=len(ids),
        earliest_ms=None if oldest is None else oldest.time_millis,
        overdue=overdue,
        gaps=tuple(snapshots.gaps(ids)),
        changelogs=len(changelogs.list_changelogs(store)),
        tags=len(tag_details),
        overdue_tags=tuple(
            sorted(
                name
                for name, tag in tag_details.items()
                if timed and tag.expires_ms is not None and late > tag.expires_ms
            )
        ),
        consumers=len(read),
        consumer="" if slowest is None else slowest.consumer_id,
        consumer_behind=0 if slowest is None else sum(number >= slowest.next_snapshot for number in ids),
        consumer_seen_ms=None if slowest is None else slowest.seen_ms,
        held=free - overdue,
        manifests=len(metas),
        manifest_bytes=sum(meta.file_size for meta in metas),
        small_manifests=sum(bool(meta.num_deleted_files) or meta.file_size < target for meta in metas),
        orphans=orphans,
        orphan_bytes=orphan_bytes,
    )


def _ids_until(store: TableStore, ids: list[int], time_ms: int) -> list[int]:
    """Return those of ``ids`` (ascending) that were committed until a time (epoch ms); times grow with the ids."""

    def is_later(number: int) -> bool:
        snapshot = snapshots.try_read(store, number)
        return snapshot is not None and snapshot.time_millis > time_ms

    return ids[: bisect_left(ids, x=True, key=is_later)]


def _named_by_iceberg(store: TableStore, ids: list[int]) -> int | None:
    hold = find_hold(store, ids)
    return None if hold is None else hold.first


def _overdue(store: TableStore, ids: list[int], next_consumed: int | None, policy: RetentionPolicy) -> int:
    """Return how many of the snapshots ``ids`` (ascending) an expiry would have removed.

    The expiry is taken to run at the time when the last of ``ids`` was the newest snapshot. ``next_consumed`` is the
    smallest snapshot id that a consumer or Iceberg metadata still needs, or None.

    The rule is that of `RetentionPolicy.choose` without a limit of snapshots per call. Times only grow with the ids, so
    bisection finds the first snapshot to keep.
    """
    if not ids:
        return 0
    end = ids[-1] - policy.retain_min + 1
    if next_consumed is not None:
        end = min(end, next_consumed)
    forced = ids[0] if policy.retain_max is None else ids[-1] - policy.retain_max + 1
    candidates = ids[: bisect_left(ids, end)]
    begin = bisect_left(candidates, min(forced, end))

    def stays(place: int) -> bool:
        # Beside a gap there is no successor to judge by: the snapshot expires together with the one before it.
        judged = snapshots.try_read(store, ids[place] + 1) or snapshots.try_read(store, ids[place])
        return judged is None or judged.time_millis >= policy.older_than_ms

    return bisect_left(range(len(candidates)), x=True, lo=begin, key=stays)
