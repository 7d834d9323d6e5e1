"""Acts that need no plan, because they are one small file and done at once: branches made and renamed, tags renamed, consumers reset.

The ledger tells of each as of an action, with what was asked for as its report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from lsm_core.errors import CorruptFile, StorageFull, StorageRefused
from lsm_core.maintenance.record import (
    DONE,
    FAILED,
    LedgerEntry,
    new_run_id,
    peak_memory,
    this_process,
    write_or_warn,
)
from lsm_core.metadata import branches, consumers, snapshots, tags
from lsm_core.metadata.store import TableStore

_Answer = TypeVar("_Answer")


def create_branch(
    store: TableStore, branch: str, from_tag: str | None = None, from_snapshot: int | None = None
) -> TableStore:
    """As `branches.create_branch`, and told in the ledger of the table."""
    told = {"branch": branch, "from_tag": from_tag, "from_snapshot": from_snapshot}
    return _told(store, "create_branch", told, lambda: branches.create_branch(store, branch, from_tag, from_snapshot))


def rename_branch(store: TableStore, branch: str, to: str) -> None:
    """As `branches.rename_branch`, and told in the ledger of the table."""
    _told(store, "rename_branch", {"branch": branch, "to": to}, lambda: branches.rename_branch(store, branch, to))


def rename_tag(store: TableStore, name: str, new_name: str) -> None:
    """As `tags.rename`, and told in the ledger; a tag that has the name already is left as it is, and not told of."""
    told = {"tag": name, "new_name": new_name}
    _told(store, "rename_tag", told, lambda: tags.rename(store, name, new_name), worth_telling=name != new_name)


def reset_consumer(store: TableStore, consumer_id: str, next_snapshot: int | None = None) -> None:
    """As `consumers.reset_consumer`, and told in the ledger, with what the consumer would have read next."""
    if next_snapshot is None:
        forget_consumer(store, consumer_id)
        return
    told = {"consumer": consumer_id, "next_snapshot": next_snapshot, "before": _progress(store, consumer_id)}
    _told(store, "reset_consumer", told, lambda: consumers.reset_consumer(store, consumer_id, next_snapshot))


def forget_consumer(store: TableStore, consumer_id: str) -> bool:
    """As `consumers.delete_consumer`, and told in the ledger where there was one."""
    there = store.file_io.exists(consumers.consumer_path(store, consumer_id))
    told = {"consumer": consumer_id, "next_snapshot": None, "before": _progress(store, consumer_id)}
    return _told(
        store,
        "reset_consumer",
        told,
        lambda: consumers.delete_consumer(store, consumer_id),
        worth_telling=there,
    )


def _progress(store: TableStore, consumer_id: str) -> int | None:
    """What the consumer would read next; a file that cannot be read is what resets are for."""
    try:
        return consumers.read_consumer(store, consumer_id)
    except CorruptFile:
        return None


def _told(
    store: TableStore,
    action: str,
    report: Mapping[str, object],
    act: Callable[[], _Answer],
    *,
    worth_telling: bool = True,
) -> _Answer:
    """Do ``act`` and enter it in the ledger; one that was refused changed nothing, one that storage stopped may have."""
    started, base = time.perf_counter(), snapshots.latest_id(store)
    run_id = new_run_id(store, action)

    def enter(outcome: str, error: Exception | None) -> None:
        entry = LedgerEntry(
            run_id=run_id,
            action=action,
            table=store.name,
            time_ms=store.clock.now_ms(),
            outcome=outcome,
            base_snapshot=base,
            error=None if error is None else f"{type(error).__name__}: {error}",
            who=this_process(),
            seconds=round(time.perf_counter() - started, 3),
            peak_rss_bytes=peak_memory(),
            report={name: value for name, value in report.items() if value is not None},
        )
        write_or_warn(store, entry, error)

    try:
        answer = act()
    except (OSError, StorageRefused, StorageFull) as error:
        enter(FAILED, error)
        raise
    if worth_telling:
        enter(DONE, None)
    return answer


__all__ = ["create_branch", "forget_consumer", "rename_branch", "rename_tag", "reset_consumer"]
