"""Metadata for the Dagster UI: plotted numbers, level diagrams and tables, in one style."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlencode

import dagster as dg
import yaml

from dredge.platform_core import names
from dredge.platform_core.dagster_internals import WHOLE_LOCATION
from dredge.platform_core.health import TableHealth
from dredge.platform_core.standard_metadata import column_schema
from dredge.platform_core.table_card import TableCard
from dredge.platform_core.tree_picture import changed_buckets, name_of, runs_of
from lsm_core.cli.render import visible
from lsm_core.clock import utc_text
from lsm_core.maintenance import BucketHealth, Declined, MaintenancePlan
from lsm_core.maintenance.action import PlanEstimate, bucket_name, size_text
from lsm_core.maintenance.actions.compact.planning import Calibration
from lsm_core.maintenance.score import Part
from lsm_core.maintenance.table_ranking import score_of
from lsm_core.options import misnamed, not_acted_on

Metadata: TypeAlias = Mapping[str, dg.MetadataValue]

_BAR = 24
_SHOWN_BUCKETS = 16
_SHOWN_ITEMS = 40
_LABELS: Final = {
    "groups_spliced": "row groups copied without decoding",
    "bytes_spliced": "bytes copied without decoding",
}
"""Labels of numbers whose names in reports are terms of the code."""
_WORST_BUCKETS = 20
_MOST_TEXT = 1_000
TERMS: Final[Mapping[str, str]] = {
    "sorted run": "level-0 file, or the files of one level above 0; a read merges all runs of a bucket",
    "trigger": "number of sorted runs from which a compaction is due (num-sorted-run.compaction-trigger)",
    "level 0": "files that writers have just written; their key ranges overlap",
    "score": "need of maintenance from 0 (healthy) to 100, the most points of one of its parts",
    "read amplification": "sorted runs that a read of the worst bucket merges; 1 is best",
    "space amplification": "bytes of all files divided by those of the oldest run; 1 is best",
    "overlap": "sorted runs that contain the same key",
    "delete ratio": "share of stored rows that are deletes, or marked as deleted, from 0 to 1",
    "unmerged": "as stored: several versions of a key count several times",
    "read-optimised view": "the table `$ro`: it shows only compacted rows, without merging",
    "Iceberg readers": "readers of the table's Iceberg metadata: they see rows after a full compaction",
    "snapshot": "number of the commit that the figures are about",
}
"""One-line explanation of each term on a layout's page."""


def table_metadata(card: TableCard) -> dict[str, dg.MetadataValue]:
    """Return metadata of a table from its schema alone.

    Returns:
        Columns, keys, options, location and, if the table is not maintained, the reason; by label.
    """
    metadata: dict[str, dg.MetadataValue] = {
        "dagster/table_name": dg.MetadataValue.text(card.name),
        "primary keys": dg.MetadataValue.text(", ".join(card.primary_keys) or "none: append only"),
        "partition keys": dg.MetadataValue.text(", ".join(card.partition_keys) or "none"),
        "options": dg.MetadataValue.md(options_table(card.options)),
    }
    ignored = not_acted_on(card.options)
    if ignored:
        metadata["options without effect"] = dg.MetadataValue.text(f"kept but not acted on here: {', '.join(ignored)}")
    renamed = misnamed(card.options)
    if renamed:
        lines = (f"{name}: {advice}" for name, advice in renamed.items())
        metadata["options with another right name"] = dg.MetadataValue.text("; ".join(lines))
    if card.root:
        metadata["location"] = dg.MetadataValue.path(card.root)
    if card.columns:
        metadata["dagster/column_schema"] = dg.MetadataValue.table_schema(column_schema(card))
    if card.refusal:
        metadata["maintenance"] = dg.MetadataValue.text(f"declined: {card.refusal}")
    return metadata


def options_table(options: Mapping[str, str]) -> str:
    """Return a table's options as Markdown."""
    if not options:
        return "none set: Paimon's defaults apply"
    return "\n".join(
        [
            "| option | value |",
            "|---|---|",
            *(f"| {plain_cell(key)} | {plain_cell(options[key])} |" for key in sorted(options)),
        ]
    )


