"""Writes through Spark, for `write_table` and the data source.

The driver plans the write, one writer per task makes files, and one commit publishes them. The plan holds all table
metadata that tasks need, so tasks read none. Each task checks its rows, converts them to the table's schema and routes
them to buckets.

For tables with buckets, `write_table` then shuffles the rows, as Arrow messages of one bucket each, so that one task
has the whole bucket. Rows of dynamic buckets are first sent to assigners: tasks that each assign the buckets for a part
of the keys.

A data source cannot ask Spark for a shuffle. Each of its tasks writes its own rows, and the driver joins the hash
indexes. If keys may move between partitions, the tasks of a data source pass their rows through files to one writer in
a process beside the driver (`write_folder`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from lsm_core.commit import BATCH, CommitMessage, Committer, abort, discard_on_failure
from lsm_core.commit.history import latest_of_user
from lsm_core.errors import ColumnNotFound, InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.options import parse_digits, whole_number
from lsm_core.spark.compaction_job import Memory, compact_in_tasks, meter_of
from lsm_core.spark.driver_session import session_of_driver
from lsm_core.spark.overwrite_scope import (
    OVERWRITE_MODE,
    Scope,
    overwrite_scope,
    replace_condition,
    replaced_partitions,
)
from lsm_core.spark.spark_columns import SESSION_ZONE, arrow_of, in_frames, in_session_zone, names_in_table
from lsm_core.spark.spark_tasks import (
    ANSWER_DDL,
    Shipped,
    TaskOutcome,
    answer,
    batches_of,
    collect,
    failure,
    raise_first,
    setting,
    slots_of,
    store_of,
    translate_errors,
    use_this_python,
)
from lsm_core.spark.write_folder import WriteFolder, new_family
from lsm_core.storage.allocator import keep_small_arrays
from lsm_core.table.schema_merging import merging_changes
from lsm_core.table.writing import maintain_after_commit, show_moved_keys
from lsm_core.types import from_arrow, kinds_from_text
from lsm_core.write import BucketHistory, RoutedRows, TableWrite, settle_shared_buckets
from lsm_core.write.assigner import AssignerRules, assigner_of, number_of_assigners
from lsm_core.write.bucket import Assign, key_hashes, same_numbers
from lsm_core.write.bucket import groups as bucket_groups
from lsm_core.write.cross_partition import KeyMoves, Known
from lsm_core.write.hash_indexes import HashIndexes, owner_of
from lsm_core.write.hash_indexes import join_index_files as joined_indexes
from lsm_core.write.incoming_rows import RowNumbering, Rows, as_rows, require_columns
from lsm_core.write.store_assignment import assign_rows, require_assignable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lsm_core.compact import BucketResult, BucketTask
    from lsm_core.maintenance import MaintenancePlan, Runner
    from lsm_core.maintenance.inline import ChooseRunner
    from lsm_core.table import Catalog

_WORTH_A_JOB: Final = 64 << 20
# Several tasks may write one bucket: each counts in a range of its own, or two versions of a key could share a sequence
# number and their order would be left to chance (paimon 5872).
SEQUENCES_PER_TASK: Final = 1 << 32
ROW_KIND: Final = "_row_kind"
"""Column that holds the row kinds in DataFrames, unless the table has a column of this name."""

# Messages of the shuffle: ``place`` orders the messages of a bucket, ``rows`` is an Arrow record batch (`in_frames`) in
# the table's schema, ``kinds`` its int8 row kinds (null: all inserts), ``follows`` as in `RoutedRows`.
MESSAGES: Final = pa.schema(
    [
        ("slot", pa.int32()),
        ("partition", pa.binary()),
        ("bucket", pa.int32()),
        ("place", pa.int64()),
        ("rows", pa.binary()),
        ("kinds", pa.binary()),
        ("follows", pa.bool_()),
    ]
)
MESSAGES_DDL: Final = "slot INT, partition BINARY, bucket INT, place BIGINT, rows BINARY, kinds BINARY, follows BOOLEAN"
_TASK_SHIFT: Final = 40  # a message's place = Spark task, then its first row in it (below 2^40 rows a task)
_PIECE_BYTES: Final = 32 << 20
"""Approximate bytes of rows that a task routes at once; fewer bytes would make many small messages."""
_SENT_BYTES: Final = 16 << 20
"""Approximate size of a batch of messages, so that a task does not hold all its messages in memory."""
_BATCH_BYTES: Final = 64 << 20
_ONE_TASK_BYTES: Final = 64 << 20
"""Maximum size, estimated by Spark, of a one-partition DataFrame that its own task writes."""
_JOINED_BYTES: Final = 32 << 20
"""Maximum size, estimated by Spark, of files that are read as one partition to avoid a shuffle."""
_TASK_BYTES: Final = 8 << 20
_LEAST_PARTITIONS: Final = "spark.sql.files.minPartitionNum"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_ESTIMATE: Final = re.compile(rf"Statistics\(sizeInBytes=([\d.]+(?:E[+]?\d+)?) ({'|'.join(_UNITS)})\b")
_QUICK: Final = ("Scan ", "LocalTableScan", "Project", "Filter", "ColumnarToRow")
"""Operators that cost little more than reading the rows."""
_RUN_BEFORE: Final = ("AdaptiveSparkPlan", "InMemory", "Scan In-memory", "BatchScan", "Subquery")
"""Operators whose partitions are known only after a part of the query has run."""
_ASSIGNERS: Final = 8
"""Maximum number of assigners of dynamic buckets by default; each opens a bucket of its own."""


@dataclass(frozen=True)
class WriteJob:
    """One write as the driver planned it; Spark ships it to the tasks.

    Attributes:
        store: The table.
        history: Sequence numbers of all buckets at the newest snapshot, and the locations of the snapshot's hash
            indexes.
        overwrite: Whether the commit replaces rows of the table.
        assigners: Number of assigners of dynamic buckets, each with a share of the keys.
        numbered: User and number of a commit that must happen only once; None for other commits.
    """

    store: TableStore
    history: BucketHistory
    overwrite: bool
    assigners: int = 1
    numbered: tuple[str, int] | None = None
    writer_id: str = field(default_factory=lambda: str(uuid4()))
    """Id of the writer in the names of postponed files; compactions replay these files writer by writer."""
    planned_ms: int | None = None
    """Time of the plan (epoch ms), used by all time-dependent steps, so that a repeated task gives the same result."""
    family: str = field(default_factory=new_family)
    """Prefix of the UUIDs in the names of all files of the write."""
    folder: WriteFolder | None = None
    """Folder in which each task records its start; None if the job has nothing to write."""
    deletes: bool = False
    """Whether the rows are -D rows for existing rows of the table."""
    made_from: int | None = None
    """The snapshot from which the rows were computed.

    The commit fails if commits other than compactions have changed the same buckets since.
    """
    columns: tuple[str, ...] = ()
    """The frame's column names in order, if Spark passes other names to the tasks."""
    zone: str | None = None
    """Time zone of the session. None if the driver does not know it; tasks then use the session's setting, if any."""
    assigns: bool = True
    """Whether values are cast as by Spark's INSERT (True) or as by `Table.write` (False)."""

    @classmethod
    def plan(
        cls,
        store: TableStore,
        overwrite: bool,
        parallelism: int = _ASSIGNERS,
        numbered: tuple[str, int] | None = None,
    ) -> WriteJob:
        """Read the metadata that tasks need and open the write, which ends with :meth:`commit` or :meth:`end`.

        Args:
            store: The table.
            overwrite: Whether the commit replaces rows of the table.
            parallelism: Number of assigners if the table's options set none.
            numbered: User and number of a commit that must happen only once; None for other commits.

        Raises:
            UnsupportedFeature: The table cannot be written.
            CorruptFile: A metadata file is missing or damaged.
            StorageFull: The storage has no space left.
        """
        require_writable(store)
        # keys may move out of the replaced partitions: their rows are then added to existing buckets
        afresh = overwrite and store.bucket_mode is not BucketMode.CROSS_PARTITION
        history = BucketHistory.of_whole_table(store, ignore=afresh)
        assigners = number_of_assigners(store.options, min(parallelism, _ASSIGNERS))
        job = cls(store, history, overwrite, assigners, numbered, planned_ms=store.clock.now_ms())
        return job if job.is_there else replace(job, folder=WriteFolder.plan(store))

    @property
    def is_there(self) -> bool:
        """Whether the commit was made before: the table has a commit of the same user with this or a larger number.

        Always false for a write without a commit number (:attr:`numbered`).
        """
        if self.numbered is None:
            return False
        user, number = self.numbered
        done = latest_of_user(self.store, user)
        return done is not None and done.identifier >= number

    @property
    def keys_move(self) -> bool:
        """Whether keys may move between partitions, so that only a writer with all rows of a key can route them."""
        return self.store.bucket_mode is BucketMode.CROSS_PARTITION

    def routed(
        self, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None = None, *, alone: bool = False
    ) -> Iterator[tuple[int, RoutedRows]]:
        """Check the rows of one Spark partition and yield them by bucket.

        The values are (place, rows of one bucket). The place is the position of the rows in the order of the DataFrame.

        Args:
            batches: The rows.
            task: Number of the Spark partition.
            kind_column: Column of row kinds; None without one.
            alone: Whether this task is the only task of the write. If false, all tasks assign the same dynamic bucket
                to a new key, regardless of the number of keys (`PartitionIndex.assign_apart`).

        Raises:
            DredgeError: A row cannot be written; the error names the row by its number in the partition.
        """
        return self._routed(batches, task, kind_column, self.assign(alone=alone))

    def to_assigners(
        self, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None = None
    ) -> Iterator[tuple[int, RoutedRows]]:
        """Check rows, and yield (place in the DataFrame, rows of one assigner), for tables with dynamic buckets.

        An assigner is a task that assigns buckets to keys. `RoutedRows.bucket` is the number of the assigner here.
        """
        return self._routed(batches, task, kind_column, partial(owner_of, self.assigners))

    def assigned(self, groups: Iterable[tuple[int, RoutedRows]]) -> Iterator[tuple[int, RoutedRows]]:
        """Assign buckets to the rows that an assigner received, and yield (place in the DataFrame, rows of one bucket).

        Args:
            groups: Rows as :meth:`to_assigners` yields them.

        Raises:
            CorruptFile: A hash index is missing or damaged.
            InvalidOption: All buckets are full.
        """
        indexes: dict[int, HashIndexes] = {}
        for place, sent in groups:
            number = sent.bucket
            if number not in indexes:
                indexes[number] = self._indexes(number)
            for partition, bucket, rows in bucket_groups(self.store, sent.rows, indexes[number].assign):
                at = pa.array(rows)
                kinds = None if sent.kinds is None else sent.kinds.take(at)
                yield place, RoutedRows(partition, bucket, sent.rows.take(at), kinds)

    def check_rows(
        self, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None = None
    ) -> Iterator[tuple[int, pa.Table, pa.Array | None]]:
        """Yield the rows of one Spark partition, checked for writing, as (place in the DataFrame, rows, row kinds).

        The row kinds are int8; None in place of the kinds means that all rows are inserts.

        Raises DredgeError if a row cannot be written; the error names the row by its number in the partition.
        """
        writer = self._writer()
        for place, numbering, rows, kinds in self._pieces(batches, task, kind_column):
            yield place, *writer.check_rows(rows, kinds, numbering)

    def to_key_owners(
        self, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None = None
    ) -> Iterator[tuple[int, RoutedRows]]:
        """Yield (place in the DataFrame, rows of one assigner) for a table whose keys may move between partitions.

        All rows of a key are sent to the same assigner in their order, even if the rows are in different partitions.
        `RoutedRows.bucket` is the number of the assigner here.
        """
        for place, rows, kinds in self.check_rows(batches, task, kind_column):
            if not rows.num_rows:
                continue
            # the key without partition columns: rows of one key have one, too
            owners = assigner_of(0, key_hashes(self.store, rows), self.assigners)
            for number, positions in same_numbers(owners):
                at = pa.array(positions)
                yield place, RoutedRows(b"", number, rows.take(at), None if kinds is None else kinds.take(at))

    def moved(self, groups: Iterable[tuple[int, RoutedRows]]) -> Iterator[tuple[int, RoutedRows]]:
        """Route received rows to the buckets of their keys, and yield (place in the DataFrame, rows of one bucket).

        A key that moves to a different partition gets a delete in its previous partition.

        Args:
            groups: Rows as :meth:`to_key_owners` yields them.

        Raises:
            CorruptFile: A file is missing or damaged.
            StorageFull: The disk is full.
        """
        gathered: dict[int, KeyMoves] = {}
        try:
            for _, sent in groups:
                if sent.bucket not in gathered:
                    gathered[sent.bucket] = KeyMoves(self.store, self.assigners, sent.bucket, self.planned_ms)
                gathered[sent.bucket].add(sent.rows, sent.kinds)
            for number, moves in gathered.items():
                place = number << _TASK_SHIFT
                for to in moves.routed(Known(self.history.snapshot)):
                    yield place, RoutedRows(to.partition, to.bucket, to.rows, to.kinds, to.follows)
                    place += to.rows.num_rows
        finally:
            for moves in gathered.values():
                moves.close()

    def assign(self, *, alone: bool) -> Assign | None:
        """Return the rule that assigns rows to dynamic buckets, or None if the buckets are not dynamic.

        Args:
            alone: Whether one process writes all rows of the job. If false, every task assigns the same bucket to a new
                key.
        """
        if self.store.bucket_mode is not BucketMode.DYNAMIC:
            return None
        if not alone:
            return self._indexes().assign_apart
        rules = AssignerRules.of(self.store.options, self.store.name)
        return HashIndexes(self.store, self.history, rules, ignore=self.overwrite).assign

    def _indexes(self, assigner: int | None = None) -> HashIndexes:
        """Return the hash indexes for one assigner, or for all assigners if ``assigner`` is None."""
        rules = AssignerRules.of(self.store.options, self.store.name, self.assigners, assigner or 0)
        return HashIndexes(self.store, self.history, rules, ignore=self.overwrite, share=assigner)

    def _routed(
        self, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None, assign: Assign | None
    ) -> Iterator[tuple[int, RoutedRows]]:
        writer = self._writer()
        for place, numbering, rows, kinds in self._pieces(batches, task, kind_column):
            for routed in writer.routed(rows, kinds, numbering, assign):
                yield place, routed

    def _pieces(
        self, batches: Iterable[pa.RecordBatch], task: int, kind_column: str | None
    ) -> Iterator[tuple[int, RowNumbering, pa.Table, pa.Array | None]]:
        """Yield the rows in order as (place in the DataFrame, row numbering for errors, rows, row kinds).

        The row kinds come from the column ``kind_column``; they are None without such a column.
        """
        from pyspark import TaskContext

        seen, context = 0, TaskContext.get()
        zone = self.zone or (None if context is None else context.getLocalProperty(SESSION_ZONE))
        for piece in in_pieces(batches):
            numbering, kinds = RowNumbering(seen, f"partition {task} of the DataFrame"), None
            rows = piece.rename_columns(list(self.columns)) if self.columns else piece
            if kind_column is not None:
                kinds = kinds_from_text(rows.column(kind_column), self.store.name, kind_column, numbering.row)
                rows = rows.drop_columns([kind_column])
            rows = rows.rename_columns(names_in_table(rows.column_names, self.store.schema))
            if self.assigns:
                rows = assign_rows(rows, self.store.schema, zone, self.store.name, numbering)
            rows = in_session_zone(rows, self.store.schema, zone, self.store.name)
            yield (task << _TASK_SHIFT) + seen, numbering, rows, kinds
            seen += piece.num_rows

    def write(self, groups: Iterable[RoutedRows], task: int, sequence_offset: int | None = None) -> list[bytes]:
        """Write rows with one writer and return its commit messages as bytes.

        After an error the task's files are deleted. If Spark kills a task, its files are found by the start that the
        task recorded in :attr:`folder`.

        Args:
            groups: The rows by bucket.
            task: Number of the Spark task.
            sequence_offset: Number to add to every bucket's first sequence number; None if no other task writes to the
                same buckets.

        Raises:
            WriterStale: The schema or the buckets of the table changed after the plan was made.
            StorageFull: The storage has no space left.
            SparkFailed: The driver ended the write before this task finished.
            DredgeError: An error of ``groups``.
        """
        assert self.folder is not None
        keep_small_arrays()
        writer = self._writer(sequence_offset, task)
        attempt = writer.store.own_uuid
        messages: list[CommitMessage] = []
        has_files = False
        try:
            for routed in groups:
                if not has_files:
                    self.folder.begin(attempt)
                    has_files = True
                writer.add_routed(routed)
            if has_files:
                messages = writer.prepare_commit()
                self.folder.finish(attempt)
        except BaseException:
            writer.abort()
            abort(self.store, messages)
            self.folder.forget(attempt)
            raise
        if has_files and not messages:
            self.folder.forget(attempt)
        return [message.to_bytes() for message in messages]

    def commit(self, outcomes: Sequence[TaskOutcome], scope: Scope = None) -> int | None:
        """Publish the files of the tasks as one snapshot, then compact, expire and tag as after a batch write.

        The commit is made in the calling process; large compactions are jobs of the driver's session.

        Args:
            outcomes: Outcomes of the tasks that wrote rows.
            scope: Rows that an overwrite replaces; None without an overwrite.

        Returns:
            The id of the snapshot, or None if nothing was committed.
        """
        return maintain_after_commit(self.store, self.publish(outcomes, scope), runner_beside_driver)

    def publish(self, outcomes: Sequence[TaskOutcome], scope: Scope = None) -> int | None:
        """Publish the files of the tasks as one snapshot.

        If the table already has this numbered commit or a later one of the same user, the new files are deleted.

        Args:
            outcomes: The outcomes of all tasks.
            scope: The rows that an overwrite replaces: column values of the partitions (``{}`` for the whole table),
                None for the partitions that get rows, or a SQL condition on partition columns. Not used by appends.

        Returns:
            The snapshot id, or None if nothing was committed.

        Raises:
            DredgeError: The error of the first task that failed; the job's files are deleted.
            CommitConflict: Another commit changed the same files; the job's files are deleted.
            InvalidData: A row is outside the overwritten partitions; the job's files are deleted.
            CommitUnknown: The outcome of the commit is not known; the files are kept.
        """
        messages = self.messages(outcomes)
        try:
            snapshot_id = self._published(messages, outcomes, scope)
        except BaseException:
            self.end(messages, failed=True)
            raise
        self.end(messages)
        return snapshot_id

    def _published(self, messages: list[CommitMessage], outcomes: Sequence[TaskOutcome], scope: Scope) -> int | None:
        messages = self.join_messages(messages, outcomes)
        with discard_on_failure(self.store, messages):
            if self.is_there:  # the same commit was made meanwhile by another process: it has other files
                abort(self.store, messages)
                return None
            user, number = self.numbered or (None, BATCH)
            committer = Committer(self.store, user)
            if self.overwrite:
                settle_shared_buckets(self.store, messages)
                written = (message.partition for message in messages if message.new_files and not message.follows)
                replaced = replaced_partitions(self.store, scope, written) if isinstance(scope, str) else scope
                done = committer.overwrite(messages, replaced, commit_identifier=number)
                show_moved_keys(self.store, messages)
            else:
                done = committer.commit(messages, commit_identifier=number, made_from=self.made_from)
        return done.snapshot_id

    def end(self, messages: Sequence[CommitMessage] = (), *, failed: bool = False) -> None:
        """End the write: running tasks fail, and files without a commit message are deleted.

        Files without a message come from tasks that were killed or whose result never arrived. Either Spark ran these
        tasks again (a lost executor, speculation), or the job failed.

        Args:
            messages: Commit messages of the tasks that answered; their files belong to the commit.
            failed: Whether the write failed, so that nothing was published.
        """
        if self.folder is None:
            return
        places = {place for message in messages for place in self.store.write_dirs(message.partition, message.bucket)}
        known = not failed and bool(places)
        self.folder.end(self.family, messages, {*places, f"{self.store.root}/index"} if known else None, failed=failed)

    def join_messages(self, messages: list[CommitMessage], outcomes: Sequence[TaskOutcome]) -> list[CommitMessage]:
        """Return the messages of all tasks with their hash indexes joined, for one commit.

        Raises the error of the first task that failed; the files of all tasks are then deleted.
        """
        with discard_on_failure(self.store, messages):
            raise_first(outcomes)
            return self._of_one_moment(joined_indexes(self.store, messages))

    def _of_one_moment(self, messages: list[CommitMessage]) -> list[CommitMessage]:
        """Return the messages with one creation time, now, for all new files of a table that postpones bucketing.

        Messages of other tables are returned unchanged. A compaction reads postponed files by creation time, and files
        with equal times in the order of the tasks that wrote them. With different times, it would read the rows in the
        order in which the tasks finished.
        """
        if self.store.bucket_mode is not BucketMode.POSTPONE:
            return messages
        now = self.store.clock.now_ms()
        return [
            replace(message, new_files=tuple(replace(file, creation_time_ms=now) for file in message.new_files))
            for message in messages
        ]

    def messages(self, outcomes: Sequence[TaskOutcome]) -> list[CommitMessage]:
        """Return the commit messages of the tasks that succeeded."""
        return [CommitMessage.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]

    def _writer(self, sequence_offset: int | None = None, task: int = 0) -> TableWrite:
        kind = TableWrite
        if self.deletes:
            from lsm_core.write.row_changes import DeletingWrite

            kind = DeletingWrite
        return kind(
            self.store.in_family(self.family),
            self.writer_id,
            self.overwrite,
            sequence_offset=sequence_offset or 0,
            planned=self.history,
            number=task,
            shared=sequence_offset is not None,
        )


