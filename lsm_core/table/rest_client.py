"""HTTP client of a Paimon REST catalog server: authentication, retries, paging, and the meaning of its answers.

A request that changes something is sent again only if it cannot have reached the server. If its outcome is unknown,
the caller looks the outcome up.

Source: Paimon `RESTApi`, `HttpClient`, `ExponentialHttpRequestRetryStrategy`.
"""

from __future__ import annotations

import logging
import os
import random
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

from lsm_core.errors import InvalidOption, MetastoreFailed, UnsupportedFeature
from lsm_core.json_text import parse_json
from lsm_core.metadata.store import OutcomeUnknown
from lsm_core.options import CatalogOptions

if TYPE_CHECKING:
    import httpx

_LOG = logging.getLogger(__name__)

TOKEN_VARIABLE: Final = "DREDGE_REST_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VARIABLE: Final = "DREDGE_REST_TOKEN_FILE"  # noqa: S105 - the name of a variable
PROVIDER_GROUP: Final = "dredge.rest_auth"
"""Group of entry points whose names are further values of the catalog option `token.provider`."""
HEADER_PREFIX: Final = "header."

_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 60.0
_REQUEST_SECONDS: Final = 180.0
"""Longest time of one request with its whole answer; the limits of the HTTP client are for each read only."""
_TOTAL_SECONDS: Final = 300.0
"""Longest time of a request with all its repetitions and the waits between them."""
_LONGEST_WAIT_SECONDS: Final = 30.0
_ATTEMPTS: Final = 5
_HINT: Final = "check the option 'uri'"
_PAGE_SIZE: Final = 1000
_MAX_PAGES: Final = 100_000
_MAX_ANSWER_BYTES: Final = 64 << 20
_MAX_TOKEN_BYTES: Final = 64 << 10
_MAX_TEXT: Final = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BUSY: Final = frozenset({429, 503})
_SUCCESSFUL: Final = frozenset({200, 202, 204})
_HTTP_FORBIDDEN, _HTTP_UNAUTHORIZED, _HTTP_NOT_IMPLEMENTED, _HTTP_SERVER_ERROR = 403, 401, 501, 500

SignRequest = Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]
"""Function (method, path, query parameters, body) that returns the headers which authenticate a request."""


class ServerRefusal(Exception):
    """An answer of the server with an error status; the request changed nothing.

    Attributes:
        status: HTTP status.
        message: the server's text, shortened.
        resource_type: kind of the object that the error is about, such as "TABLE", or "".
        resource: name of this object, or "".
    """

    def __init__(self, status: int, message: str, resource_type: str = "", resource: str = "") -> None:
        self.status, self.message, self.resource_type, self.resource = status, message, resource_type, resource
        super().__init__(f"{status}: {message}")


