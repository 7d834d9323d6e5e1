"""Lock in Paimon's lock table, which Java's JDBC catalogs share.

A row of `paimon_distributed_locks` is an acquisition: its time, and the number of seconds after which any process may
delete the row. The table stores neither the holder nor an id of the acquisition. So a second table keeps the holder's
name and a growing token. An acquisition is identified by its time, which a living holder advances regularly.

Source: ``JdbcCatalogLock``, ``AbstractDistributedLockDialect``.
"""

from __future__ import annotations

from typing import Final

from lsm_core.locks.database import Database, Statements
from lsm_core.locks.lease import Busy, Grant

_MAX_NAME_LENGTH: Final = 255
_CREATE: Final = (
    (
        "CREATE TABLE IF NOT EXISTS paimon_distributed_locks (lock_id VARCHAR(255) NOT NULL,"
        " acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, expire_time_seconds BIGINT DEFAULT 0 NOT NULL,"
        " PRIMARY KEY (lock_id))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS dredge_lock_holders (lock_id VARCHAR(255) NOT NULL, token BIGINT NOT NULL,"
        " holder VARCHAR(255) NOT NULL, stamp VARCHAR(40) NOT NULL, PRIMARY KEY (lock_id))"
    ),
)
_REMOVE_EXPIRED: Final = {
    "sqlite": "DELETE FROM paimon_distributed_locks WHERE lock_id = :id"
    " AND strftime('%s', 'now') - strftime('%s', acquired_at) > expire_time_seconds",
    "postgresql": "DELETE FROM paimon_distributed_locks WHERE lock_id = :id"
    " AND EXTRACT(EPOCH FROM (LOCALTIMESTAMP - acquired_at)) > expire_time_seconds",
}
_TAKE: Final = (
    "INSERT INTO paimon_distributed_locks (lock_id, expire_time_seconds) VALUES (:id, :seconds) ON CONFLICT DO NOTHING"
)
_STAMP: Final = "SELECT CAST(acquired_at AS VARCHAR(40)) FROM paimon_distributed_locks WHERE lock_id = :id"
_RENEW: Final = (
    "UPDATE paimon_distributed_locks SET acquired_at = CURRENT_TIMESTAMP"
    " WHERE lock_id = :id AND CAST(acquired_at AS VARCHAR(40)) = :stamp"
)
_RELEASE: Final = (
    "DELETE FROM paimon_distributed_locks WHERE lock_id = :id AND CAST(acquired_at AS VARCHAR(40)) = :stamp"
)
_NAME_HOLDER: Final = (
    "INSERT INTO dredge_lock_holders (lock_id, token, holder, stamp) VALUES (:id, 1, :holder, :stamp)"
    " ON CONFLICT (lock_id) DO UPDATE SET token = dredge_lock_holders.token + 1, holder = :holder, stamp = :stamp"
)
_MOVE_STAMP: Final = "UPDATE dredge_lock_holders SET stamp = :stamp WHERE lock_id = :id AND token = :token"
_FORGET_HOLDER: Final = "UPDATE dredge_lock_holders SET holder = '' WHERE lock_id = :id AND token = :token"
_HOLDER: Final = "SELECT token, holder, stamp FROM dredge_lock_holders WHERE lock_id = :id"
_OTHER_ENGINE: Final = "another engine (Paimon's lock table keeps no names)"
_prepared_databases: set[str] = set()


class JdbcLock:
    """Lock (`Lock`) by a row in Paimon's lock table of a database.

    Args:
        database: connection to the SQL database with the lock table.
        name: id of the lock.
        holder: description of this process for waiting processes.
        lease: time without a renewal after which waiting processes take over the lock (ms).
    """

    def __init__(self, database: Database, name: str, holder: str, lease: int) -> None:
        self._database, self._id, self._holder = database, name, holder[:_MAX_NAME_LENGTH]
        self._seconds = max(1, -(-lease // 1000))

    @property
    def name(self) -> str:
        """Name of the lock in messages: its id and the database."""
        return f"{self._id} in {self._database.shown}"

    def acquire(self) -> Grant | Busy:
        """Take the lock in the database if it is free or its holder's lease has expired.

        Returns:
            `Grant` of the acquired lock, or `Busy` with the process that holds the lock.
        """
        self._make_tables()
        with self._database.transaction() as sql:
            # The first statement must be a write: SQLite lets a writer wait, but refuses a reader that turns writer.
            sql.run(_REMOVE_EXPIRED[self._database.kind], id=self._id)
            if not sql.run(_TAKE, id=self._id, seconds=self._seconds):
                return self._busy(sql)
            stamp = self._stamp(sql)
            sql.run(_NAME_HOLDER, id=self._id, holder=self._holder, stamp=stamp)
            ((token, _, _),) = sql.rows(_HOLDER, id=self._id)
            return Grant(int(token), stamp)

    def _make_tables(self) -> None:
        if self._database.shown not in _prepared_databases:
            for statement in _CREATE:
                with self._database.transaction() as sql:
                    sql.run(statement)
            _prepared_databases.add(self._database.shown)

    def _busy(self, sql: Statements) -> Busy:
        stamp = self._stamp(sql)
        holders = [
            holder for _, holder, holder_stamp in sql.rows(_HOLDER, id=self._id) if holder and holder_stamp == stamp
        ]
        return Busy(holders[0] if holders else _OTHER_ENGINE, f"{stamp[:19]} UTC" if stamp else "")

    def renew(self, grant: Grant) -> Grant | None:
        """Update the lock's time in the database, so that the lease starts again.

        Returns:
            The grant with the new time, or None if the lock no longer has this grant's time.
        """
        with self._database.transaction() as sql:
            if not sql.run(_RENEW, id=self._id, stamp=grant.stamp):
                return None
            stamp = self._stamp(sql)
            sql.run(_MOVE_STAMP, id=self._id, stamp=stamp, token=grant.token)
            return Grant(grant.token, stamp)

    def owns(self, grant: Grant) -> bool:
        """Return whether the lock in the database still has the time of this grant."""
        with self._database.transaction() as sql:
            return self._stamp(sql) == grant.stamp

    def release(self, grant: Grant) -> None:
        """Remove the lock with the time of this grant from the database, and clear the holder's name."""
        with self._database.transaction() as sql:
            sql.run(_RELEASE, id=self._id, stamp=grant.stamp)
            sql.run(_FORGET_HOLDER, id=self._id, token=grant.token)

    def _stamp(self, sql: Statements) -> str:
        """Return the time of the last acquisition or renewal as the database prints it, or "" if the lock is free."""
        return "".join(str(stamp) for (stamp,) in sql.rows(_STAMP, id=self._id))
