"""Random nested types, values and later versions of the types, with the expected values, computed one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from lsm_core.types import DataType, RowField, TypeRoot, parse

_LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "STRING": st.text(max_size=4),
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
}
# What a leaf may become, and how: casts themselves are tested elsewhere.
_LATER: dict[str, dict[str, Callable[[Any], Any]]] = {
    "INT": {"INT": lambda v: v, "BIGINT": lambda v: v, "STRING": str, "BOOLEAN": lambda v: v != 0},
    "STRING": {"STRING": lambda v: v, "BYTES": lambda v: v.encode()},
    "BOOLEAN": {"BOOLEAN": lambda v: v, "STRING": lambda v: str(v).lower(), "INT": int},
    "TINYINT": {"TINYINT": lambda v: v, "DOUBLE": float, "SMALLINT": lambda v: v},
}


@dataclass(frozen=True)
class Case:
    """Type of a column before and after schema changes, and values of the earlier type."""

    before: DataType
    after: DataType
    values: list[Any]

    def expected(self) -> list[Any]:
        """Return the values converted to the later type."""
        return [_walk(value, self.before, self.after) for value in self.values]


def _walk(value: Any, before: DataType, after: DataType) -> Any:
    if value is None:
        return None
    if before.root is TypeRoot.ROW:
        old = {field.id: field for field in before.fields}
        return {
            field.name: _walk(value[old[field.id].name], old[field.id].type, field.type) if field.id in old else None
            for field in after.fields
        }
    if before.root is TypeRoot.ARRAY:
        assert before.element is not None
        assert after.element is not None
        return [_walk(item, before.element, after.element) for item in value]
    if before.root is TypeRoot.MAP:
        assert before.value is not None
        assert after.value is not None
        return [(key, _walk(item, before.value, after.value)) for key, item in value]
    return _LATER[str(before)][str(after)](value)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a case with types of at most three nested levels."""
    ids = itertools.count(1)
    before = draw(_types(ids, depth=3))
    return Case(before, _later(draw, before, ids), draw(st.lists(values_of(before), min_size=1, max_size=8)))


def _types(ids: Any, depth: int) -> st.SearchStrategy[DataType]:
    leaves = st.sampled_from(sorted(_LEAVES)).map(parse)
    if not depth:
        return leaves
    inner = st.deferred(lambda: _types(ids, depth - 1))
    return st.one_of(
        leaves,
        inner.map(lambda kind: DataType(TypeRoot.ARRAY, element=kind)),
        inner.map(lambda kind: DataType(TypeRoot.MAP, key=parse("INT NOT NULL"), value=kind)),
        st.lists(inner, min_size=1, max_size=3).map(lambda kinds: _row(kinds, ids)),
    )


def _row(kinds: list[DataType], ids: Any) -> DataType:
    return DataType(TypeRoot.ROW, fields=tuple(RowField(i, f"f{i}", kind) for i, kind in zip(ids, kinds, strict=False)))


def _later(draw: st.DrawFn, kind: DataType, ids: Any) -> DataType:
    if kind.root is TypeRoot.ROW:
        kept = [field for field in kind.fields if draw(st.integers(0, 3))]
        fields = [replace(field, type=_later(draw, field.type, ids)) for field in kept]
        fields = [replace(f, name=f"renamed{f.id}") if draw(st.booleans()) else f for f in fields]
        added = draw(st.integers(0 if fields else 1, 2))
        fields += [RowField(i, f"new{i}", parse("STRING")) for i in itertools.islice(ids, added)]
        return replace(kind, fields=tuple(draw(st.permutations(fields))))
    if kind.element is not None:
        return replace(kind, element=_later(draw, kind.element, ids))
    if kind.value is not None:
        return replace(kind, value=_later(draw, kind.value, ids))
    return parse(draw(st.sampled_from(sorted(_LATER[str(kind)]))))


def values_of(kind: DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type, including null."""
    if kind.root is TypeRoot.ROW:
        found: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: values_of(f.type) for f in kind.fields})
    elif kind.element is not None:
        found = st.lists(values_of(kind.element), max_size=3)
    elif kind.value is not None:
        pairs = st.dictionaries(st.integers(-9, 9), values_of(kind.value), max_size=3)
        found = pairs.map(lambda made: list(made.items()))
    else:
        found = _LEAVES[str(kind)]
    return st.none() | found
