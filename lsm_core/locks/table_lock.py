"""Which lock a table's commits take, from its options, and what makes them exclusive, in words for `dredge status`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from lsm_core.clock import Clock
from lsm_core.errors import DredgeError, InvalidOption, LockRequired
from lsm_core.locks.database import Database, shown
from lsm_core.locks.file_lock import FileLock
from lsm_core.locks.jdbc_lock import JdbcLock
from lsm_core.locks.lease import Lock, LockSettings
from lsm_core.options import ALLOWED_PLACES, TableOptions, is_allowed_place
from lsm_core.storage import FileIO, Guarantee, check_name, file_io_for, storage_options

_URI: Final = "dredge.lock.uri"
_NONE, _JDBC = "none", "jdbc"
_SHARED: Final = ("dredge.lock", _URI, "dredge.lock.key")
_SHORTEST_LEASE: Final = 1_000
"""In ms: Paimon's lock table counts seconds."""


def table_lock(
    file_io: FileIO, root: str, name: str, options: TableOptions, clock: Clock, user: str = ""
) -> Lock | None:
    """Return the lock of table ``name`` at ``root``, None where it needs none and has none. ``user`` names its holder to others.

    Raises LockRequired where the table's storage creates no file exclusively and no lock is set, and InvalidOption for a lock that
    cannot be: without the address of its database, or with files on such a storage.
    """
    kind = str(options.get("dredge.lock"))
    if kind == _NONE:
        if file_io.guarantee is Guarantee.NONE:
            raise LockRequired(name, root)
        return None
    holder = f"{user or 'an unnamed user'} on {socket.gethostname()}, process {os.getpid()}"
    lease = lock_settings(options).lease
    if kind == _JDBC:
        return JdbcLock(_database(options, name), lock_id(options, name), holder, lease)
    return FileLock(*_lock_folder(file_io, root, name, options), holder, lease, clock)


def _lock_folder(file_io: FileIO, root: str, name: str, options: TableOptions) -> tuple[FileIO, str]:
    """Where the lock files lie: below the table, or in a folder of the table's own below `dredge.lock.uri`."""
    place = options.get(_URI)
    if place:
        _require_allowed(str(place), options, name)
    lock_io, folder = file_io_for(str(place), storage_options(file_io)) if place else (file_io, f"{root}/dredge/lock")
    if lock_io.guarantee is Guarantee.NONE:
        raise InvalidOption(_URI, place or folder, "a folder on a store that creates files exclusively", name)
    return lock_io, f"{folder.rstrip('/')}/{check_name(lock_id(options, name), name, 'lock')}" if place else folder


def lock_given_way(stored: Mapping[str, str], options: TableOptions) -> str:
    """Which lock of a table's own (``stored`` options) is not taken, because the catalog gives all of its tables another; "" where none.

    The catalog's counts: it is the one that other engines share. Whoever opens the table without that catalog takes the table's.
    """
    own = TableOptions.usable(stored)
    if own.get("dredge.lock") == _NONE or all(own.get(key) == options.get(key) for key in _SHARED):
        return ""
    return (
        f"its own lock (dredge.lock = {own.get('dredge.lock')}) is not taken: its catalog gives it dredge.lock = {options.get('dredge.lock')}; whoever opens it "
        "without that catalog takes the other lock, and the two keep nobody apart (remove the option, or open it with the catalog everywhere)"
    )


def lock_settings(options: TableOptions) -> LockSettings:
    """How long the table's lock is waited for and held."""
    names = ("dredge.lock.acquire-timeout", "dredge.lock.check-max-sleep", "dredge.lock.lease")
    timeout, sleep, lease = (int(options.get(name)) for name in names)
    return LockSettings(timeout, max(sleep, 1), max(lease, _SHORTEST_LEASE))


def lock_id(options: TableOptions, name: str) -> str:
    """The name of the table's lock as Java's `JdbcCatalogLock` makes it: catalog key, database and table."""
    return f"{options.get('dredge.lock.key')}.{name}"


def _database(options: TableOptions, name: str) -> Database:
    address = options.get(_URI)
    if not address:
        raise InvalidOption(_URI, address, "the JDBC address of the database that holds the lock table", name)
    _require_allowed(str(address), options, name)
    return Database(str(address), key=_URI)


def _require_allowed(address: str, options: TableOptions, name: str) -> None:
    """Raise InvalidOption for an address that only the table's own options name, and that the operator does not allow.

    Whoever may write to the table's folder would otherwise decide where this process connects, and who gets its password.
    """
    if options.is_tables_own(_URI) and not is_allowed_place(address):
        raise InvalidOption(
            _URI,
            shown(address),
            f"an address that the operator allows: give the lock to the catalog (lock.type = jdbc, uri), or add the address to {ALLOWED_PLACES}",
            name,
        )


def guarantee_text(file_io: FileIO, root: str, name: str, options: TableOptions) -> str:
    """Say what makes the commits of a table exclusive, and what other engines must use to share it."""
    kind = str(options.get("dredge.lock"))
    own = {
        Guarantee.EXCLUSIVE_CREATE: "exclusive creation (hard link)",
        Guarantee.CONDITIONAL_PUT: "conditional put (If-None-Match)",
        Guarantee.NONE: "",
    }[file_io.guarantee]
    if kind == _JDBC:
        try:
            _database(options, name)
        except DredgeError as error:
            return f"commits are refused: {error}"
        address = shown(str(options.get(_URI)))
        return (
            f"commits hold the lock '{lock_id(options, name)}' in {address}"
            + (f", and need {own}" if own else "")
            + "; "
            f"other engines share it with metastore = jdbc, this uri, catalog-key = {options.get('dredge.lock.key')}, lock.enabled = true"
        )
    if kind != _NONE:
        try:
            _, place = _lock_folder(file_io, root, name, options)
        except DredgeError as error:
            return f"commits are refused: {error}"
        return (
            f"commits hold the lock files in {place}" + (f", and need {own}" if own else "") + "; "
            "no other engine knows them: let only Dredge write, or set dredge.lock = jdbc"
        )
    if file_io.guarantee is Guarantee.NONE:
        return "commits are refused: nothing is exclusive on this storage, and the table has no lock (dredge.lock)"
    if file_io.guarantee is Guarantee.CONDITIONAL_PUT:
        return (
            f"commits are exclusive by {own}; engines that put so too share it (Paimon 2.1), others only with a common lock "
            "(dredge.lock = jdbc)"
        )
    return (
        f"commits among Dredge processes are exclusive by {own}; other engines, which rename, share them only with a common lock "
        "(dredge.lock = jdbc, or a JDBC catalog with lock.enabled = true)"
    )
