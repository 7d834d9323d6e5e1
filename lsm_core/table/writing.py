"""Writers and committers of the facade: for one batch, or for a stream of numbered commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from lsm_core.commit import BATCH, CommitMessage, CommitResult, Committer, discard_on_failure, messages_of
from lsm_core.commit.overwrite import asked_scope, moves_hidden_keys
from lsm_core.errors import InvalidOption, InvalidSchema, UnsupportedFeature
from lsm_core.format.partitions import partition_bytes, partition_values
from lsm_core.format.snapshot import MAX_SEQUENCE
from lsm_core.json_text import require_whole
from lsm_core.maintenance.actions.expire_partitions import ExpiryAtCommit
from lsm_core.metadata.mark_done import check_end_of_input, mark_end_of_input
from lsm_core.metadata.store import TableStore
from lsm_core.options import whole_number
from lsm_core.table.altering import as_type, changed
from lsm_core.table.schema_merging import merging_changes
from lsm_core.table.typed_errors import require_boolean
from lsm_core.write import Rows, StreamTableWrite, TableWrite
from lsm_core.write.incoming_rows import as_rows, require_columns

if TYPE_CHECKING:
    from lsm_core.maintenance.inline import ChooseRunner, WriteReport
    from lsm_core.table.schema_change import AltersTables
    from lsm_core.write import Compactor
    from lsm_core.write.background import WriteStall


_LOG: Final = logging.getLogger(__name__)
_STALLS_EVERY_SECONDS: Final = 60.0
"""Smallest number of seconds between two ledger entries about a writer's waits for compactions (write stalls)."""


def after_commit(
    store: TableStore,
    snapshot_ids: Sequence[int],
    *,
    batch: bool = True,
    compact: bool = True,
    runner: ChooseRunner | None = None,
    identifier: int = BATCH,
    partitions: ExpiryAtCommit | None = None,
) -> WriteReport:
    """Maintain a table after commits: expiry of partitions, compaction, expiry of snapshots, automatic tags.

    A `write-only` table is not compacted, and its snapshots do not expire and get no tags. With
    `dredge.compaction.inline` = never, a table is not compacted and its snapshots do not expire.

    Args:
        store: the table.
        snapshot_ids: the snapshots of the commits, oldest first.
        batch: whether the commits were those of a batch job.
        compact: False if the writer itself compacts, or if the caller wants no compaction.
        runner: function that returns the runner for the tasks of a compaction plan.
        identifier: commit identifier of the last commit.
        partitions: time of the last check for expired partitions; None for a writer of one commit.

    Returns:
        Report of the maintenance; failures are among the report's warnings.

    Source:
        Java `TableCommitImpl.maintain`.
    """
    from lsm_core.maintenance import inline

    return inline.after_commit(
        store,
        snapshot_ids,
        compact=compact,
        batch=batch,
        runner=runner,
        identifier=identifier,
        partitions=partitions,
    )


def maintain_after_commit(store: TableStore, snapshot_id: int | None, runner: ChooseRunner | None = None) -> int | None:
    """Maintain the table after a batch commit (:func:`after_commit`), and return the id of the commit's snapshot.

    Args:
        store: the table.
        snapshot_id: the snapshot; None if nothing was committed.
        runner: function that returns the runner for a compaction plan's tasks; None for threads of this process.
    """
    if snapshot_id is not None:
        after_commit(store, (snapshot_id,), runner=runner)
    return snapshot_id


def compactor(store: TableStore, *, automatic: bool) -> Compactor:
    """Return the compactor of a writer, which selects files by the rules of the maintenance action `compact`.

    Each result is verified by a second merge of sampled keys before it becomes part of a commit message.

    Args:
        store: the table.
        automatic: whether the compactor compacts written buckets on its own; never in a `write-only` table. If false,
            only buckets that the caller names are compacted.
    """
    from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
    from lsm_core.maintenance.verify import ReferenceJudge
    from lsm_core.write import Compactor

    return Compactor(store, bucket_task, ReferenceJudge(), automatic=automatic and not store.options.write_only)


