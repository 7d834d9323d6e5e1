"""What people read in the Dagster UI: plotted numbers, level diagrams and tables, built in one place and one style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import dagster as dg
import yaml

from lsm_core.cli.render import visible
from lsm_core.maintenance import BucketHealth, Declined, MaintenancePlan
from lsm_core.maintenance.action import PlanEstimate, bucket_name, size_text
from lsm_core.maintenance.cost import Calibration
from lsm_core.maintenance.ranking import score_of
from lsm_core.maintenance.score import Part
from lsm_core.options import misnamed, not_acted_on
from orchestration import names
from orchestration.health import TableHealth
from orchestration.quirks import WHOLE_LOCATION
from orchestration.table_card import TableCard
from orchestration.tree_picture import changed_buckets

Metadata: TypeAlias = Mapping[str, dg.MetadataValue]

_BAR = 24
_SHOWN_BUCKETS = 16
_SHOWN_ITEMS = 40
_WORST_BUCKETS = 20


def table_metadata(card: TableCard) -> dict[str, dg.MetadataValue]:
    """Return what is known of a table before anybody looks at its snapshots: columns, keys, options, where it lies."""
    columns = [
        dg.TableColumn(
            column.name,
            column.type,
            description=column.description or None,
            constraints=dg.TableColumnConstraints(
                nullable=column.nullable, other=["primary key"] if column.name in card.primary_keys else []
            ),
        )
        for column in card.columns
    ]
    told: dict[str, dg.MetadataValue] = {
        "dagster/table_name": dg.MetadataValue.text(card.name),
        "primary keys": dg.MetadataValue.text(", ".join(card.primary_keys) or "none: append only"),
        "partition keys": dg.MetadataValue.text(", ".join(card.partition_keys) or "none"),
        "options": dg.MetadataValue.md(options_table(card.options)),
    }
    idle = not_acted_on(card.options)
    if idle:
        told["options without effect"] = dg.MetadataValue.text(f"kept but not acted on here: {', '.join(idle)}")
    wrong = misnamed(card.options)
    if wrong:
        lines = (f"{name}: {advice}" for name, advice in wrong.items())
        told["options with another right name"] = dg.MetadataValue.text("; ".join(lines))
    if card.root:
        told["location"] = dg.MetadataValue.path(card.root)
    if columns:
        told["dagster/column_schema"] = dg.MetadataValue.table_schema(dg.TableSchema(columns=columns))
    if card.refusal:
        told["maintenance"] = dg.MetadataValue.text(f"declined: {card.refusal}")
    return told


def options_table(options: Mapping[str, str]) -> str:
    """Return a table's options as Markdown."""
    if not options:
        return "none set: Paimon's defaults hold"
    return "\n".join(
        [
            "| option | value |",
            "|---|---|",
            *(f"| {plain_cell(key)} | {plain_cell(options[key])} |" for key in sorted(options)),
        ]
    )


