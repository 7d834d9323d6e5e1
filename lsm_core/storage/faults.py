"""A FileIO with injected faults: tests count the I/O steps of an operation, then let each step fail in turn."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import pyarrow as pa

from lsm_core.storage.file_io import Buffer, Deleted, FileIO, FileStatus, Guarantee, OutputFile, WriteOnly

Mode = Literal["before", "after"]
T = TypeVar("T")


class InjectedFault(OSError):
    """Failure that a test requested."""

    def __init__(self, step: int, name: str, path: str, mode: Mode = "before") -> None:
        super().__init__(errno.EIO, f"injected fault {mode} step {step} ({name})", path)
        self._made_with = (step, name, path, mode)

    def __reduce__(self) -> tuple[type[InjectedFault], tuple[int, str, str, Mode]]:
        return InjectedFault, self._made_with


class FaultyFileIO:
    """Wrapper of a FileIO that counts its I/O steps and makes one of them fail.

    A cleanup after the failure succeeds, because only one step fails, unless ``fail_after`` is set.

    Attributes:
        inner: the FileIO that does the work.
        fail_at: number of the failing step (the first is 1), or None to only count.
        mode: "before" fails without applying the step; "after" applies it and then reports a failure.
        fail_after: whether every later step fails too, as after the loss of a disk.
        steps: number of steps so far.
        log: name and path of each step.
    """

    def __init__(
        self, inner: FileIO, fail_at: int | None = None, mode: Mode = "before", fail_after: bool = False
    ) -> None:
        self.inner, self.fail_at, self.mode, self.fail_after = inner, fail_at, mode, fail_after
        self.steps = 0
        self.log: list[tuple[str, str]] = []

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the inner FileIO."""
        return self.inner.guarantee

    def run(self, name: str, path: str, action: Callable[[], T]) -> T:
        """Execute one step, or let it fail.

        Args:
            name: name of the step, for the log.
            path: path that the step reads or changes.
            action: the step itself.

        Returns:
            The result of ``action``.

        Raises:
            InjectedFault: this step must fail.
        """
        self.steps += 1
        self.log.append((name, path))
        must_fail = self.fail_at is not None and (
            self.steps == self.fail_at or (self.fail_after and self.steps > self.fail_at)
        )
        if must_fail and self.mode == "before":
            raise InjectedFault(self.steps, name, path, "before")
        result = action()
        if must_fail:
            raise InjectedFault(self.steps, name, path, "after")
        return result

    def read_bytes(self, path: str) -> bytes:
        """Return the whole file; counts as the step ``read``."""
        return self.run("read", path, lambda: self.inner.read_bytes(path))

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access; counts as the step ``open``."""
        return self.run("open", path, lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> FaultyOutputFile:
        """Create a new file; counts as the step ``create``. Writes and the close of the file are further steps."""
        opened: list[OutputFile] = []
        try:
            self.run("create", path, lambda: opened.append(self.inner.open_output(path)))
        except InjectedFault:
            for file in opened:  # as after a lost reply: the file remains, but the caller has no handle
                file.close()
            raise
        return FaultyOutputFile(self, opened[0], path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        """Create a file and return whether it was created; counts as the step ``write_exclusive``."""
        return self.run("write_exclusive", path, lambda: self.inner.write_exclusive(path, data))

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace a file; counts as the step ``overwrite``."""
        self.run("overwrite", path, lambda: self.inner.overwrite(path, data, durable))

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists; counts as the step ``exists``."""
        return self.run("exists", path, lambda: self.inner.exists(path))

    def size(self, path: str) -> int:
        """Return the size in bytes; counts as the step ``size``."""
        return self.run("size", path, lambda: self.inner.size(path))

    def delete(self, path: str) -> bool:
        """Remove a file and return whether it existed; counts as the step ``delete``."""
        return self.run("delete", path, lambda: self.inner.delete(path))

    def list_dir(self, path: str) -> list[FileStatus]:
        """Return the entries of a directory; counts as the step ``list``."""
        return self.run("list", path, lambda: self.inner.list_dir(path))

    def mkdirs(self, path: str) -> None:
        """Create a directory and its parents; counts as the step ``mkdirs``."""
        self.run("mkdirs", path, lambda: self.inner.mkdirs(path))

    def rename(self, src: str, dst: str) -> bool:
        """Move a file or directory and return whether it was moved; counts as the step ``rename``."""
        return self.run("rename", dst, lambda: self.inner.rename(src, dst))

    def delete_dir(self, path: str) -> bool:
        """Remove a directory and return whether it existed; counts as the step ``delete_dir``."""
        return self.run("delete_dir", path, lambda: self.inner.delete_dir(path))

    def delete_empty_dir(self, path: str) -> bool:
        """Remove an empty directory and return whether it was removed; counts as the step ``delete_empty_dir``."""
        return self.run("delete_empty_dir", path, lambda: self.inner.delete_empty_dir(path))


class FaultyStore(FaultyFileIO):
    """A FaultyFileIO for a store that deletes many files with one request.

    A request that deletes many files is one step; its failure is reported for each file.

    Attributes:
        inner: the FileIO that does the work, which must have `delete_many`.
    """

    inner: Any

    def delete_many(self, paths: Sequence[str]) -> Iterator[Deleted]:
        """Yield the outcome of each deletion; an injected fault is the outcome of every file."""
        try:
            yield from self.run("delete_many", paths[0] if paths else "", lambda: list(self.inner.delete_many(paths)))
        except InjectedFault as fault:
            yield from [fault] * len(paths)


class FaultyOutputFile(WriteOnly):
    """Output file that counts writes and its close as steps; aborting never fails, because it follows a failure."""

    def __init__(self, owner: FaultyFileIO, inner: OutputFile, path: str) -> None:
        self._owner, self._inner, self.path = owner, inner, path

    @property
    def closed(self) -> bool:
        """Whether the inner file no longer accepts data."""
        return self._inner.closed

    def write(self, data: Buffer) -> int:
        """Append ``data`` and return its length in bytes; counts as the step ``write``."""
        return self._owner.run("write", self.path, lambda: self._inner.write(data))

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._inner.tell()

    def flush(self) -> None:
        """Pass all data to the operating system."""
        self._inner.flush()

    def close(self) -> None:
        """Complete the file; counts as the step ``close`` unless the file is already closed."""
        if not self._inner.closed:
            self._owner.run("close", self.path, self._inner.close)

    def abort(self) -> None:
        """Close and remove the file."""
        self._inner.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.close()
        except BaseException:
            self.abort()
            raise
