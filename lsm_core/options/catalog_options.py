"""Options of a catalog: metastore, object store, locks, and defaults for new tables."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from lsm_core.errors import InvalidOption
from lsm_core.json_text import parse_json
from lsm_core.options.external_roots import EXTERNAL_ROOTS_OPTION, parse_external_roots
from lsm_core.options.keys import BOOL, DURATION, INT, MEMORY, TEXT, Key
from lsm_core.options.misnamed import advice_on
from lsm_core.options.table_options import parse_value

_LOG = logging.getLogger(__name__)

S3_ENDPOINT = "s3.endpoint"
S3_REGION = "s3.endpoint.region"
S3_PATH_STYLE = "s3.path.style.access"
OSS_ENDPOINT = "fs.oss.endpoint"
OSS_PATH_STYLE = "fs.oss.sld.enabled"
OSS_HTTPS = "fs.oss.connection.secure.enabled"
OBS_ENDPOINT = "fs.obs.endpoint"
OBS_HTTPS = "fs.obs.connection.ssl.enabled"
COS_REGION = "fs.cosn.bucket.region"
COS_DOMAIN = "fs.cosn.bucket.endpoint_suffix"
COS_HTTPS = "fs.cosn.useHttps"
GS_ENDPOINT = "fs.gs.storage.root.url"
HADOOP_CONF = "hadoop-conf-dir"
DEFAULT_FS = "fs.defaultFS"
EXCLUSIVE_CREATE = "dredge.exclusive-create"
STORAGE_OPTIONS = (
    S3_ENDPOINT,
    S3_REGION,
    S3_PATH_STYLE,
    OSS_ENDPOINT,
    OSS_PATH_STYLE,
    OSS_HTTPS,
    OBS_ENDPOINT,
    OBS_HTTPS,
    COS_REGION,
    COS_DOMAIN,
    COS_HTTPS,
    GS_ENDPOINT,
    HADOOP_CONF,
    DEFAULT_FS,
    EXCLUSIVE_CREATE,
)
"""Options of a catalog for access to its object store; none of them is secret."""
_KEYS = (
    Key("warehouse", TEXT),
    Key("metastore", TEXT, "filesystem"),
    Key("uri", TEXT),
    Key("catalog-key", TEXT, "jdbc"),
    Key("jdbc.user", TEXT),
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
    Key("token.provider", TEXT),
    Key("data-token.enabled", BOOL),
    Key("prefix", TEXT),
    Key("hive-conf-dir", TEXT),
    Key("hadoop-conf-dir", TEXT),
    Key("location-in-properties", BOOL, "false"),
    Key("client-pool-size", INT, "2"),
    Key("client-pool-cache.eviction-interval-ms", INT, "300000"),
    Key("client-pool-cache.keys", TEXT),
    Key("metastore.client.class", TEXT, "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"),
    Key("hive.skip-update-stats", BOOL, "false"),
    Key("alter-table-cascade", BOOL, "true"),
    Key(S3_ENDPOINT, TEXT),
    Key(S3_REGION, TEXT),
    Key(S3_PATH_STYLE, BOOL),
    Key(OSS_ENDPOINT, TEXT),
    Key(OSS_PATH_STYLE, BOOL),
    Key(OSS_HTTPS, BOOL),
    Key(OBS_ENDPOINT, TEXT),
    Key(OBS_HTTPS, BOOL),
    Key(COS_REGION, TEXT),
    Key(COS_DOMAIN, TEXT),
    Key(COS_HTTPS, BOOL),
    Key(GS_ENDPOINT, TEXT),
    Key(HADOOP_CONF, TEXT),
    Key(DEFAULT_FS, TEXT),
    Key(EXCLUSIVE_CREATE, TEXT),
    Key(EXTERNAL_ROOTS_OPTION, TEXT),
)
CATALOG_REGISTRY: dict[str, Key] = {key.name: key for key in _KEYS}
TABLE_DEFAULT_PREFIX = "table-default."
HEADER_PREFIX = "header."
"""Prefix of options that are headers of each request to a REST catalog server."""
REST_SCHEME = "rest:"
"""Prefix of a warehouse that is the address of a REST catalog server, as in ``rest:https://host:port``."""
HIVE_SCHEME = "hive:"
"""Prefix of a warehouse that is the address of a Hive metastore, as in ``hive:thrift://host:port``."""
HIVE_PREFIXES = ("hive.metastore.", "metastore.")
"""Prefixes of options that are settings of Hive's client."""
_METASTORES = ("filesystem", "jdbc", "rest", "hive")
_TABLE_TYPES = ("managed", "external")
_LOCKING = ("jdbc", "hive")
"""Metastores with locks, which their catalogs may take."""
_NOT_SECRET = ("token.provider", "data-token.enabled")
_SECRETS = ("secret", "password", "token", "access-key", "access.key", "accesskey", "authorization")
_VARIABLES = {
    "token": "DREDGE_REST_TOKEN or DREDGE_REST_TOKEN_FILE",
    "fs.oss.accesskeyid": "OSS_ACCESS_KEY_ID",
    "fs.oss.accesskeysecret": "OSS_ACCESS_KEY_SECRET",
    "fs.oss.securitytoken": "OSS_SESSION_TOKEN",
    "fs.obs.access.key": "OBS_ACCESS_KEY_ID",
    "fs.obs.secret.key": "OBS_SECRET_ACCESS_KEY",
    "fs.obs.session.token": "OBS_SECURITY_TOKEN",
    "fs.cosn.userinfo.secretid": "COSN_SECRET_ID",
    "fs.cosn.userinfo.secretkey": "COSN_SECRET_KEY",
    "fs.cosn.userinfo.sessiontoken": "COSN_SESSION_TOKEN",
    "s3.access-key": "AWS_ACCESS_KEY_ID",
    "s3.secret-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session.token": "AWS_SESSION_TOKEN",
}
"""Environment variables that replace options which are secrets, by option in lower case."""
_NEXT_OPTION = re.compile(r",\s*([\w.-]+)=")
"""Begin of another option in the value of one."""
_SECRET_HEADERS = ("cookie", "credential", "api-key", "apikey")


