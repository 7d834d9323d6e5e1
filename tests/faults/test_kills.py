"""SIGKILL of writers and of a compaction at lines of their own I/O trace: the table reads as before or after, and a retry works."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.format.snapshot import CommitKind
from tests.faults.victims import SCHEMA, STREAM_COMMITS, Nursery, rows

SEED = int(os.environ.get("DREDGE_KILL_SEED", "20261121"))
KILLS = {
    "writer": 20,
    "compaction": 20,
    "spilling writer": 8,
    "stream": 12,
    "recovery": 10,
}  # tests/spark kills Spark workers


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One nursery for the module."""
    with Nursery() as running:
        yield running


def _lines(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text().splitlines()] if trace.is_file() else []


def _content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def _new_table(warehouse: Path) -> None:
    catalog = Catalog(str(warehouse))
    catalog.create_database("db")
    options = {"bucket": "2", "write-only": "true"}
    catalog.create_table("db.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table("db.t")
    for number in range(3):
        table.write(rows(number * 100, 250, number))


def _states(what: str, before: list[tuple[Any, ...]], number: int) -> list[list[tuple[Any, ...]]]:
    """What the table may say after a kill: what it said before, and then after each commit of the victim."""
    if what in {"compaction", "recovery"}:
        return [before]
    count = 300 // STREAM_COMMITS if what == "stream" else 300
    states = [before]
    for first in range(0, 300, count):
        written = sorted(tuple(row.values()) for row in rows(first, count, number).to_pylist())
        replaced = {row[0] for row in written}
        states.append(sorted([*written, *(row for row in states[-1] if row[0] not in replaced)]))
    return states


@pytest.mark.parametrize(
    ("what", "kills"),
    [
        *((what, 2) for what in ("compaction", "recovery", "writer")),
        *(pytest.param(what, kills, marks=pytest.mark.soak) for what, kills in sorted(KILLS.items())),
    ],
)
def test_a_killed_process_changes_nothing_or_everything_and_a_retry_works(
    what: str, kills: int, nursery: Nursery, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    chance = random.Random(f"{SEED}-{what}")
    _new_table(tmp_path / "master")
    shutil.copytree(tmp_path / "master", tmp_path / "whole")
    assert nursery.run(what, tmp_path / "whole", tmp_path / "whole.trace", number=7) == "ended"
    whole = _lines(tmp_path / "whole.trace")
    assert len(whole) > 20
    killed: list[int] = []
    published = halfway = 0
    between = _between_passes(whole) if what == "recovery" else []
    while len(killed) < kills:
        number = len(killed)
        warehouse, trace = tmp_path / f"w{number}", tmp_path / f"{number}.trace"
        shutil.copytree(tmp_path / "master", warehouse, dirs_exist_ok=True)
        # Lines 2 .. n-1: the first I/O step has begun and the last has not ended.
        line = between.pop() if between else chance.randrange(2, len(whole) - 1)
        place = f"seed {SEED}, {what}, kill {number} at line {line} of {len(whole)} (DREDGE_KILL_SEED={SEED} pytest {__file__})"
        before = _content(Catalog(str(warehouse)).table("db.t"))
        ended = nursery.run(what, warehouse, trace, number=number, line=line)
        if ended == "ended":  # two threads may need fewer lines than the measured run
            shutil.rmtree(warehouse)
            trace.unlink()
            continue
        assert ended == "killed", place
        lines = _lines(trace)
        assert len(lines) >= line, place
        assert lines[0]["event"] == "begin", place
        assert len(lines) < len(whole) or lines[-1]["event"] == "begin", place
        killed.append(line)
        table = Catalog(str(warehouse)).table("db.t")
        states = _states(what, before, number)
        now = _content(table)
        assert now in states, place
        published += now != before
        halfway += what == "recovery" and _is_halfway(table)
        assert nursery.run(what, warehouse, tmp_path / "retry.trace", number=number) == "ended", place
        assert _content(Catalog(str(warehouse)).table("db.t")) == states[-1], place
        shutil.rmtree(warehouse)
    print(
        f"\nseed {SEED}: {len(killed)} kills of a {what} at trace lines {sorted(killed)} of {len(whole)}; {published} had published"
    )
    record_property("kill points", len(set(killed)))
    assert len(set(killed)) > kills // 3
    assert halfway or what != "recovery"


def _between_passes(whole: list[dict[str, Any]]) -> list[int]:
    """How many lines the trace has when a pass has told the ledger and the next one has not begun."""
    records = [
        n
        for n, line in enumerate(whole, 1)
        if (line["event"], line["step"]) == ("end", "link") and "/ledger/" in line["path"]
    ]
    assert len(records) > 1
    return records[:-1]


def _is_halfway(table: Table) -> bool:
    """Whether a recovery was killed after a pass, and another one is left."""
    kinds = [snapshot.commit_kind for snapshot in table.snapshots()]
    left = table.copy({"num-sorted-run.compaction-trigger": "3"}).plan_maintenance("recover", files=3)
    return kinds[-1] is CommitKind.COMPACT and bool(left.items)
