"""What a table's history owes: snapshots and tags that should be gone, gaps in their ids, consumers that hold them, manifests that pile up.

From small files of metadata alone; whatever the number of snapshots, a dozen of them are read.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from lsm_core.clock import local_offset_ms
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.actions.expire_snapshots.retention import RetentionPolicy
from lsm_core.maintenance.saved_plans import waiting_to_free
from lsm_core.metadata import changelogs, consumers, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

GRACE_MS: Final = 24 * 60 * 60 * 1000
"""How late an expiry may be before its snapshots and tags count as overdue, where nobody says otherwise."""


@dataclass(frozen=True)
class HistoryDebt:
    """The history of a table, counted; times are epoch ms.

    ``overdue``: snapshots that the table's retention let go longer ago than the grace that was asked for, and that are still there;
    ``consumer``: the one that reads from the oldest of its snapshots ("": none), ``consumer_behind`` snapshots are newer than that one, it was
    heard of last at ``consumer_seen_ms``, and it keeps ``held`` snapshots that retention would let go. ``gaps``: missing ids, as
    (first, last). ``overdue_tags``: names of tags whose time was over that long ago. ``manifests`` of the newest snapshot,
    ``small_manifests`` of them smaller than `manifest.target-file-size` or with deletions. ``orphans``: files that nothing names, and their
    bytes, as the plan counted them that waits for somebody's approval; 0 where none waits, for nobody lists all files to know a score.
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


def history_debt(store: TableStore, newest: Snapshot | None = None, grace_ms: int = 0) -> HistoryDebt:
    """Return what the history of a table owes now. ``newest``: its newest snapshot, where the caller has just read it.

    ``grace_ms``: how late an expiry may be, in ms. Raises CorruptFile for a snapshot, tag, consumer or manifest list that cannot be read.
    """
    newest = snapshots.latest(store) if newest is None else newest
    ids = snapshots.list_ids(store)
    if newest is None or not ids:
        return HistoryDebt()
    now = store.clock.now_ms()
    read = sorted(consumers.list_details(store), key=lambda one: (one.next_snapshot, one.consumer_id))
    slowest = read[0] if read else None
    oldest = snapshots.try_read(store, ids[0])
    free = _overdue(store, ids, None, now - grace_ms)
    overdue = _overdue(store, ids, slowest.next_snapshot, now - grace_ms) if slowest is not None and free else free
    found = tags.list_details(store)
    timed = bool(store.options.get("tag.time-expire-enabled"))
    late = now + local_offset_ms(now) - grace_ms  # tags tell wall-clock time
    metas = manifests.data_manifests(store, newest)
    target = store.options.manifest_target_size
    orphans, orphan_bytes = waiting_to_free(store, "orphans")
    return HistoryDebt(
        snapshots=len(ids),
        earliest_ms=None if oldest is None else oldest.time_millis,
        overdue=overdue,
        gaps=tuple(snapshots.gaps(ids)),
        changelogs=len(changelogs.list_changelogs(store)),
        tags=len(found),
        overdue_tags=tuple(
            sorted(
                name for name, tag in found.items() if timed and tag.expires_ms is not None and late > tag.expires_ms
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


def _overdue(store: TableStore, ids: list[int], next_consumed: int | None, now_ms: int) -> int:
    """How many of ``ids`` (ascending) the table's retention had let go at ``now_ms``.

    As `RetentionPolicy.choose` says it, without a limit of snapshots a call: times only grow with the ids, so that halving finds the first
    that stays. A number of snapshots that is too high counts whatever the grace.
    """
    policy = RetentionPolicy.of(store.options, now_ms)
    end = ids[-1] - policy.retain_min + 1
    if next_consumed is not None:
        end = min(end, next_consumed)
    forced = ids[0] if policy.retain_max is None else ids[-1] - policy.retain_max + 1
    candidates = ids[: bisect_left(ids, end)]
    begin = bisect_left(candidates, min(forced, end))

    def stays(place: int) -> bool:
        # Beside a gap there is no successor to judge by: the snapshot goes when the one before it does.
        judged = snapshots.try_read(store, ids[place] + 1) or snapshots.try_read(store, ids[place])
        return judged is None or judged.time_millis >= policy.older_than_ms

    return bisect_left(range(len(candidates)), x=True, lo=begin, key=stays)


__all__ = ["GRACE_MS", "HistoryDebt", "history_debt"]