class CatalogOptions:
    """Typed view of a catalog's options.

    Secrets in options are refused. Secrets are read only from the environment, so that no file, plan or log contains a
    secret.

    Args:
        options: the options as text.

    Raises:
        InvalidOption: a value is invalid, or an option is a secret.

    Source: ``CatalogOptions``.
    """

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._raw = {str(k): str(v) for k, v in (options or {}).items()}
        self._values: dict[str, Any] = {}
        for name, value in self._raw.items():
            words = (*_SECRETS, *(_SECRET_HEADERS if name.startswith(HEADER_PREFIX) else ()))
            if name not in _NOT_SECRET and any(word in name.lower() for word in words):
                variable = _VARIABLES.get(name.lower(), "")
                advice = f"; set {variable} instead" if variable else ""
                raise InvalidOption(name, "***", f"secrets from the environment only{advice}")
            _refuse_joined(name, value)
            if name in CATALOG_REGISTRY:
                self._values[name] = parse_value(CATALOG_REGISTRY[name], value)
            elif not name.startswith((TABLE_DEFAULT_PREFIX, HEADER_PREFIX, *HIVE_PREFIXES)):
                advice = advice_on(name)
                _LOG.warning("unknown catalog option '%s' has no effect%s", name, f": {advice}" if advice else "")
        parse_external_roots(self.external_roots, EXTERNAL_ROOTS_OPTION)
        if self.metastore not in _METASTORES:
            raise InvalidOption("metastore", self.metastore, ", ".join(_METASTORES))
        if self.metastore == "rest" and self.get("lock.enabled"):
            _LOG.warning("catalog option 'lock.enabled' has no effect: the catalog server orders all commits")
        if str(self.get("table.type")).strip().lower() not in _TABLE_TYPES:
            raise InvalidOption("table.type", self.get("table.type"), ", ".join(_TABLE_TYPES))

    @property
    def raw(self) -> Mapping[str, str]:
        """The options as text (a copy)."""
        return dict(self._raw)

    def get(self, key: str) -> Any:
        """Return the typed value of a known key, or its default.

        Raises:
            InvalidOption: the key is unknown.
        """
        definition = CATALOG_REGISTRY.get(key)
        if definition is None:
            raise InvalidOption(key, None, "a known catalog option")
        default = None if definition.default is None else parse_value(definition, definition.default)
        return self._values.get(key, default)

    @property
    def metastore(self) -> str:
        """``metastore``: filesystem, jdbc, rest or hive."""
        return str(self.get("metastore")).lower()

    @property
    def address(self) -> str:
        """The ``uri`` of the database, with the user of `jdbc.user`.

        Raises:
            InvalidOption: the option is not set.
        """
        uri, user = str(self.get("uri") or "").strip(), self.get("jdbc.user")
        if not uri:
            raise InvalidOption("uri", uri, "the JDBC address of the database (jdbc:sqlite:..., jdbc:postgresql://...)")
        if not user or "sqlite" in uri or "user=" in uri:
            return uri
        return f"{uri}{'&' if '?' in uri else '?'}user={quote(str(user), safe='')}"

    def locking(self, *, always: bool) -> dict[str, str | None]:
        """Return the table options (`dredge.lock*`) that give every table of the catalog its lock.

        The options are derived from Paimon's catalog options `lock.*` and `lock-*`.

        Args:
            always: whether a catalog with locks takes them unless `lock.enabled` is false (Java
                `AbstractCatalog.lockEnabled`: on object stores).

        Returns:
            The options by key. Without a lock, these are only the options for wait times that the catalog sets.

        Raises:
            InvalidOption: the lock is of an unknown type, or has no address.
        """
        lock_options: dict[str, str | None] = {
            f"dredge.{name.replace('-', '.', 1)}": self._raw[name]
            for name in ("lock-acquire-timeout", "lock-check-max-sleep")
            if name in self._raw
        }
        own = self.metastore if self.metastore in _LOCKING else ""
        enabled = self.get("lock.enabled")
        if not (always and own if enabled is None else enabled):
            return lock_options
        if self.metastore == "rest":  # Java's catalog takes no lock either
            return lock_options
        lock_type = str(self.get("lock.type") or own).lower()
        if lock_type not in _LOCKING or (own and lock_type != own):
            expected = f"{own or 'jdbc'}, with the address in 'uri'; for a single table use dredge.lock"
            raise InvalidOption("lock.type", self.get("lock.type"), expected)
        return {
            **lock_options,
            "dredge.lock": lock_type,
            "dredge.lock.uri": self.address if lock_type == "jdbc" else str(self.get("uri") or ""),
            "dredge.lock.key": str(self.get("catalog-key")),
        }

    @property
    def headers(self) -> dict[str, str]:
        """Headers of each request to a REST catalog server (``header.*``, without the prefix)."""
        start = len(HEADER_PREFIX)
        return {key[start:]: value for key, value in self._raw.items() if key.startswith(HEADER_PREFIX)}

    @property
    def external_roots(self) -> str:
        """``dredge.external-roots``: folders outside the tables' own for data files of tables; "" for none."""
        return str(self.get(EXTERNAL_ROOTS_OPTION) or "")

    @property
    def storage(self) -> dict[str, str]:
        """The options for access to the object store (endpoint, region, path style) that are set."""
        return {key: value for key, value in self._raw.items() if key in STORAGE_OPTIONS}

    @property
    def table_defaults(self) -> dict[str, str]:
        """Options for new tables (``table-default.*``, without the prefix)."""
        start = len(TABLE_DEFAULT_PREFIX)
        return {k[start:]: v for k, v in self._raw.items() if k.startswith(TABLE_DEFAULT_PREFIX)}


