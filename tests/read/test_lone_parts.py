"""Reads return row groups in which one file alone has keys as stored, and change no answer by it."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Table
from lsm_core.errors import CorruptFile
from lsm_core.maintenance.reference import Row, merge_rows
from lsm_core.read import key_range, lone_parts
from lsm_core.read.lone_parts import LonePart
from tests.support.samples import examples, one_in

KINDS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence field": {"sequence.field": "v"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update"},
    "first-row": {"merge-engine": "first-row"},
    "ignored deletes": {"ignore-delete": "true"},
    "lookup of sums": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
    "vectors": {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    "no bounds of row groups": {"file.format": "avro"},
}
KEYS: dict[str, tuple[dict[str, pa.DataType], Any]] = {
    "numbers": ({"k": pa.int32()}, lambda n: (n,)),
    "texts": ({"k": pa.string()}, lambda n: (f"the same long beginning of each key {n:05}",)),
    "two columns": ({"a": pa.int32(), "k": pa.string()}, lambda n: (n // 8, f"{n % 8}")),
}
WITHOUT_DELETES = {"aggregation", "partial-update", "first-row", "lookup of sums"}


def table_of(root: Path, keys: str = "numbers", **options: str) -> Table:
    key_columns, _ = KEYS[keys]
    columns = pa.schema(
        [
            *(pa.field(name, kind, nullable=False) for name, kind in key_columns.items()),
            pa.field("v", pa.int64()),
            pa.field("s", pa.string()),
        ]
    )
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    made = {"bucket": "1", "write-only": "true", "dredge.read.exact-keys": "always", **options}
    return catalog.create_table("db.t", columns, primary_keys=list(key_columns), options=made)


def rows(numbers: list[int], value: int, keys: str = "numbers") -> pa.Table:
    key_columns, made = KEYS[keys]
    columns = zip(*(made(number) for number in numbers), strict=True) if numbers else [[] for _ in key_columns]
    arrays = {name: pa.array(column, key_columns[name]) for name, column in zip(key_columns, columns, strict=True)}
    return pa.table({**arrays, "v": pa.array([value] * len(numbers), pa.int64()), "s": [f"t{value}"] * len(numbers)})


def ordered(table: Table, **choice: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_arrow(**choice).to_pylist()]


def merged(table: Table) -> Table:
    return table.copy({"dredge.read.exact-keys": "never"})


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of eight rows."""
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 8)


@pytest.fixture
def raw_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of the lone parts that were read."""
    seen: list[int] = []
    real = lone_parts.read_raw_file

    def counted(*args: Any, **how: Any) -> Any:
        batches = list(real(*args, **how))
        seen.append(sum(batch.num_rows for batch in batches))
        yield from batches

    monkeypatch.setattr(lone_parts, "read_raw_file", counted)
    return seen


@pytest.mark.usefixtures("small_groups")
def test_between_two_outliers_nothing_is_merged(tmp_path: Path, raw_parts: list[int]) -> None:
    table = table_of(tmp_path)
    table.write(rows(list(range(100, 200)), 0))
    table.compact(full=True)
    table.write(rows([1, 5000], 1))
    assert [key for key, *_ in ordered(table)] == [1, *range(100, 200), 5000]
    assert raw_parts == [100]
    assert table.to_arrow(columns=[]).num_rows == 102
    assert ordered(table, columns=["v"], filter="v = 1") == [(1,), (1,)]
    raw_parts.clear()
    assert ordered(merged(table)) == ordered(table)
    assert len(raw_parts) == 1, "the second read alone"


@pytest.mark.usefixtures("small_groups")
def test_only_row_groups_that_meet_a_key_are_merged(tmp_path: Path, raw_parts: list[int]) -> None:
    table = table_of(tmp_path)
    table.write(rows(list(range(0, 1600, 10)), 0))
    table.compact(full=True)
    table.write(rows([-5, 415, 420, 900, 5000], 1), ["+I", "+I", "-D", "+U", "+I"])
    keys = sorted({-5, *range(0, 1600, 10), 415, 5000} - {420})
    answer = ordered(table)
    assert [key for key, *_ in answer] == keys
    assert [value for key, value, _ in answer if key == 900] == [1]
    assert raw_parts == [40, 40, 64], "row groups of 8 rows: keys 415 and 420 are in the sixth, 900 is in the twelfth"


@pytest.mark.usefixtures("small_groups")
def test_a_key_between_two_row_groups_separates_parts(tmp_path: Path, raw_parts: list[int]) -> None:
    table = table_of(tmp_path)
    table.write(rows(list(range(0, 1600, 10)), 0))
    table.compact(full=True)
    table.write(rows([-5, 795, 5000], 1))
    assert [key for key, *_ in ordered(table)] == sorted({-5, *range(0, 1600, 10), 795, 5000})
    assert raw_parts == [80, 80]


@pytest.mark.usefixtures("small_groups")
def test_two_large_files_are_compared_by_their_row_groups(
    tmp_path: Path, raw_parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_parts, "_LEAST_ROWS", 50)
    table = table_of(tmp_path, **{"dredge.read.exact-keys": "auto"})
    table.write(rows(list(range(100)), 0))
    table.write(rows(list(range(80, 180)), 1))
    assert [(key, value) for key, value, _ in ordered(table)] == [(k, int(k >= 80)) for k in range(180)]
    assert raw_parts == [80, 76]


@pytest.mark.usefixtures("small_groups")
def test_a_file_with_deletes_is_merged(tmp_path: Path, raw_parts: list[int]) -> None:
    table = table_of(tmp_path)
    table.write(rows(list(range(100, 200)), 0), ["-D", *["+I"] * 99])
    table.write(rows([1, 5000], 1))
    assert [key for key, *_ in ordered(table)] == [1, *range(101, 200), 5000]
    assert raw_parts == []


@pytest.mark.usefixtures("small_groups")
def test_a_file_out_of_order_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a lone part has passed must not be lost or repeated without a word."""
    table = table_of(tmp_path)
    table.write(rows(list(range(100, 200)), 0))
    table.write(rows([1, 150, 5000], 1))
    monkeypatch.setattr(lone_parts._SectionParts, "_compare_keys", lambda *_: True)
    with pytest.raises(CorruptFile, match="not in key order"):
        ordered(table)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("hostile", ["out of order", "too narrow"])
