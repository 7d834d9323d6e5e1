"""SIGKILL of writers and of a compaction at lines of their own I/O trace: the table reads as before or after, and a retry works."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
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


def _new_splices(warehouse: Path) -> None:
    """Create a table whose full compaction copies most row groups of its large file without decoding."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "parquet.block.size": "1 kb", "target-file-size": "16 kb"}
    options["dredge.compaction.exact-keys"] = "always"
    catalog.create_table("db.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    table = catalog.table("db.t")
    texts = [sha256(str(number).encode()).hexdigest() for number in range(4000)]
    table.write(rows(0, 4000, 0).set_column(2, SCHEMA.field("text"), pa.array(texts)))
    table.compact(full=True)
    table.write(rows(1500, 60, 1))
    table.write(rows(3000, 1, 2))


def _new_small_files(warehouse: Path) -> None:
    """Create an append table of small files, of which the victim "gathering" copies two row groups and joins two."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(SCHEMA, options={"bucket": "-1", "write-only": "true"}))
    for number, count in enumerate([40, 4, 5, 32]):
        catalog.table("db.t").write(rows(number * 100, count, number))


COPIES = {"compaction": (_new_splices, 21), "gathering": (_new_small_files, 2)}
"""Victims that copy row groups: how their table is made, and how many row groups they copy at least."""


def _data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root).glob("bucket-0/*")}


@pytest.mark.parametrize("what", COPIES)
@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=pytest.mark.soak)])
def test_a_killed_compaction_that_copies_row_groups_leaves_only_orphans(
    what: str, kills: int, nursery: Nursery, tmp_path: Path
) -> None:
    chance = random.Random(f"{SEED}-copies")
    create, copied = COPIES[what]
    create(tmp_path / "master")
    shutil.copytree(tmp_path / "master", tmp_path / "whole")
    assert nursery.run(what, tmp_path / "whole", tmp_path / "whole.trace", number=7) == "ended"
    assert Catalog(str(tmp_path / "whole")).table("db.t").ledger()[-1].report["groups_spliced"] >= copied
    whole = _lines(tmp_path / "whole.trace")
    created = [at for at, line in enumerate(whole, 1) if line["event"] == "end" and "/bucket-0/data-" in line["path"]]
    before = _content(Catalog(str(tmp_path / "master")).table("db.t"))
    left_over = 0
    for number in range(kills):
        # Every other kill is between the first and the last step on data files.
        low, high = (created[0], created[-1]) if number % 2 == 0 else (2, len(whole) - 1)
        line = chance.randrange(low, high)
        warehouse, trace = tmp_path / f"w{number}", tmp_path / f"{number}.trace"
        shutil.copytree(tmp_path / "master", warehouse)
        known = _data_files(Catalog(str(warehouse)).table("db.t"))
        ended = nursery.run(what, warehouse, trace, number=number, line=line)
        table = Catalog(str(warehouse)).table("db.t")
        assert _content(table) == before, line
        is_published = table.latest_snapshot().commit_kind is CommitKind.COMPACT
        extra = set() if is_published else _data_files(table) - known
        left_over += bool(extra)
        table.remove_orphan_files(older_than_ms=int(time.time() * 1000), max_share=100)
        table.sweep_trash(now_ms=1 << 42)
        assert is_published or _data_files(table) == known, (ended, line)
        assert _content(table) == before, line
        assert nursery.run(what, warehouse, tmp_path / "retry.trace", number=number) == "ended", line
        again = Catalog(str(warehouse)).table("db.t")
        assert _content(again) == before, line
        assert all(check.passed for check in again.check()), line
        shutil.rmtree(warehouse)
    assert left_over or kills == 1


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
