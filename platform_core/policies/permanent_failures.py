"""Failures that no retry heals, such as a corrupt file: which errors they are, and which plans they forbid. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from lsm_core.errors import (
    ArithmeticOverflow,
    CorruptFile,
    DredgeError,
    InvalidData,
    InvalidSchema,
    RetractNotSupported,
    UnsupportedFeature,
    VerificationFailed,
)
from lsm_core.maintenance import MaintenancePlan
from lsm_core.maintenance.action import RewriteItem

PERMANENT_ERRORS: Final = (
    ArithmeticOverflow,
    CorruptFile,
    InvalidData,
    InvalidSchema,
    RetractNotSupported,
    UnsupportedFeature,
    VerificationFailed,
)
"""Errors that the content of the table causes: the same plan over the same files fails again.

Errors of the environment (storage, memory, Spark, locks) may end by themselves or by a repair outside the table.
"""
PERMANENT_NAMES: Final = tuple(sorted(kind.__name__ for kind in PERMANENT_ERRORS))
MOST_TEXT: Final = 500
"""Most characters of an error's text in messages and tags of runs."""
_MOST_CAUSES: Final = 10
_MOST_PREFIXES: Final = 3
"""Parts before the message of a failed plan's text: action and class of the error, sometimes a table."""
CORRUPT: Final = CorruptFile.__name__


class RemoteError(DredgeError):
    """Error of the engine in the process of another machine, which reported only its name and text.

    Attributes:
        error: name of the error's class.
        path: path of the damaged file of a `CorruptFile`, or "".
    """

    def __init__(self, error: str, text: str, path: str = "") -> None:
        self.error, self.path = error, path
        super().__init__(text)


def restore_remote_error(report: Mapping[str, Any]) -> RemoteError:
    """Return an error that another process reported, raised from its causes.

    Args:
        report: result of `dredge.platform_core.pipes_worker.describe_error`.
    """
    entries = [report, *(cause for cause in report.get("causes") or () if isinstance(cause, Mapping))]
    errors = [
        RemoteError(str(entry.get("error", "")), str(entry.get("text", "")), str(entry.get("path") or ""))
        for entry in entries[:_MOST_CAUSES]
    ]
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def find_permanent_error(error: BaseException | None) -> DredgeError | None:
    """Return the permanent error that an exception is, or was raised from; None if there is none.

    Args:
        error: the exception; its ``__cause__`` is followed.
    """
    for _ in range(_MOST_CAUSES):
        if error is None or isinstance(error, PERMANENT_ERRORS):
            return error
        if isinstance(error, RemoteError) and error.error in PERMANENT_NAMES:
            return error
        error = error.__cause__
    return None


def error_name(error: DredgeError) -> str:
    """Return the name of an error's class, also of an error that another process reported."""
    return error.error if isinstance(error, RemoteError) else type(error).__name__


def names_permanent_error(text: str) -> bool:
    """Return whether the text of a failed plan, ``action: class of the error: message``, names a permanent error."""
    return any(part in PERMANENT_NAMES for part in text.split(": ", _MOST_PREFIXES)[:_MOST_PREFIXES])


@dataclass(frozen=True)
class PermanentFailure:
    """Failed run that no retry heals.

    Attributes:
        table: full name of the table.
        partition: path of the run's partition, or "" for the whole table.
        run_id: id of the run.
        plan: hash of the run's plan, or "".
        ended_ms: end of the run (epoch ms, wall clock).
        error: name of the error's class.
        message: text of the error.
        file: path of the file that the error is about, or "".
        file_state: state of the file in storage after the failure, or "" if it is unknown.
        snapshot: id of the newest snapshot at the time of the failure, or None if it is unknown.
        schema: id of the newest schema at the time of the failure, or None if it is unknown.
        resume_job: name of the job that lets the table be tried again, for texts.
    """

    table: str
    partition: str
    run_id: str
    plan: str
    ended_ms: int
    error: str
    message: str
    file: str = ""
    file_state: str = ""
    snapshot: int | None = None
    schema: int | None = None
    resume_job: str = "resume"

    @property
    def is_corrupt(self) -> bool:
        """Whether the run failed because a file is damaged or lost."""
        return self.error == CORRUPT

    @property
    def file_name(self) -> str:
        """Name of the file without its folders, or ""."""
        return self.file.rstrip("/").rsplit("/", 1)[-1]

    @property
    def identity(self) -> tuple[str, str, str]:
        """Key of equal failures: (table, damaged file, "") or, without a file, (table, "", plan)."""
        return (self.table, self.file, "" if self.file else self.plan)

    def text(self) -> str:
        """Return what failed, until when no run is started, and what to do."""
        problem = f"run {self.run_id[:8]} failed: {self.message}"
        if self.file:
            remedy = (
                "no run that reads this file is started until the file is restored, or a commit removes it from the "
                "table (undo, rollback, remove-unexisting-files)"
            )
        else:
            remedy = "no retry helps: not started again until a commit or a schema change alters the table"
        return f"{problem}; {remedy}; launch the job {self.resume_job} for {self.table} to try once more"


def find_forbidding(
    failures: Iterable[PermanentFailure], plan: str, partition: str, reads: frozenset[str]
) -> PermanentFailure | None:
    """Return the first failure that forbids to start a plan, or None.

    A failure forbids the plan that failed, and plans that read the damaged file. If index files or metadata are
    damaged, all plans of the partition are forbidden.

    Args:
        failures: failures of the table that still hold.
        plan: hash of the plan.
        partition: path of the plan's partition, or "" for the whole table.
        reads: damaged data files that the plan reads, by path.
    """
    for failure in failures:
        if failure.plan and failure.plan == plan:
            return failure
        if not failure.file:
            continue
        # Plans do not list index files and metadata: these may belong to any bucket of the partition.
        if failure.file in reads or (not is_data_file(failure.file) and failure.partition == partition):
            return failure
    return None


def find_read(plan: MaintenancePlan, failures: Iterable[PermanentFailure]) -> frozenset[str]:
    """Return the paths of the damaged data files that a plan would read.

    Args:
        plan: the plan.
        failures: failures of the table.
    """
    by_name = {failure.file_name: failure.file for failure in failures if failure.file}
    if not by_name:
        return frozenset()
    inputs = {file.name for item in plan.items if isinstance(item, RewriteItem) for file in item.inputs}
    return frozenset(path for name, path in by_name.items() if name in inputs)


def is_data_file(path: str) -> bool:
    """Return whether a path is that of a data file, which plans list as an input, and not of metadata."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return folder.rpartition("/")[2].startswith("bucket-") and not name.startswith("index-")
