"""ANALYZE: choice of columns, one pass over the merged rows, the commit of the statistics, and its report.

Source class: `PaimonAnalyzeTableColumnCommand` of Paimon's Spark connector, whose conventions are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import pyarrow.compute as pc

from lsm_core.commit import Committer
from lsm_core.errors import ColumnNotFound, PlanStale, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.schema import DataField
from lsm_core.format.side_files import Statistics
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    Declined,
    MaintenancePlan,
    PlanEstimate,
    PlanItem,
    Report,
    size_text,
)
from lsm_core.maintenance.actions.column_values import ColumnValues, can_be_analyzed
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable, require_writable
from lsm_core.read import Version, to_batches
from lsm_core.read.scan import plan_version

_NESTED: Final = "a nested type, which statistics do not cover"


@dataclass(frozen=True)
class AnalyzeItem(PlanItem):
    """Rows of one snapshot to analyze.

    Attributes:
        snapshot_id: number of the snapshot.
        names: columns to analyze.
    """

    item_kind: ClassVar[str] = "analyze"
    title: ClassVar[str] = "would analyze"
    columns: ClassVar[tuple[str, ...]] = ("snapshot", "columns")

    snapshot_id: int
    names: tuple[str, ...]

    def cells(self) -> tuple[Any, ...]:
        """Return snapshot and columns."""
        return (self.snapshot_id, ", ".join(self.names) or "(rows alone)")

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """See PlanItem."""
        return cls(int(value["snapshot_id"]), tuple(value["names"]))


@dataclass(frozen=True)
class AnalyzeReport(Report):
    """Report of ANALYZE.

    Attributes:
        plan_hash: hash of the plan.
        base_snapshot: analyzed snapshot.
        snapshot_id: the commit, None if there was nothing to analyze.
        rows: rows after merging.
        size: their share of the files' bytes.
        columns: analyzed columns.
        declined: columns left out.
    """

    plan_hash: str
    base_snapshot: int | None
    snapshot_id: int | None = None
    rows: int = 0
    size: int = 0
    columns: tuple[str, ...] = ()
    declined: tuple[Declined, ...] = ()

    def lines(self, table: str) -> list[str]:
        """Return one sentence for people."""
        if self.snapshot_id is None:
            return [f"{table} has nothing to analyze"]
        figures = f"{self.rows:,} rows ({size_text(self.size)}), {len(self.columns)} columns"
        return [
            (
                f"analyzed snapshot {self.base_snapshot} of {table}: {figures}; "
                f"snapshot {self.snapshot_id} holds the statistics"
            )
        ]


def plan_analysis(store: TableStore, columns: Sequence[str] | None = None) -> MaintenancePlan:
    """Plan the statistics of columns of the newest snapshot.

    Args:
        store: the table.
        columns: names of the columns, None for all but nested ones; an empty list counts rows only.

    Raises:
        ColumnNotFound: a column does not exist.
        UnsupportedFeature: a named column is nested, or the table cannot be written.
    """
    require_writable(store)
    latest = snapshots.latest(store)
    if columns is None:
        chosen = [field for field in store.schema.fields if can_be_analyzed(field.type)]
    else:
        chosen = [_column(store, name) for name in dict.fromkeys(columns)]
    names = tuple(field.name for field in chosen)
    column_text = None if columns is None else ",".join(names)
    plan = MaintenancePlan.begun("analyze", store, None if latest is None else latest.id, {"columns": column_text})
    left = [field.name for field in store.schema.fields if columns is None and field.name not in names]
    declined = tuple(Declined(f"column {name}", "nested", f"{name} is of {_NESTED}") for name in left)
    if latest is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    size = pc.sum(manifests.live_entries(store, latest, columns=["file_size"]).column("file_size")).as_py() or 0
    cost = PlanEstimate(bytes_in=size, rows_in=latest.total_record_count, tasks=1)
    return replace(plan, items=(AnalyzeItem(latest.id, names),), declined=declined, estimate=cost)


def _column(store: TableStore, name: str) -> DataField:
    if not store.schema.has_field(name):
        raise ColumnNotFound(store.name, name, store.schema.field_names)
    field = store.schema.field(name)
    if not can_be_analyzed(field.type):
        raise UnsupportedFeature(f"statistics of column '{name}', which is of {_NESTED}", store.name)
    return field


def apply_analysis(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Read the planned snapshot once, batch by batch, and commit the statistics.

    Args:
        store: the table.
        plan: the plan.

    Returns:
        ApplyOutcome with an AnalyzeReport.

    Raises:
        PlanStale: the snapshot has expired.
        ColumnNotFound: a column was dropped since.
        CommitConflict, CommitUnknown: the commit failed.
    """
    item = next(iter(plan.items_of(AnalyzeItem)), None)
    if item is None:
        return ApplyOutcome(AnalyzeReport(plan.hash, plan.base_snapshot, declined=plan.declined))
    require_writable(store)
    require_readable(store)
    fields = [_column(store, name) for name in item.names]
    try:
        snapshot = snapshots.read(store, item.snapshot_id)
        # Without any column the first is read, for the number of rows.
        names = list(item.names) or [store.schema.fields[0].name]
        scan = plan_version(Version(snapshot, store), columns=names, filter=None)
    except SnapshotNotFound as error:
        raise PlanStale(f"snapshot {item.snapshot_id} has expired", store.name) from error
    seen, rows = [ColumnValues(field.type) for field in fields], 0
    for batch in to_batches(scan.store, scan):
        rows += batch.num_rows
        for values, name in zip(seen, item.names, strict=True):
            values.add(batch.column(name))
    total = pc.sum(manifests.live_entries(store, snapshot, columns=["file_size"]).column("file_size")).as_py() or 0
    size = total * rows // snapshot.total_record_count if snapshot.total_record_count else 0
    by_column = {field.name: values.statistics(field.id) for field, values in zip(fields, seen, strict=True)}
    # Other engines parse minima and maxima by the types of the referenced schema.
    statistics = Statistics(snapshot.id, store.schema.id, rows, size, by_column)
    done = Committer(store).commit_statistics(statistics, properties={PLAN_PROPERTY: plan.hash})
    report = AnalyzeReport(
        plan.hash, plan.base_snapshot, done.snapshot_id, rows, size, item.names, declined=plan.declined
    )
    return ApplyOutcome(report, [{"event": "analyzed", "snapshot": snapshot.id, "rows": rows, "bytes": size}])


WORK: Final = ActionWork(plan_analysis, apply_analysis, AnalyzeReport, (AnalyzeItem,), commits=True)
