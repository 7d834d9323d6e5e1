"""Sorted runs that are spilled to the local disk while more inputs are merged than may be open at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa

from lsm_core.errors import CorruptFile, InvalidOption, StorageFull
from lsm_core.options import TableOptions
from lsm_core.storage import file_io

if TYPE_CHECKING:
    from lsm_core.storage.scratch import ScratchFolder

_PREFIX: Final = "dredge-spill-"
# LZO has no codec in Arrow; only Dredge reads spill files, so the most similar codec replaces it.
_CODECS: Final = {"zstd": "zstd", "lz4": "lz4", "lzo": "lz4", "none": None}


@dataclass(frozen=True)
class SpilledRun:
    """Sorted run on the local disk, as a compressed Arrow stream.

    Attributes:
        path: path of the file.
        rows: number of rows.
        size: bytes of the file.
    """

    path: str
    rows: int
    size: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches as they were written, one in memory at a time.

        Raises:
            CorruptFile: the file is missing or damaged, or has another number of rows than were spilled.
        """
        seen = 0
        try:
            # Not memory-mapped: mapped pages count as resident memory of the task.
            options = pa.ipc.IpcReadOptions(use_threads=False)
            with pa.OSFile(self.path, "rb") as source, pa.ipc.open_stream(source, options=options) as reader:
                for batch in reader:
                    seen += batch.num_rows
                    yield batch
        except FileNotFoundError as error:
            raise CorruptFile(self.path, "the spill file is missing") from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the disk, not of the file
            raise CorruptFile(self.path, f"unreadable spill file: {error}") from error
        if seen != self.rows:
            raise CorruptFile(self.path, f"gave {seen} rows, {self.rows} were spilled")

    def delete(self) -> None:
        """Delete the file now, before its :class:`SpillSpace` is closed."""
        if os.path.exists(self.path):
            os.remove(self.path)


class SpillSpace:
    """Private folder for spilled runs; leaving the ``with`` block always removes it.

    If the process crashes, the folder remains; the next :class:`SpillSpace` that spills removes it. A space that is not
    closed is removed when the last reference to it is deleted.
    """

    def __init__(self, parent: str | None = None, compression: str = "zstd", level: int = 1, table: str = "") -> None:
        """Prepare the space; the folder is created with the first run.

        Args:
            parent: folder of the space; None for the system's temporary folder.
            compression: zstd, lz4, lzo (lz4 is used) or none.
            level: compression level of zstd.
            table: name of the table, for errors.

        Raises:
            InvalidOption: the compression is not known.
        """
        codec = compression.strip().lower()
        if codec not in _CODECS:
            raise InvalidOption("spill-compression", compression, ", ".join(sorted(_CODECS)), table)
        name = _CODECS[codec]
        self._codec = None if name is None else pa.Codec(name, level if name == "zstd" else None)
        self._parent = parent
        self._folder: ScratchFolder | None = None
        self._count = 0

    @staticmethod
    def of(options: TableOptions) -> SpillSpace:
        """Return a space with the compression of a table's options.

        Raises:
            InvalidOption: the compression is not known.
        """
        level = int(options.get("spill-compression.zstd-level"))
        return SpillSpace(None, str(options.get("spill-compression")), level, options.table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and its files; a later spill creates a new folder."""
        if self._folder is not None:
            self._folder.remove()
        self._folder = None

    def spill(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SpilledRun:
        """Write ``batches`` (all of ``schema``) to a new file; a failed file is removed.

        Raises:
            StorageFull: the disk is full.
        """
        path = self._new_path()
        rows = 0
        options = pa.ipc.IpcWriteOptions(compression=self._codec, use_threads=False)
        try:
            with (
                file_io.step("spill", path),
                pa.OSFile(path, "wb") as sink,
                pa.ipc.new_stream(sink, schema, options=options) as writer,
            ):
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

    def _new_path(self) -> str:
        if self._folder is None:
            import tempfile  # imported here: most merges do not spill

            from lsm_core.storage.scratch import ScratchFolder

            try:
                self._folder = ScratchFolder(_PREFIX, self._parent)
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                    raise StorageFull(self._parent or tempfile.gettempdir()) from error
                raise
        self._count += 1
        return os.path.join(self._folder.path, f"run-{self._count - 1}.arrow")
