"""A stream scan: where it begins, what each snapshot adds, and the snapshots read one after another (Java `DataTableStreamScan`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, InvalidOption, InvalidSchema
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import consumers, snapshots
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.options import parse_digits, whole_number
from lsm_core.read.changes.changed_rows import ROW_KIND, Choice, Rows, file_rows, removed_rows, split_rows
from lsm_core.read.changes.incremental import added_files, changelog_files, removed_files
from lsm_core.read.changes.spans import earliest_kept, expiry_named, first_since, next_snapshot
from lsm_core.read.scan import plan_version
from lsm_core.read.splits import Split
from lsm_core.read.table_versions import Mode, Startup, Version, millis, newest_compacted, replaced_column, startup
from lsm_core.types import kinds_to_text


@dataclass(frozen=True)
class Start:
    """``full``: the version to read as a whole first, None for none; ``following``: the snapshot whose changes come then."""

    following: int
    full: Snapshot | None = None


@dataclass(frozen=True)
class Beginning:
    """How one stream begins, checked and settled when it is opened, but for what the table does not have yet."""

    store: TableStore
    consumer_id: str | None
    from_snapshot: int | None
    startup: Startup

    @staticmethod
    def of(store: TableStore, consumer_id: str | None, from_snapshot: int | None) -> Beginning:
        """Raises InvalidOption for options that no stream can begin with."""
        number = None if from_snapshot is None else whole_number(from_snapshot, "from_snapshot", store.name, least=0)
        start = startup(store)
        if start.changes or (start.mode is Mode.FROM_SNAPSHOT and _number(start) is None):
            key, value = (start.key, start.value) if start.key else ("scan.mode", str(start.mode))
            raise InvalidOption(str(key), value, "nothing in a stream: it begins at a snapshot", store.name)
        return Beginning(store, consumer_id, number, start)

    def find(self) -> Start | None:
        """Where the stream begins; None while nothing is committed that it could begin with.

        A consumer goes on where it was; else ``from_snapshot`` counts, else the options. Snapshots that are not kept any more
        are passed over, as in Java. Raises SnapshotNotFound, CorruptFile.
        """
        store, named = self.store, self.named()
        if named is not None:
            return self._follow(named)
        if self.startup.mode is Mode.FROM_TIMESTAMP:
            since = first_since(store, millis(store.name, str(self.startup.key), self.startup.value))
            return None if since is None else Start(since)
        if self.startup.mode is Mode.FROM_CREATION:
            return self._created_since(int(self.startup.value))
        if self.startup.mode is Mode.LATEST:
            return Start((snapshots.latest_id(store) or 0) + 1)
        full = None
        if self.startup.mode is Mode.FROM_SNAPSHOT_FULL:
            first = snapshots.earliest_id(store)
            full = None if first is None else snapshots.read(store, max(int(self.startup.value), first))
        else:
            if self.startup.mode is Mode.COMPACTED_FULL:
                full = newest_compacted(store)
            full = full or snapshots.latest(store)
        return None if full is None else Start(full.id + 1, full)

    def named(self) -> int | None:
        """The snapshot whose changes come first by what the consumer recorded, ``from_snapshot`` or the options say; None: none is named."""
        if self.consumer_id is not None and not self.store.options.get("consumer.ignore-progress"):
            progress = consumers.read_consumer(self.store, self.consumer_id)
            if progress is not None:
                return progress
        if self.from_snapshot is not None:
            return self.from_snapshot
        return (_number(self.startup) or 0) if self.startup.mode is Mode.FROM_SNAPSHOT else None

    def settled(self) -> int | None:
        """The snapshot that comes first where that is settled by opening the stream (mode latest), else None."""
        start = self.find() if self.startup.mode is Mode.LATEST else None
        return None if start is None else start.following

    def _follow(self, snapshot_id: int) -> Start | None:
        first = earliest_kept(self.store)
        return None if first is None else Start(max(snapshot_id, first))

    def _created_since(self, moment: int) -> Start | None:
        """The changes since ``moment``; all files made since then, when older snapshots are not kept that would show it."""
        first, since = earliest_kept(self.store), first_since(self.store, moment)
        last = snapshots.latest_id(self.store)
        if first is None or since is None or last is None:
            return None
        if first < since <= last:
            return Start(since)
        full = snapshots.latest(self.store)
        return None if full is None else Start(full.id + 1, full)


def _number(start: Startup) -> int | None:
    """The snapshot id that the options name, None where they name something else."""
    if start.key == "scan.snapshot-id":
        return int(start.value)
    text = str(start.value)
    return parse_digits(text) if start.key == "scan.version" and text.isdigit() else None


_OVERWRITE: Final = "streaming-read-overwrite"
_APPEND_OVERWRITE: Final = "streaming-read-append-overwrite"


@dataclass(frozen=True)
class Follower:
    """Turns snapshots into rows. ``producer``: "none" for append tables; ``overwrites``: whether OVERWRITE snapshots count."""

    choice: Choice
    producer: str
    overwrites: bool

    @staticmethod
    def of(choice: Choice) -> Follower:
        """Raises InvalidOption when overwrites are asked for where they would be told twice or not at all."""
        store = choice.store
        producer = store.options.changelog_producer if store.has_primary_key else "none"
        wanted = bool(store.options.get(_OVERWRITE))
        if wanted and not store.has_primary_key:
            raise InvalidOption(_OVERWRITE, "true", f"{_APPEND_OVERWRITE} for tables without primary key", store.name)
        if wanted and producer in ("lookup", "full-compaction"):
            accepted = f"false with changelog-producer={producer}, whose compactions tell of overwrites already"
            raise InvalidOption(_OVERWRITE, "true", accepted, store.name)
        appended = bool(store.options.get(_APPEND_OVERWRITE)) and not store.has_primary_key
        return Follower(choice, producer, wanted or appended)

    def changes(self, snapshot: Snapshot) -> Rows | None:
        """The changed rows of a snapshot as they were written, None when it adds nothing to the stream.

        Those of :meth:`files`; of an OVERWRITE that counts what it removed, then what it added.
        """
        if self.replaces(snapshot):
            return self._replaced(snapshot)
        found = self.files(snapshot)
        return None if found is None else file_rows(self.choice, found)

    def replaces(self, snapshot: Snapshot) -> bool:
        """Whether it is an OVERWRITE that counts."""
        return self.overwrites and snapshot.commit_kind is CommitKind.OVERWRITE

    def files(self, snapshot: Snapshot) -> pa.Table | None:
        """Entries (`ENTRY_SCHEMA`) of the files that tell what a snapshot changed, None without any, as for every OVERWRITE.

        No producer: data files of APPEND snapshots; else the changelog files of any snapshot, whichever producer the table had
        then (Java `ChangelogFollowUpScanner`). Raises CorruptFile, InvalidSchema.
        """
        store, kind = self.choice.store, snapshot.commit_kind
        if kind is CommitKind.OVERWRITE or (self.producer == "none" and kind is not CommitKind.APPEND):
            return None
        found = added_files(store, snapshot) if self.producer == "none" else changelog_files(store, snapshot)
        return self._told_whole(found) if found.num_rows else None

    def _replaced(self, snapshot: Snapshot) -> Rows:
        store = self.choice.store
        if store.has_primary_key:
            removed = removed_files(store, snapshot)
            before = snapshots.try_read(store, snapshot.id - 1)
            vectors: dict[tuple[bytes, int], dict[str, DeletionFile]] = {}
            if before is not None and removed.num_rows:
                require_in_place(store, before, removed)
                vectors = deletion_vectors(store, before)
            with closing(removed_rows(self.choice, removed, vectors)) as batches:
                yield from batches
        with closing(file_rows(self.choice, self._told_whole(added_files(store, snapshot)))) as batches:
            yield from batches

    def _told_whole(self, entries: pa.Table) -> pa.Table:
        """The files of ``entries``, if the columns that the stream reads can tell their values.

        Raises InvalidSchema naming one that was dropped and added again (`replaced_column`).
        """
        store = self.choice.store
        for schema_id in pc.unique(entries.column("schema_id")).to_pylist():
            replaced = replaced_column(store, schema_id, self.choice.needed)
            if replaced is not None:
                raise InvalidSchema(
                    f"table {store.name}: {replaced} after the schema that this stream reads with (schema {store.schema.id}); "
                    "nothing of that was read: start the stream again, it goes on with the columns of today "
                    "(leave out scan options that begin it in the past: they choose the columns of then)"
                )
        return entries

    def whole(self, snapshot: Snapshot) -> Rows:
        """All rows of a version, as a stream begins with them: those of :meth:`splits`."""
        for split in self.splits(snapshot):
            with closing(split_rows(self.choice, split)) as batches:
                yield from batches

    def splits(self, snapshot: Snapshot) -> tuple[Split, ...]:
        """The splits of a version with which a stream begins.

        With the producers lookup and full-compaction only what compactions have told of: levels above 0, or the top level. Else
        all that was written, what waits for a compaction too. Raises InvalidSchema.
        """
        store = self.choice.store
        top = range(store.options.num_levels - 1, store.options.num_levels)
        scan = plan_version(
            Version(snapshot, store),
            columns=self.choice.columns,
            filter=self.choice.predicate,
            levels=top if self.producer == "full-compaction" else None,
            level_0=self.producer != "lookup",
        )
        return scan.splits


def ends_stream(store: TableStore, snapshot: Snapshot | None) -> bool:
    """Whether the snapshot's watermark lies beyond `scan.bounded.watermark` (ms). Source class: ``BoundedChecker``."""
    bound = store.options.get("scan.bounded.watermark")
    if bound is None or snapshot is None or snapshot.watermark is None:
        return False
    return bool(snapshot.watermark > int(bound))


