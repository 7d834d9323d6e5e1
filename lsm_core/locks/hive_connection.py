"""One connection to a Hive metastore: deadlines of calls, limits of answers, and the kinds of failures.

The protocol is the generated code of the package ``pymetastore`` (Hive's IDL) on Apache's ``thrift``.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import time
from typing import Any, Final

from pymetastore.hive_metastore.ThriftHiveMetastore import Client
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAcceleratedFactory
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import TBufferedTransport, TTransportBase, TTransportException

from lsm_core.errors import UnsupportedFeature
from lsm_core.locks.hive_settings import HiveSettings, address_text

_CONNECT_SECONDS: Final = 10.0
_MAX_ANSWER_BYTES: Final = 64 << 20
_MAX_STRING_BYTES: Final = 16 << 20
_MAX_ELEMENTS: Final = 1_000_000
_MAX_TEXT: Final = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class HiveRefusal(Exception):
    """An answer of the metastore with one of its declared errors; the call changed nothing.

    Attributes:
        kind: name of the error, such as "NoSuchObjectException".
        message: the server's text, shortened.
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(f"{kind}: {message}" if message else kind)

    @property
    def is_absence(self) -> bool:
        """Whether a database, table or partition does not exist."""
        return self.kind in ("NoSuchObjectException", "UnknownDBException", "UnknownTableException")

    @property
    def is_presence(self) -> bool:
        """Whether an object of this name exists."""
        return self.kind == "AlreadyExistsException"


class BrokenConnection(Exception):
    """A connection that cannot be used any more, or a call that its server cannot answer.

    Attributes:
        sent: whether the server may have carried the call out.
        final: whether another attempt cannot help.
    """

    def __init__(self, reason: str, *, sent: bool = False, final: bool = False) -> None:
        self.sent, self.final = sent, final
        super().__init__(reason)


class Connection:
    """An open connection to one address, with the generated client.

    Attributes:
        address: the address, for messages.
        usable: whether calls can be sent.

    Args:
        place: pair (host, port).
        settings: settings of the connections.

    Raises:
        BrokenConnection: the connection cannot be opened.
    """

    def __init__(self, place: tuple[str, int], settings: HiveSettings) -> None:
        self.address, self.usable = address_text(place), True
        self._socket = DeadlineSocket(place)
        self._socket.begin(_CONNECT_SECONDS)
        try:
            self._transport = (
                _with_kerberos(self._socket, place[0], settings.principal)
                if settings.principal
                else TBufferedTransport(self._socket)
            )
            factory = TBinaryProtocolAcceleratedFactory(_MAX_STRING_BYTES, _MAX_ELEMENTS)
            self._client = Client(factory.getProtocol(self._transport))
            self._transport.open()
        except Exception as error:
            self._socket.close()
            raise BrokenConnection(one_line(error), final=isinstance(error, UnsupportedFeature)) from error
        if not settings.principal:
            self._name_user(settings.call_seconds)

    def call(self, method: str, arguments: tuple[Any, ...], seconds: float) -> Any:
        """Return the answer to a call.

        Args:
            method: name of the method in Hive's IDL.
            arguments: arguments of the method.
            seconds: longest duration of the call in s.

        Raises:
            HiveRefusal: the server answered with a declared error.
            BrokenConnection: the server did not answer, or not in this protocol.
        """
        self._socket.begin(seconds)
        try:
            return getattr(self._client, method)(*arguments)
        except TApplicationException as error:
            if error.type == TApplicationException.UNKNOWN_METHOD:
                reason = "it does not know this call; a metastore of Hive 2.3 or newer is needed"
                raise BrokenConnection(reason, final=True) from error
            self.close()
            raise BrokenConnection(one_line(error), sent=True) from error
        except (TTransportException, TProtocolException) as error:
            self.close()
            raise BrokenConnection(one_line(error), sent=self._socket.sent, final=self._socket.is_full) from error
        except TException as error:
            message = shortened(str(getattr(error, "message", "") or ""))
            raise HiveRefusal(type(error).__name__, message) from error
        except Exception as error:  # the generated code raises anything for bytes that are not an answer
            self.close()
            reason = f"its answer is not Thrift ({one_line(error)}); check 'uri'"
            raise BrokenConnection(reason, sent=self._socket.sent, final=True) from error

    def is_alive(self) -> bool:
        """Return whether the server has not closed the connection."""
        return self.usable and self._socket.is_alive()

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        with contextlib.suppress(Exception):
            self._transport.close()
        self._socket.close()

    def _name_user(self, seconds: float) -> None:
        """Send the name of the user who owns the folders that the metastore creates, as Java's client does."""
        user = system_user()
        try:
            self.call("set_ugi", (user, [user]), seconds)
        except HiveRefusal as refusal:
            self.close()
            raise BrokenConnection(f"it refuses the user {user}: {refusal}", final=True) from refusal
        except BrokenConnection as error:
            self.close()
            raise BrokenConnection(str(error), final=error.final) from error


