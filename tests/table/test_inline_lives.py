"""Random lives of tables whose writers maintain them, through mixed doors: rows are those of a dictionary, and every check passes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import UnsupportedFeature
from tests.support.stores import data_files_on_disk

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("w", pa.int64())])
NOW = 1_700_000_000_000
MINUTE = 60_000
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.w.aggregate-function": "max",
    },
    "first-row": {"merge-engine": "first-row"},
}
EXTRAS: list[dict[str, str]] = [
    {},
    {"deletion-vectors.enabled": "true"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
    {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"},
    {"full-compaction.delta-commits": "2"},
    {"commit.force-compact": "true"},
    {"force-lookup": "true"},
]
Model = dict[int, tuple[int | None, int | None]]


class Life:
    """One table, the dictionary that says what it holds, and the draws of its life."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random = Random(seed)
        self.engine = random.choice(sorted(ENGINES))
        extra = random.choice(EXTRAS)
        if self.engine == "first-row" and extra.get("changelog-producer") == "full-compaction":
            extra = {"changelog-producer": "lookup"}
        if self.engine == "first-row" and "deletion-vectors.enabled" in extra:
            extra = {}
        self.options = {
            "dredge.compaction.inline": "follow",
            "bucket": str(random.choice([1, 2])),
            "num-sorted-run.compaction-trigger": str(random.choice([2, 3, 5])),
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": str(random.choice([2, 5, 1000])),
            "snapshot.time-retained": random.choice(["1 min", "1 h"]),
            "write-buffer-size": random.choice(["256 mb", "1 kb"]),
            **ENGINES[self.engine],
            **extra,
        }
        self.clock = FixedClock(NOW)
        catalog = Catalog(str(folder), clock=self.clock)
        catalog.create_database("db")
        self.table: Table = catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options=self.options))
        self.model: Model = {}
        self.number = 0

    def step(self) -> str:
        """Do one thing; returns what it was."""
        self.number += 1
        self.clock.advance(self.random.choice([1, MINUTE]))
        doors = ["write", "write", "commit", "upsert", "stream", "left alone", "compact", "overwrite"]
        if self.engine == "deduplicate":
            doors += ["delete", "update"]
        door = self.random.choice(doors)
        getattr(self, "by_" + door.replace(" ", "_"))()
        return door

    def rows(self) -> pa.Table:
        """Some rows, keys repeated or not; the dictionary takes them in."""
        keys = [self.random.randrange(12) for _ in range(self.random.randrange(1, 9))]
        listed = [
            {"k": key, "v": self.random.choice([None, self.random.randrange(9)]), "w": self.random.randrange(9)}
            for key in keys
        ]
        for row in listed:
            self.take(row["k"], row["v"], row["w"])
        return pa.Table.from_pylist(listed, FIELDS)

    def take(self, key: Any, v: Any, w: Any) -> None:
        """Merge one row into the dictionary."""
        old = self.model.get(key)
        if old is None or self.engine == "deduplicate":
            self.model[key] = (v, w)
        elif self.engine == "partial-update":
            self.model[key] = (old[0] if v is None else v, old[1] if w is None else w)
        elif self.engine == "aggregation":
            total = old[0] if v is None else v + (old[0] or 0)
            self.model[key] = (total, w if old[1] is None else max(old[1], w))

    def by_write(self) -> None:
        self.table.write(self.rows())

    def by_left_alone(self) -> None:
        self.table.write(self.rows(), compact=False)
        self.table.compact()  # so that readers of compacted rows see them, too
        if self.table.store.options.batch_scan_skips_level0:
            self.table.compact(full=True)

    def by_commit(self) -> None:
        with self.table.new_write() as writer:
            writer.write(self.rows())
            messages = writer.prepare_commit()
        self.table.new_commit().commit(messages)

    def by_upsert(self) -> None:
        try:
            self.table.upsert(pa.Table.from_pylist([{"k": 1, "v": 4, "w": 4}], FIELDS))
        except UnsupportedFeature:  # first-row keeps what it has
            assert self.engine == "first-row"
        else:
            self.take(1, 4, 4)

    def by_stream(self) -> None:
        commit = self.table.new_stream_commit("job")
        with self.table.new_stream_write("job") as writer:
            writer.write(self.rows())
            commit.filter_and_commit(
                {self.number: writer.prepare_commit(wait_compaction=True, commit_identifier=self.number)}
            )

    def by_compact(self) -> None:
        self.table.compact(full=self.random.random() < 0.5)

    def by_overwrite(self) -> None:
        self.model.clear()
        self.table.write(self.rows(), overwrite=True)

    def by_delete(self) -> None:
        key = self.random.randrange(12)
        self.table.delete([("k", "<", key)])
        self.model = {k: row for k, row in self.model.items() if k >= key}

    def by_update(self) -> None:
        key = self.random.randrange(12)
        self.table.update([("k", ">=", key)], {"v": 7})
        self.model |= {k: (7, row[1]) for k, row in self.model.items() if k >= key}

    def require(self, at: str) -> None:
        """What readers see is what the dictionary holds; the tree is no deeper than writers wait for."""
        found = {row["k"]: (row["v"], row["w"]) for row in self.table.to_arrow().to_pylist()}
        assert found == self.model, at
        stop = self.table.store.options.stop_trigger
        assert all(health.sorted_runs <= stop for health in self.table.health()), at

    def end(self, at: str) -> None:
        """Every check of the table passes, and once the trash is swept no file is left that nothing names."""
        failed = [report.text for report in self.table.check() if report.outcome == "failed"]
        assert not failed, f"{at}: {failed}"
        self.clock.advance(48 * 60 * MINUTE)
        self.table.sweep_trash()
        live = {path.rpartition("/")[2] for path in data_files_on_disk(self.table.store)}
        assert self.table.remove_orphan_files(dry_run=True).files_recorded == 0, f"{at}: {live}"


LONG = (pytest.mark.soak, pytest.mark.timeout(3600))


@pytest.mark.parametrize(
    "seeds", [range(3), *(pytest.param(range(at, at + 20), marks=LONG) for at in range(3, 203, 20))]
)
def test_lives_of_tables_that_look_after_themselves(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        life = Life(tmp_path / str(seed), seed)
        history: list[str] = []
        for _ in range(14):
            history.append(life.step())
            life.require(f"seed {seed}, {life.options}: {history}")
        life.end(f"seed {seed}, {life.options}: {history}")
