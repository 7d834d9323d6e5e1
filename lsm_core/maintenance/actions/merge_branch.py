"""Merge of a branch: the files that the branch appended since it was made are added to the table by one commit.

The branch and its files stay. Both histories must consist of appends (and statistics) from the first snapshot on,
because a file that one history removed could not be distinguished from a file that the other history added.

Source: ``FileSystemBranchManager.mergeBranch`` and ``BranchMergeHandler`` of Paimon 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer
from lsm_core.errors import InvalidOption, PlanStale, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.manifest import ADD, table_to_entries
from lsm_core.format.partitions import partition_names
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import (
    PLAN_PROPERTY,
    ActionWork,
    ApplyOutcome,
    BucketFilesItem,
    CommitReport,
    Declined,
    Fact,
    MaintenancePlan,
    PlanEstimate,
    size_text,
)
from lsm_core.metadata import branches, manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import tracks_rows
from lsm_core.metadata.store import TableStore, list_schema_ids
from lsm_core.metadata.support import require_whole_rows, require_writable

_FILES_PER_SECOND: Final = 20_000
"""Manifest entries that a commit adds per second; only for forecasts."""


@dataclass(frozen=True)
class MergeBranchItem(BucketFilesItem):
    """Files of one bucket that only the branch has."""

    item_kind: ClassVar[str] = "merge-branch"
    title: ClassVar[str] = "would add"


@dataclass(frozen=True)
class MergeBranchReport(CommitReport):
    """Report of merging a branch.

    Attributes:
        branch: name of the branch.
        files: number of added files.
        rows: number of rows of these files.
        size: bytes of these files.
    """

    branch: str = ""
    files: int = 0
    rows: int = 0
    size: int = 0

    def lines(self, table: str) -> list[str]:
        """Return one line with the numbers of added files and rows."""
        if self.snapshot_id is None:
            return [f"{table} has all files of branch {self.branch} already"]
        added = f"{self.files} files of branch {self.branch} ({self.rows:,} rows, {size_text(self.size)})"
        return [f"snapshot {self.snapshot_id} of {table}: {added} were added; the branch stays"]


def plan_merge_branch(store: TableStore, branch: str, now_ms: int | None = None) -> MaintenancePlan:
    """Plan to add the files that a branch has and the table lacks. Only metadata is read.

    Args:
        store: the table, or the branch that receives the files.
        branch: name of the branch whose files are added; ``main`` for the table itself.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: the branch is the one that receives the files.
        TableNotFound: the branch does not exist.
        SnapshotNotFound: one of the two has no snapshot.
        UnsupportedFeature: one of the two has a primary key, or a history that is not complete or not of appends; or
            their schemas or row tracking differ; or the table has data evolution, whose row ids would collide.
        CorruptFile: metadata cannot be read.
    """
    require_writable(store)
    require_whole_rows(store, "a merge of branches of a table")
    if branch == store.branch:
        raise InvalidOption("branch", branch, f"a branch besides {store.branch}, which receives the files", store.name)
    source = branches.open_branch(store, branch)
    newest, branch_snapshot = (_require_appends(each) for each in (store, source))
    _require_alike(store, source)
    arguments: dict[str, Fact] = {"branch": branch, "branch_snapshot": branch_snapshot.id}
    plan = MaintenancePlan.begin("merge_branch", store, newest.id, arguments, now_ms)
    entries = _missing_files(store, source, newest, branch_snapshot)
    _require_schemas(store, source, entries)
    groups = bucket_groups(entries)
    if not groups:
        text = f"the table has all files of branch {branch}"
        return replace(plan, declined=(Declined(f"branch {branch}", "same", text),))
    names = partition_names(store.schema, [partition for partition, *_ in groups], store.options)
    items = tuple(
        MergeBranchItem(
            partition,
            name,
            bucket,
            part.num_rows,
            pc.sum(part.column("row_count")).as_py(),
            pc.sum(part.column("file_size")).as_py(),
        )
        for name, (partition, bucket, _, part) in zip(names, groups, strict=True)
    )
    estimate = PlanEstimate(
        rows_in=sum(item.rows for item in items),
        files_in=entries.num_rows,
        tasks=1,
        seconds=round(entries.num_rows / _FILES_PER_SECOND, 2),
    )
    return replace(plan, items=items, estimate=estimate)


def _require_appends(store: TableStore) -> Snapshot:
    """Return the newest snapshot of a history that still has all its snapshots, if these only append or analyze.

    Raises:
        SnapshotNotFound: the history is empty.
        UnsupportedFeature: the table has a primary key, or the history lacks a snapshot or has another kind of commit.
    """
    newest = snapshots.latest(store)
    if newest is None:
        raise SnapshotNotFound(f"{store.name} has no snapshot, so its branch cannot be merged")
    if store.has_primary_key:
        raise UnsupportedFeature("a merge of branches of a table with a primary key", store.name)
    if store.options.get("data-evolution.enabled"):
        raise UnsupportedFeature("a merge of branches of a data-evolution table", store.name)
    for number in range(newest.id, 0, -1):
        snapshot = newest if number == newest.id else snapshots.try_read(store, number)
        if snapshot is None:
            reason = f"snapshot {number} is missing"
        elif snapshot.commit_kind not in (CommitKind.APPEND, CommitKind.ANALYZE):
            reason = f"snapshot {number} is of kind {snapshot.commit_kind.value}"
        else:
            continue
        raise UnsupportedFeature(
            f"a merge of branches, because {reason}: every snapshot from the first on must append rows. "
            "A branch made from a tag of a later snapshot lacks the earlier ones. "
            "Write the branch's rows with INSERT INTO ... SELECT instead",
            store.name,
        )
    return newest


def _require_alike(store: TableStore, source: TableStore) -> None:
    """Check that two branches have equal columns, and that both or neither track rows. Raises UnsupportedFeature."""
    if store.schema.fields != source.schema.fields:
        raise UnsupportedFeature(f"a merge of {source.name}, whose columns differ from those of the table", store.name)
    if tracks_rows(store) != tracks_rows(source):
        raise UnsupportedFeature(f"a merge of {source.name}, because only one of the two tracks rows", store.name)


def _missing_files(store: TableStore, source: TableStore, newest: Snapshot, given: Snapshot) -> pa.Table:
    """Return the ADD entries of the files that a branch has and the table lacks.

    ``newest`` is the newest snapshot of the table ``store``, ``given`` that of the branch ``source``.
    """
    metas = (manifests.data_manifests(each, snapshot) for each, snapshot in ((store, newest), (source, given)))
    entries = manifests.difference(store, *metas)
    return entries.filter(pc.equal(entries.column("kind"), ADD))


def _require_schemas(store: TableStore, source: TableStore, entries: pa.Table) -> None:
    """Check that the table has the schemas of the files to add, with equal content. Raises UnsupportedFeature."""
    known = list_schema_ids(store.file_io, store.root, store.branch)
    for number in pc.unique(entries.column("schema_id")).to_pylist():
        if number not in known or store.schema_of(number).fields != source.schema_of(number).fields:
            text = f"a merge of {source.name}: its files have schema {number}, which the table lacks or has otherwise"
            raise UnsupportedFeature(text, store.name)


def apply_merge_branch(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Add the planned files of the branch to the table, in one APPEND commit.

    Files that the table got after planning are left out. With row tracking, the rows get new row ids.

    Args:
        store: the table, or the branch that receives the files.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a MergeBranchReport.

    Raises:
        PlanStale: the planned snapshot of the branch no longer exists.
        TableNotFound: the branch does not exist.
        SnapshotNotFound: the table or the branch has no snapshot.
        UnsupportedFeature: the table and the branch cannot be merged any more, see :func:`plan_merge_branch`.
        CommitConflict, CommitUnknown: the commit failed.
        CorruptFile: a file of the branch is missing, or metadata cannot be read.
    """
    branch = str(plan.arguments["branch"])
    report = MergeBranchReport(None, plan.base_snapshot, plan.hash, branch=branch, declined=plan.declined)
    if not plan.items:
        return ApplyOutcome(report)
    require_writable(store)
    source = branches.open_branch(store, branch)
    branch_snapshot = snapshots.try_read(source, int(plan.arguments["branch_snapshot"] or 0))
    if branch_snapshot is None:
        raise PlanStale(f"snapshot {plan.arguments['branch_snapshot']} of branch {branch} is gone", store.name)
    newest = _require_appends(store)
    _require_appends(source)
    _require_alike(store, source)
    entries = _missing_files(store, source, newest, branch_snapshot)
    _require_schemas(store, source, entries)
    committed = Committer(store).commit(_messages(entries), properties={PLAN_PROPERTY: plan.hash})
    if committed.snapshot_id is None:
        return ApplyOutcome(report)
    report = replace(
        report,
        snapshot_id=committed.snapshot_id,
        files=entries.num_rows,
        rows=pc.sum(entries.column("row_count")).as_py(),
        size=pc.sum(entries.column("file_size")).as_py(),
    )
    return ApplyOutcome(report, [{"event": "merged", "branch": branch, "files": report.files, "rows": report.rows}])


def _messages(entries: pa.Table) -> Iterator[CommitMessage]:
    """Yield one commit message per bucket; row ids are left out, so that the commit assigns new ones."""
    for partition, bucket, total, part in bucket_groups(entries):
        files = tuple(replace(entry.file, first_row_id=None) for entry in table_to_entries(part))
        yield CommitMessage(partition, bucket, total, new_files=files)


WORK: Final = ActionWork(plan_merge_branch, apply_merge_branch, MergeBranchReport, (MergeBranchItem,), commits=True)
