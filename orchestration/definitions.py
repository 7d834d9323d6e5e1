"""The code location: assets, checks, jobs, sensors and schedules made by a factory over whatever the warehouse holds."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import dagster as dg

from assets import data_asset, layout_asset
from checks import data_checks, layout_checks
from lsm_core.errors import InvalidOption
from orchestration import names
from orchestration.declared import with_declarations
from orchestration.jobs import (
    action_jobs,
    expectations_job,
    job_schedule,
    jobs_without_assets,
    resume_job,
    retention_job,
    warehouse_health_job,
    warehouse_jobs,
)
from orchestration.policies import Policies, Policy, PolicySource, policy_source
from orchestration.resources import LedgerResource, SparkResource, WarehouseResource
from orchestration.resources.listing import described, listing_file
from orchestration.resources.settings import RUN_JOB_VARIABLE, RUN_PARTITIONED_VARIABLE, Settings, run_assets
from orchestration.resources.warehouse import describe_table, list_tables
from orchestration.sensors import catalog_sensor, failure_sensor, idle_sensor, sorted_run_sensor, watch_sensor
from orchestration.table_card import TableCard
from orchestration.warehouse_health import warehouse_health_asset

_LOG = logging.getLogger(__name__)
DEMO_VARIABLE: Final = "DREDGE_DEMO"
"""Set by `dredge demo`: the code location then also holds the replay and the stream job."""


def build_definitions(
    environment: Mapping[str, str] | None = None,
    only: Collection[dg.AssetKey] | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> dg.Definitions:
    """Return the definitions over the warehouse that the environment names; an empty or missing one gives none but sensors.

    ``only``: keys of assets; where all are of tables, no other table is described, and without any none is; for the ranking of all tables alone, none becomes an asset. Jobs are there all the same.
    ``executor``: None leaves runs to the code location's own. Raises ``InvalidOption`` naming a variable that says something impossible; what is wrong with the policy file is told on ticks.
    """
    values = os.environ if environment is None else environment
    warehouse = WarehouseResource.from_environment(values)
    settings, source = Settings.from_environment(values), policy_source(warehouse.policy_file)
    policies, listing = source.current(), listing_file(values, warehouse)
    cards = (
        None if only is None else _cards_of(warehouse, frozenset(only), partitioned=RUN_PARTITIONED_VARIABLE in values)
    )
    if cards is None:
        cards = described(warehouse, listing)
        for line in policies.unmatched([card.name for card in cards]):
            _LOG.warning("%s", line)
    resources = {
        "warehouse": warehouse,
        "spark": SparkResource.from_environment(values),
        "ledger": LedgerResource.of(warehouse),
    }
    shown = [] if only is not None and set(only) == {names.warehouse_health_key(warehouse.path)} else cards
    checks = [check for card in shown for check in table_checks(card, warehouse.path, policies.of(card.name))]
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [
        asset for card in shown for asset in (data_asset(card, warehouse.path), layout_asset(card, warehouse.path))
    ]
    if cards:
        assets.append(warehouse_health_asset(cards, warehouse.path, source))
    # One process a run, also for what a person materialises: an op costs milliseconds, a process seconds.
    defs = dg.Definitions(assets=assets, asset_checks=checks, resources=resources, executor=executor)
    declared = replace(policies, trouble="")
    try:
        defs = with_declarations(defs, shown, warehouse.path, policies)
    except InvalidOption as error:  # a file that is wrong stops no sensor: the assets are as if it declared nothing
        declared = replace(policies, trouble=f"{error}; nothing counts that the file declares of assets")
        _LOG.error("%s", declared.trouble)
    if cards or only is not None:
        starting = _automation(cards, warehouse.path, source, declared, settings, listing, values)
    else:  # only the sensor that waits for the first table
        starting = dg.Definitions(sensors=[catalog_sensor(cards, source, settings, declared, listing)])
    defs = dg.Definitions.merge(defs, starting)
    if not values.get(DEMO_VARIABLE):
        return defs
    from assets.demo.replay import with_demo  # the demo's own source and jobs, for nobody else

    return with_demo(defs, warehouse.path, settings)


def _cards_of(
    warehouse: WarehouseResource, wanted: frozenset[dg.AssetKey], *, partitioned: bool = False
) -> list[TableCard] | None:
    """Describe the tables that the ``wanted`` assets are of, None when one of these is of no table.

    A table that is gone since the web server and the daemon loaded is described as one that cannot be opened, ``partitioned`` if the run is: so its run says that it is gone, instead of failing to
    begin.
    """
    if not wanted:
        return []
    catalog = warehouse.catalog()
    present = _keys_of(warehouse, list_tables(catalog)[0])
    gone = [key.path for key in wanted - present.keys() if len(key.path) == 3 and key.path[-1].endswith(names.LAYOUT)]
    keys = {**_keys_of(warehouse, [".".join(path[1:]).removesuffix(names.LAYOUT) for path in gone]), **present}
    if not wanted <= keys.keys():
        return None
    cards = [describe_table(catalog, table) for table in sorted({keys[key] for key in wanted})]
    of_old = ("partition",) if partitioned else ()
    return [replace(card, partition_keys=of_old) if card.unreadable else card for card in cards]


def _keys_of(warehouse: WarehouseResource, tables: Iterable[str]) -> dict[dg.AssetKey, str]:
    return {
        key: table
        for table in tables
        for key in (names.data_key(warehouse.path, table), names.layout_key(warehouse.path, table))
    }


def table_checks(card: TableCard, warehouse_path: str, policy: Policy) -> Sequence[dg.AssetChecksDefinition]:
    """Return the checks of one table: those over its layout, and those over its data."""
    return (
        layout_checks(card, names.layout_key(warehouse_path, card.name), policy),
        data_checks(card, names.data_key(warehouse_path, card.name), policy),
    )


def _automation(
    cards: Sequence[TableCard],
    path: str,
    policies: PolicySource,
    declared: Policies,
    settings: Settings,
    listing: Path | None,
    environment: Mapping[str, str],
) -> dg.Definitions:
    """Jobs, and what starts them."""
    retention, expectations, ranking = retention_job(), expectations_job(), warehouse_health_job(path)
    others = warehouse_jobs()
    return dg.Definitions(
        jobs=[retention, expectations, ranking, *others.values(), *action_jobs(), resume_job()],
        schedules=[
            job_schedule(retention, settings.retention_cron, settings, "Expire snapshots, then sweep the trash."),
            job_schedule(expectations, settings.expectations_cron, settings, "Hold the data to its own rules."),
            job_schedule(ranking, settings.health_cron, settings, "Rank all tables by what they need."),
            job_schedule(
                others[names.MAINTAIN_JOB],
                settings.maintenance_cron,
                settings,
                "Off-peak: what the tables' own rules call for and no sensor has done, for an hour at most; small manifests become few.",
                {"actions": ["compact", "manifests"], "max_time": "1 h", "unattended": True},
            ),
            job_schedule(
                others[names.ORPHAN_PLANS_JOB],
                settings.orphans_cron,
                settings,
                "List orphan files; nothing is deleted.",
            ),
            job_schedule(
                others[names.AUDIT_JOB],
                settings.audit_cron,
                settings,
                "Compare a sample of compactions once more (V3).",
            ),
        ],
        sensors=[
            sorted_run_sensor(cards, path, policies, settings),
            idle_sensor(cards, policies, settings),
            catalog_sensor(cards, policies, settings, declared, listing),
            failure_sensor(settings),
            watch_sensor(cards, policies, settings, environment),
        ],
    )


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector off while definitions are made, and what was made out of its sight afterwards.

    Definitions live as long as their process; looking at all of them again and again takes a third of the time with a thousand tables.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions over the warehouse that this process's environment names; raises as `build_definitions`.

    A run that `WarmRunLauncher` started gets those of its own tables alone, however many the warehouse holds, and one of a job without assets those of none.
    """
    with collector_at_rest():
        return build_definitions(only=None if os.environ.get(DEMO_VARIABLE) else wanted_assets(os.environ))


def wanted_assets(environment: Mapping[str, str]) -> frozenset[dg.AssetKey] | None:
    """Return the assets that this process needs: those that its run chose, else those of its job, none for a job that opens its tables itself.

    None: all, as the run's are not known or it is no run's process.
    """
    chosen, job = run_assets(environment), environment.get(RUN_JOB_VARIABLE)
    if chosen is None and job in jobs_without_assets():
        return frozenset()
    if chosen is None and job == names.WAREHOUSE_HEALTH:
        return frozenset({names.warehouse_health_key(WarehouseResource.from_environment(environment).path)})
    return chosen
