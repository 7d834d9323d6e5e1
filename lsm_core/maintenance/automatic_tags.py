"""Automatic creation of tags after commits, up to a maximum number (Java `TagAutoCreation`, `TagBatchCreation`).

Due tags are derived from the table alone, never from a process's memory. So the next commit creates the tags that an
interrupted process did not create.
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
from lsm_core.iceberg.tag_refs import publish_tags
from lsm_core.maintenance.actions.create_tag import apply_tag_creation, plan_tag_creation
from lsm_core.maintenance.actions.delete_tag import apply_tag_deletion
from lsm_core.maintenance.actions.expire_tags import plan_tag_expiry
from lsm_core.maintenance.ledger import LedgerEntry, new_run_id, record_failure, write_entry
from lsm_core.metadata import snapshots, tags
from lsm_core.metadata.store import TableStore

_LOG: Final = logging.getLogger(__name__)
_BATCH: Final = "batch-write-"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
_MINUTE: Final = 60_000


def make_automatic_tags(store: TableStore, *, batch: bool) -> list[str]:
    """Create the tags that are due after a commit, and delete the oldest tags beyond `tag.num-retained-max`.

    Args:
        store: the table.
        batch: whether a batch job made the commit; `tag.automatic-creation` = batch tags only commits of batch jobs.

    Returns:
        Names of the tags that were created or, in batch mode, moved to the newest snapshot.

    Raises:
        DredgeError: a tag or snapshot cannot be read, or an option cannot be used; the next commit tries again.
        OSError: the storage refused a step.
    """
    mode = store.options.tag_creation
    if mode == "none" or (mode == "batch" and not batch):
        return []
    created = _tag_batch(store) if mode == "batch" else _tag_periods(store)
    if created and store.options.tag_retained_max is not None:
        _delete_surplus_tags(store)
    return created


def make_tags_after_compaction(store: TableStore) -> None:
    """Create the tags that are due after a compaction job; an error is logged and recorded, and does not fail the job.

    Args:
        store: the table.
    """
    try:
        make_automatic_tags(store, batch=False)
    except Exception as error:  # noqa: BLE001  (a caller who saw it would take the compaction for failed)
        _LOG.warning("table %s: automatic tags were not made: %s", store.name, error)
        record_failure(store, "create_tag", error)


def _delete_surplus_tags(store: TableStore) -> None:
    """Delete the oldest tags beyond `tag.num-retained-max`, and record the deletion in the ledger."""
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


def _tag_batch(store: TableStore) -> list[str]:
    """Move the tag of the day, or `tag.batch.customized-name`, to the newest snapshot; return the tag if it moved."""
    newest = snapshots.latest(store)
    if newest is None:
        return []
    day = datetime.fromtimestamp((newest.time_millis + local_offset_ms(newest.time_millis)) / 1000, UTC)
    name = store.options.get("tag.batch.customized-name") or f"{_BATCH}{day:%Y-%m-%d}"
    report = apply_tag_creation(store, plan_tag_creation(store, name, newest.id, replace=True)).report
    return [name] if report.changed else []


def _tag_periods(store: TableStore) -> list[str]:
    """Tag the first snapshot after the end of each period since the last automatic tag; return the new tags' names."""
    periods = tags.periods(store)
    if periods is None:
        return []
    options, new_tags = store.options, []
    times = {name: time for name in tags.list_names(store) if (time := periods.time_of(name)) is not None}
    following, after = None, 0
    if times:
        last = max(times, key=lambda name: (times[name], name))
        following, after = times[last] + periods.length, tags.read_tag(store, last).id
    for snapshot, moment in _candidates(store, periods, following, after):
        if following is not None and moment - int(options.get("tag.creation-delay")) < following + periods.length:
            continue
        period = periods.previous(moment)
        if options.get("tag.automatic-completion") and following is not None:
            period = following
        name = periods.name_of(period)
        if tags.create(store, name, tags.made_now(store, snapshot, options.tag_time_retained)):
            new_tags.append(name)
        following = period + periods.length
    if new_tags:
        publish_tags(store)
    return new_tags


def _candidates(
    store: TableStore, periods: TagPeriods, following: int | None, after: int
) -> Iterator[tuple[Snapshot, int]]:
    """Yield (snapshot, time) of the snapshots newer than ``after`` that may be due for a tag, oldest first.

    If there is no automatic tag yet (``following`` is None), all snapshots may be due. Otherwise ``following`` is the
    start of the period after the last tag's (ms). Then the newest snapshots are read backwards until one is not due:
    times of snapshots grow, so no older snapshot can be due, and a commit reads only one or two.
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
    """Return the wall-clock time of a snapshot by which automatic tags are created.

    With `tag.automatic-creation` = process-time, this is the local commit time. Otherwise it is the watermark in
    `sink.watermark-time-zone`, or None if the snapshot has no watermark.
    """
    if store.options.tag_creation == "process-time":
        return snapshot.time_millis + local_offset_ms(snapshot.time_millis)
    mark = snapshot.watermark
    return None if mark is None or mark < 0 else mark + _offset(store, mark)


def _offset(store: TableStore, moment: int) -> int:
    """Return the offset (ms) of `sink.watermark-time-zone` from UTC at a moment.

    Raises:
        InvalidOption: the zone is unknown.
    """
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