STATE: Final = "state"
NEXT_STEP: Final = "next step"


def terms_table() -> dg.TableMetadataValue:
    """Return the terms on the page of a layout asset with their explanations, as a table that pages show inline."""
    columns = [dg.TableColumn("term", "string"), dg.TableColumn("meaning", "string")]
    records = [dg.TableRecord({"term": term, "meaning": meaning}) for term, meaning in TERMS.items()]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def state_metadata(line: str, next_step: str, decided_ms: int) -> dict[str, dg.MetadataValue]:
    """Return the first entries on the page of a layout asset: state, reason, next step and time of the decision.

    Args:
        line: state and reason in one line (`TableStatus.line`).
        next_step: next action with its time.
        decided_ms: time of the decision (epoch ms).
    """
    decided = f"(decided at {utc_text(decided_ms)[:16]} UTC)"
    return {
        STATE: dg.MetadataValue.text(f"{line[:_MOST_TEXT]} {decided}"),
        NEXT_STEP: dg.MetadataValue.text(next_step[:_MOST_TEXT]),
    }


def health_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the numbers of a table's or partition's health.

    The first three are the sorted runs and the level-0 files of the worst bucket, and the health score. Sizes,
    amplifications, ages and costs of compactions follow.

    Returns:
        Values by label; Dagster plots every number over time.
    """
    buckets = health.buckets
    level0_ages = [health.measured_ms - b.oldest_level0_ms for b in buckets if b.oldest_level0_ms is not None]
    rows, files = sum(bucket.rows for bucket in buckets), sum(bucket.files for bucket in buckets)
    upkeep = {"upkeep": dg.MetadataValue.text(health.upkeep)} if health.upkeep else {}
    metadata: dict[str, dg.MetadataValue] = {
        "sorted runs (worst bucket)": dg.MetadataValue.int(max((bucket.sorted_runs for bucket in buckets), default=0)),
        "level-0 files (worst bucket)": dg.MetadataValue.int(
            max((bucket.level0_files for bucket in buckets), default=0)
        ),
        "score, 0 is healthy": dg.MetadataValue.float(score_of(buckets)[0]),
        **upkeep,
        "files": dg.MetadataValue.int(files),
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
        **_iceberg_metadata(health),
        "due compaction reads (bytes)": dg.MetadataValue.int(sum(bucket.cost_minor for bucket in buckets)),
        "full compaction reads (bytes)": dg.MetadataValue.int(sum(bucket.cost_full for bucket in buckets)),
        "score: made of": dg.MetadataValue.md(score_table(buckets)),
        "buckets": dg.MetadataValue.md(bucket_table(buckets)),
    }
    compacted = [bucket.last_compaction_ms for bucket in buckets if bucket.last_compaction_ms]
    if compacted:
        metadata["last compaction"] = dg.MetadataValue.timestamp(max(compacted) / 1000)
    if health.snapshot is not None:
        metadata["snapshot"] = dg.MetadataValue.int(health.snapshot)
    return metadata


def _iceberg_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the lag of the table's Iceberg readers, with a sentence on its cause; empty for tables without any."""
    lag = health.iceberg
    if lag is None:
        return {}
    return {
        "Iceberg readers": dg.MetadataValue.text(lag.text[:_MOST_TEXT]),
        "Iceberg readers lag (hours)": dg.MetadataValue.float(_hours([lag.lag_ms(health.measured_ms)])),
        "rows not visible to Iceberg readers": dg.MetadataValue.int(lag.rows),
        "bytes not visible to Iceberg readers": dg.MetadataValue.int(lag.bytes),
    }


_ALWAYS_PLOTTED = frozenset(
    {
        "sorted runs (worst bucket)",
        "level-0 files (worst bucket)",
        "files",
        "bytes",
        "rows per run",
        "read amplification",
        "score, 0 is healthy",
        "Iceberg readers lag (hours)",
        "snapshot",
    }
)


