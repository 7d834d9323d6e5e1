"""`dredge.verification`: what full, sampled and counts catch before anything is published, and what they say they did not look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema
from lsm_core.compact import BucketReport, BucketTask, run_bucket_task
from lsm_core.compact import verify as v1
from lsm_core.errors import CorruptFile, InvalidOption, VerificationFailed
from lsm_core.files import KeyValueFileWriter, writer
from lsm_core.format.manifest import EMPTY_ROW
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.read import merge_read
from tests.support.stores import append_task, data_files_on_disk, full_tasks, make_store, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}
ROWS = 2_000
GROUP = 50


def rows(keys: list[int], value: int) -> pa.Table:
    return pa.table({"k": keys, "v": [value + k for k in keys], "s": [f"{value}/{k}" for k in keys]})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableStore:
    """2,000 keys in row groups of 50 rows: 40 of them after a compaction."""
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", GROUP)
    made = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(made, rows(list(range(ROWS)), 0))
    write(made, rows(list(range(0, ROWS, 3)), 1_000_000))
    return made


def task_of(store: TableStore, setting: str) -> BucketTask:
    return replace(full_tasks(store)[0], verification=setting)


def change_values(monkeypatch: pytest.MonkeyPatch, low: int, high: int) -> None:
    """The writer stores other values than it is handed for keys from ``low`` to below ``high``."""
    real = KeyValueFileWriter.write

    def write_others(self: KeyValueFileWriter, batch: pa.RecordBatch) -> None:
        keys = batch.column("_KEY_k").to_numpy()
        values = np.where((keys >= low) & (keys < high), -1, batch.column("v").to_numpy())
        place = batch.schema.get_field_index("v")
        real(self, batch.set_column(place, batch.schema.field(place), pa.array(values)))

    monkeypatch.setattr(KeyValueFileWriter, "write", write_others)


def groups_read_again(store: TableStore, task: BucketTask, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First keys of the row groups that V1 decodes for a task."""
    found: list[int] = []
    real = v1._SecondReading.streams

    def streams(self: Any, group: int, *coded: Any) -> Any:
        found.append(group)
        return real(self, group, *coded)

    with monkeypatch.context() as patch:
        patch.setattr(v1._SecondReading, "streams", streams)
        run_bucket_task(store, task)
    return found


def test_full_is_the_default_and_reads_every_row_again(store: TableStore) -> None:
    report = run_bucket_task(store, full_tasks(store)[0], ReferenceJudge()).report
    assert (report.setting, report.verification, report.rows_read_again) == ("full", "V2", ROWS)
    assert report.keys_checked >= 1_000
    assert len(report.digest) == 32


