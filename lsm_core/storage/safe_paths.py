"""Guards for names that come out of untrusted metadata: nothing may reach outside the table it belongs to."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any

from lsm_core.errors import CorruptFile, InvalidData

# A percent sign is refused too: some stores decode %2e%2e into "..", and no file name that Paimon makes holds one.
# Half a character (a lone surrogate) has no bytes of its own, so no store can hold such a name as it is.
_BAD = re.compile("[\x00-\x1f\x7f/\\\\%\ud800-\udfff]")
_LONGEST = 255
_PLACE = re.compile(r"[a-z][a-z0-9+.-]*://[^/]+(?=/|$)")


class PathBelow(str):
    """A path that must be reached from ``root`` without a symbolic link when its file is deleted.

    It is a string like any other for whoever passes it on. `LocalFileIO` opens the folders below ``root`` one after the other
    and deletes by handle, so a link that is put in the way meanwhile removes nothing elsewhere.

    Attributes:
        root: folder that the path lies in.
    """

    __slots__ = ("root",)
    root: str

    @classmethod
    def of(cls, root: str, path: str) -> str:
        """Return ``path`` as a path below ``root``; unchanged where it does not lie there or is in an object store."""
        if place_of(path) or not path.startswith(root.rstrip("/") + "/"):
            return path
        made = cls(path)
        made.root = root.rstrip("/")
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return PathBelow.of, (self.root, str(self))


def place_of(path: str) -> str:
    """The store that the address of a file names, as ``s3://bucket``; "" for a path of this machine."""
    found = _PLACE.match(path)
    return found.group() if found else ""


def check_name(name: str, table: str = "", what: str = "file name") -> str:
    """Return ``name`` when it is one plain path component. Raises InvalidData naming it."""
    if not isinstance(name, str) or not name or name in (".", "..") or _BAD.search(name):
        raise InvalidData(table, "", f"{what} {name!r} is not a plain name")
    if len(name.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise InvalidData(table, "", f"{what} {name[:40]!r}... is longer than {_LONGEST} bytes")
    return name


def inside(root: str, path: str) -> str:
    """Return ``path`` normalised when it lies strictly inside ``root``, by name alone. Raises CorruptFile otherwise."""
    place = place_of(root)
    below, top = path[len(place) :], root[len(place) :] or "/"
    if "\x00" in path or not path.startswith(place) or not posixpath.isabs(below):
        raise CorruptFile(path, f"not a path inside {root}")
    clean, base = posixpath.normpath(below), posixpath.normpath(top)
    if ".." in path.split("/") or not clean.startswith(base.rstrip("/") + "/"):
        raise CorruptFile(path, f"lies outside {root}")
    return place + clean


def inside_really(root: str, path: str, linkless: set[tuple[str, str]] | None = None) -> str:
    """Like ``inside``, and no symbolic link may lie between ``root`` and ``path``; ask this before every delete.

    ``linkless``: pairs of a root and a folder below that were found just now to have no link between them, which are not looked at again; it
    gets those that are found so. Whoever deletes many files at once has one for them.
    """
    clean = inside(root, path)
    if place_of(root):  # an object store has no links
        return clean
    base = posixpath.normpath(root)
    folder = posixpath.dirname(clean)
    if linkless is not None and (root, folder) in linkless:
        return PathBelow.of(base, clean)
    expected = posixpath.normpath(posixpath.join(os.path.realpath(base), posixpath.relpath(folder, base)))
    if os.path.realpath(folder) != expected:
        raise CorruptFile(path, f"is reached through a symbolic link, which may lead out of {root}")
    if linkless is not None:
        linkless.add((root, folder))
    return PathBelow.of(base, clean)


def is_link(path: str) -> bool:
    """Whether ``path`` itself is a symbolic link, whatever it leads to."""
    try:
        return os.path.islink(path)
    except ValueError:  # a NUL inside
        return False


def same_place(left: str, right: str) -> bool:
    """Whether two paths lead to one directory or file, symbolic links followed."""
    try:
        if left == right or place_of(left) or place_of(right):
            return left == right
        return os.path.realpath(left) == os.path.realpath(right)
    except ValueError:  # a NUL inside
        return False
