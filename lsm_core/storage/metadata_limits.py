"""Size limits for metadata files by kind, so that a huge or sparse file cannot fill the memory of its reader."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import CorruptFile

_MIB: Final = 1 << 20
_HINT: Final = 4096
_BY_PREFIX: Final = (
    ("snapshot-", 64 * _MIB),
    ("changelog-", 64 * _MIB),
    ("tag-", 64 * _MIB),
    ("consumer-", _MIB),
    ("holding-", _MIB),
    ("_SUCCESS", _MIB),
    ("schema-", 256 * _MIB),
)
_RECORD: Final = 512 * _MIB
_OTHER: Final = 1024 * _MIB


def most_bytes(path: str) -> int:
    """Return the size limit of a metadata file, chosen by its name.

    Args:
        path: path of the file.

    Returns:
        Limit in bytes: 4 KiB for hints, 1 to 256 MiB for other files of Paimon by kind, 512 MiB for plans and records
        in `dredge`, 1 GiB for manifests and anything else.
    """
    folder, _, name = path.rpartition("/")
    if name in ("LATEST", "EARLIEST"):
        return _HINT
    for prefix, bound in _BY_PREFIX:
        if name.startswith(prefix):
            return bound
    return _RECORD if "/dredge/" in f"{folder}/" else _OTHER


def require_size(path: str, size: int) -> None:
    """Refuse a metadata file that is larger than its kind allows.

    Args:
        path: path of the file.
        size: its size in bytes.

    Raises:
        CorruptFile: the file is larger.
    """
    bound = most_bytes(path)
    if size > bound:
        raise CorruptFile(path, f"it has {size:,} bytes; a file of this kind has at most {bound:,}")
