"""Check `level0_backlog`: level-0 files in the worst bucket. Sensors report it without a run; people can execute it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import dagster as dg

from dredge.platform_core import names
from dredge.platform_core.health import PartitionHealth
from dredge.platform_core.policies import Policy
from dredge.platform_core.policies.decisions import Backlog, backlog_of
from lsm_core.options import TableOptions

LEVEL0_FILES: Final = "level-0 files (worst bucket)"
SMALL_FILES: Final = "small files (worst partition)"
THRESHOLD: Final = "threshold"
"""Metadata keys of an evaluation; for append tables, small files are counted."""


def hides_level0(options: TableOptions) -> bool:
    """Return whether readers of the table do not see level 0 before it is compacted."""
    return options.batch_scan_skips_level0


def backlog_evaluation(
    layout: dg.AssetKey, states: Sequence[PartitionHealth], policy: Policy, *, hidden: bool = False
) -> dg.AssetCheckEvaluation:
    """Return the evaluation of the check `level0_backlog` of a table, which a sensor can report without a run.

    The check warns from ``level0_warn`` on and fails from ``level0_critical`` and ``level0_emergency`` on. There is one
    evaluation for the whole table, because Dagster fails on a second evaluation without a run for a partition.

    Args:
        layout: key of the table's layout asset.
        states: health of the partitions.
        policy: policy of the table.
        hidden: whether readers do not see level 0, so that a backlog is missing data and not only slow reads.
    """
    level, files, place = backlog_of(states, policy)
    name = {Backlog.CRITICAL: "level0_critical", Backlog.EMERGENCY: "level0_emergency"}.get(level, "level0_warn")
    threshold = {
        "level0_critical": policy.level0_critical,
        "level0_emergency": max(policy.level0_emergency, policy.level0_critical),
    }.get(name, policy.level0_warn)
    sign = "<" if level is Backlog.OK else ">="
    paused = f"; maintenance is paused: {policy.paused}" if policy.paused else ""
    visibility = "; invisible to readers" if hidden and files else ""
    return dg.AssetCheckEvaluation(
        asset_key=layout,
        check_name=names.BACKLOG_CHECK,
        passed=level is Backlog.OK,
        severity=dg.AssetCheckSeverity.WARN if level in {Backlog.OK, Backlog.WARN} else dg.AssetCheckSeverity.ERROR,
        description=(
            f"{level.value}: {files} level-0 files {sign} {threshold}{f' in {place}' if place else ''}"
            f"{paused}{visibility}"
        ),
        metadata={
            LEVEL0_FILES: dg.MetadataValue.int(files),
            THRESHOLD: dg.MetadataValue.int(threshold),
            "threshold comes from": dg.MetadataValue.text(policy.origin(name)),
        },
    )
