"""Ledger of a table's maintenance runs: one JSON-lines file per run, created once and never changed.

Processes do not conflict, because every run has its own file, whose name sorts by time. Readers skip JSON fields that
they do not know. An entry that is damaged or of a newer version is reported by name, and all readable entries are still
returned. The ledger also has entries for writers that waited for a compaction.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import resource
import socket
import sys
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.errors import (
    CorruptFile,
    DredgeError,
    InvalidData,
    InvalidOption,
    StorageFull,
    StorageRefused,
    TableNotFound,
)
from lsm_core.format.partitions import partition_text
from lsm_core.json_text import parse_json
from lsm_core.maintenance.action import PLAN_PROPERTY, Applied, MaintenancePlan, bucket_name, find_action
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

if TYPE_CHECKING:
    from lsm_core.write.background import WriteStall

_LOG: Final = logging.getLogger(__name__)
_SUFFIX: Final = ".jsonl"
_VERSION: Final = 1
_SEARCHED_RUNS: Final = 100
"""Number of newest ledger entries that are searched for the run of a plan whose snapshot has expired."""
_RUN_ID: Final = re.compile(r"([0-9]{13,15})-(.+)-[0-9a-f]{8}")
_HEAD_BYTES: Final = 16 << 20
"""Longest first line of a valid entry: a report of all buckets of a large table has a few MiB."""
_CHUNK: Final = 1 << 16
_LATEST: Final = 253_402_300_799_999
"""Last millisecond of the year 9999, the latest time that can be displayed."""

DONE: Final = "done"
REFUSED: Final = "refused"
"""Outcome: the plan no longer fits the table, or a safety rule stopped it; nothing was changed."""
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
"""Outcome: publishing was reported as failed and may have happened."""
BY_WRITER: Final = "writer"
"""Approver in the ledger for the work of a writer after its commit."""
WRITE_STALL: Final = "write_stall"
"""Action of entries for a writer's waits for its compactions, which are no maintenance runs."""
UNREADABLE: Final = "unreadable"
"""Outcome of an entry that cannot be read; ``error`` has the reason."""


@dataclass(frozen=True)
class LedgerEntry:
    """One maintenance run.

    Attributes:
        run_id: id of the run, sorted by time.
        action: name of the action.
        table: name of the table.
        time_ms: time at which the entry was made, at the end of the run (epoch ms).
        outcome: "done", "refused", "failed", "unknown" (whether it was published) or "unreadable".
        plan_hash: hash of the plan.
        base_snapshot: newest snapshot at planning.
        snapshot_id: snapshot that the run published, None if it published none.
        approved_by: name of the person or process that approved the run, None if unknown.
        error: error that ended the run, as text; None without an error.
        who: user, host and process that ran the action.
        seconds: wall-clock time.
        predicted_seconds: seconds that the plan estimated.
        peak_rss_bytes: peak memory of the process that applied the plan.
        report: numbers of the report as plain values.
        lines: details as written, one mapping per bucket, file or snapshot; empty if only heads were read.
    """

    run_id: str
    action: str
    table: str
    time_ms: int
    outcome: str
    plan_hash: str = ""
    base_snapshot: int | None = None
    snapshot_id: int | None = None
    approved_by: str | None = None
    error: str | None = None
    who: str = ""
    seconds: float | None = None
    predicted_seconds: float | None = None
    peak_rss_bytes: int | None = None
    report: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Mapping[str, Any], ...] = ()

    @property
    def readable(self) -> bool:
        """Whether the file of the entry could be read."""
        return self.outcome != UNREADABLE

    def head(self) -> dict[str, Any]:
        """Return the first line of the entry's file as JSON values: the version and all fields except ``lines``."""
        members = {member.name: getattr(self, member.name) for member in fields(self) if member.name != "lines"}
        return {"version": _VERSION, **members, "report": dict(self.report)}


def new_run_id(store: TableStore, action: str) -> str:
    """Return a unique id that sorts by time: "<epoch ms, 13 digits>-<action>-<8 hex digits>".

    Args:
        store: the table, for its clock.
        action: name of the action.
    """
    return f"{store.clock.now_ms():013d}-{action}-{uuid.uuid4().hex[:8]}"


def this_process() -> str:
    """Return user, host and process for the ledger: "user@host, process 4711", with the user id if there is no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"


def peak_memory() -> int:
    """Return the peak resident size of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def write_entry(store: TableStore, entry: LedgerEntry) -> str:
    """Add a run to the ledger; existing files are never overwritten.

    Args:
        store: the table.
        entry: the run.

    Returns:
        Path of the new file.

    Raises:
        TableNotFound: the table was dropped, renamed or replaced since it was opened.
        StorageFull: the storage is full.
        OSError: the file cannot be written.
        CorruptFile: the ledger already has an entry of this run.
    """
    store.require_folder()
    lines = [entry.head(), *entry.lines]
    data = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False, default=str) + "\n" for line in lines)
    path = f"{store.ledger_dir}/{entry.run_id}{_SUFFIX}"
    if not store.file_io.write_exclusive(path, data.encode()):
        raise CorruptFile(path, "a ledger entry of that run is already there")
    return path


