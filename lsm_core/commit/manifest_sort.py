"""Manifests sorted by a partition column (`manifest-sort.enabled`), so that reads of few partitions open few manifests.

Manifests of the target size form sorted runs whose ranges of the column do not overlap. Of more than four runs, those
that are small compared with the larger runs are chosen. Chosen manifests and small manifests are rewritten in sections
of overlapping ranges, up to `manifest-sort.max-rewrite-size`. Beyond this size, sections with small manifests are
rewritten in pieces of the target size.

Source: ``ManifestFileSorter``, ``ManifestPickStrategy`` of Paimon 2.1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.commit.message import IDENTITY
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format.binary_row import decode_row
from lsm_core.format.manifest import (
    DELETE,
    Cancelling,
    HashesMeet,
    ManifestFileMeta,
    has_unknown,
    merge_entries,
    partitions_of,
)
from lsm_core.metadata import manifests
from lsm_core.metadata.manifests import NO_ENTRIES, prune
from lsm_core.metadata.store import TableStore

_NEEDED: Final = ("kind", *IDENTITY)
_LEVELS: Final = 4
_ENTRIES_AT_ONCE: Final = 500_000
"""Largest number of entries that are sorted in memory together, unless more of them have the same value."""


class UnknownFields(ValueError):
    """Error that a manifest has entries with unknown fields, which could not be written again."""


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


Bound = tuple[bool, Any]
"""Value of the sort column, preceded by whether it is not null: nulls come first."""


@dataclass(frozen=True)
class RangedManifest:
    """Manifest with the range of the sort column in its entries.

    Attributes:
        meta: the manifest.
        place: position in the manifest list.
        low: smallest value of the sort column.
        high: largest value of the sort column.
        small: whether the manifest is smaller than `manifest.target-file-size`.
        has_deleted: whether the manifest may contain files that DELETE entries of the list delete.
    """

    meta: ManifestFileMeta
    place: int
    low: Bound
    high: Bound
    small: bool = False
    has_deleted: bool = False

    @property
    def size(self) -> int:
        """Size of the manifest file in bytes."""
        return self.meta.file_size

    @property
    def is_cleaned(self) -> bool:
        """Whether the manifest is rewritten in any case: it is small, or files of it are deleted."""
        return self.small or self.has_deleted


@dataclass(frozen=True)
class SortedRun:
    """Manifests whose ranges do not overlap, in order.

    Attributes:
        parts: the manifests.
        level: 1 to 4 for the four largest runs, the largest on level 4; 0 for all others.
    """

    parts: tuple[RangedManifest, ...]
    level: int = 0

    @property
    def size(self) -> int:
        """Total size of the manifest files in bytes."""
        return _total(self.parts)


@dataclass
class _Output:
    """New manifests of a rewrite, and the positions of the old list at which they are inserted.

    Attributes:
        first: position of the sorted manifests.
        last: position of the manifests with DELETE entries, behind all additions.
        at: manifests by position of the old list.
    """

    first: int
    last: int
    at: dict[int, list[ManifestFileMeta]] = field(default_factory=dict)

    def put(self, place: int, metas: Sequence[ManifestFileMeta]) -> None:
        self.at.setdefault(place, []).extend(metas)

    def keep(self, parts: Sequence[RangedManifest]) -> None:
        for part in parts:
            self.put(part.place, [part.meta])

    def in_order(self) -> list[ManifestFileMeta]:
        return [meta for place in sorted(self.at) for meta in self.at[place]]


def sorts_manifests(store: TableStore) -> bool:
    """Return whether the table's manifests are merged in the order of a partition column."""
    return bool(store.options.get("manifest-sort.enabled")) and bool(store.schema.partition_keys)


def sort_manifests(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta] | None:
    """Merge the manifests of a snapshot in the order of the sort column, and return the new list of manifests.

    If the small manifests and those with deletions reach `manifest.full-compaction-threshold-size`, no DELETE entries
    remain.

    Args:
        store: the table.
        metas: all manifests, base then delta.
        writer: store whose FileIO writes new manifests; None for ``store``.

    Returns:
        The manifests, or None if they cannot be sorted: entries have unknown fields, a file was added twice, or
        statistics of a manifest have no range of the sort column.
    """
    target = store.options.manifest_target_size
    cleaned = sum(meta.file_size for meta in metas if meta.num_deleted_files or meta.file_size < target)
    column = _sort_column(store)
    try:
        if cleaned >= store.options.manifest_full_threshold:
            deletions = read_deletions(store, metas)
            parts = ranged_manifests(store, metas, column, target, deletions)
            full = _rewrite(store, parts, column, writer or store, deletions)
            if full is not None:
                return full
        minor = _rewrite(store, ranged_manifests(store, metas, column, target), column, writer or store, None)
    except (UnknownFields, HashesMeet, _NoRange, CorruptFile):  # a damaged manifest raises in the other merge too
        return None
    return list(metas) if minor is None else minor


