"""Fast-forward of a table to a branch, whose history replaces the table's (Java `FileSystemBranchManager`)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import CorruptFile, InvalidOption, MetastoreFailed, PlanRefused, PlanStale, RefusalRule
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import (
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    size_text,
)
from lsm_core.maintenance.actions.delete_branch import list_needed_files
from lsm_core.maintenance.actions.sweep_trash import sweep_at_once
from lsm_core.maintenance.deletions import TrashReport, split_used, under_lock
from lsm_core.maintenance.snapshot_exchange import COVER_PROPERTY, build_cover, has_successor
from lsm_core.maintenance.trash import FORWARDED, DeleteItem, TrashRecord, read_trash, write_record
from lsm_core.maintenance.used_files import Lineage, split_at_gaps
from lsm_core.metadata import branches, changelogs, hints, snapshots, tags
from lsm_core.metadata.store import OutcomeUnknown, SnapshotPublisher, TableStore, list_schema_ids


@dataclass(frozen=True)
class ForwardItem(PlanItem):
    """Branch whose history replaces the table's history.

    Attributes:
        branch: name of the branch.
        first: id of the branch's first snapshot.
        last: id of the branch's last snapshot.
        before: id of the table's newest snapshot at planning, 0 for none.
        history: name of the manifest list of the branch's last snapshot. If it differs when the plan is applied, the
            branch was written to or replaced.
    """

    item_kind: ClassVar[str] = "forward"
    title: ClassVar[str] = "would fast-forward"
    columns: ClassVar[tuple[str, ...]] = ("to branch", "its snapshots", "newest snapshot now")

    branch: str
    first: int
    last: int
    before: int
    history: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: branch, its snapshot ids, and the table's newest snapshot."""
        return (self.branch, f"{self.first}..{self.last}", self.before or None)


