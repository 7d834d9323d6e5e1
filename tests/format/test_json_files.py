"""Schema, snapshot and tag files: Java's text when written, typed errors naming the file when read."""

from __future__ import annotations

import dataclasses
import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, InvalidSchema
from lsm_core.format import CommitKind, DataField, Snapshot, TableSchema
from lsm_core.format.schema import append_arrow_schema, kv_arrow_schema
from lsm_core.format.side_files import Tag
from lsm_core.json_text import pretty
from lsm_core.types import parse

SCHEMA = TableSchema(
    3,
    (
        DataField(0, "dt", parse("STRING NOT NULL"), "the day", "x"),
        DataField(1, "k", parse("BIGINT NOT NULL")),
        DataField(4, "v", parse({"type": "ARRAY", "element": "INT"})),
    ),
    7,
    ("dt",),
    ("dt", "k"),
    {"bucket": "4", "bucket-key": " k "},
    'a "table"',
    1_700_000_000_000,
)
SNAPSHOT = Snapshot(
    5,
    0,
    "base",
    "delta",
    "me",
    2**63 - 1,
    CommitKind.COMPACT,
    1_700_000_000_000,
    base_manifest_list_size=10,
    total_record_count=7,
    delta_record_count=-3,
    watermark=-(2**63),
    properties={"a": "b"},
)


def test_schemas_and_snapshots_come_back_and_pickle() -> None:
    assert TableSchema.from_json(SCHEMA.to_json(), "s") == SCHEMA
    assert Snapshot.from_json(SNAPSHOT.to_json(), "s") == SNAPSHOT
    assert SCHEMA.arrow_schema.names == ["dt", "k", "v"]
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    assert pickle.loads(pickle.dumps(SNAPSHOT)) == SNAPSHOT


def test_a_schema_knows_its_keys() -> None:
    assert SCHEMA.trimmed_primary_keys == ("k",)
    assert SCHEMA.bucket_keys == ("k",)
    assert not SCHEMA.cross_partition
    assert replace(SCHEMA, primary_keys=("k",)).cross_partition
    assert SCHEMA.partition_types == (parse("STRING NOT NULL"),)
    assert SCHEMA.trimmed_key_types == SCHEMA.bucket_key_types == (parse("BIGINT NOT NULL"),)
    assert not SCHEMA.arrow_schema.field("k").nullable
    with pytest.raises(InvalidSchema, match=r"nope.*dt, k, v"):
        SCHEMA.field("nope")


def test_absent_members_are_left_out_and_record_counts_never_are() -> None:
    plain = replace(SNAPSHOT, properties=None, watermark=None, total_record_count=0, delta_record_count=0)
    written = json.loads(plain.to_json())
    assert {"totalRecordCount", "deltaRecordCount"} <= written.keys()
    assert not {"properties", "watermark", "indexManifest", "changelogManifestList"} & written.keys()
    assert None not in written.values()
    assert "comment" not in json.loads(replace(SCHEMA, comment=None).to_json())


def test_old_schemas_get_the_defaults_of_their_day() -> None:
    members = {"id": 0, "fields": [], "highestFieldId": -1, "partitionKeys": [], "primaryKeys": [], "options": {}}
    assert TableSchema.from_json(json.dumps(members).encode(), "s").options == {"bucket": "1", "file.format": "orc"}
    second = TableSchema.from_json(json.dumps({**members, "version": 2}).encode(), "s")
    assert second.options == {"file.format": "orc"}


def test_unknown_members_are_kept() -> None:
    members = {**json.loads(SNAPSHOT.to_json()), "tomorrow": {"x": [1]}}
    found = Snapshot.from_json(json.dumps(members).encode(), "s")
    assert found == dataclasses.replace(SNAPSHOT, others={"tomorrow": {"x": [1]}})
    assert json.loads(found.to_json()) == members


