"""A write whose buffer may not spill flushes a bucket often: its flushes are one sorted run when they are committed, and hold the same rows."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.files import KeyValueFileWriter
from lsm_core.metadata import manifests, snapshots
from tests.support.stores import data_files_on_disk

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("w", pa.int64())])
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "w"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "sums": {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
    "late rows": {"merge-engine": "partial-update", "sequence.field": "w"},
}


def create(tmp_path: Path, name: str, **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db", ignore_if_exists=True)
    return catalog.create_table(f"db.{name}", Schema(FIELDS, primary_keys=["k"], options={"bucket": "1", **options}))


def write(table: Table, *, flushes: int = 9) -> None:
    """Write rows, some of them twice, with a buffer that holds a part of them."""
    chance = random.Random(7)
    keys = [chance.randrange(150) for _ in range(flushes * 60)]
    values = [chance.choice([None, chance.randrange(1000)]) for _ in keys]
    data = pa.table([keys, values, [chance.randrange(1000) for _ in keys]], schema=FIELDS)
    small = table.copy(
        {"write-buffer-size": "1 kb", "write-buffer-spillable": "false", "local-sort.max-num-file-handles": "4"}
    )
    with small.new_write() as writer:
        for batch in data.to_batches(max_chunksize=60):
            writer.write(pa.Table.from_batches([batch]))
        messages = writer.prepare_commit()
    table.new_commit().commit(messages)


def runs(table: Table) -> int:
    """Files of level 0 in the newest snapshot."""
    newest = snapshots.latest(table.store)
    assert newest is not None
    return manifests.live_entries(table.store, newest, levels=[0]).num_rows


def content(table: Table) -> list[dict[str, object]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize("engine", ENGINES)
def test_many_flushes_of_a_write_are_one_run_with_the_same_rows(tmp_path: Path, engine: str) -> None:
    options = ENGINES[engine]
    table = create(tmp_path, "t", **options)
    first = create(tmp_path, "one", **options, **{"write-only": "true"})
    write(table)
    write(first)
    assert runs(first) == 9
    assert runs(table) == (9 if engine == "late rows" else 1)  # merged in parts these would say something else
    first.copy({"write-only": "false"}).compact(full=True)
    table.compact(full=True)
    assert content(table) == content(first)


def test_few_flushes_stay_as_they_are(tmp_path: Path) -> None:
    table = create(tmp_path, "t")
    write(table, flushes=3)
    assert runs(table) == 3


def test_flushes_that_cannot_be_merged_are_committed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, whole = create(tmp_path, "t"), create(tmp_path, "whole")
    write(whole)
    close, closed = KeyValueFileWriter.close, [0]

    def failing(self: KeyValueFileWriter) -> object:
        closed[0] += 1
        if closed[0] == 11:  # nine flushes, one group of four, then
            raise OSError("no space left")
        return close(self)

    with monkeypatch.context() as patch:
        patch.setattr(KeyValueFileWriter, "close", failing)
        write(table)
    assert runs(table) == 6
    assert content(table) == content(whole)
    assert len(data_files_on_disk(table.store)) == 6
