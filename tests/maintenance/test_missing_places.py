"""A bucket or partition that is named but not there never makes an empty plan without a reason."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Schema, SchemaChange
from lsm_core.errors import InvalidFilter, InvalidOption
from tests.maintenance.tables import catalog, keyed, rows


def test_a_bucket_that_the_table_cannot_have_is_refused_with_how_many_there_are(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="2")
    with pytest.raises(
        InvalidOption, match=r"'buckets' of table db\.t cannot be 9; accepted: 0 to 1: there are 2 buckets"
    ):
        table.compact(buckets=[9])  # no snapshot yet
    table.write(rows(range(20)))
    for wrong in ([9], [0, 9], [2], [-1]):
        with pytest.raises(InvalidOption, match=f"cannot be {wrong[-1]}; accepted: 0 to 1"):
            table.compact(buckets=wrong)
    with pytest.raises(InvalidOption, match=r"cannot be \[7, 9\]"):
        table.plan_maintenance("compact", buckets=[9, 7], full=True)


def test_a_bucket_without_files_is_told(tmp_path: Path) -> None:
    table = keyed(tmp_path, bucket="64")
    table.write(rows([1]))
    (used,) = [bucket.bucket for bucket in table.health()]
    empty = (used + 1) % 64
    plan = table.plan_maintenance("compact", full=True, buckets=[used, empty])
    assert [item.bucket for item in plan.items] == [used]
    assert [(left.subject, left.text) for left in plan.declined] == [(f"bucket-{empty}", "no file lies there")]


def test_buckets_made_before_the_option_was_lowered_are_known(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, bucket="4")
    for day in ("a", "b"):
        table.write(rows(range(40), dt=day))
    made = catalog(tmp_path)
    made.alter_table("db.t", [SchemaChange.set_option("bucket", "2")])
    table = made.table("db.t")
    fewer = table.plan_maintenance("compact", full=True, buckets=[3], partitions=[{"dt": "a"}])
    assert [(item.partition_text, item.bucket) for item in fewer.items] == [("dt=a", 3)]
    with pytest.raises(InvalidOption, match="0 to 3"):
        table.compact(buckets=[4], partitions=[{"dt": "a"}])


def test_an_append_table_without_buckets_has_one(tmp_path: Path) -> None:
    table = catalog(tmp_path).create_table("db.log", Schema(pa.schema([("a", pa.int64())]), options={"bucket": "-1"}))
    assert table.compact(buckets=[0]).declined[0].text == "the table has no snapshot"
    table.write(pa.table({"a": [1]}))
    with pytest.raises(InvalidOption, match="cannot be 9; accepted: 0 to 0: there is 1 bucket"):
        table.compact(buckets=[9])


def test_a_partition_without_files_is_told_by_name(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, bucket="2")
    table.write(rows(range(20), dt="a"))
    for buckets in (None, [0]):
        plan = table.plan_maintenance("compact", full=True, partitions=[{"dt": "a"}, {"dt": "zz"}], buckets=buckets)
        assert {item.partition_text for item in plan.items} == {"dt=a"}
        assert [(left.subject, left.text) for left in plan.declined] == [("dt=zz", "no file lies there")]
    with pytest.raises(InvalidOption, match="0 to 1"):
        table.compact(partitions=[{"dt": "zz"}], buckets=[9])
    (left,) = table.compact(partitions=[]).declined
    assert left.text == "the list of partitions is empty: nothing is chosen"


def test_an_unknown_partition_column_is_refused_with_the_table(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    for look in (table.health, lambda spec: table.compact(partitions=[spec])):
        with pytest.raises(InvalidFilter, match=r"table db\.t: partition \{'day': 'a'\}: the partition columns are dt"):
            look({"day": "a"})
