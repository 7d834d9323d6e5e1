"""Options of a catalog: where tables live and what every new table starts with."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lsm_core.errors import InvalidOption
from lsm_core.options.keys import BOOL, DURATION, INT, MEMORY, TEXT, Key
from lsm_core.options.registry import parse_value

_LOG = logging.getLogger(__name__)

_KEYS = (
    Key("warehouse", TEXT),
    Key("metastore", TEXT, "filesystem"),
    Key("uri", TEXT),
    Key("table.type", TEXT, "managed"),
    Key("lock.enabled", BOOL),
    Key("lock.type", TEXT),
    Key("lock-check-max-sleep", DURATION, "8 s"),
    Key("lock-acquire-timeout", DURATION, "8 min"),
    Key("cache-enabled", BOOL, "true"),
    Key("cache.expire-after-access", DURATION, "10 min"),
    Key("cache.expire-after-write", DURATION, "30 min"),
    Key("cache.manifest.small-file-memory", MEMORY, "128 mb"),
    Key("cache.manifest.small-file-threshold", MEMORY, "1 mb"),
    Key("cache.partition.max-num", INT, "0"),
    Key("cache.snapshot.max-num-per-table", INT, "20"),
    Key("case-sensitive", BOOL),
    Key("sync-all-properties", BOOL, "true"),
    Key("format-table.enabled", BOOL, "true"),
)
CATALOG_REGISTRY: dict[str, Key] = {key.name: key for key in _KEYS}
TABLE_DEFAULT_PREFIX = "table-default."
_SECRETS = ("secret", "password", "token", "access-key", "access.key", "accesskey")


class CatalogOptions:
    """Typed view of a catalog's options. Source class: ``CatalogOptions``. Raises InvalidOption.

    Secrets are refused here: they come only from the environment, so that no file, plan or log can hold them.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._raw = {str(k): str(v) for k, v in (options or {}).items()}
        self._typed: dict[str, Any] = {}
        for name, value in self._raw.items():
            if any(word in name.lower() for word in _SECRETS):
                raise InvalidOption(name, "***", "secrets from the environment only")
            if name in CATALOG_REGISTRY:
                self._typed[name] = parse_value(CATALOG_REGISTRY[name], value)
            elif not name.startswith(TABLE_DEFAULT_PREFIX):
                _LOG.warning("unknown catalog option '%s' has no effect here", name)
        if self.metastore != "filesystem":
            raise InvalidOption("metastore", self.metastore, "filesystem")

    @property
    def raw(self) -> Mapping[str, str]:
        """The options as given (a copy)."""
        return dict(self._raw)

    def get(self, key: str) -> Any:
        """Return the typed value of a known key, its default when unset. Raises InvalidOption for an unknown key."""
        known = CATALOG_REGISTRY.get(key)
        if known is None:
            raise InvalidOption(key, None, "a known catalog option")
        default = None if known.default is None else parse_value(known, known.default)
        return self._typed.get(key, default)

    @property
    def metastore(self) -> str:
        """``metastore``; only ``filesystem`` is known."""
        return str(self.get("metastore")).lower()

    @property
    def table_defaults(self) -> dict[str, str]:
        """Options (``table-default.*``, without the prefix) that new tables start with."""
        start = len(TABLE_DEFAULT_PREFIX)
        return {k[start:]: v for k, v in self._raw.items() if k.startswith(TABLE_DEFAULT_PREFIX)}
