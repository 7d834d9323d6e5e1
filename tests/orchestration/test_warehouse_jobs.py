"""Jobs over many tables: one plan for all, weekly plans of orphan files, the nightly audit, and the first look at a warehouse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.orchestration.ops import adopt_op
from dredge.orchestration.sensors.run_requests import RunRequestBuilder
from dredge.platform_core import names
from dredge.platform_core.obstacles import find_blocking_failure
from dredge.platform_core.policies import policy_source
from dredge.platform_core.policies.windows import DAYS
from dredge.platform_core.resources.settings import Settings
from lsm_core.maintenance import apply_plan, read_ledger, waiting_plans
from lsm_core.maintenance.checks.metadata_validity import BrokenInvariant
from lsm_core.maintenance.history_health import read_history_health
from lsm_core.maintenance.score import history_parts
from lsm_core.metadata import snapshots
from tests.orchestration.test_action_jobs import failure, said
from tests.support.platform import House, commit, evaluations, keyed_table, open_house, sabotage


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, "shop.bad", partitioned=False), 5)
    commit(keyed_table(root, "shop.good", partitioned=False), 6)
    parted = keyed_table(root, "shop.parted")
    for day in ("a", "b"):
        commit(parted, 1, day=day)
    with open_house(root) as found:
        yield found


def newest(house: House, table: str) -> int | None:
    return snapshots.latest_id(house.warehouse.store(table))


def output(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What the op told on its page."""
    (event,) = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def test_many_tables_are_maintained_by_one_plan_and_one_that_fails_or_rests_stops_no_other(house: House) -> None:
    maintain = {"pattern": "shop.*", "actions": ["compact"]}
    dry = house.execute(names.MAINTAIN_JOB, run_config={**maintain, "dry_run": True})
    assert dry.success
    assert output(dry)["planned actions in order"].count("| compact |") == 2
    assert newest(house, "shop.good") == 6
    data = next(Path(house.warehouse.store("shop.bad").root).glob("bucket-0/*.parquet"))
    data.write_bytes(b"torn")
    run = house.instance.create_run_for_job(
        house.repository.get_job(names.MAINTAIN_JOB), run_config=maintain, tags={names.TAG_TABLE: "shop.good"}
    )
    rests = house.execute(names.MAINTAIN_JOB, run_config={**maintain, "pattern": "shop.good"})
    assert rests.success
    at_work = f"compact: 6 sorted runs >= 5; run {run.run_id[:8]} is working on it"
    assert f"shop.good: left alone (in flight): {at_work}" in said(house, rests)
    house.instance.report_run_canceled(run)
    done = house.execute(names.MAINTAIN_JOB, run_config=maintain)
    assert "shop.bad: compact: CorruptFile" in failure(done)
    assert newest(house, "shop.good") == 7
    assert house.materialisation("shop.good")["compared"].startswith("V1: snapshots 6 and 7")
    assert read_ledger(house.warehouse.store("shop.good"))[-1].approved_by == f"dagster run {done.run_id}"
    resumed = house.execute(names.MAINTAIN_JOB, run_config={"resume": output(dry)["plan"]})
    assert "shop.bad" in failure(resumed), "tried again; what was done is told, and not repeated"
    assert "shop.good: already applied, snapshot 7" in said(house, resumed)
    assert newest(house, "shop.good") == 7


def test_unattended_it_keeps_to_the_hours_and_its_bytes_are_spent(house: House, tmp_path: Path) -> None:
    far = DAYS[(datetime.now(UTC).weekday() + 3) % 7]
    closed = f"{{time_zone: UTC, windows: [{{from: '00:00', to: '24:00', days: [{far}]}}]}}"
    policies = tmp_path / "policies.yaml"
    policies.write_text(f"tables: {{shop.good: {{off_peak: {closed}}}}}\nbudget: {{bytes_an_hour: 1 gb}}")
    house.environment["DREDGE_POLICIES"] = str(policies)
    house.load()
    maintain = {"actions": ["compact"], "unattended": True}
    done = house.execute(names.MAINTAIN_JOB, run_config=maintain)
    assert done.success
    assert "shop.good: left alone (not in its hours): " in "\n".join(said(house, done))
    assert (newest(house, "shop.good"), newest(house, "shop.bad")) == (6, 6)
    left = RunRequestBuilder(house.instance, house.warehouse).budget(policy_source(str(policies)).current())
    assert left.spent > 0
    assert house.execute(names.MAINTAIN_JOB, run_config={"actions": ["compact"]}).success
    assert newest(house, "shop.good") == 7, "by hand no hours hold"


