"""`dredge simulate`: cost and effect of other policies, replayed from the table's own commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dredge.platform_core.policies.what_if import simulated_policy
from dredge.platform_core.policies.what_if_picture import draw_runs
from lsm_core.cli.render import print_json, print_table, say
from lsm_core.cli.verbs.common import AsJson, ClockOption, TableArgument, Warehouse, add_catalog_options, open_table
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.maintenance.action import size_text

_BARS: Final = "▁▂▃▄▅▆▇█"


@add_catalog_options
def simulate(
    warehouse: Warehouse,
    table: TableArgument,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Policy file, or YAML of table options, look_every and idle_after; repeatable.",
        ),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            "--history", metavar="A:B", help="Range of snapshots to replay (default: all).", show_default=False
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture", metavar="FILE", help="Also draw the policies into this SVG file.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    clock: ClockOption = None,
) -> None:
    """Replay a table's own commits under other policies and compare rewrites and sorted runs; nothing is changed."""
    opened = open_table(warehouse, table, clock)
    policies = [simulated_policy(_text_of(file), file.stem, opened.name) for file in policy or ()]
    result_table = opened.simulate(policies, _span(history))
    rows = result_table.to_pylist()  # one row per policy
    if picture is not None:
        _write_picture(picture, draw_runs(rows))
    if as_json:
        print_json(rows)
        return
    first = rows[0]
    say(f"{opened.name}: replayed {first['commits']:,} commits, {size_text(first['bytes_written'])} in total")
    print_replay(rows)


def print_replay(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the comparison of the simulated policies, one row per policy.

    Args:
        rows: result of the simulation, a mapping per policy.
    """
    columns = [
        "policy",
        "write amplification",
        "rewritten",
        "rewritten, worst week",
        "compactions",
        "runs, mean",
        "runs, worst week",
        "runs, p95",
        "level 0, most",
        "runs at end",
        "seconds",
        "runs over time",
    ]
    highest = max(max(row["runs_over_time"]) for row in rows)
    print_table(
        "",
        columns,
        [
            [
                row["policy"],
                row["write_amplification"],
                size_text(row["bytes_rewritten"]),
                size_text(row["worst_week_rewritten"]),
                row["compactions"],
                row["mean_runs"],
                row["worst_week_runs"],
                row["p95_runs"],
                row["level0_peak"],
                row["runs_at_end"],
                row["cost_seconds"],
                sparkline(row["runs_over_time"], highest),
            ]
            for row in rows
        ],
    )


def _write_picture(path: Path, picture: str) -> None:
    try:
        path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise DredgeError(f"--picture {path} cannot be written: {error.strerror or error}") from error


def sparkline(values: list[float], highest: float) -> str:
    """Return one character per value: a bar whose height is the value's share of `highest`."""
    top = len(_BARS) - 1
    return "".join(_BARS[min(top, max(0, round(value / highest * top)))] if highest else _BARS[0] for value in values)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidOption("--policy", str(file), f"a readable YAML file ({why})") from error


def _span(text: str | None) -> tuple[int | None, int | None] | None:
    if text is None:
        return None
    first, sign, last = text.partition(":")
    if not sign or not all(part.strip().isdecimal() or not part.strip() for part in (first, last)):
        raise InvalidOption("--history", text, "two snapshot ids as A:B; either may be omitted")
    return (int(first) if first.strip() else None, int(last) if last.strip() else None)
