"""Damaged and lost files: `dredge check` names commands that work, one after the other, until every check passes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.cli.app import run as run_cli
from lsm_core.maintenance.file_remedies import find_file_remedies
from lsm_core.metadata import manifests, snapshots
from tests.support.platform import commit, keyed_table

TABLE = "shop.orders"


def file_of(table: Table, number: int, *, changelog: bool = False) -> Path:
    """Return the path of a file that a snapshot added: a data file, or a file of its changelog."""
    snapshot = snapshots.read(table.store, number)
    listed = (
        manifests.changelog_list(table.store, snapshot) if changelog else manifests.delta_list(table.store, snapshot)
    )
    (entry, *_) = manifests.entries_of(table.store, listed or []).to_pylist()
    return Path(table.store.data_path(entry["partition"], entry["bucket"], entry["file_name"]))


def damage(path: Path, how: str) -> None:
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def follow(warehouse: Path, capsys: pytest.CaptureFixture[str], choice: int = 0) -> list[str]:
    """Check the table deeply and run the named command, as a person pastes it, until every check passes."""
    verbs: list[str] = []
    for _ in range(4):
        capsys.readouterr()
        code = run_cli(["check", TABLE, "--deep", "-w", str(warehouse)])
        error = capsys.readouterr().err
        if code == 0:
            return verbs
        assert "; put the file back from a copy, or `dredge " in error
        commands = re.findall(r"`dredge ([^`]+)`", error)
        command = commands[min(choice, len(commands) - 1)]
        verbs.append(shlex.split(command)[0])
        assert run_cli([*shlex.split(command), "-w", str(warehouse)]) == 0, command
    raise AssertionError(f"still not healthy after {verbs}")


def output_of(table: Table) -> Path:
    """Compact the whole table and return the path of the output."""
    report = table.compact(full=True)
    assert report.snapshot_id is not None
    entries = manifests.delta_entries(table.store, snapshots.read(table.store, report.snapshot_id)).to_pylist()
    (entry,) = [entry for entry in entries if entry["kind"] == 0]
    return Path(table.store.data_path(entry["partition"], entry["bucket"], entry["file_name"]))


@pytest.mark.parametrize("how", ["lost", "truncated"])
def test_the_output_of_a_compaction_is_undone(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = keyed_table(tmp_path, partitioned=False)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    damage(output_of(table), how)
    verbs = follow(tmp_path, capsys)
    assert verbs == (["undo", "expire"] if how == "lost" else ["undo"]), "the lost file's snapshot remains incomplete"
    assert table.to_arrow().sort_by("id") == before


@pytest.mark.parametrize(("choice", "snapshot"), [(0, 2), (1, None)])
def test_the_file_of_a_writer_is_given_up_with_or_without_later_commits(
    tmp_path: Path, choice: int, snapshot: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(tmp_path, partitioned=False)
    commit(table, 5)
    earlier = table.copy({"scan.snapshot-id": "2"}).to_arrow().sort_by("id")
    damage(file_of(table, 3), "lost")
    verbs = follow(tmp_path, capsys, choice)
    assert verbs == [["rollback-as-latest", "remove-unexisting-files"][choice], "expire"]
    rows = table.to_arrow().sort_by("id")
    assert rows == earlier if snapshot else rows.num_rows > earlier.num_rows


def test_a_replaced_file_and_a_changelog_cost_only_old_snapshots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(tmp_path, partitioned=False, **{"changelog-producer": "input"})
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    damage(file_of(table, 2, changelog=True), "lost")
    assert find_file_remedies(table.store, ["data-of-no-snapshot.parquet"]) == ()
    assert follow(tmp_path, capsys) == ["expire"]
    assert table.to_arrow().sort_by("id") == before
    assert [snapshot.id for snapshot in table.snapshots()] == [3, 4, 5]
    inputs = file_of(table, 4)
    output_of(table)
    damage(inputs, "truncated")
    assert follow(tmp_path, capsys) == ["expire"]
    assert table.to_arrow().sort_by("id") == before


def test_the_newest_changelog_has_no_remedy_before_the_next_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(tmp_path, partitioned=False, **{"changelog-producer": "input"})
    commit(table, 2)
    damage(file_of(table, 2, changelog=True), "lost")
    assert run_cli(["check", TABLE, "-w", str(tmp_path)]) == 1
    assert "put the files back from a copy" in capsys.readouterr().err
    commit(table, 1)
    assert follow(tmp_path, capsys) == ["expire"]