def plotted_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return the few entries of `health_metadata` that are stored for every commit and healthy layout, for plots.

    Only these entries are stored, because Dagster stores 150 bytes per number.
    """
    plotted = _ALWAYS_PLOTTED | {"upkeep"} if health.writers_compact else _ALWAYS_PLOTTED
    return {name: value for name, value in health_metadata(health).items() if name in plotted}


def data_metadata(health: TableHealth) -> dict[str, dg.MetadataValue]:
    """Return a commit's metadata for the data asset: stored rows, size and files. The layout asset has the details."""
    rows, files = sum(bucket.rows for bucket in health.buckets), sum(bucket.files for bucket in health.buckets)
    metadata: dict[str, dg.MetadataValue] = {
        "stored rows": dg.MetadataValue.int(rows),
        "size": dg.MetadataValue.text(size_text(sum(bucket.total_bytes for bucket in health.buckets))),
        "files": dg.MetadataValue.int(files),
    }
    if health.data_version is not None:
        metadata["snapshot"] = dg.MetadataValue.int(health.data_version)
    return metadata


def cost_metadata(
    predicted: PlanEstimate, numbers: Mapping[str, Any], calibration: Calibration | None = None
) -> dict[str, dg.MetadataValue]:
    """Return the estimated and the measured costs of a plan, as a sentence and as numbers to plot together.

    Args:
        predicted: estimate of the plan.
        numbers: measured numbers of the report.
        calibration: ratio of measured to estimated costs in the table's earlier runs, or None without such runs.

    Returns:
        Values by label; empty if nothing was measured.
    """
    measured = {name: numbers[name] for name in ("bytes_in", "bytes_out", "seconds") if name in numbers}
    units = {
        "bytes_in": (f"at most {size_text(predicted.bytes_in)}", "read"),
        "bytes_out": (f"at most {size_text(predicted.bytes_out)}", "written"),
        "seconds": (f"{predicted.seconds:.1f} s on one core", "taken"),
    }
    texts = {name: f"{value:.1f} s" if name == "seconds" else size_text(int(value)) for name, value in measured.items()}
    parts = [f"{units[name][0]} predicted, {text} {units[name][1]}" for name, text in texts.items()]
    if not parts:
        return {}
    model = Calibration() if calibration is None else calibration
    metadata: dict[str, dg.MetadataValue] = {
        "prediction and measurement": dg.MetadataValue.text("; ".join(parts)),
        "predicted bytes in": dg.MetadataValue.int(predicted.bytes_in),
        "predicted_seconds": dg.MetadataValue.float(round(model.predicted_seconds(predicted.seconds), 3)),
    }
    if "seconds" in measured:
        metadata["measured_seconds"] = dg.MetadataValue.float(float(measured["seconds"]))
    if calibration is not None:
        metadata["cost model"] = dg.MetadataValue.text(calibration.text())
    return metadata


def score_table(buckets: Sequence[BucketHealth]) -> str:
    """Return one Markdown row per component of the health score, with the bucket in which the component is highest."""
    worst: dict[str, tuple[float, Part, BucketHealth]] = {}
    for bucket in buckets:
        for part in bucket.parts:
            points = part.points(bucket.size_share)
            if part.name not in worst or points > worst[part.name][0]:
                worst[part.name] = (points, part, bucket)
    if not worst:
        return "healthy: no part has points"
    rows = [
        f"| {part.name} | {points:g} | {part.weight:g} "
        f"| {plain_cell(bucket_name(bucket.partition_text, bucket.bucket))} | {plain_cell(part.text)} |"
        for points, part, bucket in sorted(worst.values(), key=lambda entry: (-entry[0], entry[1].name))
    ]
    return "\n".join(["| part | points | at most | bucket | why |", "|---|--:|--:|---|---|", *rows])


def bucket_table(buckets: Sequence[BucketHealth]) -> str:
    """Return one Markdown row for each of the 20 buckets with the most sorted runs; further buckets are counted."""
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
            f"| {plain_cell(name)} | {bucket.sorted_runs} | {bucket.level0_files} | {bucket.files} "
            f"| {size_text(bucket.total_bytes)} | {bucket.rows:,} | {bucket.deletes:,} | {bucket.overlap_max} "
            f"| {bucket.overlap_mean:g} |"
        )
    return "\n".join([*lines, *_count_more(len(worst), _WORST_BUCKETS, "buckets")])


