"""I/O steps of expiry where changelogs outlive snapshots fail: streams tell what they told, and after a repeat nothing is left that nothing names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lsm_core import Catalog, Table
from lsm_core.read.changes.spans import earliest_kept
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, rows, strays, with_io

STRIDE = int(os.environ.get("DREDGE_FAULT_STRIDE", "97"))  # 1: every single step, changes both ways
LONGER = {"snapshot.num-retained.min": "1", "changelog.num-retained.min": "50"}
CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "create", "write", "close"}
AT = NOW + 2 * HOUR
Told = list[tuple[int, list[tuple[object, ...]]]]


def streamed(table: Table) -> Told:
    """What a stream tells from the oldest snapshot or changelog on."""
    first = earliest_kept(table.store)
    stream, records = table.new_stream_scan(), []
    stream.restore(first)
    while (batch := stream.next()) is not None:
        records.append((batch.snapshot_id, [tuple(row.values()) for row in batch.to_arrow().to_pylist()]))
    return records


def expire(table: Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1)


def expire_changelogs(table: Table) -> None:
    table.apply(table.plan_maintenance("expire_changelogs", retain_max=2, retain_min=2))


def expire_all(table: Table) -> None:
    table.apply(table.plan_maintenance("expire_changelogs", delete_all=True))


def restore(table: Table) -> None:
    for path in sorted((Path(table.store.root) / "dredge" / "trash").glob("*.json")):
        if path.stem.startswith(("expire-1-", "expire-changelogs-1-")):
            table.restore(path.stem)


@pytest.fixture(scope="module", params=["none", "input"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five snapshots, the fourth a compaction; the changelogs of all are to stay."""
    place = tmp_path_factory.mktemp("template")
    table = keyed(place, **LONGER, **{"changelog-producer": request.param})
    for i in range(3):
        table.write(rows([i, i + 1], v=i))
    table.compact(full=True)
    table.write(rows([1], v=9))
    return place


class Broken:
    """Breaks an action at one step after the other, each on a fresh copy of the table."""

    def __init__(self, template: Path, place: Path, *earlier: Callable[[Table], object]) -> None:
        self.place, self.count = place, 0
        self.template = place / "prepared"
        shutil.copytree(template, self.template)
        self.table = Catalog(self.template / "wh", clock=f"fixed:{AT}").table("db.t")
        self.told, self.rows = streamed(self.table), content(self.table)
        for action in earlier:
            action(self.table)

    def fresh(self, options: dict[str, str]) -> Table:
        self.count += 1
        shutil.copytree(self.template, self.place / str(self.count))
        return Catalog(self.place / str(self.count) / "wh", clock=f"fixed:{AT}").table("db.t").copy(options)

    def check(self, table: Table) -> None:
        """Rows and streams as they were, from the first changelog that is there."""
        first = earliest_kept(table.store)
        assert first is not None
        assert content(table) == self.rows
        assert streamed(table) == [item for item in self.told if item[0] >= first]
        assert_whole(table)

    def everywhere(self, action: Callable[[Table], object], options: dict[str, str] | None = None) -> None:
        options = options or {}
        counting = FaultyFileIO(LocalFileIO())
        action(with_io(self.fresh(options), counting))
        assert counting.steps > 10
        faults = [
            (step, mode, f"{name} {path}")
            for step, (name, path) in enumerate(counting.log, 1)
            for mode in (("before", "after") if name in CHANGES else ("before",))
        ]
        for step, mode, what in faults[counting.steps % STRIDE :: STRIDE]:
            table = self.fresh(options)
            with suppress(OSError):
                action(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
            self.check(table)
            action(table)
            self.check(table)
            table.store.clock.advance(2 * HOUR)  # type: ignore[attr-defined]
            table.sweep_trash()
            self.check(table)
            assert not strays(table), f"step {step} {mode}: {what}"
            shutil.rmtree(self.place / str(self.count))


@pytest.mark.parametrize("mode", ["two-phase", "direct"])
def test_snapshots_become_changelogs(template: Path, tmp_path: Path, mode: str) -> None:
    broken = Broken(template, tmp_path)
    broken.everywhere(expire, {"dredge.delete-mode": mode})
    table = broken.fresh({})
    expire(table)
    assert streamed(table) == broken.told


@pytest.mark.parametrize(("mode", "action"), [("two-phase", expire_changelogs), ("direct", expire_all)])
def test_changelogs_expire(template: Path, tmp_path: Path, mode: str, action: Callable[[Table], object]) -> None:
    broken = Broken(template, tmp_path, expire)
    broken.everywhere(action, {"dredge.delete-mode": mode})


def test_snapshots_come_back(template: Path, tmp_path: Path) -> None:
    broken = Broken(template, tmp_path, expire)
    broken.everywhere(restore)


def test_changelogs_come_back(template: Path, tmp_path: Path) -> None:
    def aged(table: Table) -> None:
        table.store.clock.advance(2 * HOUR)  # type: ignore[attr-defined]
        table.sweep_trash()
        expire_changelogs(table)

    broken = Broken(template, tmp_path, expire, aged)
    broken.everywhere(restore)
