"""Rollback: the version to go back to, what is newer, which files that frees, and phase one of the two-phase delete (Java `RollbackHelper`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.commit.publish import Outcome as Published
from lsm_core.commit.publish import Retries, publish
from lsm_core.errors import (
    CommitUnknown,
    DredgeError,
    InvalidOption,
    PlanRefused,
    PlanStale,
    RefusalRule,
    SnapshotNotFound,
)
from lsm_core.format.side_files import Tag
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance import trash
from lsm_core.maintenance.action import Declined, MaintenancePlan, Outcome, PlanEstimate, PlanItem
from lsm_core.maintenance.actions.delete_tag.tag_deletion import files_of_tag, files_of_tags, record_fields
from lsm_core.maintenance.actions.trash.sweeping import at_once_if_direct
from lsm_core.maintenance.deletions import (
    DeletionReport,
    data_items,
    grace_ms,
    metadata_item,
    metadata_items,
    split_used,
    under_lock,
)
from lsm_core.maintenance.top_of_history import (
    built_upon,
    cover_of,
    find_cover,
    is_there,
    put_back,
    take_away,
    uncover,
)
from lsm_core.maintenance.trash import ROLLED_BACK, DeleteItem, TrashRecord, held_line
from lsm_core.maintenance.used_files import added, changelog_files
from lsm_core.metadata import changelogs, consumers, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.read.table_versions import newest_of_watermark, resolve

_MOST_LINES: Final = 10_000
_SNAPSHOT, _CHANGELOG, _TAG = "snapshot", "changelog", "tag"


@dataclass(frozen=True)
class TakeBackItem(PlanItem):
    """One thing newer than the version to go back to: a "snapshot", a "changelog" or a "tag" of the snapshot committed at ``time_ms`` (epoch ms)."""

    item_kind: ClassVar[str] = "take_back"
    title: ClassVar[str] = "would take back"
    columns: ClassVar[tuple[str, ...]] = ("what", "name", "snapshot", "committed (UTC)")

    kind: str
    name: str
    snapshot_id: int
    time_ms: int

    def cells(self) -> tuple[Any, ...]:
        """What it is, its name, its snapshot and when that was committed."""
        return (self.kind, self.name, self.snapshot_id, utc_text(self.time_ms))


@dataclass(frozen=True)
class RollbackReport(DeletionReport):
    """What a rollback did: the newest snapshot afterwards (``rolled_back_to``), the snapshots, changelogs and tags that are gone.

    ``target_written``: that snapshot had expired and was written again from its tag. ``snapshot_id``: set when somebody committed in the
    middle: then that snapshot, on which the commit is based, says what the version to go back to says, and the older ones all stay.
    """

    rolled_back_to: int | None = None
    snapshots: tuple[int, ...] = ()
    changelogs: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    target_written: bool = False
    snapshot_id: int | None = None

    @property
    def changed(self) -> bool:
        """Whether the table went back."""
        return self.rolled_back_to is not None

    def lines(self, table: str) -> list[str]:
        """Where the table is, what went, and how to undo it."""
        if self.rolled_back_to is None:
            return ["nothing was rolled back"]
        if self.snapshot_id is not None:
            return [
                f"{table} says again what snapshot {self.rolled_back_to} says, since snapshot {self.snapshot_id}",
                "commits were made meanwhile: the snapshots between them stay, and no file is freed",
            ]
        gone = [f"snapshots {self.snapshots[0]} to {self.snapshots[-1]}"] if self.snapshots else []
        gone += [f"{len(self.changelogs)} changelogs"] if self.changelogs else []
        gone += [f"tags {', '.join(self.tags)}"] if self.tags else []
        first = f"{table} is back at snapshot {self.rolled_back_to}; gone: {', '.join(gone)}"
        return [first, *self.file_lines(table)]


@dataclass(frozen=True)
class _Newer:
    """What is newer than a snapshot: snapshots and changelogs by id, tags by name, oldest first."""

    snapshots: Mapping[int, Snapshot]
    changelogs: Mapping[int, Snapshot]
    tags: Mapping[str, Tag]

    @staticmethod
    def than(store: TableStore, number: int) -> _Newer:
        later = [one for one in snapshots.list_ids(store) if one > number]
        told = [one for one in changelogs.list_changelogs(store) if one > number]
        tagged = sorted(tags.list_details(store).items(), key=lambda one: (one[1].snapshot.id, one[0]))
        return _Newer(
            {one.id: one for one in snapshots.iterate(store, later)},
            {one: changelogs.read_changelog(store, one) for one in told},
            {name: tag for name, tag in tagged if tag.snapshot.id > number},
        )

    def items(self) -> tuple[TakeBackItem, ...]:
        found = [TakeBackItem(_SNAPSHOT, str(n), n, one.time_millis) for n, one in self.snapshots.items()]
        found += [TakeBackItem(_CHANGELOG, str(n), n, one.time_millis) for n, one in self.changelogs.items()]
        found += [TakeBackItem(_TAG, n, t.snapshot.id, t.snapshot.time_millis) for n, t in self.tags.items()]
        return tuple(found)


def plan_rollback(
    store: TableStore,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    watermark: int | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan to go back to a snapshot (by id, which may have expired if it has a tag), to that of a tag, to the newest one not younger
    than ``timestamp_ms`` (epoch ms), or to the newest one whose watermark is ``watermark`` or less. Exactly one of the four is given.

    Snapshots, changelogs and tags with larger ids go, as in Java; schemas and consumers stay. Reads metadata only. Raises
    InvalidOption, SnapshotNotFound and CorruptFile when something retained cannot be read.
    """
    given = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    target = find_target(store, snapshot_id, tag, timestamp_ms, watermark)
    arguments = {**given, "to_snapshot": target.id, "committed_ms": target.time_millis}
    plan = MaintenancePlan.begun(ROLLED_BACK, store, snapshots.latest_id(store), arguments, now_ms)
    newer = _Newer.than(store, target.id)
    items = newer.items()
    if not items:
        text = f"snapshot {target.id} is the newest: there is nothing to take back"
        return replace(plan, declined=(Declined(f"snapshot {target.id}", "newest", text, {"latest": target.id}),))
    candidates = {item.path: item for item in _files_of(store, target, newer)}
    deletions, held = _unused(store, list(candidates.values()), newer)
    return replace(
        plan,
        items=(*items, *deletions),
        declined=(*held, *_readers_ahead(store, target.id), *_other_buckets(store, target)),
        estimate=PlanEstimate(bytes_freed=sum(i.size for i in deletions), files_in=len(deletions), tasks=1),
    )


