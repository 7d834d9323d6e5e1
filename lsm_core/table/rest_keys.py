"""Storage keys that a REST catalog server gives out for each table (`data-token.enabled`).

Keys are fetched per table, kept in the memory of the process only, and renewed an hour before they end, as Paimon does.
Keys that live for less than two hours are renewed half way through. The processes of Spark fetch their own keys, with
the token of the catalog from their own environment.

Source: Paimon `RESTTokenFileIO`, `RESTApi.TOKEN_EXPIRATION_SAFE_TIME_MILLIS`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lsm_core.clock import Clock, SystemClock
from lsm_core.errors import InvalidData, MetastoreFailed, TableNotFound
from lsm_core.options import CatalogOptions
from lsm_core.storage import StoreKeys, parse_keys
from lsm_core.table.rest_client import RestClient, ServerRefusal, open_client

_LOG = logging.getLogger(__name__)
_NOT_FOUND: Final = 404
_RENEWAL_MS: Final = 3_600_000
_LONGEST_LIFE_MS: Final = 30 * 86_400_000
_RETRY_MS: Final = 60_000
_MAX_TABLES: Final = 1000
_HOSTS: Final = ("endpoint", "endpoint-override")
_STORE_RENEWS_MS: Final = 300_000
"""Time before the end of keys, in ms, from which the store asks for keys before each request (`KeySource.keys`)."""
_S3_PREFIXES: Final = ("s3.", "s3a.", "fs.s3a.", "fs.s3.")
_PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": _S3_PREFIXES,
    "s3a": _S3_PREFIXES,
    "oss": ("fs.oss.",),
    "obs": ("fs.obs.",),
    "cos": ("fs.cosn.",),
    "cosn": ("fs.cosn.",),
}
"""Prefixes of the names of a store's settings, by scheme of its addresses."""


@dataclass(frozen=True)
class _KeptKeys:
    """Keys of one table in the memory of this process.

    Attributes:
        keys: the keys; the store asks for new ones from ``renew_at_ms`` on.
        renew_at_ms: time after which they are renewed, in ms since the epoch.
        ends_ms: end of their validity, in ms since the epoch.
    """

    keys: StoreKeys
    renew_at_ms: int
    ends_ms: int

    @classmethod
    def until(cls, keys: StoreKeys, renew_at_ms: int, ends_ms: int) -> _KeptKeys:
        """Return the keys with the time of their renewal."""
        return cls(replace(keys, expires_ms=renew_at_ms + _STORE_RENEWS_MS), renew_at_ms, ends_ms)


_kept: dict[str, _KeptKeys] = {}
"""Keys by table; the oldest entry is dropped first."""
_lock = threading.Lock()
_locks: dict[str, threading.Lock] = {}
"""Lock of each table while its keys are fetched, so that a slow answer delays no other table."""


