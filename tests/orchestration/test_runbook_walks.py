"""Walks of docs/operations.md: a cause, the finding of `watch`, the command that it or the page names, no finding left."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dredge.platform_core import names
from dredge.platform_core.policies.findings import AlertCondition
from lsm_core import Table
from lsm_core.cli.app import run as run_cli
from lsm_core.metadata import consumers, snapshots
from tests.support.platform import House, append_table, commit, keyed_table, open_house

TABLE = "shop.orders"
POLICIES = """\
defaults:
  level0_warn: 5
  level0_critical: 6
  watch: {small_files: 5, small_manifests: 4, tags: 2, overdue_after: 1 s, stalled_after: 1 s}
"""
RETAIN = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    policies = tmp_path / "policies.yaml"
    policies.write_text(POLICIES)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(policies)) as opened:
        yield opened


def findings(house: House, condition: AlertCondition) -> list[str]:
    """Return the findings of a tick about a condition."""
    return [line for line in house.lines(house.tick(names.WATCH_SENSOR)) if f"({condition.value})" in line]


def paste(house: House, *commands: str) -> None:
    """Run command lines of the page or of a message with the warehouse of the house."""
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "dredge"
        assert run_cli([*arguments, "-w", str(house.root)]) == 0, command


def named_command(finding: str) -> str:
    """Return the command that a finding names."""
    command = re.search(r"`(dredge [^`]+)`", finding)
    assert command is not None, finding
    return command[1]


def with_old_snapshots(table: Table) -> None:
    commit(table, 4)
    time.sleep(1.1)


def with_consumer(table: Table) -> None:
    commit(table, 4)
    consumers.write_consumer(table.store, "job 7", 1)
    time.sleep(1.1)


def with_gap(table: Table) -> None:
    commit(table, 4)
    Path(table.store.snapshot_path(2)).unlink()


def with_tags(table: Table) -> None:
    commit(table, 1)
    for number in range(3):
        table.create_tag(f"t{number}")


def with_backlog(table: Table) -> None:
    commit(table, 7)


def with_manifests(table: Table) -> None:
    commit(table, 6)


@pytest.mark.parametrize(
    ("condition", "cause", "options", "commands"),
    [
        (AlertCondition.LEVEL0, with_backlog, {}, ()),
        (AlertCondition.SNAPSHOTS, with_old_snapshots, RETAIN, ()),
        (AlertCondition.CONSUMER, with_consumer, RETAIN, ()),
        (AlertCondition.GAP, with_gap, {}, ()),
        (AlertCondition.TAGS, with_tags, {}, (f"dredge holds {TABLE}", f"dredge tag delete {TABLE} t0")),
        (AlertCondition.MANIFESTS, with_manifests, {}, ()),
        (AlertCondition.STALLED, with_backlog, {}, (f"dredge plan {TABLE}", f"dredge compact {TABLE}")),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, AlertCondition) else "",
)
def test_the_command_that_a_finding_names_ends_it(
    house: House,
    condition: AlertCondition,
    cause: Callable[[Table], None],
    options: dict[str, str],
    commands: Sequence[str],
) -> None:
    table = keyed_table(house.root, TABLE, partitioned=False, **options)
    cause(table)
    rows = table.to_arrow().sort_by("id")
    house.load()
    if condition is AlertCondition.STALLED:
        time.sleep(1.1)
    (finding,) = findings(house, condition)
    paste(house, *(commands or [named_command(finding)]))
    assert not findings(house, condition)
    assert house.warehouse.table(TABLE).to_arrow().sort_by("id") == rows


@pytest.mark.parametrize("condition", [AlertCondition.SMALL_FILES])
def test_small_files_of_an_append_table_are_gathered_by_the_named_command(
    house: House, condition: AlertCondition
) -> None:
    table = append_table(house.root, TABLE)
    commit(table, 6)
    rows = table.to_arrow().sort_by("id").num_rows
    house.load()
    (finding,) = findings(house, condition)
    paste(house, named_command(finding))
    assert not findings(house, condition)
    assert house.warehouse.table(TABLE).to_arrow().num_rows == rows


def test_a_pause_and_a_wrong_policy_file_end_with_the_file(house: House) -> None:
    commit(keyed_table(house.root, TABLE, partitioned=False), 2)
    house.load()
    policies = Path(house.environment["DREDGE_POLICIES"])
    policies.write_text(f"{POLICIES}tables: {{{TABLE}: {{paused: {{reason: move, since: 2020-01-01}}}}}}")
    assert findings(house, AlertCondition.PAUSED)
    policies.write_text("tables: [")
    assert findings(house, AlertCondition.POLICIES)
    policies.write_text(POLICIES)
    assert not findings(house, AlertCondition.PAUSED)
    assert not findings(house, AlertCondition.POLICIES)


def test_an_unreadable_table_is_readable_again_once_its_file_is_put_back(house: House) -> None:
    table = keyed_table(house.root, TABLE, partitioned=False)
    commit(table, 2)
    house.load()
    newest = snapshots.latest(table.store)
    assert newest is not None
    path = Path(table.store.manifest_path(newest.delta_manifest_list))
    copy = path.read_bytes()
    path.write_bytes(b"")
    (finding,) = findings(house, AlertCondition.UNREADABLE)
    assert named_command(finding) == f"dredge repair {TABLE}"
    arguments = shlex.split(named_command(finding))[1:]
    assert run_cli([*arguments, "-w", str(house.root)]) == 1, "it names the remedy: a copy, or a rollback"
    path.write_bytes(copy)
    paste(house, named_command(finding))
    assert not findings(house, AlertCondition.UNREADABLE)
    assert all(report.passed for report in table.check(["tree_is_valid", "snapshot_chain"]))


def test_a_disk_is_freed_by_the_commands_of_the_page_in_their_order(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(house.root, TABLE, partitioned=False, **RETAIN, **{"dredge.trash-grace-expiry": "0 s"})
    commit(table, 6)
    table.compact(full=True)
    table.create_tag("old", 2)
    rows = table.to_arrow().sort_by("id")
    held = sum(path.stat().st_size for path in Path(table.store.root).rglob("*") if path.is_file())
    paste(house, f"dredge holds {TABLE}")
    assert "old" in capsys.readouterr().out
    paste(
        house,
        f"dredge tag delete {TABLE} old",
        f"dredge expire {TABLE} --dry-run",
        f"dredge expire {TABLE}",
        f"dredge trash {TABLE}",
        f"dredge trash {TABLE} --sweep",
        f"dredge orphans {TABLE} --dry-run",
    )
    left = sum(path.stat().st_size for path in Path(table.store.root).rglob("*") if path.is_file())
    assert left < held
    assert table.to_arrow().sort_by("id") == rows
    assert all(report.passed for report in table.check())


def test_what_retention_deleted_is_restored_by_the_commands_of_the_page(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(house.root, TABLE, partitioned=False)
    commit(table, 4)
    rows = table.copy({"scan.snapshot-id": "2"}).to_arrow().sort_by("id")
    paste(house, f"dredge expire {TABLE} --retain-min 1 --retain-max 1", f"dredge trash {TABLE}")
    printed = capsys.readouterr().out
    deletion = re.search(r"\bexpire-1-3-[0-9a-f]+-\d+", printed)
    assert deletion is not None, printed
    paste(house, f"dredge restore {TABLE} {deletion[0]}")
    assert table.copy({"scan.snapshot-id": "2"}).to_arrow().sort_by("id") == rows
    assert all(report.passed for report in table.check())


def test_a_failure_that_no_retry_heals_ends_with_the_next_commit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from dredge.orchestration.ops import layout_ops
    from lsm_core.errors import UnsupportedFeature

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedFeature("merging these rows", TABLE)

    table = keyed_table(house.root, TABLE, partitioned=False)
    commit(table, 5)
    house.load()
    with monkeypatch.context() as patched:
        patched.setattr(layout_ops, "apply_plan", refuse)
        assert not house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0]).success
    assert not house.tick(names.SORTED_RUN_SENSOR).run_requests
    assert len(findings(house, AlertCondition.NO_RETRY)) == 1
    commit(table, 1)
    assert not findings(house, AlertCondition.NO_RETRY)
    assert house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0]).success


def test_tables_are_maintained_from_a_shell_while_nothing_ticks(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed_table(house.root, TABLE, partitioned=False)
    commit(table, 5)
    rows = table.to_arrow().sort_by("id")
    house.load()
    paste(house, f"dredge doctor {TABLE}", "dredge maintain 'shop.*' --dry-run", "dredge maintain 'shop.*'")
    assert f"{TABLE}: compact: done" in capsys.readouterr().out
    assert [bucket.sorted_runs for bucket in table.health()] == [1]
    assert table.to_arrow().sort_by("id") == rows
    tick = house.tick(names.SORTED_RUN_SENSOR)
    assert not tick.run_requests, "the platform continues from the table, and repeats nothing"
    assert not findings(house, AlertCondition.STALLED)
