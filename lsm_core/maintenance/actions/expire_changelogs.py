"""Expiry of long-lived changelogs: choice of the changelogs and their files, and recording of the files for deletion.

Source: Java `ExpireChangelogImpl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from lsm_core.clock import utc_text
from lsm_core.errors import PlanStale, SnapshotNotFound
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.side_files import decode_changelog
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import ActionWork, ApplyOutcome, Declined, MaintenancePlan, PlanEstimate, PlanItem
from lsm_core.maintenance.actions.expire_snapshots import ExpiryReport, trace_of_expiry
from lsm_core.maintenance.actions.sweep_trash import sweep_if_direct
from lsm_core.maintenance.deletions import data_items, item_exists, metadata_item, split_used
from lsm_core.maintenance.retention import ExpiryRange, RetentionPolicy
from lsm_core.maintenance.trash import EXPIRED_CHANGELOGS, DeleteItem, TrashRecord, ledger_line_of_held, write_record
from lsm_core.maintenance.used_files import select_added, select_removed
from lsm_core.metadata import changelogs, consumers, manifests, snapshots
from lsm_core.metadata.store import TableStore

_MOST_LINES: Final = 10_000


@dataclass(frozen=True)
class ExpireChangelogItem(PlanItem):
    """Changelog of one expired snapshot.

    Attributes:
        snapshot_id: id of the snapshot, and of its changelog.
        time_ms: commit time of the snapshot (epoch ms).
        reason: why the changelog expires.
    """

    item_kind: ClassVar[str] = "expire_changelog"
    title: ClassVar[str] = "would expire"
    columns: ClassVar[tuple[str, ...]] = ("changelog of snapshot", "committed (UTC)", "why")

    snapshot_id: int
    time_ms: int
    reason: str

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: snapshot id, commit time and reason."""
        return (self.snapshot_id, utc_text(self.time_ms), self.reason)


@dataclass(frozen=True)
class ChangelogExpiryReport(ExpiryReport):
    """Report of a changelog expiry, in which ``expired`` and ``earliest`` are changelog ids.

    ``expired`` are the removed changelogs, and ``earliest`` is the oldest remaining changelog.
    """

    expiring: ClassVar[str] = "changelog"


def plan_changelog_expiry(
    store: TableStore,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than_ms: int | None = None,
    max_deletes: int | None = None,
    delete_all: bool = False,
    now_ms: int | None = None,
) -> MaintenancePlan:
    """Plan which changelogs of expired snapshots expire, and which files nothing needs afterwards.

    Only metadata is read. The newest changelog is kept unless ``delete_all`` is True. Changelogs that a consumer still
    reads are always kept.

    Args:
        store: the table.
        retain_max: keep the changelogs of at most this number of newest snapshots, counting snapshots that still exist.
            None for `changelog.num-retained.max`.
        retain_min: keep the changelogs of at least this number of newest snapshots, counted likewise. None for
            `changelog.num-retained.min`.
        older_than_ms: between the two numbers, changelogs of snapshots committed before this time expire (epoch ms).
            None for `changelog.time-retained` ago.
        max_deletes: largest number of changelogs to expire, None for `snapshot.expire.limit`.
        delete_all: expire all changelogs except those that a consumer reads.
        now_ms: time of planning (epoch ms), None for the table's clock.

    Raises:
        InvalidOption: an argument is invalid.
        CorruptFile: a snapshot, changelog, tag, branch or consumer cannot be read.
    """
    now = store.clock.now_ms() if now_ms is None else now_ms
    policy = RetentionPolicy.of(store.options, now, retain_max, retain_min, older_than_ms, max_deletes, "changelog")
    latest = snapshots.latest_id(store)
    arguments = {"retain_max": policy.retain_max, "retain_min": policy.retain_min, "max_deletes": policy.max_deletes}
    arguments |= {"older_than_ms": policy.older_than_ms, "delete_all": bool(delete_all)}
    plan = MaintenancePlan.begin(EXPIRED_CHANGELOGS, store, latest, arguments, now)
    ids = changelogs.list_changelogs(store)
    if not ids or latest is None:
        text = "no changelog has outlived its snapshot"
        return replace(plan, declined=(Declined("changelogs", "empty", text),))
    consumed = consumers.min_next_snapshot(store)
    if delete_all:
        limit = "nothing is left" if consumed is None else f"a consumer still reads from snapshot {consumed}"
        end = ids[-1] + 1 if consumed is None else min(ids[-1] + 1, consumed)
        chosen = ExpiryRange(ids[0], max(ids[0], end), end, limit, "changelog")
    else:
        chosen = policy.choose(ids[0], latest, consumed, lambda number: _time_of(store, number), ids[-1])
    kept: tuple[Declined, ...] = ()
    if chosen.end <= ids[-1]:
        subject = f"changelogs {chosen.end}..{ids[-1]}"
        kept = (Declined(subject, "retained", chosen.limit, {"first_kept": chosen.end, "latest": ids[-1]}),)
    if chosen.is_empty:
        return replace(plan, declined=kept)
    readable = (_read(store, number) for number in ids if number < chosen.end)
    expiring = [changelog for changelog in readable if changelog is not None]
    numbers = [changelog.id for changelog in expiring]
    why = {number: "all are to go" if delete_all else chosen.reason_of(number) for number in numbers}
    items = [ExpireChangelogItem(changelog.id, changelog.time_millis, why[changelog.id]) for changelog in expiring]
    files = {item.path: item for changelog in expiring for item in _files_of(store, changelog)}
    appended = {item.path: item for changelog in expiring for item in _appended_by(store, changelog)}
    deletions, held = split_used(store, list({**appended, **files}.values()), without_changelogs=set(why))
    held = [item for item in held if item.subject in files]  # without added files, most of which are still live
    freed = sum(item.size for item in deletions)
    return replace(
        plan,
        items=(*items, *deletions),
        declined=(*kept, *held),
        estimate=PlanEstimate(bytes_freed=freed, files_in=len(deletions), tasks=1),
    )


