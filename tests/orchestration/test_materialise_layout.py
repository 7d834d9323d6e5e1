"""A person materialises a layout: everything is merged, in one process, and the run says first what it does or why it does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.instance import InstanceRef

from dredge.checks.merged_view import published_snapshot
from dredge.platform_core import names
from dredge.platform_core.obstacles import find_blocking_failure
from lsm_core.maintenance import read_ledger
from lsm_core.metadata import snapshots
from tests.support.platform import LAYOUT_CHECKS, House, commit, evaluations, keyed_table, open_house

RUNS = names.SORTED_RUN_SENSOR


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    keyed_table(root, "shop.plain", partitioned=False)
    keyed_table(root)
    with open_house(root) as found:
        yield found


def click(house: House, table: str, partition: str | None = None) -> dg.ExecuteInProcessResult:
    """What the button Materialize starts: the job behind all assets, for one of them, without any configuration."""
    job = house.defs.resolve_implicit_global_asset_job_def()
    assert job.executor_def.name == dg.in_process_executor.name, "Dagster's own executor starts a process a step"
    with dg.partition_loading_context(dynamic_partitions_store=house.instance):
        return job.execute_in_process(
            instance=house.instance,
            partition_key=partition,
            asset_selection=[house.layout(table)],
            raise_on_error=False,
        )


def said(house: House, result: dg.ExecuteInProcessResult) -> list[str]:
    """What ops wrote into the run's log."""
    entries = house.instance.all_logs(result.run_id)
    return [entry.user_message for entry in entries if entry.dagster_event is None and entry.level >= 20]


def test_a_click_merges_everything_that_the_rules_would_leave_and_a_second_says_why_it_does_nothing(
    house: House,
) -> None:
    table = house.warehouse.table("shop.plain")
    commit(table, 3)
    assert not house.tick(RUNS).run_requests, "three runs are too few for the table's own rules"
    result = click(house, "shop.plain")
    assert result.success
    metadata = house.materialisation("shop.plain")
    assert (metadata["action"], metadata["snapshot published"], metadata["sorted runs (worst bucket)"]) == (
        "compact",
        4,
        1,
    )
    assert metadata["why"] == "asked for by a person"
    first = said(house, result)[0]
    assert first.startswith("shop.plain: compact: 1 unit, ")
    assert first.endswith(f": plan {metadata['plan']} over snapshot 3")
    assert set(evaluations(result)) == LAYOUT_CHECKS

    again = click(house, "shop.plain")
    assert again.success
    metadata = house.materialisation("shop.plain")
    assert metadata["action"] == "nothing to do"
    assert said(house, again)[0] == f"shop.plain: nothing to do: {metadata['why']}"
    run = house.instance.get_run_by_id(again.run_id)
    assert run is not None
    assert run.tags[names.TAG_REASON] == f"nothing to do: {metadata['why']}"
    assert run.tags[names.TAG_TABLE] == "shop.plain"
    assert snapshots.latest_id(table.store) == 4


def test_a_click_on_an_empty_table_says_so(house: House) -> None:
    result = click(house, "shop.plain")
    assert result.success
    assert said(house, result)[0] == "shop.plain: nothing to do: the table has no snapshot"
    assert house.materialisation("shop.plain")["why"] == "the table has no snapshot"


