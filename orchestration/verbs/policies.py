"""`dredge policy` and `dredge advise`: policies of a table, validity of a policy file, and advice on presets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from dredge.orchestration.verbs.simulate import print_replay
from dredge.platform_core.policies.advice import TRIGGER, AdviceFacts, ReplayProposal, propose, replay_candidates
from dredge.platform_core.policies.advice import advise as advice_of
from dredge.platform_core.policies.budgets import Budget
from dredge.platform_core.policies.policy import BUILT_IN, Origin, Policies, Policy, PolicyFile
from dredge.platform_core.policies.policy_files import POLICIES_VARIABLE, policies_path, read_policies
from dredge.platform_core.policies.rounds import Round
from dredge.platform_core.policies.windows import OffPeak
from lsm_core.cli.render import duration_text, print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, TableArgument, Warehouse, add_catalog_options, open_table
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.maintenance import SimulatedPolicy, health, simulate
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore

_NO_VALUES: Final = frozenset({"rests", "paused_since_ms", "ages", "origins"})
"""Names of the fields of `Policy` that are not values of the policy file."""
_COMMITS: Final = 200
"""Number of newest commits of a table that advice is based on."""
_STOP_AFTER: Final = 3
"""Sorted runs above the compaction trigger at which writers wait by default; more are a backlog."""
_FEWEST_COMMITS: Final = 5
"""Fewest commits of writers from which a replay can tell triggers apart."""
_MOST_FILES: Final = 50
"""Files of a bucket of an append table above which reading costs more by files than by bytes."""
PolicyFileOption = Annotated[
    Path | None, typer.Option("--policies", envvar=POLICIES_VARIABLE, help="The policy file.", show_default=False)
]

policy = typer.Typer(
    name="policy",
    help="Show the policies of a table with their origin, validate a policy file, or print its JSON schema.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@policy.command()
def explain(table: TableArgument, policies: PolicyFileOption = None, as_json: AsJson = False) -> None:
    """Show every value that applies to a table, with its origin: file and line, preset or built-in default."""
    if len(parts := table.split(".")) < 2 or not all(parts):
        raise InvalidOption("TABLE", table, "database.table")
    loaded = read_policies(policies) if policies is not None else Policies()
    rows = explain_values(loaded, table)
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
    """Validate a policy file and report the first error with its line."""
    policies = read_policies(file)
    counts = {"databases": len(policies.content.databases), "tables": len(policies.content.tables)}
    if as_json:
        print_json({"file": str(file), **counts})
    else:
        say(f"{file}: valid: defaults, {counts['databases']} databases, {counts['tables']} tables and globs")


@policy.command()
def schema() -> None:
    """Print the JSON schema of policy files, for editors."""
    say(schema_text().rstrip("\n"))


@add_catalog_options
def advise(
    warehouse: Warehouse,
    table: TableArgument,
    policies: PolicyFileOption = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Propose a preset for a table, and the trigger of its compactions from a replay of its newest commits.

    The limit of sorted runs is the promise in the policy file (slo.sorted_runs_p95), or else the number at which
    writers wait.
    """
    store = open_table(warehouse, table, clock).store
    latest = snapshots.latest_id(store)
    snapshot_ids = [] if latest is None else sorted(snapshots.list_ids(store))[-_COMMITS:]
    commits = [commit for snapshot_id in snapshot_ids if (commit := snapshots.try_read(store, snapshot_id)) is not None]
    facts = AdviceFacts(
        store.name, store.schema.primary_keys, store.schema.options, health(store) if commits else [], commits
    )
    advice = advice_of(facts)
    promised = None if policies is None else read_policies(policies).of(store.name).slo.sorted_runs_p95
    rows, proposal, why_not = _replay(store, facts, promised)
    if as_json:
        replay = {"replay": rows, "proposal": None if proposal is None else asdict(proposal), "no_replay": why_not}
        print_json({**asdict(advice), "entry": advice.entry, "statements": advice.statements, **replay})
        return
    say(f"{table}: preset {advice.preset}")
    for reason in advice.reasons:
        say(f"  {reason}")
    say("")
    say(advice.entry)
    if not advice.changes:
        say("\nits options already match the preset")
    else:
        changes = [
            [
                change.key,
                change.now or "-",
                change.wanted,
                f"cannot be: {change.refused}" if change.refused else change.why,
            ]
            for change in advice.changes
        ]
        print_table("", ["option", "current", "recommended", "why"], changes)
        for statement in advice.statements:
            say(f"{statement};")
    if proposal is None:
        say(f"\nno replay of its commits: {why_not}")
        return
    print_replay(rows)
    say(f"replay of its newest {rows[0]['commits']:,} commits: {proposal.text}")
    for statement in proposal.statements:
        say(f"{statement};")