def write_table(
    df: DataFrame | Rows,
    table: Any,
    *,
    row_kind_column: str | None = None,
    overwrite: bool | Mapping[str, Any] | str | None = None,
    commit_user: str | None = None,
    commit_identifier: int | None = None,
    merge_schema: Catalog | None = None,
) -> int | None:
    """Write rows to a table as one commit.

    Columns are matched by exact name first, otherwise without regard to case. Missing columns take their default or
    null. Rows of one key are merged in the order of ``df`` (its partitions one after the other), so a retry writes the
    same rows. The driver receives commit messages only.

    ``commit_user`` and ``commit_identifier`` make the commit happen once, as long as the snapshot of the user's newest
    commit is kept. If the user has committed this or a larger number, nothing is written. In `foreachBatch`, use a name
    that only this query uses, and the number of the batch.

    Args:
        df: A DataFrame of Spark or of pandas on Spark, or rows of this process (a pandas or Polars frame, Arrow data).
            Rows of this process are written here without a Spark job.
        table: A table, or its name if the session's setting `spark.dredge.warehouse` (or the environment variable
            DREDGE_WAREHOUSE) names the warehouse.
        row_kind_column: Column of ``df`` with "+I", "-U", "+U" or "-D" per row; None for `_row_kind` if ``df`` has it
            and the table does not.
        overwrite: True or ``{}`` replaces the rows that `overwrite_scope` selects; a partition overwrite mode set in
            the session has priority over the table's option. A mapping replaces the partitions with these values. SQL
            text (`day >= 'mon'`) replaces the partitions for which the text is true, and rows of ``df`` outside these
            partitions are refused.
        commit_user: Name of the writer, together with ``commit_identifier``.
        commit_identifier: Number of the commit, which grows with each commit of the user.
        merge_schema: The table's catalog, to merge the schema of ``df`` into the table before the write; None for no
            schema merging. Columns that only ``df`` has are added, and types are widened (`merging_changes`). The new
            schema stays even if the write then fails.

    Returns:
        The snapshot id, or None if there are no rows or the numbered commit was made before.

    Raises:
        InvalidData: A row cannot be written. After this and the following errors nothing is committed and all files of
            tasks are deleted, including unfinished files of killed workers.
        InvalidSchema: The types of ``df`` cannot be merged into the table.
        ColumnNotFound: The table or ``df`` lacks a column.
        UnsupportedFeature: The table cannot be written, for example a system table.
        CommitConflict: Another commit changed the same files.
        SparkFailed: The Spark job failed.
        CommitUnknown: The outcome of the commit is not known; files of tasks that answered are kept.
    """
    frame = spark_frame(df)
    spark = active_session() if frame is None else frame.sparkSession
    store = store_of(table, spark)
    rows = as_rows(df, store.name) if frame is None else None
    schema = frame.schema if rows is None else rows.schema
    store, row_kind_column = prepare_write(store, schema, row_kind_column, merge_schema)
    numbered = numbered_commit(store, commit_user, commit_identifier)
    if isinstance(overwrite, str):
        replace_condition(store, overwrite)
    assigners = 1 if frame is None else tasks_of(frame.sparkSession)
    job = WriteJob.plan(store, overwrite is not None and overwrite is not False, assigners, numbered)
    if job.is_there:
        return None
    named = overwrite if isinstance(overwrite, (Mapping, str)) and overwrite else None
    scope = named or overwrite_scope(store, None, None if spark is None else spark.conf.get(OVERWRITE_MODE, None))
    if rows is not None:
        snapshot_id = _write_rows(rows, job, row_kind_column, scope)
        return maintain_after_commit(store, snapshot_id, None if spark is None else runner_of(spark))
    return maintain_after_commit(store, write_frame(frame, job, row_kind_column, scope), runner_of(frame.sparkSession))


