"""The Table facade: every verb of the engine on one table, each delegating to the room that does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lsm_core import maintenance
from lsm_core.metadata import branches, consumers, mark_done, snapshots, tags
from lsm_core.table.boundary import with_typed_errors
from lsm_core.table.question import Answer, Question
from lsm_core.table.readable import Readable

if (
    TYPE_CHECKING
):  # a process that only reads waits for no writer, and one that only writes for no reader: see the methods
    from lsm_core.format.schema import TableSchema
    from lsm_core.format.side_files import Tag
    from lsm_core.format.snapshot import Snapshot
    from lsm_core.maintenance import (
        AnalyzeReport,
        BranchDeletionReport,
        BucketHealth,
        CheckLimits,
        CheckReport,
        CompactionReport,
        ExpiryReport,
        FastForwardReport,
        LedgerEntry,
        MaintenancePlan,
        OrphanReport,
        PartitionExpiryReport,
        RecoveryReport,
        Report,
        RestoreReport,
        RollbackAsLatestReport,
        RollbackReport,
        RowStory,
        Runner,
        SimulatedPolicy,
        SweepReport,
        TagCreationReport,
        TagDeletionReport,
        UndoReport,
        VerifyReport,
    )
    from lsm_core.maintenance.inline import WriteReport
    from lsm_core.metadata.store import TableStore
    from lsm_core.read import Split
    from lsm_core.read.changes import StreamScan
    from lsm_core.table.schema_change import AltersTables
    from lsm_core.table.writing import BatchCommit, BatchWrite, StreamCommit, StreamWrite
    from lsm_core.write import Rows


@with_typed_errors
class Table(Readable):
    """One table of a catalog. Immutable: :meth:`refresh` opens it again after a schema change.

    Attributes:
        store: the table's state, for the rooms below.
    """

    def __init__(self, store: TableStore, catalog: AltersTables | None = None) -> None:
        """Wrap a table's state.

        Args:
            store: the table's state.
            catalog: the catalog that opened the table; writes that add columns need it.
        """
        self.store, self._catalog = store, catalog
        self._last_write: WriteReport | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"store": self.store, "_catalog": None, "_last_write": None}  # a catalog may hold connections

    def __repr__(self) -> str:
        return f"Table({self.store.name!r})"

    @property
    def name(self) -> str:
        """ "db.table"."""
        return self.store.name

    @property
    def schema(self) -> TableSchema:
        """The schema in use; ``schema.arrow_schema`` is its Arrow form."""
        return self.store.schema

    @property
    def options(self) -> Mapping[str, str]:
        """Options in force, dynamic ones included."""
        return self.store.options.raw

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """Primary key columns."""
        return self.store.schema.primary_keys

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition columns."""
        return self.store.schema.partition_keys

    def copy(self, options: Mapping[str, str | None]) -> Table:
        """The same table with dynamic options on top; None takes an option away. Raises InvalidOption for an immutable one."""
        return Table(self.store.copy(options), self._catalog)

    def refresh(self) -> Table:
        """Open the table again, with its newest schema and the same dynamic options.

        Returns:
            The table as it is now; this object stays as it was.

        Raises:
            TableNotFound: the table was dropped.
            InvalidOption: a stored option cannot be used.
        """
        return Table(self.store.refresh(), self._catalog)

    # -- changing data -----------------------------------------------------------------------------------------------

    @property
    def last_write(self) -> WriteReport | None:
        """What the last write, statement or truncation through this object did, and the maintenance that followed; None before the first."""
        return self._last_write

    def _committed(self, snapshot_id: int | None) -> int | None:
        from lsm_core.table.writing import after_commit

        self._last_write = after_commit(self.store, () if snapshot_id is None else (snapshot_id,))
        return snapshot_id

    def write(
        self,
        data: Rows,
        row_kinds: pa.Array | str | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
        schema_mode: str | None = None,
        compact: bool = True,
    ) -> int | None:
        """Write rows and commit them; then compact the buckets they are in and expire what is due, unless the table is `write-only`.

        Args:
            data: Arrow data, columns by name, a list of rows by column name, a pandas or Polars frame, a Polars lazy frame, or
                an object with ``__arrow_c_stream__``.
            row_kinds: Arrow array of "+I" "-U" "+U" "-D", or the one kind of all rows; None for inserts.
            overwrite: True or ``{}`` replaces the table (a partitioned one: the partitions in ``data``, unless
                `dynamic-partition-overwrite` is false), a mapping replaces that partition.
            watermark: as :meth:`BatchCommit.commit` takes it (epoch ms).
            properties: as :meth:`BatchCommit.commit` takes them.
            schema_mode: "merge" adds columns that only ``data`` has, and gives columns the types of ``data`` where those are
                wider, before the write; the new schema stays when a value then does not fit, and :meth:`refresh` opens it. None
                refuses such columns.
            compact: False leaves the compaction to later writes or a maintenance job.

        Returns:
            The id of the snapshot, or None without rows.

        Raises:
            InvalidData: a value does not fit its column.
            ColumnNotFound: ``data`` has a column that the table does not have.
            InvalidSchema: types cannot be merged.
            InvalidOption: an argument cannot be used.
            RetractNotSupported: the merge engine takes no deletes.
            UnsupportedFeature: the table needs a feature that is not offered.
            CommitConflict: another commit changed the same rows.
        """
        from lsm_core.table.writing import write_once

        self._last_write = write_once(
            self.store,
            data,
            row_kinds,
            overwrite,
            watermark,
            properties,
            schema_mode=schema_mode,
            catalog=self._catalog,
            compact=compact,
        )
        return self._last_write.snapshot_id

    def delete(self, filter: object) -> int | None:  # noqa: A002  (the public name)
        """Delete the rows for which ``filter`` is true, in one commit; returns its snapshot id, None when there were none.

        Append tables: files with such rows are rewritten; a filter over partition columns alone drops partitions. Raises
        InvalidFilter (also for no filter), UnsupportedFeature, CommitConflict when another commit changed the same rows' buckets.
        """
        from lsm_core.write import row_changes

        return self._committed(row_changes.delete_rows(self.store, filter))

    def update(self, filter: object, values: Mapping[str, Any]) -> int | None:  # noqa: A002  (the public name)
        """Set ``values`` (column: literal, or Arrow expression over the old row) where ``filter`` is true, in one commit.

        Keys, partition and bucket columns cannot be set. Returns and raises as :meth:`delete`, and InvalidData, ColumnNotFound.
        """
        from lsm_core.write import row_changes

        return self._committed(row_changes.update_rows(self.store, filter, values))

    def upsert(self, data: Rows) -> int | None:
        """Insert rows, each in place of the one with its primary key; returns the snapshot id, None without rows.

        Columns may be left out of partial-update and aggregation tables only. Raises UnsupportedFeature, InvalidData.
        """
        from lsm_core.write import row_changes

        return self._committed(row_changes.upsert_rows(self.store, data))

    def truncate(self) -> int | None:
        """Delete all rows, whoever committed them meanwhile; returns the snapshot id, None when there were none."""
        from lsm_core.write import row_changes

        return self._committed(row_changes.truncate(self.store))

    def drop_partitions(self, partitions: Sequence[Mapping[str, Any]]) -> int | None:
        """Delete all rows of the partitions that one of ``partitions`` matches; columns may be left out ([{"dt": d}]).

        Returns the snapshot id, None when there were none. Raises InvalidOption, ColumnNotFound, InvalidData, CommitConflict.
        """
        from lsm_core.write import row_changes

        return self._committed(row_changes.drop_partitions(self.store, partitions))

    def new_write(self) -> BatchWrite:
        """A writer for one batch commit; hand its messages to :meth:`new_commit`."""
        from lsm_core.table.writing import BatchWrite

        return BatchWrite(self.store)

    def new_commit(self, commit_user: str | None = None) -> BatchCommit:
        """Publishes the messages of :meth:`new_write`."""
        from lsm_core.table.writing import BatchCommit

        return BatchCommit(self.store, commit_user)

    def new_stream_write(self, commit_user: str) -> StreamWrite:
        """A writer for many commits that compacts in the background unless the table is `write-only`; use it in a ``with``."""
        from lsm_core.table.writing import StreamWrite

        return StreamWrite(self.store, commit_user)

    def new_stream_commit(self, commit_user: str) -> StreamCommit:
        """Publishes the numbered commits of ``commit_user``, each once, however often it is asked for."""
        from lsm_core.table.writing import StreamCommit

        return StreamCommit(self.store, commit_user)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _answer_table(self, question: Question) -> pa.Table:
        from lsm_core.read.answers import answer_table

        return answer_table(self.store, *question)

    def _answer_stream(self, question: Question) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        from lsm_core.read.answers import answer_stream

        return answer_stream(self.store, *question)

    def _fixed(self, version: Mapping[str, Any]) -> tuple[TableSchema, Answer]:
        from lsm_core.read.answers import fixed_answers

        return fixed_answers(self.store, version)

    def plan_scan(
        self,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> list[Split]:
        """The splits of a read, picklable, for engines; arguments as in :meth:`to_arrow`."""
        from lsm_core.read import plan_scan

        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        return list(plan_scan(self.store, columns=columns, filter=filter, **named).splits)  # type: ignore[arg-type]

    def lookup(self, keys: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """The merged rows of some keys in the newest version, without reading the rest of the table.

        ``keys``: the primary key's columns (partition columns among them), in any order, repeated or not. One row per distinct
        key that is there, in the order in which the keys were first given; keys that are not there (or deleted) have none.
        ``columns`` (None: all) come in that order, behind the key columns that are not among them. Values are the same as
        Java compares them: NaN is NaN, -0.0 is not 0.0. Memory: the rows found, and about a row group of each file open.
        Raises UnsupportedFeature, ColumnNotFound, InvalidFilter for keys that do not fit, SnapshotNotFound, CorruptFile.
        """
        from lsm_core.read.lookup import lookup

        return lookup(self.store, keys, columns)

    def incremental(
        self,
        a: int | str,
        b: int | str,
        mode: str = "auto",
        *,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
    ) -> pa.Table:
        """What changed after ``a`` up to and with ``b`` (snapshot ids or names of tags): `_ROW_KIND`, then the columns.

        ``mode``: "delta", rows of data files of APPEND snapshots; "changelog", rows of changelog files of all but OVERWRITE
        snapshots (both as they were written, nothing merged); "diff", both versions compared key by key: `-D` with the old row for
        keys that are gone, the new row of changed ones; "auto", diff between tags, else changelog or, without changelog
        producer, delta. ``filter`` judges each changed row. Read with today's schema.
        Raises SnapshotNotFound, InvalidOption, ColumnNotFound, InvalidFilter, UnsupportedFeature, CorruptFile.
        """
        from lsm_core.read.changes import Choice, incremental_table, span_between

        return incremental_table(Choice.of(self.store, columns, filter), span_between(self.store, a, b, mode))

    def new_stream_scan(
        self,
        consumer_id: str | None = None,
        from_snapshot: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
    ) -> StreamScan:
        """A stream of the table's changes, as a changelog producer, or else the writers, left them.

        It begins where the consumer stopped, else with the changes of ``from_snapshot`` (or the oldest snapshot kept), else as the
        options tell: `scan.mode` and its keys; by default with the newest version as a whole.
        Raises UnsupportedFeature, InvalidOption, ColumnNotFound, InvalidFilter, InvalidData.
        """
        from lsm_core.read.changes import StreamScan

        return StreamScan(
            self.store, consumer_id=consumer_id, from_snapshot=from_snapshot, columns=columns, filter=filter
        )

    def forget_consumer(self, consumer_id: str) -> bool:
        """Forget how far the streams of ``consumer_id`` have read, so that it keeps no snapshot from expiring; False when there was none.

        Raises InvalidData for an id that is no plain name.
        """
        return maintenance.forget_consumer(self.store, consumer_id)

    def consumers(self) -> dict[str, int]:
        """The id of the snapshot that each consumer reads next, by consumer id: nothing from the smallest of them on expires. Raises CorruptFile."""
        return consumers.list_consumers(self.store)

    def reset_consumer(self, consumer_id: str, next_snapshot: int | None = None) -> None:
        """Let the consumer read from ``next_snapshot`` on, whether there was one or not; None forgets it (Java `reset_consumer`).

        A stream that is open goes on where it is and records that at its next checkpoint. Raises InvalidData for an id that is no plain
        name, InvalidOption for a number that is no snapshot's.
        """
        maintenance.reset_consumer(self.store, consumer_id, next_snapshot)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, None when nothing was committed."""
        return snapshots.latest(self.store)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that can be read, oldest first."""
        return list(snapshots.iterate(self.store))

    # -- looking after it --------------------------------------------------------------------------------------------

    def analyze(self, columns: Sequence[str] | None = None) -> AnalyzeReport:
        """Count rows and look at columns (None: all that statistics can tell of) for planners, in a snapshot of kind ANALYZE.

        See `$statistics` for what was found. Raises ColumnNotFound, UnsupportedFeature for a column of nested type, CommitConflict.
        """
        return cast("AnalyzeReport", self.apply(self.plan_maintenance("analyze", columns=columns)))

    def explain_row(self, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowStory:
        """The stored versions of the row with primary key ``key``, newest first, and which of them supplied each column and why.

        A key that is not there gives an empty story. Raises ColumnNotFound, InvalidFilter for a key that does not fit,
        UnsupportedFeature, SnapshotNotFound, CorruptFile, and what reading the row raises.
        """
        return maintenance.explain_row(self.store, key, snapshot_id)

    def health(self, partition: Mapping[str, Any] | None = None) -> list[BucketHealth]:
        """Condition of every bucket (of one partition), from metadata only."""
        return maintenance.health(self.store, None if partition is None else [partition])

    def simulate(
        self,
        policies: Sequence[SimulatedPolicy | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]] = (),
        history: tuple[int | None, int | None] | None = None,
    ) -> pa.Table:
        """What each of ``policies`` would have cost and brought in the snapshots ``history`` = (first, last), by replaying their commits; one row each.

        A policy maps table options to values, with ``name``, ``look_every``, ``idle_after``, ``idle_min_runs`` and ``idle_min_files`` among them
        (none at all: the table as it is). Columns: `lsm_core.maintenance.simulation`. Reads metadata only. Raises InvalidOption,
        SnapshotNotFound, UnsupportedFeature, CorruptFile.
        """
        return maintenance.simulate(self.store, policies, history)

    def plan_maintenance(self, action: str, **args: Any) -> MaintenancePlan:
        """Plan an action of `lsm_core.maintenance.action_names()` ("compact", "expire_snapshots", ...) from metadata only.

        ``args``: the arguments that it declares. Raises InvalidOption for another action or argument, and what planning raises.
        """
        return maintenance.plan_maintenance(self.store, action, **args)

    def save_plan(self, plan: MaintenancePlan) -> str:
        """Keep ``plan`` in the table, so that another process can apply it by its hash; returns the hash."""
        return maintenance.save_plan(self.store, plan)

    def load_plan(self, plan_hash: str) -> MaintenancePlan:
        """The saved plan of that hash (or of the only one that starts so). Raises PlanStale, CorruptFile, InvalidData."""
        return maintenance.load_plan(self.store, plan_hash)

    def saved_plans(self) -> list[str]:
        """The hashes of all saved plans, in their order."""
        return maintenance.saved_plan_hashes(self.store)

    def apply(self, plan: MaintenancePlan, approved_by: str | None = None, runner: Runner | None = None) -> Report:
        """Apply a plan exactly as it stands; ``applied_before`` of the report tells that it was applied already.

        ``runner`` does the work that tasks can do, such as `lsm_core.spark.spark_runner`; None: this process does.

        Raises PlanStale, PlanRefused, VerificationFailed, CommitConflict.
        """
        return maintenance.apply_plan(self.store, plan, runner, approved_by)

    def compact(
        self,
        full: bool = False,
        partitions: Sequence[Mapping[str, Any]] | None = None,
        buckets: Sequence[int] | None = None,
        order_by: Sequence[str] | None = None,
        strategy: str | None = None,
        commit_every: int | None = None,
    ) -> CompactionReport:
        """Plan and apply a compaction; buckets that need none are in ``declined`` with their numbers.

        ``order_by`` sorts an append table without buckets, partition by partition, along ``strategy``: "order" (column by column; the default),
        "zorder", "hilbert", or "auto" (by the number of columns). A ``strategy`` alone sorts by option `clustering.columns`. Rows inserted meanwhile stay. ``commit_every``: so many buckets a commit, each kept whatever becomes of the others
        (None: one commit, all or nothing). Raises ColumnNotFound, InvalidOption, UnsupportedFeature.
        """
        plan = maintenance.plan_compaction(
            self.store, full, partitions, buckets, None, order_by, strategy, commit_every
        )
        return cast("CompactionReport", self.apply(plan))

    def recover(
        self, passes: int | None = None, files: int | None = None, partitions: Sequence[Mapping[str, Any]] | None = None
    ) -> RecoveryReport:
        """Bring a very large level 0 (of ``partitions``; None: all) back by up to ``passes`` passes (None: all) of ``files`` level-0 files, the oldest first.

        Each pass is planned anew, verified and committed: whoever stops half-way loses nothing, and goes on by asking again.
        Raises InvalidOption, UnsupportedFeature, VerificationFailed, CommitConflict.
        """
        return maintenance.recover(self.store, passes, files, partitions=partitions)

    def expire_snapshots(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than_ms: int | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
    ) -> ExpiryReport:
        """Expire old snapshots (``older_than_ms``: epoch ms); their files wait in the trash for :meth:`sweep_trash`."""
        plan = maintenance.plan_expiry(self.store, retain_max, retain_min, older_than_ms, max_deletes)
        return cast("ExpiryReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def remove_orphan_files(
        self, older_than_ms: int | None = None, dry_run: bool = False, max_share: int | None = None
    ) -> OrphanReport:
        """Remove files that nothing names, last changed before ``older_than_ms`` (epoch ms; default: 24 hours ago).

        They wait in the trash for :meth:`sweep_trash`. ``max_share``: percent of the table's files, or bytes, that may go (20). Raises
        PlanRefused with the rule that forbids it, InvalidOption, CorruptFile.
        """
        plan = self.plan_maintenance("orphans", older_than_ms=older_than_ms, max_share=max_share)
        return cast("OrphanReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def holds(self) -> pa.Table:
        """What keeps data from going: holder, kind, bytes and files held alone, since when, bytes that others hold too; most first."""
        return maintenance.holds(self.store)

    def expire_partitions(
        self,
        older_than_ms: int | None = None,
        strategy: str | None = None,
        timestamp_pattern: str | None = None,
        timestamp_formatter: str | None = None,
        max_expires: int | None = None,
    ) -> PartitionExpiryReport:
        """Drop old partitions by a commit: those before ``older_than_ms`` (epoch ms), or as the options `partition.*` tell.

        ``strategy``: "values-time" (their values tell the time) or "update-time" (their newest file does). Raises InvalidOption,
        UnsupportedFeature (no partitions), CommitConflict.
        """
        chosen = (older_than_ms, strategy, timestamp_pattern, timestamp_formatter, max_expires)
        return cast("PartitionExpiryReport", self.apply(maintenance.plan_partition_expiry(self.store, *chosen)))

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        time_retained: int | str | None = None,
        replace: bool = False,
    ) -> TagCreationReport:
        """Call a snapshot (default: the newest) ``name``, so that it outlives expiry; ``replace`` moves a tag of that name.

        ``time_retained``: ms or a text such as "7 d", after which :meth:`expire_tags` takes it; default `tag.default-time-retained`.
        Raises InvalidData for a name that no tag can have, InvalidOption for one that is taken, SnapshotNotFound.
        """
        arguments = {"tag": name, "snapshot_id": snapshot_id, "time_retained": time_retained, "replace": replace}
        return cast("TagCreationReport", self.apply(self.plan_maintenance("create_tag", **arguments)))

    def delete_tag(self, name: str) -> TagDeletionReport:
        """Delete a tag; the files that it alone kept wait in the trash. Raises SnapshotNotFound naming the tags that there are."""
        return cast("TagDeletionReport", self.apply(self.plan_maintenance("delete_tag", tag=name)))

    def rename_tag(self, name: str, new_name: str) -> None:
        """Give a tag another name. Raises SnapshotNotFound, InvalidOption when another tag has the new name, InvalidData."""
        maintenance.rename_tag(self.store, name, new_name)

    def tags(self) -> dict[str, Tag]:
        """All tags by name: their snapshots, when they were made (wall clock as if UTC, ms) and how long they are kept (ms). Raises CorruptFile."""
        return tags.list_details(self.store)

    def expire_tags(self, older_than_ms: int | None = None, dry_run: bool = False) -> TagDeletionReport:
        """Delete the tags whose time is over, those made before ``older_than_ms`` (epoch ms), and automatic ones beyond their number."""
        plan = self.plan_maintenance("expire_tags", older_than_ms=older_than_ms)
        return cast("TagDeletionReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def rollback_to(
        self,
        snapshot_or_tag: int | str | None = None,
        *,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> RollbackReport:
        """Go back to a snapshot (int), a tag (str), or the newest snapshot not younger than ``timestamp_ms`` or of no later ``watermark`` (epoch ms).

        What is newer goes to the trash, and :meth:`restore` brings it back as long as nobody has committed. Raises SnapshotNotFound,
        InvalidOption, PlanStale when somebody commits at the same time, CommitUnknown: call it again.
        """
        arguments = {
            "tag" if isinstance(snapshot_or_tag, str) else "snapshot_id": snapshot_or_tag,
            "timestamp_ms": timestamp_ms,
            "watermark": watermark,
        }
        return cast("RollbackReport", self.apply(self.plan_maintenance("rollback", **arguments)))

    def rollback_to_as_latest(
        self, snapshot_or_tag: int | str, partitions: Sequence[Mapping[str, Any]] | None = None
    ) -> RollbackAsLatestReport:
        """Commit what a snapshot (int) or a tag (str) says, of all or of some ``partitions``, as the newest snapshot; those between stay.

        Raises SnapshotNotFound, UnsupportedFeature, PlanStale and CommitConflict when somebody commits at the same time.
        """
        arguments = {
            "tag" if isinstance(snapshot_or_tag, str) else "snapshot_id": snapshot_or_tag,
            "partitions": partitions,
        }
        return cast("RollbackAsLatestReport", self.apply(self.plan_maintenance("rollback_as_latest", **arguments)))

    def verify(self, snapshot_a: int, snapshot_b: int) -> VerifyReport:
        """Whether two snapshots say the same: by reference where files are the same, else by digest of merged rows."""
        return maintenance.verify_snapshots(self.store, snapshot_a, snapshot_b)

    def check(
        self, names: Sequence[str] | None = None, limits: CheckLimits | None = None, *, deep: bool = False
    ) -> list[CheckReport]:
        """Make checks over the newest snapshot, from metadata and bounded samples of rows.

        Args:
            names: the checks; None for all that the table has.
            limits: bounds of the samples and thresholds.
            deep: whether `pages_readable` reads every page of every data file. A call that was interrupted is resumed by the next one.

        Returns:
            One report per check; damage that a check meets is in its report.

        Raises:
            InvalidOption: for a name that the table has no check of.
        """
        chosen = limits or maintenance.CheckLimits()
        if deep and chosen.deep is None:
            chosen = replace(chosen, deep=maintenance.DeepRead())
        return maintenance.check_table(self.store, names, chosen)

    def undo(self, run_id: str, partial: bool = False, allow_changes: bool = False) -> UndoReport:
        """Undo the compaction of ``run_id`` (:meth:`ledger`, or its report's): a new snapshot in which the files that it replaced are back.

        ``partial``: those of its buckets that can be undone. ``allow_changes``: also where reads answer otherwise afterwards. Raises
        InvalidOption, PlanRefused naming what is in the way, VerificationFailed, CommitConflict.
        """
        arguments = {"run_id": run_id, "partial": partial, "allow_changes": allow_changes}
        return cast("UndoReport", self.apply(self.plan_maintenance("undo", **arguments)))

    def restore(self, trash_id: str) -> RestoreReport:
        """Put the expired snapshots of a deletion record back. Raises PlanRefused when its files are (being) deleted."""
        return cast("RestoreReport", self.apply(self.plan_maintenance("restore", trash_id=trash_id)))

    def sweep_trash(self, now_ms: int | None = None, dry_run: bool = False) -> SweepReport:
        """Delete recorded files whose grace is over and that nothing needs (``now_ms``: epoch ms, default the clock's)."""
        plan = maintenance.plan_sweep(self.store, now_ms)
        return cast("SweepReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def branches(self) -> list[str]:
        """The names of all branches but main, sorted; `Catalog.table("db.t$branch_NAME")` opens one."""
        return branches.list_branches(self.store)

    def create_branch(self, name: str, from_tag: str | None = None, from_snapshot: int | None = None) -> Table:
        """Create a branch that begins with the rows of a tag or snapshot, else empty, and open it; no data is copied.

        Raises TableExists, InvalidOption for a name that Paimon does not take, SnapshotNotFound.
        """
        return Table(maintenance.create_branch(self.store, name, from_tag, from_snapshot), self._catalog)

    def delete_branch(self, name: str) -> BranchDeletionReport:
        """Delete a branch; what only it needs waits in the trash, from where :meth:`restore` brings all of it back. Raises TableNotFound."""
        return cast("BranchDeletionReport", self.apply(self.plan_maintenance("delete_branch", branch=name)))

    def rename_branch(self, name: str, to: str) -> None:
        """Rename a branch. Raises TableNotFound, TableExists, InvalidOption."""
        maintenance.rename_branch(self.store, name, to)

    def fast_forward(self, name: str) -> FastForwardReport:
        """Let the table have the history of branch ``name`` since that one began: what was committed here since then is dropped.

        Raises TableNotFound, PlanRefused for a branch without snapshot.
        """
        return cast("FastForwardReport", self.apply(self.plan_maintenance("fast_forward", branch=name)))

    def mark_partitions_done(self, partitions: Sequence[Mapping[str, Any]]) -> list[str]:
        """Do to each partition (typed values of all partition columns) what `partition.mark-done-action` says; returns their paths.

        The action `success-file` writes `_SUCCESS` into the partition's directory. Raises InvalidOption, InvalidData, UnsupportedFeature for
        actions that need a metastore or a server.
        """
        return mark_done.mark_partitions_done(self.store, partitions)

    def ledger(self, limit: int | None = None) -> list[LedgerEntry]:
        """What maintenance did to this table, oldest first (``limit``: only so many newest runs); `$dredge_ledger` has it as rows.

        An entry that cannot be read has the outcome "unreadable", and keeps no other from being read.
        """
        return maintenance.read_ledger(self.store, limit, stalls=True)
