"""Compactions of random tables of every merge engine: a full read says the same before and after, and so does every snapshot alive."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.errors import ArithmeticOverflow
from lsm_core.maintenance.reference import Row, key_order
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.metadata import snapshots
from lsm_core.read import read_bucket_merged
from tests.merge.random_histories import to_batch
from tests.merge.random_tables import JAVA_POOLS, RandomTable, random_table
from tests.support.samples import one_in
from tests.support.stores import live_files, make_store, write

KINDS = ("+I", "-U", "+U", "-D")
SEEDS = range(int(os.environ.get("DREDGE_HISTORY_SEED", "0")), int(os.environ.get("DREDGE_HISTORY_SEED", "0")) + 10)
Answer = dict[Any, Row]


class Life:
    """One table with what it said at every snapshot."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = random.Random(seed)
        self.shape: RandomTable = random_table(self.rng, JAVA_POOLS)
        options = {**self.shape.options, **self._tree_options(), "bucket": "1"}
        columns = {name: self.shape.types[name] for name in self.shape.names}
        self.store = make_store(root / "t", columns, self.shape.keys, (), options)
        self.answers = ResultComparison(self.store.schema, self.store.options.raw)
        self.keys = list({key_order(key): key for key in (self._key() for _ in range(25))}.values())
        self.said: dict[int, Answer] = {}

    def _tree_options(self) -> dict[str, str]:
        rng = self.rng
        chosen = {
            "num-sorted-run.compaction-trigger": str(rng.choice([2, 3])),
            "compaction.size-ratio": rng.choice(["1", "100"]),
            "compaction.max-size-amplification-percent": rng.choice(["100", "100000"]),
            "compaction.force-up-level-0": rng.choice(["true", "false"]),
            "num-levels": rng.choice(["3", "6"]),
            "dredge.paimon-version": rng.choice(["1.4", "2.0", "2.1"]),
        }
        if rng.random() < 0.3:
            chosen["target-file-size"] = "1 kb"
        if rng.random() < 0.3:
            chosen["sort-spill-threshold"] = "2"
        if rng.random() < 0.2:
            chosen["compaction.force-rewrite-all-files"] = "true"
        return chosen

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.shape.pools[name](self.rng) for name in self.shape.keys)

    def write(self) -> None:
        """A few rows of a stretch of the keys, so that some files overlap and some do not."""
        rng, names = self.rng, self.shape.names
        ordered = sorted(self.keys, key=key_order)
        start = rng.randrange(len(ordered))
        near = ordered[start : start + rng.choice([2, 6, 25])]
        rows = []
        for number, key in enumerate(rng.choices(near, k=rng.choice([1, 5, 20]))):
            held = {name: self.shape.value(rng, name) for name in names}
            held.update(zip(self.shape.keys, key, strict=True))
            rows.append(Row(key, (), number, rng.choice(self.shape.kinds), tuple(held[name] for name in names)))
        batch = to_batch(rows, self.store.schema).select(names)
        write(self.store, batch, [KINDS[row.kind] for row in rows])

    def answer(self, snapshot_id: int | None = None) -> Answer:
        """What a reader sees, key by key."""
        return self._by_key(Table(self.store).to_arrow(snapshot_id=snapshot_id))

    def everything(self) -> Answer:
        """All files merged: level 0 of a first-row table too, which its readers only see once it has moved up."""
        found: Answer = {}
        for (partition, bucket), files in live_files(self.store).items():
            for batch in read_bucket_merged(self.store, partition, bucket, files):
                found |= self._by_key(batch)
        return found

    def _by_key(self, data: Any) -> Answer:
        names = self.shape.names
        columns = [plain_values(data.column(name)) for name in names]
        rows = [Row((), (), 0, 0, tuple(values)) for values in zip(*columns, strict=True)]
        places = [names.index(name) for name in self.shape.keys]
        found = {key_order([row.values[place] for place in places]): row for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found

    def same(self, wanted: Mapping[Any, Row], found: Mapping[Any, Row]) -> None:
        text = f"{self.store.options.raw}\n{self.shape.types}"
        assert wanted.keys() == found.keys(), text
        for key, row in wanted.items():
            assert self.answers.same(row, found[key]), f"{row.values}\n{found[key].values}\n{text}"

    def remember(self) -> None:
        latest = snapshots.latest_id(self.store)
        if latest is not None:
            self.said[latest] = self.answer()


def compact(life: Life, *, full: bool) -> bool:
    """Compact and hold the answers against those of before; False where a value cannot be computed, which changes nothing."""
    before, there = life.everything(), snapshots.latest_id(life.store)
    try:
        report = Table(life.store).compact(full=full)
    except ArithmeticOverflow:
        assert snapshots.latest_id(life.store) == there
        life.same(before, life.everything())
        return False
    life.same(before, life.everything())
    if report.snapshot_id is not None:
        assert there is not None
        assert report.verification.level == "V2" or not report.rows_in
        assert Table(life.store).verify(there, report.snapshot_id).ok
        assert report.rows_in == report.rows_out + sum(report.rows_dropped.values())
    return report.snapshot_id is not None


@pytest.mark.parametrize("seed", one_in(4, SEEDS))
def test_no_compaction_changes_an_answer_at_any_snapshot(seed: int, tmp_path: Path) -> None:
    life = Life(seed, tmp_path)
    compacted = 0
    # a table with a value that cannot be computed is of no more use: every read fails from then on
    with contextlib.suppress(ArithmeticOverflow):
        for _ in range(9):
            if life.rng.random() < 0.6 or not life.said:
                life.write()
                life.everything()
            else:
                compacted += compact(life, full=life.rng.random() < 0.25)
            life.remember()
        life.write()
        compacted += compact(life, full=True)
    assert compacted
    for snapshot_id, message in life.said.items():
        life.same(message, life.answer(snapshot_id))


def test_the_seeds_cover_every_engine(tmp_path: Path) -> None:
    engines = {Life(seed, tmp_path / str(seed)).store.options.merge_engine for seed in range(10)}
    assert engines == {"deduplicate", "first-row", "partial-update", "aggregation"}
