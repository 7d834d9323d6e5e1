"""Search for the row groups of a rewrite in whose key range no other file has a key, so that they can be spliced.

Files that could stay as they are, but meet a key, are searched row group by row group. Of the files that reach over
row groups, only key columns are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from lsm_core.arrays import arrow_array, empty_table, numpy_array
from lsm_core.compact.exact_keys import ALWAYS, NEVER, OPENING
from lsm_core.compact.splice import LEAST_ROWS, SplicedGroup, choose_groups, cut_evenly, join_parts, writes_alike
from lsm_core.compact.splicing import key_columns
from lsm_core.compact.task import BucketTask
from lsm_core.errors import CorruptFile
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.files.formats import FileSource, format_of
from lsm_core.files.formats.guard import open_checked, quietly_close
from lsm_core.files.formats.parquet import EXTENSION, ROW_GROUP_ROWS
from lsm_core.files.formats.parquet_footer import group_bounds
from lsm_core.files.index_writer import indexed_columns
from lsm_core.files.reader import open_source
from lsm_core.files.row_group_parts import GroupPages, PageIndexes, PartSizes
from lsm_core.files.row_groups import StoredGroups, can_join, read_groups
from lsm_core.files.splicing import encoded_groups
from lsm_core.files.writer import row_group_bytes
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.format.schema import KEY_PREFIX, VALUE_KIND
from lsm_core.merge import KeySpec, normalise_keys
from lsm_core.metadata.indexes import deleted_rows
from lsm_core.metadata.store import TableStore
from lsm_core.read.merge_read import Shapes
from lsm_core.tree import DataFile, Levels, TaskPlan
from lsm_core.tree.task import Rewrite, Upgrade, upgrade_of
from lsm_core.types.arrow import refit

_LEAST_SHARE: Final = 0.1
"""Smallest share of a rewrite's rows for which row groups are spliced, and for which parts of row groups are."""
_PARTS: Final = 8
"""A part of a row group has at least the usual rows of a row group, divided by this number."""
_MOST_GROUPS: Final = 2
"""Row groups are cut into parts if there are at most this multiple of the usual number, and one more for each file."""
_SPREAD_KEYS: Final = 3 * _PARTS
"""Keys of one file in every row group, by which hardly a part can be without one."""
_MOST_DICTIONARIES: Final = 16
"""The dictionaries of a row group that is cut, which each part gets, are at most a share of 1 / 16 of its bytes."""
_DELTA_BINARY_PACKED: Final = 5
_BATCH_ROWS: Final = 65_536


def find_spliced(store: TableStore, task: BucketTask, plan: TaskPlan, shapes: Shapes) -> tuple[SplicedGroup, ...]:
    """Find the row groups of a plan's rewrites that have no key in common with any other file, and choose among them.

    The footers of files that could stay are read, and the key columns of files that reach over their row groups: at
    most as many rows as these row groups have. Of keys that are not one integer, the first and last keys of row groups
    are decoded too.

    Args:
        store: the table.
        task: the task; its `untouched` files have been found.
        plan: the plan of the task, with kept files.
        shapes: cache of the key ranges of files.

    Returns:
        The row groups in key order; none if splicing them saves too little.

    Raises:
        CorruptFile: a file is missing or damaged; the error names it.
    """
    options = store.options
    if (
        task.is_append
        or task.by_file
        or options.exact_keys == NEVER
        or options.snapshot_ordering
        or options.clusters_keys
        or format_of(options, task.output_level) != EXTENSION
        or indexed_columns(store.schema, options)
    ):
        return ()
    spliceable = _Spliceable(store, task, plan, shapes)
    chosen = [
        group
        for runs in plan.rewrites
        if any(map(spliceable.may_have_groups, _files_of(runs)))
        for group in _Search(store, task, runs, plan.untouched, spliceable).run()
    ]
    if len(plan.rewrites) < 2:
        return tuple(chosen)
    rank = {row: at for at, row in enumerate(_sorted_rows(store, [group.low for group in chosen]))}
    return tuple(sorted(chosen, key=lambda group: rank[group.low]))


