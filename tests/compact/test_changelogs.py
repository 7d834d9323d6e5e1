"""Compactions that look keys up and tell changes: in pieces, in passes, through bytes, and wrong ones that the judge must catch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import Committer
from lsm_core.compact import BucketResult, BucketTask, pieces, run_bucket_task, run_tasks_locally
from lsm_core.compact.rewrite import ChangelogProducer
from lsm_core.errors import VerificationFailed
from lsm_core.maintenance.actions.compact.unit_choice import bucket_task
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from tests.support.samples import one_in
from tests.support.stores import live_files

SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
KINDS = {
    "lookup": {"changelog-producer": "lookup"},
    "lookup, seen updates only": {
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "s",
    },
    "lookup by sequence": {"changelog-producer": "lookup", "sequence.field": "v"},
    "lookup sums": {
        "changelog-producer": "lookup",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
    },
    "lookup texts, as 2.1": {
        "changelog-producer": "lookup",
        "merge-engine": "aggregation",
        "fields.s.aggregate-function": "listagg",
        "dredge.paimon-version": "2.1",
    },
    "first row": {"changelog-producer": "lookup", "merge-engine": "first-row"},
    "full": {"changelog-producer": "full-compaction"},
}


def made(root: Path, options: dict[str, str]) -> Table:
    """Rows on the top level, then a few files on level 0 that update, add and (where the engine takes it) delete."""
    catalog = Catalog(str(root))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(SCHEMA, ["k"], options={"bucket": "1", **options}))
    table = catalog.table("db.t")

    def write(keys: range, value: int, kind: str = "+I") -> None:
        texts = [f"s{k}" if k % 5 else " " for k in keys]
        rows = pa.table({"k": list(keys), "v": [value] * len(keys), "s": texts}, schema=SCHEMA)
        table.write(rows, pa.array([kind] * len(keys)))

    write(range(0, 900, 2), 5)
    table.compact(full=True)
    for number in range(4):
        write(range(number, 800, 3 + number), number + 3)
    if "merge-engine" not in options:
        write(range(600, 700), 9, "-D")
    return table


def answer(table: Table) -> tuple[list[Any], list[Any]]:
    """The rows, and the changes of the newest snapshot, per key in order."""
    stream = table.new_stream_scan(from_snapshot=table.snapshots()[-1].id)
    batch = stream.next()
    records = [] if batch is None else [tuple(row.values()) for row in batch.to_arrow().to_pylist()]
    return table.to_arrow().sort_by("k").to_pylist(), sorted(records, key=lambda row: row[1])


def compacted(table: Table, results: Iterator[BucketResult]) -> tuple[list[Any], list[Any]]:
    Committer(table.store).commit([result.message for result in results])
    return answer(table)


def task_of(store: TableStore, full: bool) -> BucketTask:
    (((partition, bucket), files),) = live_files(store).items()
    task = bucket_task(store, partition, bucket, 1, files, full)
    assert task is not None
    return task


@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_pieces_passes_and_bytes_tell_what_one_whole_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options, full, judge = KINDS[kind], kind == "full", ReferenceJudge()
    whole = made(tmp_path / "whole", options)
    expected = compacted(whole, iter([run_bucket_task(whole.store, task_of(whole.store, full), judge)]))
    assert len(expected[1]) > 200

    sent = made(tmp_path / "sent", options)
    task = BucketTask.from_bytes(task_of(sent.store, full).to_bytes())
    result = BucketResult.from_bytes(run_bucket_task(sent.store, task, judge, pipelined=False).to_bytes())
    assert result.report.changes_told == len(expected[1])
    assert compacted(sent, iter([result])) == expected

    tight = made(tmp_path / "tight", {**options, "sort-spill-threshold": "2", "dredge.merge-budget": "64 kb"})
    assert compacted(tight, iter([run_bucket_task(tight.store, task_of(tight.store, full), judge)])) == expected

    cut = made(tmp_path / "cut", {**options, "dredge.compaction.piece-size": "1 kb"})
    monkeypatch.setattr(pieces, "usable_cores", lambda: 3)
    monkeypatch.setattr("lsm_core.compact.pieces._OPENING", 0.0)
    assert compacted(cut, run_tasks_locally(cut.store, [task_of(cut.store, full)], judge)) == expected


@pytest.mark.parametrize("wrong", ["value", "missing", "kind"])
def test_a_change_that_is_told_wrong_is_caught_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    table = made(tmp_path, KINDS["lookup"])
    before = {path.name for path in Path(table.store.root).glob("bucket-0/*")}
    real = ChangelogProducer._write

    def bent(self: Any, batch: pa.RecordBatch) -> None:
        if wrong == "missing":
            batch = batch.slice(1)
        elif wrong == "kind":
            kinds = pa.array([2] * batch.num_rows, pa.int8())
            batch = batch.set_column(
                batch.schema.get_field_index("_VALUE_KIND"), batch.schema.field("_VALUE_KIND"), kinds
            )
        else:
            values = pa.array([1] * batch.num_rows, pa.int64())
            batch = batch.set_column(batch.schema.get_field_index("v"), batch.schema.field("v"), values)
        real(self, batch)

    monkeypatch.setattr(ChangelogProducer, "_write", bent)
    with pytest.raises(VerificationFailed, match="V2"):
        table.compact()
    assert {path.name for path in Path(table.store.root).glob("bucket-0/*")} == before


def test_a_changelog_file_that_is_not_what_was_told_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, KINDS["lookup"])
    real = ChangelogProducer.close

    def damaged(self: Any) -> Any:
        if self._writer is not None:
            self._writer.write(self._writer_last)
        return real(self)

    def kept(self: Any, batch: pa.RecordBatch) -> None:
        self._writer_last = batch.slice(batch.num_rows - 1)
        real_write(self, batch)

    real_write = ChangelogProducer._write
    monkeypatch.setattr(ChangelogProducer, "_write", kept)
    monkeypatch.setattr(ChangelogProducer, "close", damaged)
    with pytest.raises(VerificationFailed, match=r"V[01]"):
        table.compact()
    assert len(table.snapshots()) == 7
