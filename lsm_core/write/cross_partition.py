"""Writes to tables whose primary key does not contain the partition columns: each key is looked up in all partitions.

If the key exists in a partition other than the row's, the merge engine decides: the row is written to the partition of
the existing key, or the key moves to the row's own partition, or the row is dropped.

Java reads all keys of the table into RocksDB when a writer opens. Here the rows of a commit are collected, and spilled
in parts by key hash to the local disk if they are many. Their keys are looked up in the table's sorted files and in
uncommitted files. So memory is bounded by one part, and nothing is kept between commits.

Source: Paimon `GlobalIndexAssigner`, `IndexBootstrap`, `ExistingProcessor`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import I64, arrow_array, one_array
from lsm_core.files.spill import SpilledRun, SpillSpace
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.hashing import hash_rows
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import normalise_keys
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.read.lookup import places_of_keys
from lsm_core.types import RowKind
from lsm_core.write.assigner import AssignerRules, BucketRooms
from lsm_core.write.bucket import partition_codes, same_numbers

PART_BYTES: Final = 64 << 20
"""Bytes of rows that are processed at once; more rows are spilled to the local disk in parts by key hash."""
_PARTS: Final = 16
_PART_BITS: Final = 4
_KIND: Final = "\0kind"
_NOWHERE: Final = -1
_MOST_BUCKETS: Final = 1 << 15


@dataclass(frozen=True)
class Moved:
    """Rows to write to one bucket, in arrival order; moved keys have a -D row in the bucket that they leave.

    Attributes:
        partition: BinaryRow of the partition.
        bucket: number of the bucket.
        rows: rows with the table's columns.
        kinds: int8 row kinds.
        follows: True if none of the incoming rows had this partition's values; the rows are here because their keys
            are or were in this partition.
    """

    partition: bytes
    bucket: int
    rows: pa.Table
    kinds: pa.Array
    follows: bool


@dataclass(frozen=True)
class Known:
    """State of the table in which keys are looked up.

    Attributes:
        snapshot: the newest snapshot, or None for an empty table.
        pending: manifest entries (`ENTRY_SCHEMA`) of this writer's earlier messages that are not committed yet.
    """

    snapshot: Snapshot | None
    pending: pa.Table | None = None

    def keys_by_bucket(self, store: TableStore, partitions: Sequence[bytes]) -> dict[bytes, dict[int, int]]:
        """Return an upper bound of the number of keys by bucket, for each partition.

        Versions of one key are counted separately until they are compacted.
        """
        columns = ["partition", "bucket", "row_count", "delete_row_count"]
        tables = []
        if self.snapshot is not None:
            tables.append(live_entries(store, self.snapshot, partitions=partitions, columns=columns))
        if self.pending is not None:
            partition_array = pa.array(partitions, pa.binary())
            tables.append(
                self.pending.filter(pc.is_in(self.pending.column("partition"), partition_array)).select(columns)
            )
        counts: dict[bytes, dict[int, int]] = {partition: {} for partition in partitions}
        if tables:
            sums = pa.concat_tables(tables).group_by(columns[:2]).aggregate([(name, "sum") for name in columns[2:]])
            for bucket in sums.to_pylist():  # one a bucket
                held = bucket["row_count_sum"] - 2 * (bucket["delete_row_count_sum"] or 0)
                counts[bucket["partition"]][bucket["bucket"]] = max(held, 0)
        return counts


class _Gathered:
    """Collected rows in arrival order: in memory, or on the local disk in parts by key hash.

    A part that is still too large is split again; ``level`` is the number of splits so far.
    """

    def __init__(self, store: TableStore, space: SpillSpace, level: int = 0) -> None:
        self._store, self._space, self._level = store, space, level
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._parts: list[list[SpilledRun]] | None = None

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > PART_BYTES and self._level * _PART_BITS < 32:
            self._put_aside()

    def parts(self) -> Iterator[pa.Table]:
        """Yield the rows as tables, each row once; all rows with the same key are in the same table."""
        if self._parts is None:
            held, self._held, self._bytes = self._held, [], 0
            if held:
                yield pa.concat_tables(held)
            return
        if self._held:
            self._put_aside()
        parts, self._parts = self._parts, None
        for runs in parts:
            inner = _Gathered(self._store, self._space, self._level + 1)
            for run in runs:
                inner.add(pa.Table.from_batches(list(run.batches())))
                run.delete()
            yield from inner.parts()

    def _put_aside(self) -> None:
        rows = pa.concat_tables(self._held)
        self._held, self._bytes = [], 0
        schema = self._store.schema
        columns = [one_array(rows.column(name)) for name in schema.primary_keys]
        hashes = hash_rows(columns, [schema.field(name).type for name in schema.primary_keys]).view(np.uint32)
        self._parts = self._parts or [[] for _ in range(_PARTS)]
        for part, at in same_numbers((hashes >> np.uint32(self._level * _PART_BITS)) & np.uint32(_PARTS - 1)):
            self._parts[part].append(self._space.spill(rows.take(arrow_array(at)).to_batches(), rows.schema))


class KeyMoves:
    """Collector of the rows of one commit for a table whose primary key does not contain the partition columns.

    :meth:`routed` looks up the keys and yields the rows by the bucket to which they are written.
    """

    def __init__(self, store: TableStore, assigners: int = 1, number: int = 0, now_ms: int | None = None) -> None:
        """Start without rows.

        Args:
            store: the table.
            assigners: number of writers among which the keys and the buckets of every partition are divided.
            number: number of this writer, from 0 to ``assigners`` - 1.
            now_ms: epoch ms from which the age of keys is computed (`cross-partition-upsert.index-ttl`); None for now.
        """
        self._store = store
        self._space = SpillSpace.of(store.options)
        self._gathered = _Gathered(store, self._space)
        lifetime = store.options.get("cross-partition-upsert.index-ttl")
        now = store.clock.now_ms() if now_ms is None else now_ms
        self._newer_than_ms = None if lifetime is None else now - int(lifetime)
        # Java keeps no limit here
        self._rules = replace(AssignerRules.of(store.options, store.name, assigners, number), limit=None)

    def add(self, rows: pa.Table, kinds: pa.Array | None) -> None:
        """Collect validated rows with their kinds (int8; None for all inserts). Raises StorageFull."""
        if not rows.num_rows:
            return
        row_kinds = pa.repeat(pa.scalar(0, pa.int8()), rows.num_rows) if kinds is None else kinds
        self._gathered.add(rows.append_column(_KIND, row_kinds))

    def routed(self, known: Known) -> Iterator[Moved]:
        """Yield the collected rows by bucket, and empty the collection.

        If a row's key exists in another partition, the merge engine decides. With deduplicate, the old row is deleted
        and the key moves. With partial-update and aggregation, the new row is written to the key's old partition. With
        first-row, the new row is dropped.

        Args:
            known: state of the table in which the keys are looked up.

        Raises:
            CorruptFile: a file cannot be read.
        """
        rooms: dict[bytes, BucketRooms] = {}
        for table in self._gathered.parts():
            yield from self._routed(table, known, rooms)
        self.close()

    def close(self) -> None:
        """Discard the collected rows and free their local disk space."""
        self._gathered = _Gathered(self._store, self._space)
        self._space.close()

    def _routed(self, table: pa.Table, known: Known, rooms: dict[bytes, BucketRooms]) -> Iterator[Moved]:
        store, schema = self._store, self._store.schema
        kinds = one_array(table.column(_KIND)).to_numpy(zero_copy_only=False)
        rows = table.drop_columns([_KIND])
        codes, partitions = partition_codes(schema, rows)
        keys = [one_array(rows.column(name)) for name in schema.primary_keys]
        order, same = normalise_keys(keys, nullable=schema.nullable_key).order(sorted_runs=False)
        first = np.concatenate((np.ones(1, np.bool_), ~same))
        number = np.cumsum(first) - 1
        # Where each key lives: a partition's number and a bucket.
        numbers = {partition: at for at, partition in enumerate(partitions)}
        home = np.full(int(number[-1]) + 1, _NOWHERE, np.int64)
        bucket_there = np.full(len(home), _NOWHERE, np.int64)
        keys_in_order = rows.select(schema.primary_keys).take(arrow_array(order[first]))
        lives = places_of_keys(store, known.snapshot, keys_in_order, self._newer_than_ms, known.pending)
        for partition, bucket, which in lives:
            home[which] = numbers.setdefault(partition, len(numbers))
            bucket_there[which] = bucket
        partitions = list(numbers)
        part = codes[order].astype(np.int64)
        if store.options.merge_engine == "deduplicate":
            moves, before = _moves(part, first, home[number])
        else:
            # All rows of a key go where it lives, or where its first row says
            settled = np.where(home == _NOWHERE, part[first], home)[number]
            moves, before = first & (home[number] == _NOWHERE), np.full(len(part), _NOWHERE, np.int64)
            if store.options.merge_engine == "first-row":
                kept = settled == part
                order, part, first, moves, before = order[kept], part[kept], first[kept], moves[kept], before[kept]
                number = number[kept]
            part = settled if len(settled) == len(part) else part
        placed = np.full(len(part), _NOWHERE, np.int64)
        self._place(placed, moves, part, order, partitions, known, rooms)
        # A row goes to the bucket of the last placement of its key, or to where the key lived.
        at = np.arange(len(part))
        started = np.maximum.accumulate(np.where(moves | _starts(number), at, 0))
        buckets = np.where(moves, placed, bucket_there[number])[started]
        deleted = np.flatnonzero(before != _NOWHERE)
        old_bucket = np.where(_starts(number)[deleted], bucket_there[number[deleted]], buckets[deleted - 1])
        yield from _emitted(
            rows,
            kinds,
            _Emission(order, part, buckets, 2 * order + 1, codes[order] == part),
            _Emission(
                order[deleted], before[deleted], old_bucket, 2 * order[deleted], np.zeros(len(deleted), np.bool_)
            ),
            partitions,
            store,
        )

    def _place(
        self,
        placed: I64,
        moves: npt.NDArray[np.bool_],
        part: I64,
        order: I64,
        partitions: list[bytes],
        known: Known,
        rooms: dict[bytes, BucketRooms],
    ) -> None:
        """Choose a bucket for every row whose key is new or moves, in arrival order.

        Args:
            placed: bucket number of each row; the chosen buckets are stored here.
            moves: mask of the rows whose key is new or moves.
            part: partition number of each row.
            order: arrival position of each row.
            partitions: partition (as BinaryRow) by partition number.
            known: state of the table in which the keys per bucket are counted.
            rooms: free room of the buckets by partition; missing partitions are added.
        """
        rows = np.flatnonzero(moves)
        if not len(rows):
            return
        rows = rows[np.argsort(order[rows])]
        groups = list(same_numbers(part[rows]))
        unknown = [partitions[code] for code, _ in groups if partitions[code] not in rooms]
        if unknown:
            counts = known.keys_by_bucket(self._store, unknown)
            rooms.update((partition, BucketRooms(self._rules, key_counts)) for partition, key_counts in counts.items())
        for code, which in groups:
            bucket_numbers = rooms[partitions[code]].take(len(which))
            if (bucket_numbers < 0).any():
                raise self._rules.full()
            placed[rows[which]] = bucket_numbers


@dataclass(frozen=True)
class _Emission:
    """Rows to write, as arrays with one element per row.

    Attributes:
        rows: positions in the incoming table.
        part: partition numbers.
        bucket: bucket numbers.
        turn: sort key of the write order, in which kept rows and -D rows are mixed.
        named: whether the row is written to the partition that its own partition columns name.
    """

    rows: I64
    part: I64
    bucket: I64
    turn: I64
    named: npt.NDArray[np.bool_]


def _emitted(
    rows: pa.Table,
    kinds: npt.NDArray[np.int8],
    kept: _Emission,
    deleted: _Emission,
    partitions: list[bytes],
    store: TableStore,
) -> Iterator[Moved]:
    """Yield kept rows and -D rows by bucket; their partition columns have the values of the target partition.

    Args:
        rows: incoming rows.
        kinds: row kind of each incoming row.
        kept: rows to write with their own kind.
        deleted: rows to write as -D.
        partitions: partition (as BinaryRow) by partition number.
        store: the table.
    """
    source, part, bucket, turn, named = (
        np.concatenate((getattr(kept, name), getattr(deleted, name)))
        for name in ("rows", "part", "bucket", "turn", "named")
    )
    row_kinds = np.concatenate((kinds[kept.rows], np.full(len(deleted.rows), RowKind.DELETE, np.int8)))
    arrival = np.argsort(turn)
    source, part, bucket, row_kinds, named = (side[arrival] for side in (source, part, bucket, row_kinds, named))
    values = decode_rows(pa.array(partitions, pa.binary()), list(store.schema.partition_types))
    for place, at in same_numbers(part * _MOST_BUCKETS + bucket) if len(source) else ():
        code, number = divmod(place, _MOST_BUCKETS)
        moved_rows = rows.take(arrow_array(source[at]))
        for name, column in zip(store.schema.partition_keys, values, strict=True):
            where = moved_rows.schema.get_field_index(name)
            field = moved_rows.schema.field(name)
            repeated = pa.repeat(column[code], len(at)).cast(field.type)
            moved_rows = moved_rows.set_column(where, field, repeated)
        yield Moved(partitions[code], number, moved_rows, pa.array(row_kinds[at]), not named[at].any())


def _moves(part: I64, first: npt.NDArray[np.bool_], home: I64) -> tuple[npt.NDArray[np.bool_], I64]:
    """Return a mask of the rows whose key is new or moves, and the partition number that each row's key leaves.

    The partition number is -1 for new keys and for rows outside the mask. Rows are ordered by key, then by arrival.

    Args:
        part: partition number of each row.
        first: mask of the first row of each key.
        home: for each row, number of the partition in which the table has the row's key, or -1 for a new key.
    """
    before = np.empty(len(part), np.int64)
    before[0] = _NOWHERE
    before[1:] = part[:-1]
    before = np.where(first, home, before)
    moves = before != part
    return moves, np.where(moves, before, _NOWHERE)


def _starts(number: I64) -> npt.NDArray[np.bool_]:
    """Return a mask that is true at the first row of every key; ``number`` is the key number of each row."""
    return np.concatenate((np.ones(min(1, len(number)), np.bool_), number[1:] != number[:-1]))
