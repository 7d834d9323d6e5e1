"""The verb that shows the maintenance runs of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, TableArgument, Warehouse, open_table
from lsm_core.clock import utc_text

if TYPE_CHECKING:
    from lsm_core.maintenance import LedgerEntry

_NEWEST = 20
_MOST_LINES = 100

Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Show all details of this run.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Number of newest runs to read.")]


def ledger(
    warehouse: Warehouse,
    table: TableArgument,
    run: Run = None,
    limit: Limit = _NEWEST,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Show the maintenance runs of a table with author, time and result, or one run with all details."""
    from lsm_core.maintenance import find_entry, read_ledger

    opened = open_table(warehouse, table, clock)
    if run is not None:
        entry = find_entry(opened.store, run)
        if as_json:
            print_json({**entry.head(), "lines": list(entry.lines)})
        else:
            _show(entry)
        return
    entries = read_ledger(opened.store, limit, heads=True, stalls=True)
    if as_json:
        print_json([entry.head() for entry in entries])
        return
    if not entries:
        say(f"{opened.name}: nothing was maintained yet")
        return
    columns = ["run", "action", "outcome", "at (UTC)", "snapshot", "seconds", "author", "report"]
    rows = [
        [
            e.run_id,
            e.action,
            e.outcome,
            utc_text(e.time_ms),
            e.snapshot_id,
            e.seconds,
            e.approved_by or e.who or None,
            _summary(e),
        ]
        for e in entries
    ]
    print_table(f"{opened.name}: ledger", columns, rows)


def _summary(entry: LedgerEntry) -> str:
    """Return the error of a maintenance run, or else the numbers of its report in one line; "-" without numbers."""
    if entry.error is not None:
        return entry.error
    shown = {
        "files_in": "files in",
        "files_out": "files out",
        "files_kept": "files kept",
        "groups_spliced": "row groups copied",
        "rows_in": "rows in",
        "rows_out": "rows out",
        "files_recorded": "files into the trash",
        "files_deleted": "files deleted",
        "bytes_freed": "bytes freed",
        "files_restored": "files put back",
        "stalls": "waits for a compaction",
    }
    numbers = [(entry.report.get(name), text) for name, text in shown.items()]
    return ", ".join(f"{number:,} {text}" for number, text in numbers if isinstance(number, int) and number) or "-"


def _show(entry: LedgerEntry) -> None:
    """Print one run: its fields, the fields of its report, and the report's text."""
    head = {
        name: value
        for name, value in entry.head().items()
        if name not in {"report", "version"} and value not in (None, "")
    }
    members: dict[str, Any] = {
        **head,
        "time": f"{utc_text(entry.time_ms)} UTC",
        **{f"report.{n}": v for n, v in entry.report.items()},
    }
    print_table(f"run {entry.run_id}", ["field", "value"], [[name, str(value)] for name, value in members.items()])
    lines = [
        [line.get("event", "-"), ", ".join(f"{n}={v}" for n, v in line.items() if n != "event")] for line in entry.lines
    ]
    if lines:
        print_table("details", ["event", "of"], lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        say(f"(the first {_MOST_LINES} of {len(lines)} lines; --json shows all)")
