"""tree_invariants: blocking: no level above 0 holds files that share a key, and every file's ranges make sense."""

from __future__ import annotations

import dagster as dg

from checks.definition import checked_table, declare, declined, failed
from lsm_core.format.partition_path import partition_text
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups, tree_files
from lsm_core.tree import find_violations
from orchestration import names
from orchestration.partitions import partition_of
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

DESCRIPTION = (
    "Files of one level above 0 never overlap in key range, and each file's key and sequence ranges make sense."
)
_SHOWN = 20


def tree_check(card: TableCard, layout: dg.AssetKey) -> dg.AssetChecksDefinition:
    """Return the blocking check over ``card``'s layout asset."""
    return declare(card, layout, names.TREE_CHECK, DESCRIPTION, _check, blocking=True)


def _check(context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource) -> dg.AssetCheckResult:
    card = checked_table(context, warehouse)
    if card.refusal is not None:
        return declined(card)
    buckets, files, broken = inspect_tree(warehouse.store(card.name), partition_of(context))
    if broken:
        told = "\n".join(f"- {line}" for line in broken[:_SHOWN])
        return failed(f"{len(broken)} broken invariants: {broken[0]}", violations=dg.MetadataValue.md(told))
    return dg.AssetCheckResult(
        passed=True,
        description=f"{files} files in {buckets} buckets lie as they should",
        metadata={"files": files, "buckets": buckets},
    )


def inspect_tree(store: TableStore, partition: str | None) -> tuple[int, int, list[str]]:
    """Return how many buckets and files of the newest snapshot were looked at, and every broken invariant in words."""
    latest = snapshots.latest(store)
    if latest is None:
        return 0, 0, []
    buckets = files = 0
    broken: list[str] = []
    for binary, bucket, _, entries in bucket_groups(manifests.live_entries(store, latest)):
        text = partition_text(store.schema, binary, store.options)
        if partition is not None and text != partition:
            continue
        buckets, files = buckets + 1, files + entries.num_rows
        if store.schema.primary_keys:
            where = f"{text}/bucket-{bucket}" if text else f"bucket-{bucket}"
            broken += [f"{where}: {violation.message}" for violation in find_violations(tree_files(store, entries))]
    return buckets, files, broken
