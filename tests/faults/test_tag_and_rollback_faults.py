"""Tags and rollbacks whose storage fails at a step: the table reads as before or after, a retry ends it, and in the end no file is left."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import InvalidOption, SnapshotNotFound
from lsm_core.maintenance import read_trash
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.outcomes import outcome_of
from tests.faults.strides import strides
from tests.maintenance.tables import HOUR, NOW, assert_whole, content, keyed, on_disk, rows, strays, with_io

_CHANGES = {"write_exclusive", "overwrite", "delete", "rename"}
_LATER = NOW + 4 * HOUR
QUICK = {"commit__min_retry_wait": "1 ms", "commit__max_retry_wait": "1 ms", "commit__max_retries": "2"}


@dataclass(frozen=True)
class Act:
    """Something that is done to the table of :func:`template`, until ``is_done``; doing it again then changes nothing."""

    run: Callable[[Table], object]
    is_done: Callable[[Table], bool]
    prepare: Callable[[Table], object] = lambda _: None
    options: tuple[tuple[str, str], ...] = ()


def _ids(table: Table) -> list[int]:
    return [snapshot.id for snapshot in table.snapshots()]


def _deleted(table: Table) -> None:
    if "held" in table.tags():
        table.delete_tag("held")


def _created(table: Table) -> None:
    try:
        table.create_tag("made", 5, time_retained="1 d")
    except InvalidOption:
        assert table.tags()["made"].snapshot.id == 5


def _rolled_back(table: Table) -> None:
    """By one plan, as an operator would: it is made before the first try."""
    table.apply(table.load_plan(table.saved_plans()[0]))


def _planned(target: str) -> Callable[[Table], None]:
    def planned(table: Table) -> None:
        table.save_plan(table.plan_maintenance("rollback", tag=target))

    return planned


def _undone(table: Table) -> None:
    records = [record for record in read_trash(table.store).records if record.action == "rollback"]
    if records:
        table.restore(records[0].trash_id)


def _renamed(table: Table) -> None:
    try:
        table.rename_tag("held", "other")
    except SnapshotNotFound:
        assert "other" in table.tags()


DIRECT = (("dredge.delete-mode", "direct"),)
ACTS = {
    "create": Act(_created, lambda t: "made" in t.tags()),
    "move": Act(lambda t: t.create_tag("held", 6, replace=True), lambda t: t.tags()["held"].snapshot.id == 6),
    "rename": Act(_renamed, lambda t: set(t.tags()) == {"other", "kept"}),
    "delete": Act(_deleted, lambda t: "held" not in t.tags()),
    "delete at once": Act(_deleted, lambda t: "held" not in t.tags(), options=DIRECT),
    "roll back": Act(_rolled_back, lambda t: _ids(t) == [4], _planned("kept")),
    "roll back at once": Act(_rolled_back, lambda t: _ids(t) == [4], _planned("kept"), DIRECT),
    "roll back to an expired snapshot": Act(_rolled_back, lambda t: _ids(t) == [2], _planned("held")),
    "undo a rollback": Act(_undone, lambda t: _ids(t) == [4, 5, 6], lambda t: t.rollback_to("kept")),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose snapshots 1 to 3 have expired; 2 has the tag "held", which alone keeps files, and 4 (a compaction) the tag "kept"."""
    place = tmp_path_factory.mktemp("template")
    table = keyed(place, **QUICK)
    for i in range(3):
        table.write(rows(range(i, i + 5), v=i))
    table.create_tag("held", 2)
    table.compact(full=True)
    table.create_tag("kept", 4)
    table.write(rows([1, 20], v=9))
    table.write(rows([2, 30], v=9))
    table.store.clock.advance(2 * HOUR)
    table.expire_snapshots(retain_max=3)
    table.store.clock.advance(2 * HOUR)
    table.sweep_trash()
    assert not strays(table)
    return place


@strides(41)
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[pytest.mark.soak] if ACTS[what].options else []) for what in sorted(ACTS)]
)
def test_an_act_that_fails_at_a_step_leaves_the_table_before_or_after(
    what: str, template: Path, tmp_path: Path, stride: int
) -> None:
    act, made = ACTS[what], [0]

    def fresh() -> Table:
        made[0] += 1
        shutil.copytree(tmp_path / "prepared", tmp_path / str(made[0]))
        return Catalog(tmp_path / str(made[0]) / "wh", clock=f"fixed:{_LATER}").table("db.t").copy(dict(act.options))

    shutil.copytree(template, tmp_path / "prepared")
    act.prepare(Catalog(tmp_path / "prepared" / "wh", clock=f"fixed:{_LATER}").table("db.t").copy(dict(act.options)))
    counting = FaultyFileIO(LocalFileIO())
    whole, before = fresh(), content(fresh())
    act.run(with_io(whole, counting))
    after = content(whole)
    assert act.is_done(whole) and counting.steps > 10
    points, outcomes, seen = 0, set(), set()
    for step, (name, path) in enumerate(counting.log, 1):
        if name not in _CHANGES and (step + len(what)) % stride:  # a read that fails changes nothing
            continue
        for mode in ("before", "after") if name in _CHANGES else ("before",):
            points += 1
            table = fresh()
            broken = FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)
            outcome = outcome_of(lambda table=table, broken=broken: act.run(with_io(table, broken)))  # type: ignore[misc]
            outcomes.add(outcome)
            left = frozenset(
                (name, zlib.crc32(data)) for name, data in on_disk(table, without=("dredge/ledger",)).items()
            )
            if left in seen:  # what many faults leave is looked at once
                shutil.rmtree(table.store.root)
                continue
            seen.add(left)
            at = f"{what}, {outcome}, step {step} of {counting.steps} {mode}: {name} {path}"
            assert content(table) in (before, after), at
            assert_whole(table)
            act.run(table)
            assert act.is_done(table), at
            table.store.clock.advance(48 * HOUR)
            table.sweep_trash()
            assert content(table) == after and not strays(table), at
            assert not read_trash(table.store).records, at
            shutil.rmtree(table.store.root)
    print(f"\n{what}: {points} points of {counting.steps} steps, {len(seen)} states, {sorted(outcomes)}")
    assert "failed" in outcomes and len(seen) > 1
