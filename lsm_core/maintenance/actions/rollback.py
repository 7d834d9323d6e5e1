"""Rollback of a table to an older snapshot or tag: newer snapshots are deleted, their files recorded for deletion.

Source: Java `RollbackHelper`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.clock import utc_text
from lsm_core.commit.attempt import PublishOutcome as Published
from lsm_core.commit.attempt import Retries, publish
from lsm_core.errors import (
    CommitUnknown,
    CorruptFile,
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
from lsm_core.maintenance.action import (
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    size_text,
)
from lsm_core.maintenance.actions.delete_tag import files_of_tag, files_of_tags, record_fields, trace_of_record
from lsm_core.maintenance.actions.sweep_trash import sweep_if_direct
from lsm_core.maintenance.deletions import (
    DeletionReport,
    count_external_files,
    data_items,
    describe_freed_space,
    files_left_text,
    grace_ms,
    item_exists,
    metadata_item,
    metadata_items,
    split_used,
    under_lock,
)
from lsm_core.maintenance.snapshot_exchange import (
    build_cover,
    find_cover,
    has_snapshot,
    has_successor,
    remove_cover,
    remove_snapshots,
    restore_snapshots,
)
from lsm_core.maintenance.trash import ROLLED_BACK, DeleteItem, TrashRecord, ledger_line_of_held
from lsm_core.maintenance.used_files import changelog_files, select_added
from lsm_core.metadata import changelogs, consumers, manifests, snapshots, tags
from lsm_core.metadata.store import OutcomeUnknown, SnapshotPublisher, TableStore
from lsm_core.options import whole_number
from lsm_core.read.table_versions import newest_of_watermark, resolve

_MOST_LINES: Final = 10_000
_SNAPSHOT, _CHANGELOG, _TAG = "snapshot", "changelog", "tag"


@dataclass(frozen=True)
class NewerContentItem(PlanItem):
    """Snapshot, changelog or tag that is newer than the version to go back to.

    Attributes:
        kind: "snapshot", "changelog" or "tag".
        name: name of the tag, or id of the snapshot or changelog as text.
        snapshot_id: id of the snapshot, of the changelog, or of the tagged snapshot.
        time_ms: commit time of the snapshot ``snapshot_id`` (epoch ms).
    """

    item_kind: ClassVar[str] = "take_back"
    title: ClassVar[str] = "would take back"
    columns: ClassVar[tuple[str, ...]] = ("what", "name", "snapshot", "committed (UTC)")

    kind: str
    name: str
    snapshot_id: int
    time_ms: int

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: kind, name, snapshot id, commit time."""
        return (self.kind, self.name, self.snapshot_id, utc_text(self.time_ms))


@dataclass(frozen=True)
class RollbackReport(DeletionReport):
    """Report of a rollback.

    Attributes:
        rolled_back_to: id of the newest snapshot after the rollback, None if nothing was done.
        snapshots: ids of the removed snapshots.
        changelogs: ids of the removed changelogs.
        tags: names of the removed tags.
        target_written: whether the target snapshot had expired and was written again from its tag.
        snapshot_id: None, unless another process made a commit during the rollback. Then it is the id of the snapshot
            below that commit, which has the content of the target, and the newer snapshots are kept.
    """

    rolled_back_to: int | None = None
    snapshots: tuple[int, ...] = ()
    changelogs: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    target_written: bool = False
    snapshot_id: int | None = None

    @property
    def changed(self) -> bool:
        """Whether the table was rolled back."""
        return self.rolled_back_to is not None

    def lines(self, table: str) -> list[str]:
        """Return lines on the new state, the removed snapshots, and how to undo the rollback."""
        if self.rolled_back_to is None:
            return ["nothing was rolled back"]
        if self.snapshot_id is not None:
            return [
                f"{table} has the content of snapshot {self.rolled_back_to} again, since snapshot {self.snapshot_id}",
                "commits were made meanwhile: the snapshots between them stay, and no file is freed",
            ]
        removed = [f"snapshots {self.snapshots[0]} to {self.snapshots[-1]}"] if self.snapshots else []
        removed += [f"{len(self.changelogs)} changelogs"] if self.changelogs else []
        removed += [f"tags {', '.join(self.tags)}"] if self.tags else []
        first = f"{table} is back at snapshot {self.rolled_back_to}; gone: {', '.join(removed)}"
        if self.trash_id is None and not self.files_deleted and not self.files_missing:
            return [first]
        return [first, *self.file_lines(table)]


