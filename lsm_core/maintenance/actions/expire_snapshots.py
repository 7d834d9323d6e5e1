"""Snapshot expiry: choice of the snapshots and their files, recording of the files for deletion, and the report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, PlanStale
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.state import find_hold
from lsm_core.json_text import parse_json
from lsm_core.maintenance.action import (
    ActionWork,
    Applied,
    ApplyOutcome,
    Declined,
    Fact,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    Runner,
    TaskRunner,
)
from lsm_core.maintenance.actions.sweep_trash import sweep_if_direct
from lsm_core.maintenance.deletions import (
    DeletionReport,
    count_external_files,
    data_items,
    grace_ms,
    item_exists,
    metadata_items,
    split_used,
    under_lock,
)
from lsm_core.maintenance.retention import ExpiryRange, RetentionPolicy
from lsm_core.maintenance.snapshot_exchange import has_snapshot
from lsm_core.maintenance.trash import (
    DeleteItem,
    TrashRecord,
    forget,
    ledger_line_of_held,
    read_trash,
    write_own_record,
)
from lsm_core.maintenance.used_files import (
    LOOKED_AT_HERE,
    SNAPSHOTS_A_PART,
    find_removed_by_writers,
    select_added,
    select_dropped_extras,
    select_removed,
)
from lsm_core.metadata import changelogs, consumers, manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import done_in_turn, place_of

UNREADABLE: Final = "unreadable"
"""Reason of subjects that are declined because a snapshot is damaged."""
_MOST_LINES: Final = 10_000
_SHARE_AT_ONCE: Final = 20


@dataclass(frozen=True)
class ExpireItem(PlanItem):
    """Snapshot that expires.

    Attributes:
        snapshot_id: id of the snapshot.
        time_ms: commit time of the snapshot (epoch ms).
        reason: why the snapshot expires.
        keeps_changelog: whether the snapshot's changelog is kept, so that streams can still read its changes.
    """

    item_kind: ClassVar[str] = "expire"
    title: ClassVar[str] = "would expire"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "committed (UTC)", "why")

    snapshot_id: int
    time_ms: int
    reason: str
    keeps_changelog: bool = False

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: snapshot id, commit time and reason."""
        also = "; its changelog stays" if self.keeps_changelog else ""
        return (self.snapshot_id, utc_text(self.time_ms), f"{self.reason}{also}")


@dataclass(frozen=True)
class ExpireConsumerItem(PlanItem):
    """Consumer without progress for longer than `consumer.expiration-time`.

    Attributes:
        consumer_id: id of the consumer.
        next_snapshot: id of the snapshot that the consumer would read next.
        seen_ms: time of the consumer's last progress (epoch ms).
    """

    item_kind: ClassVar[str] = "expire_consumer"
    title: ClassVar[str] = "would forget"
    columns: ClassVar[tuple[str, ...]] = ("consumer", "next snapshot", "last seen (UTC)")

    consumer_id: str
    next_snapshot: int
    seen_ms: int

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: consumer id, next snapshot, and time of the last progress."""
        return (self.consumer_id, self.next_snapshot, utc_text(self.seen_ms))


@dataclass(frozen=True)
class ExpiryReport(DeletionReport):
    """Report of an expiry of snapshots or changelogs, with the files that the expiry frees.

    Attributes:
        expiring: noun in texts for people: "snapshot" or "changelog".
        expired: ids of the removed snapshots.
        earliest: id of the oldest remaining snapshot.
        changelogs_kept: number of expired snapshots whose changelog was kept.
        consumers: ids of consumers that were removed because they had no progress.
    """

    expiring: ClassVar[str] = "snapshot"

    expired: tuple[int, ...] = ()
    earliest: int | None = None
    changelogs_kept: int = 0
    consumers: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything expired."""
        return bool(self.expired or self.consumers)

    def lines(self, table: str) -> list[str]:
        """Return lines on expired snapshots, their files, and how to undo the expiry."""
        lines = [f"forgot silent consumers: {', '.join(self.consumers)}"] if self.consumers else []
        if not self.expired:
            return [*lines, f"no {self.expiring} expired"]
        which = f"expired {self.expiring}s {self.expired[0]} to {self.expired[-1]}"
        left = "none is left" if self.earliest is None else f"the earliest is now {self.earliest}"
        lines.append(f"{which}; {left}{'; their changelogs stay' if self.changelogs_kept else ''}")
        return [*lines, *self.file_lines(table)]


