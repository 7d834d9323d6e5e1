"""Writers choose format and codec by level, cut files and row groups alike in all formats, and leave nothing behind."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.files import AppendFileWriter, KeyValueFileWriter
from lsm_core.files.formats import open_source
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import append_arrow_schema
from lsm_core.metadata.store import TableStore
from tests.commit.tables import EMPTY, kv_batch, make_store, write_kv


def rows_of(store: TableStore, meta: DataFileMeta, batch_rows: int = 100_000) -> pa.Table:
    path = store.data_path(EMPTY, 0, meta)
    source = open_source(store.file_io, path, size=meta.file_size, rows=meta.row_count)
    try:
        return pa.Table.from_batches(source.batches(source.schema.names, batch_rows))
    finally:
        source.close()


@pytest.mark.parametrize("thin", ["false", "true"])
def test_every_level_has_its_own_format(tmp_path: Path, thin: str) -> None:
    options = {
        "file.format": "orc",
        "file.format.per.level": "0:avro,5:parquet",
        "file.compression.per.level": "5:snappy",
        "file.suffix.include.compression": "true",
        "data-file.prefix": "part-",
        "data-file.thin-mode": thin,
    }
    store = make_store(tmp_path, {"k": "BIGINT NOT NULL", "v": "STRING", "t": "TIME(3)"}, options=options)
    rows: dict[str, Any] = {"k": [1, 2, 5], "v": ["a", None, "ü"], "t": [0, 86_399_999, None]}
    metas = {level: write_kv(store, rows, level=level, kinds=[0, 3, 2])[0] for level in (0, 1, 5)}
    suffixes = {0: ".zst.avro", 1: ".zst.orc", 5: ".zst.parquet"}
    for level, meta in metas.items():
        assert meta.file_name.startswith("part-")
        assert meta.file_name.endswith(suffixes[level])
        assert (meta.delete_row_count, meta.row_count) == (1, 3)
        found = rows_of(store, meta)
        assert ("_KEY_k" in found.column_names) == (thin == "false")
        assert found.column("v").to_pylist() == rows["v"]
        assert found.column("t").cast(pa.int32()).to_pylist() == rows["t"]
    first = metas[0]
    for meta in metas.values():
        assert (meta.min_key, meta.max_key) == (first.min_key, first.max_key)
        assert (meta.key_stats, meta.value_stats, meta.value_stats_cols) == (
            first.key_stats,
            first.value_stats,
            first.value_stats_cols,
        )
    with pq.ParquetFile(store.data_path(EMPTY, 0, metas[5])) as file:
        assert file.metadata.row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_large_runs_roll_near_the_target_in_every_format(tmp_path: Path, form: str) -> None:
    store = make_store(
        tmp_path, options={"target-file-size": "256 kb", "file.format": form, "file.block-size": "128 kb"}
    )
    rng = np.random.default_rng(2)
    count = 60_000
    batch = kv_batch(store, {"k": np.arange(count) * 3, "v": [f"{v:020x}" for v in rng.integers(0, 2**62, count)]})
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 5, 1)
    for start in range(0, count, 700):
        writer.write(batch.slice(start, 700))
    metas = writer.close()
    assert len(metas) > 2
    assert all(90_000 < meta.file_size < 512_000 for meta in metas[:-1]), [meta.file_size for meta in metas]
    found = pa.concat_tables([rows_of(store, meta, 1000) for meta in metas])
    assert found.column("k").equals(pa.chunked_array([batch.column("k")]))
    assert found.column("v").equals(pa.chunked_array([batch.column("v")]))
    if form == "parquet":
        with pq.ParquetFile(store.data_path(EMPTY, 0, metas[0])) as file:
            assert file.metadata.num_row_groups > 1


def test_rows_that_orc_cannot_hold_go_to_a_parquet_file(tmp_path: Path) -> None:
    """Java reads every file by its own extension; its ORC reader fails on what Arrow writes for such moments."""
    store = make_store(
        tmp_path,
        {"n": "INT", "at": "TIMESTAMP(6)"},
        primary_keys=(),
        options={"file.format": "orc", "file.compression": "zlib"},
    )
    schema = append_arrow_schema(store.schema)
    writer = AppendFileWriter(store, EMPTY, 0, -1, 0)
    moments = [datetime(2020, 1, 1)] * 131_072 + [datetime(9999, 12, 31)] + [datetime(1969, 1, 1, 0, 0, 0, 5)]
    at = pa.array(moments, pa.timestamp("us"))
    writer.write(pa.RecordBatch.from_arrays([pa.array(range(len(at)), pa.int32()), at], schema=schema))
    metas = writer.close()
    assert [(m.file_name.rpartition(".")[2], m.row_count) for m in metas] == [("orc", 131_072), ("parquet", 2)]
    assert [(m.min_sequence_number, m.max_sequence_number) for m in metas] == [(0, 131_071), (131_072, 131_073)]
    found = pa.concat_tables([rows_of(store, meta).cast(schema) for meta in metas])
    assert found.column("at").equals(pa.chunked_array([at]))


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_a_failed_writer_leaves_no_file(tmp_path: Path, form: str) -> None:
    store = make_store(tmp_path, options={"file.format": form, "target-file-size": "1 kb"})
    writer = KeyValueFileWriter(store, EMPTY, 0, 1, 0, 0)
    writer.write(kv_batch(store, {"k": np.arange(2000), "v": [f"{i * 7919:x}" for i in range(2000)]}))
    assert list(tmp_path.rglob(f"*.{form}"))
    writer.abort()
    assert not list(tmp_path.rglob(f"*.{form}"))


def test_formats_and_types_that_cannot_be_written_are_named_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"file\.format.*lance"):
        write_kv(make_store(tmp_path / "a", options={"file.format": "lance"}), {"k": [1], "v": ["a"]})
    with pytest.raises(InvalidOption, match=r"file\.compression.*gzip.*ORC"):
        write_kv(make_store(tmp_path / "b", options={"file.format": "orc", "file.compression": "gzip"}), {"k": [1]})
    wide = make_store(tmp_path / "c", {"k": "INT NOT NULL", "at": "TIMESTAMP(9)"}, options={"file.format": "avro"})
    with pytest.raises(UnsupportedFeature, match="'at'"):
        write_kv(wide, {"k": [1], "at": [None]})
    assert not [path for path in tmp_path.rglob("bucket-0/*") if path.is_file()]
