"""Deletion vectors: Dredge and Java take turns deleting, updating, compacting and writing one table, and read the same rows after every step."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.metadata import manifests
from tests.faults.kinds import strays
from tests.interop.rows import both_read
from tests.support.peers import peer_module
from tests.support.references import file_names
from tests.support.samples import one_in, sample

Java = Callable[..., dict[str, Any]]
COLUMNS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)


def create(tmp_path: Path, keys: list[str], **options: str) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    named = {name if "." in name else name.replace("__", ".").replace("_", "-"): options[name] for name in options}
    chosen = {"deletion-vectors.enabled": "true", **named}
    return catalog.create_table("db.t", Schema(COLUMNS, keys, ["p"], chosen))


def rows(partition: str, first: int, count: int, value: int = 0) -> pa.Table:
    keys = list(range(first, first + count))
    return pa.table([[partition] * count, keys, [value + k for k in keys]], schema=COLUMNS)


def compact_by_java(java: Java, **arguments: Any) -> None:
    try:
        java("compact", **arguments)
    except peer_module().PeerError as error:
        if "EndOfScan" not in str(error):  # it found nothing to do
            raise


@pytest.mark.paimon_java
@pytest.mark.parametrize("buckets", [0, 2], ids=["unaware", "bucketed"])
@pytest.mark.parametrize("wide", one_in(2, ["false", "true"], 1), ids=["v1", "bitmap64"])
def test_java_and_dredge_mark_rows_of_one_append_table(tmp_path: Path, java: Java, buckets: int, wide: str) -> None:
    fixed = {"bucket": str(buckets), "bucket-key": "k"} if buckets else {}
    table = create(tmp_path, [], deletion_vectors__bitmap64=wide, compaction__min__file_num="2", **fixed)
    chance, number = random.Random(f"{buckets} {wide}"), 0
    model: list[tuple[Any, ...]] = []
    for _ in range(14):
        partition, first, count = chance.choice("ab"), chance.randrange(60), chance.randrange(1, 25)
        verb = chance.choice(["write", "write", "delete", "delete", "update", "compact", "java delete", "java compact"])
        number += 1000
        keep = [row for row in model if not (row[0] == partition and first <= row[1] < first + count)]
        where = [["p", "=", partition], ["k", ">=", first], ["k", "<", first + count]]
        if verb == "write":
            new = rows(partition, first, count, number)
            table.write(new) if chance.random() < 0.5 else java("write", rows=new.to_pylist(), compact="none")
            model += [tuple(row.values()) for row in new.to_pylist()]
        elif verb == "delete" or (verb == "java delete" and buckets):
            table.delete([tuple(item) for item in where])
            model = keep
        elif verb == "java delete":
            java("delete_rows", where=where)
            model = keep
        elif verb == "update":
            table.update([tuple(item) for item in where], {"v": pc.field("v") + 7})
            model = keep + [(*row[:2], row[2] + 7) for row in model if row not in keep]
        elif verb == "compact":
            table.compact(full=chance.random() < 0.5)
        else:
            compact_by_java(java)
        assert both_read(table, java) == sorted(model)
    table.compact(full=True)
    assert both_read(table, java) == sorted(model)
    assert not [entry for entry in java("index_files")["files"] if entry["row_count"]]


ENGINES = {
    "v1": {},
    "bitmap64": {"deletion-vectors.bitmap64": "true"},
    "sequence": {"sequence.field": "v"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "lookup": {"changelog-producer": "lookup"},
    "lookup aggregation": {
        "changelog-producer": "lookup",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
    },
}


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", sample(ENGINES, "lookup aggregation".__eq__))
def test_java_and_dredge_take_turns_on_a_table_with_a_key(tmp_path: Path, java: Java, kind: str) -> None:
    options = {**ENGINES[kind], "bucket": "1", "num-sorted-run.compaction-trigger": "3"}
    table = create(tmp_path, ["p", "k"], **options)
    engine = options.get("merge-engine", "deduplicate")
    chance, number = random.Random(f"turns {kind}"), 0
    model: dict[tuple[str, int], int] = {}
    marked = 0
    for partition in "ab":  # large enough that what comes later goes to a level of its own
        table.write(rows(partition, 0, 4000))
        model.update({(partition, key): key for key in range(4000)})
    table.compact(full=True)
    for _ in range(16):
        partition, first, count = chance.choice("ab"), chance.randrange(60), chance.randrange(1, 25)
        verb = chance.choice(["write", "write", "delete", "minor", "minor", "full", "java minor", "java full"])
        # with a sequence field some rows come too late
        number = chance.randrange(-3, 9) * 1000 if kind == "sequence" else number + 1000
        keys = [(partition, key) for key in range(first, first + count)]
        new = rows(partition, first, count, number)
        verb = "write" if verb == "delete" and engine == "partial-update" else verb
        if verb == "write" and chance.random() < 0.6:
            table.write(new)
        elif verb == "write":
            java("write", rows=new.to_pylist(), compact="none")
        elif verb == "delete" and chance.random() < 0.6:
            table.write(new, row_kinds=pa.array([3] * count, pa.int8()))
        elif verb == "delete":
            java("write", rows=[{"_kind": "-D", **row} for row in new.to_pylist()], compact="none")
        elif verb in ("minor", "full"):
            table.compact(full=verb == "full")
        else:
            java("compact", full=verb == "java full")
        sign = {"write": 1, "delete": -1}.get(verb, 0)
        for key in keys if sign else ():
            value = number + key[1]
            if engine == "aggregation":
                model[key] = model.get(key, 0) + sign * value
            elif kind == "sequence" and value < model.get(key, -(10**9)):
                continue
            elif sign > 0:
                model[key] = value
            elif kind != "sequence":
                model.pop(key, None)
        seen = both_read(table, java)
        if verb in ("minor", "full", "java minor", "java full") and kind != "sequence":
            assert seen == sorted((*key, value) for key, value in model.items())
        marked += sum(entry["row_count"] for entry in java("index_files")["files"])
    assert marked
    table.compact(full=True)
    # Java leaves vectors of files that it rewrote behind; files that are there have none.
    named = {bounds["file"] for entry in java("index_files")["files"] for bounds in entry["dv_ranges"]}
    assert not named & {file["name"] for file in java("files")["files"]}
    seen = both_read(table, java)
    if kind != "sequence":  # a delete of a newer sequence is not remembered once compacted: Java is the model
        assert seen == sorted((*key, value) for key, value in model.items())


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(2, ["vectors", "hashes", "append vectors"]))
def test_index_files_beside_the_data_are_expired_there_and_no_other_goes(tmp_path: Path, java: Java, kind: str) -> None:
    """`index-file-in-data-file-dir`: both engines write and expire; what a snapshot names stays, what none names goes."""
    options = {"index-file-in-data-file-dir": "true", "snapshot.num-retained.min": "1", "dredge.delete-mode": "direct"}
    if kind == "hashes":
        options |= {"deletion-vectors.enabled": "false", "bucket": "-1", "dynamic-bucket.target-row-num": "3000"}
    elif kind == "vectors":
        options["bucket"] = "1"
    table = create(tmp_path, [] if kind == "append vectors" else ["p", "k"], **options)

    def index_files() -> set[str]:
        return {path.name for path in Path(table.store.root).rglob("index-*") if path.parent.name.startswith("bucket-")}

    def nameless() -> set[str]:
        needed = [file_names(manifests.live_entries(table.store, snapshot)) for snapshot in table.snapshots()]
        return strays(table.store).difference(*needed)

    table.write(rows("a", 0, 4000))
    table.compact(full=True)
    for number in range(3):
        if kind == "append vectors":
            table.delete([("k", "=", number)])
            java("delete_rows", where=[["k", "=", 100 + number]])
            continue
        start = 4000 if kind == "hashes" else 0  # keys that are known leave the index as it is
        table.write(rows("a", start + 10 * number, 5, 1000))
        table.compact()
        java("write", rows=rows("a", start + 2000 + 10 * number, 5, 9000).to_pylist())
    before, everything = both_read(table, java), index_files()
    assert not (Path(table.store.root) / "index").exists()
    assert len(everything) > 4
    restored = table.copy({"dredge.delete-mode": "two-phase"})
    expired = restored.expire_snapshots(retain_max=3, retain_min=1, older_than_ms=int(time.time() * 1000) + 60_000)
    assert index_files() == everything
    assert restored.restore(expired.trash_id).restored == expired.expired
    table.expire_snapshots(retain_max=2, retain_min=1, older_than_ms=int(time.time() * 1000) + 60_000)
    assert nameless() == set()
    assert 0 < len(index_files()) < len(everything)
    assert both_read(table, java) == before
    if kind == "append vectors":
        table.delete([("k", "=", 50)])
    else:
        table.write(rows("a", 500, 5, 1000))
        table.compact()
    before = both_read(table, java)
    java("expire_snapshots", retain_max=1, retain_min=1, older_than_ms=int(time.time() * 1000) + 60_000)
    assert not nameless() & index_files()
    assert both_read(table, java) == before


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(2, ["vectors", "first-row"]))
def test_overwrites_and_rescales_are_seen_at_once_by_both_engines(tmp_path: Path, java: Java, kind: str) -> None:
    options = {"vectors": {}, "first-row": {"deletion-vectors.enabled": "false", "merge-engine": "first-row"}}[kind]
    small = {
        "write-buffer-size": "96 kb",
        "page-size": "8 kb",
        "write-buffer-spillable": "false",
    }  # several flushes, whose keys meet
    table = create(tmp_path, ["p", "k"], bucket="1", **{**small, **options})
    table.write(rows("a", 0, 3000))
    table.compact(full=True)
    chance = random.Random(kind)
    keys = [chance.randrange(3000) for _ in range(9000)]
    new = pa.table([["a"] * 9000, keys, list(range(9000))], schema=COLUMNS)
    table.write(pa.RecordBatchReader.from_batches(new.schema, new.to_batches(max_chunksize=1500)), overwrite={"p": "a"})
    wanted: dict[int, int] = {}
    for value, key in enumerate(keys):
        if kind == "vectors" or key not in wanted:
            wanted[key] = value
    model = sorted(("a", key, value) for key, value in wanted.items())
    assert both_read(table, java) == model
    assert {file["level"] for file in java("files")["files"]} == {5}
    # Java's own batch overwrite compacts, too
    java("write", rows=new.to_pylist(), overwrite={"partition": {"p": "a"}}, compact="minor")
    assert both_read(table, java) == model
    assert 0 not in {file["level"] for file in java("files")["files"]}
    catalog = Catalog(str(tmp_path))
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "2")])
    table = catalog.table("db.t")
    table.apply(table.plan_maintenance("rescale"))
    assert both_read(table, java) == model
    java("write", rows=rows("a", 0, 10, 50_000).to_pylist(), compact="minor")
    changed = {("a", k): v for _, k, v in model}
    for k in range(10):
        if kind == "vectors" or ("a", k) not in changed:
            changed["a", k] = 50_000 + k
    assert both_read(table, java) == sorted((*key, value) for key, value in changed.items())


@pytest.mark.paimon_java
@pytest.mark.parametrize("strategy", one_in(2, ["order", "zorder"], 1))
def test_a_sort_compaction_leaves_out_what_is_marked_and_no_vector(tmp_path: Path, java: Java, strategy: str) -> None:
    table = create(tmp_path, [])
    for first in (0, 2000):
        table.write(rows("a", first, 2000, -first))
    table.write(rows("b", 0, 500))
    table.delete([("p", "=", "a"), ("k", ">=", 1500), ("k", "<", 2300)])
    table.update([("p", "=", "b"), ("k", "<", 50)], {"v": pc.field("v") + 7})
    java("delete_rows", where=[["p", "=", "a"], ["k", "<", 100]])
    before = both_read(table, java)
    plan = table.plan_maintenance("compact", order_by=["v", "k"], strategy=strategy)
    report = table.apply(plan)
    assert report.rows_out == len(before) == 3600
    assert both_read(table, java) == before
    assert not [entry for entry in java("index_files")["files"] if entry["row_count"]]
    latest = table.snapshots()[-1].id
    assert table.verify(latest - 1, latest).ok
    table.delete([("p", "=", "a"), ("k", "=", 1000)])
    assert len(both_read(table, java)) == len(before) - 1
