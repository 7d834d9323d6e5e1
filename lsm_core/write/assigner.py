"""Bucket of each key in a table of dynamic buckets: known hashes keep their bucket, new ones fill buckets in turn.

This module does no I/O.

Source: Paimon `HashBucketAssigner`, `PartitionIndex`, and `SimpleHashBucketAssigner`, which behaves the same once the
index is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lsm_core.arrays import I64
from lsm_core.errors import InvalidOption
from lsm_core.options import TableOptions

Hashes: TypeAlias = npt.NDArray[np.int32]
"""Java hashes of trimmed primary keys."""
Buckets: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Keep: TypeAlias = Callable[[Hashes], Mask]

LARGEST_BUCKET: Final = 32_766
"""Largest bucket number: bucket numbers are Java shorts, and the largest short (32,767) is not used."""
_BITS: Final = 16
_BUCKET_BITS: Final = (1 << _BITS) - 1
_ROW_BITS: Final = 32
_ROWS: Final = (1 << _ROW_BITS) - 1
_MERGE_SHARE: Final = 8
"""Recent hashes are merged into the known hashes only above 1/8 of their number, so each hash is copied few times."""


@dataclass(frozen=True)
class AssignerRules:
    """Rules of one assigner: the bucket numbers that this assigner may use, and the size of a full bucket.

    Attributes:
        target_rows: number of distinct hashes in a full bucket (`dynamic-bucket.target-row-num`).
        limit: largest number of buckets of a partition (`dynamic-bucket.max-buckets`), or None.
        table: name of the table, for errors.
        assigners: number of assigners of a partition. An assigner owns the buckets whose number equals ``number``
            modulo ``assigners`` (Java `BucketAssigner.isMyBucket`).
        number: number of this assigner.
    """

    target_rows: int
    limit: int | None
    table: str
    assigners: int = 1
    number: int = 0

    @classmethod
    def of(cls, options: TableOptions, table: str, assigners: int = 1, number: int = 0) -> AssignerRules:
        """Return the rules that the table's options set.

        Args:
            options: options of the table.
            table: name of the table, for errors.
            assigners: number of assigners of a partition.
            number: number of this assigner.

        Raises:
            InvalidOption: `dynamic-bucket.max-buckets` is neither -1 nor 1 to 32767.
        """
        target = int(options.get("dynamic-bucket.target-row-num"))
        limit = int(options.get("dynamic-bucket.max-buckets"))
        if limit != -1 and not 1 <= limit <= LARGEST_BUCKET + 1:
            raise InvalidOption(
                "dynamic-bucket.max-buckets", limit, f"-1 (no limit) or 1 to {LARGEST_BUCKET + 1}", table
            )
        return cls(target, None if limit == -1 else limit, table, assigners, number)

    def first_own(self) -> int:
        """Return the lowest bucket number of this assigner."""
        return self.number % self.assigners

    def full(self) -> InvalidOption:
        """Return the error to raise when all buckets of a partition are full."""
        accepted = f"more than that: all {LARGEST_BUCKET + 1} buckets of a partition are full"
        return InvalidOption("dynamic-bucket.target-row-num", self.target_rows, accepted, self.table)

    def owned(self, buckets: Iterable[int]) -> list[int]:
        """Return the buckets that belong to this assigner, ascending."""
        return sorted(bucket for bucket in buckets if bucket % self.assigners == self.first_own())


class PartitionIndex:
    """Key hashes of one partition with their buckets, in sorted arrays of 8 bytes per hash.

    Keys with the same hash share a bucket. A bucket is full when it has ``target_rows`` distinct hashes.
    """

    def __init__(
        self, rules: AssignerRules, files: Iterable[tuple[int, Hashes]] = (), keep: Keep | None = None
    ) -> None:
        """Read the hashes of a partition.

        Args:
            rules: rules of the assigner.
            files: bucket and hashes of every HASH index file of the partition. A hash in two files belongs to the lower
                bucket.
            keep: function that returns a mask of the hashes to keep in memory, for a writer that receives only some of
                the keys. All other hashes only count towards the size of their bucket. None keeps all hashes.
        """
        self._rules = rules
        counts: dict[int, int] = {}
        kept = []
        for bucket, hashes in files:
            counts[bucket] = counts.get(bucket, 0) + len(hashes)
            kept.append((bucket, hashes if keep is None else hashes[keep(hashes)]))
        known = np.empty(sum(len(hashes) for _, hashes in kept), np.int64)
        start = 0
        for bucket, hashes in kept:
            part = known[start : start + len(hashes)]
            part[:] = _pack(hashes, bucket)
            if not (part[1:] >= part[:-1]).all():  # Java's files are in no order
                part.sort()
            start += len(hashes)
        known.sort(kind="stable")  # finds the sorted files and merges them
        self._known: I64 = known
        self._recent: I64 = np.empty(0, np.int64)
        self._changed: set[int] = set()
        self._rooms = BucketRooms(rules, counts)
        self._apart: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._recent)

    @property
    def buckets(self) -> list[int]:
        """Numbers of the buckets with at least one hash, ascending."""
        return sorted(self._rooms.counts)

    def assign(self, hashes: Hashes) -> Buckets:
        """Return the bucket of each hash, and add the new hashes to the index.

        A new hash goes to the lowest bucket of this assigner that is not full. If all are full, the hash goes to a new
        bucket with the assigner's lowest free number. If the limit forbids a new bucket, the hash goes to the bucket at
        index ``abs(hash) % count`` of the assigner's ``count`` buckets. So a repeated write chooses the same bucket.

        Args:
            hashes: one key hash per row, in arrival order.

        Raises:
            InvalidOption: no bucket number is free.
        """
        return self._assign(hashes, self._place)

    def assign_apart(self, hashes: Hashes, owner: Callable[[Hashes], Buckets]) -> Buckets:
        """Return the bucket of each hash by a rule that gives the same bucket in every writer, without communication.

        An assigner's new hashes, however many, all go to the assigner's first bucket that was not full when the index
        was read. Without such a bucket they go to a new bucket. If the limit forbids a new bucket, each new hash goes
        to one of the assigner's buckets, chosen by the hash modulo the number of these buckets.

        Args:
            hashes: one key hash per row, in arrival order.
            owner: returns the number of the assigner of each hash.
        """

        def place(new: Hashes, rank: I64) -> I64:
            del rank
            number_of = owner(new)
            placed = np.empty(len(new), np.int64)
            for number in np.flatnonzero(np.bincount(number_of)):
                mine = number_of == number
                choice = np.array(self._choice_apart(int(number)), np.int64)
                placed[mine] = choice[np.abs(new[mine].astype(np.int64)) % len(choice)]
            return placed

        return self._assign(hashes, place)

    def _choice_apart(self, number: int) -> list[int]:
        """Return the buckets among which assigner ``number`` distributes new key hashes.

        The result is one bucket that is not full, or one new bucket. If the limit forbids a new bucket, the result is
        all buckets of the assigner, which are full.
        """
        if number not in self._apart:
            rules, counts = replace(self._rules, number=number), self._rooms.counts
            own = rules.owned(counts)
            room = [bucket for bucket in own if counts[bucket] < rules.target_rows]
            free = BucketRooms(rules, counts).free()
            last = LARGEST_BUCKET if rules.limit is None else rules.limit - 1
            self._apart[number] = room[:1] or ([free] if free <= last else own)
        return self._apart[number]

    def _assign(self, hashes: Hashes, place: Callable[[Hashes, I64], I64]) -> Buckets:
        if not len(hashes):
            return np.zeros(0, np.int32)
        # Hash and row in one number: one plain sort groups equal hashes, the first row of each in front.
        keyed = (hashes.astype(np.int64) << _ROW_BITS) | np.arange(len(hashes))
        keyed.sort()
        ordered, rows = (keyed >> _ROW_BITS).astype(np.int32), keyed & _ROWS
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        distinct = ordered[starts]
        assigned = self._look_up(distinct)
        new = np.flatnonzero(assigned < 0)
        if len(new):
            first_rows = rows[starts[new]]
            arrival = np.zeros(len(hashes), np.bool_)
            arrival[first_rows] = True
            rank = np.cumsum(arrival)[first_rows] - 1
            assigned[new] = place(distinct[new], rank)
            self._add(distinct[new], assigned[new])
        buckets = np.empty(len(hashes), np.int32)
        buckets[rows] = np.repeat(assigned, np.diff(np.r_[starts, len(hashes)]))
        return buckets

    def learn(self, hashes: Hashes, bucket: int) -> None:
        """Add hashes that another assigner has put into a bucket."""
        distinct = np.unique(hashes)
        new = distinct[self._look_up(distinct) < 0]
        if len(new):
            buckets = np.full(len(new), bucket, np.int64)
            self._add(new, buckets)
            self._rooms.count(buckets)

    @property
    def changed(self) -> list[int]:
        """Numbers of the buckets with new hashes that are in no index file yet, ascending."""
        return sorted(int(bucket) for bucket in self._changed)

    def settled(self, bucket: int) -> None:
        """Record that the index file of a bucket was written with all its hashes; :attr:`changed` then omits it."""
        self._changed.discard(bucket)

    def hashes_of(self, bucket: int) -> Hashes:
        """Return the hashes of one bucket, ascending."""
        mine = [side[(side & _BUCKET_BITS) == bucket] for side in (self._known, self._recent)]
        return (_merge_sorted(*mine) >> _BITS).astype(np.int32)

    def _look_up(self, distinct: Hashes) -> I64:
        """Return the bucket of each hash of the ascending array ``distinct``, or -1 for an unknown hash."""
        buckets = np.full(len(distinct), -1, np.int64)
        packed = _pack(distinct, 0)
        for side in (self._known, self._recent):
            if not len(side):
                continue
            at = np.minimum(np.searchsorted(side, packed), len(side) - 1)
            entry = side[at]
            hit = (entry >> _BITS) == distinct
            buckets[hit] = entry[hit] & _BUCKET_BITS
        return buckets

    def _add(self, distinct: Hashes, buckets: I64) -> None:
        """Add hashes that are not in the index yet, in ascending order, with their buckets."""
        self._changed |= set(np.flatnonzero(np.bincount(buckets)))
        more = (distinct.astype(np.int64) << _BITS) | buckets  # ascending, as the hashes are
        self._recent = _merge_sorted(self._recent, more)
        if len(self._recent) * _MERGE_SHARE > len(self._known):
            self._known, self._recent = _merge_sorted(self._known, self._recent), np.empty(0, np.int64)

    def _place(self, new: Hashes, rank: I64) -> I64:
        """Return a bucket for each new hash and count its keys; ``rank`` is each hash's order of arrival, from 0."""
        rules, rooms = self._rules, self._rooms
        placed = rooms.take(len(new))[rank]
        beyond = np.flatnonzero(placed < 0)
        if len(beyond):
            own = np.array(rules.owned(rooms.counts), np.int64)
            if rules.limit is None or not len(own):
                raise rules.full()
            placed[beyond] = own[np.abs(new[beyond].astype(np.int64)) % len(own)]
            rooms.count(placed[beyond])
        return placed


