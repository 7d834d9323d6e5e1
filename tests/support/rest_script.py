"""Scripted REST catalog server: a test decides each answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lsm_core import Catalog

Answer = tuple[int, dict[str, str], bytes]


class Script:
    """Scripted server.

    Attributes:
        url: address of the server.
        answer: returns the answer to (method, path).
        seen: (method, path, headers) of each request.
    """

    def __init__(self) -> None:
        self.answer: Callable[[str, str], Answer] = lambda method, path: (200, {}, b"{}")
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                script.seen.append((self.command, self.path, dict(self.headers)))
                status, headers, data = script.answer(self.command, self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
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

    def answers(self, **by_end: object) -> None:
        """Answer by the end of the path; `config` has a default."""
        known = {"config": {"defaults": {"prefix": "p"}, "overrides": {}}, **by_end}

        def answer(method: str, path: str) -> Answer:
            end = path.partition("?")[0].rpartition("/")[2]
            value = known.get(end, (404, {}, b'{"message": "nothing", "resourceType": "TABLE", "code": 404}'))
            value = value() if callable(value) else value
            return value if isinstance(value, tuple) else (200, {}, json.dumps(value).encode())

        self.answer = answer

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def open_house(script: Script, **options: str) -> Catalog:
    """Return the catalog of the scripted server."""
    return Catalog("house", {"metastore": "rest", "uri": script.url, **options})


def table_answer(path: object, **members: object) -> dict[str, object]:
    """Return a description of the table db.t."""
    schema = {"fields": [], "partitionKeys": [], "primaryKeys": [], "options": {}}
    return {"id": "1", "name": "t", "path": path, "isExternal": False, "schemaId": 0, "schema": schema, **members}
