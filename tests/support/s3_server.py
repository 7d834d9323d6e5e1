"""S3 server (moto) in its own process on loopback, with correct conditional writes and with failures on request.

`python -m tests.support.s3_server` prints its port and serves until its standard input closes. Requests are executed
one at a time, because moto checks a condition and writes an object in two steps. So two concurrent conditional writes
would both succeed.

Further requests: `GET /_control/requests` returns and clears the list of requests, `POST /_control/fail` sets the next
failures, `POST /_control/keys` sets the ids of the keys that the server accepts, and `POST /_control/copy`, `list` and
`drop` process many objects.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_REGION": "us-east-1"}
_UNKNOWN_KEY = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
PROVIDER_KEYS = {
    "OSS_ACCESS_KEY_ID": "tests",
    "OSS_ACCESS_KEY_SECRET": "tests",
    "OBS_ACCESS_KEY_ID": "tests",
    "OBS_SECRET_ACCESS_KEY": "tests",
    "COSN_SECRET_ID": "tests",
    "COSN_SECRET_KEY": "tests",
}
"""Keys of the providers whose stores the server stands for."""


class Application:
    """WSGI application: moto's S3, one request at a time, with a list of requests and failures on request."""

    def __init__(self, served: Any) -> None:
        self._served, self._lock = served, threading.Lock()
        self._diary: list[dict[str, Any]] = []
        self._failures: list[dict[str, Any]] = []
        self._keys: list[str] = []  # ids of accepted keys; empty for any

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith("/_control/"):
            return [self._control(path, body, start_response)]
        with self._lock:
            line = {
                "method": method,
                "path": path,
                "query": environ["QUERY_STRING"],
                "range": environ.get("HTTP_RANGE"),
                "key": environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0],
                "session": environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""),
            }
            self._diary.append(line)
            if self._keys and line["key"] not in self._keys:
                start_response("403 Forbidden", [("Content-Length", str(len(_UNKNOWN_KEY)))])
                return [_UNKNOWN_KEY]
            failure = self._due(method, path)
            if failure is not None and failure["mode"] == "before":
                return self._refuse(start_response)
            answer: list[Any] = []
            is_google = path.startswith("/gs")
            if is_google:
                _as_s3(environ)
            refusal = _provider_refusal(method, path, environ)
            if refusal is not None:
                start_response(refusal[0], [("Content-Length", str(len(refusal[1])))])
                return [refusal[1]]
            parts = self._served(environ, lambda *told: answer.append(told))
            data = b"".join(parts)
            close = getattr(parts, "close", None)
            if close is not None:
                close()
            if failure is not None:
                return self._refuse(start_response)
        status, headers, *rest = answer[0]
        start_response(status, _as_google(headers) if is_google else headers, *rest)
        return [data]

    def _due(self, method: str, path: str) -> dict[str, Any] | None:
        for failure in self._failures:
            if failure["method"] == method and failure["part"] in path and failure["times"] > 0:
                failure["times"] -= 1
                return failure
        return None

    def _refuse(self, start_response: Any) -> list[bytes]:
        start_response("500 Internal Server Error", [("Content-Length", "0")])
        return [b""]

    def _control(self, path: str, body: bytes, start_response: Any) -> bytes:
        data = b"{}"
        with self._lock:
            if path == "/_control/requests":
                data, self._diary = json.dumps(self._diary).encode(), []
            elif path == "/_control/fail":
                self._failures = json.loads(body)
            elif path == "/_control/keys":
                self._keys = json.loads(body)
            else:
                data = json.dumps(_with_prefix(path.rpartition("/")[2], **json.loads(body))).encode()
        start_response("200 OK", [("Content-Length", str(len(data))), ("Content-Type", "application/json")])
        return data


def _provider_refusal(method: str, path: str, environ: dict[str, Any]) -> tuple[str, bytes] | None:
    """Answer a conditional put as the provider of the bucket does, or return None to execute the request.

    Buckets `oss-...` and `cosn-...` do not implement If-None-Match but have a header of their own. Buckets `obs-...`
    ignore If-None-Match.
    """
    bucket, _, key = path.strip("/").partition("/")
    provider = bucket.partition("-")[0]
    if method != "PUT" or provider not in ("oss", "cosn", "obs"):
        return None
    if provider == "obs":
        environ.pop("HTTP_IF_NONE_MATCH", None)
    elif "HTTP_IF_NONE_MATCH" in environ:
        return "501 Not Implemented", b"<Error><Code>NotImplemented</Code></Error>"
    header = {"oss": "HTTP_X_OSS_FORBID_OVERWRITE", "cosn": "HTTP_X_COS_FORBID_OVERWRITE"}.get(provider, "")
    if environ.get(header) == "true" and key and key in _keys_of(bucket):
        return "409 Conflict", b"<Error><Code>FileAlreadyExists</Code></Error>"
    return None


