"""Expiry, sweep and tags after a commit, broken at I/O steps or killed: the table is as before or after each of them, and the next write goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Table
from lsm_core.clock import FixedClock
from lsm_core.maintenance import inline
from lsm_core.maintenance.trash import read_trash
from lsm_core.metadata import snapshots, tags
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.histories import FAR
from tests.faults.outcomes import Copies
from tests.faults.strides import points, strides
from tests.faults.victims import MAINTAINED_AT_MS, Nursery
from tests.maintenance.tables import HOUR, assert_whole, content, keyed, rows, strays, with_io

START = MAINTAINED_AT_MS - 50 * HOUR
OPTIONS = {
    "dredge__compaction__inline": "follow",
    "changelog_producer": "input",
    "snapshot__num_retained__min": "1",
    "snapshot__num_retained__max": "3",
    "changelog__num_retained__min": "1",
    "changelog__num_retained__max": "5",
    "partition__expiration_time": "1d",
    "partition__expiration_check_interval": "0s",
    "partition__timestamp_formatter": "yyyy-MM-dd",
    "tag__automatic_creation": "process-time",
    "tag__creation_period": "hourly",
    "tag__num_retained_max": "2",
    "tag__default_time_retained": "30 h",
}
KEPT, OLD = "2023-11-14", "2023-11-11"
"""Partitions at the time of the write that is broken: one that stays, one that expires."""


def build(place: Path) -> None:
    """Make a table in which everything is due after the next commit: old snapshots, changelogs, tags, a partition, and trash that waited."""
    table = keyed(place, partitioned=True, **OPTIONS)
    table.store.clock.advance(START - table.store.clock.now_ms())  # type: ignore[attr-defined]
    alone = table.copy({"write-only": "true"})
    alone.write(rows(range(6), dt=OLD))
    for number in range(7):
        alone.write(rows(range(number, number + 4), v=number, dt=KEPT))
        if number == 2:
            table.compact(full=True)
            table.expire_snapshots(retain_max=2, retain_min=1)  # its files are due to be swept
            table.store.clock.advance(26 * HOUR)  # type: ignore[attr-defined]
    table.create_tag("old", time_retained="1 h")
    assert read_trash(table.store).records


def opened(place: Path) -> Table:
    """Open the table when everything is due."""
    return Catalog(place / "wh", clock=f"fixed:{MAINTAINED_AT_MS}").table("db.t")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of :func:`build`."""
    place = tmp_path_factory.mktemp("template")
    build(place)
    return place


def keys(table: Table) -> set[tuple[Any, ...]]:
    """Keys and partitions of all rows."""
    return {(row[0], row[3]) for row in content(table)}


def require_sound(
    place: Path, before: list[tuple[Any, ...]], at: str, *, written: list[tuple[Any, ...]], thorough: bool
) -> None:
    """The table has the rows from before or after each step, every version can be read, and the next write does what is left."""
    table = opened(place)
    stays = [row for row in before if row[3] == KEPT]
    states = [before, stays, sorted([*before, *written], key=repr), sorted([*stays, *written], key=repr)]
    found = content(table)
    assert found in states, at
    assert_whole(table)
    table.write(rows([70], dt=KEPT))
    assert table.last_write is not None
    assert table.last_write.warnings == (), at
    assert keys(table) == {(row[0], row[3]) for row in found if row[3] == KEPT} | {(70, KEPT)}, at
    assert len(snapshots.list_ids(table.store)) == 3, at
    assert "old" not in tags.list_names(table.store), at
    assert 1 <= len(tags.list_names(table.store)) <= 2, at
    if not thorough:
        return
    assert_whole(table)
    assert [item.text for item in table.check() if item.outcome == "failed"] == [], at
    clock = table.store.clock
    assert isinstance(clock, FixedClock)
    clock.advance(FAR - clock.now_ms())  # nothing is left behind for ever
    table.sweep_trash()
    table.remove_orphan_files()
    clock.advance(60 * HOUR)
    table.sweep_trash()
    assert not strays(table), at


@strides(431)
def test_a_fault_in_what_follows_a_commit_leaves_a_whole_table_that_the_next_write_puts_right(
    template: Path, tmp_path: Path, stride: int
) -> None:
    before = content(opened(template))
    newest = snapshots.latest_id(opened(template).store)
    assert newest is not None
    shutil.copytree(template, tmp_path / "count")
    counting = FaultyFileIO(LocalFileIO())
    whole = with_io(opened(tmp_path / "count"), counting)
    first = counting.steps
    report = inline.after_commit(whole.store, (newest,), compact=False)
    assert (len(report.expired) >= 3, bool(report.files_swept), report.warnings) == (True, True, ())
    assert {row[3] for row in content(whole)} == {KEPT}
    copies = Copies(template, tmp_path)
    due = [(step, mode) for step, mode in points(counting) if step > first]
    assert len(due) > 200
    for step, mode in due[::stride]:
        place = copies.fresh()
        broken = with_io(opened(place), FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode))
        report = inline.after_commit(broken.store, (newest,), compact=False)  # never raises
        if copies.is_new(bool(report.warnings)):
            at = f"step {step} {mode}: {counting.log[step - 1]}"
            require_sound(place, before, at, written=[], thorough=stride == 1)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One nursery for the module."""
    with Nursery() as running:
        yield running


@strides(2503)
def test_a_writer_killed_in_what_follows_its_commit_leaves_a_whole_table(
    template: Path, tmp_path: Path, nursery: Nursery, stride: int, record_property: Callable[[str, Any], None]
) -> None:
    before = content(opened(template))
    written = [(60, 60, None, KEPT)]
    shutil.copytree(template, tmp_path / "whole")
    assert nursery.run("maintained write", tmp_path / "whole" / "wh", tmp_path / "whole.trace") == "ended"
    lines = [json.loads(line) for line in (tmp_path / "whole.trace").read_text().splitlines()]
    assert (60, KEPT) in keys(opened(tmp_path / "whole"))
    first = next(
        n for n, line in enumerate(lines, 1) if "/snapshot/snapshot-" in line["path"] and line["event"] == "end"
    )
    assert len(lines) - first > 100
    killed = 0
    for line in range(first, len(lines), stride):
        place = tmp_path / str(line)
        shutil.copytree(template, place)
        if nursery.run("maintained write", place / "wh", tmp_path / f"{line}.trace", line=line) == "killed":
            killed += 1
            at = f"killed at line {line}: {lines[line - 1]}"
            require_sound(place, before, at, written=written, thorough=stride == 1)
        shutil.rmtree(place)
    assert killed
    record_property("kill points", killed)