def choose_manifests(store: TableStore, metas: Sequence[ManifestFileMeta]) -> list[tuple[ManifestFileMeta, str]]:
    """Return the manifests that :func:`sort_manifests` would rewrite, with reasons; only statistics are read.

    A full merge also rewrites large manifests with deleted files, which this function does not look for.
    """
    target = store.options.manifest_target_size
    try:
        parts = ranged_manifests(store, metas, _sort_column(store), target)
    except _NoRange:
        return []
    cleaned = [part for part in parts if part.small or part.meta.num_deleted_files]
    is_full = _total(cleaned) >= store.options.manifest_full_threshold
    reasons = {
        part.place: f"smaller than {target:,} bytes"
        if part.small
        else f"holds {part.meta.num_deleted_files:,} deletions"
        for part in cleaned
        if part.small or is_full
    }
    runs = build_runs([part for part in parts if part.place not in reasons])
    for run in pick_runs(runs, store.options.max_size_amplification, store.options.size_ratio):
        reasons |= {part.place: f"one of {len(runs)} sorted runs with overlapping partitions" for part in run.parts}
    return [(part.meta, reasons[part.place]) for part in parts if part.place in reasons]


def read_deletions(store: TableStore, metas: Sequence[ManifestFileMeta]) -> pa.Table:
    """Return the DELETE entries of manifests, with the columns of the identity."""
    tables = [
        manifests.read_manifest(
            store, meta, lambda part: part.filter(pc.equal(part.column("kind"), DELETE)).select(_NEEDED)
        )
        for meta in metas
        if meta.num_deleted_files
    ]
    return pa.concat_tables([NO_ENTRIES.select(_NEEDED), *tables])


class _NoRange(DredgeError):
    """Error that the statistics of a manifest have no range of the sort column."""


def _sort_column(store: TableStore) -> int:
    """Return the index of the sort column in the partition; the first column by default."""
    name = store.options.get("manifest-sort.partition-field")
    keys = store.schema.partition_keys
    return keys.index(name) if name in keys else 0


def ranged_manifests(
    store: TableStore, metas: Sequence[ManifestFileMeta], column: int, target: int, deletions: pa.Table | None = None
) -> list[RangedManifest]:
    """Return the manifests with their ranges.

    Args:
        store: the table.
        metas: the manifests, in order.
        column: index of the sort column in the partition.
        target: size (bytes) below which a manifest is small.
        deletions: DELETE entries of all manifests; None if manifests with deleted files are not searched.
    """
    types = store.schema.partition_types
    deleted = partitions_of(deletions) if deletions is not None and deletions.num_rows else []
    parts = []
    for place, meta in enumerate(metas):
        try:
            low = decode_row(meta.partition_stats.min_values, types)[column]
            high = decode_row(meta.partition_stats.max_values, types)[column]
        except (DredgeError, ValueError, IndexError) as error:
            raise _NoRange(f"table {store.name}: manifest {meta.file_name} has no range of partitions") from error
        has_deleted = bool(deleted) and bool(prune([meta], types, deleted, None, None))
        bounds = _bound(low), _bound(high)
        parts.append(RangedManifest(meta, place, *bounds, meta.file_size < target, has_deleted))
    return parts


def _bound(value: Any) -> Bound:
    return (value is not None, value)


def build_runs(parts: Sequence[RangedManifest]) -> list[SortedRun]:
    """Return the manifests as sorted runs, the smallest run first; the four largest are on the levels 1 to 4.

    A manifest that begins with the last value of a run belongs to this run.
    """
    heap: list[tuple[Bound, int, list[RangedManifest]]] = []
    numbers = count()
    for part in sorted(parts, key=lambda part: (part.low, part.high)):
        if heap and part.low >= heap[0][0]:
            run = heap[0][2]
            run.append(part)
            heapq.heapreplace(heap, (part.high, next(numbers), run))
        else:
            heapq.heappush(heap, (part.high, next(numbers), [part]))
    runs = sorted((run for _, _, run in sorted(heap, key=lambda item: item[:2])), key=_total)
    return [SortedRun(tuple(run), max(0, index - len(runs) + _LEVELS + 1)) for index, run in enumerate(runs)]


def _total(parts: Sequence[_Sized]) -> int:
    return sum(part.size for part in parts)


