"""Verbs of branches and consumers, both of which keep snapshots and files from expiring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from lsm_core.cli.render import Columns, print_documents, print_json, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, DryRun, TableArgument, Warehouse, open_table
from lsm_core.cli.verbs.maintain import show_plan, show_report
from lsm_core.clock import utc_text
from lsm_core.errors import InvalidOption

if TYPE_CHECKING:
    from lsm_core.table import Table

_BRANCH_ACTS: Final = ("list", "create", "delete", "rename", "fast-forward")
_CONSUMER_ACTS: Final = ("list", "reset", "delete")
_PLANNED: Final = {"delete": "delete_branch", "fast-forward": "fast_forward"}


def branch(
    act: Annotated[str, typer.Argument(metavar="|".join(_BRANCH_ACTS), help="Action.", show_default=False)],
    warehouse: Warehouse,
    table: TableArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the branch.", show_default=False)
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Its new name (rename).", show_default=False)] = None,
    from_tag: Annotated[
        str | None, typer.Option("--from-tag", help="Begin with the rows of this tag (create).", show_default=False)
    ] = None,
    from_snapshot: Annotated[
        int | None,
        typer.Option("--from-snapshot", help="Begin with the rows of this snapshot (create).", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """List, create, delete, rename or fast-forward to branches; all other verbs take `db.t$branch_NAME` as a table."""
    opened = open_table(warehouse, table, clock)
    _require_known(act, _BRANCH_ACTS, opened)
    if act == "list":
        _list_branches(opened, as_json)
        return
    if name is None:
        raise InvalidOption("NAME", None, f"the name of the branch to {act}", opened.name)
    if act in _PLANNED:
        plan = opened.plan_maintenance(_PLANNED[act], branch=name)
        if dry_run:
            say(plan.to_json()) if as_json else show_plan(plan)
            return
        report = opened.apply(plan)
        print_json(report.to_object()) if as_json else show_report(report, opened.name)
        return
    if dry_run:
        raise InvalidOption("--dry-run", act, "delete or fast-forward, which have a plan", opened.name)
    if act == "create":
        created = opened.create_branch(name, from_tag, from_snapshot)
        print_json({"branch": name, "table": created.name}) if as_json else say(f"{created.name} is there")
        return
    if to is None:
        raise InvalidOption("--to", None, "the new name", opened.name)
    opened.rename_branch(name, to)
    print_json({"branch": to}) if as_json else say(f"branch {name} of {opened.name} is now {to}")


def _list_branches(opened: Table, as_json: bool) -> None:
    from lsm_core.metadata import branches

    documents = [{"branch": name, "changed_ms": time} for name, time in branches.change_times(opened.store).items()]
    columns: Columns = {"branch": "branch", "directory changed (UTC)": lambda row: utc_text(row["changed_ms"])}
    print_documents(f"{opened.name}: branches", documents, columns, as_json=as_json)


def consumers(
    act: Annotated[str, typer.Argument(metavar="|".join(_CONSUMER_ACTS), help="Action.", show_default=False)],
    warehouse: Warehouse,
    table: TableArgument,
    consumer: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id of the consumer.", show_default=False)
    ] = None,
    next_snapshot: Annotated[
        int | None, typer.Option("--next-snapshot", help="The snapshot that it reads next (reset).", show_default=False)
    ] = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """List consumers with their positions, set the position of a consumer, or delete it."""
    opened = open_table(warehouse, table, clock)
    _require_known(act, _CONSUMER_ACTS, opened)
    if act == "list":
        _list_consumers(opened, as_json)
        return
    if consumer is None:
        raise InvalidOption("ID", None, f"the consumer to {act}", opened.name)
    if act == "reset":
        if next_snapshot is None:
            raise InvalidOption("--next-snapshot", None, "the snapshot that it reads next", opened.name)
        opened.reset_consumer(consumer, next_snapshot)
    elif not opened.forget_consumer(consumer):
        known = ", ".join(opened.consumers()) or "no consumer at all"
        raise InvalidOption("ID", consumer, known, opened.name)
    if as_json:
        print_json(opened.consumers())
    else:
        state = f"reads snapshot {next_snapshot} next" if act == "reset" else "is forgotten"
        say(f"consumer {consumer} of {opened.name} {state}")


def _list_consumers(opened: Table, as_json: bool) -> None:
    from lsm_core.metadata import consumers as known

    documents = [
        {"consumer": consumer.consumer_id, "next_snapshot": consumer.next_snapshot, "seen_ms": consumer.seen_ms}
        for consumer in known.list_details(opened.store)
    ]
    latest = opened.latest_snapshot()
    newest = 0 if latest is None else latest.id
    columns: Columns = {
        "consumer": "consumer",
        "next snapshot": "next_snapshot",
        "unread snapshots": lambda row: max(newest + 1 - row["next_snapshot"], 0),
        "last seen (UTC)": lambda row: utc_text(row["seen_ms"]),
    }
    print_documents(f"{opened.name}: consumers", documents, columns, as_json=as_json)


def _require_known(act: str, acts: tuple[str, ...], opened: Table) -> None:
    if act not in acts:
        raise InvalidOption("act", act, ", ".join(acts), opened.name)
