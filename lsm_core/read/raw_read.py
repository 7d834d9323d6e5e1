"""Files whose rows are the answer as they stand: value columns straight from the file reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from lsm_core.files import open_append
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.store import TableStore


def read_raw(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], *, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Value ``columns`` of ``files`` (append files, or key-value files without deletes), one file after the other.

    Raises :class:`CorruptFile` naming the file that is missing, damaged or not what its manifest entry says.
    """
    for file in files:
        with closing(open_append(store, partition, bucket, file, columns=columns)) as batches:
            yield from batches
