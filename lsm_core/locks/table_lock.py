"""Selection of a table's commit lock from the table's options, and description of the lock for `dredge status`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from lsm_core.clock import Clock
from lsm_core.errors import DredgeError, InvalidOption, LockRequired
from lsm_core.locks.database import Database, redact_address
from lsm_core.locks.file_lock import FileLock
from lsm_core.locks.jdbc_lock import JdbcLock
from lsm_core.locks.lease import Lock, LockSettings
from lsm_core.options import ALLOWED_PLACES, TableOptions, is_allowed_place
from lsm_core.storage import FileIO, Guarantee, check_name, file_io_for, storage_options

_URI: Final = "dredge.lock.uri"
_NONE, _JDBC, _HIVE = "none", "jdbc", "hive"
_SHARED: Final = ("dredge.lock", _URI, "dredge.lock.key")
_SHORTEST_LEASE: Final = 1_000
"""Shortest lease (ms), because Paimon's lock table counts seconds."""


def table_lock(
    file_io: FileIO, root: str, name: str, options: TableOptions, clock: Clock, user: str = ""
) -> Lock | None:
    """Return the lock for commits to a table.

    Args:
        file_io: access to the table's files.
        root: the table's directory.
        name: the table's name.
        options: the table's options.
        clock: source of the current time.
        user: name of the lock's holder in messages of waiting processes.

    Returns:
        The lock, or None if no lock is set and the storage can create files exclusively.

    Raises:
        LockRequired: the storage cannot create files exclusively, and no lock is set.
        InvalidOption: the lock has no address, the operator does not allow the address, or the lock files are on a
            storage without exclusive creation.
        UnsupportedFeature: the lock is in a Hive metastore, and its client is not installed.
    """
    lock_type = str(options.get("dredge.lock"))
    if lock_type == _NONE:
        if file_io.guarantee is Guarantee.NONE:
            raise LockRequired(name, root)
        return None
    holder = f"{user or 'an unnamed user'} on {socket.gethostname()}, process {os.getpid()}"
    lease = lock_settings(options).lease
    if lock_type == _JDBC:
        return JdbcLock(_database(options, name), lock_id(options, name), holder, lease)
    if lock_type == _HIVE:
        from lsm_core.locks.hive_lock import HiveLock, lock_client

        return HiveLock(lock_client(_metastore(options, name)), name, holder)
    return FileLock(*_lock_folder(file_io, root, name, options), holder, lease, clock)


def _lock_folder(file_io: FileIO, root: str, name: str, options: TableOptions) -> tuple[FileIO, str]:
    """Return (FileIO, folder) of the lock files: below the table, or the table's own folder below `dredge.lock.uri`.

    Args:
        file_io: access to the table's files.
        root: the table's directory.
        name: the table's name.
        options: the table's options.

    Raises:
        InvalidOption: the operator does not allow the address, or the storage has no exclusive creation.
    """
    uri = options.get(_URI)
    if uri:
        _require_allowed(str(uri), options, name)
    lock_io, folder = file_io_for(str(uri), storage_options(file_io)) if uri else (file_io, f"{root}/dredge/lock")
    if lock_io.guarantee is Guarantee.NONE:
        raise InvalidOption(_URI, uri or folder, "a folder on a storage that creates files exclusively", name)
    return lock_io, f"{folder.rstrip('/')}/{check_name(lock_id(options, name), name, 'lock')}" if uri else folder


def lock_given_way(stored: Mapping[str, str], options: TableOptions) -> str:
    """Return a warning if the lock in a table's stored options is replaced by the lock of its catalog.

    The catalog's lock applies, because all engines of the catalog share this lock. A client that opens the table
    without the catalog uses the table's lock.

    Args:
        stored: the table's stored options.
        options: the effective options, including options from the catalog.

    Returns:
        The warning, or "" without a conflict.
    """
    own = TableOptions.usable(stored)
    if own.get("dredge.lock") == _NONE or all(own.get(key) == options.get(key) for key in _SHARED):
        return ""
    return (
        f"its own lock (dredge.lock = {own.get('dredge.lock')}) is not taken: its catalog gives it dredge.lock = "
        f"{options.get('dredge.lock')}; clients that open it without that catalog take the other lock, "
        "and the two do not exclude each other (remove the option, or open it with the catalog everywhere)"
    )


def lock_settings(options: TableOptions) -> LockSettings:
    """Return the waiting time and the lease of the table's lock.

    Returns:
        The settings, with a lease of at least 1 s.
    """
    names = ("dredge.lock.acquire-timeout", "dredge.lock.check-max-sleep", "dredge.lock.lease")
    timeout, max_sleep, lease = (int(options.get(name)) for name in names)
    return LockSettings(timeout, max(max_sleep, 1), max(lease, _SHORTEST_LEASE))


