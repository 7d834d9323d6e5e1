"""Manifests: adds and deletes cancel as in Java, and no bytes from outside are trusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, DredgeError, UnsupportedFeature
from lsm_core.format import (
    EMPTY_ROW,
    EMPTY_STATS,
    ENTRY_SCHEMA,
    encode_row,
    entries_to_table,
    table_to_entries,
)
from lsm_core.format.avro import compress, header, read_records, records_piece, write_records
from lsm_core.format.manifest import (
    MANIFEST_ENTRY,
    DataFileMeta,
    ManifestEntry,
    ManifestFileMeta,
    _encode_slice,
    _record,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
    from_avro_table,
    manifest_meta,
    merge_entries,
)
from lsm_core.format.stats import SimpleStats
from lsm_core.types import parse
from tests.support.samples import examples

STRING = parse("STRING")


def entry(name: str = "f", kind: int = 0, **changes: Any) -> ManifestEntry:
    partition, bucket = changes.pop("partition", EMPTY_ROW), changes.pop("bucket", 0)
    file = DataFileMeta(name, 10, 2, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 1, 0, 0)
    return ManifestEntry(kind, partition, bucket, 4, replace(file, **changes))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_COUNTS = st.integers(0, 2**63 - 1)
_STATS = st.builds(
    SimpleStats,
    st.binary(max_size=9),
    st.binary(max_size=9),
    st.none() | st.lists(st.none() | _LONGS, max_size=3).map(tuple),
)
_FILES = st.builds(
    DataFileMeta,
    file_name=_TEXTS,
    file_size=_COUNTS,
    row_count=_COUNTS,
    min_key=st.binary(max_size=9),
    max_key=st.binary(max_size=9),
    key_stats=_STATS,
    value_stats=_STATS,
    min_sequence_number=_LONGS,
    max_sequence_number=_LONGS,
    schema_id=_LONGS,
    level=st.integers(0, 9),
    extra_files=st.lists(_TEXTS, max_size=2).map(tuple),
    creation_time_ms=st.none() | _LONGS,
    delete_row_count=st.none() | _LONGS,
    embedded_index=st.none() | st.binary(max_size=5),
    file_source=st.none() | st.integers(0, 1),
    value_stats_cols=st.none() | st.lists(_TEXTS, max_size=2).map(tuple),
    external_path=st.none() | _TEXTS,
    first_row_id=st.none() | _LONGS,
    write_cols=st.none() | st.lists(_TEXTS, max_size=2).map(tuple),
)
_ENTRIES = st.builds(
    ManifestEntry, st.integers(0, 1), st.binary(max_size=9), st.integers(-2, 9), st.integers(-2, 9), _FILES
)


@settings(max_examples=examples(60))
@given(st.lists(_ENTRIES, max_size=5))
def test_any_entries_come_back_from_objects_columns_and_avro(entries: list[ManifestEntry]) -> None:
    table = entries_to_table(entries)
    assert table.schema.equals(ENTRY_SCHEMA)
    assert table_to_entries(table) == entries
    data = encode_manifest(table)
    assert table_to_entries(decode_manifest(data, "m")) == entries
    assert encode_manifest(table) == data


def test_manifests_of_many_slices_and_blocks_are_whole_and_in_order() -> None:
    entries = [
        entry(f"data-{i}", file_size=10**i if i < 18 else i, delete_row_count=i % 3 or None) for i in range(9000)
    ]
    table = entries_to_table(entries)
    data = encode_manifest(table)
    assert data.count(data[-16:]) > 3
    assert decode_manifest(data, "m").equals(table)
    assert encode_manifest(pa.concat_tables([table.slice(0, 5000), table.slice(5000)])) == data


def test_a_null_in_a_required_field_is_never_written() -> None:
    table = entries_to_table([entry()])
    column = table.column_names.index("file_name")
    with pytest.raises(ValueError, match="required"):
        encode_manifest(table.set_column(column, pa.field("file_name", pa.string()), pa.array([None], pa.string())))


def test_few_entries_have_the_bytes_that_many_have() -> None:
    few = entries_to_table([entry(f"data-{number}.parquet") for number in range(3)])
    assert (
        records_piece(MANIFEST_ENTRY, map(_record, few.to_pylist())).data.tobytes() == _encode_slice(few).data.tobytes()
    )


def scalar_merge(entries: list[ManifestEntry]) -> list[ManifestEntry]:
    """Java's `FileEntry.mergeEntries`, entry by entry."""
    present: dict[Any, ManifestEntry] = {}
    for item in entries:
        if item.kind == 0:
            if item.identity in present:
                raise CorruptFile("m", item.file.file_name)
            present[item.identity] = item
        elif item.identity in present:
            del present[item.identity]
        else:
            present[item.identity] = item
    return list(present.values())