def beside_spliced(store: TableStore, spliced: Sequence[SplicedGroup], cuts: Sequence[bytes]) -> list[bytes]:
    """Return cut keys that are in no key range of a spliced row group: such a cut is moved to the row group's start.

    Args:
        store: the table.
        spliced: row groups in key order.
        cuts: keys between which a task is cut, as BinaryRows.
    """
    if not spliced or not cuts:
        return list(cuts)
    keys = _scalars(store, [*(group.low for group in spliced), *(group.high for group in spliced), *cuts])
    count = len(spliced)
    lows, highs = keys[:count], keys[count : 2 * count]
    moved = []
    for cut, key in zip(cuts, keys[2 * count :], strict=True):
        at = bisect_right(lows, key) - 1
        moved.append(spliced[at].low if at >= 0 and key <= highs[at] else cut)
    return moved


def _files_of(runs: Rewrite) -> list[str]:
    return [file.name for run in runs for file in run.files]


def _scalars(store: TableStore, rows: Sequence[bytes]) -> list[Any]:
    """Return keys in the form that compares with keys of rows."""
    if not rows:
        return []
    keys = normalise_keys(key_columns(store, rows), nullable=store.schema.nullable_key)
    return [keys.scalar(at) for at in range(len(rows))]


def _sorted_rows(store: TableStore, rows: Sequence[bytes]) -> list[bytes]:
    pairs = sorted(zip(_scalars(store, rows), range(len(rows)), strict=True))
    return [rows[at] for _, at in pairs]


class _Spliceable:
    """Choice of the files whose row groups the output of a task may contain unchanged."""

    def __init__(self, store: TableStore, task: BucketTask, plan: TaskPlan, shapes: Shapes) -> None:
        self._store, self._task = store, task
        max_level = Levels(shapes.of(task.files), store.options.num_levels).max_level
        marked = deleted_rows(task.index_files)
        metas = {file.file_name: file for file in task.files}
        self._names = {
            file.name
            for file in plan.keepable
            if file.delete_row_count == 0
            and file.name not in marked
            and writes_alike(store.schema_of(metas[file.name].schema_id), store.schema)
            # The merge of one row that was never merged may differ from the row.
            and (metas[file.name].file_source == SOURCE_COMPACT or store.options.merge_engine == "deduplicate")
            and file.name.rpartition(".")[2] == EXTENSION
            and (
                file.level == task.output_level
                or upgrade_of(store.options, file.level, task.output_level, max_level) is Upgrade.PLAIN
            )
        }
        self._expected: StoredGroups | None = None
        self._allows_delta = True

    def may_have_groups(self, name: str) -> bool:
        """Return whether row groups of a file may be spliced, as far as its metadata shows."""
        return name in self._names

    def groups(self, meta: DataFileMeta) -> tuple[StoredGroups, PageIndexes] | None:
        """Return the row groups of a file, or None if the file has another layout than new files.

        Raises:
            CorruptFile: the file is missing or damaged.
        """
        store, level = self._store, self._task.output_level
        if self._expected is None:
            open_part, schema = KeyValueFileWriter.part_opener(store, level)
            _, self._expected, _ = encoded_groups(open_part, "(new file)", empty_table(schema))
            self._codecs, self._allows_delta = KeyValueFileWriter.encoding(store, level)
        path = store.data_path(self._task.partition, self._task.bucket, meta)
        with open_checked(store.file_io, path, "Parquet", meta.file_size) as source:
            groups = read_groups(source, path)
            joins = can_join(self._expected, groups)
            indexes = PageIndexes(source, groups, KeyValueFileWriter.file_schema(store)) if joins else None
        quietly_close(source)
        if indexes is None:
            return None
        kinds = group_bounds(groups.footer, pa.schema([(VALUE_KIND, pa.int32())]), VALUE_KIND, path)
        if kinds is None or any(numpy_array(side).any() for side in kinds):  # a merge makes rows +I
            return None
        for group in groups.footer.groups:
            for leaf, chunk in zip(groups.footer.leaves, group.chunks, strict=True):
                if chunk.codec not in self._codecs(leaf.path):
                    return None
                if not self._allows_delta and _DELTA_BINARY_PACKED in chunk.encodings:
                    return None
        return groups, indexes


@dataclass(frozen=True)
class _Unit:
    """Row group, part of a row group, or a file whose row groups are not searched.

    Attributes:
        file_name: name of the file.
        number: index of the row group; None for a file.
        first_row: first row of a part of a row group; None for all rows.
        rows: number of rows.
        size: bytes of the row group or part.
        low: smallest key, comparable with keys of rows.
        high: largest key, likewise.
        low_row: smallest key as a BinaryRow.
        high_row: largest key as a BinaryRow.
    """

    file_name: str
    number: int | None
    first_row: int | None
    rows: int
    size: int
    low: Any
    high: Any
    low_row: bytes
    high_row: bytes


