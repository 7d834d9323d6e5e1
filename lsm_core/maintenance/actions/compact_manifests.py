"""Manifest compaction: choose manifests to merge, merge them in a COMPACT commit, and report.

Source: Java `FileStoreCommitImpl.compactManifest`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.commit import Committer
from lsm_core.commit.manifest_sort import choose_manifests, sorts_manifests
from lsm_core.errors import DredgeError, PlanStale
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    size_text,
)
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable

_BYTES_PER_SECOND: Final = 4_000_000
"""Manifest bytes that one core reads, merges and writes per second; only for forecasts."""


@dataclass(frozen=True)
class MergeManifestItem(PlanItem):
    """Manifest to merge with the further manifests of the plan.

    Attributes:
        name: file name of the manifest.
        size: bytes of the manifest file.
        added: number of ADD entries.
        deleted: number of DELETE entries.
        reason: why the manifest is merged.
    """

    item_kind: ClassVar[str] = "merge-manifest"
    title: ClassVar[str] = "would merge"
    columns: ClassVar[tuple[str, ...]] = ("manifest", "bytes", "additions", "deletions", "why")

    name: str
    size: int
    added: int
    deleted: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: name, bytes, numbers of ADD and DELETE entries, and reason."""
        return (self.name, self.size, self.added, self.deleted, self.reason)


@dataclass(frozen=True)
class ManifestCompactionReport(CommitReport):
    """Report of a manifest compaction, which changes no live data file.

    Attributes:
        manifests_in: number of manifests of the snapshot before the compaction.
        manifests_out: number of manifests of the new snapshot.
        bytes_in: bytes of all manifests before the compaction.
        bytes_out: bytes of all manifests after the compaction.
        entries_in: number of manifest entries before the compaction.
        entries_out: number of manifest entries after the compaction.
    """

    manifests_in: int = 0
    manifests_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    entries_in: int = 0
    entries_out: int = 0

    def lines(self, table: str) -> list[str]:
        """Return one line with the number of manifests, bytes and entries."""
        if self.snapshot_id is None:
            return ["no manifest was merged"]
        counts = (
            f"{self.manifests_in} manifests ({size_text(self.bytes_in)}) "
            f"became {self.manifests_out} ({size_text(self.bytes_out)})"
        )
        entries = f"{self.entries_in:,} entries became {self.entries_out:,}"
        return [f"snapshot {self.snapshot_id}: {counts}; {entries}; the old ones go when their snapshots expire"]


def plan_manifest_compaction(store: TableStore, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to merge manifests that are smaller than `manifest.target-file-size` or have DELETE entries.

    Applying the plan also rewrites manifests whose ADD entries are cancelled by these DELETE entries. With
    `manifest-sort.enabled`, manifests are merged in the order of a partition column, by the thresholds of the options.
    The plan has no items if there is nothing to merge. Planning reads only manifest lists.

    Args:
        store: the table.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        UnsupportedFeature: the table cannot be written.
        CorruptFile: a manifest list cannot be read.
    """
    require_writable(store)
    snapshot = snapshots.latest(store)
    plan = MaintenancePlan.begin("manifests", store, None if snapshot is None else snapshot.id, {}, now_ms)
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    metas = manifests.data_manifests(store, snapshot)
    target = store.options.manifest_target_size
    small = f"smaller than {size_text(target)}"
    chosen = (
        choose_manifests(store, metas)
        if sorts_manifests(store)
        else [
            (meta, f"holds {meta.num_deleted_files:,} deletions" if meta.num_deleted_files else small)
            for meta in metas
            if meta.num_deleted_files or meta.file_size < target
        ]
    )
    items = [
        MergeManifestItem(meta.file_name, meta.file_size, meta.num_added_files, meta.num_deleted_files, reason)
        for meta, reason in chosen
    ]
    large = len(metas) - len(items)
    facts = {"manifests": len(metas), "target": target}
    if len(items) < 2 and not (large and any(item.deleted for item in items)):
        text = f"{len(metas)} manifests: fewer than two are small or hold deletions"
        return replace(plan, declined=(Declined("manifests", "nothing-to-merge", text, facts),))
    text = f"{large} manifests of at least {size_text(target)} stay, unless a deletion cancels one of their additions"
    size = sum(item.size for item in items)
    estimate = PlanEstimate(
        bytes_in=size, bytes_out=size, files_in=len(items), tasks=1, seconds=round(size / _BYTES_PER_SECOND, 2)
    )
    declined = (Declined("manifests", "large", text, facts),) if large else ()
    return replace(plan, items=tuple(items), declined=declined, estimate=estimate)


def apply_manifest_compaction(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Merge the manifests in one COMPACT snapshot, including manifests added since planning.

    Manifests with fields that Dredge does not know are kept unchanged.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a ManifestCompactionReport.

    Raises:
        PlanStale: none of the planned manifests is in use any more.
        CommitConflict, CommitUnknown: the commit failed.
        CorruptFile: a manifest cannot be read.
    """
    if plan.items and not manifest_compaction_fits(store, plan):
        raise PlanStale("another process merged its manifests meanwhile", store.name)
    result = Committer(store).compact_manifests(properties={PLAN_PROPERTY: plan.hash}) if plan.items else None
    number = None if result is None else result.snapshot_id
    if number is None:
        return ApplyOutcome(ManifestCompactionReport(None, plan.base_snapshot, plan.hash, declined=plan.declined))
    try:
        sides = [_size(store, number - 1), _size(store, number)]
    except (OSError, DredgeError):  # the commit is done: an error in its report must not fail it
        sides = [(len(plan.items), plan.estimate.bytes_in, 0), (0, 0, 0)]
    (count_in, bytes_in, entries_in), (count_out, bytes_out, entries_out) = sides
    report = ManifestCompactionReport(
        snapshot_id=number,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        manifests_in=count_in,
        manifests_out=count_out,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        entries_in=entries_in,
        entries_out=entries_out,
        declined=plan.declined,
    )
    return ApplyOutcome(report, [{"event": "merged", "manifests": count_in, "into": count_out}])


def _size(store: TableStore, snapshot_id: int) -> tuple[int, int, int]:
    """Return three figures of a snapshot: number of manifests, bytes of all manifests, number of all entries."""
    metas = manifests.data_manifests(store, snapshots.read(store, snapshot_id))
    entries = sum(meta.num_added_files + meta.num_deleted_files for meta in metas)
    return len(metas), sum(meta.file_size for meta in metas), entries


def manifest_compaction_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the newest snapshot still references at least one manifest of the plan.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    snapshot = snapshots.latest(store)
    names = {item.name for item in plan.items_of(MergeManifestItem)}
    return snapshot is not None and any(meta.file_name in names for meta in manifests.data_manifests(store, snapshot))


WORK: Final = ActionWork(
    plan_manifest_compaction,
    apply_manifest_compaction,
    ManifestCompactionReport,
    (MergeManifestItem,),
    commits=True,
    fits=manifest_compaction_fits,
)
