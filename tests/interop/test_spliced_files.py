"""Readers of other engines read files of copied row groups: pyarrow, DuckDB, pypaimon, paimon-rust and Java."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.types import parse
from tests.interop.rows import ALL_TYPES, KEYS, canonical, canonical_java, rows_of
from tests.interop.test_both_ways import model
from tests.interop.test_type_round_trips import NESTED, SCALARS, Twice, rows_at_the_edges
from tests.interop.test_variants import COLUMNS as VARIANTS
from tests.interop.test_variants import documents
from tests.interop.values import Limits
from tests.support.peers import PyPaimon
from tests.support.samples import one_in
from tests.support.spliced import splice

Java = Callable[..., dict[str, Any]]
WRITERS = {
    "zstd": {"file.compression": "zstd", "parquet.page.row.count.limit": "20"},
    "v2-snappy": {"file.compression": "snappy", "parquet.writer.version": "v2", "parquet.page.row.count.limit": "7"},
    "plain-none": {"file.compression": "none", "parquet.enable.dictionary": "false"},
    "bloom-lz4": {"file.compression": "lz4", "parquet.bloom.filter.enabled#id": "true"},
    "gzip": {"file.compression": "gzip"},
}
TINY = {"bucket": "1", "parquet.block.size": "4096", "target-file-size": "16kb"}
SPLICED_LIVES = int(os.environ.get("DREDGE_SPLICED_LIVES", "10"))


def made(tmp_path: Path, fields: Any, keys: list[str], options: dict[str, str]) -> Table:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    own = {**TINY, **options} if keys else {**TINY, "bucket": "-1", **options}
    return catalog.create_table("db.t", Schema(fields, keys, [], own))


def spliced_table(tmp_path: Path, options: dict[str, str], *, keyed: bool, seed: int = 0) -> tuple[Table, pa.Table]:
    """A table of one spliced file of many row groups, and its rows."""
    table = made(tmp_path, ALL_TYPES, KEYS if keyed else [], {"dredge.compaction.inline": "never", **options})
    random = Random(seed)
    parts = [rows_of(first, random.randint(50, 200), 1) for first in (0, 500, 1_000)]
    for part in parts:
        table.write(part)
    if keyed:
        table.compact(full=True)
    before = paths_of(table)
    assert splice(table, None if keyed else random) == 1
    table = Catalog(str(tmp_path)).table("db.t")
    (path,) = paths_of(table)
    assert len(before) > 1
    assert pq.read_metadata(path).num_row_groups >= len(before)
    return table, pa.concat_tables(parts)


def paths_of(table: Table) -> list[str]:
    files = [(split, file) for split in table.plan_scan() for file in split.files]
    return [table.store.data_path(split.partition, split.bucket, file) for split, file in files]


def check_by_tools(path: str, expected: pa.Table) -> None:
    """pyarrow and DuckDB find the file valid, and a filter that skips row groups finds all rows."""
    assert pq.read_table(path, page_checksum_verification=True, pre_buffer=False).num_rows == expected.num_rows
    chunks = [pq.read_metadata(path).row_group(0).column(leaf) for leaf in range(len(expected.column_names))]
    assert all(chunk.has_offset_index and chunk.has_column_index and chunk.is_stats_set for chunk in chunks)
    with duckdb.connect() as database:
        _check_by_duckdb(database, path, expected)


def _check_by_duckdb(database: Any, path: str, expected: pa.Table) -> None:
    metadata = pq.read_metadata(path)
    groups = database.sql(
        f"SELECT DISTINCT row_group_id, row_group_num_rows FROM parquet_metadata('{path}')"
    ).fetchall()
    assert sorted(groups) == [(i, metadata.row_group(i).num_rows) for i in range(metadata.num_row_groups)]
    names = [row[0] for row in database.sql(f"SELECT name FROM parquet_schema('{path}')").fetchall()]
    assert set(expected.column_names) <= set(names)
    for share in (0.0, 0.3, 0.9):
        bound = pc.quantile(expected["id"], share, interpolation="lower")[0].as_py()
        expected_ids = sorted(expected.filter(pc.field("id") >= bound)["id"].to_pylist())
        query = f"SELECT id FROM '{path}' WHERE id >= {bound} ORDER BY id"
        assert [row[0] for row in database.sql(query).fetchall()] == expected_ids
        assert (
            sorted(pq.read_table(path, columns=["id"], filters=[("id", ">=", bound)])["id"].to_pylist()) == expected_ids
        )
    some = expected["id"][expected.num_rows // 2].as_py()
    assert database.sql(f"SELECT count(*) FROM '{path}' WHERE id = {some}").fetchall() == [
        (pc.sum(pc.equal(expected["id"], some)).as_py(),)
    ]


@pytest.mark.paimon_java
@pytest.mark.parametrize("keyed", [True, False], ids=["key-value", "append"])
@pytest.mark.parametrize("writer", one_in(5, WRITERS))
def test_java_and_tools_read_spliced_files(tmp_path: Path, java: Java, writer: str, keyed: bool) -> None:
    table, rows = spliced_table(tmp_path, WRITERS[writer], keyed=keyed)
    expected = canonical(rows, ALL_TYPES.names)
    check_by_tools(paths_of(table)[0], rows)
    assert canonical(table.to_arrow(), ALL_TYPES.names) == expected
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    assert [check for check in table.check() if not check.passed] == []


@pytest.mark.soak
@pytest.mark.paimon_java
@pytest.mark.pypaimon
@pytest.mark.pypaimon_rust
@pytest.mark.parametrize("writer", ["zstd", "v2-snappy", "plain-none"])
def test_every_reader_reads_parts_of_row_groups(
    tmp_path: Path, java: Java, pypaimon: PyPaimon, pypaimon_rust: PyPaimon, writer: str
) -> None:
    """Pages around a few new keys are merged; the others become row groups of their own."""
    options = {"parquet.block.size": "65536", "target-file-size": "1mb", "dredge.compaction.exact-keys": "always"}
    pages = {"parquet.page.row.count.limit": "20", "dredge.compaction.inline": "never"}
    table = made(tmp_path, ALL_TYPES, KEYS, {**WRITERS[writer], **options, **pages})
    older, newer = rows_of(0, 1_500, 1), rows_of(3, 2, 2, step=700)
    for part in (older, newer):
        table.write(part)
        report = table.compact(full=True)
    assert report.groups_spliced > 1
    is_old = pc.invert(pc.is_in(older["id"], newer["id"]))
    rows = pa.concat_tables([older.filter(is_old), newer])
    expected = canonical(rows, ALL_TYPES.names)
    (path,) = paths_of(table)
    sizes = [pq.read_metadata(path).row_group(at).num_rows for at in range(pq.read_metadata(path).num_row_groups)]
    assert len(set(sizes)) > 2
    with duckdb.connect() as database:
        _check_by_duckdb(database, path, rows)
    assert canonical(table.to_arrow(), ALL_TYPES.names) == expected
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    assert canonical(pypaimon.read("db.t"), ALL_TYPES.names) == expected
    assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == expected
    java("compact", full=True)
    assert canonical(Catalog(str(tmp_path)).table("db.t").to_arrow(), ALL_TYPES.names) == expected


@pytest.mark.soak
@pytest.mark.paimon_java
@pytest.mark.parametrize("writer", WRITERS)
def test_java_compacts_spliced_files(tmp_path: Path, java: Java, writer: str) -> None:
    table, rows = spliced_table(tmp_path, WRITERS[writer], keyed=True)
    newer = rows_of(3, 150, 2, step=5)
    table.write(newer)
    expected = model((rows, "+I"), (newer, "+I"))
    java("compact", full=True)
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    assert canonical(Catalog(str(tmp_path)).table("db.t").to_arrow(), ALL_TYPES.names) == expected


@pytest.mark.soak
@pytest.mark.pypaimon
@pytest.mark.pypaimon_rust
@pytest.mark.parametrize("keyed", [True, False], ids=["key-value", "append"])
@pytest.mark.parametrize("writer", WRITERS)
def test_python_and_rust_read_spliced_files(
    tmp_path: Path, pypaimon: PyPaimon, pypaimon_rust: PyPaimon, writer: str, keyed: bool
) -> None:
    _, rows = spliced_table(tmp_path, WRITERS[writer], keyed=keyed)
    expected = canonical(rows, ALL_TYPES.names)
    assert canonical(pypaimon.read("db.t"), ALL_TYPES.names) == expected
    assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == expected


@pytest.mark.soak
@pytest.mark.paimon_java
@pytest.mark.parametrize("keyed", [True, False], ids=["key-value", "append"])
@pytest.mark.parametrize("writer", WRITERS)
def test_java_reads_every_type_of_spliced_files(tmp_path: Path, java: Java, writer: str, keyed: bool) -> None:
    types = {"id": parse("INT NOT NULL"), **{f"c{i}": parse(kind) for i, kind in enumerate([*SCALARS, *NESTED])}}
    both = Twice(tmp_path, java, types)
    own = {**TINY, **WRITERS[writer], "dredge.compaction.inline": "never"}
    both.create(["id"] if keyed else [], own if keyed else {**own, "bucket": "-1"}, by_java=False)
    rows = [row for first in (0, 1_000) for row in rows_at_the_edges(types, first, limits=Limits.WIDE)]
    for start in range(0, len(rows), 30):
        both.write(rows[start : start + 30])
    if keyed:
        both.table.compact(full=True)
    splice(both.table, None if keyed else Random(3))
    both.agree(rows)


@pytest.mark.soak
@pytest.mark.paimon_java
@pytest.mark.parametrize("keys", [["k"], []], ids=["key-value", "append"])
def test_java_reads_variants_of_spliced_files(tmp_path: Path, java: Java, keys: list[str]) -> None:
    table = made(tmp_path, VARIANTS, keys, {"parquet.block.size": "1024", "dredge.compaction.inline": "never"})
    rows = [*documents(0), *documents(100)]
    source = Catalog(str(tmp_path)).create_table("db.s", Schema(VARIANTS, [], [], {"bucket": "-1"}))
    java("write", table="db.s", rows=documents(0), compact="none")
    first = source.to_arrow().sort_by("k")
    table.write(first)
    table.write(first.set_column(0, first.schema.field("k"), pc.add(first["k"], 100)))
    if keys:
        table.compact(full=True)
    splice(table, None if keys else Random(1))

    def plain(found: list[dict[str, Any]]) -> list[Any]:
        return sorted(([row[name] for name, _ in VARIANTS] for row in found), key=lambda values: values[0])

    assert plain(java("read")["rows"]) == plain(rows)


@pytest.mark.soak
@pytest.mark.paimon_java
@pytest.mark.parametrize("seed", range(SPLICED_LIVES))
def test_random_tables_are_spliced_again_and_again(tmp_path: Path, java: Java, seed: int) -> None:
    random = Random(seed)
    options = dict(WRITERS[random.choice(sorted(WRITERS))])
    table = made(tmp_path, ALL_TYPES, [], {**options, "parquet.block.size": random.choice(["1024", "3072", "1048576"])})
    expected: list[Any] = []
    for turn in range(3):
        for _ in range(random.randint(1, 3)):
            part = rows_of(random.randint(0, 5_000), random.randint(1, 120), turn)
            table.write(part)
            expected += canonical(part, ALL_TYPES.names)
        splice(table, random)
        table = Catalog(str(tmp_path)).table("db.t")
        assert canonical(table.to_arrow(), ALL_TYPES.names) == sorted(expected, key=repr)
    assert canonical_java(java("read")["rows"], ALL_TYPES) == sorted(expected, key=repr)
    assert [check for check in table.check() if not check.passed] == []