_FEW = st.builds(
    entry,
    st.sampled_from(["a", "b"]),
    st.integers(0, 1),
    level=st.integers(0, 1),
    bucket=st.integers(0, 1),
    partition=st.sampled_from([EMPTY_ROW, encode_row(["x"], [STRING])]),
    extra_files=st.sampled_from([(), ("i",)]),
    embedded_index=st.sampled_from([None, b"", b"i"]),
    external_path=st.sampled_from([None, "p"]),
    row_count=st.integers(0, 9),
)


@settings(max_examples=examples(200))
@given(st.lists(_FEW, max_size=12))
def test_merging_is_javas_merging(entries: list[ManifestEntry]) -> None:
    try:
        expected = scalar_merge(entries)
    except CorruptFile as error:
        with pytest.raises(CorruptFile, match="twice"):
            merge_entries(entries_to_table(entries), error.path)
        return
    assert table_to_entries(merge_entries(entries_to_table(entries))) == expected


def test_an_upgrade_leaves_the_file_on_its_new_level_only() -> None:
    old = entry("f", level=0)
    moves = [old, replace(old, kind=1), ManifestEntry(0, old.partition, 0, 4, old.file.upgrade(5))]
    left = table_to_entries(merge_entries(entries_to_table(moves)))
    assert [(e.kind, e.file.level) for e in left] == [(0, 5)]


def test_adding_a_file_that_is_there_names_it() -> None:
    with pytest.raises(CorruptFile, match=r"manifest-7.*data-1\.parquet.*twice"):
        merge_entries(entries_to_table([entry("data-1.parquet"), entry("data-1.parquet")]), "manifest-7")


def test_a_manifest_says_its_ranges() -> None:
    days = [encode_row([day], [STRING]) for day in ("2024-01-02", None, "2024-01-01")]
    table = entries_to_table(
        [
            entry("a", partition=days[0], bucket=1, schema_id=2),
            entry("b", partition=days[1], bucket=3, level=5),
            entry("c", 1, partition=days[2], bucket=2),
        ]
    )
    meta = manifest_meta(table, "m", 77, [STRING], 9)
    assert meta == ManifestFileMeta(
        "m", 77, 2, 1, SimpleStats(days[2], days[0], (1,)), 2, min_bucket=1, max_bucket=3, min_level=0, max_level=5
    )
    empty = manifest_meta(table.slice(0, 0), "m", 1, [], 9)
    assert (empty.schema_id, empty.min_bucket, empty.partition_stats) == (9, None, EMPTY_STATS)


def test_lists_keep_row_ids_only_when_there_are_any() -> None:
    plain = ManifestFileMeta("m", 1, 1, 0, EMPTY_STATS, 0, 0, 1, 0, 5)
    tracked = replace(plain, min_row_id=0, max_row_id=9)
    assert decode_manifest_list(encode_manifest_list([]), "l") == []
    assert decode_manifest_list(encode_manifest_list([plain]), "l") == [plain]
    assert decode_manifest_list(encode_manifest_list([plain, tracked]), "l") == [plain, tracked]
    assert "_MIN_ROW_ID" not in str(read_records(encode_manifest_list([plain]), "l")[0])


def test_older_shorter_records_are_read_with_nulls() -> None:
    fields = MANIFEST_ENTRY["fields"]
    old = {**MANIFEST_ENTRY, "fields": [*fields[:-1], {**fields[-1], "type": {**fields[-1]["type"]}}]}
    old["fields"][-1]["type"]["fields"] = [f for f in fields[-1]["type"]["fields"] if f["name"] not in _NEWER]
    records = read_records(encode_manifest(entries_to_table([entry("f", delete_row_count=3)])), "m")[1]
    found = table_to_entries(decode_manifest(write_records(old, records), "m"))[0].file
    assert (found.delete_row_count, found.embedded_index, found.write_cols) == (3, None, None)


_NEWER = {"_EMBEDDED_FILE_INDEX", "_FILE_SOURCE", "_VALUE_STATS_COLS", "_EXTERNAL_PATH", "_FIRST_ROW_ID", "_WRITE_COLS"}


