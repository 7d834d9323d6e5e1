"""Addresses and settings of a Hive metastore, from catalog options and the operator's hive-site.xml.

Only known keys are read from the file, because a hive-site.xml may hold passwords.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from lsm_core.errors import InvalidOption, UnsupportedFeature

HIVE_CONF_DIR, HADOOP_CONF_DIR = "hive-conf-dir", "hadoop-conf-dir"
CLIENT_CLASS: Final = "metastore.client.class"
_DEFAULT_PORT: Final = 9083
_MAX_ADDRESSES: Final = 16
_MAX_FILE_BYTES: Final = 4 << 20
_ACCEPTED: Final = "addresses like thrift://host:9083, separated by commas, without user and password"
_JAVA_CLIENT: Final = "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"
_PREFIXES: Final = ("hive.metastore.", "metastore.")
_URIS, _WAREHOUSE = ("thrift.uris", "uris"), "warehouse.dir"
_KNOWN: Final = frozenset(
    {
        "thrift.uris",
        "uris",
        "warehouse.dir",
        "sasl.enabled",
        "kerberos.principal",
        "client.socket.timeout",
        "batch.retrieve.max",
        "use.ssl",
        "thrift.framed.transport.enabled",
        "thrift.compact.protocol.enabled",
        "thrift.transport.mode",
        "client.auth.mode",
    }
)
_REFUSED: Final = {
    "use.ssl": ("true", "TLS"),
    "thrift.framed.transport.enabled": ("true", "framed transport"),
    "thrift.compact.protocol.enabled": ("true", "the compact protocol"),
    "thrift.transport.mode": ("http", "Thrift over HTTP"),
    "client.auth.mode": ("PLAIN", "a login with a password"),
}
_DURATION = re.compile(r"\s*(\d{1,12})\s*([a-zA-Z]*)\s*")
_SECONDS: Final = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 0.001, "msec": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class HiveSettings:
    """Settings of the connections to a metastore.

    Attributes:
        addresses: pairs (host, port), in the order in which they are tried.
        warehouse: folder for new databases, or "" if no option and no file names it.
        pool_size: largest number of open connections.
        call_seconds: longest duration of one call, in s.
        batch_size: number of tables that one call describes, at most.
        principal: Kerberos principal of the server, such as "hive/_HOST@REALM"; "" without Kerberos.
    """

    addresses: tuple[tuple[str, int], ...]
    warehouse: str = ""
    pool_size: int = 2
    call_seconds: float = 60.0
    batch_size: int = 300
    principal: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """The addresses as text, for messages."""
        return ",".join(address_text(address) for address in self.addresses)


def hive_settings(options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> HiveSettings:
    """Return the settings of a metastore.

    Catalog options come before the file hive-site.xml in `hive-conf-dir` (or the variable HIVE_CONF_DIR), and this file
    before core-site.xml in `hadoop-conf-dir`, as in Java.

    Args:
        options: options of the catalog.
        environment: environment variables; None for those of this process.

    Raises:
        InvalidOption: an address, number or file is missing or invalid.
        UnsupportedFeature: the metastore needs a transport, login or client class that is not offered.
    """
    environment = os.environ if environment is None else environment
    client_class = options.get(CLIENT_CLASS, _JAVA_CLIENT).strip()
    if client_class != _JAVA_CLIENT:
        raise UnsupportedFeature(f"the metastore client '{client_class:.200}' ({CLIENT_CLASS}); remove the option")
    values: dict[str, str] = {}
    hadoop = options.get(HADOOP_CONF_DIR, "").strip()
    if hadoop:
        values |= _read_file(HADOOP_CONF_DIR, hadoop, "core-site.xml")
    hive, source = options.get(HIVE_CONF_DIR, "").strip(), HIVE_CONF_DIR
    if not hive:
        hive, source = environment.get("HIVE_CONF_DIR", "").strip(), "HIVE_CONF_DIR"
    if hive:
        values |= _read_file(source, hive, "hive-site.xml")
    values |= _known(options)
    for name, (refused, feature) in _REFUSED.items():
        if values.get(name, "").strip().lower() == refused.lower():
            raise UnsupportedFeature(f"{feature} to the Hive metastore (hive.metastore.{name} = {refused})")
    uris = options.get("uri", "").strip() or next((values[key] for key in _URIS if values.get(key, "").strip()), "")
    has_kerberos = values.get("sasl.enabled", "").strip().lower() == "true"
    principal = values.get("kerberos.principal", "").strip()
    if has_kerberos and not re.fullmatch(r"[\w.-]{1,200}/[\w.-]{1,200}(@[\w.-]{1,200})?", principal):
        raise InvalidOption("hive.metastore.kerberos.principal", principal, "a principal such as hive/_HOST@REALM")
    return HiveSettings(
        parse_addresses(uris),
        options.get("warehouse", "").strip() or _with_scheme(values.get(_WAREHOUSE, "").strip()),
        _number("client-pool-size", options.get("client-pool-size", "2"), 1, 1000),
        _seconds(values.get("client.socket.timeout", "60 s")),
        _number("hive.metastore.batch.retrieve.max", values.get("batch.retrieve.max", "300"), 1, 100_000, low=300),
        principal if has_kerberos else "",
    )


def parse_addresses(uris: str) -> tuple[tuple[str, int], ...]:
    """Return the pairs (host, port) of a list of addresses. Raises InvalidOption."""
    addresses = []
    for text in uris.split(","):
        try:
            parts = urlsplit(text.strip())
            host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
            valid = parts.scheme.lower() == "thrift" and "@" not in parts.netloc and not parts.query
            valid = valid and parts.path in ("", "/") and re.fullmatch(r"[\w.:%-]{1,255}", host) is not None
        except ValueError:
            valid = False
        if not valid:
            shown = re.sub(r"[?;].*", "", re.sub(r"//[^/,]*@", "//***@", uris), flags=re.DOTALL)
            raise InvalidOption("uri", f"{shown:.200}", f"{_ACCEPTED} (or hive.metastore.uris in hive-site.xml)")
        addresses.append((host, port))
    if len(addresses) > _MAX_ADDRESSES:
        raise InvalidOption("uri", f"{len(addresses)} addresses", f"at most {_MAX_ADDRESSES} addresses")
    return tuple(addresses)


def address_text(address: tuple[str, int]) -> str:
    """Return the text of a pair (host, port)."""
    host, port = address
    return f"thrift://[{host}]:{port}" if ":" in host else f"thrift://{host}:{port}"


def require_thrift() -> None:
    """Raise UnsupportedFeature if the packages of the Thrift client are not installed."""
    try:
        import pymetastore.hive_metastore  # noqa: F401 - the import is the test
        import thrift  # noqa: F401 - the import is the test
    except ModuleNotFoundError as error:
        raise UnsupportedFeature(f"Hive metastores without the package {error.name}; pip install 'dredge[hive]'") from (
            error
        )


def _read_file(option: str, folder: str, name: str) -> dict[str, str]:
    """Return the known settings of a Hadoop configuration file. Raises InvalidOption."""
    path = f"{folder.removeprefix('file://').rstrip('/')}/{name}"
    try:
        with open(path, "rb") as source:
            data = source.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise InvalidOption(option, folder, f"a folder whose {name} has at most {_MAX_FILE_BYTES} bytes")
        root = ElementTree.fromstring(data)  # noqa: S314 - a file of the operator; expat expands no external entities
    except (OSError, ElementTree.ParseError, LookupError, ValueError) as error:
        raise InvalidOption(option, folder, f"a local folder with a readable {name} ({error})") from error
    pairs = {}
    for entry in root.iter("property"):
        key, value = (entry.findtext(tag) or "" for tag in ("name", "value"))
        if "${" not in value:
            pairs[key.strip()] = value.strip()
    return _known(pairs)


def _with_scheme(folder: str) -> str:
    """Return an address, or "" for a path without a scheme, whose file system only the metastore knows."""
    return folder if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", folder) else ""


def _known(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Dredge reads, by their names without ``hive.metastore.`` or ``metastore.``."""
    return {short: value for name, value in pairs.items() if (short := _short_name(name)) is not None}


def _short_name(name: str) -> str | None:
    lower = name.lower()  # Spark's data source has option names in lower case
    for prefix in _PREFIXES:
        if lower.startswith(prefix) and lower[len(prefix) :] in _KNOWN:
            return lower[len(prefix) :]
    return None


def _number(option: str, text: str, least: int, most: int, *, low: int | None = None) -> int:
    """Return a whole number; one below ``least`` counts as ``low``, if ``low`` is not None. Raises InvalidOption."""
    try:
        number = int(text)
    except ValueError:
        number = most + 1
    if number < least and low is not None:
        return low
    if not least <= number <= most:
        raise InvalidOption(option, f"{text:.100}", f"a whole number from {least} to {most}")
    return number


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    unit = _SECONDS.get(match.group(2).lower()) if match else None
    seconds = 0.0 if match is None or unit is None else int(match.group(1)) * unit
    if not 0 < seconds <= 24 * 3600:
        accepted = "a duration such as 60s, of at most 24 h"
        raise InvalidOption("hive.metastore.client.socket.timeout", f"{text:.100}", accepted)
    return seconds
