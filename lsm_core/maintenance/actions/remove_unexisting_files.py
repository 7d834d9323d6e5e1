"""Search for missing live data files, and the commit that removes them (Java `RemoveUnexistingFilesAction`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.commit import Committer
from lsm_core.commit.overwrite import partition_matcher
from lsm_core.errors import PlanRefused, RefusalRule
from lsm_core.format.manifest import VECTORS_INDEX
from lsm_core.format.partitions import partition_names
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    CommitReport,
    Declined,
    MaintenancePlan,
    PartitionItem,
    PlanEstimate,
    bucket_name,
)
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import index_file_path
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.options import whole_number
from lsm_core.storage import place_of

_MOST_PERCENT: Final = 20
_FEW: Final = 5
"""Number of files that may be missing regardless of `max_share`, unless all files are missing."""
_FOLDERS_REMEMBERED: Final = 1_000
_COLUMNS: Final = ["partition", "bucket", "file_name", "level", "file_size", "row_count", "external_path"]


@dataclass(frozen=True)
class MissingFileItem(PartitionItem):
    """Live data file that is missing on storage, as described by its manifest entry.

    Attributes:
        bucket: number of the bucket.
        name: name of the file.
        level: level of the file.
        rows: number of rows of the file.
        size: bytes of the file.
    """

    item_kind: ClassVar[str] = "missing-file"
    title: ClassVar[str] = "gone, would be taken out"
    columns: ClassVar[tuple[str, ...]] = ("bucket", "file", "level", "rows", "bytes")

    bucket: int
    name: str
    level: int
    rows: int
    size: int

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: bucket, file name, level, rows and bytes."""
        return (bucket_name(self.partition_text, self.bucket), self.name, self.level, self.rows, self.size)


@dataclass(frozen=True)
class MissingFilesReport(CommitReport):
    """Report of removing missing data files from the table's metadata.

    Attributes:
        files: number of removed files.
        rows: number of lost rows, before merging.
    """

    files: int = 0
    rows: int = 0

    def lines(self, table: str) -> list[str]:
        """Return one line with the numbers of removed files and lost rows."""
        if self.snapshot_id is None and self.declined:
            return [f"no file was taken out of {table}"]
        if self.snapshot_id is None:
            damaged = f"`dredge check {shlex.quote(table)} --deep` looks for damaged ones"
            return [f"no file was taken out of {table}: every file that was looked for exists; {damaged}"]
        return [
            (
                f"snapshot {self.snapshot_id}: {self.files} files that are gone were taken out of {table}, "
                f"{self.rows:,} rows are lost with them"
            )
        ]


