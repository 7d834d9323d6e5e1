"""Database behind a JDBC address: SQLite or PostgreSQL through SQLAlchemy.

The password comes from the environment only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lsm_core.errors import InvalidOption, MetastoreFailed, UnsupportedFeature

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import CursorResult, Engine

PASSWORD_VARIABLE: Final = "DREDGE_JDBC_PASSWORD"  # noqa: S105 - the name of a variable
USER: Final = "user"
_SQLITE, _POSTGRESQL = "sqlite", "postgresql"
_ACCEPTED: Final = "jdbc:sqlite:<path> or jdbc:postgresql://<host>[:port]/<database>, user by ?user= or jdbc.user"
_SECRET: Final = re.compile(r"password|secret|token|sslkey", re.IGNORECASE)
_PASSED_ON: Final = {"sslmode": "sslmode", "sslrootcert": "sslrootcert", "connectTimeout": "connect_timeout"}
"""Parameters of a PostgreSQL address, with their libpq names."""
_BUSY_SECONDS: Final = 30.0


class Statements:
    """SQL statements of one transaction, with named parameters (":id") passed as keywords."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: str, **values: object) -> int:
        """Run a statement that changes rows, and return the number of changed rows."""
        return int(self._execute(statement, values).rowcount)

    def rows(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return [tuple(row) for row in self._execute(statement, values)]

    def _execute(self, statement: str, values: dict[str, object]) -> CursorResult[Any]:
        from sqlalchemy import text

        return self._connection.execute(text(statement), values)


class Database:
    """A database with a JDBC address in Java's syntax; every use opens and closes a connection, so processes may fork.

    Args:
        address: the JDBC address.
        user: default user for PostgreSQL.
        key: name of the option that held the address, for messages.

    Raises:
        InvalidOption: the address is invalid or contains a password.
        UnsupportedFeature: the database is neither SQLite nor PostgreSQL.
    """

    def __init__(self, address: str, user: str = "", key: str = "uri") -> None:
        self.shown = redact_address(address)
        kind = re.match(r"jdbc:([a-z0-9+]+):", address)
        if kind is None:
            raise InvalidOption(key, self.shown, _ACCEPTED)
        self.kind, location = kind.group(1), address[kind.end() :]
        if self.kind not in {_SQLITE, _POSTGRESQL}:
            raise UnsupportedFeature(
                f"{self.kind} databases for catalogs and locks ({self.shown}); accepted: {_ACCEPTED}"
            )
        self._url, self._arguments = (
            self._sqlite(location, key) if self.kind == _SQLITE else self._postgresql(location, user, key)
        )

    def _sqlite(self, location: str, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        path = unquote(urlsplit(location).path) if location.startswith("file:") else location.partition("?")[0]
        if not path.strip() or path.startswith(":"):
            raise InvalidOption(key, self.shown, "the path of a file: a database in memory exists in one process only")
        return {"drivername": _SQLITE, "database": os.path.abspath(path)}, {"timeout": _BUSY_SECONDS}

    def _postgresql(self, location: str, user: str, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        parts = urlsplit(location)
        parameters = dict(parse_qsl(parts.query))
        if parts.password or any(_SECRET.search(name) for name in parameters):
            raise InvalidOption(
                key, self.shown, f"an address without secrets: the password comes from {PASSWORD_VARIABLE}"
            )
        unknown = sorted(set(parameters) - {USER, *_PASSED_ON})
        if unknown:
            raise InvalidOption(
                key, self.shown, f"the parameters user, {', '.join(_PASSED_ON)}, not {', '.join(unknown)}"
            )
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidOption(key, self.shown, _ACCEPTED) from error
        database = unquote(parts.path.strip("/"))
        if not host or "," in host or not database:
            raise InvalidOption(key, self.shown, _ACCEPTED)
        url = {
            "drivername": "postgresql+psycopg",
            "username": parameters.pop(USER, None) or parts.username or user or None,
            "host": host,
            "port": port,
            "database": database,
        }
        # Paimon's lock table has times without a time zone, so all its users must use the same one.
        renamed = {_PASSED_ON[name]: value for name, value in parameters.items()}
        session_settings = {"client_encoding": "utf8", "options": "-c TimeZone=UTC"}
        return url, {"connect_timeout": "10", **renamed, **session_settings}

    @contextmanager
    def transaction(self) -> Iterator[Statements]:
        """Open a connection and a transaction, which is committed at the end of the block.

        Yields:
            The transaction's statements.

        Raises:
            MetastoreFailed: the database reports an error.
            UnsupportedFeature: SQLAlchemy or the database driver is not installed.
        """
        try:
            from sqlalchemy.exc import SQLAlchemyError
        except ModuleNotFoundError as error:
            raise UnsupportedFeature(
                "catalogs and locks in databases without SQLAlchemy; pip install 'dredge[jdbc]'"
            ) from error
        password = os.environ.get(PASSWORD_VARIABLE) if self.kind == _POSTGRESQL else None
        try:
            engine = _engine(tuple(self._url.items()), tuple(self._arguments.items()), password or None)
            with engine.begin() as connection:
                yield Statements(connection)
        except ModuleNotFoundError as error:
            raise UnsupportedFeature(f"the driver {error.name} is not installed; pip install 'dredge[jdbc]'") from error
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error)
            raise MetastoreFailed(self.shown, " ".join(reason.split())) from error

    def __repr__(self) -> str:
        return f"Database({self.shown!r})"


@lru_cache(maxsize=16)
def _engine(url: tuple[tuple[str, Any], ...], arguments: tuple[tuple[str, Any], ...], password: str | None) -> Engine:
    """Return a cached engine without open connections; the cache avoids repeated requests for server properties.

    Args:
        url: parts of SQLAlchemy's URL, by name.
        arguments: arguments for the database driver, by name.
        password: password of the user, or None.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.engine import URL
    from sqlalchemy.pool import NullPool

    return create_engine(URL.create(**dict(url), password=password), poolclass=NullPool, connect_args=dict(arguments))


def redact_address(address: str) -> str:
    """Return the address for messages: without parameters, user and password.

    Returns:
        The shortened address.
    """
    plain = address.partition("?")[0]
    return re.sub(r"//[^/]*@", "//", plain)