class ServedKeys:
    """Keys of one table from a REST catalog server; see `KeySource`. Providers of the same table share their keys.

    Args:
        client: client of the warehouse.
        database: name of the database.
        table: name of the table, without a branch.
        table_id: the server's id of the table, so that a new table of the same name gets keys of its own.
        scheme: scheme of the address of the table's folder, such as "s3".
        clock: clock that decides when keys are renewed.
    """

    def __init__(
        self, client: RestClient, database: str, table: str, table_id: str, scheme: str, clock: Clock | None = None
    ) -> None:
        self._scheme = scheme
        self._client, self._database, self._table, self._table_id = client, database, table, table_id
        self._clock = clock or SystemClock()
        self._identity = json.dumps(self.to_spec(), sort_keys=True)

    def __repr__(self) -> str:
        return f"ServedKeys({self._database}.{self._table})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServedKeys) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def keys(self) -> StoreKeys:
        """Return valid keys; see `KeySource`.

        Raises:
            TableNotFound: the table was dropped or renamed.
            MetastoreFailed: the server gives out no keys, or keys that have ended.
            UnsupportedFeature: the server does not offer keys for each table.
        """
        kept = _kept.get(self._identity)
        if kept is not None and self._clock.now_ms() < kept.renew_at_ms:
            return kept.keys
        with _locks.setdefault(self._identity, threading.Lock()):
            kept = _kept.get(self._identity)
            now = self._clock.now_ms()
            if kept is not None and now < kept.renew_at_ms:
                return kept.keys
            try:
                fetched = self._fetch()
            except MetastoreFailed as error:
                if kept is None or now + _RETRY_MS >= kept.ends_ms:
                    raise
                _LOG.warning("keys of table %s.%s are not renewed yet: %s", self._database, self._table, error)
                fetched = _KeptKeys.until(kept.keys, now + _RETRY_MS, kept.ends_ms)
            with _lock:
                _kept.pop(self._identity, None)
                _kept[self._identity] = fetched
                while len(_kept) > _MAX_TABLES:
                    oldest = next(iter(_kept))
                    del _kept[oldest]
                    _locks.pop(oldest, None)
            return fetched.keys

    def to_spec(self) -> dict[str, Any]:
        """Return the catalog's options, which have no secrets, and the table; see :func:`keys_from_spec`."""
        catalog = {**self._client.options, "uri": self._client.address, "warehouse": self._client.warehouse}
        return {
            "catalog": {**catalog, "metastore": "rest"},
            "database": self._database,
            "table": self._table,
            "id": self._table_id,
            "scheme": self._scheme,
        }

    def _fetch(self) -> _KeptKeys:
        """Return new keys from the server."""
        address, name = self._client.address, f"{self._database}.{self._table}"
        try:
            answer = self._client.get("databases", self._database, "tables", self._table, "token")
        except ServerRefusal as refusal:
            if refusal.status == _NOT_FOUND:
                reason = f"table {name} was dropped or renamed: the catalog server has no keys for it"
                raise TableNotFound(f"{reason} ({refusal.message})") from refusal
            raise MetastoreFailed(address, f"it gives out no keys for table {name}: {refusal}") from refusal
        settings, ends_ms = answer.get("token"), answer.get("expiresAtMillis")
        if not isinstance(settings, dict) or isinstance(ends_ms, bool) or not isinstance(ends_ms, int):
            raise MetastoreFailed(address, f"its answer with the keys of table {name} has an invalid form")
        now = self._clock.now_ms()
        if ends_ms <= now:
            reason = f"its keys for table {name} have already ended; compare the clocks of both machines"
            raise MetastoreFailed(address, reason)
        ends_ms = min(ends_ms, now + _LONGEST_LIFE_MS)
        self._report_hosts(settings)
        prefixes = _PREFIXES.get(self._scheme, ())
        own = {str(key): value for key, value in settings.items() if str(key).lower().startswith(prefixes)}
        try:
            keys = parse_keys(own, ends_ms, name)
        except InvalidData as error:
            raise MetastoreFailed(
                address, f"it gives out no keys of {self._scheme} for table {name}: {error}"
            ) from error
        return _KeptKeys.until(keys, max(ends_ms - _RENEWAL_MS, now + (ends_ms - now) // 2), ends_ms)

    def _report_hosts(self, settings: Mapping[str, Any]) -> None:
        """Log that an address from the server is not used, because the operator decides where the data are sent."""
        if self._client.options.get("s3.endpoint"):
            return
        for key in filter(_is_host, map(str, settings)):
            _LOG.warning(
                "table %s.%s: the catalog server sends %.100r = %.200r, which is not used; if the tables are there, "
                "set the catalog option for the endpoint of the store",
                self._database,
                self._table,
                key,
                settings[key],
            )


def keys_from_spec(spec: Mapping[str, Any]) -> ServedKeys:
    """Return the provider that :meth:`ServedKeys.to_spec` described; it fetches its own keys.

    Raises:
        InvalidOption: the options of the catalog cannot be used.
    """
    client = open_client(CatalogOptions(spec["catalog"]))
    return ServedKeys(client, spec["database"], spec["table"], spec["id"], spec["scheme"])


def _is_host(key: str) -> bool:
    return key.lower().endswith(_HOSTS)
