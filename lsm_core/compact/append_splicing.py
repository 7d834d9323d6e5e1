"""Choice of the row groups that a compaction of small append files copies as they are, and the rest of the files.

Row groups of at least a quarter of a full row group are copied, and smaller ones are decoded and joined. Joined rows
that are too few for a row group take a neighbouring row group with them, so no file ends up with many small row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.compact.exact_keys import NEVER
from lsm_core.compact.splice import SplicedGroup, choose_groups, writes_alike
from lsm_core.compact.task import BucketTask
from lsm_core.compact.task_vectors import TaskVectors
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.files.formats import format_of
from lsm_core.files.formats.parquet import EXTENSION, ROW_GROUP_ROWS
from lsm_core.files.index_writer import indexed_columns
from lsm_core.files.row_groups import StoredGroups, can_join, open_groups
from lsm_core.files.splicing import StoredGroup, encoded_groups
from lsm_core.format.manifest import DataFileMeta
from lsm_core.metadata.manifests import tracks_rows
from lsm_core.metadata.store import TableStore

LEAST_ROWS: Final = ROW_GROUP_ROWS // 4
"""Smallest number of rows of a copied row group, and of the rows that are joined between two copied row groups."""
_LEAST_SHARE: Final = 0.25
"""Smallest share of a bin's rows for which row groups are copied."""
_NO_KEYS: Final = pa.RecordBatch.from_struct_array(arrow_array([{}, {}], pa.struct([])))


@dataclass(frozen=True)
class AppendPart:
    """Consecutive rows of a bin: one row group to copy, or row groups of one file to decode.

    Attributes:
        file: the file.
        spliced: the row group to copy, or None.
        stored: the same row group as the writer copies it, or None.
        row_groups: row groups to decode; None for the whole file.
    """

    file: DataFileMeta
    spliced: SplicedGroup | None = None
    stored: StoredGroup | None = None
    row_groups: tuple[int, ...] | None = None

    def batches(self, store: TableStore, task: BucketTask, marks: TaskVectors) -> Iterator[pa.RecordBatch]:
        """Yield the decoded rows, without deleted ones."""
        place = store, task.partition, task.bucket, self.file
        deleted = marks.vector(self.file)
        rows = open_append(*place, deleted=deleted, row_groups=self.row_groups)
        with closing(rows):  # type: ignore[type-var]
            yield from rows


def append_parts(
    store: TableStore, task: BucketTask, files: Sequence[DataFileMeta], marks: TaskVectors
) -> list[AppendPart]:
    """Divide the rows of a bin into row groups to copy and rows to decode, in order.

    Args:
        store: the table.
        task: the task.
        files: files of the bin.
        marks: deletion vectors of the task's files.

    Returns:
        The parts; whole files to decode if copying saves too little, or if the table or the files do not allow it.

    Raises:
        CorruptFile: a file is missing or damaged; the error names it.
    """
    whole = [AppendPart(file) for file in files]
    if (
        store.options.exact_keys == NEVER
        or format_of(store.options, 0) != EXTENSION
        or tracks_rows(store)
        or indexed_columns(store.schema, store.options)
        or max(file.row_count for file in files) < LEAST_ROWS
    ):
        return whole
    open_part, schema = AppendFileWriter.part_opener(store)
    _, expected, _ = encoded_groups(open_part, "(new file)", schema.empty_table())
    codecs = AppendFileWriter.codecs(store)

    def groups_of(file: DataFileMeta) -> StoredGroups | None:
        """Return the row groups of a file, or None if it must be decoded."""
        if (
            file.row_count < LEAST_ROWS
            or not writes_alike(store.schema_of(file.schema_id), store.schema)
            or file.write_cols is not None
            or marks.vector(file) is not None
            or file.file_name.rpartition(".")[2] != EXTENSION
        ):
            return None
        path = store.data_path(task.partition, task.bucket, file)
        groups = open_groups(store.file_io, path, size=file.file_size)
        if not can_join(expected, groups) or sum(groups.group_rows) != file.row_count:
            return None
        encoded_alike = all(
            chunk.codec in codecs(leaf.path)
            for group in groups.footer.groups
            for leaf, chunk in zip(groups.footer.leaves, group.chunks, strict=True)
        )
        return groups if encoded_alike else None

    stored = [groups_of(file) for file in files]
    candidates = [
        (at, number, rows)
        for at, groups in enumerate(stored)
        if groups
        for number, rows in enumerate(groups.group_rows)
    ]
    between = [0]
    for file, groups in zip(files, stored, strict=True):
        if groups is None:
            between[-1] += file.row_count
        else:
            between += [0] * len(groups.group_rows)
    counts = [rows for _, _, rows in candidates]
    chosen = {
        candidates[at][:2] for at in choose_groups(counts, [False] * len(counts), between, LEAST_ROWS, LEAST_ROWS)
    }
    copied = sum(rows for at, number, rows in candidates if (at, number) in chosen)
    if copied < _LEAST_SHARE * sum(file.row_count for file in files):
        return whole
    return [
        part
        for at, (file, groups) in enumerate(zip(files, stored, strict=True))
        for part in _parts_of(file, groups, [number for place, number in chosen if place == at])
    ]


def _parts_of(file: DataFileMeta, groups: StoredGroups | None, copied: Sequence[int]) -> Iterator[AppendPart]:
    """Yield the parts of one file, of which some row groups are copied."""
    if groups is None or not copied:
        yield AppendPart(file)
        return
    decoded: list[int] = []
    for number, rows in enumerate(groups.group_rows):
        if number not in copied:
            decoded.append(number)
            continue
        if decoded:
            yield AppendPart(file, row_groups=tuple(decoded))
            decoded = []
        size = groups.pages[number].size
        spliced = SplicedGroup(file.file_name, number, rows, size, b"", b"")
        yield AppendPart(file, spliced, StoredGroup(groups, number, _NO_KEYS, size))
    if decoded:
        yield AppendPart(file, row_groups=tuple(decoded))


__all__ = ["LEAST_ROWS", "AppendPart", "append_parts"]