def spark_frame(rows: Any) -> Any:
    """Return a DataFrame of Spark or of pandas on Spark as a Spark DataFrame, or None for rows of this process."""
    if hasattr(rows, "sparkSession"):
        return rows
    return rows.to_spark() if type(rows).__module__.startswith("pyspark.pandas.") else None


def active_session() -> SparkSession | None:
    """Return the active session of this process, or None without one."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _write_rows(
    rows: pa.Table | pa.RecordBatchReader, job: WriteJob, row_kind_column: str | None, scope: Scope
) -> int | None:
    """Write rows in this process as planned, and publish them as one snapshot.

    Returns the snapshot id, or None if nothing was committed. Raises DredgeError if the write or the commit fails. If
    the outcome of the commit is not known (CommitUnknown), the files are kept.

    Args:
        rows: The rows.
        job: The planned write.
        row_kind_column: Column of row kinds; None without one.
        scope: Rows that an overwrite replaces; None without an overwrite.
    """
    job = replace(job, assigns=False)
    batches = (_decoded(batch) for batch in (rows.to_batches() if isinstance(rows, pa.Table) else rows))
    if job.keys_move:
        checked_rows = job.check_rows(batches, 0, row_kind_column)
        groups = job.moved((place, RoutedRows(b"", 0, *piece)) for place, *piece in checked_rows)
    else:
        groups = job.routed(batches, 0, row_kind_column, alone=True)
    try:
        outcomes = [TaskOutcome(0, data) for data in job.write((group for _, group in groups), 0)]
    except BaseException:
        job.end(failed=True)
        raise
    return job.publish(outcomes, scope)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without dictionaries, because a slice of rows would keep the whole dictionary in memory."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def runner_of(spark: SparkSession) -> ChooseRunner:
    """Return a function that chooses the runner of a compaction after a write.

    The function returns a runner for a Spark job if the compaction reads 64 MiB or more. It returns None for a smaller
    compaction, which runs in this process, because a job costs more.

    Args:
        spark: The session of the write.
    """

    def choose(plan: MaintenancePlan) -> Runner | None:
        return None if plan.estimate.bytes_in < _WORTH_A_JOB else run

    def run(store: TableStore, tasks: Sequence[BucketTask]) -> Iterator[BucketResult]:
        return compact_in_tasks(spark, store, tasks, Memory.of(spark, None), meter_of(store, tasks, None))

    return choose


def runner_beside_driver(plan: MaintenancePlan) -> Runner | None:
    """Return the runner of a compaction that follows a commit of the data source.

    Args:
        plan: The compaction.

    Returns:
        A runner that uses a job of the driver's session. None for threads of this process: for compactions that read
            less than 64 MiB, and if the driver cannot be reached (Connect).
    """
    if plan.estimate.bytes_in < _WORTH_A_JOB:
        return None
    spark = session_of_driver()
    return None if spark is None else runner_of(spark)(plan)


def tasks_of(spark: SparkSession) -> int:
    """Return the number of tasks of a shuffle in the session."""
    return int(str(spark.conf.get("spark.sql.shuffle.partitions", "8")))


def write_frame(df: DataFrame, job: WriteJob, row_kind_column: str | None = None, scope: Scope = None) -> int | None:
    """Run a planned write and publish its files; after an error delete the files.

    Returns the snapshot id, or None if nothing was committed. Raises DredgeError if a task or the commit fails. If the
    outcome of the commit is not known (CommitUnknown), the files are kept.

    Args:
        df: The rows.
        job: The planned write.
        row_kind_column: Column of row kinds; None without one.
        scope: Rows that an overwrite replaces; None without an overwrite.
    """
    try:
        outcomes = _outcomes_of_tasks(df, job, row_kind_column)
    except BaseException:
        job.end(failed=True)
        raise
    return job.publish(outcomes, scope)


def prepare_write(
    store: TableStore,
    incoming: StructType | pa.Schema,
    kind_column: str | None = None,
    merge_schema: Catalog | None = None,
    *,
    explicit_casts: bool = False,
    advice: str = "leave it out, or add it to the table with merge_schema=catalog",
) -> tuple[TableStore, str | None]:
    """Check the schema of rows against the table before any task runs, and merge the schema if requested.

    Args:
        store: The table.
        incoming: Schema of the rows.
        kind_column: Column of row kinds; None for `_row_kind` if only the rows have it.
        merge_schema: The table's catalog, to merge the schema of the rows into the table; None to merge nothing.
        explicit_casts: Whether types are also merged if values may be lost.
        advice: Advice of the error about a column that the table does not have.

    Returns:
        The table with the merged schema, and the name of the column of row kinds (None without one).

    Raises:
        InvalidSchema: The types of the rows cannot be merged into the table.
        ColumnNotFound: The table or the rows lack a column.
        DredgeError: A column of the rows cannot be written into the table's column.
    """
    fields = incoming if isinstance(incoming, pa.Schema) else arrow_of(incoming, store.name)
    if kind_column is None:
        kind_column = kind_column_of(fields.names, store.schema)
    if kind_column is not None and kind_column not in fields.names:
        raise ColumnNotFound(store.name, kind_column, fields.names)
    fields = pa.schema([field for field in fields if field.name != kind_column])
    fields = pa.schema(
        [field.with_name(name) for field, name in zip(fields, names_in_table(fields.names, store.schema), strict=True)]
    )
    if merge_schema is not None:
        kinds = {field.name: from_arrow(field.type) for field in fields}
        changes = merging_changes(store.schema, kinds, store.name, explicit=explicit_casts)
        if changes:
            merge_schema.alter_table(store.name, changes)
            store.require_same()
            store = store.refresh()
    unknown = next((name for name in fields.names if not store.schema.has_field(name)), None)
    if unknown is not None:
        raise ColumnNotFound(store.name, unknown, store.schema.field_names, advice)
    if not isinstance(incoming, pa.Schema):
        require_assignable(fields, store.schema, store.name)
    require_columns(fields, store.schema, store.name)
    return store, kind_column


def kind_column_of(names: Sequence[str], schema: TableSchema) -> str | None:
    """Return the name of the column `_row_kind` of a frame, matched without regard to case.

    Returns:
        The column's name, or None if the frame has none or the table has a column of this name.
    """
    unknown = [
        name for name, own in zip(names, names_in_table(names, schema), strict=True) if not schema.has_field(own)
    ]
    return next((name for name in unknown if name.lower() == ROW_KIND), None)


def _outcomes_of_tasks(df: DataFrame, job: WriteJob, row_kind_column: str | None) -> list[TaskOutcome]:
    """Write the rows in one Spark job, with the shuffles (by assigner, by bucket) that the bucket mode needs."""
    store, spark, title = job.store, df.sparkSession, f"writing table {job.store.name}"
    tasks = tasks_of(spark)
    use_this_python(spark)
    job = replace(job, zone=str(spark.conf.get(SESSION_ZONE)))
    if not all(map(str.isidentifier, df.columns)):  # Spark finds no column `a.b` where it hands rows to Python
        job = replace(job, columns=tuple(df.columns))
        df = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    with translate_errors(title), batches_of(spark, _BATCH_BYTES):
        if store.bucket_mode in (BucketMode.UNAWARE, BucketMode.POSTPONE):  # any task may write any row
            answers = df.mapInArrow(Shipped(_written_where_it_lies, job, row_kind_column), ANSWER_DDL)
        elif store.bucket_mode in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION):
            moved = df.mapInArrow(Shipped(_sent_to_assigners, job, row_kind_column), MESSAGES_DDL)
            moved = moved.repartitionById(job.assigners, "slot").sortWithinPartitions("partition", "bucket", "place")
            moved = moved.mapInArrow(Shipped(_sent_by_assigners, job, tasks), MESSAGES_DDL)
            sorted_in_slots = moved.repartitionById(tasks, "slot").sortWithinPartitions("partition", "bucket", "place")
            answers = sorted_in_slots.mapInArrow(Shipped(_written_as_received, job), ANSWER_DDL)
        else:
            answers = df.mapInArrow(Shipped(_written_where_it_lies, job, row_kind_column), ANSWER_DDL)
            size = _bytes_below(answers)
            if size is None or size > _ONE_TASK_BYTES or not _is_one_task(answers, size):
                slots = _slots(df, store, size)
                moved = df.mapInArrow(Shipped(_sent_to_buckets, job, row_kind_column, slots), MESSAGES_DDL)
                in_order = moved.repartitionById(slots, "slot").sortWithinPartitions("partition", "bucket", "place")
                answers = in_order.mapInArrow(Shipped(_written_as_received, job), ANSWER_DDL)
        return collect(answers, title)


def _bytes_below(answers: DataFrame) -> int | None:
    """Return Spark's estimate of the input of ``answers`` in bytes, or None if a Connect server reports no estimate."""
    plan = getattr(answers, "_jdf", None)
    if plan is None:
        return estimated_bytes(answers._explain_string(mode="cost"))
    whole = plan.queryExecution().optimizedPlan()
    below = whole.children().apply(0) if whole.children().size() else whole  # all of it, where nothing is left to map
    return int(str(below.stats().sizeInBytes()))