@dataclass(frozen=True)
class DropItem(PlanItem):
    """Snapshot, tag or schema file of the table to drop or replace, because the branch has no equal file.

    Attributes:
        name: path of the file relative to the table's metadata folder.
        reason: why the file is dropped.
        digest: digest of the file's content (:func:`digest_text`).
    """

    item_kind: ClassVar[str] = "drop"
    title: ClassVar[str] = "would drop"
    columns: ClassVar[tuple[str, ...]] = ("file", "why")

    name: str
    reason: str
    digest: str = ""

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: the file and the reason."""
        return (self.name, self.reason)


@dataclass(frozen=True)
class FastForwardReport(TrashReport):
    """Report of a fast-forward.

    Attributes:
        base_snapshot: id of the table's newest snapshot before the fast-forward.
        branch: name of the branch, "" if nothing was changed.
        latest: id of the table's newest snapshot after the fast-forward.
        dropped: paths of the dropped files relative to the metadata folder. Replaced snapshots and tags are included,
            replaced schemas are not.
    """

    base_snapshot: int | None
    branch: str = ""
    latest: int | None = None
    dropped: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the table's history was replaced."""
        return bool(self.branch)

    def lines(self, table: str) -> list[str]:
        """Return lines on the new state of the table and the dropped files."""
        if not self.branch:
            return ["the table has that history already"]
        before = self.base_snapshot or "empty"
        first = f"{table} is now as branch {self.branch}: snapshot {self.latest}, before it was {before}"
        if not self.dropped:
            return [first]
        second = f"dropped: {', '.join(self.dropped[:10])}{' ...' if len(self.dropped) > 10 else ''}"
        if self.trash_id is None and not self.files_deleted:
            return [first, second]
        if self.trash_id is None:
            return [first, second, f"{self.files_deleted} files ({size_text(self.bytes_freed)}) deleted at once"]
        size = f"{self.files_recorded} files ({size_text(self.bytes_recorded)})"
        return [first, second, f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"]


@dataclass(frozen=True)
class _Change:
    """Changes to the table's metadata files by a fast-forward.

    Attributes:
        first: id of the branch's first snapshot.
        last: id of the branch's last snapshot.
        removed: former content of removed or replaced files, by path.
        new: content of added files and replacements, by path.
        snapshots: the removed or replaced snapshots, by id.
        tags: snapshots of the removed or replaced tags, by tag name.
    """

    first: int
    last: int
    removed: Mapping[str, bytes]
    new: Mapping[str, bytes]
    snapshots: Mapping[int, Snapshot]
    tags: Mapping[str, Snapshot]


def plan_fast_forward(store: TableStore, branch: str) -> MaintenancePlan:
    """Plan to replace the table's snapshots by those of a branch, from the branch's first snapshot on.

    The table is the branch that ``store`` has opened, usually main. From the branch's first snapshot on, the table's
    snapshots, tags and schemas are dropped or replaced, unless the branch has an equal file. The plan lists these
    files. As in Java, the rows of dropped snapshots are lost. Only metadata is read.

    Args:
        store: the table.
        branch: name of the branch.

    Raises:
        TableNotFound: the branch does not exist.
        InvalidOption: the branch is main, or the branch that ``store`` has opened.
        PlanRefused: the branch is empty, the snapshot ids would have a gap, or an interrupted rollback must be finished
            first.
        CorruptFile: metadata cannot be read.
    """
    if branch == store.branch:
        raise InvalidOption("branch", branch, "another branch than the one that is open", store.name)
    branches.require_branch(store, branch)
    view = branches.open_branch(store, branch)
    change = _change(store, view)
    before = snapshots.latest_id(store)
    plan = MaintenancePlan.begin("fast_forward", store, before, {"branch": branch})
    if not change.new and not change.removed:
        text = f"the table has the history of branch {branch} already"
        return replace(plan, declined=(Declined(f"branch {branch}", "same", text),))
    drops = [
        DropItem(
            _name(store, path),
            "the branch has another one" if path in change.new else "the branch has none",
            digest_text(data),
        )
        for path, data in change.removed.items()
    ]
    free = _freed(store, change)
    if store.publisher is not None and free:
        size = sum(item.size for item in free)
        text = f"{len(free)} files ({size_text(size)}) of the replaced snapshots stay: clean orphan files"
        facts = {"files": len(free), "size": size}
        plan = replace(plan, declined=(Declined(f"branch {branch}", "server", text, facts),))
        free = []
    return replace(
        plan,
        items=(
            ForwardItem(branch, change.first, change.last, before or 0, branches.newest_manifest_list(view)),
            *drops,
            *free,
        ),
        estimate=PlanEstimate(bytes_freed=sum(item.size for item in free), files_in=len(free), tasks=1),
    )


def _change(store: TableStore, branch: TableStore) -> _Change:
    """Return the metadata files to remove from the table and to add, for a fast-forward to ``branch``.

    Raises:
        PlanRefused: the resulting history would be invalid, or an interrupted rollback must be finished first.
    """
    _require_no_cover(store)
    branch_ids, own_ids = snapshots.list_ids(branch), snapshots.list_ids(store)
    if not branch_ids:
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, f"branch {branch.branch} has no snapshot")
    first, last = branch_ids[0], branch_ids[-1]
    below = max((number for number in own_ids if number < first), default=first - 1)
    if below != first - 1:
        # Without the option an overwrite keeps the partitions that the branch does not have.
        whole = 'table.copy({"dynamic-partition-overwrite": "false"})' if store.schema.partition_keys else "table"
        detail = (
            f"the branch begins at snapshot {first}, and the table's last one before it is {below}; forward it once "
            f"the table has snapshot {first - 1}, or write its rows instead ({whole}.write(branch, overwrite=True))"
        )
        raise _refusal(store, RefusalRule.NO_HOLES_IN_HISTORY, detail)
    later_changelogs = [number for number in changelogs.list_changelogs(store) if number >= first]
    if later_changelogs:
        detail = (
            f"changelogs {later_changelogs[0]} to {later_changelogs[-1]} are of snapshots that the branch does not have"
        )
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, detail)
    read = store.file_io.read_bytes
    since = snapshots.read(branch, first).schema_id
    my_tags, its_tags = tags.list_tags(store), tags.list_tags(branch)
    my_tags = {name: tag for name, tag in my_tags.items() if tag.id >= first or name in its_tags}
    before = {store.schema_path(number): read(store.schema_path(number)) for number in _schemas(store, since)}
    before |= {store.snapshot_path(number): read(store.snapshot_path(number)) for number in own_ids if number >= first}
    before |= {tags.tag_path(store, name): read(tags.tag_path(store, name)) for name in my_tags}
    after = {store.schema_path(number): read(branch.schema_path(number)) for number in _schemas(branch, since)}
    after |= {store.snapshot_path(number): read(branch.snapshot_path(number)) for number in branch_ids}
    after |= {tags.tag_path(store, name): read(tags.tag_path(branch, name)) for name in its_tags}
    removed = {path: data for path, data in before.items() if after.get(path) != data}
    return _Change(
        first,
        last,
        removed,
        {path: data for path, data in after.items() if before.get(path) != data},
        {n: snapshots.read(store, n) for n in own_ids if store.snapshot_path(n) in removed},
        {name: tag for name, tag in my_tags.items() if tags.tag_path(store, name) in removed},
    )


