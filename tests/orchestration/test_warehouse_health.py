"""warehouse_health answers what hurts: the neediest first, the next action and when, what is declined and why, what keeps storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from dredge.orchestration.sensors.table_states import TableEvaluation
from dredge.orchestration.warehouse_health import TableLine, ranking_metadata, ranking_table, worst_tables
from dredge.platform_core import names
from dredge.platform_core.metadata import plain_cell
from dredge.platform_core.names import WarehouseNames
from dredge.platform_core.policies.decisions import DAY_MS
from dredge.platform_core.policies.table_state import TableState, TableStatus
from lsm_core.clock import FileClock, utc_text
from lsm_core.maintenance.table_ranking import TableNeed, need_of, rank_tables
from tests.support.platform import append_table, bucket_health, commit, keyed_table, open_house


def plain(metadata: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Return the values of metadata; inline tables stay as they are."""
    return {
        name: value if isinstance(value, dg.TableMetadataValue) else value.value for name, value in metadata.items()
    }


def test_the_worst_bucket_speaks_for_its_table_and_due_bytes_break_ties() -> None:
    calm = bucket_health("dt=a", 0, score=10.0, cost_minor=5, bytes_per_level={5: 100}, last_compaction_ms=7)
    ill = bucket_health(
        "dt=b",
        1,
        score=80.0,
        reasons=("9 sorted runs >= 5",),
        level0_files=8,
        sorted_runs=9,
        oldest_level0_ms=3,
        cost_minor=4,
    )
    need = need_of("a.b", [calm, ill])
    assert (need.score, need.costs_most) == (80.0, "dt=b/bucket-1: 9 sorted runs >= 5")
    assert (need.due_bytes, need.level0_files, need.oldest_level0_ms, need.last_compaction_ms) == (9, 8, 3, 7)
    assert need_of("a.c", []).costs_most == "no data yet"
    order = [
        TableNeed("z", 80.0, due_bytes=9),
        TableNeed("b", 80.0, due_bytes=10),
        TableNeed("c"),
        TableNeed("a"),
        need,
    ]
    assert [item.table for item in rank_tables(order)] == ["b", "a.b", "z", "a", "c"]


def test_hostile_names_make_neither_links_nor_markup() -> None:
    name = "shop.[x](javascript:alert(1))|<img src=x>**"
    status = TableStatus(name, TableState.DUE, name, name, name, partition=name)
    line = TableLine(TableEvaluation(name, status, TableNeed(name, costs_most=name)))
    row = ranking_table([line], WarehouseNames("/data/wh")).splitlines()[2]
    links = re.findall(r"(?<!\\)\]\(([^)]*)\)", row)
    assert len(links) == 1 and re.fullmatch(r"/assets/wh/shop/\w+_layout", links[0])
    assert "<" not in row.replace("\\<", "")
    assert plain_cell(name) == "shop.\\[x\\](javascript:alert(1))\\|\\<img src=x\\>\\*\\*"
    long = TableLine(
        replace(line.evaluation, name=name * 9, need=TableNeed(name * 9), status=replace(status, text=name * 9))
    )
    (cells,) = worst_tables([long]).records
    assert (
        len(cells.data["table"]) == 48
        and cells.data["table"][:20] == name[:20]
        and cells.data["table"][-9:] == name[-9:]
    )
    assert len(str(cells.data["why, and next step"])) <= 80 + 70 + len(". Next: ")
    metadata = ranking_metadata([], [], WarehouseNames("/data/wh"), 0)
    assert metadata["most urgent"].value == "nothing: no table needs help"