def health_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the numbers of a table's or partition's health; every number becomes a plot over time."""
    buckets = health.buckets
    level0_ages = [health.measured_ms - b.oldest_level0_ms for b in buckets if b.oldest_level0_ms is not None]
    rows, files = sum(bucket.rows for bucket in buckets), sum(bucket.files for bucket in buckets)
    told: dict[str, dg.MetadataValue] = {
        "sorted runs (worst bucket)": dg.MetadataValue.int(max((bucket.sorted_runs for bucket in buckets), default=0)),
        "level-0 files (worst bucket)": dg.MetadataValue.int(
            max((bucket.level0_files for bucket in buckets), default=0)
        ),
        "files": dg.MetadataValue.int(files),
        "size": dg.MetadataValue.text(size_text(sum(bucket.total_bytes for bucket in buckets))),
        "bytes": dg.MetadataValue.int(sum(bucket.total_bytes for bucket in buckets)),
        "rows (unmerged)": dg.MetadataValue.int(rows),
        "deletes (unmerged)": dg.MetadataValue.int(sum(bucket.deletes for bucket in buckets)),
        "small files": dg.MetadataValue.int(sum(bucket.small_files for bucket in buckets)),
        "rows per run": dg.MetadataValue.int(rows // max(sum(bucket.sorted_runs for bucket in buckets), 1)),
        "delete ratio": dg.MetadataValue.float(
            round(sum(bucket.deletes for bucket in buckets) / rows, 4) if rows else 0.0
        ),
        "read amplification": dg.MetadataValue.float(_worst([bucket.read_amplification for bucket in buckets])),
        "space amplification": dg.MetadataValue.float(_worst([bucket.space_amplification for bucket in buckets])),
        "overlap: most runs over a key": dg.MetadataValue.int(max((b.overlap_max for b in buckets), default=0)),
        "overlap: mean runs over a row's key": dg.MetadataValue.float(
            round(sum(b.overlap_mean * b.rows for b in buckets) / rows, 3) if rows else 0.0
        ),
        "oldest level-0 file (hours)": dg.MetadataValue.float(_hours(level0_ages)),
        "read-optimised view lags (hours)": dg.MetadataValue.float(_hours([bucket.ro_lag_ms for bucket in buckets])),
        "compactions would read": dg.MetadataValue.text(
            f"{size_text(sum(bucket.cost_minor for bucket in buckets))} by the table's rules now, "
            f"{size_text(sum(bucket.cost_full for bucket in buckets))} a full one"
        ),
        "due compaction reads (bytes)": dg.MetadataValue.int(sum(bucket.cost_minor for bucket in buckets)),
        "full compaction reads (bytes)": dg.MetadataValue.int(sum(bucket.cost_full for bucket in buckets)),
        "score, 0 is healthy": dg.MetadataValue.float(score_of(buckets)[0]),
        "score: made of": dg.MetadataValue.md(score_table(buckets)),
        "buckets": dg.MetadataValue.md(bucket_table(buckets)),
    }
    compacted = [bucket.last_compaction_ms for bucket in buckets if bucket.last_compaction_ms]
    if compacted:
        told["last compaction"] = dg.MetadataValue.timestamp(max(compacted) / 1000)
    if health.snapshot is not None:
        told["snapshot"] = dg.MetadataValue.int(health.snapshot)
    return told


_ALWAYS_PLOTTED = frozenset(
    {
        "sorted runs (worst bucket)",
        "level-0 files (worst bucket)",
        "files",
        "size",
        "bytes",
        "rows per run",
        "read amplification",
        "score, 0 is healthy",
        "snapshot",
    }
)


def plotted_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the numbers of `health_metadata` by which a layout is followed, for reports that all is well, of which there is one a commit: Dagster keeps 150 bytes a number."""
    return {name: value for name, value in health_metadata(health).items() if name in _ALWAYS_PLOTTED}


