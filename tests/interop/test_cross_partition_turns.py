"""Dredge and Java take turns on tables whose primary key lacks the partition column: beside writes and compactions there are overwrites, and
commits of a long-lived writer that wait for each other. Keys move, or with fixed buckets stay where rows put them.

After every step both read the same rows, and at the end both streams tell the same changes. ``DREDGE_TURNS_SEED`` is the first seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import DredgeError
from tests.interop.test_turns import ENGINES, NAMES, SCHEMA, Kind, Turns
from tests.support.peers import peer_module
from tests.support.samples import sample

Java = Callable[..., dict[str, Any]]
STEPS, LANES = 6, 6


class FixedBuckets(Kind):
    """As tables whose keys move, but for their buckets: rows stay where they are."""

    def options(self, random: Random) -> dict[str, str]:
        """See Kind."""
        chosen = super().options(random)
        del chosen["dynamic-bucket.target-row-num"]
        return {**chosen, "bucket": random.choice(["1", "2"])}


KINDS = [
    kind
    for made, *drawn in product((Kind, FixedBuckets), ("none", "input", "lookup", "full-compaction"), ENGINES)
    if (kind := made(drawn[0], vectors=False, mode="cross-partition", engine=drawn[1])).is_one  # type: ignore[operator]
]


class CrossPartitionTurns(Turns):
    """Turns with overwrites, and with commits that wait."""

    def step(self, *, first: bool) -> None:
        """One deed of one of the two."""
        roll = self.random.random()
        if first or roll < 0.6:
            super().step(first=first)
        elif roll < 0.8:
            self.overwrite(ours=self.random.random() < 0.6)
        else:
            self.stream()

    def overwrite(self, *, ours: bool) -> None:
        """Of the partitions that rows name, of one, or of all."""
        rows = [{**self.row(), "_kind": "+I"} for _ in range(self.random.choice(self.counts))]
        whole = self.random.random() < 0.3
        self.told.append(f"{'dredge' if ours else 'java'} overwrites, whole={whole}: {json.dumps(rows)}")
        options = {"dynamic-partition-overwrite": str(not whole).lower()}
        if ours:
            self.table.copy(options).write(self.arrow_rows(rows)[0], overwrite=True)
        else:
            self.java("write", rows=rows, compact="none", overwrite={"partition": {}}, options=options)

    def stream(self) -> None:
        """A writer of Dredge prepares commits while earlier ones wait."""
        table, user, waiting = self.table, f"job {len(self.told)}", {}
        with table.new_stream_write(user) as writer:
            for number in range(self.random.choice([2, 3])):
                rows = [self.row() for _ in range(self.random.choice(self.counts))]
                self.told.append(f"dredge prepares {number}: {json.dumps(rows)}")
                writer.write(*self.arrow_rows(rows))
                waiting[number] = writer.prepare_commit(self.random.random() < 0.5, number)
                if self.random.random() < 0.3:
                    self.told.append(f"dredge commits {list(waiting)}")
                    table.new_stream_commit(user).filter_and_commit(waiting)
                    waiting.clear()
            table.new_stream_commit(user).filter_and_commit(waiting)

    def arrow_rows(self, rows: list[dict[str, Any]]) -> tuple[pa.Table, pa.Array]:
        """Rows and kinds as Dredge takes them."""
        plain = [{name: row[name] for name in NAMES} for row in rows]
        return pa.Table.from_pylist(plain, schema=SCHEMA), pa.array([row["_kind"] for row in rows], pa.string())


def live_a_life(seed: int, warehouse: Path, java: Java, lane: int) -> None:
    kind = KINDS[seed % len(KINDS)]
    turns = CrossPartitionTurns(seed, kind, warehouse, partial(java, lane=lane))
    try:
        assert turns.create() == []
        for number in range(STEPS):
            turns.step(first=number == 0)
            turns.rows_agree()
        turns.changes_agree()
    except (AssertionError, DredgeError, peer_module().PeerError, pa.ArrowException) as error:
        story = "\n".join(turns.told)
        raise AssertionError(
            f"DREDGE_TURNS_SEED={seed} of {kind}:\n{story}\n{type(error).__name__}: {error}"
        ) from error


@pytest.mark.paimon_java
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", sample((3, 60), (3).__eq__))
def test_turns_with_overwrites_and_commits_that_wait(tmp_path: Path, java: Java, testrun_uid: str, count: int) -> None:
    first = int(os.environ.get("DREDGE_TURNS_SEED") or int(testrun_uid, 16) % 10**6)
    Catalog(str(tmp_path)).create_database("db")
    with ThreadPoolExecutor(LANES) as pool:
        lives = [pool.submit(live_a_life, first + n, tmp_path, java, 1 + n) for n in range(count)]
        for life in lives:
            life.result()
