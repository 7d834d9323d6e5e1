"""I/O steps of statements that commit changelogs, hash indexes or deletion vectors fail: before or after, nothing between, nothing left over."""

from __future__ import annotations

import os
import random
import shutil
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.faults.kinds import KINDS, Kind, Row, content, opened, require_whole, strays, told
from tests.faults.outcomes import Copies, outcome_of
from tests.faults.strides import strides
from tests.faults.victims import Nursery
from tests.support.samples import one_in

SEED = int(os.environ.get("DREDGE_KILL_SEED", "20261123"))
KILLED = ("lookup changelog, compaction", "vectors minor", "dynamic write", "append update")
KILLS = 3
MODES: tuple[Mode, Mode] = ("after", "before")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One nursery for the module."""
    with Nursery() as running:
        yield running


def chosen(log: list[tuple[str, str]], first: int, name: str, stride: int) -> list[tuple[int, Mode]]:
    """Steps to fail, from 1: those that make a file beside the data files, or a snapshot; of the rest one in so many."""
    if stride == 1:
        return [(step, mode) for step in range(first + 1, len(log) + 1) for mode in MODES]
    offset = zlib.crc32(name.encode()) % stride
    decisive = ("index-", "changelog-", "snapshot-") if KINDS[name].commits == 1 else ("snapshot-",)
    return [
        (step, MODES[step % 2])
        for step, (what, path) in enumerate(log, 1)
        if step > first
        and (
            step % stride == offset or (what in ("create", "write_exclusive") and Path(path).name.startswith(decisive))
        )
    ]


def replayed(changes: list[list[dict[str, Any]]]) -> list[Row]:
    """The table that its changelog makes."""
    rows: dict[Row, Row] = {}
    for row in (row for snapshot in changes for row in snapshot):
        key = row["p"], row["k"]
        if row["_ROW_KIND"] in ("+I", "+U"):
            rows[key] = (*key, row["v"])
        elif row["_ROW_KIND"] == "-D":
            rows.pop(key, None)
    return sorted(rows.values())


@strides(149)
@pytest.mark.parametrize("name", one_in(5, [name for name, kind in KINDS.items() if kind.refused() is None]))
def test_a_failing_step_leaves_the_table_as_it_was_or_as_it_should_be(tmp_path: Path, name: str, stride: int) -> None:
    kind = KINDS[name]
    kind.fill(kind.create(tmp_path / "made"))
    first = opened(tmp_path / "made").snapshots()[-1].id
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    counting = FaultyFileIO(LocalFileIO())
    table = opened(tmp_path / "whole", counting)
    start = counting.steps
    kind.statement(table)
    whole = opened(tmp_path / "whole")
    states = [content_at(whole, number) for number in range(first, whole.snapshots()[-1].id + 1)]
    changes = told(whole)
    assert strays(whole.store) == set()
    outcomes, copies = set(), Copies(tmp_path / "made", tmp_path)
    for step, mode in chosen(counting.log, start, name, stride):
        warehouse = copies.fresh()
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        outcome = outcome_of(partial(run, kind, warehouse, faulty))
        outcomes.add(outcome)
        operation, path = faulty.log[min(step, len(faulty.log)) - 1]
        where = (name, mode, step, (operation, path), outcome)
        retried = stride == 1 or step % 3 == 0
        if not copies.is_new((outcome, operation == "delete", retried)):
            continue
        table = opened(warehouse)
        now, latest = content(table), table.snapshots()[-1].id
        assert now in states, where
        assert outcome != "succeeded" or now == states[-1], where
        assert outcome != "failed" or kind.commits > 1 or latest == first, where
        if kind.commits == 1:
            assert told(table) == changes[: len(told(table))], where
        require_whole(table)
        if outcome != "unknown":
            undeleted = {Path(path).name} if operation == "delete" else set()  # by the very step that failed
            assert strays(table.store) <= undeleted, where
        if retried:
            require_retried(kind, warehouse, states[-1], where)
    assert {"succeeded", "failed"} <= outcomes or stride > 1


def require_retried(kind: Kind, warehouse: Path, expected: list[Row], where: object) -> None:
    """The statement works now, and says what it should; so does the changelog, told from nothing."""
    kind.statement(opened(warehouse))
    if kind.commits > 1 or opened(warehouse).store.options.changelog_producer != "none":
        opened(warehouse).compact(full=True)  # what a job committed it does not compact again
    table = opened(warehouse)
    assert content(table) == expected, where
    require_whole(table)
    if table.store.options.changelog_producer != "none":
        assert replayed(told(table)) == expected, where


@pytest.mark.parametrize("name", one_in(2, KILLED))
def test_what_a_dead_process_left_is_named_by_nothing_and_hinders_nobody(
    tmp_path: Path, nursery: Nursery, name: str
) -> None:
    """Killed at lines of its own trace, nothing of it runs any more: files that nobody names may lie about."""
    kind, chance = KINDS[name], random.Random(f"{SEED} {name}")
    kind.fill(kind.create(tmp_path / "made"))
    before = content(opened(tmp_path / "made"))
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    assert nursery.run(name, tmp_path / "whole", tmp_path / "whole.trace", number=0) == "ended"
    after = content(opened(tmp_path / "whole"))
    lines = len((tmp_path / "whole.trace").read_text().splitlines())
    for number, line in enumerate(chance.sample(range(2, lines - 1), KILLS)):
        warehouse = tmp_path / f"killed{number}"
        shutil.copytree(tmp_path / "made", warehouse)
        ended = nursery.run(name, warehouse, tmp_path / f"{number}.trace", number=number, line=line)
        where = f"seed {SEED}, {name}, line {line} of {lines} (DREDGE_KILL_SEED={SEED} pytest {__file__})"
        assert ended == "killed", where
        assert content(opened(warehouse)) in (before, after), where
        require_whole(opened(warehouse))
        require_retried(kind, warehouse, after, where)


def run(kind: Kind, warehouse: Path, file_io: FaultyFileIO) -> None:
    kind.statement(opened(warehouse, file_io))


def content_at(table: Table, snapshot: int) -> list[Row]:
    return sorted(tuple(row.values()) for row in table.to_arrow(snapshot_id=snapshot).to_pylist())
