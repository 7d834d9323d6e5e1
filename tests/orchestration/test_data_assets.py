"""Data assets are materialised by what writers commit and by nothing else; layouts that need nothing are green and stay checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from dredge.checks.merged_view import published_snapshot
from dredge.orchestration.sensors import health_reports
from dredge.orchestration.sensors.health_reports import HEALTHY
from dredge.platform_core import names
from dredge.platform_core.health import table_health
from lsm_core import Table
from tests.support.platform import LAYOUT_CHECKS, House, commit, evaluations, keyed_table, open_house

RUNS = names.SORTED_RUN_SENSOR
PLAIN, PARTED = "shop.plain", "shop.parted"


def marts(root: Path) -> dg.Definitions:
    """What a user hangs on two tables, in the user's own code: assets that follow their data eagerly."""
    eager = dg.AutomationCondition.eager()
    plain, parted = (
        names.WarehouseNames.of(str(root)).data_key(PLAIN),
        names.WarehouseNames.of(str(root)).data_key(PARTED),
    )

    @dg.asset(deps=[plain], automation_condition=eager)
    def report() -> None: ...

    @dg.asset(deps=[parted], automation_condition=eager, partitions_def=dg.DynamicPartitionsDefinition(name=PARTED))
    def report_of_a_day() -> None: ...

    return dg.Definitions(assets=[report, report_of_a_day])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "wh"
    commit(keyed_table(root, PLAIN, partitioned=False), 2)
    commit(keyed_table(root, PARTED), 2)
    with open_house(root, extra=marts(root)) as found:
        yield found


def told(house: House, table: str, *, layout: bool = False) -> list[dg.AssetMaterialization]:
    """Materialisations of a table's data (or layout) in Dagster's own store, oldest first."""
    key = house.layout(table) if layout else names.WarehouseNames.of(str(house.root)).data_key(table)
    records = house.instance.fetch_materializations(key, limit=100).records
    found = [record.asset_materialization for record in reversed(records)]
    return [item for item in found if item is not None]


def version(item: dg.AssetMaterialization) -> str:
    return (item.tags or {})["dagster/data_version"]


def compact(house: House, table: str, partition: str | None = None) -> dg.ExecuteInProcessResult:
    result = house.maintain(table, partition)
    assert result.success
    return result


def test_a_users_eager_assets_follow_writers_and_never_a_compaction(house: House) -> None:
    cursor: Any = None

    def requested() -> set[tuple[str, str | None]]:
        """What Dagster's automation starts now; it is done at once."""
        nonlocal cursor
        house.tick(RUNS)
        with dg.partition_loading_context(dynamic_partitions_store=house.instance):
            chosen = dg.AssetSelection.assets("report", "report_of_a_day")
            found = dg.evaluate_automation_conditions(house.defs, house.instance, asset_selection=chosen, cursor=cursor)
        cursor = found.cursor
        started = set()
        for result in found.results:
            if result.true_subset.is_empty:
                continue
            key = result.key
            assert isinstance(key, dg.AssetKey)
            for partition in found.get_requested_partitions(key):
                house.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))
                started.add((key.path[-1], partition))
        return started

    plain, parted = house.warehouse.table(PLAIN), house.warehouse.table(PARTED)
    requested()
    assert requested() == set(), "what is current stays"
    commit(plain)
    commit(parted, day="b")
    assert requested() == {("report", None), ("report_of_a_day", "dt=b")}
    compact(house, PLAIN)
    compact(house, PARTED, "dt=a")
    assert requested() == set(), "a compaction changes no answer, so nobody runs again"
    commit(parted, day="b")
    parted.compact(full=True)  # by somebody else, of partition a as well, between two looks
    house.load()  # a new process of the code location: Dagster is asked what it was told
    assert requested() == {("report_of_a_day", "dt=b")}
    plain.rollback_to(2)
    commit(plain, rows=77)
    assert requested() == {("report", None)}, "another commit under an id that was used before"


