"""HTTP server of `dredge metrics --listen`, from which Prometheus scrapes the metrics."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast

from lsm_core.errors import DredgeError, InvalidOption

_LOCAL: Final = "127.0.0.1"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST_SECONDS: Final = 10
"""Seconds that a client may take to send its request or to receive the answer."""
_MOST_PORT: Final = 65_535


class LatestText:
    """Cached text, which is read again if it is requested and older than a given age.

    Requests at the same time share one reading, so that scrapers cannot multiply the load on the warehouse.
    """

    def __init__(self, read_text: Callable[[], str], pause_seconds: float) -> None:
        """Keep the function that reads the text.

        Args:
            read_text: function that reads the text.
            pause_seconds: age in seconds up to which the last text is returned again.
        """
        self._read_text, self._pause = read_text, pause_seconds
        self._lock = threading.Lock()
        self._text: str | None = None
        self._read_at = 0.0

    def get(self) -> str:
        """Return the last text, or a new one if the last is too old; errors of the reading pass through."""
        with self._lock:
            if self._text is None or time.monotonic() - self._read_at >= self._pause:
                self._text = self._read_text()
                self._read_at = time.monotonic()
            return self._text


class MetricsServer(ThreadingHTTPServer):
    """HTTP server of the metrics text at ``/metrics``.

    Attributes:
        latest: cached text of the metrics.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], latest: LatestText) -> None:
        """Bind the address.

        Args:
            address: host and port.
            latest: cached text of the metrics.
        """
        self.latest = latest
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection early, instead of printing a traceback."""


class _Handler(BaseHTTPRequestHandler):
    server_version = "dredge"
    sys_version = ""
    timeout = _REQUEST_SECONDS

    def do_GET(self) -> None:
        """Answer with the metrics, or 404 for any other path."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer as for GET, without the text."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, "the metrics are at /metrics\n", with_body=with_body)
            return
        try:
            text = cast("MetricsServer", self.server).latest.get()
        except Exception as error:  # noqa: BLE001  (the scrape must fail, and the server must stay)
            reason = type(error).__name__  # the message may contain paths, and anyone may connect
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, f"the warehouse cannot be read: {reason}\n", with_body=True)
            return
        self._send(HTTPStatus.OK, text, with_body=with_body)

    def _send(self, status: HTTPStatus, text: str, *, with_body: bool) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", _TEXT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the standard library)
        """Log nothing: each scrape would be a line."""


def open_server(address: str, read_text: Callable[[], str], pause_seconds: float) -> MetricsServer:
    """Return a server that is bound to an address.

    Args:
        address: "HOST:PORT", "[IPv6]:PORT" or "PORT"; port 0 takes a free port.
        read_text: function that reads the metrics.
        pause_seconds: age in seconds up to which the last metrics are served again.

    Raises:
        InvalidOption: the address is not of this form.
        DredgeError: the address cannot be bound, for example because the port is in use.
    """
    host, _, port = address.strip().rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > _MOST_PORT:
        raise InvalidOption("--listen", address, f"HOST:PORT or PORT, with a port of 0 to {_MOST_PORT}")
    try:
        return MetricsServer(
            (host.removeprefix("[").removesuffix("]") or _LOCAL, int(port)), LatestText(read_text, pause_seconds)
        )
    except OSError as error:
        raise DredgeError(f"--listen {address} cannot be bound: {error.strerror or error}") from error


def serve_until_stopped(server: MetricsServer) -> None:
    """Serve requests until SIGINT or SIGTERM, then close the server.

    Args:
        server: server of :func:`open_server`, bound to its address.
    """

    def stop(_: int, __: object) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()  # shutdown waits for the loop of this thread

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.serve_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.server_close()
