"""What people read in the Dagster UI: plotted numbers, level diagrams and tables, built in one place and one style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import dagster as dg

from lsm_core.maintenance import BucketHealth, CompactionReport, CompactItem, MaintenancePlan
from lsm_core.maintenance.action import bucket_name
from orchestration.health import TableHealth, shape_of
from orchestration.table_card import TableCard, size_text

Metadata: TypeAlias = Mapping[str, dg.MetadataValue]

_BAR = 24
_SHOWN_BUCKETS = 16
_SHOWN_ITEMS = 40


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
        ["| option | value |", "|---|---|", *(f"| `{key}` | `{_cell(options[key])}` |" for key in sorted(options))]
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
        "due compaction reads (bytes)": dg.MetadataValue.int(sum(bucket.cost_minor for bucket in buckets)),
        "full compaction reads (bytes)": dg.MetadataValue.int(sum(bucket.cost_full for bucket in buckets)),
        "score (worst bucket)": dg.MetadataValue.float(_worst([bucket.score for bucket in buckets])),
        "buckets": dg.MetadataValue.md(bucket_table(buckets)),
    }
    compacted = [bucket.last_compaction_ms for bucket in buckets if bucket.last_compaction_ms]
    if compacted:
        told["last compaction"] = dg.MetadataValue.timestamp(max(compacted) / 1000)
    if health.snapshot is not None:
        told["snapshot"] = dg.MetadataValue.int(health.snapshot)
    return told


def bucket_table(buckets: Sequence[BucketHealth]) -> str:
    """Return one Markdown row a bucket, the worst first."""
    if not buckets:
        return "no bucket holds a file"
    worst = sorted(buckets, key=lambda item: (-item.sorted_runs, -item.files, item.partition_text, item.bucket))
    lines = [
        "| bucket | sorted runs | level-0 files | files | size | rows | deletes | overlap, most | overlap, mean |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for bucket in worst[:_SHOWN_ITEMS]:
        name = f"{bucket.partition_text}/{bucket.bucket}" if bucket.partition_text else str(bucket.bucket)
        lines.append(
            f"| {_cell(name)} | {bucket.sorted_runs} | {bucket.level0_files} | {bucket.files} | {size_text(bucket.total_bytes)} "
            f"| {bucket.rows:,} | {bucket.deletes:,} | {bucket.overlap_max} | {bucket.overlap_mean:g} |"
        )
    return "\n".join([*lines, *_more(len(worst), _SHOWN_ITEMS, "buckets")])


def level_diagram(before: TableHealth, after: TableHealth) -> str:
    """Return the levels of every bucket that changed between two snapshots, drawn with bars on one scale."""
    later = {(bucket.partition_text, bucket.bucket): bucket for bucket in after.buckets}
    changed = [
        (bucket, found)
        for bucket in before.buckets
        if (found := later.get((bucket.partition_text, bucket.bucket))) is None or shape_of(found) != shape_of(bucket)
    ]
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
    """Return a plan for people: what it does to which bucket and why, and what it leaves alone."""
    told: dict[str, dg.MetadataValue] = {
        "plan": dg.MetadataValue.text(plan.hash),
        "units": dg.MetadataValue.int(len(plan.items)),
        "bytes to rewrite": dg.MetadataValue.int(plan.estimate.bytes_in),
        "items": dg.MetadataValue.md(items_table(plan)),
        "declined": dg.MetadataValue.md(declined_table(plan)),
    }
    if plan.base_snapshot is not None:
        told["base snapshot"] = dg.MetadataValue.int(plan.base_snapshot)
    return told


def items_table(plan: MaintenancePlan) -> str:
    """Return one Markdown row a unit of a compaction plan."""
    items = plan.items_of(CompactItem)
    if not items:
        return "nothing to merge"
    lines = ["| bucket | why | files | to level | rewritten | only moved up |", "|---|---|--:|--:|--:|--:|"]
    for item in items[:_SHOWN_ITEMS]:
        name = f"{item.partition_text}/{item.bucket}" if item.partition_text else str(item.bucket)
        rewritten, moved = size_text(item.bytes_in), len(item.upgrades)
        lines.append(
            f"| {_cell(name)} | {_cell(item.reason)} | {len(item.inputs)} | {item.output_level} | {rewritten} | {moved} |"
        )
    return "\n".join([*lines, *_more(len(items), _SHOWN_ITEMS, "units")])


def declined_table(plan: MaintenancePlan) -> str:
    """Return one Markdown row for everything that a plan leaves alone."""
    if not plan.declined:
        return "nothing was declined"
    lines = ["| what | why | |", "|---|---|---|"]
    lines += [
        f"| {_cell(item.subject)} | {_cell(item.text)} | {_cell(item.reason)} |"
        for item in plan.declined[:_SHOWN_ITEMS]
    ]
    return "\n".join([*lines, *_more(len(plan.declined), _SHOWN_ITEMS, "lines")])


def report_metadata(report: CompactionReport) -> dict[str, dg.MetadataValue]:
    """Return a compaction's numbers: all plotted, the verification in words."""
    dropped = (
        ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.rows_dropped.items()) if count) or "none"
    )
    digests = [f"| {_cell(name)} | `{digest}` |" for name, digest in sorted(report.verification.digests.items())][
        :_SHOWN_ITEMS
    ]
    return {
        "rows in": dg.MetadataValue.int(report.rows_in),
        "rows out": dg.MetadataValue.int(report.rows_out),
        "rows dropped": dg.MetadataValue.text(dropped),
        "bytes in": dg.MetadataValue.int(report.bytes_in),
        "bytes out": dg.MetadataValue.int(report.bytes_out),
        "files in": dg.MetadataValue.int(report.files_in),
        "files out": dg.MetadataValue.int(report.files_out),
        "files moved up": dg.MetadataValue.int(report.files_upgraded),
        "keys merged into new rows": dg.MetadataValue.int(report.keys_folded),
        "keys merged one by one": dg.MetadataValue.int(report.keys_one_by_one),
        "seconds": dg.MetadataValue.float(round(report.seconds, 3)),
        "verification": dg.MetadataValue.text(f"{report.verification.text()}; {report.verification.independence}"),
        "digests": dg.MetadataValue.md("\n".join(["| bucket | digest of its rewritten rows |", "|---|---|", *digests])),
    }


def _worst(values: Sequence[float]) -> float:
    return round(float(max(values, default=0.0)), 3)


def _hours(spans_ms: Sequence[int]) -> float:
    return round(max(spans_ms, default=0) / 3_600_000, 2)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _more(count: int, shown: int, what: str) -> list[str]:
    return [f"\nand {count - shown} more {what}"] if count > shown else []
