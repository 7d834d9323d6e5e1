"""The ledger: what maintenance did to a table, one JSON-lines file per run, created once and never changed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lsm_core.errors import CorruptFile
from lsm_core.maintenance.action import PLAN_PROPERTY, Applied, MaintenancePlan, find_action
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

_SUFFIX: Final = ".jsonl"
_VERSION: Final = 1
_LOOKED_AT: Final = 100
"""The newest ledger entries in which an application is looked for, when its snapshot has expired."""


@dataclass(frozen=True)
class LedgerEntry:
    """One run: ``outcome`` is "done", "nothing" or "failed"; ``time_ms`` epoch ms; ``report`` its numbers as plain values.

    ``lines`` are the run's details (one mapping a bucket, file or snapshot), as written.
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
    report: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Mapping[str, Any], ...] = ()

    def head(self) -> dict[str, Any]:
        """The first line of the file."""
        return {
            "version": _VERSION,
            "run_id": self.run_id,
            "action": self.action,
            "table": self.table,
            "time_ms": self.time_ms,
            "outcome": self.outcome,
            "plan_hash": self.plan_hash,
            "base_snapshot": self.base_snapshot,
            "snapshot_id": self.snapshot_id,
            "approved_by": self.approved_by,
            "error": self.error,
            "report": dict(self.report),
        }


def new_run_id(store: TableStore, action: str) -> str:
    """An id that sorts by time and is unique: "<epoch ms, 13 digits>-<action>-<8 hex digits>"."""
    return f"{store.clock.now_ms():013d}-{action}-{uuid.uuid4().hex[:8]}"


def write_entry(store: TableStore, entry: LedgerEntry) -> str:
    """Append a run to the ledger and return its path. Raises StorageFull or OSError; never overwrites."""
    lines = [entry.head(), *entry.lines]
    data = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False, default=str) + "\n" for line in lines)
    path = f"{store.ledger_dir}/{entry.run_id}{_SUFFIX}"
    if not store.file_io.write_exclusive(path, data.encode()):
        raise CorruptFile(path, "a ledger entry of that run is already there")
    return path


def read_ledger(store: TableStore, limit: int | None = None) -> list[LedgerEntry]:
    """The runs, oldest first (``limit``: only that many newest). Raises CorruptFile naming an unreadable entry."""
    names = sorted(status.name for status in store.file_io.list_dir(store.ledger_dir) if status.name.endswith(_SUFFIX))
    chosen: Sequence[str] = names if limit is None else names[-limit:] if limit > 0 else []
    return [_read(store, f"{store.ledger_dir}/{name}") for name in chosen]


def applied_before(store: TableStore, plan: MaintenancePlan) -> Applied | None:
    """Return how ``plan`` was carried out before; None where neither snapshots, ledger nor what its action leaves behind tell of it.

    Raises CorruptFile for a snapshot that cannot be read; a ledger that cannot be read tells nothing.
    """
    base = plan.base_snapshot or 0
    for snapshot in snapshots.iterate(store, [number for number in snapshots.list_ids(store) if number > base]):
        if (snapshot.properties or {}).get(PLAN_PROPERTY) == plan.hash:
            return Applied(snapshot.id, snapshot.time_millis, f"snapshot {snapshot.id}")
    try:
        entries = read_ledger(store, _LOOKED_AT)
    except CorruptFile:
        return None
    action = find_action(plan.action, store.name)
    for entry in reversed(entries):
        told = entry.plan_hash == plan.hash and entry.outcome == "done"
        if told and (entry.snapshot_id is not None or not action.commits):
            return Applied(entry.snapshot_id, entry.time_ms, f"run {entry.run_id}")
    return action.trace(store, plan)


def _read(store: TableStore, path: str) -> LedgerEntry:
    try:
        head, *lines = [json.loads(line) for line in store.file_io.read_bytes(path).decode().splitlines()]
        if not all(isinstance(line, dict) for line in (head, *lines)):
            raise TypeError("a line is not an object")
        if head.pop("version") != _VERSION:
            raise CorruptFile(path, "a ledger entry of another version of Dredge")
        return LedgerEntry(lines=tuple(lines), **head)
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise CorruptFile(path, f"no ledger entry: {error!r}") from error