def test_a_file_whose_bounds_cannot_be_right_is_merged(
    tmp_path: Path, raw_parts: list[int], monkeypatch: pytest.MonkeyPatch, hostile: str
) -> None:
    """Bounds of row groups that contradict the key order or the file's own keys do not decide what is merged."""
    table = table_of(tmp_path)
    table.write(rows(list(range(100, 200)), 0))
    table.compact(full=True)
    table.write(rows([1, 150, 199, 5000], 1))
    real: Any = key_range.group_bounds_of_key

    def changed(*given: Any) -> Any:
        lows, highs = real(*given)
        if hostile == "out of order":
            swapped = pa.array([0, 6, *range(2, 6), 1, *range(7, len(lows))])
            return lows.take(swapped), highs.take(swapped)
        return lows, pa.array([*highs.to_pylist()[:-1], lows[-1].as_py()], highs.type)

    monkeypatch.setattr(lone_parts, "group_bounds_of_key", changed)
    expected = [(key, int(key in {1, 150, 199, 5000})) for key in [1, *range(100, 200), 5000]]
    assert [(key, value) for key, value, _ in ordered(table)] == expected
    assert raw_parts == []


def test_small_files_are_merged_by_default(tmp_path: Path, raw_parts: list[int]) -> None:
    table = table_of(tmp_path, **{"dredge.read.exact-keys": "auto"})
    table.write(rows(list(range(100, 200)), 0))
    table.write(rows([1, 5000], 1))
    assert len(ordered(table)) == 102
    assert raw_parts == []


