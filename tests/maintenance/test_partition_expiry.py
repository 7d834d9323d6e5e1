"""Partition expiry: what is dropped and what stays, with reasons; by hand, by plan, and by writers after their commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.cli.app import run
from lsm_core.clock import FixedClock
from lsm_core.errors import InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.maintenance import MaintenancePlan, plan_partition_expiry
from tests.maintenance.tables import HOUR, content

DAY = 24 * HOUR
NOW = 1_704_067_200_000
"""2024-01-01T00:00."""


def table_of(place: Path, values: dict[str, list[Any]], **options: str) -> Table:
    """An append table partitioned by all columns of ``values`` but v, one row a partition."""
    catalog = Catalog(place / "wh", clock=FixedClock(NOW))
    catalog.create_database("db", ignore_if_exists=True)
    rows = pa.table({**values, "v": list(range(len(next(iter(values.values())))))})
    given = {key.replace("_", "-").replace("--", "."): value for key, value in options.items()}
    made = catalog.create_table("db.t", Schema(rows.schema, partition_keys=list(values), options=given))
    made.write(rows)
    return made


def test_old_partitions_go_and_the_others_say_why_they_stay(tmp_path: Path) -> None:
    days = ["2023-12-01", "2023-12-24", "2023-12-25", "2023-12-26", "soon", None]
    table = table_of(tmp_path, {"dt": days}, partition__expiration_time="7 d")
    plan = table.plan_maintenance("expire_partitions")
    assert [(item.partition_text, item.time) for item in plan.items] == [
        ("dt=2023-12-01", "2023-12-01 00:00:00"),
        ("dt=2023-12-24", "2023-12-24 00:00:00"),
    ]
    assert {item.reason for item in plan.items} == {"its time is before 2023-12-25 00:00:00"}
    values = {item.subject: (item.reason, item.text) for item in plan.declined}
    assert values["dt=2023-12-25"] == ("kept", "dt=2023-12-25 (2023-12-25 00:00:00) expires on 2024-01-01 00:00:00")
    assert values["dt=soon"][0] == values["dt=__DEFAULT_PARTITION__"][0] == "no-time"
    assert "'soon' is no time of the form" in values["dt=soon"][1]
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    report = table.apply(plan)
    assert report.expired == ("dt=2023-12-01", "dt=2023-12-24")
    assert (report.snapshot_id, report.files, report.rows, report.held_by) == (2, 2, 2, 1)
    assert table.latest_snapshot().commit_kind.value == "OVERWRITE"
    assert [row[0] for row in content(table)] == ["2023-12-25", "2023-12-26", "soon", None]
    assert len(content(table, 1)) == 6  # no file is gone
    again = table.apply(plan)
    assert (again.snapshot_id, again.applied_before.snapshot_id) == (None, 2)
    assert table.ledger()[-1].action == "expire_partitions"
    # Two days on the next one is due; nothing is done twice.
    table.store.clock.advance(DAY)
    assert table.expire_partitions().expired == ("dt=2023-12-25",)
    assert table.expire_partitions().snapshot_id is None


def test_arguments_stand_above_options(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"y": ["2023", "2024"], "m": ["05", "01"]})
    with pytest.raises(InvalidOption, match=r"partition\.expiration-time"):
        table.expire_partitions()
    plan = plan_partition_expiry(table.store, NOW, None, "$y$m", "yyyyMM")
    assert plan.items == () and len(plan.declined) == 2  # a month is no date
    chosen = {"older_than_ms": NOW, "timestamp_pattern": "$y$m" + "01", "timestamp_formatter": "yyyyMMdd"}
    assert table.expire_partitions(**chosen).expired == ("y=2023/m=05",)
    with pytest.raises(InvalidOption, match=r"partition\.expiration-strategy"):
        table.expire_partitions(NOW, "values")
    with pytest.raises(UnsupportedFeature, match="custom"):
        table.expire_partitions(NOW, "custom")
    with pytest.raises(InvalidOption, match="max_expires"):
        table.expire_partitions(NOW, max_expires=0)


def test_of_too_many_the_first_by_name_go_and_batches_are_commits_of_their_own(tmp_path: Path) -> None:
    days = [f"2023-10-{day}" for day in (9, 8, 30, 10, 11)]
    table = table_of(tmp_path, {"dt": days}, partition__expiration_time="1 d", partition__expiration_batch_size="2")
    report = table.expire_partitions(max_expires=3)
    assert report.expired == ("dt=2023-10-10", "dt=2023-10-11", "dt=2023-10-30")
    assert report.snapshot_ids == (2, 3)
    assert {item.subject for item in report.declined if item.reason == "capped"} == {"dt=2023-10-8", "dt=2023-10-9"}


def test_by_update_time_a_partition_that_is_written_to_meanwhile_stays(tmp_path: Path) -> None:
    options = {"partition__expiration_time": "1 d", "partition__expiration_strategy": "update-time"}
    table = table_of(tmp_path, {"p": ["a", "b", "c"]}, **options)
    table.store.clock.advance(DAY)
    assert table.expire_partitions().snapshot_id is None  # of the very moment
    table.write({"p": ["c"], "v": [9]})
    table.store.clock.advance(HOUR)
    plan = table.plan_maintenance("expire_partitions")
    assert [item.partition_text for item in plan.items] == ["p=a", "p=b"]
    table.write({"p": ["b"], "v": [9]})
    report = table.apply(plan)
    assert report.expired == ("p=a",)
    assert [item.subject for item in report.declined if item.reason == "changed"] == ["p=b"]
    assert sorted(row[0] for row in content(table)) == ["b", "b", "c", "c"]
    table.store.clock.advance(2 * DAY)
    plan = table.plan_maintenance("expire_partitions")
    table.truncate()
    report = table.apply(plan)
    assert report.snapshot_id is None and len(report.declined) == 2


def test_late_rows_of_an_expired_partition_go_with_it(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"dt": ["2023-01-01"]}, partition__expiration_time="1 d")
    plan = table.plan_maintenance("expire_partitions")
    table.write({"dt": ["2023-01-01"], "v": [7]})
    assert table.apply(plan).rows == 2
    assert content(table) == []


def test_a_table_without_partitions_is_refused(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(pa.schema([("v", pa.int64())])))
    with pytest.raises(UnsupportedFeature, match="without partitions"):
        table.expire_partitions(NOW)


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ({}, 3),  # the check waits for an hour
        ({"partition__expiration_check_interval": "0 ms"}, 1),
        ({"end_input__check_partition_expire": "true"}, 1),
        ({"partition__expiration_check_interval": "0 ms", "write_only": "true"}, 3),
    ],
)
def test_a_batch_commit_expires_where_the_options_ask_for_it(
    tmp_path: Path, options: dict[str, str], after: int
) -> None:
    days = ["2023-01-01", "2023-01-02"]
    table = table_of(tmp_path, {"dt": days}, partition__expiration_time="1 d", write_only="true")
    given = {
        key.replace("_", "-").replace("--", "."): value for key, value in {"write_only": "false", **options}.items()
    }
    table.copy(given).write({"dt": ["2023-12-31"], "v": [1]})
    assert len({row[0] for row in content(table)}) == after


def test_a_stream_expires_once_an_interval(tmp_path: Path) -> None:
    options = {"partition__expiration_time": "1 d", "write_only": "true"}
    table = table_of(tmp_path, {"dt": ["2023-01-01"]}, **options).copy({"write-only": "false"})
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        for number in range(3):
            writer.write({"dt": ["2023-06-01"], "v": [number]})
            commit.commit(writer.prepare_commit(commit_identifier=number), number)
            assert bool(content(table)) == (number == 0), number
            table.store.clock.advance(HOUR + 1)
    assert [entry.approved_by for entry in table.ledger()] == ["commit", "commit"]


def test_partitions_without_a_time_are_refused_where_the_table_is_strict(tmp_path: Path) -> None:
    """Java's answers: the formatter or the pattern decides, null is no time, and without both anything goes."""
    table = table_of(tmp_path, {"dt": ["20230101"]})
    strict = {"partition.timestamp-format.strict": "true"}
    assert table.copy(strict).write({"dt": ["x"], "v": [1]}) == 2
    strict["partition.timestamp-formatter"] = "yyyyMMdd"
    for wrong in ("2023-01-01", "", None):
        with pytest.raises(
            InvalidData, match=r"has no readable time, which partition\.timestamp-format\.strict requires"
        ):
            table.copy(strict).write(pa.table({"dt": pa.array(["20230102", wrong]), "v": [1, 2]}))
    assert table.latest_snapshot().id == 2
    assert table.copy(strict).write({"dt": ["20230102"], "v": [1]}) == 3
    assert table.copy({"partition.timestamp-pattern": "$dt", "partition.timestamp-format.strict": "true"}).write(
        {"dt": ["2023-1-2"], "v": [1]}
    )


def test_the_command_line_drops_and_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of(tmp_path, {"dt": ["2023-01-01", "2023-12-31"]}, partition__expiration_time="30 d")
    where = ["-w", str(tmp_path / "wh"), "--clock", f"fixed:{NOW}"]
    assert run(["expire-partitions", "db.t", "--dry-run", *where]) == 0
    printed = capsys.readouterr().out
    assert "dt=2023-01-01" in printed and "expires on 2024-01-30" in printed and len(table.snapshots()) == 1
    assert run(["expire-partitions", "db.t", *where]) == 0
    assert "1 partitions expired (dt=2023-01-01)" in capsys.readouterr().out
