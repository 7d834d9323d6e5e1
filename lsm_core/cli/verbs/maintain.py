"""Verbs that maintain: plan, apply, compact, expire. A plan and its application are the same code, joined by a hash."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    DryRun,
    Partitions,
    Settings,
    TableArgument,
    Warehouse,
    open_table,
    partition_specs,
    when,
)
from lsm_core.errors import InvalidOption
from lsm_core.maintenance import (
    CompactionReport,
    ExpiryReport,
    MaintenancePlan,
    RescaleReport,
    SweepReport,
    applied_before,
    load_plan,
    save_plan,
)
from lsm_core.maintenance.reports import Report
from lsm_core.options import duration
from lsm_core.table import Table


class Action(StrEnum):
    """What can be planned."""

    COMPACT = "compact"
    EXPIRE = "expire_snapshots"
    TRASH = "trash"


Full = Annotated[bool, typer.Option("--full", help="Everything to the last level.")]
OrderBy = Annotated[
    str | None,
    typer.Option("--order-by", help="Sort append tables without buckets by these columns: a,b", show_default=False),
]
Strategy = Annotated[str, typer.Option("--strategy", help='With --order-by: "order", "zorder" or "hilbert".')]
Buckets = Annotated[list[int] | None, typer.Option("--bucket", help="Only this bucket; may be repeated.")]
RetainMax = Annotated[
    int | None, typer.Option("--retain-max", help="Keep at most so many snapshots.", show_default=False)
]
RetainMin = Annotated[
    int | None, typer.Option("--retain-min", help="Keep at least so many snapshots.", show_default=False)
]
OlderThan = Annotated[str | None, typer.Option("--older-than", help='Age such as "1 h".', show_default=False)]
MaxDeletes = Annotated[int | None, typer.Option("--max-deletes", help="Expire at most so many.", show_default=False)]
ApprovedBy = Annotated[str | None, typer.Option("--approved-by", help="Written to the ledger.", show_default=False)]


def plan(
    warehouse: Warehouse,
    table: TableArgument,
    action: Annotated[Action, typer.Option("--action", help="What to plan.")] = Action.COMPACT,
    full: Full = False,
    partition: Partitions = None,
    bucket: Buckets = None,
    order_by: OrderBy = None,
    strategy: Strategy = "order",
    retain_max: RetainMax = None,
    retain_min: RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: MaxDeletes = None,
    save: Annotated[bool, typer.Option(help="Keep the plan in the table, so that apply finds it by hash.")] = True,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Say what maintenance would do and why, and keep that plan for `apply`."""
    opened = open_table(warehouse, table, clock, settings)
    arguments: dict[str, Any] = {}
    if action is Action.COMPACT:
        arguments = {
            "full": full,
            "partitions": partition_specs(opened.schema, partition, opened.name),
            "buckets": bucket,
            "order_by": _columns(order_by),
            "strategy": strategy,
        }
    elif action is Action.EXPIRE:
        arguments = _expiry_arguments(opened, retain_max, retain_min, older_than, max_deletes)
    made = opened.plan_maintenance(action.value, **arguments)
    if save and made.items:
        save_plan(opened.store, made)
    show_plan(made, as_json)


def apply(
    warehouse: Warehouse,
    table: TableArgument,
    plan_hash: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="Of a saved plan.", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help='A plan as JSON; "-" reads stdin.', show_default=False)
    ] = None,
    approved_by: ApprovedBy = None,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Apply exactly one plan, by its hash; once it is applied, doing it again changes nothing, says so and exits 0."""
    opened = open_table(warehouse, table, clock, settings)
    if (plan_hash is None) == (file is None):
        raise InvalidOption("HASH", plan_hash, "a plan's hash, or --file, and not both", opened.name)
    if file is not None:
        chosen = MaintenancePlan.from_json(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
    else:
        chosen = load_plan(opened.store, str(plan_hash))
    before = applied_before(opened.store, chosen) if chosen.items else None
    report = opened.apply(chosen, approved_by=approved_by)
    if before is None or _did_something(report):
        show_report(report, as_json)
    elif as_json:
        print_json({**report.to_object(), "applied_before": asdict(before)})
    else:
        say(
            f"plan {chosen.hash} was applied before, at {when(before.time_ms)} UTC: {before.text()}; nothing was changed now"
        )


def _did_something(report: Report) -> bool:
    if isinstance(report, ExpiryReport):
        return bool(report.expired)
    return bool(report.records) if isinstance(report, SweepReport) else report.snapshot_id is not None


def compact(
    warehouse: Warehouse,
    table: TableArgument,
    full: Full = False,
    partition: Partitions = None,
    bucket: Buckets = None,
    order_by: OrderBy = None,
    strategy: Strategy = "order",
    dry_run: DryRun = False,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Compact what needs it (or, with --full, everything), or sort all files so that filters skip most of them (--order-by)."""
    opened = open_table(warehouse, table, clock, settings)
    chosen = partition_specs(opened.schema, partition, opened.name)
    sorting = {"order_by": _columns(order_by), "strategy": strategy}
    made = opened.plan_maintenance("compact", full=full, partitions=chosen, buckets=bucket, **sorting)
    _carry_out(opened, made, dry_run, as_json)