def _as_s3(environ: dict[str, Any]) -> None:
    """Give a request to Google's XML interface the headers of S3, whose requests are otherwise the same."""
    for name in [name for name in environ if name.startswith("HTTP_X_GOOG_META_")]:
        environ[name.replace("X_GOOG", "X_AMZ")] = environ.pop(name)
    if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", "") == "0":
        environ["HTTP_IF_NONE_MATCH"] = "*"
    scope = "Credential=tests/20260101/us-east-1/s3/aws4_request"
    environ["HTTP_AUTHORIZATION"] = f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"


def _as_google(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    renamed = [(name.lower().replace("x-amz-meta-", "x-goog-meta-"), value) for name, value in headers]
    return [*renamed, ("x-goog-generation", "1")]


def _keys_of(bucket: str) -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_bucket(bucket).keys


def _with_prefix(verb: str, bucket: str, prefix: str, to: str = "") -> dict[str, str]:
    """Copy, list (ETags by name) or delete all objects whose keys begin with ``prefix``, in one request."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    keys = backend.get_bucket(bucket).keys
    found = {name: key for name, key in list(keys.items()) if name.startswith(prefix)}
    if verb == "copy":
        for name, key in found.items():
            made = backend.put_object(bucket, to + name.removeprefix(prefix), key.value, disable_notification=True)
            made.set_metadata(dict(key.metadata), replace=True)
    elif verb == "drop":
        for name in found:
            del keys[name]
    return {name.removeprefix(prefix): str(key.etag) for name, key in found.items()} if verb == "list" else {}


def serve() -> None:
    """Serve on a free port until standard input ends."""
    import logging

    # Pages of listings are small, so that tests need few files to see more than one.
    os.environ.update(ENVIRONMENT, AWS_DEFAULT_REGION="us-east-1", MOTO_S3_DEFAULT_MAX_KEYS="100")
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections stay open
    WSGIRequestHandler.disable_nagle_algorithm = True
    server = make_server("127.0.0.1", 0, Application(create_backend_app("s3")), threaded=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


@dataclass(frozen=True)
class S3Server:
    """Client of a running server for tests."""

    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Catalog options for the server."""
        return {"s3.endpoint": self.endpoint, "s3.path.style.access": "true"}

    def bucket(self, scheme: str = "s3") -> str:
        """Create an empty bucket and return its address; the scheme's provider decides about conditional puts."""
        prefix = {"s3": "b", "gs": "gs"}.get(scheme, f"{scheme}-")
        name = f"{prefix}{uuid.uuid4().hex[:12]}"
        self._ask("PUT", f"/{name}")
        return f"{scheme}://{name}"

    def provider_options(self, scheme: str, mode: str = "") -> dict[str, str]:
        """Catalog options for the server as a store of another provider."""
        endpoint = {"oss": "fs.oss.endpoint", "obs": "fs.obs.endpoint"}.get(scheme, "fs.cosn.bucket.endpoint_suffix")
        options = {endpoint: self.endpoint, "s3.path.style.access": "true"}
        return {**options, "dredge.exclusive-create": mode} if mode else options

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests since the last call, in the order of execution."""
        return list(json.loads(self._ask("GET", "/_control/requests")))

    def fail(self, method: str, part: str, *, mode: str, times: int = 1) -> None:
        """Answer the next requests with status 500.

        Args:
            method: HTTP method of the requests.
            part: text in the paths of the requests.
            mode: "before" to not execute the requests, "after" to execute them.
            times: number of requests; 0 to end failures.
        """
        wanted = [{"method": method, "part": part, "mode": mode, "times": times}] if times else []
        self._ask("POST", "/_control/fail", json.dumps(wanted).encode())

    def accept_keys(self, *ids: str) -> None:
        """Answer requests with other keys with status 403; without ids, every key is accepted."""
        self._ask("POST", "/_control/keys", json.dumps(ids).encode())

    def copy(self, source: str, target: str) -> None:
        """Copy all objects whose address begins with ``source``; ``target`` replaces ``source`` in the same bucket."""
        bucket, _, prefix = source.removeprefix("s3://").partition("/")
        self._all("copy", bucket=bucket, prefix=prefix, to=target.removeprefix(f"s3://{bucket}/"))

    def contents(self, address: str) -> dict[str, str]:
        """Return the ETag of all objects whose address begins with ``address``, by the remainder of the address."""
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        return self._all("list", bucket=bucket, prefix=prefix)

    def drop(self, address: str) -> None:
        """Delete all objects whose address begins with ``address``."""
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        self._all("drop", bucket=bucket, prefix=prefix)

    def _all(self, verb: str, **arguments: str) -> dict[str, str]:
        return dict(json.loads(self._ask("POST", f"/_control/{verb}", json.dumps(arguments).encode())))

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.endpoint + path, data=body, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server in its own process; the environment of this process has the keys while the context is open."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        os.environ.update(ENVIRONMENT)
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # it is still busy forgetting what tests left there
            process.kill()
            process.wait()
        process.stdout.close()


if __name__ == "__main__":
    serve()
