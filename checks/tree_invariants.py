"""Blocking check `tree_is_valid`: files of a level above 0 share no keys, and every file's ranges are consistent."""

from __future__ import annotations

import dagster as dg

from checks.definition import failed_result
from lsm_core.maintenance.checks.metadata_validity import inspect_tree
from lsm_core.metadata.store import TableStore
from platform_core.metadata import plain_cell

_SHOWN = 20


def tree_result(store: TableStore, partition: str | None) -> dg.AssetCheckResult:
    """Return the result for the newest snapshot, in one partition or (None) in all."""
    buckets, files, broken = inspect_tree(store, partition)
    if broken:
        listed = "\n".join(f"- {plain_cell(str(line))}" for line in broken[:_SHOWN])
        return failed_result(f"{len(broken)} broken invariants: {broken[0]}", violations=dg.MetadataValue.md(listed))
    return dg.AssetCheckResult(
        passed=True,
        description=f"{files} files in {buckets} buckets form a valid tree",
        metadata={"files": files, "buckets": buckets},
    )
