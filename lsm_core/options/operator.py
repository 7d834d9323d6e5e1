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
from urllib.parse import parse_qsl, unquote

ALLOWED_PLACES: Final = "DREDGE_ALLOWED_PLACES"
"""Environment variable: JDBC addresses and folders, separated by commas, that tables may name in their own options."""
MASK: Final = "***"
_SECRET: Final = re.compile(
    r"secret|passw(or)?d|passphrase|pwd|token|credential|jaas|sas[-._]?(key|token)"
    r"|(private|access|account|api|ssl|encryption)[-._]?key",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]+")


def is_allowed_place(address: str) -> bool:
    """Return whether the operator allows tables to name this address.

    Args:
        address: JDBC address, path, or address of a folder in an object store.

    Returns:
        True for a JDBC address of :data:`ALLOWED_PLACES` (the user aside), and for a folder of it or one below.
    """
    allowed = [place.strip() for place in os.environ.get(ALLOWED_PLACES, "").split(",") if place.strip()]
    if address.startswith("jdbc:"):
        return _database(address) in {_database(place) for place in allowed}
    folders = [_folder(place) for place in allowed if not place.startswith("jdbc:")]
    # An address of a file is decoded before it is opened, so "%2e%2e" leads up as ".." does.
    return all(
        any(place == folder or place.startswith(folder.rstrip("/") + "/") for folder in folders)
        for place in (_folder(address), _folder(unquote(address)))
    )


def is_secret(key: str) -> bool:
    """Return whether an option's name says that its value is a secret, as "s3.secret-key" does."""
    return bool(_SECRET.search(key))


def mask_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return options as they may be shown: values of secrets are replaced by :data:`MASK`."""
    return {key: MASK if is_secret(key) else value for key, value in options.items()}


def _database(address: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a JDBC address in one form: parameters such as `sslmode` decide who reads the password, the user does not."""
    place, _, query = address.partition("?")
    return place, tuple(sorted(pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "user"))


def _folder(address: str) -> str:
    """Return a path or folder address in one form, without `.` and `..`; a relative path as it is opened."""
    plain = address.removeprefix("file://")
    place = _PLACE.match(plain)
    head = place.group() if place else ""
    if not place:
        plain = os.path.abspath(plain)
    return head + posixpath.normpath("/" + plain[len(head) :].lstrip("/"))


__all__ = ["ALLOWED_PLACES", "MASK", "is_allowed_place", "is_secret", "mask_secrets"]