def pick_runs(runs: Sequence[SortedRun], amplification: int, ratio: int) -> list[SortedRun]:
    """Return the runs to rewrite: none of at most four runs, otherwise as in universal compaction.

    Args:
        runs: all runs, the smallest first (:func:`build_runs`).
        amplification: `compaction.max-size-amplification-percent`; all runs are returned if the smaller runs have more
            than this share of the size of the largest.
        ratio: `compaction.size-ratio` in percent; a run is returned if the smaller ones returned reach its size within
            this tolerance.
    """
    if len(runs) <= _LEVELS:
        return []
    if _total(runs[:-1]) * 100 > amplification * runs[-1].size:
        return list(runs)
    chosen = [runs[0]]
    for run in runs[1:]:
        if run.level <= 1 or _total(chosen) * (100 + ratio) >= run.size * 100:
            chosen.append(run)
    return chosen if len(chosen) > 1 else []


def split_sections(parts: Sequence[RangedManifest], target: int) -> list[list[RangedManifest]]:
    """Return the manifests in sections whose ranges do not overlap, each of at least ``target`` bytes if possible.

    Args:
        parts: the manifests, at least one.
        target: size (bytes) below which a section is merged with a neighbour.
    """
    sections: list[list[RangedManifest]] = []
    high: Bound = (False, None)
    for part in sorted(parts, key=lambda part: (part.low, part.high)):
        if sections and part.low < high:
            sections[-1].append(part)
            high = max(high, part.high)
        else:
            sections.append([part])
            high = part.high
    large_sections: list[list[RangedManifest]] = []
    for section in sections:
        if large_sections and min(_total(large_sections[-1]), _total(section)) < target:
            large_sections[-1] = large_sections[-1] + section
        else:
            large_sections.append(section)
    return large_sections


def plan_rewrites(
    sections: Sequence[list[RangedManifest]], target: int, min_count: int, budget: int, has_deletions: bool
) -> Iterator[tuple[list[RangedManifest], bool]]:
    """Yield groups of manifests, and for each group whether it is rewritten together.

    Args:
        sections: manifests by section.
        target: size (bytes) of a piece of a section that is beyond the budget.
        min_count: smallest number of manifests of the last piece of such a section.
        budget: `manifest-sort.max-rewrite-size` in bytes.
        has_deletions: whether deleted files must be removed, so that the last pieces are rewritten in any case.
    """
    queue = list(sections)
    size, is_exhausted = 0, False
    for section in queue:  # grows while it is read
        if len(section) == 1:
            yield section, section[0].has_deleted
        elif is_exhausted:
            yield from _pieces(section, target, min_count, has_deletions)
        elif size + _total(section) <= budget:
            size += _total(section)
            yield section, True
        else:
            head = _head(section, budget - size)
            yield section[:head], True
            if section[head:]:
                queue.append(section[head:])
            is_exhausted = True


def _head(section: Sequence[RangedManifest], budget: int) -> int:
    """Return how many manifests of the section are rewritten: at least two, and the one that crosses the budget."""
    size = 0
    for number, part in enumerate(section):
        if size > budget and number >= 2:
            return number
        size += part.size
    return len(section)


def _pieces(
    section: list[RangedManifest], target: int, min_count: int, has_deletions: bool
) -> Iterator[tuple[list[RangedManifest], bool]]:
    if not any(part.is_cleaned for part in section):
        yield section, False
        return
    piece: list[RangedManifest] = []
    for part in section:
        piece.append(part)
        if _total(piece) >= target:
            yield piece, len(piece) > 1 or piece[0].has_deleted
            piece = []
    if piece:
        is_due = has_deletions or len(piece) >= min_count
        yield piece, is_due and (len(piece) > 1 or piece[0].has_deleted)


def _rewrite(
    store: TableStore,
    parts: Sequence[RangedManifest],
    column: int,
    writer: TableStore,
    deletions: pa.Table | None,
) -> list[ManifestFileMeta] | None:
    """Return the new list of manifests, or None if there is nothing to rewrite.

    Args:
        store: the table.
        parts: all manifests.
        column: index of the sort column in the partition.
        writer: store whose FileIO writes new manifests.
        deletions: DELETE entries of all manifests, which are applied; None to keep deletions of other manifests.
    """
    options = store.options
    runs = build_runs([part for part in parts if not part.is_cleaned])
    picked = pick_runs(runs, options.max_size_amplification, options.size_ratio)
    chosen = [part for run in picked for part in run.parts] + [part for part in parts if part.is_cleaned]
    if not chosen:
        return None
    output = _Output(min(part.place for part in chosen), max(part.place for part in chosen))
    names = {part.meta.file_name for part in chosen}
    output.keep([part for part in parts if part.meta.file_name not in names])
    target = options.manifest_target_size
    budget = int(options.get("manifest-sort.max-rewrite-size"))
    cancelling = None if deletions is None else Cancelling(deletions)
    has_deletions = deletions is not None and deletions.num_rows > 0
    sections = split_sections(chosen, target)
    written: list[ManifestFileMeta] = []
    try:
        for section, together in plan_rewrites(
            sections, target, options.manifest_merge_min_count, budget, has_deletions
        ):
            if not together:
                output.keep(section)
                continue
            section = sorted(section, key=lambda part: part.place)
            added = manifests.write_manifests(writer, _sorted_entries(store, section, column, cancelling, kind=0))
            written += added
            output.put(output.first, added)
            if cancelling is None and any(part.meta.num_deleted_files for part in section):
                removed = manifests.write_manifests(writer, _sorted_entries(store, section, column, None, kind=1))
                written += removed
                output.put(output.last, removed)
    except BaseException:
        for meta in written:
            writer.delete(writer.manifest_path(meta.file_name))
        raise
    return output.in_order()