class BucketRooms:
    """Number of keys in each bucket of one partition, from which buckets for new keys are chosen."""

    def __init__(self, rules: AssignerRules, counts: Mapping[int, int]) -> None:
        """Start with ``counts``, the number of keys by bucket."""
        self._rules = rules
        self.counts = dict(counts)
        self._next = rules.first_own()

    def take(self, keys: int) -> I64:
        """Return an array with a bucket for each of ``keys`` new keys in arrival order, and count the keys.

        Keys for which no bucket has room and no number is free get -1.

        The assigner's existing buckets are filled first, the lowest number first. Then new buckets are opened, the
        lowest free number first.
        """
        rules, left = self._rules, keys
        numbers, counts = [], []
        for bucket in rules.owned(self.counts):
            room = min(left, rules.target_rows - self.counts[bucket])
            if room > 0:
                numbers.append(bucket)
                counts.append(room)
                left -= room
        last = LARGEST_BUCKET if rules.limit is None else rules.limit - 1
        while left and (bucket := self.free()) <= last:
            self.counts[bucket] = 0
            numbers.append(bucket)
            counts.append(min(left, rules.target_rows))
            left -= counts[-1]
        for bucket, count in zip(numbers, counts, strict=True):
            self.counts[bucket] += count
        return np.repeat(np.array([*numbers, -1], np.int64), [*counts, left])

    def count(self, buckets: I64) -> None:
        """Increase the key count of each bucket by the number of times that its number occurs in ``buckets``."""
        counted = np.bincount(buckets)
        for bucket in np.flatnonzero(counted):
            self.counts[int(bucket)] = self.counts.get(int(bucket), 0) + int(counted[bucket])

    def free(self) -> int:
        """Return the lowest bucket number of this assigner whose bucket has no keys."""
        while self._next in self.counts:
            self._next += self._rules.assigners
        return self._next