def _time_of(store: TableStore, number: int) -> int | None:
    changelog = _read(store, number)
    return None if changelog is None else changelog.time_millis


def _read(store: TableStore, number: int) -> Snapshot | None:
    try:
        return changelogs.read_changelog(store, number)
    except SnapshotNotFound:
        return None


def _files_of(store: TableStore, changelog: Snapshot) -> Iterator[DeleteItem]:
    """Yield the existing files of a changelog, and the existing data files that its delta removed.

    The files of a changelog are manifest lists, manifests and changelog files. Of the removed data files, only those
    that writers (not compactions) added are yielded. An interrupted expiry may have deleted some of the files before.
    """
    reason = f"changelog of snapshot {changelog.id}"
    for name, size in changelogs.kept_lists(store, changelog):
        yield metadata_item(store, store.manifest_path(name), "manifest-list", size or 0, reason)
        for meta in _manifests_of(store, name, size):
            yield metadata_item(store, store.manifest_path(meta.file_name), "manifest", meta.file_size, reason)
            for sidecar in meta.sidecars:
                yield metadata_item(store, store.manifest_path(sidecar), "manifest-sidecar", 0, reason)
        if name == changelog.changelog_manifest_list:
            entries = manifests.entries_of(store, _manifests_of(store, name, size))
            yield from _select_existing(store, data_items(store, select_added(entries), "changelog", reason))
        elif name == changelog.delta_manifest_list:
            dropped = select_removed(manifests.entries_of(store, _manifests_of(store, name, size)))
            why = f"replaced by snapshot {changelog.id} ({changelog.commit_kind.value})"
            yield from _select_existing(
                store, data_items(store, dropped.filter(changelogs.is_written(dropped)), "data", why)
            )


def _appended_by(store: TableStore, changelog: Snapshot) -> Iterator[DeleteItem]:
    """Yield the existing data files that writers (not compactions) added in the changelog's delta.

    Later snapshots may have removed these files at a time when changelogs were not kept longer than snapshots.
    """
    for name, size in changelogs.kept_lists(store, changelog):
        if name == changelog.delta_manifest_list:
            entries = select_added(manifests.entries_of(store, _manifests_of(store, name, size)))
            why = f"added by snapshot {changelog.id}"
            yield from _select_existing(
                store, data_items(store, entries.filter(changelogs.is_written(entries)), "data", why)
            )


def _manifests_of(store: TableStore, name: str, size: int | None) -> list[ManifestFileMeta]:
    metas = manifests.read_list(store, name, size)
    return [meta for meta in metas if store.file_io.exists(store.manifest_path(meta.file_name))]


def _select_existing(store: TableStore, items: Iterator[DeleteItem]) -> Iterator[DeleteItem]:
    return (item for item in items if item_exists(store, item))


def apply_changelog_expiry(store: TableStore, plan: MaintenancePlan) -> ApplyOutcome:
    """Delete the planned changelogs, and record the files that nothing needs afterwards.

    In direct mode (`dredge.delete-mode`) the recorded files are deleted at once, otherwise by a sweep after their grace
    period.

    Args:
        store: the table.
        plan: plan to apply.

    Returns:
        ApplyOutcome with a ChangelogExpiryReport.

    Raises:
        PlanStale: a consumer reads a planned changelog, or the changelogs changed after planning.
    """
    report, swept = sweep_if_direct(store, _expire(store, plan))
    lines = [{"event": "expired changelog", "snapshot": number} for number in report.expired]
    return ApplyOutcome(report, [*lines, *swept, *map(ledger_line_of_held, report.held[:_MOST_LINES])])