def write_or_warn(store: TableStore, entry: LedgerEntry, error: Exception | None = None) -> None:
    """Add a finished run to the ledger; a failure is logged and does not fail the run.

    Args:
        store: the table.
        entry: the run.
        error: error of the run, or None.
    """
    try:
        write_entry(store, entry)
    except (OSError, DredgeError) as failure:
        # A storage error that the run reports already is not logged again for the ledger.
        already_reported = isinstance(error, StorageRefused | StorageFull | TableNotFound | OSError) and isinstance(
            failure, type(error)
        )
        level = logging.DEBUG if already_reported else logging.WARNING
        _LOG.log(level, "run %s of table %s is not in the ledger: %s", entry.run_id, store.name, failure)


def record_failure(store: TableStore, action: str, error: Exception, approved_by: str | None = None) -> None:
    """Record a run that failed before it had a plan; a ledger that cannot be written is logged.

    Args:
        store: the table.
        action: name of the action.
        error: error of the run.
        approved_by: name of the approver, None for none.
    """
    entry = LedgerEntry(
        new_run_id(store, action),
        action,
        store.name,
        store.clock.now_ms(),
        FAILED,
        approved_by=approved_by,
        error=f"{type(error).__name__}: {error}",
        who=this_process(),
    )
    write_or_warn(store, entry, error)


def read_ledger(
    store: TableStore, limit: int | None = None, *, heads: bool = False, stalls: bool = False
) -> list[LedgerEntry]:
    """Return the runs, oldest first.

    An entry that is damaged or of a newer version has the outcome "unreadable" and its error. Such an entry does not
    prevent the reading of later entries.

    Args:
        store: the table.
        limit: number of newest runs to read, None for all.
        heads: read only the head of each entry, without `LedgerEntry.lines`.
        stalls: include the waits of writers (`WRITE_STALL`).
    """
    return list(iterate_ledger(store, limit, heads=heads, stalls=stalls))


def iterate_ledger(
    store: TableStore,
    limit: int | None = None,
    *,
    heads: bool = False,
    since_ms: int = 0,
    stalls: bool = False,
    action: str | None = None,
) -> Iterator[LedgerEntry]:
    """Yield the runs, oldest first, one at a time; memory holds the file names and one entry.

    Args:
        store: the table.
        limit: number of newest runs to read, None for all.
        heads: read only the head of each entry, without `LedgerEntry.lines`.
        since_ms: start of the oldest run to read (epoch ms).
        stalls: include the waits of writers (`WRITE_STALL`).
        action: name of the only action to read, None for all.
    """
    names = sorted(status.name for status in store.file_io.list_dir(store.ledger_dir) if status.name.endswith(_SUFFIX))
    names = names[bisect_left(names, f"{since_ms:013d}") :]  # their names begin with their time
    if not stalls:
        names = [name for name in names if f"-{WRITE_STALL}-" not in name]
    if action is not None:
        names = [name for name in names if (parts := _RUN_ID.match(name)) is not None and parts[2] == action]
    for name in names if limit is None else names[-limit:] if limit > 0 else ():
        yield _read(store, f"{store.ledger_dir}/{name}", heads=heads)


def find_entry(store: TableStore, run_id: str) -> LedgerEntry:
    """Return the entry of one run.

    Args:
        store: the table.
        run_id: id of the run.

    Raises:
        InvalidOption: the run does not exist; the message names the newest runs.
        CorruptFile: the entry cannot be read.
    """
    try:
        path = f"{store.ledger_dir}/{check_name(str(run_id) + _SUFFIX, store.name)}"
        entry = _read(store, path) if store.file_io.exists(path) else None
    except InvalidData:
        entry = None
    if entry is None:
        newest = [run.run_id for run in read_ledger(store, 3, heads=True)]
        known = f"a run of the ledger, such as {', '.join(newest)}" if newest else "nothing: the ledger is empty"
        raise InvalidOption("run_id", run_id, known, store.name)
    if not entry.readable:
        raise CorruptFile(path, str(entry.error))
    return entry


