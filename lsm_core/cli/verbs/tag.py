"""The verb that lists, creates, moves, renames, deletes and expires tags."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lsm_core.cli.render import Columns, duration_text, print_documents, print_json, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, DryRun, Settings, TableArgument, Warehouse, open_table
from lsm_core.cli.verbs.maintain import show_plan, show_report
from lsm_core.clock import utc_text
from lsm_core.errors import DredgeError, InvalidOption

if TYPE_CHECKING:
    from lsm_core.table import Table

_TAKES: Final = {"list": 0, "create": 1, "delete": 1, "rename": 2, "expire": 0}
_ACTIONS: Final = {"create": "create_tag", "delete": "delete_tag", "expire": "expire_tags"}
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the tag.", show_default=False)]
NewName = Annotated[
    str | None, typer.Argument(metavar="[NEW_NAME]", help="rename: new name of the tag.", show_default=False)
]


def tag(
    warehouse: Warehouse,
    act: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(_TAKES)}.", show_default=False)],
    table: TableArgument,
    name: Name = None,
    new_name: NewName = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", help="create: of this snapshot (default: the newest).", show_default=False),
    ] = None,
    time_retained: Annotated[
        str | None,
        typer.Option("--time-retained", help='create: expire it after a time such as "7 d".', show_default=False),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="create: move a tag of that name.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help='expire: also all older than "30 d".', show_default=False),
    ] = None,
    dry_run: DryRun = False,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """List, create, delete, rename or expire the tags of a table."""
    opened = open_table(warehouse, table, clock, settings)
    if act not in _TAKES:
        raise InvalidOption("WHAT", act, ", ".join(_TAKES), opened.name)
    names = [part for part in (name, new_name) if part is not None]
    if len(names) != _TAKES[act]:
        expected = ("no name", "the name of the tag", "the tag's name and the new one")[_TAKES[act]]
        raise DredgeError(f"dredge tag {act} {opened.name} takes {expected}, and was given {len(names)} names")
    flags = {"--snapshot": snapshot, "--time-retained": time_retained, "--replace": replace or None}
    flags["--older-than"] = older_than
    of = {"create": ("--snapshot", "--time-retained", "--replace"), "expire": ("--older-than",)}.get(act, ())
    for flag, value in flags.items():
        if value is not None and flag not in of:
            raise InvalidOption(flag, value, f"nothing with dredge tag {act}", opened.name)
    if act == "list":
        _show(opened, as_json=as_json)
    elif act == "rename":
        _rename(opened, *names, dry_run=dry_run, as_json=as_json)
    else:
        arguments: dict[str, Any] = {"tag": name} if name is not None else {}
        if act == "create":
            arguments |= {"snapshot_id": snapshot, "time_retained": time_retained, "replace": replace}
        if older_than is not None:
            from lsm_core.options import duration

            arguments["older_than_ms"] = opened.store.clock.now_ms() - duration(older_than, "--older-than")
        _carry_out(opened, _ACTIONS[act], arguments, dry_run=dry_run, as_json=as_json)


def _carry_out(opened: Table, action: str, arguments: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    plan = opened.plan_maintenance(action, **arguments)
    if dry_run:
        print_json(json.loads(plan.to_json())) if as_json else show_plan(plan)
        return
    report = opened.apply(plan)
    print_json(report.to_object()) if as_json else show_report(report, opened.name)


def _rename(opened: Table, name: str, new_name: str, *, dry_run: bool, as_json: bool) -> None:
    if not dry_run:
        opened.rename_tag(name, new_name)
    if as_json:
        print_json({"table": opened.name, "name": name, "new_name": new_name, "dry_run": dry_run})
    else:
        say(
            f"tag {name} of {opened.name} {'would be' if dry_run else 'is'} called "
            f"{new_name}{'' if dry_run else ' now'}"
        )


def _show(opened: Table, *, as_json: bool) -> None:
    tags = opened.tags()
    documents = [
        {
            "name": name,
            "snapshot": tag.snapshot.id,
            "committed_ms": tag.snapshot.time_millis,
            "created_ms": tag.create_time_ms,
            "time_retained_ms": tag.time_retained_ms,
            "rows": tag.snapshot.total_record_count,
        }
        for name, tag in sorted(tags.items(), key=lambda item: (item[1].snapshot.id, item[0]))
    ]
    columns: Columns = {
        "tag": "name",
        "snapshot": "snapshot",
        "committed (UTC)": lambda row: utc_text(row["committed_ms"]),
        "kept for": lambda row: "always" if (kept := row["time_retained_ms"]) is None else duration_text(kept),
        "until (local)": lambda row: utc_text(tags[row["name"]].expires_ms),
        "rows": "rows",
    }
    print_documents(f"{opened.name}: tags", documents, columns, as_json=as_json)
