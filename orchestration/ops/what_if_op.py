"""Op of the job `what_if`: it replays a table's commits under given policies and shows a comparison and a chart."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import dagster as dg
from pydantic import Field

from dredge.orchestration.ops.common import job_op
from dredge.platform_core.metadata import plain_cell
from dredge.platform_core.policies.what_if import simulated_policy
from dredge.platform_core.policies.what_if_picture import draw_runs
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core.errors import DredgeError
from lsm_core.maintenance import simulate
from lsm_core.maintenance.action import size_text

_SIZES: Final = frozenset({"bytes_rewritten", "worst_week_rewritten"})
_TITLES: Final = {
    "write_amplification": "write amplification",
    "bytes_rewritten": "rewritten",
    "worst_week_rewritten": "rewritten, worst week",
    "compactions": "compactions",
    "mean_runs": "runs, mean",
    "worst_week_runs": "runs, worst week",
    "p95_runs": "runs, p95",
    "level0_peak": "level 0, most",
    "runs_at_end": "runs at end",
    "cost_seconds": "seconds",
}


class WhatIfConfig(dg.Config):
    """Configuration of the job `what_if`."""

    table: str = Field(description="full name of the table, like 'shop.orders'")
    policies: dict[str, str] = Field(
        default={},
        description="policies as YAML, by name: table options, look_every and idle_after, or a whole policy file",
    )
    first_snapshot: int | None = Field(default=None, description="first snapshot of the history (default: the oldest)")
    last_snapshot: int | None = Field(default=None, description="last snapshot of the history (default: the newest)")


@job_op(
    "simulate",
    "Replay the table's commits under each policy with the code that picks compactions. The table is not changed.",
)
def what_if_op(context: dg.OpExecutionContext, config: WhatIfConfig, warehouse: WarehouseResource) -> None:
    """Simulate the given policies and show the comparison as metadata of the op's output.

    Raises:
        dg.Failure: a policy or the table is invalid; one line, no retry.
    """
    try:
        policies = [simulated_policy(text, name, config.table) for name, text in config.policies.items()]
        rows = simulate(
            warehouse.store(config.table), policies, (config.first_snapshot, config.last_snapshot)
        ).to_pylist()  # a row a policy
    except DredgeError as error:
        raise dg.Failure(f"{config.table}: {type(error).__name__}: {error}", allow_retries=False) from error
    for row in rows:
        figures = ", ".join(f"{title} {_cell(name, row[name])}" for name, title in _TITLES.items())
        context.log.info(f"{config.table}: {row['policy']}: {figures}")
    context.add_output_metadata(what_if_metadata(config.table, rows))


def what_if_metadata(table: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, dg.MetadataValue]:
    """Return metadata: the comparison of the policies, the chart of sorted runs over time, and the replayed commits.

    Args:
        table: full name of the table.
        rows: result of the simulation, a mapping per policy.
    """
    lines = [f"| policy | {' | '.join(_TITLES.values())} |", f"|---|{'--:|' * len(_TITLES)}"]
    for row in rows:
        cells = [plain_cell(str(row["policy"])), *(_cell(name, row[name]) for name in _TITLES)]
        lines.append(f"| {' | '.join(cells)} |")
    return {
        "table": dg.MetadataValue.text(table),
        "replayed": dg.MetadataValue.text(f"{rows[0]['commits']:,} commits, {size_text(rows[0]['bytes_written'])}"),
        "policies": dg.MetadataValue.md("\n".join(lines)),
        "runs over time": dg.MetadataValue.md(runs_picture(rows)),
    }


def runs_picture(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown with a chart of the mean sorted runs of a bucket over time, one line per policy.

    The chart is an embedded image that loads nothing.

    Args:
        rows: result of the simulation, a mapping per policy; `runs_over_time` has the values of the chart.
    """
    image = base64.b64encode(draw_runs(rows).encode()).decode()
    caption = "Mean sorted runs per bucket, from the first commit to the last."
    return f"![sorted runs over time](data:image/svg+xml;base64,{image})\n\n{caption}"


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return size_text(int(value)) if name in _SIZES else f"{value:,}"
