"""Metadata that Java wrote: every file of every golden table decodes, and encodes again to the same values or bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core.errors import UnsupportedFeature
from lsm_core.files.formats.parquet_footer import footer_values
from lsm_core.files.formats.stats_collector import ColumnStatsCollector
from lsm_core.format import (
    EMPTY_ROW,
    Snapshot,
    TableSchema,
    decode_rows,
    encode_rows,
    entries_to_table,
    table_to_entries,
)
from lsm_core.format.avro import read_records
from lsm_core.format.manifest import (
    ManifestEntry,
    ManifestFileMeta,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
    manifest_meta,
)
from lsm_core.format.partitions import partition_bytes, partition_dirs, partition_values
from lsm_core.format.schema import append_arrow_schema, kv_arrow_schema
from lsm_core.format.side_files import Tag
from lsm_core.format.stats import ColumnStats, key_stats, value_stats
from lsm_core.options import TableOptions
from lsm_core.types import DataType
from tests.support.data import golden_dir, golden_names, unpack_golden
from tests.support.parquet_files import footer_of


@pytest.fixture(scope="module", params=golden_names())
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_golden(request.param, tmp_path_factory.mktemp(f"{request.param}-"))


def schemas(table: Path) -> dict[int, TableSchema]:
    files = [*table.glob("branch/*/schema/schema-*"), *table.glob("schema/schema-*")]
    found = [TableSchema.from_json(path.read_bytes(), str(path)) for path in files]
    return {schema.id: schema for schema in found}


def manifests(table: Path) -> list[Path]:
    return [p for p in sorted(table.glob("manifest/manifest-*")) if not p.name.startswith("manifest-list")]


def entries(table: Path) -> Iterator[ManifestEntry]:
    for path in manifests(table):
        yield from table_to_entries(decode_manifest(path.read_bytes(), str(path)))


def test_schemas_come_back_byte_for_byte(table: Path) -> None:
    for path in table.glob("**/schema/schema-*"):
        assert TableSchema.from_json(path.read_bytes(), str(path)).to_json() == path.read_bytes()


def test_snapshots_come_back_byte_for_byte(table: Path) -> None:
    for path in [*table.glob("**/snapshot/snapshot-*"), *table.glob("changelog/changelog-*")]:
        written = Snapshot.from_json(path.read_bytes(), str(path)).to_json()
        if b": null" in path.read_bytes():  # only 1.3 writes members that are not there
            kept = {key: value for key, value in json.loads(path.read_bytes()).items() if value is not None}
            assert json.loads(written) == kept
        else:
            assert written == path.read_bytes()


def test_tags_are_snapshots_with_a_time(table: Path) -> None:
    for path in table.glob("**/tag/tag-*"):
        tag = Tag.from_json(path.read_bytes(), str(path))
        assert tag.snapshot.id == json.loads(path.read_bytes())["id"]
        assert (tag.expires_ms is None) == ("tagTimeRetained" not in json.loads(path.read_bytes()))


def test_manifests_come_back_record_for_record_with_the_java_schema(table: Path) -> None:
    for path in manifests(table):
        decoded = decode_manifest(path.read_bytes(), str(path))
        again = encode_manifest(decoded)
        assert read_records(again, "again")[1] == read_records(path.read_bytes(), str(path))[1]
        assert decode_manifest(again, "again").equals(decoded)
        assert entries_to_table(table_to_entries(decoded)).equals(decoded)
        theirs, ours = (fastavro.reader(io.BytesIO(data)) for data in (path.read_bytes(), again))
        assert ours.codec == theirs.codec == "zstandard"
        assert ours.writer_schema == theirs.writer_schema
        assert sum(1 for _ in ours) == decoded.num_rows


def test_manifest_lists_come_back_and_say_what_java_said(table: Path) -> None:
    newest = schemas(table)
    metas: dict[str, ManifestFileMeta] = {}
    for path in table.glob("manifest/manifest-list-*"):
        decoded = decode_manifest_list(path.read_bytes(), str(path))
        again = encode_manifest_list(decoded)
        assert decode_manifest_list(again, "again") == decoded
        theirs, ours = (fastavro.reader(io.BytesIO(data)).writer_schema for data in (path.read_bytes(), again))
        assert ours["name"] == theirs["name"]
        assert ours["fields"] == theirs["fields"][: len(ours["fields"])]
        metas |= {meta.file_name: meta for meta in decoded}
    schema = newest[max(newest)]
    for path in manifests(table):
        if path.name in metas:
            theirs = metas[path.name]
            decoded = decode_manifest(path.read_bytes(), str(path))
            ours = manifest_meta(decoded, path.name, path.stat().st_size, schema.partition_types, schema.id)
            assert {**vars(ours), "min_row_id": theirs.min_row_id, "max_row_id": theirs.max_row_id} == vars(theirs)


def test_index_manifests_list_what_the_story_says(table: Path) -> None:
    story = json.loads((golden_dir() / (table.parents[2].name.rpartition("-")[0] + ".json")).read_text())
    names = set()
    for path in table.glob("manifest/index-manifest-*"):
        names |= {entry.file_name for entry in decode_index_manifest(path.read_bytes(), str(path))}
    assert {item["name"] for item in story.get("index_files") or [] if "name" in item} <= names


def _stats_types(schema: TableSchema, entry: ManifestEntry) -> list[DataType] | None:
    names = entry.file.value_stats_cols
    if names is None:
        names = entry.file.write_cols or schema.field_names
    if entry.file.value_stats.min_values == EMPTY_ROW:
        return []
    return [schema.field(name).type for name in names] if all(map(schema.has_field, names)) else None


def test_rows_in_manifests_come_back_byte_for_byte(table: Path) -> None:
    known = schemas(table)
    for entry in entries(table):
        schema, file = known[entry.file.schema_id], entry.file
        rows = [(entry.partition, list(schema.partition_types))]
        for key in (file.min_key, file.max_key, file.key_stats.min_values, file.key_stats.max_values):
            rows.append((key, [] if key == EMPTY_ROW else list(schema.trimmed_key_types)))
        types = _stats_types(schema, entry)
        if types is not None:
            rows += [(file.value_stats.min_values, types), (file.value_stats.max_values, types)]
        for blob, kinds in rows:
            try:
                columns = decode_rows(pa.array([blob]), kinds)
            except UnsupportedFeature:  # nanosecond timestamps of the year 9999
                continue
            assert not kinds or encode_rows(columns, kinds)[0].as_py() == blob


def test_partition_directories_have_javas_names(table: Path) -> None:
    known = schemas(table)
    for entry in entries(table):
        schema = known[entry.file.schema_id]
        options = TableOptions(schema.options, "db.t")
        folder = partition_dirs(schema, [entry.partition], options)[0]
        bucket = "postpone" if entry.bucket == -2 else entry.bucket
        assert (table / folder / f"bucket-{bucket}").is_dir(), folder
        values = partition_values(schema, entry.partition)
        assert partition_bytes(schema, values) == entry.partition


def test_statistics_from_footers_are_javas(table: Path) -> None:
    known = schemas(table)
    for entry in entries(table):
        schema, file = known[entry.file.schema_id], entry.file
        options = TableOptions(schema.options, "db.t")
        place = table / partition_dirs(schema, [entry.partition], options)[0] / f"bucket-{entry.bucket}"
        path = place / file.file_name
        if path.suffix != ".parquet" or not path.exists() or file.write_cols is not None:
            continue
        rows = pq.read_table(path, partitioning=None)
        floats = ColumnStatsCollector(field.name for field in rows.schema if pa.types.is_floating(field.type))
        floats.add(rows)
        found = {**footer_values(footer_of(path.read_bytes()), rows.schema), **floats.values()}
        stats, names = value_stats(found, schema, options, level=file.level)
        assert names == file.value_stats_cols
        # Java 1.4 takes NaN as the bound; 1.3 leaves such columns without bounds.
        unbounded = {
            name: ColumnStats(pa.nulls(1), pa.nulls(1), seen.null_count)
            for name, seen in floats.values().items()
            if pc.is_nan(seen.maximum)[0].as_py()
        }
        assert file.value_stats in (stats, value_stats({**found, **unbounded}, schema, options, level=file.level)[0])
        if schema.primary_keys:
            assert key_stats(found, schema) == file.key_stats


def field_ids(kind: pa.DataType | pa.Schema) -> list[tuple[str, bytes | None]]:
    """Names and ids of all fields, depth first."""
    fields = [kind.key_field, kind.item_field] if isinstance(kind, pa.MapType) else list(_children(kind))
    found: list[tuple[str, bytes | None]] = []
    for field in fields:
        found.append((field.name, (field.metadata or {}).get(b"PARQUET:field_id")))
        found += field_ids(field.type)
    return found


def _children(kind: pa.DataType | pa.Schema) -> Iterator[pa.Field]:
    if isinstance(kind, pa.Schema):
        yield from kind
    elif pa.types.is_nested(kind):
        yield from (kind.field(i) for i in range(kind.num_fields))


def test_data_files_have_javas_columns_and_field_ids(table: Path) -> None:
    known = schemas(table)
    for entry in entries(table):
        schema, file = known[entry.file.schema_id], entry.file
        folder = partition_dirs(schema, [entry.partition], TableOptions(schema.options, "db.t"))[0]
        path = table / folder / f"bucket-{entry.bucket}" / file.file_name
        if path.suffix != ".parquet" or not path.exists() or file.write_cols is not None:
            continue
        thin = schema.options.get("data-file.thin-mode") == "true"
        ours = kv_arrow_schema(schema, thin=thin) if schema.primary_keys else append_arrow_schema(schema)
        assert field_ids(pq.read_schema(path)) == field_ids(ours)
