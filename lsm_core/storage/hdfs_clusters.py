"""HDFS clusters that the operator's configuration names; a catalog server may not name others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree

from lsm_core.errors import InvalidOption, StorageRefused
from lsm_core.options.catalog_options import DEFAULT_FS, HADOOP_CONF
from lsm_core.storage.safe_paths import place_of

_MAX_BYTES: Final = 16 << 20


def require_known_cluster(address: str, options: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Check that an HDFS address from a catalog server is in a cluster of the operator's configuration.

    Args:
        address: address of a folder.
        options: the catalog's storage options.
        environment: the environment variables.

    Raises:
        StorageRefused: the cluster is unknown.
        InvalidOption: a file of Hadoop's configuration cannot be read.
    """
    place = place_of(address)
    known = known_clusters(options, environment)
    if place not in known:
        shown = ", ".join(sorted(known)) or "none"
        reason = (
            f"the catalog server names a cluster that this configuration does not (known: {shown}); set the catalog "
            f"option {DEFAULT_FS}, or {HADOOP_CONF} to a folder with Hadoop's configuration"
        )
        raise StorageRefused(address, reason, "reach")


def known_clusters(options: Mapping[str, str], environment: Mapping[str, str]) -> set[str]:
    """Return the addresses of the clusters that options and Hadoop's configuration name, as in ``hdfs://host:8020``."""
    clusters = {options.get(DEFAULT_FS, "")}
    folder = options.get(HADOOP_CONF) or environment.get("HADOOP_CONF_DIR", "")
    if not folder and environment.get("HADOOP_HOME"):
        folder = os.path.join(environment["HADOOP_HOME"], "etc", "hadoop")
    if folder:
        clusters.add(_properties(folder, "core-site.xml").get(DEFAULT_FS, ""))
        services = _properties(folder, "hdfs-site.xml").get("dfs.nameservices", "")
        clusters |= {f"hdfs://{service.strip()}" for service in services.split(",") if service.strip()}
    return {place for place in map(place_of, clusters) if place.startswith("hdfs://")}


def _properties(folder: str, name: str) -> dict[str, str]:
    """Return the properties of one file of Hadoop's configuration; empty if the file does not exist.

    Raises:
        InvalidOption: the file cannot be read, or is no such file.
    """
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidOption(HADOOP_CONF, folder, f"a folder with a readable {name} ({error.strerror})") from error
    try:
        root = ElementTree.fromstring(data if len(data) <= _MAX_BYTES else b"")  # noqa: S314 - a file of the operator
    except ElementTree.ParseError as error:
        raise InvalidOption(HADOOP_CONF, folder, f"a folder with a valid {name} ({error})") from error
    return {
        (item.findtext("name") or "").strip(): (item.findtext("value") or "").strip() for item in root.iter("property")
    }
