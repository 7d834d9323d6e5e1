"""Postponed buckets with Java: both engines write rows that wait, Dredge gives them buckets, and both read the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.commit import Committer
from lsm_core.format.manifest import table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from lsm_core.write import TableWrite
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.paimon_java
Rows = list[tuple[Any, ...]]


def by_java(java: Java, table: str = "db.t") -> Rows:
    return sorted((row["k"], row["v"], row["s"]) for row in java("read", table=table)["rows"])


def by_us(store: TableStore) -> Rows:
    return sorted((row["k"], row["v"], row["s"]) for row in Table(store).to_arrow().to_pylist())


@pytest.mark.parametrize("engine", one_in(2, ["deduplicate", "aggregation"], 1))
def test_rows_of_both_engines_get_their_buckets(tmp_path: Path, java: Java, engine: str) -> None:
    """A table of fixed buckets that Java alone writes is the measure."""
    rng = random.Random(engine)
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "BIGINT"}, {"name": "s", "type": "STRING"}]
    options = {"merge-engine": engine, "fields.v.aggregate-function": "sum"} if engine != "deduplicate" else {}
    more = {"bucket": "-2", "postpone.default-bucket-num": "3"}
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": {**options, **more}})
    twin = {"fields": fields, "primaryKeys": ["k"], "options": {**options, "bucket": "3"}}
    java("create", table="db.twin", schema=twin)
    store = TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")
    for step in range(8):
        kinds = ["+I", "+U", "-D"] if engine == "deduplicate" else ["+I", "+U"]
        rows = [
            {"_kind": rng.choice(kinds), "k": rng.randrange(12), "v": rng.randrange(9), "s": f"s{step}"}
            for _ in range(rng.randrange(1, 9))
        ]
        java("write", table="db.twin", rows=rows)
        if step % 2:
            java("write", rows=rows)
        else:
            data = pa.table({name: [row[name] for row in rows] for name in ("k", "v", "s")})
            with TableWrite(store) as writer:
                writer.write(data, pa.array([row["_kind"] for row in rows]))
                Committer(store).commit(writer.prepare_commit())
        if rng.random() < 0.5 or step == 7:
            table = Table(store)
            table.apply(table.plan_maintenance("assign_buckets"))
            assert by_us(store) == by_java(java) == by_java(java, "db.twin")
        if rng.random() < 0.3:
            Table(store).compact(full=True)
    latest = snapshots.latest(store)
    assert latest is not None
    entries = table_to_entries(manifests.live_entries(store, latest))
    assert {entry.total_buckets for entry in entries} == {3}
    java("compact", table="db.twin")
    assert by_us(store) == by_java(java) == by_java(java, "db.twin")


def test_only_streams_show_rows_that_wait(tmp_path: Path, java: Java) -> None:
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": {"bucket": "-2"}})
    for key in (1, 2):
        java("write", rows=[{"k": key, "v": 7}])
    table = Catalog(str(tmp_path)).table("db.t")
    stream = table.new_stream_scan(from_snapshot=1)
    for event in java("stream_read", from_snapshot=1)["events"]:
        batch = stream.next()
        assert batch is not None
        assert batch.to_arrow().column("k").to_pylist() == [row["k"] for row in event["rows"]] == [event["snapshot"]]
    assert table.incremental(0, 2).to_pylist() == java("read", options={"incremental-between": "0,2"})["rows"] == []
    assert table.copy({"incremental-between": "0,2"}).to_arrow().num_rows == 0


def test_our_postponed_files_have_java_s_metadata(tmp_path: Path, java: Java) -> None:
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "BIGINT"}, {"name": "s", "type": "STRING"}]
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": {"bucket": "-2"}})
    store = TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")
    rows = [{"_kind": "+I", "k": 7, "v": 1, "s": "a"}, {"_kind": "-D", "k": 3, "v": None, "s": None}]
    java("write", rows=rows)
    with TableWrite(store) as writer:
        data = pa.table({"k": [7, 3], "v": [1, None], "s": ["a", None]})
        writer.write(data, pa.array(["+I", "-D"]))
        Committer(store).commit(writer.prepare_commit())
    own = ("name", "size", "creation_time")
    ours, theirs = ({key: value for key, value in file.items() if key not in own} for file in java("files")["files"])
    assert ours == theirs


@pytest.mark.parametrize("ours", [True, False], ids=["dredge", "java"])
def test_an_overwrite_takes_what_waits_too(tmp_path: Path, java: Java, ours: bool) -> None:
    """Of the partitions that it replaces; what waits in others stays."""
    fields = [
        {"name": "p", "type": "INT NOT NULL"},
        {"name": "k", "type": "INT NOT NULL"},
        {"name": "v", "type": "BIGINT"},
    ]
    java(
        "create",
        schema={"fields": fields, "primaryKeys": ["p", "k"], "partitionKeys": ["p"], "options": {"bucket": "-2"}},
    )
    store = TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")
    table = Table(store)
    java("write", rows=[{"p": p, "k": 1, "v": 1} for p in (0, 1)])
    table.compact()
    java("write", rows=[{"p": p, "k": 2, "v": 2} for p in (0, 1)])
    if ours:
        table.write(pa.table({"p": [0], "k": [3], "v": [3]}), overwrite={"p": 0})
    else:
        java("write", rows=[{"p": 0, "k": 3, "v": 3}], overwrite={"partition": {"p": "0"}})
    table.compact()
    rows = sorted((row["p"], row["k"], row["v"]) for row in java("read")["rows"])
    assert rows == [(0, 3, 3), (1, 1, 1), (1, 2, 2)]
    assert rows == sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