def test_another_readers_nested_columns_map_to_the_same_entries() -> None:
    entries = [entry("a", creation_time_ms=1_700_000_000_123, extra_files=("x",)), entry("b", write_cols=("c",))]
    table = entries_to_table(entries)
    nested = pa.Table.from_pylist(read_records(encode_manifest(table), "m")[1])
    file = nested.column("_FILE").combine_chunks()
    index = file.type.get_field_index("_CREATION_TIME")
    children = [file.field(i) for i in range(file.type.num_fields)]
    children[index] = children[index].cast(pa.timestamp("ms", "UTC"))
    moved = pa.StructArray.from_arrays(children, names=[f.name for f in file.type])
    nested = nested.set_column(nested.column_names.index("_FILE"), "_FILE", moved)
    assert from_avro_table(nested, "m").equals(table)
    with pytest.raises(CorruptFile, match="_FILE"):
        from_avro_table(nested.drop_columns(["_FILE"]), "m")
    with pytest.raises(UnsupportedFeature, match="serializer version"):
        from_avro_table(nested.set_column(0, "_VERSION", pa.array([2, 3])), "m")
    no_name = pa.StructArray.from_arrays(children[1:], names=[f.name for f in file.type][1:])
    with pytest.raises(CorruptFile, match="file_name"):
        from_avro_table(nested.set_column(nested.column_names.index("_FILE"), "_FILE", no_name), "m")


DATA = encode_manifest(entries_to_table([entry(f"data-{i}") for i in range(50)]))
SYNC = DATA[-16:]
HEADER = DATA[: DATA.index(SYNC) + 16]


@pytest.mark.parametrize("decode", [decode_manifest, decode_manifest_list, decode_index_manifest])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_damaged_files_raise_corrupt_file_naming_the_path(decode: Any, data: st.DataObject) -> None:
    damaged = bytearray(DATA)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with pytest.raises(DredgeError, match="dir/manifest-9"):
        decode(bytes(damaged), "dir/manifest-9")
        raise CorruptFile("dir/manifest-9", "it was still readable")


@pytest.mark.parametrize("cut", [0, 3, 4, 40, -1, -16, -17])
def test_a_truncated_manifest_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptFile, match="manifest-9"):
        decode_manifest(DATA[:cut], "manifest-9")


def test_a_decompression_bomb_is_refused() -> None:
    bomb = zstd.compress(bytes(400 << 20), 1)
    for count in (1, 10**9):
        block = _varint(count) + _varint(len(bomb)) + bomb + SYNC
        with pytest.raises(CorruptFile, match="m9"):
            decode_manifest(HEADER + block, "m9")


@pytest.mark.parametrize("codec", ["null", "zstandard", "deflate", "snappy", "bzip2", "xz"])
def test_manifests_of_every_codec_that_avro_has_are_read(codec: str) -> None:
    record = b"\x0eseven_1"
    plain = record * 1000
    block = compress(plain, codec, 1)
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}]}
    data = header(schema, codec, SYNC) + _varint(1000) + _varint(len(block)) + block + SYNC
    assert read_records(data, "m")[1] == [{"s": "seven_1"}] * 1000
    with pytest.raises(CorruptFile, match=r"m3"):
        read_records(data.replace(codec.encode(), b"?" * len(codec), 1), "m3")


def test_indexes_of_small_files_may_fill_a_manifest_with_zeros() -> None:
    table = entries_to_table([entry(f"f{i}", embedded_index=b"\x01" + bytes(600_000)) for i in range(40)])
    data = encode_manifest(table)
    assert len(data) < 24_000_000 // 1000
    assert decode_manifest(data, "m").equals(table)


def test_more_bytes_than_its_records_can_have_is_refused() -> None:
    bomb = zstd.compress(bytes(16 << 20), 1)
    block = _varint(1) + _varint(len(bomb)) + bomb + SYNC
    with pytest.raises(CorruptFile, match=r"m9.*unpack to .* for \d records"):
        decode_manifest(HEADER + 9 * block, "m9")


def test_more_records_than_bytes_is_refused() -> None:
    block = zstd.compress(b"")
    forged = HEADER + _varint(10**12) + _varint(len(block)) + block + SYNC
    with pytest.raises(CorruptFile, match="claims"):
        decode_manifest(forged, "m")


def _varint(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