def test_one_plan_for_many_tables_keeps_what_the_policy_says(house: House, tmp_path: Path) -> None:
    policies = tmp_path / "policies.yaml"
    policies.write_text("tables: {shop.good: {retention: {snapshots: {retain_min: 1, retain_max: 2}}}}")
    house.environment["DREDGE_POLICIES"] = str(policies)
    house.load()
    done = house.execute(names.MAINTAIN_JOB, run_config={"actions": ["expire_snapshots"]})
    assert done.success
    kept = {table: snapshots.list_ids(house.warehouse.store(table)) for table in ("shop.good", "shop.bad")}
    assert kept == {"shop.good": [5, 6], "shop.bad": [1, 2, 3, 4, 5]}


def test_orphan_files_are_planned_and_wait(house: House, tmp_path: Path) -> None:
    store = house.warehouse.store("shop.good")
    stray = Path(store.root, "bucket-0", "data-00000000-0000-0000-0000-000000000000-0.parquet")
    stray.write_bytes(b"x" * 10)
    os.utime(stray, (0, 0))
    policies = tmp_path / "policies.yaml"
    policies.write_text("tables: {shop.good: {retention: {orphans: {older_than: 50000 d}}}}")
    house.environment["DREDGE_POLICIES"] = str(policies)
    house.load()
    assert house.execute(names.ORPHAN_PLANS_JOB).success
    assert not waiting_plans(store), "by its policy it is too young"
    policies.write_text("")
    done = house.execute(names.ORPHAN_PLANS_JOB)
    assert done.success
    (waiting,) = waiting_plans(store)
    assert (waiting.plan.action, len(waiting.plan.items)) == ("orphans", 1)
    assert waiting.plan.hash in output(done)["plans"]
    assert stray.exists()
    debt = read_history_health(store)
    assert (debt.orphans, debt.orphan_bytes) == (1, 10)
    assert history_parts(debt, store.options)[-1].text == "orphan files that wait for approval to go: 1, 10 bytes"
    apply_plan(store, waiting.plan)
    assert read_history_health(store).orphans == 0, "it waits in the trash now"


def test_the_audit_finds_what_was_changed_behind_everybodys_back_and_goes_round(house: House) -> None:
    for table in ("shop.bad", "shop.good"):
        house.warehouse.table(table).compact(full=True)
    house.warehouse.table("shop.parted").compact(full=True)
    first = house.execute(names.AUDIT_JOB, run_config={"tables": 1})
    assert first.success
    assert evaluations(first)["merged_view_unchanged"][0]
    sabotage(house.warehouse.table("shop.good"), "drop")
    second = house.execute(names.AUDIT_JOB, run_config={"tables": 1})
    assert failure(second).startswith("shop.good: snapshot 7 cannot be trusted: ")
    assert "snapshot 7 cannot be trusted" in str(find_blocking_failure(house.instance, house.layout("shop.good")))
    assert "before-compaction-7" in house.warehouse.table("shop.good").tags()
    third = house.execute(names.AUDIT_JOB, run_config={"tables": 1})
    assert third.success, "the third table, which has its turn before the others have their second"
    assert any(line.startswith("shop.parted: snapshots 2 and 3") for line in said(house, third))


def test_severities_of_the_policy_hold_for_the_audit_too(house: House, tmp_path: Path) -> None:
    for table in ("shop.bad", "shop.good"):
        house.warehouse.table(table).compact(full=True)
        sabotage(house.warehouse.table(table), "drop")
    policies = tmp_path / "policies.yaml"
    checks = "shop.bad: {checks: {merged_view_unchanged: off}}, shop.good: {checks: {merged_view_unchanged: warn}}"
    policies.write_text(f"tables: {{{checks}}}")
    house.environment["DREDGE_POLICIES"] = str(policies)
    house.load()
    assert failure(house.execute(names.AUDIT_JOB)).startswith("shop.good: snapshot 7 cannot be trusted: ")
    assert find_blocking_failure(house.instance, house.layout("shop.bad")) is None
    assert find_blocking_failure(house.instance, house.layout("shop.good")) is None, "a warning"


