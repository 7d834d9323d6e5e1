"""Index files that Java wrote are found, read and written again to the same bytes; others are refused by name."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from lsm_core.errors import CorruptFile, DredgeError, UnsupportedFeature
from lsm_core.format.avro import write_records
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import INDEX_MANIFEST, IndexManifestEntry, decode_index_manifest, encode_index_manifest
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, hash_index, index_file_path, read_vector
from lsm_core.metadata.store import TableStore
from tests.golden.cases import cases

CASES = {case.name: case for case in cases()}
_WITH_VECTORS = [n for n, c in CASES.items() if c.story["schema"]["options"].get("deletion-vectors.enabled") == "true"]
_WITH_HASHES = [n for n, c in CASES.items() if any(f["type"] == "HASH" for f in c.story["index_files"] or ())]


def found_in(store: TableStore) -> list[DeletionFile]:
    read = [snapshots.read(store, number) for number in snapshots.list_ids(store)]
    places = [place for snapshot in read for place in deletion_vectors(store, snapshot).values()]
    return [file for place in places for file in place.values()]


@pytest.mark.parametrize("name", _WITH_VECTORS)
def test_deletion_vectors_of_java_come_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    store = CASES[name].unpack(tmp_path)
    files = found_in(store)
    assert files
    for file in files:
        vector = read_vector(store, file)
        assert vector.cardinality == file.cardinality
        wide = bool(store.options.get("deletion-vectors.bitmap64"))
        blob, length = vector.to_bytes(bitmap64=wide)
        assert Path(file.path).read_bytes()[file.offset :].startswith(blob)
        assert length == file.length


def test_partitions_and_buckets_choose_what_is_found(tmp_path: Path) -> None:
    store = CASES["dv_append"].unpack(tmp_path)
    snapshot = snapshots.read(store, 4)
    everything = deletion_vectors(store, snapshot)
    assert len(everything) == 2
    first = next(iter(everything))
    assert deletion_vectors(store, snapshot, partitions=[first[0]]) == {first: everything[first]}
    assert deletion_vectors(store, snapshot, buckets=[0]) == everything
    assert deletion_vectors(store, snapshot, buckets=[1]) == {}
    assert deletion_vectors(store, snapshot, partitions=[EMPTY_ROW]) == {}


@pytest.mark.parametrize(
    "change",
    [{"offset": 0}, {"offset": 2}, {"offset": 1 << 40}, {"length": -1}, {"length": 1 << 40}, {"cardinality": 99}],
)
def test_a_range_that_is_wrong_names_the_index_file(change: dict[str, int], tmp_path: Path) -> None:
    store = CASES["dv_append"].unpack(tmp_path)
    file = found_in(store)[0]
    with pytest.raises(CorruptFile, match=file.index_file):
        read_vector(store, replace(file, **change))  # type: ignore[arg-type]


def test_a_missing_or_emptied_or_newer_index_file_is_named(tmp_path: Path) -> None:
    store = CASES["dv_append"].unpack(tmp_path)
    file = found_in(store)[0]
    for content in (b"", b"\x02" + Path(file.path).read_bytes()[1:], None):
        Path(file.path).unlink() if content is None else Path(file.path).write_bytes(content)
        with pytest.raises(CorruptFile, match=file.index_file):
            read_vector(store, file)


@pytest.mark.parametrize("name", _WITH_HASHES)
def test_hash_indexes_hold_the_hashes_of_the_keys(name: str, tmp_path: Path) -> None:
    store = CASES[name].unpack(tmp_path)
    latest = snapshots.latest(store)
    assert latest is not None
    entries = [entry for entry in manifests.index_entries(store, latest) if entry.index_type == "HASH"]
    assert entries
    live = manifests.live_entries(store, latest)
    for entry in entries:
        hashes = hash_index(store, entry)
        assert len(set(hashes.tolist())) == entry.row_count
        assert any(
            p == entry.partition and b == entry.bucket
            for p, b in zip(live.column("partition").to_pylist(), live.column("bucket").to_pylist(), strict=True)
        )
    short = replace(entries[0], row_count=entries[0].row_count + 1)
    with pytest.raises(CorruptFile, match=short.file_name):
        hash_index(store, short)
    with pytest.raises(CorruptFile, match=short.file_name):
        hash_index(store, replace(entries[0], file_size=entries[0].file_size - 4))


def test_an_index_file_never_leads_outside_the_table(tmp_path: Path) -> None:
    store = CASES["dv_append"].unpack(tmp_path)
    entry = manifests.index_entries(store, snapshots.read(store, 4))[0]
    for wrong in (
        {"file_name": "../../x"},
        {"file_name": "/etc/passwd"},
        {"file_name": "a\0b"},
        {"external_path": "/etc/passwd"},
    ):
        with pytest.raises(DredgeError):
            index_file_path(store, replace(entry, **wrong))  # type: ignore[arg-type]
    beside = TableStore(store.file_io, store.root, "db.t", store.schema, {"index-file-in-data-file-dir": "true"})
    assert index_file_path(beside, entry) == f"{store.bucket_dir(entry.partition, 0)}/{entry.file_name}"


@pytest.mark.parametrize("name", [*_WITH_VECTORS, *_WITH_HASHES])
def test_index_manifests_come_back_record_for_record_with_the_java_schema(name: str, tmp_path: Path) -> None:
    store = CASES[name].unpack(tmp_path)
    paths = list(Path(store.root).glob("manifest/index-manifest-*"))
    assert paths
    found: list[IndexManifestEntry] = []
    for path in paths:
        entries = decode_index_manifest(path.read_bytes(), str(path))
        again = encode_index_manifest(entries)
        found += entries
        assert decode_index_manifest(again, "again") == entries
        theirs, ours = (fastavro.reader(io.BytesIO(data)) for data in (path.read_bytes(), again))
        assert ours.codec == theirs.codec
        mine, java = ours.writer_schema, theirs.writer_schema
        assert isinstance(mine, dict)
        assert isinstance(java, dict)
        assert mine["fields"] == java["fields"][: len(mine["fields"])]
        assert [{**row, "_GLOBAL_INDEX": None} for row in ours] == [{"_GLOBAL_INDEX": None, **row} for row in theirs]
    with pytest.raises(UnsupportedFeature, match="global"):
        encode_index_manifest([replace(item, is_global=True) for item in found])


def test_an_index_manifest_with_other_types_is_refused() -> None:
    numbers: dict[str, Any] = dict.fromkeys(("_VERSION", "_KIND", "_BUCKET", "_FILE_SIZE", "_ROW_COUNT"), 1)
    row = numbers | {"_PARTITION": b"", "_INDEX_TYPE": "DELETION_VECTORS", "_FILE_NAME": "index-1"}
    for name, wrong, kind in (
        ("f1", "1", "string"),
        ("f2", b"1", "bytes"),
        ("f0", 7, "long"),
        ("_CARDINALITY", 1.5, ["null", "double"]),
    ):
        schema = copy.deepcopy(INDEX_MANIFEST)
        fields = schema["fields"][8]["type"][1]["items"][1]["fields"]
        next(field for field in fields if field["name"] == name)["type"] = kind
        item = {"f0": "data-1", "f1": 1, "f2": 2, "_CARDINALITY": 3, name: wrong}
        data = write_records(schema, [{**row, "_DELETIONS_VECTORS_RANGES": [item], "_EXTERNAL_PATH": None}])
        with pytest.raises(CorruptFile, match="index-manifest-1"):
            decode_index_manifest(data, "index-manifest-1")
