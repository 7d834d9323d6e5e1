"""The verb that compacts a very large level 0 in passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lsm_core.cli.progress_bar import progress_bar
from lsm_core.cli.render import print_json, print_json_text, say, visible
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    DryRun,
    Partitions,
    Settings,
    TableArgument,
    Warehouse,
    open_table,
    parse_partitions,
)
from lsm_core.cli.verbs.maintain import show_plan, show_report
from lsm_core.maintenance.action import find_action

if TYPE_CHECKING:
    from lsm_core.maintenance import RecoveryPass


def recover(
    warehouse: Warehouse,
    table: TableArgument,
    passes: Annotated[
        int | None,
        typer.Option("--passes", help="Most passes to run (default: until no pass remains).", show_default=False),
    ] = None,
    files: Annotated[
        int | None, typer.Option("--files", help=find_action("recover").arguments[0].help, show_default=False)
    ] = None,
    partition: Partitions = None,
    dry_run: DryRun = False,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Compact a very large level 0 in bounded passes, the oldest files first.

    Each pass reports the remaining files. The command may be stopped at any time.
    """
    from lsm_core import maintenance

    opened = open_table(warehouse, table, clock, settings)
    chosen = parse_partitions(opened, partition)
    if dry_run:
        plan = opened.plan_maintenance("recover", files=files, partitions=chosen)
        print_json_text(plan.to_json()) if as_json else show_plan(plan)
        return

    finished_passes: list[RecoveryPass] = []

    def show_pass(recovery_pass: RecoveryPass) -> None:
        finished_passes.append(recovery_pass)
        if not as_json:
            say(f"pass of plan {recovery_pass.plan_hash}:")
            show_report(recovery_pass, opened.name)

    try:
        with progress_bar(f"recover {opened.name}", hidden=as_json):
            report = maintenance.recover(opened.store, passes, files, show_pass, chosen)
    except KeyboardInterrupt:
        count = f"{len(finished_passes)} pass{'' if len(finished_passes) == 1 else 'es'} done"
        text = f"stopped: {count}; the running one is committed whole or not at all; the same command goes on from here"
        typer.echo(visible(text), err=True)
        raise
    if as_json:
        print_json(report.to_object())
        return
    for line in report.lines():
        say(line)
