"""Rollback: the table is at an older version at once, what is newer waits in the trash, and comes back as long as nobody has committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import (
    CommitConflict,
    CommitUnknown,
    ConflictKind,
    InvalidOption,
    PlanRefused,
    PlanStale,
    SnapshotNotFound,
    WriterStale,
)
from lsm_core.maintenance import DeleteItem, MaintenancePlan, read_trash
from lsm_core.maintenance.actions import expire_snapshots
from lsm_core.maintenance.trash import TrashRecord
from lsm_core.metadata import branches, changelogs, snapshots
from lsm_core.storage import LocalFileIO
from tests.maintenance.tables import HOUR, NOW, assert_whole, catalog, content, keyed, on_disk, rows, strays, with_io


def history(tmp_path: Path, **options: str) -> Table:
    """Six snapshots, a minute apart; the fourth is a full compaction, the sixth an overwrite."""
    table = keyed(tmp_path, **options)
    for i in range(3):
        table.write(rows(range(i * 10, i * 10 + 15), v=i))
        table.store.clock.advance(60_000)
    table.compact(full=True)
    table.store.clock.advance(60_000)
    table.write(rows(range(3), v=70))
    table.store.clock.advance(60_000)
    table.write(rows(range(4), v=80), overwrite=True)
    return table


def ids(table: Table) -> list[int]:
    return [snapshot.id for snapshot in table.snapshots()]


def hint(table: Table, name: str = "LATEST") -> str:
    return (Path(table.store.root) / "snapshot" / name).read_text()


def files(table: Table) -> dict[str, bytes]:
    return on_disk(table, without=("dredge/",))


def test_the_table_is_back_and_what_was_newer_comes_back(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("old", 2)
    table.create_tag("new", 5)
    before, at_three = content(table), content(table, 3)
    whole = files(table)
    plan = table.plan_maintenance("rollback", snapshot_id=3)
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    assert [item.cells()[:2] for item in plan.items[:4]] == [
        ("snapshot", "4"),
        ("snapshot", "5"),
        ("snapshot", "6"),
        ("tag", "new"),
    ]
    report = table.apply(plan)
    assert (report.rolled_back_to, report.snapshots, report.tags, report.snapshot_id) == (3, (4, 5, 6), ("new",), None)
    assert (ids(table), content(table), hint(table), list(table.tags())) == ([1, 2, 3], at_three, "3", ["old"])
    assert report.files_recorded == len(plan.items_of(DeleteItem)) > 5
    assert set(files(table)) == set(whole) - {"tag/tag-new", *(f"snapshot/snapshot-{n}" for n in (4, 5, 6))}
    again = table.apply(plan)
    assert not again.changed and again.applied_before is not None
    restored = table.restore(report.trash_id)
    assert (restored.restored, restored.others) == ((4, 5, 6), ("tag new",))
    assert (files(table), content(table)) == (whole, before)
    # Now for good, and the history goes on.
    table.rollback_to(3)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert not strays(table)
    assert table.write(rows([77])) == 4
    assert {row[0] for row in content(table)} == {row[0] for row in at_three} | {77}
    assert_whole(table)
    with pytest.raises(InvalidOption, match="its files were deleted by run"):
        table.restore(report.trash_id)


def test_a_commit_after_the_rollback_ends_its_undoing(tmp_path: Path) -> None:
    table = history(tmp_path)
    report = table.rollback_to(5)
    table.write(rows([77]))
    after = content(table)
    with pytest.raises(PlanRefused, match="snapshot 6 was committed after the rollback to snapshot 5"):
        table.restore(report.trash_id)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert content(table) == after and not strays(table) and not read_trash(table.store).records


def test_an_expired_snapshot_is_written_again_from_its_tag(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.create_tag("v", 2, time_retained="1 d")
    at_two = content(table, 2)
    table.expire_snapshots(retain_max=2)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    whole = files(table)
    report = table.rollback_to("v")
    assert (report.rolled_back_to, report.target_written, report.snapshots) == (2, True, (5, 6))
    assert (ids(table), content(table), hint(table), hint(table, "EARLIEST")) == ([2], at_two, "2", "2")
    assert "tagCreateTime" not in (Path(table.store.root) / "snapshot" / "snapshot-2").read_text()
    table.restore(report.trash_id)
    assert files(table) == whole and hint(table, "EARLIEST") == "5"
    assert table.rollback_to(2).target_written  # by id, as the tag has it
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert not strays(table) and content(table) == at_two
    assert table.write(rows([5])) == 3


def test_by_time(tmp_path: Path) -> None:
    table = history(tmp_path)
    times = {snapshot.id: snapshot.time_millis for snapshot in table.snapshots()}
    plan = table.plan_maintenance("rollback", timestamp_ms=times[4] + 1)
    assert plan.arguments["to_snapshot"] == 4
    assert table.rollback_to(timestamp_ms=times[2]).rolled_back_to == 2
    with pytest.raises(SnapshotNotFound, match="no snapshot at or before"):
        table.rollback_to(timestamp_ms=NOW - 1)
    for wrong in ({}, {"snapshot_id": 1, "tag": "v"}):
        with pytest.raises(InvalidOption, match="exactly one of snapshot_id, tag, timestamp_ms, watermark"):
            table.plan_maintenance("rollback", **wrong)
    with pytest.raises(SnapshotNotFound, match="no snapshot 9"):
        table.rollback_to(9)
    with pytest.raises(SnapshotNotFound, match="no tag 'x'"):
        table.rollback_to("x")
    newest = table.rollback_to(2)
    assert not newest.changed and "is the newest" in newest.declined[0].text


@pytest.mark.parametrize("longer", [False, True], ids=["plain", "changelogs"])
def test_an_expiry_that_meets_a_rollback_to_what_expires_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longer: bool
) -> None:
    options = {"changelog_producer": "input", "changelog__num_retained__min": "20"} if longer else {}
    table = history(tmp_path, **options)
    at_two = content(table, 2)
    table.store.clock.advance(2 * HOUR)
    plan, real = table.plan_maintenance("expire_snapshots", retain_max=2), expire_snapshots.write_own_record

    def meanwhile(*arguments: Any) -> TrashRecord:
        record = real(*arguments)
        Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").rollback_to(2)
        return record

    monkeypatch.setattr(expire_snapshots, "write_own_record", meanwhile)
    with pytest.raises(PlanStale, match="rolled back to snapshot 4 or before meanwhile"):
        table.apply(plan)
    monkeypatch.undo()
    assert ids(table) == [1, 2] and content(table) == at_two
    assert [record.action for record in read_trash(table.store).records] == ["rollback"]
    assert changelogs.list_changelogs(table.store) == []
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert content(table) == at_two and not strays(table)
    assert_whole(table)


def test_a_rollback_whose_target_expires_as_the_cover_goes_leaves_the_cover(tmp_path: Path) -> None:
    class Expiring(LocalFileIO):
        """Takes the two oldest snapshots away just before the cover goes."""

        def delete(self, path: str) -> bool:
            if path.endswith("snapshot/snapshot-7"):
                for number in (1, 2):
                    super().delete(path.replace("snapshot-7", f"snapshot-{number}"))
            return super().delete(path)

    table = history(tmp_path)
    at_two = content(table, 2)
    report = with_io(table, Expiring()).rollback_to(2)
    assert report.snapshot_id == 7 and ids(table) == [3, 4, 5, 6, 7]
    assert content(table) == at_two


def test_by_watermark(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number, watermark in enumerate((None, 100, 100, 200, None)):
        table.write(rows([number]), watermark=watermark)
    assert [snapshot.watermark for snapshot in table.snapshots()] == [None, 100, 100, 200, 200]
    for wanted, expected in ((100, 3), (199, 3), (200, 5), (10_000, 5)):
        assert table.plan_maintenance("rollback", watermark=wanted).arguments["to_snapshot"] == expected
    with pytest.raises(SnapshotNotFound, match="no snapshot with a watermark of 99 or less"):
        table.rollback_to(watermark=99)
    assert table.rollback_to(watermark=150).rolled_back_to == 3 and content(table) == content(table, 3)


def test_changelogs_and_consumers(tmp_path: Path) -> None:
    table = history(tmp_path, changelog_producer="input", changelog__num_retained__min="20")
    table.create_tag("v", 2)
    table.expire_snapshots(retain_max=1)
    stream = table.new_stream_scan("ahead", from_snapshot=1)
    while stream.next() is not None:
        stream.checkpoint()
    (Path(table.store.root) / "changelog" / "EARLIEST").write_text("1")  # Java writes it, too, when it looks for it
    whole = files(table)
    plan = table.plan_maintenance("rollback", tag="v")
    assert [item.subject for item in plan.declined if item.reason == "ahead"] == ["consumer ahead"]
    report = table.apply(plan)
    assert (report.changelogs, report.snapshots) == ((3, 4, 5), (6,))
    assert max(path.name for path in Path(table.store.root, "changelog").glob("changelog-*")) == "changelog-2"
    assert table.restore(report.trash_id).others == ("changelog 3", "changelog 4", "changelog 5")
    assert files(table) == whole
    table.rollback_to("v")
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert not strays(table)
    assert_whole(table)


def test_direct_mode_deletes_at_once(tmp_path: Path) -> None:
    table = history(tmp_path, dredge__delete_mode="direct")
    at_two = content(table, 2)
    report = table.rollback_to(2)
    assert report.files_deleted > 5 and report.trash_id is None
    (entry,) = [item for item in table.ledger() if item.run_id == report.run_id]
    assert [line["event"] for line in entry.lines].count("deleted") == report.files_deleted
    assert content(table) == at_two and not strays(table) and not read_trash(table.store).records


def test_branches_keep_their_files(tmp_path: Path) -> None:
    table = history(tmp_path)
    root = Path(table.store.root)
    for folder, name in (("schema", "schema-0"), ("snapshot", "snapshot-5")):
        (root / "branch" / "branch-dev" / folder).mkdir(parents=True)
        (root / "branch" / "branch-dev" / folder / name).write_bytes((root / folder / name).read_bytes())
    branch = Table(branches.open_branch(table.store, "dev"))
    before = content(branch)
    report = table.rollback_to(1)
    assert "held by branch dev snapshot 5" in {item.text for item in report.held}
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert content(branch) == before
    assert_whole(table)


# -- races -------------------------------------------------------------------------------------------------------------


class Interrupted(LocalFileIO):
    """Calls ``meanwhile`` once, just before or after the first step called ``name`` on a path that ends so."""

    def __init__(self, name: str, ending: str, meanwhile: Callable[[], Any], *, after: bool = False) -> None:
        super().__init__()
        self.watched, self.meanwhile, self.after, self.done = (name, ending), meanwhile, after, False

    def _step(self, name: str, path: str, action: Callable[[], Any]) -> Any:
        due = not self.done and name == self.watched[0] and path.endswith(self.watched[1])
        self.done = self.done or due
        if due and not self.after:
            self.meanwhile()
        answer = action()
        if due and self.after:
            self.meanwhile()
        return answer

    def write_exclusive(self, path: str, data: bytes) -> bool:
        return bool(self._step("write", path, lambda: LocalFileIO.write_exclusive(self, path, data)))

    def delete(self, path: str) -> bool:
        return bool(self._step("delete", path, lambda: LocalFileIO.delete(self, path)))


def test_a_commit_before_the_cover_makes_the_plan_stale(tmp_path: Path) -> None:
    table = history(tmp_path)
    other = Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t")
    raced = with_io(table, Interrupted("write", "snapshot-7", lambda: other.write(rows([77]))))
    plan = raced.plan_maintenance("rollback", snapshot_id=3)
    with pytest.raises(PlanStale, match="snapshot 7 was committed since"):
        raced.apply(plan)
    assert ids(table) == [1, 2, 3, 4, 5, 6, 7] and not read_trash(table.store).records
    assert 77 in {row[0] for row in content(table)}
    with pytest.raises(PlanStale, match="snapshot 7 is there, which was not planned"):
        table.apply(plan)


@pytest.mark.parametrize(
    ("name", "ending", "after"),
    [
        ("write", "snapshot-7", True),
        ("delete", "snapshot-4", False),
        ("delete", "snapshot-6", True),
        ("delete", "LATEST", True),
        ("delete", "snapshot-7", False),
    ],
)
def test_a_commit_in_the_middle_is_never_lost(tmp_path: Path, name: str, ending: str, after: bool) -> None:
    table = history(tmp_path)
    table.create_tag("new", 5)
    at_three = {row[0] for row in content(table, 3)}
    other = Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t")
    raced = with_io(table, Interrupted(name, ending, lambda: other.write(rows([77])), after=after))
    report = raced.rollback_to(3)
    # The rolled-back content and the commit on top; history is whole, from the first snapshot to the commit.
    assert {row[0] for row in content(table)} == at_three | {77}
    assert (report.snapshot_id, ids(table), hint(table)) == (7, [1, 2, 3, 4, 5, 6, 7, 8], "8")
    assert list(table.tags()) == ["new"] and not read_trash(table.store).records and not strays(table)
    assert "since snapshot 7" in report.lines("db.t")[0]
    assert_whole(table)


def test_a_commit_after_the_cover_is_gone_goes_on_from_the_old_version(tmp_path: Path) -> None:
    table = history(tmp_path)
    at_three = {row[0] for row in content(table, 3)}
    other = Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t")
    raced = with_io(table, Interrupted("delete", "snapshot-7", lambda: other.write(rows([77])), after=True))
    report = raced.rollback_to(3)
    assert report.snapshot_id is None and ids(table) == [1, 2, 3, 4] and hint(table) == "4"
    assert {row[0] for row in content(table)} == at_three | {77}
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert not strays(table)
    assert_whole(table)


def test_a_fast_forward_waits_for_the_end_of_a_rollback(tmp_path: Path) -> None:
    table = history(tmp_path)
    dev = table.create_branch("dev", from_snapshot=2)
    dev.write(rows([99]))
    refused: list[str] = []

    def forward() -> None:
        with pytest.raises(PlanRefused) as error:
            Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").fast_forward("dev")
        refused.append(str(error.value))

    raced = with_io(table, Interrupted("delete", "snapshot-5", forward))
    raced.rollback_to(4)
    assert "snapshot 7 covers a rollback" in refused[0] and ids(table) == [1, 2, 3, 4]
    assert_whole(table)
    table.fast_forward("dev")
    assert ids(table) == [1, 2, 3] and content(table) == content(dev)


def test_a_rollback_leaves_the_history_alone_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    table = history(tmp_path)
    dev = table.create_branch("dev", from_snapshot=2)
    dev.write(rows([99]))
    forward = lambda: Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").fast_forward("dev")  # noqa: E731
    raced = with_io(table, Interrupted("delete", "snapshot-7", forward, after=True))
    raced.rollback_to(4)
    assert ids(table) == [1, 2, 3] and hint(table) == "3" and content(table) == content(dev)
    assert_whole(table)


def test_a_committer_that_slept_over_a_rollback_begins_anew(tmp_path: Path) -> None:
    table = history(tmp_path)
    at_five = {row[0] for row in content(table, 5)}
    rolled_back = lambda: Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").rollback_to(5)  # noqa: E731
    slow = with_io(table, Interrupted("write", "snapshot-7", rolled_back))
    assert slow.write(rows([77])) == 6  # it wanted to be 7, on a snapshot 6 that is gone
    assert ids(table) == [1, 2, 3, 4, 5, 6] and {row[0] for row in content(table)} == at_five | {77}


def test_a_stream_that_outlives_a_rollback_knows_its_files_anew(tmp_path: Path) -> None:
    table = keyed(tmp_path, write_only="true")
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in range(1, 4):
            writer.write(rows([number]))
            commit.commit(writer.prepare_commit(commit_identifier=number), number)
        Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").rollback_to(2)
        table.write(rows([10]))  # takes the id of what is gone
        writer.write(rows([4]))
        commit.commit(writer.prepare_commit(commit_identifier=4), 4)
    assert {row[0] for row in content(table)} == {1, 2, 10, 4}
    table.compact(full=True)
    assert {row[0] for row in content(table)} == {1, 2, 10, 4}


@pytest.mark.parametrize("commits", [0, 1, 2, 3])
def test_messages_that_outlive_a_rollback_are_committed_once(tmp_path: Path, commits: int) -> None:
    table = keyed(tmp_path, write_only="true")
    for number in range(3):
        table.write(rows([number]))
    with table.new_write() as writer:
        writer.write(rows([7]))
        messages = writer.prepare_commit()
    table.new_commit().commit(messages)
    table.rollback_to(2)
    table.new_commit().commit(messages)  # now snapshot 3, which the messages have for older than they are
    for number in range(commits):
        table.write(rows([10 + number]))
    with pytest.raises(CommitConflict) as raised:
        table.new_commit().commit(messages)
    assert raised.value.kind is ConflictKind.FILES_KNOWN
    assert {row[0] for row in content(table)} == {0, 1, 7, *range(10, 10 + commits)}


@pytest.mark.parametrize(("ending", "lost"), [("snapshot-4", False), ("snapshot-7", True)])
def test_undoing_a_rollback_loses_no_commit(tmp_path: Path, ending: str, lost: bool) -> None:
    table = history(tmp_path)
    before = {row[0] for row in content(table)}
    at_three = {row[0] for row in content(table, 3)}
    trash_id = table.rollback_to(3).trash_id
    other = Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t")
    raced = with_io(table, Interrupted("write", ending, lambda: other.write(rows([77]))))
    if lost:  # the commit was first: it is based on the old version
        with pytest.raises(PlanRefused, match="another snapshot-4 is there now"):
            raced.restore(trash_id)
        assert ids(table) == [1, 2, 3, 4] and {row[0] for row in content(table)} == at_three | {77}
    else:
        assert raced.restore(trash_id).snapshot_id == 7
        assert ids(table) == [1, 2, 3, 4, 5, 6, 7, 8] and {row[0] for row in content(table)} == before | {77}
    assert_whole(table)


def test_a_rollback_whose_outcome_is_unknown_is_finished_by_its_plan(tmp_path: Path) -> None:
    table = history(tmp_path, commit__max_retries="0")
    at_three = content(table, 3)

    def lost() -> None:
        raise OSError("the reply was lost")

    plan = table.plan_maintenance("rollback", snapshot_id=3)

    class Silent(Interrupted):
        def read_bytes(self, path: str) -> bytes:
            if path.endswith("snapshot-7") and self.done:
                raise OSError("no answer")
            return LocalFileIO.read_bytes(self, path)

    with pytest.raises(CommitUnknown):
        with_io(table, Silent("write", "snapshot-7", lost, after=True)).apply(plan)
    assert content(table) == at_three
    assert table.apply(plan).rolled_back_to == 3
    assert ids(table) == [1, 2, 3] and content(table) == at_three and snapshots.latest_id(table.store) == 3
    record = json.loads(next((Path(table.store.root) / "dredge" / "trash").glob("*.json")).read_text())
    assert (record["target"], record["target_written"]) == (3, False)


def test_a_rollback_over_a_rescale_says_how_writers_go_on(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    table.apply(table.plan_maintenance("rescale", bucket_num=3))
    made = catalog(tmp_path)
    made.alter_table("db.t", [SchemaChange.set_option("bucket", "3")])
    table = made.table("db.t")
    table.write(rows([1], 5))
    plan = table.plan_maintenance("rollback", snapshot_id=1)
    (message,) = [item for item in plan.declined if item.reason == "rescaled"]
    assert (
        "in 1 buckets and the option 'bucket' is 3" in message.text and "until the option is set to 1" in message.text
    )
    assert message in table.apply(plan).declined
    with pytest.raises(WriterStale):
        table.refresh().write(rows([1], 7))
    made.alter_table("db.t", [SchemaChange.set_option("bucket", "1")])
    made.table("db.t").write(rows([1], 7))
    assert made.table("db.t").to_arrow().num_rows == 10


def test_a_branch_that_begins_after_a_hole_says_when_it_can_be_forwarded(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        table.write(rows([number]))
    table.create_tag("later", 3)
    branch = table.create_branch("dev", "later")
    table.rollback_to(1)
    with pytest.raises(PlanRefused, match=r"forward it once the table has snapshot 2, or write its rows instead"):
        table.fast_forward("dev")
    table.write(branch, overwrite=True)
    assert table.to_arrow().num_rows == 3
    table.fast_forward("dev")
    assert table.to_arrow().num_rows == 3


def test_the_rows_of_a_branch_after_a_hole_replace_all_partitions(tmp_path: Path) -> None:
    columns = pa.schema([("p", pa.int32()), ("k", pa.int64())])
    table = Catalog(tmp_path).create_table("d.t", columns, partition_keys=["p"], create_database=True)
    for number in range(3):
        table.write([{"p": number, "k": number}])
    table.create_tag("later", 3)
    branch = table.create_branch("dev", "later")
    branch.write([{"p": 0, "k": 7}], overwrite=True)
    branch_rows = sorted(branch.to_arrow()["k"].to_pylist())
    table.rollback_to(1)
    with pytest.raises(PlanRefused, match=r'copy\(\{"dynamic-partition-overwrite": "false"\}\)\.write\(branch'):
        table.fast_forward("dev")
    table.write([{"p": 9, "k": 9}])
    table.copy({"dynamic-partition-overwrite": "false"}).write(branch, overwrite=True)
    assert sorted(table.to_arrow()["k"].to_pylist()) == branch_rows
