"""Key-exact units: files of a rewrite in whose key range no other file has a key are kept, not rewritten.

Sections are cut by the smallest and largest keys of files, so one row with a small key and one with a large key join
every file between them. Here the keys of the files that reach over others are read, key columns only, and files
without a key of others stay as they are, or are moved to the output level. The rest is rewritten in key ranges between
the kept files, so no output reaches over one of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.compact.task import BucketTask
from lsm_core.files import open_kv
from lsm_core.format.binary_row import decode_rows, encode_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.merge import KeySpec, key_bytes, normalise_keys
from lsm_core.merge.key_ranges import rows_by_range
from lsm_core.metadata.store import TableStore
from lsm_core.read.merge_read import Shapes
from lsm_core.tree import DataFile, TaskPlan

OPENING: Final = 8_000
"""Cost of opening one file for one more key range, in rows that are compacted in the same time."""
_MOST_RANGES: Final = 64
"""Largest number of key ranges between kept files; more would cost more than they save."""
_Scalars = tuple[list[int | bytes], list[int | bytes]]
NEVER: Final = "never"
ALWAYS: Final = "always"


@dataclass(frozen=True)
class UntouchedFiles:
    """Files that a task keeps, and the keys between which it rewrites the others.

    Attributes:
        names: names of the kept files.
        cuts: first keys of the key ranges after the first one, as ascending BinaryRows; no range reaches over a kept
            file.
    """

    names: tuple[str, ...] = ()
    cuts: tuple[bytes, ...] = ()


def find_untouched(store: TableStore, task: BucketTask, plan: TaskPlan, shapes: Shapes) -> UntouchedFiles:
    """Find the files of a plan's rewrites that have no key in common with the key range of any other file.

    Only the key columns of files that reach over such candidates are decoded, and at most as many rows as the
    candidates have. A search ends as soon as every candidate has met a key.

    Args:
        store: the table.
        task: the task.
        plan: the plan of the task, without kept files.
        shapes: cache of the key ranges of files.

    Returns:
        The files and the cuts; nothing if keeping them saves less than more key ranges cost.

    Raises:
        CorruptFile: a file is missing or damaged; the error names it.
    """
    if task.is_append or task.by_file or store.options.exact_keys == NEVER:
        return UntouchedFiles()
    metas = {file.file_name: file for file in task.files}
    always = store.options.exact_keys == ALWAYS
    small_below = 0 if always else store.options.compaction_file_size(has_primary_key=True)
    keepable = {file.name for file in plan.keepable}
    searches = [
        _Search(store, task, [metas[file.name] for run in runs for file in run.files], shapes).run(
            keepable, small_below, least_rows=0 if always else OPENING
        )
        for runs in plan.rewrites
        if len(runs) > 1
    ]
    names = tuple(name for part in searches for name in part.names)
    cuts = [cut for part in searches for cut in part.cuts]
    return UntouchedFiles(names, tuple(sort_keys(store, cuts))) if names else UntouchedFiles()


def sort_keys(store: TableStore, keys: Sequence[bytes]) -> list[bytes]:
    """Return distinct BinaryRows of the trimmed primary key in key order."""
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return distinct
    columns = decode_rows(arrow_array(distinct, pa.binary()), store.schema.trimmed_key_types, "(key range)")
    order = np.argsort(numpy_array(key_bytes(columns)))
    return [distinct[place] for place in order]


@dataclass(frozen=True)
class _Key:
    """A key in the forms that are needed.

    Attributes:
        comparable: order-preserving bytes.
        row: BinaryRow.
    """

    comparable: bytes
    row: bytes


class _Search:
    """Search for untouched files among the files of one rewrite."""

    def __init__(self, store: TableStore, task: BucketTask, files: Sequence[DataFileMeta], shapes: Shapes) -> None:
        self._store, self._task = store, task
        self._metas = {file.file_name: file for file in files}
        self._files = shapes.of(files)
        self._spec = KeySpec.of(store.schema, table=store.name)

    def run(self, keepable: set[str], small_below: int, least_rows: int) -> UntouchedFiles:
        """Return the untouched files among ``keepable``, and the cuts between them.

        Args:
            keepable: names of files that may stay as they are.
            small_below: size below which a file is small (bytes): it stays only between large files that stay.
            least_rows: rows that one more key range must save per file that it opens again.
        """
        candidates = self._candidates(keepable)
        reaching = [file for file in self._files if _reaches_over(file, candidates)]
        cost = sum(file.row_count + least_rows for file in reaching)
        if not candidates or (least_rows and cost > sum(file.row_count for file in candidates)):
            return UntouchedFiles()
        gaps: list[_Key | None] = [None] * (len(candidates) + 1)
        touched = [False] * len(candidates)
        scalars = self._scalars(candidates)
        for file in sorted(reaching, key=lambda file: file.row_count):
            self._read_keys(file, scalars, touched, gaps)
            if all(touched):
                return UntouchedFiles()
        names = {file.name for file in (*candidates, *reaching)}
        lows = [file.min_key for file in candidates]
        for file in self._files:  # a file that reaches over none lies in one gap
            if file.name not in names:
                place = bisect_left(lows, file.min_key)
                gaps[place] = _smaller(gaps[place], self._min_key(file))
        self._give_up_small(candidates, touched, gaps, small_below)
        return self._choose(candidates, touched, gaps, least_rows * len(reaching))

    def _candidates(self, keepable: set[str]) -> list[DataFile]:
        """Return the files that every overlapping file reaches over, in key order.

        The smallest and the largest key of a file are keys of rows, so any other overlap is a meeting of keys: one end
        of the other file lies in the file's key range.
        """
        lows, highs = sorted(file.min_key for file in self._files), sorted(file.max_key for file in self._files)

        def is_alone(file: DataFile) -> bool:
            return all(
                bisect_right(ends, file.max_key) - bisect_left(ends, file.min_key) == 1 for ends in (lows, highs)
            )

        return sorted((f for f in self._files if f.name in keepable and is_alone(f)), key=lambda f: f.min_key)

    def _read_keys(self, file: DataFile, scalars: _Scalars, touched: list[bool], gaps: list[_Key | None]) -> None:
        """Mark the candidates in whose key range the file has a key, and record its smallest key of each gap.

        Args:
            file: a file that reaches over candidates.
            scalars: smallest keys and largest keys of the candidates.
            touched: marks of the candidates, which are changed.
            gaps: smallest key before each candidate and after the last one, which are changed.
        """
        lows, highs = scalars
        batches = open_kv(
            self._store,
            self._task.partition,
            self._task.bucket,
            self._metas[file.name],
            columns=(),
            need_sequence=False,
            need_kind=False,
        )
        with closing(batches):  # type: ignore[type-var]
            for batch in batches:
                if not batch.num_rows:
                    continue
                for rows in rows_by_range(self._spec.keys(batch), lows, highs):
                    if rows.gap < rows.start:
                        gaps[rows.number] = _smaller(gaps[rows.number], self._key_at(batch, rows.gap))
                    if rows.start < rows.stop:
                        touched[rows.number] = True
                if all(touched):
                    return

    @staticmethod
    def _give_up_small(
        candidates: Sequence[DataFile], touched: list[bool], gaps: Sequence[_Key | None], small_below: int
    ) -> None:
        """Mark small files as touched that have a neighbour to be merged with: keys of others, or a small file."""
        large = [file.size >= small_below for file in candidates]
        stays = [is_large and not is_touched for is_large, is_touched in zip(large, touched, strict=True)]
        for at in range(len(candidates)):
            neighbours = stays[max(0, at - 1) : at] + stays[at + 1 : at + 2]
            alone = gaps[at] is None and gaps[at + 1] is None and all(neighbours)
            touched[at] = touched[at] or not (large[at] or alone)

    def _choose(
        self, candidates: Sequence[DataFile], touched: Sequence[bool], gaps: Sequence[_Key | None], least_rows: int
    ) -> UntouchedFiles:
        """Return the files to keep, grouped between keys of others, and the cuts after them.

        Args:
            candidates: files in key order.
            touched: whether each candidate meets a key of another file.
            gaps: smallest key of the other files before each candidate, and after the last one.
            least_rows: number of rows below which a group of files is not worth another key range.
        """
        groups: list[tuple[list[DataFile], _Key | None]] = []  # files without a key between them, first key before them
        before = gaps[0]
        for file, is_touched, after in zip(candidates, touched, gaps[1:], strict=True):
            if is_touched:
                before = _smaller(_smaller(before, self._min_key(file)), after)
                continue
            if before is None and groups:
                groups[-1][0].append(file)
            else:
                groups.append(([file], before))
            before = after
        last = before
        kept_rows = [sum(file.row_count for file in files) for files, _ in groups]
        largest = sorted(range(len(groups)), key=lambda at: -kept_rows[at])[: _MOST_RANGES - 1]
        kept = {at for at in largest if kept_rows[at] >= least_rows}
        names: list[str] = []
        cuts: list[bytes] = []
        first: _Key | None = None
        has_keys = False
        for at, (files, key) in enumerate(groups):
            first = _smaller(first, key)
            if at not in kept:
                first = _smaller(first, self._min_key(files[0]))
                continue
            if first is not None:
                cuts += [first.row] if has_keys else []
                has_keys = True
            names += [file.name for file in files]
            first = None
        first = _smaller(first, last)
        if first is not None and has_keys:
            cuts.append(first.row)
        return UntouchedFiles(tuple(names), tuple(cuts))

    def _scalars(self, files: Sequence[DataFile]) -> _Scalars:
        """Return the smallest keys and the largest keys of files, in the form that compares with keys of rows."""
        metas = [self._metas[file.name] for file in files]
        rows = arrow_array([key for meta in metas for key in (meta.min_key, meta.max_key)], pa.binary())
        columns = decode_rows(rows, self._store.schema.trimmed_key_types, "(keys of files)")
        keys = normalise_keys(columns, nullable=self._store.schema.nullable_key)
        scalars = [keys.scalar(at) for at in range(len(rows))]
        return scalars[::2], scalars[1::2]

    def _key_at(self, batch: pa.RecordBatch, row: int) -> _Key:
        columns: list[pa.Array[Any]] = [
            batch.column(name).slice(row, 1) for name in self._spec.key_fields(batch.schema)
        ]
        encoded = encode_rows(columns, self._store.schema.trimmed_key_types)
        return _Key(numpy_array(key_bytes(columns))[0], numpy_array(encoded)[0])

    def _min_key(self, file: DataFile) -> _Key:
        return _Key(file.min_key, self._metas[file.name].min_key)


def _reaches_over(file: DataFile, candidates: Sequence[DataFile]) -> bool:
    place = bisect_right(candidates, file.min_key, key=lambda other: other.min_key)
    return place < len(candidates) and bool(candidates[place].max_key < file.max_key)


def _smaller(a: _Key | None, b: _Key | None) -> _Key | None:
    if a is None or b is None:
        return a or b
    return a if a.comparable <= b.comparable else b


__all__ = ["ALWAYS", "NEVER", "OPENING", "UntouchedFiles", "find_untouched", "sort_keys"]
