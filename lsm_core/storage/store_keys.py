"""Keys of a store that are renewed while they are used, for tables whose catalog server gives out short-lived keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lsm_core.errors import InvalidData

_MAX_KEY: Final = 16_384
_NAMES: Final = (
    ("fs.oss.accesskeyid", "fs.oss.accesskeysecret", "fs.oss.securitytoken"),
    ("fs.obs.access.key", "fs.obs.secret.key", "fs.obs.session.token"),
    ("fs.cosn.userinfo.secretid", "fs.cosn.userinfo.secretkey", "fs.cosn.userinfo.sessiontoken"),
    ("fs.s3.accesskeyid", "fs.s3.accesskeysecret", "fs.s3.securitytoken"),
    *(
        (f"{prefix}.access.key{id_mark}", f"{prefix}.secret.{access}key", f"{prefix}.session.token")
        for prefix in ("s3", "s3a", "fs.s3a")
        for id_mark, access in (("", ""), (".id", "access."))
    ),
)
"""Names of the access key, the secret key and the session token, in lower case and with dots instead of dashes."""


@dataclass(frozen=True)
class StoreKeys:
    """Keys for a store; their values are never shown.

    Attributes:
        access_key: id of the key.
        secret_key: the secret that signs requests.
        session_token: token of short-lived keys, or None.
        expires_ms: end of the keys' validity (epoch ms), or None for keys without an end.
    """

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_ms: int | None = None


class KeySource(Protocol):
    """Source of the keys of one table's files.

    A source is compared, hashed and pickled without keys: a copy in another process fetches its own.
    """

    def keys(self) -> StoreKeys:
        """Return valid keys.

        The store calls this method from any thread, before the keys end and for each request in their last five
        minutes. So a source returns the same keys until it renews them.

        Raises:
            DredgeError: the keys cannot be renewed; requests fail with StorageRefused and this error's text.
        """
        ...

    def to_spec(self) -> dict[str, Any]:
        """Return values without secrets from which another process creates an equal source (see `key_source`)."""
        ...


def parse_keys(values: Mapping[str, str], expires_ms: int | None, table: str) -> StoreKeys:
    """Return the keys that a catalog server sent under the names of Paimon's options.

    Other values, such as an endpoint, are ignored: only the operator decides which server receives requests.

    Args:
        values: the values by name; case and the marks ``-`` and ``.`` make no difference.
        expires_ms: end of their validity (epoch ms), or None.
        table: name of the table whose files the keys open, for messages.

    Returns:
        The keys.

    Raises:
        InvalidData: no known pair of keys is complete, or a key is no text of printable characters.
    """
    by_name = {str(name).lower().replace("-", "."): value for name, value in values.items()}
    for access_name, secret_name, token_name in _NAMES:
        if access_name in by_name and secret_name in by_name:
            texts = [by_name[access_name], by_name[secret_name], by_name.get(token_name)]
            if not all(_is_key(text) for text in texts if text is not None):
                raise InvalidData(table, "", "the server's keys for the store are no plain texts")
            return StoreKeys(str(texts[0]), str(texts[1]), texts[2] or None, expires_ms)
    expected = ", ".join(" and ".join(names[:2]) for names in _NAMES[:4])
    raise InvalidData(table, "", f"the server sent no known keys for the store; expected {expected}")


def _is_key(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _MAX_KEY and text.isascii() and text.isprintable()