def level_diagram(before: TableHealth, after: TableHealth) -> str:
    """Return text bars, on a common scale, for the levels of up to 16 buckets that changed between two snapshots."""
    changed = changed_buckets(before, after)
    if not changed:
        return "the levels did not change"
    largest = max(size for state in (before, after) for item in state.buckets for size in item.bytes_per_level.values())
    lines = [f"snapshot {before.snapshot} -> {after.snapshot}", "```"]
    for earlier_state, later_state in changed[:_SHOWN_BUCKETS]:
        name = name_of(earlier_state, later_state)
        lines.append(f"{name}: {runs_of(earlier_state)} -> {runs_of(later_state)} sorted runs")
        for title, state in (("before", earlier_state), ("after", later_state)):
            if state is None:
                continue
            for level, size in state.bytes_per_level.items():
                bar = "#" * max(1, round(size / max(largest, 1) * _BAR)) if size else ""
                files = f"{state.level0_files} files" if level == 0 else "1 run"
                lines.append(f"  {title:<6} L{level} {bar:<{_BAR}} {size_text(size):>8}  {files}")
    return "\n".join([*lines, "```", *_count_more(len(changed), _SHOWN_BUCKETS, "changed buckets")])


def plan_metadata(plan: MaintenancePlan) -> dict[str, dg.MetadataValue]:
    """Return metadata of a plan: its units of work (items) with reasons, and what it leaves out, with reasons."""
    metadata: dict[str, dg.MetadataValue] = {
        "action": dg.MetadataValue.text(plan.action),
        "plan": dg.MetadataValue.text(plan.hash),
        "units": dg.MetadataValue.int(len(plan.items)),
        "bytes to rewrite": dg.MetadataValue.int(plan.estimate.bytes_in),
        "items": dg.MetadataValue.md(items_table(plan)),
        "declined": dg.MetadataValue.md(declined_table(plan.declined)),
    }
    if plan.base_snapshot is not None:
        metadata["base snapshot"] = dg.MetadataValue.int(plan.base_snapshot)
    return metadata


def items_table(plan: MaintenancePlan) -> str:
    """Return the units of work (items) of a plan as Markdown, one table per kind of item, such as compactions."""
    tables = []
    for kind in dict.fromkeys(type(item) for item in plan.items):
        items = plan.items_of(kind)
        rows = [f"| {' | '.join(plain_cell(str(cell)) for cell in item.cells())} |" for item in items[:_SHOWN_ITEMS]]
        header = [f"{kind.title}:\n", f"| {' | '.join(kind.columns)} |", f"|{'---|' * len(kind.columns)}"]
        tables.append("\n".join([*header, *rows, *_count_more(len(items), _SHOWN_ITEMS, "items")]))
    return "\n\n".join(tables) or "nothing to do"


def declined_table(declined: Sequence[Declined]) -> str:
    """Return a Markdown table of what a plan leaves out: a row per table, partition or bucket, with the reason."""
    if not declined:
        return "nothing was declined"
    lines = ["| subject | why | reason code |", "|---|---|---|"]
    lines += [
        f"| {plain_cell(item.subject)} | {plain_cell(item.text)} | {plain_cell(item.reason)} |"
        for item in declined[:_SHOWN_ITEMS]
    ]
    return "\n".join([*lines, *_count_more(len(declined), _SHOWN_ITEMS, "lines")])


