"""Work on a table with external files, broken at I/O steps: an honest outcome, no lost file, and none too many after cleaning."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.options import EXTERNAL_ROOTS
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.outcomes import outcome_of
from tests.faults.strides import points, strides
from tests.maintenance.tables import NOW, content, referenced, with_io

_DAY = 86_400_000


def write(table: Table) -> None:
    table.write(pa.table({"p": ["x", "y"], "k": [7, 8], "v": [70, 80]}))


def expire(table: Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 1)
    table.sweep_trash(now_ms=NOW + 50 * _DAY)


def run(act: Callable[[Table], object], table: Table, file_io: FaultyFileIO) -> object:
    return act(with_io(table, file_io))


ACTS: dict[str, Callable[[Table], object]] = {
    "write": write,
    "compact": lambda table: table.compact(full=True),
    "delete": lambda table: table.delete("k = 1"),
    "expire": expire,
}


def make(home: Path, strategy: str) -> None:
    """A warehouse with a table without keys, whose files are in `ext`."""
    catalog = Catalog(home / "wh", clock=FixedClock(NOW))
    catalog.create_database("db")
    options = {
        "bucket": "-1",
        "file-index.bloom-filter.columns": "k",
        "file-index.in-manifest-threshold": "1 b",
        "data-file.external-paths": f"file:{home}/ext/a,file:{home}/ext/b",
        "data-file.external-paths.strategy": strategy,
    }
    fields = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
    table = catalog.create_table("db.t", Schema(fields, [], ["p"], options))
    for number in range(3):
        table.write(pa.table({"p": ["x", "y"], "k": [number, number + 1], "v": [1, 2]}))
    table.compact(full=True)
    table.write(pa.table({"p": ["x"], "k": [5], "v": [5]}))


def outside(home: Path) -> set[str]:
    return {path.name for path in (home / "ext").rglob("*") if path.is_file()}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@strides(23)
@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("strategy", ["round-robin", "entropy-inject"])
def test_a_step_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, what: str, stride: int
) -> None:
    home, template = tmp_path / "home", tmp_path / "template"
    monkeypatch.setenv(EXTERNAL_ROOTS, f"{home}/ext:rw")
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    make(home, strategy)
    home.rename(template)  # its paths are absolute, so each copy has the same place

    def fresh() -> Table:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(template, home)
        return Catalog(home / "wh", clock=FixedClock(NOW)).table("db.t")

    act, counting = ACTS[what], FaultyFileIO(LocalFileIO())
    before = content(fresh())
    table = fresh()
    act(with_io(table, counting))
    after = content(table)
    assert counting.steps > 20
    outcomes = set()
    for step, mode in points(counting)[::stride]:
        name, path = counting.log[step - 1]
        at = f"{what}, step {step} {mode}: {name} {path}"
        table = fresh()
        files, latest = outside(home), table.latest_snapshot()
        outcome = outcome_of(partial(run, act, table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
        outcomes.add(outcome)
        rows = content(table)
        assert rows in (before, after), at
        assert {name for name in referenced(table) if name.startswith("data-")} <= outside(home), at
        if outcome == "failed" and mode == "before" and name not in {"delete", "close"} and what != "expire":
            assert table.latest_snapshot() != latest or outside(home) == files, at
        if rows == before != after:
            act(table)
        assert content(table) == after, at
        expire(table)
        for stray in (home / "ext").rglob("*"):
            os.utime(stray, (0, 0))
        table.remove_orphan_files(older_than_ms=2 * _DAY)
        table.sweep_trash(now_ms=NOW + 500 * _DAY)
        assert content(table) == after, at
        assert outside(home) <= referenced(table), at
    assert outcomes >= {"succeeded", "failed"} or stride > 1
