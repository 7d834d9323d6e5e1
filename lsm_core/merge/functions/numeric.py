"""Sums and products: exact, step by step in the order of arrival, with Paimon's rules for nulls, overflow and taking back.

Integers that leave their type raise at the very step. Floats are left folds, bit for bit. A decimal that leaves its
precision becomes null, and the next input begins anew (Java `FieldSumAgg`, `FieldProductAgg`, `DecimalUtils`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, offsets_from, valid_mask, values_of
from lsm_core.errors import InvalidOption
from lsm_core.merge.comparable import (
    Ints,
    Mask,
)
from lsm_core.merge.functions.base import (
    INVALID,
    OVERFLOW,
    RETRACT,
    Accumulators,
    AggregateFunction,
    FieldOptions,
    Folding,
    GroupError,
    steps,
)
from lsm_core.types import DataType, TypeRoot

_INTEGERS: Final = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_FLOATS: Final[dict[TypeRoot, type[Any]]] = {TypeRoot.FLOAT: np.float32, TypeRoot.DOUBLE: np.float64}
_LOW_HALF: Final = np.int64(0xFFFFFFFF)
_SHIFT: Final = np.int64(32)
_LONG_GROUP: Final = 64
"""Inputs of a group from which it is folded by itself; shorter ones go together, one step of all groups at a time."""
_EXACT: Final = Context(prec=200)


Numbers = tuple[pa.Array, Mask | None]


class _Numeric(AggregateFunction):
    """Null inputs say nothing; a null accumulator is replaced by the first input."""

    supports_retract: ClassVar[bool] = True

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        seen = initial.seen | (folding.sizes > 0)
        given = folding.only(folding.valid())
        before = valid_mask(initial.values)
        begun = np.ones(len(folding), np.bool_) if before is None else before
        if not len(given.values):
            return Accumulators(initial.values, seen)
        numbers, alone = self._numbers(given, initial.values, begun)
        return Accumulators(numbers, seen, alone)

    @abstractmethod
    def _numbers(self, given: Folding, initial: pa.Array, begun: Mask) -> Numbers:
        """The accumulators after inputs that are not null, and which groups were folded one after another.

        ``begun``: which initial accumulators are not null.
        """

    def _overflow(self, group: int) -> GroupError:
        return GroupError(OVERFLOW, group, f"{self.name} of column '{self.field}' leaves the range of {self.type}")


def _accumulated(step: np.ufunc, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any]:
    """Left folds of all groups, one input of each at a time."""
    total = values[layers[0]]
    with np.errstate(all="ignore"):
        for rows in layers[1:]:
            step(total[: len(rows)], values[rows], out=total[: len(rows)])
    return total


def _array(values: npt.NDArray[Any], valid: Mask, kind: pa.DataType) -> pa.Array:
    return arrow_array(values, mask=~valid).cast(kind)


class SumIntegers(_Numeric):
    """Prefix sums of all groups at once, in two halves, so that no 64-bit sum can wrap unseen."""

    name: ClassVar[str] = "sum"

    def _numbers(self, given: Folding, initial: pa.Array, begun: Mask) -> Numbers:
        values = numpy_array(given.values.cast(pa.int64())).astype(np.int64, copy=False)
        start = numpy_array(initial.cast(pa.int64()).fill_null(arrow_scalar(0)))
        filled = begun | (given.sizes > 0)
        bits = _INTEGERS[self.type.root]
        minus = given.ops == RETRACT if given.ops is not None else None
        largest = max(-int(values.min()), int(values.max()))
        held = max(-int(start.min(initial=0)), int(start.max(initial=0)))
        most = largest * int(given.sizes.max()) + held
        if most < 1 << (bits - 1) and largest * len(values) + held < 1 << 63:
            # no prefix of any group can reach the limit, and the sum over everything fits 64 bits
            signed = values if minus is None else np.where(minus, -values, values)
            running = offsets_from(signed)
            total = start + running[given.offsets[1:]] - running[given.offsets[:-1]]
            return _array(total, filled, self.arrow_type), None
        return _array(self._checked(values, minus, start, given, bits), filled, self.arrow_type), None

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """As in the base class, unless a sum could leave its type."""
        largest = max(-int(values.min()), int(values.max()))
        if largest * len(layers) >= 1 << (_INTEGERS[self.type.root] - 1):
            return None
        return _accumulated(np.add, values, layers)

    def _checked(self, values: Ints, minus: Mask | None, start: Ints, given: Folding, bits: int) -> Ints:
        high, low = values >> _SHIFT, values & _LOW_HALF
        if minus is not None:
            high, low = np.where(minus, -high, high), np.where(minus, -low, low)
        groups = given.groups
        begins = given.offsets[:-1][groups]

        def prefix(half: Ints, first: Ints) -> Ints:
            running = offsets_from(half)
            return np.asarray(running[1:] - running[begins] + first[groups])

        low_sum = prefix(low, start & _LOW_HALF)
        high_sum = prefix(high, start >> _SHIFT) + (low_sum >> _SHIFT)
        low_sum &= _LOW_HALF
        if bits == 64:
            wrong = (high_sum < -(1 << 31)) | (high_sum >= 1 << 31)
            whole = (high_sum << _SHIFT) | low_sum
        else:
            whole = (high_sum << _SHIFT) | low_sum
            wrong = (whole < -(1 << (bits - 1))) | (whole >= 1 << (bits - 1))
        if wrong.any():
            raise self._overflow(int(groups[int(np.argmax(wrong))]))
        total = start.copy()
        some = given.sizes > 0
        total[some] = whole[given.offsets[1:][some] - 1]
        return total


class _Stepwise(_Numeric):
    """Left folds of numbers that NumPy holds: short groups a step at a time, all together; long ones each by itself."""

    def _numbers(self, given: Folding, initial: pa.Array, begun: Mask) -> Numbers:
        dtype = self._dtype()
        values = values_of(given.values, dtype)
        total = np.array(np.where(begun, values_of(initial, dtype), dtype(0)), dtype)
        filled = begun.copy()
        minus = given.ops == RETRACT if given.ops is not None else np.zeros(len(values), np.bool_)
        long = self._long(given, minus)
        for group in np.flatnonzero(long).tolist():  # a few: each has many rows
            part = values[given.offsets[group] : given.offsets[group + 1]]
            part = np.concatenate((total[group : group + 1], part)) if filled[group] else part
            total[group], filled[group] = self._one(part), True
        kept = given.only(~long[given.groups]) if long.any() else given
        if kept is not given:
            values, minus = values_of(kept.values, dtype), minus[~long[given.groups]]
        with np.errstate(all="ignore"):
            for groups, rows in steps(kept.offsets):
                total[groups], filled[groups] = self._step(
                    total[groups], filled[groups], values[rows], minus[rows], groups
                )
        return _array(total, filled, self.arrow_type), None

    @abstractmethod
    def _dtype(self) -> type[Any]:
        """NumPy's scalar type of the field."""

    def _long(self, given: Folding, minus: Mask) -> Mask:
        """Groups that are better folded each by itself, with :meth:`_one`."""
        return np.zeros(len(given), np.bool_)

    def _one(self, values: npt.NDArray[Any]) -> Any:
        """All inputs of one long group."""
        raise AssertionError(f"{self.name} folds no group by itself")

    @abstractmethod
    def _step(
        self, total: npt.NDArray[Any], filled: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        """One more input of each group."""


class SumFloats(_Stepwise):
    """Sums of floats, each addition rounded as Java rounds it."""

    name: ClassVar[str] = "sum"
    _adding: ClassVar[np.ufunc] = np.add

    def fold_layers(self, values: npt.NDArray[Any], layers: Sequence[Ints]) -> npt.NDArray[Any] | None:
        """As in the base class."""
        return _accumulated(self._adding, values, layers)

    def _dtype(self) -> type[Any]:
        return _FLOATS[self.type.root]

    def _long(self, given: Folding, minus: Mask) -> Mask:
        long = given.sizes > _LONG_GROUP
        long[given.groups[minus]] = False
        return long

    def _one(self, values: npt.NDArray[Any]) -> Any:
        # `accumulate` goes from left to right; `sum` and `reduceat` add in pairs and give other bits
        with np.errstate(all="ignore"):
            return self._adding.accumulate(values)[-1]

    def _step(
        self, total: npt.NDArray[Any], filled: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        signed = np.where(minus, -value, value)
        return np.where(filled, total + signed, signed), np.ones(len(filled), np.bool_)


class ProductFloats(SumFloats):
    """Products of floats; a retract divides, and leaves null null."""

    name: ClassVar[str] = "product"
    _adding: ClassVar[np.ufunc] = np.multiply

    def _step(
        self, total: npt.NDArray[Any], filled: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        changed = np.where(minus, total / value, total * value)
        return np.where(filled, changed, value), filled | ~minus


class ProductIntegers(_Stepwise):
    """Products of integers; a retract divides and cuts off the fraction."""

    name: ClassVar[str] = "product"

    def _dtype(self) -> type[Any]:
        return np.dtype(f"i{_INTEGERS[self.type.root] // 8}").type

    def _step(
        self, total: npt.NDArray[Any], filled: Mask, value: npt.NDArray[Any], minus: Mask, groups: Ints
    ) -> tuple[npt.NDArray[Any], Mask]:
        left, right = total.astype(np.int64), value.astype(np.int64)
        bits = _INTEGERS[self.type.root]
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        with np.errstate(all="ignore"):
            product = left * right
            safe = np.where(left == 0, 1, left)
            # NumPy's division rounds down: exact here, as it only undoes the multiplication
            wrapped = (left != 0) & ((product // safe != right) | ((left == -1) & (right == np.iinfo(np.int64).min)))
            divisor = np.where(right == 0, 1, right)
            down = left // divisor
            quotient = down + ((down < 0) & (down * divisor != left))  # rounds towards zero, as Java's
        by_zero = minus & filled & (right == 0)
        if by_zero.any():
            group = int(groups[int(np.argmax(by_zero))])
            raise GroupError(INVALID, group, f"{self.name} of column '{self.field}' cannot take back a zero")
        past = minus & filled & (divisor == -1) & (left == low)
        wrong = past | (~minus & filled & (wrapped | (product < low) | (product > high)))
        if wrong.any():
            raise self._overflow(int(groups[int(np.argmax(wrong))]))
        changed = np.where(minus, quotient, product)
        return np.where(filled, changed, right).astype(total.dtype), filled | ~minus


class _Decimals(_Numeric):
    """Decimals a group at a time: only groups with inputs come here, and Python's own arithmetic is exact."""

    def _numbers(self, given: Folding, initial: pa.Array, begun: Mask) -> Numbers:
        results: list[Decimal | None] = initial.to_pylist()
        inputs: list[Decimal] = given.values.to_pylist()
        ops = given.ops
        for group in np.flatnonzero(given.sizes > 0).tolist():
            total = results[group]
            for row in range(int(given.offsets[group]), int(given.offsets[group + 1])):
                total = self._next(total, inputs[row], ops is not None and ops[row] == RETRACT, group)
            results[group] = total
        return pa.array(results, self.arrow_type), given.sizes + begun > 1

    @abstractmethod
    def _next(self, total: Decimal | None, value: Decimal, minus: bool, group: int) -> Decimal | None:
        """The accumulator after one more input."""

    def _fitting(self, number: Decimal) -> Decimal | None:
        scaled = number.quantize(Decimal(1).scaleb(-(self.type.scale or 0)), rounding=ROUND_HALF_UP, context=_EXACT)
        return scaled if len(scaled.as_tuple().digits) <= (self.type.precision or 10) else None


class SumDecimals(_Decimals):
    """Sums of decimals: prefix sums while nothing can leave the precision, else input by input."""

    name: ClassVar[str] = "sum"

    def _numbers(self, given: Folding, initial: pa.Array, begun: Mask) -> Numbers:
        quick = self._quick(given, initial, begun)
        return super()._numbers(given, initial, begun) if quick is None else (quick, None)

    def _quick(self, given: Folding, initial: pa.Array, begun: Mask) -> pa.Array | None:
        """Unscaled values as 64-bit integers, if no prefix of any group can reach the limit."""
        precision = self.type.precision or 10
        halves = values_of(given.values, np.dtype((np.int64, (2,))))
        held = values_of(initial, np.dtype((np.int64, (2,))))
        values, start = halves[:, 0], np.where(begun, held[:, 0], 0)
        if (halves[:, 1] != values >> np.int64(63)).any() or (held[begun, 1] != held[begun, 0] >> np.int64(63)).any():
            return None
        largest = max(-int(values.min()), int(values.max()))
        first = max(-int(start.min(initial=0)), int(start.max(initial=0)))
        limit = min(10**precision, 1 << 63)
        if largest * int(given.sizes.max()) + first >= limit or largest * len(values) + first >= 1 << 63:
            return None
        signed = values if given.ops is None else np.where(given.ops == RETRACT, -values, values)
        running = offsets_from(signed)
        total = start + running[given.offsets[1:]] - running[given.offsets[:-1]]
        words = np.ascontiguousarray(np.stack((total, total >> np.int64(63)), axis=1))
        filled = begun | (given.sizes > 0)
        bits = arrow_array(filled).buffers()[1]
        nulls = len(filled) - int(filled.sum())
        return pa.Array.from_buffers(
            self.arrow_type, len(filled), [bits if nulls else None, pa.py_buffer(words)], nulls
        )

    def _next(self, total: Decimal | None, value: Decimal, minus: bool, group: int) -> Decimal | None:
        signed = _EXACT.minus(value) if minus else value
        return signed if total is None else self._fitting(_EXACT.add(total, signed))


class ProductDecimals(_Decimals):
    """Products of decimals, rounded half up to the scale; a retract divides exactly or not at all."""

    name: ClassVar[str] = "product"

    def _next(self, total: Decimal | None, value: Decimal, minus: bool, group: int) -> Decimal | None:
        if not minus:
            return value if total is None else self._fitting(_EXACT.multiply(total, value))
        if total is None:
            return None
        if value == 0:
            raise GroupError(INVALID, group, f"{self.name} of column '{self.field}' cannot take back a zero")
        dividing = _EXACT.copy()
        dividing.clear_flags()
        quotient = dividing.divide(total, value)
        if dividing.flags[Inexact]:
            raise GroupError(INVALID, group, f"{self.name} of column '{self.field}': {total} / {value} does not end")
        return self._fitting(quotient)


def _numeric(name: str, integers: type[_Numeric], floats: type[_Numeric], decimals: type[_Numeric]) -> Any:
    def make(kind: DataType, options: FieldOptions) -> AggregateFunction:
        if kind.root in _INTEGERS:
            return integers(kind, options)
        if kind.root in _FLOATS:
            return floats(kind, options)
        if kind.root is TypeRoot.DECIMAL:
            return decimals(kind, options)
        accepted = "this function for TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE or DECIMAL"
        raise InvalidOption(options.key("aggregate-function"), f"{name} on type {kind}", accepted, options.table)

    return make


FUNCTIONS = {
    "sum": _numeric("sum", SumIntegers, SumFloats, SumDecimals),
    "product": _numeric("product", ProductIntegers, ProductFloats, ProductDecimals),
}
