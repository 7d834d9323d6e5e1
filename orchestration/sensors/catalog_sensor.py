"""Sensor `catalog`: it detects added, removed and changed tables and reloads the code location."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import dagster as dg

from dredge.orchestration.sensors.table_cache import load_table
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.policies import Policies, PolicySource
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.listing import remove_from_listing
from dredge.platform_core.resources.settings import URL_VARIABLE, Settings
from dredge.platform_core.resources.warehouse import WarehouseResource, describe_warehouse
from dredge.platform_core.table_card import TableCard
from lsm_core import Catalog
from lsm_core.errors import DredgeError

DESCRIPTION = (
    "Compares the tables of the warehouse with those of this code location. "
    "If DREDGE_DAGSTER_URL names the web server, the location is reloaded after a change; "
    "otherwise the tick names the location to reload by hand. "
    "Ticks also list names in the policy file that fit no table."
)


def catalog_sensor(
    cards: Sequence[TableCard],
    warehouse_names: names.WarehouseNames,
    policies: PolicySource,
    settings: Settings,
    declared: Policies,
    listing: Path | None = None,
) -> dg.SensorDefinition:
    """Return the sensor `catalog`, which compares the tables of the warehouse with the loaded definitions.

    Args:
        cards: descriptions of the tables in the loaded definitions.
        warehouse_names: names of the warehouse in Dagster.
        policies: source of the current policies.
        settings: intervals of the sensors.
        declared: policies that the assets were declared with, including their error.
        listing: stored listing of the warehouse; changed tables are removed from it.
    """

    @dg.sensor(
        name=warehouse_names.definition(names.CATALOG_SENSOR),
        minimum_interval_seconds=settings.sensor_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    @partial(rename_resources, warehouse_names=warehouse_names)
    @resolve_annotations
    def catalog(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SkipReason:
        replay = warehouse.replay_text()
        if replay is not None:
            return dg.SkipReason(replay)
        try:
            left_out: list[str] = []
            existing = describe_warehouse(warehouse, left_out, partial(_read_card, warehouse))
        except DredgeError as error:
            return dg.SkipReason(f"the warehouse cannot be listed: {error}")
        current = policies.current()
        left_out += [trouble for trouble in (current.trouble, declared.trouble) if trouble]
        left_out += current.unmatched([card.name for card in existing])
        changes = find_differences(cards, existing)
        lines = [f"{name}: {change}" for name, change in changes.items()]
        lines += [
            f"{card.name}: the values of {current.source or 'the policy file'} for its assets changed"
            for card in existing
            if current.of(card.name).asset_values != declared.of(card.name).asset_values
        ]
        if not lines:
            return dg.SkipReason("\n".join([f"{len(cards)} tables, as loaded", *left_out]))
        for line in lines:
            context.log.info(line)
        remove_from_listing(listing, changes)
        return dg.SkipReason("\n".join([*lines, _reload(context, settings.dagster_url), *left_out]))

    return catalog


def _read_card(warehouse: WarehouseResource, catalog: Catalog, name: str) -> TableCard:
    """Return the card of a table (name, keys, options), from the cache if the table did not change."""
    try:
        return load_table(warehouse, name, catalog).card
    except (DredgeError, OSError, ValueError) as error:
        return TableCard(name=name, refusal=str(error), unreadable=True)


def find_differences(known: Sequence[TableCard], present: Sequence[TableCard]) -> dict[str, str]:
    """Return, by table, "new", "dropped" or "its schema or options changed" for tables that differ from ``known``."""
    before, after = {card.name: card for card in known}, {card.name: card for card in present}
    changes = {name: "new" for name in after if name not in before}
    changes |= {name: "dropped" for name in before if name not in after}
    return changes | {
        name: "its schema or options changed" for name in after if name in before and before[name] != after[name]
    }


def _reload(context: dg.SensorEvaluationContext, address: str) -> str:
    origin = context.code_location_origin
    location = origin.location_name if origin is not None else "dredge"
    if not address:
        return f"reload the code location '{location}' to see them (Deployment > Code locations)"
    from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError, ReloadRepositoryLocationStatus

    try:
        scheme, _, host = address.partition("://")  # Dagster's client takes host, port and path as one text
        client = DagsterGraphQLClient(host, use_https=scheme == "https")
        answer = client.reload_repository_location(location)
    except (DagsterGraphQLClientError, OSError, ValueError) as error:
        cause = " ".join(str(error.__cause__ or error).split())[:300]
        return f"the code location '{location}' could not be reloaded through {URL_VARIABLE}={address}: {cause}"
    if answer.status is ReloadRepositoryLocationStatus.SUCCESS:
        return f"the code location '{location}' was reloaded"
    return f"the code location '{location}' could not be reloaded: {answer.message}"
