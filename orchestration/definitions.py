"""Code location: assets, checks, jobs, sensors and schedules, built for the tables of the warehouse."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import dagster as dg

from dredge.assets import data_asset, layout_asset
from dredge.checks import data_checks, layout_checks
from dredge.orchestration.asset_declarations import add_declarations, policy_references
from dredge.orchestration.jobs import (
    action_jobs,
    expectations_job,
    job_schedule,
    jobs_without_assets,
    mute_jobs,
    resume_job,
    retention_job,
    warehouse_health_job,
    warehouse_jobs,
)
from dredge.orchestration.ops.layout_ops import layout_graph
from dredge.orchestration.sensors import catalog_sensor, failure_sensor, idle_sensor, sorted_run_sensor, watch_sensor
from dredge.orchestration.sensors.status_board import StatusBoard
from dredge.orchestration.warehouse_health import warehouse_health_asset
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import allow_early_features
from dredge.platform_core.policies import Policies, Policy, PolicySource, policy_source
from dredge.platform_core.resources import LedgerResource, SparkResource, WarehouseResource
from dredge.platform_core.resources.listing import describe_with_listing, listing_file
from dredge.platform_core.resources.settings import RUN_JOB_VARIABLE, RUN_PARTITIONED_VARIABLE, Settings, run_assets
from dredge.platform_core.resources.warehouse import describe_table, list_tables
from dredge.platform_core.table_card import TableCard
from lsm_core.errors import InvalidOption

_LOG = logging.getLogger(__name__)
Translation = Callable[[dg.AssetSpec, TableCard], dg.AssetSpec]
"""Hook that returns the attributes of a table's asset (group, tags, owners, metadata ...)."""
_ALERTS: Final = "DREDGE_ALERT_"
"""Prefix of variables with secret addresses, which resources must not show."""
_OBJECTS_A_COLLECTION: Final = (100_000, 20, 20)
"""Thresholds of the garbage collector in processes of the code location.

Objects of definitions live as long as the process. With Python's default of 700, the collector scans them repeatedly.
"""
DEMO_VARIABLE: Final = "DREDGE_DEMO"
"""Environment variable that `dredge demo` sets, so that the code location also has the replay and the stream job."""


def build_definitions(
    environment: Mapping[str, str] | None = None,
    only: Collection[dg.AssetKey] | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    *,
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    translation: Translation | None = None,
    inline_policies: str = "",
    prefix: str = "",
    neighbours: Collection[str] = (),
) -> dg.Definitions:
    """Return the definitions for the warehouse that the environment names.

    Args:
        environment: variables, or None for those of this process.
        only: keys of the assets to define, or None for all assets. If all keys belong to tables, only these tables are
            read. If there is no key, or only the key of the asset `warehouse_health`, no table becomes an asset. Jobs
            and sensors are defined in each of these cases. With None and a warehouse without tables, only the sensor
            `catalog` is defined, which waits for the first table.
        executor: executor of the runs, or None for the code location's own.
        include: patterns (``*`` and ``?``) of the names of tables, ``db.table``, to maintain.
        exclude: patterns of the names of tables to leave out.
        variables: variables of the platform that have priority over ``environment``, also in ticks and runs.
        translation: function that returns the attributes to show of a table's asset; it cannot change the key.
        inline_policies: policies as a JSON object in the form of a policy file, which replace the file; "" for none.
        prefix: name of the component, which begins the names of all definitions except assets, or "" for none.
        neighbours: first parts of the asset keys of other warehouses in the code location.

    Raises:
        InvalidOption: a variable is invalid; the message names the variable. Errors of the policy file are reported on
            ticks instead.
    """
    values = {**(os.environ if environment is None else environment), **(variables or {})}
    shown_variables = {name: text for name, text in (variables or {}).items() if not name.startswith(_ALERTS)}
    warehouse = WarehouseResource.from_environment(
        values,
        include=include,
        exclude=exclude,
        variables=shown_variables,
        inline_policies=inline_policies,
        prefix=prefix,
    )
    settings, source = Settings.from_environment(values), policy_source(*warehouse.policy_place)
    policies, listing = source.current(), listing_file(values, warehouse)
    cards = (
        None if only is None else _cards_of(warehouse, frozenset(only), partitioned=RUN_PARTITIONED_VARIABLE in values)
    )
    if cards is None:
        cards = describe_with_listing(warehouse, listing)
        for line in policies.unmatched([card.name for card in cards]):
            _LOG.warning("%s", line)
        if not cards:
            _LOG.warning(
                "the warehouse %s has no table that include %s and exclude %s choose: check its location and patterns",
                warehouse.path,
                list(include),
                list(exclude),
            )
    warehouse_names = warehouse.names
    resources = {
        warehouse_names.definition("warehouse"): warehouse,
        warehouse_names.definition("spark"): SparkResource.from_environment(values),
        warehouse_names.definition("ledger"): LedgerResource.of(warehouse),
    }
    shown = [] if only is not None and set(only) == {warehouse_names.warehouse_health_key()} else cards
    checks = [check for card in shown for check in table_checks(card, warehouse_names, policies.of(card.name))]
    references = {card.name: policy_references(policies, card.name, warehouse.policy_file) for card in shown}
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [
        asset
        for card in shown
        for asset in (
            data_asset(card, warehouse_names, references[card.name]),
            layout_asset(card, warehouse_names, layout_graph(card.name, warehouse_names), references[card.name]),
        )
    ]
    if cards:
        assets.append(warehouse_health_asset(cards, warehouse_names, source))
    # One process per run, also for runs by hand: an op costs milliseconds, a process seconds.
    defs = dg.Definitions(assets=assets, asset_checks=checks, resources=resources, executor=executor)
    declared = replace(policies, trouble="")
    try:
        defs = add_declarations(defs, shown, warehouse_names, policies, neighbours)
    except InvalidOption as error:  # an invalid file must not stop sensors: its asset declarations are ignored
        declared = replace(policies, trouble=f"{error}; all asset declarations of the file are ignored")
        _LOG.error("%s", declared.trouble)
    if translation is not None:
        defs = _translate(defs, shown, warehouse_names, translation)
    if cards or only is not None:
        automation = _automation(cards, warehouse_names, source, declared, settings, listing, values)
    else:  # only the sensor that waits for the first table
        automation = dg.Definitions(
            sensors=[catalog_sensor(cards, warehouse_names, source, settings, declared, listing)]
        )
    defs = dg.Definitions.merge(defs, automation)
    if not values.get(DEMO_VARIABLE):
        return defs
    from dredge.assets.demo.replay import add_demo  # source and jobs of the demo only

    return add_demo(defs, warehouse.path, settings)


