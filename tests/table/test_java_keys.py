"""Keys, maps and column names at their edges, as Java has them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog
from lsm_core.errors import InvalidData, InvalidFilter, InvalidSchema, UnsupportedFeature

NANS = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64).view(
    np.float64
)


@pytest.mark.parametrize("name", ["_ROW_KIND", "_row_kind", "_Row_Kind", "rowkind", "_SEQUENCE_NUMBER"])
def test_names_that_changes_need_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSchema, match="is reserved"):
        Catalog(tmp_path).create_table("d.t", pa.schema([(name, pa.string())]), create_database=True)


def test_changes_of_a_table_of_another_engine_that_has_such_a_column_are_refused_by_name(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("d.t", pa.schema([("k", pa.int64()), ("kind_", pa.string())]), create_database=True)
    path = Path(table.store.root) / "schema" / "schema-0"
    path.write_text(path.read_text().replace("kind_", "_row_kind"))
    table = catalog.table("d.t")
    table.write([{"k": 1, "_row_kind": "x"}])
    assert table.to_arrow()["_row_kind"].to_pylist() == ["x"]
    with pytest.raises(UnsupportedFeature, match=r"column '_row_kind'.*rename"):
        table.incremental(0, 1)


def test_all_nans_are_one_key_in_one_bucket(tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.float64()), ("v", pa.int64())])
    table = Catalog(tmp_path).create_table(
        "d.t", columns, primary_keys=["k"], options={"bucket": "8"}, create_database=True
    )
    for number, nan in enumerate(NANS):
        table.write(pa.table([pa.array(np.array([nan])), pa.array([number])], schema=columns))
    assert table.to_arrow()["v"].to_pylist() == [len(NANS) - 1]
    stored = table.to_arrow()["k"][0].as_py()
    assert struct.pack(">d", stored).hex() == "7ff8000000000000"
    for nan in NANS:
        assert table.lookup(pa.table({"k": pa.array(np.array([nan]))}))["v"].to_pylist() == [len(NANS) - 1]


def test_nan_has_tests_of_its_own_in_filters(tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    table = Catalog(tmp_path).create_table("d.t", columns, primary_keys=["k"], create_database=True)
    table.write({"k": [1, 2, 3], "v": [1.0, float("nan"), None]})
    for given, expected in (
        ([("v", "is nan")], [2]),
        ([("v", "IS NOT NAN")], [1]),
        ([[("v", "is nan")], [("k", "=", 3)]], [2, 3]),
        ([[("v", "is nan")], []], [1, 2, 3]),
        ("v is nan", [2]),
        ("not v is nan", [1]),
        ("v is not nan or k > 2", [1, 3]),
        (pc.is_nan(pc.field("v")), [2]),
    ):
        assert sorted(table.to_arrow(["k"], given)["k"].to_pylist()) == expected, given
    for wrong in ([("k", "is nan")], [("v", "is nan", 1)], "k is nan", [("no", "is nan")], [("v", "is nan"), 5]):
        with pytest.raises(InvalidFilter, match=r"table d\.t"):
            table.to_arrow(filter=wrong)


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int64()), pa.list_(pa.map_(pa.string(), pa.int64()))])
def test_a_map_holds_each_key_once(tmp_path: Path, kind: pa.DataType) -> None:
    columns = pa.schema([("k", pa.int64()), ("m", kind)])
    table = Catalog(tmp_path).create_table("d.t", columns, create_database=True)
    inside = pa.types.is_list(kind)
    good, bad = [("a", 1), ("b", 2)], [("b", 1), ("a", 2), ("a", 3)]
    table.write(pa.table({"k": [1, 2], "m": pa.array([[good] if inside else good, None], kind)}))
    with pytest.raises(InvalidData, match=r"column 'm.*row 1 .*'a'.*has this key already"):
        table.write(
            pa.table({"k": [3, 4], "m": pa.array([[good, good] if inside else good, [bad] if inside else bad], kind)})
        )
    assert table.to_arrow().num_rows == 2


def test_keys_beneath_a_null_map_are_no_keys(tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("m", pa.map_(pa.int32(), pa.int64()))])
    table = Catalog(tmp_path).create_table("d.t", columns, create_database=True)
    offsets = pa.py_buffer(np.array([0, 2, 3, 5], np.int32))

    def maps(keys: list[int]) -> pa.Array:
        entries = pa.StructArray.from_arrays(
            [pa.array(keys, pa.int32()), pa.array(range(5), pa.int64())],
            fields=[pa.field("key", pa.int32(), nullable=False), pa.field("value", pa.int64())],
        )
        return pa.Array.from_buffers(columns.field("m").type, 3, [pa.py_buffer(b"\x06"), offsets], children=[entries])

    table.write(pa.table({"k": [1, 2, 3], "m": maps([7, 7, 1, 1, 2])}))
    assert table.to_arrow()["m"].to_pylist() == [None, [(1, 2)], [(1, 3), (2, 4)]]
    with pytest.raises(InvalidData, match=r"row 2 .*: 4 does not fit.*has this key already"):
        table.write(pa.table({"k": [1, 2, 3], "m": maps([7, 7, 1, 4, 4])}))
