"""The fast-forward to a branch: what it adds, what it drops and frees, its steps and its report (Java `FileSystemBranchManager`)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lsm_core.clock import utc_text
from lsm_core.errors import InvalidOption, PlanRefused, PlanStale, RefusalRule
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import Declined, MaintenancePlan, Outcome, PlanEstimate, PlanItem, Report
from lsm_core.maintenance.actions.delete_branch.deleting import needed_files
from lsm_core.maintenance.actions.trash.sweeping import plan_sweep, sweep_records
from lsm_core.maintenance.deletions import split_used, under_lock
from lsm_core.maintenance.trash import FORWARDED, DeleteItem, TrashRecord, write_record
from lsm_core.maintenance.used_files import Lineage, split_at_gaps
from lsm_core.metadata import branches, changelogs, hints, schemas, snapshots, tags
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class ForwardItem(PlanItem):
    """The branch whose snapshots ``first`` to ``last`` the table has afterwards; ``before`` is the table's newest now (0: none)."""

    item_kind: ClassVar[str] = "forward"
    title: ClassVar[str] = "would fast-forward"
    columns: ClassVar[tuple[str, ...]] = ("to branch", "its snapshots", "newest snapshot now")

    branch: str
    first: int
    last: int
    before: int

    def cells(self) -> tuple[Any, ...]:
        """Branch and snapshots."""
        return (self.branch, f"{self.first}..{self.last}", self.before or None)


@dataclass(frozen=True)
class DropItem(PlanItem):
    """A snapshot, tag or schema that the table has and the branch has not, or not so: it goes. ``name`` as Paimon names its file."""

    item_kind: ClassVar[str] = "drop"
    title: ClassVar[str] = "would drop"
    columns: ClassVar[tuple[str, ...]] = ("file", "why")

    name: str
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """The file and the reason."""
        return (self.name, self.reason)


