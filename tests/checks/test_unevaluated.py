"""Checks that a failed run did not reach keep their results: Dagster would show them as failed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from dredge.checks import merged_view
from dredge.orchestration.ops import layout_ops
from dredge.platform_core import names
from dredge.platform_core.obstacles import find_blocking_failure
from dredge.platform_core.resources import LedgerResource
from lsm_core import Table
from lsm_core.errors import SparkFailed
from tests.support.platform import LAYOUT_CHECKS, House, commit, compacted_file, keyed_table, open_house

TABLE = "shop.orders"


def statuses(house: House) -> dict[str, str]:
    """Return what Dagster shows for the newest record of each layout check: status, or status and severity."""

    async def resolve(record: AssetCheckExecutionRecord) -> str:
        return (await record.resolve_status(LoadingContextForTest(house.instance))).value

    keys = [dg.AssetCheckKey(house.layout(TABLE), name) for name in LAYOUT_CHECKS]
    shown: dict[str, str] = {}
    for key, record in house.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).items():
        status = asyncio.run(resolve(record))
        evaluation = record.evaluation
        is_warning = status == "FAILED" and evaluation is not None and evaluation.severity is dg.AssetCheckSeverity.WARN
        shown[key.name] = "WARN" if is_warning else status
    return shown


def description(house: House, check: str) -> str:
    key = dg.AssetCheckKey(house.layout(TABLE), check)
    record = house.instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
    assert record.evaluation is not None
    return record.evaluation.description or ""


def tell_of_failure(house: House, result: dg.ExecuteInProcessResult) -> None:
    """Evaluate the sensor `failures` for a run, as the daemon does."""
    sensor: Any = house.repository.get_sensor_def(names.FAILURE_SENSOR)
    event = next(item for item in result.all_events if item.event_type is dg.DagsterEventType.RUN_FAILURE)
    resources = {"ledger": LedgerResource.of(house.warehouse)}
    context = dg.build_run_status_sensor_context(
        sensor.name, event, house.instance, result.dagster_run, resources=resources
    )
    sensor(context.for_run_failure())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    return table


def damage_input(table: Table) -> None:
    path = Path(compacted_file(table))
    path.write_bytes(path.read_bytes()[:100])


def test_a_run_that_fails_before_its_checks_leaves_their_results(tmp_path: Path, table: Table) -> None:
    with open_house(tmp_path / "wh") as house:
        assert house.maintain(TABLE).success
        before = statuses(house)
        commit(table, 5)
        damage_input(table)
        assert not house.maintain(TABLE).success
        assert statuses(house) == before == dict.fromkeys(LAYOUT_CHECKS, "SUCCEEDED")
        assert find_blocking_failure(house.instance, house.layout(TABLE)) is None


def test_checks_that_were_never_evaluated_warn(tmp_path: Path, table: Table) -> None:
    table.compact(full=True)
    commit(table, 5)
    damage_input(table)
    with open_house(tmp_path / "wh") as house:
        assert not house.maintain(TABLE).success
        assert statuses(house) == dict.fromkeys(LAYOUT_CHECKS, "WARN")
        assert description(house, "tree_is_valid").startswith("not evaluated yet: run ")
        assert find_blocking_failure(house.instance, house.layout(TABLE)) is None


def test_a_failed_check_still_blocks_after_a_run_that_did_not_reach_it(tmp_path: Path, table: Table) -> None:
    with open_house(tmp_path / "wh") as house:
        layout = house.layout(TABLE)
        failed = dg.AssetCheckEvaluation(
            layout, names.TREE_CHECK, passed=False, description="overlap", metadata={"n": 1}
        )
        house.instance.report_runless_asset_event(failed)
        for path in Path(table.store.root).glob("bucket-0/data-*"):
            path.write_bytes(b"")
        for _ in range(2):
            assert not house.maintain(TABLE).success
            assert statuses(house)["tree_is_valid"] == "FAILED"
            assert description(house, "tree_is_valid") == "overlap"
            assert str(find_blocking_failure(house.instance, layout)).endswith("overlap")


def test_a_run_that_dies_is_settled_by_the_sensor_and_its_snapshot_is_not_called_compared(
    tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any, **__: Any) -> Any:
        raise SparkFailed("verify", "the server is gone")

    with open_house(tmp_path / "wh") as house:
        assert house.maintain(TABLE).success
        commit(table, 5)
        with monkeypatch.context() as patched:
            patched.setattr(merged_view, "compare_with_previous", dies)
            result = house.maintain(TABLE)
        assert not result.success
        assert statuses(house)["merged_view_unchanged"] == "EXECUTION_FAILED"
        tell_of_failure(house, result)
        shown = statuses(house)
        assert shown.pop("merged_view_unchanged") == "WARN"
        assert set(shown.values()) == {"SUCCEEDED"}
        assert "snapshot 12 is not compared yet" in description(house, "merged_view_unchanged")
        assert find_blocking_failure(house.instance, house.layout(TABLE)) is None


def test_partitions_keep_their_own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 2, day="a")
    commit(table, 2, day="b")

    def fails(*_: Any) -> Any:
        raise dg.Failure("no", allow_retries=False)

    with open_house(tmp_path / "wh") as house:
        layout = house.layout(TABLE)
        house.tick(names.SORTED_RUN_SENSOR)
        failed = dg.AssetCheckEvaluation(layout, names.TREE_CHECK, passed=False, partition="dt=a")
        house.instance.report_runless_asset_event(failed)
        with monkeypatch.context() as patched:
            patched.setattr(layout_ops, "apply_exactly", fails)
            assert not house.maintain(TABLE, "dt=a").success
            assert not house.maintain(TABLE, "dt=b").success
        assert find_blocking_failure(house.instance, layout, "dt=a") is not None
        assert find_blocking_failure(house.instance, layout, "dt=b") is None
