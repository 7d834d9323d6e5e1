"""Files of older schemas: columns by field id, in nested rows too; deleted positions; and nothing decoded that is not needed."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, InvalidData, InvalidSchema
from lsm_core.files import AppendFileWriter, open_append, open_kv
from lsm_core.files.formats.parquet import ParquetSource
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import DataField
from lsm_core.metadata.store import TableStore, write_schema
from lsm_core.storage import LocalFileIO
from lsm_core.types import DataType, RowField, TypeRoot, parse
from tests.commit.tables import EMPTY, make_store, reopen, write_append, write_kv
from tests.files.nested_evolution import Case, cases
from tests.support.samples import examples


def evolve(store: TableStore, fields: Sequence[DataField], primary_keys: Sequence[str] | None = None) -> TableStore:
    """The same table with another version of its schema."""
    schema = dataclasses.replace(
        store.schema,
        id=store.schema.id + 1,
        fields=tuple(fields),
        primary_keys=tuple(primary_keys or store.schema.primary_keys),
    )
    assert write_schema(LocalFileIO(), store.root, schema)
    return reopen(store.root)


def field(number: int, name: str, kind: Any) -> DataField:
    return DataField(number, name, parse(kind))


def rows(store: TableStore, meta: DataFileMeta, **choice: Any) -> list[dict[str, Any]]:
    reader = open_kv if store.schema.primary_keys else open_append
    found: list[dict[str, Any]] = []
    for batch in reader(store, EMPTY, 0, meta, **choice):
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def append(tmp_path: Path, fields: Mapping[str, str], data: Mapping[str, Sequence[Any]]) -> tuple[TableStore, Any]:
    store = make_store(tmp_path, fields, primary_keys=())
    return store, write_append(store, data)[0]


def test_columns_are_found_by_id_renamed_widened_added_dropped_and_moved(tmp_path: Path) -> None:
    old, meta = append(
        tmp_path, {"a": "INT", "b": "STRING", "c": "FLOAT"}, {"a": [1, None], "b": ["x", "y"], "c": [1.5, 2]}
    )
    store = evolve(
        old, [field(3, "d", "DATE"), field(1, "bb", "STRING"), field(0, "a", "BIGINT"), field(4, "c", "STRING")]
    )
    assert rows(store, meta) == [
        {"d": None, "bb": "x", "a": 1, "c": None},
        {"d": None, "bb": "y", "a": None, "c": None},
    ]
    (batch,) = open_append(store, EMPTY, 0, meta)
    assert batch.schema.field("a").type == pa.int64()
    assert rows(old, meta)[0] == {"a": 1, "b": "x", "c": 1.5}, (
        "the old version of the table still reads its own columns"
    )


def test_names_may_change_places(tmp_path: Path) -> None:
    old, meta = append(tmp_path, {"a": "INT", "b": "INT"}, {"a": [1], "b": [2]})
    store = evolve(old, [field(0, "b", "INT"), field(1, "a", "INT")])
    assert rows(store, meta) == [{"b": 1, "a": 2}]
    assert rows(store, meta, columns=["a"]) == [{"a": 2}]


def test_a_newer_file_reads_with_an_older_schema(tmp_path: Path) -> None:
    old = make_store(tmp_path, {"a": "INT", "b": "INT"}, primary_keys=())
    store = evolve(old, [field(0, "x", "BIGINT"), field(2, "c", "INT")])
    (meta,) = write_append(store, {"x": [7, None], "c": [3, 4]})
    assert rows(old, meta) == [{"a": 7, "b": None}, {"a": None, "b": None}]
    (meta,) = write_append(store, {"x": [7, 2**33 + 1], "c": [3, 4]})
    with pytest.raises(InvalidSchema, match=r"column 'a' was changed from INT to BIGINT .*: 8589934593 is no INT"):
        rows(old, meta)  # Java says 1


@pytest.mark.parametrize("thin", ["false", "true"])
def test_keys_may_be_renamed(tmp_path: Path, thin: str) -> None:
    old = make_store(tmp_path, options={"data-file.thin-mode": thin})
    (meta,) = write_kv(old, {"k": [1, 2], "v": ["a", "b"]}, first_sequence=5, kinds=[0, 3])
    store = evolve(old, [field(1, "v", "STRING"), field(0, "key", "BIGINT NOT NULL"), field(2, "w", "INT")], ["key"])
    assert rows(store, meta) == [
        {"_KEY_key": 1, "_SEQUENCE_NUMBER": 5, "_VALUE_KIND": 0, "v": "a", "key": 1, "w": None},
        {"_KEY_key": 2, "_SEQUENCE_NUMBER": 6, "_VALUE_KIND": 3, "v": "b", "key": 2, "w": None},
    ]
    assert rows(store, meta, columns=["w"], need_sequence=False, need_kind=False)[1] == {"_KEY_key": 2, "w": None}


def test_only_needed_columns_are_decoded_and_a_file_without_any_of_them_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, meta = append(tmp_path, {"a": "INT", "b": "INT"}, {"a": list(range(10)), "b": list(range(10))})
    store = evolve(old, [field(0, "x", "STRING"), field(1, "b", "INT"), field(2, "new", "INT")])
    decoded: list[list[str]] = []
    plain = ParquetSource.batches

    def spy(self: ParquetSource, columns: Any, *rest: Any, **how: Any) -> Any:
        decoded.append(list(columns))
        return plain(self, columns, *rest, **how)

    monkeypatch.setattr(ParquetSource, "batches", spy)
    assert rows(store, meta, columns=["new", "x"])[3] == {"new": None, "x": "3"}
    assert rows(store, meta, columns=["new"], batch_rows=4) == [{"new": None}] * 10
    assert decoded == [["a"]]


def test_casts_are_those_of_java(tmp_path: Path) -> None:
    old, meta = append(
        tmp_path,
        {"i": "INT", "d": "DOUBLE", "s": "STRING", "t": "TIMESTAMP(6)", "n": "DECIMAL(10, 2)"},
        {
            "i": [300, -3],
            "d": [1e10, -2.25],
            "s": ["26", "-7"],
            "t": [dt.datetime(2024, 1, 1, 10, 0, 0, 123456)] * 2,
            "n": [Decimal("1.25"), Decimal("99999.99")],
        },
    )
    kinds = {"i": "TINYINT", "d": "DECIMAL(20, 3)", "s": "BIGINT", "t": "STRING", "n": "DECIMAL(4, 1)"}
    store = evolve(old, [field(i, name, kind) for i, (name, kind) in enumerate(kinds.items())])
    stamp = "2024-01-01 10:00:00.123456"
    assert rows(store, meta) == [
        {"i": 44, "d": Decimal("10000000000.000"), "s": 26, "t": stamp, "n": Decimal("1.3")},
        {"i": -3, "d": Decimal("-2.250"), "s": -7, "t": stamp, "n": None},
    ]


def test_a_value_that_the_new_type_cannot_take_names_column_file_and_value(tmp_path: Path) -> None:
    old, meta = append(tmp_path, {"s": "STRING", "o": "INT"}, {"s": ["1", "zz"], "o": [1, 2]})
    store = evolve(old, [field(0, "n", "INT"), field(1, "o", "INT")])
    with pytest.raises(InvalidData, match=rf"column 'n': 'zz' is no INT .*{meta.file_name}"):
        rows(store, meta)
    assert rows(store, meta, columns=["o"]) == [{"o": 1}, {"o": 2}]


def test_nulls_stay_nulls_where_a_column_became_not_null_later(tmp_path: Path) -> None:
    old, meta = append(tmp_path, {"a": "INT"}, {"a": [1, None]})
    store = evolve(old, [field(0, "a", "INT NOT NULL")])
    assert rows(store, meta) == [{"a": 1}, {"a": None}], "as Java reads them"
    with pytest.raises(CorruptFile, match="'a' holds nulls"):
        rows(store, dataclasses.replace(meta, schema_id=1))
    writer = AppendFileWriter(store, EMPTY, 0, -1, 1)
    with pytest.raises(InvalidData, match="column 'a': NOT NULL, but there are nulls in it, from before it became so"):
        writer.write(next(iter(open_append(store, EMPTY, 0, meta))))


def test_a_file_that_lacks_a_column_of_its_own_schema_is_corrupt(tmp_path: Path) -> None:
    old, meta = append(tmp_path, {"a": "INT"}, {"a": [1]})
    store = evolve(old, [field(0, "a", "INT"), field(1, "b", "INT")])
    assert rows(store, meta) == [{"a": 1, "b": None}]
    lying = dataclasses.replace(meta, schema_id=1)
    with pytest.raises(CorruptFile, match="no column 'b'"):
        rows(store, lying)
    assert rows(store, dataclasses.replace(lying, write_cols=("a",))) == [{"a": 1, "b": None}]


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=cases())
def test_any_nested_evolution_reads_what_a_walk_through_the_values_gives(
    tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    old = _store_of(tmp_path_factory.mktemp("table"), case.before)
    (meta,) = write_append(old, {"v": case.values})
    store = evolve(old, [DataField(0, "v", case.after)])
    found = [row["v"] for row in rows(store, meta, batch_rows=3)]
    assert found == case.expected()


def _store_of(root: Path, kind: DataType) -> TableStore:
    store = make_store(root, {"v": "INT"}, primary_keys=())
    schema = dataclasses.replace(store.schema, fields=(DataField(0, "v", kind),))
    Path(store.schema_path(0)).unlink()
    assert write_schema(LocalFileIO(), store.root, schema)
    return reopen(store.root)


# -- deleted positions -------------------------------------------------------------------------------------------------


class Gone:
    """A deletion vector as the reader sees it."""

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = np.asarray(positions, np.int64)

    def deleted_mask(self, first_row: int, rows: int) -> npt.NDArray[np.bool_]:
        return np.isin(np.arange(first_row, first_row + rows), self.positions)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=st.lists(st.integers(0, 3), max_size=4, unique=True).map(sorted),
    batch_rows=st.integers(1, 50),
    gone=st.lists(st.integers(0, 39), unique=True),
)
def test_deleted_positions_count_rows_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, groups: list[int], batch_rows: int, gone: list[int]
) -> None:
    store = make_store(tmp_path_factory.mktemp("dv"), {"a": "INT"}, primary_keys=(), options={"file.block-size": "1 b"})
    (meta,) = write_append(store, {"a": list(range(40))})
    path = store.data_path(EMPTY, 0, meta)
    _write_groups(path, 10)
    meta = dataclasses.replace(meta, file_size=Path(path).stat().st_size)
    found = rows(store, meta, row_groups=groups, batch_rows=batch_rows, deleted=Gone(gone))
    rows_of_groups = itertools.chain.from_iterable(range(10 * group, 10 * group + 10) for group in groups)
    assert [row["a"] for row in found] == [value for value in rows_of_groups if value not in gone]


def _write_groups(path: str, group_rows: int) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    pq.write_table(table, path, row_group_size=group_rows)


@pytest.mark.parametrize(
    ("deleted_rows", "batches"),
    [([0], 1), ([19_999], 1), ([0, 19_999], 1), ([10_000], 2), ([1, 2, 5_000], 3), (range(0, 20_000, 5_000), 1)],
)
def test_rows_between_few_deleted_rows_are_slices(tmp_path: Path, deleted_rows: Sequence[int], batches: int) -> None:
    store = make_store(tmp_path, {"a": "INT"}, primary_keys=())
    (meta,) = write_append(store, {"a": np.arange(20_000)})
    slices = list(open_append(store, EMPTY, 0, meta, deleted=Gone(deleted_rows)))
    assert len(slices) == batches
    expected = np.delete(np.arange(20_000), deleted_rows)
    assert np.array_equal(np.concatenate([batch["a"].to_numpy() for batch in slices]), expected)


def test_deleted_rows_are_left_out_before_they_are_cast(tmp_path: Path) -> None:
    old, meta = append(tmp_path, {"s": "STRING"}, {"s": ["1", "zz", "3"]})
    store = evolve(old, [field(0, "s", "INT"), field(1, "new", "INT")])
    assert rows(store, meta, deleted=Gone([1])) == [{"s": 1, "new": None}, {"s": 3, "new": None}]
    assert rows(store, meta, columns=["new"], deleted=Gone([0, 2])) == [{"new": None}]
    assert rows(store, meta, deleted=Gone([0, 1, 2])) == []


def test_fields_of_rows_in_arrays_and_maps_are_found_by_id(tmp_path: Path) -> None:
    inner = DataType(TypeRoot.ROW, fields=(RowField(2, "x", parse("INT")), RowField(3, "y", parse("STRING"))))
    later = DataType(TypeRoot.ROW, fields=(RowField(4, "z", parse("DATE")), RowField(2, "y", parse("STRING"))))
    before = DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.MAP, key=parse("STRING NOT NULL"), value=inner))
    after = DataType(TypeRoot.ARRAY, element=DataType(TypeRoot.MAP, key=parse("STRING NOT NULL"), value=later))
    old = _store_of(tmp_path, before)
    (meta,) = write_append(old, {"v": [[[("a", {"x": 1, "y": "q"})], None, [("b", None)]], None, []]})
    store = evolve(old, [DataField(0, "v", after)])
    assert [row["v"] for row in rows(store, meta)] == [
        [[("a", {"z": None, "y": "1"})], None, [("b", None)]],
        None,
        [],
    ]
