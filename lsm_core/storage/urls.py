"""From a warehouse's address to the FileIO that serves it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.storage.file_io import FileIO
from lsm_core.storage.local_file_io import LocalFileIO

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_AUTHORITY = re.compile(r"^[^:]+:(//[^/]*)?")
OBJECT_STORES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
"""Addresses of object stores begin so; S3's are tested against a server, Google's and Azure's only go the same way."""
_S3: Final = ("s3", "s3a", "gs")


def file_io_for(
    url: str | os.PathLike[str], options: Mapping[str, str] | None = None, *, escaped: bool = True
) -> tuple[FileIO, str]:
    """Return the FileIO and the root of a local path, a ``file:`` address or that of an object store: an absolute path or the address.

    ``options``: how an object store is reached (`lsm_core.options.STORAGE_OPTIONS`); others are passed over. ``escaped``: ``%XX`` in a
    ``file:`` address stands for a character. In what Paimon stores (its `Path` as text) it stands for itself: partition directories
    have such names. Raises UnsupportedFeature naming the scheme for any other store, InvalidOption for a blank address and for
    one that holds a secret or leads up.
    """
    text = os.fspath(url)
    if not text.strip():
        raise InvalidOption("warehouse", text, "a path or an address")
    found = _SCHEME.match(text)
    if found is None:
        return LocalFileIO(), os.path.abspath(os.path.expanduser(text))
    scheme = found.group(1).lower()
    if scheme in OBJECT_STORES:
        from lsm_core.storage.object_store import (
            ObjectStoreFileIO,
        )  # most tables lie on a disk, and need not wait for the library

        return ObjectStoreFileIO(options), _address(scheme, text)
    if scheme != "file":
        known = ", ".join(f"{one}://" for one in ("file", *OBJECT_STORES))
        raise UnsupportedFeature(f"warehouse on '{scheme}' storage ({text}); there are local paths, {known}")
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UnsupportedFeature(f"file address on another host ({text})")
    if not escaped:
        return LocalFileIO(), os.path.abspath(_AUTHORITY.sub("", text))
    return LocalFileIO(), os.path.abspath(unquote(parts.path))


def _address(scheme: str, text: str) -> str:
    """``text`` in one form: the scheme in small letters, no slash at the end and no empty part."""
    place, _, path = text.partition(":")[2].removeprefix("//").partition("/")
    if "@" in place and (scheme in _S3 or ":" in place):
        raise InvalidOption(
            "warehouse", f"{scheme}://***", "an address without keys: secrets come from the environment only"
        )
    parts = [part for part in path.split("/") if part]
    if not place or text.partition(":")[2][:2] != "//" or {".", ".."} & set(parts):
        raise InvalidOption("warehouse", text, f"an address such as {scheme}://bucket/folder")
    return "/".join((f"{scheme}://{place}", *parts))


def storage_options(file_io: FileIO) -> dict[str, str]:
    """What :func:`file_io_for` must be told so that another process reaches the same store; no secrets."""
    inner: object = file_io
    while hasattr(inner, "inner"):
        inner = inner.inner
    return dict(getattr(inner, "options", {}))
