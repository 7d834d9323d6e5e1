"""Paimon's own REST catalog server in a process of its own, and a proxy in front of it that makes requests fail."""

from __future__ import annotations

import http.client
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.support.peers import PAIMON_JAVA, compiled, java_environment, missing, peer_module

PAIMON_REST = PAIMON_JAVA.parent / "paimon-rest"
TOKEN: Final = "secret-of-the-tests"
WAREHOUSE: Final = "house"


class RestServer:
    """The running server. Raises PeerMissing without its jars or Java.

    Attributes:
        url: address of the server.
    """

    def __init__(self, folder: Path) -> None:
        peer = peer_module()
        if not list(PAIMON_REST.glob("paimon-core-*-tests.jar")):
            raise peer.PeerMissing("no jars of Paimon's REST catalog server in .peers/paimon-rest (run `make peers`)")
        java_environment()
        java = peer.java_command()
        jars = os.pathsep.join([peer.classpath(peer.DEFAULT_VERSION), *map(str, sorted(PAIMON_REST.glob("*.jar")))])
        classes = compiled("PaimonRestServer", [Path(__file__).with_name("PaimonRestServer.java")], java, jars)
        flags = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.timezone=UTC"]
        class_path = os.pathsep.join([str(classes), jars])
        self._process = subprocess.Popen(
            [*flags, "-cp", class_path, "PaimonRestServer", str(folder), WAREHOUSE, TOKEN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = self._line()

    def tell(self, command: str) -> None:
        """Send a command of PaimonRestServer, such as "forbid-table db.t"."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._line() == "done"

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise peer_module().PeerMissing("Paimon's REST catalog server did not start")
        return line


def start_server(folder: Path) -> RestServer:
    """Return the running server; skip the test, and say so, if its jars or Java are missing."""
    try:
        return RestServer(folder)
    except peer_module().PeerMissing as error:
        return missing(f"Paimon's REST catalog server: {error}")  # type: ignore[no-any-return]


@dataclass
class Fault:
    """Fault of the next matching requests.

    Attributes:
        method: HTTP method.
        part: text that the path contains.
        kind: "cut-before", "cut-after" (connection closed before or after the server acted), or a status for an
            answer "status-before" or "status-after", such as "503-before".
        times: number of requests that still fail.
        headers: headers of the answer with the status.
        data: body of the answer with the status.
    """

    method: str
    part: str
    kind: str
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""


class FaultyProxy:
    """Proxy in front of a server.

    Attributes:
        url: address of the proxy.
        faults: faults that are still to come.
        requests: (method, path) of each request that arrived.
        delay: seconds before each answer.
        before: called with (method, path) before a request is forwarded.
    """

    def __init__(self, target: str) -> None:
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.delay = 0.0
        self.before: Callable[[str, str], None] = lambda method, path: None
        proxy, parts = self, urlsplit(target)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.requests.append((self.command, self.path))
                fault = proxy.next_fault(self.command, self.path)
                moment = "" if fault is None else fault.kind.partition("-")[2]
                time.sleep(proxy.delay)
                status, headers, data = 0, {}, b""
                if moment != "before":
                    proxy.before(self.command, self.path)
                    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
                    kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                    connection.request(self.command, self.path, body, kept)
                    answer = connection.getresponse()
                    status, data = answer.status, answer.read()
                    connection.close()
                if fault is not None:
                    if fault.kind.startswith("cut"):
                        self.close_connection = True
                        self.connection.close()
                        return
                    status, headers, data = int(fault.kind.partition("-")[0]), fault.headers, fault.data
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, *arguments: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def next_fault(self, method: str, path: str) -> Fault | None:
        """Return the fault of a request, and count it."""
        for fault in self.faults:
            if fault.times and fault.method == method and fault.part in path:
                fault.times -= 1
                return fault
        return None

    def close(self) -> None:
        """End the proxy."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
