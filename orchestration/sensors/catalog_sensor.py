"""The catalog: the sensor that notices tables that came, went or changed since the code location loaded, and has it reloaded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import dagster as dg

from lsm_core import Catalog
from lsm_core.errors import DredgeError
from orchestration import names
from orchestration.policies import Policies, PolicySource
from orchestration.resources.listing import forget
from orchestration.resources.settings import URL_VARIABLE, Settings
from orchestration.resources.warehouse import WarehouseResource, describe_warehouse
from orchestration.sensors.looks import look_at
from orchestration.table_card import TableCard

DESCRIPTION = (
    "Compares the warehouse with what this code location knows. Where DREDGE_DAGSTER_URL names the web server, changed tables make "
    "it reload the location; else the tick says what to reload. Names in the policy file that fit no table are told, too."
)


def catalog_sensor(
    cards: Sequence[TableCard],
    policies: PolicySource,
    settings: Settings,
    declared: Policies,
    listing: Path | None = None,
) -> dg.SensorDefinition:
    """Return the sensor over the whole warehouse; ``declared``: the policies that the assets were declared by, with the trouble that this met.

    Tables that changed go from the warehouse's stored ``listing``.
    """

    @dg.sensor(
        name=names.CATALOG_SENSOR,
        minimum_interval_seconds=settings.sensor_seconds,
        description=DESCRIPTION,
        default_status=dg.DefaultSensorStatus.RUNNING if settings.sensors_on else dg.DefaultSensorStatus.STOPPED,
    )
    def catalog(context: dg.SensorEvaluationContext, warehouse: WarehouseResource) -> dg.SkipReason:
        replaying = warehouse.replaying()
        if replaying is not None:
            return dg.SkipReason(replaying)
        try:
            left_out: list[str] = []
            present = describe_warehouse(warehouse, left_out, partial(_card, warehouse))
        except DredgeError as error:
            return dg.SkipReason(f"the warehouse cannot be listed: {error}")
        now = policies.current()
        left_out += [trouble for trouble in (now.trouble, declared.trouble) if trouble]
        left_out += now.unmatched([card.name for card in present])
        changes = differences(cards, present)
        lines = [f"{name}: {what}" for name, what in changes.items()]
        lines += [
            f"{card.name}: what {now.source or 'the policy file'} declares of its assets changed"
            for card in present
            if now.of(card.name).declared != declared.of(card.name).declared
        ]
        if not lines:
            return dg.SkipReason("\n".join([f"{len(cards)} tables, as loaded", *left_out]))
        for line in lines:
            context.log.info(line)
        forget(listing, changes)
        return dg.SkipReason("\n".join([*lines, _reload(context, settings.dagster_url), *left_out]))

    return catalog


def _card(warehouse: WarehouseResource, catalog: Catalog, name: str) -> TableCard:
    """As `describe_table`, from memory when the table did not move."""
    try:
        return look_at(warehouse, name, catalog).card
    except (DredgeError, OSError, ValueError) as error:
        return TableCard(name=name, refusal=str(error), unreadable=True)


def differences(known: Sequence[TableCard], present: Sequence[TableCard]) -> dict[str, str]:
    """Return, by table, what a reload would show otherwise."""
    before, now = {card.name: card for card in known}, {card.name: card for card in present}
    found = {name: "new" for name in now if name not in before}
    found |= {name: "gone" for name in before if name not in now}
    return found | {
        name: "its schema or options changed" for name in now if name in before and before[name] != now[name]
    }


def _reload(context: dg.SensorEvaluationContext, address: str) -> str:
    origin = context.code_location_origin
    location = origin.location_name if origin is not None else "dredge"
    if not address:
        return f"reload the code location '{location}' to see them (Deployment > Code locations)"
    from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError, ReloadRepositoryLocationStatus

    try:
        scheme, _, place = address.partition("://")  # place: host, port and path, as Dagster's client joins them
        client = DagsterGraphQLClient(place, use_https=scheme == "https")
        answer = client.reload_repository_location(location)
    except (DagsterGraphQLClientError, OSError, ValueError) as error:
        cause = " ".join(str(error.__cause__ or error).split())[:300]
        return f"the code location '{location}' could not be reloaded through {URL_VARIABLE}={address}: {cause}"
    if answer.status is ReloadRepositoryLocationStatus.SUCCESS:
        return f"the code location '{location}' was reloaded"
    return f"the code location '{location}' could not be reloaded: {answer.message}"
