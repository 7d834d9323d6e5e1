"""Repair of history: hints that mislead, and gaps in the ids of snapshots, bridged without losing a row or a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.cli.app import run
from lsm_core.errors import CorruptFile
from lsm_core.metadata import manifests
from lsm_core.metadata.history_check import history_warnings
from tests.maintenance.tables import HOUR, assert_whole, content, keyed, on_disk, rows, strays, tag


def hint(table: Table, name: str) -> Path:
    return Path(table.store.snapshot_dir) / name


def remove(table: Table, *numbers: int) -> None:
    for number in numbers:
        Path(table.store.snapshot_path(number)).unlink()


def live_at(table: Table, number: int) -> set[str]:
    return set(manifests.live_entries(table.store, table.snapshots()[number - 1]).column("file_name").to_pylist())


def test_hints_are_set_right_and_only_those_that_mislead_are_warned_about(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(3):
        table.write(rows([i]))
    assert table.plan_maintenance("repair").items == () and history_warnings(table.store) == []
    hint(table, "LATEST").write_text("2")  # as between a commit and its hint
    assert history_warnings(table.store) == []
    hint(table, "LATEST").write_text("9")
    hint(table, "EARLIEST").unlink()
    (warning,) = history_warnings(table.store)
    assert "LATEST says 9, but the newest snapshot is 3" in warning
    plan = table.plan_maintenance("repair")
    assert {(item.name, item.found, item.wanted) for item in plan.items} == {("LATEST", "9", 3), ("EARLIEST", "", 1)}
    table.write(rows([7]))  # a commit moves LATEST: the plan does not move it back
    hint(table, "LATEST").write_text("nonsense")
    report = table.apply(plan)
    assert report.hints == ("snapshot/EARLIEST", "snapshot/LATEST")
    assert (hint(table, "LATEST").read_text(), hint(table, "EARLIEST").read_text()) == ("4", "1")
    assert table.apply(plan).applied_before is not None and history_warnings(table.store) == []
    hint(table, "EARLIEST").write_text("3")
    assert "EARLIEST says 3, but the oldest snapshot is 1" in history_warnings(table.store)[0]
    assert run(["repair", "db.t", "-w", str(tmp_path / "wh")]) == 0
    assert hint(table, "EARLIEST").read_text() == "1"


def test_a_gap_is_bridged_and_expiry_gets_past_it_without_leaving_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = keyed(tmp_path)
    for i in range(4):
        table.write(rows(range(i, i + 5), v=i))
    table.compact(full=True)  # snapshot 5 replaces four files
    table.write(rows([1], v=50))
    table.write(rows([2], v=60))
    rows_before = {number: content(table, number) for number in (1, 2, 6, 7)}
    between = content(table, 5)
    added = [
        set(manifests.delta_entries(table.store, table.snapshots()[number - 1]).column("file_name").to_pylist())
        for number in (3, 4)
    ]
    within = (added[0] | added[1]) - live_at(table, 5)
    remove(table, 3, 4, 5)
    assert run(["status", "db.t", "-w", str(tmp_path / "wh")]) == 0
    assert "snapshots 3..5 are missing" in capsys.readouterr().out
    plan = table.plan_maintenance("repair")
    assert [(item.snapshot_id, item.source) for item in plan.items] == [(3, "bridge"), (4, "bridge"), (5, "bridge")]
    before = on_disk(table)
    report = table.apply(plan)
    assert report.bridged == (3, 4, 5) and history_warnings(table.store) == []
    assert all(on_disk(table)[name] == data for name, data in before.items())  # nothing is changed, nothing goes
    assert {number: content(table, number) for number in rows_before} == rows_before
    assert content(table, 3) == content(table, 4) == content(table, 5) == between
    assert [s.commit_kind.value for s in table.snapshots()[2:5]] == ["OVERWRITE", "COMPACT", "COMPACT"]
    assert [s.total_record_count for s in table.snapshots()[2:5]] == [8, 8, 8]
    assert table.plan_maintenance("repair").items == ()
    assert table.apply(plan).applied_before is not None
    # The bridge tells what went: whoever expires by deltas, as Java does, frees it.
    bridge = manifests.delta_entries(table.store, table.snapshots()[2])
    assert sorted(bridge.column("kind").to_pylist()) == [0, 1, 1]
    table.store.clock.advance(2 * HOUR)
    table.expire_snapshots(retain_max=1)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert_whole(table)
    # What came and went within the gap no snapshot ever told of again: the cleaning of orphans takes it.
    assert {name for name in strays(table) if name.startswith("data-")} == within


def test_a_tag_brings_its_snapshot_back_as_it_was(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows([i], v=i))
    tag(table, "kept", 3)
    wanted, message = (
        Path(table.store.snapshot_path(3)).read_bytes(),
        [content(table, number) for number in range(1, 6)],
    )
    remove(table, 2, 3)
    plan = table.plan_maintenance("repair")
    assert [item.source for item in plan.items] == ["bridge", "tag kept"]
    table.apply(plan)
    assert Path(table.store.snapshot_path(3)).read_bytes() == wanted
    # What the bridge of 2 says is what 4 was built on; the tag's own snapshot says what it always said.
    assert [content(table, number) for number in (1, 3, 4, 5)] == [message[0], message[2], message[3], message[4]]


def test_a_gap_across_which_deletion_vectors_changed_is_declined(tmp_path: Path) -> None:
    table = keyed(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(range(5)))
    table.compact(full=True)
    table.write(rows([0], v=5))
    table.compact()  # marks a row
    remove(table, 3)
    plan = table.plan_maintenance("repair")
    assert plan.items == () and "deletion vectors changed" in plan.declined[0].text
    result = table.apply(plan).lines("db.t")
    assert len(result) == 1 and result[0].startswith(
        "the history of db.t is not whole: deletion vectors changed between snapshots"
    )


def test_a_newest_snapshot_that_cannot_be_read_is_named_and_left_alone(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for value in range(3):
        table.write(rows(range(5), v=value))
    broken = Path(table.store.snapshot_path(3))
    broken.write_text(broken.read_text()[:40])
    plan = table.plan_maintenance("repair")
    assert [(item.subject, item.reason) for item in plan.declined] == [("snapshot 3", "unreadable")]
    report = table.apply(plan)
    assert not report.changed
    (line,) = report.lines("db.t")
    assert line.startswith("the history of db.t is not whole: ") and str(broken) in line
    assert line.endswith("put the file back from a copy; moved away, the table is at snapshot 2 again")
    broken.rename(tmp_path / broken.name)
    assert table.apply(table.plan_maintenance("repair")).lines("db.t") == ["hints set right: snapshot/LATEST"]
    assert table.to_arrow().num_rows == 5


def damage(table: Table, number: int) -> bytes:
    """Cut a snapshot file in half; returns what it held."""
    path = Path(table.store.snapshot_path(number))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return data


def test_a_damaged_snapshot_keeps_its_neighbours_and_is_repaired_by_the_command_that_the_warning_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"dredge__compaction__inline": "follow", "snapshot__num_retained__min": "1"}
    table = keyed(tmp_path, snapshot__num_retained__max="3", **options)
    alone = table.copy({"write-only": "true"})
    for number in range(8):
        alone.write(rows(range(number, number + 3), v=number))
    wanted = {number: content(table, number) for number in range(4, 9)}
    data = damage(table, 5)
    for number in range(2):
        table.write(rows([100 + number]))
        assert table.last_write is not None
        assert "snapshot 5 is damaged" in table.last_write.warnings[0]
        assert "`dredge repair db.t`" in table.last_write.warnings[0]
        assert table.last_write.expired == ((1, 2, 3) if not number else ())
    assert caplog.text.count("snapshot 5 is damaged") == 1

    assert {number: content(table, number) for number in (4, 6, 7, 8)} == {n: wanted[n] for n in (4, 6, 7, 8)}
    assert run(["repair", "db.t", "-w", str(tmp_path / "wh")]) == 0
    assert content(table, 5) == wanted[5]
    (kept,) = (Path(table.store.root) / "dredge" / "damaged").iterdir()
    assert data.startswith(kept.read_bytes())
    table.write(rows([102]))
    assert table.last_write is not None
    assert table.last_write.warnings == ()
    assert 5 in table.last_write.expired
    assert_whole(table)


def test_a_retained_snapshot_that_is_damaged_holds_the_files_that_the_next_one_dropped(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(5):
        table.write(rows(range(number, number + 3), v=number))
    table.compact(full=True)  # 6 drops the files of 1 to 5
    for number in range(3):
        table.write(rows([number]))
    needed = live_at(table, 5)
    damage(table, 5)
    damage(table, 8)
    report = table.expire_snapshots(retain_max=6, retain_min=1)
    assert report.expired == (1, 2, 3)
    assert {item.facts["snapshot"] for item in report.declined if "snapshot" in item.facts} == {5, 8}
    table.store.clock.advance(48 * HOUR)
    table.apply(table.plan_maintenance("repair"))
    assert needed <= {path.rpartition("/")[2] for path in on_disk(table)}
    table.sweep_trash()
    assert_whole(table)


def test_two_damaged_snapshots_side_by_side_expire_nothing_and_are_repaired_together(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(7):
        table.write(rows(range(number, number + 3), v=number))
    message = content(table, 5)
    for number in (3, 4):
        damage(table, number)
    with pytest.raises(CorruptFile, match="snapshot-3"):
        table.expire_snapshots(retain_max=5, retain_min=1)
    assert table.apply(table.plan_maintenance("repair")).bridged == (3, 4)
    assert content(table, 5) == message
    assert table.expire_snapshots(retain_max=5, retain_min=1).expired == (1, 2)


def test_the_oldest_snapshot_is_set_aside_and_the_newest_is_not(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows([number]))
    damage(table, 1)
    plan = table.plan_maintenance("repair")
    assert [item.snapshot_id for item in plan.items] == [1]
    assert table.apply(plan).set_aside == (1,)
    assert (hint(table, "EARLIEST").read_text(), [snapshot.id for snapshot in table.snapshots()]) == ("2", [2, 3])
    damage(table, 3)
    plan = table.plan_maintenance("repair")
    assert (plan.items, plan.declined[0].subject) == ((), "snapshot 3")
