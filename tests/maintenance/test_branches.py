"""Branches: made, maintained, merged back and deleted, without a file that somebody needs ever going, or one that nobody needs staying."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, SchemaChange, Table
from lsm_core.errors import (
    DredgeError,
    InvalidData,
    InvalidOption,
    PlanRefused,
    PlanStale,
    SnapshotNotFound,
    TableExists,
    TableNotFound,
)
from lsm_core.maintenance import read_trash
from lsm_core.metadata import branches, manifests, snapshots, tags
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.strides import points, strides
from tests.maintenance.tables import HOUR, NOW, content, keyed, on_disk, rows, tag, with_io
from tests.support.references import file_names, metadata_references
from tests.support.samples import one_in

DAY = 24 * HOUR
_CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "delete_dir"}


def at(place: Path, now: int, name: str = "db.t") -> Table:
    return Catalog(place / "wh", clock=f"fixed:{now}").table(name)


def dev_of(table: Table) -> Table:
    return Table(branches.open_branch(table.store, "dev"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Main: snapshots 1 to 4 and a tag at 2. Branch dev: from the tag, two commits and a compaction."""
    place = tmp_path_factory.mktemp("template")
    table = keyed(place)
    table.write(rows(range(4)))
    table.write(rows(range(2, 6), v=10))
    tag(table, "v1", 2)
    dev = table.create_branch("dev", from_tag="v1")
    dev.write(rows([7], v=70))
    dev.write(rows([0], v=100))
    dev.compact(full=True)
    table.write(rows([1], v=1000))
    table.write(rows([9], v=9))
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template / "wh", tmp_path / "copy" / "wh")
    return tmp_path / "copy"


def needed(table: Table) -> set[str]:
    """Bare names of everything that any branch's snapshots and tags name."""
    names = set[str]()
    for store in branches.all_stores(table.store):
        for snapshot in [*snapshots.iterate(store), *tags.list_tags(store).values()]:
            names |= metadata_references(store, snapshot) | file_names(manifests.live_entries(store, snapshot))
    return names


def assert_sound(table: Table, *, strays: bool = False) -> None:
    """Every file that a branch needs is there; without ``strays`` nothing else is."""
    there = {name.rpartition("/")[2] for name in on_disk(table) if "manifest/" in name or "bucket-" in name}
    wanted = needed(table)
    assert not {name for name in wanted if name.startswith(("data-", "manifest"))} - there
    assert strays or not there - wanted


def test_a_branch_begins_with_a_tag_a_snapshot_or_nothing(place: Path) -> None:
    table = at(place, NOW)
    before = content(table, 2)
    assert content(table.create_branch("a", from_tag="v1")) == before
    assert content(table.create_branch("b", from_snapshot=3)) == content(table, 3)
    assert content(table.create_branch("c")) == []
    assert table.branches() == ["a", "b", "c", "dev"]
    assert sorted(branches.metadata_paths(table.store, "a")) == [
        "branch/branch-a/schema/schema-0",
        "branch/branch-a/snapshot/snapshot-2",
        "branch/branch-a/tag/tag-v1",
    ]
    assert branches.metadata_paths(table.store, "c") == ["branch/branch-c/schema/schema-0"]
    made_of_dev = dev_of(table).create_branch("d", from_snapshot=3)
    assert content(made_of_dev) == content(dev_of(table), 3)


