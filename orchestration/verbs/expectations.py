"""`dredge expectations`: hold a table to its great-expectations suites, and write their page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    RunnerName,
    RunnerOption,
    TableArgument,
    Warehouse,
    given_catalog_options,
    open_table,
    taking_catalog_options,
)
from lsm_core.errors import DredgeError, InvalidOption
from orchestration.policies.policy import Policies
from orchestration.policies.policy_files import read_policies
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource
from orchestration.verbs.policies import PolicyFileOption


@taking_catalog_options
def expectations(
    warehouse: Warehouse,
    table: TableArgument,
    docs: Annotated[
        Path | None,
        typer.Option(
            "--docs", metavar="FOLDER", help="Write the pages of Data Docs into this folder.", show_default=False
        ),
    ] = None,
    policies: PolicyFileOption = None,
    runner: RunnerOption = RunnerName.PROCESS,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Hold a table to its great-expectations suites: schema, policy, and merged rows against the table's history; a broken one is an error."""
    from checks.expectations import suite_outcomes

    opened = open_table(warehouse, table, clock)
    declared = (read_policies(policies) if policies is not None else Policies()).of(opened.name).expectations
    options = {key: value for key, (value, _) in given_catalog_options().items()}
    house = WarehouseResource(path=warehouse, clock=clock or "system", catalog_options=options)
    card = house.card(opened.name)
    if card.refusal is not None:
        raise DredgeError(f"{opened.name}: not maintained, so it has no suite: {card.refusal}")
    folder = None if docs is None else _folder(docs)
    spark = SparkResource.from_environment({}) if runner is RunnerName.SPARK else None
    found = suite_outcomes(house, card, declared, spark, folder)
    broken = [outcome for outcome in found.outcomes if not outcome.passed and not outcome.warn]
    if as_json:
        print_json([outcome.to_plain() for outcome in found.outcomes])
    else:
        print_table(
            f"{opened.name}: expectations over {found.rows:,} rows ({found.where})",
            ["expectation", "outcome", "rows that break it", "observed"],
            [[one.text, one.outcome, one.unexpected, one.observed] for one in found.outcomes],
        )
        for outcome in found.outcomes:
            for row in outcome.rows:
                say(f"{outcome.text}: {row}")
        if folder is not None:
            say(f"page: {Path(folder) / 'index.html'}")
    if broken:
        names = "; ".join(outcome.text for outcome in broken)
        raise DredgeError(f"{opened.name}: {len(broken)} of {len(found.outcomes)} expectations are broken: {names}")


def _folder(docs: Path) -> str:
    """Return the folder for pages as an absolute path, and create it. Raises InvalidOption where it cannot be created."""
    place = docs.expanduser().absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption("--docs", str(docs), f"a folder that can be written ({error.strerror})") from error
    return str(place)


__all__ = ["expectations"]
