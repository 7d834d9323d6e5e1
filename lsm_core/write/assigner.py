"""Which bucket a key goes to in a table of dynamic buckets: known key hashes keep theirs, new ones fill buckets in turn. No I/O.

Sources: `HashBucketAssigner`, `PartitionIndex`, `SimpleHashBucketAssigner` (which is the same from an empty index on).
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
"""Bucket numbers are Java shorts; the last one is not given out."""
_BITS: Final = 16
_BUCKET_BITS: Final = (1 << _BITS) - 1
_ROW_BITS: Final = 32
_ROWS: Final = (1 << _ROW_BITS) - 1
_MERGE_SHARE: Final = 8
"""Recent hashes are sorted in among the others when they are more than a share of this: then each is moved few times."""


@dataclass(frozen=True)
class AssignerRules:
    """Which buckets an assigner may give out, and when one is full.

    ``target_rows``: hashes of a bucket. ``limit``: the largest number of buckets of a partition (`dynamic-bucket.max-buckets`), None
    without. ``assigners`` share the buckets of a partition: assigner ``number`` owns those whose number leaves ``number`` when divided
    by ``assigners`` (Java `BucketAssigner.isMyBucket`). ``table``: for errors.
    """

    target_rows: int
    limit: int | None
    table: str
    assigners: int = 1
    number: int = 0

    @classmethod
    def of(cls, options: TableOptions, table: str, assigners: int = 1, number: int = 0) -> AssignerRules:
        """The rules that the table's options give.

        Raises :class:`InvalidOption` for `dynamic-bucket.max-buckets` that are neither -1 nor 1 to 32767.
        """
        target = int(options.get("dynamic-bucket.target-row-num"))
        limit = int(options.get("dynamic-bucket.max-buckets"))
        if limit != -1 and not 1 <= limit <= LARGEST_BUCKET + 1:
            raise InvalidOption(
                "dynamic-bucket.max-buckets", limit, f"-1 (no limit) or 1 to {LARGEST_BUCKET + 1}", table
            )
        return cls(target, None if limit == -1 else limit, table, assigners, number)

    def first_own(self) -> int:
        """The lowest bucket number of this assigner."""
        return self.number % self.assigners

    def full(self) -> InvalidOption:
        """The error when a partition has no bucket left."""
        accepted = f"more than that: all {LARGEST_BUCKET + 1} buckets of a partition are full"
        return InvalidOption("dynamic-bucket.target-row-num", self.target_rows, accepted, self.table)

    def owned(self, buckets: Iterable[int]) -> list[int]:
        """Those of ``buckets`` that are this assigner's, ascending."""
        return sorted(bucket for bucket in buckets if bucket % self.assigners == self.first_own())


