"""`$schemas`, `$options`, `$aggregation_fields`, `$snapshots`, `$tags`, `$branches`, `$consumers`, `$statistics`: how a table is
defined, and what happened to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from lsm_core.format.json_text import pretty
from lsm_core.metadata import branches, consumers, schemas, snapshots, tags
from lsm_core.metadata.statistics import read_statistics
from lsm_core.options import mask_secrets
from lsm_core.table.system.view import Version, View, Wanted, of_columns, table_schema

SCHEMAS: Final = table_schema(
    [
        ("schema_id", "BIGINT NOT NULL"),
        ("fields", "STRING NOT NULL"),
        ("partition_keys", "STRING NOT NULL"),
        ("primary_keys", "STRING NOT NULL"),
        ("options", "STRING NOT NULL"),
        ("comment", "STRING"),
        ("update_time", "TIMESTAMP(3) NOT NULL"),
    ]
)
OPTIONS: Final = table_schema([("key", "STRING NOT NULL"), ("value", "STRING NOT NULL")])
AGGREGATIONS: Final = table_schema(
    [
        ("field_name", "STRING NOT NULL"),
        ("field_type", "STRING NOT NULL"),
        ("function", "STRING"),
        ("function_options", "STRING"),
        ("comment", "STRING"),
    ]
)


class Schemas(View):
    """All schemas of the table (or branch), oldest first."""

    timeless = True
    columns = SCHEMAS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once. Raises CorruptFile."""
        store = version.store
        found = [store.schema_of(number) for number in schemas.list_schema_ids(store.file_io, store.root, store.branch)]
        yield of_columns(
            SCHEMAS,
            {
                "schema_id": [one.id for one in found],
                "fields": [_compact([field.to_object() for field in one.fields]) for one in found],
                "partition_keys": [_compact(list(one.partition_keys)) for one in found],
                "primary_keys": [_compact(list(one.primary_keys)) for one in found],
                "options": [_compact(mask_secrets(one.options)) for one in found],
                "comment": [one.comment for one in found],
                "update_time": [one.time_millis for one in found],
            },
        )


def _compact(value: Any) -> str:
    """JSON as Jackson writes it without a pretty printer."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Options(View):
    """Options as the schema (of a version: its schema) stores them."""

    columns = OPTIONS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once."""
        options = mask_secrets(version.store.schema.options)
        yield of_columns(OPTIONS, {"key": options.keys(), "value": options.values()})


class AggregationFields(View):
    """Every column with the values and the keys of its `fields.<column>.*` options."""

    columns = AGGREGATIONS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once."""
        schema = version.store.schema
        own = [
            [(key, value) for key, value in schema.options.items() if key.startswith(f"fields.{field.name}.")]
            for field in schema.fields
        ]
        yield of_columns(
            AGGREGATIONS,
            {
                "field_name": schema.field_names,
                "field_type": [str(field.type) for field in schema.fields],
                "function": [f"[{', '.join(value for _, value in pairs)}]" for pairs in own],
                "function_options": [f"[{', '.join(key for key, _ in pairs)}]" for pairs in own],
                "comment": [field.description for field in schema.fields],
            },
        )


SNAPSHOTS: Final = table_schema(
    [
        ("snapshot_id", "BIGINT NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("commit_user", "STRING NOT NULL"),
        ("commit_identifier", "BIGINT NOT NULL"),
        ("commit_kind", "STRING NOT NULL"),
        ("commit_time", "TIMESTAMP(3) NOT NULL"),
        ("base_manifest_list", "STRING NOT NULL"),
        ("delta_manifest_list", "STRING NOT NULL"),
        ("changelog_manifest_list", "STRING"),
        ("total_record_count", "BIGINT"),
        ("delta_record_count", "BIGINT"),
        ("changelog_record_count", "BIGINT"),
        ("watermark", "BIGINT"),
        ("next_row_id", "BIGINT"),
    ]
)
TAGS: Final = table_schema(
    [
        ("tag_name", "STRING NOT NULL"),
        ("snapshot_id", "BIGINT NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("commit_time", "TIMESTAMP(3) NOT NULL"),
        ("record_count", "BIGINT"),
        ("create_time", "TIMESTAMP(3)"),
        ("time_retained", "STRING"),
    ]
)
BRANCHES: Final = table_schema([("branch_name", "STRING NOT NULL"), ("create_time", "TIMESTAMP(3) NOT NULL")])
CONSUMERS: Final = table_schema([("consumer_id", "STRING NOT NULL"), ("next_snapshot_id", "BIGINT NOT NULL")])
STATISTICS: Final = table_schema(
    [
        ("snapshot_id", "BIGINT NOT NULL"),
        ("schema_id", "BIGINT NOT NULL"),
        ("mergedRecordCount", "BIGINT"),
        ("mergedRecordSize", "BIGINT"),
        ("colstat", "STRING"),
    ]
)
_SAME: Final = [name for name in SNAPSHOTS.field_names if name not in {"snapshot_id", "commit_time", "commit_kind"}]


class Snapshots(View):
    """All snapshots, oldest first, or the one named; record counts are of unmerged rows, times are UTC."""

    columns = SNAPSHOTS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once. Raises CorruptFile."""
        found = [version.snapshot] if version.pinned else snapshots.iterate(version.store)
        shown = [snapshot for snapshot in found if snapshot is not None]
        columns: dict[str, list[object]] = {name: [getattr(one, name) for one in shown] for name in _SAME}
        columns["snapshot_id"] = [one.id for one in shown]
        columns["commit_time"] = [one.time_millis for one in shown]
        columns["commit_kind"] = [one.commit_kind.value for one in shown]
        yield of_columns(SNAPSHOTS, columns, version.store.snapshot_dir)


