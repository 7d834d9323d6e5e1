"""Java drops the same partitions, by the same values, patterns and strategies; and reads what Dredge's drops, merges and repairs leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.format.partitions import java_texts
from lsm_core.maintenance import plan_partition_expiry
from tests.interop.rows import both_read

Java = Callable[..., dict[str, Any]]
OLD, PATTERN, FORM = "partition.expiration-time", "partition.timestamp-pattern", "partition.timestamp-formatter"
TEXTS = [
    *("2020-01-01", "2020-1-1", "2020-13-45", "2020-01-01 25:61:61", "20200101", " ", None, "2020-01-01 10:00:00.123"),
    *(
        "2020-01-01T10:00",
        "-2020-01-01",
        "+2020-01-01",
        "2999-01-01",
        "2020-01-01 ",
        "2020--1-01",
        "2020-00-00",
        "0000-01-01",
    ),
    *(
        "99999999999-01-01",
        "9999999999-01-01",
        "2020-01-01 10:00",
        "2020-01-01 1:2:3",
        "2020-01-01 10:00:00.",
        "0-0-0",
        "-0-1-1",
    ),
    *(
        "2020-01",
        "2020",
        "2020-123-01",
        "2020-01-01 100:00:00",
        "12020-01-01",
        "2998-120-01",
        "2020-01-01 10:00:00.1234567890",
    ),
]
FORMS = {
    "yyyyMMdd": [
        "20200101",
        "2020101",
        "20200230",
        "20200231",
        "20200232",
        "20201301",
        "120200101",
        "29990101",
        "0020-0101",
    ],
    "yyyyMMddHH": ["2020010123", "2020010124", "2020010125", "20200101"],
    "yyyyMMddHHmmss": ["20200101235959", "20200101235960", "20200101240000", "20200101240001"],
    "yyyy-MM-dd[ HH:mm]": ["2020-01-01", "2020-01-01 10:11", "2020-01-01 10:60", "2020-01-01 "],
    "dd.MM.uuuu": ["01.01.2020", "1.1.2020", "31.02.2020", "01.01.-2020", "01.01.+12020", "01.01.12020"],
    "yy-M-d": ["20-1-1", "99-1-1", "20-01-01", "20-13-1", "20-1-31"],
    "yyyy-MM": ["2020-01"],
    "uuuuDDD": ["2020001", "2020366", "2021366", "2020000"],
    "yyyy-MM-dd'T'HH:mm:ss.SSS": ["2020-01-01T10:11:12.013", "2020-01-01T10:11:12.13", "2020-01-01T10:11:12"],
    "y/M/d": ["2020/1/1", "+12020/1/1", "-1/1/1", "0/1/1", "2020/001/01"],
    "yyyyy-MM-dd": ["02020-01-01", "2020-01-01"],
    "HH yyyy-MM-dd": ["24 2020-01-01", "00 2020-01-01"],
}


def create(place: Path, name: str, columns: dict[str, tuple[pa.DataType, list[Any]]], **options: str) -> Table:
    """An append table partitioned by ``columns``, one row a partition."""
    catalog = Catalog(str(place))
    catalog.create_database("db", ignore_if_exists=True)
    arrays = [pa.array(values, kind) for kind, values in columns.values()]
    data = pa.table([*arrays, pa.array(range(len(arrays[0])), pa.int64())], names=[*columns, "v"])
    table = catalog.create_table(f"db.{name}", Schema(data.schema, partition_keys=list(columns), options=options))
    table.write(data)
    return table


def planned(table: Table) -> list[tuple[str, ...]]:
    """What Dredge would drop, as Java prints values."""
    plan = plan_partition_expiry(table.store)
    values = java_texts(table.schema, [item.partition for item in plan.items])
    named = [tuple("__DEFAULT_PARTITION__" if text is None else text for text in texts) for texts in values]
    return sorted(named, key=repr)


def dropped(table: Table, java: Java) -> list[tuple[str, ...]]:
    answer = java("expire_partitions", table=table.name)["dropped"]
    return sorted((tuple(item[key] for key in table.partition_keys) for item in answer), key=repr)


@pytest.mark.paimon_java
def test_java_drops_the_same_partitions(tmp_path: Path, java: Java) -> None:
    text, days = pa.string(), pa.date32()
    many = {"partition.expiration-max-num": "1000"}
    cases: dict[str, Table] = {
        "texts": create(tmp_path, "texts", {"dt": (text, TEXTS)}, **{OLD: "1 d"}, **many),
        "dates": create(tmp_path, "dates", {"dt": (days, [0, 18262, 400000, None])}, **{OLD: "1 d"}),
        "plain dates": create(
            tmp_path, "plain", {"dt": (days, [0, 18262])}, **{OLD: "1 d", "partition.legacy-name": "false"}
        ),
        "numbers": create(
            tmp_path, "numbers", {"dt": (pa.int32(), [20200101, 29990101, 7])}, **{OLD: "1 d", FORM: "yyyyMMdd"}
        ),
        "hours": create(
            tmp_path,
            "hours",
            {"dt": (text, ["2020-01-01", "2020-01-02", "2999-01-01", None]), "hour": (text, ["7", None, "8", "9"])},
            **{OLD: "1 d", PATTERN: "$dt $hour:00:00"},
        ),
        "one of two": create(
            tmp_path, "first", {"dt": (text, ["2020-01-01", "2020-01-02"]), "x": (text, ["a", None])}, **{OLD: "1 d"}
        ),
        "unnamed null": create(
            tmp_path,
            "unnamed",
            {"dt": (text, ["2020-01-01", "2020-01-02"]), "x": (text, ["a", None])},
            **{OLD: "1 d", PATTERN: "$dt"},
        ),
        "names that begin alike": create(
            tmp_path,
            "alike",
            {"d": (text, ["2020", "20"]), "d2": (text, ["2020-01-01", "2020-01-01"])},
            **{OLD: "1 d", PATTERN: "$d2-01-01"},
        ),
        "too many": create(
            tmp_path,
            "many",
            {"dt": (text, [f"2020-1-{day}" for day in (9, 8, 30, 10, 11)]), "x": (pa.int32(), [1, 2, 3, 4, 5])},
            **{OLD: "1 d", "partition.expiration-max-num": "3"},
        ),
        "just made": create(
            tmp_path, "made", {"p": (text, ["a", "b"])}, **{OLD: "1 h", "partition.expiration-strategy": "update-time"}
        ),
        "made before": create(
            tmp_path,
            "before",
            {"p": (text, ["a", "b"])},
            **{OLD: "1 ms", "partition.expiration-strategy": "update-time"},
        ),
    }
    for number, (form, values) in enumerate(FORMS.items()):
        cases[form] = create(tmp_path, f"form{number}", {"dt": (text, values)}, **{OLD: "1 d", FORM: form}, **many)
    at = (pa.timestamp("ms"), [0, 1_577_836_800_000, 1_577_836_800_123])
    times = create(tmp_path, "times", {"dt": at}, **{OLD: "1 d", FORM: "yyyy-MM-dd'T'HH:mm"})
    assert len(planned(times)) == 2
    with pytest.raises(Exception, match="'1970-01-01T00:00' could not be parsed"):
        dropped(times, java)  # it chooses them, and then cannot read the names that it gave them
    expected = {name: planned(table) for name, table in cases.items()}
    assert {name: dropped(table, java) for name, table in cases.items()} == expected
    assert [len(expected[name]) for name in ("numbers", "too many", "just made", "made before")] == [1, 3, 0, 2]


@pytest.mark.paimon_java
def test_java_goes_on_after_every_repair(tmp_path: Path, java: Java) -> None:
    fields = pa.schema(
        [pa.field("dt", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int32())]
    )
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", OLD: "1 d", "write-only": "true", "snapshot.num-retained.min": "1"}
    table = catalog.create_table("db.t", Schema(fields, ["dt", "k"], ["dt"], options))

    def rows(dt: str, first: int) -> pa.Table:
        return pa.table([[dt] * 5, range(first, first + 5), [first] * 5], schema=fields)

    for first in range(3):
        table.write(rows("2020-01-01", first))
        java("write", rows=rows("2999-01-01", first).to_pylist(), compact="none")
    # The same snapshot as Java's of a twin: what is dropped, and what kind of commit drops it.
    assert table.expire_partitions().expired == ("dt=2020-01-01",)
    assert {row[0] for row in both_read(table, java)} == {"2999-01-01"}
    table.apply(table.plan_maintenance("manifests"))
    before = both_read(table, java)
    assert len(before) == 7
    kinds = [(item["commitKind"], item["deltaRecordCount"]) for item in java("snapshots")["snapshots"]]
    assert kinds[-2:] == [("OVERWRITE", -15), ("COMPACT", 0)]
    java("write", rows=rows("2999-01-01", 50).to_pylist(), compact="full", options={"write-only": "false"})
    java("compact_manifest")
    assert table.plan_maintenance("manifests").items == ()  # Java leaves nothing to merge either
    # A gap, which ends Java's expiry: bridged, Java expires past it, and its files go.
    root = Path(table.store.root)
    ids = [snapshot.id for snapshot in table.snapshots()]
    for number in ids[2:4]:
        (root / "snapshot" / f"snapshot-{number}").unlink()
    limited = {"snapshot.num-retained.max": "1", "snapshot.num-retained.min": "1", "snapshot.expire.limit": "3"}
    assert [java("expire_snapshots", options=limited)["expired"] for _ in range(3)] == [0, 0, 0]
    assert table.apply(table.plan_maintenance("repair")).bridged == tuple(ids[2:4])
    assert len(both_read(table, java)) == 12
    assert java("read", options={"scan.snapshot-id": str(ids[3])})["rows"] != []
    assert [java("expire_snapshots", options=limited)["expired"] for _ in range(4)] == [3, 3, 3, 1]
    assert [item["id"] for item in java("snapshots")["snapshots"]] == ids[-1:]
    assert not list(root.glob("dt=2020-01-01/*/data-*"))
    # Files and manifests that are gone, and hints that lie.
    table.write(rows("2999-01-02", 0))
    for path in root.glob("dt=2999-01-02/*/data-*"):
        path.unlink()
    table.apply(table.plan_maintenance("remove_unexisting_files"))
    (root / "snapshot" / "LATEST").write_text("9999")
    table.apply(table.plan_maintenance("repair"))
    assert len(both_read(table, java)) == 12
    table.apply(table.plan_maintenance("purge", confirm="db.t"))
    assert both_read(table, java) == []
    java("write", rows=rows("2999-01-01", 0).to_pylist(), compact="none")
    assert len(both_read(table, java)) == 5