def _sorted_entries(
    store: TableStore, section: Sequence[RangedManifest], column: int, cancelling: Cancelling | None, *, kind: int
) -> Iterator[pa.Table]:
    """Yield the remaining entries of one kind, sorted by the column's value and the file name.

    The manifests are read once if their entries fit into memory, otherwise once for each range of values.

    Args:
        store: the table.
        section: the manifests, in commit order.
        column: index of the sort column in the partition.
        cancelling: filter of deleted files; None if only deletions of these manifests are applied.
        kind: kind of the entries, ADD or DELETE.
    """
    ranks: dict[bytes, int] = {}
    total = sum(part.meta.num_added_files + part.meta.num_deleted_files for part in section)
    if total <= _ENTRIES_AT_ONCE:
        tables = [_read(store, part) for part in section]
        ranks = _ranks(store, column, [partition for table in tables for partition in partitions_of(table)])
        yield _merged(tables, ranks, cancelling, kind)
        return
    counts: dict[bytes, int] = {}
    for part in section:
        values = _read(store, part).column("partition").value_counts()
        for value, number in zip(values.field(0).to_pylist(), values.field(1).to_pylist(), strict=True):
            counts[bytes(value)] = counts.get(bytes(value), 0) + number
    ranks = _ranks(store, column, list(counts))
    for low, high in _rank_ranges(ranks, counts):
        chosen = pa.array([partition for partition, rank in ranks.items() if low <= rank < high], pa.binary())
        narrowed = [
            table.filter(pc.is_in(table.column("partition"), chosen))
            for table in (_read(store, part) for part in section)
        ]
        yield _merged(narrowed, ranks, cancelling, kind)


def _rank_ranges(ranks: dict[bytes, int], counts: dict[bytes, int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of ranks, each with entries that fit into memory or with one rank."""
    by_rank = np.bincount(list(ranks.values()), [counts[partition] for partition in ranks])
    low = size = 0
    for rank, number in enumerate(by_rank):
        if size and size + number > _ENTRIES_AT_ONCE:
            yield low, rank
            low, size = rank, 0
        size += int(number)
    yield low, len(by_rank)


def _read(store: TableStore, part: RangedManifest) -> pa.Table:
    entries = manifests.read_manifest(store, part.meta)
    if has_unknown(entries) is not None:
        raise UnknownFields(part.meta.file_name)
    return entries


def _ranks(store: TableStore, column: int, partitions: Sequence[bytes]) -> dict[bytes, int]:
    """Return the rank of each partition's value of the sort column."""
    types = store.schema.partition_types
    values = {partition: _bound(decode_row(partition, types)[column]) for partition in dict.fromkeys(partitions)}
    order = {value: rank for rank, value in enumerate(sorted(set(values.values())))}
    return {partition: order[value] for partition, value in values.items()}


def _merged(tables: Sequence[pa.Table], ranks: dict[bytes, int], cancelling: Cancelling | None, kind: int) -> pa.Table:
    if cancelling is None:
        entries = merge_entries(pa.concat_tables(tables))
        entries = entries.filter(pc.equal(entries.column("kind"), kind))
    else:
        entries = pa.concat_tables([cancelling.survivors(table) for table in tables])
    codes = pc.dictionary_encode(entries.column("partition").combine_chunks())
    by_code = np.array([ranks[bytes(value)] for value in codes.dictionary.to_pylist()], np.int64)
    keys = pa.table({"rank": arrow_array(by_code[numpy_array(codes.indices)]), "name": entries.column("file_name")})
    order = pc.sort_indices(keys, sort_keys=[("rank", "ascending"), ("name", "ascending")])
    return entries.take(order)
