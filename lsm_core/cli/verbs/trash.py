"""The verb that lists and sweeps the trash: files of expiries, orphan removals, deleted tags and rollbacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lsm_core.cli.render import Columns, print_documents, print_json
from lsm_core.cli.verbs.common import AsJson, ClockOption, DryRun, TableArgument, Warehouse, open_table
from lsm_core.cli.verbs.maintain import require_success, show_report
from lsm_core.clock import utc_text
from lsm_core.errors import DredgeError

if TYPE_CHECKING:
    from lsm_core.maintenance import TrashRecord


def trash(
    warehouse: Warehouse,
    table: TableArgument,
    sweep: Annotated[bool, typer.Option("--sweep", help="Delete the files whose grace is over.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """List the deletion records of a table, or delete the files that are due; exits 1 if a record is unreadable."""
    from lsm_core.maintenance import read_trash

    opened = open_table(warehouse, table, clock)
    if sweep:
        report = opened.sweep_trash(dry_run=dry_run)
        print_json(report.to_object()) if as_json else show_report(report, opened.name)
        require_success(report)
        _require_readable([item.text for item in report.unreadable])
        return
    records = read_trash(opened.store)
    documents = [
        {
            "trash_id": record.trash_id,
            "action": record.action,
            "branch": record.branch,
            "snapshots": sorted(record.snapshots),
            "others": sorted(record.metadata),
            "files": len(record.files),
            "bytes": record.size,
            "created_ms": record.created_ms,
            "not_before_ms": record.not_before_ms,
        }
        for record in records.records
    ]
    contents = {record.trash_id: _describe_content(record) for record in records.records}
    columns: Columns = {
        "trash id": "trash_id",
        "snapshots": lambda row: contents[row["trash_id"]],
        "files": "files",
        "bytes": "bytes",
        "set aside at (UTC)": lambda row: utc_text(row["created_ms"]),
        "deleted from (UTC)": lambda row: utc_text(row["not_before_ms"]),
    }
    print_documents(f"{opened.name}: trash", documents, columns, as_json=as_json)
    _require_readable([str(error) for error in records.unreadable])


def _describe_content(record: TrashRecord) -> str:
    """Describe the content of a record: ids of snapshots or changelogs, tags, or a whole branch."""
    if record.action == "delete_branch":
        return f"branch {record.branch}"
    tags = [f"tag {path.removeprefix('tag/tag-')}" for path in sorted(record.metadata) if path.startswith("tag/tag-")]
    tags = [tag for tag in tags if not tag.endswith("_SUCCESS")]
    if not record.snapshots:
        return "orphan files" if record.action == "orphans" else ", ".join(tags) or "-"
    ids = f"{min(record.snapshots)}..{max(record.snapshots)}"
    ids = f"changelogs {ids}" if record.action == "expire_changelogs" else ids
    return ", ".join([ids if record.branch == "main" else f"{ids} of branch {record.branch}", *tags])


def _require_readable(troubles: Sequence[str]) -> None:
    """Raise DredgeError if records are unreadable, so that the exit code is 1. Call it after all other work."""
    if troubles:
        raise DredgeError(f"not looked at: {'; '.join(troubles)}")
