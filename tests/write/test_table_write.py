"""Writers: level-0 files with unique sorted keys, sequence numbers that go on, bounded memory, nothing left after an abort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.commit import CommitMessage, Committer
from lsm_core.errors import InvalidData, StorageFull, UnsupportedFeature, WriterStale
from lsm_core.files import open_kv
from lsm_core.format.manifest import EMPTY_ROW
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.write import TableWrite
from lsm_core.write.bucket import groups
from tests.support.samples import examples
from tests.support.stores import data_files_on_disk, live_files, make_store, read, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}


def rows(keys: list[int], value: int = 0) -> pa.Table:
    return pa.table({"k": keys, "v": [value + k for k in keys], "s": [f"s{k}" for k in keys]})


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "2"})


def test_a_flush_leaves_sorted_unique_keys_in_level_0(store: TableStore) -> None:
    write(store, rows([5, 1, 3, 1, 5, 2]))
    for (partition, bucket), files in live_files(store).items():
        assert [file.level for file in files] == [0]
        keys = [k for batch in open_kv(store, partition, bucket, files[0]) for k in batch.column("k").to_pylist()]
        assert keys == sorted(set(keys))
        assert files[0].file_source == 0
        assert files[0].row_count == len(keys)


def test_sequence_numbers_go_on_where_the_bucket_stopped(store: TableStore) -> None:
    single = make_store(Path(store.root) / "one", FIELDS, ["k"], (), {"bucket": "1"})
    write(single, rows([1, 2, 3]))
    write(single, rows([2, 9]))
    ranges = sorted((f.min_sequence_number, f.max_sequence_number) for f in live_files(single)[EMPTY_ROW, 0])
    assert ranges == [(0, 2), (3, 4)]
    with TableWrite(single) as writer:
        writer.write(rows([7]))
        first = writer.prepare_commit()
        writer.write(rows([8]))
        second = writer.prepare_commit()
    assert [m.new_files[0].min_sequence_number for m in (*first, *second)] == [5, 6]


def test_deletes_are_kept_and_counted(store: TableStore) -> None:
    first = make_store(Path(store.root) / "one", FIELDS, ["k"], (), {"bucket": "1"})
    write(first, rows([1, 2, 3]))
    write(first, rows([1, 2, 4]), ["-D", "-U", "+U"])
    newest = max(live_files(first)[EMPTY_ROW, 0], key=lambda f: f.max_sequence_number)
    assert (newest.row_count, newest.delete_row_count) == (3, 2)
    assert sorted(read(first).column("k").to_pylist()) == [3, 4]


def test_a_full_buffer_is_flushed_and_the_last_write_still_wins(store: TableStore) -> None:
    options = {"bucket": "2", "write-buffer-size": "64 kb", "write-buffer-spillable": "false", "write-only": "true"}
    small = make_store(Path(store.root) / "s", FIELDS, ["k"], (), options)
    with TableWrite(small) as writer:
        for step in range(20):
            writer.write(rows(list(range(500)), 1000 * step))
            assert writer.buffered_bytes <= 64 << 10
        messages = writer.prepare_commit()
    assert sum(len(message.new_files) for message in messages) > 4
    Committer(small).commit(messages)
    found = read(small)
    assert found.num_rows == 500
    assert sorted(found.column("v").to_pylist()) == [19_000 + k for k in range(500)]


def test_user_sequence_decides_inside_a_flush_and_between_flushes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "q", FIELDS, ["k"], (), {"bucket": "1", "sequence.field": "v"})
    write(store, pa.table({"k": [1, 1, 2], "v": [5, 3, 1], "s": ["five", "three", "one"]}))
    write(store, pa.table({"k": [1, 2], "v": [4, None], "s": ["four", "null"]}))
    assert sorted(read(store).column("s").to_pylist()) == ["five", "one"]


def test_ignore_delete_drops_retracts_at_the_door(tmp_path: Path) -> None:
    store = make_store(tmp_path / "i", FIELDS, ["k"], (), {"bucket": "1", "ignore-delete": "true"})
    write(store, rows([1, 2]), ["+I", "-D"])
    write(store, rows([1]), ["-D"])
    assert read(store).column("k").to_pylist() == [1]


def test_a_bad_row_names_itself_and_leaves_nothing(store: TableStore) -> None:
    with (
        pytest.raises(InvalidData, match=r"column 'k': row 1 \(from 0\) of the rows given: null"),
        TableWrite(store.copy({"write-buffer-size": "1 kb"})) as w,
    ):
        w.write(rows(list(range(500))))
        w.write(pa.table({"k": [1, None], "v": [1, 2], "s": ["a", "b"]}))
    assert data_files_on_disk(store) == set()


def test_rows_are_numbered_within_the_call_also_across_its_pieces(
    monkeypatch: pytest.MonkeyPatch, store: TableStore
) -> None:
    monkeypatch.setattr("lsm_core.write.incoming_rows.CHUNK_BYTES", 1)
    with TableWrite(store) as writer:
        writer.write(rows([1, 2, 3]))
        with pytest.raises(InvalidData, match=r"column 'k': row 2 \(from 0\) of the rows given"):
            writer.write(pa.table({"k": [4, 5, None], "v": [1, 2, 3], "s": ["a", "b", "c"]}))
        writer.abort()
    unkeyed = make_store(store.root + "-append", FIELDS, [], (), {})
    with pytest.raises(InvalidData, match=r"row 2 \(from 0\) of the rows given: an append table accepts only \+I"):
        write(unkeyed, rows([1, 2, 3]), ["+I", "+I", "-D"])


def test_abort_deletes_every_uncommitted_file(store: TableStore) -> None:
    writer = TableWrite(store.copy({"write-buffer-size": "1 kb", "write-buffer-spillable": "false"}))
    writer.write(rows(list(range(2000))))
    assert data_files_on_disk(store)
    writer.abort()
    assert data_files_on_disk(store) == set()


def test_a_full_disk_is_said_and_leaves_nothing(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from lsm_core.files.formats.parquet import ParquetSink

    def full(self: ParquetSink, _rows: pa.Table) -> None:
        raise StorageFull(self.path)

    monkeypatch.setattr(ParquetSink, "write", full)
    with pytest.raises(StorageFull), TableWrite(store) as writer:
        writer.write(rows([1, 2, 3]))
        writer.prepare_commit()
    assert data_files_on_disk(store) == set()


def test_another_number_of_buckets_is_refused(store: TableStore) -> None:
    write(store, rows([1, 2, 3]))
    schema = store.schema
    wider = TableStore(store.file_io, store.root, store.name, schema, {**schema.options, "bucket": "3"}, store.clock)
    before = data_files_on_disk(store)
    with pytest.raises(WriterStale, match="2 buckets"), TableWrite(wider) as writer:
        writer.write(rows([1]))
    assert data_files_on_disk(store) == before
    with TableWrite(wider, overwrite=True) as writer:
        writer.write(rows([1]))
        assert [m.total_buckets for m in writer.prepare_commit()] == [3]
        writer.abort()


def test_unsupported_tables_are_refused_at_opening(tmp_path: Path) -> None:
    store = make_store(tmp_path / "u", FIELDS, ["k"], (), {"bucket": "1", "commit.callbacks": "a.B"})
    with pytest.raises(UnsupportedFeature, match="commit callbacks"):
        TableWrite(store)


def test_append_tables_keep_order_and_refuse_changes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a", {"p": "STRING", "v": "INT"}, (), ["p"], {"bucket": "-1"})
    write(store, pa.table({"p": ["x", "y", "x", None], "v": [3, 1, 2, 9]}))
    files = live_files(store)
    assert len(files) == 3
    assert {bucket for _, bucket in files} == {0}
    assert read(store, partitions=[{"p": "x"}]).column("v").to_pylist() == [3, 2]
    assert read(store, partitions=[{"p": None}]).column("v").to_pylist() == [9]
    with pytest.raises(InvalidData, match=r"only \+I"), TableWrite(store) as writer:
        writer.write(pa.table({"p": ["x"], "v": [1]}), pa.array(["-D"]))


def test_many_partitions_keep_few_files_open(tmp_path: Path) -> None:
    options = {"bucket": "-1", "write-buffer-size": "4 kb"}
    store = make_store(tmp_path / "m", {"p": "INT", "v": "INT"}, (), ["p"], options)
    with TableWrite(store) as writer:
        for _ in range(3):
            writer.write(pa.table({"p": np.arange(4000) % 40, "v": np.arange(4000)}))
            opened = [b for b in writer._buckets.values() if getattr(b, "is_open", False)]
            assert len(opened) <= 10
        Committer(store).commit(writer.prepare_commit())
    assert sorted(read(store).column("v").to_pylist()) == sorted([*range(4000)] * 3)


def route(store: TableStore, data: pa.Table) -> tuple[pa.Array, np.ndarray]:
    """Partition and bucket of every row, from the groups that a writer makes."""
    partitions, buckets = np.empty(data.num_rows, object), np.full(data.num_rows, -9)
    for partition, bucket, positions in groups(store, data):
        partitions[positions], buckets[positions] = partition, bucket
    return pa.array(partitions, pa.binary()), buckets


def test_routed_rows_end_where_routing_said(store: TableStore) -> None:
    data = rows(list(range(300)))
    partitions, buckets = route(store, data)
    assert set(partitions.to_pylist()) == {EMPTY_ROW}
    with TableWrite(store) as writer:
        for group in TableWrite(store).routed(data):
            assert (group.partition, group.rows.num_rows) == (
                EMPTY_ROW,
                int((np.asarray(buckets) == group.bucket).sum()),
            )
            writer.add_routed(group)
        routed = writer.prepare_commit()
        writer.abort()
    with TableWrite(store) as writer:
        writer.write(data)
        direct = writer.prepare_commit()
    assert [(m.bucket, m.new_files[0].row_count, m.new_files[0].min_key) for m in routed] == [
        (m.bucket, m.new_files[0].row_count, m.new_files[0].min_key) for m in direct
    ]
    assert all(CommitMessage.from_bytes(m.to_bytes()) == m for m in direct)


@settings(max_examples=examples(25), deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["a", "b", None, ""]), st.one_of(st.none(), st.integers(-3, 3))), max_size=40
    )
)
def test_every_row_is_routed_to_its_own_partition(
    parts: list[tuple[str | None, int | None]], tmp_path_factory: object
) -> None:
    from lsm_core.format.binary_row import encode_row
    from lsm_core.types import parse

    root = tmp_path_factory.mktemp("r")  # type: ignore[attr-defined]
    store = make_store(root / "t", {"p": "STRING", "q": "INT", "v": "INT"}, (), ["p", "q"], {"bucket": "-1"})
    data = pa.table(
        {"p": [p for p, _ in parts], "q": [q for _, q in parts], "v": range(len(parts))},
        schema=store.schema.arrow_schema,
    )
    types = [parse("STRING"), parse("INT")]
    expected = [encode_row(part, types) for part in parts]
    found, buckets = route(store, data)
    assert [
        blob[4:] if len(expected) and len(blob) != len(expected[0]) else blob for blob in found.to_pylist()
    ] or not parts
    assert {blob[-len(want) :] == want for blob, want in zip(found.to_pylist(), expected, strict=True)} <= {True}
    assert set(np.asarray(buckets).tolist()) <= {0}


def test_sequence_numbers_may_start_behind_what_the_snapshot_names(tmp_path: Path) -> None:
    """Mode `snapshot`: one number for all buckets, kept as a property of snapshots; older snapshots without it are asked for their files."""
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "2"})
    write(store, rows([1, 2, 3, 4, 5, 6]))
    named = store.copy({"write.sequence-number-init-mode": "snapshot"})
    before = max(f.max_sequence_number for files in live_files(store).values() for f in files)
    for round_number in (1, 2):
        write(named, rows([1, 2, 3, 4, 5, 6], 10 * round_number))
        newest = snapshots.latest(named)
        assert newest is not None
        assert newest.properties is not None
        largest = max(f.max_sequence_number for files in live_files(named).values() for f in files)
        assert newest.properties["sequence.generation.max-sequence-number"] == str(largest)
        if round_number == 2:
            firsts = [
                min(f.min_sequence_number for f in files if f.max_sequence_number > before)
                for files in live_files(named).values()
            ]
            assert all(first > before for first in firsts)
        before = largest if round_number == 1 else before
    assert sorted(read(named).column("v").to_pylist()) == [21, 22, 23, 24, 25, 26]


def _in_turns(tmp_path: Path, name: str, partitions: int, **options: str) -> tuple[int, list[tuple[str, int]]]:
    """Files of an append table, and its rows, after a writer of a small buffer got a few rows of each partition in turn."""
    given = {"bucket": "-1", "write-buffer-size": "8 kb", **options}
    store = make_store(tmp_path / name, {"p": "STRING", "n": "BIGINT"}, (), ["p"], given)
    with TableWrite(store) as writer:
        for turn in range(40):
            names = [f"p{number:02}" for number in range(partitions) for _ in range(20)]
            first = turn * len(names)
            writer.write(pa.table({"p": names, "n": range(first, first + len(names))}))
            assert writer.buffered_bytes <= 8 << 10
        messages = writer.prepare_commit()
        Committer(store).commit(messages)
    table = read(store)
    return sum(len(message.new_files) for message in messages), list(
        zip(table.column("p").to_pylist(), table.column("n").to_pylist(), strict=True)
    )


def test_rows_of_append_tables_wait_on_disk_where_many_partitions_share_the_buffer(tmp_path: Path) -> None:
    many, rows_read = _in_turns(tmp_path, "many", 12)
    assert many == 12  # more than write-max-writers-to-spill: a file each
    never, same = _in_turns(tmp_path, "never", 12, **{"write-max-writers-to-spill": "100"})
    assert never > 12 and sorted(same) == sorted(rows_read)
    full, same = _in_turns(tmp_path, "full", 12, **{"write-buffer-spill.max-disk-size": "1 kb"})
    assert full >= 12 and sorted(same) == sorted(rows_read)
    asked, few = _in_turns(tmp_path, "asked", 2, **{"write-buffer-for-append": "true"})
    own = [n for p, n in few if p == "p00"]
    assert asked == 2 and own == sorted(own) and len(own) == 800


def test_what_an_append_writer_spilled_is_gone_with_it(tmp_path: Path) -> None:
    options = {"bucket": "-1", "write-buffer-size": "1 kb", "write-buffer-for-append": "true"}
    store = make_store(tmp_path / "t", {"n": "BIGINT"}, (), (), options)
    writer = TableWrite(store)
    writer.write(pa.table({"n": range(1_000)}))
    assert writer._pool.disk_used > 0 and data_files_on_disk(store) == set()
    writer.abort()
    assert writer._pool.disk_used == 0
