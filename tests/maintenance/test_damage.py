"""Damaged, lost and replaced metadata: what `repair` and `check` report, what a repair mends, and what it advises."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lsm_core import Catalog, Table
from lsm_core.cli.app import run
from lsm_core.clock import FixedClock
from lsm_core.errors import CorruptFile
from lsm_core.maintenance import check_table
from lsm_core.maintenance.damage import examine
from lsm_core.metadata import consumers, manifests, snapshots, tags
from tests.maintenance.tables import NOW, assert_whole, content, keyed, rows, tag

Damaging = Callable[[Path, bytes], None]


def cut(path: Path, other: bytes) -> None:
    del other
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path, other: bytes) -> None:
    del other
    data = bytearray(path.read_bytes())
    data[-24:-16] = bytes(byte ^ 0xFF for byte in data[-24:-16])
    path.write_bytes(bytes(data))


def lose(path: Path, other: bytes) -> None:
    del other
    path.unlink()


def replace_it(path: Path, other: bytes) -> None:
    path.write_bytes(other)


DAMAGES: dict[str, Damaging] = {"cut": cut, "flipped": flip, "lost": lose, "replaced": replace_it}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Warehouse with a table of four commits of the same number of rows."""
    base = tmp_path_factory.mktemp("pristine")
    table = keyed(base)
    for number in range(4):
        table.write(rows(range(number * 3, number * 3 + 5), v=number))
    return base / "wh"


def copied(pristine: Path, tmp_path: Path) -> Table:
    shutil.copytree(pristine, tmp_path / "wh")
    return Catalog(tmp_path / "wh", clock=FixedClock(NOW)).table("db.t")


def part(table: Table, number: int, name: str) -> Path:
    """Path of the base list, the delta list or the new manifest of a snapshot."""
    snapshot = snapshots.read(table.store, number)
    names = {
        "base list": snapshot.base_manifest_list,
        "delta list": snapshot.delta_manifest_list,
        "manifest": manifests.delta_list(table.store, snapshot)[0].file_name,
    }
    return Path(table.store.manifest_path(names[name]))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("base list", "cut"),
        ("base list", "flipped"),
        ("delta list", "lost"),
        ("base list", "replaced"),
        ("delta list", "replaced"),
    ],
)
def test_a_snapshot_whose_lists_are_damaged_is_set_aside_and_put_back(
    pristine: Path, tmp_path: Path, name: str, damage: str
) -> None:
    table = copied(pristine, tmp_path)
    wanted = {number: content(table, number) for number in range(1, 5)}
    path = part(table, 2, name)
    DAMAGES[damage](path, part(table, 3, "delta list").read_bytes())
    (check,) = check_table(table.store, ["snapshot_chain"])
    assert not check.passed and path.name in check.problems[0] and "snapshot 2" in check.problems[0]
    plan = table.plan_maintenance("repair")
    assert plan.declined == () and path.name in plan.items[0].reason
    report = table.apply(plan)
    assert (report.set_aside, report.bridged, report.failed) == ((2,), (2,), ())
    assert {number: content(table, number) for number in range(1, 5)} == wanted
    assert examine(table.store).damages == () and check_table(table.store, ["snapshot_chain"])[0].passed
    assert_whole(table)