def _refuse_joined(name: str, value: str) -> None:
    """Raise InvalidOption, without the value, if it holds more options behind a comma, some of which may be secret."""
    for key in _NEXT_OPTION.findall(value):
        if key in CATALOG_REGISTRY or any(word in key.lower() for word in _SECRETS):
            raise InvalidOption(name, "***", "one value; options are not separated by commas")


def warehouse_options(warehouse: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a catalog with the warehouse that the caller named.

    A warehouse ``rest:ADDRESS`` stands for `metastore` = rest with this `uri`; the option `warehouse` is then the name
    of the warehouse on the server. In the same way, ``hive:ADDRESS`` stands for `metastore` = hive; the option
    `warehouse` is then the folder of new databases. ``hive:`` without an address takes it from hive-site.xml.

    Args:
        warehouse: path or address of the warehouse, its name on a REST catalog server, ``rest:ADDRESS`` or
            ``hive:ADDRESS``.
        options: the catalog's other options.

    Raises:
        InvalidOption: `metastore` or `uri` contradict the address.
    """
    for scheme in (REST_SCHEME, HIVE_SCHEME):
        if warehouse.lower().startswith(scheme):
            server = {"metastore": scheme[:-1], "uri": warehouse[len(scheme) :]}
            if scheme == HIVE_SCHEME and not server["uri"].strip():
                del server["uri"]
            for key, value in server.items():
                if str(options.get(key, value)).lower() != value.lower():
                    raise InvalidOption(key, options[key], f"{value}, because the warehouse is {warehouse}")
            return {"warehouse": "", **options, **server}
    return {"warehouse": warehouse, **options}


def is_address(warehouse: str) -> bool:
    """Return whether a warehouse is an address, of a store or of a catalog server, and not a local path."""
    return "://" in warehouse or warehouse.lower().startswith((REST_SCHEME, HIVE_SCHEME))


def is_catalog_option(key: str) -> bool:
    """Return whether ``key`` is a catalog option, for mixed lists of options, such as those of a Spark data source."""
    return key in CATALOG_REGISTRY or key.startswith((TABLE_DEFAULT_PREFIX, HEADER_PREFIX, HIVE_PREFIXES[0]))


def parse_catalog_options(text: str, source: str) -> dict[str, str]:
    """Parse catalog options from a text.

    Args:
        text: ``KEY=VALUE`` pairs separated by blanks, or a JSON object of texts.
        source: name of the text's origin, for messages.

    Returns:
        The options.

    Raises:
        InvalidOption: the text has neither form; the message names ``source``.
    """
    accepted = "KEY=VALUE pairs separated by blanks, or a JSON object of texts"
    if text.lstrip().startswith("{"):
        try:
            parsed = parse_json(text)
        except ValueError as error:
            raise InvalidOption(source, "***", f"{accepted} ({error})") from error
        if not all(isinstance(value, str) for value in parsed.values()):
            raise InvalidOption(source, "***", accepted)
        return dict(parsed)
    options = {}
    for part in text.split():
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise InvalidOption(source, "***", accepted)
        options[key] = value
    return options
