"""Batches of texts that are read as dictionaries: cut by what their texts take in every row, since a merge or a writer may need them there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core.errors import ValueTooLarge
from lsm_core.files.formats import open_source
from lsm_core.files.formats.parquet_pages import BATCH_BYTES, LARGEST_VALUE, split_to_fit
from lsm_core.storage import LocalFileIO

_MIB = 1 << 20


def _batch(texts: list[str], rows: int) -> pa.RecordBatch:
    codes = pa.array(np.arange(rows, dtype=np.int32) % len(texts))
    column = pa.DictionaryArray.from_arrays(codes, pa.array(texts))
    return pa.RecordBatch.from_arrays([pa.array(range(rows)), column], ["id", "t"])


def test_short_texts_stay_in_one_batch() -> None:
    batch = _batch([f"text {i}" for i in range(2_000)], 65_536)
    assert [found is batch for found in split_to_fit(batch, "x.parquet")] == [True]
    empty = batch.slice(0, 0)
    assert [found.num_rows for found in split_to_fit(empty, "x.parquet")] == [0]


def test_long_texts_come_in_slices_that_fit() -> None:
    batch = _batch(["short", "x" * _MIB], 1_000)
    found = list(split_to_fit(batch, "x.parquet"))
    assert all(item.num_rows * _MIB <= BATCH_BYTES for item in found) and len(found) == 8
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]))


def test_a_text_that_is_too_large_is_refused_by_name() -> None:
    with pytest.raises(ValueTooLarge, match=r"x\.parquet, column 't': a value of"):
        list(split_to_fit(_batch(["a", "x" * (LARGEST_VALUE + 1)], 2), "x.parquet"))


def test_a_file_read_as_dictionaries_gives_batches_that_fit(tmp_path: object) -> None:
    path = f"{tmp_path}/x.parquet"
    rows = pa.table({"t": pa.DictionaryArray.from_arrays(pa.array([0, 1] * 500, pa.int32()), ["a", "b" * _MIB])})
    pq.write_table(rows, path, compression="zstd", dictionary_pagesize_limit=2 * _MIB, store_schema=False)
    source = open_source(LocalFileIO(), path)
    try:
        sizes = {}
        for dictionaries in ([], ["t"]):
            batches = list(source.batches(["t"], 1_000, dictionaries=dictionaries))
            sizes[bool(dictionaries)] = max(batch.num_rows for batch in batches)
            texts = [
                column.dictionary_decode() if dictionaries else column for (column,) in (b.columns for b in batches)
            ]
            assert pa.chunked_array(texts).equals(rows.column("t").cast(pa.string()))
        assert sizes[True] <= BATCH_BYTES // _MIB >= sizes[False]
    finally:
        source.close()
