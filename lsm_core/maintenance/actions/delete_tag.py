"""Deletion of tags and of the files that only these tags keep; the files are recorded, and a sweep deletes them later.

Source: Java `TagManager.deleteTag`, `TagDeletion`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, PlanStale, SnapshotNotFound
from lsm_core.format.side_files import Tag
from lsm_core.iceberg.tag_refs import publish_tags
from lsm_core.maintenance.action import (
    ActionWork,
    Applied,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
)
from lsm_core.maintenance.actions.sweep_trash import sweep_if_direct
from lsm_core.maintenance.deletions import (
    DeletionReport,
    data_items,
    describe_freed_space,
    files_left_text,
    grace_ms,
    item_exists,
    metadata_items,
    split_used,
    under_lock,
)
from lsm_core.maintenance.trash import DeleteItem, TrashRecord, ledger_line_of_held, read_trash, write_record
from lsm_core.maintenance.used_files import drop_missing_changelog, select_added
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.store import TableStore

_MOST_LINES: Final = 10_000


@dataclass(frozen=True)
class DropTagItem(PlanItem):
    """Tag to delete.

    Attributes:
        name: name of the tag.
        snapshot_id: id of the tagged snapshot. If the tag references a different snapshot later, the tag is kept.
        time_ms: commit time of the tagged snapshot (epoch ms). If the tagged snapshot has a different commit time
            later, the tag is kept.
        reason: why the tag is deleted.
    """

    item_kind: ClassVar[str] = "drop_tag"
    title: ClassVar[str] = "would delete"
    columns: ClassVar[tuple[str, ...]] = ("tag", "snapshot", "committed (UTC)", "why")

    name: str
    snapshot_id: int
    time_ms: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: tag name, snapshot id, snapshot time and reason."""
        return (self.name, self.snapshot_id, utc_text(self.time_ms), self.reason)

    def names(self, tag: Tag | None) -> bool:
        """Return whether ``tag`` exists and still references the planned snapshot."""
        return tag is not None and (tag.snapshot.id, tag.snapshot.time_millis) == (self.snapshot_id, self.time_ms)


@dataclass(frozen=True)
class TagDeletionReport(DeletionReport):
    """Report of a deletion of tags, with the files that the deletion frees.

    Attributes:
        tags: names of the deleted tags.
    """

    tags: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether a tag was deleted."""
        return bool(self.tags)

    def lines(self, table: str) -> list[str]:
        """Return lines on the deleted tags, their files, and how to undo the deletion."""
        if not self.tags:
            return ["no tag was deleted"]
        names = f"tag{'s' if len(self.tags) > 1 else ''} {', '.join(self.tags)}"
        return [f"deleted {names} of {table}", *self.file_lines(table)]


def plan_tag_deletion(store: TableStore, tag: str, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to delete a tag, and the files that only this tag needs. Only metadata is read.

    Args:
        store: the table.
        tag: name of the tag.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        SnapshotNotFound: the tag does not exist.
        InvalidData: the name is no valid tag name.
        CorruptFile: a snapshot, changelog, tag or branch cannot be read.
    """
    tags.read_tag(store, tag)
    plan = MaintenancePlan.begin("delete_tag", store, snapshots.latest_id(store), {"tag": tag}, now_ms)
    return with_tags(store, plan, {tag: "asked for"})


def with_tags(store: TableStore, plan: MaintenancePlan, reasons: Mapping[str, str]) -> MaintenancePlan:
    """Return a plan extended by the deletion of tags and of the files that only these tags keep.

    Args:
        store: the table.
        plan: plan to extend.
        reasons: reason of the deletion by name of the tag to delete. Tags that do not exist are ignored.
    """
    details = tags.list_details(store)
    chosen = {name: details[name] for name in reasons if name in details}
    items = [DropTagItem(n, t.snapshot.id, t.snapshot.time_millis, reasons[n]) for n, t in chosen.items()]
    candidates, kept = files_of_tags(store, chosen)
    deletions, held = split_used(store, candidates, without_tags=set(chosen))
    return replace(
        plan,
        items=(*plan.items, *items, *deletions),
        declined=(*plan.declined, *kept, *held),
        estimate=PlanEstimate(bytes_freed=sum(i.size for i in deletions), files_in=len(deletions), tasks=1),
    )