def lock_id(options: TableOptions, name: str) -> str:
    """Return the id of the table's lock in the format of Java's `JdbcCatalogLock`.

    Returns:
        Catalog key, database and table, joined by dots.
    """
    return f"{options.get('dredge.lock.key')}.{name}"


def _database(options: TableOptions, name: str) -> Database:
    address = options.get(_URI)
    if not address:
        raise InvalidOption(_URI, address, "the JDBC address of the database that holds the lock table", name)
    _require_allowed(str(address), options, name)
    return Database(str(address), key=_URI)


def _metastore(options: TableOptions, name: str) -> str:
    """Return the addresses of the Hive metastore that has the lock. Raises InvalidOption."""
    address = str(options.get(_URI) or "")
    if not address:
        raise InvalidOption(_URI, address, "the address of the Hive metastore, such as thrift://host:9083", name)
    for place in address.split(","):
        _require_allowed(place.strip(), options, name)
    return address


def _require_allowed(address: str, options: TableOptions, name: str) -> None:
    """Raise InvalidOption for an address from the table's own options that the operator does not allow.

    Without this check, anyone who can write to the table's folder could choose the server to which this process
    connects and sends its password.

    Args:
        address: address of the lock's database or metastore, or of the folder of the lock files.
        options: the table's options.
        name: the table's name, for messages.
    """
    if options.is_tables_own(_URI) and not is_allowed_place(address):
        raise InvalidOption(
            _URI,
            redact_address(address),
            "an address that the operator allows: configure the lock in the catalog (lock.enabled = true, uri), "
            f"or add the address to {ALLOWED_PLACES}",
            name,
        )


def guarantee_text(file_io: FileIO, root: str, name: str, options: TableOptions, server: str = "") -> str:
    """Return a description of the mechanism that makes a table's commits exclusive.

    The description includes the settings that Java engines need to share the lock.

    Args:
        file_io: access to the table's files.
        root: the table's directory.
        name: the table's name.
        options: the table's options.
        server: address of the catalog server that publishes the table's snapshots, or "".

    Returns:
        One or two sentences for the user.
    """
    if server:
        return f"the catalog server {server} publishes the commits of all engines, one after another"
    lock_type = str(options.get("dredge.lock"))
    mechanism = {
        Guarantee.EXCLUSIVE_CREATE: "exclusive creation (hard link)",
        Guarantee.EXCLUSIVE_RENAME: "rename without replacement (HDFS)",
        Guarantee.CONDITIONAL_PUT: "conditional put (If-None-Match)",
        Guarantee.NONE: "",
    }[file_io.guarantee]
    if lock_type == _JDBC:
        try:
            _database(options, name)
        except DredgeError as error:
            return f"commits are refused: {error}"
        address = redact_address(str(options.get(_URI)))
        return (
            f"commits hold the lock '{lock_id(options, name)}' in {address}"
            + (f", and need {mechanism}" if mechanism else "")
            + "; "
            "other engines share it with metastore = jdbc, this uri, "
            f"catalog-key = {options.get('dredge.lock.key')}, lock.enabled = true"
        )
    if lock_type == _HIVE:
        try:
            address = redact_address(_metastore(options, name))
        except DredgeError as error:
            return f"commits are refused: {error}"
        return (
            f"commits hold the lock of {name} in the metastore {address}"
            + (f", and need {mechanism}" if mechanism else "")
            + "; other engines share it with metastore = hive, this uri, lock.enabled = true"
        )
    if lock_type != _NONE:
        try:
            _, folder = _lock_folder(file_io, root, name, options)
        except DredgeError as error:
            return f"commits are refused: {error}"
        return (
            f"commits hold the lock files in {folder}" + (f", and need {mechanism}" if mechanism else "") + "; "
            "other engines ignore them: let only Dredge write, or set dredge.lock = jdbc"
        )
    if file_io.guarantee is Guarantee.NONE:
        return (
            "commits are refused: this storage has no exclusive creation, and the table has no lock (dredge.lock); "
            "`dredge doctor` shows under 'exclusive creation' what the store can do"
        )
    if file_io.guarantee is Guarantee.EXCLUSIVE_RENAME:
        return f"commits of all engines are exclusive by {mechanism}; they publish snapshots in the same way"
    if file_io.guarantee is Guarantee.CONDITIONAL_PUT:
        return (
            f"commits are exclusive by {mechanism}; engines that use it too share it (Paimon 2.1), "
            "others only with a common lock (dredge.lock = jdbc)"
        )
    return (
        f"commits among Dredge processes are exclusive by {mechanism}; other engines, which rename, "
        "share them only with a common lock (dredge.lock = jdbc, or a JDBC or Hive catalog with lock.enabled = true)"
    )
