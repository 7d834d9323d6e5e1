"""What Dagster knows about tables, for `dredge status` and the scrape endpoint of `dredge metrics`; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dagster as dg

from dredge.orchestration.sensors.metric_files import alert_samples, state_samples
from dredge.orchestration.sensors.table_cache import wall_ms
from dredge.orchestration.sensors.table_states import TableEvaluation, evaluate_states
from dredge.orchestration.sensors.watch_sensor import Watch
from dredge.platform_core.policies.policy_files import load_policies, policies_path, policy_source
from dredge.platform_core.resources.settings import Settings
from dredge.platform_core.resources.warehouse import (
    WAREHOUSE_VARIABLE,
    WarehouseResource,
    describe_table,
    list_tables,
    warehouse_path,
)
from lsm_core.cli.verbs.common import read_catalog_options
from lsm_core.errors import InvalidOption
from lsm_core.maintenance.metrics import Sample

_HOME: Final = "DAGSTER_HOME"
_PLAN_SECONDS: Final = 5.0


def read_states(warehouse: str, clock: str | None, home: str, tables: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the states of tables by the decisions of the sensors: with failed checks, runs, retries and budgets.

    Args:
        warehouse: the warehouse.
        clock: the clock as text, or None for the system's.
        home: folder of the Dagster instance.
        tables: full names of the tables; names that are no table of the warehouse are left out.

    Returns:
        The state, its rank from 0 for the most urgent state, the reason, and the next step, by table.

    Raises:
        InvalidOption: the folder is not that of a Dagster instance.
    """
    with open_instance(home) as instance:
        resource = _open_warehouse(warehouse, clock)
        now_ms = resource.time().now_ms()
        return {item.name: _state_values(item, now_ms) for item in _evaluate(resource, instance, set(tables))}


def platform_samples(warehouse: str, clock: str | None, home: str) -> list[Sample]:
    """Return the states of all tables and the current alerts, as the platform writes them into files.

    Args:
        warehouse: the warehouse.
        clock: the clock as text, or None for the system's.
        home: folder of the Dagster instance.

    Raises:
        InvalidOption: the folder is not that of a Dagster instance.
    """
    with open_instance(home) as instance:
        resource = _open_warehouse(warehouse, clock)
        evaluations = _evaluate(resource, instance, None)
        catalog = resource.catalog()
        cards = [describe_table(catalog, item.name) for item in evaluations]
        watch = Watch(cards, policy_source(policies_path()), Settings.from_environment())
        findings = watch.find_all(instance, resource)
        return [*state_samples(evaluations, resource.time().now_ms()), *alert_samples(findings, wall_ms())]


@contextmanager
def open_instance(home: str) -> Iterator[dg.DagsterInstance]:
    """Open the Dagster instance of a folder.

    Raises:
        InvalidOption: the folder is not that of a Dagster instance, or the instance cannot be opened.
    """
    folder = Path(home).expanduser()
    if not (folder / "dagster.yaml").is_file() and not (folder / "history").is_dir():
        raise InvalidOption(_HOME, home, "the folder of a Dagster instance, with a dagster.yaml or a history")
    try:
        instance = dg.DagsterInstance.from_config(str(folder.absolute()))
    except dg.DagsterError as error:
        raise InvalidOption(_HOME, home, f"the folder of a Dagster instance ({error})") from error
    with instance:
        yield instance


def _open_warehouse(warehouse: str, clock: str | None) -> WarehouseResource:
    options = {key: value for key, (value, _) in read_catalog_options().items()}
    path = warehouse_path({WAREHOUSE_VARIABLE: warehouse})  # absolute, because asset keys contain its last folder
    return WarehouseResource(path=path, clock=clock or "system", catalog_options=options)


def _evaluate(
    warehouse: WarehouseResource, instance: dg.DagsterInstance, tables: set[str] | None
) -> list[TableEvaluation]:
    """Return the evaluations of the chosen tables, or of all tables if `tables` is None."""
    catalog = warehouse.catalog()
    chosen = [table for table in list_tables(warehouse)[0] if tables is None or table in tables]
    cards = [describe_table(catalog, table) for table in chosen]
    return evaluate_states(warehouse, instance, cards, load_policies(), plan_seconds=_PLAN_SECONDS)


def _state_values(evaluation: TableEvaluation, now_ms: int) -> dict[str, Any]:
    status = evaluation.status
    why = status.line(now_ms).partition(": ")[2]
    return {"state": status.label, "state_rank": status.state.rank, "why": why, "next": status.next_step()}
