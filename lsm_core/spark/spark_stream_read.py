"""Spark streams of a table's changes (`readStream`): where a stream begins, the rows of an epoch, and the checkpoint.

A `StreamOffset` holds the id of the next snapshot to read, and the number of files with changes of this snapshot that
have been read. Snapshots never change, so an epoch that Spark repeats reads the same rows. Files of one bucket are read
by one task in order, so the changes of a key arrive in the order of their commits.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lsm_core.arrays import arrow_array, one_array
from lsm_core.errors import DredgeError, InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import consumers, snapshots
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.options import memory_size, parse_digits
from lsm_core.read import Split
from lsm_core.read.changes.changed_rows import Choice, Rows, file_rows, split_rows
from lsm_core.read.changes.spans import earliest_kept, expiry_named, next_snapshot
from lsm_core.read.changes.stream import Beginning, Follower, ends_stream, is_too_young
from lsm_core.spark.spark_columns import fields_of, require_schema, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.spark_tasks import OfOneRelease, note_error, raises_typed_errors
from lsm_core.types import is_retract, kinds_to_text

ROW_KIND: Final = "_row_kind"
"""The column of row kinds in frames of Spark: `+I`, `-U`, `+U`, `-D`."""
CHANGELOG: Final = "read.changelog"
MAX_FILES: Final = "read.stream.maxfilespertrigger"
MAX_BYTES: Final = "read.stream.maxbytespertrigger"
MAX_ROWS: Final = "read.stream.maxrowspertrigger"
OPTIONS: Final = (CHANGELOG, MAX_FILES, MAX_BYTES, MAX_ROWS)
"""Options that only streams accept; Spark passes keys in lower case."""

_CHECKPOINT: Final = "checkpointLocation"
_TASK_BYTES: Final = 32 << 20
"""Buckets with fewer bytes than this share a task."""


@dataclass(frozen=True)
class StreamChoice:
    """Columns, filter and row kind setting (`read.changelog`) of a stream.

    Attributes:
        store: The table.
        columns: Names of the columns, in order; None for all columns.
        filter: Filter of the rows as a list of tests or as SQL text; None for all rows.
        kinds: Whether the row kind is the first column of the stream (`read.changelog`).
    """

    store: TableStore
    columns: Sequence[str] | None
    filter: list[Any] | str | None
    kinds: bool

    @staticmethod
    def of(
        store: TableStore,
        columns: Sequence[str] | None,
        filter: list[Any] | str | None,  # noqa: A002
        options: Mapping[str, str],
    ) -> StreamChoice:
        """Return the choice of a stream with these columns, filter and options.

        Raises:
            InvalidOption: `read.changelog` is neither true nor false.
            UnsupportedFeature: `read.changelog` is set and the table has a column of the name `_row_kind`.
        """
        text = options.get(CHANGELOG, "false").lower()
        if text not in ("true", "false"):
            raise InvalidOption(CHANGELOG, text, "true, false", store.name)
        if text == "true" and store.schema.has_field(ROW_KIND):
            raise UnsupportedFeature(f"{CHANGELOG} beside a column called '{ROW_KIND}'", store.name)
        return StreamChoice(store, columns, filter, text == "true")

    @property
    def ddl(self) -> str:
        """Columns of the stream as Spark DDL; with `read.changelog`, the row kind is the first column.

        Raises ColumnNotFound, UnsupportedFeature.
        """
        columns = spark_ddl(fields_of(self.store.schema, self.columns, self.store.name), self.store.name)
        return f"{ROW_KIND} STRING, {columns}" if self.kinds else columns

    def require(self, schema: StructType) -> None:
        """Check the columns that a user named by `.schema()`. Raises InvalidOption if the stream has other columns."""
        own = schema
        if self.kinds:
            own = StructType(schema.fields[1:]) if schema.names[:1] == [ROW_KIND] else StructType([])
        require_schema(own, fields_of(self.store.schema, self.columns, self.store.name), self.store.name)

    @property
    def target(self) -> pa.Schema:
        """Arrow types that Spark expects for :attr:`ddl`."""
        own = spark_arrow_schema(fields_of(self.store.schema, self.columns, self.store.name), self.store.name)
        return pa.schema([pa.field(ROW_KIND, pa.string()), *own]) if self.kinds else own


@dataclass(frozen=True)
class StreamOffset:
    """Position of a stream, as its checkpoint keeps it.

    Attributes:
        table: Location of the table's metadata.
        snapshot: The snapshot whose changes are read next; 0 while no snapshot exists at which the stream could begin.
        files: Number of files with changes of this snapshot that have been read.
        initial: Whether the snapshot is read as a whole; ``files`` then counts its splits.
        plan: Checksum of the list of which ``files`` counts the first entries, to detect a change of this list.
        history: Name of the manifest list of the previous snapshot (of ``snapshot`` if ``initial``). The name is unique
            to its snapshot, so a different name shows that the table was rolled back.
        begun: In the end offset of a query's first epoch, the snapshot at which the query began. Spark does not store
            the beginning, and requests the beginning again when it repeats this epoch.
        begun_whole: Whether the snapshot ``begun`` is read as a whole.
    """

    table: str
    snapshot: int
    files: int = 0
    initial: bool = False
    plan: str = ""
    history: str = ""
    begun: int = 0
    begun_whole: bool = False

    @staticmethod
    def of(store: TableStore, value: Mapping[str, Any]) -> StreamOffset:
        """Return the offset that :meth:`to_dict` serialized.

        Raises InvalidOption if the offset belongs to a table other than ``store``, or is malformed.
        """
        kinds = {"table": str, "snapshot": int, "files": int, "initial": bool, "plan": str, "history": str}
        kinds |= {"begun": int, "begun_whole": bool}
        if set(value) != set(kinds) or any(type(value[key]) is not kind for key, kind in kinds.items()):
            raise InvalidOption(_CHECKPOINT, json.dumps(value), "a checkpoint of this version of Dredge", store.name)
        offset = StreamOffset(**value)
        if offset.table != store.metadata_root:
            accepted = f"a checkpoint of this table ({store.metadata_root}); that one is of another table"
            raise InvalidOption(_CHECKPOINT, offset.table, accepted, store.name)
        return offset

    def to_dict(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it (JSON)."""
        return asdict(self)


