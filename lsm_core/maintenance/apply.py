"""Carry out a plan exactly as it stands, report what happened, and leave a line in the ledger, also for failures."""

from __future__ import annotations

import logging
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from lsm_core.errors import DredgeError, InvalidOption, PlanStale, StorageFull, StorageRefused
from lsm_core.maintenance.actions import compact, rescale, snapshots, sweep
from lsm_core.maintenance.actions.compact import Executed, Runner
from lsm_core.maintenance.changed_keys import ChangedKeys, changed_keys
from lsm_core.maintenance.plan import CODE_VERSION, CompactItem, Declined, MaintenancePlan, bucket_name
from lsm_core.maintenance.record import LedgerEntry, new_run_id, write_entry
from lsm_core.maintenance.reports import (
    INDEPENDENCE,
    CompactionReport,
    ExpiryReport,
    Report,
    RescaleReport,
    RestoreReport,
    SweepReport,
    Verification,
)
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.merge import EXPIRED, order_free
from lsm_core.metadata.store import TableStore

_LOG = logging.getLogger(__name__)
_LINES: Final = 10_000


def apply_plan(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None = None, approved_by: str | None = None
) -> Report:
    """Apply ``plan`` and record the run. ``runner`` executes compaction tasks (default: threads of this process, with V2).

    Returns CompactionReport, ExpiryReport or SweepReport. Raises PlanStale when the plan was made for another table,
    other options or by other code; buckets that changed since are skipped and reported, not raised. Raises InvalidOption for
    what is no plan.
    """
    _require_plan(store, plan)
    started = time.perf_counter()
    run_id = new_run_id(store, plan.action)
    try:
        _require_same(store, plan)
        report, lines = _APPLY[plan.action](store, plan, runner, started)
    except DredgeError as error:
        _record(store, plan, run_id, approved_by, None, [], error)
        raise
    _record(store, plan, run_id, approved_by, report, lines, None)
    return report


def dry_run(plan: MaintenancePlan) -> ExpiryReport | SweepReport:
    """What applying an expiry or a sweep would report; nothing is read or changed."""
    freed = sum(item.size for item in plan.deletions)
    held = tuple(item for item in plan.declined if item.reason == "held")
    declined = tuple(item for item in plan.declined if item.reason != "held")
    if plan.action == sweep.ACTION:
        records = tuple(str(plan.arguments.get("records") or "").split())
        return SweepReport(plan.hash, records, len(plan.deletions), freed, kept=held, declined=declined, dry_run=True)
    return ExpiryReport(
        plan.hash,
        plan.base_snapshot,
        expired=tuple(item.snapshot_id for item in plan.expirations),
        files_recorded=len(plan.deletions),
        bytes_recorded=freed,
        held=held,
        declined=declined,
        dry_run=True,
    )


def restore(store: TableStore, trash_id: str, approved_by: str | None = None) -> RestoreReport:
    """Put the snapshots of a deletion record back, and write that down. Raises InvalidOption, PlanRefused."""
    run_id = new_run_id(store, "restore")
    report = sweep.restore(store, trash_id)
    entry = LedgerEntry(
        run_id, "restore", store.name, store.clock.now_ms(), "done", approved_by=approved_by, report=report.to_object()
    )
    _write(store, entry)
    return report


def _require_plan(store: TableStore, plan: object) -> None:
    if not isinstance(plan, MaintenancePlan):
        accepted = "a MaintenancePlan, as plan_maintenance() and MaintenancePlan.from_json() give it"
        raise InvalidOption("plan", plan, accepted, store.name)


def _require_same(store: TableStore, plan: MaintenancePlan) -> None:
    if plan.action not in _APPLY:
        raise PlanStale(f"unknown action {plan.action}", store.name)
    if plan.table != store.name:
        raise PlanStale(f"it was made for table {plan.table}, not {store.name}")
    if plan.code_version != CODE_VERSION:
        raise PlanStale(f"it was made by {plan.code_version}, this is {CODE_VERSION}", store.name)
    now, then = dict(store.options.raw), dict(plan.options)
    changed = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    if changed:
        key = changed[0]
        raise PlanStale(f"option {key} was {then.get(key)!r} and is {now.get(key)!r}", store.name)