def files_of_tags(store: TableStore, tagged: Mapping[str, Tag]) -> tuple[list[DeleteItem], list[Declined]]:
    """Return the files referenced by tags whose snapshots have expired.

    Args:
        store: the table.
        tagged: tags by name.

    Returns:
        The files, and a declined entry for each tag whose deletion frees no file, because the tagged snapshot still
            exists or metadata is damaged.
    """
    candidates: dict[str, DeleteItem] = {}
    kept: list[Declined] = []
    seen: set[str] = set()  # two tags of one snapshot keep the same files; ids are handed out again after a rollback
    for name, tag in tagged.items():
        number = tag.snapshot.id
        snapshot = snapshots.try_read(store, number)
        if snapshot is not None and snapshots.is_same(snapshot, tag.snapshot):
            text = f"snapshot {number} still exists and holds them: they are deleted when it expires"
            kept.append(Declined(f"files of tag {name}", "held", text, {"holder": f"snapshot {number}"}))
        elif tag.snapshot.delta_manifest_list not in seen:
            seen.add(tag.snapshot.delta_manifest_list)
            try:
                candidates |= {item.path: item for item in _files_of(store, name, tag)}
            except CorruptFile as error:
                text = files_left_text(store, error)
                kept.append(Declined(f"files of tag {name}", "unreadable", text, {"snapshot": number}))
    return list(candidates.values()), kept


def _files_of(store: TableStore, name: str, tag: Tag) -> Iterator[DeleteItem]:
    """Yield all files of the tagged snapshot, and its changelog files unless an expiry deleted them."""
    snapshot, reason = (
        drop_missing_changelog(store, tag.snapshot),
        f"kept by tag {name} (snapshot {tag.snapshot.id}) alone",
    )
    yield from data_items(store, manifests.live_entries(store, snapshot), "data", reason)
    if snapshot.changelog_manifest_list:
        changelog_items = data_items(
            store, select_added(manifests.changelog_entries(store, snapshot)), "changelog", reason
        )
        yield from (item for item in changelog_items if item_exists(store, item))
    yield from metadata_items(store, snapshot, reason)


