"""Jobs of all actions: typed by the action's own arguments, refused in one line, and what waits for approval is applied by its hash alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dagster as dg
import pytest
import yaml

from dredge.orchestration.ops import layout_ops
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB
from dredge.platform_core.obstacles import find_blocking_failure
from lsm_core.maintenance import MaintenancePlan, all_actions, plan_maintenance, read_ledger, save_plan, waiting_plans
from lsm_core.metadata import manifests, snapshots
from tests.support.platform import LAYOUT_CHECKS, House, commit, keyed_table, open_house

TABLE, PARTED = "shop.orders", "shop.parted"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, TABLE, partitioned=False), 5)
    parted = keyed_table(root, PARTED)
    commit(parted, 2, day="a,b")
    commit(parted, 2, day="c")
    with open_house(root) as found:
        yield found


def launch(house: House, job: str, **config: Any) -> dg.ExecuteInProcessResult:
    """What the launchpad does: the job with its configuration as somebody wrote it."""
    return house.execute(job, run_config=config)


def failure(result: dg.ExecuteInProcessResult) -> str:
    """The one line of a run that was refused."""
    assert not result.success
    (event,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    output = event.step_failure_data.user_failure_data
    assert output is not None, event.step_failure_data.error
    assert output.description is not None
    assert "\n" not in output.description
    return output.description


def said(house: House, result: dg.ExecuteInProcessResult) -> list[str]:
    """What the op wrote into the run's log."""
    entries = house.instance.all_logs(result.run_id)
    return [entry.user_message for entry in entries if entry.dagster_event is None and entry.level >= 20]


def test_every_action_has_a_job_that_takes_its_own_arguments(house: House) -> None:
    jobs = {job.name: job for job in house.repository.get_all_jobs()}
    for action in all_actions():
        schema = jobs[action.name].run_config_schema.config_type
        offered = {argument.name for argument in action.arguments if argument.kind.value != "time"}
        more = {"passes"} if action.name == "recover" else set()
        assert set(schema.fields) == {"table", "dry_run"} | offered | more
        required = {name for name, field in schema.fields.items() if field.is_required}
        assert required == {"table"} | {argument.name for argument in action.arguments if argument.required}
    assert set(jobs["apply_plan"].run_config_schema.config_type.fields) == {"table", "hash", "approved_by"}


def test_what_is_planned_waits_is_listed_and_is_applied_by_its_hash_alone(house: House) -> None:
    planned = launch(house, "plan_only", table=TABLE, action="compact", arguments={"full": True})
    assert planned.success
    store = house.warehouse.store(TABLE)
    assert snapshots.latest_id(store) == 5
    (waiting,) = waiting_plans(store)
    assert f"{TABLE}: waits for approval: plan {waiting.plan.hash}" in said(house, planned)[1]
    run = house.instance.get_run_by_id(planned.run_id)
    assert run is not None
    assert run.tags[names.TAG_WAITS] == waiting.plan.hash

    ranking = house.execute(ASSET_JOB, assets=[names.WarehouseNames.of(str(house.root)).warehouse_health_key()])
    assert ranking.success
    (event,) = ranking.get_asset_materialization_events()
    table = event.materialization.metadata["plans that wait for approval"].value
    link = re.search(r"\[([0-9a-f]{32})\]\((\S+)\)", str(table))
    assert link is not None
    assert link[1] == waiting.plan.hash
    asked = yaml.safe_load(parse_qs(urlsplit(link[2]).query)["config"][0])
    assert urlsplit(link[2]).path == "/locations/dredge/jobs/apply_plan/playground/setup"

    commit(house.warehouse.table(TABLE), 1)  # new files make no plan stale
    applied = launch(house, "apply_plan", **{**asked, "approved_by": "ann"})
    assert applied.success
    entry = read_ledger(store)[-1]
    assert (entry.plan_hash, entry.approved_by) == (waiting.plan.hash, f"ann (dagster run {applied.run_id})")
    assert house.materialisation(TABLE)["compared"].startswith("V1: snapshots 6 and 7")
    assert not waiting_plans(store)
    keys = [dg.AssetCheckKey(house.layout(TABLE), check) for check in LAYOUT_CHECKS]
    found = house.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    assert {(key.name, item.run_id, item.status.value) for key, item in found.items()} == {
        (check, applied.run_id, "SUCCEEDED") for check in LAYOUT_CHECKS
    }
    again = launch(house, "apply_plan", **{**asked, "approved_by": "ann"})
    assert again.success
    assert said(house, again)[-1] == f"{TABLE}: already applied, snapshot 7"


def stale_plan(house: House) -> MaintenancePlan:
    """A saved plan whose files somebody else compacted meanwhile."""
    store = house.warehouse.store(TABLE)
    plan = plan_maintenance(store, "compact", full=True)
    save_plan(store, plan)
    commit(house.warehouse.table(TABLE), 1)
    house.warehouse.table(TABLE).compact(full=True)
    return plan


def test_an_unknown_hash_a_stale_one_and_no_approver_are_refused_in_one_line(house: House) -> None:
    unknown = "0" * 32
    line = failure(launch(house, "apply_plan", table=TABLE, hash=unknown, approved_by="ann"))
    assert line == f"PlanStale: the plan for table {TABLE} is stale: there is no saved plan with hash {unknown}"
    assert "approved_by" in failure(launch(house, "apply_plan", table=TABLE, hash=unknown, approved_by=" "))
    plan = stale_plan(house)
    before = snapshots.latest_id(house.warehouse.store(TABLE))
    line = failure(launch(house, "apply_plan", table=TABLE, hash=plan.hash, approved_by="ann"))
    assert "PlanStale" in line
    assert plan.hash in line
    assert snapshots.latest_id(house.warehouse.store(TABLE)) == before


