"""Verbs that print rows of system tables ("db.orders$files", "sys.tables"), or the first rows of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lsm_core.cli.completion import table_names
from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, Warehouse, open_catalog

_FIRST = 1_000

Name = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="database.table$system, sys.tables or database.table",
        show_default=False,
        autocompletion=table_names,
    ),
]
TableOnly = Annotated[
    str, typer.Argument(metavar="TABLE", help="database.table", show_default=False, autocompletion=table_names)
]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="A,B", help="Only these columns.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Print this many rows at most.")]
SnapshotOption = Annotated[
    int | None, typer.Option("--snapshot", help="Snapshot to read (default: the newest).", show_default=False)
]
TagOption = Annotated[str | None, typer.Option("--tag", help="Tag to read.", show_default=False)]


def show(
    warehouse: Warehouse,
    table: Name,
    columns: Columns = None,
    limit: Limit = _FIRST,
    snapshot: SnapshotOption = None,
    tag: TagOption = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Print the rows of a system table such as db.orders$partitions (or the first rows of a table)."""
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    opened = open_catalog(warehouse, clock).table(table)
    # One row more than wanted tells whether there are more.
    rows_read = opened.to_arrow(columns=names, limit=limit + 1, snapshot_id=snapshot, tag=tag)
    rows = rows_read.slice(0, limit).to_pylist()  # a page for people, never more than they asked for
    if as_json:
        print_json(rows)
        return
    print_table(table, rows_read.column_names, [list(row.values()) for row in rows])
    if rows_read.num_rows > limit:
        say(f"(the first {limit} rows; --limit shows more)")


def partitions(
    warehouse: Warehouse,
    table: TableOnly,
    limit: Limit = _FIRST,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Print the partitions of a table; behind a catalog server that keeps them, with what only the server knows."""
    own = "partition,record_count,file_size_in_bytes,file_count,last_update_time,total_buckets"
    is_served = open_catalog(warehouse, clock).store(table).publisher is not None
    server = ",done,created_at,created_by" if is_served else ""
    show(warehouse, f"{table}$partitions", f"{own}{server}", limit, None, None, as_json, clock)
