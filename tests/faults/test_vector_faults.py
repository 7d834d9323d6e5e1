"""Deletes and compactions with deletion vectors, with I/O steps failing: before or after, nothing between, and nothing left behind."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FaultyFileIO, FileIO, LocalFileIO
from tests.faults.outcomes import Copies
from tests.faults.strides import strides

QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "3"}
CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "create", "write", "close"}
UNIT = 1_000_003


def rows(keys: range, value: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [value * UNIT + key * 7919 % UNIT for key in keys]})


def build(root: Path, kind: str) -> None:
    catalog = Catalog(root)
    catalog.create_database("db")
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    keyed = {"bucket": "1"} if kind != "append" else {}
    options = {"deletion-vectors.enabled": "true", **QUICK, **keyed}
    table = catalog.create_table("db.t", Schema(columns, ["k"] if keyed else [], [], options))
    table.write(rows(range(2000), 0))
    if kind == "append":
        table.delete([("k", "<", 5)])
        return
    table.compact(full=True)
    table.write(rows(range(10, 20), 1))
    table.compact()
    if kind == "minor":
        table.write(rows(range(15, 25), 2))


STEPS: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: table.delete([("k", ">=", 3), ("k", "<", 9)]),
    "minor": lambda table: table.compact(),
    "full": lambda table: table.compact(full=True),
}


def opened(root: Path, file_io: FileIO) -> Table:
    return Table(TableStore.open(file_io, f"{root}/db.db/t", "db.t"))


def content(root: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in opened(root, LocalFileIO()).to_arrow().to_pylist())


def unnamed(root: Path) -> set[str]:
    """Data and index files that no snapshot names."""
    store = opened(root, LocalFileIO()).store
    named: set[str] = set()
    for snapshot in snapshots.iterate(store):
        named |= set(manifests.delta_entries(store, snapshot).column("file_name").to_pylist())
        named |= {entry.file_name for entry in manifests.index_entries(store, snapshot)}
    place = Path(store.root)
    return {path.name for folder in ("bucket-0", "index") for path in (place / folder).glob("*")} - named


@strides(29)
@pytest.mark.parametrize("kind", list(STEPS))
def test_broken_at_its_steps(kind: str, tmp_path: Path, stride: int) -> None:
    """Other steps are broken in each run."""
    build(tmp_path / "template", kind)

    def fresh(name: str) -> Path:
        shutil.copytree(tmp_path / "template", tmp_path / name)
        return tmp_path / name

    before = content(tmp_path / "template")
    counting, probe = FaultyFileIO(LocalFileIO()), fresh("probe")
    STEPS[kind](opened(probe, counting))
    after = content(probe)
    assert (before == after) == (kind == "full")
    assert unnamed(probe) == set()
    assert any("/index/" in path and name == "create" for name, path in counting.log) == (kind != "full")
    first, copies = random.randrange(stride), Copies(tmp_path / "template", tmp_path)
    for step, (name, path) in list(enumerate(counting.log, 1))[first::stride]:
        for mode in ("before", "after") if name in CHANGES else ("before",):
            root, failed = copies.fresh(), None
            try:
                STEPS[kind](opened(root, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
            except (OSError, DredgeError) as error:
                failed = error
            left_over_is_named = failed is not None and mode == "before" and not isinstance(failed, CommitUnknown)
            if not copies.is_new((left_over_is_named, name == "delete")):
                continue
            at = f"step {step} {mode}: {name} {path}"
            found = content(root)
            assert found in (before, after), at
            if left_over_is_named:
                assert not unnamed(root) or name == "delete", at
            STEPS[kind](opened(root, LocalFileIO()))
            assert content(root) == after, at
