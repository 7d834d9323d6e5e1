"""The page of a layout begins with the current decision: state, reason, next step and time, also without a commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dredge.orchestration.sensors import table_cache, table_sweep
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from tests.maintenance.test_checks import publish, with_column
from tests.support.platform import House, commit, keyed_table, open_house

PLAIN, OTHER, PARTED = "shop.plain", "shop.plain2", "shop.parted"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root, policies = tmp_path / "wh", tmp_path / "policies.yaml"
    policies.write_text("")
    for table in (PLAIN, OTHER):
        commit(keyed_table(root, table, partitioned=False), 1)
    commit(keyed_table(root, PARTED), 1, day="a")
    with open_house(root, DREDGE_POLICIES=str(policies)) as opened:
        yield opened


def set_policies(house: House, text: str) -> None:
    Path(house.environment["DREDGE_POLICIES"]).write_text(text)


def states(house: House, table: str = PLAIN) -> list[str]:
    """Tick both table sensors; return the states that the layout's events report, in order."""
    house.tick(names.IDLE_SENSOR)
    events = house.tick(names.SORTED_RUN_SENSOR).asset_events
    return [
        str(event.metadata["state"].value)
        for event in events
        if event.asset_key == house.layout(table) and "state" in getattr(event, "metadata", {})
    ]