def apply_tag_deletion(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Delete the planned tags, and record the files that nothing needs afterwards.

    In direct mode (`dredge.delete-mode`) the recorded files are deleted at once, otherwise by a sweep after their grace
    period.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a TagDeletionReport.

    Raises:
        PlanStale: all remaining tags of the plan reference different snapshots now, or a tag was moved during the
            deletion.
        LockTimeout: another process holds the table's lock.
    """
    report, swept = sweep_if_direct(store, _delete(store, plan))
    lines = [{"event": "deleted tag", "tag": name} for name in report.tags]
    return ApplyOutcome(report, [*lines, *swept, *map(ledger_line_of_held, report.held[:_MOST_LINES])])


def _delete(store: TableStore, plan: MaintenancePlan) -> TagDeletionReport:
    """Write the deletion record in the trash, then delete the tag files.

    A tag that no longer references the planned snapshot is kept. Files that became needed after planning are left out
    of the record.

    Raises:
        PlanStale: all remaining tags of the plan reference different snapshots now, or a tag was moved during the
            deletion.
    """
    planned = plan.items_of(DropTagItem)
    names: list[str] = []
    moved: list[Declined] = []
    metadata: dict[str, bytes] = {}
    for item in planned:
        tag = tags.try_read(store, item.name)
        if item.names(tag):
            names.append(item.name)
        elif tag is not None:
            text = f"it names snapshot {tag.snapshot.id} now, not snapshot {item.snapshot_id} as planned"
            moved.append(Declined(f"tag {item.name}", "stale", text, {"snapshot_id": tag.snapshot.id}))
    if not names:
        if moved:
            raise PlanStale(f"{moved[0].subject}: {moved[0].text}", store.name)
        return TagDeletionReport(plan.hash, plan.base_snapshot, declined=plan.declined)
    deletions, held = split_used(store, plan.items_of(DeleteItem), without_tags=set(names))
    by_name = {item.name: item for item in planned}
    with under_lock(store, "a deletion of tags"):
        for name in names:
            metadata |= files_of_tag(store, name)
            if not by_name[name].names(tags.try_read(store, name)):
                raise PlanStale(f"tag {name} was moved meanwhile", store.name)
        record = record_of(store, plan, deletions, metadata)
        for name in names:
            tags.delete(store, name)
    publish_tags(store)
    return TagDeletionReport(
        plan.hash,
        plan.base_snapshot,
        tags=tuple(names),
        held=tuple({i.subject: i for i in (*plan.declined, *held) if i.reason == "held"}.values()),
        declined=(*(item for item in plan.declined if item.reason != "held"), *moved),
        **record_fields(record),
    )


def files_of_tag(store: TableStore, name: str) -> dict[str, bytes]:
    """Return the content of a tag's files (tag file and success file) by path relative to the table.

    A restore writes these files back.

    Args:
        store: the table.
        name: name of the tag.

    Raises:
        SnapshotNotFound: the tag no longer exists.
    """
    contents = {}
    for path in (tags.tag_path(store, name), tags.success_path(store, name)):
        try:
            contents[path[len(store.root) + 1 :]] = store.file_io.read_bytes(path)
        except FileNotFoundError as error:
            if not contents:
                raise SnapshotNotFound(f"table {store.name}: tag '{name}' was deleted meanwhile") from error
    return contents


def record_of(
    store: TableStore, plan: MaintenancePlan, files: Sequence[DeleteItem], metadata: Mapping[str, bytes]
) -> TrashRecord:
    """Write the deletion record of a plan to the trash.

    Args:
        store: the table.
        plan: plan that deletes the files.
        files: files that a sweep deletes after the grace period.
        metadata: content of small files that are deleted at once and that a restore writes back, by path.
    """
    now = store.clock.now_ms()
    record = TrashRecord(
        trash_id=f"{plan.action.replace('_', '-')}-{plan.hash[:12]}-{now}",
        action=plan.action,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now + grace_ms(store.options),
        snapshots={},
        files=tuple(files),
        branch=store.branch,
        metadata=metadata,
    )
    write_record(store, record)
    return record


def record_fields(record: TrashRecord) -> dict[str, Any]:
    """Return the fields of a DeletionReport that describe a deletion record, by field name.

    Args:
        record: deletion record in the trash.
    """
    return {
        "files_recorded": len(record.files),
        "bytes_recorded": record.size,
        "trash_id": record.trash_id,
        "not_before_ms": record.not_before_ms,
    }


def foresee_tag_deletion(plan: MaintenancePlan) -> TagDeletionReport:
    """Return the report that applying a plan would give.

    Args:
        plan: plan that may be applied.
    """
    deletions = plan.items_of(DeleteItem)
    return TagDeletionReport(
        plan.hash,
        plan.base_snapshot,
        tags=tuple(item.name for item in plan.items_of(DropTagItem)),
        files_recorded=len(deletions),
        bytes_recorded=sum(item.size for item in deletions),
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        dry_run=True,
    )


def tag_deletion_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one tag of the plan still references the planned snapshot.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return any(item.names(tags.try_read(store, item.name)) for item in plan.items_of(DropTagItem))


def trace_of_record(store: TableStore, plan: MaintenancePlan) -> Applied | None:
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


WORK: Final = ActionWork(
    plan_tag_deletion,
    apply_tag_deletion,
    TagDeletionReport,
    (DropTagItem, DeleteItem),
    fits=tag_deletion_fits,
    trace=trace_of_record,
    remarks=describe_freed_space,
    dry_run=foresee_tag_deletion,
)
