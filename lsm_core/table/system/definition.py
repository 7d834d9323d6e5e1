"""`$schemas`, `$options`, `$aggregation_fields`: how a table is defined."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from lsm_core.format.schema import TableSchema
from lsm_core.metadata import schemas
from lsm_core.metadata.store import TableStore
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

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return SCHEMAS

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
                "options": [_compact(dict(one.options)) for one in found],
                "comment": [one.comment for one in found],
                "update_time": [one.time_millis for one in found],
            },
        )


def _compact(value: Any) -> str:
    """JSON as Jackson writes it without a pretty printer."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Options(View):
    """Options as the schema (of a version: its schema) stores them."""

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return OPTIONS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once."""
        options = version.store.schema.options
        yield of_columns(OPTIONS, {"key": options.keys(), "value": options.values()})


class AggregationFields(View):
    """Every column with the values and the keys of its `fields.<column>.*` options."""

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return AGGREGATIONS

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


__all__ = ["AggregationFields", "Options", "Schemas"]
