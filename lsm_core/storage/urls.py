"""Selection of the FileIO for a warehouse address."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.storage.file_io import FileIO
from lsm_core.storage.local_file_io import LocalFileIO
from lsm_core.storage.safe_paths import place_of
from lsm_core.storage.store_keys import KeySource

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_AUTHORITY = re.compile(r"^[^:]+:(//[^/]*)?")
OBJECT_STORES: Final = ("s3", "s3a", "oss", "obs", "cosn", "cos", "gs", "abfs", "abfss")
"""URL schemes of object stores."""
HDFS: Final = "hdfs"
_AZURE: Final = ("abfs", "abfss")
_AZURE_PLACE: Final = "container@account.dfs.core.windows.net"


def file_io_for(
    url: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    escaped: bool = True,
    keys: KeySource | None = None,
    from_server: bool = False,
) -> tuple[FileIO, str]:
    """Return the FileIO and the root path of a warehouse.

    Args:
        url: a local path, a ``file:`` address or an object store address.
        options: settings of the object store (`lsm_core.options.STORAGE_OPTIONS`); further options are ignored.
        escaped: whether ``%XX`` in a ``file:`` address encodes a character. Pass False for addresses that Paimon
            stores, because names of partition directories contain ``%XX``.
        keys: source of the object store's access keys, or None for keys from the environment.
        from_server: whether a catalog server named the address, so that its HDFS cluster must be one that the
            operator's configuration names.

    Returns:
        The FileIO, and an absolute path or the address.

    Raises:
        UnsupportedFeature: the address has a scheme other than `file`, `hdfs` and :data:`OBJECT_STORES`, or is a
            ``file:`` address on a different host.
        InvalidOption: the address is blank; an object store's address has no bucket, contains a secret, or has the
            parts ``.`` or ``..``; or a setting of the store is invalid.
        StorageRefused: a catalog server named an unknown HDFS cluster.
    """
    text = os.fspath(url)
    if not text.strip():
        raise InvalidOption("warehouse", text, "a path or an address")
    match = _SCHEME.match(text)
    if match is None:
        return LocalFileIO(), os.path.abspath(os.path.expanduser(text))
    scheme = match.group(1).lower()
    if scheme in OBJECT_STORES:
        from lsm_core.storage.object_store import (
            ObjectStoreFileIO,
        )  # imported late: the library is slow to import, and most tables are on a disk

        return ObjectStoreFileIO(options, keys, scheme), _address(scheme, text)
    if scheme == HDFS:
        from lsm_core.storage.hdfs_file_io import HdfsFileIO  # imported late, as its library is optional

        address = _address(scheme, text)
        if from_server:
            from lsm_core.storage.hdfs_clusters import require_known_cluster

            require_known_cluster(address, options or {}, os.environ)
        return HdfsFileIO(place_of(address), options), address
    if scheme != "file":
        accepted = ", ".join(f"{scheme_name}://" for scheme_name in ("file", *OBJECT_STORES, HDFS))
        raise UnsupportedFeature(f"warehouse on '{scheme}' storage ({text}); accepted: local paths, {accepted}")
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UnsupportedFeature(f"file address on another host ({text})")
    if not escaped:
        return LocalFileIO(), os.path.abspath(_AUTHORITY.sub("", text))
    return LocalFileIO(), os.path.abspath(unquote(parts.path))


def _address(scheme: str, text: str) -> str:
    """Return an address in canonical form: scheme in lower case, no trailing slash, no empty part."""
    authority, _, path = text.partition(":")[2].removeprefix("//").partition("/")
    if "@" in authority and (scheme not in _AZURE or ":" in authority):
        raise InvalidOption(
            "warehouse", f"{scheme}://***", "an address without keys: secrets come from the environment only"
        )
    parts = [part for part in path.split("/") if part]
    if not authority or text.partition(":")[2][:2] != "//" or {".", ".."} & set(parts):
        example = {HDFS: "name-node:8020", "abfs": _AZURE_PLACE, "abfss": _AZURE_PLACE}.get(scheme, "bucket")
        raise InvalidOption("warehouse", text, f"an address like {scheme}://{example}/folder")
    return "/".join((f"{scheme}://{authority}", *parts))


def storage_options(file_io: FileIO) -> dict[str, str]:
    """Return the options that another process needs for :func:`file_io_for` to reach the same store.

    Returns:
        The options of the FileIO, without secrets; empty for local files.
    """
    inner: object = file_io
    while hasattr(inner, "inner"):
        inner = inner.inner
    return dict(getattr(inner, "options", {}))


def key_source(file_io: FileIO) -> KeySource | None:
    """Return the source of the access keys of a FileIO, or None if they come from the environment."""
    inner: object = file_io
    while hasattr(inner, "inner"):
        inner = inner.inner
    return getattr(inner, "keys", None)