class DeadlineSocket(TTransportBase):
    """Transport over a socket whose calls end at a deadline, and whose answers have a limited size.

    Attributes:
        sent: whether bytes of the current call were sent.
        is_full: whether the answer to the current call was larger than allowed.

    Args:
        place: pair (host, port).
    """

    def __init__(self, place: tuple[str, int]) -> None:
        self._place = place
        self._handle: socket.socket | None = None
        self.sent, self.is_full = False, False
        self._ends, self._bytes = 0.0, 0

    def begin(self, seconds: float) -> None:
        """Begin a call that ends within ``seconds``."""
        self._ends, self._bytes = time.monotonic() + seconds, 0
        self.sent, self.is_full = False, False

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Return whether the socket is open."""
        return self._handle is not None

    def open(self) -> None:
        """Connect. Raises TTransportException."""
        try:
            self._handle = socket.create_connection(self._place, timeout=self._remaining())
            self._handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise TTransportException(TTransportException.NOT_OPEN, one_line(error)) from error

    def is_alive(self) -> bool:
        """Return whether the server has neither closed the connection nor sent bytes that no call awaits."""
        if self._handle is None:
            return False
        try:
            self._handle.settimeout(0)
            self._handle.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the socket."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes. Raises TTransportException."""
        allowed = _MAX_ANSWER_BYTES - self._bytes
        if allowed <= 0:
            self.is_full = True
            raise TTransportException(message=f"its answer is larger than {_MAX_ANSWER_BYTES} bytes")
        try:
            handle = self._opened()
            handle.settimeout(self._remaining())
            data = handle.recv(min(size, allowed, 1 << 20))
        except OSError as error:
            raise TTransportException(message=one_line(error)) from error
        if not data:
            raise TTransportException(TTransportException.END_OF_FILE, "the server closed the connection")
        self._bytes += len(data)
        return data

    def write(self, data: bytes) -> None:
        """Send bytes. Raises TTransportException."""
        try:
            handle = self._opened()
            handle.settimeout(self._remaining())
            self.sent = True
            handle.sendall(data)
        except OSError as error:
            raise TTransportException(message=one_line(error)) from error

    def flush(self) -> None:
        """Do nothing: bytes are sent at once."""

    def _opened(self) -> socket.socket:
        if self._handle is None:
            raise ConnectionError("the connection is closed")
        return self._handle

    def _remaining(self) -> float:
        seconds = self._ends - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("no answer in time")
        return seconds


def shortened(text: str) -> str:
    """Return a text of a server on one line, shortened."""
    printable = text[: 4 * _MAX_TEXT].encode("utf-8", "replace").decode()
    return " ".join(_CONTROL.sub(" ", printable).split())[:_MAX_TEXT]


def one_line(error: Exception) -> str:
    """Return the text of an error on one line."""
    return shortened(str(error)) or type(error).__name__


def system_user() -> str:
    """Return the name of the user: of the variable HADOOP_USER_NAME, or else of this process."""
    try:
        return os.environ.get("HADOOP_USER_NAME", "").strip() or getpass.getuser()
    except (KeyError, OSError):  # no entry for the user's number
        return "dredge"


def _with_kerberos(transport: DeadlineSocket, host: str, principal: str) -> Any:
    """Return a transport that logs in with Kerberos (SASL, GSSAPI) by Thrift's own support.

    Raises:
        UnsupportedFeature: the packages ``pure-sasl`` and ``kerberos`` are not installed.
    """
    from thrift.transport.TTransport import TSaslClientTransport

    service, _, instance = principal.partition("@")[0].partition("/")
    try:
        import kerberos  # type: ignore[import-not-found]  # noqa: F401 - pure-sasl needs it
        import puresasl  # type: ignore[import-not-found]  # noqa: F401 - Thrift needs it
    except ModuleNotFoundError as error:
        packages = "pip install pure-sasl kerberos"
        raise UnsupportedFeature(f"Kerberos without the package {error.name}; {packages}") from error
    server = host if instance.upper() == "_HOST" else instance
    return TSaslClientTransport(transport, server, service, mechanism="GSSAPI")
