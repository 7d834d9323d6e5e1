"""Copy limit, plain decode and plain encode, with the engine's own reader and writer settings but without a merge."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_core import Table
from lsm_core.files.formats import parquet as settings
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.storage import LocalFileIO


def files_by_bucket(table: Table) -> dict[int, tuple[str, list[DataFileMeta]]]:
    """Return the directory and the files of each bucket in the newest snapshot."""
    store = table.store
    newest = snapshots.latest(store)
    assert newest is not None
    buckets: dict[int, tuple[str, list[DataFileMeta]]] = {}
    for entry in table_to_entries(manifests.live_entries(store, newest)):
        buckets.setdefault(entry.bucket, (store.bucket_dir(entry.partition, entry.bucket), []))[1].append(entry.file)
    return buckets


def decode_files(directory: str, files: list[DataFileMeta]) -> pa.Table:
    """Decode every column of every file on the calling thread, with the reader settings of the engine."""
    tables = []
    for file in files:
        with pa.OSFile(f"{directory}/{file.file_name}") as source:
            opened = pq.ParquetFile(source, buffer_size=settings.BUFFER_SIZE, pre_buffer=False)
            batches = opened.iter_batches(batch_size=settings.ROW_GROUP_ROWS, use_threads=False)
            tables.append(pa.Table.from_batches(list(batches), schema=opened.schema_arrow))
    return pa.concat_tables(tables)


def encode_file(rows: pa.Table, path: str) -> None:
    """Encode rows like the key-value writer, but without Dredge's statistics, and delete the file."""
    sample = rows.slice(0, settings.ROW_GROUP_ROWS)
    delta = [name for name in ("_SEQUENCE_NUMBER", "_KEY_id", "id") if name in rows.column_names]
    sink = settings.ParquetSink(
        LocalFileIO(), path, sample, codec="zstd", level=1, dictionary=["_VALUE_KIND"], delta=delta
    )
    for start in range(0, rows.num_rows, settings.ROW_GROUP_ROWS):
        sink.write(rows.slice(start, settings.ROW_GROUP_ROWS))
    sink.close()
    LocalFileIO().delete(path)