class RestClient:
    """Client of one warehouse of a REST catalog server. Threads may share it; a pickled copy opens its own connections.

    The token is read from the environment for each request and is never kept, logged or pickled.

    Attributes:
        address: address of the server, without a trailing slash.
        warehouse: name of the warehouse on the server.
        options: all catalog options; none is secret.

    Args:
        uri: address of the server (catalog option `uri`).
        warehouse: name of the warehouse.
        headers: additional headers of each request (catalog options `header.*`).
        provider: value of `token.provider`: "bear", the name of an entry point of `dredge.rest_auth`, or "" to send
            the token if there is one.
        options: all catalog options, for a provider from an entry point.

    Raises:
        InvalidOption: the address, the name of the warehouse, a header or the provider cannot be used.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str,
        headers: Mapping[str, str] | None = None,
        provider: str = "",
        options: Mapping[str, str] | None = None,
    ) -> None:
        if not _is_unicode(warehouse):
            raise InvalidOption("warehouse", warehouse, "the name of a warehouse on the server, in Unicode")
        self.address, self.warehouse = _checked_address(uri), warehouse
        self._headers, self._provider, self.options = _checked_headers(headers), provider.lower(), dict(options or {})
        self._sign: SignRequest = self._signing()
        self._sleep: Callable[[float], None] = time.sleep
        self._prefix: str | None = None
        self._settings: dict[str, str] = {}
        self._forget_connections()

    def __repr__(self) -> str:
        return f"RestClient({self.address!r}, {self.warehouse!r})"

    def __getstate__(self) -> dict[str, Any]:
        dropped = {"_http", "_process", "_opening", "_sign", "_sleep", "_acknowledgement"}
        return {key: value for key, value in self.__dict__.items() if key not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sign, self._sleep = self._signing(), time.sleep
        self._forget_connections()

    # -- requests --------------------------------------------------------------------------------------------------

    def get(self, *parts: str, **parameters: str) -> dict[str, Any]:
        """Return the answer to a GET; it is sent again while the server is busy or cannot be reached.

        Args:
            parts: parts of the path after the warehouse's prefix, not encoded.
            parameters: query parameters.

        Raises:
            ServerRefusal: the server answered with an error.
            MetastoreFailed: the server did not answer, or not in this protocol.
        """
        return self._request("GET", self._path(parts), parameters, b"")

    def post(self, body: bytes, *parts: str) -> dict[str, Any]:
        """Send a POST and return its answer.

        Args:
            body: JSON of the request.
            parts: parts of the path after the warehouse's prefix, not encoded.

        Raises:
            ServerRefusal: the server refused; nothing was changed.
            OutcomeUnknown: the server may have carried the request out.
            MetastoreFailed: the server was not reached, so nothing was changed.
        """
        return self._request("POST", self._path(parts), {}, body)

    def delete(self, *parts: str) -> None:
        """Send a DELETE. Raises as :meth:`post`."""
        self._request("DELETE", self._path(parts), {}, b"")

    def pages(self, member: str, *parts: str, **parameters: str) -> Iterator[list[Any]]:
        """Yield the pages of a listing.

        Args:
            member: member of the answer that has the elements.
            parts: parts of the path after the warehouse's prefix.
            parameters: query parameters besides those of the paging.

        Raises:
            ServerRefusal: the server answered with an error.
            MetastoreFailed: the server did not answer, or the pages do not end.
        """
        token = ""
        for _ in range(_MAX_PAGES):
            paging = {"maxResults": str(_PAGE_SIZE), **({"pageToken": token} if token else {})}
            answer = self.get(*parts, **parameters, **paging)
            elements, following = answer.get(member) or [], answer.get("nextPageToken") or ""
            if not isinstance(elements, list) or not isinstance(following, str):
                raise MetastoreFailed(self.address, f"its listing of {'/'.join(parts)} has an invalid member {member}")
            yield elements
            if not following:
                return
            if following == token:
                break
            token = following
        raise MetastoreFailed(self.address, f"its listing of {'/'.join(parts)} does not end")

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings that the server has for this warehouse, such as `prefix`."""
        self._load_prefix()
        return dict(self._settings)

    # -- details ---------------------------------------------------------------------------------------------------

    def _path(self, parts: tuple[str, ...]) -> str:
        prefix = self._load_prefix()
        return "/".join(["/v1", *([quote_plus(prefix)] if prefix else []), *(quote_plus(part) for part in parts)])

    def _load_prefix(self) -> str:
        if self._prefix is None:
            hint = "check the options 'uri' and 'warehouse'"
            try:
                answer = self._request("GET", "/v1/config", {"warehouse": self.warehouse}, b"")
            except ServerRefusal as refusal:
                reason = f"it has no configuration for warehouse '{self.warehouse}' ({refusal}); {hint}"
                raise MetastoreFailed(self.address, reason) from refusal
            defaults, overrides = answer.get("defaults"), answer.get("overrides")
            known = [members for members in (defaults, overrides) if members is not None]
            if not known or not all(isinstance(members, dict) for members in known):
                raise MetastoreFailed(self.address, f"it does not speak Paimon's REST protocol; {hint}")
            settings = {**(defaults or {}), **self.options, **(overrides or {})}
            self._settings = {str(key): value for key, value in settings.items() if isinstance(value, str)}
            prefix = self._settings.get("prefix", "")
            if not _is_unicode(prefix):
                raise MetastoreFailed(self.address, f"its prefix for the warehouse is not Unicode: {prefix!r:.200}")
            self._prefix = prefix
        return self._prefix

    def _request(self, method: str, path: str, parameters: Mapping[str, str], body: bytes) -> dict[str, Any]:
        import httpx

        ends = time.monotonic() + _TOTAL_SECONDS
        for attempt in range(1, _ATTEMPTS + 1):
            pause = min(2.0 ** (attempt - 1), _LONGEST_WAIT_SECONDS) * (1 + random.uniform(0, 0.1))  # noqa: S311
            is_last = attempt == _ATTEMPTS
            try:
                status, headers, data = self._send(method, path, parameters, body, ends)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                if is_last or time.monotonic() + pause >= ends:
                    raise MetastoreFailed(
                        self.address, f"it cannot be reached ({_one_line(error)}); {_HINT}"
                    ) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:  # sent, and the answer is missing
                if method != "GET":
                    raise OutcomeUnknown(f"{self.address}: {_one_line(error)}") from error
                if is_last or time.monotonic() + pause >= ends:
                    raise MetastoreFailed(self.address, f"it did not answer ({_one_line(error)}); {_HINT}") from error
            else:
                if status in _SUCCESSFUL:
                    return self._parse(data, method, path)
                refusal = _refusal(status, data)
                if status >= _HTTP_SERVER_ERROR and status != _HTTP_NOT_IMPLEMENTED and method != "GET":
                    raise OutcomeUnknown(f"{self.address} answered {refusal}")
                pause = _wait_seconds(headers, pause)
                if status not in _BUSY or is_last or time.monotonic() + pause >= ends:
                    raise self._typed_error(refusal)
            _LOG.info("%s %s%s: attempt %d is repeated in %.1f s", method, self.address, path, attempt, pause)
            self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self, method: str, path: str, parameters: Mapping[str, str], body: bytes, ends: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return the status, headers and body of the answer.

        The request runs in a thread of its own, because the HTTP client limits single reads only: a server that sends
        a byte now and then would hold the caller for days.

        Args:
            method: HTTP method.
            path: path and name of the resource.
            parameters: query parameters.
            body: JSON of the request.
            ends: time (`time.monotonic`) at which the request must have ended.

        Raises:
            httpx.HTTPError: the request failed, or took too long.
        """
        import httpx

        headers = {**self._headers, **self._sign(method, path, parameters, body)}
        if body:
            headers["Content-Type"] = "application/json"
        request = partial(self._exchange, self._connections(), method, path, parameters, body, headers)
        ends = min(ends, time.monotonic() + _REQUEST_SECONDS)
        answer: Future[tuple[int, Mapping[str, str], bytes]] = Future()

        def run() -> None:
            try:
                answer.set_result(request(ends))
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
                answer.set_exception(error)

        threading.Thread(target=run, name="dredge-rest", daemon=True).start()
        try:
            return answer.result(max(ends - time.monotonic(), 0.0))
        except TimeoutError:
            raise httpx.ReadTimeout("its answer did not end in time") from None

    def _exchange(
        self,
        connections: httpx.Client,
        method: str,
        path: str,
        parameters: Mapping[str, str],
        body: bytes,
        headers: Mapping[str, str],
        ends: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request and read its answer until ``ends``; see :meth:`_send`."""
        import httpx

        url, chunks, length = f"{self.address}{path}", [], 0
        with connections.stream(
            method,
            url,
            params=dict(parameters) or None,
            content=body or None,
            headers=headers,
            extensions={"trace": self._acknowledgement.follow},
        ) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                length += len(chunk)
                if length > _MAX_ANSWER_BYTES:
                    raise self._unusable(method, f"its answer to {path} is larger than {_MAX_ANSWER_BYTES} bytes")
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("its answer did not end in time")
            return response.status_code, response.headers, b"".join(chunks)

    def _parse(self, data: bytes, method: str, path: str) -> dict[str, Any]:
        if not data.strip():
            return {}
        try:
            answer = parse_json(data)
        except ValueError as error:
            raise self._unusable(method, f"its answer to {path} is not JSON ({error}); check 'uri'") from error
        if not isinstance(answer, dict):
            raise self._unusable(method, f"its answer to {path} is not an object; check 'uri'")
        return answer

    def _unusable(self, method: str, reason: str) -> Exception:
        """Return the error for an answer without meaning; the server may have carried out a POST or DELETE."""
        if method == "GET":
            return MetastoreFailed(self.address, reason)
        return OutcomeUnknown(f"{self.address}: {reason}")

    def _typed_error(self, refusal: ServerRefusal) -> Exception:
        if refusal.status == _HTTP_UNAUTHORIZED:
            how = f"set {TOKEN_VARIABLE}, or {TOKEN_FILE_VARIABLE} to a file that holds a valid token"
            return MetastoreFailed(self.address, f"it does not accept the token ({refusal.message}); {how}")
        if refusal.status == _HTTP_FORBIDDEN:
            return MetastoreFailed(self.address, f"it forbids this: {refusal.message}")
        if refusal.status == _HTTP_NOT_IMPLEMENTED:
            return UnsupportedFeature(f"this operation of the catalog server {self.address}: {refusal.message}")
        if refusal.status in _BUSY or refusal.status >= _HTTP_SERVER_ERROR:
            return MetastoreFailed(self.address, f"it answered {refusal}")
        return refusal

    def _signing(self) -> SignRequest:
        if self._provider in ("", "bear", "bearer"):
            return _bearer_headers
        providers = {point.name: point for point in entry_points(group=PROVIDER_GROUP)}
        if self._provider not in providers:
            accepted = ", ".join(["bear", *sorted(providers)])
            raise InvalidOption("token.provider", self._provider, f"{accepted} (entry points of {PROVIDER_GROUP})")
        sign: SignRequest = providers[self._provider].load()(dict(self.options))
        return sign

    def _forget_connections(self) -> None:
        self._http: httpx.Client | None = None
        self._process, self._opening = 0, threading.Lock()
        self._acknowledgement = _Acknowledgement()

    def _connections(self) -> httpx.Client:
        """Return the connections of this process; a forked process must not use those of its parent."""
        import httpx

        with self._opening:
            if self._http is None or self._process != os.getpid():
                timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
                # Certificates take 50 ms to load, which an address without TLS does not need, because a redirect,
                # which would take the token to another host, is not followed.
                is_encrypted = self.address.startswith("https:")
                self._http = httpx.Client(timeout=timeout, follow_redirects=False, verify=is_encrypted)
                self._process = os.getpid()
                weakref.finalize(self, self._http.close)
            return self._http


