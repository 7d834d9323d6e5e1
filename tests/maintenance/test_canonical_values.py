"""Equal sets, maps and bitmaps have one form, whatever the order or the bytes in which they are stored."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.canonical_values import canonical_rows, sort_map_entries
from lsm_core.maintenance.verify import unequal_rows
from lsm_core.merge.functions import roaring64
from lsm_core.types import parse

COLLECT = {"fields.v.aggregate-function": "collect", "fields.v.distinct": "true"}
ARRAYS = pa.list_(pa.string())


def _form(values: list[Any], kind: str, arrow: pa.DataType, options: dict[str, str]) -> list[Any]:
    schema = TableSchema(0, (DataField(0, "v", parse(kind)),), 0)
    # a slice, so that offsets do not begin with 0
    batch = pa.record_batch({"v": pa.array([*values[:1], *values], arrow).slice(1)})
    return canonical_rows(batch, schema, options).column(0).to_pylist()


def test_the_order_of_a_set_does_not_count() -> None:
    first = _form([["a", "b", None], [], None, ["c"]], "ARRAY<STRING>", ARRAYS, COLLECT)
    second = _form([["b", None, "a"], [], None, ["d"]], "ARRAY<STRING>", ARRAYS, COLLECT)
    assert first[:3] == second[:3]
    assert first[2] is None and first[3] != second[3]
    assert len({*first}) == 4
    assert _form([["a", "a"]], "ARRAY<STRING>", ARRAYS, COLLECT) != _form([["a"]], "ARRAY<STRING>", ARRAYS, COLLECT)


@pytest.mark.parametrize("options", [{}, {"fields.v.aggregate-function": "collect"}])
def test_the_order_of_other_arrays_counts(options: dict[str, str]) -> None:
    assert _form([["a", "b"]], "ARRAY<STRING>", ARRAYS, options) == [["a", "b"]]


def test_equal_bitmaps_have_equal_bytes() -> None:
    runs, plain_map = BitMap(range(1000)), BitMap()
    for number in range(1000):
        plain_map.add(number)
    plain = plain_map.serialize()
    assert runs.serialize() != plain
    options = {"fields.default-aggregate-function": "rbm32"}
    first, none, second = _form([plain, None, runs.serialize()], "BYTES", pa.binary(), options)
    assert first == second and none is None
    with pytest.raises(CorruptFile):
        _form([b"\x01\x02"], "BYTES", pa.binary(), options)
    wide = roaring64.encode(roaring64.of([1, 1 << 40]))
    assert _form([wide], "BYTES", pa.binary(), {"fields.v.aggregate-function": "rbm64"}) == [wide]


def test_entries_of_maps_have_one_order_at_any_depth() -> None:
    inner = pa.map_(pa.string(), pa.list_(pa.int32()))
    kind = pa.list_(pa.struct([("m", inner), ("x", pa.int32())]))
    entries = [("a", [1, 2]), ("b", None), ("c", [])]
    rows = [None, [], [{"m": entries, "x": 1}, {"m": None, "x": 2}, None]]
    turned = [None, [], [{"m": entries[::-1], "x": 1}, {"m": None, "x": 2}, None]]
    mine, theirs = pa.array(rows, kind), pa.array([[], *turned], kind).slice(1)
    assert not mine.equals(theirs)
    assert sort_map_entries(mine).equals(sort_map_entries(theirs))
    assert sort_map_entries(theirs).type == kind
    plain = pa.array([1, 2])
    assert sort_map_entries(plain) is plain


def test_rows_with_maps_are_equal_by_their_entries() -> None:
    schema = TableSchema(0, (DataField(0, "m", parse("MAP<STRING, INT>")),), 0)
    kind = pa.map_(pa.string(), pa.int32())
    mine = pa.table({"m": pa.array([[("a", 1), ("b", 2)], [("a", 1), ("b", 2)], None, []], kind)})
    theirs = pa.table({"m": pa.array([[("b", 2), ("a", 1)], [("a", 2), ("b", 1)], None, None], kind)})
    assert unequal_rows(mine, theirs, schema).tolist() == [False, True, False, True]
