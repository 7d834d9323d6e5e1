"""Checks of names from untrusted metadata: no path in a table's metadata may lead out of the table's directory."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any

from lsm_core.errors import CorruptFile, InvalidData

# A percent sign is refused too: some stores decode %2e%2e into "..", and Paimon's file names never contain it.
# A lone surrogate cannot be encoded, so no store can use a name that contains one.
_BAD = re.compile("[\x00-\x1f\x7f/\\\\%\ud800-\udfff]")
_MAX_NAME_BYTES = 255
_SAME_STORE = {"s3a": "s3", "cosn": "cos", "abfss": "abfs"}
_SCHEME_ALIAS = re.compile(f"^({'|'.join(_SAME_STORE)})(?=://)")
_PLACE = re.compile(r"[a-z][a-z0-9+.-]*://[^/]+(?=/|$)")


class PathBelow(str):
    """A path string whose file may be deleted only if no symbolic link is between ``root`` and the file.

    `LocalFileIO` opens the folders below ``root`` one after the other and deletes by handle. So a link that is created
    during the deletion cannot redirect the deletion.

    Attributes:
        root: folder that contains the path.
    """

    __slots__ = ("root",)
    root: str

    @classmethod
    def of(cls, root: str, path: str) -> str:
        """Return ``path`` as a path below ``root``.

        Returns:
            A `PathBelow`; the string unchanged if the path is not below ``root`` or is in an object store.
        """
        if place_of(path) or not path.startswith(root.rstrip("/") + "/"):
            return path
        below = cls(path)
        below.root = root.rstrip("/")
        return below

    def __reduce__(self) -> tuple[Any, ...]:
        return PathBelow.of, (self.root, str(self))


def place_of(path: str) -> str:
    """Return the store of a file's address, as in ``s3://bucket``, or "" for a local path."""
    match = _PLACE.match(path)
    return match.group() if match else ""


def unify_scheme(path: str) -> str:
    """Return a path with one scheme for each kind of store: ``s3`` for ``s3a``, ``cos`` for ``cosn``."""
    return _SCHEME_ALIAS.sub(lambda match: _SAME_STORE[match[0]], path)


def check_name(name: str, table: str = "", subject: str = "file name") -> str:
    """Return ``name`` if it is a single plain path component.

    Args:
        name: the name to check.
        table: name of the table, for the message.
        subject: the kind of name, for the message.

    Returns:
        The name.

    Raises:
        InvalidData: the name is not plain, or is too long; the message contains the name.
    """
    if not isinstance(name, str) or not name or name in (".", "..") or _BAD.search(name):
        raise InvalidData(table, "", f"{subject} {name!r} is not a plain name")
    if len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:
        raise InvalidData(table, "", f"{subject} {name[:40]!r}... is longer than {_MAX_NAME_BYTES} bytes")
    return name


def inside(root: str, path: str) -> str:
    """Return a normalised path that is strictly inside a root, judged by name only.

    Raises:
        CorruptFile: the path is not inside ``root``.
    """
    store = place_of(root)
    local_path, local_root = path[len(store) :], root[len(store) :] or "/"
    if "\x00" in path or not path.startswith(store) or not posixpath.isabs(local_path):
        raise CorruptFile(path, f"not a path inside {root}")
    clean, base = posixpath.normpath(local_path), posixpath.normpath(local_root)
    if ".." in path.split("/") or not clean.startswith(base.rstrip("/") + "/"):
        raise CorruptFile(path, f"is outside {root}")
    return store + clean


def inside_really(root: str, path: str, linkless: set[tuple[str, str]] | None = None) -> str:
    """Return a normalised path, checked to be inside ``root`` without symbolic links; call this before every deletion.

    Args:
        root: the folder that must contain the path.
        path: absolute path.
        linkless: cache of checked pairs (root, folder) without links in between; the function skips these pairs and
            adds new pairs. Use one set for a deletion of many files.

    Returns:
        The normalised path.

    Raises:
        CorruptFile: the path is outside, or reached through a link.
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
    """Return whether ``path`` itself is a symbolic link."""
    try:
        return os.path.islink(path)
    except ValueError:  # a NUL inside
        return False


def same_place(left: str, right: str) -> bool:
    """Return whether two paths lead to the same directory or file, following symbolic links."""
    try:
        if left == right or place_of(left) or place_of(right):
            return left == right
        return os.path.realpath(left) == os.path.realpath(right)
    except ValueError:  # a NUL inside
        return False