_Description = tuple[str, int | None, int | None, int, int]
"""Name of the file, row group, first row, rows and bytes of a unit."""


class _Search:
    """Search among the files of one rewrite."""

    def __init__(
        self, store: TableStore, task: BucketTask, runs: Rewrite, kept: Sequence[DataFile], spliceable: _Spliceable
    ) -> None:
        self._store, self._task, self._spliceable = store, task, spliceable
        names = set(_files_of(runs))
        kept_names = {file.name for file in kept}
        self._kept = [file for file in task.files if file.file_name in kept_names]
        self._metas = {file.file_name: file for file in task.files if file.file_name in names}
        self._spec = KeySpec.of(store.schema, table=store.name)
        self._always = store.options.exact_keys == ALWAYS
        self._sizes: dict[tuple[str, int], PartSizes] = {}
        """Bytes of the parts of the row groups that may be cut, by name of the file and index."""
        self._group_rows: dict[str, list[int]] = {}
        """Rows of each row group of the files that are searched."""

    def run(self) -> list[SplicedGroup]:
        """Return the row groups to splice, in key order."""
        units, least, least_merged = self._units()
        kept = _scalars(self._store, [key for file in self._kept for key in (file.min_key, file.max_key)])
        # the output around a kept file ends before it, so no row group may reach over one
        lows = sorted([*(unit.low for unit in units), *kept[::2]])
        highs = sorted([*(unit.high for unit in units), *kept[1::2]])

        def is_alone(unit: _Unit) -> bool:
            """Return whether no other unit has its smallest or largest key, which is a key of a row, in the range."""
            return all(bisect_right(ends, unit.high) - bisect_left(ends, unit.low) == 1 for ends in (lows, highs))

        candidates = sorted((unit for unit in units if unit.number is not None and is_alone(unit)), key=_low)
        if not candidates or not least:
            return []
        starts = [unit.low for unit in candidates]
        ends = [unit.high for unit in candidates]
        between, met = [0] * (len(candidates) + 1), [False] * len(candidates)
        alone = {id(unit) for unit in candidates}
        reaching: dict[str, list[_Unit]] = {}
        for unit in units:
            if id(unit) in alone:
                continue
            following = bisect_right(starts, unit.low)
            if following < len(candidates) and ends[following] < unit.high:
                reaching.setdefault(unit.file_name, []).append(unit)
            else:
                between[following] += unit.rows
        rows_to_read = sum(unit.rows for parts in reaching.values() for unit in parts)
        if not self._always and rows_to_read + OPENING * len(reaching) > sum(unit.rows for unit in candidates):
            return []
        for name, parts in reaching.items():
            self._read_keys(name, parts, (starts, ends), met, between)
            if all(met):
                return []
        chosen = choose_groups([unit.rows for unit in candidates], met, between, least, least_merged)
        # The output ends before a kept file, which may lie between two parts.
        kept_before = [bisect_left(sorted(kept[::2]), low) for low in starts]
        spliced = join_parts(
            [
                SplicedGroup(
                    unit.file_name, unit.number, unit.rows, unit.size, unit.low_row, unit.high_row, unit.first_row
                )
                for unit in (candidates[at] for at in chosen)
                if unit.number is not None
            ],
            [between[at] > 0 or (at > 0 and kept_before[at] > kept_before[at - 1]) for at in chosen],
            self._sizes,
        )
        total = sum(file.row_count for file in self._metas.values())
        whole = [group for group in spliced if group.first_row is None]
        if (
            not self._always
            and sum(group.rows for group in spliced) < sum(g.rows for g in whole) + _LEAST_SHARE * total
        ):
            spliced = whole
        if not self._always and sum(group.rows for group in spliced) < max(_LEAST_SHARE * total, OPENING):
            return []
        return spliced if self._have_their_ends(spliced) else []

    def _units(self) -> tuple[list[_Unit], int, int]:
        """Return the row groups of the files that may be spliced, or parts of them, and the other files.

        Returns:
            The units, and the smallest numbers of rows of spliced row groups and of merged rows between them.
        """
        stored = {meta.file_name: self._groups_of(meta) for meta in self._metas.values()}
        if not self._always and self._keys_are_spread(stored):
            return [], 0, 0
        counts = [count for of_file in stored.values() if of_file is not None for count in of_file[0].group_rows]
        largest, usual = max(counts, default=0), self._usual_rows([of[0] for of in stored.values() if of is not None])
        files = sum(of_file is not None for of_file in stored.values())
        is_fragmented = len(counts) > files + _MOST_GROUPS * sum(counts) / max(1, usual)
        least_part = max(1, usual // _PARTS)
        least = least_merged = min(LEAST_ROWS, largest // 2)
        described: list[_Description] = []
        rows: list[bytes] = []
        for meta in self._metas.values():
            of_file = stored[meta.file_name]
            parts = None if of_file is None else self._parts_of(meta, *of_file, None if is_fragmented else least_part)
            if parts is None:
                described.append((meta.file_name, None, None, meta.row_count, meta.file_size))
                rows += [meta.min_key, meta.max_key]
            else:
                described += parts[0]
                rows += parts[1]
        if is_fragmented or self._sizes:
            least = min(least, least_part)
        if self._sizes:
            least_merged = min(least_merged, least_part)
        scalars = _scalars(self._store, rows)
        units = [
            _Unit(*unit, scalars[2 * at], scalars[2 * at + 1], rows[2 * at], rows[2 * at + 1])
            for at, unit in enumerate(described)
        ]
        return units, least, least_merged

    def _keys_are_spread(self, stored: Mapping[str, tuple[StoredGroups, PageIndexes] | None]) -> bool:
        """Return whether one file alone has many keys in every row group, so that parts need not be looked at.

        Only the largest of the files that are not searched is read, and only if footers have the ends of row groups.

        Args:
            stored: row groups of the files by name; None for files that are not searched.
        """
        others = [meta for meta in self._metas.values() if stored[meta.file_name] is None]
        counts = [of_file[0].group_rows for of_file in stored.values() if of_file is not None]
        least = _SPREAD_KEYS * sum(map(len, counts))
        if not self._footers_have_ends or not counts or not others:
            return False
        largest = max(others, key=lambda meta: meta.row_count)
        if not least <= largest.row_count <= sum(map(sum, counts)):
            return False
        rows: list[bytes] = []
        for name, of_file in stored.items():
            if of_file is not None:
                groups = of_file[0].group_rows
                parts = [(number, 0, count) for number, count in enumerate(groups)]
                rows += self._key_ends(self._metas[name], parts, [None] * len(parts)) or []
        ends = _scalars(self._store, rows)
        inside = [0] * (len(ends) // 2)
        place = self._store, self._task.partition, self._task.bucket, largest
        batches = open_kv(*place, columns=(), need_sequence=False, need_kind=False)
        with closing(batches):  # type: ignore[type-var]
            for batch in batches:
                keys = self._spec.keys(batch)
                for at in range(len(inside)):
                    low, high = ends[2 * at : 2 * at + 2]
                    inside[at] += keys.bisect(high, right=True) - keys.bisect(low, right=False)
        return bool(inside) and min(inside) >= _SPREAD_KEYS

    def _parts_of(
        self, meta: DataFileMeta, groups: StoredGroups, indexes: PageIndexes, least: int | None
    ) -> tuple[list[_Description], list[bytes]] | None:
        """Return the row groups of a file, or parts of them, and the first and the last key of each as BinaryRows.

        Args:
            meta: manifest entry of the file.
            groups: row groups of the file.
            indexes: page indexes of the file.
            least: smallest number of rows of a part; None if row groups are not cut.

        Returns:
            None if the file is not searched: footers have the ends of such keys, but this one does not, or bounds of
            its columns are not those of their pages. A rewrite then stores the true ones.
        """
        self._group_rows[meta.file_name] = groups.group_rows
        described: list[_Description] = []
        stated: list[tuple[bytes, bytes] | None] = []
        parts: list[tuple[int, int, int]] = []
        for number, count in enumerate(groups.group_rows):
            try:
                pages = indexes.of(number)
            except CorruptFile:
                return None
            sizes = None if pages is None or least is None or count < 2 * least else pages.sizes()
            borders = [0, count]
            if sizes is not None and least and _MOST_DICTIONARIES * sizes.dictionaries <= groups.pages[number].size:
                borders = cut_evenly(sizes.borders, least)
            cuts = list(pairwise(borders))
            parts += [(number, first, stop) for first, stop in cuts]
            if pages is None or sizes is None or len(cuts) == 1:
                stated.append(None)
                described.append((meta.file_name, number, None, count, groups.pages[number].size))
                continue
            self._sizes[meta.file_name, number] = sizes
            stated += [self._key_of_pages(groups, pages, first, stop) for first, stop in cuts]
            described += [
                (meta.file_name, number, first, stop - first, sizes.between(first, stop)) for first, stop in cuts
            ]
        ends = self._key_ends(meta, parts, stated)
        return None if ends is None else (described, ends)

    def _usual_rows(self, files: Sequence[StoredGroups]) -> int:
        """Return as many rows as writers put into a row group, judged by stored ones and by the option of their size.

        At most four times the rows of the largest row group are returned, because wide values make row groups smaller.
        """
        counts = [count for groups in files for count in groups.group_rows]
        size = sum(span.size for groups in files for span in groups.pages)
        largest = max(counts, default=0)
        by_size = int(row_group_bytes(self._store, self._task.output_level) * sum(counts) / max(1, size))
        return max(largest, min(ROW_GROUP_ROWS, by_size, 4 * largest))

    def _groups_of(self, meta: DataFileMeta) -> tuple[StoredGroups, PageIndexes] | None:
        """Return the row groups of a file and their page indexes; None if they are not spliced."""
        if not self._spliceable.may_have_groups(meta.file_name):
            return None
        # The row group of a small file meets a key, else the file were kept; opening it costs more than it saves.
        least = ROW_GROUP_ROWS // _PARTS if meta.level == self._task.output_level else ROW_GROUP_ROWS
        if not self._always and meta.row_count <= least:
            return None
        groups = self._spliceable.groups(meta)
        return None if groups is None or not groups[0].group_rows or not all(groups[0].group_rows) else groups

    def _key_of_pages(
        self, groups: StoredGroups, pages: GroupPages, first: int, stop: int
    ) -> tuple[bytes, bytes] | None:
        """Return the smallest and the largest key of a part as its page index states them; None for decoded keys."""
        if not self._footers_have_ends:
            return None
        name = self._store.schema.trimmed_primary_keys[0]
        leaf = groups.footer.single(KEY_PREFIX + name)
        chunk = pages.chunks[groups.footer.singles[name] if leaf is None else leaf]
        return chunk.ends(*chunk.between(first, stop))

    def _key_ends(
        self,
        meta: DataFileMeta,
        parts: Sequence[tuple[int, int, int]],
        stated: Sequence[tuple[bytes, bytes] | None],
    ) -> list[bytes] | None:
        """Return the first and the last key of parts of row groups, as BinaryRows one after the other.

        Args:
            meta: manifest entry of the file.
            parts: parts in the order of the file, as (row group, first row, row after the last one).
            stated: smallest and largest key of each part as stored; None for whole row groups and for decoded keys.

        Returns:
            The keys, or None if footers have the ends of such keys, but that of the file does not.
        """
        schema = self._store.schema
        place = self._store, self._task.partition, self._task.bucket, meta
        with closing(open_source(*place)) as source:
            if not self._footers_have_ends:
                return self._decoded_ends(source, parts)
            bounds = source.group_bounds(self._stored_keys(source)[0])
        if bounds is None:
            return None
        lows, highs = (numpy_array(side.cast(pa.int64())) for side in bounds)
        ends: list[int] = []
        for (number, _, _), of_pages in zip(parts, stated, strict=True):
            if of_pages is None:
                ends += [int(lows[number]), int(highs[number])]
            else:
                ends += [int.from_bytes(value, "little", signed=True) for value in of_pages]
        kind = schema.arrow_schema.field(schema.trimmed_primary_keys[0]).type
        return self._encode([refit(arrow_array(ends, pa.int64()), kind)])

    @property
    def _footers_have_ends(self) -> bool:
        """Whether footers have the first and last keys of row groups: the key is one integer."""
        schema = self._store.schema
        keys = schema.trimmed_primary_keys
        kind = schema.arrow_schema.field(keys[0]).type
        return len(keys) == 1 and pa.types.is_integer(kind) and not schema.nullable_key

    def _stored_keys(self, source: FileSource) -> list[str]:
        """Return the columns of a file that have the keys."""
        stored, keys = set(source.schema.names), self._store.schema.trimmed_primary_keys
        return [KEY_PREFIX + name if KEY_PREFIX + name in stored else name for name in keys]

    def _decoded_ends(self, source: FileSource, parts: Sequence[tuple[int, int, int]]) -> list[bytes]:
        """Decode the first and the last key of parts of row groups, as BinaryRows one after the other.

        Args:
            source: the open file.
            parts: parts, as (row group, first row, row after the last one).
        """
        schema, names = self._store.schema, self._stored_keys(source)
        kinds = [schema.arrow_schema.field(name).type for name in schema.trimmed_primary_keys]
        ends: list[pa.Table] = []
        for number, of_group in groupby(parts, itemgetter(0)):
            rows = [row for _, first, stop in of_group for row in (first, stop - 1)]
            seen = 0
            for batch in source.batches(names, _BATCH_ROWS, [number]):
                inside = [row - seen for row in rows if 0 <= row - seen < batch.num_rows]
                ends.append(pa.Table.from_batches([batch.select(names)]).take(arrow_array(inside, pa.int64())))
                seen += batch.num_rows
        table = pa.concat_tables(ends)
        return self._encode(
            [refit(column.combine_chunks(), kind) for column, kind in zip(table.columns, kinds, strict=True)]
        )

    def _encode(self, columns: list[pa.Array]) -> list[bytes]:
        return [bytes(row.as_buffer()) for row in encode_rows(columns, self._store.schema.trimmed_key_types)]

    def _have_their_ends(self, groups: Sequence[SplicedGroup]) -> bool:
        """Return whether row groups begin and end with the keys that their footer states, if these were not decoded.

        A damaged or hostile footer with a smaller range would make two rows of one key.
        """
        if not self._footers_have_ends:
            return True
        by_file: dict[str, list[SplicedGroup]] = {}
        for group in groups:
            by_file.setdefault(group.file_name, []).append(group)
        for name, of_file in by_file.items():
            place = self._store, self._task.partition, self._task.bucket, self._metas[name]
            firsts = [group.first_row or 0 for group in of_file]
            parts = [(group.number, at, at + group.rows) for group, at in zip(of_file, firsts, strict=True)]
            with closing(open_source(*place)) as source:
                ends = self._decoded_ends(source, parts)
            if ends != [row for group in of_file for row in (group.low, group.high)]:
                return False
        return True

    def _read_keys(
        self,
        name: str,
        parts: Sequence[_Unit],
        ranges: tuple[Sequence[Any], Sequence[Any]],
        met: list[bool],
        between: list[int],
    ) -> None:
        """Read keys of a file, mark the candidates in whose key range it has one, and count the other rows.

        Args:
            name: name of the file.
            parts: row groups of the file to read, or parts of them; or one unit for all.
            ranges: smallest keys and largest keys of the candidates, ascending.
            met: marks of the candidates, which are changed.
            between: rows before each candidate, and after the last one, which are changed.
        """
        place = self._store, self._task.partition, self._task.bucket, self._metas[name]
        numbers = sorted({unit.number for unit in parts if unit.number is not None}) or None
        batches = open_kv(*place, columns=(), need_sequence=False, need_kind=False, row_groups=numbers)
        # Rows of a part: counted from the start of the first row group that is read.
        rows_before = self._rows_before(name, numbers or [])
        rows = [
            (at, at + unit.rows)
            for unit in sorted(parts, key=_low)
            for at in [rows_before.get(unit.number, 0) + (unit.first_row or 0)]
        ]
        with closing(batches):  # type: ignore[type-var]
            seen = 0
            for batch in batches:
                for first, stop in rows:
                    low, high = max(0, first - seen), min(batch.num_rows, stop - seen)
                    if low < high:
                        self._mark(batch.slice(low, high - low), ranges, met, between)
                seen += batch.num_rows
                if all(met):
                    return

    def _rows_before(self, name: str, numbers: Sequence[int]) -> dict[int | None, int]:
        """Return the number of rows before each row group of a file, if only some row groups are read."""
        before: dict[int | None, int] = {}
        seen = 0
        for number in numbers:
            before[number] = seen
            seen += self._group_rows[name][number]
        return before

    def _mark(
        self, batch: pa.RecordBatch, ranges: tuple[Sequence[Any], Sequence[Any]], met: list[bool], between: list[int]
    ) -> None:
        """Mark the candidates in whose key range a batch of ascending keys has one, and count the other rows."""
        starts, ends = ranges
        keys, row = self._spec.keys(batch), 0
        gap = bisect_left(ends, keys.scalar(0))
        while row < batch.num_rows:
            stop = batch.num_rows if gap == len(starts) else keys.bisect(starts[gap], right=False)
            between[gap] += stop - row
            row = stop
            if gap < len(starts):
                row = keys.bisect(ends[gap], right=True)
                if row > stop:
                    met[gap] = True
                    between[gap] += row - stop
                gap += 1


def _low(unit: _Unit) -> Any:
    return unit.low


__all__ = ["beside_spliced", "find_spliced"]