@pytest.mark.usefixtures("small_groups")
def test_the_default_reads_large_parts(tmp_path: Path, raw_parts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where most row groups are met, no further file is searched."""
    monkeypatch.setattr(lone_parts, "_LEAST_ROWS", 50)
    monkeypatch.setattr(lone_parts, "_OPENING", 1)
    table = table_of(tmp_path, **{"dredge.read.exact-keys": "auto"})
    table.write(rows(list(range(0, 2000, 10)), 0))
    table.compact(full=True)
    table.write(rows([1, 5000], 1))
    table.write(rows([2, 805, 5001], 2))
    assert len(ordered(table)) == 205
    assert raw_parts == [72, 112], "the first and the eleventh row group meet a key"
    raw_parts.clear()
    table.write(rows(list(range(3, 2000, 100)), 3))
    assert len(ordered(table)) == 225
    assert raw_parts == []


def test_a_lone_part_is_described_by_its_row_groups() -> None:
    grouped = lone_parts._GroupedFile(_file(), [0, 10, 20, 30], [5, 15, 25, 35], [8, 8, 8, 8], whole=False)
    grouped.meet_range(16, 17)
    parts = list(grouped.parts(0))
    assert parts == [LonePart(grouped.file, 0, 2, 16, 0, 15), LonePart(grouped.file, 2, 4, 16, 20, 35)]
    grouped.meet_range(22, 40)
    assert grouped.met == [False, False, True, True]
    assert list(grouped.parts(0)) == parts[:1]
    assert list(grouped.parts(17)) == []


def _file() -> Any:
    from lsm_core.format.manifest import DataFileMeta

    class WithoutDeletes(DataFileMeta):
        delete_row_count = 0

        def __init__(self) -> None:
            pass

        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = None  # type: ignore[assignment]

    return WithoutDeletes()


COMMITS = st.lists(
    st.tuples(
        st.sampled_from(["spread", "range", "outliers"]), st.integers(0, 399), st.integers(1, 120), st.integers(0, 3)
    ),
    min_size=2,
    max_size=6,
)


@pytest.mark.parametrize(("keys", "kind"), one_in(10, product(KEYS, KINDS)))
@settings(max_examples=examples(6), deadline=None)
@given(COMMITS, st.integers(0, 5), st.sampled_from([1, 3, 8]), st.randoms(use_true_random=False))
def test_no_answer_changes(
    tmp_path_factory: pytest.TempPathFactory,
    keys: str,
    kind: str,
    commits: list[tuple[str, int, int, int]],
    compacted: int,
    group_rows: int,
    random: Any,
) -> None:
    """All rows, a choice of columns and a filter, in the order of the merge, for commits and compactions in any mix.

    The rows are also those of the reference implementation.
    """
    versions: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", group_rows)
        table = table_of(tmp_path_factory.mktemp("t"), keys, **KINDS[kind])
        for number, (shape, start, count, deletes) in enumerate(commits):
            if shape == "spread":
                numbers = sorted(random.sample(range(400), count))
            else:
                numbers = list(range(start, start + count)) if shape == "range" else [0, start, 401 + number]
            unique = sorted(set(numbers))
            kinds = ["+I"] * len(unique)
            if deletes == 1 and kind not in WITHOUT_DELETES:
                kinds[random.randrange(len(kinds))] = "-D"
            written = rows(unique, number + 1, keys)
            table.write(written, kinds)
            for values, row_kind in zip(map(tuple, map(dict.values, written.to_pylist())), kinds, strict=True):
                ordering = (number + 1,) if "sequence.field" in KINDS[kind] else ()
                versions.append(Row(values[:-2], ordering, number, 3 if row_kind == "-D" else 0, values))
            if number == compacted:
                table.compact(full=True)
        judged = merge_rows(versions, table.store.schema, dict(table.store.schema.options), drop_delete=True)
        assert ordered(table) == [row.values for row in judged]
        assert ordered(table) == ordered(merged(table))
        assert ordered(table, columns=["v"]) == ordered(merged(table), columns=["v"])
        chosen = {"columns": ["s", "k"], "filter": "v > 2"}
        assert ordered(table, **chosen) == ordered(merged(table), **chosen)


@pytest.mark.usefixtures("small_groups")
def test_rows_marked_in_a_lone_part_are_left_out(tmp_path: Path, raw_parts: list[int]) -> None:
    table = table_of(tmp_path, **KINDS["vectors"])
    table.write(rows(list(range(100, 200)), 0))
    table.compact(full=True)
    table.write(rows([150], 1), ["-D"])
    table.compact()
    table.write(rows([1, 5000], 1))
    expected = [1, *(key for key in range(100, 200) if key != 150), 5000]
    assert [key for key, *_ in ordered(table)] == expected
    assert [key for key, *_ in ordered(merged(table))] == expected
    assert sum(raw_parts) >= 50


def test_parts_of_a_large_table_by_default(tmp_path: Path, raw_parts: list[int]) -> None:
    """A table with row groups of the usual size."""
    table = table_of(tmp_path, **{"dredge.read.exact-keys": "auto"})
    count = 150_000
    table.write(
        pa.table(
            {
                "k": pa.array(np.arange(count), pa.int32()),
                "v": np.zeros(count, np.int64),
                "s": pa.array(["a"] * count),
            }
        )
    )
    table.write(rows([-1, count - 1, count + 7], 1))
    assert table.to_arrow(columns=["v"])["v"].to_pylist().count(1) == 3
    assert raw_parts == [131_072]