def plan_expiry(
    store: TableStore,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than_ms: int | None = None,
    max_deletes: int | None = None,
    now_ms: int | None = None,
    runner: Runner | None = None,
    *,
    check_used: bool = True,
) -> MaintenancePlan:
    """Plan which snapshots expire and which files nothing needs afterwards (Java `ExpireSnapshotsImpl`).

    Consumers without progress for longer than `consumer.expiration-time` are to be removed too, as by Java's commits,
    and keep no snapshot. If changelogs are kept longer than snapshots (`changelog.*`), the changelog files are kept. If
    a snapshot is damaged, the snapshot before it, the damaged snapshot and all later ones are kept. Snapshots that the
    current Iceberg metadata names are kept, unlike in Java, whose expiry deletes files that Iceberg readers still need.
    Only metadata is read.

    Args:
        store: the table.
        retain_max: largest number of snapshots to keep, None for `snapshot.num-retained.max`.
        retain_min: smallest number of snapshots to keep, None for `snapshot.num-retained.min`.
        older_than_ms: between the two numbers, a snapshot expires if its successor was committed before this time
            (epoch ms). None for `snapshot.time-retained` ago.
        max_deletes: largest number of snapshots to expire, None for `snapshot.expire.limit`.
        now_ms: time of planning (epoch ms), None for the table's clock.
        runner: a `TaskRunner` distributes the reading of very many snapshots; the plan is the same.
        check_used: whether to look now for files that are still in use. Applying the plan checks this in any case.

    Raises:
        InvalidOption: an argument is invalid.
        CorruptFile: a changelog, tag, branch, consumer or the Iceberg metadata cannot be read, or a damaged snapshot to
            keep has no readable snapshot directly before and after.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    policy = RetentionPolicy.of(store.options, now, retain_max, retain_min, older_than_ms, max_deletes)
    arguments = {"retain_max": policy.retain_max, "retain_min": policy.retain_min, "max_deletes": policy.max_deletes}
    arguments["older_than_ms"] = policy.older_than_ms
    silent = consumers.list_stale(store, now)
    forgotten = tuple(
        ExpireConsumerItem(consumer.consumer_id, consumer.next_snapshot, consumer.seen_ms) for consumer in silent
    )
    plan = MaintenancePlan.begin("expire_snapshots", store, snapshots.latest_id(store), arguments, now)
    plan = replace(plan, items=forgotten)
    ids = snapshots.list_ids(store)
    if not ids:
        return replace(plan, declined=(Declined("snapshots", "empty", "the table has no snapshot"),))

    history = _History(store)
    consumed = _next_consumed(store, [consumer.consumer_id for consumer in silent])
    chosen = policy.choose(ids[0], ids[-1], consumed, history.time_of, holds=_iceberg_holds(store, ids))
    plan_range = partial(_plan_range, store, plan, ids, history, chosen, runner, check_used=check_used)
    try:
        return plan_range()
    except CorruptFile:
        if not history.find_damaged_lists([number for number in ids if chosen.start <= number <= chosen.end]):
            raise
        return plan_range()


def _plan_range(
    store: TableStore,
    plan: MaintenancePlan,
    ids: Sequence[int],
    history: _History,
    chosen: ExpiryRange,
    runner: Runner | None,
    *,
    check_used: bool,
) -> MaintenancePlan:
    """Return ``plan`` with the snapshots of the ``chosen`` range to expire, and their files.

    The first damaged snapshot, the snapshot before it, and all later snapshots are kept.

    Args:
        store: the table.
        plan: plan to extend.
        ids: ids of all snapshots, ascending.
        history: reader of the snapshots.
        chosen: range of ids that the retention rules let expire.
        runner: with a `TaskRunner`, many snapshots are read by parallel tasks; None reads them in this process.
        check_used: whether files that retained snapshots, tags or branches need are left out now.
    """
    known = history.read([number for number in ids if number <= chosen.end])
    damaged = min((number for number in history.damaged if number <= chosen.end), default=None)
    reason = "retained"
    if damaged is not None:
        # The snapshot before the damaged one is kept too: the damaged one was built on its content.
        reason, why = UNREADABLE, damage_text(store, damaged, history.damaged[damaged])
        chosen = replace(chosen, end=max(chosen.start, damaged - 1), limit=why)
    facts: dict[str, Fact] = {"first_kept": chosen.end, "latest": ids[-1]}
    facts |= {} if damaged is None else {"file": history.damaged[damaged].path}
    kept = Declined(f"snapshots {chosen.end}..{ids[-1]}", reason, chosen.limit, facts)
    if chosen.is_empty:
        return replace(plan, declined=(kept,))
    times = {number: known[number].time_millis for number in ids if number < chosen.end and number in known}
    keeps = store.options.changelog_decoupled
    items = [ExpireItem(number, time, chosen.reason_of(number), keeps) for number, time in times.items()]
    candidates = {item.path: item for item in _candidates(store, list(times), chosen.end, known, runner)}
    deletions, held = list(candidates.values()), list[Declined]()
    if check_used:
        deletions, held, _ = _split_used(store, deletions, set(times), runner)
    freed = sum(item.size for item in deletions)
    return replace(
        plan,
        items=(*plan.items, *items, *deletions),
        declined=(kept, *held, *_count_kept(store, list(times), chosen.end, known)),
        estimate=PlanEstimate(bytes_freed=freed, files_in=len(deletions), tasks=1),
    )


def expiry_is_due(store: TableStore) -> bool:
    """Return whether a writer should expire snapshots after a commit.

    At least one snapshot must be due. In a table with 40 or more snapshots, a twentieth of them must be due, but never
    more than one expiry removes (`snapshot.expire.limit`). No expiry is due while a consumer still reads the oldest
    snapshot, unless there are consumers to remove because they made no progress. Snapshots that Iceberg metadata names
    are not due.

    Args:
        store: the table.

    Raises:
        CorruptFile: a consumer or the Iceberg metadata cannot be read.
    """
    latest, earliest = snapshots.latest_id(store), snapshots.earliest_id(store)
    if latest is None or earliest is None or latest - earliest < store.options.retained_min:
        return False

    policy = RetentionPolicy.of(store.options, store.clock.now_ms())
    history = _History(store)
    chosen = policy.choose(earliest, latest, None, history.time_of)
    if not chosen.is_empty:
        holds = _iceberg_holds(store, range(chosen.start, chosen.end))
        chosen = policy.choose(earliest, latest, None, history.time_of, holds=holds)
    # Each expiry reads the needs of all remaining snapshots, so with many it waits until several are due.
    least = min(policy.max_deletes, max(1, (latest - earliest + 1) // _SHARE_AT_ONCE))
    return chosen.end - chosen.start >= least and not _is_held(store, earliest)


class _History:
    """Snapshots of a table, each read once, and the errors of damaged ones.

    Attributes:
        damaged: error of each damaged snapshot found so far, by snapshot id.
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: dict[int, Snapshot] = {}
        self.damaged: dict[int, CorruptFile] = {}

    def time_of(self, snapshot_id: int) -> int | None:
        """Return the commit time of a snapshot (epoch ms), or None if the snapshot is missing or damaged."""
        snapshot = self.read([snapshot_id]).get(snapshot_id)
        return None if snapshot is None else snapshot.time_millis

    def read(self, ids: Sequence[int]) -> dict[int, Snapshot]:
        """Read the snapshots ``ids``, and return all undamaged snapshots read so far by id."""
        unread = [number for number in ids if number not in self._known and number not in self.damaged]
        try:
            self._known |= {snapshot.id: snapshot for snapshot in snapshots.iterate(self._store, unread)}
        except CorruptFile:
            self.damaged |= snapshots.find_damaged(self._store, unread)
            healthy = [number for number in unread if number not in self.damaged]
            self._known |= {snapshot.id: snapshot for snapshot in snapshots.iterate(self._store, healthy)}
        return self._known

    def find_damaged_lists(self, ids: Sequence[int]) -> bool:
        """Mark snapshots whose base or delta manifest list cannot be read as damaged; return whether any were found."""
        damaged_lists = _damaged_lists(self._store, self.read(ids), ids)
        self.damaged |= damaged_lists
        return bool(damaged_lists)


