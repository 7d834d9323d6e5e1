"""Partition expiry, manifest compaction, repairs and purge with their I/O steps failing: old answers or new ones, and a retry ends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import CommitUnknown, DredgeError, PlanRefused
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FaultyFileIO, FileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.faults.outcomes import Copies
from tests.faults.strides import strides
from tests.maintenance.tables import assert_whole
from tests.maintenance.tables import strays as strays_of

NOW = 1_704_067_200_000
MODES: tuple[Mode, Mode] = ("after", "before")
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "3"}
COLUMNS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
Answers = tuple[Any, ...]


def build(root: Path) -> Table:
    """Two partitions, one of them old; five small manifests, one with deletions."""
    catalog = Catalog(root, clock=FixedClock(NOW))
    catalog.create_database("db")
    options = {"bucket": "1", "partition.expiration-time": "30 d", **QUICK}
    table = catalog.create_table("db.t", Schema(COLUMNS, ["dt", "k"], ["dt"], options))
    for first in range(3):
        table.write({"dt": ["2020-01-01", "2999-01-01"], "k": [first, first + 1], "v": [first, first]})
    table.compact(full=True)
    table.write({"dt": ["2999-01-01"], "k": [7], "v": [7]})
    return table


def without_two(table: Table) -> None:
    for number in (2, 3):
        Path(table.store.snapshot_path(number)).unlink()
    (Path(table.store.snapshot_dir) / "LATEST").write_text("1")


def without_a_file(table: Table) -> None:
    newest = max(Path(table.store.root).glob("dt=2020*/*/data-*"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()


def apply(action: str, **arguments: Any) -> Callable[[Table], Any]:
    return lambda table: table.apply(table.plan_maintenance(action, **arguments))


def nothing(table: Table) -> None:
    del table


CASES: dict[str, tuple[Callable[[Table], None], Callable[[Table], Any]]] = {
    "expire partitions": (nothing, apply("expire_partitions")),
    "manifests": (nothing, apply("manifests")),
    "repair": (without_two, apply("repair")),
    "missing file": (without_a_file, apply("remove_unexisting_files")),
    "purge": (nothing, apply("purge", confirm="db.t")),
}


def opened(root: Path, file_io: FileIO) -> Table:
    return Table(TableStore.open(file_io, f"{root}/db.db/t", "db.t", FixedClock(NOW)))


def answers(root: Path) -> Answers:
    """The newest rows, None while a file is missing."""
    table = opened(root, LocalFileIO())
    try:
        return tuple(sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()))
    except (DredgeError, OSError):
        return (None,)


@strides(17)
@pytest.mark.parametrize("name", CASES)
def test_a_failure_at_any_step_leaves_the_old_answer_or_the_new_one(tmp_path: Path, name: str, stride: int) -> None:
    damage, statement = CASES[name]
    damage(build(tmp_path / "made"))
    before = answers(tmp_path / "made")
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    counting = FaultyFileIO(LocalFileIO())
    table = opened(tmp_path / "whole", counting)
    start = counting.steps
    statement(table)
    after, left = answers(tmp_path / "whole"), strays_of(opened(tmp_path / "whole", LocalFileIO()))
    ids = snapshots.list_ids(table.store)
    assert (before != after) == (name in {"expire partitions", "repair", "missing file", "purge"})
    points, copies = 0, Copies(tmp_path / "made", tmp_path)
    for step in range(start + 1 + len(name) % stride, counting.steps + 1, stride):
        root, mode = copies.fresh(), MODES[step % 2]
        error: BaseException | None = None
        try:
            statement(opened(root, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
        except (DredgeError, OSError) as caught:
            error = caught
        points += 1
        if not copies.is_new((type(error), mode)):
            continue
        at = f"step {step} {mode}: {counting.log[step - 1]}"
        assert answers(root) in (before, after), at
        if error is None:
            assert answers(root) == after, at
        statement(opened(root, LocalFileIO()))  # again, and nothing fails
        found = opened(root, LocalFileIO())
        assert answers(root) == after, at
        if name != "missing file":  # older snapshots still name it
            assert_whole(found)
        if name == "repair":
            assert snapshots.list_ids(found.store) == ids, at
        if not isinstance(error, CommitUnknown) and mode == "before":
            assert {stray for stray in strays_of(found) if stray.startswith("data-")} <= left, at
    assert points > 2


def test_a_purge_is_not_done_by_halves_when_somebody_tags(tmp_path: Path) -> None:
    """The plan is refused as a whole: neither rows nor history go."""
    table = build(tmp_path / "made")
    plan = table.plan_maintenance("purge", confirm="db.t")
    (Path(table.store.root) / "tag").mkdir()
    shutil.copy(table.store.snapshot_path(4), Path(table.store.root) / "tag" / "tag-kept")
    before = answers(tmp_path / "made")
    with pytest.raises(PlanRefused, match="tags kept"):
        table.apply(plan)
    assert answers(tmp_path / "made") == before and len(table.snapshots()) == 5