class PartitionIndex:
    """The key hashes of one partition with the bucket of each: 8 bytes a hash, sorted; not a Python object per hash.

    Hashes, not keys: keys of one hash share a bucket. A bucket is full when it has ``target_rows`` distinct hashes.
    """

    def __init__(
        self, rules: AssignerRules, files: Iterable[tuple[int, Hashes]] = (), keep: Keep | None = None
    ) -> None:
        """``files``: (bucket, its hashes) of every HASH index file of the partition. A hash in two of them is the lower bucket's.

        ``keep``: which hashes this index will be asked for; the others only count.
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
        """Buckets that hold a hash, ascending."""
        return sorted(self._rooms.counts)

    def assign(self, hashes: Hashes) -> Buckets:
        """The bucket of each of ``hashes`` (one a row, in order of arrival); the new ones are known from now on.

        A new hash goes to the lowest own bucket with room, else to the lowest own number that is free; where the limit forbids more
        buckets, to any own one, chosen by the hash so that every engine run chooses the same. Raises :class:`InvalidOption` when
        there are no more bucket numbers.
        """
        return self._assign(hashes, self._place)

    def assign_apart(self, hashes: Hashes, owner: Callable[[Hashes], Buckets]) -> Buckets:
        """As :meth:`assign`, for one of several writers that cannot ask each other: each gives a new hash the same bucket.

        ``owner``: the assigner of each hash. All new hashes of one go to the bucket that was its first with room when
        this index was read, however many come.
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
        """The bucket of assigner ``number`` for new hashes; several where all are full and there may be no more."""
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
            came = rows[starts[new]]
            arrival = np.zeros(len(hashes), np.bool_)
            arrival[came] = True
            rank = np.cumsum(arrival)[came] - 1
            assigned[new] = place(distinct[new], rank)
            self._add(distinct[new], assigned[new])
        buckets = np.empty(len(hashes), np.int32)
        buckets[rows] = np.repeat(assigned, np.diff(np.r_[starts, len(hashes)]))
        return buckets

    def learn(self, hashes: Hashes, bucket: int) -> None:
        """Hashes of rows that another assigner has put into ``bucket``."""
        distinct = np.unique(hashes)
        new = distinct[self._look_up(distinct) < 0]
        if len(new):
            buckets = np.full(len(new), bucket, np.int64)
            self._add(new, buckets)
            self._rooms.count(buckets)

    @property
    def changed(self) -> list[int]:
        """Buckets that got new hashes since :meth:`settled`, ascending."""
        return sorted(int(bucket) for bucket in self._changed)

    def settled(self, bucket: int) -> None:
        """The index of ``bucket`` was written as it is now."""
        self._changed.discard(bucket)

    def hashes_of(self, bucket: int) -> Hashes:
        """The hashes of one bucket, ascending."""
        mine = [side[(side & _BUCKET_BITS) == bucket] for side in (self._known, self._recent)]
        return (_merge_sorted(*mine) >> _BITS).astype(np.int32)

    def _look_up(self, distinct: Hashes) -> I64:
        """The bucket of each hash (ascending), -1 where it is not known."""
        buckets = np.full(len(distinct), -1, np.int64)
        wanted = _pack(distinct, 0)
        for side in (self._known, self._recent):
            if not len(side):
                continue
            at = np.minimum(np.searchsorted(side, wanted), len(side) - 1)
            entry = side[at]
            hit = (entry >> _BITS) == distinct
            buckets[hit] = entry[hit] & _BUCKET_BITS
        return buckets

    def _add(self, distinct: Hashes, buckets: I64) -> None:
        """Take in hashes, ascending and not known."""
        self._changed |= set(np.flatnonzero(np.bincount(buckets)))
        more = (distinct.astype(np.int64) << _BITS) | buckets  # ascending, as the hashes are
        self._recent = _merge_sorted(self._recent, more)
        if len(self._recent) * _MERGE_SHARE > len(self._known):
            self._known, self._recent = _merge_sorted(self._known, self._recent), np.empty(0, np.int64)

    def _place(self, new: Hashes, rank: I64) -> I64:
        """Buckets for hashes that are not known; ``rank``: their order of arrival, from 0. The counts say so afterwards."""
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
    """How many keys the buckets of one partition hold, and which have room for more."""

    def __init__(self, rules: AssignerRules, counts: Mapping[int, int]) -> None:
        """``counts``: keys by bucket."""
        self._rules = rules
        self.counts = dict(counts)
        self._next = rules.first_own()

    def take(self, keys: int) -> I64:
        """A bucket for each of so many new keys, in order of arrival; -1 where there is no room and may be no more buckets.

        Own buckets are filled from the lowest on, then new ones are opened, the lowest free number first.
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
        """Keys were put into these buckets, one each."""
        counted = np.bincount(buckets)
        for bucket in np.flatnonzero(counted):
            self.counts[int(bucket)] = self.counts.get(int(bucket), 0) + int(counted[bucket])

    def free(self) -> int:
        """The lowest own bucket number that holds nothing."""
        while self._next in self.counts:
            self._next += self._rules.assigners
        return self._next


def number_of_assigners(options: TableOptions, parallelism: int) -> int:
    """How many assigners a write of ``parallelism`` tasks has: as `dynamic-bucket.assigner-parallelism`, `.initial-buckets` and
    `.max-buckets` allow.
    """
    wanted = options.get("dynamic-bucket.assigner-parallelism")
    initial = options.get("dynamic-bucket.initial-buckets")
    most = int(options.get("dynamic-bucket.max-buckets"))
    limits = [parallelism if wanted is None else int(wanted), *([] if initial is None else [int(initial)])]
    return max(1, min([*limits, *([] if most == -1 else [most])]))


def assigner_of(partition_hash: int, hashes: Hashes, assigners: int, channels: int | None = None) -> Buckets:
    """Which of ``assigners`` owns each key hash of a partition, as Java spreads them over ``channels`` tasks (`BucketAssigner.computeAssigner`).

    ``partition_hash``: the Java hash of the partition row; channels None: as many as assigners.
    """
    channels = assigners if channels is None else channels
    # Java's remainder keeps the sign of its left side
    start = abs(int(np.fmod(partition_hash, channels)))
    return ((start + np.abs(np.fmod(hashes.astype(np.int64), assigners))) % channels).astype(np.int32)


def _pack(hashes: Hashes, bucket: int) -> I64:
    return (hashes.astype(np.int64) << _BITS) | bucket


def _merge_sorted(left: I64, right: I64) -> I64:
    """Two ascending arrays as one: the stable sort finds the two runs and merges them."""
    if not len(left) or not len(right):
        return right if not len(left) else left
    merged = np.concatenate((left, right))
    merged.sort(kind="stable")
    return merged


__all__ = [
    "LARGEST_BUCKET",
    "AssignerRules",
    "Buckets",
    "Hashes",
    "Keep",
    "Mask",
    "PartitionIndex",
    "assigner_of",
    "number_of_assigners",
]