class _Acknowledgement:
    """Acknowledges the packets of answers at once, on Linux.

    A server that sends headers and body in two packets without `TCP_NODELAY`, as some Java servers do, waits for the
    acknowledgement of the first one. Linux delays it by 40 ms on a connection with answered requests, for each request.
    """

    def __init__(self) -> None:
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()

    def follow(self, event: str, info: Mapping[str, Any]) -> None:
        """Take part in a request: `trace` extension of the HTTP client.

        Args:
            event: name of the step, such as "http11.receive_response_headers.started".
            info: values of the step.
        """
        option = getattr(socket, "TCP_QUICKACK", None)  # only Linux has it
        if option is None:
            return
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._streams.add(info["return_value"])
        elif event == "http11.receive_response_headers.started":
            for stream in list(self._streams):
                with suppress(OSError, AttributeError):  # closed meanwhile
                    stream.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, 1)


def open_client(options: CatalogOptions) -> RestClient:
    """Return the client of the REST catalog server that the options name.

    Raises:
        InvalidOption: the address is missing or invalid.
        UnsupportedFeature: the HTTP client is not installed.
    """
    require_httpx()
    raw, provider = options.raw, str(options.get("token.provider") or "")
    return RestClient(raw.get("uri", ""), raw.get("warehouse", ""), options.headers, provider, raw)