def expire(
    warehouse: Warehouse,
    table: TableArgument,
    retain_max: RetainMax = None,
    retain_min: RetainMin = None,
    older_than: OlderThan = None,
    max_deletes: MaxDeletes = None,
    dry_run: DryRun = False,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Expire old snapshots; their files wait in the trash until `dredge trash --sweep` after the grace."""
    opened = open_table(warehouse, table, clock, settings)
    arguments = _expiry_arguments(opened, retain_max, retain_min, older_than, max_deletes)
    made = opened.plan_maintenance("expire_snapshots", **arguments)
    _carry_out(opened, made, dry_run, as_json)


def _columns(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _carry_out(table: Table, plan: MaintenancePlan, dry_run: bool, as_json: bool) -> None:
    """Apply a plan, or only show it."""
    if dry_run:
        show_plan(plan, as_json)
    else:
        show_report(table.apply(plan), as_json)


def _expiry_arguments(
    table: Table, retain_max: int | None, retain_min: int | None, older_than: str | None, max_deletes: int | None
) -> dict[str, int | None]:
    limit = None
    if older_than is not None:
        try:
            limit = table.store.clock.now_ms() - duration(older_than)
        except InvalidOption as error:
            raise InvalidOption("--older-than", older_than, error.accepted, table.name) from error
    return {"retain_max": retain_max, "retain_min": retain_min, "older_than_ms": limit, "max_deletes": max_deletes}


def show_plan(made: MaintenancePlan, as_json: bool) -> None:
    """Print a plan: what it would do, what it leaves alone, and its hash."""
    if as_json:
        say(made.to_json())
        return
    say(f"plan {made.hash}: {made.action} {made.table}, base snapshot {made.base_snapshot or '-'}")
    if made.compactions:
        columns = ["partition", "bucket", "files", "bytes", "to level", "upgrades", "why"]
        rows = [
            [i.partition_text or "-", i.bucket, len(i.inputs), i.bytes_in, i.output_level, len(i.upgrades), i.reason]
            for i in made.compactions
        ]
        print_table("would compact", columns, rows)
        say(f"verification before publishing: {made.options.get('dredge.verification', 'full')}")
    if made.expirations:
        rows = [[i.snapshot_id, when(i.time_ms), i.reason] for i in made.expirations]
        print_table("would expire", ["snapshot", "committed (UTC)", "why"], rows)
    if made.deletions:
        print_table(
            "would free", ["file", "kind", "bytes", "why"], [[i.path, i.kind, i.size, i.reason] for i in made.deletions]
        )
    _declined("leaves alone", made.declined)
    cost = made.estimate
    say(f"estimate: {cost.bytes_in:,} bytes in, {cost.bytes_freed:,} bytes freed, about {cost.seconds:.1f} s")


def _declined(title: str, declined: Any) -> None:
    if declined:
        print_table(title, ["what", "why"], [[item.subject, item.text] for item in declined])


def show_report(report: Report, as_json: bool) -> None:
    """Print what was done."""
    if as_json:
        print_json(report.to_object())
    elif isinstance(report, CompactionReport):
        _show_compaction(report)
    elif isinstance(report, ExpiryReport):
        _show_expiry(report)
    elif isinstance(report, RescaleReport):
        _show_rescale(report)
    else:
        show_sweep(report)


def _show_compaction(report: CompactionReport) -> None:
    if report.snapshot_id is None:
        say("nothing was compacted")
    else:
        dropped = ", ".join(f"{rows:,} {reason}" for reason, rows in report.rows_dropped.items()) or "none"
        say(
            f"snapshot {report.snapshot_id}: {report.files_in} files in, {report.files_out} out, {report.files_upgraded} upgraded"
        )
        say(f"{report.rows_in:,} rows in, {report.rows_out:,} out, dropped: {dropped}")
        say(
            f"runs {report.runs_before} -> {report.runs_after}; {report.bytes_in:,} -> {report.bytes_out:,} bytes; {report.seconds:.2f} s"
        )
        if report.keys_folded:
            share = report.keys_one_by_one / report.keys_folded
            say(f"{report.keys_folded:,} keys merged into new rows, {share:.1%} of them one by one")
        say(f"verified: {report.verification.text()}")
    for warning in report.warnings:
        say(f"warning: {warning}")
    _declined("left alone", report.declined)


def _show_expiry(report: ExpiryReport) -> None:
    if not report.expired:
        say("no snapshot expired")
    else:
        say(f"expired snapshots {report.expired[0]} to {report.expired[-1]}; the earliest is now {report.earliest}")
        if report.trash_id is not None:
            say(
                f"{report.files_recorded} files ({report.bytes_recorded:,} bytes) wait in the trash until {when(report.not_before_ms)} UTC"
            )
            say(f"undo with: dredge restore TABLE {report.trash_id}")
        else:
            say(
                f"{report.files_deleted} files ({report.bytes_freed:,} bytes) deleted at once (dredge.delete-mode=direct)"
            )
    _declined("held", report.held)
    _declined("left alone", report.declined)


def _show_rescale(report: RescaleReport) -> None:
    if report.snapshot_id is None:
        say("nothing was rescaled")
    else:
        say(
            f"snapshot {report.snapshot_id}: {len(report.partitions)} partitions, {report.files_in} files in, {report.files_out} out"
        )
        say(f"{report.rows_in:,} rows in, {report.rows_out:,} merged rows out; verified: {report.verification}")
    for warning in report.warnings:
        say(f"warning: {warning}")
    _declined("left alone", report.declined)


def show_sweep(report: SweepReport) -> None:
    """Print what a sweep did."""
    word = "would delete" if report.dry_run else "deleted"
    say(f"{word} {report.files_deleted} files ({report.bytes_freed:,} bytes) of {len(report.records)} records")
    _declined("kept", report.kept)
    _declined("left alone", report.declined)
