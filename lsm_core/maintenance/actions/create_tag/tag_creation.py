"""Creation of tags: which snapshot gets which name and for how long, and what a tag that is replaced leaves (Java `TagManager.createTag`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lsm_core.clock import utc_text
from lsm_core.errors import InvalidOption, PlanStale, SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import Applied, MaintenancePlan, Outcome, PlanEstimate, PlanItem
from lsm_core.maintenance.actions.delete_tag.tag_deletion import files_of_tag, files_of_tags, record_fields, record_of
from lsm_core.maintenance.actions.trash.sweeping import at_once_if_direct
from lsm_core.maintenance.deletions import DeletionReport, split_used
from lsm_core.maintenance.trash import DeleteItem
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import duration


@dataclass(frozen=True)
class TagItem(PlanItem):
    """One snapshot (committed at ``time_ms``, epoch ms) that gets a name, kept for ``time_retained_ms`` (None: for ever).

    ``replaces``: the snapshot that the tag names until then, None for a new tag.
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
        """Name, snapshot, its time, how long the tag is kept, what it named before."""
        return (self.name, self.snapshot_id, utc_text(self.time_ms), self.time_retained_ms, self.replaces)


@dataclass(frozen=True)
class TagCreationReport(DeletionReport):
    """What a creation did: the tag (None: nothing) and the snapshot it names; ``replaced`` is the one that it named before.

    The files are those that the replaced tag alone had kept.
    """

    tag: str | None = None
    tagged: int | None = None
    replaced: int | None = None

    @property
    def changed(self) -> bool:
        """Whether a tag was made or moved."""
        return self.tag is not None

    def lines(self, table: str) -> list[str]:
        """The tag and its snapshot; where files of the replaced one are."""
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
    """Plan to call a snapshot (default: the newest; also one that has expired and has another tag) ``tag``.

    ``time_retained``: ms or a text such as "7 d"; default `tag.default-time-retained`, else for ever. ``replace``: a tag of that name is
    moved, and the plan says what that frees. Raises InvalidData for a name that no tag can have, InvalidOption for one that is taken, or
    that would be the second automatic tag of one snapshot, SnapshotNotFound, CorruptFile.
    """
    tags.check_new_name(store, tag)
    snapshot = _snapshot(store, snapshot_id)
    try:
        retained = store.options.tag_time_retained if time_retained is None else duration(time_retained)
    except InvalidOption as error:
        raise InvalidOption("time_retained", time_retained, error.accepted, store.name) from error
    before = tags.try_read(store, tag)
    if before is not None and not replace:
        text = f"a name that is free: it names snapshot {before.snapshot.id} (replace moves it)"
        raise InvalidOption("tag", tag, text, store.name)
    _require_only_automatic(store, tag, snapshot)
    arguments = {"tag": tag, "snapshot_id": snapshot_id, "time_retained": retained, "replace": bool(replace)}
    plan = MaintenancePlan.begun("create_tag", store, snapshots.latest_id(store), arguments, now_ms)
    item = TagItem(tag, snapshot.id, snapshot.time_millis, retained, None if before is None else before.snapshot.id)
    if before is None:
        return _planned(plan, item, [])
    candidates, _ = files_of_tags(store, {tag: before} if before.snapshot.id != snapshot.id else {})
    deletions, held = split_used(store, candidates, without_tags={tag})
    return _planned(plan, item, deletions, tuple(held))


def _planned(
    plan: MaintenancePlan, item: TagItem, deletions: list[DeleteItem], held: tuple[Any, ...] = ()
) -> MaintenancePlan:
    estimate = PlanEstimate(bytes_freed=sum(one.size for one in deletions), files_in=len(deletions), tasks=1)
    return replace(plan, items=(item, *deletions), declined=held, estimate=estimate)


