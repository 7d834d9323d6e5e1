"""Snapshot expiry: which ids go, which files that frees, phase one of the two-phase delete, and the report of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, PlanStale
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_reader import parse_json
from lsm_core.maintenance.action import (
    Applied,
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlanItem,
    Runner,
    TaskRunner,
)
from lsm_core.maintenance.actions.expire_snapshots.retention import RetentionPolicy
from lsm_core.maintenance.actions.trash.sweeping import at_once_if_direct
from lsm_core.maintenance.deletions import (
    DeletionReport,
    data_items,
    grace_ms,
    metadata_items,
    split_used,
    under_lock,
)
from lsm_core.maintenance.top_of_history import is_there
from lsm_core.maintenance.trash import DeleteItem, TrashRecord, forget, held_line, read_trash, write_own_record
from lsm_core.maintenance.used_files import LOOKED_AT_HERE, SNAPSHOTS_A_PART, added, removed, removed_by_writers
from lsm_core.metadata import changelogs, consumers, manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import done_in_turn, place_of

UNREADABLE: Final = "unreadable"
"""Reason of what is declined because a snapshot is damaged."""
_MOST_LINES: Final = 10_000
_SHARE_AT_ONCE: Final = 20
_EXTERNAL: Final = "data-file.external-paths"


@dataclass(frozen=True)
class ExpireItem(PlanItem):
    """One snapshot that expires; ``time_ms`` is its commit time (epoch ms), ``keeps_changelog``: streams still read its changes."""

    item_kind: ClassVar[str] = "expire"
    title: ClassVar[str] = "would expire"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "committed (UTC)", "why")

    snapshot_id: int
    time_ms: int
    reason: str
    keeps_changelog: bool = False

    def cells(self) -> tuple[Any, ...]:
        """Id, time and reason."""
        also = "; its changelog stays" if self.keeps_changelog else ""
        return (self.snapshot_id, utc_text(self.time_ms), f"{self.reason}{also}")


@dataclass(frozen=True)
class ExpireConsumerItem(PlanItem):
    """A consumer that said nothing for longer than `consumer.expiration-time`: since ``seen_ms`` (epoch ms)."""

    item_kind: ClassVar[str] = "expire_consumer"
    title: ClassVar[str] = "would forget"
    columns: ClassVar[tuple[str, ...]] = ("consumer", "next snapshot", "last seen (UTC)")

    consumer_id: str
    next_snapshot: int
    seen_ms: int

    def cells(self) -> tuple[Any, ...]:
        """Id, progress and time."""
        return (self.consumer_id, self.next_snapshot, utc_text(self.seen_ms))


@dataclass(frozen=True)
class ExpiryReport(DeletionReport):
    """What an expiry did: ids whose snapshot JSON is gone (``expired``), and the files that this frees.

    ``changelogs_kept``: how many of them live on as changelogs. ``consumers`` were silent for too long and are forgotten.
    """

    expiring: ClassVar[str] = "snapshot"
    """What expires, for people."""

    expired: tuple[int, ...] = ()
    earliest: int | None = None
    changelogs_kept: int = 0
    consumers: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything expired."""
        return bool(self.expired or self.consumers)

    def lines(self, table: str) -> list[str]:
        """What expired, where the files are, and how to undo it."""
        silent = [f"forgot silent consumers: {', '.join(self.consumers)}"] if self.consumers else []
        return silent + self._expired_lines(table)

    def _expired_lines(self, table: str) -> list[str]:
        if not self.expired:
            return [f"no {self.expiring} expired"]
        which = f"expired {self.expiring}s {self.expired[0]} to {self.expired[-1]}"
        left = "none is left" if self.earliest is None else f"the earliest is now {self.earliest}"
        first = f"{which}; {left}{'; their changelogs stay' if self.changelogs_kept else ''}"
        return [first, *self.file_lines(table)]


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

    ``older_than_ms`` and ``now_ms`` are epoch ms. Consumers that are silent for longer than `consumer.expiration-time` go first, as Java's
    commits have it. Where changelogs are kept longer (`changelog.*`), what they tell stays. ``runner``: where it runs parts elsewhere (`TaskRunner`), these look at some of very many snapshots each; the plan
    is the same. ``check_used`` False leaves it to the application, which asks anyway, which files others need. Reads metadata only. A snapshot that
    is damaged ends the range: the one before it and all later ones stay. Raises InvalidOption, and
    CorruptFile when a changelog, tag, branch or consumer cannot be read, or several damaged snapshots lie side by side.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    policy = RetentionPolicy.of(store.options, now, retain_max, retain_min, older_than_ms, max_deletes)
    arguments = {"retain_max": policy.retain_max, "retain_min": policy.retain_min, "max_deletes": policy.max_deletes}
    arguments["older_than_ms"] = policy.older_than_ms
    silent = consumers.list_stale(store, now)
    forgotten = tuple(ExpireConsumerItem(one.consumer_id, one.next_snapshot, one.seen_ms) for one in silent)
    plan = MaintenancePlan.begun("expire_snapshots", store, snapshots.latest_id(store), arguments, now)
    plan = replace(plan, items=forgotten)
    ids = snapshots.list_ids(store)
    if not ids:
        return replace(plan, declined=(Declined("snapshots", "empty", "the table has no snapshot"),))

    history = _History(store)
    consumed = _next_consumed(store, [one.consumer_id for one in silent])
    chosen = policy.choose(ids[0], ids[-1], consumed, history.time_of)
    known = history.read([number for number in ids if number <= chosen.end])
    damaged = min((number for number in history.damaged if number <= chosen.end), default=None)
    reason = "retained"
    if damaged is not None:
        # The one before it stays, too, which says what the damaged one was made from.
        reason, why = UNREADABLE, damage_text(store, damaged, history.damaged[damaged])
        chosen = replace(chosen, end=max(chosen.start, damaged - 1), limit=why)
    facts = {"first_kept": chosen.end, "latest": ids[-1]}
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
        items=(*forgotten, *items, *deletions),
        declined=(kept, *held, *_left_outside(store, list(times), chosen.end, known)),
        estimate=PlanEstimate(bytes_freed=freed, files_in=len(deletions), tasks=1),
    )


