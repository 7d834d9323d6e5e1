"""Spark streams that write into a table (`writeStream`): an epoch is one commit, even if Spark runs the epoch again.

The commit user is the query: Spark's query id, which the checkpoint keeps, or a name from the options. The commit
identifier is the number of the epoch. For every epoch, Spark makes two writers from the same options. Spark sends the
first writer to the tasks; the second writer, in a separate process, commits the files of the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from lsm_core.clock import utc_text
from lsm_core.commit import CommitMessage, Committer, abort, discard_on_failure
from lsm_core.commit.history import LastOfUser, latest_of_user
from lsm_core.errors import (
    ColumnNotFound,
    CommitConflict,
    ConflictKind,
    DredgeError,
    InvalidOption,
    PlanStale,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.maintenance.actions.compact.planning import plan_compaction
from lsm_core.maintenance.actions.expire_partitions import ExpiryAtCommit
from lsm_core.maintenance.apply import apply_plan
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import BucketMode, TableStore, list_schema_ids, load_schema
from lsm_core.spark.spark_columns import names_in_table
from lsm_core.spark.spark_tasks import OfOneRelease, TaskOutcome, decode, encode, raise_first, raises_typed_errors
from lsm_core.spark.spark_write import WriteJob, kind_column_of, runner_beside_driver, task_number
from lsm_core.spark.table_writer import write_gathered, write_or_leave
from lsm_core.spark.write_folder import WriteFolder
from lsm_core.storage import file_io_for
from lsm_core.table.writing import StreamCommit, after_commit
from lsm_core.write import BucketHistory

_LOG = logging.getLogger(__name__)

QUERY_ID: Final = "write.stream.query-id"
COMPACTION: Final = "write.stream.compaction"
OPTIONS: Final = (QUERY_ID, COMPACTION)
"""Options that only streams accept; Spark passes keys in lower case."""
OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options of Spark's `writeStream` that Spark also passes to the data source."""

_COMPACTIONS: Final = ("follow", "none", "minor", "full")
_QUERY: Final = "spark.query-id"
_RUN: Final = "spark.run-id"
_MOST_LOOKED_AT: Final = 1_000


def _began_ms(checkpoint: str) -> int | None:
    """Return the time at which Spark created a checkpoint (epoch ms), or None if it is not known."""
    if not checkpoint:
        return None
    try:
        file_io, place = file_io_for(checkpoint)
        return next((status.mtime_ms for status in file_io.list_dir(place) if status.name == "metadata"), None)
    except (DredgeError, OSError):
        return None  # a checkpoint in a file system that only Spark knows


@dataclass(frozen=True)
class EpochMessage(WriterCommitMessage):
    """Result of one task of an epoch: its commit messages, or the error that ended it.

    Attributes:
        query: Id of the streaming query.
        run: Id of the run of the query.
        family: Prefix of the UUIDs in the names of the task's files.
        folder: Folder with the notes of the tasks. The message contains ``folder`` and ``family`` because the
            committing writer does not have the plan of the tasks.
        messages: Commit messages as bytes.
        failure: The error as `encode` returns it; b"" if the task succeeded.
        staged: File with the rows of the task, used if the task's data files would be small; "" if there is none.
    """

    query: str
    run: str
    family: str
    folder: str
    messages: tuple[bytes, ...] = ()
    failure: bytes = b""
    staged: str = ""


