"""A maintenance run: observe, plan, apply, verify, record; told with numbers, safe to repeat, harmless where nothing is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.checks.merged_view import published_snapshot
from dredge.orchestration.ops import layout_ops, retention_op
from dredge.platform_core import names
from dredge.platform_core.resources import LedgerResource
from lsm_core import SchemaChange
from lsm_core.errors import CommitConflict, CommitUnknown, StorageFull
from lsm_core.maintenance import (
    MaintenancePlan,
    apply_plan,
    load_plan,
    plan_maintenance,
    read_ledger,
    save_plan,
)
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from tests.support.platform import LAYOUT_CHECKS, House, append_table, commit, evaluations, keyed_table, open_house
from tests.support.samples import one_in

TABLE = "shop.orders"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, partitioned=False), 5)
    with open_house(root) as found:
        yield found


def test_a_run_reads_like_the_sentence_and_tells_its_numbers(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    before = table.to_arrow().sort_by("id")
    result = house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0])
    assert result.success
    steps = [
        event.step_key.rsplit(".", 1)[-1]
        for event in result.all_events
        if event.event_type_value == "STEP_SUCCESS" and event.step_key
    ]
    assert steps[:5] == ["observe", "plan", "apply", "verify", "record"]
    assert set(evaluations(result)) == LAYOUT_CHECKS
    assert all(passed for passed, _ in evaluations(result).values())
    metadata = house.materialisation("shop.orders")
    assert (metadata["action"], metadata["snapshot before"], metadata["snapshot published"]) == ("compact", 5, 6)
    assert (metadata["sorted runs (worst bucket)"], metadata["files"]) == (1, 1)
    assert metadata["rows in"] == 250
    assert metadata["rows in"] - metadata["rows out"] == int(metadata["rows dropped"].split()[0])
    assert "5 -> 1 sorted runs" in metadata["levels"]
    assert "| 0 | 1 | 0 | 1 |" in metadata["buckets"]
    assert metadata["why"].startswith("5 sorted runs >= 5")
    assert metadata["verification"].startswith("V2")
    assert table.to_arrow().sort_by("id") == before


def test_a_repeated_run_finds_nothing_to_do_and_says_so(house: House) -> None:
    request = house.tick(names.SORTED_RUN_SENSOR).run_requests[0]
    assert house.run(request).success
    again = house.run(request)
    assert again.success
    metadata = house.materialisation("shop.orders")
    assert metadata["action"] == "nothing to do"
    assert snapshots.latest_id(house.warehouse.store("shop.orders")) == 6
    assert evaluations(again)["merged_view_unchanged"] == (
        True,
        "the last run published no snapshot, so no row could change",
    )


def test_a_person_can_ask_for_a_full_compaction(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    assert house.maintain(TABLE).success
    commit(table, 2)
    node = names.WarehouseNames.of(str(house.root)).node_name("shop.orders")
    assert house.maintain(TABLE, run_config={"ops": {node: {"config": {"full": True}}}}).success
    metadata = house.materialisation("shop.orders")
    assert (metadata["action"], metadata["sorted runs (worst bucket)"], metadata["why"]) == (
        "compact",
        1,
        "asked for by a person",
    )


def test_a_run_applies_the_plan_it_was_started_with_also_when_commits_came_since(house: House) -> None:
    request = house.tick(names.SORTED_RUN_SENSOR).run_requests[0]
    plan = request.tags[names.TAG_PLAN]
    assert load_plan(house.warehouse.store("shop.orders"), plan).base_snapshot == 5
    commit(house.warehouse.table("shop.orders"), 2)
    assert house.run(request).success
    metadata = house.materialisation("shop.orders")
    assert metadata["plan"] == plan
    assert "plan replaced" not in metadata
    assert (metadata["snapshot before"], metadata["sorted runs (worst bucket)"]) == (7, 3)
    assert "7 -> 3 sorted runs" in metadata["levels"]


def overtaken(house: House) -> None:
    """Somebody else compacts all, and two commits follow."""
    table = house.warehouse.table("shop.orders")
    table.compact(full=True)
    commit(table, 2)


def other_options(house: House) -> None:
    house.warehouse.catalog().alter_table(
        "shop.orders", [SchemaChange.set_option("num-sorted-run.compaction-trigger", "4")]
    )


def no_plan(house: House) -> None:
    for path in Path(house.warehouse.store("shop.orders").root, "dredge", "plans").iterdir():
        path.unlink()


def torn_plan(house: House) -> None:
    for path in Path(house.warehouse.store("shop.orders").root, "dredge", "plans").iterdir():
        path.write_text("{")


@pytest.mark.parametrize(
    ("change", "why"),
    one_in(
        2,
        [
            (overtaken, "PlanStale: plan {}: "),
            (other_options, "num-sorted-run.compaction-trigger was None and is '4'"),
            (no_plan, "PlanStale: plan {}: "),
            (torn_plan, "CorruptFile: plan {}: "),
        ],
    ),
)
def test_a_plan_that_cannot_be_applied_says_why_and_is_replaced_with_both_hashes_told(
    house: House, change: Callable[[House], None], why: str
) -> None:
    request = house.tick(names.SORTED_RUN_SENSOR).run_requests[0]
    plan = request.tags[names.TAG_PLAN]
    change(house)
    commit(house.warehouse.table("shop.orders"), 3)
    newest = snapshots.latest_id(house.warehouse.store("shop.orders"))
    result = house.run(request)
    assert result.success
    metadata = house.materialisation("shop.orders")
    assert metadata["plan"] != plan
    assert why.format(plan) in metadata["plan replaced"]
    assert metadata["plan replaced"].endswith(f"; replanned over snapshot {newest} as {metadata['plan']}")
    assert plan in metadata["plan replaced"]
    assert (metadata["snapshot before"], metadata["sorted runs (worst bucket)"]) == (newest, 1)


def test_a_plan_that_somebody_else_applied_is_not_applied_again(house: House) -> None:
    request = house.tick(names.SORTED_RUN_SENSOR).run_requests[0]
    table = house.warehouse.table("shop.orders")
    apply_plan(table.store, load_plan(table.store, request.tags[names.TAG_PLAN]))
    result = house.run(request)
    assert result.success
    metadata = house.materialisation("shop.orders")
    assert (metadata["action"], metadata["outcome"]) == ("nothing to do", "already applied, snapshot 6")
    assert "plan replaced" not in metadata
    assert snapshots.latest_id(table.store) == 6


def test_a_stale_plan_of_another_action_is_not_replaced_by_a_compaction(house: House) -> None:
    store = house.warehouse.store("shop.orders")
    plan = plan_maintenance(store, "rescale", bucket_num=3)
    save_plan(store, plan)
    other_options(house)
    node = names.WarehouseNames.of(str(house.root)).node_name("shop.orders")
    result = house.maintain(TABLE, run_config={"ops": {node: {"config": {"plan": plan.hash}}}})
    assert not result.success
    lines = [str(event.event_specific_data) for event in result.all_events if event.is_failure]
    assert any(f"PlanStale: plan {plan.hash} (rescale): " in text for text in lines)
    assert snapshots.latest_id(store) == 5


def test_a_person_can_ask_for_any_action_of_the_registry(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    before = table.to_arrow().sort_by("id")
    node = names.WarehouseNames.of(str(house.root)).node_name("shop.orders")

    def run(config: dict[str, Any]) -> dg.ExecuteInProcessResult:
        return house.maintain(TABLE, run_config={"ops": {node: {"config": config}}})

    rescaled = run({"action": "rescale", "arguments": {"bucket_num": 3}})
    assert rescaled.success
    metadata = house.materialisation("shop.orders")
    assert (metadata["action"], metadata["snapshot published"], metadata["rows out"]) == ("rescale", 6, 150)
    assert evaluations(rescaled)["merged_view_unchanged"] == (True, "snapshots 5 and 6 have the same rows (V1)")
    expired = run({"action": "expire_snapshots", "arguments": {"retain_max": 2, "retain_min": 1}})
    assert expired.success
    metadata = house.materialisation("shop.orders")
    assert (metadata["action"], metadata["expired"]) == ("expire_snapshots", "1, 2, 3, 4")
    assert [snapshot.id for snapshot in table.snapshots()] == [5, 6]
    assert house.warehouse.table("shop.orders").to_arrow().sort_by("id") == before
    for config, message in (
        ({"action": "polish"}, "polish"),
        ({"action": "compact", "arguments": {"colour": "red"}}, "colour"),
    ):
        failed = run(config)
        assert not failed.success
        assert any(message in str(event.event_specific_data) for event in failed.all_events if event.is_failure)


def test_a_plan_of_another_partition_is_refused(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 4, day="a")
    commit(table, 5, day="b")
    with open_house(tmp_path / "wh") as house:
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        result = house.maintain(TABLE, "dt=a", run_config=request.run_config)
        assert not result.success
        lines = [str(event.event_specific_data) for event in result.all_events if event.is_failure]
        assert any("is for partition dt=b, this run for dt=a" in text for text in lines)
    assert snapshots.latest_id(table.store) == 9


def test_a_lost_race_is_tried_again_with_a_new_plan(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def losing_once(store: Any, plan: MaintenancePlan, **rest: Any) -> Any:
        tries.append(plan.hash)
        if len(tries) == 1:
            commit(house.warehouse.table("shop.orders"))
            raise CommitConflict("another compaction", ["data-1.parquet"], "somebody", 6)
        return apply_plan(store, plan, **rest)

    monkeypatch.setattr(layout_ops, "apply_plan", losing_once)
    assert house.maintain(TABLE).success
    assert len(tries) == 2
    assert tries[0] != tries[1]
    assert house.materialisation("shop.orders")["snapshot published"] == 7


def test_a_commit_whose_outcome_was_unknown_is_found_and_verified(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsure(store: Any, plan: MaintenancePlan, **rest: Any) -> Any:
        apply_plan(store, plan, **rest)
        raise CommitUnknown(6, "the connection broke")

    monkeypatch.setattr(layout_ops, "apply_plan", unsure)
    result = house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0])
    assert result.success
    metadata = house.materialisation("shop.orders")
    assert metadata["snapshot published"] == 6
    assert (metadata["rows in"], metadata["rows out"], metadata["files in"], metadata["files out"]) == (250, 150, 5, 1)
    assert metadata["bytes in"] > metadata["bytes out"] > 0
    assert evaluations(result)["merged_view_unchanged"] == (True, "snapshots 5 and 6 have the same rows (V1)")


def test_a_large_rewrite_is_compared_once_by_the_check_also_after_an_unknown_commit(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsure(store: Any, plan: MaintenancePlan, **rest: Any) -> Any:
        apply_plan(store, plan, **rest)
        raise CommitUnknown(6, "the connection broke")

    monkeypatch.setattr(layout_ops, "apply_plan", unsure)
    monkeypatch.setattr(layout_ops, "COMPARE_LIMIT", 1000)
    monkeypatch.setattr(layout_ops, "_compare_snapshots", lambda *_: pytest.fail("it was compared by the op as well"))
    result = house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0])
    assert result.success
    compared = house.materialisation("shop.orders")["compared"]
    assert "rewritten: compared by the check merged_view_unchanged alone, in the run's own process" in compared
    assert evaluations(result)["merged_view_unchanged"] == (True, "snapshots 5 and 6 have the same rows (V1)")


def test_the_check_learns_what_was_published_from_the_run_and_says_when_that_is_gone(house: House) -> None:
    result = house.maintain(TABLE)
    assert result.success
    layout = house.layout("shop.orders")
    assert published_snapshot(house.instance, layout, "shop.orders", None) == 6
    house.instance.report_runless_asset_event(dg.AssetObservation(layout, metadata={"snapshot published": 99}))
    assert published_snapshot(house.instance, layout, "shop.orders", None) == 6
    house.instance.run_storage.delete_run(result.run_id)
    with pytest.raises(LookupError, match=rf"run {result.run_id[:8]}, which maintained shop\.orders last, was deleted"):
        published_snapshot(house.instance, layout, "shop.orders", None)


def test_a_run_over_a_partition_touches_no_other(tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 4, day="a")
    commit(table, 5, day="b")
    with open_house(tmp_path / "wh") as house:
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        assert request.partition_key == "dt=b"
        before = house.instance.get_materialized_partitions(house.layout("shop.orders"))
        assert house.run(request).success
        assert {bucket.partition_text: bucket.sorted_runs for bucket in table.health()} == {"dt=a": 4, "dt=b": 1}
        assert house.materialisation("shop.orders", "dt=b")["files"] == 1
        result = house.instance.get_materialized_partitions(house.layout("shop.orders"))
        assert result - before == {"dt=b"}


def test_retention_expires_and_sweeps_every_table_and_skips_a_blocked_one(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 h"}
    tables = [keyed_table(root, f"shop.t{number}", partitioned=False, **kept) for number in range(2)]
    changes = {**kept, "changelog.num-retained.min": "3", "changelog.num-retained.max": "3"}
    tables.append(keyed_table(root, "shop.t2", partitioned=False, **changes))
    append_table(root)
    for table in tables:
        commit(table, 5)
    with open_house(root) as house:
        house.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                house.layout("shop.t1"), names.MERGED_VIEW_CHECK, passed=False, description="rows differ"
            )
        )
        result = house.execute(names.RETENTION_JOB)
        assert result.success
        seen = {
            event.asset_key.path[2].removesuffix("_layout"): event
            for event in result.all_events
            if event.event_type_value == "ASSET_OBSERVATION" and event.asset_key
        }
        assert set(seen) == {"t0", "t2"}, "of `log` nothing is old enough, of `t1` nothing may go"
        longer = seen["t2"].asset_observation_data.asset_observation
        assert "the earliest is now 4; their changelogs stay" in longer.description
        assert "expired changelogs 1 to 2; the earliest is now 3" in longer.description
        assert longer.metadata["expire_changelogs: expired"].value == "1, 2"
        observation = seen["t0"].asset_observation_data.asset_observation
        assert "expired snapshots 1 to 3; the earliest is now 4" in observation.description
        metadata = observation.metadata
        assert metadata["expire_snapshots: expired"].value == "1, 2, 3"
        assert metadata["expire_snapshots: files recorded"].value > 0
        assert metadata["trash: files deleted"].value == 0
        assert [snapshot.id for snapshot in tables[0].snapshots()] == [4, 5]
        assert [snapshot.id for snapshot in tables[1].snapshots()] == [1, 2, 3, 4, 5]


def test_retention_leaves_a_table_with_a_run_at_work_alone_and_names_the_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 h"}
    tables = [keyed_table(tmp_path / "wh", f"shop.t{number}", partitioned=False, **kept) for number in range(3)]
    for table in tables:
        commit(table, 5)

    def planned(store: TableStore, action: str, runner: Any) -> Any:
        if store.name == "shop.t0":
            raise StorageFull("manifest-0")
        return plan_maintenance(store, action, runner)

    monkeypatch.setattr(retention_op, "plan_maintenance", planned)
    with open_house(tmp_path / "wh") as house:
        house.instance.add_run(
            dg.DagsterRun(job_name="compact", tags={names.TAG_TABLE: "shop.t1"}, status=dg.DagsterRunStatus.STARTED)
        )
        result = house.execute(names.RETENTION_JOB)
        assert not result.success
        (failure,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
        described = failure.step_failure_data.user_failure_data.description
        assert described.startswith("shop.t0: expire_tags: StorageFull: ") and "manifest-0" in described
        assert "shop.t1" not in described and "shop.t2" not in described
        assert [[snapshot.id for snapshot in table.snapshots()] for table in tables] == [
            [1, 2, 3, 4, 5],
            [1, 2, 3, 4, 5],
            [4, 5],
        ]


def test_a_failed_run_is_written_into_the_tables_ledger(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise dg.Failure("the disk is gone", allow_retries=False)

    monkeypatch.setattr(layout_ops, "apply_plan", failing)
    result = house.run(house.tick(names.SORTED_RUN_SENSOR).run_requests[0])
    assert not result.success
    sensor = house.repository.get_sensor_def(names.FAILURE_SENSOR)
    event = next(event for event in result.all_events if event.event_type_value == "PIPELINE_FAILURE")
    context = dg.build_run_status_sensor_context(
        sensor_name=sensor.name,
        dagster_event=event,
        dagster_instance=house.instance,
        dagster_run=result.dagster_run.with_tags({**result.dagster_run.tags, names.TAG_ACTION: "recover"}),
        resources={"ledger": house.defs.resources["ledger"]},
    ).for_run_failure()
    message = sensor(context)
    assert isinstance(message, dg.SkipReason)
    assert "the disk is gone" in (message.skip_message or "")
    entry = read_ledger(house.warehouse.store("shop.orders"))[-1]
    assert (entry.action, entry.outcome) == ("recover", "failed"), "what was to be done, as the run's tag says"
    assert "-recover-" in entry.run_id
    assert entry.approved_by == f"dagster run {result.run_id}"
    LedgerResource.of(house.warehouse).record_failure("shop.orders", "run", "plan", "error", "../x full")
    assert read_ledger(house.warehouse.store("shop.orders"))[-1].action == "compact", "tags may say anything"
    assert "the disk is gone" in (entry.error or "")


@pytest.mark.parametrize("partitioned", one_in(2, [False, True], 1), ids=["whole", "partition"])
def test_rows_that_wait_for_a_bucket_get_one_and_the_checks_know_why_readers_see_more(
    tmp_path: Path, partitioned: bool
) -> None:
    """A table of postponed buckets: the sensor asks, the run assigns, and a later run compacts what is due."""
    table = keyed_table(tmp_path / "wh", partitioned=partitioned, bucket="-2")
    commit(table, 2)
    with open_house(tmp_path / "wh") as house:
        tick = house.tick(names.SORTED_RUN_SENSOR)
        if partitioned:
            assert house.instance.get_dynamic_partitions(
                names.WarehouseNames.of("").partitions_name("shop.orders")
            ) == ["dt=a"]
        (request,) = tick.run_requests
        assert "100 postponed rows without a bucket" in request.tags[names.TAG_REASON]
        result = house.run(request)
        assert result.success
        assert table.to_arrow().num_rows == 75
        metadata = house.materialisation("shop.orders", request.partition_key)
        assert (metadata["snapshot before"], metadata["snapshot published"]) == (2, 3)
        assert metadata["compared"] == (
            "V0: snapshot 3: 100 postponed rows got a bucket and became visible: there is nothing to compare with"
        )
        assert evaluations(result)["merged_view_unchanged"][0]
        assert not house.tick(names.SORTED_RUN_SENSOR).run_requests
        for day in "aaaa":
            commit(table, day=day)
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        assert house.run(request).success
        metadata = house.materialisation("shop.orders", request.partition_key)
        assert (metadata["snapshot published"], metadata["sorted runs (worst bucket)"]) == (8, 2)
