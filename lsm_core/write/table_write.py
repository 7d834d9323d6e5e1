"""Writer of a table: routes rows to buckets, buffers them in limited memory, flushes, and returns commit messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, origin_at, origin_of
from lsm_core.errors import (
    DredgeError,
    InvalidData,
    InvalidOption,
    UnsupportedFeature,
    ValueTooLarge,
)
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.partitions import NoTime, java_texts, partition_text, strict_times
from lsm_core.merge import Refusals, merge_function
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_appends_only, require_compactable, require_writable
from lsm_core.types import RowKind, is_retract
from lsm_core.write.append import AppendBucket
from lsm_core.write.assigner import LARGEST_BUCKET, AssignerRules
from lsm_core.write.background import Bucket, BucketCompaction, Compactor
from lsm_core.write.bucket import Assign, groups, key_hashes
from lsm_core.write.cross_partition import KeyMoves, Known
from lsm_core.write.hash_indexes import HashIndexes
from lsm_core.write.incoming_rows import (
    ALL,
    RowNumbering,
    Rows,
    as_rows,
    conform,
    conform_kinds,
    conform_stored,
    counted,
    counted_columns,
    kinds_of_column,
    pieces,
)
from lsm_core.write.key_value import BufferPool, KeyValueBucket
from lsm_core.write.postpone import PostponeBucket, postponing
from lsm_core.write.restore import BucketHistory, live_files, live_vectors

_LARGEST_VALUE: Final = 64 << 20
_NO_BUCKETS: Final = -1
"""Value of `_TOTAL_BUCKETS` for append tables without buckets (format.md 19.7)."""
_MOST_OPEN_FILES: Final = 10
"""Largest number of append files that are open at once (Java `write-max-writers-to-spill`)."""


@dataclass(frozen=True)
class RoutedRows:
    """Validated rows of one bucket in the table's Arrow schema.

    Attributes:
        partition: BinaryRow of the partition.
        bucket: number of the bucket.
        rows: the rows.
        kinds: int8 row kinds (0..3), or None for all inserts.
        follows: whether none of the incoming rows had this partition's values. Then the rows are here only because
            their keys are or were in this partition (keys may move between partitions).
    """

    partition: bytes
    bucket: int
    rows: pa.Table
    kinds: pa.Array | None = None
    follows: bool = False


class TableWrite:
    """Writer of one table, for single processes and for Spark's tasks.

    Memory is bounded by `write-buffer-size` over all buckets. When it is full, the largest buffer is spilled to the
    local disk or flushed. Files are stored but invisible until the messages of :meth:`prepare_commit` are committed;
    :meth:`abort` deletes files that are in no message.

    Source: Paimon `TableWriteImpl`.
    """

    _merges_if_write_only: ClassVar = False
    """Whether an overwrite compacts level 0 even if `write-only` is set, for tables whose readers skip level 0.

    Java's writers leave this to the compaction job.
    """
    _holds_to_times: ClassVar = True
    """Whether this writer checks partition times if `partition.timestamp-format.strict` is set."""

    def __init__(
        self,
        store: TableStore,
        commit_user: str | None = None,
        overwrite: bool = False,
        *,
        sequence_offset: int = 0,
        compactor: Compactor | None = None,
        planned: BucketHistory | None = None,
        follow: bool = False,
        number: int | None = None,
        shared: bool = False,
    ) -> None:
        """Open a writer.

        Args:
            store: the table.
            commit_user: user of the commit.
            overwrite: existing files will be replaced, so sequence numbers start at 0.
            sequence_offset: number to add to every bucket's first sequence number. Tasks of one job that write the same
                bucket need separate ranges of sequence numbers, so that the order of their rows is defined.
            compactor: compacts the buckets of primary-key tables, automatically or by :meth:`compact`; None for no
                compaction.
            planned: history of the whole table from the planner of this write; the writer then reads no metadata.
            follow: look up each new bucket at the newest snapshot.
            number: number of this writer among the writers of one commit; a compaction reads their postponed rows in
                the order of these numbers.
            shared: several writers of the same commit write the same buckets. If readers skip level 0, an overwrite
                then leaves the merge of level 0 to `settle_shared_buckets`.

        Raises:
            UnsupportedFeature: the table cannot be written; nothing was written.
        """
        if planned is None:
            require_writable(store)
        if overwrite:
            require_appends_only(store, "an overwrite")
        self.store = store
        self.commit_user = commit_user
        self._planned = planned is not None
        # rows that follow their keys out of what is replaced come on top of what is there
        afresh = overwrite and store.bucket_mode is not BucketMode.CROSS_PARTITION
        self._history = BucketHistory(store, ignore=afresh, follow=follow) if planned is None else planned
        self._buckets: dict[tuple[bytes, int], KeyValueBucket | AppendBucket] = {}
        self._pool = BufferPool(store.options)
        self._compactor = compactor if store.has_primary_key and not overwrite else None
        self._force_compact = bool(store.options.get("commit.force-compact"))
        self._live_files: dict[tuple[bytes, int], list[DataFileMeta]] = {}
        self._sequence_offset = sequence_offset
        merges_always = self._merges_if_write_only and not store.options.snapshot_ordering
        merges = merges_always or not store.options.write_only
        hides = store.has_primary_key and store.options.batch_scan_skips_level0
        self._raises_files = afresh and not shared and merges and hides
        # an overwrite tells no changes
        self._input_changelog = store.options.changelog_producer == "input" and not overwrite
        self._write_incomplete = False
        """Whether the buffer has rows of a :meth:`write` that failed or has not finished."""
        self._kind_field = store.options.rowkind_field if store.has_primary_key else None
        self._counted_columns = counted_columns(store.schema)
        self._postponing: TableStore | None = None
        if store.bucket_mode is BucketMode.POSTPONE:
            self._compactor, self._postponing = None, postponing(store, commit_user, number)
        self._times = strict_times(store.schema.partition_keys, store.options) if self._holds_to_times else None
        self._timely: set[bytes] = set()
        self._indexes: HashIndexes | None = None
        if store.bucket_mode is BucketMode.DYNAMIC:
            rules = AssignerRules.of(store.options, store.name)
            self._indexes = HashIndexes(store, self._history, rules, ignore=overwrite)
        self._moves: KeyMoves | None = None
        # Of the commit that is being prepared: where keys were looked up, and the buckets that rows named,
        # which do not follow
        self._keys_as_of: int | None = None
        self._keys_after: tuple[int, ...] = ()
        self._named: set[tuple[bytes, int]] = set()
        if store.bucket_mode is BucketMode.CROSS_PARTITION:
            if planned is None:
                self._moves = KeyMoves(store)
            else:
                self._keys_as_of = 0 if planned.snapshot is None else planned.snapshot.id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.abort()

    def write(self, data: Rows, row_kinds: pa.Array | pa.ChunkedArray | str | int | None = None) -> None:
        """Add rows.

        If this method fails after it has buffered some of the rows, the writer can only be aborted.

        Args:
            data: rows as :data:`Rows`; missing columns become their default or null.
            row_kinds: "+I" "-U" "+U" "-D" (or 0..3) per row, or one kind for all rows; None for all "+I".

        Raises:
            InvalidData: a value does not fit its column; the error names column and row.
            ColumnNotFound: the table does not have a column of ``data``.
            RetractNotSupported: the merge engine does not support deletes; the error names column and key.
            WriterStale: the table's schema or number of buckets changed.
        """
        self._require_complete()
        incoming = as_rows(data, self.store.name)
        if row_kinds is not None and isinstance(incoming, pa.RecordBatchReader):
            incoming = incoming.read_all()
        rows = 0 if isinstance(incoming, pa.RecordBatchReader) else incoming.num_rows
        kinds = conform_kinds(row_kinds, rows, self.store.name)
        start = 0
        for piece in pieces(incoming):
            part = None if kinds is None else kinds.slice(start, piece.num_rows)
            self._write_piece(piece, part, ALL.after(start))
            start += piece.num_rows
        self._write_incomplete = False

    def routed(
        self,
        data: pa.Table,
        row_kinds: pa.Array | None = None,
        numbering: RowNumbering = ALL,
        assign: Assign | None = None,
    ) -> list[RoutedRows]:
        """Return the rows in the table's columns, grouped by bucket, in arrival order within each bucket.

        Pass the result to :meth:`add_routed` of this writer or of a writer in a different process. Rows are validated
        as by :meth:`write`. This writer buffers no rows and reads no metadata. The exception is a table of dynamic
        buckets, for which it reads the partition's hash index and remembers new keys.

        Args:
            data: incoming rows.
            row_kinds: int8 (0..3), or None.
            numbering: names of the rows in errors.
            assign: returns the buckets in a table of dynamic buckets; None for this writer's own index.
        """
        table, kinds = self.check_rows(data, row_kinds, numbering)
        if assign is None and self._indexes is not None:
            assign = self._indexes.assign
        routed_rows = []
        for partition, bucket, positions in groups(self.store, table, assign):
            self._require_time(partition)
            whole = len(positions) == table.num_rows
            index = pa.array(positions)
            rows = table if whole else table.take(index)
            routed_rows.append(
                RoutedRows(partition, bucket, rows, kinds if whole or kinds is None else kinds.take(index))
            )
        return routed_rows

    def check_rows(
        self, data: pa.Table, row_kinds: pa.Array | None = None, numbering: RowNumbering = ALL
    ) -> tuple[pa.Table, pa.Array | None]:
        """Validate rows, and return (rows, kinds) as they will be written.

        Args:
            data: incoming rows.
            row_kinds: int8 row kinds (0..3), or None for all inserts.
            numbering: names of the rows in errors.

        Returns:
            The rows in the table's columns, and their int8 kinds or None for all inserts.
        """
        table, kinds = self._merged_inputs(self._conform(data, numbering), row_kinds, numbering)
        table, kinds = self._without_ignored(table, kinds, numbering)
        if kinds is not None and self.store.has_primary_key:
            self._refusals.require_mergeable(table, kinds)
        return table, kinds

    def _require_time(self, partition: bytes) -> None:
        """Raise InvalidData for a partition without a valid time under `partition.timestamp-format.strict`."""
        if self._times is None or partition in self._timely:
            return
        try:
            self._times.extract(java_texts(self.store.schema, [partition])[0])
        except NoTime as error:
            text = partition_text(self.store.schema, partition, self.store.options)
            reason = f"partition {text} has no readable time, which partition.timestamp-format.strict requires: {error}"
            raise InvalidData(self.store.name, ", ".join(self.store.schema.partition_keys), reason) from error
        self._timely.add(partition)

    def add_routed(self, routed: RoutedRows) -> None:
        """Add rows that :meth:`routed` returned, in this or any other writer of the table.

        Raises:
            WriterStale: the table's schema or number of buckets changed.
            StorageFull: the disk is full.
        """
        self._require_complete()
        if self._indexes is not None:
            self._indexes.learn(routed.partition, routed.bucket, key_hashes(self.store, routed.rows))
        if not routed.follows:
            self._named.add((routed.partition, routed.bucket))
        self._add(routed.partition, routed.bucket, routed.rows, routed.kinds)
        self._write_incomplete = False

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """Flush a bucket and compact it in the background.

        The result is in the messages of the next :meth:`prepare_commit` that waits for the compaction or is called
        after the compaction has finished. In a `write-only` table nothing is compacted, as in Java.

        Args:
            partition: BinaryRow of the partition.
            bucket: number of the bucket.
            full: compact all files, instead of the files that the table's options select.

        Raises:
            InvalidOption: a full compaction of a `write-only` table.
            UnsupportedFeature: the table is not compacted by writers.
            InvalidData: the table does not have this bucket.
        """
        if self.store.options.write_only:
            if full:
                raise InvalidOption("write-only", "true", "false for a writer that compacts", self.store.name)
            return
        if self._compactor is None:
            writer_kind = "an overwriting writer" if self.store.has_primary_key else "a writer of an append table"
            writer_kind = writer_kind if self._postponing is None else "a writer of postponed rows"
            raise UnsupportedFeature(f"compaction by {writer_kind}; compact the table instead", self.store.name)
        require_compactable(self.store)
        last = self.store.options.bucket - 1 if self.store.options.bucket > 0 else LARGEST_BUCKET
        if not 0 <= bucket <= last:
            raise InvalidData(self.store.name, "", f"bucket {bucket} does not exist; the buckets are 0 to {last}")
        self._look_up([(partition, bucket)])
        writer = self._bucket(partition, bucket)
        assert isinstance(writer, KeyValueBucket)
        writer.flush(wait=True)
        compaction = writer.compaction or self._compaction_of(partition, bucket)
        writer.compaction = compaction
        compaction.sync(wait=True)
        compaction.trigger(full, requested=True)

    def prepare_commit(self, wait_compaction: bool = False) -> list[CommitMessage]:
        """Flush all buckets and return one message per changed bucket; the writer can be used for the next commit.

        After an error, abort the writer. If an earlier :meth:`write` failed after it had buffered rows, this method
        fails too.

        Args:
            wait_compaction: wait for running compactions; always true with `commit.force-compact`.

        Raises:
            TableNotFound: the table was dropped, renamed or replaced after this writer opened it.
        """
        return [message for message in self._prepared(wait_compaction) if not message.is_empty]

    def _prepared(self, wait: bool, full: bool = False) -> list[CommitMessage]:
        """Return one message per open bucket, including empty messages.

        All buckets are flushed before any bucket returns its files. With ``full``, each is first compacted fully.
        """
        self._require_complete()
        self.store.require_folder()
        if self._moves is not None:
            self._route_keys(self._moves)
        writers = [writer for _, writer in sorted(self._buckets.items())]
        for writer in writers:
            if isinstance(writer, KeyValueBucket):
                writer.settle(wait or self._force_compact, full)
            else:
                writer.settle(wait or self._force_compact)
        if self._indexes is not None:
            self._indexes.write()
        self._pool.close()
        origin = origin_at(self.store, self._history.snapshot) if self._planned else origin_of(self.store)
        messages = [replace(writer.drain(), origin=origin) for writer in writers]
        if self._keys_as_of is not None:
            named, self._named = self._named, set()
            return [
                replace(
                    message,
                    keys_as_of=self._keys_as_of,
                    keys_after=self._keys_after or None,
                    follows=None if (message.partition, message.bucket) in named else True,
                )
                if message.new_files
                else message
                for message in messages
            ]
        return messages if self._indexes is None else self._indexed(messages, self._indexes)

    def _route_keys(self, moves: KeyMoves) -> None:
        """Look up the keys of the rows collected for this commit, and add the rows to the buckets of their keys."""
        self._write_incomplete = True
        known = self._known_keys()
        self._keys_as_of = 0 if known.snapshot is None else known.snapshot.id
        for moved in moves.routed(known):
            self._look_up([(moved.partition, moved.bucket)])
            if not moved.follows:
                self._named.add((moved.partition, moved.bucket))
            self._require_time(moved.partition)
            self._add(moved.partition, moved.bucket, moved.rows, moved.kinds)
        self._write_incomplete = False

    def _known_keys(self) -> Known:
        """Return the state of the table in which keys are looked up: the newest snapshot."""
        return Known(snapshots.latest(self.store))

    def _indexed(self, messages: Sequence[CommitMessage], indexes: HashIndexes) -> list[CommitMessage]:
        """Return ``messages`` with the hash index files of their buckets added."""
        completed = []
        for message in messages:
            new, old = indexes.hand_out(message.partition, message.bucket)
            state = indexes.state_of(message.partition, message.bucket) if message.new_files or new else None
            completed.append(replace(message, new_index_files=new, deleted_index_files=old, index_state=state))
        indexes.handed_out()
        return completed

    def _require_complete(self) -> None:
        if self._write_incomplete:
            reason = "an earlier write failed with some of its rows buffered; abort this writer and write them again"
            raise DredgeError(f"table {self.store.name}: {reason}")

    def abort(self) -> None:
        """Delete every file that :meth:`prepare_commit` did not return, and end the compactions."""
        for (partition, bucket), writer in self._buckets.items():
            writer.abort()
            files = writer.files if isinstance(writer, AppendBucket) else [*writer.files, *writer.changelog]
            for path in [path for file in files for path in self.store.data_paths(partition, bucket, file)]:
                with suppress(OSError, DredgeError):
                    self.store.delete(path)
        self._buckets.clear()
        if self._indexes is not None:
            self._indexes.abort()
        if self._moves is not None:
            self._moves.close()
        self._write_incomplete = False
        self._pool.close()
        if self._compactor is not None:
            self._compactor.close()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the rows that all buckets of the writer buffer in memory."""
        return sum(writer.buffered_bytes for writer in self._buckets.values())

    def _write_piece(self, piece: pa.Table, kinds: pa.Array | None, numbering: RowNumbering) -> None:
        if self._moves is not None:
            self._moves.add(*self.check_rows(piece, kinds, numbering))
            return
        routed = self.routed(piece, kinds, numbering)
        self._look_up([(group.partition, group.bucket) for group in routed])
        for group in routed:
            self._add(group.partition, group.bucket, group.rows, group.kinds)

    @cached_property
    def _refusals(self) -> Refusals:
        """Rules for rows that the merge engine does not accept, created at the first row."""
        function = merge_function(self.store.schema, self.store.options.raw, self.store.name)
        return Refusals.of(function, self.store.schema, self.store.name)

    def _conform(self, piece: pa.Table, numbering: RowNumbering) -> pa.Table:
        table = conform(piece, self.store.schema, self.store.name, numbering)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.nbytes > _LARGEST_VALUE and (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
                longest = pc.max(pc.binary_length(column)).as_py() or 0
                if longest > _LARGEST_VALUE:
                    raise ValueTooLarge(f"table {self.store.name}, column '{name}': one value has {longest} bytes")
        return table

    def _merged_inputs(
        self, table: pa.Table, kinds: pa.Array | None, numbering: RowNumbering
    ) -> tuple[pa.Table, pa.Array | None]:
        """Return (rows, kinds) as the merge engine needs them.

        The kinds come from the column of `rowkind.field` if the option is set. Columns with aggregate function `count`
        have 1 for each value and 0 for each null. Kinds are int8, or None for all inserts.
        """
        if self._kind_field is not None:
            if kinds is not None and np.asarray(kinds).any():
                reason = f"row kinds come from the column of rowkind.field ('{self._kind_field}'); leave row_kinds out"
                raise InvalidData(self.store.name, "row_kinds", reason)
            kinds = kinds_of_column(table, self._kind_field, self.store.name, numbering)
        if self.store.has_primary_key:
            self._refusals.require_readable(table, self._ignored(kinds), numbering.row)
        return counted(table, self._counted_columns), kinds

    def _without_ignored(
        self, table: pa.Table, kinds: pa.Array | None, numbering: RowNumbering
    ) -> tuple[pa.Table, pa.Array | None]:
        """Return (rows, kinds) without the rows that `ignore-delete` and `ignore-update-before` drop.

        The kinds are int8, or None for all inserts. Raises InvalidData if a row of an append table is not a +I row.
        """
        if kinds is None:
            return table, None
        if not self.store.schema.primary_keys:
            changes = np.flatnonzero(kinds.to_numpy(zero_copy_only=False))
            if len(changes):
                raise InvalidData(
                    self.store.name,
                    "row_kinds",
                    f"{numbering.row(int(changes[0]))}: an append table accepts only +I",
                )
            return table, None
        ignored = self._ignored(kinds)
        if ignored is None or not ignored.any():
            return table, kinds
        kept = pa.array(~ignored)
        return table.filter(kept), kinds.filter(kept)

    def _ignored(self, kinds: pa.Array | None) -> np.ndarray[Any, Any] | None:
        """Return a mask of the rows that `ignore-delete` and `ignore-update-before` drop, or None to drop no rows."""
        if kinds is None:
            return None
        if self.store.options.ignore_delete:
            return is_retract(kinds)
        if self.store.options.get("ignore-update-before"):
            return np.asarray(kinds.to_numpy(zero_copy_only=False) == RowKind.UPDATE_BEFORE)
        return None

    def _add(self, partition: bytes, bucket: int, rows: pa.Table, kinds: pa.Array | None) -> None:
        if not rows.num_rows:
            return
        writer = self._bucket(partition, bucket)
        self._write_incomplete = True
        if isinstance(writer, KeyValueBucket | PostponeBucket):
            writer.add(rows, kinds)
        else:
            writer.add(rows)
        self._make_room()

    def _look_up(self, places: Sequence[tuple[bytes, int]]) -> None:
        """Read sequence numbers and live files of the buckets ``places`` that are not open, in one manifest read."""
        new = [place for place in places if place not in self._buckets]
        if self.store.bucket_mode in (BucketMode.UNAWARE, BucketMode.POSTPONE) or not new:
            return
        self._history.look_up(partition for partition, _ in new)
        if self._compactor is not None and self._compactor.automatic:
            self._live_files = live_files(self.store, self._history.snapshot, new)

    def _bucket(self, partition: bytes, bucket: int) -> KeyValueBucket | AppendBucket:
        writer = self._buckets.get((partition, bucket))
        if writer is None:
            writer = self._buckets[partition, bucket] = self._open(partition, bucket)
        return writer

    def _open(self, partition: bytes, bucket: int) -> KeyValueBucket | AppendBucket:
        total = self.store.options.bucket
        if self._postponing is not None:
            return PostponeBucket(self._postponing, partition)
        if self.store.bucket_mode is BucketMode.UNAWARE:
            return AppendBucket(self.store, partition, bucket, _NO_BUCKETS)
        first = self._history.next_sequence(partition, bucket) + self._sequence_offset
        if not self.store.schema.primary_keys:
            return AppendBucket(self.store, partition, bucket, total, first)
        compaction = None
        if self._compactor is not None and self._compactor.automatic:
            compaction = self._compaction_of(partition, bucket)
        return KeyValueBucket(
            self.store,
            self._pool,
            partition,
            bucket,
            total,
            first,
            compaction,
            input_changelog=self._input_changelog,
            raises_files=self._raises_files,
        )

    def _compaction_of(self, partition: bytes, bucket: int) -> BucketCompaction:
        """Return the LSM tree of a bucket: files at the snapshot of the `BucketHistory`, and files flushed since."""
        assert self._compactor is not None
        place, snapshot = (partition, bucket), self._history.snapshot
        files = self._live_files.pop(place, None)
        if files is None:
            files = live_files(self.store, snapshot, [place])[place]
        own = self._buckets[place].files if place in self._buckets else []
        base = 0 if snapshot is None else snapshot.id
        where = Bucket(partition, bucket, self.store.options.bucket)
        indexes = live_vectors(self.store, snapshot, {place: files})
        return BucketCompaction(self._compactor, where, [*files, *own], base, indexes.get(place, ()))

    @property
    def _spills_appends(self) -> bool:
        """Whether rows of append buckets are spilled to the local disk.

        They are if `write-buffer-for-append` is set, or if there are more buckets than `write-max-writers-to-spill`.
        """
        options = self.store.options
        return bool(options.get("write-buffer-for-append")) or len(self._buckets) > int(
            options.get("write-max-writers-to-spill")
        )

    def _make_room(self) -> None:
        while self.buffered_bytes > self._pool.memory:
            largest = max(self._buckets.values(), key=lambda writer: writer.buffered_bytes)
            if not largest.buffered_bytes:
                return
            if isinstance(largest, KeyValueBucket):
                largest.make_room()
                continue
            if isinstance(largest, AppendBucket) and self._spills_appends and largest.spill(self._pool):
                continue
            largest.flush()
            # Few append files stay open: the longest-open ones of other partitions are finished first.
            opened = [
                w for w in self._buckets.values() if isinstance(w, AppendBucket) and w.is_open and w is not largest
            ]
            for writer in opened[: max(0, len(opened) - _MOST_OPEN_FILES + 1)]:
                writer.release()


class StoredRows(TableWrite):
    """Writer that writes merged rows read from the table back unchanged, into the buckets that ``store`` defines.

    Nulls do not become defaults, and columns with aggregate function `count` keep their counts. The write is an
    overwrite, with sequence numbers from 0, unless ``beside`` is set: then existing rows are kept. ``store`` may have a
    number of buckets that differs from the table's.
    """

    _merges_if_write_only = True  # rows that were seen stay so
    _holds_to_times = False  # the table has them

    def __init__(
        self,
        store: TableStore,
        *,
        beside: bool = False,
        planned: BucketHistory | None = None,
        compactor: Compactor | None = None,
    ) -> None:
        super().__init__(store, overwrite=not beside, planned=planned, compactor=compactor)

    def _conform(self, piece: pa.Table, numbering: RowNumbering) -> pa.Table:
        del numbering
        return conform_stored(piece, self.store.schema)

    def _merged_inputs(
        self, table: pa.Table, kinds: pa.Array | None, numbering: RowNumbering
    ) -> tuple[pa.Table, pa.Array | None]:
        del numbering
        return table, kinds
