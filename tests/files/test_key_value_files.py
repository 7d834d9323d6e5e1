"""Key-value files: what goes in comes out, metadata says the truth, damage is named, failures leave nothing."""

from __future__ import annotations

import dataclasses
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.errors import ColumnNotFound, CorruptFile, DredgeError, InvalidOption, UnsupportedFeature
from lsm_core.files import KeyValueFileWriter, kv_read_schema, open_kv
from lsm_core.files.formats.parquet import ParquetSource
from lsm_core.format.binary_row import decode_row
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FaultyFileIO, InjectedFault, LocalFileIO
from tests.commit.tables import EMPTY, NOON, kv_batch, make_store, reopen, write_kv
from tests.support.samples import examples

ALL_TYPES = {
    "k": "INT NOT NULL",
    "s": "STRING NOT NULL",
    "b": "BOOLEAN",
    "t1": "TINYINT",
    "t2": "SMALLINT",
    "big": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "day": "DATE",
    "m9": "DECIMAL(9, 2)",
    "m18": "DECIMAL(18, 4)",
    "m38": "DECIMAL(38, 10)",
    "ts3": "TIMESTAMP(3)",
    "ts6": "TIMESTAMP(6)",
    "lz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "text": "VARCHAR(20)",
}


def read(store: TableStore, meta: DataFileMeta, **choice: Any) -> pa.Table:
    batches = list(open_kv(store, EMPTY, 0, meta, **choice))
    return pa.Table.from_batches(batches, batches[0].schema) if batches else None


def path_of(store: TableStore, meta: DataFileMeta) -> Path:
    return Path(store.data_path(EMPTY, 0, meta))


def all_types_rows(count: int) -> dict[str, list[Any]]:
    def every(n: int, value: Any) -> list[Any]:
        made = [None if i % n == n - 1 else value(i) for i in range(count)]
        return [v.item() if isinstance(v, np.datetime64) else v for v in made]

    return {
        "k": [i // 3 for i in range(count)],
        "s": [f"key-{i % 3}" for i in range(count)],
        "b": every(4, lambda i: i % 2 == 0),
        "t1": every(5, lambda i: i % 100 - 50),
        "t2": every(6, lambda i: i - 300),
        "big": every(7, lambda i: i * 10**12),
        "f": every(3, lambda i: i / 4),
        "d": every(3, lambda i: i / 3),
        "day": every(5, lambda i: np.datetime64("2024-01-01") + i),
        "m9": every(2, lambda i: Decimal(i) / 4),
        "m18": every(3, lambda i: -Decimal(i) / 8),
        "m38": every(3, lambda i: Decimal(10) ** 20 + i),
        "ts3": every(4, lambda i: np.datetime64(NOON + i, "ms")),
        "ts6": every(4, lambda i: np.datetime64(NOON * 1000 + i, "us")),
        "lz": every(4, lambda i: np.datetime64(NOON * 1000 - i, "us")),
        "text": every(9, lambda i: "é" * (i % 20)),
    }


@pytest.mark.parametrize("thin", ["false", "true"])
def test_rows_of_every_type_come_back_as_written(tmp_path: Path, thin: str) -> None:
    store = make_store(tmp_path, ALL_TYPES, primary_keys=("k", "s"), options={"data-file.thin-mode": thin})
    batch = kv_batch(store, all_types_rows(60), first_sequence=7, kinds=[0, 2, 3, 1] * 15)
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 0, 0)
    writer.write(batch.slice(0, 13))
    writer.write(batch.slice(13))
    (meta,) = writer.close()
    found = read(store, meta, batch_rows=17)
    assert found.schema.equals(kv_arrow_schema(store.schema), check_metadata=True)
    assert found.equals(pa.Table.from_batches([batch]))
    assert meta.file_size == path_of(store, meta).stat().st_size
    assert (meta.row_count, meta.min_sequence_number, meta.max_sequence_number) == (60, 7, 66)
    assert meta.delete_row_count == 30
    assert decode_row(meta.min_key, store.schema.trimmed_key_types) == (0, "key-0")
    assert decode_row(meta.max_key, store.schema.trimmed_key_types) == (19, "key-2")
    assert (meta.level, meta.file_source, meta.schema_id, meta.creation_time_ms) == (0, 0, 0, NOON)
    assert meta.file_name.startswith("data-")
    assert meta.file_name.endswith("-0.parquet")


