"""The check `layout_condition`: one result for four conditions, with the severity that the policy sets for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from dredge.checks.layout_condition import CONDITIONS, changed_conditions, condition_result, conditions_of
from dredge.platform_core import health, names
from dredge.platform_core.health import table_health
from dredge.platform_core.policies import Policies
from dredge.platform_core.policies.policy_files import read_policies
from lsm_core.clock import FixedClock
from lsm_core.storage import Kept
from tests.support.platform import append_table, commit, evaluations, keyed_table, open_house

HOUR_MS = 3_600_000
TABLE = "shop.orders"


def policies_of(folder: Path, text: str) -> Policies:
    """Policies of a file with this content."""
    file = folder / "policies.yaml"
    file.write_text(text)
    return read_policies(file)


@pytest.mark.parametrize(
    ("checks", "failed"),
    [
        ("{}", {"maintenance_alive": "error", "ro_is_fresh": "warning"}),
        ("{maintenance_alive: warn, bucket_size: off}", {"maintenance_alive": "warning", "ro_is_fresh": "warning"}),
        ("{ro_is_fresh: error, maintenance_alive: off}", {"ro_is_fresh": "error"}),
        ("{layout_condition: warn}", {"maintenance_alive": "warning", "ro_is_fresh": "warning"}),
        ("{layout_condition: error, maintenance_alive: off}", {"ro_is_fresh": "error"}),
        ("{layout_condition: off, ro_is_fresh: warn}", {"ro_is_fresh": "warning"}),
        ("{layout_condition: off}", {}),
        ("{bucket_size: off, average_file_size: off, ro_is_fresh: off, maintenance_alive: off}", {}),
    ],
)
def test_a_policy_names_conditions_or_the_whole_check(tmp_path: Path, checks: str, failed: dict[str, str]) -> None:
    table = keyed_table(tmp_path / "wh", TABLE, partitioned=False)
    commit(table, 6)
    policy = policies_of(tmp_path, f"tables: {{{TABLE}: {{checks: {checks}}}}}").of(TABLE)
    store = table.store.copy({})
    store.clock = FixedClock(max(bucket.newest_file_ms or 0 for bucket in table.health()) + 30 * HOUR_MS)
    with open_house(tmp_path / "wh") as house:
        card = house.warehouse.card(TABLE)
    conditions = conditions_of(card, policy)
    result = condition_result(store, table_health(store), policy, conditions)
    rows = {name: str(value.value) for name, value in (result.metadata or {}).items() if name in CONDITIONS}
    assert list(rows) == list(conditions)
    outcomes = {name: row.partition(":")[0] for name, row in rows.items()}
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == failed
    assert result.passed is not bool(failed)
    assert (result.severity is dg.AssetCheckSeverity.ERROR) is ("error" in failed.values())
    if failed:
        worst = min(failed, key=lambda name: (failed[name] != "error", CONDITIONS.index(name)))
        assert str(result.description).startswith(f"{worst}: "), "errors come first"
        assert f"- {worst.replace('_', chr(92) + '_')}: " in str((result.metadata or {})["problems"].value)
        assert ("severity comes from" in (result.metadata or {})) is (checks != "{}")


def test_the_check_exists_unless_all_its_conditions_are_switched_off(tmp_path: Path) -> None:
    keyed_table(tmp_path / "wh", TABLE, partitioned=False)
    keyed_table(tmp_path / "wh", "shop.quiet", partitioned=False)
    append_table(tmp_path / "wh")
    off = ", ".join(f"{name}: off" for name in CONDITIONS)
    policies_of(tmp_path, f"tables: {{shop.quiet: {{checks: {{{off}}}}}, {TABLE}: {{checks: {{bucket_size: off}}}}}}")
    with open_house(tmp_path / "wh", DREDGE_POLICIES=str(tmp_path / "policies.yaml")) as house:
        declared = {key.asset_key: key for key in house.defs.resolve_asset_graph().asset_check_keys}
        by_table = {
            name: {key.name for key in house.defs.resolve_asset_graph().asset_check_keys if key.asset_key == layout}
            for name in (TABLE, "shop.quiet", "shop.log")
            for layout in [house.layout(name)]
        }
        assert declared and names.CONDITION_CHECK in by_table[TABLE]
        assert by_table["shop.quiet"] == {"tree_is_valid", "level0_backlog", "merged_view_unchanged"}
        assert by_table["shop.log"] == {
            "tree_is_valid",
            "small_files_backlog",
            "layout_condition",
            "merged_view_unchanged",
        }
        commit(house.warehouse.table(TABLE), 6)
        result = house.maintain(TABLE)
        assert evaluations(result)[names.CONDITION_CHECK] == (
            True,
            "all conditions hold: average_file_size, ro_is_fresh, maintenance_alive",
        )


def test_a_further_failing_condition_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed_table(tmp_path / "wh", TABLE, partitioned=False)
    commit(table, 6)
    written = max(bucket.newest_file_ms or 0 for bucket in table.health())
    policy = policies_of(tmp_path, "{}").of(TABLE)
    with open_house(tmp_path / "wh") as house:
        card = house.warehouse.card(TABLE)

        def report(hours: int, severity: str | None = None) -> list[str]:
            monkeypatch.setattr(health, "_newest", Kept(100))  # a run's process starts without cached ages
            store = table.store.copy({})
            store.clock = FixedClock(written + hours * HOUR_MS)
            rules = policy if severity is None else replace(policy, checks={"maintenance_alive": severity})
            opened = (card, rules, store, table_health(store))
            changed = list(changed_conditions(house.instance, house.warehouse.names, [opened]))
            for evaluation in changed:
                house.instance.report_runless_asset_event(evaluation)
            return [str(evaluation.description).partition(":")[0] for evaluation in changed]

        assert report(1) == [], "all conditions hold"
        assert report(7) == ["maintenance_alive"]
        assert report(8) == [], "only the age in the text changed"
        assert report(30) == ["maintenance_alive"], "the read-optimised view lags, too"
        assert report(31) == []
        assert report(31, "warn") == ["ro_is_fresh"], "the severity changed"
        assert report(1) == ["all conditions hold"]