def _other_buckets(store: TableStore, target: Snapshot) -> Iterator[Declined]:
    """Say how writers go on after a rollback to files in another number of buckets than the table's option says."""
    bucket = store.options.bucket
    if bucket <= 0:
        return
    totals = pc.unique(
        manifests.live_entries(store, target, columns=["total_buckets"]).column("total_buckets")
    ).to_pylist()
    others = sorted(total for total in totals if total is not None and total > 0 and total != bucket)
    if others:
        text = (
            f"files of snapshot {target.id} are in {others[0]} buckets and the option 'bucket' is {bucket}: after the rollback writers refuse "
            f"the table until the option is set to {others[0]}, or the table is rescaled to {bucket}"
        )
        yield Declined("bucket", "rescaled", text, {"buckets": others[0], "bucket": bucket})


def find_target(
    store: TableStore,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    watermark: int | None = None,
) -> Snapshot:
    """The snapshot to go back to, by exactly one of the four; see :func:`plan_rollback`. Raises InvalidOption, SnapshotNotFound, CorruptFile."""
    given = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    if sum(value is not None for value in given.values()) != 1:
        chosen = ", ".join(name for name, value in given.items() if value is not None)
        raise InvalidOption("rollback", chosen or None, f"exactly one of {', '.join(given)}", store.name)
    if snapshot_id is not None:
        return tags.find_snapshot(store, whole_number(snapshot_id, "snapshot_id", store.name))
    if watermark is not None:
        return newest_of_watermark(store, whole_number(watermark, "watermark", store.name))
    found = resolve(store, tag=tag, timestamp_ms=timestamp_ms).snapshot
    if found is None:
        raise SnapshotNotFound(f"table {store.name}: nothing was committed yet")
    return found


def _unused(
    store: TableStore, candidates: Sequence[DeleteItem], newer: _Newer
) -> tuple[list[DeleteItem], list[Declined]]:
    return split_used(
        store,
        candidates,
        without_changelogs=set(newer.changelogs),
        without_tags=set(newer.tags),
        dropped=set(newer.snapshots),
    )


def _readers_ahead(store: TableStore, target: int) -> Iterator[Declined]:
    for name, following in sorted(consumers.list_consumers(store).items()):
        if following > target + 1:
            text = f"it waits for snapshot {following} and will miss what is committed before that"
            yield Declined(f"consumer {name}", "ahead", text, {"next_snapshot": following})