def test_the_file_is_laid_out_as_java_writes_and_reads_fast(tmp_path: Path) -> None:
    fields = {
        "k": "BIGINT NOT NULL",
        "cat": "STRING",
        "uid": "STRING",
        "m": "DECIMAL(10, 2)",
        "ts": "TIMESTAMP(6)",
        "n": "BIGINT",
    }
    store = make_store(tmp_path, fields)
    count = 5000
    rng = np.random.default_rng(1)
    rows = {
        "k": list(range(count)),
        "cat": [f"c{i % 7}" for i in range(count)],
        "uid": [f"u-{v:016x}" for v in rng.integers(0, 2**60, count)],
        "m": [Decimal(i) / 4 for i in range(count)],
        "ts": [np.datetime64(NOON * 1000 + i * 977, "us") for i in range(count)],
        "n": rng.integers(0, 2**60, count).tolist(),
    }
    (meta,) = write_kv(store, rows)
    with pq.ParquetFile(path_of(store, meta)) as file:
        columns = {}
        group = file.metadata.row_group(0)
        for i in range(group.num_columns):
            columns[group.column(i).path_in_schema] = group.column(i)
        fields_by_name = {file.schema.column(i).name: file.schema.column(i) for i in range(len(file.schema.names))}
        ids = {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in file.schema_arrow}
    assert list(columns) == ["_KEY_k", "_SEQUENCE_NUMBER", "_VALUE_KIND", *fields]
    assert {name for name, c in columns.items() if c.has_dictionary_page} == {"_VALUE_KIND", "cat"}
    delta = {name for name, c in columns.items() if "DELTA_BINARY_PACKED" in c.encodings}
    assert delta == {"_KEY_k", "k", "_SEQUENCE_NUMBER"}
    assert all("BYTE_STREAM_SPLIT" not in c.encodings for c in columns.values())
    assert {c.compression for c in columns.values()} == {"ZSTD"}
    assert all(c.has_offset_index and c.has_column_index for c in columns.values())
    assert ids == {
        "_KEY_k": 1073741823,
        "_SEQUENCE_NUMBER": 2147483646,
        "_VALUE_KIND": 2147483645,
        "k": 0,
        "cat": 1,
        "uid": 2,
        "m": 3,
        "ts": 4,
        "n": 5,
    }
    assert fields_by_name["m"].physical_type == "INT64"
    assert "isAdjustedToUTC=false" in str(fields_by_name["ts"].logical_type)
    assert (fields_by_name["k"].max_definition_level, fields_by_name["cat"].max_definition_level) == (0, 1)


def test_large_runs_roll_into_files_with_disjoint_ascending_keys(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"target-file-size": "64 kb"})
    rng = np.random.default_rng(2)
    count = 20_000
    rows = {"k": np.arange(count) * 3, "v": [f"{v:020x}" for v in rng.integers(0, 2**62, count)]}
    batch = kv_batch(store, rows)
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 5, 1)
    for start in range(0, count, 700):
        writer.write(batch.slice(start, 700))
    metas = writer.close()
    assert len(metas) > 2
    assert sum(m.row_count for m in metas) == count
    keys = [
        (
            decode_row(m.min_key, store.schema.trimmed_key_types)[0],
            decode_row(m.max_key, store.schema.trimmed_key_types)[0],
        )
        for m in metas
    ]
    assert all(low <= high for low, high in keys)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(keys))
    assert all(m.file_size == path_of(store, m).stat().st_size for m in metas)
    assert all(32_000 < m.file_size < 100_000 for m in metas[:-1]), [m.file_size for m in metas]
    assert {m.level for m in metas} == {5}
    assert pa.concat_tables([read(store, m) for m in metas]).equals(pa.Table.from_batches([batch]))


