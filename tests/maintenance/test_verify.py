"""The judge (V2) agrees with honest compactions and stops every kind of dishonest one; snapshots compare by content."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.compact import BucketTask, run_bucket_task
from lsm_core.errors import SnapshotNotFound, VerificationFailed
from lsm_core.files import KeyValueFileWriter, open_kv
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance import verify
from lsm_core.maintenance.actions.compact.execution import tasks_of_plan
from lsm_core.maintenance.verify import ReferenceJudge, unequal_rows
from lsm_core.table import Schema, Table
from lsm_core.types import parse
from tests.maintenance.tables import catalog, content, keyed, rows
from tests.support.samples import examples

Tamper = Callable[[pa.Table], pa.Table]


def _task(table: Table) -> BucketTask:
    tasks, stale = tasks_of_plan(table.store, table.plan_maintenance("compact", full=True))
    assert len(tasks) == 1 and not stale
    return tasks[0][1]


def _compacted(table: Table) -> tuple[BucketTask, tuple[DataFileMeta, ...], tuple[DataFileMeta, ...]]:
    task = _task(table)
    message = run_bucket_task(table.store, task).message
    return task, message.compact_before, message.compact_after


def _rewritten(table: Table, task: BucketTask, outputs: tuple[DataFileMeta, ...], tamper: Tamper) -> list[DataFileMeta]:
    """The outputs once more, with other rows."""
    store = table.store
    batches = [batch for file in outputs for batch in open_kv(store, task.partition, task.bucket, file)]
    changed = tamper(pa.Table.from_batches(batches)).combine_chunks()
    writer = KeyValueFileWriter(
        store, task.partition, task.bucket, task.total_buckets, level=task.output_level, file_source=SOURCE_COMPACT
    )
    for batch in changed.to_batches():
        writer.write(batch)
    return writer.close()


def _set(column: str, at: int, value: object) -> Tamper:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(column)
        values = table.column(column).to_pylist()
        values[at] = value
        return table.set_column(index, table.schema.field(column), pa.array(values, table.schema.field(column).type))

    return change


def _swap(column: str) -> Tamper:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        first, second = 1, next(i for i, value in enumerate(values) if value != values[1])
        return _set(column, second, values[first])(_set(column, first, values[second])(table))

    return change


def _resurrect(table: pa.Table) -> pa.Table:
    """A row for key 7, which is deleted."""
    row = table.slice(3, 1)
    for name in ("_KEY_k", "k"):
        row = _set(name, 0, 7)(row)
    at = pc.sum(pc.less(table.column("k"), 7)).as_py()
    return pa.concat_tables([table.slice(0, at), row, table.slice(at)])


LIES: dict[str, Tamper] = {
    "a row dropped": lambda t: pa.concat_tables([t.slice(0, 5), t.slice(6)]),
    "the last row dropped": lambda t: t.slice(0, t.num_rows - 1),
    "a deleted row brought back": _resurrect,
    "two values swapped": _swap("v"),
    "a null filled": _set("s", 0, "x"),
    "a value nulled": _set("s", 1, None),
    "an older version's sequence number": _set("_SEQUENCE_NUMBER", 4, 0),
    "a kind changed": _set("_VALUE_KIND", 4, 2),
}


def _history(tmp_path: Path, **options: str) -> Table:
    table = keyed(tmp_path, **options)
    for i in range(4):
        table.write(rows(range(i * 3, i * 3 + 20), v=100 * i))
    table.write(rows([7, 9]), row_kinds=pa.array(["-D", "-D"]))
    return table


@pytest.mark.parametrize("at_once", [32 << 20, 1])
@pytest.mark.parametrize("lie", sorted(LIES))
def test_the_judge_stops_every_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str, at_once: int) -> None:
    """Also where rows are so wide that they are compared one by one."""
    monkeypatch.setattr(verify, "_COMPARED_BYTES", at_once)
    table = _history(tmp_path)
    task, inputs, outputs = _compacted(table)
    judge = ReferenceJudge()
    assert judge.check(table.store, task.partition, task.bucket, inputs, outputs, task.drop_delete) >= 29
    tampered = _rewritten(table, task, outputs, LIES[lie])
    with pytest.raises(VerificationFailed) as caught:
        judge.check(table.store, task.partition, task.bucket, inputs, tampered, task.drop_delete)
    assert caught.value.level == "V2" and caught.value.keys


@pytest.mark.parametrize("side", ["input", "output"])
def test_rows_that_the_judge_was_never_shown_are_no_proof(tmp_path: Path, side: str) -> None:
    table = _history(tmp_path)
    task, inputs, outputs = _compacted(table)
    witness = ReferenceJudge().watch(table.store, task, inputs)
    skipped = (inputs if side == "input" else outputs)[-1]

    def read_back(file: DataFileMeta, batch: pa.RecordBatch) -> None:
        witness.add_output(file, batch.take(witness.select_output(file, batch)))

    for files, see in ((inputs, witness.add_input), (outputs, read_back)):
        for file in files:
            for _, batch in witness.place.batches(file, table.store.schema.field_names):
                see(file, batch.slice(0, batch.num_rows - (file is skipped)))
    with pytest.raises(VerificationFailed, match=f"1 rows of {skipped.file_name} were never read"):
        witness.verify(outputs, task.drop_delete)


def test_a_unit_with_a_key_stored_twice_is_stopped(tmp_path: Path) -> None:
    table = _history(tmp_path)
    task, inputs, outputs = _compacted(table)
    with pytest.raises(VerificationFailed, match="stored twice"):
        ReferenceJudge().check(table.store, task.partition, task.bucket, inputs, [*outputs, *outputs], task.drop_delete)


def test_larger_units_are_sampled_deletes_first_and_at_least_a_thousand_keys(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(3):
        table.write(rows(range(i, 30_000 + i), v=i))
    table.write(rows(range(100, 160)), row_kinds=pa.array(["-D"] * 60))
    task, inputs, outputs = _compacted(table)
    judge = ReferenceJudge()
    checked = judge.check(table.store, task.partition, task.bucket, inputs, outputs, task.drop_delete)
    assert 1_000 <= checked < 6_000

    def resurrect(found: pa.Table) -> pa.Table:
        row = found.slice(100, 1)
        for name in ("_KEY_k", "k"):
            row = _set(name, 0, 130)(row)
        at = pc.sum(pc.less(found.column("k"), 130)).as_py()
        return pa.concat_tables([found.slice(0, at), row, found.slice(at)])

    tampered = _rewritten(table, task, outputs, resurrect)  # one row of 30,000, but of a deleted key
    with pytest.raises(VerificationFailed, match="key 130 should not be there"):
        judge.check(table.store, task.partition, task.bucket, inputs, tampered, task.drop_delete)


_OPERATION = st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 2)), st.sampled_from(["+I", "+U", "-D"]))


@settings(max_examples=examples(12))
@given(st.lists(st.lists(_OPERATION, min_size=1, max_size=6), min_size=2, max_size=5), st.booleans())
def test_the_judge_never_accuses_an_honest_compaction(history: list[list[tuple]], sequenced: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        table = keyed(Path(place), **({"sequence__field": "v"} if sequenced else {}))
        for commit in history:
            data = pa.table(
                {
                    "k": [k for k, _, _ in commit],
                    "v": pa.array([v for _, v, _ in commit], pa.int64()),
                    "s": ["x"] * len(commit),
                }
            )
            table.write(data, row_kinds=pa.array([kind for _, _, kind in commit]))
        before = content(table)
        report = table.compact(full=True)
        assert report.verification.level == "V2"
        assert content(table) == before


def test_the_judge_knows_the_order_of_writers_that_shared_their_sequence_numbers(tmp_path: Path) -> None:
    for attempt in range(6):  # file names are random, and here they decide
        table = keyed(tmp_path / str(attempt))
        writers = [table.new_write() for _ in range(4)]
        for position, writer in enumerate(writers):
            writer.write(rows(range(5), v=100 * position))
        for writer in writers:
            table.new_commit().commit(writer.prepare_commit())
        before = content(table)
        assert table.compact(full=True).verification.keys_checked == 5
        assert content(table) == before


def test_the_judge_takes_keys_of_every_type(tmp_path: Path) -> None:
    import datetime as dt
    import struct
    from decimal import Decimal

    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    values: dict[str, list[Any]] = {
        "float64": [0.0, -0.0, float("nan"), odd, float("inf"), -1.5],
        "string": ["", "a", "a\0", "\U0001f600", "\uffff"],
        "date32": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "decimal": [Decimal("-1.00"), Decimal("99.99")],
        "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(2262, 1, 1)],
        "bool": [True, False],
    }
    types = {"float64": pa.float64(), "string": pa.string(), "date32": pa.date32(), "decimal": pa.decimal128(4, 2)}
    types |= {"timestamp": pa.timestamp("us"), "bool": pa.bool_()}
    made = catalog(tmp_path)
    for name, keys in values.items():
        schema = pa.schema([pa.field("k", types[name], nullable=False), pa.field("v", pa.float32())])
        table = made.create_table(f"db.{name}", Schema(schema, ["k"], options={"bucket": "1"}))
        for i in range(3):
            table.write(pa.table({"k": keys, "v": [float(i), *[float("nan")] * (len(keys) - 1)]}, schema=schema))
        rows_before = table.to_arrow().num_rows
        report = table.compact(full=True)
        assert report.verification.keys_checked == rows_before
        assert table.verify(3, 4).ok


def test_snapshots_around_a_compaction_say_the_same(tmp_path: Path) -> None:
    table = _history(tmp_path, bucket="2")
    last = table.latest_snapshot().id
    table.compact(buckets=[0], full=True)
    report = table.verify(last, last + 1)
    assert report.ok
    assert (report.buckets, report.by_reference, report.by_digest) == (2, 1, 1)
    assert report.rows_a == report.rows_b > 0


def test_a_change_of_content_is_found_and_located(tmp_path: Path) -> None:
    table = _history(tmp_path)
    last = table.latest_snapshot().id
    table.write(rows([1], v=5))
    report = table.verify(last, last + 1)
    assert not report.ok
    (difference,) = report.differences
    assert difference.bucket == "bucket-0"
    assert difference.rows_a == difference.rows_b
    assert difference.digest_a != difference.digest_b
    with pytest.raises(SnapshotNotFound):
        table.verify(last, 99)


def test_picked_versions_are_compared_to_the_bit() -> None:
    """Every NaN is one, the two zeros are two, a null is no value, and arrays are compared by what they hold."""
    schema = TableSchema(
        0,
        (DataField(0, "f", parse("DOUBLE")), DataField(1, "i", parse("INT")), DataField(2, "a", parse("ARRAY<INT>"))),
        2,
    )
    odd_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    mine = pa.table(
        {
            "f": pa.array([float("nan"), 0.0, 1.0, None, 2.0, 2.0]),
            "i": pa.array([1, 1, None, None, 0, 0], pa.int32()),
            "a": pa.array([[1], [1], [1], None, [1, None], [1]], pa.list_(pa.int32())),
        }
    )
    theirs = pa.table(
        {
            "f": pa.array([odd_nan, -0.0, 1.0, None, 2.0, 2.0]),
            "i": pa.array([1, 1, 0, None, 0, 0], pa.int32()),
            "a": pa.array([[1], [1], [1], None, [1, None], [1, 1]], pa.list_(pa.int32())),
        }
    )
    assert unequal_rows(mine, theirs, schema).tolist() == [False, True, True, False, False, True]
    assert not unequal_rows(mine, mine, schema).any()


def test_many_small_files_are_sampled_too(tmp_path: Path) -> None:
    table = keyed(tmp_path, write_only="true")
    for number in range(5):
        table.write(rows(range(number * 500, number * 500 + 1_000), v=number))
    report = table.compact(full=True)
    assert report.rows_in == 5_000 and report.verification.level == "V2"


def test_wide_rows_are_compared_within_a_bound_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample keeps the rows of a few keys when rows are wide, all versions of each, and still stops a wrong value."""
    from lsm_core.maintenance.reference import sampling

    monkeypatch.setattr(sampling, "_MAX_BYTES", 40_000)
    kept: list[int] = []
    keep = sampling.RowCollector.keep

    def watched(catch: sampling.RowCollector, name: str, rows: pa.RecordBatch) -> None:
        keep(catch, name, rows)
        kept.append(catch._bytes)

    monkeypatch.setattr(sampling.RowCollector, "keep", watched)
    table = keyed(tmp_path, num_sorted_run__compaction_trigger="20")
    for number in range(6):
        keys = list(range(number, number + 20))
        table.write(pa.table({"k": keys, "v": keys, "s": [str(number) * 1_000] * 20}))
    report = table.compact(full=True)
    assert max(kept) < 60_000 and report.snapshot_id is not None
    assert table.to_arrow().num_rows == 25