@dataclass
class _Room:
    """Remaining capacity of an epoch.

    Attributes:
        files: Number of files; None for no limit.
        bytes: Bytes of the files; None for no limit.
        rows: Number of rows; None for no limit.
        empty: Whether the epoch has no unit of reading (split, file or snapshot) yet.
    """

    files: int | None
    bytes: int | None
    rows: int | None
    empty: bool = True

    def take(self, sizes: np.ndarray[Any, Any]) -> int:
        """Take as many units of reading as fit, at least one per epoch, and return the number of units taken.

        Args:
            sizes: Files, bytes and rows of each unit, one unit per row.
        """
        fitting = len(sizes)
        for column, left in enumerate((self.files, self.bytes, self.rows)):
            if left is not None:
                fitting = min(fitting, int(np.searchsorted(np.cumsum(sizes[:, column]), left, side="right")))
        if self.empty and len(sizes):
            fitting, self.empty = max(fitting, 1), False
        files, size, rows = (int(part) for part in sizes[:fitting].sum(axis=0))
        self.files = None if self.files is None else max(0, self.files - files)
        self.bytes = None if self.bytes is None else max(0, self.bytes - size)
        self.rows = None if self.rows is None else max(0, self.rows - rows)
        return fitting

    @property
    def full(self) -> bool:
        """Whether a limit of the epoch is reached, so that nothing more fits."""
        return 0 in (self.files, self.bytes, self.rows)


@dataclass(frozen=True)
class _Share:
    """Unit of reading: a split, file entries, or a snapshot that replaces rows.

    Units with an equal ``place`` (such as a bucket) are read by one task in order. If a unit of an epoch has the place
    None, one task reads all units of the epoch in order.

    Attributes:
        place: Value that units of one task have in common, or None.
        size: Bytes of the files; 0 for a snapshot.
        kind: "split", "files" or "snapshot".
        data: The serialized split, the file entries as an Arrow IPC stream, or the digits of the snapshot id.
        snapshot: Id of the snapshot.
    """

    place: object
    size: int
    kind: str
    data: bytes
    snapshot: int


