"""Finds manifests that are not on disk, and the commit that goes on without them (Java `RemoveUnexistingManifestsAction`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import Committer
from lsm_core.errors import PlanRefused, RefusalRule
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY, Declined, MaintenancePlan, Outcome, PlanItem, Report
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number

_MOST_PERCENT: Final = 20
_FEW: Final = 2


@dataclass(frozen=True)
class MissingManifestItem(PlanItem):
    """One manifest that is gone. ``added`` and ``deleted`` count the entries that its list says it held; ``size`` in bytes."""

    item_kind: ClassVar[str] = "missing-manifest"
    title: ClassVar[str] = "gone, would be left out"
    columns: ClassVar[tuple[str, ...]] = ("manifest", "bytes", "additions", "deletions")

    name: str
    size: int
    added: int
    deleted: int

    def cells(self) -> tuple[Any, ...]:
        """The manifest and what it held."""
        return (self.name, self.size, self.added, self.deleted)


@dataclass(frozen=True)
class MissingManifestsReport(Report):
    """How many manifests were left out, and the unmerged rows that the table lost (below 0: files came back); ``snapshot_id`` None = none."""

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    manifests: int = 0
    rows_lost: int = 0
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """One line."""
        if self.snapshot_id is None:
            return ["no manifest was left out"]
        rows = f"{self.rows_lost:,} rows are lost" if self.rows_lost >= 0 else f"{-self.rows_lost:,} rows came back"
        return [
            f"snapshot {self.snapshot_id}: {table} goes on without {self.manifests} manifests that are gone; {rows}"
        ]


def plan_missing_manifests(
    store: TableStore, max_share: int | None = None, now_ms: int | None = None
) -> MaintenancePlan:
    """List the manifests of the newest snapshot that are not on disk. ``now_ms``: epoch ms.

    Raises PlanRefused when more than ``max_share`` percent are gone (20); CorruptFile when a manifest list is gone itself: the table has to be
    rolled back then.
    """
    percent = whole_number(_MOST_PERCENT if max_share is None else max_share, "max_share", store.name, least=1)
    snapshot = snapshots.latest(store)
    arguments = {"max_share": percent}
    plan = MaintenancePlan.begun(
        "remove_unexisting_manifests", store, None if snapshot is None else snapshot.id, arguments, now_ms
    )
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    metas = manifests.data_manifests(store, snapshot)
    gone = _gone(store, metas)
    if len(gone) > max(_FEW, len(metas) * percent / 100):
        detail = f"{len(gone)} of {len(metas)} manifests are gone; is their storage there? max_share (--max-share) allows more"
        raise PlanRefused(RefusalRule.SHARE_LIMIT, len(gone) / len(metas), store.name, detail)
    items = [
        MissingManifestItem(meta.file_name, meta.file_size, meta.num_added_files, meta.num_deleted_files)
        for meta in gone
    ]
    return replace(plan, items=tuple(items))


def _gone(store: TableStore, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
    return [meta for meta in metas if not store.file_io.exists(store.manifest_path(meta.file_name))]


def apply_missing_manifests(store: TableStore, plan: MaintenancePlan) -> Outcome:
    """Publish a snapshot without the planned manifests that are still gone. Its report is a MissingManifestsReport.

    Raises CommitConflict, CommitUnknown, CorruptFile.
    """
    snapshot = snapshots.latest(store)
    planned = {item.name for item in plan.items_of(MissingManifestItem)}
    metas = [] if snapshot is None else manifests.data_manifests(store, snapshot)
    gone = {meta.file_name for meta in _gone(store, [meta for meta in metas if meta.file_name in planned])}
    if snapshot is None or not gone:
        return Outcome(MissingManifestsReport(None, plan.base_snapshot, plan.hash, declined=plan.declined))
    lost = _rows_lost(store, snapshot, [meta for meta in metas if meta.file_name not in gone])
    properties = {PLAN_PROPERTY: plan.hash}
    number = Committer(store).leave_out_manifests(gone, lost, properties=properties).snapshot_id
    report = MissingManifestsReport(number, plan.base_snapshot, plan.hash, len(gone), lost, plan.declined)
    return Outcome(report, [{"event": "left out", "manifest": name} for name in sorted(gone)])


def _rows_lost(store: TableStore, snapshot: Snapshot, staying: Sequence[ManifestFileMeta]) -> int:
    """Rows that ``snapshot`` counts and the manifests that stay do not; read one at a time."""
    rows = 0
    for entries in manifests.iter_entries(store, staying):
        sign = pc.cast(pc.if_else(pc.equal(entries.column("kind"), 0), 1, -1), pa.int64())
        rows += pc.sum(pc.multiply(entries.column("row_count"), sign)).as_py() or 0
    return snapshot.total_record_count - rows


def missing_manifests_fit(store: TableStore, plan: MaintenancePlan) -> bool:
    """Whether the newest snapshot still names a manifest of ``plan`` that is gone."""
    snapshot = snapshots.latest(store)
    planned = {item.name for item in plan.items_of(MissingManifestItem)}
    metas = [] if snapshot is None else manifests.data_manifests(store, snapshot)
    return bool(_gone(store, [meta for meta in metas if meta.file_name in planned]))


__all__ = [
    "MissingManifestItem",
    "MissingManifestsReport",
    "apply_missing_manifests",
    "missing_manifests_fit",
    "plan_missing_manifests",
]