def expiry_is_due(store: TableStore) -> bool:
    """Return whether snapshots expire after a commit: one that the options of the table let go, of more than 40 snapshots a twentieth.

    Raises:
        CorruptFile: a consumer cannot be read.
    """
    latest, earliest = snapshots.latest_id(store), snapshots.earliest_id(store)
    if latest is None or earliest is None or latest - earliest < store.options.retained_min:
        return False

    policy = RetentionPolicy.of(store.options, store.clock.now_ms())
    chosen = policy.choose(earliest, latest, None, _History(store).time_of)
    # Each expiry asks all snapshots that stay what they need, so of many it waits for some.
    least = min(policy.max_deletes, max(1, (latest - earliest + 1) // _SHARE_AT_ONCE))
    return chosen.end - chosen.start >= least and not _is_held(store, earliest)


class _History:
    """The snapshots of a table, each read once; of those that are damaged the error is kept."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._known: dict[int, Snapshot] = {}
        self.damaged: dict[int, CorruptFile] = {}

    def time_of(self, snapshot_id: int) -> int | None:
        """Return when a snapshot was committed (epoch ms); None where it is missing or damaged."""
        found = self.read([snapshot_id]).get(snapshot_id)
        return None if found is None else found.time_millis

    def read(self, ids: Sequence[int]) -> dict[int, Snapshot]:
        """Read snapshots; return all that are known by now."""
        wanted = [number for number in ids if number not in self._known and number not in self.damaged]
        try:
            self._known |= {snapshot.id: snapshot for snapshot in snapshots.iterate(self._store, wanted)}
        except CorruptFile:
            self.damaged |= snapshots.find_damaged(self._store, wanted)
            healthy = [number for number in wanted if number not in self.damaged]
            self._known |= {snapshot.id: snapshot for snapshot in snapshots.iterate(self._store, healthy)}
        return self._known


def damage_text(store: TableStore, snapshot_id: int, error: CorruptFile) -> str:
    """Return what people should know of a damaged snapshot, and the command that repairs it."""
    return f"snapshot {snapshot_id} is damaged, and nothing from the one before it on expires: {error}; `dredge repair {store.name}` replaces it"


def _split_used(
    store: TableStore, candidates: Sequence[DeleteItem], going: AbstractSet[int], runner: Runner | None
) -> tuple[list[DeleteItem], list[Declined], list[Declined]]:
    """Split candidates as `split_used` does, also where a snapshot that stays is damaged and its neighbours say what it needs.

    Returns:
        Candidates that go, those that are held, and the damaged snapshots.

    Raises:
        CorruptFile: something retained cannot be read, and nothing else says what it needs.
    """
    try:
        return *split_used(store, candidates, without=going, runner=runner), []
    except CorruptFile:
        stays = [number for number in snapshots.list_ids(store) if number not in going]
        damaged = snapshots.find_damaged(store, stays)
        sound = set(stays) - set(damaged)
        if not damaged or not all({number - 1, number + 1} <= sound for number in damaged):
            raise
    free, held = split_used(store, candidates, without=going, unreadable=set(damaged), runner=runner)
    said = [
        Declined(f"snapshot {number}", UNREADABLE, damage_text(store, number, error), {"snapshot": number})
        for number, error in damaged.items()
    ]
    return free, held, said


def _is_held(store: TableStore, earliest: int) -> bool:
    """Return whether a consumer that is still read from holds the earliest snapshot."""
    silent = [consumer.consumer_id for consumer in consumers.list_stale(store, store.clock.now_ms())]
    consumed = _next_consumed(store, silent)
    return consumed is not None and consumed <= earliest and not silent


def _next_consumed(store: TableStore, but: Sequence[str] = ()) -> int | None:
    """The first snapshot that a consumer (but ``but``) holds back; with `consumer.changelog-only` they hold back changelogs alone."""
    return None if store.options.get("consumer.changelog-only") else consumers.min_next_snapshot(store, but)


def _forget_consumers(store: TableStore, plan: MaintenancePlan) -> tuple[str, ...]:
    """Delete the consumers of the plan that have said nothing since."""
    now = {one.consumer_id: (one.next_snapshot, one.seen_ms) for one in consumers.list_details(store)}
    planned = plan.items_of(ExpireConsumerItem)
    still = [one.consumer_id for one in planned if now.get(one.consumer_id) == (one.next_snapshot, one.seen_ms)]
    return tuple(name for name in still if consumers.delete_consumer(store, name))


def _candidates(
    store: TableStore, expiring: Sequence[int], end: int, known: Mapping[int, Snapshot], runner: Runner | None
) -> Iterator[DeleteItem]:
    """Files that only the expiring snapshots may need (format.md 17: data files by the deltas of their successors)."""
    if not expiring:
        return
    following = [known[number] for number in range(expiring[0] + 1, end + 1) if number in known]
    yield from _of_each(store, _replaced_items, following, runner)
    if not store.options.changelog_decoupled and store.file_io.exists(changelogs.changelog_dir(store)):
        # Changelogs were kept longer once: what the expiry before this one then left to them is ours.
        snapshot = known[expiring[0]]
        gone = removed_by_writers(store, snapshot)
        for item in data_items(
            store, gone, "data", f"replaced by snapshot {snapshot.id} ({snapshot.commit_kind.value})"
        ):
            if store.file_io.exists(f"{store.root}/{item.path}"):
                yield item
    yield from _of_each(store, _own_items, [known[number] for number in expiring], runner)


Items = Callable[[TableStore, Snapshot], Iterator[DeleteItem]]


def _of_each(
    store: TableStore, items: Items, chosen: Sequence[Snapshot], runner: Runner | None
) -> Iterator[DeleteItem]:
    """The ``items`` of each snapshot, in order; of very many by parts of ``runner``, where it runs some."""
    if not isinstance(runner, TaskRunner) or len(chosen) <= LOOKED_AT_HERE:
        for snapshot in chosen:
            yield from items(store, snapshot)
        return
    size = max(SNAPSHOTS_A_PART, -(-len(chosen) // (4 * runner.slots())))
    texts = [snapshot.to_json().decode() for snapshot in chosen]
    parts = [json.dumps(texts[at : at + size]).encode() for at in range(0, len(texts), size)]
    what = f"looking for files of expiring snapshots of table {store.name}"
    for answer in runner.run_parts(what, partial(_items_part, store, items), parts):
        yield from (DeleteItem(*item) for item in parse_json(answer))


def _items_part(store: TableStore, items: Items, payload: bytes) -> bytes:
    """One part: the items of some snapshots, as JSON."""
    found = [
        [item.path, item.kind, item.size, item.reason]
        for text in parse_json(payload)
        for item in items(store, Snapshot.from_json(text.encode(), "<snapshot of a part>"))
    ]
    return json.dumps(found).encode()


def _replaced_items(store: TableStore, snapshot: Snapshot) -> Iterator[DeleteItem]:
    reason = f"replaced by snapshot {snapshot.id} ({snapshot.commit_kind.value})"
    yield from data_items(store, _replaced(store, snapshot), "data", reason)


def _own_items(store: TableStore, snapshot: Snapshot) -> Iterator[DeleteItem]:
    yield from metadata_items(store, snapshot, f"belonged to snapshot {snapshot.id}")
    if snapshot.changelog_manifest_list and not store.options.changelog_decoupled:
        entries = added(manifests.changelog_entries(store, snapshot))
        yield from data_items(store, entries, "changelog", f"changelog of snapshot {snapshot.id}")


def _replaced(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Manifest entries that a snapshot after the first expiring one dropped.

    Files that writers made are left for the expiry of changelogs where these tell by them.
    """
    gone = removed(manifests.delta_entries(store, snapshot))
    later = store.options.changelog_decoupled and changelogs.keeps_deltas(store)
    return gone.filter(pc.invert(changelogs.is_written(gone))) if later else gone


def _left_outside(
    store: TableStore, expiring: Sequence[int], end: int, known: Mapping[int, Snapshot]
) -> list[Declined]:
    """Says how many files under `data-file.external-paths` nothing names any more and nobody deletes."""
    if not expiring or not store.options.get(_EXTERNAL):
        return []
    files = size = 0
    for number in range(expiring[0] + 1, end + 1):
        if number not in known:
            continue
        gone = _replaced(store, known[number])
        outside = gone.filter(pc.is_valid(gone.column("external_path")))
        files += outside.num_rows
        size += pc.sum(outside.column("file_size")).as_py() or 0
    text = f"{files} replaced files lie outside the table's directory, under {_EXTERNAL}: they are not deleted"
    return [Declined(_EXTERNAL, "outside", text, {"files": files, "size": size})] if files else []


def apply_expiry(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
    """Phase one of the delete (`_expire`), and in direct mode (`dredge.delete-mode`) phase two at once. Its report is an ExpiryReport.

    ``runner``: where it runs parts elsewhere (`TaskRunner`), these look at very many snapshots, and delete very many files.
    """
    report, swept = at_once_if_direct(store, _expire(store, plan, runner), runner)
    lines = [{"event": "expired", "snapshot": number} for number in report.expired]
    next_of = {item.consumer_id: item.next_snapshot for item in plan.items_of(ExpireConsumerItem)}
    lines += [{"event": "forgot", "consumer": one, "next_snapshot": next_of[one]} for one in report.consumers]
    return Outcome(report, [*lines, *swept, *map(held_line, report.held[:_MOST_LINES])])


def expiry_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether a snapshot of ``plan`` is still there."""
    return not {item.snapshot_id for item in plan.items_of(ExpireItem)}.isdisjoint(snapshots.list_ids(store))


def foresee_expiry(plan: MaintenancePlan) -> ExpiryReport:
    """What applying ``plan`` would report."""
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
    """The deletion record that an application of ``plan`` wrote, while it is in the trash."""
    for record in read_trash(store).records:
        if record.plan_hash == plan.hash:
            return Applied(None, record.created_ms, f"deletion record {record.trash_id}")
    return None


def _expire(store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ExpiryReport:
    """Phase one: record what goes, drop the expired snapshot files oldest first, move the EARLIEST hint.

    Where changelogs are kept longer, each snapshot becomes one before it goes, so that streams find the one or the other.

    What became needed since planning (a new tag, say) leaves the record. Raises PlanStale when a consumer or a changed
    history needs an expiring snapshot; LockTimeout. A crash between any two steps leaves a table whose snapshots are all whole.
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
            raise PlanStale(f"snapshot {number} was expired by somebody else meanwhile", store.name) from error
        read[number] = Snapshot.from_json(data, path)
        texts[number] = data.decode()
    with under_lock(store, "an expiry"):
        _require_fresh(store, plan, set(snapshots.list_ids(store)), going)
        record, first, gone = _take_away(store, plan, texts, read, deletions)
    if not gone:  # somebody else took all of them first, whose record has the files
        return ExpiryReport(plan.hash, plan.base_snapshot, earliest=first, declined=plan.declined, consumers=forgotten)
    # Held at planning or at applying, each file once.
    held_once = {item.subject: item for item in (*plan.declined, *held) if item.reason == "held"}
    return ExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=gone,
        earliest=first,
        changelogs_kept=len(gone) if store.options.changelog_decoupled else 0,
        files_recorded=len(deletions),
        bytes_recorded=record.size,
        trash_id=record.trash_id,
        not_before_ms=record.not_before_ms,
        held=tuple(held_once.values()),
        declined=(*(item for item in plan.declined if item.reason != "held"), *damaged),
        consumers=forgotten,
    )


def _take_away(
    store: TableStore,
    plan: MaintenancePlan,
    texts: Mapping[int, str],
    read: Mapping[int, Snapshot],
    deletions: Sequence[DeleteItem],
) -> tuple[TrashRecord, int, tuple[int, ...]]:
    """Record what goes, then delete the snapshots, oldest first; returns the record, the oldest snapshot that is left, and which went.

    Where none went here, because an expiry at the same time was first, no record stays.

    A rollback or a fast-forward at the same time may go back to one of them, or before, in a table that has no lock: what it wrote anew stays,
    and where nothing newer is left, those that went here come back.
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
    keeps, gone = store.options.changelog_decoupled, list[int]()
    left = snapshots.list_ids(store)
    for number in going if left[-1:] > going[-1:] else ():
        if keeps:
            changelogs.write_changelog(store, read[number])
        if is_there(store, number, texts[number]) and store.delete(store.snapshot_path(number)):
            gone.append(number)
    left = snapshots.list_ids(store)
    if left[-1:] <= going[-1:]:
        for number in reversed([one for one in gone if not left or one < left[-1]]):
            store.file_io.write_exclusive(store.snapshot_path(number), texts[number].encode())
        if keeps:
            changelogs.delete_changelogs(store, going)
        forget(store, record.trash_id)
        raise PlanStale(f"the table was rolled back to snapshot {going[-1]} or before meanwhile", store.name)
    snapshots.write_earliest_hint(store, left[0])
    if not gone:
        forget(store, record.trash_id)
    return record, left[0], tuple(gone)


def _require_fresh(store: TableStore, plan: MaintenancePlan, present: set[int], going: Sequence[int]) -> None:
    _require_oldest(store, present, going)
    wanted = set(going)
    times = {snapshot.id: snapshot.time_millis for snapshot in snapshots.iterate(store, list(going))}
    for item in plan.items_of(ExpireItem):
        if item.snapshot_id in wanted and times.get(item.snapshot_id) != item.time_ms:
            what = (
                "written again after a rollback" if item.snapshot_id in times else "expired by somebody else meanwhile"
            )
            raise PlanStale(f"snapshot {item.snapshot_id} was {what}", store.name)


def _require_oldest(store: TableStore, present: set[int], going: Sequence[int]) -> None:
    if min(present) != going[0]:
        raise PlanStale(f"snapshot {min(present)} is older than snapshot {going[0]}, the first of the plan", store.name)
    if max(present) <= going[-1]:
        raise PlanStale(f"snapshot {going[-1]} is the newest now; the table was rolled back", store.name)
    wanted = _next_consumed(store)
    if wanted is not None and wanted <= going[-1]:
        raise PlanStale(f"a consumer reads from snapshot {wanted} now", store.name)
