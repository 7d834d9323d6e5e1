"""The verb that compares the rows of two snapshots of a table."""

from __future__ import annotations

import shlex
from dataclasses import asdict
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
from lsm_core.errors import DredgeError, SnapshotNotFound

if TYPE_CHECKING:
    from lsm_core.maintenance import VerifyReport

First = Annotated[
    int | None,
    typer.Argument(
        metavar="SNAPSHOT",
        help="Snapshot to compare with the previous one (default: that of the newest compaction).",
        show_default=False,
    ),
]
Second = Annotated[
    int | None,
    typer.Argument(
        metavar="LATER", help="Later snapshot to compare with, instead of the previous one.", show_default=False
    ),
]


def verify(
    warehouse: Warehouse,
    table: TableArgument,
    snapshot: First = None,
    later: Second = None,
    runner: RunnerOption = RunnerName.PROCESS,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Verify that two snapshots, as before and after a compaction, have the same rows; exits 1 if they differ."""
    from lsm_core.maintenance import newest_compaction, verify_snapshots

    opened = open_table(warehouse, table, clock)
    if snapshot is None:
        after = newest_compaction(opened.store)
        if after is None:
            raise SnapshotNotFound(
                f"{opened.name} has no compaction whose snapshot, and the one before, are there; name two snapshots "
                f"(`dredge snapshots {shlex.quote(opened.name)}`)"
            )
        before = after - 1
    else:
        before, after = (snapshot - 1, snapshot) if later is None else (snapshot, later)
    report: VerifyReport
    if runner is RunnerName.SPARK:
        from lsm_core.spark import spark_session, verify_table

        report = verify_table(spark_session(app_name="dredge"), opened, before, after)
    else:
        with progress_bar(f"verify {opened.name}", hidden=as_json):
            report = verify_snapshots(opened.store, before, after)
    if as_json:
        print_json(asdict(report))
    else:
        verdict = "say the same" if report.ok else "DIFFER"
        say(f"{opened.name}: snapshots {before} and {after} {verdict} ({report.level}, {report.seconds:.1f} s)")
        say(
            f"{report.buckets:,} buckets: {report.by_reference:,} share their files, {report.by_digest:,} compared by "
            f"content ({report.rows_a:,} and {report.rows_b:,} merged rows)"
        )
        if report.differences:
            columns = ["bucket", f"rows at {before}", f"rows at {after}", f"digest at {before}", f"digest at {after}"]
            rows = [
                [difference.bucket, difference.rows_a, difference.rows_b, difference.digest_a, difference.digest_b]
                for difference in report.differences
            ]
            print_table("differences", columns, rows)
        for example in getattr(report, "examples", ()):
            say(example)
    if not report.ok:
        places = ", ".join(difference.bucket for difference in report.differences[:3])
        raise DredgeError(
            f"{opened.name}: snapshots {before} and {after} differ in {len(report.differences)} places: {places}"
        )
