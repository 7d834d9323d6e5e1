"""What a table may not decide for itself: places outside its folder need the operator's word, and secrets are no options.

Whoever may write to a table's folder writes its options. So an address among them is used only where the operator of this
process allows it: by the options of the catalog, by a dynamic option, or by the variable :data:`ALLOWED_PLACES`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from typing import Final

ALLOWED_PLACES: Final = "DREDGE_ALLOWED_PLACES"
"""Environment variable: JDBC addresses and folders, separated by commas, that tables may name in their own options."""
MASK: Final = "***"
_SECRET: Final = re.compile(
    r"secret|passw(or)?d|token|credential|private[-._]?key|access[-._]?key|account[-._]?key|sas[-._]?(key|token)",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]+")


def is_allowed_place(address: str) -> bool:
    """Return whether the operator allows tables to name this address.

    Args:
        address: JDBC address, path, or address of a folder in an object store.

    Returns:
        True for a JDBC address of :data:`ALLOWED_PLACES` (parameters aside), and for a folder of it or one below.
    """
    allowed = [place.strip() for place in os.environ.get(ALLOWED_PLACES, "").split(",") if place.strip()]
    if address.startswith("jdbc:"):
        return address.partition("?")[0] in {place.partition("?")[0] for place in allowed}
    wanted = _folder(address)
    folders = [_folder(place) for place in allowed if not place.startswith("jdbc:")]
    return any(wanted == folder or wanted.startswith(folder.rstrip("/") + "/") for folder in folders)


def is_secret(key: str) -> bool:
    """Return whether an option's name says that its value is a secret, as "s3.secret-key" does."""
    return bool(_SECRET.search(key))


def mask_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they may be shown: values of secrets are replaced by :data:`MASK`."""
    return {key: MASK if is_secret(key) else value for key, value in options.items()}


def _folder(address: str) -> str:
    """Return a path or folder address in one form, without `.` and `..`."""
    plain = address.removeprefix("file://")
    place = _PLACE.match(plain)
    head = place.group() if place else ""
    return head + posixpath.normpath("/" + plain[len(head) :].lstrip("/"))


__all__ = ["ALLOWED_PLACES", "MASK", "is_allowed_place", "is_secret", "mask_secrets"]
