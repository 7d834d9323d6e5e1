"""`lookup(keys)`: the answer of a full read cut to the keys asked for, found through key ranges, statistics and bloom filters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import ColumnNotFound, CorruptFile, InvalidFilter, UnsupportedFeature
from lsm_core.files import kv_read_schema, reader
from lsm_core.files.formats import parquet
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.merge import normalise_keys
from lsm_core.metadata.store import TableStore
from lsm_core.read.lookup import SortedKeys, lookup, open_hits, rows_by_key
from lsm_core.read.lookup.key_routing import lower_bound, places_of, upper_bound
from tests.support.stores import live_files, make_store, read, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}


def table(keys: Any, value: int = 0) -> pa.Table:
    keys = np.asarray(keys, np.int32)
    return pa.table({"k": keys, "v": keys.astype(np.int64) + value, "s": [f"s{key}" for key in keys]})


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 50 rows."""
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 50)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(column, row group) of everything that Parquet files are asked to decode."""
    seen: list[tuple[str, int]] = []
    real = parquet.ParquetSource.batches

    def watched(
        self: Any, columns: Any, batch_rows: int, row_groups: Any = None, **how: Any
    ) -> Iterator[pa.RecordBatch]:
        groups = range(len(self.group_rows)) if row_groups is None else row_groups
        seen.extend((name, group) for name in columns for group in groups)
        yield from real(self, columns, batch_rows, row_groups, **how)

    monkeypatch.setattr(parquet.ParquetSource, "batches", watched)
    return seen


def test_rows_come_in_the_order_of_the_keys_each_once(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "3"})
    write(store, table(range(100)))
    write(store, table([5, 7, 200], 1000))
    write(store, table([7]), ["-D"])
    found = lookup(store, pa.table({"k": [200, 7, 5, -1, 99, 5]}))
    assert found.schema.equals(store.schema.arrow_schema)
    assert found.to_pylist() == [
        {"k": 200, "v": 1200, "s": "s200"},
        {"k": 5, "v": 1005, "s": "s5"},
        {"k": 99, "v": 99, "s": "s99"},
    ]


def test_chosen_columns_come_behind_the_keys_that_are_not_among_them(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, table(range(10)))
    assert lookup(store, pa.table({"k": [3]}), ["s"]).to_pylist() == [{"k": 3, "s": "s3"}]
    assert lookup(store, pa.table({"k": [3]}), ["s", "k"]).column_names == ["s", "k"]
    assert lookup(store, pa.table({"k": [3]}), []).to_pylist() == [{"k": 3}]
    with pytest.raises(ColumnNotFound, match="'nope'"):
        lookup(store, pa.table({"k": [3]}), ["nope"])


def test_nothing_is_found_in_an_empty_table_or_for_no_keys(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    assert lookup(store, pa.table({"k": [3]})).num_rows == 0
    write(store, table(range(10)))
    none = lookup(store, pa.table({"k": pa.array([], pa.int32())}))
    assert (none.num_rows, none.schema) == (0, store.schema.arrow_schema)


@pytest.mark.parametrize(
    ("keys", "error", "text"),
    [
        (pa.table({"k": [1]}), InvalidFilter, "lack column 'd'"),
        (pa.table({"k": [1], "d": ["a"], "nope": [1]}), ColumnNotFound, "'nope'"),
        (pa.table({"k": [1], "d": ["a"], "v": [1]}), InvalidFilter, "column 'v' is not part"),
        (pa.table({"k": ["1"], "d": ["a"]}), InvalidFilter, "column 'k' is int32, not string"),
        (pa.table({"k": [1.0], "d": ["a"]}), InvalidFilter, "column 'k' is int32, not double"),
        (pa.table({"k": [True], "d": ["a"]}), InvalidFilter, "column 'k' is int32, not bool"),
        (pa.table({"k": [1 << 40], "d": ["a"]}), InvalidFilter, "column 'k' is int32, not int64: "),
        (pa.table({"k": [None, 1], "d": ["a", "b"]}), InvalidFilter, "column 'k' holds a null"),
        (pa.table({"k": [1], "d": pa.array([None], pa.string())}), InvalidFilter, "column 'd' holds a null"),
        (
            pa.table([[1], [2], ["a"]], names=["k", "k", "d"]),
            InvalidFilter,
            "the keys to look up have a column twice: k, k",
        ),
        ({"k": [1], "d": ["a"]}, InvalidFilter, "an Arrow table, not dict"),
    ],
)
def test_keys_that_do_not_fit_are_refused_by_name(tmp_path: Path, keys: Any, error: type[Exception], text: str) -> None:
    store = make_store(tmp_path / "t", {**FIELDS, "d": "STRING NOT NULL"}, ["d", "k"], ["d"], {"bucket": "1"})
    with pytest.raises(error, match=text):
        lookup(store, keys)


def test_a_table_without_a_key_has_no_lookup(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, (), (), {"bucket": "-1"})
    with pytest.raises(UnsupportedFeature, match=r"without a primary key.*db\.t"):
        lookup(store, pa.table({"k": [1]}))


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        ("BIGINT", pa.array([3], pa.int8()), 3),
        ("DECIMAL(10, 2)", pa.array([3], pa.int64()), Decimal("3.00")),
        ("DECIMAL(10, 2)", pa.array([Decimal("3.0")]), Decimal("3.00")),
        ("FLOAT", pa.array([0.5], pa.float64()), 0.5),
        ("STRING", pa.array(["x"], pa.large_string()), "x"),
        ("STRING", pa.array(["x"]).dictionary_encode(), "x"),
        ("TIMESTAMP(6)", pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("s")), dt.datetime(2024, 1, 1)),
        ("DATE", pa.array([dt.date(2024, 1, 1)], pa.date64()), dt.date(2024, 1, 1)),
        ("BOOLEAN", pa.array([True]), True),
        ("BYTES", pa.array([b"x"], pa.large_binary()), b"x"),
    ],
)
def test_keys_of_another_width_or_unit_count_as_the_table_has_them(
    tmp_path: Path, kind: str, given: pa.Array, found: Any
) -> None:
    store = make_store(tmp_path / "t", {"k": f"{kind} NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    write(store, pa.table({"k": pa.array([found], store.schema.arrow_schema.field("k").type), "v": [1]}))
    assert lookup(store, pa.table({"k": given})).to_pylist() == [{"k": found, "v": 1}]


@pytest.mark.parametrize(
    "given", [pa.array([0.1], pa.float64()), pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("s", "UTC"))]
)
def test_values_that_the_key_type_cannot_hold_are_refused(tmp_path: Path, given: pa.Array) -> None:
    kind = "FLOAT" if pa.types.is_floating(given.type) else "TIMESTAMP(6)"
    store = make_store(tmp_path / "t", {"k": f"{kind} NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    with pytest.raises(InvalidFilter, match="column 'k'"):
        lookup(store, pa.table({"k": given}))


@pytest.mark.usefixtures("small_groups")
def test_only_row_groups_that_can_hold_the_keys_are_decoded(tmp_path: Path, decoded: list[tuple[str, int]]) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, table(range(0, 2000, 2)))
    assert lookup(store, pa.table({"k": [102, 103, 1999]}), ["v"]).column("v").to_pylist() == [102]
    # 103 lies between the keys of the group of 102; 1999 behind the file's last key
    assert set(decoded) == {("k", 1), ("v", 1)}
    decoded.clear()
    assert lookup(store, pa.table({"k": [103, 301]}), ["v"]).num_rows == 0
    assert set(decoded) == {("k", 1), ("k", 3)}


@pytest.mark.usefixtures("small_groups")
def test_statistics_of_all_key_columns_rule_row_groups_out(tmp_path: Path, decoded: list[tuple[str, int]]) -> None:
    fields = {"a": "STRING NOT NULL", "b": "INT NOT NULL", "v": "INT"}
    store = make_store(tmp_path / "t", fields, ["a", "b"], (), {"bucket": "1"})
    write(store, pa.table({"a": ["one tenant"] * 1000, "b": range(1000), "v": range(1000)}))
    wanted = pa.table({"b": [777], "a": ["one tenant"]})
    lookup(store, wanted)  # how large texts are is learned once
    decoded.clear()
    assert lookup(store, wanted, ["v"]).column("v").to_pylist() == [777]
    assert {group for _, group in decoded} == {15}


def test_partitions_and_buckets_of_other_keys_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, str]] = []
    real = reader.open_source

    def watched(store: TableStore, partition: bytes, bucket: int, meta: Any, **how: Any) -> Any:
        opened.append((bucket, store.bucket_dir(partition, bucket)))
        return real(store, partition, bucket, meta, **how)

    monkeypatch.setattr(rows_by_key, "open_source", watched)
    store = make_store(tmp_path / "t", {**FIELDS, "d": "STRING NOT NULL"}, ["d", "k"], ["d"], {"bucket": "4"})
    for day in ("a", "b"):
        write(store, table(range(100)).append_column("d", [[day] * 100]))
    found = lookup(store, pa.table({"k": [17], "d": ["b"]}))
    assert found.select(["d", "v"]).to_pylist() == [{"d": "b", "v": 17}]
    assert len(opened) == 1
    assert "/d=b/" in opened[0][1]


def test_a_bloom_filter_keeps_files_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = reader.open_source

    def watched(store: TableStore, partition: bytes, bucket: int, meta: Any, **how: Any) -> Any:
        opened.append(meta.file_name)
        return real(store, partition, bucket, meta, **how)

    monkeypatch.setattr(rows_by_key, "open_source", watched)
    options = {"bucket": "1", "file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.items": "1000"}
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {**options, "file-index.bloom-filter.k.fpp": "0.001"})
    for start in range(4):  # key ranges overlap, keys do not
        write(store, table(range(start, 400, 4)))
    assert lookup(store, pa.table({"k": [41, 201]})).column("v").to_pylist() == [41, 201]
    assert len(set(opened)) == 1
    opened.clear()
    assert lookup(store.copy({"file-index.read.enabled": "false"}), pa.table({"k": [41]})).num_rows == 1
    assert len(set(opened)) == 4


def test_footers_are_read_once_per_table_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, table(range(100)))
    reads: list[int] = []
    real = parquet.ParquetSource._read_footer

    def counted(self: Any, kept: Any) -> Any:
        reads.append(1)
        return real(self, kept)

    monkeypatch.setattr(parquet.ParquetSource, "_read_footer", counted)
    for key in (3, 4, 5):
        assert lookup(store, pa.table({"k": [key]}), ["v"]).column("v").to_pylist() == [key]
    assert len(reads) == 1
    assert store.kept.size > 0


def test_first_row_tables_are_looked_up_as_they_are_read(tmp_path: Path) -> None:
    """Level 0 is not there for them yet."""
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "merge-engine": "first-row"})
    write(store, table(range(10)))
    assert lookup(store, pa.table({"k": [3]})).num_rows == read(store).num_rows == 0


def test_a_file_out_of_order_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, table(range(100)))
    real = parquet.ParquetSource.batches

    def turned(self: Any, *given: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(self, *given):
            yield batch.take(pa.array(np.arange(batch.num_rows)[::-1]))

    monkeypatch.setattr(parquet.ParquetSource, "batches", turned)
    with pytest.raises(CorruptFile, match=r"\.parquet.*not in key order"):
        lookup(store, pa.table({"k": [3]}))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(store, table(range(100)))
    for path in (tmp_path / "t").glob("bucket-0/*.parquet"):
        path.unlink()
    with pytest.raises(CorruptFile, match=r"bucket-0/data-.*missing"):
        lookup(store, pa.table({"k": [3]}))


def test_a_table_object_answers(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
    catalog.create_table("db.t", Schema(schema, primary_keys=["k"], options={"bucket": "2"}))
    t = catalog.table("db.t")
    t.write(pa.table({"k": pa.array(range(50), pa.int32()), "v": range(50)}))
    t.compact(full=True)
    assert t.lookup(pa.table({"k": [49, 0, 50]})).to_pylist() == [{"k": 49, "v": 49}, {"k": 0, "v": 0}]


# -- the join itself ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("batch_rows", [7, 1000])
def test_hits_are_whole_rows_in_key_order(tmp_path: Path, file_format: str, batch_rows: int) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "file.format": file_format})
    write(store, table(range(0, 600, 2)))
    (meta,) = live_files(store)[EMPTY_ROW, 0]
    wanted = pa.array([-5, 0, 1, 98, 100, 102, 333, 334, 598, 700], pa.int32())
    asked = SortedKeys(normalise_keys([wanted]), pa.RecordBatch.from_arrays([wanted], ["k"]))
    batches = list(open_hits(store, EMPTY_ROW, 0, meta, asked, columns=["s"], batch_rows=batch_rows))
    found = pa.Table.from_batches(batches)
    assert found.schema.equals(kv_read_schema(store, ["s"]), check_metadata=True)
    assert found.column("_KEY_k").to_pylist() == [0, 98, 100, 102, 334, 598]
    assert found.column("s").to_pylist() == ["s0", "s98", "s100", "s102", "s334", "s598"]
    assert found.column("_SEQUENCE_NUMBER").to_pylist() == [0, 49, 50, 51, 167, 299]
    assert max(batch.num_rows for batch in batches) <= batch_rows


def _texts(random: np.random.Generator, count: int) -> pa.Array:
    return pa.array([bytes(random.integers(0, 3, random.integers(0, 20)).astype(np.uint8)) for _ in range(count)])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("text", [True, False])
def test_searching_finds_what_python_finds(seed: int, text: bool) -> None:
    """Byte strings of few letters, zeros among them: prefixes of each other, equal ones, long common starts."""
    random = np.random.default_rng(seed)
    pools = [_texts(random, n) if text else pa.array(random.integers(-20, 20, n)) for n in (60, 30)]
    have = sorted(pools[0].to_pylist())
    want = sorted(set(pools[1].to_pylist()))
    keys, wanted = (normalise_keys([pa.array(side, pools[0].type)]) for side in (have, want))
    assert lower_bound(keys, wanted).tolist() == [sum(item < w for item in have) for w in want]
    assert upper_bound(keys, wanted).tolist() == [sum(item <= w for item in have) for w in want]
    rows, which = places_of(keys, wanted)
    assert [have[row] for row in rows] == [item for item in have if item in want]
    assert [want[row] for row in which] == [item for item in have if item in want]


def test_memory_stays_with_the_rows_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than may be open at once are merged in passes, as in full reads."""
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", "sort-spill-threshold": "2"})
    for number in range(7):
        write(store, table(range(number, 100), number * 1000))
    open_now, most = [0], [0]
    real = open_hits

    def counted(*given: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        open_now[0] += 1
        most[0] = max(most[0], open_now[0])
        try:
            yield from real(*given, **how)
        finally:
            open_now[0] -= 1

    monkeypatch.setattr(rows_by_key, "open_hits", counted)
    assert lookup(store, pa.table({"k": [2, 50]})).column("v").to_pylist() == [2002, 6050]
    assert open_now[0] == 0 and 1 <= most[0] <= 2