def number_of_assigners(options: TableOptions, parallelism: int) -> int:
    """Return the number of assigners of a write with ``parallelism`` tasks.

    The option `dynamic-bucket.assigner-parallelism` replaces ``parallelism``. The options
    `dynamic-bucket.initial-buckets` and `dynamic-bucket.max-buckets` limit the number.
    """
    option = options.get("dynamic-bucket.assigner-parallelism")
    initial = options.get("dynamic-bucket.initial-buckets")
    most = int(options.get("dynamic-bucket.max-buckets"))
    limits = [parallelism if option is None else int(option), *([] if initial is None else [int(initial)])]
    return max(1, min([*limits, *([] if most == -1 else [most])]))


def assigner_of(partition_hash: int, hashes: Hashes, assigners: int, channels: int | None = None) -> Buckets:
    """Return the assigner of each key hash of a partition, as Java distributes them over tasks.

    Args:
        partition_hash: Java hash of the partition row.
        hashes: key hashes.
        assigners: number of assigners.
        channels: number of tasks that receive rows; None for one task per assigner.

    Source: Paimon `BucketAssigner.computeAssigner`.
    """
    channels = assigners if channels is None else channels
    # Java's remainder keeps the sign of its left side
    start = abs(int(np.fmod(partition_hash, channels)))
    return ((start + np.abs(np.fmod(hashes.astype(np.int64), assigners))) % channels).astype(np.int32)


def _pack(hashes: Hashes, bucket: int) -> I64:
    return (hashes.astype(np.int64) << _BITS) | bucket


def _merge_sorted(left: I64, right: I64) -> I64:
    """Merge two ascending arrays; NumPy's stable sort detects the two sorted runs and merges them."""
    if not len(left) or not len(right):
        return right if not len(left) else left
    merged = np.concatenate((left, right))
    merged.sort(kind="stable")
    return merged