@given(st.sampled_from([SCHEMA.to_json(), SNAPSHOT.to_json()]), st.data())
def test_damaged_files_raise_corrupt_file_naming_the_path(text: bytes, data: st.DataObject) -> None:
    damaged = bytearray(text)
    damaged[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(text))) :]
    for parser in (TableSchema.from_json, Snapshot.from_json, Tag.from_json):
        with pytest.raises(CorruptFile, match="dir/file-1"):
            parser(bytes(damaged), "dir/file-1")
            raise CorruptFile("dir/file-1", "it was still readable")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("id", None),
        ("id", True),
        ("id", "5"),
        ("baseManifestList", 3),
        ("commitKind", "REPAIR"),
        ("commitKind", None),
        ("timeMillis", 1.5),
        ("properties", {"a": 1}),
        ("logOffsets", [1]),
        ("watermark", "x"),
    ],
)
def test_a_wrong_member_of_a_snapshot_is_named(member: str, value: Any) -> None:
    members = {**json.loads(SNAPSHOT.to_json()), member: value}
    with pytest.raises(CorruptFile, match=f"snapshot-5.*{member}"):
        Snapshot.from_json(json.dumps(members).encode(), "snapshot-5")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"primaryKeys": ["zz"]}, "zz"),
        ({"options": {"bucket-key": "zz", "file.format": "parquet"}}, "zz"),
        ({"fields": [{"id": 0, "name": "dt", "type": "SERIAL"}]}, "dt"),
        ({"fields": [{"id": 0, "name": "dt", "type": 7}]}, "dt"),
        ({"fields": [{"id": 0, "name": "dt", "type": "INT"}, {"id": 1, "name": "dt", "type": "INT"}]}, "share a name"),
        (
            {"fields": [{"id": 0, "name": "dt", "type": "INT"}, {"id": 0, "name": "k", "type": "INT"}]},
            "share a field id",
        ),
        ({"fields": None}, "fields"),
        ({"partitionKeys": "dt"}, "partitionKeys"),
    ],
)
def test_an_impossible_schema_is_corrupt_and_says_why(changes: dict[str, Any], reason: str) -> None:
    members = {**json.loads(SCHEMA.to_json()), **changes}
    with pytest.raises(CorruptFile, match=f"schema-3.*{reason}"):
        TableSchema.from_json(json.dumps(members).encode(), "schema-3")


def test_deeply_nested_json_is_refused_not_followed() -> None:
    with pytest.raises(CorruptFile):
        TableSchema.from_json(b'{"a":' * 100_000, "s")


def test_text_looks_as_jackson_prints_it() -> None:
    value: dict[str, Any] = {"a": [], "b": {}, "c": [1, {"d": "é\n"}], "e": None, "f": True, "g": -1.5}
    assert pretty(value) == (
        '{\n  "a" : [ ],\n  "b" : { },\n  "c" : [ 1, {\n    "d" : "é\\n"\n  } ],\n  "e" : null,\n  "f" : true,\n  "g" : -1.5\n}'
    )


def test_a_tags_times_are_read() -> None:
    members = json.loads(SNAPSHOT.to_json())
    assert Tag.from_json(json.dumps(members).encode(), "t") == Tag(SNAPSHOT)
    timed = {**members, "tagCreateTime": [2024, 1, 2, 3, 4], "tagTimeRetained": 86400.0}
    tag = Tag.from_json(json.dumps(timed).encode(), "t")
    assert (tag.create_time_ms, tag.time_retained_ms) == (1_704_164_640_000, 86_400_000)
    assert tag.expires_ms == 1_704_164_640_000 + 86_400_000
    for bad in ([2024, 13, 1], [2024], "now", [2024, 1, True], [2024, 1, 2, 3, 4, 5, 6, 7]):
        with pytest.raises(CorruptFile, match="tagCreateTime"):
            Tag.from_json(json.dumps({**members, "tagCreateTime": bad}).encode(), "t")
    with pytest.raises(CorruptFile, match="tagTimeRetained"):
        Tag.from_json(json.dumps({**members, "tagTimeRetained": "1 d"}).encode(), "t")


def test_data_files_carry_javas_names_and_ids() -> None:
    kv = kv_arrow_schema(SCHEMA)
    assert kv.names == ["_KEY_k", "_SEQUENCE_NUMBER", "_VALUE_KIND", "dt", "k", "v"]
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in kv]
    assert ids == [1073741824, 2147483646, 2147483645, 0, 1, 4]
    assert [field.nullable for field in kv] == [False, False, False, False, False, True]
    element = kv.field("v").type.value_field
    assert (element.name, element.metadata[b"PARQUET:field_id"]) == ("element", str(536870911 + 4096 + 1).encode())
    assert kv_arrow_schema(SCHEMA, thin=True).names == kv.names[1:]
    assert append_arrow_schema(SCHEMA).names == ["dt", "k", "v"]
    assert append_arrow_schema(SCHEMA).remove_metadata().field("k").type == pa.int64()