def test_a_tag_whose_snapshot_has_expired_still_begins_a_branch(place: Path) -> None:
    table, before = at(place, NOW + 2 * HOUR), content(at(place, NOW), 2)
    table.expire_snapshots(retain_max=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [4]
    made = table.create_branch("late", from_tag="v1")
    assert [snapshot.id for snapshot in made.snapshots()] == [2]
    assert content(made) == before


def test_what_no_branch_can_be_called_or_begin_with(place: Path) -> None:
    table = at(place, NOW)
    for name in ("", "  ", "main", "123", "a$b"):
        with pytest.raises(InvalidOption):
            table.create_branch(name)
    for name in ("../x", "a/b", "x\x00"):
        with pytest.raises(InvalidData):
            table.create_branch(name)
    with pytest.raises(TableExists, match=r"db\.t already has a branch 'dev'"):
        table.create_branch("dev")
    with pytest.raises(SnapshotNotFound):
        table.create_branch("x", from_tag="nothing")
    with pytest.raises(SnapshotNotFound):
        table.create_branch("x", from_snapshot=99)
    with pytest.raises(InvalidOption, match="not both"):
        table.create_branch("x", "v1", 2)
    for act in (table.delete_branch, table.fast_forward):
        with pytest.raises(TableNotFound, match=r"no branch 'prod'; it has: dev"):
            act("prod")
        with pytest.raises(InvalidOption):
            act("main")
    with pytest.raises(InvalidOption):
        dev_of(table).delete_branch("dev")
    assert table.branches() == ["dev"]


def test_an_interrupted_creation_is_finished_by_the_next(place: Path) -> None:
    table = at(place, NOW)
    counting = FaultyFileIO(LocalFileIO())
    with_io(table, counting).create_branch("probe", from_tag="v1")
    for step, (name, _) in enumerate(counting.log, 1):
        for mode in ("before", "after") if name in _CHANGES else ("before",):
            with suppress(OSError):
                with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)).create_branch("x", from_tag="v1")
            branches.all_stores(table.store)  # nobody is kept from maintaining the table
            with suppress(TableExists):  # all of it was written, and the failure came after
                table.create_branch("x", from_tag="v1")
            assert content(Table(branches.open_branch(table.store, "x"))) == content(table, 2), (step, mode)
            shutil.rmtree(Path(table.store.root) / "branch" / "branch-x")


def test_a_creation_that_was_killed_in_its_first_file_keeps_nobody_from_maintaining_the_table(place: Path) -> None:
    """All that it left is the draft of a schema: no branch yet, and the next creation is not refused."""
    table = at(place, NOW)
    draft = Path(table.store.root) / "branch/branch-x/schema/.schema-0.4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab.tmp"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(b"{")
    assert table.branches() == ["dev"]
    assert len(branches.all_stores(table.store)) == 2
    assert content(table.create_branch("x", from_tag="v1")) == content(table, 2)


def test_a_snapshot_that_expires_while_a_branch_is_made_from_it_makes_none(place: Path) -> None:
    table = at(place, NOW)

    class Expiring(LocalFileIO):
        def write_exclusive(self, path: str, data: bytes) -> bool:
            done = super().write_exclusive(path, data)
            if path.endswith("branch-x/schema/schema-0"):
                Path(table.store.snapshot_path(1)).unlink()
            return done

    with pytest.raises(SnapshotNotFound, match="was deleted while branch 'x'"):
        with_io(table, Expiring()).create_branch("x", from_snapshot=1)
    assert table.branches() == ["dev"]


def test_a_branch_has_health_compaction_and_expiry_of_its_own(place: Path) -> None:
    table = at(place, NOW + 2 * HOUR)
    dev = dev_of(table)
    before, mains = content(dev), content(table)
    assert [bucket.sorted_runs for bucket in dev.health()] == [1]
    assert [bucket.sorted_runs for bucket in table.health()] == [4]
    report = dev.expire_snapshots(retain_max=1)
    assert (report.expired, report.earliest) == ((2, 3, 4), 5)
    assert content(dev) == before and content(table) == mains
    assert [bucket.id for bucket in table.snapshots()] == [1, 2, 3, 4]
    assert report.trash_id is not None
    restored = dev.restore(report.trash_id)
    assert restored.restored == (2, 3, 4)
    assert [bucket.id for bucket in dev.snapshots()] == [2, 3, 4, 5]
    again = dev.expire_snapshots(retain_max=1)
    assert at(place, NOW + 2 * HOUR).restore(str(again.trash_id)).restored == (2, 3, 4)  # main knows whose they are
    assert content(dev, 3) != before
    assert_sound(table)


