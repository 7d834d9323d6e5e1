"""Expiry, sweep and restore broken at I/O steps, not applied and applied-but-reported-failed: always whole."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.table import Catalog, Table
from tests.faults.strides import points, strides
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, on_disk, rows, strays, tag, with_io


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small table with a compaction, a tag and old snapshots."""
    place = tmp_path_factory.mktemp("template")
    table = keyed(place)
    for i in range(3):
        table.write(rows(range(i, i + 5), v=i))
    table.compact(full=True)
    tag(table, "keep", 2)
    table.write(rows([1], v=9))
    return place


class _Case:
    """A fresh copy of the template for every fault."""

    def __init__(self, template: Path, place: Path) -> None:
        self.template, self.place, self.count = template, place, 0

    def fresh(self, at_ms: int) -> Table:
        self.count += 1
        target = self.place / str(self.count)
        shutil.copytree(self.template, target)
        return Catalog(target / "wh", clock=f"fixed:{at_ms}").table("db.t")


def _break_everywhere(
    prepare: Callable[[], Table], action: Callable[[Table], object], check: Callable[[Table], None], stride: int
) -> int:
    """Run ``action`` failing at every ``stride``-th point; check; retry; check again. Returns the steps."""
    counting = FaultyFileIO(LocalFileIO())
    action(with_io(prepare(), counting))
    assert counting.steps > 10
    seen: set[tuple[tuple[str, int], ...]] = set()

    def is_new(table: Table) -> bool:
        """Many faults leave the same files behind: every outcome is checked once, and what follows it."""
        outcome = _outcome(table)
        known = outcome in seen
        seen.add(outcome)
        return not known

    for step, mode in points(counting)[::stride]:
        table = prepare()
        with suppress(OSError):
            action(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
        if is_new(table):
            check(table)
            action(table)
            if is_new(table):
                check(table)
        shutil.rmtree(table.store.root)
    return counting.steps


def _outcome(table: Table) -> tuple[tuple[str, int], ...]:
    """What lies on disk but for the ledger, whose names are random. All copies start with the same names and bytes."""
    found = on_disk(table, without=("dredge/ledger",))
    return tuple(sorted((name, zlib.crc32(data)) for name, data in found.items()))


def _remaining(table: Table) -> None:
    assert_whole(table)
    assert {row[0] for row in content(table)} == {0, 1, 2, 3, 4, 5, 6}


@strides(31)
def test_expiry_broken_at_its_steps_leaves_whole_snapshots_and_a_retry_frees_everything(
    template: Path, tmp_path: Path, stride: int
) -> None:
    case = _Case(template, tmp_path)

    def action(table: Table) -> None:
        table.expire_snapshots(retain_max=1)

    def check(table: Table) -> None:
        _remaining(table)
        ids = [s.id for s in table.snapshots()]
        assert ids == list(range(ids[0], 6))

    steps = _break_everywhere(lambda: case.fresh(NOW + 2 * HOUR), action, check, stride)
    table = case.fresh(NOW + 2 * HOUR)
    for step in range(
        steps // 2, steps + 1, stride
    ):  # and whatever the failures left in the trash, sweeps clean up in the end
        with suppress(OSError):
            action(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode="after")))
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    _remaining(table)
    assert not strays(table)


@strides(31)
def test_direct_expiry_broken_at_its_steps(template: Path, tmp_path: Path, stride: int) -> None:
    case = _Case(template, tmp_path)
    direct = {"dredge.delete-mode": "direct"}
    _break_everywhere(
        lambda: case.fresh(NOW + 2 * HOUR).copy(direct),
        lambda table: table.expire_snapshots(retain_max=1),
        _remaining,
        stride,
    )


@pytest.fixture(scope="module")
def expired(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template after phase one."""
    place = tmp_path_factory.mktemp("expired") / "t"
    shutil.copytree(template, place)
    Catalog(place / "wh", clock=f"fixed:{NOW + 2 * HOUR}").table("db.t").expire_snapshots(retain_max=1)
    return place


@strides(29)
def test_a_sweep_broken_at_its_steps_deletes_no_file_in_use_and_a_retry_finishes(
    expired: Path, tmp_path: Path, stride: int
) -> None:
    case = _Case(expired, tmp_path)
    finished = 0

    def action(table: Table) -> None:
        table.sweep_trash()

    def check(table: Table) -> None:
        nonlocal finished
        _remaining(table)
        if not list((Path(table.store.root) / "dredge" / "trash").glob("*.json")):
            assert not strays(table)
            finished += 1

    _break_everywhere(lambda: case.fresh(NOW + 4 * HOUR), action, check, stride)
    assert finished


@strides(29)
def test_a_restore_broken_at_its_steps_can_be_finished(expired: Path, tmp_path: Path, stride: int) -> None:
    case = _Case(expired, tmp_path)

    def action(table: Table) -> None:
        records = list((Path(table.store.root) / "dredge" / "trash").glob("*.json"))
        if records:
            table.restore(records[0].stem)

    def check(table: Table) -> None:
        _remaining(table)
        ids = [s.id for s in table.snapshots()]
        assert ids == list(range(ids[0], 6))

    _break_everywhere(lambda: case.fresh(NOW + 2 * HOUR), action, check, stride)


@strides(29)
def test_a_sweep_after_a_broken_restore_deletes_nothing_that_came_back(
    expired: Path, tmp_path: Path, stride: int
) -> None:
    case = _Case(expired, tmp_path)
    counting = FaultyFileIO(LocalFileIO())
    probe = case.fresh(NOW + 2 * HOUR)
    name = next((Path(probe.store.root) / "dredge" / "trash").glob("*.json")).stem
    with_io(probe, counting).restore(name)
    for step in range(1, counting.steps + 1, stride):
        table = case.fresh(NOW + 4 * HOUR)
        with suppress(OSError):
            with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode="after")).restore(name)
        table.sweep_trash()
        assert_whole(table)