def _files_of(store: TableStore, target: Snapshot, newer: _Newer) -> Iterator[DeleteItem]:
    """Files that what is newer than ``target`` brought: of a line of snapshots the first one's, then what each added."""
    before = target.id
    for number, snapshot in newer.snapshots.items():
        follows, before = number == before + 1, number
        entries = (
            added(manifests.delta_entries(store, snapshot)) if follows else manifests.live_entries(store, snapshot)
        )
        yield from data_items(store, entries, "data", f"added by snapshot {number} ({snapshot.commit_kind.value})")
        if snapshot.changelog_manifest_list:
            told = added(manifests.changelog_entries(store, snapshot))
            yield from data_items(store, told, "changelog", f"changelog of snapshot {number}")
        yield from metadata_items(store, snapshot, f"belonged to snapshot {number}")
    for number, changelog in newer.changelogs.items():
        reason = f"changelog of snapshot {number}"
        for item in data_items(store, added(changelogs.kept_entries(store, changelog)), "changelog", reason):
            if store.file_io.exists(f"{store.root}/{item.path}"):
                yield item
        for name, kind, size in changelog_files(store, changelog):
            yield metadata_item(store, store.manifest_path(name), kind, size, reason)
    alone = {name: tag for name, tag in newer.tags.items() if tag.snapshot.id not in newer.snapshots}
    yield from files_of_tags(store, alone)[0]