def _translate(
    defs: dg.Definitions, cards: Sequence[TableCard], warehouse_names: names.WarehouseNames, translation: Translation
) -> dg.Definitions:
    """Return definitions whose assets of tables have the attributes that a translation returns.

    Raises:
        InvalidOption: the translation returns no AssetSpec, or changes a key or partitions, by which sensors, runs and
            checks find the table.
    """
    cards_of = {
        key: card
        for card in cards
        for key in (warehouse_names.data_key(card.name), warehouse_names.layout_key(card.name))
    }

    def translate(spec: dg.AssetSpec) -> dg.AssetSpec:
        card = cards_of.get(spec.key)
        translated = spec if card is None else translation(spec, card)
        if not isinstance(translated, dg.AssetSpec):
            raise InvalidOption(
                f"translation of {spec.key.to_user_string()}", translated, "a function that returns an AssetSpec"
            )
        if translated.partitions_def != spec.partitions_def:
            raise InvalidOption(
                f"translation of {spec.key.to_user_string()}: partitions_def",
                translated.partitions_def,
                "the asset's own partitions, by which sensors and runs find those of the table",
            )
        if translated.key != spec.key:
            raise InvalidOption(
                f"translation of {spec.key.to_user_string()}: key",
                translated.key.to_user_string(),
                "the asset's own key (the setting `name` sets its first part)",
            )
        return translated

    with allow_early_features():
        return defs.map_asset_specs(func=translate)


def _cards_of(
    warehouse: WarehouseResource, asset_keys: frozenset[dg.AssetKey], *, partitioned: bool = False
) -> list[TableCard] | None:
    """Return the descriptions (cards) of the tables of the given assets, or None if an asset belongs to no table.

    A table may have been dropped since the web server and the daemon loaded. A dropped table gets the card of an
    unreadable table, with a partition key if the run has partitions. So the run reports the dropped table instead of
    failing to start.

    Args:
        warehouse: the warehouse.
        asset_keys: keys of the assets.
        partitioned: whether the run has partitions.
    """
    if not asset_keys:
        return []
    catalog = warehouse.catalog()
    present = _keys_of(warehouse, list_tables(warehouse)[0])
    dropped = [
        key.path for key in asset_keys - present.keys() if len(key.path) == 3 and key.path[-1].endswith(names.LAYOUT)
    ]
    keys = {**_keys_of(warehouse, [".".join(path[1:]).removesuffix(names.LAYOUT) for path in dropped]), **present}
    if not asset_keys <= keys.keys():
        return None
    cards = [describe_table(catalog, table) for table in sorted({keys[key] for key in asset_keys})]
    partition_keys = ("partition",) if partitioned else ()
    return [replace(card, partition_keys=partition_keys) if card.unreadable else card for card in cards]