def estimated_bytes(plan: str) -> int | None:
    """Return the input size of the top operator of an optimized plan, as `explain("cost")` prints it.

    Returns:
        The size in bytes, or None if the plan shows none.
    """
    optimized = plan.partition("== Optimized Logical Plan ==")[2].partition("== Physical Plan ==")[0]
    sizes = [float(number) * 1024 ** _UNITS.index(unit) for number, unit in _ESTIMATE.findall(optimized)]
    return int(sizes[min(1, len(sizes) - 1)]) if sizes else None


def _is_one_task(answers: DataFrame, size: int) -> bool:
    """Return whether one task has all rows, so that the same files result without a shuffle.

    A few small files that Spark would distribute to several cores are also read by one task, unless the query has slow
    operators, because the start of more tasks takes longer than the write. Returns False on Connect, which does not
    expose the number of tasks, and if this number is known only after a part of the query has run.
    """
    if getattr(answers, "_jdf", None) is None:
        return False
    execution = answers._jdf.queryExecution()
    operators = _operators(execution.executedPlan())
    # stages of their own would be run to count what comes out of them, and Python's sources asked twice
    if any(name.startswith(_RUN_BEFORE) or "Exchange" in name for name in operators):
        return False
    spark = answers.sparkSession
    read_only = all(name.startswith(_QUICK) for name in operators[1:])  # but for our own
    if size <= _JOINED_BYTES and read_only and spark.conf.get(_LEAST_PARTITIONS, None) is None:
        with setting(spark, _LEAST_PARTITIONS, "1"):
            return int(execution.toRdd().getNumPartitions()) == 1
    return int(execution.toRdd().getNumPartitions()) == 1