@dataclass(frozen=True)
class _NewerContent:
    """Snapshots, changelogs and tags that a rollback to a snapshot removes, oldest first.

    Attributes:
        snapshots: newer snapshots by id.
        changelogs: changelogs of newer snapshots by snapshot id.
        tags: tags of newer snapshots by name.
    """

    snapshots: Mapping[int, Snapshot]
    changelogs: Mapping[int, Snapshot]
    tags: Mapping[str, Tag]

    @staticmethod
    def of(store: TableStore, number: int) -> _NewerContent:
        later = [snapshot_id for snapshot_id in snapshots.list_ids(store) if snapshot_id > number]
        later_changelogs = [changelog_id for changelog_id in changelogs.list_changelogs(store) if changelog_id > number]
        tagged = sorted(tags.list_details(store).items(), key=lambda entry: (entry[1].snapshot.id, entry[0]))
        return _NewerContent(
            {snapshot.id: snapshot for snapshot in snapshots.iterate(store, later)},
            {changelog_id: changelogs.read_changelog(store, changelog_id) for changelog_id in later_changelogs},
            {name: tag for name, tag in tagged if tag.snapshot.id > number},
        )

    def items(self) -> tuple[NewerContentItem, ...]:
        items = [NewerContentItem(_SNAPSHOT, str(n), n, snapshot.time_millis) for n, snapshot in self.snapshots.items()]
        items += [
            NewerContentItem(_CHANGELOG, str(n), n, changelog.time_millis) for n, changelog in self.changelogs.items()
        ]
        items += [NewerContentItem(_TAG, n, t.snapshot.id, t.snapshot.time_millis) for n, t in self.tags.items()]
        return tuple(items)