def require_httpx() -> None:
    """Raise UnsupportedFeature if the package httpx is not installed."""
    try:
        import httpx  # noqa: F401 - the import is the test
    except ModuleNotFoundError as error:
        raise UnsupportedFeature("REST catalogs without the package httpx; pip install 'dredge[rest]'") from error


def _bearer_headers(method: str, path: str, parameters: Mapping[str, str], body: bytes) -> Mapping[str, str]:
    """Return the header with the token of the environment; empty without a token."""
    del method, path, parameters, body  # a provider that signs requests needs them
    file = os.environ.get(TOKEN_FILE_VARIABLE, "")
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if file:
        try:
            with open(file, "rb") as source:
                token = source.read(_MAX_TOKEN_BYTES).decode("utf-8").strip()
        except (OSError, ValueError) as error:
            raise InvalidOption(TOKEN_FILE_VARIABLE, file, f"a readable file with a token ({error})") from error
    if _CONTROL.search(token) or not token.isascii():
        raise InvalidOption(TOKEN_FILE_VARIABLE if file else TOKEN_VARIABLE, "***", "a token of one line in ASCII")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the additional headers of each request. Raises InvalidOption, without the value, for a malformed one."""
    for name, value in (headers or {}).items():
        if not _HEADER_NAME.fullmatch(name) or _CONTROL.search(value) or not value.isascii():
            raise InvalidOption(
                f"{HEADER_PREFIX}{name:.100}", "***", "a header's name and a value of one line in ASCII"
            )
    return {name: value.strip() for name, value in (headers or {}).items()}


def _checked_address(uri: str) -> str:
    """Return the address of a server without a trailing slash. Raises InvalidOption."""
    text = uri.strip() if "://" in uri else f"http://{uri.strip()}"
    accepted = "the address of the catalog server, such as https://host:port, without user and password"
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        valid = valid and not parts.query and not parts.fragment and not _CONTROL.search(text)
        _ = parts.port
    except ValueError:
        valid = False
    if not valid or not uri.strip():
        raise InvalidOption("uri", re.sub(r"//[^/]*@", "//", uri), accepted)
    return text.rstrip("/")


def _refusal(status: int, data: bytes) -> ServerRefusal:
    """Return the error that an answer reports; answers in another form count as text."""
    try:
        members = parse_json(data)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        return ServerRefusal(status, _shortened(data.decode("utf-8", "replace")) or "without a reason")
    texts = [str(members.get(name) or "") for name in ("message", "resourceType", "resourceName")]
    message, resource_type, resource = (_shortened(text) for text in texts)
    return ServerRefusal(status, message or "without a reason", resource_type.upper(), resource)


def _shortened(text: str) -> str:
    printable = text[: 4 * _MAX_TEXT].encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", printable).split())[:_MAX_TEXT]


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded; a lone surrogate cannot."""
    return text.encode("utf-8", "replace").decode() == text


def _one_line(error: Exception) -> str:
    return _shortened(str(error)) or type(error).__name__


def _wait_seconds(headers: Mapping[str, str], otherwise: float) -> float:
    """Return the seconds to wait that the header Retry-After asks for, at most 30, or ``otherwise``."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return otherwise
    return otherwise if seconds != seconds else min(max(seconds, 0.0), _LONGEST_WAIT_SECONDS)  # noqa: PLR0124 - NaN
