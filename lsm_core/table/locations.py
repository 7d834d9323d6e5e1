"""Folders of tables and databases that a catalog server names, checked before they are used."""

from __future__ import annotations

from lsm_core.errors import InvalidOption, MetastoreFailed, StorageRefused, UnsupportedFeature
from lsm_core.storage import file_io_for, place_of


def checked_folder(location: object, subject: str, address: str) -> str:
    """Return the folder that a server names, after checking that it is an absolute path or address without "..".

    Args:
        location: the folder as the server names it.
        subject: object that has the folder, for messages, such as "table db.t".
        address: address of the server, for messages.

    Raises:
        MetastoreFailed: the folder is unsafe, or in a storage that is not offered.
    """
    text = location if isinstance(location, str) else ""
    parts = text.split("/")
    if not text or "\x00" in text or ".." in parts or not (text.startswith("/") or ":/" in text):
        raise MetastoreFailed(address, f"it names an unsafe folder for {subject}: {text!r:.200}")
    try:
        _, root = file_io_for(text, escaped=False)
    except (InvalidOption, UnsupportedFeature, StorageRefused) as error:
        raise MetastoreFailed(address, f"it names a folder for {subject} that cannot be used: {error}") from error
    if root.strip("/") == "":
        raise MetastoreFailed(address, f"it names the whole file system as the folder of {subject}")
    return root.rstrip("/")


def folder_text(path: str) -> str:
    """Return a folder as the text that a metastore stores; a local path gets the scheme ``file:``, as in Java."""
    return path if place_of(path) else f"file:{path}"
