"""Rewrite of neighbouring row ids of a data-evolution table: the columns of all files become one file.

Row ids are kept. Deleted rows are kept too, and their deletion vectors are moved to the new file. Files of BLOB values
are not rewritten.

Source: ``DataEvolutionNormalCompactTask``, ``DataEvolutionCompactDeletionVectorRewriter`` of Paimon 2.0.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.compact.rewrite import RewriteResult
from lsm_core.compact.row_digests import OutputDigest
from lsm_core.compact.task import BucketTask
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.errors import CorruptFile, UnsupportedFeature, VerificationFailed
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.files.formats import FileSource
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.merge.digest import digest
from lsm_core.metadata.store import TableStore
from lsm_core.read.evolution import group_files, read_evolved, row_range, without_blobs

_SAMPLED_IDS: Final = 128
"""Row ids of an output that are looked up a second time."""


def join_columns(store: TableStore, task: BucketTask, names: tuple[str, ...]) -> RewriteResult:
    """Write the rows of neighbouring groups of files as one file with the same row ids; on failure no file is left.

    Args:
        store: the table.
        task: the task.
        names: files of the groups.

    Raises:
        CorruptFile: an input is missing or damaged, or the row ids of the files have a gap.
        UnsupportedFeature: the rows do not fit into one file of the table's format.
    """
    by_name = {file.file_name: file for file in task.files}
    files = tuple(by_name[name] for name in names)
    start, end = _require_adjacent(store, task, files)
    stored = without_blobs(store)
    writer = AppendFileWriter(
        stored, task.partition, task.bucket, task.total_buckets, file_source=SOURCE_COMPACT, rolls=False
    )
    digests = OutputDigest(stored, task, 0)
    try:
        rows = read_evolved(store, (task.partition, task.bucket), files, {}, stored.schema.field_names)
        with closing(rows) as batches:
            for batch in batches:
                digests.add(batch)
                writer.write(batch)
                digests.written(writer.group_rows)
        after = writer.close()
        digests.finish(writer.group_rows)
        if len(after) != 1:
            feature = f"one file of format '{store.options.file_format}' for rows that this format cannot store"
            raise UnsupportedFeature(f"{feature}: set 'file.format' = 'parquet'", store.name)
    except BaseException:
        writer.abort()
        raise
    output = replace(
        after[0],
        first_row_id=start,
        min_sequence_number=min(file.min_sequence_number for file in files),
        max_sequence_number=max(file.max_sequence_number for file in files),
        write_cols=None if stored is store else tuple(stored.schema.field_names),
    )
    return RewriteResult(files, (output,), digests.content, {}, digests=digests, row_ids=end - start)


def move_vectors(part: RewriteResult, vectors: TaskVectors) -> dict[str, DeletionVector]:
    """Return the deletion vector of a rewrite's output by its file name; empty if no row is deleted.

    Args:
        part: the rewrite.
        vectors: deletion vectors of the input files.
    """
    (output,) = part.after
    assert output.first_row_id is not None
    moved = []
    for file in part.before:
        vector = vectors.vector(file)
        if vector is not None and file.first_row_id is not None:
            moved.append(DeletionVector.of(vector.positions() + (file.first_row_id - output.first_row_id)))
    joined = DeletionVector.union(moved)
    return {output.file_name: joined} if joined.cardinality else {}


def check_samples(store: TableStore, task: BucketTask, part: RewriteResult) -> int:
    """Compare rows of the output with the input files, whose columns are looked up again, oldest file first (V2).

    Two windows of row ids are compared, which differ from task to task. Only the row groups with these ids are read.

    Args:
        store: the table.
        task: the task.
        part: the rewrite.

    Returns:
        Number of compared row ids.

    Raises:
        VerificationFailed: a value of the output is not the newest value of its row id.
        CorruptFile: a file cannot be read.
    """
    (output,) = part.after
    assert output.first_row_id is not None
    seed = zlib.crc32(b"%b/%d/%d" % (task.partition, task.base_snapshot or 0, output.first_row_id))
    ids = _sample_ids(output.first_row_id, output.row_count, seed)
    names = without_blobs(store).schema.field_names
    pools: dict[str, list[pa.Array]] = {name: [] for name in names}
    places = {name: np.full(len(ids), -1, np.int64) for name in names}
    for file in sorted(part.before, key=lambda file: file.max_sequence_number):
        assert file.first_row_id is not None
        inside = np.flatnonzero((ids >= file.first_row_id) & (ids < file.first_row_id + file.row_count))
        stored = store.schema_of(file.schema_id).fields
        stored_ids = {field.id for field in stored if file.write_cols is None or field.name in file.write_cols}
        held = [name for name in names if store.schema.field(name).id in stored_ids]
        if not len(inside) or not held:
            continue
        values = _values_at(store, task, file, held, ids[inside] - file.first_row_id)
        for name in held:
            places[name][inside] = sum(map(len, pools[name])) + np.arange(len(inside))
            pools[name].append(values.column(name).combine_chunks())
    expected = {"id": pa.array(ids)}
    for name in names:
        kind = store.schema.arrow_schema.field(name).type
        pool = pa.concat_arrays([part.cast(kind) for part in pools[name]]) if pools[name] else pa.nulls(0, kind)
        expected[name] = pool.take(pa.array(places[name], mask=places[name] < 0))
    written = _values_at(store, task, output, names, ids - output.first_row_id)
    actual = {"id": pa.array(ids), **{name: written.column(name).combine_chunks() for name in names}}
    for name in names:
        columns = [(0, "id"), (store.schema.field(name).id + 1, name)]
        sides = [pa.RecordBatch.from_pydict({"id": side["id"], name: side[name]}) for side in (expected, actual)]
        if digest(sides[0], columns) != digest(sides[1], columns):
            reason = f"column '{name}' of {output.file_name} has other values than the newest of its input files"
            raise VerificationFailed("V2", [reason])
    return len(ids)


def _sample_ids(first: int, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the row ids of two windows, ascending: one at a place that ``seed`` decides, one at the end."""
    size = min(count, _SAMPLED_IDS // 2)
    start = seed % (count - size + 1)
    return first + np.union1d(np.arange(start, start + size), np.arange(count - size, count)).astype(np.int64)


def _values_at(
    store: TableStore, task: BucketTask, file: DataFileMeta, names: Sequence[str], positions: npt.NDArray[np.int64]
) -> pa.Table:
    """Return the rows of a file at ascending positions; only their row groups are read."""
    starts: list[npt.NDArray[np.int64]] = []

    def choose(source: FileSource) -> list[int]:
        begins = np.r_[0, np.cumsum(source.group_rows)].astype(np.int64)
        groups = np.unique(np.searchsorted(begins, positions, "right") - 1)
        starts.extend(np.arange(begins[group], begins[group + 1]) for group in groups)
        return [int(group) for group in groups]

    parts: list[pa.RecordBatch] = []
    at = 0
    rows = open_append(store, task.partition, task.bucket, file, columns=names, row_groups=choose)
    with closing(rows) as batches:  # type: ignore[type-var]
        for batch in batches:
            read = np.concatenate(starts)[at : at + batch.num_rows]
            at += batch.num_rows
            parts.append(batch.filter(pa.array(np.isin(read, positions))))
    return pa.Table.from_batches(parts)


def _require_adjacent(store: TableStore, task: BucketTask, files: tuple[DataFileMeta, ...]) -> tuple[int, int]:
    """Return the first row id of the files, and the row id after their last row; raise CorruptFile for a gap."""
    bucket_dir = store.bucket_dir(task.partition, task.bucket)
    ranges = [row_range(group[0], bucket_dir) for group in group_files(files, bucket_dir)]
    for (_, end), (start, _) in pairwise(ranges):
        if start != end:
            raise CorruptFile(bucket_dir, f"files to join have no rows with the ids {end} to {start - 1}")
    return ranges[0][0], ranges[-1][1]