def test_data_are_materialised_once_a_commit_with_a_version_of_its_own(house: House) -> None:
    house.tick(RUNS)
    (first,) = told(house, PLAIN)
    assert version(first) == table_health(house.warehouse.store(PLAIN)).data_commit
    assert version(first).startswith("2-")
    assert first.metadata["stored rows"].value == 100
    assert house.tick(RUNS).asset_events == []
    compact(house, PLAIN)
    house.tick(RUNS)
    assert told(house, PLAIN) == [first]
    table = house.warehouse.table(PLAIN)
    table.rollback_to(1)
    commit(table, rows=77)
    house.tick(RUNS)
    *_, last = told(house, PLAIN)
    assert version(last).startswith("2-") and version(last) != version(first)
    assert house.instance.get_materialized_partitions(names.WarehouseNames.of(str(house.root)).data_key(PARTED)) == {
        "dt=a"
    }


def test_a_version_that_has_expired_is_not_told_as_another(house: House) -> None:
    house.tick(RUNS)
    table = house.warehouse.table(PLAIN)
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
    assert table_health(table.store).data_commit == ""
    house.tick(RUNS)
    assert len(told(house, PLAIN)) == 1


def test_more_partitions_than_a_look_tells_are_filled_by_the_next_ones(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_reports, "PARTITIONS_A_TABLE", 2)
    table = house.warehouse.table(PARTED)
    for day in "bcde":
        commit(table, day=day)
    key = names.WarehouseNames.of(str(house.root)).data_key(PARTED)
    filled = []
    for _ in range(3):
        house.tick(RUNS)
        filled.append(len(house.instance.get_materialized_partitions(key)))
    assert filled == [2, 4, 5]
    assert house.instance.get_materialized_partitions(house.layout(PARTED)) == {f"dt={day}" for day in "abcde"}


def status(house: House, table: str) -> StaleStatus:
    graph = house.defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(house.instance, graph, LoadingContextForTest(house.instance))
    return resolver.get_status(house.layout(table))


def evaluated(house: House, table: str, partition: str | None = None) -> set[str]:
    """Checks of a layout that are not "Not Evaluated" in the UI."""
    found = set()
    loading = LoadingContextForTest(house.instance)
    for name in sorted(LAYOUT_CHECKS):
        where = partition if name in {names.MERGED_VIEW_CHECK, names.TREE_CHECK} else None
        records = house.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(house.layout(table), name), limit=1
        )
        for record in records:
            assert isinstance(record, AssetCheckExecutionRecord)
            assert record.partition == where
            if asyncio.run(record.targets_latest_materialization(loading)):
                found.add(name)
    return found


def test_a_layout_that_needs_nothing_is_green_and_its_checks_stay_evaluated(house: House) -> None:
    assert status(house, PLAIN) is StaleStatus.MISSING
    house.tick(RUNS)
    (green,) = told(house, PLAIN, layout=True)
    assert green.description == HEALTHY
    assert status(house, PLAIN) is StaleStatus.FRESH
    result = compact(house, PLAIN)
    every = LAYOUT_CHECKS
    assert set(evaluations(result)) == every
    # SQLite dates evaluations to the second; one of the run's own second would seem to be older than what the run made.
    time.sleep(1.01 - time.time() % 1)
    house.tick(RUNS)
    assert len(told(house, PLAIN, layout=True)) == 2, "the run's own stays the newest: it has the numbers"
    assert evaluated(house, PLAIN) == every
    commit(house.warehouse.table(PLAIN))
    house.tick(RUNS)
    assert told(house, PLAIN, layout=True)[-1].description == HEALTHY
    assert status(house, PLAIN) is StaleStatus.FRESH
    assert evaluated(house, PLAIN) == every
    assert published_snapshot(house.instance, house.layout(PLAIN), PLAIN, None) == 3
    commit(house.warehouse.table(PLAIN))
    house.tick(RUNS)
    assert len(told(house, PLAIN, layout=True)) == 3, "green already"


def test_a_layout_that_is_due_or_blocked_is_not_called_healthy(house: House) -> None:
    table: Table = house.warehouse.table(PLAIN)
    commit(table, 3)
    house.tick(RUNS)
    assert told(house, PLAIN, layout=True) == []
    result = compact(house, PLAIN)
    assert result.success
    layout = house.layout(PLAIN)
    house.instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=layout, check_name=names.MERGED_VIEW_CHECK, passed=False, description="differ"
        )
    )
    commit(table)
    house.tick(RUNS)
    assert len(told(house, PLAIN, layout=True)) == 1
