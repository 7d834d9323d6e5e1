"""Where readers see compacted rows alone (deletion vectors, first-row) an overwrite, a rescale or an assignment of buckets hides no row."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.compact import pieces as compact_pieces
from lsm_core.maintenance.apply import apply_plan
from tests.faults.kinds import strays
from tests.support import stores

COLUMNS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: dict[str, dict[str, str]] = {
    "vectors": VECTORS,
    "vectors, bitmap64": {**VECTORS, "deletion-vectors.bitmap64": "true"},
    "vectors and changelog": {**VECTORS, "changelog-producer": "lookup"},
    "vectors, sums": {**VECTORS, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
    "first-row and changelog": {"merge-engine": "first-row", "changelog-producer": "lookup"},
    "vectors, never upgraded": {**VECTORS, "overwrite-upgrade": "false"},
}
SMALL_BUFFER = {"write-buffer-size": "96 kb", "write-buffer-spillable": "false"}
Model = dict[tuple[str, int], int]


def create(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db", ignore_if_exists=True)
    chosen = {"bucket": "2", **SMALL_BUFFER, **options}
    return catalog.create_table("db.t", Schema(COLUMNS, ["p", "k"], ["p"], chosen))


def rows(partition: str, keys: list[int], value: int) -> pa.Table:
    return pa.table([[partition] * len(keys), keys, [value + number for number in range(len(keys))]], schema=COLUMNS)


def pieces(data: pa.Table) -> pa.RecordBatchReader:
    """``data`` in portions, so that the small buffer is flushed between them: keys of one file meet those of the next."""
    return pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=1500))


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each merge of an overwrite took."""
    found: list[int] = []
    run: Callable[..., Any] = compact_pieces.run_bucket_task

    def counted(store: Any, task: Any, *arguments: Any, **named: Any) -> Any:
        if task.base_snapshot is None:  # no compaction of a plan
            found.append(len(task.files))
        return run(store, task, *arguments, **named)

    monkeypatch.setattr(compact_pieces, "run_bucket_task", counted)
    return found


def add(model: Model, data: pa.Table, options: dict[str, str]) -> None:
    engine = options.get("merge-engine")
    for p, k, v in zip(*(column.to_pylist() for column in data.columns), strict=True):
        if engine == "aggregation":
            model[p, k] = model.get((p, k), 0) + v
        elif engine != "first-row" or (p, k) not in model:
            model[p, k] = v


def content(table: Table) -> Model:
    found = table.to_arrow().to_pylist()
    listed = {(row["p"], row["k"]): row["v"] for row in found}
    assert len(listed) == len(found), "a key came twice"
    return listed


def levels(table: Table) -> set[int]:
    return {file.level for files in stores.live_files(table.store).values() for file in files}


def whole(table: Table) -> None:
    """Nothing is left that no snapshot names."""
    assert strays(table.store) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_overwrite_brings_is_seen_at_once(tmp_path: Path, kind: str, merged: list[int]) -> None:
    options, chance = KINDS[kind], random.Random(kind)
    table, model = create(tmp_path, **options), Model()
    table.write(rows("a", list(range(500)), 0))
    table.compact(full=True)
    keys = [chance.randrange(3000) for _ in range(9000)]  # in no order, many twice: files of several flushes meet
    table.write(pieces(rows("a", keys, 1_000_000)), overwrite=True)
    assert min(merged) > 1
    assert len(merged) == 2
    add(model, rows("a", keys, 1_000_000), options)
    assert content(table) == model
    assert levels(table) == {5}
    assert len(table.snapshots()) == 3
    assert table.snapshots()[-1].changelog_manifest_list is None
    whole(table)
    # what comes then marks rows of these files
    more = rows("a", list(range(0, 3000, 7)), 5_000_000)
    table.write(more)
    table.compact()
    add(model, more, options)
    assert content(table) == model
    whole(table)


def test_deletes_among_the_new_rows_hide_no_other_and_empty_what_they_replace(tmp_path: Path) -> None:
    table = create(tmp_path, **VECTORS)
    for partition in "ab":
        table.write(rows(partition, list(range(100)), 0))
    table.compact(full=True)
    kinds = pa.array([3 if key % 10 == 0 else 0 for key in range(50)], pa.int8())
    table.write(rows("a", list(range(50)), 7), row_kinds=kinds, overwrite=True)
    assert {key for p, key in content(table) if p == "a"} == {key for key in range(50) if key % 10}
    table.write(rows("b", [3, 4], 7), row_kinds=pa.array([3, 3], pa.int8()), overwrite=True)
    assert {p for p, _ in content(table)} == {"a"}
    whole(table)


@pytest.mark.parametrize("kind", ["vectors", "vectors and changelog", "first-row", "vectors, never upgraded"])
def test_a_rescale_hides_nothing(tmp_path: Path, kind: str, merged: list[int]) -> None:
    options, chance = KINDS[kind], random.Random(kind)
    table, model = create(tmp_path, **options), Model()
    first = rows("a", chance.sample(range(8000), 8000), 0)
    table.write(first, overwrite=True)
    add(model, first, options)
    more = rows("a", chance.sample(range(8000), 300), 1_000_000)
    table.write(more)
    table.compact()
    add(model, more, options)
    assert content(table) == model
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "3")])
    table = catalog.table("db.t")
    before = table.snapshots()[-1].id
    merged.clear()
    report = table.apply(table.plan_maintenance("rescale"))
    assert max(merged) > 1
    assert report.rows_out == 8000
    assert content(table) == model
    assert levels(table) == {5}
    assert table.verify(before, before + 1).ok
    whole(table)
    table.write(rows("a", [1, 2, 9000], 9))
    table.compact()
    add(model, rows("a", [1, 2, 9000], 9), options)
    assert content(table) == model


def test_rows_of_a_first_row_table_are_seen_once_they_have_buckets(tmp_path: Path) -> None:
    options = {"bucket": "-2", "merge-engine": "first-row", "postpone.default-bucket-num": "2"}
    table, model = create(tmp_path, **options), Model()
    chance = random.Random(1)
    for number in range(3):
        for _ in range(2):
            data = rows("a", [chance.randrange(4000) for _ in range(3000)], number * 1_000_000)
            table.write(data)
            add(model, data, options)
        table.apply(table.plan_maintenance("assign_buckets"))
        assert content(table) == model
        assert 0 not in levels(table)
        whole(table)
    assert {snapshot.commit_kind.value for snapshot in table.snapshots()} == {"APPEND", "COMPACT"}


def test_an_overwrite_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path, **VECTORS)
    table.write(rows("a", list(range(500)), 0))
    table.compact(full=True)
    before, done = content(table), []

    def second_fails(*arguments: Any, **named: Any) -> Any:
        done.append(1)
        if len(done) > 1:
            raise OSError("no more")
        return run(*arguments, **named)

    run: Callable[..., Any] = compact_pieces.run_bucket_task
    monkeypatch.setattr(compact_pieces, "run_bucket_task", second_fails)
    keys = [key * 7919 % 3001 for key in range(9000)]
    with pytest.raises(OSError, match="no more"):
        table.write(pieces(rows("a", keys, 1)), overwrite=True)
    assert len(done) == 2
    assert content(table) == before
    whole(table)
    assert apply_plan(table.store, table.plan_maintenance("compact", full=True)).snapshot_id is None
