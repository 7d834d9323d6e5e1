"""What became of an operation whose storage fails: what its caller is told, and what lies on disk."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import InjectedFault


def outcome_of(operation: Callable[[], object]) -> str:
    """ "succeeded", "failed" or "unknown"; any other error is a bug, and raised."""
    try:
        operation()
    except CommitUnknown:
        return "unknown"
    except (InjectedFault, DredgeError):
        return "failed"
    return "succeeded"


class Copies:
    """Copies of a warehouse, one after the other, each for an operation that fails at another step.

    Most failures leave what others left; a failed read leaves everything as it was. Files are all that whoever opens the table next
    knows of it, so those that are known need no second look, and a copy in which nothing changed is used again.
    """

    def __init__(self, original: Path, folder: Path) -> None:
        """``folder`` is where copies are made, each in a folder of its own."""
        self._original, self._folder = original, folder
        self._untouched = _files_below(original)
        self._seen: set[tuple[object, frozenset[tuple[str, int]]]] = set()
        self._copies = 0
        self._is_as_it_was = False

    @property
    def place(self) -> Path:
        """Where the copy is that was made last."""
        return self._folder / f"copy{self._copies}"

    def fresh(self) -> Path:
        """Where the next copy is; the one before it is gone."""
        if not self._is_as_it_was:
            if self._copies:
                shutil.rmtree(self.place)
            self._copies += 1
            shutil.copytree(self._original, self.place)
        self._is_as_it_was = False
        return self.place

    def is_new(self, told: object) -> bool:
        """Whether no copy before had these files (the ledger aside) when its operation had told ``told``."""
        found = _files_below(self.place)
        state = told, frozenset(file for file in found if "/dredge/ledger" not in file[0])
        is_new = state not in self._seen
        self._seen.add(state)
        self._is_as_it_was = not is_new and found == self._untouched
        return is_new


def _files_below(folder: Path) -> frozenset[tuple[str, int]]:
    """Every file, and a checksum of its bytes."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return frozenset((str(path.relative_to(folder)), zlib.crc32(path.read_bytes())) for path in paths)
