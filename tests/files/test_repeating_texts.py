"""Texts that repeat, carried as Arrow dictionaries: the same values, files and statistics as plain text gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.arrays import (
    SharedDictionaries,
    concat_columns,
    distinct,
    plain,
    plain_batch,
    plain_table,
    table_of,
    take_rows,
    unified,
)
from lsm_core.compact import run_bucket_task
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.files import KeyValueFileWriter, open_append
from lsm_core.files.formats import open_source
from lsm_core.files.formats.parquet import ParquetSink
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.metadata.store import TableStore
from lsm_core.read import plan_scan, read_bucket_merged, to_arrow, to_batches
from lsm_core.read.batch_read import read_as_table
from lsm_core.storage import LocalFileIO
from tests.support.stores import full_tasks, live_files, make_store, read, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING", "t": "STRING"}
TEXTS = st.lists(st.sampled_from(["", "a", "b", "a\0", "ä", None, "a long text that is not inlined"]), max_size=12)


def coded(values: list[str | None], order: int = 0) -> pa.DictionaryArray:
    """The values with a dictionary of another order, that holds one more than is used."""
    known = sorted({value for value in values if value is not None} | {"unused"}, reverse=bool(order % 2))
    codes = [None if value is None else known.index(value) for value in values]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(known, pa.string()))


@given(st.lists(TEXTS, min_size=1, max_size=4), st.booleans(), st.randoms(use_true_random=False))
def test_joining_taking_and_reducing_keep_every_value(parts: list[list[Any]], mixed: bool, chance: Any) -> None:
    columns: list[pa.Array] = [coded(values, number) for number, values in enumerate(parts)]
    if mixed:
        columns[0] = plain(columns[0])
    expected = [value for values in parts for value in values]
    whole = concat_columns(columns)
    assert plain(whole).to_pylist() == expected
    if not expected:
        return
    rows = [chance.randrange(len(expected)) for _ in range(5)]
    assert plain(take_rows(whole, pa.array(rows, pa.uint32()))).to_pylist() == [expected[row] for row in rows]
    if pa.types.is_dictionary(whole.type):
        least = distinct(whole)
        assert plain(least).to_pylist() == expected
        assert sorted(least.dictionary.to_pylist()) == sorted({value for value in expected if value is not None})


def test_batches_of_one_table_may_be_of_either_kind_and_a_row_group_has_one_dictionary() -> None:
    batches = [pa.record_batch({"s": coded(["a", None], number)}) for number in (0, 1)]
    both = unified(table_of(batches))
    assert both.schema.field("s").type == batches[0].schema.field("s").type
    assert both["s"].num_chunks == 1
    assert both["s"].to_pylist() == ["a", None, "a", None]
    mixed = table_of([batches[0], pa.record_batch({"s": ["b"]})])
    assert mixed.schema.field("s").type == pa.string()
    assert mixed["s"].to_pylist() == ["a", None, "b"]


def texts(rows: int, values: int, seed: int) -> pa.Array:
    random = np.random.default_rng(seed)
    words = pa.array([None, *(f"word {number:04d}" for number in range(values))])
    return words.take(pa.array(random.integers(0, values + 1, rows)))


def in_file(path: Path, groups: list[pa.Table]) -> tuple[pq.ParquetFile, Any]:
    sink = ParquetSink(LocalFileIO(), str(path), groups[0], codec="zstd", level=1)
    for group in groups:
        sink.write(group)
    _, values = sink.close()
    return pq.ParquetFile(path), values


def described(file: pq.ParquetFile) -> list[Any]:
    """What the footer says of every column chunk; only sizes may differ, for values stand in another order."""
    found: list[Any] = []
    for group in range(file.metadata.num_row_groups):
        for place in range(file.metadata.num_columns):
            chunk = file.metadata.row_group(group).column(place)
            stats = chunk.statistics
            found.append((chunk.encodings, chunk.num_values, stats.null_count, stats.min_raw, stats.max_raw))
    return [file.schema, *found]


@pytest.mark.parametrize("first", ["coded", "plain"])
def test_a_file_of_dictionaries_says_what_one_of_plain_texts_does(tmp_path: Path, first: str) -> None:
    groups = [
        pa.table({"n": list(range(3000)), "r": texts(3000, 50, seed), "u": [f"{n:x} {seed}" for n in range(3000)]})
        for seed in range(3)
    ]
    code = [group.set_column(1, "r", group["r"].dictionary_encode()) for group in groups]
    code = [group.set_column(2, "u", group["u"].dictionary_encode()) for group in code]
    given = [code[0], groups[1], code[2]] if first == "coded" else [groups[0], code[1], code[2]]
    single, of_one = in_file(tmp_path / "plain.parquet", groups)
    two, of_two = in_file(tmp_path / "given.parquet", given)
    assert two.read().equals(single.read())
    assert described(two) == described(single)
    assert of_two == of_one
    assert "RLE_DICTIONARY" in str(two.metadata.row_group(2).column(1).encodings)
    assert "RLE_DICTIONARY" not in str(two.metadata.row_group(2).column(2).encodings)


def test_pages_of_other_columns_stay_small_beside_dictionaries(tmp_path: Path) -> None:
    words = texts(40_000, 20, 1).dictionary_encode()
    wide = pa.array([f"{number:0100d}" for number in range(40_000)])
    with_codes, _ = in_file(tmp_path / "x.parquet", [pa.table({"r": words, "wide": wide})])
    chunk = with_codes.metadata.row_group(0).column(1)
    assert chunk.total_uncompressed_size > 4_000_000
    assert chunk.has_offset_index
    pages = with_codes.metadata.row_group(0).column(1).total_uncompressed_size / (1 << 20)
    assert pages < 5


def stored(path: Path) -> pa.Table:
    table = pa.table({"n": list(range(3000)), "r": texts(3000, 50, 1), "u": [f"{n:x}" for n in range(3000)]})
    pq.write_table(table, path, row_group_size=1000, use_dictionary=["r"], store_schema=False)
    return table


def test_only_texts_stored_as_dictionaries_are_read_as_such(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = stored(path)
    source = open_source(LocalFileIO(), str(path))
    assert source.repeating_texts(["n", "r", "u"]) == ["r"]
    batches = list(source.batches(["n", "r", "u"], 700, dictionaries=["r"]))
    source.close()
    assert all(pa.types.is_dictionary(batch.schema.field("r").type) for batch in batches)
    assert pa.Table.from_batches([plain_batch(batch) for batch in batches]).equals(table)


def test_a_column_that_gave_up_its_dictionary_is_read_as_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"u": [f"{n:020d}" for n in range(20_000)]})
    pq.write_table(table, path, dictionary_pagesize_limit=1000, store_schema=False)
    source = open_source(LocalFileIO(), str(path))
    assert source.repeating_texts(["u"]) == []
    source.close()


def test_flipped_bytes_under_dictionaries_end_in_typed_errors_only(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    stored(path)
    whole, chance = path.read_bytes(), random.Random(3)
    refused: list[str] = []
    for _ in range(300):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            source = open_source(LocalFileIO(), str(path))
            try:
                for batch in source.batches(["r"], 700, dictionaries=["r"]):
                    assert plain(batch.column(0)).null_count <= batch.num_rows
            finally:
                source.close()
        except DredgeError as error:
            refused.append(str(error))
    assert len(refused) > 15
    assert all(path.name in reason for reason in refused)


def test_a_number_outside_of_the_dictionary_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"r": ["a", "b", "c"] * 1000})
    pq.write_table(table, path, compression="none", use_dictionary=True, store_schema=False)
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data[start + 60 : start + 200] = b"\xff" * 140  # two bits a value: 3 is none of them
    path.write_bytes(data)
    source = open_source(LocalFileIO(), str(path))
    with pytest.raises(CorruptFile, match=r"refers to value 3 of a dictionary of 3|not a readable"):
        list(source.batches(["r"], 5000, dictionaries=["r"]))
    source.close()


# -- merging -----------------------------------------------------------------------------------------------------------


def rows(keys: list[int], seed: int, values: int = 30) -> pa.Table:
    count = len(keys)
    whole = {"v": list(range(count)), "s": texts(count, values, seed), "t": [f"{seed} {key}" for key in keys]}
    return pa.table({"k": pa.array(keys, pa.int32()), **whole})


def overlapping(root: Path, options: dict[str, str]) -> TableStore:
    store = make_store(root / "t", FIELDS, ["k"], (), {"bucket": "1", **options})
    chance = np.random.default_rng(1)
    for number in range(4):
        keys = np.unique(chance.integers(0, 6000, 4000)).tolist()
        kinds = None if options.get("merge-engine") == "first-row" or number % 2 else ["+I", "-D"] * len(keys)
        write(store, rows(keys, number), None if kinds is None else kinds[: len(keys)])
    return store


def batches_of(store: TableStore, dictionaries: list[str]) -> list[pa.RecordBatch]:
    files = live_files(store)[EMPTY_ROW, 0]
    return list(read_bucket_merged(store, EMPTY_ROW, 0, files, dictionaries=dictionaries, keep_system=True))


@pytest.mark.parametrize("engine", ["deduplicate", "first-row", "partial-update"])
def test_a_merge_gives_the_same_rows_with_and_without_dictionaries(tmp_path: Path, engine: str) -> None:
    ignore = {"ignore-delete": "true"} if engine == "partial-update" else {}
    store = overlapping(tmp_path, {"merge-engine": engine, **ignore})
    expected = pa.Table.from_batches(batches_of(store, []))
    found = batches_of(store, ["k", "v", "s", "t"])
    assert pa.Table.from_batches([plain_batch(batch) for batch in found]).equals(expected)
    kinds = {name: {batch.schema.field(name).type for batch in found} for name in ("s", "t")}
    chooses = engine != "partial-update"
    assert any(map(pa.types.is_dictionary, kinds["s"])) is chooses
    assert kinds["t"] == {pa.string()}


def test_a_text_that_orders_versions_or_is_the_key_stays_plain(tmp_path: Path) -> None:
    fields = {"k": "STRING NOT NULL", "s": "STRING"}
    store = make_store(tmp_path / "t", fields, ["k"], (), {"bucket": "1", "sequence.field": "s"})
    for seed in range(2):
        write(store, pa.table({"k": ["a", "b"] * 200, "s": texts(400, 3, seed).fill_null("")}))
    found = batches_of(store, ["k", "s"])
    assert {batch.schema.field("s").type for batch in found} == {pa.string()}


def test_files_that_lack_the_column_or_hold_it_plain_go_with_those_that_repeat(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, rows(list(range(5000)), 1))
    write(store, rows(list(range(1000, 1200)), 2, values=100_000))
    expected = pa.Table.from_batches(batches_of(store, []))
    found = batches_of(store, ["s"])
    assert pa.Table.from_batches([plain_batch(batch) for batch in found]).equals(expected)
    assert any(pa.types.is_dictionary(batch.schema.field("s").type) for batch in found)
    assert read(store, columns=["s"]).schema.field("s").type == pa.string()


def statistics(files: list[DataFileMeta]) -> list[Any]:
    return [
        (file.row_count, file.min_key, file.max_key, file.value_stats, file.key_stats, file.value_stats_cols)
        for file in files
    ]


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_a_compaction_writes_the_same_rows_and_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    options = {"file.format.per.level": f"5:{form}", "file-index.bloom-filter.columns": "s"}
    store = overlapping(tmp_path, options)
    (task,) = full_tasks(store)
    as_dictionaries = run_bucket_task(store, task)
    given: list[bool] = []
    monkeypatch.setattr("lsm_core.read.merge_read.repeating_texts", lambda *_: given.append(True) or [])
    as_text = run_bucket_task(store, task)
    assert given
    first, two = (list(result.message.compact_after) for result in (as_dictionaries, as_text))
    assert statistics(first) == statistics(two)
    assert [file.embedded_index for file in first] == [file.embedded_index for file in two]
    assert [list(open_append(store, EMPTY_ROW, 0, file)) for file in first] == [
        list(open_append(store, EMPTY_ROW, 0, file)) for file in two
    ]


def test_a_writer_takes_batches_of_either_kind(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", {"k": "INT NOT NULL", "s": "STRING"}, ["k"], (), {"bucket": "1"})
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, level=0, file_source=0)
    layout, expected = kv_arrow_schema(store.schema), []
    for number in range(4):
        keys = pa.array(range(number * 1000, number * 1000 + 1000), pa.int32())
        words = texts(1000, 20, number)
        expected += words.to_pylist()
        system = [pa.array(range(1000), pa.int64()), pa.array([0] * 1000, pa.int8())]
        column = words.dictionary_encode() if number % 2 else words
        writer.write(pa.RecordBatch.from_arrays([keys, *system, keys, column], names=layout.names))
    (file,) = writer.close()
    found = [
        row for batch in open_append(store, EMPTY_ROW, 0, file, columns=["s"]) for row in batch.column(0).to_pylist()
    ]
    assert found == expected


@pytest.mark.parametrize("choice", [{}, {"limit": 900}, {"filter": ("s", ">", "word 0007")}, {"columns": ["s", "k"]}])
def test_a_reader_may_ask_for_dictionaries(tmp_path: Path, choice: dict[str, Any]) -> None:
    store = overlapping(tmp_path, {})
    write(store, rows(list(range(7000, 7100)), 9))
    limit = choice.pop("limit", None)
    plan = plan_scan(store, **choice)
    coded_plan = plan_scan(store, **choice, dictionaries=True)
    found = list(to_batches(store, coded_plan, limit=limit))
    assert {batch.schema.field("s").type for batch in found} == {pa.dictionary(pa.int32(), pa.string())}
    assert all(len(set(b.column("s").dictionary.to_pylist())) == len(b.column("s").dictionary) for b in found)
    expected = to_arrow(store, plan, limit=limit)
    assert pa.Table.from_batches([plain_batch(batch) for batch in found]).equals(expected)
    assert to_arrow(store, coded_plan, limit=limit).schema == coded_plan.arrow_schema


def test_changes_may_be_asked_for_as_dictionaries(tmp_path: Path) -> None:
    store = overlapping(tmp_path, {})
    changed = store.copy({"incremental-between": "1,3"})
    plain_rows = read_as_table(changed, None, None, None, {})
    found = read_as_table(changed, None, None, None, {}, dictionaries=True)
    assert found.schema.field("s").type == pa.dictionary(pa.int32(), pa.string())
    assert plain_table(found).equals(plain_rows)
    assert plain_rows.num_rows


def test_dictionaries_shared_by_files_are_begun_anew_when_they_get_large() -> None:
    shared = SharedDictionaries(most_values=4)
    readers = [shared.reader(), shared.reader()]
    parts = [["a", "b"], ["c", None, "b"], ["d", "e", "a"], ["a", "x"]]
    found = [
        readers[number % 2](pa.record_batch({"s": coded(values, number), "n": [1] * len(values)}))
        for number, values in enumerate(parts)
    ]
    assert [plain(batch.column("s")).to_pylist() for batch in found] == parts
    assert found[1].column("s").dictionary.to_pylist()[: len(found[0].column("s").dictionary)] == (
        found[0].column("s").dictionary.to_pylist()
    )
    assert max(len(batch.column("s").dictionary) for batch in found) <= 4
    assert plain(concat_columns([batch.column("s") for batch in found])).to_pylist() == [
        v for part in parts for v in part
    ]