def applied_before(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """Return when and how a plan was applied before, or None if it was not.

    An application is recognised by a snapshot with the plan's hash, by a ledger entry, or by the action's effects, such
    as deleted files.

    Unreadable ledger entries are skipped.

    Args:
        store: the table.
        plan: plan that may have been applied before.

    Raises:
        CorruptFile: a snapshot cannot be read.
    """
    base = plan.base_snapshot or 0
    for snapshot in snapshots.iterate(store, [number for number in snapshots.list_ids(store) if number > base]):
        if (snapshot.properties or {}).get(PLAN_PROPERTY) == plan.hash:
            return Applied(snapshot.id, snapshot.time_millis, f"snapshot {snapshot.id}")
    action = find_action(plan.action, store.name)
    try:
        newest = read_ledger(store, _SEARCHED_RUNS, heads=True)
    except CorruptFile:  # no folder
        newest = []
    for entry in reversed(newest):
        is_application = entry.plan_hash == plan.hash and entry.outcome == DONE
        if is_application and (entry.snapshot_id is not None or not action.work.commits):
            return Applied(entry.snapshot_id, entry.time_ms, f"run {entry.run_id}")
    return action.trace(store, plan)


def _read(store: TableStore, path: str, *, heads: bool = False) -> LedgerEntry:
    """Return the entry at ``path``, with outcome "unreadable" if reading fails; unknown JSON fields are skipped."""
    run_id = path.rpartition("/")[2].removesuffix(_SUFFIX)
    try:
        if heads:
            lines = [parse_json(_first_line(store, path), unique=True)]
        else:
            lines = [parse_json(line, unique=True) for line in store.file_io.read_bytes(path).decode().splitlines()]
        head = lines.pop(0)
        if not all(isinstance(line, dict) for line in (head, *lines)):
            raise TypeError("a line is not an object")
        if not isinstance(head.get("report", {}), dict):
            raise TypeError("its report is not an object")
        if head["version"] != _VERSION:
            raise ValueError(f"version {head['version']!r}, this Dredge reads version {_VERSION}")
        known = {member.name for member in fields(LedgerEntry)} - {"lines"}
        entry = LedgerEntry(**{name: value for name, value in head.items() if name in known}, lines=tuple(lines))
        _require_types(entry)
        return entry
    except (
        IndexError,
        KeyError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
        DredgeError,
        pa.ArrowException,
    ) as error:
        name_match = _RUN_ID.fullmatch(run_id)
        time_ms, action = (min(int(name_match[1]), _LATEST), name_match[2]) if name_match else (0, "")
        reason = f"no ledger entry that can be read: {run_id}{_SUFFIX}: {error!r}"
        return LedgerEntry(run_id, action, store.name, time_ms, UNREADABLE, error=reason)


def _first_line(store: TableStore, path: str) -> str:
    data = bytearray()
    with store.file_io.open_input(path) as source:
        while b"\n" not in data and (part := source.read(_CHUNK)):
            data += part
            if len(data) > _HEAD_BYTES:
                raise ValueError(f"its first line is longer than {_HEAD_BYTES} bytes")
    return bytes(data).partition(b"\n")[0].decode()


def _require_types(entry: LedgerEntry) -> None:
    """Raise TypeError if a field has a wrong type or is out of bounds, because anyone may write the ledger's files."""
    texts = (entry.run_id, entry.action, entry.table, entry.outcome, entry.plan_hash, entry.who)
    optional = (entry.approved_by, entry.error)
    whole = (entry.base_snapshot, entry.snapshot_id, entry.peak_rss_bytes)
    spans = (entry.seconds, entry.predicted_seconds)
    if (
        not all(isinstance(member, str) for member in texts)
        or not all(member is None or isinstance(member, str) for member in optional)
        or not all(member is None or (_is_whole(member) and abs(member) < 2**63) for member in whole)
        or not (_is_whole(entry.time_ms) and 0 <= entry.time_ms <= _LATEST)
        or not all(member is None or _is_span(member) for member in spans)
    ):
        raise TypeError("a member of its first line has another type, or is out of bounds")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_span(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53)


def record_stalls(store: TableStore, stalls: Sequence[WriteStall], commit_user: str) -> None:
    """Add one ledger entry for the times that a writer waited for compactions; a failure is only logged.

    Args:
        store: the table.
        stalls: waits of the writer for its compactions, at least one.
        commit_user: commit user of the writer.
    """
    seconds: dict[tuple[bytes, int], float] = {}
    runs: dict[tuple[bytes, int], int] = {}
    for stall in stalls:
        place = stall.partition, stall.bucket
        seconds[place] = seconds.get(place, 0.0) + stall.seconds
        runs[place] = max(runs.get(place, 0), stall.sorted_runs)
    lines = tuple(
        {
            "event": "stalled",
            "bucket": bucket_name(partition_text(store.schema, partition, store.options), bucket),
            "seconds": round(waited, 3),
            "sorted_runs": runs[partition, bucket],
        }
        for (partition, bucket), waited in sorted(seconds.items(), key=lambda entry: -entry[1])
    )
    run_id, total = new_run_id(store, WRITE_STALL), round(sum(seconds.values()), 3)
    report = {
        "stalls": len(stalls),
        "stalled_seconds": total,
        "sorted_runs": max(runs.values()),
        "stop_trigger": store.options.stop_trigger,
        "commit_user": commit_user,
    }
    entry = LedgerEntry(
        run_id,
        WRITE_STALL,
        store.name,
        store.clock.now_ms(),
        DONE,
        who=this_process(),
        seconds=total,
        report=report,
        lines=lines,
    )
    write_or_warn(store, entry)
