"""Random histories of compactions, writes, deletes and undos: every read is that of a twin that was never compacted, or the undo is refused."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import PlanRefused
from tests.maintenance.tables import NOW, strays
from tests.support.samples import one_in

SEED = int(os.environ.get("DREDGE_UNDO_SEED", "20261123"))
COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("w", pa.string())])
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "deduplicate": (["k"], {"bucket": "2"}),
    "partial-update": (
        ["k"],
        {"bucket": "1", "merge-engine": "partial-update", "partial-update.ignore-delete": "true"},
    ),
    "aggregation": (
        ["k"],
        {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.w.aggregate-function": "max",
        },
    ),
    "sequence": (["k"], {"bucket": "1", "sequence.field": "v"}),
    "vectors": (["k"], {"bucket": "1", "deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"}),
    "append": ([], {"bucket": "-1", "compaction.min.file-num": "2"}),
    "append vectors": ([], {"bucket": "-1", "compaction.min.file-num": "2", "deletion-vectors.enabled": "true"}),
}
_OPTIONS = {"num-sorted-run.compaction-trigger": "3", "write-only": "true"}


def sorted_rows(table: Table) -> list[Any]:
    return sorted(map(tuple, (row.values() for row in table.to_arrow().to_pylist())), key=repr)


def lives(seed: int, kind: str, place: Path, steps: int) -> tuple[int, int]:
    """One life of a table beside its twin; returns how many undos were done and how many refused."""
    chance = random.Random(seed)
    keys, options = KINDS[kind]
    catalog = Catalog(place, clock=f"fixed:{NOW}")
    catalog.create_database("db")
    table, twin = (
        catalog.create_table(f"db.{name}", Schema(COLUMNS, keys, options={**options, **_OPTIONS}))
        for name in ("t", "twin")
    )
    runs: list[str] = []
    done = refused = 0
    for _ in range(steps):
        act = chance.choice(["write", "write", "write", "compact", "full", "undo", "undo", "delete"])
        if act == "write":
            chosen = [chance.randrange(30) for _ in range(chance.randrange(1, 12))]
            data = pa.table(
                [chosen, [chance.randrange(100) for _ in chosen], [chance.choice(["a", "b", None]) for _ in chosen]],
                schema=COLUMNS,
            )
            for item in (table, twin):
                item.write(data)
        elif act == "delete" and (keys == [] or kind in {"deduplicate", "vectors"}):
            low = chance.randrange(30)
            for item in (table, twin):
                item.delete([("k", ">=", low), ("k", "<", low + 3)])
        elif act in ("compact", "full"):
            report = table.compact(full=act == "full")
            runs += [report.run_id] if report.snapshot_id is not None else []
        elif act == "undo" and runs:
            # Mostly the newest, which nothing was built on yet.
            run = runs[-1] if chance.random() < 0.7 else chance.choice(runs)
            newest = table.latest_snapshot()
            try:
                table.undo(run)
                done += 1
            except PlanRefused:
                refused += 1
                assert table.latest_snapshot() == newest
        assert sorted_rows(table) == sorted_rows(twin), f"{kind}, seed {seed}: DREDGE_UNDO_SEED={SEED}"
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 10**12)
    table.sweep_trash(now_ms=NOW + 10**12)
    assert not strays(table)
    assert sorted_rows(table) == sorted_rows(twin)
    table.compact(full=True)
    assert sorted_rows(table) == sorted_rows(twin)
    return done, refused


@pytest.mark.parametrize("kind", one_in(8, KINDS, 1))
def test_an_undo_changes_no_answer_whatever_came_before_and_after(tmp_path: Path, kind: str) -> None:
    done, _ = lives(SEED, kind, tmp_path, 22)
    assert done > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_histories(tmp_path: Path, kind: str) -> None:
    for number in range(60):
        lives(SEED + 1000 + number, kind, tmp_path / str(number), 60)
