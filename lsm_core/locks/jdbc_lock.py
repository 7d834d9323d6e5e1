"""A lock in Paimon's lock table, which Java's JDBC catalogs share (Java `JdbcCatalogLock`, `AbstractDistributedLockDialect`).

A row of `paimon_distributed_locks` is a holding: its time of acquisition and after how many seconds anybody may remove it. The table
tells neither who holds a lock nor which holding it is, so a table of our own beside it keeps the holder's name and a token that grows;
a holding is recognised by its time of acquisition, which its holder moves on while it lives.
"""

from __future__ import annotations

from typing import Final

from lsm_core.locks.database import Database, Statements
from lsm_core.locks.lease import Busy, Grant

_LONGEST_NAME: Final = 255
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
_made: set[str] = set()


class JdbcLock:
    """The lock ``name`` in ``database``; see `Lock`. ``lease`` in ms: how long we may be silent before others take over."""

    def __init__(self, database: Database, name: str, holder: str, lease: int) -> None:
        self._database, self._id, self._holder = database, name, holder[:_LONGEST_NAME]
        self._seconds = max(1, -(-lease // 1000))

    @property
    def name(self) -> str:
        """The lock's id, and where it lies."""
        return f"{self._id} in {self._database.shown}"

    def acquire(self) -> Grant | Busy:
        """See Lock."""
        self._make_tables()
        with self._database.transaction() as sql:
            # The first statement must write: SQLite then waits its turn, while a reader that turns writer is refused at once.
            sql.run(_REMOVE_EXPIRED[self._database.kind], id=self._id)
            if not sql.run(_TAKE, id=self._id, seconds=self._seconds):
                return self._busy(sql)
            stamp = self._stamp(sql)
            sql.run(_NAME_HOLDER, id=self._id, holder=self._holder, stamp=stamp)
            ((token, _, _),) = sql.rows(_HOLDER, id=self._id)
            return Grant(int(token), stamp)

    def _make_tables(self) -> None:
        if self._database.shown not in _made:
            for statement in _CREATE:
                with self._database.transaction() as sql:
                    sql.run(statement)
            _made.add(self._database.shown)

    def _busy(self, sql: Statements) -> Busy:
        stamp = self._stamp(sql)
        named = [holder for _, holder, of in sql.rows(_HOLDER, id=self._id) if holder and of == stamp]
        return Busy(named[0] if named else _OTHER_ENGINE, f"{stamp[:19]} UTC" if stamp else "")

    def renew(self, grant: Grant) -> Grant | None:
        """See Lock."""
        with self._database.transaction() as sql:
            if not sql.run(_RENEW, id=self._id, stamp=grant.stamp):
                return None
            stamp = self._stamp(sql)
            sql.run(_MOVE_STAMP, id=self._id, stamp=stamp, token=grant.token)
            return Grant(grant.token, stamp)

    def owns(self, grant: Grant) -> bool:
        """See Lock."""
        with self._database.transaction() as sql:
            return self._stamp(sql) == grant.stamp

    def release(self, grant: Grant) -> None:
        """See Lock."""
        with self._database.transaction() as sql:
            sql.run(_RELEASE, id=self._id, stamp=grant.stamp)
            sql.run(_FORGET_HOLDER, id=self._id, token=grant.token)

    def _stamp(self, sql: Statements) -> str:
        """When the lock was got or renewed, as the database prints it; "" while nobody has it."""
        return "".join(str(stamp) for (stamp,) in sql.rows(_STAMP, id=self._id))