def _snapshot(store: TableStore, snapshot_id: int | None) -> Snapshot:
    if snapshot_id is not None:
        return tags.find_snapshot(store, snapshot_id)
    newest = snapshots.latest(store)
    if newest is None:
        raise SnapshotNotFound(f"table {store.name} has no snapshot to tag: nothing was committed yet")
    return newest


def _require_only_automatic(store: TableStore, tag: str, snapshot: Snapshot) -> None:
    """A snapshot has one automatic tag at most: the next one is worked out from it."""
    periods = tags.periods(store)
    if periods is None or periods.time_of(tag) is None:
        return
    for name in tags.list_names(store):
        if name != tag and periods.time_of(name) is not None:
            other = tags.try_read(store, name)
            if other is not None and other.snapshot.id == snapshot.id:
                text = f"no name of an automatic tag: snapshot {snapshot.id} has the automatic tag '{name}'"
                raise InvalidOption("tag", tag, text, store.name)


def apply_tag_creation(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Write the tag; what a replaced one alone kept goes to the trash first, in direct mode for good. Its report is a TagCreationReport.

    Raises PlanStale when the snapshot is gone or another one, or the name was taken, freed or moved since the plan was made.
    """
    (item,) = plan.items_of(TagItem)
    before = tags.try_read(store, item.name)
    if before is not None and _is_made(item, before):
        return Outcome(TagCreationReport(plan.hash, plan.base_snapshot))
    found = snapshots.try_read(store, item.snapshot_id) or next(
        (one for one in tags.list_tags(store).values() if one.id == item.snapshot_id), None
    )
    if found is None or found.time_millis != item.time_ms:
        raise PlanStale(f"snapshot {item.snapshot_id} is gone", store.name)
    if (None if before is None else before.snapshot.id) != item.replaces:
        now = "is gone" if before is None else f"names snapshot {before.snapshot.id} now"
        raise PlanStale(f"tag {item.name} {now}", store.name)
    tag = tags.made_now(store, found, item.time_retained_ms)
    made = TagCreationReport(
        plan.hash, plan.base_snapshot, tag=item.name, tagged=item.snapshot_id, replaced=item.replaces
    )
    lines = [{"event": "tagged", "tag": item.name, "snapshot": item.snapshot_id}]
    if before is None:
        if not tags.create(store, item.name, tag):
            raise PlanStale(f"another tag {item.name} was made meanwhile", store.name)
        return Outcome(made, lines)
    deletions, held = split_used(store, plan.items_of(DeleteItem), without_tags={item.name})
    if deletions:
        record = record_of(store, plan, deletions, files_of_tag(store, item.name))
        made = replace(made, held=tuple(held), **record_fields(record))
    tags.replace(store, item.name, tag)
    made, swept = at_once_if_direct(store, made)
    return Outcome(made, [*lines, *swept])


def _is_made(item: TagItem, tag: Any) -> bool:
    same = (tag.snapshot.id, tag.snapshot.time_millis) == (item.snapshot_id, item.time_ms)
    return same and tag.time_retained_ms == item.time_retained_ms and item.replaces != item.snapshot_id


def tag_creation_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether the tag's snapshot is still there, and the tag not."""
    (item,) = plan.items_of(TagItem)
    before = tags.try_read(store, item.name)
    return snapshots.exists(store, item.snapshot_id) and (before is None or not _is_made(item, before))


def trace_of_creation(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """The tag of ``plan``, while it names the snapshot."""
    (item,) = plan.items_of(TagItem)
    found = tags.try_read(store, item.name)
    if found is None or not _is_made(item, found):
        return None
    listed = store.file_io.list_dir(tags.tag_dir(store))
    made = next((one.mtime_ms for one in listed if one.name == tags.PREFIX + item.name), store.clock.now_ms())
    return Applied(None, made, f"tag {item.name} names snapshot {item.snapshot_id}")


__all__ = [
    "TagCreationReport",
    "TagItem",
    "apply_tag_creation",
    "plan_tag_creation",
    "tag_creation_fits",
    "trace_of_creation",
]