def plan_rollback(
    store: TableStore,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    watermark: int | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan to roll back to an older snapshot, the target, which exactly one of four arguments selects.

    Snapshots, changelogs and tags with larger snapshot ids than the target are removed, as in Java. Schemas and
    consumers are kept. Only metadata is read.

    Args:
        store: the table.
        snapshot_id: id of the target, which may have expired if a tag keeps it.
        tag: name of a tag, whose snapshot is the target.
        timestamp_ms: selects the newest snapshot committed at or before this time (epoch ms).
        watermark: selects the newest snapshot whose watermark is at most this value (epoch ms).
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: not exactly one of the four arguments is given.
        SnapshotNotFound: no snapshot or tag fits the argument.
        CorruptFile: retained metadata cannot be read.
    """
    targets = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    target = find_target(store, snapshot_id, tag, timestamp_ms, watermark)
    arguments = {**targets, "to_snapshot": target.id, "committed_ms": target.time_millis}
    plan = MaintenancePlan.begin(ROLLED_BACK, store, snapshots.latest_id(store), arguments, now_ms)
    newer = _NewerContent.of(store, target.id)
    items = newer.items()
    if not items:
        text = f"snapshot {target.id} is the newest: there is nothing to take back"
        return replace(plan, declined=(Declined(f"snapshot {target.id}", "newest", text, {"latest": target.id}),))
    damaged: list[Declined] = []
    candidates = {item.path: item for item in _files_of(store, target, newer, damaged)}
    deletions, held = _unused(store, list(candidates.values()), newer)
    return replace(
        plan,
        # A catalog server deletes the files itself.
        items=(*items, *(() if store.publisher is not None else deletions)),
        declined=(
            *damaged,
            *held,
            *count_external_files(store, _added_entries(store, newer), "newer"),
            *_readers_ahead(store, target.id),
            *_other_buckets(store, target),
        ),
        estimate=PlanEstimate(bytes_freed=sum(i.size for i in deletions), files_in=len(deletions), tasks=1),
    )


def _other_buckets(store: TableStore, target: Snapshot) -> Iterator[Declined]:
    """Yield a declined entry if the target's number of buckets differs from the option `bucket`.

    The entry tells users that writers will refuse the table after the rollback.
    """
    bucket = store.options.bucket
    if bucket <= 0:
        return
    totals = pc.unique(
        manifests.live_entries(store, target, columns=["total_buckets"]).column("total_buckets")
    ).to_pylist()
    others = sorted(total for total in totals if total is not None and total > 0 and total != bucket)
    if others:
        text = (
            f"files of snapshot {target.id} are in {others[0]} buckets and the option 'bucket' is {bucket}: after the "
            f"rollback writers refuse the table until the option is set to {others[0]}, "
            f"or the table is rescaled to {bucket}"
        )
        yield Declined("bucket", "rescaled", text, {"buckets": others[0], "bucket": bucket})


def find_target(
    store: TableStore,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    watermark: int | None = None,
) -> Snapshot:
    """Return the target of a rollback, which exactly one of the four arguments selects.

    Args:
        store: the table.
        snapshot_id: id of the target, which may have expired if a tag keeps it.
        tag: name of a tag, whose snapshot is the target.
        timestamp_ms: selects the newest snapshot committed at or before this time (epoch ms).
        watermark: selects the newest snapshot whose watermark is at most this value (epoch ms).

    Raises:
        InvalidOption: not exactly one of the four arguments is given.
        SnapshotNotFound: no snapshot or tag fits the argument.
        CorruptFile: metadata cannot be read.
    """
    targets = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
    if sum(value is not None for value in targets.values()) != 1:
        chosen = ", ".join(name for name, value in targets.items() if value is not None)
        raise InvalidOption("rollback", chosen or None, f"exactly one of {', '.join(targets)}", store.name)
    if snapshot_id is not None:
        return tags.find_snapshot(store, whole_number(snapshot_id, "snapshot_id", store.name))
    if watermark is not None:
        return newest_of_watermark(store, whole_number(watermark, "watermark", store.name))
    snapshot = resolve(store, tag=tag, timestamp_ms=timestamp_ms).snapshot
    if snapshot is None:
        raise SnapshotNotFound(f"table {store.name}: nothing was committed yet")
    return snapshot


def _unused(
    store: TableStore, candidates: Sequence[DeleteItem], newer: _NewerContent
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


def _added_entries(store: TableStore, newer: _NewerContent) -> Iterator[pa.Table]:
    """Yield the manifest entries that each newer snapshot added, without damaged ones."""
    for snapshot in newer.snapshots.values():
        with suppress(CorruptFile):
            yield select_added(manifests.delta_entries(store, snapshot))


def _files_of(
    store: TableStore, target: Snapshot, newer: _NewerContent, damaged: list[Declined]
) -> Iterator[DeleteItem]:
    """Yield the files of the newer snapshots, changelogs and tags.

    If the snapshot with the preceding id is newer content too, or the target, only the files that the snapshot added
    are yielded; else all files of the snapshot. Files that cannot be found because metadata is damaged are not freed,
    and the reason is added to ``damaged``.
    """
    before = target.id
    for number, snapshot in newer.snapshots.items():
        follows, before = number == before + 1, number
        try:
            yield from list(_files_of_snapshot(store, snapshot, follows=follows))
        except CorruptFile as error:
            text = files_left_text(store, error)
            damaged.append(Declined(f"files of snapshot {number}", "unreadable", text, {"snapshot": number}))
    for number, changelog in newer.changelogs.items():
        reason = f"changelog of snapshot {number}"
        for item in data_items(store, select_added(changelogs.kept_entries(store, changelog)), "changelog", reason):
            if item_exists(store, item):
                yield item
        for name, kind, size in changelog_files(store, changelog):
            yield metadata_item(store, store.manifest_path(name), kind, size, reason)
    alone = {name: tag for name, tag in newer.tags.items() if tag.snapshot.id not in newer.snapshots}
    yield from files_of_tags(store, alone)[0]


def _files_of_snapshot(store: TableStore, snapshot: Snapshot, *, follows: bool) -> Iterator[DeleteItem]:
    """Yield the files that a snapshot added if ``follows`` is True, else all of its files.

    Args:
        store: the table.
        snapshot: the snapshot.
        follows: whether the snapshot with the preceding id is the target, or is itself removed by the rollback.

    Raises:
        CorruptFile: metadata of the snapshot is damaged.
    """
    number = snapshot.id
    entries = (
        select_added(manifests.delta_entries(store, snapshot)) if follows else manifests.live_entries(store, snapshot)
    )
    yield from data_items(store, entries, "data", f"added by snapshot {number} ({snapshot.commit_kind.value})")
    if snapshot.changelog_manifest_list:
        changelog_entries = select_added(manifests.changelog_entries(store, snapshot))
        yield from data_items(store, changelog_entries, "changelog", f"changelog of snapshot {number}")
    yield from metadata_items(store, snapshot, f"belonged to snapshot {number}")


def apply_rollback(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Roll back: delete newer snapshots, changelogs and tags, and record the files that nothing needs afterwards.

    In direct mode (`dredge.delete-mode`) the recorded files are deleted at once, otherwise by a sweep after their grace
    period.

    Readers see the table as before or as after the rollback (`lsm_core.maintenance.snapshot_exchange`). After an
    interruption, applying the same plan again completes the rollback.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a RollbackReport.

    Raises:
        PlanStale: a commit, a tag or an expiry changed the history since planning.
        PlanRefused: a sweep has begun to delete the files of an interrupted rollback.
        LockTimeout: another process holds the table's lock.
        CommitUnknown: the storage did not report whether the rollback was published. Applying the same plan again
            finds out.
    """
    if not plan.items:
        return ApplyOutcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    if store.publisher is not None:
        return _roll_back_on_server(store, store.publisher, plan)
    trash_id = f"{ROLLED_BACK}-{plan.arguments['to_snapshot']}-{plan.hash[:12]}"
    earlier_record = next((record for record in trash.read_trash(store).records if record.trash_id == trash_id), None)
    target = _target(store, plan)
    if (
        earlier_record is None and not _NewerContent.of(store, target.id).items()
    ):  # the rollback is done, or has nothing to do
        return ApplyOutcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    record = _write_rollback_record(store, plan, target, trash_id) if earlier_record is None else earlier_record
    if not trash.claim(
        store, trash_id, trash.RESTORE
    ):  # in direct mode no sweep may run before the snapshots are removed
        raise PlanRefused(
            RefusalRule.SWEEP_HAS_BEGUN, table=store.name, detail=f"the files of {trash_id} are being deleted"
        )
    left = [number for number, text in record.snapshots.items() if has_snapshot(store, number, text)]
    others = [path for path, data in record.metadata.items() if _read_small_file(store, path) == data]
    cover_id = max(record.snapshots, default=0) + 1
    if earlier_record is not None and not left and not others and find_cover(store, cover_id, trash_id) is None:
        trash.release(store, trash_id)  # the record was applied: files with its names are newer
        return ApplyOutcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    if record.snapshots and not _swap_snapshots(store, plan, record, target):
        trash.forget(store, trash_id)
        return ApplyOutcome(
            RollbackReport(plan.hash, plan.base_snapshot, rolled_back_to=target.id, snapshot_id=cover_id)
        )
    items = plan.items_of(NewerContentItem)
    tag_names = [item.name for item in items if item.kind == _TAG]
    changelog_ids = [item.snapshot_id for item in items if item.kind == _CHANGELOG]
    relative = {number: changelogs.changelog_path(store, number)[len(store.root) + 1 :] for number in changelog_ids}
    changelogs.delete_changelogs(store, sorted(number for number in changelog_ids if relative[number] in others))
    for name in tag_names:
        if tags.tag_path(store, name)[len(store.root) + 1 :] in others:
            tags.delete(store, name)
    trash.release(store, trash_id)
    report = RollbackReport(
        plan.hash,
        plan.base_snapshot,
        rolled_back_to=target.id,
        snapshots=tuple(sorted(record.snapshots)),
        changelogs=tuple(changelog_ids),
        tags=tuple(tag_names),
        target_written=record.target_written,
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        **record_fields(record),
    )
    lines: list[Mapping[str, Any]] = [{"event": "rolled back", "snapshot": number} for number in report.snapshots]
    lines += [{"event": "deleted tag", "tag": name} for name in report.tags]
    report, swept = sweep_if_direct(store, report)
    return ApplyOutcome(report, [*lines, *swept, *map(ledger_line_of_held, report.held[:_MOST_LINES])])


def _roll_back_on_server(store: TableStore, publisher: SnapshotPublisher, plan: MaintenancePlan) -> ApplyOutcome:
    """Let the catalog server roll the table back; the server deletes the newer content at once.

    The server refuses if a snapshot was committed since planning.

    Returns:
        ApplyOutcome with a RollbackReport; there is no record in the trash, so this rollback cannot be undone.

    Raises:
        PlanStale: the history changed since planning.
        CommitUnknown: the server may still roll back.
    """
    target = _target(store, plan)
    newer = _NewerContent.of(store, target.id)
    if not newer.items():
        return ApplyOutcome(RollbackReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    if set(plan.items_of(NewerContentItem)) != set(newer.items()):
        raise PlanStale("the history changed since planning; plan it again", store.name)
    newest = max(newer.snapshots, default=target.id)
    try:
        publisher.roll_back(target.id, newest, store.branch)
    except OutcomeUnknown as error:
        latest = snapshots.latest_id(store)
        if latest != target.id:
            raise CommitUnknown(target.id, f"the rollback may or may not be done ({error})") from error
    report = RollbackReport(
        plan.hash,
        plan.base_snapshot,
        rolled_back_to=target.id,
        snapshots=tuple(sorted(newer.snapshots)),
        changelogs=tuple(sorted(newer.changelogs)),
        tags=tuple(newer.tags),
        declined=plan.declined,
    )
    lines: list[Mapping[str, Any]] = [{"event": "rolled back", "snapshot": number} for number in report.snapshots]
    return ApplyOutcome(report, lines)


def _target(store: TableStore, plan: MaintenancePlan) -> Snapshot:
    """Return the planned target of the rollback. Raises PlanStale if the target changed after planning."""
    number = int(plan.arguments["to_snapshot"] or 0)
    try:
        snapshot = tags.find_snapshot(store, number)
    except SnapshotNotFound as error:
        raise PlanStale(f"snapshot {number} has expired", store.name) from error
    if snapshot.time_millis != plan.arguments["committed_ms"]:
        raise PlanStale(f"snapshot {number} was written again after a rollback", store.name)
    return snapshot


def _write_rollback_record(store: TableStore, plan: MaintenancePlan, target: Snapshot, trash_id: str) -> TrashRecord:
    """Write the record of a rollback to ``target`` to the trash, with the id ``trash_id``.

    The record stores the newer snapshots, changelogs and tags, and lists the files to delete. Raises PlanStale if the
    newer snapshots, changelogs or tags are not as planned.
    """
    newer = _NewerContent.of(store, target.id)
    planned, now = set(plan.items_of(NewerContentItem)), set(newer.items())
    if planned != now:
        difference = min(now ^ planned, key=lambda item: item.snapshot_id)
        became = "is gone" if difference in planned else "is there, which was not planned"
        raise PlanStale(f"{difference.kind} {difference.name} {became}", store.name)
    deletions, _ = _unused(store, plan.items_of(DeleteItem), newer)
    try:
        texts = {number: store.file_io.read_bytes(store.snapshot_path(number)).decode() for number in newer.snapshots}
    except FileNotFoundError as error:
        raise PlanStale(
            f"{PurePosixPath(str(error.filename)).name} was deleted meanwhile; plan it again", store.name
        ) from error
    others: dict[str, bytes] = {}
    for number in newer.changelogs:
        path = changelogs.changelog_path(store, number)
        others[path[len(store.root) + 1 :]] = store.file_io.read_bytes(path)
    for name in newer.tags:
        others |= files_of_tag(store, name)
    created_ms = store.clock.now_ms()
    record = TrashRecord(
        trash_id=trash_id,
        action=ROLLED_BACK,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=created_ms,
        not_before_ms=created_ms + grace_ms(store.options),
        snapshots=texts,
        files=tuple(deletions),
        branch=store.branch,
        metadata=others,
        target=target.id,
        target_written=not snapshots.exists(store, target.id),
    )
    trash.write_record(store, record)
    return record


def _read_small_file(store: TableStore, path: str) -> bytes | None:
    """Return the bytes that a file of the table has now, to compare them with the copy in the rollback's record.

    Args:
        store: the table.
        path: path of the file, relative to the table's directory.

    Returns:
        The bytes, or None if the table has no such file.
    """
    try:
        return store.file_io.read_bytes(f"{store.root}/{path}")
    except FileNotFoundError:
        return None


def _swap_snapshots(store: TableStore, plan: MaintenancePlan, record: TrashRecord, target: Snapshot) -> bool:
    """Make ``target`` the table's newest snapshot; an interrupted call is continued.

    A cover (a temporary newest snapshot with the content of ``target``) is published first.

    Returns:
        True if the newer snapshots and the cover were removed. False if they are kept, because another process made a
            commit on the cover, or expired all snapshots below the cover.
    """
    number = max(record.snapshots) + 1
    cover = find_cover(store, number, record.trash_id)
    if cover is None:
        left = [snapshot_id for snapshot_id, text in record.snapshots.items() if has_snapshot(store, snapshot_id, text)]
        if not left:
            snapshots.point_latest(store)
            return True  # an interrupted call removed all of these snapshots
        cover = build_cover(store, target, number, record.trash_id, plan.hash)
        try:
            is_taken = publish(store, cover, Retries.of(store.options)) is Published.TAKEN
        except CommitUnknown:
            raise
        except DredgeError:
            trash.forget(store, record.trash_id)  # the storage refused the cover: nothing was changed
            raise
        cover = find_cover(store, number, record.trash_id) if is_taken else cover
        if cover is None:
            trash.forget(store, record.trash_id)
            raise PlanStale(f"snapshot {number} was committed since", store.name)
    with under_lock(store, "a rollback"):
        return _finish(store, record, target, cover)


def _finish(store: TableStore, record: TrashRecord, target: Snapshot, cover: Snapshot) -> bool:
    """Finish a rollback: remove the newer snapshots below the cover (temporary newest snapshot), then the cover.

    Returns:
        True if the snapshots and the cover were removed. False if they are kept or restored, because another process
            made a commit on the cover, or expired all snapshots below the cover.
    """
    if not has_successor(store, cover.id):
        remove_snapshots(store, record.snapshots)
        if not snapshots.exists(store, target.id):
            store.file_io.write_exclusive(store.snapshot_path(target.id), target.to_json())
        snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])
        if remove_cover(store, cover):
            return True
    restore_snapshots(store, record.snapshots)
    if record.target_written:  # the target had expired; with it, the ids would have a gap
        store.delete(store.snapshot_path(target.id))
    snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])
    snapshots.point_latest(store)
    return False


def rollback_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the plan still removes exactly the snapshots, changelogs and tags newer than its target.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return bool(plan.items) and set(plan.items_of(NewerContentItem)) == set(
        _NewerContent.of(store, int(plan.arguments["to_snapshot"] or 0)).items()
    )


def _describe_freed_space(plan: MaintenancePlan) -> list[str]:
    """Return lines for people on the files that a rollback frees."""
    if plan.estimate.files_in and not plan.items_of(DeleteItem):
        size = f"{plan.estimate.files_in:,} files ({size_text(plan.estimate.bytes_freed)})"
        return [f"the catalog server deletes {size} at once: this cannot be undone"]
    return describe_freed_space(plan)


WORK: Final = ActionWork(
    plan_rollback,
    apply_rollback,
    RollbackReport,
    (NewerContentItem, DeleteItem),
    fits=rollback_fits,
    trace=trace_of_record,
    remarks=lambda plan: [
        f"the newest snapshot will be {plan.arguments['to_snapshot']}",
        *_describe_freed_space(plan),
    ],
)
