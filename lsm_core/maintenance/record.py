"""The ledger: what maintenance did to a table, one JSON-lines file per run, created once and never changed.

Writers never meet, because every run has a file of its own, whose name sorts by time. Readers take what they understand: an entry that
is damaged, or that a newer Dredge wrote, is told by name and hides no other.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, DredgeError, InvalidData, InvalidOption, StorageFull, StorageRefused
from lsm_core.json_reader import parse_json
from lsm_core.maintenance.action import PLAN_PROPERTY, Applied, MaintenancePlan, find_action
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import check_name

_LOG: Final = logging.getLogger(__name__)
_SUFFIX: Final = ".jsonl"
_VERSION: Final = 1
_LOOKED_AT: Final = 100
"""The newest ledger entries in which an application is looked for, when its snapshot has expired."""
_RUN_ID: Final = re.compile(r"([0-9]{13,15})-(.+)-[0-9a-f]{8}")
_HEAD_BYTES: Final = 16 << 20
"""An entry whose first line is longer is damaged: a report of all buckets of a large table has a few MiB."""
_CHUNK: Final = 1 << 16
_LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, behind which nobody shows a time."""

DONE: Final = "done"
REFUSED: Final = "refused"
"""The plan did not fit the table any more, or a safety rule stopped it: nothing was changed."""
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
"""Publishing was reported as failed and may have happened."""
WRITE_STALL: Final = "write_stall"
"""Action of entries that tell how long a writer waited for its compactions: no run of maintenance."""
UNREADABLE: Final = "unreadable"
"""Of an entry that cannot be read; ``error`` says why."""


@dataclass(frozen=True)
class LedgerEntry:
    """One run: ``outcome`` is "done", "refused", "failed", "unknown" (whether it was published) or "unreadable"; ``time_ms`` epoch ms.

    ``base_snapshot`` is that of the plan, ``snapshot_id`` the one that was published; ``report`` its numbers as plain values. ``who``: user, host and
    process. ``predicted_seconds`` are the plan's, ``seconds`` wall-clock time, ``peak_rss_bytes`` of the process that applied it.
    ``lines`` are the run's details (one mapping a bucket, file or snapshot), as written; none where heads alone were read.
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
        """Whether its file could be read."""
        return self.outcome != UNREADABLE

    def head(self) -> dict[str, Any]:
        """The first line of the file."""
        members = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "lines"}
        return {"version": _VERSION, **members, "report": dict(self.report)}


def new_run_id(store: TableStore, action: str) -> str:
    """An id that sorts by time and is unique: "<epoch ms, 13 digits>-<action>-<8 hex digits>"."""
    return f"{store.clock.now_ms():013d}-{action}-{uuid.uuid4().hex[:8]}"


def this_process() -> str:
    """Who acts here, for the ledger: "user@host, process 4711"; a user without a name is told by number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def write_entry(store: TableStore, entry: LedgerEntry) -> str:
    """Append a run to the ledger and return its path. Raises StorageFull or OSError; never overwrites."""
    lines = [entry.head(), *entry.lines]
    data = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False, default=str) + "\n" for line in lines)
    path = f"{store.ledger_dir}/{entry.run_id}{_SUFFIX}"
    if not store.file_io.write_exclusive(path, data.encode()):
        raise CorruptFile(path, "a ledger entry of that run is already there")
    return path


def write_or_warn(store: TableStore, entry: LedgerEntry, error: Exception | None = None) -> None:
    """As :func:`write_entry`, after the run, which failed with ``error`` or not.

    What was done is done: a ledger that cannot be written is said in the log, it does not fail the run.
    """
    try:
        write_entry(store, entry)
    except (OSError, DredgeError) as failure:
        # What the error says of the storage is not said a second time, for the ledger.
        told = isinstance(error, StorageRefused | StorageFull | OSError) and isinstance(failure, type(error))
        level = logging.DEBUG if told else logging.WARNING
        _LOG.log(level, "run %s of table %s is not in the ledger: %s", entry.run_id, store.name, failure)


