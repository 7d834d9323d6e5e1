"""The verb that maintains many tables by one plan."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lsm_core.cli.progress_bar import progress_bar
from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, DryRun, Warehouse, open_catalog
from lsm_core.errors import DredgeError

if TYPE_CHECKING:
    from lsm_core.maintenance.action import Declined
    from lsm_core.maintenance.combined import CombinedLine, CombinedPlan, CombinedReport, Rules

_POLICIES: Final = "DREDGE_POLICIES"
Pattern = Annotated[
    str | None,
    typer.Argument(
        metavar="[DATABASE|PATTERN]", help="A database, or a pattern such as '*.orders'.", show_default=False
    ),
]
Actions = Annotated[
    list[str] | None,
    typer.Option(
        "--action", help="Action; may be repeated. Default: compact, expire_snapshots, trash.", show_default=False
    ),
]
MaxBytes = Annotated[
    str | None, typer.Option("--max-bytes", metavar="SIZE", help="Compact so much at most: 10 gb.", show_default=False)
]
MaxTables = Annotated[
    int | None, typer.Option("--max-tables", min=1, help="Most tables to maintain.", show_default=False)
]
MaxTime = Annotated[
    str | None,
    typer.Option("--max-time", metavar="TIME", help="Begin nothing once this is over: 1 h.", show_default=False),
]
Resume = Annotated[
    str | None, typer.Option("--resume", metavar="HASH", help="Go on with a plan that was begun.", show_default=False)
]
ApprovedBy = Annotated[
    str | None,
    typer.Option(
        "--approved-by",
        help="Approver of plans that the policies require approval for; written to the ledgers.",
        show_default=False,
    ),
]
Unattended = Annotated[
    bool, typer.Option("--unattended", help="Respect the policies' hours and budget, as sensors do; for cron.")
]


class Mode(StrEnum):
    """Mode of planning, as in Paimon's procedure `compact_database`."""

    COMBINED = "combined"
    DIVIDED = "divided"


ModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode", help="combined: one plan of all tables, the worst first. divided: each table by itself, by name."
    ),
]


def maintain(
    warehouse: Warehouse,
    pattern: Pattern = None,
    action: Actions = None,
    max_bytes: MaxBytes = None,
    max_tables: MaxTables = None,
    max_time: MaxTime = None,
    mode: ModeOption = Mode.COMBINED,
    resume: Resume = None,
    approved_by: ApprovedBy = None,
    unattended: Unattended = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Maintain many tables by one plan, the worst first, each in its own commits; exits 1 when one of them failed.

    The policy file in DREDGE_POLICIES decides about the work; without it, the options of the tables decide.
    """
    catalog = open_catalog(warehouse, clock)
    if (pattern is None) == (resume is None):
        raise typer.BadParameter("name a database or a pattern, or --resume a plan, and not both")
    rules = _load_rules(unattended=unattended, approved=approved_by is not None)
    if mode is Mode.DIVIDED:
        if resume is not None:
            raise typer.BadParameter("--resume goes on with a plan of all tables; --mode divided makes none")
        if not dry_run:
            from lsm_core.table.whole_database import limits_of, maintain_divided

            limits = limits_of(max_bytes, max_tables, max_time)
            with progress_bar(f"maintain {pattern}", hidden=as_json):
                report, declined = maintain_divided(
                    catalog, str(pattern), action, limits, approved_by, None if as_json else _print_line, rules
                )
            _finish(report, declined, as_json=as_json)
            return
    if resume is not None:
        plan = catalog.load_maintenance(resume)
    else:
        with progress_bar(f"maintain {pattern}: planning", hidden=as_json):
            plan = catalog.plan_maintenance(
                str(pattern),
                action,
                max_bytes=max_bytes,
                max_tables=max_tables,
                max_time=max_time,
                save=not dry_run,
                rules=rules,
            )
    if dry_run:
        print_json(json.loads(plan.to_json())) if as_json else _show_plan(plan)
        return
    if not as_json and not plan.items:
        say(_no_work_text(plan))
    elif not as_json:
        say(
            f"plan {plan.hash}: {len(plan.items)} plans of {len(plan.tables)} tables; --resume {plan.hash} goes on "
            "with it"
        )
    with progress_bar(f"maintain {plan.pattern}", hidden=as_json):
        report = catalog.maintain(plan, approved_by=approved_by, tell=None if as_json else _print_line, rules=rules)
    _finish(report, plan.declined, as_json=as_json)


def _finish(report: CombinedReport, declined: Sequence[Declined], *, as_json: bool) -> None:
    """Print the work that was left out and why, or the whole report as JSON. Raises DredgeError if a plan failed."""
    if as_json:
        print_json({**report.to_object(), "declined": [asdict(item) for item in declined]})
    else:
        _show_declined(declined)
    broken = [f"{item.subject}: {item.text}" for item in declined if item.reason == "failed"]
    broken += [f"{line.table}: {line.action}: {line.text}" for line in report.failed]
    if broken:
        raise DredgeError(f"{len(broken)} of {len(report.lines) + len(declined)} failed: {'; '.join(broken)}")


def _load_rules(*, unattended: bool, approved: bool) -> Rules | None:
    """Return the rules of the policy file, or None if no policy file is set and no installed package reads one.

    Raises:
        DredgeError: the policy file is invalid. Or no installed package reads policy files, although one is set or
            ``unattended`` needs its hours.
    """
    from importlib.metadata import entry_points

    reason = (
        f"{_POLICIES} is set"
        if os.environ.get(_POLICIES, "").strip()
        else "--unattended was asked for"
        if unattended
        else ""
    )
    for entry in entry_points(group="dredge.retention"):
        try:
            rules: Rules = entry.load()(unattended=unattended, approved=approved)
        except ImportError as error:
            if not reason:
                return None
            raise DredgeError(f"{reason}, and what reads policies cannot be loaded: {error}") from error
        return rules
    if not reason:
        return None
    raise DredgeError(
        f"{reason}, and nothing that is installed reads policies; without it the tables' own options hold"
    )


def _print_line(line: CombinedLine) -> None:
    say(f"{line.table}: {line.action}: {line.outcome}: {line.text}")


def _no_work_text(plan: CombinedPlan) -> str:
    return f"plan {plan.hash}: nothing to do for {plan.pattern} ({', '.join(plan.actions)})"


def _show_plan(plan: CombinedPlan) -> None:
    if not plan.items:
        say(_no_work_text(plan))
        _show_declined(plan.declined)
        return
    columns = ["table", "action", "score", "bytes in", "bytes freed", "seconds", "why"]
    rows = [[i.table, i.action, i.score, i.bytes_in, i.bytes_freed, i.seconds, i.reason] for i in plan.items]
    print_table(f"would do, in this order (plan {plan.hash})", columns, rows)
    _show_declined(plan.declined)


def _show_declined(declined: Sequence[Declined]) -> None:
    shown = [item for item in declined if item.reason != "nothing"]
    if shown:
        print_table("left alone", ["table", "why"], [[item.subject, item.text] for item in shown])
