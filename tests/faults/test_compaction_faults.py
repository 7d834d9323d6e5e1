"""Compaction in pieces under faults: one error naming the file, no snapshot, own output deleted; kills and clocks change no answer."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.compact import pieces
from lsm_core.errors import CorruptFile, DredgeError, StorageFull
from lsm_core.storage import LocalFileIO
from lsm_core.storage.faults import FaultyFileIO, InjectedFault
from tests.faults.outcomes import Copies
from tests.faults.victims import SCHEMA, Nursery, rows

SEED = int(os.environ.get("DREDGE_KILL_SEED", "20261122"))
OPTIONS = {"bucket": "1", "write-only": "true", "dredge.compaction.piece-size": "1 kb"}


def lone_bucket(warehouse: Path, each: int) -> Table:
    """One bucket in three overlapping runs."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(SCHEMA, primary_keys=["id"], options=OPTIONS))
    table = catalog.table("db.t")
    for number in range(3):
        table.write(rows(number * each // 3, each, number))
    return table


def files_of(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.root).glob("**/bucket-*/*")}


def answer(warehouse: Path) -> pa.Table:
    return Catalog(str(warehouse)).table("db.t").to_arrow().sort_by("id")


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pieces, whatever the machine and however small the table."""
    monkeypatch.setattr(pieces, "usable_cores", lambda: 3)
    monkeypatch.setattr("lsm_core.compact.pieces._OPENING", 0.0)


def _missing(path: Path) -> None:
    path.unlink()


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def _flipped(path: Path) -> None:
    """Bytes of a page of values; the key is stored twice, and of one copy nothing is read."""
    content, chunks = bytearray(path.read_bytes()), pq.ParquetFile(path).metadata.row_group(0)
    start = chunks.column(chunks.num_columns - 1).data_page_offset
    for at in range(start + 30, start + 80):
        content[at] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("damage", [_missing, _cut_short, _flipped])
def test_a_damaged_input_is_named_and_nothing_stays(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    table = lone_bucket(tmp_path, 900)
    victim = sorted(Path(table.store.root).glob("bucket-0/*"))[1]
    damage(victim)
    before = files_of(table)
    with pytest.raises(CorruptFile, match=victim.name):
        table.compact(full=True)
    assert files_of(table) == before
    assert len(table.snapshots()) == 3


class FullDisk(LocalFileIO):
    """Takes so many data files, then no byte more."""

    def __init__(self, files: int) -> None:
        super().__init__()
        self.left = files

    def open_output(self, path: str) -> Any:
        self.left -= "/bucket-" in path
        if self.left < 0:
            raise StorageFull(path)
        return super().open_output(path)


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_full_disk_is_named_and_nothing_stays(tmp_path: Path, files: int) -> None:
    table = lone_bucket(tmp_path, 900)
    before, found = files_of(table), answer(tmp_path)
    table.store.file_io = FullDisk(files)
    with pytest.raises(StorageFull, match=r"bucket-0/data-.*parquet"):
        table.compact(full=True)
    assert files_of(table) == before
    assert answer(tmp_path).equals(found)
    again = Catalog(str(tmp_path)).table("db.t")
    assert again.compact(full=True).files_out == 3
    assert answer(tmp_path).equals(found)


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_failing_step_leaves_the_table_as_before_or_after(tmp_path: Path, mode: Any) -> None:
    master = lone_bucket(tmp_path / "master", 300)
    found = answer(tmp_path / "master")
    counted = FaultyFileIO(LocalFileIO())
    shutil.copytree(tmp_path / "master", tmp_path / "count")
    table = Catalog(str(tmp_path / "count")).table("db.t")
    table.store.file_io = counted
    table.compact(full=True)
    assert counted.steps > 60
    copies = Copies(tmp_path / "master", tmp_path)
    for step in range(1, counted.steps + 1, 8):
        place = copies.fresh()
        table = Catalog(str(place)).table("db.t")
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        table.store.file_io = faulty
        try:
            table.compact(full=True)
            published = True
        except (InjectedFault, DredgeError):
            published = False
        if not copies.is_new(published):
            continue
        where = (mode, step, faulty.log[step - 1] if step <= len(faulty.log) else None)
        again = Catalog(str(place)).table("db.t")
        assert answer(place).equals(found), where
        if published:
            assert len(again.snapshots()) == 4, where
        again.compact(full=True)
        assert answer(place).equals(found), where
    assert files_of(master) == {f.name for f in Path(master.store.root).glob("bucket-0/*")}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One nursery for the module."""
    with Nursery() as running:
        yield running


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.soak)])
def test_a_kill_between_pieces_changes_nothing(tmp_path: Path, nursery: Nursery, kills: int) -> None:
    chance = random.Random(SEED)
    table = lone_bucket(tmp_path / "master", 600)
    found, inputs = answer(tmp_path / "master"), files_of(table)
    shutil.copytree(tmp_path / "master", tmp_path / "whole")
    assert nursery.run("pieces", tmp_path / "whole", tmp_path / "whole.trace", number=0) == "ended"
    lines = len((tmp_path / "whole.trace").read_text().splitlines())
    assert len(files_of(Catalog(str(tmp_path / "whole")).table("db.t")) - inputs) == 3
    killed = 0
    for number in range(3 * kills):
        line = chance.randrange(2, lines - 1)
        warehouse = tmp_path / f"w{number}"
        shutil.copytree(tmp_path / "master", warehouse)
        place = f"seed {SEED}: kill {number} at line {line} of {lines} (DREDGE_KILL_SEED={SEED} pytest {__file__})"
        if nursery.run("pieces", warehouse, tmp_path / f"{number}.trace", number=0, line=line) == "ended":
            continue  # threads may need fewer lines than the measured run
        killed += 1
        assert answer(warehouse).equals(found), place
        assert nursery.run("pieces", warehouse, tmp_path / "retry.trace", number=0) == "ended", place
        assert answer(warehouse).equals(found), place
        shutil.rmtree(warehouse)
        if killed == kills:
            break
    assert killed == kills


def test_a_clock_that_goes_backwards_is_harmless(tmp_path: Path) -> None:
    lone_bucket(tmp_path, 300)
    found = answer(tmp_path)
    past = Catalog(str(tmp_path), clock=FixedClock(1_000)).table("db.t")
    report = past.compact(full=True)
    assert report.snapshot_id == 4
    assert answer(tmp_path).equals(found)
    past.write(rows(0, 100, 9))
    Catalog(str(tmp_path), clock=FixedClock(500)).table("db.t").compact(full=True)
    merged = answer(tmp_path)
    assert merged.slice(0, 100).column("round").to_pylist() == [9] * 100
    assert merged.slice(100).equals(found.slice(100))