def plan_missing_files(
    store: TableStore,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    max_share: int | None = None,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan to remove the live data files that do not exist on storage.

    Metadata is read and bucket folders are listed. The memory needed is that of one manifest, the DELETE entries and
    the missing files. Missing files with a deletion vector, missing index files, and external files whose allowed or
    declared folder does not exist are declined.

    Args:
        store: the table.
        partitions: partitions to search (typed values, columns may be missing), None for all.
        max_share: largest percentage of the table's files that may be missing, None for 20. Five missing files are
            always accepted, unless these are all files.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        PlanRefused: more files than allowed are missing, or all files and ``max_share`` is below 100. The storage may
            be unavailable.
        UnsupportedFeature: the table cannot be written.
        CorruptFile: metadata cannot be read.
        ColumnNotFound, InvalidData: a partition does not fit the table's partition columns.
    """
    require_writable(store)
    percent = whole_number(_MOST_PERCENT if max_share is None else max_share, "max_share", store.name, least=1)
    snapshot = snapshots.latest(store)
    arguments = {"partitions": None if partitions is None else str(list(partitions)), "max_share": percent}
    plan = MaintenancePlan.begin(
        "remove_unexisting_files", store, None if snapshot is None else snapshot.id, arguments, now_ms
    )
    if snapshot is None:
        return replace(plan, declined=(Declined("table", "empty", "the table has no snapshot"),))
    matches = None if partitions is None else partition_matcher(store, partitions)
    indexes = manifests.index_entries(store, snapshot)
    marked = {
        (entry.partition, entry.bucket, vector.data_file)
        for entry in indexes
        if entry.index_type == VECTORS_INDEX
        for vector in entry.deletion_vectors or ()
    }
    items: list[MissingFileItem] = []
    declined: list[Declined] = []
    seen = 0
    unavailable: dict[str, int] = {}
    listed: dict[tuple[bytes, int], frozenset[str]] = {}
    for entries in manifests.iter_live(store, snapshot):
        seen += entries.num_rows
        for row in missing_entries(store, entries, listed):
            if matches is not None and not matches(row["partition"]):
                continue
            folder = None if row["external_path"] is None else _find_unavailable(store, _path(store, row))
            if folder is not None:
                unavailable[folder] = unavailable.get(folder, 0) + 1
                continue
            (text,) = partition_names(store.schema, [row["partition"]], store.options)
            item = MissingFileItem(
                row["partition"],
                text,
                row["bucket"],
                row["file_name"],
                row["level"],
                row["row_count"],
                row["file_size"],
            )
            if (item.partition, item.bucket, item.name) in marked:
                why = (
                    "rows of it are deleted by a deletion vector: compact its bucket in a copy, or roll the table back"
                )
                declined.append(
                    Declined(f"{bucket_name(text, item.bucket)}/{item.name}", "vectors", why, {}, text, item.bucket)
                )
            else:
                items.append(item)
    for entry in indexes:
        path = index_file_path(store, entry)
        if not store.file_io.exists(path):
            why = f"an index file ({entry.index_type}) is gone, which this does not repair: roll the table back"
            declined.append(Declined(path, "index", why, {"rows": entry.row_count}))
    declined.extend(
        Declined(
            folder,
            "unavailable",
            f"this folder of {count} external files does not exist: mount its disk, or create it if they are lost",
            {"files": count},
        )
        for folder, count in sorted(unavailable.items())
    )
    everything = len(items) == seen > 0 and percent < 100
    if everything or len(items) > max(_FEW, seen * percent / 100):
        detail = (
            f"{len(items)} of {seen} files are gone; check that their storage is available, "
            "or allow more with max_share (--max-share)"
        )
        raise PlanRefused(RefusalRule.SHARE_LIMIT, len(items) / seen, store.name, detail)
    items.sort(key=lambda item: (item.partition_text, item.bucket, item.name))
    estimate = PlanEstimate(rows_in=sum(item.rows for item in items), files_in=len(items), tasks=1 if items else 0)
    return replace(plan, items=tuple(items), declined=tuple(declined), estimate=estimate)


def missing_entries(
    store: TableStore, entries: pa.Table, listed: dict[tuple[bytes, int], frozenset[str]]
) -> Iterator[dict[str, Any]]:
    """Yield the entries whose files do not exist.

    Args:
        store: the table.
        entries: manifest entries.
        listed: cache of the listed file names by partition and bucket; this function adds to the cache.
    """
    rows = entries.select(_COLUMNS).to_pylist()  # one object per file of one manifest
    rows.sort(key=itemgetter("partition", "bucket"))
    for place, files in groupby(rows, key=itemgetter("partition", "bucket")):
        if place not in listed:
            if len(listed) > _FOLDERS_REMEMBERED:
                listed.clear()
            folders = store.bucket_dirs(*place)
            listed[place] = frozenset(status.name for folder in folders for status in store.file_io.list_dir(folder))
        for row in files:
            if row["external_path"] is None and row["file_name"] in listed[place]:
                continue
            # A listing may be outdated: check the file itself, in any place.
            if not store.file_io.exists(_path(store, row)):
                yield row


def _path(store: TableStore, row: Mapping[str, Any]) -> str:
    return store.data_path(row["partition"], row["bucket"], row["file_name"], row["external_path"])


def _find_unavailable(store: TableStore, path: str) -> str | None:
    """Return the allowed or declared local folder of an external file that does not exist, or None.

    If a disk is not mounted, all files on it seem to be lost.
    """
    external = store.external_paths
    root = external.permission(path)
    if root is None or place_of(path):
        return None
    declared = external.find_declared(path)
    return next((folder for folder in filter(None, (root.folder, declared)) if not store.file_io.exists(folder)), None)


def apply_missing_files(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Remove the planned files that are still missing from the table, in one OVERWRITE commit.

    Planned files that exist again are kept.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a MissingFilesReport.

    Raises:
        CommitConflict, CommitUnknown: the commit failed.
        CorruptFile: metadata cannot be read.
    """
    chosen = _still_missing(store, plan)
    number = None
    if chosen.num_rows:
        number = Committer(store).remove_files(chosen, properties={PLAN_PROPERTY: plan.hash}).snapshot_id
    names = set(chosen.column("file_name").to_pylist())
    back = [
        Declined(
            f"{bucket_name(item.partition_text, item.bucket)}/{item.name}",
            "stale",
            "it came back, or was replaced, meanwhile",
        )
        for item in plan.items_of(MissingFileItem)
        if item.name not in names
    ]
    rows = pc.sum(chosen.column("row_count")).as_py() or 0
    report = MissingFilesReport(
        number, plan.base_snapshot, plan.hash, files=chosen.num_rows, rows=rows, declined=(*plan.declined, *back)
    )
    lines = [{"event": "removed", "file": name} for name in sorted(names)]
    return ApplyOutcome(report, lines)


def missing_files_fit(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one file of the plan is still referenced and still missing.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return bool(_still_missing(store, plan).num_rows)


def _still_missing(store: TableStore, plan: MaintenancePlan) -> pa.Table:
    """Return the live manifest entries of the planned files that are still missing."""
    snapshot = snapshots.latest(store)
    items = plan.items_of(MissingFileItem)
    if snapshot is None or not items:
        return manifests.entries_of(store, [])
    live = manifests.live_entries(store, snapshot, partitions=sorted({item.partition for item in items}))
    entries = live.filter(
        pc.is_in(live.column("file_name"), arrow_array(sorted({item.name for item in items}), pa.string()))
    )
    planned = {(item.partition, item.bucket, item.name, item.level) for item in items}
    keep = [
        (row["partition"], row["bucket"], row["file_name"], row["level"]) in planned
        and not store.file_io.exists(_path(store, row))
        for row in entries.select(_COLUMNS).to_pylist()  # one object per missing file
    ]
    return entries.filter(arrow_array(keep, pa.bool_()))


WORK: Final = ActionWork(
    plan_missing_files,
    apply_missing_files,
    MissingFilesReport,
    (MissingFileItem,),
    commits=True,
    fits=missing_files_fit,
    remarks=lambda _: [
        (
            "their rows are lost; an older version of a key in them may become visible "
            "(without this the table cannot be read)"
        )
    ],
)