def data_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return what a data asset tells of a commit: rows as stored, size and files; how they lie is told of the layout."""
    rows, files = sum(bucket.rows for bucket in health.buckets), sum(bucket.files for bucket in health.buckets)
    told: dict[str, dg.MetadataValue] = {
        "stored rows": dg.MetadataValue.int(rows),
        "size": dg.MetadataValue.text(size_text(sum(bucket.total_bytes for bucket in health.buckets))),
        "files": dg.MetadataValue.int(files),
    }
    if health.data_version is not None:
        told["snapshot"] = dg.MetadataValue.int(health.data_version)
    return told


def cost_metadata(
    predicted: PlanEstimate, numbers: Mapping[str, Any], calibration: Calibration | None = None
) -> dict[str, dg.MetadataValue]:
    """Return what the plan predicted beside what its application measured: a sentence, and the numbers that plot side by side.

    ``calibration``: what the table's earlier runs took of their forecasts, by which the plan's seconds are multiplied.
    """
    measured = {name: numbers[name] for name in ("bytes_in", "bytes_out", "seconds") if name in numbers}
    said = {
        "bytes_in": (size_text(predicted.bytes_in), "read"),
        "bytes_out": (f"at most {size_text(predicted.bytes_out)}", "written"),
        "seconds": (f"{predicted.seconds:.1f} s on one core", "taken"),
    }
    parts = [
        f"{said[name][0]} predicted, {f'{value:.1f} s' if name == 'seconds' else size_text(int(value))} {said[name][1]}"
        for name, value in measured.items()
    ]
    if not parts:
        return {}
    known = Calibration() if calibration is None else calibration
    told: dict[str, dg.MetadataValue] = {
        "prediction and measurement": dg.MetadataValue.text("; ".join(parts)),
        "predicted bytes in": dg.MetadataValue.int(predicted.bytes_in),
        "predicted_seconds": dg.MetadataValue.float(round(known.predicted_seconds(predicted.seconds), 3)),
    }
    if "seconds" in measured:
        told["measured_seconds"] = dg.MetadataValue.float(float(measured["seconds"]))
    if calibration is not None:
        told["cost model"] = dg.MetadataValue.text(calibration.text())
    return told


def score_table(buckets: Sequence[BucketHealth]) -> str:
    """Return one Markdown row for each part of the score, of the bucket in which it makes most points."""
    worst: dict[str, tuple[float, Part, BucketHealth]] = {}
    for bucket in buckets:
        for part in bucket.parts:
            points = part.points(bucket.size_share)
            if part.name not in worst or points > worst[part.name][0]:
                worst[part.name] = (points, part, bucket)
    if not worst:
        return "healthy: no sign of anything"
    rows = [
        f"| {part.name} | {points:g} | {part.weight:g} | {plain_cell(bucket_name(bucket.partition_text, bucket.bucket))} | {plain_cell(part.text)} |"
        for points, part, bucket in sorted(worst.values(), key=lambda one: (-one[0], one[1].name))
    ]
    return "\n".join(["| part | points | at most | bucket | why |", "|---|--:|--:|---|---|", *rows])


def bucket_table(buckets: Sequence[BucketHealth]) -> str:
    """Return one Markdown row a bucket, the worst first."""
    if not buckets:
        return "no bucket holds a file"
    worst = sorted(buckets, key=lambda item: (-item.sorted_runs, -item.files, item.partition_text, item.bucket))
    lines = [
        "| bucket | sorted runs | level-0 files | files | size | rows | deletes | overlap, most | overlap, mean |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for bucket in worst[:_WORST_BUCKETS]:
        name = f"{bucket.partition_text}/{bucket.bucket}" if bucket.partition_text else str(bucket.bucket)
        lines.append(
            f"| {plain_cell(name)} | {bucket.sorted_runs} | {bucket.level0_files} | {bucket.files} | {size_text(bucket.total_bytes)} "
            f"| {bucket.rows:,} | {bucket.deletes:,} | {bucket.overlap_max} | {bucket.overlap_mean:g} |"
        )
    return "\n".join([*lines, *_more(len(worst), _WORST_BUCKETS, "buckets")])


def level_diagram(before: TableHealth, after: TableHealth) -> str:
    """Return the levels of every bucket that changed between two snapshots, drawn with bars on one scale."""
    changed = changed_buckets(before, after)
    if not changed:
        return "the levels did not change"
    largest = max(size for state in (before, after) for item in state.buckets for size in item.bytes_per_level.values())
    lines = [f"snapshot {before.snapshot} -> {after.snapshot}", "```"]
    for bucket, found in changed[:_SHOWN_BUCKETS]:
        name = bucket_name(bucket.partition_text, bucket.bucket)
        lines.append(f"{name}: {bucket.sorted_runs} -> {found.sorted_runs if found else 0} sorted runs")
        for title, state in (("before", bucket), ("after", found)):
            if state is None:
                continue
            for level, size in state.bytes_per_level.items():
                bar = "#" * max(1, round(size / max(largest, 1) * _BAR)) if size else ""
                files = f"{state.level0_files} files" if level == 0 else "1 run"
                lines.append(f"  {title:<6} L{level} {bar:<{_BAR}} {size_text(size):>8}  {files}")
    return "\n".join([*lines, "```", *_more(len(changed), _SHOWN_BUCKETS, "changed buckets")])


def plan_metadata(plan: MaintenancePlan) -> dict[str, dg.MetadataValue]:
    """Return a plan for people: what it does to what and why, and what it leaves alone."""
    told: dict[str, dg.MetadataValue] = {
        "action": dg.MetadataValue.text(plan.action),
        "plan": dg.MetadataValue.text(plan.hash),
        "units": dg.MetadataValue.int(len(plan.items)),
        "bytes to rewrite": dg.MetadataValue.int(plan.estimate.bytes_in),
        "items": dg.MetadataValue.md(items_table(plan)),
        "declined": dg.MetadataValue.md(declined_table(plan.declined)),
    }
    if plan.base_snapshot is not None:
        told["base snapshot"] = dg.MetadataValue.int(plan.base_snapshot)
    return told


def items_table(plan: MaintenancePlan) -> str:
    """Return a Markdown table for each kind of item in the plan, with the columns that the item itself names."""
    tables = []
    for kind in dict.fromkeys(type(item) for item in plan.items):
        items = plan.items_of(kind)
        rows = [f"| {' | '.join(plain_cell(str(cell)) for cell in item.cells())} |" for item in items[:_SHOWN_ITEMS]]
        head = [f"{kind.title}:\n", f"| {' | '.join(kind.columns)} |", f"|{'---|' * len(kind.columns)}"]
        tables.append("\n".join([*head, *rows, *_more(len(items), _SHOWN_ITEMS, "items")]))
    return "\n\n".join(tables) or "nothing to do"


def declined_table(declined: Sequence[Declined]) -> str:
    """Return one Markdown row for everything that is left alone."""
    if not declined:
        return "nothing was declined"
    lines = ["| what | why | |", "|---|---|---|"]
    lines += [
        f"| {plain_cell(item.subject)} | {plain_cell(item.text)} | {plain_cell(item.reason)} |"
        for item in declined[:_SHOWN_ITEMS]
    ]
    return "\n".join([*lines, *_more(len(declined), _SHOWN_ITEMS, "lines")])


def number_metadata(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, dg.MetadataValue]:
    """Return a report's numbers (`Report.numbers`) under their own names: integers and floats plot, everything else is text.

    ``rows_dropped`` of ``{"superseded": 3}`` becomes "rows dropped": "3 superseded"; mappings within mappings become tables.
    """
    told: dict[str, dg.MetadataValue] = {}
    for key, value in numbers.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, bool):
            told[name] = dg.MetadataValue.bool(value)
        elif isinstance(value, int):
            told[name] = dg.MetadataValue.int(value)
        elif isinstance(value, float):
            told[name] = dg.MetadataValue.float(round(value, 3))
        elif isinstance(value, str) and value:
            told[name] = dg.MetadataValue.text(value)
        elif isinstance(value, Mapping):
            plain = [_counted(item, key) for key, item in value.items() if item and not isinstance(item, Mapping)]
            told[name] = dg.MetadataValue.text(", ".join(plain) or "none")
            for inner, table in value.items():
                if isinstance(table, Mapping) and table:
                    rows = [
                        f"| {plain_cell(str(key))} | {plain_cell(str(item))} |" for key, item in sorted(table.items())
                    ]
                    lines = ["| | |", "|---|---|", *rows[:_SHOWN_ITEMS], *_more(len(rows), _SHOWN_ITEMS, "rows")]
                    told[f"{prefix}{inner.replace('_', ' ')}"] = dg.MetadataValue.md("\n".join(lines))
        elif isinstance(value, Sequence) and value and not isinstance(value, str):
            more = f" and {len(value) - _SHOWN_ITEMS} more" if len(value) > _SHOWN_ITEMS else ""
            told[name] = dg.MetadataValue.text(", ".join(map(str, value[:_SHOWN_ITEMS])) + more)
    return told


def _counted(value: object, name: str) -> str:
    """``250 keys checked``; a text that is a sentence says enough without its name."""
    if isinstance(value, str) and " " in value:
        return value
    return (
        f"{value:,} {name.replace('_', ' ')}" if isinstance(value, int | float) else f"{value} {name.replace('_', ' ')}"
    )


def _worst(values: Sequence[float]) -> float:
    return round(float(max(values, default=0.0)), 3)


def _hours(spans_ms: Sequence[int]) -> float:
    return round(max(spans_ms, default=0) / 3_600_000, 2)


def launch_link(run: dg.DagsterRun, job: str, config: Mapping[str, Any]) -> str:
    """Return where the web server opens the launchpad of ``job`` of the run's own code location, filled in with ``config`` and, where that names a table, its tag.

    With the tag the new run waits its turn behind others of the table.
    """
    origin = run.remote_job_origin
    place = "dredge"  # as workspace.yaml calls it: a run without a server has no origin
    if origin is not None:
        repository = origin.repository_origin
        location = quote(repository.code_location_origin.location_name, safe="")
        name = repository.repository_name
        place = location if name == WHOLE_LOCATION else f"{name}@{location}"
    asked = {"config": yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)}
    if "table" in config:
        asked |= {"tags[0][key]": names.TAG_TABLE, "tags[0][value]": names.table_value(str(config["table"]))}
    return f"/locations/{place}/jobs/{quote(job, safe='')}/playground/setup?{urlencode(asked, quote_via=quote)}"


def plain_cell(text: str) -> str:
    """Return text for a cell of a Markdown table that stays text.

    Args:
        text: a name, a value or an error, which strangers may have written.

    Returns:
        One line without links, markup and HTML, with control, bidi and invisible characters spelled out.
    """
    return re.sub(r"([\\`*_\[\]<>|~#!&])", r"\\\1", visible(" ".join(text.split())))


def _more(count: int, shown: int, what: str) -> list[str]:
    return [f"\nand {count - shown} more {what}"] if count > shown else []
