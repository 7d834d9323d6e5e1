"""Files whose rows are the answer as they stand: value columns straight from the file reader."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

import pyarrow as pa

from lsm_core.files import open_append
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.metadata.store import TableStore


def read_raw(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], *, columns: Sequence[str]
) -> Generator[pa.RecordBatch, None, None]:
    """Value ``columns`` of ``files`` (append files, or key-value files without deletes), one file after the other.

    Raises :class:`CorruptFile` naming the file that is missing, damaged or not what its manifest entry says.
    """
    for file in files:
        with closing(open_append(store, partition, bucket, file, columns=columns)) as batches:  # type: ignore[type-var]
            yield from batches