def _operators(plan: Any) -> list[str]:
    """Return the names of a physical plan's operators from the top, without stages of generated code."""
    name = str(plan.nodeName())
    names = [] if name.startswith(("WholeStageCodegen", "InputAdapter")) else [name]
    if plan.subqueries().size():
        names.append("Subquery")
    children = plan.children()
    for place in range(children.size()):
        names += _operators(children.apply(place))
    return names


def numbered_commit(store: TableStore, user: str | None, number: int | str | None) -> tuple[str, int] | None:
    """Return user and number of a commit that must happen once, or None if neither is set.

    Args:
        store: The table.
        user: Name of the writer.
        number: Number of the commit, also as text.

    Raises:
        InvalidOption: One of the two is missing, or the number is not a whole number from 0 on.
    """
    if user is None and number is None:
        return None
    if not user:
        raise InvalidOption("commit_user", user, "a name of the writer's own beside commit_identifier", store.name)
    if number is None:
        raise InvalidOption("commit_identifier", number, "a number that grows, beside commit_user", store.name)
    parsed = parse_digits(number) if isinstance(number, str) else number
    named = whole_number(number if parsed is None else parsed, "commit_identifier", store.name, least=0)
    if named >= BATCH:
        raise InvalidOption(
            "commit_identifier", named, f"a number below {BATCH}, which says that a commit has none", store.name
        )
    return user, named


