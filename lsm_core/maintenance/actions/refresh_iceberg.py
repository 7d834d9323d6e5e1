"""Refresh of a table's Iceberg metadata without a commit: compare it with the newest snapshot, write it, and report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.iceberg.catch_up import bring_up_to_date
from lsm_core.iceberg.freshness import NEEDS_WRITING, IcebergView, read_view
from lsm_core.iceberg.manifest_damage import read_view_of_files
from lsm_core.iceberg.settings import writes_metadata
from lsm_core.iceberg.state import read_state
from lsm_core.maintenance.action import ActionWork, ApplyOutcome, Declined, MaintenancePlan, PlanItem, Report
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable

_NAME: Final = "refresh_iceberg"


@dataclass(frozen=True)
class RefreshIcebergItem(PlanItem):
    """Iceberg metadata to write.

    Attributes:
        snapshot_id: id of the newest snapshot, which the new metadata names.
        shown: id of the snapshot that Iceberg readers see now, None if they see none.
        reason: why the metadata is written.
    """

    item_kind: ClassVar[str] = "refresh-iceberg"
    title: ClassVar[str] = "would write"
    columns: ClassVar[tuple[str, ...]] = ("Iceberg metadata of snapshot", "readers see snapshot", "why")

    snapshot_id: int
    shown: int | None
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: newest snapshot, snapshot that readers see, and reason."""
        return (self.snapshot_id, self.shown, self.reason)


@dataclass(frozen=True)
class IcebergRefreshReport(Report):
    """Report of a refresh of Iceberg metadata, which changes neither snapshots nor data files.

    Attributes:
        plan_hash: hash of the plan.
        base_snapshot: newest snapshot at planning.
        shown: id of the snapshot that Iceberg readers see now, None if nothing was written.
        declined: why nothing was written.
    """

    plan_hash: str
    base_snapshot: int | None
    shown: int | None = None
    declined: tuple[Declined, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether metadata was written."""
        return self.shown is not None

    def lines(self, table: str) -> list[str]:
        """Return one line on the snapshot that Iceberg readers see."""
        if self.shown is None:
            return ["no Iceberg metadata was written"]
        return [f"Iceberg readers of {table} see snapshot {self.shown}"]


def plan_iceberg_refresh(store: TableStore, drop_older: bool = False, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to write the Iceberg metadata of the newest snapshot.

    The plan has no item if the metadata is up to date, or if the table publishes none.

    Args:
        store: the table.
        drop_older: write it although it is up to date, without older snapshots, so that they may expire.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        UnsupportedFeature: the table cannot be written.
        InvalidOption: an option has an invalid value.
        CorruptFile: the newest snapshot cannot be read.
    """
    require_writable(store)
    newest = snapshots.latest(store)
    number = None if newest is None else newest.id
    plan = MaintenancePlan.begin(_NAME, store, number, {"drop_older": bool(drop_older)}, now_ms)
    view = read_view_of_files(store, newest)
    if newest is None or view is None or not writes_metadata(store.options):
        text = "the table publishes no Iceberg metadata (metadata.iceberg.storage)" if view is None else view.text
        why = "the table has no snapshot" if newest is None else text
        return replace(plan, declined=(Declined("Iceberg metadata", "not published", why),))
    reason = _reason(store, view, drop_older=drop_older)
    if not reason:
        return replace(plan, declined=(Declined("Iceberg metadata", "current", view.text, {"snapshot": newest.id}),))
    return replace(plan, items=(RefreshIcebergItem(newest.id, view.shown, reason),))


def _reason(store: TableStore, view: IcebergView, *, drop_older: bool) -> str:
    """Return why the metadata is to be written, "" if there is no reason."""
    if view.condition in NEEDS_WRITING:
        return view.text
    state = read_state(store) if drop_older else None
    older = [] if state is None else sorted(state.snapshot_ids - {view.newest})
    return f"it names older snapshots, from {older[0]} on, which may expire then" if older else ""


def apply_iceberg_refresh(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Write the Iceberg metadata of the snapshot that is the newest now.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with an IcebergRefreshReport.

    Raises:
        DredgeError: the metadata cannot be written.
    """
    report = IcebergRefreshReport(plan.hash, plan.base_snapshot, declined=plan.declined)
    drops_older = bool(plan.arguments.get("drop_older"))
    if not plan.items or not iceberg_refresh_fits(store, plan):
        return ApplyOutcome(report)
    if not bring_up_to_date(store, drops_older=drops_older, checks_manifests=True):
        return ApplyOutcome(report)
    view = read_view(store)
    shown = None if view is None else view.shown
    return ApplyOutcome(replace(report, shown=shown), [{"event": "refreshed Iceberg metadata", "snapshot": shown}])


def iceberg_refresh_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether the metadata still has to be written.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    view = read_view_of_files(store)
    return view is not None and bool(_reason(store, view, drop_older=bool(plan.arguments.get("drop_older"))))


WORK: Final = ActionWork(
    plan_iceberg_refresh,
    apply_iceberg_refresh,
    IcebergRefreshReport,
    (RefreshIcebergItem,),
    fits=iceberg_refresh_fits,
)
