"""Stream scan: its first snapshot, the changes of each snapshot, and the loop over the snapshots.

Source: ``DataTableStreamScan``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, InvalidOption, InvalidSchema, SnapshotNotFound
from lsm_core.format.schema import VALUE_KIND
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import consumers, snapshots
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable, require_whole_rows
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
    """Start of a stream: the first snapshot whose changes are read, and the version to read before, if any.

    Attributes:
        following: id of the first snapshot whose changes are read.
        full: the version whose rows are all read before the changes; None to start with changes.
    """

    following: int
    full: Snapshot | None = None


@dataclass(frozen=True)
class Beginning:
    """Start settings of one stream: checked when the stream is opened, resolved once the table has a snapshot.

    Attributes:
        store: the table.
        consumer_id: id of the consumer that records progress; None to record none.
        from_snapshot: id of the first snapshot, as the caller gave it; None to use the table's options.
        startup: start mode from the table's options.
    """

    store: TableStore
    consumer_id: str | None
    from_snapshot: int | None
    startup: Startup

    @staticmethod
    def of(store: TableStore, consumer_id: str | None, from_snapshot: int | None) -> Beginning:
        """Check the start settings of a stream.

        Args:
            store: the table, whose options may name a start (`scan.*`).
            consumer_id: id of the consumer that records progress; None to record none.
            from_snapshot: id of the first snapshot whose changes are read; None to use the table's options.

        Raises:
            InvalidOption: the options describe no start of a stream.
        """
        number = None if from_snapshot is None else whole_number(from_snapshot, "from_snapshot", store.name, least=0)
        start = startup(store)
        if start.changes or (start.mode is Mode.FROM_SNAPSHOT and _named_snapshot_id(start) is None):
            key, value = (start.key, start.value) if start.key else ("scan.mode", str(start.mode))
            raise InvalidOption(
                str(key), value, "no value in a stream, which begins at a snapshot; leave the option out", store.name
            )
        return Beginning(store, consumer_id, number, start)

    def find(self) -> Start | None:
        """Return the first snapshot and version to read, or None while the table has no snapshot to start with.

        The consumer's progress is used first, then ``from_snapshot``, then the options. Snapshots that have expired are
        skipped, as in Java.

        Raises:
            SnapshotNotFound: the snapshot that the settings name does not exist.
            CorruptFile: a metadata file is missing or damaged.
        """
        store, first_id = self.store, self.first_snapshot_id()
        if first_id is not None:
            return self._follow(first_id)
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

    def first_snapshot_id(self) -> int | None:
        """Return the snapshot id that the consumer's progress, ``from_snapshot`` or the options name, or None."""
        if self.consumer_id is not None and not self.store.options.get("consumer.ignore-progress"):
            progress = consumers.read_consumer(self.store, self.consumer_id)
            if progress is not None:
                return progress
        if self.from_snapshot is not None:
            return self.from_snapshot
        return (_named_snapshot_id(self.startup) or 0) if self.startup.mode is Mode.FROM_SNAPSHOT else None

    def fixed_snapshot_id(self) -> int | None:
        """Return the first snapshot's id if it is fixed when the stream is opened (mode latest), else None."""
        start = self.find() if self.startup.mode is Mode.LATEST else None
        return None if start is None else start.following

    def _follow(self, snapshot_id: int) -> Start | None:
        first = earliest_kept(self.store)
        return None if first is None else Start(max(snapshot_id, first))

    def _created_since(self, timestamp_ms: int) -> Start | None:
        """Return the start of a stream with the changes since ``timestamp_ms`` (epoch ms).

        If no older snapshot is kept, or all snapshots are older, the stream starts with a read of the newest version,
        restricted to the files that were created since. The result is None for a table without snapshots.
        """
        first, since = earliest_kept(self.store), first_since(self.store, timestamp_ms)
        last = snapshots.latest_id(self.store)
        if first is None or since is None or last is None:
            return None
        if first < since <= last:
            return Start(since)
        full = snapshots.latest(self.store)
        return None if full is None else Start(full.id + 1, full)


def _named_snapshot_id(start: Startup) -> int | None:
    """Return the snapshot id that the start settings name, or None."""
    if start.key == "scan.snapshot-id":
        return int(start.value)
    text = str(start.value)
    return parse_digits(text) if start.key == "scan.version" and text.isdigit() else None


_OVERWRITE: Final = "streaming-read-overwrite"
_APPEND_OVERWRITE: Final = "streaming-read-append-overwrite"