def test_two_snapshots_that_somebody_names_are_compared(house: House) -> None:
    same = house.warehouse.table("shop.good").compact(full=True).snapshot_id
    asked = {"table": "shop.good", "snapshot_a": 6, "snapshot_b": same}
    assert house.execute(names.VERIFY_JOB, run_config=asked).success
    assert "differ in bucket-0" in failure(house.execute(names.VERIFY_JOB, run_config={**asked, "snapshot_a": 5}))


def test_a_first_look_makes_every_table_known_and_its_check_green(house: House) -> None:
    done = house.execute(names.ADOPT_JOB)
    assert done.success
    found = done.get_asset_check_evaluations()
    assert {(item.asset_key, item.partition) for item in found if item.passed} == {
        (house.layout("shop.bad"), None),
        (house.layout("shop.good"), None),
        (house.layout("shop.parted"), "dt=a"),
        (house.layout("shop.parted"), "dt=b"),
    }
    assert sorted(house.instance.get_dynamic_partitions("shop.parted")) == ["dt=a", "dt=b"]
    assert output(done)["tables"].count("form a valid tree") == 3


def test_a_first_look_blocks_the_partition_that_fails_and_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (2, 2, [BrokenInvariant("dt=b", "dt=b/bucket-0: level 5 overlaps")])
    whole = (1, 1, [BrokenInvariant("", "bucket-0: level 5 overlaps")])
    found = {"shop.parted": broken, "shop.bad": whole}
    sound = adopt_op.inspect_tree
    monkeypatch.setattr(adopt_op, "inspect_tree", lambda store, _: found.get(store.name) or sound(store, None))
    assert "shop.parted: 1 broken invariant: dt=b/bucket-0: level 5 overlaps" in failure(house.execute(names.ADOPT_JOB))
    layout = house.layout("shop.parted")
    assert find_blocking_failure(house.instance, layout, "dt=a") is None
    assert "level 5 overlaps" in str(find_blocking_failure(house.instance, layout, "dt=b"))
    assert "level 5 overlaps" in str(find_blocking_failure(house.instance, house.layout("shop.bad")))
    assert find_blocking_failure(house.instance, house.layout("shop.good")) is None


def test_schedules_have_their_crons_from_the_environment_and_what_they_launch_is_valid(house: House) -> None:
    settings = Settings.from_environment({"DREDGE_AUDIT_CRON": "@weekly"})
    assert (settings.audit_cron, settings.orphans_cron, settings.maintenance_cron) == (
        "@weekly",
        "11 3 * * 0",
        "40 2 * * *",
    )
    schedules = {schedule.name: schedule for schedule in house.repository.schedule_defs}
    assert {"maintain_schedule", "orphan_plans_schedule", "audit_schedule"} < set(schedules)
    with dg.build_schedule_context(
        instance=house.instance,
        scheduled_execution_time=datetime(2024, 5, 5, 2, 40, tzinfo=UTC),
        resources={"warehouse": house.warehouse},
    ) as context:
        request = schedules["maintain_schedule"].evaluate_tick(context).run_requests[0]
    dg.validate_run_config(house.repository.get_job(names.MAINTAIN_JOB), request.run_config)


def test_a_deep_check_reports_damage_as_the_nightly_check_of_pages_does(house: House) -> None:
    config = {"table": "shop.good"}
    sound = house.execute(names.DEEP_CHECK_JOB, run_config=config)
    assert sound.success and evaluations(sound)["pages_readable"][0]
    damaged = min(Path(house.warehouse.table("shop.good").store.root).rglob("data-*.parquet"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 4] ^= 1
    damaged.write_bytes(data)
    assert str(damaged) in failure(house.execute(names.DEEP_CHECK_JOB, run_config=config))