def test_an_argument_that_does_not_fit_is_refused_in_one_line(house: House) -> None:
    line = failure(launch(house, "plan_only", table=TABLE, arguments={"fool": True}))
    assert "'fool'; accepted: compact takes full, compact_strategy, partitions" in line
    line = failure(launch(house, "plan_only", table=TABLE, arguments={"full": "false"}))
    assert line == f"InvalidOption: option 'full' of table {TABLE} cannot be 'false'; accepted: true or false"
    assert "dt=zz" in failure(launch(house, "compact", table=PARTED, partitions=["dt=zz"]))


def test_two_runs_on_one_table_do_one_thing_and_one_line_says_why(house: House) -> None:
    other = house.instance.create_run_for_job(
        house.repository.get_job("compact"), run_config={"table": TABLE}, tags={names.TAG_TABLE: TABLE}
    )
    house.instance.handle_new_event(start_of(other))
    line = failure(launch(house, "compact", table=TABLE, full=True))
    assert (
        line
        == f"{TABLE}: run {other.run_id[:8]} is working on it: nothing was done; launch this again after it has ended"
    )
    assert snapshots.latest_id(house.warehouse.store(TABLE)) == 5
    house.instance.report_run_canceled(house.instance.get_run_by_id(other.run_id))
    assert launch(house, "compact", table=TABLE, full=True).success, "a canceled run blocks nothing"


def start_of(run: dg.DagsterRun) -> dg.EventLogEntry:
    """What a run's process says first."""
    event = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=run.job_name)
    return dg.EventLogEntry(
        error_info=None, level=10, user_message="", run_id=run.run_id, timestamp=time.time(), dagster_event=event
    )


def test_a_comma_in_a_partitions_value_is_a_comma(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_ops, "COMPARE_LIMIT", 0)
    table = house.warehouse.table(PARTED)
    before = table.to_arrow().sort_by("id")
    assert launch(house, "compact", table=PARTED, full=True, partitions=["dt=a,b"]).success
    assert {bucket.partition_text: bucket.sorted_runs for bucket in table.health()} == {"dt=a,b": 1, "dt=c": 2}
    metadata = house.materialisation(PARTED, "dt=a,b")
    assert metadata["action"] == "compact"
    assert metadata["compared"].startswith("V1: snapshots 4 and 5: "), (
        "no check follows in a job, however much it rewrote"
    )
    for check in (names.MERGED_VIEW_CHECK, names.TREE_CHECK):
        newest = house.instance.event_log_storage.get_latest_asset_check_execution_by_key(
            [dg.AssetCheckKey(house.layout(PARTED), check)]
        )
        assert [(bucket.partition, bucket.status.value) for bucket in newest.values()] == [("dt=a,b", "SUCCEEDED")]
    assert table.to_arrow().sort_by("id") == before


def test_a_runs_page_leads_to_the_job_that_takes_it_back(house: House) -> None:
    store = house.warehouse.store(TABLE)
    before = {item["file_name"] for item in files_of(house)}
    done = house.maintain(TABLE)
    assert done.success
    link = re.search(r"\((\S+)\)", house.materialisation(TABLE)["undo"])
    assert link is not None
    query = parse_qs(urlsplit(link[1]).query)
    asked = yaml.safe_load(query["config"][0])
    assert query["tags[0][key]"] + query["tags[0][value]"] == [names.TAG_TABLE, TABLE]
    assert asked == {"table": TABLE, "run_id": read_ledger(store)[-1].run_id}
    run = house.instance.get_run_by_id(done.run_id)
    assert run is not None
    assert run.tags[names.TAG_UNDO] == asked["run_id"]
    assert any(line == f"to undo this run launch the job undo with {asked}" for line in said(house, done))
    undone = launch(house, "undo", **asked)
    assert undone.success
    assert (len(files_of(house)), len(before)) == (5, 5)
    assert "undo" not in house.materialisation(TABLE), "an undo is taken back by compacting again"
    assert house.materialisation(TABLE)["action"] == "undo"


def files_of(house: House) -> list[dict[str, Any]]:
    """The live files of the table."""
    latest = snapshots.latest(house.warehouse.store(TABLE))
    assert latest is not None
    return list(manifests.live_entries(house.warehouse.store(TABLE), latest).to_pylist())


def test_a_failed_comparison_blocks_all_but_repairs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = layout_ops.VerifyVerdict(ok=False, level="V1", text="snapshots 5 and 6: DIFFERENT in bucket-0")
    with monkeypatch.context() as patched:
        patched.setattr(layout_ops, "_compare_snapshots", lambda *_: wrong)
        result = failure(launch(house, "compact", table=TABLE))
        assert result.startswith(
            f"{wrong.text}; tag 'before-compaction-6' keeps the files of snapshot 5; undo: `dredge undo "
        )
    line = failure(launch(house, "expire_snapshots", table=TABLE, retain_max=1, retain_min=1, older_than_ms="0 s"))
    assert line.startswith(f"{TABLE}: blocked: {names.MERGED_VIEW_CHECK} failed")
    assert line.endswith("nothing was done; repair the table, then execute the check again")
    ledger = read_ledger(house.warehouse.store(TABLE))
    run_id = next(entry.run_id for entry in ledger if entry.snapshot_id == 6 and entry.action == "compact")
    assert launch(house, "undo", table=TABLE, run_id=run_id).success
    assert find_blocking_failure(house.instance, house.layout(TABLE)) is not None, "until somebody executes the check"