def _require_no_cover(store: TableStore) -> None:
    """Raise PlanRefused if a rollback, or the undo of a rollback, is unfinished.

    Such a rollback has a cover (a temporary newest snapshot), and will still exchange the snapshots below the cover.
    """
    newest = snapshots.latest(store)
    serves = None if newest is None else (newest.properties or {}).get(COVER_PROPERTY)
    if newest is not None and serves and any(record.trash_id == serves for record in read_trash(store).records):
        detail = f"snapshot {newest.id} covers a rollback or its undo that has not ended ({serves}): run it again first"
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, detail)


def _schemas(store: TableStore, since: int) -> list[int]:
    return [number for number in list_schema_ids(store.file_io, store.root, store.branch) if number >= since]


def _name(store: TableStore, path: str) -> str:
    return path.removeprefix(f"{store.metadata_root}/")


def _refusal(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


def _freed(store: TableStore, change: _Change) -> list[DeleteItem]:
    """Return the files that only the dropped snapshots and tags need; files that any branch references are kept."""
    lines = split_at_gaps(store, list(change.snapshots.values()), "snapshot")
    lines += [Lineage(f"tag {name}", (tag,)) for name, tag in change.tags.items()]
    candidates = {item.path: item for item in list_needed_files(store, lines, "belonged to the history that went")}
    free, _ = split_used(store, list(candidates.values()), without_tags=set(change.tags), dropped=set(change.snapshots))
    return free


def _forward_on_server(
    store: TableStore, publisher: SnapshotPublisher, plan: MaintenancePlan, item: ForwardItem, change: _Change
) -> ApplyOutcome:
    """Let the catalog server replace the table's snapshots by those of a branch; there is no undo.

    Raises:
        MetastoreFailed: the server refused, or may still replace the snapshots.
    """
    try:
        publisher.forward_branch(item.branch)
    except OutcomeUnknown as error:
        view = branches.open_branch(store, item.branch)
        if branches.newest_manifest_list(store) != branches.newest_manifest_list(view):
            reason = f"the fast-forward to branch '{item.branch}' may or may not be done: {error}"
            raise MetastoreFailed(publisher.address, reason) from error
    dropped = tuple(_name(store, path) for path in change.removed if path not in change.new or "/schema/" not in path)
    report = FastForwardReport(plan.hash, plan.base_snapshot, item.branch, change.last, dropped, declined=plan.declined)
    return ApplyOutcome(report, [{"event": "dropped", "file": name} for name in dropped])


def apply_fast_forward(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Record the table's dropped files in the trash, then replace them by the branch's files.

    At every moment, readers see the newest snapshot of the table or the newest snapshot of the branch. An interrupted
    fast-forward is continued.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a FastForwardReport.

    Raises:
        PlanStale: the table or the branch changed since planning.
        PlanRefused: the branch is empty, the snapshot ids would have a gap, or an interrupted rollback must be
            finished first.
        LockTimeout: another process holds the table's lock.
    """
    item = next(iter(plan.items_of(ForwardItem)), None)
    if item is None:
        return ApplyOutcome(FastForwardReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    branches.require_branch(store, item.branch)
    view = branches.open_branch(store, item.branch)
    change = _change(store, view)
    if (change.first, change.last) != (item.first, item.last):
        raise PlanStale(f"branch {item.branch} was written to since", store.name)
    if branches.newest_manifest_list(view) != item.history:
        raise PlanStale(f"branch {item.branch} has another history than the one that was planned", store.name)
    planned = {(drop.name, drop.digest) for drop in plan.items_of(DropItem)}
    removed = {_name(store, path): digest_text(data) for path, data in change.removed.items()}
    unknown = [name for name, digest in removed.items() if (name, digest) not in planned]
    if unknown:
        raise PlanStale(f"{unknown[0]} was written since", store.name)
    if store.publisher is not None:
        return _forward_on_server(store, store.publisher, plan, item, change)
    freed = _freed(store, change) if change.removed else []
    with under_lock(store, "a fast-forward"):
        record = _write_record(store, plan, change, freed) if change.removed else None
        exchange(store, change.removed, change.new, change.last)
    report = FastForwardReport(
        plan.hash,
        plan.base_snapshot,
        item.branch if change.removed or change.new else "",
        change.last,
        tuple(_name(store, path) for path in change.removed if path not in change.new or "/schema/" not in path),
        declined=plan.declined,
    )
    swept: list[dict[str, Any]] = []
    if record is not None and store.options.delete_mode == "direct":
        deletion_fields, swept = sweep_at_once(store)
        report = replace(report, **deletion_fields)
    elif record is not None:
        report = replace(
            report,
            files_recorded=len(record.files),
            bytes_recorded=record.size,
            trash_id=record.trash_id,
            not_before_ms=record.not_before_ms,
        )
    return ApplyOutcome(report, [*({"event": "dropped", "file": name} for name in report.dropped), *swept])


def _write_record(
    store: TableStore, plan: MaintenancePlan, change: _Change, freed: Sequence[DeleteItem]
) -> TrashRecord:
    now = store.clock.now_ms()
    record = TrashRecord(
        trash_id=f"fast-forward-{plan.hash[:12]}-{now}",
        action=FORWARDED,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now
        + (0 if store.options.delete_mode == "direct" else int(store.options.get("dredge.trash-grace"))),
        snapshots={number: change.removed[store.snapshot_path(number)].decode() for number in change.snapshots},
        files=tuple(freed),
        branch=store.branch,
        metadata={
            path.removeprefix(f"{store.root}/"): data
            for path, data in change.removed.items()
            if not path.startswith(store.snapshot_dir)
        },
        came={path.removeprefix(f"{store.root}/"): digest_text(data) for path, data in change.new.items()},
    )
    write_record(store, record)
    return record


def digest_text(data: bytes) -> str:
    """Return the SHA-256 hex digest by which a fast-forward's plan or trash record recognises a file later.

    Args:
        data: content of the file.
    """
    return hashlib.sha256(data).hexdigest()


def exchange(store: TableStore, removed: Collection[str], new: Mapping[str, bytes], last: int = 0) -> None:
    """Replace the schemas, snapshots and tags of the table's current history by those of a new history.

    Readers see either the current or the new history, never a mixture. Schemas are added first and removed last. An
    interrupted exchange can be repeated, because existing files with the wanted content are accepted.

    Args:
        store: the table.
        removed: paths of files to remove.
        new: content of files to add, by path.
        last: id of the new history's last snapshot. Existing snapshots above it, and above all snapshots in ``removed``
            and ``new``, are taken for concurrent commits. 0 if ``removed`` or ``new`` has the newest snapshot.

    Raises:
        PlanStale: another process made a commit during the exchange.
    """
    io = store.file_io
    schemas_there, tagged = (
        sorted({path for path in (*removed, *new) if path.startswith(f"{store.metadata_root}/{kind}/")})
        for kind in ("schema", "tag")
    )
    for path in schemas_there:
        if path in new:
            io.overwrite(path, new[path])
    _exchange_snapshots(
        store,
        {_number(path) for path in removed if path.startswith(store.snapshot_dir)},
        {_number(path): data for path, data in new.items() if path.startswith(store.snapshot_dir)},
        last,
    )
    for path in tagged:
        if path in new:
            io.overwrite(path, new[path])
        else:
            io.delete(path)
    for path in schemas_there:
        if path not in new:
            io.delete(path)
    snapshots.point_latest(store)
    snapshots.write_earliest_hint(store, snapshots.list_ids(store)[0])


def _number(path: str) -> int:
    return int(path.rpartition("-")[2])


_STANDS_IN: Final = "fast-forward"


def is_stand_in(data: bytes) -> bool:
    """Return whether a snapshot file is a temporary substitute, which an exchange of histories writes.

    Args:
        data: content of the file.
    """
    try:
        return (Snapshot.from_json(data, "").properties or {}).get(COVER_PROPERTY) == _STANDS_IN
    except CorruptFile:
        return False


def _exchange_snapshots(store: TableStore, removed: set[int], new: Mapping[int, bytes], known: int) -> None:
    """Exchange snapshots so that readers switch from the current to the new newest snapshot in one step.

    This step writes a snapshot file with the id of the newest removed snapshot, or the first id above all existing
    snapshots. The file is the new history's newest snapshot if both ids are equal, else a substitute with the same
    content. The remaining snapshots are exchanged afterwards. If another process commits on top of a removed snapshot,
    the ids below that commit are filled with substitutes, so that the ids have no gap.

    Args:
        store: the table.
        removed: ids of snapshots to remove.
        new: content of snapshots to add, by id.
        known: id of the new history's last snapshot. A snapshot above ``known`` and all ids of ``removed`` and ``new``
            is a concurrent commit.

    Raises:
        PlanStale: another process made a commit.
    """
    io, path, present = store.file_io, store.snapshot_path, snapshots.list_ids(store)
    removed = removed | {number for number in new if number in present and is_stand_in(io.read_bytes(path(number)))}
    if not removed and not new:
        return
    newest = present[-1] if present else 0
    last = max((set(present) - removed) | set(new))
    if newest > max(known, *removed, *new):
        raise PlanStale(f"snapshot/snapshot-{newest} was committed meanwhile; plan it again", store.name)
    to_come = Snapshot.from_json(new[last], path(last)) if last in new else snapshots.read(store, last)

    def stand_in(number: int) -> bytes:
        return replace(build_cover(store, to_come, number, _STANDS_IN, ""), time_millis=to_come.time_millis).to_json()

    io.delete(f"{store.snapshot_dir}/{hints.LATEST}")  # Java trusts the hint while the next snapshot does not exist
    on_top = sorted(number for number in new if number > newest)
    for number in on_top:
        _create(store, number, new[number] if number == last else stand_in(number))
    if not on_top and newest in removed:
        _replace_newest(store, newest, new[newest] if newest == last else stand_in(newest))
    elif not on_top and newest in new:
        _create(store, newest, new[newest])
    for number in sorted({*removed, *new} - {on_top[-1] if on_top else newest}):
        if number in on_top or (number in removed and number in new):
            io.overwrite(path(number), new[number])
        elif number in new:
            _create(store, number, new[number])
        else:
            io.delete(path(number))
    if newest > last and not has_successor(store, newest):
        io.delete(path(newest))
    if newest > last and has_successor(store, newest):
        for number in range(last + 1, newest + 1):  # no gap may remain below the commit on top
            io.write_exclusive(path(number), stand_in(number))


def _replace_newest(store: TableStore, number: int, data: bytes) -> None:
    path = store.snapshot_path(number)
    before = store.file_io.read_bytes(path)
    store.file_io.overwrite(path, data)
    if has_successor(store, number):
        own = Snapshot.from_json(before, path)
        lists = (own.base_manifest_list, own.delta_manifest_list)
        if all(store.file_io.exists(store.manifest_path(name)) for name in lists):
            store.file_io.overwrite(path, before)
        else:  # it has expired since it was read, and its files are deleted
            store.delete(path)
        raise PlanStale(f"snapshot/snapshot-{number + 1} was committed meanwhile; plan it again", store.name)


def _create(store: TableStore, number: int, data: bytes) -> None:
    path = store.snapshot_path(number)
    if not store.file_io.write_exclusive(path, data) and store.file_io.read_bytes(path) != data:
        raise PlanStale(f"snapshot/snapshot-{number} was committed meanwhile; plan it again", store.name)


def fast_forward_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the branch of the plan exists and its history differs from the table's.

    Args:
        store: the table.
        plan: plan to compare with the table.

    Raises:
        PlanRefused: the branch is empty, the snapshot ids would have a gap, or an interrupted rollback must be
            finished first.
    """
    item = next(iter(plan.items_of(ForwardItem)), None)
    if item is None or not branches.metadata_paths(store, item.branch):
        return False
    change = _change(store, branches.open_branch(store, item.branch))
    return bool(change.removed or change.new)


WORK: Final = ActionWork(
    plan_fast_forward,
    apply_fast_forward,
    FastForwardReport,
    (ForwardItem, DropItem, DeleteItem),
    replaces_schemas=True,
    fits=fast_forward_fits,
)
