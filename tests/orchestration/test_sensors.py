"""Sensors: a run at the trigger and only there, one per plan, a reason for every table on every tick."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from dredge.orchestration.sensors import run_requests, table_cache, table_sweep
from dredge.platform_core import health, names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.health import table_health
from dredge.platform_core.obstacles import find_suspension, list_suspensions, read_layout_evaluation
from dredge.platform_core.policies.decisions import DAY_MS
from lsm_core import Catalog, SchemaChange
from lsm_core.clock import FileClock, SystemClock
from lsm_core.maintenance import BucketHealth
from lsm_core.maintenance import health as health_of_buckets
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import Kept
from tests.support.platform import House, append_table, commit, keyed_table, open_house

RUNS, IDLE, CATALOG = names.SORTED_RUN_SENSOR, names.IDLE_SENSOR, names.CATALOG_SENSOR


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    keyed_table(root, "shop.plain", partitioned=False)
    keyed_table(root)
    append_table(root)
    with open_house(root) as found:
        yield found


def test_every_table_has_its_decision_and_reason_on_a_tick(house: House) -> None:
    commit(house.warehouse.table("shop.plain"), 3)
    commit(house.warehouse.table("shop.log"), 2)
    result = house.tick(RUNS)
    assert not result.run_requests
    lines = house.lines(result)
    assert len(lines) == 3
    assert (
        lines[0]
        == "shop.log: decline (another sensor's): append-only: no sorted runs; the sensor idle_partition merges its small files"
    )
    assert lines[1] == "shop.orders: decline (empty): no snapshot yet: nothing to maintain"
    assert lines[2].startswith("shop.plain: decline (too few runs): 3 sorted runs < 5; ")
    newer, limit = "newer runs hold", "of the oldest run's bytes (limit 200 %); a full compaction would save one merge"
    assert newer in lines[2] and limit in lines[2]
    assert json.loads(result.cursor or "") == {"tick": 1, "next": None}


def test_the_fifth_commit_starts_one_run_and_no_second_one_for_the_same_plan(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    commit(table, 4)
    assert not house.tick(RUNS).run_requests
    commit(table)
    result = house.tick(RUNS)
    assert len(result.run_requests) == 1
    request = result.run_requests[0]
    plan = request.tags[names.TAG_PLAN]
    assert request.run_key == f"shop.orders/dt=a@5:{plan}"
    assert request.partition_key == "dt=a"
    assert request.tags[names.TAG_TABLE] == "shop.orders"
    assert request.tags[names.TAG_ACTION] == "compact"
    assert request.tags[names.TAG_REASON].startswith("5 sorted runs >= 5; ")
    config = request.run_config["ops"][names.WarehouseNames.of(str(house.root)).node_name("shop.orders")]["config"]
    assert config == {"plan": plan, "full": False}
    assert house.tick(RUNS).run_requests[0].run_key == request.run_key  # Dagster drops the repeated key

    finished = house.run(request)
    assert finished.success
    after = house.tick(RUNS)
    assert not after.run_requests
    assert any(
        line.startswith("shop.orders/dt=a: decline (too few runs): 1 sorted run < 5") for line in house.lines(after)
    )


def test_a_failed_run_is_repeated_later_and_a_few_times_only(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(house.warehouse.table("shop.plain"), 5)
    request = house.tick(RUNS).run_requests[0]
    later = 0
    monkeypatch.setattr(table_cache, "wall_ms", lambda: SystemClock().now_ms() + later)
    for number, wait in ((1, "10"), (2, "60")):
        house.instance.add_run(_run(house, request, dg.DagsterRunStatus.FAILURE))
        (line,) = [x for x in house.lines(house.tick(RUNS)) if x.startswith("shop.plain: ")]
        assert line.startswith("shop.plain: decline (its run failed): plan ")
        assert f"failed, try {number} of 3: requested again in {wait} min; or materialise the layout" in line
        later = (int(wait) + 1) * 60_000
        again = house.tick(RUNS).run_requests[0]
        assert again.run_key == f"{request.run_key}#{number + 1}"
        assert f"; try {number + 1} of 3: run " in again.tags[names.TAG_REASON]
        later = 0
    house.instance.add_run(_run(house, again, dg.DagsterRunStatus.FAILURE))
    later = 10**9
    message = "shop.plain: decline (suspended): 5 sorted runs >= 5; suspended: its last 3 runs failed, the newest is "
    assert any(line.startswith(message) and "the job resume" in line for line in house.lines(house.tick(RUNS)))
    commit(house.warehouse.table("shop.plain"))  # another plan, and the same table
    assert not house.tick(RUNS).run_requests


def test_a_suspended_table_is_resumed_with_new_tries_and_told_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(house.warehouse.table("shop.plain"), 5)
    commit(house.warehouse.table("shop.orders"), 5)
    requests = {request.tags[names.TAG_TABLE]: request for request in house.tick(RUNS).run_requests}
    request = requests["shop.plain"]
    for _ in range(3):
        house.instance.add_run(_run(house, request, dg.DagsterRunStatus.FAILURE))
    again = {item.tags[names.TAG_TABLE] for item in house.tick(RUNS).run_requests}
    assert again == {"shop.orders"}
    ranked = house.execute(names.WAREHOUSE_HEALTH).get_asset_materialization_events()[0].materialization.metadata
    assert "| shop.plain | suspended | suspended: its last 3 runs failed" in str(ranked["declined"].value)

    wrong = {"tables": ["shop.plain", "shop.none"], "reason": "disk"}
    refused = house.execute(names.RESUME_JOB, run_config=wrong)
    assert not refused.success and find_suspension(house.instance, house.warehouse.names, "shop.plain") is not None
    done = house.execute(names.RESUME_JOB, run_config={"tables": ["shop.plain"], "reason": "the disk is larger now"})
    assert done.success
    repeated = {item.tags[names.TAG_TABLE]: item for item in house.tick(RUNS).run_requests}
    assert repeated["shop.plain"].run_key == f"{request.run_key}#4"  # Dagster drops keys that it knows
    assert house.run(repeated["shop.plain"]).success
    assert list_suspensions(house.instance, house.warehouse.names) == {}


def test_a_run_that_succeeds_or_other_actions_suspend_nothing(house: House) -> None:
    commit(house.warehouse.table("shop.plain"), 5)
    request = house.tick(RUNS).run_requests[0]
    for number in range(3):
        house.instance.add_run(_run(house, request, dg.DagsterRunStatus.FAILURE))
        if number == 1:
            assert house.maintain("shop.plain").success  # by hand
        wrong = {**request.tags, names.TAG_ACTION: "rescale"}
        house.instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=wrong, status=dg.DagsterRunStatus.FAILURE))
    assert find_suspension(house.instance, house.warehouse.names, "shop.plain") is None


def test_a_repeated_run_that_succeeds_ends_the_story(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(house.warehouse.table("shop.plain"), 5)
    request = house.tick(RUNS).run_requests[0]
    house.instance.add_run(_run(house, request, dg.DagsterRunStatus.FAILURE))
    monkeypatch.setattr(table_cache, "wall_ms", lambda: SystemClock().now_ms() + 11 * 60_000)
    assert house.run(house.tick(RUNS).run_requests[0]).success
    assert any("shop.plain: decline (too few runs): 1 sorted run" in line for line in house.lines(house.tick(RUNS)))


def test_a_run_that_a_person_canceled_is_not_repeated(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(house.warehouse.table("shop.plain"), 5)
    request = house.tick(RUNS).run_requests[0]
    house.instance.add_run(_run(house, request, dg.DagsterRunStatus.CANCELED))
    monkeypatch.setattr(table_cache, "wall_ms", lambda: SystemClock().now_ms() + 10**9)
    lines = house.lines(house.tick(RUNS))
    assert any(line.startswith("shop.plain: decline (its run was canceled): plan ") for line in lines)


def test_a_plan_whose_run_succeeded_is_never_given_to_another(house: House) -> None:
    commit(house.warehouse.table("shop.plain"), 5)
    request = house.tick(RUNS).run_requests[0]
    house.instance.add_run(_run(house, request, dg.DagsterRunStatus.SUCCESS))
    lines = house.lines(house.tick(RUNS))
    assert any("shop.plain: decline (planned before): plan " in line for line in lines)


def test_a_run_at_work_keeps_the_next_one_waiting(house: House) -> None:
    table = house.warehouse.table("shop.plain")
    commit(table, 5)
    request = house.tick(RUNS).run_requests[0]
    house.instance.add_run(_run(house, request, dg.DagsterRunStatus.STARTED))
    commit(table)
    lines = house.lines(house.tick(RUNS))
    assert any("decline (in flight): 6 sorted runs >= 5; run " in line for line in lines)


def _run(house: House, request: dg.RunRequest, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    return dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=status)


def test_partitions_become_known_and_health_is_told_only_when_it_changed(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    commit(table, 1, day="a")
    commit(table, 1, day="b c")
    first = house.tick(RUNS)
    assert sorted(house.instance.get_dynamic_partitions("shop.orders")) == ["dt=a", "dt=b c"]
    records = [event for event in first.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert {event.partition for event in records} == {"dt=a", "dt=b c"}
    assert {event.asset_key.path[-1] for event in records} == {"orders", "orders_layout"}
    assert house.tick(RUNS).asset_events == []
    commit(table, 1, day="a")
    changed = house.tick(RUNS).asset_events
    assert {event.partition for event in changed if isinstance(event, dg.AssetObservation)} == {"dt=a"}
    assert not [event for event in changed if isinstance(event, dg.AssetCheckEvaluation)], "it passes, as before"


def test_an_alert_that_passes_is_told_again_when_something_else_was_said_or_the_layout_was_materialised(
    house: House,
) -> None:
    table, layout = house.warehouse.table("shop.orders"), house.layout("shop.orders")

    def told() -> list[bool]:
        commit(table, 1, day="a")
        found = [event for event in house.tick(RUNS).asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        return [event.passed for event in found if event.asset_key == layout]

    assert (told(), told()) == ([True], [])
    warned = dg.AssetCheckEvaluation(asset_key=layout, check_name="level0_backlog", passed=False)
    house.instance.report_runless_asset_event(warned)
    assert (told(), told()) == ([True], [])
    house.instance.report_runless_asset_event(dg.AssetMaterialization(layout, partition="dt=a"))
    assert told() == [True]


def test_an_alert_that_comes_near_its_limit_is_told_with_every_commit(tmp_path: Path) -> None:
    root, policies, records = tmp_path / "wh", tmp_path / "policies.yaml", []
    policies.write_text("defaults: {level0_warn: 6}")
    table = keyed_table(root, partitioned=False)
    with open_house(root, DREDGE_POLICIES=str(policies)) as house:
        for _ in range(4):
            commit(table)
            found = house.tick(RUNS).asset_events
            records.append([e.description for e in found if getattr(e, "check_name", "") == names.BACKLOG_CHECK])
    assert records == [[f"OK: {files} level-0 files < 6"] if files != 2 else [] for files in (1, 2, 3, 4)]


def test_a_layout_that_needs_nothing_is_reported_by_the_numbers_it_is_followed_by_and_one_that_is_due_with_all(
    house: House,
) -> None:
    table = house.warehouse.table("shop.orders")
    found = []
    for _ in range(5):
        commit(table, 1, day="a")
        found += [event for event in house.tick(RUNS).asset_events if isinstance(event, dg.AssetObservation)]
    *calm, due = (
        event.metadata
        for event in found
        if event.asset_key == house.layout("shop.orders") and "state" in event.metadata
    )
    assert len(calm) == 3 and due.keys() > calm[-1].keys() >= {"sorted runs (worst bucket)", "bytes", "files"}
    assert [list(metadata)[:5] for metadata in (calm[-1], due)] == [
        ["state", "next step", "sorted runs (worst bucket)", "level-0 files (worst bucket)", "score, 0 is healthy"]
    ] * 2
    assert due.keys() - calm[-1].keys() >= {"buckets", "score: made of", "due compaction reads (bytes)"}


def test_a_rollback_and_a_commit_with_the_same_id_are_noticed(house: House) -> None:
    table = house.warehouse.table("shop.plain")
    commit(table, 2)
    house.tick(RUNS)
    before = table_health(table.store)
    table.rollback_to(1)
    commit(table, rows=77)
    found = table_health(table.store)
    assert (before.snapshot, found.snapshot) == (2, 2) and before.commit != found.commit
    assert before.buckets[0].rows != found.buckets[0].rows
    records = [event for event in house.tick(RUNS).asset_events if not isinstance(event, dg.AssetCheckEvaluation)]
    assert {event.asset_key.path[-1] for event in records} == {"plain", "plain_layout"}


def test_a_table_that_did_not_change_is_read_once_whichever_sensor_asks(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int | None] = []

    def counted(store: TableStore, **rest: Any) -> list[BucketHealth]:
        read.append(rest["snapshot_id"])
        return health_of_buckets(store, **rest)

    monkeypatch.setattr(health, "health", counted)
    table = house.warehouse.table("shop.plain")
    commit(table, 2)
    for sensor in (RUNS, IDLE, RUNS, IDLE):
        assert any("shop.plain: decline" in line for line in house.lines(house.tick(sensor)))
    assert read == [2]
    commit(table)
    for sensor in (IDLE, RUNS):
        house.tick(sensor)
    assert read == [2, 3]
    house.warehouse.catalog().alter_table(
        "shop.plain", [SchemaChange.set_option("num-sorted-run.compaction-trigger", "7")]
    )
    assert any("3 sorted runs < 7" in line for line in house.lines(house.tick(RUNS)))
    assert read == [2, 3, 3]


def test_ages_in_the_health_that_a_process_keeps_are_at_most_an_hour_old(tmp_path: Path) -> None:
    table, clock = keyed_table(tmp_path, "shop.t", partitioned=False), FileClock(str(tmp_path / "clock"))
    commit(table, 2)
    start = SystemClock().now_ms()
    clock.set(start)
    store = Catalog(str(tmp_path), clock=clock).store("shop.t")

    def lag_hours(hours: float) -> float:
        clock.set(start + int(hours * 3_600_000))
        (bucket,) = table_health(store).buckets
        return round(bucket.ro_lag_ms / 3_600_000, 1)

    assert [lag_hours(hours) for hours in (0.5, 0.9, 30, 30.9, 31.1)] == [0.5, 0.5, 30.0, 30.0, 31.1]
    table.compact(full=True)
    (bucket,) = table_health(store).buckets
    clock.set(start + 100 * 3_600_000)
    assert table_health(store).buckets[0] is bucket, "time changes nothing"


def test_the_health_that_a_process_keeps_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_newest", kept := Kept(5))
    tables = [house.warehouse.table(name) for name in ("shop.plain", "shop.orders", "shop.log")]
    for number, table in enumerate(tables):
        for day in "ab"[: number + 1]:
            commit(table, 1, day=day)
        assert table_health(table.store) is table_health(table.store)
        assert 0 < kept.size <= 5
    assert kept.get(tables[0].store.root) is None


def test_the_time_budget_ends_a_tick_and_the_next_one_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "wh"
    for number in range(4):
        keyed_table(root, f"shop.t{number}", partitioned=False)
    with open_house(root, DREDGE_SENSOR_BUDGET="0.2") as house:
        slow, passed = table_cache.refusal_of, 0.0

        def slowly(store: object) -> str | None:
            nonlocal passed
            passed += 0.15
            return slow(store)  # type: ignore[arg-type]

        monkeypatch.setattr(table_sweep, "time", SimpleNamespace(monotonic=lambda: passed))
        monkeypatch.setattr(table_cache, "refusal_of", slowly)
        seen: list[str] = []
        for _ in range(2):
            lines = house.lines(house.tick(RUNS))
            assert "2 tables had no turn in this tick's 0.2 s: next is" in lines[-1]
            seen += [line.split(":")[0] for line in lines[:-1]]
        assert seen == ["shop.t0", "shop.t1", "shop.t2", "shop.t3"]


def test_idle_partitions_are_merged_by_the_injected_clock(tmp_path: Path) -> None:
    root, clock = tmp_path / "wh", FileClock(str(tmp_path / "clock"))
    keyed, log = keyed_table(root), append_table(root)
    commit(keyed, 2)
    commit(log, 5)
    written = max(bucket.newest_file_ms or 0 for bucket in log.health())
    clock.set(written + 19 * DAY_MS + DAY_MS // 2)
    with open_house(root, DREDGE_CLOCK=clock.to_spec()) as house:
        assert any("shop.orders/dt=a: decline (not idle): idle 19 d < 20 d" in x for x in house.lines(house.tick(IDLE)))
        clock.set(written + 21 * DAY_MS)
        requests = {str(request.tags[names.TAG_TABLE]): request for request in house.tick(IDLE).run_requests}
        assert set(requests) == {"shop.orders", "shop.log"}
        assert requests["shop.orders"].tags[names.TAG_ACTION] == "compact full"
        assert requests["shop.log"].tags[names.TAG_REASON] == "idle 21 d >= 20 d, 5 small files >= 5: full compaction"
        for request in requests.values():
            assert house.run(request).success
        assert not house.tick(IDLE).run_requests
        assert [bucket.files for bucket in log.health()] == [1]


def test_the_pile_of_an_append_table_is_told_by_its_own_check(tmp_path: Path) -> None:
    root, policies = tmp_path / "wh", tmp_path / "policies.yaml"
    policies.write_text("defaults: {watch: {small_files: 3, small_files_critical: 5}}")
    log = append_table(root)
    commit(log, 3)
    with open_house(root, DREDGE_POLICIES=str(policies)) as house:
        (alert,) = [event for event in house.tick(RUNS).asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        assert (alert.check_name, alert.passed) == ("small_files_backlog", False)
        assert (alert.severity, alert.description) == (dg.AssetCheckSeverity.WARN, "3 small files >= 3 in dt=a")
        commit(log, 2)
        result = house.tick(RUNS)
        (alert,) = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        assert (alert.severity, alert.description) == (dg.AssetCheckSeverity.ERROR, "5 small files >= 5 in dt=a")
        assert "shop.log: small_files_backlog: 5 small files >= 5 in dt=a" in house.lines(result)


def test_a_replay_in_flight_keeps_all_sensors_still(tmp_path: Path) -> None:
    root, state = tmp_path / "wh", tmp_path / "replay"
    commit(keyed_table(root), 5)
    state.write_text("batches 5-9")
    with open_house(root, DREDGE_REPLAY_STATE=str(state)) as house:
        for sensor in (RUNS, IDLE, CATALOG):
            assert house.tick(sensor).skip_message == "replay of batches 5-9 in progress"
        state.unlink()
        assert house.tick(RUNS).run_requests


def test_a_pause_holds_until_the_backlog_is_critical(tmp_path: Path) -> None:
    root, policies = tmp_path / "wh", tmp_path / "policies.yaml"
    policies.write_text('tables: {shop.orders: {paused: "storage move", level0_warn: 5, level0_critical: 7}}')
    table = keyed_table(root, partitioned=False)
    commit(table, 6)
    with open_house(root, DREDGE_POLICIES=str(policies)) as house:
        result = house.tick(RUNS)
        assert house.lines(result) == [
            "shop.orders: decline (paused by policy): 6 sorted runs (trigger 5); paused by policy: storage move",
            "shop.orders: level0_backlog: WARN: 6 level-0 files >= 5; maintenance is paused: storage move",
        ]
        alert = next(event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation))
        assert (alert.check_name, alert.passed, alert.severity) == ("level0_backlog", False, dg.AssetCheckSeverity.WARN)
        assert alert.description == "WARN: 6 level-0 files >= 5; maintenance is paused: storage move"
        commit(table)
        result = house.tick(RUNS)
        request = result.run_requests[0]
        assert (
            "7 level-0 files >= 7: critical; the pause (storage move) is overridden" in request.tags[names.TAG_REASON]
        )
        assert house.run(request).success
        green = read_layout_evaluation(house.instance, house.layout("shop.orders"), names.BACKLOG_CHECK)
        assert green is not None and green.passed, "the run says so itself"
        assert not [event for event in house.tick(RUNS).asset_events if isinstance(event, dg.AssetCheckEvaluation)]


def test_new_gone_and_changed_tables_are_noticed(house: House) -> None:
    assert house.tick(CATALOG).skip_message == "3 tables, as loaded"
    keyed_table(house.root, "shop.fresh")
    house.warehouse.catalog().drop_table("shop.log")
    message = house.tick(CATALOG).skip_message or ""
    assert message.splitlines()[:2] == ["shop.fresh: new", "shop.log: dropped"]
    assert "reload the code location" in message
    lines = house.lines(house.tick(RUNS))
    assert any(line.startswith("shop.log: decline (unreadable): TableNotFound") for line in lines)


def test_a_broken_cursor_starts_over(house: House) -> None:
    house.cursors[RUNS] = "not json"
    assert json.loads(house.tick(RUNS).cursor or "")["tick"] == 1


def test_partitions_that_are_due_together_are_one_run_and_one_commit(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    for day, commits in (("a", 5), ("b", 5), ("c", 2), ("d", 5)):
        commit(table, commits, day=day)
    before, first = table.to_arrow().sort_by("id"), snapshots.latest_id(table.store)
    with open_house(tmp_path / "wh") as house:
        tick = house.tick(RUNS)
        together, alone = sorted(tick.run_requests, key=lambda request: request.partition_key or "")
        assert json.loads(together.tags[names.TAG_PARTITIONS]) == ["dt=a", "dt=b"], "dt=c between them and dt=d is calm"
        assert together.tags[names.TAG_REASON].startswith("2 partitions: 5 sorted runs >= 5")
        assert together.run_key is not None and together.run_key.startswith("shop.orders/dt=a|dt=b@")
        assert alone.partition_key == "dt=d"
        house.instance.add_run(_run(house, together, dg.DagsterRunStatus.STARTED))
        assert [request.partition_key for request in house.tick(RUNS).run_requests] == [], "the range is at work"
        house.instance.delete_run(house.instance.get_runs()[0].run_id)
        assert house.run(together).success
        assert {bucket.partition_text: bucket.sorted_runs for bucket in table.health()} == {
            "dt=a": 1, "dt=b": 1, "dt=c": 2, "dt=d": 5,
        }  # fmt: skip
        assert snapshots.latest_id(table.store) == (first or 0) + 1
        assert house.instance.get_materialized_partitions(house.layout("shop.orders")) >= {"dt=a", "dt=b"}
        assert [request.partition_key for request in house.tick(RUNS).run_requests] == ["dt=d"]
    assert table.to_arrow().sort_by("id") == before


def test_a_failed_run_over_partitions_is_repeated_one_by_one_at_once(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    for day in ("a", "b"):
        commit(table, 5, day=day)
    with open_house(tmp_path / "wh") as house:
        (together,) = house.tick(RUNS).run_requests
        house.instance.add_run(_run(house, together, dg.DagsterRunStatus.FAILURE))
        single = house.tick(RUNS).run_requests
        assert {request.partition_key for request in single} == {"dt=a", "dt=b"}
        assert not {request.run_key for request in single} & {together.run_key}
        house.instance.add_run(_run(house, single[0], dg.DagsterRunStatus.FAILURE))
        again = house.tick(RUNS)
        assert [request.partition_key for request in again.run_requests] == [single[1].partition_key]
        house.instance.add_run(_run(house, together, dg.DagsterRunStatus.SUCCESS))
        assert [request.partition_key for request in house.tick(RUNS).run_requests] == [], "applied by the other run"


def test_a_partition_that_the_order_lists_twice_is_compacted_once() -> None:
    items = [SimpleNamespace(partition="dt=a"), SimpleNamespace(partition="dt=b")]
    groups = run_requests._find_neighbours(items, ["dt=a", "dt=b", "dt=b"])
    assert [[item.partition for item in group] for group in groups] == [["dt=a", "dt=b"]]
