"""SIGKILL of Spark workers at random lines of their own I/O trace: the table reads as before, and a retry works."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsm_core import Catalog
from lsm_core.errors import SparkFailed
from lsm_core.spark import compact_table
from tests.spark.tables import data_files, make_table, rows, same
from tests.support.spark import TracedSession, kill_when

SEED = int(os.environ.get("DREDGE_KILL_SEED", "20261121"))
KILLS, SOAK, BUCKETS = 2, 30, 3


def _lines(trace: Path, start: int, place: str) -> list[dict[str, Any]]:
    """Trace lines written since `start` about files in `place`."""
    found = [json.loads(line) for line in trace.read_bytes()[start:].decode().splitlines() if line.endswith("}")]
    return [line for line in found if place in line["path"]]


def _size(trace: Path) -> int:
    return trace.stat().st_size if trace.exists() else 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [KILLS, pytest.param(SOAK, marks=pytest.mark.soak)])
def test_killed_workers_publish_nothing_and_a_retry_works(traced: TracedSession, tmp_path: Path, kills: int) -> None:
    chance = random.Random(f"{SEED}-spark")
    master = make_table(tmp_path / "master", options={"bucket": str(BUCKETS), "write-only": "true"})
    for number in range(4):
        master.write(rows(np.arange(number * 5_000, number * 5_000 + 60_000).tolist(), f"round {number}"))
    before = master.to_arrow()

    def copy(name: str) -> Any:
        shutil.copytree(tmp_path / "master", tmp_path / name)
        return Catalog(str(tmp_path / name)).table("db.t")

    whole = copy("whole")
    start = _size(traced.trace)
    compact_table(traced.spark, whole, full=True)
    full_length = {b: len(_lines(traced.trace, start, f"{tmp_path}/whole/db.db/t/bucket-{b}/")) for b in range(BUCKETS)}
    assert min(full_length.values()) > 10
    landed: list[str] = []
    for attempt in range(6 * kills):
        if len(landed) == kills:
            break
        bucket = chance.randrange(BUCKETS)
        wanted = chance.randrange(1, full_length[bucket] - 2)
        table = copy(f"w{attempt}")
        files = data_files(tmp_path / f"w{attempt}")
        place = f"{tmp_path}/w{attempt}/db.db/t/bucket-{bucket}/"
        seen: dict[int, set[int]] = {}

        def due(
            line: dict[str, Any], place: str = place, wanted: int = wanted, seen: dict[int, set[int]] = seen
        ) -> bool:
            if place not in line["path"]:
                return False
            mine = seen.setdefault(line["pid"], set())
            mine.add(line["ns"])
            return len(mine) >= wanted

        start = _size(traced.trace)
        killer = kill_when(traced.trace, due)
        message = f"seed {SEED}, attempt {attempt}, bucket {bucket} at line {wanted} of {full_length[bucket]}"
        try:
            compact_table(traced.spark, table, full=True)
        except SparkFailed:
            killer.join(5)
            lines = _lines(traced.trace, start, place)
            assert killer.killed, message  # type: ignore[attr-defined]
            assert {line["pid"] for line in lines} == set(killer.killed), message  # type: ignore[attr-defined]
            if lines[0]["event"] == "begin" and len(lines) < full_length[bucket]:
                landed.append(f"bucket {bucket}: {len(lines)}/{full_length[bucket]}")
            assert len(table.snapshots()) == 4, message
            assert same(before, table.to_arrow()), message
            assert data_files(tmp_path / f"w{attempt}") == files, message
            assert compact_table(traced.spark, table, full=True).snapshot_id == 5, message
        else:  # the worker was faster than the killer, or died when its work was done
            killer.stop.set()  # type: ignore[attr-defined]
        assert same(before, table.to_arrow()), message
        shutil.rmtree(tmp_path / f"w{attempt}")
    print(f"\nseed {SEED}: {len(landed)} Spark workers killed between their first and last I/O step: {landed}")
    assert len(landed) == kills
