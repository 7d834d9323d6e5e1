"""I/O steps of a long-lived writer fail, its background compaction's too: nothing stays behind, and a new writer goes on."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.faults.outcomes import Copies, outcome_of
from tests.faults.strides import strides
from tests.faults.victims import SCHEMA, rows
from tests.support.samples import one_in
from tests.support.stores import committed_files, data_files_on_disk

OPTIONS = {"bucket": "1", "commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "write-buffer-size": "2 kb"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose table has two level-0 files."""
    warehouse = tmp_path_factory.mktemp("built")
    catalog = Catalog(str(warehouse))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(SCHEMA, primary_keys=["id"], options=OPTIONS))
    for number in range(2):
        catalog.table("db.t").write(rows(10 * number, 30, number))
    return warehouse


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def live(table: Table, file_io: FaultyFileIO, handed: set[str]) -> None:
    """Two rounds of writing, compacting in the background and committing; ``handed``: files that a commit may be asked for again."""
    table.store.file_io = file_io
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in (5, 6):
            writer.write(rows(20, 30, number))
            writer.compact({}, 0, full=True)
            messages = writer.prepare_commit(wait_compaction=True, commit_identifier=number)
            handed |= {file.file_name for message in messages for file in message.own_files()}
            commit.filter_and_commit({number: messages})


@strides(53)
@pytest.mark.parametrize("mode", one_in(2, ["before", "after"], 1))
def test_a_failing_step_of_a_stream_leaves_the_table_whole_and_no_file(
    built: Path, tmp_path: Path, mode: Mode, stride: int
) -> None:
    states = []
    shutil.copytree(built, tmp_path / "count")
    table = Catalog(str(tmp_path / "count")).table("db.t")
    states.append(content(table))
    counted = FaultyFileIO(LocalFileIO())
    live(table, counted, set())
    last = Catalog(str(tmp_path / "count")).table("db.t")
    states += [content_at(last, user_round) for user_round in (5, 6)]
    assert counted.steps > 100
    outcomes, copies = set(), Copies(built, tmp_path)
    for step in range(1 + (mode == "after"), counted.steps, stride):
        warehouse = copies.fresh()
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        handed: set[str] = set()
        outcome = outcome_of(partial(live, Catalog(str(warehouse)).table("db.t"), faulty, handed))
        outcomes.add(outcome)
        if not copies.is_new(outcome):
            continue
        where = (mode, step, faulty.log[min(step, len(faulty.log)) - 1], outcome)
        table = Catalog(str(warehouse)).table("db.t")
        now = content(table)
        assert now in states, where
        assert outcome != "succeeded" or now == states[-1], where
        left = {Path(path).name for path in data_files_on_disk(table.store)} - committed_files(table.store) - handed
        assert not left, where
        retried = Catalog(str(warehouse)).table("db.t")
        retried.write(rows(20, 30, 6))
        retried.compact(full=True)
        assert content(retried) == states[-1], where
    assert {"succeeded", "failed"} <= outcomes | {"succeeded"}


def content_at(table: Table, identifier: int) -> list[tuple[Any, ...]]:
    """Rows as of the last snapshot of one of the job's commits."""
    snapshot = max(s.id for s in table.snapshots() if s.commit_identifier == identifier)
    return sorted(tuple(row.values()) for row in table.to_arrow(snapshot_id=snapshot).to_pylist())
