"""The first value that breaks its type is found, however deep it lies, and nothing else is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.types import DataType, parse, to_arrow
from lsm_core.types.arrow import compact, find_misfit, refit
from tests.files.nested_evolution import _types, values_of

ROW = {
    "type": "ROW",
    "fields": [
        {"id": 1, "name": "x", "type": "INT NOT NULL"},
        {"id": 2, "name": "s", "type": {"type": "ARRAY", "element": "VARCHAR(2)"}},
    ],
}
MAP = {"type": "MAP", "key": "CHAR(2)", "value": "TIMESTAMP(0) NOT NULL"}
BAG = {"type": "MULTISET", "element": "BINARY(1)"}


@pytest.mark.parametrize(
    ("kind", "values", "row", "path", "reason"),
    [
        ("CHAR(2)", ["a", None, "ab", "é€", "abc", "x" * 9], 4, "", "3 characters"),
        ("VARCHAR(1)", ["", "𝄞", "ab"], 2, "", "2 characters"),
        ("BINARY(2)", [b"a", b"abc"], 1, "", "3 bytes"),
        ("VARBINARY(1)", [None, b"\xc3\xa9"], 1, "", "2 bytes"),
        ("TIME(1)", [100, 110], 1, "", "more than 1 digits"),
        ("TIMESTAMP(0)", [1000, -1], 1, "", "more than 0 digits"),
        ("TIMESTAMP(4)", [100, 101], 1, "", "more than 4 digits"),
        ("TIMESTAMP(8) WITH LOCAL TIME ZONE", [10, 5], 1, "", "more than 8 digits"),
        (ROW, [None, {"x": 1, "s": None}, {"x": 1, "s": ["ab", None, "abc"]}], 2, ".s[]", "3 characters"),
        (ROW, [{"x": 1, "s": ["abc"]}, {"x": None, "s": None}], 0, ".s[]", "3 characters"),
        (ROW, [None, {"x": None, "s": ["abc"]}], 1, ".x", "null where none may be"),
        ({"type": "ARRAY", "element": "INT NOT NULL"}, [None, [], [1], [2, None]], 3, "[]", "null"),
        ({"type": "ARRAY", "element": ROW}, [[], [None], [{"x": 1, "s": ["abc"]}]], 2, "[].s[]", "3 characters"),
        (MAP, [[("a", 1000)], [("abc", 0)]], 1, "{key}", "3 characters"),
        (MAP, [None, [("a", 1000), ("b", 1)]], 1, "{value}", "more than 0 digits"),
        (BAG, [[(b"a", 1)], [(b"ab", 1)]], 1, "{}", "2 bytes"),
    ],
)
def test_the_first_value_that_breaks_its_type_is_named(
    kind: Any, values: list[Any], row: int, path: str, reason: str
) -> None:
    declared = parse(kind)
    array = _array(values, declared)
    for given_array, at in ((array, row), (pa.concat_arrays([array.slice(0, 1), array]).slice(1), row)):
        found = find_misfit(given_array, declared)
        assert found is not None
        assert (found.row, found.path) == (at, path)
        assert reason in found.reason
    assert find_misfit(array.slice(0, row), declared) is None


def _array(values: list[Any], kind: DataType) -> pa.Array:
    """``values``; times as counts of their unit."""
    target = to_arrow(kind)
    if pa.types.is_time(target):
        return pa.array(values, pa.int32()).cast(target)
    if pa.types.is_timestamp(target):
        return pa.array(values, pa.int64()).cast(pa.timestamp(target.unit)).cast(target)
    if pa.types.is_map(target) and pa.types.is_timestamp(target.item_type):
        return refit(pa.array(values, pa.map_(target.key_type, pa.int64())), target)
    return pa.array(values, _loose(target))


def _loose(kind: pa.DataType) -> pa.DataType:
    """The type with nulls allowed everywhere, as arrays from elsewhere have it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _loose(f.type)) for f in kind])
    return pa.list_(_loose(kind.value_type)) if pa.types.is_list(kind) else kind


def test_what_lies_under_a_null_row_is_nobodys_value() -> None:
    inner = pa.array([1, None], pa.int32())
    array = pa.StructArray.from_arrays([inner], names=["x"], mask=pa.array([False, True]))
    kind = parse({"type": "ROW", "fields": [{"id": 1, "name": "x", "type": "INT NOT NULL"}]})
    assert find_misfit(array, kind) is None
    assert find_misfit(pa.StructArray.from_arrays([inner], names=["x"]), kind) is not None


@given(st.data())
def test_values_of_types_without_limits_always_fit_and_slices_refit_like_their_whole(data: st.DataObject) -> None:
    kind = data.draw(_types(iter(range(1, 1000)), depth=3))
    values = data.draw(st.lists(values_of(kind), max_size=8))
    array = pa.array(values, to_arrow(kind))
    assert find_misfit(array, kind) is None
    start = data.draw(st.integers(0, len(values)))
    cut = refit(array.slice(start), _loose(to_arrow(kind)))
    cut.validate(full=True)
    assert cut.to_pylist() == array.to_pylist()[start:]
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        small = compact(array.slice(start))
        small.validate(full=True)
        assert small.to_pylist() == array.to_pylist()[start:]
