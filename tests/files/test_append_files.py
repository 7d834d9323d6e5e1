"""Append files: rows in order, a running sequence, no keys."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import ColumnNotFound, CorruptFile
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.format.stats import EMPTY_STATS
from tests.commit.tables import EMPTY, make_store, write_append

FIELDS = {"a": "INT", "b": "STRING"}


def test_rows_and_metadata_of_append_files(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, primary_keys=(), options={"target-file-size": "8 kb"})
    schema = store.schema.arrow_schema
    count = 4000
    rng = np.random.default_rng(3)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(rng.integers(0, 2**31, count), pa.int32()),
            pa.array([f"{v:x}" for v in rng.integers(0, 2**60, count)]),
        ],
        schema=schema,
    )
    writer = AppendFileWriter(store, EMPTY, 0, -1, 1, first_sequence=100)
    for start in range(0, count, 333):
        writer.write(batch.slice(start, 333))
    metas = writer.close()
    assert len(metas) > 2
    assert metas[0].min_sequence_number == 100
    assert metas[-1].max_sequence_number == 99 + count
    assert all(a.max_sequence_number + 1 == b.min_sequence_number for a, b in itertools.pairwise(metas))
    for meta in metas:
        assert (meta.min_key, meta.max_key, meta.key_stats) == (EMPTY, EMPTY, EMPTY_STATS)
        assert (meta.level, meta.delete_row_count, meta.file_source) == (0, 0, 1)
        assert meta.file_size == Path(store.data_path(EMPTY, 0, meta)).stat().st_size
    found = [b for meta in metas for b in open_append(store, EMPTY, 0, meta, batch_rows=100)]
    assert pa.Table.from_batches(found).cast(schema).equals(pa.Table.from_batches([batch]))
    assert max(b.num_rows for b in found) <= 100


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, primary_keys=())
    (meta,) = write_append(store, {"a": [1, None], "b": ["x", None]})
    (batch,) = open_append(store, EMPTY, 0, meta, columns=["b", "a"])
    assert batch.to_pydict() == {"b": ["x", None], "a": [1, None]}
    (nothing,) = open_append(store, EMPTY, 0, meta, columns=[])
    assert (nothing.num_rows, nothing.num_columns) == (2, 0)
    with pytest.raises(ColumnNotFound):
        open_append(store, EMPTY, 0, meta, columns=["c"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, primary_keys=())
    (meta,) = write_append(store, {"a": [1], "b": ["x"]})
    Path(store.data_path(EMPTY, 0, meta)).unlink()
    with pytest.raises(CorruptFile, match=meta.file_name):
        list(open_append(store, EMPTY, 0, meta))


def test_a_reader_that_is_dropped_early_lets_go_of_its_file(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, primary_keys=())
    (meta,) = write_append(store, {"a": list(range(100)), "b": ["x"] * 100})
    rows = open_append(store, EMPTY, 0, meta, batch_rows=10)
    next(rows)
    handles = [p for p in Path("/proc/self/fd").iterdir() if p.exists() and p.readlink().name == meta.file_name]
    assert len(handles) == 1
    rows.close()  # type: ignore[attr-defined]
    assert not [p for p in Path("/proc/self/fd").iterdir() if p.exists() and p.readlink().name == meta.file_name]
