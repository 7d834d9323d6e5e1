"""Choice of the keys that the reference merges again: all keys of a small unit, else a bounded sample.

A unit is the files of a bucket that one rewrite or check reads. A sample holds deletes, ties and nulls first, then keys
by hash. A key is chosen by its rank, a salted hash. So each version of a chosen key is recognised in every file without
holding the keys of the unit.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, chosen_rows, numpy_array, plain_batch
from lsm_core.files import open_kv
from lsm_core.files.formats import FileSource
from lsm_core.format.hashing import hash_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds

Ranks = npt.NDArray[np.uint64]

SMALL_UNIT_ROWS: Final = 4_096
"""Largest number of input rows for which every key is compared."""
KEYS: Final = 1_024
"""Number of keys compared in a larger unit, in addition to special keys; the docs promise at least 1,000 per unit."""
_OVERSAMPLING: Final = 1.2
"""Factor on the wanted keys in the largest file, as ranks are uneven; the sample narrows as more keys pass."""
_SPECIAL_KEYS: Final = 400
_MAX_ROWS: Final = 200_000
_MAX_BYTES: Final = 64 << 20
"""Limit of Arrow bytes of kept rows: rows of 12 KiB in five versions fill it; of wider rows fewer keys are compared."""
_HEAD_ROWS: Final = 131_072
_BATCH_ROWS: Final = 65_536
_BITS: Final = 1 << 22
_SLOT_SHIFT: Final = np.uint64(64 - 22)
_ALL: Final = (1 << 64) - 1
_LOW: Final = np.uint64(0xFFFF)
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Place:
    """One bucket of a table, or a range of its keys.

    Attributes:
        store: the table.
        partition: partition in Paimon's binary form.
        bucket: number of the bucket.
        within: range of keys, None for all keys.
        salt: odd number of 64 bits that decides which keys are sampled. By default it is random, so that every run
            samples different keys.
    """

    store: TableStore
    partition: bytes
    bucket: int
    within: KeyBounds | None = None
    salt: int = field(default_factory=lambda: int.from_bytes(uuid.uuid4().bytes[:8]) | 1)

    def batches(self, file: DataFileMeta, columns: Sequence[str]) -> Iterator[tuple[Ranks, pa.RecordBatch]]:
        """Yield batches of a file (keys, system columns, ``columns``) with the rank of each row's key.

        Args:
            file: the data file.
            columns: value columns to read.
        """
        opened = open_kv if self.within is None else self.within.open
        with closing(  # type: ignore[type-var]
            opened(self.store, self.partition, self.bucket, file, columns=list(columns), batch_rows=_BATCH_ROWS)
        ) as source:
            for batch in source:
                yield self.ranks(batch), batch

    def stretch(self, file: DataFileMeta) -> tuple[int, pa.RecordBatch]:
        """Read the first rows of one randomly chosen row group, at most 131,072.

        The range ``within`` and the indexes of the file are not used.

        Args:
            file: the data file.

        Returns:
            Number of the first row in the file, and the rows (keys, system columns, all value columns).
        """
        first = 0

        def choose_group(source: FileSource) -> Sequence[int]:
            nonlocal first
            filled = [number for number, rows in enumerate(source.group_rows) if rows]
            number = filled[self.salt // 2 % len(filled)]
            first = sum(source.group_rows[:number])
            return [number]

        parts: list[pa.RecordBatch] = []
        left = _HEAD_ROWS
        opened = open_kv(self.store, self.partition, self.bucket, file, batch_rows=_BATCH_ROWS, row_groups=choose_group)
        with closing(opened) as batches:  # type: ignore[type-var]
            for batch in batches:
                parts.append(batch.slice(0, left))
                left -= parts[-1].num_rows
                if left <= 0:
                    break
        return first, pa.concat_batches(parts)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns; files of thin mode have key columns only among their value columns.

        Args:
            batch: KV rows.
        """
        names = set(batch.schema.names)
        keys = self.store.schema.trimmed_primary_keys
        return [batch.column(KEY_PREFIX + k if KEY_PREFIX + k in names else k) for k in keys]

    def ranks(self, batch: pa.RecordBatch) -> Ranks:
        """Return the rank of each row's key: a salted 64-bit hash of the key, equal for equal keys.

        A sample has the keys with the smallest ranks.

        Args:
            batch: KV rows.
        """
        # all NaNs are one key, so they must have one hash
        keys = [
            pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
            if pa.types.is_floating(column.type)
            else column
            for column in self.keys(batch)
        ]
        if len(keys) == 1 and pa.types.is_integer(keys[0].type) and not keys[0].null_count:
            words = numpy_array(keys[0]).astype(np.int64, copy=False).view(np.uint64)
        else:
            words = np.asarray(hash_rows(keys, list(self.store.schema.trimmed_key_types))).view(np.uint32) * _ODD
        # Two multiplications spread all keys over all ranks; few passes, because every row is ranked.
        ranks: Ranks = words * np.uint64(self.salt)
        ranks ^= ranks >> np.uint64(29)
        ranks *= _ODD
        return ranks


