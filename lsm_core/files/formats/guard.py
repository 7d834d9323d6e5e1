"""Failures of Arrow's readers and writers as Dredge's own errors, with the file's name in them."""

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

_SIZE_ASKED: Final = re.compile(r"size (-?\d+)")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class named:  # noqa: N801 - reads as a statement where it is used
    """Turns decoding failures and missing files into :class:`CorruptFile`; true I/O errors pass as they are."""

    def __init__(self, path: str, kind: str) -> None:
        self._path, self._kind = path, kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise CorruptFile(self._path, "the file is missing") from error
        if isinstance(error, MemoryError) and not _beyond_any_file(error):
            raise OutOfMemory(f"reading {self._path}", str(error)) from error
        if isinstance(error, pa.ArrowException) or (isinstance(error, OSError) and error.errno is None):
            raise CorruptFile(self._path, f"not a readable {self._kind} file: {error}") from error
        # What Arrow's decoders say of forged lengths, counts and text.
        if isinstance(error, MemoryError | OverflowError | UnicodeDecodeError):
            raise CorruptFile(self._path, f"not a readable {self._kind} file: {error!r}") from error


def _beyond_any_file(error: MemoryError) -> bool:
    """Whether more was asked for than this machine has: only a forged length does that, not a lack of free memory."""
    asked = _SIZE_ASKED.search(str(error))
    if asked is None:
        return False
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(asked[1]) < 0 or int(asked[1]) > memory


@contextmanager
def opening(file_io: FileIO, path: str, kind: str, size: int | None) -> Iterator[Any]:
    """An input over a file of ``size`` bytes (None: unknown), for a block that reads what it needs to know of the file.

    The block's failures are named as by :class:`named`; after one the input is closed, otherwise it is the caller's.
    """
    with named(path, kind):
        source: Any = file_io.open_input(path)
    try:
        with named(path, kind):
            check_size(path, source.size(), size)
            yield source
    except BaseException:
        quietly_close(source)
        raise


@contextmanager
def creating(file_io: FileIO, path: str) -> Iterator[Any]:
    """An output to a new file, for a block that makes its writer; after a failure of the block there is no file."""
    output: Any = file_io.open_output(path)
    try:
        yield output
    except BaseException:
        quietly_abort(output)
        raise


class disk_full_named:  # noqa: N801 - reads as a statement where it is used
    """Turns ENOSPC of Arrow's own streams into the typed error."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise StorageFull(self._path) from error


class TailOutput:
    """Stands between Arrow's writers and a file: passes bytes on until :meth:`hold`, and keeps those that come later.

    What is held is the end of a file that is rewritten before it is stored, or what a writer still has to say after its file
    is gone: ORC's C++ writer ends the process when its last write fails.
    """

    def __init__(self, output: Any) -> None:
        self._output = output
        self._tail: io.BytesIO | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        """Pass on or keep ``data``."""
        return int((self._output if self._tail is None else self._tail).write(data))

    def hold(self) -> None:
        """Pass nothing on from now on."""
        self._tail = self._tail or io.BytesIO()

    def tail(self) -> bytes:
        """The bytes written since :meth:`hold`."""
        return b"" if self._tail is None else self._tail.getvalue()

    def tell(self) -> int:
        """Bytes passed on and kept."""
        return int(self._output.tell()) + len(self.tail())

    def flush(self) -> None:
        """Nothing to do: the file's owner closes it."""

    def close(self) -> None:
        """The file's owner closes it."""
        self.closed = True


def quietly_close(thing: Any) -> None:
    """Close what may be broken already."""
    try:
        thing.close()
    except (OSError, ValueError, RuntimeError, pa.ArrowException):
        return


def quietly_abort(output: Any) -> None:
    """Remove an unfinished file that may be broken already; one that cannot be removed stays as an orphan."""
    with suppress(OSError, ValueError):
        output.abort()


def checked(batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """``batch`` when its values are what their types allow (text, times, decimals); raises :class:`CorruptFile`.

    Arrow's readers hand out bytes that are no UTF-8 as text.
    """
    try:
        for column in batch.columns:
            if pa.types.is_dictionary(column.type):
                codes = numpy_array(column.indices.drop_null()).view(np.uint32)
                column = column.dictionary
                if len(codes) and int(codes.max()) >= len(column):  # Arrow's decoder passes them on
                    raise CorruptFile(path, f"refers to value {codes.max()} of a dictionary of {len(column)}")
            if not _is_ascii(column):
                column.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptFile(path, f"holds a broken value: {error}") from error
    return batch


def _is_ascii(column: pa.Array) -> bool:
    """Whether the column is text of one-byte characters only: seen at once, where checking each text takes ten times as long."""
    if not pa.types.is_string(column.type) or len(column) == 0:
        return False
    _, offsets, data = column.buffers()
    if offsets is None or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.int8)[ends[0] : ends[-1]]
    return len(text) == 0 or bool(text.min() >= 0)


def check_size(path: str, found: int, expected: int | None) -> None:
    """Raise :class:`CorruptFile` unless the file has the bytes that its manifest entry tells."""
    if expected is not None and found != expected:
        raise CorruptFile(path, f"has {found} bytes, its manifest entry says {expected}")


def check_rows(path: str, found: int, expected: int | None) -> None:
    """Raise :class:`CorruptFile` unless the file holds the rows that its manifest entry tells."""
    if expected is not None and found != expected:
        raise CorruptFile(path, f"holds {found} rows, its manifest entry says {expected}")


__all__ = ["TailOutput", "check_rows", "check_size", "checked", "disk_full_named", "named", "quietly_close"]