def test_neither_expiry_nor_sweep_takes_what_another_branch_needs(place: Path) -> None:
    table, dev = at(place, NOW + 2 * HOUR), dev_of(at(place, NOW + 2 * HOUR))
    rows_of = {name: content(item) for name, item in (("main", table), ("dev", dev))}
    dev.expire_snapshots(retain_max=1)
    table.compact(full=True)
    table.expire_snapshots(retain_max=1)
    (Path(table.store.root) / "tag" / "tag-v1").unlink()
    later = at(place, NOW + 5 * DAY)
    for sweeper in (dev_of(later), later):
        sweeper.sweep_trash()
        assert_sound(later, strays=True)
    assert content(later) == rows_of["main"]
    assert content(dev_of(later)) == rows_of["dev"]
    assert content(later.create_branch("x", from_tag="v1") if tags.list_tags(later.store) else later) is not None


def test_deleting_a_branch_frees_what_only_it_needs_after_the_grace(place: Path) -> None:
    table = at(place, NOW)
    before, mains = content(dev_of(table)), content(table)
    plan = table.plan_maintenance("delete_branch", branch="dev")
    assert {item.kind for item in plan.items_of(_delete_item())} >= {"data", "manifest", "manifest-list"}
    assert any("needs them" in element.text for element in plan.declined)
    report = table.apply(plan)
    assert (report.branch, report.not_before_ms) == ("dev", NOW + DAY)
    assert report.bytes_recorded == plan.estimate.bytes_freed > 0
    assert table.branches() == [] and content(table) == mains
    assert not (Path(table.store.root) / "branch" / "branch-dev").exists()
    assert table.sweep_trash().files_deleted == 0
    restored = table.restore(report.trash_id)
    assert restored.branch == "dev" and "branch dev can be read again" in restored.lines("db.t")[0]
    assert content(dev_of(table)) == before
    assert_sound(table)
    again = table.delete_branch("dev")
    assert again.trash_id != report.trash_id or again.files_recorded == report.files_recorded
    later = at(place, NOW + DAY)
    swept = later.sweep_trash()
    assert swept.files_deleted == report.files_recorded
    assert content(later) == mains
    assert_sound(later)
    with pytest.raises(InvalidOption, match="its files were deleted"):
        later.restore(str(again.trash_id))


def test_a_branch_goes_and_comes_back_with_its_newest_snapshot_in_sight(place: Path) -> None:
    """Ids of one digit and of two: nobody reads an older version for the newest, whatever the step."""
    table = at(place, NOW)
    dev = dev_of(table)
    folder = Path(dev.store.snapshot_path(5)).parent
    for number in range(6, 12):
        source = 3 if number < 11 else 5
        text = (folder / f"snapshot-{source}").read_text()
        (folder / f"snapshot-{number}").write_text(text.replace(f'"id" : {source},', f'"id" : {number},'))
    wanted = content(dev)
    assert content(dev, 10) != wanted == content(dev, 11)
    seen: list[list[tuple[object, ...]]] = []

    class Watching(LocalFileIO):
        def _look(self) -> None:
            with suppress(TableNotFound):
                seen.append(content(Table(branches.open_branch(at(place, NOW).store, "dev"))))

        def delete(self, path: str) -> bool:
            self._look()
            return super().delete(path)

        def write_exclusive(self, path: str, data: bytes) -> bool:
            self._look()
            return super().write_exclusive(path, data)

    watched = with_io(table, Watching())
    report = watched.delete_branch("dev")
    gone = len(seen)
    watched.restore(str(report.trash_id))
    assert gone > 10
    assert len(seen) > gone + 10
    assert all(found in (wanted, []) for found in seen)
    assert content(dev_of(table)) == wanted