def _damaged_lists(store: TableStore, known: Mapping[int, Snapshot], ids: Sequence[int]) -> dict[int, CorruptFile]:
    """Return the error of each snapshot in ``ids`` whose base or delta manifest list cannot be read, by snapshot id."""
    damaged = {}
    for number in ids:
        try:
            if number in known:
                manifests.data_manifests(store, known[number])
        except CorruptFile as error:
            damaged[number] = error
    return damaged


def damage_text(store: TableStore, snapshot_id: int, error: CorruptFile) -> str:
    """Return the text for people on a damaged snapshot, with the command that repairs it.

    Args:
        store: the table.
        snapshot_id: id of the damaged snapshot.
        error: error that was raised when the snapshot was read.
    """
    return (
        f"snapshot {snapshot_id} is damaged, and nothing from the one before it on expires: {error.finding}; "
        f"`dredge repair {shlex.quote(store.name)}` replaces it"
    )


def _split_used(
    store: TableStore, candidates: Sequence[DeleteItem], going: AbstractSet[int], runner: Runner | None
) -> tuple[list[DeleteItem], list[Declined], list[Declined]]:
    """Split candidates for deletion into files that nothing needs and files that are still needed.

    ``going`` are the ids of the expiring snapshots. A damaged snapshot that is retained is tolerated if the snapshots
    directly before and after it can be read.

    ``runner``: with a `TaskRunner`, many snapshots are read by parallel tasks; None reads them in this process.

    Returns:
        Files to delete, declined entries of files that are still needed, and declined entries of damaged snapshots.

    Raises:
        CorruptFile: a retained tag, changelog, or snapshot without two readable neighbours cannot be read.
    """
    try:
        return *split_used(store, candidates, without=going, runner=runner), []
    except CorruptFile:
        stays = [number for number in snapshots.list_ids(store) if number not in going]
        damaged = snapshots.find_damaged(store, stays)
        known = {snapshot.id: snapshot for snapshot in snapshots.iterate(store, [n for n in stays if n not in damaged])}
        damaged |= _damaged_lists(store, known, stays)
        sound = set(stays) - set(damaged)
        if not damaged or not all({number - 1, number + 1} <= sound for number in damaged):
            raise
    free, held = split_used(store, candidates, without=going, unreadable=set(damaged), runner=runner)
    declined = [
        Declined(
            f"snapshot {number}",
            UNREADABLE,
            damage_text(store, number, error),
            {"snapshot": number, "file": error.path},
        )
        for number, error in damaged.items()
    ]
    return free, held, declined


