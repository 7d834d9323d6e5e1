"""FileIO that records each access outside of the table's folder, by name or through a link."""

from __future__ import annotations

import os
from typing import Any

from lsm_core.storage import LocalFileIO


class GuardedFileIO(LocalFileIO):
    """LocalFileIO whose ``escapes`` lists every (step, path) outside of ``root``, except paths in ``allowed``."""

    def __init__(self, root: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.root, self.allowed, self.escapes = os.path.realpath(root), allowed, list[tuple[str, str]]()

    def _seen(self, step: str, path: str) -> None:
        try:
            real = os.path.realpath(path)
        except ValueError:  # a NUL byte: the system would refuse it, but nothing should have asked
            real = path
        if path not in self.allowed and real != self.root and not real.startswith(self.root + "/"):
            self.escapes.append((step, path))

    def read_bytes(self, path: str) -> bytes:
        self._seen("read", path)
        return super().read_bytes(path)

    def open_input(self, path: str) -> Any:
        self._seen("open", path)
        return super().open_input(path)

    def open_output(self, path: str) -> Any:
        self._seen("create", path)
        return super().open_output(path)

    def write_exclusive(self, path: str, data: bytes) -> bool:
        self._seen("write_exclusive", path)
        return super().write_exclusive(path, data)

    def overwrite(self, path: str, data: bytes, durable: bool = True) -> None:
        self._seen("overwrite", path)
        super().overwrite(path, data, durable)

    def exists(self, path: str) -> bool:
        self._seen("exists", path)
        return super().exists(path)

    def size(self, path: str) -> int:
        self._seen("size", path)
        return super().size(path)

    def delete(self, path: str) -> bool:
        self._seen("delete", path)
        return super().delete(path)

    def list_dir(self, path: str) -> Any:
        self._seen("list", path)
        return super().list_dir(path)

    def mkdirs(self, path: str) -> None:
        self._seen("mkdirs", path)
        super().mkdirs(path)

    def rename(self, src: str, dst: str) -> bool:
        self._seen("rename", src)
        self._seen("rename", dst)
        return super().rename(src, dst)

    def delete_dir(self, path: str) -> bool:
        self._seen("delete_dir", path)
        return super().delete_dir(path)

    def delete_empty_dir(self, path: str) -> bool:
        self._seen("delete_empty_dir", path)
        return super().delete_empty_dir(path)
