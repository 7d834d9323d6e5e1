"""Read of files whose rows need no merging: value columns straight from the file reader."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

import pyarrow as pa

from lsm_core.files import open_append
from lsm_core.files.positions import Unwanted
from lsm_core.metadata.indexes import read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import Predicate
from lsm_core.read.prune.file_pruning import passing_rows
from lsm_core.read.row_size import repeating_texts
from lsm_core.read.splits import Split


def read_raw(
    store: TableStore,
    split: Split,
    *,
    columns: Sequence[str],
    predicate: Predicate | None = None,
    dictionaries: Sequence[str] = (),
) -> Generator[pa.RecordBatch, None, None]:
    """Yield value columns of the files of a raw split, one file after the other.

    A raw split has append files, or key-value files without deletes. Rows that a deletion vector marks are left out,
    and rows that an index of their file excludes under ``predicate``. Files without other rows are not opened.

    Args:
        store: the table.
        split: the split.
        columns: columns to return, in this order.
        predicate: filter for file indexes; rows are not filtered by it.
        dictionaries: text columns to return as Arrow dictionaries of int32 if their values repeat in a file.

    Raises:
        CorruptFile: a file is missing, damaged or differs from its manifest entry; the error names it.
    """
    for file, vector in zip(split.files, split.deletions, strict=True):
        passing = None if predicate is None else passing_rows(store, split.partition, split.bucket, file, predicate)
        if passing is not None and not passing.any():
            continue
        deleted = None if vector is None else read_vector(store, vector, file.row_count)
        unwanted = None if passing is None else Unwanted(~passing, deleted)
        place = split.partition, split.bucket
        coded = repeating_texts(store, *place, [file], dictionaries)
        rows = open_append(
            store,
            *place,
            file,
            columns=columns,
            deleted=unwanted or deleted,
            row_groups=None if unwanted is None else unwanted.groups_left,
            dictionaries=coded,
        )
        with closing(rows) as batches:  # type: ignore[type-var]
            yield from batches
