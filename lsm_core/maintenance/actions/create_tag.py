"""Creation of a tag, and deletion of the files that only a replaced tag needed (Java `TagManager.createTag`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import InvalidOption, PlanStale, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.tag_refs import publish_tags
from lsm_core.maintenance.action import ActionWork, Applied, ApplyOutcome, MaintenancePlan, PlanEstimate, PlanItem
from lsm_core.maintenance.actions.delete_tag import files_of_tag, files_of_tags, record_fields, record_of
from lsm_core.maintenance.actions.sweep_trash import sweep_if_direct
from lsm_core.maintenance.deletions import DeletionReport, describe_freed_space, split_used
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import duration


@dataclass(frozen=True)
class TagItem(PlanItem):
    """Snapshot to tag.

    Attributes:
        name: name of the tag.
        snapshot_id: id of the snapshot.
        time_ms: commit time of the snapshot (epoch ms).
        time_retained_ms: retention of the tag (ms), None to keep the tag for ever.
        replaces: id of the snapshot that an existing tag of this name references at planning, None for a new tag.
    """

    item_kind: ClassVar[str] = "tag"
    title: ClassVar[str] = "would tag"
    columns: ClassVar[tuple[str, ...]] = ("tag", "snapshot", "committed (UTC)", "kept for (ms)", "instead of snapshot")

    name: str
    snapshot_id: int
    time_ms: int
    time_retained_ms: int | None = None
    replaces: int | None = None

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan.

        The cells are the tag's name, the snapshot's id and time, the retention, and the formerly tagged snapshot.
        """
        return (self.name, self.snapshot_id, utc_text(self.time_ms), self.time_retained_ms, self.replaces)


@dataclass(frozen=True)
class TagCreationReport(DeletionReport):
    """Report of creating a tag, with the files that only the replaced tag had kept.

    Attributes:
        tag: name of the tag, None if nothing was done.
        tagged: id of the tagged snapshot.
        replaced: id of the snapshot that the tag referenced before, None for a new tag.
    """

    tag: str | None = None
    tagged: int | None = None
    replaced: int | None = None

    @property
    def changed(self) -> bool:
        """Whether a tag was created, or an existing tag was moved to the snapshot."""
        return self.tag is not None

    def lines(self, table: str) -> list[str]:
        """Return lines on the tag, the tagged snapshot, and the files of the replaced tag."""
        if self.tag is None:
            return ["no tag was made"]
        instead = "" if self.replaced is None else f" instead of snapshot {self.replaced}"
        first = f"tag {self.tag} of {table} names snapshot {self.tagged}{instead}"
        return [first, *(self.file_lines(table) if self.files_recorded or self.files_deleted else [])]


