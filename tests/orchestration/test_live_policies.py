"""A changed policy file counts from the next tick on; a broken one changes nothing, is told wherever people look, and stops no sensor."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pyarrow as pa

from dredge.platform_core import names
from dredge.platform_core.policies.policy_files import policy_source
from lsm_core.maintenance import CompactionReport
from tests.support.platform import append_table, commit, keyed_table, open_house

_NOON = "fixed:1717243200000"  # 2024-06-01 12:00 UTC
_NIGHT = "tables: {shop.orders: {off_peak: {time_zone: UTC, windows: [{from: '22:00', to: '06:00'}]}}}"


def test_a_change_counts_from_the_next_tick_and_a_broken_file_leaves_what_it_said(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text(_NIGHT)
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place), DREDGE_CLOCK=_NOON) as house:
        waits = house.tick(names.SORTED_RUN_SENSOR)
        assert not waits.run_requests
        (line,) = house.lines(waits)
        assert line == (
            "shop.orders: decline (not in its hours): 5 sorted runs (trigger 5); outside 22:00-06:00 (UTC), next at 2024-06-01 22:00:00 UTC"
        )

        place.write_text("tables: {shop.orders: {off_peak: {time_zone: UTC, windos: []}}}")
        first, second = house.lines(house.tick(names.SORTED_RUN_SENSOR))
        assert "p.yaml: tables.shop.orders.off_peak.windos (line 1)" in first
        assert first.endswith("did you mean 'windows'?; the last valid state of the file still applies")
        assert second == line
        assert first in house.lines(house.tick(names.CATALOG_SENSOR))
        with dg.partition_loading_context(dynamic_partitions_store=house.instance):
            ranked = house.execute(names.WAREHOUSE_HEALTH)
        (result,) = ranked.asset_materializations_for_node(f"wh__{names.WAREHOUSE_HEALTH}")
        assert result.metadata["policy file"].value == first
        assert "shop.orders" in str(result.metadata["tables"].value)
        assert "next at 2024-06-01 22:00:00 UTC" in str(result.metadata["tables"].value)

        place.write_text(_NIGHT.replace("'06:00'", "'14:00'") + "\n")
        assert len(house.tick(names.SORTED_RUN_SENSOR).run_requests) == 1


def test_a_critical_backlog_does_not_wait_for_the_night(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text(_NIGHT.replace("{off_peak", "{level0_warn: 2, level0_critical: 5, off_peak"))
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place), DREDGE_CLOCK=_NOON) as house:
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        assert "5 level-0 files >= 5: critical; its hours (outside 22:00-06:00 (UTC)" in request.tags[names.TAG_REASON]


def test_old_partitions_have_rules_of_their_own(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text(
        "tables: {shop.orders: {idle_after: 1000000 d, partitions: [{older_than: 30 d, idle_after: 0}, {older_than: 300 d, paused: cold}]}}"
    )
    table = keyed_table(tmp_path / "wh")
    for day in ("2024-05-31", "2024-04-01", "2023-04-01"):
        commit(table, 2, day=day)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place), DREDGE_CLOCK=_NOON) as house:
        found = house.tick(names.IDLE_SENSOR)
        assert [request.partition_key for request in found.run_requests] == ["dt=2024-04-01"]
        place.write_text(place.read_text().replace("30 d", "1 d"))
        (request,) = house.tick(names.IDLE_SENSOR).run_requests
        assert json.loads(request.tags[names.TAG_PARTITIONS]) == ["dt=2024-04-01", "dt=2024-05-31"]


def test_partitions_that_are_about_to_expire_are_left_to_retention(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("defaults: {}")
    table = keyed_table(tmp_path / "wh", **{"partition.expiration-time": "30 d"})
    for day in ("2024-05-02", "2024-05-03"):
        commit(table, 5, day=day)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place), DREDGE_CLOCK=_NOON) as house:
        tick = house.tick(names.SORTED_RUN_SENSOR)
        assert not tick.run_requests
        past, soon = house.lines(tick)
        due = "decline (about to expire): 5 sorted runs >= 5; its partition"
        assert past == f"shop.orders/dt=2024-05-02: {due} was to expire at 2024-06-01 00:00:00 UTC: not worth a run"
        assert soon == f"shop.orders/dt=2024-05-03: {due} expires at 2024-06-02 00:00:00 UTC: not worth a run"
        # nothing drops them: the expiry waits for somebody, or the policy keeps them longer
        for message in (
            "approval: {expire_partitions: required}",
            "retention: {partitions: {older_than: 365 d}}",
        ):
            place.write_text(f"defaults: {{{message}}}")
            (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
            assert json.loads(request.tags[names.TAG_PARTITIONS]) == ["dt=2024-05-02", "dt=2024-05-03"]


def test_a_part_of_an_order_sensitive_tables_runs_is_not_merged_where_the_table_forbids_closed_units(
    tmp_path: Path,
) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("tables: {shop.sums: {level0_critical: 5, level0_warn: 2, paused: move}}")
    options = {"merge-engine": "aggregation", "dredge.compaction.order-sensitive": "as-paimon"}
    for name in ("shop.sums", "shop.totals"):
        table = keyed_table(tmp_path / "wh", name, partitioned=False, **options)
        commit(table, 4)
        table.write(table.to_arrow().slice(0, 1), row_kinds=pa.array(["-D"]))
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place), DREDGE_CLOCK=_NOON) as house:
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        assert request.tags[names.TAG_TABLE] == "shop.sums", "merging all of them changes no answer"
        assert request.tags[names.TAG_ACTION] == "compact full"
        place.write_text("defaults: {}")
        (line, _) = house.lines(house.tick(names.SORTED_RUN_SENSOR))
        assert line.startswith(
            "shop.sums: decline (would change answers): 5 sorted runs >= 5; merging a part of its runs could change answers (column 'v': "
        )
        assert line.endswith(
            "set 'dredge.compaction.order-sensitive' = 'closed', or run `dredge compact shop.sums --full`"
        )


def test_a_file_that_was_never_whole_lets_maintenance_rest_and_says_so(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("defaults: [")
    commit(keyed_table(tmp_path / "wh", partitioned=False), 5)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        tick = house.tick(names.SORTED_RUN_SENSOR)
        assert not tick.run_requests
        first, second = house.lines(tick)
        assert first.endswith("; all maintenance is paused until the file is repaired")
        assert "paused by policy: the policy file cannot be read" in second
        place.write_text("")
        assert len(house.tick(names.SORTED_RUN_SENSOR).run_requests) == 1
        place.unlink()
        assert "DREDGE_POLICIES" in policy_source(str(place)).current().trouble
        assert policy_source(str(place)).current().of("shop.orders").paused is None, "the last good state counts"


def test_retention_of_the_policy_wins_over_the_tables_options(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text(
        """
