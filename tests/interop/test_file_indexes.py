"""Indexes of data files, both ways: Java's bitmaps and ranges say what the rows say, Java skips files by our bloom filters."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, SchemaChange
from lsm_core.commit import Committer
from lsm_core.compact import run_bucket_task
from lsm_core.format.file_index import BLOOM, BloomFilter, FileIndex, encode, read_head
from lsm_core.format.manifest import ManifestEntry, table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import file_index
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from lsm_core.types import to_arrow
from tests.support.samples import one_in, sample
from tests.support.stores import append_task, full_tasks, read, write

Java = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.paimon_java

TYPES = {
    "flag": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INT",
    "i64": "BIGINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "day": "DATE",
    "clock": "TIME(3)",
    "ms": "TIMESTAMP(3)",
    "us": "TIMESTAMP(6)",
    "ltz": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "text": "STRING",
    "code": "CHAR(3)",
    "price": "DECIMAL(12,3)",
    "nothing": "INT",
}
COLUMNS = {
    "bitmap": [name for name in TYPES if name != "price"],
    "bsi": ["i8", "i16", "i32", "i64", "day", "clock", "ms", "us", "ltz", "price", "nothing"],
    "range-bitmap": list(TYPES),
    "bloom-filter": [name for name in TYPES if name not in ("flag", "price")],
}
every_kind = pytest.mark.parametrize(
    ("kind", "settings"),
    sample(
        [
            ("bitmap", {}),
            ("bitmap", {"index-block-size": "200b"}),
            ("bitmap", {"version": "1"}),
            ("bsi", {}),
            ("range-bitmap", {}),
            ("range-bitmap", {"chunk-size": "100b"}),
        ],
        lambda form: bool(form[1]) or form[0] == "bsi",
    ),
)
"""Java's indexes that tell rows, in every form that its options choose."""
OPERATORS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def empty_table(
    tmp_path: Path, java: Java, indexes: dict[str, str], columns: dict[str, str], *, keyed: bool, threshold: str
) -> TableStore:
    """A table that Java made: `id`, ``columns`` and a map `tags`, with ``indexes`` (in manifests up to ``threshold``), without statistics."""
    settings = {
        "bucket": "1" if keyed else "-1",
        "write-only": "true",
        "file-index.in-manifest-threshold": threshold,
        "metadata.stats-mode": "none",
        **{f"file-index.{key}": value for key, value in indexes.items()},
    }
    fields = [
        {"name": "id", "type": "INT NOT NULL" if keyed else "INT"},
        *({"name": name, "type": text} for name, text in columns.items()),
        {"name": "tags", "type": {"type": "MAP", "key": "STRING", "value": "INT"}},
    ]
    java("create", schema={"fields": fields, "primaryKeys": ["id"] if keyed else [], "options": settings})
    return TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")


def a_row(number: int, rng: random.Random) -> dict[str, Any]:
    year, milli = rng.randrange(1950, 2100), rng.randrange(100, 999)
    values: dict[str, Any] = {
        "flag": rng.random() < 0.5,
        "i8": rng.randrange(-128, 128),
        "i16": rng.randrange(-300, 300),
        "i32": rng.randrange(-50, 50) * 1000,
        "i64": rng.randrange(-(10**12), 10**12),
        "f32": rng.choice([0.0, -0.0, 1.5, -2.25, "NaN", "Infinity", rng.randrange(100) / 4]),
        "f64": rng.choice([0.0, -0.0, 1e300, -1e-300, "NaN", "-Infinity", rng.random()]),
        "day": f"{year}-0{rng.randrange(1, 10)}-1{rng.randrange(10)}",
        "clock": f"1{rng.randrange(10)}:00:00.{milli}",
        "ms": f"{year}-01-01T00:00:00.{milli}000000",
        "us": f"{year}-01-01T00:00:00.{milli}001000",
        "ltz": f"{year}-01-01T00:00:00.{milli}001000Z",
        "text": rng.choice(["", "ä€😀", "x" * rng.randrange(60) + str(number % 40)]),
        "code": rng.choice("abc") * 3,
        "price": f"{rng.randrange(-99_999, 99_999)}.{milli}",
    }
    return {name: None if rng.random() < 0.15 else value for name, value in values.items()} | {"nothing": None}


def entries_of(store: TableStore) -> list[ManifestEntry]:
    latest = snapshots.latest(store)
    assert latest is not None
    return table_to_entries(manifests.live_entries(store, latest))


