"""Parts of a section in which one file alone has keys: their rows are read as stored, without keys and without a merge.

Files are joined to a section by their smallest and largest keys, so one row with a small key and one with a large key
in a new file join all others. Here the keys of small files are compared with the key ranges of the row groups of the
large files. Row groups that meet no key of another file are lone parts. The rows between lone parts are merged as
before, and the rows of both are returned in key order.

The search costs little: rows of small files that it reads are kept for the merge, and it ends as soon as every row
group has met a key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Final

import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile
from lsm_core.files import open_kv
from lsm_core.files.reader import open_source
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.merge import KeySpec, normalise_keys
from lsm_core.merge.key_ranges import Scalar, rows_by_range
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyBounds, group_bounds_of_key
from lsm_core.read.merge_read import Batches, BucketMerge, BucketSource, Section, SectionReader, as_tree
from lsm_core.read.predicate import Predicate
from lsm_core.read.raw_read import read_raw_file
from lsm_core.storage.allocator import keep_read_arrays

NEVER: Final = "never"
ALWAYS: Final = "always"
_LEAST_ROWS: Final = 65_536
"""Smallest number of rows of a lone part; fewer are merged, because every part opens its file once more."""
_MOST_PARTS: Final = 64
"""Largest number of lone parts of a section."""
_SEARCHED_SHARE: Final = 8
"""Divisor of the section's rows: small files with this part of the rows together are compared key by key."""
_HELD_SHARE: Final = 8
"""Divisor of the merge budget: the resulting bytes of rows of small files may be held from the search to the merge."""
_KEY_COST: Final = 0.1
"""Cost of reading a row's key, as a fraction of reading the row."""
_OPENING: Final = 2_000
"""Cost of opening a file, in rows that are read in the same time."""
_GAIN: Final = 0.1
"""Least gain of reading a row as stored, as a fraction of merging it."""


@dataclass(frozen=True)
class LonePart:
    """Consecutive row groups of one file in whose key range no other file has a key.

    Attributes:
        file: the file.
        first: number of the first row group.
        stop: number after the last row group.
        rows: number of rows, with deleted ones.
        low: smallest value of the first key column, normalised.
        high: largest value of the first key column, normalised.
    """

    file: DataFileMeta
    first: int
    stop: int
    rows: int
    low: Scalar
    high: Scalar


@dataclass(eq=False)
class _GroupedFile:
    """Large file, whose row groups are compared with the keys of other files.

    Attributes:
        file: the file.
        lows: smallest value of the first key column of each row group, normalised.
        highs: largest value of the first key column of each row group, normalised.
        rows: number of rows of each row group.
        whole: whether the footer has no bounds of row groups, so that the whole file counts as one row group.
        met: whether another file has, or may have, a key in the key range of each row group.
        occupied: whether another file has, or may have, a key before each row group, or after the last one.
    """

    file: DataFileMeta
    lows: list[Scalar]
    highs: list[Scalar]
    rows: list[int]
    whole: bool
    met: list[bool] = field(init=False)
    occupied: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.met = [False] * len(self.lows)
        self.occupied = [False] * (len(self.lows) + 1)

    @property
    def unmet_rows(self) -> int:
        """Number of rows of the row groups that have met no key yet; 0 for a file that must be merged."""
        if self.file.delete_row_count != 0:  # rows that delete a key, or an unknown number of them
            return 0
        return sum(rows for rows, is_met in zip(self.rows, self.met, strict=True) if not is_met)

    def meet_range(self, low: Scalar, high: Scalar) -> None:
        """Note that another file may have any key from ``low`` to ``high``."""
        at = bisect_left(self.highs, low)
        self.occupied[at] = True
        while at < len(self.lows) and self.lows[at] <= high:  # type: ignore[operator]
            self.met[at] = self.occupied[at + 1] = True
            at += 1

    def parts(self, least: int) -> Iterator[LonePart]:
        """Yield the lone parts of at least ``least`` rows: row groups that met no key, with no key between them."""
        if self.file.delete_row_count != 0:
            return
        first = 0
        for at in range(len(self.lows) + 1):
            if at == len(self.lows) or self.met[at] or self.occupied[at]:
                if at > first and (rows := sum(self.rows[first:at])) >= least:
                    yield LonePart(self.file, first, at, rows, self.lows[first], self.highs[at - 1])
                first = at + 1 if at < len(self.lows) and self.met[at] else at


