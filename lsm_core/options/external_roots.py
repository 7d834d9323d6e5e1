"""Folders outside the tables' own in which the operator allows data files (:data:`EXTERNAL_ROOTS`).

The list is text like ``/data/ext:rw,s3://bucket/import:r``. Only the environment and catalog options hold it, because
anyone who can write to a table's folder can set the table's options and the paths in its manifests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.options.operator import canonical_folder

EXTERNAL_ROOTS: Final = "DREDGE_EXTERNAL_ROOTS"
"""Environment variable with the folders outside the tables' own in which tables may have data files."""
EXTERNAL_ROOTS_OPTION: Final = "dredge.external-roots"
"""Catalog option with further folders, in the form of :data:`EXTERNAL_ROOTS`."""
_MODES: Final = {"r": False, "rw": True}
_ACCEPTED: Final = "folders separated by commas, each with ':r' (read) or ':rw' (read, write and delete)"
_MOST_TEXT: Final = 64 << 10


@dataclass(frozen=True)
class ExternalRoot:
    """Folder outside the tables' own in which the operator allows data files.

    Attributes:
        folder: absolute path, or address in an object store, without `.` and `..`.
        writable: whether files may be written and deleted too, not only read.
    """

    folder: str
    writable: bool

    def contains(self, path: str) -> bool:
        """Return whether a path is this folder or below it, judged by name only.

        Args:
            path: a normalised absolute path, or an address in an object store; ``%XX`` is no escape in it.
        """
        return path == self.folder or path.startswith(self.folder.rstrip("/") + "/")

    def __str__(self) -> str:
        return f"{self.folder}:{'rw' if self.writable else 'r'}"


@lru_cache(maxsize=64)
def parse_external_roots(text: str, source: str = EXTERNAL_ROOTS) -> tuple[ExternalRoot, ...]:
    """Parse a list of external roots.

    A folder without ``:r`` or ``:rw`` is readable only, so that every permission to delete is explicit.

    Args:
        text: the list; blank for none.
        source: the variable or option that holds the list, for the error.

    Returns:
        The roots in the order of the list.

    Raises:
        InvalidOption: a folder is relative, is the root of a disk, or has another mode.
    """
    if len(text) > _MOST_TEXT:
        raise InvalidOption(source, f"{len(text):,} characters", f"at most {_MOST_TEXT:,} characters")
    roots = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        head, sign, mode = part.rpartition(":")
        folder, mode = (head, mode.lower()) if sign and "/" not in mode else (part, "r")
        if mode not in _MODES:
            raise InvalidOption(source, part, _ACCEPTED)
        plain = folder.removeprefix("file://") if folder.startswith("file:///") else folder.removeprefix("file:")
        if not plain.startswith("/") and "://" not in plain:
            raise InvalidOption(source, part, f"{_ACCEPTED}; a local folder is an absolute path")
        if ".." in plain.split("/"):
            raise InvalidOption(source, part, f"{_ACCEPTED}, without '..'")
        canonical = canonical_folder(plain)
        if "://" in plain and "://" not in canonical:
            raise InvalidOption(source, part, f"{_ACCEPTED}; an address has a lower-case scheme and a bucket or host")
        if canonical == "/":
            raise InvalidOption(source, part, f"{_ACCEPTED}; not the whole disk")
        roots.append(ExternalRoot(canonical.rstrip("/"), _MODES[mode]))
    return tuple(roots)


def find_root(roots: Sequence[ExternalRoot], path: str) -> ExternalRoot | None:
    """Return the most specific root that contains a path, the first of equal ones, or None.

    Args:
        roots: the roots.
        path: an absolute path, or an address in an object store.
    """
    return max((root for root in roots if root.contains(path)), key=lambda root: len(root.folder), default=None)
