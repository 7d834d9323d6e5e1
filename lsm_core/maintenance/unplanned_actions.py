"""Actions without a plan, because each is one small change: create and rename branches, rename tags, reset consumers.

Each call is recorded in the ledger as an action, with its arguments as the report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from lsm_core.errors import CorruptFile, StorageFull, StorageRefused
from lsm_core.iceberg.tag_refs import publish_tags
from lsm_core.maintenance.ledger import (
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
    """Create a branch by copying metadata (`branches.create_branch`), and record it in the table's ledger.

    Args:
        store: the table.
        branch: name of the new branch.
        from_tag: tag that the branch begins with, or None.
        from_snapshot: snapshot that the branch begins with, or None.

    Returns:
        The table on the new branch.
    """
    arguments = {"branch": branch, "from_tag": from_tag, "from_snapshot": from_snapshot}
    return _run_and_record(
        store, "create_branch", arguments, lambda: branches.create_branch(store, branch, from_tag, from_snapshot)
    )


def rename_branch(store: TableStore, branch: str, to: str) -> None:
    """Rename a branch (`branches.rename_branch`), and record the change in the table's ledger.

    Args:
        store: the table.
        branch: name of the branch.
        to: new name of the branch.
    """
    _run_and_record(
        store, "rename_branch", {"branch": branch, "to": to}, lambda: branches.rename_branch(store, branch, to)
    )


def rename_tag(store: TableStore, name: str, new_name: str) -> None:
    """Rename a tag, and record the change in the ledger; an existing tag ``new_name`` is not replaced.

    Args:
        store: the table.
        name: name of the tag.
        new_name: new name of the tag.
    """
    arguments = {"tag": name, "new_name": new_name}
    _run_and_record(
        store, "rename_tag", arguments, lambda: tags.rename(store, name, new_name), is_recorded=name != new_name
    )
    publish_tags(store)


def reset_consumer(store: TableStore, consumer_id: str, next_snapshot: int | None = None) -> None:
    """Set a consumer's next snapshot, and record the change with the consumer's previous position in the ledger.

    Args:
        store: the table.
        consumer_id: name of the consumer.
        next_snapshot: snapshot to read next, None to delete the consumer.
    """
    if next_snapshot is None:
        forget_consumer(store, consumer_id)
        return
    arguments = {"consumer": consumer_id, "next_snapshot": next_snapshot, "before": _progress(store, consumer_id)}
    _run_and_record(
        store, "reset_consumer", arguments, lambda: consumers.reset_consumer(store, consumer_id, next_snapshot)
    )


def forget_consumer(store: TableStore, consumer_id: str) -> bool:
    """Delete a consumer, and record the deletion in the table's ledger if the consumer existed.

    Args:
        store: the table.
        consumer_id: name of the consumer.

    Returns:
        Whether the consumer existed.
    """
    existed = store.file_io.exists(consumers.consumer_path(store, consumer_id))
    arguments = {"consumer": consumer_id, "next_snapshot": None, "before": _progress(store, consumer_id)}
    return _run_and_record(
        store,
        "reset_consumer",
        arguments,
        lambda: consumers.delete_consumer(store, consumer_id),
        is_recorded=existed,
    )


def _progress(store: TableStore, consumer_id: str) -> int | None:
    """Return the next snapshot of the consumer, None if its file is unreadable; a reset replaces such a file."""
    try:
        return consumers.read_consumer(store, consumer_id)
    except CorruptFile:
        return None


def _run_and_record(
    store: TableStore,
    action: str,
    report: Mapping[str, object],
    act: Callable[[], _Answer],
    *,
    is_recorded: bool = True,
) -> _Answer:
    """Run ``act``, record the run in the ledger, and return the result of ``act``.

    A storage error is recorded as a failed run. Any other error is a refusal: nothing was changed, and nothing is
    recorded. ``is_recorded`` is False if a successful run changes nothing and is not recorded either.
    """
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
    if is_recorded:
        enter(DONE, None)
    return answer
