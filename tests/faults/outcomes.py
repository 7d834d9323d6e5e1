"""Outcomes of operations whose storage fails: the result for the caller, and the files on disk."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import InjectedFault


def outcome_of(operation: Callable[[], object]) -> str:
    """Return "succeeded", "failed" or "unknown"; an unexpected error is a bug and is raised."""
    try:
        operation()
    except CommitUnknown:
        return "unknown"
    except (InjectedFault, DredgeError):
        return "failed"
    return "succeeded"


class Copies:
    """Copies of a warehouse, one after the other, each for an operation that fails at a different step.

    Many failures leave the same files. The files alone determine the state of the table, so a known set of files is not
    checked again. A copy in which nothing changed is reused.
    """

    def __init__(self, original: Path, folder: Path) -> None:
        """Prepare copies of ``original``, each in a new folder below ``folder``."""
        self._original, self._folder = original, folder
        self._untouched = _files_below(original)
        self._seen: set[tuple[object, frozenset[tuple[str, int]]]] = set()
        self._copies = 0
        self._is_as_it_was = False

    @property
    def place(self) -> Path:
        """Folder of the newest copy."""
        return self._folder / f"copy{self._copies}"

    def fresh(self) -> Path:
        """Return the folder of a fresh copy; the previous copy is deleted, or reused if nothing in it changed."""
        if not self._is_as_it_was:
            if self._copies:
                shutil.rmtree(self.place)
            self._copies += 1
            shutil.copytree(self._original, self.place)
        self._is_as_it_was = False
        return self.place

    def is_new(self, told: object) -> bool:
        """Return whether no earlier copy had the same files (except the ledger) together with the outcome ``told``."""
        found = _files_below(self.place)
        state = told, frozenset(file for file in found if "/dredge/ledger" not in file[0])
        is_new = state not in self._seen
        self._seen.add(state)
        self._is_as_it_was = not is_new and found == self._untouched
        return is_new


def _files_below(folder: Path) -> frozenset[tuple[str, int]]:
    """Return the relative path and a checksum of every file."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return frozenset((str(path.relative_to(folder)), zlib.crc32(path.read_bytes())) for path in paths)
