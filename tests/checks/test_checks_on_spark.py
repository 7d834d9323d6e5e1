"""Checks that read in Spark: the second comparison sees sabotage, and expectations look at all rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from dredge.checks.expectations import suite_result
from dredge.orchestration.ops import layout_ops
from dredge.orchestration.ops.layout_ops import VerifyVerdict
from dredge.platform_core.policies.policy import Expectation
from dredge.platform_core.resources import SparkResource, WarehouseResource
from tests.checks.test_blocking import between_record_and_check, house_with_backlog, kinds, materialised
from tests.support.platform import commit, evaluations, keyed_table


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@kinds("swap")
def test_the_second_path_in_spark_sees_the_sabotage_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with house_with_backlog(tmp_path, "spark") as house:
        monkeypatch.setattr(
            layout_ops, "_compare_snapshots", lambda *_: VerifyVerdict(ok=True, level="V1", text="looked away")
        )
        between_record_and_check(house, monkeypatch, kind)
        result = house.execute("both")
        assert not result.success
        passed, text = evaluations(result)["merged_view_unchanged"]
        assert not passed
        assert "snapshots 5 and 6 differ in bucket-0" in text
        assert materialised(result) == {"orders_layout"}


@pytest.mark.soak
def test_all_rows_are_looked_at_in_spark_and_keys_are_named_alike(tmp_path: Path, spark: object) -> None:
    table = keyed_table(tmp_path / "wh")
    commit(table, 3)
    warehouse = WarehouseResource(path=str(tmp_path / "wh"))
    declared = [Expectation(type="expect_column_values_to_be_between", kwargs={"column": "id", "max_value": 97})]
    card = warehouse.card("shop.orders")
    here = suite_result(warehouse, card, declared)
    there = suite_result(warehouse, card, declared, SparkResource(runner="spark"))
    assert (here.passed, here.description) == (there.passed, there.description) == (False, here.description)
    assert "2 unexpected rows" in str(here.description)
    for item in (here, there):
        listed = str((item.metadata or {})["keys that break an expectation"].value)
        assert "id=98" in listed and "id=99" in listed and "dt=a" in listed
    assert (there.metadata or {})["rows looked at"].value == 100
    assert (there.metadata or {})["checked rows"].value == "all its rows, in Spark"