def java_table(tmp_path: Path, java: Java, kind: str, settings: dict[str, str]) -> TableStore:
    """300 random rows that Java wrote with an index of ``kind`` on every column that may have one."""
    options = {"bucket": "-1", f"file-index.{kind}.columns": ",".join(COLUMNS[kind])}
    options |= {f"file-index.{kind}.{name}.{key}": value for name in COLUMNS[kind] for key, value in settings.items()}
    fields = [{"name": name, "type": text} for name, text in TYPES.items()]
    java("create", schema={"fields": fields, "options": options})
    rng = random.Random(5)
    java("write", rows=[a_row(number, rng) for number in range(300)], compact="none")
    return TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")


def indexed(store: TableStore) -> tuple[pa.Table, FileIndex]:
    (entry,) = entries_of(store)
    found = file_index(store, entry.partition, entry.bucket, entry.file)
    assert found is not None
    return pq.read_table(store.data_path(entry.partition, entry.bucket, entry.file)), found


def literals_of(values: pa.Array) -> list[pa.Scalar]:
    found = list(values.unique().drop_null())[:40]
    if pa.types.is_string(values.type):
        return [*found, *map(pa.scalar, ("a", "zzz", "x2", ""))]
    if pa.types.is_floating(values.type):
        return [*found, *(pa.scalar(x, values.type) for x in (0.0, -0.0, 3.1, -1e30, math.inf))]
    if pa.types.is_integer(values.type):
        return [*found, *(pa.scalar(x, values.type) for x in (0, 7, -7, 127, -128))]
    return found


@every_kind
def test_rows_by_java_s_index_are_the_rows_by_value(
    tmp_path: Path, java: Java, kind: str, settings: dict[str, str]
) -> None:
    store = java_table(tmp_path, java, kind, settings)
    data, found = indexed(store)
    assert set(found.columns) == set(COLUMNS[kind])
    for name in COLUMNS[kind]:
        type_ = store.schema.field(name).type
        values = data.column(name).combine_chunks().cast(to_arrow(type_))
        nan = pc.is_nan(values).fill_null(fill_value=False) if pa.types.is_floating(values.type) else values.is_null()
        for literal in literals_of(values):
            for op, compare in OPERATORS.items():
                mask = found.row_mask(name, type_, op, literal, data.num_rows)
                wanted = compare(values, literal).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
                assert found.may_match(name, type_, op, literal) or not wanted.any()
                if mask is None:  # bitmaps know no order, nothing is compared with NaN
                    assert op in OPERATORS and (kind == "bitmap" or literal.as_py() != literal.as_py())
                    continue
                extra = np.flatnonzero(mask != wanted)
                assert np.asarray(nan)[extra].all() and mask[extra].all(), (name, op, literal)
        for op, wanted in (("is null", values.is_null()), ("is not null", values.is_valid())):
            mask = found.row_mask(name, type_, op, None, data.num_rows)
            assert mask is not None
            assert np.array_equal(mask, wanted.to_numpy(zero_copy_only=False))


def test_our_bloom_filters_have_java_s_bits_for_every_type(tmp_path: Path, java: Java) -> None:
    store = java_table(tmp_path, java, BLOOM, {"items": "1000", "fpp": "0.03"})
    (entry,) = entries_of(store)
    (beside,) = entry.file.extra_files
    raw = Path(store.data_path(entry.partition, entry.bucket, beside)).read_bytes()
    data, found = indexed(store)
    for name in COLUMNS[BLOOM]:
        type_ = store.schema.field(name).type
        values = data.column(name).combine_chunks().cast(to_arrow(type_))
        assert BloomFilter.build(values, type_, 1000, 0.03) in raw, name
        for literal in literals_of(values.drop_null())[:40]:
            present = pc.any(pc.equal(values, literal), min_count=0).as_py()
            assert found.may_match(name, type_, "=", literal) or not present


