"""A stream of a table's changes: a first version if asked for, then snapshot after snapshot. Source: ``DataTableStreamScan``."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import consumers, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.options import whole_number
from lsm_core.read.changes.choice import ROW_KIND, Choice
from lsm_core.read.changes.follow import Follower, ends_stream, too_young
from lsm_core.read.changes.history import is_gone, next_snapshot
from lsm_core.read.changes.rows import Rows
from lsm_core.read.changes.starting import Beginning
from lsm_core.types import kinds_to_text

_BATCH_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class ChangeBatch:
    """Changed rows of one snapshot. A snapshot with more than some 64 MiB of them comes in several batches.

    ``row_kinds``: `+I`, `-U`, `+U` or `-D` of each row of ``table``; ``initial``: rows of the first version, read as a whole;
    ``last``: no more rows of the snapshot come; ``watermark``: the snapshot's (ms), None without one.
    """

    snapshot_id: int
    row_kinds: pa.Array
    table: pa.Table
    initial: bool = False
    last: bool = True
    watermark: int | None = None

    def to_arrow(self) -> pa.Table:
        """The rows with their kinds as first column, `_ROW_KIND`."""
        return self.table.add_column(0, pa.field(ROW_KIND, pa.string(), nullable=False), self.row_kinds)


@dataclass
class _Unit:
    """What is being read: a snapshot's changes, or a version as a whole; ``following``: the snapshot that comes next."""

    snapshot: Snapshot
    following: int
    initial: bool
    parts: Generator[tuple[pa.Table, bool], None, None]


class StreamScan:
    """Reads what changes, once and in order; never waits: :meth:`next` gives None when there is nothing new yet.

    Rows are read with the schema that the table had when the stream was opened. Not safe for several threads.
    """

    def __init__(
        self,
        store: TableStore,
        *,
        consumer_id: str | None = None,
        from_snapshot: int | None = None,
        columns: Sequence[str] | None = None,
        filter: object = None,  # noqa: A002  (the public name)
    ) -> None:
        """Raises UnsupportedFeature, ColumnNotFound, InvalidFilter, InvalidOption, InvalidData (a hostile consumer id)."""
        require_readable(store)
        self._store = store
        self.consumer_id = consumer_id if consumer_id is not None else store.options.get("consumer-id")
        if self.consumer_id is not None:
            consumers.consumer_path(store, self.consumer_id)
        self._choice = Choice.of(store, columns, filter)
        self._follower = Follower.of(self._choice)
        self._beginning = Beginning.of(store, self.consumer_id, from_snapshot)
        self._following: int | None = self._beginning.settled()
        self._unit: _Unit | None = None
        self.ended = False
        """Whether the stream has reached `scan.bounded.watermark`: nothing comes any more."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Schema of the tables that come."""
        return pa.schema(list(self._choice.schema)[1:])

    def next(self) -> ChangeBatch | None:
        """The next changed rows, never without a row; None when all that was committed so far has been read.

        Raises SnapshotNotFound when the stream fell behind and its next snapshot has expired (``expired`` is set), or when the
        table was rolled back behind it; CorruptFile.
        """
        try:
            return self._next()
        except CorruptFile as error:
            number = self._following if self._unit is None else self._unit.snapshot.id
            if number is not None and is_gone(self._store, number):
                why = f"snapshot {number} of table {self._store.name} expired while it was read"
                raise SnapshotNotFound(why, expired=True) from error
            raise

    def _next(self) -> ChangeBatch | None:
        while True:
            if self._unit is None:
                self._unit = self._open()
                if self._unit is None:
                    return None
            unit = self._unit
            found = next(unit.parts, None)
            if found is None or found[1]:
                self._following, self._unit = unit.following, None
            if found is not None:
                return self._batch(unit, *found)

    def checkpoint(self) -> int | None:
        """Id of the snapshot that comes next, to be given to :meth:`restore`; None before the first version was read to its end.

        With a consumer, that progress is recorded: expiry keeps what was not read. A snapshot that was only read in part comes
        again as a whole. Raises StorageFull.
        """
        if self.consumer_id is not None and self._following is not None:
            consumers.write_consumer(self._store, self.consumer_id, self._following)
        return self._following

    def restore(self, snapshot_id: int | None) -> None:
        """Go on with the changes of that snapshot, or from the very beginning (None), forgetting what was under way."""
        self.close()
        number = None if snapshot_id is None else whole_number(snapshot_id, "snapshot_id", self._store.name, least=1)
        self._following, self.ended = number, False

    def close(self) -> None:
        """Close the files that are open; what was under way comes again."""
        unit, self._unit = self._unit, None
        if unit is not None:
            unit.parts.close()

    def _batch(self, unit: _Unit, rows: pa.Table, last: bool) -> ChangeBatch:
        kinds = kinds_to_text(rows.column(VALUE_KIND))
        table = rows.remove_column(0)
        return ChangeBatch(unit.snapshot.id, kinds, table, unit.initial, last, unit.snapshot.watermark)

    def _open(self) -> _Unit | None:
        if self.ended:
            return None
        if self._following is None:
            start = self._beginning.find()
            if start is None:
                return None
            if start.full is not None:
                return self._made(start.full, start.following, self._follower.whole(start.full), initial=True)
            self._following = start.following
        self.ended = self._ended_before(self._following)
        return None if self.ended else self._follow(self._following)

    def _follow(self, number: int) -> _Unit | None:
        """The next snapshot with changes; snapshots without any count as read."""
        while True:
            self._following = number
            snapshot = next_snapshot(self._store, number)
            if snapshot is None:
                return None
            if ends_stream(self._store, snapshot):
                self.ended = True
                return None
            if too_young(self._store, snapshot):
                return None
            rows = self._follower.changes(snapshot)
            number += 1
            if rows is not None:
                return self._made(snapshot, number, rows, initial=False)

    def _ended_before(self, number: int) -> bool:
        """Whether the snapshot before already went beyond the bound."""
        if self._store.options.get("scan.bounded.watermark") is None or number <= 1:
            return False
        return ends_stream(self._store, snapshots.try_read(self._store, number - 1))

    def _made(self, snapshot: Snapshot, following: int, rows: Rows, *, initial: bool) -> _Unit:
        return _Unit(snapshot, following, initial, _portions(rows, self._choice.schema))


def _portions(rows: Rows, schema: pa.Schema) -> Generator[tuple[pa.Table, bool], None, None]:
    """Batches put together up to some 64 MiB, each portion with whether it is the last."""
    held: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in rows:
            if held and size + batch.nbytes > _BATCH_BYTES:
                yield pa.Table.from_batches(held, schema), False
                held, size = [], 0
            held.append(batch)
            size += batch.nbytes
        if held:
            yield pa.Table.from_batches(held, schema), True
    finally:
        rows.close()


__all__ = ["ChangeBatch", "StreamScan"]
