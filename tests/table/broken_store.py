"""FileIO that fails every call from a point on, for tests of the errors that users see."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final

from lsm_core.storage.file_io import Guarantee
from lsm_core.storage.local_file_io import LocalFileIO

WRITES: Final = frozenset({"open_output", "write_exclusive", "overwrite", "delete", "mkdirs", "rename", "delete_dir"})
CALLS: Final = WRITES | {"read_bytes", "open_input", "exists", "size", "list_dir"}
FAULTS: Final[dict[str, Callable[[str], BaseException]]] = {
    "store down": lambda path: OSError(errno.EIO, "the store does not answer", path),
    "store half-way": lambda path: OSError(errno.EIO, "the store does not answer", path),
    "no memory": lambda path: MemoryError(),
    "no permission": lambda path: PermissionError(errno.EACCES, os.strerror(errno.EACCES), path),
    "read-only": lambda path: OSError(errno.EROFS, os.strerror(errno.EROFS), path),
}


class BrokenStore:
    """A local FileIO that works until :meth:`fail` is called.

    Attributes:
        refused: number of calls that failed.
    """

    def __init__(self) -> None:
        self.inner, self.fault, self.calls_left, self.refused = LocalFileIO(), "", 0, 0
        self.only: frozenset[str] = CALLS

    @property
    def guarantee(self) -> Guarantee:
        """See FileIO."""
        return self.inner.guarantee

    def fail(self, fault: str) -> None:
        """Fail all later calls; "store half-way" fails after three calls, and "read-only" fails only changes."""
        self.fault, self.refused = fault, 0
        self.calls_left = 3 if fault == "store half-way" else 0
        self.only = WRITES if fault == "read-only" else CALLS

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in CALLS:
            return method

        def call(path: str, *args: Any, **kwargs: Any) -> Any:
            if self.fault and name in self.only:
                self.calls_left -= 1
                if self.calls_left < 0:
                    self.refused += 1
                    raise FAULTS[self.fault](path)
            return method(path, *args, **kwargs)

        return call