def test_row_groups_hold_131072_rows_whatever_the_batches(tmp_path: Path) -> None:
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"})
    count = 300_000
    batch = kv_batch(store, {"k": np.arange(count), "v": np.arange(count)})
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 0, 0)
    for start in range(0, count, 50_000):
        writer.write(batch.slice(start, 50_000))
    (meta,) = writer.close()
    with pq.ParquetFile(path_of(store, meta)) as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    assert groups == [131_072, 131_072, count - 262_144]
    second = read(store, meta, row_groups=[1])
    assert second.column("k")[0].as_py() == 131_072
    assert second.num_rows == 131_072


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_into_batches_and_files_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    store = make_store(
        tmp_path_factory.mktemp("t"),
        options={"target-file-size": data.draw(st.sampled_from(["1 b", "300 b", "2 kb", "1 mb"]))},
    )
    keys = sorted(data.draw(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60)))
    values = data.draw(st.lists(st.none() | st.text(max_size=5), min_size=len(keys), max_size=len(keys)))
    batch = kv_batch(store, {"k": keys, "v": values})
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 0, 0)
    start = 0
    while start < len(keys):
        size = data.draw(st.integers(1, 7))
        writer.write(batch.slice(start, size))
        start += size
    metas = writer.close()
    found = pa.concat_tables([read(store, m, batch_rows=3) for m in metas])
    assert found.equals(pa.Table.from_batches([batch]))
    assert [m.max_sequence_number - m.min_sequence_number + 1 for m in metas] == [m.row_count for m in metas]


