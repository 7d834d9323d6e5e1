"""Split: a part of a scan inside one bucket, its serialised form for other processes, and planning of splits.

Splits are planned on columns: a plan of 100,000 files creates no Python object per file.

Source: ``DataSplit``, ``MergeTreeSplitGenerator``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property, partial
from operator import index
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array
from lsm_core.errors import CorruptFile
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.entry_files import EntryFiles, file_sizes, files_from_bytes, files_to_bytes, shipped_columns
from lsm_core.format.manifest import DataFileMeta
from lsm_core.merge import key_bytes
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.metadata.manifests import evolves
from lsm_core.metadata.store import TableStore
from lsm_core.read.key_range import KeyRange
from lsm_core.read.merge_read import Section, divide_by_keys
from lsm_core.tree import DataFile

_VERSION: Final = 6
_SPLIT_BYTES: Final = "<split>"
_Places = tuple[tuple[int, ...], ...]
_Shape = tuple[tuple[_Places, _Places], ...]


@dataclass(frozen=True, eq=False)
class SplitFiles:
    """Files of a split.

    Attributes:
        listed: the files in the order of the plan, in columns until one of them is accessed.
        shape: the sorted runs and the groups of each key-disjoint section (`Section`), as positions in ``listed``;
            empty where rows need no merging.
        vectors: deletion vectors by file name.
    """

    listed: Sequence[DataFileMeta]
    shape: _Shape = ()
    vectors: Mapping[str, DeletionFile] = field(default_factory=dict)

    @cached_property
    def files(self) -> tuple[DataFileMeta, ...]:
        """The files, each once: those of the first section's runs first."""
        if not self.shape:
            return tuple(self.listed)
        return tuple(self.listed[place] for runs, _ in self.shape for run in runs for place in run)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The key-disjoint sections."""
        files = tuple(self.listed) if self.shape else ()
        return tuple(
            Section(*(tuple(tuple(files[place] for place in part) for part in side) for side in sides))
            for sides in self.shape
        )

    @cached_property
    def deletions(self) -> tuple[DeletionFile | None, ...]:
        """The deletion vector of each of ``files``; None for a file without deleted rows."""
        return tuple(self.vectors.get(file.file_name) for file in self.files)


class Split:
    """Part of a scan inside one bucket, readable independently; immutable.

    Attributes:
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        raw: whether the result is the rows of ``files``, one file after the other. If False, each of ``sections`` is
            merged, in key order, and the result has no deleted rows. In append tables (data evolution) the columns of
            ``files`` are then matched by row id. ``files`` lists each file once in all cases.
        raw_convertible: whether the split is raw by Paimon's stricter rule, which other engines use. A split of several
            key-disjoint files is raw here, but in Paimon only where the whole bucket needs no merging.
        file_count: number of files.
        size: bytes on disk.
        row_count: rows stored in the files: exact for raw splits without deletions, an upper bound otherwise.
        origin: branch and schema id with which the files are read, if this is another branch than that of the scan;
            else None.
        within: range of keys of the split, if other splits have the other keys of its files; else None.
    """

    __slots__ = (
        *("_load", "_parts", "bucket", "file_count", "origin", "partition"),
        *("raw", "raw_convertible", "row_count", "size", "within"),
    )

    def __init__(
        self,
        partition: bytes,
        bucket: int,
        files: Sequence[DataFileMeta],
        raw: bool,
        sections: Sequence[Section] = (),
        deletions: Sequence[DeletionFile | None] = (),
        raw_convertible: bool | None = None,
        origin: tuple[str, int] | None = None,
        within: KeyRange | None = None,
    ) -> None:
        self.origin, self.within = origin, within
        self.partition, self.bucket, self.raw = partition, bucket, raw
        self.raw_convertible = (raw and len(files) == 1) if raw_convertible is None else raw_convertible
        places = {file.file_name: place for place, file in enumerate(files)}
        shape = tuple((_places_of(section.runs, places), _places_of(section.groups, places)) for section in sections)
        vectors = (
            {file.file_name: vector for file, vector in zip(files, deletions, strict=True) if vector is not None}
            if deletions
            else {}
        )
        self._parts: SplitFiles | None = SplitFiles(tuple(files), shape, vectors)
        self._load: Callable[[], SplitFiles] | None = None
        self.file_count, self.size, self.row_count = _totals(files)

    @classmethod
    def planned(
        cls,
        place: tuple[bytes, int],
        raw: tuple[bool, bool],
        totals: tuple[int, int, int],
        load: Callable[[], SplitFiles],
    ) -> Split:
        """Return a split whose file objects are created on demand, because a plan may list a million files.

        Args:
            place: partition (BinaryRow bytes) and number of the bucket.
            raw: two flags: whether the rows need no merge by Dredge's rule, and by Paimon's rule.
            totals: number of files, bytes and rows.
            load: function that creates the file objects.
        """
        split = cls.__new__(cls)
        split.partition, split.bucket = place
        split.file_count, split.size, split.row_count = totals
        split.raw, split.raw_convertible = raw
        split._parts, split._load = None, load  # noqa: SLF001
        split.origin = split.within = None
        return split

    def of_branch(self, origin: tuple[str, int]) -> Split:
        """Return this split as one of another branch than that of the scan.

        Args:
            origin: name of the branch, and id of the schema with which its files are read.
        """
        place, raw = (self.partition, self.bucket), (self.raw, self.raw_convertible)
        split = Split.planned(place, raw, (self.file_count, self.size, self.row_count), self._load_parts)
        split.origin = origin
        return split

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """The files of the split, each once."""
        return self._load_parts().files

    @property
    def sections(self) -> tuple[Section, ...]:
        """Key-disjoint sections to merge; empty for raw splits."""
        return self._load_parts().sections

    @property
    def deletions(self) -> tuple[DeletionFile | None, ...]:
        """The deletion vector (index file, offset, length) of each file; None for a file without one."""
        return self._load_parts().deletions

    @property
    def vectors(self) -> dict[str, DeletionFile]:
        """The deletion vectors by file name."""
        return dict(self._load_parts().vectors)

    def _load_parts(self) -> SplitFiles:
        if self._parts is None:
            assert self._load is not None
            self._parts, self._load = self._load(), None
        return self._parts

    def to_bytes(self) -> bytes:
        """Return the split as bytes for a worker of another process (`files_to_bytes`); its files stay in columns."""
        load = self._load
        parts = self._load_parts() if load is None else load()  # not kept: a plan may have very many splits
        settings = {
            "version": _VERSION,
            "partition": self.partition.hex(),
            "bucket": self.bucket,
            "raw": self.raw,
            "raw_convertible": self.raw_convertible,
            "sections": parts.shape,
            "deletions": {name: astuple(vector) for name, vector in parts.vectors.items()},
            "origin": self.origin,
            "within": None if self.within is None else [_hex(self.within.low), _hex(self.within.high)],
        }
        return files_to_bytes(parts.listed, settings)

    @staticmethod
    def from_bytes(data: bytes) -> Split:
        """Return the split that :meth:`to_bytes` serialised.

        Raises:
            CorruptFile: the bytes are not a split.
        """
        files, settings = files_from_bytes(data, _SPLIT_BYTES)
        try:
            if settings["version"] != _VERSION:
                raise CorruptFile(_SPLIT_BYTES, "made by another version of Dredge")
            shape = tuple(
                (tuple(tuple(map(index, run)) for run in runs), tuple(tuple(map(index, group)) for group in groups))
                for runs, groups in settings["sections"]
            )
            every = list(range(len(files)))
            for side in (0, 1) if shape else ():
                if sorted(place for sides in shape for part in sides[side] for place in part) != every:
                    raise ValueError("sections that do not list each file once")
            vectors = {str(name): DeletionFile(*fields) for name, fields in settings["deletions"].items()}
            kinds = bool(settings["raw"]), bool(settings["raw_convertible"])
            place = bytes.fromhex(settings["partition"]), int(settings["bucket"])
            split = Split.planned(place, kinds, _totals(files), partial(SplitFiles, files, shape, vectors))
            if settings["origin"] is not None:
                branch, schema_id = settings["origin"]
                split.origin = str(branch), int(schema_id)
            if settings["within"] is not None:
                low, high = map(_of_hex, settings["within"])
                split.within = KeyRange(low, high)
            return split
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile(_SPLIT_BYTES, f"unreadable: {error!r}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self._load_parts()
        return Split, (
            self.partition,
            self.bucket,
            parts.files,
            self.raw,
            parts.sections,
            parts.deletions,
            self.raw_convertible,
            self.origin,
            self.within,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Split):
            return NotImplemented
        mine, theirs = ((s.partition, s.bucket, s.raw, s.size, s.row_count, s.origin, s.within) for s in (self, other))
        return mine == theirs and (self.files, self.sections, self.deletions) == (
            other.files,
            other.sections,
            other.deletions,
        )

    def __hash__(self) -> int:
        return hash((self.partition, self.bucket, self.raw, self.size, self.row_count))

    def __repr__(self) -> str:
        return f"Split(bucket={self.bucket}, raw={self.raw}, files={self.file_count}, size={self.size})"


def _totals(files: Sequence[DataFileMeta]) -> tuple[int, int, int]:
    """Return number of files, bytes and rows."""
    sizes = file_sizes(files)
    return len(sizes), sum(size for _, size, _ in sizes), sum(rows for _, _, rows in sizes)


def _places_of(parts: Sequence[Sequence[DataFileMeta]], places: Mapping[str, int]) -> _Places:
    return tuple(tuple(places[file.file_name] for file in part) for part in parts)


def _hex(key: bytes | None) -> str | None:
    return None if key is None else key.hex()


def _of_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Deletions = Mapping[tuple[bytes, int], Mapping[str, DeletionFile]]


def cut(store: TableStore, entries: pa.Table, deletions: Deletions, *, disjoint: bool = False) -> tuple[Split, ...]:
    """Divide live files into splits, ordered by partition bytes, bucket and key (append tables: age).

    This order of files is called split order below.
    As in Java, neighbouring files are packed up to `source.split.target-size`; each file counts as at least
    `source.split.open-file-cost` bytes. If a bucket of a primary-key table needs no merging, its files keep the order
    of ``entries``.

    Args:
        store: the table.
        entries: live files (`ENTRY_SCHEMA`).
        deletions: deletion vectors by partition and bucket, then by file name.
        disjoint: whether no two files contain visible rows of the same key (deletion vectors without level 0).
    """
    if not entries.num_rows:
        return ()
    groups = _groups(entries)
    if store.schema.primary_keys:
        items = _items_by_key(store, entries, groups, disjoint)
    else:
        items = _items_by_row_id(store, entries, groups) if evolves(store) else _items_by_age(entries, groups)
    ordered = entries.take(arrow_array(items.order)).combine_chunks()
    maker = _SplitMaker(store, ordered, deletions, items.keys)
    return tuple(maker.splits(items, groups[items.order]))


@dataclass(frozen=True)
class _Items:
    """Files in split order, grouped into items: the files of an item overlap in keys, so they must be in one split.

    Split order is by bucket, then by key, in append tables by age.

    Attributes:
        order: position in the entries of each file, in split order.
        starts: position in ``order`` of each item's first file.
        raw: per item, whether it is a single file without deletes.
        merge_free: per item, whether its whole bucket needs no merging.
        keys: ranks of the smallest and of the largest key of each file in split order; None without keys.
    """

    order: Ints
    starts: Ints
    raw: Bools
    merge_free: Bools
    keys: tuple[Ints, Ints] | None = None


def _groups(entries: pa.Table) -> Ints:
    """Return a group number for each entry: one number per bucket, ascending by partition bytes and bucket."""
    codes = numpy_array(pc.rank(entries.column("partition"), tiebreaker="dense")).astype(np.int64)
    buckets = numpy_array(entries.column("bucket")).astype(np.int64)
    lowest = buckets.min()
    combined: Ints = codes * (buckets.max() - lowest + 1) + (buckets - lowest)
    return combined


def _items_by_age(entries: pa.Table, groups: Ints) -> _Items:
    """Return the files of an append table by bucket, in the order in which they were written.

    Each file is an item of its own, because no two of these files must be in the same split.
    """
    created = numpy_array(pc.fill_null(entries.column("creation_time_ms"), arrow_scalar(0)))
    order = np.lexsort((created, numpy_array(entries.column("min_sequence_number")), groups))
    every = np.ones(len(order), dtype=np.bool_)
    return _Items(order, np.arange(len(order), dtype=np.int64), every, every)


def _items_by_row_id(store: TableStore, entries: pa.Table, groups: Ints) -> _Items:
    """Return the files of a data-evolution table by bucket and row id; files with the same row ids form one item.

    Raises:
        CorruptFile: a file has no row ids.
    """
    order, starts = row_id_groups(store, entries, groups)
    single = np.diff(np.r_[starts, entries.num_rows]) == 1
    return _Items(order, starts, single, single)


def row_id_groups(store: TableStore, entries: pa.Table, groups: Ints) -> tuple[Ints, Ints]:
    """Return the order of files by bucket and row id, and the places in this order where a new range of row ids begins.

    Args:
        store: the table.
        entries: live files (`ENTRY_SCHEMA`).
        groups: number of each file's bucket.

    Raises:
        CorruptFile: a file has no row ids.
    """
    if entries.column("first_row_id").null_count:
        raise CorruptFile(store.manifest_dir, "a data-evolution table has files whose rows have no ids")
    first = numpy_array(entries.column("first_row_id")).astype(np.int64)
    order = np.lexsort((first, groups))
    first, count, group = first[order], numpy_array(entries.column("row_count"))[order], groups[order]
    changes = np.r_[True, group[1:] != group[:-1]]
    step = int((first + count).max()) + 1
    offsets = np.cumsum(changes).astype(np.int64) * step  # keeps the ranges of different buckets apart
    reached = np.maximum.accumulate(offsets + first + count)
    begins = np.r_[True, (offsets + first)[1:] >= reached[:-1]]
    return order, np.flatnonzero(begins)


def bucket_numbers(entries: pa.Table) -> Ints:
    """Return a number for each entry: one number per bucket, ascending by partition bytes and bucket."""
    return _groups(entries)


def _items_by_key(store: TableStore, entries: pa.Table, groups: Ints, disjoint: bool) -> _Items:
    """Return files by bucket, in key order, grouped into items: files that must be in the same split.

    Files whose key ranges overlap, directly or through other files, form one item.
    A bucket needs no merging if its files have no deletes and are all on one level above 0. If ``disjoint``, the files
    may be on several levels above 0. Each file of such a bucket is an item. A null number of deletes counts as deletes.
    With `pk-clustering-override` each compacted file is an item, because deletion vectors mark all older rows.
    """
    count = entries.num_rows
    ranks = np.tile(np.arange(count), 2) if store.options.clusters_keys else _key_ranks(store, entries)
    low, high = ranks[:count], ranks[count:]
    plain = numpy_array(
        pc.fill_null(pc.equal(entries.column("delete_row_count"), arrow_scalar(0)), arrow_scalar(value=False))
    )
    merge_free = _merge_free_files(numpy_array(entries.column("level")), groups, plain, disjoint)
    order = np.lexsort((np.where(merge_free, 0, high), np.where(merge_free, 0, low), groups))
    low, high, groups = low[order], high[order], groups[order]
    plain, merge_free = plain[order], merge_free[order]
    step = int(ranks.max()) + 1
    # Offsets keep the key ranks of consecutive buckets apart.
    offsets = np.cumsum(np.r_[True, groups[1:] != groups[:-1]]) * step
    highest_so_far = np.maximum.accumulate(offsets + high)
    begins = merge_free | np.r_[True, (offsets + low)[1:] > highest_so_far[:-1]]
    starts = np.flatnonzero(begins)
    single = np.diff(np.r_[starts, count]) == 1
    return _Items(order, starts, single & plain[starts], merge_free[starts], (low, high))


def _key_ranks(store: TableStore, entries: pa.Table) -> Ints:
    """Return the ranks of the smallest keys of all files, then those of the largest keys."""
    ends = [decode_rows(entries.column(name), list(store.schema.trimmed_key_types)) for name in ("min_key", "max_key")]
    ranks = pc.rank(pa.chunked_array([key_bytes(end) for end in ends]), tiebreaker="dense")
    return numpy_array(ranks).astype(np.int64)


def _merge_free_files(levels: Ints, groups: Ints, plain: Bools, disjoint: bool) -> Bools:
    """Return a mask of the files (in any order) whose bucket needs no merging.

    Args:
        levels: level of each file.
        groups: number of each file's bucket.
        plain: mask of the files that are known to have no deletes.
        disjoint: whether such a bucket may have files on several levels above 0.
    """
    _, bucket = np.unique(groups, return_inverse=True)
    count = int(bucket.max()) + 1
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, bucket, levels)
    np.maximum.at(high, bucket, levels)
    fits = (low > 0) & ((low == high) | disjoint) & (np.bincount(bucket, weights=~plain, minlength=count) == 0)
    spread: Bools = fits[bucket]
    return spread


class _SplitMaker:
    """Creates splits from entries in split order (by bucket, then by key or age), and file objects on demand."""

    def __init__(
        self, store: TableStore, ordered: pa.Table, deletions: Deletions, keys: tuple[Ints, Ints] | None
    ) -> None:
        self._ordered, self._deletions = ordered, deletions
        self._merges = store.has_primary_key and not store.options.clusters_keys
        self._options, self._keys = store.options, keys

    def splits(self, items: _Items, groups: Ints) -> Iterator[Split]:
        """Yield the splits: neighbouring items (files that must be in the same split) are joined up to the target size.

        Args:
            items: the files in split order (by bucket, then by key or age), grouped.
            groups: number of the bucket of each file (`_groups`), in split order.
        """
        options, ordered = self._options, self._ordered
        target, cost = options.source_split_target, options.open_file_cost
        sizes, rows = (numpy_array(ordered.column(name)) for name in ("file_size", "row_count"))
        total_size, total_rows = (np.r_[0, np.cumsum(values)].tolist() for values in (sizes, rows))
        weights = np.maximum(np.add.reduceat(sizes, items.starts), cost).tolist()
        starts, raw, merge_free = items.starts.tolist(), items.raw.tolist(), items.merge_free.tolist()
        group_of_item = groups[items.starts].tolist()
        partitions, buckets = ordered.column("partition"), ordered.column("bucket")
        place, current_group = (b"", 0), None
        for first, last in _pack_items(weights, group_of_item, target):
            begin, end = starts[first], starts[last] if last < len(starts) else len(sizes)
            plain = all(raw[first:last])
            totals = (end - begin, total_size[end] - total_size[begin], total_rows[end] - total_rows[begin])
            if group_of_item[first] != current_group:  # once per bucket: there may be many more splits
                place, current_group = (partitions[begin].as_py(), buckets[begin].as_py()), group_of_item[first]
            kinds = (plain, merge_free[first] or (plain and end - begin == 1))
            yield Split.planned(place, kinds, totals, partial(self.load, begin, end, place, plain))

    @cached_property
    def _columns(self) -> pa.RecordBatch:
        return shipped_columns(self._ordered)

    @cached_property
    def _ages(self) -> list[Ints]:
        """Level, smallest and largest sequence number, and creation time (ms, 0 if unknown) of each file."""
        ordered = self._ordered
        created = pc.fill_null(ordered.column("creation_time_ms"), arrow_scalar(0))
        return [
            *(numpy_array(ordered.column(name)) for name in ("level", "min_sequence_number", "max_sequence_number")),
            numpy_array(created),
        ]

    def load(self, begin: int, end: int, place: tuple[bytes, int], raw: bool) -> SplitFiles:
        """Return the files of entries ``begin`` to ``end`` (exclusive), in columns.

        ``place`` is their partition and bucket. ``raw``: the files need no merge, so no sections are computed.
        """
        files = EntryFiles(self._columns.slice(begin, end - begin))
        vectors = self._deletions.get(place, {})
        if vectors:
            names = self._columns.column("file_name").slice(begin, end - begin).to_pylist()
            vectors = {name: vectors[name] for name in names if name in vectors}
        return SplitFiles(files, () if raw or not self._merges else self._shape(begin, end), vectors)

    def _shape(self, begin: int, end: int) -> _Shape:
        """Return the sections of entries ``begin`` to ``end`` (exclusive), as `sections_of` divides them.

        Ranks of keys are compared in place of keys, which would have to be decoded once more.
        """
        assert self._keys is not None
        names = self._columns.column("file_name").slice(begin, end - begin).to_pylist()
        low, high = (ranks[begin:end].tolist() for ranks in self._keys)
        files = [
            DataFile(name, level, 0, low[place], high[place], 0, first, last, created)
            for place, (name, level, first, last, created) in enumerate(
                zip(names, *(numbers[begin:end].tolist() for numbers in self._ages), strict=True)
            )
        ]
        places = {id(file): place for place, file in enumerate(files)}
        return tuple(
            (
                tuple(tuple(places[id(file)] for file in run) for run in runs),
                tuple(tuple(places[id(file)] for file in group) for group in groups),
            )
            for runs, groups in divide_by_keys(files)
        )


def _pack_items(weights: Sequence[int], groups: Sequence[Any], target: int) -> Iterator[tuple[int, int]]:
    """Divide items (files that must be in the same split) into splits, and yield (first item, end) of each split.

    A split has neighbouring items of one group, together at most ``target`` bytes. A larger item is a split by itself.

    Args:
        weights: bytes of each item.
        groups: number of each item's bucket.
        target: target size of a split in bytes.

    Yields:
        Number of the split's first item, and number after its last item.
    """
    first, total = 0, 0
    for item, weight in enumerate(weights):
        if item > first and (groups[item] != groups[first] or total + weight > target):
            yield first, item
            first, total = item, 0
        total += weight
    if weights:
        yield first, len(weights)
