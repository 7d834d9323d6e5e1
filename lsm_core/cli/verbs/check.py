"""The verb that checks a table, from metadata and from bounded samples of its rows."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from lsm_core.cli.progress_bar import progress_bar
from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    RunnerName,
    RunnerOption,
    TableArgument,
    Warehouse,
    open_table,
)
from lsm_core.errors import DredgeError, InvalidOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lsm_core.maintenance import CheckReport

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CHECK", help="Check to run; may be repeated (default: all checks of the table)."),
]
Rows = Annotated[int, typer.Option("--rows", min=1, help="Most rows that a check reads.")]
Deep = Annotated[
    bool,
    typer.Option(
        "--deep", help="Read every page of every data file (check pages_readable). An interrupted call is resumed."
    ),
]
Bytes = Annotated[
    str | None,
    typer.Option(
        "--bytes",
        metavar="SIZE",
        help="With --deep: stop after this many stored bytes (10 GB); the next call continues there.",
        show_default=False,
    ),
]


def check(
    warehouse: Warehouse,
    table: TableArgument,
    only: Only = None,
    rows: Rows = 2_000_000,
    deep: Deep = False,
    limit: Bytes = None,
    runner: RunnerOption = RunnerName.PROCESS,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Check a table: tree, snapshots, pages, deletion vectors, keys, merge engine, changelog; exits 1 if a check fails.

    No data is changed.
    """
    from lsm_core.maintenance import CheckLimits, DeepRead, check_table
    from lsm_core.options import memory_size

    if not deep and (limit is not None or runner is RunnerName.SPARK):
        raise InvalidOption("--deep", "not set", "--deep, which --bytes and --runner spark need", table)
    opened = open_table(warehouse, table, clock)
    read = None
    if deep:
        size = None if limit is None else memory_size(limit, "--bytes")
        read = DeepRead(bytes=size)
        if runner is RunnerName.SPARK:
            from lsm_core.spark import deep_read, spark_session

            read = deep_read(spark_session(app_name="dredge"), size)
    with progress_bar(f"check {opened.name}", hidden=as_json):
        reports = check_table(opened.store, only or None, CheckLimits(rows=rows, deep=read))
    if as_json:
        print_json([report.to_plain() for report in reports])
    else:
        print_table(
            f"{opened.name}: checks",
            ["check", "outcome", "result"],
            [[report.check, report.outcome, report.text] for report in reports],
        )
        for report in reports:
            for problem in report.problems:
                say(f"{report.check}: {problem}")
    failed = [report.check for report in reports if not report.passed and not report.warn]
    if failed:
        remedy = _name_remedy(opened.name, reports)
        raise DredgeError(f"{opened.name}: {len(failed)} of {len(reports)} checks failed: {', '.join(failed)}{remedy}")


def _name_remedy(table: str, reports: Sequence[CheckReport]) -> str:
    """Return the next step after failed checks, as the end of a message, or "".

    Args:
        table: name of the table.
        reports: results of its checks.
    """
    name = shlex.quote(table)
    failed = [report for report in reports if not report.passed]
    breaks = [problem for report in failed if report.check == "snapshot_chain" for problem in report.problems or ("",)]
    if any(" file " not in problem or not problem.endswith(" is gone") for problem in breaks):
        return f"; `dredge repair {name}` says what can be done"
    text = next((report.remedy_text for report in failed if report.remedies), "")
    if text:
        return text
    if any(report.damaged for report in failed):
        return (
            "; put the files back from a copy, or give up their rows: move the files away, then run "
            f"`dredge remove-unexisting-files {name}`"
        )
    return ""