def test_sampled_reads_one_row_group_in_eight_always_the_same_ones(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(store, "sampled")
    chosen = groups_read_again(store, task, monkeypatch)
    assert len(chosen) == ROWS // GROUP // 8
    assert set(np.diff(chosen)) == {8}
    assert groups_read_again(store, task, monkeypatch) == chosen
    others = [groups_read_again(store, replace(task, base_snapshot=n), monkeypatch)[0] for n in range(20)]
    assert len(set(others)) > 3
    report = run_bucket_task(store, task, ReferenceJudge()).report
    assert (report.setting, report.verification, report.rows_read_again) == ("sampled", "V2", ROWS // 8)
    assert report.keys_checked == ROWS  # a small unit
    assert report.digest == ""


def test_sampled_reads_something_of_every_small_output(tmp_path: Path) -> None:
    """Fewer than eight row groups: where none of them would be chosen, the last one is."""
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, rows([1, 2], 0))
    write(store, rows([2, 3], 1))
    for snapshot in range(9):
        report = run_bucket_task(store, replace(task_of(store, "sampled"), base_snapshot=snapshot)).report
        assert report.rows_read_again == 3


def test_full_catches_a_change_in_any_row_group(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = data_files_on_disk(store)
    for low in (0, 777, ROWS - 1):
        with monkeypatch.context() as patch:
            change_values(patch, low, low + 1)
            with pytest.raises(VerificationFailed, match=r"V1.* in 'v'"):
                run_bucket_task(store, full_tasks(store)[0])
    assert data_files_on_disk(store) == disk


def test_sampled_catches_a_change_in_the_groups_it_reads_and_says_that_it_skips_the_others(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(store, "sampled")
    chosen = groups_read_again(store, task, monkeypatch)
    disk = data_files_on_disk(store)
    with monkeypatch.context() as patch:
        change_values(patch, chosen[2] * GROUP + 7, chosen[2] * GROUP + 8)
        with pytest.raises(VerificationFailed, match=r"V1.* in 'v'"):
            run_bucket_task(store, task)
        assert data_files_on_disk(store) == disk
    with monkeypatch.context() as patch:
        skipped = (chosen[2] + 1) * GROUP
        change_values(patch, skipped, skipped + GROUP)
        report = run_bucket_task(store, task, ReferenceJudge()).report  # a skipped group may lie: that is the price
        assert report.rows_read_again < report.rows_out
    with monkeypatch.context() as patch:  # what goes wrong everywhere is seen
        change_values(patch, 0, ROWS)
        with pytest.raises(VerificationFailed, match="V1"):
            run_bucket_task(store, task)


def test_sampled_reads_all_footers(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file cut short, and one whose row groups are not those that were written, though none of them is decoded."""
    real = KeyValueFileWriter.close

    def torn(self: KeyValueFileWriter) -> Any:
        files = real(self)
        path = Path(store.data_path(EMPTY_ROW, 0, files[0]))
        path.write_bytes(path.read_bytes()[:-9])
        return files

    def cut_otherwise(self: KeyValueFileWriter) -> Any:
        files = real(self)
        path = Path(store.data_path(EMPTY_ROW, 0, files[0]))
        pq.write_table(pq.read_table(path), path, row_group_size=GROUP + 1)
        return [replace(files[0], file_size=path.stat().st_size), *files[1:]]

    for damage, error in ((torn, CorruptFile), (cut_otherwise, VerificationFailed)):
        with monkeypatch.context() as patch:
            patch.setattr(KeyValueFileWriter, "close", damage)
            with pytest.raises(error):
                run_bucket_task(store, task_of(store, "sampled"))


@pytest.mark.parametrize("setting", ["full", "sampled"])
def test_a_wrong_merge_is_seen_whatever_is_read_again(
    store: TableStore, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """V2 of a sampled verification compares what was handed to the writer."""
    real = merge_read.merge_streams

    def wrong(*inputs: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(*inputs, **how):
            place = batch.schema.get_field_index("v")
            yield batch.set_column(place, batch.schema.field(place), pa.array(batch.column("v").to_numpy() + 1))

    monkeypatch.setattr(merge_read, "merge_streams", wrong)
    with pytest.raises(VerificationFailed, match="V2"):
        run_bucket_task(store, task_of(store, setting), ReferenceJudge())


def test_counts_looks_at_counters_and_metadata_only(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(store, "counts")
    monkeypatch.setattr(v1, "open_source", lambda *_: pytest.fail("nothing is read again"))
    with monkeypatch.context() as patch:
        change_values(patch, 0, ROWS)
        report = run_bucket_task(store, task, ReferenceJudge()).report
    assert (report.setting, report.verification, report.keys_checked) == ("counts", "V0", 0)
    assert (report.rows_read_again, report.digest) == (0, "")
    real = KeyValueFileWriter.write
    monkeypatch.setattr(KeyValueFileWriter, "write", lambda self, batch: real(self, batch.slice(1)))
    with pytest.raises(VerificationFailed, match="V0"):
        run_bucket_task(store, task)


@pytest.mark.parametrize(
    ("options", "fields"),
    [({"file.format": "orc"}, {}), ({"file.format": "avro"}, {}), ({}, {"a": "ARRAY<INT>"})],
)
@pytest.mark.parametrize("setting", ["full", "sampled", "counts"])
def test_other_formats_and_nested_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], fields: dict[str, str], setting: str
) -> None:
    """ORC and Avro files have no row groups to choose from: sampled reads them whole."""
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", GROUP)
    store = make_store(tmp_path / "t", {**FIELDS, **fields}, ["k"], (), {"bucket": "1", **options})
    for number in range(2):
        data = rows(list(range(number * 100, 800)), number)
        if fields:
            data = data.append_column(
                "a", pa.array([[k, number] for k in range(number * 100, 800)], pa.list_(pa.int32()))
            )
        write(store, data)
    report = run_bucket_task(store, task_of(store, setting), ReferenceJudge()).report
    again = {"full": 800, "sampled": 100 if fields else 800, "counts": 0}[setting]
    assert (report.rows_out, report.rows_read_again) == (800, again)
    change_values(monkeypatch, 0, 800)
    if setting == "counts":
        run_bucket_task(store, task_of(store, setting))
    else:
        with pytest.raises(VerificationFailed, match=r"V1.*digests differ"):
            run_bucket_task(store, task_of(store, setting))


@pytest.mark.parametrize(("setting", "again"), [("full", 400), ("sampled", 50), ("counts", 0)])
def test_append_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, again: int) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", GROUP)
    store = make_store(tmp_path / "t", FIELDS, (), (), {"bucket": "-1"})
    for number in range(2):
        write(store, rows(list(range(200)), number))
    (task,) = append_task(store)
    report: BucketReport = run_bucket_task(store, replace(task, verification=setting)).report
    assert (report.rows_in, report.rows_out, report.rows_read_again) == (400, 400, again)
    assert report.verification == ("V0" if setting == "counts" else "V1")


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("full", "V2, 400 keys re-merged by the reference in 1 buckets, 400 rows re-read"),
        ("sampled", "V2 (sampled), 400 keys re-merged by the reference in 1 buckets, 400 rows re-read"),
        ("counts", "V0 (counts), 0 keys re-merged by the reference in 1 buckets, nothing re-read"),
    ],
)
def test_reports_and_ledger_say_which_setting_ran(tmp_path: Path, setting: str, text: str) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
    options = {"bucket": "1", "dredge.verification": setting}
    table = catalog.create_table("db.t", Schema(schema, ["k"], options=options))
    for number in range(2):
        table.write(rows(list(range(400)), number).cast(schema))
    report = table.compact(full=True)
    assert report.verification.text() == text
    assert report.verification.setting == setting
    unseen = {"full": "outputs re-read", "sampled": "the others were not read", "counts": "a changed value goes unseen"}
    assert unseen[setting] in report.verification.independence
    entry = table.ledger()[-1]
    assert entry.report["verification"]["setting"] == setting
    assert entry.lines[0]["setting"] == setting
    assert table.to_arrow().num_rows == 400


def test_another_word_is_refused(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    with pytest.raises(InvalidOption, match="full, sampled, counts"):
        catalog.create_table("db.t", Schema(pa.schema([("v", pa.int64())]), options={"dredge.verification": "some"}))


def test_the_setting_crosses_to_a_worker(store: TableStore) -> None:
    task = task_of(store, "sampled")
    assert BucketTask.from_bytes(task.to_bytes()) == task


def test_a_large_unit_is_judged_by_a_sample_that_pieces_share(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, rows(list(range(8_000)), 0))
    write(store, rows(list(range(0, 8_000, 5)), 1))
    checked = {
        name: run_bucket_task(store, task_of(store, setting), ReferenceJudge(), share=share).report.keys_checked
        for name, setting, share in (("whole", "full", 1), ("piece", "full", 4), ("sampled", "sampled", 1))
    }
    assert 1_000 <= checked["whole"] < 2_000
    assert 250 <= checked["piece"] < 500
    assert 250 <= checked["sampled"] < 500