@pytest.mark.parametrize(
    ("name", "damage"), [("base list", "lost"), ("delta list", "replaced"), ("manifest", "flipped")]
)
def test_damage_of_the_newest_snapshot_is_reported_and_a_rollback_gets_past_it(
    pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, damage: str
) -> None:
    table = copied(pristine, tmp_path)
    wanted = content(table, 3)
    path = part(table, 4, name)
    DAMAGES[damage](path, part(table, 3, "manifest" if name == "manifest" else "delta list").read_bytes())
    at = ["db.t", "-w", str(tmp_path / "wh")]
    assert run(["repair", *at]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    message = "added twice" if damage == "replaced" and "added twice" in printed else path.name  # lists of one size
    assert message in printed and "snapshot 4" in printed and "is not whole" in printed
    assert "`dredge rollback db.t --snapshot 3`" in printed
    assert ("remove-unexisting-manifests" in printed) == (name == "manifest")
    assert snapshots.list_ids(table.store) == [1, 2, 3, 4]
    with pytest.raises(CorruptFile, match=f"{message}.*`dredge repair db.t`"):
        table.to_arrow()
    assert run(["rollback", "db.t", "--snapshot", "3", *at[1:]]) == 0
    assert message == "added twice" or "files of snapshot 4" in capsys.readouterr().out
    assert content(table) == wanted and run(["repair", *at]) == 0
    table.write(rows([50]))
    assert_whole(table)


def test_a_lost_manifest_of_all_newer_snapshots_is_one_damage_and_is_left_out_by_the_command_that_it_names(
    pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = copied(pristine, tmp_path)
    part(table, 2, "manifest").unlink()
    (damage,) = examine(table.store).damages
    assert (damage.kind, damage.snapshots, damage.is_missing) == ("manifest", (2, 3, 4), True)
    plan = table.plan_maintenance("repair")
    assert plan.items == () and "or `dredge rollback db.t --snapshot 1`" in plan.declined[0].text
    at = ["db.t", "-w", str(tmp_path / "wh")]
    assert run(["remove-unexisting-manifests", *at, "--max-share", "50"]) == 0
    assert table.to_arrow().num_rows == 13
    assert run(["repair", *at]) == 0  # 2 to 4 are set aside and bridged, as the newest is whole
    printed = capsys.readouterr().out
    assert "moved to dredge/damaged: 2, 3, 4" in printed and "put back: 2, 3, 4" in printed
    assert_whole(table)


def test_a_damaged_tag_is_named_and_not_used_to_put_its_snapshot_back(pristine: Path, tmp_path: Path) -> None:
    table = copied(pristine, tmp_path)
    wanted = content(table, 2)
    tag(table, "kept", 2)
    part(table, 2, "base list").unlink()
    report = table.apply(table.plan_maintenance("repair"))
    assert (report.set_aside, report.bridged) == ((2,), (2,)) and content(table, 2) == wanted
    (damage,) = report.failed
    assert "tag kept" in damage.text and "delete tag kept" in damage.text
    table.apply(table.plan_maintenance("delete_tag", tag="kept"))
    assert tags.list_names(table.store) == [] and examine(table.store).damages == ()


def test_rollbacks_and_merged_manifests_are_no_damage(tmp_path: Path) -> None:
    table = keyed(tmp_path, manifest__merge_min_count="2", deletion_vectors__enabled="true")
    for number in range(4):
        table.write(rows(range(number, number + 5), v=number))
    table.compact(full=True)
    table.write(rows([3]))
    tag(table, "kept", 3)
    table.compact()
    table.apply(table.plan_maintenance("rollback", snapshot_id=5))
    table.write(rows([70, 71]))
    table.apply(table.plan_maintenance("rollback_as_latest", snapshot_id=2))
    table.write(rows([72]))
    table.apply(table.plan_maintenance("manifests"))
    assert examine(table.store).damages == ()
    assert check_table(table.store, ["snapshot_chain"])[0].passed


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/wh/db.db/t/manifest/manifest-1-0", "`dredge repair db.t`"),
        ("s3://b/wh/db.db/t/branch/branch-b1/snapshot/snapshot-7", "`dredge repair 'db.t$branch_b1'`"),
        ("/wh/db.db/my t/schema/schema-0", "put the file back from a copy, because"),
        ("/wh/db.db/t/dt=1/bucket-0/data-1-0.parquet", "`dredge check db.t --deep`"),
        ("<maintenance plan>", None),
        ("/wh/db.db/t/consumer/consumer-c", "`dredge repair db.t`"),
    ],
)
def test_the_message_on_a_damaged_file_names_the_next_command(path: str, step: str | None) -> None:
    error = CorruptFile(path, "the file is missing")
    assert error.finding == f"corrupt file {path}: the file is missing"
    assert (str(error) == error.finding) if step is None else (f"; {step} " in str(error))


def test_a_damaged_consumer_is_reported_with_the_command_that_ends_it(pristine: Path, tmp_path: Path) -> None:
    table = copied(pristine, tmp_path)
    folder = Path(table.store.root, "consumer")
    folder.mkdir()
    for name, text in (("good", '{"nextSnapshot": 3}'), ("it's bad", "{")):
        (folder / f"consumer-{name}").write_text(text)
    with pytest.raises(CorruptFile, match=r"; `dredge repair db\.t` lists all damaged metadata"):
        table.plan_maintenance("expire_snapshots")
    assert not check_table(table.store, ["snapshot_chain"])[0].passed
    (remaining,) = table.plan_maintenance("repair").declined
    assert remaining.subject == "consumer consumer-it's bad"
    (command,) = re.findall("`dredge (.+?)`", remaining.text)
    words = shlex.split(command)
    assert words == ["consumers", "delete", "db.t", "it's bad"]
    assert run([*words, "-w", str(tmp_path / "wh")]) == 0
    assert table.plan_maintenance("repair").declined == ()
    assert check_table(table.store, ["snapshot_chain"])[0].passed
    assert consumers.list_consumers(table.store) == {"good": 3}
