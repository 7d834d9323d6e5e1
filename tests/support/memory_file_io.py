"""FileIO in memory with its own clock, for thousands of table layouts a minute, and with wrong listings on request."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyarrow as pa

from lsm_core.storage import FileStatus, Guarantee


class MemoryFileIO:
    """FileIO over a dict.

    Attributes:
        now_ms: current time of the storage, epoch ms.
        files: content and modification time by path.
        folders: children by folder, each with whether it is a folder.
        before: called with step and path before every read and listing.
        lie: returns the listing to show, given the path and the true listing.
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.files: dict[str, tuple[bytes, int]] = {}
        self.folders: dict[str, dict[str, bool]] = {}
        self.before: Callable[[str, str], None] = lambda _step, _path: None
        self.lie: Callable[[str, list[FileStatus]], list[FileStatus]] = lambda _path, truth: truth

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXCLUSIVE_CREATE

    def put(self, path: str, data: bytes, mtime_ms: int | None = None) -> None:
        self.files[path] = (data, self.now_ms if mtime_ms is None else mtime_ms)
        child, is_dir = path, False
        while child != "/":
            parent, name = posixpath.split(child)
            known = self.folders.setdefault(parent, {})
            if name in known and is_dir:
                return
            known[name] = is_dir
            child, is_dir = parent, True

    def read_bytes(self, path: str) -> bytes:
        self.before("read", path)
        try:
            return self.files[path][0]
        except KeyError:
            raise FileNotFoundError(path) from None

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read_bytes(path))

    def open_output(self, path: str) -> MemoryOutput:
        if path in self.files:
            raise FileExistsError(path)
        return MemoryOutput(self, path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        if path in self.files:
            return False
        self.put(path, data)
        return True

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        self.put(path, data)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def size(self, path: str) -> int:
        return len(self.read_bytes(path))

    def delete(self, path: str) -> bool:
        if self.files.pop(path, None) is None:
            return False
        parent, name = posixpath.split(path)
        del self.folders[parent][name]
        return True

    def list_dir(self, path: str) -> list[FileStatus]:
        self.before("list", path)
        found = []
        for name, is_dir in sorted(self.folders.get(path, {}).items()):
            full = f"{path}/{name}"
            data, mtime = (b"", self.now_ms) if is_dir else self.files[full]
            found.append(FileStatus(full, name, len(data), mtime, is_dir))
        return self.lie(path, found)

    def mkdirs(self, path: str) -> None:
        self.folders.setdefault(path, {})

    def rename(self, src: str, dst: str) -> bool:
        raise NotImplementedError

    def delete_dir(self, path: str) -> bool:
        raise NotImplementedError

    def delete_empty_dir(self, path: str) -> bool:
        return path not in self.files and not self.folders.get(path) and self.folders.pop(path, None) is not None


class MemoryOutput:
    """Output of a new file, which exists only after it is closed."""

    def __init__(self, owner: MemoryFileIO, path: str) -> None:
        self.owner, self.path, self.data, self.closed = owner, path, bytearray(), False

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def tell(self) -> int:
        return len(self.data)

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.owner.put(self.path, bytes(self.data))

    def abort(self) -> None:
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.abort()
