"""File indexes come with the file they are about, lie where the option says, and go when it goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from lsm_core.compact import run_bucket_task
from lsm_core.errors import CorruptFile, DredgeError, InvalidOption
from lsm_core.files.index_writer import SUFFIX, IndexWriter
from lsm_core.format.file_index import FileIndex
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.read.predicate import Predicate
from lsm_core.storage import LocalFileIO
from lsm_core.storage.faults import FaultyFileIO, InjectedFault
from lsm_core.types import parse
from lsm_core.write import TableWrite
from tests.maintenance.tables import HOUR, content, keyed, rows, strays
from tests.support.stores import append_task, data_files_on_disk, full_tasks, live_files, make_store, read, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}
BLOOM = {
    "bucket": "1",
    "file-index.bloom-filter.columns": "v, s",
    "file-index.bloom-filter.v.items": "200",
    "file-index.bloom-filter.s.items": "200",
    "file-index.in-manifest-threshold": "0 b",
}


def some(first: int, count: int) -> pa.Table:
    keys = range(first, first + count)
    columns = {"k": pa.array(keys, pa.int32()), "v": pa.array([k * 7 for k in keys], pa.int64())}
    return pa.table({**columns, "s": [None if k % 5 == 0 else f"text {k}" for k in keys]})


def only_file(store: TableStore) -> tuple[bytes, int, FileIndex]:
    ((place, files),) = live_files(store).items()
    (file,) = files
    found = file_index(store, *place, file)
    assert found is not None
    return (*place, found)


@pytest.mark.parametrize("keys", [(), ("k",)])
@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_an_index_is_beside_its_file_or_in_the_manifest(tmp_path: Path, keys: tuple[str, ...], threshold: str) -> None:
    bucket = "1" if keys else "-1"
    options = {**BLOOM, "bucket": bucket, "file-index.in-manifest-threshold": threshold}
    store = make_store(tmp_path, FIELDS, keys, options=options)
    write(store, some(0, 100))
    ((_, (file,)),) = live_files(store).items()
    assert file.extra_files == ((file.file_name + SUFFIX,) if threshold == "0 b" else ())
    assert (file.embedded_index is None) is (threshold == "0 b")
    assert data_files_on_disk(store) == {file.file_name, *file.extra_files}
    _, _, found = only_file(store)
    assert found.columns == {"v": ("bloom-filter",), "s": ("bloom-filter",)}
    number = store.schema.field("v").type
    assert all(found.may_match("v", number, "=", pa.scalar(k * 7)) for k in range(100))
    assert sum(found.may_match("v", number, "=", pa.scalar(k * 7 + 1)) for k in range(100)) < 40
    assert not store.copy({"file-index.read.enabled": "false"}).options.get("file-index.read.enabled")
    assert file_index(store.copy({"file-index.read.enabled": "false"}), b"", 0, file) is None


def test_every_rolled_file_has_an_index_of_its_own_rows(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, options={**BLOOM, "bucket": "-1", "target-file-size": "2 kb"})
    write(store, some(0, 4000))
    ((place, files),) = live_files(store).items()
    assert len(files) > 3
    number = store.schema.field("v").type
    for file in files:
        found = file_index(store, *place, file)
        assert found is not None
        inside = range(file.min_sequence_number, file.max_sequence_number + 1)
        assert all(found.may_match("v", number, "=", pa.scalar(k * 7)) for k in inside)
    assert read(store, filter=[("v", "=", 777 * 7)]).column("k").to_pylist() == [777]


def test_a_key_of_a_map_is_indexed_by_its_values(tmp_path: Path) -> None:
    options = {"bucket": "-1", "file-index.bloom-filter.columns": "m[a]", "file-index.bloom-filter.m.items": "50"}
    store = make_store(tmp_path, {"m": "MAP<STRING, INT>"}, options=options)
    maps = pa.array([[("a", 1), ("b", 2)], None, [("b", 3)], [("a", None)]], pa.map_(pa.string(), pa.int32()))
    with_index = IndexWriter.of(store)
    assert with_index is not None
    with_index.add(pa.table({"m": maps}))
    write(store, pa.table({"m": maps}))
    _, _, found = only_file(store)
    assert found.columns == {"m##a": ("bloom-filter",)}
    kind = store.schema.field("m").type.value
    assert kind is not None
    assert [found.may_match("m##a", kind, "=", pa.scalar(n, pa.int32())) for n in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize(
    ("columns", "extra"),
    [
        ("nobody", {}),
        ("v,,s", {}),
        ("flag", {}),
        ("v[a]", {}),
        ("v", {"file-index.bloom-filter.v.items": "0"}),
        ("v", {"file-index.bloom-filter.v.fpp": "1.5"}),
        ("v", {"file-index.bitmap.columns": "bytes"}),
        ("v", {"file-index.bitmap.columns": "v", "file-index.bitmap.v.version": "3"}),
        ("v", {"file-index.bitmap.columns": "v", "file-index.bitmap.v.index-block-size": "big"}),
        ("v", {"file-index.bsi.columns": "s"}),
        ("v", {"file-index.range-bitmap.columns": "wide"}),
        ("v", {"file-index.range-bitmap.columns": "nanos"}),
    ],
)
def test_what_cannot_be_indexed_is_refused_before_a_row_is_written(
    tmp_path: Path, columns: str, extra: dict[str, str]
) -> None:
    options = {"bucket": "-1", "file-index.bloom-filter.columns": columns, **extra}
    fields = {**FIELDS, "flag": "BOOLEAN", "bytes": "BYTES", "wide": "DECIMAL(20,2)", "nanos": "TIMESTAMP(9)"}
    with pytest.raises(InvalidOption, match=r"file-index\."):
        write(make_store(tmp_path, fields, options=options), some(0, 3))
    assert not list(tmp_path.glob("bucket-*/*"))


def test_an_aborted_write_leaves_no_index(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, ("k",), options=BLOOM)
    with pytest.raises(RuntimeError, match="changed my mind"), TableWrite(store) as writer:
        writer.write(some(0, 100))
        for bucket in writer._buckets.values():
            bucket.flush()
        assert len(data_files_on_disk(store)) == 2
        raise RuntimeError("changed my mind")
    assert data_files_on_disk(store) == set()


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_failure_while_the_index_is_written_leaves_neither_file(
    tmp_path: Path, mode: Literal["before", "after"]
) -> None:
    made = make_store(tmp_path, FIELDS, ("k",), options=BLOOM)
    write(made, some(0, 100))
    before = data_files_on_disk(made)
    step = failed = 0
    while True:  # fail at every step of the I/O in turn, until none is left to fail
        step += 1
        faulty = FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)
        store = TableStore(faulty, made.root, "db.t", made.schema, clock=made.clock)
        try:
            with TableWrite(store) as writer:
                writer.write(some(50, 100))
                writer.prepare_commit()
        except (InjectedFault, DredgeError):
            assert {name for name in data_files_on_disk(made) if name not in before} == set()
            failed += 1
            continue
        if faulty.steps < step:
            break
        before = data_files_on_disk(made)  # a hint that could not be read, say, stopped nothing
    assert failed > 3


def test_a_rewrite_makes_a_new_index_and_an_upgrade_keeps_the_old_one(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, ("k",), options=BLOOM)
    write(store, some(0, 100))
    (task,) = full_tasks(store)
    message = run_bucket_task(store, task).message
    (file,) = message.compact_after
    assert file.extra_files == (file.file_name + SUFFIX,)
    assert file.level == store.options.num_levels - 1
    assert (file.file_name,) == task.unit_names  # an upgrade: the file stays as it is
    write(store, some(50, 100))
    (task,) = full_tasks(store)
    (rewritten,) = run_bucket_task(store, task).message.compact_after
    assert rewritten.extra_files == (rewritten.file_name + SUFFIX,)
    assert rewritten.extra_files[0] in data_files_on_disk(store)


def test_small_append_files_put_together_get_an_index_of_all_their_rows(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, options={**BLOOM, "bucket": "-1"})
    for first in (0, 100):
        write(store, some(first, 100))
    (task,) = append_task(store)
    (file,) = run_bucket_task(store, task).message.compact_after
    found = file_index(store, task.partition, task.bucket, file)
    assert found is not None
    number = store.schema.field("v").type
    assert all(found.may_match("v", number, "=", pa.scalar(k * 7)) for k in range(200))


def test_expiry_takes_the_index_with_its_file(tmp_path: Path) -> None:
    options = {
        "file-index.bloom-filter.columns": "v",
        "file-index.bloom-filter.v.items": "100",
        "file-index.in-manifest-threshold": "0 b",
    }
    table = keyed(tmp_path, **options)  # type: ignore[arg-type]
    for i in range(3):
        table.write(rows(range(i * 10, i * 10 + 30), v=i))
    table.compact(full=True)
    before = content(table)
    table.store.clock.advance(2 * HOUR)  # type: ignore[attr-defined]
    table.expire_snapshots(retain_max=1)
    table.store.clock.advance(2 * HOUR)  # type: ignore[attr-defined]
    table.sweep_trash()
    assert not strays(table)
    kept = data_files_on_disk(table.store)
    assert len(kept) % 2 == 0
    assert {f"{name}{SUFFIX}" for name in kept if not name.endswith(SUFFIX)} <= kept
    assert content(table) == before


def test_a_side_file_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path, FIELDS, ("k",), options=BLOOM)
    write(store, some(0, 100))
    ((place, (file,)),) = live_files(store).items()
    path = Path(store.data_path(*place, file.extra_files[0]))
    whole = path.read_bytes()
    for content_ in (b"", whole[:40], b"x" * 100, whole[:-1]):
        path.write_bytes(content_)
        with pytest.raises(CorruptFile, match=path.name):
            found = file_index(store, *place, file)
            assert found is not None
            found.may_match("v", store.schema.field("v").type, "=", pa.scalar(7))
    path.unlink()
    with pytest.raises(CorruptFile, match=path.name):
        file_index(store, *place, file)


ROWS = {
    "bucket": "-1",
    "file-index.bitmap.columns": "s",
    "file-index.bsi.columns": "v",
    "file-index.range-bitmap.columns": "k",
    "metadata.stats-mode": "none",
    "file.block-size": "64 kb",
}


@pytest.mark.parametrize("threshold", ["0 b", "10 mb"])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_indexes_choose_the_rows_that_are_decoded(
    tmp_path: Path, threshold: str, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**ROWS, "file.format": file_format, "file-index.in-manifest-threshold": threshold}
    store = make_store(tmp_path, FIELDS, options=options)
    write(store, some(0, 40_000))
    asked: list[int] = []
    seen = Predicate.apply

    def counting(self: Predicate, batch: pa.RecordBatch) -> pa.RecordBatch:
        asked.append(batch.num_rows)
        return seen(self, batch)

    monkeypatch.setattr(Predicate, "apply", counting)
    for wanted, keys in (
        ([("s", "=", "text 777")], [777]),
        ([("v", "<", 70), ("s", "is not null")], [1, 2, 3, 4, 6, 7, 8, 9]),
        ([("k", ">=", 39_998)], [39_998, 39_999]),
        ([[("k", "=", 5)], [("s", "in", ["text 9", "text 30001"])]], [5, 9, 30_001]),
    ):
        asked.clear()
        assert sorted(read(store, filter=wanted).column("k").to_pylist()) == keys
        assert sum(asked) == len(keys)
    asked.clear()
    assert read(store, filter=[("v", "=", 3)]).num_rows == 0
    assert asked == []


def test_a_value_that_has_no_slices_is_written_without_them(tmp_path: Path) -> None:
    options = {"bucket": "-1", "file-index.bsi.columns": "d,v", "file-index.in-manifest-threshold": "1 mb"}
    store = make_store(tmp_path, {"d": "DECIMAL(30,0)", "v": "BIGINT"}, options=options)
    digits = pa.decimal128(30, 0)
    write(store, pa.table({"d": pa.array([1, 2], digits), "v": [1, -(2**63)]}))
    ((place, (file,)),) = live_files(store).items()
    found = file_index(store, *place, file)
    assert found is not None
    assert found.columns == {"d": ("bsi",)}
    write(store, pa.table({"d": pa.array([10**29, None], digits), "v": [1, None]}))
    newest = max(live_files(store)[place], key=lambda one: one.file_name != file.file_name)
    found = file_index(store, *place, newest)
    assert found is not None
    assert found.columns == {"v": ("bsi",)}
    assert read(store, filter=[("v", "=", -(2**63))]).num_rows == 1


def test_indexes_of_columns_that_were_renamed_or_widened_since(tmp_path: Path) -> None:
    store = make_store(
        tmp_path,
        {"k": "INT", "v": "INT"},
        options={
            **ROWS,
            "file-index.bitmap.columns": "k",
            "file-index.bsi.columns": "v",
            "file-index.range-bitmap.columns": "v",
        },
    )
    write(store, pa.table({"k": pa.array([1, 2, 3], pa.int32()), "v": pa.array([4, 5, 6], pa.int32())}))
    key, number = store.schema.fields
    newer = (replace(key, name="key"), replace(number, type=parse("BIGINT")))
    assert write_schema(LocalFileIO(), store.root, replace(store.schema, id=1, fields=newer, options={"bucket": "-1"}))
    today = TableStore.open(LocalFileIO(), store.root, "db.t")
    assert read(today, filter=[("key", "=", 2)]).column("v").to_pylist() == [5]
    assert read(today, filter=[("v", ">", 5)]).column("key").to_pylist() == [3]


def test_only_nulls_under_a_key_of_a_map_are_said_so(tmp_path: Path) -> None:
    options = {"bucket": "-1", "file-index.bitmap.columns": "m[a],m[b]", "file-index.in-manifest-threshold": "1 mb"}
    store = make_store(tmp_path, {"m": "MAP<STRING, INT>"}, options=options)
    write(store, pa.table({"m": pa.array([[("b", 1)], None], pa.map_(pa.string(), pa.int32()))}))
    _, _, found = only_file(store)
    kind = store.schema.field("m").type.value
    assert kind is not None
    assert not found.may_match("m##a", kind, "=", pa.scalar(1, pa.int32()))
    assert found.may_match("m##b", kind, "=", pa.scalar(1, pa.int32()))
    assert found.row_mask("m##b", kind, "=", pa.scalar(1, pa.int32()), 2).tolist() == [True, False]  # type: ignore[union-attr]
