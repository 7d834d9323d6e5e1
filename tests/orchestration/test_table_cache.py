"""What a tick remembers of tables: nothing that moved, no decision, and one question to Dagster for many tables."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.orchestration.sensors import run_requests, table_cache, table_sweep
from dredge.platform_core import names, obstacles
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.policies.table_state import TableState
from lsm_core import SchemaChange
from lsm_core.clock import SystemClock
from lsm_core.metadata.store import TableStore
from tests.support.platform import House, append_table, commit, keyed_table, open_house
from tests.support.samples import one_in

RUNS, IDLE, CATALOG = names.SORTED_RUN_SENSOR, names.IDLE_SENSOR, names.CATALOG_SENSOR
PLAIN, PARTED, LOG = "shop.plain", "shop.orders", "shop.log"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    for table in (keyed_table(root, PLAIN, partitioned=False), keyed_table(root, PARTED), append_table(root, LOG)):
        commit(table, 2)
    with open_house(root) as found:
        yield found


def counted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, key: Callable[..., str]) -> Counter[str]:
    """Count the calls of a function by ``key`` of their arguments."""
    calls: Counter[str] = Counter()
    real = getattr(where, name)

    def call(*arguments: Any, **rest: Any) -> Any:
        calls[key(*arguments)] += 1
        return real(*arguments, **rest)

    monkeypatch.setattr(where, name, call)
    return calls


def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    def name(store: TableStore) -> str:
        return store.name

    return counted(monkeypatch, table_cache, "refusal_of", name)


def test_a_table_that_did_not_move_is_opened_once_whichever_sensor_asks(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = opened(monkeypatch)
    first = house.tick(RUNS)
    for sensor in (IDLE, CATALOG, RUNS, IDLE, CATALOG):
        house.tick(sensor)
    assert calls == {PLAIN: 1, PARTED: 1, LOG: 1}
    assert house.lines(house.tick(RUNS)) == house.lines(first), "and every table is told about all the same"


@pytest.mark.parametrize("move", one_in(2, ["commit", "hint", "rollback", "options", "schema taken back", "replaced"]))
def test_whatever_moves_a_table_is_seen_by_the_next_tick(
    house: House, monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    table = house.warehouse.table(PLAIN)
    five = SchemaChange.set_option("num-sorted-run.compaction-trigger", "7")
    if move == "schema taken back":
        house.warehouse.catalog().alter_table(PLAIN, [five])
    house.tick(RUNS)
    calls, message = opened(monkeypatch), "2 sorted runs < 5"
    if move == "commit":
        commit(table)
        message = "3 sorted runs < 5"
    elif move == "hint":  # a writer that died before it told of its snapshot
        hint = house.root / "shop.db" / "plain" / "snapshot" / "LATEST"
        commit(table)
        hint.write_text("2")
        message = "3 sorted runs < 5"
    elif move == "rollback":
        table.rollback_to(1)
        commit(table, rows=77)
        message = "2 sorted runs < 5"
    elif move == "options":
        house.warehouse.catalog().alter_table(PLAIN, [five])
        message = "2 sorted runs < 7"
    elif move == "schema taken back":
        (house.root / "shop.db" / "plain" / "schema" / "schema-1").unlink()
    else:
        shutil.rmtree(house.root / "shop.db" / "plain")
        commit(keyed_table(house.root, PLAIN, partitioned=False), 1)
        message = "1 sorted run < 5"
    assert any(f"{PLAIN}: decline (too few runs): {message}" in line for line in house.lines(house.tick(RUNS)))
    assert calls == {PLAIN: 1}


def test_a_table_that_is_gone_or_cannot_be_read_is_not_remembered(house: House) -> None:
    house.tick(RUNS)
    snapshot = house.root / "shop.db" / "plain" / "snapshot" / "snapshot-2"
    text = snapshot.read_bytes()
    snapshot.write_bytes(text[:50])
    assert any(line.startswith(f"{PLAIN}: decline (unreadable): Corrupt") for line in house.lines(house.tick(RUNS)))
    snapshot.write_bytes(text)
    assert any("2 sorted runs < 5" in line for line in house.lines(house.tick(RUNS)))
    house.warehouse.catalog().drop_table(PLAIN)
    assert any(f"{PLAIN}: decline (unreadable): TableNotFound" in line for line in house.lines(house.tick(RUNS)))


def test_a_table_that_becomes_readable_after_the_load_says_so_until_the_reload(house: House) -> None:
    schema = house.root / "shop.db" / "plain" / "schema" / "schema-0"
    text = schema.read_bytes()
    schema.write_bytes(text[:50])
    house.load()
    assert any("no command can rebuild it" in line for line in house.lines(house.tick(RUNS)))
    schema.write_bytes(text)
    reload = "it could not be read when definitions loaded: reload the code location"
    assert any(line.endswith(f"(changed since it was loaded): {reload}") for line in house.lines(house.tick(RUNS)))
    house.load()
    assert any("2 sorted runs < 5" in line for line in house.lines(house.tick(RUNS)))


def test_a_plan_that_waits_for_its_next_try_is_not_made_again_and_comes_when_it_is_due(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(house.warehouse.table(PLAIN), 3)
    plans = counted(monkeypatch, run_requests, "plan_due", lambda store, *_: str(store.name))
    (request,) = house.tick(RUNS).run_requests
    run = house.instance.add_run(
        dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=dg.DagsterRunStatus.STARTED)
    )
    assert any(f"{PLAIN}: decline (in flight)" in line for line in house.lines(house.tick(RUNS)))
    house.instance.delete_run(run.run_id)
    house.instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=dg.DagsterRunStatus.FAILURE))
    for _ in range(3):
        assert any(f"{PLAIN}: decline (its run failed)" in line for line in house.lines(house.tick(RUNS)))
    assert plans == {PLAIN: 1}
    monkeypatch.setattr(table_cache, "wall_ms", lambda: SystemClock().now_ms() + 11 * 60_000)
    (again,) = house.tick(RUNS).run_requests
    assert again.run_key == f"{request.run_key}#2" and plans == {PLAIN: 2}
    layout = house.layout(PLAIN)
    house.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(asset_key=layout, check_name=names.TREE_CHECK, passed=False, description="overlap")
    )
    assert any(f"{PLAIN}: decline (blocked by a failed check)" in line for line in house.lines(house.tick(RUNS)))


def test_dagster_is_asked_at_once_about_all_tables(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = type(house.instance.event_log_storage)
    result = counted(monkeypatch, storage, "get_latest_materialization_events", lambda *_: "told")
    evaluated = counted(monkeypatch, storage, "get_asset_check_execution_history", lambda *_: "evaluated")
    partitions = counted(monkeypatch, storage, "get_dynamic_partitions", lambda _, name: str(name))
    house.tick(RUNS)
    assert result == {"told": 1} and not evaluated
    house.tick(RUNS)
    house.tick(RUNS)
    assert result == {"told": 1}
    assert partitions == {PARTED: 2, LOG: 2}, "once to find what is new, once to see that it is there"
    for name in (PLAIN, PARTED):
        commit(house.warehouse.table(name), 3)
    working = counted(monkeypatch, type(house.instance), "get_runs", lambda *_: "working")
    assert len(house.tick(RUNS).run_requests) == 2
    assert working == {"working": 1}


def test_a_tick_ends_with_its_events_and_the_next_one_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_sweep, "_EVENTS_A_TICK", 1)
    monkeypatch.setattr(table_sweep, "_TOGETHER", 1)
    seen = []
    for _ in range(3):
        result = house.tick(RUNS)
        lines = house.lines(result)
        seen.append(lines[0].split("/")[0].split(":")[0])
        assert result.asset_events
        assert lines[-1].startswith(f"2 tables had no turn after {len(result.asset_events)} events: next is ")
    assert seen == [LOG, PARTED, PLAIN]
    last = house.tick(RUNS)
    assert last.asset_events == [] and len(house.lines(last)) == 3


def test_of_more_runs_at_work_than_are_listed_the_older_ones_are_found_by_name(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstacles, "_AT_WORK", 1)
    started = dg.DagsterRunStatus.STARTED
    runs = [
        house.instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags={names.TAG_TABLE: name}, status=started))
        for name in (PLAIN, LOG)
    ]
    at_work = obstacles.RunningRuns(house.instance, house.warehouse.names)
    assert at_work.of(LOG, house.layout(LOG)) == runs[1].run_id
    assert at_work.of(PLAIN, house.layout(PLAIN)) == runs[0].run_id
    assert at_work.of(PARTED, house.layout(PARTED)) is None


def test_ticks_over_many_tables_tell_what_changed_and_all_of_it_once_an_hour() -> None:
    moment = 0.0
    log = table_sweep.TickLog(lambda: moment)
    lines = [f"shop.t{number:04}: decline (too few runs): 1 sorted run < 5; 1.5 KiB" for number in range(500)]
    assert log.lines(lines) == lines
    (rest,) = log.lines(lines)
    assert rest.startswith("500 lines unchanged since ")

    worse = ["shop.t0007: run (trigger reached): 5 sorted runs >= 5", *lines[:7], *lines[8:]]
    worse.append("shop.t0009: level0_backlog: warn: 1,000 level-0 files")
    result = log.lines(worse)
    assert result[:-1] == [worse[0], lines[9], worse[-1]], "a table's lines are told together, the others not again"
    assert result[-1].startswith("498 lines unchanged since ")
    assert log.lines(lines)[:-1] == [lines[7], lines[9]], "also what is as it was before"

    half = lines[:200]  # the budget left no time for the others
    assert log.lines(half)[0].startswith("200 lines unchanged since ")
    moment = 3_601.0
    assert log.lines(half) == half
    assert log.lines(lines)[:-1] == lines[200:]


def test_the_newest_tick_names_all_that_is_not_healthy_however_long_it_is_so() -> None:
    log = table_sweep.TickLog(lambda: 0.0)
    lines = [
        f"shop.t{number:04}: decline (any): text of some length, so that lines are folded" for number in range(500)
    ]
    states = dict.fromkeys([line.partition(": ")[0] for line in lines], TableState.HEALTHY)
    states |= {"shop.t0001": TableState.DUE, "shop.t0400": TableState.DUE, "shop.t0002": TableState.BLOCKED}
    states |= {f"shop.t01{number}": TableState.PAUSED for number in range(10, 20)}
    assert log.lines(lines, states) == lines
    for _ in range(3):
        *named, rest = log.lines(lines, states)
        assert named == [
            "unchanged: blocked (1): shop.t0002",
            "unchanged: paused (10)",
            "unchanged: due (2): shop.t0001, shop.t0400",
        ]
        assert rest.startswith("500 lines unchanged since ")
    many = {line.partition(": ")[0] + "x" * 90: TableState.FAILING for line in lines}
    long = [f"{subject}: decline (its run failed): text" for subject in many]
    log.lines(long, many)
    (failing, _) = log.lines(long, many)
    assert len(failing) <= 12_100 and re.search(r" and \d+ more$", failing)


def test_a_tick_that_visits_a_slice_names_what_was_not_healthy_at_the_last_visit_of_the_others() -> None:
    log = table_sweep.TickLog()
    states = {
        "shop.a": TableState.BLOCKED,
        "shop.b/dt=1": TableState.DUE,
        "shop.b/dt=2": TableState.HEALTHY,
        "shop.b/dt=a/hour=2": TableState.DUE,
        "shop.c": TableState.HEALTHY,
        "shop.d": TableState.PAUSED,
    }

    conditions: dict[str, TableState] = {}

    def visit(*tables: str, **current: TableState) -> list[str]:
        for name, state in current.items():
            states[f"shop.{name}"] = state
        visited = {subject: state for subject, state in states.items() if subject.partition("/")[0] in tables}
        everything = {subject.partition("/")[0] for subject in states}
        waiting = {name: conditions.get(name, TableState.HEALTHY) for name in sorted(everything - {*tables})}
        return log.lines([f"{subject}: text" for subject in visited], visited, waiting)

    assert visit("shop.a", "shop.b") == [f"shop.{name}: text" for name in ("a", "b/dt=1", "b/dt=2", "b/dt=a/hour=2")]
    begin = "no turn in this tick, as last known"
    assert visit("shop.c", "shop.d") == [
        "shop.c: text",
        "shop.d: text",
        f"{begin}: blocked (1): shop.a",
        f"{begin}: due (2): shop.b/dt=1, shop.b/dt=a/hour=2",
    ]
    assert visit("shop.a", "shop.b", a=TableState.HEALTHY)[-1] == f"{begin}: paused (1)"
    assert visit("shop.c", "shop.d")[2:] == [f"{begin}: due (2): shop.b/dt=1, shop.b/dt=a/hour=2"], "a is healthy now"
    conditions["shop.c"] = TableState.BLOCKED  # since its last visit
    assert visit("shop.a", "shop.b")[-2:] == [f"{begin}: blocked (1): shop.c", f"{begin}: paused (1)"]
    many = {f"shop.t{number:04}": TableState.CORRUPT for number in range(500)}
    long = [f"{subject}: decline (any): text of some length, so that lines are folded" for subject in many]
    assert len(log.lines(long, many, {"shop.b": TableState.HEALTHY})) == 501
    unchanged, folded, earlier = log.lines(long, many, {"shop.b": TableState.HEALTHY})
    assert unchanged.startswith("unchanged: corrupt (500): ") and folded.startswith("500 lines unchanged")
    assert earlier.startswith(f"{begin}: due (2)"), "folding hides nothing of the other tables"


def test_ticks_over_few_tables_tell_everything_every_time() -> None:
    log = table_sweep.TickLog()
    lines = [f"shop.t{number}: decline (too few runs): 1 sorted run < 5" for number in range(20)]
    assert log.lines(lines) == log.lines(lines) == lines
