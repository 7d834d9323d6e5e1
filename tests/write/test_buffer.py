"""The spilling write buffer says the same as one that holds everything, whatever the engine, the sizes and the open files."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import DredgeError, InvalidOption, StorageFull
from lsm_core.files import SpillSpace
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.merge import merge_function, merge_unsorted
from lsm_core.metadata.store import TableStore
from lsm_core.write import TableWrite
from lsm_core.write.key_value import BufferPool, SortBuffer
from tests.support.samples import examples
from tests.support.stores import data_files_on_disk, live_files, make_store, read, write

FIELDS = {"k": "INT NOT NULL", "q": "INT", "v": "BIGINT", "s": "STRING"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "q"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update", "sequence.field": "q"},
    "sequence group": {"merge-engine": "partial-update", "fields.q.sequence-group": "v,s"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "listagg",
        "fields.q.aggregate-function": "max",
    },
    "aggregation by sequence": {
        "merge-engine": "aggregation",
        "sequence.field": "q",
        "fields.v.aggregate-function": "last_value",
        "fields.s.aggregate-function": "listagg",
    },
}


@pytest.fixture(scope="module", params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> TableStore:
    """A table of each engine; nothing is written to it."""
    with tempfile.TemporaryDirectory() as folder:
        return make_store(Path(folder) / "t", FIELDS, ["k"], (), {"bucket": "1", **ENGINES[request.param]})


def history(store: TableStore, rows: int, keys: int, seed: int) -> pa.Table:
    """Rows in arrival order in KV layout, with nulls, ties of the sequence field, and many versions a key."""
    random = np.random.default_rng(seed)
    k = pa.array(random.integers(0, keys, rows).astype(np.int32))
    q = pa.array(random.integers(0, 5, rows).astype(np.int32), mask=random.random(rows) < 0.1)
    v = pa.array(random.integers(0, 100, rows), mask=random.random(rows) < 0.2)
    s = pa.array([f"{n}" for n in range(rows)], mask=random.random(rows) < 0.2)
    layout = kv_arrow_schema(store.schema)
    return pa.table([k, pa.array(np.arange(rows)), pa.array(np.zeros(rows, np.int8)), k, q, v, s], schema=layout)


def drained(buffer: SortBuffer) -> pa.Table:
    batches = list(buffer.drain())
    return pa.Table.from_batches(batches).combine_chunks()


@settings(max_examples=examples(15), deadline=None)
@given(
    rows=st.integers(1, 400),
    keys=st.sampled_from([1, 3, 40]),
    seed=st.integers(0, 2**31),
    memory=st.sampled_from(["1 kb", "4 kb"]),
    handles=st.integers(2, 6),
    step=st.integers(5, 90),
    codec=st.sampled_from(["zstd", "lz4", "none", "lzo"]),
)
def test_spilled_rows_merge_as_if_they_had_stayed_in_memory(
    engine: TableStore, rows: int, keys: int, seed: int, memory: str, handles: int, step: int, codec: str
) -> None:
    options = {"write-buffer-size": memory, "local-sort.max-num-file-handles": str(handles), "spill-compression": codec}
    function = merge_function(engine.schema, engine.options.raw, engine.name)
    table = history(engine, rows, keys, seed)
    pool = BufferPool(engine.options.copy(options))
    buffer = SortBuffer(pool, function, table.schema, engine.name)
    for start in range(0, rows, step):
        part = table.slice(start, step)
        buffer.add(part, part.nbytes)
        if start % (3 * step) != 0:
            assert buffer.spill()
            assert buffer.bytes == 0
    assert drained(buffer).equals(merge_unsorted(table, function).combine_chunks())
    assert (len(buffer), buffer.bytes, pool.disk_used) == (0, 0, 0)
    pool.close()


def test_the_pool_spills_the_largest_bucket_and_a_flush_makes_one_run(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "2", "write-buffer-size": "16 kb"})
    rows = pa.table({"k": pa.array(np.arange(5000, dtype=np.int32)), "v": pa.array(np.arange(5000))})
    with TableWrite(store) as writer:
        for step in range(4):
            writer.write(rows.slice(1000 * step, 1000))
            writer.write(rows.slice(0, 10))
            assert writer.buffered_bytes <= 16 << 10
            assert data_files_on_disk(store) == set()
        messages = writer.prepare_commit()
    assert [len(message.new_files) for message in messages] == [1, 1]
    assert sum(file.row_count for message in messages for file in message.new_files) == 4000


def test_a_used_up_disk_budget_flushes_instead(tmp_path: Path) -> None:
    options = {
        "bucket": "1",
        "write-buffer-size": "16 kb",
        "write-buffer-spill.max-disk-size": "8 kb",
        "write-only": "true",
    }
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), options)
    for round_number in range(2):
        with TableWrite(store) as writer:
            for step in range(12):
                keys = np.arange(300 * step, 300 * step + 600, dtype=np.int32)
                writer.write(pa.table({"k": pa.array(keys), "v": pa.array(keys.astype(np.int64) + round_number)}))
                assert writer._pool.disk_used < 40_000
            from lsm_core.commit import Committer

            messages = writer.prepare_commit()
            assert writer._pool.disk_used == 0
            assert len(messages[0].new_files) > 1
            Committer(store).commit(messages)
    found = read(store).sort_by("k")
    assert found.column("k").to_pylist() == list(range(3900))
    assert found.column("v").to_pylist() == [k + 1 for k in range(3900)]


@pytest.mark.parametrize(("limit", "files"), [("10", 5), ("50", 1), ("49", 2)])
def test_files_hold_at_most_the_rows_that_an_option_says(tmp_path: Path, limit: str, files: int) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "target-file-row-num": limit})
    write(store, pa.table({"k": pa.array(np.arange(50, dtype=np.int32))}))
    found = [file for group in live_files(store).values() for file in group]
    assert len(found) == files
    assert max(file.row_count for file in found) <= int(limit)
    assert read(store).num_rows == 50


def _full(*_: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_spill_disk_is_one_error_and_the_writer_refuses_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "write-buffer-size": "4 kb"})
    keys = pa.table({"k": pa.array(np.arange(2000, dtype=np.int32))})
    writer = TableWrite(store)
    with monkeypatch.context() as patch:
        patch.setattr(pa, "OSFile", _full)
        with pytest.raises(StorageFull, match=r"run-0\.arrow"):
            writer.write(keys)
    with pytest.raises(DredgeError, match="abort this writer"):
        writer.prepare_commit()
    writer.abort()
    assert data_files_on_disk(store) == set()
    assert write(store, keys) == 1
    assert read(store).num_rows == 2000


def test_a_forgotten_space_leaves_no_folder(tmp_path: Path) -> None:
    space = SpillSpace(str(tmp_path))
    space.spill(iter(()), pa.schema([("k", pa.int64())]))
    assert len(list(tmp_path.iterdir())) == 1
    del space
    assert list(tmp_path.iterdir()) == []


def test_a_codec_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="spill-compression"):
        SpillSpace(str(tmp_path), "brotli")
