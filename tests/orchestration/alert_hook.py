"""Webhook for tests, which stores the received alerts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AlertHook:
    """Server on a free port that answers POSTs with ``status`` and appends their JSON content to ``sent``, their keys to ``keys``."""

    def __init__(self) -> None:
        self.status, self.sent, self.keys = 200, [], []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.keys.append(self.headers.get("Idempotency-Key"))
                hook.sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(hook.status)
                self.send_header("Location", "http://localhost:9/elsewhere")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/T0/secret"

    @contextmanager
    def running(self) -> Iterator[AlertHook]:
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()
