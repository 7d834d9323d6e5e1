"""Whether the writers of a table compact it is told by its newest snapshots and its ledger, whoever the writers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm_core import Table
from lsm_core.maintenance.writers_compact import writers_compact
from lsm_core.metadata import snapshots
from tests.maintenance.tables import keyed, rows


def told(table: Table) -> bool:
    newest = snapshots.latest(table.store)
    assert newest is not None
    return writers_compact(table.store, newest)


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "follow")


def write(table: Table, number: int, **more: Any) -> None:
    for step in range(number):
        table.write(rows(range(3), v=step), **more)


def test_a_writer_that_compacted_after_its_commit_is_told_from_a_job_that_did(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1")
    write(table, 4)
    assert not told(table), "nothing was compacted yet"
    write(table, 1)
    assert told(table)
    job = keyed(tmp_path, bucket="1", name="db.job")
    write(job, 5, compact=False)
    job.compact(full=True)
    assert not told(job), "the ledger says that it was no writer"
    write(job, 4)
    assert told(job)


def test_a_stream_that_compacts_its_buckets_does_so_by_its_own_commits(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1")
    with table.new_stream_write("me") as stream:
        commit = table.new_stream_commit("me")
        for number in range(7):
            stream.write(rows(range(3), v=number))
            commit.commit(stream.prepare_commit(wait_compaction=True), number)
    assert told(table)
    assert told(table.copy({"dredge.compaction.inline": "never"})), "streams compact whatever that option says"
    assert not told(table.copy({"write-only": "true"}))


@pytest.mark.parametrize("option", ["write_only", "dredge__compaction__inline"])
def test_the_options_of_today_count_whatever_was_done_before(tmp_path: Path, option: str) -> None:
    table = keyed(tmp_path, bucket="1")
    write(table, 5)
    assert told(table)
    changed = {
        "write_only": {"write-only": "true"},
        "dredge__compaction__inline": {"dredge.compaction.inline": "never"},
    }
    assert not told(table.copy(changed[option]))


def test_the_ledger_knows_compactions_whose_snapshots_cannot_be_read_or_expired(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1")
    write(table, 8)
    Path(table.store.snapshot_path(5)).write_text("{")
    assert told(table), "the compaction is newer"
    Path(table.store.snapshot_path(8)).write_text("{")
    assert told(table), "the ledger names snapshot 6"
    few = keyed(tmp_path, bucket="1", name="db.few", snapshot__num_retained__min="1", snapshot__num_retained__max="2")
    write(few, 8)
    assert [snapshot.commit_kind.value for snapshot in few.snapshots()] == ["APPEND", "APPEND"]
    assert told(few)
    for path in Path(few.store.ledger_dir).glob("*-compact-*"):
        path.unlink()
    assert not told(few), "neither snapshots nor ledger know of a compaction"


def test_compactions_older_than_twenty_snapshots_no_longer_count(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="1")
    write(table, 5)
    write(table, 20, compact=False)
    assert not told(table)
