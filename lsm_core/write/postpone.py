"""Rows of a table with postponed buckets (`bucket` = -2): stored as they arrive, until a compaction gives them buckets.

Source: Paimon `PostponeBucketFileStoreWrite`, `PostponeBucketWriter`.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.files import AppendFileWriter, KeyValueFileWriter
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.format.stats import key_stats
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.types import DataType, TypeRoot
from lsm_core.write.append import AppendBucket

_UNNUMBERED: Final = -1
"""Sequence number of every postponed row; the compaction assigns the real sequence numbers."""
_WRITER: Final = re.compile(r"-s-(\d+)-w-")
_COUNT: Final = re.compile(r"-(\d+)\.")
_AVRO_DIGITS: Final = {TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6, TypeRoot.TIME: 3}


def postponing(store: TableStore, commit_user: str | None, number: int | None = None) -> TableStore:
    """Return a copy of ``store`` for writing postponed rows: Avro files without statistics, with their own name prefix.

    If Avro cannot hold the type of any column, the files keep the table's own format and statistics.

    Args:
        store: the table.
        commit_user: user of the commit.
        number: number of this writer among the writers of one commit, used by :func:`in_order`; None for a random
            number.
    """
    number = random.randrange((1 << 31) - 1) if number is None else number  # noqa: S311
    prefix = f"{store.options.data_file_prefix}-u-{commit_user or uuid4()}-s-{number}-w-"
    chosen = {"data-file.prefix": prefix}
    if not any(_beyond_avro(field.type) for field in store.schema.fields):
        chosen |= {"file.format": "avro", "metadata.stats-mode": "none"}
    options = {**store.schema.options, **store.dynamic_options, **chosen}
    left_out = {"file.format.per.level", "metadata.stats-mode.per.level"} if "file.format" in chosen else set()
    kept = {
        key: value
        for key, value in options.items()
        if value is not None
        and key not in left_out
        and not ("file.format" in chosen and key.endswith(".stats-mode") and key.startswith("fields."))
    }
    schema = replace(store.schema, options=kept)
    store_of_writer = TableStore(
        store.file_io, store.root, store.name, schema, None, store.clock, store.branch, identity=store.identity
    )
    return store_of_writer.naming_files_as(store).in_catalog_of(store)


def _beyond_avro(kind: DataType) -> bool:
    inner = (kind.element, kind.key, kind.value, *(field.type for field in kind.fields))
    return (kind.precision or 0) > _AVRO_DIGITS.get(kind.root, 1 << 31) or any(
        _beyond_avro(inner_kind) for inner_kind in inner if inner_kind is not None
    )


class PostponeBucket(AppendBucket):
    """Postponed rows of one partition: every row is written to rolling files of level 0, in arrival order."""

    def __init__(self, store: TableStore, partition: bytes) -> None:
        """Open a writer for a partition; ``store`` is the result of :func:`postponing`."""
        super().__init__(store, partition, POSTPONE_BUCKET, POSTPONE_BUCKET)
        self._layout = kv_arrow_schema(store.schema)

    def add(self, rows: pa.Table, kinds: pa.Array | None = None) -> None:
        """Buffer rows (the table's columns); ``kinds`` is int8, or None for all inserts."""
        count = rows.num_rows
        keys = [rows.column(name) for name in self._store.schema.trimmed_primary_keys]
        numbers = pa.array(np.full(count, _UNNUMBERED, np.int64))
        kinds = pa.repeat(pa.scalar(0, pa.int8()), count) if kinds is None else kinds
        super().add(pa.table([*keys, numbers, kinds, *rows.columns], schema=self._layout))

    def _new_writer(self) -> AppendFileWriter | KeyValueFileWriter:
        place = self.partition, self.bucket, self.total_buckets
        return KeyValueFileWriter(self._store, *place, level=0, file_source=SOURCE_APPEND)

    def drain(self) -> CommitMessage:
        """Return a message with the files written since the last call, without key statistics."""
        unknown = key_stats({}, self._store.schema)
        self.files = [replace(file, key_stats=unknown) for file in self.files]
        return super().drain()


def in_order(files: list[DataFileMeta]) -> list[DataFileMeta]:
    """Return postponed files in the order in which a compaction reads them: by time, then writer, then write order."""

    def place(file: DataFileMeta) -> tuple[int, str, int, int]:
        writer = _WRITER.search(file.file_name)
        if writer is None:
            return file.creation_time_ms or 0, file.file_name, 0, 0
        count = _COUNT.search(file.file_name, writer.end() + 36)
        user = file.file_name[: writer.start()]
        return file.creation_time_ms or 0, user, int(writer[1]), int(count[1]) if count else 0

    return sorted(files, key=place)
