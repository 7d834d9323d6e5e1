"""Damaged and lost files: `dredge check` names commands that work, one after the other, until every check passes."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.cli.app import run as run_cli
from lsm_core.format.manifest import ADD, ENTRY_SCHEMA
from lsm_core.maintenance.file_remedies import find_file_remedies, find_last_valid
from lsm_core.metadata import manifests, snapshots
from tests.maintenance.test_checks import publish, with_column
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


def break_tree(table: Table) -> None:
    """Publish a snapshot with all files on one level, although their key ranges overlap."""
    publish(table, lambda entries: with_column(entries, "level", [5] * entries.num_rows))


def tree_failure(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run_cli(["check", TABLE, "--only", "tree_is_valid", "-w", str(warehouse)]) == 1
    result = capsys.readouterr()
    return result.out + result.err


@pytest.mark.parametrize("later", [0, 3])
def test_a_broken_tree_returns_to_the_snapshot_before_the_commit_that_broke_it(
    tmp_path: Path, later: int, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(tmp_path, partitioned=False)
    commit(table, 5)
    before = table.to_arrow().sort_by("id")
    break_tree(table)
    broken = snapshots.latest(table.store)
    assert broken is not None
    commit(table, later)
    text = tree_failure(tmp_path, capsys)
    assert f"snapshot {broken.id} (COMPACT) broke the tree" in text
    assert ("the rows of 3 later commits must be written again" in text) == bool(later)
    (command,) = re.findall(r"repair it: `dredge ([^`]+)`", text)
    assert command == f"rollback-as-latest {TABLE} --snapshot {broken.id - 1}"
    assert run_cli([*shlex.split(command), "-w", str(tmp_path)]) == 0
    assert run_cli(["check", TABLE, "-w", str(tmp_path)]) == 0
    assert table.to_arrow().sort_by("id") == before


def test_a_compaction_that_broke_the_tree_is_undone_and_later_commits_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(tmp_path, partitioned=False)
    commit(table, 5)
    assert table.compact(full=True).snapshot_id is not None
    newest = snapshots.latest(table.store)
    assert newest is not None
    # The manifest says that the output has more deletes than rows, as a defect of a compaction would.
    entries = manifests.delta_entries(table.store, newest).select(ENTRY_SCHEMA.names).cast(ENTRY_SCHEMA)
    counts = [
        entry["row_count"] + 1 if entry["kind"] == ADD else entry["delete_row_count"] for entry in entries.to_pylist()
    ]
    wrong = with_column(entries, "delete_row_count", counts)
    delta, size = manifests.write_list(table.store, manifests.write_manifests(table.store, wrong))
    made = replace(newest, delta_manifest_list=delta, delta_manifest_list_size=size)
    Path(table.store.snapshot_path(newest.id)).write_bytes(made.to_json())
    commit(table, 1)
    rows = table.to_arrow().sort_by("id")
    tree = tree_failure(tmp_path, capsys)
    assert f"snapshot {newest.id} (COMPACT) broke the tree" in tree
    (command,) = re.findall(r"repair it: `dredge ([^`]+)`", tree)
    assert command.startswith(f"undo {TABLE} ") and command.endswith(" --allow-changes")
    assert run_cli([*shlex.split(command), "-w", str(tmp_path)]) == 0
    assert run_cli(["check", TABLE, "--only", "tree_is_valid", "-w", str(tmp_path)]) == 0
    assert table.to_arrow().sort_by("id") == rows


def test_a_broken_tree_without_an_older_valid_one_has_no_remedy_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(tmp_path, partitioned=False)
    commit(table, 3)
    break_tree(table)
    break_tree(table)
    newest = snapshots.latest_id(table.store)
    assert newest is not None
    for number in range(1, newest - 1):
        Path(table.store.snapshot_path(number)).unlink()  # expired by another engine
    text = tree_failure(tmp_path, capsys)
    assert "no action repairs it (no older snapshot with a valid tree exists): restore the table from a backup" in text
    assert "repair it: `" not in text


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_the_last_valid_snapshot_is_found_in_few_reads(count: int) -> None:
    ids = list(range(100, 100 + count))
    for valid in range(count):
        read: list[int] = []

        def is_valid(number: int, valid: int = valid, read: list[int] = read) -> bool:
            read.append(number)
            return number <= ids[valid]

        assert find_last_valid(ids, is_valid) == valid
        assert len(read) <= 2 * (count - valid).bit_length() + 1
    assert find_last_valid(ids, lambda _: False) is None
