"""Servers of stores: HDFS (a small cluster from Hadoop's jars) and Azurite for Azure.

`scripts/peers.py --stores` fetches them into .peers. A missing server skips its tests and says so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from lsm_core.spark.java import java_executable
from tests.support.hive_server import hive_jars
from tests.support.peers import ROOT, missing

HDFS_JARS = ROOT / ".peers" / "hdfs"
AZURITE = ROOT / ".peers" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
_SECONDS_TO_START = 180.0
_ACCOUNT = "tests"
_ACCOUNT_KEY = base64.b64encode(b"a key of tests").decode()


@dataclass
class StoreServer:
    """A running server.

    Attributes:
        warehouse: address of a warehouse, in which `folder` makes folders.
        options: catalog options for the server.
        environment: variables with the keys of the server, for this process and others.
    """

    warehouse: str
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def folder(self) -> str:
        """Return the address of a folder that no other test uses."""
        return f"{self.warehouse}/f{uuid.uuid4().hex[:12]}"


@contextmanager
def hdfs_cluster(folder: Path) -> Iterator[StoreServer]:
    """Run a name node and a data node in one JVM; ``folder`` holds their files."""
    jars = sorted(HDFS_JARS.glob("*.jar"))
    if not jars:
        missing("no Hadoop cluster in .peers/hdfs; run `scripts/peers.py --stores`")
    details = folder / "details.json"
    (folder / "log4j2.properties").write_text("rootLogger.level = error\n")
    command = [
        java_executable(),
        *("-XX:TieredStopAtLevel=1", "-Xmx512m", "-Dlog4j2.configurationFile=log4j2.properties"),
        f"-Dtest.build.data={folder}/data",
        *("-cp", os.pathsep.join(map(str, [*jars, *hive_jars()]))),
        *("org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format"),
        *("-writeDetails", str(details)),
    ]
    with _running(command, folder, {}) as process:
        _wait(process, lambda: details.is_file() and details.stat().st_size > 0, folder)
        port = json.loads(details.read_text())["namenode_port"]
        yield StoreServer(f"hdfs://127.0.0.1:{port}/house")


@contextmanager
def azurite(folder: Path) -> Iterator[StoreServer]:
    """Run Azurite with one account and one container."""
    node = shutil.which("node")
    if node is None or not AZURITE.exists():
        missing("no Azurite in .peers/azurite, or no node; run `scripts/peers.py --stores`")
    port = _free_port()
    command = [str(node), str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    with _running(command, folder, {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_ACCOUNT_KEY}"}) as process:
        _wait(process, lambda: _is_open(port), folder)
        _create_container(endpoint, "files")
        keys = {"AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY, "AZURE_STORAGE_ENDPOINT": endpoint}
        yield StoreServer(f"abfss://files@{_ACCOUNT}.dfs.core.windows.net/house", environment=keys)


@contextmanager
def _running(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _create_container(endpoint: str, name: str) -> None:
    """Create a container with a request that the account's key signs."""
    date, version = formatdate(usegmt=True), "2021-12-02"
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    text = f"PUT\n{chr(10) * 10}\nx-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    digest = hmac.new(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Content-Length": "0",
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"the container was not created: {error.read()[:500]!r}") from error
