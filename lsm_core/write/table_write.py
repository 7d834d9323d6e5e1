"""Write rows into a table: route them to buckets, buffer within a byte budget, flush, and hand back commit messages."""

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
from lsm_core.errors import DredgeError, InvalidData, InvalidOption, UnsupportedFeature, ValueTooLarge
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.partition_path import java_texts, partition_text
from lsm_core.format.partition_time import NoTime, strict_times
from lsm_core.merge import Refusals, merge_function
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_compactable, require_writable
from lsm_core.types import RowKind, is_retract
from lsm_core.write.append import AppendBucket
from lsm_core.write.assigner import LARGEST_BUCKET, AssignerRules
from lsm_core.write.background import Bucket, BucketCompaction, Compactor
from lsm_core.write.bucket import Assign, groups, key_hashes
from lsm_core.write.buffer import BufferPool
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
from lsm_core.write.key_value import KeyValueBucket
from lsm_core.write.postpone import PostponeBucket, postponing
from lsm_core.write.restore import BucketHistory, live_files, live_vectors

_LARGEST_VALUE: Final = 64 << 20
_NO_BUCKETS: Final = -1
"""What `_TOTAL_BUCKETS` says for append tables without buckets (format.md 19.7)."""
_MOST_OPEN_FILES: Final = 10
"""Append files open at once (Java `write-max-writers-to-spill`)."""


@dataclass(frozen=True)
class RoutedRows:
    """Rows of one bucket in the table's Arrow schema, checked; ``kinds``: int8 (0..3) per row, None where all are inserts.

    ``follows``: see `CommitMessage`.
    """

    partition: bytes
    bucket: int
    rows: pa.Table
    kinds: pa.Array | None = None
    follows: bool = False