def number_metadata(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, dg.MetadataValue]:
    """Return a report's numbers (`Report.numbers`) as metadata; texts, lists and mappings become text.

    ``rows_dropped`` of ``{"superseded": 3}`` becomes "rows dropped": "3 superseded". A mapping inside a mapping becomes
    a table, in which an empty text is "none".

    Args:
        numbers: numbers of the report by name.
        prefix: text before each label of the metadata.
    """
    metadata: dict[str, dg.MetadataValue] = {}
    for key, value in numbers.items():
        name = prefix + (_LABELS.get(key) or key.replace("_", " "))
        if isinstance(value, bool):
            metadata[name] = dg.MetadataValue.bool(value)
        elif isinstance(value, int):
            metadata[name] = dg.MetadataValue.int(value)
        elif isinstance(value, float):
            metadata[name] = dg.MetadataValue.float(round(value, 3))
        elif isinstance(value, str) and value:
            metadata[name] = dg.MetadataValue.text(value)
        elif isinstance(value, Mapping):
            texts = [_count_of(item, key) for key, item in value.items() if item and not isinstance(item, Mapping)]
            metadata[name] = dg.MetadataValue.text(", ".join(texts) or "none")
            for inner, table in value.items():
                if isinstance(table, Mapping) and table:
                    rows = [
                        f"| {plain_cell(str(key))} | {plain_cell(str(item)) or 'none'} |"
                        for key, item in sorted(table.items())
                    ]
                    lines = ["| | |", "|---|---|", *rows[:_SHOWN_ITEMS], *_count_more(len(rows), _SHOWN_ITEMS, "rows")]
                    metadata[f"{prefix}{inner.replace('_', ' ')}"] = dg.MetadataValue.md("\n".join(lines))
        elif isinstance(value, Sequence) and value and not isinstance(value, str):
            more = f" and {len(value) - _SHOWN_ITEMS} more" if len(value) > _SHOWN_ITEMS else ""
            metadata[name] = dg.MetadataValue.text(", ".join(map(str, value[:_SHOWN_ITEMS])) + more)
    return metadata


def _count_of(value: object, name: str) -> str:
    """Return a value with its name, like ``250 keys checked``, or the value alone if it is a sentence."""
    if isinstance(value, str) and " " in value:
        return value
    return (
        f"{value:,} {name.replace('_', ' ')}" if isinstance(value, int | float) else f"{value} {name.replace('_', ' ')}"
    )


def _worst(values: Sequence[float]) -> float:
    return round(float(max(values, default=0.0)), 3)


def _hours(spans_ms: Sequence[int]) -> float:
    return round(max(spans_ms, default=0) / 3_600_000, 2)


@dataclass(frozen=True)
class Launchpad:
    """Maker of links to the launchpads of a warehouse's jobs.

    Attributes:
        run: a run of the code location that has the jobs.
        warehouse_names: names of the warehouse in Dagster.
    """

    run: dg.DagsterRun
    warehouse_names: names.WarehouseNames

    def link(self, job: str, config: Mapping[str, Any]) -> str:
        """Return a link to the launchpad of a job, with a configuration filled in.

        If the configuration names a table, the link sets the table's run tag. The tag makes the new run wait for other
        runs on the same table.

        Args:
            job: name of the job in a code location with one warehouse.
            config: configuration of the job.

        Returns:
            The path of the page, relative to the web server.
        """
        origin = self.run.remote_job_origin
        location_path = "dredge"  # as workspace.yaml calls it: a run without a server has no origin
        if origin is not None:
            repository = origin.repository_origin
            location = quote(repository.code_location_origin.location_name, safe="")
            name = repository.repository_name
            location_path = location if name == WHOLE_LOCATION else f"{name}@{location}"
        parameters = {"config": yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)}
        if "table" in config:
            table = self.warehouse_names.table_value(str(config["table"]))
            parameters |= {"tags[0][key]": names.TAG_TABLE, "tags[0][value]": table}
        query = urlencode(parameters, quote_via=quote)
        job_path = quote(self.warehouse_names.definition(job), safe="")
        return f"/locations/{location_path}/jobs/{job_path}/playground/setup?{query}"


def plain_cell(text: str) -> str:
    """Escape text for a cell of a Markdown table.

    Args:
        text: a name, value or error; untrusted.

    Returns:
        One line without links, markup and HTML, with control, bidi and invisible characters spelled out.
    """
    return re.sub(r"([\\`*_\[\]<>|~#!&])", r"\\\1", visible(" ".join(text.split())))


def _count_more(count: int, shown: int, noun: str) -> list[str]:
    return [f"\nand {count - shown} more {noun}"] if count > shown else []
