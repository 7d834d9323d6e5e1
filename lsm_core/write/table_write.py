"""Write rows into a table: route them to buckets, buffer within a byte budget, flush, and hand back commit messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage
from lsm_core.errors import DredgeError, InvalidData, ValueTooLarge
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.types import RowKind, is_retract
from lsm_core.write.append import AppendBucket
from lsm_core.write.bucket import fixed, unaware
from lsm_core.write.buffer import BufferPool
from lsm_core.write.key_value import KeyValueBucket
from lsm_core.write.restore import BucketHistory
from lsm_core.write.rows import Rows, as_rows, conform, conform_kinds, counted, counted_columns, kinds_of_column, pieces

_LARGEST_VALUE: Final = 64 << 20
_MOST_OPEN_FILES: Final = 10
"""Append files open at once (Java `write-max-writers-to-spill`)."""


class TableWrite:
    """A writer of one table (Java `TableWriteImpl`); the same class serves single processes and Spark's writer tasks.

    Memory is bounded by `write-buffer-size` over all buckets: when it is full the largest buffer is flushed. Files are
    on disk but invisible until the messages of :meth:`prepare_commit` are committed; :meth:`abort` deletes them.
    """

    def __init__(
        self, store: TableStore, commit_user: str | None = None, overwrite: bool = False, *, sequence_offset: int = 0
    ) -> None:
        """Open a writer. ``overwrite``: existing files will be replaced, so sequence numbers start at 0.

        ``sequence_offset`` is added to every bucket's first sequence number: tasks of one job that write the same bucket
        need ranges of their own, or the order of their rows would be left to chance.

        Raises :class:`UnsupportedFeature` before anything is written.
        """
        require_writable(store)
        self.store = store
        self.commit_user = commit_user
        self._history = BucketHistory(store, ignore=overwrite)
        self._buckets: dict[tuple[bytes, int], KeyValueBucket | AppendBucket] = {}
        self._pool = BufferPool(store.options)
        self._offset = sequence_offset
        self._rows_seen = 0
        self._kind_field = store.options.rowkind_field if store.has_primary_key else None
        self._counts = counted_columns(store.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.abort()

    def write(self, data: Rows, row_kinds: pa.Array | pa.ChunkedArray | None = None) -> None:
        """Add rows. ``row_kinds``: one of "+I" "-U" "+U" "-D" (or 0..3) per row; None = all "+I".

        Missing columns take their default or null. Raises :class:`InvalidData` or :class:`ColumnNotFound` naming column
        and row, :class:`WriterStale`; rows of the failed call may be in the buffer, so abort the writer then.
        """
        given = as_rows(data, self.store.name)
        if row_kinds is not None and isinstance(given, pa.RecordBatchReader):
            given = given.read_all()
        rows = 0 if isinstance(given, pa.RecordBatchReader) else given.num_rows
        kinds = conform_kinds(row_kinds, rows, self.store.name)
        start = 0
        for piece in pieces(given):
            part = None if kinds is None else kinds.slice(start, piece.num_rows)
            self._write_piece(piece, part)
            start += piece.num_rows

    def write_bucket(
        self, partition: bytes, bucket: int, data: Rows, kinds: pa.Array | pa.ChunkedArray | None = None
    ) -> None:
        """Add rows that were routed already (:func:`lsm_core.write.bucket.route`); otherwise as :meth:`write`."""
        given = as_rows(data, self.store.name)
        if kinds is not None and isinstance(given, pa.RecordBatchReader):
            given = given.read_all()
        rows = 0 if isinstance(given, pa.RecordBatchReader) else given.num_rows
        numbers = conform_kinds(kinds, rows, self.store.name)
        start = 0
        for piece in pieces(given):
            table = self._conform(piece)
            part = None if numbers is None else numbers.slice(start, piece.num_rows)
            table, part = self._without_ignored(*self._merged_inputs(table, part))
            self._add(partition, bucket, table, part)
            start += piece.num_rows

    def prepare_commit(self) -> list[CommitMessage]:
        """Flush everything; one message per touched bucket. The writer can be used on, for the next commit."""
        messages = []
        for (partition, bucket), writer in sorted(self._buckets.items()):
            files = tuple(writer.finish())
            if files:
                messages.append(CommitMessage(partition, bucket, writer.total_buckets, new_files=files))
        self._pool.close()
        return messages

    def abort(self) -> None:
        """Delete every file that was written and not yet handed out by :meth:`prepare_commit`."""
        for (partition, bucket), writer in self._buckets.items():
            writer.abort()
            for path in [path for file in writer.files for path in self.store.data_paths(partition, bucket, file)]:
                with suppress(OSError, DredgeError):
                    self.store.file_io.delete(path)
        self._buckets.clear()
        self._pool.close()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows in memory."""
        return sum(writer.buffered_bytes for writer in self._buckets.values())

    def _write_piece(self, piece: pa.Table, kinds: pa.Array | None) -> None:
        table, kinds = self._without_ignored(*self._merged_inputs(self._conform(piece), kinds))
        groups = list(self._groups(table))
        if self.store.options.bucket > 0:
            self._history.look_up(partition for partition, _, _ in groups)
        for partition, bucket, positions in groups:
            whole = len(positions) == table.num_rows
            index = pa.array(positions)
            rows = table if whole else table.take(index)
            chosen = kinds if whole or kinds is None else kinds.take(index)
            self._add(partition, bucket, rows, chosen)

    def _groups(self, table: pa.Table) -> Iterator[tuple[bytes, int, np.ndarray[Any, Any]]]:
        return fixed.groups(self.store, table) if self.store.options.bucket > 0 else unaware.groups(self.store, table)

    def _conform(self, piece: pa.Table) -> pa.Table:
        table = conform(piece, self.store.schema, self.store.name, self._rows_seen)
        self._rows_seen += piece.num_rows
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.nbytes > _LARGEST_VALUE and (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
                longest = pc.max(pc.binary_length(column)).as_py() or 0
                if longest > _LARGEST_VALUE:
                    raise ValueTooLarge(f"table {self.store.name}, column '{name}': one value has {longest} bytes")
        return table

    def _merged_inputs(self, table: pa.Table, kinds: pa.Array | None) -> tuple[pa.Table, pa.Array | None]:
        """Rows as the merge engine takes them: kinds from `rowkind.field`, counted columns as ones and zeros."""
        if self._kind_field is not None:
            if kinds is not None and np.asarray(kinds).any():
                reason = f"row kinds are given beside the column that rowkind.field names ('{self._kind_field}')"
                raise InvalidData(self.store.name, "row_kinds", reason)
            kinds = kinds_of_column(table, self._kind_field, self.store.name, self._rows_seen - table.num_rows)
        return counted(table, self._counts), kinds

    def _without_ignored(self, table: pa.Table, kinds: pa.Array | None) -> tuple[pa.Table, pa.Array | None]:
        """Rows without what `ignore-delete` and `ignore-update-before` drop; append tables take inserts only."""
        if kinds is None:
            return table, None
        if not self.store.schema.primary_keys:
            changes = np.flatnonzero(kinds.to_numpy(zero_copy_only=False))
            if len(changes):
                raise InvalidData(self.store.name, "row_kinds", f"row {changes[0]}: an append table takes inserts only")
            return table, None
        if self.store.options.ignore_delete:
            ignored = is_retract(kinds)
        elif self.store.options.get("ignore-update-before"):
            ignored = kinds.to_numpy(zero_copy_only=False) == RowKind.UPDATE_BEFORE
        else:
            return table, kinds
        if not ignored.any():
            return table, kinds
        kept = pa.array(~ignored)
        return table.filter(kept), kinds.filter(kept)

    def _add(self, partition: bytes, bucket: int, rows: pa.Table, kinds: pa.Array | None) -> None:
        if not rows.num_rows:
            return
        writer = self._buckets.get((partition, bucket))
        if writer is None:
            writer = self._buckets[partition, bucket] = self._open(partition, bucket)
        if isinstance(writer, KeyValueBucket):
            writer.add(rows, kinds)
        else:
            writer.add(rows)
        self._make_room()

    def _open(self, partition: bytes, bucket: int) -> KeyValueBucket | AppendBucket:
        total = self.store.options.bucket
        if total < 1:
            return AppendBucket(self.store, partition, bucket, unaware.TOTAL_BUCKETS)
        first = self._history.next_sequence(partition, bucket) + self._offset
        if not self.store.schema.primary_keys:
            return AppendBucket(self.store, partition, bucket, total, first)
        return KeyValueBucket(self.store, self._pool, partition, bucket, self.store.options.bucket, first)

    def _make_room(self) -> None:
        while self.buffered_bytes > self._pool.memory:
            largest = max(self._buckets.values(), key=lambda writer: writer.buffered_bytes)
            if not largest.buffered_bytes:
                return
            if isinstance(largest, KeyValueBucket):
                largest.make_room()
                continue
            largest.flush()
            self._close_files(largest)

    def _close_files(self, current: KeyValueBucket | AppendBucket) -> None:
        """Keep few append files open: the longest-open ones of other partitions are finished first."""
        opened = [w for w in self._buckets.values() if isinstance(w, AppendBucket) and w.is_open and w is not current]
        for writer in opened[: max(0, len(opened) - _MOST_OPEN_FILES + 1)]:
            writer.release()