def _slots(df: DataFrame, store: TableStore, size: int | None) -> int:
    """Return the number of writer tasks: one per bucket, for partitioned tables about `spark.sql.shuffle.partitions`.

    No two tasks write the same bucket. A small DataFrame (``size`` bytes, None if unknown) gets at most as many tasks
    as run at once. Starting a task costs as much as writing `_TASK_BYTES`.
    """
    buckets = store.options.bucket
    most = buckets
    if store.schema.partition_keys:
        most *= max(1, -(-tasks_of(df.sparkSession) // buckets))
    if size is None:
        return most
    return min(most, max(slots_of(df.sparkSession), -(-size // _TASK_BYTES)))


def in_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches in order, joined to tables of at least `_PIECE_BYTES`, except the last table.

    A table exceeds this size by one batch at most.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in (frame for whole in batches for frame in in_frames(whole)):
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _PIECE_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _sent_to_buckets(
    job: WriteJob, kind_column: str | None, slots: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Send rows by bucket to the task (``slot``) that writes the bucket, in the first of two passes."""
    buckets = job.store.options.bucket

    def slot(routed: RoutedRows) -> int:
        return (zlib.crc32(routed.partition) % max(1, slots // buckets) * buckets + routed.bucket) % slots

    yield from send_groups(job.routed(batches, task_number(), kind_column), slot)


def _sent_to_assigners(
    job: WriteJob, kind_column: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Send rows to the task that assigns buckets to their keys (``slot``), in the first of three passes.

    The three passes write tables with dynamic buckets.
    """
    send = job.to_key_owners if job.keys_move else job.to_assigners
    yield from send_groups(send(batches, task_number(), kind_column), attrgetter("bucket"))


def _sent_by_assigners(job: WriteJob, slots: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the second pass: send rows by assigned bucket to the task that writes this bucket.

    Rows arrive in order, so a retry assigns the same buckets.
    """
    assign = job.moved if job.keys_move else job.assigned

    def slot(routed: RoutedRows) -> int:
        return (zlib.crc32(routed.partition) + routed.bucket) % slots

    yield from send_groups(assign(receive_groups(job.store.schema, batches)), slot)


def send_groups(rows: Iterator[tuple[int, RoutedRows]], slot: Callable[[RoutedRows], int]) -> Iterator[pa.RecordBatch]:
    """Yield messages (`MESSAGES_DDL`) for groups of rows; a large group becomes several messages.

    Args:
        rows: Tuples of place and group. A place is a number that orders the groups as in the DataFrame: the place of a
            group plus its row count does not exceed the next greater place.
        slot: Function that returns the number of the task that receives a group.
    """
    keep_small_arrays()
    for _, piece in groupby(rows, key=itemgetter(0)):
        messages: list[tuple[Any, ...]] = []
        size = 0
        for place, routed in piece:
            to, at = slot(routed), 0
            for batch in (
                frame for batch_rows in routed.rows.combine_chunks().to_batches() for frame in in_frames(batch_rows)
            ):
                kinds = None
                if routed.kinds is not None:
                    kinds = routed.kinds.slice(at, batch.num_rows).to_numpy(zero_copy_only=False).tobytes()
                content = batch.serialize().to_pybytes()
                messages.append((to, routed.partition, routed.bucket, place + at, content, kinds, routed.follows))
                at += batch.num_rows
                size += len(content)
                if size >= _SENT_BYTES:
                    yield _batch_of(messages)
                    messages, size = [], 0
        if messages:
            yield _batch_of(messages)


def _batch_of(messages: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(values, field.type) for values, field in zip(zip(*messages, strict=True), MESSAGES, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def receive_groups(schema: TableSchema, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, RoutedRows]]:
    """Yield the groups of rows in messages (`MESSAGES_DDL`) as (place in the DataFrame, rows of one bucket)."""
    arrow_schema = schema.arrow_schema
    for batch in batches:
        for message in zip(*(batch.column(name) for name in MESSAGES.names[1:]), strict=True):
            partition, bucket, place, rows, kinds, follows = (value.as_py() for value in message)
            table = pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(rows), arrow_schema)])
            numbers = (
                None if kinds is None else pa.Array.from_buffers(pa.int8(), len(kinds), [None, pa.py_buffer(kinds)])
            )
            yield place, RoutedRows(partition, bucket, table, numbers, follows)


def _written_as_received(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the last pass of a write with shuffles: write the received rows of all buckets of the task with one writer.

    Yields the commit messages, or the error, as rows with the columns of `ANSWER_DDL`.
    """
    groups = (routed for _, routed in receive_groups(job.store.schema, batches))
    return answers(lambda: job.write(groups, task_number()))


def _written_where_it_lies(
    job: WriteJob, kind_column: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Route and write the rows of a task without a shuffle, for tables without buckets or one task with all rows."""
    groups = (routed for _, routed in job.routed(batches, task_number(), kind_column))
    return answers(lambda: job.write(groups, task_number()))


def answers(write: Callable[[], list[bytes]]) -> Iterator[pa.RecordBatch]:
    """Yield a row (`ANSWER_DDL`) per commit message of ``write``, or one row with the error of ``write``.

    The error is returned and not raised, so that Spark does not retry the task and the driver deletes the files.
    """
    task = task_number()
    try:
        messages = write()
    except Exception as error:  # noqa: BLE001  (raised by the driver)
        yield failure(task, error)
    else:
        for message in messages:
            yield answer(task, message)


def task_number() -> int:
    """Return the number of the Spark partition that this task processes."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())