class StreamWriter(OfOneRelease, DataSourceStreamArrowWriter):
    """Writer of epochs; with ``overwrite`` (Spark's output mode `complete`) each epoch replaces the whole table."""

    def __init__(self, store: TableStore, columns: Sequence[str], overwrite: bool, options: Mapping[str, str]) -> None:
        """Check the columns and options of a stream.

        Args:
            store: The table.
            columns: Columns of the stream. A column `_row_kind` that the table lacks holds the kind of each row.
            overwrite: Whether each epoch replaces the whole table.
            options: Options of the stream.

        Raises:
            ColumnNotFound: The table lacks a column of the stream.
            InvalidOption: An option has an invalid value.
            UnsupportedFeature: Keys of the table may move between partitions.
        """
        self._store, self._overwrite = store, overwrite
        if store.bucket_mode is BucketMode.CROSS_PARTITION:
            feature = (
                "writeStream into a table whose keys may move between partitions; "
                "write each epoch by foreachBatch with lsm_core.spark.write_table"
            )
            raise UnsupportedFeature(feature, store.name)
        self._kind_column = kind_column_of(columns, store.schema)
        for name, own in zip(columns, names_in_table(columns, store.schema), strict=True):
            if name != self._kind_column and not store.schema.has_field(own):
                raise ColumnNotFound(store.name, name, store.schema.field_names)
        self._named = options.get(QUERY_ID)
        if self._named is not None and not self._named.strip():
            raise InvalidOption(QUERY_ID, self._named, "a name of the query's own", store.name)
        self._checkpoint = options.get("checkpointlocation", "")
        self._compaction = options.get(COMPACTION, "follow").lower()
        if self._compaction not in _COMPACTIONS:
            raise InvalidOption(COMPACTION, self._compaction, ", ".join(_COMPACTIONS), store.name)
        self._job: WriteJob | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the tasks, with the plan of the write; only writers in tasks need the plan."""
        if self._job is None:
            self._job = WriteJob.plan(self._store, self._overwrite)
        return super().__getstate__()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one Spark partition of an epoch.

        An error is returned in the message for `commit`. If the error were raised here, Spark would kill the remaining
        tasks of the epoch and leave their files behind.
        """
        context = TaskContext.get()
        assert context is not None
        assert self._job is not None
        query, run = (context.getLocalProperty(key) or "" for key in ("sql.streaming.queryId", "spark.jobGroup.id"))
        task, folder = task_number(), self._job.folder
        assert folder is not None
        about = (query, run, self._job.family, folder.folder)
        try:
            written, staged = write_or_leave(self._job, iterator, task, self._kind_column)
        except Exception as error:  # noqa: BLE001  (raised by commit)
            return EpochMessage(*about, failure=encode(error))
        return EpochMessage(*about, written, staged=staged)

    @raises_typed_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Publish an epoch as one snapshot unless the epoch was published before, then compact if the options say so.

        An epoch without files makes no snapshot, unless the output mode is `complete` and the table has rows.

        Raises:
            DredgeError: The error of the first task that failed.
            CommitConflict: A concurrent commit changed the same files, or a second query uses the same commit user. The
                epoch's files are deleted.
            CommitUnknown: The outcome of the commit is not known; the files are kept.
            TableNotFound: The table was created again since the query began, so it lacks the rows of earlier epochs.
        """
        epochs = [message for message in messages if isinstance(message, EpochMessage)]
        if not epochs:
            return
        job, outcomes = self._job_of(epochs[0]), self._outcomes(epochs)
        commit_messages = job.messages(outcomes)
        try:
            outcomes += self._gathered(job, epochs, commit_messages, outcomes)
            commit_messages = job.messages(outcomes)
            self._publish(job.join_messages(commit_messages, outcomes), epochs[0], batchId)
        except BaseException:
            job.end(commit_messages, failed=True)
            raise
        job.end(commit_messages)
        if self._compaction in ("minor", "full"):
            self._compact()

    def _publish(self, commit_messages: list[CommitMessage], of: EpochMessage, epoch: int) -> None:
        store, user = self._store, self._named or of.query
        with discard_on_failure(store, commit_messages):
            done = latest_of_user(store, user)
            if done is not None:
                self._require_own(done, user, of, epoch)
            elif epoch > 0:
                self._require_older_table(epoch)
            if done is not None and done.identifier >= epoch:
                abort(store, commit_messages)
                return
            properties = {_QUERY: of.query, _RUN: of.run}
            # Spark may use another process for each epoch, so the snapshot of the previous one holds the time.
            previous = None if done is None else snapshots.try_read(store, done.snapshot_id)
            previous_ms = None if previous is None else previous.time_millis
            if self._overwrite:
                committer = Committer(store, user)
                published = committer.overwrite(commit_messages, {}, commit_identifier=epoch, properties=properties)
                follows = self._compaction == "follow"
                ids = published.snapshot_ids
                after_commit(
                    store,
                    ids,
                    batch=False,
                    compact=follows,
                    identifier=epoch,
                    runner=runner_beside_driver,
                    partitions=ExpiryAtCommit(store, previous_ms),
                )
            else:
                commits = StreamCommit(
                    store,
                    user,
                    compact=self._compaction == "follow",
                    runner=runner_beside_driver,
                    previous_ms=previous_ms,
                )
                commits.filter_and_commit({epoch: commit_messages}, properties=properties)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Delete the files of all tasks of an epoch in which a task ended without a message.

        If no task has a message, the files are left to orphan removal. Spark also calls this method after a failed
        commit, with the messages of all tasks. Nothing is deleted then, because the commit has deleted its files if
        this was safe.
        """
        epochs = [message for message in messages if isinstance(message, EpochMessage)]
        if len(epochs) == len(messages) or not epochs:
            return
        job = self._job_of(epochs[0])
        with suppress(DredgeError, OSError):
            abort(self._store, job.messages(self._outcomes(epochs)))
        job.end(failed=True)

    def _gathered(
        self,
        job: WriteJob,
        epochs: Sequence[EpochMessage],
        commit_messages: list[CommitMessage],
        outcomes: Sequence[TaskOutcome],
    ) -> list[TaskOutcome]:
        """Write the rows that tasks stored in staged files, and return an outcome per commit message of these rows.

        Raises the error of the first task that failed, StorageFull, CorruptFile.
        """
        left = [(task, epoch.staged) for task, epoch in enumerate(epochs) if epoch.staged]
        if not left:
            return []
        with discard_on_failure(self._store, commit_messages):
            raise_first(outcomes)
            # this process does not have the plan of the tasks
            planned = replace(job, history=BucketHistory.of_whole_table(self._store, ignore=self._overwrite))
            return write_gathered(planned, left, [task for task, epoch in enumerate(epochs) if epoch.messages])

    def _job_of(self, epoch: EpochMessage) -> WriteJob:
        """Return the epoch's write with the fields that its commit needs."""
        folder, history = WriteFolder(self._store, epoch.folder), BucketHistory(self._store)
        return WriteJob(self._store, history, self._overwrite, family=epoch.family, folder=folder)

    def _outcomes(self, epochs: Sequence[EpochMessage]) -> list[TaskOutcome]:
        title, outcomes = f"writing table {self._store.name}", []
        for task, message in enumerate(epochs):
            outcomes += [TaskOutcome(task, data) for data in message.messages]
            outcomes += [TaskOutcome(task, error=decode(message.failure, title))] if message.failure else []
        return outcomes

    def _require_older_table(self, epoch: int) -> None:
        """Raise TableNotFound if the table was created after the query, whose earlier epochs the table then lacks.

        The query began when Spark wrote the file `metadata` of its checkpoint. Without that file the check is omitted.
        """
        store = self._store
        began_ms = _began_ms(self._checkpoint)
        ids = list_schema_ids(store.file_io, store.root)
        if began_ms is None or not ids:
            return
        created_ms = load_schema(store.file_io, store.root, ids[0]).time_millis
        if created_ms > began_ms:
            raise TableNotFound(
                f"table {store.name} was created again since its query began ({utc_text(created_ms)}, after "
                f"{utc_text(began_ms)}), so it lacks the rows of the epochs before {epoch}; start the query with a new "
                f"checkpoint in place of {self._checkpoint}"
            )

    def _require_own(self, done: LastOfUser, user: str, of: EpochMessage, epoch: int) -> None:
        """Raise CommitConflict if a second query, or a second run of this query, uses the same commit user.

        The epochs of two queries with one commit user could not be distinguished. The error names the commit user.

        Args:
            done: Last commit of the commit user.
            user: The commit user.
            of: Message of this query's epoch, with the ids of query and run.
            epoch: Number of the epoch to commit.
        """
        newest = snapshots.read(self._store, done.snapshot_id)
        properties = newest.properties or {}
        reason = None
        if properties.get(_QUERY) != of.query:
            reason = (
                f"table {self._store.name}: commits under the name '{user}' are those of another query "
                f"({properties.get(_QUERY, 'none of a stream')}), this one is {of.query}; a query with a new "
                f"checkpoint needs a new '{QUERY_ID}'"
            )
        elif (
            done.identifier >= epoch and properties.get(_RUN) != of.run and self._has_committed(user, of.run, newest.id)
        ):
            reason = (
                f"table {self._store.name}: query '{user}' runs twice at once, "
                f"its other run has committed epoch {done.identifier}"
            )
        if reason is not None:
            raise CommitConflict(ConflictKind.ALREADY_COMMITTED, (), user, newest.id, reason)

    def _has_committed(self, user: str, run: str, newest: int) -> bool:
        """Return whether one of the latest snapshots is a commit of run ``run`` by commit user ``user``.

        The snapshots are read from id ``newest`` downwards.
        """
        for number in range(newest, max(0, newest - _MOST_LOOKED_AT), -1):
            snapshot = snapshots.try_read(self._store, number)
            if snapshot is None:
                return False
            if snapshot.commit_user == user and (snapshot.properties or {}).get(_RUN) == run:
                return True
        return False

    def _compact(self) -> None:
        """Run one compaction. The epoch is committed already, so a conflict affects only the compaction."""
        try:
            plan = plan_compaction(self._store, self._compaction == "full")
            apply_plan(self._store, plan, runner_beside_driver(plan))
        except (CommitConflict, PlanStale) as error:
            _LOG.warning("table %s: it is compacted after another epoch: %s", self._store.name, error)
