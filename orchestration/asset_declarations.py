"""Declarations of the policy file about a table's assets: owners, group, tags, freshness and lineage."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import allow_early_features
from dredge.platform_core.policies import Policies
from dredge.platform_core.table_card import TableCard
from lsm_core.errors import InvalidOption

_READERS: Final = "readers"
_REFERENCES: Final = "dagster/code_references"


def add_declarations(
    defs: dg.Definitions,
    cards: Sequence[TableCard],
    warehouse_names: names.WarehouseNames,
    policies: Policies,
    neighbours: Collection[str] = (),
) -> dg.Definitions:
    """Add the declarations of the policies to the assets of the tables.

    Assets under ``downstream`` become external assets that depend on the data asset. Tables of the warehouse are
    assets already, so they only get the dependency. If a second code location defines an asset with the same key, that
    definition replaces the external asset in Dagster's lineage.

    Args:
        defs: definitions without declarations.
        cards: descriptions of the tables of the warehouse.
        warehouse_names: names of the warehouse in Dagster.
        policies: policies in force.
        neighbours: first parts of the asset keys of other warehouses in the code location.

    Returns:
        The definitions with declarations; `defs` itself if the policies declare nothing.

    Raises:
        InvalidOption: ``downstream`` names a layout or `warehouse_health`, which only the platform materialises, or an
            asset of another warehouse; or the lineage has a cycle.
    """
    declared = {card.name: policy for card in cards if (policy := policies.of(card.name)).has_asset_values}
    if not declared:
        return defs
    data = {warehouse_names.data_key(table): policy for table, policy in declared.items()}
    layouts = {warehouse_names.layout_key(table): policy for table, policy in declared.items()}
    tables = {warehouse_names.data_key(card.name) for card in cards}
    own_assets = {warehouse_names.layout_key(card.name) for card in cards} | {warehouse_names.warehouse_health_key()}
    sources = {key: {asset_key(text) for text in policy.upstream} for key, policy in data.items()}
    readers: dict[dg.AssetKey, set[dg.AssetKey]] = {}
    for key, policy in data.items():
        for text in policy.downstream:
            if asset_key(text).path[0] in neighbours:
                accepted = (
                    "no asset of another PaimonWarehouse of this code location; write `upstream` into the policies of "
                    "that warehouse instead"
                )
                raise InvalidOption(f"{policies.source}: downstream", text, accepted)
            if asset_key(text) in own_assets:
                raise InvalidOption(
                    f"{policies.source}: downstream", text, "an asset that Dredge does not materialise itself"
                )
            (sources if asset_key(text) in tables else readers).setdefault(asset_key(text), set()).add(key)
    try:
        TopologicalSorter({key: upstream - {key} for key, upstream in (*sources.items(), *readers.items())}).prepare()
    except CycleError as error:
        cycle = " -> ".join(key.to_user_string() for key in reversed(error.args[1]))
        raise InvalidOption(f"{policies.source}: lineage", cycle, "a lineage without a cycle") from error

    def apply_policy(spec: dg.AssetSpec) -> dg.AssetSpec:
        policy, upstream_keys = data.get(spec.key) or layouts.get(spec.key), sources.get(spec.key, set()) - {spec.key}
        if policy is not None:
            spec = spec.replace_attributes(
                owners=list(policy.owners) or spec.owners,
                group_name=policy.group or spec.group_name,
                tags={**spec.tags, **policy.tags},
            )
            if policy.fresh_within_ms is not None and spec.key in data:
                window = datetime.timedelta(milliseconds=policy.fresh_within_ms)
                spec = spec.replace_attributes(freshness_policy=dg.FreshnessPolicy.time_window(fail_window=window))
        return spec.replace_attributes(deps=[*spec.deps, *sorted(upstream_keys)]) if upstream_keys else spec

    with allow_early_features():
        mapped_defs = defs.map_asset_specs(func=apply_policy)
    description = "Reads tables of the warehouse, as the policy file declares."
    external = [
        dg.AssetSpec(reader, deps=sorted(keys), description=description, group_name=_READERS)
        for reader, keys in readers.items()
    ]
    return dg.Definitions.merge(mapped_defs, dg.Definitions(assets=external)) if external else mapped_defs


def asset_key(text: str) -> dg.AssetKey:
    """Return the asset key that a policy file writes as ``raw/orders_csv``."""
    return dg.AssetKey(text.split("/"))


def policy_references(policies: Policies, table: str, policy_file: str) -> dict[str, dg.CodeReferencesMetadataValue]:
    """Return metadata that links a table's assets to the nearest entry of the policy file about the table.

    Dagster itself adds the ``defs.yaml`` of a component.

    Args:
        policies: policies in force.
        table: full name of the table.
        policy_file: path of the policy file, or "" without one.

    Returns:
        Nothing if no entry of the file is about the table.
    """
    entries = [(policies.lines.get(place, 0), label) for place, label, _ in policies.entries(table)]
    nearest = next(((line, label) for line, label in reversed(entries) if line), None)
    if not policy_file or nearest is None:
        return {}
    line, label = nearest
    path = str(Path(policy_file).absolute())
    with allow_early_features():
        reference = dg.LocalFileCodeReference(file_path=path, line_number=line, label=f"policy: {label}")
        return {_REFERENCES: dg.CodeReferencesMetadataValue(code_references=[reference])}
