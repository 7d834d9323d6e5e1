"""`dredge policy` (explain, check, schema) and `dredge advise`: what the policy file says of a table and where, and what it could say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

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
from orchestration.policies.policy import BUILT_IN, Origin, Policies, Policy, PolicyFile
from orchestration.policies.policy_files import POLICIES_VARIABLE, policies_path, read_policies
from orchestration.policies.windows import OffPeak

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
    """Return, value by value, what holds for a table: its name in the file, the value, as people read it, where it comes from and why."""
    found = policies.of(table)
    rows = [_row(found, name, value) for name, value in _values(found).items()]
    for rule in found.ages:
        aged = found.at_age(rule.older_than_ms)
        rows += [
            _row(aged, name, _values(aged)[name], f"partitions older than {duration_text(rule.older_than_ms)}: ")
            for name in rule.origins
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
    origin = found.origins.get(name)
    return {
        "name": f"{before}{name}",
        "value": value.model_dump(by_alias=True) if isinstance(value, OffPeak) else value,
        "text": _text(name, value),
        "origin": BUILT_IN if origin is None else str(origin),
        "why": "" if origin is None else origin.why,
    }


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, OffPeak):
        return value.text()
    if name == "idle_after" or name.endswith(".older_than"):
        return duration_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _values(found: Policy) -> dict[str, Any]:
    """The values by the keys that lead to them in the file; ages in ms."""
    values: dict[str, Any] = {
        "preset": found.preset,
        "idle_after": found.idle_after_ms,
        "idle_min_runs": found.idle_min_runs,
        "idle_min_files": found.idle_min_files,
        "level0_warn": found.level0_warn,
        "level0_critical": found.level0_critical,
        "paused": found.paused,
        "off_peak": found.off_peak,
        "verification": found.verification or "the table's own",
    }
    for kind, arguments in found.retention.items():
        values |= {f"retention.{kind}.{key.removesuffix('_ms')}": value for key, value in arguments.items()}
    for name in ("approval", "checks", "tags"):
        values |= {f"{name}.{key}": value for key, value in getattr(found, name).items()}
    if found.expectations:
        values["expectations"] = [one.model_dump() for one in found.expectations]
    for name in ("owners", "group", "upstream", "downstream"):
        if value := getattr(found, name):
            values[name] = value
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


__all__ = ["advise", "explained", "notices", "policy", "schema_text"]