def test_a_reader_gives_only_what_was_asked_for_and_decodes_each_key_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL", "a": "INT", "b": "INT"})
    (meta,) = write_kv(store, {"k": [1, 2], "a": [3, 4], "b": [5, 6]})
    decoded: list[list[str]] = []
    plain = ParquetSource.batches

    def spy(self: ParquetSource, columns: Any, *rest: Any, **how: Any) -> Any:
        decoded.append(list(columns))
        return plain(self, columns, *rest, **how)

    monkeypatch.setattr(ParquetSource, "batches", spy)
    found = read(store, meta, columns=["b", "k"], need_sequence=False, need_kind=False)
    assert found.column_names == ["_KEY_k", "b", "k"]
    assert found.schema.equals(kv_read_schema(store, ["b", "k"], need_sequence=False, need_kind=False))
    assert found.to_pydict() == {"_KEY_k": [1, 2], "b": [5, 6], "k": [1, 2]}
    assert read(store, meta, columns=["a"]).column_names == ["_KEY_k", "_SEQUENCE_NUMBER", "_VALUE_KIND", "a"]
    assert decoded == [["b", "k"], ["_SEQUENCE_NUMBER", "_VALUE_KIND", "a", "k"]]
    with pytest.raises(ColumnNotFound, match="no column 'zz'"):
        open_kv(store, EMPTY, 0, meta, columns=["zz"])


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (meta,) = write_kv(store, {"k": list(range(1000)), "v": [f"{i * 7919:x}" for i in range(1000)]})
    path = path_of(store, meta)
    whole = path.read_bytes()

    def fails(wrong: DataFileMeta = meta) -> str:
        with pytest.raises(CorruptFile) as caught:
            read(store, wrong)
        assert caught.value.path == str(path)
        return caught.value.reason

    assert "999 rows" not in fails(dataclasses.replace(meta, row_count=999))
    assert "manifest entry says 999" in fails(dataclasses.replace(meta, row_count=999))
    assert "manifest entry says 5" in fails(dataclasses.replace(meta, file_size=5))
    path.write_bytes(whole[:-100])
    assert "bytes" in fails()
    path.write_bytes(whole[:-100] + b"\0" * 100)
    assert "not a readable Parquet file" in fails()
    middle = len(whole) // 3
    path.write_bytes(whole[:middle] + bytes(len(whole) // 3) + whole[middle + len(whole) // 3 :])
    assert fails()
    path.write_bytes(b"")
    assert "0 bytes" in fails()
    path.unlink()
    assert "missing" in fails()


def test_a_file_of_another_format_or_schema_is_refused_by_name(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    (meta,) = write_kv(store, {"k": [1], "v": ["a"]})
    with pytest.raises(UnsupportedFeature, match=r"format lance .*x\.lance"):
        read(store, dataclasses.replace(meta, file_name="x.lance"))
    wider = make_store(tmp_path / "wider", {"k": "BIGINT NOT NULL", "v": "STRING", "w": "INT"})
    here = path_of(wider, meta)
    here.parent.mkdir(parents=True)
    here.write_bytes(path_of(store, meta).read_bytes())
    with pytest.raises(CorruptFile, match="no column 'w'"):
        read(wider, meta)
    with pytest.raises(CorruptFile, match=r"schema-4.* missing"):
        read(wider, dataclasses.replace(meta, schema_id=4))


def test_a_writer_without_rows_makes_no_file(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 0, 0)
    writer.write(kv_batch(store, {"k": [], "v": []}))
    assert writer.close() == []
    assert not list(tmp_path.rglob("*.parquet"))
    with pytest.raises(DredgeError, match="closed"):
        writer.write(kv_batch(store, {"k": [1], "v": ["a"]}))


def test_abort_removes_closed_and_open_files(tmp_path: Path) -> None:
    store = make_store(tmp_path, options={"target-file-size": "1 kb"})
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 0, 0)
    batch = kv_batch(store, {"k": np.arange(2000), "v": [f"{i * 7919:x}" for i in range(2000)]})
    writer.write(batch)
    assert len(list(tmp_path.rglob("*.parquet"))) > 1
    writer.abort()
    writer.abort()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_failure_at_any_step_leaves_no_file(tmp_path: Path) -> None:
    plain = make_store(tmp_path, options={"target-file-size": "1 kb"})
    batch = kv_batch(plain, {"k": np.arange(300), "v": [f"{i * 7919:x}" for i in range(300)]})

    def write(file_io: FaultyFileIO) -> None:
        writer = KeyValueFileWriter(reopen(tmp_path, file_io), EMPTY, 0, 1, 0, 0)
        for start in range(0, 300, 60):
            writer.write(batch.slice(start, 60))
        assert len(writer.close()) > 1

    counted = FaultyFileIO(LocalFileIO())
    opening = FaultyFileIO(LocalFileIO())
    reopen(tmp_path, opening)
    write(counted)
    assert counted.steps > 5
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    for step in range(opening.steps + 1, counted.steps + 1):
        for mode in ("before", "after"):
            with pytest.raises(InjectedFault):
                write(FaultyFileIO(LocalFileIO(), step, mode))
            assert not list(tmp_path.rglob("*.parquet")), (step, mode)


def test_compression_follows_the_options(tmp_path: Path) -> None:
    store = make_store(
        tmp_path,
        options={
            "file.compression": "snappy",
            "file.compression.per.level": "5:zstd",
            "file.suffix.include.compression": "true",
        },
    )
    (low,) = write_kv(store, {"k": [1], "v": ["a"]})
    (high,) = write_kv(store, {"k": [1], "v": ["a"]}, level=5)
    assert low.file_name.endswith(".snappy.parquet")
    assert high.file_name.endswith(".snappy.parquet")
    assert pq.read_metadata(path_of(store, low)).row_group(0).column(0).compression == "SNAPPY"
    assert pq.read_metadata(path_of(store, high)).row_group(0).column(0).compression == "ZSTD"
    with pytest.raises(InvalidOption, match=r"file\.compression"):
        write_kv(store.copy({"file.compression": "lzo"}), {"k": [1], "v": ["a"]})