@dataclass(frozen=True)
class Sample:
    """Sample of keys. Keys are identified by their rank: a salted 64-bit hash of the key (:meth:`Place.ranks`).

    Attributes:
        limit: keys whose rank is below ``limit`` are in the sample; None for all keys.
        special: ranks of further keys in the sample: keys with deletes, with equally new versions, or with nulls.
    """

    limit: int | None
    special: Ranks

    @cached_property
    def _maybe(self) -> npt.NDArray[np.bool_]:
        """For each value of the low 16 bits of a rank, whether a special key has these bits; spares most searches."""
        marks = np.zeros(1 << 16, np.bool_)
        marks[self.special & _LOW] = True
        return marks

    def chosen(self, ranks: Ranks) -> npt.NDArray[np.int64]:
        """Return the positions of the rows whose keys are in the sample.

        Args:
            ranks: ranks of the rows' keys.
        """
        if self.limit is None:
            return np.arange(len(ranks))
        picked = ranks < np.uint64(self.limit)
        if len(self.special):
            likely = np.flatnonzero(self._maybe[ranks & _LOW])
            picked[likely[np.isin(ranks[likely], self.special)]] = True
        return np.flatnonzero(picked)

    def narrow(self) -> Sample:
        """Return a subset of this sample with about a quarter of its keys."""
        return Sample((_ALL if self.limit is None else self.limit) // 4, self.special[: len(self.special) // 4])


def draw(
    place: Place, inputs: Sequence[DataFileMeta], keys: int = KEYS, spliced: Mapping[str, int] = MappingProxyType({})
) -> Sample:
    """Return the sample of keys to check in one rewrite.

    If the files have at most `SMALL_UNIT_ROWS` rows, these are all keys. Otherwise they are about ``keys`` keys, and
    some keys with deletes, equally new versions or nulls. A file holds each key once, so there are at least as many
    keys as the largest file has rows.

    Args:
        place: the bucket.
        inputs: files of the bucket that the rewrite reads.
        keys: wanted number of keys.
        spliced: number of rows, by file, that the rewrite copies without decoding: they are not in the sample.
    """
    if sum(file.row_count for file in inputs) <= SMALL_UNIT_ROWS:
        return Sample(None, np.empty(0, np.uint64))
    special_ranks = [_deleted_keys(place, inputs), _tied_keys(place, inputs), _null_keys(place, inputs)]
    special = np.concatenate([ranks[: max(1, _SPECIAL_KEYS * keys // KEYS)] for ranks in special_ranks])
    share = _OVERSAMPLING * keys / max(1, *(file.row_count - spliced.get(file.file_name, 0) for file in inputs))
    return Sample(min(_ALL, int(share * _ALL)), np.unique(special))


class RowCollector:
    """Collector of the rows of chosen keys, per file.

    The sample narrows when there are too many rows, so memory is bounded.
    """

    def __init__(self, place: Place, sample: Sample, keys: int = KEYS) -> None:
        self._place, self._sample, self._keys = place, sample, keys
        self._parts: dict[str, list[tuple[Ranks, pa.RecordBatch]]] = {}
        self._rows = 0
        self._bytes = 0
        self._passed: dict[str, int] = {}
        self._chosen: Ranks = np.empty(0, np.uint64)
        self._look_at = int(2 * _OVERSAMPLING * keys)
        self._settled = False
        # One thread adds the rows that it reads and the changes it emits, another the rows that it passes to a writer.
        self._adding = threading.Lock()

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Keep the rows of a file that belong to the sample.

        Args:
            name: name of the file.
            batch: keys, `_SEQUENCE_NUMBER`, `_VALUE_KIND` and all value columns.
        """
        with self._adding:
            chosen = self.choose(name, batch)
            if len(chosen):
                self.keep(name, chosen_rows(batch, chosen))

    def choose(self, name: str, keys: pa.RecordBatch) -> pa.Array:
        """Return the positions of the rows in the sample; the caller must pass these rows to :meth:`keep`.

        Args:
            name: name of the file.
            keys: rows with at least the key columns.
        """
        self._passed[name] = self._passed.get(name, 0) + keys.num_rows
        ranks = self._place.ranks(keys)
        chosen = self._sample.chosen(ranks)
        self._chosen = ranks[chosen]
        return arrow_array(chosen)

    def places(self, keys: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the positions of the rows whose keys are in the current sample, without keeping rows.

        Args:
            keys: rows with at least the key columns.
        """
        return self._sample.chosen(self._place.ranks(keys))

    def keep(self, name: str, rows: pa.RecordBatch) -> None:
        """Keep the rows that :meth:`choose` selected.

        Args:
            name: name of the file.
            rows: the selected rows with all columns.
        """
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
            self._look_at = self._rows + int(_OVERSAMPLING * self._keys)
        while self._rows > _MAX_ROWS:
            self._narrow(self._sample.narrow())
        if self._bytes > _MAX_BYTES:
            self._narrow_to_bytes()

    def drop_early_rows(self) -> None:
        """Drop the kept rows of keys beyond the wanted number of keys. Call this after all inputs were added.

        The first rows are kept with a larger sample, because the ranks of later keys are not known yet.
        """
        if not self._settled:
            self._settled = True
            self._narrow(self._tighter())

    def _tighter(self) -> Sample:
        """Return the sample narrowed to the wanted number of keys: those with the smallest ranks of the kept rows."""
        if self._sample.limit is None or not self._parts:
            return self._sample
        ranks = np.sort(np.concatenate([ranks for parts in self._parts.values() for ranks, _ in parts]))
        ranks = ranks[np.flatnonzero(np.diff(ranks, prepend=~ranks[:1]))]  # NumPy's own unique takes ten times as long
        if len(ranks) <= self._keys or ranks[self._keys] >= self._sample.limit:
            return self._sample
        return replace(self._sample, limit=int(ranks[self._keys]))

    def count_missing(self, name: str, rows: int) -> int:
        """Return how many of a file's ``rows`` were never passed to :meth:`add` or :meth:`choose`.

        Args:
            name: name of the file.
            rows: number of rows of the file.
        """
        return max(0, rows - self._passed.get(name, 0))

    def table(self, name: str) -> pa.Table | None:
        """Return the kept rows of a file, or None if none were kept.

        Args:
            name: name of the file.
        """
        parts = self._parts.get(name)
        return pa.Table.from_batches([batch for _, batch in parts]) if parts else None

    def _narrow_to_bytes(self) -> None:
        """Keep half as many keys until their rows fit into :data:`_MAX_BYTES`, and at least one key."""
        while self._bytes > _MAX_BYTES:
            ranks = np.unique(np.concatenate([ranks for parts in self._parts.values() for ranks, _ in parts]))
            if len(ranks) < 2:
                return
            middle = int(ranks[len(ranks) // 2])  # never above the limit: versions of larger ranks were not kept
            limit = middle if self._sample.limit is None else min(middle, self._sample.limit)
            self._narrow(Sample(limit, np.empty(0, np.uint64)))

    def _narrow(self, sample: Sample) -> None:
        self._sample = sample
        for name, parts in self._parts.items():
            chosen_parts = [(sample.chosen(ranks), ranks, batch) for ranks, batch in parts]
            self._parts[name] = [
                (ranks[kept], chosen_rows(batch, pa.array(kept))) for kept, ranks, batch in chosen_parts if len(kept)
            ]
        self._rows = sum(len(ranks) for parts in self._parts.values() for ranks, _ in parts)
        self._bytes = sum(batch.nbytes for parts in self._parts.values() for _, batch in parts)


def _deleted_keys(place: Place, files: Sequence[DataFileMeta]) -> Ranks:
    """Return the ranks of some keys that have a delete in a file."""
    deleted: list[Ranks] = []
    for file in files:
        if file.delete_row_count == 0:
            continue
        for ranks, batch in _head(place, file, []):
            kinds = numpy_array(batch.column(VALUE_KIND))
            deleted.append(ranks[(kinds == 1) | (kinds == 3)])
    return _limit_ranks(deleted)


def _tied_keys(place: Place, files: Sequence[DataFileMeta]) -> Ranks:
    """Return the ranks of some keys that have two versions with equal sequence fields or sequence numbers.

    Pairs of (key, sequence) seen so far are kept as hashed bits; a hash collision only adds a key to the sample.
    """
    ordering = list(place.store.options.sequence_field)
    ranges = sorted((file.min_sequence_number, file.max_sequence_number) for file in files)
    if not ordering and all(current[1] < following[0] for current, following in pairwise(ranges)):
        return np.empty(0, np.uint64)
    types = [place.store.schema.field(name).type for name in ordering]
    seen, tied = np.zeros(_BITS, np.bool_), []
    for file in files:
        for ranks, batch in _head(place, file, ordering):
            if ordering:
                order = (
                    np.asarray(hash_rows([batch.column(n) for n in ordering], types)).view(np.uint32).astype(np.uint64)
                )
            else:
                order = batch.column(SEQUENCE_NUMBER).to_numpy().astype(np.uint64)
            slots = (ranks ^ (order * _ODD)) >> _SLOT_SHIFT
            tied.append(ranks[seen[slots]])
            seen[slots] = True
    return _limit_ranks(tied)


def _null_keys(place: Place, files: Sequence[DataFileMeta]) -> Ranks:
    """Return the ranks of some keys with a null in one column: that with most nulls in the newest file's statistics."""
    column = _file_with_most_nulls(place, files)
    if column is None:
        return np.empty(0, np.uint64)
    null_ranks = []
    for file in files[-2:]:
        for ranks, batch in _head(place, file, [column]):
            null_ranks.append(ranks[numpy_array(pc.is_null(batch.column(column)))])
    return _limit_ranks(null_ranks)


def _file_with_most_nulls(place: Place, files: Sequence[DataFileMeta]) -> str | None:
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
    """Yield (ranks of the keys, rows) of the first rows of a file, so that the search for special keys is cheap."""
    left = _HEAD_ROWS
    with closing(place.batches(file, columns)) as batches:  # type: ignore[type-var]
        for ranks, batch in batches:
            yield ranks, batch
            left -= batch.num_rows
            if left <= 0:
                return


def _limit_ranks(parts: Sequence[Ranks]) -> Ranks:
    if not parts:
        return np.empty(0, np.uint64)
    return np.unique(np.concatenate(parts))[:_SPECIAL_KEYS]
