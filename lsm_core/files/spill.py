"""Sorted runs parked on the local disk while more inputs are merged than may be open at once."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from lsm_core.errors import CorruptFile, StorageFull


@dataclass(frozen=True)
class SpilledRun:
    """One run on disk: ``rows`` rows in ``size`` bytes at ``path`` (Arrow stream, zstd)."""

    path: str
    rows: int
    size: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches as they were written, one in memory at a time. Raises :class:`CorruptFile`."""
        seen = 0
        try:
            # Not memory-mapped: mapped pages count as resident memory of the task.
            with pa.OSFile(self.path, "rb") as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    seen += batch.num_rows
                    yield batch
        except FileNotFoundError as error:
            raise CorruptFile(self.path, "the spill file is missing") from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's own failure, not the file's
            raise CorruptFile(self.path, f"unreadable spill file: {error}") from error
        if seen != self.rows:
            raise CorruptFile(self.path, f"gave {seen} rows, {self.rows} were spilled")

    def delete(self) -> None:
        """Free the disk space now rather than when the space closes."""
        if os.path.exists(self.path):
            os.remove(self.path)


class SpillSpace:
    """A private folder for spilled runs; leaving the ``with`` block removes it whatever happened.

    ``parent`` None means the system's temporary folder. Nothing here is table data: a crash leaves only a temporary folder.
    """

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._folder: str | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and everything in it."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def spill(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SpilledRun:
        """Write ``batches`` (all of ``schema``) to a new file. Raises :class:`StorageFull`; a failed file is removed."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="dredge-spill-", dir=self._parent)
        path = os.path.join(self._folder, f"run-{self._count}.arrow")
        self._count += 1
        rows = 0
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
        try:
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema, options=options) as writer:
                for batch in batches:
                    rows += batch.num_rows
                    writer.write_batch(batch)
        except BaseException as error:
            if os.path.exists(path):
                os.remove(path)
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise StorageFull(path) from error
            raise
        return SpilledRun(path, rows, os.path.getsize(path))


__all__ = ["SpillSpace", "SpilledRun"]
