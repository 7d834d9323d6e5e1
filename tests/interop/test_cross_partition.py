"""Primary keys without all partition columns: a table that Dredge and Java write in turn has the rows of one that Java writes alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog

Java = Callable[..., dict[str, Any]]
STEPS = 5
FIELDS = [
    {"name": "p", "type": "STRING NOT NULL"},
    {"name": "q", "type": "INT NOT NULL"},
    {"name": "k", "type": "BIGINT NOT NULL"},
    {"name": "v", "type": "STRING"},
]


@pytest.mark.paimon_java
@pytest.mark.parametrize("keys", [["k"], ["q", "k"]], ids=["apart", "in part"])
@pytest.mark.parametrize("bucket", ["-1", "2"], ids=["moving", "fixed"])
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_rows_go_where_java_puts_them(tmp_path: Path, java: Java, engine: str, bucket: str, keys: list[str]) -> None:
    """With fixed buckets each partition has its own row of a key; else a key has one row, which moves or stays."""
    random = Random(f"{engine} {keys}")
    partitions = ["p"] if keys == ["k"] else ["p", "q"]
    options = {"bucket": bucket, "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    schema = {"fields": FIELDS, "primaryKeys": keys, "partitionKeys": partitions, "options": options}
    for name in ("db.both", "db.java"):
        java("create", table=name, schema=schema)
    catalog = Catalog(str(tmp_path))
    for step in range(STEPS):
        rows = [
            {"_kind": random.choice(["+I", "+U", "-D"] if engine == "deduplicate" else ["+I"])}
            | {
                "p": random.choice("abc"),
                "q": random.choice([1, 2]),
                "k": random.randrange(25),
                "v": f"{step}-{number}",
            }
            for number in range(20)
        ]
        compact = "minor" if engine == "first-row" else "none"
        java("write", table="db.java", rows=rows, compact=compact)
        table = catalog.table("db.both")
        if step % 2:
            java("write", table="db.both", rows=rows, compact=compact)
        else:
            kinds = pa.array([row["_kind"] for row in rows])
            table.write(pa.Table.from_pylist(rows, schema=table.schema.arrow_schema), kinds)
        if engine == "first-row" or step == 3:
            table.compact(full=step != 0)
        alone, both = (sorted(map(_values, java("read", table=name)["rows"])) for name in ("db.java", "db.both"))
        assert sorted(map(_values, table.to_arrow().to_pylist())) == both == alone


@pytest.mark.paimon_java
@pytest.mark.parametrize("bucket", ["-1", "2"], ids=["moving", "fixed"])
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_overwrites_leave_what_javas_leave(tmp_path: Path, java: Java, engine: str, bucket: str) -> None:
    """Of all partitions, or of those that rows name: here these are all, so that no key comes out of another."""
    random = Random(engine)
    options = {"bucket": bucket, "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    catalog = Catalog(str(tmp_path))
    for whole in (True, False):
        chosen = {**options, "dynamic-partition-overwrite": str(not whole).lower()}
        schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": ["p"], "options": chosen}
        names = (f"db.both{whole}".lower(), f"db.java{whole}".lower())
        for name in names:
            java("create", table=name, schema=schema)
        table = catalog.table(names[0])
        for step in range(5):
            replacing = step in (1, 2, 4)
            places = "abc" if whole or not replacing else "aabbc"
            rows = [
                {"p": random.choice(places), "q": 1, "k": random.randrange(25), "v": f"{step}-{number}"}
                for number in range(16)
            ]
            if replacing and not whole:
                rows[:3] = [{"p": p, "q": 1, "k": 100 + step * 3 + n, "v": "new"} for n, p in enumerate("abc")]
            told: dict[str, Any] = {"overwrite": {"partition": {}}} if replacing else {}
            compact = "minor" if engine == "first-row" else "none"
            java("write", table=names[1], rows=rows, compact=compact, **told)
            if step == 2:
                java("write", table=names[0], rows=rows, compact=compact, **told)
            else:
                catalog.table(names[0]).write(
                    pa.Table.from_pylist(rows, schema=table.schema.arrow_schema), overwrite=replacing
                )
            if engine == "first-row" or step == 3:
                catalog.table(names[0]).compact(full=True)
            both, alone = (sorted(map(_values, java("read", table=name)["rows"])) for name in names)
            assert sorted(map(_values, catalog.table(names[0]).to_arrow().to_pylist())) == both == alone, (whole, step)


@pytest.mark.paimon_java
def test_a_partition_that_a_key_left_keeps_its_other_rows_where_java_empties_it(tmp_path: Path, java: Java) -> None:
    """Java replaces every partition that gets a file, be it the delete of a key that left; of a named one it then fails."""
    options = {"bucket": "-1"}
    schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": ["p"], "options": options}
    before = [{"p": p, "q": 1, "k": k, "v": "old"} for p, k in (("a", 1), ("b", 2), ("b", 3))]
    rows = [{"p": "a", "q": 1, "k": k, "v": "new"} for k in (2, 4)]
    for name in ("db.ours", "db.java", "db.named", "db.refused"):
        java("create", table=name, schema=schema)
        java("write", table=name, rows=before)
    catalog = Catalog(str(tmp_path))
    new = pa.Table.from_pylist(rows, schema=catalog.table("db.ours").schema.arrow_schema)
    catalog.table("db.ours").write(new, overwrite=True)
    catalog.table("db.named").write(new, overwrite={"p": "a"})
    java("write", table="db.java", rows=rows, overwrite={"partition": {}})
    with pytest.raises(Exception, match="does not belong to this partition"):
        java(
            "write",
            table="db.refused",
            rows=rows,
            overwrite={"partition": {"p": "a"}},
            options={"dynamic-partition-overwrite": "false"},
        )
    kept = [("a", 1, 2, "new"), ("a", 1, 4, "new"), ("b", 1, 3, "old")]
    for name in ("db.ours", "db.named"):
        assert sorted(map(_values, java("read", table=name)["rows"])) == kept
        java("write", table=name, rows=[{"p": "c", "q": 1, "k": 3, "v": "last"}])
        assert sorted(map(_values, catalog.table(name).to_arrow().to_pylist())) == [*kept[:2], ("c", 1, 3, "last")]
    assert sorted(map(_values, java("read", table="db.java")["rows"])) == kept[:2]


@pytest.mark.paimon_java
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation", "first-row"])
def test_commits_of_a_long_lived_writer_that_wait_are_what_javas_are(tmp_path: Path, java: Java, engine: str) -> None:
    random = Random(f"stream {engine}")
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": ["p"], "options": options}
    for name in ("db.ours", "db.java"):
        java("create", table=name, schema=schema)
    table = Catalog(str(tmp_path)).table("db.ours")
    commit, waiting = table.new_stream_commit("job"), {}
    with table.new_stream_write("job") as writer:
        for number in range(6):
            rows = [
                {"p": random.choice("abc"), "q": 1, "k": random.randrange(20), "v": f"{number}-{k}"} for k in range(12)
            ]
            java("write", table="db.java", writer="w", rows=rows, hold=f"h{number}", identifier=number)
            writer.write(pa.Table.from_pylist(rows, schema=table.schema.arrow_schema))
            waiting[number] = writer.prepare_commit(wait_compaction=True, commit_identifier=number)
            if number % 3 == 2:
                commit.filter_and_commit(waiting)
                for held in sorted(waiting):
                    java("commit", table="db.java", hold=f"h{held}")
                waiting.clear()
                ours, theirs = (
                    sorted(map(_values, java("read", table=name)["rows"])) for name in ("db.ours", "db.java")
                )
                assert ours == theirs, number
    java("close_writer", table="db.java", writer="w")
    if engine == "first-row":
        table.compact(full=True)
    assert sorted(map(_values, table.to_arrow().to_pylist())) == theirs


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[str(field["name"])] for field in FIELDS)
