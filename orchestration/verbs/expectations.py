"""`dredge expectations`: check a table against its great-expectations suites and write their report pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dredge.orchestration.verbs.policies import PolicyFileOption
from dredge.platform_core.policies.policy import Policies
from dredge.platform_core.policies.policy_files import read_policies
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    RunnerName,
    RunnerOption,
    TableArgument,
    Warehouse,
    add_catalog_options,
    open_table,
    read_catalog_options,
)
from lsm_core.errors import DredgeError, InvalidOption


@add_catalog_options
def expectations(
    warehouse: Warehouse,
    table: TableArgument,
    docs: Annotated[
        Path | None,
        typer.Option("--docs", metavar="FOLDER", help="Folder for the Data Docs pages.", show_default=False),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FOLDER",
            help="Folder for a file with the keys that break expectations (JSON lines).",
            show_default=False,
        ),
    ] = None,
    policies: PolicyFileOption = None,
    runner: RunnerOption = RunnerName.PROCESS,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Check a table against its great-expectations suites; failed expectations are an error.

    The suites cover the schema, the policy, and the merged rows against the table's history.
    """
    from dredge.checks.expectations import failed_records, suite_outcomes
    from dredge.checks.unexpected_keys import write_keys

    opened = open_table(warehouse, table, clock)
    declared = (read_policies(policies) if policies is not None else Policies()).of(opened.name).expectations
    options = {key: value for key, (value, _) in read_catalog_options().items()}
    warehouse_resource = WarehouseResource(path=warehouse, clock=clock or "system", catalog_options=options)
    card = warehouse_resource.card(opened.name)
    if card.refusal is not None:
        raise DredgeError(f"{opened.name}: the table is not maintained, so it has no suite: {card.refusal}")
    folder = None if docs is None else _create_folder(docs, "--docs")
    keys_folder = None if keys is None else _create_folder(keys, "--keys")
    spark = SparkResource.from_environment({}) if runner is RunnerName.SPARK else None
    results = suite_outcomes(warehouse_resource, card, declared, spark, folder)
    failed = [outcome for outcome in results.outcomes if not outcome.passed and not outcome.warn]
    file = None if keys_folder is None else write_keys(Path(keys_folder), opened.name, failed_records(results.outcomes))
    if as_json:
        print_json([outcome.to_plain() for outcome in results.outcomes])
    else:
        print_table(
            f"{opened.name}: expectations over {results.rows:,} rows ({results.where})",
            ["expectation", "outcome", "unexpected rows", "observed"],
            [[outcome.text, outcome.outcome, outcome.unexpected, outcome.observed] for outcome in results.outcomes],
        )
        for outcome in results.outcomes:
            for row in outcome.rows:
                say(f"{outcome.text}: {row}")
            if not outcome.passed and outcome.unexpected > len(outcome.rows):
                where = f"see {file}" if file is not None else "--keys FOLDER writes them to a file"
                say(f"{outcome.text}: {len(outcome.rows)} of {outcome.unexpected:,} rows shown; {where}")
        if folder is not None:
            say(f"page: {Path(folder) / 'index.html'}")
    if failed:
        names = "; ".join(outcome.text for outcome in failed)
        raise DredgeError(f"{opened.name}: {len(failed)} of {len(results.outcomes)} expectations failed: {names}")


def _create_folder(path: Path, option: str) -> str:
    """Create a folder and return its absolute path.

    Args:
        path: path of the folder.
        option: name of the option that sets the folder.

    Raises:
        InvalidOption: the creation fails.
    """
    folder = path.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidOption(option, str(path), f"a folder that can be written ({error.strerror})") from error
    return str(folder)