def test_direct_mode_deletes_at_once(place: Path) -> None:
    table = at(place, NOW).copy({"dredge.delete-mode": "direct"})
    report = table.delete_branch("dev")
    assert report.files_deleted > 0 and report.trash_id is None
    assert "deleted at once" in report.lines("db.t")[1]
    (entry,) = [item for item in table.ledger() if item.run_id == report.run_id]
    assert [line["event"] for line in entry.lines].count("deleted") == report.files_deleted
    assert_sound(table)


def test_a_deleted_branch_comes_back_only_where_no_other_is(place: Path) -> None:
    table = at(place, NOW)
    report = table.delete_branch("dev")
    table.create_branch("dev")
    with pytest.raises(PlanRefused, match="another branch 'dev' is there now"):
        table.restore(str(report.trash_id))
    table.rename_branch("dev", "other")
    assert table.restore(str(report.trash_id)).branch == "dev"
    assert table.branches() == ["dev", "other"]
    with pytest.raises(TableExists):
        table.rename_branch("dev", "other")


def test_a_branch_that_is_written_to_is_not_deleted_by_an_older_plan(place: Path) -> None:
    table = at(place, NOW)
    plan = table.plan_maintenance("delete_branch", branch="dev")
    dev_of(table).write(rows([5], v=5))
    with pytest.raises(PlanStale, match="written to since"):
        table.apply(plan)
    assert table.branches() == ["dev"]

    class Writing(LocalFileIO):
        """Commits to the branch while it is deleted."""

        def delete(self, path: str) -> bool:
            if path.endswith("branch-dev/snapshot/snapshot-6"):
                Path(path).with_name("snapshot-7").write_bytes(Path(path).read_bytes())
            return super().delete(path)

    before = content(dev_of(table))
    with pytest.raises(PlanStale, match="while it was deleted"):
        with_io(table, Writing()).delete_branch("dev")
    (Path(table.store.root) / "branch" / "branch-dev" / "snapshot" / "snapshot-7").unlink()
    assert content(dev_of(table)) == before


def _delete_item() -> type:
    from lsm_core.maintenance import DeleteItem

    return DeleteItem


def everywhere(
    template: Path,
    place: Path,
    act: Callable[[Table], object],
    check: Callable[[Table], None],
    done: Callable[[Table], None],
    stride: int,
) -> int:
    """Break ``act`` at every ``stride``-th point that changes something; check; again; check that it is done. Returns the number of all points."""
    count = 0

    def fresh() -> Table:
        nonlocal count
        count += 1
        shutil.copytree(template / "wh", place / str(count) / "wh")
        return at(place / str(count), NOW)

    counting = FaultyFileIO(LocalFileIO())
    act(with_io(fresh(), counting))
    changing = [(step, mode) for step, mode in points(counting) if counting.log[step - 1][0] in _CHANGES]
    for step, mode in changing[::stride]:
        table = fresh()
        with suppress(OSError, DredgeError):
            act(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
        check(table)
        with suppress(TableNotFound):  # it went, and the failure came after
            act(table)
        check(table)
        done(table)
        shutil.rmtree(Path(table.store.root).parent.parent)
    return len(changing)


@strides(29)
def test_deleting_a_branch_broken_at_its_steps_keeps_main_and_can_be_undone(
    template: Path, tmp_path: Path, stride: int
) -> None:
    mains, before = content(at(template, NOW)), content(dev_of(at(template, NOW)))

    def check(table: Table) -> None:
        branches.all_stores(table.store)
        assert content(table) == mains
        assert_sound(table, strays=True)

    def done(table: Table) -> None:
        assert table.branches() == []
        from lsm_core.maintenance import read_trash

        [record] = read_trash(table.store).records[-1:]
        table.restore(record.trash_id)
        assert content(dev_of(table)) == before

    count = everywhere(template, tmp_path, lambda table: table.delete_branch("dev"), check, done, stride)
    assert count >= 20


@strides(29)
def test_a_fast_forward_broken_at_its_steps_is_one_history_or_the_other(
    template: Path, tmp_path: Path, stride: int
) -> None:
    states = [content(at(template, NOW)), content(dev_of(at(template, NOW)))]
    wanted = states[-1]

    def check(table: Table) -> None:
        assert content(table) in states
        assert_sound(table, strays=True)
        assert content(dev_of(table)) == wanted

    def done(table: Table) -> None:
        assert content(table) == wanted
        assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4, 5]

    assert everywhere(template, tmp_path, lambda table: table.fast_forward("dev"), check, done, stride) >= 14


