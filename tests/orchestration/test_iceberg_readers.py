"""Iceberg readers that lag, from the sensor's tick over the run to the check and the rows that they see."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from dredge.checks.layout_condition import changed_conditions
from dredge.platform_core import names
from dredge.platform_core.health import table_health
from dredge.platform_core.policies.policy_files import read_policies
from lsm_core.clock import FileClock
from lsm_core.iceberg.state import read_state
from tests.support.platform import House, commit, evaluations, keyed_table, open_house

HOUR_MS = 3_600_000
START = 1_700_000_000_000
TABLE = "shop.orders"
ICEBERG = {"metadata.iceberg.storage": "table-location"}


def _condition(house: House, policies: Path) -> dg.AssetCheckEvaluation | None:
    """Return the check `layout_condition` if its failed conditions changed, and store it as `warehouse_health` does."""
    store = house.warehouse.store(TABLE)
    table = (house.warehouse.card(TABLE), read_policies(policies).of(TABLE), store, table_health(store))
    for evaluation in changed_conditions(house.instance, house.warehouse.names, [table]):
        house.instance.report_runless_asset_event(evaluation)
        return evaluation
    return None


@pytest.mark.parametrize("compacts", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_lag_above_the_limit_is_ended_by_a_full_compaction(tmp_path: Path, compacts: bool) -> None:
    clock = FileClock(str(tmp_path / "clock"))
    clock.set(START)
    policies = tmp_path / "policies.yaml"
    policies.write_text("defaults: {iceberg_lag: 1 h}\n")
    table = keyed_table(tmp_path / "wh", TABLE, partitioned=False, **ICEBERG)
    table.store.clock = clock
    commit(table, 2)
    if compacts:
        table.compact(full=True)
        clock.set(clock.now_ms() + HOUR_MS)
        commit(table, 1)
    with open_house(tmp_path / "wh", DREDGE_CLOCK=clock.to_spec(), DREDGE_POLICIES=str(policies)) as house:
        clock.set(clock.now_ms() + HOUR_MS // 2)
        first = house.tick(names.SORTED_RUN_SENSOR)
        assert not first.run_requests
        assert any("too few runs" in line for line in house.lines(first))
        assert _condition(house, policies) is None, "within the limit"

        clock.set(clock.now_ms() + HOUR_MS)
        late = _condition(house, policies)
        assert late is not None and not late.passed
        assert late.severity is dg.AssetCheckSeverity.WARN
        assert "Iceberg readers lag 1.5 h > 1.0 h: rows committed since" in str(late.description)
        (request,) = house.tick(names.SORTED_RUN_SENSOR).run_requests
        assert request.tags[names.TAG_ACTION] == "compact full"
        assert "90 min > 60 min (policies.yaml:1, defaults)" in request.tags[names.TAG_REASON]

        result = house.run(request)
        assert result.success
        passed, text = evaluations(result)[names.CONDITION_CHECK]
        assert passed, text
        metadata = {event.check_name: event for event in result.get_asset_check_evaluations()}
        row = metadata[names.CONDITION_CHECK].metadata["iceberg_is_fresh"].value
        assert row == "passed: Iceberg readers lag 0.0 h <= 1.0 h: Iceberg readers see all rows"
        assert not house.tick(names.SORTED_RUN_SENSOR).run_requests
        shown = house.materialisation(TABLE)
        assert shown["Iceberg readers lag (hours)"] == 0.0
        assert shown["Iceberg readers"] == "Iceberg readers see all rows"

    state = read_state(table.store)
    assert state is not None and state.current is not None
    rows = int(state.current.summary["total-records"])
    assert rows == table.to_arrow().num_rows, "the files that need no merge have each row once"