def _is_held(store: TableStore, earliest: int) -> bool:
    """Return whether a consumer still reads the snapshot ``earliest``, so that an expiry would do nothing.

    The result is False if a consumer made no progress for too long, because an expiry would remove that consumer.
    """
    silent = [consumer.consumer_id for consumer in consumers.list_stale(store, store.clock.now_ms())]
    consumed = _next_consumed(store, silent)
    return consumed is not None and consumed <= earliest and not silent


def _iceberg_holds(store: TableStore, ids: Collection[int]) -> list[tuple[int, str]]:
    """Return the oldest of the snapshots ``ids`` that Iceberg metadata names, with the reason; empty without one."""
    hold = find_hold(store, ids)
    return [] if hold is None else [(hold.first, hold.reason)]


def _next_consumed(store: TableStore, but: Sequence[str] = ()) -> int | None:
    """Return the smallest snapshot id that consumers, except those in ``but``, still read.

    Returns None if there is no consumer, or if consumers keep only changelogs (`consumer.changelog-only`).
    """
    return None if store.options.get("consumer.changelog-only") else consumers.min_next_snapshot(store, but)


def _forget_consumers(store: TableStore, plan: MaintenancePlan) -> tuple[str, ...]:
    """Delete the planned consumers that made no progress after planning, and return their ids."""
    return tuple(name for name in _unchanged_consumers(store, plan) if consumers.delete_consumer(store, name))