def _compact(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None, started: float
) -> tuple[CompactionReport, list[dict[str, Any]]]:
    done = compact.execute(store, plan, runner or compact.local_runner(ReferenceJudge()))
    changed = _changed_keys(store, done)
    report = _compaction_report(plan, done, time.perf_counter() - started, store.options.verification)
    uncovered = _uncovered(store, done)
    if changed.count or uncovered:
        warnings = tuple(text for text in (changed.warning(store), uncovered) if text)
        report = replace(report, changed_keys=changed.count, warnings=warnings)
    return report, [_bucket_line(item, asdict(result.report)) for item, result in done.results]


def _changed_keys(store: TableStore, done: Executed) -> ChangedKeys:
    """What the answers of an order-sensitive table lost by compacting it as Paimon does; nothing for all other tables."""
    if done.snapshot_id is None or store.options.order_sensitive != "as-paimon" or not store.schema.primary_keys:
        return ChangedKeys()
    messages = [result.message for _, result in done.results]
    retracts = any(file.delete_row_count != 0 for message in messages for file in message.compact_before)
    if order_free(store.schema, store.options.raw, retracts, store.name).ok:
        return ChangedKeys()
    clock = next((item.expire_at_ms for item, _ in done.results), None)
    return changed_keys(store, done.snapshot_id, messages, clock)


def _uncovered(store: TableStore, done: Executed) -> str:
    """A warning where rows that are over were left out of a part of the runs as Paimon does it; else ""."""
    parts = [r for item, r in done.results if not item.full and store.options.order_sensitive == "as-paimon"]
    rows = sum(result.report.rows_dropped.get(EXPIRED, 0) for result in parts)
    if not rows:
        return ""
    advice = "'dredge.compaction.order-sensitive' = 'closed' prevents that"
    return f"{rows} expired rows of {store.name} are gone; older versions of them may be read until a full compaction; {advice}"


def _compaction_report(plan: MaintenancePlan, done: Executed, seconds: float, setting: str) -> CompactionReport:
    reports = [result.report for _, result in done.results]
    dropped: dict[str, int] = {}
    for report in reports:
        for reason, rows in report.rows_dropped.items():
            dropped[reason] = dropped.get(reason, 0) + rows
    items = [item for item, _ in done.results]
    worst = max(items, key=lambda item: item.runs_before, default=None)
    return CompactionReport(
        snapshot_id=done.snapshot_id,
        base_snapshot=plan.base_snapshot,
        plan_hash=plan.hash,
        files_in=sum(r.files_in for r in reports),
        files_out=sum(r.files_out for r in reports),
        files_upgraded=sum(r.files_upgraded for r in reports),
        rows_in=sum(r.rows_in for r in reports),
        rows_out=sum(r.rows_out for r in reports),
        rows_dropped=dropped,
        bytes_in=sum(r.bytes_in for r in reports),
        bytes_out=sum(r.bytes_out for r in reports),
        seconds=round(seconds, 3),
        predicted_seconds=plan.estimate.seconds,
        peak_rss_bytes=_peak_rss(),
        runs_before=worst.runs_before if worst else 0,
        runs_after=worst.runs_after if worst else 0,
        verification=_verification(items, done, setting),
        declined=(*plan.declined, *done.stale),
        commits=0 if done.snapshot_id is None else 1,
        keys_folded=sum(r.keys_folded for r in reports),
        keys_one_by_one=sum(r.keys_one_by_one for r in reports),
    )


def _verification(items: Sequence[CompactItem], done: Executed, setting: str) -> Verification:
    reports = [result.report for _, result in done.results]
    return Verification(
        level=min((r.verification for r in reports), default="V0"),
        keys_checked=sum(r.keys_checked for r in reports),
        units=len(reports),
        independence=INDEPENDENCE[setting],
        setting=setting,
        rows_read_again=sum(r.rows_read_again for r in reports),
        digests={bucket_name(i.partition_text, i.bucket): r.digest for i, r in zip(items, reports, strict=True)},
    )