def test_a_fast_forward_takes_the_branch_s_history_and_frees_the_table_s_own(place: Path) -> None:
    table = at(place, NOW)
    dev = dev_of(table)
    plan = table.plan_maintenance("fast_forward", branch="dev")
    assert [item.name for item in plan.items if item.item_kind == "drop"] == [
        "snapshot/snapshot-3",
        "snapshot/snapshot-4",
    ]
    report = table.apply(plan)
    assert (report.branch, report.latest, report.base_snapshot) == ("dev", 5, 4)
    assert report.dropped == ("snapshot/snapshot-3", "snapshot/snapshot-4")
    assert content(table) == content(dev)
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4, 5]
    assert (snapshots.latest_id(table.store), snapshots.earliest_id(table.store)) == (5, 1)
    assert "dev already" in table.plan_maintenance("fast_forward", branch="dev").declined[0].text
    assert table.fast_forward("dev").changed is False
    table.write(rows([8], v=8))
    with pytest.raises(PlanRefused, match="snapshot 6 was committed after the fast-forward"):
        table.restore(str(report.trash_id))
    later = at(place, NOW + DAY)
    later.sweep_trash()
    assert content(dev_of(later)) == content(dev)
    assert_sound(later)
    later.delete_branch("dev")
    at(place, NOW + 3 * DAY).sweep_trash()
    assert content(at(place, NOW)) == content(table)
    assert_sound(at(place, NOW))


def test_a_fast_forward_is_undone_as_long_as_nobody_has_committed(place: Path) -> None:
    table = at(place, NOW)
    before, other = content(table), content(dev_of(table))
    report = table.fast_forward("dev")
    assert content(table) == other
    plan = table.plan_maintenance("restore", trash_id=str(report.trash_id))
    restored = table.apply(plan)
    assert restored.restored == (3, 4) and content(at(place, NOW)) == before
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4] and snapshots.latest_id(table.store) == 4
    assert content(dev_of(table)) == other
    table.write(rows([8], v=8))
    at(place, NOW + DAY).sweep_trash()
    assert_sound(at(place, NOW + DAY))


@strides(29)
def test_undoing_a_fast_forward_broken_at_its_steps_is_one_history_or_the_other(
    template: Path, tmp_path: Path, stride: int
) -> None:
    shutil.copytree(template / "wh", tmp_path / "forwarded" / "wh")
    forwarded = at(tmp_path / "forwarded", NOW)
    before, other = content(forwarded), content(dev_of(forwarded))
    states = [before, other]
    trash_id = str(forwarded.fast_forward("dev").trash_id)

    def act(table: Table) -> None:
        with suppress(InvalidOption):  # it is done: no such record any more
            table.restore(trash_id)

    def check(table: Table) -> None:
        assert content(table) in states
        assert content(dev_of(table)) == other
        assert_sound(table, strays=True)

    def done(table: Table) -> None:
        assert content(table) == before
        assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4]

    assert everywhere(tmp_path / "forwarded", tmp_path, act, check, done, stride) >= 12


