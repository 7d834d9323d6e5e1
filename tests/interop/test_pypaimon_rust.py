"""paimon-rust (the package pypaimon-rust) writes what Dredge and Java read, and reads what Dredge wrote; its own mistakes are named as its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema
from lsm_core.format.schema import DataField
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import hash_index
from lsm_core.options.table_options import PaimonVersion
from lsm_core.types import parse
from tests.interop.rows import ALL_TYPES, KEYS, canonical, canonical_java, java_rows, java_schema, rows_of
from tests.interop.test_both_ways import kinds, model
from tests.interop.test_pypaimon_types import for_pypaimon, same
from tests.interop.test_type_round_trips import NESTED, SCALARS, rows_at_the_edges
from tests.interop.values import Limits, table_of
from tests.support.peers import PyPaimon, java_paimon
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
pytestmark = [pytest.mark.pypaimon_rust, pytest.mark.paimon_java]


def rust_create(
    rust: PyPaimon, table: str, options: dict[str, str], *, keyed: bool = True, partitioned: bool = True
) -> None:
    """A table of `ALL_TYPES` made by pypaimon-rust."""
    columns = ", ".join(f"{field['name']} {field['type']}" for field in java_schema(ALL_TYPES))
    key = f", PRIMARY KEY ({', '.join(KEYS)})" if keyed else ""
    parts = "PARTITIONED BY (region)" if partitioned else ""
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    rust.sql(
        f"CREATE SCHEMA IF NOT EXISTS paimon.{table.split('.')[0]}",
        f"CREATE TABLE paimon.{table} ({columns}{key}) {parts} WITH ({settings})",
    )


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_a_table_of_paimon_rust_is_read_compacted_and_handed_back(
    tmp_path: Path, java: Java, pypaimon_rust: PyPaimon, partitioned: bool
) -> None:
    rust_create(pypaimon_rust, "db.t", {"bucket": "2"}, partitioned=partitioned)
    first, second = rows_of(0, 40, 1), rows_of(20, 40, 2)
    pypaimon_rust.write("db.t", first)
    pypaimon_rust.write("db.t", second)
    expected = model((first, "+I"), (second, "+I"))
    table = Catalog(str(tmp_path)).table("db.t")

    def everybody_reads() -> None:
        assert canonical(table.to_arrow(), ALL_TYPES.names) == expected
        assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
        assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == expected

    everybody_reads()
    table.compact(full=True)
    everybody_reads()
    third = rows_of(50, 30, 3)
    pypaimon_rust.write("db.t", third)
    gone = rows_of(10, 5, 4, step=3)
    table.write(gone, row_kinds=kinds(gone, "-D"))
    expected = model((first, "+I"), (second, "+I"), (third, "+I"), (gone, "-D"))
    everybody_reads()


def test_a_table_of_dredge_is_read_and_written_by_paimon_rust(
    tmp_path: Path, java: Java, pypaimon_rust: PyPaimon
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table(
        "db.t", Schema(ALL_TYPES, primary_keys=KEYS, partition_keys=["region"], options={"bucket": "2"})
    )
    table = catalog.table("db.t")
    first, gone, second = rows_of(0, 60, 1), rows_of(10, 20, 2, step=2), rows_of(30, 60, 3)
    table.write(first)
    table.write(gone, row_kinds=kinds(gone, "-D"))
    assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == model((first, "+I"), (gone, "-D"))
    table.compact(full=True)
    pypaimon_rust.write("db.t", second)
    expected = model((first, "+I"), (gone, "-D"), (second, "+I"))
    assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == expected
    assert canonical(table.to_arrow(), ALL_TYPES.names) == expected
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    java("write", rows=java_rows(rows_of(200, 5, 5)), compact="full")
    expected = model((first, "+I"), (gone, "-D"), (second, "+I"), (rows_of(200, 5, 5), "+I"))
    assert canonical(table.to_arrow(), ALL_TYPES.names) == expected
    assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == expected


def test_an_append_table_goes_both_ways(tmp_path: Path, java: Java, pypaimon_rust: PyPaimon) -> None:
    rust_create(pypaimon_rust, "db.t", {"bucket": "-1"}, keyed=False)
    table = Catalog(str(tmp_path)).table("db.t")
    first, second = rows_of(0, 30, 1), rows_of(30, 30, 2)
    pypaimon_rust.write("db.t", first)
    table.write(second)
    expected = sorted([*canonical(first), *canonical(second)], key=repr)
    for _ in range(2):
        assert canonical(table.to_arrow(), ALL_TYPES.names) == expected
        assert canonical(pypaimon_rust.read("db.t"), ALL_TYPES.names) == expected
        assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
        table.compact(full=True)


def test_a_large_manifest_of_paimon_rust_is_read_the_fast_way(tmp_path: Path, pypaimon_rust: PyPaimon) -> None:
    pypaimon_rust.sql(
        "CREATE SCHEMA paimon.db",
        "CREATE TABLE paimon.db.t (p INT NOT NULL, v INT) PARTITIONED BY (p) WITH ('bucket' = '-1')",
    )
    rows = pa.table({"p": pa.array(range(600), pa.int32()), "v": pa.array(range(600), pa.int32())})
    pypaimon_rust.write("db.t", rows.cast(pa.schema([pa.field("p", pa.int32(), nullable=False), ("v", pa.int32())])))
    table = Catalog(str(tmp_path)).table("db.t")
    store = table.store
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    (meta,) = manifests.delta_list(store, snapshot)
    assert meta.num_added_files == 600
    data = Path(store.manifest_path(meta.file_name)).read_bytes()
    fast = manifests.fast_decode(data, meta.file_name)
    assert fast is not None
    assert fast.equals(manifests.decode_manifest(data, meta.file_name))
    assert sorted(table.to_arrow().column("v").to_pylist()) == list(range(600))


KINDS = {
    "dynamic buckets": ("id INT NOT NULL, v INT, PRIMARY KEY (id)", "'bucket' = '-1'", []),
    "aggregation": (
        "id INT NOT NULL, v INT, PRIMARY KEY (id)",
        "'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.v.aggregate-function' = 'sum'",
        [],
    ),
    "append with deletes": ("id INT, v INT", "'bucket' = '-1'", ["DELETE FROM paimon.db.t WHERE id = 2"]),
    "avro": ("id INT, v INT", "'bucket' = '-1', 'file.format' = 'avro'", []),
    "a column added": (
        "id INT, v INT",
        "'bucket' = '-1'",
        ["ALTER TABLE paimon.db.t ADD COLUMN w BIGINT", "INSERT INTO paimon.db.t VALUES (9, 9, 9)"],
    ),
}


@pytest.mark.parametrize("kind", one_in(2, KINDS))
def test_tables_of_every_kind_that_paimon_rust_writes_are_read_alike(
    tmp_path: Path, java: Java, pypaimon_rust: PyPaimon, kind: str
) -> None:
    columns, options, more = KINDS[kind]
    pypaimon_rust.sql(
        "CREATE SCHEMA paimon.db",
        f"CREATE TABLE paimon.db.t ({columns}) WITH ({options})",
        "INSERT INTO paimon.db.t VALUES (1, 1), (2, 2)",
        "INSERT INTO paimon.db.t VALUES (2, 20), (3, 3)",
        *more,
    )
    table = Catalog(str(tmp_path)).table("db.t")
    found = table.to_arrow()
    rows = sorted(map(repr, found.to_pylist()))
    assert sorted(map(repr, pypaimon_rust.read("db.t").to_pylist())) == rows
    names = found.column_names
    assert sorted(repr({name: row.get(name) for name in names}) for row in java("read")["rows"]) == rows
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    if kind == "dynamic buckets":  # their index manifest has the union at its root, too
        (entry,) = manifests.index_entries(table.store, snapshot)
        assert len(hash_index(table.store, entry)) == 3


@pytest.mark.parametrize("keyed", [True, False], ids=["key-value", "append"])
def test_every_type_goes_to_paimon_rust_and_back(
    tmp_path: Path, java: Java, pypaimon_rust: PyPaimon, keyed: bool
) -> None:
    kinds = [kind for kind in [*SCALARS, *NESTED] if "TIMESTAMP(9)" not in str(kind)]
    types = {"id": parse("INT NOT NULL"), **{f"c{i}": parse(kind) for i, kind in enumerate(kinds)}}
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = [DataField(i, name, kind) for i, (name, kind) in enumerate(types.items())]
    options = {"bucket": "1" if keyed else "-1"}
    table = catalog.create_table("db.t", Schema(fields, primary_keys=["id"] if keyed else [], options=options))
    ours, theirs = (rows_at_the_edges(types, first, limits=Limits.WIDE) for first in (0, 1000))

    table.write(table_of(ours, types))
    same(pypaimon_rust.read("db.t"), ours, types)
    pypaimon_rust.write("db.t", for_pypaimon(table_of(theirs, types), types))
    same(pypaimon_rust.read("db.t"), [*ours, *theirs], types)
    same(table.to_arrow(), [*ours, *theirs], types)
    as_java_reads = sorted(map(repr, java("read")["rows"]))
    table.compact(full=True)
    same(table.to_arrow(), [*ours, *theirs], types)
    assert sorted(map(repr, java("read")["rows"])) == as_java_reads


def test_nanoseconds_as_int64_are_paimon_rusts_own_mistake(tmp_path: Path, java: Java, pypaimon_rust: PyPaimon) -> None:
    pypaimon_rust.sql(
        "CREATE SCHEMA paimon.db", "CREATE TABLE paimon.db.t (id INT, at TIMESTAMP(9)) WITH ('bucket' = '-1')"
    )
    moment = 1_704_067_200_123_456_789
    pypaimon_rust.write(
        "db.t", pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([moment], pa.timestamp("ns"))})
    )
    (file,) = tmp_path.glob("db.db/t/bucket-0/*.parquet")
    # Paimon's Parquet keeps TIMESTAMP(9) as INT96, so Java before 2.0 takes the nanoseconds for something else.
    assert pq.read_metadata(file).schema.column(1).physical_type == "INT64"
    (row,) = java("read")["rows"]
    assert (row["at"] == "2024-01-01T00:00:00.123456789") == java_paimon().at_least(PaimonVersion.V2_0)
    table = Catalog(str(tmp_path)).table("db.t")
    assert table.to_arrow().column("at").cast(pa.int64()).to_pylist() == [moment]
    assert pypaimon_rust.read("db.t").column("at").cast(pa.int64()).to_pylist() == [moment]
    # Java before 2.0 cannot read nanoseconds with a time zone from it at all.
    zoned = [DataField(0, "at", parse("TIMESTAMP(9) WITH LOCAL TIME ZONE"))]
    Catalog(str(tmp_path)).create_table("db.z", Schema(zoned, options={"bucket": "-1"}))
    pypaimon_rust.write("db.z", pa.table({"at": pa.array([moment], pa.timestamp("ns", "UTC"))}))
    if java_paimon().at_least(PaimonVersion.V2_0):
        assert [row["at"] for row in java("read", table="db.z")["rows"]] == ["2024-01-01T00:00:00.123456789Z"]
    else:
        with pytest.raises(Exception, match="HeapTimestampVector"):
            java("read", table="db.z")
    # Rewritten by Dredge, the file is as Java writes it.
    table.write(pa.table({"id": pa.array([2], pa.int32()), "at": pa.array([moment], pa.timestamp("ns"))}))
    table.compact(full=True)
    assert [row["at"] for row in java("read")["rows"]] == ["2024-01-01T00:00:00.123456789"] * 2
