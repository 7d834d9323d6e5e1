"""What the engine asks of a place that keeps files; everything above talks only to this protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import pyarrow as pa

Buffer = bytes | bytearray | memoryview


class Guarantee(StrEnum):
    """What makes `FileIO.write_exclusive` atomic among processes: snapshots are published with it."""

    EXCLUSIVE_CREATE = "exclusive-create"
    """A link or a creation that the file system refuses where the name is taken."""
    CONDITIONAL_PUT = "conditional-put"
    """A request that the object store refuses where the name is taken (S3: If-None-Match)."""
    NONE = "none"
    """Nothing: it looks, then writes, and two processes may both believe that they were first. Commits need a lock."""


@dataclass(frozen=True)
class FileStatus:
    """One directory entry; ``size`` in bytes, ``mtime_ms`` in epoch ms. Symbolic links are never followed."""

    path: str
    name: str
    size: int
    mtime_ms: int
    is_dir: bool


@runtime_checkable
class OutputFile(Protocol):
    """A new file being written, usable as the sink of Arrow's and Parquet's writers.

    Leaving its ``with`` block by an exception removes the file; so does ``abort``. Raises StorageFull when there is no room.
    """

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        ...

    def write(self, data: Buffer) -> int:
        """Append ``data`` and return its length in bytes."""
        ...

    def tell(self) -> int:
        """Return the bytes written so far."""
        ...

    def flush(self) -> None:
        """Hand everything to the operating system."""
        ...

    def close(self) -> None:
        """Finish the file; only now may its name be published."""
        ...

    def abort(self) -> None:
        """Give up: close and remove the file. Does nothing after ``close``."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Deleted = bool | OSError
"""What became of a file that was to be deleted: True, False where it was not there, or why it stayed."""


def delete_files(file_io: FileIO, paths: Sequence[str]) -> Iterator[Deleted]:
    """Delete files and tell what became of each, in order; where a store takes many with one request they are deleted together.

    Raises what is no OSError (a StorageRefused): then files after it stay.
    """
    if isinstance(file_io, DeletesMany):
        yield from file_io.delete_many(paths)
        return
    for path in paths:
        try:
            yield file_io.delete(path)
        except OSError as error:
            yield error


@runtime_checkable
class DeletesMany(Protocol):
    """A FileIO of a store that deletes many files with one request."""

    def delete_many(self, paths: Sequence[str]) -> Iterator[Deleted]:
        """Delete files; see :func:`delete_files`."""
        ...


@runtime_checkable
class FileIO(Protocol):
    """Files by absolute path. A missing file raises FileNotFoundError, a full disk StorageFull; implementations pickle."""

    @property
    def guarantee(self) -> Guarantee:
        """What `write_exclusive` is atomic by."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole file."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Open for random access; never memory-mapped, because mapped pages count as memory in use."""
        ...

    def open_output(self, path: str) -> OutputFile:
        """Create a new file (and its parents); FileExistsError instead of overwriting, raised here or before it is closed."""
        ...

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Create ``path`` with ``data`` whole and durable, or return False when it exists. Atomic among processes by `guarantee`.

        When it raises, the file may or may not be there: the outcome is unknown.
        """
        ...

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace ``path`` by ``data``; readers see the old or the new content, never a part.

        Not ``durable``: after a crash of the machine the file may be empty, which is for hints that nobody trusts.
        """
        ...

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory is there."""
        ...

    def size(self, path: str) -> int:
        """Return the length in bytes."""
        ...

    def delete(self, path: str) -> bool:
        """Remove one file; False when it was not there."""
        ...

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the entries by name; an absent directory has none."""
        ...

    def mkdirs(self, path: str) -> None:
        """Create a directory and its parents."""
        ...

    def rename(self, src: str, dst: str) -> bool:
        """Move a file or directory; False when ``src`` is absent or ``dst`` exists."""
        ...

    def delete_dir(self, path: str) -> bool:
        """Remove a directory with all it holds; False when it was not there."""
        ...
