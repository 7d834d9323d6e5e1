"""Streams between tables whose keys may be null, and between tables ordered by snapshot: the copy equals its original.

Without Spark, epochs are written by several tasks, and some are run again. With Spark (soak), the query is started anew
from its checkpoint for every few commits. `DREDGE_LIVES_SEED` is the first seed.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.spark import await_query
from tests.spark.random_lives import NEWER
from tests.spark.streams import epochs, place_of, reader, rows, write_epoch
from tests.spark.tables import make_table

FIRST = int(os.environ.get("DREDGE_LIVES_SEED", "1"))
COMMITS = 6
SEEDS = 12


class Copies:
    """A source, its copy, and the commits to the source, drawn from a seed."""

    def __init__(self, seed: int, root: Path, option: str) -> None:
        self.random = Random(f"{option} {seed}")
        self.nullable = option == NEWER[0]
        fields = pa.schema([pa.field("k", pa.int64(), nullable=self.nullable), ("v", pa.string()), ("n", pa.int64())])
        self.source, self.copy = (self._table(root, f"db.{name}{seed}", fields, option) for name in ("source", "copy"))
        self.fields = fields

    def _table(self, root: Path, name: str, fields: pa.Schema, option: str) -> Table:
        options = {option: "true", "bucket": self.random.choice(["1", "2"]), "changelog-producer": "input"}
        if not self.nullable:
            options["write-only"] = "true"
        return make_table(root, name, fields=fields, options=options)

    def commit(self) -> None:
        """Write rows to the source, of which some are deletes and some have the key of an earlier row."""
        keys = [*range(6), *([None] if self.nullable else [])]
        drawn = [(self.random.choice(keys), self.random.random() < 0.2) for _ in range(self.random.choice([1, 5, 30]))]
        data = {
            "k": pa.array([key for key, _ in drawn], pa.int64()),
            "v": [self.random.choice([None, "", "x", "y"]) for _ in drawn],
            "n": list(range(len(drawn))),
        }
        kinds = pa.array(["-D" if deletes else "+I" for _, deletes in drawn])
        self.source.write(pa.table(data, schema=self.fields), row_kinds=kinds, compact=False)
        if self.random.random() < 0.3:
            self.random.choice([self.source, self.copy]).compact(full=self.random.random() < 0.5)

    def assert_equal(self) -> None:
        """The copy holds the rows of its original."""
        mine, theirs = (sorted(map(repr, table.to_arrow().to_pylist())) for table in (self.copy, self.source))
        assert mine == theirs


@pytest.mark.parametrize("option", NEWER)
def test_epochs_of_several_tasks_and_epochs_run_again_count_once(tmp_path: Path, option: str) -> None:
    copies = Copies(FIRST, tmp_path, option)
    start, number = None, 0
    for _ in range(COMMITS):
        copies.commit()
        source = reader(copies.source, read__changelog="true")
        for epoch in epochs(source, start):
            columns = pa.schema([pa.field("_row_kind", pa.string()), *copies.fields])
            tasks = [
                pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in part], columns)
                for part in rows(source, epoch)
            ]
            for run in ("first", "again")[: copies.random.choice([1, 2])]:
                write_epoch(copies.copy, number, tasks, run=run)
            start, number = epoch[1], number + 1
        copies.assert_equal()
    assert number == COMMITS


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("option", NEWER)
def test_queries_that_begin_anew_from_their_checkpoint(spark: Any, tmp_path: Path, option: str) -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        copies = Copies(seed, tmp_path, option)
        for _ in range(COMMITS // 2):
            for _ in range(copies.random.choice([1, 3])):
                copies.commit()
            stream = spark.readStream.format("dredge").options(**place_of(copies.source), **{"read.changelog": "true"})
            target = stream.load().writeStream.format("dredge").options(**place_of(copies.copy))
            target = target.option("checkpointLocation", str(tmp_path / f"at{seed}")).trigger(availableNow=True)
            query = target.option("write.stream.compaction", copies.random.choice(["none", "minor"])).start()
            assert await_query(query, 300)
            copies.assert_equal()
