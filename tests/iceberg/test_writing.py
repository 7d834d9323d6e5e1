"""Writing of Iceberg metadata: after every kind of commit it shows exactly the files that need no merge."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, SchemaChange
from lsm_core.commit import Committer
from lsm_core.errors import UnsupportedFeature
from lsm_core.format.avro import Container
from lsm_core.iceberg import entry_bytes, writing
from lsm_core.iceberg.manifest_entries import file_names, without_files
from lsm_core.iceberg.manifest_files import (
    IcebergManifest,
    ManifestContent,
    ManifestForm,
    decode_manifest,
    decode_manifest_list,
    encode_manifests,
)
from lsm_core.iceberg.schemas import is_same_schema
from lsm_core.iceberg.writing import write_metadata
from lsm_core.metadata import manifests, snapshots
from lsm_core.storage import LocalFileIO
from tests.iceberg.tables import (
    LOCAL,
    assert_current,
    folder_of,
    listed_files,
    listed_manifests,
    make_table,
    metadata_of,
    records,
    rows,
)


def reopen(root: Path) -> Any:
    return Catalog(str(root)).table("db.t")


def test_an_append_table_shows_every_file_of_every_commit(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    uuid = ""
    for number, part in enumerate("abca"):
        table.write(rows([number], part=part))
        metadata = assert_current(table)
        uuid = uuid or metadata["table-uuid"]
        assert metadata["table-uuid"] == uuid
        assert len(metadata["snapshots"]) == number + 1
        assert metadata["snapshots"][-1]["summary"]["operation"] == "append"
    table.drop_partitions([{"p": "a"}])
    metadata = assert_current(table)
    assert metadata["snapshots"][-1]["summary"]["operation"] == "overwrite"
    assert metadata["snapshots"][-1]["summary"]["deleted-data-files"] == "2"
    # Files of other partitions stay in their manifests.
    assert [manifest["added_snapshot_id"] for manifest in listed_manifests(folder_of(table))] == [5, 2, 3, 5]
    assert len(listed_files(folder_of(table), 4)) == 4  # time travel
    assert [path.name for path in folder_of(table).glob("v*.json")] == ["v5.metadata.json"]


@pytest.mark.parametrize("parts", [True, False])
def test_a_keyed_table_shows_the_top_level(tmp_path: Path, parts: bool) -> None:
    table = make_table(tmp_path, keyed=True, parts=parts)
    for number in range(3):
        table.write(rows([number, 10], f"v{number}"))
        assert assert_current(table)["snapshots"][-1]["summary"]["total-data-files"] == "0"
    table.compact(full=True)
    metadata = assert_current(table)
    assert list(listed_files(folder_of(table)).values()) == [4]
    table.write(rows([11], "new"))
    assert list(listed_files(folder_of(table)).values()) == [4]
    table.compact(full=True)
    assert assert_current(table)["snapshots"][-1]["summary"]["operation"] == "replace"
    assert list(listed_files(folder_of(table)).values()) == [5]
    assert metadata_of(folder_of(table))["table-uuid"] == metadata["table-uuid"]
    (first, *_) = metadata["snapshots"]
    assert first["summary"]["paimon-commit-identity"].count(":") == 2


def test_columns_that_change_get_schemas_and_statistics_by_id(tmp_path: Path) -> None:
    table = make_table(tmp_path, parts=False)
    table.write(rows([1, 2]))
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.rename_column("v", "w"), SchemaChange.add_column("n", "INT")])
    table = reopen(tmp_path)
    table.write(rows([3]).rename_columns(["p", "k", "w"]))
    metadata = assert_current(table)
    assert metadata["current-schema-id"] == metadata["schemas"][-1]["schema-id"] > 0
    assert [schema["schema-id"] for schema in metadata["schemas"]] == list(range(metadata["current-schema-id"] + 1))
    assert {field["id"]: field["name"] for field in metadata["schemas"][-1]["fields"]} == {
        0: "p",
        1: "k",
        2: "w",
        3: "n",
    }
    assert metadata["last-column-id"] == 3
    newest = listed_manifests(folder_of(table))[-1]
    (entry,) = records(folder_of(table) / Path(newest["manifest_path"]).name)
    file = entry["data_file"]
    assert {pair["key"]: pair["value"] for pair in file["null_value_counts"]} == {0: 0, 1: 0, 2: 0, 3: 1}
    assert {pair["key"]: pair["value"] for pair in file["lower_bounds"]} == {
        0: b"a",
        1: (3).to_bytes(8, "little"),
        2: b"v",
    }


def test_tags_are_refs(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    table.create_tag("first", 1)
    assert metadata_of(folder_of(table))["refs"] == {
        "first": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 2**63 - 1}
    }
    table.write(rows([2]))
    table.rename_tag("first", "start")
    table.create_tag("second", 2)
    assert {name: ref["snapshot-id"] for name, ref in metadata_of(folder_of(table))["refs"].items()} == {
        "start": 1,
        "second": 2,
    }
    table.delete_tag("start")
    assert list(metadata_of(folder_of(table))["refs"]) == ["second"]
    assert_current(table)


def test_a_branch_leaves_the_metadata_of_main_alone(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    table.create_tag("base", 1)
    table.create_branch("b", from_tag="base")
    Catalog(str(tmp_path)).table("db.t$branch_b").write(rows([2]))
    before = metadata_of(folder_of(table))
    assert before["current-snapshot-id"] == 1
    table.write(rows([3]))
    assert assert_current(table)["table-uuid"] == before["table-uuid"]


def test_manifests_are_merged_and_old_snapshots_expire(tmp_path: Path) -> None:
    options = {
        "metadata.iceberg.compaction.min.file-num": "2",
        "metadata.iceberg.compaction.max.file-num": "4",
        "snapshot.num-retained.min": "2",
        "snapshot.num-retained.max": "3",
        "metadata.iceberg.previous-versions-max": "2",
        "metadata.iceberg.manifest-compression": "zstd",
        "metadata.iceberg.manifest-legacy-version": "true",
    }
    table = make_table(tmp_path, options)
    for number in range(12):
        table.write(rows([number], part="ab"[number % 2]))
        folder = folder_of(table)
        metadata = metadata_of(folder)
        assert len(metadata["snapshots"]) == min(number + 1, 3)
        newest = metadata["snapshots"][-1]["manifest-list"]
        manifests = records(folder / Path(newest).name)
        assert len(manifests) < 5
        assert sum(m["added_data_files_count"] + m["existing_data_files_count"] for m in manifests) == number + 1
    assert sorted(path.name for path in folder.glob("v*.json")) == [f"v{n}.metadata.json" for n in (10, 11, 12)]
    named = {Path(entry["manifest-list"]).name for entry in metadata["snapshots"]}
    assert {path.name for path in folder.glob("snap-*")} == named


class Failing(LocalFileIO):
    """Local disk that refuses to create Iceberg metadata files while ``fails`` is set."""

    fails = False

    def write_exclusive(self, path: str, data: bytes) -> bool:
        if self.fails and path.endswith(".metadata.json"):
            raise OSError("the disk is gone")
        return super().write_exclusive(path, data)


@pytest.mark.parametrize("missed", [1, 3])
def test_the_next_commit_makes_up_for_a_failure(tmp_path: Path, missed: int, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path, keyed=True)
    table.write(rows([1]))
    before = assert_current(table)
    store = table.store
    store.file_io = Failing()
    store.file_io.fails = True
    with caplog.at_level(logging.WARNING):
        for number in range(missed):
            table.write(rows([2 + number]))
    assert "is committed, but its Iceberg metadata was not written" in caplog.text
    assert metadata_of(folder_of(table))["current-snapshot-id"] == 1
    assert len(list(folder_of(table).glob("*.avro"))) == 1  # nothing of the failed attempts is left
    store.file_io.fails = False
    reopen(tmp_path).compact(full=True)
    after = assert_current(table)
    assert after["table-uuid"] == before["table-uuid"]
    assert [entry["snapshot-id"] for entry in after["snapshots"]] == [1, missed + 2]


def test_an_existing_version_is_not_written_again(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    table.write(rows([2]))
    store, folder = table.store, folder_of(table)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "version-hint.text").write_text("1")
    newest = snapshots.latest(store)
    assert newest is not None
    assert write_metadata(store, newest)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not write_metadata(store, snapshots.read(store, 1))  # a later snapshot has metadata


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"manifest-list" : "', '"manifest-list" : "/etc/'),
        lambda text: text.replace('"spec-id" : 0', '"spec-id" : 7'),
        lambda text: text.replace('"location" : "', '"location" : "/elsewhere'),
        lambda text: json.dumps({**json.loads(text), "snapshots": []}),
        lambda text: json.dumps({**json.loads(text), "schemas": []}) + "x",
    ],
)
def test_metadata_that_cannot_be_extended_is_built_from_the_snapshot(tmp_path: Path, damage: Any) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    table.write(rows([2], part="b"))
    folder = folder_of(table)
    path = folder / "v2.metadata.json"
    path.write_text(damage(path.read_text()))
    table.write(rows([3]))
    metadata = metadata_of(folder)
    assert [entry["snapshot-id"] for entry in metadata["snapshots"]][-1] == 3
    assert len(listed_files(folder)) == 3
    table.write(rows([4]))
    assert len(listed_files(folder)) == 4


def test_damaged_manifests_lead_to_a_rebuild(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    before = assert_current(table)
    folder = folder_of(table)
    (manifest,) = folder.glob("*-m1.avro")
    manifest.write_bytes(manifest.read_bytes()[:-9])
    table.drop_partitions([{"p": "a"}])
    metadata = metadata_of(folder)
    assert listed_files(folder) == {}
    assert metadata["table-uuid"] == before["table-uuid"]


def test_the_catalog_location_is_a_warehouse_of_iceberg(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"metadata.iceberg.storage": "hadoop-catalog"})
    table.write(rows([1]))
    folder = tmp_path / "iceberg" / "db" / "t" / "metadata"
    first = metadata_of(folder)
    assert list(listed_files(folder)) == list(map(str, Path(table.store.root).rglob("*.parquet")))
    Catalog(str(tmp_path)).drop_table("db.t")
    table = make_table(tmp_path, {"metadata.iceberg.storage": "hadoop-catalog"})
    table.write(rows([1, 2]))
    second = metadata_of(folder)
    assert second["table-uuid"] != first["table-uuid"]
    assert len(list(folder.glob("*.avro"))) == 2  # the old table's files are deleted


def test_version_3_assigns_row_ids(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"metadata.iceberg.format-version": "3"})
    table.write(rows([1, 2]))
    table.write(rows([3], part="b"))
    metadata = assert_current(table)
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 3)
    assert [(e["first-row-id"], e["added-rows"]) for e in metadata["snapshots"]] == [(0, 2), (2, 1)]
    assert [manifest["first_row_id"] for manifest in listed_manifests(folder_of(table))] == [0, 2]
    table.write(rows([4]))
    table.compact(full=True)
    assert assert_current(table)["next-row-id"] >= 4


def test_a_lower_format_version_is_refused_by_commits_and_by_the_refresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(tmp_path, {"metadata.iceberg.format-version": "3"})
    table.write(rows([1]))
    Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.set_option("metadata.iceberg.format-version", "2")])
    table = reopen(tmp_path)
    table.write(rows([2]))
    assert "`dredge refresh-iceberg db.t`" in caplog.text and "of version 2 after version 3" in caplog.text
    with pytest.raises(UnsupportedFeature, match=r"set 'metadata\.iceberg\.format-version' = '3'"):
        table.apply(table.plan_maintenance("refresh_iceberg"))
    table.expire_snapshots()
    assert metadata_of(folder_of(table))["format-version"] == 3
    Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.set_option("metadata.iceberg.format-version", "3")])
    table = reopen(tmp_path)
    assert table.apply(table.plan_maintenance("refresh_iceberg")).changed
    after = metadata_of(folder_of(table))
    assert (after["format-version"], after["current-snapshot-id"]) == (3, 2)


def test_a_higher_format_version_builds_the_metadata_again(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    before = assert_current(table)
    Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.set_option("metadata.iceberg.format-version", "3")])
    table = reopen(tmp_path)
    table.write(rows([2]))
    after = assert_current(table)
    assert (after["format-version"], after["table-uuid"]) == (3, before["table-uuid"])


def test_metadata_that_is_switched_on_later_has_all_files(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"metadata.iceberg.storage": "disabled"}, keyed=True)
    table.write(rows([1]))
    table.compact(full=True)
    assert not folder_of(table).exists()
    table = table.copy(LOCAL)
    table.write(rows([2]))
    assert_current(table)
    assert list(listed_files(folder_of(table)).values()) == [1]


@pytest.mark.parametrize("many", [False, True])
def test_files_are_removed_by_the_bytes_as_by_the_entries(
    tmp_path: Path, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if many:
        monkeypatch.setattr(entry_bytes, "_MOST_SEARCHED", 0)
        monkeypatch.setattr(writing, "_MOST_SEARCHED", 0)
        monkeypatch.setattr(entry_bytes, "_CHUNK_BYTES", 1)
    options = {"metadata.iceberg.compaction.min.file-num": "2", "metadata.iceberg.compaction.max.file-num": "2"}
    table = make_table(tmp_path, {**options, "target-file-size": "1 b"}, parts=False)
    for number in range(9):
        table.write(rows([number, -number]))
    store, folder = table.store, folder_of(table)
    for number in (1, 4, 7):
        before = metadata_of(folder)
        table.delete(f"k = {number}")
        after = assert_current(table)
        entry = before["snapshots"][-1]
        newest = after["snapshots"][-1]["summary"]
        assert (newest["operation"], newest["deleted-data-files"], newest["added-data-files"]) == (
            "overwrite",
            "1",
            "0",
        )
        (manifest,) = decode_manifest_list((folder / Path(entry["manifest-list"]).name).read_bytes(), "list")
        data = (folder / manifest.name).read_bytes()
        container = Container(pa.BufferReader(data), "manifest")
        entries = decode_manifest(data, "manifest", store.schema, manifest)
        live = pa.array([status != 2 for status in entries.column("status").to_pylist()])
        names = file_names(entries.column("file_path")).filter(live)
        nothing = pa.array([], pa.string())
        untouched = entry_bytes.rewrite(container, manifest, store.root, (names[1:3], nothing), 300)
        assert untouched is not None
        assert (untouched.known.to_pylist(), untouched.data) == (names[1:3].to_pylist(), b"")
        for some in (names[:1], names[2:5], names):
            short = entry_bytes.rewrite(container, manifest, store.root, (nothing, some), 300)
            assert short is not None
            removed = pc.and_(pc.is_in(file_names(entries.column("file_path")), some), live)
            expected = without_files(entries, removed.to_numpy(zero_copy_only=False), 300)
            assert decode_manifest(short.data, "manifest", store.schema, short.row).equals(expected)
            form = ManifestForm(store.schema, has_row_ids=False, codec="snappy", target_bytes=1 << 20)
            (encoded,) = encode_manifests([expected], form, 300, ManifestContent.DATA)
            assert replace(short.row, length=0, partitions=()) == replace(encoded.row, length=0, partitions=())
            assert short.removed.num_rows == len(some)
        assert entry_bytes.rewrite(container, manifest, "/elsewhere", (nothing, names), 300) is None
        wrong = replace(manifest, added_files=manifest.added_files + 1)
        assert entry_bytes.rewrite(container, wrong, store.root, (nothing, names), 300) is None


def test_a_repeated_commit_makes_up_for_missing_metadata(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.write(rows([1]))
    store = table.store
    store.file_io = Failing()
    with table.new_write() as writer:
        writer.write(rows([2]))
        messages = writer.prepare_commit()
    store.file_io.fails = True
    assert Committer(store, "user").commit(messages, commit_identifier=5).snapshot_ids == [2]
    assert metadata_of(folder_of(table))["current-snapshot-id"] == 1
    store.file_io.fails = False
    assert Committer(store, "user").commit(messages, commit_identifier=5).snapshot_ids == [2]
    assert [entry["snapshot-id"] for entry in assert_current(table)["snapshots"]] == [1, 2]


def test_schemas_of_paimon_1_4_are_the_same_schemas() -> None:
    inner = {"type": "list", "element-id": 9, "element-required": True, "element": "string"}
    kind = {"type": "map", "key-id": 7, "key": "int", "value-id": 8, "value-required": False, "value": inner}
    fields = [{"id": 0, "name": "m", "required": False, "type": kind}]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    older = {**schema, "fields": [{**fields[0], "type": {**kind, "value": {**inner, "element-required": False}}}]}
    assert is_same_schema(older, schema)
    assert not is_same_schema({**schema, "fields": [{**fields[0], "required": True}]}, schema)
    assert not is_same_schema({**schema, "fields": [{**fields[0], "name": "n"}]}, schema)


@pytest.mark.parametrize("kept", ["0", "9"])
def test_metadata_returns_to_an_older_snapshot(tmp_path: Path, kept: str) -> None:
    # A kept file of the older snapshot may name manifest lists that expired since.
    retained = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}
    table = make_table(tmp_path, {**retained, "metadata.iceberg.previous-versions-max": kept})
    for number in range(4):
        table.write(rows([number]))
    table.create_tag("third", 3)
    table.create_tag("second", 2)
    before = assert_current(table)
    store = table.store
    for number in (3, 4):
        store.delete(store.snapshot_path(number))
    snapshots.point_latest(store)
    assert write_metadata(store, snapshots.read(store, 2))
    after = assert_current(table)
    assert (after["table-uuid"], after["snapshots"]) == (before["table-uuid"], before["snapshots"][:1])
    assert list(after["refs"]) == ["second"]
    table.write(rows([9]))
    assert [entry["snapshot-id"] for entry in assert_current(table)["snapshots"]] == [2, 3]


def test_version_3_shows_deletion_vectors(tmp_path: Path) -> None:
    vectors = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"}
    table = make_table(tmp_path, {**vectors, "metadata.iceberg.format-version": "3"}, keyed=True, parts=False)
    table.write(rows(list(range(100))))
    table.compact(full=True)
    assert_current(table, any_level=True)
    deleted = []
    for number in range(3):
        table.write(rows([number, number + 50], "new"))
        table.compact()
        summary = assert_current(table, any_level=True)["snapshots"][-1]["summary"]
        deleted.append(int(summary["total-position-deletes"]))
        assert int(summary["total-records"]) - deleted[-1] == 100
        newest = snapshots.latest(table.store)
        assert newest is not None
        known = {
            (vector.data_file, vector.offset, vector.length, vector.cardinality)
            for entry in manifests.index_entries(table.store, newest)
            for vector in entry.deletion_vectors or ()
        }
        shown = {
            (Path(file["referenced_data_file"]).name, file["content_offset"], file["content_size_in_bytes"], count)
            for manifest in listed_manifests(folder_of(table))
            if manifest["content"] == 1
            for entry in records(folder_of(table) / Path(manifest["manifest_path"]).name)
            for file in [entry["data_file"]]
            for count in [file["record_count"]]
        }
        assert shown == known
    assert max(deleted) > 0


def test_every_verb_that_commits_keeps_the_metadata_true(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"partition.expiration-time": "1 d", "partition.timestamp-formatter": "yyyy-MM-dd"})
    table.write(rows([1, 2, 3], part="2020-01-01"))
    table.write(rows([4, 5], part="2990-01-01"))
    uuid = assert_current(table)["table-uuid"]
    verbs: list[Any] = [
        lambda: table.update("k = 4", {"v": "'x'"}),
        lambda: table.delete("k = 5"),
        lambda: table.write(rows([7], part="2990-01-01"), overwrite=True),
        lambda: table.apply(table.plan_maintenance("manifests")),
        lambda: table.analyze(),
        lambda: table.expire_partitions(),
        lambda: table.write(rows([8], part="2990-01-02")),
        lambda: table.expire_snapshots(),
        lambda: table.truncate(),
    ]
    for verb in verbs:
        verb()
        assert assert_current(table)["table-uuid"] == uuid
    assert listed_files(folder_of(table)) == {}


@pytest.mark.parametrize(
    ("column", "reason"),
    [("TIMESTAMP(9)", "precision 3 to 6"), ("TIME(6)", "precision 0 to 3"), ("VARIANT", "no VARIANT")],
)
def test_types_that_iceberg_does_not_have_are_refused(tmp_path: Path, column: str, reason: str) -> None:
    table = make_table(tmp_path, parts=False)
    table.write(rows([1]))
    with pytest.raises(UnsupportedFeature, match=rf"'n' of type .*{reason}"):
        Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.add_column("n", column)])
    table.write(rows([2]))
    assert_current(table)


class Overtaken(LocalFileIO):
    """Local disk on which another commit replaces the newest metadata after it was listed, once."""

    overtakes = False

    def read_bytes(self, path: str) -> bytes:
        if self.overtakes and path.endswith("v1.metadata.json"):
            self.overtakes = False
            Path(path).rename(path.replace("v1.", "v2."))
        return super().read_bytes(path)


def test_metadata_that_is_replaced_after_the_listing_is_listed_again(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(2):
        table.write(rows([number]))
    before = metadata_of(folder_of(table))
    store, folder = table.store, folder_of(table)
    store.file_io = Overtaken()
    (folder / "v2.metadata.json").rename(folder / "v1.metadata.json")
    store.file_io.overtakes = True
    table.write(rows([3]))
    assert not store.file_io.overtakes
    after = assert_current(table)
    assert after["table-uuid"] == before["table-uuid"]
    assert [entry["snapshot-id"] for entry in after["snapshots"]] == [1, 2, 3]


def test_a_large_manifest_is_not_merged_for_a_few_small_ones() -> None:
    def sized(*lengths: int) -> list[IcebergManifest]:
        return [IcebergManifest(f"m{n}", n, ManifestContent.DATA, 1, 1, 1) for n in lengths]

    def kept(*lengths: int) -> list[int]:
        return [manifest.length for manifest in writing._worth_merging(sized(*lengths))]

    assert kept(3000, 2, 1, 3) == [2, 1, 3]
    assert kept(5, 4, 3, 2) == [5, 4, 3, 2]
    assert kept(900, 30, 8, 7, 6) == [8, 7, 6]
    assert kept(10, 1) == [10, 1]
