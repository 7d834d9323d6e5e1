"""Search for missing manifests, and the commit of a snapshot without them (Java `RemoveUnexistingManifestsAction`)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import Committer
from lsm_core.errors import PlanRefused, RefusalRule
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PlanItem,
)
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number

_MOST_PERCENT: Final = 20
_FEW: Final = 2


@dataclass(frozen=True)
class MissingManifestItem(PlanItem):
    """Missing manifest of the newest snapshot.

    Attributes:
        name: file name of the manifest.
        size: bytes of the manifest file.
        added: number of ADD entries, according to the manifest list.
        deleted: number of DELETE entries, according to the manifest list.
    """

    item_kind: ClassVar[str] = "missing-manifest"
    title: ClassVar[str] = "gone, would be left out"
    columns: ClassVar[tuple[str, ...]] = ("manifest", "bytes", "additions", "deletions")

    name: str
    size: int
    added: int
    deleted: int

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: the manifest, its bytes, and its numbers of entries."""
        return (self.name, self.size, self.added, self.deleted)


@dataclass(frozen=True)
class MissingManifestsReport(CommitReport):
    """Report of dropping missing manifests.

    Attributes:
        manifests: number of dropped manifests.
        rows_lost: number of rows that the table lost, before merging. Negative if rows came back, because DELETE
            entries were lost.
    """

    manifests: int = 0
    rows_lost: int = 0

    def lines(self, table: str) -> list[str]:
        """Return one line with the numbers of dropped manifests and lost rows."""
        if self.snapshot_id is None:
            damaged = f"`dredge repair {shlex.quote(table)} --dry-run` looks for damaged metadata"
            return [f"no manifest was left out of {table}: every one that was looked for exists; {damaged}"]
        rows = f"{self.rows_lost:,} rows are lost" if self.rows_lost >= 0 else f"{-self.rows_lost:,} rows came back"
        return [
            f"snapshot {self.snapshot_id}: {table} goes on without {self.manifests} manifests that are gone; {rows}"
        ]


def plan_missing_manifests(
    store: TableStore, max_share: int | None = None, now_ms: int | None = None
) -> MaintenancePlan:
    """Plan to drop the manifests of the newest snapshot that do not exist on storage.

    Args:
        store: the table.
        max_share: largest percentage of missing manifests, None for 20. Two missing manifests are always accepted.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        PlanRefused: more manifests than allowed are missing.
        CorruptFile: a manifest list is missing, so the table must be rolled back instead.
    """
    percent = whole_number(_MOST_PERCENT if max_share is None else max_share, "max_share", store.name, least=1)
    snapshot = snapshots.latest(store)
    arguments = {"max_share": percent}
    plan = MaintenancePlan.begin(
        "remove_unexisting_manifests", store, None if snapshot is None else snapshot.id, arguments, now_ms
    )
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    metas = manifests.data_manifests(store, snapshot)
    missing = _missing(store, metas)
    if len(missing) > max(_FEW, len(metas) * percent / 100):
        detail = (
            f"{len(missing)} of {len(metas)} manifests are gone; check that their storage is available, "
            "or allow more with max_share (--max-share)"
        )
        raise PlanRefused(RefusalRule.SHARE_LIMIT, len(missing) / len(metas), store.name, detail)
    items = [
        MissingManifestItem(meta.file_name, meta.file_size, meta.num_added_files, meta.num_deleted_files)
        for meta in missing
    ]
    return replace(plan, items=tuple(items))


def _missing(store: TableStore, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
    return [meta for meta in metas if not store.file_io.exists(store.manifest_path(meta.file_name))]


def apply_missing_manifests(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Commit a snapshot that does not reference the planned manifests that are still missing.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a MissingManifestsReport.

    Raises:
        CommitConflict, CommitUnknown: the commit failed.
        CorruptFile: metadata cannot be read.
    """
    snapshot = snapshots.latest(store)
    planned = {item.name for item in plan.items_of(MissingManifestItem)}
    metas = [] if snapshot is None else manifests.data_manifests(store, snapshot)
    missing = {meta.file_name for meta in _missing(store, [meta for meta in metas if meta.file_name in planned])}
    if snapshot is None or not missing:
        return ApplyOutcome(MissingManifestsReport(None, plan.base_snapshot, plan.hash, declined=plan.declined))
    lost = _rows_lost(store, snapshot, [meta for meta in metas if meta.file_name not in missing])
    properties = {PLAN_PROPERTY: plan.hash}
    number = Committer(store).leave_out_manifests(missing, lost, properties=properties).snapshot_id
    report = MissingManifestsReport(
        number, plan.base_snapshot, plan.hash, manifests=len(missing), rows_lost=lost, declined=plan.declined
    )
    return ApplyOutcome(report, [{"event": "left out", "manifest": name} for name in sorted(missing)])


def _rows_lost(store: TableStore, snapshot: Snapshot, staying: Sequence[ManifestFileMeta]) -> int:
    """Return the total row count of ``snapshot`` minus the rows of the remaining manifests ``staying``.

    One manifest is read at a time.
    """
    rows = 0
    for entries in manifests.iter_entries(store, staying):
        sign = pc.cast(pc.if_else(pc.equal(entries.column("kind"), 0), 1, -1), pa.int64())
        rows += pc.sum(pc.multiply(entries.column("row_count"), sign)).as_py() or 0
    return snapshot.total_record_count - rows


def missing_manifests_fit(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the newest snapshot still references a planned manifest that is still missing.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    snapshot = snapshots.latest(store)
    planned = {item.name for item in plan.items_of(MissingManifestItem)}
    metas = [] if snapshot is None else manifests.data_manifests(store, snapshot)
    return bool(_missing(store, [meta for meta in metas if meta.file_name in planned]))


def _remarks(_: MaintenancePlan) -> list[str]:
    return [
        "files that they alone add are lost to the table (they stay on disk); files that they alone delete come back",
        (
            "a tag or snapshot from before they were written has all its rows: "
            "a rollback loses less where few commits came since"
        ),
    ]


WORK: Final = ActionWork(
    plan_missing_manifests,
    apply_missing_manifests,
    MissingManifestsReport,
    (MissingManifestItem,),
    commits=True,
    fits=missing_manifests_fit,
    remarks=_remarks,
)
