"""Tags that are made by themselves when something was committed, and their number (Java `TagAutoCreation`, `TagBatchCreation`).

What is due is derived from the table alone, never from a process's memory: whoever commits next makes what an interrupted one left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from lsm_core.clock import local_offset_ms
from lsm_core.errors import InvalidOption
from lsm_core.format.snapshot import Snapshot
from lsm_core.format.tag_periods import TagPeriods
from lsm_core.maintenance.actions.create_tag.tag_creation import apply_tag_creation, plan_tag_creation
from lsm_core.maintenance.actions.delete_tag.tag_deletion import apply_tag_deletion
from lsm_core.maintenance.actions.expire_tags.tag_expiry import plan_tag_expiry
from lsm_core.maintenance.record import LedgerEntry, new_run_id, record_failure, write_entry
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore

_LOG: Final = logging.getLogger(__name__)
_BATCH: Final = "batch-write-"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
_MINUTE: Final = 60_000


def make_automatic_tags(store: TableStore, *, batch: bool) -> list[str]:
    """Make the tags that are due after a commit, and delete those beyond `tag.num-retained-max`.

    Args:
        store: the table.
        batch: whether the commit was one of a batch job (`tag.automatic-creation` = batch tags those alone).

    Returns:
        Names of the new tags.

    Raises:
        DredgeError: a tag or snapshot cannot be read, or an option cannot be used; the next commit tries again.
        OSError: the storage refused a step.
    """
    mode = store.options.tag_creation
    if mode == "none" or (mode == "batch" and not batch):
        return []
    made = _of_batch(store) if mode == "batch" else _of_periods(store)
    if made and store.options.tag_retained_max is not None:
        _let_go(store)
    return made


def make_tags_after_compaction(store: TableStore) -> None:
    """Make the tags that are due after a compaction job, which is done whatever becomes of them: errors are logged and in the ledger."""
    try:
        make_automatic_tags(store, batch=False)
    except Exception as error:  # noqa: BLE001  (a caller who saw it would take the compaction for failed)
        _LOG.warning("table %s: automatic tags were not made: %s", store.name, error)
        record_failure(store, "create_tag", error)


def _let_go(store: TableStore) -> None:
    """Delete the tags beyond their number, and tell the ledger."""
    plan = plan_tag_expiry(store, by_time=False)
    if not plan.items:
        return
    outcome = apply_tag_deletion(store, plan)
    entry = LedgerEntry(
        new_run_id(store, plan.action),
        plan.action,
        store.name,
        store.clock.now_ms(),
        "done",
        plan.hash,
        plan.base_snapshot,
        report=outcome.report.numbers(),
        lines=tuple(outcome.lines),
    )
    write_entry(store, entry)


def _of_batch(store: TableStore) -> list[str]:
    """One tag a day, or of the name that `tag.batch.customized-name` says, is moved to the newest snapshot."""
    newest = snapshots.latest(store)
    if newest is None:
        return []
    day = datetime.fromtimestamp((newest.time_millis + local_offset_ms(newest.time_millis)) / 1000, UTC)
    name = store.options.get("tag.batch.customized-name") or f"{_BATCH}{day:%Y-%m-%d}"
    report = apply_tag_creation(store, plan_tag_creation(store, name, newest.id, replace=True)).report
    return [name] if report.changed else []


def _of_periods(store: TableStore) -> list[str]:
    """Of the snapshots since the last automatic tag those get one that are the first after the end of a period."""
    periods = tags.periods(store)
    if periods is None:
        return []
    options, made = store.options, []
    times = {name: time for name in tags.list_names(store) if (time := periods.time_of(name)) is not None}
    following, after = None, 0
    if times:
        last = max(times, key=lambda name: (times[name], name))
        following, after = times[last] + periods.length, tags.read_tag(store, last).id
    for snapshot, moment in _candidates(store, periods, following, after):
        if following is not None and moment - int(options.get("tag.creation-delay")) < following + periods.length:
            continue
        this = periods.previous(moment)
        if options.get("tag.automatic-completion") and following is not None:
            this = following
        name = periods.name_of(this)
        if tags.create(store, name, tags.made_now(store, snapshot, options.tag_time_retained)):
            made.append(name)
        following = this + periods.length
    return made


def _candidates(
    store: TableStore, periods: TagPeriods, following: int | None, after: int
) -> Iterator[tuple[Snapshot, int]]:
    """Snapshots newer than ``after``, oldest first, and their times: without an automatic tag all, else those that may be due.

    Times of snapshots grow, so behind the first that is not due, looking back, no other is: a commit reads one or two, however long a
    period lasts.
    """
    ids = [number for number in snapshots.list_ids(store) if number > after]
    due: list[tuple[Snapshot, int]] = []
    for number in ids if following is None else reversed(ids):
        snapshot = snapshots.try_read(store, number)
        moment = None if snapshot is None else _time_of(store, snapshot)
        if snapshot is None or moment is None:
            continue
        delayed = moment - int(store.options.get("tag.creation-delay"))
        if following is not None and delayed < following + periods.length:
            break
        due.append((snapshot, moment))
    yield from due if following is None else reversed(due)


def _time_of(store: TableStore, snapshot: Snapshot) -> int | None:
    """The wall clock at a snapshot: when it was committed, here; or its watermark, in `sink.watermark-time-zone`. None without one."""
    if store.options.tag_creation == "process-time":
        return snapshot.time_millis + local_offset_ms(snapshot.time_millis)
    mark = snapshot.watermark
    return None if mark is None or mark < 0 else mark + _offset(store, mark)


def _offset(store: TableStore, moment: int) -> int:
    """How far (ms) `sink.watermark-time-zone` is ahead of UTC then. Raises InvalidOption for a zone that nobody knows."""
    key = "sink.watermark-time-zone"
    name = str(store.options.get(key)).strip()
    if name in ("UTC", "GMT", "Z", "UT"):
        return 0
    fixed = _OFFSET.fullmatch(name)
    if fixed is not None:
        minutes = int(fixed[2]) * 60 + int(fixed[3] or 0)
        return (-minutes if fixed[1] == "-" else minutes) * _MINUTE
    try:
        ahead = datetime.fromtimestamp(moment / 1000, ZoneInfo(name)).utcoffset()
    except (KeyError, OSError, ValueError, OverflowError) as error:
        raise InvalidOption(key, name, "a time zone such as UTC, +08:00 or Asia/Shanghai", store.name) from error
    return 0 if ahead is None else int(ahead.total_seconds()) * 1000


__all__ = ["make_automatic_tags", "make_tags_after_compaction"]