class Tags(View):
    """All tags, oldest snapshot first."""

    timeless = True
    columns = TAGS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once. Raises CorruptFile."""
        found = sorted(tags.list_details(version.store).items(), key=lambda one: (one[1].snapshot.id, one[0]))
        yield of_columns(
            TAGS,
            {
                "tag_name": [name for name, _ in found],
                "snapshot_id": [tag.snapshot.id for _, tag in found],
                "schema_id": [tag.snapshot.schema_id for _, tag in found],
                "commit_time": [tag.snapshot.time_millis for _, tag in found],
                "record_count": [tag.snapshot.total_record_count for _, tag in found],
                "create_time": [tag.create_time_ms for _, tag in found],
                "time_retained": [
                    None if tag.time_retained_ms is None else duration_text(tag.time_retained_ms) for _, tag in found
                ],
            },
        )


def duration_text(millis: int) -> str:
    """Java's `Duration.toString`: "PT24H", "PT1M30.5S", "PT0S"."""
    sign, seconds = ("-" if millis < 0 else ""), abs(millis) // 1000
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    fraction = f"{abs(millis) % 1000:03d}".rstrip("0")
    text = "".join(f"{sign}{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    if rest or fraction or not text:
        text += f"{sign}{rest}{'.' if fraction else ''}{fraction}S"
    return f"PT{text}"


class Branches(View):
    """All branches but main, with the time when their directory last changed."""

    timeless = True
    columns = BRANCHES

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once."""
        found = branches.change_times(version.store)
        yield of_columns(BRANCHES, {"branch_name": found.keys(), "create_time": found.values()})


class Consumers(View):
    """All consumers by name, with the next snapshot that each reads."""

    timeless = True
    columns = CONSUMERS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once. Raises CorruptFile."""
        found = sorted(consumers.list_consumers(version.store).items())
        yield of_columns(
            CONSUMERS,
            {"consumer_id": [name for name, _ in found], "next_snapshot_id": [following for _, following in found]},
        )


class Statistics(View):
    """The statistics that the version carries: one row, or none."""

    columns = STATISTICS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """At most one row. Raises CorruptFile."""
        store, snapshot = version.store, version.snapshot
        found = None if snapshot is None else read_statistics(store, snapshot)
        if snapshot is None or found is None:
            return
        yield of_columns(
            STATISTICS,
            {
                "snapshot_id": [found.snapshot_id],
                "schema_id": [found.schema_id],
                "mergedRecordCount": [found.merged_record_count],
                "mergedRecordSize": [found.merged_record_size],
                "colstat": [pretty(found.columns_object())],
            },
            store.statistics_path(str(snapshot.statistics)),
        )


__all__ = [
    "AggregationFields",
    "Branches",
    "Consumers",
    "Options",
    "Schemas",
    "Snapshots",
    "Statistics",
    "Tags",
    "duration_text",
]
