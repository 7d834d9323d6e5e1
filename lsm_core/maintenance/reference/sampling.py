"""Which keys the reference is asked about: all of a small unit; else deletes, ties and nulls first, then keys by hash.

A key is chosen by its rank, a salted hash, so every version of it is found in every file without holding the keys of the unit.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import chosen_rows
from lsm_core.files import open_kv
from lsm_core.files.formats import FileSource
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.hashing import hash_rows
from lsm_core.format.kv_layout import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds
from lsm_core.types.dictionaries import plain_batch

Ranks = npt.NDArray[np.uint64]

SMALL_UNIT_ROWS: Final = 4_096
"""Up to so many input rows every key is compared."""
KEYS: Final = 1_024
"""Keys compared in larger units, beside the special ones; at least 1,000 are promised of a whole unit."""
_AT_FIRST: Final = 1.2
"""So many times the keys are aimed at in the largest file, as ranks are uneven; as more keys pass the sample narrows."""
_SPECIAL: Final = 400
_MOST_ROWS: Final = 200_000
_MOST_BYTES: Final = 64 << 20
"""Arrow bytes of the rows that are kept: rows of 12 KiB in five versions fill it, of wider rows fewer keys are compared."""
_LOOK_AT_ROWS: Final = 131_072
_BATCH_ROWS: Final = 65_536
_BITS: Final = 1 << 22
_SLOT_SHIFT: Final = np.uint64(64 - 22)
_ALL: Final = (1 << 64) - 1
_LOW: Final = np.uint64(0xFFFF)
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Place:
    """One bucket of a table, or the keys ``within`` a range of it."""

    store: TableStore
    partition: bytes
    bucket: int
    within: KeyBounds | None = None
    salt: int = field(default_factory=lambda: int.from_bytes(uuid.uuid4().bytes[:8]) | 1)
    """An odd number of 64 bits, drawn by chance, so that every run looks at other keys."""

    def batches(self, file: DataFileMeta, columns: Sequence[str]) -> Iterator[tuple[Ranks, pa.RecordBatch]]:
        """Batches of a file (keys, system columns, ``columns``) with the rank of each row's key."""
        opened = open_kv if self.within is None else self.within.open
        with closing(  # type: ignore[type-var]
            opened(self.store, self.partition, self.bucket, file, columns=list(columns), batch_rows=_BATCH_ROWS)
        ) as source:
            for batch in source:
                yield self.ranks(batch), batch

    def stretch(self, file: DataFileMeta) -> tuple[int, pa.RecordBatch]:
        """Some rows of a file behind one another (keys, system columns, all others), and the number of the first one.

        Of a row group chosen by chance, not more than `_LOOK_AT_ROWS`. No bounds and no indexes are asked.
        """
        first = 0

        def one_group(source: FileSource) -> Sequence[int]:
            nonlocal first
            filled = [number for number, rows in enumerate(source.group_rows) if rows]
            number = filled[self.salt // 2 % len(filled)]
            first = sum(source.group_rows[:number])
            return [number]

        found: list[pa.RecordBatch] = []
        left = _LOOK_AT_ROWS
        opened = open_kv(self.store, self.partition, self.bucket, file, batch_rows=_BATCH_ROWS, row_groups=one_group)
        with closing(opened) as batches:  # type: ignore[type-var]
            for batch in batches:
                found.append(batch.slice(0, left))
                left -= found[-1].num_rows
                if left <= 0:
                    break
        return first, pa.concat_batches(found)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns; thin files keep them among the values only."""
        names = set(batch.schema.names)
        keys = self.store.schema.trimmed_primary_keys
        return [batch.column(KEY_PREFIX + k if KEY_PREFIX + k in names else k) for k in keys]

    def ranks(self, batch: pa.RecordBatch) -> Ranks:
        """The rank of each row's key: equal for equal keys, otherwise as good as random. Keys enter a sample smallest first."""
        # all NaNs are one key, so they must have one hash
        keys = [
            pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
            if pa.types.is_floating(column.type)
            else column
            for column in self.keys(batch)
        ]
        if len(keys) == 1 and pa.types.is_integer(keys[0].type) and not keys[0].null_count:
            words = keys[0].to_numpy().astype(np.int64, copy=False).view(np.uint64)
        else:
            words = np.asarray(hash_rows(keys, list(self.store.schema.trimmed_key_types))).view(np.uint32) * _ODD
        # Two multiplications spread all keys over all ranks: few passes, for every row is looked at.
        ranks: Ranks = words * np.uint64(self.salt)
        ranks ^= ranks >> np.uint64(29)
        ranks *= _ODD
        return ranks


@dataclass(frozen=True)
class Sample:
    """The keys whose rank is below ``limit`` (None: all keys), and those whose rank is among ``special``."""

    limit: int | None
    special: Ranks

    @cached_property
    def _maybe(self) -> npt.NDArray[np.bool_]:
        """By the low bits of a rank, whether it may be special: most are told apart by one look."""
        marks = np.zeros(1 << 16, np.bool_)
        marks[self.special & _LOW] = True
        return marks

    def chosen(self, ranks: Ranks) -> npt.NDArray[np.int64]:
        """Positions of the rows of chosen keys."""
        if self.limit is None:
            return np.arange(len(ranks))
        picked = ranks < np.uint64(self.limit)
        if len(self.special):
            likely = np.flatnonzero(self._maybe[ranks & _LOW])
            picked[likely[np.isin(ranks[likely], self.special)]] = True
        return np.flatnonzero(picked)

    def narrower(self) -> Sample:
        """A quarter of this sample: its keys are all in this one."""
        return Sample((_ALL if self.limit is None else self.limit) // 4, self.special[: len(self.special) // 4])


def draw(place: Place, inputs: Sequence[DataFileMeta], keys: int = KEYS) -> Sample:
    """The sample of one rewrite, of about ``keys`` keys at least and the special ones.

    A file holds each key once, so the unit has at least as many keys as its largest file has rows.
    """
    if sum(file.row_count for file in inputs) <= SMALL_UNIT_ROWS:
        return Sample(None, np.empty(0, np.uint64))
    found = [_deleted(place, inputs), _tied(place, inputs), _with_nulls(place, inputs)]
    special = np.concatenate([ranks[: max(1, _SPECIAL * keys // KEYS)] for ranks in found])
    share = _AT_FIRST * keys / max(file.row_count for file in inputs)
    return Sample(min(_ALL, int(share * _ALL)), np.unique(special))


class Catch:
    """Rows of chosen keys, caught per file as they pass. The sample narrows when they get too many, so memory is bounded."""

    def __init__(self, place: Place, sample: Sample, keys: int = KEYS) -> None:
        self._place, self._sample, self._keys = place, sample, keys
        self._parts: dict[str, list[tuple[Ranks, pa.RecordBatch]]] = {}
        self._rows = 0
        self._bytes = 0
        self._passed: dict[str, int] = {}
        self._chosen: Ranks = np.empty(0, np.uint64)
        self._look_at = int(2 * _AT_FIRST * keys)
        self._settled = False
        # one thread merges and shows what it reads and tells, another shows what it hands to a writer
        self._adding = threading.Lock()

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Look at rows of the file ``name``: keys, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and all value columns."""
        with self._adding:
            chosen = self.choose(name, batch)
            if len(chosen):
                self.keep(name, chosen_rows(batch, chosen))

    def choose(self, name: str, keys: pa.RecordBatch) -> pa.Array:
        """Positions of rows of the file ``name`` that :meth:`keep` takes next; ``keys`` has at least its key columns."""
        self._passed[name] = self._passed.get(name, 0) + keys.num_rows
        ranks = self._place.ranks(keys)
        chosen = self._sample.chosen(ranks)
        self._chosen = ranks[chosen]
        return pa.array(chosen)

    def places(self, keys: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Positions of the rows whose keys are in the sample as it is now; nothing is caught."""
        return self._sample.chosen(self._place.ranks(keys))

    def keep(self, name: str, rows: pa.RecordBatch) -> None:
        """The rows just chosen."""
        if not rows.num_rows:
            return
        schema = self._place.store.schema
        names = [SEQUENCE_NUMBER, VALUE_KIND, *schema.field_names]
        columns = [*self._place.keys(rows), *(rows.column(name) for name in names)]
        shaped = pa.RecordBatch.from_arrays(columns, [*(KEY_PREFIX + k for k in schema.trimmed_primary_keys), *names])
        kept = plain_batch(shaped)
        self._parts.setdefault(name, []).append((self._chosen, kept))
        self._rows += rows.num_rows
        self._bytes += kept.nbytes
        if self._rows >= self._look_at:
            self._sample = self._tighter()
            self._look_at = self._rows + int(_AT_FIRST * self._keys)
        while self._rows > _MOST_ROWS:
            self._narrow(self._sample.narrower())
        if self._bytes > _MOST_BYTES:
            self._narrow_to_bytes()

    def settle(self) -> None:
        """Once all inputs have passed: let go of the rows that were caught before enough keys were known."""
        if not self._settled:
            self._settled = True
            self._narrow(self._tighter())

    def _tighter(self) -> Sample:
        """The sample of the keys that rank first among those seen so far: of these every version was caught."""
        if self._sample.limit is None or not self._parts:
            return self._sample
        ranks = np.sort(np.concatenate([ranks for parts in self._parts.values() for ranks, _ in parts]))
        ranks = ranks[np.flatnonzero(np.diff(ranks, prepend=~ranks[:1]))]  # NumPy's own unique takes ten times as long
        if len(ranks) <= self._keys or ranks[self._keys] >= self._sample.limit:
            return self._sample
        return replace(self._sample, limit=int(ranks[self._keys]))

    def missed(self, name: str, rows: int) -> int:
        """How many of a file's ``rows`` never passed."""
        return max(0, rows - self._passed.get(name, 0))

    def table(self, name: str) -> pa.Table | None:
        """What was caught of a file, or None."""
        parts = self._parts.get(name)
        return pa.Table.from_batches([batch for _, batch in parts]) if parts else None

    def _narrow_to_bytes(self) -> None:
        """Keep half as many keys until their rows fit into :data:`_MOST_BYTES`, and at least one key."""
        while self._bytes > _MOST_BYTES:
            ranks = np.unique(np.concatenate([ranks for parts in self._parts.values() for ranks, _ in parts]))
            if len(ranks) < 2:
                return
            middle = int(ranks[len(ranks) // 2])  # never above the limit: versions of such keys went by already
            limit = middle if self._sample.limit is None else min(middle, self._sample.limit)
            self._narrow(Sample(limit, np.empty(0, np.uint64)))

    def _narrow(self, sample: Sample) -> None:
        self._sample = sample
        for name, parts in self._parts.items():
            looked_at = [(sample.chosen(ranks), ranks, batch) for ranks, batch in parts]
            self._parts[name] = [
                (ranks[kept], chosen_rows(batch, pa.array(kept))) for kept, ranks, batch in looked_at if len(kept)
            ]
        self._rows = sum(len(ranks) for parts in self._parts.values() for ranks, _ in parts)
        self._bytes = sum(batch.nbytes for parts in self._parts.values() for _, batch in parts)


def _deleted(place: Place, files: Sequence[DataFileMeta]) -> Ranks:
    """Some keys that a file deletes."""
    found: list[Ranks] = []
    for file in files:
        if file.delete_row_count == 0:
            continue
        for ranks, batch in _head(place, file, []):
            kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
            found.append(ranks[(kinds == 1) | (kinds == 3)])
    return _some(found)


def _tied(place: Place, files: Sequence[DataFileMeta]) -> Ranks:
    """Some keys with two versions that only the last rules of the order tell apart.

    Seen ranks of (key, order) are kept as bits, so a chance collision merely chooses one key more.
    """
    ordering = list(place.store.options.sequence_field)
    ranges = sorted((file.min_sequence_number, file.max_sequence_number) for file in files)
    if not ordering and all(one[1] < following[0] for one, following in pairwise(ranges)):
        return np.empty(0, np.uint64)
    types = [place.store.schema.field(name).type for name in ordering]
    seen, found = np.zeros(_BITS, np.bool_), []
    for file in files:
        for ranks, batch in _head(place, file, ordering):
            if ordering:
                order = (
                    np.asarray(hash_rows([batch.column(n) for n in ordering], types)).view(np.uint32).astype(np.uint64)
                )
            else:
                order = batch.column(SEQUENCE_NUMBER).to_numpy().astype(np.uint64)
            slots = (ranks ^ (order * _ODD)) >> _SLOT_SHIFT
            found.append(ranks[seen[slots]])
            seen[slots] = True
    return _some(found)


def _with_nulls(place: Place, files: Sequence[DataFileMeta]) -> Ranks:
    """Some keys with a null, looked for in the column that the newest file's statistics say has most of them."""
    column = _nullest(place, files)
    if column is None:
        return np.empty(0, np.uint64)
    found = []
    for file in files[-2:]:
        for ranks, batch in _head(place, file, [column]):
            found.append(ranks[pc.is_null(batch.column(column)).to_numpy(zero_copy_only=False)])
    return _some(found)


def _nullest(place: Place, files: Sequence[DataFileMeta]) -> str | None:
    names = place.store.schema.field_names
    for file in reversed(files):
        counts = file.value_stats.null_counts
        columns = names if file.value_stats_cols is None else file.value_stats_cols
        if counts and len(counts) == len(columns):
            nulls = [count or 0 for count in counts]
            if max(nulls):
                return columns[nulls.index(max(nulls))]
    return None


def _head(place: Place, file: DataFileMeta, columns: Sequence[str]) -> Iterator[tuple[Ranks, pa.RecordBatch]]:
    """The first rows of a file: looking for special keys must stay cheap."""
    left = _LOOK_AT_ROWS
    with closing(place.batches(file, columns)) as batches:  # type: ignore[type-var]
        for ranks, batch in batches:
            yield ranks, batch
            left -= batch.num_rows
            if left <= 0:
                return


def _some(found: Sequence[Ranks]) -> Ranks:
    if not found:
        return np.empty(0, np.uint64)
    return np.unique(np.concatenate(found))[:_SPECIAL]
