"""From a warehouse's address to the FileIO that serves it."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.storage.file_io import FileIO
from lsm_core.storage.local_file_io import LocalFileIO

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_AUTHORITY = re.compile(r"^[^:]+:(//[^/]*)?")


def file_io_for(url: str | os.PathLike[str], *, escaped: bool = True) -> tuple[FileIO, str]:
    """Return the FileIO and the absolute root path for a local path or a ``file:`` address.

    ``escaped``: ``%XX`` in an address stands for a character. In what Paimon stores (its `Path` as text) it stands for itself:
    partition directories have such names. Raises UnsupportedFeature naming the scheme for any other store, InvalidOption for a blank address.
    """
    text = os.fspath(url)
    if not text.strip():
        raise InvalidOption("warehouse", text, "a path or a file address")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalFileIO(), os.path.abspath(os.path.expanduser(text))
    if scheme.group(1).lower() != "file":
        raise UnsupportedFeature(f"warehouse on '{scheme.group(1).lower()}' storage ({text})")
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UnsupportedFeature(f"file address on another host ({text})")
    if not escaped:
        return LocalFileIO(), os.path.abspath(_AUTHORITY.sub("", text))
    return LocalFileIO(), os.path.abspath(unquote(parts.path))
