"""Conversion of errors of Arrow's readers and writers to Dredge's errors, and checks of files and values.

The errors name the file.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import numpy_array
from lsm_core.errors import CorruptFile, OutOfMemory, StorageFull
from lsm_core.storage import FileIO

_REQUESTED_SIZE: Final = re.compile(r"size (-?\d+)")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class decoding_errors:  # noqa: N801 - reads as a statement where it is used
    """Context that converts decoding errors and missing files to :class:`CorruptFile`.

    A real lack of memory becomes :class:`OutOfMemory`. Real I/O errors are not changed.
    """

    def __init__(self, path: str, kind: str) -> None:
        self._path, self._kind = path, kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise CorruptFile(self._path, "the file is missing") from error
        if isinstance(error, MemoryError) and not _exceeds_memory(error):
            raise OutOfMemory(f"reading {self._path}", str(error)) from error
        if isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and error.errno is None):
            raise CorruptFile(self._path, f"not a readable {self._kind} file: {error}") from error
        # Errors of Arrow's decoders for forged lengths, counts and text.
        if isinstance(error, MemoryError | OverflowError | UnicodeDecodeError):
            raise CorruptFile(self._path, f"not a readable {self._kind} file: {error!r}") from error


def _exceeds_memory(error: MemoryError) -> bool:
    """Return whether more memory was requested than this machine has, which only a forged length causes."""
    request = _REQUESTED_SIZE.search(str(error))
    if request is None:
        return False
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(request[1]) < 0 or int(request[1]) > memory


@contextmanager
def open_checked(file_io: FileIO, path: str, kind: str, size: int | None) -> Iterator[Any]:
    """Open a file for a ``with`` block that reads its metadata; convert the block's errors (:class:`decoding_errors`).

    Args:
        file_io: file system of the file.
        path: path of the file.
        kind: name of the format, for errors.
        size: expected bytes; None if unknown.

    Yields:
        The open file. It is closed after an error; otherwise the caller must close it.
    """
    with decoding_errors(path, kind):
        source: Any = file_io.open_input(path)
    try:
        with decoding_errors(path, kind):
            check_size(path, source.size(), size)
            yield source
    except BaseException:
        quietly_close(source)
        raise


@contextmanager
def create_output(file_io: FileIO, path: str) -> Iterator[Any]:
    """Open a new file for a ``with`` block that creates a writer for it; if the block fails, the file is removed.

    Args:
        file_io: file system of the file.
        path: path of the file, which must not exist.

    Yields:
        The open output stream. If the block succeeds, the stream stays open, and the writer closes it.
    """
    output: Any = file_io.open_output(path)
    try:
        yield output
    except BaseException:
        quietly_abort(output)
        raise


class disk_full_errors:  # noqa: N801 - reads as a statement where it is used
    """Context that converts ENOSPC and EDQUOT (disk or quota full) of Arrow's streams to :class:`StorageFull`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise StorageFull(self._path) from error


class TailOutput:
    """Output stream between an Arrow writer and a file: forwards bytes until :meth:`hold`, and buffers later bytes.

    The buffer contains the end of a file, which is rewritten before it is stored. It may also contain bytes that a
    writer writes after its file was removed, because ORC's C++ writer ends the process if its last write fails.
    """

    def __init__(self, output: Any) -> None:
        self._output = output
        self._tail: io.BytesIO | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        """Write ``data`` to the file, or to the buffer after :meth:`hold`; return the number of bytes."""
        return int((self._output if self._tail is None else self._tail).write(data))

    def hold(self) -> None:
        """Buffer all later bytes in memory instead of forwarding them to the file."""
        self._tail = self._tail or io.BytesIO()

    def tail(self) -> bytes:
        """Return the bytes written since :meth:`hold`."""
        return b"" if self._tail is None else self._tail.getvalue()

    def tell(self) -> int:
        """Return the number of bytes written so far, forwarded and buffered."""
        return int(self._output.tell()) + len(self.tail())

    def flush(self) -> None:
        """Do nothing: the owner of the file flushes the file."""

    def close(self) -> None:
        """Mark the output closed; the file's owner closes the file."""
        self.closed = True


def quietly_close(resource: Any) -> None:
    """Close a resource that may already have failed, and ignore errors."""
    try:
        resource.close()
    except (OSError, ValueError, RuntimeError, pa.ArrowException):
        return


def quietly_abort(output: Any) -> None:
    """Remove an unfinished file after a failure; a file that cannot be removed remains as an orphan."""
    with suppress(OSError, ValueError):
        output.abort()


def check_values(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return ``batch`` if its values are valid for their types (text, times, decimals).

    Arrow's readers return bytes that are not UTF-8 as text.

    Raises:
        CorruptFile: a value is not valid.
    """
    try:
        for column in batch.columns:
            if pa.types.is_dictionary(column.type):
                codes = numpy_array(column.indices.drop_null()).view(np.uint32)
                column = column.dictionary
                if len(codes) and int(codes.max()) >= len(column):  # Arrow's decoder does not check it
                    raise CorruptFile(path, f"refers to value {codes.max()} of a dictionary of {len(column)}")
            if not _is_ascii(column):
                column.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptFile(path, f"holds a broken value: {error}") from error
    return batch


def _is_ascii(column: pa.Array) -> bool:
    """Return whether the column is text of one-byte characters only.

    This check is ten times faster than a check of each text.
    """
    if not pa.types.is_string(column.type) or len(column) == 0:
        return False
    _, offsets, data = column.buffers()
    if offsets is None or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.int8)[ends[0] : ends[-1]]
    return len(text) == 0 or bool(text.min() >= 0)


def check_size(path: str, actual: int, expected: int | None) -> None:
    """Check the size of a file against its manifest entry.

    Args:
        path: path of the file.
        actual: bytes of the file.
        expected: bytes in the manifest entry; None if unknown.

    Raises:
        CorruptFile: the sizes differ.
    """
    if expected is not None and actual != expected:
        raise CorruptFile(path, f"has {actual} bytes, its manifest entry says {expected}")


def check_rows(path: str, actual: int, expected: int | None) -> None:
    """Check the rows of a file against its manifest entry.

    Args:
        path: path of the file.
        actual: rows of the file.
        expected: rows in the manifest entry; None if unknown.

    Raises:
        CorruptFile: the numbers differ.
    """
    if expected is not None and actual != expected:
        raise CorruptFile(path, f"holds {actual} rows, its manifest entry says {expected}")
