"""Purge: a commit empties the table, then all older snapshots and all changelogs expire.

Java `FileStoreTable.purgeFiles`, with two differences. A table with tags, branches or consumers is refused, instead of
dropping them. Unreferenced files are left to the removal of orphan files.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.commit import Committer
from lsm_core.errors import PlanRefused, RefusalRule
from lsm_core.iceberg.catch_up import bring_up_to_date
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
)
from lsm_core.maintenance.actions.expire_changelogs import (
    apply_changelog_expiry,
    plan_changelog_expiry,
)
from lsm_core.maintenance.actions.expire_snapshots import apply_expiry, plan_expiry
from lsm_core.maintenance.deletions import require_main
from lsm_core.metadata import branches, changelogs, consumers, snapshots, tags
from lsm_core.metadata.live_files import totals
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable

_ALL = 2**31 - 1


@dataclass(frozen=True)
class PurgeItem(PlanItem):
    """Item of a purge plan: all rows, all snapshots or all changelogs to delete.

    Attributes:
        what: kind of the content: rows (of live files), snapshots or changelogs.
        count: number of rows, snapshots or changelogs.
        files: number of files.
        size: bytes of the files, 0 if unknown.
    """

    item_kind: ClassVar[str] = "purge"
    title: ClassVar[str] = "would purge"
    columns: ClassVar[tuple[str, ...]] = ("what", "how many", "files", "bytes")

    what: str
    count: int
    files: int = 0
    size: int = 0

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: kind of the content, count, files and bytes."""
        return (self.what, self.count, self.files, self.size)


@dataclass(frozen=True)
class PurgeReport(CommitReport):
    """Report of a purge.

    Attributes:
        rows: number of deleted rows, before merging.
        snapshots: number of deleted snapshots.
        changelogs: number of deleted changelogs.
        files_recorded: number of files in the new deletion records of the trash.
        files_deleted: number of files deleted at once (direct mode).
        trash_ids: ids of the deletion records, which can be restored until ``not_before_ms``.
        not_before_ms: time from which a sweep may delete the recorded files (epoch ms), None without such files.
        failed: files that could not be deleted.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone", "failed": "not deleted"}

    rows: int = 0
    snapshots: int = 0
    changelogs: int = 0
    files_recorded: int = 0
    files_deleted: int = 0
    trash_ids: tuple[str, ...] = ()
    not_before_ms: int | None = None
    failed: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was deleted."""
        return self.snapshot_id is not None or bool(self.snapshots or self.changelogs)

    def lines(self, table: str) -> list[str]:
        """Return lines on the deleted content, and how to restore it."""
        if not self.changed:
            return [f"{table} is empty already, without history"]
        first = (
            f"{table} is empty: {self.rows:,} rows, {self.snapshots} snapshots and {self.changelogs} changelogs "
            "were deleted; its schema stays"
        )
        if not self.trash_ids:
            return [first, f"{self.files_deleted} files were deleted at once (dredge.delete-mode=direct)"]
        wait = f"{self.files_recorded} files wait in the trash until {utc_text(self.not_before_ms)} UTC"
        back = [
            f"undo with: dredge restore {shlex.quote(table)} {trash_id}, then a rollback to the newest of its snapshots"
            for trash_id in self.trash_ids
        ]
        return [first, wait, *back]


def plan_purge(store: TableStore, confirm: str, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to delete all rows, snapshots and changelogs of the table.

    Args:
        store: the table.
        confirm: name of the table, as confirmation.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        PlanRefused: ``confirm`` is not the table's name, or the table has tags, branches or consumers (delete these
            first).
        UnsupportedFeature: ``store`` is a branch, or the table cannot be written.
        CorruptFile: metadata cannot be read.
    """
    require_main(store, "purging the files")
    require_writable(store)
    if confirm != store.name:
        detail = (
            f"it was confirmed with {confirm!r}; "
            f"to empty table {store.name} and drop its history, confirm it with {store.name!r}"
        )
        raise PlanRefused(RefusalRule.NOT_NAMED, table=store.name, detail=detail)
    _require_unheld(store)
    ids = snapshots.list_ids(store)
    plan = MaintenancePlan.begin("purge", store, ids[-1] if ids else None, {"confirm": confirm}, now_ms)
    latest = snapshots.latest(store)
    if latest is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    live_totals = totals(store, latest, ["partition"], waiting=True)
    rows, files, size = (
        sum(live_totals.column(name).to_pylist()) for name in ("record_count", "file_count", "file_size_in_bytes")
    )
    items = [PurgeItem("rows", rows, files, size)] if files else []
    older = len(ids) - (0 if files else 1)  # the snapshot that empties the table stays
    items += [PurgeItem("snapshots", older)] if older else []
    kept = len(changelogs.list_changelogs(store))
    items += [PurgeItem("changelogs", kept)] if kept else []
    declined = () if items else (Declined("table", "empty", "it holds no row, and has no history"),)
    return replace(
        plan,
        items=tuple(items),
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
        detail = f"{'; '.join(named)} would hold files to delete: delete them first"
        raise PlanRefused(RefusalRule.STILL_HELD, table=store.name, detail=detail)


def apply_purge(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Empty the table by a commit, then expire all older snapshots and all changelogs.

    If the purge is interrupted, the table is empty but still has some older snapshots; applying the plan again
    continues.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a PurgeReport.

    Raises:
        PlanRefused: the table got a tag, a branch or a consumer since planning.
        CommitConflict, CommitUnknown: the commit failed.
        CorruptFile: metadata cannot be read.
        DredgeError: the Iceberg metadata, whose older snapshots would not expire, cannot be written.
    """
    _require_unheld(store)
    before = snapshots.latest(store)
    number = Committer(store).drop(None, properties={PLAN_PROPERTY: plan.hash}).snapshot_id
    rows = 0 if before is None or number is None else before.total_record_count
    bring_up_to_date(store, drops_older=True)  # the older snapshots that Iceberg metadata names would not expire
    now = store.clock.now_ms()
    parts = [apply_expiry(store, plan_expiry(store, 1, 1, now, _ALL))]
    if changelogs.list_changelogs(store):
        parts.append(apply_changelog_expiry(store, plan_changelog_expiry(store, delete_all=True)))
    expiry, ended = ([*(part.report.to_object() for part in parts), {}])[:2]
    records = [numbers["trash_id"] for numbers in (expiry, ended) if numbers.get("trash_id")]
    waits = [numbers["not_before_ms"] for numbers in (expiry, ended) if numbers.get("not_before_ms")]
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
    return ApplyOutcome(report, [*lines, *(line for part in parts for line in part.lines)])


def purge_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether a purge would delete something: the table has a row, or a snapshot besides the newest.

    Args:
        store: the table.
        plan: not used.
    """
    del plan
    latest = snapshots.latest(store)
    return latest is not None and (latest.total_record_count > 0 or len(snapshots.list_ids(store)) > 1)


def _remarks(plan: MaintenancePlan) -> list[str]:
    if plan.options.get("dredge.delete-mode") == "direct":
        return ["the files are deleted at once (dredge.delete-mode=direct): this cannot be undone"]
    return ["the files wait in the trash for their grace: until then `dredge restore` brings the snapshots back"]


WORK: Final = ActionWork(
    plan_purge, apply_purge, PurgeReport, (PurgeItem,), commits=True, fits=purge_fits, remarks=_remarks
)
