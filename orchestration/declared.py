"""What the policy file declares of a table's assets: owners, group, tags, how often writers commit, and the lineage into and out of the warehouse."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

import dagster as dg

from lsm_core.errors import InvalidOption
from orchestration import names
from orchestration.policies import Policies
from orchestration.quirks import early_features
from orchestration.table_card import TableCard

_READERS: Final = "readers"


def with_declarations(
    defs: dg.Definitions, cards: Sequence[TableCard], warehouse_path: str, policies: Policies
) -> dg.Definitions:
    """Return ``defs`` with what the policies declare of the tables' data and layouts; where they declare nothing, ``defs`` itself.

    Assets that ``downstream`` names become external ones that depend on the data, but for tables of the warehouse, which are there: a user's own
    definition in another code location takes their place in Dagster's lineage. Raises InvalidOption for a layout, which maintenance alone makes, and for
    lineage that runs in a circle.
    """
    declared = {card.name: policy for card in cards if (policy := policies.of(card.name)).declares}
    if not declared:
        return defs
    data = {names.data_key(warehouse_path, table): policy for table, policy in declared.items()}
    layouts = {names.layout_key(warehouse_path, table): policy for table, policy in declared.items()}
    tables = {names.data_key(warehouse_path, card.name) for card in cards}
    made = {names.layout_key(warehouse_path, card.name) for card in cards} | {
        names.warehouse_health_key(warehouse_path)
    }
    sources = {key: {asset_key(text) for text in policy.upstream} for key, policy in data.items()}
    readers: dict[dg.AssetKey, set[dg.AssetKey]] = {}
    for key, policy in data.items():
        for text in policy.downstream:
            if asset_key(text) in made:
                raise InvalidOption(
                    f"{policies.source}: downstream", text, "an asset that Dredge does not materialise itself"
                )
            (sources if asset_key(text) in tables else readers).setdefault(asset_key(text), set()).add(key)
    try:
        TopologicalSorter({key: found - {key} for key, found in (*sources.items(), *readers.items())}).prepare()
    except CycleError as error:
        circle = " -> ".join(key.to_user_string() for key in reversed(error.args[1]))
        raise InvalidOption(
            f"{policies.source}: lineage", circle, "assets none of which is made from itself"
        ) from error

    def told(spec: dg.AssetSpec) -> dg.AssetSpec:
        policy, made_from = data.get(spec.key) or layouts.get(spec.key), sources.get(spec.key, set()) - {spec.key}
        if policy is not None:
            spec = spec.replace_attributes(
                owners=list(policy.owners) or spec.owners,
                group_name=policy.group or spec.group_name,
                tags={**spec.tags, **policy.tags},
            )
            if policy.fresh_within_ms is not None and spec.key in data:
                window = datetime.timedelta(milliseconds=policy.fresh_within_ms)
                spec = spec.replace_attributes(freshness_policy=dg.FreshnessPolicy.time_window(fail_window=window))
        return spec.replace_attributes(deps=[*spec.deps, *sorted(made_from)]) if made_from else spec

    with early_features():
        mapped = defs.map_asset_specs(func=told)
    said = "Reads tables of the warehouse, as the policy file declares."
    external = [
        dg.AssetSpec(reader, deps=sorted(keys), description=said, group_name=_READERS)
        for reader, keys in readers.items()
    ]
    return dg.Definitions.merge(mapped, dg.Definitions(assets=external)) if external else mapped


def asset_key(text: str) -> dg.AssetKey:
    """Return the key that a policy writes as ``raw/orders_csv``."""
    return dg.AssetKey(text.split("/"))