def test_the_warehouse_is_ranked_with_next_actions_reasons_and_holders(tmp_path: Path) -> None:
    root, policies, clock = tmp_path / "wh", tmp_path / "policies.yaml", FileClock(str(tmp_path / "clock"))
    policies.write_text("tables: {shop.resting: {paused: storage move}}")
    commit(keyed_table(root, "shop.busy", partitioned=False), 6)
    commit(keyed_table(root, "shop.calm", partitioned=False))
    commit(keyed_table(root, "shop.resting", partitioned=False), 7)
    log = append_table(root)
    commit(log, 5)
    keyed_table(root, "shop.torn", partitioned=False)
    (root / "shop.db" / "torn" / "schema" / "schema-0").write_text("{")
    written = max(bucket.newest_file_ms or 0 for bucket in log.health())
    clock.set(written + DAY_MS)
    with open_house(root, DREDGE_POLICIES=str(policies), DREDGE_CLOCK=clock.to_spec()) as house:
        result = house.execute(names.WAREHOUSE_HEALTH)
        assert result.success
        (event,) = result.get_asset_materialization_events()
        metadata = plain(event.materialization.metadata)
        rows = metadata["tables"].splitlines()[2:]
        order = [row.split("](")[0].removeprefix("| [") for row in rows]
        assert order[:3] == ["shop.torn", "shop.resting", "shop.busy"]
        by_table = dict(zip(order, rows, strict=True))
        assert "| due | 6 sorted runs \\>= 5" in by_table["shop.busy"]
        assert "| compact | the next tick; overdue: due since " in by_table["shop.busy"]
        assert "(/assets/wh/shop/busy_layout)" in by_table["shop.busy"]
        assert "| paused | 7 sorted runs (trigger 5); paused by policy: storage move |" in by_table["shop.resting"]
        assert "| healthy | 1 sorted run \\< 5" in by_table["shop.calm"] and "| none | - |" in by_table["shop.calm"]
        idle = utc_text(written + 20 * DAY_MS)[:16]
        assert f"| merge dt=a once idle | at {plain_cell(idle)} UTC |" in by_table["shop.log"]
        assert "| corrupt | CorruptFile" in by_table["shop.torn"]
        states = [(record.data["state"], record.data["tables"]) for record in metadata["states"].records]
        assert states == [("corrupt", 1), ("paused", 1), ("due", 1), ("healthy", 2)]
        worst = [record.data for record in metadata["worst tables"].records]
        assert [(cells["table"], cells["state"]) for cells in worst[:3]] == [
            ("shop.torn", "corrupt"),
            ("shop.resting", "paused"),
            ("shop.busy", "due"),
        ]
        assert ". Next: compact: the next tick; overdue: due since " in worst[2]["why, and next step"]
        assert "| shop.resting | paused by policy |" in metadata["declined"]
        assert "| shop.torn | unreadable |" in metadata["declined"]
        assert (metadata["maintained tables"], metadata["tables with work due"]) == (5, 3)
        assert metadata["tables with work overdue"] == 2, "of the one that nobody compacts, and of the paused one"
        assert metadata["most urgent"].startswith("shop.torn is corrupt: CorruptFile")
        assert metadata["tables that need a person"] == 1

        conditions = {
            item.asset_key: item
            for item in result.get_asset_check_evaluations()
            if item.check_name == names.CONDITION_CHECK
        }
        stalled = {
            key for key, item in conditions.items() if plain(item.metadata)["maintenance_alive"].startswith("error: ")
        }
        assert stalled == {house.layout("shop.busy")}, "the other that is due is paused"
        busy, calm = conditions[house.layout("shop.busy")], conditions[house.layout("shop.calm")]
        assert (busy.passed, busy.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert "bucket-0 is due (6 sorted runs) and nothing ran for 24.0 h" in str(busy.description)
        assert (calm.passed, calm.severity) == (False, dg.AssetCheckSeverity.WARN), "the read-optimised view lags"
        assert str(calm.description).startswith("ro_is_fresh: ")

        house.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                house.layout("shop.busy"), names.TREE_CHECK, passed=False, description="files overlap"
            )
        )
        commit(house.warehouse.table("shop.calm"), 2)
        house.warehouse.table("shop.calm").create_tag("kept")
        house.warehouse.table("shop.calm").compact(full=True)
        house.warehouse.table("shop.calm").expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
        again = house.execute(names.WAREHOUSE_HEALTH)
        (changed,) = (item for item in again.get_asset_check_evaluations() if item.check_name == names.CONDITION_CHECK)
        assert changed.asset_key == house.layout("shop.calm") and changed.passed, "other results did not change"
        (event,) = again.get_asset_materialization_events()
        metadata = plain(event.materialization.metadata)
        assert "| shop.calm | tag kept | tag | " in metadata["holders of old data"], metadata["holders of old data"]
        assert metadata["most urgent"].startswith("shop.torn is corrupt")
        blocked = metadata["worst tables"].records[1].data
        assert (blocked["table"], blocked["state"]) == ("shop.busy", "blocked")
        step = "Next: repair the table as the check says, then execute the check: "
        assert blocked["why, and next step"].startswith(f"tree_is_valid failed: files overlap. {step}")
        assert "| shop.busy | blocked by a failed check | " in metadata["declined"]
