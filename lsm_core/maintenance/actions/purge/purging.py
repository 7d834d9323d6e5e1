"""What a purge takes, why it is refused, and its two steps: the table is emptied, then all snapshots but the newest expire.

Java `FileStoreTable.purgeFiles`, with two differences: tags, branches and consumers are never dropped along (they refuse the purge), and files
that no snapshot names are left to the cleaning of orphans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lsm_core.clock import utc_text
from lsm_core.commit import Committer
from lsm_core.errors import PlanRefused, RefusalRule
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    Declined,
    MaintenancePlan,
    Outcome,
    PlanEstimate,
    PlanItem,
    Report,
)
from lsm_core.maintenance.actions.expire_changelogs.changelog_expiry import (
    apply_changelog_expiry,
    plan_changelog_expiry,
)
from lsm_core.maintenance.actions.expire_snapshots.expiry import apply_expiry, plan_expiry
from lsm_core.maintenance.deletions import require_main
from lsm_core.metadata import branches, changelogs, consumers, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.metadata.totals import totals

_ALL = 2**31 - 1


@dataclass(frozen=True)
class PurgeItem(PlanItem):
    """One kind of thing that goes: rows (of live files), snapshots, changelogs. ``size`` in bytes, 0 where it is not told."""

    item_kind: ClassVar[str] = "purge"
    title: ClassVar[str] = "would purge"
    columns: ClassVar[tuple[str, ...]] = ("what", "how many", "files", "bytes")

    what: str
    count: int
    files: int = 0
    size: int = 0

    def cells(self) -> tuple[Any, ...]:
        """What goes."""
        return (self.what, self.count, self.files, self.size)


@dataclass(frozen=True)
class PurgeReport(Report):
    """What went: unmerged rows, snapshots, changelogs. ``trash_ids`` name the deletion records that bring them back until ``not_before_ms``.

    ``snapshot_id``: the empty snapshot that is left, None = nothing was done.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone", "held": "held", "failed": "not deleted"}

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    rows: int = 0
    snapshots: int = 0
    changelogs: int = 0
    files_recorded: int = 0
    files_deleted: int = 0
    trash_ids: tuple[str, ...] = ()
    not_before_ms: int | None = None
    failed: tuple[Declined, ...] = ()
    declined: tuple[Declined, ...] = ()
    held: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything went."""
        return self.snapshot_id is not None or bool(self.snapshots or self.changelogs)

    def lines(self, table: str) -> list[str]:
        """What went, and what brings it back."""
        if not self.changed:
            return [f"{table} is empty already, without history"]
        first = f"{table} is empty: {self.rows:,} rows, {self.snapshots} snapshots and {self.changelogs} changelogs went; its schema stays"
        if not self.trash_ids:
            return [first, f"{self.files_deleted} files were deleted at once (dredge.delete-mode=direct)"]
        wait = f"{self.files_recorded} files wait in the trash until {utc_text(self.not_before_ms)} UTC"
        back = [
            f"undo with: dredge restore {table} {one}, then a rollback to the newest of its snapshots"
            for one in self.trash_ids
        ]
        return [first, wait, *back]


def plan_purge(store: TableStore, confirm: str, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to drop all rows, snapshots and changelogs of the table, whose name ``confirm`` must be. ``now_ms``: epoch ms.

    Raises PlanRefused for another name, and naming the tags, branches or consumers that would hold what is to go (drop them first);
    UnsupportedFeature on a branch, or for a table that cannot be written; CorruptFile.
    """
    require_main(store, "purging the files")
    require_writable(store)
    if confirm != store.name:
        detail = f"it was confirmed with {confirm!r}; to empty table {store.name} and drop its history, confirm it with {store.name!r}"
        raise PlanRefused(RefusalRule.NOT_NAMED, table=store.name, detail=detail)
    _require_unheld(store)
    ids = snapshots.list_ids(store)
    plan = MaintenancePlan.begun("purge", store, ids[-1] if ids else None, {"confirm": confirm}, now_ms)
    latest = snapshots.latest(store)
    if latest is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    found = totals(store, latest, ["partition"], waiting=True)
    rows, files, size = (
        sum(found.column(name).to_pylist()) for name in ("record_count", "file_count", "file_size_in_bytes")
    )
    told = [PurgeItem("rows", rows, files, size)] if files else []
    older = len(ids) - (0 if files else 1)  # the one that empties the table stays
    told += [PurgeItem("snapshots", older)] if older else []
    kept = len(changelogs.list_changelogs(store))
    told += [PurgeItem("changelogs", kept)] if kept else []
    declined = () if told else (Declined("table", "empty", "it holds no row, and has no history"),)
    return replace(
        plan,
        items=tuple(told),
        declined=declined,
        estimate=PlanEstimate(bytes_freed=size, rows_in=rows, files_in=files),
    )


def _require_unheld(store: TableStore) -> None:
    held = {
        "tags": sorted(tags.list_tags(store)),
        "branches": branches.list_branches(store),
        "consumers": sorted(consumers.list_consumers(store)),
    }
    named = [f"{kind} {', '.join(names)}" for kind, names in held.items() if names]
    if named:
        detail = f"{'; '.join(named)} would hold what is to go: delete them first"
        raise PlanRefused(RefusalRule.STILL_HELD, table=store.name, detail=detail)


def apply_purge(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Empty the table by a commit, then expire all of its snapshots but that one, and all changelogs. Its report is a PurgeReport.

    Interrupted between the steps it leaves an empty table with some history, and applying it again ends it. Raises PlanRefused when the
    table got a tag, a branch or a consumer since, CommitConflict, CommitUnknown, CorruptFile.
    """
    _require_unheld(store)
    before = snapshots.latest(store)
    number = Committer(store).drop(None, properties={PLAN_PROPERTY: plan.hash}).snapshot_id
    rows = 0 if before is None or number is None else before.total_record_count
    now = store.clock.now_ms()
    parts = [apply_expiry(store, plan_expiry(store, 1, 1, now, _ALL))]
    if changelogs.list_changelogs(store):
        parts.append(apply_changelog_expiry(store, plan_changelog_expiry(store, delete_all=True)))
    expiry, ended = ([*(part.report.to_object() for part in parts), {}])[:2]
    records = [one["trash_id"] for one in (expiry, ended) if one.get("trash_id")]
    waits = [one["not_before_ms"] for one in (expiry, ended) if one.get("not_before_ms")]
    report = PurgeReport(
        snapshot_id=number,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        rows=rows,
        snapshots=len(expiry["expired"]),
        changelogs=len(ended.get("expired", ())),
        files_recorded=expiry["files_recorded"] + ended.get("files_recorded", 0),
        files_deleted=expiry["files_deleted"] + ended.get("files_deleted", 0),
        trash_ids=tuple(records),
        not_before_ms=max(waits, default=None),
        failed=tuple(file for part in parts for file in part.report.failures),
        declined=plan.declined,
    )
    lines = [{"event": "purged", "what": item.what, "count": item.count} for item in plan.items_of(PurgeItem)]
    return Outcome(report, [*lines, *(line for part in parts for line in part.lines)])


def purge_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether the table holds a row, or a snapshot beside the newest (``plan`` names no part of it)."""
    del plan
    latest = snapshots.latest(store)
    return latest is not None and (latest.total_record_count > 0 or len(snapshots.list_ids(store)) > 1)


__all__ = ["PurgeItem", "PurgeReport", "apply_purge", "plan_purge", "purge_fits"]
