"""The great-expectations suite: holds over good rows, names what bad rows break, and never takes its own crash for bad data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from checks import expectations
from checks.expectations import SuiteCrashed, read_sample, run_suite
from orchestration import names
from orchestration.table_card import ColumnCard, TableCard
from tests.support.platform import append_table, commit, evaluations, keyed_table, open_house

CARD = TableCard(
    "shop.orders",
    primary_keys=("dt", "id"),
    columns=(ColumnCard("dt", "STRING NOT NULL", nullable=False, description=""), ColumnCard("id", "BIGINT NOT NULL", nullable=False, description=""), ColumnCard("v", "STRING", nullable=True, description="")),
)  # fmt: skip


def test_rows_that_break_a_rule_are_counted_by_rule() -> None:
    frame = pd.DataFrame({"dt": ["a", "a", "a", None], "id": [1, 1, 2, 3]})
    found = {item.text: (item.passed, item.unexpected) for item in run_suite(CARD, frame)}
    assert found == {"dt is never null": (False, 1), "id is never null": (True, 0), "(dt, id) is unique": (False, 2)}


def test_an_expectation_that_crashes_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    import great_expectations.expectations as gxe  # takes seconds, which the other test processes need not spend

    def broken(*_: Any) -> list[tuple[str, Any]]:
        return [("a column that is not there", gxe.ExpectColumnValuesToNotBeNull(column="nowhere"))]

    monkeypatch.setattr(expectations, "expectations", broken)
    with pytest.raises(SuiteCrashed, match=r"shop.orders: expectation 'a column that is not there' crashed"):
        run_suite(CARD, pd.DataFrame({"id": [1]}))


def test_the_suites_of_all_tables_run_in_one_job_and_only_look_at_a_bounded_sample(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root), 3)
    commit(append_table(root), 1)
    with open_house(root) as house:
        assert len(read_sample(house.warehouse.table("shop.orders"), max_rows=10).frame) == 10
        result = house.execute(names.EXPECTATIONS_JOB)
        assert result.success
        assert evaluations(result) == {names.SUITE_CHECK: evaluations(result)[names.SUITE_CHECK]}
        texts = {item.asset_key.path[-1]: item.description for item in result.get_asset_check_evaluations()}
        assert texts["orders"] == "3 expectations hold over 100 rows"
        assert texts["log"] == "2 expectations hold over 50 rows"