@pytest.mark.parametrize("longer", one_in(2, ["main", "branch"]))
def test_a_commit_in_the_middle_of_a_fast_forward_is_not_lost(place: Path, tmp_path: Path, longer: str) -> None:
    """Whatever the step at which it comes: the newest snapshot has its row, upon the one history or the other, and ids have no gap."""
    main, dev = at(place, NOW), dev_of(at(place, NOW))
    for table in [main] * 2 if longer == "main" else [dev]:
        table.write(rows([50], v=5))
    sides = [sorted({*content(item), *content_of_the_commit}, key=repr) for item in (main, dev)]
    counting = FaultyFileIO(LocalFileIO())
    shutil.copytree(place / "wh", tmp_path / "count" / "wh")
    with_io(at(tmp_path / "count", NOW), counting).fast_forward("dev")
    outcomes = set()
    for step, (name, path) in enumerate(counting.log, 1):
        if name not in _CHANGES or "/dredge/" in path:
            continue
        copy = tmp_path / str(step)
        shutil.copytree(place / "wh", copy / "wh")
        there = at(copy, NOW)
        try:
            with_io(there, Meanwhile(step, lambda there=there: there.write(rows([77], v=7)))).fast_forward("dev")  # type: ignore[misc]
            outcomes.add("forwarded")
        except PlanStale:
            outcomes.add("stale")
        found, ids = content(there), [item.id for item in there.snapshots()]
        assert found in sides, (step, name, path)
        assert ids == list(range(ids[0], ids[-1] + 1)), (step, name, path)
        there.compact(full=True)
        shutil.rmtree(copy)
    assert outcomes == {"forwarded", "stale"}


content_of_the_commit = [(77, 84, "s77")]


class Meanwhile(FaultyFileIO):
    """Lets something happen ahead of a step."""

    def __init__(self, at_step: int, happens: Callable[[], object]) -> None:
        super().__init__(LocalFileIO())
        self._at, self._happens = at_step, happens

    def run(self, name: str, path: str, action: Callable[[], Any]) -> Any:
        if self.steps + 1 == self._at:
            self._happens()
        return super().run(name, path, action)


@pytest.mark.parametrize("step", ["record", "first snapshot"])
@pytest.mark.parametrize("how", ["fast-forward", "rollback"])
def test_an_expiry_that_is_overtaken_takes_nothing_that_came_anew(place: Path, how: str, step: str) -> None:
    """In a table without a lock: the newest snapshot is older than some that the expiry was to take, or was written anew under its id."""
    act: Callable[[], object] = {
        "fast-forward": lambda: at(place, NOW).fast_forward("dev"),
        "rollback": lambda: at(place, NOW).rollback_to(3),
    }[how]
    wanted = content(dev_of(at(place, NOW))) if how == "fast-forward" else content(at(place, NOW), 3)
    main = at(place, NOW)
    for key in (50, 51, 52):
        main.write(rows([key]))

    class Overtaken(LocalFileIO):
        done = False

        def _first(self, is_due: bool) -> None:
            if is_due and not self.done:
                self.done = True
                act()

        def write_exclusive(self, path: str, data: bytes) -> bool:
            self._first(step == "record" and "/trash/expire-" in path)
            return super().write_exclusive(path, data)

        def delete(self, path: str) -> bool:
            self._first(step != "record" and path.endswith("/snapshot/snapshot-1"))
            return super().delete(path)

    with pytest.raises(PlanStale, match="rolled back"):
        with_io(at(place, NOW + 2 * HOUR), Overtaken()).expire_snapshots(retain_max=1, retain_min=1)
    assert content(at(place, NOW)) == wanted
    assert not read_trash(at(place, NOW).store).unreadable
    at(place, NOW + 9 * DAY).sweep_trash()
    assert content(at(place, NOW)) == wanted
    assert_sound(at(place, NOW), strays=True)