class _Rows:
    """Rows of one file that are merged part by part; the file is read once."""

    def __init__(self, batches: Batches, spec: KeySpec, path: str) -> None:
        self._batches, self._spec, self._path = batches, spec, path
        self._held: deque[pa.RecordBatch] = deque()

    def hold(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches of the file, which stay in memory until they are merged."""
        for batch in self._batches:
            if batch.num_rows:
                self._held.append(batch)
                yield batch

    def below(self, limit: Scalar | None, floor: Scalar | None) -> Batches:
        """Yield the remaining rows below a key.

        Args:
            limit: the key; None for all remaining rows.
            floor: key above which the remaining rows must be; None for any key.

        Raises:
            CorruptFile: the rows are not in key order.
        """
        while True:
            batch = self._held.popleft() if self._held else next(self._batches, None)
            if batch is None:
                return
            if not batch.num_rows:
                continue
            if floor is not None and self._key(batch, 0) <= floor:  # type: ignore[operator]
                raise CorruptFile(self._path, "its rows are not in key order")
            if limit is None or self._key(batch, batch.num_rows - 1) < limit:  # type: ignore[operator]
                yield batch
                continue
            count = self._spec.keys(batch).bisect(limit, right=False)
            self._held.appendleft(batch.slice(count))
            if count:
                yield batch.slice(0, count)
            return

    def close(self) -> None:
        """Close the file and release its rows."""
        self._held.clear()
        self._batches.close()

    def _key(self, batch: pa.RecordBatch, row: int) -> Scalar:
        return self._spec.keys(batch.slice(row, 1)).scalar(0)


class _SectionParts:
    """Lone parts of one section, and the rows between them."""

    def __init__(
        self, merge: BucketMerge, section: Section, reader: SectionReader, within: KeyBounds | None, always: bool
    ) -> None:
        self._merge, self._section, self._reader, self._always = merge, section, reader, always
        source = merge.source
        self._store, self._place = source.store, (source.partition, source.bucket)
        schema = self._store.schema
        self._spec = KeySpec(schema.trimmed_primary_keys[:1], table=self._store.name, nullable=schema.nullable_key)
        files = sorted(section.files, key=lambda file: file.row_count)
        most = sum(file.row_count for file in files) // (2 if always else _SEARCHED_SHARE)
        searched = sum(rows <= most for rows in accumulate(file.row_count for file in files))
        self._searched, self._large = files[:searched], files[searched:]
        self._within = within
        self._grouped: dict[str, _GroupedFile] = {}
        self._rows: dict[str, _Rows] = {}
        self._parts: list[LonePart] = []
        self._groups: dict[str, list[list[int]]] = {}
        self._at = 0

    def batches(self, read_part: Callable[[LonePart, bool], Batches], names: Sequence[str]) -> Batches:
        """Yield the rows of the section in key order.

        Args:
            read_part: function that returns the rows of a lone part; the flag says that the part is a whole file
                without row groups.
            names: columns of the rows.
        """
        self._search()
        reader = replace(self._reader, rows_of=self._rows_of)
        chosen = list(names)
        try:
            for number in range(len(self._parts) + 1):
                self._at = number
                with closing(self._merge.section(self._section, reader)) as merged:
                    for batch in merged:
                        yield batch.select(chosen)
                if number < len(self._parts):
                    part = self._parts[number]
                    with closing(read_part(part, self._grouped[part.file.file_name].whole)) as raw:
                        yield from raw
        finally:
            for rows in self._rows.values():
                rows.close()

    def _search(self) -> None:
        """Find the lone parts."""
        least = 0 if self._always else _LEAST_ROWS
        if not any(file.delete_row_count == 0 and file.row_count >= least for file in self._large):
            return
        if self._within is not None and not all(map(self._within.holds, as_tree(self._store, self._large))):
            return  # other splits read some of their row groups
        grouped = [self._grouped_file(file) for file in self._large]
        for file in grouped:
            for other in grouped:
                if other is not file:
                    for low, high in zip(other.lows, other.highs, strict=True):
                        file.meet_range(low, high)
        if not self._compare_keys(grouped):
            return
        self._grouped = {file.file.file_name: file for file in grouped}
        parts = sorted((part for file in grouped for part in file.parts(least)), key=lambda part: -part.rows)
        self._parts = sorted(parts[:_MOST_PARTS], key=lambda part: (part.low, part.high, part.first))
        if self._parts:
            self._groups = {file.file.file_name: self._groups_between(file) for file in grouped}

    def _compare_keys(self, grouped: Sequence[_GroupedFile]) -> bool:
        """Compare the keys of the small files with the row groups of the large files.

        Returns:
            False if all row groups are met, or if more files must be read for the answer than it may save.
        """
        held = 0.0
        left = sum(_KEY_COST * file.row_count + _OPENING for file in self._searched)
        for file in self._searched:
            unmet = sum(large.unmet_rows for large in grouped)
            if not unmet or (not self._always and left > _GAIN * unmet):
                return False
            left -= _KEY_COST * file.row_count + _OPENING
            size = file.row_count * self._merge.row_bytes
            if file.row_count <= self._reader.batch_rows and held + size <= self._merge.memory / _HELD_SHARE:
                held += size
                batches = self._rows_of_small(file).hold()
            else:
                batches = open_kv(
                    self._store, *self._place, file, columns=(), need_sequence=False, need_kind=False
                )  # the keys alone
            for batch in batches:
                if batch.num_rows:
                    keys = self._spec.keys(batch)
                    for large in grouped:
                        for rows in rows_by_range(keys, large.lows, large.highs):
                            large.occupied[rows.number] |= rows.gap < rows.start
                            if rows.start < rows.stop:
                                large.met[rows.number] = True
        return any(large.unmet_rows for large in grouped)

    def _grouped_file(self, file: DataFileMeta) -> _GroupedFile:
        """Return the key ranges of a file's row groups, or of the whole file if its footer has none.

        A file is merged as a whole if the ranges are out of order or do not cover its keys.
        """
        ends = decode_rows(
            arrow_array([file.min_key, file.max_key], pa.binary()), self._store.schema.trimmed_key_types, file.file_name
        )
        low, high = self._scalars(ends[0])
        whole = _GroupedFile(file, [low], [high], [file.row_count], whole=True)
        if file.row_count:
            with closing(open_source(self._store, *self._place, file)) as source:
                bounds = group_bounds_of_key(self._store, file, source)
                rows = [int(rows) for rows in source.group_rows]
            if bounds is not None:
                lows, highs = (self._scalars(side) for side in bounds)
                if _ascend(lows) and _ascend(highs) and lows[0] <= low and high <= highs[-1]:  # type: ignore[operator]
                    return _GroupedFile(file, lows, highs, rows, whole=False)
                whole.met[0] = True
        return whole

    def _scalars(self, column: pa.Array) -> list[Scalar]:
        keys = normalise_keys([column], nullable=self._store.schema.nullable_key)
        return [keys.scalar(at) for at in range(len(column))]

    def _groups_between(self, large: _GroupedFile) -> list[list[int]]:
        """Return the row groups of a file that are merged before each lone part, and after the last one."""
        between: list[list[int]] = [[] for _ in range(len(self._parts) + 1)]
        at = 0
        for group, low in enumerate(large.lows):
            while at < len(self._parts) and self._is_before(self._parts[at], large.file, group, low):
                at += 1
            part = self._parts[at - 1] if at else None
            if part is None or part.file is not large.file or group >= part.stop:
                between[at].append(group)
        return between

    @staticmethod
    def _is_before(part: LonePart, file: DataFileMeta, group: int, low: Scalar) -> bool:
        """Return whether a lone part begins before a row group, or with it."""
        return part.first <= group if part.file is file else bool(part.low <= low)  # type: ignore[operator]

    def _rows_of(self, file: DataFileMeta) -> Batches:
        """Return the rows of a file that are merged before the next lone part."""
        groups = self._groups.get(file.file_name)
        if groups is not None:
            chosen = groups[self._at]
            whole = self._grouped[file.file_name].whole
            if not chosen:
                return _no_rows()
            return self._reader.open_file(file, None if whole else chosen)
        limit = self._parts[self._at].low if self._at < len(self._parts) else None
        floor = self._parts[self._at - 1].high if self._at else None
        return self._rows_of_small(file).below(limit, floor)

    def _rows_of_small(self, file: DataFileMeta) -> _Rows:
        rows = self._rows.get(file.file_name)
        if rows is None:
            path = self._store.data_path(*self._place, file)
            rows = self._rows[file.file_name] = _Rows(self._reader.open_file(file), self._spec, path)
        return rows


def _ascend(keys: Sequence[Scalar]) -> bool:
    return all(key <= following for key, following in pairwise(keys))  # type: ignore[operator]


def _no_rows() -> Batches:
    yield from ()


def read_by_parts(
    store: TableStore,
    place: tuple[bytes, int],
    *,
    columns: Sequence[str],
    sections: Sequence[Section],
    deletions: Mapping[str, DeletionFile],
    budget: int | None = None,
    dictionaries: Collection[str] = (),
    predicate: Predicate | None = None,
    within: KeyBounds | None = None,
) -> Batches:
    """Yield the merged rows of sections of one bucket in key order, each key once, without deleted rows.

    The rows of lone parts are read as stored. They are the result of every merge engine for keys with one row.

    Args:
        store: the table.
        place: partition (BinaryRow bytes) and bucket.
        columns: columns to return, in this order.
        sections: key-disjoint sections of files, in key order.
        deletions: deletion vectors by file name; the rows that they mark are left out before the merge.
        budget: decoded bytes of rows that the merge may hold at once; None for option `dredge.merge-budget`.
        dictionaries: text columns that may be returned as Arrow dictionaries of int32.
        predicate: filter for file indexes only, or None; the caller must still filter the rows.
        within: range of keys to read; None for all keys.

    Raises:
        CorruptFile: a file is damaged or not in key order; the error names it.
    """
    keep_read_arrays()

    def open_within(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        assert within is not None
        # The row groups of a file are chosen only if all its keys are in the range.
        return open_kv(*arguments, **options) if "row_groups" in options else within.open(*arguments, **options)

    source = BucketSource(store, *place, deletions=deletions, opener=None if within is None else open_within)
    merge = BucketMerge(source, tuple(columns), drop_delete=True, exact=False, budget=budget, dictionaries=dictionaries)
    mode = store.options.exact_reads

    def read_part(part: LonePart, whole: bool) -> Batches:
        return read_raw_file(
            store,
            place,
            part.file,
            deletions.get(part.file.file_name),
            columns=columns,
            predicate=predicate,
            dictionaries=list(dictionaries),
            row_groups=None if whole else range(part.first, part.stop),
        )

    for section in sections:
        reader = merge.reader(section)
        if mode == NEVER or not _may_have_parts(merge, section, reader, mode == ALWAYS):
            with closing(merge.section(section, reader)) as merged:
                for batch in merged:
                    yield batch.select(list(columns))
            continue
        with closing(_SectionParts(merge, section, reader, within, mode == ALWAYS).batches(read_part, columns)) as rows:
            yield from rows


def _may_have_parts(merge: BucketMerge, section: Section, reader: SectionReader, always: bool) -> bool:
    """Return whether a search for lone parts of a section is worth its cost, from metadata."""
    files = section.files
    if len(files) < 2 or not merge.in_one_pass(reader, reader.inputs):
        return False
    return always or max(file.row_count for file in files) >= _LEAST_ROWS


__all__ = ["ALWAYS", "NEVER", "LonePart", "read_by_parts"]