@dataclass(frozen=True)
class Follower:
    """Reader of the changes of snapshots.

    Attributes:
        choice: columns and filter.
        producer: changelog producer of the table; "none" for append tables.
        overwrites: whether the changes of OVERWRITE snapshots are read.
    """

    choice: Choice
    producer: str
    overwrites: bool

    @staticmethod
    def of(choice: Choice) -> Follower:
        """Check the table's options for a stream.

        Raises:
            InvalidOption: the options ask for OVERWRITE snapshots, but the table would return their rows twice or
                never.
        """
        store = choice.store
        require_whole_rows(store, "streaming reads of a table")
        producer = store.options.changelog_producer if store.has_primary_key else "none"
        overwrites = bool(store.options.get(_OVERWRITE))
        if overwrites and not store.has_primary_key:
            raise InvalidOption(_OVERWRITE, "true", f"{_APPEND_OVERWRITE} for tables without primary key", store.name)
        if overwrites and producer in ("lookup", "full-compaction"):
            accepted = f"false with changelog-producer={producer}, whose compactions already report overwrites"
            raise InvalidOption(_OVERWRITE, "true", accepted, store.name)
        appended = bool(store.options.get(_APPEND_OVERWRITE)) and not store.has_primary_key
        return Follower(choice, producer, overwrites or appended)

    def changes(self, snapshot: Snapshot) -> Rows | None:
        """Return the changed rows of a snapshot as they were written, or None when it adds nothing to the stream.

        The rows come from :meth:`files`. If the stream reads an OVERWRITE snapshot, the rows that it removed come
        first, then the rows that it added.
        """
        if self.is_read_overwrite(snapshot):
            return self._overwrite_rows(snapshot)
        entries = self.files(snapshot)
        return None if entries is None else file_rows(self.choice, entries)

    def is_read_overwrite(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot is an OVERWRITE and the stream reads OVERWRITE snapshots."""
        return self.overwrites and snapshot.commit_kind is CommitKind.OVERWRITE

    def files(self, snapshot: Snapshot) -> pa.Table | None:
        """Return the entries of the files that contain the changes of a snapshot.

        Without a changelog producer these are the data files of APPEND snapshots. Otherwise they are the snapshot's
        changelog files, even if the table had a different producer at that time.

        Returns:
            Entries (`ENTRY_SCHEMA`); None if the snapshot has no changes, and always for OVERWRITE snapshots.

        Raises:
            CorruptFile: a manifest is missing or damaged.
            InvalidSchema: a column was dropped and added again.

        Source: ``ChangelogFollowUpScanner``.
        """
        store, kind = self.choice.store, snapshot.commit_kind
        if kind is CommitKind.OVERWRITE or (self.producer == "none" and kind is not CommitKind.APPEND):
            return None
        entries = added_files(store, snapshot) if self.producer == "none" else changelog_files(store, snapshot)
        return self._check_columns(entries) if entries.num_rows else None

    def _overwrite_rows(self, snapshot: Snapshot) -> Rows:
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
        with closing(file_rows(self.choice, self._check_columns(added_files(store, snapshot)))) as batches:
            yield from batches

    def _check_columns(self, entries: pa.Table) -> pa.Table:
        """Return ``entries`` if their files hold the values of all columns that the stream reads.

        Raises:
            InvalidSchema: a column was dropped and added again (`replaced_column`).
        """
        store = self.choice.store
        for schema_id in pc.unique(entries.column("schema_id")).to_pylist():
            replaced = replaced_column(store, schema_id, self.choice.needed)
            if replaced is not None:
                raise InvalidSchema(
                    f"table {store.name}: {replaced} after the schema that this stream reads with "
                    f"(schema {store.schema.id}); none of these rows were read: start the stream again, "
                    "it continues with the current columns (without scan options that start in the past: "
                    "those choose the columns of that time)"
                )
        return entries

    def whole(self, snapshot: Snapshot) -> Rows:
        """Yield the rows with which a stream that starts with version ``snapshot`` begins.

        These are all rows, or only those of the levels whose changes compactions have written (:meth:`splits`).
        """
        for split in self.splits(snapshot):
            with closing(split_rows(self.choice, split)) as batches:
                yield from batches

    def splits(self, snapshot: Snapshot) -> tuple[Split, ...]:
        """Return the splits of ``snapshot`` for a stream that starts with this version.

        With changelog producer lookup the splits cover only levels above 0; with full-compaction, only the top level.
        Compactions have already written the changes of these rows. Otherwise the splits cover all levels. With
        `scan.creation-time-millis` they cover only files that were created at this time or later.

        Raises:
            InvalidSchema: a column was dropped and added again.

        Source: ``ContinuousFromTimestampStartingScanner``, ``FileCreationTimeStartingScanner`` of Paimon.
        """
        store = self.choice.store
        start = startup(store)
        if start.mode is Mode.FROM_CREATION:
            mode, key = Mode.FROM_FILE_CREATION, "scan.file-creation-time-millis"
            store = store.copy({"scan.mode": str(mode), str(start.key): None, key: str(start.value)})
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
    """Return whether the snapshot's watermark is above option `scan.bounded.watermark` (ms), so that the stream ends.

    Source: ``BoundedChecker``.
    """
    bound = store.options.get("scan.bounded.watermark")
    if bound is None or snapshot is None or snapshot.watermark is None:
        return False
    return bool(snapshot.watermark > int(bound))


def is_too_young(store: TableStore, snapshot: Snapshot) -> bool:
    """Return whether the snapshot is younger than option `streaming.read.snapshot.delay`, so that it must wait."""
    delay = store.options.get("streaming.read.snapshot.delay")
    return delay is not None and snapshot.time_millis > store.clock.now_ms() - int(delay)


_BATCH_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class ChangeBatch:
    """Changed rows of one snapshot; a snapshot with more than about 64 MiB of rows is split into several batches.

    Attributes:
        snapshot_id: id of the snapshot.
        row_kinds: `+I`, `-U`, `+U` or `-D` of each row of ``table``.
        table: the rows.
        initial: whether the rows belong to the initial full read.
        last: whether this is the last batch of the snapshot.
        watermark: the snapshot's watermark (ms); None if the snapshot has no watermark.
    """

    snapshot_id: int
    row_kinds: pa.Array
    table: pa.Table
    initial: bool = False
    last: bool = True
    watermark: int | None = None

    def to_arrow(self) -> pa.Table:
        """Return the rows with their kinds as first column, `_ROW_KIND`."""
        return self.table.add_column(0, pa.field(ROW_KIND, pa.string(), nullable=False), self.row_kinds)


@dataclass
class _Unit:
    """Snapshot that is being read.

    Attributes:
        snapshot: the snapshot.
        following: id of the snapshot to read next.
        initial: True if all rows of the version are read, False if its changes are read.
        parts: pairs of a table of rows and a flag that is True for the last table.
    """

    snapshot: Snapshot
    following: int
    initial: bool
    parts: Generator[tuple[pa.Table, bool], None, None]


class StreamScan:
    """Reader that returns each change of a table once, in commit order.

    :meth:`next` never waits: it returns None if nothing new was committed. Rows are read with the schema that the table
    had when the stream was opened: renamed columns keep their old names, and columns added later are not read. Not
    thread-safe.
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
        """Open a stream of changes.

        Args:
            store: the table.
            consumer_id: id of the consumer that records progress; None for option `consumer-id`.
            from_snapshot: id of the first snapshot whose changes are read, if the consumer has no progress yet; None to
                use the table's options.
            columns: names of the columns; None for all.
            filter: condition on the rows: tuples (column, operator, value), SQL text or an Arrow expression; None for
                all rows.

        Raises:
            UnsupportedFeature: the table cannot be read as a stream.
            ColumnNotFound: a column does not exist.
            InvalidFilter: the filter is not understood.
            InvalidOption: the options describe no start of a stream.
            InvalidData: the consumer id is not usable as a file name.
        """
        self._store = store
        self.consumer_id = consumer_id if consumer_id is not None else store.options.get("consumer-id")
        if self.consumer_id is not None:
            consumers.consumer_path(store, self.consumer_id)
        self._choice = Choice.of(store, columns, filter)
        require_readable(store, columns=self._choice.needed)
        self._follower = Follower.of(self._choice)
        self._beginning = Beginning.of(store, self.consumer_id, from_snapshot)
        self._following: int | None = self._beginning.fixed_snapshot_id()
        self._unit: _Unit | None = None
        self._newest_read: Snapshot | None = None
        self.ended = False
        """Whether the stream has reached `scan.bounded.watermark` and returns no more rows."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """Schema of the tables of rows that :meth:`next` returns."""
        return pa.schema(list(self._choice.schema)[1:])

    def next(self) -> ChangeBatch | None:
        """Return the next changed rows, or None if there is nothing to read now.

        None means that all commits were read, that the next snapshot is too young, or that the stream has ended. A
        batch has at least one row. If an error is raised within a snapshot, the next call reads this snapshot again
        from its start.

        Raises:
            TableNotFound: the table was dropped, renamed or replaced since the stream was opened.
            SnapshotNotFound: the next snapshot has expired (``expired`` is set), or the table was rolled back to a
                snapshot that the stream has already read past, even if new commits followed.
            InvalidSchema: a column's type was changed and a value does not fit the type at the opening of the stream,
                or a column was dropped and added again.
            CorruptFile: a file is missing or damaged.
        """
        unit = self._unit
        try:
            while True:
                if self._unit is None:
                    unit = None
                    self._store.require_same()
                    self._unit = self._open()
                    if self._unit is None:
                        return None
                unit = self._unit
                try:
                    portion = next(unit.parts, None)
                except BaseException:
                    self._unit = None  # the next call must read this snapshot again
                    raise
                if portion is None or portion[1]:
                    self._following, self._newest_read, self._unit = unit.following, unit.snapshot, None
                if portion is not None:
                    rows, last = portion
                    snapshot = unit.snapshot
                    kinds, table = kinds_to_text(rows.column(VALUE_KIND)), rows.remove_column(0)
                    return ChangeBatch(snapshot.id, kinds, table, unit.initial, last, snapshot.watermark)
        except (CorruptFile, FileNotFoundError):
            number = self._following if unit is None else unit.snapshot.id
            if number is None:
                raise
            with self._store.naming_lost_table(), expiry_named(self._store, number):
                raise

    def checkpoint(self) -> int | None:
        """Return the id of the next snapshot to read, for :meth:`restore`, and record it as the consumer's progress.

        Expiry keeps snapshots that the consumer has not read. After a restore, a partly read snapshot is read again
        completely.

        Returns:
            The snapshot id. None before the first :meth:`next` found the start of the stream, and until an initial full
                read is complete.

        Raises:
            StorageFull: the progress cannot be written.
        """
        if self.consumer_id is not None and self._following is not None:
            self._store.require_same()
            consumers.write_consumer(self._store, self.consumer_id, self._following)
        return self._following

    def restore(self, snapshot_id: int | None) -> None:
        """Continue with the changes of snapshot ``snapshot_id``; unread rows of the current snapshot are discarded.

        Args:
            snapshot_id: id of the next snapshot to read, from :meth:`checkpoint`; None to restart the stream.
        """
        self.close()
        number = None if snapshot_id is None else whole_number(snapshot_id, "snapshot_id", self._store.name, least=1)
        self._following, self._newest_read, self.ended = number, None, False

    def close(self) -> None:
        """Close the open files; a later :meth:`next` reads the current snapshot again from its start."""
        unit, self._unit = self._unit, None
        if unit is not None:
            unit.parts.close()

    def _open(self) -> _Unit | None:
        """Return the next unit to read: the initial full read, or the changes of one snapshot.

        Returns:
            The unit. None if all commits were read, the next snapshot is too young, or the stream has ended.
        """
        if self.ended:
            return None
        if self._following is None:
            start = self._beginning.find()
            if start is None:
                return None
            if start.full is not None:
                return self._make_unit(start.full, start.following, self._follower.whole(start.full), initial=True)
            self._following = start.following
        if self._store.options.get("scan.bounded.watermark") is not None and self._following > 1:
            before = snapshots.try_read(self._store, self._following - 1)
            self.ended = ends_stream(self._store, before)  # the previous snapshot was already beyond the bound
        return None if self.ended else self._follow(self._following)

    def _follow(self, number: int) -> _Unit | None:
        """Return the next snapshot with changes, from id ``number`` on, or None if there is none to read now.

        Snapshots without changes are marked as read.
        """
        while True:
            self._following = number
            snapshot = next_snapshot(self._store, number)
            if snapshot is None:
                return None
            if ends_stream(self._store, snapshot):
                self.ended = True
                return None
            if is_too_young(self._store, snapshot):
                return None
            self._require_history()
            rows = self._follower.changes(snapshot)
            number += 1
            if rows is not None:
                return self._make_unit(snapshot, number, rows, initial=False)
            self._newest_read = snapshot

    def _require_history(self) -> None:
        """Check that the newest snapshot that was read is still part of the table's history.

        An expired snapshot cannot be compared.

        Raises:
            SnapshotNotFound: the snapshot was removed by a rollback, or another one has its id.
        """
        store, last = self._store, self._newest_read
        if last is None:
            return
        current = snapshots.try_read(store, last.id)
        if current is None:
            changed = (snapshots.latest_id(store) or 0) < last.id
        else:
            changed = not snapshots.is_same(current, last)
        if changed:
            raise SnapshotNotFound(
                f"table {store.name} was rolled back or recreated: its snapshot {last.id} is not the one that the "
                "stream has read; open a new stream"
            )

    def _make_unit(self, snapshot: Snapshot, following: int, rows: Rows, *, initial: bool) -> _Unit:
        return _Unit(snapshot, following, initial, _portions(rows, self._choice.schema))


def _portions(rows: Rows, schema: pa.Schema) -> Generator[tuple[pa.Table, bool], None, None]:
    """Join batches to tables of up to about 64 MiB; yield (table, whether it is the last table)."""
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