class TableWrite:
    """A writer of one table (Java `TableWriteImpl`); the same class serves single processes and Spark's writer tasks.

    Memory is bounded by `write-buffer-size` over all buckets: when it is full the largest buffer is flushed. Files are
    on disk but invisible until the messages of :meth:`prepare_commit` are committed; :meth:`abort` deletes them.
    """

    _merges_if_write_only: ClassVar = False
    """Whether an overwrite of a `write-only` table merges what readers would not see; Java's leaves it to the compaction job."""
    _holds_to_times: ClassVar = True
    """Whether `partition.timestamp-format.strict` counts here."""

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
        """Open a writer. ``overwrite``: existing files will be replaced, so sequence numbers start at 0.

        ``sequence_offset`` is added to every bucket's first sequence number: tasks of one job that write the same bucket
        need ranges of their own, or the order of their rows would be left to chance. ``compactor``: who compacts the buckets
        of primary-key tables, by itself or when asked (:meth:`compact`); None: nobody. ``planned``: the history of the whole
        table, read by whoever planned this write and found the table writable: this writer reads no metadata then. ``follow``: each
        bucket is looked up at the snapshot that is the newest then. ``number``: of this writer among those of one commit, in whose
        order postponed rows are replayed. ``shared``: other writers of the same commit write to the same buckets; where readers see
        compacted rows alone, an overwrite then leaves level 0 to `settle_shared_buckets`.

        Raises :class:`UnsupportedFeature` before anything is written.
        """
        if planned is None:
            require_writable(store)
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
        merges = self._merges_if_write_only or not store.options.write_only
        hides = store.has_primary_key and store.options.batch_scan_skips_level0
        self._raises_files = afresh and not shared and merges and hides
        # an overwrite tells no changes
        self._input_changelog = store.options.changelog_producer == "input" and not overwrite
        self._write_incomplete = False
        """Whether rows of a call that has not ended well lie in the buffer."""
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
        """Add rows. ``row_kinds``: one of "+I" "-U" "+U" "-D" (or 0..3) per row, or the one of all rows; None = all "+I".

        Missing columns take their default or null. Raises :class:`InvalidData` or :class:`ColumnNotFound` naming column
        and row, :class:`RetractNotSupported` naming column and key, :class:`WriterStale`. Where rows of the failed call are in
        the buffer already, the writer can only be aborted.
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
        """The rows in the table's shape by bucket, each in arrival order, for :meth:`add_routed` here or in another process.

        They are checked as :meth:`write` checks them, and errors call them as ``given`` says. Nothing is kept and no metadata read,
        but for tables of dynamic buckets: there the partition's hash index is, and new keys are known to this writer from now on.
        ``row_kinds``: int8 (0..3), or None. ``assign``: who gives such a table's rows a bucket in place of this writer.
        """
        table, kinds = self.checked(data, row_kinds, numbering)
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

    def checked(
        self, data: pa.Table, row_kinds: pa.Array | None = None, numbering: RowNumbering = ALL
    ) -> tuple[pa.Table, pa.Array | None]:
        """Rows and kinds (int8, or None) as they will be written: what :meth:`routed` groups, with its errors."""
        table, kinds = self._merged_inputs(self._conform(data, numbering), row_kinds, numbering)
        table, kinds = self._without_ignored(table, kinds, numbering)
        if kinds is not None and self.store.has_primary_key:
            self._refusals.require_mergeable(table, kinds)
        return table, kinds

    def _require_time(self, partition: bytes) -> None:
        """Raise InvalidData for a partition whose values tell no time, where `partition.timestamp-format.strict` asks for one."""
        if self._times is None or partition in self._timely:
            return
        try:
            self._times.extract(java_texts(self.store.schema, [partition])[0])
        except NoTime as error:
            text = partition_text(self.store.schema, partition, self.store.options)
            reason = f"partition {text} tells no time, as partition.timestamp-format.strict asks it to: {error}"
            raise InvalidData(self.store.name, ", ".join(self.store.schema.partition_keys), reason) from error
        self._timely.add(partition)

    def add_routed(self, routed: RoutedRows) -> None:
        """Add rows that :meth:`routed` of any writer of this table returned. Raises :class:`WriterStale`, :class:`StorageFull`."""
        self._require_complete()
        if self._indexes is not None:
            self._indexes.learn(routed.partition, routed.bucket, key_hashes(self.store, routed.rows))
        if not routed.follows:
            self._named.add((routed.partition, routed.bucket))
        self._add(routed.partition, routed.bucket, routed.rows, routed.kinds)
        self._write_incomplete = False

    def compact(self, partition: bytes, bucket: int, full: bool = False) -> None:
        """Flush a bucket and compact it in the background: what the table's options pick, or everything (``full``).

        The outcome is handed out by the next :meth:`prepare_commit` that waits or finds it done. Raises
        :class:`InvalidOption` for a full compaction under `write-only` (otherwise that does nothing, as in Java),
        :class:`UnsupportedFeature` for append tables and whatever else is not compacted here, :class:`InvalidData` for a
        bucket that the table has not.
        """
        if self.store.options.write_only:
            if full:
                raise InvalidOption("write-only", "true", "false for a writer that is to compact", self.store.name)
            return
        if self._compactor is None:
            writer_kind = "an overwriting writer" if self.store.has_primary_key else "a writer of an append table"
            writer_kind = writer_kind if self._postponing is None else "a writer of postponed rows"
            raise UnsupportedFeature(f"compaction by {writer_kind}; compact the table instead", self.store.name)
        require_compactable(self.store)
        last = self.store.options.bucket - 1 if self.store.options.bucket > 0 else LARGEST_BUCKET
        if not 0 <= bucket <= last:
            raise InvalidData(self.store.name, "", f"there is no bucket {bucket}, only 0 to {last}")
        self._look_up([(partition, bucket)])
        writer = self._bucket(partition, bucket)
        assert isinstance(writer, KeyValueBucket)
        writer.flush(wait=True)
        compaction = writer.compaction or self._compaction_of(partition, bucket)
        writer.compaction = compaction
        compaction.sync(wait=True)
        compaction.trigger(full, requested=True)

    def prepare_commit(self, wait_compaction: bool = False) -> list[CommitMessage]:
        """Flush everything; one message per touched bucket. The writer can be used on, for the next commit.

        ``wait_compaction`` (always with `commit.force-compact`): wait for the compactions that are under way. When this
        raises (after a :meth:`write` that failed halfway it always does) nothing was handed out: abort the writer.
        """
        return [message for message in self._prepared(wait_compaction) if not message.is_empty]

    def _prepared(self, wait: bool, full: bool = False) -> list[CommitMessage]:
        """One message a bucket, empty ones too; ``full``: each compacted as a whole before. All buckets are settled before the first one lets go of its files."""
        self._require_complete()
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
        """Send the rows gathered for this commit to where their keys live, or move the keys."""
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
        """Where keys live: in the newest snapshot."""
        return Known(snapshots.latest(self.store))

    def _indexed(self, messages: Sequence[CommitMessage], indexes: HashIndexes) -> list[CommitMessage]:
        """``messages`` with the hash indexes of their buckets."""
        completed = []
        for message in messages:
            new, old = indexes.hand_out(message.partition, message.bucket)
            state = indexes.state_of(message.partition, message.bucket) if message.new_files or new else None
            completed.append(replace(message, new_index_files=new, deleted_index_files=old, index_state=state))
        indexes.handed_out()
        return completed

    def _require_complete(self) -> None:
        if self._write_incomplete:
            reason = "a write failed halfway, some of its rows are in: abort it and write them again"
            raise DredgeError(f"table {self.store.name}: {reason}")

    def abort(self) -> None:
        """Delete every file that was written and not yet handed out by :meth:`prepare_commit`, and end the compactions."""
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
        """Bytes of rows in memory."""
        return sum(writer.buffered_bytes for writer in self._buckets.values())

    def _write_piece(self, piece: pa.Table, kinds: pa.Array | None, numbering: RowNumbering) -> None:
        if self._moves is not None:
            self._moves.add(*self.checked(piece, kinds, numbering))
            return
        routed = self.routed(piece, kinds, numbering)
        self._look_up([(group.partition, group.bucket) for group in routed])
        for group in routed:
            self._add(group.partition, group.bucket, group.rows, group.kinds)

    @cached_property
    def _refusals(self) -> Refusals:
        """Decided once, when rows come."""
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
        """Rows as the merge engine takes them: kinds from `rowkind.field`, counted columns as ones and zeros."""
        if self._kind_field is not None:
            if kinds is not None and np.asarray(kinds).any():
                reason = f"row kinds are given beside the column that rowkind.field names ('{self._kind_field}')"
                raise InvalidData(self.store.name, "row_kinds", reason)
            kinds = kinds_of_column(table, self._kind_field, self.store.name, numbering)
        if self.store.has_primary_key:
            self._refusals.require_readable(table, self._ignored(kinds), numbering.row)
        return counted(table, self._counted_columns), kinds

    def _without_ignored(
        self, table: pa.Table, kinds: pa.Array | None, numbering: RowNumbering
    ) -> tuple[pa.Table, pa.Array | None]:
        """Rows without what `ignore-delete` and `ignore-update-before` drop; append tables take inserts only."""
        if kinds is None:
            return table, None
        if not self.store.schema.primary_keys:
            changes = np.flatnonzero(kinds.to_numpy(zero_copy_only=False))
            if len(changes):
                raise InvalidData(
                    self.store.name,
                    "row_kinds",
                    f"{numbering.row(int(changes[0]))}: an append table takes inserts only",
                )
            return table, None
        ignored = self._ignored(kinds)
        if ignored is None or not ignored.any():
            return table, kinds
        kept = pa.array(~ignored)
        return table.filter(kept), kinds.filter(kept)

    def _ignored(self, kinds: pa.Array | None) -> np.ndarray[Any, Any] | None:
        """Which rows `ignore-delete` and `ignore-update-before` drop; None: nothing is dropped."""
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
        """Read, for all of ``places`` that have no writer yet at once, what the snapshot holds: sequence numbers, and files to compact."""
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
        """The tree of a bucket at the snapshot that the history saw, and what was flushed to it since."""
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
        """Whether rows of append buckets wait on the local disk: `write-buffer-for-append`, or more buckets than `write-max-writers-to-spill`."""
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
    """Writes merged rows that a table held before into the buckets they belong to now, as they stand.

    Nulls take no defaults, and counted columns hold counts already. Sequence numbers start at 0, as in an overwrite, unless the
    rows are written beside others (``beside``). ``store`` may have other buckets than the table.
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
