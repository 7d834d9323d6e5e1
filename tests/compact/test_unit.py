"""One bucket's task: answers stay, work stays small, and a failure leaves nothing behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.commit import CommitMessage, Committer
from lsm_core.compact import BucketResult, BucketTask, run_bucket_task, run_tasks_locally
from lsm_core.errors import CorruptFile, PlanStale, StorageFull
from lsm_core.files import KeyValueFileWriter
from lsm_core.files.formats.parquet import ParquetSource
from lsm_core.format.entry_files import EntryFiles
from lsm_core.format.manifest import EMPTY_ROW, ManifestEntry, entries_to_table
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.read.merge_read import as_tree
from lsm_core.tree import Levels
from tests.support.stores import (
    append_task,
    data_files_on_disk,
    full_tasks,
    live_files,
    make_store,
    read,
    unit_task,
    write,
)

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}


def rows(keys: list[int], value: int) -> pa.Table:
    return pa.table({"k": keys, "v": [value + k for k in keys], "s": [f"{value}/{k}" for k in keys]})


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    made = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(made, rows(list(range(100)), 0))
    write(made, rows(list(range(50, 150)), 1000))
    write(made, rows([3, 60, 149, 500], 0), ["-D", "-D", "-U", "-D"])
    return made


def sorted_rows(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


def commit(store: TableStore, *results: BucketResult) -> None:
    Committer(store).commit([result.message for result in results])


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_full_compaction_keeps_every_answer(store: TableStore, pipelined: bool) -> None:
    before = sorted_rows(read(store))
    (task,) = full_tasks(store)
    result = run_bucket_task(store, task, pipelined=pipelined)
    report = result.report
    assert (report.files_in, report.files_out, report.rows_in, report.rows_out) == (3, 1, 204, 147)
    assert report.rows_dropped == {"older-version": 53, "delete-at-bottom": 4}
    assert report.rows_in == report.rows_out + sum(report.rows_dropped.values())
    commit(store, result)
    assert sorted_rows(read(store)) == before
    assert sorted_rows(read(store, snapshot_id=3)) == before
    (files,) = live_files(store).values()
    assert [(file.level, file.delete_row_count, file.file_source) for file in files] == [(5, 0, 1)]


def test_a_minor_compaction_keeps_deletes_and_the_answer(store: TableStore) -> None:
    before = sorted_rows(read(store))
    newest = sorted(live_files(store)[EMPTY_ROW, 0], key=lambda f: f.max_sequence_number)[1:]
    task = unit_task(store, EMPTY_ROW, 0, [file.file_name for file in newest], 0)
    task = BucketTask.from_bytes(task.to_bytes())
    assert not task.drop_delete
    result = run_bucket_task(store, task)
    assert sum(file.delete_row_count or 0 for file in result.message.compact_after) == 4
    commit(store, BucketResult.from_bytes(result.to_bytes()))
    assert sorted_rows(read(store)) == before


def test_sequence_numbers_and_kinds_of_winners_survive(store: TableStore) -> None:
    from lsm_core.read import read_bucket_merged

    files = live_files(store)[EMPTY_ROW, 0]
    before = pa.Table.from_batches(read_bucket_merged(store, EMPTY_ROW, 0, files, keep_system=True))
    commit(store, run_bucket_task(store, full_tasks(store)[0]))
    files = live_files(store)[EMPTY_ROW, 0]
    after = pa.Table.from_batches(read_bucket_merged(store, EMPTY_ROW, 0, files, keep_system=True))
    assert after == before


def test_lone_large_files_are_upgraded_without_touching_a_byte(tmp_path: Path) -> None:
    store = make_store(tmp_path / "u", FIELDS, ["k"], (), {"bucket": "1", "target-file-size": "1 kb"})
    for start in (0, 1000, 2000):
        write(store, rows(list(range(start, start + 300)), start))
    before, disk = sorted_rows(read(store)), data_files_on_disk(store)
    (task,) = full_tasks(store)
    result = run_bucket_task(store, task)
    assert result.report.files_upgraded == len(disk)
    assert result.report.bytes_out == 0
    commit(store, result)
    assert data_files_on_disk(store) == disk
    assert sorted_rows(read(store)) == before
    assert {file.level for file in live_files(store)[EMPTY_ROW, 0]} == {5}


def test_one_touched_key_range_of_five_rewrites_a_fifth(tmp_path: Path) -> None:
    store = make_store(tmp_path / "r", FIELDS, ["k"], (), {"bucket": "1", "target-file-size": "400 kb"})
    random = np.random.default_rng(5)

    def noise(keys: range) -> pa.Table:
        numbers = random.integers(0, 1 << 60, len(keys))
        return pa.table({"k": keys, "v": numbers, "s": np.char.mod("%015x", numbers[::-1])})

    for part in range(5):
        write(store, noise(range(part * 20_000, part * 20_000 + 20_000)))
    commit(store, *[run_bucket_task(store, task) for task in full_tasks(store)])
    settled = {file.file_name: file for file in live_files(store)[EMPTY_ROW, 0]}
    total = sum(file.file_size for file in settled.values())
    write(store, noise(range(40_000, 60_000, 3)))
    before = sorted_rows(read(store))
    result = run_bucket_task(store, full_tasks(store)[0])
    assert result.report.bytes_out <= 0.25 * total
    commit(store, result)
    assert sorted_rows(read(store)) == before
    after = {file.file_name: file for file in live_files(store)[EMPTY_ROW, 0]}
    assert sum(name in after for name in settled) >= 0.7 * len(settled)
    Levels(as_tree(store, list(after.values())), 6).validate()


def test_a_missing_input_is_a_corrupt_file_and_leaves_nothing(store: TableStore) -> None:
    (task,) = full_tasks(store)
    gone = Path(store.data_path(EMPTY_ROW, 0, task.files[1]))
    content = gone.read_bytes()
    disk = data_files_on_disk(store)
    for damage in (lambda: gone.unlink(), lambda: gone.write_bytes(content[:-20] + b"x" * 20)):
        damage()
        with pytest.raises(CorruptFile, match=gone.name):
            run_bucket_task(store, task)
        assert data_files_on_disk(store) | {gone.name} == disk
    gone.write_bytes(content)
    run_bucket_task(store, task)


def test_an_unsorted_input_is_a_corrupt_file(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    (task,) = full_tasks(store)
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, 0, 0)
    rest = [f for f in task.files if f.row_count == 100]
    from lsm_core.files import open_kv

    (batch,) = open_kv(store, EMPTY_ROW, 0, rest[0])
    writer.write(batch.take(pa.array(list(reversed(range(batch.num_rows))))))
    (unsorted,) = writer.close()
    unsorted = dataclasses.replace(unsorted, min_key=rest[0].min_key, max_key=rest[0].max_key)
    broken = dataclasses.replace(
        task, files=(unsorted, *task.files[1:]), unit_names=(unsorted.file_name, *task.unit_names[1:])
    )
    disk = data_files_on_disk(store)
    with pytest.raises(CorruptFile, match=unsorted.file_name):
        run_bucket_task(store, broken)
    assert data_files_on_disk(store) == disk


def test_a_full_disk_deletes_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lsm_core.files.formats.parquet import ParquetSink

    store = make_store(tmp_path / "d", FIELDS, ["k"], (), {"bucket": "1", "target-file-size": "4 kb"})
    for value in (1, 2):
        write(store, rows(list(range(20_000)), value))
    disk = data_files_on_disk(store)
    (task,) = full_tasks(store)
    real, seen = ParquetSink.write, []

    def full(self: ParquetSink, table: pa.Table) -> None:
        seen.append(self.path)
        if len(set(seen)) > 2:
            raise StorageFull(self.path)
        real(self, table)

    monkeypatch.setattr(ParquetSink, "write", full)
    with pytest.raises(StorageFull):
        run_bucket_task(store, task)
    assert len(set(seen)) > 2
    assert data_files_on_disk(store) == disk


def test_a_task_over_files_that_are_gone_is_stale(store: TableStore) -> None:
    import dataclasses

    (task,) = full_tasks(store)
    with pytest.raises(PlanStale, match="no longer a live file"):
        run_bucket_task(store, dataclasses.replace(task, unit_names=("data-nope-0.parquet",)))
    with pytest.raises(PlanStale, match="deletes cannot be dropped"):
        commit(store, run_bucket_task(store, task))
        write(store, rows([1], 1))
        write(store, rows([1], 2))
        newest = [f.file_name for f in live_files(store)[EMPTY_ROW, 0] if f.level == 0]
        minor = unit_task(store, EMPTY_ROW, 0, newest, 1)
        run_bucket_task(store, dataclasses.replace(minor, drop_delete=True))


def test_results_in_order_and_a_failing_bucket_cleans_what_was_not_handed_out(tmp_path: Path) -> None:
    store = make_store(tmp_path / "l", FIELDS, ["k"], (), {"bucket": "4"})
    for value in range(3):
        write(store, rows(list(range(400)), value * 1000))
    tasks = full_tasks(store)
    results = list(run_tasks_locally(store, tasks, threads=2))
    assert [result.message.bucket for result in results] == [task.bucket for task in tasks]
    from lsm_core.commit import abort

    abort(store, [result.message for result in results])
    disk = data_files_on_disk(store)
    broken = tasks[2]
    Path(store.data_path(EMPTY_ROW, broken.bucket, broken.files[0])).unlink()
    handed = []
    with pytest.raises(CorruptFile):
        for result in run_tasks_locally(store, tasks, threads=2):
            handed.append(result)
    assert len(handed) == 2
    abort(store, [result.message for result in handed])
    assert data_files_on_disk(store) == disk - {broken.files[0].file_name}


def test_small_append_files_become_one_in_order(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a", {"p": "STRING", "v": "INT"}, (), ["p"], {"bucket": "-1"})
    for start in range(0, 50, 10):
        write(store, pa.table({"p": ["x"] * 10, "v": range(start, start + 10)}))
    before = read(store).column("v").to_pylist()
    tasks = [BucketTask.from_bytes(task.to_bytes()) for task in append_task(store)]
    (result,) = run_tasks_locally(store, tasks)
    assert (result.report.files_in, result.report.files_out, result.report.rows_out) == (5, 1, 50)
    commit(store, result)
    assert sorted(read(store).column("v").to_pylist()) == sorted(before)
    (files,) = live_files(store).values()
    assert len(files) == 1
    assert files[0].file_source == 1


def test_bytes_of_a_task_are_checked() -> None:
    with pytest.raises(CorruptFile):
        BucketTask.from_bytes(b"nonsense")
    with pytest.raises(CorruptFile):
        BucketResult.from_bytes(b"nonsense")


def test_files_are_shipped_as_columns_and_refused_in_another_form(store: TableStore) -> None:
    (task,) = full_tasks(store)
    columns = EntryFiles(entries_to_table([ManifestEntry(1, b"p", 7, 8, file) for file in task.files]))
    assert replace(task, files=columns) == task
    assert hash(columns) == hash(tuple(task.files))
    assert (len(columns), columns[1], columns[1:]) == (3, task.files[1], tuple(task.files[1:]))
    data = replace(task, files=columns).to_bytes()
    assert BucketTask.from_bytes(data) == task
    head, _, body = data.partition(b"\n")
    settings = json.loads(head)
    absent = settings["absent"]
    assert "embedded_index" in absent, "columns without values are left out"
    shipped = [name for name in columns.columns.column_names[4:] if name not in absent]
    batch = columns.columns.select(shipped).to_batches()[0]

    def replaced(name: str, values: pa.Array) -> bytes:
        """Return the bytes with other values of a column, whose type the reader does not learn."""
        place = batch.schema.get_field_index(name)
        return b"%b\n%b" % (head, batch.set_column(place, name, values).serialize())

    def without(names: list[object]) -> bytes:
        return b"%b\n%b" % (json.dumps({**settings, "absent": names}).encode(), body)

    assert BucketTask.from_bytes(without(absent)) == task
    for broken in (
        without([]),
        without([*absent, "min_key"]),
        without([*absent, "no column"]),
        without([*absent, 1]),
        replaced("min_key", pa.array([None, b"", b""], pa.binary())),
        replaced("file_name", pa.array([b"\xff", b"a", b"b"], pa.binary())),
        replaced("file_size", pa.array(["a", "b", "c"], pa.string())),
        data[:-20],
        head,
    ):
        with pytest.raises(CorruptFile, match="compaction task"):
            BucketTask.from_bytes(broken)


def test_a_bucket_of_many_level0_files_opens_few_of_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files open when their rows are wanted: never more than `sort-spill-threshold`, V1's re-reading and the judge's samples counted."""
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "sort-spill-threshold": "5"})
    random = np.random.default_rng(3)
    made = []
    for number in range(120):
        keys = np.sort(random.choice(900, 20, replace=False))
        system = {"_KEY_k": keys, "_SEQUENCE_NUMBER": np.arange(20) + 20 * number, "_VALUE_KIND": np.zeros(20, np.int8)}
        columns = {**system, "k": keys, "v": keys * number, "s": keys.astype(str)}
        writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, level=0, file_source=0)
        writer.write(pa.record_batch({name: pa.array(values) for name, values in columns.items()}))
        made += writer.close()
    Committer(store).commit([CommitMessage(EMPTY_ROW, 0, 1, new_files=tuple(made))])
    now_open, most = [0], [0]
    opening, closing = ParquetSource.__init__, ParquetSource.close

    def counted(self: ParquetSource, *what: object, **how: object) -> None:
        opening(self, *what, **how)  # type: ignore[arg-type]
        now_open[0] += 1
        most[0] = max(most[0], now_open[0])

    def closed(self: ParquetSource) -> None:
        closing(self)
        now_open[0] -= 1

    before = sorted_rows(read(store))
    monkeypatch.setattr(ParquetSource, "__init__", counted)
    monkeypatch.setattr(ParquetSource, "close", closed)
    result = run_bucket_task(store, full_tasks(store)[0], ReferenceJudge())
    assert (result.report.files_in, result.report.rows_in, result.report.verification) == (120, 2400, "V2")
    assert most[0] <= 5
    assert now_open[0] == 0
    monkeypatch.undo()
    commit(store, result)
    assert sorted_rows(read(store)) == before
