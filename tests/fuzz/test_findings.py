"""What the fuzz test found once: each stays a typed error."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core.commit.attempt import _inherited_statistics
from lsm_core.errors import CorruptFile, InvalidSchema
from lsm_core.files.formats import open_source
from lsm_core.format.avro import encode_rows, read_records
from lsm_core.format.manifest import decode_manifest
from lsm_core.json_text import ObjectReader, parse_object
from lsm_core.metadata import snapshots
from lsm_core.metadata.manifests import data_manifests, live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from lsm_core.types import parse
from tests.fuzz import structured
from tests.fuzz.cases import Damage
from tests.support.data import unpack_golden


def table(place: Path, name: str) -> TableStore:
    return TableStore.open(LocalFileIO(), str(unpack_golden(name, place)), "db.t")


def test_a_folder_where_a_file_should_be_is_named(tmp_path: Path) -> None:
    files = LocalFileIO()
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "file" / "below", tmp_path / ("n" * 300)):
        for read in (files.read_bytes, files.open_input):
            with pytest.raises(CorruptFile) as caught:
                read(str(path))
            assert caught.value.path == str(path)
    with pytest.raises(FileNotFoundError):
        files.open_input(str(tmp_path / "missing"))


def test_numbers_beyond_64_bits_and_half_characters_are_no_metadata() -> None:
    with pytest.raises(CorruptFile, match="64 bits"):
        ObjectReader({"id": 2**63}, "p").integer("id")
    assert ObjectReader({"id": -(2**63)}, "p").integer("id") == -(2**63)
    with pytest.raises(CorruptFile, match="surrogate"):
        parse_object(rb'{"a": "\ud800"}', "p")
    assert parse_object(rb'{"a": "\ud83d\ude00"}', "p") == {"a": "😀"}


@pytest.mark.parametrize("given", [float("inf"), float("nan"), 1.5, "7", True, None])
def test_ids_of_fields_are_whole_numbers(given: object) -> None:
    with pytest.raises(InvalidSchema):
        parse({"type": "ROW", "fields": [{"id": given, "name": "a", "type": "INT"}]})


def test_a_page_of_zeros_is_not_a_million_entries(tmp_path: Path) -> None:
    store = table(tmp_path, "dedup_full")
    newest = snapshots.latest(store)
    assert newest is not None
    meta = data_manifests(store, newest)[-1]
    path = Path(store.manifest_path(meta.file_name))
    schema, records = read_records(path.read_bytes(), "golden")
    bomb = structured.avro_bomb(Random(3), schema)
    with pytest.raises(CorruptFile, match=path.name):
        decode_manifest(bomb, path.name, len(records))


@pytest.mark.parametrize(
    ("member", "value"), [("_LEVEL", 5000), ("_LEVEL", -1), ("_ROW_COUNT", -1), ("_FILE_SIZE", -5)]
)
def test_entries_that_no_table_has_are_corrupt(tmp_path: Path, member: str, value: int) -> None:
    store = table(tmp_path, "dedup_full")
    newest = snapshots.latest(store)
    assert newest is not None
    meta = data_manifests(store, newest)[-1]
    path = Path(store.manifest_path(meta.file_name))

    def lie(record: dict[str, dict[str, int]]) -> None:
        record["_FILE"][member] = value

    changed = structured.edit_avro(path.read_bytes(), lie)
    with pytest.raises(CorruptFile, match=f"{member[1:].lower()}"):
        decode_manifest(changed, str(path))
    assert live_entries(store, newest).num_rows > 0


def test_statistics_nested_beyond_reason_are_not_inherited(tmp_path: Path) -> None:
    store = table(tmp_path, "stream_commits")
    newest = snapshots.latest(store)
    assert newest is not None
    assert newest.statistics is not None
    assert _inherited_statistics(store, newest, store.schema.id) == newest.statistics
    Path(store.statistics_path(newest.statistics)).write_bytes(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    assert _inherited_statistics(store, newest, store.schema.id) is None


def test_damage_can_be_undone(tmp_path: Path) -> None:
    """The fuzz test's own promise: after a case the table is what it was."""
    root = unpack_golden("tags_branches", tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for seed in range(40):
        Damage(Random(seed), root).apply().undo()
        assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before, seed


def test_text_that_is_none_is_seen(tmp_path: Path) -> None:
    raw = pa.array([b"\xff\xfe"], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": broken}), path)
    source = open_source(LocalFileIO(), str(path))
    with pytest.raises(CorruptFile, match=r"x\.parquet"):
        list(source.batches(["a"], 10))
    source.close()


def test_a_file_with_a_column_twice_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(CorruptFile, match=r"x\.parquet.*same name"):
        open_source(LocalFileIO(), str(path))


def test_a_row_type_without_fields_is_written_to_avro() -> None:
    column = pa.array([{}, None, {}], pa.struct([]))
    written = encode_rows(pa.RecordBatch.from_arrays([column], schema=pa.schema([("s", column.type)])))
    assert written.lengths.tolist() == [1, 1, 1]
    assert bytes(written.data) == b"\x02\x00\x02"
