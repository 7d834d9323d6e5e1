"""Verbs of maintenance: `plan`, `plans`, `apply`, and one verb for each action.

The actions declare their flags and help texts (`lsm_core.maintenance.action`).
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lsm_core.cli.completion import table_names
from lsm_core.cli.progress_bar import progress_bar
from lsm_core.cli.render import Columns, print_documents, print_json, print_table, say, visible_lines
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    DryRun,
    RunnerName,
    RunnerOption,
    Settings,
    Warehouse,
    open_catalog,
    open_table,
    parse_partitions,
    runner_of,
)
from lsm_core.clock import utc_text
from lsm_core.errors import DredgeError, InvalidOption, StorageFull, StorageRefused, typed_failure
from lsm_core.maintenance.action import (
    Action,
    Argument,
    ArgumentKind,
    Declined,
    MaintenancePlan,
    Report,
    action_names,
    all_actions,
    find_action,
    plan_maintenance,
)

if TYPE_CHECKING:  # the engine is imported by the verb that runs, so that help starts at once
    from lsm_core.table import Catalog, Table

ApprovedBy = Annotated[str | None, typer.Option("--approved-by", help="Written to the ledger.", show_default=False)]
Tables = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="database.table, or a pattern such as 'db.*'.",
        show_default=False,
        autocompletion=table_names,
    ),
]
TableOrHash = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="database.table; or the hash alone, of any table's plan.",
        show_default=False,
        autocompletion=table_names,
    ),
]
_SHARED: Final[tuple[tuple[str, Any, Any], ...]] = (
    ("settings", Settings, None),
    ("as_json", AsJson, False),
    ("clock", ClockOption, None),
)
_TYPES: Final[Mapping[ArgumentKind, Any]] = {
    ArgumentKind.FLAG: bool | None,
    ArgumentKind.NUMBER: int | None,
    ArgumentKind.NUMBERS: list[int] | None,
    ArgumentKind.TEXT: str | None,
    ArgumentKind.COLUMNS: str | None,
    ArgumentKind.PARTITIONS: list[str] | None,
    ArgumentKind.AGE: str | None,
}
"""Type on the command line by kind of argument. Arguments of kinds that are not listed have no flag."""
_MOST_SHOWN: Final = 1_000
_SHAPES: Final[Mapping[ArgumentKind, str]] = {
    ArgumentKind.COLUMNS: "A,B",
    ArgumentKind.PARTITIONS: "K=V[,K=V]",
    ArgumentKind.AGE: "AGE",
}


def verbs() -> dict[str, Callable[..., None]]:
    """Return `plan`, `plans`, `apply` and the verbs of all registered actions, as functions for Typer."""
    own = {action.verb: _build_verb(action) for action in all_actions() if action.verb}
    return {"plan": _build_plan_verb(), "plans": plans, "apply": apply, **own}


# -- plan --------------------------------------------------------------------------------------------------------------


def _build_plan_verb() -> Callable[..., None]:
    """Return `dredge plan`, which offers the flags of all actions.

    Flags that the chosen action does not take are refused.
    """
    offered: dict[str, tuple[Argument, list[str]]] = {}
    for action in all_actions():
        for argument in _list_flags(action):
            offered.setdefault(argument.option, (argument, []))[1].append(action.name)

    def plan(warehouse: str, table: str, action: str, save: bool, as_json: bool, **values: Any) -> None:
        """Show the work that maintenance would do and the reasons, and save the plan for `apply`."""
        try:
            chosen = find_action(action)
        except InvalidOption as error:
            raise typer.BadParameter(f"{action!r} is no action; actions: {error.accepted}") from error
        own_options = [argument.option for argument in _list_flags(chosen)]
        for option, (argument, takers) in offered.items():
            if values.get(argument.name) and option not in own_options:
                accepted = f"{chosen.name} takes {', '.join(own_options) or 'no flags'}"
                raise typer.BadParameter(f"{option} is for {', '.join(takers)}; {accepted}")

        def plan_table(opened: Table) -> Any:
            with progress_bar(f"plan {opened.name}: {chosen.name}", hidden=as_json):
                plan = opened.plan_maintenance(chosen.name, **_parse_arguments(chosen, opened, values))
            save_error = _try_save(opened, plan) if save and plan.items else ""
            if not as_json:
                show_plan(plan)
            if save_error:
                typer.echo(visible_lines(f"dredge: {save_error}"), err=True)
            return json.loads(plan.to_json())

        _require_one_of(chosen, values)
        _run_on_tables(warehouse, table, values, as_json, plan_table)

    names = ", ".join(action_names())
    save_option = typer.Option(help="Save the plan in the table, so that apply finds it by hash.")
    parameters = [
        ("warehouse", Warehouse, Parameter.empty),
        ("table", Tables, Parameter.empty),
        ("action", Annotated[str, typer.Option("--action", help=f"Action to plan: {names}.")], "compact"),
        *(_make_parameter(argument, f" ({', '.join(takers)})") for argument, takers in offered.values()),
        ("save", Annotated[bool, save_option], True),
        *_SHARED,
    ]
    return _set_signature(plan, parameters)


def _try_save(opened: Table, plan: MaintenancePlan) -> str:
    """Save a plan; return "", or the reason if it could not be saved."""
    try:
        opened.save_plan(plan)
    except (StorageFull, StorageRefused, OSError) as error:
        how = "`dredge plan --json` prints it, and `dredge apply --file` takes that once the table can be written"
        return f"the plan of {opened.name} cannot be saved: {error}; {how}"
    return ""


def show_plan(plan: MaintenancePlan) -> None:
    """Print a plan: its work, the work that it leaves out, and its hash.

    For a plan that has neither, print what applying it would report.
    """
    say(f"plan {plan.hash}: {plan.action} {plan.table}, base snapshot {plan.base_snapshot or '-'}")
    action = find_action(plan.action, plan.table)
    for kind in action.item_types():
        items = plan.items_of(kind)
        if items:
            print_table(kind.title, kind.columns, [item.cells() for item in items[:_MOST_SHOWN]])
        if len(items) > _MOST_SHOWN:
            say(f"... and {len(items) - _MOST_SHOWN:,} more; --json has them all")
    if not plan.items and not plan.declined:
        for line in action.unchanged(plan).lines(plan.table):
            say(line)
    for line in action.remarks(plan):
        say(line)
    _show_declined("leaves alone", plan.declined)
    cost = plan.estimate
    say(f"estimate: {cost.bytes_in:,} bytes in, {cost.bytes_freed:,} bytes freed, about {cost.seconds:.1f} s")


def plans(
    warehouse: Warehouse, table: Tables, settings: Settings = None, as_json: AsJson = False, clock: ClockOption = None
) -> None:
    """List the plans that wait for approval, the oldest first; `apply` takes their hashes."""
    from lsm_core.maintenance import waiting_plans

    def list_plans(opened: Table) -> Any:
        documents = [
            {
                "hash": waiting_plan.plan.hash,
                "action": waiting_plan.plan.action,
                "since_ms": waiting_plan.since_ms,
                "why": waiting_plan.why,
                "items": len(waiting_plan.plan.items),
                "bytes_in": waiting_plan.plan.estimate.bytes_in,
                "bytes_freed": waiting_plan.plan.estimate.bytes_freed,
            }
            for waiting_plan in waiting_plans(opened.store)
        ]
        if not as_json:
            columns: Columns = {
                **{name.replace("_", " "): name for name in ("hash", "action", "items", "bytes_in", "bytes_freed")},
                "since (UTC)": lambda plan: utc_text(plan["since_ms"]),
                "why it waits": "why",
            }
            print_documents(f"{opened.name}: plans that wait for approval", documents, columns, as_json=False)
        return {"table": opened.name, "waiting": documents}

    _run_on_tables(warehouse, table, {"settings": settings, "clock": clock}, as_json, list_plans)


# -- apply -------------------------------------------------------------------------------------------------------------


def apply(
    warehouse: Warehouse,
    table: TableOrHash,
    plan_hash: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="Of a saved plan.", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help='A plan as JSON; "-" reads stdin.', show_default=False)
    ] = None,
    approved_by: ApprovedBy = None,
    runner: RunnerOption = RunnerName.PROCESS,
    settings: Settings = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Apply exactly one plan, by its hash; applying it again changes nothing and exits 0."""
    if plan_hash is None and file is None and re.fullmatch("[0-9a-f]{32}", table):
        table, plan_hash = _table_of_plan(warehouse, table, clock), table
    opened = open_table(warehouse, table, clock, settings)
    if file is not None and plan_hash is not None:
        raise InvalidOption(
            "--file", file, f"a plan's hash, or --file, and not both (the hash {plan_hash} is given)", opened.name
        )
    if file is not None:
        chosen = MaintenancePlan.from_json(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
    elif plan_hash is not None:
        chosen = opened.load_plan(plan_hash)
    else:
        name, saved = opened.name, opened.saved_plans()
        known = (
            f"saved plans: {', '.join(saved[:5])}{' ...' if len(saved) > 5 else ''}" if saved else "no plan is saved"
        )
        raise DredgeError(
            f"say which plan of {name} to apply: a plan's hash, or --file "
            f"({known}; `dredge plan {shlex.quote(name)}` makes one)"
        )
    if runner is not RunnerName.PROCESS and not find_action(chosen.action, opened.name).runs_tasks:
        raise InvalidOption(
            "--runner", runner, f"{RunnerName.PROCESS}: {chosen.action} has no work for others", opened.name
        )
    elsewhere = runner_of(runner, chosen)
    with progress_bar(f"{chosen.action} {opened.name}", hidden=as_json or elsewhere is not None):
        report = opened.apply(chosen, approved_by, elsewhere)
    before = report.applied_before
    if as_json:
        print_json(report.to_object())
    elif before is None:
        show_report(report, opened.name)
    else:
        say(f"plan {chosen.hash} is {before.text()}, at {utc_text(before.time_ms)} UTC; nothing was changed now")
    require_success(report)


def _table_of_plan(warehouse: str, plan_hash: str, clock: str | None) -> str:
    """Return the table with a saved plan of this hash.

    Raises:
        DredgeError: no table has a plan with this hash; the message names tables that cannot be read.
    """
    from lsm_core.maintenance import saved_plan_hashes

    catalog, unread = open_catalog(warehouse, clock), []
    for name in [
        f"{database}.{name}" for database in catalog.list_databases() for name in catalog.list_tables(database)
    ]:
        try:
            if plan_hash in saved_plan_hashes(catalog.table(name).store):
                return name
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            unread.append(f"{name}: {error}")
    unread_text = f" (not looked at: {'; '.join(unread)})" if unread else ""
    raise DredgeError(f"no table of {catalog.place} keeps a plan with hash {plan_hash}{unread_text}")


def show_report(report: Report, table: str) -> None:
    """Print the work that was done on a table, and the work that was left out."""
    for line in report.lines(table):
        say(line)
    for title, declined in report.declined_lists().items():
        _show_declined(title, declined)


def require_success(report: Report) -> None:
    """Raise DredgeError if planned work failed. Call it after all other output."""
    failed = report.failures
    if failed:
        raise DredgeError(f"{len(failed)} {report.undone}, {failed[0].subject} for one: {failed[0].text}")


def _show_declined(title: str, declined: Sequence[Declined]) -> None:
    if declined:
        print_table(title, ["subject", "reason"], [[item.subject, item.text] for item in declined])


# -- the actions' own verbs --------------------------------------------------------------------------------------------


def _build_verb(action: Action) -> Callable[..., None]:
    """Return the verb that plans an action and applies the plan, for one table or for all that match a pattern."""

    def verb(warehouse: str, table: str, dry_run: bool, as_json: bool, **values: Any) -> None:
        def maintain_table(opened: Table) -> Any:
            workers = runner_of(values["runner"]) if action.plans_with_tasks else None
            hidden = as_json or (
                action.runs_tasks and values["runner"] is not RunnerName.PROCESS
            )  # Spark prints its own
            with progress_bar(f"{action.verb} {opened.name}: planning", hidden=hidden):
                plan = plan_maintenance(opened.store, action.name, workers, **_parse_arguments(action, opened, values))
            if dry_run:
                if not as_json:
                    show_plan(plan)
                return json.loads(plan.to_json())
            runner = runner_of(values["runner"], plan) if action.runs_tasks else None
            with progress_bar(f"{action.verb} {opened.name}", hidden=hidden):
                report = opened.apply(plan, runner=runner)
            if not as_json:
                show_report(report, opened.name)
            elif report.failures:
                print_json(report.to_object())
            require_success(report)
            return report.to_object()

        _require_one_of(action, values)
        _run_on_tables(warehouse, table, values, as_json, maintain_table)

    verb.__doc__ = action.help
    parameters = [
        ("warehouse", Warehouse, Parameter.empty),
        ("table", Tables, Parameter.empty),
        *(
            _make_parameter(argument)
            for argument in sorted(_list_flags(action), key=lambda argument: not argument.required)
        ),
        *([("runner", RunnerOption, RunnerName.PROCESS)] if action.runs_tasks else []),
        ("dry_run", DryRun, False),
        *_SHARED,
    ]
    return _set_signature(verb, parameters)


def _run_on_tables(
    warehouse: str, pattern: str, values: Mapping[str, Any], as_json: bool, work: Callable[[Table], Any]
) -> None:
    """Run ``work`` on one table or on all tables of a pattern; an error of one table does not stop the run.

    ``work`` prints for people, and returns a JSON object for programs. With ``as_json``, the object of the table is
    printed. For a pattern, a list of the objects is printed, each with the additional key "table".
    """
    names = matching_tables(open_catalog(warehouse, values["clock"]), pattern)
    if names is None:
        answer = work(open_table(warehouse, pattern, values["clock"], values["settings"]))
        if as_json:
            print_json(answer)
        return
    answers, failures = [], []
    for name in names:
        if not as_json:
            say(f"{name}:")
        try:
            answers.append({"table": name, **work(open_table(warehouse, name, values["clock"], values["settings"]))})
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            own = typed_failure(error, name) or error
            kind = "" if isinstance(own, DredgeError) else f"{type(own).__name__}: "
            failures.append(f"{name}: {kind}{own}")
    if as_json:
        print_json(answers)
    if failures:
        raise DredgeError(f"{len(failures)} of {len(names)} tables failed: {'; '.join(failures)}")


def matching_tables(catalog: Catalog, pattern: str) -> list[str] | None:
    """Return the tables that match a pattern ("db.*", "*.orders", "db.log_?"), or None for a plain name.

    Raises:
        DredgeError: no table matches, or the text names a database; the message has the pattern of all its tables.
    """
    if not any(sign in pattern for sign in "*?["):
        if "." not in pattern and pattern in catalog.list_databases():
            raise DredgeError(f"{pattern} is a database; '{pattern}.*' means all of its tables")
        return None
    names = [f"{db}.{name}" for db in catalog.list_databases() for name in catalog.list_tables(db)]
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        raise DredgeError(f"no table of {catalog.place} matches {pattern}")
    return matches


# -- arguments ---------------------------------------------------------------------------------------------------------


def _list_flags(action: Action) -> list[Argument]:
    return [argument for argument in action.arguments if argument.kind in _TYPES]


def _require_one_of(action: Action, values: Mapping[str, Any]) -> None:
    """Raise BadParameter unless the command line has exactly one of the flags that exclude each other."""
    flags = [argument for argument in _list_flags(action) if argument.name in action.one_of]
    chosen = [argument.option for argument in flags if values.get(argument.name) is not None]
    if flags and len(chosen) != 1:
        options = ", ".join(argument.option for argument in flags)
        raise typer.BadParameter(
            f"{action.name} takes exactly one of {options}; given: {', '.join(chosen) or 'none of them'}"
        )


def _make_parameter(argument: Argument, note: str | None = None) -> tuple[str, Any, Any]:
    """Return (name, annotation, default) of an argument for Typer; ``note`` is added to the help of the argument."""
    shape = _SHAPES.get(argument.kind)
    if argument.required and note is None:
        metavar = argument.name.upper()
        return argument.name, Annotated[str, typer.Argument(metavar=metavar, help=argument.help)], Parameter.empty
    text = argument.help + (note or "")
    option = typer.Option(argument.option, *argument.aliases, metavar=shape, help=text, show_default=False)
    return argument.name, Annotated[_TYPES[argument.kind], option], None


def _set_signature(body: Callable[..., None], parameters: Iterable[tuple[str, Any, Any]]) -> Callable[..., None]:
    """Set the signature of ``body``, from which Typer reads the parameters (name, annotation, default)."""
    signature = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, annotation, default in parameters
    ]
    body.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    body.__signature__ = Signature(signature)  # type: ignore[attr-defined]
    return body


def _parse_arguments(action: Action, table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the flags of the command line to arguments of the action's plan. Raises InvalidOption."""
    arguments: dict[str, Any] = {}
    for argument in _list_flags(action):
        value = values.get(argument.name)
        if value is None or value == []:
            continue
        if argument.kind is ArgumentKind.COLUMNS:
            value = [name.strip() for name in value.split(",")]
        elif argument.kind is ArgumentKind.PARTITIONS:
            value = parse_partitions(table, value)
        elif argument.kind is ArgumentKind.AGE:
            from lsm_core.options import duration

            try:
                value = table.store.clock.now_ms() - duration(value)
            except InvalidOption as error:
                raise InvalidOption(argument.option, value, error.accepted, table.name) from error
        arguments[argument.name] = value
    return arguments
