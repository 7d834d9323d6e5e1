"""`dredge report`: all tables of a warehouse on one HTML page, the most urgent first, or as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import dagster as dg
import typer

from dredge.orchestration.fleet_report import gather_report, read_scores, replace_file, report_files
from dredge.orchestration.sensors.table_states import evaluate_states
from dredge.orchestration.verbs.policies import PolicyFileOption
from dredge.platform_core.policies.policy import Policies
from dredge.platform_core.policies.policy_files import read_policies
from dredge.platform_core.report.page import render_page
from dredge.platform_core.report.scores import ScoreHistory
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import (
    WAREHOUSE_VARIABLE,
    WarehouseResource,
    describe_table,
    list_tables,
    warehouse_path,
)
from dredge.platform_core.table_card import TableCard, count_text
from lsm_core.cli.render import print_json, say
from lsm_core.cli.verbs.common import (
    AsJson,
    ClockOption,
    Warehouse,
    add_catalog_options,
    open_catalog,
    read_catalog_options,
)
from lsm_core.cli.verbs.inspection import select_tables
from lsm_core.errors import InvalidOption

_HOME: Final = "DAGSTER_HOME"
Globs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLE...]", help="Databases, tables or globs such as 'shop.*'; all if none.", show_default=False
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="HTML file to write or replace.", show_default=False),
]


@add_catalog_options
def report(
    warehouse: Warehouse,
    tables: Globs = None,
    output: Output = None,
    policies: PolicyFileOption = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Write one HTML page on all tables: state, reason, next action, trend, costs, holders, and newest actions.

    The page works offline. With DAGSTER_HOME set, failed checks, runs and suspensions count too; DREDGE_UI_URL
    adds links to Dagster's pages.
    """
    if output is None and not as_json:
        raise typer.BadParameter("name a file for the page with --output, or print JSON with --json")
    if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
        raise InvalidOption("--output", str(output), "a file in a folder that exists")
    open_catalog(warehouse, clock)
    options = {key: value for key, (value, _) in read_catalog_options().items()}
    path = warehouse_path({WAREHOUSE_VARIABLE: warehouse})  # absolute, because asset keys contain its last folder
    resource = WarehouseResource(path=path, clock=clock or "system", catalog_options=options)
    cards, notes = find_cards(resource, tables or ())
    loaded = read_policies(policies) if policies is not None else Policies()
    settings = Settings.from_environment()
    with _open_instance() as instance:
        evaluations = evaluate_states(resource, instance, cards, loaded, settings)
    if instance is None:
        missing = "failed checks, suspensions, runs and budgets are unknown"
        notes = [f"Made without Dagster, because {_HOME} is not set: {missing}.", *notes]
    files = report_files(resource.names, settings, os.environ.get(_HOME, "").strip())
    scores = ScoreHistory() if files is None else read_scores(files.scores)
    fleet = gather_report(
        resource.names,
        evaluations,
        loaded,
        resource.time().now_ms(),
        scores,
        dagster_url=settings.ui_url,
        notes=notes,
    )
    if as_json:
        print_json(fleet.to_plain())
    if output is None:
        return
    try:
        replace_file(output.absolute(), render_page(fleet))
    except OSError as error:
        raise InvalidOption("--output", str(output), f"a file that can be written ({error.strerror})") from error
    if not as_json:
        counts = ", ".join(f"{number} {legend.name}" for legend, number in fleet.counts())
        say(f"{output}: {count_text(len(fleet.tables), 'table')}{f' ({counts})' if counts else ''}")


@contextmanager
def _open_instance() -> Iterator[dg.DagsterInstance | None]:
    """Open the Dagster instance of DAGSTER_HOME, or yield None if the variable is not set.

    Raises:
        InvalidOption: the instance cannot be opened.
    """
    home = os.environ.get(_HOME, "").strip()
    if not home:
        yield None
        return
    try:
        instance = dg.DagsterInstance.get()
    except dg.DagsterError as error:
        raise InvalidOption(_HOME, home, f"the folder of a Dagster instance ({error})") from error
    with instance:
        yield instance


def find_cards(warehouse: WarehouseResource, patterns: Sequence[str]) -> tuple[list[TableCard], list[str]]:
    """Return (descriptions of the tables that match a pattern, a line for each table that cannot be listed).

    Args:
        warehouse: the warehouse.
        patterns: databases, or names or globs of tables; all tables match if there is none.

    Raises:
        TableNotFound: a pattern matches no table.
    """
    catalog = warehouse.catalog()
    tables, left_out = list_tables(warehouse)
    chosen = {name for pattern in patterns or ["*"] for name in select_tables(tables, pattern, catalog.place)}
    return [describe_table(catalog, table) for table in sorted(chosen)], left_out