def test_a_click_on_a_partition_leaves_the_others(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    commit(table, 2, day="a")
    commit(table, 2, day="b")
    house.tick(RUNS)
    assert click(house, "shop.orders", "dt=a").success
    assert {bucket.partition_text: bucket.sorted_runs for bucket in table.health()} == {"dt=a": 1, "dt=b": 2}


def test_the_rules_stay_where_a_person_or_a_sensor_asks_for_them(house: House) -> None:
    table = house.warehouse.table("shop.plain")
    commit(table, 3)
    node = names.WarehouseNames.of(str(house.root)).node_name("shop.plain")
    config: dict[str, Any] = {"ops": {node: {"config": {"full": False}}}}
    assert house.maintain("shop.plain", run_config=config).success
    assert house.materialisation("shop.plain")["action"] == "nothing to do"
    commit(table, 2)
    request = house.tick(RUNS).run_requests[0]
    assert request.run_config["ops"][node]["config"]["full"] is False
    for path in Path(table.store.root, "dredge", "plans").iterdir():
        path.unlink()  # what the sensor asked for is planned anew, by the same rules
    commit(table, 1)
    result = house.run(request)
    assert result.success
    (item,) = read_ledger(table.store)[-1].lines[:1]
    assert "full compaction asked for" not in str(item)


def test_a_table_named_like_a_layout_has_keys_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    for name in ("shop.orders", "shop.orders_layout"):
        commit(keyed_table(root, name, partitioned=False), 2)
    with open_house(root) as house:
        specs = house.defs.resolve_all_asset_specs()
        keys = [spec.key.to_user_string() for spec in specs]
        assert len(set(keys)) == 4 + 1  # and warehouse_health
        assert [key for key in keys if key.endswith("/orders_layout")] == ["wh/shop/orders_layout"]
        assert click(house, "shop.orders").success
        assert house.warehouse.table("shop.orders_layout").health()[0].sorted_runs == 2
        assert click(house, "shop.orders_layout").success
        assert house.warehouse.table("shop.orders_layout").health()[0].sorted_runs == 1


@pytest.mark.parametrize("table", ["shop.orders", "shop.orders_layout", "shop.a b"])
def test_a_layout_is_still_known_by_its_former_key(table: str) -> None:
    key = names.WarehouseNames.of("/data/wh").layout_key(table)
    database, name = table.split(".")
    assert names.former_layout_key(key).path == ["wh", database, names.part(name), "layout"]


def test_what_dagster_holds_under_the_former_key_stays_in_force(house: House) -> None:
    """A table that a failed check blocks stays blocked after the upgrade; its ledger names the run, and the check finds it."""
    table = house.warehouse.table("shop.plain")
    commit(table, 5)
    layout = house.layout("shop.plain")
    former = names.former_layout_key(layout)
    failed = dg.AssetCheckEvaluation(former, names.FORMER_TREE_CHECK, passed=False, description="files overlap")
    house.instance.report_runless_asset_event(failed)
    reason = find_blocking_failure(house.instance, layout)
    assert reason == "blocked: tree_is_valid failed: files overlap"
    assert any("blocked by a failed check" in line for line in house.lines(house.tick(RUNS)))

    result = click(house, "shop.plain")
    assert read_ledger(table.store)[-1].approved_by == f"dagster run {result.run_id}"
    assert find_blocking_failure(house.instance, layout) is None, "the newest evaluation counts, and it passed"
    (event,) = result.get_asset_materialization_events()
    materialised = event.step_materialization_data.materialization
    house.instance.wipe_assets([layout])
    with_former = materialised._replace(asset_key=former)
    dagster_event = event._replace(
        event_specific_data=event.step_materialization_data._replace(materialization=with_former)
    )
    house.instance.report_dagster_event(dagster_event, result.run_id)
    assert published_snapshot(house.instance, layout, "shop.plain", None) == 6


def test_a_plain_dagster_dev_in_the_checkout_takes_its_settings_and_shows_no_sign_up_dialogue(tmp_path: Path) -> None:
    checkout = Path(__file__).parents[2]
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), config_dir=str(checkout))) as instance:
        assert not instance.nux_enabled
        assert type(instance.run_launcher).__name__ == "WarmRunLauncher"


def test_a_backfill_of_many_partitions_is_few_runs_of_one_commit_each(house: House) -> None:
    table = house.warehouse.table("shop.orders")
    for day in ("a", "b,c", "d"):
        commit(table, 2, day=day)
    house.tick(RUNS)
    before = table.to_arrow().sort_by("id")
    asset = house.repository.asset_graph.get(house.layout("shop.orders"))
    assert asset.backfill_policy is not None
    assert asset.backfill_policy.max_partitions_per_run == 31
    first, last = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
    result = house.maintain("shop.orders", tags={first: "dt=a", last: "dt=b,c"})
    assert result.success
    assert said(house, result)[0].startswith("shop.orders/dt=a and 1 more partition: compact: 2 units, ")
    assert {bucket.partition_text: bucket.sorted_runs for bucket in table.health()} == {
        "dt=a": 1,
        "dt=b,c": 1,
        "dt=d": 2,
    }
    assert snapshots.latest_id(table.store) == 7
    for key in ("dt=a", "dt=b,c"):
        assert house.materialisation("shop.orders", key)["snapshot published"] == 7
    for check in (names.MERGED_VIEW_CHECK, names.TREE_CHECK):
        records = house.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(house.layout("shop.orders"), check), limit=10
        )
        assert {bucket.partition: bucket.status.value for bucket in records} == dict.fromkeys(
            ("dt=a", "dt=b,c", None), "SUCCEEDED"
        )
    assert table.to_arrow().sort_by("id") == before


def test_a_failure_over_many_partitions_blocks_each_until_it_is_evaluated_again(house: House) -> None:
    layout = house.layout("shop.orders")
    for passed, partition in ((False, None), (True, "dt=a")):
        evaluation = dg.AssetCheckEvaluation(
            asset_key=layout, check_name=names.MERGED_VIEW_CHECK, passed=passed, description="x", partition=partition
        )
        house.instance.report_runless_asset_event(evaluation)
    assert find_blocking_failure(house.instance, layout, "dt=a") is None
    assert "failed: x" in str(find_blocking_failure(house.instance, layout, "dt=b"))
    assert "failed: x" in str(find_blocking_failure(house.instance, layout))
