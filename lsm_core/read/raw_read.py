"""Files whose rows are the answer as they stand: value columns straight from the file reader."""

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
    """Value ``columns`` of the files of a raw split (append files, or key-value files without deletes), one after the other.

    Text columns among ``dictionaries`` that repeat in a file come as Arrow dictionaries of int32. Rows that a deletion vector marks do not
    come, nor those of which an index of their file proves that ``predicate`` is not true; files without other rows are not opened.
    Raises :class:`CorruptFile` naming the file that is missing, damaged or not what its manifest entry says.
    """
    for file, gone in zip(split.files, split.deletions, strict=True):
        passing = None if predicate is None else passing_rows(store, split.partition, split.bucket, file, predicate)
        if passing is not None and not passing.any():
            continue
        deleted = None if gone is None else read_vector(store, gone, file.row_count)
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