def _keys_of(warehouse: WarehouseResource, tables: Iterable[str]) -> dict[dg.AssetKey, str]:
    return {
        key: table for table in tables for key in (warehouse.names.data_key(table), warehouse.names.layout_key(table))
    }


def table_checks(
    card: TableCard, warehouse_names: names.WarehouseNames, policy: Policy
) -> Sequence[dg.AssetChecksDefinition]:
    """Return the checks of one table's layout asset and data asset."""
    return (
        layout_checks(card, warehouse_names, policy),
        data_checks(card, warehouse_names, policy),
    )


def _automation(
    cards: Sequence[TableCard],
    warehouse_names: names.WarehouseNames,
    policies: PolicySource,
    declared: Policies,
    settings: Settings,
    listing: Path | None,
    environment: Mapping[str, str],
) -> dg.Definitions:
    """Return the definitions of the code location's jobs, schedules and sensors.

    Args:
        cards: descriptions of the tables in the definitions.
        warehouse_names: names of the warehouse in Dagster.
        policies: source of the current policies.
        declared: policies that the assets were declared with.
        settings: intervals, crons and switches.
        listing: stored listing of the warehouse, or None.
        environment: environment variables for the sensor `watch`.
    """
    retention, expectations, ranking = (
        retention_job(warehouse_names),
        expectations_job(warehouse_names),
        warehouse_health_job(warehouse_names),
    )
    others, board = warehouse_jobs(warehouse_names), StatusBoard()
    return dg.Definitions(
        jobs=[
            retention,
            expectations,
            ranking,
            *others.values(),
            *action_jobs(warehouse_names),
            resume_job(warehouse_names),
            *mute_jobs(warehouse_names),
        ],
        schedules=[
            job_schedule(
                warehouse_names, retention, settings.retention_cron, settings, "Expire snapshots, then empty the trash."
            ),
            job_schedule(
                warehouse_names, expectations, settings.expectations_cron, settings, "Check the data of all tables."
            ),
            job_schedule(
                warehouse_names, ranking, settings.health_cron, settings, "Rank all tables by what they need."
            ),
            job_schedule(
                warehouse_names,
                others[names.MAINTAIN_JOB],
                settings.maintenance_cron,
                settings,
                "Off-peak, at most one hour: compactions that the tables' own rules require and no sensor started; "
                "merges of small manifests.",
                {"actions": ["compact", "manifests"], "max_time": "1 h", "unattended": True},
            ),
            job_schedule(
                warehouse_names,
                others[names.ORPHAN_PLANS_JOB],
                settings.orphans_cron,
                settings,
                "List orphan files; nothing is deleted.",
            ),
            job_schedule(
                warehouse_names,
                others[names.AUDIT_JOB],
                settings.audit_cron,
                settings,
                "Verify a sample of compactions again (V3).",
            ),
        ],
        sensors=[
            sorted_run_sensor(cards, warehouse_names, policies, settings, board),
            idle_sensor(cards, warehouse_names, policies, settings, board),
            catalog_sensor(cards, warehouse_names, policies, settings, declared, listing),
            failure_sensor(cards, warehouse_names, settings),
            watch_sensor(cards, warehouse_names, policies, settings, environment),
        ],
    )


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Disable the garbage collector while definitions are built, and freeze the objects of the definitions afterwards.

    Only for processes of this code location. Definitions live as long as the process. With a thousand tables, repeated
    collections take a third of the time.
    """
    gc.set_threshold(*_OBJECTS_A_COLLECTION)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions for the warehouse of this process's environment.

    A run of `WarmRunLauncher` gets only the asset definitions of its own tables; a job without assets gets no asset
    definitions.
    """
    with pause_garbage_collector():
        return build_definitions(only=None if os.environ.get(DEMO_VARIABLE) else find_required_assets(os.environ))


def find_required_assets(environment: Mapping[str, str]) -> frozenset[dg.AssetKey] | None:
    """Return the assets that this process needs to define.

    Returns:
        The asset keys of the process's run or job; empty for a job that opens its tables itself. None for all assets,
        if the assets of the run are unknown or the process executes no run.
    """
    selected, job = run_assets(environment), environment.get(RUN_JOB_VARIABLE)
    if selected is None and job in jobs_without_assets():
        return frozenset()
    if selected is None and job == names.WAREHOUSE_HEALTH:
        return frozenset({WarehouseResource.from_environment(environment).names.warehouse_health_key()})
    return selected
