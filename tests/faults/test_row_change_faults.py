"""Deletes, updates, drops and rescales with every single I/O step failing: the table says what it said or what it should say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CommitUnknown, CorruptFile, DredgeError
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FaultyFileIO, FileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.faults.outcomes import Copies
from tests.faults.strides import strides
from tests.support.stores import data_files_on_disk, live_files

QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "3"}
MODES: tuple[Mode, Mode] = ("after", "before")
Statement = Callable[[Table], Any]


def build(root: Path, key: bool) -> Table:
    catalog = Catalog(root)
    catalog.create_database("db")
    columns = pa.schema(
        [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
    )
    options = {"bucket": "1", **QUICK, **({} if key else {"bucket-key": "k"})}
    table = catalog.create_table("db.t", Schema(columns, ["p", "k"] if key else [], ["p"], options))
    for first in (0, 3):
        keys = [first, first + 1, first + 2]
        table.write({"p": ["a", "a", "b"], "k": keys, "v": keys})
    return table


def opened(root: Path, file_io: FileIO) -> Table:
    return Table(TableStore.open(file_io, f"{root}/db.db/t", "db.t"))


def content(root: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in opened(root, LocalFileIO()).to_arrow().to_pylist())


def strays(root: Path) -> set[str]:
    """Data files that no snapshot names."""
    store = opened(root, LocalFileIO()).store
    named: set[str] = set()
    for number in range(1, (snapshots.latest_id(store) or 0) + 1):
        named |= set(manifests.delta_entries(store, snapshots.read(store, number)).column("file_name").to_pylist())
    return data_files_on_disk(store) - named


def rescale(table: Table) -> Any:
    return table.apply(table.plan_maintenance("rescale", bucket_num=2, partitions=[{"p": "a"}]))


CASES: dict[str, tuple[bool, Statement]] = {
    "delete by kinds": (True, lambda table: table.delete([("v", ">", 3)])),
    "update by rewriting": (False, lambda table: table.update([("k", "=", 4)], {"v": pc.field("v") * 10})),
    "drop": (True, lambda table: table.drop_partitions([{"p": "a"}])),
    "rescale": (True, rescale),
}


@strides(11)
@pytest.mark.parametrize("name", CASES)
def test_any_step_may_fail(tmp_path: Path, name: str, stride: int) -> None:
    """Odd steps fail before they are applied, even ones after; both ways at every step of a commit: `test_commit_faults`."""
    key, statement = CASES[name]
    build(tmp_path / "made", key)
    before = content(tmp_path / "made")
    shutil.copytree(tmp_path / "made", tmp_path / "whole")
    counting = FaultyFileIO(LocalFileIO())
    table = opened(tmp_path / "whole", counting)
    start = counting.steps
    statement(table)
    after = content(tmp_path / "whole")
    assert (before != after) == (name != "rescale")
    copies = Copies(tmp_path / "made", tmp_path)
    for step in range(start + 1 + len(name) % stride, counting.steps + 1, stride):
        root, mode = copies.fresh(), MODES[step % 2]
        error: BaseException | None = None
        try:
            statement(opened(root, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
        except (DredgeError, OSError) as caught:
            error = caught
        if not copies.is_new(type(error)):
            continue
        found = content(root)
        assert found in (before, after)
        if error is None:
            assert found == after
        elif not isinstance(error, CommitUnknown):
            assert found == before
            assert strays(root) == set()


@pytest.mark.parametrize("name", ["delete by kinds", "update by rewriting", "rescale"])
def test_a_damaged_input_is_named_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    key, statement = CASES[name]
    table = build(tmp_path / "made", key)
    (partition, bucket), files = next(
        (place, files) for place, files in live_files(table.store).items() if len(files) > 1
    )
    broken = Path(table.store.data_path(partition, bucket, files[-1]))
    broken.write_bytes(broken.read_bytes()[:-9])
    on_disk = data_files_on_disk(table.store)
    with pytest.raises(CorruptFile, match=files[-1].file_name):
        statement(table)
    assert snapshots.latest_id(table.store) == 2
    assert data_files_on_disk(table.store) == on_disk
