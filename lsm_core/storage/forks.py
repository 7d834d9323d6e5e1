"""Detection of forked processes, in which the threads of a storage library do not exist."""

from __future__ import annotations

import os

from lsm_core.errors import StorageRefused


class ForkGuard:
    """Memory of the process that used a library first.

    Args:
        library: name of the storage for messages, as in "an object store".
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self._processes: set[int] = set()

    def check(self, path: str) -> None:
        """Note that this process uses the library.

        Args:
            path: path of the file that is accessed, for the message.

        Raises:
            StorageRefused: this process was forked from one that used the library.
        """
        if os.getpid() in self._processes:
            return
        if self._processes:
            reason = f"this process was forked from one that used {self._library}, and connections do not survive that"
            raise StorageRefused(
                path, f"{reason}: start a new process (multiprocessing: 'spawn' or 'forkserver')", "reach"
            )
        self._processes.add(os.getpid())
