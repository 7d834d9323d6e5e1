"""Primary keys without all partition columns: a table that Dredge and Java write in turn has the rows of one that Java writes alone.

Java sleeps for two seconds whenever it opens a writer for keys that move, once it has read the keys: cases run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")
STEPS = 4
LANES = 6
FIELDS = [
    {"name": "p", "type": "STRING NOT NULL"},
    {"name": "q", "type": "INT NOT NULL"},
    {"name": "k", "type": "BIGINT NOT NULL"},
    {"name": "v", "type": "STRING"},
]
ARROW = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("q", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.string()),
    ]
)


def side_by_side(java: Java, cases: Iterable[Callable[[Java], None]]) -> None:
    """Run every case, each in one lane of the JVM; raises what the first one raised."""
    with ThreadPoolExecutor(LANES) as pool:
        for done in [pool.submit(case, partial(java, lane=lane)) for lane, case in enumerate(cases, 1)]:
            done.result()


@pytest.mark.paimon_java
@pytest.mark.parametrize(("bucket", "half"), one_in(4, product(("-1", "2"), (0, 1))))  # moving keys, fixed buckets
def test_rows_go_where_java_puts_them(tmp_path: Path, java: Java, bucket: str, half: int) -> None:
    """With fixed buckets each partition has its own row of a key; else a key has one row, which moves or stays."""
    every = enumerate(product(ENGINES, (["k"], ["q", "k"])))
    kinds = [(number, kind) for number, kind in every if (number // 2 + number) % 2 == half]
    side_by_side(java, [partial(_in_turn, tmp_path, f"db{n}", bucket, *kind) for n, kind in kinds])


def _in_turn(warehouse: Path, database: str, bucket: str, engine: str, keys: list[str], java: Java) -> None:
    random = Random(f"{engine} {keys}")
    partitions = ["p"] if keys == ["k"] else ["p", "q"]
    options = {"bucket": bucket, "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    schema = {"fields": FIELDS, "primaryKeys": keys, "partitionKeys": partitions, "options": options}
    names = (f"{database}.both", f"{database}.java")
    for name in names:
        java("create", table=name, schema=schema)
    catalog = Catalog(str(warehouse))
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
        java("write", table=names[1], rows=rows, compact=compact, writer=names[1], identifier=step)
        table = catalog.table(names[0])
        if step % 2:
            java("write", table=names[0], rows=rows, compact=compact)
        else:
            kinds = pa.array([row["_kind"] for row in rows])
            table.write(pa.Table.from_pylist(rows, schema=ARROW), kinds)
        if engine == "first-row" or step == 3:
            table.compact(full=step != 0)
        both, alone = (sorted(map(_values, java("read", table=name)["rows"])) for name in names)
        assert sorted(map(_values, table.to_arrow().to_pylist())) == both == alone, (engine, keys, step)
    java("close_writer", table=names[1], writer=names[1])


@pytest.mark.paimon_java
def test_overwrites_leave_what_javas_leave(tmp_path: Path, java: Java) -> None:
    """Of all partitions, or of those that rows name: here these are all, so that no key comes out of another."""
    moving = [("deduplicate", False), ("deduplicate", True), ("partial-update", True), ("aggregation", False)]
    kinds = [*(("-1", *kind) for kind in [*moving, ("first-row", True)]), ("2", "deduplicate", False)]
    side_by_side(java, [partial(_overwritten, tmp_path, f"db{n}", *kind) for n, kind in enumerate(kinds)])


def _overwritten(warehouse: Path, database: str, bucket: str, engine: str, whole: bool, java: Java) -> None:
    random, catalog = Random(engine), Catalog(str(warehouse))
    options = {"bucket": bucket, "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    options["dynamic-partition-overwrite"] = str(not whole).lower()
    schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": ["p"], "options": options}
    names = (f"{database}.both", f"{database}.java")
    for name in names:
        java("create", table=name, schema=schema)
    table = catalog.table(names[0])
    for step in range(STEPS):
        replacing = step in (1, 3)
        rows = [
            {"p": random.choice("abc"), "q": 1, "k": random.randrange(25), "v": f"{step}-{number}"}
            for number in range(16)
        ]
        if replacing and not whole:
            rows[:3] = [{"p": p, "q": 1, "k": 100 + step * 3 + n, "v": "new"} for n, p in enumerate("abc")]
        values: dict[str, Any] = {"overwrite": {"partition": {}}} if replacing else {}
        compact = "minor" if engine == "first-row" else "none"
        java("write", table=names[1], rows=rows, compact=compact, **values)
        if step == 2:
            java("write", table=names[0], rows=rows, compact=compact)
        else:
            table.write(pa.Table.from_pylist(rows, schema=ARROW), overwrite=replacing)
        if engine == "first-row":
            table.compact(full=True)
        both, alone = (sorted(map(_values, java("read", table=name)["rows"])) for name in names)
        assert sorted(map(_values, table.to_arrow().to_pylist())) == both == alone, (bucket, engine, whole, step)


@pytest.mark.paimon_java
def test_a_partition_that_a_key_left_keeps_its_other_rows_where_java_empties_it(tmp_path: Path, java: Java) -> None:
    """Java replaces every partition that gets a file, be it the delete of a key that left; of a named one it then fails."""
    options = {"bucket": "-1"}
    schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": ["p"], "options": options}
    before = [{"p": p, "q": 1, "k": k, "v": "old"} for p, k in (("a", 1), ("b", 2), ("b", 3))]
    rows = [{"p": "a", "q": 1, "k": k, "v": "new"} for k in (2, 4)]
    for name in ("db.ours", "db.java", "db.named", "db.refused"):
        java("create", table=name, schema=schema)
        Catalog(str(tmp_path)).table(name).write(pa.Table.from_pylist(before, schema=ARROW))
    catalog = Catalog(str(tmp_path))
    new = pa.Table.from_pylist(rows, schema=ARROW)
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
    java("write", table="db.ours", rows=[{"p": "c", "q": 1, "k": 3, "v": "last"}])
    assert sorted(map(_values, catalog.table("db.ours").to_arrow().to_pylist())) == [*kept[:2], ("c", 1, 3, "last")]
    assert sorted(map(_values, java("read", table="db.java")["rows"])) == kept[:2]


@pytest.mark.paimon_java
def test_commits_of_a_long_lived_writer_that_wait_are_what_javas_are(tmp_path: Path, java: Java) -> None:
    side_by_side(java, [partial(_streamed, tmp_path, f"db{n}", engine) for n, engine in enumerate(ENGINES)])


def _streamed(warehouse: Path, database: str, engine: str, java: Java) -> None:
    random = Random(f"stream {engine}")
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "5", "merge-engine": engine}
    schema = {"fields": FIELDS, "primaryKeys": ["k"], "partitionKeys": ["p"], "options": options}
    ours, alone = names = (f"{database}.ours", f"{database}.java")
    for name in names:
        java("create", table=name, schema=schema)
    table = Catalog(str(warehouse)).table(ours)
    commit, waiting = table.new_stream_commit("job"), {}
    with table.new_stream_write("job") as writer:
        for number in range(6):
            rows = [
                {"p": random.choice("abc"), "q": 1, "k": random.randrange(20), "v": f"{number}-{k}"} for k in range(12)
            ]
            java("write", table=alone, writer=alone, rows=rows, hold=f"{alone}-{number}", identifier=number)
            writer.write(pa.Table.from_pylist(rows, schema=ARROW))
            waiting[number] = writer.prepare_commit(wait_compaction=True, commit_identifier=number)
            if number % 3 == 2:
                commit.filter_and_commit(waiting)
                for item in sorted(waiting):
                    java("commit", table=alone, hold=f"{alone}-{item}")
                waiting.clear()
                read, theirs = (sorted(map(_values, java("read", table=name)["rows"])) for name in names)
                assert read == theirs, (engine, number)
    java("close_writer", table=alone, writer=alone)
    if engine == "first-row":
        table.compact(full=True)
    assert sorted(map(_values, table.to_arrow().to_pylist())) == theirs


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[str(field["name"])] for field in FIELDS)