def _peak_rss() -> int:
    """Peak resident bytes of this process (Linux counts KiB, macOS bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _bucket_line(item: CompactItem, numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        "event": "compacted",
        "bucket": bucket_name(item.partition_text, item.bucket),
        "trigger": item.trigger,
        "reason": item.reason,
        "inputs": [[file.name, file.level] for file in item.inputs],
        "output_level": item.output_level,
        "tombstones_dropped": item.tombstones_dropped,
        **numbers,
    }


def _expire(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None, started: float
) -> tuple[ExpiryReport, list[dict[str, Any]]]:
    del runner
    report = snapshots.apply_expiry(store, plan)
    if report.trash_id is not None and store.options.delete_mode == "direct":
        # Everything that is due, so that what an interrupted expiry left behind goes too.
        swept = sweep.apply_sweep(store, sweep.plan_sweep(store))
        report = replace(report, files_deleted=swept.files_deleted, bytes_freed=swept.bytes_freed, trash_id=None)
    lines = [{"event": "expired", "snapshot": number} for number in report.expired]
    lines += [_held_line(item) for item in report.held[:_LINES]]
    return replace(report, seconds=round(time.perf_counter() - started, 3)), lines


def _sweep(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None, started: float
) -> tuple[SweepReport, list[dict[str, Any]]]:
    del runner
    report = sweep.apply_sweep(store, plan)
    lines = [{"event": "swept", "trash_id": name} for name in report.records]
    lines += [{"event": "deleted", "file": item.path, "reason": item.reason} for item in plan.deletions[:_LINES]]
    lines += [_held_line(item) for item in report.kept[:_LINES]]
    return replace(report, seconds=round(time.perf_counter() - started, 3)), lines


def _rescale(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None, started: float
) -> tuple[RescaleReport, list[dict[str, Any]]]:
    del runner
    report = rescale.apply_rescale(store, plan)
    lines = [
        {"event": "rescaled", "partition": item.partition_text, "from": item.buckets_before, "to": item.buckets_after}
        for item in plan.rescales
    ]
    return replace(report, seconds=round(time.perf_counter() - started, 3)), lines


def _held_line(item: Declined) -> dict[str, Any]:
    return {"event": "kept", "file": item.subject, "reason": item.text}


_APPLY: Final[dict[str, Callable[..., tuple[Report, list[dict[str, Any]]]]]] = {
    compact.ACTION: _compact,
    snapshots.ACTION: _expire,
    sweep.ACTION: _sweep,
    rescale.ACTION: _rescale,
}


def _record(
    store: TableStore,
    plan: MaintenancePlan,
    run_id: str,
    approved_by: str | None,
    report: Report | None,
    lines: Sequence[dict[str, Any]],
    error: DredgeError | None,
) -> None:
    """Write the run down. What was done is done: a ledger that cannot be written is said, it does not fail the run."""
    outcome = "failed" if error is not None else "done" if plan.items and _changed(report) else "nothing"
    if outcome == "nothing":
        return
    entry = LedgerEntry(
        run_id=run_id,
        action=plan.action,
        table=plan.table,
        time_ms=store.clock.now_ms(),
        outcome=outcome,
        plan_hash=plan.hash,
        base_snapshot=plan.base_snapshot,
        snapshot_id=report.snapshot_id if isinstance(report, CompactionReport | RescaleReport) else None,
        approved_by=approved_by,
        error=None if error is None else f"{type(error).__name__}: {error}",
        report={} if report is None else _numbers(report),
        lines=tuple(lines),
    )
    _write(store, entry, error)


def _write(store: TableStore, entry: LedgerEntry, error: DredgeError | None = None) -> None:
    """Write a run down. ``error``: how it failed; what it says of the storage is not said a second time, for the ledger."""
    try:
        write_entry(store, entry)
    except (OSError, DredgeError) as failure:
        told = isinstance(error, StorageRefused | StorageFull) and isinstance(failure, type(error))
        _LOG.log(
            logging.DEBUG if told else logging.WARNING,
            "run %s of table %s is not in the ledger: %s",
            entry.run_id,
            store.name,
            failure,
        )


def _changed(report: Report | None) -> bool:
    if isinstance(report, CompactionReport):
        return report.snapshot_id is not None or bool(report.stale)
    if isinstance(report, RescaleReport):
        return report.snapshot_id is not None
    return isinstance(report, SweepReport) or (report is not None and bool(report.expired))


def _numbers(report: Report) -> dict[str, Any]:
    """The report without its per-item lists, which are the entry's lines."""
    value = report.to_object()
    for name in ("declined", "held", "kept"):
        value.pop(name, None)
    return value


__all__ = ["apply_plan", "dry_run", "restore"]