def _unchanged_consumers(store: TableStore, plan: MaintenancePlan) -> list[str]:
    """Return the ids of the planned consumers that made no progress after planning."""
    planned = plan.items_of(ExpireConsumerItem)
    if not planned:
        return []
    now = {
        consumer.consumer_id: (consumer.next_snapshot, consumer.seen_ms) for consumer in consumers.list_details(store)
    }
    return [item.consumer_id for item in planned if now.get(item.consumer_id) == (item.next_snapshot, item.seen_ms)]


def _candidates(
    store: TableStore, expiring: Sequence[int], end: int, known: Mapping[int, Snapshot], runner: Runner | None
) -> Iterator[DeleteItem]:
    """Yield files that possibly only the expiring snapshots need.

    Data files are found in the deltas of later snapshots, which removed them (format.md 17).

    Args:
        store: the table.
        expiring: ids of the snapshots to expire, ascending.
        end: id of the last snapshot whose delta is read.
        known: undamaged snapshots by id.
        runner: runner that may read many snapshots in parallel, or None.
    """
    if not expiring:
        return
    following = [known[number] for number in range(expiring[0] + 1, end + 1) if number in known]
    yield from _of_each(store, _replaced_items, following, runner)
    if not store.options.changelog_decoupled and store.file_io.exists(changelogs.changelog_dir(store)):
        # Changelogs were kept longer than snapshots before: files that the last expiry kept for them are deleted now.
        snapshot = known[expiring[0]]
        replaced = find_removed_by_writers(store, snapshot)
        for item in data_items(
            store, replaced, "data", f"replaced by snapshot {snapshot.id} ({snapshot.commit_kind.value})"
        ):
            if item_exists(store, item):
                yield item
    yield from _of_each(store, _own_items, [known[number] for number in expiring], runner)


Items = Callable[[TableStore, Snapshot], Iterator[DeleteItem]]


