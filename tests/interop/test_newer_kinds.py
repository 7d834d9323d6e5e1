"""Kinds of tables of Paimon 2.0 and 2.1 only: Java and Dredge take turns on them, as in `test_turns`.

The columns and system tables that 2.0 and 2.1 added are those of Java, too. ``DREDGE_NEWER_KINDS`` tables of each kind are drawn (default 6; 150 in soak); a failure tells its seed and the steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.errors import UnsupportedFeature
from lsm_core.options.table_options import PaimonVersion
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner
from tests.golden.rows import table_rows
from tests.interop.test_file_formats import EARLY, FAR, MAPS
from tests.interop.test_file_formats import FIELDS as ALL_FIELDS
from tests.interop.test_file_formats import ROWS as ALL_ROWS
from tests.interop.test_turns import FIELDS, KINDS, SCHEMA, Row, Turns, live_all
from tests.support.peers import JavaPaimon, paimon_version, peer_module

VERSION = os.environ.get("DREDGE_PAIMON_VERSION", "2.1-SNAPSHOT")
LIVES = int(os.environ.get("DREDGE_NEWER_KINDS", "6"))
COUNTS = [
    pytest.param(LIVES, id="sample"),
    pytest.param(150, id="many", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
]


@pytest.fixture(scope="module")
def newest(java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """The JVM of Java Paimon 2.1, or of the version that DREDGE_PAIMON_VERSION names."""
    return java_of(VERSION)


def _call(peer: JavaPaimon, warehouse: Path, op: str, **arguments: Any) -> dict[str, Any]:
    return dict(peer.call(op, **{"warehouse": str(warehouse), "table": "db.t", **arguments}))


def _live(peer: JavaPaimon, warehouse: Path, uid: str, count: int, taking: type[Turns]) -> None:
    Catalog(str(warehouse)).create_database("db")
    first = int(os.environ.get("DREDGE_TURNS_SEED") or int(uid, 16) % 10**6)
    step = 5 if count < len(KINDS) else 1
    seeds = range(first, first + step * count, step)
    assert live_all(seeds, warehouse, partial(_call, peer, warehouse), taking) == {"": count}


class NullableKeys(Turns):
    """A table whose keys, and partitions, may be null."""

    fields = [{**field, "type": field["type"].removesuffix(" NOT NULL")} for field in FIELDS]
    arrow = pa.schema([field.with_nullable(nullable=True) for field in SCHEMA])

    def options(self) -> dict[str, str]:
        """Of a table of this kind."""
        return {**super().options(), "primary-key.nullable": "true"}

    def row(self) -> Row:
        """A row, of ten keys one null and of ten partitions too."""
        drawn = super().row()
        absent = [name for name in ("p", "k") if self.random.random() < 0.15]
        return {**drawn, **dict.fromkeys(absent)}


@pytest.mark.paimon_java
@pytest.mark.parametrize("count", COUNTS)
def test_keys_that_may_be_null(newest: JavaPaimon, tmp_path: Path, testrun_uid: str, count: int) -> None:
    if not paimon_version(VERSION).at_least(PaimonVersion.V2_1):  # an unknown option: keys become NOT NULL
        schema = {"fields": NullableKeys.fields, "primaryKeys": ["k"], "options": {"primary-key.nullable": "true"}}
        _call(newest, tmp_path, "create", schema=schema)
        with pytest.raises(peer_module().PeerError, match="Cannot write null to non-null column"):
            _call(newest, tmp_path, "write", rows=[{"k": None}])
        return
    _live(newest, tmp_path, testrun_uid, count, NullableKeys)


class OrderedBySnapshots(Turns):
    """A table whose newest row of a key is that of the latest snapshot; only dedicated jobs compact it."""

    compactions = ("none",)

    def options(self) -> dict[str, str]:
        """Of a table of this kind."""
        drawn = {key: text for key, text in super().options().items() if key != "sequence.field"}
        if "fields.a.aggregate-function" in drawn:
            drawn |= {"fields.b.aggregate-function": "max", "fields.b.ignore-retract": "true"}
        return {**drawn, "sequence.snapshot-ordering": "true", "write-only": "true"}


@pytest.mark.paimon_java
@pytest.mark.parametrize("count", COUNTS)
def test_rows_ordered_by_snapshot(newest: JavaPaimon, tmp_path: Path, testrun_uid: str, count: int) -> None:
    if not paimon_version(VERSION).at_least(PaimonVersion.V2_0):
        pytest.skip(f"Java Paimon {VERSION} ignores 'sequence.snapshot-ordering', which exists since 2.0")
    _live(newest, tmp_path, testrun_uid, count, OrderedBySnapshots)


def _same_rows(newest: JavaPaimon, warehouse: Path, system: str) -> list[Row]:
    """Assert that both return the same rows of a system table, with the same order of columns; return the rows."""
    theirs = _call(newest, warehouse, "read", table=f"db.t${system}")["rows"]
    theirs = [{name: value for name, value in row.items() if name != "_kind"} for row in theirs]
    rows = table_rows(Catalog(str(warehouse)).table(f"db.t${system}").to_arrow())
    ours = [{name: value for name, value in row.items() if name in theirs[0]} for row in rows]
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    return rows


@pytest.mark.paimon_java
def test_partitions_and_snapshots_have_java_s_newer_columns(newest: JavaPaimon, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "2", "bucket-key": "k", "deletion-vectors.enabled": "true"}
    table = catalog.create_table("db.t", Schema(SCHEMA, [], ["p"], options))
    rows = [{"p": p, "k": k, "a": k, "b": k, "c": "x"} for p in range(3) for k in range(8)]
    table.write(pa.Table.from_pylist(rows, SCHEMA))
    table.delete("p < 2 AND k < 3")
    _call(newest, tmp_path, "write", rows=rows[:3], compact="none")
    rescale = "CALL sys.rescale(table => 'db.t', bucket_num => 3, partitions => 'p=2')"
    statements = StatementRunner(Session(catalog), LocalEngine())
    statements.run(rescale)
    ours = catalog.table("db.t$partitions").to_arrow(columns=["partition", "total_buckets"]).to_pylist()
    assert {row["partition"]: row["total_buckets"] for row in ours} == {"p=0": 2, "p=1": 2, "p=2": 3}
    # With several manifests Java showed 2 in one of many runs, so its answer is compared once there is only one.
    statements.run("CALL sys.compact_manifest(table => 'db.t')")
    assert catalog.table("db.t$manifests").to_arrow().num_rows == 1
    partitions = _same_rows(newest, tmp_path, "partitions")
    shown = [(row["total_buckets"], row["done"], row["deleted_record_count"]) for row in partitions]
    assert shown == [(2, False, 3), (2, False, 3), (3, False, 0)]
    snapshots = _same_rows(newest, tmp_path, "snapshots")
    written = {row["writer_version"] for row in snapshots} - {None}
    assert bool(written) == paimon_version(VERSION).at_least(PaimonVersion.V2_1)


@pytest.mark.paimon_java
def test_file_indexes_are_listed_as_java_does(newest: JavaPaimon, tmp_path: Path) -> None:
    if not paimon_version(VERSION).at_least(PaimonVersion.V2_1):
        pytest.skip(f"Java Paimon {VERSION} has no $file_indexes, which exists since 2.1")
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "-1", "file-index.bloom-filter.columns": "a,c", "file-index.bitmap.columns": "b,a"}
    options |= {"file-index.bloom-filter.a.items": "20", "file-index.bloom-filter.c.items": "20"}
    table = catalog.create_table("db.t", Schema(SCHEMA, [], ["p"], options))
    rows = [{"p": k % 2, "k": k, "a": k, "b": k % 9, "c": None} for k in range(300)]
    _call(newest, tmp_path, "write", rows=rows, compact="none")
    table.write(pa.Table.from_pylist(rows[:3], SCHEMA))
    _call(newest, tmp_path, "write", rows=rows[:2], compact="none")
    shown = _same_rows(newest, tmp_path, "file_indexes")
    assert {(row["storage_type"], row["index_file_path"] is None) for row in shown} == {
        ("EMBEDDED", True),
        ("FILE", False),
    }
    assert {(row["column_name"], row["is_empty"]) for row in shown} == {(name, False) for name in "abc"}
    first = catalog.table("db.t$file_indexes").to_arrow(filter=[("partition", "=", "{0}")], columns=["partition"])
    assert 0 < first.num_rows < len(shown)


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", ["btree", "bitmap"])
def test_indexes_of_primary_keys_stay_whole(newest: JavaPaimon, tmp_path: Path, kind: str) -> None:
    """Reads, expiry and cleaning keep the index; a compaction leaves no index of files that it replaced."""
    Catalog(str(tmp_path)).create_database("db")
    java, key = partial(_call, newest, tmp_path), f"pk-{kind}.index.columns"
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
    options = {"bucket": "1", "deletion-vectors.enabled": "true", key: "v"}
    java("create", schema={"fields": fields, "primaryKeys": ["k"], "options": options})
    for first in (0, 50, 25):
        java("write", rows=[{"k": k, "v": k % 7 + first} for k in range(first, first + 60)], compact="full")
    table = Catalog(str(tmp_path)).table("db.t")
    for _ in range(2):
        for test in (None, [["v", "=", 30]]):
            theirs = sorted((row["k"], row["v"]) for row in java("read", filter=test)["rows"])
            read = table.to_arrow(filter=None if test is None else [tuple(test[0])])
            assert sorted(zip(*read.to_pydict().values(), strict=True)) == theirs
            assert len(theirs) == (110 if test is None else 9)
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
        table.remove_orphan_files(older_than_ms=int(time.time() * 1000) - 1)
        table.sweep_trash(now_ms=1 << 42)
    kinds = Catalog(str(tmp_path)).table("db.t$table_indexes").to_arrow().column("index_type").to_pylist()
    assert kind in kinds
    assert all(check.passed for check in table.check())
    java("write", rows=[{"k": 0, "v": 30}], compact="none")
    catalog = Catalog(str(tmp_path))
    with pytest.raises(UnsupportedFeature, match=r"'pk-vector\.index\.columns': searches read only files"):
        catalog.alter_table("db.t", [SchemaChange.set_option("pk-vector.index.columns", "v")])
    catalog.table("db.t").compact(full=True)
    assert len(java("read", filter=[["v", "=", 30]])["rows"]) == 10
    names = {file["name"] for file in java("index_files")["files"]}
    java("write", rows=[{"k": 1, "v": 30}], compact="full")
    rebuilt = {file["name"] for file in java("index_files")["files"]}
    assert len(rebuilt) == 1
    assert not rebuilt & names
    assert len(java("read", filter=[["v", "=", 30]])["rows"]) == 11


def test_row_files_are_read_as_java_does(tmp_path: Path, newest: JavaPaimon) -> None:
    """Java writes row files; we read every type from them, and write and compact to Parquet, which Java reads."""
    call = partial(_call, newest, tmp_path)
    fields = [{"name": name, "type": kind} for name, kind in ALL_FIELDS.items()]
    more = {"file.format": "row", "compaction.min.file-num": "2", "file.block-size": "1 kb"}
    call("create", schema={"fields": fields, "primaryKeys": [], "options": {"bucket": "-1", **more}})
    call("write", rows=[*ALL_ROWS, EARLY, FAR], compact="none")
    call("alter", changes=[{"change": "rename_column", "name": "note", "to": "remark"}])
    call("write", rows=[{"id": 100 + i, "remark": "x" * i} for i in range(300)], compact="none")
    table = Catalog(str(tmp_path)).table("db.t")
    rows = table.to_arrow()
    assert table.to_arrow(columns=["remark"], filter=pc.field("id") == 105).to_pylist() == [{"remark": "xxxxx"}]
    assert table.to_arrow(columns=[]).num_rows == rows.num_rows == 306
    before = _texts(call("read")["rows"])
    table.delete("id = 399")
    table.compact(full=True)
    names = Catalog(str(tmp_path)).table("db.t$files").to_arrow(columns=["file_path"]).column(0).to_pylist()
    assert {name.rpartition(".")[2] for name in names} == {"parquet"}
    assert len(before) == 306
    assert _texts(call("read")["rows"]) == [text for text in before if "'id': 399" not in text]
    call("write", rows=[{"id": 1000}], compact="none")
    call("compact", full=True)
    assert Catalog(str(tmp_path)).table("db.t").to_arrow().num_rows == 306


def _texts(rows: list[Row]) -> list[str]:
    """Return rows as sorted texts, in which the order of a map's keys does not matter."""
    return sorted(repr({n: sorted(v, key=repr) if n in MAPS and v else v for n, v in row.items()}) for row in rows)


def test_row_tables_with_a_key_are_wrong_in_java_and_refused(tmp_path: Path, newest: JavaPaimon) -> None:
    call = partial(_call, newest, tmp_path)
    fields = [{"name": "k", "type": "INT"}, {"name": "v", "type": "BIGINT"}]
    options = {"bucket": "1", "file.format": "row"}
    call("create", schema={"fields": fields, "primaryKeys": ["k"], "options": options})
    call("write", rows=[{"k": 1, "v": 100}, {"k": 2, "v": 200}], compact="none")
    assert [row["v"] for row in call("read")["rows"]] != [100, 200]
    table = Catalog(str(tmp_path)).table("db.t")
    for act in (table.to_arrow, table.compact):
        with pytest.raises(UnsupportedFeature, match=r"'row' in a table with a primary key: Paimon 2.0 and 2.1 read"):
            act()