def too_young(store: TableStore, snapshot: Snapshot) -> bool:
    """Whether the snapshot is younger than `streaming.read.snapshot.delay`."""
    delay = store.options.get("streaming.read.snapshot.delay")
    return delay is not None and snapshot.time_millis > store.clock.now_ms() - int(delay)


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

    Rows are read with the schema that the table had when the stream was opened: columns that were renamed keep their old names, later ones are
    not seen. Not safe for several threads.
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
        self._store = store
        self.consumer_id = consumer_id if consumer_id is not None else store.options.get("consumer-id")
        if self.consumer_id is not None:
            consumers.consumer_path(store, self.consumer_id)
        self._choice = Choice.of(store, columns, filter)
        require_readable(store, columns=self._choice.needed)
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

        After an error the snapshot that was being read comes again, as a whole. Raises SnapshotNotFound when the stream fell behind and its next snapshot has expired
        (``expired`` is set), or when the table was rolled back behind it; InvalidSchema for a value of a newer type that the column's type of then cannot tell, or a
        column that was dropped and added again; CorruptFile.
        """
        unit = self._unit
        try:
            while True:
                if self._unit is None:
                    unit = None
                    self._unit = self._open()
                    if self._unit is None:
                        return None
                unit = self._unit
                try:
                    portion = next(unit.parts, None)
                except BaseException:
                    self._unit = None  # what failed to be read must not count as read by whoever tries again
                    raise
                if portion is None or portion[1]:
                    self._following, self._unit = unit.following, None
                if portion is not None:
                    rows, last = portion
                    snapshot = unit.snapshot
                    kinds, table = kinds_to_text(rows.column(VALUE_KIND)), rows.remove_column(0)
                    return ChangeBatch(snapshot.id, kinds, table, unit.initial, last, snapshot.watermark)
        except (CorruptFile, FileNotFoundError):
            number = self._following if unit is None else unit.snapshot.id
            if number is None:
                raise
            with expiry_named(self._store, number):
                raise

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

    def _open(self) -> _Unit | None:
        """What is to be read next: the first version as a whole, or a snapshot's changes; None when nothing is there yet."""
        if self.ended:
            return None
        if self._following is None:
            start = self._beginning.find()
            if start is None:
                return None
            if start.full is not None:
                return self._made(start.full, start.following, self._follower.whole(start.full), initial=True)
            self._following = start.following
        if self._store.options.get("scan.bounded.watermark") is not None and self._following > 1:
            before = snapshots.try_read(self._store, self._following - 1)
            self.ended = ends_stream(self._store, before)  # the snapshot before already went beyond the bound
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


__all__ = [
    "Beginning",
    "ChangeBatch",
    "Follower",
    "Start",
    "StreamScan",
    "ends_stream",
    "too_young",
]