def _of_each(
    store: TableStore, items: Items, chosen: Sequence[Snapshot], runner: Runner | None
) -> Iterator[DeleteItem]:
    """Yield the files of each chosen snapshot, in order.

    ``items`` is the function that returns the wanted files of one snapshot. If there are very many snapshots and
    ``runner`` is a `TaskRunner`, parallel tasks call the function.
    """
    if not isinstance(runner, TaskRunner) or len(chosen) <= LOOKED_AT_HERE:
        for snapshot in chosen:
            yield from items(store, snapshot)
        return
    size = max(SNAPSHOTS_A_PART, -(-len(chosen) // (4 * runner.slots())))
    texts = [snapshot.to_json().decode() for snapshot in chosen]
    parts = [json.dumps(texts[at : at + size]).encode() for at in range(0, len(texts), size)]
    activity = f"looking for files of expiring snapshots of table {store.name}"
    for answer in runner.run_parts(activity, partial(_items_part, store, items), parts):
        yield from (DeleteItem(*item) for item in parse_json(answer))


def _items_part(store: TableStore, items: Items, payload: bytes) -> bytes:
    """In a parallel task, return the files that ``items`` finds for the snapshots in ``payload``, both as JSON."""
    items_of_part = [
        [item.path, item.kind, item.size, item.reason]
        for text in parse_json(payload)
        for item in items(store, Snapshot.from_json(text.encode(), "<snapshot of a part>"))
    ]
    return json.dumps(items_of_part).encode()


def _replaced_items(store: TableStore, snapshot: Snapshot) -> Iterator[DeleteItem]:
    reason = f"replaced by snapshot {snapshot.id} ({snapshot.commit_kind.value})"
    yield from data_items(store, _replaced(store, snapshot), "data", reason)
    dropped = select_dropped_extras(manifests.delta_entries(store, snapshot))
    yield from data_items(store, dropped, "data", reason)


def _own_items(store: TableStore, snapshot: Snapshot) -> Iterator[DeleteItem]:
    yield from metadata_items(store, snapshot, f"belonged to snapshot {snapshot.id}")
    if snapshot.changelog_manifest_list and not store.options.changelog_decoupled:
        entries = select_added(manifests.changelog_entries(store, snapshot))
        yield from data_items(store, entries, "changelog", f"changelog of snapshot {snapshot.id}")


def _replaced(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the DELETE entries in the delta of a snapshot.

    Files that writers added are left out if kept changelogs need them; the expiry of changelogs deletes such files.
    """
    removals = select_removed(manifests.delta_entries(store, snapshot))
    later = store.options.changelog_decoupled and changelogs.keeps_deltas(store)
    return removals.filter(pc.invert(changelogs.is_written(removals))) if later else removals


def _count_kept(store: TableStore, expiring: Sequence[int], end: int, known: Mapping[int, Snapshot]) -> list[Declined]:
    """Return a declined entry that counts the replaced files outside the table's folder that are not deleted.

    Args:
        store: the table.
        expiring: ids of the snapshots to expire, ascending.
        end: id of the last snapshot whose delta is read.
        known: undamaged snapshots by id.
    """
    numbers = (number for number in range(expiring[0] + 1, end + 1) if number in known)
    return count_external_files(store, (_replaced(store, known[number]) for number in numbers), "replaced")


def apply_expiry(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
    """Delete the planned snapshots, and record the files that nothing needs afterwards.

    In direct mode (`dredge.delete-mode`) the recorded files are deleted at once, otherwise by a sweep after their grace
    period.

    Args:
        store: the table.
        plan: plan to apply.
        runner: a `TaskRunner` distributes the reading of very many snapshots and the deletion of very many files.

    Returns:
        ApplyOutcome with an ExpiryReport.

    Raises:
        PlanStale: a consumer reads a planned snapshot, or the snapshots changed after planning.
        LockTimeout: another process holds the table's lock.
    """
    report, swept = sweep_if_direct(store, _expire(store, plan, runner), runner)
    lines = [{"event": "expired", "snapshot": number} for number in report.expired]
    next_of = {item.consumer_id: item.next_snapshot for item in plan.items_of(ExpireConsumerItem)}
    lines += [{"event": "forgot", "consumer": name, "next_snapshot": next_of[name]} for name in report.consumers]
    return ApplyOutcome(report, [*lines, *swept, *map(ledger_line_of_held, report.held[:_MOST_LINES])])


def expiry_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether a planned snapshot still exists, or a planned consumer still has its old position.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    going = {item.snapshot_id for item in plan.items_of(ExpireItem)}
    return not going.isdisjoint(snapshots.list_ids(store)) or bool(_unchanged_consumers(store, plan))


def foresee_expiry(plan: MaintenancePlan) -> ExpiryReport:
    """Return the report that applying a plan would give.

    Args:
        plan: plan that may be applied.
    """
    deletions = plan.items_of(DeleteItem)
    return ExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=tuple(item.snapshot_id for item in plan.items_of(ExpireItem)),
        consumers=tuple(item.consumer_id for item in plan.items_of(ExpireConsumerItem)),
        changelogs_kept=sum(item.keeps_changelog for item in plan.items_of(ExpireItem)),
        files_recorded=len(deletions),
        bytes_recorded=sum(item.size for item in deletions),
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        dry_run=True,
    )


def trace_of_expiry(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """Return the earlier application of a plan, recognised by its deletion record in the trash.

    Args:
        store: the table.
        plan: plan that may have been applied before.

    Returns:
        The application, or None if the trash has no record of the plan.
    """
    for record in read_trash(store).records:
        if record.plan_hash == plan.hash:
            return Applied(None, record.created_ms, f"deletion record {record.trash_id}")
    return None


def _expire(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ExpiryReport:
    """Record files in the trash, delete the expired snapshots oldest first, and move the EARLIEST hint.

    If changelogs are kept longer than snapshots, the changelog of a snapshot is written before the snapshot is deleted,
    so that streams always find one of the two. Files that became needed after planning, for example by a new tag, are
    left out of the record. After a crash between any two steps, every snapshot of the table can be read.

    ``runner``: with a `TaskRunner`, parallel tasks do the work on many files; None does the work in this process.

    Raises:
        PlanStale: a consumer reads a planned snapshot, or the snapshots changed after planning.
        LockTimeout: another process holds the table's lock.
    """
    present = set(snapshots.list_ids(store))
    forgotten = _forget_consumers(store, plan) if plan.items_of(ExpireConsumerItem) else ()
    going = [item.snapshot_id for item in plan.items_of(ExpireItem) if item.snapshot_id in present]
    if not going:
        earliest = min(present, default=None)
        return ExpiryReport(
            plan.hash, plan.base_snapshot, earliest=earliest, declined=plan.declined, consumers=forgotten
        )
    _require_oldest(store, present, going)
    deletions, held, damaged = _split_used(store, plan.items_of(DeleteItem), set(going), runner)
    # The exact bytes of the snapshot files, checked: a restore writes them back.
    texts, read = {}, {}
    paths = [store.snapshot_path(number) for number in going]
    reads = done_in_turn(
        (partial(store.file_io.read_bytes, path) for path in paths), at_once=bool(place_of(store.root))
    )
    for number, path in zip(going, paths, strict=True):
        try:
            data = next(reads)
        except FileNotFoundError as error:
            raise PlanStale(f"snapshot {number} was expired by another process meanwhile", store.name) from error
        read[number] = Snapshot.from_json(data, path)
        texts[number] = data.decode()
    with under_lock(store, "an expiry"):
        _require_fresh(store, plan, set(snapshots.list_ids(store)), going)
        record, first, deleted_ids = _delete_snapshots(store, plan, texts, read, deletions)
    if not deleted_ids:  # another process expired all of them first, and its record has the files
        return ExpiryReport(plan.hash, plan.base_snapshot, earliest=first, declined=plan.declined, consumers=forgotten)
    # Held at planning or at applying, each file once.
    held_once = {item.subject: item for item in (*plan.declined, *held) if item.reason == "held"}
    return ExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=deleted_ids,
        earliest=first,
        changelogs_kept=len(deleted_ids) if store.options.changelog_decoupled else 0,
        files_recorded=len(deletions),
        bytes_recorded=record.size,
        trash_id=record.trash_id,
        not_before_ms=record.not_before_ms,
        held=tuple(held_once.values()),
        declined=(*(item for item in plan.declined if item.reason != "held"), *damaged),
        consumers=forgotten,
    )


def _delete_snapshots(
    store: TableStore,
    plan: MaintenancePlan,
    texts: Mapping[int, str],
    read: Mapping[int, Snapshot],
    deletions: Sequence[DeleteItem],
) -> tuple[TrashRecord, int, tuple[int, ...]]:
    """Write the deletion record in the trash, then delete the planned snapshots, oldest first.

    If a concurrent expiry deleted all planned snapshots before, the record is removed again. In a table without a
    lock, a concurrent rollback or fast-forward may go back to a planned snapshot or an older one. Snapshots written by
    that rollback or fast-forward are kept, and the deleted snapshots are restored if no newer snapshot is left.

    Args:
        store: the table.
        plan: plan that expires the snapshots.
        texts: JSON text of each planned snapshot, by id, for the record.
        read: the planned snapshots, by id.
        deletions: files to record.

    Returns:
        The deletion record, the id of the oldest remaining snapshot, and the ids of the deleted snapshots.

    Raises:
        PlanStale: no snapshot newer than the planned snapshots is left.
    """
    now, going = store.clock.now_ms(), sorted(texts)
    record = TrashRecord(
        trash_id=f"expire-{going[0]}-{going[-1]}-{plan.hash[:12]}-{now}",
        action="expire_snapshots",
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now + grace_ms(store.options),
        snapshots=texts,
        files=tuple(deletions),
        branch=store.branch,
    )
    record = write_own_record(store, record)
    keeps, deleted_ids = store.options.changelog_decoupled, list[int]()
    left = snapshots.list_ids(store)
    for number in going if left[-1:] > going[-1:] else ():
        if keeps:
            changelogs.write_changelog(store, read[number])
        if has_snapshot(store, number, texts[number]) and store.delete(store.snapshot_path(number)):
            deleted_ids.append(number)
    left = snapshots.list_ids(store)
    if left[-1:] <= going[-1:]:
        for number in reversed([snapshot_id for snapshot_id in deleted_ids if not left or snapshot_id < left[-1]]):
            store.file_io.write_exclusive(store.snapshot_path(number), texts[number].encode())
        if keeps:
            changelogs.delete_changelogs(store, going)
        forget(store, record.trash_id)
        raise PlanStale(f"the table was rolled back to snapshot {going[-1]} or before meanwhile", store.name)
    snapshots.write_earliest_hint(store, left[0])
    if not deleted_ids:
        forget(store, record.trash_id)
    return record, left[0], tuple(deleted_ids)


def _require_fresh(store: TableStore, plan: MaintenancePlan, present: set[int], going: Sequence[int]) -> None:
    _require_oldest(store, present, going)
    planned_ids = set(going)
    times = {snapshot.id: snapshot.time_millis for snapshot in snapshots.iterate(store, list(going))}
    for item in plan.items_of(ExpireItem):
        if item.snapshot_id in planned_ids and times.get(item.snapshot_id) != item.time_ms:
            change = (
                "written again after a rollback"
                if item.snapshot_id in times
                else "expired by another process meanwhile"
            )
            raise PlanStale(f"snapshot {item.snapshot_id} was {change}", store.name)


def _require_oldest(store: TableStore, present: set[int], going: Sequence[int]) -> None:
    if min(present) != going[0]:
        raise PlanStale(f"snapshot {min(present)} is older than snapshot {going[0]}, the first of the plan", store.name)
    if max(present) <= going[-1]:
        raise PlanStale(f"snapshot {going[-1]} is the newest now; the table was rolled back", store.name)
    next_snapshot = _next_consumed(store)
    if next_snapshot is not None and next_snapshot <= going[-1]:
        raise PlanStale(f"a consumer reads from snapshot {next_snapshot} now", store.name)
    hold = find_hold(store, going)
    if hold is not None:
        raise PlanStale(f"Iceberg metadata v{hold.version} names snapshot {hold.first} now", store.name)


WORK: Final = ActionWork(
    plan_expiry,
    apply_expiry,
    ExpiryReport,
    (ExpireConsumerItem, ExpireItem, DeleteItem),
    fits=expiry_fits,
    trace=trace_of_expiry,
    dry_run=foresee_expiry,
)
