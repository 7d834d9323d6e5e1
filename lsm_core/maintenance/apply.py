"""Application of plans: run a plan unchanged, report the result, and record the run, failed or not, in the ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from lsm_core.errors import (
    CommitConflict,
    CommitUnknown,
    CorruptFile,
    DredgeError,
    InvalidOption,
    PlanRefused,
    PlanStale,
    UnsupportedFeature,
)
from lsm_core.maintenance.action import (
    CODE_VERSION,
    ApplyOutcome,
    MaintenancePlan,
    Report,
    Runner,
    action_names,
    find_action,
)
from lsm_core.maintenance.deletions import deletable_path
from lsm_core.maintenance.file_allowlist import OwnFiles
from lsm_core.maintenance.ledger import (
    DONE,
    FAILED,
    REFUSED,
    UNKNOWN,
    LedgerEntry,
    applied_before,
    new_run_id,
    peak_memory,
    this_process,
    write_or_warn,
)
from lsm_core.maintenance.saved_plans import VERIFICATION, list_changed_options
from lsm_core.maintenance.trash import DeleteItem, read_trash
from lsm_core.metadata.store import TableStore
from lsm_core.tracing import record_span

_LOG: Final = logging.getLogger(__name__)
_WEAKEST_FIRST: Final = ("counts", "sampled", "full")


def apply_plan(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None = None, approved_by: str | None = None
) -> Report:
    """Apply a plan and record the run.

    A plan of several commits (`commit_every`) is applied part by part, each with its own run in the ledger; the report
    names failed parts. If plan and table differ in `dredge.verification`, the stronger verification is used.

    Args:
        store: the table.
        plan: plan to apply.
        runner: executor of compaction tasks; None for threads of this process, which also verify merged rows with
            the reference implementation (V2).
        approved_by: name of the person who approved the plan, for the ledger; None without an approval.

    Returns:
        The report of the plan's action. If the same plan was applied before or concurrently and nothing was left to do,
            ``applied_before`` of the report names that application. If the action can apply a plan partially, items
            that no longer fit are skipped and reported.

    Raises:
        TableNotFound: the table was dropped, renamed or replaced since it was opened.
        PlanStale: the table, its options or the code version differ from those at planning.
        InvalidOption: ``plan`` is not a plan. Errors of the action pass through.
    """
    if not isinstance(cast("object", plan), MaintenancePlan):
        accepted = "a MaintenancePlan, as plan_maintenance() and MaintenancePlan.from_json() give it"
        raise InvalidOption("plan", plan, accepted, store.name)
    store.require_same()
    started = time.perf_counter()
    if plan.action in action_names() and len(parts := find_action(plan.action).parts(plan)) > 1:
        return _apply_parts(store, plan, parts, runner, approved_by)
    with record_span("apply", table=store.name, action=plan.action, **plan.span_attributes()) as span:
        report = _apply(store, plan, runner, approved_by, started)
        numbers = report.to_object()
        span.set(
            snapshot_id=report.published,
            run_id=report.run_id or None,
            **{name: numbers.get(name) for name in ("files_out", "bytes_out", "bytes_freed")},
        )
    return report


def _apply(
    store: TableStore, plan: MaintenancePlan, runner: Runner | None, approved_by: str | None, started: float
) -> Report:
    """Apply a plan of one commit, and record the run.

    ``runner`` executes compaction tasks, None for this process. ``approved_by`` names the approver for the ledger, or
    is None. ``started`` is the time of `time.perf_counter` when the work began.
    """
    run_id = new_run_id(store, plan.action)
    try:
        _require_same(store, plan)
        _require_planned(store, plan)
        store = _use_planned_verification(store, plan)
        action = find_action(plan.action, store.name)
        try:
            outcome = action.apply(store, plan, runner)
        except (CommitConflict, InvalidOption, PlanRefused, PlanStale):
            # A plan that no longer fits because it was already applied is no failure.
            before = applied_before(store, plan)
            if before is None:
                raise
            outcome = ApplyOutcome(replace(action.unchanged(plan), applied_before=before))
    except Exception as error:  # whatever it is, the run may have begun, and people look for it in the ledger
        forged = plan.read_back and isinstance(error, AttributeError | LookupError | TypeError | ValueError)
        if not forged or isinstance(error, DredgeError):
            _record(store, plan, run_id, approved_by, None, error, time.perf_counter() - started)
            raise
        # Values of a forged or damaged plan.
        stale = PlanStale(f"it is no plan that {plan.action} makes: {error!r}; plan again", store.name)
        _record(store, plan, run_id, approved_by, None, stale, time.perf_counter() - started)
        raise stale from error
    report = replace(outcome.report, seconds=round(time.perf_counter() - started, 3))
    if plan.items and not report.changed and report.applied_before is None:
        report = replace(report, applied_before=applied_before(store, plan))
    if action.work.replaces_schemas and report.changed:
        store = store.refresh()  # the ledger accepts no table whose schema was removed, here by the action itself
    if report.published is None:  # a commit writes Iceberg metadata itself
        from lsm_core.iceberg.catch_up import publish_history

        publish_history(store)
    if plan.items and report.is_recorded:
        report = replace(report, run_id=run_id)
        _record(store, plan, run_id, approved_by, ApplyOutcome(report, outcome.lines), None, report.seconds)
    if action.work.commits and report.published is not None and store.options.tag_creation != "none":
        # As Java's compaction jobs do, also for tables whose writers do nothing but write.
        from lsm_core.maintenance.automatic_tags import make_tags_after_compaction

        make_tags_after_compaction(store)
    return report


def _apply_parts(
    store: TableStore,
    plan: MaintenancePlan,
    parts: Sequence[MaintenancePlan],
    runner: Runner | None,
    approved_by: str | None,
) -> Report:
    """Apply each part of a plan as a plan of its own; after a failed part, the further parts are still applied.

    Raises:
        CommitUnknown: it is unknown whether the commit of a part succeeded; later parts are not applied.
        DredgeError: all parts failed; this is the error of the first part.
    """
    started = time.perf_counter()
    outcomes: list[tuple[MaintenancePlan, Report | DredgeError]] = []
    for part in parts:
        try:
            outcomes.append((part, apply_plan(store, part, runner, approved_by)))
        except CommitUnknown:
            raise
        except DredgeError as error:
            _LOG.warning("a part of plan %s of table %s failed: %s", plan.hash, store.name, error)
            outcomes.append((part, error))
    first = outcomes[0][1]
    if isinstance(first, DredgeError) and all(isinstance(outcome, DredgeError) for _, outcome in outcomes):
        raise first
    report = find_action(plan.action).report_of_parts(plan, outcomes)
    return replace(report, seconds=round(time.perf_counter() - started, 3))


def dry_run(plan: MaintenancePlan) -> Report:
    """Return the report that applying a plan would give; nothing is read or changed.

    Args:
        plan: plan that may be applied.

    Raises:
        UnsupportedFeature: the action has no dry run.
    """
    return find_action(plan.action, plan.table).dry_run(plan)


def _require_same(store: TableStore, plan: MaintenancePlan) -> None:
    if plan.action not in action_names():
        raise PlanStale(f"unknown action {plan.action}", store.name)
    if plan.table != store.name:
        raise PlanStale(f"it was made for table {plan.table}, not {store.name}")
    if plan.code_version != CODE_VERSION:
        raise PlanStale(f"it was made by {plan.code_version}, this is {CODE_VERSION}; plan it again", store.name)
    changed = list_changed_options(store, plan)
    if changed:
        key = changed[0]
        raise PlanStale(f"option {key} was {plan.options.get(key)!r} and is {store.options.raw.get(key)!r}", store.name)


def _require_planned(store: TableStore, plan: MaintenancePlan) -> None:
    """Raise an error if a plan deletes files that its action could not have planned in this table.

    The paths of every plan are checked against the names of Paimon's and Dredge's files (`file_allowlist`). The hash of
    a plan that was read from a file proves nothing, because anyone can compute it. For such a plan the action therefore
    plans again. Each existing file to delete must be in the new plan, among its items or among the files that it keeps,
    or in the record of an earlier deletion that can be restored.

    Raises:
        PlanStale: the plan deletes a file that it may not delete; nothing is changed.
    """
    items = plan.items_of(DeleteItem)
    if not items:
        return
    own = OwnFiles.of(store)
    try:
        own.require((item.path for item in items), f"<plan {plan.hash} of table {store.name}>")
    except CorruptFile as error:
        raise PlanStale(f"it is no plan that {plan.action} makes: {error}", store.name) from error
    if not plan.read_back or plan.action == "trash":  # a sweep deletes what deletion records name, which are checked
        return
    if applied_before(store, plan) is not None:  # the action itself finds the remaining work
        return
    again = find_action(plan.action, store.name).plan_again(store, plan)
    known = {item.path for item in again.items_of(DeleteItem)} | {item.subject for item in again.declined}
    known |= {file.path for record in read_trash(store).records for file in record.files}
    strange = [item.path for item in items if item.path not in known]
    present = [path for path in strange if store.file_io.exists(deletable_path(store, path))]
    if present:
        more = f" and {len(present) - 1} more" if len(present) > 1 else ""
        raise PlanStale(
            f"it deletes {present[0]}{more}, which {plan.action} would not delete now; plan again", store.name
        )


def _use_planned_verification(store: TableStore, plan: MaintenancePlan) -> TableStore:
    """Return the table with the plan's `dredge.verification` if it is stronger than the table's own."""
    planned = plan.options.get(VERIFICATION, "full")
    stronger = planned in _WEAKEST_FIRST and _WEAKEST_FIRST.index(planned) > _WEAKEST_FIRST.index(
        store.options.verification
    )
    return store.copy({VERIFICATION: planned}) if stronger else store


def _record(
    store: TableStore,
    plan: MaintenancePlan,
    run_id: str,
    approved_by: str | None,
    outcome: ApplyOutcome | None,
    error: Exception | None,
    seconds: float,
) -> None:
    """Write a run to the ledger, with its ``outcome`` or the ``error`` that ended the run, and the approver if any."""
    report = None if outcome is None else outcome.report
    entry = LedgerEntry(
        run_id=run_id,
        action=plan.action,
        table=plan.table,
        time_ms=store.clock.now_ms(),
        outcome=_outcome_of(error),
        plan_hash=plan.hash,
        base_snapshot=plan.base_snapshot,
        snapshot_id=None if report is None else report.published,
        approved_by=approved_by,
        error=None if error is None else f"{type(error).__name__}: {error}",
        who=this_process(),
        seconds=round(seconds, 3),
        predicted_seconds=plan.estimate.seconds,
        peak_rss_bytes=peak_memory(),
        report={} if report is None else report.numbers(),
        lines=() if outcome is None else tuple(outcome.lines),
    )
    write_or_warn(store, entry, error)


def _outcome_of(error: Exception | None) -> str:
    if error is None:
        return DONE
    if isinstance(error, CommitUnknown):
        return UNKNOWN
    return REFUSED if isinstance(error, PlanRefused | PlanStale | InvalidOption | UnsupportedFeature) else FAILED
