"""The Table facade: every operation of the engine on one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lsm_core import maintenance
from lsm_core.metadata import branches, consumers, mark_done, snapshots, tags
from lsm_core.table.read_request import ReadRequest, RequestReader
from lsm_core.table.readable_table import ReadableTable
from lsm_core.table.typed_errors import with_typed_errors

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
        RowExplanation,
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
class Table(ReadableTable):
    """One table of a catalog. The object is immutable: :meth:`refresh` opens the table again after a schema change.

    Once the table was dropped, renamed, or dropped and created again, every method except :meth:`refresh` and
    :meth:`copy` raises TableNotFound. A new table of the same name is neither read nor written by this object.

    Attributes:
        store: the table's state, which the packages `read`, `write`, `commit` and `maintenance` work on.
    """

    def __init__(self, store: TableStore, catalog: AltersTables | None = None) -> None:
        """Wrap a table's state.

        Args:
            store: the opened table: paths, schema, options and clock.
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
        """Name of the table: "db.table"."""
        return self.store.name

    @property
    def schema(self) -> TableSchema:
        """The schema in use; ``schema.arrow_schema`` is its Arrow form."""
        return self.store.schema

    @property
    def options(self) -> Mapping[str, str]:
        """Options in force, dynamic options included."""
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
        """Return the same table with dynamic options.

        Args:
            options: values by option key; None removes an option.

        Raises:
            InvalidOption: the option is fixed for this table, or its value cannot be used.
        """
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
        """Report of this object's last write, update or delete, with the maintenance after it; None before any."""
        return self._last_write

    def _maintain_after_commit(self, snapshot_id: int | None) -> int | None:
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
        """Write rows and commit them.

        The buckets of these rows are then compacted and due snapshots expire (:attr:`last_write`), unless the table is
        `write-only` or `dredge.compaction.inline` is never.

        Args:
            data: Arrow data, columns by name, a list of rows by column name, a pandas or Polars frame, a Polars lazy
                frame, or an object with ``__arrow_c_stream__``.
            row_kinds: Arrow array of "+I" "-U" "+U" "-D", or the one kind of all rows; None for inserts.
            overwrite: True or ``{}`` replaces all rows; in a partitioned table only the partitions in ``data``, unless
                `dynamic-partition-overwrite` is false. A mapping with values replaces that partition.
            watermark: watermark of the snapshot (epoch ms): the caller states that no older rows will come.
            properties: texts by property name, stored in the snapshot, or None.
            schema_mode: "merge" adds the columns that only ``data`` has and widens column types before the write. The
                new schema stays even if a value then does not fit; :meth:`refresh` opens the table with the new schema.
                None raises ColumnNotFound for columns that only ``data`` has.
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
        """Delete the rows that match a filter, in one commit.

        In append tables the files of these rows are rewritten or, with `deletion-vectors.enabled`, the rows are marked
        as deleted. A filter over partition columns alone drops partitions.

        Args:
            filter: condition as in :meth:`to_arrow`; rows for which it is true are deleted.

        Returns:
            The id of the snapshot, or None when no row matched.

        Raises:
            InvalidFilter: the filter cannot be used, or is None.
            UnsupportedFeature: the merge engine cannot delete rows.
            CommitConflict: another commit changed the buckets of these rows.
        """
        from lsm_core.write import row_changes

        return self._maintain_after_commit(row_changes.delete_rows(self.store, filter))

    def update(self, filter: object, values: Mapping[str, Any]) -> int | None:  # noqa: A002  (the public name)
        """Set columns of the rows that match a filter, in one commit.

        Key, partition and bucket columns cannot be set.

        Args:
            filter: condition on the rows: an Arrow expression, a list of tuples, or SQL text.
            values: literal, or Arrow expression over the old row, by column.

        Returns:
            The id of the snapshot, or None when no row matched.

        Raises:
            InvalidData: a new value does not fit.
            ColumnNotFound: a column does not exist.
            DredgeError: as :meth:`delete`.
        """
        from lsm_core.write import row_changes

        return self._maintain_after_commit(row_changes.update_rows(self.store, filter, values))

    def upsert(self, data: Rows) -> int | None:
        """Insert rows; each new row replaces the existing row with the same primary key.

        Args:
            data: rows as in :meth:`write`. Missing columns take their default or null; in partial-update and
                aggregation tables, missing columns keep their values.

        Returns:
            The id of the snapshot, or None without rows.

        Raises:
            UnsupportedFeature: new rows do not replace old ones in this table.
            InvalidData: a value does not fit.
        """
        from lsm_core.write import row_changes

        return self._maintain_after_commit(row_changes.upsert_rows(self.store, data))

    def truncate(self) -> int | None:
        """Delete all rows, including the rows of concurrent commits.

        Returns:
            The id of the snapshot, or None when the table was empty.
        """
        from lsm_core.write import row_changes

        return self._maintain_after_commit(row_changes.truncate(self.store))

    def drop_partitions(self, partitions: Sequence[Mapping[str, Any]]) -> int | None:
        """Delete all rows of some partitions.

        Args:
            partitions: values by partition column, such as [{"dt": d}]; columns that are left out match every value.

        Returns:
            The id of the snapshot, or None when no partition matched.

        Raises:
            InvalidOption: the table has no partitions, or an entry is empty.
            ColumnNotFound: a column is not a partition column.
            InvalidData: a value does not fit its column.
            CommitConflict: another commit changed the partitions.
        """
        from lsm_core.write import row_changes

        return self._maintain_after_commit(row_changes.drop_partitions(self.store, partitions))

    def new_write(self) -> BatchWrite:
        """Return a writer for one batch commit; the committer of :meth:`new_commit` commits its messages."""
        from lsm_core.table.writing import BatchWrite

        return BatchWrite(self.store)

    def new_commit(self, commit_user: str | None = None) -> BatchCommit:
        """Return a committer for the messages of a writer of :meth:`new_write`.

        Args:
            commit_user: `commitUser` of the snapshot; None for a random user.
        """
        from lsm_core.table.writing import BatchCommit

        return BatchCommit(self.store, commit_user)

    def new_stream_write(self, commit_user: str) -> StreamWrite:
        """Return a writer for many commits; use the writer in a ``with`` block.

        The writer compacts in the background unless the table is `write-only`.

        Args:
            commit_user: name of the job; its commits are numbered under this name.
        """
        from lsm_core.table.writing import StreamWrite

        return StreamWrite(self.store, commit_user)

    def new_stream_commit(self, commit_user: str) -> StreamCommit:
        """Return the committer of a streaming job.

        Each numbered commit is published once, even if the job repeats the commit.

        Args:
            commit_user: name of the job; its commits are numbered under this name.
        """
        from lsm_core.table.writing import StreamCommit

        return StreamCommit(self.store, commit_user)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_table(self, request: ReadRequest) -> pa.Table:
        from lsm_core.read.batch_read import read_as_table

        return read_as_table(self.store, *request)

    def _read_stream(self, request: ReadRequest) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        from lsm_core.read.batch_read import read_as_stream

        return read_as_stream(self.store, *request)

    def _pin_version(self, version: Mapping[str, Any]) -> tuple[TableSchema, RequestReader]:
        from lsm_core.read.batch_read import pin_version

        return pin_version(self.store, version)

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
        """Return the splits of a read for query engines; splits can be pickled. Arguments as in :meth:`to_arrow`.

        With `scan.plan-auto-tag-for-read.time-retained`, a tag protects the version for this time.
        """
        from lsm_core.read.fallback import plan_read
        from lsm_core.read.read_tags import protected

        named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms, "watermark": watermark}
        scan = plan_read(self.store, columns=columns, filter=filter, **named)  # type: ignore[arg-type]
        return list(protected(scan).splits)

    def lookup(self, keys: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the merged rows of some keys in the newest version, without reading the rest of the table.

        Keys are compared as Java compares them: NaN equals NaN, and -0.0 differs from 0.0. Memory holds the result and
        about one row group of each open file.

        Args:
            keys: columns of the primary key, partition columns included, in any order; rows may repeat.
            columns: columns of the result; None for all. Key columns that are not in ``columns`` are put first.

        Returns:
            One row per distinct key that exists, in the order of the first occurrence of each key.

        Raises:
            UnsupportedFeature: the table has no primary key or cannot be looked up.
            ColumnNotFound: a column does not exist.
            InvalidFilter: the keys do not fit the key columns.
            SnapshotNotFound: the version expired during the lookup.
            CorruptFile: a file cannot be read.
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
        """Return the changes after version ``a`` up to and including version ``b``.

        Args:
            a: snapshot id or tag name of the first version; the changes of this version are left out.
            b: snapshot id or tag name of the last version; the changes of this version are included.
            mode: "delta" for the rows of data files of APPEND snapshots, "changelog" for the rows of changelog files of
                all but OVERWRITE snapshots, both as written and unmerged. "diff" compares both versions key by key:
                `-D` with the old row for a missing key, the new row for a changed key. "auto" is "diff" between tags;
                otherwise "changelog", or "delta" if the table has no changelog producer.
            columns: columns of the result; None for all.
            filter: condition on each changed row.

        Returns:
            A table of `_ROW_KIND`, then the columns, in the current schema.

        Raises:
            SnapshotNotFound: a version does not exist.
            InvalidOption: the mode or the range cannot be used.
            ColumnNotFound: a column does not exist.
            InvalidFilter: the filter cannot be used.
            UnsupportedFeature: the table has no changes of this mode.
            CorruptFile: a file cannot be read.
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
        """Return a stream of the table's changes, from changelog files or, without a changelog, from new data files.

        The stream starts at the position of the consumer, otherwise with the changes of ``from_snapshot``, otherwise as
        `scan.mode` and its related options say. By default the stream starts with all rows of the newest version.

        Args:
            consumer_id: id under which the position is kept; None for no consumer.
            from_snapshot: first snapshot whose changes are read. If this snapshot has expired, the oldest existing
                snapshot is used.
            columns: columns of the changes; None for all.
            filter: condition on each changed row.

        Raises:
            UnsupportedFeature: the table cannot be streamed.
            InvalidOption: an option or argument cannot be used.
            ColumnNotFound: a column does not exist.
            InvalidFilter: the filter cannot be used.
            InvalidData: the consumer id is not a plain name.
        """
        from lsm_core.read.changes import StreamScan

        return StreamScan(
            self.store, consumer_id=consumer_id, from_snapshot=from_snapshot, columns=columns, filter=filter
        )

    def forget_consumer(self, consumer_id: str) -> bool:
        """Delete the position of a consumer, so that the consumer no longer keeps snapshots from expiring.

        Args:
            consumer_id: id of the consumer.

        Returns:
            Whether the consumer existed.

        Raises:
            InvalidData: the id is not a plain name.
        """
        return maintenance.forget_consumer(self.store, consumer_id)

    def consumers(self) -> dict[str, int]:
        """Return the id of the next snapshot of each consumer, by consumer id.

        Snapshots from the smallest of these ids on do not expire. Raises CorruptFile.
        """
        return consumers.list_consumers(self.store)

    def reset_consumer(self, consumer_id: str, next_snapshot: int | None = None) -> None:
        """Set the next snapshot of a consumer; create the consumer if it does not exist (Java `reset_consumer`).

        A stream that is open keeps its own position and records it at its next checkpoint.

        Args:
            consumer_id: id of the consumer.
            next_snapshot: id of the next snapshot; None deletes the consumer.

        Raises:
            InvalidData: the id is not a plain name.
            InvalidOption: the number cannot be a snapshot's.
        """
        maintenance.reset_consumer(self.store, consumer_id, next_snapshot)

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, or None before the first commit."""
        return snapshots.latest(self.store)

    def snapshots(self) -> list[Snapshot]:
        """Return all readable snapshots, oldest first."""
        return list(snapshots.iterate(self.store))

    # -- looking after it --------------------------------------------------------------------------------------------

    def analyze(self, columns: Sequence[str] | None = None) -> AnalyzeReport:
        """Compute row counts and column statistics for query planners.

        The statistics are committed in a snapshot of kind ANALYZE; `$statistics` shows the statistics.

        Args:
            columns: columns to analyze; None for all whose type has statistics.

        Raises:
            ColumnNotFound: a column does not exist.
            UnsupportedFeature: a column has a nested type.
            CommitConflict: a concurrent commit conflicts with this one.
        """
        return cast("AnalyzeReport", self.apply(self.plan_maintenance("analyze", columns=columns)))

    def explain_row(self, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowExplanation:
        """Return the stored versions of one row, newest first, and which version supplied each column and why.

        Args:
            key: values by primary key column.
            snapshot_id: snapshot to read; None for the newest.

        Returns:
            The explanation of the row; it has no versions when the key does not exist.

        Raises:
            ColumnNotFound: a column of the key does not exist.
            InvalidFilter: the key does not fit the key columns.
            UnsupportedFeature: the table has no primary key.
            SnapshotNotFound: the snapshot does not exist.
            CorruptFile: a file cannot be read.
        """
        return maintenance.explain_row(self.store, key, snapshot_id)

    def health(self, partition: Mapping[str, Any] | None = None) -> list[BucketHealth]:
        """Return the health of every bucket (files, sorted runs, sizes and the like), from metadata only.

        Args:
            partition: values by partition column of the one partition to report; None for all partitions.
        """
        return maintenance.health(self.store, None if partition is None else [partition])

    def simulate(
        self,
        policies: Sequence[SimulatedPolicy | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]] = (),
        history: tuple[int | None, int | None] | None = None,
    ) -> pa.Table:
        """Return the forecast cost and effect of compaction policies.

        The commits of past snapshots are replayed, from metadata only.

        Args:
            policies: policies to simulate. A mapping holds table options by key, and may hold settings of
                :class:`SimulatedPolicy`: ``name``, ``look_every`` and ``idle_after`` (durations such as "5 min"),
                ``idle_min_runs`` and ``idle_min_files``. Empty for the table's own options.
            history: first and last snapshot id to replay; None for all snapshots.

        Returns:
            One row per policy; `lsm_core.maintenance.simulation` describes the columns.

        Raises:
            InvalidOption: a policy cannot be used.
            SnapshotNotFound: a snapshot does not exist.
            UnsupportedFeature: the table cannot be compacted here.
            CorruptFile: a manifest cannot be read.
        """
        return maintenance.simulate(self.store, policies, history)

    def plan_maintenance(self, action: str, **args: Any) -> MaintenancePlan:
        """Plan a maintenance action from metadata only.

        Args:
            action: name among `lsm_core.maintenance.action_names()`, such as "compact" or "expire_snapshots".
            **args: arguments that the action declares.

        Returns:
            The plan for :meth:`apply`.

        Raises:
            InvalidOption: the action or an argument does not exist.
        """
        return maintenance.plan_maintenance(self.store, action, **args)

    def save_plan(self, plan: MaintenancePlan) -> str:
        """Save a plan in the table's directory, so that another process can apply the plan by its hash.

        Args:
            plan: the plan.

        Returns:
            The hash of the plan.
        """
        return maintenance.save_plan(self.store, plan)

    def load_plan(self, plan_hash: str) -> MaintenancePlan:
        """Return a saved plan by its hash, or by the beginning of its hash if only one plan matches.

        Raises:
            PlanStale: no saved plan matches.
            CorruptFile: the plan's file cannot be read.
            InvalidData: the text is not the beginning of a hash.
        """
        return maintenance.load_plan(self.store, plan_hash)

    def saved_plans(self) -> list[str]:
        """Return the hashes of all saved plans, sorted."""
        return maintenance.saved_plan_hashes(self.store)

    def apply(self, plan: MaintenancePlan, approved_by: str | None = None, runner: Runner | None = None) -> Report:
        """Apply a plan exactly as it was made.

        Args:
            plan: plan of :meth:`plan_maintenance`.
            approved_by: name of the approver for the ledger.
            runner: runs the tasks of the plan, such as `lsm_core.spark.spark_runner`; None for this process.

        Returns:
            The report; ``applied_before`` is true when the plan had been applied already.

        Raises:
            PlanStale: the table changed since the plan was made.
            PlanRefused: a rule forbids the plan.
            VerificationFailed: the result does not hold the same rows; nothing was committed.
            CommitConflict: another commit changed the same files.
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
        """Plan and apply a compaction.

        ``declined`` of the report lists the buckets that were not compacted, each with the reason. Rows that are
        inserted during the compaction stay.

        Args:
            full: compact every bucket into its top level.
            partitions: values by partition column of the partitions to compact; None for all.
            buckets: numbers of the buckets to compact; None for all.
            order_by: columns that an append table without buckets is sorted by, partition by partition; None for no
                sort.
            strategy: "order" (column by column, the default), "zorder", "hilbert", or "auto" (by the number of
                columns). Without ``order_by``, the option `clustering.columns` names the columns.
            commit_every: number of buckets per commit; earlier commits stay if a later one fails. None for one commit.

        Raises:
            ColumnNotFound: a column does not exist.
            InvalidOption: an argument cannot be used.
            UnsupportedFeature: the table cannot be compacted here.
        """
        plan = maintenance.plan_compaction(
            self.store, full, partitions, buckets, None, order_by, strategy, commit_every
        )
        return cast("CompactionReport", self.apply(plan))

    def recover(
        self, passes: int | None = None, files: int | None = None, partitions: Sequence[Mapping[str, Any]] | None = None
    ) -> RecoveryReport:
        """Compact a very large level 0 in passes, the oldest files first.

        Each pass is planned, verified and committed separately. A process that stops loses no finished pass, and the
        next call continues with the remaining files.

        Args:
            passes: number of passes at most; None for as many as needed.
            files: level-0 files per pass; None for the default.
            partitions: values by partition column of the partitions to recover; None for all.

        Raises:
            InvalidOption: an argument cannot be used.
            UnsupportedFeature: the table cannot be compacted here.
            VerificationFailed: the result does not hold the same rows; nothing was committed.
            CommitConflict: another commit changed the same files.
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
        """Expire old snapshots; the files of these snapshots stay in the trash until :meth:`sweep_trash` deletes them.

        Args:
            retain_max: number of snapshots to keep at most; None for `snapshot.num-retained.max`.
            retain_min: number of snapshots to keep at least; None for `snapshot.num-retained.min`.
            older_than_ms: epoch ms before which snapshots expire; None for `snapshot.time-retained`.
            max_deletes: number of snapshots to expire at most; None for `snapshot.expire.limit`.
            dry_run: report without changing anything.
        """
        plan = maintenance.plan_expiry(self.store, retain_max, retain_min, older_than_ms, max_deletes)
        return cast("ExpiryReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def remove_orphan_files(
        self, older_than_ms: int | None = None, dry_run: bool = False, max_share: int | None = None
    ) -> OrphanReport:
        """Move files that no metadata names (orphans) to the trash, until :meth:`sweep_trash` deletes them.

        Args:
            older_than_ms: only files last changed before this time (epoch ms) are removed; None for 24 hours ago.
            dry_run: report without changing anything.
            max_share: percent of the table's files, or bytes, that may be removed; None for 20.

        Raises:
            PlanRefused: a rule forbids the removal; the error names the rule.
            InvalidOption: an argument cannot be used.
            CorruptFile: metadata cannot be read, so no file is certain to be an orphan.
        """
        plan = self.plan_maintenance("orphans", older_than_ms=older_than_ms, max_share=max_share)
        return cast("OrphanReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def holds(self) -> pa.Table:
        """Return which snapshots, tags, branches and consumers (holders) keep how many files from being deleted.

        Returns:
            One row per holder, the largest first: name, kind, bytes and files that only this holder needs, creation
            time of the holder, and bytes that other holders need too.
        """
        return maintenance.holds(self.store)

    def expire_partitions(
        self,
        older_than_ms: int | None = None,
        strategy: str | None = None,
        timestamp_pattern: str | None = None,
        timestamp_formatter: str | None = None,
        max_expires: int | None = None,
    ) -> PartitionExpiryReport:
        """Drop old partitions in one commit.

        Args:
            older_than_ms: epoch ms before which partitions expire; None for `partition.expiration-time`.
            strategy: "values-time" reads the time from partition values, "update-time" from the newest file; None for
                the option.
            timestamp_pattern: pattern of the time over partition columns; None for the option.
            timestamp_formatter: formatter of the time; None for the option.
            max_expires: number of partitions to drop at most; None for the option.

        Raises:
            InvalidOption: an argument or option cannot be used.
            UnsupportedFeature: the table has no partitions.
            CommitConflict: another commit changed the partitions.
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
        """Create a tag for a snapshot, so that the tagged version stays readable after the snapshot expires.

        Args:
            name: name of the tag.
            snapshot_id: snapshot to tag; None for the newest.
            time_retained: ms or a text such as "7 d", after which :meth:`expire_tags` deletes the tag; None for
                `tag.default-time-retained`.
            replace: if a tag of this name exists, let the tag name the new snapshot.

        Raises:
            InvalidData: the name cannot be a tag's.
            InvalidOption: a tag of this name exists, and ``replace`` is false.
            SnapshotNotFound: the snapshot does not exist.
        """
        arguments = {"tag": name, "snapshot_id": snapshot_id, "time_retained": time_retained, "replace": replace}
        return cast("TagCreationReport", self.apply(self.plan_maintenance("create_tag", **arguments)))

    def delete_tag(self, name: str) -> TagDeletionReport:
        """Delete a tag; the files that only this tag kept move to the trash.

        Raises:
            SnapshotNotFound: the tag does not exist; the error names the existing tags.
        """
        return cast("TagDeletionReport", self.apply(self.plan_maintenance("delete_tag", tag=name)))

    def rename_tag(self, name: str, new_name: str) -> None:
        """Rename a tag.

        Raises:
            SnapshotNotFound: the tag does not exist.
            InvalidOption: a tag has the new name.
            InvalidData: the new name cannot be a tag's.
        """
        maintenance.rename_tag(self.store, name, new_name)

    def tags(self) -> dict[str, Tag]:
        """Return all tags by name.

        Returns:
            The tags by name, each with its snapshot, creation time (wall clock as if UTC, ms) and retention (ms).

        Raises:
            CorruptFile: a tag cannot be read.
        """
        return tags.list_details(self.store)

    def expire_tags(self, older_than_ms: int | None = None, dry_run: bool = False) -> TagDeletionReport:
        """Delete tags whose retention is over, and automatic tags beyond the configured maximum number.

        Args:
            older_than_ms: tags created before this time (epoch ms) are deleted too; None for no such time.
            dry_run: report without changing anything.
        """
        plan = self.plan_maintenance("expire_tags", older_than_ms=older_than_ms)
        return cast("TagDeletionReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def rollback_to(
        self,
        snapshot_or_tag: int | str | None = None,
        *,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
    ) -> RollbackReport:
        """Return the table to an older version; newer snapshots move to the trash.

        :meth:`restore` brings the removed snapshots back as long as no further commit was made. Pass exactly one of the
        arguments.

        Args:
            snapshot_or_tag: snapshot id (int) or tag name (str).
            timestamp_ms: epoch ms; the newest snapshot committed at or before this time is chosen.
            watermark: epoch ms; the newest snapshot with at most this watermark is chosen.

        Raises:
            SnapshotNotFound: the version does not exist.
            InvalidOption: not exactly one version is named.
            PlanStale: another writer committed during the rollback.
            CommitUnknown: the outcome could not be read; call this method again.
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
        """Commit the rows of an older version as the newest snapshot; the snapshots after the older version stay.

        Args:
            snapshot_or_tag: snapshot id (int) or tag name (str).
            partitions: values by partition column of the partitions to roll back; None for all.

        Raises:
            SnapshotNotFound: the version does not exist.
            UnsupportedFeature: the version cannot be committed again.
            PlanStale: the table changed meanwhile.
            CommitConflict: another commit changed the same files.
        """
        arguments = {
            "tag" if isinstance(snapshot_or_tag, str) else "snapshot_id": snapshot_or_tag,
            "partitions": partitions,
        }
        return cast("RollbackAsLatestReport", self.apply(self.plan_maintenance("rollback_as_latest", **arguments)))

    def verify(self, snapshot_a: int, snapshot_b: int) -> VerifyReport:
        """Compare the rows of two snapshots bucket by bucket.

        Buckets with the same files are equal without reading; for all other buckets, digests of the merged rows are
        compared.
        """
        return maintenance.verify_snapshots(self.store, snapshot_a, snapshot_b)

    def check(
        self, names: Sequence[str] | None = None, limits: CheckLimits | None = None, *, deep: bool = False
    ) -> list[CheckReport]:
        """Run checks over the newest snapshot, from metadata and bounded samples of rows.

        Args:
            names: names of checks; None for all that apply to the table.
            limits: bounds of the samples, and thresholds.
            deep: whether `pages_readable` reads every page of every data file. After an interruption, the next call
                continues this check.

        Returns:
            One report per check. Damaged files that a check reads are part of its report.

        Raises:
            InvalidOption: the table has no check of this name.
        """
        chosen = limits or maintenance.CheckLimits()
        if deep and chosen.deep is None:
            chosen = replace(chosen, deep=maintenance.DeepRead())
        return maintenance.check_table(self.store, names, chosen)

    def undo(self, run_id: str, partial: bool = False, allow_changes: bool = False) -> UndoReport:
        """Undo a compaction: commit a snapshot with the files that the compaction replaced.

        Args:
            run_id: run id of the compaction, from :meth:`ledger` or its report.
            partial: undo the buckets that can be undone, and leave all other buckets as they are.
            allow_changes: undo even if reads return different rows after the undo.

        Raises:
            InvalidOption: no such run exists.
            PlanRefused: the compaction cannot be undone; the error names the reason.
            VerificationFailed: the result does not hold the same rows; nothing was committed.
            CommitConflict: another commit changed the same files.
        """
        arguments = {"run_id": run_id, "partial": partial, "allow_changes": allow_changes}
        return cast("UndoReport", self.apply(self.plan_maintenance("undo", **arguments)))

    def restore(self, trash_id: str) -> RestoreReport:
        """Put back the content of a deletion record in the trash: snapshots, changelogs, tags and files.

        Args:
            trash_id: id of the deletion record, which the report of the action names that moved files to the trash.

        Raises:
            PlanRefused: a sweep has begun to delete the files of the record.
        """
        return cast("RestoreReport", self.apply(self.plan_maintenance("restore", trash_id=trash_id)))

    def sweep_trash(self, now_ms: int | None = None, dry_run: bool = False) -> SweepReport:
        """Delete files in the trash whose grace period is over and that no version of the table needs.

        Args:
            now_ms: time (epoch ms) at which the ends of grace periods are compared; None for the clock's time.
            dry_run: report without changing anything.
        """
        plan = maintenance.plan_sweep(self.store, now_ms)
        return cast("SweepReport", maintenance.dry_run(plan) if dry_run else self.apply(plan))

    def branches(self) -> list[str]:
        """Return the names of all branches but main, sorted; `Catalog.table("db.t$branch_NAME")` opens a branch."""
        return branches.list_branches(self.store)

    def create_branch(self, name: str, from_tag: str | None = None, from_snapshot: int | None = None) -> Table:
        """Create a branch and open it; no data is copied.

        Args:
            name: name of the branch.
            from_tag: tag whose rows the branch starts with.
            from_snapshot: snapshot whose rows the branch starts with. Without tag and snapshot, the branch is empty.

        Raises:
            TableExists: the branch exists.
            InvalidOption: Paimon does not take the name.
            SnapshotNotFound: the tag or snapshot does not exist.
        """
        return Table(maintenance.create_branch(self.store, name, from_tag, from_snapshot), self._catalog)

    def delete_branch(self, name: str) -> BranchDeletionReport:
        """Delete a branch; the files that only this branch needs move to the trash; see :meth:`restore`.

        Raises:
            TableNotFound: the branch does not exist.
        """
        return cast("BranchDeletionReport", self.apply(self.plan_maintenance("delete_branch", branch=name)))

    def rename_branch(self, name: str, to: str) -> None:
        """Rename a branch. Raises TableNotFound, TableExists, InvalidOption."""
        maintenance.rename_branch(self.store, name, to)

    def fast_forward(self, name: str) -> FastForwardReport:
        """Replace the table's history by the history of a branch.

        Commits of the table since the branch was created are dropped.

        Raises:
            TableNotFound: the branch does not exist.
            PlanRefused: the branch has no snapshot.
        """
        return cast("FastForwardReport", self.apply(self.plan_maintenance("fast_forward", branch=name)))

    def mark_partitions_done(self, partitions: Sequence[Mapping[str, Any]]) -> list[str]:
        """Run `partition.mark-done-action` for some partitions.

        The action `success-file` writes `_SUCCESS` into the directory of the partition.

        Args:
            partitions: values of all partition columns of each partition.

        Returns:
            The paths of the partitions.

        Raises:
            InvalidOption: a partition does not name all columns.
            InvalidData: a value does not fit its column.
            UnsupportedFeature: the action needs a metastore or a server.
        """
        return mark_done.mark_partitions_done(self.store, partitions)

    def ledger(self, limit: int | None = None) -> list[LedgerEntry]:
        """Return the maintenance runs of this table, oldest first; `$dredge_ledger` has the runs as rows.

        An entry that cannot be read has the outcome "unreadable"; all other entries are still returned.

        Args:
            limit: largest number of runs, counted from the newest run; None for all.
        """
        return maintenance.read_ledger(self.store, limit, stalls=True)
