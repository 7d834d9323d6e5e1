"""A real Hive metastore in a process of its own, and a proxy in front of it that cuts connections.

The metastore is the one whose jars come with PySpark. Its database is Derby in memory, so it ends with the process.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.peers import compiled, java_environment, missing, peer_module
from tests.support.spark import JAVA_OPTIONS

JAVA_FLAGS: Final = ("-Xmx512m", "-Duser.timezone=UTC", *JAVA_OPTIONS.split())
PACKAGES: Final = ("java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent")
"""Packages of the Java runtime that Hive opens by reflection."""
_CALL: Final = re.compile(rb"\x80\x01\x00\x01\x00\x00\x00.([A-Za-z_]+)", re.DOTALL)
"""Begin of a call in Thrift's binary protocol."""


def hive_jars() -> list[str]:
    """Return the jars of PySpark, among them those of Hive's metastore.

    Raises:
        PeerMissing: PySpark is not installed, or has no Hive.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path("nowhere") if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    if not list(folder.glob("hive-metastore-*.jar")):
        raise peer_module().PeerMissing(f"no hive-metastore-*.jar in {folder} (pip install pyspark)")
    return [str(jar) for jar in sorted(folder.glob("*.jar"))]


class HiveServer:
    """The running metastore.

    Attributes:
        uri: address for clients, such as "thrift://127.0.0.1:9083".
        port: port of the address.
        warehouse: folder of the databases that have no location of their own.

    Args:
        folder: an empty folder for the metastore's files.
        settings: settings of Hive beside those of the tests, such as {"hive.txn.timeout": "2s"}.

    Raises:
        PeerMissing: PySpark or Java is missing, or the metastore does not start.
    """

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        java_environment()
        java = peer_module().java_command()
        jars = os.pathsep.join(hive_jars())
        classes = compiled("HiveServer", [Path(__file__).with_name("HiveServer.java")], java, jars)
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        log = folder / "metastore.log"
        chosen = {"hive.metastore.warehouse.dir": str(self.warehouse), **(settings or {})}
        flags = [*JAVA_FLAGS, f"-Djava.io.tmpdir={folder}", f"-Dderby.stream.error.file={folder / 'derby.log'}"]
        flags += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in PACKAGES]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(java, *flags, "-cp", os.pathsep.join([str(classes), jars]), "HiveServer"),
                    *map("=".join, chosen.items()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            self.close()
            raise peer_module().PeerMissing(f"the metastore did not start: {log.read_text(errors='replace')[-800:]}")
        self.port = int(line)
        self.uri = f"thrift://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=20)
        self._process.stdout.close()


def start_hive_server(folder: Path, settings: dict[str, str] | None = None) -> HiveServer:
    """Return the running metastore; skip the test, and say so, if PySpark's jars or Java are missing."""
    try:
        return HiveServer(folder, settings)
    except peer_module().PeerMissing as error:
        return missing(f"Hive metastore: {error}")  # type: ignore[no-any-return]


@dataclass
class Cut:
    """Connections that the proxy closes.

    Attributes:
        method: the metastore's method of the message, such as "check_lock"; "" for each message.
        moment: "before" the message reaches the metastore, or "after" the metastore has answered it.
        times: number of messages that still fail.
    """

    method: str
    moment: str
    times: int = 1


class HiveProxy:
    """Proxy in front of a metastore.

    Attributes:
        uri: address of the proxy.
        cuts: connections that are still to be closed.
        methods: name of each method that was called through the proxy, in order.
    """

    def __init__(self, port: int) -> None:
        self.cuts: list[Cut] = []
        self.methods: list[str] = []
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"thrift://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close the proxy and all its connections."""
        _shut(self._listener, *self._open)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open += [client, server]
                dropped = threading.Event()
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, server, dropped), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, dropped: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                for name in _CALL.findall(data):
                    self.methods.append(name.decode())
                    cut = self._cut(name.decode())
                    if cut == "before":
                        return _shut(client, server)
                    if cut == "after":
                        dropped.set()
                server.sendall(data)
        return _shut(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, dropped: threading.Event) -> None:
        with suppress(OSError):
            while (data := server.recv(1 << 20)) and not dropped.is_set():
                client.sendall(data)
        _shut(client, server)

    def _cut(self, method: str) -> str:
        """Return the moment at which the connection is closed for a message, or ""."""
        for cut in self.cuts:
            if cut.times > 0 and cut.method in {"", method}:
                cut.times -= 1
                return cut.moment
        return ""


def _shut(*connections: socket.socket) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