def record_failure(store: TableStore, action: str, error: Exception, approved_by: str | None = None) -> None:
    """Write a run down that failed before it had a plan; a ledger that cannot be written is said in the log.

    Args:
        store: the table.
        action: what was to be planned.
        error: what it failed with.
        approved_by: who asked for it.
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
    """The runs, oldest first (``limit``: only that many newest, and no other is read); ``heads``: without their lines.

    ``stalls``: also the entries of writers that waited (`WRITE_STALL`).

    An entry that is damaged, or of a newer version, has the outcome "unreadable" and its error; it keeps no other from being read.
    """
    return list(iterate_ledger(store, limit, heads=heads, stalls=stalls))


def iterate_ledger(
    store: TableStore, limit: int | None = None, *, heads: bool = False, since_ms: int = 0, stalls: bool = False
) -> Iterator[LedgerEntry]:
    """As :func:`read_ledger`, one by one: in memory are the names of the files and one entry. ``since_ms``: no older runs (epoch ms)."""
    names = sorted(status.name for status in store.file_io.list_dir(store.ledger_dir) if status.name.endswith(_SUFFIX))
    names = names[bisect_left(names, f"{since_ms:013d}") :]  # their names begin with their time
    if not stalls:
        names = [name for name in names if f"-{WRITE_STALL}-" not in name]
    for name in names if limit is None else names[-limit:] if limit > 0 else ():
        yield _read(store, f"{store.ledger_dir}/{name}", heads=heads)


def find_entry(store: TableStore, run_id: str) -> LedgerEntry:
    """The entry of one run. Raises InvalidOption naming the newest runs where there is none, CorruptFile where it cannot be read."""
    try:
        path = f"{store.ledger_dir}/{check_name(str(run_id) + _SUFFIX, store.name)}"
        found = _read(store, path) if store.file_io.exists(path) else None
    except InvalidData:
        found = None
    if found is None:
        newest = [entry.run_id for entry in read_ledger(store, 3, heads=True)]
        known = f"a run of the ledger, such as {', '.join(newest)}" if newest else "nothing: the ledger is empty"
        raise InvalidOption("run_id", run_id, known, store.name)
    if not found.readable:
        raise CorruptFile(path, str(found.error))
    return found


def applied_before(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """Return how ``plan`` was carried out before; None where neither snapshots, ledger nor what its action leaves behind tell of it.

    Raises CorruptFile for a snapshot that cannot be read; a ledger entry that cannot be read tells nothing.
    """
    base = plan.base_snapshot or 0
    for snapshot in snapshots.iterate(store, [number for number in snapshots.list_ids(store) if number > base]):
        if (snapshot.properties or {}).get(PLAN_PROPERTY) == plan.hash:
            return Applied(snapshot.id, snapshot.time_millis, f"snapshot {snapshot.id}")
    action = find_action(plan.action, store.name)
    try:
        newest = read_ledger(store, _LOOKED_AT, heads=True)
    except CorruptFile:  # no folder
        newest = []
    for entry in reversed(newest):
        told = entry.plan_hash == plan.hash and entry.outcome == DONE
        if told and (entry.snapshot_id is not None or not action.commits):
            return Applied(entry.snapshot_id, entry.time_ms, f"run {entry.run_id}")
    return action.trace(store, plan)


def _read(store: TableStore, path: str, *, heads: bool = False) -> LedgerEntry:
    """The entry at ``path``, an unreadable one as such; what a newer version added to the head is passed over."""
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
        known = {one.name for one in fields(LedgerEntry)} - {"lines"}
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
        found = _RUN_ID.fullmatch(run_id)
        time_ms, action = (min(int(found[1]), _LATEST), found[2]) if found else (0, "")
        told = f"no ledger entry that can be read: {run_id}{_SUFFIX}: {error!r}"
        return LedgerEntry(run_id, action, store.name, time_ms, UNREADABLE, error=told)


def _first_line(store: TableStore, path: str) -> str:
    data = bytearray()
    with store.file_io.open_input(path) as source:
        while b"\n" not in data and (part := source.read(_CHUNK)):
            data += part
            if len(data) > _HEAD_BYTES:
                raise ValueError(f"its first line is longer than {_HEAD_BYTES} bytes")
    return bytes(data).partition(b"\n")[0].decode()


def _require_types(entry: LedgerEntry) -> None:
    """Raise TypeError for members of other types, or out of bounds: everybody may write into the table's folder."""
    texts = (entry.run_id, entry.action, entry.table, entry.outcome, entry.plan_hash, entry.who)
    optional = (entry.approved_by, entry.error)
    whole = (entry.base_snapshot, entry.snapshot_id, entry.peak_rss_bytes)
    spans = (entry.seconds, entry.predicted_seconds)
    if (
        not all(isinstance(one, str) for one in texts)
        or not all(one is None or isinstance(one, str) for one in optional)
        or not all(one is None or (_is_whole(one) and abs(one) < 2**63) for one in whole)
        or not (_is_whole(entry.time_ms) and 0 <= entry.time_ms <= _LATEST)
        or not all(one is None or _is_span(one) for one in spans)
    ):
        raise TypeError("a member of its first line has another type, or is out of bounds")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_span(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53)
