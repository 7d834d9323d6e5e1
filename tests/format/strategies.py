"""Hypothesis strategies: types, and columns of values of a type."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from lsm_core.types import MAX_LENGTH, DataType, RowField, TypeRoot

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))


def _decimals(kind: DataType) -> st.SearchStrategy[Decimal]:
    limit = 10 ** (kind.precision or 0) - 1
    edges = st.sampled_from([0, 1, -1, 127, 128, -128, -129, limit, -limit])
    unscaled = st.one_of(edges.map(lambda v: max(-limit, min(limit, v))), st.integers(-limit, limit))
    return unscaled.map(lambda v: Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -(kind.scale or 0))))


def _moments(kind: DataType) -> st.SearchStrategy[datetime]:
    step = 1000 if (kind.precision or 0) <= 3 else 1
    zone = UTC if kind.root is TypeRoot.TIMESTAMP_LTZ else None
    return _MOMENTS.map(lambda v: v.replace(microsecond=v.microsecond // step * step, tzinfo=zone))


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values(kind: DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for values of ``kind``, without null."""
    root = kind.root
    if root is TypeRoot.DECIMAL:
        return _decimals(kind)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return _moments(kind)
    if root is TypeRoot.ARRAY:
        assert kind.element is not None
        return st.lists(st.none() | values(kind.element), max_size=40)
    if root is TypeRoot.MULTISET:
        assert kind.element is not None
        return st.lists(st.tuples(values(kind.element), _integers(32)), max_size=4)
    if root is TypeRoot.MAP:
        assert kind.key is not None
        assert kind.value is not None
        return st.lists(st.tuples(values(kind.key), st.none() | values(kind.value)), max_size=4)
    if root is TypeRoot.ROW:
        return st.fixed_dictionaries({f.name: st.none() | values(f.type) for f in kind.fields})
    return _SIMPLE[root]


_SIMPLE: dict[TypeRoot, st.SearchStrategy[Any]] = {
    TypeRoot.BOOLEAN: st.booleans(),
    TypeRoot.TINYINT: _integers(8),
    TypeRoot.SMALLINT: _integers(16),
    TypeRoot.INT: _integers(32),
    TypeRoot.BIGINT: _integers(64),
    TypeRoot.FLOAT: st.floats(width=32, allow_nan=False),
    TypeRoot.DOUBLE: st.floats(allow_nan=False),
    TypeRoot.DATE: st.dates(date(1, 1, 1), date(9999, 12, 31)),
    TypeRoot.TIME: st.times().map(lambda v: time(v.hour, v.minute, v.second, v.microsecond // 1000 * 1000)),
    TypeRoot.CHAR: _TEXT,
    TypeRoot.VARCHAR: _TEXT,
    TypeRoot.BINARY: st.binary(max_size=20),
    TypeRoot.VARBINARY: st.binary(max_size=20),
    TypeRoot.VARIANT: st.fixed_dictionaries({"value": st.binary(max_size=9), "metadata": st.binary(max_size=9)}),
}


def _simple_types() -> st.SearchStrategy[DataType]:
    plain_roots = [
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
    ]
    lengths = [TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY]
    moments = [TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ]
    return st.one_of(
        st.sampled_from(plain_roots).map(DataType),
        st.sampled_from(lengths).map(lambda root: DataType(root, length=MAX_LENGTH)),
        st.just(DataType(TypeRoot.TIME, precision=3)),
        st.builds(lambda r, p: DataType(r, precision=p), st.sampled_from(moments), st.integers(0, 6)),
        st.integers(1, 38).flatmap(
            lambda p: st.integers(0, p).map(lambda s: DataType(TypeRoot.DECIMAL, precision=p, scale=s))
        ),
    )


SIMPLE_TYPES = _simple_types()
TYPES = st.recursive(
    SIMPLE_TYPES | st.just(DataType(TypeRoot.VARIANT)),
    lambda inner: st.one_of(
        inner.map(lambda t: DataType(TypeRoot.ARRAY, element=t)),
        SIMPLE_TYPES.map(lambda t: DataType(TypeRoot.MULTISET, element=t)),
        st.builds(lambda k, v: DataType(TypeRoot.MAP, key=k, value=v), SIMPLE_TYPES, inner),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: DataType(TypeRoot.ROW, fields=tuple(RowField(i, f"f{i}", t) for i, t in enumerate(ts)))
        ),
    ),
    max_leaves=4,
)


@st.composite
def tables(draw: st.DrawFn, types: st.SearchStrategy[DataType] = TYPES) -> tuple[list[DataType], list[list[Any]]]:
    """Draw column types, and rows of these columns."""
    kinds = draw(st.lists(types, min_size=1, max_size=4))
    width = draw(st.sampled_from([0, 0, 0, 57, 60]))
    kinds += [DataType(TypeRoot.INT)] * max(0, width - len(kinds))
    rows = st.tuples(*(st.none() | values(kind) for kind in kinds)).map(list)
    return kinds, draw(st.lists(rows, min_size=1, max_size=5))


def bits(value: float) -> bytes:
    return struct.pack("<d", value)