@dataclass(frozen=True)
class FastForwardReport(Report):
    """What a fast-forward did: the newest snapshot before and after, and what was dropped (files wait in the trash, `trash_id`)."""

    plan_hash: str
    base_snapshot: int | None
    branch: str = ""
    latest: int | None = None
    dropped: tuple[str, ...] = ()
    files_recorded: int = 0
    bytes_recorded: int = 0
    files_deleted: int = 0
    bytes_freed: int = 0
    trash_id: str | None = None
    not_before_ms: int | None = None
    declined: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the table has another history now."""
        return bool(self.branch)

    def lines(self, table: str) -> list[str]:
        """Where the table is now, and what became of what it had."""
        if not self.branch:
            return ["the table has that history already"]
        first = f"{table} is now as branch {self.branch}: snapshot {self.latest}, before it was {self.base_snapshot or 'empty'}"
        if not self.dropped:
            return [first]
        second = f"dropped: {', '.join(self.dropped[:10])}{' ...' if len(self.dropped) > 10 else ''}"
        if self.trash_id is None:
            return [first, second, f"{self.files_deleted} files ({self.bytes_freed:,} bytes) deleted at once"]
        size = f"{self.files_recorded} files ({self.bytes_recorded:,} bytes)"
        return [first, second, f"{size} wait in the trash until {utc_text(self.not_before_ms)} UTC"]


@dataclass(frozen=True)
class _Change:
    """Files by path and with their content: those that go or are replaced, and those that come; the snapshots among those that go."""

    first: int
    last: int
    gone: Mapping[str, bytes]
    new: Mapping[str, bytes]
    snapshots: Mapping[int, Snapshot]
    tags: Mapping[str, Snapshot]


def plan_fast_forward(store: TableStore, branch: str) -> MaintenancePlan:
    """Plan to let the table (the branch that ``store`` is on) have the history of ``branch`` from that one's earliest snapshot on.

    What the table has since then goes: snapshots, tags of them, schemas; that loses its rows, as in Java, and is in the plan. Reads
    metadata only. Raises TableNotFound for a branch that is not there, InvalidOption for main and the branch that is open, PlanRefused for an
    empty branch and where snapshot ids would have a gap, CorruptFile.
    """
    if branch == store.branch:
        raise InvalidOption("branch", branch, "another branch than the one that is open", store.name)
    branches.require_branch(store, branch)
    change = _change(store, branches.open_branch(store, branch))
    before = snapshots.latest_id(store)
    plan = MaintenancePlan.begun("fast_forward", store, before, {"branch": branch})
    if not change.new and not change.gone:
        text = f"the table has the history of branch {branch} already"
        return replace(plan, declined=(Declined(f"branch {branch}", "same", text),))
    drops = [
        DropItem(_name(store, path), "the branch has another one" if path in change.new else "the branch has none")
        for path in change.gone
    ]
    free = _freed(store, change)
    return replace(
        plan,
        items=(ForwardItem(branch, change.first, change.last, before or 0), *drops, *free),
        estimate=PlanEstimate(bytes_freed=sum(item.size for item in free), files_in=len(free), tasks=1),
    )


def _change(store: TableStore, branch: TableStore) -> _Change:
    """What has to go and to come. Raises PlanRefused where the outcome would be no history."""
    wanted, mine = snapshots.list_ids(branch), snapshots.list_ids(store)
    if not wanted:
        raise _refused(store, RefusalRule.HISTORY_CHANGED, f"branch {branch.branch} has no snapshot")
    first, last = wanted[0], wanted[-1]
    below = max((number for number in mine if number < first), default=first - 1)
    if below != first - 1:
        detail = f"the branch begins at snapshot {first}, before which the table has none but up to {below}"
        raise _refused(store, RefusalRule.NO_HOLES_IN_HISTORY, detail)
    told = [number for number in changelogs.list_changelogs(store) if number >= first]
    if told:
        detail = f"changelogs {told[0]} to {told[-1]} tell of snapshots that the branch has not"
        raise _refused(store, RefusalRule.HISTORY_CHANGED, detail)
    read = store.file_io.read_bytes
    since = snapshots.read(branch, first).schema_id
    my_tags, its_tags = tags.list_tags(store), tags.list_tags(branch)
    my_tags = {name: tag for name, tag in my_tags.items() if tag.id >= first or name in its_tags}
    before = {store.schema_path(number): read(store.schema_path(number)) for number in _schemas(store, since)}
    before |= {store.snapshot_path(number): read(store.snapshot_path(number)) for number in mine if number >= first}
    before |= {tags.tag_path(store, name): read(tags.tag_path(store, name)) for name in my_tags}
    after = {store.schema_path(number): read(branch.schema_path(number)) for number in _schemas(branch, since)}
    after |= {store.snapshot_path(number): read(branch.snapshot_path(number)) for number in wanted}
    after |= {tags.tag_path(store, name): read(tags.tag_path(branch, name)) for name in its_tags}
    gone = {path: data for path, data in before.items() if after.get(path) != data}
    return _Change(
        first,
        last,
        gone,
        {path: data for path, data in after.items() if before.get(path) != data},
        {n: snapshots.read(store, n) for n in mine if store.snapshot_path(n) in gone},
        {name: tag for name, tag in my_tags.items() if tags.tag_path(store, name) in gone},
    )


def _schemas(store: TableStore, since: int) -> list[int]:
    return [number for number in schemas.list_schema_ids(store.file_io, store.root, store.branch) if number >= since]


def _name(store: TableStore, path: str) -> str:
    return path.removeprefix(f"{store.metadata_root}/")


def _refused(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


def _freed(store: TableStore, change: _Change) -> list[DeleteItem]:
    """Files that only what goes needed. The branch itself, as all others, is asked."""
    lines = split_at_gaps(list(change.snapshots.values()), "snapshot")
    lines += [Lineage(f"tag {name}", (tag,)) for name, tag in change.tags.items()]
    candidates = {item.path: item for item in needed_files(store, lines, "belonged to the history that went")}
    free, _ = split_used(store, list(candidates.values()), without_tags=set(change.tags), dropped=set(change.snapshots))
    return free


def apply_fast_forward(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Record what goes, then put the branch's files in its place; at every moment the newest snapshot is one of the two histories'.

    An attempt that was interrupted is finished. Its report is a FastForwardReport. Raises PlanStale when the table or the branch was
    written to since the plan was made.
    """
    item = next(iter(plan.items_of(ForwardItem)), None)
    if item is None:
        return Outcome(FastForwardReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    branches.require_branch(store, item.branch)
    change = _change(store, branches.open_branch(store, item.branch))
    if (change.first, change.last) != (item.first, item.last):
        raise PlanStale(f"branch {item.branch} was written to since", store.name)
    planned = {one.name for one in plan.items_of(DropItem)}
    unknown = [name for path in change.gone if (name := _name(store, path)) not in planned]
    if unknown:
        raise PlanStale(f"{unknown[0]} was written since", store.name)
    freed = _freed(store, change) if change.gone else []
    with under_lock(store, "a fast-forward"):
        record = _recorded(store, plan, change, freed) if change.gone else None
        exchange(store, change.gone, change.new)
    report = FastForwardReport(
        plan.hash,
        plan.base_snapshot,
        item.branch if change.gone or change.new else "",
        change.last,
        tuple(_name(store, path) for path in change.gone if path not in change.new or "/schema/" not in path),
        declined=plan.declined,
    )
    if record is not None and store.options.delete_mode == "direct":
        swept = sweep_records(store, plan_sweep(store))
        report = replace(report, files_deleted=swept.files_deleted, bytes_freed=swept.bytes_freed)
    elif record is not None:
        report = replace(
            report,
            files_recorded=len(record.files),
            bytes_recorded=record.size,
            trash_id=record.trash_id,
            not_before_ms=record.not_before_ms,
        )
    return Outcome(report, [{"event": "dropped", "file": name} for name in report.dropped])


def _recorded(store: TableStore, plan: MaintenancePlan, change: _Change, freed: Sequence[DeleteItem]) -> TrashRecord:
    now = store.clock.now_ms()
    record = TrashRecord(
        trash_id=f"fast-forward-{plan.hash[:12]}-{now}",
        action=FORWARDED,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now
        + (0 if store.options.delete_mode == "direct" else int(store.options.get("dredge.trash-grace"))),
        snapshots={number: change.gone[store.snapshot_path(number)].decode() for number in change.snapshots},
        files=tuple(freed),
        branch=store.branch,
        metadata={
            path.removeprefix(f"{store.root}/"): data
            for path, data in change.gone.items()
            if not path.startswith(store.snapshot_dir)
        },
        came={path.removeprefix(f"{store.root}/"): digest_of(data) for path, data in change.new.items()},
    )
    write_record(store, record)
    return record


def digest_of(data: bytes) -> str:
    """How a deletion record knows a file again that a fast-forward put into place."""
    return hashlib.sha256(data).hexdigest()


def exchange(store: TableStore, gone: Collection[str], new: Mapping[str, bytes]) -> None:
    """Let the files ``gone`` (paths) go and ``new`` come: schemas, snapshots and tags of one history for those of another.

    Schemas come first and go last; snapshots beyond those to come go newest first, then what both have is replaced, then new ones come. Files
    that are as they are to be already are fine, so that an interrupted exchange can be done again. Raises PlanStale where something was
    committed meanwhile.
    """
    io = store.file_io

    schemas_there, history, tagged = (
        sorted(
            {path for path in (*gone, *new) if path.startswith(f"{store.metadata_root}/{kind}/")},
            key=lambda path: (len(path), path),  # by their numbers
        )
        for kind in ("schema", "snapshot", "tag")
    )
    for path in schemas_there:
        if path in new:
            io.overwrite(path, new[path])
    io.delete(f"{store.snapshot_dir}/{hints.LATEST}")  # Java believes it as long as the next snapshot is not there
    for path in reversed(history):
        if path in gone and path in new:
            io.overwrite(path, new[path])
        elif path in gone:
            io.delete(path)
    for path in history:
        if path not in gone and not io.write_exclusive(path, new[path]) and io.read_bytes(path) != new[path]:
            raise PlanStale(f"{_name(store, path)} was committed meanwhile; plan it anew", store.name)
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


def fast_forward_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether the branch of ``plan`` is there and has something that the table has not."""
    item = next(iter(plan.items_of(ForwardItem)), None)
    if item is None or not branches.metadata_paths(store, item.branch):
        return False
    change = _change(store, branches.open_branch(store, item.branch))
    return bool(change.gone or change.new)
