"""Dropping partitions by a plan: those it names, as they were when it was made, and they come back from the snapshot before."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.errors import ColumnNotFound, InvalidOption, PlanStale, UnsupportedFeature
from lsm_core.maintenance import MaintenancePlan
from tests.maintenance.tables import content, keyed, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = keyed(tmp_path, partitioned=True)
    for number, dt in enumerate("abc"):
        made.write(rows(range(3 + number), dt=dt))
    return made


def partitions(table: Table) -> set[str]:
    return {row[3] for row in content(table)}


def test_what_the_plan_names_goes_and_comes_back(table: Table) -> None:
    before = content(table)
    plan = table.plan_maintenance("drop_partitions", partitions=[{"dt": "a"}, {"dt": "b"}, {"dt": "x"}])
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    assert [item.cells()[:3] for item in plan.items] == [("dt=a", 1, 3), ("dt=b", 1, 4)]
    report = table.apply(plan)
    assert (report.dropped, report.rows, report.snapshot_id, report.before) == (("dt=a", "dt=b"), 7, 4, 3)
    assert "--snapshot 3 --partition dt=a --partition dt=b" in report.lines("db.t")[-1]
    assert partitions(table) == {"c"}
    again = table.apply(plan)
    assert not again.changed and again.applied_before is not None
    table.write(rows([9], dt="c"))
    back = [{"dt": "a"}, {"dt": "b"}]
    table.apply(table.plan_maintenance("rollback_as_latest", snapshot_id=report.before, partitions=back))
    assert [row for row in content(table) if row[3] != "c"] == [row for row in before if row[3] != "c"]
    assert 9 in [row[0] for row in content(table)]
    assert [entry.action for entry in table.ledger()] == ["drop_partitions", "rollback_as_latest"]


def test_a_partition_that_was_written_to_since_stays(table: Table) -> None:
    plan = table.plan_maintenance("drop_partitions", partitions=[{"dt": "a"}, {"dt": "b"}])
    table.write(rows([50], dt="a"))
    report = table.apply(plan)
    assert report.dropped == ("dt=b",) and [item.reason for item in report.declined] == ["changed"]
    assert partitions(table) == {"a", "c"}
    plan = table.plan_maintenance("drop_partitions", partitions=[{"dt": "a"}])
    table.write(rows([51], dt="a"))
    with pytest.raises(PlanStale, match="all of its partitions were written to"):
        table.apply(plan)


def test_what_cannot_be_dropped_is_named(table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="at least one partition"):
        table.plan_maintenance("drop_partitions")
    with pytest.raises(ColumnNotFound):
        table.plan_maintenance("drop_partitions", partitions=[{"day": "a"}])
    assert table.plan_maintenance("drop_partitions", partitions=[{"dt": "zz"}]).declined[0].reason == "empty"
    with pytest.raises(UnsupportedFeature, match="without partitions"):
        keyed(tmp_path, name="db.p").plan_maintenance("drop_partitions", partitions=[{"dt": "a"}])


def test_partitions_that_are_about_to_expire_are_not_compacted(tmp_path: Path) -> None:
    options = {"partition__expiration_time": "7 d", "partition__timestamp_formatter": "yyyy-MM-dd"}
    table = keyed(tmp_path, partitioned=True, **options)
    for dt in ("2020-01-01", "2023-11-14"):  # the clock says 2023-11-14
        for value in range(2):
            table.write(rows([1], v=value, dt=dt))
    assert len(table.plan_maintenance("compact", full=True).items) == 2
    skipping = table.copy({"compaction.skip-expired-partitions": "true"})
    plan = skipping.plan_maintenance("compact", full=True)
    assert [item.partition_text for item in plan.items] == ["dt=2023-11-14"]
    [left] = plan.declined
    assert (left.reason, left.partition_text) == ("expired", "dt=2020-01-01") and "2020-01-01 00:00:00" in left.text
    table.store.clock.advance(1)
    assert skipping.plan_maintenance("compact", full=True).hash == plan.hash
    by_update = skipping.copy({"partition.expiration-strategy": "update-time"})
    assert len(by_update.plan_maintenance("compact", full=True).items) == 2