def apply_rollback(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Go back: phase one of the delete, and in direct mode (`dredge.delete-mode`) phase two at once. Its report is a RollbackReport.

    Readers see the table before or after, never between (`lsm_core.maintenance.top_of_history`). Interrupted anywhere, the same plan
    finishes it. Raises PlanStale when something was committed, tagged or expired since the plan was made, CommitUnknown when the storage
    did not tell whether the table went back: the same plan finds out.
    """
    if not plan.items:
        return Outcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    trash_id = f"{ROLLED_BACK}-{plan.arguments['to_snapshot']}-{plan.hash[:12]}"
    begun = next((one for one in trash.read_trash(store).records if one.trash_id == trash_id), None)
    target = _target(store, plan)
    if begun is None and not _Newer.than(store, target.id).items():  # it is done, or there is nothing to do
        return Outcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    record = _recorded(store, plan, target, trash_id) if begun is None else begun
    if not trash.claim(
        store, trash_id, trash.RESTORE
    ):  # in direct mode no sweep may come before the snapshots are gone
        raise PlanRefused(
            RefusalRule.SWEEP_HAS_BEGUN, table=store.name, detail=f"the files of {trash_id} are being deleted"
        )
    left = [one for one, text in record.snapshots.items() if is_there(store, one, text)]
    others = [path for path, data in record.metadata.items() if _reads(store, path) == data]
    cover_id = max(record.snapshots, default=0) + 1
    if begun is not None and not left and not others and find_cover(store, cover_id, trash_id) is None:
        trash.release(store, trash_id)  # it was applied: what has these names now is another's
        return Outcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    if record.snapshots and not _swap_snapshots(store, plan, record, target):
        trash.forget(store, trash_id)
        return Outcome(RollbackReport(plan.hash, plan.base_snapshot, rolled_back_to=target.id, snapshot_id=cover_id))
    items = plan.items_of(TakeBackItem)
    gone = [item.name for item in items if item.kind == _TAG]
    told = [item.snapshot_id for item in items if item.kind == _CHANGELOG]
    relative = {number: changelogs.changelog_path(store, number)[len(store.root) + 1 :] for number in told}
    changelogs.delete_changelogs(store, sorted(number for number in told if relative[number] in others))
    for name in gone:
        if tags.tag_path(store, name)[len(store.root) + 1 :] in others:
            tags.delete(store, name)
    trash.release(store, trash_id)
    report = RollbackReport(
        plan.hash,
        plan.base_snapshot,
        rolled_back_to=target.id,
        snapshots=tuple(sorted(record.snapshots)),
        changelogs=tuple(told),
        tags=tuple(gone),
        target_written=record.target_written,
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        **record_fields(record),
    )
    lines: list[Mapping[str, Any]] = [{"event": "rolled back", "snapshot": number} for number in report.snapshots]
    lines += [{"event": "deleted tag", "tag": name} for name in report.tags]
    report, swept = at_once_if_direct(store, report)
    return Outcome(report, [*lines, *swept, *map(held_line, report.held[:_MOST_LINES])])


def _target(store: TableStore, plan: MaintenancePlan) -> Snapshot:
    """The snapshot to go back to, as planned. Raises PlanStale."""
    number = int(plan.arguments["to_snapshot"] or 0)
    try:
        found = tags.find_snapshot(store, number)
    except SnapshotNotFound as error:
        raise PlanStale(f"snapshot {number} has expired", store.name) from error
    if found.time_millis != plan.arguments["committed_ms"]:
        raise PlanStale(f"snapshot {number} was written again after a rollback", store.name)
    return found


def _recorded(store: TableStore, plan: MaintenancePlan, target: Snapshot, trash_id: str) -> TrashRecord:
    """Write the deletion record. Raises PlanStale when what is newer is not what was planned."""
    newer = _Newer.than(store, target.id)
    planned, now = set(plan.items_of(TakeBackItem)), set(newer.items())
    if planned != now:
        odd = min(now ^ planned, key=lambda item: item.snapshot_id)
        became = "is gone" if odd in planned else "is there, which was not planned"
        raise PlanStale(f"{odd.kind} {odd.name} {became}", store.name)
    deletions, _ = _unused(store, plan.items_of(DeleteItem), newer)
    try:
        texts = {number: store.file_io.read_bytes(store.snapshot_path(number)).decode() for number in newer.snapshots}
    except FileNotFoundError as error:
        raise PlanStale(
            f"{PurePosixPath(str(error.filename)).name} went meanwhile; plan it anew", store.name
        ) from error
    others: dict[str, bytes] = {}
    for number in newer.changelogs:
        path = changelogs.changelog_path(store, number)
        others[path[len(store.root) + 1 :]] = store.file_io.read_bytes(path)
    for name in newer.tags:
        others |= files_of_tag(store, name)
    made = store.clock.now_ms()
    record = TrashRecord(
        trash_id=trash_id,
        action=ROLLED_BACK,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=made,
        not_before_ms=made + grace_ms(store.options),
        snapshots=texts,
        files=tuple(deletions),
        branch=store.branch,
        metadata=others,
        target=target.id,
        target_written=not snapshots.exists(store, target.id),
    )
    trash.write_record(store, record)
    return record


def _reads(store: TableStore, path: str) -> bytes | None:
    """What a small file of a record holds now, None where it is gone."""
    try:
        return store.file_io.read_bytes(f"{store.root}/{path}")
    except FileNotFoundError:
        return None


def _swap_snapshots(store: TableStore, plan: MaintenancePlan, record: TrashRecord, target: Snapshot) -> bool:
    """Let ``target`` be the newest snapshot, whatever an interrupted call has done of it; False when a commit was made on the way.

    The table then says what ``target`` says by the cover, which stays, and so do all snapshots below it.
    """
    number = max(record.snapshots) + 1
    cover = find_cover(store, number, record.trash_id)
    if cover is None:
        left = [one for one in record.snapshots if is_there(store, one, record.snapshots[one])]
        if not left:
            snapshots.point_latest(store)
            return True  # an interrupted call had done it all
        cover = cover_of(store, target, number, record.trash_id, plan.hash)
        try:
            taken = publish(store, cover, Retries.of(store.options)) is Published.TAKEN
        except CommitUnknown:
            raise
        except DredgeError:
            trash.forget(store, record.trash_id)  # the storage refused it: nothing has happened
            raise
        cover = find_cover(store, number, record.trash_id) if taken else cover
        if cover is None:
            trash.forget(store, record.trash_id)
            raise PlanStale(f"snapshot {number} was committed since", store.name)
    with under_lock(store, "a rollback"):
        return _finish(store, record, target, cover)


def _finish(store: TableStore, record: TrashRecord, target: Snapshot, cover: Snapshot) -> bool:
    """Exchange what is below the cover and take it away; False when somebody has committed on it: then all stays."""
    if not built_upon(store, cover.id):
        take_away(store, record.snapshots)
        if not snapshots.exists(store, target.id):
            store.file_io.write_exclusive(store.snapshot_path(target.id), target.to_json())
        snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])
        if uncover(store, cover):
            return True
    put_back(store, record.snapshots)
    if record.target_written:  # history has no gap: it begins where it began
        store.delete(store.snapshot_path(target.id))
    snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])
    snapshots.point_latest(store)
    return False


def rollback_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether what the plan would take back is what is newer."""
    return bool(plan.items) and set(plan.items_of(TakeBackItem)) == set(
        _Newer.than(store, int(plan.arguments["to_snapshot"] or 0)).items()
    )


__all__ = ["RollbackReport", "TakeBackItem", "apply_rollback", "find_target", "plan_rollback", "rollback_fits"]