def changelog_expiry_fits(store: TableStore, plan: MaintenancePlan) -> bool:
    """Return whether at least one changelog of the plan still exists.

    Args:
        store: the table.
        plan: plan to compare with the table.
    """
    return not _planned(plan).keys().isdisjoint(changelogs.list_changelogs(store))


def foresee_changelog_expiry(plan: MaintenancePlan) -> ChangelogExpiryReport:
    """Return the report that applying a plan would give.

    Args:
        plan: plan that may be applied.
    """
    deletions = plan.items_of(DeleteItem)
    return ChangelogExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=tuple(_planned(plan)),
        files_recorded=len(deletions),
        bytes_recorded=sum(item.size for item in deletions),
        held=tuple(item for item in plan.declined if item.reason == "held"),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
        dry_run=True,
    )


def _planned(plan: MaintenancePlan) -> dict[int, int]:
    """Return the planned changelogs: the commit time (epoch ms) by snapshot id."""
    return {item.snapshot_id: item.time_ms for item in plan.items_of(ExpireChangelogItem)}


def _expire(store: TableStore, plan: MaintenancePlan) -> ChangelogExpiryReport:
    """Write the deletion record in the trash, then delete the changelogs, oldest first.

    Files that became needed after planning are left out of the record.

    Raises:
        PlanStale: a consumer reads a planned changelog, or the changelogs changed after planning.
    """
    present = changelogs.list_changelogs(store)
    expiring = [number for number in _planned(plan) if number in present]
    if not expiring:
        return ChangelogExpiryReport(
            plan.hash, plan.base_snapshot, earliest=min(present, default=None), declined=plan.declined
        )
    texts = _read_planned(store, plan, present, expiring)
    deletions, held = split_used(store, plan.items_of(DeleteItem), without_changelogs=set(expiring))
    now = store.clock.now_ms()
    grace = 0 if store.options.delete_mode == "direct" else store.options.trash_grace_expiry
    record = TrashRecord(
        trash_id=f"expire-changelogs-{expiring[0]}-{expiring[-1]}-{plan.hash[:12]}-{now}",
        action=EXPIRED_CHANGELOGS,
        table=store.name,
        plan_hash=plan.hash,
        created_ms=now,
        not_before_ms=now + grace,
        snapshots=texts,
        files=tuple(deletions),
        branch=store.branch,
    )
    write_record(store, record)
    changelogs.delete_changelogs(store, expiring)
    held_once = {item.subject: item for item in (*plan.declined, *held) if item.reason == "held"}
    return ChangelogExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=tuple(expiring),
        earliest=min(set(present) - set(expiring), default=None),
        files_recorded=len(deletions),
        bytes_recorded=record.size,
        trash_id=record.trash_id,
        not_before_ms=record.not_before_ms,
        held=tuple(held_once.values()),
        declined=tuple(item for item in plan.declined if item.reason != "held"),
    )


def _read_planned(
    store: TableStore, plan: MaintenancePlan, present: Sequence[int], expiring: Sequence[int]
) -> dict[int, str]:
    """Return the exact text of each planned changelog file by id, which a restore writes back.

    ``present`` are the ids of all existing changelogs, ``expiring`` those to expire, both ascending. Raises
    CorruptFile, and PlanStale if a changelog changed after planning or a consumer reads one.
    """
    if present[0] != expiring[0]:
        raise PlanStale(
            f"changelog {present[0]} is older than changelog {expiring[0]}, the first of the plan", store.name
        )
    next_snapshot = consumers.min_next_snapshot(store)
    if next_snapshot is not None and next_snapshot <= expiring[-1]:
        raise PlanStale(f"a consumer reads from snapshot {next_snapshot} now", store.name)
    planned, texts = _planned(plan), {}
    for number in expiring:
        path = changelogs.changelog_path(store, number)
        try:
            data = store.file_io.read_bytes(path)
        except FileNotFoundError as error:
            raise PlanStale(f"another process expired changelog {number} meanwhile", store.name) from error
        if decode_changelog(data, path).time_millis != planned[number]:
            raise PlanStale(f"changelog {number} was written again after a rollback", store.name)
        texts[number] = data.decode()
    return texts


WORK: Final = ActionWork(
    plan_changelog_expiry,
    apply_changelog_expiry,
    ChangelogExpiryReport,
    (ExpireChangelogItem, DeleteItem),
    fits=changelog_expiry_fits,
    trace=trace_of_expiry,
    dry_run=foresee_changelog_expiry,
)
