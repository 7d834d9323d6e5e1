"""Limits of stored table options: stored options may contain only addresses that the operator allows, and no secrets.

Anyone who can write to a table's folder can set the table's options. So an address in a stored option is used only if
the operator of this process allows it: by a catalog option, a dynamic option, or the environment variable
:data:`ALLOWED_PLACES`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

ALLOWED_PLACES: Final = "DREDGE_ALLOWED_PLACES"
"""Environment variable with the addresses that tables may use in their own options, separated by commas.

They are JDBC addresses, addresses of Hive metastores, and folders.
"""
MASK: Final = "***"
_SECRET: Final = re.compile(
    r"secret|passw(or)?d|passphrase|pwd|token|credential|jaas|sas[-._]?(key|token)"
    r"|(private|access|account|api|ssl|encryption)[-._]?key",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/]+")


def is_allowed_place(address: str) -> bool:
    """Return whether the operator allows tables to use this address.

    Args:
        address: a JDBC address, a path, or the address of a folder in an object store.

    Returns:
        True for a JDBC address in :data:`ALLOWED_PLACES` (regardless of its user), and for a folder that is listed
            there or is below a listed folder.
    """
    allowed = [place.strip() for place in os.environ.get(ALLOWED_PLACES, "").split(",") if place.strip()]
    if address.startswith("jdbc:"):
        return _canonical_database(address) in {_canonical_database(place) for place in allowed}
    folders = [canonical_folder(place) for place in allowed if not place.startswith("jdbc:")]
    # File addresses are decoded before they are opened, so "%2e%2e" leads upwards like "..".
    return all(
        any(place == folder or place.startswith(folder.rstrip("/") + "/") for folder in folders)
        for place in (canonical_folder(address), canonical_folder(unquote(address)))
    )


def is_secret(key: str) -> bool:
    """Return whether an option's name indicates a secret value, as in "s3.secret-key"."""
    return bool(_SECRET.search(key))


def mask_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return options for display, with the values of secrets replaced by :data:`MASK`."""
    return {key: MASK if is_secret(key) else value for key, value in options.items()}


def _canonical_database(address: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a JDBC address in a form that can be compared: (address without parameters, sorted parameters).

    The parameter `user` is left out. The others stay, because some (`sslmode`) decide who can read the password.
    """
    place, _, query = address.partition("?")
    return place, tuple(sorted(pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "user"))


def canonical_folder(address: str) -> str:
    """Return a path or folder address without `.` and `..`; a relative path becomes absolute.

    Args:
        address: a path, a ``file://`` address, or the address of a folder in an object store.
    """
    plain = address.removeprefix("file://")
    place = _PLACE.match(plain)
    head = place.group() if place else ""
    if not place:
        plain = os.path.abspath(plain)
    return head + posixpath.normpath("/" + plain[len(head) :].lstrip("/"))
