"""System tables about the definition and the history of a table.

The module contains `$schemas`, `$options`, `$aggregation_fields`, `$snapshots`, `$tags`, `$branches`, `$consumers` and
`$statistics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from lsm_core.json_text import pretty
from lsm_core.metadata import branches, consumers, snapshots, tags
from lsm_core.metadata.statistics import read_statistics
from lsm_core.metadata.store import list_schema_ids
from lsm_core.options import mask_secrets
from lsm_core.table.system.view import Selection, Version, View, table_of_columns, table_schema

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
    """`$schemas`: all schemas of the table (or branch), oldest first."""

    timeless = True
    columns = SCHEMAS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all schemas of the table or branch, oldest first.

        Raises:
            CorruptFile: a schema file is damaged.
        """
        store = version.store
        versions = [store.schema_of(number) for number in list_schema_ids(store.file_io, store.root, store.branch)]
        yield table_of_columns(
            SCHEMAS,
            {
                "schema_id": [schema.id for schema in versions],
                "fields": [_compact([field.to_object() for field in schema.fields]) for schema in versions],
                "partition_keys": [_compact(list(schema.partition_keys)) for schema in versions],
                "primary_keys": [_compact(list(schema.primary_keys)) for schema in versions],
                "options": [_compact(mask_secrets(schema.options)) for schema in versions],
                "comment": [schema.comment for schema in versions],
                "update_time": [schema.time_millis for schema in versions],
            },
        )


def _compact(value: Any) -> str:
    """Return JSON as Jackson writes it without a pretty printer."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Options(View):
    """`$options`: options as the schema stores them; for a chosen version, the options of the version's schema."""

    columns = OPTIONS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with the options of the version's schema; values of secret options are masked."""
        options = mask_secrets(version.store.schema.options)
        yield table_of_columns(OPTIONS, {"key": options.keys(), "value": options.values()})


class AggregationFields(View):
    """`$aggregation_fields`: every column of the table, with the keys and values of its `fields.<column>.*` options."""

    columns = AGGREGATIONS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with a row for each column, in the order of the schema."""
        schema = version.store.schema
        own = [
            [(key, value) for key, value in schema.options.items() if key.startswith(f"fields.{field.name}.")]
            for field in schema.fields
        ]
        yield table_of_columns(
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
        ("operation", "STRING"),
        ("writer_version", "STRING"),
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
    """`$snapshots`: all snapshots, oldest first, or the chosen one; counts are of unmerged rows, times are UTC."""

    columns = SNAPSHOTS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all snapshots, oldest first, or with the snapshot that the caller chose.

        Raises:
            CorruptFile: a snapshot file is damaged.
        """
        candidates = [version.snapshot] if version.pinned else snapshots.iterate(version.store)
        shown = [snapshot for snapshot in candidates if snapshot is not None]
        columns: dict[str, list[object]] = {name: [getattr(snapshot, name) for snapshot in shown] for name in _SAME}
        columns["snapshot_id"] = [snapshot.id for snapshot in shown]
        columns["commit_time"] = [snapshot.time_millis for snapshot in shown]
        columns["commit_kind"] = [snapshot.commit_kind.value for snapshot in shown]
        yield table_of_columns(SNAPSHOTS, columns, version.store.snapshot_dir)


class Tags(View):
    """`$tags`: all tags, oldest snapshot first."""

    timeless = True
    columns = TAGS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all tags, by snapshot id and name.

        Raises:
            CorruptFile: a tag file is damaged.
        """
        details = sorted(tags.list_details(version.store).items(), key=lambda item: (item[1].snapshot.id, item[0]))
        yield table_of_columns(
            TAGS,
            {
                "tag_name": [name for name, _ in details],
                "snapshot_id": [tag.snapshot.id for _, tag in details],
                "schema_id": [tag.snapshot.schema_id for _, tag in details],
                "commit_time": [tag.snapshot.time_millis for _, tag in details],
                "record_count": [tag.snapshot.total_record_count for _, tag in details],
                "create_time": [tag.create_time_ms for _, tag in details],
                "time_retained": [
                    None if tag.time_retained_ms is None else duration_text(tag.time_retained_ms) for _, tag in details
                ],
            },
        )


def duration_text(millis: int) -> str:
    """Return a duration as Java's `Duration.toString` prints it: "PT24H", "PT1M30.5S", "PT0S".

    Args:
        millis: the duration (ms); it may be negative.
    """
    sign, seconds = ("-" if millis < 0 else ""), abs(millis) // 1000
    hours, minutes, seconds_left = seconds // 3600, seconds // 60 % 60, seconds % 60
    fraction = f"{abs(millis) % 1000:03d}".rstrip("0")
    text = "".join(f"{sign}{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    if seconds_left or fraction or not text:
        text += f"{sign}{seconds_left}{'.' if fraction else ''}{fraction}S"
    return f"PT{text}"


class Branches(View):
    """`$branches`: all branches except main, with the time when their directory last changed."""

    timeless = True
    columns = BRANCHES

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all branches except main."""
        times = branches.change_times(version.store)
        yield table_of_columns(BRANCHES, {"branch_name": times.keys(), "create_time": times.values()})


class Consumers(View):
    """`$consumers`: all consumers by name, with the id of the next snapshot that each will read."""

    timeless = True
    columns = CONSUMERS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with all consumers, sorted by id.

        Raises:
            CorruptFile: a consumer file is damaged.
        """
        progress = sorted(consumers.list_consumers(version.store).items())
        yield table_of_columns(
            CONSUMERS,
            {
                "consumer_id": [name for name, _ in progress],
                "next_snapshot_id": [following for _, following in progress],
            },
        )


class Statistics(View):
    """`$statistics`: statistics of the version, one row, or no row if the version has no statistics."""

    columns = STATISTICS

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield one table with the statistics of the version, or nothing if it has none.

        Raises:
            CorruptFile: the statistics file is damaged.
        """
        store, snapshot = version.store, version.snapshot
        statistics = None if snapshot is None else read_statistics(store, snapshot)
        if snapshot is None or statistics is None:
            return
        yield table_of_columns(
            STATISTICS,
            {
                "snapshot_id": [statistics.snapshot_id],
                "schema_id": [statistics.schema_id],
                "mergedRecordCount": [statistics.merged_record_count],
                "mergedRecordSize": [statistics.merged_record_size],
                "colstat": [pretty(statistics.columns_object())],
            },
            store.statistics_path(str(snapshot.statistics)),
        )