@pytest.mark.parametrize("threshold", one_in(2, ["1 mb", "0 b"]))
@pytest.mark.parametrize("keyed", [False, True])
def test_java_skips_our_files_by_their_bloom_filters(tmp_path: Path, java: Java, threshold: str, keyed: bool) -> None:
    indexes = {"columns": "text,n,tags[a]"} | {f"{name}.items": "100" for name in ("text", "n", "tags")}
    options = {f"bloom-filter.{key}": value for key, value in indexes.items()}
    columns = {"text": "STRING", "n": "BIGINT"}
    store = empty_table(tmp_path, java, options, columns, keyed=keyed, threshold=threshold)
    for start in (0, 50):
        ids = list(range(start, start + 50))
        data = {"id": ids, "text": [f"text-{i}" for i in ids], "n": [i * 1000 for i in ids]}
        tags = pa.array([[("a", i), ("b", 0)] if i % 3 else None for i in ids], pa.map_(pa.string(), pa.int32()))
        write(store, pa.table({**data, "id": pa.array(ids, pa.int32()), "tags": tags}))
    for entry in entries_of(store):
        assert bool(entry.file.extra_files) is (threshold == "0 b")
        assert bool(entry.file.embedded_index) is (threshold == "1 mb")
    assert len(java("read")["rows"]) == 100
    # Without its own filter Java returns the rows of every file that it did not skip.
    pushed = java("read", filter=[["text", "=", "text-60"]], execute_filter=False)["rows"]
    assert {row["id"] // 50 for row in pushed} == ({0, 1} if keyed and len(pushed) > 50 else {1})
    assert java("read", filter=[["text", "=", "text-60"]])["rows"][0]["n"] == 60_000
    assert java("read", filter=[["n", "=", 7]])["rows"] == []
    if not keyed:
        assert len(pushed) == 50
        assert java("read", filter=[["n", "=", 7]], execute_filter=False)["rows"] == []
    assert read(store, filter=[("text", "=", "text-60")]).column("id").to_pylist() == [60]


def body(container: bytes, name: str, kind: str) -> bytes:
    start, length = read_head(container, len(container), "x")[name][kind]
    return container[start : start + length]


def containers(store: TableStore) -> list[bytes]:
    """The index of every live file, oldest file first."""
    entries = sorted(entries_of(store), key=lambda entry: entry.file.creation_time_ms or 0)
    found = []
    for entry in entries:
        path = [store.data_path(entry.partition, entry.bucket, name) for name in entry.file.extra_files]
        found.append(entry.file.embedded_index or Path(path[0]).read_bytes())
    return found


@every_kind
def test_our_indexes_are_java_s_bytes_for_every_type(
    tmp_path: Path, java: Java, kind: str, settings: dict[str, str]
) -> None:
    store = java_table(tmp_path, java, kind, settings)
    (entry,) = entries_of(store)
    path = store.data_path(entry.partition, entry.bucket, entry.file)
    rows = pa.concat_tables([pq.read_table(path).select(list(TYPES))])
    write(store, rows.cast(store.schema.arrow_schema))
    by_java, by_us = containers(store)
    for name in COLUMNS[kind]:
        theirs, ours = body(by_java, name, kind), body(by_us, name, kind)
        if kind != "bitmap":
            assert ours == theirs, name
            continue
        # Java lists bitmaps in the order of its hash table; the dictionary, their lengths and every bitmap are the same.
        assert len(ours) == len(theirs), name
        type_ = store.schema.field(name).type
        indexes = [FileIndex.decode(encode({name: {kind: data}}), "x") for data in (theirs, ours)]
        values = rows.column(name).combine_chunks().cast(to_arrow(type_))
        for literal in values.unique().drop_null():
            masks = [index.row_mask(name, type_, "=", literal, len(values)) for index in indexes]
            assert np.array_equal(*masks), (name, literal)  # type: ignore[arg-type]
    assert len(java("read")["rows"]) == 600


@pytest.mark.parametrize("threshold", one_in(2, ["1 mb", "0 b"], 1))
@pytest.mark.parametrize("keyed", [False, True])
def test_java_finds_rows_by_our_bitmaps_slices_and_ranges(
    tmp_path: Path, java: Java, threshold: str, keyed: bool
) -> None:
    """Also after a compaction of ours; Java's own filter is off, so that its answer is what the indexes left."""
    options = {"bitmap.columns": "word,tags[a]", "bsi.columns": "n", "range-bitmap.columns": "x"}
    columns = {"word": "STRING", "n": "BIGINT", "x": "DOUBLE"}
    store = empty_table(tmp_path, java, options, columns, keyed=keyed, threshold=threshold)
    for start in (0, 500):
        ids = list(range(start, start + 500))
        words = [None if i % 11 == 0 else f"w{i % 50 + start}" for i in ids]
        tags = pa.array([[("a", i)] if i % 3 else None for i in ids], pa.map_(pa.string(), pa.int32()))
        data = {"word": words, "n": [(i - 500) * 7 for i in ids], "x": [i / 8 for i in ids], "tags": tags}
        write(store, pa.table({"id": pa.array(ids, pa.int32()), **data}))
    for compacted in (False, True):
        if compacted:
            tasks = full_tasks(store) if keyed else append_task(store)
            Committer(store).commit([run_bucket_task(store, task).message for task in tasks])
            assert len(entries_of(store)) == 1
        for entry in entries_of(store):
            assert bool(entry.file.extra_files) is (threshold == "0 b")
        assert len(java("read")["rows"]) == 1000
        for name, op, value in (
            ("word", "=", "w507"),
            ("word", "is_null", None),
            ("n", "<", -3000),
            ("n", "=", 70),
            ("x", ">=", 120.5),
            ("x", "=", 3.25),
        ):
            asked = [[name, op, *([] if value is None else [value])]]
            rows = java("read", filter=asked)["rows"]
            assert rows
            left = java("read", filter=asked, execute_filter=False)["rows"]
            if not keyed or compacted:  # files that Java reads as they are; others it can only skip whole
                assert {row["id"] for row in left} == {row["id"] for row in rows}, asked
            assert {row["id"] for row in rows} <= {row["id"] for row in left}
            ours = read(store, filter=[(name, op.replace("_", " "), *([] if value is None else [value]))])
            assert sorted(ours.column("id").to_pylist()) == sorted(row["id"] for row in rows)
        if not keyed or compacted:
            assert java("read", filter=[["n", "=", 1]], execute_filter=False)["rows"] == []


@pytest.mark.parametrize("threshold", one_in(2, ["1 mb", "0 b"]))
def test_java_uses_rewritten_indexes_and_expires_the_files_they_replaced(
    tmp_path: Path, java: Java, threshold: str
) -> None:
    """Old files get indexes by `rewrite_file_index`, twice; Java skips files by them, and its expiry keeps the data."""
    settings = {"bucket": "-1", "write-only": "true", "file-index.in-manifest-threshold": threshold}
    fields = [{"name": "id", "type": "INT"}, {"name": "text", "type": "STRING"}]
    java("create", schema={"fields": fields, "options": {**settings, "metadata.stats-mode": "none"}})
    for start in (0, 50):
        java("write", rows=[{"id": i, "text": f"text-{i}"} for i in range(start, start + 50)], compact="none")
    for kind in (BLOOM, "bitmap"):
        java("alter", changes=[{"change": "set_option", "key": f"file-index.{kind}.columns", "value": "text"}])
        table = Catalog(str(tmp_path)).table("db.t")
        assert table.apply(table.plan_maintenance("rewrite_file_index")).files == 2
    pushed = java("read", filter=[["text", "=", "text-60"]], execute_filter=False)["rows"]
    assert pushed and {row["id"] // 50 for row in pushed} == {1}
    java("expire_snapshots", retain_max=1, retain_min=1, older_than_ms=1 << 42)
    assert sorted(row["id"] for row in java("read")["rows"]) == list(range(100))
    assert read(TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")).num_rows == 100


@pytest.mark.paimon_java
def test_java_sees_files_whose_former_index_comes_back_or_goes(tmp_path: Path, java: Java) -> None:
    """Its scan leaves out a file that is added again with the index, or without, that it had before."""
    settings = {"bucket": "-1", "write-only": "true", "file-index.in-manifest-threshold": "1 mb"}
    fields = [{"name": "id", "type": "INT"}, {"name": "text", "type": "STRING"}]
    java("create", schema={"fields": fields, "options": settings})
    java("write", rows=[{"id": i, "text": f"text-{i}"} for i in range(50)], compact="none")
    catalog = Catalog(str(tmp_path))
    for columns in ("id", "id,text", "id", "more"):
        if columns == "more":
            catalog.alter_table("db.t", [SchemaChange.add_column("more", pa.int32())])
        catalog.alter_table("db.t", [SchemaChange.set_option("file-index.bitmap.columns", columns)])
        table = catalog.table("db.t")
        assert table.apply(table.plan_maintenance("rewrite_file_index")).files == 1
        assert not catalog.table("db.t").plan_maintenance("rewrite_file_index").items
        assert sorted(row["id"] for row in java("read")["rows"]) == list(range(50))
        assert len(java("read", filter=[["id", "=", 7]])["rows"]) == 1