def test_a_true_fast_forward_drops_nothing(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    dev = table.create_branch("dev", from_snapshot=1)
    dev.write(rows([1], v=5))
    report = table.fast_forward("dev")
    assert (report.dropped, report.trash_id) == ((), None)
    assert content(table) == content(dev)
    assert table.write(rows([2], v=7)) == 3
    with pytest.raises(PlanRefused, match="no snapshot"):
        table.create_branch("none")
        table.fast_forward("none")


@pytest.mark.parametrize("mode", ["two-phase", "direct"])
def test_a_fast_forward_after_a_change_of_the_schema_is_in_the_ledger(tmp_path: Path, mode: str) -> None:
    table = keyed(tmp_path, dredge__delete_mode=mode)
    table.write(rows(range(3)))
    table.create_branch("dev", from_snapshot=1).write(rows([1], v=5))
    catalog = Catalog(tmp_path / "wh", clock=f"fixed:{NOW}")
    catalog.alter_table("db.t", [SchemaChange.add_column("added", pa.int32())])
    catalog.alter_table("db.t$branch_dev", [SchemaChange.add_column("other", pa.int32())])
    report = catalog.table("db.t").fast_forward("dev")
    assert report.changed and "other" in catalog.table("db.t").schema.field_names
    entry = catalog.table("db.t").ledger()[-1]
    assert (entry.run_id, entry.action, entry.outcome) == (report.run_id, "fast_forward", "done")
    if report.trash_id is not None:
        restored = catalog.table("db.t").restore(report.trash_id)
        assert catalog.table("db.t").ledger()[-1].run_id == restored.run_id
        assert "added" in catalog.table("db.t").schema.field_names


def test_a_plan_to_fast_forward_is_stale_after_another_commit(place: Path) -> None:
    table = at(place, NOW)
    plan = table.plan_maintenance("fast_forward", branch="dev")
    table.write(rows([8]))
    with pytest.raises(PlanStale, match="snapshot-5 was written since"):
        table.apply(plan)
    plan = table.plan_maintenance("fast_forward", branch="dev")
    dev_of(table).write(rows([8]))
    with pytest.raises(PlanStale, match="branch dev was written to since"):
        table.apply(plan)


@pytest.mark.parametrize("action", ["delete_branch", "fast_forward"])
def test_a_plan_for_a_branch_is_stale_once_another_branch_has_its_name(place: Path, action: str) -> None:
    """The other branch has snapshots of the same ids, and rows of its own."""
    table = at(place, NOW)
    plan = table.plan_maintenance(action, branch="dev")
    table.rename_branch("dev", "old")
    other = table.create_branch("dev", from_tag="v1")
    for key in (50, 51, 52):
        other.write(rows([key]))
    assert [snapshot.id for snapshot in other.snapshots()] == [snapshot.id for snapshot in dev_of(table).snapshots()]
    before, main = content(dev_of(table)), content(table)
    with pytest.raises(PlanStale, match="branch dev has another history than the one that was planned"):
        table.apply(plan)
    assert table.branches() == ["dev", "old"]
    assert (content(dev_of(table)), content(table)) == (before, main)
    assert_sound(table)


def test_a_plan_to_fast_forward_is_stale_after_a_rollback_and_as_many_commits(place: Path) -> None:
    table = at(place, NOW)
    plan = table.plan_maintenance("fast_forward", branch="dev")
    table.rollback_to(3)
    assert table.write(rows([88])) == 4
    before = content(table)
    with pytest.raises(PlanStale, match="snapshot-4 was written since"):
        table.apply(plan)
    assert content(table) == before


def test_ids_without_a_gap(place: Path) -> None:
    table = at(place, NOW)
    for number in (2, 3, 4):
        Path(table.store.snapshot_path(number)).unlink()
    dev = dev_of(table)
    (Path(dev.store.snapshot_path(2))).unlink()
    with pytest.raises(PlanRefused, match="no-holes-in-history"):
        table.fast_forward("dev")