class StreamPartition(InputPartition):
    """Units of reading (`_Share`) for one task of an epoch, in order, as (kind, serialized unit, snapshot id)."""

    def __init__(self, shares: Sequence[tuple[str, bytes, int]]) -> None:
        super().__init__(tuple(shares))


class StreamReader(OfOneRelease, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of the changes of a table; each change is read once, and changes are read in order.

    The changes are the changelogs of tables with a changelog producer, and for other tables the rows that APPEND
    snapshots added. Without `read.changelog`, rows that retract a value (`-U`, `-D`) are left out.
    """

    def __init__(self, choice: StreamChoice, options: Mapping[str, str]) -> None:
        """Check the options of the stream. Raises InvalidOption, UnsupportedFeature, ColumnNotFound, InvalidFilter."""
        store = choice.store
        require_readable(store, columns=Choice.of(store, choice.columns, choice.filter).needed)
        # Spark ships this object to the tasks in its present state: a store's text is small.
        self._store_text, self._columns, self._filter, self._kinds = (
            store.to_json(),
            choice.columns,
            choice.filter,
            choice.kinds,
        )
        self._limits = {key: _limit(key, options.get(key), store.name) for key in (MAX_FILES, MAX_BYTES, MAX_ROWS)}
        self._until: int | None = None
        Follower.of(Choice.of(store, self._columns, self._filter))
        self._beginning()

    # -- on the driver ---------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return an offset without a snapshot, which is the same for every state of the table.

        The end offset of the first epoch records the snapshot at which the query begins.
        """
        return StreamOffset(self._store.metadata_root, 0).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return a ReadLimit that shows only whether epochs are limited; `latestOffset` applies the limits themselves.

        Spark accepts only one limit.
        """
        if all(limit is None for limit in self._limits.values()):
            return ReadAllAvailable()
        return ReadMaxFiles(self._limits[MAX_FILES] or 2**31 - 1)

    @raises_typed_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Ignore all snapshots that are committed after this call."""
        self._until = snapshots.latest_id(self._store) or 0

    @raises_typed_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the end of the epoch that begins at ``start``, or ``start`` if there is nothing new.

        The epoch stays within its limits but has at least one file.

        Raises:
            SnapshotNotFound: The start or the next snapshot has expired, or the table was rolled back.
            TableNotFound: The table was dropped, renamed or replaced since the query began.
            InvalidOption: The checkpoint belongs to another table.
        """
        self._store.require_same()
        offset = self._check_offset(start)
        begin = offset if offset.snapshot else self._begin()
        if begin is None:
            return start
        newest = self._newest(begin)
        if newest < begin.snapshot:
            if offset.snapshot or begin.initial:
                return start
            end = begin  # an epoch without rows, so that later commits are not skipped
        else:
            end = self._at(newest + 1) if isinstance(limit, ReadAllAvailable) else self._limited(begin, newest)
        if not offset.snapshot:
            end = replace(end, begun=begin.snapshot, begun_whole=begin.initial)
        return end.to_dict()

    @raises_typed_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of an epoch. Raises SnapshotNotFound if a snapshot of the epoch has expired, CorruptFile."""
        begin, stop = self._check_offset(start), self._check_offset(end)
        if not begin.snapshot and stop.begun:
            begin = replace(begin, snapshot=stop.begun, initial=stop.begun_whole)
        shares = list(self._shares(begin, stop))
        ordered = any(share.place is None for share in shares)
        if ordered or self._store.bucket_mode is BucketMode.CROSS_PARTITION:  # keys may be in any bucket
            return [StreamPartition([(share.kind, share.data, share.snapshot) for share in shares])] if shares else []
        places: dict[object, list[_Share]] = {}
        for share in shares:
            places.setdefault(share.place, []).append(share)
        tasks: list[list[_Share]] = []
        size = _TASK_BYTES
        for together in places.values():
            more = sum(share.size for share in together)
            if size + more > _TASK_BYTES:
                tasks.append([])
                size = 0
            tasks[-1] += together
            size += more
        return [StreamPartition([(share.kind, share.data, share.snapshot) for share in task]) for task in tasks]

    @raises_typed_errors
    def commit(self, end: dict[str, Any]) -> None:
        """Record the progress of the consumer (`consumer-id`), so that expiry keeps unread snapshots.

        Raises TableNotFound, StorageFull.
        """
        store = self._store
        name, offset = store.options.get("consumer-id"), StreamOffset.of(store, end)
        if name is None or offset.initial or not offset.snapshot:
            return
        store.require_same()
        if consumers.read_consumer(store, str(name)) != offset.snapshot:
            consumers.write_consumer(store, str(name), offset.snapshot)

    @cached_property
    def _store(self) -> TableStore:
        return TableStore.from_json(self._store_text)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_store"}

    def _beginning(self) -> Beginning:
        consumer = self._store.options.get("consumer-id")
        if consumer is not None:
            consumers.consumer_path(self._store, str(consumer))
        return Beginning.of(self._store, None if consumer is None else str(consumer), None)

    def _follower(self) -> Follower:
        return Follower.of(Choice.of(self._store, self._columns, self._filter))

    def _begin(self) -> StreamOffset | None:
        """Return the offset at which the options let the stream begin, or None while no such snapshot exists."""
        store, beginning = self._store, self._beginning()
        named, first = beginning.first_snapshot_id(), earliest_kept(store)
        if named is not None and first is not None and max(named, 1) < first:
            who = "" if beginning.consumer_id is None else f" (consumer '{beginning.consumer_id}')"
            why = (
                f"a stream of table {store.name}{who} cannot begin at snapshot {named}, which has expired: "
                f"the table keeps {first} and later"
            )
            raise SnapshotNotFound(why, expired=True)
        start = beginning.find()
        if start is None:
            return None
        if start.full is None:
            return self._at(start.following)
        return StreamOffset(store.metadata_root, start.full.id, initial=True, history=start.full.delta_manifest_list)

    def _at(self, number: int) -> StreamOffset:
        """Return the offset at which the changes of snapshot ``number`` are read next."""
        before = snapshots.try_read(self._store, number - 1) if number > 1 else None
        return StreamOffset(
            self._store.metadata_root, number, history="" if before is None else before.delta_manifest_list
        )

    def _check_offset(self, value: Mapping[str, Any]) -> StreamOffset:
        """Return the parsed offset if the table was not rolled back since. Raises SnapshotNotFound, InvalidOption."""
        store, offset = self._store, StreamOffset.of(self._store, value)
        if offset.history:
            known = offset.snapshot if offset.initial else offset.snapshot - 1
            snapshot, newest = snapshots.try_read(store, known), snapshots.latest_id(store) or 0
            if snapshot.delta_manifest_list != offset.history if snapshot is not None else newest < known:
                raise SnapshotNotFound(
                    f"table {store.name} was rolled back or made anew: its snapshot {known} is not the one that the "
                    "stream's checkpoint knows; begin with a new checkpoint"
                )
            if snapshot is None and offset.initial:
                why = f"snapshot {known} of table {store.name} expired before the stream had read it as a whole"
                raise SnapshotNotFound(why, expired=True)
        return offset

    def _newest(self, offset: StreamOffset) -> int:
        """Return the newest snapshot that the stream may read. Raises SnapshotNotFound if the next has expired."""
        store = self._store
        newest = snapshots.latest_id(store) or 0
        newest = newest if self._until is None else min(newest, self._until)
        if offset.initial:
            return newest
        next_snapshot(store, offset.snapshot)
        delay, bound = (store.options.get(key) for key in ("streaming.read.snapshot.delay", "scan.bounded.watermark"))
        if delay is None and bound is None:
            return newest
        if ends_stream(store, snapshots.try_read(store, offset.snapshot - 1)):
            return offset.snapshot - 1
        for number in range(offset.snapshot, newest + 1):
            snapshot = next_snapshot(store, number)
            if snapshot is None or ends_stream(store, snapshot) or is_too_young(store, snapshot):
                return number - 1
        return newest

    def _limited(self, offset: StreamOffset, newest: int) -> StreamOffset:
        """Return the end of a limited epoch that begins at ``offset`` and ends with snapshot ``newest`` at most."""
        room = _Room(self._limits[MAX_FILES], self._limits[MAX_BYTES], self._limits[MAX_ROWS])
        number, done = offset.snapshot, offset.files
        if offset.initial:
            splits = self._splits(offset)
            sizes = np.array([(split.file_count, split.size, split.row_count) for split in splits], np.int64).reshape(
                -1, 3
            )
            end = done + room.take(sizes[done:])
            if end < len(splits):
                return StreamOffset(
                    offset.table, number, end, initial=True, plan=_plan_of_splits(splits), history=offset.history
                )
            number, done = number + 1, 0
        while number <= newest and not room.full:
            files = self._files_of(number, offset)
            end = done + room.take(files.sizes[done:])
            if end < len(files.sizes):
                if not end:
                    break
                return StreamOffset(offset.table, number, end, plan=files.plan, history=self._at(number).history)
            number, done = number + 1, 0
        return self._at(number)

    def _files_of(self, number: int, offset: StreamOffset | None = None) -> _SnapshotFiles:
        """Return the files with the changes of a snapshot.

        Raises SnapshotNotFound, and InvalidOption if the files counted by ``offset`` differ from the snapshot's files.
        """
        store, follower = self._store, self._follower()
        with expiry_named(store, number):
            snapshot = next_snapshot(store, number)
            if snapshot is None:
                raise SnapshotNotFound(
                    f"table {store.name} has no snapshot {number} any more: it was rolled back or made anew"
                )
            files = _SnapshotFiles(snapshot, follower.files(snapshot), follower.is_read_overwrite(snapshot))
        if offset is not None and offset.files and not offset.initial and offset.snapshot == number:
            self._require_plan(offset, files.plan)
        return files

    def _splits(self, offset: StreamOffset) -> tuple[Split, ...]:
        """Return the splits of the snapshot that is read as a whole; equal options give equal splits."""
        with expiry_named(self._store, offset.snapshot, whole=True):
            splits = self._follower().splits(snapshots.read(self._store, offset.snapshot))
        if offset.files:
            self._require_plan(offset, _plan_of_splits(splits))
        return splits

    def _require_plan(self, offset: StreamOffset, plan: str) -> None:
        if offset.plan != plan:
            accepted = (
                f"the options with which snapshot {offset.snapshot} was begun to be read (filter, changelog-producer, "
                "source.split.*): by these it is told by other files, of which the checkpoint counts some as read"
            )
            raise InvalidOption(_CHECKPOINT, json.dumps(offset.to_dict()), accepted, self._store.name)

    def _shares(self, start: StreamOffset, end: StreamOffset) -> Iterator[_Share]:
        """Yield all units of reading (splits, files, snapshots) between two offsets in order."""
        number, done = start.snapshot, start.files
        if not number:
            return
        if start.initial:
            splits = self._splits(start)
            alone = end.initial or (end.snapshot == number + 1 and not end.files)
            if end.initial:
                self._require_plan(end, _plan_of_splits(splits))
                splits = splits[: end.files]
            for turn, split in enumerate(splits[done:]):
                # rows of no two splits have one key, but later changes of their bucket come after them
                yield _Share(
                    turn if alone else (split.partition, split.bucket), split.size, "split", split.to_bytes(), number
                )
            if end.initial:
                return
            number, done = number + 1, 0
        while number < end.snapshot or (number == end.snapshot and end.files):
            files = self._files_of(number, start)
            stop = None
            if number == end.snapshot:
                self._require_plan(end, files.plan)
                stop = end.files
            if files.replaces and done == 0:
                yield _Share(None, 0, "snapshot", b"%d" % number, number)
            elif files.entries is not None:
                yield from self._in_buckets(number, files.entries.slice(done, None if stop is None else stop - done))
            number, done = number + 1, 0

    def _in_buckets(self, number: int, entries: pa.Table) -> Iterator[_Share]:
        """Yield the files of each bucket as one unit; without buckets, a unit is a group of files of limited size."""
        for partition, bucket, _, part in bucket_groups(entries):
            sizes = part.column("file_size").to_numpy()
            if self._store.bucket_mode is not BucketMode.UNAWARE:
                yield _Share((partition, bucket), int(sizes.sum()), "files", _packed(part), number)
                continue
            turns = (np.cumsum(sizes) - sizes) // _TASK_BYTES
            bounds = [0, *(np.flatnonzero(np.diff(turns)) + 1).tolist(), len(sizes)]
            for start, stop in pairwise(bounds):  # one per task
                place = (number, partition, start)
                yield _Share(
                    place, int(sizes[start:stop].sum()), "files", _packed(part.slice(start, stop - start)), number
                )

    # -- in a task ---------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task in the Arrow types of the stream.

        Raises CorruptFile, SnapshotNotFound if the rows' snapshot has expired.
        """
        try:
            yield from self._read(partition)
        except DredgeError as error:
            note_error(error)
            raise

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        choice = Choice.of(self._store, self._columns, self._filter)
        target = StreamChoice(self._store, choice.columns, None, self._kinds).target
        for kind, data, number in partition.value:
            named = expiry_named(self._store, number, whole=kind == "split")
            with named, closing(self._rows(choice, kind, data)) as batches:
                for batch in batches:
                    rows = batch if self._kinds else batch.filter(pc.invert(_retracts(batch)))
                    if rows.num_rows:
                        yield from to_spark(_with_text_kinds(rows) if self._kinds else rows, target)

    def _rows(self, choice: Choice, kind: str, data: bytes) -> Rows:
        if kind == "split":
            return split_rows(choice, Split.from_bytes(data))
        if kind == "files":
            return file_rows(choice, pa.ipc.open_stream(pa.py_buffer(data)).read_all())
        rows = Follower.of(choice).changes(snapshots.read(choice.store, int(data)))
        assert rows is not None
        return rows


@dataclass(frozen=True)
class _SnapshotFiles:
    """Changes of a snapshot: manifest entries, or (if ``replaces``) all rows that the snapshot removed and added."""

    snapshot: Snapshot
    entries: pa.Table | None
    replaces: bool

    @property
    def sizes(self) -> np.ndarray[Any, Any]:
        """Files, bytes and rows of each unit of reading: a file, or all rows that a snapshot replaces."""
        if self.replaces:
            return np.array([(1, 0, 0)], np.int64)
        if self.entries is None:
            return np.zeros((0, 3), np.int64)
        size, rows = (self.entries.column(name).to_numpy() for name in ("file_size", "row_count"))
        return np.stack([np.ones_like(size), size, rows], axis=1)

    @property
    def plan(self) -> str:
        """Checksum of the files in their order."""
        if self.entries is None:
            return _short(self.snapshot.delta_manifest_list)
        names = one_array(self.entries.column("file_name"))
        whole = pa.ListArray.from_arrays(pa.array([0, len(names)], pa.int32()), names)
        return _short(self.snapshot.delta_manifest_list, pc.binary_join(whole, "\n")[0].as_py())


def _plan_of_splits(splits: Sequence[Split]) -> str:
    return _short(*(f"{split.bucket} {split.file_count} {split.size} {split.row_count}" for split in splits))


def _short(*texts: str) -> str:
    return f"{zlib.crc32(chr(10).join(texts).encode()):08x}"


def _packed(entries: pa.Table) -> bytes:
    """Return manifest entries as one Arrow IPC stream, which needs no Python object per file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, entries.schema) as writer:
        writer.write_table(entries)
    return bytes(sink.getvalue())


def _retracts(batch: pa.RecordBatch) -> pa.Array:
    return arrow_array(is_retract(batch.column(0).to_numpy(zero_copy_only=False)))


def _with_text_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [kinds_to_text(batch.column(0)), *batch.columns[1:]], names=[ROW_KIND, *batch.schema.names[1:]]
    )


def _limit(key: str, text: str | None, table: str) -> int | None:
    """Return the value of an option that limits an epoch (files, bytes or rows), or None if the option is not set.

    Raises InvalidOption if the text is not a positive number or, for bytes, a memory size.
    """
    if text is None:
        return None
    limit = memory_size(text, key) if key == MAX_BYTES else parse_digits(text)
    if limit is None or limit < 1:
        accepted = "a size from 1 byte on, such as '64 mb'" if key == MAX_BYTES else "a whole number from 1 on"
        raise InvalidOption(key, text, accepted, table)
    return limit