defaults: {retention: {snapshots: {retain_min: 3}}}
tables:
  shop.orders: {retention: {snapshots: {retain_max: 2}}}
  shop.rests: {retention: {snapshots: {retain_max: 1}}, paused: {reason: storage move, retention: true}}
  shop.log: {retention: {partitions: {older_than: 365 d}}}
"""
    )
    tables = {name: keyed_table(tmp_path / "wh", name, partitioned=False) for name in ("shop.orders", "shop.rests")}
    for table in tables.values():
        commit(table, 5)
    log = append_table(tmp_path / "wh")
    commit(log, 1, day="2001-01-01")
    commit(log, 1, day="2999-01-01")
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        assert house.execute(names.RETENTION_JOB).success
    assert [len(table.snapshots()) for table in tables.values()] == [3, 5], "of two that do not fit, what keeps more"
    assert log.to_arrow().column("dt").unique().to_pylist() == ["2999-01-01"]


def test_a_run_verifies_as_its_policy_says_and_a_stored_plan_as_the_stronger_of_both(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("tables: {shop.orders: {verification: counts}}")
    table = keyed_table(tmp_path / "wh", partitioned=False)
    commit(table, 5)
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        plan = table.load_plan(request.tags[names.TAG_PLAN])
        assert plan.options["dredge.verification"] == "counts"
        assert house.run(request).success
        assert "counts" in str(house.materialisation("shop.orders")["outcome"])
    commit(table, 5)
    weak = table.copy({"dredge.verification": "counts"}).plan_maintenance("compact")
    report = table.apply(weak)
    assert isinstance(report, CompactionReport)
    assert report.verification.setting == "full", "the table's own"
    commit(table, 5)
    strong = table.plan_maintenance("compact")
    report = table.copy({"dredge.verification": "counts"}).apply(strong)
    assert isinstance(report, CompactionReport)
    assert report.verification.setting == "full", "the plan's"


def test_what_a_changed_file_declares_of_assets_asks_for_a_reload(tmp_path: Path) -> None:
    place = tmp_path / "p.yaml"
    place.write_text("tables: {shop.orders: {group: sales}}")
    keyed_table(tmp_path / "wh")
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(place)) as house:
        assert house.lines(house.tick(names.CATALOG_SENSOR)) == ["1 tables, as loaded"]
        place.write_text("tables: {shop.orders: {group: orders}}")
        assert (
            house.lines(house.tick(names.CATALOG_SENSOR))[0]
            == "shop.orders: the values of p.yaml for its assets changed"
        )
        house.load()
        assert house.lines(house.tick(names.CATALOG_SENSOR)) == ["1 tables, as loaded"]