class StreamWrite:
    """Writer for many commits, which compacts its buckets in the background unless the table is `write-only`.

    Leaving its ``with`` block deletes the files that :meth:`prepare_commit` did not return. After an error of any
    method, except InvalidData and RetractNotSupported of :meth:`write`, close the writer and open another.
    """

    def __init__(self, store: TableStore, commit_user: str) -> None:
        self.commit_user = commit_user
        self._store = store
        self._compactor = compactor(store, automatic=True)
        self._write = StreamTableWrite(store, commit_user, self._compactor)
        self._stalls: list[WriteStall] = []
        self._stalls_since = time.monotonic()

    def write(self, data: Rows, row_kinds: pa.Array | str | None = None) -> None:
        """Add rows.

        Args:
            data: rows as in :meth:`Table.write`.
            row_kinds: array of the kinds of the rows, or the one kind of all rows ("+I" ...); None for all inserts.

        Raises:
            InvalidData: a value does not fit; the error names the column.
            RetractNotSupported: the merge engine takes no deletes.
            StorageFull: the disk is full.
            DredgeError: a compaction in the background failed.
        """
        self._write.write(data, row_kinds)

    def compact(self, partition: Mapping[str, Any], bucket: int, full: bool = False) -> None:
        """Flush a bucket and start its compaction.

        Args:
            partition: typed values by partition column, ``{}`` without partitions.
            bucket: number of the bucket.
            full: compact all files of the bucket into its top level.
        """
        require_boolean("full", full, f"the writer's compact of {self._store.name}")
        self._write.compact(partition_bytes(self._store.schema, partition, self._store.name), bucket, full)

    def prepare_commit(
        self, wait_compaction: bool = False, commit_identifier: int | None = None
    ) -> list[CommitMessage]:
        """Finish the files of a commit and return its messages, with the compactions that ended since the last call.

        Args:
            wait_compaction: wait for running compactions.
            commit_identifier: number of the commit, larger than the last one; None for the next number.

        Raises:
            InvalidData: the identifier is not larger than the last one.
            WriterStale: the table's schema changed.
            StorageFull: the disk is full.
            VerificationFailed: the output of a compaction does not hold the same rows as its input.
        """
        require_boolean("wait_compaction", wait_compaction, f"prepare_commit of {self._store.name}")
        number = self._write.last_identifier + 1 if commit_identifier is None else commit_identifier
        messages = self._write.checkpoint(wait_compaction, number)
        self._tell_stalls(at_once=False)
        return messages

    def close(self) -> None:
        """End the background work, and delete the files that no returned commit message names.

        Write stalls that are not in the ledger yet are recorded in the ledger.
        """
        self._write.abort()
        self._tell_stalls(at_once=True)

    abort = close

    def _tell_stalls(self, *, at_once: bool) -> None:
        """Record the waits for compactions in the ledger, at most once a minute unless ``at_once``."""
        self._stalls += self._compactor.take_stalls()
        now = time.monotonic()
        if not self._stalls or not (at_once or now - self._stalls_since >= _STALLS_EVERY_SECONDS):
            return
        from lsm_core.maintenance.ledger import record_stalls

        record_stalls(self._store, self._stalls, self.commit_user)
        self._stalls, self._stalls_since = [], now

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StreamCommit:
    """Committer of the numbered commits of one commit user; each number is committed at most once."""

    def __init__(
        self,
        store: TableStore,
        commit_user: str,
        *,
        compact: bool = False,
        runner: ChooseRunner | None = None,
        previous_ms: int | None = None,
    ) -> None:
        """Prepare commits.

        Args:
            store: the table.
            commit_user: name of the job.
            compact: compact after commits, for messages of writers that do not compact themselves. No writer compacts
                append tables.
            runner: function that returns the runner for a compaction plan's tasks; None for threads of this process.
            previous_ms: time of the job's previous commit (epoch ms), for a job with a process per commit.
        """
        self._store, self._committer = store, Committer(store, commit_user)
        self._compact, self._runner = compact or not store.has_primary_key, runner
        self._expiry = ExpiryAtCommit(store, previous_ms)

    def filter_and_commit(
        self,
        committables: Mapping[int, Sequence[CommitMessage]],
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Make the numbered commits that this user has not made yet, in order of identifier.

        After a crash or CommitUnknown, the same call can be repeated. A compaction is left out if another writer
        replaced its input files; no rows are lost. Then :func:`after_commit` maintains the table.

        Args:
            committables: messages by commit identifier.
            watermark: epoch ms; the caller states that no older rows will come. None for no statement.
            properties: properties to store in the snapshot, or None.

        Returns:
            The ids of the new snapshots.

        Raises:
            CorruptFile: a file of a commit is missing.
            CommitConflict: the commit does not fit; nothing was committed.
            CommitUnknown: the outcome could not be read.
        """
        ids = self._committer.filter_and_commit(committables, **commit_arguments(self._store, watermark, properties))
        if committables:
            last = max(committables)
            after_commit(
                self._store,
                ids,
                batch=False,
                compact=self._compact,
                runner=self._runner,
                identifier=last,
                partitions=self._expiry,
            )
        return ids

    def commit(
        self,
        messages: Sequence[CommitMessage],
        commit_identifier: int,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Make one numbered commit, unless this user has made it already.

        Args:
            messages: messages of the commit.
            commit_identifier: number of the commit.
            watermark: epoch ms; the caller states that no older rows will come. None for no statement.
            properties: properties to store in the snapshot, or None.

        Returns:
            The ids of the new snapshots.

        Raises:
            DredgeError: an error of :meth:`filter_and_commit`.
        """
        return self.filter_and_commit({commit_identifier: messages}, watermark=watermark, properties=properties)


class BatchWrite:
    """Writer of rows for one commit. Leaving its ``with`` block by an error calls :meth:`abort`.

    The writer compacts only the buckets passed to :meth:`compact`; with `commit.force-compact`, all written buckets.
    """

    def __init__(self, store: TableStore, overwrite: bool = False) -> None:
        self._store = store
        force = bool(store.options.get("commit.force-compact"))
        self._write = TableWrite(store, overwrite=overwrite, compactor=compactor(store, automatic=force))

    def write(self, data: Rows, row_kinds: pa.Array | str | None = None) -> None:
        """Add rows; arguments as in :meth:`Table.write`.

        Raises:
            InvalidData: a value does not fit; the error names the column.
            RetractNotSupported: the merge engine takes no deletes.
            UnsupportedFeature: the table cannot be written.
        """
        self._write.write(data, row_kinds)

    def compact(self, partition: Mapping[str, Any], bucket: int, full: bool = False) -> None:
        """Flush a bucket and compact it.

        Args:
            partition: typed values by partition column, ``{}`` without partitions.
            bucket: number of the bucket.
            full: compact all files of the bucket into its top level.

        Raises:
            InvalidOption: ``full`` is true and the table is `write-only`.
            UnsupportedFeature: writers do not compact this kind of table.
        """
        require_boolean("full", full, f"the writer's compact of {self._store.name}")
        self._write.compact(partition_bytes(self._store.schema, partition, self._store.name), bucket, full)

    def prepare_commit(self) -> list[CommitMessage]:
        """Finish the files and compactions, and return the commit messages."""
        return self._write.prepare_commit(wait_compaction=True)

    def abort(self) -> None:
        """Delete the written files that :meth:`prepare_commit` did not return."""
        self._write.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()


class BatchCommit:
    """Committer of messages as one commit; after the commit, :func:`after_commit` maintains the table."""

    def __init__(
        self,
        store: TableStore,
        commit_user: str | None = None,
        *,
        compact: bool = True,
        runner: ChooseRunner | None = None,
    ) -> None:
        """Prepare the commit.

        Args:
            store: the table.
            commit_user: `commitUser` of the snapshot; None for a random user.
            compact: False if the buckets are not compacted after the commit.
            runner: function that returns the runner for a compaction plan's tasks; None for threads of this process.
        """
        self._compact, self._runner = compact, runner
        check_end_of_input(store)
        self._store, self._committer = store, Committer(store, commit_user)
        self.report: WriteReport | None = None
        """Report of the last commit and of the maintenance after the commit; None before the first commit."""
        self._expiry = ExpiryAtCommit(store)

    def commit(
        self,
        messages: Sequence[CommitMessage],
        commit_identifier: int | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int | None:
        """Commit the files of messages.

        Messages are committed once. A repeated commit by the same named user and identifier returns the snapshot of the
        first commit; by another user or identifier, the commit conflicts. After a definite failure, the files that the
        messages added are deleted, unless the table already contains the files. After CommitUnknown, no file is
        deleted. With `partition.end-input-to-done`, the commit's partitions are marked done
        (:meth:`Table.mark_partitions_done`).

        Args:
            messages: messages of :class:`BatchWrite`.
            commit_identifier: number of the commit, or None.
            watermark: epoch ms; the caller states that no older rows will come. A table's watermark never decreases.
            properties: texts by property name, stored in the snapshot.

        Returns:
            The id of the last snapshot, or None without changes.

        Raises:
            InvalidData: a message was made for another table.
            InvalidOption: the watermark or a property cannot be used.
            CommitConflict: the commit does not fit; nothing was committed.
            CommitUnknown: the outcome could not be read.
        """
        identifier = BATCH if commit_identifier is None else commit_identifier
        mine = messages_of(self._store, messages)
        with discard_on_failure(self._store, mine):
            more = commit_arguments(self._store, watermark, properties)
            done = self._committer.commit(mine, commit_identifier=identifier, **more)
        mark_end_of_input(self._store, [message.partition for message in mine])
        return self._finish(done, identifier)

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        partition_spec: Mapping[str, Any] | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int | None:
        """Replace the rows of a partition by the files of messages.

        Without ``partition_spec``, the same rows are replaced as by ``overwrite=True`` in :meth:`Table.write`. The
        further arguments, the result and the errors are as for :meth:`commit`.
        """
        mine = messages_of(self._store, messages)
        with discard_on_failure(self._store, mine):
            spec = asked_scope(self._store, partition_spec)
            done = self._committer.overwrite(mine, spec, **commit_arguments(self._store, watermark, properties))
        show_moved_keys(self._store, mine)
        mark_end_of_input(self._store, [message.partition for message in mine])
        return self._finish(done, BATCH)

    def _finish(self, done: CommitResult, identifier: int) -> int | None:
        self.report = after_commit(
            self._store,
            done.snapshot_ids,
            compact=self._compact,
            runner=self._runner,
            identifier=identifier,
            partitions=self._expiry,
        )
        return done.snapshot_id


def show_moved_keys(store: TableStore, messages: Sequence[CommitMessage]) -> None:
    """Compact the buckets of an overwrite that moved keys out of partitions that are not overwritten.

    The compaction is needed if readers see only compacted rows. One commit removes the keys from their old partitions
    and shows the keys in their new partitions, as the compaction of Java's writers does. A `write-only` table is left
    to its compaction job. A failed compaction is only logged, because the overwrite is already committed.

    Args:
        store: the table.
        messages: messages of the overwrite.
    """
    moved = any(file.delete_row_count for message in messages for file in message.new_files)
    if not (moved and moves_hidden_keys(store)):
        return
    if store.options.write_only:
        _LOG.warning(
            "table %s: rows of this overwrite that came from other partitions are not visible before the next "
            "compaction "
            "(write-only)",
            store.name,
        )
        return
    from lsm_core.maintenance import apply_plan, plan_compaction

    partitions = {message.partition for message in messages}
    try:
        values = [partition_values(store.schema, partition) for partition in sorted(partitions)]
        apply_plan(store, plan_compaction(store, partitions=values))
    except Exception as error:  # noqa: BLE001  (a caller who saw it would write the rows once more)
        _LOG.warning(
            "table %s: the overwrite is committed, but its rows are not visible before the next compaction: %s",
            store.name,
            error,
        )


def commit_arguments(store: TableStore, watermark: int | None, properties: Mapping[str, str] | None) -> dict[str, Any]:
    """Check watermark and properties of a commit, and return them as keyword arguments.

    Raises:
        InvalidOption: no snapshot can hold the watermark or a property.
        InvalidData: a property contains a lone surrogate.
    """
    mark = None if watermark is None else whole_number(watermark, "watermark", store.name)
    if mark is not None and not -(1 << 63) <= mark < 1 << 63:
        raise InvalidOption("watermark", watermark, "a 64-bit number of milliseconds since 1970", store.name)
    for key, value in (properties or {}).items():
        if not isinstance(key, str) or not isinstance(value, str) or not key:
            raise InvalidOption("properties", {key: value}, "a mapping of names to texts", store.name)
        require_whole(key + value, store.name, "a property of the commit:")
        if key.startswith("dredge.") or key == MAX_SEQUENCE:
            raise InvalidOption("properties", key, "a name that is not reserved for the engine", store.name)
    return {"watermark": mark, "properties": dict(properties) if properties else None}


def write_once(
    store: TableStore,
    data: Rows,
    row_kinds: pa.Array | str | None,
    overwrite: bool | Mapping[str, Any] | None,
    watermark: int | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    schema_mode: str | None = None,
    catalog: AltersTables | None = None,
    compact: bool = True,
    runner: ChooseRunner | None = None,
) -> WriteReport:
    """Write rows and commit them; after a definite failure of the write or the commit, no new file is left behind.

    Args:
        store: the table.
        data: the rows, as in :meth:`Table.write`.
        row_kinds: array of the kinds of the rows, or the one kind of all rows ("+I" ...); None for all inserts.
        overwrite: whether the rows replace the table's rows, or a mapping of the partition that they replace.
        watermark: watermark of the snapshot (epoch ms): the caller states that no older rows will come. None for none.
        properties: texts by property name, stored in the snapshot, or None.
        schema_mode: "merge" to merge the schema of ``data`` into the table's schema before the write.
        catalog: the catalog of the table, which ``schema_mode`` needs.
        compact: whether to compact the table after the commit, if its options say so.
        runner: function that returns the runner for a compaction plan's tasks; None for threads of this process.

    Returns:
        Report of the write and of the maintenance after the write.
    """
    if not (overwrite is None or isinstance(overwrite, (bool, Mapping))):
        raise InvalidOption("overwrite", overwrite, "True, or a mapping of partition columns to values", store.name)
    replacing = overwrite is not None and overwrite is not False
    commit_arguments(store, watermark, properties)
    if schema_mode is not None:
        store, data = with_merged_schema(catalog, store, data, schema_mode)
    with BatchWrite(store, overwrite=replacing) as writer:
        writer.write(data, row_kinds)
        messages = writer.prepare_commit()
    commit = BatchCommit(store, compact=compact, runner=runner)
    if replacing:
        spec = overwrite if isinstance(overwrite, Mapping) else None
        commit.overwrite(messages, spec, watermark=watermark, properties=properties)
    else:
        commit.commit(messages, watermark=watermark, properties=properties)
    assert commit.report is not None
    return commit.report


def with_merged_schema(
    catalog: AltersTables | None, store: TableStore, data: Rows, mode: str
) -> tuple[TableStore, pa.Table | pa.RecordBatchReader]:
    """Add the columns that only ``data`` has to the table, and widen column types to those of ``data``.

    Data without a known type (only nulls or empty lists) changes no column.

    Args:
        catalog: the catalog of the table.
        store: the table.
        data: rows to write.
        mode: the caller's `schema_mode`; only "merge" is accepted.

    Returns:
        The table with its new schema, and the rows to write.

    Raises:
        InvalidOption: ``mode`` is not "merge".
        UnsupportedFeature: no catalog opened the table.
        InvalidSchema: types cannot be merged, or a new column has no type.
        InvalidData: no row of ``data`` could be written; the schema was not changed.
    """
    if mode != "merge":
        raise InvalidOption(
            "schema_mode", mode, '"merge", or None to refuse columns that the table does not have', store.name
        )
    if catalog is None:
        raise UnsupportedFeature(
            "schema_mode of a table that was not opened by a catalog; open it with Catalog.table", store.name
        )
    rows = as_rows(data, store.name)
    store.require_same()
    store = store.refresh()
    kinds = {}
    for field in rows.schema:
        kind = _known_type(field.type)
        if not store.schema.has_field(field.name) and kind != field.type:
            raise InvalidSchema(
                f"table {store.name}: new column '{field.name}' has only nulls; give it a type, or leave it out"
            )
        if kind is not None:
            kinds[field.name] = as_type(field.with_type(kind), store.name, (field.name,))
    changes = merging_changes(store.schema, kinds, store.name)
    if changes:
        require_columns(rows.schema, changed(store.schema, changes, store.name, None), store.name)
        catalog.alter_table(store.name, changes)
        store = store.refresh()
    return store, rows


def _known_type(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without its struct fields of Arrow type null; None if the whole type is unknown."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        known = [(field, _known_type(field.type)) for field in kind]
        fields = [field.with_type(inner) for field, inner in known if inner is not None]
        return pa.struct(fields) if fields or not known else None
    if pa.types.is_map(kind):
        key, item = _known_type(kind.key_type), _known_type(kind.item_type)
        return (
            None
            if key is None or item is None
            else kind
            if (key, item) == (kind.key_type, kind.item_type)
            else pa.map_(key, item)
        )
    if pa.types.is_nested(kind):
        return None if _known_type(kind.value_type) is None else kind
    return kind