def expire_conditions(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next tick read failed checks and runs again, as it does after a minute."""
    monkeypatch.setattr("dredge.orchestration.sensors.status_board._CONDITIONS_SECONDS", 0.0)


def test_a_state_that_changes_without_a_commit_is_reported_once_and_its_end_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire_conditions(house, monkeypatch)
    (first,) = states(house)
    assert first.startswith("healthy: 1 sorted run < 5; ") and "(decided at " in first
    assert states(house) == [], "nothing changed"
    set_policies(house, f"tables: {{{PLAIN}: {{paused: storage move}}}}")
    (paused,) = states(house)
    assert paused.startswith("paused: 1 sorted run (trigger 5); paused by policy: storage move (decided at ")
    assert states(house) == []
    set_policies(house, "")
    (again,) = states(house)
    assert again.startswith("healthy: ")
    assert states(house) == []
    house.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(house.layout(PLAIN), names.TREE_CHECK, passed=False, description="files overlap")
    )
    (blocked,) = states(house)
    assert blocked.startswith("blocked: tree_is_valid failed: files overlap")
    commit(house.warehouse.table(PLAIN))
    assert states(house)[-1].startswith("blocked: "), "the newest event of the page has the full state"


def test_a_broken_tree_that_a_tick_sees_fails_the_check_and_blocks_the_table(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire_conditions(house, monkeypatch)
    table, check = house.warehouse.table(PLAIN), dg.AssetCheckKey(house.layout(PLAIN), names.TREE_CHECK)

    def results() -> list[tuple[bool, str]]:
        records = house.instance.event_log_storage.get_asset_check_execution_history(check, limit=10)
        found = [record.event.asset_check_evaluation for record in records if record.event is not None]
        return [(result.passed, str(result.description)) for result in found if result is not None]

    commit(table, 2)
    publish(table, lambda entries: with_column(entries, "level", [5] * entries.num_rows))
    house.tick(names.SORTED_RUN_SENSOR)
    assert "of level 5 overlap in key range" in results()[0][1] and not results()[0][0]
    assert states(house)[-1].startswith("blocked: tree_is_valid failed: ")
    commit(table)
    house.tick(names.SORTED_RUN_SENSOR)
    assert len(results()) == 1, "reported once"
    assert "repair it: `dredge rollback-as-latest shop.plain --snapshot 3`" in results()[0][1]
    table.rollback_to(3)
    assert house.maintain(PLAIN).success
    assert results()[0][0], "the check of a run ends the block"


def test_a_broken_tree_is_not_reported_where_the_policy_switches_the_check_off(house: House) -> None:
    set_policies(house, "defaults: {checks: {tree_is_valid: off}}")
    table, check = house.warehouse.table(PLAIN), dg.AssetCheckKey(house.layout(PLAIN), names.TREE_CHECK)
    commit(table, 2)
    publish(table, lambda entries: with_column(entries, "level", [5] * entries.num_rows))
    house.tick(names.SORTED_RUN_SENSOR)
    assert not house.instance.event_log_storage.get_asset_check_execution_history(check, limit=1)


def test_a_table_that_cannot_be_opened_says_so_on_its_page_once_and_when_it_is_whole_again(house: House) -> None:
    snapshot = house.warehouse.table(PLAIN).latest_snapshot()
    assert snapshot is not None
    file = Path(house.warehouse.table(PLAIN).store.snapshot_path(snapshot.id))
    content = file.read_bytes()
    file.write_text("{")
    (corrupt,) = states(house)
    assert corrupt.startswith("corrupt: ") and file.name in corrupt
    page = house.instance.fetch_observations(dg.AssetRecordsFilter(house.layout(PLAIN)), limit=1).records[0]
    assert page.asset_observation is not None
    assert "`dredge check shop.plain --deep` lists it" in str(page.asset_observation.metadata["next step"].value)
    assert states(house) == [], "nothing changed"
    file.write_bytes(content)
    assert states(house)[-1].startswith("healthy: ")
    assert states(house) == []


def test_waiting_for_the_budget_is_on_the_page_with_the_place_and_the_tick_names_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policies(house, "budget: {concurrent_tables: 1}")
    for table in (PLAIN, OTHER):
        commit(house.warehouse.table(table), 5)
    request = house.tick(names.SORTED_RUN_SENSOR).run_requests[0]
    running = request.tags[names.TAG_TABLE]
    waiting = OTHER if running == PLAIN else PLAIN
    house.instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=dg.DagsterRunStatus.STARTED))
    tick = house.tick(names.SORTED_RUN_SENSOR)
    assert not tick.run_requests and any(line.startswith(f"{waiting}: decline (beyond") for line in house.lines(tick))
    page = house.instance.fetch_observations(dg.AssetRecordsFilter(house.layout(waiting)), limit=1).records[0]
    assert page.asset_observation is not None
    text = str(page.asset_observation.metadata["state"].value)
    assert text.startswith("due: 6 sorted runs >= 5; waits for the budget (1 of 1 table), place 1; since ")
    assert "place 1, as soon as a table in work ends" in str(page.asset_observation.metadata["next step"].value)
    monkeypatch.setattr(table_sweep, "_MOST_FULL_TEXT", 0)
    house.tick(names.SORTED_RUN_SENSOR)
    folded = house.lines(house.tick(names.SORTED_RUN_SENSOR))
    assert f"unchanged: due (1): {waiting}" in folded, "the state of the page, not that of used-up bytes"


def test_a_run_leaves_its_page_with_state_and_next_step_first(house: House) -> None:
    commit(house.warehouse.table(PLAIN), 5)
    (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
    assert house.run(request).success
    metadata = house.materialisation(PLAIN)
    assert list(metadata)[:3] == ["state", "next step", "action"]
    assert metadata["state"].startswith("healthy: 1 sorted run < 5")


def test_partitions_show_their_own_state_and_the_table_the_worst(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    table = house.warehouse.table(PARTED)
    commit(table, 4, day="a")
    commit(table, 1, day="b")
    house.tick(names.IDLE_SENSOR)
    tick = house.tick(names.SORTED_RUN_SENSOR)
    by_partition = {
        event.partition: str(event.metadata["state"].value)
        for event in tick.asset_events
        if event.asset_key == house.layout(PARTED) and "state" in getattr(event, "metadata", {})
    }
    assert by_partition["dt=a"].startswith("due: dt=a: 5 sorted runs >= 5")
    assert by_partition["dt=b"].startswith("healthy: dt=b: ")
    (request,) = tick.run_requests
    house.instance.add_run(dg.DagsterRun(job_name=ASSET_JOB, tags=request.tags, status=dg.DagsterRunStatus.FAILURE))
    (waits,) = states(house, PARTED)
    assert waits.startswith("in back-off until ") and "dt=a: plan " in waits
    later = table_cache.wall_ms() + 11 * 60_000
    monkeypatch.setattr(table_cache, "wall_ms", lambda: later)
    assert house.tick(names.SORTED_RUN_SENSOR).run_requests, "the promise is kept"
