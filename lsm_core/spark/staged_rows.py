"""Rows of the tasks of one write on their way to the one writer that must see them all: files below the table that are gone after it.

A data source cannot ask Spark for a shuffle, and where keys move between partitions no task can tell by itself where a row goes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, DredgeError, SparkFailed
from lsm_core.metadata.store import TableStore

_KINDS: Final = "\0kinds"
_KINDS_FIELD: Final = pa.field(_KINDS, pa.int8())
_OPEN: Final = "open"
_DAY_MS: Final = 24 * 3_600_000


@dataclass(frozen=True)
class StagedRows:
    """The folder of one write, `<table>/dredge/staged/<id>`; sent to the tasks.

    It holds the file `open` as long as the write goes on: Spark ends a write that failed while tasks of it still run.
    """

    store: TableStore
    folder: str

    @classmethod
    def plan(cls, store: TableStore) -> StagedRows:
        """Make a folder that nobody else has. Those of writes whose driver died more than a day ago are removed.

        Raises StorageFull, OSError.
        """
        parent = f"{store.root}/dredge/staged"
        with suppress(OSError, DredgeError):
            for found in store.file_io.list_dir(parent):
                if found.is_dir and found.mtime_ms < store.clock.now_ms() - _DAY_MS:
                    store.file_io.delete_dir(found.path)
        folder = f"{parent}/{uuid.uuid4()}"
        store.file_io.write_exclusive(f"{folder}/{_OPEN}", b"")
        return cls(store, folder)

    def put(self, pieces: Iterable[tuple[pa.Table, pa.Array | None]]) -> str:
        """Write rows (the table's columns) and their kinds (int8; None: all inserts) and return the file's name.

        Nothing is left of a file that fails. Raises StorageFull, SparkFailed when the write has ended, and what ``pieces`` raises.
        """
        self._require_open()
        name = f"{uuid.uuid4()}.arrow"
        schema = self.store.schema.arrow_schema.append(_KINDS_FIELD)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            self.store.file_io.open_output(f"{self.folder}/{name}") as output,
            pa.ipc.new_stream(pa.PythonFile(output, "w"), schema, options=options) as writer,
        ):
            for rows, kinds in pieces:
                said = pa.nulls(rows.num_rows, pa.int8()) if kinds is None else kinds
                writer.write_table(rows.append_column(_KINDS_FIELD, said))
        self._require_open()
        return name

    def _require_open(self) -> None:
        if not self.store.file_io.exists(f"{self.folder}/{_OPEN}"):
            self.remove()
            raise SparkFailed(f"writing table {self.store.name}", "the write was ended while this task ran")

    def rows(self, names: Iterable[str]) -> Iterator[tuple[pa.Table, pa.Array | None]]:
        """What :meth:`put` wrote, file by file, a batch in memory at a time. Raises CorruptFile."""
        for name in names:
            path = f"{self.folder}/{name}"
            try:
                with self.store.file_io.open_input(path) as source, pa.ipc.open_stream(source) as reader:
                    for batch in reader:
                        kinds = batch.column(_KINDS)
                        rows = pa.Table.from_batches([batch.drop_columns([_KINDS])])
                        yield rows, None if kinds.null_count == len(kinds) else kinds
            except (FileNotFoundError, pa.ArrowException) as error:
                raise CorruptFile(path, f"staged rows of this write: {error}") from error

    def remove(self) -> None:
        """Delete the folder and all it holds, as far as possible."""
        with suppress(OSError, DredgeError):
            self.store.file_io.delete_dir(self.folder)


__all__ = ["StagedRows"]
