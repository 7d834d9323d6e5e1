"""Statistics of row groups are those that the writer computes for the same rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lsm_core.files.formats import thrift
from lsm_core.files.formats.parquet import ParquetSink
from lsm_core.files.formats.thrift_fields import join_fields, join_structs, split_struct, split_structs
from lsm_core.files.row_group_copier import RowGroupCopier
from lsm_core.files.row_group_statistics import GroupStatistics, GroupStatisticsReader, merge_statistics
from lsm_core.files.row_groups import CHUNK_META, GROUP_COLUMNS, GROUPS, STATISTICS, open_groups
from lsm_core.files.splicing import SplicingSink, StoredGroup
from lsm_core.format.stats import ColumnStats
from lsm_core.storage import LocalFileIO

IO = LocalFileIO()
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), -2.5, None]
TEXTS = ["a", "b" * 70, "", "é", "\U0001f600", "z" * 5_000, None]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-1, 0, 5, None, 2**31 - 1]),
    "tiny": (pa.int8(), [-128, 3, None]),
    "long": (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    "text": (pa.string(), TEXTS),
    "bytes": (pa.binary(), [b"\xff", b"\x00", b"", None]),
    "float": (pa.float32(), FLOATS),
    "double": (pa.float64(), FLOATS),
    "nanos": (pa.timestamp("ns"), [0, -1, 10**18, None]),
    "micros": (pa.timestamp("us"), [0, -1, 10**15, None]),
    "millis": (pa.timestamp("ms"), [0, -1, 10**12, None]),
    "time": (pa.time32("ms"), [0, 86_399_999, None]),
    "date": (pa.date32(), [0, -40_000, 20_000, None]),
    "yes": (pa.bool_(), [True, False, None]),
    "money": (pa.decimal128(5, 2), [Decimal("-1.25"), Decimal("999.99"), None]),
    "more": (pa.decimal128(15, 2), [Decimal("-1.25"), Decimal(0), None]),
    "most": (pa.decimal128(30, 2), [Decimal("-1.25"), Decimal("12345678901234567890.5"), None]),
    "nulls": (pa.string(), [None]),
    "list": (pa.list_(pa.float32()), [[0.0, None], [], None]),
    "row": (pa.struct({"n": pa.timestamp("ns"), "t": pa.string()}), [{"n": 1, "t": "x"}, None]),
}


def table(rng: np.random.Generator, count: int) -> pa.Table:
    return pa.table(
        {
            name: pa.array([values[i] for i in rng.integers(0, len(values), count)], kind)
            for name, (kind, values) in COLUMNS.items()
        }
    )


def plain(values: Any) -> dict[str, Any]:
    """Bounds as their bytes, so that NaN is itself and -0.0 is not 0.0."""
    return {
        name: (str(stats.minimum.type), repr(stats.minimum[0]), repr(stats.maximum[0]), stats.null_count)
        for name, stats in values.items()
    }


@pytest.fixture(scope="module")
def copier() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def open_part(file_io: Any, path: str, rows: pa.Table) -> ParquetSink:
    return ParquetSink(file_io, path, rows, codec="zstd", level=1)


def write(path: Path, groups: list[pa.Table], **options: Any) -> Any:
    sink = ParquetSink(IO, str(path), groups[0], codec="zstd", level=1, **options)
    for rows in groups:
        sink.write(rows)
    return sink.close()[1]


@settings(
    max_examples=int(os.environ.get("DREDGE_GROUP_STATISTICS", "6")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@example(seed=1, sizes=[1], version="1.0", dictionary=True)
@given(
    seed=st.integers(0, 1 << 20),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    version=st.sampled_from(["1.0", "2.0"]),
    dictionary=st.booleans(),
)
def test_merged_statistics_are_those_of_the_writer(
    tmp_path: Path, seed: int, sizes: list[int], version: str, dictionary: bool
) -> None:
    rng = np.random.default_rng(seed)
    groups = [table(rng, size) for size in sizes]
    path = tmp_path / "a.parquet"
    path.unlink(missing_ok=True)
    expected = write(path, groups, page_version=version, dictionary=["text"] if dictionary else None)
    stored = open_groups(IO, str(path))
    with GroupStatisticsReader(IO, stored, groups[0].schema) as reader:
        parts = [reader.statistics(number) for number in range(len(groups))]
    merged = merge_statistics(parts)
    assert merged.rows == sum(sizes)
    assert plain(merged.values) == plain(expected)


@settings(
    max_examples=int(os.environ.get("DREDGE_GROUP_STATISTICS", "4")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    seed=st.integers(0, 1 << 20),
    parts=st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=4),
    wide=st.booleans(),
    threaded=st.booleans(),
)
def test_a_file_of_new_and_spliced_row_groups_has_the_statistics_of_its_rows(
    tmp_path: Path, copier: Executor, seed: int, parts: list[tuple[int, bool]], wide: bool, threaded: bool
) -> None:
    rng = np.random.default_rng(seed)
    groups = [table(rng, size) for size, _ in parts]
    if wide:
        texts = [pa.array([None, *["x" * 70_000] * (rows.num_rows - 1)], pa.string()) for rows in groups]
        groups = [rows.append_column("wide", text) for rows, text in zip(groups, texts, strict=True)]
    for name in ("source", "expected", "spliced"):
        (tmp_path / name).unlink(missing_ok=True)
    write(tmp_path / "source", groups)
    expected = write(tmp_path / "expected", groups)
    stored = open_groups(IO, str(tmp_path / "source"))
    sink = SplicingSink(IO, str(tmp_path / "spliced"), groups[0].schema, open_part, copier=copier if threaded else None)
    for number, (rows, (_, is_new)) in enumerate(zip(groups, parts, strict=True)):
        if is_new:
            sink.write(rows)
        else:
            sink.splice(StoredGroup(stored, number, pa.record_batch({}), stored.pages[number].size))
    size, values = sink.close()
    assert size == (tmp_path / "spliced").stat().st_size
    assert plain(values) == plain(expected)
    assert sink.rows == sum(size for size, _ in parts)
    read = [pq.read_table(tmp_path / name) for name in ("spliced", "expected")]
    assert read[0].drop_columns(["float", "double"]).equals(read[1].drop_columns(["float", "double"]))


def test_a_row_group_that_cannot_be_copied_fails_the_file(
    tmp_path: Path, copier: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"k": [1, 2, 3]})
    sink = SplicingSink(IO, str(tmp_path / "spliced"), rows.schema, open_part, copier=copier)
    sink.write(rows)
    copies = iter([None, OSError("disk")])

    def fail(*_: object) -> None:
        error = next(copies, None)
        if error is not None:
            raise error

    monkeypatch.setattr(RowGroupCopier, "copy", fail)
    sink.write(rows)
    with pytest.raises(OSError, match="disk"):
        for _ in range(4):
            sink.write(rows)
        sink.close()
    sink.discard()
    assert not list(tmp_path.iterdir())


def test_wide_values_have_null_counts_only(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 3], "wide": ["x" * 200_000, None, "y" * 300_000]})
    expected = write(tmp_path / "a.parquet", [rows, rows.slice(0, 2)])
    stored = open_groups(IO, str(tmp_path / "a.parquet"))
    with GroupStatisticsReader(IO, stored, rows.schema) as reader:
        merged = merge_statistics([reader.statistics(0), reader.statistics(1)])
    assert plain(merged.values) == plain(expected)
    assert merged.values["wide"].null_count == 2


@pytest.mark.parametrize("change", ["low", "high", "writer"])
def test_bounds_that_are_not_exact_are_not_used(tmp_path: Path, change: str) -> None:
    """Forged bounds show which ones are used: values that are not in the file."""
    path = tmp_path / "a.parquet"
    rows = pa.table({"k": pa.array([5, 7], pa.int64())})
    write(path, [rows], dictionary=None)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = split_struct(data[-8 - length : -8])
    group, _ = split_struct(split_structs(footer[GROUPS][1])[0])
    chunk, _ = split_struct(split_structs(group[GROUP_COLUMNS][1])[0])
    meta, _ = split_struct(chunk[CHUNK_META][1])
    stats, _ = split_struct(meta[STATISTICS][1])
    for number, value in ((5, 9), (6, 2)):
        stats[number] = thrift.BINARY, b"\x08" + value.to_bytes(8, "little")
    if change == "writer":
        footer[6] = thrift.BINARY, b"\x06writer"
    else:
        stats[8 if change == "low" else 7] = thrift.FALSE, b""
    meta[STATISTICS] = thrift.STRUCT, join_fields(stats)
    chunk[CHUNK_META] = thrift.STRUCT, join_fields(meta)
    group[GROUP_COLUMNS] = thrift.LIST, join_structs([join_fields(chunk)])
    footer[GROUPS] = thrift.LIST, join_structs([join_fields(group)])
    new = join_fields(footer)
    path.write_bytes(data[: -8 - length] + new + len(new).to_bytes(4, "little") + b"PAR1")
    with GroupStatisticsReader(IO, open_groups(IO, str(path)), rows.schema) as reader:
        bounds = reader.statistics(0).values["k"]
    assert (bounds.minimum[0].as_py(), bounds.maximum[0].as_py()) == (5, 7)


def test_a_part_without_bounds_makes_them_unknown() -> None:
    some = GroupStatistics(2, {"k": ColumnStats(pa.array([1]), pa.array([2]), 0)})
    unknown = GroupStatistics(2, {"k": ColumnStats(pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), 0)})
    only_nulls = GroupStatistics(2, {"k": ColumnStats(pa.nulls(1, pa.int64()), pa.nulls(1, pa.int64()), 2)})
    assert merge_statistics([some, unknown]).values["k"].minimum.null_count == 1
    assert merge_statistics([some, only_nulls]).values["k"].minimum[0].as_py() == 1
    assert merge_statistics([some, only_nulls]).values["k"].null_count == 2
