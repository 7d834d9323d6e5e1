"""Random lives of a table: commits with updates and deletes, compactions of any unit; every read equals a plain dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.commit import Committer
from lsm_core.compact import run_bucket_task
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.merge import rows as merge_rows
from lsm_core.metadata.store import TableStore
from lsm_core.read import merge_read
from lsm_core.read.merge_read import as_tree
from lsm_core.tree import CompactUnit, Levels, UniversalCompaction
from tests.support.samples import examples
from tests.support.stores import live_files, make_store, read, unit_task, write

KEYS = st.integers(0, 12)
ROW = st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 6)), st.sampled_from(["+I", "+U", "-U", "-D"]))
COMMIT = st.lists(ROW, min_size=1, max_size=14)
COMPACT = st.integers(0, 6)  # how many of the newest runs; 0 = all
LIFE = st.lists(st.one_of(COMMIT, COMPACT), min_size=1, max_size=10)

Version = tuple[tuple[Any, ...], int, bool]


@pytest.fixture(autouse=True)
def tiny_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Batches of a few rows, windows in parts of a few rows: every boundary is straddled by some key."""
    monkeypatch.setattr(merge_rows, "PART_ROWS", 5)
    monkeypatch.setattr(merge_read, "_MOST_ROWS", 3)
    monkeypatch.setattr(merge_read, "_FEWEST_ROWS", 1)
    return


def rank(value: int | None) -> tuple[bool, int]:
    """User sequence values: nulls lose."""
    return (value is not None, value or 0)


class Model:
    """What the table should say: per key the winning version so far, deletes remembered as Paimon remembers them."""

    def __init__(self, by_user_sequence: bool) -> None:
        self.by_user = by_user_sequence
        self.rows: dict[int, tuple[tuple[bool, int], int, int | None, bool]] = {}
        self.count = 0

    def apply(self, rows: list[tuple[int, int | None, str]]) -> None:
        for key, value, kind in rows:
            self.count += 1
            new = (rank(value) if self.by_user else (True, 0), self.count, value, kind in ("+I", "+U"))
            old = self.rows.get(key)
            if old is None or new[:2] >= old[:2]:
                self.rows[key] = new

    def forget_deletes(self) -> None:
        """A compaction to the bottom drops tombstones: a late, older insert may then come back (semantics.md 3.1)."""
        self.rows = {key: row for key, row in self.rows.items() if row[3]}

    def answer(self) -> dict[int, tuple[int | None, str]]:
        return {key: (row[2], f"{row[1]}") for key, row in self.rows.items() if row[3]}


def answer(store: TableStore) -> dict[int, tuple[int | None, str]]:
    table = read(store)
    columns = [table.column(name).to_pylist() for name in ("k", "v", "s")]
    assert len(set(columns[0])) == table.num_rows
    return {k: (v, s) for k, v, s in zip(*columns, strict=True)}


def commit(store: TableStore, model: Model, rows: list[tuple[int, int | None, str]]) -> None:
    stamps = [str(model.count + 1 + i) for i in range(len(rows))]
    model.apply(rows)
    data = pa.table(
        {"k": [r[0] for r in rows], "v": [r[1] for r in rows], "s": stamps}, schema=store.schema.arrow_schema
    )
    write(store, data, [r[2] for r in rows])


def compact(store: TableStore, model: Model, newest_runs: int) -> None:
    for (partition, bucket), files in live_files(store).items():
        levels = Levels(as_tree(store, files), store.options.num_levels)
        runs = levels.runs()
        count = min(newest_runs, len(runs)) or len(runs)
        unit: CompactUnit = UniversalCompaction.create_unit(runs, levels.max_level, count)
        task = unit_task(store, partition, bucket, [f.name for f in unit.files], unit.output_level)
        result = run_bucket_task(store, task, ReferenceJudge(), pipelined=newest_runs % 2 == 0)
        Committer(store).commit([result.message])
        if task.drop_delete:
            model.forget_deletes()


def live(root: Path, life: list[Any], options: dict[str, str], schema: dict[str, str]) -> None:
    store = make_store(root / "t", schema, ["k"], (), {"bucket": "1", "sort-spill-threshold": "3", **options})
    model = Model("sequence.field" in options)
    seen: dict[int, dict[int, tuple[int | None, str]]] = {}
    for step in life:
        if isinstance(step, int):
            compact(store, model, step)
        else:
            commit(store, model, step)
        assert answer(store) == model.answer()
        from lsm_core.metadata import snapshots

        latest = snapshots.latest_id(store)
        if latest is not None:
            seen[latest] = model.answer()
    for snapshot, expected in seen.items():
        table = read(store, snapshot_id=snapshot)
        assert dict(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True)) == {
            key: value for key, (value, _) in expected.items()
        }


QUICK = settings(max_examples=examples(18), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
INT_KEY = {"k": "INT NOT NULL", "v": "INT", "s": "STRING"}


@QUICK
@given(life=LIFE)
def test_any_life_reads_like_a_dictionary(life: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    live(tmp_path_factory.mktemp("life"), life, {}, INT_KEY)


@QUICK
@given(life=LIFE)
def test_any_life_with_a_user_sequence_reads_like_a_dictionary(
    life: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # deletes dropped by a full compaction let older inserts back in, in Paimon and here: the model follows
    live(tmp_path_factory.mktemp("life"), life, {"sequence.field": "v"}, INT_KEY)


@QUICK
@given(life=LIFE)
def test_any_life_in_tiny_files_reads_like_a_dictionary(
    life: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    live(tmp_path_factory.mktemp("life"), life, {"target-file-size": "1 kb", "data-file.thin-mode": "true"}, INT_KEY)