def _replay(
    store: TableStore, facts: AdviceFacts, promised: int | None
) -> tuple[list[dict[str, Any]], ReplayProposal | None, str]:
    """Return (figures of the replay, proposal or None, why there is no proposal or "").

    Args:
        store: the table.
        facts: description of the table with its newest commits.
        promised: promised limit of sorted runs, or None.
    """
    ids = [commit.id for commit in facts.commits]
    if len(facts.appends) < _FEWEST_COMMITS:
        return [], None, f"it has {len(facts.appends)} commits of writers, and a replay needs {_FEWEST_COMMITS}"
    candidates = replay_candidates(facts)
    try:
        policies = [SimulatedPolicy(name, options=options) for name, options in candidates.items()]
        rows = simulate(store, policies, (min(ids), max(ids))).to_pylist()  # one row per policy
    except DredgeError as error:
        return [], None, str(error)
    limit, source = promised, "slo.sorted_runs_p95"
    if not facts.primary_keys:
        limit, source = _MOST_FILES, "above it, opening files costs more than reading them"
    elif limit is None:
        default = store.options.compaction_trigger + _STOP_AFTER
        limit = min(store.options.stop_trigger, default)
        source = "num-sorted-run.stop-trigger" if limit < default else f"{TRIGGER} + {_STOP_AFTER}"
    return rows, propose(facts, candidates, rows, most_runs=limit, source=source), ""


def explain_values(policies: Policies, table: str) -> list[dict[str, Any]]:
    """Return the policy values that apply to a table, one row per value.

    Returns:
        Mappings with `name` (of the value), `value`, `text` (the value for people), `origin` (file and line, preset or
        built-in default) and `why` (reason of a preset, and the overridden entries; "" if there is neither).
    """
    applied = policies.of(table)
    rows = [_row(applied, name, value) for name, value in _values(applied).items()]
    for rule in applied.ages:
        aged = applied.at_age(rule.older_than_ms)
        aged_values = _values(aged)
        rows += [
            _row(aged, name, value, f"partitions older than {duration_text(rule.older_than_ms)}: ")
            for name, value in aged_values.items()
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


def _row(applied: Policy, name: str, value: Any, prefix: str = "") -> dict[str, Any]:
    origin = applied.origins.get(name.removesuffix("_ms"))
    return {
        "name": f"{prefix}{name.removesuffix('_ms')}",
        "value": value,
        "text": _text(name, value),
        "origin": BUILT_IN if origin is None else str(origin),
        "why": ""
        if origin is None
        else "; ".join([*([origin.why] if origin.why else []), *(f"over {place}" for place in origin.over)]),
    }


def _text(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if name.endswith("_ms"):
        return duration_text(value)
    if name == "off_peak":
        return OffPeak.model_validate(value).text()
    return f"{value:,}" if isinstance(value, int) else str(value)


def _values(applied: Policy) -> dict[str, Any]:
    """Return a policy's values by path, without empty lists and mappings; names of times in ms end in ``_ms``."""
    values: dict[str, Any] = {}
    pending = [
        (dataclass_field.name, getattr(applied, dataclass_field.name))
        for dataclass_field in fields(applied)
        if dataclass_field.name not in _NO_VALUES
    ]
    while pending:
        name, value = pending.pop(0)
        if isinstance(value, Mapping):
            pending[:0] = [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif is_dataclass(value):
            pending[:0] = [
                (f"{name}.{dataclass_field.name}", getattr(value, dataclass_field.name))
                for dataclass_field in fields(value)
            ]
        elif isinstance(value, BaseModel):
            values[name] = value.model_dump(by_alias=True)
        elif isinstance(value, str) or not isinstance(value, Sequence):
            values[name] = value
        elif value:
            values[name] = [
                dataclass_field.model_dump() if isinstance(dataclass_field, BaseModel) else dataclass_field
                for dataclass_field in value
            ]
    return values


def schema_text() -> str:
    """Return the JSON schema of policy files, the content of `docs/policies.schema.json`."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PolicyFile.model_json_schema(by_alias=True),
    }
    document["title"] = "Policies of Dredge"
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def notices() -> list[str]:
    """Return the error of the policy file in ``DREDGE_POLICIES`` for `dredge status`; [] if the file is valid."""
    path = policies_path()
    try:
        if path:
            read_policies(Path(path))
    except InvalidOption as error:
        return [f"policies: {error}"]
    return []


def retention(*, unattended: bool, approved: bool) -> Round:
    """Return the rules of `dredge maintain` from the file in ``DREDGE_POLICIES``, else from built-in values.

    Only unattended rounds (runs of the command that no person started) have a budget, and it limits only bytes. The
    limit of tables is ignored, because only Dagster knows which tables are being compacted.

    Args:
        unattended: whether no person started the round.
        approved: whether a person approves the plans.

    Raises:
        InvalidOption: the policy file is invalid, so its restrictions are unknown; the message names file and line.
    """
    path = policies_path()
    policies = read_policies(Path(path)) if path else Policies()
    budget = Budget(policies.bytes_an_hour if unattended else None, in_turn=True)
    return Round(policies, unattended, approved, budget)
