"""`dredge policy` (explain, check, schema) and `dredge advise`: what the policy file says of a table and where, and what it could say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from lsm_core.cli.render import duration_text, print_json, print_table, say
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    TableArgument,
    Warehouse,
    open_table,
    taking_catalog_options,
)
from lsm_core.errors import InvalidOption
from lsm_core.maintenance import health
from lsm_core.metadata import snapshots
from orchestration.policies.advice import TableFacts
from orchestration.policies.advice import advise as advice_of
from orchestration.policies.budgets import Budget
from orchestration.policies.policy import BUILT_IN, Origin, Policies, Policy, PolicyFile
from orchestration.policies.policy_files import POLICIES_VARIABLE, policies_path, read_policies
from orchestration.policies.rounds import Round
from orchestration.policies.windows import OffPeak

_NO_VALUES: Final = frozenset({"rests", "paused_since_ms", "ages", "origins"})
"""What a `Policy` holds besides the values of the file."""
_COMMITS: Final = 200
"""How many of a table's newest commits tell how it is written."""
PolicyFileOption = Annotated[
    Path | None,
    typer.Option("--policies", envvar=POLICIES_VARIABLE, help="The policy file.", show_default=False),
]

policy = typer.Typer(
    name="policy",
    help="What the policy file says of a table and where, whether a file is sound, and its JSON schema.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@policy.command()
def explain(table: TableArgument, policies: PolicyFileOption = None, as_json: AsJson = False) -> None:
    """Show every value that holds for a table, and the file and line (or preset, or built-in default) that it comes from."""
    if len(parts := table.split(".")) < 2 or not all(parts):
        raise InvalidOption("TABLE", table, "database.table")
    read = read_policies(policies) if policies is not None else Policies()
    rows = explained(read, table)
    if as_json:
        print_json(rows)
        return
    say(f"{table}: {policies}" if policies is not None else f"{table}: no policy file ({POLICIES_VARIABLE} names none)")
    print_table(
        "",
        ["value", "is", "comes from", "why"],
        [[row["name"], row["text"], row["origin"], row["why"]] for row in rows],
    )


@policy.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy file.")], as_json: AsJson = False
) -> None:
    """Say whether a policy file is sound; where it is not, what is wrong on which line."""
    found = read_policies(file)
    counts = {"databases": len(found.content.databases), "tables": len(found.content.tables)}
    if as_json:
        print_json({"file": str(file), **counts})
    else:
        say(f"{file}: sound: defaults, {counts['databases']} databases, {counts['tables']} tables and globs")


@policy.command()
def schema() -> None:
    """Print the JSON schema of policy files, for editors."""
    say(schema_text().rstrip("\n"))


@taking_catalog_options
def advise(warehouse: Warehouse, table: TableArgument, as_json: AsJson = False, clock: ClockOption = None) -> None:
    """Propose a preset for a table from its options, health and newest commits: reasons, the policy, and the DDL."""
    store = open_table(warehouse, table, clock).store
    latest = snapshots.latest_id(store)
    numbers = [] if latest is None else sorted(snapshots.list_ids(store))[-_COMMITS:]
    commits = [one for number in numbers if (one := snapshots.try_read(store, number)) is not None]
    facts = TableFacts(
        store.name, store.schema.primary_keys, store.schema.options, health(store) if commits else [], commits
    )
    found = advice_of(facts)
    if as_json:
        print_json({**asdict(found), "entry": found.entry, "statements": found.statements})
        return
    say(f"{table}: preset {found.preset}")
    for reason in found.reasons:
        say(f"  {reason}")
    say("")
    say(found.entry)
    if not found.changes:
        say("\nits options are those that the preset wants")
        return
    rows = [
        [one.key, one.now or "-", one.wanted, f"cannot be: {one.refused}" if one.refused else one.why]
        for one in found.changes
    ]
    print_table("", ["option", "is", "better", "why"], rows)
    for statement in found.statements:
        say(f"{statement};")


def explained(policies: Policies, table: str) -> list[dict[str, Any]]:
    """Return, value by value, what holds for a table: its name in the file, the value, as people read it, where it comes from and why, and what else in the file it counts over."""
    found = policies.of(table)
    rows = [_row(found, name, value) for name, value in _values(found).items()]
    for rule in found.ages:
        aged = found.at_age(rule.older_than_ms)
        said = _values(aged)
        rows += [
            _row(aged, name, value, f"partitions older than {duration_text(rule.older_than_ms)}: ")
            for name, value in said.items()
            if name.removesuffix("_ms") in rule.origins
        ]
    budget = policies.content.budget
    for name in type(budget).model_fields:
        origin = Origin(policies.source, policies.lines.get(("budget", name), 0), "the whole warehouse")
        if (value := getattr(budget, name)) is not None:
            rows.append(
                {"name": f"budget.{name}", "value": value, "text": str(value), "origin": str(origin), "why": ""}
            )
    return rows


def _row(found: Policy, name: str, value: Any, before: str = "") -> dict[str, Any]:
    origin = found.origins.get(name.removesuffix("_ms"))
    return {
        "name": f"{before}{name.removesuffix('_ms')}",
        "value": value,
        "text": _text(name, value),
        "origin": BUILT_IN if origin is None else str(origin),
        "why": ""
        if origin is None
        else "; ".join([*([origin.why] if origin.why else []), *(f"over {one}" for one in origin.over)]),
    }


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if name.endswith("_ms"):
        return duration_text(value)
    if name == "off_peak":
        return OffPeak.model_validate(value).text()
    return f"{value:,}" if isinstance(value, int) else str(value)


def _values(found: Policy) -> dict[str, Any]:
    """The values by the keys that lead to them in the file, with ``_ms`` after those of times; lists and tables that say nothing are left out."""
    values: dict[str, Any] = {}
    waiting = [(one.name, getattr(found, one.name)) for one in fields(found) if one.name not in _NO_VALUES]
    while waiting:
        name, value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting[:0] = [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif is_dataclass(value):
            waiting[:0] = [(f"{name}.{one.name}", getattr(value, one.name)) for one in fields(value)]
        elif isinstance(value, BaseModel):
            values[name] = value.model_dump(by_alias=True)
        elif isinstance(value, str) or not isinstance(value, Sequence):
            values[name] = value
        elif value:
            values[name] = [one.model_dump() if isinstance(one, BaseModel) else one for one in value]
    return values


def schema_text() -> str:
    """Return the JSON schema of policy files, as `docs/policies.schema.json` holds it."""
    described = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PolicyFile.model_json_schema(by_alias=True),
    }
    described["title"] = "Policies of Dredge"
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def notices() -> list[str]:
    """Return what is wrong with the policy file that ``DREDGE_POLICIES`` names, for `dredge status`; [] when it is sound."""
    path = policies_path()
    try:
        if path:
            read_policies(Path(path))
    except InvalidOption as error:
        return [f"policies: {error}"]
    return []


def retention(*, unattended: bool, approved: bool) -> Round:
    """Return the rules of `dredge maintain` by the policy file that ``DREDGE_POLICIES`` names, else by the built-in values: see `Round`.

    Of budgets hold the bytes; what else is at work Dagster alone knows. Raises ``InvalidOption`` naming file and line where the file is not sound: what it forbids would not be known.
    """
    path = policies_path()
    policies = read_policies(Path(path)) if path else Policies()
    budget = Budget(policies.bytes_an_hour if unattended else None, in_turn=True)
    return Round(policies, unattended, approved, budget)


__all__ = ["advise", "explained", "notices", "policy", "retention", "schema_text"]