def plan_tag_creation(
    store: TableStore,
    tag: str,
    snapshot_id: int | None = None,
    time_retained: int | str | None = None,
    replace: bool = False,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan to tag a snapshot.

    Args:
        store: the table.
        tag: name of the tag.
        snapshot_id: id of the snapshot, None for the newest. An expired snapshot is allowed if a tag keeps it.
        time_retained: retention of the tag in ms or as text ("7 d"). None for `tag.default-time-retained`; if that
            option is unset too, the tag is kept for ever.
        replace: move an existing tag of the same name; the plan lists the files that this frees.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidData: the name is no valid tag name.
        InvalidOption: a tag of this name exists and ``replace`` is False, the snapshot has an automatic tag already and
            the name is that of an automatic tag, or the retention is invalid.
        SnapshotNotFound: the snapshot does not exist.
        CorruptFile: metadata cannot be read.
    """
    tags.check_new_name(store, tag)
    snapshot = snapshots.latest(store) if snapshot_id is None else tags.find_snapshot(store, snapshot_id)
    if snapshot is None:
        raise SnapshotNotFound(f"table {store.name} has no snapshot to tag: nothing was committed yet")
    try:
        retained = store.options.tag_time_retained if time_retained is None else duration(time_retained)
    except InvalidOption as error:
        raise InvalidOption("time_retained", time_retained, error.accepted, store.name) from error
    before = tags.try_read(store, tag)
    if before is not None and not replace:
        text = f"a name that is free: it names snapshot {before.snapshot.id} (replace moves it)"
        raise InvalidOption("tag", tag, text, store.name)
    _require_only_automatic(store, tag, snapshot)
    tags.require_retention(retained, store.name)
    arguments = {"tag": tag, "snapshot_id": snapshot_id, "time_retained": retained, "replace": bool(replace)}
    plan = MaintenancePlan.begin("create_tag", store, snapshots.latest_id(store), arguments, now_ms)
    item = TagItem(tag, snapshot.id, snapshot.time_millis, retained, None if before is None else before.snapshot.id)
    if before is None:
        return _with_items(plan, item, [])
    candidates, _ = files_of_tags(store, {tag: before} if before.snapshot.id != snapshot.id else {})
    deletions, held = split_used(store, candidates, without_tags={tag})
    return _with_items(plan, item, deletions, tuple(held))


def _with_items(
    plan: MaintenancePlan, item: TagItem, deletions: list[DeleteItem], held: tuple[Any, ...] = ()
) -> MaintenancePlan:
    estimate = PlanEstimate(bytes_freed=sum(file.size for file in deletions), files_in=len(deletions), tasks=1)
    return replace(plan, items=(item, *deletions), declined=held, estimate=estimate)


def _require_only_automatic(store: TableStore, tag: str, snapshot: Snapshot) -> None:
    """Raise InvalidOption for a second automatic tag of one snapshot.

    The name of the next automatic tag is derived from the snapshot's automatic tag, which must therefore be unique.
    """
    periods = tags.periods(store)
    if periods is None or periods.time_of(tag) is None:
        return
    for name in tags.list_names(store):
        if name != tag and periods.time_of(name) is not None:
            other = tags.try_read(store, name)
            if other is not None and other.snapshot.id == snapshot.id:
                text = f"no name of an automatic tag: snapshot {snapshot.id} has the automatic tag '{name}'"
                raise InvalidOption("tag", tag, text, store.name)


def apply_tag_creation(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Write the tag, after recording in the trash the files that only the replaced tag kept.

    In direct mode (`dredge.delete-mode`) the recorded files are deleted at once. Nothing is done if the tag is already
    as planned.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a TagCreationReport.

    Raises:
        PlanStale: the planned snapshot no longer exists, or the tag changed since planning.
    """
    (item,) = plan.items_of(TagItem)
    before = tags.try_read(store, item.name)
    if before is not None and _is_created(item, before):
        return ApplyOutcome(TagCreationReport(plan.hash, plan.base_snapshot))
    snapshot = snapshots.try_read(store, item.snapshot_id) or next(
        (tagged for tagged in tags.list_tags(store).values() if tagged.id == item.snapshot_id), None
    )
    if snapshot is None or snapshot.time_millis != item.time_ms:
        raise PlanStale(f"snapshot {item.snapshot_id} is gone", store.name)
    if (None if before is None else before.snapshot.id) != item.replaces:
        now = "is gone" if before is None else f"names snapshot {before.snapshot.id} now"
        raise PlanStale(f"tag {item.name} {now}", store.name)
    tag = tags.made_now(store, snapshot, item.time_retained_ms)
    report = TagCreationReport(
        plan.hash, plan.base_snapshot, tag=item.name, tagged=item.snapshot_id, replaced=item.replaces
    )
    lines = [{"event": "tagged", "tag": item.name, "snapshot": item.snapshot_id}]
    if before is None:
        if not tags.create(store, item.name, tag):
            raise PlanStale(f"another tag {item.name} was made meanwhile", store.name)
        publish_tags(store)
        return ApplyOutcome(report, lines)
    deletions, held = split_used(store, plan.items_of(DeleteItem), without_tags={item.name})
    if deletions:
        record = record_of(store, plan, deletions, files_of_tag(store, item.name))
        report = replace(report, held=tuple(held), **record_fields(record))
    tags.replace(store, item.name, tag)
    publish_tags(store)
    report, swept = sweep_if_direct(store, report)
    return ApplyOutcome(report, [*lines, *swept])


def _is_created(item: TagItem, tag: Any) -> bool:
    same = (tag.snapshot.id, tag.snapshot.time_millis) == (item.snapshot_id, item.time_ms)
    return same and tag.time_retained_ms == item.time_retained_ms and item.replaces != item.snapshot_id


def tag_creation_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the planned snapshot still exists (as snapshot or tag) and the tag is not yet as planned.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    (item,) = plan.items_of(TagItem)
    before = tags.try_read(store, item.name)
    try:
        tags.find_snapshot(store, item.snapshot_id)
    except SnapshotNotFound:
        return False
    return before is None or not _is_created(item, before)


def trace_of_creation(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """Return the earlier application of a plan, recognised by its tag.

    Args:
        store: the table.
        plan: plan that may have been applied before.

    Returns:
        The application, or None if the tag does not exist or is not as planned.
    """
    (item,) = plan.items_of(TagItem)
    tag = tags.try_read(store, item.name)
    if tag is None or not _is_created(item, tag):
        return None
    listed = store.file_io.list_dir(tags.tag_dir(store))
    created_ms = next((file.mtime_ms for file in listed if file.name == tags.PREFIX + item.name), store.clock.now_ms())
    return Applied(None, created_ms, f"tag {item.name} names snapshot {item.snapshot_id}")


WORK: Final = ActionWork(
    plan_tag_creation,
    apply_tag_creation,
    TagCreationReport,
    (TagItem, DeleteItem),
    fits=tag_creation_fits,
    trace=trace_of_creation,
    remarks=lambda plan: describe_freed_space(plan) if plan.items_of(DeleteItem) else [],
)
